"""Shows and keeps the stages a kernel passes through, where PICOGRAD_SHOW and PICOGRAD_DUMP ask for it.

In:    the text of a stage
Out:   the text to go on with
Called by: engine/plan.py, engine/compiler.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from picograd.config import setting, shown_stages
from picograd.device import Target
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
    """
    if place is None:
        return text
    path = place / file
    if path.exists():
        return path.read_text()
    place.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text
