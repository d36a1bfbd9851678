"""Schedules of CALLs and LOOPs: each body has a schedule of its own, which runs once for each step.

In:    graphs with CALLs and LOOPs; the buffers of the outer schedule
Out:   `normalize_loops`: the graphs, whose bodies compute only what cannot be had outside of them; `loop_item`

A step finds a carry where the step before stored it: in a row of the result, if the body stacks the carry, too, else in one
of two places in turn. The last step writes to the result's own place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.dtype import bool_, int64
from picograd.ir.bodies import WITH_BODY, body_of, carry_and_steps, map_bodies, param, substitute, with_body
from picograd.ir.build import expand, reshape, shrink_axis, swap_last, where
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import copy_lines
from picograd.ir.stages import Feed, LoopItem, Result, Schedule
from picograd.ir.symbolic import bounds, plus, to_op
from picograd.schedule.memory import aligned


# ---- before fusion ----
def normalize_loops(roots: Sequence[Op]) -> list[Op]:
    """Returns graphs whose LOOPs and CALLs, inner ones first, store each result once, in a place of its own.

    After:   a carry that never changes is read from the LOOP's source; one that is stacked, too, is the last row there;
             equal results are one; a body stores copies of values that it passes on; no LOOP has 0 steps. If a symbolic
             number of steps may be 0, the result is then the LOOP's first value.
    Example: OUTPUT(LOOP(w, x; body = SINK(%0, %0 * %1)), 0)  ->  w
    """
    return _normalized(map_bodies(roots, _normalized))


def _normalized(roots: Sequence[Op]) -> list[Op]:
    """Returns graphs whose bodies are in this form already: a CALL has no result that its body only passes on."""
    became: dict[Op, Op] = {}
    for op in toposort(roots):
        src = tuple(map(became.__getitem__, op.src))
        if op.code in WITH_BODY:
            became[op] = _transposed_before(with_body(op, _storing(op), src))
        elif op.code is OpCode.OUTPUT and src[0].code in WITH_BODY:
            became[op] = _result(op.replace(src=src))
        else:
            became[op] = op.replace(src=src)
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


def _transposed_before(op: Op) -> Op:
    """Returns a LOOP with invariants transposed before it that each step would transpose as right sides of products.

    A product would read such an operand across its rows, which takes as long as a product of few rows itself.
    """
    body = body_of(op)
    became: dict[Op, Op] = {}
    src = list(op.src)
    for slot, root in enumerate(body.src[: op.arg[1]] if op.code is OpCode.LOOP else ()):
        if _passes(op, slot) and (views := _views_as_right_side(root, body)):
            src[slot] = swap_last(op.src[slot])
            became |= dict.fromkeys([root, *views], param(src[slot], slot))
    return with_body(op, body.replace(src=tuple(substitute(body.src, became))), tuple(src)) if became else op


def _views_as_right_side(carry: Op, body: Op) -> set[Op]:
    """Returns the transposed views of a PARAM if it is read by these alone, and these by products as right sides."""
    order = toposort(body.src)
    views = {op for op in order if carry in op.src}
    readers = [op for op in order if not views.isdisjoint(op.src)]
    is_transposed = all(op.code is OpCode.PERMUTE and op is swap_last(carry) for op in views)
    is_right = all(op.code is OpCode.MATMUL and op.src[0] not in views for op in readers)
    return views if is_transposed and is_right and views.isdisjoint(body.src) else set()


def _storing(op: Op) -> Op:
    """Returns the body of a CALL or LOOP with a copy of every value that it passes on."""
    body = body_of(op)
    stored = [
        root if root.code is not OpCode.PARAM or _passes(op, i) else Op(OpCode.CONTIGUOUS, root.dtype, (root,))
        for i, root in enumerate(body.src)
    ]
    return body.replace(src=tuple(stored))


def _passes(op: Op, i: int) -> bool:
    """True if result i is source i, unchanged: an invariant of a LOOP, or any source that a CALL returns."""
    root = body_of(op).src[i]
    if root.code is not OpCode.PARAM:
        return False
    return op.code is OpCode.CALL or (i < op.arg[1] and root.arg[0] == i)


def _result(op: Op) -> Op:
    """Returns a result of a CALL or LOOP in the simplest form."""
    producer, i = op.src[0], op.arg
    roots = body_of(producer).src
    if _passes(producer, i):
        return producer.src[roots[i].arg[0]]
    num_carry, steps = carry_and_steps(producer)
    if i < num_carry and steps == 0:
        return producer.src[i]
    if i >= num_carry:
        return op.replace(arg=roots.index(roots[i], num_carry))
    if roots[i] in roots[num_carry:]:
        rows = op.replace(arg=roots.index(roots[i], num_carry))
        carry = reshape(shrink_axis(rows, 0, plus(rows.shape[0], -1), rows.shape[0]), roots[i].shape)
    else:
        carry = op.replace(arg=roots.index(roots[i]))
    if bounds(steps)[0] > 0:
        return carry
    some = Op(OpCode.CMPLT, bool_, (const(0, int64), to_op(steps)))  # without a step nothing is stored
    return where(expand(some, carry.shape), carry, producer.src[i])


# ---- after fusion ----
def roots_in_order(loop: Op) -> tuple[Op, ...]:
    """Returns the roots of a body in the order of its schedule: the results of a step, then its carries.

    A jitted function, too, has its results before the state that it writes. The order decides how kernels are fused, and so
    the order in which some sums add up: many steps in one LOOP give the same bits as the same steps one by one.
    """
    roots, (num_carry, _) = body_of(loop).src, carry_and_steps(loop)
    return (*roots[num_carry:], *roots[:num_carry])


def loop_item(
    loop: Op, results: Sequence[Op], body: Schedule, use: Callable[[Op], int], own_memory: Callable[[int], int]
) -> LoopItem:
    """Returns the item of a CALL or LOOP.

    Args:
      results:     its OUTPUTs that are wanted
      body:        the schedule of its body
      use:         returns the outer buffer of a value
      own_memory:  returns an outer buffer of that many bytes
    """
    roots = body_of(loop).src
    num_carry, steps = carry_and_steps(loop)
    written = zip(roots_in_order(loop), body.outputs)
    home = {root: body.buffers[index].source for root, index in written if not _is_param(root)}
    feeds = tuple(_feed(loop, param.arg[0], roots, num_carry, home, use) for param in body.inputs)
    asked = {result.arg: result for result in results}
    end = aligned(body.arena_nbytes)
    stored: list[Result] = []
    for root in sorted(home, key=lambda root: home[root]):
        carry = next((i for i, other in enumerate(roots[:num_carry]) if other is root), None)
        row = next((i for i, other in enumerate(roots[num_carry:], num_carry) if other is root and i in asked), None)
        if row is not None:
            stored.append(Result(use(asked[row]), is_row=loop.code is OpCode.LOOP))
            continue
        final = None if carry is None or carry not in asked else use(asked[carry])
        places: list[int | None] = []
        for wanted in (steps != 1, final is None):
            places.append(end if wanted else None)
            end += aligned(root.nbytes) if wanted else 0
        stored.append(Result(final, spare=places[0], other=places[1]))
    return LoopItem(body, steps, feeds, tuple(stored), own_memory(end) if end else None)


def _feed(loop: Op, slot: int, roots: Sequence[Op], num_carry: int, home: dict[Op, int], use: Callable[[Op], int]) -> Feed:
    """Returns the place where the body finds PARAM `slot`."""
    source = loop.src[slot]
    if loop.code is OpCode.CALL or (slot < num_carry and _passes(loop, slot)):
        return Feed(use(source))
    if slot < num_carry:
        return Feed(use(source), carried=home[roots[slot]])
    return Feed(use(stacked_source(source)), is_row=True, reversed=stacked_source(source) is not source)


def memory_sources(loop: Op) -> list[Op]:
    """Returns the values that a CALL or LOOP reads from memory: the sources that its body reads."""
    slots = sorted({p.arg[0] for p in toposort(body_of(loop).src) if p.code is OpCode.PARAM})
    num_carry = len(loop.src) if loop.code is OpCode.CALL else loop.arg[1]
    return [loop.src[slot] if slot < num_carry else stacked_source(loop.src[slot]) for slot in slots]


def stacked_source(source: Op) -> Op:
    """Returns the source of a stacked input's rows; a flipped input is read backwards."""
    return source.src[0] if source.code is OpCode.FLIP and source.arg == (0,) else source


def _is_param(root: Op) -> bool:
    return root.code is OpCode.PARAM
