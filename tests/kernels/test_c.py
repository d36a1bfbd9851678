"""Kernels of a user's own in C: on processors, beside their meaning, and checked on the simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd.devices.c import compile as c
from picograd.errors import ArgumentError, CompileError, DeviceError, UnsupportedOp
from tests.helpers import forgotten
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler
ROOTS = """
#include <math.h>
static float twice(float a) { return 2 * a; }
void roots(float *out, float *most, const float *x, float by, long long n) {
  most[0] = 0;
  for (long long i = 0; i < n; i++) {
    out[i] = twice(by) * sqrtf(x[i]);
    most[0] = fmaxf(most[0], x[i]);
  }
}
"""
roots = pg.kernel(
    ROOTS,
    output=lambda x, by: (x, ((1,), x.dtype)),
    inputs=lambda x, by: (x, by, x.numel()),
    meaning=lambda x, by: (2 * by * np.sqrt(x), x.max(keepdims=True)),
    gradient=lambda grad, of_most, x, by: grad * by / x.sqrt() + of_most * (x == x.max()),
)


@pytest.mark.parametrize("name", ["CPU", "C", "CUDASIM", "NUMPY"])
def test_results_are_those_of_the_meaning(name: str) -> None:
    step, n = pg.jit(lambda x: roots(x + 1, 2.0)[0].sum()), pg.Variable("n", 1, 16)
    with pg.device(name):
        x = pg.arange(16).float()
        for _ in range(3):
            assert step(x).item() == pytest.approx(4 * np.sqrt(np.arange(1, 17)).sum(), rel=1e-5)
        out, most = roots(x, 0.5)
        assert pg.allclose(out, x.sqrt()) and most.tolist() == [15.0]
        assert [roots(x[: n.bind(k)], 0.5)[1].item() for k in (3, 9)] == [2.0, 8.0]
        assert pg.allclose(pg.grad(lambda x: roots(x, 1.0)[0].sum())(x + 1), 1 / (x + 1).sqrt())


def test_it_is_compared_with_its_meaning_and_timed() -> None:
    x = pg.arange(1, 9, device="CPU").float()
    report = roots.check(x, 2.0)
    assert report and "gradient of x: right" in str(report), report
    prepared = roots.prepare(x, 2.0)
    assert prepared.seconds(2) > 0 and prepared.name == "CPU"
    given = {"output": roots.output, "inputs": roots.inputs, "meaning": roots.meaning}
    assert not pg.kernel(ROOTS.replace("2 * a", "a"), **given).check(x, 2.0)


@pytest.mark.parametrize("head", ["float *restrict out, const float x[], int n", "float out[4], int n, const float x[4]"])
def test_parameters_may_be_restricted_or_arrays(head: str) -> None:
    text = f"void twice({head}) {{ for (int i = 0; i < n; i++) out[i] = 2 * x[i]; }}"
    order = (lambda x: (x.numel(), x)) if "int n," in head else (lambda x: (x, x.numel()))
    options, x = {"output": lambda x: x, "inputs": order, "meaning": lambda x: 2 * x}, pg.ones(4, device="CPU")
    made = pg.kernel(text, **options)
    assert made(x).tolist() == [2, 2, 2, 2] and made.check(x)
    with pytest.raises(DeviceError, match=r"twice\.c line 1: reads x\[4\], which has 4 elements"):
        pg.kernel(text.replace("i < n", "i <= n"), **options).check(x)


def test_an_access_outside_memory_names_the_line() -> None:
    off = ROOTS.replace("i < n", "i <= n")
    made = pg.kernel(off, output=roots.output, inputs=roots.inputs, meaning=roots.meaning)
    with pytest.raises(DeviceError, match=r"roots\.c line 7: reads x\[8\], which has 8 elements.*\n +7 \|     out\[i\] ="):
        made.check(pg.ones(8), 2.0)


def test_what_c_does_not_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"output": roots.output, "inputs": roots.inputs}
    (tmp_path / "roots.c").write_text(ROOTS.replace("twice(by)", "thrice"))
    with pg.device("CPU"), pytest.raises(CompileError, match=r"roots\.c:7: error: .*thrice(.|\n)*7 \|     out"):
        pg.kernel(tmp_path / "roots.c", **given)(pg.ones(8), 2.0)[0].tolist()
    with pg.device("CPU"), pytest.raises(CompileError, match=r"f\.c:1: error: implicit declaration of function .*missing"):
        pg.kernel("void f(float *out, const float *x) { out[0] = missing(x[0]); }", lambda x: x)(pg.ones(1)).tolist()
    with pytest.raises(ArgumentError, match="a function in C is called once, and has no grid(.|\n)*loop in the function"):
        pg.kernel(ROOTS, grid=1, **given)
    with pytest.raises(ArgumentError, match="saxpy: a kernel in CUDA C needs a grid"):
        pg.kernel("__global__ void saxpy(float *out) {}", **given)
    with pytest.raises(UnsupportedOp, match=r"NUMPY takes no C; CPU, C and CUDASIM do(.|\n)*x.to\(\"CPU\"\)"):
        pg.kernel(ROOTS, **given)(pg.ones(8, device="NUMPY"), 2.0)
    forgotten()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    c.compiler.cache_clear()
    with pg.device("CPU"), pytest.raises(CompileError, match="CPU: a kernel in C needs a C comp(.|\n)*install gcc"):
        pg.kernel(ROOTS.replace("2 * a", "5 * a"), **given)(pg.ones(8), 2.0)[0].tolist()
    c.compiler.cache_clear()
