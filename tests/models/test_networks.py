"""Each training of `picograd train` beside PyTorch: output, loss, gradients, and ten steps, from the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from bench import networks
from bench.turns import as_written
from picograd import Tensor
from picograd.errors import ArgumentError, ShapeError
from picograd_programs.models.diffusion import time_features
from picograd_programs.models.pictures import PixelCNN
from picograd_programs.models.wavenet import WaveNet
from picograd_programs.train.program import trainer_of
from tests.little import words_in_place
from tests.models.twins import TWINS, Array, Noting, TorchTraining, program_of

STEPS = 10
SMALL = {  # options of a small training with all its kinds of layers; dropout is drawn beside the loss, so there is none
    "linear": "", "logistic": "", "bigram": "", "sentiment": "--embedding 6 --hidden 5 --batch 16 --dropout 0",
    "names": "--embedding 4 --hidden 6 --batch 16", "bag": "--width 6 --batch 16", "rnn": "--width 6 --layers 2 --batch 16",
    "gru": "--width 6 --layers 2 --batch 16", "lstm": "--width 6 --layers 2 --batch 16",
    "wavenet": "--embedding 6 --width 8 --batch 16", "transformer": "--width 8 --heads 2 --layers 2 --dropout 0 --batch 16",
    "mnist": "--hidden 6 --batch 8", "cnn": "--channels 2 --batch 4",
    "bert": "--width 8 --heads 2 --layers 2 --block 8 --batch 16 --text {text}",
    "gpt": "--width 8 --heads 2 --layers 2 --block 8 --batch 4 --text {text}",
    "diffusion": "--channels 8 --batch 4", "vae": "--hidden 6 --code 3 --batch 4",
    "nano": "--vocabulary 300 --context 64 --batch 2 --steps 20 --text {text}",
}  # fmt: skip


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Little data; returns a file of text."""
    return words_in_place(monkeypatch, tmp_path)


@pytest.mark.req("D5", "D6")
@pytest.mark.parametrize("name", TWINS)
def test_training_follows_pytorch(name: str, text: Path) -> None:
    with program_of(name, *SMALL[name].format(text=text).split()) as program:
        theirs, ours = TorchTraining(program), trainer_of(program, Noting)
        start = weights_of(program.model)
        gradients = first_gradients(ours, theirs)
        largest = max(np.abs(gradient).max() for gradient in gradients.values())
        ours.fit(program.batch, STEPS)
        assert ours.losses == pytest.approx([theirs.step(number) for number in range(STEPS)], rel=1e-5)
        for of, found in weights_of(program.model).items():
            # Adam moves a weight as far where its gradient is rounding alone, as that of a bias of keys.
            is_moved = np.abs(gradients[of]) > 1e-5 * largest
            most = np.abs(found - start[of]).max()
            np.testing.assert_allclose(found[is_moved], theirs.weight(of)[is_moved], rtol=0, atol=2e-3 * most, err_msg=of)


def weights_of(model: Any) -> dict[str, Array]:
    return {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}


def first_gradients(ours: Noting, theirs: TorchTraining) -> dict[str, Array]:
    """Compares outputs and gradients of the first batch, and returns PyTorch's gradients."""
    program, outputs = theirs.program, (list[Any](), list[Any]())
    hooks = [
        network.register_forward_hook(lambda network, inputs, output, seen=seen: seen.append(output))
        for network, seen in zip((program.model, theirs.network), outputs)
    ]
    theirs.loss(0).backward()
    found = ours.gradients([Tensor(part) for part in program.batch(0)])
    for hook in hooks:
        hook.remove()
    for mine, other in zip(*(output if isinstance(output, tuple) else (output,) for (output,) in outputs)):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach(), rtol=1e-4, atol=1e-5)
    expected = {name: parameter.grad.numpy().copy() for name, parameter in theirs.network.named_parameters()}
    largest = max(np.abs(gradient).max() for gradient in expected.values())
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-3, atol=1e-6 * largest, err_msg=name)
    return expected


def test_times_have_features_of_their_own() -> None:
    features = time_features(Tensor([0.0, 0.5, 1.0]), 8).numpy()
    assert features.shape == (3, 8) and len({tuple(row) for row in features.round(4)}) == 3


def test_pixels_of_another_picture_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"PixelCNN: pixels must be \(B, 784\), got \(2, 100\)."):
        PixelCNN()(Tensor.zeros(2, 100))


def test_a_tree_needs_a_power_of_two() -> None:
    with pytest.raises(ArgumentError, match="context must be a power of two, got 6") as caught:
        WaveNet(context=6)
    assert caught.value.hint == "--context 4"


def test_a_training_is_timed_and_compared_with_pytorchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words_in_place(monkeypatch, tmp_path)
    assert max(networks.distances("names", double=False).values()) < 1e-3
    assert max(networks.distances("names", double=True).values()) < 1e-11
    ours, theirs = networks.make_step("names", pg, pg.jit), networks.make_step("names", torch, as_written)
    assert ours() == pytest.approx(theirs(), rel=1e-6) and ours() == pytest.approx(theirs(), rel=1e-6)
    networks.opened.close()
