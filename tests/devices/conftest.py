"""What tests of devices share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_driver import build
from tests.host_compilers import empty_cache


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake driver's libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    build(folder)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    """A cache of its own, and stages that are not looked at."""
    return {"PICOGRAD_CACHE": empty_cache(tmp_path), "PICOGRAD_VERIFY": "0"}
