"""Hooks: functions called before or after a module's forward.

In:    a module and its arguments or result
Out:   what the hooks make of them
Next:  picograd/nn/summary.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_numbers = itertools.count()


@dataclass(frozen=True)
class Hook:
    """A function, and whether it gets keyword arguments, too."""

    call: Callable[..., Any]
    with_kwargs: bool


class Handle:
    """Takes a hook away again.

    >>> handle = nn.Identity().register_forward_hook(lambda module, args, output: None)
    >>> handle.remove()
    """

    def __init__(self, owner: Any, place: str, number: int):
        self.owner, self.place, self.number = owner, place, number

    def remove(self) -> None:
        """Takes the hook away; a second time nothing happens.

        >>> handle = nn.Identity().register_forward_hook(lambda module, args, output: None)
        >>> handle.remove(), handle.remove()
        (None, None)
        """
        hooks = {key: hook for key, hook in vars(self.owner).get(self.place, {}).items() if key != self.number}
        if hooks:
            setattr(self.owner, self.place, hooks)
        elif self.place in vars(self.owner):
            delattr(self.owner, self.place)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def registered(owner: Any, place: str, hook: Callable[..., Any], prepend: bool, with_kwargs: bool) -> Handle:
    """Adds a hook to those that a module holds under `place`."""
    number, held = next(_numbers), vars(owner).get(place, {})
    new = {number: Hook(hook, with_kwargs)}
    setattr(owner, place, {**new, **held} if prepend else {**held, **new})
    return Handle(owner, place, number)


def before_forward(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments that the hooks leave."""
    for hook in list(module._forward_pre_hooks.values()):
        if hook.with_kwargs:
            changed = hook.call(module, args, kwargs)
            args, kwargs = (args, kwargs) if changed is None else changed
        else:
            changed = hook.call(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def after_forward(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Returns the result that the hooks leave."""
    for hook in list(module._forward_hooks.values()):
        given = (args, kwargs, result) if hook.with_kwargs else (args, result)
        changed = hook.call(module, *given)
        result = result if changed is None else changed
    return result
