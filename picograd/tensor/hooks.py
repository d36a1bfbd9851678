"""Hooks of gradients; they belong to a leaf's number, so they live as long as a graph with it.

In:    a leaf, and functions of its gradient
Out:   `LeafNumber`, `RemovableHandle`; `add_hook`, `add_after_hook`; `hooks_among`: hooks of some leaves
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from picograd.annotations import shown
from picograd.errors import ArgumentTypeError, GradientError
from picograd.interrupts import AtDeath
from picograd.ir.op import Op
from picograd.tensor.build import detached
from picograd.tensor.cell import grad_mode, last_change

_keys = itertools.count()


class LeafNumber(int):
    """The number of a LEAF, with facts about its tensor.

    make:      Op -> a tensor like the leaf's, on its device
    collects:  backward() adds to the tensor's `.grad`
    hooks:     functions of its gradient, in order
    after:     functions of its tensor, called when backward() has added to `.grad`
    hooked:    numbers of all leaves with hooks; usually empty, so nothing is searched
    results:   numbers of leaves that are results and may have been used before they became leaves
    """

    make: Callable[[Op], Any]
    collects: bool
    hooks: dict[int, Callable[[Any], Any]]
    after: dict[int, Callable[[Any], Any]]
    hooked: ClassVar[set[int]] = set()
    results: ClassVar[set[int]] = set()
    _end: tuple[AtDeath, AtDeath]

    def __new__(cls, number: int, make: Callable[[Op], Any], collects: bool = True) -> LeafNumber:
        self = super().__new__(cls, number)
        self.make, self.collects, self.hooks, self.after = make, collects, {}, {}
        self._end = AtDeath(cls.hooked.discard, number), AtDeath(cls.results.discard, number)
        return self


class RemovableHandle:
    """A hook of a tensor, a module or an optimizer; remove() removes it, as does the end of a `with` block.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> with x.register_hook(lambda grad: grad * 10):
    ...     (x * x).backward()
    >>> (x * x).backward()
    >>> x.grad.item()
    66.0
    """

    def __init__(self, take_away: Callable[[], None]):
        """take_away: removes the hook; further calls have no effect."""
        self._take_away = take_away

    def remove(self) -> None:
        """Removes the hook.

        >>> x = Tensor(3.0, requires_grad=True)
        >>> x.register_hook(print).remove()
        >>> x.sum().backward()
        """
        self._take_away()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def add_hook(number: LeafNumber, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Adds a function of a leaf's gradient."""
    key = next(_keys)
    number.hooks[key] = hook
    last_change.note()
    LeafNumber.hooked.add(int(number))
    # NOTE: a handle that held the LeafNumber itself would keep its leaf among those that have hooks.
    return RemovableHandle(partial(_take_away, number.hooks, int(number), key))


def add_after_hook(number: LeafNumber, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Adds a function that gets the tensor of a leaf when backward() has added to its `.grad`."""
    key = next(_keys)
    number.after[key] = hook
    last_change.note()
    return RemovableHandle(partial(_take_after, number.after, key))


def _take_after(after: dict[int, Callable[[Any], Any]], key: int) -> None:
    after.pop(key, None)
    last_change.note()


def _take_away(hooks: dict[int, Callable[[Any], Any]], number: int, key: int) -> None:
    hooks.pop(key, None)
    last_change.note()
    if not hooks:
        LeafNumber.hooked.discard(number)


def hooks_among(leaves: Iterable[Op]) -> dict[Op, Callable[[Op], Op]]:
    """Returns, for each leaf with hooks, the composition of its hooks."""
    return {leaf: hooks_of(leaf.arg) for leaf in leaves if isinstance(leaf.arg, LeafNumber) and leaf.arg.hooks}


def hooks_of(number: LeafNumber) -> Callable[[Op], Op]:
    """Returns the composition of all hooks of a leaf as a function of its gradient; its graph is dropped under no_grad."""

    def hooked(grad: Op) -> Op:
        for hook in list(number.hooks.values()):
            changed = hook(number.make(grad if grad_mode.get() else detached(grad)))
            if changed is None:
                continue
            if not hasattr(changed, "op"):
                said = f"register_hook: a hook must return a tensor or None, got {shown(changed)}."
                raise ArgumentTypeError(said, hint="grad * 2")
            if changed.op.shape != grad.shape or changed.dtype is not grad.dtype:
                raise GradientError(
                    f"register_hook: a hook returned {changed.dtype} of shape {changed.op.shape} for a gradient"
                    f" {grad.dtype} of shape {grad.shape}."
                )
            grad = changed.read()
        return grad

    return hooked
