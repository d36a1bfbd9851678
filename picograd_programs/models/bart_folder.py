"""BART and its relatives in transformers' format: entries of config.json, names of tensors; Whisper shares many.

Source: Lewis et al. 2019, arXiv:1910.13461 (BART); Liu et al. 2020, arXiv:2001.08210 (mBART); Zhang et al. 2019,
       arXiv:1912.08777 (Pegasus); Fan et al. 2020, arXiv:2010.11125 (M2M-100, of which NLLB is a later one); Vaswani et al.
       2017, arXiv:1706.03762, section 3.5 (sinusoidal positions); Hugging Face, transformers, the networks of KINDS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd.record import Record
from picograd_programs.models.architectures import ACTIVATION_NAMES
from picograd_programs.models.entries import FIXED, LAYERS_MAX, NEEDED, NUMBER_MAX, Entries
from picograd_programs.models.seq2seq import Seq2SeqConfig

LONGEST_WAVE = 10_000.0  # of the slowest wave, divided by 2 pi


class Kind(Record):
    """The differences of a relative of BART.

    norms_after:      as in Seq2SeqConfig; also norms_embedding
    first:            row of the table of positions for the first position
    is_waves:         sinusoidal positions, which are not in the file
    includes_slowest: the slowest wave is LONGEST_WAVE; otherwise the next one would be
    is_multilingual:  an answer starts with the token of its language
    """

    norms_after: bool = True
    norms_embedding: bool = True
    first: int = 0
    is_waves: bool = False
    includes_slowest: bool = False
    is_multilingual: bool = False

    def fixed(self) -> dict[str, Any]:
        """Returns the entries of config.json that follow from these fields."""
        return {
            "normalize_before": not self.norms_after, "add_final_layer_norm": not self.norms_after,
            "normalize_embedding": self.norms_embedding, "static_position_embeddings": self.is_waves,
        }  # fmt: skip


KINDS: dict[str, Kind] = {
    "bart": Kind(first=2),
    "mbart": Kind(norms_after=False, first=2, is_multilingual=True),
    "m2m_100": Kind(False, False, 2, True, includes_slowest=True, is_multilingual=True),
    "pegasus": Kind(False, False, 0, True),
    "marian": Kind(True, False, 0, True),
}
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
    "is_encoder_decoder": True, "tie_word_embeddings": True, "extra_pos_embeddings": Any, "save_step": Any,
    "share_encoder_decoder_embeddings": True, "do_blenderbot_90_layernorm": False, "decoder_vocab_size": Any,
    "max_source_positions": Any, "tokenizer_type": Any, "classif_dropout": Any, "output_past": Any,
    "force_bos_token_to_be_generated": Any, "add_bias_logits": Any,  # the file has biases, or none
}  # fmt: skip
LAYER = {  # name in the folder -> name here
    "self_attn_layer_norm": "attn_norm", "encoder_attn_layer_norm": "cross_attn_norm", "final_layer_norm": "ffn_norm",
    "fc1": "ffn_up", "fc2": "ffn_down",
    **{
        f"{theirs}.{part}_proj": f"{ours}_{'output' if part == 'out' else part}"
        for theirs, ours in (("self_attn", "attn"), ("encoder_attn", "cross_attn")) for part in ("q", "k", "v", "out")
    },
}  # fmt: skip


def sizes_of(said: Entries) -> dict[str, Any]:
    """Returns the fields of Seq2SeqConfig about sizes, except for the vocabulary.

    Raises:
      DataError: encoder and decoder differ in a shared size, or heads do not divide the width.
    """
    width = said.size("d_model")
    layers, hidden, heads = (
        [said.size(f"{side}_{key}", most) for side in ("encoder", "decoder")]
        for key, most in (("layers", LAYERS_MAX), ("ffn_dim", NUMBER_MAX), ("attention_heads", NUMBER_MAX))
    )
    for key, both in (("decoder_ffn_dim", hidden), ("decoder_attention_heads", heads)):
        if both[0] != both[1]:
            raise said.wrong(key, both[1], f"it must equal the encoder's, {both[0]}")
    if width % heads[0]:
        raise said.wrong("encoder_attention_heads", heads[0], f"they must divide d_model, {width}")
    return {
        "encoder_layers": layers[0], "decoder_layers": layers[1], "width": width, "hidden": hidden[0], "heads": heads[0],
        "features": width // heads[0], "activation": ACTIVATION_NAMES[said.one_of("activation_function", ACTIVATION_NAMES)],
    }  # fmt: skip


def read_bart_config(
    content: Mapping[str, Any], tokens: int, context: int
) -> tuple[Seq2SeqConfig, tuple[int, ...], list[int]]:
    """Returns the configuration in a config.json, and the start and end tokens of an answer.

    Raises:
      DataError: it lacks an entry, or has an unknown one.
    """
    said, kind = Entries(content, "config.json", ENTRIES, {}), KINDS[content["model_type"]]
    rows, positions = said.size("vocab_size"), said.size("max_position_embeddings")
    sizes, is_scaled = sizes_of(said), said.flag("scale_embedding")
    names = ("decoder_start_token_id", "forced_bos_token_id", "eos_token_id")
    numbers = [said.get(name) for name in names]
    for name, number in zip(names, numbers):
        if not (type(number) is int and 0 <= number < rows or number is None and name == names[1]):
            raise said.wrong(name, number, f"a number of the {rows} tokens is needed")
    said.check_empty(FIXED | NO_MATTER | kind.fixed())
    longest = min(context, positions)
    places = longest if kind.is_waves else positions  # waves are computed, a table is in the file
    config = Seq2SeqConfig(
        min(rows, tokens), longest, **sizes, positions=places, text_positions=places,
        first=kind.first, eps=1e-5, has_biases=True, key_biases=True, norms_after=kind.norms_after,
        norms_embedding=kind.norms_embedding, scale=None, embedding_scale=sizes["width"] ** 0.5 if is_scaled else 1.0,
    )  # fmt: skip
    return config, tuple(number for number in numbers[:2] if number is not None), numbers[2:]


def names_of_bart(config: Seq2SeqConfig) -> dict[str, str]:
    """Returns names of tensors: in the folder -> here, without `.weight` and `.bias`.

    >>> names_of_bart(Seq2SeqConfig(9, 9, 1, 1, 4, 8, 1, 4))["decoder.layers.0.encoder_attn.out_proj"]
    'dec.blk.0.cross_attn_output'
    """
    names = {"shared": "token_embd"}
    for theirs, ours in (("encoder", "enc"), ("decoder", "dec")):
        names |= {
            f"{theirs}.embed_positions": f"{ours}.position_embd",
            f"{theirs}.layernorm_embedding": f"{ours}.token_embd_norm", f"{theirs}.layer_norm": f"{ours}.output_norm",
        }  # fmt: skip
    return names | names_of_layers(config)


def made_of_bart(kind: Kind, config: Seq2SeqConfig) -> dict[str, NDArray[np.float32]]:
    """Returns tensors that are not in the file, by their names here: sinusoidal positions, first the sines.

    >>> config = Seq2SeqConfig(9, 9, 1, 1, 4, 8, 1, 4, positions=2)
    >>> made_of_bart(KINDS["pegasus"], config)["enc.position_embd.weight"].round(2).tolist()
    [[0.0, 0.0, 1.0, 1.0], [0.8399999737739563, 0.009999999776482582, 0.5400000214576721, 1.0]]
    """
    if not kind.is_waves:
        return {}
    num = config.width // 2
    speeds = LONGEST_WAVE ** -(np.arange(num) / max(num - kind.includes_slowest, 1))
    angles = np.outer(np.arange(kind.first + config.positions), speeds)
    table = np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
    return {f"{side}.position_embd.weight": table for side in ("enc", "dec")}


def names_of_layers(config: Seq2SeqConfig) -> dict[str, str]:
    """Returns names of the layers' tensors: in the folder -> here, without `.weight` and `.bias`."""
    return {
        f"{theirs}.layers.{layer}.{name}": f"{ours}.blk.{layer}.{own}"
        for theirs, ours, layers in (("encoder", "enc", config.encoder_layers), ("decoder", "dec", config.decoder_layers))
        for layer in range(layers)
        for name, own in LAYER.items()
        if theirs == "decoder" or not name.startswith("encoder_attn")
    }
