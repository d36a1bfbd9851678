"""Where gradients are recorded, and where not: contexts that are decorators, too.

In:    nothing
Out:   `Mode`; `no_grad`, `enable_grad`, `set_grad_enabled`, `inference_mode`, `is_grad_enabled`
Next:  picograd/tensor/default_device.py
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from picograd.annotations import shown
from picograd.errors import ArgumentTypeError
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
        def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            outer = self._variable.get()
            try:
                self._variable.set(self._value)
                return function(*args, **kwargs)
            finally:
                self._variable.set(outer)

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast(R, run(function, *args, **kwargs))

        @functools.wraps(function)
        def stepped(*args: P.args, **kwargs: P.kwargs) -> Any:  # each step within the mode, the caller's code without it
            generator: Any = function(*args, **kwargs)
            step, given = generator.send, None
            while True:
                try:
                    found = run(step, given)
                except StopIteration as end:
                    return end.value
                try:
                    step, given = generator.send, (yield found)
                except GeneratorExit:
                    run(generator.close)
                    raise
                except BaseException as error:
                    step, given = generator.throw, error

        return stepped if inspect.isgeneratorfunction(function) else wrapped


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


@overload
def no_grad(function: None = None) -> Mode[bool]: ...
@overload
def no_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def no_grad(function: Any = None) -> Any:
    """Returns a context, or decorator, in which results need no gradients and leaves can be changed in place.

    A result that is changed in place here has no history afterwards: backward() from it raises GradientError. PyTorch keeps
    the history of the value that was replaced, and gives the gradient of another number than is there.

    Args:
      function:  what is decorated, where @no_grad stands without brackets

    >>> x = Tensor(1.0, requires_grad=True)
    >>> with no_grad():
    ...     (x * 2).requires_grad
    False
    """
    return _as_said(Mode(grad_mode, False), function)


def _as_said(mode: Mode[bool], function: Any) -> Any:
    """Returns a mode, or the function that it decorates."""
    if function is None:
        return mode
    if not callable(function):
        raise ArgumentTypeError(f"no_grad: decorates functions, got {shown(function)}.", hint="with no_grad(): ...")
    return mode(function)


@overload
def enable_grad(function: None = None) -> Mode[bool]: ...
@overload
def enable_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def enable_grad(function: Any = None) -> Any:
    """Returns a context, or decorator, in which gradients are recorded again inside no_grad().

    Args:
      function:  what is decorated, where @enable_grad stands without brackets

    >>> with no_grad(), enable_grad():
    ...     is_grad_enabled()
    True
    """
    return _as_said(Mode(grad_mode, True), function)


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
