"""Derivatives at a point under the names of torch.autograd.functional: results of the transforms, applied at once.

`create_graph` and `vectorize` of PyTorch's functions are not there: a derivative can always be differentiated again, and
is always one graph for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor
from picograd.transforms import jacobians
from picograd.transforms.derivatives import jvp_of
from picograd.transforms.derivatives import vjp as vjp_at
from picograd.transforms.jacobians import hvp, vhp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Inputs = Tensor | Sequence[Tensor]


def jacobian(func: Callable[..., Any], inputs: Inputs, *, strategy: str = "reverse-mode") -> Any:
    """Returns the Jacobian of a function at its inputs.

    J[i, j] = df(x)[i] / dx[j]

    Args:
      func:      of the inputs; returns float Tensors
      inputs:    a Tensor, or a tuple of them
      strategy:  "reverse-mode" or "forward-mode"

    Returns:   (*of the result, *of the input); a tuple of them for a tuple of inputs, and a tuple of those for a tuple of
               results

    Raises:
      ArgumentError: there is no such strategy.

    >>> jacobian(lambda x: x * x, Tensor([1.0, 2.0]))
    Tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError(f"jacobian: strategy must be reverse-mode or forward-mode, got {strategy!r}.")
    args, argnums = _arguments(inputs)
    if strategy == "reverse-mode":
        return jacobians.jacrev(func, argnums)(*args)
    return jacobians.jacfwd(func, argnums)(*args)


def hessian(func: Callable[..., Any], inputs: Inputs) -> Any:
    """Returns the second derivatives of a scalar function at its inputs.

    H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:    of the inputs; returns a float scalar
      inputs:  a Tensor, or a tuple of them

    Returns:   (*of the input, *of the input); a tuple of tuples of them for a tuple of inputs

    >>> hessian(lambda x: (x**3).sum(), Tensor([1.0, 2.0]))
    Tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    args, argnums = _arguments(inputs)
    return jacobians.hessian(func, argnums)(*args)


def vjp(func: Callable[..., Any], inputs: Inputs, v: Any = None) -> tuple[Any, Any]:
    """Returns the value of a function, and a vector times its Jacobian: reverse mode.

    v^T J        J[i, j] = df(x)[i] / dx[j]

    Args:
      func:    of the inputs; returns float Tensors
      inputs:  a Tensor, or a tuple of them
      v:       in the form of the result; may be left out where that has one element

    Returns:   the value, and the product in the form of inputs

    >>> vjp(lambda x: x * x, Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor([1., 4.]), Tensor([ 2., 40.]))
    """
    args, _ = _arguments(inputs)
    value, pull = vjp_at(func, *args)
    found = pull(_vector("vjp", v, value))
    return value, found[0] if isinstance(inputs, Tensor) else found


def jvp(func: Callable[..., Any], inputs: Inputs, v: Inputs | None = None) -> tuple[Any, Any]:
    """Returns the value of a function, and its Jacobian times a vector: forward mode.

    J v        J[i, j] = df(x)[i] / dx[j]

    Args:
      func:    of the inputs; returns Tensors
      inputs:  a Tensor, or a tuple of them
      v:       in the form of inputs; may be left out where the one input has one element

    Returns:   the value, and the product in the form of the result

    >>> jvp(lambda x: x * x, Tensor([1.0, 2.0]), Tensor([1.0, 10.0]))
    (Tensor([1., 4.]), Tensor([ 2., 40.]))
    """
    args, _ = _arguments(inputs)
    vector = _vector("jvp", v, inputs)
    value, moved = jvp_of(func, args, (vector,) if isinstance(vector, Tensor) else tuple(vector))
    return value, moved


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], int | tuple[int, ...]]:
    """Returns the arguments, and which of them are differentiated: all."""
    if isinstance(inputs, Tensor):
        return (inputs,), 0
    return tuple(inputs), tuple(range(len(inputs)))


def _vector(function: str, v: Any, like: Any) -> Any:
    """Returns v, or 1 where it was left out and there is one element.

    Raises:
      ArgumentError: there are more.
    """
    if v is not None:
        return v
    if not isinstance(like, Tensor) or like.numel() != 1:
        raise ArgumentError(f"{function}: v may be left out only where there is one element.")
    return Tensor.ones_like(like)
