"""What a captured function reads of Python: remembered, so that a change is an error and not a stale result.

In:    a Python function and its arguments
Out:   `Guards`: the names the function mentions, with what they meant when it was traced
Called by: transforms/jit.py.    Next: picograd/control/scan.py

Looked at are the closure variables and globals that the function's own code mentions, and attributes it mentions of
objects: numbers, strings and other plain values, which Tensor or array it is (not what it holds). Of a Module, whose
own code is not read, all that it holds counts: tensors, modules, plain values and those of objects such as a
configuration; of an Optimizer the settings of its groups. The same holds for the user's own functions that it mentions,
those that they mention, and the `forward` of the user's Modules. Not seen is what libraries read.
"""

from __future__ import annotations

import dis
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from picograd.nn.module import Module
from picograd.nn.optimizer import Optimizer
from picograd.tensor.tensor import Tensor
from picograd.transforms.tokens import MISSING, MOST_ITEMS, PLAIN, fits, how, how_held, is_users_code, same, token_of

Read = Callable[[], Any]


@dataclass(frozen=True)
class Guard:
    """One thing the function may have read.

    name:   as the user would write it, e.g. "scale" or "self.rate"
    read:   gives what it means now
    token:  of what it meant when the function was traced
    """

    name: str
    read: Read
    token: Any

    def holds(self) -> bool:
        return fits(self.read(), self.token)


@dataclass(frozen=True)
class Guards:
    """What a capture depends on besides its arguments.

    values:  names and attributes
    held:    (attributes of an object, name, what it meant, how the user would write it)
    lists:   (list of Modules or parameters, what it held, how the user would write it)
    modes:   (tensor of a Module, whether it requires grad, how the user would write it)
    """

    values: tuple[Guard, ...] = ()
    held: tuple[tuple[dict[str, Any], str, Any, str], ...] = ()
    lists: tuple[tuple[Sequence[Any], tuple[Any, ...], str], ...] = ()
    modes: tuple[tuple[Tensor, bool, str], ...] = ()

    def broken(self) -> str | None:
        """Returns the name of the first thing that has changed, with how, or None."""
        for attributes, name, value, path in self.held:
            now = attributes.get(name, MISSING)
            if now is not value and (token_of(value) is MISSING or not same(token_of(now), token_of(value))):
                return f"{path} {how_held(value, now)}"
        for items, before, path in self.lists:
            if len(items) != len(before) or any(map(operator.is_not, items, before)):
                kind = "modules" if any(isinstance(item, Module) for item in before) else "parameters"
                return f"{path} holds other {kind}"
        for tensor, wanted, path in self.modes:
            if tensor.requires_grad is not wanted:
                return f"{path}.requires_grad was {wanted} and is {not wanted}"
        for guard in self.values:
            if not guard.holds():
                return f"{guard.name} {how(guard.token, guard.read())}"
        return None

    def shared_with(self, later: Guards) -> Guards:
        """Returns what two traces agree on: what differed and made no difference to the graph is not read."""
        tokens = {guard.name: guard.token for guard in later.values}
        kept = tuple(g for g in self.values if g.name in tokens and same(g.token, tokens[g.name]))
        before = {path: value for _, _, value, path in self.held}
        held = tuple(h for h in later.held if token_of(h[2]) is MISSING or same(token_of(before.get(h[3])), token_of(h[2])))
        return Guards(kept, held, later.lists, later.modes)


def guards_of(function: Callable[..., Any], args: Sequence[Any]) -> Guards:
    """Returns what the names of a function, and of functions it mentions, mean now."""
    values: dict[str, Guard] = {}
    held = _Held()
    for prefix, called, its_args in _functions(function, args):
        names = _names(_code_of(called))
        for variable, read in _variables(called, names, its_args):
            name, value = prefix + variable, read()
            if token_of(value) is not MISSING:
                values[name] = Guard(name, read, token_of(value))
            held.add(name, value)
            for attribute, read_attribute in _attributes(value, names.attributes):
                path, token = f"{name}.{attribute}", token_of(read_attribute())
                if token is not MISSING:
                    values[path] = Guard(path, read_attribute, token)
            if _has_attributes(value):
                for attribute in sorted(names.attributes & vars(value).keys()):
                    held.add_attribute(name, value, attribute, names.attributes)
    return Guards(tuple(values.values()), tuple(held.entries), tuple(held.lists), tuple(held.modes))


class _Held:
    """Collects what Modules, Optimizers and objects within objects hold, each object once."""

    def __init__(self) -> None:
        self.entries: list[tuple[dict[str, Any], str, Any, str]] = []
        self.lists: list[tuple[Sequence[Any], tuple[Any, ...], str]] = []
        self.modes: list[tuple[Tensor, bool, str]] = []
        self.seen: set[int] = set()

    def add(self, path: str, value: Any) -> None:
        """Notes all that a Module holds, and the settings of an Optimizer; other values have nothing of their own."""
        if isinstance(value, Module):
            for part_path, part in value.named_modules(path):
                self.add_module(part_path, part)
        elif isinstance(value, Optimizer):
            for place, group in enumerate(value.param_groups):
                shown = f"{path}.param_groups[{place}]"
                # NOTE: the learning rate is a buffer that plans read, so it may change.
                names = [name for name in group if name not in ("params", "lr")]
                self.lists.append((group["params"], tuple(group["params"]), f"{shown}['params']"))
                self.entries += [(group, name, group[name], f"{shown}[{name!r}]") for name in names]

    def add_module(self, path: str, module: Module) -> None:
        for name, value in vars(module).items():
            shown = f"{path}.{name}"
            if name in ("training", "_state_kinds"):  # the mode chooses between captures; see modules_of
                continue
            if isinstance(value, list | tuple) and any(isinstance(item, Module) for item in value):
                self.lists.append((value, tuple(value), shown))
            if isinstance(value, Tensor):
                self.modes.append((value, value.requires_grad, shown))
            if isinstance(value, (Tensor, Module, list, tuple, *PLAIN)):
                self.entries.append((vars(module), name, value, shown))
            elif _is_users_object(value) and id(value) not in self.seen:
                self.seen.add(id(value))
                plain = [(key, own) for key, own in vars(value).items() if isinstance(own, PLAIN)]
                self.entries += [(vars(value), key, own, f"{shown}.{key}") for key, own in plain]

    def add_attribute(self, path: str, owner: Any, attribute: str, mentioned: frozenset[str]) -> None:
        """Notes an attribute that code mentions, and of an object in it what the code may mention next."""
        value = vars(owner)[attribute]
        if isinstance(owner, Module):
            return  # noted whole
        self.add(f"{path}.{attribute}", value)
        if _is_users_object(value) and id(value) not in self.seen:
            self.seen.add(id(value))
            self.entries.append((vars(owner), attribute, value, f"{path}.{attribute}"))
            for name in sorted(mentioned & vars(value).keys()):
                if isinstance(vars(value)[name], PLAIN):
                    self.entries.append((vars(value), name, vars(value)[name], f"{path}.{attribute}.{name}"))
                self.add_attribute(f"{path}.{attribute}", value, name, mentioned)


def modules_of(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Module, ...]:
    """Returns the Modules a function mentions, with all below them: whether they train chooses between captures."""
    found: dict[Module, None] = {}
    for _, called, its_args in _functions(function, args):
        names = _names(_code_of(called))
        for name, read in _variables(called, names, its_args):
            for _, module in _modules(name, read(), names.attributes):
                found |= dict.fromkeys(module.modules())
    return tuple(found)


# ---- which functions ----
def _functions(function: Callable[..., Any], args: Sequence[Any]) -> Iterator[tuple[str, Any, Sequence[Any]]]:
    """Yields the function, and once each the user's own functions it may call: (prefix of their names, it, arguments)."""
    waiting: list[tuple[str, Any, Sequence[Any]]] = [("", function, args)]
    seen: set[tuple[CodeType, int]] = set()
    while waiting:
        prefix, called, its_args = waiting.pop()
        code, owner = _code_of(called), id(its_args[0]) if its_args else 0
        if code is None or (code, owner) in seen:
            continue
        seen.add((code, owner))
        yield prefix, called, its_args
        names = _names(code)
        for name, read in _variables(called, names, its_args):
            waiting += [(f"{shown}'s ", found, own) for shown, found, own in _callees(name, read(), names.attributes)]


def _callees(name: str, value: Any, attributes: frozenset[str]) -> list[tuple[str, Any, Sequence[Any]]]:
    """Returns the user's own functions that a variable gives access to, with `self` where it is known.

    They are the variable itself, methods that are mentioned, and the `forward` of Modules.
    """
    found: list[tuple[str, Any, Sequence[Any]]] = []
    if _has_attributes(value):
        mentioned = [(a, inspect.getattr_static(type(value), a, None)) for a in sorted({*attributes, "__call__"})]
        found = [(f"{name}.{a}", getattr(m, "fget", m), (value,)) for a, m in mentioned if m is not None]
        if isinstance(value, Module):
            found += [(f"{type(m).__name__}.forward", type(m).forward, (m,)) for m in value.modules()]
    elif isinstance(value, list | tuple) and len(value) <= MOST_ITEMS:
        found = [(f"{name}[{i}]", item, ()) for i, item in enumerate(value)]
    else:
        found = [(name, value, ())]
    return [(path, callee, args) for path, callee, args in found if is_users_code(_code_of(callee))]


# ---- which names ----
@dataclass(frozen=True)
class _Names:
    """What code mentions: globals it reads, attributes it reads, names it assigns itself."""

    globals: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()


@functools.cache
def _names(code: CodeType | None) -> _Names:
    """Returns the globals and attributes that code reads and does not assign, nested functions included."""
    found = _Names()
    if code is None:
        return found
    for instruction in dis.get_instructions(code):
        kind, name = instruction.opname, instruction.argval
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            found = _Names(found.globals | {name}, found.attributes, found.assigned)
        elif kind in ("LOAD_ATTR", "LOAD_METHOD"):
            found = _Names(found.globals, found.attributes | {name}, found.assigned)
        elif kind in ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"):
            found = _Names(found.globals, found.attributes, found.assigned | {name})
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _names(constant)
            found = _Names(
                found.globals | inner.globals, found.attributes | inner.attributes, found.assigned | inner.assigned
            )
    return _Names(found.globals - found.assigned, found.attributes - found.assigned, found.assigned)


def _plain_function(function: Any) -> Any:
    while True:
        inner = next((getattr(function, a) for a in ("func", "__wrapped__", "__func__") if hasattr(function, a)), None)
        if inner is None:
            return function
        function = inner


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    code: CodeType | None = getattr(_plain_function(function), "__code__", None)
    return code


def _variables(function: Any, names: _Names, args: Sequence[Any]) -> Iterator[tuple[str, Read]]:
    """Yields each variable the function mentions, with a way to read it; of its arguments, objects with attributes."""
    plain, code = _plain_function(function), _code_of(function)
    if code is None:
        return
    if hasattr(function, "__self__"):
        args = (function.__self__, *args)
    for name, value in zip(code.co_varnames, args):
        if _has_attributes(value):
            yield name, functools.partial(_itself, value)
    for name, cell in zip(code.co_freevars, plain.__closure__ or ()):
        if name not in names.assigned:
            yield name, functools.partial(_cell_contents, cell)
    for name in sorted(names.globals & plain.__globals__.keys()):
        yield name, functools.partial(plain.__globals__.get, name, MISSING)


def _itself(value: Any) -> Any:
    return value


def _cell_contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value any more
        return MISSING


def _modules(name: str, value: Any, attributes: frozenset[str]) -> list[tuple[str, Module]]:
    """Returns the Modules a variable gives access to: itself, or attributes that are mentioned."""
    if isinstance(value, Module):
        return [(name, value)]
    if not _has_attributes(value):
        return []
    held = [(f"{name}.{a}", vars(value)[a]) for a in sorted(attributes & vars(value).keys())]
    return [(path, item) for path, item in held if isinstance(item, Module)]


def _attributes(value: Any, mentioned: frozenset[str]) -> Iterator[tuple[str, Read]]:
    """Yields attributes that code mentions, with a way to read them: of objects, their classes, and modules."""
    if isinstance(value, type | ModuleType):
        if getattr(value, "__module__", getattr(value, "__name__", "")).split(".")[0] == "picograd":
            return
        for name in sorted(mentioned & vars(value).keys()):
            yield name, functools.partial(inspect.getattr_static, value, name, MISSING)
    elif _has_attributes(value):
        for name in sorted(mentioned):
            if name in vars(value):
                yield name, functools.partial(vars(value).get, name, MISSING)
            elif token_of(inspect.getattr_static(value, name, MISSING)) is not MISSING:
                yield name, functools.partial(inspect.getattr_static, value, name, MISSING)


def _is_users_object(value: Any) -> bool:
    """True for objects whose attributes are read one by one: of users' classes, no Modules."""
    return _has_attributes(value) and not isinstance(value, Module) and not type(value).__module__.startswith("picograd.")


def _has_attributes(value: Any) -> bool:
    """True for objects of users' classes and Modules; not for tensors, functions, classes and Python's own."""
    if isinstance(value, Module):
        return True
    return hasattr(value, "__dict__") and not callable(value) and type(value).__module__ != "builtins"
