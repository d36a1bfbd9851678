"""The CUDASIM device: CUDA C run on the CPU, with every access checked.

In:    Binaries from devices/cudasim/compile.py, Schedules, host arrays
Out:   `CudaSimDevice`

It finds bugs; it is not fast. devices/cudasim/cudasim.h lists what it finds; a launch that breaks a rule raises DeviceError
with the kernel, the block and the thread.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from picograd.device import Target
from picograd.devices.cuda.tile_maps import AXES_MAX, check_inside, checked
from picograd.devices.launches import (
    Argument,
    Call,
    HostFunction,
    array_at,
    axes_of,
    load_host,
    load_library,
    runner_of_calls,
)
from picograd.errors import DeviceError
from picograd.interrupts import held_back, lock
from picograd.ir.backend import ALIGNMENT, MemoryCount
from picograd.ir.host import GIVEN_TEXT, lines_of_files
from picograd.ir.origin import out_of_memory
from picograd.ir.stages import Binary, Executable, Runner, Schedule, TileMap
from picograd.ir.symbolic import dim_value

TARGET = Target(
    "CUDASIM", "cuda", "sim", vector_bytes=16, block_threads=256, shared_bytes=99 * 1024, has_mma=True,
    has_async_copies=True,
)  # fmt: skip
ORDERS = ("forward", "backward", "shuffled")
UNWRITTEN = 0xFF  # every byte of new memory: NaN in a float, so that reads before writes show

_under_way: list[held_back] = []  # of the launch that runs


def _is_interrupted() -> bool:
    """Tells a kernel that runs whether to give up: Python hears Ctrl-C between two steps of its own, such as this one."""
    return any(hold.ends_at_once for hold in _under_way)


_asked = ctypes.CFUNCTYPE(ctypes.c_int32)(_is_interrupted)
_running = lock()  # a simulator library has static state, a plan its temporaries


class HostMemory:
    """Host memory.

    address:  of the first byte, a multiple of ALIGNMENT
    nbytes:   requested size
    """

    __slots__ = ("address", "nbytes", "bytes", "_counted")

    def __init__(self, nbytes: int, count: MemoryCount):
        try:
            whole = np.full(nbytes + ALIGNMENT, UNWRITTEN, np.uint8)
        except MemoryError:
            raise out_of_memory("CUDASIM", nbytes) from None
        start = -whole.ctypes.data % ALIGNMENT
        self.bytes = whole[start : start + nbytes]
        self.address, self.nbytes = int(whole.ctypes.data) + start, nbytes
        self._counted = count.take(nbytes)


class CudaSimDevice:
    """A simulated GPU.

    order:  order of the threads of a block, and of the blocks: "forward", "backward" or "shuffled".
            A correct kernel gives the same result in every order.
    seed:   seed of the shuffled order
    """

    name = "CUDASIM"
    target = TARGET

    def __init__(self, order: str = "forward", seed: int = 0):
        self.order, self.seed = ORDERS.index(order), seed
        self.memory = MemoryCount()

    def allocate(self, nbytes: int) -> HostMemory:
        """Returns memory of at least `nbytes` bytes, filled with NaN."""
        return HostMemory(nbytes, self.memory)

    def allocate_all(self, lengths: Sequence[int]) -> list[HostMemory]:
        """Returns memory of at least each number of bytes."""
        return [self.allocate(nbytes) for nbytes in lengths]

    def copy_in(self, memory: HostMemory, array: np.ndarray[Any, Any]) -> None:
        """Stores a C-contiguous host array at the start of `memory`."""
        memory.bytes[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def copy_out(self, memory: HostMemory, array: np.ndarray[Any, Any]) -> None:
        """Fills a C-contiguous host array from the start of `memory`."""
        array.reshape(-1).view(np.uint8)[:] = memory.bytes[: array.nbytes]

    def copy(self, target: HostMemory, source: HostMemory, nbytes: int) -> None:
        """Copies the first `nbytes` bytes."""
        target.bytes[:nbytes] = source.bytes[:nbytes]

    def load(self, binary: Binary) -> Executable:
        """Loads the shared library of a kernel."""
        library = load_library(binary, self.name)
        library.picograd_ask(_asked)
        functions = []
        for launch in binary.launches:
            function = library[f"{launch.symbol}_launch"]
            function.restype = ctypes.c_char_p
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
            if hasattr(library, GIVEN_TEXT):
                function.picograd_text = ctypes.string_at(getattr(library, GIVEN_TEXT)).decode()  # type: ignore[attr-defined]
            functions.append(function)
        return binary.executable(tuple(functions), library)

    load_host = staticmethod(load_host)

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns run(inputs, outputs, variables, may_stop); temporaries are poisoned before each run."""
        def poison(arena: HostMemory) -> None:
            arena.bytes.fill(UNWRITTEN)

        return runner_of_calls(self, schedule, executables, self._make_call, _running, poison)

    def _make_call(self, call: Call, places: Sequence[tuple[HostMemory, int]], variables: Mapping[str, int]) -> None:
        self._launch(call, [memory.address + at for memory, at in places], variables)

    def _launch(self, call: Call, addresses: list[int], variables: Mapping[str, int]) -> None:
        """Runs a kernel; each pointer is passed with its length in bytes, against which the simulator checks accesses."""
        if isinstance(call.function, HostFunction):
            arrays = [
                array_at(address, dim_value(each.numel, variables), each.dtype)
                for address, each in zip(addresses, call.arguments)
            ]
            call.function(arrays, variables)
            return
        grid = dim_value(call.launch.grid, variables)
        words: list[int] = []
        for each, address in zip(call.arguments, addresses):
            words += [address, dim_value(each.numel, variables) * each.dtype.itemsize]
        maps = [_simulated(tile_map, call.arguments, addresses, variables) for tile_map in call.launch.tile_maps]
        for one in maps:
            words += [ctypes.addressof(one), ctypes.sizeof(one)]
        for variable in call.variables:
            words += [variables[variable.arg[0]], -1]
        packed = (ctypes.c_int64 * len(words))(*words)
        (high, deep), block = axes_of(call.launch)
        shape = (ctypes.c_int64 * 7)(max(0, grid), high, deep, *block, call.launch.shared_nbytes)
        with held_back() as hold:  # an interrupt is heard in `_is_interrupted`, and comes at the end of the block
            _under_way.append(hold)
            try:
                message = call.function(packed, shape, self.order, self.seed)
            finally:
                _under_way.pop()
            if message is not None:
                raise DeviceError(f"CUDASIM: {_with_lines(message.decode(), call.function)}")


def _with_lines(message: str, function: Any) -> str:
    """Returns a message with the lines of a user's kernel that it refers to; of all files that have such a line."""
    if not hasattr(function, GIVEN_TEXT):
        return message
    text = lines_of_files(getattr(function, GIVEN_TEXT), "")
    files = list(dict.fromkeys(file for file, _ in text if file))[:-1]  # the last file has the function around the user's
    numbers = dict.fromkeys(int(number) for number in re.findall(r"\bline (\d+)", message))
    places = [(file, number) for number in numbers for file in files if (file, number) in text]
    if len(files) == 1:
        lines = [f"\n     {number} | {text[file, number]}" for file, number in places]
        return message.replace("line ", f"{files[0]} line ", 1) + "".join(lines)
    return message + "".join([f"\n  {file}:{number} | {text[file, number]}" for file, number in places])


def _simulated(
    tile_map: TileMap, arguments: Sequence[Argument], addresses: Sequence[int], variables: Mapping[str, int]
) -> ctypes.Array[ctypes.c_int64]:
    """Returns a map of a parameter's memory as a TileMap of devices/cudasim/tiles.h.

    Raises:
      DeviceError: a rule of the driver is violated.
    """
    argument = arguments[tile_map.param]
    address = addresses[tile_map.param] + tile_map.offset * argument.dtype.itemsize
    check_inside(tile_map, dim_value(argument.numel, variables))
    extents, strides, box = checked(tile_map, argument.dtype, address)
    axes = [number for values in (extents, strides, box) for number in [*values, *[0] * (AXES_MAX - len(values))]]
    numbers = [address, len(box), argument.dtype.itemsize, int(tile_map.swizzles), int(tile_map.rounds), *axes]
    return (ctypes.c_int64 * len(numbers))(*numbers)
