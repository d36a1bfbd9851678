"""Every emitter, on the shapes that break loops: the same meaning at each level, for CPU vectors and GPU threads.

Inputs are small whole numbers, so that sums in any order are exact and values must be equal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.matmul import contiguous_axis
from picograd.dtype import DType
from picograd.errors import VerifyError
from picograd.evaluator import evaluate_kernel
from picograd.ir import build
from picograd.ir.op import Op, Shape, const, filled
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Schedule
from picograd.rewrites.simplify import simplify_graph
from picograd.road import create_schedule
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, Array, check_same_meaning, lowered, run_on

ADD, MUL, MAX, MIN = OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN
F32 = dtypes.float32


class Inputs:
    """PARAMs with small whole numbers."""

    def __init__(self) -> None:
        self.arrays: dict[Op, Array] = {}
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int, dtype: DType = F32, low: int = -4, high: int = 5) -> Op:
        op = Op(OpCode.PARAM, dtype, (), (len(self.arrays), shape))
        least = 0 if dtype.kind in "bu" else low
        most = 2 if dtype.kind == "b" else high
        self.arrays[op] = np.asarray(self.rng.integers(least, most, shape)).astype(dtype.numpy)
        return op

    def check(self, *roots: Op, gpu: bool = True, tolerance: float = 0.0) -> Schedule:
        targets = (*CPU_TARGETS, GPU_TARGET) if gpu else CPU_TARGETS
        return check_same_meaning(roots, self.arrays, tolerance, targets)


@pytest.fixture
def inputs() -> Inputs:
    return Inputs()


def matmul(a: Op, b: Op) -> Op:
    return Op(OpCode.MATMUL, a.dtype, (a, b))


def rows_back(x: Op, code: OpCode, axes: tuple[int, ...]) -> Op:
    """The reduction of x along axes, repeated for every element."""
    return build.repeat_axes(build.reduce(x, code, axes), axes, x.shape)


# ---- elementwise ----
SHAPES: list[tuple[int, ...]] = [
    (), (1,), (2,), (3,), (15,), (16,), (17,), (31,), (97,), (1, 1), (1, 5), (5, 1), (3, 7), (4, 16), (2, 3, 5), (1, 0, 3),
    (0,), (2, 1, 3, 1, 2),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise_of_any_shape(inputs: Inputs, shape: tuple[int, ...]) -> None:
    a, b = inputs(*shape), inputs(*shape)
    inputs.check(a * b + a, build.where(build.compare(OpCode.CMPLT, a, b), a, -b))


@pytest.mark.parametrize("length", [8191, 8192, 8193, 12288 + 5])
def test_long_elementwise_is_cut_into_pieces(inputs: Inputs, length: int) -> None:
    a = inputs(length)
    check_same_meaning([a + a], inputs.arrays, targets=(CPU_TARGETS[2],))


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("shape", [(3, 5000), (5000, 3), (17, 17, 17)])
def test_long_strided_elementwise_is_cut_into_pieces(inputs: Inputs, shape: tuple[int, ...]) -> None:
    a = inputs(*shape)
    axes = tuple(reversed(range(len(shape))))
    b = inputs(*reversed(shape))
    check_same_meaning([build.permute(a, axes) + b], inputs.arrays, targets=(CPU_TARGETS[2],))


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("shape", [(5, 19, 3), (40, 1), (16, 2, 2), (1100, 5), (3, 0), (0, 3)])
def test_rows_too_narrow_for_lanes_lie_side_by_side(inputs: Inputs, shape: tuple[int, ...]) -> None:
    """Columns are written out, rows are lanes; those left over come one by one."""
    x, axis = inputs(*shape), (len(shape) - 1,)
    greatest = build.reduce(x, OpCode.MAX, axis)
    found = build.compare(OpCode.CMPEQ, x, build.repeat_axes(greatest, axis, x.shape))
    first = build.reduce(build.where(found, build.positions(x.shape, axis[0]), 99), OpCode.MIN, axis)
    inputs.check(greatest, first, build.reduce(x, OpCode.ADD, axis), gpu=shape[0] < 1000)


def moved(x: Op) -> dict[str, Op]:
    """A (4, 6) tensor seen in every way."""
    flipped = build.flip(x, (0, 1))
    padded = build.pad(x, ((1, 2), (0, 3)))
    part = build.shrink(x, ((1, 3), (2, 6)))
    return {
        "transposed": build.permute(x, (1, 0)),
        "flipped": flipped,
        "padded": padded,
        "cut": part,
        "a_flipped_pad_of_a_transposed_cut": build.flip(
            build.pad(build.permute(part, (1, 0)), ((2, 1), (1, 1))), (0,)
        ),
        "every_second": build.reshape(
            build.shrink(build.reshape(x, (4, 3, 2)), ((0, 4), (0, 3), (0, 1))), (4, 3)
        ),
        "split_and_merged": build.reshape(build.permute(build.reshape(x, (2, 2, 3, 2)), (0, 2, 1, 3)), (6, 4)),
        "repeated": build.expand(build.reshape(x, (4, 1, 6)), (4, 3, 6)),
        "flat": build.reshape(x, (24,)),
        "a_column": build.shrink(x, ((0, 4), (2, 3))),
        "padded_twice_and_cut": build.shrink(build.pad(build.flip(padded, (1,)), ((1, 1), (2, 2))), ((0, 8), (1, 12))),
    }


VIEWS = tuple(moved(Op(OpCode.PARAM, F32, (), (0, (4, 6)))))


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_read_in_place(inputs: Inputs, view: str) -> None:
    x = moved(inputs(4, 6))[view]
    schedule = inputs.check(x + inputs(*x.shape))  # type: ignore[arg-type]
    assert len(schedule.items) == 1


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_reduced_in_place(inputs: Inputs, view: str) -> None:
    x = moved(inputs(4, 6))[view]
    axis = len(x.shape) - 1
    schedule = inputs.check(build.reduce(x, ADD, (axis,)), build.reduce(x, MAX, (0,)))
    assert all(use.role != "temporary" for use in schedule.buffers)


@pytest.mark.parametrize("view", [v for v in VIEWS if v not in ("repeated", "flat")])
def test_a_view_is_an_operand_in_place(inputs: Inputs, view: str) -> None:
    x = moved(inputs(4, 6))[view]
    schedule = inputs.check(matmul(x, inputs(int(x.shape[1]), 3)), matmul(inputs(3, int(x.shape[0])), x), gpu=False)  # type: ignore[call-overload]
    assert all(use.role != "temporary" for use in schedule.buffers)


ALL_DTYPES = [d for d in dtypes.ALL if d.itemsize > 1 or not d.is_float]


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_elementwise_of_any_dtype(inputs: Inputs, dtype: DType) -> None:
    a, b = inputs(5, 7, dtype=dtype), inputs(5, 7, dtype=dtype)
    code = OpCode.XOR if dtype.kind == "b" else MUL
    inputs.check(Op(code, dtype, (a, b)), Op(MAX, dtype, (a, b)), build.compare(OpCode.CMPLE, a, b))


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_a_cast_to_any_dtype(inputs: Inputs, dtype: DType) -> None:
    a = inputs(19, low=0)
    flag = inputs(19, dtype=dtypes.bool_)
    number = inputs(19, dtype=dtypes.int64, low=0)
    inputs.check(build.cast(a, dtype), build.cast(flag, dtype), build.cast(build.cast(number, dtype), F32))


# ---- integers where processors differ ----
@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.is_int], ids=lambda d: d.name)
def test_whole_division_by_zero_and_minus_one_does_not_trap(inputs: Inputs, dtype: DType) -> None:
    a, b = inputs(23, dtype=dtype), inputs(23, dtype=dtype, low=-2, high=3)
    inputs.arrays[a][:4] = dtype.min
    constant = [filled(c, dtype, (23,)) for c in ((0, 3, -1, -3) if dtype.kind == "i" else (0, 3))]
    roots = [Op(code, dtype, (a, c)) for code in (OpCode.IDIV, OpCode.MOD) for c in (b, *constant)]
    inputs.check(*roots)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.is_int], ids=lambda d: d.name)
def test_a_shift_by_more_than_the_width_shifts_everything_out(inputs: Inputs, dtype: DType) -> None:
    a, count = inputs(23, dtype=dtype), inputs(23, dtype=dtype, low=-2, high=70)
    wide = filled(dtype.bits, dtype, (23,))
    inputs.check(*[Op(code, dtype, (a, c)) for code in (OpCode.SHL, OpCode.SHR) for c in (count, wide)])


def test_arithmetic_of_users_integers_is_not_index_arithmetic(inputs: Inputs) -> None:
    """x + x thirty times over is one expression of thirty nodes, wherever loops are written out."""
    x = inputs(300, dtype=dtypes.int64)
    y = x
    for _ in range(30):
        y = y + y
    check_same_meaning([build.reduce(y, ADD, (0,)), build.reduce(y, MAX, (0,))], inputs.arrays, targets=CPU_TARGETS)


def test_floats_inside_an_integer_expression_keep_their_fraction(inputs: Inputs) -> None:
    x = inputs(300)
    whole = build.cast(x * 2.5, dtypes.int64) * 3
    check_same_meaning([build.reduce(whole, ADD, (0,))], inputs.arrays, targets=CPU_TARGETS)


# ---- reductions ----
@pytest.mark.variants(every=5)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 4, 17), (16, 1, 3), (2, 33, 2)], ids=str)
def test_a_reduction_over_any_axes(inputs: Inputs, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = inputs(*shape)
    inputs.check(build.reduce(x, ADD, axes), build.reduce(x * x, MAX, axes))


@pytest.mark.variants
@pytest.mark.parametrize("code", [ADD, MUL, MAX, MIN], ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_a_reduction_of_any_dtype(inputs: Inputs, dtype: DType, code: OpCode) -> None:
    x = inputs(3, 11, dtype=dtype)
    if code is MUL and dtype.is_float:
        inputs.arrays[x][...] = np.sign(inputs.arrays[x].astype(np.float32)).astype(dtype.numpy)
    inputs.check(build.reduce(x, code, (1,)), build.reduce(x, code, (0,)))


@pytest.mark.parametrize("length", [1, 2, 31, 32, 63, 64, 65, 127, 129, 257])
def test_a_reduction_of_any_length(inputs: Inputs, length: int) -> None:
    x = inputs(2, length)
    inputs.check(build.reduce(x, ADD, (1,)), build.reduce(x, MIN, (1,)))


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("shape", [(2, 5000), (5000, 3), (9000,)], ids=str)
def test_a_long_reduction_is_a_sum_of_sums(inputs: Inputs, shape: tuple[int, ...]) -> None:
    x = inputs(*shape)
    check_same_meaning([build.reduce(x, ADD, (0,))], inputs.arrays, targets=(CPU_TARGETS[2],))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)], ids=str)
@pytest.mark.parametrize("code", [ADD, MUL, MAX], ids=lambda c: c.name)
def test_a_reduction_of_nothing_is_its_identity(inputs: Inputs, shape: tuple[int, ...], code: OpCode) -> None:
    x = inputs(*shape)
    inputs.check(*[build.reduce(x, code, (axis,)) for axis in range(len(shape))])


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_levels_of_reductions_over_the_same_rows(inputs: Inputs, axes: tuple[int, ...]) -> None:
    x = inputs(6, 20)
    centred = x - rows_back(x, MAX, axes)
    spread = rows_back(centred * centred, ADD, axes)
    inputs.check(centred + spread, build.reduce(centred, ADD, axes))


def test_softmax_along_any_axis(inputs: Inputs) -> None:
    x = inputs(5, 4, 19)
    for axis in range(3):
        e = build.unary(OpCode.EXP, x - rows_back(x, MAX, (axis,)))
        # a quotient of sums of 19 positive values of at most 1, each within 4 ulp: 40 ulp bound any order
        inputs.check(e / rows_back(e, ADD, (axis,)), tolerance=40 * 2.0**-23)


def test_reductions_of_several_shapes_in_one_kernel(inputs: Inputs) -> None:
    x, w = inputs(12, 9), inputs(9)
    centred = x - rows_back(x, MAX, (1,))
    scaled = centred * build.expand(build.reshape(w, (1, 9)), (12, 9))
    inputs.check(scaled, build.reduce(scaled, ADD, (0,)), build.reduce(build.reduce(scaled, ADD, (1,)), ADD, (0,)))


# ---- products ----
SIZES = [
    (1, 1, 1), (1, 5, 1), (1, 7, 9), (9, 7, 1), (4, 1, 4), (2, 3, 2), (5, 17, 33), (6, 16, 32), (7, 16, 33), (12, 8, 16),
    (13, 5, 17), (3, 0, 4), (0, 3, 4), (3, 4, 0), (25, 3, 3),
]  # fmt: skip


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_product_of_any_size(inputs: Inputs, size: tuple[int, int, int]) -> None:
    m, k, n = size
    inputs.check(matmul(inputs(m, k), inputs(k, n)), gpu=m * k * n < 400)


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("batch", [(1,), (3,), (2, 2), (0,)], ids=str)
@pytest.mark.parametrize("size", [(2, 3, 4), (1, 3, 4), (4, 3, 1), (2, 1, 2), (7, 5, 40)], ids=str)
def test_a_batched_product(inputs: Inputs, batch: tuple[int, ...], size: tuple[int, int, int]) -> None:
    m, k, n = size
    inputs.check(matmul(inputs(*batch, m, k), inputs(*batch, k, n)), gpu=False)


def test_a_batched_product_on_a_gpu(inputs: Inputs) -> None:
    inputs.check(matmul(inputs(2, 3, 5), inputs(2, 5, 4)))


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.kind != "b"], ids=lambda d: d.name)
def test_a_product_of_any_dtype(inputs: Inputs, dtype: DType) -> None:
    inputs.check(matmul(inputs(3, 5, dtype=dtype, low=-2, high=3), inputs(5, 4, dtype=dtype, low=-2, high=3)))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_transposed_operands_are_read_in_place(inputs: Inputs, left: bool, right: bool) -> None:
    a = build.swap_last(inputs(21, 9)) if left else inputs(9, 21)
    b = build.swap_last(inputs(18, 21)) if right else inputs(21, 18)
    schedule = inputs.check(matmul(a, b), gpu=False)
    assert len(schedule.items) == 1 and all(use.role != "temporary" for use in schedule.buffers)


def test_expressions_before_and_after_a_product_are_part_of_it(inputs: Inputs) -> None:
    a, b, bias = inputs(9, 12), inputs(12, 18), inputs(18)
    left = Op(MAX, F32, (a + a, filled(0.0, F32, a.shape)))
    right = build.where(build.compare(OpCode.CMPLT, b, filled(1.0, F32, b.shape)), b, -b)
    product = matmul(left, right) + build.expand(build.reshape(bias, (1, 18)), (9, 18))
    active = Op(MAX, F32, (product, filled(0.0, F32, product.shape)))
    schedule = inputs.check(active, build.compare(OpCode.CMPLT, filled(0.0, F32, product.shape), product), gpu=False)
    assert len(schedule.items) == 1 and all(use.role != "temporary" for use in schedule.buffers)


def test_an_epilogue_that_transposes_or_flattens_its_product(inputs: Inputs) -> None:
    product = matmul(inputs(2, 4, 5), inputs(2, 5, 6))
    heads = build.reshape(build.permute(product, (1, 0, 2)), (4, 12))
    inputs.check(heads + inputs(4, 12), product, gpu=False)


def test_a_product_of_a_product(inputs: Inputs) -> None:
    a, b, c = inputs(5, 6, low=-2, high=3), inputs(6, 7, low=-2, high=3), inputs(7, 3, low=-2, high=3)
    inputs.check(matmul(matmul(a, b), c), matmul(a, matmul(b, c)), gpu=False)


def test_a_product_with_itself_transposed(inputs: Inputs) -> None:
    x = inputs(8, 5)
    inputs.check(matmul(x, build.swap_last(x)), build.swap_last(matmul(build.swap_last(x), x)), gpu=False)


# ---- gather and scatter ----
@pytest.mark.variants(every=4)
@pytest.mark.parametrize(("axis", "batch"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.int32, dtypes.uint8], ids=lambda d: d.name)
def test_a_gather_along_any_axis(inputs: Inputs, axis: int, batch: int, dtype: DType) -> None:
    x = inputs(4, 5, 6)
    index = inputs(*(4, 5, 6)[:batch], 3, 2, dtype=dtype, low=0, high=4)
    picked = build.gather(x, index, axis, batch)
    inputs.check(picked + picked, build.reduce(picked, ADD, (len(picked.shape) - 1,)))


def test_a_gather_of_one_row_is_masked_by_lanes(inputs: Inputs) -> None:
    """All lanes read one element, each under its own condition."""
    x, index = inputs(1, 3), inputs(64, dtype=dtypes.int32, low=0, high=1)
    inputs.check(build.reduce(build.gather(x, index, 0, 0), MAX, (0,)))


def test_an_index_out_of_range_touches_no_memory_and_gives_zero(inputs: Inputs) -> None:
    x, index = inputs(5, 3), inputs(7, dtype=dtypes.int64)
    picked = build.gather(x, index, 0, 0) + filled(1.0, F32, (7, 3))
    arrays = dict(inputs.arrays)
    arrays[index] = np.array([0, 4, 5, -1, 1 << 40, -(1 << 62), 2])
    expected = arrays[x][[0, 4, 0, 0, 0, 0, 2]] * np.array([1, 1, 0, 0, 0, 0, 1], np.float32)[:, None] + 1
    assert np.array_equal(run_on("CPU", [picked], arrays, {})[0], expected)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("code", [None, ADD, MAX, MIN], ids=lambda c: "store" if c is None else c.name)
@pytest.mark.parametrize(("axis", "batch"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)])
def test_a_scatter_along_any_axis(inputs: Inputs, axis: int, batch: int, code: OpCode | None) -> None:
    base = inputs(4, 5, 6)
    index = inputs(*(4, 5, 6)[:batch], 3, dtype=dtypes.int64, low=0, high=4)
    shape = (*base.shape[:axis], *index.shape[batch:], *base.shape[axis + 1 :])
    inputs.check(build.scatter(base, index, inputs(*shape), code, axis, batch))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.bool_, dtypes.int64, dtypes.float64], ids=lambda d: d.name)
def test_a_scatter_of_any_dtype(inputs: Inputs, dtype: DType) -> None:
    base, index, updates = inputs(5, dtype=dtype), inputs(9, dtype=dtypes.int64, low=0), inputs(9, dtype=dtype)
    inputs.check(build.scatter(base, index, updates, ADD, 0, 0), build.scatter(base, index, updates, None, 0, 0))


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint8], ids=lambda d: d.name)
def test_a_scatter_at_indices_of_any_integers(inputs: Inputs, dtype: DType) -> None:
    index = inputs(9, dtype=dtype, low=0, high=4)
    inputs.check(build.scatter(inputs(5, 3), index, inputs(9, 3), ADD, 0, 0))


def test_updates_and_base_of_a_scatter_are_expressions(inputs: Inputs) -> None:
    x, index = inputs(7, 20), inputs(7, dtype=dtypes.int64, low=0)
    zeros = filled(0.0, F32, (5, 20))
    into = build.scatter(zeros, index, x - rows_back(x, MAX, (1,)), ADD, 0, 0)
    inputs.check(into * into, build.gather(into, index, 0, 0))


# ---- several nests in one kernel ----
def test_phases_of_one_kernel_follow_each_other(inputs: Inputs) -> None:
    x = inputs(40, 24)
    centred = x - rows_back(x, MAX, (1,))
    total = build.reduce(build.reduce(centred, ADD, (1,)), ADD, (0,))
    schedule = inputs.check(total, build.reduce(centred, ADD, (0,)))
    assert len(schedule.items) == 1
    assert len(schedule.items[0].kernel.phases) == 2


def test_nests_side_by_side_are_one_kernel(inputs: Inputs) -> None:
    shapes: list[Shape] = [(3, 5), (7,), (), (2, 2, 2)]
    leaves = [inputs(*s) for s in shapes]  # type: ignore[misc]
    assert len(inputs.check(*[leaf + leaf for leaf in leaves]).items) == 1


def test_a_chain_deeper_than_pythons_stack_is_compiled(inputs: Inputs) -> None:
    x = inputs(4)
    y = x
    for i in range(3000):
        y = Op((ADD, OpCode.SUB)[i % 2], F32, (y, x))
    check_same_meaning([y], inputs.arrays, targets=())


def test_a_program_that_leaves_its_memory_is_caught(inputs: Inputs) -> None:
    """The net itself: a kernel whose param is too short for what it stores."""
    a = inputs(8)
    kernel = create_schedule(simplify_graph([a + a])).items[0].kernel
    with pytest.raises(VerifyError, match="slot 1"):
        evaluate_kernel(kernel, [np.zeros(8, np.float32), np.zeros(4, np.float32)])


# ---- symbolic lengths ----
LENGTH = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 40))
TIMES_6 = Op(OpCode.MUL, dtypes.int64, (LENGTH, const(6, dtypes.int64)))
Symbolic = Callable[..., Op]
SYMBOLIC: dict[str, Callable[[Symbolic], list[Op]]] = {
    "rows": lambda x: [(a := x(LENGTH, 7)) * a],
    "columns": lambda x: [(a := x(7, LENGTH)) * a],
    "rows and their transposed": lambda x: [x(LENGTH, 7) + build.permute(x(7, LENGTH), (1, 0))],
    "the first of many": lambda x: [build.shrink(x(40, 7), ((0, LENGTH), (0, 7))) * 2],
    "sums down": lambda x: [build.reduce(x(LENGTH, 7), ADD, (0,))],
    "sums along": lambda x: [build.reduce(x(7, LENGTH), ADD, (1,))],
    "sums of all": lambda x: [build.reduce(x(7, LENGTH), ADD, (0, 1))],
    "every element less its row's maximum": lambda x: [(a := x(7, LENGTH)) - rows_back(a, MAX, (1,))],
    "every element less its column's maximum": lambda x: [(a := x(LENGTH, 7)) - rows_back(a, MAX, (0,))],
    "a product with many rows": lambda x: [matmul(x(LENGTH, 7), x(7, 5))],
    "a product with many columns": lambda x: [matmul(x(5, 7), x(7, LENGTH))],
    "a product over many": lambda x: [matmul(x(5, LENGTH), x(LENGTH, 6))],
    "all with all": lambda x: [matmul(a := x(LENGTH, 7), build.swap_last(a))],
    "a batch of products": lambda x: [matmul(x(LENGTH, 3, 4), x(LENGTH, 4, 6))],
    "a split axis": lambda x: [build.reshape(x(LENGTH, 6), (LENGTH, 2, 3)) * 3],
    "a merged axis": lambda x: [build.reshape(x(LENGTH, 6), (TIMES_6,)) * 3],
    "positions": lambda x: [x(LENGTH) + build.cast(build.positions((LENGTH,), 0), F32)],
    "padded": lambda x: [build.pad(x(LENGTH, 3), ((1, 2), (0, 1))) * 2],
    "flipped": lambda x: [build.flip(x(LENGTH, 3), (0,)) * 2],
}


@pytest.mark.req("G4")
@pytest.mark.parametrize("name", SYMBOLIC)
def test_a_symbolic_length(inputs: Inputs, name: str) -> None:
    kernels = set()
    for n in (1, 5, 17, 40):
        arrays: dict[Op, Array] = {}

        def leaf(*shape: int | Op, n: int = n, arrays: dict[Op, Array] = arrays) -> Op:
            op = Op(OpCode.PARAM, F32, (), (len(arrays), shape))
            arrays[op] = inputs.rng.integers(-4, 5, [n if d is LENGTH else d for d in shape]).astype(np.float32)
            return op

        schedule = check_same_meaning(
            SYMBOLIC[name](leaf), arrays, targets=(CPU_TARGETS[0], CPU_TARGETS[2]), variables={"n": n}
        )
        kernels |= {item.kernel for item in schedule.items}
    assert len(kernels) == 1


# ---- form ----
def test_contiguous_axes_are_one_loop(inputs: Inputs) -> None:
    x = inputs(2, 3, 4, 5, 6)
    kernel = create_schedule(simplify_graph([x + x])).items[0].kernel
    text = lowered(kernel, CPU_TARGETS[2])
    assert "in loop(45)" in text and text.count("loop(") == 1  # 720 elements in vectors of 16, nothing left over


def test_rows_of_a_padded_matrix_stay_two_loops_but_its_batch_is_one(inputs: Inputs) -> None:
    x = build.pad(inputs(2, 3, 6), ((0, 0), (0, 0), (1, 0)))
    text = lowered(create_schedule(simplify_graph([x + x])).items[0].kernel, CPU_TARGETS[0])
    assert "in loop(6)" in text  # 2 x 3 rows, which pad does not tell apart


def test_gathered_rows_of_an_operand_are_read_as_they_lie(inputs: Inputs) -> None:
    x, index = inputs(20, 48), inputs(24, dtype=dtypes.int32, low=0, high=20)
    schedule = inputs.check(matmul(build.gather(x, index, 0, 0), inputs(48, 32)), gpu=False)
    (item,) = schedule.items
    text = lowered(item.kernel, CPU_TARGETS[2])
    source = [op.arg[0] for op in schedule.inputs].index(x.arg[0])
    (load,) = [line for line in text.splitlines() if f"= p{source}[" in line]
    at = load.split("[")[1].split("]")[0]
    assert "float32x16" in load and f" {at}: int64 = " in text  # 16 neighbours of a row, at one address


def test_what_is_read_for_a_whole_row_does_not_choose_how_an_operand_is_packed() -> None:
    """As in a softmax's gradient: the row, and its greatest value, its sum and its weight."""
    matrix, *facts = (
        Op(OpCode.PARAM, dtypes.float32, (), (i, shape)) for i, shape in enumerate([(24, 48), *[(24, 1)] * 3])
    )
    operand = matrix
    for fact in facts:
        operand = operand * build.expand(fact, (24, 48))
    assert contiguous_axis(operand) == -1


def test_no_loop_is_written_that_runs_not_once(inputs: Inputs) -> None:
    kernel = create_schedule(simplify_graph([build.reduce(inputs(3, 48), ADD, (1,))])).items[0].kernel
    text = lowered(kernel, CPU_TARGETS[2])
    assert "loop(0)" not in text and text.count("loop(") == 2  # of rows, and of vectors of a row


# ---- scans and sorts ----
@pytest.mark.parametrize("code", [ADD, MUL, MAX, MIN])
@pytest.mark.parametrize(
    ("shape", "axis"), [((7,), 0), ((1,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 3, 19), 1), ((0, 3), 1)]
)
def test_scan(inputs, code, shape, axis):
    x = inputs(*shape, low=-1, high=3)
    inputs.check(build.scan(x, code, axis))


def test_scan_of_columns_wider_than_a_piece(inputs):
    inputs.check(build.scan(inputs(2, 3, 300), ADD, 1), gpu=False)


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("code", [ADD, MAX])
@pytest.mark.parametrize("shape", [(32,), (50,), (3, 100), (1000,), (2, 1028), (5, 515), (130, 40)])
def test_scan_of_long_rows(inputs, code, shape):
    inputs.check(build.scan(inputs(*shape, low=-9, high=9), code, len(shape) - 1))


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.uint8, dtypes.int64, dtypes.float64], ids=str)
def test_scan_of_other_dtypes(inputs, dtype):
    inputs.check(build.scan(inputs(3, 4, dtype=dtype), ADD, 1))


def test_what_is_before_a_scan_joins_it_and_what_is_after_does_not(inputs):
    x = inputs(4, 6)
    schedule = inputs.check(build.unary(OpCode.NEG, build.scan(x + x, ADD, 1)))
    assert [item.kernel.name for item in schedule.items] == ["scan_4_6", "elementwise_4_6"]


def argsort(x: Op, axis: int, descending: bool) -> Op:
    return Op(OpCode.SORT, dtypes.int64, (x,), (axis, descending))


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"), [((1,), 0), ((2,), 0), ((7,), 0), ((8,), 0), ((5, 3), 0), ((2, 9), 1), ((0,), 0)]
)
def test_sort_is_stable(inputs, shape, axis, descending):
    inputs.check(argsort(inputs(*shape), axis, descending))


@pytest.mark.variants(every=10)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(127,), (128,), (129,), (2, 300), (513,)])
def test_sort_of_rows_longer_than_a_tile(inputs, shape, descending):
    inputs.check(argsort(inputs(*shape, low=-9, high=9), len(shape) - 1, descending))


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.uint64, dtypes.int8, dtypes.float64], ids=str)
def test_sort_of_other_dtypes(inputs, dtype):
    inputs.check(argsort(inputs(11, dtype=dtype), 0, False))


@pytest.mark.parametrize("descending", [False, True])
def test_sort_puts_nan_with_the_greatest(inputs, descending):
    x = inputs(6)
    inputs.arrays[x] = np.array([1, np.nan, np.inf, -np.inf, np.nan, 0], np.float32)
    inputs.check(argsort(x, 0, descending))
