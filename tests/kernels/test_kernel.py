"""Kernels of a user's own: results on each device beside the meaning, what the simulator finds, what is refused."""

from __future__ import annotations

import pytest

import picograd as pg
from picograd.errors import CompileError, DeviceError
from tests.kernels.sources import ROWS, SAXPY, rows, saxpy, transpose, twice

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


def test_sources_compile_for_a_gpu() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    assert "__shfl_xor_sync" in ROWS


def test_a_prepared_kernel_runs_alone() -> None:
    with pg.device("CUDASIM"):
        x = pg.arange(60).float().reshape(6, 10)
        prepared = rows.prepare(x)
        prepared.run(3)
        sums, most = prepared.results()
        assert sums.tolist() == x.sum(1).tolist() and most.tolist() == [9, 19, 29, 39, 49, 59]
        assert prepared.seconds(2) > 0
