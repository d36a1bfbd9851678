"""The same bits for one, two and four threads, with a cache that is cold, warm or off: a process for each."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def digests() -> dict[str, str]:
    """Returns a digest of the bits of each result; every array is so large that threads share the work."""
    import picograd as pg

    F = pg.nn.functional
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> pg.Tensor:
        return pg.Tensor(rng.standard_normal(shape, dtype=np.float32)).realize()

    wide, tall, long, image = draw(300, 700), draw(5000, 40), draw(1 << 18), draw(4, 8, 30, 30)
    weight, taps, heads = draw(700, 350), draw(16, 8, 3, 3), draw(2, 4, 130, 32)
    rows, row = pg.Tensor(rng.integers(0, 300, 4000)).realize(), draw(700)

    def gradients(function: Callable[..., Any], *inputs: pg.Tensor) -> tuple[pg.Tensor, ...]:
        out, pull = pg.vjp(function, *inputs)
        return tuple(pull(pg.ones_like(out)))

    cases: dict[str, Callable[[], Any]] = {
        "elementwise": lambda: F.gelu(wide * 2.0 + row),
        "transpose": lambda: wide.T.contiguous() * 3.0,
        "sum of all": lambda: long.sum(),
        "sum of columns": lambda: tall.sum(0),
        "variance of columns": lambda: tall.var(0),
        "softmax": lambda: gradients(lambda x: x.softmax(-1), wide),
        "layer norm": lambda: gradients(lambda x, w: F.layer_norm(x, (700,), w), wide, row),
        "product": lambda: wide @ weight,
        "gradients of a product": lambda: gradients(lambda a, b: F.relu(a @ b), wide, weight),
        "convolution": lambda: gradients(lambda x, w: F.conv2d(x, w, padding=1), image, taps),
        "attention": lambda: gradients(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), heads),
        "picked rows": lambda: gradients(lambda x: x[rows], wide),
        "cumulative sum": lambda: tall.cumsum(0),
        "sort": lambda: (wide.sort(-1)[0], long.argsort()),
        "random": lambda: (pg.randn(100_000), pg.zeros(100_000).log_normal_(), pg.zeros(100_000).cauchy_()),
        "truncated": lambda: pg.nn.init.trunc_normal_(pg.zeros(100_000)),
        "classes": lambda: (wide.exp().multinomial(200, True), wide.exp().multinomial(9)),
    }
    pg.manual_seed(0)
    found = {}
    for name, compute in cases.items():
        results = compute()
        arrays = [one.numpy() for one in (results if isinstance(results, tuple) else (results,))]
        found[name] = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return found


def run(num_threads: int, cache: str) -> dict[str, str]:
    """Returns what a fresh process finds."""
    environment = {**os.environ, "PICOGRAD_THREADS": str(num_threads), "PICOGRAD_CACHE": cache, "PICOGRAD_DEVICE": "CPU"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.test_determinism"],
        cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def one_thread(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], str]:
    """What one thread computes with a cold cache, and where that cache is."""
    folder = str(tmp_path_factory.mktemp("cache"))
    return run(1, folder), folder


@pytest.mark.variants(every=3, first=1)
@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_any_number_of_threads_and_a_warm_cache_give_the_same_bits(
    num_threads: int, one_thread: tuple[dict[str, str], str]
) -> None:
    expected, folder = one_thread
    assert run(num_threads, folder) == expected


@pytest.mark.variants(first=1)  # a cold cache and a warm one are compared by default
def test_a_cache_that_is_off_changes_no_bit(one_thread: tuple[dict[str, str], str]) -> None:
    assert run(2, "off") == one_thread[0]


if __name__ == "__main__":
    print(json.dumps(digests()))
