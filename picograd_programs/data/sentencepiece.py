"""SentencePiece models, for folders without a tokenizer.json: converted to the parts of a tokenizer.json.

    spiece.model, source.spm ... -> pieces with scores, a normalizer -> the contents of a tokenizer.json

The file is a Protocol Buffers message: fields, each with a number, a wire type and a value. If a network numbers its
tokens differently, the numbers are in vocab.json.

Source: Kudo, Richardson 2018, arXiv:1808.06226; SentencePiece, its model's Protocol Buffers definition (fields);
       Hugging Face, transformers, the tokenizers of T5, Pegasus, Marian and M2M-100 (numbers of tokens).
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd.files import read_whole
from picograd.record import Record
from picograd_programs.data.vocabulary import Json

SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, OWN, UNUSED, BYTE = range(1, 7)  # kinds of pieces; a user's text never becomes CONTROL
UNIGRAM, BPE = 1, 2  # kinds of models
LANGUAGE = re.compile(">>.+<<")  # Marian's language mark before a text
ENDS = r"(?<![\s\S]) +| +(?![\s\S])"  # spaces at the beginning and at the end
NUMBER, WIDE, NBYTES, NARROW = 0, 1, 2, 5  # wire types: varint, 8 bytes, length-delimited, 4 bytes


class Pieces(Record):
    """The pieces of a file, and its splitting of a text into words.

    pieces:          text, score, kind
    model:           UNIGRAM or BPE
    charsmap:        the normalizer's map, for charsmap.py; b"": none
    adds_space:      adds a space before a text
    removes_spaces:  removes spaces at the ends, and repeated ones
    """

    pieces: tuple[tuple[str, float, int], ...]
    model: int
    charsmap: bytes
    adds_space: bool
    removes_spaces: bool

    @property
    def unknown(self) -> int:
        """The number of the piece for unknown text."""
        return next((number for number, (_, _, kind) in enumerate(self.pieces) if kind == UNKNOWN), 0)


# ---- the file ----
def fields_of(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field of a message.

    Raises:
      DataError: the bytes are not a message.

    >>> list(fields_of(b"\\x08\\x96\\x01\\x12\\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind, nbytes = tag & 7, {WIDE: 8, NARROW: 4}.get(tag & 7, 0)
        if kind == NUMBER:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if kind == NBYTES:
            nbytes, at = varint(data, at)
        if kind not in (WIDE, NBYTES, NARROW) or at + nbytes > len(data):
            raise DataError("is not a model of SentencePiece, or is damaged.")
        yield tag >> 3, data[at : at + nbytes]
        at += nbytes


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number of seven bits a byte, the lowest first, and the position after it."""
    value = shift = 0
    while True:
        if at == len(data) or shift > 63:
            raise DataError("is not a model of SentencePiece, or is damaged.")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def read_pieces(path: Path) -> Pieces:
    """Reads the model of a file.

    Raises:
      FileError: the file cannot be read.
      DataError: the file is not a model, or its kind (words or characters) is unsupported.
    """
    try:
        pieces, model, rules = list[tuple[str, float, int]](), UNIGRAM, dict[int, Any]()
        for field, value in fields_of(read_whole("chat", path)):
            if field == 1:
                parts = dict(fields_of(value))
                pieces.append((parts[1].decode(), *struct.unpack("<f", parts.get(2, bytes(4))), parts.get(3, NORMAL)))
            elif field == 2:
                model = dict(fields_of(value)).get(3, UNIGRAM)
            elif field == 3:
                rules = dict(fields_of(value))
        if model not in (UNIGRAM, BPE) or not pieces:
            raise DataError(f"has {len(pieces):,} pieces of the kind {model}; 1, Unigram, and 2, BPE, are supported.")
        return Pieces(tuple(pieces), model, rules.get(2, b""), bool(rules.get(3, True)), bool(rules.get(4, True)))
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None
    except (KeyError, TypeError, AttributeError, struct.error, UnicodeDecodeError):
        raise DataError(f"{path}: is not a model of SentencePiece, or is damaged.") from None


# ---- as a tokenizer.json ----
def content_of(
    found: Pieces, numbers: Mapping[str, int], unknown: str, start: Sequence[str], end: Sequence[str],
    control: Sequence[str] = (),
) -> Json:  # fmt: skip
    """Returns the contents of a tokenizer.json that makes the same tokens.

    Args:
      numbers:     numbers of all tokens; a piece without one is unknown
      unknown:     token for unknown text
      start, end:  tokens before and after a text
      control:     control tokens besides those of the file
    """
    kinds = {piece: kind for piece, _, kind in found.pieces}
    special = {*control, *start, *end, unknown, *(piece for piece, kind in kinds.items() if kind == CONTROL)}
    added = [{"id": numbers[token], "content": token, "special": True} for token in numbers if token in special]
    added += [{"id": number, "content": token} for token, number in numbers.items() if LANGUAGE.fullmatch(token)]
    around = [*({"SpecialToken": {"id": token}} for token in start), {"Sequence": {"id": "A"}},
              *({"SpecialToken": {"id": token}} for token in end)]  # fmt: skip
    space = {"type": "Metaspace", "replacement": SPACE}
    charsmap = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(found.charsmap).decode()}
    cleaned = [{"type": "Replace", "pattern": {"Regex": old}, "content": to} for old, to in ((ENDS, ""), (" +", " "))]
    steps = [charsmap] * bool(found.charsmap) + cleaned * found.removes_spaces
    steps += [{"type": "Prepend", "prepend": " "}] * found.adds_space
    return {
        "added_tokens": added, "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": space | {"prepend_scheme": "never", "split": found.model == UNIGRAM},
        "decoder": space | {"prepend_scheme": "always" if found.adds_space else "never"},
        "post_processor": {
            "type": "TemplateProcessing", "single": around,
            "special_tokens": {token: {"id": token, "ids": [numbers[token]]} for token in (*start, *end)},
        },
        "model": model_of(found, numbers, unknown),
    }  # fmt: skip


def model_of(found: Pieces, numbers: Mapping[str, int], unknown: str) -> Json:
    """Returns the part of a tokenizer.json that splits a word into tokens."""
    has_bytes = any(kind == BYTE for _, _, kind in found.pieces)
    if found.model == BPE:
        score = {piece: value for piece, value, kind in found.pieces if kind in (NORMAL, OWN)}
        pairs = [
            (-value, piece[:cut], piece[cut:])
            for piece, value in score.items()
            for cut in range(1, len(piece))
            if piece[:cut] in score and piece[cut:] in score
        ]
        merges = [(left, right) for _, left, right in sorted(pairs, key=lambda pair: pair[0])]
        return {"type": "BPE", "vocab": dict(numbers), "merges": merges, "unk_token": unknown, "fuse_unk": True,
                "byte_fallback": has_bytes}  # fmt: skip
    scored = [[piece, value] for piece, value, kind in found.pieces if kind in (NORMAL, OWN)]
    return {"type": "Unigram", "vocab": scored, "numbers": dict(numbers), "unk_id": numbers[unknown],
            "byte_fallback": has_bytes}  # fmt: skip
