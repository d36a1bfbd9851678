"""Processes that are killed and disks that are full, at each call that changes a file of a training's folder."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import FileError
from picograd_programs.train.callbacks import Checkpoints, Every, Log
from picograd_programs.train.trainer import Trainer
from tests.train.test_trainer import rows, trainer, weights

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

STEPS, EVERY = 6, 2
PIECE = 1500  # bytes of a write: a checkpoint takes several
NEW, EARLIER = 1e-2, 3e-3  # learning rates of two trainings in one folder


# ---- a disk that something happens to ----
class Disk:
    """Counts the calls that change a folder's files, and lets something happen at one of them, amid a write."""

    def __init__(self, folder: Path, at: int = 0, end: Callable[[Disk], None] | None = None):
        self.folder, self.at, self.end = str(folder), at, end
        self.calls: list[str] = []
        self.handles: set[int] = set()
        self.unsettled: dict[int, int] = {}  # inode of a file that was written and not flushed -> a handle of it

    def call(self, name: str, half: Callable[[], object] | None = None) -> None:
        self.calls.append(name)
        if len(self.calls) == self.at and self.end is not None:
            if half is not None:
                half()
            self.end(self)

    def is_here(self, path: Any) -> bool:
        return not isinstance(path, int) and os.fspath(path).startswith(self.folder)

    def counted(self, name: str) -> Callable[..., Any]:
        whole = getattr(os, name)

        def run(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_here(path) and not (name == "mkdir" and os.path.isdir(path)):
                self.call(name)
            return whole(path, *args, **kwargs)

        return run

    def open_handle(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        is_counted = self.is_here(path) and flags & os.O_CREAT
        if is_counted:
            self.call("open")
        handle = OPEN_HANDLE(path, flags, *args, **kwargs)
        if is_counted:
            self.handles.add(handle)
        return handle

    def flush(self, handle: int) -> None:
        if handle in self.handles:
            self.call("fsync")
            FSYNC(handle)
            self.unsettled.pop(os.fstat(handle).st_ino, None)

    def open_file(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
        if not (file in self.handles if isinstance(file, int) else self.is_here(file)) or mode[0] not in "wa":
            return OPEN(file, mode, buffering, *args, **kwargs)
        raw = File(self, file, mode)
        return raw if buffering == 0 else io.BufferedWriter(raw)

    @contextmanager
    def watched(self) -> Iterator[Disk]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "rename", "unlink", "mkdir", "rmdir"):
                patch.setattr(os, name, self.counted(name))
            patch.setattr(os, "open", self.open_handle)
            patch.setattr(os, "fsync", self.flush)
            for module in (builtins, io):
                patch.setattr(module, "open", self.open_file)
            yield self


class File(io.FileIO):
    """A file that takes a piece of what is written at a time."""

    def __init__(self, disk: Disk, file: Any, mode: str):
        super().__init__(file, mode)
        self.disk = disk
        disk.handles.add(self.fileno())

    def write(self, data: Any) -> int:
        piece = memoryview(data)[:PIECE]
        inode = os.fstat(self.fileno()).st_ino
        self.disk.unsettled.setdefault(inode, os.dup(self.fileno()))
        self.disk.call("write", lambda: super(File, self).write(piece[: len(piece) // 2]))
        return super().write(piece)

    def close(self) -> None:
        if not self.closed:
            self.disk.handles.discard(self.fileno())
        super().close()


OPEN, OPEN_HANDLE, FSYNC = open, os.open, os.fsync


def killed(disk: Disk) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cut_off(disk: Disk) -> None:
    """Ends as a machine without power: half of what was not flushed is lost."""
    for handle in disk.unsettled.values():
        os.ftruncate(handle, os.fstat(handle).st_size // 2)
    killed(disk)


def full(disk: Disk) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_from_now_on(disk: Disk) -> None:
    disk.at += 1
    full(disk)


# ---- a training, and one that goes on ----
def begun(folder: Path, lr: float, resumes: bool = False) -> tuple[Trainer, Checkpoints]:
    """A trainer at step 0, or at that of the newest checkpoint, and its checkpoints."""
    ours, checkpoints = trainer(dropout=0.2, lr=lr), Checkpoints(folder, EVERY, 2, {"lr": lr}, "held-out", ["log.jsonl"])
    if resumes:
        assert checkpoints.restore(ours)
    return ours, checkpoints


def held_out(model: Any) -> dict[str, float]:
    return {"held-out": model(Tensor(rows(99)[0])).square().mean().item()}


def fit(ours: Trainer, checkpoints: Checkpoints, steps: int = STEPS) -> int:
    return ours.fit(rows, steps, [Every(EVERY, held_out), checkpoints, Log(checkpoints.folder / "log.jsonl")])


class Unbroken:
    """The states of both trainings after each checkpoint where nothing happens to them, and the earlier one's files."""

    def __init__(self, folder: Path):
        self.weights: dict[tuple[float, int], list[np.ndarray]] = {}
        for lr in (NEW, EARLIER):
            for steps in range(0, STEPS + 1, EVERY):
                ours, _ = begun(folder, lr)
                ours.fit(rows, steps, [])
                self.weights[lr, steps] = weights(ours)
        self.folder = folder / "earlier"
        fit(*begun(self.folder, EARLIER), STEPS - EVERY)
        self.files = files(self.folder)
        self.log = steps_of(self.folder)
        with Disk(self.copy(folder / "counted")).watched() as disk:
            ours, checkpoints = begun(Path(disk.folder), NEW)
            saved: list[int] = []  # step of the last checkpoint whose write had ended, by call
            disk.call = lambda name, half=None: (disk.calls.append(name), saved.append(checkpoints.saved))  # type: ignore
            fit(ours, checkpoints)
        self.calls, self.saved = disk.calls, saved

    def copy(self, folder: Path) -> Path:
        shutil.copytree(self.folder, folder)
        return folder

    def is_at(self, ours: Trainer, lr: float) -> bool:
        return all(a.tobytes() == b.tobytes() for a, b in zip(weights(ours), self.weights[lr, ours.done], strict=True))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".part"}


def steps_of(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    return Unbroken(tmp_path_factory.mktemp("unbroken"))


def in_a_fork(work: Callable[[], object]) -> int:
    """Returns how a fork ended that did some work; it is silent."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            sys.stdout = sys.stderr = io.StringIO()
            work()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check_what_is_left(folder: Path, unbroken: Unbroken, least: int, log: Literal["whole", "cut"]) -> None:
    """Checks that both trainings are there, each whole or not begun, and goes on with the newest to its end."""
    checkpoints = Checkpoints(folder)
    checkpoints.bring_back()
    is_moved = (folder / "earlier-1").exists()
    kept = files(folder / "earlier-1" if is_moved else folder)
    assert kept == unbroken.files
    assert not (folder / "earlier-2").exists() and not (folder / ".earlier").exists()
    if is_moved and not checkpoints.paths():
        assert least < 0
        return
    lr = NEW if is_moved else EARLIER
    ours, checkpoints = begun(folder, lr, resumes=True)
    assert ours.done >= (least if is_moved else STEPS - EVERY) and unbroken.is_at(ours, lr)
    assert fit(ours, checkpoints) == STEPS and unbroken.is_at(ours, lr)
    if is_moved:
        assert files(folder / "earlier-1") == unbroken.files
    found, expected = steps_of(folder), [2, 4, 6, 6] if is_moved else [*unbroken.log, 6, 6]
    assert found == expected if log == "whole" else set(found) <= set(expected)
    assert pg.load(folder / "best.safetensors")["least_at"] == checkpoints.least_at


# ---- kills ----
@pytest.mark.req("J4")
@pytest.mark.parametrize("end", [killed, cut_off])
def test_a_training_killed_at_any_call_goes_on_bit_for_bit_and_the_earlier_one_is_kept(
    end: Callable[[Disk], None], unbroken: Unbroken, tmp_path: Path
) -> None:
    assert {"write", "fsync", "replace", "rename", "unlink", "mkdir", "open"} == set(unbroken.calls)
    for at in range(1, len(unbroken.calls) + 1):
        folder = unbroken.copy(tmp_path / f"{at}")

        def work(folder: Path = folder, at: int = at) -> None:
            with Disk(folder, at, end).watched():
                fit(*begun(folder, NEW))

        assert in_a_fork(work) == -signal.SIGKILL
        try:
            check_what_is_left(folder, unbroken, unbroken.saved[at - 1], "whole" if end is killed else "cut")
        except BaseException as error:
            raise AssertionError(f"killed at call {at}, {unbroken.calls[at - 1]}") from error


# ---- full disks ----
@pytest.mark.parametrize("end", [full, full_from_now_on])
def test_a_disk_that_is_full_at_any_call_costs_files_and_nothing_that_is_there(
    end: Callable[[Disk], None], unbroken: Unbroken, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for at in range(1, len(unbroken.calls) + 1):
        folder = unbroken.copy(tmp_path / f"{at}")
        capsys.readouterr()
        try:
            with Disk(folder, at, end).watched():
                assert fit(*begun(folder, NEW)) == STEPS
            warned = capsys.readouterr().err
            assert re.search("No space left on device. (The training (goes on|continues)|.* is removed)", warned)
        except FileError as error:  # at the begin or at the end
            assert "No space left on device" in error.fact
            assert end is full_from_now_on or unbroken.saved[at - 1] in (-1, 0, STEPS - EVERY)
        try:
            check_what_is_left(folder, unbroken, -1, "cut")
        except BaseException as error:
            raise AssertionError(f"full at call {at}, {unbroken.calls[at - 1]}") from error
