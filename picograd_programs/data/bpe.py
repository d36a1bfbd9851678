"""BPE: encodes text as tokens and decodes it, with the vocabulary of a GGUF file.

A text is a sequence of symbols; the adjacent pair of the least rank becomes one symbol, again and again; the remaining
symbols are tokens. There are two families: one splits a text into words by a pattern and uses their bytes as symbols, with
ranks by a list of pairs; the other uses the characters of the whole text, with ranks by scores of tokens. Control tokens,
such as the end of a turn, are given by name only: a user's text never becomes one.

Source: Sennrich, Haddow, Birch 2016, arXiv:1508.07909 (merges); Radford et al. 2019, "Language models are unsupervised
       multitask learners" (bytes, the first pattern).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from heapq import heappop, heappush

from picograd.errors import DataError
from picograd_programs.data.patterns import compiled

TEXT, CONTROL, WHOLE, BYTE = 1, 3, 4, 6  # kinds of tokens in `tokenizer.ggml.token_type`


# ---- words ----
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MODERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
OF_CASES = (  # a word ends before a capital letter
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+%s|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*%s"
    r"|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {  # by the name in `tokenizer.ggml.pre`
    "gpt-2": GPT_2,
    "smollm": r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+",  # digits separate texts
    "llama-bpe": MODERN % "{1,3}",
    "qwen2": MODERN % "",
    "gpt-4o": OF_CASES % (SHORT, SHORT, "{1,3}"),
    "tekken": OF_CASES % ("", "", ""),
}
ALIASES = {  # other names of files with the same splitting
    "gpt-2": ("default", "olmo", "mpt", "phi-2"), "smollm": ("starcoder", "refact", "codeshell", "command-r"),
    "llama-bpe": ("dbrx", "smaug-bpe"),
}  # fmt: skip
PATTERNS |= {alias: PATTERNS[name] for name, aliases in ALIASES.items() for alias in aliases}


def letters_of_bytes() -> list[str]:
    """Returns the character of each byte in a vocabulary: itself if it is visible, else one from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]


LETTER_OF = letters_of_bytes()
BYTE_OF = {letter: byte for byte, letter in enumerate(LETTER_OF)}


# ---- tokens ----
class Tokenizer:
    """A vocabulary, which decodes tokens; subclasses encode.

    tokens:       texts of the tokens, by their numbers
    kinds:        kind of each: 1 text, 3 control token, 4 text that is always one token, 6 byte
    control:      numbers of the control tokens
    start, end:   tokens before and after a text that is not a dialogue
    drops_spaces: number of spaces that a decoded text's first token loses, as encoding adds them

    Raises:
      DataError: the numbers of tokens and kinds differ.
    """

    start: Sequence[int] = ()
    end: Sequence[int] = ()
    drops_spaces = 0

    def __init__(self, tokens: list[str], kinds: Iterable[int]):
        self.tokens, self.kinds = tokens, list(kinds)
        if len(self.kinds) != len(tokens):
            raise DataError(f"the file has {len(tokens):,} tokens and kinds of {len(self.kinds):,}.")
        self.control = {token: number for token, number in self.of_kind(CONTROL).items() if token}

    def of_kind(self, *kinds: int) -> dict[str, int]:
        """Returns the numbers of the tokens of some kinds."""
        return {token: number for number, token in enumerate(self.tokens) if self.kinds[number] in kinds}

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, none of which is a control token.

        Raises:
          DataError: the vocabulary lacks a byte of the text.
        """
        raise NotImplementedError

    def encode_marked(self, text: str, hidden: str = "") -> list[int]:
        """Encodes a text in which the names of control tokens stand for them.

        Args:
          hidden:  is removed from text between control tokens; inside a control token's name, it makes the name plain text

        Raises:
          DataError: as in `encode`.
        """
        numbers: list[int] = []
        for place, part in enumerate(self.marks.split(text)):
            numbers += [self.control[part]] if place % 2 else self.encode(part.replace(hidden, "") if hidden else part)
        return numbers

    @cached_property
    def marks(self) -> re.Pattern[str]:
        """The pattern of control tokens' names, the longest first, as a group."""
        return re.compile(f"({'|'.join(map(re.escape, sorted(self.control, key=len, reverse=True))) or '(?!)'})")

    def bytes_of(self, number: int) -> bytes:
        """Returns the bytes of a token; none for a control token."""
        raise NotImplementedError

    def decode(self, numbers: Iterable[int]) -> str:
        """Decodes tokens; bytes that are not UTF-8 become U+FFFD."""
        stream = self.stream()
        return "".join(map(stream.text, numbers)) + stream.rest()

    def stream(self) -> Stream:
        """Returns a decoder for tokens that arrive one by one."""
        return Stream(self)


class Stream:
    """Decodes tokens one by one; a character is returned when all its bytes have arrived."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer, self.decoder = tokenizer, codecs.getincrementaldecoder("utf-8")("replace")
        self.drops_spaces = tokenizer.drops_spaces

    def text(self, number: int) -> str:
        """Returns the characters that a token completes."""
        data = self.tokenizer.bytes_of(number)
        if data and self.drops_spaces:
            data, self.drops_spaces = data[min(len(data) - len(data.lstrip(b" ")), self.drops_spaces) :], 0
        return self.decoder.decode(data)

    def rest(self) -> str:
        """Returns the rest at the end: U+FFFD for an incomplete character."""
        return self.decoder.decode(b"", final=True)


def merged(symbols: list[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Merges adjacent symbols, the pair of least rank first, the leftmost of equal ones, until no pair has a rank.

    >>> merged(list("abab"), lambda a, b: {"ab": 0, "aba": 1}.get(a + b))
    ['ab', 'ab']
    """
    parts: list[str | None] = [*symbols]  # None for a part merged into the one before it
    after, before = [*range(1, len(parts) + 1)], [*range(-1, len(parts) - 1)]
    waiting: list[tuple[float, int, str, str]] = []

    def consider(i: int) -> None:
        if i < 0 or after[i] >= len(parts):
            return
        left, right = parts[i], parts[after[i]]
        if left is not None and right is not None and (found := rank(left, right)) is not None:
            heappush(waiting, (found, i, left, right))

    for i in range(len(parts)):
        consider(i)
    while waiting:
        _, i, left, right = heappop(waiting)
        j = after[i]
        if parts[i] != left or j >= len(parts) or parts[j] != right:
            continue  # one of them has been merged since
        parts[i], parts[j], after[i] = left + right, None, after[j]
        if after[j] < len(parts):
            before[after[j]] = i
        consider(before[i])
        consider(i)
    return [part for part in parts if part is not None]


# ---- words of bytes, with ranked pairs ----
class ByteLevel(Tokenizer):
    """Byte-level BPE: words as bytes, joined by merges.

    Args:
      tokens, kinds:  as in Tokenizer
      merges:         adjacent pairs "a b", in the order of their ranks
      pattern:        name of the pattern that splits words: "smollm"
      takes_words:    a word that is a token becomes it, regardless of merges; None: for the patterns of Llama 3 and Nemo

    Raises:
      DataError: as in Tokenizer; or a merge is not a pair, or the pattern is unknown.

    >>> letters = [*LETTER_OF, "lo", "low", "<end>"]
    >>> tokenizer = ByteLevel(letters, ["l o", "lo w"], [1] * 258 + [3], "gpt-2")
    >>> [letters[number] for number in tokenizer.encode("low lower")]
    ['low', 'Ġ', 'low', 'e', 'r']
    >>> tokenizer.decode(tokenizer.encode("löwe <end>"))
    'löwe <end>'
    """

    def __init__(
        self, tokens: list[str], merges: list[str], kinds: Iterable[int], pattern: str, takes_words: bool | None = None
    ):
        super().__init__(tokens, kinds)
        if pattern not in PATTERNS:
            raise DataError(f"the file cuts words by the pattern {pattern[:40]!r}; {', '.join(PATTERNS)} are known.")
        self.cut, self.pattern = pattern, compiled(PATTERNS[pattern])
        self.takes_words = pattern in ("llama-bpe", "tekken") if takes_words is None else takes_words
        self.number_of = self.of_kind(TEXT)
        pairs = [tuple(merge.split(" ")) for merge in merges]
        if wrong := [merge for merge, pair in zip(merges, pairs) if len(pair) != 2]:
            raise DataError(f"the file has the merge {wrong[0][:40]!r}, which is not a pair.")
        self.rank_of = {pair: rank for rank, pair in enumerate(pairs)}
        self.known: dict[str, list[int]] = {}  # cache of words

    def encode(self, text: str) -> list[int]:
        """As Tokenizer."""
        text = text.encode("utf-8", "replace").decode()  # lone surrogates have no bytes
        numbers: list[int] = []
        for word in self.pattern.findall(text):
            if word not in self.known:
                self.known[word] = self._numbers_of(word)
            numbers += self.known[word]
        return numbers

    def _numbers_of(self, word: str) -> list[int]:
        letters = [LETTER_OF[byte] for byte in word.encode()]
        if self.takes_words and "".join(letters) in self.number_of:
            return [self.number_of["".join(letters)]]
        symbols = merged(letters, lambda a, b: self.rank_of.get((a, b)))
        try:
            return [self.number_of[symbol] for symbol in symbols]
        except KeyError as error:
            raise DataError(f"the vocabulary has no token for {error.args[0]!r}, a part of {word[:40]!r}.") from None

    def bytes_of(self, number: int) -> bytes:
        """As Tokenizer."""
        if self.kinds[number] == CONTROL:
            return b""
        return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in self.tokens[number])


# ---- characters, with scored tokens ----
SPACE = "\u2581"  # replaces spaces in SentencePiece's vocabularies


class Pieces(Tokenizer):
    """SentencePiece's BPE: characters of a whole text; the adjacent pair that forms the token of highest score is merged.

    A character without a token is written as its bytes.

    Args:
      tokens, kinds:  as in Tokenizer
      scores:         score of each token
      adds_space:     a space is added before a text

    Raises:
      DataError: as in Tokenizer; or the numbers of scores and tokens differ.

    Source: Kudo, Richardson 2018, arXiv:1808.06226.

    >>> tokenizer = Pieces(["a", "b", "ab", SPACE, "<0xC3>", "<0xA4>"], [1, 1, 1, 1, 6, 6], [0, 0, -1, -2, 0, 0], False)
    >>> tokenizer.encode("ab bä")
    [2, 3, 1, 4, 5]
    >>> tokenizer.decode([2, 3, 1, 4, 5])
    'ab bä'
    """

    def __init__(self, tokens: list[str], kinds: Iterable[int], scores: Sequence[float], adds_space: bool):
        super().__init__(tokens, kinds)
        if len(scores) != len(tokens):
            raise DataError(f"the file has {len(tokens):,} tokens and scores of {len(scores):,}.")
        self.scores, self.adds_space = scores, adds_space
        self.number_of, self.byte_of = self.of_kind(TEXT, WHOLE), self.of_kind(BYTE)
        wholes = sorted(filter(None, self.of_kind(WHOLE)), key=len, reverse=True)
        self.wholes = re.compile(f"({'|'.join(map(re.escape, wholes)) or '(?!)'})")

    def encode(self, text: str) -> list[int]:
        """As Tokenizer."""
        text = text.encode("utf-8", "replace").decode()
        text = " " + text if self.adds_space and text else text
        numbers: list[int] = []
        for place, part in enumerate(self.wholes.split(text)):
            symbols = [part] if place % 2 else merged([*part.replace(" ", SPACE)], self._rank)
            for symbol in symbols:
                numbers += self._numbers_of(symbol)
        return numbers

    def _rank(self, left: str, right: str) -> float | None:
        number = self.number_of.get(left + right)
        return None if number is None else -self.scores[number]

    def _numbers_of(self, symbol: str) -> list[int]:
        if symbol in self.number_of:
            return [self.number_of[symbol]]
        try:
            return [self.byte_of[f"<0x{byte:02X}>"] for byte in symbol.encode()]
        except KeyError as error:
            raise DataError(f"the vocabulary has no token for {symbol!r}, nor {error.args[0]}.") from None

    def bytes_of(self, number: int) -> bytes:
        """As Tokenizer."""
        token, kind = self.tokens[number], self.kinds[number]
        if kind == CONTROL:
            return b""
        if kind == BYTE and re.fullmatch("<0x[0-9A-F]{2}>", token):
            return bytes.fromhex(token[3:5])
        return token.replace(SPACE, " ").encode("utf-8", "replace")
