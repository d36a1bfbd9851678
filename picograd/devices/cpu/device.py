"""The CPU device: memory of this process, object files linked into it, plans walked natively.

In:    Binaries, Schedules, host arrays
Out:   `CPUDevice`;  `image_of`: the sections of an object file in one piece, or None where it has more in it;
       `place`: an image in memory, to be called

LLVM's own linker gives each object pages and tables of its own, 42 KB, and keeps 27 of them when the object is dropped. Yet
what it emits for a kernel is plain: sections that are only read, and distances between them. Such an object (ELF, x86-64)
is placed here, so that a kernel takes as much memory as its code is long.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cpu.memory import Memory, MemoryPool
from picograd.devices.cpu.runner import HostCode, Runner
from picograd.devices.cpu.walker import Walker, bind_walker
from picograd.devices.launches import Function, is_library, words_of
from picograd.errors import DeviceError
from picograd.interrupts import AtDeath, cached_property, forks_wait, held_back
from picograd.ir.op import Op
from picograd.ir.stages import REPORT_WORDS, Binary, Executable, Launch, Param, Schedule
from picograd.ir.stages import Runner as RunnerType
from picograd.loading import load_late

# ---- object files in memory that they share ----
CHUNK_NBYTES = 1 << 18  # asked of the system at once; pages that were never written take no memory
LINE_NBYTES = 64  # what all pieces are aligned to: constants are as long as a vector

# System V ABI, AMD64 supplement 1.0, and the ELF specification: what a header, a section and a symbol hold.
_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
_RELOCATION = struct.Struct("<2Qq")
_IDENT, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01", 1, 62
_PROGBITS, _SYMTAB, _RELA, _UNWIND = 1, 2, 4, 0x70000001
_WRITE, _ALLOC = 1, 2  # of a section
_LOCAL = 0  # binding of a symbol that is not seen outside of the object
_PC32, _PLT32 = 2, 4  # relocations that hold a distance in 32 bits


class Image(NamedTuple):
    """Sections of an object file in one piece that works at any address; `symbols` are offsets in it."""

    data: bytes
    symbols: Mapping[str, int]


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    nbytes: int
    link: int
    info: int
    alignment: int
    entry_nbytes: int


def image_of(data: bytes) -> Image | None:
    """Returns the image of an object file in memory; None for another format, or one that asks for symbols of others."""
    if sys.platform != "linux" or not data.startswith(_IDENT):
        return None
    header = _HEADER.unpack_from(data)
    if header[1:3] != (_RELOCATABLE, _X86_64):
        return None
    first, entry_nbytes, count = header[6], header[11], header[12]
    sections = [_Section(*_SECTION.unpack_from(data, first + number * entry_nbytes)) for number in range(count)]
    places: dict[int, int] = {}  # of sections, by number
    image = bytearray()
    for number, section in enumerate(sections):
        if not section.flags & _ALLOC or section.kind == _UNWIND:  # nothing unwinds through a kernel
            continue
        if section.kind != _PROGBITS or section.flags & _WRITE or section.alignment > LINE_NBYTES:
            return None
        image += bytes(-len(image) % max(1, section.alignment))
        places[number] = len(image)
        image += data[section.offset : section.offset + section.nbytes]
    tables = {number: _symbols(data, section) for number, section in enumerate(sections) if section.kind == _SYMTAB}
    for section in sections:
        asks = section.kind == _RELA and section.info in places
        if asks and not _relocate(image, data, section, tables[section.link], places):
            return None
    symbols = {}
    for number, table in tables.items():
        names = sections[sections[number].link].offset
        for name, info, _, home, value, _ in table:
            if home in places and info >> 4 != _LOCAL:  # of constants; a kernel has dozens of them
                start = names + name
                symbols[data[start : data.index(0, start)].decode()] = places[home] + value
    return Image(bytes(image), symbols)


def _symbols(data: bytes, section: _Section) -> list[tuple[int, ...]]:
    return list(_SYMBOL.iter_unpack(data[section.offset : section.offset + section.nbytes]))


def _relocate(
    image: bytearray, data: bytes, section: _Section, symbols: list[tuple[int, ...]], places: Mapping[int, int]
) -> bool:
    """Stores the distances that a section asks for; returns False where one leads out of the object."""
    home = places[section.info]
    for offset, info, addend in _RELOCATION.iter_unpack(data[section.offset : section.offset + section.nbytes]):
        _, _, _, target, value, _ = symbols[info >> 32]
        if info & 0xFFFFFFFF not in (_PC32, _PLT32) or target not in places:
            return False
        struct.pack_into("<i", image, home + offset, places[target] + value + addend - (home + offset))
    return True


# ---- memory of code ----
class Placed:
    """Code in memory, for as long as this lives: addresses by symbol."""

    def __init__(self, room: _Room, address: int, nbytes: int, symbols: Mapping[str, int]):
        self._address, self._symbols = address, symbols
        self._given_back = AtDeath(room.free.setdefault(nbytes, []).append, address)

    def __getitem__(self, symbol: str) -> int:
        return self._address + self._symbols[symbol]


class _Room:
    """Memory that is never given back: threads may run code in it when the process ends.

    free:  pieces that are no longer used, by length
    """

    def __init__(self) -> None:
        self.free: dict[int, list[int]] = {}
        self._start, self._left = 0, 0

    def store(self, code: bytes) -> tuple[int, int]:
        """Returns the address and the length of a piece that holds `code`."""
        nbytes = -(-len(code) // LINE_NBYTES) * LINE_NBYTES
        free = self.free.get(nbytes)
        address = free.pop() if free else self._fresh(nbytes)
        first = address & -mmap.PAGESIZE
        length = (address + nbytes - first + mmap.PAGESIZE - 1) & -mmap.PAGESIZE
        # Others may run code in the same pages, so these stay executable while they are written.
        _protect(first, length, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        ctypes.memmove(address, code, len(code))
        _protect(first, length, mmap.PROT_READ | mmap.PROT_EXEC)
        return address, nbytes

    def _fresh(self, nbytes: int) -> int:
        if nbytes > self._left:
            self._left = -(-max(nbytes, CHUNK_NBYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
            self._start = _map(self._left)
        address = self._start
        self._start, self._left = address + nbytes, self._left - nbytes
        return address


def _map(nbytes: int) -> int:
    """Returns the address of new pages, which a child process gets as a copy."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    found = _libc().mmap(None, ctypes.c_size_t(nbytes), rights, flags, -1, ctypes.c_long(0))
    if found in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    return int(found)


def _protect(address: int, nbytes: int, rights: int) -> None:
    """Sets what may be done with pages."""
    if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), rights):
        raise OSError(ctypes.get_errno(), "mprotect")


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    return library


_room = _Room()


def place(image: Image) -> Placed:
    """Puts an image into memory, where its symbols can be called. One thread at a time may call this.

    Raises:
      OSError: the system has no memory, or forbids making code.
    """
    address, nbytes = _room.store(image.data)
    return Placed(_room, address, nbytes, image.symbols)


TWICE_COPIED_NBYTES_MAX = 4096  # that are copied once more: to ask NumPy where they are costs as much
_linking = threading.Lock()
_library_number = itertools.count()


# ---- the device ----
class CPUDevice:
    """Implements ir/backend.py's Device.

    target:  what code generation needs to know
    memory:  the pool blocks come from
    """

    def __init__(self, target: Target, walker: Callable[[], Binary]):
        """`walker` gives `walker_source()` compiled for `target`; it is asked when the first plan is to be run."""
        self.name, self.target, self.memory = target.device, target, MemoryPool()
        self._make_walker = walker

    @cached_property
    def _walker(self) -> Walker:
        return bind_walker(linked(self._make_walker()))

    def allocate(self, nbytes: int) -> Memory:
        """Returns at least `nbytes` bytes, at a multiple of ALIGNMENT.

        Raises:
          OutOfMemoryError: the system gives no memory.
        """
        return self.memory.allocate_all((nbytes,))[0]

    def allocate_all(self, lengths: Sequence[int]) -> list[Memory]:
        """Returns memory of at least each number of bytes.

        Raises:
          OutOfMemoryError: the system gives no memory.
        """
        return self.memory.allocate_all(lengths)

    def copy_in(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Stores a C-contiguous host array at the start of `memory`."""
        assert array.flags.c_contiguous and array.nbytes <= memory.nbytes, f"{array.nbytes} bytes into {memory}"
        data = array.tobytes() if array.nbytes <= TWICE_COPIED_NBYTES_MAX else array.ctypes.data
        ctypes.memmove(memory.address, data, array.nbytes)

    def copy_out(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Fills a C-contiguous host array from the start of `memory`; runs are over when they return."""
        assert array.flags.c_contiguous and array.nbytes <= memory.nbytes, f"{array.nbytes} bytes from {memory}"
        ctypes.memmove(array.ctypes.data, memory.address, array.nbytes)

    def copy(self, target: Memory, source: Memory, nbytes: int) -> None:
        """Copies the first `nbytes` bytes."""
        ctypes.memmove(target.address, source.address, nbytes)

    def load(self, binary: Binary) -> Executable:
        """Links an object file into this process; it is unloaded when the Executable dies. Cost: 0.1 ms."""
        return linked(binary)

    def load_host(
        self, name: str, params: Sequence[Param], variables: Sequence[Op], work: int, run: Function
    ) -> Executable:
        """Makes a function on arrays callable within plans; a report is added to its parameters."""
        given = (*params, Param(dtypes.int64, REPORT_WORDS, "report"))
        code = HostCode(given, variables, run)
        return Executable(name, given, tuple(variables), (Launch(f"{name}_0", 1, 1, work),), (code.address,), code)

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> RunnerType:
        """Returns run(inputs, outputs, variables, may_stop); its threads are `config.num_threads()` at this moment."""
        # NOTE: Python calls a bound method more quickly than an object whose class has __call__.
        return Runner(schedule, executables, self._walker, self.memory).__call__


# ---- code that is loaded ----
def linked(binary: Binary) -> Executable:
    """Returns the functions of an object file, in this process for as long as the Executable lives.

    Raises:
      DeviceError: the object file needs a symbol that this process does not have, or the system lets nobody make code.
    """
    image = image_of(binary.data)
    owner = placed(binary.name, image) if image else words_of(binary) if is_library(binary.data) else link(binary)
    addresses = tuple(owner[launch.symbol] for launch in binary.launches)
    return binary.executable(addresses, owner)


def placed(name: str, image: Image) -> Placed:
    """Returns the code of a kernel in memory.

    Raises:
      DeviceError: the system lets nobody make code.
    """
    with forks_wait(), _linking:
        try:
            return place(image)
        except OSError as error:
            raise DeviceError(f"CPU: kernel {name} cannot be loaded: {os.strerror(error.errno or 0)}.") from None


def link(binary: Binary) -> Any:
    """Returns llvmlite's tracker of an object file that LLVM links: addresses by symbol.

    Raises:
      DeviceError: the object file needs a symbol that this process does not have.
    """
    binding = load_late("llvmlite.binding")
    with held_back(), forks_wait(), _linking:
        builder = binding.JITLibraryBuilder().add_object_img(binary.data).add_current_process()
        for launch in binary.launches:
            builder.export_symbol(launch.symbol)
        try:
            return builder.link(_linker(), f"picograd_{next(_library_number)}")
        except RuntimeError as error:
            raise DeviceError(f"CPU: kernel {binary.name} cannot be linked: {str(error).strip()}") from None


@cache
def _linker() -> Any:
    binding = load_late("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.create_lljit_compiler(use_jit_link=True)
