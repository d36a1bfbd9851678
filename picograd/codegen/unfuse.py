"""Splits a kernel around its product, for a library, or around the values of a user's kernel; the rest is generated.

In:    Kernel
Out:   `unfuse`: Splits, or the reason why there is none; `unfuse_operands`: one that leaves the nest its epilogue, of
       any kind; `unfuse_in_parts`: one whose product is of parts of K;
       `product_of`: the `PlainProduct` of a nest; NotPlain says why there is none
       `unfuse_given`: a Cut around the values that a user's kernel computes

    phase 0   operands that a library cannot read are stored, as is a bias that is cast
    phase 1   the product, with the library's epilogue if nothing else is left to compute
    phase 2   other values that depend on the product, for any number of results

Values between phases are in "scratch" params, for which the plan finds memory (devices/launches.py). A product of 16 bits
is stored in 16 bits: a fused epilogue computes with these, too.

A library reads strided matrices (`Matrix`), and has an epilogue (`Epilogue`), each part of which may be missing:

    relu(scale * product + factor * added + bias)

It adds up in this order, in float32, and rounds once, to the dtype of the result. A graph may have another order, and with
16 bits it rounds after each Op: the difference is less than its own rounding. A gelu is not among the
parts: the results of the library's tanh are not documented. NOTE: nor is its relu of a NaN; a generated relu
keeps it. Source: cublasLt.h, cublasLtEpilogue_t; cuBLAS manual, cublasLtMatmul.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from picograd import dtype as dtypes
from picograd.codegen.index import element_anywhere, element_within, is_zero
from picograd.codegen.matmul import contiguous_pieces_axis
from picograd.dtype import DType
from picograd.ir.bodies import param, substitute
from picograd.ir.build import cast, expand, pad_axis, permute, reshape, shrink, shrink_axis, swap_last
from picograd.ir.op import Op, Shape, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, OpCode
from picograd.ir.opts import Bias, Epilogue, Matrix, PlainProduct
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Kernel, Nest, NestKind, Param
from picograd.ir.symbolic import affine, from_op, placeholder, placeholders
from picograd.record import Record, replace

# ---- splitting a kernel around its product ----
AROUND = (ELEMENTWISE | MOVEMENT | {OpCode.PARAM, OpCode.CONST}) - {OpCode.CHECK}  # may surround a user's kernel
BETWEEN_RATIO_MAX = 2  # values that are stored in between have at most that many times the bytes of the kernel's params


class Cut(Record):
    """A kernel in phases, one of which is not generated.

    kernel:   computes the same as the original; its params are the original's, then values that are stored in between
    place:    number of the phase that is not generated
    """

    kernel: Kernel
    place: int

    @property
    def nest(self) -> Nest:
        """The nest that is not generated."""
        (nest,) = self.kernel.phases[self.place]
        return nest

    @property
    def generated(self) -> Kernel:
        """Returns the kernel without that phase."""
        phases = self.kernel.phases
        return replace(self.kernel, phases=phases[: self.place] + phases[self.place + 1 :])

    def __str__(self) -> str:
        if len(self.kernel.phases) == 1:
            return "as the only launch"
        between = _nbytes([each for each in self.kernel.params if each.role == "scratch"])
        return f"as launch {self.place + 1} of {len(self.kernel.phases)}, with {between} bytes in between"


class Split(Cut):
    """A kernel in phases, one of which a library computes.

    product:  the product that the library computes, by slots of `kernel`
    """

    product: PlainProduct


@lru_cache(maxsize=256)
def unfuse(kernel: Kernel) -> tuple[Split, ...] | str:
    """Returns the ways to give the product to a library, the one that leaves least to us first; or the reason for none.

    It accepts every kernel of one product whose sums are float32, with any operands and any values that depend on
    it, unless it would store too much in between: a small operand that is broadcast, for
    example, would be stored in full.
    """
    try:
        return tuple(_splits(kernel))
    except NotPlain as reason:
        return str(reason)


@lru_cache(maxsize=256)
def unfuse_operands(kernel: Kernel) -> Split | str:
    """Returns the split in which operands are stored before the product as `unfuse` does, and all else is one nest.

    The product has no epilogue; the first of the results takes its place.
    """
    try:
        nest, draft = _one_product(kernel), _Draft(kernel)
        anchor = nest.anchor
        product = draft.product(anchor)
        values = substitute([value for _, value in nest.outputs], {anchor: product})
        outputs = tuple((slot, value) for (slot, _), value in zip(nest.outputs, values))
        whole, (out, value) = replace(nest, anchor=product, outputs=outputs), outputs[0]
        return draft.finish(whole, product=_product(product, out, value.dtype))
    except NotPlain as reason:
        return str(reason)


@lru_cache(maxsize=256)
def unfuse_in_parts(kernel: Kernel, parts: int) -> Split | None:
    """Returns a split whose product has a result for each part of K; the rest of the kernel adds them up, in order.

    None if the kernel has no split, or K no such parts.
    """
    try:
        nest = _one_product(kernel)
        anchor = nest.anchor
        if numel(anchor.shape[:-2]) != 1:
            return None
        return _in_parts(_Draft(kernel), nest, parts)
    except NotPlain:
        return None


def unfuse_given(kernel: Kernel, computed: Mapping[Op, Op]) -> Cut | str:
    """Returns the cut in which a user's kernel computes values of a kernel; or the reason why there is none.

    Operands that are not simply parameters are stored before it; other values are computed from its results after it.
    Both must be elementwise.

    Args:
      computed:  values of the kernel, each with its OUTPUT of a KERNEL whose operands are values of the kernel
    """
    try:
        return _around(kernel, computed)
    except NotPlain as reason:
        return str(reason)


def _around(kernel: Kernel, computed: Mapping[Op, Op]) -> Cut:
    """Returns the cut around some values; raises NotPlain."""
    if [len(phase) for phase in kernel.phases] != [1]:
        raise NotPlain("it is several nests")
    if kernel.variables:
        raise NotPlain("it reads a symbolic integer")
    ((nest,),) = kernel.phases
    if not all(numel(value.shape) for value in (*computed, *kernel.values())):
        raise NotPlain("it is empty")
    (call,) = {output.src[0] for output in computed.values()}
    draft, stored = _Draft(kernel), {output.arg: value for value, output in computed.items()}
    call = call.replace(src=tuple(draft.operand(operand) for operand in call.src))
    held, outputs = dict[Op, Op](), []
    for number, dtype in enumerate(call.arg[0].dtypes):
        output = Op(OpCode.OUTPUT, dtype, (call,), number)
        value = stored.get(number, output)
        slot = draft.kept(nest, value)
        if number >= call.arg[0].num_results:
            held[value] = draft.memory_of_launches(value)
        else:
            held[value] = draft.temporary(value) if slot is None else param(value, slot)
        outputs.append((held[value].arg[0], output))
    slots = [slot for slot, _ in outputs]
    rest = [(slot, value) for slot, value in nest.outputs if slot not in slots]
    values = substitute([value for _, value in rest], held)
    _check_elementwise(values)
    behind: dict[Shape, list[tuple[int, Op]]] = {}
    for (slot, _), value in zip(rest, values):
        behind.setdefault(value.shape, []).append((slot, value))
    nests = [Nest(NestKind.ELEMENTWISE, shape, (), None, tuple(own)) for shape, own in behind.items()]
    return draft.cut(Nest(NestKind.HOST, outputs[0][1].shape, (), None, tuple(outputs)), nests)


def _check_elementwise(values: Sequence[Op]) -> None:
    """Raises NotPlain if values are not elementwise functions of parameters."""
    others = {op.code for op in toposort(values)} - AROUND
    if others:
        raise NotPlain(f"{', '.join(sorted(code.name for code in others))} is around it")


def _splits(kernel: Kernel) -> list[Split]:
    """Returns the splits of a kernel; raises NotPlain if there is none."""
    nest = _one_product(kernel)
    found: list[Split] = []
    refused: list[NotPlain] = []
    for make in (_whole, _with_rest):
        try:
            found.append(make(_Draft(kernel), nest))
        except NotPlain as reason:
            refused.append(reason)
        if found and found[0].product.epilogue == Epilogue():
            break  # a generated rest could not compute a part of it
    if not found:
        raise refused[-1]
    return found


def _one_product(kernel: Kernel) -> Nest:
    """Returns the nest of a kernel that is one product; raises NotPlain."""
    if [[nest.kind for nest in phase] for phase in kernel.phases] != [[NestKind.MATMUL]]:
        raise NotPlain("it is not one product")
    ((nest,),) = kernel.phases
    anchor = nest.anchor
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
    """A split under construction: the params so far, and the values stored before the product."""

    def __init__(self, kernel: Kernel):
        self._kernel, self._params = kernel, [*kernel.params]
        self._before: dict[Op, Nest] = {}  # stored value -> its nest
        self._of_launches: list[Param] = []

    def temporary(self, value: Op) -> Op:
        """Returns a PARAM for memory of a value's shape and dtype."""
        self._params.append(Param(value.dtype, numel(value.shape), "scratch"))
        return param(value, len(self._params) - 1)

    def memory_of_launches(self, value: Op) -> Op:
        """Returns a PARAM for memory between the launches of a user's kernel, as much as that needs."""
        found = self.temporary(value)
        self._of_launches.append(self._params[-1])
        return found

    def stored(self, value: Op) -> Op:
        """Returns a PARAM in which a value is stored before the product."""
        known = self._before.get(value)
        if known is not None:
            return param(value, known.outputs[0][0])
        held = self.temporary(value)
        self._before[value] = Nest(NestKind.ELEMENTWISE, value.shape, (), None, ((held.arg[0], value),))
        return held

    def product(self, anchor: Op) -> Op:
        """Returns the product of operands that a library can read: others are stored before it."""
        dtype = operand_dtype(anchor)
        return anchor.replace(src=tuple(self._readable(operand, dtype, name) for operand, name in zip(anchor.src, SIDES)))

    def _readable(self, operand: Op, dtype: DType, name: str) -> Op:
        """Returns an operand in memory: itself, or stored along the axis along which it is read.

        An operand that is the same for a whole batch is stored once.
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

    def operand(self, value: Op) -> Op:
        """Returns an operand of a user's kernel: a parameter or a number as it is, anything else stored before it."""
        if value.code is OpCode.CONST:
            return value
        bare = value
        while bare.code is OpCode.RESHAPE:
            bare = bare.src[0]
        if bare.code is OpCode.PARAM:
            return param(value, bare.arg[0])
        _check_elementwise([value])
        return self.stored(value)

    def kept(self, nest: Nest, value: Op) -> int | None:
        """Returns the slot of a result that is a value itself, such as the product, from which the others can be computed.

        None if one of them reads as much memory of the same dtype: the plan may give a result that memory, which is
        right if each element is read before it is written, as within one loop. Memory that is read for a sum, too, is
        never taken.
        """
        order = toposort([v for _, v in nest.outputs])
        sums = {op for op in order if op is nest.anchor or op.code is OpCode.REDUCE}
        read = {op for op in toposort([v for _, v in nest.outputs], stop=sums) if op.code is OpCode.PARAM}
        read -= {op for op in toposort([s for op in sums for s in op.src]) if op.code is OpCode.PARAM}
        others = {(op.dtype, numel(op.shape)) for op in read}
        for slot, stored in nest.outputs:
            while stored is not value and stored.code is OpCode.RESHAPE:
                stored = stored.src[0]
            if stored is value and (value.dtype, numel(value.shape)) not in others:
                return slot
        return None

    def finish(self, nest: Nest, rest: Sequence[Nest] = (), product: PlainProduct | None = None) -> Split:
        """Returns the split with `nest` as the library's; raises NotPlain if it is not a plain product, or too costly.

        Args:
          product:  the library's product, if it does not follow from `nest`
        """
        cut = self.cut(nest, rest)
        return Split(cut.kernel, cut.place, product or product_of(nest))

    def cut(self, nest: Nest, rest: Sequence[Nest] = ()) -> Cut:
        """Returns the cut with `nest` as the part that is not generated; raises NotPlain if it stores too much."""
        phases = [phase for phase in (tuple(self._before.values()), (nest,), tuple(rest)) if phase]
        own = self._params[: len(self._kernel.params)]
        needed, held = _nbytes(self._params[len(own) :]) - _nbytes(self._of_launches), _nbytes(own)
        if needed > BETWEEN_RATIO_MAX * held:
            raise NotPlain(f"{needed} bytes would be stored in between, more than {BETWEEN_RATIO_MAX} times its own {held}")
        kernel = Kernel(f"{self._kernel.name}_split", tuple(self._params), (), tuple(phases))
        return Cut(kernel, int(bool(self._before)))


def _nbytes(params: Sequence[Param]) -> int:
    assert all(isinstance(each.numel, int) for each in params), "all of the kernel's shapes are numbers"
    return sum(each.nbytes for each in params)


def _one_of_batch(operand: Op) -> Op:
    """Returns an operand; if all matrices of its batch are equal, the first of them."""
    *batch, rows, columns = operand.shape
    used = set(toposort([element_anywhere(operand)]))
    if any(placeholder(axis, dim) in used for axis, dim in enumerate(batch)):
        return operand
    return shrink(operand, (*((0, 1) for _ in batch), (0, rows), (0, columns)))


def _whole(draft: _Draft, nest: Nest) -> Split:
    """Returns the split in which the library computes the result with its epilogue; raises NotPlain."""
    anchor = nest.anchor
    values = [value for _, value in nest.outputs]
    became = {anchor: draft.product(anchor)}
    for vector in _cast_vectors(values, anchor):
        became[vector] = draft.stored(vector)
    outputs = zip((slot for slot, _ in nest.outputs), substitute(values, became))
    return draft.finish(replace(nest, anchor=became[anchor], outputs=tuple(outputs)))


def _cast_vectors(values: Sequence[Op], anchor: Op) -> list[Op]:
    """Returns the vectors with an element for each column that are cast before use, like a bias under autocast."""
    columns = (anchor.shape[-1],)
    order = toposort(values, stop={anchor})
    return [op for op in order if op.code is OpCode.CAST and op.shape == columns and op.src[0].code is OpCode.PARAM]


def _with_rest(draft: _Draft, nest: Nest) -> Split:
    """Returns the split in which the epilogue is an elementwise nest of its own; raises NotPlain."""
    anchor = nest.anchor
    product, kept = draft.product(anchor), draft.kept(nest, anchor)
    held = draft.temporary(anchor) if kept is None else param(anchor, kept)
    values = substitute([value for _, value in nest.outputs], {anchor: held})
    rest = tuple((slot, value) for (slot, _), value in zip(nest.outputs, values) if slot != kept)
    first = Nest(nest.kind, nest.domain, (), product, ((held.arg[0], product),))
    return draft.finish(first, [Nest(NestKind.ELEMENTWISE, nest.domain, (), None, rest)] if rest else ())


def _in_parts(draft: _Draft, nest: Nest, parts: int) -> Split:
    """Returns the split in which each part of K has a result in float32, and an elementwise nest adds them up."""
    anchor = nest.anchor
    lhs, rhs = draft.product(anchor).src
    (m, k), n = lhs.shape[-2:], rhs.shape[-1]
    assert isinstance(k, int), "all of the kernel's shapes are numbers"
    narrow = operand_dtype(anchor)
    left, right = (reshape(cast(side, narrow), side.shape[-2:]) for side in (lhs, rhs))
    whole = Op(OpCode.MATMUL, dtypes.float32, (left, right), anchor.arg)
    plain = replace(product_of(Nest(nest.kind, whole.shape, (), whole, ((0, whole),))), parts=parts)
    length = plain.steps * plain.step
    if (parts - 1) * length >= k:
        raise NotPlain(f"K of {k} is too short for {parts} parts")
    left, right = pad_axis(left, 1, 0, parts * length - k), pad_axis(right, 0, 0, parts * length - k)
    left = permute(reshape(left, (m, parts, length)), (1, 0, 2))
    right = reshape(right, (parts, length, n))
    product = Op(OpCode.MATMUL, dtypes.float32, (left, right), anchor.arg)
    held = draft.temporary(product)
    value = shrink_axis(held, 0, 0, 1)
    for part in range(1, parts):
        value += shrink_axis(held, 0, part, part + 1)
    became = cast(reshape(value, anchor.shape), anchor.dtype)
    values = substitute([value for _, value in nest.outputs], {anchor: became})
    rest = tuple((slot, value) for (slot, _), value in zip(nest.outputs, values))
    first = Nest(nest.kind, product.shape, (), product, ((held.arg[0], product),))
    summed = Nest(NestKind.ELEMENTWISE, nest.domain, (), None, rest)
    return draft.finish(first, [summed], replace(plain, out=held.arg[0]))


# ---- products that a library computes ----
NARROW = (dtypes.float16, dtypes.bfloat16)
DTYPES = (dtypes.float32, *NARROW)  # their sums are float32, here and in a library
SIDES = ("the left operand", "the right operand")


def product_of(nest: Nest) -> PlainProduct:
    """Returns the product that a library would compute for a nest; raises NotPlain if none can.

    It must be one product with one result, whose operands are in memory with contiguous rows or columns at equal
    distances, as are the matrices of a batch. Views may be transposed, blocks, or heads of an attention. Operands of 16
    bits may be widened to float32 before: their products are exact then, as in the library. The result may have nothing
    but a library's own epilogue.
    """
    anchor, ((out, value), *others) = nest.anchor, nest.outputs
    if others:
        raise NotPlain("it has several results")
    product = replace(_product(anchor, out, value.dtype), epilogue=epilogue_of(value, anchor))
    if product.out_dtype not in (product.dtype, anchor.dtype.name):
        raise NotPlain(f"its result is {product.out_dtype}")
    return product


def _product(anchor: Op, out: int, out_dtype: DType) -> PlainProduct:
    """Returns the product of operands that are in memory in a library's layout; raises NotPlain."""
    *outer, m, n = known_numbers(anchor.shape)
    k = known_numbers(anchor.src[0].shape)[-1]
    batch = numel(outer)
    assert isinstance(batch, int)
    if not batch * m * n * k:
        raise NotPlain("it is empty")
    if anchor.dtype not in DTYPES:
        raise NotPlain(f"its dtype is {anchor.dtype}")
    dtype = operand_dtype(anchor)
    a, b = (matrix_of(operand, dtype, name) for operand, name in zip(anchor.src, SIDES))
    tf32 = takes_tf32(anchor) and dtype is dtypes.float32
    return PlainProduct(a, b, out, batch, m, n, k, dtype.name, out_dtype.name, tf32)


def operand_dtype(anchor: Op) -> DType:
    """Returns the dtype in which a product's operands are read: a narrow one if both are widened before the product."""
    read = {_source_dtype(operand) for operand in anchor.src}
    narrow = read.pop() if len(read) == 1 else anchor.dtype
    return narrow if anchor.dtype is dtypes.float32 and narrow in NARROW else anchor.dtype


def _source_dtype(operand: Op) -> DType:
    element = element_anywhere(operand)
    return element.src[0].dtype if element.code is OpCode.CAST else element.dtype


# ---- strided matrices ----
class NotPlain(Exception):
    """Raised with the reason why a library cannot compute this product."""


def known_numbers(shape: Shape) -> list[int]:
    """Returns a shape of numbers; raises NotPlain."""
    known = [dim for dim in shape if isinstance(dim, int)]
    if len(known) < len(shape):
        raise NotPlain("its shape is symbolic")
    return known


def matrix_of(operand: Op, dtype: DType, name: str) -> Matrix:
    """Returns the matrix of an operand, as elements of a dtype; raises NotPlain."""
    load = element_anywhere(operand)
    if load.code is OpCode.CAST and load.src[0].dtype is dtype:
        load = load.src[0]
    if load.code is not OpCode.LOAD or load.dtype is not dtype:
        raise NotPlain(f"{name} is computed")
    if len(load.src) > 2:
        raise NotPlain(f"{name} is padded with zeros")
    return matrix_at(load, known_numbers(operand.shape), name)


def matrix_at(load: Op, extents: Sequence[int], name: str) -> Matrix:
    """Returns the batch of matrices of which `load` reads the element at placeholders of its axes."""
    terms, offset = affine(from_op(load.src[1]))
    *outer, rows, columns = extents
    axes = [placeholder(axis, extent) for axis, extent in enumerate(extents)]
    if not terms.keys() <= {*axes}:
        raise NotPlain(f"{name} is not strided")
    *outer_steps, row_step, column_step = [terms.get(axis, 0) for axis in axes]
    layout = _layout_of(rows, columns, row_step, column_step)
    if layout is None:
        raise NotPlain(f"{name} has no contiguous rows or columns")
    return Matrix(load.src[0].arg[0], offset, *layout, _batch_stride(outer, outer_steps, name))


def _layout_of(rows: int, columns: int, row_step: int, column_step: int) -> tuple[int, bool] | None:
    """Returns the stride of a matrix, and True if it is column-major; None if neither rows nor columns are contiguous.

    >>> _layout_of(4, 3, 10, 1), _layout_of(4, 3, 1, 10), _layout_of(4, 3, 0, 1)
    ((10, False), (10, True), None)
    """
    for length, count, step, stride, is_column_major in (
        (columns, rows, column_step, row_step, False),
        (rows, columns, row_step, column_step, True),
    ):
        if length == 1 or step == 1:
            apart = stride if count > 1 else length
            if apart >= length:  # else they overlap, as windows do
                return apart, is_column_major
    return None


def _batch_stride(extents: Sequence[int], steps: Sequence[int], name: str) -> int:
    """Returns the distance between two matrices of a batch of any axes; raises NotPlain."""
    axes = [(extent, step) for extent, step in zip(extents, steps) if extent > 1]
    if any(outer[1] != inner[1] * inner[0] for outer, inner in zip(axes, axes[1:])) or any(step < 0 for _, step in axes):
        raise NotPlain(f"the matrices of {name} are not at equal distances")
    return axes[-1][1] if axes else 0


# ---- epilogues of a library ----
MORE = "it computes more than the product"


def epilogue_of(value: Op, anchor: Op) -> Epilogue:
    """Returns the epilogue of a product in a library's terms; raises NotPlain if a library has none."""
    product = Op(OpCode.PARAM, anchor.dtype, (), (-1, ()))  # in place of its element: no kernel has such a slot
    rest = element_within(value, placeholders(value.shape), {anchor: product}, range(len(anchor.shape)))
    extents = known_numbers(anchor.shape)
    if rest.code is OpCode.CAST and anchor.dtype is dtypes.float32:  # rounds as storing does
        rest = rest.src[0]
    under = _under_relu(rest)
    scale, factor_added, added, bias = 0.0, 0.0, None, None
    for sign, term in _terms(rest if under is None else under):
        factor, x = _multiple(term)
        factor *= sign
        if x is product and not scale and factor:
            scale = factor
        elif bias is None and factor == 1 and (found := _bias(x, extents, value.dtype)):
            bias = found
        elif added is None and factor and (matrix := _added(x, extents, value.dtype)):
            factor_added, added = factor, matrix
        else:
            raise NotPlain(MORE)
    if not scale:  # 0 is refused, too: a library may skip the product, whose NaN would be lost
        raise NotPlain(MORE)
    return Epilogue(scale, factor_added, added, bias, under is not None)


def _under_relu(value: Op) -> Op | None:
    """Returns x of relu(x); None for any other value."""
    if value.code is not OpCode.WHERE or value.src[0].code is not OpCode.CMPLE:
        return None
    (x, limit), zero, kept = value.src[0].src, *value.src[1:]
    return x if x is kept and is_zero(limit) and is_zero(zero) else None


def _terms(value: Op, sign: float = 1.0) -> Iterator[tuple[float, Op]]:
    """Yields the terms of a sum, each with its sign."""
    if value.code is OpCode.ADD or value.code is OpCode.SUB:
        x, y = value.src
        yield from _terms(x, sign)
        yield from _terms(y, -sign if value.code is OpCode.SUB else sign)
    else:
        yield sign, value


def _multiple(value: Op) -> tuple[float, Op]:
    """Returns (c, x) for a value c * x; (1, value) for one that is not a multiple."""
    if value.code is OpCode.NEG:
        return -1.0, value.src[0]
    if value.code is OpCode.MUL:
        for x, y in (value.src, value.src[::-1]):
            if y.code is OpCode.CONST:
                return float(y.arg), x
    return 1.0, value


def _added(load: Op, extents: list[int], dtype: DType) -> Matrix | None:
    """Returns the matrix that is added; None if it is computed, or not row-major."""
    if not _is_read(load, dtype):
        return None
    try:
        found = matrix_at(load, extents, "what is added")
    except NotPlain:
        return None
    return None if found.is_column_major else found


def _bias(load: Op, extents: list[int], dtype: DType) -> Bias | None:
    """Returns the vector that is added to every row."""
    if not _is_read(load, dtype):
        return None
    terms, offset = affine(from_op(load.src[1]))
    columns = placeholder(len(extents) - 1, extents[-1])
    return Bias(load.src[0].arg[0], offset) if terms == {columns: 1} else None


def _is_read(value: Op, dtype: DType) -> bool:
    """True for a plain LOAD: without a condition or a cast."""
    return value.code is OpCode.LOAD and value.dtype is dtype and len(value.src) == 2
