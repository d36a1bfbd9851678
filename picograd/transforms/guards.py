"""The Python values that a captured function reads: remembered, so that a change is an error and not a stale result.

In:    a Python function and its arguments
Out:   `Guards`: the names the function mentions, with what they meant when it was traced;  `Watched`: the quick half
       of the check

Looked at are the closure variables, globals, default values and variables of the environment that the function's own
code mentions, and attributes it mentions of objects: numbers, strings and other plain values, containers of them, which
Tensor or array it is (not what it holds, but for small arrays). A Module, whose own code is not read, counts with all
that it holds: tensors, modules, plain values and those of objects such as a configuration; an Optimizer with the
settings of its groups, and the tensors that its state is. The same holds for the user's own functions that it mentions,
those that they mention, and the `forward` of the user's Modules (bytecode_reads.py). Reads by libraries are not seen.
Clocks and files, whose answers nothing remembers, are errors where they are read (traced.py).

In nearly every call each name still refers to the same object, and comparing identities is fast: many names take one
call of a C function. Only where a name refers to another object do the guards decide whether that object is an equal
one.
"""

from __future__ import annotations

import datetime
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import call, is_not
from pathlib import Path
from types import BuiltinFunctionType, CellType, ClassMethodDescriptorType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from picograd.config import users_setting
from picograd.errors import PACKAGES, JitError, Line
from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer
from picograd.record import Record, field, replace
from picograd.tensor.cell import Cell, View
from picograd.tensor.tensor import Tensor
from picograd.transforms.bytecode_reads import (
    HOOKS,
    ITEMS_MAX,
    MISSING,
    PLAIN,
    SEQUENCES,
    Function,
    Read,
    Same,
    attributes_of,
    fits,
    functions_of,
    has_attributes,
    how,
    how_held,
    is_fixed,
    itself,
    names_of,
    same,
    source_of,
    token_of,
    variables_of,
)

CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
BUILTINS = {"open": open, "input": input}
# Functions that answer otherwise at each call, though no value of the program has changed.
OUTSIDE: frozenset[Any] = frozenset(BUILTINS.values()) | {
    *(getattr(time, name) for name in CLOCKS), *(getattr(time, f"{name}_ns") for name in CLOCKS),
    *(vars(datetime.datetime)[name] for name in ("now", "utcnow")), vars(datetime.date)["today"],
    time.localtime, time.gmtime, time.ctime, os.urandom, np.fromfile,
    Path.open, Path.read_text, Path.read_bytes, np.load, np.loadtxt, np.genfromtxt,
    os.times, os.stat, os.listdir, os.path.exists, os.path.isfile, os.path.isdir, os.path.getmtime, os.path.getsize,
    Path.exists, Path.is_file, Path.is_dir, Path.stat,
}  # fmt: skip
Entry = tuple[dict[str, Any], str, Any, str]  # attributes of an object, name, what it meant, how the user would write it
HooksRead = tuple[dict[int, Any], tuple[Any, ...]]  # of a leaf: functions by number, those there were
NamesRead = tuple[dict[str, Any], frozenset[str], type[Module], str]
ItemsRead = tuple[Read, tuple[Any, ...], str]  # gives a list, what it held, how the user would write it
HOLDERS = (list, tuple, dict)
RENEWING = (Function, Same)
CHANGED_IN_PLACE = (list, dict, set, deque, np.ndarray)  # the same object can hold something else


class Guard(Record):
    """One thing the function may have read.

    name:        as the user would write it, e.g. "scale" or "self.rate"
    read:        gives its present meaning
    token:       of its value when the function was traced
    is_covered:  the name always means this object, or it is part of a Module, whose guards (parts, lists) tell
    """

    name: str
    read: Read
    token: Any
    is_covered: bool = False

    def holds(self) -> bool:
        return fits(self.read(), self.token)


class Broken(NamedTuple):
    """A change since the trace.

    text:    in words
    line:    of the user's code that reads it, where that is known
    renews:  it is another function or object, or a hook: the function is traced again
    """

    text: str
    line: Line | None
    renews: bool


class Guards(Record):
    """The values that a capture depends on besides its arguments.

    values:    names and attributes
    held:      attributes of objects that are not Modules
    parts:     attributes of Modules
    lists:     (gives a list of Modules or parameters, what it held, how the user would write it)
    modes:     (tensor of a Module, its view, whether it requires grad, how the user would write it)
    names:     (attributes of a Module, which there are, its class, how the user would write it)
    hooks:     of leaves
    mentions:  the line of code that mentions a name or an attribute, by how the user would write it
    outside:   functions that read a clock, a file or the like, as the user would write them, which the code mentions
    varied:    what differed in two traces that gave the same graph: another value may give another one
    """

    values: tuple[Guard, ...] = ()
    held: tuple[Entry, ...] = ()
    parts: tuple[Entry, ...] = ()
    lists: tuple[ItemsRead, ...] = ()
    modes: tuple[tuple[Tensor, View, bool, str], ...] = ()
    names: tuple[NamesRead, ...] = ()
    hooks: tuple[HooksRead, ...] = ()
    mentions: Mapping[str, Line] = field(default_factory=dict)
    outside: Mapping[str, Any] = field(default_factory=dict)
    varied: frozenset[str] = frozenset()

    def broken(self) -> Broken | None:
        """Returns the first change found since the function was traced, or None."""
        said = self._broken()
        if said is None:
            return None
        path, change, renews = said
        known = [name for name in self.mentions if path == name or path.startswith((f"{name}.", f"{name}["))]
        line = self.mentions[max(known, key=len)] if known else None
        return Broken(f"{path} {change}", line, renews or path in self.varied)

    def _broken(self) -> tuple[str, str, bool] | None:
        """Returns the first thing that has changed, as the user would write it, how it has, and whether that renews."""
        for attributes, name, value, path in (*self.parts, *self.held):
            now = attributes.get(name, MISSING)
            if now is not value and not same(token_of(now), token_of(value)):
                return path, how_held(value, now), isinstance(token_of(value), RENEWING) or name in HOOKS
        for attributes, known, kind, path in self.names:
            if attributes.keys() != known:
                new = next((name for name in attributes.keys() - known if name in HOOKS or hasattr(kind, name)), None)
                if new is not None:
                    return f"{path}.{new}", "is set", True
        if any(tuple(held.values()) != hooks for held, hooks in self.hooks):
            return "a tensor", "has other hooks", True
        for read, before, path in self.lists:
            items = read()
            if not isinstance(items, SEQUENCES) or len(items) != len(before) or any(map(is_not, items, before)):
                held = "modules" if any(isinstance(item, Module) for item in before) else "parameters"
                return path, f"holds other {held}", False
        for tensor, steps, wanted, path in self.modes:
            if tensor.steps is not steps and tensor.requires_grad is not wanted:
                return f"{path}.requires_grad", f"was {wanted} and is {not wanted}", False
        for guard in self.values:
            if not guard.holds():
                return guard.name, how(guard.token, guard.read()), isinstance(guard.token, RENEWING)
        return None

    def shared_with(self, later: Guards) -> Guards:
        """Returns the guards of two traces. A value that differed without changing the graph is `varied`."""
        before, now = self._tokens(), later._tokens()
        return replace(later, varied=frozenset(path for path in now if not same(before.get(path, MISSING), now[path])))

    def _tokens(self) -> dict[str, Any]:
        """Returns the token of each value, by how the user would write it."""
        tokens = {guard.name: guard.token for guard in self.values}
        return tokens | {path: token_of(value) for _, _, value, path in (*self.held, *self.parts)}


def guards_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Guards:
    """Returns the present meaning of the names in a function and in functions it mentions."""
    found = _Reads()
    for prefix, called, its_args in functions_of(function, args, kwargs):
        found.add_function(prefix, called, its_args)
    return found.guards()


def modules_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Module, ...]:
    """Returns the Modules a function mentions, with all below them: whether they train chooses between captures."""
    found = _Reads()
    for prefix, called, its_args in functions_of(function, args, kwargs):
        for name, read in variables_of(called, its_args):
            found.add_variable(name, read(), names_of(called.__code__).attributes)
        found.add_arguments(prefix, called, its_args)
    return tuple(found.modules)


def _moves_on(function: str, path: str, place: tuple[str, int]) -> JitError:
    """Returns the error for an iterator, such as a generator or an open file."""
    return JitError(
        f"jit: {function} reads {path}, an iterator, which would not move on in later calls.",
        f"call next({path}) outside, and pass what it gives.",
        line=Line(*place),
    )


def _is_outside(value: Any) -> bool:
    """True for a function that reads a clock, a file or the like."""
    return isinstance(value, BuiltinFunctionType | ClassMethodDescriptorType | FunctionType) and value in OUTSIDE


class _Reads:
    """Collects the values that functions read, and what Modules, Optimizers, objects and containers hold: each object once.

    The lists are those of Guards; `contents` has what can change in place inside of others.
    """

    def __init__(self) -> None:
        self.values: dict[str, Guard] = {}
        self.mentions: dict[str, tuple[str, int]] = {}
        self.outside: dict[str, Any] = {}
        self.modules: dict[Module, None] = {}
        self.entries: list[Entry] = []
        self.parts: list[Entry] = []
        self.lists: list[ItemsRead] = []
        self.modes: list[tuple[Tensor, View, bool, str]] = []
        self.names: list[NamesRead] = []
        self.contents: list[Guard] = []
        self.seen: set[int] = set()

    def guards(self) -> Guards:
        lines = {path: Line(file, number) for path, (file, number) in self.mentions.items()}
        values = self.values | {guard.name: guard for guard in self.contents}
        return Guards(
            tuple(values.values()), tuple(self.entries), tuple(self.parts), tuple(self.lists), tuple(self.modes),
            tuple(self.names), mentions=lines, outside=self.outside,
        )  # fmt: skip

    # ---- names ----
    def add_function(self, prefix: str, called: FunctionType, args: Sequence[Any]) -> None:
        """Notes the names that a function mentions, and what their values hold.

        Args:
          prefix:  of its names, as the user would write them
          args:    those that are known
        """
        names = names_of(called.__code__)
        for variable, read in variables_of(called, args):
            name, value = prefix + variable, read()
            self.mentions[name] = names.line(variable)
            self.add_variable(name, value, names.attributes)
            for path, read_part in [(name, read), *attributes_of(name, value, names.attributes)]:
                last, meant = path.rpartition(".")[2], read_part()
                if isinstance(meant, Iterator):
                    raise _moves_on(called.__name__, path, names.line(last))
                if _is_outside(meant) and last in names.lines:
                    self.outside[path.removeprefix(prefix)] = meant
                is_of_module = path != name and isinstance(value, Module) and last in vars(value)
                self.add_value(path, read_part, token_of(meant), is_of_module, names.line(last))
            if has_attributes(value):
                for attribute in sorted(names.attributes & vars(value).keys()):
                    self.mentions.setdefault(f"{name}.{attribute}", names.line(attribute))
        self.add_arguments(prefix, called, args)
        for asked in OUTSIDE:  # of objects that code reaches by a call, or in two steps
            if asked.__name__ in names.attributes and asked not in self.outside.values():
                self.outside[asked.__qualname__] = asked
        self.outside |= {name: BUILTINS[name] for name in names.globals & BUILTINS.keys() - called.__globals__.keys()}
        for variable in names.environment:
            path = f"{prefix}os.environ[{variable!r}]"
            read = partial(users_setting, variable)
            self.values[path], self.mentions[path] = Guard(path, read, read()), names.line("environ")

    def add_value(self, path: str, read: Read, token: Any, is_of_module: bool, place: tuple[str, int]) -> None:
        """Notes a value, whose line of code is at `place`, unless nothing of it is watched."""
        if token is not MISSING:
            path = path if path not in self.values else f"{path} ({len(self.values)})"
            is_same = is_fixed(read) and isinstance(token, weakref.ref)
            self.values[path] = Guard(path, read, token, is_of_module or is_same)
            self.mentions.setdefault(path, place)

    # ---- what values hold ----
    def is_new(self, value: Any) -> bool:
        """Returns whether this is the first time that an object is asked about."""
        is_new = id(value) not in self.seen
        self.seen.add(id(value))
        return is_new

    def add_arguments(self, prefix: str, called: FunctionType, args: Sequence[Any]) -> None:
        """Notes what objects in containers among the arguments hold; which they are is in the form of the arguments."""
        mentioned = names_of(called.__code__).attributes
        for name, value in zip(called.__code__.co_varnames, args):
            for path, _, item in objects_in(prefix + name, value):
                self.add_variable(path, item, mentioned)

    def add_variable(self, path: str, value: Any, mentioned: frozenset[str]) -> None:
        """Notes what a value holds, and of the attributes of an object those that code mentions."""
        self.add(path, value, mentioned)
        if has_attributes(value):
            for attribute in sorted(mentioned & vars(value).keys()):
                self.add_attribute(path, value, attribute, mentioned)

    def add(self, path: str, value: Any, mentioned: frozenset[str]) -> None:
        """Notes all that a Module holds, the settings of an Optimizer, and objects in a container."""
        if isinstance(value, Module):
            for part_path, part in value.named_modules(prefix=path):
                if part not in self.modules:
                    self.modules[part] = None
                    self.add_module(part_path, part, mentioned)
        elif isinstance(value, HOLDERS):
            self.add_items(path, value, mentioned)
        elif isinstance(value, Optimizer):
            self.entries.append((vars(value), "state", value.state, f"{path}.state"))
            groups = partial(vars(value).get, "param_groups")
            self.lists.append((groups, tuple(value.param_groups), f"{path}.param_groups"))
            for place, group in enumerate(value.param_groups):
                shown = f"{path}.param_groups[{place}]"
                # NOTE: plans read the learning rate, and what else a schedule changes, from buffers.
                names = [name for name in group if name not in ("params", "lr", *group.changing)]
                self.lists.append((partial(group.get, "params"), tuple(group["params"]), f"{shown}['params']"))
                self.entries += [(group, name, group[name], f"{shown}[{name!r}]") for name in names]

    def add_items(self, path: str, holder: Any, mentioned: frozenset[str]) -> None:
        """Notes which objects are in a list, a tuple or a dict, and what they hold."""
        if not self.is_new(holder):
            return
        found = list(objects_in(path, holder))
        objects = [one for one in found if not isinstance(one[2], HOLDERS)]
        if isinstance(holder, dict):
            self.entries += [(holder, key, item, shown) for shown, key, item in objects]
        elif isinstance(holder, list) and objects:
            self.lists.append((partial(itself, holder), tuple(holder), path))
        for shown, _, item in found:
            if _is_users_object(item) and self.is_new(item):
                self.add_plain(vars(item), sorted(mentioned & vars(item).keys()), shown)
                hidden = [name for name in mentioned - vars(item).keys() if hasattr(type(item), name)]
                self.entries += [(vars(item), name, MISSING, f"{shown}.{name}") for name in hidden]  # it may be set later
            self.add_variable(shown, item, mentioned)

    def add_module(self, path: str, module: Module, mentioned: frozenset[str]) -> None:
        """Notes what a module holds: tensors, modules, plain values, containers of these, and objects of the user."""
        self.names.append((vars(module), frozenset(vars(module)), type(module), path))
        for name, value in vars(module).items():
            shown = f"{path}.{name}"
            if name in ("training", "_state_kinds"):  # the mode chooses between captures; see modules_of
                continue
            holds_modules = [isinstance(item, Module) for item in value] if isinstance(value, list | tuple) else []
            if any(holds_modules):
                self.lists.append((partial(vars(module).get, name), tuple(value), shown))
            else:
                self.parts.append((vars(module), name, value, shown))
            if isinstance(value, Tensor):
                self.modes.append((value, value.steps, value.requires_grad, shown))
            only_modules = bool(holds_modules) and all(holds_modules)
            if isinstance(value, HOLDERS) and not only_modules:
                self.add_items(shown, value, mentioned)
            if isinstance(value, CHANGED_IN_PLACE) and not only_modules:
                self.add_contents(vars(module), name, shown)
            elif _is_users_object(value) and self.is_new(value):
                self.add_plain(vars(value), vars(value).keys(), shown)

    def add_attribute(self, path: str, owner: Any, attribute: str, mentioned: frozenset[str]) -> None:
        """Notes an attribute that code mentions, and of an object in it what the code may mention next."""
        value = vars(owner)[attribute]
        if isinstance(owner, Module):
            return  # noted whole
        self.add(f"{path}.{attribute}", value, mentioned)
        if _is_users_object(value) and self.is_new(value):
            self.entries.append((vars(owner), attribute, value, f"{path}.{attribute}"))
            read = sorted(mentioned & vars(value).keys())
            self.add_plain(vars(value), read, f"{path}.{attribute}")
            for name in read:
                self.add_attribute(f"{path}.{attribute}", value, name, mentioned)

    def add_plain(self, attributes: dict[str, Any], names: Iterable[str], path: str) -> None:
        for name in names:
            value = attributes[name]
            if isinstance(value, (Tensor, *PLAIN)):
                self.entries.append((attributes, name, value, f"{path}.{name}"))
            elif isinstance(value, CHANGED_IN_PLACE):
                self.add_contents(attributes, name, f"{path}.{name}")

    def add_contents(self, attributes: dict[str, Any], name: str, path: str) -> None:
        token = token_of(attributes[name])
        if token is not MISSING:
            self.contents.append(Guard(path, partial(attributes.get, name, MISSING), token))


def objects_in(path: str, holder: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields (path, key, item) for the objects, and what may hold some, in a list, a tuple or a dict; others hold none."""
    if isinstance(holder, HOLDERS) and len(holder) <= ITEMS_MAX:
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, HOLDERS) or has_attributes(item):
                yield f"{path}[{key!r}]", key, item


def _is_users_object(value: Any) -> bool:
    """True for objects whose attributes are read one by one: of users' classes, no Modules."""
    return has_attributes(value) and not isinstance(value, Module) and type(value).__module__.split(".")[0] not in PACKAGES


# ---- is every object still the same one? ----
Holds = Callable[[], bool]
Meant = tuple[Read, Any]  # how a name is read, and what it means now
_END = object()
FIXED = (*PLAIN, weakref.ref, Same, Function)  # tokens of objects that mean the same for as long as they are the same ones


class Watched:
    """The state that guards depend on, as it is now, in the form that is quickest to look at.

    asks:  there is something to look at where nothing has changed in any Module
    """

    def __init__(self, guards: Guards, also: Sequence[Holds] = ()):
        """Sorts what guards ask by how it is asked: attributes, variables of closures, items of lists; `also` what else."""
        parts = _attributes(guards.parts)
        self._modules = partial(_read_objects, [read for read, _ in parts], [meant for _, meant in parts])
        self._tensors = [tensor for tensor, *_ in guards.modes]
        self._steps = [tensor.steps for tensor in self._tensors]
        self._hooks = [(held, tuple(held.values())) for held, _ in guards.hooks]
        self._names = [(attributes, frozenset(attributes)) for attributes, *_ in guards.names]
        objects, lists, self._checks = _to_ask(guards)
        self._checks += also
        lists = [one for one in lists if isinstance(one[1], SEQUENCES)]  # one that is no longer a list breaks its guard
        # All lists are compared as one line of items. Each ends with _END: otherwise [a, b], [c] would equal [a], [b, c].
        self._lists = [part for _, items in lists for part in (items, (_END,))]
        self._held = [*chain(*self._lists)]
        self._attributes: list[tuple[dict[str, Any], str, Any]] = []
        self._variables: list[tuple[CellType, Any]] = []
        for read, meant in [*objects, *[one for one in lists if not is_fixed(one[0])]]:
            source = source_of(read)
            if source is None or meant is MISSING:
                self._checks.append(partial(_means, read, meant))
            elif isinstance(source, CellType):
                self._variables.append((source, meant))
            else:
                self._attributes.append((*source, meant))
        self.asks = bool(self._attributes or self._variables or self._lists or self._checks)

    def is_the_same(self, look_into_modules: bool = False) -> bool:
        """Returns whether every name certainly means what it meant.

        Args:
          look_into_modules: False where nothing has changed in any Module since then (tensor/cell.py)
        """
        if look_into_modules and not (
            self._modules()
            and [tensor.steps for tensor in self._tensors] == self._steps
            and all(attributes.keys() == names for attributes, names in self._names)
            and all(tuple(held.values()) == hooks for held, hooks in self._hooks)
        ):
            return False
        try:
            for attributes, name, meant in self._attributes:
                if attributes[name] is not meant:
                    return False
            for variable, meant in self._variables:
                if variable.cell_contents is not meant:
                    return False
        except (KeyError, ValueError):  # the attribute, or the variable, is gone
            return False
        if self._lists and any(map(is_not, chain(*self._lists), self._held)):
            return False
        return all(map(call, self._checks))


def _to_ask(guards: Guards) -> tuple[list[Meant], list[Meant], list[Holds]]:
    """Returns the questions of every call: objects that names mean, items of lists, and the rest."""
    objects, lists = _attributes(guards.held), [(read, read()) for read, *_ in guards.lists]
    checks: list[Holds] = []
    for guard in guards.values:
        if guard.is_covered:
            continue
        meant = guard.read()
        if isinstance(guard.token, FIXED) and guard.read() is meant:  # some reads make a new object each time
            objects.append((guard.read, meant))
        elif _has_fixed_items(guard.token) and isinstance(meant, SEQUENCES):
            lists.append((guard.read, meant))
        elif type(guard.token) is tuple:
            checks.append(partial(_reads_tensor, guard.read, *guard.token))
        else:
            checks.append(guard.holds)
    return objects, lists, checks


def _has_fixed_items(token: Any) -> bool:
    """True for the token of a list that means the same for as long as it holds the same objects."""
    return isinstance(token, list) and all(isinstance(item, FIXED) or item is MISSING for item in token)


def _attributes(entries: Sequence[Entry]) -> list[Meant]:
    """Returns how each attribute is read, and what it means now."""
    reads = [partial(owner.get, name, MISSING) for owner, name, *_ in entries]
    return [(read, read()) for read in reads]


def _read_objects(reads: Sequence[Read], meant: Sequence[Any]) -> bool:
    return not any(map(is_not, map(call, reads), meant))


def _means(read: Read, meant: Any) -> bool:
    return read() is meant


def _reads_tensor(read: Read, cell: weakref.ref[Cell], steps: View) -> bool:
    tensor = read()
    return type(tensor) is Tensor and tensor.cell is cell() and tensor.steps == steps
