"""Optimizers: PyTorch's formulas, all parameters and their state computed in one plan a step.

In:    parameters with gradients
Out:   `SGD`, `Adam`, `AdamW`
Next:  picograd/nn/state.py

What changes from step to step (learning rate, step count) is a buffer on the device, never a constant of the graph,
so that every step runs the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, PicogradError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.nn.readers import realize_with_readers
from picograd.tensor.autograd import no_grad
from picograd.tensor.build import broadcast_to, cast, detached, unary
from picograd.tensor.cell import trace
from picograd.tensor.compute import all_or_nothing
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor


class ParamGroup(dict[str, Any]):
    """Parameters that share their settings; group["lr"] = 0.1 also changes the buffer plans read.

    params:    list of tensors
    lr, ...:   settings of the optimizer
    """

    def __init__(self, settings: Mapping[str, Any]):
        super().__init__(settings)
        first = self["params"][0]
        wide = any(p.dtype is dtypes.float64 for p in self["params"])
        self.lr_tensor = Tensor(self["lr"], dtypes.float64 if wide else dtypes.float32, device=first.device)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if name == "lr":
            with no_grad():
                self.lr_tensor.assign(value)


class Optimizer:
    """Base: parameter groups, state by parameter, and the one plan of a step."""

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]):
        given = list(params)
        if not given:
            raise ArgumentError(f"{type(self).__name__}: got no parameters.")
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        self.defaults = dict(defaults)
        self.param_groups = [self._group(group) for group in groups]
        self.state: dict[int, dict[str, Tensor]] = {}  # by place of the parameter among all
        self._start()
        realize([*self.parameters(), *self._state_tensors()])

    def _group(self, given: Mapping[str, Any]) -> ParamGroup:
        unknown = [name for name in given if name != "params" and name not in self.defaults]
        if unknown:
            raise ArgumentError(f"{type(self).__name__}: a group has unknown settings {', '.join(unknown)}.")
        params = [given["params"]] if isinstance(given["params"], Tensor) else list(given["params"])
        for tensor in params:
            if not isinstance(tensor, Tensor) or not tensor.is_leaf:
                raise ArgumentError(f"{type(self).__name__}: parameters must be leaf tensors, got {tensor!r}.")
        return ParamGroup({**self.defaults, **given, "params": params})

    # ---- what subclasses say ----
    def _start(self) -> None:
        """Makes the state, so that the first step has the same graph as every other."""

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        """Writes the new values of a parameter and its state."""
        raise NotImplementedError

    def _before(self, group: ParamGroup, places: list[int]) -> None:
        """Prepares what the parameters of a group that have gradients share."""

    # ---- what users call ----
    @property
    def lr(self) -> float:
        """Learning rate of the first group; setting it changes all groups."""
        return self.param_groups[0]["lr"]  # type: ignore[no-any-return]

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def parameters(self) -> Iterator[Tensor]:
        """Yields the parameters of all groups in order."""
        for group in self.param_groups:
            yield from group["params"]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, or makes them 0."""
        for tensor in self.parameters():
            if set_to_none:
                tensor.grad = None
            elif tensor.grad is not None:
                tensor.grad.zero_()

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Updates all parameters that have gradients, in one plan with whatever still reads their old values.

        After an error parameters and state are what they were before.
        """
        loss = closure() if closure is not None else None
        before = {place: dict(own) for place, own in self.state.items()}
        tensors = [*self.parameters(), *self._state_tensors()]
        try:
            with no_grad(), all_or_nothing([tensor.cell for tensor in tensors]):
                self._step()
        except PicogradError:
            self.state = before
            raise
        return loss

    def _step(self) -> None:
        old = [tensor.op for tensor in self.parameters() if tensor.grad is not None]
        place = 0
        for group in self.param_groups:
            places = range(place, place + len(group["params"]))
            place += len(group["params"])
            chosen = [(i, p) for i, p in zip(places, group["params"]) if p.grad is not None]
            if not chosen:
                continue
            self._before(group, [i for i, _ in chosen])
            for i, parameter in chosen:
                self._update(i, parameter, parameter.grad.read(), group)
        if trace.get() is None:
            realize_with_readers([*self.parameters(), *self._state_tensors()], old)

    def _state_tensors(self) -> list[Tensor]:
        return [tensor for state in self.state.values() for tensor in state.values()]

    # ---- saving ----
    def state_dict(self) -> dict[str, Any]:
        """Returns {"state": {place: {name: tensor}}, "param_groups": [settings with places for parameters]}."""
        groups = []
        place = 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**group, "params": list(range(place, place + count))})
            place += count
        state = {str(i): {name: t.clone().detach() for name, t in own.items()} for i, own in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over the state and settings of another optimizer of the same kind and parameters.

        Raises:
          ArgumentError: the groups have other numbers of parameters.
        """
        groups = state_dict["param_groups"]
        own = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != own:
            raise ArgumentError(
                f"load_state_dict: groups of {[len(g['params']) for g in groups]} parameters do not fit {own}."
            )
        for group, saved in zip(self.param_groups, groups):
            for name, value in saved.items():
                if name != "params":
                    group[name] = tuple(value) if isinstance(value, list) else value
        with no_grad():
            for place, saved in state_dict["state"].items():
                for name, tensor in saved.items():
                    own_state = self.state.setdefault(int(place), {})
                    if name in own_state:
                        own_state[name].assign(tensor.to(own_state[name].device))
                    else:
                        own_state[name] = tensor.clone().detach()


class SGD(Optimizer):
    """p -= lr * d, with d the gradient, or its running sum with momentum.

    d = grad + weight_decay * p;  b = momentum * b + (1 - dampening) * d;  d = d + momentum * b (nesterov) or b
    The first step takes b = d.

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
                    self.state[place] = {"momentum_buffer": Tensor.zeros_like(parameter)}
                place += 1

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        value = _wide(parameter.detach().read())
        d = cast(grad, value.dtype)
        if group["weight_decay"]:
            d = d + value * group["weight_decay"]
        if group["momentum"]:
            d = self._momentum(place, parameter, d, group)
        parameter.write("step", value - d * scalar(group.lr_tensor.read(), value))

    def _momentum(self, place: int, parameter: Tensor, d: Op, group: ParamGroup) -> Op:
        state = self.state.setdefault(place, {})
        running = d
        if "momentum_buffer" in state:
            before = cast(state["momentum_buffer"].read(), d.dtype)
            running = before * group["momentum"] + d * (1.0 - group["dampening"])
            state["momentum_buffer"].write("step", running)
        else:
            stored = Tensor.from_op(cast(running, parameter.dtype), parameter.cell.device)
            state["momentum_buffer"] = stored
        return d + running * group["momentum"] if group["nesterov"] else running


class Adam(Optimizer):
    """p -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), m and v running means of d and d^2.

    d = grad + weight_decay * p. Source: Kingma, Ba 2014, arXiv:1412.6980, algorithm 1, in PyTorch's order.
    The step count t is a float64 on the device, shared by parameters that have always had gradients together.
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
        self._corrections: dict[int, tuple[Op, Op]] = {}
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def _start(self) -> None:
        place = 0
        for group in self.param_groups:
            count = Tensor(0.0, dtypes.float64, device=group["params"][0].device)
            for parameter in group["params"]:
                means = {"exp_avg": Tensor.zeros_like(parameter), "exp_avg_sq": Tensor.zeros_like(parameter)}
                self.state[place] = {"step": count, **means}
                place += 1

    def _before(self, group: ParamGroup, places: list[int]) -> None:
        """Counts the step; parameters without a gradient this time get a count of their own."""
        chosen = set(places)
        for place in places:
            shared = self.state[place]["step"]
            sharing = [i for i, own in self.state.items() if own["step"] is shared]
            if any(i not in chosen for i in sharing):
                split = shared.clone()
                for i in sharing:
                    if i in chosen:
                        self.state[i]["step"] = split
        beta1, beta2 = group["betas"]
        self._corrections = {}
        for count in {id(self.state[i]["step"]): self.state[i]["step"] for i in places}.values():
            step = count.read() + 1.0
            count.write("step", step)
            lr = cast(group.lr_tensor.read(), dtypes.float64)
            powers = [Op(OpCode.POW, step.dtype, (_like(beta, step), step)) for beta in (beta1, beta2)]
            size = lr / (-powers[0] + 1.0)
            root = unary(OpCode.SQRT, -powers[1] + 1.0)
            self._corrections[id(count)] = (size, root)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state = self.state[place]
        value = _wide(parameter.detach().read())
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
        size, root = self._corrections[id(state["step"])]
        scale = unary(OpCode.SQRT, square) / scalar(stored(root, value.dtype), value) + group["eps"]
        parameter.write("step", value - mean / scale * scalar(stored(size, value.dtype), value))


class AdamW(Adam):
    """Adam with the weight decay taken from the parameter itself: p *= 1 - lr * weight_decay first.

    Source: Loshchilov, Hutter 2017, arXiv:1711.05101, algorithm 2.
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


# ---- on Ops ----
def scalar(op: Op, like: Op) -> Op:
    """Returns a 0-d Op as the dtype of `like`, repeated to its shape."""
    return broadcast_to(cast(op, like.dtype), like.shape)


def stored(op: Op, dtype: DType) -> Op:
    """Returns a 0-d Op computed once, so that no kernel repeats it for every element."""
    return Op(OpCode.CONTIGUOUS, dtype, (cast(op, dtype),))


def _like(value: float, op: Op) -> Op:
    return Op(OpCode.CONST, op.dtype, (), value)


def _wide(op: Op) -> Op:
    """Returns a 16-bit float as float32, in which the step is computed."""
    return cast(op, dtypes.float32) if op.dtype.itemsize < 4 else detached(op)
