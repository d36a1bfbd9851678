"""Functions that are one Op until their plan is made: the same bits, gradients and errors as their graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd import dtype as dtypes
from picograd.autodiff.gradient import written_out
from picograd.engine.realize import realize
from picograd.ir import bodies as later
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.look import watch
from picograd.nn import functional as F
from picograd.tensor.formulas import formula, of_tensors
from tests.calls import calls


def randn(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).realize()


W, B, CLASSES = randn(3, 4, seed=1), randn(3, seed=2), Tensor([0, 1, 2, 3, 0])
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "sigmoid": F.sigmoid, "silu": F.silu, "gelu": F.gelu, "abs": Tensor.abs,
    "log1p": lambda x: x.exp().log1p(), "mse": lambda x: F.mse_loss(x, x.detach() * 2),
    "softplus": F.softplus, "mish": F.mish, "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(1), "mean": Tensor.mean, "var": Tensor.var, "std": lambda x: x.std(1),
    "norm": Tensor.norm,
    "linear": lambda x: F.linear(x, W), "with bias": lambda x: F.linear(x, W, B),
    "logits": lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid().detach()),
}  # fmt: skip
OF_TENSORS: dict[str, Callable[[Tensor], Tensor]] = {  # those that are written with Tensors
    "chances": lambda x: F.binary_cross_entropy(x.sigmoid(), x.cos().square().detach(), reduction="none"),
    "huber": lambda x: F.huber_loss(x, x.detach() * 0.1, reduction="none"),
    "smooth l1": lambda x: F.smooth_l1_loss(x, x.detach() * 0.1), "kl": lambda x: F.kl_div(x, x.detach().exp()),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0)), "triplet": lambda x: F.triplet_margin_loss(x, x[:1], x[1:2]),
    "margins": lambda x: F.multi_margin_loss(x, CLASSES), "normalize": F.normalize,
    "median": Tensor.median, "median of rows": lambda x: x.median(1).values, "mode": lambda x: x.mode(0).values,
    "k-th": lambda x: x.kthvalue(2).values, "quantile": lambda x: x.quantile(0.3, dim=0), "cov": Tensor.cov,
    "corrcoef": Tensor.corrcoef, "diag": lambda x: x[0].diag(1), "diff": lambda x: x.diff(2, 0),
    "trapezoid": lambda x: pg.trapezoid(x, dx=0.5), "slope": lambda x: pg.gradient(x)[0],
    "renorm": lambda x: x.renorm(2, 0, 0.5), "cross": lambda x: x[:, :3].cross(x[:, 1:]),
    "running": lambda x: x.logcumsumexp(0), "pool": lambda x: F.max_pool2d(x[None], 2),
    "norms": lambda x: F.lp_pool1d(x, 2, 2), "means": lambda x: F.avg_pool2d(x[None], 2),
    "bins": lambda x: F.adaptive_avg_pool2d(x[None], (3, 2)),
    "resized": lambda x: F.interpolate(x[None, None], (7, 3), mode="bilinear"), "glu": F.glu,
    "sampled": lambda x: F.grid_sample(x[None, None], (x[:, :2] * 0.4)[None, None]),
    "neighbours": lambda x: F.local_response_norm(x[None], 3), "slice": lambda x: x.slice_scatter(x[:2] * 3, 0, 1, None, 2),
}  # fmt: skip
FUNCTIONS |= OF_TENSORS


@pytest.fixture
def at_once() -> Iterator[Callable[[], None]]:
    """Lets a test have graphs at once from where it calls this."""
    tokens = []
    yield lambda: tokens.append(later.at_once.set(True))
    for token in tokens:
        later.at_once.reset(token)


def results(function: Callable[[Tensor], Tensor], create_graph: bool = False) -> tuple[Op, list[bytes]]:
    x = randn(5, 4).requires_grad_()
    y = function(x)
    op = y.op
    (y * y).sum().backward(create_graph=create_graph)
    value = y.detach().numpy().tobytes()  # first, so that one plan has both each time: one that keeps y may round otherwise
    assert x.grad is not None
    return op, [x.grad.detach().numpy().tobytes(), value]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_have_the_bits_of_graphs_made_at_once(name: str, at_once: Callable[[], None]) -> None:
    op, found = results(FUNCTIONS[name])
    assert op.code is OpCode.FORMULA or any(each.code is OpCode.FORMULA for each in toposort([op]))
    assert results(FUNCTIONS[name], create_graph=True)[1] == found
    (written,) = written_out([op])
    at_once()
    plain, expected = results(FUNCTIONS[name])
    assert OpCode.FORMULA not in {each.code for each in toposort([plain])}
    assert found == expected
    assert (written.dtype, written.shape) == (op.dtype, op.shape) == (plain.dtype, plain.shape)


@pytest.mark.parametrize("name", ["gelu", "softmax", "with bias", "std", "logits"])
def test_transforms_take_what_is_not_computed_yet(name: str, at_once: Callable[[], None]) -> None:
    function, x = FUNCTIONS[name], randn(2, 5, 4)

    def values() -> list[bytes]:
        waiting = F.gelu(x) + 1
        found = [  # a greatest value, for the order of a sum depends on what is computed beside it
            pg.func.vmap(lambda one: function(one) + waiting.amax())(x),
            pg.func.jvp(lambda one: function(one * waiting[0]), (x[0],), (x[1],))[1],
            pg.func.grad(lambda one: function(one * waiting[0]).sum())(x[0]),
            pg.jit(lambda one: function(one + waiting[0]))(x[0]),
            pg.checkpoint(lambda one: function(one + waiting[0]), x[0]),
        ]
        return [each.detach().numpy().tobytes() for each in found]

    values()  # the plans of a line's second run are those of every later one: what was asked for again is kept
    found = values()
    at_once()
    assert values() == found


def test_second_derivatives_and_hooks() -> None:
    x = randn(5, 4).requires_grad_()
    hidden, seen = F.gelu(x), list[Tensor]()
    handle = hidden.register_hook(seen.append)
    (first,) = pg.grad((hidden**2).sum(), x, create_graph=True)
    (second,) = pg.grad(first.square().sum(), x)
    handle.remove()
    assert np.isfinite(second.numpy()).all() and len(seen) == 2
    np.testing.assert_array_equal(seen[0].detach().numpy(), 2 * hidden.detach().numpy())


def test_a_value_that_was_computed_is_read_by_what_comes_after() -> None:
    x = randn(5, 4).requires_grad_()
    hidden = F.gelu(x)
    hidden.realize()
    (written,) = written_out([(hidden * 2).cell.op])
    assert written.src[0].realized is hidden.cell.op.realized is not None
    assert [op.code for op in toposort(written_out([F.gelu(x.detach()).realize().cell.op]))] == [OpCode.BUFFER]


def test_dtypes_and_shapes_are_wrong_at_the_call() -> None:
    for _ in range(2):
        with pytest.raises(pg.ShapeError, match="linear: input"):
            F.linear(randn(2, 5), W)
        with pytest.raises(pg.ShapeError, match=r"linear: shapes \(2, 3\) and \(4,\)"):
            F.linear(randn(2, 4), W, randn(4))
        with pytest.raises(pg.DTypeError, match="linear: bools"):
            F.linear(Tensor([[True] * 4]), W.bool())


def test_a_refused_value_names_the_line_of_the_call() -> None:
    weights = Tensor([[1.0, -1.0]])
    for _ in range(3):
        drawn = weights.multinomial(1)  # this one
        with pytest.raises(pg.ArgumentError, match="multinomial: a weight is negative") as caught:
            drawn.tolist()
        assert "weights.multinomial(1)  # this one" in str(caught.value)


def test_modes_hold_at_the_call_and_not_when_the_plan_is_made() -> None:
    x = randn(2, 4)
    with pg.autocast("cpu"):
        narrow = F.linear(x, W, B)
    assert narrow.dtype is dtypes.bfloat16 and narrow.numpy().dtype == dtypes.bfloat16.numpy
    assert F.linear(x, W, B).dtype is dtypes.float32
    pg.set_float32_matmul_precision("high")
    try:
        fast = F.linear(x, W)
    finally:
        pg.set_float32_matmul_precision("highest")
    (product,) = [op for op in toposort(written_out([fast.cell.op])) if op.code is OpCode.MATMUL]
    assert product.arg is not None and product.arg.tf32


def test_options_and_operands_decide_the_formula() -> None:
    @formula
    def shifted(x: Op, y: Op, by: float, scale: float = 1.0) -> Op:
        return (x + by) * scale + y

    x, y = randn(3).cell.op, randn(3, seed=1).cell.op
    made = [shifted(x, y, 1.0), shifted(x, y, 2.0), shifted(y, x, 1.0), shifted(x, y, 1.0, scale=2.0)]
    assert len({op.arg for op in made}) == 3 and written_out([shifted(x, y, 1.0)]) == written_out(made[:1])
    for op, plain in zip(made, [(x + 1.0) * 1.0 + y, (x + 2.0) * 1.0 + y, (y + 1.0) * 1.0 + x, (x + 1.0) * 2.0 + y]):
        assert op.code is OpCode.FORMULA and written_out([op]) == [plain]


def test_symbolic_lengths_are_those_of_the_graph() -> None:
    n = pg.Variable("n", 1, 5).bind(3)
    x = randn(5, 4)[:n]
    assert F.gelu(x).shape[0] is x.shape[0]
    np.testing.assert_array_equal(F.softmax(x, -1).mean(1).numpy(), F.softmax(randn(5, 4)[:3], -1).mean(1).numpy())


def test_a_symbolic_length_stays_one_beside_numbers_that_change() -> None:
    """From the third length on a trial is for many: the user's own symbolic integer is none of these."""
    n = pg.Variable("n", 1, 5).bind(3)
    for columns in (4, 6, 7, 9, 8):
        x = randn(5, columns)[:n]
        assert x.abs().shape == x.shape
        np.testing.assert_array_equal(pg.where(x.abs() <= 0.5, x, 0.0).numpy(), x.numpy() * (abs(x.numpy()) <= 0.5))


def test_modes_do_not_change_a_function_of_tensors_that_waits() -> None:
    x = randn(5, 4).requires_grad_()
    expected = F.huber_loss(x.double(), x.detach().double() * 0.1).item()
    loss = F.huber_loss(x, x.detach() * 0.1)
    with pg.no_grad(), pg.autocast("cpu"):
        assert loss.item() == pytest.approx(expected, rel=1e-6) and not F.huber_loss(x, x.detach()).requires_grad
    loss.backward()
    assert x.grad is not None and x.grad.abs().sum().item() > 0
    pg.set_float32_matmul_precision("high")
    try:
        assert F.huber_loss(x, x.detach(), reduction="none").cell.op.code is not OpCode.FORMULA
    finally:
        pg.set_float32_matmul_precision("highest")


def test_a_function_of_tensors_takes_what_no_formula_does() -> None:
    x = randn(5, 4)
    places, rows = x.kthvalue(Tensor(2)), x.kthvalue(2)  # the value of an argument
    assert places.values.tolist() == rows.values.tolist() and places.indices.tolist() == rows.indices.tolist()
    assert F.max_pool2d(x[None], [2, 2]).tolist() == F.max_pool2d(x[None], (2, 2)).tolist()  # a list
    rest = {"distance_function": lambda a, b: (a - b).abs().sum(-1)}
    assert F.triplet_margin_with_distance_loss(x, x[:1], x[1:2], **rest).item() > 0  # a function
    with pytest.raises(pg.DeviceError):
        F.huber_loss(x, x.to("NUMPY"))


def test_memory_of_a_function_of_tensors_would_be_that_of_its_first_call() -> None:
    @of_tensors
    def shifted(x: Tensor) -> Tensor:
        return x + Tensor([1.0, 2.0, 3.0, 4.0])

    with pytest.raises(AssertionError, match="shifted has its own memory"):
        shifted(randn(5, 4))


def test_results_of_a_function_of_tensors_name_the_line_of_the_call() -> None:
    weights, rows = randn(6, 2), Tensor([0, 4, 3])
    for _ in range(3):
        bags = F.embedding_bag(Tensor([0, 1, 1, 2]), weights, rows)  # this one
        with pytest.raises(pg.IndexingError, match="offsets must begin with 0") as caught:
            bags.tolist()
        assert "weights, rows)  # this one" in str(caught.value)


@pytest.mark.parametrize("name", OF_TENSORS)
def test_a_function_of_tensors_makes_no_graph_at_its_second_call(name: str, alone: None) -> None:
    x = randn(5, 4)
    first = OF_TENSORS[name](x)
    made: list[object] = []
    at_once = later._at_once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(later, "_at_once", lambda *args: made.append(args) or at_once(*args))
        again = OF_TENSORS[name](x)
    assert not made and written_out([again.op]) == written_out([first.op])


def test_calls_of_python_are_few(monkeypatch: pytest.MonkeyPatch, alone: None) -> None:
    x = randn(5, 4)
    made: list[OpCode] = []
    new = Op.__new__
    for function, most in [(F.gelu, 1), (F.softplus, 1), (lambda x: F.linear(x, W, B), 1), (lambda x: x.softmax(-1), 1)]:
        kept = function(x)  # the first call makes its graph on trial
        assert calls(lambda: function(x)) <= 40  # noqa: B023
        with monkeypatch.context() as patch:
            patch.setattr(Op, "__new__", lambda cls, code, *args: made.append(code) or new(cls, code, *args))
            again = function(x)
        assert written_out([again.cell.op]) == written_out([kept.cell.op]) and len(made) <= most
        made.clear()


def test_blocks_of_formulas_that_move_have_a_known_plan(alone: None) -> None:
    data = randn(64, 3)
    for make in (lambda: pg.randperm(64), lambda: (data - data.mean(0)) / data.std(0)):
        order, planned = make(), 0
        for i in range(0, 64, 8):
            with watch() as counts:
                (order[i : i + 8] * 2).realize()
            planned += counts.scheduled if i >= 40 else 0
        assert planned == 0
        again = (order[0:8] * 2).cell.op
        assert calls(lambda: realize([again])) < 200  # noqa: B023
