"""Parameter groups and what optimizers keep for each parameter.

In:    parameters, alone, named or in groups with settings
Out:   `ParamGroup`, `StateOf`; `new_group`, `printed`
Next:  picograd/optim/updates.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from picograd import dtype as dtypes
from picograd.annotations import shown
from picograd.errors import ArgumentError, ArgumentTypeError
from picograd.ir.op import Op
from picograd.tensor.arguments import listed, number
from picograd.tensor.build import broadcast_to, cast
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor

NOT_NEGATIVE = frozenset({"lr", "momentum", "weight_decay", "eps", "momentum_decay", "lr_decay", "rho", "alpha"})


class ParamGroup(dict[str, Any]):
    """Parameters that share their settings; group["lr"] = 0.1 also changes the buffer plans read.

    params:       list of tensors
    param_names:  their names, where they were given
    lr, ...:      settings of the optimizer, and whatever else the user keeps here

    Beside the dict stands what plans read of it:

    lr_tensor:    the learning rate
    changing:     numbers that a schedule changes, too, by the name of the setting
    parts:        where parameters are on several devices: by device, a group of those there, with the same settings
    """

    def __init__(self, settings: Mapping[str, Any]):
        super().__init__(settings)
        params = self["params"]
        wide = any(p.dtype is dtypes.float64 for p in params)
        device = params[0].device if params else None
        self.lr_tensor = Tensor(self["lr"], dtypes.float64 if wide else dtypes.float32, device=device)
        self.changing: dict[str, Tensor] = {}
        self.parts: dict[str, ParamGroup] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        buffer = self.lr_tensor if name == "lr" else self.changing.get(name)
        if buffer is not None:
            with no_grad():
                buffer.assign(Tensor(value, buffer.dtype, device=buffer.device))
        for part in self.parts.values() if name != "params" else ():
            part[name] = value

    def by_device(self) -> list[tuple[ParamGroup, list[int]]]:
        """Returns the group, or its part for each device that parameters are on, and which of the parameters those are."""
        places: dict[str, list[int]] = {}
        for i, parameter in enumerate(self["params"]):
            places.setdefault(parameter.device, []).append(i)
        if len(places) < 2:
            self.parts = {}
            return [(self, list(range(len(self["params"]))))]
        return [(self._part(device, [self["params"][i] for i in own]), own) for device, own in places.items()]

    def _part(self, device: str, params: list[Tensor]) -> ParamGroup:
        """Returns the group of the parameters on a device."""
        part = self.parts.get(device)
        if part is None:
            part = self.parts[device] = ParamGroup({**self, "params": params})
            for name in self.changing:
                part.let_change(name)
        part["params"] = params
        return part

    def let_change(self, name: str) -> None:
        """Has plans read a setting, a number or some, from a buffer: what changes from step to step is no constant."""
        if name not in self.changing:
            self.changing[name] = Tensor(self[name], dtypes.float64, device=self.lr_tensor.device)
        for part in self.parts.values():
            part.let_change(name)

    def value(self, name: str, like: Op) -> Any:
        """Returns a setting as formulas take it: its numbers, or where they change Ops of the dtype and shape of `like`."""
        if name not in self.changing:
            return self[name]
        ops = tuple([broadcast_to(cast(part, like.dtype), like.shape) for part in self.numbers(name)])
        return ops if self.changing[name].ndim else ops[0]

    def numbers(self, name: str) -> tuple[Any, ...]:
        """Returns the numbers of a setting; 0-d Ops where they change."""
        buffer = self.changing.get(name)
        if buffer is None:
            return self[name] if isinstance(self[name], tuple) else (self[name],)
        return tuple([part.read() for part in (buffer.unbind() if buffer.ndim else (buffer,))])

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
        return ParamGroup, (dict(self),), {"lr_tensor": self.lr_tensor, "changing": self.changing}


class StateOf(dict[int, dict[str, Any]]):
    """What is kept for each parameter, by its place among all; the parameter itself will do as key, too.

    As in a defaultdict, a parameter of which nothing is kept finds an empty dict that can be filled.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = optim.Adam([w])
    >>> sorted(optimizer.state[w]), optimizer.state[w] is optimizer.state[0]
    (['exp_avg', 'exp_avg_sq', 'step'], True)
    """

    def __init__(self, groups: Sequence[ParamGroup], kept: Mapping[int, dict[str, Any]] | None = None):
        super().__init__(kept or {})
        self.groups = groups

    def _place(self, key: Any) -> Any:
        if not isinstance(key, Tensor):
            return key
        places = (i for i, p in enumerate(p for group in self.groups for p in group["params"]) if p is key)
        place = next(places, None)
        if place is None:
            raise ArgumentError(f"state: a tensor of shape {key.shape} is not a parameter of this optimizer.")
        return place

    def __missing__(self, key: Any) -> dict[str, Any]:  # NOTE: a place that is there is found without a call of Python's
        place = self._place(key)
        if place is key:
            raise KeyError(key)
        return self.setdefault(place, {})

    def __setitem__(self, key: Any, kept: dict[str, Any]) -> None:
        super().__setitem__(self._place(key), kept)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._place(key))

    def __reduce__(self) -> tuple[Any, ...]:
        return StateOf, (self.groups, dict(self))


def new_group(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any], others: Iterable[ParamGroup]) -> ParamGroup:
    """Returns a group with the settings it does not have from defaults; `name` is the optimizer's, for errors.

    Raises:
      ArgumentError: see Optimizer.
    """
    if "params" not in given:
        raise ArgumentError(f'{name}: a group needs "params", got {sorted(given)}.', hint='{"params": [tensor], "lr": 0.1}')
    params, names = _split_names(name, given["params"])
    for tensor in params:
        if not isinstance(tensor, Tensor) or not tensor.is_leaf:
            raise ArgumentError(f"{name}: parameters must be leaf tensors, got {tensor!r}.")
    taken = {id(p) for group in others for p in group["params"]}
    for place, tensor in enumerate(params):
        if id(tensor) in taken:
            raise ArgumentError(f"{name}: parameter {place} of a group, {tensor.shape}, is in a group already.")
        taken.add(id(tensor))
    for group in others:
        if ("param_names" in group) != (names is not None):
            raise ArgumentError(f"{name}: either all parameters have names, or none.")
    settings = {**defaults, **given}
    if isinstance(settings.get("lr"), Tensor) and settings["lr"].numel() != 1:
        raise ArgumentError(f"{name}: lr must be one number, got shape {settings['lr'].shape}.")
    if not isinstance(settings.get("lr"), Tensor):
        number(name, "lr", settings.get("lr"))
    for setting in NOT_NEGATIVE & settings.keys():
        if isinstance(settings[setting], (int, float)) and not settings[setting] >= 0:  # NaN is not either
            raise ArgumentError(f"{name}: {setting} must not be negative, got {settings[setting]}.")
    return ParamGroup({**settings, "params": params, **({} if names is None else {"param_names": names})})


def _split_names(name: str, given: Any) -> tuple[list[Tensor], list[str] | None]:
    """Returns parameters and their names, where they came as (name, parameter)."""
    if not isinstance(given, Iterable):
        raise ArgumentTypeError(f"{name}: the params of a group must be tensors, got {shown(given)}.")
    items: list[Any] = listed(given)
    named = [isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in items]
    if not any(named):
        return items, None
    if not all(named):
        raise ArgumentError(f"{name}: either all parameters have names, or none.")
    return [tensor for _, tensor in items], [label for label, _ in items]


def printed(name: str, groups: Sequence[ParamGroup]) -> str:
    """Returns the settings of an optimizer's groups as text, in the form that PyTorch prints."""
    lines = [f"{name} ("]
    for place, group in enumerate(groups):
        lines.append(f"Parameter Group {place}")
        lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"] + [""]
    return "\n".join([*lines[:-1], ")"])
