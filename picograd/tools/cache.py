"""`picograd cache`: what the cache folder holds, and emptying it.

In:    the cache folder
Out:   `CachePart`s; or a folder without them

Only the parts that picograd makes are ever listed or removed: PICOGRAD_CACHE may name a folder with other things in it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from picograd.errors import DataError

PARTS: dict[str, str] = {
    "data": "data sets",
    "kernels": "compiled kernels",
    "plans": "which kernels compute a graph, and in which memory",
    "tuning": "the fastest candidate of each kernel",
}


@dataclass(frozen=True)
class CachePart:
    """One part of the cache.

    name:       its folder
    meaning:    what is in it
    num_files:  files, at any depth
    nbytes:     their bytes in all
    """

    name: str
    meaning: str
    num_files: int
    nbytes: int


def list_cache(folder: Path) -> list[CachePart]:
    """Returns the parts of the cache that are there."""
    parts = []
    for name, meaning in PARTS.items():
        files = [path for path in (folder / name).rglob("*") if path.is_file()]
        if files:
            parts.append(CachePart(name, meaning, len(files), sum(path.stat().st_size for path in files)))
    return parts


def clear_cache(folder: Path, names: tuple[str, ...] = ()) -> list[CachePart]:
    """Removes parts of the cache, all of them if none is named, and returns what was removed.

    Raises:
      DataError: a part has no such name, or a file cannot be removed.
    """
    names = names or tuple(PARTS)
    for name in names:
        if name not in PARTS:
            raise DataError(f"clear_cache: the cache has no part {name!r}; its parts are {', '.join(PARTS)}.")
    removed = [part for part in list_cache(folder) if part.name in names]
    for name in names:
        try:
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
        except OSError as error:
            raise DataError(f"clear_cache: {folder / name}: cannot be removed: {error.strerror or error}.") from None
    return removed


def format_nbytes(nbytes: int) -> str:
    """Returns a number of bytes for people.

    >>> format_nbytes(0), format_nbytes(54_950_048)
    ('0 B', '52.4 MiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    amount, unit = nbytes / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount >= 1024:
            amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"
