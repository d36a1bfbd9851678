"""Gives matrix products and long sums the form that suits their shapes and readers.

In:    a simplified graph
Out:   the same, where products with a vector are sums along rows, as are convolutions like them, transposed
       products are products, and long sums are sums of sums
Called by: road.py.    Next: picograd/schedule/packed.py

    (..., M, K) @ (..., K, 1)  ->  sum over K of a[m, k] * b[k]       read as it lies, and fused like any other sum
    (a @ b).T                  ->  b.T @ a.T                          the same sums, stored as they are asked for
    several products or convolutions of one dear value  ->  the value is stored, once
    conv(x, w), one output a group, few long sums  ->  sums of windows of x times w, as vectors along the sum
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.device import Target
from picograd.ir.attention_parts import parts_of
from picograd.ir.build import cast, expand, gather, iota, permute, reduce, repeat_axes, reshape, swap_last
from picograd.ir.lines import copy_lines
from picograd.ir.op import Op, greatest_numel, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, TRANSCENDENTAL, OpCode
from picograd.ir.shape import MatmulArg, takes_tf32
from picograd.schedule.packed import is_of_bytes, of_elements, product_of_parts, sum_of_products
from picograd.schedule.phases import by_phases, has_phases
from picograd.schedule.pieces import in_pieces, is_long
from picograd.schedule.weight_gradients import (
    is_narrow,
    is_of_pixels,
    operands_by_image,
    sum_of_images,
    with_roles_swapped,
)

LONG = 1024  # terms of a sum that a convolution's blocks are too short for
MANY_STEPS = 64  # of computing a value
MOST_PLACES = 64  # of a window: few


def contract(roots: Sequence[Op], target: Target | None = None) -> list[Op]:
    """Returns the graphs with every product in its best form.

    Args:
      target:  whose kernels the products become; None: any CPU's
    """
    plain_sums = target is not None and target.plain_sums
    order = toposort(roots)
    readers: dict[Op, int] = dict.fromkeys(roots, 1)
    for op in order:
        for s in op.src:
            readers[s] = readers.get(s, 0) + 1
    became: dict[Op, Op] = {}
    shared = shared_by_products(order) | shared_by_convolutions(order)
    for op in order:
        if is_transposed_product(op) and readers[op.src[0]] == 1:
            a, b = (became[s] for s in op.src[0].src)
            became[op] = product(swap_last(b), swap_last(a), op.src[0].arg, plain_sums)
        elif op.code is OpCode.MATMUL:
            became[op] = product(became[op.src[0]], became[op.src[1]], op.arg, plain_sums)
        elif op.code is OpCode.CONV and is_of_pixels(op, target):
            became[op] = sum_of_images(op, product(*operands_by_image(op, *(became[s] for s in op.src)), plain_sums))
        elif op.code is OpCode.CONV and is_narrow(op, target):
            became[op] = with_roles_swapped(op, *(became[s] for s in op.src))
        elif op.code is OpCode.CONV and has_few_long_sums(op):
            became[op] = sums_of_windows(op, *(became[s] for s in op.src))
        elif op.code is OpCode.CONV and has_phases(op):
            became[op] = by_phases(op, *(became[s] for s in op.src))
        elif op.code in (OpCode.ATTENTION, OpCode.ATTENTION_GRAD):
            became[op] = attention(op, [became[s] for s in op.src], target)
        elif op.code is OpCode.OUTPUT and became[op.src[0]].dtype is not op.src[0].dtype:
            became[op] = cast(Op(op.code, became[op.src[0]].dtype, (became[op.src[0]],), op.arg), op.dtype)
        elif is_long(op):
            became[op] = in_pieces(op, became[op.src[0]])
        else:
            src = tuple(map(became.__getitem__, op.src))
            became[op] = op if src == op.src else op.replace(src=src)
        if op in shared:
            became[op] = Op(OpCode.CONTIGUOUS, op.dtype, (became[op],))
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


def is_transposed_product(op: Op) -> bool:
    """True for a PERMUTE that swaps the last two axes of a MATMUL."""
    return is_turned(op) and op.src[0].code is OpCode.MATMUL


def product(a: Op, b: Op, arg: MatmulArg | None = None, plain_sums: bool = False) -> Op:
    """Returns a @ b; with one column multiplied and added up, narrow floats in float32 as MATMUL does.

    So are batches of products with one row, and, unless sums are plain, one with a matrix of integers of one byte: to add
    up along them is twice as fast as to turn them (schedule/packed.py). Any other has a kernel of its own, which adds in
    the order of products of many rows.
    """
    *batch, m, k = a.shape
    n = b.shape[-1]
    is_row = m == 1 and not batch
    if is_row and n != 1 and not is_of_bytes(b):
        return Op(OpCode.MATMUL, a.dtype, (a, b), arg)
    if (m != 1 or is_row and plain_sums) and n != 1 and is_of_bytes(b):
        wide = a.dtype.compute_dtype
        return cast(product_of_parts(cast(a, wide), cast(swap_last(b), wide)), a.dtype)
    if m != 1 and n != 1:
        return Op(OpCode.MATMUL, a.dtype, tuple([stored(x) if is_joined(x) else x for x in (a, b)]), arg)
    wide = a.dtype.compute_dtype
    matrix, vector = (a, swap_last(b)) if n == 1 else (swap_last(b), a)  # (..., M or N, K), (..., 1, K)
    total = cast(sum_of_products(cast(matrix, wide), cast(vector, wide)), a.dtype)
    return reshape(total, (*batch, m, n))


def attention(op: Op, sources: Sequence[Op], target: Target | None) -> Op:
    """Returns an attention: where matrix instructions take its operands as they are, or few queries read them but once, and
    else in the dtype that is computed in, so that narrow ones are widened once, not at each reading."""
    if target is not None and (target.multiplies(op.dtype, takes_tf32(op)) or parts_of(op, target)):
        return op.replace(src=tuple(sources))
    wide = op.dtype.compute_dtype
    return Op(op.code, wide, tuple([cast(s, wide) if s.dtype is op.dtype else s for s in sources]), op.arg)


def shared_by_products(order: Sequence[Op]) -> set[Op]:
    """Returns the exponentials that several batches of products would compute anew while they pack their operands.

    Those of an attention. They depend on a reduction: what is made of a product alone is stored with the product anyway.
    The products have a batch: the exponentials of a classifier are as many as its logits, too many to store. Where one of
    them is computed from another, only the outer one is stored.
    """
    needs_rows: set[Op] = set()  # what a packing would compute from a reduction
    for op in order:
        if any(s.code is OpCode.REDUCE or s in needs_rows for s in of_elements(op)):
            needs_rows.add(op)
    products: dict[Op, set[Op]] = {}  # op -> those whose packing computes it, two at most: more tell no more
    for op in reversed(order):
        if op.code is OpCode.MATMUL and len(op.shape) > 2:
            readers, sources = {op}, op.src
        else:
            readers, sources = products.get(op, set()), () if op.code in TRANSCENDENTAL else of_elements(op)
        for s in sources if readers else ():
            known = products.setdefault(s, set())
            known |= set(list(readers - known)[: 2 - len(known)])
    several = [op for op, readers in products.items() if len(readers) > 1 and op.code in TRANSCENDENTAL]
    return {op for op in several if op.dtype.is_float and op in needs_rows}


def shared_by_convolutions(order: Sequence[Op]) -> set[Op]:
    """Returns what several convolutions would compute anew from two values or more as large as itself, or in MANY_STEPS.

    As the gradient behind a normalization, which that of x and that of the weight read: windows overlap, so that blocks of
    positions compute their edges more than once.
    """
    readers: dict[Op, set[Op]] = {}
    for op in order:
        for s in op.src if op.code is OpCode.CONV else ():
            while s.code in MOVEMENT:
                s = s.src[0]
            if s.code in ELEMENTWISE:
                readers.setdefault(s, set()).add(op)
    return {op for op, convolutions in readers.items() if len(convolutions) > 1 and _reads_several(op)}


def _reads_several(op: Op) -> bool:
    """True for a value that is computed from several as large as itself, or in a great many steps."""
    large: set[Op] = set()
    seen, stack = {op}, [op]
    while stack and len(large) < 2 and len(seen) < MANY_STEPS:
        at = stack.pop()
        if at.code not in ELEMENTWISE and at.code not in MOVEMENT:
            large |= {at} if greatest_numel(at.shape) >= greatest_numel(op.shape) else set()
        else:
            stack += [s for s in at.src if s not in seen]
            seen.update(at.src)
    return bool(stack) or len(large) > 1


def is_joined(operand: Op) -> bool:
    """True for what several values were joined to: PADs, each 0 where the others are not, added up and moved."""
    while operand.code in MOVEMENT and operand.code is not OpCode.PAD:
        operand = operand.src[0]
    sums = {operand: None} if operand.code is OpCode.ADD else {}
    stack = list(sums)
    while stack:
        for s in stack.pop().src:
            if s.code is OpCode.ADD and s not in sums:
                sums[s] = None
                stack.append(s)
            elif s.code is not OpCode.ADD and s.code is not OpCode.PAD:
                return False
    return bool(sums)


def stored(operand: Op) -> Op:
    """Returns an operand that is computed before, once for all products that read it, and not in each one's packing.

    It is stored as it was joined: a view of it is as good, and a product turns its last two axes by itself.
    """
    if operand.code is OpCode.RESHAPE or is_turned(operand):
        return operand.replace(src=(stored(operand.src[0]),))
    return Op(OpCode.CONTIGUOUS, operand.dtype, (operand,))


def is_turned(op: Op) -> bool:
    """True for a PERMUTE that swaps the last two axes."""
    ndim = len(op.shape)
    return op.code is OpCode.PERMUTE and bool(op.arg == (*range(ndim - 2), ndim - 1, ndim - 2))


def has_few_long_sums(op: Op) -> bool:
    """True for a CONV that is a product with a vector in each group: the gradient of a weight by channels of their own."""
    w, arg = op.src[1], op.arg
    if w.shape[0] != arg.groups or not op.dtype.is_float or set(arg.input_dilation) != {1}:
        return False
    return greatest_numel(w.shape[1:]) >= LONG and greatest_numel(op.shape[2:]) <= MOST_PLACES


def sums_of_windows(op: Op, x: Op, w: Op) -> Op:
    """Returns a CONV with one output a group as a sum of products; outside of x a gather reads 0."""
    arg, axes, wide = op.arg, len(op.shape) - 2, op.dtype.compute_dtype
    batch, groups = x.shape[0], arg.groups
    windows = reshape(x, (batch, groups, w.shape[1], *x.shape[2:]))
    for i in reversed(range(axes)):
        shape = (op.shape[2 + i], w.shape[2 + i])
        starts, steps = (repeat_axes(iota(n), (1 - axis,), shape) for axis, n in enumerate(shape))
        windows = gather(windows, starts * arg.stride[i] + steps * arg.dilation[i] - arg.padding[i][0], 3 + i, 0)
    places, taps = tuple(range(3, 3 + 2 * axes, 2)), tuple(range(4, 4 + 2 * axes, 2))
    windows = permute(windows, (0, 1, *places, 2, *taps))  # (B, G, *places, C, *taps)
    weight = reshape(w, (1, groups, *(1 for _ in places), *w.shape[1:]))
    terms = cast(windows, wide) * expand(cast(weight, wide), windows.shape)
    return cast(reduce(terms, OpCode.ADD, tuple(range(2 + axes, 3 + 2 * axes))), op.dtype)
