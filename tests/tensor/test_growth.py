"""A loop that never reads what it computes: its graph stays short; where its plan is a long one, that is mentioned once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.look import watch
from picograd.tensor import compute


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bounds that a test can reach soon."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(compute.NextLook, "depth", 1000)
    monkeypatch.setattr(compute, "LIVE_OPS_MAX", 4000)
    monkeypatch.setattr(compute, "STEP_OPS_MAX", 64)
    monkeypatch.setattr(compute, "_mentioned", set())
    monkeypatch.setattr(compute.NextLook, "limit", 4000)
    monkeypatch.setattr(compute.NextLook, "left", compute.DEPTH_STRIDE * 4000)
    gc.collect()  # what other tests left in cycles: collected later, it would be taken from the count of this one's
    monkeypatch.setattr(Op, "interned", CountedFromHere(Op.interned))
    yield


class CountedFromHere:
    """Stands for the table of living Ops: its length does not count those that other tests left behind."""

    def __init__(self, interned: dict[object, object]):
        self.interned, self.before = interned, len(interned)

    def __len__(self) -> int:
        return max(0, len(self.interned) - self.before)


def check_living(most: int) -> None:
    """Fails where more Ops than that live. Planning leaves some in cycles, which live until garbage is next collected."""
    if len(Op.interned) >= most:
        gc.collect()
        assert len(Op.interned) < most


@pytest.mark.req("G1")
def test_a_value_carried_through_a_loop_is_computed_now_and_then_without_a_word() -> None:
    x, expected = Tensor([0.0, 1.0]), np.array([0, 1], np.float32)
    with warnings.catch_warnings(), watch() as counts:
        warnings.simplefilter("error")
        for _ in range(10_000):
            x = x * 0.9 + 1
            check_living(4000)
    assert counts.plans > 4 and counts.scheduled <= 3
    for _ in range(10_000):
        expected = expected * np.float32(0.9) + np.float32(1)
    assert (x.numpy() == expected).all()


@pytest.mark.variants(every=2)
@pytest.mark.req("G1")
@pytest.mark.parametrize("in_place", [False, True])
def test_a_sum_of_long_graphs_is_computed_now_and_then(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "KERNELS_TO_MENTION", 2)
    weights = [Tensor(np.full(3, i, np.float32)) for i in range(40)]
    total = Tensor(0.0)
    with pytest.warns(UserWarning, match="by a plan of [0-9]+ kernels") as seen:
        for step in range(200):
            loss = Tensor(float(step))
            for w in weights:
                loss = loss + (w * loss).sum() * 0.0
            if in_place:
                total += loss
            else:
                total = total + loss
            check_living(24_000)
    assert total.item() == sum(range(200))
    assert len(seen) == 1 and seen[0].filename == __file__ and "realize()" in str(seen[0].message)


@pytest.mark.req("G1")
def test_a_graph_that_gradients_need_is_kept_and_mentioned() -> None:
    w = Tensor(1.0, requires_grad=True)
    total = Tensor(0.0)
    with pytest.warns(UserWarning, match="kept for backward") as seen:
        for i in range(4000):
            total = total + w * float(i)
    assert len(seen) == 1 and "detach()" in str(seen[0].message)
    total.backward()
    assert w.grad is not None
    assert w.grad.item() == 4000 * 3999 / 2


def test_many_short_graphs_are_left_alone() -> None:
    x = Tensor([1.0])
    many = [(x + float(i)) * 2.0 for i in range(6000)]
    assert all(y.op.code.name == "MUL" for y in many)


def test_gradients_of_a_deep_network_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute.NextLook, "limit", 1 << 30)
    monkeypatch.setattr(compute.NextLook, "depth", 100)
    x = Tensor([1.0])
    weights = [Tensor([1.0], requires_grad=True) for _ in range(120)]
    y = x
    for w in weights:
        y = y * w + x
    y.sum().backward()
    assert weights[0].grad is not None and weights[0].grad.op.depth >= 100
    with pg.no_grad():
        for w in weights:
            w -= w.grad * 0.5
    assert all(w.grad is not None and w.grad.op.code.name == "BUFFER" for w in weights[:20])


def test_a_loop_that_goes_on_from_its_choices_shares_plans() -> None:
    pg.manual_seed(0)
    net = pg.nn.Sequential(*[pg.nn.Linear(8, 8) for _ in range(4)], pg.nn.LayerNorm(8))
    table = pg.nn.Embedding(8, 8)
    rows = Tensor.zeros(1, 1).to(pg.int64)
    lengths, cache = [], Tensor.zeros(1, 8)
    with pg.no_grad():
        for _ in range(40):
            with watch() as counts:
                hidden = net(table(rows))[:, -1]
                cache = pg.cat([cache, hidden])
                token = (hidden @ hidden.T.flip(0) + cache.sum() + hidden).softmax(-1).multinomial(1)
                rows = pg.cat([rows, token], dim=1)
            lengths.append(counts.scheduled)
    assert sum(lengths[:16]) <= 14 and sum(lengths[17:]) <= 4, lengths
    assert rows.shape == (1, 41) and cache.shape == (41, 8)


def test_a_search_that_goes_on_from_its_first_places_is_computed_step_by_step() -> None:
    """Beams with a memory that grows: no plan has two steps, and from a length on none is made."""
    pg.manual_seed(0)
    emb, key = pg.nn.Embedding(9, 16), pg.nn.Linear(16, 16)
    head = pg.nn.Sequential(*[pg.nn.Linear(16, 16) for _ in range(3)], pg.nn.Linear(16, 9))
    pg.realize([p for module in (emb, key, head) for p in module.parameters()])

    @pg.no_grad()
    def search(width: int, steps: int) -> list[int]:
        scores, tokens, memory = pg.zeros(1), pg.zeros(1, 1, dtype=pg.int64), None
        for _ in range(steps):
            x = emb(tokens[:, -1:])
            memory = key(x) if memory is None else pg.cat([memory, key(x)], 1)
            seen = pg.nn.functional.scaled_dot_product_attention(x, memory, memory)
            total = scores.unsqueeze(1) + head(seen).squeeze(1).log_softmax(-1)
            scores, places = total.flatten().topk(min(width, total.numel()))
            source = places // 9
            tokens, memory = pg.cat([tokens[source], (places % 9).unsqueeze(1)], 1), memory[source]
        return tokens[0].tolist()

    with watch() as first:
        found = search(3, 24)
    with watch() as second:
        assert search(3, 24) == found
    assert second.scheduled == 0 and second.plans >= 23, "a plan a step"
    assert first.scheduled <= 16 and len({*first.names}) <= 80


def test_a_token_that_is_drawn_among_the_first_is_one_plan() -> None:
    """The first places are on the way to the draw, which is the choice that the loop goes on from."""
    pg.manual_seed(0)
    emb, head = pg.nn.Embedding(9, 16), pg.nn.Sequential(*[pg.nn.Linear(16, 16) for _ in range(8)], pg.nn.Linear(16, 9))
    pg.realize([*emb.parameters(), *head.parameters()])
    token, plans = pg.zeros(1, 1, dtype=pg.int64), []
    with pg.no_grad():
        for _ in range(6):
            with watch() as counts:
                logits = head(emb(token))[:, -1]
                least = logits.topk(4).values[:, [-1]]
                token = logits.masked_fill(logits < least, -float("inf")).softmax(-1).multinomial(1)
            plans.append(counts.plans)
    assert plans[2:] == [1, 1, 1, 1]


def test_what_is_chosen_among_is_computed_with_the_choice() -> None:
    net = pg.nn.Sequential(*[pg.nn.Linear(8, 8) for _ in range(24)])
    x, y = Tensor.ones(4, 8).realize(), Tensor([0, 1, 2, 3]).realize()
    with pg.no_grad(), watch() as counts:
        logits = net(x)
        right = (logits.argmax(1) == y).sum()
        assert logits.op.code is OpCode.BUFFER  # so that the loss does not compute the network again
        loss = pg.nn.functional.cross_entropy(logits, y)
        pg.realize([right, loss])
    assert counts.plans == 2


def test_what_is_left_of_a_trace_is_not_computed_with_a_choice() -> None:
    left = []

    class Reads(pg.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def, override]
            left.append(x + 1)
            x.tolist()  # which no trace can, so that it is called again
            return x * 2

    assert Reads.apply(pg.ones(2)).tolist() == [2, 2]
    with pg.no_grad():
        chosen = pg.rand(4, 8).argmax(1)
    assert chosen.tolist() and len(left) == 2 and left[-1].tolist() == [2, 2]


def test_values_that_died_where_no_gradients_are_recorded_are_forgotten() -> None:
    x = Tensor([1.0]).realize()
    compute.plain_cells.clear()
    with pg.no_grad():
        kept = x + 1.0
        for _ in range(compute.plain_cells.maxlen or 1):
            x * 2.0
        assert len(compute.plain_cells) == compute.plain_cells.maxlen
        kept = x + 3.0
        pg.rand_like(x)  # looks through them
    assert kept.cell in [reference() for reference in compute.plain_cells] and len(compute.plain_cells) <= 2


def test_a_loop_that_draws_again_is_computed_step_by_step() -> None:
    """As a sampler of a diffusion model, of which every step is a network with numbers of its own."""

    @pg.no_grad()
    def sample(num_steps: int) -> list[float]:
        pg.manual_seed(0)
        x = pg.randn(4, 8)
        for t in range(num_steps):
            for layer in range(18):
                x = x + (x * (t + 0.1)).tanh() * float(layer)
            x = x / x.abs().amax() + pg.randn_like(x)
        return x.tolist()

    with watch() as counts:
        sample(4)
    before = counts.scheduled
    with watch() as counts:
        found = sample(8)
    assert before <= 4 and counts.scheduled <= 1 and counts.compiled <= 1
    with watch() as counts, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute, "STEP_OPS_MAX", 1 << 40)  # all steps are one graph
        for bound in ("depth", "limit"):
            patch.setattr(compute.NextLook, bound, 1 << 40)
        assert np.allclose(sample(8), found, rtol=1e-5, atol=1e-5)
        assert counts.scheduled == 1


@pytest.mark.parametrize("keeps", ["network", "distances"])
def test_values_that_are_read_one_by_one_before_backward_run_the_network_once(keeps: str) -> None:
    """As triplets are mined: which of them a loss has follows from distances between rows of a network's result."""
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, twin = pg.optim.SGD(net.parameters(), lr=0.1), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    twin.load_state_dict(net.state_dict())
    alone = pg.optim.SGD(twin.parameters(), lr=0.1)
    for step in range(5):
        x, kernels = pg.randn(9, 6), list[int]()
        rows = net(x)
        distances = (rows[:, None] - rows).square().sum(-1)
        with pg.no_grad():
            expected = twin(x).numpy()
        for i in range(6):
            with watch() as counts:
                found = ((rows[i] - rows[i + 2]).square().sum() if keeps == "network" else distances[i, i + 2] + 1).item()
            kernels.append(counts.kernels)
            apart = ((expected[i] - expected[i + 2]) ** 2).sum() + (keeps == "distances")
            assert found == pytest.approx(apart, rel=1e-4, abs=1e-6)
        assert step < 2 or set(kernels[1:]) == {1} and kernels[0] <= 3
        for each, result, by in ((net, rows, optimizer), (twin, twin(x), alone)):
            each.zero_grad()
            (result[:-1] - result[1:]).square().mean().backward()
            by.step()
