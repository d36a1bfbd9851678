"""Adam and its relatives: steps by the running means of the gradient and of its square, by PyTorch's formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from picograd.ir.build import cast, equal, less, maximum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.declared import Declared, Now, Result, moments, nearer, power
from picograd.optim.optimizer import ParamGroup
from picograd.tensor import pointwise
from picograd.tensor.build import broadcast_to
from picograd.tensor.reductions import norm_op
from picograd.tensor.tensor import Tensor

__all__ = ["Adam", "AdamW", "Adamax", "LAMB", "NAdam", "RAdam"]


class Adam(Declared):
    """p -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), m and v running means of d and d^2.

    d = grad + weight_decay * p. Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 1, in PyTorch's order.
    The step count t is a float64 on the device; parameters share it as long as they have always had gradients together.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          decay rates b1 and b2 of the running means, in [0, 1)
      eps:            added to the root
      weight_decay:   added to the gradient, times the parameter
      amsgrad:        divide by the largest v so far (Reddi et al. 2018, arXiv:1904.09237)
      maximize:       climb: take the gradient's negative
      decoupled_weight_decay:  take the decay from the parameter itself, as AdamW does
      options:        foreach, fused, capturable: accepted, without effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adam([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **options: bool | None,
    ):
        self._begin(vars())

    def _names(self, group: ParamGroup) -> tuple[str, ...]:
        return self.slots if group["amsgrad"] else self.slots[:2]

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        beta1, beta2 = group.value("betas", step)
        return lr / (-power(beta1, step) + 1.0), unary(OpCode.SQRT, -power(beta2, step) + 1.0)

    @staticmethod
    def _formula(now: Now) -> Result:
        mean, square, state = moments(now)
        rate, root = now.factors
        if now["amsgrad"]:
            square = state["max_exp_avg_sq"] = maximum(now.state["max_exp_avg_sq"], square)
        return now.value - mean / (unary(OpCode.SQRT, square) / root + now["eps"]) * rate, state


class AdamW(Adam):
    """Adam with the weight decay taken from the parameter itself: p *= 1 - lr * weight_decay first.

    Source: Loshchilov, Hutter 2017, arXiv:1711.05101, algorithm 2. params, lr, betas, eps, amsgrad, maximize, options: as
    in Adam.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = AdamW([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.899
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        self._begin({**vars(), "decoupled_weight_decay": True})


class Adamax(Declared):
    """p -= lr / (1 - b1^t) * m / u, m the running mean of d and u = max(b2 u, |d| + eps).

    d = grad + weight_decay * p. Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 2.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      eps:            added to |d|
      weight_decay:   added to the gradient, times the parameter
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: accepted, without effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adamax([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    slots = ("exp_avg", "exp_inf")

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
        self._begin(vars())

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        return (lr / (-power(group.value("betas", step)[0], step) + 1.0),)

    @staticmethod
    def _formula(now: Now) -> Result:
        (beta1, beta2), (rate,) = now["betas"], now.factors
        mean = nearer(now.state["exp_avg"], now.d, beta1)
        greatest = maximum(now.state["exp_inf"] * beta2, pointwise.absolute(now.d) + now["eps"])
        return now.value - mean / greatest * rate, {"exp_avg": mean, "exp_inf": greatest}


class NAdam(Declared):
    """Adam with Nesterov momentum: the step uses the mean that the next step would have.

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
      options:        foreach, fused, capturable: accepted, without effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = NAdam([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.894
    """

    shared = {"step": 0.0, "mu_product": 1.0}
    slots = ("exp_avg", "exp_avg_sq")

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
        self._begin(vars())

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        beta1, beta2 = group.value("betas", step)
        now, after = ((power(0.96, t * group["momentum_decay"]) * -0.5 + 1.0) * beta1 for t in (step, step + 1.0))
        product = shared["mu_product"].read() * now
        shared["mu_product"].write("step", product)
        of_grad, of_mean = (-now + 1.0) / (-product + 1.0), after / (-(product * after) + 1.0)
        return lr * of_grad, lr * of_mean, -power(beta2, step) + 1.0

    @staticmethod
    def _formula(now: Now) -> Result:
        mean, square, state = moments(now)
        of_grad, of_mean, correction = now.factors
        scale = unary(OpCode.SQRT, square / correction) + now["eps"]
        return now.value - now.d / scale * of_grad - mean / scale * of_mean, state


class RAdam(Declared):
    """Adam with a rectified rate, by the variance of its estimate: p -= lr r m / (1 - b1^t) / sqrt(v / (1 - b2^t)).

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
      options:        foreach, fused, capturable: accepted, without effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = RAdam([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.7
    """

    slots = ("exp_avg", "exp_avg_sq")

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
        self._begin(vars())

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        """Returns the rate; r sqrt(1 - b2^t), or 0 if rho_t <= 5; and 1 if rho_t <= 5, else 0."""
        beta1, beta2 = group.value("betas", step)
        limit = (beta2 + 1.0) / (-beta2 + 1.0)
        correction = -power(beta2, step) + 1.0
        length = -(step * 2.0 * power(beta2, step) / correction) + limit
        known = less(5.0, length)
        safe = where(known, length, 6.0)
        ratio = (safe - 4.0) * (safe - 2.0) * limit / (safe * ((limit - 4.0) * (limit - 2.0)))
        adaptive = where(known, unary(OpCode.SQRT, ratio * correction), 0.0)
        return lr / (-power(beta1, step) + 1.0), adaptive, cast(equal(adaptive, 0.0), step.dtype)

    @staticmethod
    def _formula(now: Now) -> Result:
        mean, square, state = moments(now)
        rate, adaptive, plain = now.factors
        factor = adaptive / (unary(OpCode.SQRT, square) + now["eps"]) + plain
        return now.value - mean * rate * factor, state


class LAMB(Declared):
    """p -= lr |p| / |r| r, r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay p; a norm of 0: |p| / |r| = 1.

    m and v are running means of grad and grad^2. Source: You et al. 2019, arXiv:1904.00962, algorithm 2.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      eps:            added to the root
      weight_decay:   added to r, times the parameter
      maximize:       climb: take the gradient's negative

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = LAMB([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    slots = ("exp_avg", "exp_avg_sq")
    decoupled = None

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        self._begin(vars())

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        beta1, beta2 = group.value("betas", step)
        return -power(beta1, step) + 1.0, -power(beta2, step) + 1.0

    @staticmethod
    def _formula(now: Now) -> Result:
        value = now.value
        mean, square, state = moments(now)
        of_mean, of_square = now.factors
        update = mean / of_mean / (unary(OpCode.SQRT, square / of_square) + now["eps"])
        if now["weight_decay"]:
            update = update + value * now["weight_decay"]
        axes = tuple(range(len(value.shape)))
        ratio = norm_op(value, 2, axes) / norm_op(update, 2, axes)
        known = less(maximum(ratio, -ratio), float("inf"))  # neither 0 / 0 nor x / 0
        ratio = where(known, where(equal(ratio, 0.0), 1.0, ratio), 1.0)
        return value - update * (now.lr * broadcast_to(ratio, value.shape)), state
