"""Launches with their arguments in place, and graphs of them, which the driver runs with one call.

In:    Calls of a plan; addresses and grids, as they change
Out:   `PreparedLaunch`; `Graph`
Called by: runtime/cuda/plan.py.    Next: picograd/runtime/cuda/tile_maps.py
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from picograd.runtime.cuda.driver import call, driver
from picograd.runtime.cuda.handles import Handles
from picograd.runtime.cuda.tile_maps import encode
from picograd.runtime.launches import Call

MAP_NBYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap


class PreparedLaunch:
    """A launch with its arguments as the driver takes them, from run to run the same memory.

    call:      what it launches
    values:    its arguments: addresses, then symbolic integers
    pointers:  the address of each of them, maps of tiles between
    grid:      blocks; with none it is left out
    """

    __slots__ = ("call", "values", "pointers", "grid", "_maps", "_first_map")

    def __init__(self, call: Call):
        count, tile_maps = max(1, len(call.arguments) + len(call.variables)), call.launch.tile_maps
        self.call, self.grid = call, 0
        self.values = (ctypes.c_int64 * count)()
        start, behind = ctypes.addressof(self.values), len(call.arguments)
        self._maps = (ctypes.c_char * (MAP_NBYTES * len(tile_maps) + MAP_ALIGNMENT))() if tile_maps else None
        self._first_map = 0 if self._maps is None else -(-ctypes.addressof(self._maps) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        pointers = [start + 8 * i for i in range(count)]
        pointers[behind:behind] = [self._first_map + MAP_NBYTES * i for i in range(len(tile_maps))]
        self.pointers = (ctypes.c_void_p * len(pointers))(*pointers)

    def set_address(self, number: int, address: int) -> None:
        """Puts an address into an argument, and into the maps that are of its memory."""
        self.values[number] = address
        for i, tile_map in enumerate(self.call.launch.tile_maps):
            if tile_map.param == number:
                encode(tile_map, self.call.arguments[number].dtype, address, self._first_map + MAP_NBYTES * i)


class Graph:
    """Launches one after the other, as the driver runs them with one call.

    ready:  the graph that can be launched
    """

    def __init__(self, launches: Sequence[PreparedLaunch], graphs: Handles, ready_graphs: Handles):
        for handles in (ready_graphs, graphs):
            handles.give_back(len(handles))  # one that still runs is freed by the driver when it is done
        self._launches = launches
        self._graph = graphs.hold(call("cuGraphCreate", 0))
        self._nodes: list[Any] = []
        for each in launches:
            before = self._nodes[-1:]
            self._nodes.append(call("cuGraphAddKernelNode", self._graph.value, before, len(before), _node_params(each)))
        self.ready = ready_graphs.hold(call("cuGraphInstantiate", self._graph.value, 0))
        for number, each in enumerate(launches):
            if each.grid <= 0:
                call("cuGraphNodeSetEnabled", self.ready.value, self._nodes[number], 0)

    def update(self, number: int) -> None:
        """Tells the driver the arguments and the grid of a launch, for the runs to come; a run under way keeps its own."""
        each, node = self._launches[number], self._nodes[number]
        call("cuGraphNodeSetEnabled", self.ready.value, node, int(each.grid > 0))
        if each.grid > 0:
            call("cuGraphExecKernelNodeSetParams", self.ready.value, node, _node_params(each))


def _node_params(launch: PreparedLaunch) -> Any:
    params = driver().CUDA_KERNEL_NODE_PARAMS()
    params.func = launch.call.function
    params.gridDimX, params.gridDimY, params.gridDimZ = max(1, launch.grid), 1, 1
    params.blockDimX, params.blockDimY, params.blockDimZ = launch.call.launch.block, 1, 1
    params.sharedMemBytes = launch.call.launch.shared_nbytes
    params.kernelParams = ctypes.addressof(launch.pointers)
    return params
