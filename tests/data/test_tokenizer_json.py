"""tokenizer.json of the pipelines that open models have: as the tokenizers library encodes, writes and marks; what "
"is refused."""

from __future__ import annotations

import base64
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs.data.bpe import SPACE
from picograd_programs.data.charsmap import CharsMap
from picograd_programs.data.patterns import check_repeats, compiled
from picograd_programs.data.tokenizer_json import Pipeline, load_tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
models, normalizers, pre, decoders, processors, trainers = (
    tokenizers.models, tokenizers.normalizers, tokenizers.pre_tokenizers, tokenizers.decoders, tokenizers.processors,
    tokenizers.trainers,
)  # fmt: skip
TEXT = (
    "The quick brown fox isn't 1234 years old; it's in Paris, où l'été dure.\n\n  def f(x):\n\treturn x + 2  # done\n" * 8
)
LETTERS = (
    "abcdeXYZ'st  \n\t\r12½٣²éßÀ日本語ा한😀👩\u200d🚀_-.,!?  \u00a0\u0301\u0308\u200b\u2028\u3000ªⅫİſ\ufeff\u0085\x1c\x00ﬁ"
    "²\u0301ﾊﾟＡ㎏ำ\r\n\u0600"
)
SPLIT_200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MODERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(pattern: str, behavior: str = "isolated") -> Any:
    return pre.Split(tokenizers.Regex(pattern), behavior)


def of_bytes(*before: Any, uses_regex: bool = False) -> Any:
    return pre.Sequence([*before, pre.ByteLevel(add_prefix_space=False, use_regex=uses_regex)])


SENTENCE_PIECE = decoders.Sequence([
    decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0),
])  # fmt: skip
BERT = {"sep": ("[SEP]", 3), "cls": ("[CLS]", 2)}
# What SentencePiece's normalizer replaces, in small; letters of which one is the beginning of another's bytes, too.
CHARS = {"ﬁ": "fi", "²": "2", "e\u0301": "é", "Ａ": "A", "㎏": "kg", "\r\n": " ", "\t": " ", "\u200b": "", "ﾊ": "ハ",
         "ﾊﾟ": "パ", "日": "日", "½": "1⁄2"}  # fmt: skip


def charsmap(texts: dict[str, str]) -> bytes:
    """Returns a map as SentencePiece compiles it: a trie whose children are at `offset ^ byte`, each where it is free."""
    trie: dict[int, Any] = {}
    blob = b""
    for key, text in texts.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0], blob = len(blob), blob + text.encode() + b"\0"
    units, taken = {0: 0}, {0}

    def put(place: int, children: dict[int, Any]) -> None:
        base = next(base for base in range(1, 2**16) if not taken & {base ^ byte for byte in children})
        taken.update(base ^ byte for byte in children)
        units[place] |= (base ^ place) << 10 | (0 in children) << 8
        for byte, below in children.items():
            units[base ^ byte] = byte if byte else below | 1 << 31
            if byte:
                put(base ^ byte, below)

    put(0, trie)
    array = np.zeros((max(units) | 255) + 1, "<u4")
    array[[*units]] = [*units.values()]
    return len(array.tobytes()).to_bytes(4, "little") + array.tobytes() + blob


# name -> model, trainer, normalizer, pre-tokenizer, decoder
KINDS: dict[str, tuple[str, Any, Any, Any]] = {
    "GPT-2, GPT-NeoX": ("bytes", None, pre.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
    "GPT-2 with a space, RoBERTa": ("bytes", None, pre.ByteLevel(add_prefix_space=True), decoders.ByteLevel()),
    "GPT-NeoX with NFC": ("bytes", normalizers.NFC(), pre.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
    "Llama 3, SmolLM3": ("bytes", None, of_bytes(split(MODERN % "{1,3}")), decoders.ByteLevel()),
    "Qwen 2": ("bytes", normalizers.NFC(), of_bytes(split(MODERN % "")), decoders.ByteLevel()),
    "StarCoder, SmolLM2": ("bytes", None, of_bytes(pre.Digits(True), uses_regex=True), decoders.ByteLevel()),
    "Phi-4": ("bytes", None, of_bytes(split(SPLIT_200K, "removed")), decoders.ByteLevel()),
    "Llama 2, TinyLlama, Phi-3": (
        "fallback", normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]), None,
        SENTENCE_PIECE,
    ),
    "Gemma 2": ("fallback", normalizers.Replace(" ", SPACE), None, decoders.Sequence([
        decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
    ])),
    "Gemma 3": ("fallback", normalizers.Replace(" ", SPACE), pre.Split(" ", "merged_with_previous"), SENTENCE_PIECE),
    "Mistral 0.3": ("fallback", None, pre.Metaspace(SPACE, "first", False), SENTENCE_PIECE),
    "T5": ("unigram", normalizers.Sequence([
        normalizers.NFKC(), normalizers.Strip(False, True), normalizers.Replace(tokenizers.Regex(" {2,}"), SPACE),
    ]), pre.Metaspace(), decoders.Metaspace()),
    "a Unigram with bytes": ("unigram", normalizers.NFKD(), pre.Metaspace(SPACE, "never"), decoders.Metaspace()),
    "BERT": ("wordpiece", normalizers.BertNormalizer(), pre.BertPreTokenizer(), decoders.WordPiece()),
    "BERT, cased": ("wordpiece", normalizers.BertNormalizer(lowercase=False), pre.BertPreTokenizer(), decoders.WordPiece()),
    "BERT, accents kept": (
        "wordpiece", normalizers.BertNormalizer(strip_accents=False, handle_chinese_chars=False), pre.BertPreTokenizer(),
        decoders.WordPiece(),
    ),
    "parts of all kinds": (
        "wordpiece", normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
        pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation("merged_with_next"), pre.Digits(False)]), decoders.WordPiece(),
    ),
    "XLM-R": ("unigram", normalizers.Sequence([
        normalizers.Precompiled(charsmap(CHARS)), normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
    ]), pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()]), decoders.Metaspace()),
    "words and signs": ("wordpiece", None, pre.Whitespace(), decoders.WordPiece()),
    "matches kept": ("bytes", None, of_bytes(pre.Split(tokenizers.Regex(r"\w+|\s"), "removed", invert=True)),
    decoders.ByteLevel()),
    "matches joined": ("bytes", None, of_bytes(split(r"[\d.]", "contiguous")), decoders.ByteLevel()),
}  # fmt: skip


def test_a_charsmap_that_is_damaged_is_refused_or_finds_nothing() -> None:
    whole = charsmap(CHARS)
    assert CharsMap(base64.b64encode(whole).decode())("ﬁt") == "fit"
    for data in (b"", whole[:3], b"\xff" * 8, b"\3\0\0\0abcd"):
        with pytest.raises(DataError, match="its Precompiled has a precompiled_charsmap of"):
            CharsMap(base64.b64encode(data).decode())
    with pytest.raises(DataError, match="is not base64"):
        CharsMap("?")
    chance = random.Random(0)
    for _ in range(300):
        mutant = bytearray(whole)
        mutant[chance.randrange(4, len(mutant))] = chance.randrange(256)
        CharsMap(base64.b64encode(mutant).decode())("ﬁt e\u0301 ²\u0301 Ａ")


def library_tokenizer(name: str) -> Any:
    """Returns a tokenizer of the library that has learned from the text."""
    kind, normalizer, pre_tokenizer, decoder = KINDS[name]
    special = ["<s>", "</s>"]
    if kind == "wordpiece":
        theirs = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(
            vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
        )
    elif kind == "unigram":
        theirs = tokenizers.Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=["<unk>", *special], unk_token="<unk>", show_progress=False
        )
    else:
        is_bytes = kind == "bytes"
        theirs = tokenizers.Tokenizer(
            models.BPE() if is_bytes else models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
        )
        trainer = trainers.BpeTrainer(
            vocab_size=420, initial_alphabet=pre.ByteLevel.alphabet() if is_bytes else [], show_progress=False,
            special_tokens=special if is_bytes else ["<unk>", *special, *(f"<0x{byte:02X}>" for byte in range(256))],
        )  # fmt: skip
    if normalizer is not None:
        theirs.normalizer = normalizer
    if pre_tokenizer is not None:
        theirs.pre_tokenizer = pre_tokenizer
    theirs.decoder = decoder
    if name == "Mistral 0.3":  # its pieces begin with a space, or have none
        theirs.pre_tokenizer = pre.Metaspace(SPACE, "first", True)
    theirs.train_from_iterator(TEXT.splitlines(True) if kind != "fallback" else [TEXT[:400], TEXT[:300]], trainer)
    if kind == "fallback":  # bytes are tokens of the model, and no added ones
        content = json.loads(theirs.to_str())
        content["added_tokens"] = [token for token in content["added_tokens"] if not token["content"].startswith("<0x")]
        theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    if pre_tokenizer is not None:
        theirs.pre_tokenizer = pre_tokenizer
    theirs.add_special_tokens(["<|im_start|>", tokenizers.AddedToken("<|end|>", rstrip=True, special=True)])
    theirs.add_tokens([
        tokenizers.AddedToken("<think>", normalized=False), tokenizers.AddedToken("two  words", normalized=True),
        tokenizers.AddedToken("<mask>", lstrip=True, normalized=False), tokenizers.AddedToken("word", single_word=True,
        normalized=False),
    ])  # fmt: skip
    return theirs


def hostile(name: str) -> list[str]:
    """Returns texts of which some letters are rare, and some are names of tokens."""
    chance, marks = (
        random.Random(name),
        ["<|im_start|>", "<|end|>", "<think>", "two  words", "<mask>", "word", "<s>", "<0x0A>", "<|", "|>"],
    )
    pool = [*LETTERS, *marks, *"  \n"]
    texts = ["".join(chance.choices(pool, k=chance.randrange(1, 40))) for _ in range(400)]
    return [TEXT, "", " ", "\n\n x", "   a", "a" * 300, "<|end|> \n a", "swordword word", *LETTERS, *texts]


@pytest.mark.req("H1")
@pytest.mark.parametrize("name", KINDS)
def test_text_is_encoded_and_written_as_by_the_library(name: str, tmp_path: Path) -> None:
    theirs = library_tokenizer(name)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    writes = KINDS[name][0] != "wordpiece"  # whose tokens are read alone
    for marked in (False, True):
        theirs.encode_special_tokens = not marked
        for text in hostile(name):
            if not marked and "<s>" in text and KINDS[name][0] == "unigram":
                continue  # a control token, which the library makes of its name, since it is a piece
            expected = theirs.encode(text, add_special_tokens=False).ids
            found = ours.encode_marked(text) if marked else ours.encode(text)
            assert found == expected, (marked, text)
            if writes and "two  words" not in text:  # which the library writes as it is normalized
                assert ours.decode(found) == theirs.decode(expected), text
                stream = ours.stream()
                assert "".join(map(stream.text, found)) + stream.rest() == ours.decode(found)
    assert len(ours.tokens) == theirs.get_vocab_size()
    assert ours.control.keys() >= {"<|im_start|>", "<|end|>"} and "<think>" not in ours.control


@pytest.mark.parametrize("name", KINDS)
def test_the_name_of_a_control_token_in_a_text_is_no_control_token(name: str, tmp_path: Path) -> None:
    theirs = library_tokenizer(name)
    theirs.add_special_tokens(["<pad>", "</s>"])  # a Unigram has them as pieces, too
    content = json.loads(theirs.to_str())
    if content["model"]["type"] == "Unigram":
        pieces, added = content["model"]["vocab"], content["added_tokens"]
        content["model"]["vocab"] = [*pieces, *([token["content"], 0.0] for token in added if token["id"] >= len(pieces))]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    unknown = {content["model"].get("unk_id"), ours.control.get("[UNK]")}
    for mark in ("<pad>", "</s>", "<|im_start|>"):
        assert ours.control[mark] in ours.encode_marked(f"a {mark} b")
        assert not {*ours.encode(f"a {mark} b")} & {*ours.control.values()} - unknown


def test_what_is_hidden_breaks_a_mark_and_is_gone(tmp_path: Path) -> None:
    theirs = library_tokenizer("Qwen 2")
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    found = ours.encode_marked("<|im_start|>a<\ufdd0|im_start|>b", "\ufdd0")
    assert found == [ours.control["<|im_start|>"], *ours.encode("a<|im_start|>b")]


@pytest.mark.parametrize("processor", ["template", "bert", "roberta", "sequence", "bytes"])
def test_tokens_around_a_text(processor: str, tmp_path: Path) -> None:
    theirs = library_tokenizer("Llama 3, SmolLM3")
    first, last = (theirs.token_to_id(token) for token in ("<s>", "</s>"))
    template = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", first), ("</s>", last)])
    theirs.post_processor = {
        "template": template, "bert": processors.BertProcessing(("</s>", last), ("<s>", first)),
        "roberta": processors.RobertaProcessing(("</s>", last), ("<s>", first)),
        "sequence": processors.Sequence([processors.ByteLevel(trim_offsets=False), template]),
        "bytes": processors.ByteLevel(),
    }[processor]  # fmt: skip
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert [*ours.start, *ours.encode("Hi there"), *ours.end] == theirs.encode("Hi there").ids


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"type": "WordLevel", "vocab": {}}}, "model of type 'WordLevel'; BPE, Unigram, WordPiece are known"),
        ({"normalizer": {"type": "Nmt"}}, "normalizer of type 'Nmt'"),
        ({"normalizer": {"type": "Strip", "strip_left": True, "strip_up": True}}, "its Strip says strip_up is True"),
        ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "pre_tokenizer of type 'UnicodeScripts'"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\p{L}&&[^a]]"}, "behavior": "Isolated"}},
         "a pattern with '&&'"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"\p{Han}"}, "behavior": "Isolated"}},
         "the class \\p{Han}"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}}, "is not a pattern"),
        *(({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": slow}, "behavior": "Isolated"}}, "may never end")
          for slow in ("(a+)+$", "(a|a)*b", "(?:a?a?){2,}b", "(?=(a{1,3})*b)", "((a+)b?)*")),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 99}}, "puts 99 letters before each text"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 1}}, "its unk_id is 1; a number of its 1 pieces"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": "a"}}, "its unk_id is a"),
        ({"post_processor": {"type": "Other"}}, "post_processor of type 'Other'"),
        ({"decoder": {"type": "CTC"}}, "a decoder with {'type': 'CTC'}"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}, "merge 'a', which is not a pair"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}, "not distinct"),
        ({"model": {"type": "BPE", "vocab": {"a": 2**40}, "merges": []}}, "are not whole"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}}, "by '</w>'"),
        ({"model": None}, "is not a tokenizer.json"),
        ({"added_tokens": [7]}, "is not a tokenizer.json"),
    ],
)  # fmt: skip
def test_parts_that_are_not_done_are_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    whole = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": []}
    path.write_text(json.dumps(whole))
    assert load_tokenizer(path).encode("ab") == [0, 1]
    path.write_text(json.dumps(whole | change))
    with pytest.raises(DataError) as caught:
        load_tokenizer(path)
    assert words in caught.value.fact and str(path) in caught.value.fact


def test_numbers_that_are_nobodys_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    added = [{"id": 5, "content": "<end>", "special": True}]
    path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": added}))
    ours = load_tokenizer(path)
    assert ours.tokens == ["a", "", "", "", "", "<end>"] and ours.decode([0, 3, 0]) == "aa" and ours.control == {"<end>": 5}
    ours.fit(3, 8)
    assert ours.control == {} and len(ours.tokens) == 3
    with pytest.raises(DataError, match="they belong to different models"):
        ours.fit(0, 8)


def test_classes_of_a_pattern_are_those_of_unicode() -> None:
    assert compiled(r"[\P{L}\n]").findall("aé1 日") == ["1", " "]
    assert compiled(r"[^\S\n]+").findall("a \t\n\x1cb") == [" \t"]
    assert compiled(r"\x{e9}|\p{^L}").findall("aé!") == ["é", "!"]
    assert compiled(r"\d+").findall("12½٣") == ["12", "٣"]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -1e308])
def test_a_score_whose_sums_are_no_numbers_is_refused(score: float) -> None:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", score], ["b", -1.0]]}
    with pytest.raises(DataError, match="a piece has a score that is not a number of at most 1e.38"):
        Pipeline({"model": model, "normalizer": None, "pre_tokenizer": None, "decoder": None, "added_tokens": []})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"type": "BPE", "vocab": {"b": 0}, "merges": [], "unk_token": "?"}}, "no token for 'a', a part of"),
        ({"model": {"type": "WordPiece", "vocab": {"b": 0}, "unk_token": "?"}}, "has no token for 'aaaa"),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 99}}, "letter into more than 32"),
        ({"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 16}] * 9}}, "one letter into more than 32"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_encoded_is_an_error(change: dict[str, Any], words: str) -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    whole = {"model": model, "normalizer": None, "pre_tokenizer": None, "decoder": None, "added_tokens": []}
    with pytest.raises(DataError) as caught:
        Pipeline(whole | change).encode("a" * 500)
    assert words in caught.value.fact


def test_groups_of_a_pattern_may_repeat_where_they_match_in_one_way() -> None:
    for pattern in (r"(?=(\d{3})+(?!\d))", r"(?i:'s|'t)?\p{L}+", r" ?[^(\s|[.,!?])]+", r"(?:ab)+", r"\(a+\)+", r"[(a+)]+"):
        check_repeats(pattern)
