"""Tile maps, by which kernels copy: the driver's rules for them, on a GPU and on the simulator.

In:    TileMaps of a Launch, dtype and address of their memory
Out:   `checked`: the layout of the array; `check_inside`; `encode`: the driver's form of a map

hopper.h shows how kernels use them. Axes begin with the innermost, as in the driver.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from picograd import dtype as dtypes
from picograd.devices.cuda.commands import address_of
from picograd.devices.cuda.driver import driver, failed
from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd.ir.opts import PIECE_NBYTES, ROW_NBYTES
from picograd.ir.stages import TileMap

# ---- rules ----
AXES_MAX = 5
BOX_AXIS_MAX = 256  # elements along one axis: CUDA Driver API, cuTensorMapEncodeTiled
# The driver's names of elements: CUtensorMapDataType. It has one type of one byte, since elements are only copied.
KINDS = {
    dtypes.float16: "FLOAT16", dtypes.bfloat16: "BFLOAT16", dtypes.float32: "FLOAT32", dtypes.float64: "FLOAT64",
    dtypes.uint8: "UINT8", dtypes.int8: "UINT8", dtypes.float8_e4m3: "UINT8", dtypes.float8_e5m2: "UINT8",
    dtypes.uint16: "UINT16", dtypes.int32: "INT32", dtypes.uint32: "UINT32", dtypes.int64: "INT64", dtypes.uint64: "UINT64",
}  # fmt: skip


def checked(tile_map: TileMap, dtype: DType, address: int) -> tuple[list[int], list[int], list[int]]:
    """Returns extents, strides in bytes and box, innermost axis first.

    Args:
      address:  address of the array

    Raises:
      DeviceError: a rule of the driver is violated.
    """
    extents, box = list(tile_map.shape[::-1]), list(tile_map.box[::-1])
    strides = [dtype.itemsize * each for each in tile_map.steps[::-1]]
    row = box[0] * dtype.itemsize if box else 0
    rules = [
        (dtype in KINDS, f"has elements of {dtype}"),
        (not tile_map.rounds or dtype is dtypes.float32, f"rounds elements of {dtype}; only float32 is rounded"),
        (
            1 <= len(box) == len(extents) == len(strides) <= AXES_MAX,
            f"has {len(extents)} axes, its box {len(box)}; both must have the same number, one to five",
        ),
        (address % PIECE_NBYTES == 0, f"starts at {address:#x}, not a multiple of {PIECE_NBYTES}"),
        (
            all(each % PIECE_NBYTES == 0 for each in strides[1:]),
            f"has strides of {strides[1:]} bytes, not all multiples of {PIECE_NBYTES}",
        ),
        (strides[0] == dtype.itemsize, "has an innermost axis with gaps"),
        (row % PIECE_NBYTES == 0, f"has a box with rows of {row} bytes, no multiple of {PIECE_NBYTES}"),
        (not tile_map.swizzles or row == ROW_NBYTES, f"is swizzled with rows of {row} bytes; they must be {ROW_NBYTES}"),
        (all(1 <= each <= BOX_AXIS_MAX for each in box), f"has a box of {tile_map.box}; lengths are 1 to {BOX_AXIS_MAX}"),
    ]
    for holds, but in rules:
        if not holds:
            raise DeviceError(f"tile map of parameter {tile_map.param}: an array of {tile_map.shape} {but}.")
    return extents, strides, box


def check_inside(tile_map: TileMap, numel: int) -> None:
    """Raises DeviceError if a map exceeds the memory's elements."""
    last = tile_map.offset + sum((extent - 1) * step for extent, step in zip(tile_map.shape, tile_map.steps))
    if last >= numel:
        raise DeviceError(f"tile map of parameter {tile_map.param}: {tile_map.shape} exceeds its {numel} elements.")


# ---- for a driver ----
def encode(tile_map: TileMap, dtype: DType, address: int, into: int) -> None:
    """Lets the driver write a map to 128 bytes of this process, at an address that is a multiple of 64.

    Raises:
      DeviceError: a rule of the driver is violated, also one that is not checked here.
    """
    extents, strides, box = checked(tile_map, dtype, address)
    names, count = driver(), len(box)
    name = "TFLOAT32" if tile_map.rounds else KINDS[dtype]
    kind = getattr(names.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    swizzles = names.CUtensorMapSwizzle
    swizzle = swizzles.CU_TENSOR_MAP_SWIZZLE_128B if tile_map.swizzles else swizzles.CU_TENSOR_MAP_SWIZZLE_NONE
    status = _encoder()(
        into, int(kind), count, address, (ctypes.c_uint64 * count)(*extents), (ctypes.c_uint64 * count)(*strides[1:], 0),
        (ctypes.c_uint32 * count)(*box), (ctypes.c_uint32 * count)(*[1] * count),
        int(names.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE), int(swizzle),
        int(names.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
        int(names.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )  # fmt: skip
    if status:
        raise failed("cuTensorMapEncodeTiled", status)


@cache
def _encoder() -> Any:
    """Returns the driver's function. NOTE: that of the bindings aligns memory to 16 bytes, but 64 are required."""
    word, memory = ctypes.c_int, ctypes.c_void_p
    return ctypes.CFUNCTYPE(word, memory, word, word, memory, *[memory] * 4, *[word] * 4)(
        address_of("cuTensorMapEncodeTiled")
    )
