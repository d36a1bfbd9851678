"""Names to learn from: those of a file, or invented ones, so that a program runs where there is no network.

    words("names.txt")     # one name a line, as makemore's
    words()                # names.txt in the folder that PICOGRAD_DATA names; else 2,000 names from syllables
"""

import os
import random
from pathlib import Path

SYLLABLES = ("a", "an", "el", "ia", "is", "ka", "la", "len", "lo", "ma", "mi", "na", "ne", "ni", "on", "ra", "ta", "yn")
CHARACTERS = ".abcdefghijklmnopqrstuvwxyz"  # the dot begins and ends a name


def words(path=None, seed=0):
    """Returns a list of names, of the letters a to z."""
    file = Path(path or Path(os.environ.get("PICOGRAD_DATA", "."), "names.txt"))
    if path or file.exists():
        return file.read_text().split()
    rng = random.Random(seed)
    return ["".join(rng.choices(SYLLABLES, k=rng.choice([2, 2, 3, 3, 4]))) for _ in range(2000)]


def windows(names, T):
    """Returns every context of T characters and the character that follows it, as numbers: lists of N."""
    contexts, targets = [], []
    for name in names:
        numbers = [0] * T + [CHARACTERS.index(c) for c in name] + [0]
        for i in range(len(name) + 1):
            contexts.append(numbers[i : i + T])
            targets.append(numbers[i + T])
    return contexts, targets
