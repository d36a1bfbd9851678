"""All parameters as one vector, and back.

In:    parameters
Out:   a vector;  parameters set in place
Next:  picograd/nn/utils/rnn.py
"""

from __future__ import annotations

from collections.abc import Iterable

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Returns all elements of all `parameters` in one axis.

    Raises:
      ArgumentError: there are none.

    >>> parameters_to_vector([Tensor([[1.0, 2.0]]), Tensor(3.0)])
    Tensor([1., 2., 3.])
    """
    listed = list(parameters)
    if not listed:
        raise ArgumentError("parameters_to_vector: got no parameters.")
    return Tensor.cat([parameter.reshape(-1) for parameter in listed])


@no_grad()
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Stores the elements of `vec`, one after the other, in `parameters`, in place.

    Raises:
      ShapeError: vec has not one axis with as many elements as the parameters together.

    >>> w = Tensor([[0.0, 0.0]])
    >>> vector_to_parameters(Tensor([1.0, 2.0]), [w])
    >>> w
    Tensor([[1., 2.]])
    """
    listed = list(parameters)
    total = sum(parameter.numel() for parameter in listed)
    if vec.shape != (total,):
        raise ShapeError(f"vector_to_parameters: vec {vec.shape} must be ({total},), the elements of all parameters.")
    start = 0
    for parameter in listed:
        parameter.copy_(vec[start : start + parameter.numel()].reshape(*parameter.shape))
        start += parameter.numel()
