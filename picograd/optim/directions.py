"""Rprop, ASGD, Lion and LAMB: steps by signs, averages of steps, steps as long as the parameter.

In:    a parameter, its gradient and its state, as Ops
Out:   the optimizers
Next:  picograd/optim/matrix_steps.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.ir.build import compare, maximum, minimum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.counted import Counted, check_betas, decayed, moments, power, read_state, scalar, values_of
from picograd.optim.groups import ParamGroup
from picograd.optim.optimizer import Optimizer
from picograd.tensor.build import broadcast_to
from picograd.tensor.elements import pointwise
from picograd.tensor.reductions.norms import norm_op
from picograd.tensor.tensor import Tensor


class Rprop(Counted):
    """p -= sign(grad) * s, s grown where the gradient keeps its sign and shrunk where it turns, with no step there.

    Source: Riedmiller, Braun 1993, "A direct adaptive method for faster backpropagation learning".

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             s at the start
      etas:           factors of s: below 1 where the sign turns, above 1 where it stays
      step_sizes:     least and greatest s
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters, or factors on the wrong side of 1.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Rprop([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        self._check_options(options)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ArgumentError(f"Rprop: etas must be below and above 1, got {etas}.")
        settings = {"lr": lr, "etas": tuple(etas), "step_sizes": tuple(step_sizes), "maximize": maximize}
        super().__init__(params, settings)

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        return {"prev": Tensor.zeros_like(parameter), "step_size": Tensor.full_like(parameter, group["lr"])}

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state, (shrink, grow), (least, greatest) = self.state[place], group["etas"], group["step_sizes"]
        value, d = values_of(parameter, grad)
        before, length = read_state(state, d, "prev", "step_size")
        agreement = d * before
        turned = compare(OpCode.CMPLT, agreement, 0.0)
        kept = where(compare(OpCode.CMPLE, agreement, 0.0), length, length * grow)
        length = minimum(maximum(where(turned, length * shrink, kept), least), greatest)
        d = where(turned, 0.0, d)
        state["prev"].write("step", d)
        state["step_size"].write("step", length)
        parameter.write("step", value - pointwise.sign(d) * length)


class ASGD(Counted):
    """p = p (1 - lambd eta) - eta d, eta = lr / (1 + lambd lr t)^alpha; state["ax"] averages p from step t0 on.

    d = grad + weight_decay * p. Source: Polyak, Juditsky 1992, "Acceleration of stochastic approximation by averaging".

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      lambd:          decay
      alpha:          power by which eta falls
      t0:             step after which p is averaged
      weight_decay:   added to the gradient, times the parameter
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = ASGD([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.7
    """

    shared = {"step": 0.0, "eta": 0.0, "mu": 1.0}
    zeros = ("ax",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        **options: bool | None,
    ):
        self._check_options({"foreach": foreach, **options})
        settings = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def _shared_starts(self, group: ParamGroup) -> Mapping[str, float]:
        return {**self.shared, "eta": group["lr"]}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        eta, mu = shared["eta"].read(), shared["mu"].read()
        base = lr * group["lambd"] * step + 1.0
        falling = Op(OpCode.POW, base.dtype, (base, Op(OpCode.CONST, base.dtype, (), group["alpha"])))
        shared["eta"].write("step", lr / falling)
        shared["mu"].write("step", unary(OpCode.RECIPROCAL, maximum(step - group["t0"], 1.0)))
        return eta, -(eta * group["lambd"]) + 1.0, mu

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value, d = decayed(*values_of(parameter, grad), group, False)
        eta, keep, mu = self._factor(place, value)
        value = value * keep - d * eta
        (average,) = read_state(state, d, "ax")
        state["ax"].write("step", where(compare(OpCode.CMPEQ, mu, 1.0), value, average + (value - average) * mu))
        parameter.write("step", value)


class Lion(Optimizer):
    """p = p (1 - lr weight_decay) - lr sign(b1 m + (1 - b1) grad);  m = b2 m + (1 - b2) grad.

    Source: Chen et al. 2023, arXiv:2302.06675, program 1.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      weight_decay:   taken from the parameter, times lr
      maximize:       climb: take the gradient's negative

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Lion([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        settings = {"lr": lr, "betas": check_betas("Lion", betas), "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, settings)

    def _start(self, places: Sequence[int], group: ParamGroup) -> None:
        for place, parameter in zip(places, group["params"]):
            self._keep(place, {"exp_avg": Tensor.zeros_like(parameter)})

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value, d = decayed(*values_of(parameter, grad), group, True)
        beta1, beta2 = group.value("betas", d)
        (mean,) = read_state(state, d, "exp_avg")
        direction = pointwise.sign(mean * beta1 + d * (-beta1 + 1.0))
        state["exp_avg"].write("step", mean * beta2 + d * (-beta2 + 1.0))
        parameter.write("step", value - direction * scalar(group.lr_tensor.read(), value))


class LAMB(Counted):
    """p -= lr |p| / |r| r, r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay p; 1 where a norm is 0.

    m and v are running means of grad and grad^2. Source: You et al. 2019, arXiv:1904.00962, algorithm 2.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      eps:            added to the root
      weight_decay:   part of r
      maximize:       climb: take the gradient's negative

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = LAMB([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    zeros = ("exp_avg", "exp_avg_sq")

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
        settings = {"lr": lr, "betas": check_betas("LAMB", betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        beta1, beta2 = group.value("betas", step)
        return -power(beta1, step) + 1.0, -power(beta2, step) + 1.0

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value, d = values_of(parameter, grad)
        mean, square = moments(state, d, group)
        of_mean, of_square = self._factor(place, value)
        update = mean / of_mean / (unary(OpCode.SQRT, square / of_square) + group["eps"])
        if group["weight_decay"]:
            update = update + value * group["weight_decay"]
        axes = tuple(range(len(value.shape)))
        ratio = norm_op(value, 2, axes) / norm_op(update, 2, axes)
        known = compare(OpCode.CMPLT, maximum(ratio, -ratio), float("inf"))  # neither 0 / 0 nor x / 0
        ratio = where(known, where(compare(OpCode.CMPEQ, ratio, 0.0), 1.0, ratio), 1.0)
        rate = scalar(group.lr_tensor.read(), value) * broadcast_to(ratio, value.shape)
        parameter.write("step", value - update * rate)
