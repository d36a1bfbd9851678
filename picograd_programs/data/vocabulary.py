"""Vocabularies in files: checks of their JSON, and of the number of rows in a table of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd.files import read_whole
from picograd_formats.safetensors_file import json_of

TOKENS_MAX = 2**24  # larger numbers mean damage
# Padding rows of token tables, for divisibility: up to a multiple of 64 (nanoGPT's 50,304 for 50,257 tokens), at most
# of 1,024 (Phi-2's 51,200 for 50,295).
PADDING_MAX = 1023

Json = dict[str, Any]


def check_rows(table: str, shape: tuple[int, ...], tokens: int) -> None:
    """Checks that a table fits a vocabulary: a vector for each token, and few rows of padding.

    Args:
      table:   its name in error messages
      shape:   (rows, width)
      tokens:  size of the vocabulary

    Raises:
      DataError: there are fewer rows, or too many for padding.

    >>> check_rows("wte.weight", (50304, 768), 50257)
    """
    if not 0 <= shape[0] - tokens <= min(PADDING_MAX, tokens):
        raise DataError(
            f"its table {table} of {shape} has vectors of {shape[0]:,} tokens, and the vocabulary has {tokens:,}:"
            " they belong to different models.", "take both from where the model is published."
        )  # fmt: skip


# ---- files of JSON and text ----
def numbers_in(value: Any, path: Path) -> Json:
    """Returns the tokens of a vocabulary with their numbers.

    Raises:
      DataError: the dict is not a vocabulary.
    """
    if not isinstance(value, dict) or not 0 < len(value) <= TOKENS_MAX:
        raise DataError(f"{path}: has no vocabulary, which is a dict of tokens and their numbers.")
    return value


def text_in(path: Path, function: str = "sample") -> str:
    """Returns the text of a file; `function` names the reader in error messages.

    Raises:
      DataError: the file cannot be read, or is not UTF-8.
    """
    try:
        return read_whole(function, path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8: byte {error.start:,}.") from None


def json_in(path: Path, function: str = "sample", kind: type = dict) -> Any:
    """Returns the dict, or the list, in a JSON file; `function` names the reader in error messages.

    Raises:
      DataError: the file cannot be read, is damaged, or contains something else.
    """
    text = text_in(path, function)
    try:
        value = json_of(text)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None
    if not isinstance(value, kind):
        raise DataError(f"{path}: has no {kind.__name__}.")
    return value
