"""What tests of devices share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_driver import build


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake driver's libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    build(folder)
    return folder
