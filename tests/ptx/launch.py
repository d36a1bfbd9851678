"""Runs a kernel of a module on a grid: parameters, addresses of variables, blocks in portions.

In:    Module, name of a kernel, Buffers of the host, numbers
Out:   `launch`;  `Pointer`
Next:  tests/ptx/device.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.ptx.lanes import Array, Layout
from tests.ptx.machine import Machine
from tests.ptx.memory import REGION_BITS, START, Memory, Region
from tests.ptx.module import Function, Module, PtxError, Variable
from tests.ptx.table import steps_of

MOST_LANES = 1 << 15  # that a machine runs at once


@dataclass(frozen=True)
class Pointer:
    """Memory of the host that a kernel is given; `bytes` are uint8."""

    name: str
    bytes: Array


Argument = Pointer | int | bytes | Callable[[dict[int, int]], bytes]


class Buffers:
    """Memory of the host as regions at pretended addresses; what overlaps is one region.

    addresses:  of each Pointer by its place on the host
    """

    def __init__(self, pointers: Sequence[Pointer], variables: Sequence[Variable]):
        self.regions: list[Region] = []
        self.addresses: dict[int, int] = {}
        self.symbols: dict[str, int] = {}
        pieces = sorted(pointers, key=lambda one: one.bytes.ctypes.data)
        while pieces:
            own, end = [pieces.pop(0)], 0
            end = own[0].bytes.ctypes.data + own[0].bytes.nbytes
            while pieces and pieces[0].bytes.ctypes.data < end:
                own.append(pieces.pop(0))
                end = max(end, own[-1].bytes.ctypes.data + own[-1].bytes.nbytes)
            self._add(own, end)
        for variable in variables:
            data = np.frombuffer((variable.data or b"").ljust(variable.nbytes, b"\0"), np.uint8).copy()
            base = self._base(0)
            self.regions.append(Region(variable.name, base, len(data), data))
            self.symbols[variable.name] = base

    def _base(self, host: int) -> int:
        return ((len(self.regions) + 1) << REGION_BITS) + host % 256

    def _add(self, pointers: list[Pointer], end: int) -> None:
        start = pointers[0].bytes.ctypes.data
        longest = max(pointers, key=lambda one: one.bytes.nbytes)
        data = longest.bytes if longest.bytes.nbytes == end - start else bytes_at(start, end - start)
        base = self._base(start)
        self.regions.append(Region("/".join(one.name for one in pointers), base, end - start, data))
        for one in pointers:
            self.addresses[one.bytes.ctypes.data] = base + one.bytes.ctypes.data - start


def bytes_at(address: int, nbytes: int) -> Array:
    """Returns memory of the host as bytes."""
    import ctypes

    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
