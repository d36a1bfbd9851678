"""A few of the malformed models of tests/onnx/malformed.py: each ends in a result or in an error of picograd's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.onnx.malformed import schemas

pytestmark = pytest.mark.req("C10")


def test_malformed_models_end_in_one_family_of_errors_within_limits() -> None:
    command = [sys.executable, "-m", "tests.onnx.malformed", "nodes", "files", "--count", "10"]
    environment = {**os.environ, "PICOGRAD_DEVICE": "NUMPY", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_operator_is_among_them() -> None:
    assert len(schemas()) > 170
