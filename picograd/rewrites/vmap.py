"""One example's graph becomes the graph of all examples: each Op gets an axis more, so their number does not depend on it.

In:    roots built for one example, and for some Ops their values for all examples, stacked along axis 0
Out:   for each root its value for all examples, or the one value that is the same for all
Called by: transforms/vmap.py, transforms/jacobians.py, tensor/gradients.py.    Next: picograd/rewrites/vmap_rules.py

An Op that no example's value reaches stays as it is. The rules stand in vmap_rules.py; those of CALL and LOOP here, since a
body is a graph again. A body is rewritten once, however many CALLs share it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from picograd import dtype as dtypes
from picograd.errors import UnsupportedOp
from picograd.ir.bodies import WITH_BODY, body_of, with_body
from picograd.ir.build import iota, reduce
from picograd.ir.custom import CustomGradient, custom_gradient, mark_of
from picograd.ir.lines import copy_lines, line_of
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ATTENTIONS, OpCode
from picograd.rewrites.batch import Examples, Operand, move_axis, spread
from picograd.rewrites.vmap_rules import RULES, attention

MOST_BODIES = 512  # whose rewritten forms are remembered


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


def draws(roots: Sequence[Op], known: Collection[Op]) -> Op | None:
    """Returns a key of random bits that is computed in these graphs, or in a body in them, above what is known."""
    stack = list(toposort(roots, stop=set(known)))
    seen = {*known}
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        if is_key(op):
            return op
        if op.code in WITH_BODY:
            stack += toposort(body_of(op).src)
    return None


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
        draws_anew = self.examples.different and (is_key(op) or op.code in WITH_BODY)
        if draws_anew or any(operand.batched for operand in operands):
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

    A carry is one for each example where it begins so, or where a step makes it so: found by trying until no more change.
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


def _results(op: Op, made: Op, body: Op, batched: Sequence[bool]) -> list[Operand]:
    copy_lines(op, made)
    return [Operand(Op(OpCode.OUTPUT, root.dtype, (made,), i), batched[i]) for i, root in enumerate(body.src)]


@lru_cache(maxsize=MOST_BODIES)
def _body(
    body: Op, slots: frozenset[int], carried: frozenset[int], examples: Examples
) -> tuple[Op, tuple[bool, ...]]:
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


