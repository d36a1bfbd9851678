"""The quick half of the check that a captured function may be replayed: is every object it depends on still the same one?

In:    Guards, at a moment when they hold
Out:   `Watched`
Called by: transforms/jit.py, transforms/capture.py.    Next: picograd/transforms/guards.py

Guards say which names must keep their meaning. In nearly every call each name still refers to the same object, and
comparing identities is fast: many names take one call of a C function. Only where a name refers to another object do the
guards themselves decide whether that object is an equal one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import call, is_not
from types import CellType
from typing import Any

from picograd.tensor.cell import Cell, View
from picograd.tensor.tensor import Tensor
from picograd.transforms.guards import Entry, Guards
from picograd.transforms.mentions import Read, is_fixed, source_of
from picograd.transforms.tokens import MISSING, PLAIN, SEQUENCES, Function, Same

Holds = Callable[[], bool]
Meant = tuple[Read, Any]  # how a name is read, and what it means now
_END = object()
FIXED = (*PLAIN, weakref.ref, Same, Function)  # tokens of objects that mean the same for as long as they are the same ones


class Watched:
    """The state that guards depend on, as it is now, in the form that is quickest to look at.

    asks:  there is something to look at where nothing has changed in any Module
    """

    def __init__(self, guards: Guards, also: Sequence[Holds] = ()):
        """Sorts what guards ask by how it is asked: attributes, variables of closures, items of lists; `also` what else."""
        self._modules = partial(_read_objects, *_columns(_attributes(guards.parts)))
        self._tensors = [tensor for tensor, *_ in guards.modes]
        self._steps = [tensor.steps for tensor in self._tensors]
        self._hooks = [(held, tuple(held.values())) for held, _ in guards.hooks]
        self._names = [(attributes, frozenset(attributes)) for attributes, *_ in guards.names]
        objects, lists, self._checks = _to_ask(guards)
        self._checks += also
        lists = [one for one in lists if isinstance(one[1], SEQUENCES)]  # what is no list any more breaks its guard
        # All lists are compared as one line of items. Each ends with _END: otherwise [a, b], [c] would equal [a], [b, c].
        self._lists = [part for _, items in lists for part in (items, (_END,))]
        self._held = [*chain(*self._lists)]
        self._attributes: list[tuple[dict[str, Any], str, Any]] = []
        self._variables: list[tuple[CellType, Any]] = []
        for read, meant in [*objects, *[one for one in lists if not is_fixed(one[0])]]:
            source = source_of(read)
            if source is None or meant is MISSING:
                self._checks.append(partial(_means, read, meant))
            elif isinstance(source, CellType):
                self._variables.append((source, meant))
            else:
                self._attributes.append((*source, meant))
        self.asks = bool(self._attributes or self._variables or self._lists or self._checks)

    def is_the_same(self, look_into_modules: bool = False) -> bool:
        """Returns whether every name certainly means what it meant.

        Args:
          look_into_modules: False where nothing has changed in any Module since then (tensor/cell.py)
        """
        if look_into_modules and not (
            self._modules()
            and [tensor.steps for tensor in self._tensors] == self._steps
            and all(attributes.keys() == names for attributes, names in self._names)
            and all(tuple(held.values()) == hooks for held, hooks in self._hooks)
        ):
            return False
        try:
            for attributes, name, meant in self._attributes:
                if attributes[name] is not meant:
                    return False
            for variable, meant in self._variables:
                if variable.cell_contents is not meant:
                    return False
        except (KeyError, ValueError):  # the attribute, or the variable, is gone
            return False
        if self._lists and any(map(is_not, chain(*self._lists), self._held)):
            return False
        return all(map(call, self._checks))


def _to_ask(guards: Guards) -> tuple[list[Meant], list[Meant], list[Holds]]:
    """Returns what is to be asked at every call: which objects names mean, what is in which lists, and the rest."""
    objects, lists = _attributes(guards.held), [(read, read()) for read, *_ in guards.lists]
    checks: list[Holds] = []
    for guard in guards.values:
        if guard.told:
            continue
        meant = guard.read()
        if isinstance(guard.token, FIXED) and guard.read() is meant:  # some reads make a new object each time
            objects.append((guard.read, meant))
        elif _has_fixed_items(guard.token) and isinstance(meant, SEQUENCES):
            lists.append((guard.read, meant))
        elif type(guard.token) is tuple:
            checks.append(partial(_reads_tensor, guard.read, *guard.token))
        else:
            checks.append(guard.holds)
    return objects, lists, checks


def _has_fixed_items(token: Any) -> bool:
    """True for the token of a list that means the same for as long as it holds the same objects."""
    return isinstance(token, list) and all(isinstance(item, FIXED) or item is MISSING for item in token)


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def _attributes(entries: Sequence[Entry]) -> list[Meant]:
    """Returns how each attribute is read, and what it means now."""
    reads = [partial(owner.get, name, MISSING) for owner, name, *_ in entries]
    return [(read, read()) for read in reads]


def _read_objects(reads: Sequence[Read], meant: Sequence[Any]) -> bool:
    return not any(map(is_not, map(call, reads), meant))


def _means(read: Read, meant: Any) -> bool:
    return read() is meant


def _reads_tensor(read: Read, cell: weakref.ref[Cell], steps: View) -> bool:
    tensor = read()
    return type(tensor) is Tensor and tensor.cell is cell() and tensor.steps == steps
