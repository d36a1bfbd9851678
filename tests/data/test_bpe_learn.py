"""BPE learned from texts: merge by merge that of the tokenizers library, whose files it writes and reads."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picograd.errors import ArgumentError, DataError, FileError
from picograd_programs.data.bpe import LETTER_OF, PATTERNS, ByteLevel
from picograd_programs.data.bpe_learn import learned_bpe
from picograd_programs.data.text import load_text
from picograd_programs.data.tokenizer_json import load_tokenizer, save_tokenizer
from picograd_programs.data.tokens import map_tokens, write_tokens
from tests.data.test_bpe import LETTERS, their_words

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
LANGUAGES = {
    "English": "All human beings are born free and equal in dignity and rights. They're endowed with reason, aren't they? ",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Die Straße ist größer als die Gasse. ",
    "Russian": "Все люди рождаются свободными и равными в своём достоинстве и правах. Все люди равны. ",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। सभी मनुष्य। ",
    "Chinese": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。人人平等，人人自由。",
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. جميع الناس أحرار. ",
    "of signs": "aaaa aaa aaaaaaa ababab 1234 1234 12 😀😀😀 ½½ \t\t\n\n  ==>  ==> ",
}
MARKS = ("<|endoftext|>", "<|im_start|>")


def learned_by_the_library(texts: list[str], vocabulary: int, pattern: str = "smollm") -> Any:
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer, theirs.decoder = their_words(pattern), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), min_frequency=2,
        show_progress=False,
    )  # fmt: skip
    theirs.train_from_iterator(texts, trainer)
    return theirs


def merges_of(theirs: Any) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(theirs.to_str())["model"]["merges"]]


@pytest.mark.req("H1")
@pytest.mark.parametrize("language", LANGUAGES)
def test_merges_are_those_of_the_tokenizers_library(language: str) -> None:
    texts = [LANGUAGES[language]] * 3 + [LANGUAGES["English"]]
    ours, theirs = learned_bpe(texts, 400, control=()), learned_by_the_library(texts, 400)
    assert [*ours.rank_of] == merges_of(theirs) and ours.tokens[256:] == sorted(
        theirs.get_vocab(), key=theirs.get_vocab().__getitem__
    )[256:]
    for text in LANGUAGES.values():
        assert ours.encode(text) == theirs.encode(text).ids and ours.decode(ours.encode(text)) == text


@pytest.mark.req("H1")
def test_merges_of_a_large_text_and_of_random_ones_are_those_of_the_library() -> None:
    chance = random.Random(0)
    hostile = ["".join(chance.choices(LETTERS + "ab" * 20, k=200)) for _ in range(40)]
    for texts, vocabulary in ([load_text("shakespeare")], 1024), (hostile, 700), (hostile, 5000):
        ours, theirs = learned_bpe(texts, vocabulary, control=()), learned_by_the_library(texts, vocabulary)
        assert [*ours.rank_of] == merges_of(theirs)
        assert len(ours.tokens) <= vocabulary


@pytest.mark.req("H1")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_files_are_those_of_the_tokenizers_library(pattern: str, tmp_path: Path) -> None:
    texts, path = [*LANGUAGES.values()], tmp_path / "made" / "tokenizer.json"
    ours = learned_bpe(texts, 500, pattern, MARKS)
    save_tokenizer(ours, path)
    theirs, again = tokenizers.Tokenizer.from_file(str(path)), load_tokenizer(path)
    for text in texts:
        assert ours.encode(text) == theirs.encode(text).ids == again.encode(text)
        assert theirs.decode(ours.encode(text)) == text
    assert [theirs.token_to_id(mark) for mark in MARKS] == [*ours.control.values()]
    assert again.control == ours.control and again.tokens == ours.tokens
    other = learned_by_the_library(texts, 500, pattern)
    other.add_special_tokens([*MARKS])
    other.save(str(path))
    read = load_tokenizer(path)
    assert all(read.encode(text) == other.encode(text).ids for text in texts)


@pytest.mark.req("H1")
@pytest.mark.parametrize("takes_words", [None, True, False])
@pytest.mark.parametrize("pattern", ["llama-bpe", "gpt-2"])
def test_a_word_that_is_a_token_is_one_where_the_file_says_so(
    pattern: str, takes_words: bool | None, tmp_path: Path
) -> None:
    tokens, path = [*LETTER_OF, "bc", "abc", "Ġabc"], tmp_path / "tokenizer.json"
    ours = ByteLevel(tokens, ["b c"], [1] * len(tokens), pattern, takes_words)
    save_tokenizer(ours, path)
    theirs, again = tokenizers.Tokenizer.from_file(str(path)), load_tokenizer(path)
    for text in ("abc abc", "abcd", "xabc"):
        assert ours.encode(text) == theirs.encode(text).ids == again.encode(text)
    assert (ours.encode("abc") == [257]) == (pattern == "llama-bpe" if takes_words is None else takes_words)


@pytest.mark.req("H1")
def test_marks_of_control_are_no_text() -> None:
    tokenizer = learned_bpe(["<|im_start|>" * 5], 300, control=MARKS)
    numbers = tokenizer.encode("<|im_start|>")
    assert tokenizer.control["<|im_start|>"] not in numbers and tokenizer.decode(numbers) == "<|im_start|>"
    assert tokenizer.decode([tokenizer.control["<|im_start|>"]]) == ""


def test_what_cannot_be_learned_is_named() -> None:
    for arguments, said in [
        ((["text"], 256), "a vocabulary of 256 tokens is too small: 256 bytes, 1 control tokens and one merge are 258."),
        ((["text"], 300, "viking"), "there is no pattern 'viking'; there are gpt-2, smollm"),
        ((["text"], 300, "gpt-2", ("<a>", "<a>")), "control tokens must be different"),
    ]:
        with pytest.raises(ArgumentError) as caught:
            learned_bpe(*arguments)
        assert said in caught.value.fact
    with pytest.raises(DataError, match="cannot be learned from an empty text"):
        learned_bpe(["", ""], 300)


def test_a_file_that_is_no_json_or_not_there_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\x00")
    with pytest.raises(DataError, match="a.json: is not UTF-8: byte 0"):
        load_tokenizer(tmp_path / "a.json")
    with pytest.raises(FileError, match="cannot be read"):
        load_tokenizer(tmp_path / "b.json")


# ---- files of tokens ----
@pytest.mark.req("H1")
def test_tokens_come_back_from_a_file_without_being_loaded(tmp_path: Path, rng: np.random.Generator) -> None:
    tokens = rng.integers(0, 2**16, 10_000)
    write_tokens(tmp_path / "a.bin", tokens, 2**16)
    mapped = map_tokens(tmp_path / "a.bin", 2**16)
    assert isinstance(mapped, np.memmap) and mapped.dtype == np.uint16 and (mapped == tokens).all()
    header = np.fromfile(tmp_path / "a.bin", "<i4", 3)  # as llm.c reads it
    assert header.tolist() == [20240520, 1, 10_000]
    write_tokens(tmp_path / "b.bin", [], 5)
    assert len(map_tokens(tmp_path / "b.bin", 5)) == 0


def test_a_damaged_file_of_tokens_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_tokens(path, [1, 2, 3, 4], 5)
    whole = path.read_bytes()
    for data, vocabulary, said in [
        (whole[:-2], 5, "has 3 of 4 tokens"),
        (whole[:-2] + b"\x01\x00", 5, "its checksum is wrong"),
        (whole, 6, "made with a vocabulary of 5 tokens, not of 6"),
        (b"\x00" * 2000, 5, "is not a file of tokens of version 1"),
        (b"", 5, "is not a file of tokens"),
    ]:
        path.write_bytes(data)
        with pytest.raises(DataError) as caught:
            map_tokens(path, vocabulary)
        assert said in caught.value.fact and str(path) in caught.value.fact
    for tokens, vocabulary, said in [([5], 5, "0 to 4, got 5 to 5"), ([-1], 5, "got -1"), ([1], 2**17, "131,072 tokens;")]:
        with pytest.raises(ArgumentError, match=said):
            write_tokens(path, tokens, vocabulary)
