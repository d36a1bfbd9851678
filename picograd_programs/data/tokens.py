"""Files of tokens that are mapped into memory, so that a training reads windows of texts of any length.

The format is llm.c's: 256 int32 (a magic number, version 1, the number of tokens), then each token as uint16. Two unused
entries hold the vocabulary's size and a checksum, so that a training refuses a file of another text or vocabulary, or a
damaged one.

`TokenFile` also reads other files: llm.c's, and nanoGPT's, which contain only tokens.

Source: Karpathy 2024, llm.c, `write_datafile`; Karpathy 2022, nanoGPT, `prepare.py`.

Letters: N tokens, V vocabulary, T positions, B batch.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from picograd.errors import ArgumentError, DataError, IndexingError
from picograd.files import opened, write_whole
from picograd.tensor.tensor import Tensor
from picograd_loader.datasets import Dataset
from picograd_programs.data.text import windows_at

MARK, VERSION, HEADER = 20240520, 1, 256
TOKENS_MAX = 2**16  # vocabulary of two-byte tokens
HEADERS = {(MARK, VERSION): "uint16", (20240801, 7): "uint32"}  # magic number and version of llm.c -> a token's type
CHECKED = 2**20  # tokens per check


def write_tokens(path: str | PathLike[str], tokens: ArrayLike, vocabulary: int) -> None:
    """Writes a file of tokens.

    Args:
      tokens:      (N,) integers from 0 to V - 1
      vocabulary:  V, up to 65,536

    Raises:
      ArgumentError: a token is outside the vocabulary, or the vocabulary does not fit into two bytes.
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
    """Returns the tokens of a file, (N,) uint16, mapped into memory; only the parts that are read are loaded.

    Args:
      vocabulary:  V, of the tokenizer in use

    Raises:
      DataError: the file cannot be read, is not a file of tokens, is damaged, or has another vocabulary.
    """
    with opened("map_tokens", path, "train again without --resume.") as file:
        header = np.frombuffer(file.read(4 * HEADER), "<i4")
    if len(header) < HEADER or header[0] != MARK or header[1] != VERSION:
        raise DataError(f"map_tokens: {path}: is not a file of tokens of version {VERSION}.")
    num, made_with = int(header[2]), int(header[3])
    if made_with != vocabulary:
        raise DataError(f"map_tokens: {path}: made with a vocabulary of {made_with:,} tokens, not of {vocabulary:,}.")
    whole = np.memmap(path, "<u2", "r", offset=4 * HEADER) if num else np.zeros(0, "<u2")
    if len(whole) != num:
        raise DataError(f"map_tokens: {path}: has {len(whole):,} of {num:,} tokens.")
    if zlib.crc32(whole.data) != header[4:5].view("<u4")[0]:
        raise DataError(f"map_tokens: {path}: its checksum is wrong: the file is damaged.")
    return whole


class TokenFile(Dataset):
    """Windows of a file of tokens, with the token after each; the file is mapped, not loaded.

    Example n is (tokens (T,), targets (T,)), int32, from position n * stride on; a loader gets batches of them, (B, T). A
    file with llm.c's header says the size of a token; for others, such as nanoGPT's, `dtype` does. Workers map the file
    themselves.

    Args:
      path:        path of the file
      block:       T, number of tokens in a window
      dtype:       "uint16" or "uint32", little-endian, in a file without a header
      stride:      distance between the starts of two windows; None: T, so that each token is read once
      vocabulary:  V: checks that all tokens are below it, which reads the file once; None: no check

    Raises:
      ArgumentError: block or stride is below 1, or dtype is unknown.
      DataError: the file cannot be read, is truncated, is shorter than a window, or has a token outside the vocabulary.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "train.bin")
    >>> np.arange(7, dtype=np.uint16).tofile(path)
    >>> tokens, targets = next(iter(utils.data.DataLoader(data.TokenFile(path, block=3), batch_size=2)))
    >>> tokens.tolist(), targets.tolist()
    ([[0, 1, 2], [3, 4, 5]], [[1, 2, 3], [4, 5, 6]])
    """

    def __init__(
        self,
        path: str | PathLike[str],
        block: int,
        dtype: str = "uint16",
        stride: int | None = None,
        vocabulary: int | None = None,
    ):
        stride = block if stride is None else stride
        if block < 1 or stride < 1:
            raise ArgumentError(f"TokenFile: block and stride must be at least 1, got {block} and {stride}.")
        if dtype not in HEADERS.values():
            raise ArgumentError(f'TokenFile: dtype must be "uint16" or "uint32", got {dtype!r}.')
        self.path, self.block, self.dtype, self.stride = os.fspath(path), block, dtype, stride
        self.tokens_N = self._mapped()
        if len(self.tokens_N) <= block:
            needed = f"a window and the token after it take {block + 1:,}"
            fact = f"TokenFile: {self.path}: has {len(self.tokens_N):,} tokens; {needed}."
            raise DataError(fact, hint="a longer file, or a smaller block")
        if vocabulary is not None:
            self._check(vocabulary)

    def _mapped(self) -> NDArray[Any]:
        with opened("TokenFile", self.path) as file:
            header = file.read(4 * HEADER)
        mark = np.frombuffer(header[:12].ljust(12, b"\0"), "<i4").tolist()
        known = HEADERS.get((mark[0], mark[1])) if len(header) == 4 * HEADER else None
        kind, start = np.dtype(known or self.dtype).newbyteorder("<"), 4 * HEADER if known else 0
        nbytes = os.path.getsize(self.path) - start
        expected = mark[2] * kind.itemsize if known else nbytes - nbytes % kind.itemsize
        if nbytes != expected:
            hint = "make it again" if known else 'dtype="uint16" or "uint32", as it was written'
            bytes_of = f"has {nbytes:,} bytes of tokens of {kind.itemsize}, not {expected:,}"
            raise DataError(f"TokenFile: {self.path}: {bytes_of}: it is cut.", hint)
        return np.memmap(self.path, kind, "r", offset=start) if nbytes else np.zeros(0, kind)

    def _check(self, vocabulary: int) -> None:
        for start in range(0, len(self.tokens_N), CHECKED):
            part = self.tokens_N[start : start + CHECKED]
            if part.max() >= vocabulary:
                place = start + int(np.argmax(part >= vocabulary))
                fact = f"TokenFile: {self.path}: token {place:,} is {self.tokens_N[place]:,}"
                hint = "give the vocabulary it was written with, or another dtype"
                raise DataError(f"{fact}, beyond a vocabulary of {vocabulary:,}.", hint)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "tokens_N": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.tokens_N = self._mapped()

    def __len__(self) -> int:
        return (len(self.tokens_N) - self.block - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        if not -len(self) <= index < len(self):
            raise IndexingError(f"TokenFile: window {index} is out of range for {len(self)} windows.")
        tokens_1T, targets_1T = self._windows([index % len(self)])
        return tokens_1T[0], targets_1T[0]

    def batch(self, numbers: Sequence[int]) -> list[Tensor]:
        """Returns the windows of these numbers, (B, T), and their targets.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "train.bin")
        >>> np.arange(7, dtype=np.uint16).tofile(path)
        >>> [part.tolist() for part in data.TokenFile(path, block=2, stride=1).batch([4, 0])]
        [[[4, 5], [0, 1]], [[5, 6], [1, 2]]]
        """
        return [Tensor(part) for part in self._windows(numbers)]

    def _windows(self, numbers: Sequence[int]) -> Any:
        return windows_at(self.tokens_N, np.asarray(numbers, np.int64) * self.stride, self.block)
