"""The graphs that CALLs and LOOPs hold: finding them, and rewriting them where they are.

In:    graphs
Out:   `body_of`, `carry_and_steps`; `with_body`, `bodies_in`, `map_bodies`
Next:  picograd/ir/custom.py

A body is a SINK over PARAMs: PARAM i is source i of the CALL; of a LOOP it is source i as step r sees it, the carry from
the step before or row r of a stacked input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.ir.lines import copy_lines
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode

WITH_BODY = frozenset({OpCode.CALL, OpCode.LOOP})
Change = Callable[[Sequence[Op]], Sequence[Op]]


def body_of(op: Op) -> Op:
    """Returns the body of a CALL or a LOOP."""
    body: Op = op.arg if isinstance(op.arg, Op) else op.arg[0]
    return body


def with_body(op: Op, body: Op, src: tuple[Op, ...] | None = None) -> Op:
    """Returns a CALL or LOOP with another body, and perhaps other sources."""
    return op.replace(src, body if isinstance(op.arg, Op) else (body, *op.arg[1:]))


def carry_and_steps(op: Op) -> tuple[int, Dim]:
    """Returns how many of its sources a LOOP carries, and its number of steps; a CALL is one step that carries none."""
    if op.code is OpCode.CALL:
        return 0, 1
    _, num_carry, steps = op.arg
    return num_carry, steps


def bodies_in(order: Sequence[Op]) -> list[Op]:
    """Returns the bodies that the Ops of `order` hold, each once, and those within them; inner ones first."""
    found: dict[Op, None] = {}
    stack = [(body_of(op), False) for op in reversed(order) if op.code in WITH_BODY]
    while stack:
        body, ready = stack.pop()
        if ready:
            found[body] = None
        elif body not in found:
            stack.append((body, True))
            stack += [(body_of(op), False) for op in toposort(body.src) if op.code in WITH_BODY]
    return list(found)


def map_bodies(roots: Sequence[Op], change: Change) -> list[Op]:
    """Returns graphs in which `change` has rewritten the roots of every body, inner bodies first and each once.

    Cost: nothing where no CALL and no LOOP is.
    """
    order = toposort(roots)
    bodies = bodies_in(order)
    if not bodies:
        return list(roots)
    became: dict[Op, Op] = {}
    for body in bodies:
        inside = _replaced(toposort(body.src), became)
        became[body] = body.replace(src=tuple(change([inside[root] for root in body.src])))
    outside = _replaced(order, became)
    return [outside[root] for root in roots]


def _replaced(order: Sequence[Op], bodies: dict[Op, Op]) -> dict[Op, Op]:
    """Returns what each Op of `order` becomes when bodies are replaced."""
    became: dict[Op, Op] = {}
    for op in order:
        src = tuple(became[s] for s in op.src)
        if op.code in WITH_BODY:
            became[op] = with_body(op, bodies[body_of(op)], src)
        else:
            became[op] = op.replace(src=src)
        copy_lines(op, became[op])
    return became
