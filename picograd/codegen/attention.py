"""The common parts of all kernels of an attention: lengths, the elements they read, and which query sees which key.

Letters: B batch, H heads, G heads of keys and values (H / G heads share one), T queries, S keys, D features of queries
and keys, E of values. Query t has the position t + S - T among the keys.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.codegen.index import element_within
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.attention import is_kept, lengths, mask_of
from picograd.ir.build import both, cast, compare, rough_exp, static_shape, unary, where
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg, draws_of
from picograd.ir.symbolic import add, at_least_0, ceildiv, less, minimum, mul, subtract, to_op
from picograd.record import Record

DQ, DK, DV = range(3)  # the results of an ATTENTION_GRAD
LOWEST = -float(2**127)  # below all scores that count, and finite: of a row that sees nothing -inf - -inf would be NaN

Element = Callable[[Dim, Dim], Op]  # (position, feature) -> an element of q, k, v or a gradient, of one head
Dropout = Callable[[Dim, Dim], Callable[[Op], Op]]  # (query, key) -> a weight, or its gradient -> what dropout leaves of it


class Heads(Record, dict=True):
    """The lengths of an ATTENTION or ATTENTION_GRAD.

    anchor:   q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), ...; of an ATTENTION a mask (B, H, T, S), where there is one
    """

    anchor: Op

    @property
    def arg(self) -> AttentionArg:
        found: AttentionArg = self.anchor.arg
        return found

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

    # ---- what is read ----
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
        return where(compare(OpCode.CMPEQ, total, 0.0), const(0, total.dtype), unary(OpCode.RECIPROCAL, total))

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
            conditions.append(compare(OpCode.CMPLE, s, here))
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
