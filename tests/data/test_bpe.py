"""Byte-level BPE: as the tokenizers library encodes, any text comes back, control tokens only by name."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs.data.bpe import ALIASES, PATTERNS, SPACE, ByteLevel, Pieces, Tokenizer, merged
from picograd_programs.data.tokenizer_gguf import STEPS, in_steps, tokenizer_of

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
TEXT = (
    "The capital of France isn't Berlin, it's Paris; in 2024 they'd 12345 visitors.\n\n  def f(x):\n\treturn x  # ½\n" * 20
)
LETTERS = "abc XYZ'st  \n\t\r12½٣²éß日か가ा😀_-.,  \u00a0\u0301\u3000ªⅫIT'S"
MODERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (  # as tiktoken has it
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

STEPS_OF_THEIRS = {
    "tekken": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+"],
}  # fmt: skip


def their_words(name: str) -> Any:
    """Returns how the library cuts words, by a name of llama.cpp."""
    name = next((known for known, aliases in ALIASES.items() if name in aliases), name)
    parts = tokenizers.pre_tokenizers
    of_bytes = parts.ByteLevel(add_prefix_space=False, use_regex=name in ("gpt-2", "smollm"))
    if name == "smollm":
        return parts.Sequence([parts.Digits(individual_digits=True), of_bytes])
    if name == "gpt-2":
        return of_bytes
    if name == "falcon":
        three = parts.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated")
        of_bytes = parts.ByteLevel(add_prefix_space=False, use_regex=True)
        return parts.Sequence([parts.Punctuation("contiguous"), of_bytes, parts.Digits(individual_digits=False), three])
    if name in STEPS_OF_THEIRS:
        splits = [parts.Split(tokenizers.Regex(pattern), "isolated") for pattern in STEPS_OF_THEIRS[name]]
        digits = [parts.Digits(individual_digits=True)] if name == "deepseek-coder" else []
        return parts.Sequence([*splits, *digits, of_bytes])
    pattern = tokenizers.Regex(O200K if name == "gpt-4o" else MODERN % ("{1,3}" if name == "llama-bpe" else ""))
    return parts.Sequence([parts.Split(pattern, "isolated"), of_bytes])


@pytest.mark.req("H1")
@pytest.mark.parametrize("name", [*PATTERNS, *STEPS])
def test_every_text_is_encoded_as_by_the_tokenizers_library_and_comes_back(name: str) -> None:
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = their_words(name)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    theirs.train_from_iterator([TEXT], trainer)
    vocabulary = sorted(theirs.get_vocab(), key=theirs.get_vocab().__getitem__)
    merges = [" ".join(pair) for pair in json.loads(theirs.to_str())["model"]["merges"]]
    kinds = [1] * len(vocabulary)
    ours = in_steps(vocabulary, merges, kinds, STEPS[name]) if name in STEPS else ByteLevel(vocabulary, merges, kinds, name)
    chance = random.Random(name)
    texts = [TEXT, "", " ", "\n\n x", *("".join(chance.choices(LETTERS, k=chance.randrange(40))) for _ in range(500))]
    for text in texts:
        numbers = ours.encode(text)
        assert numbers == theirs.encode(text).ids, repr(text)
        assert ours.decode(numbers) == text
        stream = ours.stream()
        assert "".join(map(stream.text, numbers)) + stream.rest() == text


def small(**changes: Any) -> Tokenizer:
    metadata: dict[str, Any] = {
        "model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab", "<end>", "Ã"], "merges": ["a b"],
        "token_type": np.array([1, 1, 1, 3, 1]),
    }  # fmt: skip
    return tokenizer_of({f"tokenizer.ggml.{name}": value for name, value in {**metadata, **changes}.items()})


def test_half_a_character_waits_for_its_other_half() -> None:
    stream = small().stream()
    assert [stream.text(2), stream.text(4), stream.rest()] == ["ab", "", "\ufffd"]


def test_text_never_becomes_a_control_token() -> None:
    tokenizer = small(tokens=[*"<end>", "<end>"], merges=["e n"], token_type=np.array([1] * 5 + [3]))
    with pytest.raises(DataError, match="no token for 'en', a part of 'end'"):
        tokenizer.encode("<end>")
    tokenizer = small(tokens=[*"<end>", "<end>"], merges=[], token_type=np.array([1] * 5 + [3]))
    assert tokenizer.encode("<end>") == [0, 1, 2, 3, 4] and tokenizer.control == {"<end>": 5}


@pytest.mark.parametrize("pre", STEPS)
def test_a_file_whose_words_are_cut_in_steps_has_its_own_tokens(pre: str) -> None:
    tokenizer = small(pre=pre, tokens=["a", "b", "ab", "<end>", ".", "<gap>"], token_type=np.array([1, 1, 1, 3, 1, 4]))
    assert tokenizer.encode("abab.<gap>a") == [2, 2, 4, 5, 0] and tokenizer.control == {"<end>": 3}
    assert tokenizer.encode_marked("ab<end>") == [2, 3] and tokenizer.decode([2, 5, 4]) == "ab<gap>."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "wpm"}, "tokenizer of kind 'wpm'; gpt2"),
        ({"tokens": None}, "tokenizer.ggml.tokens is None; a list is needed"),
        ({"merges": ["ab"]}, "merge 'ab', which is not a pair"),
        ({"token_type": np.ones(3)}, "5 tokens and kinds of 3"),
        ({"pre": "falcon", "token_type": np.ones(3)}, "5 tokens and kinds of 3"),
        ({"pre": "falcon", "merges": ["a b c"]}, "merge 'a b c', which is not a pair"),
        ({"pre": "viking"}, "pattern 'viking'; gpt-2, smollm"),
    ],
)
def test_metadata_of_another_tokenizer_are_data_errors(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        small(**changes)


# ---- characters with scores ----
@pytest.mark.req("H1")
def test_every_text_is_encoded_by_scores_as_by_merges_of_the_tokenizers_library() -> None:
    models, rng = tokenizers.models, random.Random(1)
    learner = tokenizers.Tokenizer(models.BPE())
    learner.train_from_iterator(
        [TEXT.replace(" ", SPACE)], tokenizers.trainers.BpeTrainer(vocab_size=220, show_progress=False)
    )
    learned = sorted(learner.get_vocab(), key=learner.get_vocab().__getitem__)
    tokens = [*(f"<0x{byte:02X}>" for byte in range(256)), *learned, "\n\n", "\n\n\n"]
    tokens = list(dict.fromkeys(tokens))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [
        (token[:at], token[at:])
        for token in learned
        for at in range(1, len(token))
        if token[:at] in vocabulary and token[at:] in vocabulary
    ]
    theirs = tokenizers.Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True))
    theirs.normalizer = tokenizers.normalizers.Replace(" ", SPACE)
    wholes = ["\n\n\n", "\n\n"]
    theirs.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in wholes])
    kinds = [6 if number < 256 else 4 if token in wholes else 1 for number, token in enumerate(tokens)]
    ours = Pieces(tokens, kinds, [-float(number) for number in range(len(tokens))], False)
    for text in [TEXT, "", *("".join(rng.choices(LETTERS + "theisan\n\n\n", k=rng.randrange(40))) for _ in range(500))]:
        numbers = ours.encode(text)
        assert numbers == theirs.encode(text).ids, repr(text)
        assert ours.decode(numbers) == text


def test_a_long_word_does_not_take_the_square_of_its_length() -> None:
    calls = 0

    def rank(left: str, right: str) -> float | None:
        nonlocal calls
        calls += 1
        return 0.0 if left == right else None

    assert merged(["a"] * 2**12, rank) == ["a" * 2**12]
    assert calls < 8 * 2**12
