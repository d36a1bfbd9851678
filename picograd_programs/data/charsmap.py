"""SentencePiece's normalizer: a map from strings to strings, compiled into a trie, in the form of tokenizer.json.

    4 bytes, the length of the trie | the trie, units of 4 bytes | the replacements, each followed by a 0

A unit of the trie has the byte of its edge, an offset to its children, and a flag for the end of a key; then the child of
byte 0 has the number of the replacement.

Source: Kudo, Richardson 2018, arXiv:1808.06226, section 3.3; Yata, darts-clone (the units); Hugging Face, tokenizers
       (the part `Precompiled`: clusters of letters first, then letters); Unicode, UAX 29, table 1b (clusters).
"""

from __future__ import annotations

import base64
import binascii
import unicodedata
from collections.abc import Iterator

import numpy as np

from picograd.errors import DataError

LABEL_BITS = 1 << 31 | 0xFF
CLUSTER_NBYTES_MAX = 5  # a longer cluster is replaced letter by letter
MARKS = ("Mn", "Me", "Mc")
CONTROLS = ("Cc", "Cf", "Zl", "Zp")
EXTENDS = frozenset("\u200c\u200d\uff9e\uff9f\u0e33\u0eb3") | {chr(code) for code in range(0x1F3FB, 0x1F400)}  # like marks
BEGINS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e")  # part of the next letter
APART = frozenset(  # marks of Myanmar, Tai Tham and Ahom that are their own letters
    "\u102b\u102c\u1038\u1062\u1063\u1064\u1067\u1068\u1069\u106a\u106b\u106c\u106d\u1083\u1087\u1088\u1089\u108a"
    "\u108b\u108c\u108f\u109a\u109b\u109c\u1a61\u1a63\u1a64\uaa7b\uaa7d\U00011720\U00011721"
)


class CharsMap:
    """The map of a `precompiled_charsmap`, string -> string.

    Raises:
      DataError: the data are invalid.
    """

    def __init__(self, packed: str):
        try:
            data = base64.b64decode(packed, validate=True)
        except (binascii.Error, ValueError):
            raise DataError("its Precompiled has a precompiled_charsmap that is not base64.") from None
        nbytes = int.from_bytes(data[:4], "little")
        if len(data) < 4 or nbytes % 4 or not 0 < nbytes <= len(data) - 4:
            raise DataError(f"its Precompiled has a precompiled_charsmap of {len(data):,} bytes, which is damaged.")
        self.units: list[int] = np.frombuffer(data[4 : 4 + nbytes], "<u4").tolist()
        self.texts = data[4 + nbytes :]
        self.known: dict[str, str | None] = {}  # cache of letters and clusters

    def __call__(self, text: str) -> str:
        """Returns a text with those clusters and letters replaced that the map contains."""
        return "".join([self._replaced(cluster) for cluster in clusters(text)])

    def _replaced(self, cluster: str) -> str:
        found = self._found(cluster) if len(cluster.encode()) <= CLUSTER_NBYTES_MAX else None
        if found is not None:
            return found
        each = [(letter, self._found(letter)) for letter in cluster]
        return "".join([letter if found is None else found for letter, found in each])

    def _found(self, key: str) -> str | None:
        if key not in self.known:
            self.known[key] = self._looked_up(key.encode())
        return self.known[key]

    def _looked_up(self, key: bytes) -> str | None:
        """Returns the replacement of the shortest prefix of a key in the map."""
        node = self._children(0, 0)
        for byte in key:
            node ^= byte
            if not byte or node >= len(self.units) or self.units[node] & LABEL_BITS != byte:
                return None
            ends, node = self.units[node] >> 8 & 1, self._children(node, node)
            if ends and node < len(self.units):
                start = self.units[node] & 0x7FFFFFFF
                return self.texts[start : self.texts.find(b"\0", start)].decode("utf-8", "replace")
        return None

    def _children(self, unit: int, node: int) -> int:
        """Returns the position of a unit's children, that of byte 0."""
        value = self.units[unit]
        return node ^ (value >> 10) << ((value & 1 << 9) >> 6)


def clusters(text: str) -> Iterator[str]:
    """Yields the grapheme clusters of a text.

    Clusters above five bytes may be split: Hangul, flags and joined emoji are.

    >>> list(clusters("e\\u0301a\\r\\n"))
    ['e\u0301', 'a', '\\r\\n']
    """
    if text.isascii() and "\r" not in text:
        yield from text
        return
    first = 0
    for place in range(1, len(text) + 1):
        if place < len(text) and _joins(text[place - 1], text[place]):
            continue
        yield text[first:place]
        first = place


def _joins(before: str, letter: str) -> bool:
    if before == "\r" and letter == "\n":
        return True
    if _is_control(before) or _is_control(letter):
        return False
    return before in BEGINS or letter in EXTENDS or unicodedata.category(letter) in MARKS and letter not in APART


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) in CONTROLS and letter not in EXTENDS and letter not in BEGINS
