"""Loops over elements: each is computed once, in whole vectors and then what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from picograd import Tensor, cat
from picograd import dtype as dtypes
from picograd.autodiff.gradient import written_out
from picograd.codegen import elementwise
from picograd.device import Target
from picograd.dtype import DType
from picograd.engine.plan import parametrize, template
from picograd.ir.build import expand, unary, where
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import Shape
from picograd.ir.statements import For, If, Let, Load, Statement, Store, lanes_of, walk
from picograd.nn.functional import pad
from picograd.road import create_schedule, lower, schedule_graphs, simplify
from tests.codegen.test_reduce_cpu import all_of
from tests.same_meaning import CPU_TARGETS, check_same_meaning


def stored(statements: Sequence[Statement], times: int = 1) -> Iterator[int]:
    """Elements that each store writes while the program runs, where all extents are numbers."""
    for statement in statements:
        if isinstance(statement, For):
            yield from stored(statement.body, times * int(statement.range.src[0].arg))
        elif isinstance(statement, If):
            yield from stored(statement.body, times)
        elif isinstance(statement, Store):
            yield times * max(lanes_of(statement.value), 1)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (16,), (17,), (64, 1), (5, 7), (4000,), (2, 2, 33)], ids=str)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_each_element_is_stored_once(shape: Shape, target) -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, shape))
    (item,) = create_schedule([unary(OpCode.SQRT, x)]).items
    counts = [count for phase in lower(item.kernel, target).phases for count in stored(phase)]
    elements = 1
    for length in shape:
        elements *= int(length)
    assert sum(counts) == elements
    assert elements < 16 or max(counts) >= elements // 2, "most of them in vectors"


IN_PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": lambda x: pad(x, (2, 1, 1, 2)),
    "mirrored": lambda x: pad(x, (3, 2, 1, 2), "reflect"),
    "the edge": lambda x: pad(x, (3, 2, 1, 2), "replicate"),
    "the other end": lambda x: pad(x, (3, 2, 1, 2), "circular"),
    "cut and mirrored": lambda x: pad(x, (-3, 2, 1, -2), "reflect"),
    "rolled": lambda x: x.roll((2, 5), (-2, -1)),
    "joined": lambda x: cat([x, x + 1, x[..., 3:]], -1),
    "tiles": lambda x: x.tile(2, 3),
    "backwards and rolled": lambda x: x.flip(-1).roll(7, -1),
    "of a margin": lambda x: pad(pad(x, (1, 1, 0, 0), "reflect"), (1, 1, 1, 1)),
}


def root_of(function: Callable[[Tensor], Tensor], *shape: int, dtype: DType = dtypes.float32) -> Op:
    """Returns the graph of a function of a tensor, over PARAMs."""
    roots = written_out([function(Tensor(np.zeros(shape, np.float32), dtype=dtype)).op])
    return parametrize(roots, template(roots))[0]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_rows_are_read_in_parts_without_masks_and_gathers(name: str, dtype: DType, target: Target) -> None:
    """Indices that fall by one are a load and a turn of the register; all others are a place and what follows it."""
    (item,) = schedule_graphs([root_of(IN_PARTS[name], 8, 16, 67, dtype=dtype)]).items
    program = lower(item.kernel, target)
    loads = [one for phase in program.phases for one in all_of(phase) if isinstance(one, Load)]
    assert all(load.valid is None or lanes_of(load.valid) == 1 for load in loads), "a masked load"
    steps = [lanes_of(load.index) for load in loads if load.memory.code is OpCode.PARAM]
    backwards = 2 if "mirrored" in name else len(steps) if "backwards" in name else 0
    assert sum(lanes > 1 for lanes in steps) <= 2 * backwards, "a gather"
    assert any(lanes_of(load.var) > 1 for load in loads), "not one vector"


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.parametrize("length", [7, 19, 40])
def test_rows_in_parts_mean_the_same_at_every_level(name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "PARTS_ELEMENTS_MIN", 1)
    root = root_of(IN_PARTS[name], 3, 5, length)
    found = [op for op in toposort([root]) if op.code is OpCode.PARAM]
    values = {op: np.arange(np.prod(op.shape)).reshape(op.shape).astype(op.dtype.numpy) for op in found}
    check_same_meaning([root], values, targets=CPU_TARGETS)


def test_many_parts_are_no_parts() -> None:
    """A row of nine tiles is gathered, and one whose tiles have two elements each."""
    assert [len(parts_of(lambda x, n=n: x.tile(1, n), 64, 64)) for n in (2, 8, 9)] == [2, 8, 0]
    assert not parts_of(lambda x: x.repeat_interleave(2, 1), 64, 64)


def parts_of(function: Callable[[Tensor], Tensor], *shape: int) -> Sequence[tuple[int, int]]:
    root = root_of(function, *shape)
    groups = tuple((axis,) for axis in range(len(root.shape)))
    return elementwise.even_parts(simplify([root]), groups, root.shape, 8)


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_vectors_of_bytes_have_as_many_elements_as_bytes(target: Target) -> None:
    """Rows of whole vectors are computed in them; a row with a rest, and few elements, in quarters of them."""
    nbytes = target.vector_bytes

    def widest(function: Callable[[Tensor], Tensor], *shape: int, dtype: DType = dtypes.bool_) -> int:
        (item,) = schedule_graphs([root_of(function, *shape, dtype=dtype)]).items
        program = lower(item.kernel, target)
        return max(count for phase in program.phases for one in all_of(phase) if (count := lanes_in(one)))

    assert widest(lambda x: x.logical_not(), 128, 64) == nbytes
    assert widest(lambda x: x.logical_and(x.flip(0)), 128, 64) == nbytes
    assert widest(lambda x: x + 1, 8200, dtype=dtypes.int8) == nbytes
    assert widest(lambda x: x.roll(1, 0), 128, 64, dtype=dtypes.uint8) == nbytes
    assert widest(lambda x: x.flip(0) + 1, 128, 65, dtype=dtypes.int8) == nbytes // 4
    assert widest(lambda x: x + 1, 128, dtype=dtypes.int8) == nbytes // 4
    assert widest(lambda x: x.float(), 128, 64, dtype=dtypes.int8) == nbytes // 4


def lanes_in(statement: Statement) -> int:
    return lanes_of(statement.value) if isinstance(statement, Store) else 0


@pytest.mark.parametrize("code", [OpCode.NEG, OpCode.FLOOR])
def test_what_is_exact_in_bfloat16_is_not_rounded(code: OpCode) -> None:
    """No choice between a rounded number and a NaN: the upper half of the float32 is the result."""
    (item,) = create_schedule([unary(code, Op(OpCode.PARAM, dtypes.bfloat16, (), (0, (64,))))]).items
    program = lower(item.kernel, CPU_TARGETS[-1])
    lets = [one for phase in program.phases for one in all_of(phase) if isinstance(one, Let)]
    assert OpCode.WHERE not in {one.value.code for one in lets}


def gated(x: Tensor) -> Tensor:
    """Returns channels times a gate that is computed of the first."""
    return x * (x[:, :1].tanh() * 2.0 + 1.0).sigmoid()


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("channels", [2, 8, 11])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("length", [16, 37])
def test_rows_that_share_computation_mean_the_same(batch: int, channels: int, length: int) -> None:
    root = root_of(gated, batch, channels, length)
    (x,) = [op for op in toposort([root]) if op.code is OpCode.PARAM]
    values = {x: np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)}
    check_same_meaning([root], values, targets=CPU_TARGETS, tolerance=1e-5)


def run(statements: Sequence[Statement], times: int = 1) -> int:
    """Returns how many statements run, where all extents are numbers."""
    inner = [(one.body, int(one.range.src[0].arg)) for one in statements if isinstance(one, For)]
    return times * len(statements) + sum(run(body, times * count) for body, count in inner)


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_what_rows_share_is_computed_once_for_some(target: Target) -> None:
    """A gate of channels for eight of them; of few rows without a batch for as many as leave pieces for threads."""

    def statements(*shape: int) -> int:
        (item,) = schedule_graphs([root_of(gated, *shape)], target).items
        return sum(run(phase) for phase in lower(item.kernel, target).phases)

    one = statements(4, 1, 64)
    assert statements(4, 8, 64) < 2 * one and 2 * one < statements(4, 16, 64) < 4 * one
    assert statements(1, 3, 64) > 2 * one / 4 and statements(1, 16, 64) < 7 * one / 4


# ---- rows whose length a run tells ----
@pytest.mark.parametrize("length", [1, 7, 8, 15, 16, 17, 31])
def test_the_rest_of_a_row_of_symbolic_length_takes_some_lanes(length: int, rng: np.random.Generator) -> None:
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 40))
    x, flags = Op(OpCode.PARAM, dtypes.float32, (), (0, (3, n))), Op(OpCode.PARAM, dtypes.bool_, (), (1, (1, n)))
    inputs = {x: rng.standard_normal((3, length), np.float32), flags: rng.random((1, length)) < 0.5}
    roots = [where(expand(flags, x.shape), x * x, x), x * 2.0]
    check_same_meaning(roots, inputs, targets=CPU_TARGETS, variables={"n": length})
    (item,) = create_schedule(roots).items
    for target in CPU_TARGETS[1:]:
        stores = [one for one in walk(lower(item.kernel, target).phases[0]) if isinstance(one, Store)]
        assert all(lanes_of(one.value) > 1 for one in stores), "none is computed alone"


def test_places_of_lanes_that_do_not_run_are_not_checked() -> None:
    """Such a lane reads 0, and 0 - 10 is no place of a table of five."""
    table = Tensor(np.arange(5.0, dtype=np.float32))
    for length in (17, 19, 23, 21, 18, 30):
        index = np.arange(10, 10 + length) % 5 + 10
        assert table[Tensor(index) - 10].numpy().tolist() == list(map(float, index - 10))
