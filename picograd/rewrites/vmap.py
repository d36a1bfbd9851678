"""One example's graph becomes the graph of all examples: each Op gets an axis more, so their number does not depend on it.

In:    roots built for one example, and for some Ops their values for all examples, stacked along axis 0
Out:   for each root its value for all examples, or the one value that is the same for all

An Op that no example's value reaches stays as it is. One rule for an opcode says how it computes all examples at once; its
operands have an axis of examples in front, or are the same for all. A body of a CALL or a LOOP is a graph again; it is
rewritten once, however many CALLs share it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from picograd import dtype as dtypes
from picograd.errors import GradientError, UnsupportedOp
from picograd.ir.attention import outputs
from picograd.ir.bodies import WITH_BODY, CustomGradient, bodies_in, custom_gradient, mark_of, with_body
from picograd.ir.build import expand, iota, joined, move_all, permute, reduce, reshape, shrink_axis, static_shape, swap_last
from picograd.ir.op import Dim, Op, filled, toposort
from picograd.ir.opcode import ATTENTIONS, ELEMENTWISE, IDENTITY, MOVEMENT, OpCode
from picograd.ir.origin import copy_lines, line_of
from picograd.ir.shape import ConvArg
from picograd.ir.symbolic import mul
from picograd.record import Record, replace


# ---- values with a batch axis ----
class Examples(Record):
    """The examples, as all rules see them.

    count:      how many examples there are
    different:  a random draw has other bits for each of them
    """

    count: Dim
    different: bool = False


class Operand(Record):
    """A source of an Op after the rewrite.

    op:       its value: for each example, along axis 0, or the same for all
    batched:  which of both
    """

    op: Op
    batched: bool

    def each(self, examples: Examples) -> Op:
        """Returns the value with an axis of examples, repeated where it is the same."""
        return self.op if self.batched else spread(self.op, examples.count)


Rule = Callable[[Op, Sequence[Operand], Examples], Op]


def spread(x: Op, count: Dim) -> Op:
    """Returns x repeated along a new axis 0; a value that is repeated already is only repeated more often.

    >>> spread(filled(0.5, dtypes.float32, (3,)), 4) is filled(0.5, dtypes.float32, (4, 3))
    True
    """
    shape = (count, *x.shape)
    if x.code is OpCode.EXPAND:
        inner = x.src[0]
        return expand(reshape(inner, (1, *inner.shape)) if inner.shape else inner, shape)
    return expand(reshape(x, (1, *x.shape)) if x.shape else x, shape)


def move_axis(x: Op, start: int, stop: int) -> Op:
    """Returns x with axis `start` at place `stop`, the others in their order.

    >>> move_axis(filled(0.0, dtypes.float32, (2, 3, 4)), 2, 0).shape
    (4, 2, 3)
    """
    order = [axis for axis in range(len(x.shape)) if axis != start]
    order.insert(stop, start)
    return permute(x, tuple(order))


# ---- rules ----
def _elementwise(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace(tuple(operand.each(examples) for operand in operands))


def _leaf(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """Nobody outside collects a gradient at a leaf that was made for one example."""
    return operands[0].op


def _movement(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return move_all(op, operands[0].op, examples.count)


def _update(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """The block spans all examples."""
    return op.replace(tuple(operand.each(examples) for operand in operands), ((0, examples.count), *op.arg))


# ---- along axes ----
def _reduce(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    operation, axes = op.arg
    return op.replace((operands[0].op,), (operation, tuple(axis + 1 for axis in axes)))


def _scan(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace((operands[0].op,), (op.arg[0], op.arg[1] + 1))


def _sort(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    return op.replace(tuple(operand.each(examples) for operand in operands), (op.arg[0] + 1, *op.arg[1:]))


def _gather(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """x is never repeated: its rows are taken for all examples at once where only the index differs.

    x (batch..., left..., K, right...), index (batch..., J...) -> (batch..., left..., J..., right...)
    """
    (axis, batch), (x, index) = op.arg, operands
    if x.batched and (index.batched or batch):
        return op.replace((x.op, index.each(examples)), (axis + 1, batch + 1))
    if x.batched:
        return op.replace((x.op, index.op), (axis + 1, 0))
    taken = op.replace((x.op, move_axis(index.op, 0, batch)), (axis, batch))  # (batch..., left..., B, J..., right...)
    return move_axis(taken, axis, 0)


def _scatter(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    operation, axis, batch = op.arg
    base, index, updates = operands
    if batch or index.batched:
        return op.replace(tuple(operand.each(examples) for operand in operands), (operation, axis + 1, batch + 1))
    return op.replace((base.each(examples), index.op, updates.each(examples)), (operation, axis + 1, 0))


# ---- contractions ----
def _matmul(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """Examples that share an operand are further rows, or columns, of one product.

    (B, ..., M, K) @ (..., K, N) = (..., B M, K) @ (..., K, N)
    """
    lhs, rhs = operands
    if lhs.batched and rhs.batched:
        return op.replace((lhs.op, rhs.op))
    if rhs.batched:  # (a b)^T = b^T a^T
        return swap_last(_rows_of_all(op, swap_last(rhs.op), swap_last(lhs.op), examples))
    return _rows_of_all(op, lhs.op, rhs.op, examples)


def _rows_of_all(op: Op, lhs: Op, rhs: Op, examples: Examples) -> Op:
    batch = rhs.shape[:-2]
    rows, common = lhs.shape[-2:]
    moved = move_axis(lhs, 0, len(batch))  # (..., B, M, K)
    product = op.replace((reshape(moved, (*batch, mul(examples.count, rows), common)), rhs))
    split = reshape(product, (*batch, examples.count, rows, rhs.shape[-1]))
    return move_axis(split, len(batch), 0)


def _conv(op: Op, operands: Sequence[Operand], examples: Examples) -> Op:
    """Examples are further images where they share w, further outputs where they share x, else further groups."""
    x, w = operands
    arg: ConvArg = op.arg
    count, places = examples.count, op.shape[2:]
    if not w.batched:
        every = reshape(x.op, (mul(count, x.op.shape[1]), *x.op.shape[2:]))
        return reshape(op.replace((every, w.op)), (count, *op.shape))
    outputs, inputs, *taps = static_shape(op.src[1].shape)
    images, each = op.shape[0], outputs // arg.groups
    if not x.batched:
        by_group = move_axis(reshape(w.op, (count, arg.groups, each, inputs, *taps)), 0, 1)  # (groups, B, O / groups, ...)
        made = op.replace((x.op, reshape(by_group, (mul(count, outputs), inputs, *taps))))
        split = move_axis(reshape(made, (images, arg.groups, count, each, *places)), 2, 0)
        return reshape(split, (count, *op.shape))
    channels, *lengths = op.src[0].shape[1:]
    side_by_side = reshape(move_axis(x.op, 0, 1), (images, mul(count, channels), *lengths))
    filters = reshape(w.op, (mul(count, outputs), inputs, *taps))
    (number,) = static_shape((count,))
    made = op.replace((side_by_side, filters), replace(arg, groups=arg.groups * number))
    return move_axis(reshape(made, (images, count, outputs, *places)), 1, 0)


RULES: Mapping[OpCode, Rule] = {
    **dict.fromkeys(ELEMENTWISE | IDENTITY | {OpCode.COPY}, _elementwise),
    **dict.fromkeys(MOVEMENT, _movement),
    OpCode.LEAF: _leaf,
    OpCode.REDUCE: _reduce,
    OpCode.SCAN: _scan,
    OpCode.SORT: _sort,
    OpCode.GATHER: _gather,
    OpCode.SCATTER: _scatter,
    OpCode.UPDATE: _update,
    OpCode.MATMUL: _matmul,
    OpCode.CONV: _conv,
    OpCode.CUSTOM: _elementwise,  # a function of the host takes any axes in front
}


def attention(op: Op, operands: Sequence[Operand], examples: Examples) -> list[Op]:
    """Returns the results of the ATTENTION, or its gradients, of all examples, which are further entries of the batch."""
    folded = [operand.each(examples) for operand in operands]
    sources = tuple(reshape(x, (mul(examples.count, x.shape[1]), *x.shape[2:])) for x in folded)
    every = outputs(op.replace(sources))
    return [reshape(result, (examples.count, *one.shape)) for result, one in zip(every, outputs(op))]


# ---- graphs ----
BODIES_MAX = 512  # whose rewritten forms are remembered


def for_all(
    roots: Sequence[Op], examples: Examples, values: Mapping[Op, Op], known: Collection[Op] = frozenset()
) -> list[Operand]:
    """Returns the roots for all examples.

    Args:
      examples:  how many there are, and whether they draw the same random bits
      values:    Op of one example -> its value for all examples, (count, *its shape)
      known:     Ops that are the same for all examples: the graph below is not looked at

    Raises:
      UnsupportedOp: an Op that examples reach has no rule.

    Cost:      linear in Ops; the result has as many for 2 examples as for 200.

    >>> x, w = (Op(OpCode.PARAM, dtypes.float32, (), (slot, (2, 2))) for slot in (0, 1))
    >>> xs = Op(OpCode.PARAM, dtypes.float32, (), (0, (5, 2, 2)))
    >>> [operand.op.shape for operand in for_all([x + w, w * w], Examples(5), {x: xs})]
    [(5, 2, 2), (2, 2)]
    """
    rewrite = _Rewrite(examples, values)
    for op in toposort(roots, stop={*values, *known}):
        if op not in known:
            rewrite.look(op)
    return [rewrite.operand(root) for root in roots]


def for_rows(
    graphs: Callable[[Sequence[Op]], list[Op]], rows: Mapping[Op, Op], count: Dim, on_the_way: Iterable[Op], apart: bool
) -> list[Op]:
    """Returns graphs for each row of some values: one graph over stand-ins for a row serves all rows.

    Where the gradient of a CALL is computed by a function that may read its values, each row has a graph of its own.

    Args:
      graphs:      of a value for each stand-in, gradients of what is on the way
      rows:        stand-in -> its values, a row for each graph
      count:       how many rows there are
      apart:       each row has a graph of its own in any case
    """
    gradients = [custom_gradient(op.arg) for op in on_the_way if op.code is OpCode.CALL]
    apart = apart or any(made is not None and made.backward is None for made in gradients)
    if not apart or not isinstance(count, int):
        examples = Examples(count)
        return [operand.each(examples) for operand in for_all(graphs([*rows]), examples, rows)]
    by_row = [graphs([reshape(shrink_axis(op, 0, i, i + 1), op.shape[1:]) for op in rows.values()]) for i in range(count)]
    return [joined([reshape(op, (1, *op.shape)) for op in row], 0) for row in zip(*by_row)]


def draws(roots: Sequence[Op], known: Collection[Op]) -> Op | None:
    """Returns a key of random bits that is computed in these graphs, or in a body in them, above what is known."""
    outside = [op for op in toposort(roots, stop=set(known)) if op not in known]
    inside = (op for body in bodies_in(outside) for op in toposort(body.src))
    return next(filter(is_key, (*outside, *inside)), None)


def is_key(op: Op) -> bool:
    """True for the key of a random draw: bits of the draw's number, where bits of elements have an axis."""
    return op.code is OpCode.THREEFRY and not op.shape


class _Rewrite:
    """A rewrite under way.

    became:   Op -> what it is now, where that is another Op
    batched:  Ops whose value has an axis of examples now
    results:  results of Ops with several
    """

    def __init__(self, examples: Examples, values: Mapping[Op, Op]):
        self.examples = examples
        self.became: dict[Op, Op] = dict(values)
        self.batched: set[Op] = set(values)
        self.results: dict[Op, list[Operand]] = {}

    def operand(self, op: Op) -> Operand:
        return Operand(self.became.get(op, op), op in self.batched)

    def look(self, op: Op) -> None:
        """Rewrites an Op whose sources are rewritten."""
        if op in self.batched:
            return
        if op.code is OpCode.OUTPUT and op.src[0] in self.results:
            self._keep(op, self.results[op.src[0]][op.arg])
            return
        operands = [self.operand(s) for s in op.src]
        draws_again = self.examples.different and (is_key(op) or op.code in WITH_BODY)
        if draws_again or any(operand.batched for operand in operands):
            self._rewrite(op, operands)
        elif any(s in self.became for s in op.src):
            self._keep(op, Operand(op.replace(tuple(operand.op for operand in operands)), False))

    def _rewrite(self, op: Op, operands: Sequence[Operand]) -> None:
        """Finds what computes an Op for all examples, one of whose operands at least differs from example to example."""
        if op.code in ATTENTIONS:
            self.results[op] = [Operand(result, True) for result in attention(op, operands, self.examples)]
            self._keep(op, Operand(self.results[op][0].op, True))
        elif op.code is OpCode.CALL:
            self.results[op] = _call(op, operands, self.examples)
        elif op.code is OpCode.LOOP:
            self.results[op] = _loop(op, operands, self.examples)
        elif op.code is OpCode.KERNEL:
            self.results[op] = _kernel(op, operands, self.examples)
        elif is_key(op) and not any(operand.batched for operand in operands):
            self._keep(op, Operand(_keys(op.replace(tuple(operand.op for operand in operands)), self.examples), True))
        else:
            rule = RULES.get(op.code)
            if rule is None:
                raise UnsupportedOp(f"vmap: {op.code.name} has no rule for several examples.", line=line_of(op))
            self._keep(op, Operand(rule(op, operands, self.examples), True))

    def _keep(self, op: Op, operand: Operand) -> None:
        self.became[op] = operand.op
        if operand.batched:
            self.batched.add(op)
        copy_lines(op, operand.op)


def _keys(key: Op, examples: Examples) -> Op:
    """Returns a key for each example: bits of its number under the key of the draw."""
    return Op(OpCode.THREEFRY, key.dtype, (iota(examples.count, dtypes.uint64), spread(key, examples.count)))


# ---- bodies ----
def _call(op: Op, operands: Sequence[Operand], examples: Examples) -> list[Operand]:
    """One CALL of all examples."""
    slots = frozenset(i for i, operand in enumerate(operands) if operand.batched)
    written = custom_gradient(op.arg)
    every = frozenset(range(len(op.arg.src))) if written is not None else frozenset[int]()
    body, batched = _body(op.arg, slots, every, examples)
    if written is not None:
        body = Op(OpCode.SINK, body.dtype, body.src, mark_of(_gradient_of_all(written, slots, examples)))
    made = op.replace(tuple(operand.op for operand in operands), body)
    return _results(op, made, body, batched)


def _gradient_of_all(made: CustomGradient, slots: frozenset[int], examples: Examples) -> CustomGradient:
    """Returns the user's gradient for all examples, summed over them where a source is the same for all."""
    if made.backward is None:
        raise GradientError("vmap: a function of the user's read values, so its gradient is not a graph.")
    num_reads, num_params = len(made.reads), len(made.reads) + made.num_results
    batched = {i for i, (kind, number) in enumerate(made.reads) if kind == "result" or number in slots}
    body, found = _body(made.backward, frozenset({*batched, *range(num_reads, num_params)}), frozenset(), examples)
    roots: list[Op] = []
    places: list[int | None] = []
    for slot, place in enumerate(made.places):
        if place is None:
            places.append(None)
            continue
        each = Operand(body.src[place], found[place]).each(examples)
        places.append(len(roots))
        roots.append(each if slot in slots else reduce(each, OpCode.ADD, (0,)))
    back = Op(OpCode.SINK, body.dtype, tuple(roots), body.arg) if roots else body
    return CustomGradient(back, made.reads, made.num_results, tuple(places))


def _loop(op: Op, operands: Sequence[Operand], examples: Examples) -> list[Operand]:
    """One LOOP of all examples, each step of which makes a step of every one.

    A carry is one for each example where it begins so, or where a step makes it so: found by trying until nothing changes.
    """
    body, num_carry, _ = op.arg
    slots = frozenset(i for i, operand in enumerate(operands) if operand.batched)
    while True:
        made_body, batched = _body(body, slots, frozenset(i for i in slots if i < num_carry), examples)
        more = frozenset(i for i in range(num_carry) if batched[i])
        if more <= slots:
            break
        slots |= more
    sources: list[Op] = []
    for i, operand in enumerate(operands):
        if i >= num_carry and operand.batched:
            sources.append(move_axis(operand.op, 0, 1))  # (steps, B, ...)
        else:
            sources.append(operand.each(examples) if i in slots else operand.op)
    made = with_body(op, made_body, tuple(sources))
    results = _results(op, made, made_body, batched)
    return [
        Operand(move_axis(result.op, 1, 0), True) if result.batched and i >= num_carry else result
        for i, result in enumerate(results)
    ]


def _kernel(op: Op, operands: Sequence[Operand], examples: Examples) -> list[Operand]:
    """A LOOP that launches a user's kernel for one example after the other; numbers stay written out in it."""
    own, shapes, _ = op.arg
    if examples.count == 0:
        return [Operand(filled(0, dtype, (0, *shape)), True) for dtype, shape in zip(own.results, shapes)]
    fixed = [i for i, operand in enumerate(operands) if not operand.batched and operand.op.code is not OpCode.CONST]
    order = [*fixed, *(i for i, operand in enumerate(operands) if operand.batched)]
    inside = [operand.op for operand in operands]
    for slot, i in enumerate(order):
        inside[i] = Op(OpCode.PARAM, op.src[i].dtype, (), (slot, op.src[i].shape))
    call = op.replace(tuple(inside))
    copy_lines(op, call)
    rows = [Op(OpCode.OUTPUT, dtype, (call,), i) for i, dtype in enumerate(own.results)]
    roots = [*(inside[i] for i in fixed), *rows]
    body = Op(OpCode.SINK, roots[0].dtype, tuple(roots))
    loop = Op(OpCode.LOOP, body.dtype, tuple(operands[i].op for i in order), (body, len(fixed), examples.count))
    return _results(op, loop, body, [False] * len(fixed) + [True] * len(rows))[len(fixed) :]


def _results(op: Op, made: Op, body: Op, batched: Sequence[bool]) -> list[Operand]:
    copy_lines(op, made)
    return [Operand(Op(OpCode.OUTPUT, root.dtype, (made,), i), batched[i]) for i, root in enumerate(body.src)]


@lru_cache(maxsize=BODIES_MAX)
def _body(body: Op, slots: frozenset[int], carried: frozenset[int], examples: Examples) -> tuple[Op, tuple[bool, ...]]:
    """Returns a body for all examples.

    Args:
      slots:    PARAMs that have an axis of examples
      carried:  results that must have one

    Returns:    the body, and which of its results have one
    """
    values = {
        op: Op(OpCode.PARAM, op.dtype, (), (op.arg[0], (examples.count, *op.shape)))
        for op in toposort(body.src)
        if op.code is OpCode.PARAM and op.arg[0] in slots
    }
    roots = for_all(body.src, examples, values)
    roots = [Operand(root.each(examples), True) if i in carried else root for i, root in enumerate(roots)]
    made = Op(OpCode.SINK, roots[0].op.dtype, tuple(root.op for root in roots), body.arg)
    return made, tuple(root.batched for root in roots)
