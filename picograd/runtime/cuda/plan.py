"""A plan on a GPU: its launches with their arguments in place, from the second run on as graphs of the driver's.

In:    Schedule, Executables; at each run the memory of inputs and outputs, and values of symbolic integers
Out:   `CudaPlan`, a Runner
Called by: runtime/cuda/device.py.    Next: picograd/runtime/cuda/graphs.py

Arguments stay from run to run: only where memory is another than before something is written, and the nodes of the graph
that read it are told. A graph is one call of the driver however many kernels it has; to make it costs more than to run it,
so a plan that runs once has none.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Protocol

import numpy as np

from picograd.ir.backend import Device
from picograd.ir.checks import first_report
from picograd.ir.dims import dim_value
from picograd.ir.op import Buffer
from picograd.ir.stages import REPORT_WORDS, Executable, Schedule, Settled
from picograd.runtime.cuda.cublaslt import ProductCall
from picograd.runtime.cuda.graphs import Graph, PreparedLaunch
from picograd.runtime.cuda.handles import Handles
from picograd.runtime.cuda.queue import CommandQueue
from picograd.runtime.host_calls import HostFunction
from picograd.runtime.launches import Call, list_launches
from picograd.runtime.tile_maps import check_inside

MOST_NODES = 1 << 14  # of a graph: what a loop of thousands of steps has more is launched kernel by kernel


class QueueDevice(Device, Protocol):
    """A device with a queue, as a plan needs it.

    graphs, ready_graphs:  the driver's, those for updates and those to launch
    """

    queue: CommandQueue
    graphs: Handles
    ready_graphs: Handles

    def submitting(self) -> AbstractContextManager[None]:
        """Lets the calling thread submit kernels, and no other meanwhile."""
        ...

    def arena(self, nbytes: int) -> AbstractContextManager[int]:
        """Gives the address of memory for a plan's temporaries."""
        ...


class KernelPart:
    """Kernels one after the other: launched one by one the first time, then as one graph."""

    def __init__(self, calls: Sequence[Call]):
        self.launches = [PreparedLaunch(each) for each in calls]
        self.changed: set[int] = set()  # launches whose arguments or grid the graph does not know
        self.num_runs = 0
        self._graph: Graph | None = None

    def run(self, device: QueueDevice) -> None:
        """Submits the launches."""
        self.num_runs += 1
        if self.num_runs > 1 and 1 < len(self.launches) <= MOST_NODES and device.queue.laps is None:
            if self._graph is None:
                self._graph = Graph(self.launches, device.graphs, device.ready_graphs)
            else:
                for number in self.changed:
                    self._graph.update(number)
            self.changed.clear()
            device.queue.launch_graph(self._graph.ready.value)
            return
        for each in self.launches:
            if each.grid > 0:
                device.queue.launch(each.call.function, each.grid, each.call.launch, ctypes.addressof(each.pointers))


class HostPart:
    """A call of a function of the host between kernels: it waits for them, and works on copies of their memory."""

    def __init__(self, call: Call):
        self.launches = [PreparedLaunch(call)]
        self.changed: set[int] = set()

    def run(self, device: QueueDevice) -> None:
        """Calls the function."""
        queue, (prepared,) = device.queue, self.launches
        call, count = prepared.call, len(prepared.call.arguments)
        variables = {variable.arg[0]: int(prepared.values[count + i]) for i, variable in enumerate(call.variables)}
        arrays = [np.zeros(dim_value(each.numel, variables), each.dtype.numpy) for each in call.arguments]
        queue.wait()
        for param, address, array in zip(call.function.params, prepared.values, arrays):
            if param.role in ("in", "inout") and array.nbytes:
                queue.copy_out(address, array.ctypes.data, array.nbytes)
        call.function(arrays, variables)
        for param, address, array in zip(call.function.params, prepared.values, arrays):
            if param.role != "in" and array.nbytes:
                queue.copy_in(address, array.ctypes.data, array.nbytes, after=0)
        queue.begin()


class LibraryPart:
    """A product that a library submits between kernels, to their stream: nobody waits.

    Cost: some microseconds of the host at each run, and what stands before and after it is a graph each. As a node of
    one graph it would have to be captured again whenever memory is another.
    """

    def __init__(self, call: Call):
        self.launches = [PreparedLaunch(call)]
        self.changed: set[int] = set()

    def run(self, device: QueueDevice) -> None:
        """Submits the product."""
        (prepared,) = self.launches
        device.queue.launch_product(prepared.call.function, prepared.call.launch, list(prepared.values))


AnyPart = KernelPart | HostPart | LibraryPart
ALONE: dict[type, type[HostPart | LibraryPart]] = {HostFunction: HostPart, ProductCall: LibraryPart}


def cut(calls: Sequence[Call]) -> list[AnyPart]:
    """Returns calls in parts: kernels that follow each other, and calls of the host or of a library one by one."""
    parts: list[AnyPart] = []
    for alone, group in groupby(calls, lambda call: ALONE.get(type(call.function))):
        own = list(group)
        parts += [KernelPart(own)] if alone is None else [alone(call) for call in own]
    return parts


class CudaPlan:
    """Runs a schedule on a GPU: submits everything, and waits only where kernels report what they have checked.

    Its loops have the numbers of steps that symbolic integers of these values say.
    """

    def __init__(
        self, device: QueueDevice, schedule: Schedule, executables: Sequence[Executable], variables: Mapping[str, int]
    ):
        listed = list_launches(schedule, executables, variables)
        self._device, self._executables = device, tuple(executables)  # whose modules must stay loaded
        self._arena_nbytes = listed.temporary_nbytes
        self._stages = [cut(calls) for calls in listed.parts]  # after each of which the reports are looked at
        self._parts = [part for stage in self._stages for part in stage]
        self._reports = Reports(device, listed.checks) if listed.checks else None
        self._addresses: dict[tuple[str, int], int] = {}  # of memory, by group and number, as the arguments have it
        self._readers: dict[tuple[str, int], list[tuple[AnyPart, int, int, int]]] = defaultdict(list)
        for part in self._parts:
            for number, each in enumerate(part.launches):
                for i, argument in enumerate(each.call.arguments):
                    place = argument.place
                    self._readers[place.group, place.number].append((part, number, i, place.offset))
        self._variables: dict[str, int] | None = None

    def __call__(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        variables: Mapping[str, int],
        may_stop: bool = True,
        settled: Settled | None = None,
    ) -> None:
        """Runs it once."""
        device = self._device
        with device.submitting(), device.arena(self._arena_nbytes) as arena:
            self._set("temporary", 0, arena)
            for number, buffer in enumerate(inputs):
                self._set("input", number, buffer.memory.address)
            for number, buffer in enumerate(outputs):
                self._set("output", number, buffer.memory.address)
            if self._reports is not None:
                self._set("report", 0, self._reports.memory.address)
            self._bind(variables)
            for stage in self._stages:
                if self._reports is not None:
                    self._reports.begin()
                for part in stage:
                    part.run(device)
                if self._reports is not None:
                    self._reports.look()

    def _set(self, group: str, number: int, address: int) -> None:
        """Puts an address into the arguments that are there, if it is another than before."""
        key = group, number
        if self._addresses.get(key) == address:
            return
        self._addresses.pop(key, None)  # as long as not all arguments have it
        for part, launch, i, offset in self._readers.get(key, ()):
            part.launches[launch].set_address(i, address + offset)
            part.changed.add(launch)
        self._addresses[key] = address

    def _bind(self, variables: Mapping[str, int]) -> None:
        """Puts values of symbolic integers into the arguments, and into grids."""
        if self._variables == variables:
            return
        self._variables = None  # as long as not all arguments have them
        for part in self._parts:
            for number, each in enumerate(part.launches):
                for tile_map in each.call.launch.tile_maps:
                    check_inside(tile_map, dim_value(each.call.arguments[tile_map.param].numel, variables))
                if each.call.variables or each.grid == 0:
                    each.grid = dim_value(each.call.launch.grid, variables)
                    for i, variable in enumerate(each.call.variables, len(each.call.arguments)):
                        each.values[i] = variables[variable.arg[0]]
                    part.changed.add(number)
        self._variables = dict(variables)


class Reports:
    """What the Checks of a plan have reported. NOTE: to know it, a plan that has Checks is waited for."""

    def __init__(self, device: QueueDevice, checks: Sequence[Sequence[int]]):
        self.device, self.checks = device, checks
        self.words = np.zeros((len(checks), REPORT_WORDS), np.int64)
        self.memory = device.allocate(self.words.nbytes)
        self._is_clear = False  # the GPU's memory holds no report

    def begin(self) -> None:
        """Forgets what an earlier run has reported: an error or an interrupt may have ended it before anyone looked."""
        if not self._is_clear:
            self.words[:] = 0
            self.device.copy_in(self.memory, self.words)
            self.device.queue.begin()  # kernels come after it
        self._is_clear = False

    def look(self) -> None:
        """Raises the first report, if there is one."""
        self.device.copy_out(self.memory, self.words)
        if self.words.any():
            raise first_report(self.words.tolist(), self.checks)
        self._is_clear = True
