"""The tokenizer of a GGUF file: one of bpe.py, or, if it splits words in several steps, that of a tokenizer.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd_programs.data.bpe import CONTROL, TEXT, WHOLE, ByteLevel, Pieces, Tokenizer
from picograd_programs.data.tokenizer_json import DIGITS, OF_BYTES, Pipeline, at_each
from picograd_programs.data.vocabulary import Json

IDEOGRAPHS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
SIGNS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""  # a sign and the word after it
STEPS: dict[str, list[Json]] = {  # `tokenizer.ggml.pre` -> steps of a tokenizer.json
    "falcon": [
        {"type": "Punctuation", "behavior": "Contiguous"}, OF_BYTES, {"type": "Digits", "individual_digits": False},
        *at_each("[0-9][0-9][0-9]"),
    ],
    "deepseek-v3": [
        *at_each(
            r"\p{N}{1,3}", KANA, SIGNS + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+"
        ),
        {**OF_BYTES, "use_regex": False},
    ],
    "deepseek-coder": [
        *at_each(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", IDEOGRAPHS), DIGITS, {**OF_BYTES, "use_regex": False},
    ],
}  # fmt: skip


def entry_in(metadata: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Returns an entry of a file's tokenizer.

    Raises:
      DataError: the entry has another type, or is missing without a default.
    """
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, kind):
        raise DataError(f"the file's tokenizer.ggml.{name} is {str(value)[:40]}; a {kind.__name__} is needed.")
    return value


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer:
    """Returns the tokenizer of a GGUF file.

    Raises:
      DataError: the kind is unsupported, or the tokenizer is damaged.
    """
    entry = partial(entry_in, metadata)
    model, tokens = entry("model", str), entry("tokens", list)
    kinds = entry("token_type", np.ndarray, np.full(len(tokens), TEXT)).tolist()
    if model == "gpt2":
        cut, merges = entry("pre", str, "default"), entry("merges", list)
        return in_steps(tokens, merges, kinds, STEPS[cut]) if cut in STEPS else ByteLevel(tokens, merges, kinds, cut)
    if model == "llama":
        return Pieces(tokens, kinds, entry("scores", np.ndarray).tolist(), entry("add_space_prefix", bool, True))
    raise DataError(f"the file has a tokenizer of kind {model[:40]!r}; gpt2 (of bytes) and llama (of characters) are run.")


def in_steps(tokens: Sequence[str], merges: Sequence[str], kinds: Sequence[int], steps: Sequence[Json]) -> Pipeline:
    """Returns a byte-level tokenizer that splits words in steps.

    Args:
      steps:  parts of a tokenizer.json

    Raises:
      DataError: the numbers of kinds and tokens differ, or a merge is not a pair.
    """
    if len(kinds) != len(tokens):
        raise DataError(f"the file has {len(tokens):,} tokens and kinds of {len(kinds):,}.")
    added = [
        {"id": number, "content": token, "special": kind == CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, kinds))
        if kind in (CONTROL, WHOLE)
    ]
    vocabulary = {token: number for number, (token, kind) in enumerate(zip(tokens, kinds)) if kind == TEXT}
    return Pipeline({
        "added_tokens": added, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}, "decoder": {"type": "ByteLevel"},
    })  # fmt: skip
