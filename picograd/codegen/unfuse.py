"""Splits a kernel around its product: what a library computes of it, and what is left to generated code.

In:    Kernel
Out:   `unfuse`: Splits, or the reason why there is none; `unfuse_in_parts`: one whose product is of parts of K
Called by: engine/choose.py, engine/choose.py.    Next: picograd/codegen/plain_attention.py

    phase 0   operands that do not lie in memory as a library takes them are stored, as is a bias that is cast
    phase 1   the product, with an epilogue of the library's where that is all of the rest
    phase 2   what else is computed of the product, for any number of results

What is stored in between lies in "scratch" params, for which the plan finds memory (runtime/scratch.py). A product of
16 bits is stored in 16 bits: that is what a fused epilogue computes with, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from picograd import dtype as dtypes
from picograd.codegen.index import element_anywhere
from picograd.codegen.operands import contiguous_pieces_axis
from picograd.codegen.plain_product import DTYPES, SIDES, operand_dtype, product_of
from picograd.codegen.strided import NotPlain, known_numbers, matrix_of
from picograd.dtype import DType
from picograd.ir.bodies import param, substitute
from picograd.ir.build import cast, expand, pad_axis, permute, reshape, shrink, shrink_axis, swap_last
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Epilogue, PlainProduct
from picograd.ir.shape import numel
from picograd.ir.stages import Kernel, Nest, NestKind, Param
from picograd.record import Record, replace

MOST_BETWEEN = 2  # times the bytes of a kernel's own params: what it stores in between may not be larger


class Split(Record):
    """A kernel in phases, of which a library computes one.

    kernel:   computes the same as the one it was made of; its params are that one's, then what is stored in between
    place:    of the product among the phases
    product:  what the library is asked for, by slots of `kernel`
    """

    kernel: Kernel
    place: int
    product: PlainProduct

    @property
    def generated(self) -> Kernel:
        """Returns the kernel without its product, which alone would read what nobody stores."""
        phases = self.kernel.phases
        return replace(self.kernel, phases=phases[: self.place] + phases[self.place + 1 :])

    def __str__(self) -> str:
        if len(self.kernel.phases) == 1:
            return "as the only launch"
        between = _nbytes([each for each in self.kernel.params if each.role == "scratch"])
        return f"as launch {self.place + 1} of {len(self.kernel.phases)}, with {between} bytes in between"


@lru_cache(maxsize=256)
def unfuse(kernel: Kernel) -> tuple[Split, ...] | str:
    """Returns the ways to have a library compute a kernel's product, least is generated in the first; or why there is none.

    Taken is any kernel of one product whose sums are float32, be its operands computed or not, whatever is computed of
    it. Not taken is one that would store more in between than it is worth: what is read along a broadcast is small, and
    what is stored of it is not.
    """
    try:
        return tuple(_splits(kernel))
    except NotPlain as reason:
        return str(reason)


@lru_cache(maxsize=256)
def unfuse_in_parts(kernel: Kernel, parts: int) -> Split | None:
    """Returns a split whose product has a result for each part of K: what is left of the kernel adds them up, in order.

    None where it has no split, or K no such parts.
    """
    try:
        nest = _one_product(kernel)
        anchor = nest.anchor
        assert anchor is not None
        if numel(anchor.shape[:-2]) != 1:
            return None
        return _in_parts(_Draft(kernel), nest, parts)
    except NotPlain:
        return None


def _splits(kernel: Kernel) -> list[Split]:
    """Returns the splits of a kernel; raises NotPlain where there is none."""
    nest = _one_product(kernel)
    found: list[Split] = []
    refused: list[NotPlain] = []
    for make in (_whole, _with_rest):
        try:
            found.append(make(_Draft(kernel), nest))
        except NotPlain as reason:
            refused.append(reason)
        if found and found[0].product.epilogue == Epilogue():
            break  # nothing of it could be left to a rest
    if not found:
        raise refused[-1]
    return found


def _one_product(kernel: Kernel) -> Nest:
    """Returns the nest of a kernel that is one product; raises NotPlain."""
    if [[nest.kind for nest in phase] for phase in kernel.phases] != [[NestKind.MATMUL]]:
        raise NotPlain("it is not one product")
    ((nest,),) = kernel.phases
    anchor = nest.anchor
    assert anchor is not None, "a product has an anchor"
    for op in (anchor, *anchor.src):
        known_numbers(op.shape)
    if kernel.variables:
        raise NotPlain("it reads a symbolic integer")
    if anchor.dtype not in DTYPES:
        raise NotPlain(f"its dtype is {anchor.dtype}")
    if not numel(anchor.shape) or not anchor.src[0].shape[-1]:
        raise NotPlain("it is empty")
    return nest


class _Draft:
    """A split under construction: the params so far, and what is stored before the product."""

    def __init__(self, kernel: Kernel):
        self._kernel, self._params = kernel, [*kernel.params]
        self._before: dict[Op, Nest] = {}  # by what is stored

    def temporary(self, value: Op) -> Op:
        """Returns a PARAM for memory of a value's shape and dtype."""
        self._params.append(Param(value.dtype, numel(value.shape), "scratch"))
        return param(value, len(self._params) - 1)

    def stored(self, value: Op) -> Op:
        """Returns a PARAM in which a value is stored before the product."""
        known = self._before.get(value)
        if known is not None:
            return param(value, known.outputs[0][0])
        held = self.temporary(value)
        self._before[value] = Nest(NestKind.ELEMENTWISE, value.shape, (), None, ((held.arg[0], value),))
        return held

    def product(self, anchor: Op) -> Op:
        """Returns the same product of operands that a library can read, the others being stored before."""
        dtype = operand_dtype(anchor)
        return anchor.replace(src=tuple(self._readable(operand, dtype, name) for operand, name in zip(anchor.src, SIDES)))

    def _readable(self, operand: Op, dtype: DType, name: str) -> Op:
        """Returns an operand that lies in memory: itself, or stored along the axis along which it is read.

        What is the same for all of a batch is stored once.
        """
        try:
            matrix_of(operand, dtype, name)
            return operand
        except NotPlain:
            pass
        one = _one_of_batch(operand)
        value = cast(one, dtype)
        held = self.stored(value) if contiguous_pieces_axis(one) == -1 else swap_last(self.stored(swap_last(value)))
        return expand(cast(held, operand.dtype), operand.shape)

    def kept(self, nest: Nest) -> int | None:
        """Returns the slot of a result that is the product itself, from which the others can be computed.

        Not where one of them reads as much of the same dtype: a result may lie where the plan has that, which is right
        where an element is read before it is written, as it is within one loop.
        """
        read = [op for op in toposort([v for _, v in nest.outputs], stop={nest.anchor}) if op.code is OpCode.PARAM]
        others = {(op.dtype, numel(op.shape)) for op in read}
        for slot, value in nest.outputs:
            while value.code is OpCode.RESHAPE:
                value = value.src[0]
            if value is nest.anchor and (value.dtype, numel(value.shape)) not in others:
                return slot
        return None

    def finish(self, nest: Nest, rest: Sequence[Nest] = (), product: PlainProduct | None = None) -> Split:
        """Returns the split with `nest` as the library's; raises NotPlain where that is no plain product, or too dear.

        Args:
          product:  what the library is asked for, where that does not follow from `nest`
        """
        phases = [phase for phase in (tuple(self._before.values()), (nest,), tuple(rest)) if phase]
        own = self._params[: len(self._kernel.params)]
        needed, held = _nbytes(self._params[len(own) :]), _nbytes(own)
        if needed > MOST_BETWEEN * held:
            raise NotPlain(f"{needed} bytes would be stored in between, where its own are {held}")
        kernel = Kernel(f"{self._kernel.name}_split", tuple(self._params), (), tuple(phases))
        return Split(kernel, int(bool(self._before)), product or product_of(nest))


def _nbytes(params: Sequence[Param]) -> int:
    lengths = [each.numel * each.dtype.itemsize for each in params if isinstance(each.numel, int)]
    assert len(lengths) == len(params), "all of the kernel's shapes are numbers"
    return sum(lengths)


def _one_of_batch(operand: Op) -> Op:
    """Returns an operand, of a batch of equal matrices the first."""
    *batch, rows, columns = operand.shape
    used = set(toposort([element_anywhere(operand)]))
    if any(placeholder(axis, dim) in used for axis, dim in enumerate(batch)):
        return operand
    return shrink(operand, (*((0, 1) for _ in batch), (0, rows), (0, columns)))


def _whole(draft: _Draft, nest: Nest) -> Split:
    """Returns the split in which the library computes the result, epilogue and all; raises NotPlain."""
    anchor = nest.anchor
    assert anchor is not None
    values = [value for _, value in nest.outputs]
    became = {anchor: draft.product(anchor)}
    for vector in _cast_vectors(values, anchor):
        became[vector] = draft.stored(vector)
    outputs = zip((slot for slot, _ in nest.outputs), substitute(values, became))
    return draft.finish(replace(nest, anchor=became[anchor], outputs=tuple(outputs)))


def _cast_vectors(values: Sequence[Op], anchor: Op) -> list[Op]:
    """Returns the vectors with an element a column that are cast on their way to results, as a bias is under autocast."""
    columns = (anchor.shape[-1],)
    order = toposort(values, stop={anchor})
    return [op for op in order if op.code is OpCode.CAST and op.shape == columns and op.src[0].code is OpCode.PARAM]


def _with_rest(draft: _Draft, nest: Nest) -> Split:
    """Returns the split in which what is computed of the product is an elementwise nest of its own; raises NotPlain."""
    anchor = nest.anchor
    assert anchor is not None
    product, kept = draft.product(anchor), draft.kept(nest)
    held = draft.temporary(anchor) if kept is None else param(anchor, kept)
    values = substitute([value for _, value in nest.outputs], {anchor: held})
    rest = tuple((slot, value) for (slot, _), value in zip(nest.outputs, values) if slot != kept)
    first = Nest(nest.kind, nest.domain, (), product, ((held.arg[0], product),))
    return draft.finish(first, [Nest(NestKind.ELEMENTWISE, nest.domain, (), None, rest)] if rest else ())


def _in_parts(draft: _Draft, nest: Nest, parts: int) -> Split:
    """Returns the split in which each part of K has a result in float32, and an elementwise nest adds them up."""
    anchor = nest.anchor
    assert anchor is not None
    lhs, rhs = draft.product(anchor).src
    (m, k), n = lhs.shape[-2:], rhs.shape[-1]
    assert isinstance(k, int), "all of the kernel's shapes are numbers"
    narrow = operand_dtype(anchor)
    left, right = (reshape(cast(side, narrow), side.shape[-2:]) for side in (lhs, rhs))
    whole = Op(OpCode.MATMUL, dtypes.float32, (left, right), anchor.arg)
    plain = replace(product_of(Nest(nest.kind, whole.shape, (), whole, ((0, whole),))), parts=parts)
    length = plain.steps * plain.step
    if (parts - 1) * length >= k:
        raise NotPlain(f"K of {k} has less than {parts} parts")
    left, right = pad_axis(left, 1, 0, parts * length - k), pad_axis(right, 0, 0, parts * length - k)
    left = permute(reshape(left, (m, parts, length)), (1, 0, 2))
    right = reshape(right, (parts, length, n))
    product = Op(OpCode.MATMUL, dtypes.float32, (left, right), anchor.arg)
    held = draft.temporary(product)
    value = shrink_axis(held, 0, 0, 1)
    for part in range(1, parts):
        value = Op(OpCode.ADD, dtypes.float32, (value, shrink_axis(held, 0, part, part + 1)))
    became = cast(reshape(value, anchor.shape), anchor.dtype)
    values = substitute([value for _, value in nest.outputs], {anchor: became})
    rest = tuple((slot, value) for (slot, _), value in zip(nest.outputs, values))
    first = Nest(nest.kind, product.shape, (), product, ((held.arg[0], product),))
    summed = Nest(NestKind.ELEMENTWISE, nest.domain, (), None, rest)
    return draft.finish(first, [summed], replace(plain, out=held.arg[0]))
