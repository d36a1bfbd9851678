"""T5 in transformers' format: entries of config.json and names of tensors.

Source: Raffel et al. 2019, arXiv:1910.10683; Hugging Face, transformers, the networks T5 and MT5 (t5, v1.1, flan-t5, mt5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picograd_programs.models.architectures import ACTIVATION_NAMES
from picograd_programs.models.entries import FIXED, LAYERS_MAX, NEEDED, NUMBER_MAX, Entries
from picograd_programs.models.seq2seq import Seq2SeqConfig

ENTRIES: dict[str, Any] = {
    "vocab_size": NEEDED, "d_model": NEEDED, "d_kv": NEEDED, "d_ff": NEEDED, "num_layers": NEEDED, "num_heads": NEEDED,
    "num_decoder_layers": None, "relative_attention_num_buckets": 32, "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu", "tie_word_embeddings": True, "scale_decoder_outputs": None, "eos_token_id": 1,
    "decoder_start_token_id": NEEDED,
}  # fmt: skip
NO_MATTER: dict[str, Any] = {  # entries of trainings, or that follow from others
    "is_encoder_decoder": True, "relative_attention_max_distance": 128, "n_positions": Any, "dropout_rate": Any,
    "initializer_factor": Any, "output_past": Any, "is_gated_act": Any, "dense_act_fn": Any,
}  # fmt: skip


def read_t5_config(
    content: Mapping[str, Any], tokens: int, context: int
) -> tuple[Seq2SeqConfig, tuple[int, ...], list[int]]:
    """Returns the configuration in a config.json, and the start and end tokens of an answer.

    Transformers 5 writes for all networks that they have one token table; those with two do not scale logits.

    Raises:
      DataError: it describes another network, lacks an entry, or has an unknown one.
    """
    said = Entries(content, "config.json", ENTRIES, {})
    rows, width, features, hidden, layers, heads = (
        said.size(key, LAYERS_MAX if key == "num_layers" else NUMBER_MAX)
        for key in ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")
    )
    way, is_tied = said.get("feed_forward_proj"), said.get("tie_word_embeddings") is not False
    is_scaled = said.flag("scale_decoder_outputs") if "scale_decoder_outputs" in content else is_tied
    gate, _, name = way.rpartition("-") if isinstance(way, str) else ("", "", "")
    name = "gelu_new" if way == "gated-gelu" else name  # the activation of its training
    if name not in ACTIVATION_NAMES or gate not in ("", "gated"):
        raise said.wrong("feed_forward_proj", way, "relu, gated-gelu and others of this form are known")
    ends = said.get("eos_token_id")
    start, ends = said.get("decoder_start_token_id"), ends if isinstance(ends, list) else [ends]
    for key, numbers in (("decoder_start_token_id", [start]), ("eos_token_id", ends)):
        if not all(type(number) is int and 0 <= number < rows for number in numbers):
            raise said.wrong(key, numbers, f"a number of the {rows} tokens is needed")
    buckets = said.size("relative_attention_num_buckets")
    if buckets % 4:
        raise said.wrong("relative_attention_num_buckets", buckets, "a multiple of 4 is needed")
    decoder_layers = layers if content.get("num_decoder_layers") is None else said.size("num_decoder_layers", LAYERS_MAX)
    config = Seq2SeqConfig(
        min(rows, tokens), context, layers, decoder_layers, width, hidden, heads, features,
        buckets, eps=said.rate("layer_norm_epsilon"), activation=ACTIVATION_NAMES[name], is_gated=gate == "gated",
        own_output=not is_scaled,
        logit_scale=width**-0.5 if is_scaled else 1.0,
    )  # fmt: skip
    said.check_empty(FIXED | NO_MATTER)
    return config, (start,), ends


def names_of_t5(config: Seq2SeqConfig) -> dict[str, str]:
    """Returns names of tensors: in the folder -> here, without `.weight` and `.bias`.

    >>> names_of_t5(Seq2SeqConfig(9, 9, 1, 1, 4, 8, 1, 4))["decoder.block.0.layer.1.EncDecAttention.o"]
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
