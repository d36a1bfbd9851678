"""Maps of tiles, which kernels copy by: the rules that the driver has for them, on a GPU and on the simulator.

In:    TileMaps of a Launch, the dtype and address of the memory they are of
Out:   `checked`: how the array lies; `check_inside`
Called by: runtime/cuda/tile_maps.py, runtime/cuda/plan.py, runtime/cudasim/device.py
Next:  picograd/runtime/cuda/cublaslt.py

kernels/cuda/hopper.h says what a kernel does with one. Its axes begin with the innermost, as the driver counts them.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd.ir.stages import TileMap

MOST_AXES = 5
PIECE_NBYTES, ROW_NBYTES = 16, 128  # what copies move at once; a row of a swizzled tile
MOST_BOX = 256  # elements along one axis: CUDA Driver API, cuTensorMapEncodeTiled
# What the driver calls elements: CUtensorMapDataType. Of one byte it knows one kind: they are moved, and nothing else.
KINDS = {
    dtypes.float16: "FLOAT16", dtypes.bfloat16: "BFLOAT16", dtypes.float32: "FLOAT32", dtypes.float64: "FLOAT64",
    dtypes.uint8: "UINT8", dtypes.int8: "UINT8", dtypes.float8_e4m3: "UINT8", dtypes.float8_e5m2: "UINT8",
    dtypes.uint16: "UINT16", dtypes.int32: "INT32", dtypes.uint32: "UINT32", dtypes.int64: "INT64", dtypes.uint64: "UINT64",
}  # fmt: skip


def checked(tile_map: TileMap, dtype: DType, address: int) -> tuple[list[int], list[int], list[int]]:
    """Returns extents, strides in bytes and box from the innermost axis on.

    Args:
      address:  of the array

    Raises:
      DeviceError: a rule of the driver's is broken.
    """
    extents, box = list(tile_map.shape[::-1]), list(tile_map.box[::-1])
    strides = [dtype.itemsize * each for each in tile_map.steps[::-1]]
    row = box[0] * dtype.itemsize if box else 0
    rules = [
        (dtype in KINDS, f"has elements of {dtype}"),
        (not tile_map.rounds or dtype is dtypes.float32, f"rounds elements of {dtype}; it is float32"),
        (
            1 <= len(box) == len(extents) == len(strides) <= MOST_AXES,
            f"has {len(extents)} axes, its box {len(box)}; one to five can be",
        ),
        (address % PIECE_NBYTES == 0, f"begins at {address:#x}, no multiple of {PIECE_NBYTES}"),
        (
            all(each % PIECE_NBYTES == 0 for each in strides[1:]),
            f"has strides of {strides[1:]} bytes, not all multiples of 16",
        ),
        (strides[0] == dtype.itemsize, "has an innermost axis that does not lie without gaps"),
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
    last = tile_map.offset + sum((extent - 1) * step for extent, step in zip(tile_map.shape, tile_map.steps))
    if last >= numel:
        raise DeviceError(f"tile map of parameter {tile_map.param}: {tile_map.shape} is more than its {numel} elements.")
