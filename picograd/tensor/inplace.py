"""In-place twins: the result of a method is stored in its tensor; all views of the storage see it.

Twins are declared at the end of the file of their methods, `exp_ = in_place(exp)`, and take the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from picograd.errors import DTypeError, GradientError, ShapeError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.public import is_alone, renamed
from picograd.tensor.build import CATEGORY
from picograd.tensor.cell import last_change
from picograd.tensor.core import T, TensorCore
from picograd.tensor.modes import enable_grad

P = ParamSpec("P")
S = TypeVar("S")


# ---- storing ----
def stored(function: str, target: T, result: TensorCore) -> T:
    """Stores a result in `target`; returns `target`. Errors call the operation `function`."""
    op = fitting_op(function, target, result.op)
    if result.cell.device is not target.cell.device:
        target.cell.device = target.other_device(function, result)
    return target.write(function, op)


def fitting_op(function: str, target: TensorCore, result: Op) -> Op:
    """Returns a result, after a check of its shape and category.

    Raises:
      DTypeError: a float result for an integer tensor, or a number for a bool one.
      ShapeError: broadcasting made the result larger.
    """
    dtype, shape = target.cell.op.dtype, target.op.shape
    if CATEGORY[result.dtype.kind] > CATEGORY[dtype.kind]:
        raise DTypeError(
            f"{function}: a result of dtype {result.dtype} does not fit in place into {dtype}.",
            hint=f"x = x.cast(dtypes.{result.dtype}) first.",
        )
    if result.shape != shape:
        raise ShapeError(f"{function}: a result of shape {result.shape} does not fit into {shape}.")
    return result


def become_view(function: str, target: T, method: Callable[..., TensorCore], *args: Any, **kwargs: Any) -> T:
    """Makes `target` the view that a method returned; other tensors on the storage keep their shapes.

    Raises:
      GradientError: target is a leaf, or retains its gradient, which has its old shape.
    """
    steps = *target.steps, (target.op.code, target.op.arg)
    if any(code is OpCode.LEAF and (type(at) is int or at.collects or at.hooks) for code, at in steps):
        raise GradientError(
            f"{function}: the shape {target.shape} of a tensor that collects gradients cannot change.",
            hint=f"y = x.{function.removesuffix('_')}(...)",
        )
    with enable_grad():  # the value stays the same, so its history does, too
        view = method(target, *args, **kwargs)
    if view.steps != target.steps:
        last_change.note()
        target.steps, target._shown = view.steps, None
    return target


# ---- twins ----
def in_place(function: Callable[Concatenate[Any, P], object], name: str = "") -> Callable[Concatenate[S, P], S]:
    """Returns the in-place twin of a method; `name`: if it is not the method's with an underscore."""
    method = cast(FunctionType, function)
    name = name or f"{method.__name__}_"

    def alone(self: Any) -> Any:  # without arguments a twin takes as few calls as one written by hand
        return stored(name, self, method(self))

    def twin(self: Any, *args: Any, **kwargs: Any) -> Any:
        return stored(name, self, method(self, *args, **kwargs))

    template = alone if is_alone(method) else twin
    return cast(Callable[Concatenate[S, P], S], _twin(template, method, name, "Stores in place what"))


def in_place_view(function: Callable[Concatenate[Any, P], object]) -> Callable[Concatenate[S, P], S]:
    """Returns the twin of a view method that turns its tensor into the view."""
    method = cast(FunctionType, function)
    name = f"{method.__name__}_"

    def twin(self: Any, *args: Any, **kwargs: Any) -> Any:
        return become_view(name, self, method, *args, **kwargs)

    return cast(Callable[Concatenate[S, P], S], _twin(twin, method, name, "Becomes in place what"))


def _twin(template: Callable[..., Any], method: FunctionType, name: str, does: str) -> FunctionType:
    """Returns a copy of a template with its own name for tracebacks and profiles, and the method's docstring."""
    made = renamed(cast(FunctionType, template), name, "")
    update_wrapper(made, method)
    made.__name__, made.__qualname__ = name, method.__qualname__.removesuffix(method.__name__) + name
    made.__doc__ = (method.__doc__ or "").replace("Returns", f"{does} `{method.__name__}` returns:", 1)
    return made
