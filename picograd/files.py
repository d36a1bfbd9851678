"""Files, read and written as a whole: a file is complete or not there, and every error names its path.

In:    the path a user gave; the bytes
Out:   `read_whole`, `opened`, `write_whole`; `is_ours`
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from picograd.errors import FileError

PathName = str | os.PathLike[str]
WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # a pipe has no end to wait for
BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
ABANDONED_SECONDS = 3600  # a temporary file as old as that is one whose process was killed
NAME_BYTES_MAX = 150  # of a file's name in the name of its temporary file; file systems allow 255 for all of it


def read_whole(function: str, path: PathName, hint: str | None = None, nbytes: int = -1) -> bytes:
    """Returns the bytes of a file, at most `nbytes` of them; `hint` says what to do where the machine refuses.

    Raises:
      FileError: it is not there, a folder or a device, or may not be read; `function` and the path are in the text.
    """
    with opened(function, path, hint) as file:
        return file.read(nbytes)


@contextmanager
def opened(function: str, path: PathName, hint: str | None = None) -> Iterator[BinaryIO]:
    """Opens a file for reading; one that cannot go back, such as a pipe, is read into memory first.

    Raises:
      FileError: as `read_whole`, also where reading fails within the block.
    """
    try:
        with open(_checked(path), "rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):  # endless, such as /dev/zero
                raise OSError("it is not a regular file")
            yield file if file.seekable() else io.BytesIO(file.read())
    except FileError:
        raise
    except OSError as error:
        raise FileError.of(error, f"{function}: {os.fspath(path)}: cannot be read", hint) from None


def write_whole(
    function: str,
    path: PathName,
    write: Callable[[Any], object],
    hint: str | None = None,
    makes_folder: bool = False,
    is_durable: bool = True,
) -> None:
    """Writes a file that is complete or not there: a temporary file in its folder, flushed to the disk, then a rename.

    After:   a link stays a link, to the new content. A file that is replaced keeps its mode; that of a new one is the
             umask's. Temporary files of the same name, left by processes that were killed, are removed.

    Args:
      write:         is given the open temporary file
      hint:          what to do where the machine refuses
      makes_folder:  the folder is made where it is missing
      is_durable:    the content, then its name, is on the disk before this returns

    Raises:
      FileError: the folder is missing, read-only or full, or the path names something else than a regular file, such as a
                 pipe or a device. The file that was there before is untouched.
    """
    try:
        target = os.path.realpath(_checked(path))
        folder, name = os.path.split(target)
        kept = _mode_of(target)
        if kept is not None and not stat.S_ISREG(kept):
            kind = "a folder" if stat.S_ISDIR(kept) else "not a regular file"
            remedy = "name a file in it." if stat.S_ISDIR(kept) else "open it first."
            raise FileError(f"{function}: {os.fspath(path)}: cannot be written: it is {kind}.", remedy)
        if makes_folder:
            os.makedirs(folder, exist_ok=True)
        elif not os.path.exists(folder):
            above = os.path.dirname(os.fspath(path))
            hint = "os.path.expanduser(path)" if str(above).startswith("~") else f"os.makedirs({above!r})"
        start = f".{os.fsdecode(os.fsencode(name)[:NAME_BYTES_MAX])}."
        _replace(target, os.path.join(folder, f"{start}{os.urandom(8).hex()}.part"), kept, write, is_durable)
    except FileError:
        raise
    except OSError as error:
        raise FileError.of(error, f"{function}: {os.fspath(path)}: cannot be written", hint) from None
    if is_durable:
        _settle(folder, start)


def _replace(target: str, temporary: str, mode: int | None, write: Callable[[Any], object], is_durable: bool) -> None:
    """Writes a temporary file, which takes the place and the mode of the target; it is removed where that fails."""
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666), "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            write(file)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _checked(path: PathName) -> PathName:
    """Returns a path that the machine can be asked for.

    Raises:
      OSError: it is empty, or has a zero byte, for which `open` raises a ValueError.
    """
    if not os.fspath(path):
        raise OSError(errno.EINVAL, "its name is empty")
    if os.fsencode(path).find(b"\0") >= 0:
        raise OSError(errno.EINVAL, "its name has a zero byte")
    return path


def _mode_of(path: str) -> int | None:
    """Returns the mode of the file that a path names, None where the name is free."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def _settle(folder: str, start: str) -> None:
    """Writes the rename to the disk, and removes abandoned temporary files, whose names begin with `start`."""
    with suppress(OSError):  # some file systems, and Windows, have no such call
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    with suppress(OSError), os.scandir(folder) as entries:
        parts = [entry for entry in entries if entry.name.startswith(start) and entry.name.endswith(".part")]
        for part in parts:
            with suppress(OSError):
                if time.time() - part.stat(follow_symlinks=False).st_mtime > ABANDONED_SECONDS:
                    os.unlink(part.path)


def is_ours(facts: os.stat_result, of_others: int = 0o022) -> bool:
    """True where only this user, or root, can have written a file, or what is in a folder.

    Args:
      of_others:  the bits of a mode that others may not have: writing, of the group and of all others
    """
    if not hasattr(os, "getuid"):  # Windows keeps a user's folders to the user
        return True
    return facts.st_uid in (os.getuid(), 0) and (stat.S_ISLNK(facts.st_mode) or not facts.st_mode & of_others)
