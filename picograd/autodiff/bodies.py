"""The derivatives of CALL: CALLs of the derivatives of its body.

In:    a CALL, and gradients of its results or tangents of its arguments
Out:   gradients of its arguments, tangents of its results
Next:  picograd/autodiff/attention.py

Reverse: the CALL gives, as further results, what its backward part reads of it (split.py); that part is a CALL of those
and of the gradients that arrive. Where the body says RECOMPUTE, the backward part gets the arguments and computes the
body again. A body is differentiated once, however many CALLs share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from picograd.autodiff.flow import is_differentiable
from picograd.autodiff.forward import forward
from picograd.autodiff.reverse import reverse
from picograd.autodiff.split import RECOMPUTE, Kept, constant_part, keep
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import PatternMatcher
from picograd.ir.substitute import numbered, param, substitute
from picograd.record import Record

MOST_BODIES = 512  # whose derivatives are remembered; bodies hold no memory


def sink(roots: Sequence[Op], mark: str | None = None) -> Op:
    """Returns a body."""
    return Op(OpCode.SINK, roots[0].dtype, tuple(roots), mark)


def output(producer: Op, roots: Sequence[Op], number: int) -> Op:
    """Returns result `number` of a CALL or a LOOP with these roots."""
    return Op(OpCode.OUTPUT, roots[number].dtype, (producer,), number)


def params_of(roots: Sequence[Op]) -> dict[int, Op]:
    """Returns the PARAMs of a body by slot."""
    return {op.arg[0]: op for op in toposort(roots) if op.code is OpCode.PARAM}


def body_gradients(
    roots: Sequence[Op], seeds: Mapping[int, Op], wanted: Sequence[Op], rules: PatternMatcher
) -> dict[Op, Op]:
    """Returns the gradients of PARAMs from those of results, where two results may be one Op."""
    arriving: dict[Op, Op] = {}
    for number, seed in seeds.items():
        root = roots[number]
        arriving[root] = arriving[root] + seed if root in arriving else seed
    return reverse(arriving, wanted, rules, through=is_differentiable)


# ---- reverse ----
class CallGradient(Record):
    """The backward part of a CALL, for any arguments.

    forward:  the body with what is kept as further results
    body:     of the backward CALL
    reads:    what its sources are: ("source", slot), ("result", number) or ("grad", number of the result)
    places:   for each source asked for the result that is its gradient, or None
    """

    forward: Op
    body: Op | None
    reads: tuple[tuple[str, int], ...]
    places: tuple[int | None, ...]


def call_reverse(call: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the arguments of a CALL that are needed."""
    given = tuple((number, constant_part(grads[number])) for number in sorted(grads))
    made = _call_gradient(call.arg, given, tuple(needed), len(call.src), rules)
    if made.body is None:
        return [None] * len(needed)
    kept = call.replace(arg=made.forward)

    def read(kind: str, number: int) -> Op:
        if kind == "source":
            return call.src[number]
        if kind == "grad":
            return grads[number]
        return output(call if number < len(call.arg.src) else kept, made.forward.src, number)

    back = Op(OpCode.CALL, made.body.dtype, tuple(read(*what) for what in made.reads), made.body)
    return [None if place is None else output(back, made.body.src, place) for place in made.places]


@lru_cache(maxsize=MOST_BODIES)
def _call_gradient(
    body: Op, given: tuple[tuple[int, Op | None], ...], needed: tuple[int, ...], num_sources: int, rules: PatternMatcher
) -> CallGradient:
    """Builds the backward body of a CALL, and the forward body that keeps what that reads."""
    params = params_of(body.src)
    seeds = {number: param(body.src[number], num_sources + number) for number, _ in given}
    found = body_gradients(body.src, seeds, [params[slot] for slot in needed if slot in params], rules)
    grads = [found.get(params[slot]) if slot in params else None for slot in needed]
    roots = [grad for grad in grads if grad is not None]
    if not roots:
        return CallGradient(body, None, (), (None,) * len(needed))
    again = body.arg == RECOMPUTE
    available = {*params.values()} if again else {*params.values(), *body.src}
    kept = _all_again(roots, params) if again else keep(roots, {*seeds.values()}, available)
    varying_seeds = [seeds[number] for number, constant in given if constant is None]
    results = (*body.src, *kept.saved)
    slots: dict[Op, tuple[str, int]] = {op: ("result", i) for i, op in reversed(list(enumerate(results)))}
    slots.update((op, ("source", slot)) for slot, op in params.items())
    slots.update((op, ("grad", number)) for number, op in seeds.items())
    inputs = [*kept.reads, *varying_seeds]
    constants = {seeds[number]: constant for number, constant in given if constant is not None}
    back = sink(numbered(substitute(roots, constants), inputs), body.arg)
    places = {grad: i for i, grad in reversed(list(enumerate(roots)))}
    forward_body = sink(results, body.arg) if kept.saved else body
    return CallGradient(
        forward_body, back, tuple(slots[op] for op in inputs), tuple(None if g is None else places[g] for g in grads)
    )


def _all_again(gradients: Sequence[Op], params: Mapping[int, Op]) -> Kept:
    """Returns that nothing is kept: the body is computed again from its arguments."""
    read = set(toposort(gradients))
    return Kept((), tuple(op for op in params.values() if op in read))


# ---- forward ----
def call_forward(call: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangents of the results of a CALL: one CALL of its arguments and their tangents."""
    moving = tuple(i for i, part in enumerate(parts) if part is not None)
    body, places = _call_tangent(call.arg, moving, len(call.src), rules)
    if body is None:
        return [None] * len(places)
    tangents = [part for part in parts if part is not None]
    made = Op(OpCode.CALL, body.dtype, (*call.src, *tangents), body)
    return [None if place is None else output(made, body.src, place) for place in places]


@lru_cache(maxsize=MOST_BODIES)
def _call_tangent(
    body: Op, moving: tuple[int, ...], num_sources: int, rules: PatternMatcher
) -> tuple[Op | None, tuple[int | None, ...]]:
    params = params_of(body.src)
    tangents = {params[i]: param(params[i], num_sources + n) for n, i in enumerate(moving) if i in params}
    changes = forward(body.src, tangents, rules)
    roots = list(dict.fromkeys(change for change in changes if change is not None))
    places = tuple(None if change is None else roots.index(change) for change in changes)
    return (sink(roots, body.arg) if roots else None), places
