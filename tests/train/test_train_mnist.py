"""`picograd train mnist`, on a few made-up digits and on the real ones."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import ArgumentError, DataError
from picograd_programs.data.mnist import Mnist
from picograd_programs.train import mnist
from picograd_programs.train.checkpoint import load_checkpoint
from picograd_programs.train.mnist import MnistConfig, batch_rows, train_mnist


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> Mnist:
    """300 images of ten patterns with noise, in the place of MNIST."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (10, 28, 28)) * 200
    labels = rng.integers(0, 10, 300).astype(np.uint8)
    images = (patterns[labels] + rng.integers(0, 56, (300, 28, 28))).astype(np.uint8)
    data = Mnist(images[:200], labels[:200], images[200:], labels[200:])
    monkeypatch.setattr(mnist, "load_mnist", lambda: data)
    return data


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., MnistConfig]:
    """Settings of a short run that writes into a folder of its own."""

    def make(**changes: object) -> MnistConfig:
        out, picture = tmp_path / "runs" / "a.safetensors", tmp_path / "runs" / "a.png"
        settings = {"hidden": 16, "epochs": 2, "batch": 32, "lr": 0.01, "out": out, "picture": picture}
        return MnistConfig(**{**settings, **changes})  # type: ignore[arg-type]

    return make


def press_ctrl_c_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(seed: int, number: int, num_items: int, batch: int) -> np.ndarray:
        if number == step:
            signal.raise_signal(signal.SIGINT)
        return batch_rows(seed, number, num_items, batch)

    monkeypatch.setattr(mnist, "batch_rows", rows)


def test_run_leaves_checkpoint_and_picture_and_says_so(
    digits: Mnist, config: Callable[..., MnistConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config(epochs=5)
    assert train_mnist(settings) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "mnist: 200 images, 12,730 parameters"
    assert re.search(r"^trained 30 of 30 steps in \d+\.\d s; checkpoint: .*a\.safetensors$", said.out, re.M)
    accuracy = re.search(r"^test accuracy: (\d+\.\d\d)%; picture: .*a\.png$", said.out, re.M)
    assert accuracy is not None
    # Ten patterns that differ in half of their pixels; 30 steps are plenty.
    assert float(accuracy[1]) > 95
    assert re.search(r"mnist  30/30  loss \d\.\d{4}  accuracy \d\.\d{4}  [\d,]+ images/s", said.err)
    assert settings.picture.read_bytes()[:4] == b"\x89PNG"
    assert load_checkpoint(settings.out, "mnist").step == 30


@pytest.mark.parametrize("stop_at", [0, 4, 6])
def test_run_resumed_after_ctrl_c_ends_as_an_unbroken_one(
    digits: Mnist,
    config: Callable[..., MnistConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stop_at: int,
) -> None:
    unbroken = config(out=tmp_path / "unbroken")
    train_mnist(unbroken)
    settings = config()
    with monkeypatch.context() as patch:
        press_ctrl_c_at(stop_at, patch)
        assert train_mnist(settings) == 130
    said = capsys.readouterr().out
    assert f"trained {stop_at + 1} of 12 steps" in said
    assert said.splitlines()[-1] == (
        f"go on with: picograd train mnist --hidden 16 --epochs 2 --batch 32 --lr 0.01 --out {settings.out} "
        f"--picture {settings.picture} --resume {settings.out}"
    )
    assert load_checkpoint(settings.out, "mnist").step == stop_at + 1
    assert train_mnist(config(resume=settings.out)) == 0
    expected, actual = load_checkpoint(unbroken.out, "mnist"), load_checkpoint(settings.out, "mnist")
    for part, other in ((expected.model, actual.model), (expected.optimizer, actual.optimizer)):
        assert part.keys() == other.keys()
        for name in part:
            assert part[name].tobytes() == other[name].tobytes(), name


def test_same_seed_gives_the_same_weights_and_another_seed_others(
    digits: Mnist, config: Callable[..., MnistConfig]
) -> None:
    weights = []
    for seed in (0, 0, 1):
        settings = config(seed=seed)
        train_mnist(settings)
        weights.append(b"".join(array.tobytes() for array in load_checkpoint(settings.out, "mnist").model.values()))
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(("change", "hint"), [({"seed": 1}, "--seed 0"), ({"batch": 50}, "--batch 32")])
def test_resuming_with_other_batches_is_refused(
    digits: Mnist, config: Callable[..., MnistConfig], change: dict[str, int], hint: str
) -> None:
    settings = config()
    train_mnist(settings)
    with pytest.raises(DataError, match="the next batch would not be the one an unbroken run sees") as caught:
        train_mnist(config(resume=settings.out, **change))
    assert caught.value.hint == hint


def test_resuming_with_another_width_is_refused(digits: Mnist, config: Callable[..., MnistConfig]) -> None:
    settings = config()
    train_mnist(settings)
    before = settings.out.read_bytes()
    with pytest.raises(DataError, match=r"hidden\.bias is \(16,\), this run needs \(8,\)"):
        train_mnist(config(resume=settings.out, hidden=8))
    assert settings.out.read_bytes() == before


def test_place_that_cannot_be_written_is_found_before_training(
    config: Callable[..., MnistConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> Mnist:
        raise AssertionError("the data were loaded")

    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(mnist, "load_mnist", never)
    with pytest.raises(DataError, match="cannot be written"):
        train_mnist(config(out=tmp_path / "file" / "a"))


def test_batch_larger_than_the_data_is_refused(digits: Mnist, config: Callable[..., MnistConfig]) -> None:
    with pytest.raises(ArgumentError, match="--batch: got 201, it must be 1 to 200."):
        train_mnist(config(batch=201))


def test_each_epoch_has_every_whole_batch_once_in_an_order_of_its_own() -> None:
    epochs = [[row for step in range(6) for row in batch_rows(3, epoch * 6 + step, 20, 3)] for epoch in range(2)]
    for rows in epochs:
        assert len(set(rows)) == 18
        assert set(rows) <= set(range(20))
    assert epochs[0] != epochs[1]


@pytest.mark.variants(first=1)
@pytest.mark.req("B8")
def test_mnist_reaches_98_percent(
    published_mnist: Mnist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mnist, "load_mnist", lambda: published_mnist)
    assert train_mnist(MnistConfig(out=tmp_path / "a", picture=tmp_path / "a.png")) == 0
    accuracy = re.search(r"^test accuracy: (\d+\.\d\d)%", capsys.readouterr().out, re.M)
    assert accuracy is not None
    assert float(accuracy[1]) >= 98
