"""Parameters and buffers (tensors that know how a module holds them), and the attributes of modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from picograd.annotations import shown
from picograd.dtype import DType
from picograd.errors import ArgumentError, ArgumentTypeError, missing
from picograd.nn.init import uniform_
from picograd.tensor.cell import last_change
from picograd.tensor.first_values import begin_apart
from picograd.tensor.tensor import Tensor

__all__ = ["Buffer", "Parameter"]


def new_parameter(shape: tuple[int, ...], device: str | None, dtype: DType | None) -> Tensor:
    """Returns zeros that require grad."""
    return Tensor.zeros(shape, dtype=dtype, device=device, requires_grad=True)


def add_parameter(
    module: ModuleAttributes, name: str, shape: tuple[int, ...] | None, device: str | None, dtype: DType | None
) -> None:
    """Registers zeros that require grad; if `shape` is None, the name is registered without a parameter, as in PyTorch."""
    module.register_parameter(name, None if shape is None else new_parameter(shape, device, dtype))


def draw_evenly(fan_in: int, *parameters: Tensor | None) -> None:
    """Fills parameters, except those that are None, with uniform numbers in +-1 / sqrt(fan_in)."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
    for parameter in parameters:
        if parameter is not None:
            uniform_(parameter, -bound, bound)


class _ParameterType(type):
    """Metaclass of isinstance: parameters are tensors made or held as one, and every leaf that requires grad."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, Tensor):
            return False
        return getattr(instance, "_role", None) == "parameter" or (instance.requires_grad and instance.is_leaf)


class Parameter(Tensor, metaclass=_ParameterType):
    """A leaf on the storage of `data`, which a module trains once it is an attribute.

    The result is an ordinary Tensor; isinstance(p, Parameter) holds for every leaf that requires grad, since modules hold
    such leaves as parameters.

    Args:
      data:           floats; None: no elements
      requires_grad:  False: frozen, but still among a module's parameters

    >>> scale = nn.Parameter(Tensor([1.0]), requires_grad=False)
    >>> net = nn.Identity()
    >>> net.scale = scale
    >>> isinstance(scale, nn.Parameter), len(list(net.parameters()))
    (True, 1)
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Tensor:  # type: ignore[misc]
        if data is not None and not isinstance(data, Tensor):
            raise ArgumentError(f"Parameter: data must be a tensor, got {type(data).__name__}.", hint="Tensor(data)")
        leaf = (Tensor([]) if data is None else data).detach()
        leaf._role = "parameter"
        return leaf.requires_grad_() if requires_grad else leaf


class _BufferType(type):
    """Metaclass of isinstance: buffers are tensors made or held as one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_role", None) in ("buffer", "temporary")


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor on the storage of `data`, which is state of a module, but not trained, once it is an attribute.

    Args:
      data:        None: no elements
      persistent:  False: state_dict leaves it out

    >>> net = nn.Identity()
    >>> net.mean = nn.Buffer(Tensor([0.0]))
    >>> list(net.state_dict())
    ['mean']
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Tensor:  # type: ignore[misc]
        if data is not None and not isinstance(data, Tensor):
            raise ArgumentError(f"Buffer: data must be a tensor, got {type(data).__name__}.", hint="Tensor(data)")
        held = (Tensor([]) if data is None else data).detach()
        held._role = "buffer" if persistent else "temporary"
        begin_apart(held.cell)
        return held


# ---- attributes of modules ----
class HeldBy(MutableMapping[str, Any]):
    """A module's attributes of some kinds, by name; writing to it changes the module.

    >>> net = nn.Linear(1, 1)
    >>> net._parameters["bias"] = None
    >>> list(net._parameters), net.bias
    (['weight', 'bias'], None)
    """

    def __init__(self, module: ModuleAttributes, *kinds: str):
        """The attributes of `module` of the given `kinds`: parameter, buffer, temporary, module."""
        self._module, self._among = module, kinds

    def _names(self) -> list[str]:
        held = vars(self._module)
        if "module" in self._among:
            return [name for name, value in held.items() if isinstance(value, ModuleAttributes)]
        return [name for name, kind in self._module._kinds().items() if kind in self._among and name in held]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(name)
        return vars(self._module)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        module, kind = self._module, self._among[0]
        if kind == "module":
            setattr(module, name, value)
            return
        module._kinds().setdefault(name, kind)
        module._put(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self._names():
            raise KeyError(name)
        delattr(self._module, name)

    def replace(self, given: Mapping[str, Any]) -> None:
        """Replaces all attributes by the given ones."""
        given = dict(given)
        for name in self._names():
            if name not in given:
                del self[name]
        self.update(given)

    def __repr__(self) -> str:
        return repr(dict(self))


SHOWN = frozenset({"_parameters", "_buffers", "_modules"})


class ModuleAttributes:
    """Base of modules: attributes. Observers of modules (tensor/cell.py) see every change."""

    @property
    def _parameters(self) -> HeldBy:
        """The module's own parameters, as libraries for PyTorch read and replace them."""
        return HeldBy(self, "parameter")

    @_parameters.setter
    def _parameters(self, given: Mapping[str, Any]) -> None:
        HeldBy(self, "parameter").replace(given)

    @property
    def _buffers(self) -> HeldBy:
        """The module's own buffers."""
        return HeldBy(self, "buffer", "temporary")

    @_buffers.setter
    def _buffers(self, given: Mapping[str, Any]) -> None:
        HeldBy(self, "buffer", "temporary").replace(given)

    @property
    def _modules(self) -> HeldBy:
        """The module's own child modules."""
        return HeldBy(self, "module")

    @_modules.setter
    def _modules(self, given: Mapping[str, Any]) -> None:
        HeldBy(self, "module").replace(given)

    @property
    def _non_persistent_buffers_set(self) -> frozenset[str]:
        """Names of the module's own buffers that are not saved."""
        return frozenset(HeldBy(self, "temporary"))

    def __setattr__(self, name: str, value: Any) -> None:
        rule = ModuleAttributes.computed(self, name)
        if rule is not None and hasattr(rule, "store"):
            rule.store(self, value)
            return
        if name in SHOWN:
            object.__setattr__(self, name, value)
            return
        role = None
        if isinstance(value, Tensor):
            role = getattr(value, "_role", None)
            if role is None and value.requires_grad and value.is_leaf:
                role = value._role = "parameter"
            if role is not None:
                self._kinds()[name] = role
        if value is not None and role is None and self._kinds().get(name) == "parameter":
            owner = type(self).__name__
            raise ArgumentTypeError(
                f"{owner}.{name} is a parameter; only an nn.Parameter or None can replace it, got {shown(value)}.",
                hint=f"nn.Parameter(value); or {name}.copy_(value) within no_grad, which keeps the state of optimizers.",
            )
        if not isinstance(value, Tensor) and value is not None:
            kind, held = self._kinds().pop(name, None), self.__dict__.get(name)
            if isinstance(value, ModuleAttributes) and kind != "module" and not isinstance(held, ModuleAttributes):
                self.__dict__.pop(name, None)  # modules are in the order in which they became modules, as in PyTorch
        elif value is None and isinstance(self.__dict__.get(name), ModuleAttributes):
            self._kinds()[name] = "module"  # it keeps its place
        self._put(name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._kinds().pop(name, None)
        last_change.note()

    def __getattr__(self, name: str) -> Any:  # called only if there is no such attribute
        rule = ModuleAttributes.computed(self, name)
        if rule is None:
            raise missing(name, "picograd.nn.Module", self)
        return rule(self)

    # ---- attributes computed from others ----
    def computed(self, name: str) -> Any:
        """Returns the rule that computes the attribute `name`, or None.

        >>> print(nn.Linear(2, 3).computed("weight"))
        None
        """
        return self.__dict__.get("_attribute_rules", {}).get(name)

    def compute_attribute(self, name: str, rule: Callable[[Any], Tensor]) -> None:
        """Makes `rule`, a function of the module, compute the attribute `name` each time it is read.

        If the rule has store(module, value), assignments to the attribute call it.

        >>> net = nn.Linear(2, 3)
        >>> net.compute_attribute("columns", lambda module: module.weight.shape[1])
        >>> net.columns
        2
        """
        self._put("_attribute_rules", {**self.__dict__.get("_attribute_rules", {}), name: rule})

    def stop_computing(self, name: str) -> None:
        """Removes the rule of `name`.

        >>> net = nn.Linear(2, 3)
        >>> net.compute_attribute("columns", lambda module: module.weight.shape[1])
        >>> net.stop_computing("columns")
        >>> hasattr(net, "columns")
        False
        """
        rules = self.__dict__.get("_attribute_rules", {})
        self._put("_attribute_rules", {other: rule for other, rule in rules.items() if other != name})

    def _put(self, name: str, value: Any) -> None:
        """Sets an attribute without checking its kind."""
        object.__setattr__(self, name, value)
        last_change.note()

    def _kinds(self) -> dict[str, str]:
        """Returns the kinds of the state's attributes, by name."""
        return self.__dict__.setdefault("_state_kinds", {})

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Makes `tensor` part of the state under `name`, not trained; persistent=False leaves it out of state_dict.

        Raises:
          ArgumentError:     the name is taken, or has a dot.
          ArgumentTypeError: tensor is something else.

        >>> net = nn.Linear(1, 1)
        >>> net.register_buffer("mean", Tensor([0.0]))
        >>> sorted(net.state_dict())
        ['bias', 'mean', 'weight']
        """
        self._check_name("register_buffer", name)
        if not isinstance(tensor, Tensor | None):
            fact = f"register_buffer: {name} must be a tensor or None, got {shown(tensor)}."
            raise ArgumentTypeError(fact, hint="Tensor(value)")
        if tensor is not None:
            begin_apart(tensor.cell)
        self._put(name, tensor)
        self._kinds()[name] = "buffer" if persistent else "temporary"

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Makes `param`, an nn.Parameter or a leaf that requires grad, a parameter; None registers the name alone.

        Raises:
          ArgumentError: the name is taken, or has a dot; or param is neither.

        >>> net = nn.Linear(1, 1)
        >>> net.register_parameter("scale", Tensor([1.0], requires_grad=True))
        >>> len(list(net.parameters()))
        3
        """
        self._check_name("register_parameter", name)
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(
                f"register_parameter: {name} must be an nn.Parameter, or a leaf that requires grad.",
                hint="nn.Parameter(param)",
            )
        if param is not None:
            param._role = "parameter"  # even if it is frozen
        self._put(name, param)
        self._kinds()[name] = "parameter"

    def _check_name(self, function: str, name: str) -> None:
        if not name or "." in name or (hasattr(self, name) and name not in self._kinds()):
            raise ArgumentError(f"{function}: {name!r} is taken, empty or dotted.")
