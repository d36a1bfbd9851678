"""Keeps binaries on disk: a second process compiles nothing.

In:    a Kernel and a Target
Out:   the Binary stored for them, or None;  `read_entry`, `write_entry`: bytes under a name

An entry is one file of a part of the cache ("kernels", "plans", "tuning"), in a folder by the first letter of its name, so
that keeping one never looks at all of them. It is written beside its place and moved there, so that other processes see
all of it or nothing. It begins with a digest of its name and of the rest: what was cut short, changed, or belongs elsewhere
is made again. Machine code from the cache runs as this user, so only files and folders that nobody else can write are used.
The part "headers" is written by devices/cudasim/compile.py, and trimmed with the others.
Without a folder that can be used everything works as before, only slower, and that is said once.

A binary's name is the digest of the kernel's text, the target, LLVM's version and the compiler's own source.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from picograd import dtype as dtypes
from picograd.config import cache_folder
from picograd.device import Target
from picograd.dtype import dtype_named
from picograd.errors import warn_user
from picograd.files import ABANDONED_SECONDS, WITHOUT_WAITING, is_ours
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Binary, Launch, Param, TileMap
from picograd.ir.text import format_graph, parse_graph
from picograd.look import note
from picograd.record import asdict, astuple

# ---- files ----
PARTS = ("headers", "kernels", "plans", "tuning")
MOST_NBYTES = 512 * 1024 * 1024  # of all entries; the ones unused for longest go first
NUM_LETTERS = 16  # names are digests, in hexadecimal
STORES_BETWEEN_TRIMS = 256
_stored = itertools.count(os.urandom(1)[0])  # or each short process would look through a folder
_said: set[tuple[str, str]] = set()


def read_entry(part: str, name: str) -> bytes | None:
    """Returns the content of a cache entry, or None if there is none or it is damaged."""
    folder = cache_folder()
    if folder is None or not _is_private(place := f"{folder}/{part}"):
        return None
    path = f"{place}/{name[0]}/{name}"
    content = _read(path)
    if content is None:
        return None
    digest, _, rest = content.partition(b"\n")
    whole = digest == _digest(name, rest)
    with suppress(OSError):  # a folder that can only be read is of use too
        if whole:
            os.utime(path)
        elif os.path.isdir(path) and not os.path.islink(path):
            import shutil  # and three packers

            shutil.rmtree(path)
        else:
            Path(path).unlink()
    return rest if whole else None


def write_entry(part: str, name: str, rest: bytes) -> bool:
    """Keeps an entry, all of it or nothing; returns False where the folder cannot be used or is full."""
    folder = cache_folder()
    if folder is None:
        return False
    place = f"{folder}/{part}/{name[0]}"
    try:
        if not os.path.isdir(place) and not _make(folder, part, name[0]):
            return False
        if not _is_private(f"{folder}/{part}"):
            return False
        handle, temporary = _begun(place)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(name, rest) + b"\n" + rest)
            os.replace(temporary, f"{place}/{name}")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        if next(_stored) % STORES_BETWEEN_TRIMS == 0:
            trim(letter=name[0])
    except FileNotFoundError:  # another process cleared the cache meanwhile
        return False
    except OSError as error:
        _say(folder, f"cannot be written to: {error.strerror or error}")
        return False
    return True


def _begun(place: str) -> tuple[int, str]:
    """Returns a file that is nobody else's, open, and its path; `tempfile` does the same, and takes 3 ms to import."""
    path = f"{place}/{os.urandom(16).hex()}.part"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode=0o600), path


def _make(folder: Path, part: str, letter: str) -> bool:
    """Makes the folder of a letter; returns False, and says so once, where the cache's own cannot be made.

    Raises:
      FileNotFoundError: another process cleared the cache meanwhile.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileNotFoundError as error:  # where nothing can be made, such as in /proc
        _say(folder, f"cannot be made: {error.strerror}")
        return False
    for place in (folder / part, folder / part / letter):
        place.mkdir(mode=0o700, exist_ok=True)
    return True


def trim(most_nbytes: int | None = None, letter: str | None = None) -> int:
    """Removes the entries unused for longest until the rest fits; returns how many went.

    Args:
      most_nbytes:  of all entries; None for what the cache may hold
      letter:       look only at names that begin with it, which get their share of the bytes; at all for None
    """
    folder = cache_folder()
    if folder is None:
        return 0
    entries, now = [], time.time()
    for path, facts in _files(folder, letter):
        if not path.endswith(".part"):
            entries.append((facts.st_mtime, facts.st_size, path))
        elif now - facts.st_mtime > ABANDONED_SECONDS:
            Path(path).unlink(missing_ok=True)
    most = (MOST_NBYTES if most_nbytes is None else most_nbytes) // (1 if letter is None else NUM_LETTERS)
    total, removed = sum(nbytes for _, nbytes, _ in entries), 0
    for _, nbytes, path in sorted(entries):
        if total <= most:
            break
        Path(path).unlink(missing_ok=True)
        total, removed = total - nbytes, removed + 1
    return removed


def _files(folder: Path, letter: str | None) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the files of all parts, or those of a letter; what another process removes meanwhile is not there."""
    for place in (place for part in PARTS for place in (folder / part).glob(letter or "*")):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as found:
            yield from filter(None, map(_file, found))


def _file(item: os.DirEntry[str]) -> tuple[str, os.stat_result] | None:
    try:
        facts = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return (item.path, facts) if stat.S_ISREG(facts.st_mode) else None


def _digest(name: str, rest: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + rest).hexdigest().encode()


def _read(path: str) -> bytes | None:
    """Returns the content of a file, b"" for what is no file of this user, or None where there is nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | WITHOUT_WAITING)
    except FileNotFoundError:
        return None
    except OSError:  # a link to itself, say, or a file that may not be read
        return b""
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or not is_ours(facts) or facts.st_size > MOST_NBYTES:
            return b""
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    except OSError:  # a broken disk
        return b""
    finally:
        os.close(handle)


# ---- whose folder it is ----
def _is_private(folder: str) -> bool:
    """True for a folder that only this user can write to; says once why another one is not used."""
    try:
        facts = os.stat(folder)
    except OSError:
        return False
    if not is_ours(facts):
        _say(folder, f"is not used: it, or what is in it, could be written by others (mode {facts.st_mode & 0o777:o})")
        return False
    return True


def _say(folder: Path | str, what: str) -> None:
    """Warns once of a folder that is done without."""
    if (str(folder), what) not in _said:
        _said.add((str(folder), what))
        warn_user(
            f"the cache {folder} {what}. Kernels are compiled again in each process."
            "\n  hint: PICOGRAD_CACHE names another folder, and PICOGRAD_CACHE=off turns the cache off."
        )


# ---- binaries ----
STAGES = ("engine", "road.py", "dtype.py", "device.py", "ir", "rewrites", "schedule", "codegen", "devices")
SOURCES = (".py", ".h", ".cpp", ".cu", ".rsp")


@cache
def compiler_digest() -> str:
    """Returns a digest of every source file that decides what a plan or a binary contains, and of LLVM's version."""
    import llvmlite.binding

    digest = hashlib.sha256(f"{llvmlite.__version__} {llvmlite.binding.llvm_version_info}".encode())
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for stage in STAGES:
        for path in _sources_in(f"{package}/{stage}"):
            with open(path, "rb", buffering=0) as file:
                digest.update(path.removeprefix(package).encode() + b"\0" + file.readall())
    return digest.hexdigest()


def _sources_in(place: str) -> Iterator[str]:
    """Returns the source files at a place, in order. Every process asks, and pathlib takes twice the time."""
    if os.path.isfile(place):
        yield place
    for folder, inner, names in os.walk(place):
        inner.sort()
        yield from (f"{folder}/{name}" for name in sorted(names) if name.endswith(SOURCES))


def entry_name(text: str, target: Target) -> str:
    """Returns the file name under which what was made from `text`, for a target, is kept."""
    return hashlib.sha256(f"{compiler_digest()}\n{_target_text(target)}\n{text}".encode()).hexdigest() + ".bin"


@cache
def _target_text(target: Target) -> str:
    return json.dumps(target, sort_keys=True, default=asdict)


def kept(name: str | None, begin: Callable[[], Callable[[], Binary]]) -> Callable[[], Binary]:
    """Looks for the Binary of an entry; the result gives it, or finishes what is begun and keeps it, on any thread.

    Args:
      name:  None: nothing is looked for nor kept
    """
    if name is None:
        return begin()
    found = load_binary(name)
    if found is not None:
        note("disk_hits")
        return lambda: found
    finish = begin()

    def finish_and_keep() -> Binary:
        made = finish()
        store_binary(name, made)
        return made

    return finish_and_keep


def load_binary(name: str) -> Binary | None:
    """Returns a stored Binary, or None if there is none that is whole."""
    rest = read_entry("kernels", name)
    if rest is None:
        return None
    header, _, data = rest.partition(b"\n")
    return _binary_from(json.loads(header), data)


def store_binary(name: str, binary: Binary) -> bool:
    """Keeps a Binary; returns False where the folder cannot be written to or is full."""
    return write_entry("kernels", name, json.dumps(_binary_record(binary)).encode() + b"\n" + binary.data)


def dim_text(dim: Dim) -> int | str:
    """Returns a dimension as records on disk hold it."""
    return dim if isinstance(dim, int) else format_graph([dim])


def read_dim(value: int | str) -> Dim:
    """Returns the dimension that `dim_text` wrote."""
    return value if isinstance(value, int) else parse_graph(value)[0]


def _binary_record(binary: Binary) -> dict[str, Any]:
    return {
        "name": binary.name,
        "params": [[p.dtype.name, dim_text(p.numel), p.role] for p in binary.params],
        "variables": [list(v.arg) for v in binary.variables],
        "launches": [
            [x.symbol, dim_text(x.grid), x.block, x.work, x.shared_nbytes, [list(astuple(one)) for one in x.tile_maps],
             x.axes]
            for x in binary.launches
        ],
    }


def _binary_from(record: dict[str, Any], data: bytes) -> Binary:
    params = tuple(Param(dtype_named(name), read_dim(numel), role) for name, numel, role in record["params"])
    variables = tuple(Op(OpCode.VARIABLE, dtypes.int64, (), tuple(arg)) for arg in record["variables"])
    launches = tuple(
        Launch(symbol, read_dim(grid), block, work, shared_nbytes, tuple(map(_read_map, maps)), tuple(axes))
        for symbol, grid, block, work, shared_nbytes, maps, axes in record["launches"]
    )
    return Binary(record["name"], data, params, variables, launches)


def _read_map(values: list[Any]) -> TileMap:
    param, shape, box, swizzles, offset, strides, rounds = values
    return TileMap(param, tuple(shape), tuple(box), swizzles, offset, tuple(strides), rounds)
