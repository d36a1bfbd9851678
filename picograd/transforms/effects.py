"""Changes that a traced function makes to Python's own state: later calls run no Python, and would not make them.

In:    a function and its arguments, before and after it is traced again
Out:   JitErrors that name what has changed
Called by: transforms/jit.py.    Next: picograd/transforms/watched.py
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, ClassMethodDescriptorType, FrameType
from typing import Any

import numpy as np

from picograd.errors import JitError, Line
from picograd.interrupts import whole_context
from picograd.transforms.guards import guards_of
from picograd.transforms.tokens import is_users_code

NUMPYS = "numpy.random"  # NumPy loads it when it is first asked for; nobody has drawn from it before


class Effects:
    """What a function can change, as it is before the function runs. The first call may set things once and for all."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]):
        self._guards = guards_of(function, args, kwargs)
        self._called: list[tuple[str, Line]] = []  # of functions that read something outside of the program
        meant = [(guard.name, guard.read()) for guard in self._guards.values]
        drawing = [(name, value) for name, value in meant if _draws_numbers(value)]
        self._draws = [(name, value, _state_of(value)) for name, value in drawing]

    @whole_context
    def watched(self) -> Iterator[None]:
        """A block in which calls are looked at, where the function mentions a clock, a file or the like.

        A profiler that is running sees them all, and leaves no place to look from.
        """
        names = {function: name for name, function in self._guards.outside.items()} if sys.getprofile() is None else {}

        def look(frame: FrameType, event: str, called: Any) -> None:
            if event == "c_call" and isinstance(called, BuiltinFunctionType) and is_users_code(frame.f_code):
                name = next((name for function, name in names.items() if _is_same(function, called)), None)
                if name is not None:
                    self._called.append((name, Line(frame.f_code.co_filename, frame.f_lineno)))

        try:
            if names:
                sys.setprofile(look)
            yield
        finally:
            if names:
                sys.setprofile(None)

    def check(self, name: str) -> None:
        """Raises JitError where something has changed since."""
        for called, line in self._called:
            raise JitError(
                f"jit: {name} calls {called}(), whose answer would not change in later calls.",
                "call it outside, and pass what it gives as a Tensor.",
                line=line,
            )
        broken = self._guards.broken()
        if broken is not None:
            raise JitError(
                f"jit: {name} changes what it reads: {broken.text}. Later calls would not.",
                "return it, keep it in a Tensor that is written in place, or change it outside.",
                line=broken.line,
            )
        for drawn, generator, before in self._draws:
            if _state_of(generator) != before:
                raise _draws(name, drawn)


class GlobalDraws:
    """Where the generators of Python and NumPy are that every program shares."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), _numpys_state()

    def check(self, name: str) -> None:
        """Raises JitError where numbers have been drawn since."""
        if random.getstate() != self._python:
            raise _draws(name, "random")
        if self._numpy is not None and _numpys_state() != self._numpy:
            raise _draws(name, "np.random")


def _draws(name: str, generator: str) -> JitError:
    return JitError(
        f"jit: {name} draws numbers from {generator}, which later calls would not.",
        "pg.rand and the like draw new numbers at each call; or pass the number as an argument.",
    )


def _is_same(function: Any, called: Any) -> bool:
    """True for a function itself, and for what a class method in the dict of its class is when it is called."""
    is_of_class = isinstance(function, ClassMethodDescriptorType) and function.__name__ == called.__name__
    return is_of_class or bool(function == called)


def _draws_numbers(value: Any) -> bool:
    if isinstance(value, random.Random):
        return True
    return NUMPYS in sys.modules and isinstance(value, (np.random.Generator, np.random.RandomState))


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    is_new = isinstance(generator, np.random.Generator)
    return repr(generator.bit_generator.state if is_new else generator.get_state())


def _numpys_state() -> str | None:
    return repr(np.random.get_state(legacy=False)) if NUMPYS in sys.modules else None
