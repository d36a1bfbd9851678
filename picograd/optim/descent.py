"""SGD and its relatives: steps along the gradient or its sign, averaged steps, and steps divided by past gradients.

Formulas are PyTorch's for optimizers that PyTorch has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from picograd.errors import ArgumentError
from picograd.ir.build import cast, equal, less, less_equal, maximum, minimum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.declared import Declared, Now, Result, computed, decayed_by, nearer, nearer_square
from picograd.optim.optimizer import ParamGroup
from picograd.tensor import pointwise
from picograd.tensor.build import broadcast_to
from picograd.tensor.cell import trace
from picograd.tensor.modes import Mode
from picograd.tensor.tensor import Tensor

__all__ = ["ASGD", "Adadelta", "Adagrad", "Lion", "RMSprop", "Rprop", "SGD"]


class SGD(Declared):
    """p -= lr * d, with d the gradient, or its running sum with momentum.

    d = grad + weight_decay * p;  b = momentum * b + (1 - dampening) * d;  d = d + momentum * b (nesterov) or b
    The first step takes b = d.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      momentum:       decay rate of the running sum; 0: no running sum
      dampening:      part of d that is not added to the running sum
      weight_decay:   added to the gradient, times the parameter
      nesterov:       use the momentum of the next step
      maximize:       climb: take the gradient's negative
      options:        foreach, fused: accepted, without effect

    Raises:
      ArgumentError: no parameters, or nesterov without momentum or with dampening.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = SGD([w], lr=0.1).step()
    >>> round(w.item(), 4)
    0.7
    """

    shared = {}
    slots = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError(f"SGD: nesterov needs momentum > 0 and no dampening, got {momentum} and {dampening}.")
        self._begin(vars())

    def _names(self, group: ParamGroup) -> tuple[str, ...]:
        return self.slots if group["momentum"] and not group["dampening"] else ()  # 0 * momentum + d is already the first b

    def _flags(self, place: int) -> tuple[Op | float, ...]:
        """Returns whether this step is the first: 0.0, or an Op if a traced step decides on the device."""
        kept = self.state.get(place, {}).get("is_first")
        if kept is None:
            return (0.0,)
        is_first = kept.read()
        kept.write("step", is_first.filled(False))
        return (is_first,)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        is_first = "momentum_buffer" not in self.state.get(place, {}) and bool(
            group["momentum"] or "momentum" in group.changing
        )
        if is_first and trace.get() is not None:
            self._start_in_a_trace(place, parameter)
        super()._update(place, parameter, grad, group)
        if is_first and trace.get() is None:
            value, d = computed(parameter.detach().read(), grad)
            _, d = decayed_by(group["weight_decay"], group.lr_tensor.read(), value, d, False)
            self._keep(place, {"momentum_buffer": Tensor.from_op(cast(d, parameter.dtype), parameter.cell.device)})

    def _start_in_a_trace(self, place: int, parameter: Tensor) -> None:
        """Makes state that is there from the first traced step on, so that the graph of this step serves all later ones."""
        with Mode(trace, None):
            is_first = Tensor(True, device=parameter.device)
            self._keep(place, {"momentum_buffer": Tensor.zeros_like(parameter).detach(), "is_first": is_first})

    @staticmethod
    def _formula(now: Now) -> Result:
        d, (is_first,) = now.d, now.numbers
        if "momentum_buffer" not in now.state:
            return now.value - d * now.lr, {}
        added, momentum = d * (1.0 - now["dampening"]), now["momentum"]
        if isinstance(is_first, Op):
            added = where(broadcast_to(is_first, d.shape), d, added)
        running = now.state["momentum_buffer"] * momentum + added
        d = d + running * momentum if now["nesterov"] else running
        return now.value - d * now.lr, {"momentum_buffer": running}


class ASGD(Declared):
    """p = p (1 - lambd eta) - eta d, eta = lr / (1 + lambd lr t)^alpha; state["ax"] averages p from step t0 on.

    d = grad + weight_decay * p. Source: Polyak, Juditsky 1992, "Acceleration of stochastic approximation by averaging".

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      lambd:          decay of the parameter
      alpha:          exponent of the decay of eta
      t0:             step after which p is averaged
      weight_decay:   added to the gradient, times the parameter
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: accepted, without effect

    Raises:
      ArgumentError: no parameters.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = ASGD([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.7
    """

    shared = {"step": 0.0, "eta": 0.0, "mu": 1.0}
    slots = ("ax",)

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
        self._begin(vars())

    def _shared_starts(self, group: ParamGroup) -> Mapping[str, float]:
        return {**self.shared, "eta": group["lr"]}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        mu = shared["mu"].read()
        eta = where(equal(step, 1.0), lr, shared["eta"].read())  # eta of the first step
        base = lr * group["lambd"] * step + 1.0
        falling = Op(OpCode.POW, base.dtype, (base, Op(OpCode.CONST, base.dtype, (), group["alpha"])))
        shared["eta"].write("step", lr / falling)
        shared["mu"].write("step", unary(OpCode.RECIPROCAL, maximum(step - group["t0"], 1.0)))
        return eta, -(eta * group["lambd"]) + 1.0, mu

    @staticmethod
    def _formula(now: Now) -> Result:
        eta, keep, mu = now.factors
        value, average = now.value * keep - now.d * eta, now.state["ax"]
        return value, {"ax": where(equal(mu, 1.0), value, average + (value - average) * mu)}


class Lion(Declared):
    """p = p (1 - lr weight_decay) - lr sign(b1 m + (1 - b1) grad);  m = b2 m + (1 - b2) grad.

    Source: Chen et al. 2023, arXiv:2302.06675, program 1.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          b1 and b2, in [0, 1)
      weight_decay:   shrinks the parameter, times lr
      maximize:       climb: take the gradient's negative

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Lion([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    shared = {}
    slots = ("exp_avg",)
    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        self._begin(vars())

    @staticmethod
    def _formula(now: Now) -> Result:
        (beta1, beta2), mean, d = now["betas"], now.state["exp_avg"], now.d
        direction = pointwise.sign(mean * beta1 + d * (-beta1 + 1.0))
        return now.value - direction * now.lr, {"exp_avg": mean * beta2 + d * (-beta2 + 1.0)}


class Rprop(Declared):
    """p -= sign(grad) * s; s grows if the gradient keeps its sign, and shrinks, without a step, if the sign changes.

    Source: Riedmiller, Braun 1993, "A direct adaptive method for faster backpropagation learning".

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             s at the first step
      etas:           factors of s: below 1 if the sign changes, above 1 if it stays
      step_sizes:     least and greatest s
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: accepted, without effect

    Raises:
      ArgumentError: no parameters, or factors on the wrong side of 1.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Rprop([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    slots = ("prev", "step_size")
    decoupled = None

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
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ArgumentError(f"Rprop: etas must be below and above 1, got {etas}.")
        self._begin(vars())

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        return {"prev": Tensor.zeros_like(parameter), "step_size": Tensor.full_like(parameter, group["lr"])}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        return (step,)

    @staticmethod
    def _formula(now: Now) -> Result:
        (shrink, grow), (least, greatest), (step,) = now["etas"], now["step_sizes"], now.factors
        length = where(equal(step, 1.0), now.lr, now.state["step_size"])  # s starts as the rate at the first step
        agreement = now.d * now.state["prev"]
        turned = less(agreement, 0.0)
        kept = where(less_equal(agreement, 0.0), length, length * grow)
        length = minimum(maximum(where(turned, length * shrink, kept), least), greatest)
        d = where(turned, 0.0, now.d)
        return now.value - pointwise.sign(d) * length, {"prev": d, "step_size": length}


# ---- scaled by earlier gradients ----
class Adagrad(Declared):
    """p -= lr / (1 + (t - 1) lr_decay) * d / (sqrt(s) + eps), s the sum of d^2 so far.

    d = grad + weight_decay * p. Source: Duchi et al. 2011, "Adaptive subgradient methods", figure 1.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      lr_decay:       decay of the learning rate
      weight_decay:   added to the gradient, times the parameter
      initial_accumulator_value:  start value of s
      eps:            added to the root
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: accepted, without effect

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
      rho:            decay rate of the running means, in [0, 1]
      eps:            added under the roots
      weight_decay:   added to the gradient, times the parameter
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: accepted, without effect

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
    """p -= lr * d / (sqrt(s) + eps), s the running mean of d^2; momentum: p -= lr b, b = momentum b + d / (sqrt(s) + eps).

    d = grad + weight_decay * p. Source: Hinton 2012, "Neural networks for machine learning", lecture 6e.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      alpha:          decay rate of the running mean
      eps:            added to the root
      weight_decay:   added to the gradient, times the parameter
      momentum:       decay rate of the running sum b; 0: no running sum
      centered:       subtract the square of the running mean of d from s
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: accepted, without effect

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
