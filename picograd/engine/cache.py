"""Keeps schedules and binaries on disk: a second process plans and compiles nothing.

In:    the form of graphs, or the text of a kernel, and a Target
Out:   the Schedule or the Binary stored for them, or None;  `read_entry`, `write_entry`: bytes under a name

An entry is one file of a part of the cache ("kernels", "plans", "tuning"), in a folder by the first letter of its name, so
that no write has to list all of them. It is written to a temporary file and then renamed, so that other processes see the
whole entry or none. It begins with a digest of its name and content: an entry that was cut short, changed or misplaced is
made again. Machine code from the cache runs as this user, so files and folders that others can write are not used.
The part "headers" is written by devices/cudasim/compile.py, and trimmed with the others.
Without a usable folder everything works, only slower; one warning says so.

A name is the digest of the form or of the kernel's text, of the target, LLVM's version and the compiler's own source. A
schedule's entry names the binaries of its kernels, which are entries of their own: if one of them is gone, the whole plan
is made again. A runner needs only the code of compiled kernels, so no graph is kept.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from picograd import dtype as dtypes
from picograd.config import cache_folder, is_on, num_threads, setting, shown_stages
from picograd.device import Target
from picograd.dtype import DType, dtype_named
from picograd.errors import warn_user
from picograd.files import ABANDONED_SECONDS, WITHOUT_WAITING, is_ours
from picograd.ir.host import GivenKernel, offers
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import Named, OpCode
from picograd.ir.stages import (
    Binary,
    BufferUse,
    Executable,
    Feed,
    Kernel,
    Launch,
    LoopItem,
    Param,
    Result,
    Schedule,
    ScheduleItem,
    TileMap,
)
from picograd.ir.text import RECORDS, format_graph, parse_graph, show
from picograd.look import note
from picograd.record import asdict, astuple, replace

# ---- files ----
PARTS = ("headers", "kernels", "plans", "tuning")
CACHE_NBYTES_MAX = 512 * 1024 * 1024  # of all entries; those unused for longest are removed first
NUM_LETTERS = 16  # names are hexadecimal digests
STORES_BETWEEN_TRIMS = 256
_stored = itertools.count(os.urandom(1)[0])  # a random start: from 0, each short process would list a folder
_said: set[tuple[str, str]] = set()


def read_entry(part: str, name: str) -> bytes | None:
    """Returns the content of a cache entry; None if there is no entry or it is damaged."""
    folder = cache_folder()
    if folder is None or not _is_private(place := f"{folder}/{part}"):
        return None
    path = f"{place}/{name[0]}/{name}"
    content = _read(path)
    if content is None:
        return None
    digest, _, rest = content.partition(b"\n")
    whole = digest == _digest(name, rest)
    with suppress(OSError):  # a read-only folder is of use, too
        if whole:
            os.utime(path)
        elif os.path.isdir(path) and not os.path.islink(path):
            import shutil  # and three packers

            shutil.rmtree(path)
        else:
            Path(path).unlink()
    return rest if whole else None


def write_entry(part: str, name: str, rest: bytes) -> bool:
    """Keeps a whole entry or none; returns False if the folder cannot be used or is full."""
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
    """Opens a new temporary file; returns its handle and path. `tempfile` does the same, and takes 3 ms to import."""
    path = f"{place}/{os.urandom(16).hex()}.part"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode=0o600), path


def _make(folder: Path, part: str, letter: str) -> bool:
    """Makes the folder of a letter; returns False, with one warning, if the cache's own folder cannot be made.

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
    """Removes the entries unused for longest until the rest fits; returns the number of those removed.

    Args:
      most_nbytes:  limit for all entries; None: CACHE_NBYTES_MAX
      letter:       only names that begin with it are looked at, and get their share of the limit; None: all names
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
    most = (CACHE_NBYTES_MAX if most_nbytes is None else most_nbytes) // (1 if letter is None else NUM_LETTERS)
    total, removed = sum(nbytes for _, nbytes, _ in entries), 0
    for _, nbytes, path in sorted(entries):
        if total <= most:
            break
        Path(path).unlink(missing_ok=True)
        total, removed = total - nbytes, removed + 1
    return removed


def _files(folder: Path, letter: str | None) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the files of all parts, or those of a letter; skips files that another process removes meanwhile."""
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
    """Returns the content of a file, b"" if it is not a plain file of this user, None if there is no such file."""
    try:
        handle = os.open(path, os.O_RDONLY | WITHOUT_WAITING)
    except FileNotFoundError:
        return None
    except OSError:  # a link to itself, say, or a file that may not be read
        return b""
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or not is_ours(facts) or facts.st_size > CACHE_NBYTES_MAX:
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
        _say(folder, f"is not used: other users can write to it (mode {facts.st_mode & 0o777:o})")
        return False
    return True


def _say(folder: Path | str, what: str) -> None:
    """Warns once that a folder is not used."""
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
    """Returns a function, for any thread, that gives the Binary of an entry: the stored one, or a new one that it stores.

    Args:
      name:   name of the entry; None: the Binary is made in any case, and not stored
      begin:  begins making the Binary, and returns the function that finishes it
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
    """Returns a stored Binary, or None if there is no undamaged one."""
    rest = read_entry("kernels", name)
    if rest is None:
        return None
    header, _, data = rest.partition(b"\n")
    return _binary_from(json.loads(header), data)


def store_binary(name: str, binary: Binary) -> bool:
    """Stores a Binary; returns False if the folder cannot be used or is full."""
    return write_entry("kernels", name, json.dumps(_binary_record(binary)).encode() + b"\n" + binary.data)


def _dim_text(dim: Dim) -> int | str:
    """Returns a dimension as records on disk hold it."""
    return dim if isinstance(dim, int) else format_graph([dim])


def _read_dim(value: int | str) -> Dim:
    """Returns the dimension that `_dim_text` wrote."""
    return value if isinstance(value, int) else parse_graph(value)[0]


def _binary_record(binary: Binary) -> dict[str, Any]:
    return {
        "name": binary.name,
        "params": [[p.dtype.name, _dim_text(p.numel), p.role] for p in binary.params],
        "variables": [list(v.arg) for v in binary.variables],
        "launches": [
            [x.symbol, _dim_text(x.grid), x.block, x.work, x.shared_nbytes, [list(astuple(one)) for one in x.tile_maps],
             x.axes]
            for x in binary.launches
        ],
    }


def _binary_from(record: dict[str, Any], data: bytes) -> Binary:
    params = tuple(Param(dtype_named(name), _read_dim(numel), role) for name, numel, role in record["params"])
    variables = tuple(Op(OpCode.VARIABLE, dtypes.int64, (), tuple(arg)) for arg in record["variables"])
    launches = tuple(
        Launch(symbol, _read_dim(grid), block, work, shared_nbytes, tuple(map(_read_map, maps)), tuple(axes))
        for symbol, grid, block, work, shared_nbytes, maps, axes in record["launches"]
    )
    return Binary(record["name"], data, params, variables, launches)


def _read_map(values: list[Any]) -> TileMap:
    param, shape, box, swizzles, offset, strides, rounds = values
    return TileMap(param, tuple(shape), tuple(box), swizzles, offset, tuple(strides), rounds)


# ---- a plan's entry, by the form of its graphs ----
KEPT_KERNELS_MIN = 2  # a single kernel is scheduled again as quickly as its schedule would be read
RECORD_TYPES = tuple(RECORDS.values())
Numbers = dict[Any, int]


def plan_entry(key: Hashable, target: Target, tune: bool, library: str = "") -> str | None:
    """Returns the name of the entry for a form of graph on a target; None if no entry is read or written.

    While stages are shown, dumped or verified, or kernels are offered, every stage runs again.

    Args:
      tune:     whether candidates are timed
      library:  a vendor's library that is among the candidates
    """
    looked_on = shown_stages() or setting("PICOGRAD_DUMP") or is_on("PICOGRAD_VERIFY")
    if looked_on or offers.key or cache_folder() is None:
        return None
    text = form_text(key)
    kind = f"plan tuned with {num_threads()} threads {library}" if tune else "plan"
    return None if text is None else entry_name(f"{kind}\n{text}", target)


def form_text(key: Hashable) -> str | None:
    """Returns a text that identifies a form in every process; None if a part of the form has no such text."""
    try:
        return _Texts().of(key)
    except _WithoutText:
        return None


class _Texts:
    """The texts of the parts of a form, each written once."""

    def __init__(self) -> None:
        self.known: dict[Hashable, str] = {}

    def of(self, value: Any) -> str:
        if value.__class__ is int:
            return str(value)
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = _text_of(value, self.of)
        return found


class _WithoutText(Exception):
    """A part of a form has no text, such as the user's own code."""


def _text_of(value: Any, text: Callable[[Any], str]) -> str:
    """Returns a text of a part of a form that is the same in every process; raises _WithoutText if there is none."""
    if isinstance(value, tuple):
        return f"({' '.join([text(part) for part in value])})"
    if isinstance(value, Named | DType):
        return value.name
    if isinstance(value, Op):
        return f"{{{format_graph([value])}}}"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return show(value, str)
    if isinstance(value, RECORD_TYPES):
        return show(value, text)
    if isinstance(value, GivenKernel):  # its meaning has no text: a plan that calls that is not stored
        return show(replace(value, meaning=None), text)
    raise _WithoutText


# ---- schedules ----
def without_graphs(schedule: Schedule, executables: Iterator[Executable]) -> Schedule:
    """Returns a schedule without the graphs of its kernels, which have code now: `executables` by `kernel_items()`."""
    items: list[ScheduleItem | LoopItem] = []
    for item in schedule.items:
        if isinstance(item, LoopItem):
            items.append(replace(item, body=without_graphs(item.body, executables)))
        else:
            items.append(replace(item, kernel=_kernel_of(next(executables), len(item.buffers))))
    return replace(schedule, items=tuple(items))


def _kernel_of(code: Executable, num_buffers: int) -> Kernel:
    """Returns a kernel for its code, whose own parameters, behind those of the kernel, are left out."""
    return Kernel(code.name, code.params[:num_buffers], code.variables, ())


def store_schedule(
    name: str, schedule: Schedule, executables: Sequence[Executable], entries: Mapping[Executable, str]
) -> bool:
    """Stores a schedule, with its executables by `kernel_items()`; returns whether it did.

    It does not if the schedule is small, if a kernel is not in the cache, or if the folder cannot be used.

    Args:
      entries:  executable -> name of its entry
    """
    code = {item.kernel: executable for item, executable in zip(schedule.kernel_items(), executables)}
    kernels, names = list(code), [entries.get(executable) for executable in code.values()]
    if len(executables) < KEPT_KERNELS_MIN or None in names:
        return False
    bodies = list(dict.fromkeys(_bodies(schedule)))
    of_kernel, of_body = ({made: i for i, made in enumerate(found)} for found in (kernels, bodies))
    schedules = [_schedule_record(body, of_kernel, of_body) for body in [*bodies, schedule]]
    return write_entry("plans", name, json.dumps({"kernels": names, "schedules": schedules}).encode())


def load_schedule(
    name: str, load: Callable[[Sequence[str]], list[Executable] | None]
) -> tuple[Schedule, list[Executable]] | None:
    """Returns a stored schedule and its executables, by `kernel_items()`; None if some are missing.

    Args:
      load:  returns the code of entries by name, or None if one of them is gone
    """
    content = read_entry("plans", name)
    if content is None:
        return None
    record = json.loads(content)
    executables = load(record["kernels"])
    if executables is None:
        return None
    numbers: dict[int, list[int]] = {}
    schedules: list[Schedule] = []
    for number, found in enumerate(record["schedules"]):
        numbers[number] = []
        schedules.append(_schedule_from(found, executables, schedules, numbers))
    return schedules[-1], [executables[i] for i in numbers[len(schedules) - 1]]


def _bodies(schedule: Schedule) -> Iterator[Schedule]:
    """Yields the schedules of bodies, inner ones first."""
    for item in schedule.items:
        if isinstance(item, LoopItem):
            yield from _bodies(item.body)
            yield item.body


def _schedule_record(schedule: Schedule, of_kernel: Numbers, of_body: Numbers) -> dict[str, Any]:
    """Returns a schedule as JSON holds it: kernels and bodies by number."""
    return {
        "items": [_item_record(item, of_kernel, of_body) for item in schedule.items],
        "buffers": [
            [use.dtype.name, _dim_text(use.numel), use.role, use.source, use.over, use.keeps, use.also, use.late]
            for use in schedule.buffers
        ],
        "inputs": [[op.arg[0], op.dtype.name, [_dim_text(dim) for dim in op.shape]] for op in schedule.inputs],
        "outputs": schedule.outputs,
        "arena_nbytes": schedule.arena_nbytes,
        "commit": schedule.commit,
    }


def _item_record(item: ScheduleItem | LoopItem, of_kernel: Numbers, of_body: Numbers) -> dict[str, Any]:
    if isinstance(item, ScheduleItem):
        return {"kernel": of_kernel[item.kernel], "buffers": item.buffers, "checks": item.checks}
    return {
        "body": of_body[item.body],
        "steps": _dim_text(item.steps),
        "feeds": [[feed.buffer, feed.is_row, feed.reversed, feed.carried] for feed in item.feeds],
        "results": [[result.buffer, result.is_row, result.spare, result.other] for result in item.results],
        "memory": item.memory,
    }


def _schedule_from(
    record: dict[str, Any], executables: Sequence[Executable], bodies: Sequence[Schedule], numbers: dict[int, list[int]]
) -> Schedule:
    """Returns the schedule of a record.

    Args:
      numbers:  for each body the numbers of its kernels among `executables`; those of this schedule are added as the last
    """
    own = numbers[len(bodies)]
    items: list[ScheduleItem | LoopItem] = []
    for item in record["items"]:
        if "body" in item:
            feeds = tuple([Feed(*fields) for fields in item["feeds"]])
            results = tuple([Result(*fields) for fields in item["results"]])
            items.append(LoopItem(bodies[item["body"]], _read_dim(item["steps"]), feeds, results, item["memory"]))
            own += numbers[item["body"]]
        else:
            kernel = _kernel_of(executables[item["kernel"]], len(item["buffers"]))
            items.append(ScheduleItem(kernel, tuple(item["buffers"]), tuple(item["checks"])))
            own.append(item["kernel"])
    buffers = [
        BufferUse(dtype_named(dtype), _read_dim(numel), role, source, over, keeps, tuple(also), late)
        for dtype, numel, role, source, over, keeps, also, late in record["buffers"]
    ]
    inputs = [
        Op(OpCode.PARAM, dtype_named(dtype), (), (slot, tuple([_read_dim(dim) for dim in shape])))
        for slot, dtype, shape in record["inputs"]
    ]
    outputs = tuple(record["outputs"])
    return Schedule(tuple(items), tuple(buffers), tuple(inputs), outputs, record["arena_nbytes"], record["commit"])
