"""Optimizers whose formulas know how many steps there were.

In:    parameters with gradients
Out:   `Counted`, and what formulas on Ops share
Next:  picograd/optim/basic.py

The count, and what else is one number for a whole group, is shared by parameters that have always had gradients
together: a step computes it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.groups import ParamGroup
from picograd.optim.optimizer import Optimizer
from picograd.tensor.build import broadcast_to, cast
from picograd.tensor.cell import trace
from picograd.tensor.modes import Mode
from picograd.tensor.tensor import Tensor


class Counted(Optimizer):
    """Base: state is made at the start, a count of steps for all parameters, and numbers computed from it once a step.

    shared: names of the state that is one number for many parameters, and the value each starts with
    zeros:  names of the state of a parameter that starts as zeros of its shape
    """

    shared: Mapping[str, float] = {"step": 0.0}
    zeros: tuple[str, ...] = ()

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]):
        self._factors: dict[tuple[int, DType], tuple[Op, ...]] = {}  # by count and dtype
        super().__init__(params, defaults)

    # ---- what subclasses say ----
    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        """Returns the state of one parameter at the start."""
        return {name: Tensor.zeros_like(parameter) for name in self.zeros}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        """Returns the numbers, in float64, that formulas need at a step; may write shared state."""
        return ()

    # ---- a step ----
    def _start(self, places: Sequence[int], group: ParamGroup) -> None:
        device, starts = group.lr_tensor.device, self._shared_starts(group)
        shared = {name: Tensor(value, dtypes.float64, device=device) for name, value in starts.items()}
        for place, parameter in zip(places, group["params"]):
            self._keep(place, {**shared, **self._state_of(parameter, group)})

    def _shared_starts(self, group: ParamGroup) -> Mapping[str, float]:
        return self.shared

    def _step(self) -> None:
        try:
            super()._step()
        finally:
            self._factors = {}  # graphs, which cannot be pickled

    def _before(self, group: ParamGroup, places: list[int]) -> None:
        """Counts the step; parameters without a gradient this time get a count of their own."""
        self._split_off(set(places))
        self._factors = {}
        lr = cast(group.lr_tensor.read(), dtypes.float64)
        dtypes_of: dict[int, set[DType]] = {}  # the dtypes of the parameters that share a count
        counts: dict[int, int] = {}
        for i in places:
            identity = id(self.state[i]["step"])
            counts[identity] = i
            dtypes_of.setdefault(identity, set()).add(self._dtype_of(i))
        for identity, first in counts.items():
            shared = {name: self.state[first][name] for name in self.shared}
            step = shared["step"].read() + 1.0
            shared["step"].write("step", step)
            numbers = self._numbers(group, step, lr, shared)
            for dtype in dtypes_of[identity]:
                self._factors[identity, dtype] = tuple(stored(number, dtype) for number in numbers)

    def _split_off(self, chosen: set[int]) -> None:
        """Gives the parameters that step shared numbers of their own, where others that share them do not."""
        sharing: dict[int, list[int]] = {}  # by the count, whose it is
        for place, own in self.state.items():
            sharing.setdefault(id(own["step"]), []).append(place)
        for sharers in sharing.values():
            counted = [place for place in sharers if place in chosen]
            if counted and len(counted) < len(sharers):
                split = {name: _split(self.state[counted[0]][name]) for name in self.shared}
                for place in counted:
                    self._keep(place, split)

    def _dtype_of(self, place: int) -> DType:
        for name, kept in self.state[place].items():
            if name not in self.shared and isinstance(kept, Tensor):
                return kept.dtype.compute_dtype
        return dtypes.float32

    def _factor(self, place: int, like: Op) -> tuple[Op, ...]:
        """Returns the numbers of this step as `like`, repeated to its shape."""
        return tuple([broadcast_to(number, like.shape) for number in self._shared_numbers(place, like.dtype)])

    def _shared_numbers(self, place: int, dtype: DType) -> tuple[Op, ...]:
        """Returns the numbers of this step in a dtype, each 0-d."""
        return self._factors[id(self.state[place]["step"]), dtype]


def check_betas(name: str, betas: tuple[float, float]) -> tuple[float, float]:
    """Returns betas as a tuple; ArgumentError where one is outside [0, 1)."""
    for beta in betas:
        if not 0.0 <= beta < 1.0:
            raise ArgumentError(f"{name}: betas must be in [0, 1), got {betas}.")
    return betas[0], betas[1]


def _split(count: Tensor) -> Tensor:
    """Returns another count of the same value; one as old as its original where a trace has not changed that."""
    op = count.cell.op
    if op.code is not OpCode.BUFFER or op.arg[0].memory is None:  # a graph, or what stands for a value in a body
        return count.clone()
    with Mode(trace, None):
        return count.clone()


# ---- on Ops ----
def values_of(parameter: Tensor, grad: Op) -> tuple[Op, Op]:
    """Returns a parameter and its gradient; a step of a 16-bit float is computed in float32."""
    return computed(parameter.detach().read(), grad)


def computed(value: Op, grad: Op) -> tuple[Op, Op]:
    """Returns a parameter and its gradient in the dtype in which a step is computed."""
    value = cast(value, value.dtype.compute_dtype)
    return value, cast(grad, value.dtype)


def read_state(state: Mapping[str, Tensor], like: Op, *names: str) -> tuple[Op, ...]:
    """Returns tensors of a state in the dtype of `like`."""
    return tuple(cast(state[name].read(), like.dtype) for name in names)


def nearer(mean: Op, d: Op, keep: float | Op) -> Op:
    """Returns the running mean m + (1 - keep) (d - m)."""
    return mean + (d - mean) * (-keep + 1.0)


def nearer_square(square: Op, d: Op, keep: float | Op) -> Op:
    """Returns the running mean of squares keep v + (1 - keep) d^2."""
    return square * keep + d * d * (-keep + 1.0)


def running_mean(state: Mapping[str, Tensor], d: Op, keep: float | Op, name: str = "exp_avg") -> Op:
    """Returns and stores the running mean m = m + (1 - keep) (d - m)."""
    mean = nearer(cast(state[name].read(), d.dtype), d, keep)
    state[name].write("step", mean)
    return mean


def running_square(state: Mapping[str, Tensor], d: Op, keep: float | Op, name: str = "exp_avg_sq") -> Op:
    """Returns and stores the running mean of squares v = keep v + (1 - keep) d^2."""
    square = nearer_square(cast(state[name].read(), d.dtype), d, keep)
    state[name].write("step", square)
    return square


def moments(state: Mapping[str, Tensor], d: Op, group: ParamGroup) -> tuple[Op, Op]:
    """Returns and stores the running means of d and of its square, of which the group's betas are kept."""
    beta1, beta2 = group.value("betas", d)
    return running_mean(state, d, beta1), running_square(state, d, beta2)


def decayed(value: Op, grad: Op, group: ParamGroup, decoupled: bool) -> tuple[Op, Op]:
    """Returns parameter and gradient after weight decay: of the parameter itself, or as part of the gradient."""
    decay = group["weight_decay"]
    return decayed_by(decay, group.lr_tensor.read(), value, grad, decoupled) if decay else (value, grad)


def decayed_by(decay: float, lr: Op, value: Op, grad: Op, decoupled: bool) -> tuple[Op, Op]:
    """The same for a weight decay and a learning rate."""
    if not decay:
        return value, grad
    if decoupled:
        return value * scalar(-(lr * decay) + 1.0, value), grad
    return value, grad + value * decay


def scalar(op: Op, like: Op) -> Op:
    """Returns a 0-d Op as the dtype of `like`, repeated to its shape."""
    return broadcast_to(cast(op, like.dtype), like.shape)


def setting(number: float | Op, like: Op) -> float | Op:
    """Returns a setting as formulas take it: a number, or where that changes an Op of the dtype and shape of `like`."""
    return scalar(number, like) if isinstance(number, Op) else number


def stored(op: Op, dtype: DType) -> Op:
    """Returns a 0-d Op computed once, so that no kernel repeats it for every element."""
    return Op(OpCode.CONTIGUOUS, dtype, (cast(op, dtype),))


def power(base: float | Op, exponent: Op) -> Op:
    """Returns base ** exponent for an exponent of float64."""
    base = base if isinstance(base, Op) else Op(OpCode.CONST, exponent.dtype, (), base)
    return Op(OpCode.POW, exponent.dtype, (base, exponent))
