"""The common parts of all kernels of an attention: lengths, the elements they read, and which query sees which key.

Letters: B batch, H heads, G heads of keys and values (H / G heads share one), T queries, S keys, D features of queries
and keys, E of values. Query t has the position t + S - T among the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context
from picograd.codegen.index import element_within
from picograd.codegen.unfuse import NotPlain
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.attention import is_kept, lengths, mask_of
from picograd.ir.build import both, cast, compare, equal, less_equal, rough_exp, static_shape, unary, where
from picograd.ir.op import Dim, Op, Shape, const
from picograd.ir.opcode import OpCode
from picograd.ir.opts import HeadsMatrix
from picograd.ir.shape import AttentionArg, draws_of
from picograd.ir.stages import Kernel, Nest
from picograd.ir.symbolic import (
    Coords,
    add,
    affine,
    at_least_0,
    ceildiv,
    flatten,
    less,
    minimum,
    mul,
    placeholders,
    reshape_coords,
    subtract,
    to_op,
)
from picograd.record import Record

DQ, DK, DV = range(3)  # the results of an ATTENTION_GRAD
LOWEST = -float(2**127)  # below all scores that count, and finite: of a row that sees nothing -inf - -inf would be NaN

MatrixAt = Callable[[int, Dim, Shape], HeadsMatrix]
Element = Callable[[Dim, Dim], Op]  # (position, feature) -> an element of q, k, v or a gradient, of one head
Dropout = Callable[[Dim, Dim], Callable[[Op], Op]]  # (query, key) -> a weight, or its gradient -> what dropout leaves of it


class Heads(Record, dict=True):
    """The lengths of an ATTENTION or ATTENTION_GRAD.

    anchor:   q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), ...; of an ATTENTION a mask (B, H, T, S), where there is one
    """

    anchor: Op

    @property
    def arg(self) -> AttentionArg:
        return self.anchor.arg

    @property
    def batch(self) -> Dim:
        return self.anchor.src[0].shape[0]

    @cached_property
    def lengths(self) -> tuple[int, int, int, int, int, int]:
        """H, G, T, S, D, E."""
        return lengths(self.anchor)

    @property
    def dtype(self) -> DType:
        """The dtype of all computations."""
        return self.anchor.dtype.compute_dtype

    @property
    def num_queries(self) -> Dim:
        return self.anchor.src[0].shape[2]

    @property
    def num_keys(self) -> Dim:
        return self.anchor.src[1].shape[2]

    @property
    def num_rows(self) -> int:
        """Queries of all heads that share a head of keys."""
        H, G, T = static_shape((self.anchor.src[0].shape[1], self.anchor.src[1].shape[1], self.num_queries))
        return H // G * T

    @property
    def mask(self) -> Op | None:
        """The mask: for each key whether it counts, or a number that is added to its score."""
        return mask_of(self.anchor)

    @property
    def ahead(self) -> Dim:
        """The position of query 0 among the keys."""
        return subtract(self.num_keys, self.num_queries)

    # ---- operands ----
    def element(self, source: int, b: Dim, head: Dim) -> Element:
        """Returns how to read an element of one of the sources."""
        value = self.anchor.src[source]
        return lambda position, feature: cast(element_within(value, (b, head, position, feature)), self.dtype)

    def row(self, source: int, b: Dim, head: Dim) -> Callable[[Dim], Op]:
        """Returns how to read the one number of each query that one of the sources has."""
        value = self.anchor.src[source]
        return lambda query: cast(element_within(value, (b, head, query)), self.dtype)

    # ---- dropout ----
    def dropout(self, b: Dim, head: Dim) -> Dropout:
        """Returns how weights of a head are dropped."""
        if not self.arg.dropout:
            return lambda query, key: lambda value: value
        seed, number = (element_within(source, (b, head)) for source in draws_of(self.anchor))
        first = cast(number * mul(self.num_queries, self.num_keys), dtypes.uint64)

        def at(query: Dim, key: Dim) -> Callable[[Op], Op]:
            place = to_op(add(mul(query, self.num_keys), key))
            kept = is_kept(first + cast(place, dtypes.uint64), seed, self.arg.dropout)
            return lambda value: self.where_kept(kept, value)

        return at

    def where_kept(self, kept: Op, value: Op) -> Op:
        """Returns a weight or the gradient of one after dropout."""
        return where(kept, value * (1.0 / (1.0 - self.arg.dropout)), const(0, value.dtype))

    # ---- scores ----
    def scaled(self, product: Op) -> tuple[Op, Op | None]:
        """Returns the score of a product of a query and a key, and tanh(scale * product / cap) where there is a cap."""
        score, cap = product * self.arg.scale, self.arg.soft_cap
        if not cap:
            return score, None
        bent = unary(OpCode.TANH, score / cap)
        return bent * cap, bent

    def score(self, product: Op, query: Dim, key: Dim, is_inside: Op | bool, mask: Op | None = None) -> Op:
        """Returns the score of a product of a query and a key: -inf where the query does not see the key.

        Args:
          mask: an element of the mask: whether the key counts, or a number that is added
        """
        score, _ = self.scaled(product)
        hidden = const(float("-inf"), score.dtype)
        if mask is not None:
            score = where(mask, score, hidden) if mask.dtype is dtypes.bool_ else score + cast(mask, score.dtype)
        seen = self.seen(query, key, is_inside)
        return score if seen is None else where(seen, score, hidden)

    def inverse(self, total: Op) -> Op:
        """Returns the factor that makes an average of a sum: 1 / total, or 0 for a query that sees nothing."""
        return where(equal(total, 0.0), const(0, total.dtype), unary(OpCode.RECIPROCAL, total))

    def power(self, difference: Op) -> Op:
        """Returns exp of how much less a score is than another: roughly for 16 bits, to which weights are rounded."""
        return rough_exp(difference) if self.anchor.dtype.is_narrow else unary(OpCode.EXP, difference)

    def seen(self, query: Dim, key: Dim, is_inside: Op | bool) -> Op | None:
        """Returns where a query sees a key, compared in integers as wide as a float32; None: everywhere.

        Args:
          is_inside: both are there at all
        """
        t, s = (cast(to_op(position), dtypes.int32) for position in (query, key))
        here = t + (self.ahead if isinstance(self.ahead, int) else cast(self.ahead, dtypes.int32))
        conditions = [is_inside] if isinstance(is_inside, Op) else []
        if self.arg.causal:
            conditions.append(less_equal(s, here))
        if self.arg.window:
            conditions.append(compare(OpCode.CMPLT, here, s + self.arg.window))
        found: Op | None = None
        for condition in conditions:
            found = condition if found is None else both(found, condition)
        return found

    def keys_of(self, first: Dim, count: Dim) -> tuple[Dim, Dim]:
        """Returns from which key on, and to which, some of these queries see any."""
        T, S = self.num_queries, self.num_keys
        start: Dim = 0
        stop: Dim = S
        if self.arg.causal:
            stop = minimum(at_least_0(add(minimum(add(first, count), T), self.ahead)), S)
        if self.arg.window:
            start = minimum(at_least_0(add(first, add(self.ahead, 1 - self.arg.window))), S)
        return start, stop

    def queries_of(self, first: Dim, count: int) -> tuple[Dim, Dim]:
        """Returns from which query on, and to which, any sees some of these keys."""
        T, S = self.num_queries, self.num_keys
        start: Dim = 0
        stop: Dim = T
        if self.arg.causal:
            start = minimum(at_least_0(subtract(first, self.ahead)), T)
        if self.arg.window:
            last = add(minimum(add(first, count), S), subtract(self.arg.window - 1, self.ahead))
            stop = minimum(at_least_0(last), T)
        return start, stop


def num_blocks(length: Dim, block: int) -> Dim:
    """Returns how many blocks it takes to cover a length; none for a negative one."""
    return ceildiv(at_least_0(length), block)


def last_at(position: Dim, length: Dim, step: int) -> Dim:
    """Returns a position, or the last there is for one behind it; none is in tiles of `step` that fit the length."""
    return position if _fits(length, step) else minimum(position, subtract(length, 1))


def is_there(position: Dim, length: Dim, step: int) -> Op | bool:
    """Returns whether there is a position; all are in tiles of `step` that fit the length."""
    return _fits(length, step) or less(position, length)


def _fits(length: Dim, step: int) -> bool:
    return isinstance(length, int) and length % step == 0


# ---- where results are stored ----
# Nests behind an attention that only move its results need not run on a GPU: its kernels store them in their last place.
#
#     out (B, T, H, D) = PERMUTE(averages)        dqkv (B, T, 3, H, D) = PAD(dq) + PAD(dk) + PAD(dv)
def places_of(kernel: Kernel, matrix_at: MatrixAt) -> tuple[dict[int, HeadsMatrix], tuple[tuple[Nest, ...], ...]]:
    """Returns the last place of what a slot receives, if it has another, and the phases behind the attention that run.

    Args:
      matrix_at:  (slot, place of an element, shape) -> the matrix; raises NotPlain where a kernel cannot store there
    """
    places: dict[int, HeadsMatrix] = {}
    rest: list[tuple[Nest, ...]] = []
    for phase in kernel.phases[1:]:
        try:
            found = [_placed(nest, matrix_at) for nest in phase]
        except NotPlain:
            rest.append(phase)
        else:
            for each in found:
                places.update(each)
    return places, tuple(rest)


def _placed(nest: Nest, matrix_at: MatrixAt) -> dict[int, HeadsMatrix]:
    """Returns the places of all that a nest moves, by slot; raises NotPlain where it does something else."""
    ((slot, value), *others) = nest.outputs
    pieces = _pieces(value)
    if others or sum(piece.numel for piece, _ in pieces) != value.numel:
        raise NotPlain("an element does not come from exactly one result")
    at = {piece.arg[0]: (flatten(coords, value.shape), piece.shape) for piece, coords in pieces}
    if len(at) < len(pieces) or any(len(shape) != 4 for _, shape in at.values()):
        raise NotPlain("a result occurs twice, or does not have four axes")
    return {result: matrix_at(slot, index, shape) for result, (index, shape) in at.items()}


def _pieces(value: Op) -> list[tuple[Op, Coords]]:
    """Returns the parameters that a value is put together of, each with the coordinates there of its elements."""
    if not all(isinstance(dim, int) for dim in value.shape):
        raise NotPlain("its shape is symbolic")
    if value.code is OpCode.PARAM:
        return [(value, placeholders(value.shape))]
    if value.code is OpCode.ADD and _are_apart(value):
        return [piece for source in value.src for piece in _pieces(source)]
    if value.code not in (OpCode.RESHAPE, OpCode.PERMUTE, OpCode.PAD):
        raise NotPlain(f"it has a {value.code.name}")
    return [(piece, _moved(value, coords)) for piece, coords in _pieces(value.src[0])]


def _moved(value: Op, coords: Coords) -> Coords:
    """Returns the coordinates in a moved value of an element of its source."""
    if value.code is OpCode.RESHAPE:
        return reshape_coords(coords, value.src[0].shape, value.shape)
    if value.code is OpCode.PERMUTE:
        return tuple(coords[axis] for axis in value.arg)
    return tuple(add(coord, before) for coord, (before, _) in zip(coords, value.arg))


def _are_apart(value: Op) -> bool:
    """True for a sum of PADs along one axis, each 0 where the others are not."""
    terms = [value]
    spans: list[tuple[int, Dim, Dim]] = []  # axis, first and end of the elements that are not zero
    for term in terms:  # which grows meanwhile
        if term.code is OpCode.ADD:
            terms += term.src
            continue
        padded = [axis for axis, pads in enumerate(term.arg) if any(pads)] if term.code is OpCode.PAD else []
        if len(padded) != 1:
            return False
        (axis,) = padded
        spans.append((axis, term.arg[axis][0], term.shape[axis] - term.arg[axis][1]))
    spans.sort()
    return all(one[0] == other[0] and one[2] <= other[1] for one, other in zip(spans, spans[1:]))


def matrix_at(slot: int, index: Dim, shape: Shape) -> HeadsMatrix:
    """Returns the matrix (B, H, T, D) of which an element is at `index`; raises NotPlain where distances are not equal."""
    terms, offset = affine(index)
    axes = placeholders(shape)
    *steps, step = [terms.get(axis, 0) if isinstance(axis, Op) else 0 for axis in axes]
    if not terms.keys() <= {*axes} or step != 1:
        raise NotPlain("its rows or elements are not strided")
    return HeadsMatrix(slot, offset, (steps[0], steps[1], steps[2]))


class Stored(Record):
    """Memory of a result.

    matrix:  its place there, (B, H, T, D) as the last of an element's coordinates; None: it is contiguous
    """

    memory: Op
    matrix: HeadsMatrix | None = None

    def store(self, build: Builder, coords: Sequence[Dim], shape: Shape, value: Op) -> None:
        """Stores an element of a result of that shape."""
        if self.matrix is None:
            build.store(self.memory, flatten(coords, shape), value)
            return
        index: Dim = add(self.matrix.offset, coords[-1])
        for coord, stride in zip(coords[-4:-1], self.matrix.strides):
            index = add(index, mul(coord, stride))
        build.store(self.memory, index, value)


def results_of(nest: Nest, context: Context) -> dict[int, Stored]:
    """Returns the memory of each result of an attention that is asked for."""
    found = {}
    for slot, output in nest.outputs:
        place = context.places.get(slot)
        found[output.arg] = Stored(context.params[slot if place is None else place.slot], place)
    return found
