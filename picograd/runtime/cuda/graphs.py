"""Launches with their arguments in place, and graphs of them, which the driver runs with one call.

In:    Calls of a plan; addresses and grids, as they change
Out:   `PreparedLaunch`, `KernelLaunch`; `Graph`
Called by: runtime/cuda/plan.py.    Next: picograd/runtime/cuda/tile_maps.py
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from picograd.runtime.cuda.commands import ALWAYS, NEVER, ONCE, Row
from picograd.runtime.cuda.driver import call, driver
from picograd.runtime.cuda.handles import Handles
from picograd.runtime.cuda.tile_maps import encode
from picograd.runtime.launches import Call

MAP_NBYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap
GRID = 1  # which argument of cuLaunchKernel it is


class PreparedLaunch:
    """A launch with its arguments as the driver takes them, from run to run the same memory.

    call:      what it launches
    values:    its arguments: addresses, then symbolic integers
    pointers:  the address of each of them, maps of tiles between
    grid:      blocks; with none it is left out
    node:      of a graph that has it, else None
    """

    __slots__ = ("call", "values", "pointers", "grid", "node", "_maps", "_first_map")

    def __init__(self, call: Call):
        count, tile_maps = max(1, len(call.arguments) + len(call.variables)), call.launch.tile_maps
        self.call, self.grid = call, 0
        self.node: Node | None = None
        self.values = (ctypes.c_int64 * count)()
        start, behind = ctypes.addressof(self.values), len(call.arguments)
        self._maps = (ctypes.c_char * (MAP_NBYTES * len(tile_maps) + MAP_ALIGNMENT))() if tile_maps else None
        self._first_map = 0 if self._maps is None else -(-ctypes.addressof(self._maps) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        pointers = [start + 8 * i for i in range(count)]
        pointers[behind:behind] = [self._first_map + MAP_NBYTES * i for i in range(len(tile_maps))]
        self.pointers = (ctypes.c_void_p * len(pointers))(*pointers)

    def set_address(self, number: int, address: int) -> None:
        """Puts an address into an argument, and into the maps that are of its memory; a node is told."""
        self.values[number] = address
        if self._maps is not None:
            for i, tile_map in enumerate(self.call.launch.tile_maps):
                if tile_map.param == number:
                    dtype = self.call.arguments[number].dtype
                    encode(tile_map, dtype, address + tile_map.offset * dtype.itemsize, self._first_map + MAP_NBYTES * i)
        if self.node is not None and self.grid > 0:
            self.node.tell()

    def set_grid(self, grid: int, values: Sequence[int]) -> None:
        """Replaces the grid, and the values of symbolic integers."""
        self.grid = grid
        for i, value in enumerate(values, len(self.call.arguments)):
            self.values[i] = value


class KernelLaunch(PreparedLaunch):
    """A launch of a kernel, which the driver is told of by calls that stand ready.

    row:  the launch itself
    """

    __slots__ = ("row",)

    def __init__(self, call: Call, stream: int):
        super().__init__(call)
        block, shared = call.launch.block, call.launch.shared_nbytes
        pointers = ctypes.addressof(self.pointers)
        self.row = Row("cuLaunchKernel", call.function, 0, 1, 1, block, 1, 1, shared, stream, pointers, 0, due=NEVER)

    def set_grid(self, grid: int, values: Sequence[int]) -> None:
        """Replaces the grid, and the values of symbolic integers; the node is told."""
        super().set_grid(grid, values)
        self.row.set(GRID, grid)
        self.row.set_due(ALWAYS if grid > 0 else NEVER)
        if self.node is not None:
            self.node.set_grid(grid)


class Node:
    """A launch in a graph.

    node:  the driver's
    rows:  what tells the driver of it, for the runs to come; a run under way keeps what it was told
    """

    def __init__(self, graph: Any, launch: KernelLaunch, before: Sequence[Node]):
        made = launch.call.launch
        self._params = params = driver().CUDA_KERNEL_NODE_PARAMS()
        params.func = launch.call.function
        params.gridDimX, params.gridDimY, params.gridDimZ = max(1, launch.grid), 1, 1
        params.blockDimX, params.blockDimY, params.blockDimZ = made.block, 1, 1
        params.sharedMemBytes = made.shared_nbytes
        params.kernelParams = ctypes.addressof(launch.pointers)
        self.node: Any = call("cuGraphAddKernelNode", graph, [each.node for each in before], len(before), params)
        self.rows: tuple[Row, ...] = ()

    def stand_in(self, ready: Any, is_enabled: bool) -> None:
        """Prepares what is told of it in a graph that is ready to run."""
        self._enable = Row("cuGraphNodeSetEnabled", ready, self.node, is_enabled, due=NEVER if is_enabled else ONCE)
        self._tell = Row("cuGraphExecKernelNodeSetParams", ready, self.node, self._params.getPtr(), due=NEVER)
        self.rows = self._enable, self._tell

    def tell(self) -> None:
        """Says that its arguments are other ones."""
        self._tell.set_due(ONCE)

    def set_grid(self, grid: int) -> None:
        """Says that its grid is another one; with none it does not run."""
        self._enable.set(2, grid > 0)
        self._enable.set_due(ONCE)
        if grid > 0:
            self._params.gridDimX = grid
            self._tell.set_due(ONCE)


class Graph:
    """Launches one after the other, as the driver runs them with one call.

    updates:  what tells it of changes
    launch:   runs it
    """

    def __init__(self, launches: Sequence[KernelLaunch], stream: int, graphs: Handles, ready_graphs: Handles):
        for handles in (ready_graphs, graphs):
            handles.give_back(len(handles))  # one that still runs is freed by the driver when it is done
        self._graph = graphs.hold(call("cuGraphCreate", 0))
        nodes: list[Node] = []
        for each in launches:
            nodes.append(Node(self._graph.value, each, nodes[-1:]))
        self._ready = ready_graphs.hold(call("cuGraphInstantiate", self._graph.value, 0))
        for node, each in zip(nodes, launches):
            node.stand_in(self._ready.value, each.grid > 0)
        for node, each in zip(nodes, launches):  # now that all of it is there
            each.node = node
        self.updates = [row for node in nodes for row in node.rows]
        self.launch = Row("cuGraphLaunch", self._ready.value, stream)
