"""Maps of tiles as a kernel takes them: for the simulator a record of numbers, for a GPU what its driver encodes.

In:    TileMaps of a Launch, the dtype and address of the memory they are of
Out:   `numbers_of`, `encode`, `check_inside`
Called by: runtime/cudasim/device.py, runtime/cuda/plan.py

kernels/cuda/hopper.h says what a kernel does with one. Its axes begin with the innermost, as the driver counts them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd.ir.stages import TileMap
from picograd.runtime.cuda.driver import call, driver, failed

MOST_AXES, CUDA_WITH_MAPS = 5, 12000
PIECE_NBYTES, ROW_NBYTES = 16, 128  # what copies move at once; a row of a swizzled tile
MOST_BOX = 256  # elements along one axis: CUDA Driver API, cuTensorMapEncodeTiled
KINDS = {
    dtypes.float16: "FLOAT16", dtypes.bfloat16: "BFLOAT16", dtypes.float32: "FLOAT32", dtypes.float64: "FLOAT64",
    dtypes.uint8: "UINT8", dtypes.int8: "UINT8", dtypes.float8_e4m3: "UINT8", dtypes.float8_e5m2: "UINT8",
    dtypes.uint16: "UINT16", dtypes.int32: "INT32", dtypes.uint32: "UINT32", dtypes.int64: "INT64", dtypes.uint64: "UINT64",
}  # fmt: skip


def numbers_of(tile_map: TileMap, dtype: DType, address: int) -> list[int]:
    """Returns what runtime/cudasim/tiles.h has in a TileMap: address, axes, item, swizzle; extents, strides, box.

    Raises:
      DeviceError: a rule of the driver's is broken.
    """
    extents, strides, box = _checked(tile_map, dtype, address)
    axes = [[*values, *[0] * (MOST_AXES - len(values))] for values in (extents, strides, box)]
    return [address, len(box), dtype.itemsize, int(tile_map.swizzles), *axes[0], *axes[1], *axes[2]]


def encode(tile_map: TileMap, dtype: DType, address: int, into: int) -> None:
    """Has the driver write a map to 128 bytes of this process, at an address that is a multiple of 64.

    Raises:
      DeviceError: a rule of the driver's is broken, or it has another.
    """
    extents, strides, box = _checked(tile_map, dtype, address)
    names, count = driver(), len(box)
    kind = getattr(names.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{KINDS[dtype]}")
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
        raise failed("cuTensorMapEncodeTiled", names.CUresult(status))


@cache
def _encoder() -> Any:
    """Returns the driver's function. NOTE: the bindings' own gives it memory at a multiple of 16, and it asks for 64."""
    place, _ = call("cuGetProcAddress", b"cuTensorMapEncodeTiled", CUDA_WITH_MAPS, 0)
    word, memory = ctypes.c_int, ctypes.c_void_p
    return ctypes.CFUNCTYPE(word, memory, word, word, memory, *[memory] * 4, *[word] * 4)(place)


def _checked(tile_map: TileMap, dtype: DType, address: int) -> tuple[list[int], list[int], list[int]]:
    """Returns extents, strides in bytes and box from the innermost axis on, if they keep the driver's rules."""
    extents, box = list(tile_map.shape[::-1]), list(tile_map.box[::-1])
    strides = [dtype.itemsize * each for each in accumulate([1, *extents[:-1]], mul)]
    row = box[0] * dtype.itemsize if box else 0
    rules = [
        (dtype in KINDS, f"has elements of {dtype}"),
        (1 <= len(box) == len(extents) <= MOST_AXES, f"has {len(extents)} axes, its box {len(box)}; one to five can be"),
        (address % PIECE_NBYTES == 0, f"begins at {address:#x}, no multiple of {PIECE_NBYTES}"),
        (
            all(each % PIECE_NBYTES == 0 for each in strides[1:]),
            f"has strides of {strides[1:]} bytes, not all multiples of 16",
        ),
        (row % PIECE_NBYTES == 0, f"has a box of {row} bytes a row, no multiple of {PIECE_NBYTES}"),
        (not tile_map.swizzles or row == ROW_NBYTES, f"is swizzled with {row} bytes a row; it is {ROW_NBYTES}"),
        (all(1 <= each <= MOST_BOX for each in box), f"has a box of {tile_map.box}; each of it is 1 to {MOST_BOX}"),
    ]
    for holds, but in rules:
        if not holds:
            raise DeviceError(f"tile map of parameter {tile_map.param}: an array of {tile_map.shape} {but}.")
    return extents, strides, box


def check_inside(tile_map: TileMap, numel: int) -> None:
    """Raises DeviceError where a map is of more than the elements that there are."""
    if prod(tile_map.shape) > numel:
        raise DeviceError(f"tile map of parameter {tile_map.param}: {tile_map.shape} is more than its {numel} elements.")
