"""Gives matrix products, convolutions, attention and long sums the form that suits their kernels, shapes and readers.

In:    a simplified graph
Out:   `compose_attention`: MATMULs and a softmax where there is no kernel of an attention;
       `contract`: products with a vector as sums along rows, transposed products as products, convolutions as their
       shape asks (rewrites/convolutions.py); long sums as sums of sums; few first places of a long row, on a GPU, as those
       of blocks

    (..., M, K) @ (..., K, 1)  ->  sum over K of a[m, k] * b[k]       read where it is, and fused like any other sum
    (a @ b).T                  ->  b.T @ a.T                          the same sums, stored as they are asked for
    several products or convolutions of one costly value  ->  the value is stored, once
    sum over C of where(i[n] == c, x[n, c], 0), x in memory  ->  x[n, i[n]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isqrt, nan, prod

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.attention import composed, parts_of
from picograd.ir.bodies import map_bodies
from picograd.ir.build import cast, gather, pad_axis, permute, positions, reduce, reshape, swap_last, where
from picograd.ir.op import Dim, Op, const_value, filled, greatest_numel, toposort
from picograd.ir.opcode import ATTENTIONS, ELEMENTWISE, MOVEMENT, TRANSCENDENTAL, OpCode
from picograd.ir.origin import copy_lines
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.symbolic import ceildiv, floordiv
from picograd.rewrites.convolutions import convolution, is_of_pixels
from picograd.rewrites.products import of_elements, product

# ---- the best form of each Op ----
PRODUCTS = ATTENTIONS | {OpCode.MATMUL, OpCode.CONV, OpCode.SORT}


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
    shared = shared_by_products(order) | shared_by_convolutions(order) | joined_for_products(order, target)
    by_rows = averages_by_rows(roots, order, target)
    for op in order:
        src = tuple([became[s] for s in op.src])
        if is_transposed_product(op) and readers[op.src[0]] == 1:
            a, b = (became[s] for s in op.src[0].src)
            new = product(swap_last(b), swap_last(a), op.src[0].arg, plain_sums)
        elif op.code is OpCode.MATMUL:
            new = product(src[0], src[1], op.arg, plain_sums)
        elif op.code is OpCode.CONV:
            new = convolution(op, src[0], src[1], target)
        elif op.code in (OpCode.ATTENTION, OpCode.ATTENTION_GRAD):
            new = attention(op, src, target)
        elif op.code is OpCode.OUTPUT and src[0].dtype is not op.src[0].dtype:
            new = cast(Op(op.code, src[0].dtype, src, op.arg), op.dtype)
        elif op.code is OpCode.PERMUTE:
            new = permute(src[0], op.arg)
        elif has_blocks(op, target):
            new = first_of_blocks(op, src[0])
        elif is_choice_of_memory(op, readers):
            new = chosen(op, *(became[s] for s in (op.src[0].src[1], op.src[0].src[0].src[0].src[0])))
        elif is_long(op):
            new = in_pieces(op, src[0])
        else:
            new = op.replace(src)
        if op in by_rows:
            new = permute(Op(OpCode.CONTIGUOUS, op.dtype, (permute(new, ROWS_FIRST),)), ROWS_FIRST)
        became[op] = Op(OpCode.CONTIGUOUS, op.dtype, (new,)) if op in shared else new
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


CHOSEN_ROW_MIN = 64  # elements of a row that is not read for one of them


def is_choice_of_memory(op: Op, readers: Mapping[Op, int]) -> bool:
    """True for sums along rows in memory of the one element whose number is the row's, where nothing else reads the rows.

    A row that is computed, or that something else walks, has the element at no further cost.
    """
    if op.code is not OpCode.REDUCE or op.arg != (OpCode.ADD, (len(op.shape),)) or op.src[0].code is not OpCode.WHERE:
        return False
    is_equal, x, other = op.src[0].src
    length = x.shape[-1]
    if is_equal.code is not OpCode.CMPEQ or const_value(other) != 0:
        return False
    if not isinstance(length, int) or length < CHOSEN_ROW_MIN:
        return False
    number, places = is_equal.src
    if places is not positions(x.shape, len(op.shape), places.dtype):
        return False
    while x.code in MOVEMENT and readers[x] == 1:
        x = x.src[0]
    in_memory = x.code in (OpCode.PARAM, OpCode.BUFFER) or x.realized is not None
    return in_memory and readers[x] == 1 and number.code is OpCode.EXPAND and number.src[0].shape == (*op.shape, 1)


def chosen(op: Op, x: Op, index: Op) -> Op:
    """Returns the element of each row that has the number of the row's index."""
    rank = len(op.shape)
    return gather(x, cast(reshape(index, op.shape), dtypes.int64), rank, rank)


def attention(op: Op, sources: tuple[Op, ...], target: Target | None) -> Op:
    """Returns an attention of other sources, in float32 where that saves work.

    Narrow operands are then widened once, and not at each reading. They stay as they are where matrix instructions take
    them so, and where few queries read them only once.
    """
    if target is not None and (target.multiplies(op.dtype, takes_tf32(op)) or parts_of(op, target)):
        return op.replace(sources)
    wide = op.dtype.compute_dtype
    return Op(op.code, wide, tuple([cast(s, wide) if s.dtype is op.dtype else s for s in sources]), op.arg)


# ---- products ----
def is_transposed_product(op: Op) -> bool:
    """True for a PERMUTE that swaps the last two axes of a MATMUL."""
    return is_transposed(op) and op.src[0].code is OpCode.MATMUL


def is_transposed(op: Op) -> bool:
    """True for a PERMUTE that swaps the last two axes."""
    ndim = len(op.shape)
    return op.code is OpCode.PERMUTE and bool(op.arg == (*range(ndim - 2), ndim - 1, ndim - 2))


# ---- attention without a kernel ----
def compose_attention(roots: Sequence[Op], has_kernel: Callable[[Op], bool] = lambda op: False) -> list[Op]:
    """Replaces attentions and their gradients, also in the bodies of CALLs and LOOPs.

    Args:
      has_kernel:  whether the device has a kernel of one; none has by default

    After:   no ATTENTION and no ATTENTION_GRAD is left that has no kernel; scores (B, G, R T, S) are values like any other.
    Cost:    one walk where there are none.

    Example: OUTPUT(ATTENTION(q, k, v), 0)  ->  MATMUL(softmax(MATMUL(q, PERMUTE(k)) * scale), v)
    """
    return _compose(map_bodies(roots, partial(_compose, has_kernel=has_kernel)), has_kernel)


def _compose(roots: Sequence[Op], has_kernel: Callable[[Op], bool]) -> list[Op]:
    """Returns the graph with the composition in the place of each attention that has no kernel."""
    order = toposort(roots)
    chosen = {op for op in order if op.code in ATTENTIONS and not has_kernel(op)}
    if not chosen:
        return list(roots)
    became: dict[Op, Op] = {}
    results: dict[Op, list[Op]] = {}
    for op in order:
        if op.code is OpCode.OUTPUT and op.src[0] in results:
            new = results[op.src[0]][op.arg]
        else:
            new = op.replace(tuple(became[s] for s in op.src))
        if op in chosen:
            results[op] = composed(new)
            new = results[op][0]
        became[op] = new
        copy_lines(op, new)
    return [became[root] for root in roots]


# ---- long sums ----
# Takes a reduction of many terms in two steps: pieces, then the results of these.
#
# A row is one thread's, so a sum of all would be one thread's too, and each of its 64 partial sums of 16 million numbers
# would add 262,144 of them one after the other: a float32 loses four of its seven digits that way.
#
#     sum of (4096, 4096)  ->  (512, 8, 4096), its axes 1 and 2 added up  ->  (512,), added up
PIECED_RESULTS_MAX = 8
PIECED_TERMS_MIN = 1 << 17
PIECE_TERMS = 1 << 15
PIECES_MIN = 4
TRIED_MAX = 1 << 20  # enough for all lengths up to 2 ** 40


def is_long(op: Op) -> bool:
    """True for a REDUCE of many terms, whose number is known.

    Where axis 0 is kept, it may be a batch: how a row is added up must not depend on how many there are. Where it is
    reduced, only few results are cut: of many, as of the columns of a matrix, each thread has its own.
    """
    if op.code is not OpCode.REDUCE:
        return False
    x, results = op.src[0], numel(op.shape)
    terms = numel(x.shape[axis] for axis in op.arg[1])
    if not isinstance(terms, int) or terms < PIECED_TERMS_MIN or results == 0:
        return False
    if 0 in op.arg[1] and not (isinstance(results, int) and results <= PIECED_RESULTS_MAX):
        return False
    return prod(_pieces(op)) >= PIECES_MIN


def in_pieces(op: Op, x: Op) -> Op:
    """Returns a long REDUCE of `x` in pieces; a piece is a part of the outermost axes, so that it is walked in order."""
    code, axes = op.arg
    pieces = dict(zip(sorted(axes), _pieces(op)))
    split: list[Dim] = []  # the shape of x with each axis that is cut as two
    inner: list[int] = []  # its axes that are reduced first
    outer: list[int] = []  # and those of the rest then
    for axis, dim in enumerate(x.shape):
        piece = pieces.get(axis, 1)
        if piece > 1:
            outer.append(len(split) - len(inner))
            split.append(piece)
            dim = floordiv(dim, piece)
        if axis in axes:
            inner.append(len(split))
        split.append(dim)
    wide = cast(x, x.dtype.compute_dtype)
    return cast(reduce(reduce(reshape(wide, tuple(split)), code, tuple(inner)), code, tuple(outer)), op.dtype)


def _pieces(op: Op) -> tuple[int, ...]:
    """Returns into how many parts each reduced axis is cut, the outermost first; 1 where it is not."""
    x = op.src[0]
    dims = [dim for axis, dim in enumerate(x.shape) if axis in op.arg[1] and isinstance(dim, int)]
    wanted = prod(dims) // PIECE_TERMS
    found = []
    for dim in dims:
        largest = _largest_divisor(dim, min(dim, wanted))
        found.append(largest)
        wanted //= largest
        if largest < dim:
            wanted = 1  # the inside of a part is not cut
    return tuple(found)


def _largest_divisor(dim: int, most: int) -> int:
    """Returns the largest divisor of `dim` up to `most`, or 1 where that is not found among TRIED_MAX numbers.

    Divisors come in pairs: those above the root are found by their partners below it.
    """
    if most < 1:
        return 1
    root, least_partner = isqrt(dim), ceildiv(dim, most)
    for partner in range(least_partner, min(root, least_partner + TRIED_MAX) + 1):
        if dim % partner == 0:
            return dim // partner
    start = min(most, root)
    return next((n for n in range(start, max(start - TRIED_MAX, 1), -1) if dim % n == 0), 1)


# ---- few first places ----
BLOCK_ELEMENTS_MIN = 64  # elements that are put in order at once, at least
BLOCKS_MIN = 64  # of fewer the whole is put in order: that is fewer kernels


def has_blocks(op: Op, target: Target | None) -> bool:
    """True for few first places along a long last axis, on a GPU."""
    if op.code is not OpCode.SORT or len(op.arg) < 3 or target is None or not target.is_gpu:
        return False
    (x,), (axis, _, count) = op.src, op.arg
    length = x.shape[axis]
    is_long = isinstance(length, int) and length >= BLOCKS_MIN * max(BLOCK_ELEMENTS_MIN, 8 * count)
    return is_long and axis == len(x.shape) - 1


def first_of_blocks(op: Op, x: Op) -> Op:
    """Returns first places as those of what comes first in each block: at most an eighth of the row, and so on.

    Equal elements keep their order, since blocks do, and the filling of the last block is at its end.
    """
    axis, descending, count = op.arg
    rows, length, block = x.shape[:axis], x.shape[axis], max(BLOCK_ELEMENTS_MIN, 8 * count)
    assert isinstance(length, int)
    last = x.dtype.min if descending else nan if x.dtype.is_float else x.dtype.max
    shape = (*rows, length + -length % block)
    inside, padded = (pad_axis(part, axis, 0, -length % block) for part in (filled(True, dtypes.bool_, x.shape), x))
    blocks = reshape(where(inside, padded, filled(last, x.dtype, shape)), (*rows, shape[axis] // block, block))
    first = Op(OpCode.SORT, op.dtype, (blocks,), (axis + 1, descending, count))
    left = (*rows, shape[axis] // block * count)
    values = reshape(gather(blocks, first, axis + 1, axis + 1), left)
    places = reshape(first + positions(first.shape, axis) * block, left)
    chosen = Op(OpCode.SORT, op.dtype, (values,), op.arg)
    chosen = first_of_blocks(chosen, values) if left[axis] >= BLOCKS_MIN * block else chosen
    return gather(places, chosen, axis, axis)


# ---- values that are stored for products ----
COSTLY_STEPS_MIN = 64  # of computing a value


def shared_by_products(order: Sequence[Op]) -> set[Op]:
    """Returns the exponentials that several batches of products would recompute while they pack their operands.

    Those of an attention. They depend on a reduction: what is made of a product alone is stored with the product anyway.
    The products have a batch: the exponentials of a classifier are as many as its logits, too many to store. Where one of
    them is computed from another, only the outer one is stored.
    """
    needs_rows: set[Op] = set()  # what a packing would compute from a reduction
    for op in order:
        if any(s.code is OpCode.REDUCE or s in needs_rows for s in of_elements(op)):
            needs_rows.add(op)
    products: dict[Op, set[Op]] = {}  # op -> those whose packing computes it, two at most: further ones say nothing new
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
    """Elementwise values that several convolutions read and that are costly to recompute: from two large operands, or in
    COSTLY_STEPS_MIN steps.

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
    while stack and len(large) < 2 and len(seen) < COSTLY_STEPS_MIN:
        at = stack.pop()
        if at.code not in ELEMENTWISE and at.code not in MOVEMENT:
            large |= {at} if greatest_numel(at.shape) >= greatest_numel(op.shape) else set()
        else:
            stack += [s for s in at.src if s not in seen]
            seen.update(at.src)
    return bool(stack) or len(large) > 1


def joined_for_products(order: Sequence[Op], target: Target | None) -> set[Op]:
    """Returns the joins of several values that a product reads: each is stored once, for all that read it.

    A product would choose between the values at each element that it packs. A join is stored as it was made: a view of it
    is as good, and a product transposes its last two axes by itself.
    """
    found: set[Op] = set()
    for op in order:
        if op.code is OpCode.MATMUL and 1 not in op.shape[-2:] or op.code is OpCode.CONV and is_of_pixels(op, target):
            found.update(_as_joined(operand) for operand in op.src if is_joined(operand))
    return found


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


def _as_joined(operand: Op) -> Op:
    """Returns the value that a joined operand is a view of."""
    while operand.code is OpCode.RESHAPE or is_transposed(operand):
        operand = operand.src[0]
    return operand


ROWS_FIRST = (0, 2, 1, 3)  # of heads and rows


def averages_by_rows(roots: Sequence[Op], order: Sequence[Op], target: Target | None) -> set[Op]:
    """Returns the averages (B, H, T, D) of attentions that are read by rows, (B, T, H, D), as the next product does.

    Warpgroups store them in that order: products copy tiles of it as it is, and would each transpose another one first.
    """
    if target is None or not target.has_warpgroups:
        return set()
    read = {op.src[0] for op in order if op.code is OpCode.PERMUTE and op.arg == ROWS_FIRST}
    averages = {op for op in read if op.code is OpCode.OUTPUT and op.arg == 0 and op.src[0].code is OpCode.ATTENTION}
    return {op for op in averages if all(isinstance(dim, int) for dim in op.shape)}.difference(roots)
