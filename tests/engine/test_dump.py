"""PICOGRAD_DUMP: every kernel has a folder of its own, and a file put there overrides the stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from picograd import Tensor


def test_kernels_of_one_name_do_not_override_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DUMP", str(tmp_path))
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    for inner in (1005, 1009):  # both kernels are matmul_3_4
        a, b = np.ones((3, inner), np.float32), np.ones((inner, 4), np.float32)
        assert (Tensor(a) @ Tensor(b)).numpy().tolist() == [[inner] * 4] * 3
    folders = [path for path in tmp_path.iterdir() if path.name.startswith("matmul_3_4_")]
    assert len(folders) == 2
    assert {file.name for file in folders[0].iterdir()} == {"kernel.txt", "program.txt", "source.ll"}
