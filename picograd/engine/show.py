"""Shows and keeps the stages a kernel passes through, where PICOGRAD_SHOW and PICOGRAD_DUMP ask for it.

In:    the text of a stage
Out:   the text to go on with
Called by: engine/plan.py, engine/compiler.py
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from picograd.config import setting, shown_stages
from picograd.device import Target
from picograd.errors import FileError
from picograd.files import is_ours, opened, write_whole
from picograd.ir.stages import Kernel
from picograd.ir.text import format_kernel


def show(stage: str, text: Callable[[], str]) -> None:
    """Prints a stage that PICOGRAD_SHOW asks for; only then is its text written."""
    if stage in shown_stages():
        print(text())


def place_of_dumps(kernel: Kernel, target: Target) -> Path | None:
    """Returns the folder of one kernel on one device, if PICOGRAD_DUMP asks for it: names alone are not unique."""
    folder = setting("PICOGRAD_DUMP")
    if not folder:
        return None
    digest = hashlib.sha256(f"{target.device}\n{format_kernel(kernel)}".encode()).hexdigest()
    return Path(folder) / f"{kernel.name}_{digest[:8]}"


def dump(place: Path | None, file: str, text: str) -> str:
    """Writes an artefact; a file that is there already overrides it.

    Returns: the text to go on with

    Raises:
      FileError: the folder cannot be written to, or the file there is one that other users can write.
    """
    if place is None:
        return text
    path = place / file
    with suppress(FileNotFoundError, NotADirectoryError):
        _check_ours(path, os.lstat(path))
        with opened("PICOGRAD_DUMP", path) as found:
            _check_ours(path, os.fstat(found.fileno()))
            return found.read().decode()
    # Whole or not there: another process may look at the same kernel.
    write_whole("PICOGRAD_DUMP", path, lambda file: file.write(text.encode()), makes_folder=True, is_durable=False)
    return text


def _check_ours(path: Path, facts: os.stat_result) -> None:
    """Raises FileError for a file, or a link, of another user, or one that all may write: its code would be run."""
    if not is_ours(facts, of_others=0o002):
        raise FileError(
            f"PICOGRAD_DUMP: {path}: is not read: other users can have written it (mode {facts.st_mode & 0o777:o}).",
            hint="PICOGRAD_DUMP names a folder of your own.",
        )
