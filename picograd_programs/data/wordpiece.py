"""WordPiece: splits words into the longest pieces of a vocabulary, as in BERT.

Source: Devlin et al. 2018, arXiv:1810.04805, section 3; Wu et al. 2016, arXiv:1609.08144, section 4.1.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Container

UNKNOWN, START, END, PADDING = "[UNK]", "[CLS]", "[SEP]", "[PAD]"
INSIDE = "##"  # prefix of pieces inside a word
WORD_LETTERS_MAX = 100  # longer words are unknown
# Chinese characters, each its own word: blocks of CJK ideographs (Unicode 15, "CJK Unified Ideographs").
IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def pieces_of(
    word: str, vocabulary: Container[str], unknown: str = UNKNOWN, inside: str = INSIDE, longest: int = WORD_LETTERS_MAX
) -> list[str]:
    """Returns the pieces of a word, the longest first; one unknown piece if it has no splitting.

    Args:
      inside:   prefix of pieces that do not start a word
      longest:  letters of the longest word that is split

    >>> pieces_of("played", {"play", "##ed"})
    ['play', '##ed']
    """
    pieces: list[str] = []
    begin = 0
    while begin < len(word) <= longest:
        prefix = inside if begin else ""
        ends = range(len(word), begin, -1)
        end = next((end for end in ends if prefix + word[begin:end] in vocabulary), None)
        if end is None:
            return [unknown]
        pieces.append(prefix + word[begin:end])
        begin = end
    return pieces if len(word) <= longest else [unknown]


def spaced(text: str, cleans: bool = True, spaces: bool = True) -> str:
    """Returns a text with spaces around ideographs (`spaces`), and without control characters (`cleans`)."""
    return "".join(
        f" {letter} " if spaces and _is_ideograph(letter) else _cleaned(letter) if cleans else letter for letter in text
    )


def without_accents(text: str) -> str:
    """Removes the accents of letters."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if unicodedata.category(letter) != "Mn")


def _cleaned(letter: str) -> str:
    """Returns a letter, a space for any white space, and nothing for a control character."""
    if letter in "\t\n\r" or unicodedata.category(letter) == "Zs":
        return " "
    return "" if letter in "\0\ufffd" or unicodedata.category(letter) in ("Cc", "Cf", "Co") else letter


def _is_ideograph(letter: str) -> bool:
    return any(low <= ord(letter) <= high for low, high in IDEOGRAPHS)


def is_punctuation(letter: str) -> bool:
    """Returns whether a character is punctuation; ASCII's symbols count, too."""
    return letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " " or (
        unicodedata.category(letter).startswith("P")
    )  # fmt: skip
