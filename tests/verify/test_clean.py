"""Right programs raise no alarm: trainings of every kind of layer and optimizer, and the examples."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.engine.devices import why_not
from picograd.nn import functional as F  # noqa: N812

ROOT = Path(__file__).resolve().parents[2]


def train(model: Any, optimizer: Any, loss_of: Callable[[], Tensor], steps: int = 3, jit: bool = False) -> None:
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    run = pg.jit(step) if jit else step
    for _ in range(steps):
        run().item()


def classes(count: int, *shape: int) -> Tensor:
    return pg.randint(0, count, shape)


def mlp() -> None:
    model = nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 5))
    x, y = pg.randn(33, 20), classes(5, 33)
    train(model, pg.optim.AdamW(model.parameters(), lr=0.01), lambda: F.cross_entropy(model(x), y), jit=True)


def convolutions() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 5), nn.SiLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    x, y = pg.randn(6, 1, 16, 16), classes(4, 6)
    train(model, pg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), lambda: F.cross_entropy(model(x), y))


def transposed_convolutions() -> None:
    model = nn.Sequential(nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1), nn.Tanh(), nn.Upsample(scale_factor=2))
    x = pg.randn(2, 3, 5, 5)
    train(model, pg.optim.RMSprop(model.parameters()), lambda: (model(x) ** 2).mean())


def recurrent() -> None:
    model, head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)
    x, y = pg.randn(4, 7, 6), classes(3, 4)
    train(
        None, pg.optim.Adam([*model.parameters(), *head.parameters()]), lambda: F.cross_entropy(head(model(x)[0][:, -1]), y)
    )


def gated() -> None:
    model = nn.GRU(5, 6)
    x = pg.randn(7, 3, 5)
    train(model, pg.optim.Adagrad(model.parameters()), lambda: model(x)[0].abs().mean())


def transformer() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    words, head = nn.Embedding(30, 16), nn.Linear(16, 30)
    x = classes(30, 3, 12)
    parameters = [*layer.parameters(), *words.parameters(), *head.parameters()]

    def loss() -> Tensor:
        return F.cross_entropy(head(layer(words(x)))[:, :-1].reshape(-1, 30), x[:, 1:].reshape(-1))

    train(None, pg.optim.AdamW(parameters), loss, jit=True)


def attention() -> None:
    q = pg.randn(2, 4, 24, 8, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sin().sum().backward()
    assert q.grad is not None
    q.grad.realize()


def narrow_floats() -> None:
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8)).to(pg.bfloat16)
    x = pg.randn(9, 16).to(pg.bfloat16)
    train(model, pg.optim.SGD(model.parameters(), lr=0.1), lambda: model(x).softmax(-1).float().pow(2).sum())
    pg.zeros(3, dtype=pg.float16).index_add(0, classes(3, 90), pg.randn(90).half()).tolist()


def autocast() -> None:
    model = nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.Linear(24, 8))
    x = pg.randn(9, 16)

    def loss() -> Tensor:
        with pg.autocast("cpu", dtype=pg.bfloat16):
            return model(x).logsumexp(-1).mean()

    train(model, pg.optim.Adam(model.parameters()), loss)


def doubles() -> None:
    x = pg.randn(12, 12, dtype=pg.float64, requires_grad=True)
    (pg.linalg.solve(x @ x.T + 5 * pg.eye(12, dtype=pg.float64), x).tanh().sum()).backward()
    assert x.grad is not None
    x.grad.realize()


def sorting() -> None:
    x = pg.randn(6, 40, requires_grad=True)
    values, places = x.sort(-1)
    loss = values.cumsum(-1)[:, ::3].sum() + x.topk(5).values.logsumexp(-1).sum() + (places % 7).float().sum()
    loss.backward()
    assert x.grad is not None
    x.grad.realize()


def indexing() -> None:
    table = pg.randn(20, 5, requires_grad=True)
    rows = pg.tensor([3, 3, 0, 19])
    out = pg.zeros(4, 5).index_add(0, pg.tensor([1, 1, 2, 0]), table[rows])
    (out.flip(0) * pg.where(out > 0, 2.0, 0.5)).sum().backward()
    table.data[2:4] = 7.0
    table.sum().item()


def resampled() -> None:
    """Places that are rounded products, and what is read, added and counted there."""
    image = pg.randn(1, 2, 5, 6, requires_grad=True)
    larger = F.interpolate(F.pad(image, (2, 1, 1, 2), mode="reflect"), size=(13, 11), mode="bilinear")
    F.grid_sample(larger, pg.rand(1, 4, 3, 2) * 2 - 1, align_corners=False).square().sum().backward()
    assert image.grad is not None
    image.grad.realize()
    pg.histc(larger.detach(), 7, -2.0, 2.0).tolist()


def bounded_away() -> None:
    """Huge numbers in the place of scores, conditions on all, ranks asked for by 0 and 1, a symmetric matrix."""
    x = pg.randn(4, 4, requires_grad=True)
    lowest = pg.where(pg.tensor([True, False, True, True]), x, -1e30).logsumexp(1)
    values = pg.linalg.eigvalsh(x @ x.T)
    (lowest.sum() + values.sum() + x.quantile(pg.tensor([0.0, 0.3, 1.0]), 1).sum()).backward()
    assert x.grad is not None and bool((x.grad == x.grad).all())


def integers() -> None:
    x = pg.arange(60).reshape(6, 10)
    ((x * 7 + 3) % 11 // 2).sum(0).tolist()
    (x.to(pg.uint8) << 1).bitwise_xor(x.to(pg.uint8)).tolist()


def statistics() -> None:
    x = pg.randn(40, 9)
    [x.var(0).tolist(), x.median().item(), x.std(1).tolist(), pg.cov(x.T).tolist(), x.norm(dim=1).tolist(), x.quantile(0.3)]


def recurrence() -> None:
    def body(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        new = (carry * 0.9 + row).tanh()
        return new, new.sum()

    rows = pg.randn(20, 6, requires_grad=True)
    pg.scan(body, pg.zeros(6), rows)[1].sum().backward()
    assert rows.grad is not None
    rows.grad.realize()


def many_steps_in_one_launch() -> None:
    w = nn.Parameter(pg.randn(4))
    optimizer = pg.optim.SGD([w], lr=0.1)

    @pg.jit(steps=5)
    def steps(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((w - x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    steps(pg.randn(5, 4)).tolist()


def second_order() -> None:
    pg.hessian(lambda x: (x.sin() * x).sum())(pg.randn(5)).tolist()
    pg.vmap(pg.grad(lambda x: (x**3).sum()))(pg.randn(4, 3)).tolist()


def transforms() -> None:
    x = pg.randn(3, 64)
    (pg.fft.rfft(x) * 2.0).sum().item()
    pg.special.i0(x).sum().item() + pg.erfinv(x.tanh()).sum().item() + pg.lgamma(x.abs() + 1).sum().item()


def cached_decoding() -> None:
    cache = pg.zeros(1, 2, 16, 8)

    @pg.jit
    def step(x: Tensor, at: Any) -> Tensor:
        cache[:, :, at : at + 1] = x
        return (cache * cache).sum()

    for i in range(5):
        step(pg.randn(1, 2, 1, 8), pg.Variable("at", 0, 15).bind(i)).item()


def diffusion() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 1, 3, padding=1))
    x = pg.rand(3, 1, 8, 8)

    def loss() -> Tensor:
        noise, level = pg.randn(3, 1, 8, 8), pg.rand(3, 1, 1, 1)
        return F.mse_loss(model(x * (1 - level) + noise * level), noise)

    optimizer = pg.optim.Adam(model.parameters())
    train(model, optimizer, loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


PROGRAMS = [
    mlp, convolutions, transposed_convolutions, recurrent, gated, transformer, attention, narrow_floats, autocast, doubles,
    sorting, indexing, resampled, bounded_away, integers, statistics, recurrence, many_steps_in_one_launch, second_order,
    transforms, cached_decoding, diffusion,
]  # fmt: skip


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_right_program_raises_no_alarm(program: Callable[[], None]) -> None:
    verdict = pg.verify(program)
    assert verdict, verdict
    assert not any("not compared:" in note for note in verdict.notes), verdict
    assert sum(held.runs > 0 for held in verdict.kernels) >= 1


@pytest.mark.variants
@pytest.mark.parametrize("device", ["C", "CUDASIM"])
@pytest.mark.parametrize("program", [mlp, convolutions, attention, narrow_floats, recurrence], ids=lambda p: p.__name__)
def test_nor_does_it_on_other_devices(device: str, program: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    if why_not(device):
        pytest.skip(f"there is no {device} here")
    monkeypatch.setenv("PICOGRAD_DEVICE", device)
    verdict = pg.verify(program)
    assert verdict and verdict.kernels, verdict


@pytest.mark.variants(every=2, first=1)
@pytest.mark.parametrize("name", ["xor", "moons"])
def test_examples_raise_no_alarm(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "picograd", "verify", str(ROOT / "examples" / f"{name}.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "nothing deviates" in done.stderr, done.stderr


def test_numpy_arrays_of_verify_are_not_the_programs() -> None:
    """Inputs of a plan are copied: a write of the program's comes after."""
    x = np.ones(4, np.float32)
    seen = Tensor(x)
    assert pg.verify(lambda: (seen * 2).tolist())
    assert seen.tolist() == [1.0] * 4
