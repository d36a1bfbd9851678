"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import builtins
import dataclasses
import doctest
import enum
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import picograd
import picograd.ir.op
from picograd.errors import PACKAGES
from picograd.ir.opcode import OpCode
from picograd.nn.layers import layer
from picograd.public import plain
from tools.api import INTERNAL

SURFACE = {name: getattr(picograd, name) for name in dir(picograd) if not hasattr(builtins, name)}  # sum() is Python's
NAMES = {**vars(picograd.ir.op), **vars(picograd.dtypes), **SURFACE, "OpCode": OpCode, "pg": picograd,
         "dataclass": dataclasses.dataclass}


def examples() -> list[doctest.DocTest]:
    """Returns the examples of all modules that load without a driver."""
    found = []
    packages = [importlib.import_module(name) for name in PACKAGES]
    for info in [each for package in packages for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]:
        if ".backends" in info.name or info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        names = {**NAMES, **vars(module)}
        elsewhere = {
            f"{module.__name__}.{name}"
            for name, value in vars(module).items()
            if plain(value) is not value and plain(value).__module__ != module.__name__
        }  # published here, made in a module of its own
        tests = doctest.DocTestFinder().find(module, globs=names)
        found += [test for test in tests if test.examples and test.name not in elsewhere]
    return found


@pytest.mark.variants
@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name.removeprefix("picograd."))
def test_examples_print_what_they_say(test, monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    printed: list[str] = []
    runner.run(test, out=printed.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)


# ---- every public name is described ----
# What these mean everywhere, the docstring of Tensor says once.
SHARED = {"self", "cls", "dim", "axis", "keepdim", "keepdims", "dtype", "device", "requires_grad", "generator", "other"}
# What has no example that runs everywhere: a GPU, a file in the current folder.
NO_EXAMPLE = {"Tensor.cuda", "ModuleState.cuda", "PackedSequence.cuda", "Drawing.save"} | {
    f"cuda.{name}" for name in picograd.cuda.__all__ if name not in ("device_count", "is_available", "is_bf16_supported")
}


def public_names() -> dict[str, object]:
    """Returns the public functions, classes and methods; what has several names under the first of them."""
    found: dict[str, object] = {}
    modules = [picograd, picograd.special, picograd.nn.functional, picograd.nn.init, picograd.nn.utils, picograd.linalg]
    modules += [picograd.nn.utils.parametrizations, picograd.nn.utils.parametrize, picograd.nn.utils.rnn]
    modules += [picograd.optim.swa_utils]
    modules += [picograd.utils.data, picograd.utils.checkpoint]
    for module in [*modules, picograd.cuda, picograd.fft, picograd.autograd, picograd.autograd.functional, picograd.func]:
        home = "picograd.nn." if module is picograd.nn.functional else module.__name__  # a page of what stands beside it
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "").startswith(home)]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            value = getattr(module, name)
            if inspect.isclass(value) and not issubclass(value, Exception):
                found |= methods_of(value)
            if inspect.isfunction(value) or inspect.isclass(value):
                found[name if module is picograd else f"{module.__name__.removeprefix('picograd.')}.{name}"] = value
    for page, module in (("nn", picograd.nn), ("optim", picograd.optim), ("optim", picograd.optim.lr_scheduler)):
        for value in vars(module).values():
            if inspect.isclass(value) and (module is not picograd.optim.lr_scheduler or value.__name__ in module.__all__):
                found |= {f"{page}.{value.__name__}": value, **methods_of(value)}
    seen: set[int] = set()
    return {name: value for name, value in found.items() if not (id(value) in seen or seen.add(id(value)))}


def methods_of(owner: type) -> dict[str, object]:
    """Returns the public methods and properties by name, those inherited from picograd too."""
    found: dict[str, object] = {}
    for home in owner.__mro__:
        if home.__module__.startswith("picograd"):
            shown = "Tensor" if issubclass(picograd.Tensor, home) else home.__name__
            for name, value in vars(home).items():
                function = getattr(value, "__func__", value)
                if not name.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
                    found.setdefault(f"{shown}.{name}", function)
    return {name: function for name, function in found.items() if name.split(".")[-1] not in INTERNAL}


def source_of(value: object, function: object) -> str:
    """Returns the text of a function; of a constructor that is made from fields, of what looks at these first."""
    if not Path(inspect.unwrap(function).__code__.co_filename).is_file():
        return ""  # a dataclass's
    is_made = inspect.isclass(value) and inspect.unwrap(function).__code__.co_filename == layer.__file__
    return inspect.getsource(value._keep if is_made else function)


def with_references(text: str) -> str:
    """Returns a docstring with those of networks that it refers to for arguments: functional.conv1d, Conv1d."""
    for place in re.findall(r"arguments as in `([\w.]+)`", text):
        named = getattr(picograd.nn.functional, place.removeprefix("functional."), None) or getattr(picograd.nn, place)
        text += with_references(inspect.getdoc(named) or "")
    return text


PUBLIC = public_names()


@pytest.mark.variants
@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_described(name: str) -> None:
    value = PUBLIC[name]
    text = inspect.getdoc(value) or ""
    lines = text.splitlines()
    assert lines and lines[0].endswith(".") and lines[1:2] in ([], [""]), "one sentence on the first line"
    if isinstance(value, property) or (inspect.isclass(value) and issubclass(value, Exception)):
        return
    if name not in NO_EXAMPLE and name.split(".")[-1] not in ("forward", "reset_parameters"):
        assert ">>> " in text, "an example"
    function = value.__init__ if inspect.isclass(value) else value
    if not inspect.isfunction(function) or (inspect.isclass(value) and issubclass(value, enum.Enum)):
        return  # members of an enumeration are named; nothing is made of arguments
    said = with_references(text) + (inspect.getdoc(function) or "")
    unsaid = [p for p in inspect.signature(function).parameters if p not in SHARED and not re.search(rf"\b{p}\b", said)]
    assert not unsaid, f"`Args:` lacks {', '.join(unsaid)}"
    raised = set(re.findall(r"raise ([A-Z]\w+)\(", source_of(value, function))) & {*picograd.__all__}
    assert all(re.search(rf"^ *{error}:", said, re.MULTILINE) for error in raised), f"Raises: {', '.join(raised)}"


def test_what_arguments_mean_everywhere_is_said_once() -> None:
    said = picograd.Tensor.__doc__ or ""
    assert all(re.search(rf"\b{name}\b", said) for name in SHARED - {"self", "cls"})
