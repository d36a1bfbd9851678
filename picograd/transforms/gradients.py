"""Reverse mode of functions: grad, value_and_grad, vjp.

In:    a function of Tensors
Out:   functions that give its gradient
Next:  picograd/transforms/tangents.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, overload

from picograd.control.closure import name_of
from picograd.ir.op import Op, filled
from picograd.tensor import gradients
from picograd.tensor.tensor import Tensor
from picograd.transforms.examples import check_function
from picograd.transforms.point import Point, argument_numbers

Argnums = int | tuple[int, ...]


@overload
def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]: ...


@overload
def grad(
    outputs: Tensor | list[Tensor] | tuple[Tensor, ...],
    inputs: Tensor | list[Tensor] | tuple[Tensor, ...],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]: ...


def grad(*args: Any, **kwargs: Any) -> Any:
    """Returns the function that computes the gradient of a function; or the gradient of tensors by tensors.

    grad(f)(x) = df(x) / dx

    The first of `args` and `kwargs` decides which of the two it is:

      grad(func, argnums=0, has_aux=False)
        func:     returns a float scalar; its arguments are Tensors, alone or in lists, tuples, dicts and dataclasses, and
                  anything else
        argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
        has_aux:  func returns (scalar, aux), and so does the new function: (gradient, aux)

      grad(outputs, inputs, grad_outputs=None, ...)
        torch.autograd.grad: see picograd.autograd.grad

    Returns:   a function of the arguments of func that gives the gradient in the form of the argument, or a tuple of
               gradients for a tuple of argnums; it is zero where func does not depend on the argument

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than one Tensor.
      ShapeError:    func returns no scalar.
      DTypeError:    an argument it is differentiated by, or the result, is no float.

    >>> cube = lambda x: x**3
    >>> grad(cube)(Tensor(2.0)), grad(grad(cube))(Tensor(2.0))
    (Tensor(12.), Tensor(12.))
    >>> grad(lambda p, x: (p["w"] * x + p["b"]).sum())({"w": Tensor([2.0]), "b": Tensor([1.0])}, Tensor([3.0]))
    {'w': Tensor([3.]), 'b': Tensor([1.])}
    """
    if "func" in kwargs or (args and not isinstance(args[0], Tensor | list | tuple)):
        return grad_of(*args, **kwargs)
    return gradients.grad(*args, **kwargs)


def grad_of(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns the function that computes the gradient of a function: `grad` of a function alone.

    grad_of(f)(x) = df(x) / dx

    Args:
      func:     returns a float scalar; see grad
      argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:  func returns (scalar, aux), and the new function (gradient, aux)

    Returns:   a function of the arguments of func

    >>> grad_of(lambda x: x**3)(Tensor(2.0))
    Tensor(12.)
    """
    check_function("grad", func)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        point, gradients = _at("grad", func, args, kwargs, argnums, has_aux)
        return (gradients, point.aux()) if has_aux else gradients

    return renamed(gradient, func)


def value_and_grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns the function that computes a function's value and its gradient.

    value_and_grad(f)(x) = f(x), df(x) / dx

    Args:
      func:     returns a float scalar; see grad
      argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:  func returns (scalar, aux), and the new function ((scalar, aux), gradient)

    Returns:   a function of the arguments of func

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than one Tensor.
      ShapeError:    func returns no scalar.
      DTypeError:    an argument it is differentiated by, or the result, is no float.

    >>> value_and_grad(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
    (Tensor(5.), Tensor([2., 4.]))
    """
    check_function("value_and_grad", func)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        point, gradients = _at("value_and_grad", func, args, kwargs, argnums, has_aux)
        return ((point.value(), point.aux()) if has_aux else point.value()), gradients

    return renamed(value_and_gradient, func)


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns the function that computes a function's gradient and its value: value_and_grad in PyTorch's order.

    grad_and_value(f)(x) = df(x) / dx, f(x)

    Args:
      func:     returns a float scalar; see grad
      argnums:  which positional arguments it is differentiated by: a number, or a tuple of them
      has_aux:  func returns (scalar, aux), and the new function (gradient, (scalar, aux))

    Returns:   a function of the arguments of func

    Raises:
      ArgumentError: argnums names no argument, or func returns something else than one Tensor.
      ShapeError:    func returns no scalar.
      DTypeError:    an argument it is differentiated by, or the result, is no float.

    >>> grad_and_value(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
    (Tensor([2., 4.]), Tensor(5.))
    """
    check_function("grad_and_value", func)

    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        point, gradients = _at("grad_and_value", func, args, kwargs, argnums, has_aux)
        return gradients, (point.value(), point.aux()) if has_aux else point.value()

    return renamed(gradient_and_value, func)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Returns the value of a function, and the function that multiplies its Jacobian by a vector from the left.

    out, pull = vjp(f, x);  pull(v) = (v^T J,)        J = df(x) / dx

    Args:
      func:     of the primals; returns Tensors, alone or in lists, tuples, dicts and dataclasses
      primals:  arguments of func, each of them differentiated: Tensors, or containers of them
      has_aux:  func returns (result, aux)

    Returns:   the result of func; a function of cotangents in its form that gives a tuple, one gradient for each primal;
               with has_aux also aux

    Raises:
      ArgumentError: func returns something else than Tensors.
      DTypeError:    a primal is no float.

    >>> out, pull = vjp(lambda x: x * x, Tensor([1.0, 2.0]))
    >>> out, pull(Tensor([10.0, 1.0]))
    (Tensor([1., 4.]), (Tensor([20.,  4.]),))
    """
    point = Point("vjp", func, primals, {}, range(len(primals)), has_aux)
    point.check_tensors()

    def pull(*cotangents: Any) -> tuple[Any, ...]:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        return tuple(point.like_arguments(point.gradients(point.seeds(given))))

    return (point.value(), pull, point.aux()) if has_aux else (point.value(), pull)


# ---- shared ----
def _at(
    transform: str, func: Callable[..., Any], args: Any, kwargs: Any, argnums: Argnums, has_aux: bool
) -> tuple[Point, Any]:
    """Returns a function at a point, and its gradient there."""
    numbers = argument_numbers(transform, argnums, len(args), name_of(func))
    point = Point(transform, func, args, kwargs, numbers, has_aux)
    root = point.scalar()
    gradients = point.like_arguments(point.gradients({root: _one(root)}))
    return point, gradients[0] if isinstance(argnums, int) else tuple(gradients)


def _one(root: Op) -> Op:
    return filled(1, root.dtype, ())


def renamed(function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function under the name and with the description of another one."""
    return functools.update_wrapper(function, like) if hasattr(like, "__name__") else function
