"""A search for a likely text: against all texts there are, and against texts that are read anew at every token."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from picograd.errors import DataError
from picograd.tensor.generator import manual_seed
from picograd_programs.chat.answer import Choice, Plans, Reader
from picograd_programs.chat.rules import BARRED, Barred, EndsWith, Least, NoRepeat
from picograd_programs.chat.search import Beam, Search, moved, search_of, searched
from picograd_programs.models.gpt import GPT, GPTConfig

END = 0


class Table:
    """A language of `num` tokens, where the last two tokens say how likely the next one is."""

    def __init__(self, num: int, texts: int, seed: int = 0):
        self.logits = np.random.default_rng(seed).standard_normal((num, num, num)) * 2
        self.num, self.texts = texts, [[1, 2] for _ in range(texts)]

    def after(self, text: Sequence[int]) -> Any:
        """Returns the logits after a text."""
        return self.logits[text[-2], text[-1]].copy()

    def copy(self, source: int, target: int) -> None:
        """Makes a text the same as another."""
        assert source != target
        self.texts[target] = [*self.texts[source]]

    def next(self, tokens_B: Sequence[int]) -> Any:
        """Writes a token of each text."""
        for text, token in zip(self.texts, tokens_B, strict=True):
            text.append(token)
        return np.stack([self.after(text) for text in self.texts])

    def score(self, answer: Sequence[int]) -> float:
        """Returns the log-probability of an answer."""
        text, total = [1, 2], 0.0
        for token in answer:
            row = self.after(text)
            total += row[token] - math.log(np.exp(row).sum())
            text.append(token)
        return total


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.7, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_search_with_a_beam_for_every_text_finds_the_best_of_all(penalty: float, seed: int) -> None:
    num, longest = 4, 4
    answers = [
        answer for length in range(1, longest + 1) for answer in itertools.product(range(num), repeat=length)
        if END not in answer[:-1] and (answer[-1] == END or length == longest)
    ]  # fmt: skip
    table = Table(num, 81, seed)
    best = max(answers, key=lambda answer: table.score(answer) / len(answer) ** penalty)
    search = Search(81, penalty, "never")
    found = searched(table, table.after([1, 2]), [1, 2], 0, longest, search, [], {END})
    assert found.tokens == best
    assert found.score == pytest.approx(table.score(best) / len(best) ** penalty)


def plainly(table: Table, beams: int, num: int) -> tuple[int, ...]:
    """The best answer by the definition: at each length the likeliest texts go on; of those that end, the likeliest."""
    live, done = [()], list[tuple[int, ...]]()
    for length in range(1, num + 1):
        longer = sorted(((*text, token) for text in live for token in range(len(table.logits))), key=table.score)[::-1]
        done += [text for text in longer[:beams] if text[-1] == END or length == num]
        live = [text for text in longer if text[-1] != END][:beams]
    return max(done, key=table.score)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("beams", [1, 2, 3, 5])
def test_few_beams_find_what_the_definition_finds(beams: int, seed: int) -> None:
    table = Table(7, beams + seed % 2, seed)
    search = Search(beams, 0.0, "never")
    found = searched(table, table.after([1, 2]), [1, 2], 0, 9, search, [], {END})
    assert found.tokens == plainly(table, beams, 9)


def test_a_search_that_stops_early_ends_with_so_many_texts() -> None:
    table = Table(7, 2, 24)
    first, steps = table.after([1, 2]), []
    for stopping in (True, False, "never"):
        table.texts = [[1, 2], [1, 2]]
        found = searched(table, first, [1, 2], 0, 30, Search(2, 1.0, stopping), [Least(5, frozenset({END}))], {END})
        assert len(found.tokens) >= 4 and found.tokens.index(END) == len(found.tokens) - 1
        steps.append(len(table.texts[0]) - 2)
    assert steps[0] < steps[1] < steps[2], steps


def test_a_text_that_goes_on_twice_is_copied_over_one_that_does_not() -> None:
    table = Table(4, 4)
    table.texts = [[0], [1], [2], [3]]
    assert moved(table, [2, 2, 0, 2]) == [2, 1, 0, 3]
    assert table.texts == [[0], [2], [2], [2]]


def test_rules_that_let_nothing_follow_end_a_search() -> None:
    table = Table(3, 2)
    found = searched(table, table.after([1, 2]), [1, 2], 0, 9, Search(2), [Barred((0, 1, 2))], {END})
    assert found == Beam((), 0.0)


def test_rules_bar_tokens() -> None:
    text = [5, 6, 7, 5, 6]
    for rule, barred in [
        (NoRepeat(3), {7}), (NoRepeat(2), {7}), (NoRepeat(1), {5, 6, 7}), (NoRepeat(4), set()), (NoRepeat(9), set()),
        (Least(6, frozenset({1})), {1}), (Least(5, frozenset({1})), set()), (EndsWith(6, 3), {0, 1, 2, 4, 5, 6, 7}),
        (EndsWith(7, 3), set()), (Barred((1,), (2,), 5), {1, 2}), (Barred((1,), (2,), 4), {1}), (Barred(), set()),
    ]:  # fmt: skip
        scores = np.zeros(8, np.float32)
        rule(scores, text)
        assert {*np.flatnonzero(scores == np.float32(BARRED)).tolist()} == barred, rule


def test_a_decoder_searches_as_one_that_reads_each_text_anew() -> None:
    manual_seed(0)
    model, question = GPT(GPTConfig(12, 64, 2, 2, 16)), [1, 5, 9, 4]
    model.load_state_dict({name: value * 20 for name, value in model.state_dict().items()})
    model.eval()

    class Anew:
        num = 3

        def __init__(self) -> None:
            self.texts = [[*question] for _ in range(self.num)]

        def copy(self, source: int, target: int) -> None:
            self.texts[target] = [*self.texts[source]]

        def next(self, tokens_B: Sequence[int]) -> Any:
            for text, token in zip(self.texts, tokens_B, strict=True):
                text.append(token)
            return np.stack([Reader(Plans(model, 64)).read(text) for text in self.texts])

    search, choice = Search(3, 1.0, True, 2), Choice(temperature=0.0, repetition=1.0)
    rules, plans = [NoRepeat(2)], Plans(model, 64, 3)
    expected = searched(Anew(), Reader(Plans(model, 64)).read(question), question, 0, 9, search, rules, {2})
    for _ in range(2):
        reader = Reader(plans)
        answer = [*reader.answer(question, {2}, 9, choice, 0, rules, search)]
        assert answer == [token for token in expected.tokens if token != 2]
        assert reader.tokens == [*question, *expected.tokens], "the answer was read, so that a dialogue goes on behind it"
    assert plans.read_rows.num_captures == 1 and plans.copy_text.num_captures == 1
    assert reader.write_speed.tokens >= len(answer) - 1


def test_settings_of_a_search_that_are_out_of_range_are_named() -> None:
    assert search_of({"num_beams": None, "early_stopping": "never"}) == Search(early_stopping="never")
    for said, words in [
        ({"num_beams": 0}, "num_beams is 0"), ({"num_beams": 10**6}, "num_beams is 1000000"), ({"num_beams": "4"}, "is 4;"),
        ({"early_stopping": "soon"}, "early_stopping is soon"), ({"length_penalty": math.nan}, "length_penalty is nan"),
        ({"no_repeat_ngram_size": 1.5}, "no_repeat_ngram_size is 1.5"),
    ]:  # fmt: skip
        with pytest.raises(DataError) as caught:
            search_of(said)
        assert words in caught.value.fact and "out of its range" in caught.value.fact


def test_a_logit_that_is_not_finite_ends_a_search() -> None:
    with pytest.raises(DataError, match="numbers are not finite"):
        searched(Table(3, 2), np.array([0.0, math.nan, 1.0]), [], 0, 3, Search(2), [], {END})
