"""Second derivatives times a vector, without the Hessian: hvp, vhp.

In:    a function with one float result
Out:   its value, and the product
Next:  picograd/transforms/modules.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor
from picograd.transforms.gradients import value_and_grad, vjp
from picograd.transforms.tangents import jvp


def hvp(
    func: Callable[..., Any], inputs: Tensor | Sequence[Tensor], v: Tensor | Sequence[Tensor] | None = None
) -> tuple[Any, Any]:
    """Returns the value of a scalar function, and its Hessian times a vector: forward over reverse mode.

    H v        H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:    of the inputs; returns a float scalar
      inputs:  a Tensor, or a tuple of them
      v:       the vector, in the form of inputs; may be left out where the one input has one element

    Returns:   the value, and the product in the form of inputs

    Raises:
      ArgumentError: v is missing or has another form, or func returns something else than one Tensor.
      ShapeError:    v has another shape than inputs, or func returns no scalar.

    Cost:      some three times that of a gradient.

    >>> hvp(lambda x: (x**3).sum(), Tensor([1.0, 2.0]), Tensor([1.0, 1.0]))
    (Tensor(9.), Tensor([ 6., 12.]))
    """
    gradient, primals, vector = _prepared("hvp", func, inputs, v)
    _, product, value = jvp(gradient, primals, vector, has_aux=True)
    return value, _like(inputs, product)


def vhp(
    func: Callable[..., Any], inputs: Tensor | Sequence[Tensor], v: Tensor | Sequence[Tensor] | None = None
) -> tuple[Any, Any]:
    """Returns the value of a scalar function, and a vector times its Hessian: reverse over reverse mode.

    v^T H        H[i, j] = d2f(x) / dx[i] dx[j]

    Args:
      func:    of the inputs; returns a float scalar
      inputs:  a Tensor, or a tuple of them
      v:       the vector, in the form of inputs; may be left out where the one input has one element

    Returns:   the value, and the product in the form of inputs

    Raises:
      ArgumentError: v is missing or has another form, or func returns something else than one Tensor.
      ShapeError:    v has another shape than inputs, or func returns no scalar.

    >>> vhp(lambda x, y: (x * x * y).sum(), (Tensor([1.0]), Tensor([3.0])), (Tensor([1.0]), Tensor([0.0])))
    (Tensor(3.), (Tensor([6.]), Tensor([2.])))
    """
    gradient, primals, vector = _prepared("vhp", func, inputs, v)
    _, pull, value = vjp(gradient, *primals, has_aux=True)
    return value, _like(inputs, pull(vector))


def _prepared(
    transform: str, func: Callable[..., Any], inputs: Any, v: Any
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """Returns the gradient with the value beside it, its arguments, and the vector in their form."""
    primals = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if v is None:
        if len(primals) != 1 or primals[0].numel() != 1:
            raise ArgumentError(f"{transform}: v may be left out only where the one input has one element.")
        v = Tensor.ones_like(primals[0])
        v = v if isinstance(inputs, Tensor) else (v,)
    vector = (v,) if isinstance(v, Tensor) else tuple(v)
    if len(vector) != len(primals):
        raise ArgumentError(f"{transform}: v has {len(vector)} Tensors, inputs have {len(primals)}.")
    both = value_and_grad(func, tuple(range(len(primals))))

    def gradient(*args: Any) -> tuple[Any, Any]:
        value, found = both(*args)
        return found, value

    return gradient, primals, vector


def _like(inputs: Any, found: tuple[Any, ...]) -> Any:
    return found[0] if isinstance(inputs, Tensor) else tuple(found)
