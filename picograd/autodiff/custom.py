"""The derivatives of a CALL whose gradient a user has written.

In:    a CALL with a marked body, and gradients of its results or tangents of its arguments
Out:   gradients of its arguments, tangents of its results
Next:  picograd/autodiff/step_sums.py

Forward mode is the transpose of what the user wrote, as for any row that gives transposes. What the backward part reads
beside arguments and results is differentiated as the Ops it is made of, so that second derivatives are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from picograd.autodiff.bodies import call_forward, call_reverse, output, sink
from picograd.autodiff.forward import transposed
from picograd.ir.build import zeros_like
from picograd.ir.custom import CustomGradient, custom_gradient
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import PatternMatcher


def has_custom_gradient(call: Op) -> bool:
    """True for a CALL whose gradient a user has written."""
    return custom_gradient(call.arg) is not None


def custom_reverse(call: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the arguments that are needed: one CALL of the user's backward body."""
    made = custom_gradient(call.arg)
    assert made is not None, f"{call} has no gradient of its own"
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
    roots = call.arg.src
    read = [call.src[n] if kind == "source" else output(call, roots, n) for kind, n in made.reads]
    arriving = [grads.get(n, root.filled(0)) for n, root in enumerate(roots[: made.num_results])]
    back = Op(OpCode.CALL, made.backward.dtype, (*read, *arriving), made.backward)
    return output(back, made.backward.src, place)


def custom_forward(call: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangents of the results."""
    made = custom_gradient(call.arg)
    assert made is not None, f"{call} has no gradient of its own"
    roots = call.arg.src
    moving = [(i, part) for i, part in enumerate(parts) if part is not None]
    results: list[Op | None] = []
    for number, root in enumerate(roots[: made.num_results]):
        u = Op(OpCode.LEAF, root.dtype, (zeros_like(root),), "u")
        results.append(transposed(u, call, moving, partial(_pulled, call, made, {number: u}), rules))
    if kept := roots[made.num_results :]:
        results += call_forward(_plain(call), parts, rules)[-len(kept) :]
    return results
