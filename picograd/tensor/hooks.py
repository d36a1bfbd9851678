"""Functions that see gradients on their way: they belong to the number of a leaf, so they live as long as a graph with it.

In:    a leaf, and functions of its gradient
Out:   `LeafNumber`, `RemovableHandle`; `hooks_among`: what the gradients of some leaves go through
Called by: tensor/core.py, tensor/autograd.py.    Next: picograd/tensor/modes.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from picograd.errors import GradientError
from picograd.ir.op import Op


class LeafNumber(int):
    """The number of a LEAF, with what is known of its tensor.

    make:      Op -> tensor of the kind and on the device of the leaf
    collects:  backward() adds to the `.grad` of its tensor
    hooks:     functions that its gradient goes through, in order
    after:     functions of its tensor, called when backward() has added to `.grad`
    hooked:    numbers of the leaves that have hooks now: mostly there are none, and nobody has to look for them
    """

    make: Callable[[Op], Any]
    collects: bool
    hooks: dict[int, Callable[[Any], Any]]
    after: dict[int, Callable[[Any], Any]]
    hooked: ClassVar[set[int]] = set()

    def __new__(cls, number: int, make: Callable[[Op], Any], collects: bool = True) -> LeafNumber:
        self = super().__new__(cls, number)
        self.make, self.collects, self.hooks, self.after = make, collects, {}, {}
        return self

    def __del__(self) -> None:
        self.hooked.discard(int(self))


class RemovableHandle:
    """A hook of a tensor, which can be removed; as a `with` block it is removed at the end.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> with x.register_hook(lambda grad: grad * 10):
    ...     (x * x).backward()
    >>> (x * x).backward()
    >>> x.grad.item()
    66.0
    """

    def __init__(self, number: LeafNumber, hook: Callable[[Any], Any], is_after: bool = False):
        """Adds the function `hook` to those of the leaf with this `number`; is_after: to those of its tensor."""
        self._hooks, self._number, self._is_after = number.after if is_after else number.hooks, int(number), is_after
        self._hooks[id(self)] = hook
        if not is_after:
            LeafNumber.hooked.add(self._number)

    def remove(self) -> None:
        """Takes the function away.

        >>> x = Tensor(3.0, requires_grad=True)
        >>> x.register_hook(print).remove()
        >>> x.sum().backward()
        """
        self._hooks.pop(id(self), None)
        if not self._hooks and not self._is_after:
            LeafNumber.hooked.discard(self._number)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def hooks_among(leaves: Iterable[Op]) -> dict[Op, Callable[[Op], Op]]:
    """Returns, for the leaves that have hooks, what these make of a gradient."""
    return {leaf: _all_of(leaf.arg) for leaf in leaves if isinstance(leaf.arg, LeafNumber) and leaf.arg.hooks}


def _all_of(number: LeafNumber) -> Callable[[Op], Op]:
    def hooked(grad: Op) -> Op:
        for hook in list(number.hooks.values()):
            changed = hook(number.make(grad))
            if changed is None:
                continue
            if changed.op.shape != grad.shape or changed.dtype is not grad.dtype:
                raise GradientError(
                    f"register_hook: a hook returned {changed.dtype} of shape {changed.op.shape} for a gradient"
                    f" {grad.dtype} of shape {grad.shape}."
                )
            grad = changed.read()
        return grad

    return hooked
