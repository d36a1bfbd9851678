"""SGD, Adam and AdamW, by PyTorch's formulas.

In:    a parameter, its gradient and its state, as Ops
Out:   `SGD`, `Adam`, `AdamW`
Next:  picograd/nn/readers.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.ir.build import expand, unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.nn.optimizer import Optimizer, ParamGroup
from picograd.tensor.build import broadcast_to, cast
from picograd.tensor.cell import trace
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
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError(f"SGD: nesterov needs momentum > 0 and no dampening, got {momentum} and {dampening}.")
        settings = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "nesterov": nesterov})

    def _start(self) -> None:
        place = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                if group["momentum"] and not group["dampening"]:  # 0 * momentum + d is the first step's b
                    self._keep(place, {"momentum_buffer": Tensor.zeros_like(parameter)})
                place += 1

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        value = cast(parameter.detach().read(), parameter.dtype.wide)  # a step of a 16-bit float is computed in float32
        d = cast(grad, value.dtype)
        if group["weight_decay"]:
            d = d + value * group["weight_decay"]
        if group["momentum"]:
            d = self._momentum(place, parameter, d, group)
        parameter.write("step", value - d * scalar(group.lr_tensor.read(), value))

    def _momentum(self, place: int, parameter: Tensor, d: Op, group: ParamGroup) -> Op:
        """Returns the direction of the step from the running sum, which is stored."""
        state = self.state.get(place, {})
        running = d
        if "momentum_buffer" in state:
            before = cast(state["momentum_buffer"].read(), d.dtype)
            running = before * group["momentum"] + d * (1.0 - group["dampening"])
            state["momentum_buffer"].write("step", running)
        else:
            stored = Tensor.from_op(cast(running, parameter.dtype), parameter.cell.device)
            self._keep(place, {"momentum_buffer": stored})
        return d + running * group["momentum"] if group["nesterov"] else running


class Adam(Optimizer):
    """p -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), m and v running means of d and d^2.

    d = grad + weight_decay * p. Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 1, in PyTorch's order.
    The step count t is a float64 on the device, shared by parameters that have always had gradients together.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      betas:          how much of the running means b1 and b2 is kept, in [0, 1)
      eps:            added to the root
      weight_decay:   added to the gradient, times the parameter

    Raises:
      ArgumentError: no parameters, or a beta outside [0, 1).

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adam([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        for beta in betas:
            if not 0.0 <= beta < 1.0:
                raise ArgumentError(f"{type(self).__name__}: betas must be in [0, 1), got {betas}.")
        self._corrections: dict[tuple[int, DType], tuple[Op, Op]] = {}  # rate and root, by count and dtype
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def _start(self) -> None:
        place = 0
        for group in self.param_groups:
            count = Tensor(0.0, dtypes.float64, device=group["params"][0].device)
            for parameter in group["params"]:
                means = {"exp_avg": Tensor.zeros_like(parameter), "exp_avg_sq": Tensor.zeros_like(parameter)}
                self._keep(place, {"step": count, **means})
                place += 1

    def _step(self) -> None:
        try:
            super()._step()
        finally:
            self._corrections = {}  # graphs, which cannot be pickled

    def _before(self, group: ParamGroup, places: list[int]) -> None:
        """Counts the step; parameters without a gradient this time get a count of their own."""
        chosen = set(places)
        sharing: dict[int, list[int]] = {}  # by the count, whose it is
        for place, own in self.state.items():
            sharing.setdefault(id(own["step"]), []).append(place)
        for sharers in sharing.values():
            counted = [place for place in sharers if place in chosen]
            if counted and len(counted) < len(sharers):
                split = _split(self.state[counted[0]]["step"])
                for place in counted:
                    self._keep(place, {"step": split})
        beta1, beta2 = group["betas"]
        self._corrections = {}
        for count in {id(self.state[i]["step"]): self.state[i]["step"] for i in places}.values():
            step = count.read() + 1.0
            count.write("step", step)
            lr = cast(group.lr_tensor.read(), dtypes.float64)
            powers = [Op(OpCode.POW, step.dtype, (_like(beta, step), step)) for beta in (beta1, beta2)]
            rate = lr / (-powers[0] + 1.0)
            root = unary(OpCode.SQRT, -powers[1] + 1.0)
            for dtype in dict.fromkeys(self.state[i]["exp_avg"].dtype.wide for i in places):
                self._corrections[id(count), dtype] = stored(rate, dtype), stored(root, dtype)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        """Stores both running means and the parameter, in the order of the formulas above."""
        state = self.state[place]
        value = cast(parameter.detach().read(), parameter.dtype.wide)  # a step of a 16-bit float is computed in float32
        d = cast(grad, value.dtype)
        if group["weight_decay"]:
            if self.decoupled:
                keep = -(group.lr_tensor.read() * group["weight_decay"]) + 1.0
                value = value * scalar(keep, value)
            else:
                d = d + value * group["weight_decay"]
        beta1, beta2 = group["betas"]
        mean, square = (cast(state[name].read(), d.dtype) for name in ("exp_avg", "exp_avg_sq"))
        mean = mean + (d - mean) * (1.0 - beta1)
        square = square * beta2 + d * d * (1.0 - beta2)
        state["exp_avg"].write("step", mean)
        state["exp_avg_sq"].write("step", square)
        rate, root = self._corrections[id(state["step"]), value.dtype]
        scale = unary(OpCode.SQRT, square) / expand(root, value.shape) + group["eps"]
        parameter.write("step", value - mean / scale * expand(rate, value.shape))


class AdamW(Adam):
    """Adam with the weight decay taken from the parameter itself: p *= 1 - lr * weight_decay first.

    Source: Loshchilov, Hutter 2017, arXiv:1711.05101, algorithm 2. params, lr, betas and eps are Adam's.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = AdamW([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.899
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)


def _split(count: Tensor) -> Tensor:
    """Returns another count of the same value; one as old as its original where a trace has not changed that."""
    op = count.cell.op
    if op.code is not OpCode.BUFFER or op.arg[0].memory is None:  # a graph, or what stands for a value in a body
        return count.clone()
    token = trace.set(None)
    try:
        return count.clone()
    finally:
        trace.reset(token)


# ---- on Ops ----
def scalar(op: Op, like: Op) -> Op:
    """Returns a 0-d Op as the dtype of `like`, repeated to its shape."""
    return broadcast_to(cast(op, like.dtype), like.shape)


def stored(op: Op, dtype: DType) -> Op:
    """Returns a 0-d Op computed once, so that no kernel repeats it for every element."""
    return Op(OpCode.CONTIGUOUS, dtype, (cast(op, dtype),))


def _like(value: float, op: Op) -> Op:
    return Op(OpCode.CONST, op.dtype, (), value)
