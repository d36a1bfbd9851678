"""Lengths that change: a plan for those between two powers of two, with the bits of a plan of each length alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.devices.cpu import memory
from picograd.engine import realize
from picograd.engine.devices import compiler_for
from picograd.engine.lengths import STARTS, Lengths, bucket, solve
from picograd.look import watch
from tests.helpers import forgotten

F = nn.functional
Array = np.ndarray[Any, Any]
Shape = Callable[[int], tuple[int, ...]]
LENGTHS = (20, 23, 31, 16, 28, 9, 50, 3, 64, 77, 299, 1000)
BUCKETS = len({bucket(n) for n in LENGTHS})


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(realize, "PLANS_MIN", 0)


def numbers(*shapes: tuple[int, ...]) -> list[Tensor]:
    random = np.random.default_rng(sum(map(sum, shapes)))
    made = [Tensor(random.standard_normal(shape).astype(np.float32)).realize() for shape in shapes]
    return [x.requires_grad_() for x in made]


def pulled(out: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Returns a result and its gradients."""
    return [out.detach(), *pg.autograd.grad((out * out).sum(), list(inputs))]


def with_gradients(function: Callable[..., Tensor], *shapes: Shape) -> Callable[[int], list[Tensor]]:
    def make(n: int) -> list[Tensor]:
        inputs = numbers(*[shape(n) for shape in shapes])
        return pulled(function(*inputs), *inputs)

    return make


def advantages(scores: Tensor, returns: Tensor) -> Tensor:
    """The loss of REINFORCE."""
    good = (returns - returns.mean()) / (returns.std() + 1e-6)
    taken = F.log_softmax(scores, dim=1)[pg.arange(len(scores)), pg.arange(len(scores)) % 6]
    return -(taken * good).sum()


def down(n: int) -> tuple[int, ...]:
    return (n, 6)


def along(n: int) -> tuple[int, ...]:
    return (6, n)


def deep(n: int) -> tuple[int, ...]:
    return (3, n, 16)


def heads(n: int) -> tuple[int, ...]:
    return (2, 4, n, 8)


def one_head(n: int) -> tuple[int, ...]:
    return (2, 1, n, 8)


attention = F.scaled_dot_product_attention


def padded_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One sequence is as long as the batch, the other shorter."""
    there = pg.arange(q.shape[2]) < Tensor([[q.shape[2]], [q.shape[2] // 2 + 1]])
    return attention(q, k, v, attn_mask=there[:, None, None, :])


FUNCTIONS: dict[str, Callable[[int], list[Tensor]]] = {
    "elementwise": with_gradients(lambda x: x.tanh() * 2 + 1, along),
    "sum of all": with_gradients(lambda x: x.sum(), along),
    "sum down": with_gradients(lambda x: x.exp().sum(0), down),
    "sum along": with_gradients(lambda x: x.exp().sum(-1), along),
    "mean": with_gradients(lambda x: x.mean(), down),
    "variance": with_gradients(lambda x: x.var(-1), along),
    "standard deviation": with_gradients(lambda x: x.std(0), down),
    "softmax along": with_gradients(lambda x: x.softmax(-1), along),
    "softmax down": with_gradients(lambda x: x.softmax(0), down),
    "logsumexp": with_gradients(lambda x: x.logsumexp(-1), along),
    "cross entropy": with_gradients(lambda x: F.cross_entropy(x, pg.arange(len(x)) % 6), down),
    "layer norm": with_gradients(lambda x, w: F.layer_norm(x, (6,), w), down, lambda n: (6,)),
    "layer norm along": with_gradients(lambda x: F.layer_norm(x, (x.shape[1],)), along),
    "linear": with_gradients(lambda x, w, b: F.linear(x, w, b).relu(), deep, lambda n: (5, 16), lambda n: (5,)),
    "product over the length": with_gradients(lambda a, b: a @ b, along, down),
    "product with a vector": with_gradients(lambda a, b: a @ b, along, lambda n: (n,)),
    "cumulative sum": with_gradients(lambda x: x.cumsum(-1), along),
    "joined": with_gradients(lambda x, y: pg.cat([x, y]).exp(), down, lambda n: (2 * n - 1, 6)),
    "turned around": with_gradients(lambda x: x[pg.arange(len(x) - 1, -1, -1)], down),
    "REINFORCE": with_gradients(advantages, down, lambda n: (n,)),
}


ATTENTIONS: dict[str, Callable[[int], list[Tensor]]] = {
    "causal": with_gradients(lambda q, k, v: attention(q, k, v, is_causal=True), heads, heads, heads),
    "one head of keys": with_gradients(lambda q, k, v: attention(q, k, v, enable_gqa=True), heads, one_head, one_head),
    "of a padded batch": with_gradients(padded_attention, heads, heads, heads),
}


CONVOLUTIONS: dict[str, Callable[[int], list[Tensor]]] = {
    "along a line": with_gradients(F.conv1d, lambda n: (n, 3, 24), lambda n: (16, 3, 5)),
    "over images": with_gradients(
        lambda x, w: F.max_pool2d(F.conv2d(x, w, padding=1), 2), lambda n: (n, 4, 10, 10), lambda n: (16, 4, 3, 3)
    ),
    "of each channel": with_gradients(
        lambda x, w: F.conv2d(x, w, stride=2, groups=4), lambda n: (n, 4, 9, 9), lambda n: (4, 1, 3, 3)
    ),
    "transposed": with_gradients(
        lambda x, w: F.conv_transpose2d(x, w, stride=2), lambda n: (n, 4, 5, 5), lambda n: (4, 3, 2, 2)
    ),
}


def check_plans_and_bits(
    function: Callable[[int], list[Tensor]], lengths: Sequence[int], monkeypatch: pytest.MonkeyPatch,
    num_near: int = 0,
) -> list[int]:  # fmt: skip
    """Runs a function for several lengths and compares with plans for each; returns how often it was planned.

    Args:
      num_near:  of the results, the last ones, whose last bits may differ
    """
    for _ in range(2):  # from the second run on a line keeps what is asked for again
        [x.numpy() for x in function(lengths[0])]
    forgotten()
    found, planned = [], []
    for n in lengths:
        with watch() as counts:
            found.append([x.numpy() for x in function(n)])
        planned.append(counts.scheduled)
    monkeypatch.setattr(Lengths, "sizes", lambda *_: None)
    for n, values in zip(lengths, found):
        forgotten()
        alone = [x.numpy() for x in function(n)]
        for i, (a, b) in enumerate(zip(values, alone, strict=True)):
            bound = 3e-6 * np.abs(b).max() if i >= len(values) - num_near else 0
            assert np.array_equal(a, b) or np.abs(a - b).max() <= bound, f"result {i} of {n}"
    return planned


@pytest.mark.variants(every=20)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_plans_and_the_bits_of_each_length_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = check_plans_and_bits(FUNCTIONS[name], LENGTHS, monkeypatch)
    assert sum(planned) <= planned[0] * (2 + BUCKETS), planned
    assert planned[4] == 0, planned


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_and_its_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = check_plans_and_bits(ATTENTIONS[name], (20, 23, 31, 17, 70, 129, 64), monkeypatch)
    assert planned[3] == planned[5] == planned[6] == 0, planned


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = check_plans_and_bits(CONVOLUTIONS[name], (20, 23, 31, 17, 70, 129, 64, 3), monkeypatch, num_near=1)
    assert planned[3] == planned[5] == planned[6] == 0, planned


LINES: dict[str, Callable[[int], list[Tensor]]] = {
    "plain": with_gradients(F.conv1d, lambda n: (4, 3, n), lambda n: (16, 3, 5)),
    "in groups": with_gradients(
        lambda x, w: F.conv1d(x, w, padding=2, groups=2, dilation=2), lambda n: (6, 4, n), lambda n: (8, 2, 3)
    ),
    "many examples": with_gradients(lambda x, w: F.conv1d(x, w, padding=1), lambda n: (40, 2, n), lambda n: (32, 2, 3)),
}


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", LINES)
def test_convolutions_along_lines_of_changing_lengths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = check_plans_and_bits(LINES[name], (20, 23, 31, 17, 70, 700, 129, 9), monkeypatch, num_near=3)
    assert planned[3] == planned[5] == planned[6] == 0, planned


@pytest.mark.variants(every=2)
@pytest.mark.filterwarnings("ignore:jit.* has been captured for")
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_attention_trains_on_padded_batches_with_few_plans(jitted: bool) -> None:
    """Batches as long as their longest sequence, some with fewer sequences; masks and dropout."""
    forgotten()
    model = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
    optimizer = pg.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, lengths: Tensor) -> Tensor:
        optimizer.zero_grad()
        out, _ = model(x, x, x, key_padding_mask=pg.arange(x.shape[1]) >= lengths[:, None], need_weights=False)
        loss = (out**2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run, compiled = pg.jit(step) if jitted else step, []
    sizes = [(8, 20), (8, 23), (8, 31), (8, 17), (3, 19), (8, 28), (5, 30), (8, 22), (4, 27), (8, 29), (8, 18), (2, 21)]
    for batch, n in sizes:
        x = numbers((batch, n, 16))[0].detach()
        with watch() as counts:
            run(x, Tensor([n] + [n // 2] * (batch - 1))).item()
        compiled.append(counts.compiled)
    assert compiled[6:] == [0] * 6, compiled


def test_weights_of_a_norm_over_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are added up beside the rows (codegen/reduce_cpu.py), in blocks of as many rows for each length."""
    function = with_gradients(lambda x, w: F.layer_norm(x, (64,), w), lambda n: (32, n, 64), lambda n: (64,))
    lengths = (18, 30, 24, 16, 31)
    forgotten()
    found = [[x.numpy() for x in function(n)] for n in lengths]
    monkeypatch.setattr(Lengths, "sizes", lambda *_: None)
    forgotten()
    for n, values in zip(lengths, found):
        for value, alone in zip(values, function(n), strict=True):
            np.testing.assert_array_equal(value, alone.numpy(), err_msg=f"{n}")


def test_images_of_changing_sizes_have_a_plan_for_each() -> None:
    x, w = numbers((1, 2, 40, 9), (3, 2, 3, 3))
    for n in range(5, 12):
        found = F.conv2d(x[:, :, :n], w).detach()
        np.testing.assert_array_equal(found.numpy(), F.conv2d(x, w).detach()[:, :, : n - 2].numpy())


def test_lengths_and_offsets_and_numbers_change_together() -> None:
    data = np.arange(400, dtype=np.float32)
    x, planned = Tensor(data).realize(), []
    for step in range(12):
        start, n, factor = 7 * step, 17 + step, step / 4 + 1
        with watch() as counts:
            found = (x[start : start + n] * factor).numpy()
        np.testing.assert_array_equal(found, data[start : start + n] * np.float32(factor))
        planned.append(counts.scheduled)
    assert sum(planned[4:]) == 0, planned


def test_experts_that_get_other_numbers_of_rows_at_each_step_have_few_plans() -> None:
    """Rows chosen by `where`, for each of four experts: three lengths are free, the fourth is what is left."""
    forgotten()
    experts, planned = numbers(*[(4, 4)] * 4), []
    for step in range(10):
        (x,) = numbers((400, 4))
        chosen = Tensor(np.random.default_rng(step).choice(4, 400))
        with watch() as counts:
            y = pg.zeros(400, 4)
            for number, expert in enumerate(experts):
                (rows,) = pg.where(chosen == number)
                y.index_add_(0, rows, (x[rows] @ expert).tanh())
            grads = pg.autograd.grad((y * x).sum(), experts)
            found = [y.detach().numpy(), *[grad.numpy() for grad in grads]]
        planned.append(counts.scheduled)
        mask = np.eye(4, dtype=bool)[chosen.numpy()]
        rows_of, whole = x.detach().numpy(), np.zeros((400, 4), np.float32)
        for number, expert in enumerate(experts):
            mine = rows_of[mask[:, number]]
            result = np.tanh(mine @ expert.detach().numpy())
            whole[mask[:, number]] = result
            np.testing.assert_allclose(found[number + 1], mine.T @ (mine * (1 - result**2)), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found[0], whole, rtol=1e-5, atol=1e-5)
    assert sum(planned[7:]) == 0, planned


def test_a_length_of_one_is_another_form() -> None:
    for n in (5, 6, 7, 1, 0, 4, 1, 2):
        (x,) = numbers((n, 6))
        np.testing.assert_array_equal((x + x[:1]).detach().numpy(), (x.detach().numpy() + x[:1].detach().numpy()))


def test_a_check_has_the_length_of_its_own_graph() -> None:
    for n in (5, 6, 7):
        (x,) = numbers((n, 3))
        x[pg.arange(n) + 0].realize()
        with pytest.raises(IndexError, match=f"{n} is out of range for axis 0 of length {n}"):
            x[pg.arange(n) + 1].realize()


# ---- polynomials ----
@pytest.mark.parametrize(
    ("columns", "roots"),
    [
        ([(5, 7, 9), (40, 56, 72)], 1),  # 8 n
        ([(40, 56, 72), (5, 7, 9)], 1),
        ([(5, 7, 9), (4, 6, 8)], 1),  # n - 1
        ([(5, 7, 9), (11, 15, 19)], 1),  # 2 n + 1
        ([(5, 7, 9), (95, 93, 91)], 1),  # 100 - n
        ([(5, 7, 9), (50, 98, 162)], 1),  # 2 n n
        ([(5, 7, 9), (3, 8, 2), (15, 56, 18)], 2),  # n m
        ([(5, 7, 9), (3, 8, 2), (9, 16, 12)], 2),  # n + m + 1
        ([(5, 7, 9), (3, 8, 2), (6, 6, 6)], 2),
    ],
)
def test_what_lengths_are_of_each_other(columns: list[tuple[int, ...]], roots: int) -> None:
    samples = list(zip(*columns))
    solution = solve(samples, len(columns))
    assert solution is not None and len(solution.roots) == roots
    assert all(map(solution.holds, samples))


def test_a_length_that_does_not_follow_is_one_more_sample() -> None:
    lengths = Lengths(2)
    assert [lengths.sizes(sample, "n") for sample in ((5, 10), (6, 12))] == [None, None]  # have plans of their own
    first = lengths.sizes((7, 14), "n")
    assert first is not None and first.values == {"n0": 7}
    second = lengths.sizes((9, 11), "n")
    assert second is not None and second.values == {"n0": 9, "n1": 11}
    assert lengths.sizes((7, 14), "n") is not first


def test_more_symbolic_integers_than_there_may_be_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picograd.engine.lengths.VARIABLES_MAX", 2)
    samples = [(5, 11, 23, 47, 101), (7, 17, 40, 90, 64), (8, 29, 31, 63, 13)]
    assert solve(samples, 5) is None
    lengths = Lengths(5)
    assert [lengths.sizes(sample, "n") for sample in samples] == [None] * 3 and lengths.is_refused


def test_bounds_of_a_form_hold_for_all_of_its_lengths() -> None:
    lengths = Lengths(2)
    assert [lengths.sizes(sample, "n") for sample in ((20, 30), (21, 29))] == [None, None]
    sizes = lengths.sizes((22, 28), "n")  # the second is 50 - n, and no length is below 2
    assert sizes is not None and sizes.key[1] == ((16, 31),)  # type: ignore[index]
    assert bucket(STARTS[1] - 1) == (2, STARTS[1] - 1)


def test_temporaries_take_the_memory_of_the_lengths_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lengths of up to 4095 each are 400 MB of six columns: one plan serves all that fit, and the others say so."""
    forgotten()
    mapped, most = memory._anonymous, 1 << 24

    def anonymous(length: int) -> Any:
        if length > most:
            raise OSError
        return mapped(length)

    monkeypatch.setattr(memory, "_anonymous", anonymous)
    monkeypatch.setattr(compiler_for("CPU").device, "memory", memory.MemoryPool())  # without kept blocks
    w, found = numbers((6, 6))[0].detach(), []
    for rows, columns in ((64, 96), (71, 90), (97, 66), (80, 75), (400, 300), (93, 93), (101, 88)):
        x = numbers((rows, columns, 6))[0].detach()
        is_large, most = rows == 400, 1 << (20 if rows == 400 else 24)
        with watch() as counts, pytest.raises(pg.OutOfMemoryError) if is_large else nullcontext():
            result = ((x @ w).softmax(-1) @ w).sum((0, 1)).realize()
        if not is_large:
            found.append(counts.scheduled)
            hidden = np.exp(x.numpy() @ w.numpy())
            expected = (hidden / hidden.sum(-1, keepdims=True) @ w.numpy()).sum((0, 1))
            np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4)
    assert found == [1, 1, 1, 0, 0, 0]


def test_lengths_that_grow_by_one_are_symbolic_from_the_second_on() -> None:
    """A text that is written reads itself again with one character more; a short last batch is no such length."""
    grows, shrinks = Lengths(3), Lengths(3)
    assert grows.sizes((5, 4, 9), "n") is None and shrinks.sizes((5, 4, 9), "n") is None
    found = grows.sizes((6, 5, 9), "n")
    assert found is not None and found.values == {"n0": 6}
    assert grows.sizes((5, 4, 9), "n") is None and grows.sizes((7, 6, 9), "n") is not None
    assert shrinks.sizes((4, 3, 9), "n") is None and shrinks.sizes((5, 4, 9), "n") is None


def test_an_index_is_checked_only_where_a_loop_of_symbolic_length_has_a_turn() -> None:
    """Four rows at a time: where there are three, the check of the first four is not outside of their loop."""
    n, table = pg.Variable("n", 2, 7), np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)
    for k in (2, 3, 4, 5, 6, 7):
        length = n.bind(k)
        x = Tensor(table)[:length]
        found = (x[pg.arange(length), 0].unsqueeze(1) + x).softmax(0)
        expected = np.exp(table[:k, :1] + table[:k])
        np.testing.assert_allclose(found.numpy(), expected / expected.sum(0), rtol=1e-5)
        with pytest.raises(pg.IndexingError, match="out of range"):
            (x[pg.arange(length) + 1, 0].unsqueeze(1) + x).softmax(0).numpy()
