"""Changes that a traced function makes to Python's own state: later calls run no Python, and would not make them.

In:    a function and its arguments, before and after it is traced again
Out:   JitErrors that name what has changed
Called by: transforms/jit.py.    Next: picograd/transforms/watched.py
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.errors import JitError
from picograd.transforms.guards import guards_of

NUMPYS = "numpy.random"  # NumPy loads it when it is first asked for; nobody has drawn from it before


class Effects:
    """What a function can change, as it is before the function runs. The first call may set things once and for all."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]):
        self._guards = guards_of(function, args, kwargs)
        meant = [(guard.name, guard.read()) for guard in self._guards.values]
        drawing = [(name, value) for name, value in meant if _draws_numbers(value)]
        self._draws = [(name, value, _state_of(value)) for name, value in drawing]

    def check(self, name: str) -> None:
        """Raises JitError where something has changed since."""
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
