"""Random small Python programs with a jitted function: each gives what it gives without jit, or a JitError.

In:    a seed
Out:   `Program`, `any_program`; `check_program`, which raises `Wrong` where the two differ
Next:  picograd/tools/fuzz/run.py

A program is made of features: a module, an optimizer, a closure, a container, a view, ... Each says what it needs before,
what the function does with `y`, what happens between calls, and what is looked at. Nothing is known of what it computes:
the program without jit is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.errors import JitError
from picograd.record import Record, replace
from picograd.tensor.generator import manual_seed
from picograd.tensor.settings import set_default_device
from picograd.tensor.tensor import Tensor
from picograd.tools.fuzz.check import Wrong
from picograd.tools.fuzz.features import FEATURES, Feature
from picograd.transforms.jit import jit

CALLS = 7
RARE = 0.1  # how often a feature that is mostly refused may come
ARGUMENTS = ("Tensor([[1.0, -2.0], [0.5, call]])", "pg.arange(4.0).reshape(2, 2) - call", "pg.ones(2 + call % 2, 2)")
TOLERANCE = 1e-4  # of float32 values of some units that come by few operations
HEADER = """\
import copy, functools, itertools, random
import numpy as np
import picograd as pg
from picograd import Tensor, nn, optim

def program(jit, show):
"""


class Program(Record):
    """Lines of a program, by place. An entry may be several lines.

    before:   what is made first
    body:     what the function does with y, in order
    result:   what it returns
    between:  what happens before each call, whose number is `call`
    after:    what happens to the results `r`, and what is looked at
    x:        the argument of each call
    """

    before: tuple[str, ...]
    body: tuple[str, ...]
    result: str
    between: tuple[str, ...]
    after: tuple[str, ...]
    x: str

    @property
    def source(self) -> str:
        """The program as Python source: `program(jit, show)`."""
        call = [*self.between, f"x = {self.x}", "r = g(x, call % 2 * 1.0)", "show(r)", "show(x)", *self.after]
        function = ["def f(x, k):", *_indented(["y = x * 1.0 + k", *self.body, f"return {self.result}"]), "g = jit(f)"]
        lines = [*self.before, *function, f"for call in range({CALLS}):", *_indented(call)]
        return HEADER + "\n".join(_indented(lines)) + "\n"


def _indented(entries: Any) -> list[str]:
    return ["    " + line for entry in entries for line in entry.split("\n")]


def any_program(seed: int) -> Program:
    """Returns a program of one to four features."""
    rng = random.Random(seed)
    common = [feature for feature in FEATURES if not feature.is_rare or rng.random() < RARE]
    chosen: list[Feature] = rng.sample(common, rng.randint(1, 4))
    before: list[str] = []
    body: list[str] = []
    between: list[str] = []
    after: list[str] = []
    results = ["y", "y", "y.sum()"]
    for feature in chosen:
        before.append(feature.before)
        body.append(rng.choice(feature.body))
        results += feature.results
        if feature.between and rng.random() < 0.8:
            at = rng.randint(1, CALLS - 2)
            between.append(f"if call == {at}:\n    " + rng.choice(feature.between).replace("\n", "\n    "))
        between += [rng.choice(feature.always)] if feature.always else []
        after += [rng.choice(feature.after)] if feature.after else []
    if rng.random() < 0.15:
        body.insert(rng.randint(0, len(body)), "if y.shape[0] > 2:\n    y = y * 2.0")
    made = tuple(entry for entry in before if entry)
    return Program(made, tuple(body), rng.choice(results), tuple(between), tuple(after), rng.choice(ARGUMENTS))


def check_program(source: str, device: str) -> bool:
    """Runs a program with jit and without; returns whether jit took it, or refused it.

    Raises:
      Wrong: what is seen differs.
    """
    plain, error = _run(source, device, lambda function: function)
    if error is not None:
        return False
    jitted, error = _run(source, device, jit)
    if error is not None and not isinstance(error, JitError):
        raise Wrong(f"with jit: {type(error).__name__}: {error}")
    for number, (right, found) in enumerate(zip(plain, jitted)):
        if not _same(right, found):
            raise Wrong(f"value {number} of {len(plain)} is {found!r} with jit, and {right!r} without.")
    if error is None and len(plain) != len(jitted):
        raise Wrong(f"{len(jitted)} values are seen with jit, and {len(plain)} without.")
    return True


def _run(source: str, device: str, jit: Callable[[Any], Any]) -> tuple[list[Any], Exception | None]:
    """Returns what a program shows, and the error that ended it."""
    names: dict[str, Any] = {"__name__": "program"}
    seen: list[Any] = []
    exec(compile(source, "program.py", "exec"), names)
    manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    set_default_device(device)
    try:
        names["program"](jit, lambda value: seen.append(_plain(value)))
    except Exception as error:
        return seen, error
    finally:
        set_default_device(None)
    return seen, None


def _plain(value: Any) -> Any:
    """Returns a value that nobody changes any more."""
    if isinstance(value, Tensor):
        return value.detach().numpy().copy()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return sorted(value) if isinstance(value, set) else value


def _same(right: Any, found: Any) -> bool:
    if isinstance(right, np.ndarray):
        is_array = isinstance(found, np.ndarray) and right.shape == found.shape
        return is_array and np.allclose(right, found, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    if isinstance(right, list):
        return isinstance(found, list) and len(right) == len(found) and all(map(_same, right, found))
    if isinstance(right, dict):
        return isinstance(found, dict) and right.keys() == found.keys() and all(_same(right[k], found[k]) for k in right)
    return type(right) is type(found) and right == found


def shrunk(program: Program, device: str) -> Program:
    """Returns the program without the entries that it need not have to be wrong."""
    for place in ("after", "between", "body", "before"):
        for entry in reversed(getattr(program, place)):
            rest: dict[str, Any] = {place: tuple(e for e in getattr(program, place) if e is not entry)}
            smaller = replace(program, **rest)
            if _is_wrong(smaller, device):
                program = smaller
    return program


def _is_wrong(program: Program, device: str) -> bool:
    try:
        check_program(program.source, device)
    except Wrong:
        return True
    return False
