"""tokenizer.json: tokenizers in the format of the tokenizers library, written and read; also GPT-2's two older files.

    text -> parts between added tokens -> normalizer -> words -> model -> numbers of tokens

A file has a program for each arrow, composed of named parts. Each known part is a row of a table here; a file with an
unknown part is refused, as is an unknown setting of a part.

Source: Hugging Face, tokenizers, the file that `Tokenizer.save` writes, version "1.0"; Kudo 2018, arXiv:1804.10959
       (Unigram).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd.files import write_whole
from picograd.record import Record
from picograd_programs.data.bpe import (
    ALIASES,
    BYTE,
    BYTE_OF,
    CONTROL,
    LETTER_OF,
    PATTERNS,
    TEXT,
    WHOLE,
    ByteLevel,
    Tokenizer,
    merged,
)
from picograd_programs.data.charsmap import CharsMap
from picograd_programs.data.patterns import SPACES, compiled
from picograd_programs.data.vocabulary import TOKENS_MAX, Json, check_rows, json_in, numbers_in, text_in
from picograd_programs.data.wordpiece import (
    END,
    PADDING,
    START,
    UNKNOWN,
    is_punctuation,
    pieces_of,
    spaced,
    without_accents,
)

Cut = Callable[[str, bool], list[str]]  # (a text, whether it starts the whole text) -> words
OF_BYTES: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS: Json = {"type": "Digits", "individual_digits": True}
SCORE_MAX = 1e38  # largest score of a piece, so that sums stay finite
UNKNOWN_COST = 10.0  # cost of a character without a piece, below the least score (SentencePiece's kUnkPenalty)
CONTROL_NAME = re.compile(r"<\|\w+\|>")  # the only mark of a control token in vocab.json


def cut_by(pattern: str) -> Json:
    """Returns the parts that split words by a pattern of Oniguruma's."""
    return {"type": "Sequence", "pretokenizers": [*at_each(pattern), {**OF_BYTES, "use_regex": False}]}


def at_each(*patterns: str) -> list[Json]:
    """Returns parts that split at patterns of Oniguruma's, one after the other, and keep all text."""
    around = {"type": "Split", "behavior": "Isolated", "invert": False}
    return [{**around, "pattern": {"Regex": pattern}} for pattern in patterns]


CUTS: dict[str, Json] = {
    "gpt-2": OF_BYTES,
    "smollm": {"type": "Sequence", "pretokenizers": [DIGITS, OF_BYTES]},
    "llama-bpe": cut_by(PATTERNS["llama-bpe"]),
    "qwen2": cut_by(PATTERNS["qwen2"]),
    "gpt-4o": cut_by(PATTERNS["gpt-4o"]), "tekken": cut_by(PATTERNS["tekken"]),
}
CUTS |= {alias: CUTS[name] for name, aliases in ALIASES.items() for alias in aliases}


def save_tokenizer(tokenizer: ByteLevel, path: str | PathLike[str]) -> None:
    """Writes a tokenizer.json.

    Raises:
      FileError: the file cannot be written.
    """
    added = [
        {"id": number, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for token, number in tokenizer.control.items()
    ]  # fmt: skip
    pairs = [list(pair) for pair in tokenizer.rank_of]
    numbers = {token: number for number, token in enumerate(tokenizer.tokens)}
    model = {"type": "BPE", "ignore_merges": tokenizer.takes_words, "vocab": numbers, "merges": pairs}
    content = {
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": CUTS[tokenizer.cut],
        "post_processor": None, "decoder": OF_BYTES, "model": model,
    }  # fmt: skip
    data = json.dumps(content, ensure_ascii=False, indent=1).encode()
    write_whole("save_tokenizer", path, lambda file: file.write(data), makes_folder=True)


def load_tokenizer(path: str | PathLike[str]) -> Pipeline:
    """Returns the tokenizer of a tokenizer.json.

    Raises:
      DataError: the file cannot be read, is not a tokenizer.json, or has an unsupported part, which the message names.
    """
    path = Path(path)
    content = json_in(path, "load_tokenizer")
    try:
        return Pipeline(content)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DataError(f"{path}: is not a tokenizer.json: {type(error).__name__}: {error}.") from None


def settings(part: Json, **defaults: Any) -> list[Any]:
    """Returns the settings of a part in the order of these names.

    Raises:
      DataError: it has an unknown setting.
    """
    if unknown := [
        key for key in part if key not in defaults and key not in ("type", "trim_offsets") and part[key] is not None
    ]:
        raise DataError(f"its {part['type']} says {unknown[0]} is {str(part[unknown[0]])[:40]}, which is not supported.")
    return [default if part.get(key) is None else part[key] for key, default in defaults.items()]


def made(part: Json | None, table: Mapping[Any, Callable[[Json], Any]], what: str) -> Any:
    """Returns the function of a part of a program.

    Raises:
      DataError: its type is unknown.
    """
    kind = None if part is None else part["type"]
    if kind not in table:
        known = ", ".join(str(each) for each in table if each)
        raise DataError(f"has a {what} of type {str(kind)[:40]!r}; {known} are known.")
    return table[kind](part or {})


def pattern_of(part: Json) -> re.Pattern[str]:
    """Returns the pattern of a part: a string or a regular expression."""
    ((kind, text),) = part["pattern"].items()
    return re.compile(re.escape(text)) if kind == "String" else compiled(text)


# ---- normalizers: a text -> a text ----
GROWTH_MAX, WORD = 32, 64  # letters of a replacement, in a text of at least this length
def replacement(part: Json) -> Callable[[str], str]:
    """Returns the replacement of a pattern."""
    _, content = settings(part, pattern=None, content="")
    pattern = pattern_of(part)

    def replaced(text: str) -> str:
        if len(content) > 1 and sum(1 for _ in pattern.finditer(text)) * len(content) > GROWTH_MAX * (len(text) + WORD):
            raise DataError(f"its normalizer turns one letter into more than {GROWTH_MAX}: {str(part)[:60]}")
        return pattern.sub(lambda _: content, text)

    return replaced


def prepended(part: Json) -> Callable[[str], str]:
    """Returns a function that adds a prefix to nonempty texts."""
    (before,) = settings(part, prepend="")
    if len(before) > WORD:
        raise DataError(f"its normalizer puts {len(before):,} letters before each text; at most {WORD} are supported.")
    return lambda text: before + text if text else text


def stripped(part: Json) -> Callable[[str], str]:
    """Returns a function that strips white space from the ends."""
    left, right = settings(part, strip_left=True, strip_right=True)
    return lambda text: (text.lstrip(SPACES) if left else text).rstrip(SPACES if right else "")


def of_bert(part: Json) -> Callable[[str], str]:
    """Returns BERT's normalizer: removes control characters and accents, separates ideographs, lowers case."""
    cleans, spaces, strips, lowers = settings(
        part, clean_text=True, handle_chinese_chars=True, strip_accents=part.get("lowercase", True), lowercase=True
    )

    def normalized(text: str) -> str:
        text = spaced(text, cleans, spaces)
        text = without_accents(text) if strips else text
        return lowered(text) if lowers else text

    return normalized


def lowered(text: str) -> str:
    """Returns a text in lower case, character by character."""
    return "".join([letter.lower() for letter in text])


def form(name: Any) -> Callable[[Json], Callable[[str], str]]:
    """Returns the maker of a Unicode normal form."""
    return lambda part: partial(unicodedata.normalize, name)


NORMALIZERS: dict[str, Callable[[Json], Any]] = {
    **{name: form(name) for name in ("NFC", "NFD", "NFKC", "NFKD")},
    "Lowercase": lambda part: lowered,
    "StripAccents": lambda part: lambda text: "".join(c for c in text if unicodedata.category(c)[0] != "M"),
    "Strip": stripped, "Replace": replacement, "Prepend": prepended, "BertNormalizer": of_bert,
    "Precompiled": lambda part: CharsMap(*settings(part, precompiled_charsmap="")),
    "Sequence": lambda part: chain([made(each, NORMALIZERS, "normalizer") for each in part["normalizers"]]),
}  # fmt: skip


def chain(steps: Sequence[Callable[[str], str]]) -> Callable[[str], str]:
    """Returns a function that applies steps in sequence."""
    def changed(text: str) -> str:
        most = GROWTH_MAX * (len(text) + WORD)
        for step in steps:
            text = step(text)
            if len(text) > most:
                raise DataError(f"its normalizers turn one letter into more than {GROWTH_MAX}.")
        return text

    return changed


# ---- pre-tokenizers: a text -> words ----
def parts_of(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """Yields the parts of a text, and whether each matches."""
    past = 0
    for match in pattern.finditer(text):
        if match.start() > past:
            yield text[past : match.start()], False
        if match.end() > match.start():
            yield match[0], True
        past = match.end()
    if past < len(text):
        yield text[past:], False


def split(text: str, pattern: re.Pattern[str], behavior: str, inverts: bool = False) -> list[str]:
    """Splits a text at matches; `behavior` says how the matches are kept.

    >>> [split("a b", compiled(" "), way) for way in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext")]
    [['a', ' ', 'b'], ['a', 'b'], ['a ', 'b'], ['a', ' b']]
    """
    parts = [(part, is_match != inverts) for part, is_match in parts_of(text, pattern)]
    if behavior == "Isolated":
        return [part for part, _ in parts]
    if behavior == "Removed":
        return [part for part, is_match in parts if not is_match]
    words, before = list[str](), False
    for part, is_match in parts:
        joins = {
            "MergedWithPrevious": is_match and not before, "MergedWithNext": before and not is_match,
            "Contiguous": is_match == before,
        }[behavior]  # fmt: skip
        if words and joins:
            words[-1] += part
        else:
            words.append(part)
        before = is_match
    return words


def splitting(part: Json) -> Cut:
    """Returns a function that splits by a pattern."""
    _, behavior, inverts = settings(part, pattern=None, behavior="Isolated", invert=False)
    if behavior not in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        raise DataError(f"its Split has the behavior {str(behavior)[:40]!r}, which is not known.")
    pattern = pattern_of(part)
    return lambda text, is_first: split(text, pattern, behavior, inverts)


def always(pattern: str, behavior: str, inverts: bool = False) -> Callable[[Json], Cut]:
    """Returns the maker of a part that splits by one pattern."""
    return lambda part: lambda text, is_first: split(text, compiled(pattern), behavior, inverts)


def of_bytes(part: Json) -> Cut:
    """Returns GPT-2's splitting, or none, with a character for each byte."""
    adds_space, uses_pattern = settings(part, add_prefix_space=True, use_regex=True)
    pattern = compiled(PATTERNS["gpt-2"])

    def cut(text: str, is_first: bool) -> list[str]:
        text = text if not adds_space or text.startswith(" ") else " " + text
        words = pattern.findall(text) if uses_pattern else [text]
        return ["".join([LETTER_OF[byte] for byte in word.encode()]) for word in words]

    return cut


def metaspace(part: Json) -> Cut:
    """Returns a splitting at spaces, which become a visible character at the start of words."""
    mark, scheme, splits, adds = settings(
        part, replacement="\u2581", prepend_scheme="always", split=True, add_prefix_space=True
    )
    scheme = scheme if adds else "never"

    def cut(text: str, is_first: bool) -> list[str]:
        text = text.replace(" ", mark)
        adds = scheme == "always" or scheme == "first" and is_first
        text = mark + text if adds and not text.startswith(mark) else text
        return split(text, re.compile(re.escape(mark)), "MergedWithNext") if splits else [text]

    return cut


def punctuation(part: Json) -> Cut:
    """Returns a splitting at punctuation."""
    (behavior,) = settings(part, behavior="Isolated")

    def cut(text: str, is_first: bool) -> list[str]:
        signs = "".join(sorted({letter for letter in text if is_punctuation(letter)}))
        return split(text, re.compile(f"[{re.escape(signs)}]"), behavior) if signs else [text]

    return cut


def cuts(part: Json, steps: Sequence[Cut]) -> Cut:
    """Returns a function that applies splittings in sequence."""

    def cut(text: str, is_first: bool) -> list[str]:
        words = [text]
        for step in steps:
            words = [each for place, word in enumerate(words) for each in step(word, is_first and not place)]
        return words

    return cut


PRE_TOKENIZERS: dict[str | None, Callable[[Json], Any]] = {
    None: lambda part: lambda text, is_first: [text] if text else [],
    "ByteLevel": of_bytes, "Split": splitting, "Metaspace": metaspace, "Punctuation": punctuation,
    "Digits": lambda part: always(r"\p{N}", "Isolated" if part.get("individual_digits") else "Contiguous")(part),
    "Whitespace": always(r"\p{word}+|[^\p{word}\s]+", "Removed", True),
    "WhitespaceSplit": always(r"\s", "Removed"),
    "BertPreTokenizer": lambda part: cuts(part, [always(r"\s", "Removed")(part), punctuation({"type": part["type"]})]),
    "Sequence": lambda part: cuts(part, [made(each, PRE_TOKENIZERS, "pre_tokenizer") for each in part["pretokenizers"]]),
}  # fmt: skip


# ---- models: a word -> numbers of tokens ----
Numbers = Callable[[str], list[int]]


def byte_numbers(symbol: str, vocabulary: Json) -> list[int] | None:
    """Returns the numbers of the bytes of a text; None if the vocabulary lacks one."""
    found = [vocabulary.get(f"<0x{byte:02X}>") for byte in symbol.encode()]
    return None if None in found else [int(number) for number in found if number is not None]


def bpe(part: Json) -> tuple[Json, Numbers]:
    """Returns the vocabulary and the encoding function of a BPE."""
    vocabulary, merges, unknown, prefix, suffix, fuses, falls_back, takes_words, _ = settings(
        part, vocab={}, merges=[], unk_token=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False,
        byte_fallback=False, ignore_merges=False, dropout=None,
    )  # fmt: skip
    if prefix or suffix:
        raise DataError(f"its BPE marks inner or last pieces of words by {prefix or suffix!r}, which is not supported.")
    pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
    if wrong := [pair for pair in pairs if len(pair) != 2 or not all(isinstance(each, str) for each in pair)]:
        raise DataError(f"has the merge {' '.join(map(str, wrong[0]))[:40]!r}, which is not a pair.")
    rank_of = {pair: rank for rank, pair in enumerate(pairs)}

    def numbers(word: str) -> list[int]:
        if takes_words and word in vocabulary:
            return [vocabulary[word]]
        found: list[int] = []
        was_unknown = False
        for symbol in merged([*word], lambda a, b: rank_of.get((a, b))):
            if symbol in vocabulary:
                found.append(vocabulary[symbol])
                was_unknown = False
                continue
            of_bytes = byte_numbers(symbol, vocabulary) if falls_back else None
            if of_bytes is None and unknown not in vocabulary:
                raise DataError(f"the vocabulary has no token for {symbol!r}, a part of {word[:40]!r}.")
            if of_bytes is not None:
                found += of_bytes
                was_unknown = False
            elif not (fuses and was_unknown):
                found.append(vocabulary[unknown])
                was_unknown = True
        return found

    return vocabulary, numbers


def unigram(part: Json) -> tuple[Json, Numbers]:
    """Returns the vocabulary and the encoding function of a Unigram: the pieces with the largest sum of scores."""
    scored, unknown, falls_back, control, numbered = settings(
        part, vocab=[], unk_id=None, byte_fallback=False, control=(), numbers=None
    )
    places = {piece: place for place, (piece, _) in enumerate(scored)}
    every: Json = places if numbered is None else numbered  # SentencePiece files keep the numbers separately
    vocabulary = {piece: place for piece, place in places.items() if piece not in control}
    scores = [float(score) for _, score in scored]
    if not all(abs(score) <= SCORE_MAX for score in scores):
        raise DataError(f"a piece has a score that is not a number of at most {SCORE_MAX:g}.")
    past = len(places) if numbered is None else max(every.values(), default=-1) + 1
    if unknown is not None and (type(unknown) is not int or not 0 <= unknown < past):
        raise DataError(f"its unk_id is {str(unknown)[:40]}; a number of its {past:,} pieces is needed.")
    of_unknown = [] if unknown is None else [unknown]
    cost, longest = min(scores, default=0.0) - UNKNOWN_COST, max(map(len, vocabulary), default=0)

    def numbers(word: str) -> list[int]:
        found: list[int] = []
        for piece in _split(word, _best_starts(word, vocabulary, scores, cost, longest), vocabulary):
            number = every.get(piece) if piece in vocabulary else None
            of_bytes = byte_numbers(piece, every) if number is None and falls_back else None
            if number is None and of_bytes is None and unknown is None:
                raise DataError(f"the vocabulary has no token for {piece[:40]!r}.")
            found += [number] if number is not None else of_bytes if of_bytes is not None else of_unknown
        return found

    return every, numbers


def _best_starts(
    word: str, vocabulary: Mapping[str, int], scores: Sequence[float], cost: float, longest: int
) -> list[int]:
    """Returns, for each position, where the last piece of the best text up to it starts (Viterbi 1967).

    Args:
      cost:     score of a character without a piece of one letter
      longest:  letters of the longest piece
    """
    best = [(0.0, 0)] + [(-float("inf"), -1)] * len(word)  # score up to a position, start of its last piece
    for first in range(len(word)):
        has_letter = False
        for past in range(first + 1, min(len(word), first + longest) + 1):
            if (number := vocabulary.get(word[first:past])) is not None:
                has_letter |= past == first + 1
                if (score := best[first][0] + scores[number]) > best[past][0]:
                    best[past] = (score, first)
        if not has_letter and (score := best[first][0] + cost) > best[first + 1][0]:
            best[first + 1] = (score, first)
    return [first for _, first in best]


def _split(word: str, starts: Sequence[int], vocabulary: Container[str]) -> list[str]:
    """Returns the pieces of a word by the last start up to each position; unknown characters in a row are joined."""
    pieces, past, was_unknown = list[str](), len(word), False
    while past:
        piece = word[starts[past] : past]
        is_unknown = piece not in vocabulary
        if is_unknown and was_unknown:
            pieces[-1] = piece + pieces[-1]
        else:
            pieces.append(piece)
        past, was_unknown = starts[past], is_unknown
    return pieces[::-1]


def wordpiece(part: Json) -> tuple[Json, Numbers]:
    """Returns the vocabulary and the encoding function of a WordPiece: the longest pieces from the left."""
    vocabulary, unknown, prefix, longest = settings(
        part, vocab={}, unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100
    )

    def numbers(word: str) -> list[int]:
        pieces = pieces_of(word, vocabulary, unknown, prefix, longest)
        if pieces == [unknown] and unknown not in vocabulary:
            raise DataError(f"the vocabulary has no token for {word[:40]!r}, nor {str(unknown)[:40]!r}.")
        return [vocabulary[piece] for piece in pieces]

    return vocabulary, numbers


MODELS: dict[str | None, Callable[[Json], Any]] = {"BPE": bpe, "Unigram": unigram, "WordPiece": wordpiece}


# ---- the whole ----
class Added(Record):
    """A token outside the model's vocabulary, or one that overrides the model.

    number:       of the token
    content:      its text
    is_special:   a control token, such as the end of a turn; a user's text never becomes one
    strips_left:  includes white space before it
    strips_right: includes white space after it
    is_word:      matches only if no letter or digit is adjacent
    """

    number: int
    content: str
    is_special: bool
    strips_left: bool
    strips_right: bool
    is_word: bool


class Pipeline(Tokenizer):
    """The tokenizer of a tokenizer.json's contents.

    Raises:
      DataError: it has an unsupported part.
    """

    def __init__(self, content: Json):
        model = dict(content["model"])
        if "type" not in model:  # older files, such as GPT-2's
            model["type"] = "Unigram" if isinstance(model.get("vocab"), list) else "BPE"
        self.normalize = made(content["normalizer"], NORMALIZERS, "normalizer") if content.get("normalizer") else str
        self.cut = made(content.get("pre_tokenizer"), PRE_TOKENIZERS, "pre_tokenizer")
        if model["type"] == "Unigram":  # its pieces include control tokens
            model["control"] = {token["content"] for token in content.get("added_tokens") or [] if token.get("special")}
        vocabulary, self.numbers_of = made(model, MODELS, "model")
        added, number_of = {True: list[Added](), False: list[Added]()}, dict(vocabulary)
        for token in content.get("added_tokens") or []:
            number, text, is_special, left, right, is_word, normalized = settings(
                {"type": "added token", **token}, id=0, content="", special=False, lstrip=False, rstrip=False,
                single_word=False, normalized=not token.get("special", False),
            )  # fmt: skip
            if text:
                number_of[text] = number
                added[normalized].append(Added(number, text, is_special, left, right, is_word))
        whole = [number for number in number_of.values() if type(number) is int and 0 <= number < TOKENS_MAX]
        if not whole or len(set(whole)) < len(number_of):
            raise DataError("has no vocabulary, or tokens whose numbers are not whole or not distinct.")
        tokens, kinds = [""] * (max(whole) + 1), [CONTROL] * (max(whole) + 1)  # an unused number is not text
        for token, number in number_of.items():
            is_byte = re.fullmatch("<0x[0-9A-F]{2}>", token) and model.get("byte_fallback")
            tokens[number], kinds[number] = token, BYTE if is_byte else TEXT
        for token in [*added[True], *added[False]]:
            kinds[token.number] = CONTROL if token.is_special else WHOLE
        super().__init__(tokens, kinds)
        self.exact, self.normal = Finder(added[False], str), Finder(added[True], self.normalize)
        self.start, self.end = around_of(content.get("post_processor"), number_of)
        self.has_bytes, self.spaces, self.drops_spaces = decoder_of(content.get("decoder"))
        self.known: dict[str, list[int]] = {}  # cache of words

    def fit(self, rows: int, width: int) -> None:
        """Removes added tokens that the network's table has no vectors for.

        Args:
          rows, width:  shape of the network's token table

        Raises:
          DataError: such a token is not an added one, or the table has many more rows.
        """
        if rows >= len(self.tokens):
            check_rows("of config.json", (rows, width), len(self.tokens))
            return
        kinds = zip(self.tokens[rows:], self.kinds[rows:])
        if beyond := [token for token, kind in kinds if kind not in (CONTROL, WHOLE)]:
            fact = (
                f"its vocabulary has {len(self.tokens):,} tokens such as {beyond[-1][:40]!r}, the network {rows:,} vectors"
            )
            raise DataError(f"{fact}: they belong to different models.", "take both from where the model is published.")
        super().__init__(self.tokens[:rows], self.kinds[:rows])
        self.__dict__.pop("marks", None)
        for finder in (self.exact, self.normal):
            finder.keep(rows)

    def encode_marked(self, text: str, hidden: str = "") -> list[int]:
        """As Tokenizer."""
        return self._encoded(text, hidden, True)

    def encode(self, text: str) -> list[int]:
        """As Tokenizer."""
        return self._encoded(text, "", False)

    def _encoded(self, text: str, hidden: str, has_marks: bool) -> list[int]:
        text = text.encode("utf-8", "replace").decode()  # lone surrogates have no bytes
        numbers: list[int] = []
        is_first = True
        for part in self.exact.parts(text, has_marks):
            if isinstance(part, int):
                numbers.append(part)
            else:
                part = self.normalize(part.replace(hidden, "") if hidden else part)
                for inner in self.normal.parts(part, has_marks):
                    numbers += [inner] if isinstance(inner, int) else self._plain(inner, is_first)
                    is_first = False
            is_first = False
        return numbers

    def _plain(self, text: str, is_first: bool) -> list[int]:
        numbers: list[int] = []
        for word in self.cut(text, is_first):
            if word not in self.known:
                found = self.numbers_of(word)
                if len(word) > LONG_WORD:
                    numbers += found
                    continue
                self.known[word] = found
            numbers += self.known[word]
        return numbers

    def bytes_of(self, number: int) -> bytes:
        """As Tokenizer."""
        token, kind = self.tokens[number], self.kinds[number]
        if kind == CONTROL:
            return b""
        if kind == BYTE:
            return bytes.fromhex(token[3:5])
        if self.has_bytes:
            return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode("utf-8", "replace") for c in token)
        return (token if kind == WHOLE else token.replace(self.spaces, " ")).encode("utf-8", "replace")


LONG_WORD = 64  # letters; longer words rarely recur


class Finder:
    """Finds added tokens in a text, the longest first."""

    def __init__(self, tokens: Iterable[Added], normalize: Callable[[str], str]):
        self.token_of = {normalize(token.content): token for token in tokens}
        self.keep(TOKENS_MAX)

    def keep(self, num: int) -> None:
        """Removes tokens from a number on."""
        self.token_of = {text: token for text, token in self.token_of.items() if token.number < num}
        texts = sorted(filter(None, self.token_of), key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self.has_any = bool(texts)

    def parts(self, text: str, has_marks: bool) -> Iterator[int | str]:
        """Yields numbers of tokens and the text between them.

        Args:
          has_marks:  special tokens are found, too
        """
        past = 0
        for match in self.pattern.finditer(text) if self.has_any else ():
            token, first, end = self.token_of[match[0]], match.start(), match.end()
            if first < past or token.is_special and not has_marks or token.is_word and is_inside(text, first, end):
                continue
            first = len(text[past:first].rstrip(SPACES)) + past if token.strips_left else first
            end += len(text[end:]) - len(text[end:].lstrip(SPACES)) if token.strips_right else 0
            if first > past:
                yield text[past:first]
            yield token.number
            past = end
        if past < len(text):
            yield text[past:]


def is_inside(text: str, first: int, past: int) -> bool:
    """Returns whether a letter or a digit is adjacent to a part of a text."""
    word = compiled(r"\p{word}")
    return bool(word.search(text[max(0, first - 1) : first]) or word.search(text[past : past + 1]))


def around_of(part: Json | None, number_of: Json) -> tuple[list[int], list[int]]:
    """Returns the tokens before and after a text.

    Raises:
      DataError: the part is unknown.
    """
    kind = None if part is None else part["type"]
    if part is None or kind == "ByteLevel":
        return [], []
    if kind == "Sequence":
        both = [around_of(each, number_of) for each in part["processors"]]
        return [n for start, _ in both for n in start], [n for _, end in both for n in end]
    if kind in ("BertProcessing", "RobertaProcessing"):
        return [number_of[part["cls"][0]]], [number_of[part["sep"][0]]]
    if kind != "TemplateProcessing":
        raise DataError(f"has a post_processor of type {str(kind)[:40]!r}; TemplateProcessing and BERT's are known.")
    found: tuple[list[int], list[int]] = ([], [])
    is_behind = False
    for each in part["single"]:
        if "Sequence" in each:
            is_behind = True
        else:
            found[is_behind].extend(part["special_tokens"][each["SpecialToken"]["id"]]["ids"])
    return found


def decoder_of(part: Json | None) -> tuple[bool, str, int]:
    """Returns the decoding of tokens: whether letters are bytes, the letter for a space, spaces that the first token loses.

    Raises:
      DataError: a part is unknown.
    """
    parts = [] if part is None else part["decoders"] if part["type"] == "Sequence" else [part]
    has_bytes, space, drops = False, "\u2581", 0
    for each in parts:
        kind = each["type"]
        if kind == "ByteLevel":
            has_bytes = True
        elif kind == "Metaspace":
            space, drops = each["replacement"], TOKENS_MAX * (each.get("prepend_scheme", "always") != "never")
        elif kind == "Replace" and each["content"] == " ":
            space = each["pattern"]["String"]
        elif kind == "Strip" and each["content"] == " " and not each["stop"]:
            drops = int(each["start"])
        elif kind not in ("ByteFallback", "Fuse", "WordPiece"):
            raise DataError(f"has a decoder with {str(each)[:60]}, which is not supported.")
    return has_bytes, space, drops


def of_vocabulary(pieces: Sequence[str], lowers: bool = True) -> Pipeline:
    """Returns BERT's tokenizer for a vocabulary of pieces.

    Args:
      pieces:  in the order of their numbers
      lowers:  texts are converted to lower case, without accents

    Raises:
      DataError: the vocabulary lacks a required piece.

    >>> tokenizer = of_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"])
    >>> tokenizer.start, tokenizer.encode("Playing!"), tokenizer.end
    ([2], [4, 5, 6], [3])
    """
    numbers = {piece: number for number, piece in enumerate(pieces)}
    if missing := [piece for piece in (UNKNOWN, START, END, PADDING) if piece not in numbers]:
        raise DataError(f"the vocabulary of {len(pieces):,} pieces lacks {missing[0]}.")
    added = [{"id": numbers[piece], "content": piece, "special": True} for piece in (UNKNOWN, START, END, PADDING)]
    return Pipeline({
        "added_tokens": added, "normalizer": {"type": "BertNormalizer", "lowercase": lowers},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "WordPiece", "vocab": numbers},
        "post_processor": {"type": "BertProcessing", "cls": [START], "sep": [END]}, "decoder": {"type": "WordPiece"},
    })  # fmt: skip


# ---- folders of weights ----
def tokenizer_in(folder: Path) -> Tokenizer:
    """Returns the tokenizer of a folder's files; vocab.json implies GPT-2's pattern of words.

    Raises:
      DataError: the files are missing, damaged, or describe another kind of tokenizer.
    """
    whole, vocabulary, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if vocabulary.is_file() and merges.is_file():
        numbers = numbers_in(json_in(vocabulary), vocabulary)
        lines = [line for line in text_in(merges).splitlines() if line and not line.startswith("#version")]
        control = {name for name in numbers if CONTROL_NAME.fullmatch(name)}
        return _tokenizer_of(vocabulary, numbers, lines, control, "gpt-2", False)
    if whole.is_file():
        return load_tokenizer(whole)
    if vocabulary.is_file():
        raise DataError(f"{folder}: vocab.json is there, merges.txt is not.", "put merges.txt into its folder.")
    hint = "put both, or tokenizer.json, into the folder of the weights."
    raise DataError(f"{folder}: vocab.json and merges.txt, which turn text into tokens, are not there.", hint)


def _tokenizer_of(
    path: Path, numbers: Json, merges: list[str], control: Container[str], cut: str, takes_words: bool
) -> ByteLevel:
    """Returns the tokenizer of some tokens with their numbers; `cut` and `takes_words`: as ByteLevel.

    Raises:
      DataError: the numbers are not 0, 1, ... of so many tokens, or a merge is not a pair.
    """
    tokens = sorted(numbers, key=lambda token: numbers[token] if type(numbers[token]) is int else -1)
    if wrong := [token for place, token in enumerate(tokens) if numbers[token] != place]:
        found = f"{wrong[0][:40]!r} has the number {str(numbers[wrong[0]])[:40]}"
        raise DataError(f"{path}: the numbers of its {len(tokens):,} tokens must be 0, 1, 2, ...; {found}.")
    try:
        return ByteLevel(tokens, merges, [CONTROL if token in control else TEXT for token in tokens], cut, takes_words)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None
