"""Vocabularies in files: tokenizer.json, written and read; vocab.json with merges.txt, which are beside older weights.

A tokenizer.json has the tokens by their texts, the merges in their order, the control tokens, and how a text is cut into
words. The last is a program of parts; those that are equal to a pattern of bpe.py are known, others are refused.

Source: Hugging Face, tokenizers, the file that `Tokenizer.save` writes, version "1.0"; Radford et al. 2019, "Language
       models are unsupervised multitask learners" (GPT-2's two files).
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from os import PathLike
from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd.files import read_whole, write_whole
from picograd_formats.safetensors_file import json_of
from picograd_programs.data.bpe import CONTROL, TEXT, ByteLevel

TOKENS_MAX = 2**24  # a number beyond is damage, not a vocabulary
# Rows that fill up a table of tokens so that it divides well: to a multiple of 64 (nanoGPT's 50,304 for 50,257 tokens), of
# 1,024 at most (Phi-2's 51,200 for 50,295).
PADDING_MAX = 1023
CONTROL_NAME = re.compile(r"<\|\w+\|>")  # in vocab.json nothing else tells a control token

Json = dict[str, Any]


# ---- tokenizer.json ----
OF_BYTES: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS: Json = {"type": "Digits", "individual_digits": True}
LETTERS_AND_ENDINGS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def cut_by(pattern: str) -> Json:
    """Returns the parts that cut words by a pattern of Oniguruma's."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**OF_BYTES, "use_regex": False}]}


CUTS: dict[str, Json] = {
    "gpt-2": OF_BYTES,
    "smollm": {"type": "Sequence", "pretokenizers": [DIGITS, OF_BYTES]},
    "llama-bpe": cut_by(LETTERS_AND_ENDINGS % "{1,3}"),
    "qwen2": cut_by(LETTERS_AND_ENDINGS % ""),
}
CUTS["default"] = CUTS["gpt-2"]


def save_tokenizer(tokenizer: ByteLevel, path: str | PathLike[str]) -> None:
    """Writes a tokenizer.json.

    Raises:
      FileError: it cannot be written.
    """
    added = [
        {"id": number, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for token, number in tokenizer.control.items()
    ]  # fmt: skip
    pairs = [list(pair) for pair in tokenizer.rank_of]
    numbers = {token: number for number, token in enumerate(tokenizer.tokens)}
    model = {"type": "BPE", "ignore_merges": tokenizer.takes_words, "vocab": numbers, "merges": pairs}
    content = {
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": CUTS[tokenizer.cut],
        "post_processor": None, "decoder": OF_BYTES, "model": model,
    }  # fmt: skip
    data = json.dumps(content, ensure_ascii=False, indent=1).encode()
    write_whole("save_tokenizer", path, lambda file: file.write(data), makes_folder=True)


def load_tokenizer(path: str | PathLike[str]) -> ByteLevel:
    """Returns the tokenizer of a tokenizer.json, in which each added token is a control token.

    Raises:
      DataError: the file cannot be read, is damaged, or has a part that is not done here; it is named.
    """
    path = Path(path)
    file = json_in(path, "load_tokenizer")
    model, added = file.get("model"), file.get("added_tokens") or []
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or file.get("normalizer") is not None:
        raise DataError(f"{path}: has a model other than BPE, or changes characters first; neither is done here.")
    words = file.get("pre_tokenizer")
    cut = next((name for name, parts in CUTS.items() if _same(parts, words)), None)
    if cut is None:
        raise DataError(f"{path}: cuts words by {json.dumps(words)[:80]}; {', '.join(CUTS)} are known.")
    merges = model.get("merges")
    if not isinstance(merges, list) or not isinstance(added, list):
        raise DataError(f"{path}: has no list of merges, or its added_tokens are no list.")
    if not all(isinstance(token, dict) and isinstance(token.get("content"), str) for token in added):
        raise DataError(f"{path}: an entry of added_tokens has no content.")
    control = {token["content"]: token.get("id") for token in added}
    pairs = [" ".join(map(str, merge)) if isinstance(merge, list) else str(merge) for merge in merges]
    numbers = numbers_in(model.get("vocab"), path) | control
    return _tokenizer_of(path, numbers, pairs, control, cut, bool(model.get("ignore_merges")))


def _same(parts: Json, found: Any) -> bool:
    """Returns whether two programs of parts cut alike; what says nothing about words may differ."""
    if not isinstance(found, dict) or parts["type"] != found.get("type"):
        return False
    if parts["type"] == "Sequence":
        inner, others = parts["pretokenizers"], found.get("pretokenizers")
        return isinstance(others, list) and len(inner) == len(others) and all(map(_same, inner, others))
    return all(found.get(name, value) == value for name, value in parts.items() if name != "trim_offsets")


# ---- folders of weights ----
def byte_level_in(folder: Path) -> ByteLevel:
    """Returns the tokenizer that the files of a folder describe; vocab.json has GPT-2's pattern of words.

    Raises:
      DataError: they are missing, damaged, or describe another kind of tokenizer.
    """
    whole, vocabulary, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if vocabulary.is_file() and merges.is_file():
        numbers = numbers_in(json_in(vocabulary), vocabulary)
        lines = [line for line in text_in(merges).splitlines() if line and not line.startswith("#version")]
        control = {name for name in numbers if CONTROL_NAME.fullmatch(name)}
        return _tokenizer_of(vocabulary, numbers, lines, control, "gpt-2", False)
    if whole.is_file():
        return load_tokenizer(whole)
    if vocabulary.is_file():
        raise DataError(f"{folder}: vocab.json is there, merges.txt is not.", "put merges.txt beside it.")
    hint = "put both, or tokenizer.json, beside the weights."
    raise DataError(f"{folder}: vocab.json and merges.txt, which turn text into tokens, are not there.", hint)


def check_rows(table: str, shape: tuple[int, ...], tokens: int) -> None:
    """Checks that a table can belong to a vocabulary: a vector for each token, and few that fill it up behind them.

    Args:
      table:   its name, for the error
      shape:   (rows, width)
      tokens:  how many the vocabulary has

    Raises:
      DataError: there are fewer rows, or so many more that they belong to another vocabulary.

    >>> check_rows("wte.weight", (50304, 768), 50257)
    """
    if not 0 <= shape[0] - tokens <= min(PADDING_MAX, tokens):
        raise DataError(
            f"its table {table} of {shape} has vectors of {shape[0]:,} tokens, and the vocabulary has {tokens:,}:"
            " they belong to different models.", "take both from where the model is published."
        )  # fmt: skip


def _tokenizer_of(
    path: Path, numbers: Json, merges: list[str], control: Container[str], cut: str, takes_words: bool
) -> ByteLevel:
    """Returns the tokenizer of some tokens with their numbers; `cut` and `takes_words`: as ByteLevel.

    Raises:
      DataError: the numbers are not 0, 1, ... of so many tokens, or a merge is no pair.
    """
    tokens = sorted(numbers, key=lambda token: numbers[token] if type(numbers[token]) is int else -1)
    if wrong := [token for place, token in enumerate(tokens) if numbers[token] != place]:
        found = f"{wrong[0][:40]!r} has the number {str(numbers[wrong[0]])[:40]}"
        raise DataError(f"{path}: the numbers of its {len(tokens):,} tokens must be 0, 1, 2, ...; {found}.")
    try:
        return ByteLevel(tokens, merges, [CONTROL if token in control else TEXT for token in tokens], cut, takes_words)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None


# ---- files of JSON and text ----
def numbers_in(value: Any, path: Path) -> Json:
    """Returns the tokens of a vocabulary with their numbers.

    Raises:
      DataError: it is not one.
    """
    if not isinstance(value, dict) or not 0 < len(value) <= TOKENS_MAX:
        raise DataError(f"{path}: has no vocabulary, which is a dict of tokens and their numbers.")
    return value


def text_in(path: Path, function: str = "sample") -> str:
    """Returns the text of a file; errors call the reader `function`.

    Raises:
      DataError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_whole(function, path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8: byte {error.start:,}.") from None


def json_in(path: Path, function: str = "sample") -> Json:
    """Returns the dict in a file of JSON; errors call the reader `function`.

    Raises:
      DataError: it cannot be read, is damaged, or has something else.
    """
    text = text_in(path, function)
    try:
        value = json_of(text)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}: has no dict.")
    return value
