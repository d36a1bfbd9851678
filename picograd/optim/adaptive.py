"""Adagrad, Adadelta and RMSprop: steps divided by what squares of gradients add up to, by PyTorch's formulas.

In:    the settings, the state and the gradient of a parameter
Out:   `Adagrad`, `Adadelta`, `RMSprop`
Next:  picograd/optim/matrix_steps.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from picograd.errors import ArgumentError
from picograd.ir.build import unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.declared import Declared, Now, Result, nearer, nearer_square
from picograd.optim.groups import ParamGroup
from picograd.tensor.tensor import Tensor

__all__ = ["Adadelta", "Adagrad", "RMSprop"]


class Adagrad(Declared):
    """p -= lr / (1 + (t - 1) lr_decay) * d / (sqrt(s) + eps), s the sum of d^2 so far.

    d = grad + weight_decay * p. Source: Duchi et al. 2011, "Adaptive subgradient methods", figure 1.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      lr_decay:       of the learning rate
      weight_decay:   added to the gradient, times the parameter
      initial_accumulator_value:  of s
      eps:            added to the root
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters, or a negative start of s.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adagrad([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    slots = ("sum",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        if not initial_accumulator_value >= 0:
            raise ArgumentError(
                f"Adagrad: initial_accumulator_value must not be negative, got {initial_accumulator_value}."
            )
        self._begin(vars())

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        return {"sum": Tensor.full_like(parameter, group["initial_accumulator_value"])}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        return (lr / ((step - 1.0) * group["lr_decay"] + 1.0),)

    @staticmethod
    def _formula(now: Now) -> Result:
        (rate,), total = now.factors, now.state["sum"] + now.d * now.d
        return now.value - now.d / (unary(OpCode.SQRT, total) + now["eps"]) * rate, {"sum": total}


class Adadelta(Declared):
    """p -= lr * u, u = sqrt(a + eps) / sqrt(s + eps) * d, s and a running means of d^2 and u^2.

    d = grad + weight_decay * p. Source: Zeiler 2012, arXiv:1212.5701, algorithm 1.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      rho:            how much of the running means is kept, in [0, 1]
      eps:            added under the roots
      weight_decay:   added to the gradient, times the parameter
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters, or rho outside [0, 1].

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adadelta([w], lr=100.0).step()
    >>> round(w.item(), 3)
    0.684
    """

    slots = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        if not 0.0 <= rho <= 1.0:
            raise ArgumentError(f"Adadelta: rho must be in [0, 1], got {rho}.")
        self._begin(vars())

    @staticmethod
    def _formula(now: Now) -> Result:
        rho, eps, moved = now["rho"], now["eps"], now.state["acc_delta"]
        square = nearer_square(now.state["square_avg"], now.d, rho)
        delta = unary(OpCode.SQRT, moved + eps) / unary(OpCode.SQRT, square + eps) * now.d
        return now.value - delta * now.lr, {"square_avg": square, "acc_delta": nearer_square(moved, delta, rho)}


class RMSprop(Declared):
    """p -= lr * d / (sqrt(s) + eps), s the running mean of d^2; with momentum lr times b = momentum b + that quotient.

    d = grad + weight_decay * p. Source: Hinton 2012, "Neural networks for machine learning", lecture 6e.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      alpha:          how much of the running mean is kept
      eps:            added to the root
      weight_decay:   added to the gradient, times the parameter
      momentum:       of the running sum b, 0 for none
      centered:       subtract the square of the running mean of d from s
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = RMSprop([w], lr=0.05).step()
    >>> round(w.item(), 3)
    0.5
    """

    slots = ("square_avg", "momentum_buffer", "grad_avg")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        **options: bool | None,
    ):
        self._begin(vars())

    def _names(self, group: ParamGroup) -> tuple[str, ...]:
        wanted = (True, group["momentum"], group["centered"])
        return tuple([name for name, is_kept in zip(self.slots, wanted) if is_kept])

    @staticmethod
    def _formula(now: Now) -> Result:
        square = nearer_square(now.state["square_avg"], now.d, now["alpha"])
        state = {"square_avg": square}
        if now["centered"]:
            mean = state["grad_avg"] = nearer(now.state["grad_avg"], now.d, now["alpha"])
            square = square - mean * mean
        direction = now.d / (unary(OpCode.SQRT, square) + now["eps"])
        if "momentum_buffer" in now.state:
            direction = state["momentum_buffer"] = now.state["momentum_buffer"] * now["momentum"] + direction
        return now.value - direction * now.lr, state
