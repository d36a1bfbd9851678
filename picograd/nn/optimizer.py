"""What every optimizer is: groups of parameters, state by parameter, and a step that is one plan.

In:    parameters with gradients
Out:   `Optimizer`, `ParamGroup`
Next:  picograd/nn/utils.py

What changes from step to step (learning rate, step count) is a buffer on the device, never a constant of the graph,
so that every step runs the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, JitError, PicogradError
from picograd.ir.op import Op
from picograd.nn.readers import realize_with_readers
from picograd.tensor.autograd import no_grad
from picograd.tensor.cell import trace
from picograd.tensor.compute import all_or_nothing
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor

NOT_NEGATIVE = frozenset({"lr", "momentum", "weight_decay", "eps", "momentum_decay", "lr_decay", "rho", "alpha"})
# What PyTorch offers to choose between its implementations. Here a step is always one plan, for jit too.
IMPLEMENTATIONS = frozenset({"foreach", "fused", "capturable", "differentiable"})


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

    def update(self, *settings: Any, **more: Any) -> None:
        """Sets several settings, as dict.update does.

        >>> group = optim.SGD([Tensor([1.0], requires_grad=True)]).param_groups[0]
        >>> group.update(lr=0.5)
        >>> group.lr_tensor.item()
        0.5
        """
        for name, value in dict(*settings, **more).items():
            self[name] = value

    def __ior__(self, settings: Any) -> Self:  # type: ignore[override, misc]  # dict's would not set the buffer
        self.update(settings)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ParamGroup, (dict(self),), {"lr_tensor": self.lr_tensor}


class Optimizer:
    """Base: parameter groups, state by parameter, and the one plan of a step.

    Args:
      params:    tensors, or groups: dicts of "params" and of settings that differ
      defaults:  every setting of a group, with the value it has where the group does not say

    Raises:
      ArgumentError: no parameters, one that is no leaf, or a group with a setting that is not in defaults, or one that
                     must not be negative and is.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = optim.Adam([{"params": [w], "lr": 0.5}], lr=0.1)
    >>> optimizer.lr, len(optimizer.param_groups)
    (0.5, 1)
    """

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]):
        given = list(params)
        if not given:
            raise ArgumentError(f"{type(self).__name__}: got no parameters.")
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        self.defaults = dict(defaults)
        self.param_groups = [self._group(group) for group in groups]
        # By place of the parameter among all. Another dict where a tensor is another one: so captured steps know.
        self.state: Mapping[int, Mapping[str, Tensor]] = {}
        self._made_in = trace.get()
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
        settings = {**self.defaults, **given}
        for name in NOT_NEGATIVE & settings.keys():
            if isinstance(settings[name], (int, float)) and not settings[name] >= 0:  # NaN is not either
                raise ArgumentError(f"{type(self).__name__}: {name} must not be negative, got {settings[name]}.")
        return ParamGroup({**settings, "params": params})

    # ---- what subclasses say ----
    def _start(self) -> None:
        """Makes the state, so that the first step has the same graph as every other."""

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        """Writes the new values of a parameter and its state."""
        raise NotImplementedError

    def _keep(self, place: int, tensors: Mapping[str, Tensor]) -> None:
        """Gives a parameter new state, beside what it has.

        Raises:
          JitError: the state is made by a function that is traced: later calls would not make it.
        """
        if any(tensor.cell.made_in not in (None, self._made_in) for tensor in tensors.values()):
            raise JitError(
                f"{type(self).__name__}: step() makes state ({', '.join(tensors)}) for parameter {place} in a function that"
                " is traced, whose later calls would not make it.",
                "make one such step before, without jit.",
            )
        self.state = {**self.state, place: {**self.state.get(place, {}), **tensors}}

    def _before(self, group: ParamGroup, places: list[int]) -> None:
        """Prepares what the parameters of a group that have gradients share."""

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Looks at keyword arguments that choose between PyTorch's implementations: none has an effect here.

        Raises:
          ArgumentError: another name, or differentiable=True: no gradient flows through a step.
        """
        for name, value in options.items():
            if name not in IMPLEMENTATIONS:
                raise ArgumentError(f"{type(self).__name__}: there is no setting {name}.")
            if name == "differentiable" and value:
                raise ArgumentError(f"{type(self).__name__}: differentiable=True: no gradient flows through a step.")

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
        """Yields the parameters of all groups in order.

        >>> len(list(optim.SGD([Tensor([1.0], requires_grad=True)]).parameters()))
        1
        """
        for group in self.param_groups:
            yield from group["params"]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients; with set_to_none=False makes them 0.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.sum().backward()
        >>> optim.SGD([w]).zero_grad()
        >>> w.grad is None
        True
        """
        for tensor in self.parameters():
            if set_to_none:
                tensor.grad = None
            elif tensor.grad is not None:
                tensor.grad.zero_()

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Updates all parameters that have gradients, in one plan with whatever still reads their old values.

        After an error parameters and state are what they were before.
        `closure`, where given, is called first and computes the loss, which is returned.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.sum().backward()
        >>> optim.SGD([w], lr=0.5).step()
        >>> w.item()
        0.5
        """
        loss = closure() if closure is not None else None
        before = self.state
        tensors = [*self.parameters(), *self._state_tensors()]
        try:
            with no_grad(), all_or_nothing([tensor.cell for tensor in tensors]):
                self._step()
        except PicogradError:
            self.state = before
            raise
        return loss

    def _step(self) -> None:
        """Updates group by group, then computes all of it with whoever reads the old values."""
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
                grad = parameter.grad.read()
                self._update(i, parameter, -grad if group.get("maximize") else grad, group)
        if trace.get() is None:
            realize_with_readers([*self.parameters(), *self._state_tensors()], old)

    def _state_tensors(self) -> list[Tensor]:
        return [tensor for state in self.state.values() for tensor in state.values()]

    # ---- saving ----
    def state_dict(self) -> dict[str, Any]:
        """Returns {"state": {place: {name: tensor}}, "param_groups": [settings with places for parameters]}.

        >>> optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.5).state_dict()["param_groups"][0]["lr"]
        0.5
        """
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

        A state_dict of PyTorch's optimizer of the same name will do: its tensors are copied, and settings that picograd
        does not have are left out.

        Raises:
          ArgumentError: the groups have other numbers of parameters.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, other = optim.SGD([w], lr=0.5), optim.SGD([w], lr=0.1)
        >>> other.load_state_dict(optimizer.state_dict())
        >>> other.lr
        0.5
        """
        groups = state_dict["param_groups"]
        own = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != own:
            raise ArgumentError(
                f"load_state_dict: groups of {[len(g['params']) for g in groups]} parameters do not fit {own}."
            )
        for group, saved in zip(self.param_groups, groups):
            for name, value in saved.items():
                if name in self.defaults or name == "initial_lr":
                    group[name] = tuple(value) if isinstance(value, list) else value
        loaded: dict[int, dict[Any, Tensor]] = {}  # by a tensor of the state before: what holds each value saved for it
        with no_grad():
            for place, saved in state_dict["state"].items():
                for name, value in saved.items():
                    if value is not None:  # as PyTorch's state may be
                        self._load(int(place), name, _as_tensor(value), loaded)

    def _load(self, place: int, name: str, tensor: Tensor, loaded: dict[int, dict[Any, Tensor]]) -> None:
        """Stores one tensor of a saved state. A count that parameters share is split where their saved ones differ."""
        own = self.state.get(place, {}).get(name)
        if own is None:
            self._keep(place, {name: tensor.clone().detach()})
            return
        holders, value = loaded.setdefault(id(own), {}), None if tensor.shape else tensor.item()
        if not holders:
            holders[value] = own.assign(tensor.to(own.device))
        elif value not in holders:
            holders[value] = tensor.clone().detach()
        if holders[value] is not own:
            self._keep(place, {name: holders[value]})


def _as_tensor(value: Any) -> Tensor:
    """Returns a number, an array or a tensor of another library as a Tensor."""
    if isinstance(value, Tensor):
        return value
    return Tensor(np.asarray(value.detach().cpu()) if hasattr(value, "detach") else np.asarray(value))
