"""Captures a function of Tensors as one plan: traced once, checked by a second trace, then replayed.

In:    a Python function of Tensors
Out:   a callable that runs one plan
Next:  picograd/transforms/capture.py

What the function reads is one of three things: an argument; state, which is a cell made before the call (parameters,
optimizer state, a random generator); or a constant it made itself. What it computes is returned or stored in state.
A plan knows nothing else of Python, so the second call traces again and must find the identical graph, and what the
function's code mentions must mean the same ever after (transforms/guards.py).
"""

from __future__ import annotations

import functools
import gc
import struct
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from picograd.dtype import DType
from picograd.engine.plan import template, unbound
from picograd.engine.realize import default_device, devices_of, find_plan, realize, realized
from picograd.errors import JitError
from picograd.ir.lines import lines_of
from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Plan
from picograd.nn.module import Module
from picograd.tensor.cell import Cell, trace
from picograd.tensor.core import leaf_tensors
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length
from picograd.transforms.capture import Capture, buffer_of, mapped
from picograd.transforms.guards import Guards, guards_of, modules_of

P = ParamSpec("P")
R = TypeVar("R")
MOST_CAPTURES = 256  # of one function; the oldest goes first


class _TraceOfFunction:
    """What a function touches while it is traced.

    state:    cells made before the trace whose value it read, in order
    before:   what they held
    written:  cells made before the trace that it wrote to
    made:     cells made in the trace that are still alive
    """

    def __init__(self, function: str):
        self.function = function
        self.before: dict[Cell, Op] = {}
        self.written: dict[Cell, None] = {}
        self.made: weakref.WeakSet[Cell] = weakref.WeakSet()

    def on_make(self, cell: Cell) -> None:
        self.made.add(cell)

    def on_read(self, cell: Cell) -> None:
        if cell.made_in is self or cell in self.before:
            return
        if cell.op.code is not OpCode.BUFFER:
            token = trace.set(None)
            try:
                buffer = realize([cell.op])[0]
            finally:
                trace.reset(token)
            if not cell.op.needs_grad:
                cell.op = buffer
        # Equal values can share a buffer (all zeros, say); a state is told by its buffer, so each gets its own name.
        if cell.op.code is OpCode.BUFFER and any(cell.op.arg[0] is op.arg[0] for op in self.before.values()):
            shared, shape = cell.op.arg
            own = Buffer(shared.device, shared.dtype, shared.numel, shared.memory)
            cell.op = Op(OpCode.BUFFER, cell.op.dtype, (), (own, shape))
        self.before[cell] = cell.op

    def on_write(self, cell: Cell) -> None:
        if cell.made_in is not self:
            self.on_read(cell)
            self.written[cell] = None

    def on_host_read(self, function: str) -> None:
        raise JitError(
            f"jit: {function}() asks for a value while {self.function} is traced; there is none yet.",
            "return the tensor and read it outside.",
        )


@dataclass
class Jit:
    """A function with its captures, by the form of its arguments. Made by `jit`."""

    function: Callable[..., Any]
    captures: dict[Hashable, list[Capture]] = field(default_factory=dict)
    modules: dict[Hashable, tuple[Module, ...]] = field(default_factory=dict)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @functools.cached_property
    def name(self) -> str:
        return getattr(self.function, "__name__", "the function")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if trace.get() is not None:
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        variables: dict[str, int] = {}
        key = _flatten((args, kwargs) if kwargs else args, tensors, self.name, variables)
        forms = []
        for tensor in tensors:
            op = tensor.op
            if op.code is not OpCode.BUFFER:
                op = _checked(tensor, self.name)
            shape = op.shape
            for dim in shape:
                if dim.__class__ is not int:
                    shape = unbound(shape, variables)
                    break
            forms.append((shape, op.dtype, tensor.cell.device))
        found = self.found((not kwargs, key, *forms), args)  # f((x,), {"a": y}) is not f(x, a=y)
        if len(found) < 2:
            return self.trace_and_run(found, args, kwargs, tensors, variables)
        broken = found[0].guards.broken()
        if broken is not None:
            raise JitError(
                f"jit: since {self.name} was traced, {broken}.",
                "what changes from call to call must be an argument, or a Tensor written in place.",
            )
        return found[0].replay(tensors, variables)

    def found(self, key: Hashable, args: Any) -> list[Capture]:
        """Returns the captures for arguments of this form, and Modules that train, or do not, as they do now."""
        modules = self.modules.get(key)
        if modules is None:
            if len(self.captures) >= MOST_CAPTURES:
                self.modules.clear()
                self.captures.clear()
            modules = self.modules[key] = modules_of(self.function, args)
        return self.captures.setdefault((key, tuple(m.training for m in modules)), [])

    def trace_and_run(
        self, found: list[Capture], args: Any, kwargs: Any, tensors: list[Tensor], variables: dict[str, int]
    ) -> Any:
        """The first call makes the plan; the second checks that it would make the same one."""
        for tensor in tensors:
            buffer_of(tensor)  # computed before the trace, in which nothing is
        capture = self.capture(args, kwargs, tensors)
        if found:
            _check_same(found[0], capture, self.name)
            found[0] = replace(found[0], guards=found[0].guards.shared_with(capture.guards))
            found.append(found[0])
            now = capture.with_plan(cast(Plan, found[0].plan))
        else:
            now = capture.with_plan(find_plan(capture.roots, capture.form, capture.device))
            found.append(now)
        del capture
        result = now.replay(tensors, variables)
        for leaf in list(leaf_tensors.values()):  # the trace looked at parameters that now have another value
            leaf.forget_old()
        return result

    def capture(self, args: Any, kwargs: Any, tensors: list[Tensor]) -> Capture:
        """Runs the Python function once on stand-ins for its tensors; nothing is computed."""
        watch = _TraceOfFunction(self.name)
        token = trace.set(watch)
        grads = {number: leaf.grad for number, leaf in list(leaf_tensors.items())}
        stand_ins = [_stand_in(t) for t in tensors]
        starts = [t.cell.op for t in stand_ins]
        values = iter(stand_ins)
        try:
            new_args, new_kwargs = _rebuild((args, kwargs), values)
            returned = self.function(*new_args, **new_kwargs)
            leaves: list[Tensor] = []
            bound: dict[str, int] = {}
            _flatten(returned, leaves, self.name, bound)
            if bound:
                raise JitError(f"jit: {self.name} returns a symbolic integer.", "compute it outside, from the argument.")
            roots = [leaf.read() for leaf in leaves]
            updated = [i for i, (t, op) in enumerate(zip(stand_ins, starts)) if t.cell.op is not op]
            roots += [cell.op for cell in watch.written] + [stand_ins[i].cell.op for i in updated]
            _check_containers((args, kwargs), (new_args, new_kwargs), stand_ins, self.name)
        finally:
            trace.reset(token)
            for cell in watch.written:
                cell.op = watch.before[cell]
            for number, leaf in list(leaf_tensors.items()):
                leaf.grad = grads.get(number)
        _check_aliases(watch, tensors, updated)
        _check_kept(watch, [*leaves, *stand_ins])
        guards = guards_of(self.function, args)
        return self.describe(watch, starts, returned, roots, tuple(updated), guards)

    def describe(
        self, watch: _TraceOfFunction, starts: list[Op], returned: Any, roots: list[Op], updated: tuple[int, ...],
        guards: Guards,
    ) -> Capture:  # fmt: skip
        """Returns what a trace found, by where each buffer comes from."""
        form = template(roots, realized)
        arguments = {op.arg[0]: i for i, op in enumerate(starts)}
        state = {realized.get(op, op).arg[0]: (i, cell) for i, (cell, op) in enumerate(watch.before.items())}
        cells = list(watch.before)
        sources: list[tuple[str, int]] = []
        constants: list[Buffer] = []
        for buffer in form.buffers:
            if buffer in arguments:
                sources.append(("arg", arguments[buffer]))
            elif buffer in state:
                sources.append(("state", state[buffer][0]))
            else:
                sources.append(("constant", len(constants)))
                constants.append(buffer)
        devices = {name for name in devices_of(roots) if name is not None}
        if len(devices) > 1:
            raise JitError(f"jit: {self.name} computes on several devices: {', '.join(sorted(devices))}.")
        device = devices.pop() if devices else default_device()
        shapes = tuple((op.dtype, op.shape) for op in roots)
        skeleton = mapped(returned, lambda t: None)
        return Capture(
            form, tuple(roots), tuple(sources), tuple(cells), tuple(constants), tuple(watch.written), updated,
            skeleton, shapes, device, guards,
        )  # fmt: skip


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Captures a function of Tensors; after two calls, a call runs one plan and no Python of the function.

    The first call traces the function and runs what it found. The second traces again, and must find the same.
    Arguments may hold Tensors in lists, tuples, dicts and dataclasses; another shape, dtype or device, or another
    value of anything that is not a Tensor, is captured anew; a bound Variable (n.bind(3)) is an input of the plan, and
    lengths of axes that depend on it are one shape. Tensors made before (parameters, optimizer state,
    generators) are read and written as they are at each call. Results never share memory between calls. Gradients
    that are neither returned nor used up inside are dropped: `p.grad` is afterwards what it was before.

    What the function, and functions and methods of yours that it calls by name, read of Python is remembered: closures,
    globals, attributes, settings of optimizers. A change is a JitError, but for a Module's mode and a learning rate,
    which may change. Not seen are `getattr`, sets and deques, containers of more than 16 items, the environment,
    arrays changed in place, and what an installed library reads: pass such things as arguments.

    Args:
      function: of Tensors and of hashable values; it must build the same graph each time

    Raises:
      JitError: the second trace differs from the first, or a value is asked for inside.

    Cost: a call after the second costs some microseconds of Python, plus one for each argument and state.

    >>> import picograd as pg
    >>> double = pg.jit(lambda x: x * 2)
    >>> [double(pg.Tensor([float(i)])).item() for i in range(3)]
    [0.0, 2.0, 4.0]
    """
    wrapped = Jit(function)
    functools.update_wrapper(wrapped, function)
    return cast(Callable[P, R], wrapped)


# ---- containers ----
def _flatten(value: Any, tensors: list[Tensor], name: str, variables: dict[str, int]) -> Hashable:
    """Collects the Tensors of a container in order, and values of symbolic integers.

    Returns what else a capture depends on.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if isinstance(value, list | tuple):
        return (type(value), *[_flatten(v, tensors, name, variables) for v in value])
    if isinstance(value, dict):
        return (dict, *[(k, _flatten(v, tensors, name, variables)) for k, v in value.items()])
    if isinstance(value, Length):
        return (Length, unbound(value.op, variables))
    if isinstance(value, np.ndarray):
        raise JitError(f"jit: {name} got a NumPy array, which would be frozen into the plan.", "pass Tensor(array).")
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *[_flatten(getattr(value, f.name), tensors, name, variables) for f in fields(value)])
    if isinstance(value, float):
        return (float, struct.pack("d", value))  # -0.0 is not 0.0, and NaN is NaN
    if isinstance(value, set | frozenset):
        return (type(value), frozenset(value))
    try:
        hash(value)
    except TypeError:
        raise JitError(
            f"jit: {name} got a {type(value).__name__}, of which it cannot be told whether it has changed.",
            "pass its Tensors and numbers in a list, a tuple, a dict or a dataclass.",
        ) from None
    return (type(value), value)


def _checked(tensor: Tensor, name: str) -> Op:
    """Computes an argument of a call, or raises for one that cannot be an argument; returns what it shows."""
    if tensor.requires_grad:
        raise JitError(
            f"jit: an argument of {name} requires grad, but a plan returns its gradient to nobody.",
            "use it as a global or a closure, or pass x.detach().",
        )
    return tensor.realize().op


def _rebuild(value: Any, tensors: Any) -> Any:
    return mapped(value, lambda _: next(tensors))


def _stand_in(tensor: Tensor) -> Tensor:
    """A tensor with a buffer of its own identity: the same tensor passed twice is two arguments."""
    op = realized.get(tensor.op, tensor.op)
    buffer, shape = op.arg
    copy = Buffer(buffer.device, buffer.dtype, buffer.numel, buffer.memory)
    return Tensor.from_op(Op(OpCode.BUFFER, op.dtype, (), (copy, shape)), tensor.cell.device)


def _check_containers(given: Any, used: Any, stand_ins: list[Tensor], name: str) -> None:
    """Raises where the function put something else into a list or dict that it was given."""
    tensors: list[Tensor] = []
    same = _flatten(given, [], name, {}) == _flatten(used, tensors, name, {})
    if not same or any(a is not b for a, b in zip(tensors, stand_ins)):
        raise JitError(
            f"jit: {name} changes a list or dict that it was given, which later calls would not do.",
            "return the new value instead.",
        )


def _check_aliases(watch: _TraceOfFunction, tensors: list[Tensor], updated: list[int]) -> None:
    """Raises where a tensor is written that the function also reads by another way."""
    cells = [t.cell for t in tensors]
    again = {cells[i] for i in updated if cells.count(cells[i]) > 1 or cells[i] in watch.before}
    again |= set(cells) & set(watch.written)
    if again:
        op = next(iter(again)).op
        raise JitError(
            f"jit: {watch.function} writes to a tensor of shape {op.shape} that reaches it in two ways.",
            "pass it once, or use it as a closure only.",
        )


def _check_kept(watch: _TraceOfFunction, known: list[Tensor]) -> None:
    """Raises where a tensor made in the trace is kept beyond it: later calls would not replace it."""
    accounted = {t.cell for t in known}
    if all(cell in accounted for cell in watch.made):
        return
    gc.collect()  # what only cycles keep alive is not kept
    kept = [cell for cell in watch.made if cell not in accounted]
    if kept:
        line = next(iter(lines_of(kept[0].op)), None)
        raise JitError(
            f"jit: {watch.function} keeps a tensor of shape {kept[0].op.shape} that it made; later calls would not"
            " replace it.",
            "return it, or write it in place to a Tensor made before the first call.",
            line=line,
        )


def _check_same(first: Capture, second: Capture, name: str) -> None:
    """Raises where a second trace differs from the first, naming the first difference."""
    returned = [_flatten(c.returned, [], name, {}) for c in (first, second)]
    if returned[0] != returned[1]:
        raise JitError(
            f"jit: {name} returned {_brief(first.returned)}, then {_brief(second.returned)}: plain values are frozen.",
            "return Tensors; compute plain values outside.",
        )
    if first.form.key == second.form.key and first.sources == second.sources and first.state == second.state:
        return
    for a, b in zip(cast(Any, first.form.key), cast(Any, second.form.key)):
        if a != b:
            place = next((line for op in second.roots for line in lines_of(op)), None)
            raise JitError(
                f"jit: the second trace of {name} differs from the first: {_shown(a)} became {_shown(b)}.",
                "a Python value that changes from call to call must be an argument, or a Tensor written in place.",
                line=place,
            )
    raise JitError(
        f"jit: the second trace of {name} reads other tensors than the first, or in another order.",
        "tensors that the function makes and keeps must be made before the first call.",
    )


def _shown(part: Any) -> str:
    """Returns one entry of a template's key as a reader knows it: an operation with its argument, or an input."""
    if isinstance(part, tuple) and len(part) >= 3 and isinstance(part[0], OpCode):
        code, dtype, arg = part[:3]
        value = struct.unpack("d", arg)[0] if isinstance(arg, bytes) else arg
        return _brief(f"{code.value} {dtype}" if value is None else f"{code.value} {value} {dtype}")
    if isinstance(part, tuple) and len(part) == 3 and isinstance(part[1], DType):
        return f"input {part[0]}, {part[1]} {part[2]},"
    return _brief(part)


def _brief(part: Any) -> str:
    text = str(part)
    return text if len(text) < 120 else text[:117] + "..."
