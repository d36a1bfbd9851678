"""Kernels of a user's own: results on each device beside the meaning, what the simulator finds, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd.errors import (
    ArgumentError,
    ArgumentTypeError,
    CompileError,
    DeviceError,
    DTypeError,
    GradientError,
    ShapeError,
    UnsupportedOp,
)
from tests.fake_driver import TENSORS, build, run_on
from tests.host_compilers import needs_compiler
from tests.kernels import sources
from tests.kernels.sources import SAXPY, gelu, rows, saxpy, transpose, twice

pytestmark = needs_compiler

DEVICES = ["CUDASIM", "CPU", "NUMPY"]


@pytest.mark.parametrize("name", DEVICES)
def test_results_are_those_of_the_meaning(name: str) -> None:
    with pg.device(name):
        x = pg.arange(300).float()
        y = pg.ones(600)[::2]  # a view, which is stored first
        assert saxpy(x, y, 2.0).tolist() == [2.0 * i + 1 for i in range(300)]
        assert saxpy(x.reshape(30, 10).T, pg.zeros(10, 30), pg.tensor(3.0)).tolist() == (3 * x.reshape(30, 10).T).tolist()
        a = pg.arange(60).float().reshape(6, 10)
        assert transpose(a).tolist() == a.T.tolist()
        sums, most = rows(a)
        assert sums.tolist() == a.sum(1).tolist() and most.tolist() == [9, 19, 29, 39, 49, 59]
        assert twice(pg.arange(16).float()).tolist() == [2.0 * i for i in range(16)]


def test_a_result_that_nobody_asks_for_is_computed_somewhere() -> None:
    with pg.device("CUDASIM"):
        _, most = rows(pg.arange(60).float().reshape(6, 10))
        assert most.tolist() == [9, 19, 29, 39, 49, 59]


def test_jit_replays_a_kernel_within_its_plan() -> None:
    @pg.jit
    def step(x: pg.Tensor, a: pg.Tensor) -> pg.Tensor:
        return saxpy(x + 1, x * 2, a).sum()

    with pg.device("CUDASIM"):
        for i in range(4):
            x = pg.arange(8).float() + i
            assert step(x, pg.tensor(2.0)).item() == 4 * x.sum().item() + 16


def test_an_empty_grid_of_an_empty_result() -> None:
    with pg.device("CUDASIM"):
        assert saxpy(pg.zeros(0), pg.zeros(0), 1.0).tolist() == []


def ran(text: str, **given: object) -> str:
    """Returns the error of a kernel that is run on eight numbers."""
    options = {"output": lambda x: x, "grid": 1, "block": 8, **given}
    with pg.device("CUDASIM"), pytest.raises(DeviceError) as error:
        pg.kernel(text, **options)(pg.arange(8).float()).tolist()
    return str(error.value)


def test_the_simulator_names_the_line_of_an_access_outside_memory() -> None:
    text = "__global__ void off(float *out, const float *x) {\n  int i = threadIdx.x;\n  out[i] = x[i + 1];\n}"
    assert ran(text).splitlines()[:2] == [
        "CUDASIM: kernel off_8_0, block 0, thread 7, off.cu line 3: reads x[8], which has 8 elements.",
        "     3 |   out[i] = x[i + 1];",
    ]


def test_the_simulator_names_the_line_of_a_race() -> None:
    text = """__global__ void race(float *out, const float *x) {
  __shared__ float s[8];
  s[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = s[7 - threadIdx.x];
}"""
    assert ran(text).splitlines()[:2] == [
        "CUDASIM: kernel race_8_0, block 0, thread 0, race.cu line 4: reads s[7], which this block has not written.",
        "     4 |   out[threadIdx.x] = s[7 - threadIdx.x];",
    ]


def test_the_simulator_names_the_lines_of_a_divergent_barrier() -> None:
    text = """__global__ void apart(float *out, const float *x) {
  out[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 4) __syncthreads();
}"""
    assert "divergent barrier: waits at apart.cu line 3" in ran(text) and "     3 |   if (threadIdx.x < 4)" in ran(text)


def test_a_compiler_shows_the_users_line() -> None:
    wrong = SAXPY.replace("a * x[i]", "a * z[i]")
    made = pg.kernel(wrong, output=lambda x: x, inputs=lambda x: (x, x, 1.0, 8), grid=1)
    with pg.device("CUDASIM"), pytest.raises(CompileError) as error:
        made(pg.arange(8).float()).tolist()
    said = str(error.value)
    assert "saxpy.cu:4: error: " in said and "     4 |   if (i < n) out[i] = a * z[i] + y[i];" in said


def test_a_prepared_kernel_runs_alone() -> None:
    with pg.device("CUDASIM"):
        x = pg.arange(60).float().reshape(6, 10)
        prepared = rows.prepare(x)
        prepared.run(3)
        sums, most = prepared.results()
        assert sums.tolist() == x.sum(1).tolist() and most.tolist() == [9, 19, 29, 39, 49, 59]
        assert prepared.seconds(2) > 0


# ---- files ----
def test_a_file_may_include_headers_of_its_folder_and_of_picograd(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("#pragma once\n#define SCALE 3.0f\n")
    text = """#include "scale.h"
#include "scale.h"
#include "primitives.h"
__global__ void other(float *out) { out[0] = 1.0f; }
__global__ void scaled(Global<float> out, Global<const float> x) {
  SHARED(float, one, 8);
  one[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = shuffle_xor(SCALE * one[threadIdx.x], 1);
  oops;
}
"""
    (tmp_path / "scaled.cu").write_text(text.replace("  oops;\n", ""))
    given = {"output": lambda x: x, "grid": 1, "block": 32, "entry": "scaled"}
    with pg.device("CUDASIM"):
        x = pg.arange(32).float()
        with pytest.raises(DeviceError, match=r"thread 8: writes one\[8\], which has 8 elements"):
            pg.kernel(tmp_path / "scaled.cu", **given)(x).tolist()
        (tmp_path / "scaled.cu").write_text(text.replace("  oops;\n", "").replace("one, 8", "one, 32"))
        assert pg.kernel(str(tmp_path / "scaled.cu"), **given)(x)[:4].tolist() == [3.0, 0.0, 9.0, 6.0]
        reader = "__device__ float at(const float *x) { return x[32]; }\n"
        (tmp_path / "scale.h").write_text(f"#pragma once\n#define SCALE 3.0f\n{reader}")
        (tmp_path / "first.cu").write_text(
            '#include "scale.h"\n__global__ void first(float *out, const float *x) { out[0] = at(x); }\n// a third line\n'
        )
        with pytest.raises(DeviceError, match=r"line 3: reads x\[32\].*\n  scale.h:3 \| __dev.*\n  first.cu:3 \| // a"):
            pg.kernel(tmp_path / "first.cu", output=lambda x: x, grid=1, block=1)(x).tolist()
        (tmp_path / "scaled.cu").write_text(text)
        with pytest.raises(CompileError, match="scaled.cu:9: error: .*oops"):
            pg.kernel(tmp_path / "scaled.cu", **given)(x).tolist()


# ---- gradients ----
@pytest.mark.parametrize("name", DEVICES)
def test_a_gradient_is_made_of_tensors_and_of_kernels(name: str) -> None:
    with pg.device(name):
        x = pg.linspace(-2, 2, 70).detach().requires_grad_()
        (gelu(x) * 3).sum().backward()
        expected = 3 * pg.grad(lambda x: pg.nn.functional.gelu(x).sum())(x)
        assert x.grad is not None and pg.allclose(x.grad, expected, atol=1e-5)
        with pg.no_grad():
            assert not gelu(x).requires_grad
        step = pg.jit(pg.grad(lambda x: gelu(x).sum()))
        for _ in range(3):
            assert pg.allclose(3 * step(x.detach()), x.grad)


def test_a_second_derivative_needs_a_gradient_that_has_one() -> None:
    square = pg.kernel(
        "__global__ void square(float *out, const float *x) { out[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }",
        output=lambda x: x, grid=1, block=lambda x: x.numel(), meaning=lambda x: x * x,
        gradient=lambda grad, x, out: 2 * grad * out / x,
    )  # fmt: skip
    with pg.device("CUDASIM"):
        x = pg.tensor([1.0, 2.0])
        assert pg.grad(lambda x: pg.grad(lambda x: square(x).sum())(x).sum())(x).tolist() == [2.0, 2.0]
        with pytest.raises(GradientError, match="the kernel gelu_grad has no gradient"):
            pg.grad(lambda x: pg.grad(lambda x: gelu(x).sum())(x).sum())(x)
        leaf = x.detach().requires_grad_()  # of one that is gone nobody could read the gradient
        with pytest.raises(GradientError, match="the kernel saxpy has no gradient.*\n.*\n.*gradient="):
            saxpy(leaf, x, 2.0).sum().backward()


# ---- numbers ----
def test_a_number_may_be_a_tensor_or_a_symbolic_integer() -> None:
    first = pg.kernel(
        "__global__ void first(float *out, const float *x, int n) { int i = threadIdx.x; out[i] = i < n ? x[i] : 0.0f; }",
        output=lambda x, n: x, grid=1, block=8, meaning=lambda x, n: np.where(np.arange(8) < n, x, 0),
    )  # fmt: skip
    step, n = pg.jit(lambda x, n: first(x + 0, n)), pg.Variable("n", 1, 8)
    with pg.device("CUDASIM"):
        x = pg.ones(8)
        assert [first(x, n.bind(k)).sum().item() for k in (3, 5)] == [3.0, 5.0]
        assert [step(x, n.bind(k)).sum().item() for k in (3, 5, 6, 7)] == [3.0, 5.0, 6.0, 7.0]
        assert first(x, pg.tensor(4, dtype=pg.int32)).sum().item() == 4.0


# ---- checks ----
COPY = "__global__ void copy(float *out, const float *x) {{  // __shared__ float *s;\n  int i = threadIdx.x;\n  {}\n}}"


@pytest.mark.parametrize(("body", "said"), [
    ("out[i] = x[i];", "agrees"),
    ("out[i] = 2.0f * x[i];", r"out: 7 of 8 elements deviate, first out\[1\]: 2.0, not 1"),
    ("if (i != 3) out[i] = x[i];", r"no thread writes 1 of \d+ elements, first out\[3\]"),
    ("__shared__ int n; if (i == 0) n = 0; __syncthreads(); out[i] = atomicAdd(&n, 1);", "bits when threads run backward"),
])  # fmt: skip
def test_check_says_what_deviates(body: str, said: str) -> None:
    copy = pg.kernel(COPY.format(body), output=lambda x: x, grid=1, block=8, meaning=lambda x: x)
    report = copy.check(pg.arange(8).float())
    assert re.search(said, str(report)) and bool(report) == (said == "agrees")


def test_check_compares_the_gradient_with_slopes() -> None:
    x = pg.linspace(-2, 2, 70)
    assert gelu.check(x) and "gradient of x: right" in str(gelu.check(x))
    wrong = pg.kernel(COPY.format("out[i] = x[i];"), output=lambda x: x, grid=1, block=8, meaning=lambda x: x,
                      gradient=lambda grad, x: 2 * grad)  # fmt: skip
    report = wrong.check(pg.arange(8).float())
    assert not report and "gradient of x: along a random direction the slope is" in str(report)


def test_a_prepared_kernel_counts_what_it_does() -> None:
    counts = twice.prepare(pg.arange(128, device="CUDASIM").float()).counts()
    assert (counts["global_loads"], counts["loaded_sectors"], counts["stored_sectors"]) == (1, 16, 16)
    counts = transpose.prepare(pg.zeros(8, 8, device="CUDASIM")).counts()
    assert counts["barriers"] == 2 and counts["shared_loads"] == 2


# ---- refusals ----
@pytest.mark.parametrize(("given", "error", "said"), [
    ({"output": lambda x: (x, x)}, ArgumentError, "output gives 2 results, and the parameters .* writes are out"),
    ({"output": lambda x: 3}, ArgumentTypeError, "output must give Tensors or pairs"),
    ({"output": lambda x: (x.shape, "float32")}, ArgumentTypeError, "output must give .*, got \\(\\(8,\\), 'float32'\\)"),
    ({"block": True}, ArgumentTypeError, "block must be one to three whole numbers, got True"),
    ({"output": lambda x: (x.shape, pg.int32)}, DTypeError, "out is 'float \\*' in the kernel, output says int32"),
    ({"block": 2000}, ArgumentError, "a block of \\(2000, 1, 1\\) threads"),
    ({"grid": (1, 70000)}, ArgumentError, "a grid of \\(1, 70000, 1\\) blocks"),
    ({"grid": 0}, ArgumentError, "writes nothing"),
    ({"grid": 1.5}, ArgumentTypeError, "grid must be one to three whole numbers"),
    ({"inputs": lambda x: (x, 1)}, ArgumentError, "2 values, and the parameters that are not results are x"),
    ({"inputs": lambda x: (x.int(),)}, DTypeError, "x is 'const float \\*' in the kernel, got int32"),
    ({"inputs": lambda x: (1.0,)}, ArgumentTypeError, "x is memory in the kernel, got float"),
    ({"shared_bytes": 1.5}, ArgumentTypeError, "shared_bytes must be a number of bytes"),
    ({"shared_bytes": -1}, ArgumentError, "shared_bytes must be 0 to 232448, got -1"),
])  # fmt: skip
def test_what_does_not_fit_the_source_is_refused(given: dict[str, Any], error: type[Exception], said: str) -> None:
    options = {"output": lambda x: x, "grid": 1, "block": 8, "meaning": lambda x: x, **given}
    with pytest.raises(error, match=f"^copy: .*{said}"):
        pg.kernel(COPY.format("out[i] = x[i];"), **options)(pg.zeros(8))


@pytest.mark.parametrize(("text", "options", "said"), [
    ("__global__ void copy(float *out, const float *x", {}, "the parameters of copy are not closed by a parenthesis"),
    (COPY, {"entry": ""}, "the source has no kernel '', only copy"),
    (COPY, {"name": "a b"}, "name must be a Python identifier, got 'a b'"),
])  # fmt: skip
def test_a_source_that_names_no_kernel_is_refused(text: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=f"^kernel: {said}"):
        pg.kernel(text, output=lambda x: x, grid=1, **options)


def test_the_line_of_an_open_bracket_is_named() -> None:
    open_kernel = pg.kernel(COPY.format("if (i > 0) { out[i] = x[i];"), output=lambda x: x, grid=1, block=8)
    with pytest.raises(CompileError) as caught:
        open_kernel(pg.zeros(8, device="CUDASIM")).realize()
    assert re.fullmatch(r"the \{ of copy\.cu:\d+ is never closed\.", caught.value.hint or "")


def test_functions_of_a_kernel_may_be_values() -> None:
    x = pg.arange(8).float().to("CUDASIM")
    made = pg.kernel(COPY.format("out[i] = x[i];"), output=((8,), pg.float32), inputs=(x,), grid=1, block=8)
    with pg.device("CUDASIM"):
        assert made().tolist() == list(range(8))


WRONG_MEANINGS = {
    "(2,)": lambda x: x[:2],
    "(1, 8)": lambda x: x[None],
    "(8,), (8,)": lambda x: (x, x),
    "()": lambda x: None,
}


@pytest.mark.parametrize("shapes", WRONG_MEANINGS)
def test_a_meaning_of_other_shapes_is_refused_and_not_compared(shapes: str) -> None:
    wrong = pg.kernel(COPY.format("out[i] = x[i];"), output=lambda x: x, grid=1, block=8, meaning=WRONG_MEANINGS[shapes])
    x = pg.arange(8).float().to("CUDASIM")
    said = f"its meaning gives shapes {shapes}, its output says (8,)."
    with pytest.raises(ShapeError, match=re.escape(f"copy: {said}")):
        wrong.check(x)
    text = str(pg.verify(lambda: wrong(x)))
    assert f"copy_8: not compared: ShapeError: kernel copy: {said}" in text and "right: 0 kernels of 1 plans" in text


def test_a_meaning_may_work_in_the_memory_that_it_is_given() -> None:
    def doubled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        x *= 2
        return x

    twice_in_place = pg.kernel(
        COPY.format("out[i] = 2 * x[i];"), output=lambda x: x, grid=1, block=8, meaning=doubled, gradient=lambda g, x: 2 * g
    )
    assert twice_in_place.check(pg.arange(8).float())


def test_a_launch_is_not_run_in_an_order_or_as_often_as_there_is_none() -> None:
    launch = twice.prepare(pg.arange(128, device="CUDASIM").float())
    with pytest.raises(ArgumentError, match=r"run: order must be one of forward, backward, shuffled, got 'sideways'\."):
        launch.run(order="sideways")
    with pytest.raises(ArgumentError, match=r"seconds: count must be at least 1, got 0\."):
        launch.seconds(0)


def test_a_kernel_without_a_meaning_says_which_devices_take_it() -> None:
    copy = pg.kernel(COPY.format("out[i] = x[i];"), output=lambda x: x, grid=1, block=8)
    with pytest.raises(UnsupportedOp, match="copy: CPU takes no CUDA C; CUDA and CUDASIM do"):
        copy(pg.zeros(8, device="CPU"))


# ---- GPUs ----
@pytest.mark.variants(every=3, first=2)
@pytest.mark.parametrize("made", ["saxpy", "transpose", "rows", "twice", "gelu", "gelu_grad"])
def test_sources_compile_for_a_gpu(made: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    x = pg.zeros(8, 8, device="CUDASIM")
    args = {"saxpy": (x, x, 2.0), "gelu_grad": (x, x)}.get(made, (x,))
    usage = getattr(sources, made).prepare(*args).resources()
    assert usage.registers > 0 and usage.spill_nbytes == 0


def test_a_plan_on_a_gpu_launches_blocks_along_two_axes(tmp_path: Path) -> None:
    build(tmp_path)
    code = TENSORS + """
from tests.kernels.sources import gelu, rows, transpose
step = pg.jit(lambda x: (transpose(x + 1), *rows(x), gelu(x)))
for i in range(3):
    x = (pg.arange(330).float() / 300 + i).reshape(11, 30)
    turned, sums, most, bent = step(x)
    expected = pg.nn.functional.gelu(x)
    print((turned == x.T + 1).all().item(), pg.allclose(sums, x.sum(1)), pg.allclose(bent, expected, atol=1e-5))
"""
    assert run_on(tmp_path, code, PICOGRAD_DEVICE="CUDA").splitlines() == ["True True True"] * 3


def test_verify_holds_a_kernel_against_its_meaning() -> None:
    text = sources.GELU.replace("0.5f * x[i]", "0.6f * x[i]")
    launch = {"grid": gelu.grid, "block": 64, "entry": "gelu"}
    wrong = pg.kernel(text, output=gelu.output, inputs=gelu.inputs, meaning=gelu.meaning, **launch)
    with pg.device("CUDASIM"):
        x = pg.linspace(-2, 2, 70)
        assert pg.verify(lambda: gelu(x + 1).sum().item())
        verdict = pg.verify(lambda: wrong(x + 1).sum().item())
    assert not verdict and "kernel gelu_70 on CUDASIM: " in str(verdict) and "0.6f * x[i]" in str(verdict)
