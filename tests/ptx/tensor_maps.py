"""Tensor maps: what a program asks the driver to encode, kept by the 128 bytes that it gets for it; and boxes of one.

In:    the arguments of cuTensorMapEncodeTiled
Out:   `TensorMap`; `Encoder`, a function in the place of the driver's; `box_places`

The driver's 128 bytes are its secret, so the stand-in gives a number in them, and `Encoder.map_of` finds the arguments
again. The rules are those of the CUDA Driver API, "Tensor Map Object Management", for what picograd asks for.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from picograd.devices.cuda import tile_maps
from picograd.dtype import DType
from picograd.ir.stages import TileMap
from tests.ptx.descriptors import swizzled
from tests.ptx.module import PtxError

Array = np.ndarray[Any, Any]
SEAL = b"a tensor map of the interpreter "  # begins the 128 bytes
# CUtensorMapDataType: UINT8, UINT16, UINT32, INT32, UINT64, INT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, ..., TFLOAT32
NBYTES_OF_TYPE = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 11: 4}
TFLOAT32 = 11
SPAN_OF_SWIZZLE = {0: 16, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle: NONE, 32B, 64B, 128B
SUCCESS, INVALID_VALUE = 0, 1


@dataclass(frozen=True)
class TensorMap:
    """An array in global memory and a box of it; all axes from the innermost on.

    strides:  bytes; the innermost is the itemsize
    span:     bytes of a row of the swizzle's pattern; 16: no swizzle
    rounds:   loads round to TF32
    """

    address: int
    itemsize: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    span: int
    rounds: bool = False

    @property
    def nbytes(self) -> int:
        """Of a box, also where it stands over the edge."""
        return self.itemsize * int(np.prod(self.box))

    def broken_rule(self) -> str | None:
        """Returns what the driver refuses, or None."""
        rules = {
            "one to five axes": 1 <= len(self.extents) <= 5,
            "an address that is a multiple of 16": self.address % 16 == 0,
            "extents of 1 to 2**32": all(1 <= each <= 1 << 32 for each in self.extents),
            "strides that are multiples of 16": all(each % 16 == 0 for each in self.strides[1:]),
            "boxes of 1 to 256": all(1 <= each <= 256 for each in self.box),
            "rows of a multiple of 16 bytes": self.box[0] * self.itemsize % 16 == 0,
            "rows no longer than the swizzle": self.span == 16 or self.box[0] * self.itemsize <= self.span,
        }
        return next((rule for rule, holds in rules.items() if not holds), None)


class Encoder:
    """Stands in for cuTensorMapEncodeTiled, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.maps: list[TensorMap] = []

    def __call__(
        self, into: int, kind: int, rank: int, address: int, extents: Any, strides: Any, box: Any, steps: Any,
        interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        """Returns the driver's status: 0, or 1 where a rule is broken."""
        itemsize = NBYTES_OF_TYPE[kind]
        along = (itemsize, *strides[: rank - 1])
        span, rounds = SPAN_OF_SWIZZLE[swizzle], kind == TFLOAT32
        asked = TensorMap(address, itemsize, tuple(extents[:rank]), along, tuple(box[:rank]), span, rounds)
        if asked.broken_rule() or into % 64 or interleave or fill or list(steps[:rank]) != [1] * rank:
            return INVALID_VALUE
        ctypes.memmove(into, SEAL + len(self.maps).to_bytes(8, "little") + bytes(88), 128)
        self.maps.append(asked)
        return SUCCESS

    def map_of(self, given: bytes) -> TensorMap:
        """Returns the map that 128 bytes of a kernel's parameters stand for."""
        if not given.startswith(SEAL):
            raise PtxError(f"a tensor map is expected, and {given[:8].hex()}... has not been encoded.")
        return self.maps[int.from_bytes(given[32:40], "little")]


def box_places(tensor: TensorMap, corner: tuple[int, ...], shared: int) -> tuple[Array, Array, Array]:
    """Returns of each element of a box: its address in global memory, in shared memory, and whether the array has it.

    Args:
      corner:  coordinates of the box's first element, from the innermost axis on; negative ones count
      shared:  address of the box in shared memory

    Raises:
      PtxError: the box lies where copies of tiles may not: PTX ISA, "cp.async.bulk.tensor", alignment of shared memory.
    """
    if shared % 128:
        raise PtxError(f"a tile at {shared:#x} of shared memory, no multiple of 128 bytes.")
    if tensor.span > 16 and tensor.box[0] * tensor.itemsize != tensor.span:
        row = tensor.box[0] * tensor.itemsize
        raise PtxError(f"a swizzle of {tensor.span} bytes in rows of {row} is not known here.")
    axes = np.meshgrid(*[np.arange(each) for each in tensor.box[::-1]], indexing="ij")[::-1]  # the innermost varies fastest
    at = [axis.reshape(-1) + first for axis, first in zip(axes, corner, strict=True)]
    there = np.logical_and.reduce([(each >= 0) & (each < extent) for each, extent in zip(at, tensor.extents)])
    memory = tensor.address + sum(each * stride for each, stride in zip(at, tensor.strides))
    return memory, swizzled(shared + tensor.itemsize * np.arange(len(there)), tensor.span), there


ENCODER = Encoder()  # of this process: kernels find their maps in it


def encoded(tile_map: TileMap, dtype: DType, address: int) -> bytes:
    """Returns the 128 bytes that picograd passes for a map, made by its own `encode`."""
    room = ctypes.create_string_buffer(192)
    into = -(-ctypes.addressof(room) // 64) * 64
    with patch.object(tile_maps, "_encoder", lambda: ENCODER):
        tile_maps.encode(tile_map, dtype, address, into)
    return ctypes.string_at(into, 128)
