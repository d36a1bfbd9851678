"""PICOGRAD_DUMP: every kernel has a folder of its own, and an edited source there is used instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from picograd import Tensor
from picograd.engine import devices, realize
from picograd.errors import FileError
from tests.helpers import forgotten


def test_kernels_of_one_name_do_not_override_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DUMP", str(tmp_path))
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    forgotten()  # lengths that other tests have had
    for inner in (1005, 1009):  # both kernels are matmul_3_4
        a, b = np.ones((3, inner), np.float32), np.ones((inner, 4), np.float32)
        assert (Tensor(a) @ Tensor(b)).numpy().tolist() == [[inner] * 4] * 3
    folders = [path for path in tmp_path.iterdir() if path.name.startswith("matmul_3_4_")]
    assert len(folders) == 2
    assert {file.name for file in folders[0].iterdir()} == {"choice.txt", "kernel.txt", "program.txt", "source.ll"}


@pytest.fixture
def dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source that one kernel was compiled from, in the folder of its dumps."""
    monkeypatch.setenv("PICOGRAD_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    add_one()
    return next((tmp_path / "dump").glob("*/source.ll"))


def add_one() -> list[float]:
    """Adds 1.0 by a kernel that no other test has, compiled for this call."""
    devices.compiler_for("CPU")._made.clear()
    realize._plans.clear()
    return (Tensor(np.ones(7, np.float32)) + 1.0).tolist()


def test_a_file_put_there_overrides_the_stage(dumped: Path) -> None:
    text = dumped.read_text()
    dumped.write_text(text.replace("fadd", "fsub"))
    assert add_one() == [0.0] * 7


@pytest.mark.parametrize("make", ["writable by all", "another user's", "another user's link"])
def test_code_that_others_can_have_written_is_not_run(dumped: Path, make: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dumped.write_text(dumped.read_text().replace("fadd", "fsub"))
    if make == "writable by all":
        dumped.chmod(0o666)
    else:
        if make.endswith("link"):
            dumped.symlink_to(dumped.rename(dumped.with_name("other")))
        owner = dumped.stat().st_uid
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
        if owner == 0:  # root's are everybody's to use
            os.chown(dumped, 12345, -1, follow_symlinks=False)
    with pytest.raises(FileError, match=r"source\.ll: is not read: other users may have written it \(mode \d+\)") as caught:
        add_one()
    assert caught.value.hint == "set PICOGRAD_DUMP to a folder that only you can write to."


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PICOGRAD_DUMP", str(tmp_path / "file"))
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    with pytest.raises(FileError, match=r"PICOGRAD_DUMP: .*kernel\.txt: cannot be written: "):
        add_one()


def test_processes_share_a_folder_of_dumps(tmp_path: Path) -> None:
    code = "import picograd as pg\nfor n in range(3, 9): assert (pg.ones(n) + 1.0).sum().item() == 2 * n"
    env = {**os.environ, "PICOGRAD_DUMP": str(tmp_path), "PICOGRAD_DEVICE": "CPU", "PICOGRAD_THREADS": "1"}
    running = [subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate()[1] for process in running] == [b""] * 3
    assert not list(tmp_path.rglob("*.part"))
