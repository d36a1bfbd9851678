"""Training texts: their sources, their characters as numbers, and batches.

In:    a name or a file
Out:   a string; a `Vocabulary`; arrays of character numbers, in windows
Source: Karpathy, nanoGPT: the first 90 % of a text for training, the rest for validation; batches at random positions.

Letters: N characters, B batch, T positions.
"""

from __future__ import annotations

import codecs
import shlex
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from picograd.errors import DataError
from picograd.files import read_whole
from picograd.record import Record
from picograd_programs.data.fetch import DataFile, get_files

SHAKESPEARE_FILE = DataFile(
    "tinyshakespeare.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
)
MARKS = {  # the longer first: UTF-32's mark starts with UTF-16's
    codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16",
}  # fmt: skip
PYTHON_NBYTES = 4 * 2**20  # approximate amount of source; the last file is whole
# Tables, programs and tests: tables contain little text, some distributions of Python lack the others.
SKIPPED = frozenset({"encodings", "pydoc_data", "distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtledemo"})
SKIPPED_FOLDERS = frozenset({"test", "tests", "__pycache__", "site-packages", "dist-packages"})


# ---- where text comes from ----
def load_text(name: str) -> str:
    """Returns a text: "python", the source of the standard library; "shakespeare", 1.1 MB of plays; or a file's contents.

    Raises:
      DataError: the file cannot be read, is empty, or is not UTF-8; or no source has the text.
    """
    if name == "python":
        return python_source(Path(sysconfig.get_paths()["stdlib"]))
    if name == "shakespeare":
        return get_files("shakespeare", [SHAKESPEARE_FILE])["tinyshakespeare.txt"].decode("ascii")
    return read_text(Path(name))


def read_text(path: Path) -> str:
    """Returns the characters of a UTF-8 file, with newlines as the only line ends.

    Raises:
      DataError: the file cannot be read, is empty, or is not UTF-8; the message names the first invalid byte.
    """
    data = read_whole("--text", path, 'name a text file, or "python" or "shakespeare".')
    if not data:
        raise DataError(f"--text: {path}: is empty.")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"--text: {path}: not UTF-8: byte {error.start:,} is 0x{data[error.start]:02x} ({error.reason}).",
            hint=f"iconv -f {encoding_of(data)} -t utf-8 {shlex.quote(str(path))} converts it.",
        ) from None


def encoding_of(data: bytes) -> str:
    """Guesses the encoding of a text that is not UTF-8, by iconv's name.

    Byte order marks identify UTF-16 and UTF-32; without one, zero bytes identify UTF-16, as other texts have none.

    >>> encoding_of("Käse".encode("utf-16")), encoding_of("Käse".encode("utf-16-be")), encoding_of("Käse".encode("latin1"))
    ('UTF-16', 'UTF-16BE', 'LATIN1')
    """
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return encoding
    if 0 not in data:
        return "LATIN1"
    return "UTF-16LE" if data[1::2].count(0) > data[::2].count(0) else "UTF-16BE"


def python_source(folder: Path) -> str:
    """Returns source files of the standard library, in the order of their names, about 4 MiB.

    The text is the same for each build of Python. Files with other characters than ASCII are omitted.

    Raises:
      DataError: the library's source files are missing.
    """
    parts: list[str] = []
    nbytes = 0
    for path in _source_files(folder, sys.stdlib_module_names):
        if nbytes >= PYTHON_NBYTES:
            break
        data = read_whole("python_source", path)
        if data.isascii():
            parts.append(data.decode("ascii").replace("\r\n", "\n"))
            nbytes += len(data)
    if not parts:
        raise DataError(f"{folder}: has no source of the standard library.", hint="--text FILE names another text.")
    return "".join(parts)


def _source_files(folder: Path, modules: Iterable[str]) -> Iterable[Path]:
    for module in sorted(set(modules) - SKIPPED):
        if (folder / f"{module}.py").is_file():
            yield folder / f"{module}.py"
        else:
            inside = (path.relative_to(folder) for path in (folder / module).rglob("*.py"))
            yield from (folder / path for path in sorted(inside) if SKIPPED_FOLDERS.isdisjoint(path.parts))


# ---- characters as numbers ----
class Vocabulary(Record):
    """The characters that a model knows, with their positions as numbers.

    characters:  distinct, in the order of their code points

    >>> Vocabulary.of("hello").characters
    'ehlo'
    """

    characters: str

    @staticmethod
    def of(text: str) -> Vocabulary:
        """Returns the vocabulary of all characters of a text."""
        return Vocabulary("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> NDArray[np.int32]:
        """Returns the numbers of characters, (N,) int32.

        Raises:
          DataError: a character is not in the vocabulary.

        >>> Vocabulary("ehlo").encode("hello").tolist()
        [1, 0, 2, 2, 3]
        """
        known, wanted = _code_points(self.characters), _code_points(text)
        numbers = np.searchsorted(known, wanted).clip(max=len(known) - 1)
        if (known[numbers] != wanted).any():
            first = text[int(np.flatnonzero(known[numbers] != wanted)[0])]
            raise DataError(
                f"encode: {first!r} is not one of the {len(self)} characters of the text: {_shortened(self.characters)}"
            )
        return numbers.astype(np.int32)

    def decode(self, numbers: Iterable[int]) -> str:
        """Returns the characters of numbers.

        >>> Vocabulary("ehlo").decode([1, 0, 2, 2, 3])
        'hello'
        """
        return "".join(self.characters[number] for number in numbers)


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _shortened(characters: str) -> str:
    return repr(characters if len(characters) <= 120 else f"{characters[:117]}...")


# ---- windows ----
class Windows(NamedTuple):
    """Characters, and the next one of each.

    tokens:   (B, T)  int32
    targets:  (B, T)  int32, shifted by one position in the text
    """

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]


def split(tokens_N: NDArray[np.int32], block: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the first 90 % for training, and the rest for validation.

    Args:
      block:  T; both parts must hold a window of so many characters plus the next one

    Raises:
      DataError: the text is too short.
    """
    cut = len(tokens_N) * 9 // 10
    train, validation = tokens_N[:cut], tokens_N[cut:]
    if len(validation) <= block:
        smaller = f", or a --block of {len(validation) - 1} or less" if len(validation) > 1 else ""
        raise DataError(
            f"--text: {len(tokens_N):,} characters are too few: the last tenth, {len(validation):,}, must be longer than "
            f"the block of {block:,}.",
            hint=f"a text of {10 * block + 1:,} characters or more{smaller}",
        )
    return train, validation


def random_windows(tokens_N: NDArray[Any], seed: int, step: int, batch: int, block: int) -> Windows:
    """Returns batch number `step`: windows at random positions that depend only on seed and step.

    >>> random_windows(np.arange(5, dtype=np.int32), 0, 0, 1, 4).targets.tolist()
    [[1, 2, 3, 4]]
    """
    starts_B = np.random.default_rng((seed, step)).integers(0, len(tokens_N) - block, batch)
    return windows_at(tokens_N, starts_B, block)


def spaced_windows(tokens_N: NDArray[Any], num: int, block: int) -> Windows:
    """Returns `num` windows at equal distances, the first at the beginning, the last at the end of the text.

    >>> spaced_windows(np.arange(5, dtype=np.int32), 2, 2).tokens.tolist()
    [[0, 1], [2, 3]]
    """
    return windows_at(tokens_N, np.linspace(0, len(tokens_N) - block - 1, num).astype(np.int64), block)


def windows_at(tokens_N: NDArray[Any], starts_B: NDArray[np.int64], block: int) -> Windows:
    """Returns the windows of `block` characters at given positions."""
    places_BT = starts_B[:, None] + np.arange(block)
    return Windows(*(tokens_N[places].astype(np.int32) for places in (places_BT, places_BT + 1)))
