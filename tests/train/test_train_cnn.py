"""`picograd train cnn`, on a few made-up digits and on the real ones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from picograd_programs.data.mnist import Mnist
from picograd_programs.train import mnist
from picograd_programs.train.checkpoint import load_checkpoint
from picograd_programs.train.mnist import CnnConfig, train_cnn


def test_run_leaves_checkpoint_and_picture_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 128).astype(np.uint8)
    images = np.zeros((128, 28, 28), np.uint8)
    images[:, 4:24, 4:24] = (labels * 200)[:, None, None]  # squares and nothing
    monkeypatch.setattr(mnist, "load_mnist", lambda: Mnist(images[:64], labels[:64], images[64:], labels[64:]))
    out, picture = tmp_path / "a.safetensors", tmp_path / "a.png"
    settings = CnnConfig(channels=2, epochs=4, batch=16, lr=1e-2, out=out, picture=picture)
    assert train_cnn(settings) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "cnn: 64 images, 2,252 parameters"
    assert re.search(r"^trained 16 of 16 steps in ", said, re.M)
    assert re.search(r"^test accuracy: 100\.00%; picture: .*a\.png$", said, re.M)
    assert load_checkpoint(settings.out, "cnn").step == 16


@pytest.mark.variants(first=1)  # a minute; `train mnist` reaches 98 % in seconds
@pytest.mark.req("B8")
def test_mnist_reaches_99_percent(
    published_mnist: Mnist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mnist, "load_mnist", lambda: published_mnist)
    settings = CnnConfig(epochs=2, out=tmp_path / "a", picture=tmp_path / "a.png")  # of three by default
    assert train_cnn(settings) == 0
    accuracy = re.search(r"^test accuracy: (\d+\.\d\d)%", capsys.readouterr().out, re.M)
    assert accuracy is not None
    assert float(accuracy[1]) >= 99
