"""What the code of a captured function mentions, and of those it calls: remembered, and a change is an error (G10)."""

from __future__ import annotations

import collections
import functools
import importlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import JitError, Tensor, nn

pytestmark = pytest.mark.req("G10")


def values(*numbers: float) -> Tensor:
    return Tensor(np.array(numbers, np.float32))


class Options:
    rate = 2.0

    def __init__(self) -> None:
        self.scale, self.sizes, self.names = 2.0, [1, 2], {"a"}

    @staticmethod
    def scaled(x: Tensor) -> Tensor:
        return x * LATER["rate"]

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.scale


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sizes = [1.0, 2.0]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.sizes[0]


LATER = {"rate": 2.0}
options = Options()
wide = Wide()
array = np.array([2.0], np.float32)
recent = collections.deque([2.0])
allowed = {2.0}
many = [2.0] * 100


def _with_default(x: Tensor, scales: list[float] = [2.0]) -> Tensor:  # noqa: B006
    return x * scales[0]


def _wrapped(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    own = [2.0]

    @functools.wraps(function)
    def wrapper(x: Tensor) -> Tensor:
        return function(x) * own[0]

    wrapper.own = own  # type: ignore[attr-defined]
    return wrapper


wrapped = _wrapped(lambda x: x * LATER["rate"])
CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], Any], Callable[[], Any], str]] = {
    # what is read      the function                                 a change                     and back
    "getattr": (lambda x: x * getattr(options, "scale", 1.0), lambda: setattr(options, "scale", 3.0),
                lambda: setattr(options, "scale", 2.0), r"options\.scale was 2\.0 and is 3\.0"),
    "a set": (lambda x: x * sum(allowed), lambda: allowed.add(3.0), lambda: allowed.discard(3.0), "allowed has changed"),
    "a deque": (lambda x: x * recent[0], lambda: recent.appendleft(3.0), lambda: recent.popleft(), "recent has changed"),
    "a long list": (lambda x: x * many[99], lambda: many.__setitem__(99, 3.0), lambda: many.__setitem__(99, 2.0),
                    "many has changed"),
    "a small array": (lambda x: x * Tensor(array), lambda: array.fill(3), lambda: array.fill(2),
                      "array has changed in place"),
    "a default": (lambda x: _with_default(x), lambda: _with_default.__defaults__[0].append(3.0),  # type: ignore[index]
                  lambda: _with_default.__defaults__[0].pop(), "_with_default's scales has changed"),  # type: ignore[index]
    "a wrapper's own": (wrapped, lambda: wrapped.own.append(1),  # type: ignore[attr-defined]
                        lambda: wrapped.own.pop(), "own has changed"),  # type: ignore[attr-defined]
    "below a wrapper": (wrapped, lambda: LATER.update(rate=3.0), lambda: LATER.update(rate=2.0), "LATER has changed"),
    "a static method": (lambda x: Options.scaled(x), lambda: LATER.update(rate=3.0), lambda: LATER.update(rate=2.0),
                        "Options.scaled's LATER has changed"),
    "a callable object": (lambda x: options(x), lambda: setattr(options, "scale", 3.0),
                          lambda: setattr(options, "scale", 2.0), r"self\.scale was 2\.0 and is 3\.0"),
    "a partial": (functools.partial(lambda o, x: x * o.scale, options), lambda: setattr(options, "scale", 3.0),
                  lambda: setattr(options, "scale", 2.0), r"o\.scale was 2\.0 and is 3\.0"),
    "a list in an object": (lambda x: x * options.sizes[0], lambda: options.sizes.append(3),
                            lambda: options.sizes.pop(), r"options\.sizes has changed"),
    "a list in a module": (lambda x: wide(x), lambda: wide.sizes.append(3.0), lambda: wide.sizes.pop(),
                           r"Wide\.forward's self\.sizes has changed"),
    "a class attribute": (lambda x: x * Options.rate, lambda: setattr(Options, "rate", 3.0),
                          lambda: setattr(Options, "rate", 2.0), r"Options\.rate was 2\.0 and is 3\.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_function_reads_is_remembered(name: str, device: str) -> None:
    function, change, back, said = CHANGES[name]
    step = pg.jit(function)
    expected = [step(values(1)).item() for _ in range(3)][0]
    change()
    try:
        with pytest.raises(JitError, match=said) as raised:
            step(values(1))
        assert raised.value.line is not None and raised.value.line.file == __file__
    finally:
        back()
    assert step(values(1)).item() == expected


def test_the_environment_is_remembered(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALE", "2")
    step = pg.jit(lambda x: x * float(os.environ["SCALE"]))
    for _ in range(3):
        step(values(1))
    monkeypatch.setenv("SCALE", "3")
    with pytest.raises(JitError, match=r"os\.environ\['SCALE'\] was '2' and is '3'"):
        step(values(1))


@pytest.fixture
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    (tmp_path / "users_helper.py").write_text("rate = 2.0\ndef scaled(x):\n    return x * rate\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("users_helper")
    del sys.modules["users_helper"]


def test_functions_of_the_users_modules_are_followed(users_module: Any, device: str) -> None:
    def imports_inside(x: Tensor) -> Tensor:
        from users_helper import scaled

        return scaled(x)

    for function in (lambda x: users_module.scaled(x), imports_inside):
        step = pg.jit(function)
        for _ in range(3):
            step(values(1))
        users_module.rate = 3.0
        with pytest.raises(JitError, match=r"rate was 2\.0 and is 3\.0"):
            step(values(1))
        users_module.rate = 2.0


def test_an_object_passed_by_keyword_is_remembered(device: str) -> None:
    step, given = pg.jit(lambda x, *, options: x * options.scale), Options()
    for _ in range(3):
        step(values(1), options=given)
    given.scale = 7.0
    with pytest.raises(JitError, match=r"options\.scale was 2\.0 and is 7\.0"):
        step(values(1), options=given)


def test_a_name_that_is_computed_is_one_of_the_users_modules(users_module: Any, device: str) -> None:
    name = "rate"
    step = pg.jit(lambda x: x * getattr(users_module, name) + len(sys.argv) + len(os.sep) * 0)  # sys.stdin is an iterator
    for _ in range(3):
        assert step(values(1)).item() == 2.0 + len(sys.argv)
    users_module.rate = 3.0
    with pytest.raises(JitError, match=r"rate was 2\.0 and is 3\.0"):
        step(values(1))
