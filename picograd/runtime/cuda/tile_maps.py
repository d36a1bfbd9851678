"""Maps of tiles as a GPU takes them: what its driver encodes.

In:    TileMaps of a Launch, the dtype and address of the memory they are of
Out:   `encode`
Called by: runtime/cuda/graphs.py.    Next: picograd/runtime/tile_maps.py
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from picograd.dtype import DType
from picograd.ir.stages import TileMap
from picograd.runtime.cuda.commands import address_of
from picograd.runtime.cuda.driver import driver, failed
from picograd.runtime.tile_maps import KINDS, checked


def encode(tile_map: TileMap, dtype: DType, address: int, into: int) -> None:
    """Has the driver write a map to 128 bytes of this process, at an address that is a multiple of 64.

    Raises:
      DeviceError: a rule of the driver's is broken, or it has another.
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
    """Returns the driver's function. NOTE: the bindings' own gives it memory at a multiple of 16, and it asks for 64."""
    word, memory = ctypes.c_int, ctypes.c_void_p
    return ctypes.CFUNCTYPE(word, memory, word, word, memory, *[memory] * 4, *[word] * 4)(
        address_of("cuTensorMapEncodeTiled")
    )
