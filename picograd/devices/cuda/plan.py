"""A plan on a GPU: launches with prepared arguments, from the second run on as graphs of the driver.

In:    Schedule, Executables; at each run the memory of inputs and outputs, and values of symbolic integers
Out:   `CudaPlan`, a Runner

Arguments stay in memory from run to run: only those that differ from the last run are written, and the graph nodes that
read them are updated. A graph is one driver call for any number of kernels; making it costs more than running it, so a plan
that runs once has none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, Protocol, TypeVar

import numpy as np

from picograd.devices.cuda.commands import ALWAYS, NEVER, ONCE, Commands, Row
from picograd.devices.cuda.cublaslt import ProductCall
from picograd.devices.cuda.driver import Handles, call, driver
from picograd.devices.cuda.memory import Memory
from picograd.devices.cuda.queue import CommandQueue
from picograd.devices.cuda.tile_maps import check_inside, encode
from picograd.devices.launches import Call, HostFunction, axes_of, list_launches
from picograd.errors import OutOfMemoryError
from picograd.interrupts import held_back
from picograd.ir.backend import Device, MemoryCount
from picograd.ir.checks import first_report
from picograd.ir.op import Buffer
from picograd.ir.stages import REPORT_WORDS, Executable, FixedMemory, Schedule
from picograd.ir.symbolic import dim_value

# ---- launches in place and graphs of them ----
MAP_NBYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap, bytes
GRID = 1  # index of this argument of cuLaunchKernel


class PreparedLaunch:
    """A launch with its arguments in the driver's form, at a fixed address.

    call:      the launch
    values:    its arguments: addresses, then symbolic integers
    pointers:  address of each argument, with tile maps between them
    grid:      number of blocks; 0: no launch
    node:      its node in a graph, or None
    has_readers: tile maps or the node must be updated when an address changes
    """

    __slots__ = ("call", "values", "pointers", "grid", "node", "has_readers", "_maps", "_first_map")

    def __init__(self, call: Call):
        count, tile_maps = max(1, len(call.arguments) + len(call.variables)), call.launch.tile_maps
        self.call, self.grid = call, 0
        self.node: Node | None = None
        self.has_readers = bool(tile_maps)
        self.values = (ctypes.c_int64 * count)()
        start, behind = ctypes.addressof(self.values), len(call.arguments)
        self._maps = (ctypes.c_char * (MAP_NBYTES * len(tile_maps) + MAP_ALIGNMENT))() if tile_maps else None
        self._first_map = 0 if self._maps is None else -(-ctypes.addressof(self._maps) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        pointers = [start + 8 * i for i in range(count)]
        pointers[behind:behind] = [self._first_map + MAP_NBYTES * i for i in range(len(tile_maps))]
        self.pointers = (ctypes.c_void_p * len(pointers))(*pointers)

    def tell_address(self, number: int, address: int) -> None:
        """Writes the address of an argument to the maps of its memory; updates the node."""
        if self._maps is not None:
            for i, tile_map in enumerate(self.call.launch.tile_maps):
                if tile_map.param == number:
                    dtype = self.call.arguments[number].dtype
                    encode(tile_map, dtype, address + tile_map.offset * dtype.itemsize, self._first_map + MAP_NBYTES * i)
        if self.node is not None and self.grid > 0:
            self.node.tell()

    def set_grid(self, grid: int, values: Sequence[int]) -> None:
        """Sets the grid and the values of symbolic integers."""
        self.grid = grid
        for i, value in enumerate(values, len(self.call.arguments)):
            self.values[i] = value


class KernelLaunch(PreparedLaunch):
    """A kernel launch with its driver calls prepared.

    row:  the call that launches it
    """

    __slots__ = ("row",)

    def __init__(self, call: Call, stream: int):
        super().__init__(call)
        (high, deep), block, shared = *axes_of(call.launch), call.launch.shared_nbytes
        pointers = ctypes.addressof(self.pointers)
        self.row = Row("cuLaunchKernel", call.function, 0, high, deep, *block, shared, stream, pointers, 0, due=NEVER)

    def set_grid(self, grid: int, values: Sequence[int]) -> None:
        """Sets the grid and the values of symbolic integers; updates the node."""
        super().set_grid(grid, values)
        self.row.set(GRID, grid)
        self.row.set_due(ALWAYS if grid > 0 else NEVER)
        if self.node is not None:
            self.node.set_grid(grid)


class Node:
    """A launch in a graph.

    node:  the driver's node
    rows:  calls that update it for later runs; a run in progress keeps its values
    """

    def __init__(self, graph: Any, launch: KernelLaunch, before: Sequence[Node]):
        made = launch.call.launch
        self._params = params = driver().CUDA_KERNEL_NODE_PARAMS()
        params.func = launch.call.function
        (params.gridDimY, params.gridDimZ), block = axes_of(made)
        params.gridDimX = max(1, launch.grid)
        params.blockDimX, params.blockDimY, params.blockDimZ = block
        params.sharedMemBytes = made.shared_nbytes
        params.kernelParams = ctypes.addressof(launch.pointers)
        self.node: Any = call("cuGraphAddKernelNode", graph, [each.node for each in before], len(before), params)
        self.rows: tuple[Row, ...] = ()

    def stand_in(self, ready: Any, is_enabled: bool) -> None:
        """Prepares the calls that update the node of an instantiated graph."""
        self._enable = Row("cuGraphNodeSetEnabled", ready, self.node, is_enabled, due=NEVER if is_enabled else ONCE)
        self._tell = Row("cuGraphExecKernelNodeSetParams", ready, self.node, self._params.getPtr(), due=NEVER)
        self.rows = self._enable, self._tell

    def tell(self) -> None:
        """Marks its arguments as changed."""
        self._tell.set_due(ONCE)

    def set_grid(self, grid: int) -> None:
        """Sets the grid; an empty one disables the node."""
        self._enable.set(2, grid > 0)
        self._enable.set_due(ONCE)
        if grid > 0:
            self._params.gridDimX = grid
            self._tell.set_due(ONCE)


class Graph:
    """Launches that the driver runs one after the other by a single call.

    updates:  calls that update it
    launch:   call that runs it
    """

    def __init__(self, launches: Sequence[KernelLaunch], stream: int, graphs: Handles, ready_graphs: Handles):
        self._graph = graphs.hold(call("cuGraphCreate", 0))
        nodes: list[Node] = []
        for each in launches:
            nodes.append(Node(self._graph.value, each, nodes[-1:]))
        self._ready = ready_graphs.hold(call("cuGraphInstantiate", self._graph.value, 0))
        for node, each in zip(nodes, launches):
            node.stand_in(self._ready.value, each.grid > 0)
        for node, each in zip(nodes, launches):  # after the graph is complete
            each.node, each.has_readers = node, True
        self.updates = [row for node in nodes for row in node.rows]
        self.launch = Row("cuGraphLaunch", self._ready.value, stream)


# ---- the plan ----
Made = TypeVar("Made")
UNKNOWN = -1  # address of memory
NODES_MAX = 1 << 14  # more launches, as of a loop of thousands of steps, are made kernel by kernel


class QueueDevice(Device, Protocol):
    """The queue's device, as far as a plan needs it.

    graphs, ready_graphs:  the driver's graphs, for updates and for launches
    is_forked:             this process was forked from the device's
    """

    is_forked: bool

    queue: CommandQueue
    graphs: Handles
    ready_graphs: Handles

    @property
    def memory(self) -> MemoryCount:
        """The count of memory in use."""
        ...

    def check_process(self) -> None:
        """Raises DeviceError in a process that was forked."""
        ...

    def enter(self) -> None:
        """Makes the context current in the calling thread."""
        ...

    def give_back_graphs(self) -> None:
        """Destroys the graphs of plans that are gone."""
        ...

    def with_room(self, make: Callable[[], Made]) -> Made:
        """Returns make(); if the driver is out of memory, frees all unused memory and calls it again."""
        ...

    def arena(self, nbytes: int) -> Memory:
        """Returns memory for a plan's temporaries."""
        ...


class KernelPart:
    """Consecutive kernels: launched one by one the first time, then as a graph.

    rows:         calls of a run
    same:         of these, the calls of a run with the same arguments and grids as the last one
    is_prepared:  the rows will not change again
    """

    def __init__(self, calls: Sequence[Call], stream: int):
        self.launches = [KernelLaunch(each, stream) for each in calls]
        self.rows: list[Row] = [each.row for each in self.launches]
        self.same = self.rows
        self._stream, self._has_run, self.is_prepared = stream, False, False
        self._graph: Graph | None = None

    def prepare(self, device: QueueDevice) -> None:
        """Makes a graph of the launches at the second run, if the driver has memory for it: some KB per node."""
        if self._has_run and 1 < len(self.launches) <= NODES_MAX and self._graph is None:
            device.enter()
            device.give_back_graphs()
            make = partial(Graph, self.launches, self._stream, device.graphs, device.ready_graphs)
            with suppress(OutOfMemoryError):  # otherwise each kernel is launched, as in the first run
                graph = device.with_room(make)
                self.rows, self.same, self._graph = [*graph.updates, graph.launch], [graph.launch], graph
        self.is_prepared, self._has_run = self._has_run, True

    def run(self, device: QueueDevice) -> None:
        """Submits the launches; one by one while kernels are timed."""
        queue = device.queue
        if queue.laps is None:
            if not self.is_prepared:
                self.prepare(device)
                self._commands = Commands(queue.caller, self.rows)
            self._commands()
            return
        for each in self.launches:
            queue.launch(each.call.launch.symbol, each.row)


class HostPart:
    """A call of a host function between kernels: it waits for them, and works on copies of their memory."""

    def __init__(self, call: Call):
        self.launches = [PreparedLaunch(call)]

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
    """A product that a library submits between kernels, to their stream, without waiting.

    Cost: some microseconds of the host per run, and launches before and after it are separate graphs. As a node of one
    graph it would have to be captured again whenever memory changes.
    """

    def __init__(self, call: Call):
        self.launches = [PreparedLaunch(call)]

    def run(self, device: QueueDevice) -> None:
        """Submits the product."""
        (prepared,) = self.launches
        device.queue.launch_product(prepared.call.function, prepared.call.launch.symbol, list(prepared.values))


AnyPart = KernelPart | HostPart | LibraryPart
ALONE: dict[type, type[HostPart | LibraryPart]] = {HostFunction: HostPart, ProductCall: LibraryPart}


def cut(calls: Sequence[Call], stream: int) -> list[AnyPart]:
    """Splits calls into parts: consecutive kernels, and single calls of the host or of a library."""
    parts: list[AnyPart] = []
    for alone, group in groupby(calls, lambda call: ALONE.get(type(call.function))):
        own = list(group)
        parts += [KernelPart(own, stream)] if alone is None else [alone(call) for call in own]
    return parts


class CudaPlan:
    """Runs a schedule on a GPU: submits everything, and waits only if kernels report checks.

    Its loops have the numbers of steps for these values of the symbolic integers.
    """

    def __init__(
        self, device: QueueDevice, schedule: Schedule, executables: Sequence[Executable], variables: Mapping[str, int]
    ):
        listed = list_launches(schedule, executables, variables)
        self._device, self._executables = device, tuple(executables)  # their modules must stay loaded
        self._temporaries = temporaries = listed.temporaries
        # Of temporaries in the arena, and its bytes; where they depend on lengths, those of the run before.
        self._places, self._arena_nbytes = temporaries.places({}) if temporaries.is_spread else ({}, 0)
        self._arena_address = UNKNOWN
        queue = device.queue
        num_inputs, num_outputs = (sum(use.role == role for use in schedule.buffers) for role in ("input", "output"))
        self._stages = [cut(calls, queue.stream) for calls in listed.parts]  # reports are read after each part
        self._parts = [part for stage in self._stages for part in stage]
        self._reports = Reports(device, listed.checks) if listed.checks else None
        first_part = self._parts[0] if len(self._parts) == 1 and self._reports is None else None
        self._only = first_part if isinstance(first_part, KernelPart) else None
        self._all = self._same = Commands(queue.caller, ())  # with the updates of its graph, and without
        self._num_outer = outer = num_inputs + num_outputs
        slots = [*(("input", i) for i in range(num_inputs)), *(("output", i) for i in range(num_outputs))]
        slots += [*(("temporary", start) for start in temporaries.starts), ("report", 0)]
        slot_of = {place: slot for slot, place in enumerate(slots)}
        self._addresses = [UNKNOWN] * len(slots)  # addresses that the arguments have now
        self._readers: list[list[tuple[PreparedLaunch, int, int]]] = [[] for _ in self._addresses]
        for part in self._parts:
            for each in part.launches:
                for i, argument in enumerate(each.call.arguments):
                    place = argument.place
                    self._readers[slot_of[place.group, place.number]].append((each, i, place.offset))
        self._has_temporaries = any(self._readers[outer:-1])
        self._has_maps = any(each.call.launch.tile_maps for part in self._parts for each in part.launches)
        self._is_changed = True  # the graph needs an update
        self._fixed: FixedMemory | None = None  # from the last run
        self._variables: dict[str, int] | None = None

    def __call__(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        variables: Mapping[str, int],
        may_stop: bool = True,
        fixed: FixedMemory | None = None,
    ) -> None:
        """Runs it once. Ctrl-C waits unless `may_stop`, and always waits if a single call submits everything."""
        device, queue, only = self._device, self._device.queue, self._only
        with queue.lock:
            if not may_stop and (only is None or queue.laps is not None):
                with held_back():
                    return self(inputs, outputs, variables, True, fixed)
            if device.is_forked:
                device.check_process()
            if not queue.is_whole:
                queue.make_whole()
            is_bound = self._variables == variables
            if not is_bound and not self._temporaries.is_spread:
                self._variables, self._arena_address = None, UNKNOWN
                self._places, self._arena_nbytes = self._temporaries.places(variables)
            counted = device.memory.take(self._arena_nbytes) if self._has_temporaries else None
            try:
                if self._has_temporaries:
                    arena = device.arena(self._arena_nbytes)  # kept alive here: the device may drop it to make room
                    if self._arena_address != arena.address:
                        self._set_arena(arena.address)
                self._set_addresses(inputs, outputs, fixed)
                if not is_bound:
                    self._bind(variables)
                if only is None or queue.laps is not None:
                    self._run_parts()
                else:
                    if not only.is_prepared:
                        self._prepare(only)
                    queue.run(self._all if self._is_changed else self._same)
                    self._is_changed = False
            except BaseException:
                queue.is_whole = False
                raise
            finally:
                del counted

    def _prepare(self, part: KernelPart) -> None:
        """Makes the single call of a submission with this part alone."""
        queue = self._device.queue
        part.prepare(self._device)
        self._all, self._same = (
            Commands(queue.caller, [*queue.before, *rows, *queue.after]) for rows in (part.rows, part.same)
        )

    def _run_parts(self) -> None:
        """Submits the parts one by one."""
        queue = self._device.queue
        queue.begin()
        for stage in self._stages:
            if self._reports is not None:
                if self._addresses[-1] != (at := self._reports.memory.address):
                    self._set({len(self._addresses) - 1: at})
                self._reports.begin()
            for part in stage:
                part.run(self._device)
            if self._reports is not None:
                self._reports.look()
        queue.end()

    def _set_addresses(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], fixed: FixedMemory | None) -> None:
        """Writes the addresses of inputs and outputs to the arguments."""
        before = self._addresses
        changed: dict[int, int] = {}
        if fixed is None or fixed is not self._fixed:
            self._fixed = None  # until all are written
            found = [buffer.memory.address for buffer in (*inputs, *outputs)]
            if found != before[: len(found)]:
                changed = dict(enumerate(found))
        else:
            for place in fixed.moving_inputs:
                if before[place] != (address := inputs[place].memory.address):
                    changed[place] = address
            for run in fixed.moving_runs:
                for place in range(run.start, run.stop):
                    if before[place] != (address := inputs[place].memory.address):
                        changed[place] = address
            for place in fixed.moving_outputs:
                if before[slot := len(inputs) + place] != (address := outputs[place].memory.address):
                    changed[slot] = address
        if changed:
            self._set(changed)
        self._fixed = fixed

    def _set_arena(self, address: int) -> None:
        """Puts the addresses of temporaries into the arguments."""
        self._arena_address = UNKNOWN  # as long as not all arguments have them
        found = [address + self._places[start] for start in self._temporaries.starts]
        before, outer = self._addresses, self._num_outer
        self._set({slot: at for slot, at in enumerate(found, outer) if at != before[slot]})
        self._arena_address = address

    def _set(self, changed: Mapping[int, int]) -> None:
        """Writes addresses, by slot, to the present arguments."""
        addresses, readers = self._addresses, self._readers
        self._is_changed = True
        if self._has_maps:
            self._device.enter()  # the driver makes tile maps
        for slot, address in changed.items():
            addresses[slot] = UNKNOWN  # until all arguments have it
            for launch, i, offset in readers[slot]:
                launch.values[i] = address + offset
                if launch.has_readers:
                    launch.tell_address(i, address + offset)
            addresses[slot] = address

    def _bind(self, variables: Mapping[str, int]) -> None:
        """Writes values of symbolic integers to the arguments and grids."""
        self._variables, self._is_changed = None, True  # until all arguments have them
        for part in self._parts:
            for each in part.launches:
                for tile_map in each.call.launch.tile_maps:
                    check_inside(tile_map, dim_value(each.call.arguments[tile_map.param].numel, variables))
                if each.call.variables or each.grid == 0:
                    values = [variables[variable.arg[0]] for variable in each.call.variables]
                    each.set_grid(dim_value(each.call.launch.grid, variables), values)
        self._variables = dict(variables)


class Reports:
    """The reports of a plan's Checks. NOTE: plans with Checks are waited for."""

    def __init__(self, device: QueueDevice, checks: Sequence[Sequence[int]]):
        self.device, self.checks = device, checks
        self.words = np.zeros((len(checks), REPORT_WORDS), np.int64)
        self.memory = device.allocate(self.words.nbytes)
        self._is_clear = False  # True if the GPU's memory has no report

    def begin(self) -> None:
        """Clears the reports of an earlier run that an error or an interrupt may have ended before they were read."""
        if not self._is_clear:
            self.words[:] = 0
            self.device.copy_in(self.memory, self.words)
            self.device.queue.begin()  # later kernels wait for this
        self._is_clear = False

    def look(self) -> None:
        """Raises the first report, if any."""
        self.device.copy_out(self.memory, self.words)
        if self.words.any():
            raise first_report(self.words.tolist(), self.checks)
        self._is_clear = True
