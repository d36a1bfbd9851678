"""WordPiece against the tokenizers library, on every letter."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs.data.wordpiece import WordPiece, pieces_of, words_of

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
# Letters whose kind newer versions of Unicode have changed are left out: Python and the library know different ones.
LETTERS = [
    chr(code) for code in range(0x30000)
    if unicodedata.ucd_3_2_0.category(chr(code)) == unicodedata.category(chr(code)) not in ("Cn", "Cs")
    and code not in (0x166D, 0x1734)
]  # fmt: skip


def test_words_are_those_of_the_library() -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    normalise, split = BertNormalizer().normalize_str, BertPreTokenizer().pre_tokenize_str
    texts = [f"A{letter}b" for letter in LETTERS]
    texts += ["ΑΣ ΣΑΣ, İstanbul", "don't   stop\t🙂\n", "e\u0301\u0327 ﬁ", "深度x学习"]
    wrong = [text for text in texts if words_of(text) != [word for word, _ in split(normalise(text))]]
    assert not wrong and len(texts) > 50_000


def test_pieces_are_those_of_the_library() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    rng = np.random.default_rng(0)
    parts = {"".join(rng.choice(list("abc"), rng.integers(1, 4))) for _ in range(25)}
    vocabulary = [*SPECIAL, *sorted(parts), *(f"##{part}" for part in sorted(parts)[::2])]
    model = tokenizers.models.WordPiece({piece: number for number, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    theirs, ours = tokenizers.Tokenizer(model), WordPiece(vocabulary)
    for _ in range(2000):
        word = "".join(rng.choice(list("abcd"), rng.integers(1, 12)))
        assert pieces_of(word, ours.numbers) == theirs.encode(word).tokens
    assert pieces_of("a" * 101, ours.numbers) == ["[UNK]"]


def test_a_text_stands_between_a_start_and_an_end() -> None:
    pieces = WordPiece([*SPECIAL, "a"])
    assert pieces.encode("") == [2, 3] and pieces.encode("A b") == [2, 4, 1, 3]


def test_a_vocabulary_without_a_needed_piece_is_an_error() -> None:
    with pytest.raises(DataError, match=r"the vocabulary of 2 pieces lacks \[CLS\]"):
        WordPiece(["[PAD]", "[UNK]"])
