"""WordPiece against the tokenizers library, on every letter."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs.data.tokenizer_json import of_vocabulary
from picograd_programs.data.wordpiece import pieces_of

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
    ours = of_vocabulary(SPECIAL)
    texts = [f"A{letter}b" for letter in LETTERS]
    texts += ["ΑΣ ΣΑΣ, İstanbul", "don't   stop\t🙂\n", "e\u0301\u0327 ﬁ", "深度x学习"]
    wrong = [text for text in texts if ours.cut(ours.normalize(text), True) != [word for word, _ in split(normalise(text))]]
    assert not wrong and len(texts) > 50_000


def test_pieces_are_those_of_the_library() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    rng = np.random.default_rng(0)
    parts = {"".join(rng.choice(list("abc"), rng.integers(1, 4))) for _ in range(25)}
    vocabulary = [*SPECIAL, *sorted(parts), *(f"##{part}" for part in sorted(parts)[::2])]
    model = tokenizers.models.WordPiece({piece: number for number, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    theirs = tokenizers.Tokenizer(model)
    for _ in range(2000):
        word = "".join(rng.choice(list("abcd"), rng.integers(1, 12)))
        assert pieces_of(word, vocabulary) == theirs.encode(word).tokens
    assert pieces_of("a" * 101, vocabulary) == ["[UNK]"]


def test_a_text_is_between_a_start_and_an_end() -> None:
    tokenizer = of_vocabulary([*SPECIAL, "a"])
    assert (tokenizer.start, tokenizer.end, tokenizer.encode("A b")) == ([2], [3], [4, 1])
    assert of_vocabulary([*SPECIAL, "a"], lowers=False).encode("A a") == [1, 4]


def test_a_vocabulary_without_a_needed_piece_is_an_error() -> None:
    with pytest.raises(DataError, match=r"the vocabulary of 2 pieces lacks \[CLS\]"):
        of_vocabulary(["[PAD]", "[UNK]"])
