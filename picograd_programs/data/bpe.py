"""Byte-level BPE: text as numbers of tokens and back, with the vocabulary and the merges of a GGUF file.

A text is cut into words by a pattern. The bytes of a word are symbols; the neighbours that the merges have first become one
symbol, again and again; what is left are tokens. Control tokens, such as the end of a turn, are given by name only: text
that a person writes never becomes one.

Source: Sennrich, Haddow, Birch 2016, arXiv:1508.07909 (merges); Radford et al. 2019, "Language models are unsupervised
       multitask learners" (bytes, the first pattern).
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from picograd.errors import DataError

# ---- words ----
ENDINGS = "'(?:[stmd]|re|ve|ll)"
LETTERS, OTHERS, SPACES = " ?[A-Za-z]+", r" ?[^\sA-Za-z0-9]+", r"\s+(?!\S)|\s+"
# Patterns by the name that `tokenizer.ggml.pre` has, for text whose characters beyond ASCII are replaced by some of their
# class (`in_ascii`), since Python's `re` knows no classes of letters.
MODERN = rf"(?i:{ENDINGS})|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]%s| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|{SPACES}"
PATTERNS = {
    "gpt-2": f"{ENDINGS}|{LETTERS}| ?[0-9]+|{OTHERS}|{SPACES}",
    "smollm": rf"[0-9]|{ENDINGS}|{LETTERS}|{OTHERS}|\s+(?![^\s0-9])|\s+",  # a digit ends the text before it
    "llama-bpe": MODERN % "{1,3}",
    "qwen2": MODERN % "",
}
PATTERNS["default"] = PATTERNS["gpt-2"]


def in_ascii(text: str) -> str:
    """Returns a text of the same length and classes: letters beyond ASCII as "x", numbers "0", spaces tabs, others "!".

    >>> in_ascii("Größe ½ – 5")
    'Grxxe 0 ! 5'
    """
    return "".join([character if character < "\x80" else class_of(character) for character in text])


@lru_cache(maxsize=4096)
def class_of(character: str) -> str:
    """Returns the character that stands for a class."""
    kind = unicodedata.category(character)[0]
    return {"L": "x", "N": "0"}.get(kind) or ("\t" if character.isspace() else "!")


def letters_of_bytes() -> list[str]:
    """Returns the character that each byte has in a vocabulary: itself if it is visible, else one from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]


LETTER_OF = letters_of_bytes()
BYTE_OF = {letter: byte for byte, letter in enumerate(LETTER_OF)}
NORMAL, CONTROL = 1, 3  # kinds of tokens in `tokenizer.ggml.token_type`


class Tokenizer:
    """Text as numbers of tokens and back.

    Args:
      tokens:   the vocabulary; the number of a token is its place
      merges:   pairs of neighbours "a b", those that become one symbol first
      kinds:    of each token: 1 is text, 3 a control token
      pattern:  name of the one that cuts words: "smollm"

    Raises:
      DataError: a merge is no pair, kinds are not as many as tokens, or there is no such pattern.

    >>> letters = [*LETTER_OF, "lo", "low", "<end>"]
    >>> tokenizer = Tokenizer(letters, ["l o", "lo w"], [1] * 258 + [3], "gpt-2")
    >>> [letters[number] for number in tokenizer.encode("low lower")]
    ['low', 'Ġ', 'low', 'e', 'r']
    >>> tokenizer.decode(tokenizer.encode("löwe <end>"))
    'löwe <end>'
    """

    def __init__(self, tokens: list[str], merges: list[str], kinds: Iterable[int], pattern: str):
        self.tokens, self.kinds = tokens, list(kinds)
        if len(self.kinds) != len(tokens):
            raise DataError(f"the file has {len(tokens):,} tokens and kinds of {len(self.kinds):,}.")
        if pattern not in PATTERNS:
            raise DataError(f"the file cuts words by the pattern {pattern[:40]!r}; {', '.join(PATTERNS)} are known.")
        self.pattern = re.compile(PATTERNS[pattern], re.ASCII)
        self.number_of = {token: number for number, token in enumerate(tokens) if self.kinds[number] == NORMAL}
        self.control = {token: number for number, token in enumerate(tokens) if self.kinds[number] == CONTROL}
        pairs = [tuple(merge.split(" ")) for merge in merges]
        if wrong := [merge for merge, pair in zip(merges, pairs) if len(pair) != 2]:
            raise DataError(f"the file has the merge {wrong[0][:40]!r}, which is no pair.")
        self.rank_of = {pair: rank for rank, pair in enumerate(pairs)}
        self.known: dict[str, list[int]] = {}  # words that were met

    # ---- text -> numbers ----
    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, none of which is a control token.

        Raises:
          DataError: the vocabulary lacks a byte of the text.
        """
        text = text.encode("utf-8", "replace").decode()  # half a surrogate pair has no bytes
        numbers: list[int] = []
        for match in self.pattern.finditer(in_ascii(text)):
            word = text[match.start() : match.end()]
            if word not in self.known:
                self.known[word] = self._numbers_of(word)
            numbers += self.known[word]
        return numbers

    def _numbers_of(self, word: str) -> list[int]:
        symbols = self.merged([LETTER_OF[byte] for byte in word.encode()])
        try:
            return [self.number_of[symbol] for symbol in symbols]
        except KeyError as error:
            raise DataError(f"the vocabulary has no token for {error.args[0]!r}, a part of {word[:40]!r}.") from None

    def merged(self, symbols: list[str]) -> list[str]:
        """Returns symbols with neighbours joined, in the order of the merges, until none of them applies."""
        while len(symbols) > 1:
            pairs = set(zip(symbols, symbols[1:]))
            best = min(pairs, key=lambda pair: self.rank_of.get(pair, len(self.rank_of)))
            if best not in self.rank_of:
                break
            joined: list[str] = []
            for symbol in symbols:
                if joined and (joined[-1], symbol) == best:
                    joined[-1] += symbol
                else:
                    joined.append(symbol)
            symbols = joined
        return symbols

    # ---- numbers -> text ----
    def bytes_of(self, number: int) -> bytes:
        """Returns the bytes of a token; a control token has none."""
        token = self.tokens[number]
        if self.kinds[number] == CONTROL:
            return b""
        return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in token)

    def decode(self, numbers: Iterable[int]) -> str:
        """Returns the text of some tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.bytes_of, numbers)).decode("utf-8", "replace")

    def stream(self) -> Stream:
        """Returns a decoder of tokens that come one by one."""
        return Stream(self)


class Stream:
    """Text of tokens that come one by one: a character is given when all its bytes are there."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer, self.decoder = tokenizer, codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, number: int) -> str:
        """Returns the characters that a token completes."""
        return self.decoder.decode(self.tokenizer.bytes_of(number))

    def rest(self) -> str:
        """Returns the rest at the end: U+FFFD for half a character."""
        return self.decoder.decode(b"", final=True)


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer:
    """Returns the tokenizer of a GGUF file.

    Raises:
      DataError: it is of another kind, or damaged.
    """

    def entry(name: str, kind: type, default: Any = None) -> Any:
        value = metadata.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, kind):
            raise DataError(f"the file's tokenizer.ggml.{name} is {str(value)[:40]}; a {kind.__name__} is needed.")
        return value

    model = entry("model", str)
    if model != "gpt2":
        raise DataError(f"the file has a tokenizer of kind {model[:40]!r}; byte-level BPE, gpt2, is run.")
    tokens, merges = entry("tokens", list), entry("merges", list)
    kinds = entry("token_type", np.ndarray, np.full(len(tokens), NORMAL))
    return Tokenizer(tokens, merges, kinds.tolist(), entry("pre", str, "default"))
