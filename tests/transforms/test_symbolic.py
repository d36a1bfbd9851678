"""Symbolic integers in jit, and state written in place: counted, and held against NumPy at every value."""

from __future__ import annotations

import gc
from unittest.mock import Mock

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.look import Counts, watch
from picograd.nn import functional as F
from picograd.transforms.buffer_reuse import COUNTS_TELL

IN_PLACE = pytest.mark.skipif(not COUNTS_TELL, reason="reference counts of this interpreter do not tell who reads state")


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def address(tensor: Tensor) -> int:
    held = tensor.cell.held()
    assert held is not None
    return int(held[0].memory.address)


def work(counts: Counts) -> tuple[int, int, int]:
    return counts.scheduled, counts.lowered, counts.compiled


@pytest.mark.req("G4")
def test_a_bound_variable_is_an_input_of_the_plan() -> None:
    data, n = np.random.default_rng(0).standard_normal((4, 20)).astype(np.float32), pg.Variable("n", 1, 20)
    x, calls = Tensor(data).realize(), Mock()

    @pg.jit
    def f(x: Tensor, n: object) -> tuple[Tensor, Tensor]:
        calls(n)
        return x[:, :n].softmax(-1), x[:, n - 1]

    for number, k in enumerate((3, 7, 20, 1, 12)):
        with watch() as counts:
            rows, last = f(x, n.bind(k))
        expected = np.exp(data[:, :k]) / np.exp(data[:, :k]).sum(1, keepdims=True)
        np.testing.assert_allclose(rows.numpy(), expected, atol=1e-6)  # at most 20 terms, weights below 1
        np.testing.assert_array_equal(last.numpy(), data[:, k - 1])
        assert number == 0 or work(counts) == (0, 0, 0)
        assert counts.plans == 1
    assert calls.call_count == 2 and len(f.forms) == 1


@pytest.mark.req("G4")
def test_views_of_symbolic_length_are_one_shape() -> None:
    x, n = Tensor(np.arange(40).reshape(2, 20).astype(np.float32)).realize(), pg.Variable("n", 1, 20)
    total = pg.jit(lambda view: view.sum(1))
    for k in (3, 5, 20, 1):
        assert total(x[:, : n.bind(k)]).tolist() == np.arange(40).reshape(2, 20)[:, :k].sum(1).tolist()
    assert len(total.forms) == 1


@pytest.mark.req("G4")
def test_values_of_symbolic_integers_are_not_frozen_into_a_plan() -> None:
    x, n = Tensor([1.0, 2.0, 3.0, 4.0]).realize(), pg.Variable("n", 1, 4)
    with pytest.raises(pg.JitError, match="the value of n is asked for while a function is traced"):
        pg.jit(lambda n: x[: n.value].sum())(n.bind(2))
    with pytest.raises(pg.JitError, match="returns a symbolic integer"):
        pg.jit(lambda n: n + 1)(n.bind(2))
    with pytest.raises(pg.IndexingError, match="for some values: n \\+ 1 is 2 to 5"):
        pg.jit(lambda n: x[n].sum())(n.bind(2))


# ---- state in place ----
@IN_PLACE
@pytest.mark.req("G4")
def test_a_row_of_state_is_written_where_it_lies() -> None:
    """The kernel runs over one row of 64; nothing of the size of the cache is written or allocated."""
    cache, expected, n = pg.zeros(1000, 64).clone().realize(), np.zeros((1000, 64), np.float32), pg.Variable("n", 0, 999)

    @pg.jit
    def put(row: Tensor, n: object) -> Tensor:
        cache[n] = row
        return cache[: n + 1].sum(0)

    places = set()
    for number, k in enumerate((0, 1, 2, 3, 700, 701)):
        row = Tensor(np.full(64, k + 1.0, np.float32)).realize()
        expected[k] = k + 1
        gc.collect()
        pg.reset_peak_memory_stats()
        held = pg.memory_allocated()
        with watch() as counts:
            out = put(row, n.bind(k))
        np.testing.assert_array_equal(out.numpy(), expected[: k + 1].sum(0))
        if number >= 2:
            places.add(address(cache))
            assert pg.max_memory_allocated() - held <= 64 * 1024
            assert counts.names[0].startswith("update") and counts.kernels == 2
    assert len(places) == 1
    np.testing.assert_array_equal(cache.numpy(), expected)


@IN_PLACE
@pytest.mark.req("G10")
def test_a_version_that_somebody_holds_is_kept() -> None:
    cache, n = pg.zeros(8, 4).clone().realize(), pg.Variable("n", 0, 7)

    @pg.jit
    def put(row: Tensor, n: object) -> None:
        cache[n] = row

    kept = []
    for k in range(8):
        put(pg.full((4,), k + 1.0).realize(), n.bind(k))
        kept.append(cache.clone().realize() if k % 2 else cache + 0)  # one computed, one still a graph
    for k, version in enumerate(kept):
        assert version[:, 0].tolist() == [*range(1, k + 2), *[0] * (7 - k)]


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def model_and_step(optimizer: str) -> tuple[nn.Module, object]:
    pg.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 6), Flat(), nn.Linear(18, 33), nn.Tanh(), nn.Linear(33, 11))
    make = {"SGD": optim.SGD, "momentum": lambda p, lr: optim.SGD(p, lr, momentum=0.9), "AdamW": optim.AdamW}[optimizer]
    opt = make(model.parameters(), lr=0.05)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    return model, step


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    return Tensor(rng.integers(0, 11, (7, 3))).realize(), Tensor(rng.integers(0, 11, 7)).realize()


@IN_PLACE
@pytest.mark.req("G8")
@pytest.mark.parametrize("optimizer", ["SGD", "momentum", "AdamW"])
def test_parameters_are_updated_where_they_lie(optimizer: str) -> None:
    """With the values of steps without jit: what is computed beside a sum, and the processor, decide its order."""
    (eager, plain), (model, step) = model_and_step(optimizer), model_and_step(optimizer)
    jitted = pg.jit(step)
    for number in range(5):
        assert jitted(*batch(number)).item() == pytest.approx(plain(*batch(number)).item(), rel=1e-6)
    places = [address(p) for p in model.parameters()]
    assert jitted(*batch(5)).item() == pytest.approx(plain(*batch(5)).item(), rel=1e-6)
    same = [a == address(p) for a, p in zip(places, model.parameters())]
    assert sum(same) >= 4  # what is computed beside a CHECK of the loss has memory of its own
    for a, b in zip(eager.parameters(), model.parameters()):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.req("B6")
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_wrong_index_leaves_every_parameter_as_it_was(optimizer: str) -> None:
    model, step = model_and_step(optimizer)
    jitted = pg.jit(step)
    for number in range(4):
        jitted(*batch(number))
    before = [p.detach().numpy() for p in model.parameters()]
    jitted(*batch(4))
    before = [p.detach().numpy() for p in model.parameters()]
    x, y = batch(5)
    for wrong in ((x + 9, y), (x, y + 9)):
        with pytest.raises(pg.IndexingError):
            jitted(*wrong)
        for a, p in zip(before, model.parameters()):
            np.testing.assert_array_equal(a, p.detach().numpy())
    assert np.isfinite(jitted(x, y).item())


@IN_PLACE
@pytest.mark.req("G8")
def test_a_step_needs_no_second_copy_of_the_parameters() -> None:
    w = Tensor(np.ones((256, 256), np.float32)).realize()
    x = Tensor(np.ones((8, 256), np.float32)).realize()

    @pg.jit
    def step(x: Tensor) -> Tensor:
        y = x @ w
        w.assign(w - x.T @ (y - 1) * 1e-3)
        return y.mean()

    for _ in range(3):
        step(x)
    gc.collect()
    pg.reset_peak_memory_stats()
    held = pg.memory_allocated()
    step(x)
    assert pg.max_memory_allocated() - held < w.nbytes // 2


WRITES = {
    "row of a layer": lambda cache, row, n: cache[1].__setitem__(n, row),
    "row of one layer": lambda cache, row, n: cache[1].unsqueeze(0).__setitem__((0, n), row),
    "layer of a row": lambda cache, row, n: cache.transpose(0, 1).__setitem__((n, 1), row),
    "view of a view": lambda cache, row, n: cache[1:][0][n].assign(row),
    "both indices": lambda cache, row, n: cache.__setitem__((1, n), row),
}


@pytest.mark.variants(every=5)
@IN_PLACE
@pytest.mark.req("G4")
@pytest.mark.parametrize("form", WRITES)
def test_a_row_is_written_where_it_lies_through_views_of_views_of_a_stacked_cache(form: str) -> None:
    cache, n = pg.zeros(3, 500, 64).clone().realize(), pg.Variable("n", 0, 499)
    expected, layer = np.zeros((3, 500, 64), np.float32), cache[1]

    @pg.jit
    def put(row: Tensor, n: object) -> None:
        WRITES[form](cache, row, n)

    for number, k in enumerate((0, 7, 499, 3)):
        row = Tensor(np.full(64, k + 1.0, np.float32)).realize()
        expected[1, k] = k + 1
        gc.collect()
        pg.reset_peak_memory_stats()
        held = pg.memory_allocated()
        with watch() as counts:
            put(row, n.bind(k))
        if number >= 2:
            assert pg.max_memory_allocated() - held <= 1024 and counts.kernels == 1
    np.testing.assert_array_equal(cache.numpy(), expected)
    np.testing.assert_array_equal(layer.numpy(), expected[1])
