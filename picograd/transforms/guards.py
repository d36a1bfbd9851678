"""The Python values that a captured function reads: they are remembered, so that a change is an error, not a stale result.

In:    a Python function and its arguments
Out:   `Guards`: the names the function mentions, with their meaning when it was traced;  `Watched`: the quick half
       of the check

Guarded are the closure variables, globals, default values and variables of the environment that the function's own
code mentions, and attributes of objects that it mentions: numbers, strings and other plain values, containers of them, the
identity of Tensors and arrays (and values of small arrays), and that a name is missing. A Module, whose own code is not
read, counts with all that it holds: tensors, modules, plain values and those of objects such as a configuration; an
Optimizer with the settings of its groups, and the tensors of its state. The same holds for the user's own functions that
it mentions, those that they mention, the `forward` of Modules, and methods that operators, loops and `with` call
(bytecode_reads.py). Reads by libraries are not seen.
Reading clocks and files, which cannot be guarded, is an error in the trace (traced.py).

In nearly every call each name still refers to the same object, and comparing identities is fast: many names take one
call of a C function. Only if a name refers to another object do the guards decide whether that object is an equal
one.
"""

from __future__ import annotations

import datetime
import os
import time
import weakref
from collections import UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import getattr_static
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
    ARRAYS,
    HOOKS,
    ITEMS_MAX,
    MAPPINGS,
    MISSING,
    PLAIN,
    SEQUENCES,
    STEP_HOOKS,
    Function,
    Read,
    Same,
    attributes_of,
    fits,
    functions_of,
    has_attributes,
    how,
    how_held,
    implicit_methods,
    is_fixed,
    itself,
    names_of,
    read_of,
    same,
    source_of,
    token_of,
    variables_of,
)

CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
BUILTINS = {"open": open, "input": input}
# Functions whose results may differ from call to call although no value of the program has changed.
OUTSIDE: frozenset[Any] = frozenset(BUILTINS.values()) | {
    *(getattr(time, name) for name in CLOCKS), *(getattr(time, f"{name}_ns") for name in CLOCKS),
    *(vars(datetime.datetime)[name] for name in ("now", "utcnow")), vars(datetime.date)["today"],
    time.localtime, time.gmtime, time.ctime, os.urandom, np.fromfile,
    Path.open, Path.read_text, Path.read_bytes, np.load, np.loadtxt, np.genfromtxt,
    os.times, os.stat, os.listdir, os.path.exists, os.path.isfile, os.path.isdir, os.path.getmtime, os.path.getsize,
    Path.exists, Path.is_file, Path.is_dir, Path.stat,
}  # fmt: skip
Entry = tuple[dict[str, Any], str, Any, str]  # attributes of an object, name, its meaning, and the user's way to write it
HooksRead = tuple[dict[int, Any], tuple[Any, ...]]  # of a leaf: its functions by number, and those at the trace
NamesRead = tuple[dict[str, Any], frozenset[str], type[Module], str]
AbsentRead = tuple[dict[str, Any], frozenset[str], str]  # attributes of an object, names that it lacks, and the way to it
CodeRead = tuple[Read, Any, str]  # returns code, the code at the trace, and the user's way to write it
ItemsRead = tuple[Read, tuple[Any, ...], str]  # returns a list, its items at the trace, and the user's way to write it
HOLDERS = (list, tuple, dict)
RENEWING = (Function, Same)
CHANGED_IN_PLACE = (list, deque, UserList, *MAPPINGS, set, *ARRAYS)  # the same object may have another content


class Guard(Record):
    """A value that the function may have read.

    name:        as the user would write it, e.g. "scale" or "self.rate"
    read:        returns its present value
    token:       the token of its value when the function was traced
    is_covered:  the name always means this object, or it belongs to a Module and is guarded by `parts` and `lists`
    """

    name: str
    read: Read
    token: Any
    is_covered: bool = False

    def holds(self) -> bool:
        return fits(self.read(), self.token)


class Broken(NamedTuple):
    """A change since the trace.

    text:    the change in words
    line:    the line of the user's code that reads the value, if it is known
    renews:  it is another function, object or hook, so that the function is traced again
    """

    text: str
    line: Line | None
    renews: bool


class Guards(Record):
    """The values that a capture depends on besides its arguments.

    values:    names and attributes
    held:      attributes of objects that are not Modules
    parts:     attributes of Modules
    lists:     (returns a list of Modules or parameters, its items, how the user would write it)
    modes:     (tensor of a Module, its view, whether it requires grad, how the user would write it)
    names:     (attributes of a Module, their names, its class, how the user would write it)
    hooks:     hooks of leaves
    absent:    names that code mentions and that an object does not have
    code:      code of functions, and methods that run unmentioned, such as `forward` of a Module's class
    mentioned: attributes that the code of each function mentions
    mentions:  the line of code that mentions a name or an attribute, by how the user would write it
    outside:   functions mentioned by the code, as the user would write them, that read a clock, a file or the like
    varied:    values that differed between two traces with the same graph: yet another value may give another graph
    """

    values: tuple[Guard, ...] = ()
    held: tuple[Entry, ...] = ()
    parts: tuple[Entry, ...] = ()
    lists: tuple[ItemsRead, ...] = ()
    modes: tuple[tuple[Tensor, View, bool, str], ...] = ()
    names: tuple[NamesRead, ...] = ()
    hooks: tuple[HooksRead, ...] = ()
    absent: tuple[AbsentRead, ...] = ()
    code: tuple[CodeRead, ...] = ()
    mentioned: tuple[frozenset[str], ...] = ()
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
        """Returns the first value that has changed, as the user would write it, the change, and whether that renews."""
        for attributes, name, value, path in (*self.parts, *self.held):
            now = attributes.get(name, MISSING)
            if now is not value and not same(token_of(now), token_of(value)):
                return path, how_held(value, now), isinstance(token_of(value), RENEWING) or name in (*HOOKS, *STEP_HOOKS)
        for attributes, known, kind, path in self.names:
            if attributes.keys() != known:
                new = attributes.keys() - known
                mentioned = frozenset[str](HOOKS).union(*(each & new for each in self.mentioned))
                is_part = {name for name in new if isinstance(attributes[name], Tensor | Module) or hasattr(kind, name)}
                if found := new & (mentioned | is_part):
                    return f"{path}.{min(found)}", "is set", True
        for attributes, names, path in self.absent:
            if not names.isdisjoint(attributes.keys()):
                return f"{path}.{min(names & attributes.keys())}", "is set", True
        for read, meant, path in self.code:
            if read() is not meant:
                return path, "is another function", True
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
    """Returns the guards of a function: the present meaning of names in it and in functions that it mentions."""
    found = _Reads()
    for prefix, called, its_args in functions_of(function, args, kwargs):
        found.add_function(prefix, called, its_args)
        if not prefix and isinstance(function, partial):
            place = names_of(called.__code__).line("")
            found.add_value("functools.partial", partial(itself, function), token_of(function), False, place)
    return found.guards()


def modules_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Module, ...]:
    """Returns the Modules that a function mentions, with all below them, whose modes choose between captures."""
    found = _Reads()
    for prefix, called, its_args in functions_of(function, args, kwargs):
        for name, read in variables_of(called, its_args):
            found.add_variable(name, read(), names_of(called.__code__).attributes)
        found.add_arguments(prefix, called, its_args)
    return tuple(found.modules)


def _moves_on(function: str, path: str, place: tuple[str, int]) -> JitError:
    """Returns the error for an iterator, such as a generator or an open file."""
    return JitError(
        f"jit: {function} reads {path}, an iterator, which later calls would not advance.",
        f"call next({path}) outside, and pass its value.",
        line=Line(*place),
    )


def _is_outside(value: Any) -> bool:
    """True for a function that reads a clock, a file or the like."""
    return isinstance(value, BuiltinFunctionType | ClassMethodDescriptorType | FunctionType) and value in OUTSIDE


class _Reads:
    """Collects the values that functions read, and those that Modules, Optimizers, objects and containers hold.

    Each object counts once. The lists are those of Guards; `contents` has values in others that can change in place.
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
        self.absent: list[AbsentRead] = []
        self.code: dict[tuple[type | FunctionType, str], CodeRead] = {}
        self.mentioned: list[frozenset[str]] = []
        self.seen: set[int] = set()

    def guards(self) -> Guards:
        lines = {path: Line(file, number) for path, (file, number) in self.mentions.items()}
        values = self.values | {guard.name: guard for guard in self.contents}
        return Guards(
            tuple(values.values()), tuple(self.entries), tuple(self.parts), tuple(self.lists), tuple(self.modes),
            tuple(self.names), (), tuple(self.absent), tuple(self.code.values()), tuple(self.mentioned),
            lines, self.outside,
        )  # fmt: skip

    # ---- names ----
    def add_function(self, prefix: str, called: FunctionType, args: Sequence[Any]) -> None:
        """Notes the names that a function mentions, and the contents of their values.

        Args:
          prefix:  prefix of its names, as the user would write them
          args:    the known arguments
        """
        names = names_of(called.__code__)
        self.mentioned.append(names.attributes)
        if prefix:  # the function itself is compared by identity where it is called
            for name in ("__code__", "__defaults__", "__kwdefaults__"):
                self.add_code(called, name, prefix.removesuffix("'s "))
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
                for attribute in sorted(read_of(value, names.attributes)):
                    self.mentions.setdefault(f"{name}.{attribute}", names.line(attribute))
        self.add_arguments(prefix, called, args)
        for asked in OUTSIDE:  # methods of objects that code reaches by a call, or in two steps
            if asked.__name__ in names.attributes and asked not in self.outside.values():
                self.outside[asked.__qualname__] = asked
        self.outside |= {name: BUILTINS[name] for name in names.globals & BUILTINS.keys() - called.__globals__.keys()}
        for variable in names.environment:
            path = f"{prefix}os.environ[{variable!r}]"
            read = partial(users_setting, variable)
            self.values[path], self.mentions[path] = Guard(path, read, read()), names.line("environ")

    def add_value(self, path: str, read: Read, token: Any, is_of_module: bool, place: tuple[str, int]) -> None:
        """Notes a value, read by the line of code at `place`, unless there is nothing to guard in it."""
        if token is not MISSING:
            path = path if path not in self.values else f"{path} ({len(self.values)})"
            is_same = is_fixed(read) and isinstance(token, weakref.ref)
            self.values[path] = Guard(path, read, token, is_of_module or is_same)
            self.mentions.setdefault(path, place)

    def add_code(self, owner: type | FunctionType, name: str, path: str) -> None:
        """Notes code, or a method of a class, by its owner."""
        self.code[owner, name] = (partial(getattr, owner, name, MISSING), getattr(owner, name, MISSING), path)

    # ---- what values hold ----
    def is_new(self, value: Any) -> bool:
        """Returns whether an object has not been met before."""
        is_new = id(value) not in self.seen
        self.seen.add(id(value))
        return is_new

    def add_arguments(self, prefix: str, called: FunctionType, args: Sequence[Any]) -> None:
        """Notes the contents of objects in containers among the arguments; their identity is in the arguments' form."""
        mentioned = names_of(called.__code__).attributes
        for name, value in zip(called.__code__.co_varnames, args):
            for path, _, item in objects_in(prefix + name, value):
                self.add_variable(path, item, mentioned)

    def add_variable(self, path: str, value: Any, mentioned: frozenset[str]) -> None:
        """Notes the contents of a value; of an object the attributes that code mentions."""
        self.add(path, value, mentioned)
        if has_attributes(value):
            self.add_absent(path, value, mentioned)
            for attribute in sorted(read_of(value, mentioned)):
                self.add_attribute(path, value, attribute, mentioned)

    def add_absent(self, path: str, value: Any, mentioned: frozenset[str]) -> None:
        """Notes the names that an object lacks, as `hasattr` asks, and methods of its class that run unmentioned."""
        if _is_users_object(value):
            kind = type(value)
            lacks = [name for name in mentioned - vars(value).keys() if getattr_static(kind, name, MISSING) is MISSING]
            self.absent.append((vars(value), frozenset(lacks), path))
            for name in implicit_methods(kind):
                self.add_code(kind, name, f"{path}.{name}")

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
            hooks = vars(value).keys() & STEP_HOOKS
            self.absent.append((vars(value), frozenset(STEP_HOOKS) - hooks, path))
            self.entries += [(vars(value), name, vars(value)[name], f"{path}.{name}") for name in hooks]
            groups = partial(vars(value).get, "param_groups")
            self.lists.append((groups, tuple(value.param_groups), f"{path}.param_groups"))
            for place, group in enumerate(value.param_groups):
                shown = f"{path}.param_groups[{place}]"
                # NOTE: plans read the learning rate, and other settings that a schedule changes, from buffers.
                names = [name for name in group if name not in ("params", "lr", *group.changing)]
                self.lists.append((partial(group.get, "params"), tuple(group["params"]), f"{shown}['params']"))
                self.entries += [(group, name, group[name], f"{shown}[{name!r}]") for name in names]

    def add_items(self, path: str, holder: Any, mentioned: frozenset[str]) -> None:
        """Notes the objects in a list, a tuple or a dict, and their contents."""
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
        """Notes the contents of a module: tensors, modules, plain values, containers of these, and the user's objects."""
        self.names.append((vars(module), frozenset(vars(module)), type(module), path))
        self.add_code(type(module), "forward", f"{path}.forward")
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
                self.add_absent(shown, value, mentioned)

    def add_attribute(self, path: str, owner: Any, attribute: str, mentioned: frozenset[str]) -> None:
        """Notes an attribute that code mentions; of an object in it those attributes that the code may mention next."""
        value = vars(owner)[attribute]
        if isinstance(owner, Module):
            return  # noted whole
        self.add(f"{path}.{attribute}", value, mentioned)
        if _is_users_object(value) and self.is_new(value):
            self.entries.append((vars(owner), attribute, value, f"{path}.{attribute}"))
            read = sorted(read_of(value, mentioned))
            self.add_plain(vars(value), read, f"{path}.{attribute}")
            self.add_absent(f"{path}.{attribute}", value, mentioned)
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
    """Yields (path, key, item) for objects and containers in a list, a tuple or a dict; nothing for other holders."""
    if isinstance(holder, HOLDERS) and len(holder) <= ITEMS_MAX:
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, HOLDERS) or has_attributes(item):
                yield f"{path}[{key!r}]", key, item


def _is_users_object(value: Any) -> bool:
    """True for an object whose attributes are noted one by one: of a user's class that is not a Module."""
    return has_attributes(value) and not isinstance(value, Module) and type(value).__module__.split(".")[0] not in PACKAGES


# ---- the quick check: the same objects ----
Holds = Callable[[], bool]
Meant = tuple[Read, Any]  # a function that reads a name, and its present meaning
_END = object()
FIXED = (*PLAIN, weakref.ref, Same, Function)  # tokens of objects whose meaning is fixed while they are the same objects


class Watched:
    """The present state that guards depend on, in the form that is quickest to compare.

    asks:  True if there is something to compare even when nothing has changed in any Module
    """

    def __init__(self, guards: Guards, also: Sequence[Holds] = ()):
        """Sorts the questions of guards: attributes, variables of closures, items of lists; `also` are further ones."""
        parts = _attributes(guards.parts)
        self._modules = partial(_read_objects, [read for read, _ in parts], [meant for _, meant in parts])
        self._tensors = [tensor for tensor, *_ in guards.modes]
        self._steps = [tensor.steps for tensor in self._tensors]
        self._hooks = [(held, tuple(held.values())) for held, _ in guards.hooks]
        self._names = [(attributes, frozenset(attributes)) for attributes, *_ in guards.names]
        objects, lists, self._checks = _to_ask(guards)
        self._checks += [*also, *(partial(attributes.keys().isdisjoint, names) for attributes, names, _ in guards.absent)]
        self._code, self._codes = [read for read, *_ in guards.code], [meant for _, meant, _ in guards.code]
        lists = [one for one in lists if isinstance(one[1], SEQUENCES)]  # a value that is not a list now breaks its guard
        # All lists are compared as one sequence. Each ends with _END: otherwise [a, b], [c] would equal [a], [b, c].
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
        self.asks = bool(self._attributes or self._variables or self._lists or self._checks or self._code)

    def is_the_same(self, look_into_modules: bool = False) -> bool:
        """Returns whether every name certainly has the same meaning as before.

        Args:
          look_into_modules: False if nothing has changed in any Module since then (tensor/cell.py)
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
        if any(map(is_not, map(call, self._code), self._codes)):
            return False
        return all(map(call, self._checks))


def _to_ask(guards: Guards) -> tuple[list[Meant], list[Meant], list[Holds]]:
    """Returns the questions of every call: objects that names mean, items of lists, and all others."""
    objects, lists = _attributes(guards.held), [(read, read()) for read, *_ in guards.lists]
    checks: list[Holds] = []
    for guard in guards.values:
        if guard.is_covered:
            continue
        meant = guard.read()
        if isinstance(guard.token, FIXED) and guard.read() is meant:  # some reads return a new object each time
            objects.append((guard.read, meant))
        elif _has_fixed_items(guard.token) and isinstance(meant, SEQUENCES):
            lists.append((guard.read, meant))
        elif type(guard.token) is tuple:
            checks.append(partial(_reads_tensor, guard.read, *guard.token))
        else:
            checks.append(guard.holds)
    return objects, lists, checks


def _has_fixed_items(token: Any) -> bool:
    """True for the token of a list that has the same meaning while it holds the same objects."""
    return isinstance(token, list) and all(isinstance(item, FIXED) or item is MISSING for item in token)


def _attributes(entries: Sequence[Entry]) -> list[Meant]:
    """Returns for each attribute a function that reads it, and its present meaning."""
    reads = [partial(owner.get, name, MISSING) for owner, name, *_ in entries]
    return [(read, read()) for read in reads]


def _read_objects(reads: Sequence[Read], meant: Sequence[Any]) -> bool:
    return not any(map(is_not, map(call, reads), meant))


def _means(read: Read, meant: Any) -> bool:
    return read() is meant


def _reads_tensor(read: Read, cell: weakref.ref[Cell], steps: View) -> bool:
    tensor = read()
    return type(tensor) is Tensor and tensor.cell is cell() and tensor.steps == steps
