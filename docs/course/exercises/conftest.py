"""The fixture `exercise`: the file that a test is about, as a module. `--solutions` takes the one in solutions/ instead."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this folder."""
    parser.addoption("--solutions", action="store_true", help="test the solutions instead of the exercises")


@pytest.fixture(scope="module")
def exercise(request: pytest.FixtureRequest) -> ModuleType:
    """The exercise 01_name.py of the tests test_01_name.py."""
    folder = HERE / "solutions" if request.config.getoption("--solutions") else HERE
    path = folder / request.path.name.removeprefix("test_")
    spec = importlib.util.spec_from_file_location(f"exercise_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
