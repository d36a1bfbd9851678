"""BART as transformers publishes it: entries of config.json and names of tensors; Whisper has many of both.

Source: Lewis et al. 2019, arXiv:1910.13461; Hugging Face, transformers, the network BART (base, large-cnn, distilbart ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picograd_programs.models.architectures import ACTIVATION_NAMES
from picograd_programs.models.entries import FIXED, NEEDED, Entries
from picograd_programs.models.seq2seq import Seq2SeqConfig

FIRST = 2  # row of the table that the first position has
SIZES: dict[str, Any] = {
    "vocab_size": NEEDED, "d_model": NEEDED, "encoder_layers": NEEDED, "decoder_layers": NEEDED,
    "encoder_attention_heads": NEEDED, "decoder_attention_heads": NEEDED, "encoder_ffn_dim": NEEDED,
    "decoder_ffn_dim": NEEDED, "activation_function": "gelu",
}  # fmt: skip
OF_TRAINING: dict[str, Any] = {
    "dropout": Any, "activation_dropout": Any, "encoder_layerdrop": Any, "decoder_layerdrop": Any, "init_std": Any,
    "num_hidden_layers": Any,
}  # fmt: skip
ENTRIES: dict[str, Any] = SIZES | {
    "max_position_embeddings": 1024, "scale_embedding": False, "eos_token_id": 2, "decoder_start_token_id": 2,
    "forced_bos_token_id": None,
}  # fmt: skip
NO_MATTER: dict[str, Any] = OF_TRAINING | {
    "is_encoder_decoder": True, "tie_word_embeddings": True, "normalize_before": False, "normalize_embedding": True,
    "add_final_layer_norm": False, "add_bias_logits": False, "static_position_embeddings": False,
    "extra_pos_embeddings": Any, "classif_dropout": Any, "output_past": Any, "force_bos_token_to_be_generated": Any,
    "save_step": Any,
}  # fmt: skip
LAYER = {  # in the folder -> here
    "self_attn_layer_norm": "attn_norm", "encoder_attn_layer_norm": "cross_attn_norm", "final_layer_norm": "ffn_norm",
    "fc1": "ffn_up", "fc2": "ffn_down",
    **{
        f"{theirs}.{part}_proj": f"{ours}_{'output' if part == 'out' else part}"
        for theirs, ours in (("self_attn", "attn"), ("encoder_attn", "cross_attn")) for part in ("q", "k", "v", "out")
    },
}  # fmt: skip


def sizes_of(said: Entries) -> dict[str, Any]:
    """Returns the fields of Seq2SeqConfig about sizes, but for the vocabulary.

    Raises:
      DataError: encoder and decoder differ where they must not, or heads do not divide the width.
    """
    width, layers, hidden, heads = (
        said.whole("d_model"),
        *(
            [said.whole(f"{side}_{key}") for side in ("encoder", "decoder")]
            for key in ("layers", "ffn_dim", "attention_heads")
        ),
    )
    for key, both in (("decoder_ffn_dim", hidden), ("decoder_attention_heads", heads)):
        if both[0] != both[1]:
            raise said.wrong(key, both[1], f"as many as of the encoder, {both[0]}, are done here")
    if width % heads[0]:
        raise said.wrong("encoder_attention_heads", heads[0], f"they must divide d_model, {width}")
    activation = said.get("activation_function")
    if activation not in ACTIVATION_NAMES:
        raise said.wrong("activation_function", activation, f"{', '.join(ACTIVATION_NAMES)} are known")
    return {
        "encoder_layers": layers[0], "decoder_layers": layers[1], "width": width, "hidden": hidden[0], "heads": heads[0],
        "features": width // heads[0], "activation": ACTIVATION_NAMES[activation],
    }  # fmt: skip


def read_bart_config(
    content: Mapping[str, Any], tokens: int, context: int
) -> tuple[Seq2SeqConfig, tuple[int, ...], list[int]]:
    """Returns the settings of a config.json, the tokens that begin an answer, and those that end it.

    Raises:
      DataError: it lacks an entry, or has one that is not known.
    """
    said = Entries(content, "config.json", ENTRIES, {})
    rows, positions = said.whole("vocab_size"), said.whole("max_position_embeddings")
    sizes, is_scaled = sizes_of(said), said.flag("scale_embedding")
    names = ("decoder_start_token_id", "forced_bos_token_id", "eos_token_id")
    numbers = [said.get(name) for name in names]
    for name, number in zip(names, numbers):
        if not (type(number) is int and 0 <= number < rows or number is None and name == names[1]):
            raise said.wrong(name, number, f"a number of the {rows} tokens is needed")
    said.check_empty(FIXED | NO_MATTER)
    config = Seq2SeqConfig(
        min(rows, tokens), min(context, positions), **sizes, positions=positions, text_positions=positions, first=FIRST,
        eps=1e-5, has_biases=True, key_biases=True, norms_after=True, norms_embedding=True, scale=None,
        embedding_scale=sizes["width"] ** 0.5 if is_scaled else 1.0,
    )  # fmt: skip
    return config, tuple(number for number in numbers[:2] if number is not None), numbers[2:]


def names_of_bart(config: Seq2SeqConfig) -> dict[str, str]:
    """Returns the names of tensors: in the folder -> here, without `.weight` and `.bias`.

    >>> names_of_bart(Seq2SeqConfig(9, 9, 1, 1, 4, 8, 1, 4))["decoder.layers.0.encoder_attn.out_proj"]
    'dec.blk.0.cross_attn_output'
    """
    names = {"shared": "token_embd"}
    for theirs, ours in (("encoder", "enc"), ("decoder", "dec")):
        names |= {
            f"{theirs}.embed_positions": f"{ours}.position_embd",
            f"{theirs}.layernorm_embedding": f"{ours}.token_embd_norm",
        }
    return names | names_of_layers(config)


def names_of_layers(config: Seq2SeqConfig) -> dict[str, str]:
    """Returns the names of tensors of the layers: in the folder -> here, without `.weight` and `.bias`."""
    return {
        f"{theirs}.layers.{layer}.{name}": f"{ours}.blk.{layer}.{own}"
        for theirs, ours, layers in (("encoder", "enc", config.encoder_layers), ("decoder", "dec", config.decoder_layers))
        for layer in range(layers)
        for name, own in LAYER.items()
        if theirs == "decoder" or not name.startswith("encoder_attn")
    }
