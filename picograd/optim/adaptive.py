"""Adagrad, Adadelta and RMSprop, whose steps are divided by what squares of gradients add up to, by PyTorch's formulas.

In:    a parameter, its gradient and its state, as Ops
Out:   the optimizers
Next:  picograd/optim/directions.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from picograd.errors import ArgumentError
from picograd.ir.build import unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.counted import (
    Counted,
    decayed,
    read_state,
    running_mean,
    running_square,
    scalar,
    values_of,
)
from picograd.optim.groups import ParamGroup
from picograd.tensor.tensor import Tensor


class Adagrad(Counted):
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
        self._check_options({"foreach": foreach, **options})
        if not initial_accumulator_value >= 0:
            raise ArgumentError(
                f"Adagrad: initial_accumulator_value must not be negative, got {initial_accumulator_value}."
            )
        settings = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**settings, "initial_accumulator_value": initial_accumulator_value})

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        return {"sum": Tensor.full_like(parameter, group["initial_accumulator_value"])}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        return (lr / ((step - 1.0) * group["lr_decay"] + 1.0),)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value, d = decayed(*values_of(parameter, grad), group, False)
        (total,) = read_state(state, d, "sum")
        total = total + d * d
        state["sum"].write("step", total)
        (rate,) = self._factor(place, value)
        parameter.write("step", value - d / (unary(OpCode.SQRT, total) + group["eps"]) * rate)


class Adadelta(Counted):
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

    zeros = ("square_avg", "acc_delta")

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
        self._check_options({"foreach": foreach, **options})
        if not 0.0 <= rho <= 1.0:
            raise ArgumentError(f"Adadelta: rho must be in [0, 1], got {rho}.")
        settings = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, settings)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state, rho, eps = self.state[place], group["rho"], group["eps"]
        value, d = decayed(*values_of(parameter, grad), group, False)
        (moved,) = read_state(state, d, "acc_delta")
        delta = unary(OpCode.SQRT, moved + eps) / unary(OpCode.SQRT, running_square(state, d, rho, "square_avg") + eps) * d
        running_square(state, delta, rho, "acc_delta")
        parameter.write("step", value - delta * scalar(group.lr_tensor.read(), value))


class RMSprop(Counted):
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
        self._check_options({"foreach": foreach, "capturable": capturable, **options})
        settings = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**settings, "centered": centered, "maximize": maximize})

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        more = {"momentum_buffer": group["momentum"], "grad_avg": group["centered"]}
        names = ["square_avg", *(name for name, is_kept in more.items() if is_kept)]
        return {name: Tensor.zeros_like(parameter) for name in names}

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state, alpha = self.state[place], group["alpha"]
        value, d = decayed(*values_of(parameter, grad), group, False)
        square = running_square(state, d, alpha, "square_avg")
        if group["centered"]:
            mean = running_mean(state, d, alpha, "grad_avg")
            square = square - mean * mean
        direction = d / (unary(OpCode.SQRT, square) + group["eps"])
        if group["momentum"] or "momentum" in group.changing:
            (running,) = read_state(state, d, "momentum_buffer")
            direction = running * group.value("momentum", d) + direction
            state["momentum_buffer"].write("step", direction)
        parameter.write("step", value - direction * scalar(group.lr_tensor.read(), value))
