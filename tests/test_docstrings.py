"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import picograd
import picograd.ir.op
from picograd.ir.opcode import OpCode

NAMES = {**vars(picograd.ir.op), **vars(picograd.dtypes), **vars(picograd), "OpCode": OpCode, "pg": picograd}


def examples() -> list[doctest.DocTest]:
    """Returns the examples of all modules that load without a driver."""
    found = []
    for info in pkgutil.walk_packages(picograd.__path__, "picograd."):
        if ".backends" in info.name or info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        names = {**NAMES, **vars(module)}
        found += [test for test in doctest.DocTestFinder().find(module, globs=names) if test.examples]
    return found


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name.removeprefix("picograd."))
def test_examples_print_what_they_say(test, monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    printed: list[str] = []
    runner.run(test, out=printed.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)
