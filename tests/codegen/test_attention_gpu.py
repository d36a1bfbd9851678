"""The kernels of an attention on a GPU mean what the Ops mean: evaluated, and run on the simulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda import render as cuda
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.devices.ptx import render as nvptx
from picograd.devices.ptx.compile import gpu_target
from picograd.dtype import DType
from picograd.evaluator import evaluate, evaluate_kernel, evaluate_program
from picograd.ir.attention import MATRIX_QUERIES_MIN, cut_of_averages, has_kernel, outputs, part_of_keys
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.spec import verify_program
from picograd.ir.stages import Kernel
from picograd.ir.statements import Mma, walk
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.codegen.test_attention_cpu import ARGS, LENGTHS, Lengths, drawn, draws, param
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.same_meaning import GPU_TARGET, backwards

# Of the greatest value: weights and slopes of narrow floats are rounded on their way into the second product.
TOLERANCES = {dtypes.float32: 5e-6, dtypes.float64: 1e-13, dtypes.float16: 2e-3, dtypes.bfloat16: 2e-2}
RENDERERS = {"cuda": cuda.render, "nvptx": nvptx.render}
OF_TF32 = 4e-3  # as many bits as float16 has, and what is given is rounded, too
SMALL: list[Lengths] = [(1, 4, 2, 16, 2, 2, 3), (1, 1, 1, 17, 18, 1, 3)]  # one tile of keys, two
CASES: list[tuple[Lengths, AttentionArg, DType]] = [
    ((1, 1, 1, 16, 1, 1, 1), ARGS[0], dtypes.float32),
    ((1, 2, 1, 20, 33, 5, 7), ARGS[1], dtypes.float32),
    ((1, 2, 2, 131, 67, 32, 16), ARGS[1], dtypes.float32),  # causal: the first queries see nothing
    ((2, 2, 1, 70, 140, 64, 64), ARGS[3], dtypes.float32),
    ((1, 1, 1, 40, 40, 128, 128), ARGS[5], dtypes.float32),
    ((1, 1, 1, 33, 40, 20, 30), ARGS[2], dtypes.float64),
    ((2, 4, 2, 70, 90, 20, 24), ARGS[6], dtypes.float32),
    ((1, 1, 1, 16, 1, 1, 1), ARGS[0], dtypes.float16),
    ((1, 2, 1, 20, 33, 5, 7), ARGS[1], dtypes.float16),
    ((2, 2, 1, 70, 140, 64, 64), ARGS[3], dtypes.float16),
    ((1, 2, 2, 131, 67, 32, 16), ARGS[1], dtypes.bfloat16),
    ((1, 4, 2, 100, 100, 80, 96), ARGS[2], dtypes.bfloat16),
    ((1, 1, 1, 40, 40, 128, 128), ARGS[5], dtypes.bfloat16),
    ((9, 15, 15, 64, 64, 32, 32), ARGS[1], dtypes.float16),  # blocks enough that a warp has two times 16 rows
    ((1, 2, 1, 16, 1100, 16, 8), ARGS[0], dtypes.float32),  # blocks share the keys
    ((2, 2, 2, 20, 1300, 32, 24), ARGS[5], dtypes.bfloat16),
    ((2, 4, 2, 70, 90, 20, 24), ARGS[6], dtypes.float16),
    ((1, 2, 1, 16, 1100, 16, 8), ARGS[7], dtypes.float32),
    ((1, 2, 1, 70, 1200, 16, 16), AttentionArg(0.35, causal=True, window=600), dtypes.float16),  # of those that are seen
    ((1, 1, 1, 18, 600, 5, 7), ARGS[1], dtypes.float64),
    ((2, 8, 1, 9, 700, 16, 8), ARGS[0], dtypes.float16),  # few queries, but 72 rows of eight heads that share keys
    ((1, 12, 2, 11, 60, 16, 8), AttentionArg(0.5, soft_cap=1.5), dtypes.float32),
    ((1, 8, 1, 2, 40, 8, 8), ARGS[0], dtypes.bfloat16),  # few rows, but enough for a kernel of gradients
    ((1, 2, 1, 20, 33, 5, 7), replace(ARGS[1], tf32=True), dtypes.float32),
    ((2, 2, 1, 70, 140, 64, 64), replace(ARGS[3], tf32=True), dtypes.float32),
    ((1, 1, 1, 40, 40, 128, 128), replace(ARGS[5], tf32=True), dtypes.float32),
]


def attentions(
    lengths: Lengths, arg: AttentionArg, dtype: DType, target: Target
) -> list[tuple[Kernel, list[Array]]]:
    """Returns the kernels of an attention and its gradients, and arrays for their params."""
    (q, k, v, grad, delta), arrays = drawn(lengths, dtype)
    own = draws(q, arg, arrays)
    forward = outputs(Op(OpCode.ATTENTION, dtype, (q, k, v, *own), arg))
    known = param(5, *delta.shape, dtype=delta.dtype)
    arrays[known] = evaluate([forward[1]], arrays)[0]
    gradients = outputs(Op(OpCode.ATTENTION_GRAD, dtype, (q, k, v, grad, known, delta, *own), arg))
    found = []
    for roots in (forward, gradients):
        schedule = create_schedule(roots, target)
        (item,) = schedule.kernel_items()
        inputs = [arrays[op].ravel() for op in schedule.inputs]
        uses = [schedule.buffers[buffer] for buffer in item.buffers]
        memory = [inputs[u.source] if u.role == "input" else np.zeros(u.numel, u.dtype.numpy) for u in uses]  # type: ignore[arg-type]
        found.append((item.kernel, memory))
    return found


def check(found: Sequence[Array], kernel: Kernel, memory: Sequence[Array], tolerance: float) -> None:
    """Compares what was computed with what the evaluator makes of the Kernel."""
    expected = [array.copy() for array in memory]
    evaluate_kernel(kernel, expected, {})
    for p, one, other in zip(kernel.params, found, expected):
        if p.role == "out":
            seen = np.isfinite(other)
            scale = np.abs(other[seen].astype(np.float64)).max(initial=1e-3)
            np.testing.assert_array_equal(seen, np.isfinite(one))
            np.testing.assert_allclose(
                one[seen].astype(np.float64), other[seen].astype(np.float64), rtol=0, atol=tolerance * scale
            )


@pytest.mark.variants(every=4)
@pytest.mark.req("G13")
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=str)
@pytest.mark.parametrize("lengths", SMALL, ids=str)
def test_the_loops_mean_what_the_ops_mean(lengths: Lengths, dtype: DType) -> None:
    for kernel, memory in attentions(lengths, ARGS[1], dtype, GPU_TARGET):
        program = lower(kernel, GPU_TARGET)
        verify_program(program, after="lower")
        assert (dtype is dtypes.float16) == any(isinstance(s, Mma) for phase in program.phases for s in walk(phase))
        found = [array.copy() for array in memory]
        evaluate_program(program, found, {}, backwards)  # in other orders the simulator runs them
        check(found, kernel, memory, TOLERANCES[dtype])


@pytest.mark.variants(every=11, first=6)
@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_simulator_runs_them(case: tuple[Lengths, AttentionArg, DType]) -> None:
    lengths, arg, dtype = case
    for kernel, memory in attentions(lengths, arg, dtype, TARGET):
        binary = hostcxx.compile_source(render(lower(kernel, TARGET), TARGET), TARGET)
        for order in ORDERS if sum(lengths) < 300 else ORDERS[:1]:
            device, found = CudaSimDevice(order, seed=3), [array.copy() for array in memory]
            run(device, device.load(binary), found)
            check(found, kernel, memory, OF_TF32 if arg.tf32 else TOLERANCES[dtype])


@pytest.mark.parametrize("target", [TARGET, gpu_target(9, 0, 99 * 1024)], ids=lambda target: target.device)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16], ids=str)
def test_only_weights_of_16_bits_are_rough(dtype: DType, target: Target) -> None:
    """Of many queries and their gradients, and of few; numbers in float32 are as exact as ever."""
    for lengths in ((1, 2, 1, 20, 33, 16, 16), (1, 2, 1, 1, 300, 16, 16)):
        for kernel, _ in attentions(lengths, ARGS[0], dtype, target)[: 2 if lengths[3] >= MATRIX_QUERIES_MIN else 1]:
            text = RENDERERS[target.language](lower(kernel, target), target).text
            assert ("rough_exp2(" in text or "@llvm.nvvm.ex2.approx.ftz.f(" in text) == dtype.is_narrow
            assert ("expf(" in text) == (dtype is dtypes.float32 and target.language == "cuda")


@pytest.mark.parametrize(
    ("lengths", "arg", "expected"),
    [
        ((1, 8, 8, 16, 32_768, 64, 64), ARGS[0], 512),  # 64 parts
        ((1, 8, 8, 16, 100_000, 64, 64), ARGS[0], 1600),
        ((1, 8, 8, 100, 100_000, 64, 64), ARGS[0], 3136),  # 32 parts of two blocks each
        ((1, 8, 8, 16, 100_000, 64, 64), AttentionArg(0.35, causal=True, window=1000), 512),
        ((64, 8, 8, 16, 512, 64, 64), ARGS[0], None),  # what one block looks at
        ((1, 8, 8, 1024, 4096, 64, 64), ARGS[0], None),  # a few times as many keys: there are blocks enough
        ((1, 8, 8, 4096, 40_000, 64, 64), ARGS[0], None),
    ],
)
def test_blocks_share_keys_that_are_many_times_the_queries(
    lengths: Lengths, arg: AttentionArg, expected: int | None
) -> None:
    """However many examples and heads there are."""
    B, H, G, T, S, D, E = lengths
    for batch, heads in ((B, H), (3 * B, 2 * H)):
        shapes = [(batch, heads, T, D), (batch, G, S, D), (batch, G, S, E)]
        q, k, v = (param(i, *shape, dtype=dtypes.float16) for i, shape in enumerate(shapes))
        attention = Op(OpCode.ATTENTION, dtypes.float16, (q, k, v), arg)
        cut = cut_of_averages(attention, TARGET)
        assert cut is not None and part_of_keys(attention, cut) == expected


@pytest.mark.variants(first=1)
def test_nothing_is_guarded() -> None:
    for lengths in (*LENGTHS, (1, 2, 1, 70, 1200, 16, 16)):
        for dtype in (dtypes.float32, dtypes.bfloat16):
            (q, k, v, grad, delta), _ = drawn(lengths, dtype)
            for arg in ARGS:
                own = draws(q, arg, {})
                ops = [Op(OpCode.ATTENTION, dtype, (q, k, v, *own), arg)]
                ops.append(Op(OpCode.ATTENTION_GRAD, dtype, (q, k, v, grad, delta, delta, *own), arg))
                for op in ops:
                    (item,) = create_schedule(outputs(op), GPU_TARGET).kernel_items()
                    assert [lower(item.kernel, target).num_guards for target in (GPU_TARGET, TARGET)] == [0, 0]


@pytest.mark.parametrize(
    ("lengths", "dtype", "target", "expected"),
    [
        ((1, 2, 1, 16, 7, 128, 128), dtypes.float32, TARGET, (True, True)),
        ((1, 2, 1, 16, 7, 128, 128), dtypes.float16, TARGET, (True, True)),
        ((1, 1, 1, 15, 7, 64, 64), dtypes.float32, TARGET, (True, False)),  # few rows: of gradients none
        ((1, 8, 1, 15, 7, 64, 64), dtypes.float32, TARGET, (True, True)),  # rows of many heads that share keys
        ((1, 2, 1, 64, 64, 192, 192), dtypes.bfloat16, TARGET, (True, False)),  # too many features for its gradients
        ((1, 2, 1, 64, 64, 64, 64), dtypes.float32, replace(TARGET, has_shuffle=False), (False, False)),
        ((1, 2, 1, 8, 2, 256, 512), dtypes.float32, None, (True, True)),
        ((1, 2, 1, 7, 2, 256, 512), dtypes.float32, None, (False, False)),  # fewer than lanes
    ],
)
def test_which_have_a_kernel(
    lengths: Lengths, dtype: DType, target: Target | None, expected: tuple[bool, bool]
) -> None:
    (q, k, v, grad, delta), _ = drawn(lengths, dtype)
    forward = Op(OpCode.ATTENTION, q.dtype, (q, k, v), ARGS[0])
    gradients = Op(OpCode.ATTENTION_GRAD, q.dtype, (q, k, v, grad, delta, delta), ARGS[0])
    assert (has_kernel(forward, target), has_kernel(gradients, target)) == expected
