"""Sees which kernels are an attention, or its gradients, that kernels written by hand compute, and how these are cut.

In:    Kernel, Target
Out:   `split_attention`: an `AttentionSplit`, or the reason why there is none; `tiles_of`, `tiles_of_gradients`
Called by: engine/choose.py.    Next: picograd/codegen/emit.py

    phase 0   what of q, k, v and the gradient does not lie in memory as copies of tiles take it is stored
    phase 1   the attention; or the gradients of keys and values, and those of queries

A window, a cap of scores, a mask, more than 128 features, and gradients that are not all asked for are left to
codegen/gpu/attention.py and attention_grad.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from picograd.codegen.index import element_anywhere
from picograd.codegen.strided import NotPlain, known_numbers
from picograd.device import Target
from picograd.ir.attention import lengths, parts_of
from picograd.ir.bodies import param
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import (
    SWIZZLED,
    WARPGROUP_ROWS,
    HeadsMatrix,
    HeadsShape,
    HeadsTile,
    PlainAttention,
    PlainGradients,
    attention_nbytes,
    gradients_nbytes,
)
from picograd.ir.shape import AttentionArg, numel
from picograd.ir.stages import Kernel, Nest, NestKind, Param
from picograd.ir.symbolic import affine, from_op
from picograd.record import Record, replace

PIECE = 8  # elements of 16 bits in what a copy of tiles moves at once: rows begin at multiples
LEAST_FEATURES, MOST_FEATURES = 40, 128  # with fewer, most of a tile would be zeros
LEAST_ROWS = 64
MOST_ELEMENTS = 1 << 31
BARRIER_NBYTES = 1024  # what mbarriers take, up to where a tile may begin
COLUMNS, MOST_STAGES, LEAST_STAGES = 128, 4, 2
# Warpgroups, rows of a tile, whether its products lag: of keys or not, rows of more than 64 elements or not. The first was
# fastest on an H100 (bench/results/2026-11-27-h100-attention.json); most that are not here spill, or ptxas makes them wait.
GRADIENTS = {
    (True, False): ((2, 96, False), (2, 64, False), (2, 80, True)),
    (True, True): ((2, 64, False),),
    (False, False): ((3, 64, True), (2, 128, False), (3, 96, False)),
    (False, True): ((2, 96, True), (2, 64, True)),
}
CACHED_NBYTES = 24 << 20  # of keys and values that are looked at together: they stay in the L2 cache


class AttentionSplit(Record):
    """A kernel in phases, the last of which kernels written by hand compute.

    kernel:  computes the same as the one it was made of; its params are that one's, then what is stored in between
    plain:   what is computed, by slots of `kernel`
    """

    kernel: Kernel
    plain: PlainAttention | PlainGradients

    @property
    def place(self) -> int:
        """The number of the attention's phase."""
        return len(self.kernel.phases) - 1

    @property
    def generated(self) -> Kernel:
        """Returns the kernel without its attention."""
        return replace(self.kernel, phases=self.kernel.phases[:-1])

    def __str__(self) -> str:
        stored = len(self.kernel.phases[0]) if self.place else 0
        return f"with {stored} of its operands stored before" if stored else "as the only phase"


@lru_cache(maxsize=256)
def split_attention(kernel: Kernel, target: Target) -> AttentionSplit | str:
    """Returns how kernels written by hand compute a kernel's attention or its gradients, or why none can."""
    if [[nest.kind for nest in phase] for phase in kernel.phases] != [[NestKind.ATTENTION]]:
        return "it is not one attention"
    ((nest,),) = kernel.phases
    assert nest.anchor is not None, "an attention has an anchor"
    try:
        _check(nest.anchor, kernel, target)
        return _split(kernel, nest, nest.anchor)
    except NotPlain as reason:
        return str(reason)


def _check(anchor: Op, kernel: Kernel, target: Target) -> None:
    """Raises NotPlain for what is not written by hand."""
    arg: AttentionArg = anchor.arg
    if kernel.variables or not all(isinstance(dim, int) for source in anchor.src for dim in source.shape):
        raise NotPlain("it reads a symbolic integer")
    if not anchor.dtype.is_narrow or anchor.dtype.itemsize != 2:
        raise NotPlain(f"its dtype is {anchor.dtype}")
    has_mask = anchor.code is OpCode.ATTENTION and len(anchor.src) > 3
    if has_mask or arg.window or arg.soft_cap or not arg.scale > 0:
        raise NotPlain("it has a mask, a window, a cap, or a scale that is not positive")
    _, _, T, S, D, E = lengths(anchor)
    if not all(LEAST_FEATURES <= each <= MOST_FEATURES and each % PIECE == 0 for each in (D, E)):
        raise NotPlain(f"it has {D} features, and values of {E}")
    if min(T, S) < LEAST_ROWS or parts_of(anchor, target) is not None:
        raise NotPlain("it has few queries or keys")
    for value in (*anchor.src, anchor):
        count = numel(value.shape)
        if not isinstance(count, int) or not 0 < count < MOST_ELEMENTS:
            raise NotPlain("it is empty, or too large")


def _split(kernel: Kernel, nest: Nest, anchor: Op) -> AttentionSplit:
    """Returns the split of an attention or its gradients; raises NotPlain where not all that is made is asked for."""
    slots = {value.arg: slot for slot, value in nest.outputs}
    needed = range(1) if anchor.code is OpCode.ATTENTION else range(3)
    if not slots.keys() >= {*needed} or any(value.code is not OpCode.OUTPUT for _, value in nest.outputs):
        raise NotPlain("its averages are not asked for, or not all of its gradients")
    params, before, operands = [*kernel.params], [], []

    def stored(operand: Op) -> Op:
        params.append(Param(operand.dtype, numel(operand.shape), "scratch"))
        held = param(operand, len(params) - 1)
        before.append(Nest(NestKind.ELEMENTWISE, operand.shape, (), None, ((held.arg[0], operand),)))
        return held

    for operand in anchor.src:
        is_held = _is_matrix(operand, params) if len(operand.shape) == 4 else operand.code is OpCode.PARAM
        operands.append(operand if is_held else stored(operand))
    read = anchor.replace(src=tuple(operands))
    outputs = tuple((slot, value.replace(src=(read,))) for slot, value in nest.outputs)
    phases = [phase for phase in (tuple(before), (replace(nest, anchor=read, outputs=outputs),)) if phase]
    whole = Kernel(f"{kernel.name}_split", tuple(params), (), tuple(phases))
    H, G, T, S, D, E = lengths(anchor)
    (batch,) = known_numbers(anchor.src[0].shape[:1])
    shape = HeadsShape(batch, H, G, T, S, D, E, anchor.dtype.name, float(anchor.arg.scale), anchor.arg.causal)
    q, k, v, *grads = (_matrix_of(operand, params) for operand in operands if len(operand.shape) == 4)
    if anchor.code is OpCode.ATTENTION:
        return AttentionSplit(whole, PlainAttention(shape, q, k, v, slots[0], slots.get(1)))
    logsumexp, delta = (operand.arg[0] for operand in operands[4:])
    plain = PlainGradients(shape, q, k, v, grads[0], logsumexp, delta, slots[0], slots[1], slots[2])
    return AttentionSplit(whole, plain)


def _is_matrix(operand: Op, params: list[Param]) -> bool:
    """True for an operand that copies of tiles can take as it lies in memory."""
    try:
        _matrix_of(operand, params)
    except NotPlain:
        return False
    return True


def _matrix_of(operand: Op, params: list[Param]) -> HeadsMatrix:
    """Returns where an operand (B, H, T, D) lies; raises NotPlain where copies of tiles cannot take it."""
    load = element_anywhere(operand)
    if load.code is not OpCode.LOAD or load.dtype is not operand.dtype or len(load.src) > 2:
        raise NotPlain("an operand is computed")
    extents = known_numbers(operand.shape)
    terms, offset = affine(from_op(load.src[1]))
    axes = [placeholder(axis, extent) for axis, extent in enumerate(extents)]
    if not terms.keys() <= {*axes}:
        raise NotPlain("an operand does not lie at equal distances")
    *steps, step = [terms.get(axis, 0) for axis in axes]
    alone = -(-extents[-1] // PIECE) * PIECE  # where there is one of an axis, no distance is ever gone
    strides = [alone if extent == 1 else each for extent, each in zip(extents, steps)]
    slot = load.src[0].arg[0]
    count = params[slot].numel
    if step != 1 or offset % PIECE or any(each <= 0 or each % PIECE for each in strides):
        raise NotPlain("rows of an operand do not begin at multiples of 16 bytes")
    if not isinstance(count, int) or count >= MOST_ELEMENTS or count % PIECE:
        raise NotPlain("a parameter is too large, or ends between multiples of 16 bytes")
    return HeadsMatrix(slot, offset, (strides[0], strides[1], strides[2]))


# ---- how it is cut ----
def tiles_of(shape: HeadsShape, target: Target) -> list[HeadsTile]:
    """Returns the ways to cut an attention, what is thought to be fastest first.

    Three warpgroups that look have 160 registers a thread, of which an accumulator of 128 features leaves too few.
    """
    wide = max(shape.features, shape.values) > SWIZZLED
    return [tile for lookers in ((2,) if wide else (2, 3)) for tile in _cut(shape, lookers, target)]


def _cut(shape: HeadsShape, lookers: int, target: Target) -> list[HeadsTile]:
    """Returns the cut for so many warpgroups, if shared memory holds one.

    Of a causal attention the longest blocks of all heads come first: that counts for more than the L2 cache does (H100,
    4 x 16 x 4096 x 128: 508 TFLOP/s for 484); where all blocks are as long it is the other way round (514 for 614).
    """
    heads, pair = shape.batch * shape.heads, shape.features + shape.values
    group_nbytes = shape.keys * pair * 2 * shape.groups // shape.heads
    together = heads if shape.causal else max(1, min(heads, CACHED_NBYTES // max(1, group_nbytes)))
    blocks = min(target.multiprocessors, heads * -(-shape.queries // (WARPGROUP_ROWS * lookers)))
    tile = HeadsTile(lookers, COLUMNS, MOST_STAGES, together, blocks)
    return fitted(tile, lambda each: attention_nbytes(shape, each), target)


def fitted(tile: HeadsTile, nbytes: Callable[[HeadsTile], int], target: Target) -> list[HeadsTile]:
    """Returns a tile with as many stages as shared memory holds, then two sets of own rows; none without LEAST_STAGES."""
    room = target.shared_bytes - BARRIER_NBYTES
    sizes = ((stages, keeps) for stages in range(tile.stages, LEAST_STAGES - 1, -1) for keeps in (2, 1))
    tiles = (replace(tile, stages=stages, keeps=keeps) for stages, keeps in sizes)
    return next(([each] for each in tiles if nbytes(each) <= room), [])


def tiles_of_gradients(shape: HeadsShape, by_keys: bool, target: Target) -> list[HeadsTile]:
    """Returns the ways to cut the kernel that makes gradients of keys and values, or of queries; the fastest first."""
    wide = max(shape.features, shape.values) > SWIZZLED
    return [tile for each in GRADIENTS[by_keys, wide] for tile in gradients_cut(shape, by_keys, *each, target)]


def gradients_cut(
    shape: HeadsShape, by_keys: bool, lookers: int, columns: int, lags: bool, target: Target
) -> list[HeadsTile]:
    """Returns the cut for so many warpgroups and rows of a tile, if shared memory holds one."""
    heads, length, other = shape.batch * shape.heads, shape.queries, shape.keys
    if by_keys:
        heads, length, other = shape.batch * shape.groups, shape.keys, shape.queries
    together = heads if shape.causal else max(1, min(heads, CACHED_NBYTES // shape.nbytes(other)))
    blocks = min(target.multiprocessors, heads * -(-length // (WARPGROUP_ROWS * lookers)))
    tile = HeadsTile(lookers, columns, MOST_STAGES, together, blocks, lags=lags)
    return fitted(tile, lambda each: gradients_nbytes(shape, each, by_keys), target)
