"""Convolutions on a CPU and a GPU: the same meaning at every level, and little memory beside operands and result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from picograd import dtype as dtypes
from picograd.autodiff.transposes import conv_w, conv_x
from picograd.device import Target
from picograd.dtype import DType
from picograd.errors import ShapeError
from picograd.ir.build import cast, maximum, permute
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.ir.stages import NestKind
from picograd.ir.statements import For, Load, Statement, lanes_of
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

F32 = dtypes.float32


def param(slot: int, *shape: Dim, dtype: DType = F32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def conv(
    x: Op, w: Op, stride: int = 1, padding: int = 0, groups: int = 1, dilation: int = 1, apart: int = 1,
    of_weight: bool = False,
) -> Op:  # fmt: skip
    axes = len(x.shape) - 2
    pads = ((padding, padding),) * axes
    arg = ConvArg((stride,) * axes, pads, (dilation,) * axes, (apart,) * axes, groups, of_weight)
    return Op(OpCode.CONV, x.dtype, (x, w), arg)


def whole(rng: np.random.Generator, op: Op) -> np.ndarray:
    """Whole numbers so small that sums of a few thousand products are exact in float32."""
    return rng.integers(-4, 5, op.shape).astype(op.dtype.numpy)


def check(
    rng: np.random.Generator, root: Op, *operands: Op, targets: Sequence[Target] = (), device: bool = True
) -> None:
    """On the device, and as a Program where a test asks for it: the evaluator takes seconds for those."""
    check_same_meaning([root], {op: whole(rng, op) for op in operands}, targets=targets, device=device)


SHAPES = [
    ((2, 3, 3, 17), (5, 3, 3, 3), {"padding": 1}),
    ((1, 2, 5, 19), (14, 2, 2, 3), {"stride": 2, "padding": 2, "dilation": 2}),
    ((3, 4, 3, 5), (6, 2, 3, 3), {"groups": 2}),
    ((2, 3, 3, 8), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    ((2, 5, 40), (3, 5, 4), {"stride": 3}),
    ((1, 2, 2, 3, 4), (2, 2, 2, 3, 2), {"padding": 1}),
    ((2, 2, 3, 5), (3, 2, 3, 2), {"apart": 2, "padding": 1}),
    ((2, 5, 4, 6), (3, 5, 1, 1), {}),
    ((1, 70, 12, 12), (3, 70, 3, 3), {"padding": 1}),  # several blocks of K
]


@pytest.mark.parametrize("padding", [0, 2])
def test_a_window_at_one_place_that_is_always_inside_or_in_the_padding(padding: int, rng: np.random.Generator) -> None:
    """Where the elements of x lie, and whether one is there, is known when the loops are written."""
    a, b = param(0, 5, 4, 1), param(1, 6, 2, 1)
    out = conv(a, b, groups=2, dilation=2, apart=2, stride=3, padding=padding)
    check(rng, out, a, b, targets=(*CPU_TARGETS, GPU_TARGET))


@pytest.mark.req("A1")
@pytest.mark.parametrize(("x", "w", "arg"), SHAPES)
def test_convolutions_and_their_gradients(
    x: tuple[int, ...], w: tuple[int, ...], arg: dict[str, int], rng: np.random.Generator
) -> None:
    a, b = param(0, *x), param(1, *w)
    out = conv(a, b, **arg)
    check(rng, out, a, b)
    grad = param(2, *out.shape)
    check(rng, conv_x(grad, out), b, grad)
    check(rng, conv_w(grad, out), a, grad)


@pytest.mark.parametrize("target", [*CPU_TARGETS, GPU_TARGET], ids=str)
@pytest.mark.parametrize("width", [4, 9])
def test_programs(target: Target, width: int, rng: np.random.Generator) -> None:
    a, b = param(0, 1, 2, 2, width), param(1, 2, 2, 2, 2)
    out = conv(a, b, padding=1)
    check(rng, out, a, b, targets=[target], device=False)
    grad = param(2, *out.shape)
    check(rng, conv_w(grad, out), a, grad, targets=[target], device=False)


def test_what_is_computed_before_and_after_joins_the_kernel(rng: np.random.Generator) -> None:
    x, w, bias = param(0, 1, 2, 4, 18), param(1, 4, 2, 3, 3), param(2, 4)
    repeated = Op(OpCode.EXPAND, F32, (Op(OpCode.RESHAPE, F32, (bias,), (1, 4, 1, 1)),), (1, 4, 2, 16))
    root = maximum(conv(x * x, w + 1.0) + repeated, 0.0)
    schedule = check_same_meaning([root], {op: whole(rng, op) for op in (x, w, bias)}, targets=())
    assert [nest.kind for item in schedule.kernel_items() for phase in item.kernel.phases for nest in phase] == [
        NestKind.CONV
    ]


def test_an_operand_that_is_not_zero_beside_itself(rng: np.random.Generator) -> None:
    x, w = param(0, 1, 2, 3, 15), param(1, 4, 2, 3, 3)
    check(rng, conv(x + 1.0, w, padding=2), x, w)


def test_views_of_operands(rng: np.random.Generator) -> None:
    x, w = param(0, 14, 3, 2, 2), param(1, 3, 2, 4, 3)
    check(rng, conv(permute(x, (2, 3, 1, 0)), permute(w, (2, 1, 0, 3)), padding=1), x, w)


def test_a_long_sum_for_a_small_result_is_split(rng: np.random.Generator) -> None:
    x, w = param(0, 1, 5, 21, 20), param(1, 2, 5, 20, 20)  # of two positions: others are direct
    root = conv(x, w, of_weight=True) * 2.0
    item = create_schedule([root]).kernel_items()[0]
    assert [p.role for p in lower(item.kernel, CPU_TARGETS[2]).params].count("scratch") == 1
    check_same_meaning([root], {op: whole(rng, op) for op in (x, w)}, targets=())


def test_the_weight_gradient_of_channels_by_themselves_is_a_sum_along_windows(rng: np.random.Generator) -> None:
    x, w = param(0, 2, 3, 25, 26), param(1, 3, 1, 3, 3)
    out = conv(x, w, padding=1, groups=3, stride=1)
    grad = param(2, *out.shape)
    root = conv_w(grad, out)
    kinds = {nest.kind for item in create_schedule([root]).kernel_items() for phase in item.kernel.phases for nest in phase}
    assert kinds == {NestKind.REDUCE}
    check(rng, root, x, grad)


def test_a_large_weight_is_packed_by_blocks(rng: np.random.Generator) -> None:
    x, w = param(0, 1, 600, 9, 42), param(1, 250, 600, 3, 3)
    root = conv(x, w, padding=1)
    item = create_schedule([root]).kernel_items()[0]
    scratch = [p for p in lower(item.kernel, CPU_TARGETS[2]).params if p.role == "scratch"]
    assert w.numel * 4 > 1 << 22
    assert sum(int(p.numel) * p.dtype.itemsize for p in scratch) <= 1 << 20, "parts of split sums alone"
    check_same_meaning([root], {op: whole(rng, op) for op in (x, w)}, targets=())


PLANES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]] = [
    ((2, 3, 20, 21), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    ((1, 2, 40, 44), (2, 1, 5, 5), {"groups": 2, "padding": 2, "stride": 2}),
    ((1, 2, 26, 27), (4, 1, 3, 2), {"groups": 2, "padding": 4, "stride": 3, "dilation": 3}),
    ((2, 2, 700), (2, 1, 9), {"groups": 2, "padding": 4}),
    ((1, 1, 130, 140), (1, 1, 3, 3), {"padding": 1}),  # a plane in parts
    ((1, 2, 9, 13), (18, 1, 2, 2), {"groups": 2}),  # several panels of output channels
    ((1, 2, 6, 7, 18), (2, 1, 3, 3, 3), {"groups": 2, "padding": 1}),
]


@pytest.mark.parametrize(("x", "w", "arg"), PLANES)
def test_windows_of_few_output_channels_are_read_from_planes(
    x: tuple[int, ...], w: tuple[int, ...], arg: dict[str, int], rng: np.random.Generator
) -> None:
    """An element of x is not loaded for each tap, and no access is guarded."""
    a, b = param(0, *x), param(1, *w)
    root = conv(a, b, **arg)
    check(rng, root, a, b)
    (item,) = create_schedule([root]).kernel_items()
    for target in CPU_TARGETS:
        program = lower(item.kernel, target)
        assert program.num_guards == 0
        loaded = _loaded(program.phases[-1], 0)
        assert loaded <= 3.2 * a.numel, "padding, and vectors that end behind rows"


def _loaded(statements: Sequence[Statement], slot: int) -> int:
    """Returns how many elements of a parameter are loaded in all."""
    found = 0
    for one in statements:
        if isinstance(one, For):
            found += one.range.src[0].arg * _loaded(one.body, slot) if _loaded(one.body, slot) else 0
        elif isinstance(one, Load) and one.memory.code is OpCode.PARAM and one.memory.arg[0] == slot:
            found += lanes_of(one.var)
    return found


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.uint8])
def test_dtypes(dtype: DType, rng: np.random.Generator) -> None:
    x, w = param(0, 1, 2, 3, 15, dtype=dtype), param(1, 3, 2, 2, 3, dtype=dtype)
    values = {op: rng.integers(0, 3, op.shape).astype(dtype.numpy) for op in (x, w)}
    check_same_meaning([conv(x, w, padding=1)], values, targets=())


def test_a_batch_known_only_when_a_plan_runs(rng: np.random.Generator) -> None:
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 4))
    for width in (16, 5):  # along rows, and along all positions
        x, w = param(0, n, 2, 4, width), param(1, 3, 2, 3, 3)
        values = {x: rng.integers(-4, 5, (3, 2, 4, width)).astype(np.float32), w: whole(rng, w)}
        check_same_meaning([conv(x, w, padding=1)], values, targets=(), variables={"n": 3})


@pytest.mark.parametrize(
    ("x", "w"), [((0, 3, 5, 5), (4, 3, 3, 3)), ((2, 0, 5, 5), (4, 0, 3, 3)), ((2, 3, 5, 5), (0, 3, 3, 3))]
)
def test_nothing(x: tuple[int, ...], w: tuple[int, ...], rng: np.random.Generator) -> None:
    a, b = param(0, *x), param(1, *w)
    check(rng, conv(a, b), a, b)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Op, Op, ConvArg]:
    axes, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes)))

    channels, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    x = param(0, draw(st.integers(1, 3)), groups * channels, *each(1, {1: 30, 2: 8, 3: 4}[axes]))
    w = param(1, groups * outputs, channels, *each(1, 3))
    padding = tuple(zip(each(-1, 3), each(-1, 3)))
    return x, w, ConvArg(each(1, 3), padding, each(1, 2), each(1, 3), groups)


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(drawn())
def test_drawn_convolutions(call: tuple[Op, Op, ConvArg]) -> None:
    x, w, arg = call
    try:
        out = Op(OpCode.CONV, F32, (x, w), arg)
    except ShapeError:
        assume(False)
    assume(0 not in out.shape)
    rng = np.random.default_rng(0)
    check(rng, out, x, w)
    grad = param(2, *out.shape)
    check(rng, conv_x(grad, out), w, grad)
    check(rng, conv_w(grad, out), x, grad)


# ---- memory ----
@pytest.mark.req("C6")
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize(
    ("channels", "outputs", "length"), [(1, 32, 28), (64, 64, 14), (512, 512, 7), (64, 256, 112), (3, 64, 224)]
)
def test_no_size_takes_more_than_five_mebibytes_of_its_own(batch: int, channels: int, outputs: int, length: int) -> None:
    """Of memory from the plan; what lies on the stack of a thread is bounded by constants."""
    x, w = param(0, batch, channels, length, length), param(1, outputs, channels, 3, 3)
    out = conv(x, w, padding=1)
    grad = param(2, *out.shape)
    for root in (out, conv_x(grad, out), conv_w(grad, out), cast(out, dtypes.float16)):
        schedule = create_schedule([root])
        stored = [use for use in schedule.buffers if use.role == "temporary"]
        assert sum(int(use.numel) * use.dtype.itemsize for use in stored) <= max(4 * w.numel, 1 << 21)
        for item in schedule.kernel_items():
            scratch = [p for p in lower(item.kernel, CPU_TARGETS[2]).params if p.role == "scratch"]
            assert sum(int(p.numel) * p.dtype.itemsize for p in scratch) <= 5 << 20
