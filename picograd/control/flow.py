"""Control flow: branches and loops that depend on values, recurrences, and gradients of a batch part by part.

`cond` and `while_loop` have PyTorch's names. `scan` is a recurrence as one LOOP: its body is traced once for any number of
steps. `accumulate` is a scan over small batches that adds up the gradient of a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd.autodiff.modes import active_slots, varying
from picograd.control.closure import BodyTrace, close, described, name_of, stand_in, store
from picograd.control.structure import Taken, put, shown, take
from picograd.errors import ArgumentError, GradientError, JitError, ShapeError
from picograd.ir.bodies import output, param, sink
from picograd.ir.build import flip, zeros_like
from picograd.ir.op import Dim, Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.record import Struct
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, grad_mode, trace
from picograd.tensor.free_functions import where
from picograd.tensor.gradients import UsedUp
from picograd.tensor.tensor import Tensor
from picograd.tensor.unasked import leaf_tensors


# ---- branches ----
def cond(
    pred: Tensor | bool,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """Returns true_fn(*operands) if `pred` holds, else false_fn(*operands).

    For a Tensor both branches are computed and one result is chosen, so that it works inside jit and vmap, by one plan.
    The branch that is not chosen passes no gradient to the operands, even if its derivative is infinite; to a tensor that
    a function reads and that is not an operand it passes 0 times its derivative.

    Args:
      pred:      a bool, which calls one function, or a Tensor of one bool
      true_fn:   a function that writes nothing in place
      false_fn:  one that returns Tensors in containers of the same form, shapes and dtypes
      operands:  arguments of both

    Raises:
      ArgumentError: pred is not one bool.
      ShapeError:    the branches return different forms.

    >>> cond(Tensor(3.0) > 2, lambda x: x + 1, lambda x: x - 1, (Tensor([1.0]),))
    Tensor([2.])
    """
    if isinstance(pred, bool):
        return (true_fn if pred else false_fn)(*operands)
    if not isinstance(pred, Tensor) or pred.numel() != 1 or pred.dtype.kind != "b":
        kind = f"a Tensor of {pred.dtype} of shape {pred.shape}" if isinstance(pred, Tensor) else type(pred).__name__
        raise ArgumentError(f"cond: pred must be a bool or a Tensor of one bool, got {kind}.", hint="x.sum() > 0")
    holds = pred.reshape(())
    given = [_open_where(is_chosen, operands) for is_chosen in (holds, ~holds)]
    taken, other = (take(function(*each), "result") for function, each in zip((true_fn, false_fn), given))
    kinds = [[(tensor.shape, tensor.dtype) for tensor in each.tensors] for each in (taken, other)]
    if taken.form != other.form or kinds[0] != kinds[1]:
        forms = (f"{shown(each.form)} of {kind}" for each, kind in zip((taken, other), kinds))
        raise ShapeError("cond: true_fn returns {}, false_fn {}.".format(*forms))
    chosen = [where(holds, yes, no) for yes, no in zip(taken.tensors, other.tensors)]
    return put(taken.container, chosen)


def _open_where(is_chosen: Tensor, operands: Sequence[Any]) -> Sequence[Any]:
    """Returns operands through which a gradient flows back only if their branch is chosen."""
    found = take(tuple(operands), "operand")
    gates = [where(is_chosen, each, each.detach()) if each.requires_grad else each for each in found.tensors]
    return put(found.container, gates)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Calls body_fn on carried_inputs, then on its own results, as long as cond_fn of these holds.

    The condition is read on the host at each step, so this does not work inside jit; pg.scan is a loop that does.

    Args:
      cond_fn:         cond_fn(*carried) -> a bool, or a Tensor of one bool
      body_fn:         body_fn(*carried) -> the next values, as many
      carried_inputs:  Tensors or numbers

    Returns:   the last values, a tuple

    Raises:
      ArgumentError: body_fn does not return as many values as it takes.
      JitError:      inside jit.

    >>> while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (Tensor(0), Tensor(1.0)))
    (Tensor(3), Tensor(8.))
    """
    if trace.get() is not None:
        raise JitError(
            "while_loop: the number of steps depends on a value, and jit computes no value while it traces.",
            hint="pg.scan(function, init, length=most), with pg.where for the steps after the last one.",
        )
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        after = body_fn(*carried)
        after = tuple(after) if isinstance(after, (tuple, list)) else (after,)
        if len(after) != len(carried):
            raise ArgumentError(f"while_loop: body_fn takes {len(carried)} values and returns {len(after)}.")
        carried = after
    return carried


# ---- scan ----
Body = Callable[[Any, Any], tuple[Any, Any]]


def scan(function: Body, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False) -> tuple[Any, Any]:
    """Runs a function step by step along the first axis of `xs`, passing a carry from step to step.

    carry[0] = init;  carry[t + 1], ys[t] = function(carry[t], xs[t])

    The function is traced once and becomes one LOOP, whose length costs no time to build. Gradients flow through it, to
    init, to xs and to other Tensors that the function reads. Tensors made before that it writes in place (parameters and
    the state of an optimizer, running statistics, random generators) are carried along and hold their last value
    afterwards; random numbers differ from step to step as they would in a Python loop. A `.grad` that is None before is
    None afterwards, unless the steps add to it.

    Args:
      function:  (carry, x) -> (carry, y); the carry keeps its form, shapes and dtypes; y may be None
      init:      Tensors, or lists, tuples, dicts and dataclasses of them; each of any shape
      xs:        the same, each (length, ...); None: the function gets None as its x
      length:    number of steps; needed if xs is None
      reverse:   True: begins with the last row of xs and fills ys from its end

    Returns:   the last carry, in the form of init; and ys in the form of y, each (length, ...)

    Raises:
      ArgumentError: there is no length, the lengths differ, or something else than Tensors is carried.
      ShapeError:    a step changes the form, a shape or a dtype of the carry.
      JitError:      a value is read inside, or a tensor made inside is kept.

    >>> total, sums = scan(lambda carry, x: (carry + x, carry + x), Tensor(0.0), Tensor([1.0, 2.0, 3.0]))
    >>> total, sums
    (Tensor(6.), Tensor([1., 3., 6.]))
    """
    return Scan("scan", function, take(init, "carry"), take(xs, "xs")).run(length, reverse)


class _Traced(Struct):
    """The graph of one step, over stand-ins.

    watch:  the cells that it read and wrote
    first:  for each part of the carry its stand-in
    last:   for each row of xs its stand-in
    carry:  the new carry, and its graphs
    y:      the result of the step, and its graphs
    """

    watch: BodyTrace
    first: list[Op]
    last: list[Op]
    carry: tuple[Taken, list[Op]]
    y: tuple[Taken, list[Op]]


class Scan(Struct):
    """A scan that becomes a LOOP.

    transform:  name of the function that the user called
    function:   the step
    carry, xs:  the first carry, and the stacked inputs
    """

    transform: str
    function: Body
    carry: Taken
    xs: Taken

    def run(self, length: int | None, reverse: bool) -> tuple[Any, Any]:
        """Returns the last carry and the stacked results."""
        for taken in (self.carry, self.xs):
            if taken.others:
                name, value = taken.others[0]
                raise ArgumentError(
                    f"{self.transform}: {name} is {value!r}, which is not a Tensor.",
                    "wrap it in Tensor(...), or let the function read it as a closure.",
                )
        steps = self._steps(length)
        start = [tensor.read() for tensor in self.carry.tensors]
        stacked = [tensor.read() for tensor in self.xs.tensors]
        traced = self._trace(start, stacked)
        if reverse:
            stacked = [flip(op, (0,)) for op in stacked]
        return self._loop(traced, stacked, start, steps, reverse)

    def _steps(self, length: int | None) -> Dim:
        """Returns the number of steps, which `length` and all of xs must agree on."""
        if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 0):
            raise ArgumentError(f"{self.transform}: length must be a number of steps, got {length!r}.")
        found: Dim | None = length
        source = "length"
        for tensor, name in zip(self.xs.tensors, self.xs.names):
            shape = tensor.op.shape
            if not shape:
                raise ArgumentError(
                    f"{self.transform}: {name} of shape () has no axis of steps.", f"pass {name}.reshape(1)."
                )
            if found is None:
                found, source = shape[0], name
            elif shape[0] != found:
                raise ArgumentError(
                    f"{self.transform}: lengths differ: {source} says {found} steps, {name} of shape {shape} has"
                    f" {shape[0]} rows."
                )
        if found is None:
            raise ArgumentError(f"{self.transform}: the number of steps is unknown: give xs or length.", "length=10")
        return found

    # ---- tracing ----
    def _trace(self, start: list[Op], stacked: list[Op]) -> _Traced:
        """Traces a step; once more, with zeros as `.grad`, if it left gradients that it did not find."""
        before: dict[int, Tensor | None] = dict(_grads())
        kept: dict[int, Any] = dict(before)
        try:
            traced = self._trace_once(start, stacked)
            self._check_grads(traced.watch, before)
            left = [n for n, grad in _grads() if before.get(n, grad) is None and grad is not None]
            if self.transform == "jit":  # gradients that the last step leaves are not results of a LOOP
                name = name_of(self.function)
                kept = {**before, **{n: UsedUp(name, f"a tensor of shape {leaf_tensors[n].shape}", True) for n in left}}
            if left:
                _restore(before)
                zeros: dict[int, Tensor | None] = {n: _zeros(leaf_tensors[n]) for n in left}
                _restore(zeros)
                again = self._trace_once(start, stacked)
                self._check_grads(again.watch, zeros)
                added = {n: zero for n, zero in zeros.items() if zero is not None and zero.cell in again.watch.written}
                if added:
                    traced, kept = again, {**kept, **added}
        finally:
            _restore(kept)
        traced.watch.check_arguments([*self.carry.tensors, *self.xs.tensors])
        traced.watch.check_returned([*traced.carry[0].tensors, *traced.y[0].tensors])
        return traced

    def _trace_once(self, start: list[Op], stacked: list[Op]) -> _Traced:
        """Runs the function on stand-ins; again if later steps read a cell in which it leaves a value with gradients."""
        needing: set[Cell] = set()
        while True:
            traced = self._run_on_stand_ins(start, stacked, needing)
            watch = traced.watch
            late = {c for c in watch.changed() if watch.written[c].needs_grad and not watch.stand_of(c).needs_grad}
            if not late:
                return traced
            needing |= late

    def _run_on_stand_ins(self, start: list[Op], stacked: list[Op], needing: set[Cell]) -> _Traced:
        """Runs the function once; the cells of `needing` need gradients from the start."""
        name, records = name_of(self.function), grad_mode.get()
        with BodyTrace(self.transform, name, needing) as watch:
            first = [
                stand_in(op.dtype, op.shape, tensor.cell.device, records and op.dtype.is_float)
                for op, tensor in zip(start, self.carry.tensors)
            ]
            last = [
                stand_in(op.dtype, op.shape[1:], tensor.cell.device, op.needs_grad)
                for op, tensor in zip(stacked, self.xs.tensors)
            ]
            returned = watch.call(self.function, self.carry.with_ops(first), self.xs.with_ops(last))
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise ArgumentError(
                    f"{self.transform}: {name} must return (carry, y), got {type(returned).__name__}.",
                    "return carry, None    if a step has no result.",
                )
            carry, y = take(returned[0], "carry"), take(returned[1], "y")
            self._check_carry(carry, name)
            if y.others:
                raise ArgumentError(
                    f"{self.transform}: {name} returned {y.others[0][1]!r} as {y.others[0][0]}, which is not a Tensor."
                )
            roots = [[tensor.read() for tensor in taken.tensors] for taken in (carry, y)]
        return _Traced(watch, first, last, (carry, roots[0]), (y, roots[1]))

    def _check_carry(self, new: Taken, name: str) -> None:
        """Raises ShapeError if a step changes the carry in anything but values."""
        if new.form != self.carry.form:
            raise ShapeError(
                f"{self.transform}: {name} got a carry of the form {shown(self.carry.form)} and returned"
                f" {shown(new.form)}.",
                "return a carry of the form of init.",
            )
        for before, after, path in zip(self.carry.tensors, new.tensors, new.names):
            if before.op.shape != after.op.shape or before.dtype is not after.dtype:
                is_cast = before.op.shape == after.op.shape
                raise ShapeError(
                    f"{self.transform}: {path} is {described(before.op)} before a step of {name}, {described(after.op)}"
                    " after it.",
                    f"return {path}.cast(dtypes.{before.dtype}), or begin with dtypes.{after.dtype}."
                    if is_cast
                    else f"init must have the shape that {name} returns.",
                )

    def _check_grads(self, watch: BodyTrace, before: dict[int, Tensor | None]) -> None:
        """Raises JitError if the first step would add to a `.grad` that later steps do not find."""
        for number, grad in _grads():
            old = before.get(number)
            if old is not None and grad is not old and old.cell in watch.before:
                raise JitError(
                    f"{self.transform}: {watch.function} reads a gradient of shape {old.shape} from before the loop,"
                    " which later steps would not find.",
                    "call optimizer.zero_grad() before, or at the start of each step.",
                )

    # ---- the LOOP ----
    def _loop(self, traced: _Traced, stacked: list[Op], start: list[Op], steps: Dim, reverse: bool) -> tuple[Any, Any]:
        """Builds the LOOP; returns its results and writes the cells that the step writes."""
        watch, (carry, new), (y, rows) = traced.watch, traced.carry, traced.y
        cells = watch.changed()
        first = [*traced.first, *(watch.stand_of(cell) for cell in cells)]
        closed = close(watch, [*new, *(watch.written[cell] for cell in cells), *rows], first, traced.last)
        sources = [*start, *(watch.before[cell] for cell in cells), *closed.sources]
        fixed = [param(op, len(first) + i) for i, op in enumerate(closed.sources)]
        roots = (*closed.roots[: len(first)], *fixed, *closed.roots[len(first) :])
        if not roots:
            return put(carry.container, ()), put(y.container, ())
        if steps == 0:  # values that no step changes have their own gradients
            none = [filled(0, op.dtype, (0, *op.shape)) for op in rows]
            last = [Tensor.from_op(op, before.cell.device) for op, before in zip(start, self.carry.tensors)]
            return put(carry.container, last), y.with_ops(none)
        body = sink(roots)
        loop = Op(OpCode.LOOP, roots[0].dtype, (*sources, *stacked), (body, len(sources), steps))
        record(loop)
        outputs = results(loop)
        for cell, op in zip(cells, outputs[len(start) :]):
            store(cell, op)
        last = [
            Tensor.from_op(op, after.cell.device or before.cell.device)
            for op, before, after in zip(outputs, self.carry.tensors, carry.tensors)
        ]
        ys = [flip(op, (0,)) if reverse else op for op in outputs[len(sources) :]]
        return put(carry.container, last), y.with_ops(ys)


def results(loop: Op) -> list[Op]:
    """Returns the results of a LOOP; those that gradients do not reach need no gradients."""
    body, num_carry, _ = loop.arg
    made = [output(loop, number) for number in range(len(body.src))]
    if not loop.needs_grad:
        return made
    slots = active_slots(body, num_carry, {i for i, source in enumerate(loop.src) if source.needs_grad})
    reached = varying(body.src, slots)
    return [op if root in reached else detached(op) for op, root in zip(made, body.src)]


# ---- gradients that tensors hold ----
def _grads() -> list[tuple[int, Any]]:
    return [(number, tensor._grad) for number, tensor in leaf_tensors.items()]


def _restore(grads: dict[int, Any]) -> None:
    for number, grad in grads.items():
        tensor = leaf_tensors.get(number)
        if tensor is not None:
            tensor._grad = grad


def _zeros(tensor: Any) -> Tensor:
    return Tensor.from_op(zeros_like(tensor.op), tensor.cell.device)


# ---- accumulate ----
def accumulate(loss_function: Callable[..., Tensor], *batches: Any) -> Tensor:
    """Adds the gradient of the mean loss over small batches to `.grad`, with the memory of one small batch.

    loss = mean over t of loss_function(*(batch[t] for batch in batches));  .grad += d loss

    Args:
      loss_function:  of one small batch; returns a scalar
      batches:        Tensors, or lists, tuples, dicts and dataclasses of them, each (steps, ...)

    Returns:   the mean loss, a scalar without gradient

    Raises:
      ArgumentError: there are no steps, or the lengths differ.
      GradientError: the loss is not a scalar, or depends on no tensor that requires grad.

    >>> w = Tensor([1.0, 1.0], requires_grad=True)
    >>> accumulate(lambda x: (w * x).sum(), Tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor(5.)
    >>> w.grad
    Tensor([2., 3.])
    """
    taken = take(batches, name_of(loss_function))
    if not taken.tensors or not taken.tensors[0].shape or taken.tensors[0].shape[0] == 0:
        raise ArgumentError("accumulate: needs at least one small batch, stacked along a first axis.")
    count = taken.tensors[0].shape[0]

    def step(carry: None, parts: Any) -> tuple[None, Tensor]:
        loss = loss_function(*parts)
        if not isinstance(loss, Tensor):
            raise GradientError(
                f"accumulate: {name_of(loss_function)} must return its loss, a scalar Tensor, got {type(loss).__name__}."
            )
        (loss / count).backward()
        return None, loss.detach()

    _, losses = Scan("accumulate", step, take(None, "carry"), taken).run(count, reverse=False)
    return losses.mean()
