"""The vocabulary beside published weights: vocab.json with merges.txt, or tokenizer.json, which has both.

Source: Radford et al. 2019, "Language models are unsupervised multitask learners" (GPT-2's two files); the tokenizers
       library (tokenizer.json).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd.files import read_whole
from picograd_formats.safetensors_file import json_of
from picograd_programs.data.bpe import CONTROL, TEXT, ByteLevel

TOKENS_MAX = 2**24  # a number beyond is damage, not a vocabulary
# Rows that fill up a table of tokens so that it divides well: to a multiple of 64 (nanoGPT's 50,304 for 50,257 tokens), of
# 1,024 at most (Phi-2's 51,200 for 50,295).
PADDING_MAX = 1023
CONTROL_NAME = re.compile(r"<\|\w+\|>")  # in vocab.json nothing else tells a control token


def byte_level_in(folder: Path) -> ByteLevel:
    """Returns the tokenizer that the files of a folder describe, with GPT-2's pattern of words.

    Raises:
      DataError: they are missing, damaged, or describe another kind of tokenizer.
    """
    whole, vocabulary, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if vocabulary.is_file() and merges.is_file():
        numbers = numbers_in(json_in(vocabulary), vocabulary)
        lines = [line for line in text_in(merges).splitlines() if line and not line.startswith("#version")]
        return tokenizer_of(numbers, lines, {name for name in numbers if CONTROL_NAME.fullmatch(name)}, vocabulary)
    if whole.is_file():
        return from_tokenizer_json(whole)
    if vocabulary.is_file():
        raise DataError(f"{folder}: vocab.json is there, merges.txt is not.", "put merges.txt beside it.")
    hint = "put both, or tokenizer.json, beside the weights."
    raise DataError(f"{folder}: vocab.json and merges.txt, which turn text into tokens, are not there.", hint)


def from_tokenizer_json(path: Path) -> ByteLevel:
    """Returns the tokenizer of a file of the tokenizers library.

    Raises:
      DataError: the file is damaged, or describes another kind.
    """
    file = json_in(path)
    model, cut = file.get("model"), file.get("pre_tokenizer")
    kinds = [part.get("type") if isinstance(part, dict) else None for part in (model, cut)]
    if kinds != ["BPE", "ByteLevel"] or not isinstance(model, dict):
        raise DataError(f"{path}: has model and pre_tokenizer of types {str(kinds)[:60]}; BPE and ByteLevel are run.")
    added, merges = file.get("added_tokens") or [], model.get("merges")
    if not isinstance(merges, list) or not isinstance(added, list):
        raise DataError(f"{path}: has no list of merges, or added_tokens that are none.")
    if not all(isinstance(token, dict) and isinstance(token.get("content"), str) for token in added):
        raise DataError(f"{path}: an entry of added_tokens has no content.")
    numbers = numbers_in(model.get("vocab"), path) | {token["content"]: token.get("id") for token in added}
    pairs = [" ".join(map(str, merge)) if isinstance(merge, list) else str(merge) for merge in merges]
    return tokenizer_of(numbers, pairs, {token["content"] for token in added if token.get("special")}, path)


def tokenizer_of(numbers: dict[str, Any], merges: list[str], control: set[str], path: Path) -> ByteLevel:
    """Returns the tokenizer of some tokens with their numbers.

    Raises:
      DataError: the numbers are not 0, 1, ... of so many tokens, or a merge is no pair.
    """
    tokens = sorted(numbers, key=lambda token: numbers[token] if type(numbers[token]) is int else -1)
    if wrong := [token for place, token in enumerate(tokens) if numbers[token] != place]:
        found = f"{wrong[0][:40]!r} has the number {str(numbers[wrong[0]])[:40]}"
        raise DataError(f"{path}: the numbers of its {len(tokens):,} tokens must be 0, 1, 2, ...; {found}.")
    try:
        return ByteLevel(tokens, merges, [CONTROL if token in control else TEXT for token in tokens], "gpt-2")
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None


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


# ---- files of JSON and text ----
def numbers_in(value: Any, path: Path) -> dict[str, Any]:
    """Returns the tokens of a vocabulary with their numbers.

    Raises:
      DataError: it is none.
    """
    if not isinstance(value, dict) or not 0 < len(value) <= TOKENS_MAX:
        raise DataError(f"{path}: has no vocabulary, which is a dict of tokens and their numbers.")
    return value


def text_in(path: Path) -> str:
    """Returns the text of a file.

    Raises:
      DataError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_whole("sample", path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8: byte {error.start:,}.") from None


def json_in(path: Path) -> dict[str, Any]:
    """Returns the dict in a file of JSON.

    Raises:
      DataError: it cannot be read, is damaged, or has something else.
    """
    try:
        value = json_of(text_in(path))
    except DataError as error:
        raise DataError(f"{path}: {error.fact.removeprefix(f'{path}: ')}") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}: has no dict.")
    return value
