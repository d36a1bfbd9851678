"""Sees which kernels are an attention that a kernel written by hand computes, and how that is cut.

In:    Kernel, Target
Out:   `split_attention`: an `AttentionSplit`, or the reason why there is none; `tiles_of`
Called by: engine/written.py.    Next: picograd/codegen/emit.py

    phase 0   what of q, k and v does not lie in memory as copies of tiles take it is stored
    phase 1   the attention

A window, a cap of scores, a mask, and more than 128 features are left to codegen/gpu/attention.py.
"""

from __future__ import annotations

from functools import lru_cache

from picograd.codegen.index import element_anywhere
from picograd.codegen.strided import NotPlain, known_numbers
from picograd.device import Target
from picograd.ir.attention import lengths
from picograd.ir.attention_parts import parts_of
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import SWIZZLED, WARPGROUP_ROWS, HeadsMatrix, HeadsTile, PlainAttention
from picograd.ir.shape import AttentionArg, numel
from picograd.ir.stages import Kernel, Nest, NestKind, Param
from picograd.ir.substitute import param
from picograd.ir.symbolic import affine, from_op
from picograd.record import Record, replace

PIECE = 8  # elements of 16 bits in what a copy of tiles moves at once: rows begin at multiples
LEAST_FEATURES, MOST_FEATURES = 40, 128  # with fewer, most of a tile would be zeros
LEAST_ROWS = 64
MOST_ELEMENTS = 1 << 31
BARRIER_NBYTES = 1024  # what mbarriers take, up to where a tile may begin
COLUMNS, MOST_STAGES, LEAST_STAGES = 128, 4, 2
CACHED_NBYTES = 24 << 20  # of keys and values that are looked at together: they stay in the L2 cache


class AttentionSplit(Record):
    """A kernel in phases, the last of which a kernel written by hand computes.

    kernel:     computes the same as the one it was made of; its params are that one's, then what is stored in between
    attention:  what is computed, by slots of `kernel`
    """

    kernel: Kernel
    attention: PlainAttention

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
        return f"with {stored} of q, k and v stored before" if stored else "as the only launch"


@lru_cache(maxsize=256)
def split_attention(kernel: Kernel, target: Target) -> AttentionSplit | str:
    """Returns how a kernel written by hand computes a kernel's attention, or why none can."""
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
    if anchor.code is not OpCode.ATTENTION:
        raise NotPlain("it is of gradients")
    if kernel.variables or not all(isinstance(dim, int) for source in anchor.src for dim in source.shape):
        raise NotPlain("it reads a symbolic integer")
    if not anchor.dtype.is_narrow or anchor.dtype.itemsize != 2:
        raise NotPlain(f"its dtype is {anchor.dtype}")
    if len(anchor.src) > 3 or arg.window or arg.soft_cap or not arg.scale > 0:
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
    """Returns the split of an attention; raises NotPlain where its averages are not asked for."""
    arg: AttentionArg = anchor.arg
    slots = {value.arg: slot for slot, value in nest.outputs}
    if 0 not in slots or any(value.code is not OpCode.OUTPUT for _, value in nest.outputs):
        raise NotPlain("its averages are not asked for")
    params, before, matrices, operands = [*kernel.params], [], [], []
    for operand in anchor.src:
        try:
            matrix = _matrix_of(operand, kernel.params)
        except NotPlain:
            params.append(Param(operand.dtype, numel(operand.shape), "scratch"))
            held = param(operand, len(params) - 1)
            before.append(Nest(NestKind.ELEMENTWISE, operand.shape, (), None, ((held.arg[0], operand),)))
            operand, matrix = held, _matrix_of(held, params)
        matrices.append(matrix)
        operands.append(operand)
    read = anchor.replace(src=tuple(operands))
    outputs = tuple((slot, value.replace(src=(read,))) for slot, value in nest.outputs)
    phases = [phase for phase in (tuple(before), (replace(nest, anchor=read, outputs=outputs),)) if phase]
    whole = Kernel(f"{kernel.name}_split", tuple(params), (), tuple(phases))
    H, G, T, S, D, E = lengths(anchor)
    (batch,) = known_numbers(anchor.src[0].shape[:1])
    q, k, v = matrices
    plain = PlainAttention(
        q, k, v, slots[0], slots.get(1), batch, H, G, T, S, D, E, anchor.dtype.name, float(arg.scale), arg.causal
    )
    return AttentionSplit(whole, plain)


def _matrix_of(operand: Op, params: tuple[Param, ...] | list[Param]) -> HeadsMatrix:
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
def tiles_of(attention: PlainAttention, target: Target) -> list[HeadsTile]:
    """Returns the ways to cut an attention, what is thought to be fastest first.

    Three warpgroups that look have 160 registers a thread, of which an accumulator of 128 features leaves too few.
    """
    wide = max(attention.features, attention.values) > SWIZZLED
    return [tile for lookers in ((2,) if wide else (3, 2)) for tile in _cut(attention, lookers, target)]


def _cut(attention: PlainAttention, lookers: int, target: Target) -> list[HeadsTile]:
    """Returns the cut for so many warpgroups, if shared memory holds one.

    Of a causal attention the longest blocks of all heads come first: that counts for more than the L2 cache does (H100,
    4 x 16 x 4096 x 128: 508 TFLOP/s for 484); where all blocks are as long it is the other way round (514 for 614).
    """
    rows = WARPGROUP_ROWS * lookers
    pair = attention.features + attention.values
    heads = attention.batch * attention.heads
    stages = (target.shared_bytes - BARRIER_NBYTES - attention.nbytes(rows)) // attention.nbytes(COLUMNS)
    if stages < LEAST_STAGES:
        return []
    group_nbytes = attention.keys * pair * 2 * attention.groups // attention.heads
    together = heads if attention.causal else max(1, min(heads, CACHED_NBYTES // max(1, group_nbytes)))
    blocks = min(target.multiprocessors, heads * -(-attention.queries // rows))
    return [HeadsTile(lookers, COLUMNS, min(stages, MOST_STAGES), together, blocks)]
