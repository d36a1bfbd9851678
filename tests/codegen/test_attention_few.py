"""The kernel of an attention of few queries on a GPU means what the Op means, by parts of the keys, and however many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.evaluator import evaluate_kernel, evaluate_program
from picograd.ir.attention import PART_KEYS_MIN, PARTS_MAX, Parts, has_one_mask, outputs, parts_of
from picograd.ir.build import expand, static_shape
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.spec import verify_program
from picograd.ir.stages import Binary, Kernel
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.codegen.test_attention_cpu import ARGS, Lengths, param
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.same_meaning import GPU_TARGET, ByTurns

MOST_KEYS = 300
KEYS = Op(OpCode.VARIABLE, dtypes.int64, (), ("keys", 0, MOST_KEYS))
# Of the greatest value: sums are made in float32, and rounded once.
TOLERANCES = {dtypes.float32: 2e-6, dtypes.float64: 1e-13, dtypes.float16: 6e-4, dtypes.bfloat16: 5e-3}
CASES: list[tuple[Lengths, AttentionArg, DType]] = [
    ((1, 1, 1, 1, 1, 1, 1), ARGS[0], dtypes.float32),
    ((1, 2, 2, 1, 700, 64, 64), ARGS[0], dtypes.float32),  # eleven parts, the last one short
    ((2, 8, 2, 1, 260, 32, 16), ARGS[0], dtypes.float16),  # four rows share keys
    ((1, 8, 1, 8, 200, 16, 8), ARGS[1], dtypes.float32),  # 64 rows in several blocks
    ((1, 3, 1, 5, 150, 20, 33), ARGS[5], dtypes.bfloat16),  # one feature at a time; rows that fill no block
    ((1, 1, 1, 9, 4, 3, 5), ARGS[1], dtypes.float32),  # causal: the first queries see nothing
    ((1, 2, 1, 3, 500, 24, 40), ARGS[3], dtypes.float64),  # a window: keys before it are not looked at
    ((1, 2, 2, 15, 140, 80, 96), ARGS[4], dtypes.float16),
    ((1, 1, 1, 2, 130, 300, 200), ARGS[0], dtypes.bfloat16),  # several accesses of a thread to each key
]


@dataclass(frozen=True)
class Mask:
    """A mask of an attention.

    axes:  of batch, heads, queries and keys those that it has; it is broadcast over the others
    """

    dtype: DType
    axes: str

    def shape(self, lengths: Lengths, keys: Dim) -> tuple[Dim, ...]:
        B, H, _, T, *_ = lengths
        return tuple(length if name in self.axes else 1 for name, length in zip("BHTS", (B, H, T, keys)))

    def drawn(self, lengths: Lengths, rng: np.random.Generator) -> Array:
        """Some keys are left out, all of them in the first entry of the first of its axes: by -inf or the least number."""
        shape = tuple(map(int, static_shape(self.shape(lengths, lengths[4]))))
        is_open = rng.random(shape) < 0.7
        is_open.reshape(shape["BHTS".index(self.axes[0])], -1)[0] = False
        if self.dtype is dtypes.bool_:
            return np.asarray(is_open).ravel()
        least = -np.inf if self.dtype.is_narrow else -self.dtype.largest
        return np.where(is_open, rng.standard_normal(shape), least).astype(self.dtype.numpy).ravel()


def kernel_of(
    lengths: Lengths, arg: AttentionArg, dtype: DType, target: Target, keys: Dim, mask: Mask | None = None
) -> Kernel:
    """Returns the kernel of an attention, of as many keys as said, which may be symbolic."""
    B, H, G, T, _, D, E = lengths
    shapes: list[tuple[Dim, ...]] = [(B, H, T, D), (B, G, keys, D), (B, G, keys, E)]
    sources = [Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, shape in enumerate(shapes)]
    if mask is not None:
        own = Op(OpCode.PARAM, mask.dtype, (), (3, mask.shape(lengths, keys)))
        sources.append(expand(own, (B, H, T, keys)))
    (item,) = create_schedule(outputs(Op(OpCode.ATTENTION, dtype, tuple(sources), arg)), target).kernel_items()
    return item.kernel


def memory_of(lengths: Lengths, dtype: DType, seed: int = 0, mask: Mask | None = None) -> list[Array]:
    """Returns arrays for its params."""
    B, H, G, T, S, D, E = lengths
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(size).astype(dtype.numpy) for size in (B * H * T * D, B * G * S * D, B * G * S * E)]
    if mask is not None:
        inputs.append(mask.drawn(lengths, rng))
    return [*inputs, np.zeros(B * H * T * E, dtype.numpy), np.zeros(B * H * T, dtype.compute_dtype.numpy)]


def check(found: Sequence[Array], kernel: Kernel, memory: Sequence[Array], tolerance: float, keys: int) -> None:
    """Compares averages and logarithms of sums with what the evaluator makes of the Kernel."""
    expected = [array.copy() for array in memory]
    evaluate_kernel(kernel, expected, {"keys": keys})
    for one, other in zip(found[-2:], expected[-2:], strict=True):
        seen = np.isfinite(other)
        scale = np.abs(other[seen].astype(np.float64)).max(initial=1e-3)
        np.testing.assert_array_equal(seen, np.isfinite(one))
        np.testing.assert_allclose(
            one[seen].astype(np.float64), other[seen].astype(np.float64), rtol=0, atol=tolerance * scale
        )


@lru_cache(maxsize=4)
def compiled(kernel: Kernel) -> Binary:
    """Returns a kernel for the simulator, the same for every order of threads and number of keys."""
    return hostcxx.compile_source(render(lower(kernel, TARGET), TARGET), TARGET)


def simulated(kernel: Kernel, memory: Sequence[Array], order: str, keys: int = 0) -> list[Array]:
    """Returns what the simulator computes."""
    device, found = CudaSimDevice(order, seed=3), [array.copy() for array in memory]
    run(device, device.load(compiled(kernel)), found, {"keys": keys} if kernel.variables else None)
    return found


MASKS = [Mask(dtypes.bool_, "BS"), Mask(dtypes.bool_, "BHTS"), Mask(dtypes.float32, "HTS"), Mask(dtypes.float16, "TS")]


@pytest.mark.req("G13")
@pytest.mark.parametrize("arg", [ARGS[0], ARGS[2]], ids=str)
@pytest.mark.parametrize("lengths", [(1, 2, 1, 3, 5, 2, 3), (1, 1, 1, 2, 100, 1, 1), (1, 2, 2, 1, 2, 1, 33)], ids=str)
def test_the_loops_mean_what_the_ops_mean(lengths: Lengths, arg: AttentionArg) -> None:
    """One part, two, and a thread that has two accesses to a value."""
    kernel, memory = kernel_of(lengths, arg, dtypes.float32, GPU_TARGET, lengths[4]), memory_of(lengths, dtypes.float32)
    program = lower(kernel, GPU_TARGET)
    verify_program(program, after="lower")
    found = [array.copy() for array in memory]
    evaluate_program(program, found, {}, ByTurns())
    check(found, kernel, memory, TOLERANCES[dtypes.float32], lengths[4])


@pytest.mark.variants(every=7)
@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_simulator_runs_them(case: tuple[Lengths, AttentionArg, DType]) -> None:
    lengths, arg, dtype = case
    kernel, memory = kernel_of(lengths, arg, dtype, TARGET, lengths[4]), memory_of(lengths, dtype)
    for order in ORDERS:
        check(simulated(kernel, memory, order), kernel, memory, TOLERANCES[dtype], lengths[4])


@pytest.mark.parametrize(("axes", "expected"), [("BS", True), ("S", True), ("BTS", False), ("HS", False)])
def test_a_mask_of_all_rows_is_read_once(axes: str, expected: bool) -> None:
    lengths = (2, 4, 2, 3, 300, 16, 8)
    kernel = kernel_of(lengths, ARGS[0], dtypes.float32, TARGET, 300, Mask(dtypes.bool_, axes))
    anchor = kernel.phases[0][0].anchor
    assert anchor is not None and has_one_mask(anchor) is expected


@pytest.mark.variants(every=7)
@needs_compiler
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(
    ("lengths", "arg", "dtype"),
    [
        ((2, 4, 2, 3, 300, 16, 8), ARGS[0], dtypes.float32),  # of five parts, six rows
        ((3, 6, 1, 2, 140, 24, 20), ARGS[5], dtypes.float16),  # causal and capped as well
        ((1, 2, 1, 4, 150, 12, 9), ARGS[3], dtypes.bfloat16),
        ((2, 8, 1, 8, 130, 64, 64), ARGS[0], dtypes.float32),  # blocks of rows
    ],
    ids=str,
)
def test_a_mask_says_which_keys_count(lengths: Lengths, arg: AttentionArg, dtype: DType, mask: Mask) -> None:
    """A query that no key is open to has 0, or, where numbers as low as can be are added, the plain average."""
    kernel, memory = kernel_of(lengths, arg, dtype, TARGET, lengths[4], mask), memory_of(lengths, dtype, 1, mask)
    for order in ORDERS:
        check(simulated(kernel, memory, order), kernel, memory, TOLERANCES[dtype], lengths[4])


@needs_compiler
def test_masked_keys_behind_the_last_change_no_bit() -> None:
    """An example has the same result alone and among longer ones, up to as many keys as have parts of one length."""
    many, alone = (2, 4, 2, 1, 300, 16, 8), (1, 4, 2, 1, 170, 16, 8)
    B, _, G, _, S, D, E = many
    mask = Mask(dtypes.bool_, "BS")
    whole = memory_of(many, dtypes.float32, 0, mask)
    whole[3] = (np.arange(S) < np.array([[170], [300]])).ravel()
    found = simulated(kernel_of(many, ARGS[0], dtypes.float32, TARGET, S, mask), whole, "forward")
    one = memory_of(alone, dtypes.float32)
    one[0] = whole[0][: one[0].size]
    for i, features in ((1, D), (2, E)):
        one[i] = np.ascontiguousarray(whole[i].reshape(B, G, S, features)[0, :, : alone[4]]).ravel()
    expected = simulated(kernel_of(alone, ARGS[0], dtypes.float32, TARGET, alone[4]), one, "forward")
    for all_of_them, first in zip(found[-2:], expected[-2:], strict=True):
        np.testing.assert_array_equal(all_of_them[: first.size], first)


@pytest.mark.variants(every=7)
@needs_compiler
@pytest.mark.parametrize("arg", ARGS[:4], ids=str)
def test_one_kernel_serves_every_number_of_keys(arg: AttentionArg) -> None:
    """From none to the most: no part, one that is short, one and two that are whole, and one key more."""
    for keys in (0, 1, PART_KEYS_MIN - 1, PART_KEYS_MIN, PART_KEYS_MIN + 1, 2 * PART_KEYS_MIN, MOST_KEYS):
        lengths = (2, 4, 2, 2, keys, 8, 4)
        for mask in (None, MASKS[0]):
            kernel = kernel_of(lengths, arg, dtypes.float32, TARGET, KEYS, mask)
            memory = memory_of(lengths, dtypes.float32, 0, mask)
            check(simulated(kernel, memory, "backward", keys), kernel, memory, TOLERANCES[dtypes.float32], keys)


@pytest.mark.variants(first=1)
def test_nothing_is_guarded() -> None:
    """But the first and last key of a number of keys that may be 0: whose index would be -1."""
    some = Op(OpCode.VARIABLE, dtypes.int64, (), ("keys", 1, MOST_KEYS))
    for lengths, _, dtype in CASES:
        for arg in (arg for arg in ARGS if not arg.dropout):  # with dropout few queries are composed
            for keys in (lengths[4], some):
                for target, mask in ((GPU_TARGET, None), (TARGET, None), (TARGET, MASKS[0]))[: 3 if arg is ARGS[0] else 2]:
                    assert lower(kernel_of(lengths, arg, dtype, target, keys, mask), target).num_guards == 0


@pytest.mark.variants(every=2)
@needs_compiler
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=str)
def test_a_row_has_the_bits_alone_that_it_has_among_others(dtype: DType) -> None:
    """Among other examples, heads and queries: how sums are cut asks for keys and features alone."""
    many: Lengths = (3, 12, 2, 2, 300, 24, 40)
    B, H, G, T, S, D, E = many
    memory = memory_of(many, dtype)
    whole = simulated(kernel_of(many, ARGS[0], dtype, TARGET, S), memory, "forward")
    q, k, v, out = (
        array.reshape(shape) for array, shape in zip(whole, [(B, H, T, D), (B, G, S, D), (B, G, S, E), (B, H, T, E)])
    )
    one: Lengths = (1, 1, 1, 1, S, D, E)
    kernel = kernel_of(one, ARGS[0], dtype, TARGET, S)
    for b, head, query in ((0, 0, 0), (1, 7, 1), (2, 11, 0)):
        group = head * G // H
        alone = [np.ascontiguousarray(x).ravel() for x in (q[b, head, query], k[b, group], v[b, group])]
        found = simulated(kernel, [*alone, *memory_of(one, dtype)[3:]], "forward")
        np.testing.assert_array_equal(found[3], out[b, head, query])


@pytest.mark.parametrize(
    ("lengths", "dtype", "expected"),
    [
        # threads, team, lanes, at_once, rows, length, most
        ((1, 32, 32, 1, 4096, 128, 128), dtypes.float16, Parts(128, 16, 8, 2, 1, 64, 64)),
        ((1, 32, 8, 1, 4096, 128, 128), dtypes.float32, Parts(128, 32, 4, 4, 4, 64, 64)),
        ((1, 16, 2, 4, 100_000, 64, 64), dtypes.bfloat16, Parts(128, 8, 8, 2, 4, 1568, PARTS_MAX)),
        ((1, 8, 1, 9, 100, 64, 64), dtypes.float32, None),  # 72 rows
        ((1, 1, 1, 16, 100, 64, 64), dtypes.float32, None),  # as many queries as a matrix instruction has rows
        ((1, 1, 1, 1, 100, 4096, 4096), dtypes.float32, None),  # more features than registers
    ],
)
def test_how_they_are_cut(lengths: Lengths, dtype: DType, expected: Parts | None) -> None:
    B, H, G, T, S, D, E = lengths
    q, k, v = (param(i, *shape, dtype=dtype) for i, shape in enumerate([(B, H, T, D), (B, G, S, D), (B, G, S, E)]))
    attention = Op(OpCode.ATTENTION, dtype, (q, k, v), ARGS[0])
    assert parts_of(attention, TARGET) == expected
    assert parts_of(attention, replace(TARGET, has_shuffle=False)) is None
