"""Hooks: functions called before or after a module's forward, and when gradients are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from picograd.errors import GradientError
from picograd.record import Record
from picograd.tensor.hooks import RemovableHandle
from picograd.tensor.tensor import Tensor

_numbers = itertools.count()


class Hook(Record):
    """A user's function, whether it gets keyword arguments, and whether it is called even if forward raises."""

    call: Callable[..., Any]
    with_kwargs: bool
    always: bool = False


def registered(
    owner: Any, place: str, hook: Callable[..., Any], prepend: bool, with_kwargs: bool, always: bool = False
) -> RemovableHandle:
    """Adds a hook to the dict `place` of a module or an optimizer."""
    number, held = next(_numbers), vars(owner).get(place, {})
    new = {number: Hook(hook, with_kwargs, always)}
    setattr(owner, place, {**new, **held} if prepend else {**held, **new})
    return RemovableHandle(partial(_take_away, owner, place, number))


def _take_away(owner: Any, place: str, number: int) -> None:
    hooks = {key: hook for key, hook in vars(owner).get(place, {}).items() if key != number}
    if hooks:
        setattr(owner, place, hooks)
    elif place in vars(owner):
        delattr(owner, place)


def before_forward(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments after all hooks."""
    for hook in list(module._forward_pre_hooks.values()):
        if hook.with_kwargs:
            changed = hook.call(module, args, kwargs)
            args, kwargs = (args, kwargs) if changed is None else changed
        else:
            changed = hook.call(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def after_forward(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, has_failed: bool = False) -> Any:
    """Returns the result after all hooks; if forward failed, only hooks with always_call run."""
    for hook in list(module._forward_hooks.values()):
        if has_failed and not hook.always:
            continue
        given = (args, kwargs, result) if hook.with_kwargs else (args, result)
        changed = hook.call(module, *given)
        result = result if changed is None else changed
    return result


# ---- gradients ----
class GradientWatch:
    """Calls a module's hooks with the gradients of one call, in the order in which backward() finds them.

    grads:    gradients of the results found so far
    found:    gradients of the arguments found so far
    waits:    arguments whose gradient is still missing
    """

    def __init__(self, module: Any):
        self.module = module
        self.grads: list[Tensor | None] = []
        self.found: list[Tensor | None] = []
        self.waits = 0

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments; those that need gradients are copies that report their gradient to this object."""
        self.found = [None] * len(args)
        return tuple(self._watched(place, value, self._see_argument) for place, value in enumerate(args))

    def results(self, result: Any) -> Any:
        """Returns the result as copies that report their gradients to this object."""
        several = isinstance(result, (tuple, list))
        parts = list(result) if several else [result]
        self.grads = [None] * len(parts)
        self.waits = len([1 for kept in self.found if isinstance(kept, Tensor)])
        self.found = [None] * len(self.found)
        watched = [self._watched(place, value, self._see_result) for place, value in enumerate(parts)]
        if not several:
            return watched[0]
        return type(result)(*watched) if hasattr(result, "_fields") else type(result)(watched)

    def _watched(self, place: int, value: Any, see: Callable[[int, Tensor], Tensor | None]) -> Any:
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        own = value.clone()  # a leaf of its own, even if value is a leaf with other hooks
        own.register_hook(lambda grad: see(place, grad))
        if see == self._see_argument:
            self.found[place] = own
        return own.clone()  # so the user's hooks run first

    def _see_result(self, place: int, grad: Tensor) -> Tensor | None:
        self.grads[place] = grad
        for hook in list(vars(self.module).get("_backward_pre_hooks", {}).values()):
            changed = hook.call(self.module, tuple(self.grads))
            self.grads[place] = self._one("register_full_backward_pre_hook", changed, self.grads, place)
        if not self.waits:  # no argument needs a gradient, so no gradient will follow
            self._call(None)
        return self.grads[place]

    def _see_argument(self, place: int, grad: Tensor) -> Tensor | None:
        self.found[place] = grad
        self.waits -= 1
        return self._call(place) if self.waits == 0 else grad

    def _call(self, place: int | None) -> Tensor | None:
        """Calls the hooks; returns the gradient that they leave for the argument found last, if any."""
        for hook in list(vars(self.module).get("_backward_hooks", {}).values()):
            changed = hook.call(self.module, tuple(self.found), tuple(self.grads))
            if place is not None:
                self.found[place] = self._one("register_full_backward_hook", changed, self.found, place)
        return None if place is None else self.found[place]

    def _one(self, kind: str, changed: Any, before: list[Tensor | None], place: int) -> Tensor | None:
        """Returns the gradient that a hook put in place of one. NOTE: earlier gradients have been passed on already."""
        if changed is None:
            return before[place]
        parts = changed if isinstance(changed, (tuple, list)) else (changed,)
        others = [new is not old for i, (new, old) in enumerate(zip(parts, before)) if i != place]
        if len(parts) != len(before) or any(others):
            name = type(self.module).__name__
            raise GradientError(f"{kind}: a hook of {name} replaced the gradients of several tensors.")
        return parts[place]
