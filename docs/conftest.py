"""The fixture `exercise` of the exercises of the course and of kernels: the file that a test is about, as a module.

`--solutions` takes the one in the folder `solutions` beside it instead.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this folder."""
    parser.addoption("--solutions", action="store_true", help="test the solutions instead of the exercises")


@pytest.fixture(scope="module")
def exercise(request: pytest.FixtureRequest) -> ModuleType:
    """The exercise 01_name.py of the tests test_01_name.py."""
    beside = request.path.parent
    folder = beside / "solutions" if request.config.getoption("--solutions") else beside
    path = folder / request.path.name.removeprefix("test_")
    spec = importlib.util.spec_from_file_location(f"exercise_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
