"""Declared layers: a layer names its function of nn.functional, and declares the arguments that it keeps as fields.

    @layer(functional.softplus)         Softplus(2.0)                   has a constructor, typed, with defaults
    class Softplus(Unary):              Softplus(2.0)(x)                is functional.softplus(x, beta=2.0, threshold=20.0)
        beta: float = 1.0               print(Softplus(2.0))            Softplus(beta=2.0, threshold=20.0)
        threshold: float = 20.0
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar, TypeVar, dataclass_transform

import picograd.nn.functional as functional
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor

L = TypeVar("L", bound="Layer")
BUFFERS = ("Tensor", "Tensor | None")  # types of fields that are part of the state


class Layer(Module):
    """Base of declared layers.

    _function:  name of the called function in nn.functional
    _passed:    names of fields that the function takes as arguments, and `training` if it takes that
    _fields:    types of the fields, as text
    _defaults:  default values, by field
    _shown:     format of the repr's brackets, with {field}; None: all fields
    """

    _function: ClassVar[str]
    _passed: ClassVar[tuple[str, ...]] = ()
    _fields: ClassVar[dict[str, str]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}
    _shown: ClassVar[str | None] = None

    def _keep(self, given: dict[str, Any]) -> None:
        """Stores the arguments of the constructor; subclasses extend it to check them."""
        for name, kind in self._fields.items():
            if kind in BUFFERS:
                self.register_buffer(name, given[name])
            elif kind != "KW_ONLY":
                setattr(self, name, given[name])

    def _call(self, *inputs: Any, **more: Any) -> Tensor:
        """Calls the public function with inputs, `more`, and the layer's fields."""
        kept = {name: getattr(self, name) for name in self._passed} if self._passed else {}
        return getattr(functional, self._function)(*inputs, **kept, **more)

    def extra_repr(self) -> str:
        kept = vars(self)
        if self._shown is not None:
            return self._shown.format_map(kept)
        return ", ".join(f"{name}={kept[name]!r}" for name in self._fields if name != "inplace" or kept[name])


class Unary(Layer):
    """Base of layers with one input tensor."""

    def forward(self, input: Tensor) -> Tensor:
        """Applies the layer's function to input; the shape stays unless the layer says otherwise."""
        return self._call(input)


class Spatial(Layer):
    """Base of families that differ in their number of axes: `class Conv2d(_Conv, axes=2)`."""

    axes: ClassVar[int] = 0

    def __init_subclass__(cls, axes: int | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.axes = cls.axes if axes is None else axes


@dataclass_transform()
def layer(function: Callable[..., Any] | None = None, shown: str | None = None) -> Callable[[type[L]], type[L]]:
    """Returns a decorator that makes a class the layer of `function`; if it adds fields, it gets a constructor.

    Fields after `_: KW_ONLY` are keyword-only. Tensor fields become buffers. `_keep` may check arguments. A class that
    converts an argument writes its own constructor.

    Args:
      shown:  format of the repr's brackets, with {field}; by default all fields
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
    """Returns the names of a function's arguments; none for object's constructor."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()


def _constructor(owner: type[Layer]) -> FunctionType:
    """Returns an __init__ with the fields as arguments: `_keep_all` under another signature.

    Types are looked up in the module of the class. Compiling a function from text would take ten times as long.
    """
    kinds, defaults = owner._fields, owner._defaults
    names = [name for name in kinds if kinds[name] != "KW_ONLY"]
    by_place = [*kinds].index("_") if "_" in kinds else len(names)
    code = _keep_all.__code__.replace(
        co_name="__init__", co_qualname=f"{owner.__qualname__}.__init__", co_varnames=("self", *names),
        co_nlocals=1 + len(names), co_argcount=1 + by_place, co_kwonlyargcount=len(names) - by_place,
    )  # fmt: skip
    given = tuple([defaults[name] for name in names[:by_place] if name in defaults])
    constructor = FunctionType(code, vars(sys.modules[owner.__module__]), "__init__", given)
    constructor.__kwdefaults__ = {name: defaults[name] for name in names[by_place:] if name in defaults}
    constructor.__annotations__ = {name: kinds[name] for name in names}
    return constructor


def _keep_all(self: Layer) -> None:
    self._keep(locals())
