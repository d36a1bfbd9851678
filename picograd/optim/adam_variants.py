"""Adamax, NAdam and RAdam, relatives of Adam, by PyTorch's formulas.

In:    a parameter, its gradient and its state, as Ops
Out:   the optimizers
Next:  picograd/optim/adaptive.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from picograd.ir.build import compare, maximum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.counted import (
    Counted,
    check_betas,
    decayed,
    moments,
    power,
    read_state,
    running_mean,
    values_of,
)
from picograd.optim.groups import ParamGroup
from picograd.tensor.build import cast
from picograd.tensor.elements import pointwise
from picograd.tensor.tensor import Tensor


class Adamax(Counted):
    """p -= lr / (1 - b1^t) * m / u, m the running mean of d and u = max(b2 u, |d| + eps).

    d = grad + weight_decay * p. Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 2.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      eps:            added to |d|
      weight_decay:   added to the gradient, times the parameter
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adamax([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    zeros = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        self._check_options({"foreach": foreach, **options})
        settings = {"lr": lr, "betas": check_betas("Adamax", betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        return (lr / (-power(group.value("betas", step)[0], step) + 1.0),)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value, d = decayed(*values_of(parameter, grad), group, False)
        beta1, beta2 = group.value("betas", d)
        mean, (greatest,) = running_mean(state, d, beta1), read_state(state, d, "exp_inf")
        greatest = maximum(greatest * beta2, pointwise.absolute(d) + group["eps"])
        state["exp_inf"].write("step", greatest)
        (rate,) = self._factor(place, value)
        parameter.write("step", value - mean / greatest * rate)


class NAdam(Counted):
    """Adam with Nesterov's look ahead: the step takes the momentum that comes next.

    mu_t = b1 (1 - 0.96^(t psi) / 2), M_t their product up to t
    p -= lr ((1 - mu_t) / (1 - M_t) d + mu_t+1 / (1 - M_t+1) m) / (sqrt(v / (1 - b2^t)) + eps)
    Source: Dozat 2016, "Incorporating Nesterov momentum into Adam", algorithm 2.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      eps:            added to the root
      weight_decay:   added to the gradient, times the parameter
      momentum_decay: psi
      decoupled_weight_decay:  take the decay from the parameter itself
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = NAdam([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.894
    """

    shared = {"step": 0.0, "mu_product": 1.0}
    zeros = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        self._check_options(options)
        settings = {"lr": lr, "betas": check_betas("NAdam", betas), "eps": eps, "weight_decay": weight_decay}
        kinds = {"decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}
        super().__init__(params, {**settings, "momentum_decay": momentum_decay, **kinds})

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        beta1, beta2 = group.value("betas", step)
        now, after = ((power(0.96, t * group["momentum_decay"]) * -0.5 + 1.0) * beta1 for t in (step, step + 1.0))
        product = shared["mu_product"].read() * now
        shared["mu_product"].write("step", product)
        of_grad, of_mean = (-now + 1.0) / (-product + 1.0), after / (-(product * after) + 1.0)
        return lr * of_grad, lr * of_mean, -power(beta2, step) + 1.0

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value, d = decayed(*values_of(parameter, grad), group, group["decoupled_weight_decay"])
        mean, square = moments(state, d, group)
        of_grad, of_mean, correction = self._factor(place, value)
        scale = unary(OpCode.SQRT, square / correction) + group["eps"]
        parameter.write("step", value - d / scale * of_grad - mean / scale * of_mean)


class RAdam(Counted):
    """Adam whose adaptive rate is used as far as its variance is known: p -= lr r m / (1 - b1^t) / sqrt(v / (1 - b2^t)).

    rho = 2 / (1 - b2) - 1;  rho_t = rho - 2 t b2^t / (1 - b2^t)
    r = sqrt((rho_t - 4)(rho_t - 2) rho / ((rho - 4)(rho - 2) rho_t)) where rho_t > 5, else p -= lr m / (1 - b1^t)
    Source: Liu et al. 2019, arXiv:1908.03265, algorithm 2.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      eps:            added to the root
      weight_decay:   added to the gradient, times the parameter
      decoupled_weight_decay:  take the decay from the parameter itself
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = RAdam([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.7
    """

    zeros = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        self._check_options(options)
        settings = {"lr": lr, "betas": check_betas("RAdam", betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize})

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        """Returns the rate; r sqrt(1 - b2^t), or 0; and what stands for an adaptive rate that is not used, 1 or 0."""
        beta1, beta2 = group.value("betas", step)
        limit = (beta2 + 1.0) / (-beta2 + 1.0)
        correction = -power(beta2, step) + 1.0
        length = -(step * 2.0 * power(beta2, step) / correction) + limit
        known = compare(OpCode.CMPLT, 5.0, length)
        safe = where(known, length, 6.0)
        ratio = (safe - 4.0) * (safe - 2.0) * limit / (safe * ((limit - 4.0) * (limit - 2.0)))
        adaptive = where(known, unary(OpCode.SQRT, ratio * correction), 0.0)
        return lr / (-power(beta1, step) + 1.0), adaptive, cast(compare(OpCode.CMPEQ, adaptive, 0.0), step.dtype)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value, d = decayed(*values_of(parameter, grad), group, group["decoupled_weight_decay"])
        mean, square = moments(state, d, group)
        rate, adaptive, plain = self._factor(place, value)
        factor = adaptive / (unary(OpCode.SQRT, square) + group["eps"]) + plain
        parameter.write("step", value - mean * rate * factor)
