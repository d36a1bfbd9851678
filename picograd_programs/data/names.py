"""names.txt: 32,033 first names, one a line, and their forms as a character model's inputs.

In:    names.txt, from the first source that has it (picograd_programs/data/fetch.py)
Out:   a list of names; pairs and context windows of character numbers
Source: Karpathy, makemore; the split and the windows are its lectures', the other split its script's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from picograd.errors import DataError
from picograd_programs.data.fetch import DataFile, get_files

NAMES_FILE = DataFile(
    "names.txt",
    "0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
    ("https://raw.githubusercontent.com/karpathy/makemore/master/names.txt",),
)
CHARACTERS = ".abcdefghijklmnopqrstuvwxyz"  # "." comes before and after every name
SCRIPT_SEED, SCRIPT_TESTED = 3407, 1000  # of makemore's script
NUMBER_OF = {character: number for number, character in enumerate(CHARACTERS)}


class Windows(NamedTuple):
    """Contexts and the character after each.

    contexts:  (N, T)  int32   character numbers
    targets:   (N,)    int32   character numbers
    """

    contexts: NDArray[np.int32]
    targets: NDArray[np.int32]


class Sequences(NamedTuple):
    """Whole names, and the character after each of theirs.

    tokens:   (N, T)  int32   character numbers, dots after the end
    targets:  (N, T)  int32   character numbers, -1 after the end
    """

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]


def load_names() -> list[str]:
    """Returns the 32,033 names in the order of the file.

    Raises:
      DataError: the file is corrupt, or no source has it.
    """
    return get_files("names", [NAMES_FILE])["names.txt"].decode("ascii").split()


def encode(text: str) -> list[int]:
    """Returns the numbers of characters.

    Raises:
      DataError: a character is not one of the 27.

    >>> encode("emma.")
    [5, 13, 13, 1, 0]
    """
    unknown = sorted(set(text) - set(CHARACTERS))
    if unknown:
        raise DataError(f"encode: {text!r} has {unknown[0]!r}; the characters of names are '.' and 'a' to 'z'.")
    return [NUMBER_OF[character] for character in text]


def decode(numbers: Sequence[int]) -> str:
    """Returns the characters of numbers.

    >>> decode([5, 13, 13, 1, 0])
    'emma.'
    """
    return "".join(CHARACTERS[number] for number in numbers)


def bigrams(names: Sequence[str]) -> Windows:
    """Returns all adjacent pairs of characters, each name between two dots, as windows of one character.

    Returns:   contexts (N, 1), targets (N,)  int32
    """
    return windows(names, 1)


def windows(names: Sequence[str], block: int = 3) -> Windows:
    """Returns every context of `block` characters with the next character; names start after dots.

    Args:
      block:  T, characters of context

    Returns:  contexts (N, T), targets (N,)  int32, N = sum of len(name) + 1

    >>> [decode(context) for context in windows(["emma"]).contexts]
    ['...', '..e', '.em', 'emm', 'mma']
    """
    contexts: list[list[int]] = []
    targets: list[int] = []
    for name in names:
        numbers = [0] * block + encode(name) + [0]
        contexts += [numbers[i : i + block] for i in range(len(name) + 1)]
        targets += numbers[block:]
    return Windows(np.array(contexts, np.int32).reshape(-1, block), np.array(targets, np.int32))


def sequences(names: Sequence[str]) -> Sequences:
    """Returns every name with a dot before and after it, padded to the longest.

    >>> tokens, targets = sequences(["ann", "bo"])
    >>> [decode(row) for row in tokens], targets.tolist()
    (['.ann', '.bo.'], [[1, 14, 14, 0], [2, 15, 0, -1]])
    """
    length = max((len(name) for name in names), default=0) + 1
    tokens, targets = np.zeros((len(names), length), np.int32), np.full((len(names), length), -1, np.int32)
    for row, name in enumerate(names):
        numbers = [0, *encode(name), 0]
        tokens[row, : len(name) + 1] = numbers[:-1]
        targets[row, : len(name) + 1] = numbers[1:]
    return Sequences(tokens, targets)


def split(names: Sequence[str], seed: int = 42) -> tuple[list[str], list[str], list[str]]:
    """Returns the names shuffled and split into 80 % for training, 10 % for development, 10 % for tests.

    >>> [len(part) for part in split(["ann"] * 100)]
    [80, 10, 10]
    """
    shuffled = list(names)
    random.Random(seed).shuffle(shuffled)
    first, second = int(0.8 * len(shuffled)), int(0.9 * len(shuffled))
    return shuffled[:first], shuffled[first:second], shuffled[second:]


def split_of_script(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the names for training and tests by makemore's script: 1,000 random names for tests.

    The order is that of torch.randperm after torch.manual_seed(3407), on a CPU.

    >>> [len(part) for part in split_of_script(["ann"] * 3000)]
    [2700, 300]
    """
    order = list(range(len(names)))
    drawn = np.random.RandomState(SCRIPT_SEED).randint(0, 2**32, len(names), dtype=np.uint32).tolist()
    for place, number in enumerate(drawn[:-1]):
        other = place + number % (len(names) - place)
        order[place], order[other] = order[other], order[place]
    kept = min(SCRIPT_TESTED, len(names) // 10)
    return [names[each] for each in order[:-kept]], [names[each] for each in order[-kept:]]


def divided(names: Sequence[str], division: str) -> tuple[list[str], list[str], list[str]]:
    """Returns the names for training, development and tests, split as in makemore's "lectures" or its "script".

    The script uses the same names for development and tests.
    """
    if division == "lectures":
        return split(names)
    train, test = split_of_script(names)
    return train, test, test
