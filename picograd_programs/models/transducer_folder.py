"""A transducer in the folder in which transformers keeps it: config.json, model.safetensors or parts, tokenizer.json.

As for decoders, every entry of config.json is read, must have one value, or is known to change nothing, else it is refused
before a weight is read.

Source: Hugging Face, transformers, the networks T5 and MT5 (t5, v1.1, flan-t5, mt5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd.record import Record
from picograd_formats.gguf_file import PackedTensor
from picograd_programs.chat.turns import Manner
from picograd_programs.data.published import map_published
from picograd_programs.data.tokenizer_json import Pipeline, load_tokenizer
from picograd_programs.data.vocabulary import json_in
from picograd_programs.models.architectures import ACTIVATION_NAMES
from picograd_programs.models.decoder_folder import KINDS, drawing_of, packed
from picograd_programs.models.entries import FIXED, NEEDED, Entries
from picograd_programs.models.folder_forms import Arrays
from picograd_programs.models.transducer import Transducer, TransducerConfig

COPIES = re.compile(r"(?:encoder|decoder)\.embed_tokens\.weight|.+EncDecAttention\.relative_attention_bias\.weight")
OURS = re.compile(r"[\w.]+(?=\.(?:weight|bias)\b)")
ENTRIES: dict[str, Any] = {
    "vocab_size": NEEDED, "d_model": NEEDED, "d_kv": NEEDED, "d_ff": NEEDED, "num_layers": NEEDED, "num_heads": NEEDED,
    "num_decoder_layers": None, "relative_attention_num_buckets": 32, "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu", "tie_word_embeddings": True, "scale_decoder_outputs": None, "eos_token_id": 1,
    "decoder_start_token_id": NEEDED,
}  # fmt: skip
NO_MATTER: dict[str, Any] = {  # of trainings, or what follows from other entries
    "is_encoder_decoder": True, "relative_attention_max_distance": 128, "n_positions": Any, "dropout_rate": Any,
    "initializer_factor": Any, "output_past": Any, "is_gated_act": Any, "dense_act_fn": Any,
}  # fmt: skip
KINDS_OF_T5 = ("t5", "mt5")


class Transduced(Record, eq=False):
    """A network of a folder.

    network:    with its weights
    tokenizer:  of the same folder
    manner:     the tokens that begin and end what is written, and how they are drawn
    """

    network: Transducer
    tokenizer: Pipeline
    manner: Manner


def is_transducer(folder: Path) -> bool:
    """True for the folder of a network of this kind."""
    path = folder / "config.json"
    return path.is_file() and json_in(path).get("model_type") in KINDS_OF_T5


def read_transducer(folder: Path, context: int) -> Transduced:
    """Returns the network in a folder.

    Args:
      context:  most tokens that will be read, or written

    Raises:
      FileError: a file cannot be read.
      DataError: one is damaged or missing, or describes another network.
    """
    content = json_in(folder / "config.json")
    read_transducer_config(content, 1, 1)  # errors come before other files are looked for
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    config, start, ends, is_tied = read_transducer_config(content, len(tokenizer.tokens), context)
    tokenizer.fit(content["vocab_size"], config.width)
    path = folder / "generation_config.json"
    drawing = drawing_of(json_in(path) if path.is_file() else {}) or {"temperature": 0.0, "repetition": 1.0}
    try:
        network = Transducer(config, transducer_tensors(map_published(folder), config, is_tied))
    except DataError as error:
        raise DataError(in_their_names(error.fact, names_of(config)), error.hint) from None
    return Transduced(network, tokenizer, Manner("", {}, (start,), frozenset(ends), drawing))


def read_transducer_config(
    content: Mapping[str, Any], tokens: int, context: int
) -> tuple[TransducerConfig, int, list[int], bool]:
    """Returns the settings of a config.json, the tokens that begin a text and that end it, and whether there is one table.

    Raises:
      DataError: it describes another network, lacks an entry, or has one that is not known.
    """
    if content.get("model_type") not in KINDS_OF_T5:
        raise DataError(f"config.json says model_type is {str(content.get('model_type'))[:40]!r}; t5, mt5 are run.")
    said = Entries(content, "config.json", ENTRIES, {})
    rows, width, features, hidden, layers, heads = (
        said.whole(key) for key in ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")
    )
    way, is_tied = said.get("feed_forward_proj"), said.get("tie_word_embeddings") is not False
    is_scaled = said.flag("scale_decoder_outputs") if "scale_decoder_outputs" in content else is_tied
    gate, _, name = way.rpartition("-") if isinstance(way, str) else ("", "", "")
    name = "gelu_new" if way == "gated-gelu" else name  # as it was trained
    if name not in ACTIVATION_NAMES or gate not in ("", "gated"):
        raise said.wrong("feed_forward_proj", way, "relu, gated-gelu and others of this form are known")
    ends = said.get("eos_token_id")
    start, ends = said.get("decoder_start_token_id"), ends if isinstance(ends, list) else [ends]
    for key, numbers in (("decoder_start_token_id", [start]), ("eos_token_id", ends)):
        if not all(type(number) is int and 0 <= number < rows for number in numbers):
            raise said.wrong(key, numbers, f"a number of the {rows} tokens is needed")
    buckets = said.whole("relative_attention_num_buckets")
    if buckets % 4:
        raise said.wrong("relative_attention_num_buckets", buckets, "a multiple of 4 is needed")
    config = TransducerConfig(
        min(rows, tokens), context, layers, said.whole("num_decoder_layers") or layers, width, hidden, heads, features,
        buckets, eps=said.number("layer_norm_epsilon"), activation=ACTIVATION_NAMES[name], is_gated=gate == "gated",
        logit_scale=width**-0.5 if is_scaled else 1.0,
    )  # fmt: skip
    said.check_empty(FIXED | NO_MATTER)
    return config, start, ends, is_tied


def names_of(config: TransducerConfig) -> dict[str, str]:
    """Returns the names of tensors: in the folder -> here.

    >>> names_of(TransducerConfig(9, 9, 1, 1, 4, 8, 1, 4))["decoder.block.0.layer.1.EncDecAttention.o"]
    'dec.blk.0.cross_attn_output'
    """
    names = {"shared": "token_embd", "lm_head": "output"}
    own, cross = ("SelfAttention", "attn"), ("EncDecAttention", "cross_attn")
    sides = (("encoder", "enc", config.encoder_layers, [own]), ("decoder", "dec", config.decoder_layers, [own, cross]))
    feed_forward = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if config.is_gated else {"wi": "up", "wo": "down"}
    for theirs, ours, layers, attentions in sides:
        names[f"{theirs}.final_layer_norm"] = f"{ours}.output_norm"
        for layer in range(layers):
            block, part = f"{theirs}.block.{layer}.layer", f"{ours}.blk.{layer}"
            for place, (kind, name) in enumerate(attentions):
                names[f"{block}.{place}.layer_norm"] = f"{part}.{name}_norm"
                for short, long in zip("qkvo", ("q", "k", "v", "output")):
                    names[f"{block}.{place}.{kind}.{short}"] = f"{part}.{name}_{long}"
            last = f"{block}.{len(attentions)}"
            names[f"{last}.layer_norm"] = f"{part}.ffn_norm"
            names |= {f"{last}.DenseReluDense.{w}": f"{part}.ffn_{name}" for w, name in feed_forward.items()}
        names[f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias"] = f"{ours}.blk.0.attn_rel_b"
    return names


def transducer_tensors(arrays: Arrays, config: TransducerConfig, is_tied: bool) -> dict[str, PackedTensor]:
    """Returns tensors by the names of Transducer.

    Files of transformers 5 say of all networks that they have one table; those that have two do not scale logits.

    Raises:
      DataError: one is of another network, or not of floats.
    """
    left_out = {name for name in arrays if COPIES.fullmatch(name)}
    if is_tied and config.logit_scale != 1:
        left_out.add("lm_head.weight")
    tensors = renamed({name: array for name, array in arrays.items() if name not in left_out}, names_of(config))
    if not is_tied and "output.weight" not in tensors:
        raise DataError("has no tensor lm_head.weight, and its config.json says no tie_word_embeddings.")
    return tensors


def renamed(arrays: Arrays, names: Mapping[str, str]) -> dict[str, PackedTensor]:
    """Returns tensors by other names.

    Args:
      names:  theirs -> ours, without `.weight` and `.bias`

    Raises:
      DataError: one has no name here, or is not of floats.
    """
    tensors = dict[str, PackedTensor]()
    for name, array in arrays.items():
        own, _, part = name.rpartition(".")
        dtype = array.packing.name if isinstance(array, PackedTensor) else array.dtype.name
        if own not in names or part not in ("weight", "bias") or dtype not in KINDS:
            raise DataError(f"has a tensor {name[:70]!r} of {array.shape}, {dtype}, which this network does not have.")
        tensors[f"{names[own]}.{part}"] = packed(array)
    return tensors


def in_their_names(fact: str, names: Mapping[str, str]) -> str:
    """Returns a sentence in which tensors have the names of the folder; `names` as of `renamed`."""
    theirs = {ours: name for name, ours in names.items()}
    return OURS.sub(lambda found: theirs.get(found[0], found[0]), fact)
