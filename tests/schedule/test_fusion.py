"""What becomes one kernel: kernels, launches and bytes of intermediates are counted, never timed (G1 to G5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import Pattern, PatternMatcher
from picograd.ir.stages import ScheduleItem
from picograd.ir.text import format_kernel
from picograd.look import Counts, watch
from picograd.nn import functional as F
from picograd.rewrites.simplify import simplify, simplify_graph
from picograd.road import schedule_graphs
from picograd.tensor.costs import stage_texts
from tests.helpers import same_as_torch
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

N, C = 6, 40


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def numbers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def forward(function: Callable[..., Tensor], *inputs: Tensor) -> Counts:
    with watch() as counts:
        function(*inputs).realize()
    return counts


def backward(function: Callable[..., Tensor], *inputs: Tensor) -> Counts:
    leaves = [x.requires_grad_() for x in inputs if x.dtype.is_float]
    out = function(*inputs)
    with watch() as counts:
        out.backward(None if out.shape == () else numbers(*out.shape))
        pg.realize([leaf.grad for leaf in leaves])
    return counts


@pytest.mark.parametrize(
    ("transform", "kernels"),
    [
        (lambda x: pg.fft.rfft(x, dim=0), 1),
        (lambda x: pg.fft.rfft2(x, dim=(0, 1)), 2),
        (lambda x: pg.fft.irfft(x[..., :2], n=8, dim=1, norm="forward"), 1),
        (lambda x: pg.fft.fft2(x[..., :2], dim=(1, 0)), 1),
    ],
)
def test_a_transform_along_any_axis_moves_nothing(transform: Callable[[Tensor], Tensor], kernels: int) -> None:
    x = numbers(6, 5, 2).realize()
    assert forward(transform, x).kernels == kernels


# ---- G1: lazy ----
@pytest.mark.req("G1")
@pytest.mark.parametrize("ask", [Tensor.realize, Tensor.numpy, Tensor.tolist, Tensor.item, print])
def test_nothing_runs_before_a_value_is_asked_for(ask: Callable[[Tensor], object]) -> None:
    with watch() as counts:
        y = (numbers(3) * 2).exp().sum(0, keepdim=True)
        assert counts.kernels == counts.scheduled == 0
        ask(y)
        assert counts.kernels == 1


# ---- G2: one kernel ----
@pytest.mark.req("G2")
def test_dot_and_variance_are_one_kernel_each() -> None:
    with watch() as counts:
        assert (Tensor([1.0, 2.0]) * Tensor([3.0, 4.0])).sum().item() == 11.0
        assert (Tensor([1.0, 2.0]) @ Tensor([3.0, 4.0])).item() == 11.0
        assert Tensor([1.0, 2.0, 3.0, 4.0]).var().item() == pytest.approx(1.6666667, abs=1e-7)
    assert counts.kernels == counts.launches == 3
    assert counts.temporary_nbytes == 0


@pytest.mark.req("G2")
def test_added_integers_become_one_constant() -> None:
    a = Tensor([1, 2, 3])
    text = stage_texts([((a + 4) + 3).op], ["kernel"])
    assert text.count("ADD") == 1
    assert "CONST 7" in text
    assert forward(lambda x: (x + 4) + 3, a).kernels == 1


@pytest.mark.req("G2")
def test_added_floats_stay_two_constants_in_one_kernel() -> None:
    x = numbers(3)
    text = stage_texts([((x + 4) + 3).op], ["kernel"])
    assert text.count("ADD") == 2  # (x + 4) + 3 rounds twice
    assert "CONST 7" not in text
    assert forward(lambda x: (x + 4) + 3, numbers(3)).kernels == 1


SPELLINGS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "softmax": (lambda x: x.softmax(-1), (numbers(N, C),)),
    "softmax by hand": (lambda x: x.exp() / x.exp().sum(), (numbers(N, C),)),
    "softmax by hand, by rows": (lambda x: x.exp() / x.exp().sum(-1, keepdim=True), (numbers(N, C),)),
    "log_softmax": (lambda x: x.log_softmax(-1), (numbers(N, C),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (C,), w, b), (numbers(N, C), numbers(C), numbers(C))),
    "cross_entropy": (F.cross_entropy, (numbers(N, C), Tensor(np.arange(N)))),
    "cross_entropy by gather": (
        lambda x, y: (x.logsumexp(1, keepdim=True) - x.gather(1, y.unsqueeze(1))).mean(),
        (numbers(N, C), Tensor(np.arange(N))),
    ),
    "cross_entropy by rows": (
        lambda x, y: (x.logsumexp(1) - x[pg.arange(N), y]).mean(),
        (numbers(N, C), Tensor(np.arange(N))),
    ),
    "variance": (lambda x: x.var(-1), (numbers(N, C),)),
}


@pytest.mark.req("G2")
@pytest.mark.parametrize("name", SPELLINGS)
def test_one_kernel_forward_and_one_backward(name: str) -> None:
    function, inputs = SPELLINGS[name]
    counts = forward(function, *[Tensor(x.numpy()) for x in inputs])
    assert counts.kernels == 1, counts.names
    assert counts.temporary_nbytes <= 4 * N + 4  # no more than a value for each row, and one for all
    counts = backward(function, *[Tensor(x.numpy()) for x in inputs])
    assert counts.kernels == 1, counts.names
    assert counts.temporary_nbytes <= 2 * 4 * N


@pytest.mark.req("G2")
def test_contiguous_and_realize_cut_a_kernel_in_two() -> None:
    assert forward(lambda x: (x * 2).contiguous() + 1, numbers(C)).kernels == 2
    assert forward(lambda x: (x * 2).realize() + 1, numbers(C)).kernels == 2
    assert forward(lambda x: x * 2 + 1, numbers(C)).kernels == 1


@pytest.mark.req("G2")
def test_movement_makes_no_kernel() -> None:
    def moved(x: Tensor) -> Tensor:
        return x.T.reshape(C // 2, -1).flip(0)[3:7].permute(1, 0) + 1

    counts = forward(moved, numbers(N, C))
    assert counts.kernels == 1
    assert counts.temporary_nbytes == 0


SHAPED = {
    "scatter": lambda x: x.scatter_add(1, pg.zeros(6, 40, dtype=pg.int64), x),
    "scan": lambda x: x.cumsum(1),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(1, 2, 15, 8)] * 3),
    "a loop": lambda x: pg.scan(lambda carry, row: (carry + row, carry * row), x[0], x)[1],
    "what a user stores": lambda x: (x + 1).contiguous(),
}


@pytest.mark.parametrize("name", SHAPED)
def test_another_shape_of_a_stored_result_is_no_copy(name: str) -> None:
    plain = SHAPED[name](numbers(N, C))
    shaped = plain.reshape(-1).reshape(C, N)
    first, second = schedule_graphs([plain.op]), schedule_graphs([shaped.op])
    assert (len(second.items), second.arena_nbytes) == (len(first.items), first.arena_nbytes)
    assert np.array_equal(pg.jit(lambda x: SHAPED[name](x).reshape(C, N))(numbers(N, C)).numpy(), shaped.numpy())


def test_a_result_and_its_other_shapes_have_memory_of_their_own() -> None:
    x = numbers(N, C)
    expected = x.cumsum(1).numpy()
    sums, flat, tall = x.cumsum(1), x.cumsum(1).reshape(-1), x.cumsum(1).reshape(C, N)
    pg.realize([sums, flat, tall])
    flat += 1
    tall += 2
    assert np.array_equal(sums.numpy(), expected)
    assert np.array_equal(flat.numpy(), expected.reshape(-1) + 1)
    assert np.array_equal(tall.numpy(), expected.reshape(C, N) + 2)


@pytest.mark.parametrize(("kernel", "padding", "num_kernels"), [(2, 0, 2), (3, 1, 3)])
def test_the_gradient_of_a_max_pool_is_stored_once(kernel: int, padding: int, num_kernels: int) -> None:
    """The padding, places of the maxima, and a scatter that stores the gradient itself."""

    def pool(library: Any) -> Callable[..., Any]:
        return lambda x: library.nn.functional.max_pool2d(x, kernel, 2, padding)

    assert backward(pool(pg), numbers(2, 3, 12, 12)).kernels == num_kernels
    ties = numbers(2, 3, 12, 12).numpy().round()
    ties[0, 0, 3, 3:5] = np.nan
    same_as_torch(pool(pg), ties, reference=pool(torch))


# ---- G3: hash-consing and rules ----
@pytest.mark.req("G3")
def test_constants_fold_and_equal_graphs_are_one_object() -> None:
    total = Op(OpCode.ADD, pg.int32, (const(199, pg.int32), const(200, pg.int32)))
    assert simplify_graph([total]) == [const(399, pg.int32)]
    x = numbers(3)
    assert (x * 2 + 1).op is (x * 2 + 1).op


@pytest.mark.req("G3")
def test_users_extend_the_rules() -> None:
    own = PatternMatcher([("exp of log", Pattern(OpCode.EXP, (Pattern(OpCode.LOG, name="log"),)), lambda log: log.src[0])])
    x = numbers(3)
    assert simplify_graph([x.log().exp().op], simplify + own) == [x.op]


# ---- G4: views and symbolic lengths ----
@pytest.mark.req("G4")
def test_axes_that_lie_together_become_one_loop() -> None:
    program = stage_texts([(numbers(4, 5, 6) + numbers(4, 5, 6)).op], ["program"])
    assert program.count("loop(") <= 2  # whole vectors and the rest, over all 120 elements
    assert "//" not in program and "%" not in program


@pytest.mark.req("G4")
def test_one_kernel_serves_every_length_of_a_variable(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", device)
    n = pg.Variable("n", 1, 100)
    data = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32)
    x = Tensor(data)
    made = []
    for length in (17, 40, 100, 1):
        with watch() as counts:
            view = x[: n.bind(length)]
            np.testing.assert_allclose((view * 2).exp().numpy(), np.exp(data[:length] * 2), rtol=1e-6)
            # A float32 sum of at most 100 terms of size 1.
            np.testing.assert_allclose(view.sum(0).numpy(), data[:length].sum(0), atol=1e-5)
        made.append(counts.lowered)
    assert made[1:] == [0, 0, 0]


@pytest.mark.req("G4")
def test_a_length_outside_its_bounds_is_refused() -> None:
    with pytest.raises(pg.ArgumentError, match="n is between 1 and 5, got 6"):
        pg.Variable("n", 1, 5).bind(6)
    with pytest.raises(pg.IndexingError, match="n=5 is longer than an axis of length 3"):
        numbers(3)[: pg.Variable("n", 1, 5).bind(5)]


# ---- G5: products and ranges ----
@pytest.mark.req("G5")
def test_a_product_stores_nothing_but_its_result() -> None:
    counts = forward(lambda a, b, c: ((a.T * 2) @ b.T + c).relu(), numbers(30, N), numbers(C, 30), numbers(C))
    assert counts.kernels == 1, counts.names
    assert counts.temporary_nbytes == 0


@pytest.mark.req("G5")
def test_arange_has_no_loop_and_no_memory_of_its_own() -> None:
    counts = forward(lambda x: x + Tensor.arange(C), numbers(C))
    assert counts.kernels == 1
    assert counts.temporary_nbytes == 0


# ---- whole steps ----
def mlp_step(optimizer: type) -> Counts:
    model = pg.nn.Sequential(pg.nn.Linear(20, 30), pg.nn.ReLU(), pg.nn.Linear(30, 10))
    update = optimizer(model.parameters(), lr=0.1)
    x, y = numbers(8, 20), Tensor(np.arange(8))

    @pg.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    for _ in range(3):
        with watch() as counts:
            step(x, y)
    return counts


def test_a_training_step_of_an_mlp_is_few_kernels() -> None:
    counts = mlp_step(pg.optim.SGD)
    assert counts.kernels <= 7, counts.names
    assert (counts.scheduled, counts.lowered, counts.compiled) == (0, 0, 0)


def test_a_tanh_that_its_gradient_reads_is_computed_once() -> None:
    """What the last layer, of one column, reads of it is a product with the weight: that is not stored in its place."""
    x, w, v = numbers(8, 20), numbers(30, 20).requires_grad_(), numbers(1, 30).requires_grad_()
    roots = pg.grad(lambda w, v: ((x @ w.T).tanh() @ v.T).square().mean(), argnums=(0, 1))(w, v)
    schedule = schedule_graphs([root.read() for root in roots])
    nests = [nest for item in schedule.kernel_items() for phase in item.kernel.phases for nest in phase]
    computed = toposort([output for nest in nests for _, output in nest.outputs])
    assert sum(op.code is OpCode.TANH for op in computed) == 1


def test_an_adam_step_over_all_parameters_is_few_kernels() -> None:
    model = pg.nn.MLP(20, [30, 30, 10])
    optimizer = pg.optim.Adam(model.parameters(), lr=0.1)
    for p in model.parameters():
        p.grad = numbers(*p.shape)
    with watch() as counts:
        optimizer.step()
    assert counts.kernels <= 3, counts.names


def test_a_second_step_of_the_same_form_schedules_nothing() -> None:
    model = pg.nn.Linear(5, 3)
    optimizer = pg.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        with watch() as counts:
            loss = (model(numbers(4, 5)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
    assert (counts.scheduled, counts.lowered, counts.compiled) == (0, 0, 0)


# ---- values that are read all around ----
def _diffused(x, steps=8):
    for _ in range(steps):
        x = x + 0.1 * (x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 4 * x)
    return x


def _rows_and_columns(x, steps=12):
    x = x.clone()
    for i in range(steps):
        x[i] += x[i + 1]
        x[:, i] *= 0.5
    return x


@pytest.mark.parametrize("function", [_diffused, _rows_and_columns])
def test_steps_that_read_their_neighbours_stay_small(function, rng):
    """In one nest the steps would be computed along every path to the first: 9 to the power of 8 of them."""
    x = rng.standard_normal((16, 16)).astype(np.float32)
    same_as_torch(lambda t: function(t) ** 2, x)


def test_swaps_of_a_constant_stay_small():
    x = pg.arange(40)
    for i in range(39):
        x[i], x[i + 1] = x[i + 1].clone(), x[i].clone()
    assert x.tolist() == [*range(1, 40), 0]


def test_a_batch_of_pieces_that_several_read_is_stored():
    """Each reader would look for the piece that an element is in, and be another kernel for each batch."""
    text, table = pg.arange(200) % 13, numbers(13, 8).requires_grad_()
    batch = Tensor.stack([text[7 * i : 7 * i + 5] for i in range(12)])
    loss = F.cross_entropy(table[batch].view(-1, 8), batch.view(-1) % 8)
    loss.backward()
    schedule = schedule_graphs([loss.op, table.grad.op])
    texts = [format_kernel(item.kernel) for item in schedule.items if isinstance(item, ScheduleItem)]
    assert sum(text.count(" WHERE ") > 10 for text in texts) == 1


@pytest.mark.parametrize("num_readers", [2, 3])
def test_two_pieces_are_stored_where_more_than_two_read_them(num_readers: int) -> None:
    """As in a U-Net, where a norm, a convolution and a skip read what was joined."""
    x, y = numbers(2, 3, 8), numbers(2, 3, 4)
    joined = Tensor.cat([x, F.interpolate(y, scale_factor=2)], 1)
    readers = [joined.sum(1), joined.amax(0), joined.exp().sum(2)][:num_readers]
    schedule = schedule_graphs([reader.op for reader in readers])
    texts = [format_kernel(item.kernel) for item in schedule.items if isinstance(item, ScheduleItem)]
    assert sum("GATHER" in text for text in texts) == 1
    assert (len(texts) > 1) == (num_readers > 2)


@pytest.mark.parametrize("count, num_readers", [(4, 2), (12, 1)])
def test_a_few_pieces_or_one_reader_stay_in_their_kernels(count: int, num_readers: int) -> None:
    x = numbers(40)
    joined = Tensor.stack([x[2 * i : 2 * i + 3] for i in range(count)])
    with watch() as counts:
        pg.realize([joined.sum(1), joined.amax(0)][:num_readers])
    assert counts.kernels == 1


@pytest.mark.parametrize(
    ("of_weight", "on_gpu"), [(lambda w, i: w, 1), (lambda w, i: w.flip(0), 2), (lambda w, i: F.embedding(i, w), 2)]
)
def test_a_weight_joins_the_average_of_its_gradient_on_a_gpu(of_weight: Callable[..., Tensor], on_gpu: int) -> None:
    """The product's kernel computes both, where a tile of it reads all else in place."""
    x, y, average, weight = numbers(64, 48), numbers(64, 32), numbers(48, 32), numbers(48, 32)
    average = average * 0.9 + x.T @ y
    weight = of_weight(weight, pg.arange(48) % 5) - average * 0.1
    for target, count in ((GPU_TARGET, on_gpu), (CPU_TARGETS[1], 2)):
        assert len(schedule_graphs([average.op, weight.op], target).kernel_items()) == count
