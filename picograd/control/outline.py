"""A repeated part of a graph as a CALL: its body is one graph, compiled once for any number of calls.

`checkpoint` marks the body, so that the backward pass computes its inside again instead of keeping it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from picograd.autodiff.bodies import RECOMPUTE
from picograd.autodiff.modes import varying
from picograd.control.closure import BodyTrace, close, name_of, stand_in, store
from picograd.control.structure import put, take
from picograd.errors import JitError
from picograd.interrupts import Latest
from picograd.ir.bodies import output, param, sink, substitute
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.tensor.build import detached
from picograd.tensor.cell import trace
from picograd.tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def outline(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function whose graph is one CALL: repeated layers of equal shapes share one body, compiled once.

    Results, gradients, random numbers and tensors written in place are those of `function`. Tensors that it reads
    besides its arguments, such as the parameters of a Module, are arguments of the CALL. No operation inside is fused with
    one outside.

    Args:
      function: a Module, or a function of anything, with Tensors alone or in lists, tuples, dicts and dataclasses

    Raises:
      JitError: a value is read inside, a tensor made inside is kept or has a hook, or an argument is written in place.

    >>> layers = [nn.Linear(2, 2) for _ in range(3)]
    >>> x = Tensor.ones(1, 2)
    >>> for layer in layers:
    ...     x = outline(layer)(x)
    >>> x.shape
    (1, 2)
    """

    def outlined(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, called("outline", function, args, kwargs))

    return functools.update_wrapper(outlined, function) if hasattr(function, "__name__") else outlined


def called(transform: str, function: Callable[..., Any], args: Any, kwargs: Any, mark: str | None = None) -> Any:
    """Calls a function as a CALL.

    Args:
      transform:  name of the function that the user called, for errors
      mark:       mark of the body; see autodiff/bodies.py
    """
    given = take((args, kwargs), "arguments")
    start = [tensor.read() for tensor in given.tensors]
    with BodyTrace(transform, name_of(function)) as watch:
        stands = [stand_in(op.dtype, op.shape, t.cell.device, op.needs_grad) for op, t in zip(start, given.tensors)]
        inside = [Tensor.from_op(op, tensor.cell.device) for op, tensor in zip(stands, given.tensors)]
        own_args, own_kwargs = put(given.container, inside)
        returned = take(watch.call(function, *own_args, **own_kwargs), "result")
        roots = [tensor.read() for tensor in returned.tensors]
        for tensor, op in zip(inside, stands):
            if tensor.cell.op is not op:
                raise JitError(
                    f"{transform}: {watch.function} writes to its argument of shape {op.shape} in place.",
                    "return the new value, or write to a Tensor that is not an argument.",
                )
    watch.check_arguments(given.tensors)
    watch.check_returned([*returned.tensors, *inside])
    cells = watch.changed()
    first = [*stands, *(watch.stand_of(cell) for cell in cells)]
    closed = close(watch, [*roots, *(watch.written[cell] for cell in cells)], first)
    sources = [*start, *(watch.before[cell] for cell in cells), *closed.sources]
    outputs = _call(*_with_numbers(sources, closed.roots), mark)
    for cell, op in zip(cells, outputs[len(roots) :]):
        store(cell, op)
    return returned.with_ops(outputs)


# ---- numbers that change ----
_with_their_own: Latest[int, None] = Latest(1024)  # hashes of roots that keep their numbers
_numbers: Latest[int, tuple[list[float], set[int]]] = Latest(1024)  # hash of a body without numbers -> first, changed


def _with_numbers(sources: list[Op], roots: tuple[Op, ...]) -> tuple[list[Op], tuple[Op, ...]]:
    """Returns sources and roots of a body whose changing numbers are sources, so that one plan is enough.

    Under jit, where numbers must not change, all stay: a second trace must not depend on eager calls.
    """
    if trace.get() is not None or hash(roots) in _with_their_own:
        return sources, roots
    order = toposort(roots)
    fixed = {s for op in order if op.code is OpCode.FORMULA for s in op.src[len(op.src) - len(op.arg.numbers) :]}
    numbers = {op: op.arg for op in order if op.code is OpCode.CONST and op.dtype.kind == "f" and op not in fixed}
    place = {op: i for i, op in enumerate(order)}
    parts = [(op.code, op.dtype, None if op in numbers else op.arg, *map(place.__getitem__, op.src)) for op in order]
    key = hash((*parts, *map(place.__getitem__, roots)))
    before, changed = _numbers.get(key) or ([*numbers.values()], set[int]())
    changed |= {i for i, (first, now) in enumerate(zip(before, numbers.values())) if first != now}
    _numbers.put(key, (before, changed))
    if not changed:
        _with_their_own.put(hash(roots), None)
    moved = [op for i, op in enumerate(numbers) if i in changed]
    places = {op: param(op, len(sources) + i) for i, op in enumerate(moved)}
    return [*sources, *moved], tuple(substitute(roots, places))


def _call(sources: list[Op], roots: tuple[Op, ...], mark: str | None) -> list[Op]:
    """Returns the value of each root as a result of one CALL; a value that is only passed on is not a result."""
    computed = tuple(dict.fromkeys(root for root in roots if root.code is not OpCode.PARAM))
    values: dict[Op, Op] = {}
    if computed:
        body = sink(computed, mark)
        call = Op(OpCode.CALL, body.dtype, tuple(sources), body)
        record(call)
        reached = varying(computed, {slot for slot, source in enumerate(sources) if source.needs_grad})
        for number, root in enumerate(computed):
            result = output(call, number)
            values[root] = result if root in reached else detached(result)
    return [sources[root.arg[0]] if root.code is OpCode.PARAM else values[root] for root in roots]


# ---- memory for time ----


def checkpoint(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls a function whose intermediate values the backward pass computes again instead of keeping them.

    Values and gradients are those of function(*args), random numbers inside are drawn once. Kept for the backward pass
    are the arguments and other tensors that the function reads. A function that cannot be traced, since it reads a value,
    keeps a tensor made inside, hooks into its gradient or writes to an argument, is called as it is, and keeps all values.

    Args:
      function:      or method, or Module
      args, kwargs:  Tensors, alone or in lists, tuples, dicts and dataclasses, and anything else that it takes

    Returns:   what the function returns

    Raises:
      JitError: under jit or vmap the function cannot be traced.

    Cost:      the forward pass of the function twice.

    >>> x = Tensor([2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).exp().log(), x).sum().backward()
    >>> x.grad
    Tensor([4.])
    """
    try:
        return cast(R, called("checkpoint", function, args, kwargs, mark=RECOMPUTE))
    except JitError:
        if trace.get() is not None:
            raise
    return function(*args, **kwargs)
