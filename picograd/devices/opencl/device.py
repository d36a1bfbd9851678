"""The OPENCL device: an OpenCL driver's memory, code and queue.

In:    Binaries from devices/opencl/compile.py, Schedules, host arrays
Out:   `OpenClDevice`; `available`

All work goes into one in-order queue, so only the host's reads have to wait.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from picograd.device import Target
from picograd.devices.launches import Array, Call, HostFunction, load_host, runner_of_calls
from picograd.errors import DeviceError, OutOfMemoryError, warn_user
from picograd.interrupts import lock, wait_until
from picograd.ir.backend import MemoryCount
from picograd.ir.origin import format_nbytes, out_of_memory
from picograd.ir.stages import Binary, Executable, Runner, Schedule
from picograd.ir.symbolic import dim_value

BLOCK_THREADS, BLOCK_THREADS_MIN = 256, 32
SHARED_NBYTES = 48 * 1024
INSTEAD = "PICOGRAD_DEVICE=CPU"
AGAIN = f"start this process again, or use {INSTEAD}"
SPIN_SECONDS = 1e-4  # of polling without a pause: the device may be this processor
DENORMALS, FMA, ROUNDED = 1, 32, 128  # bits of CL_DEVICE_SINGLE_FP_CONFIG (OpenCL 1.2, table 4.3)


@cache
def library() -> Any:
    """Returns pyopencl.

    Raises:
      DeviceError: it is not installed.
    """
    try:
        import pyopencl
    except ImportError as error:
        reason = str(error).splitlines()[0]
        raise DeviceError(f"OPENCL: pyopencl cannot be loaded ({reason}).", 'pip install "picograd[opencl]"') from None
    return pyopencl


@cache
def _devices() -> tuple[int, list[Any]]:
    """Returns the process that asked first, and the devices of all platforms; asking starts drivers' threads."""
    cl = library()
    try:
        return os.getpid(), [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:
        return os.getpid(), []


def check_process() -> None:
    """Checks that this process was not forked: it would wait for driver threads that it does not have.

    Raises:
      DeviceError: it was forked.
    """
    process, _ = _devices()
    if os.getpid() != process:
        raise DeviceError(
            "OPENCL: a forked process cannot use the device of the one that forked it.",
            'start processes by "spawn", or use the device in the first one alone',
        )


def first_device() -> Any:
    """Returns the first GPU of all platforms, else the first device.

    Raises:
      DeviceError: there is none, or it was found by a process that has since forked this one.
    """
    _, found = _devices()
    if not found:
        hint = "install an OpenCL driver: that of the GPU, or PoCL (apt-get install pocl-opencl-icd)"
        raise DeviceError("OPENCL: no platform has a device.", hint)
    check_process()
    return next((device for device in found if device.type & library().device_type.GPU), found[0])


def target_of(device: Any) -> Target:
    """Returns the description of an OpenCL device.

    Raises:
      DeviceError: its work-groups are too small.
    """
    threads = BLOCK_THREADS
    while threads > device.max_work_group_size:
        threads //= 2
    if threads < BLOCK_THREADS_MIN:
        most = device.max_work_group_size
        raise DeviceError(f"OPENCL: {device.name} has work-groups of {most}; it needs {BLOCK_THREADS_MIN}.", INSTEAD)
    floats = device.single_fp_config
    features = {"fp64": "cl_khr_fp64" in device.extensions.split(), "rounded": floats & ROUNDED}
    return Target(
        "OPENCL", "opencl", device.name, vector_bytes=16, block_threads=threads,
        shared_bytes=min(int(device.local_mem_size), SHARED_NBYTES), has_fma=bool(floats & FMA), has_shuffle=False,
        features=",".join(name for name, has in features.items() if has),
        compiler=f"{device.platform.version} {device.driver_version}",
    )  # fmt: skip


def warn_of_denormals(device: Any) -> None:
    """Warns if arithmetic flushes denormal float32 to zero."""
    if not device.single_fp_config & DENORMALS:
        warn_user(f"OPENCL: {device.name} flushes float32 results below 1.2e-38 to zero; all other devices keep them.")


class OpenClMemory:
    """Memory of the device; freed when this object dies.

    buffer:  OpenCL's buffer
    nbytes:  requested size
    """

    __slots__ = ("buffer", "nbytes", "_counted")

    def __init__(self, buffer: Any, nbytes: int, count: MemoryCount):
        self.buffer, self.nbytes, self._counted = buffer, nbytes, count.take(nbytes)


class OpenClDevice:
    """Implements ir/backend.py's Device; warns if the driver flushes denormal floats.

    Raises:
      DeviceError: there is no device.
    """

    name = "OPENCL"

    def __init__(self) -> None:
        cl, device = library(), first_device()
        self.target = target_of(device)
        warn_of_denormals(device)
        self._context = cl.Context([device])
        self.memory = MemoryCount()
        self._device, self._commands = device, cl.CommandQueue(self._context)
        # A running plan needs its temporaries, its reports and its kernels' arguments for itself.
        self._running = lock()

    @property
    def context(self) -> Any:
        """OpenCL's context, in the process that made it."""
        check_process()
        return self._context

    @property
    def _queue(self) -> Any:
        check_process()
        return self._commands

    # ---- memory ----
    def allocate(self, nbytes: int) -> OpenClMemory:
        """Returns memory of at least `nbytes` bytes.

        Raises:
          OutOfMemoryError: the device is out of memory.
        """
        try:
            buffer = self._buffer(nbytes)
        except library().Error:
            gc.collect()  # frees tensors in reference cycles
            try:
                buffer = self._buffer(nbytes)
            except library().Error:
                raise self._out_of_memory(nbytes) from None
        return OpenClMemory(buffer, nbytes, self.memory)

    def _buffer(self, nbytes: int) -> Any:
        cl = library()
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(1, nbytes))

    def allocate_all(self, lengths: Sequence[int]) -> list[OpenClMemory]:
        """Returns memory of at least each number of bytes."""
        return [self.allocate(nbytes) for nbytes in lengths]

    def copy_in(self, memory: OpenClMemory, array: Array) -> None:
        """Stores a C-contiguous host array at the start of `memory`."""
        if array.nbytes:
            self._copy(memory.buffer, array.reshape(-1).view(np.uint8), is_blocking=True)

    def copy_out(self, memory: OpenClMemory, array: Array) -> None:
        """Fills a C-contiguous host array from the start of `memory`, after all work submitted before."""
        if array.nbytes:
            self._wait()
            self._copy(array.reshape(-1).view(np.uint8), memory.buffer, is_blocking=True)

    def copy(self, target: OpenClMemory, source: OpenClMemory, nbytes: int) -> None:
        """Copies the first `nbytes` bytes, after all work submitted before and before work submitted later."""
        if nbytes:
            self._copy(target.buffer, source.buffer, byte_count=nbytes)

    def _copy(self, target: Any, source: Any, **options: Any) -> None:
        """Submits a copy; also reports a kernel that failed, or a lost device.

        Raises:
          DeviceError: the driver refuses it.
          OutOfMemoryError: the driver, which may allocate on first use, is out of memory.
        """
        cl = library()
        try:
            cl.enqueue_copy(self._queue, target, source, **options)
        except cl.Error as error:
            raise self._failed("a copy failed, or a kernel before it", error, AGAIN) from None

    def _wait(self) -> None:
        """Waits until everything submitted is done or has failed; Ctrl-C works meanwhile."""
        cl = library()
        try:
            mark = cl.enqueue_marker(self._queue)
            self._queue.flush()
            wait_until(lambda: mark.command_execution_status <= cl.command_execution_status.COMPLETE, SPIN_SECONDS)
        except cl.Error as error:
            raise self._failed("the queue failed, or a kernel in it", error, AGAIN) from None

    def _failed(self, what: str, error: Any, hint: str) -> DeviceError | OutOfMemoryError:
        """Returns the error for a call that the driver refuses: out of memory, or another."""
        status = library().status_code
        code = getattr(error, "code", None)  # pyopencl's own errors have none
        if code in (status.MEM_OBJECT_ALLOCATION_FAILURE, status.OUT_OF_HOST_MEMORY):
            return self._out_of_memory(f"memory that it had promised ({str(error).splitlines()[0]})")
        return DeviceError(f"OPENCL: {what} ({str(error).splitlines()[0]}).", hint)

    def _out_of_memory(self, wanted: int | str) -> OutOfMemoryError:
        held, most = self.memory.in_use, self._device.max_mem_alloc_size
        state = f"{format_nbytes(held)} are held, one allocation is {format_nbytes(most)} at most"
        return out_of_memory("OPENCL", wanted, state)

    # ---- code ----
    def load(self, binary: Binary) -> Executable:
        """Loads machine code of the device.

        Raises:
          DeviceError: the driver rejects it.
        """
        cl = library()
        try:
            program = cl.Program(self.context, [self._device], [binary.data]).build()
            functions = tuple(cl.Kernel(program, launch.symbol) for launch in binary.launches)
        except cl.Error as error:
            reason = str(error).splitlines()[0]
            raise DeviceError(f"OPENCL: kernel {binary.name} cannot be loaded ({reason}).") from None
        return binary.executable(functions, program)

    load_host = staticmethod(load_host)

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns run(inputs, outputs, variables), which submits every launch; it waits only if there are Checks."""
        return runner_of_calls(self, schedule, executables, self._make_call, self._running, lambda arena: check_process())

    def _make_call(self, call: Call, places: Sequence[tuple[OpenClMemory, int]], variables: Mapping[str, int]) -> None:
        start = self._call_host if isinstance(call.function, HostFunction) else self._launch
        start(call, [(memory.buffer, at) for memory, at in places], variables)

    def _launch(self, call: Call, places: Sequence[tuple[Any, int]], variables: Mapping[str, int]) -> None:
        """Submits one phase of a kernel; an empty grid is skipped."""
        cl, grid = library(), dim_value(call.launch.grid, variables)
        if grid <= 0:
            return
        arguments = [word for buffer, at in places for word in (buffer, np.int64(at))]
        arguments += [np.int64(variables[variable.arg[0]]) for variable in call.variables]
        block = call.launch.block
        try:
            call.function.set_args(*arguments)
            cl.enqueue_nd_range_kernel(self._queue, call.function, (grid * block,), (block,))
        except cl.Error as error:
            raise self._failed(f"{call.launch.symbol} cannot be started", error, INSTEAD) from None

    def _call_host(self, call: Call, places: Sequence[tuple[Any, int]], variables: Mapping[str, int]) -> None:
        """Runs a host function on copies of its arguments; refusals go to its report, as for a CHECK."""
        params = call.function.params
        arrays = [np.empty(dim_value(each.numel, variables), each.dtype.numpy) for each in call.arguments]
        filled = [i for i, array in enumerate(arrays) if array.nbytes]
        for i in filled:
            self._copy(arrays[i].view(np.uint8), places[i][0], src_offset=places[i][1], is_blocking=True)
        call.function(arrays, variables)
        for i in filled:
            if params[i].role != "in":
                self._copy(places[i][0], arrays[i].view(np.uint8), dst_offset=places[i][1], is_blocking=True)
