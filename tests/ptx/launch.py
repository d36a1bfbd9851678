"""Runs a kernel of a module on a grid: addresses of variables and parameters, blocks in portions.

In:    Module, name of a kernel, Buffers of the host, bytes of parameters
Out:   `launch`, `Buffers`, `Pointer`
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.ptx.lanes import Array, Layout
from tests.ptx.machine import Machine
from tests.ptx.memory import REGION_BITS, START, Memory, Region
from tests.ptx.module import Function, Module, PtxError, Variable
from tests.ptx.table import steps_of

MOST_LANES = 1 << 15  # that a machine runs at once


@dataclass(frozen=True)
class Pointer:
    """Memory of the host that a kernel is given."""

    name: str
    address: int
    nbytes: int


class Buffers:
    """Memory of the host, and the variables of a module, as regions at pretended addresses; what overlaps is one region."""

    def __init__(self, pointers: Sequence[Pointer], module: Module):
        self.regions: list[Region] = []
        self.symbols: dict[str, int] = {}
        self.at: dict[int, int] = {}  # address of the host -> pretended address
        ordered = sorted((one for one in pointers if one.nbytes), key=lambda one: (one.address, -one.nbytes))
        while ordered:
            together, end = [ordered[0]], ordered[0].address + ordered[0].nbytes
            while len(together) < len(ordered) and ordered[len(together)].address < end:
                together.append(ordered[len(together)])
                end = max(end, together[-1].address + together[-1].nbytes)
            ordered = ordered[len(together) :]
            self._add_host(together, end)
        for variable in module.variables:
            if variable.space in ("global", "const"):
                data = np.frombuffer((variable.data or b"").ljust(variable.nbytes, b"\0"), np.uint8).copy()
                self.symbols[variable.name] = self._add(variable.name, 0, data)

    def _add(self, name: str, start: int, data: Array) -> int:
        base = ((len(self.regions) + 1) << REGION_BITS) + start % 256
        self.regions.append(Region(name, base, len(data), data))
        return base

    def _add_host(self, together: Sequence[Pointer], end: int) -> None:
        start = together[0].address
        memory = memoryview((ctypes.c_uint8 * (end - start)).from_address(start))
        base = self._add("/".join(one.name for one in together), start, np.frombuffer(memory, np.uint8))
        self.at |= {one.address: base + one.address - start for one in together}

    def address_of(self, pointer: Pointer) -> int:
        """Returns the address that a kernel is given; memory of no bytes has one at which nothing is."""
        return self.at.get(pointer.address, 0)


def place(variables: Sequence[Variable], symbols: dict[str, int], start: int = START) -> int:
    """Gives variables addresses one behind the other; returns the end."""
    for variable in variables:
        start = -(-start // variable.align) * variable.align
        symbols[variable.name] = start
        start += variable.nbytes
    return start


def packed(function: Function, symbols: dict[str, int], given: Sequence[bytes]) -> Array:
    """Returns the bytes of parameters as they lie in their space."""
    end = place(function.params, symbols)
    result = np.zeros(-(-(end - START) // 16) * 16, np.uint8)
    if len(given) != len(function.params):
        raise PtxError(f"{function.name} has {len(function.params)} parameters, and is given {len(given)}.")
    for variable, one in zip(function.params, given):
        if len(one) != variable.nbytes:
            raise PtxError(f"{function.name}: {variable.name} has {variable.nbytes} bytes, and is given {len(one)}.")
        at = symbols[variable.name] - START
        result[at : at + len(one)] = np.frombuffer(one, np.uint8)
    return result


def launch(
    module: Module, name: str, grid: int, threads: int, dynamic_nbytes: int, buffers: Buffers, given: Sequence[bytes]
) -> None:
    """Runs a kernel.

    Args:
      dynamic_nbytes: of shared memory, that `.extern .shared x[]` names
      given:          the bytes of each parameter

    Raises:
      PtxError: a rule is broken, or the launch is not one that the kernel is made for.
    """
    function = module.functions[name]
    if function.max_threads and threads > function.max_threads:
        raise PtxError(f"{name} is made for {function.max_threads} threads, and is given {threads}.")
    symbols = dict(buffers.symbols)
    params = packed(function, symbols, given)
    own = [*(one for one in module.variables if one.space == "shared"), *function.variables]
    shared = place([one for one in own if one.space == "shared" and not one.is_extern], symbols)
    dynamic = [one for one in own if one.is_extern]
    ends = [place([one], symbols, shared) + dynamic_nbytes for one in dynamic]  # all begin at the same place
    local = place([one for one in own if one.space == "local"], symbols)
    nbytes = {"shared": max([shared, *ends]) - START, "local": local - START, "param": len(params)}
    steps = steps_of(function)
    portion = max(1, MOST_LANES // threads)
    for first in range(0, grid, portion):
        layout = Layout(min(portion, grid - first), threads, first, grid)
        memory = Memory(layout, buffers.regions, nbytes)
        memory.private["param"].bytes[: len(params)] = params
        Machine(function, steps, layout, memory, symbols).run()
