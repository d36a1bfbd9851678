"""Models of SentencePiece against the tokenizers library with the same pieces; numbers of tokens by network; damage."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers
from tokenizers import pre_tokenizers as pre

from picograd.errors import DataError
from picograd_programs.data.sentencepiece import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    OWN,
    SPACE,
    UNIGRAM,
    UNKNOWN,
    content_of,
    fields_of,
    read_pieces,
)
from picograd_programs.data.tokenizer_json import Pipeline
from picograd_programs.models.seq2seq_words import words_in
from tests.data.test_tokenizer_json import CHARS, charsmap

Piece = tuple[str, float, int]
TEXTS = ["", " ", "a", "abc  cab ", " the cat", "</s> x", "ﬁne ²", "<s>", "a\n", "zz top"]
WORDS = ["the", "cat", "ab", "bc", f"{SPACE}the", f"{SPACE}ca", "fi", f"{SPACE}a", "top"]
LETTERS = [SPACE, *"abcdefghijklmnopqrstuvwxy"]


def a_list() -> list[Piece]:
    """Some pieces, those for all texts first."""
    special = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    scored = [(piece, -1.0 - 0.37 * place, NORMAL) for place, piece in enumerate([*WORDS, *LETTERS])]
    return [*special, *scored]


def field(number: int, value: Any) -> bytes:
    """Returns a field of a message."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def write(path: Path, pieces: list[Piece], model: int = UNIGRAM, chars: bytes = b"", **rules: int) -> None:
    """Writes a file; `rules` are fields of the normalizer."""
    data = b"".join(
        field(1, field(1, piece.encode()) + field(2, score) + (field(3, kind) if kind != NORMAL else b""))
        for piece, score, kind in pieces
    )
    data += field(2, field(3, model) + field(4, 40))
    rest = b"".join(field({"adds_space": 3, "removes_spaces": 4}[name], value) for name, value in rules.items())
    rest += field(2, chars) if chars else b""
    path.write_bytes(data + field(3, field(1, b"nmt_nfkc") + rest) + field(9, b"more"))


def library(pieces: list[Piece], model: int, chars: bytes, adds_space: bool, removes_spaces: bool) -> tokenizers.Tokenizer:
    """The same of the library, where control tokens are no pieces of a text."""
    numbers = {piece: number for number, (piece, _, _) in enumerate(pieces)}
    names = {piece: piece if kind in (NORMAL, OWN) else f"\ufdd2{piece}" for piece, _, kind in pieces}
    if model == UNIGRAM:
        found = tokenizers.Tokenizer(models.Unigram([(names[piece], score) for piece, score, _ in pieces], unk_id=0))
    else:
        merges = sorted(
            ((score, piece[:cut], piece[cut:]) for piece, score, _ in pieces for cut in range(1, len(piece))
             if piece[:cut] in numbers and piece[cut:] in numbers), key=lambda merge: -merge[0],
        )  # fmt: skip
        vocabulary = {names[piece]: number for piece, number in numbers.items()}
        found = tokenizers.Tokenizer(models.BPE(
            vocabulary, [(left, right) for _, left, right in merges], unk_token=names["<unk>"], fuse_unk=True
        ))  # fmt: skip
    steps: list[Any] = [normalizers.Precompiled(chars)] if chars else []
    if removes_spaces:
        steps += [normalizers.Replace(tokenizers.Regex(r"\A +| +\z"), ""), normalizers.Replace(tokenizers.Regex(" +"), " ")]
    steps += [normalizers.Prepend(" ")] if adds_space else []
    found.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    found.pre_tokenizer = pre.Split(SPACE, "merged_with_next") if model == UNIGRAM else None
    found.decoder = decoders.Metaspace(SPACE, "always" if adds_space else "never")
    return found


@pytest.mark.req("H1")
@pytest.mark.parametrize("model", [UNIGRAM, BPE])
@pytest.mark.parametrize(
    ("has_map", "adds_space", "removes_spaces"), [(True, True, True), (False, False, True), (True, True, False)]
)
def test_a_text_has_the_tokens_of_the_library(
    model: int, has_map: bool, adds_space: bool, removes_spaces: bool, tmp_path: Path
) -> None:
    pieces, chars = a_list(), charsmap(CHARS) if has_map else b""
    write(tmp_path / "a.model", pieces, model, chars, adds_space=adds_space, removes_spaces=removes_spaces)
    found = read_pieces(tmp_path / "a.model")
    assert (found.model, found.charsmap, found.adds_space, found.removes_spaces) == (
        model, chars, adds_space, removes_spaces,
    )  # fmt: skip
    assert found.unknown == 0 and [piece for piece, _, _ in found.pieces] == [piece for piece, _, _ in pieces]
    numbers = {piece: number for number, (piece, _, _) in enumerate(pieces)}
    ours = Pipeline(content_of(found, numbers, "<unk>", ["<s>"], ["</s>"]))
    theirs = library(pieces, model, chars, adds_space, removes_spaces)
    chance = random.Random(model)
    drawn = ["".join(chance.choices("abcatheop zﬁ²é  \n</>s", k=chance.randrange(1, 25))) for _ in range(300)]
    for text in [*TEXTS, *drawn]:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text
    assert (ours.start, ours.end) == ([1], [2]) and ours.encode_marked("a</s>")[-1] == 2
    assert ours.decode(ours.encode("the cat")) == "the cat"


def test_bytes_stand_for_what_is_in_no_piece(tmp_path: Path) -> None:
    pieces = [*a_list(), *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256))]
    for model in (UNIGRAM, BPE):
        write(tmp_path / "a.model", pieces, model)
        numbers = {piece: number for number, (piece, _, _) in enumerate(pieces)}
        ours = Pipeline(content_of(read_pieces(tmp_path / "a.model"), numbers, "<unk>", [], []))
        assert ours.encode("a日<0x41>")[1:4] == [numbers[f"<0x{byte:02X}>"] for byte in "日".encode()]
        assert ours.decode(ours.encode("a日<0x41>")) == "a日<0x41>", "the name of a byte is no byte"


def test_numbers_of_tokens_of_each_network(tmp_path: Path) -> None:
    pieces, config = a_list(), tmp_path / "tokenizer_config.json"
    places = {piece: number for number, (piece, _, _) in enumerate(pieces)}
    write(tmp_path / "spiece.model", pieces)
    words = words_in(tmp_path, "t5")
    assert words.encode("the") == [places[f"{SPACE}the"]] and words.end == [2] and len(words.tokens) == len(pieces) + 100
    assert words.control["<extra_id_0>"] == len(pieces) + 99 and words.encode_marked("<extra_id_99>") == [len(pieces)]
    config.write_text(json.dumps({"extra_ids": 0}))
    assert len(words_in(tmp_path, "mt5").tokens) == len(pieces)
    first = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]
    write(tmp_path / "spiece.model", [*first, *pieces[3:]])
    words = words_in(tmp_path, "pegasus")
    assert words.encode("the") == [places[f"{SPACE}the"] + 103] and words.end == [1] and words.encode("9")[-1] == 105
    assert not {0, 1} & {*words.encode("</s><pad>")}
    numbers = {"</s>": 0, "<unk>": 1, f"{SPACE}the": 2, "a": 3, SPACE: 4, ">>fra<<": 5, "\u2581Hund": 6, "<pad>": 7}
    (tmp_path / "vocab.json").write_text(json.dumps(numbers))
    write(tmp_path / "source.spm", pieces)
    words = words_in(tmp_path, "marian")
    assert words.encode("the a") == [2, 1], "a piece that has no number is unknown"
    assert words.encode(">>fra<< the") == [5, 2], "the mark of a language is a token"
    assert words.end == [0] and words.decode([6]) == "Hund"
    write(tmp_path / "sentencepiece.bpe.model", pieces)
    marks = [{"content": "__en__"}, "__de__"]
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": marks}))
    words = words_in(tmp_path, "m2m_100")
    assert words.control["__en__"] == 8 and words.control["__de__"] == 9 and words.start == [8] and words.end == [0]
    marks = ["ar_AR", "en_XX", *(f"x{letter}_XX" for letter in LETTERS[1:])]
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": marks}))
    words, num = words_in(tmp_path, "mbart"), len(pieces)
    assert [words.control[name] for name in ("<s>", "<pad>", "</s>", "<unk>", "ar_AR")] == [0, 1, 2, 3, num + 1]
    assert words.encode("the") == [places[f"{SPACE}the"] + 1] and words.control["<mask>"] == num + 1 + len(marks)
    assert (words.start, words.end) == ([num + 2], [2]) and len(words.tokens) == num + 2 + len(marks)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": marks[:25]}))
    words = words_in(tmp_path, "mbart")
    assert (words.start, words.end) == ([], [2, num + 2]), "the first mBART has the language behind a text"
    marks = [{"content": "__en__"}, "__de__"]
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": marks}))
    config.write_text(json.dumps({"src_lang": "fr"}))
    with pytest.raises(DataError, match="special_tokens_map.json has no language __fr__"):
        words_in(tmp_path, "m2m_100")
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0}))
    with pytest.raises(DataError, match="source.spm: does not fit the files beside it: KeyError"):
        words_in(tmp_path, "marian")


def test_damaged_files_are_refused_or_have_other_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    write(path, a_list(), UNIGRAM, charsmap(CHARS))
    whole, chance = path.read_bytes(), random.Random(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.3 else whole)
        for _ in range(chance.randrange(1, 4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            read_pieces(path)
            outcomes["read"] += 1
        except DataError as error:
            assert str(path) in error.fact
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50
    write(path, a_list(), 3)
    with pytest.raises(DataError, match="pieces of the kind 3; 1, Unigram, and 2, BPE, are supported"):
        read_pieces(path)
    with pytest.raises(DataError, match="is damaged"):
        [*fields_of(b"\x80" * 12)]
