"""The IDX format, read and written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from picograd.errors import DataError
from picograd_programs.data.mnist import format_idx, parse_idx

DTYPES = ["u1", "i1", "i2", "i4", "f4", "f8"]


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(max_dims=4, min_side=0))))
def test_what_is_written_reads_back(array: np.ndarray) -> None:
    back = parse_idx(format_idx(array), "x.idx")
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


def test_result_can_be_written_to() -> None:
    parse_idx(format_idx(np.zeros(3, np.uint8)), "x.idx")[0] = 1


@pytest.mark.parametrize("kept", range(24))
def test_every_truncation_is_an_error(kept: int) -> None:
    whole = format_idx(np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    assert len(whole) == 24
    with pytest.raises(DataError, match=r"^x\.idx: "):
        parse_idx(whole[:kept], "x.idx")


def test_truncated_elements_are_counted() -> None:
    with pytest.raises(DataError) as caught:
        parse_idx(format_idx(np.zeros((3, 28, 28), np.uint8))[:-1], "x.idx")
    assert caught.value.fact == "x.idx: truncated: 2,367 bytes, shape (3, 28, 28) of uint8 needs 2,368."


def test_bytes_after_the_end_are_an_error() -> None:
    with pytest.raises(DataError) as caught:
        parse_idx(format_idx(np.zeros(2, np.uint8)) + b"x", "x.idx")
    assert caught.value.fact == "x.idx: too long: 11 bytes, shape (2,) of uint8 needs 10."


def test_other_formats_are_recognised_by_their_first_bytes() -> None:
    with pytest.raises(DataError) as caught:
        parse_idx(b"\x1f\x8b\x08\x00packed", "x.idx")
    assert caught.value.fact == (
        "x.idx: not an IDX file: it begins with '1f 8b 08 00', "
        "an IDX file with 00 00, then a type code in 08, 09, 0b, 0c, 0d, 0e."
    )


def test_dtype_without_a_type_code_is_named() -> None:
    with pytest.raises(DataError) as caught:
        format_idx(np.zeros(2, np.int64))
    assert caught.value.fact == "format_idx: IDX has no type code for int64."


@pytest.mark.parametrize("shape", [(1,) * 65, (0, 2**31, 2**31, 2**31), (2**32 - 1,) * 4])
def test_shapes_that_no_array_has_are_errors(shape: tuple[int, ...]) -> None:
    header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
    with pytest.raises(DataError, match=rf"^x\.idx: its header has {len(shape)} axes of \("):
        parse_idx(header + b"x", "x.idx")
