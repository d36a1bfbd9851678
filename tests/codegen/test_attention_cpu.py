"""The kernels of an attention and of its gradients mean what the Ops mean, whatever the lengths, on each vector width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.attention_cpu import num_parts, strips_of
from picograd.device import Target
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.ir.attention import outputs
from picograd.ir.build import cast, permute, reshape
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.stages import NestKind
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS, check_same_meaning

Lengths = tuple[int, int, int, int, int, int, int]  # B, H, G, T, S, D, E

ARGS = [
    AttentionArg(0.5),
    AttentionArg(0.35, causal=True),
    AttentionArg(0.35, causal=True, window=9),
    AttentionArg(0.35, causal=True, window=70),
    AttentionArg(0.25, window=5),
    AttentionArg(0.5, causal=True, soft_cap=1.5),
    AttentionArg(0.35, causal=True, dropout=0.3),
    AttentionArg(0.25, window=5, soft_cap=1.5, dropout=0.7),
]
SHORT: list[Lengths] = [  # which are walked statement by statement
    (1, 1, 1, 1, 1, 1, 1),
    (1, 2, 1, 3, 2, 2, 3),  # fewer than a tile of each
    (1, 2, 2, 8, 8, 4, 2),
    (2, 1, 1, 9, 5, 1, 3),  # causal: the first queries see nothing
]
LENGTHS: list[Lengths] = [
    *SHORT,
    (2, 2, 2, 16, 16, 8, 8),
    (1, 4, 2, 20, 33, 5, 7),
    (1, 1, 1, 33, 20, 9, 4),
    (1, 2, 1, 70, 70, 6, 10),  # more than a block, and the last one is short
    (1, 1, 1, 64, 128, 32, 17),
    (2, 2, 1, 131, 67, 3, 2),
    (1, 2, 1, 259, 261, 13, 33),
    (4, 1, 1, 20, 260, 5, 3),  # keys in parts, one after the other
]


def param(slot: int, *shape: int, dtype: DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def drawn(lengths: Lengths, dtype: DType = dtypes.float32) -> tuple[tuple[Op, ...], dict[Op, Any]]:
    """Returns q, k, v, the gradient of the result and a delta, in this order, and arrays for them."""
    B, H, G, T, S, D, E = lengths
    wide = dtype.compute_dtype
    shapes = [(B, H, T, D), (B, G, S, D), (B, G, S, E), (B, H, T, E), (B, H, T)]
    ops = tuple(param(slot, *shape, dtype=wide if slot == 4 else dtype) for slot, shape in enumerate(shapes))
    rng = np.random.default_rng(sum(lengths))
    return ops, {op: rng.standard_normal(op.shape).astype(op.dtype.numpy) for op in ops}


def draws(q: Op, arg: AttentionArg, arrays: dict[Op, Any]) -> tuple[Op, ...]:
    """Returns seeds and numbers of the heads of an attention with dropout, and puts theirs beside other arrays."""
    if not arg.dropout:
        return ()
    ops = tuple(param(6 + i, *q.shape[:2], dtype=dtype) for i, dtype in enumerate((dtypes.uint64, dtypes.int64)))
    seeds = np.random.default_rng(1).integers(2**63, size=ops[0].shape, dtype=np.uint64)
    numbers = np.arange(seeds.size).reshape(seeds.shape)[::-1] * 2**30  # beyond 32 bits, too
    arrays |= dict(zip(ops, (seeds, numbers)))
    return ops


def check(lengths: Lengths, arg: AttentionArg, targets: Sequence[Target], device: bool = True) -> None:
    (q, k, v, grad, delta), arrays = drawn(lengths)
    own = draws(q, arg, arrays)
    out, logsumexp = outputs(Op(OpCode.ATTENTION, q.dtype, (q, k, v, *own), arg))
    check_same_meaning([out, logsumexp], arrays, 1e-5, targets, device)
    known = param(5, *logsumexp.shape)
    arrays[known] = evaluate([logsumexp], arrays)[0]
    gradients = outputs(Op(OpCode.ATTENTION_GRAD, q.dtype, (q, k, v, grad, known, delta, *own), arg))
    check_same_meaning(gradients, arrays, 1e-4, targets, device)


@pytest.mark.variants(every=11)
@pytest.mark.parametrize("arg", ARGS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_the_kernels_mean_what_the_ops_mean(lengths: Lengths, arg: AttentionArg) -> None:
    check(lengths, arg, CPU_TARGETS if lengths in SHORT else ())


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")
def test_blocks_on_each_width_of_vectors(target: Target) -> None:
    check((1, 1, 1, 67, 70, 1, 1), AttentionArg(0.35, causal=True, window=65), (target,), device=False)


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float16, dtypes.bfloat16], ids=str)
def test_narrow_floats_are_rounded_once(dtype: DType) -> None:
    (q, k, v, grad, delta), arrays = drawn((1, 2, 1, 5, 6, 2, 3), dtype)
    arg = AttentionArg(0.35, causal=True)
    out, logsumexp = outputs(Op(OpCode.ATTENTION, dtype, (q, k, v), arg))
    known = param(5, *logsumexp.shape, dtype=logsumexp.dtype)
    arrays[known] = evaluate([logsumexp], arrays)[0]
    gradients = outputs(Op(OpCode.ATTENTION_GRAD, dtype, (q, k, v, grad, known, delta), arg))
    tolerance = {"float64": 1e-12, "float16": 4e-3, "bfloat16": 6e-2}[str(dtype)]
    check_same_meaning([out, logsumexp], arrays, tolerance, CPU_TARGETS[1:])
    check_same_meaning(gradients, arrays, tolerance, CPU_TARGETS[1:])


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_what_nobody_asks_for_is_not_stored(wanted: tuple[int, ...]) -> None:
    (q, k, v, grad, delta), arrays = drawn((1, 2, 2, 9, 9, 4, 4))
    known = param(5, 1, 2, 9)
    arrays[known] = np.ones(known.shape, np.float32)
    gradients = outputs(Op(OpCode.ATTENTION_GRAD, q.dtype, (q, k, v, grad, known, delta), ARGS[1]))
    schedule = check_same_meaning([gradients[i] for i in wanted], arrays, 1e-4, CPU_TARGETS[:1])
    (item,) = schedule.kernel_items()
    assert [param.role for param in item.kernel.params].count("out") == len(wanted)


def test_operands_are_read_where_they_lie() -> None:
    """Heads of one product beside each other: views, of which nothing is copied; what is computed is stored once."""
    joined = param(0, 2, 9, 3 * 2 * 4)  # (B, T, 3 H D)
    arrays = {joined: np.random.default_rng(0).standard_normal(joined.shape).astype(np.float32)}
    parts = permute(reshape(joined + joined, (2, 9, 3, 2, 4)), (2, 0, 3, 1, 4))  # (3, B, H, T, D)
    q, k, v = (
        reshape(Op(OpCode.SHRINK, joined.dtype, (parts,), ((i, i + 1), (0, 2), (0, 2), (0, 9), (0, 4))), (2, 2, 9, 4))
        for i in range(3)
    )
    out, _ = outputs(Op(OpCode.ATTENTION, q.dtype, (q, k, v), ARGS[1]))
    schedule = check_same_meaning([out], arrays, 1e-5, CPU_TARGETS[1:2])
    assert [item.kernel.phases[0][0].kind for item in schedule.kernel_items()] == [
        NestKind.ELEMENTWISE,
        NestKind.ATTENTION,
    ]


def test_keys_that_only_divisions_find_are_copied_first() -> None:
    (q, _, v, _, _), arrays = drawn((1, 1, 1, 8, 6, 4, 3))
    base = param(6, 8, 3)
    arrays[base] = np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)
    k = reshape(permute(base, (1, 0)), (1, 1, 6, 4))  # rows of the transposed matrix run across those of k
    schedule = check_same_meaning(
        outputs(Op(OpCode.ATTENTION, q.dtype, (q, k, v), ARGS[0])), arrays, 1e-5, CPU_TARGETS[1:2]
    )
    assert len(list(schedule.kernel_items())) == 2


@pytest.mark.variants(first=1)
def test_nothing_is_guarded() -> None:
    for lengths in LENGTHS:
        (q, k, v, grad, delta), _ = drawn(lengths)
        for arg in ARGS:
            own = draws(q, arg, {})
            ops = [Op(OpCode.ATTENTION, q.dtype, (q, k, v, *own), arg)]
            ops.append(Op(OpCode.ATTENTION_GRAD, q.dtype, (q, k, v, grad, delta, delta, *own), arg))
            for op in ops:
                (item,) = create_schedule(outputs(op)).kernel_items()
                assert [lower(item.kernel, target).num_guards for target in CPU_TARGETS] == [0, 0, 0]


def test_scores_without_a_number_stay_without() -> None:
    """A NaN in a key reaches the queries that see it, and no other; infinite scores are what exp makes of them."""
    (q, k, v, _, _), arrays = drawn((1, 1, 1, 10, 10, 2, 2))
    arrays[k][0, 0, 6, 1] = np.nan
    check_same_meaning(outputs(Op(OpCode.ATTENTION, q.dtype, (q, k, v), ARGS[1])), arrays, 1e-5, CPU_TARGETS)


def test_a_cast_behind_the_kernel_is_computed_with_what_reads_it() -> None:
    (q, k, v, _, _), _ = drawn((1, 1, 1, 8, 8, 4, 4), dtypes.float16)
    out, _ = outputs(Op(OpCode.ATTENTION, q.dtype, (q, k, v), ARGS[0]))
    schedule = create_schedule([cast(out, dtypes.float32) * 2])
    kinds = [item.kernel.phases[0][0].kind for item in schedule.kernel_items()]
    assert kinds.count(NestKind.ATTENTION) == 1 and len(kinds) <= 3  # keys and values widened, the attention, the rest


@pytest.mark.parametrize(("groups", "parts"), [(1, 4), (2, 2), (3, 2), (4, 1), (6, 1)])
def test_keys_of_few_groups_are_cut_for_four_iterations(groups: int, parts: int) -> None:
    """Keys have parts if they fill a block; a batch does not count, since bits depend on the parts."""
    for batch in (1, 8):
        for keys, expected in ((63, 1), (64, parts), (300, parts)):
            (q, k, v, *_), _ = drawn((batch, 12, groups, 8, keys, 4, 4))
            strips = strips_of(Op(OpCode.ATTENTION, q.dtype, (q, k, v), ARGS[0]), CPU_TARGETS[1])
            assert strips.block == 64 and num_parts(strips) == expected
