"""The pronouncer against its equations in NumPy, with published and with other weights."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import Tensor
from picograd.errors import ArgumentError, DataError
from picograd_programs import cli
from picograd_programs.models import pronounce
from picograd_programs.models.pronounce import LAST, LETTERS, PADDING, PHONEMES, SOUNDS_MAX, WIDTH, Pronouncer, Speaker


def cell(w: dict[str, np.ndarray], name: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """A GRU cell: r, z = sigmoid(...), n = tanh(W x + b + r (U h + c)), h' = (1 - z) n + z h."""
    inside = w[f"{name}.weight_ih"] @ x + w[f"{name}.bias_ih"]
    before = w[f"{name}.weight_hh"] @ h + w[f"{name}.bias_hh"]
    r, z = (1 / (1 + np.exp(-(inside[part] + before[part]))) for part in (slice(WIDTH), slice(WIDTH, 2 * WIDTH)))
    n = np.tanh(inside[2 * WIDTH :] + r * before[2 * WIDTH :])
    return (1 - z) * n + z * h


def spoken(w: dict[str, np.ndarray], word: str) -> list[str]:
    h = np.zeros(WIDTH)
    for letter in [*(LETTERS.index(letter) for letter in word), LAST]:
        h = cell(w, "reader", w["letters.weight"][letter], h)
    phoneme, sounds = PHONEMES.index("<s>"), []
    for _ in range(SOUNDS_MAX):
        h = cell(w, "writer", w["phonemes.weight"][phoneme], h)
        phoneme = int((w["out.weight"] @ h + w["out.bias"]).argmax())
        if PHONEMES[phoneme] == "</s>":
            break
        sounds.append(PHONEMES[phoneme])
    return sounds


def weights_of(model: Pronouncer) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().astype(np.float64) for name, value in model.state_dict().items()}


def test_the_state_after_a_word_does_not_depend_on_what_fills_it_up() -> None:
    model = Pronouncer()
    w, h = weights_of(model), np.zeros(WIDTH)
    for letter in (5, 9, LAST):
        h = cell(w, "reader", w["letters.weight"][letter], h)
    filled = Tensor([[5, 9, LAST, PADDING, PADDING], [5, 9, 7, 7, LAST]])
    np.testing.assert_allclose(model.read(filled).detach().numpy()[0], h, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    try:
        return Speaker()
    except DataError as error:
        pytest.skip(f"g2p-en is not here: {error.fact.splitlines()[-1]}")


def test_published_weights_speak_as_their_equations_say(speaker: Speaker) -> None:
    words = ["hello", "activationist", "nanochat", "rhythm", "compiler", "tensor", "gradient", "psychology", "queue", "a"]
    found = speaker.pronounce(words)
    assert found == [spoken(weights_of(speaker.model), word) for word in words]
    assert found[0] == ["HH", "EH1", "L", "OW0"]
    # A letter that is not known is read as such.
    assert speaker.pronounce([*words[:-2], "naïve", "HELLO"])[-1] == found[0]


@pytest.mark.parametrize("words", [[], [""], ["a" * 32]])
def test_words_that_cannot_be_read_are_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Untrained(Speaker):
        def __init__(self) -> None:
            pass

    monkeypatch.setattr(pronounce, "Speaker", Untrained)
    if words:
        with pytest.raises(ArgumentError, match="a word has 1 to 31"):
            Untrained().pronounce(words)
    assert cli.main(["pronounce", *words]) == 1
    assert "ArgumentError: pronounce: " in capsys.readouterr().err
