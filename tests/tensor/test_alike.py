"""Functions that every device computes to the same bit: what they are made of, and how far off they are."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from picograd import Tensor, dtypes
from picograd.autodiff.gradient import written_out
from picograd.ir.op import toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.nn.init import trunc_normal_
from picograd.tensor.random import exp_alike, exponential_op, gumbel_op, log_alike, normal_quantile, part_of

WIDE = [dtypes.float32, dtypes.float64]
ROUNDED = {
    OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.DIV, OpCode.SQRT, OpCode.FLOOR, OpCode.MAX, OpCode.MIN,
    OpCode.NEG, OpCode.CAST, OpCode.BITCAST, OpCode.CONST,
}  # fmt: skip
FILLS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x.normal_(),
    "log-normal": lambda x: x.log_normal_(),
    "exponential": lambda x: x.exponential_(),
    "geometric": lambda x: x.geometric_(0.3),
    "Cauchy": lambda x: x.cauchy_(),
    "truncated normal": trunc_normal_,
}


@pytest.mark.req("C1")
@pytest.mark.parametrize("dtype", [*WIDE, dtypes.float16], ids=str)
@pytest.mark.parametrize("name", FILLS)
def test_what_is_drawn_is_made_of_what_is_rounded_in_one_way(name: str, dtype: dtypes.DType) -> None:
    """Nothing that a device computes in its own way, and no FMA, which one without the instruction rounds twice."""
    drawn = FILLS[name](Tensor.zeros(3, dtype=dtype)).op
    ops = [op for op in toposort(written_out([drawn])) if op.dtype.is_float]
    assert len(ops) > 20 and {op.code for op in ops} <= ROUNDED | MOVEMENT


@pytest.mark.req("C1")
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_logarithm_that_is_alike(device: str, dtype: dtypes.DType, rng: np.random.Generator) -> None:
    x = np.concatenate([rng.random(20000), 2.0 ** -rng.random(2000), 2.0 ** -np.arange(33), [0.5**0.5, 1 - 2.0**-24]])
    x = (1 - x).clip(2.0**-32).astype(dtype.numpy)
    found, expected = Tensor.from_op(log_alike(Tensor(x).op)).numpy(), np.log(x.astype(np.longdouble))
    assert np.all(np.abs(found - expected) <= 3 * np.spacing(np.abs(expected).astype(dtype.numpy)))


@pytest.mark.req("C1")
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_exponential_that_is_alike(device: str, dtype: dtypes.DType, rng: np.random.Generator) -> None:
    """To 2 ulp, of subnormal results too; 0 and infinity beyond the range."""
    end = 103.0 if dtype is dtypes.float32 else 745.0
    x = np.concatenate([rng.uniform(-end, 88, 20000), rng.uniform(-2, 2, 2000), [0.0, 1.0, -1e-30]]).astype(dtype.numpy)
    found, expected = Tensor.from_op(exp_alike(Tensor(x).op)).numpy(), np.exp(x.astype(np.longdouble))
    assert np.all(np.abs(found - expected) <= 2 * np.spacing(expected.astype(dtype.numpy)))
    ends = Tensor([-1e4, -math.inf, 1e4, math.inf, math.nan], dtype=dtype)
    np.testing.assert_array_equal(Tensor.from_op(exp_alike(ends.op)).numpy(), [0, 0, math.inf, math.inf, math.nan])


@pytest.mark.req("C1")
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_quantile_of_the_normal_distribution(device: str, dtype: dtypes.DType, rng: np.random.Generator) -> None:
    """The part of the distribution below x is p: in the middle by erf, in the lower half by erfc, which has its digits."""
    few = 2.0 ** -rng.uniform(1, 50, 5000)
    p = np.concatenate([rng.random(10000), few, 1 - few, 0.5 + few / 8, [0.25, 0.5]]).astype(dtype.numpy)
    x = Tensor.from_op(normal_quantile(Tensor(p).op)).numpy().astype(np.float64)
    assert np.all((x < 0) == (p < 0.5)) and np.all(x[p == 0.5] == 0)
    p = p.astype(np.float64)
    middle = np.abs(p - 0.5) < 0.25
    near, tail = 2 * p - 1, np.minimum(p, 1 - p)
    off = np.where(middle, np.vectorize(math.erf)(x / math.sqrt(2)) - near, 0)
    off += np.where(middle, 0, np.vectorize(math.erfc)(np.abs(x) / math.sqrt(2)) - 2 * tail)
    slope = math.sqrt(2 / math.pi) * np.exp(-x * x / 2)
    ulps = np.abs(off / slope) / np.spacing(np.abs(x).astype(dtype.numpy))
    assert ulps[(tail > 0) & (p != 0.5)].max() < 6  # 4, and erf and erfc of float64 are off, too
    ends = Tensor.from_op(normal_quantile(Tensor([0.0, 1.0], dtype=dtype).op)).numpy()
    assert ends[0] == -ends[1] and -40 < ends[0] < -12


@pytest.mark.req("C1")
@pytest.mark.parametrize("count", [1, 7, 2**32 - 1, 2**32, 3 * 2**40, 2**62, 2**63 - 1])
def test_a_part_of_a_count(device: str, count: int, rng: np.random.Generator) -> None:
    bits = np.concatenate([rng.integers(0, 2**64, 2000, np.uint64), np.array([0, 2**64 - 1, 2**32 - 1, 2**32], np.uint64)])
    exact = [count * int(one) >> 64 for one in bits]
    counts = Tensor(np.full(len(bits), count, np.uint64))
    for part in (part_of(count, Tensor(bits).op), part_of(counts.op, Tensor(bits).op)):
        found = [int(one) for one in Tensor.from_op(part).numpy()]
        assert all(0 <= one < count and 0 <= whole - one <= 2 for one, whole in zip(found, exact))


@pytest.mark.req("C1")
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_what_is_exponential_is_above_0_and_gumbels_are_finite(device: str, dtype: dtypes.DType) -> None:
    bits = Tensor(np.array([0, 1, 2**63, 2**64 - 1], np.uint64)).op
    drawn = Tensor.from_op(exponential_op(bits, dtype)).numpy()
    assert drawn[0] == 2.0 ** -(dtype.precision + 1) and drawn[2] == pytest.approx(math.log(2))
    assert drawn[3] == pytest.approx(dtype.precision * math.log(2))
    assert np.isfinite(Tensor.from_op(gumbel_op(bits, dtype)).numpy()).all()
