"""`picograd cache`: lists and empties the cache folder.

In:    the cache folder
Out:   `CachePart`s; or a folder without them

Only parts that picograd makes are listed or removed, as PICOGRAD_CACHE may name a folder with other contents.
"""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

from picograd.errors import DataError
from picograd.record import Record

PARTS: dict[str, str] = {
    "data": "data sets",
    "headers": "code that kernels on the simulator share",
    "kernels": "compiled kernels",
    "plans": "plans: the kernels of a graph and their memory",
    "tuning": "the fastest candidate of each kernel",
}


class CachePart(Record):
    """One part of the cache.

    name:       name of its folder
    meaning:    its contents in words
    num_files:  number of files, at any depth
    nbytes:     total bytes of the files
    """

    name: str
    meaning: str
    num_files: int
    nbytes: int


def list_cache(folder: Path) -> list[CachePart]:
    """Returns the existing parts of the cache."""
    parts = []
    for name, meaning in PARTS.items():
        found = [nbytes for path in (folder / name).rglob("*") if (nbytes := _nbytes_of_file(path)) is not None]
        if found:
            parts.append(CachePart(name, meaning, len(found), sum(found)))
    return parts


def _nbytes_of_file(path: Path) -> int | None:
    """Returns the bytes of a file; None if it does not exist, or no longer does."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def clear_cache(folder: Path, names: tuple[str, ...] = ()) -> list[CachePart]:
    """Removes parts of the cache, by default all, and returns the removed ones.

    Raises:
      DataError: the name of a part is unknown, or a file cannot be removed.
    """
    names = names or tuple(PARTS)
    for name in names:
        if name not in PARTS:
            raise DataError(f"clear_cache: the cache has no part {name!r}; its parts are {', '.join(PARTS)}.")
    removed = [part for part in list_cache(folder) if part.name in names]
    for name in names:
        try:
            if (folder / name).is_dir():
                _remove(folder / name)
        except OSError as error:
            raise DataError(f"clear_cache: {folder / name}: cannot be removed: {error.strerror or error}.") from None
    return removed


def _remove(part: Path) -> None:
    """Removes a folder that other processes may write to; their later files go into a new one."""
    if part.is_symlink():
        raise OSError(f"it is a link to {part.readlink()}")
    with tempfile.TemporaryDirectory(dir=part.parent, prefix=".removed_") as place:
        part.rename(Path(place) / part.name)
