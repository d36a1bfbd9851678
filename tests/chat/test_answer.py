"""Answers: the draw of a token, and a text read in pieces equal to the same text read anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, DataError
from picograd.tensor.modes import no_grad
from picograd_formats.gguf_file import read_gguf
from picograd_programs.chat.answer import Choice, Network, Plans, Reader, chosen
from picograd_programs.chat.rules import discouraged
from picograd_programs.chat.search import scored
from picograd_programs.models.decoder import Decoder
from picograd_programs.models.decoder_gguf import config_of, tensors_in
from picograd_programs.models.gpt import GPT, GPTConfig
from picograd_programs.nano.network import Nano, NanoConfig
from tests.chat.small_model import write_model
from tests.helpers import same_value

LENGTH = 256  # of most readers, whose kernels are the same then


def shares(logits: list[float], latest: list[int] | None = None, **settings: Any) -> np.ndarray:
    """Returns how often each token is drawn, of 4,000."""
    rng, choice = np.random.default_rng(1), Choice(**{"top_p": 1.0, "repetition": 1.0, "temperature": 1.0, **settings})
    drawn = [chosen(np.array(logits, np.float32), latest or [], choice, rng) for _ in range(4000)]
    return np.bincount(drawn, minlength=len(logits)) / 4000


def test_tokens_are_drawn_with_their_probabilities() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05]).tolist()
    for settings, expected in [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.5}, [1, 0, 0, 0]),
        ({"top_p": 0.6}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.9}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"temperature": 0.5}, np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365),
        ({"temperature": 0.0}, [1, 0, 0, 0]),
        ({"temperature": 1e-9}, [1, 0, 0, 0]),
        ({"temperature": 0.5, "top_k": 3, "top_p": 0.9}, [0.25 / 0.34, 0.09 / 0.34, 0, 0]),
    ]:
        np.testing.assert_allclose(
            shares(logits, **settings), expected, atol=0.03, err_msg=str(settings)
        )  # four deviations


def test_repeated_tokens_become_less_likely_whatever_their_sign() -> None:
    for logits, changed in [([1.2, 1.0], [0.6, 1.0]), ([-1.0, -1.2], [-2.0, -1.2])]:
        weights = np.exp(changed)
        np.testing.assert_allclose(shares(logits, [0, 0], repetition=2.0), weights / weights.sum(), atol=0.03)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_a_data_error(wrong: float) -> None:
    with pytest.raises(DataError, match="not finite: its file is damaged"):
        chosen(np.array([0.0, wrong]), [], Choice(), np.random.default_rng(0))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    file = read_gguf(write_model(tmp_path_factory.mktemp("chat") / "small.gguf"))
    return Decoder(config_of(file), tensors_in(file))


@pytest.mark.req("D9")
@pytest.mark.variants(every=3)
@pytest.mark.parametrize("length", [LENGTH, 150, 40])
def test_a_text_that_is_read_on_is_the_text_read_anew(length: int, model: Decoder, rng: np.random.Generator) -> None:
    tokens, reader = rng.integers(0, 256, 256).tolist(), Reader(Plans(model, length))
    expected = model(Tensor([tokens])).numpy()[0]
    at = 0
    for num in (1, 2, 64, 1, 1, 70, 9, 100):  # single ones, pieces, several pieces, up to the last place
        num = min(num, length - at)
        if num:
            same_value(reader.read(tokens[at : at + num]), expected[at + num - 1], 1e-4, 1e-4)
            at += num
    assert (at, reader.left(), reader.tokens) == (min(length, 248), length - at, tokens[:at])
    assert reader.plans.read_piece.num_captures <= 1 and reader.plans.read_rows.num_captures == 1


def rows_of(model: Network, num: int, tokens: list[list[int]]) -> dict[int, list[np.ndarray]]:
    """Returns the logits after each of the last five tokens of some texts, read in one plan beside texts of others."""
    plans = Plans(model, 64, num)
    for text, each in enumerate(tokens):
        Reader(plans, text).read(each[:-5])
    found: dict[int, list[np.ndarray]] = {text: [] for text in range(len(tokens))}
    for number in range(5):
        texts = range(len(tokens))
        with no_grad():
            rows = plans.next_tokens(
                texts, [each[number - 5] for each in tokens], [len(each) + number - 5 for each in tokens]
            ).numpy()
        for text in texts:
            found[text].append(rows[text])
    return found


def check_rows(model: Network, rng: np.random.Generator) -> None:
    """Checks that texts of several lengths have the same bits each alone as several in one plan."""
    tokens = [rng.integers(0, 257, length).tolist() for length in (40, 7, 64, 19, 33, 6, 50, 11)]
    alone = [rows_of(model, 1, [each])[0] for each in tokens]
    for num in (2, 3, 8):
        for text, rows in rows_of(model, num, tokens[:num]).items():
            for found, expected in zip(rows, alone[text], strict=True):
                np.testing.assert_array_equal(found, expected, f"text {text} of {num}")


def a_gpt() -> GPT:
    pg.manual_seed(0)
    return GPT(GPTConfig(vocabulary=257, block=64, layers=3, heads=4, width=64))


def a_nano() -> Nano:
    pg.manual_seed(0)
    network = Nano(NanoConfig(257, 64, 3, 2, 1))
    for parameter in network.parameters():
        parameter.data = pg.randn(*parameter.shape) * 0.1
    return network


@pytest.mark.parametrize("make", [None, a_gpt, a_nano])
def test_a_text_has_the_same_bits_alone_and_among_others(
    make: Callable[[], Network] | None, model: Decoder, rng: np.random.Generator
) -> None:
    check_rows(make() if make else model, rng)


def test_tokens_that_do_not_fit_are_errors(model: Decoder) -> None:
    reader = Reader(Plans(model, 8))
    for tokens in ([], [1] * 9):
        with pytest.raises(ArgumentError, match=f"takes 1 to 8 more tokens, got {len(tokens)}"):
            reader.read(tokens)
    assert reader.tokens == []


def test_an_answer_ends_at_its_end_at_its_most_tokens_or_where_the_text_is_full(model: Decoder) -> None:
    reader = Reader(Plans(model, LENGTH))
    choice = Choice(temperature=0.0, repetition=1.0)
    question = [3, 1, 4]
    answer = list(reader.answer(question, set(), 20, choice, 0))
    assert len(answer) == 20
    text = [*question, *answer]
    likeliest = model(Tensor([text])).numpy()[0].argmax(-1).tolist()
    assert answer == likeliest[2:-1], "decoding is recomputing everything"
    end, reader.tokens = answer[5], []
    assert list(reader.answer(question, {end}, 20, choice, 0)) == answer[: answer.index(end)]
    assert reader.tokens[-1] == end and reader.write_speed.tokens == answer.index(end) + 1
    reader.tokens = []
    assert len(list(reader.answer([1] * (LENGTH - 7), set(), 20, choice, 0))) == 7


def test_a_reading_that_is_interrupted_counts_for_nothing(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(Plans(model, LENGTH))
    expected, reader.tokens = reader.read([1, 2, 3, 4]), []
    reader.read([1, 2])
    whole = reader.plans.read_piece

    def interrupted(*args: Any) -> Any:
        whole(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(reader.plans, "read_piece", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader.read([9, 9, 9])
    monkeypatch.setattr(reader.plans, "read_piece", whole)
    assert reader.tokens == [1, 2]
    same_value(reader.read([3, 4]), expected, 1e-4, 1e-4)


def test_a_penalty_counts_for_all_tokens_in_draws_and_searches() -> None:
    seen, rng = [0, *[1] * 99], np.random.default_rng(0)
    logits = np.array([3.0, 1.0, 2.9])
    assert chosen(logits, seen, Choice(temperature=0.0), rng) == 2, "token 0 came 100 tokens before"
    scores = scored(logits, seen, discouraged(1.1))
    assert scores[0] < scored(logits)[0] and scores[2] == scored(logits)[2]
