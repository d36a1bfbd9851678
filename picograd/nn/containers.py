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

    _names:      names of the attributes that hold them
    _are_parts:  class of the attributes that are parts, however they were set
    """

    _names: tuple[str, ...] = ()
    _are_parts: type | tuple[()] = Module

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, self._are_parts):
            self._name_part(name)
        elif self._are_parts and isinstance(value, Tensor):
            self._forget_part(name)  # a parameter may replace a module of that name

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
        """Replaces all parts by these."""
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
    """Base of lists: parts named 0, 1, ..."""

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
        """Returns a container of this class with the named parts."""
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
            while str(number) in self._names:  # a slice keeps its names, and new ones follow
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
    """Modules (or functions) `layers`, applied in order; or one dict of them, which names them.

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
        return type(self)({name: getattr(self, name) for name in names})  # slices keep the names, as in PyTorch

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
        """Returns the layers repeated `count` times; the repeats share parameters."""
        if not is_integer(count):
            raise ArgumentTypeError(f"Sequential: can be multiplied by an integer, got {shown(count)}.")
        if count < 1:
            raise ArgumentError(f"Sequential: can be multiplied by 1 or more, got {count}.")
        return self._items() * count

    def __repr__(self) -> str:
        """Shows functions, too, by their names."""
        layers = [(name, getattr(self, name)) for name in self._names]
        texts = [(name, repr(x) if isinstance(x, Module) else getattr(x, "__name__", repr(x))) for name, x in layers]
        return _lines(self._get_name(), [f"({name}): {text}" for name, text in texts])

    def forward(self, input: Any) -> Any:  # noqa: A002
        """Passes input through all layers."""
        for name in self._names:
            input = getattr(self, name)(input)
        return input


def _sequential(items: object) -> Sequential:
    """Returns `items` if it is a Sequential, else raises ArgumentTypeError."""
    if not isinstance(items, Sequential):
        fact = f"Sequential: another Sequential can be added, got {shown(items)}."
        raise ArgumentTypeError(fact, hint="extend takes a list.")
    return items


class ModuleList(_Numbered):
    """A list of `modules`; the module that holds the list holds them.

    >>> len(ModuleList([nn.Linear(2, 3), nn.Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Module | None] | None = None):
        self._number(modules or ())

    def _of(self, names: tuple[str, ...]) -> Self:
        return type(self)(getattr(self, name) for name in names)

    def __repr__(self) -> str:
        """Prints equal neighbours once."""
        runs: list[tuple[str, int, int]] = []  # text, first and last index
        for place, text in enumerate(map(repr, self._items())):
            if runs and runs[-1][0] == text:
                runs[-1] = (text, runs[-1][1], place)
            else:
                runs.append((text, place, place))
        lines = [f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}" for text, a, b in runs]
        return _lines(self._get_name(), lines)


def _lines(name: str, lines: list[str]) -> str:
    """Returns the printed form of a container, each part on lines of its own."""
    return f"{name}(\n  " + "\n  ".join(line.replace("\n", "\n  ") for line in lines) + "\n)" if lines else f"{name}()"


class ParameterList(_Numbered):
    """A list of parameters, made of the tensors in `values`; other values, such as another list, stay as they are.

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
    """Base of dicts: parts by the user's names."""

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            parts = ", ".join(self._names) or "its 0 parts"
            raise IndexingError(f"{type(self).__name__}: there is no {name!r} among {parts}.")
        return getattr(self, name)

    def __setitem__(self, name: str, item: Any) -> None:
        if not isinstance(name, str) or "." in name or (name not in self._names and hasattr(self, name)):
            raise ArgumentError(f"{type(self).__name__}: {name!r} is taken, dotted or not a str.")
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
        """Adds `items`, a dict or pairs; they replace parts with the same names.

        Raises:
          ArgumentError: `items` is neither a dict nor pairs.

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
        """Removes all parts.

        >>> held = ModuleDict({"a": nn.Tanh()})
        >>> held.clear()
        >>> len(held)
        0
        """
        self._hold(())


class ModuleDict(_Named):
    """A dict of `modules`, given as a dict or as pairs; the module that holds the dict holds them.

    >>> ModuleDict({"a": nn.Tanh(), "b": nn.Identity()})["b"]
    Identity()
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        if modules is not None:
            self.update(modules)


class ParameterDict(_Named):
    """A dict of parameters, made of the tensors in `parameters` (a dict or pairs); other values stay as they are.

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
        """Adds `items`; a plain dict in the order of its names, as PyTorch does: the order of optimizers' state follows.

        >>> list(ParameterDict({"b": Tensor([1.0]), "a": Tensor([2.0])}))
        ['a', 'b']
        """
        if isinstance(items, Mapping) and not isinstance(items, OrderedDict):
            items = sorted(items.items(), key=itemgetter(0))
        super().update(items)

    def extra_repr(self) -> str:
        return _shown(self.items())


def _shown(items: Iterable[tuple[str, Any]]) -> str:
    """Returns the printed form of parts other than modules: tensors by their shapes."""
    plain = [(name, item) for name, item in items if not isinstance(item, Module)]
    return ", ".join(f"({name}): {item.shape if isinstance(item, Tensor) else item!r}" for name, item in plain)


def _parameter(item: Any) -> Any:
    """Returns a tensor as a parameter on the same storage; anything else unchanged."""
    return Parameter(item) if isinstance(item, Tensor) and not isinstance(item, Parameter) else item
