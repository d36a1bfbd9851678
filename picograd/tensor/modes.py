"""Where gradients are recorded, and where not: contexts that are decorators, too.

In:    nothing
Out:   `Mode`; `no_grad`, `enable_grad`, `set_grad_enabled`, `inference_mode`, `is_grad_enabled`
Next:  picograd/tensor/default_device.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Generic, ParamSpec, TypeVar

from picograd.interrupts import Ends
from picograd.tensor.cell import grad_mode

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Mode(Generic[T]):
    """Gives a context variable a value, in a `with` block or in a decorated function."""

    def __init__(self, variable: ContextVar[T], value: T):
        self._variable, self._value = variable, value
        self._blocks: list[tuple[T, Ends]] = []  # that have begun, and the value around each
        self._before: tuple[T] | None = None  # the value around, where it has been replaced before the block

    def __enter__(self) -> None:
        ends = Ends()
        ends.begin(Mode.__enter__.__code__, Mode.__exit__.__code__)
        self._blocks.append((self._before[0] if self._before else self._variable.get(), ends))
        self._variable.set(self._value)
        if ends.waiting:
            try:
                ends.tell()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *error: object) -> None:
        outer, ends = self._blocks.pop()
        self._variable.set(outer)
        ends.over()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            outer = self._variable.get()
            try:
                self._variable.set(self._value)
                return function(*args, **kwargs)
            finally:
                self._variable.set(outer)

        return wrapped


class GradSwitch(Mode[bool]):
    """Turns the recording of gradients on or off at once; as a `with` block until its end."""

    _before: tuple[bool]

    def __init__(self, record: bool):
        super().__init__(grad_mode, record)
        self._before = (grad_mode.get(),)
        grad_mode.set(record)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        grad_mode.set(*self._before)  # it was made to decorate
        return super().__call__(function)


def no_grad() -> Mode[bool]:
    """Returns a context, or decorator, in which results need no gradients and leaves can be changed in place.

    A result that is changed in place here has no history afterwards: backward() from it raises GradientError. PyTorch keeps
    the history of the value that was replaced, and gives the gradient of another number than is there.

    >>> x = Tensor(1.0, requires_grad=True)
    >>> with no_grad():
    ...     (x * 2).requires_grad
    False
    """
    return Mode(grad_mode, False)


def enable_grad() -> Mode[bool]:
    """Returns a context, or decorator, in which gradients are recorded again inside no_grad().

    >>> with no_grad(), enable_grad():
    ...     is_grad_enabled()
    True
    """
    return Mode(grad_mode, True)


def set_grad_enabled(mode: bool) -> Mode[bool]:
    """Turns the recording of gradients on or off from here on; as a `with` block until its end, or as a decorator.

    Args:
      mode: True records

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    >>> is_grad_enabled()
    True
    """
    return GradSwitch(bool(mode))


def inference_mode(mode: bool = True) -> Mode[bool]:
    """Returns a context, or decorator, in which results need no gradients: no_grad by PyTorch's other name.

    What is made in it is like any other tensor, and may be used where gradients are recorded.

    Args:
      mode: False leaves the recording on

    >>> x = Tensor(1.0, requires_grad=True)
    >>> with inference_mode():
    ...     (x * 2).requires_grad
    False
    """
    return Mode(grad_mode, False if mode else grad_mode.get())


def is_grad_enabled() -> bool:
    """Returns True where gradients are recorded.

    >>> is_grad_enabled()
    True
    """
    return grad_mode.get()
