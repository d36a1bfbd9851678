"""SGD, Adam and AdamW, by PyTorch's formulas.

In:    a parameter, its gradient and its state, as Ops
Out:   `SGD`, `Adam`, `AdamW`
Next:  picograd/optim/adam_variants.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.ir.build import maximum, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.counted import (
    Counted,
    check_betas,
    computed,
    decayed,
    decayed_by,
    nearer,
    nearer_square,
    power,
    scalar,
    setting,
    values_of,
)
from picograd.optim.groups import ParamGroup
from picograd.optim.optimizer import Optimizer
from picograd.tensor.build import broadcast_to, cast
from picograd.tensor.cell import trace
from picograd.tensor.modes import Mode
from picograd.tensor.tensor import Tensor


class SGD(Optimizer):
    """p -= lr * d, with d the gradient, or its running sum with momentum.

    d = grad + weight_decay * p;  b = momentum * b + (1 - dampening) * d;  d = d + momentum * b (nesterov) or b
    The first step takes b = d.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      momentum:       of the running sum, 0 for none
      dampening:      part of d that does not enter the running sum
      weight_decay:   added to the gradient, times the parameter
      nesterov:       look ahead by one step of momentum
      maximize:       climb: take the gradient's negative
      options:        foreach, fused: taken, of no effect

    Raises:
      ArgumentError: no parameters, or nesterov without momentum or with dampening.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = SGD([w], lr=0.1).step()
    >>> round(w.item(), 4)
    0.7
    """

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
        self._check_options(options)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError(f"SGD: nesterov needs momentum > 0 and no dampening, got {momentum} and {dampening}.")
        settings = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "nesterov": nesterov, "maximize": maximize})

    def _start(self, places: Sequence[int], group: ParamGroup) -> None:
        if group["momentum"] and not group["dampening"]:  # 0 * momentum + d is the first step's b
            for place, parameter in zip(places, group["params"]):
                self._keep(place, {"momentum_buffer": Tensor.zeros_like(parameter)})

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state.get(place, {})
        if "momentum_buffer" not in state and (group["momentum"] or "momentum" in group.changing):
            if trace.get() is None:
                _, d = decayed(*values_of(parameter, grad), group, False)
                self._keep(place, {"momentum_buffer": Tensor.from_op(cast(d, parameter.dtype), parameter.cell.device)})
            else:
                self._start_in_a_trace(place, parameter)
                state = self.state[place]
        kept = [state["momentum_buffer"]] if "momentum_buffer" in state else []
        is_first = state["is_first"].read() if "is_first" in state else 0.0
        if isinstance(is_first, Op):
            state["is_first"].write("step", is_first.filled(False))

        def read() -> tuple[Any, ...]:
            settings = (*group.numbers("momentum"), group["dampening"], group["weight_decay"])
            return group.lr_tensor.read(), is_first, *settings

        operands = self._updates.once((id(group), is_first), read)
        self._updates.add(sgd_step, group["nesterov"], [parameter, *kept], grad, operands)

    def _start_in_a_trace(self, place: int, parameter: Tensor) -> None:
        """Makes state that a step which is traced can read: its graph is that of every later step."""
        with Mode(trace, None):
            is_first = Tensor(True, device=parameter.device)
            self._keep(place, {"momentum_buffer": Tensor.zeros_like(parameter).detach(), "is_first": is_first})


def sgd_step(is_nesterov: bool, parameter: Op, *others: Any) -> list[Op]:
    """Returns the parameter, and the running sum where there is one, after a step of SGD.

    Args:
      others:  the running sum; the gradient, the learning rate; whether that step is the first, as an Op where only the
               device knows; momentum, dampening, weight decay
    """
    *before, grad, lr, is_first, momentum, dampening, decay = others
    value, d = decayed_by(decay, lr, *computed(parameter, grad), False)
    added, momentum = d * (1.0 - dampening), setting(momentum, d)
    if isinstance(is_first, Op):
        added = where(broadcast_to(is_first, d.shape), d, added)
    running = [cast(op, d.dtype) * momentum + added for op in before]
    for total in running:
        d = d + total * momentum if is_nesterov else total
    return [value - d * scalar(lr, value), *running]


class Adam(Counted):
    """p -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), m and v running means of d and d^2.

    d = grad + weight_decay * p. Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 1, in PyTorch's order.
    The step count t is a float64 on the device, shared by parameters that have always had gradients together.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          how much of the running means b1 and b2 is kept, in [0, 1)
      eps:            added to the root
      weight_decay:   added to the gradient, times the parameter
      amsgrad:        take the greatest v so far (Reddi et al. 2018, arXiv:1904.09237)
      maximize:       climb: take the gradient's negative
      decoupled_weight_decay:  take the decay from the parameter itself, as AdamW does
      options:        foreach, fused, capturable: taken, of no effect

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adam([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

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
        self._check_options(options)
        settings = {"lr": lr, "betas": check_betas(type(self).__name__, betas), "eps": eps, "weight_decay": weight_decay}
        kinds = {"amsgrad": amsgrad, "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**settings, **kinds})

    def _names(self, group: ParamGroup) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ())

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        return {name: Tensor.zeros_like(parameter) for name in self._names(group)}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        beta1, beta2 = group.value("betas", step)
        return lr / (-power(beta1, step) + 1.0), unary(OpCode.SQRT, -power(beta2, step) + 1.0)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        """Stores the parameter and its running means."""
        kept = [self.state[place][name] for name in self._names(group)]
        dtype = parameter.dtype.compute_dtype

        def read() -> tuple[Any, ...]:
            settings = (*group.numbers("betas"), group["eps"], group["weight_decay"])
            return group.lr_tensor.read(), *self._shared_numbers(place, dtype), *settings

        operands = self._updates.once((id(group), id(self.state[place]["step"]), dtype), read)
        self._updates.add(adam_step, group["decoupled_weight_decay"], [parameter, *kept], grad, operands)


def adam_step(is_decoupled: bool, parameter: Op, mean: Op, square: Op, *others: Any) -> list[Op]:
    """Returns the parameter and its running means after a step of Adam.

    Args:
      others:  the greatest square so far, where that counts; the gradient, the learning rate; rate and root of this step;
               betas, eps, weight decay
    """
    *before, grad, lr, rate, root, beta1, beta2, eps, decay = others
    value, d = decayed_by(decay, lr, *computed(parameter, grad), is_decoupled)
    mean = nearer(cast(mean, d.dtype), d, setting(beta1, d))
    square = nearer_square(cast(square, d.dtype), d, setting(beta2, d))
    greatest = [maximum(cast(op, d.dtype), square) for op in before]
    scale = unary(OpCode.SQRT, greatest[0] if greatest else square) / broadcast_to(root, value.shape) + eps
    return [value - mean / scale * broadcast_to(rate, value.shape), mean, square, *greatest]


class AdamW(Adam):
    """Adam with the weight decay taken from the parameter itself: p *= 1 - lr * weight_decay first.

    Source: Loshchilov, Hutter 2017, arXiv:1711.05101, algorithm 2. params, lr, betas, eps, amsgrad, maximize and options
    are Adam's.

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
        self._check_options(options)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)
