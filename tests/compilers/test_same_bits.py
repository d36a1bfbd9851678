"""The promises of same bits on older processors: AVX2 and SSE, by PICOGRAD_CPU, where the host has them.

Steps in one launch have the bits of the same steps one by one, a row those it has in a batch, and any number of threads
computes the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from picograd import ArgumentError
from picograd.devices import compile_llvm as llvm
from picograd.devices.compile_llvm import GENERATIONS, host_generations, host_target
from tests.forks import imported

PROGRAM = """
import hashlib, sys
import numpy as np, picograd as pg
from picograd import Tensor, nn
from picograd.nn import functional as F

rng = np.random.default_rng(0)
draw = lambda *shape: rng.standard_normal(shape, dtype=np.float32)
digest = hashlib.sha256()

def training(width):
    pg.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, width), nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, 3))
    optimizer = pg.optim.SGD(model.parameters(), lr=0.1)
    def step(x, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels) + F.mse_loss(model(x), x[:, :3])
        loss.backward()
        optimizer.step()
        return loss
    return model, step

for rows, width in ((5, 8), (13, 17)):
    x, labels = draw(3, rows, 6), rng.integers(0, 3, (3, rows))
    model, step = training(width)
    one = pg.jit(step)
    singles = [one(Tensor(a), Tensor(b)).item() for _ in range(2) for a, b in zip(x, labels)]
    other, step = training(width)
    many = pg.jit(step, steps=3)
    together = [value for _ in range(2) for value in many(Tensor(x), Tensor(labels)).tolist()]
    assert singles == together, (rows, width, singles, together)
    for a, b in zip(model.parameters(), other.parameters()):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes(), (rows, width)
        digest.update(a.detach().numpy().tobytes())

weight = Tensor(draw(33, 40))
gradient = pg.grad(lambda x: (F.gelu(x @ weight).softmax(-1) ** 2).sum())
image = Tensor(draw(8, 3, 3, 3))
for function, row in ((gradient, (33,)), (lambda x: F.conv2d(x, image).mean((2, 3)), (3, 9, 9)),
                      (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (1, 20, 8))):
    x = draw(19, *row)
    whole = function(Tensor(x)).numpy()
    for k in (0, 9, 18):
        assert function(Tensor(x[k : k + 1])).numpy().tobytes() == whole[k : k + 1].tobytes(), (row, k)
    digest.update(whole.tobytes())
long = Tensor(draw(200_000))
pg.manual_seed(4)
for dtype in (pg.float32, pg.float16, pg.bfloat16, pg.int16, pg.int8, pg.uint8, pg.bool):  # few lanes of each, and a rest
    few = (pg.randn(9, 7) * 9).to(dtype)
    digest.update(few.to(pg.float32).numpy().tobytes() + pg.rand(5, 3).to(dtype).flip(0).float().numpy().tobytes())
digest.update(np.array([long.sum().item(), long.var().item(), (long @ long).item()], np.float32).tobytes())
print(pg.engine.devices.compiler_for("CPU").device.target.vector_bytes, digest.hexdigest())
"""


def printed(generation: str, threads: int, short_work: int, cache: Path) -> str:
    settings = {"PICOGRAD_CPU": generation, "PICOGRAD_THREADS": str(threads), "PICOGRAD_CACHE": str(cache / str(threads))}
    begin = f"from picograd.devices import compile_llvm\ncompile_llvm.SHORT_WORK = {short_work}"
    done = imported().run(begin + PROGRAM, settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("generation", ["avx2", "native", "avx512", "sse"])
def test_steps_rows_threads_and_haste_have_the_same_bits(generation: str, tmp_path: Path) -> None:
    """One thread, for which all kernels are compiled in haste, beside three, for which none is."""
    if generation not in ["native", *host_generations()]:
        pytest.skip("this processor has no such instructions")
    features = GENERATIONS[generation][1] if generation in GENERATIONS else llvm.host_target().features
    width = llvm.processor_target(host_target().triple, "", features).vector_bytes
    found = {printed(generation, threads, work, tmp_path) for threads, work in ((1, 1 << 60), (3, -1))}
    assert len(found) == 1 and found.pop().startswith(f"{width} ")


def test_a_generation_that_the_host_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_CPU", "avx1024")
    with pytest.raises(ArgumentError, match="PICOGRAD_CPU=avx1024: this is not a processor; the processors are native"):
        host_target.__wrapped__()


def test_a_generation_is_chosen_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for generation in host_generations():
        monkeypatch.setenv("PICOGRAD_CPU", generation.upper())
        assert host_target.__wrapped__().arch == GENERATIONS[generation][0]
