"""Users' kernels that would end the process that simulates them, or never end: a sentence says so, or Ctrl-C stops them."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import picograd as pg
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler

HEAD = "__global__ void k(float *out, const float *x) {{\n  int t = threadIdx.x;\n  {}\n}}"


def kernel(body: str, before: str = "", **options: Any) -> Any:
    text = f"{before} {HEAD.format(body)}"
    return pg.kernel(text, output=lambda x: x, **{"grid": 1, "block": lambda x: x.numel(), **options})


def ran(body: str, before: str = "") -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = kernel(body, before)(pg.arange(32).float().to("CUDASIM")).numpy()
    return found


ARRAY, STACK = "an array in local or constant memory.", "needs more than 131072 bytes of stack: a function calls"
STOPPED = {
    "out[t] = (float)(t / (int)x[0]);": "thread 0, k.cu line 3: divides a whole number by 0.",
    "out[t] = (float)(5 % t);": "thread 0, k.cu line 3: divides a whole number by 0.",
    "int a[4]; for (int i = 0; i < 9;) a[i++] = 1;":
    f"thread 0, k.cu line 3: reaches for element 4 of 'int [4]', {ARRAY}",
    "out[t] = table[t];": f"thread 3, k.cu line 3: reaches for element 3 of 'float [3]', {ARRAY}",
    "auto v = table[t]; out[t] = v;": f"thread 3, k.cu line 3: reaches for element 3 of 'float [3]', {ARRAY}",
    "out[t] = deeper(t);": f"thread 0: {STACK}",
    "float a[50000]; a[t] = x[t]; out[t] = a[0];": f"thread 0: {STACK}",
    "((float *)x)[t] = 1.0f; out[t] = x[t];": "thread 0, k.cu line 3: writes x, which is const.",
    "atomicAdd((float *)x, 1.0f); out[t] = x[t];": "thread 0, k.cu line 3: changes x, which is const.",
    "assert(t < 3); out[t] = x[t];": "thread 3, k.cu line 3: the assertion t < 3 does not hold.",
    "if (t == 2) __trap(); out[t] = x[t];": "thread 2, k.cu line 3: comes to __trap().",
    "if (t == 2) exit(3); out[t] = x[t];": "thread 2, k.cu line 3: calls exit(), a function of the host.",
    "if (t == 2) abort(); out[t] = x[t];": "thread 2, k.cu line 3: calls abort(), a function of the host.",
}
BEFORE = "__constant__ float table[3] = {1, 2, 3}; __device__ int deeper(int n) { return deeper(n + 1) + 1; }"


@pytest.mark.parametrize("body", STOPPED)
def test_a_fault_that_would_end_the_process_is_an_error_of_the_kernel(body: str) -> None:
    with pytest.raises(pg.DeviceError) as caught:
        ran(body, BEFORE)
    assert f"CUDASIM: kernel k_32_0, block 0, {STOPPED[body]}" in caught.value.fact
    assert ran("out[t] = x[t];").tolist() == list(range(32)), "the next one runs"


def test_what_is_within_these_bounds_runs() -> None:
    body = "float a[4]; for (int i = 0; i < 4; i++) a[i] = x[i]; out[t] = a[t % 4] + table[t % 3] + f(6) + 7 / (t + 1) * 0;"
    before = f"{BEFORE} __device__ int f(int n) {{ return n <= 1 ? 1 : n * f(n - 1); }}"
    t = np.arange(32)
    assert np.array_equal(ran(body, before), t % 4 + t % 3 + 1 + 720)


def test_an_array_in_shared_memory_has_48_kilobytes() -> None:
    with pytest.raises(pg.CompileError, match=r"k\.cu:3: error: .*a __shared__ array has at most 48 KB"):
        ran("__shared__ float s[12289]; s[t] = x[t]; out[t] = s[t];")
    with pytest.raises(pg.ArgumentError, match=r"k: shared_bytes must be 0 to 232448, got 232449\."):
        kernel("out[t] = x[t];", shared_bytes=232449)(pg.ones(4, device="CUDASIM"))


ENDLESS = ["while (x[0] < 5);", "for (int i = 0; i < 9; i -= x[1] > 0) out[t] = i;", "while (1) __syncthreads();"]


@pytest.mark.parametrize("body", ENDLESS)
def test_a_kernel_without_end_is_given_up_at_an_interrupt(body: str) -> None:
    endless, x = kernel(body), pg.arange(32).float().to("CUDASIM").realize()
    kernel("out[t] = x[t];")(x).realize()  # the simulator is compiled
    endless.prepare(x)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        endless(x).realize()
    assert ran("out[t] = x[t];").tolist() == list(range(32))


# ---- elements on their way: a value is taken where CUDA C takes one ----
TAKEN = {
    "auto v = x[t]; out[t] = v + 1;": lambda x: x + 1,
    "out[t] = 1; const auto v = out[t]; out[t] = 5; out[t] = v;": lambda x: 0 * x + 1,
    "__shared__ float s[32]; s[t] = x[t]; __syncthreads(); if (t == 0) { auto v = s[0]; s[0] = s[1]; s[1] = v; }"
    "__syncthreads(); out[t] = s[t];": lambda x: [x[1], x[0], *x[2:]],
    "out[t] = 1; auto v = out[t], w = out[t]; out[t] = 5; out[t] = v + w;": lambda x: 0 * x + 2,
    "out[t] = 1; auto v = t <= 8 ? out[t] : x[t]; out[t] = 5; out[t] = v;": lambda x: np.where(x <= 8, 1, x),
    "auto p = x + t; out[t] = *p;": lambda x: x,
    "auto f = [&](int i) { return x[i]; }; out[t] = f(t);": lambda x: x,
    "out[t] = __shfl_xor_sync(0xffffffff, x[t], 1);": lambda x: x.reshape(-1, 2)[:, ::-1].reshape(-1),
    "volatile __shared__ float s[32]; s[t] = x[t]; __syncthreads(); out[t] = __shfl_down_sync(~0u, s[t], 1);": lambda x: [
        *x[1:], 31
    ],
}  # fmt: skip


@pytest.mark.parametrize("body", TAKEN)
def test_a_variable_of_an_elements_type_has_its_value(body: str) -> None:
    assert np.array_equal(ran(body), TAKEN[body](np.arange(32)))
