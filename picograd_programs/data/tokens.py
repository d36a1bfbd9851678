"""Files of tokens that are mapped into memory: a training reads windows of them, however long the text is.

The format is llm.c's: 256 numbers of int32 (a mark, version 1, how many tokens), then each token as uint16. Two numbers
that it leaves at 0 hold how many tokens the vocabulary has and a checksum, so that a file of another text, of another
vocabulary, or one that is damaged is not trained on.

Source: Karpathy 2024, llm.c, `write_datafile`.
"""

from __future__ import annotations

import zlib
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike, NDArray

from picograd.errors import ArgumentError, DataError
from picograd.files import opened, write_whole

MARK, VERSION, HEADER = 20240520, 1, 256
TOKENS_MAX = 2**16  # that an element of two bytes can tell apart


def write_tokens(path: str | PathLike[str], tokens: ArrayLike, vocabulary: int) -> None:
    """Writes a file of tokens.

    Args:
      tokens:      (N,) integers from 0 to V - 1
      vocabulary:  V, up to 65,536

    Raises:
      ArgumentError: a token is not in the vocabulary, or that has more than fit into two bytes.
      FileError: the file cannot be written.
    """
    numbers_N = np.asarray(tokens, np.int64)
    if not 1 <= vocabulary <= TOKENS_MAX:
        raise ArgumentError(f"write_tokens: a vocabulary of {vocabulary:,} tokens; 1 to {TOKENS_MAX:,} fit into two bytes.")
    if numbers_N.size and not 0 <= numbers_N.min() <= numbers_N.max() < vocabulary:
        raise ArgumentError(
            f"write_tokens: tokens must be 0 to {vocabulary - 1:,}, got {numbers_N.min():,} to {numbers_N.max():,}."
        )
    data = numbers_N.astype("<u2").tobytes()
    header = np.zeros(HEADER, "<i4")
    header[:4] = MARK, VERSION, len(numbers_N), vocabulary
    header[4:5].view("<u4")[0] = zlib.crc32(data)
    write_whole("write_tokens", path, lambda file: file.write(header.tobytes() + data), makes_folder=True)


def map_tokens(path: str | PathLike[str], vocabulary: int) -> NDArray[np.uint16]:
    """Returns the tokens of a file, (N,) uint16, mapped into memory: what is not read is not loaded.

    Args:
      vocabulary:  V, of the tokenizer that is used with them

    Raises:
      DataError: the file cannot be read, is no file of tokens, is damaged, or is of another vocabulary.
    """
    with opened("map_tokens", path, "train again without --resume.") as file:
        header = np.frombuffer(file.read(4 * HEADER), "<i4")
    if len(header) < HEADER or header[0] != MARK or header[1] != VERSION:
        raise DataError(f"map_tokens: {path}: is no file of tokens of version {VERSION}.")
    num, made_with = int(header[2]), int(header[3])
    if made_with != vocabulary:
        raise DataError(f"map_tokens: {path}: made with a vocabulary of {made_with:,} tokens, not of {vocabulary:,}.")
    whole = np.memmap(path, "<u2", "r", offset=4 * HEADER) if num else np.zeros(0, "<u2")
    if len(whole) != num:
        raise DataError(f"map_tokens: {path}: has {len(whole):,} of {num:,} tokens.")
    if zlib.crc32(whole.data) != header[4:5].view("<u4")[0]:
        raise DataError(f"map_tokens: {path}: its checksum is that of other tokens: it is damaged.")
    return whole
