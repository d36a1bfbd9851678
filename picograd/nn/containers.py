"""Modules that hold modules or parameters: Sequential, lists and dicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Self

from picograd.annotations import shown
from picograd.errors import ArgumentError, ArgumentTypeError, IndexingError
from picograd.nn.module import Module
from picograd.nn.parameter import Parameter
from picograd.tensor.build import is_integer
from picograd.tensor.tensor import Tensor

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Held(Module):
    """Base of containers: parts by name, in order.

    _names:      the attributes that hold them
    _are_parts:  the class of attributes that are parts, whether add_module or an assignment sets them
    """

    _names: tuple[str, ...] = ()
    _are_parts: type | tuple[()] = Module

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, self._are_parts):
            self._name_part(name)
        elif self._are_parts and isinstance(value, Tensor):
            self._forget_part(name)  # a parameter takes the name of a module

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._forget_part(name)

    def _forget_part(self, name: str) -> None:
        if name in self._names:
            self._names = tuple(other for other in self._names if other != name)

    def _name_part(self, name: str) -> None:
        if name not in self._names:
            self._names = (*self._names, name)

    def _hold(self, items: Iterable[tuple[str, Any]]) -> None:
        """Holds these, and nothing else."""
        items = list(items)
        for name in self._names:
            delattr(self, name)
        for name, item in items:
            setattr(self, name, item)
            self._name_part(name)

    def _items(self) -> list[Any]:
        return [getattr(self, name) for name in self._names]

    def __len__(self) -> int:
        return len(self._names)


class _Numbered(_Held):
    """Base of lists: parts by the names 0, 1, ..."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self._of(self._names[place])
        return getattr(self, self._names[self._place(place)])

    def __setitem__(self, place: int, item: Any) -> None:
        setattr(self, self._names[self._place(place)], item)

    def __delitem__(self, place: int | slice) -> None:
        items = self._items()
        del items[place]
        self._number(items)

    def __iadd__(self, items: Iterable[Any]) -> Self:
        return self.extend(items)

    def __add__(self, items: Iterable[Any]) -> Self:
        made = self._of(self._names)
        made._number([*self._items(), *items])
        return made

    def _of(self, names: tuple[str, ...]) -> Self:
        """Returns a container of this kind with the parts of these names."""
        raise NotImplementedError

    def _place(self, place: int) -> int:
        if not -len(self) <= place < len(self):
            raise IndexingError(f"{type(self).__name__}: index {place} is out of range for {len(self)} items.")
        return place % len(self)

    def _number(self, items: Iterable[Any]) -> None:
        self._hold((str(place), item) for place, item in enumerate(items))

    def append(self, item: Any) -> Self:
        """Adds one `item` at the end; returns self.

        >>> len(ModuleList([nn.Linear(2, 3)]).append(nn.Tanh()))
        2
        """
        return self.extend([item])

    def extend(self, items: Iterable[Any]) -> Self:
        """Adds `items` at the end; returns self.

        >>> len(ModuleList([nn.Linear(2, 3)]).extend([nn.Tanh(), nn.Tanh()]))
        3
        """
        for item in items:
            number = len(self)
            while str(number) in self._names:  # those of a slice go on from its start
                number += 1
            setattr(self, str(number), item)
            self._name_part(str(number))
        return self

    def insert(self, index: int, item: Any) -> Self:
        """Adds one `item` before place `index`; returns self.

        >>> ModuleList([nn.Tanh()]).insert(0, nn.Identity())[0]
        Identity()
        """
        items = self._items()
        items.insert(index, item)
        self._number(items)
        return self

    def pop(self, index: int = -1) -> Any:
        """Removes the part at place `index`, and returns it.

        >>> ModuleList([nn.Tanh(), nn.Identity()]).pop(0)
        Tanh()
        """
        items = self._items()
        item = items.pop(self._place(index))
        self._number(items)
        return item


class Sequential(_Numbered):
    """Modules (or functions) `layers`, one after the other; or one dict of them, which gives their names.

    Raises:
      ArgumentTypeError: one of them is a class.

    >>> net = Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> net(Tensor.ones(4, 2)).shape, len(net[:2])
    ((4, 1), 2)
    """

    def __init__(self, *layers: Module | Callable[[Tensor], Tensor] | Mapping[str, Module]):
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            self._hold(layers[0].items())
        else:
            for kind in (layer for layer in layers if isinstance(layer, type)):
                name = kind.__name__
                raise ArgumentTypeError(f"Sequential: {name} is a class, not a layer.", f"{name}(...) makes a layer.")
            self._number(layers)

    def _of(self, names: tuple[str, ...]) -> Self:
        return type(self)({name: getattr(self, name) for name in names})  # as in PyTorch, the names stay

    def __imul__(self, count: int) -> Self:
        self._number(self._times(count))
        return self

    def __add__(self, items: Iterable[Any]) -> Self:
        return super().__add__(_sequential(items))

    def __iadd__(self, items: Iterable[Any]) -> Self:
        return super().__iadd__(_sequential(items))

    def __mul__(self, count: int) -> Self:
        made = self._of(self._names)
        made._number(self._times(count))
        return made

    __rmul__ = __mul__

    def _times(self, count: int) -> list[Any]:
        """Returns the layers `count` times, the same ones each time."""
        if not is_integer(count):
            raise ArgumentTypeError(f"Sequential: can be multiplied by an integer, got {shown(count)}.")
        if count < 1:
            raise ArgumentError(f"Sequential: can be multiplied by 1 or more, got {count}.")
        return self._items() * count

    def __repr__(self) -> str:
        """Functions are shown as well, by their names."""
        layers = [(name, getattr(self, name)) for name in self._names]
        texts = [(name, repr(x) if isinstance(x, Module) else getattr(x, "__name__", repr(x))) for name, x in layers]
        return _lines(self._get_name(), [f"({name}): {text}" for name, text in texts])

    def forward(self, input: Any) -> Any:  # noqa: A002
        """input goes through all layers."""
        for name in self._names:
            input = getattr(self, name)(input)
        return input


def _sequential(items: object) -> Sequential:
    """Returns a Sequential that is added to another; ArgumentTypeError where it is not one."""
    if not isinstance(items, Sequential):
        fact = f"Sequential: another Sequential can be added, got {shown(items)}."
        raise ArgumentTypeError(fact, hint="extend takes a list.")
    return items


class ModuleList(_Numbered):
    """A list of `modules`, which are part of the module that holds it.

    >>> len(ModuleList([nn.Linear(2, 3), nn.Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Module | None] | None = None):
        self._number(modules or ())

    def _of(self, names: tuple[str, ...]) -> Self:
        return type(self)(getattr(self, name) for name in names)

    def __repr__(self) -> str:
        """Equal modules that follow each other are printed once."""
        runs: list[tuple[str, int, int]] = []  # text, first and last place
        for place, text in enumerate(map(repr, self._items())):
            if runs and runs[-1][0] == text:
                runs[-1] = (text, runs[-1][1], place)
            else:
                runs.append((text, place, place))
        lines = [f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}" for text, a, b in runs]
        return _lines(self._get_name(), lines)


def _lines(name: str, lines: list[str]) -> str:
    """Returns the printed form of a container: each of its parts on lines of its own."""
    return f"{name}(\n  " + "\n  ".join(line.replace("\n", "\n  ") for line in lines) + "\n)" if lines else f"{name}()"


class ParameterList(_Numbered):
    """A list of parameters, the tensors among `values`; anything else, such as a list of this kind, stays as it is.

    >>> [name for name, _ in ParameterList([Tensor([1.0]), ParameterList([Tensor([2.0])])]).named_parameters()]
    ['0', '1.0']
    """

    _are_parts = ()

    def __init__(self, values: Iterable[Any] | None = None):
        self._number(map(_parameter, values or ()))

    def _of(self, names: tuple[str, ...]) -> Self:
        return type(self)(getattr(self, name) for name in names)

    def __setitem__(self, place: int, item: Any) -> None:
        super().__setitem__(place, _parameter(item))

    def extend(self, items: Iterable[Any]) -> Self:
        """Adds `items` at the end, tensors as parameters; returns self.

        >>> len(ParameterList().extend([Tensor([1.0])]))
        1
        """
        return super().extend(map(_parameter, items))

    def extra_repr(self) -> str:
        return _shown(zip(self._names, self._items()))


class _Named(_Held):
    """Base of dicts: parts by the names that users give."""

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            parts = ", ".join(self._names) or "its 0 parts"
            raise IndexingError(f"{type(self).__name__}: there is no {name!r} among {parts}.")
        return getattr(self, name)

    def __setitem__(self, name: str, item: Any) -> None:
        if not isinstance(name, str) or "." in name or (name not in self._names and hasattr(self, name)):
            raise ArgumentError(f"{type(self).__name__}: {name!r} is taken, or no name without dots.")
        setattr(self, name, item)
        self._name_part(name)

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def keys(self) -> Iterable[str]:
        """Returns the names in order.

        >>> list(ModuleDict({"a": nn.Tanh()}).keys())
        ['a']
        """
        return self._names

    def values(self) -> Iterable[Any]:
        """Returns the parts, in order.

        >>> list(ModuleDict({"a": nn.Tanh()}).values())
        [Tanh()]
        """
        return self._items()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Returns names and parts.

        >>> list(ModuleDict({"a": nn.Tanh()}).items())
        [('a', Tanh())]
        """
        return list(zip(self._names, self._items()))

    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Adds `items`, a dict or pairs; they replace parts of the same names.

        Raises:
          ArgumentError: `items` is not a dict, and one of them is not a pair.

        >>> held = ModuleDict({"a": nn.Tanh()})
        >>> held.update({"b": nn.Identity()})
        >>> list(held)
        ['a', 'b']
        """
        pairs: Iterable[Any] = items.items() if isinstance(items, Mapping | _Named) else items
        for pair in [pairs] if isinstance(pairs, Tensor) else pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ArgumentError(f"{type(self).__name__}: takes a dict or pairs (name, part), got {shown(pair)}.")
            self[pair[0]] = pair[1]

    def pop(self, name: str) -> Any:
        """Removes the part with the name `name`, and returns it.

        >>> ModuleDict({"a": nn.Tanh()}).pop("a")
        Tanh()
        """
        item = self[name]
        self._hold([(other, held) for other, held in self.items() if other != name])
        return item

    def clear(self) -> None:
        """Lets go of everything.

        >>> held = ModuleDict({"a": nn.Tanh()})
        >>> held.clear()
        >>> len(held)
        0
        """
        self._hold(())


class ModuleDict(_Named):
    """A dict of `modules`, or pairs of a name and a module; they are part of the module that holds it.

    >>> ModuleDict({"a": nn.Tanh(), "b": nn.Identity()})["b"]
    Identity()
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        if modules is not None:
            self.update(modules)


class ParameterDict(_Named):
    """A dict of parameters, the tensors among `parameters` (a dict or pairs); anything else stays as it is.

    >>> [name for name, _ in ParameterDict({"scale": Tensor([1.0])}).named_parameters()]
    ['scale']
    """

    _are_parts = ()

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None):
        if parameters is not None:
            self.update(parameters)

    def __setitem__(self, name: str, item: Any) -> None:
        super().__setitem__(name, _parameter(item))

    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Adds `items`, those of a plain dict in the order of their names, as PyTorch does: states of optimizers follow it.

        >>> list(ParameterDict({"b": Tensor([1.0]), "a": Tensor([2.0])}))
        ['a', 'b']
        """
        if isinstance(items, Mapping) and not isinstance(items, OrderedDict):
            items = sorted(items.items(), key=itemgetter(0))
        super().update(items)

    def extra_repr(self) -> str:
        return _shown(self.items())


def _shown(items: Iterable[tuple[str, Any]]) -> str:
    """Returns the text of items other than modules: tensors by their shapes."""
    plain = [(name, item) for name, item in items if not isinstance(item, Module)]
    return ", ".join(f"({name}): {item.shape if isinstance(item, Tensor) else item!r}" for name, item in plain)


def _parameter(item: Any) -> Any:
    """Returns a tensor that is not a parameter as a leaf on its storage, anything else itself."""
    return Parameter(item) if isinstance(item, Tensor) and not isinstance(item, Parameter) else item
