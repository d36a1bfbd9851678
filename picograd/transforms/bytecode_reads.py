"""The names that a function's code reads (variables, attributes, the user's own functions), and tokens of their values.

In:    a Python function and its arguments
Out:   `functions_of`: the function and those it may call;  `names_of` code;  `variables_of`, `attributes_of`: names with
       ways to read them;  `token_of`: the part of a value that must not change;  `fits`, `same`: whether it has changed;
       `how`: a change in words

Code is inspected, never run. An attribute is identified by its name alone: `a.rate` and `b.rate` are one mention of
"rate" for every object the function reaches.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import sysconfig
import weakref
from array import array
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple, cast

import numpy as np

from picograd.dtype import DType
from picograd.errors import PACKAGE_FOLDERS, PACKAGES
from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer
from picograd.record import Record, field
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

# ---- tokens of values ----
PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Length)
LIBRARIES = (
    *PACKAGE_FOLDERS,
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
SEQUENCES = (list, tuple, deque, UserList)
MAPPINGS = (dict, UserDict, ChainMap, MappingProxyType)
ARRAYS = (np.ndarray, array, bytearray, memoryview)
MISSING = object()  # the meaning of a name that has none
TOO_DEEP = object()  # the token of a container that is not looked into
ITEMS_MAX = 10_000  # items of a container that is inspected
DEPTH_MAX = 8
ARRAY_NBYTES_MAX = 1024  # of an array whose contents are inspected


class Function(NamedTuple):
    """A function of the user's, whose closure is inspected: functions with the same code and parts are equal."""

    function: weakref.ref[FunctionType]
    code: CodeType
    parts: list[Any]


class Same:
    """Any other object: its meaning is the same while it is the same object. It is kept alive only if it must be."""

    __slots__ = ("object",)

    def __init__(self, value: Any):
        self.object: Callable[[], Any]
        try:
            self.object = weakref.ref(value)
        except TypeError:
            self.object = lambda: value


class MethodToken(NamedTuple):
    """A bound method, or a partial call: the tokens of its function and of its object, or its arguments."""

    function: Any
    owner: Any


class ArrayToken(NamedTuple):
    """An array, and the contents of a small one."""

    array: Same
    held: bytes | None


def token_of(value: Any, depth: int = DEPTH_MAX) -> Any:
    """Returns the part of a value that must not change, or MISSING if there is nothing to watch.

    Args:
      depth:  number of nested containers that are inspected; a list may contain itself
    """
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return weakref.ref(value.cell), value.steps
    if isinstance(value, Module | Optimizer):
        return weakref.ref(value)
    if isinstance(value, ARRAYS):
        return ArrayToken(Same(value), _held(value))
    if isinstance(value, FunctionType) and is_users_code(value.__code__):
        parts = [token_of(part, depth - 1) for part in parts_of(value)] if depth else []
        return Function(weakref.ref(value), value.__code__, parts)
    if isinstance(value, (*SEQUENCES, set, frozenset, *MAPPINGS)) and len(value) > ITEMS_MAX:
        return MISSING
    if isinstance(value, SEQUENCES):
        return [token_of(item, depth - 1) for item in value] if depth else TOO_DEEP
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, MAPPINGS):
        return {key: token_of(item, depth - 1) for key, item in value.items()} if depth else TOO_DEEP
    if isinstance(value, MethodType):
        return MethodToken(token_of(value.__func__), token_of(value.__self__))
    if isinstance(value, functools.partial):
        return MethodToken(token_of(value.func), token_of([*value.args, value.keywords], depth))
    if isinstance(value, BuiltinMethodType) and isinstance(value.__self__, (*SEQUENCES, set, *MAPPINGS)):
        return MethodToken(value.__name__, token_of(value.__self__, depth))
    return MISSING if isinstance(value, ModuleType) or value is MISSING else Same(value)


def parts_of(function: FunctionType) -> Iterator[Any]:
    """Yields the values that belong to a function: variables of its closure, and defaults."""
    for cell in function.__closure__ or ():
        yield contents_of(cell)
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def contents_of(cell: CellType) -> Any:
    """Returns the value of a closure's variable, or MISSING if it no longer has one."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _held(array: Any) -> bytes | None:
    held = array if isinstance(array, np.ndarray) else memoryview(array)
    is_small = held.nbytes <= ARRAY_NBYTES_MAX and not (held is array and held.dtype.hasobject)
    return held.tobytes() if is_small else None


def fits(value: Any, token: Any) -> bool:
    """Returns whether a value has this token: `same(token_of(value), token)`, without making the token."""
    if value is token or token is TOO_DEEP:
        return True
    kind = type(token)
    if kind is tuple:
        return isinstance(value, Tensor) and token[0]() is value.cell and bool(token[1] == value.steps)
    if kind is list:
        return isinstance(value, SEQUENCES) and len(value) == len(token) and _fit(value, token)
    if kind is Same:
        return value is token.object()
    if kind is ArrayToken:
        return token.array.object() is value and (token.held is None or _held(value) == token.held)
    if kind is dict:
        same_keys = isinstance(value, MAPPINGS) and _same_keys(value, token)
        return same_keys and all(fits(value[key], part) for key, part in token.items())
    return same(token_of(value), token)


def _fit(values: Sequence[Any], tokens: list[Any]) -> bool:
    for value, token in zip(values, tokens):
        if type(value) is Tensor and type(token) is tuple:  # as in `fits`: parameters in lists are checked at each call
            if token[0]() is not value.cell or (token[1] is not value.steps and token[1] != value.steps):
                return False
        elif not fits(value, token):
            return False
    return True


def _same_keys(a: Any, b: Any) -> bool:
    """True for equal keys in one order: a loop over a dict follows it."""
    return bool(a.keys() == b.keys()) and [*map(hash, a)] == [*map(hash, b)]


def same(a: Any, b: Any) -> bool:
    """True if two tokens have the same meaning."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Function):
        return a.function() is b.function() or (a.code == b.code and same(a.parts, b.parts))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return _same_keys(a, b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, weakref.ref):
        return a() is b()
    if isinstance(a, Same):
        return a.object() is b.object()
    return isinstance(a, (*PLAIN, frozenset)) and (bool(a == b) or (a != a and b != b))


def how_held(before: Any, now: Any) -> str:
    if before is MISSING:
        return "is set"
    if isinstance(before, PLAIN):
        return how(before, now)
    if isinstance(before, Module | Tensor):
        return f"is another {'module' if isinstance(before, Module) else 'tensor'}"
    if isinstance(before, dict):
        return "holds something else"
    return f"was {before!r} and is {now!r}" if isinstance(before, list | tuple) else "is another object"


def how(before: Any, now: Any) -> str:
    if isinstance(before, MethodToken) and isinstance(before.owner, list | dict | frozenset):
        return "has changed"
    if isinstance(before, Function | MethodToken | Same):
        return f"is another {'object' if isinstance(before, Same) else 'function'}"
    if isinstance(before, PLAIN):
        return f"was {before!r} and is {now!r}" if isinstance(now, PLAIN) else f"was {before!r}"
    if isinstance(before, ArrayToken):
        return "has changed in place" if before.array.object() is now else "is another array"
    if isinstance(before, weakref.ref):
        return f"is another {'optimizer' if isinstance(before(), Optimizer) else 'module'}"
    return "is another tensor" if isinstance(before, tuple) else "has changed"


def is_users_code(code: Any) -> bool:
    """True for code that is neither picograd's, nor Python's, nor an installed package's."""
    return isinstance(code, CodeType) and not code.co_filename.startswith(("<frozen", *LIBRARIES))


# ---- kinds of names ----
Read = Callable[[], Any]
COMPUTED = {"vars", "getattr", "setattr", "delattr", "attrgetter", "__dict__"}  # access to attributes of any name
STEP_HOOKS = ("_step_pre_hooks", "_step_post_hooks")  # attributes of Optimizers
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")  # attributes of Modules
MADE_BY_CALLS = ("__new__", "__init__", "__post_init__")  # run by calling a class
FOR_COPIES = ("__repr__", "__del__", "__copy__", "__deepcopy__", "__getstate__", "__setstate__", "__reduce__")


# ---- functions that code may call ----
def functions_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, FunctionType, Sequence[Any]]]:
    """Yields the function, and each of the user's own that it may call, as (prefix of its names, function, arguments)."""
    plain, given = _unwrapped(function, args)
    if plain is not None:
        code = plain.__code__
        names = code.co_varnames[len(given) : code.co_argcount + code.co_kwonlyargcount]
        given = [*given, *[kwargs.get(name) for name in names]]
    waiting: list[tuple[str, Any, Sequence[Any]]] = [("", plain, given)]
    seen: set[tuple[FunctionType, int]] = set()
    while waiting:
        prefix, called, called_args = waiting.pop()
        plain, its_args = _unwrapped(called, called_args)
        if plain is None:
            continue
        code, owner = plain.__code__, id(its_args[0]) if its_args else 0
        if (plain, owner) in seen:
            continue
        seen.add((plain, owner))
        yield prefix, plain, its_args
        if hasattr(plain, "__wrapped__"):  # a wrapper has code of its own, and passes its arguments on
            waiting.append((prefix, plain.__wrapped__, its_args))
        names_here = names_of(code)
        for name, read in variables_of(plain, its_args):
            waiting += [(f"{shown}'s ", found, own) for shown, found, own in _callees(name, read(), names_here.attributes)]


def _unwrapped(function: Any, args: Sequence[Any]) -> tuple[FunctionType | None, Sequence[Any]]:
    """Returns the function whose code a callable runs, or None, and its known arguments."""
    while not isinstance(function, FunctionType):
        if isinstance(function, functools.partial):
            function, args = function.func, (*function.args, *args)
        elif isinstance(function, MethodType):
            function, args = function.__func__, (function.__self__, *args)
        elif isinstance(function, staticmethod | classmethod):
            function = function.__func__
        elif isinstance(function, functools.partialmethod):
            function = function.func
        elif isinstance(function, property):
            function = function.fget
        elif hasattr(function, "__wrapped__"):  # a jitted function, or one with a cache
            function = function.__wrapped__
        elif has_attributes(function) and callable(function):
            function, args = type(function).__call__, (function, *args)
        elif has_attributes(function) and hasattr(type(function), "__get__"):  # a descriptor of the user's
            function, args = type(function).__get__, (function, *args)
        else:
            return None, ()
    return function, args


def _callees(name: str, value: Any, attributes: frozenset[str]) -> list[tuple[str, Any, Sequence[Any]]]:
    """Returns the user's own functions that a variable gives access to, with `self` if it is known.

    They are the variable itself, methods that are mentioned, the `forward` of Modules, functions run by calling a
    class, and functions of a module of the user's.
    """
    found: list[tuple[str, Any, Sequence[Any]]] = []
    if has_attributes(value) or has_slots(value):
        called = sorted({*attributes, *implicit_methods(type(value))})
        found = [(f"{name}.{a}", member, (value,)) for a in called for member in members_of(type(value), a)]
        if isinstance(value, Module):
            found += [one for m in value.modules() for one in _functions_of_module(m)]
        if isinstance(value, Optimizer):
            found += [(f"{name}.{a}", hook.call, ()) for a in STEP_HOOKS for hook in vars(value).get(a, {}).values()]
    elif isinstance(value, type):
        mentioned = [(a, member) for a in (*sorted(attributes), *MADE_BY_CALLS) for member in members_of(value, a)]
        found = [(f"{name}.{a}", member, (value,) * isinstance(member, classmethod)) for a, member in mentioned]
    elif isinstance(value, ModuleType):
        found = [(f"{name}.{a}", vars(value)[a], ()) for a in sorted(attributes & vars(value).keys())]
    elif isinstance(value, (*SEQUENCES, *MAPPINGS)) and len(value) <= ITEMS_MAX:
        parts = value.items() if isinstance(value, MAPPINGS) else enumerate(value)
        held = [(f"{name}[{key!r}]", item) for key, item in parts]
        found = [one for shown, item in held if has_attributes(item) for one in _callees(shown, item, attributes)]
        found += [(shown, item, ()) for shown, item in held]
    else:
        found = [(name, value, ())]
    return [(path, callee, args) for path, callee, args in found if _is_users_function(callee)]


def members_of(kind: type, name: str) -> list[Any]:
    """Returns a class's attribute, own or inherited, then those of the same name to which `super()` leads from there."""
    found = [vars(base)[name] for base in kind.__mro__ if name in vars(base)]
    return found if found or type(kind) is type else [inspect.getattr_static(kind, name, None)]


def implicit_methods(kind: type) -> set[str]:
    """Returns the user's methods of a class that calls, operators, indexing, loops, `with`, `len` and the like run.

    Methods that dataclasses write compare and print all fields; code that reads a field mentions it.
    """
    held = {name: member for base in kind.__mro__ for name, member in vars(base).items() if name.startswith("__")}
    codes = {name: member.__code__ for name, member in held.items() if isinstance(member, FunctionType)}
    found = {name for name, code in codes.items() if is_users_code(code) and code.co_filename != "<string>"}
    return found - {*MADE_BY_CALLS, *FOR_COPIES}


def _functions_of_module(module: Module) -> Iterator[tuple[str, Any, Sequence[Any]]]:
    """Yields the functions that calling a module may call: its forward, its hooks, and functions among its attributes."""
    kind = type(module).__name__
    yield from ((f"{kind}.forward", forward, (module,)) for forward in members_of(type(module), "forward"))
    for name, value in vars(module).items():
        if isinstance(value, dict) and name in HOOKS:
            yield from ((f"{kind}.{name}", hook.call, ()) for hook in value.values())
        elif callable(value) and not isinstance(value, Module):
            yield f"{kind}.{name}", value, ()


def _is_users_function(value: Any) -> bool:
    plain, _ = _unwrapped(value, ())
    return plain is not None and is_users_code(plain.__code__)


# ---- names ----
class Names(Record):
    """The names that code mentions.

    globals:      it reads
    attributes:   it reads, or may read by `getattr`
    imports:      modules that it imports
    environment:  variables of the environment that it may read
    lines:        (name of any kind, the first line that mentions it)
    file:         the file of the code
    """

    globals: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    environment: frozenset[str] = frozenset()
    lines: Mapping[str, int] = field(default_factory=dict)
    file: str = ""
    first_line: int = 0

    def line(self, name: str) -> tuple[str, int]:
        """Returns the file and the line that mention a name."""
        return self.file, self.lines.get(name, self.first_line)


MENTIONS = {
    "LOAD_GLOBAL": "globals", "LOAD_NAME": "globals", "LOAD_ATTR": "attributes", "LOAD_METHOD": "attributes",
    "LOAD_SUPER_ATTR": "attributes", "IMPORT_FROM": "attributes", "IMPORT_NAME": "imports", "STORE_GLOBAL": "globals",
    "STORE_ATTR": "attributes",
}  # fmt: skip


@functools.cache
def names_of(code: CodeType) -> Names:
    """Returns the names that code reads or assigns, nested functions included."""
    found: dict[str, set[str]] = {kind: set() for kind in ("globals", "attributes", "imports")}
    lines: dict[str, int] = {}
    environment: set[str] = set()
    for instruction in dis.get_instructions(code):
        name, kind = instruction.argval, MENTIONS.get(instruction.opname)
        if isinstance(name, str):
            if kind is not None:
                found[kind].add(name)
            if instruction.positions is not None and instruction.positions.lineno is not None:
                lines.setdefault(name, instruction.positions.lineno)
        elif instruction.opname == "MATCH_CLASS":  # a pattern's names are an operand, or the class's __match_args__
            found["attributes"].add("__dict__")
    texts = {constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier()}
    if found["globals"] & {"getattr", "hasattr"}:
        found["attributes"] |= texts
    if "globals" in found["globals"]:
        found["globals"] |= texts
    if (found["globals"] | found["attributes"]) & {"environ", "getenv"}:
        environment = texts
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = names_of(constant)
            for kind, names in found.items():
                names |= getattr(inner, kind)
            environment |= inner.environment
            lines = {**inner.lines, **lines}
    attributes = EveryName(found["attributes"]) if _reads_any_name(found) else frozenset(found["attributes"])
    return Names(
        frozenset(found["globals"]), attributes, frozenset(found["imports"]), frozenset(environment), lines,
        code.co_filename, code.co_firstlineno,
    )  # fmt: skip


class EveryName(frozenset[str]):
    """The names of code that may also read attributes by computed names: a set that contains every name."""

    def __and__(self, names: Iterable[Any]) -> frozenset[Any]:
        return frozenset(names)

    __rand__ = __and__


def _reads_any_name(found: Mapping[str, set[str]]) -> bool:
    return not COMPUTED.isdisjoint(found["globals"] | found["attributes"])


def variables_of(function: FunctionType, args: Sequence[Any]) -> Iterator[tuple[str, Read]]:
    """Yields each variable that the function mentions, and arguments with attributes, with a function that reads it."""
    for name, read in _variables_of(function, args):
        yield name, read
        if isinstance(value := read(), weakref.ref):
            yield f"{name}()", value


def _variables_of(function: FunctionType, args: Sequence[Any]) -> Iterator[tuple[str, Read]]:
    code = function.__code__
    names = names_of(code)
    for name, value in zip(code.co_varnames, args):
        if has_attributes(value) or has_slots(value) or isinstance(value, type):
            yield name, functools.partial(itself, value)
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = function.__defaults__ or ()
    by_name = {**dict(zip(parameters[code.co_argcount - len(defaults) :], defaults)), **(function.__kwdefaults__ or {})}
    for name, value in by_name.items():
        if has_attributes(value) or isinstance(value, list | dict | set | np.ndarray):  # other values cannot change
            yield name, functools.partial(itself, value)
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        yield name, functools.partial(contents_of, cell)
    for name in sorted(names.globals & function.__globals__.keys()):
        yield name, functools.partial(function.__globals__.get, name, MISSING)
    for name in sorted(names.imports & sys.modules.keys()):
        yield name, functools.partial(sys.modules.get, name, MISSING)


def itself(value: Any) -> Any:
    return value


def is_fixed(read: Read) -> bool:
    """True if a variable always means the same object: a bound argument, or a default value."""
    return isinstance(read, functools.partial) and read.func is itself


def source_of(read: Read) -> CellType | tuple[dict[str, Any], str] | None:
    """Returns the closure's cell, or the dict and the key, from which a variable is read; None if there is neither."""
    if not isinstance(read, functools.partial):
        return None
    if read.func is contents_of:
        return cast(CellType, read.args[0])
    owner = getattr(read.func, "__self__", None)
    if not isinstance(owner, dict) or read.func != owner.get:
        return None
    is_plain = type(owner).__getitem__ is dict.__getitem__ and not hasattr(owner, "__missing__")
    return (owner, read.args[0]) if is_plain else None


# ---- attributes ----
def attributes_of(name: str, value: Any, mentioned: frozenset[str]) -> Iterator[tuple[str, Read]]:
    """Yields attributes that code mentions, of objects, their classes and modules, with functions that read them."""
    if isinstance(value, type | ModuleType):
        if getattr(value, "__module__", getattr(value, "__name__", "")).split(".")[0] in PACKAGES:
            return
        if isinstance(value, ModuleType) and not _is_users_module(value):
            mentioned = frozenset(mentioned)  # computed names hardly ever belong to modules such as sys or math
        held = vars(value).keys() if isinstance(value, ModuleType) else {a for base in value.__mro__ for a in vars(base)}
        for attribute in sorted(mentioned & held):
            yield f"{name}.{attribute}", functools.partial(inspect.getattr_static, value, attribute, MISSING)
    elif has_slots(value):
        for attribute in sorted(mentioned):
            if any(isinstance(member, MemberDescriptorType) for member in members_of(type(value), attribute)):
                yield f"{name}.{attribute}", functools.partial(getattr, value, attribute, MISSING)
    elif has_attributes(value) or isinstance(value, FunctionType):
        for attribute in sorted({*mentioned, *read_of(value, mentioned)}):
            if attribute in vars(value):
                yield f"{name}.{attribute}", functools.partial(vars(value).get, attribute, MISSING)
            elif not _is_of_a_library(found := inspect.getattr_static(value, attribute, MISSING)) and found is not MISSING:
                yield f"{name}.{attribute}", functools.partial(inspect.getattr_static, value, attribute, MISSING)


def read_of(value: Any, mentioned: frozenset[str]) -> frozenset[str]:
    """Returns the attributes of an object that code reads; computed names hardly ever belong to picograd's own."""
    is_own = type(value).__module__.split(".")[0] in PACKAGES and not isinstance(value, Tensor | Module)
    return (frozenset(mentioned) if is_own else mentioned) & vars(value).keys()


def _is_of_a_library(member: Any) -> bool:
    """True for a method or a property of a class that is not the user's."""
    return hasattr(type(member), "__get__") and not _is_users_function(member)


def has_attributes(value: Any) -> bool:
    """True for objects of users' classes, Modules and marked tensors; not for functions, classes and Python's own."""
    if isinstance(value, Module):
        return True
    kind = type(value)
    if kind is Tensor:
        return bool(vars(value))
    if not hasattr(value, "__dict__") or isinstance(value, type) or kind.__module__ in ("builtins", "functools"):
        return False
    return not callable(value) or is_users_code(getattr(kind.__call__, "__code__", None))


def has_slots(value: Any) -> bool:
    """True for objects of users' classes that have `__slots__` and no dict of attributes."""
    kind = type(value)
    if hasattr(value, "__dict__") or not hasattr(kind, "__slots__") or isinstance(value, tuple):
        return False
    return _is_users_module(sys.modules.get(kind.__module__))


def _is_users_module(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None) or ""
    return getattr(module, "__name__", "") == "__main__" or bool(file) and not file.startswith(LIBRARIES)
