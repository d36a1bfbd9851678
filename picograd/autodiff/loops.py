"""The derivatives of LOOP: LOOPs of the derivatives of its body.

Reverse: the LOOP stacks, as further rows, what its backward part reads of each step (`keep`, autodiff/bodies.py); that part
is a LOOP over the rows in the opposite order, whose carry is the gradient of the carry. The gradient of an invariant is a
sum over all steps. The LOOP adds it up, but where a step adds a product of two matrices, or a sum: the operands are stacked
and multiplied once, after the loop.

    sum over t of a[t] @ b[t]  =  (a[0] a[1] ...) @ (b[0] over b[1] over ...)         a[t] (M, K), b[t] (K, N)
    sum over t of sum(v[t], axes)  =  sum(v, axes and that of the steps)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from picograd.autodiff.bodies import (
    BODIES_MAX,
    body_gradients,
    constant_part,
    depending,
    keep,
    params_of,
    reads,
    stored_base,
)
from picograd.autodiff.modes import active_slots, forward, is_differentiable
from picograd.ir.bodies import numbered, output, param, sink, substitute
from picograd.ir.build import cast, flip, move_all, permute, reduce, reshape, zeros_like
from picograd.ir.op import Dim, Op, const_value, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.pattern import PatternMatcher
from picograd.ir.shape import numel
from picograd.record import Record, Struct, field


# ---- sums over steps ----
class Sum(Record):
    """A product that each step would add.

    product:  of one step: MATMUL, or REDUCE by ADD
    after:    linear Ops on it, the first one first
    """

    product: Op
    after: tuple[Op, ...]

    def operands(self) -> tuple[Op, ...]:
        """Returns the operands to stack, each below its views."""
        return tuple(stored_base(operand) for operand in self.product.src)


def as_sums(grad: Op) -> tuple[list[Sum], list[Op]]:
    """Returns the products whose sum a gradient is, and the other summands."""
    sums: list[Sum] = []
    rest: list[Op] = []
    stack: list[tuple[Op, tuple[Op, ...]]] = [(grad, ())]
    while stack:
        op, after = stack.pop()
        if op.code in MOVEMENT or op.code is OpCode.NEG or (op.code is OpCode.CAST and op.src[0].dtype.is_float):
            stack.append((op.src[0], (op, *after)))
        elif op.code is OpCode.ADD:
            stack += [(op.src[1], after), (op.src[0], after)]
        elif op.code is OpCode.MATMUL or (op.code is OpCode.REDUCE and op.arg[0] is OpCode.ADD):
            sums.append(Sum(op, after))
        else:
            rest.append(_again(op, after))
    return sums, rest


def step_of(part: Sum) -> Op:
    """Returns the summand of one step."""
    return _again(part.product, part.after)


def _again(x: Op, after: Sequence[Op]) -> Op:
    for op in after:
        x = op.replace(src=(x,))
    return x


def contracted(part: Sum, rows_of: Callable[[Op], Op], steps: Dim) -> Op:
    """Returns the sum of a product over all steps, from the stacked rows of its operands."""
    stacks = [_rows(operand, rows_of, steps) for operand in part.product.src]
    if part.product.code is OpCode.REDUCE:
        total = reduce(stacks[0], OpCode.ADD, (0, *(axis + 1 for axis in part.product.arg[1])))
        return _again(total, part.after)
    lhs, rhs = stacks
    batch = range(1, len(lhs.shape) - 2)
    row, column = len(lhs.shape) - 2, len(lhs.shape) - 1
    lhs = permute(lhs, (*batch, row, 0, column))  # (..., M, T, K)
    rhs = permute(rhs, (*batch, 0, row, column))  # (..., T, K, N)
    count = numel(lhs.shape[-2:])
    lhs = reshape(lhs, (*lhs.shape[:-2], count))
    rhs = reshape(rhs, (*rhs.shape[:-3], count, rhs.shape[-1]))
    return _again(Op(OpCode.MATMUL, part.product.dtype, (lhs, rhs), part.product.arg), part.after)


def _rows(op: Op, rows_of: Callable[[Op], Op], steps: Dim) -> Op:
    """Returns the rows of `op` from those of its base: the same views, one axis later."""
    views: list[Op] = []
    base = stored_base(op)
    while op is not base:
        views.append(op)
        op = op.src[0]
    rows = rows_of(base)
    for view in reversed(views):
        rows = cast(rows, view.dtype) if view.code is OpCode.CAST else move_all(view, rows, steps)
    return rows


# ---- LOOP ----
Given = tuple[tuple[int, "Op | None"], ...]


def is_fixed(body: Op, slot: int, num_carry: int) -> bool:
    """True for an invariant: a carry that no step changes."""
    root = body.src[slot] if slot < num_carry else None
    return root is not None and root.code is OpCode.PARAM and root.arg[0] == slot


# ---- reverse ----
class LoopGradient(Record):
    """The backward part of a LOOP, for any sources. Ops are over PARAMs of the body.

    forward:  the body with the kept values as further rows
    body:     of the backward LOOP; its carry is the gradients of `carries`, then sums for `added`, then `fixed`
    carries:  slots whose gradient is handed from step to step
    added:    invariants whose gradients the LOOP adds up
    fixed:    what the steps read and do not change, as graphs over invariants
    rows:     what it reads row by row: ("source", slot), ("row", result number) or ("grad", result number)
    stacked:  slots of stacked sources asked for, with the row that is their gradient
    sums:     (invariant, product to make afterwards)
    emitted:  Op -> row of the backward LOOP that holds it, for the operands of `sums`
    """

    forward: Op
    body: Op | None
    carries: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    fixed: tuple[Op, ...] = ()
    rows: tuple[tuple[str, int], ...] = ()
    stacked: Mapping[int, int] | None = None
    sums: tuple[tuple[int, Sum], ...] = ()
    emitted: Mapping[Op, int] | None = None


def loop_reverse(loop: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the sources of a LOOP that are needed."""
    body, num_carry, _ = loop.arg
    passed = {i: grad for i, grad in grads.items() if is_fixed(body, i, num_carry)}
    given = tuple((i, None if i < num_carry else constant_part(grads[i])) for i in sorted(grads) if i not in passed)
    made = _loop_gradient(body, num_carry, len(loop.src), given, tuple(needed), rules)
    found: dict[int, Op] = dict(passed)
    if made.body is not None:
        _run_backward(loop, grads, made, found)
    return [found.get(slot) for slot in needed]


def _run_backward(loop: Op, grads: Mapping[int, Op], made: LoopGradient, found: dict[int, Op]) -> None:
    """Builds the backward LOOP and what is contracted after it; adds the gradients to `found`."""
    body, _, steps = loop.arg
    back = made.body
    assert back is not None and made.stacked is not None and made.emitted is not None
    kept = loop.replace(arg=(made.forward, *loop.arg[1:]))

    def row(kind: str, number: int) -> Op:
        if kind == "source":
            return loop.src[number]
        if kind == "grad":
            return grads[number]
        return output(loop if number < len(body.src) else kept, number)

    zeros = [zeros_like(loop.src[slot]) for slot in (*made.carries, *made.added)]
    begin = [grads.get(slot, zero) for slot, zero in zip((*made.carries, *made.added), zeros)]
    begin[len(made.carries) :] = zeros[len(made.carries) :]
    params = params_of(body.src)
    fixed = substitute(made.fixed, {op: loop.src[slot] for slot, op in params.items()})
    rows = [flip(row(*what), (0,)) for what in made.rows]
    num_carry = len(begin) + len(fixed)
    run = Op(OpCode.LOOP, back.dtype, (*begin, *fixed, *rows), (back, num_carry, steps))
    for place, slot in enumerate((*made.carries, *made.added)):
        _add(found, slot, output(run, place))
    for slot, number in made.stacked.items():
        _add(found, slot, flip(output(run, number), (0,)))

    def rows_of(op: Op) -> Op:
        if op in made.emitted:  # type: ignore[operator]
            return flip(output(run, made.emitted[op]), (0,))  # type: ignore[index]
        return row(*_place(op, made.forward, loop.arg[1]))

    for slot, part in made.sums:
        _add(found, slot, contracted(part, rows_of, steps))


def _add(found: dict[int, Op], slot: int, grad: Op) -> None:
    found[slot] = found[slot] + grad if slot in found else grad


def _place(op: Op, kept: Op, num_carry: int) -> tuple[str, int]:
    """Returns where the rows of a forward value are: in a stacked source, or in a row of the LOOP."""
    if op.code is OpCode.PARAM and op.arg[0] >= num_carry:
        return "source", op.arg[0]
    return "row", kept.src.index(op, num_carry)


@lru_cache(maxsize=BODIES_MAX)
def _loop_gradient(
    body: Op, num_carry: int, num_sources: int, given: Given, needed: tuple[int, ...], rules: PatternMatcher
) -> LoopGradient:
    """Builds the body of the LOOP that runs backward, and the forward body that keeps what that reads."""
    params = params_of(body.src)
    handed = _handed(body, num_carry, {number for number, _ in given}, needed)
    numbers = [*handed, *(number for number, _ in given if number >= num_carry)]
    seeds = {number: param(body.src[number], num_sources + number) for number in numbers}
    wanted = {slot: params[slot] for slot in {*handed, *needed} if slot in params}
    by_param = body_gradients(body.src, seeds, list(wanted.values()), rules)
    found = {slot: by_param[op] for slot, op in wanted.items() if op in by_param}
    if not found:
        return LoopGradient(body, None)
    fixed = {slot for slot in found if slot < num_carry and slot not in handed}
    maker = _Backward(body, num_carry, num_sources, params, seeds, dict(given))
    return maker.make(handed, found, sorted(fixed))


def _handed(body: Op, num_carry: int, given: set[int], needed: Sequence[int]) -> list[int]:
    """Returns the carries that depend on a requested input and on which a differentiable result depends."""
    live: set[int] = set()
    seen: set[Op] = set()
    stack = [body.src[number] for number in given]
    while stack:
        op = stack.pop()
        if op in seen or not is_differentiable(op):
            continue
        seen.add(op)
        stack.extend(op.src)
        if op.code is OpCode.PARAM and op.arg[0] < num_carry:
            live.add(op.arg[0])
            stack.append(body.src[op.arg[0]])
    live |= {number for number in given if number < num_carry}
    active = active_slots(body, num_carry, needed)
    return sorted(slot for slot in active & live if not is_fixed(body, slot, num_carry))


class _Backward(Struct):
    """Makes the backward part of a LOOP from the gradients of one step.

    params:  of the body, by slot
    seeds:   PARAMs for the gradients that arrive, by result
    given:   results with a gradient; the gradient where it is one number everywhere
    """

    body: Op
    num_carry: int
    num_sources: int
    params: dict[int, Op]
    seeds: dict[int, Op]
    given: dict[int, Op | None]
    changing: set[Op] = field(default_factory=set)  # values that change from step to step

    def make(self, handed: list[int], found: dict[int, Op], fixed: list[int]) -> LoopGradient:
        """Returns the backward part.

        Args:
          handed:  carries whose gradient is handed from step to step
          found:   slot -> its gradient of one step
          fixed:   invariants among them
        """
        order = toposort(found.values())
        moving = {p for p in order if p.code is OpCode.PARAM and not self._is_fixed_param(p)}
        self.changing = depending(order, moving)
        sums, rest = self._sums(found, fixed)
        added = [slot for slot in fixed if rest[slot]]
        first = self.num_sources + len(self.body.src)
        totals = [param(self.params[slot], first + i) for i, slot in enumerate(added)]
        on = [found.get(slot, zeros_like(self.body.src[slot])) for slot in handed]  # not every carry is read
        more = [_total([total, *rest[slot]]) for slot, total in zip(added, totals)]
        slots = [slot for slot in found if slot >= self.num_carry]
        own = [*on, *more, *(found[slot] for slot in slots)]
        arriving = {*self.seeds.values(), *totals}
        emitted, kept_rows, kept_fixed = self._kept(own, sums, arriving)
        there = {*self._available(), *kept_rows, *kept_fixed}
        read = reads([*own, *emitted], there)
        invariants = [op for op in read if op in kept_fixed or self._is_fixed_param(op)]
        forward_rows = [op for op in read if op not in invariants]
        arriving_rows = [self.seeds[n] for n in self.seeds if n >= self.num_carry and self.given[n] is None]
        constants = {self.seeds[n]: c for n, c in self.given.items() if n in self.seeds and c is not None}
        inputs = [*(self.seeds[s] for s in handed), *totals, *invariants, *arriving_rows, *forward_rows]
        roots = [*on, *more, *invariants, *(found[slot] for slot in slots), *emitted]
        back = sink(numbered(substitute(roots, {op: _row_of(c, op) for op, c in constants.items()}), inputs))
        number = len(on) + len(more) + len(invariants)
        forward_body = sink((*self.body.src, *kept_rows)) if kept_rows else self.body
        kinds = [("grad", n) for n in self.seeds if n >= self.num_carry and self.given[n] is None]
        return LoopGradient(
            forward_body, back, tuple(handed), tuple(added), tuple(invariants),
            (*kinds, *(_place(op, forward_body, self.num_carry) for op in forward_rows)),
            {slot: number + i for i, slot in enumerate(slots)}, tuple(sums),
            {op: number + len(slots) + i for i, op in enumerate(emitted)},
        )  # fmt: skip

    def _sums(self, found: dict[int, Op], fixed: list[int]) -> tuple[list[tuple[int, Sum]], dict[int, list[Op]]]:
        """Returns the products that are made after the loop, and what else is added at each step, by invariant."""
        products: list[tuple[int, Sum]] = []
        maybe: list[tuple[int, Sum]] = []
        rest: dict[int, list[Op]] = {}
        for slot in fixed:
            parts, rest[slot] = as_sums(found[slot])
            for part in parts:
                if not self.changing.issuperset(part.operands()):
                    rest[slot].append(step_of(part))
                else:
                    (products if part.product.code is OpCode.MATMUL else maybe).append((slot, part))
        stacked = {base for _, part in products for base in part.operands()}
        stacked |= {grad for slot, grad in found.items() if slot >= self.num_carry}
        for slot, part in maybe:  # a sum of unstacked values is smaller than its rows
            if stacked.issuperset(part.operands()):
                products.append((slot, part))
            else:
                rest[slot].append(step_of(part))
        return products, rest

    def _kept(self, own: list[Op], sums: list[tuple[int, Sum]], arriving: set[Op]) -> tuple[list[Op], list[Op], list[Op]]:
        """Returns operands that the backward LOOP stacks, further rows of the forward one, and further invariants."""
        bases = list(dict.fromkeys(base for _, part in sums for base in part.operands()))
        kept = keep([*own, *bases], arriving, self._available())
        fixed = [op for op in kept.saved if op not in self.changing]
        rows = [op for op in kept.saved if op not in fixed]
        there = {*self._available(), *rows}
        return [base for base in bases if base not in there], rows, fixed

    def _available(self) -> set[Op]:
        """Returns the values of a step that are there afterwards: sources, and rows that it gives anyway."""
        sources = {op for slot, op in self.params.items() if slot >= self.num_carry or self._is_fixed_param(op)}
        return sources | set(self.body.src[self.num_carry :])

    def _is_fixed_param(self, op: Op) -> bool:
        return op.code is OpCode.PARAM and is_fixed(self.body, op.arg[0], self.num_carry)


def _row_of(constant: Op, like: Op) -> Op:
    """Returns one row of a gradient that is one number everywhere."""
    value = const_value(constant)
    assert value is not None
    return like.filled(value)


def _total(parts: Sequence[Op]) -> Op:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


# ---- forward ----
def loop_forward(loop: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangents of the results of a LOOP: one LOOP that carries values and tangents."""
    body, num_carry, steps = loop.arg
    moving = tuple(i for i, part in enumerate(parts) if part is not None)
    made = _loop_tangent(body, num_carry, len(loop.src), moving, rules)
    if made is None:
        return [None] * len(body.src)
    begin = [_or_zeros(parts[slot], loop.src[slot]) for slot in made.carries]
    rows = [part for slot, part in enumerate(parts) if slot >= num_carry and part is not None]
    sources = (*loop.src[:num_carry], *begin, *loop.src[num_carry:], *rows)
    run = Op(OpCode.LOOP, made.body.dtype, sources, (made.body, num_carry + len(begin), steps))
    return [None if place is None else output(run, place) for place in made.places]


def _or_zeros(part: Op | None, source: Op) -> Op:
    return zeros_like(source) if part is None else part


class LoopTangent(Record):
    """The forward mode of a LOOP, for any sources.

    body:     its carry is the carry, then tangents of `carries`
    carries:  slots whose tangents are carried
    places:   for each result the result that is its tangent, or None
    """

    body: Op
    carries: tuple[int, ...]
    places: tuple[int | None, ...]


@lru_cache(maxsize=BODIES_MAX)
def _loop_tangent(
    body: Op, num_carry: int, num_sources: int, moving: tuple[int, ...], rules: PatternMatcher
) -> LoopTangent | None:
    """Builds the body of the LOOP that computes the results and the tangents of those that change; None: none does."""
    params = params_of(body.src)
    active = active_slots(body, num_carry, moving)
    carries = sorted(slot for slot in active if slot < num_carry)
    stacked = [slot for slot in moving if slot >= num_carry]
    places = {slot: num_carry + i for i, slot in enumerate(carries)}
    count = num_carry + len(carries) + num_sources - num_carry
    places.update((slot, count + i) for i, slot in enumerate(stacked))
    # NOTE: tangents come after all PARAMs until the stacked ones are moved behind the tangents of the carry.
    tangents = {params[slot]: param(params[slot], 2 * num_sources + at) for slot, at in places.items() if slot in params}
    changes = forward(body.src, tangents, rules)
    final = {tangents[params[slot]]: param(params[slot], at) for slot, at in places.items() if slot in params}
    final.update((op, param(op, slot + len(carries))) for slot, op in params.items() if slot >= num_carry)
    on = [_or_zeros(changes[slot], body.src[slot]) for slot in carries]
    rows = list(dict.fromkeys(change for change in changes[num_carry:] if change is not None))
    if not carries and not rows:
        return None
    roots = substitute([*body.src[:num_carry], *on, *rows], final)
    first = num_carry + len(carries)
    results: list[int | None] = [places.get(slot) for slot in range(num_carry)]
    results += [None if change is None else first + rows.index(change) for change in changes[num_carry:]]
    return LoopTangent(sink(roots), tuple(carries), tuple(results))
