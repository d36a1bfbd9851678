"""Declared layers: the function of nn.functional that a layer calls, and those of its arguments that the layer keeps.

In:    a class whose fields are written as those of a dataclass
Out:   the class with a constructor, and `Layer`, its base, with the call and the text between the brackets of its repr
Next:  picograd/nn/layers/features.py

    @layer(functional.softplus)         Softplus(2.0)                   has a constructor, typed, with defaults
    class Softplus(Unary):              Softplus(2.0)(x)                is functional.softplus(x, beta=2.0, threshold=20.0)
        beta: float = 1.0               print(Softplus(2.0))            Softplus(beta=2.0, threshold=20.0)
        threshold: float = 20.0
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

import picograd.nn.functional as functional
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor

L = TypeVar("L", bound="Layer")
BUFFERS = ("Tensor", "Tensor | None")  # a field of these types is part of the state


class Layer(Module):
    """Base of declared layers.

    _function:  name in nn.functional of the function that is called
    _passed:    names of its arguments that the layer's constructor has, too, or that are `training`
    _fields:    types of the fields, as text
    _defaults:  of the fields that have one
    _shown:     text for the brackets of the repr, with {field}; None: all fields
    """

    _function: ClassVar[str]
    _passed: ClassVar[tuple[str, ...]] = ()
    _fields: ClassVar[dict[str, str]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}
    _shown: ClassVar[str | None] = None

    def _call(self, *inputs: Any, **more: Any) -> Tensor:
        """Calls the function, as users read it, with inputs, with more, and with what the layer keeps."""
        kept = {name: getattr(self, name) for name in self._passed}
        result: Tensor = getattr(functional, self._function)(*inputs, **kept, **more)
        return result

    def extra_repr(self) -> str:
        kept = vars(self)
        if self._shown is not None:
            return self._shown.format_map(kept)
        return ", ".join(f"{name}={kept[name]!r}" for name in self._fields if name != "inplace" or kept[name])


class Unary(Layer):
    """Base of layers of one tensor."""

    def forward(self, input: Tensor) -> Tensor:
        """input -> the function of it: of the same shape where the layer says no other."""
        return self._call(input)


@dataclass_transform()
def layer(function: Callable[..., Any] | None = None, shown: str | None = None) -> Callable[[type[L]], type[L]]:
    """Returns a decorator that makes a class the layer of `function`, with a constructor where it adds fields.

    Fields after `_: KW_ONLY` are given by keyword. One that is a tensor becomes a buffer. `__post_init__` checks them.
    A class that keeps an argument as another type writes the constructor itself.

    Args:
      shown:  what its repr has between the brackets, with {field}; all fields where that is not said
    """

    def declare(owner: type[L]) -> type[L]:
        own = {name: kind for name, kind in inspect.get_annotations(owner).items() if not kind.startswith("ClassVar")}
        if own:
            owner._fields = {**owner._fields, **own}
            owner._defaults = {**owner._defaults, **{name: vars(owner)[name] for name in own if name in vars(owner)}}
            for name in own.keys() & vars(owner).keys():
                delattr(owner, name)
            owner.__init__ = _constructor(owner)  # type: ignore[method-assign]
        if function is not None:
            kept = ("training", *_arguments(owner.__init__))
            owner._function = function.__name__
            owner._passed = tuple([name for name in _arguments(function) if name in kept])
        if shown is not None:
            owner._shown = shown
        return owner

    return declare


def _arguments(function: Any) -> tuple[str, ...]:
    """Returns the names of a function's arguments; none for a constructor that is object's."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()


def _constructor(owner: type[Layer]) -> Any:
    """Returns an __init__ that keeps its arguments under their names, written as text as a dataclass's is.

    Example: def __init__(self, p: float = defaults['p']):
                 self.p = p
    """
    arguments, body = ["self"], []
    for name, kind in owner._fields.items():
        if kind == "KW_ONLY":
            arguments.append("*")
            continue
        arguments.append(f"{name}: {kind}" + (f" = defaults[{name!r}]" if name in owner._defaults else ""))
        body.append(f"self.register_buffer({name!r}, {name})" if kind in BUFFERS else f"self.{name} = {name}")
    if hasattr(owner, "__post_init__"):
        body.append("self.__post_init__()")
    made: dict[str, Any] = {"defaults": owner._defaults}
    text = "\n    ".join([f"def __init__({', '.join(arguments)}):", *body])
    place = f"{__file__}: the constructor of {owner.__name__}"  # in the package, or errors would take it for the user's
    exec(compile(text, place, "exec"), vars(sys.modules[owner.__module__]), made)
    constructor = made["__init__"]
    constructor.__qualname__, constructor.__module__ = f"{owner.__qualname__}.__init__", owner.__module__
    return constructor
