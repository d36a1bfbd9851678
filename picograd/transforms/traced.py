"""The trace of a function, and the acts that are forbidden in one.

In:    a function and its arguments; one run of the Python function, in which nothing is computed
Out:   `TraceOfFunction`: the state it read and wrote;  JitErrors that name acts that cannot be captured, with their line,
       and changes of Python's own state, which later calls would not repeat, since they run no Python
"""

from __future__ import annotations

import itertools
import random
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, ClassMethodDescriptorType, FrameType, FunctionType
from typing import Any, cast

import numpy as np

from picograd.control.closure import FunctionTrace
from picograd.dtype import DType
from picograd.engine.realize import realize, to_host
from picograd.errors import JitError, Line
from picograd.interrupts import LivingKeys, whole_context
from picograd.ir.op import Buffer, Op, Shape, memory_op, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.origin import another_buffer, lines_of
from picograd.nn.module import Module
from picograd.tensor.cell import Cell, trace
from picograd.tensor.compute import placed
from picograd.tensor.first_values import evaluate_first, is_fill, stored_fill
from picograd.tensor.gradients import UsedUp
from picograd.tensor.hooks import LeafNumber
from picograd.tensor.modes import Mode
from picograd.tensor.tensor import Tensor
from picograd.tensor.unasked import leaf_tensors
from picograd.transforms.bytecode_reads import is_users_code
from picograd.transforms.capture import Recording
from picograd.transforms.containers import Arguments, flatten, two_ways
from picograd.transforms.guards import Guards, HooksRead, guards_of
from picograd.transforms.results import GRADIENTS, Collected, TraceOfGradients, same_collected

# ---- changes of Python's own state ----
NUMPYS = "numpy.random"  # NumPy loads it when it is first used; before that nothing was drawn from it


class Effects:
    """The state of things that a function can change, before it runs. The first call may set things once and for all."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]):
        self._guards = guards_of(function, args, kwargs)
        self._called: list[tuple[str, Line]] = []  # calls of functions that read something outside of the program
        meant = [(guard.name, guard.read()) for guard in self._guards.values]
        drawing = [(name, value) for name, value in meant if _draws_numbers(value)]
        self._draws = [(name, value, _state_of(value)) for name, value in drawing]

    @whole_context
    def watched(self) -> Iterator[None]:
        """Watches the calls within a block, if the function mentions a clock, a file or the like.

        Python has only one profile function: while a profiler runs, nothing is watched.
        """
        names = {function: name for name, function in self._guards.outside.items()} if sys.getprofile() is None else {}

        codes = {function.__code__: name for function, name in names.items() if isinstance(function, FunctionType)}

        def look(frame: FrameType, event: str, called: Any) -> None:
            name = None
            caller: FrameType | None = frame
            if event == "c_call" and isinstance(called, BuiltinFunctionType):
                name = next((name for function, name in names.items() if _is_same(function, called)), None)
            elif event == "call" and frame.f_code in codes:
                name, caller = codes[frame.f_code], frame.f_back
            if name is not None and caller is not None and is_users_code(caller.f_code):
                self._called.append((name, Line(caller.f_code.co_filename, caller.f_lineno)))

        try:
            if names:
                sys.setprofile(look)
            yield
        finally:
            if names:
                sys.setprofile(None)

    def check(self, name: str) -> None:
        """Raises JitError if something has changed since."""
        for called, line in self._called:
            raise JitError(
                f"jit: {name} calls {called}(), whose result would be the same in all later calls.",
                "call it outside, and pass its result as a Tensor.",
                line=line,
            )
        broken = self._guards.broken()
        if broken is not None:
            raise JitError(
                f"jit: {name} changes what it reads: {broken.text}. Later calls would not.",
                "return it, keep it in a Tensor that is written in place, or change it outside.",
                line=broken.line,
            )
        for drawn, generator, before in self._draws:
            if _state_of(generator) != before:
                raise _draws(name, drawn)


class GlobalDraws:
    """The states of Python's and NumPy's generators that every program shares."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), _numpys_state()

    def check(self, name: str) -> None:
        """Raises JitError if numbers have been drawn since."""
        if random.getstate() != self._python:
            raise _draws(name, "random")
        if self._numpy is not None and _numpys_state() != self._numpy:
            raise _draws(name, "np.random")


def _draws(name: str, generator: str) -> JitError:
    return JitError(
        f"jit: {name} draws numbers from {generator}; later calls would not draw.",
        "pg.rand and others draw new numbers at each call; or pass the number as an argument.",
    )


def _is_same(function: Any, called: Any) -> bool:
    """True if `called` is the function, also as the bound form of a class method from the dict of its class."""
    is_of_class = isinstance(function, ClassMethodDescriptorType) and function.__name__ == called.__name__
    return is_of_class or bool(function == called)


def _draws_numbers(value: Any) -> bool:
    if isinstance(value, random.Random):
        return True
    return NUMPYS in sys.modules and isinstance(value, (np.random.Generator, np.random.RandomState))


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    is_new = isinstance(generator, np.random.Generator)
    return repr(generator.bit_generator.state if is_new else generator.get_state())


def _numpys_state() -> str | None:
    return repr(np.random.get_state(legacy=False)) if NUMPYS in sys.modules else None


# ---- one run ----
class TraceOfFunction(FunctionTrace):
    """A trace in which cells made before it, the state of a capture, are in memory, each in a buffer of its own.

    Gradients and joins of long lists are written out only after it, when loops have been rolled up, as in an eager step.
    """

    waits = True

    def __init__(self, function: str):
        super().__init__("jit", function)
        self.grads = TraceOfGradients()
        self._clock = itertools.count()
        self._times: LivingKeys[Cell, int] = LivingKeys()  # when each cell was last written
        self._entered: set[Buffer] = set()  # the buffers in `before`

    @whole_context
    def tracing(self, modes: Mapping[Module, bool]) -> Iterator[None]:
        """Traces a block; undoes its changes at the end.

        Args:
          modes:  whether Modules train
        """
        trace.set(self)
        try:
            yield
        finally:
            trace.set(None)
            for cell in self.written:
                cell.op = self.before[cell]
            self.grads.restore()
            for module, mode in modes.items():
                if module.training is not mode:
                    module.training = mode

    def enter(self, cell: Cell) -> None:
        """Computes the value of a cell that is touched for the first time."""
        if cell.op.code is not OpCode.BUFFER:
            with Mode(trace, None):
                evaluate_first([cell.op])
                is_constant = is_fill(cell.op) and cell.op.realized is None
                buffer = stored_fill(cell.op, cell.device) if is_constant else realize([placed(cell, cell.op)])[0]
            if not cell.op.needs_grad:
                cell.op = buffer
        if cell.op.code is OpCode.BUFFER:
            shared, shape = cell.op.arg
            if shared in self._entered:  # by an equal value, such as zeros: but each state must have its own buffer
                cell.op = memory_op(another_buffer(shared), shape)
            self._entered.add(cell.op.arg[0])
        self.before[cell] = cell.op

    def on_make(self, cell: Cell) -> None:
        super().on_make(cell)
        self._times[cell] = next(self._clock)

    def on_write(self, cell: Cell) -> None:
        super().on_write(cell)
        self._times[cell] = next(self._clock)

    def on_look(self, leaf: Any) -> None:
        self.grads.on_look(leaf)

    def on_forget(self, leaf: Any) -> None:
        self.grads.on_forget(leaf)

    def collected(self) -> tuple[Collected | None, list[Tensor]]:
        """Returns the changes of leaves' `.grad`, and the gradients that the plan has to return for them."""

        def used_up(leaf: Any) -> UsedUp:
            return UsedUp(self.function, f"a tensor of shape {leaf.shape}")

        def is_used_up(leaf: Cell, grad: Cell) -> bool:
            return self._times.get(leaf, -1) > self._times[grad]

        return self.grads.found(lambda cell: cell.made_in is self, is_used_up, used_up)

    def name_used_up(self, collected: Collected | None, guards: Guards) -> None:
        """Names the owner of each used-up gradient as in the guards."""
        names = {id(tensor): path for tensor, _, _, path in guards.modes}
        for leaf, value in zip(collected.put, collected.values) if collected is not None else ():
            if isinstance(value, UsedUp):
                value.leaf = names.get(id(leaf), value.leaf)

    def hooks(self) -> tuple[HooksRead, ...]:
        """Returns the hooks of leaves that the function touched: they are part of its computation."""
        numbers = [number for number, leaf in leaf_tensors.items() if leaf.cell in self.before]
        held = [hooks for number in numbers if isinstance(number, LeafNumber) for hooks in (number.hooks, number.after)]
        return tuple((hooks, tuple(hooks.values())) for hooks in held)

    def check_replaced(self, known: list[Tensor]) -> None:
        """Raises JitError if a tensor that was made in the trace is kept beyond it."""
        hint = "return it, or make it before the first call: one call without jit makes a cache or an optimizer's state."
        self.check_kept(known, "later calls would not replace it.", hint)


def stand_in(tensor: Tensor, buffer: Buffer, shape: Shape) -> Tensor:
    """Returns a tensor with a buffer of its own: a tensor that is passed twice is two arguments."""
    copy = another_buffer(buffer)
    return Tensor.from_op(memory_op(copy, shape), tensor.cell.device)


# ---- acts that are forbidden in a trace ----
def check_containers(given: Any, used: Any, stand_ins: list[Tensor], name: str) -> None:
    """Raises if the function changed a list or dict that it was given."""
    tensors: list[Tensor] = []
    same = flatten(given, [], name, {}) == flatten(used, tensors, name, {})
    if not same or any(a is not b for a, b in zip(tensors, stand_ins)):
        raise JitError(
            f"jit: {name} changes a list or dict argument; later calls would not.",
            "return the new value instead.",
        )


def check_aliases(watch: TraceOfFunction, tensors: Sequence[Tensor], updated: list[int]) -> None:
    """Raises if the function writes a tensor that it also reads in another way."""
    cells = [t.cell for t in tensors]
    again = {cells[i] for i in updated if cells.count(cells[i]) > 1 or cells[i] in watch.before}
    again |= set(cells) & set(watch.written)
    if again:
        raise two_ways(watch.function, next(iter(again)).op.shape)


def check_shapes(stand_ins: Sequence[Tensor], starts: Sequence[Op], name: str) -> None:
    """Raises if the function makes an argument another view, as t_() does: the caller's Tensor would not change."""
    turned = [start for tensor, start in zip(stand_ins, starts) if any(step[0] not in GRADIENTS for step in tensor.steps)]
    if turned:
        raise JitError(
            f"jit: {name} makes an argument of shape {turned[0].shape} another view of its storage; the caller's"
            " Tensor would not become one.",
            "use x.t(), x.transpose(...), x.unsqueeze(...) in place of x.t_() and the like.",
        )


def check_donated(given: Arguments, updated: list[int], name: str) -> None:
    """Raises if the function writes in place to a donated argument."""
    both = [given.tensors[i].shape for i in updated if i in given.donated]
    if both:
        raise JitError(
            f"jit: {name} writes in place to a donated argument of shape {both[0]}, whose new value would be lost.",
            "return the new value, or do not donate the argument.",
        )


def check_modes(modes: Mapping[Module, bool], name: str) -> None:
    """Raises if the function leaves a Module in another mode, which later calls would not do."""
    changed = next((module for module, mode in modes.items() if module.training is not mode), None)
    if changed is not None:
        mode = "train" if changed.training else "eval"
        raise JitError(
            f"jit: {name} puts a {type(changed).__name__} into {mode} mode and leaves it there, which later calls would"
            " not do.",
            f"call .{mode}() before the call, or put the mode back inside.",
        )


# ---- the second trace ----
def check_same(first: Recording, second: Recording) -> None:
    """Raises if the second trace differs from the first; names the first difference."""
    name, returned = second.name, (first.returned, second.returned)
    values = [flatten(each.container, [], name, {}) for each in returned]
    if values[0] != values[1]:
        before, now = [_brief(each.container) for each in returned]
        raise JitError(
            f"jit: {name} returned {before}, then {now}: plain values are frozen.",
            "return Tensors; compute plain values outside.",
        )
    recipes = [[recipe.form for recipe in each.recipes or ()] for each in returned]
    if recipes[0] != recipes[1]:
        raise JitError(
            f"jit: the second trace of {name} returns other views than the first.",
            "return views of the same tensors at each call, or clones.",
        )
    if not same_collected(*[each.collected for each in returned]):
        raise JitError(
            f"jit: the second trace of {name} leaves other gradients in .grad than the first.",
            "call backward() and zero_grad() of the same tensors at each call.",
        )
    for i, (a, b) in enumerate(zip(cast(Any, first.form.key), cast(Any, second.form.key))):
        if a != b:
            raise JitError(
                f"jit: the second trace of {name} differs from the first: {_shown(a)} became {_shown(b)}.",
                "a Python value that changes from call to call must be an argument, or a Tensor written in place.",
                line=_line_of_part(second, i),
            )
    if first.form.key != second.form.key or first.sources != second.sources or first.state != second.state:
        raise JitError(
            f"jit: the second trace of {name} reads other tensors than the first, or in another order.",
            "make tensors that the function keeps before the first call, for example by one call without jit.",
        )
    if first.values.written != second.values.written or first.values.updated != second.values.updated:
        raise JitError(
            f"jit: the second trace of {name} writes to other tensors than the first, or in another order.",
            "make the choice an argument or a computation: write where(choice, new, old) to each tensor.",
        )
    _check_constants(first, second, name)


def _check_constants(first: Recording, second: Recording, name: str) -> None:
    """Raises if the second trace made a Tensor of other host data, which a plan would not read again."""
    for before, now in zip(first.constants, second.constants):
        if before.memory is not now.memory and _bytes_of(before) != _bytes_of(now):
            raise JitError(
                f"jit: {name} makes a Tensor ({now.dtype}, {now.numel} elements) from host data that differed"
                " in the second trace; later calls would not read it.",
                "pass Tensor(array) as an argument; Tensor.rand and others draw new numbers at each call.",
            )


def _bytes_of(buffer: Buffer) -> bytes:
    return to_host(memory_op(buffer, (buffer.numel,))).tobytes()


CONSTANTS = MOVEMENT | {OpCode.CONST}  # make a constant of any shape


def _line_of_part(recording: Recording, number: int) -> Line | None:
    """Returns the user's line that made an Op of a template, or else the first known line among its readers.

    A constant, of any shape, is shared by all graphs that have it: its own line may be another program's.
    """
    order = recording.form.order
    above: set[Op] = set(order[number : number + 1])
    for op in order[number:]:
        if op in above or not above.isdisjoint(op.src):
            if lines_of(op) and any(one.code not in CONSTANTS for one in toposort([op])):
                return lines_of(op)[0]
            above.add(op)
    return next((line for op in recording.roots for line in lines_of(op)), None)


def _shown(part: Any) -> str:
    """Returns one entry of a template's key in words: an operation with its argument, or an input."""
    if isinstance(part, tuple) and len(part) >= 3 and isinstance(part[0], OpCode):
        code, dtype, arg = part[:3]
        value = struct.unpack("d", arg)[0] if isinstance(arg, bytes) else arg
        return _brief(f"{code.name} {dtype}" if value is None else f"{code.name} {value} {dtype}")
    if isinstance(part, tuple) and len(part) == 3 and isinstance(part[1], DType):
        return f"input {part[0]}, {part[1]} {part[2]},"
    return _brief(part)


def _brief(part: Any) -> str:
    text = str(part)
    return text if len(text) < 120 else text[:117] + "..."
