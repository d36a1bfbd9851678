"""Values that a function has no meaning for: a call is refused here where PyTorch refuses it, and only there."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.errors import PicogradError
from picograd.ir.checks import MAY_FAIL
from picograd.ir.op import toposort

HERE = os.path.basename(__file__)
DIVISIONS = (
    "{a} // {b}", "{a} % {b}", "m.fmod({a}, {b})", "m.floor_divide({a}, {b})", "m.remainder({a}, {b})",
    "m.div({a}, {b}, rounding_mode='trunc')", "m.div({a}, {b}, rounding_mode='floor')", "{a}.floor_divide_({b})",
    "{a}.remainder_({b})", "{a}.fmod_({b})",
)  # fmt: skip
DIVISORS = ("0", "2", "False", "m.tensor([1, 0])", "m.tensor([1, 2])", "m.tensor(0)", "0.0", "m.tensor([0.0, 1.0])", "256")
CALLS = [
    *(call.format(a=a, b=b) for call in DIVISIONS for b in DIVISORS
      for a in ("m.tensor([3, 4], dtype=m.int32)", "m.tensor([3, 4], dtype=m.uint8)") if "_(" not in call or "." not in b),
    *("5 // m.tensor([0, 1])", "5 % m.tensor([0, 1])", "m.remainder(5, m.tensor([0]))", "5 // m.tensor([1])"),
    *("m.tensor([], dtype=m.int64) // 0", "m.tensor([True]) // True", "m.tensor([True]) % m.tensor([True])"),
    *(f"m.normal({a})" for a in (
        "m.zeros(2), m.tensor([1.0, -1.0])", "0.5, m.tensor([-1.0])", "m.zeros(2), -1.0", "0.0, -1.0, (2,)",
        "m.zeros(2), m.tensor([1.0, 0.0])", "m.zeros(2), 0.0")),
    *(f"m.poisson(m.tensor([1.0, {a}]))" for a in (-1.0, 0.0, 2.0)),
    *(f"F.binary_cross_entropy(m.tensor([0.2]), m.tensor([{a}]))" for a in ("3.0", "-0.1", "1.0", "0.5", "float('nan')")),
    *(f"F.binary_cross_entropy(m.tensor([{a}]), m.tensor([1.0]))" for a in ("3.0", "-0.1", "1.0", "float('nan')")),
    *(f"F.gaussian_nll_loss(m.ones(2), m.ones(2), {a})" for a in ("m.tensor([1.0, -1.0])", "-1.0", "m.zeros(2)", "1.0")),
    *(f"F.multilabel_margin_loss(m.ones(1, 3), m.tensor([{a}]))" for a in (
        [-2, 0, 0], [-1, 0, 0], [0, -1, -2], [0, -1, 3], [3, -1, 0], [0, 1, 2], [2, -1, 2])),
    *(f"m.segment_reduce(m.ones(4), 'sum', lengths=m.tensor({a}))" for a in ([1, 2], [1, 3], [1, 4], [-1, 5], [4, 0])),
    *(f"m.segment_reduce(m.ones(4), 'sum', offsets=m.tensor({a}))" for a in ([0, 3, 2, 4], [0, 3, 4], [0, 0, 4])),
    *(f"m.repeat_interleave(m.arange(3), m.tensor({a}), output_size=4)" for a in (
        [1, 1, 2], [1, 1, 1], [2, 1, 2], [4, 0, 0])),
    *(f"m.repeat_interleave(m.arange(3), m.tensor({a}))" for a in ([1, -1, 2], [1, 0, 2])),
    *(f"m.{f}(m.tensor([1.0, {a}]), 3)" for f in ("histc", "histogram")
      for a in ("float('nan')", "float('inf')", "-float('inf')", "2.0", "1.0")),
    *("m.histc(m.tensor([1.0, float('nan')]), 3, 0, 2)", "m.histogram(m.tensor([1.0, float('inf')]), 3, range=(0.0, 2.0))"),
    *(f"m.cholesky_inverse(m.tensor({a}))" for a in ([[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 2.0]])),
]  # fmt: skip


def is_refused(call: str, library: ModuleType, errors: Any) -> bool:
    """Returns whether a call, or what its results are, is an error."""
    named = {"m": library, "F": library.nn.functional}
    try:
        results = eval(call, named)
        for result in results if isinstance(results, tuple) else (results,):
            result.tolist()
    except errors:
        return True
    return False


def test_what_pytorch_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    theirs = (RuntimeError, ValueError, TypeError)
    assert not [call for call in CALLS if is_refused(call, pg, PicogradError) != is_refused(call, torch, theirs)]


DIVIDED = [(Tensor.floor_divide, [3, 2]), (Tensor.remainder, [1, 2]), (Tensor.fmod, [1, 2])]


@pytest.mark.parametrize(("divide", "expected"), DIVIDED)
def test_a_jitted_division_by_0_is_an_error_with_its_line(divide: Callable[..., Tensor], expected: list[int]) -> None:
    jitted = pg.jit(lambda x, y: divide(x, y))
    x = Tensor([7, 8])
    assert [jitted(x, Tensor([2, 3])).tolist() for _ in range(3)] == [expected] * 3
    with pytest.raises(pg.ArgumentError, match=f"an integer is divided by 0.\n  at {HERE}:"):
        jitted(x, Tensor([2, 0])).tolist()


def test_a_constant_divisor_costs_no_check() -> None:
    assert {op.code for op in toposort([(Tensor([7, 8]) // 3 % 2).op])}.isdisjoint(MAY_FAIL)
