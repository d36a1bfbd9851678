"""The CUDA device: one NVIDIA GPU, through the driver API.

In:    Binaries from devices/cuda/compile.py or devices/ptx/compile.py, Schedules, host arrays
Out:   `CudaDevice`
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from picograd.config import is_on
from picograd.device import Target
from picograd.devices.cpu.device import linked
from picograd.devices.cuda.commands import bind_caller
from picograd.devices.cuda.cublaslt import CublasLt, is_call, why_no_library
from picograd.devices.cuda.driver import Capability, Handles, Loader, ask, call, capability
from picograd.devices.cuda.memory import Memory, Pool
from picograd.devices.cuda.plan import CudaPlan, Made
from picograd.devices.cuda.queue import CommandQueue, Moment
from picograd.devices.launches import load_host, runner_by_steps
from picograd.errors import DeviceError, OutOfMemoryError, PicogradError
from picograd.interrupts import LivingSet, cached_property
from picograd.ir.backend import MemoryCount
from picograd.ir.opts import Library, PlainProduct, read_library
from picograd.ir.origin import format_nbytes, out_of_memory
from picograd.ir.stages import Binary, Executable, Runner, Schedule
from picograd.record import replace


class CudaDevice:
    """The first GPU of this machine, through an initialized driver.

    target:  target of code; by default CUDA C for this GPU
    queue:   its queue of commands
    memory:  count of the memory that objects hold
    graphs, ready_graphs: plans' graphs of the driver, with those to be destroyed

    Raises:
      DeviceError: there is no driver or no GPU.
    """

    def __init__(self, caller: Binary, target: Target | None = None) -> None:
        """`caller` is `caller_source()` compiled for this processor."""
        target = target_of(capability()) if target is None else target
        self.target = replace(target, plain_sums=is_on("PICOGRAD_PLAIN_SUMS"))
        self.name = self.target.device
        self.is_forked = False  # this process is not the one that made it
        _devices.add(self)
        self._code, gpu = Loader(self.target), call("cuDeviceGet", 0)
        self._context = call("cuDevicePrimaryCtxRetain", gpu)
        try:
            self.enter()
            self.queue = CommandQueue(bind_caller(linked(caller)), self._context)
        except PicogradError:
            ask("cuDevicePrimaryCtxRelease", gpu)  # with everything made in it; the first failure is the error
            raise
        self._pool = Pool(self._new_segment, _drop_segment, lambda: self.queue.ticket)
        self._arena: Memory | None = None  # shared by all plans, which run one after the other; counted while one runs
        self.graphs, self.ready_graphs = Handles("cuGraphDestroy"), Handles("cuGraphExecDestroy")
        self.memory: MemoryCount = self._pool.count

    def enter(self) -> None:
        """Makes the context current in the calling thread."""
        self.check_process()
        call("cuCtxSetCurrent", self._context)

    def check_process(self) -> None:
        """Raises DeviceError in a process that was forked."""
        if self.is_forked:
            raise DeviceError(
                "CUDA: a forked process cannot use the GPU of the one that forked it.",
                'start processes by "spawn", or use the GPU in the first one alone',
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Gives the calling thread exclusive use of the queue."""
        with self.queue.lock:
            self.enter()
            with self.queue.whole():
                yield

    # ---- memory ----
    def allocate(self, nbytes: int) -> Memory:
        """Returns memory of at least `nbytes` bytes, aligned to 256.

        Raises:
          OutOfMemoryError: the GPU is out of memory, also after freeing what the pool kept.
        """
        return self._allocate(nbytes)

    def _allocate(self, nbytes: int, is_counted: bool = True) -> Memory:
        """Returns memory of the pool; if it has none, frees unused segments and tries again."""
        if self.is_forked:
            self.check_process()
        made = self._pool.allocate(nbytes, is_counted)
        if made is None:
            self._make_room()
            made = self._pool.allocate(nbytes, is_counted)
        if made is not None:
            return made
        left, total = self.memory_info()
        amounts = [format_nbytes(each) for each in (left, total, self._pool.held)]
        raise out_of_memory(self.name, nbytes, "{} of {} are free, picograd holds {}".format(*amounts))

    def gpu_name(self) -> str:
        """Returns the driver's name of the GPU."""
        return bytes(call("cuDeviceGetName", 256, call("cuDeviceGet", 0))).split(b"\0")[0].decode()

    @cached_property
    def num_multiprocessors(self) -> int:
        """The number of multiprocessors of the GPU."""
        return capability().multiprocessors

    @property
    def held(self) -> int:
        """The bytes allocated from the driver: those of objects, and those kept for reuse."""
        return self._pool.held

    def memory_info(self) -> tuple[int, int]:
        """Returns the numbers of free bytes and of all bytes of the GPU."""
        self.enter()
        left, total = call("cuMemGetInfo")
        return int(left), int(total)

    def allocate_all(self, lengths: Sequence[int]) -> list[Memory]:
        """Returns memory of at least each number of bytes."""
        return [*map(self._allocate, lengths)]

    def arena(self, nbytes: int) -> Memory:
        """Returns memory for one plan's temporaries; it is not counted.

        All plans share it, since their kernels run in one stream.
        """
        if self._arena is None or self._arena.nbytes < nbytes:
            self._arena = None  # first, so that its memory can become part of the new one
            self._arena = self._allocate(nbytes, is_counted=False)
        return self._arena

    def _new_segment(self, nbytes: int) -> int | None:
        """Allocates memory from the driver; None if it is exhausted."""
        self.enter()
        try:
            return int(call("cuMemAlloc", nbytes))
        except OutOfMemoryError:
            return None

    def with_room(self, make: Callable[[], Made]) -> Made:
        """Returns make(); if the driver is out of memory, frees all unused memory and calls it again.

        Raises:
          OutOfMemoryError: the driver is out of memory even then.
        """
        with suppress(OutOfMemoryError):
            return make()
        self._make_room()  # NOTE: after the block, whose error holds half-made objects
        return make()

    def _make_room(self) -> None:
        gc.collect()  # frees tensors in reference cycles
        self.trim()

    def trim(self) -> None:
        """Returns memory without an owner to the driver."""
        with self.queue.lock:
            self.synchronize()
            self._arena = None
            self._pool.trim()
            self._give_back()

    def copy_in(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Stores a C-contiguous host array at the start of `memory`, before work submitted later."""
        if array.nbytes:
            with self._alone():
                # New memory waits for its last use; other memory for everything submitted so far.
                after = memory.freed if memory.born == self.queue.ticket else self.queue.ticket
                self.queue.copy_in(memory.address, array.ctypes.data, array.nbytes, after)

    def copy_out(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Fills a C-contiguous host array from the start of `memory`, after all work submitted before."""
        if array.nbytes:
            with self._alone():
                self.queue.copy_out(memory.address, array.ctypes.data, array.nbytes)

    def copy(self, target: Memory, source: Memory, nbytes: int) -> None:
        """Copies the first `nbytes` bytes, after all work submitted before and before work submitted later."""
        if nbytes:
            with self._alone():
                self.queue.copy(target.address, source.address, nbytes)

    def synchronize(self) -> None:
        """Waits until everything submitted is done; reports a kernel that failed."""
        with self._alone():
            self.queue.wait()

    def mark(self) -> Moment:
        """Returns the moment at which everything submitted so far will be done."""
        with self._alone():
            moment = Moment(self.queue, self.queue.take_moments(1)[0], self.enter)
            self.queue.record(moment.event)
        return moment

    def timed(self, work: Callable[[], Any]) -> float:
        """Returns the seconds from the first to the last kernel that `work` submits."""
        return self.queue.timed(work, self._alone)

    def kernel_times(self, work: Callable[[], Any]) -> list[tuple[str, float]]:
        """Returns name and seconds of each kernel submitted while `work` runs, in order."""
        return self.queue.kernel_times(work, self._alone)

    # ---- code ----
    def load(self, binary: Binary) -> Executable:
        """Loads a cubin, PTX text ending with a zero byte, which the driver compiles, or a library call.

        Raises:
          DeviceError: the driver rejects it.
        """
        self.enter()
        if self._code.modules:
            self._give_back()
        if is_call(binary):
            return self._load_call(binary)
        module, functions = self.with_room(lambda: self._code.load(binary.name, binary.data, binary.launches))
        return binary.executable(functions, module)

    def _load_call(self, binary: Binary) -> Executable:
        """Returns launches: one by the library, others of generated code, if any."""
        called, code = read_library(binary.data)
        product = self._cublaslt.load(binary.name, called)
        others = [launch for place, launch in enumerate(binary.launches) if place != called.place]
        module, functions = self.with_room(lambda: self._code.load(binary.name, code, others)) if others else (None, ())
        functions = (*functions[: called.place], product, *functions[called.place :])
        return binary.executable(functions, module)

    def _give_back(self) -> None:
        """Destroys unneeded graphs, then unloads the code that they launch, once none of it runs."""
        with self.queue.lock:
            self.give_back_graphs()
            self._code.unload(self.synchronize)

    def give_back_graphs(self) -> None:
        """Destroys the graphs of plans that are gone; the driver frees one that still runs when it is done."""
        for handles in (self.ready_graphs, self.graphs):
            handles.give_back(len(handles))

    load_host = staticmethod(load_host)

    @cached_property
    def _cublaslt(self) -> CublasLt:
        return CublasLt(self.num_multiprocessors)

    def library(self) -> str | None:
        """Returns the name of cuBLASLt, with its version, or None if it is not installed."""
        return None if why_no_library() else self._cublaslt.name

    def way_of(self, product: PlainProduct) -> Library:
        """Returns cuBLASLt's algorithms for a product.

        Raises:
          DeviceError: it has none.
        """
        self.enter()
        return self._cublaslt.way_of(product)

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns run(inputs, outputs, variables), which submits every launch without waiting."""
        make = partial(CudaPlan, self, schedule, executables)
        return runner_by_steps(schedule, make, holds_back=False)


_devices: LivingSet[CudaDevice] = LivingSet()


def _after_fork() -> None:
    for device in _devices.living():
        device.is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _drop_segment(address: int) -> None:
    call("cuMemFree", address)


def target_of(gpu: Capability, compiler: str = "") -> Target:
    """Describes a GPU for code generation.

    Args:
      compiler:  name and version of the CUDA C compiler; other versions make other code
    """
    # From 9.0 on, "a" adds features of that generation alone (wgmma on Hopper).
    arch, is_ampere = f"sm_{gpu.major}{gpu.minor}{'a' if gpu.major >= 9 else ''}", gpu.major >= 8
    return Target(
        "CUDA", "cuda", arch, vector_bytes=16, block_threads=256, shared_bytes=gpu.shared_bytes, has_mma=is_ampere,
        has_async_copies=is_ampere, has_warpgroups=gpu.major == 9, multiprocessors=gpu.multiprocessors, compiler=compiler,
    )  # fmt: skip
