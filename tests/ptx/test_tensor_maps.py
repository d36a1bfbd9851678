"""Tensor maps as picograd asks the driver for them, and where the elements of a box go."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cuda import tile_maps
from picograd.errors import DeviceError
from picograd.ir.stages import TileMap
from tests.ptx.module import PtxError
from tests.ptx.tensor_maps import ENCODER, Encoder, TensorMap, box_places, encoded


def asked_for(tile_map: TileMap, dtype: dtypes.DType) -> TensorMap:
    return ENCODER.map_of(encoded(tile_map, dtype, 4096))


def test_what_picograd_asks_for() -> None:
    plain = asked_for(TileMap(0, (3, 20, 48), (2, 8, 32), swizzles=False), dtypes.float32)
    assert plain == TensorMap(4096, 4, (48, 20, 3), (4, 192, 3840), (32, 8, 2), 16)
    assert asked_for(TileMap(0, (200, 304), (128, 64)), dtypes.bfloat16).span == 128
    assert plain.nbytes == 2048


def test_each_dtype_has_the_bytes_of_its_kind() -> None:
    for dtype in tile_maps.KINDS:
        assert asked_for(TileMap(0, (64,), (32,), swizzles=False), dtype).itemsize == dtype.itemsize


def test_the_driver_refuses() -> None:
    """What `tile_maps` lets through by mistake would be refused by the driver, too."""
    wrong = TensorMap(4096, 4, (48, 20), (4, 200), (32, 8), 16)
    assert wrong.broken_rule() == "strides that are multiples of 16"
    with pytest.raises(DeviceError, match="multiples of 16"):
        asked_for(TileMap(0, (20, 50), (8, 32), swizzles=False), dtypes.float32)


@pytest.mark.parametrize("span", [16, 32, 64, 128])
def test_a_box_lies_row_after_row_and_swizzled(span: int) -> None:
    columns = max(span, 32) // 4
    tensor = TensorMap(1 << 16, 4, (37, 20), (4, 160), (columns, 16), span)
    memory, shared, there = box_places(tensor, (24, -3), 2048)
    for (row, column), at, to, inside in zip(product(range(16), range(columns)), memory, shared, there, strict=True):
        assert at == (1 << 16) + 160 * (row - 3) + 4 * (24 + column)
        assert inside == (0 <= row - 3 < 20 and 24 + column < 37)
        flat = 2048 + 4 * (row * columns + column)
        bits = {16: 0, 32: 1, 64: 3, 128: 7}[span]
        assert to == flat ^ (flat // 128 & bits) * 16
    assert len(np.unique(shared)) == 16 * columns


def test_a_box_lies_at_a_multiple_of_128() -> None:
    with pytest.raises(PtxError, match="no multiple of 128"):
        box_places(TensorMap(0, 4, (64,), (4,), (32,), 16), (0,), 64)


def test_only_what_was_encoded_is_a_map() -> None:
    with pytest.raises(PtxError, match="has not been encoded"):
        Encoder().map_of(bytes(128))
