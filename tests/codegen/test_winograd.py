"""Results from values at points: exact in fractions, with few multiplications, and as exact as a sum in float32."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.transposes import conv_w, conv_x
from picograd.codegen.convolution_tiles import direct_of, is_direct
from picograd.codegen.winograd import MULTIPLICATIONS_LEFT_MAX, PLAIN, Winograd, linear_combination, winograd_for
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.codegen.test_convolution_cpu import check, conv, param
from tests.codegen.test_convolution_direct import AVX2, Case, operands
from tests.same_meaning import CPU_TARGETS, run_on

ALL = [Winograd(results, taps) for results in range(1, 7) for taps in range(1, 8 - results)]


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_results_are_the_sums_along_windows(scheme: Winograd, rng: np.random.Generator) -> None:
    x, w = ([Fraction(int(i)) for i in rng.integers(-9, 10, n)] for n in (scheme.num_points, scheme.taps))

    def times(matrix: tuple[tuple[Fraction, ...], ...], vector: list[Fraction]) -> list[Fraction]:
        return [sum((a * b for a, b in zip(row, vector)), Fraction(0)) for row in matrix]

    products = [a * b for a, b in zip(times(scheme.input_transform, x), times(scheme.filter_transform, w))]
    results = [total / scheme.divisor for total in times(scheme.output_transform, products)]
    assert results == [sum(x[a + k] * w[k] for k in range(scheme.taps)) for a in range(scheme.outputs)]
    assert len(products) == scheme.outputs + scheme.taps - 1
    matrices = (scheme.input_transform, scheme.filter_transform, scheme.output_transform)
    assert all(c.denominator == 1 for matrix in matrices for row in matrix for c in row), "whole coefficients"


def test_which_is_taken() -> None:
    assert (winograd_for(20, 5), winograd_for(5, 20)) == (Winograd(2, 5), Winograd(5, 2))
    assert (winograd_for(56, 3), winograd_for(3, 56)) == (Winograd(4, 3), Winograd(3, 4))
    assert winograd_for(6, 3) == Winograd(3, 3)
    assert winograd_for(56, 1) == winograd_for(1, 56) == winograd_for(30, 7) == PLAIN
    for results in range(1, 40):
        for taps in range(1, 40):
            scheme = winograd_for(results, taps)
            times = scheme.num_points * -(-results // scheme.outputs) * -(-taps // scheme.taps)
            assert scheme == PLAIN or times <= MULTIPLICATIONS_LEFT_MAX * results * taps
            assert scheme.taps >= taps or scheme.outputs >= results or scheme == PLAIN, "blocks of one of them alone"


def test_a_combination_has_an_operation_a_term() -> None:
    values = [Op(OpCode.VAR, dtypes.float32, (), (f"v{i}", 1)) for i in range(4)]
    total = linear_combination((Fraction(1), Fraction(0), Fraction(-1), Fraction(4)), values, has_fma=True)
    assert (total.code, total.src[0], total.src[1].arg) == (OpCode.FMA, values[3], 4.0)
    assert (total.src[2].code, total.src[2].src) == (OpCode.SUB, (values[0], values[2]))


SHAPES: list[Case] = [
    ((2, 12, 9, 11), (16, 12, 3, 3), {"padding": 1}),
    ((1, 13, 14, 7), (24, 13, 5, 4), {"padding": 2}),  # more results than rows of the last Winograd
    ((2, 24, 8, 9), (32, 12, 2, 3), {"groups": 2}),
    ((1, 12, 9, 40), (16, 12, 3, 3), {}),
    ((2, 12, 5, 4, 6), (16, 12, 3, 2, 2), {"padding": 1}),
    ((3, 60, 9, 9), (72, 60, 3, 3), {"padding": 1}),  # several blocks of K and images
    ((1, 512, 7, 8), (520, 512, 3, 3), {"padding": 1}),  # each iteration packs its own weight
    ((12, 14, 17, 17), (16, 14, 13, 12), {"of_weight": True}),  # several taps together, the last beyond the end
]


@pytest.mark.variants(every=3, first=1)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_whole_numbers_stay_whole(case: Case, rng: np.random.Generator) -> None:
    x, w, out = operands(case)
    assert direct_of(out, AVX2).scheme != PLAIN
    check(rng, out, x, w)
    grad = param(2, *out.shape)
    check(rng, conv_x(grad, out), w, grad)
    check(rng, conv_w(grad, out), x, grad)


@pytest.mark.variants(every=2)
@pytest.mark.parametrize(
    ("case", "scheme"),
    [
        (((1, 12, 6, 12), (16, 12, 3, 1), {}), Winograd(4, 3)),
        (((12, 1, 18, 8), (16, 1, 16, 8), {"of_weight": True}), Winograd(3, 4)),
    ],
    ids=str,
)
def test_programs_on_each_width_of_vectors(case: Case, scheme: Winograd, rng: np.random.Generator) -> None:
    """All taps together, and some of them."""
    x, w, out = operands(case)
    assert [direct_of(out, target).scheme for target in CPU_TARGETS] == [scheme] * 3
    check(rng, out, x, w, targets=CPU_TARGETS)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_nothing_is_guarded(case: Case) -> None:
    _, _, out = operands(case)
    grad = param(2, *out.shape)
    for root in (out, conv_x(grad, out), conv_w(grad, out)):
        for item in create_schedule([root]).kernel_items():
            assert [lower(item.kernel, target).num_guards for target in CPU_TARGETS] == [0, 0, 0]


@pytest.mark.parametrize("taps", [3, 5])
def test_float32_is_as_exact_as_the_sum(taps: int, rng: np.random.Generator) -> None:
    """The bound for a sum of n products is n roundings of sum |x| |w|; of blocks of sums, as here, far fewer are seen."""
    x, w = param(0, 2, 32, 20, 20), param(1, 32, 32, taps, taps)
    out = conv(x, w)
    assert direct_of(out, AVX2).scheme != PLAIN
    arrays = {p: rng.standard_normal(p.shape).astype(np.float32) for p in (x, w)}
    (found,) = run_on("CPU", [out], arrays, {})
    exact = windows_times(arrays[x].astype(np.float64), arrays[w].astype(np.float64))
    size = windows_times(abs(arrays[x].astype(np.float64)), abs(arrays[w].astype(np.float64)))
    roundings = abs(found - exact) / size * 2.0**24
    assert roundings.max() < 16 < prod(w.shape[1:]), "measured: 4 to 8"


def test_rows_that_are_not_read_together_do_not_touch_each_other(rng: np.random.Generator) -> None:
    """inf spoils the results that stand together and read it, no others, and no other image or bit."""
    x, w = param(0, 2, 16, 14, 9), param(1, 32, 16, 3, 3)
    out = conv(x, w)
    scheme = direct_of(out, AVX2).scheme
    assert scheme == Winograd(4, 3)
    arrays = {p: rng.standard_normal(p.shape).astype(np.float32) for p in (x, w)}
    (sound,) = run_on("CPU", [out], arrays, {})
    arrays[x][0, 3, 9, 4] = np.inf  # of rows 8 to 13, which results 8 to 11 read, and of 4 to 9, which 4 to 7 read
    (found,) = run_on("CPU", [out], arrays, {})
    assert not np.isfinite(found[0, :, 7:10, 2:5]).any()
    touched = np.zeros_like(found, bool)
    touched[0, :, 4:12, 2:5] = True
    np.testing.assert_array_equal(found[~touched], sound[~touched])


def test_plain_sums_leave_every_result_its_own_products(rng: np.random.Generator) -> None:
    x, w = param(0, 2, 16, 14, 9), param(1, 32, 16, 3, 3)
    assert direct_of(conv(x, w), replace(AVX2, plain_sums=True)).scheme == PLAIN != direct_of(conv(x, w), AVX2).scheme


def test_the_batch_decides_nothing_for_an_image() -> None:
    """7x7 over 4 rows has fewer results than taps, and so have all the images a kernel is larger than."""
    for batch in (1, 40):
        x, w = param(0, batch, 16, 4, 12), param(1, 16, 16, 7, 7)
        assert direct_of(conv(x, w, padding=3), AVX2).scheme == PLAIN
        x, w = param(0, batch, 16, 14, 12), param(1, 16, 16, 3, 3)
        assert direct_of(conv(x, w), AVX2).scheme == Winograd(4, 3)


def test_a_wide_row_is_cut_by_output_channels(rng: np.random.Generator) -> None:
    """A row of 1024 for several panels of channels would not fit a stack."""
    x, w = param(0, 1, 12, 6, 1024), param(1, 64, 12, 3, 3)
    out = conv(x, w)
    direct = direct_of(out, AVX2)
    assert is_direct(out, AVX2) and direct.scheme != PLAIN and direct.unit_panels < direct.num_panels
    check(rng, out, x, w)


def windows_times(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Returns the convolution by its definition."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, w, optimize=True)
