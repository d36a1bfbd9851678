"""names.txt, its windows and its split."""

from __future__ import annotations

import pytest
import torch

from picograd.errors import DataError
from picograd_programs.data import names


def test_windows_pad_with_dots_and_end_with_one() -> None:
    part = names.windows(["emma"])
    assert [names.decode(context) for context in part.contexts] == ["...", "..e", ".em", "emm", "mma"]
    assert names.decode(part.targets) == "emma."


def test_windows_of_no_names_have_the_right_shape() -> None:
    part = names.windows([], 3)
    assert part.contexts.shape == (0, 3)
    assert part.targets.shape == (0,)


def test_bigrams_are_windows_of_one() -> None:
    pairs = names.bigrams(["ab"])
    assert list(zip(pairs.contexts[:, 0], pairs.targets)) == [(0, 1), (1, 2), (2, 0)]


def test_split_keeps_every_name_once() -> None:
    words = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
    parts = names.split(words)
    assert [len(part) for part in parts] == [80, 10, 10]
    assert sorted(sum(parts, [])) == words
    assert words == sorted(words)


@pytest.mark.parametrize("num", [10, 999, 32_033])
def test_the_split_of_the_script_is_that_of_torch(num: int) -> None:
    words = [str(number) for number in range(num)]
    torch.manual_seed(3407)
    order, kept = torch.randperm(num).tolist(), min(1000, num // 10)
    train, test = names.split_of_script(words)
    assert [int(each) for each in [*train, *test]] == order and len(test) == kept
    assert names.divided(words, "script") == (train, test, test) and names.divided(words, "lectures") == names.split(words)


def test_unknown_character_is_named() -> None:
    with pytest.raises(DataError) as caught:
        names.encode("zoë")
    assert caught.value.fact == "encode: 'zoë' has 'ë'; the characters of names are '.' and 'a' to 'z'."


def test_published_names_have_the_published_counts(published_names: list[str]) -> None:
    assert len(published_names) == 32033
    assert published_names[:3] == ["emma", "olivia", "ava"]
    assert len(names.bigrams(published_names).targets) == 228146


@pytest.mark.req("D4")
def test_published_split_has_the_sizes_of_the_lecture(published_names: list[str]) -> None:
    sizes = [len(names.windows(part).targets) for part in names.split(published_names)]
    assert sizes == [182625, 22655, 22866]
