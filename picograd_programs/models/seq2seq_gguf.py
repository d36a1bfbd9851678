"""T5 in a GGUF file: its network, whose weights stay packed, and its SentencePiece vocabulary.

Source: ggml, llama.cpp, the architecture t5 in its converter (entries, and names of tensors).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd_formats.gguf_file import GGUF, PackedTensor, read_gguf
from picograd_programs.chat.turns import Manner
from picograd_programs.data.sentencepiece import CONTROL, OWN, UNIGRAM, Pieces, content_of
from picograd_programs.data.tokenizer_gguf import entry_in
from picograd_programs.data.tokenizer_json import Pipeline
from picograd_programs.models.entries import NEEDED, Entries
from picograd_programs.models.seq2seq import Seq2Seq, Seq2SeqConfig
from picograd_programs.models.seq2seq_folder import Lengths, PublishedSeq2Seq

NAME = "t5"
ENTRIES: dict[str, Any] = {
    "context_length": NEEDED, "embedding_length": NEEDED, "feed_forward_length": NEEDED, "block_count": NEEDED,
    "decoder_block_count": None, "attention.head_count": NEEDED, "attention.key_length": NEEDED,
    "attention.relative_buckets_count": NEEDED, "attention.layer_norm_rms_epsilon": NEEDED, "decoder_start_token_id": 0,
}  # fmt: skip
UNREAD = ".cross_attn_rel_b."  # tensors in early files of T5 that no network reads


def is_seq2seq_file(path: Path) -> bool:
    """True for a file of such a network."""
    return path.suffix == ".gguf" and path.is_file() and read_gguf(path).metadata.get("general.architecture") == NAME


def read_seq2seq_file(path: Path, context: int) -> PublishedSeq2Seq:
    """Loads the network of a file.

    Args:
      context:  largest number of tokens that are read, or written

    Raises:
      FileError: the file cannot be read.
      DataError: the file is damaged, or describes another network.
    """
    file = read_gguf(path)
    tokenizer = words_of(file.metadata)
    config, start = seq2seq_config_of(file, len(tokenizer.tokens), context)
    network = Seq2Seq(config, seq2seq_tensors_in(file))
    manner = Manner("", {}, (start,), frozenset(tokenizer.end), {"temperature": 0.0, "repetition": 1.0})
    return PublishedSeq2Seq(network, tokenizer, manner, Lengths())


def seq2seq_config_of(file: GGUF, tokens: int, context: int) -> tuple[Seq2SeqConfig, int]:
    """Returns the configuration in a file, and the start token of an answer.

    Logits are scaled if the file has one token table, as in the first T5; gates have the activation of v1.1.

    Raises:
      DataError: the file lacks an entry, or has an unknown one.
    """
    own = {key.removeprefix(f"{NAME}."): value for key, value in file.metadata.items() if key.startswith(f"{NAME}.")}
    said = Entries(own, "the file", ENTRIES, {})
    width, hidden, layers, heads, features, buckets = (
        said.whole(key)
        for key in ("embedding_length", "feed_forward_length", "block_count", "attention.head_count",
                    "attention.key_length", "attention.relative_buckets_count")
    )  # fmt: skip
    if buckets % 4:
        raise said.wrong("attention.relative_buckets_count", buckets, "a multiple of 4 is needed")
    start = said.get("decoder_start_token_id")
    if not isinstance(start, int) or not 0 <= start < tokens:
        raise said.wrong("decoder_start_token_id", start, f"a number of the {tokens} tokens is needed")
    said.whole("context_length")  # of the training: distances are unlimited
    is_gated, own_output = "enc.blk.0.ffn_gate.weight" in file.tensors, "output.weight" in file.tensors
    config = Seq2SeqConfig(
        tokens, context, layers, said.whole("decoder_block_count") or layers, width, hidden, heads, features, buckets,
        eps=said.number("attention.layer_norm_rms_epsilon"), activation="gelu_tanh" if is_gated else "relu",
        is_gated=is_gated, own_output=own_output, logit_scale=1.0 if own_output else width**-0.5,
    )  # fmt: skip
    said.check_empty({"attention.value_length": features, "attention.layer_norm_epsilon": Any, "vocab_size": Any})
    return config, start


def seq2seq_tensors_in(file: GGUF) -> dict[str, PackedTensor]:
    """Returns the tensors by Seq2Seq's names."""
    return {
        name.replace("attn_o.", "attn_output."): tensor for name, tensor in file.tensors.items() if UNREAD not in name
    }  # fmt: skip


def words_of(metadata: Mapping[str, Any]) -> Pipeline:
    """Returns the tokenizer of a file.

    Raises:
      DataError: the tokenizer is of another kind, or damaged.
    """
    entry = partial(entry_in, metadata)
    model, tokens, scores, kinds = (
        entry("model", str), entry("tokens", list), entry("scores", np.ndarray), entry("token_type", np.ndarray)
    )  # fmt: skip
    unknown, end = entry("unknown_token_id", int, 2), entry("eos_token_id", int, 1)
    if model != NAME or not len(tokens) == len(scores) == len(kinds) > max(unknown, end):
        raise DataError(f"the file has a tokenizer of kind {model[:40]!r}; t5, with scores and kinds, is read.")
    of_kind = {OWN: CONTROL}  # files use either kind for gaps
    each = zip(tokens, scores.tolist(), kinds.tolist())
    pieces = tuple((token, score, of_kind.get(kind, kind)) for token, score, kind in each)
    charsmap = metadata.get("tokenizer.ggml.precompiled_charsmap", np.zeros(0, np.uint8))
    found = Pieces(
        pieces, UNIGRAM, np.asarray(charsmap).astype(np.uint8).tobytes(), entry("add_space_prefix", bool, True),
        entry("remove_extra_whitespaces", bool, True),
    )  # fmt: skip
    numbers = {token: number for number, token in enumerate(tokens)}
    return Pipeline(content_of(found, numbers, tokens[unknown], [], [tokens[end]]))
