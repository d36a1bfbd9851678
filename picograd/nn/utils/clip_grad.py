"""Gradients together: their norm, and clipping; parameters as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, stacked_ops
from picograd.ir.op import Op
from picograd.tensor.arguments import check_nonnegative, listed
from picograd.tensor.build import broadcast_to, common_dtype, need_float
from picograd.tensor.formulas import by_formula, formula
from picograd.tensor.modes import no_grad
from picograd.tensor.reductions import norm_op
from picograd.tensor.tensor import Tensor


# ---- norms of gradients ----
@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float | str = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Returns the norm of all elements of all tensors together, a scalar.

    norm = (sum |x|^norm_type)^(1 / norm_type), the largest |x| for inf; 0 without tensors

    Args:
      tensors:    tensors of any shapes, or one
      norm_type:  2, inf, "inf", or another number
      error_if_nonfinite:  compute the norm now, and raise if it is NaN or infinite
      foreach:    accepted, without effect

    Raises:
      ArgumentError: norm_type is not a number, or with error_if_nonfinite the norm is not finite.

    >>> get_total_norm([Tensor([3.0]), Tensor([[4.0]])])
    Tensor(5.)
    """
    if norm_type == "inf":
        norm_type = math.inf
    if not isinstance(norm_type, (int, float)):
        raise ArgumentError(f"get_total_norm: norm_type must be a number, got {norm_type!r}.")
    every = listed(tensors)
    if not every:
        return Tensor(0.0)
    if math.isinf(norm_type) or len(_devices(every)) > 1:
        norm = Tensor.stack([tensor.norm(norm_type).to(every[0].device) for tensor in every]).norm(norm_type)
    else:
        ops = [need_float("norm", tensor.read()) for tensor in every]
        norm = Tensor.from_op(_total_norm(*ops, p=norm_type), every[0].other_device("norm", *every))
    return _finite("get_total_norm", norm) if error_if_nonfinite else norm


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float | str = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales all gradients by one factor so that their total norm is at most max_norm; returns the norm before.

    grad *= min(1, max_norm / (norm + 1e-6))

    Args:
      parameters:          those without a gradient are ignored
      max_norm:            at least 0
      norm_type:           2, inf, "inf", or another number
      error_if_nonfinite:  compute the norm now, and raise if it is NaN or infinite
      foreach:             accepted, without effect

    Raises:
      ArgumentError: max_norm is negative or NaN, or with error_if_nonfinite the norm is not finite.

    Source:    Pascanu, Mikolov, Bengio 2012, arXiv:1211.5063, algorithm 1.

    >>> w = Tensor([1.0, 1.0], requires_grad=True)
    >>> (w * Tensor([3.0, 4.0])).sum().backward()
    >>> clip_grad_norm_([w], 1.0).item(), w.grad.round(3)
    (5.0, Tensor([0.6, 0.8]))
    """
    check_nonnegative("clip_grad_norm_", "max_norm", max_norm)
    grads = _grads(parameters)
    norm = get_total_norm(grads, norm_type)
    if error_if_nonfinite:
        _finite("clip_grad_norm_", norm)
    _scale(grads, max_norm, norm)
    return norm


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clips each element of the gradients of `parameters` to [-clip_value, clip_value], in place.

    `foreach`: accepted, without effect.

    Raises:
      ArgumentError: clip_value is negative or NaN.

    >>> w = Tensor([1.0, 1.0], requires_grad=True)
    >>> (w * Tensor([3.0, -0.5])).sum().backward()
    >>> clip_grad_value_(w, 1.0)
    >>> w.grad
    Tensor([ 1. , -0.5])
    """
    check_nonnegative("clip_grad_value_", "clip_value", clip_value)
    for grad in _grads(parameters):
        grad.copy_(grad.clamp(-clip_value, clip_value))


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients of `parameters` as clip_grad_norm_ does, by a given `total_norm`.

    grad *= min(1, max_norm / (total_norm + 1e-6)); `foreach`: accepted, without effect

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 4.0).sum().backward()
    >>> clip_grads_with_norm_(w, max_norm=1.0, total_norm=Tensor(8.0))
    >>> w.grad.round(3)
    Tensor([0.5])
    """
    _scale(_grads(parameters), max_norm, total_norm)


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in listed(parameters) if parameter.grad is not None]


def _scale(grads: Sequence[Tensor], max_norm: float, norm: Tensor) -> None:
    """Scales gradients with the total norm `norm` so that it is at most max_norm."""
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    if len(_devices([factor, *grads])) > 1:
        for grad in grads:
            grad.mul_(factor.to(grad.device, grad.dtype))
    elif grads:
        ops = [grad.read() for grad in grads]
        kinds = tuple([(op.dtype, op.shape) for op in ops])
        for grad, value in zip(grads, by_formula(_scaled, None, [factor.read(), *ops], kinds)):
            grad.write("clip_grad_norm_", value)


@formula
def _total_norm(*ops: Op, p: float) -> Op:
    norms = [norm_op(op, p, tuple(range(len(op.shape)))) for op in ops]
    (together,) = stacked_ops((0, common_dtype(norms)), *norms)
    return norm_op(together, p, (0,))


def _scaled(options: None, factor: Op, *ops: Op) -> list[Op]:
    return [op * broadcast_to(cast(factor, op.dtype), op.shape) for op in ops]


def _devices(tensors: Sequence[Tensor]) -> set[str]:
    """Returns the devices of tensors; constants are on all devices."""
    return {device for tensor in tensors if (device := tensor.cell.device) is not None}


def _finite(function: str, norm: Tensor) -> Tensor:
    if not math.isfinite(norm.item()):
        raise ArgumentError(
            f"{function}: the norm of the gradients is {norm.item()}.",
            hint="error_if_nonfinite=False ignores it.",
        )
    return norm


# ---- one vector ----
def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Returns all elements of `parameters` as one vector.

    Raises:
      ArgumentError: parameters is empty.

    >>> parameters_to_vector([Tensor([[1.0, 2.0]]), Tensor(3.0)])
    Tensor([1., 2., 3.])
    """
    listed = list(parameters)
    if not listed:
        raise ArgumentError("parameters_to_vector: got no parameters.")
    return Tensor.cat([parameter.reshape(-1) for parameter in listed])


@no_grad()
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies the elements of `vec` in order to `parameters`, in place.

    Raises:
      ShapeError: vec is not a vector with one element for each of the parameters'.

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
