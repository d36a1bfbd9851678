"""Learns a byte-level BPE from a text: the most frequent adjacent pair becomes one token, again and again.

A text is represented by its distinct words and their counts, since no token crosses the end of a word (bpe.py splits
them). A merge changes only the words with its pair: pairs are counted once, then updated, and the most frequent is on top
of a heap whose entries are checked against the counts when they reach the top.

Source: Sennrich, Haddow, Birch 2016, arXiv:1508.07909, algorithm 1; its section 3.2 (updated counts).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from picograd.errors import ArgumentError, DataError
from picograd_programs.data.bpe import CONTROL, LETTER_OF, PATTERNS, TEXT, ByteLevel
from picograd_programs.data.patterns import compiled

Pair = tuple[int, int]
MET_MIN = 2  # a pair that occurs once is not a pattern


def learned_bpe(
    texts: Iterable[str], vocabulary: int, pattern: str = "smollm", control: Sequence[str] = ("<|endoftext|>",)
) -> ByteLevel:
    """Returns a tokenizer of `vocabulary` tokens: 256 bytes, learned merges, and control tokens.

    Among equally frequent pairs, the one with older tokens is merged first. If no pair occurs twice, the vocabulary stays
    smaller.

    Args:
      texts:       texts in any language
      vocabulary:  V, largest number of tokens
      pattern:     name of a pattern that splits words, in bpe.PATTERNS
      control:     names of control tokens, the last of the vocabulary

    Raises:
      ArgumentError: the vocabulary is too small for the bytes, the control tokens and one merge; the pattern is unknown;
      or a control token occurs twice.
      DataError: the text is empty.

    >>> tokenizer = learned_bpe(["low lower lowest"], 260)
    >>> tokenizer.tokens[256:]
    ['lo', 'low', 'Ġlow', '<|endoftext|>']
    >>> [tokenizer.tokens[number] for number in tokenizer.encode("slow low")]
    ['s', 'low', 'Ġlow']
    """
    least = len(LETTER_OF) + len(control) + 1
    if vocabulary < least:
        raise ArgumentError(
            f"a vocabulary of {vocabulary:,} tokens is too small: 256 bytes, {len(control)} control tokens and one merge"
            f" are {least}."
        )
    if pattern not in PATTERNS:
        raise ArgumentError(f"there is no pattern {pattern!r}; there are {', '.join(PATTERNS)}.")
    if len(set(control)) < len(control):
        raise ArgumentError(f"control tokens must be different, got {', '.join(control)}.")
    counts = words_of(texts, pattern)
    if not counts:
        raise DataError("a vocabulary cannot be learned from an empty text.")
    letters = sorted(LETTER_OF)  # by code point, which also decides ties
    tokens, merges = learned_merges(counts, letters, vocabulary - len(control))
    kinds = [TEXT] * len(tokens) + [CONTROL] * len(control)
    return ByteLevel([*tokens, *control], merges, kinds, pattern)


def words_of(texts: Iterable[str], pattern: str) -> Counter[str]:
    """Returns the count of each word, with bytes written as letters."""
    cut, counts = compiled(PATTERNS[pattern]), Counter[str]()
    for text in texts:
        counts.update(match[0] for match in cut.finditer(text.encode("utf-8", "replace").decode()))
    return Counter({"".join([LETTER_OF[byte] for byte in word.encode()]): num for word, num in counts.items()})


def learned_merges(counts: Counter[str], letters: Sequence[str], most: int) -> tuple[list[str], list[str]]:
    """Returns tokens, the letters first, and the merges "a b" of the others, in order.

    Args:
      counts:   count of each word
      letters:  letters of the words
      most:     largest number of tokens
    """
    tokens, merges = [*letters], list[str]()
    number_of = {token: number for number, token in enumerate(tokens)}
    words = [[number_of[letter] for letter in word] for word in counts]
    met = list(counts.values())
    total: dict[Pair, int] = defaultdict(int)  # count of each pair
    places: dict[Pair, set[int]] = defaultdict(set)  # words that contain a pair now or earlier
    for place, word in enumerate(words):
        for pair in zip(word, word[1:]):
            total[pair] += met[place]
            places[pair].add(place)
    heap = [(-num, pair) for pair, num in total.items()]
    heapify(heap)
    while heap and len(tokens) < most:
        num, pair = heappop(heap)
        if -num != total.get(pair, 0):  # the count was higher when the entry was added
            if total.get(pair, 0) > 0:
                heappush(heap, (-total[pair], pair))
            continue
        if -num < MET_MIN:
            break
        merges.append(f"{tokens[pair[0]]} {tokens[pair[1]]}")
        text = tokens[pair[0]] + tokens[pair[1]]
        token = number_of.setdefault(text, len(tokens))
        if token == len(tokens):
            tokens.append(text)
        grown = set[Pair]()
        for place in places.pop(pair):
            before = words[place]
            words[place] = after = merged_word(before, pair, token)
            for old in zip(before, before[1:]):
                total[old] -= met[place]
            for new in zip(after, after[1:]):
                total[new] += met[place]
                if token in new:
                    places[new].add(place)
                    grown.add(new)
        for new in grown:
            heappush(heap, (-total[new], new))
    return tokens, merges


def merged_word(word: Sequence[int], pair: Pair, token: int) -> list[int]:
    """Returns a word with each occurrence of a pair, from left to right, as one token.

    >>> merged_word([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    out, i = list[int](), 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(token)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out
