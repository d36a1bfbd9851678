"""tokenizer.json: a byte-level BPE in the format of the tokenizers library, written and read.

A file has the tokens by their texts, the merges in their order, the control tokens, and how a text is cut into words. The
last is a program of parts; those that are equal to a pattern of bpe.py are known, others are refused.

Source: Hugging Face, tokenizers, the file that `Tokenizer.save` writes, version "1.0".
"""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

from picograd.errors import DataError
from picograd.files import read_whole, write_whole
from picograd_programs.data.bpe import CONTROL, TEXT, ByteLevel

Json = dict[str, Any]
OF_BYTES: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS: Json = {"type": "Digits", "individual_digits": True}
LETTERS_AND_ENDINGS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def cut_by(pattern: str) -> Json:
    """Returns the parts that cut words by a pattern of Oniguruma's."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**OF_BYTES, "use_regex": False}]}


CUTS: dict[str, Json] = {
    "gpt-2": OF_BYTES,
    "smollm": {"type": "Sequence", "pretokenizers": [DIGITS, OF_BYTES]},
    "llama-bpe": cut_by(LETTERS_AND_ENDINGS % "{1,3}"),
    "qwen2": cut_by(LETTERS_AND_ENDINGS % ""),
}
CUTS["default"] = CUTS["gpt-2"]


def save_tokenizer(tokenizer: ByteLevel, path: str | PathLike[str]) -> None:
    """Writes a tokenizer.json.

    Raises:
      FileError: it cannot be written.
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


def load_tokenizer(path: str | PathLike[str]) -> ByteLevel:
    """Returns the tokenizer of a tokenizer.json.

    Raises:
      DataError: the file cannot be read, is no tokenizer.json, or has a part that is not done here; it is named.
    """
    data = read_whole("load_tokenizer", path)
    try:
        return _tokenizer_of(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is no tokenizer.json: {type(error).__name__}: {error}.") from None
    except DataError as error:
        raise DataError(f"{path}: {error.fact}") from None


def _tokenizer_of(content: Json) -> ByteLevel:
    model = content["model"]
    if model.get("type", "BPE") != "BPE" or content.get("normalizer") is not None:
        raise DataError("has a model other than BPE, or changes characters first; neither is done here.")
    cut = next((name for name, parts in CUTS.items() if _same(parts, content["pre_tokenizer"])), None)
    if cut is None:
        raise DataError(f"cuts words by {json.dumps(content['pre_tokenizer'])[:80]}; {', '.join(CUTS)} are known.")
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    number_of = {**model["vocab"], **added}
    tokens = sorted(number_of, key=number_of.__getitem__)
    if [number_of[token] for token in tokens] != list(range(len(tokens))):
        raise DataError("has tokens whose numbers are not 0, 1, 2 and so on.")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    kinds = [CONTROL if token in added else TEXT for token in tokens]
    return ByteLevel(tokens, merges, kinds, cut, bool(model.get("ignore_merges")))


def _same(parts: Json, found: Json) -> bool:
    """Returns whether two programs of parts cut alike; what says nothing about words may differ."""
    if parts["type"] != found["type"]:
        return False
    if parts["type"] == "Sequence":
        inner, others = parts["pretokenizers"], found["pretokenizers"]
        return len(inner) == len(others) and all(map(_same, inner, others))
    return all(found.get(name, value) == value for name, value in parts.items() if name != "trim_offsets")
