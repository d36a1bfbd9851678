"""Optimizers as records: settings with their defaults, the state of a parameter, and a formula over Ops.

    class Decaying(Declared):                                       optim.Decaying(params, lr=0.1)
        slots = ("sum",)                                            state of a parameter: zeros of its shape
        def __init__(self, params, lr=1e-3, rho=0.9):
            self._begin(vars())                                     the arguments are the settings of groups
        def _formula(now):                                          p, d -> the new p, and the new state
            total = now.state["sum"] * now["rho"] + now.d
            return now.value - total * now.lr, {"sum": total}

The step count, and any other number of a whole group, is one tensor for all parameters that have always had gradients
together, so a step computes it once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.ir.build import cast
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.optimizer import IMPLEMENTATIONS, Optimizer, ParamGroup
from picograd.record import Record
from picograd.tensor.build import broadcast_to
from picograd.tensor.cell import trace
from picograd.tensor.modes import Mode
from picograd.tensor.tensor import Tensor

Result = tuple[Op, dict[str, Op]]  # results of a formula: the new value of a parameter, and its new state by name


class Now(Record, eq=False):
    """A parameter during a step, as Ops in the dtype in which the step is computed; now["eps"] is a setting.

    value:     the parameter, after decoupled weight decay
    d:         the gradient, with weight decay added unless it is decoupled
    state:     Ops by name
    rate:      the learning rate of the group, 0-d
    numbers:   results of `_numbers` for this step, 0-d
    settings:  by name: a number, a tuple of numbers, or, if they change from step to step, Ops of the parameter's shape
    """

    value: Op
    d: Op
    state: dict[str, Op]
    rate: Op
    numbers: Sequence[Any]
    settings: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def lr(self) -> Op:
        """The learning rate, broadcast to the shape of the parameter."""
        return scalar(self.rate, self.value)

    @property
    def factors(self) -> tuple[Op, ...]:
        """The numbers of this step, broadcast to the shape of the parameter."""
        return tuple([broadcast_to(number, self.value.shape) for number in self.numbers])


class Declared(Optimizer):
    """Base of the optimizers: a subclass declares its settings, its state and its formula.

    shared:     start values, by name, of state that is one number for many parameters: the step count, and numbers that
                follow from it
    slots:      names of the state that a parameter of its own may have
    decoupled:  True: weight decay shrinks the parameter; False: it is added to the gradient; None: the formula applies it
    """

    shared: Mapping[str, float] = {"step": 0.0}
    slots: tuple[str, ...] = ()
    decoupled: bool | None = False

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]):
        self._factors: dict[tuple[int, DType], tuple[Op, ...]] = {}  # by id of the count, and dtype
        super().__init__(params, defaults)

    def _begin(self, given: dict[str, Any]) -> None:
        """Initializes from a constructor's local variables: self, params, PyTorch's options, and the settings.

        Raises:
          ArgumentError: see Optimizer; or a beta outside [0, 1).
        """
        options = {name: given.pop(name) for name in IMPLEMENTATIONS & given.keys()}
        self._check_options({**options, **given.pop("options", {})})
        del given["self"]
        params = given.pop("params")
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        if "betas" in settings:
            check_betas(type(self).__name__, settings["betas"])
        Declared.__init__(self, params, settings)

    # ---- declared by subclasses ----
    @staticmethod
    def _formula(now: Now) -> Result:
        """Returns the new value of a parameter, and its new state."""
        raise NotImplementedError

    def _names(self, group: ParamGroup) -> tuple[str, ...]:
        """Returns the names of the state that parameters of a group start with."""
        return self.slots

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        """Returns the initial state of one parameter."""
        return {name: Tensor.zeros_like(parameter) for name in self._names(group)}

    def _shared_starts(self, group: ParamGroup) -> Mapping[str, float]:
        """Returns the initial values of the shared state of a group."""
        return self.shared

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        """Returns numbers for the formula, in float64; may write shared state."""
        return ()

    def _flags(self, place: int) -> tuple[Op | float, ...]:
        """Returns numbers of a single parameter; the formula gets them before those of the step."""
        return ()

    # ---- a step ----
    def _start(self, places: Sequence[int], group: ParamGroup) -> None:
        device, starts = group.lr_tensor.device, self._shared_starts(group)
        shared = {name: Tensor(value, dtypes.float64, device=device) for name, value in starts.items()}
        for place, parameter in zip(places, group["params"]):
            state = {**shared, **self._state_of(parameter, group)}
            if state:
                self._keep(place, state)

    def _step(self) -> None:
        try:
            super()._step()
        finally:
            self._factors = {}  # they hold graphs, which cannot be pickled

    def _before(self, group: ParamGroup, places: list[int]) -> None:
        """Counts the step; parameters that have no gradient this time are split off, with a count of their own."""
        self._factors = {}
        if not self.shared:
            return
        self._split_off(set(places))
        lr = cast(group.lr_tensor.read(), dtypes.float64)
        dtypes_of: dict[int, set[DType]] = {}  # the dtypes of the parameters that share a count
        counts: dict[int, int] = {}
        for i in places:
            identity = id(self.state[i]["step"])
            counts[identity] = i
            dtypes_of.setdefault(identity, set()).add(self._members[i].dtype.compute_dtype)
        for identity, first in counts.items():
            shared = {name: self.state[first][name] for name in self.shared}
            step = shared["step"].read() + 1.0
            shared["step"].write("step", step)
            numbers = self._numbers(group, step, lr, shared)
            for dtype in dtypes_of[identity]:
                self._factors[identity, dtype] = tuple(stored(number, dtype) for number in numbers)

    def _split_off(self, chosen: set[int]) -> None:
        """Gives the chosen parameters shared state of their own if some that share it are not chosen."""
        sharing: dict[int, list[int]] = {}  # places of parameters, by the id of their count
        for place, own in self.state.items():
            sharing.setdefault(id(own["step"]), []).append(place)
        for sharers in sharing.values():
            counted = [place for place in sharers if place in chosen]
            if counted and len(counted) < len(sharers):
                split = {name: _split(self.state[counted[0]][name]) for name in self.shared}
                for place in counted:
                    self._keep(place, split)

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        state, flags = self.state.get(place, {}), self._flags(place)
        names = tuple(filter(state.__contains__, self.slots))
        count, dtype = id(state["step"]) if self.shared else 0, parameter.dtype.compute_dtype

        def read() -> tuple[Any, ...]:
            numbers = (*flags, *self._factors.get((count, dtype), ()))
            counts, settings, others = _settings_of(group, self.defaults)
            operands = (group.lr_tensor.read(), *numbers, *settings)
            return (type(self), names, others, len(numbers), counts), operands

        own, operands = self._updates.once((id(group), count, dtype, names, flags), read)
        self._updates.add(step_by_formula, own, [parameter, *[state[name] for name in names]], grad, operands)


def _settings_of(group: ParamGroup, names: Iterable[str]) -> tuple[Hashable, list[Any], Hashable]:
    """Returns the settings that formulas see, in three parts.

    Returns: (name, length) of each numeric setting, length None for a single number; the numbers, which later steps may
             change; and (name, value) of all other settings
    """
    counts: list[tuple[str, int | None]] = []
    numbers: list[Any] = []
    others: list[tuple[str, Any]] = []
    for name in names:
        value = tuple(group[name]) if isinstance(group[name], list) else group[name]
        parts = value if isinstance(value, tuple) else (value,)
        if name in ("lr", "maximize"):
            continue
        if name in group.changing or all(map(isinstance, parts, repeat(float))):
            counts.append((name, len(parts) if parts is value else None))
            numbers += group.numbers(name) if name in group.changing else parts
        else:
            others.append((name, value))
    return tuple(counts), numbers, tuple(others)


def step_by_formula(own: tuple[Any, ...], parameter: Op, *others: Any) -> list[Op]:
    """Applies an optimizer's formula to one parameter; returns its new value and state.

    Args:
      own:     the optimizer's class, names of the state, other settings as pairs, how many numbers the step has, and
               (name, length) of numeric settings
      others:  the state, the gradient, the learning rate, the numbers of the step, the numeric settings
    """
    owner, names, options, num_numbers, counts = own
    kept, (grad, rate, *rest) = others[: len(names)], others[len(names) :]
    value, d = computed(parameter, grad)
    given = [scalar(part, d) if isinstance(part, Op) else part for part in rest[num_numbers:]]
    settings, at = dict(options), 0
    for name, count in counts:
        settings[name] = given[at] if count is None else tuple(given[at : at + count])
        at += count or 1
    is_decoupled = settings.get("decoupled_weight_decay", owner.decoupled)
    if is_decoupled is not None:
        value, d = decayed_by(settings["weight_decay"], rate, value, d, is_decoupled)
    state = {name: cast(op, d.dtype) for name, op in zip(names, kept)}
    value, after = owner._formula(Now(value, d, state, rate, rest[:num_numbers], settings))
    state.update(after)
    return [value, *state.values()]


def check_betas(name: str, betas: tuple[float, float]) -> None:
    """Raises ArgumentError if a beta is outside [0, 1)."""
    for beta in betas:
        if not 0.0 <= beta < 1.0:
            raise ArgumentError(f"{name}: betas must be in [0, 1), got {betas}.")


def _split(count: Tensor) -> Tensor:
    """Returns a copy of a count; outside the current trace, unless the trace has changed the count."""
    op = count.cell.op
    if op.code is not OpCode.BUFFER or op.arg[0].memory is None:  # a graph, or a placeholder in a traced body
        return count.clone()
    with Mode(trace, None):
        return count.clone()


# ---- on Ops ----
def computed(value: Op, grad: Op) -> tuple[Op, Op]:
    """Returns a parameter and its gradient in the dtype in which the step is computed: float32 for 16-bit floats."""
    value = cast(value, value.dtype.compute_dtype)
    return value, cast(grad, value.dtype)


def nearer(mean: Op, d: Op, keep: float | Op) -> Op:
    """Returns the running mean m + (1 - keep) (d - m)."""
    return mean + (d - mean) * (-keep + 1.0)


def nearer_square(square: Op, d: Op, keep: float | Op) -> Op:
    """Returns the running mean of squares keep v + (1 - keep) d^2."""
    return square * keep + d * d * (-keep + 1.0)


def moments(now: Now) -> tuple[Op, Op, dict[str, Op]]:
    """Returns the running means of d and d^2, with the decay rates `betas`; and both as new state."""
    beta1, beta2 = now["betas"]
    mean = nearer(now.state["exp_avg"], now.d, beta1)
    square = nearer_square(now.state["exp_avg_sq"], now.d, beta2)
    return mean, square, {"exp_avg": mean, "exp_avg_sq": square}


def decayed_by(decay: float, lr: Op, value: Op, grad: Op, decoupled: bool) -> tuple[Op, Op]:
    """Returns parameter and gradient after weight decay: decoupled, of the parameter, or else added to the gradient."""
    if not decay:
        return value, grad
    if decoupled:
        return value * scalar(-(lr * decay) + 1.0, value), grad
    return value, grad + value * decay


def scalar(op: Op, like: Op) -> Op:
    """Returns a 0-d Op in the dtype of `like`, broadcast to its shape."""
    return broadcast_to(cast(op, like.dtype), like.shape)


def stored(op: Op, dtype: DType) -> Op:
    """Returns a 0-d Op that is stored, so that kernels read it instead of computing it for every element."""
    return Op(OpCode.CONTIGUOUS, dtype, (cast(op, dtype),))


def power(base: float | Op, exponent: Op) -> Op:
    """Returns base ** exponent; the exponent is a float64."""
    base = base if isinstance(base, Op) else Op(OpCode.CONST, exponent.dtype, (), base)
    return Op(OpCode.POW, exponent.dtype, (base, exponent))
