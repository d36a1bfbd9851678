"""Derivatives at a point by torch.autograd.functional's names: transforms, applied at once.

As in PyTorch a result has no graph unless `create_graph` is True. `vectorize` has no effect: a derivative is always one
graph for all rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from picograd.autodiff.modes import varying
from picograd.control.closure import name_of
from picograd.control.structure import mapped
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.modes import enable_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms import jacobians
from picograd.transforms.derivatives import Point, grad_of, jvp_of
from picograd.transforms.derivatives import vjp as vjp_at

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Inputs = Tensor | Sequence[Tensor]


def jacobian(
    func: Callable[..., Any],
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Returns the Jacobian of a function at its inputs.

    J[i, j] = df(x)[i] / dx[j]

    Args:
      func:          function of the inputs; returns float Tensors
      inputs:        a Tensor, or a tuple of them
      create_graph:  make the result differentiable
      strict:        raise an error for a result that does not depend on an input; with create_graph also for its derivative
      vectorize:     has no effect
      strategy:      "reverse-mode" or "forward-mode"

    Returns:   (*shape of the result, *shape of the input); a tuple of these for a tuple of inputs, and a tuple of those for
             a tuple of results

    Raises:
      ArgumentError: an unknown strategy; or strict, and a result does not depend on an input.

    >>> jacobian(lambda x: x * x, Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError(f"jacobian: strategy must be reverse-mode or forward-mode, got {strategy!r}.")
    args, argnums = _arguments(inputs)
    made = jacobians.jacrev(func, argnums) if strategy == "reverse-mode" else jacobians.jacfwd(func, argnums)
    return _derived("jacobian", [func, made] if create_graph else [func], args, made, create_graph, strict)


def hessian(
    func: Callable[..., Any],
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Returns the second derivatives of a scalar function at its inputs.

    H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:                     function of the inputs; returns a float scalar
      inputs:                   a Tensor, or a tuple of them
      create_graph:             make the result differentiable
      strict:                   raise an error for a gradient that does not depend on an input
      vectorize, outer_jacobian_strategy:  have no effect

    Returns:   (*shape of the input, *shape of the input); a tuple of tuples of these for a tuple of inputs

    Raises:
      ShapeError:    func returns more than one element.
      ArgumentError: strict, and a gradient does not depend on an input.

    >>> hessian(lambda x: (x**3).sum(), Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]])
    """

    @functools.wraps(func)
    def scalar(*args: Any) -> Any:
        value = func(*args)
        if not isinstance(value, Tensor) or not value.op.shape:
            return value
        if value.numel() != 1:
            raise ShapeError(f"hessian: {name_of(func)} must return one element, got shape {value.shape}.")
        return value.reshape(())

    args, argnums = _arguments(inputs)
    made = jacobians.hessian(scalar, argnums)
    return _derived("hessian", [scalar, grad_of(scalar, argnums)], args, made, create_graph, strict)


def vjp(
    func: Callable[..., Any], inputs: Inputs, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Returns the value of a function, and a vector times its Jacobian: reverse mode.

    v^T J        J[i, j] = df(x)[i] / dx[j]

    Args:
      func:          function of the inputs; returns float Tensors
      inputs:        a Tensor, or a tuple of them
      v:             weights, in the form of the result; may be omitted for a single element
      create_graph:  make the results differentiable
      strict:        raise an error for a result that does not depend on an input; with create_graph also for the product

    Returns:   the value, and the product in the form of inputs

    >>> vjp(lambda x: x * x, Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor([1., 4.]), Tensor([ 2., 40.]))
    """
    args, _ = _arguments(inputs)

    def both(*args: Any) -> tuple[Any, Any]:
        value, pull = vjp_at(func, *args)
        found = pull(_vector("vjp", v, value))
        return value, found[0] if isinstance(inputs, Tensor) else found

    return _derived("vjp", [func, both] if create_graph else [func], args, both, create_graph, strict)


def jvp(
    func: Callable[..., Any], inputs: Inputs, v: Inputs | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Returns the value of a function, and its Jacobian times a vector: forward mode.

    J v        J[i, j] = df(x)[i] / dx[j]

    Args:
      func:          function of the inputs; returns Tensors
      inputs:        a Tensor, or a tuple of them
      v:             a direction, in the form of inputs; may be omitted for a single element
      create_graph:  make the results differentiable
      strict:        raise an error for a result that does not depend on an input; with create_graph also for the product

    Returns:   the value, and the product in the form of the result

    >>> jvp(lambda x: x * x, Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor([1., 4.]), Tensor([ 2., 40.]))
    """
    args, _ = _arguments(inputs)
    vector = _vector("jvp", v, inputs)
    vectors = (vector,) if isinstance(vector, Tensor) else tuple(vector)

    def both(*args: Any) -> tuple[Any, Any]:
        return jvp_of(func, args, vectors)

    return _derived("jvp", [func, both] if create_graph else [func], args, both, create_graph, strict)


def hvp(
    func: Callable[..., Any], inputs: Inputs, v: Inputs | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Returns the value of a scalar function, and its Hessian times a vector: as `pg.hvp`, with PyTorch's options.

    H v        H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:          function of the inputs; returns a float scalar
      inputs:        a Tensor, or a tuple of them
      v:             a direction, in the form of inputs; may be omitted for a single element
      create_graph:  make the results differentiable
      strict:        raise an error for a gradient that does not depend on an input

    Returns:   the value, and the product in the form of inputs

    >>> hvp(lambda x: (x**3).sum(), Tensor([1.0, 2.0]), Tensor([1.0, 1.0]))
    (Tensor(9.), Tensor([ 6., 12.]))
    """
    return _product("hvp", jacobians.hvp, func, inputs, v, create_graph, strict)


def vhp(
    func: Callable[..., Any], inputs: Inputs, v: Inputs | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Returns the value of a scalar function, and a vector times its Hessian: as `pg.vhp`, with PyTorch's options.

    v^T H        H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:          function of the inputs; returns a float scalar
      inputs:        a Tensor, or a tuple of them
      v:             weights, in the form of inputs; may be omitted for a single element
      create_graph:  make the results differentiable
      strict:        raise an error for a gradient that does not depend on an input

    Returns:   the value, and the product in the form of inputs

    >>> vhp(lambda x: (x**3).sum(), Tensor([1.0, 2.0]), Tensor([1.0, 1.0]))
    (Tensor(9.), Tensor([ 6., 12.]))
    """
    return _product("vhp", jacobians.vhp, func, inputs, v, create_graph, strict)


def _product(
    function: str, made: Any, func: Callable[..., Any], inputs: Inputs, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    args, argnums = _arguments(inputs)
    first = [func, grad_of(func, argnums)]
    return _derived(function, first, args, lambda *_: made(func, inputs, v), create_graph, strict)


def _derived(
    function: str,
    dependent: Sequence[Callable[..., Any]],
    args: tuple[Any, ...],
    derivative: Callable[..., Any],
    create_graph: bool,
    strict: bool,
) -> Any:
    """Returns the derivative, with its graph if requested.

    Raises:
      ArgumentError: strict, and a result of `dependent` functions does not depend on an input.
    """
    for one in dependent if strict else ():
        point = Point(function, one, args, {}, range(len(args)))
        for number, leaf in enumerate(point.leaves):
            moving = varying(point.roots, {leaf})
            for name, root in zip(point.result.names, point.roots):
                if root not in moving:
                    what = (
                        f"{name} of {point.function}"
                        if one is dependent[0]
                        else f"the derivative of {name_of(dependent[0])}"
                    )
                    raise ArgumentError(
                        f"{function}: {what} does not depend on input {number}, and strict=True.",
                        "strict=False takes its derivative as zeros.",
                    )
    with enable_grad() if create_graph else nullcontext():
        found = derivative(*args)
    return found if create_graph else mapped(found, lambda tensor: tensor.detach())


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], int | tuple[int, ...]]:
    """Returns the arguments, and the numbers of those to differentiate: all."""
    if isinstance(inputs, Tensor):
        return (inputs,), 0
    return tuple(inputs), tuple(range(len(inputs)))


def _vector(function: str, v: Any, like: Any) -> Any:
    """Returns v; if it is omitted and there is a single element, 1.

    Raises:
      ArgumentError: it is omitted, and there are more elements.
    """
    if v is not None:
        return v
    if not isinstance(like, Tensor) or like.numel() != 1:
        raise ArgumentError(f"{function}: v may be left out only where there is one element.")
    return Tensor.ones_like(like)
