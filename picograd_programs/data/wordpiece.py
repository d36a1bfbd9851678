"""WordPiece: words cut into the longest pieces that a vocabulary has, as BERT reads text.

Source: Devlin et al. 2018, arXiv:1810.04805, section 3; Wu et al. 2016, arXiv:1609.08144, section 4.1.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from picograd.errors import DataError

UNKNOWN, START, END, PADDING = "[UNK]", "[CLS]", "[SEP]", "[PAD]"
INSIDE = "##"  # before a piece that does not begin a word
WORD_LETTERS_MAX = 100  # a longer word is unknown
# Chinese characters, each of which is a word: blocks of CJK ideographs (Unicode 15, "CJK Unified Ideographs").
IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class WordPiece:
    """Text as numbers of pieces, between a start and an end.

    vocabulary:  pieces; the number of one is its place

    Raises:
      DataError: the vocabulary lacks a piece that every text needs.

    >>> WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"]).encode("Playing!")
    [2, 4, 5, 6, 3]
    """

    def __init__(self, vocabulary: Sequence[str]):
        self.numbers = {piece: number for number, piece in enumerate(vocabulary)}
        missing = [piece for piece in (UNKNOWN, START, END, PADDING) if piece not in self.numbers]
        if missing:
            raise DataError(f"WordPiece: the vocabulary of {len(vocabulary):,} pieces lacks {missing[0]}.")

    def encode(self, text: str) -> list[int]:
        """Returns the numbers of the pieces of a text, with a start before and an end behind."""
        pieces = [piece for word in words_of(text) for piece in self.pieces_of(word)]
        return [self.numbers[piece] for piece in (START, *pieces, END)]

    def pieces_of(self, word: str) -> list[str]:
        """Returns the pieces of a word, the longest first; one unknown piece where there is no way to cut it."""
        pieces: list[str] = []
        begin = 0
        while begin < len(word) <= WORD_LETTERS_MAX:
            prefix = INSIDE if begin else ""
            ends = range(len(word), begin, -1)
            end = next((end for end in ends if prefix + word[begin:end] in self.numbers), None)
            if end is None:
                return [UNKNOWN]
            pieces.append(prefix + word[begin:end])
            begin = end
        return pieces if len(word) <= WORD_LETTERS_MAX else [UNKNOWN]


def words_of(text: str) -> list[str]:
    """Returns the words of a text in lower case, without accents; each sign of punctuation and ideograph is a word.

    >>> words_of("Café, naïve?")
    ['cafe', ',', 'naive', '?']
    """
    spaced = "".join(f" {letter} " if _is_ideograph(letter) else _cleaned(letter) for letter in text)
    bare = "".join(letter for letter in unicodedata.normalize("NFD", spaced) if unicodedata.category(letter) != "Mn")
    return "".join(f" {letter} " if _is_punctuation(letter) else letter.lower() for letter in bare).split()


def _cleaned(letter: str) -> str:
    """Returns a letter, a space for one of any kind, and nothing for a control character."""
    if letter in "\t\n\r" or unicodedata.category(letter) == "Zs":
        return " "
    return "" if letter in "\0\ufffd" or unicodedata.category(letter) in ("Cc", "Cf", "Co") else letter


def _is_ideograph(letter: str) -> bool:
    return any(low <= ord(letter) <= high for low, high in IDEOGRAPHS)


def _is_punctuation(letter: str) -> bool:
    """All signs of ASCII that are no letters and digits count, too, such as $ and ^."""
    return letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " " or (
        unicodedata.category(letter).startswith("P")
    )  # fmt: skip
