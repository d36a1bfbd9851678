"""Captures a function of Tensors as one plan: recorded by a first trace, checked by a second, then replayed.

In:    a Python function of Tensors
Out:   a callable that runs one plan

Each tensor that the function reads is one of three things: an argument; state, which is a cell made before the call
(parameters, optimizer state, a random generator); or a constant it made itself. Its results are returned or stored in
state. A plan knows nothing else of Python, so the second call traces again and must find the identical graph, and the
names that the function's code mentions must keep their meaning (guards.py).

    recording = traced(function, arguments)      capture.py, traced.py: graphs, and the values that they read and write
    plan = find_plan(recording)                  engine/realize.py
    conditions hold                              capture.py, guards.py: at each call
    replay(arguments)                            replay.py: check, bind, run, hand out

In order: copies of functions that close over state, which Python would share with the original (models, Tensors,
optimizers, generators); many calls as one LOOP; the captures for arguments of one form; `jit`; `compile`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pkgutil import resolve_name
from types import CellType, FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar, cast, overload

from picograd import dtype as dtypes
from picograd.autodiff.gradient import written_out
from picograd.autodiff.unrolled import rolled
from picograd.control.flow import Scan
from picograd.control.structure import mapped, put, take
from picograd.device import choices
from picograd.dtype import DType
from picograd.engine.known import Scalars
from picograd.engine.lengths import bound_to
from picograd.engine.plan import Template
from picograd.engine.realize import find_general_plan, find_plan
from picograd.errors import ArgumentError, JitError, refusing, warn_user
from picograd.interrupts import Latest, LivingSet, cached_property, held_back, rlock
from picograd.ir.bodies import at_once
from picograd.ir.checks import Refused
from picograd.ir.host import offers
from picograd.ir.op import Buffer
from picograd.ir.stages import Plan
from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer
from picograd.record import replace
from picograd.tensor.cell import grad_mode, last_change, trace
from picograd.tensor.core import TensorCore
from picograd.tensor.first_values import evaluate_beginnings
from picograd.tensor.generator import Generator
from picograd.tensor.modes import float32_mode, precision_mode
from picograd.tensor.tensor import Tensor
from picograd.tensor.unasked import leaf_tensors
from picograd.transforms.any_length import AnyLength, check_own, check_symbolic, shown_to_users, unbound_kinds
from picograd.transforms.buffer_reuse import donated_parameters
from picograd.transforms.bytecode_reads import MISSING, contents_of, has_attributes, parts_of
from picograd.transforms.capture import CellKinds, Conditions, Recording, recorded
from picograd.transforms.containers import Arguments, Kind, buffers_like, flatten
from picograd.transforms.guards import Holds, guards_of, modules_of
from picograd.transforms.replay import Planned, ReplayCall, replay_of
from picograd.transforms.results import Returned, recipes_of
from picograd.transforms.traced import (
    Effects,
    GlobalDraws,
    TraceOfFunction,
    check_aliases,
    check_containers,
    check_donated,
    check_modes,
    check_same,
    check_shapes,
    stand_in,
)  # fmt: skip

# ---- copies of functions ----
STATE = (TensorCore, Module, Optimizer, Generator)
Memo = dict[int, Any]


def copied(value: Any, memo: Memo) -> Any:
    """Returns a deep copy of a function, or of a holder of one, on copies of its state; itself if it has no state."""
    if id(value) in memo or not _has_state(value, memo, set()):
        return memo.get(id(value), value)
    if isinstance(value, functools.partial):
        keywords = {name: copied(item, memo) for name, item in value.keywords.items()}
        return functools.partial(copied(value.func, memo), *[copied(item, memo) for item in value.args], **keywords)
    if isinstance(value, MethodType):
        return MethodType(copied(value.__func__, memo), copied(value.__self__, memo))
    return _twin(value, memo) if isinstance(value, FunctionType) else copy.deepcopy(value, memo)


def _twin(function: FunctionType, memo: Memo) -> FunctionType:
    """Returns a function with closure cells of its own; functions that share a variable still share one."""
    cells = [(cell, memo.setdefault(id(cell), CellType())) for cell in function.__closure__ or ()]
    twin = FunctionType(function.__code__, function.__globals__, function.__name__, None, tuple([new for _, new in cells]))
    memo[id(function)] = twin  # now: its own cells may lead to it
    for name in (*functools.WRAPPER_ASSIGNMENTS, "__kwdefaults__"):
        setattr(twin, name, getattr(function, name))
    twin.__defaults__ = tuple([copied(item, memo) for item in function.__defaults__ or ()]) or None
    twin.__kwdefaults__ = {name: copied(item, memo) for name, item in (function.__kwdefaults__ or {}).items()} or None
    twin.__dict__.update({name: copied(item, memo) for name, item in vars(function).items()})
    for cell, new in cells:
        if (content := contents_of(cell)) is not MISSING:  # else the variable is assigned later, or never
            new.cell_contents = copied(content, memo)
    return twin


def _has_state(value: Any, memo: Memo, seen: set[int]) -> bool:
    if id(value) in memo or isinstance(value, STATE):
        return True
    if id(value) in seen:
        return False
    seen.add(id(value))
    return any(_has_state(part, memo, seen) for part in _parts(value))


def _parts(value: Any) -> tuple[Any, ...]:
    """Returns the values that a value contains or wraps."""
    if isinstance(value, FunctionType):
        return (*parts_of(value), *vars(value).values())
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, dict):
        return tuple(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(value)
    if has_attributes(value):
        return tuple(vars(value).values())
    return (vars(value)["__wrapped__"],) if "__wrapped__" in getattr(value, "__dict__", ()) else ()  # of a Jit


# ---- many calls as one LOOP ----
def run_stacked(function: Callable[..., Any], steps: int, args: Any, kwargs: Any) -> Any:
    """Calls a function `steps` times, as one LOOP: call i gets row i of every Tensor; the results are stacked.

    Arguments other than Tensors are the same in every call; Tensors made before are read and written as by single calls.

    Raises:
      JitError: a Tensor does not have a row for each call.
    """
    name = getattr(function, "__name__", "the function")
    given = take((args, kwargs), "arguments")
    for tensor, path in zip(given.tensors, given.names):
        if not tensor.shape or tensor.shape[0] != steps:
            raise JitError(
                f"jit: {name} makes {steps} steps at a time, and {path} has shape {tensor.shape}.",
                f"stack a row for each step: ({steps}, ...); use a closure for values that all steps share.",
            )

    @functools.wraps(function)
    def step(carry: tuple[()], rows: list[Tensor]) -> tuple[tuple[()], Any]:
        new_args, new_kwargs = put(given.container, rows)
        return carry, function(*new_args, **new_kwargs)

    return Scan("jit", step, take((), "carry"), take(list(given.tensors), "arguments")).run(steps, reverse=False)[1]


# ---- the captures for arguments of one form ----
Modes = tuple[DType | None, str, tuple[str | None, ...], bool, DType]


def modes_now() -> Modes:
    """Returns the modes: precision of products, device and dtype of new tensors, and whether gradients are recorded."""
    return precision_mode.get(), float32_mode.get(), choices.get(), grad_mode.get(), dtypes.default_float


class Capture:
    """A function for arguments of one form and one set of modes: recorded, then checked, then replayed.

    recording:   the recording of the first trace; None once a second trace was the same
    conditions:  the conditions that each call checks
    planned:     the plan
    replay:      the plan bound to its memory
    """

    def __init__(self, recording: Recording, conditions: Conditions, planned: Planned, given: Arguments):
        """A capture of a first trace."""
        self.recording: Recording | None = recording.bare()
        self.conditions, self.planned = conditions, planned
        self.replay = self._replay_of(recording, given)

    def confirm(self, recording: Recording, conditions: Conditions, given: Arguments) -> None:
        """Takes over the second trace, which was the same as the first."""
        conditions.guards = self.conditions.guards.shared_with(conditions.guards)
        self.recording, self.conditions, self.replay = None, conditions, self._replay_of(recording, given)

    def _replay_of(self, recording: Recording, given: Arguments) -> ReplayCall:
        return replay_of(recording, self.planned, only_tensors=not given.variables and not given.donated)


class Form:
    """Arguments of one form: the Modules that the function mentions, and captures by the precision of products, by the
    device of new tensors, by whether gradients are recorded, by the kernels that are offered, and by whether
    the Modules train.

    kinds:      the kinds of the arguments if all are Tensors, else None
    exact_key:  the key of the arguments, if they have no symbolic lengths
    replay:     the replay for the modes of the last look, or None
    seen:       the number of the last change at that look
    modes:      the modes of products, new tensors and gradients at that look
    same:       tells whether names still have the meaning of that look; None if there are none to ask about
    """

    def __init__(self, modules: tuple[Module, ...], kinds: list[Kind] | None, exact_key: Hashable | None):
        self.modules, self.kinds, self.exact_key = modules, kinds, exact_key
        self.captures: dict[Hashable, Capture] = {}
        self.forget()

    def forget(self) -> None:
        """Makes the next call check everything."""
        self.replay: ReplayCall | None = None
        self.seen = -1
        self.modes: Modes | None = None
        self.same: Holds | None = None

    def see(self, capture: Capture, change: int, modes: Modes) -> None:
        """Notes the present state."""
        self.replay, self.seen, self.modes = capture.replay, change, modes
        watched = capture.conditions.watched
        assert watched is not None, "jit: a path without checked conditions"
        self.same = watched.is_the_same if watched.asks else None

    def ready(self) -> ReplayCall | None:
        """Returns the replay if nothing has changed since."""
        if last_change.number != self.seen:
            return None
        now = precision_mode.get(), float32_mode.get(), choices.get(), grad_mode.get(), dtypes.default_float
        if now != self.modes:  # modes_now() written out, since every call passes here
            return None
        return self.replay if self.same is None or self.same() else None

    def key(self, modes: Modes) -> Hashable:
        """Returns the key of the capture for the present modes."""
        return (modes, offers.key, *[module.training for module in self.modules])


# ---- jit ----
P = ParamSpec("P")
R = TypeVar("R")
Donate = int | str | Iterable[int | str]
CAPTURES_MAX = 256  # of one function; the oldest is dropped first
CAPTURES_TO_MENTION = (8, 64, CAPTURES_MAX)  # of one function; a warning says so at each of these


@dataclass(eq=False, repr=False)
class Jit:
    """A function with its captures, by the form of its arguments. Made by `jit`."""

    function: Callable[..., Any]
    steps: int | None = None  # of one call; None: the function is one step
    donate: frozenset[int | str] = frozenset()  # positions and names of parameters
    tune: bool = False  # whether candidates of kernels are timed
    forms: Latest[Hashable, Form] = field(default_factory=lambda: Latest(CAPTURES_MAX))
    latest: Form | None = None  # of the last call
    num_captures: int = 0  # made so far
    scalars: Scalars = field(default_factory=Scalars)  # numbers that differ from capture to capture
    lengths: AnyLength = field(default_factory=AnyLength)  # of arguments
    one_caller: threading.RLock = field(default_factory=rlock)  # a call reads state that the call before it wrote

    def __post_init__(self) -> None:
        _functions.add(self)

    def __reduce__(self) -> Any:  # a copy captures the copied function again; a function of a module comes back by its name
        name = f"{getattr(self.function, '__module__', '')}:{getattr(self.function, '__qualname__', '')}"
        with suppress(ValueError, ImportError, AttributeError):  # no name, or one inside a function
            if resolve_name(name) is self:
                return resolve_name, (name,)
        return _jitted, (self.function, self.steps, self.donate, self.tune)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        make, (function, *options) = self.__reduce__()
        twin = make(function, *options) if make is resolve_name else make(copied(function, memo), *options)
        return memo.setdefault(id(self), twin)  # there is one already if its function leads back to itself

    def __repr__(self) -> str:
        function = self.function
        shown = getattr(function, "__qualname__", None) or repr(function)
        steps = "" if self.steps is None else f", steps={self.steps}"
        return f"jit({shown}{steps}{', tune=True' * self.tune})"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:  # for attributes that a Jit does not have: parameters() of a module
        if name.startswith("__") or "function" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return getattr(self.function, name)

    @cached_property
    def name(self) -> str:
        return getattr(self.function, "__name__", "the function")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if trace.get() is not None or at_once.get():
            return self.traced(args, kwargs)
        with self.one_caller:
            form, buffers = self.latest, None
            if form is not None and form.kinds is not None and not kwargs:
                buffers = buffers_like(args, form.kinds)
                if buffers is not None and not self.donate and (replay := form.ready()) is not None:
                    return replay(args, buffers, None)
            return self.call(args, kwargs, form, buffers)

    def call(
        self, args: Any, kwargs: Any, form: Form | None = None, buffers: list[Buffer] | None = None, exact: bool = False
    ) -> Any:
        """Runs the plan of these arguments, whose memory and form may be known; traces the function if there is none.

        Args:
          exact:  True: the plan is to be for these very lengths
        """
        if self.latest is None:
            evaluate_beginnings()  # else the first plan would compute them, and no later plan would be equal to it
        given = Arguments(args, kwargs, self.name, self.donate, buffers)
        if form is None or buffers is None:
            self.latest = form = self.form_of(given, args, kwargs, exact)
        if given.lengths is None:
            return self.run(form, args, kwargs, given)
        try:
            return self.run(form, args, kwargs, given)
        except Refused:  # its words have symbolic lengths
            return self.call(args, kwargs, exact=True)

    def run(self, form: Form, args: Any, kwargs: Any, given: Arguments) -> Any:
        """Runs the plan of arguments of a form, or traces the function."""
        replay = form.ready()
        if replay is None:
            change, modes = last_change.number, modes_now()  # before the check: the next call sees later changes
            key = form.key(modes)
            capture, is_seen = form.captures.get(key), change == form.seen and modes == form.modes
            if capture is not None and capture.conditions.have_ended(is_seen, capture.recording is None):
                form.forget()
                del form.captures[key]
                capture = None
            if capture is None or capture.recording is not None:
                return self.trace_and_run(form, key, args, kwargs, given)
            form.see(capture, change, modes)
            replay = capture.replay
        return replay(given.tensors, given.buffers, given)

    def traced(self, args: Any, kwargs: Any) -> Any:
        """Runs the Python function inside of a trace or a derivative."""
        if self.steps is None:
            return self.function(*args, **kwargs)
        return run_stacked(self.function, self.steps, args, kwargs)

    def form_of(self, given: Arguments, args: Any, kwargs: Any, exact: bool) -> Form:
        """Returns the form of arguments, made now if it is new; drops the oldest if there are too many."""
        form = self.forms.get(given.key)
        if form is None:
            given.free()
            form = self.forms.get(given.key)
        if form is None and not (given.variables or exact or self.tune or self.donate or self.steps):
            self.lengths.free(given)
            form = self.forms.get(given.key)
        if form is not None:
            return form
        form = Form(modules_of(self.function, args, kwargs), given.kinds(args), None if given.variables else given.key)
        self.forms.put(given.key, form)
        return form

    def trace_and_run(self, form: Form, key: Hashable, args: Any, kwargs: Any, given: Arguments) -> Any:
        """Makes the plan at the first call; checks at the second that it would make the same one.

        If a plan for any length cannot be made, the function gets one for these lengths.
        """
        capture = form.captures.get(key)
        effects = None if capture is None and given.lengths is None else Effects(self.function, args, kwargs)
        try:
            with nullcontext() if effects is None else effects.watched():
                recording, conditions = self.record(args, kwargs, given)
            planned = Planned.of(recording, *self.plan_of(recording, given)) if capture is None else capture.planned
        except Exception:
            if effects is None or given.lengths is None:
                raise
            effects.check(self.name)  # the next trace would change it again
            given.lengths.keep_own()
            return self.call(args, kwargs)
        if capture is None:
            capture = form.captures[key] = Capture(recording, conditions, planned, given)
            self.num_captures += 1
            if self.num_captures in CAPTURES_TO_MENTION:
                self.mention(given.tensors)  # now: donated tensors have no shape after the run
        else:
            assert capture.recording is not None and effects is not None, "jit: a third trace"
            check_same(capture.recording, recording)
            effects.check(self.name)
            capture.confirm(recording, conditions, given)
            if form.exact_key is not None:
                self.lengths.note_checked(form.exact_key)
        del recording  # its graphs keep memory alive
        result = capture.replay(given.tensors, given.buffers, given)
        for leaf in leaf_tensors.values():  # the trace made views of parameters that now have another value
            leaf.forget_old()
        return result

    def plan_of(self, recording: Recording, given: Arguments) -> tuple[Template, Plan]:
        """Returns the form that is planned, and its plan: from the third length on one for many lengths."""
        if given.lengths is not None:
            check_symbolic(recording.form, recording.device, given.variables)
        roots, form, device = recording.roots, recording.form, recording.device
        if self.tune:  # for symbolic lengths there are fewer candidates
            return form, find_plan(roots, form, device, tune=True)
        return find_general_plan(roots, form, device, self.scalars)

    def mention(self, tensors: Sequence[Tensor]) -> None:
        """Warns of a function that is captured again and again: each time takes two traces and perhaps a compilation."""
        hint = "pass changing numbers as Tensors, and pad batches to few shapes."
        if len({key[1:] for key in cast(Any, self.forms)}) == 1:  # all have Tensors of the same shapes, dtypes and devices
            hint = "pass changing numbers, such as lengths of sequences, as Tensors: only such plain values differ here."
        shapes = ", ".join(str(tensor.shape) for tensor in tensors[:4]) + (", ..." if len(tensors) > 4 else "")
        warn_user(
            f"jit: {self.name} has been captured for {self.num_captures} forms of its arguments, the last with"
            f" Tensors of shape {shapes or 'none'}. Each is traced twice and may compile; {CAPTURES_MAX} are kept."
            f"\n  hint: {hint}"
        )

    def record(self, args: Any, kwargs: Any, given: Arguments) -> tuple[Recording, Conditions]:
        """Runs the Python function once on stand-ins for its tensors; nothing is computed."""
        with _tracing, held_back() as hold:  # values that were put aside are put back before an interrupt
            return self._recorded(hold, args, kwargs, given)

    def _recorded(self, hold: held_back, args: Any, kwargs: Any, given: Arguments) -> tuple[Recording, Conditions]:
        watch, draws = TraceOfFunction(self.name), GlobalDraws()
        modes = {module: module.training for module in modules_of(self.function, args, kwargs)}
        shapes = [tensor.op.shape for tensor in given.tensors]
        shown: AbstractContextManager[Any] = nullcontext()
        if given.lengths is not None:
            shapes, shown = bound_to(given.variables, given.shapes), shown_to_users(self.function, args, kwargs)
        with watch.tracing(modes):
            stand_ins = [*map(stand_in, given.tensors, given.buffers, shapes)]
            starts = [t.cell.op for t in stand_ins]
            values = iter(stand_ins)
            new_args, new_kwargs = mapped((args, kwargs), lambda _: next(values))
            with shown:
                returned = hold.let_in(self.traced, new_args, new_kwargs)
            leaves = _tensors_in(returned, self.name)
            collected, grads = watch.collected()
            if given.lengths is not None:
                check_own([*leaves, *grads], stand_ins, watch)
            recipes, made = recipes_of([*leaves, *grads], stand_ins, given.donated, watch)
            updated = [i for i, (t, op) in enumerate(zip(stand_ins, starts)) if t.cell.op is not op]
            changed = [*watch.written, *(stand_ins[i].cell for i in updated)]
            roots = written_out(rolled([*[leaf.read() for leaf in made], *[cell.op for cell in changed]])[0])
            places = [*[leaf.cell.device for leaf in made], *[cell.device for cell in changed]]
            check_containers((args, kwargs), (new_args, new_kwargs), stand_ins, self.name)
            check_shapes(stand_ins, starts, self.name)
            check_modes(modes, self.name)
            draws.check(self.name)
        check_aliases(watch, given.tensors, updated)
        check_donated(given, updated, self.name)
        result = Returned(mapped(returned, lambda _: None), recipes, collected)
        for tensors in (leaves, made, grads):
            tensors.clear()  # a tensor that is still alive is kept by somebody else
        del returned
        watch.check_replaced([*stand_ins, *(tensor._grad for tensor in stand_ins if tensor._grad is not None)])
        guards = replace(guards_of(self.function, args, kwargs), hooks=watch.hooks())
        watch.name_used_up(collected, guards)
        recording = recorded(self.name, watch.before, starts, roots, places, [*watch.written], updated, result)
        recording = recording if given.lengths is None else unbound_kinds(recording)
        return recording, Conditions(self.name, guards, CellKinds(watch.before, recording.device), collected)


def _tensors_in(returned: Any, name: str) -> list[Tensor]:
    """Returns the tensors among what a function has returned.

    Raises:
      JitError: there is a symbolic integer among them.
    """
    leaves: list[Tensor] = []
    bound: dict[str, int] = {}
    flatten(returned, leaves, name, bound)
    if bound:
        raise JitError(f"jit: {name} returns a symbolic integer.", "compute it outside, from the argument.")
    return leaves


_functions: LivingSet[Jit] = LivingSet()
_tracing = rlock()  # one thread at a time: a trace puts gradients aside that belong to all threads


def forget_captures() -> None:
    """Makes every jitted function trace again at its next call."""
    for function in _functions.living():
        function.latest, function.forms = None, Latest(CAPTURES_MAX)


@overload
def jit(
    function: Callable[P, R], *, steps: int | None = None, donate: Donate = (), tune: bool = False
) -> Callable[P, R]: ...
@overload
def jit(
    function: None = None, *, steps: int | None = None, donate: Donate = (), tune: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def jit(
    function: Callable[..., Any] | None = None, *, steps: int | None = None, donate: Donate = (), tune: bool = False
) -> Callable[..., Any]:
    """Captures a function of Tensors; after two calls, a call runs one plan and no Python of the function.

    The first call traces the function and runs the graphs that it built. The second traces again, and must find the same.
    Arguments may hold Tensors in lists, tuples, dicts and dataclasses; another shape, dtype or device, or another value
    of anything that is not a Tensor, is captured again (a warning comes with the eighth form); a bound Variable
    (n.bind(3)) is an input of the plan, and lengths of axes that depend on it are one shape. Captures that differ in
    lengths alone share a plan from the third on, and those that differ in numbers from the second. Once a length has
    been captured and checked, a third one is captured for all lengths within some bounds, with symbolic integers in len(x)
    and x.shape; if Python needs the number itself, as in range(len(x)), each length is captured. Tensors made before
    (parameters, optimizer state, generators, gradients that are there) are read and written as they are at each call;
    if one is on another device by then, or of another dtype or shape, the function is captured again. A result that is
    an argument, state or a view of one shares its storage, as without jit; other results have memory of their own, and
    no graph: backward() belongs inside, and one outside that needs such a graph is a JitError. A gradient that is made
    inside is added to `.grad`. If the parameter is written afterwards, as by step(), the gradient is
    used up and not stored: reading `p.grad` is then a JitError, unless zero_grad() came first. A call that raises has
    changed nothing: no state, no gradient, and no random number is used up.

    All Python values that the function reads, or your own functions, methods and hooks that it calls, are remembered:
    closures, globals, attributes, default values, containers, settings of optimizers, variables of the environment.
    Another function, object or hook, a Module's mode and no_grad are captured again; a learning rate and scheduled
    momentum may change; any other change is a JitError. So is a change that the function makes itself, to counters, lists,
    iterators or the state of random and np.random, because later calls run no Python, and a clock or a file that it
    reads. Not noticed are printing, changes within large arrays and arrays of objects, containers of more than 10,000
    items, attributes of library classes and of metaclasses, context variables, other questions to the system, and values
    that an installed library reads or keeps, as attrgetter and singledispatch do: pass such values as arguments.

    New versions of state are stored over the old ones if nothing else reads these. A function that takes state and
    returns it may do the same if the argument is donated: its tensors cannot be read after the call, even if that raises.

    Args:
      function: a function of Tensors and hashable values; it must build the same graph each time
      steps:    number of steps a call makes in one launch, with no Python between them: step i gets row i of each Tensor
                argument, and results are stacked. Values that the function writes in place are passed from step to step.
      donate:   positions or names of parameters whose tensors the caller donates
      tune:     the first call with arguments of each form times a few ways to tile each product of matrices, and takes the
                fastest; winners are kept on disk, so that later processes time nothing. The bits of the results stay the
                same, unless cuBLASLt is installed and wins: on a GPU it is one more way to compute a product without a
                neighbour, and adds up in an order of its own, the same in each run on one kind of GPU and with one version
                of it. PICOGRAD_PLAIN_SUMS=1 leaves it out. A product of few rows or symbolic lengths has only one way.
                If another jitted function calls this one, only its own `tune` counts. PICOGRAD_TUNE=1 tunes everything.

    Raises:
      JitError:      the second trace differs from the first, a value is read inside, something that the function
                     reads has changed, it changes something itself, or a donated tensor is read.
      ArgumentError: the function has no parameter that donate names.

    Several threads may call it: they take turns, and each finds the state that the one before it left.
    Until the second call is over, other threads should not touch this state: they might see values of a trace.
    A deep copy, such as that of a model that holds one, runs on copies of the state that its closures lead to.

    Cost: a call after the second costs some microseconds of Python, plus a fraction of one for each argument; state costs
    nearly nothing, except for tensors that were read since the last call. With `tune`, a way that
    is timed costs its compilation and eleven runs or more, 20 ms at least.

    >>> import picograd as pg
    >>> double = pg.jit(lambda x: x * 2)
    >>> [double(pg.Tensor([float(i)])).item() for i in range(3)]
    [0.0, 2.0, 4.0]
    >>> total = pg.Tensor(0.0)
    >>> def add(x):
    ...     total.add_(x)
    ...     return total + 0
    >>> pg.jit(add, steps=3)(pg.Tensor([1.0, 2.0, 3.0]))
    Tensor([1., 3., 6.])
    >>> added = pg.jit(lambda total, x: total + x, donate="total")
    >>> for i in range(3):
    ...     total = added(total, pg.Tensor(2.0))
    >>> total.item()
    12.0
    """
    if function is None:
        return functools.partial(jit, steps=steps, donate=donate, tune=tune)
    if steps is not None and (not isinstance(steps, int) or isinstance(steps, bool) or steps < 1):
        raise JitError(f"jit: steps must be an int of at least 1, got {steps!r}.")
    if not isinstance(tune, bool):
        raise JitError(f"jit: tune must be True or False, got {tune!r}.")
    kind = next((name for name, is_kind in _NO_FUNCTIONS if is_kind(function)), None)
    if kind is not None:
        raise JitError(f"jit: needs a function of Tensors, got {kind}.")
    return _jitted(function, steps, donated_parameters(function, donate), tune)


def _jitted(function: Any, steps: int | None, donate: frozenset[int | str], tune: bool) -> Jit:
    wrapped = Jit(function, steps, donate, tune)
    functools.update_wrapper(wrapped, function, updated=())  # its attributes may have the names of a Jit's, or be a Jit's
    return wrapped


COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # PyTorch's


def compile(  # noqa: A001
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "picograd",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Callable[..., Any]:
    """Captures a function of Tensors, or a module, as one plan: pg.jit under PyTorch's name; a decorator, too.

    A result has no graph, so the function to compile is the whole training step: forward, backward() and
    optimizer.step(). A module alone is compiled for evaluation; the result has the module's attributes.

    Args:
      model:      a function or a module
      fullgraph:  has no effect: a function is one graph, or an error says why not
      dynamic:    has no effect: from the third length on one plan serves many
      backend:    has no effect
      mode:       one of COMPILE_MODES; the two of "max-autotune" are pg.jit with tune=True, the others have no effect
      options:    has no effect
      disable:    returns `model` itself

    Raises:
      ArgumentError: `mode` is not one of COMPILE_MODES.
      JitError: `model` is not a function of Tensors, or cannot be captured.

    >>> @pg.compile
    ... def double(x):
    ...     return x * 2
    >>> double(pg.Tensor([1.0]))
    Tensor([2.])
    >>> net = pg.compile(nn.Linear(2, 3), mode="max-autotune")
    >>> net(pg.ones(1, 2)).shape, net.out_features
    ((1, 3), 3)
    """
    if disable:
        return (lambda model: model) if model is None else model
    if mode is not None and mode not in COMPILE_MODES:
        raise ArgumentError(f"compile: mode must be one of {', '.join(COMPILE_MODES)}, got {mode!r}.")
    tune = mode is not None and mode.startswith("max-autotune")
    return functools.partial(jit, tune=tune) if model is None else jit(model, tune=tune)


# TorchScript's functions, as attributes: called, they say what to write.
TORCHSCRIPT = """annotate export fork freeze ignore is_scripting is_tracing load optimize_for_inference save script
                 script_method ScriptModule trace unused wait"""
for _name in TORCHSCRIPT.split():
    setattr(jit, _name, refusing(_name, "picograd.jit"))


_NO_FUNCTIONS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("a value that cannot be called", lambda value: not callable(value)),
    ("a generator function", inspect.isgeneratorfunction),
    ("a coroutine function", inspect.iscoroutinefunction),
)
