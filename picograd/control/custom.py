"""A function with a gradient that its author has written: PyTorch's autograd.Function as one CALL.

In:    a class with forward and backward
Out:   `Function`, `FunctionContext`

Both are traced when the function is applied: forward is the body of the CALL, backward the body of another one, which
differentiation puts in (autodiff/bodies.py). Backward reads arguments, results, or further results of forward.

A function that cannot be traced, since it reads values, runs as PyTorch's do: forward when it is applied, backward when
the gradient is made. Its CALL passes the results on. So does one whose bodies are ever others, as where it is given a
number that changes: its Ops are part of the graph then, where such a number is an input of the plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.control.closure import BodyTrace, close, described, stand_in
from picograd.control.structure import put, take
from picograd.errors import ArgumentError, JitError, ShapeError
from picograd.interrupts import Latest
from picograd.ir.bodies import CustomGradient, mark_of, output, param, sink, substitute
from picograd.ir.build import cast
from picograd.ir.op import Op, Shape, const, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import copy_lines, record
from picograd.tensor.build import detached
from picograd.tensor.cell import trace
from picograd.tensor.core import leaf_ids
from picograd.tensor.modes import is_grad_enabled, no_grad
from picograd.tensor.tensor import Tensor


class FunctionContext:
    """The state that forward hands to backward; attributes of its own may hold anything.

    needs_input_grad:  for each argument whether its gradient may be asked for

    >>> ctx = FunctionContext((True,))
    >>> ctx.save_for_backward(Tensor([1.0]))
    >>> ctx.saved_tensors
    (Tensor([1.]),)
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]):
        """A context of arguments of which these need gradients: `needs_input_grad`."""
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.constant: tuple[Tensor, ...] = ()
        self.dirty: tuple[Tensor, ...] = ()
        self.gets_zeros = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps `tensors`, of any kind, for backward, which finds them in saved_tensors; a None stays one.

        >>> FunctionContext((True,)).save_for_backward(Tensor([1.0]), Tensor(2))
        """
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Does nothing with the `tensors`: no jvp reads them, since forward mode is derived from backward.

        >>> FunctionContext((True,)).save_for_forward(Tensor([1.0]))
        """

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Marks some results, `tensors`: no gradient flows through them.

        >>> FunctionContext((True,)).mark_non_differentiable(Tensor([1.0]))
        """
        self.constant = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Marks arguments, `tensors`, that forward has written in place and returns: they have the result's gradient.

        >>> FunctionContext((True,)).mark_dirty(Tensor([1.0]))
        """
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Lets backward get zeros, or with a `value` of False None, where no gradient arrives; if traced it gets zeros.

        >>> FunctionContext((True,)).set_materialize_grads(False)
        """
        self.gets_zeros = value


class Function:
    """Base of functions with a gradient of their own: PyTorch's torch.autograd.Function.

    A subclass has two static methods: forward(ctx, *args), which returns a Tensor or a tuple of them, and
    backward(ctx, *grads), which gets a gradient for each result, zeros where none arrived, and returns one for each
    argument, None where there is none. Both are traced; where one asks for values, or keeps a tensor in ctx, both run as
    they are called, which jit and vmap cannot have inside. Its gradient can be differentiated again. With a third static
    method, setup_context(ctx, inputs, output), forward(*args) gets no ctx. Static methods jvp and vmap are not called:
    forward mode is derived from backward, and the function of many examples from forward, as by generate_vmap_rule.

    >>> class Clip(Function):
    ...     @staticmethod
    ...     def forward(ctx, x, bound):
    ...         ctx.bound = bound
    ...         return x * 1
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad.clamp(-ctx.bound, ctx.bound), None
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> (Clip.apply(x, 0.5) * Tensor([0.1, 10.0])).sum().backward()
    >>> x.grad
    Tensor([0.1, 0.5])
    """

    @staticmethod
    def forward(ctx: FunctionContext, *args: Any) -> Any:
        """Computes the result from `args`, and saves for backward whatever it gives to `ctx`."""
        raise NotImplementedError("autograd.Function: a subclass defines forward(ctx, *args).")

    @staticmethod
    def setup_context(ctx: FunctionContext, inputs: tuple[Any, ...], output: Any) -> None:
        """Tells `ctx` what backward needs of the `inputs` and of the `output` of a forward that gets no ctx.

        >>> class Squared(Function):
        ...     @staticmethod
        ...     def forward(x):
        ...         return x * x
        ...     @staticmethod
        ...     def setup_context(ctx, inputs, output):
        ...         ctx.save_for_backward(*inputs)
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return grad * 2 * ctx.saved_tensors[0]
        >>> x = Tensor([3.0], requires_grad=True)
        >>> Squared.apply(x).sum().backward()
        >>> x.grad
        Tensor([6.])
        """
        raise NotImplementedError("autograd.Function: a subclass may define setup_context(ctx, inputs, output).")

    @staticmethod
    def backward(ctx: FunctionContext, *grads: Any) -> Any:
        """Computes the gradient of each argument from `grads`, those of the results, and what `ctx` has kept.

        >>> class Negated(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 1
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return -grad
        >>> x = Tensor([1.0], requires_grad=True)
        >>> Negated.apply(x).sum().backward()
        >>> x.grad
        Tensor([-1.])
        """
        raise NotImplementedError("autograd.Function: a subclass defines backward(ctx, *grads); jvp is derived from it.")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Calls the function with `args`: Tensors, which are differentiated, and anything else.

        Raises:
          ArgumentError: forward returns something else than Tensors, or backward another number of gradients than of args.
          ShapeError:    a gradient has another shape than its argument, and none of which the argument can be broadcast to.
          JitError:      under jit or vmap forward or backward asks for a value, keeps a tensor, or writes to one made
                         before that is not an argument which forward returns.

        >>> class Double(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return grad * 2
        >>> Double.apply(Tensor([1.0]))
        Tensor([2.])
        """
        is_traced = trace.get() is not None
        if is_traced or not cls._runs_as_called:
            applied = _Applied(cls, args)
            try:
                results = applied.results()
                if not is_traced and applied.is_ever_another():
                    cls._runs_as_called = True
                return results
            except JitError:
                if is_traced:
                    raise
            cls._runs_as_called = True
        return _Applied(cls, args).results_as_called()

    _runs_as_called = False  # since it could not be traced, or is ever another


BODIES_MAX = 8  # of a Function and operands of one kind, before it runs as it is called
_bodies: Latest[Hashable, set[int]] = Latest(1024)  # name of a Function, kinds of its operands -> hashes of its bodies


class _TraceOfPart(BodyTrace):
    """A trace of forward or backward, in which backward() would add to `.grad` once and not in each run."""

    def on_backward(self) -> None:
        fact = f"autograd.Function: {self.function} calls backward() while it is traced, which adds to .grad."
        raise JitError(fact, "autograd.grad(outputs, inputs) inside, and return the gradients.")


class _Applied:
    """A call of a Function on its way to a CALL.

    places:  which of the arguments are Tensors
    start:   their values
    body:    of the CALL, where it has been traced
    """

    body: Op | None = None

    def __init__(self, function: type[Function], args: tuple[Any, ...]):
        self.function, self.args, self.name = function, args, function.__name__
        self.places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
        self.start = [args[i].read() for i in self.places]
        self.context = FunctionContext(tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args))

    def results(self) -> Any:
        """Traces forward and backward; returns the results of the CALL, of arguments without Tensors those of forward."""
        if not self.places:
            with no_grad():
                return self._called([*self.args])
        body, sources, returned, constant = self._forward()
        back, back_sources, reads, places = self._backward(body, returned.tensors, len(sources))
        sources = [*sources, *map(detached, back_sources)]  # no gradient flows to values that are read as a closure
        every: list[int | None] = [None] * len(sources)
        every[: len(places)] = places
        mark = mark_of(CustomGradient(back, reads, len(returned.tensors), tuple(every))) if back is not None else None
        self.body = sink(body, mark)
        call = Op(OpCode.CALL, self.body.dtype, tuple(sources), self.body)
        record(call)
        found: list[Tensor] = []
        for number, tensor in enumerate(returned.tensors):
            op = output(call, number)
            still = back is None or number in constant or not body[number].dtype.is_float
            op = detached(op) if still else op
            place = self.written.get(number)
            argument = None if place is None else self.args[place].write(f"{self.name}.apply", op)
            found.append(Tensor.from_op(op, tensor.cell.device) if argument is None else argument)
        return put(returned.container, found)

    def is_ever_another(self) -> bool:
        """Returns whether the function has had more than BODIES_MAX bodies for operands of these kinds."""
        kinds = tuple([(op.dtype, op.shape) for op in self.start])
        key = self.function.__module__, self.function.__qualname__, kinds
        bodies = _bodies.get(key) or set()
        _bodies.put(key, bodies | {hash(self.body)})
        return len(_bodies[key]) > BODIES_MAX

    # ---- forward ----
    def _forward(self) -> tuple[list[Op], list[Op], Any, set[int]]:
        """Returns the roots of the body, the meaning of its PARAMs, the result, and its constant parts."""
        with _TraceOfPart("autograd.Function", self.name) as watch, no_grad():
            inside = [self.args[i] for i in self.places]
            for tensor, op in dict(zip(inside, self.start)).items():  # a tensor may be several arguments
                watch.lend(tensor, stand_in(op.dtype, op.shape, tensor.cell.device, op.needs_grad))
            stands = [tensor.cell.op for tensor in inside]
            returned = take(watch.call(self._called, [*self.args]), "result")
            roots = [tensor.read() for tensor in returned.tensors]
            saved = [tensor for tensor in self.context.saved_tensors if tensor is not None]
            kept = [tensor.read() for tensor in saved]
            self.written = self._written(inside, stands, returned.tensors)
        if returned.others or not roots:
            fact = f"{self.name}.apply: forward must return a Tensor or a tuple of them."
            raise ArgumentError(fact, "return Tensors only; ctx.name = value keeps other values for backward.")
        self._check(watch, [*returned.tensors, *inside, *saved, *self.context.constant], "forward")
        closed = close(watch, _recorded([*roots, *kept]), stands)
        constant = {i for i, tensor in enumerate(returned.tensors) if any(tensor is c for c in self.context.constant)}
        body = [_result(op) for op in closed.roots[: len(roots)]]
        self.kept = list(closed.roots[len(roots) :])  # what backward reads, over PARAMs of the body
        return body, [*self.start, *map(detached, closed.sources)], returned, constant

    def _called(self, args: list[Any]) -> Any:
        """Returns the result of forward, and of setup_context where the function has one."""
        if self.function.setup_context is Function.setup_context:
            return self.function.forward(self.context, *args)
        given = inspect.signature(self.function.forward).bind(*args)
        given.apply_defaults()
        output = self.function.forward(*given.args)
        self.function.setup_context(self.context, given.args, output)
        return output

    def _written(self, inside: Sequence[Tensor], stands: Sequence[Op], results: Sequence[Tensor]) -> dict[int, int]:
        """Returns, for results that are arguments written in place, which argument each is.

        Raises:
          JitError: one that was written is not returned.
        """
        found: dict[int, int] = {}
        for place, tensor, op in zip(self.places, inside, stands):
            if tensor.cell.op is not op or any(tensor is one for one in self.context.dirty):
                number = next((i for i, result in enumerate(results) if result is tensor), None)
                if number is None:
                    fact = f"autograd.Function: forward of {self.name} writes to argument {place} and does not return it."
                    raise JitError(fact, "return it, or the new value instead.")
                found[number] = place
        return found

    # ---- functions that read values ----
    def results_as_called(self) -> Any:
        """Calls forward; returns its results, whose gradients are those of a call of backward."""
        with no_grad():
            returned = self._called([*self.args])
        outputs = [*returned] if isinstance(returned, (tuple, list)) else [returned]
        tensors = [tensor for tensor in outputs if isinstance(tensor, Tensor)]
        if not (is_grad_enabled() and any(self.context.needs_input_grad)):
            return returned
        self.outputs = [next((i for i, t in enumerate(tensors) if t is output), None) for output in outputs]
        self.results_like = [(tensor.dtype, tensor.op.shape, tensor.cell.device) for tensor in tensors]
        self.saved_as = [self._kept_of(tensor, tensors) for tensor in self.context.saved_tensors]
        self.context.saved_tensors = ()
        call = self._passing_on([detached(tensor.read()) for tensor in tensors])
        found = iter([self._passed_on(call, number, tensor) for number, tensor in enumerate(tensors)])
        results = [next(found) if isinstance(output, Tensor) else output for output in outputs]
        return type(returned)(results) if isinstance(returned, (tuple, list)) else results[0]

    def _passing_on(self, values: list[Op]) -> Op:
        """Returns a CALL of the arguments, the results and this object, which passes the results on."""
        made = CalledGradient(next(leaf_ids))
        made.gradients = self.gradients_as_called
        tag = Op(OpCode.LEAF, dtypes.float32, (const(0.0, dtypes.float32),), made)
        sources = [*self.start, *values, tag]
        body = [_result(param(value, len(self.start) + number)) for number, value in enumerate(values)]
        places: list[int | None] = [0 if op.dtype.is_float else None for op in self.start]
        places += [None] * (len(sources) - len(places))
        mark = mark_of(CustomGradient(None, (), len(values), tuple(places)))
        call = Op(OpCode.CALL, body[0].dtype, tuple(sources), sink(body, mark))
        record(call)
        return call

    def _passed_on(self, call: Op, number: int, tensor: Tensor) -> Tensor:
        """Returns a result of the CALL; an argument that forward has written gets it as its value."""
        op = output(call, number)
        still = any(tensor is one for one in self.context.constant) or not tensor.dtype.is_float
        op = detached(op) if still else op
        if any(tensor is one for one in self.context.dirty):
            return tensor.write(f"{self.name}.apply", op)
        return Tensor.from_op(op, tensor.cell.device)

    def _kept_of(self, saved: Tensor | None, results: Sequence[Tensor]) -> tuple[str, Any]:
        """Returns a saved tensor as an argument or a result by number, lest a graph hold itself, or else as it is."""
        slot = next((slot for slot, i in enumerate(self.places) if self.args[i] is saved), None)
        if slot is not None and not any(saved is one for one in self.context.dirty):
            return "argument", slot
        number = next((i for i, result in enumerate(results) if result is saved), None)
        return ("tensor", saved) if number is None else ("result", number)

    def _saved_by(self, call: Op, kind: str, what: Any) -> Any:
        """Returns a saved tensor; an argument that has been written since as it was."""
        if kind == "result":
            return Tensor.from_op(output(call, what), self.results_like[what][2])
        if kind == "argument":
            given: Tensor = self.args[self.places[what]]
            return given if given.op is self.start[what] else Tensor.from_op(self.start[what], given.cell.device)
        return what

    def gradients_as_called(self, call: Op, grads: Mapping[int, Op], needed: Sequence[int]) -> list[Op | None]:
        """Returns the gradients of arguments that are needed, by a call of backward."""
        every: list[Tensor | None] = []
        for number, (dtype, shape, device) in enumerate(self.results_like):
            grad = grads.get(number, filled(0, dtype, shape) if self.context.gets_zeros else None)
            every.append(None if grad is None else Tensor.from_op(grad, device))
        self.context.saved_tensors = tuple([self._saved_by(call, kind, what) for kind, what in self.saved_as])
        returned = self.function.backward(self.context, *(None if n is None else every[n] for n in self.outputs))
        self.context.saved_tensors = ()
        found = {i: cast(tensor.read(), self.start[i].dtype) for i, tensor in self._gradients(returned)}
        return [found.get(slot) for slot in needed]

    def _check(self, watch: BodyTrace, known: Sequence[Tensor], part: str) -> None:
        if watch.changed():
            raise JitError(
                f"autograd.Function: {part} of {self.name} writes to a tensor made before.", "return the new value instead."
            )
        watch.check_kept(known, "a later call would not replace it.", "ctx.save_for_backward(x), or return it.")

    # ---- backward ----
    def _backward(
        self, body: list[Op], results: Sequence[Tensor], num_sources: int
    ) -> tuple[Op | None, tuple[Op, ...], tuple[tuple[str, int], ...], list[int | None]]:
        """Returns the backward body, what else it reads from outside, what it reads of the CALL, and where gradients are.

        A saved value that is neither argument nor result becomes a further root of `body`.
        """
        with _TraceOfPart("autograd.Function", self.name) as watch, no_grad():
            saved = self.context.saved_tensors
            tensors = [
                self._saved(op, tensor, watch)
                for op, tensor in zip(self.kept, (tensor for tensor in saved if tensor is not None))
            ]
            grads = [_stands_for(op, tensor.cell.device) for op, tensor in zip(body, results)]
            stands = [tensor.cell.op for tensor in (*tensors, *grads)]
            given = iter(tensors)
            self.context.saved_tensors = tuple([None if tensor is None else next(given) for tensor in saved])
            returned = watch.call(self.function.backward, self.context, *grads)
            gradients = self._gradients(returned)
            roots = _recorded([cast(tensor.read(), self.start[i].dtype) for i, tensor in gradients])
        self._check(watch, [*grads, *tensors, *(tensor for _, tensor in gradients)], "backward")
        closed = close(watch, roots, stands)
        reads = [self._read(op, body) for op in self.kept]
        places: list[int | None] = [None] * len(self.start)
        for number, (i, _) in enumerate(gradients):
            places[i] = number
        if not roots:
            return None, (), (), places
        back, reads = _reordered(closed.roots, reads, len(results), num_sources, len(closed.sources))
        return back, closed.sources, tuple(reads), places

    def _gradients(self, returned: Any) -> list[tuple[int, Tensor]]:
        """Returns the gradients of Tensors among the arguments, with their numbers among these."""
        given = returned if isinstance(returned, tuple) else (returned,)
        if len(given) < len(self.args) or any(more is not None for more in given[len(self.args) :]):
            raise ArgumentError(
                f"{self.name}.apply: backward returned {len(given)} gradients, forward got {len(self.args)} arguments.",
                "return one for each argument, None for those without a gradient.",
            )
        found: list[tuple[int, Tensor]] = []
        for i, place in enumerate(self.places):
            tensor = given[place]
            if tensor is None or not self.start[i].dtype.is_float:
                continue
            if not isinstance(tensor, Tensor):
                raise ArgumentError(f"{self.name}.apply: backward returned {tensor!r}, not a Tensor, for argument {place}.")
            if tensor.op.shape != self.start[i].shape and _expands(self.start[i].shape, tensor.op.shape):
                tensor = tensor.sum_to_size(self.start[i].shape)
            if tensor.op.shape != self.start[i].shape:
                raise ShapeError(
                    f"{self.name}.apply: backward returned a gradient of shape {tensor.op.shape} for argument {place},"
                    f" which is {described(self.start[i])}."
                )
            found.append((i, tensor))
        return found

    def _saved(self, op: Op, tensor: Tensor, watch: BodyTrace) -> Tensor:
        """Returns the tensor that backward finds saved: an argument itself, so that gradients can be asked for it."""
        place = op.arg[0] if op.code is OpCode.PARAM else len(self.places)
        if place >= len(self.places) or place in self.written.values():
            return _stands_for(op, tensor.cell.device)
        argument: Tensor = self.args[self.places[place]]
        watch.lend(argument, stand_in(op.dtype, op.shape, argument.cell.device, self.start[place].needs_grad))
        return argument

    def _read(self, op: Op, body: list[Op]) -> tuple[str, int]:
        """Returns where backward finds a value: an argument, or a result; any other value becomes a result."""
        if op.code is OpCode.PARAM:
            return "source", op.arg[0]
        if op not in body:
            body.append(op)
        return "result", body.index(op)


def _expands(shape: Shape, wider: Shape) -> bool:
    """True if a tensor of a shape can be broadcast to a wider one."""
    if len(shape) > len(wider):
        return False
    return all(dim in (1, other) for dim, other in zip(reversed(shape), reversed(wider)))


class CalledGradient(int):
    """The number of a LEAF with the gradients of the CALL whose last source it is.

    gradients:  of (call, grads by result, needed sources)
    """

    gradients: Callable[[Op, Mapping[int, Op], Sequence[int]], list[Op | None]]


def _stands_for(op: Op, device: str | None) -> Tensor:
    """Returns a stand-in for a value of the forward part, or for its gradient."""
    return Tensor.from_op(stand_in(op.dtype, op.shape, device, False), device)


def _recorded(roots: Sequence[Op]) -> list[Op]:
    """Returns the roots with what was not recorded under no_grad(): gradients of gradients flow through all of it."""
    became: dict[Op, Op] = {}
    for op in toposort(roots):
        src = tuple(became[s] for s in op.src)
        became[op] = src[0] if op.code is OpCode.DETACH and op.src[0].needs_grad else op.replace(src=src)
        copy_lines(op, became[op])
    return [became[root] for root in roots]


def _result(op: Op) -> Op:
    """Returns a root of a body; a value that is passed on is stored, so that it has a gradient of its own."""
    return Op(OpCode.CONTIGUOUS, op.dtype, (op,)) if op.code is OpCode.PARAM else op


def _reordered(
    roots: Sequence[Op], reads: list[tuple[str, int]], count: int, num_sources: int, num_more: int
) -> tuple[Op, list[tuple[str, int]]]:
    """Returns the backward body with what it reads from outside before the gradients, and its reads with that added."""
    first = len(reads)
    slots = {i: i for i in range(first)}
    slots.update({first + i: first + num_more + i for i in range(count)})
    slots.update({first + count + i: first + i for i in range(num_more)})
    params = [op for op in toposort(roots) if op.code is OpCode.PARAM]
    moved = substitute(roots, {op: param(op, slots[op.arg[0]]) for op in params})
    return sink(moved), [*reads, *(("source", num_sources + i) for i in range(num_more))]
