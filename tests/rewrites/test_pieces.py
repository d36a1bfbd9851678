"""Long reductions: taken in pieces, with the same meaning, and with less rounding."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.build import reduce
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.rewrites.contract import _largest_divisor, contract
from tests.same_meaning import check_same_meaning


def param(*shape: int, dtype: DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (0, shape))


def shape_of_pieces(root: Op) -> tuple[object, ...] | None:
    (found,) = contract([root])
    return None if found is root else found.src[0].shape


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((4096, 4096), (0, 1), (512,)),
        ((1 << 20,), (0,), (32,)),
        ((1 << 17,), (0,), (4,)),
        (((1 << 17) - 2,), (0,), None),  # few terms
        ((1000003,), (0,), None),  # a prime: no parts of one length
        ((16, 1 << 17), (1,), (16, 4)),  # of many rows as of one
        ((8, 1 << 17), (1,), (8, 4)),
        ((1 << 17, 8), (0,), (4, 8)),
        ((1 << 17, 16), (0,), None),  # a column for many threads each
        ((3, 8, 1 << 17), (0, 2), (3, 8, 4)),
        ((100, 7, 999, 10), (0, 1, 2, 3), (100,)),
    ],
    ids=str,
)
def test_what_is_taken_in_how_many_pieces(shape: tuple[int, ...], axes: tuple[int, ...], expected: object) -> None:
    assert shape_of_pieces(reduce(param(*shape), OpCode.ADD, axes)) == expected


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("code", [OpCode.ADD, OpCode.MAX, OpCode.MIN])
@pytest.mark.parametrize(("shape", "axes"), [((60, 64), (0, 1)), ((4, 6, 200), (0, 2)), ((512, 2), (0,)), ((4096,), (0,))])
def test_pieces_mean_the_same(
    code: OpCode, shape: tuple[int, ...], axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("picograd.rewrites.contract.PIECED_TERMS_MIN", 512)
    monkeypatch.setattr("picograd.rewrites.contract.PIECE_TERMS", 100)
    root = reduce(param(*shape), code, axes)
    assert shape_of_pieces(root) is not None
    check_same_meaning([root], {root.src[0]: np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)})


def test_the_pieces_of_narrow_floats_are_wide() -> None:
    (found,) = contract([reduce(param(1 << 18, dtype=dtypes.float16), OpCode.ADD, (0,))])
    assert found.code is OpCode.CAST and found.dtype is dtypes.float16
    assert found.src[0].dtype is dtypes.float32


def test_a_sum_of_millions_of_float32_keeps_six_digits() -> None:
    values = np.random.default_rng(0).random(1 << 22, dtype=np.float32) + np.float32(1)
    exact = values.astype(np.float64).sum()
    assert abs(pg.Tensor(values).sum().item() - exact) <= 3e-7 * exact


def test_the_largest_divisor_is_found_by_few_tries() -> None:
    for dim in (1, 2, 97, 360, 1 << 12, 3**9):
        for most in {1, 2, max(dim // 7, 1), max(dim // 2, 1), dim}:
            assert _largest_divisor(dim, most) == max(n for n in range(1, most + 1) if dim % n == 0)
    assert _largest_divisor(1 << 62, (1 << 62) >> 15) == 1 << 47
    assert _largest_divisor(2**61 - 1, 2**46) == 1  # a prime
