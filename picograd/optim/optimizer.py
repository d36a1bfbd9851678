"""Optimizers: groups of parameters, state by parameter, and a step that is one plan.

Numbers that change from step to step (learning rate, step count) are buffers on the device, never constants of the graph,
so every step runs the same plan.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Self
from typing import cast as as_type

import numpy as np

from picograd import dtype as dtypes
from picograd.annotations import shown
from picograd.engine.realize import from_host
from picograd.errors import ArgumentError, ArgumentTypeError, JitError
from picograd.interrupts import held_back
from picograd.ir.build import cast
from picograd.ir.op import Op
from picograd.nn.hooks import registered
from picograd.nn.module_state import move
from picograd.optim.updates import Updates, realize_apart, realize_with_readers
from picograd.tensor.arguments import listed, number, saved_state
from picograd.tensor.build import broadcast_to
from picograd.tensor.cell import trace
from picograd.tensor.compute import all_or_nothing
from picograd.tensor.core import realize
from picograd.tensor.gradients import zero_grads
from picograd.tensor.hooks import RemovableHandle
from picograd.tensor.intake import array_of
from picograd.tensor.modes import Mode, no_grad
from picograd.tensor.tensor import Tensor

# ---- groups ----
NOT_NEGATIVE = frozenset({"lr", "momentum", "weight_decay", "eps", "momentum_decay", "lr_decay", "rho", "alpha"})


class ParamGroup(dict[str, Any]):
    """Parameters that share their settings; group["lr"] = 0.1 also writes the buffer that plans read.

    A learning rate that is a tensor is read at each step, and schedules write it in place.

    params:       list of tensors
    param_names:  their names, if given
    lr, ...:      settings of the optimizer, and any entries of the user; a subclass with its own step() may have no lr

    Attributes:

    lr_tensor:    the learning rate, as plans read it
    changing:     tensors, by setting, of other numbers that a schedule changes
    parts:        if parameters are on several devices: a group per device, with the same settings
    """

    def __init__(self, settings: Mapping[str, Any]):
        super().__init__(settings)
        device = self["params"][0].device if self["params"] else None
        self.lr_tensor = Tensor(self.get("lr") or 0.0, self._rate_dtype(), device=device)
        self.changing: dict[str, Tensor] = {}
        self.parts: dict[str, ParamGroup] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        buffer = self.lr_tensor if name == "lr" else self.changing.get(name)
        if buffer is not None and value is not None:
            self._copy(value, buffer)
        for part in self.parts.values() if name != "params" else ():
            part[name] = value

    @staticmethod
    def _copy(value: Any, buffer: Tensor) -> None:
        cell = buffer.cell
        if isinstance(value, (int, float)) and cell.device is not None and trace.get() is None:  # from a schedule
            cell.op = from_host(np.full(buffer.shape, value), buffer.dtype, cell.device)
            return
        with no_grad():
            buffer.assign(Tensor(value, buffer.dtype, device=buffer.device).reshape(buffer.shape))

    def _rate_dtype(self) -> dtypes.DType:
        return dtypes.float64 if any(p.dtype is dtypes.float64 for p in self["params"]) else dtypes.float32

    def follow(self) -> None:
        """Moves the numbers that plans read to the device of the parameters."""
        for tensor in (self.lr_tensor, *self.changing.values()):
            move(tensor, (self["params"][0].device,))
        if self.lr_tensor.dtype is not self._rate_dtype():
            move(self.lr_tensor, (self._rate_dtype(),))
            self._copy(self.rate(), self.lr_tensor)

    def rate(self) -> float:
        """Returns the learning rate as a Python number."""
        return float(self["lr"]) if isinstance(self["lr"], Tensor) else self["lr"]

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate; a tensor is written in place."""
        if isinstance(self["lr"], Tensor):
            with no_grad():
                self["lr"].fill_(rate)
        else:
            self["lr"] = rate

    def read_settings(self) -> None:
        """Copies settings that are tensors, which users may have written in place, to the buffers that plans read."""
        for name, buffer in (("lr", self.lr_tensor), *self.changing.items()):
            if isinstance(self[name], Tensor):
                self._copy(self[name], buffer)

    def by_device(self) -> list[tuple[ParamGroup, list[int]]]:
        """Returns (group, places of its parameters) for each device: the group itself, or its parts if there are many."""
        places: dict[str, list[int]] = {}
        for i, parameter in enumerate(self["params"]):
            places.setdefault(parameter.device, []).append(i)
        if len(places) < 2:
            self.parts = {}
            return [(self, list(range(len(self["params"]))))]
        return [(self._part(device, [self["params"][i] for i in own]), own) for device, own in places.items()]

    def _part(self, device: str, params: list[Tensor]) -> ParamGroup:
        """Returns the part of this group for the parameters on a device."""
        part = self.parts.get(device)
        if part is None:
            part = self.parts[device] = ParamGroup({**self, "params": params})
            for name in self.changing:
                part.let_change(name)
        part["params"] = params
        return part

    def let_change(self, name: str) -> None:
        """Keeps a setting, one number or several, in a buffer that plans read, so that changing it needs no other plan."""
        if name not in self.changing:
            self.changing[name] = Tensor(self[name], dtypes.float64, device=self.lr_tensor.device)
        for part in self.parts.values():
            part.let_change(name)

    def value(self, name: str, like: Op) -> Any:
        """Returns a setting for formulas: its numbers, or, if they change, Ops of the dtype and shape of `like`."""
        if name not in self.changing:
            return self[name]
        ops = tuple([broadcast_to(cast(part, like.dtype), like.shape) for part in self.numbers(name)])
        return ops if self.changing[name].ndim else ops[0]

    def numbers(self, name: str) -> tuple[Any, ...]:
        """Returns the numbers of a setting; 0-d Ops if they change."""
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
    """State of each parameter; a key is its place among all parameters, or the parameter itself.

    As in a defaultdict, a parameter without state gets an empty dict.

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

    def __missing__(self, key: Any) -> dict[str, Any]:  # NOTE: dict finds other keys without Python
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
    """Returns a group; settings that it lacks come from `defaults`. Errors begin with `name`, the optimizer's.

    Raises:
      ArgumentError: see Optimizer.
    """
    if "params" not in given:
        raise ArgumentError(f'{name}: a group needs "params", got {sorted(given)}.', hint='{"params": [tensor], "lr": 0.1}')
    params, names = _split_names(name, given["params"])
    for tensor in params:
        if not isinstance(tensor, Tensor) or not tensor.is_leaf:
            of_dict = "model.parameters(), or model.named_parameters(); for a dict its values()."
            hint = of_dict if isinstance(tensor, str) else "make a leaf of a result: x.detach().requires_grad_()."
            raise ArgumentError(f"{name}: parameters must be leaf tensors, got {shown(tensor)}.", hint)
    taken = {id(p) for group in others for p in group["params"]}
    for place, tensor in enumerate(params):
        if id(tensor) in taken:
            raise ArgumentError(f"{name}: parameter {place} of a group, {tensor.shape}, is already in a group.")
        taken.add(id(tensor))
    for group in others:
        if ("param_names" in group) != (names is not None or "param_names" in given):
            raise ArgumentError(f"{name}: give names to all parameters, or to none.")
    settings = {**defaults, **given}
    if isinstance(settings.get("lr"), Tensor) and settings["lr"].numel() != 1:
        raise ArgumentError(f"{name}: lr must be one number, got shape {settings['lr'].shape}.")
    if not isinstance(settings.get("lr"), Tensor | None):
        number(name, "lr", settings["lr"])
    for setting in NOT_NEGATIVE & settings.keys():
        if isinstance(settings[setting], (int, float)) and not settings[setting] >= 0:  # also refuses NaN
            raise ArgumentError(f"{name}: {setting} must not be negative, got {settings[setting]}.")
    return ParamGroup({**settings, "params": params, **({} if names is None else {"param_names": names})})


def _split_names(name: str, given: Any) -> tuple[list[Tensor], list[str] | None]:
    """Splits (name, parameter) pairs into parameters and names; names are None for plain parameters."""
    if not isinstance(given, Iterable):
        raise ArgumentTypeError(f"{name}: the params of a group must be tensors, got {shown(given)}.")
    items: list[Any] = listed(given)
    named = [isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in items]
    if not any(named):
        return items, None
    if not all(named):
        raise ArgumentError(f"{name}: give names to all parameters, or to none.")
    return [tensor for _, tensor in items], [label for label, _ in items]


def printed(name: str, groups: Sequence[ParamGroup]) -> str:
    """Returns the settings of an optimizer's groups as text, in PyTorch's form."""
    lines = [f"{name} ("]
    for place, group in enumerate(groups):
        lines.append(f"Parameter Group {place}")
        lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"] + [""]
    return "\n".join([*lines[:-1], ")"])


# ---- optimizers ----
# Options that choose between PyTorch's implementations. Here a step is always one plan, also under jit.
IMPLEMENTATIONS = frozenset({"foreach", "fused", "capturable", "differentiable"})


class Optimizer:
    """Base: parameter groups, state by parameter, and the one plan of a step.

    Args:
      params:    tensors, (name, tensor) pairs, or groups: dicts of "params" and of settings that differ
      defaults:  every setting of a group, with its default

    A subclass defines `_update`, or step() itself, as in PyTorch: self.param_groups are dicts, and self.state[p] is a dict
    for each parameter p.

    Raises:
      ArgumentTypeError: a single tensor instead of a list, or a setting that is not a number.
      ArgumentError: no parameters, one that is not a leaf or occurs twice, names for only some of them, or a negative value
                     of a setting that must not be negative.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = optim.Adam([{"params": [w], "lr": 0.5}], lr=0.1)
    >>> optimizer.lr, len(optimizer.param_groups)
    (0.5, 1)
    """

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]):
        if isinstance(params, Tensor):
            name = type(self).__name__
            raise ArgumentTypeError(f"{name}: params must be several tensors, got one.", hint=f"{name}([tensor], ...)")
        given = list(params)
        if not given:
            hint = "an iterator can be read once: use list(model.parameters()) to read it twice."
            raise ArgumentError(f"{type(self).__name__}: got no parameters.", hint)
        self.defaults = dict(defaults)
        self.param_groups: list[ParamGroup] = []
        # By place among all parameters. Replaced, never changed, when a tensor is replaced: captured steps compare it.
        self.state = StateOf(self.param_groups)
        self._made_in = trace.get()
        self._members: list[Tensor] = []  # the parameters in the order that `state` follows
        self._homes: Sequence[tuple[str, dtypes.DType]] = ()  # (device, dtype) of the parameters that `state` follows
        self._updates = Updates()  # the updates of the step in progress
        for group in given if isinstance(given[0], Mapping) else [{"params": given}]:
            if type(self).add_param_group is Optimizer.add_param_group:
                self._add(group)
            else:
                self.add_param_group(group)
        realize_apart([*self.parameters(), *self._state_tensors()])

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Adds a group: `param_group`, a dict with "params"; settings that it lacks are the optimizer's.

        Raises:
          ArgumentError: see the class.

        >>> first, second = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=True)
        >>> optimizer = optim.SGD([first], lr=0.1)
        >>> optimizer.add_param_group({"params": second, "lr": 0.5})
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.1, 0.5]
        """
        self._add(param_group)
        realize_apart([*self.param_groups[-1]["params"], *self._state_tensors()])

    def _add(self, given: Mapping[str, Any]) -> None:
        self._order_state()
        group = new_group(type(self).__name__, given, self.defaults, self.param_groups)
        first = sum(len(other["params"]) for other in self.param_groups)
        self.param_groups.append(group)
        for part, places in group.by_device():
            self._start([first + i for i in places], part)
        self._members = list(self.parameters())

    # ---- declared by subclasses ----
    def _start(self, places: Sequence[int], group: ParamGroup) -> None:
        """Makes the state of a group's parameters before the first step, so that all steps have the same graph.

        All parameters of `group`, here and in the methods below, are on one device.
        """

    def _update(self, place: int, parameter: Tensor, grad: Op, group: ParamGroup) -> None:
        """Writes the new values of a parameter and its state."""
        raise NotImplementedError

    def _keep(self, place: int, tensors: Mapping[str, Any]) -> None:
        """Adds new state of a parameter, mostly tensors.

        Raises:
          JitError: a traced function makes the state, and its later calls would not.
        """
        made = [value.cell.made_in for value in tensors.values() if isinstance(value, Tensor)]
        if any(trace_of not in (None, self._made_in) for trace_of in made):
            raise JitError(
                f"{type(self).__name__}: step() makes state ({', '.join(tensors)}) for parameter {place} in a function that"
                " is traced, whose later calls would not make it.",
                "call one step without jit before.",
            )
        self.state = StateOf(self.param_groups, {**self.state, place: {**self.state.get(place, {}), **tensors}})

    def _before(self, group: ParamGroup, places: list[int]) -> None:
        """Prepares values that the parameters of a group share in a step."""

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Checks keyword arguments that choose between PyTorch's implementations; none has an effect here.

        Raises:
          ArgumentError: an unknown name, or differentiable=True: no gradient flows through a step.
        """
        for name, value in options.items():
            if name not in IMPLEMENTATIONS:
                raise ArgumentError(f"{type(self).__name__}: has no setting {name}.")
            if name == "differentiable" and value:
                raise ArgumentError(f"{type(self).__name__}: differentiable=True: no gradient flows through a step.")

    # ---- for users ----
    @property
    def lr(self) -> float:
        """Learning rate of the first group; setting it changes all groups."""
        own = vars(self)
        groups = own.get("param_groups", ())
        if "lr" in own and not (groups and "lr" in groups[0]):  # a subclass defines its own
            return own["lr"]
        return groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        groups = vars(self).get("param_groups")
        if groups is None:  # the constructor of Optimizer has not run yet
            vars(self)["lr"] = value
        for group in groups or ():
            group["lr"] = value

    def parameters(self) -> Iterator[Tensor]:
        """Returns an iterator over the parameters of all groups, in order.

        >>> len(list(optim.SGD([Tensor([1.0], requires_grad=True)]).parameters()))
        1
        """
        return iter([tensor for group in self.param_groups for tensor in group["params"]])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients; set_to_none=False sets them to 0 instead.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.sum().backward()
        >>> optim.SGD([w]).zero_grad()
        >>> w.grad is None
        True
        """
        zero_grads(self.parameters(), set_to_none)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Updates all parameters that have gradients, in one plan with pending results that read their old values.

        After an error, parameters and state are as before.
        `closure`, if given, is called first and computes the loss, which is returned.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.sum().backward()
        >>> optim.SGD([w], lr=0.5).step()
        >>> w.item()
        0.5
        """
        self._follow()
        closure = self._before_step(closure)
        loss = closure() if closure is not None else None
        before, cells = self.state, [tensor.cell for tensor in (*self.parameters(), *self._state_tensors())]
        with held_back() as hold:
            try:
                with no_grad(), all_or_nothing(cells):
                    hold.let_in(self._step)
            except BaseException:
                self.state = before
                raise
        for hook in list(vars(self).get("_step_post_hooks", {}).values()):
            hook.call(self, () if closure is None else (closure,), {})
        return loss

    def _follow(self) -> None:
        """Moves state to the devices and dtypes of the parameters if a module was moved or cast; never part of a trace."""
        self._order_state()
        homes = [(parameter.device, parameter.dtype) for parameter in self.parameters()]
        if homes == self._homes:
            return
        with Mode(trace, None):
            parts = [part for group in self.param_groups for part, _ in group.by_device() if part["params"]]
            for part in parts:
                part.follow()
            self._move_state(homes)
        self._homes = homes

    def _order_state(self) -> None:
        """Keeps each parameter's state if parameters were removed from groups or changed places.

        A new parameter inherits the state of the one it replaced, if that is gone.
        """
        parameters, before = list(self.parameters()), self._members
        if len(parameters) == len(before) and all(map(is_, parameters, before)):
            return
        place_of, present = {id(parameter): place for place, parameter in enumerate(before)}, {*map(id, parameters)}
        gone = {place for number, place in place_of.items() if number not in present}
        old = [place_of.get(id(parameter), i if i in gone else None) for i, parameter in enumerate(parameters)]
        kept: dict[Any, dict[str, Any]] = {key: value for key, value in self.state.items() if key not in range(len(before))}
        kept |= {new: self.state[place] for new, place in enumerate(old) if place is not None and place in self.state}
        self.state, self._members = StateOf(self.param_groups, kept), parameters

    def _move_state(self, homes: Sequence[tuple[str, dtypes.DType]]) -> None:
        """Gives state the device and dtype of its parameter; a count shared by several devices becomes one per device."""
        kept_by: dict[int, list[tuple[int, str, Tensor]]] = {}
        for place, kept in self.state.items():
            for name, value in kept.items():
                if isinstance(value, Tensor):
                    kept_by.setdefault(id(value), []).append((place, name, value))
        for holders in kept_by.values():
            (place, _, tensor), devices = holders[0], dict.fromkeys(homes[place][0] for place, _, _ in holders)
            if len(devices) == 1:
                move(tensor, homes[place] if tensor.ndim else tuple(devices))  # counts keep their dtype
                continue
            copies = {device: tensor if device == tensor.device else tensor.detach().to(device) for device in devices}
            for place, name, _ in holders:
                self._keep(place, {name: copies[homes[place][0]]})
        realize(self._state_tensors())

    def _before_step(self, closure: Callable[[], Tensor] | None) -> Callable[[], Tensor] | None:
        """Calls the hooks that run before a step; returns the closure, which they may replace."""
        for hook in list(vars(self).get("_step_pre_hooks", {}).values()):
            changed = hook.call(self, () if closure is None else (closure,), {})
            if changed is not None:
                args, options = changed
                closure = args[0] if args else options.get("closure")
        return closure

    def _step(self) -> None:
        """Updates group by group and device by device, then computes all updates with the readers of old values."""
        grads = {id(tensor): tensor.grad for tensor in self.parameters()}
        old = [tensor.op for tensor in self.parameters() if grads[id(tensor)] is not None]
        try:
            self._update_groups(grads)
            updates = self._updates
        finally:
            self._updates = Updates()
        values = updates.values() if trace.get() is None else None
        if values is None:
            updates.write()
        if trace.get() is None:
            realize_with_readers([*self.parameters(), *self._state_tensors()], old, values or {})

    def _update_groups(self, grads: Mapping[int, Tensor | None]) -> None:
        """Updates the parameters that have gradients.

        Args:
          grads:  by id of the parameter
        """
        place = 0
        for group in self.param_groups:
            for part, places in group.by_device():
                chosen = [(place + i, p) for i, p in zip(places, part["params"]) if grads[id(p)] is not None]
                if not chosen:
                    continue
                part.read_settings()
                self._before(part, [i for i, _ in chosen])
                for i, parameter in chosen:
                    grad = as_type(Tensor, grads[id(parameter)]).read()
                    self._update(i, parameter, -grad if part.get("maximize") else grad, part)
            place += len(group["params"])

    def _state_tensors(self) -> list[Tensor]:
        return [value for kept in self.state.values() for value in kept.values() if isinstance(value, Tensor)]

    def __repr__(self) -> str:
        return printed(type(self).__name__, self.param_groups)

    # ---- hooks ----
    def _call_hooks(self, place: str, *state: Any) -> Any:
        """Calls the hooks named `place`; returns their state argument, which they may replace."""
        for hook in list(vars(self).get(place, {}).values()):
            changed = hook.call(self, *state)
            state = state if changed is None else (changed,)
        return state[0] if state else None

    def register_state_dict_pre_hook(self, hook: Callable[..., None], prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer) before every state_dict().

        Args:
          prepend:  call it before earlier hooks

        Returns:   a handle whose remove() removes `hook`

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)])
        >>> handle = optimizer.register_state_dict_pre_hook(lambda optimizer: print("asked for"))
        >>> sorted(optimizer.state_dict())
        asked for
        ['param_groups', 'state']
        """
        return registered(self, "_state_dict_pre_hooks", hook, prepend, False)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer, state_dict) after every state_dict(); it may change the dict, or return another.

        Args:
          prepend:  call it before earlier hooks

        Returns:   a handle whose remove() removes `hook`

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)])
        >>> handle = optimizer.register_state_dict_post_hook(lambda optimizer, state: {**state, "epoch": 3})
        >>> optimizer.state_dict()["epoch"]
        3
        """
        return registered(self, "_state_dict_post_hooks", hook, prepend, False)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer, state_dict) before a state is loaded; its result, if not None, is loaded instead.

        Args:
          hook:     gets a shallow copy of the dict, whose entries it may replace
          prepend:  call it before earlier hooks

        Returns:   a handle whose remove() removes `hook`

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
        >>> handle = optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: print(sorted(state)))
        >>> optimizer.load_state_dict(optimizer.state_dict())
        ['param_groups', 'state']
        """
        return registered(self, "_load_state_dict_pre_hooks", hook, prepend, False)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None], prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer) after a state was loaded.

        Args:
          prepend:  call it before earlier hooks

        Returns:   a handle whose remove() removes `hook`

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
        >>> handle = optimizer.register_load_state_dict_post_hook(lambda optimizer: print(optimizer.lr))
        >>> optimizer.load_state_dict(optimizer.state_dict())
        0.5
        """
        return registered(self, "_load_state_dict_post_hooks", hook, prepend, False)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls hook(optimizer, args, kwargs) before every step; its result, if not None, replaces args and kwargs.

        Returns:   a handle whose remove() removes `hook`

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)])
        >>> handle = optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: print("a step"))
        >>> optimizer.step()
        a step
        """
        return registered(self, "_step_pre_hooks", hook, False, False)

    def register_step_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls hook(optimizer, args, kwargs) after every step.

        Returns:   a handle whose remove() removes `hook`

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)])
        >>> handle = optimizer.register_step_post_hook(lambda optimizer, args, kwargs: print("stepped"))
        >>> optimizer.step()
        stepped
        """
        return registered(self, "_step_post_hooks", hook, False, False)

    # ---- saving ----
    def state_dict(self) -> dict[str, Any]:
        """Returns {"state": {place: {name: tensor}}, "param_groups": [settings with places for parameters]}.

        The form is PyTorch's: places count the parameters of all groups. Tensors are copies.

        >>> optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.5).state_dict()["param_groups"][0]["lr"]
        0.5
        """
        self._call_hooks("_state_dict_pre_hooks")
        self._order_state()
        groups = []
        place = 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**group, "params": list(range(place, place + count))})
            place += count
        state = _copied(dict(self.state))  # with entries that a user has added
        return self._call_hooks("_state_dict_post_hooks", {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads state and settings of another optimizer of the same class and with the same parameters.

        A state_dict of PyTorch's optimizer of the same name works: its tensors are copied, and options that choose between
        implementations (foreach, fused, ...) are ignored.

        Raises:
          ArgumentError: the groups differ in their numbers of parameters.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> optimizer, other = optim.SGD([w], lr=0.5), optim.SGD([w], lr=0.1)
        >>> other.load_state_dict(optimizer.state_dict())
        >>> other.lr
        0.5
        """
        if isinstance(state_dict, Mapping):
            state_dict = self._call_hooks("_load_state_dict_pre_hooks", dict(state_dict))
        state_dict = saved_state(self, state_dict, "param_groups", "state")
        self._order_state()
        groups = state_dict["param_groups"]
        own = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != own:
            raise ArgumentError(
                f"load_state_dict: groups of {[len(g['params']) for g in groups]} parameters do not fit {own}."
            )
        for group, saved in zip(self.param_groups, groups):
            for name, value in saved.items():
                if name not in IMPLEMENTATIONS and name not in ("params", "param_names"):
                    group[name] = tuple(value) if isinstance(value, list) else value
        loaded: dict[int, dict[Any, Tensor]] = {}  # by id of an old tensor: new tensors, by the value saved
        with no_grad():
            for place, saved in state_dict["state"].items():
                if not isinstance(saved, Mapping):
                    self.state[place] = _copied(saved)
                    continue
                for name, value in saved.items():
                    own_value = self.state.get(int(place), {}).get(name)
                    if isinstance(own_value, Tensor) and value is not None:  # PyTorch's state may hold None
                        self._load(int(place), name, own_value, _as_tensor(value), loaded)
                    elif value is not None:
                        self._keep(int(place), {name: _copied(value)})
        self._call_hooks("_load_state_dict_post_hooks")

    def _load(self, place: int, name: str, own: Tensor, tensor: Tensor, loaded: dict[int, dict[Any, Tensor]]) -> None:
        """Loads one tensor of a saved state. A count that parameters share is split if their saved counts differ."""
        if tensor.shape == (1,) and own.shape == ():  # a count, as PyTorch before 0.4 saved it
            tensor = tensor.reshape(())
        holders, value = loaded.setdefault(id(own), {}), None if tensor.shape else tensor.item()
        if not holders:
            holders[value] = own.assign(tensor.to(own.device))
        elif value not in holders:
            holders[value] = tensor.clone().detach()
        if holders[value] is not own:
            self._keep(place, {name: holders[value]})


def _copied(value: Any) -> Any:
    """Returns a copy of saved state: a tensor of any library, a plain value, a list or a dict of these."""
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    is_tensor = isinstance(value, (Tensor, np.ndarray)) or hasattr(value, "detach")
    return _as_tensor(value).clone().detach() if is_tensor else copy.copy(value)


def _as_tensor(value: Any) -> Tensor:
    """Returns a number, an array or a tensor of another library as a Tensor."""
    return value if isinstance(value, Tensor) else Tensor(array_of(value))
