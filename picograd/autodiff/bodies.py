"""The derivatives of CALL and of Ops like it: CALLs of the derivatives of its body.

The gradient of a body is cut in two. `keep` chooses what the forward part keeps: not what is there anyway (sources,
results), a view of something, or what a few cheap operations make again. The CALL gives these values as further results;
the backward part is a CALL of them and of the gradients that arrive. Where the body says RECOMPUTE, the backward part gets
the arguments and computes the body again. A body is differentiated once, however many CALLs share it.

The gradient of ATTENTION is one ATTENTION_GRAD, which needs no scores in memory. All other derivatives of both are those of
what they are composed of (ir/attention.py), as a body that computes the scores again. A CALL whose body is marked by a
user's function has the gradient that this function gives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial

from picograd.autodiff.modes import arriving, forward, is_differentiable, reverse, transposed
from picograd.errors import GradientError
from picograd.ir.attention import composed, mask_of, outputs
from picograd.ir.bodies import CustomGradient, custom_gradient, numbered, output, param, sink, substitute
from picograd.ir.build import cast, reduce, zeros_like
from picograd.ir.op import Op, const_value, toposort
from picograd.ir.opcode import COMPARE, IDENTITY, MOVEMENT, OpCode
from picograd.ir.pattern import PatternMatcher
from picograd.ir.shape import draws_of
from picograd.record import Record

# ---- forward part and backward part ----
RECOMPUTE = "recompute"  # arg of the SINK of a body whose backward part computes it again
CHEAP = COMPARE | IDENTITY | MOVEMENT | {
    OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.NEG, OpCode.DIV, OpCode.RECIPROCAL, OpCode.FMA, OpCode.MAX, OpCode.MIN,
    OpCode.WHERE, OpCode.CAST, OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.FLOOR,
}  # fmt: skip


class Kept(Record):
    """The values of the forward part that the backward part reads.

    saved:  values that the forward part must give as further results
    reads:  PARAMs, results and saved values that the backward part reads
    """

    saved: tuple[Op, ...]
    reads: tuple[Op, ...]


def keep(gradients: Sequence[Op], seeds: Collection[Op], available: Collection[Op]) -> Kept:
    """Chooses what to keep.

    Args:
      gradients:  graphs over the forward part and `seeds`
      seeds:      PARAMs for the gradients that arrive
      available:  forward values that are there anyway

    Example: gradients [g * tanh(p * 2)], seeds [g], available [p]  ->  saved (tanh(p * 2),)
             gradients [g * (p * 2)]                                ->  saved (), reads (p,)
    """
    order = toposort(gradients, stop=available)
    late = depending(order, seeds, available)
    early = [op for op in order if op not in late]
    read = [s for op in order if op in late for s in op.src]
    needed = {stored_base(op) for op in [*read, *gradients] if op not in late}
    at_hand: set[Op] = set()
    saved: list[Op] = []
    for op in early:
        again = op.code is not OpCode.PARAM and (not op.src or op.code in CHEAP)
        if op in available or (again and at_hand.issuperset(op.src)):
            at_hand.add(op)
        elif op in needed:
            at_hand.add(op)
            saved.append(op)
    return Kept(tuple(saved), reads(gradients, {*available, *saved}))


def depending(order: Sequence[Op], seeds: Collection[Op], available: Collection[Op] = ()) -> set[Op]:
    """Returns those of some Ops, sources first, that depend on the gradients that arrive."""
    late: set[Op] = set()
    for op in order:
        if op in seeds or (op not in available and not late.isdisjoint(op.src)):
            late.add(op)
    return late


def stored_base(op: Op) -> Op:
    """Returns the stored value under `op`: below its views, and below casts to a wider dtype."""
    while op.code in MOVEMENT or (op.code is OpCode.CAST and op.src[0].dtype.itemsize <= op.dtype.itemsize):
        op = op.src[0]
    return op


def reads(gradients: Sequence[Op], there: Collection[Op]) -> tuple[Op, ...]:
    """Returns those of the available values that the gradients read."""
    return tuple(op for op in toposort(gradients, stop=there) if op in there)


def constant_part(grad: Op) -> Op | None:
    """Returns a gradient that is one number everywhere, which a body makes itself, else None."""
    return grad if const_value(grad) is not None else None


# ---- CALL ----
BODIES_MAX = 512  # whose derivatives are remembered; bodies hold no memory


def params_of(roots: Sequence[Op]) -> dict[int, Op]:
    """Returns the PARAMs of a body by slot."""
    return {op.arg[0]: op for op in toposort(roots) if op.code is OpCode.PARAM}


def body_gradients(
    roots: Sequence[Op], seeds: Mapping[int, Op], wanted: Sequence[Op], rules: PatternMatcher
) -> dict[Op, Op]:
    """Returns the gradients of PARAMs from those of results, where two results may be one Op."""
    pairs = ((roots[number], seed) for number, seed in seeds.items())
    return reverse(arriving(pairs), wanted, rules, through=is_differentiable)


# ---- reverse ----
class CallGradient(Record):
    """The backward part of a CALL, for any arguments.

    forward:  the body with the kept values as further results
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
        return output(call if number < len(call.arg.src) else kept, number)

    back = Op(OpCode.CALL, made.body.dtype, tuple(read(*what) for what in made.reads), made.body)
    return [None if place is None else output(back, place) for place in made.places]


@lru_cache(maxsize=BODIES_MAX)
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
    """Keeps nothing: the backward pass computes the body again from its arguments."""
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
    return [None if place is None else output(made, place) for place in places]


@lru_cache(maxsize=BODIES_MAX)
def _call_tangent(
    body: Op, moving: tuple[int, ...], num_sources: int, rules: PatternMatcher
) -> tuple[Op | None, tuple[int | None, ...]]:
    params = params_of(body.src)
    tangents = {params[i]: param(params[i], num_sources + n) for n, i in enumerate(moving) if i in params}
    changes = forward(body.src, tangents, rules)
    roots = list(dict.fromkeys(change for change in changes if change is not None))
    places = tuple(None if change is None else roots.index(change) for change in changes)
    return (sink(roots, body.arg) if roots else None), places


# ---- ATTENTION ----
def attention_reverse(
    attention: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher
) -> list[Op | None]:
    """Returns the gradients of those of q, k, v that are needed; v has none from the logsumexp.

    Those of a masked one, among which may be that of the mask itself, are the composition's.
    """
    if mask_of(attention) is not None:
        return _masked_reverse(attention, grads, needed, rules)
    out, logsumexp = outputs(attention)
    grad = grads.get(0, zeros_like(out))
    src = (*attention.src[:3], grad, logsumexp, _delta(out, grads), *draws_of(attention))
    made = Op(OpCode.ATTENTION_GRAD, attention.dtype, src, attention.arg)
    results = outputs(made)
    return [None if i == 2 and 0 not in grads else results[i] for i in needed]


def _masked_reverse(
    attention: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher
) -> list[Op | None]:
    """Returns the gradients of an ATTENTION's composed form, which shares its scores where no kernel computes it."""
    params = [param(s, slot) for slot, s in enumerate(attention.src)]
    roots = composed(attention.replace(tuple(params)))
    seeds = {number: param(roots[number], len(params) + number) for number in grads}
    found = body_gradients(roots, seeds, [params[i] for i in needed], rules)
    given = dict(zip([*params, *seeds.values()], [*attention.src, *grads.values()], strict=True))
    made = dict(zip(found, substitute(list(found.values()), given), strict=True))
    return [made.get(params[i]) for i in needed]


def _delta(out: Op, grads: Mapping[int, Op]) -> Op:
    """Returns rowsum(dO O) - dL, (B, H, T) in the dtype that is computed in."""
    dtype = out.dtype.compute_dtype
    if 0 not in grads:
        return -grads[1]
    mean = reduce(cast(grads[0], dtype) * cast(out, dtype), OpCode.ADD, (3,))
    return mean - grads[1] if 1 in grads else mean


def composed_reverse(op: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the sources that are needed, by those of the composition."""
    return call_reverse(_as_call(op), grads, needed, rules)


def composed_forward(op: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangents of the results, by those of the composition."""
    return call_forward(_as_call(op), parts, rules)


def _as_call(op: Op) -> Op:
    """Returns an ATTENTION or an ATTENTION_GRAD as a CALL of its composed form, computed again by derivatives."""
    body = sink(composed(op.replace(tuple(param(s, slot) for slot, s in enumerate(op.src)))), RECOMPUTE)
    return Op(OpCode.CALL, body.dtype, op.src, body)


# ---- CALLs with a gradient of the user's ----
def has_custom_gradient(call: Op) -> bool:
    """True for a CALL whose gradient a user has written."""
    return custom_gradient(call.arg) is not None


def custom_reverse(call: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the arguments that are needed: one CALL of the user's backward body."""
    made = custom_gradient(call.arg)
    assert made is not None, f"{call} has no gradient that a user wrote"
    if made.backward is None:
        return call.src[-1].arg.gradients(call, grads, needed)
    by_user = {number: grad for number, grad in grads.items() if number < made.num_results}
    by_ops = {number: grad for number, grad in grads.items() if number >= made.num_results}
    parts = [_pulled(call, made, by_user, slot) if by_user else None for slot in needed]
    if by_ops:
        more = call_reverse(_plain(call), by_ops, needed, rules)
        parts = [b if a is None else a if b is None else a + b for a, b in zip(parts, more)]
    return parts


def _plain(call: Op) -> Op:
    """Returns the CALL as the Ops that its body is made of."""
    return call.replace(arg=sink(call.arg.src))


def _pulled(call: Op, made: CustomGradient, grads: Mapping[int, Op], slot: int) -> Op | None:
    """Returns the gradient of one argument."""
    place = made.places[slot]
    if place is None:
        return None
    read = [call.src[n] if kind == "source" else output(call, n) for kind, n in made.reads]
    assert made.backward is not None, "the host computes the gradients of all arguments together"
    seeds = [grads.get(n, root.filled(0)) for n, root in enumerate(call.arg.src[: made.num_results])]
    back = Op(OpCode.CALL, made.backward.dtype, (*read, *seeds), made.backward)
    return output(back, place)


def custom_forward(call: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangents of the results."""
    made = custom_gradient(call.arg)
    assert made is not None, f"{call} has no gradient that a user wrote"
    if made.backward is None:
        fact = "jvp: a function of the user's read values, so there is no graph of its gradient to derive the tangent from."
        raise GradientError(fact, hint="backward(), or grad(outputs, inputs).")
    roots = call.arg.src
    moving = [(i, part) for i, part in enumerate(parts) if part is not None]
    results: list[Op | None] = []
    for number, root in enumerate(roots[: made.num_results]):
        u = Op(OpCode.LEAF, root.dtype, (zeros_like(root),), "u")
        results.append(transposed(u, call, moving, partial(_pulled, call, made, {number: u}), rules))
    if kept := roots[made.num_results :]:
        results += call_forward(_plain(call), parts, rules)[-len(kept) :]
    return results
