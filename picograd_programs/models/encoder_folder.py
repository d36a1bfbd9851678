"""An encoder in transformers' folder format, with a record for each model_type, as in architectures.py.

Every entry of config.json is read, must have one value, or is known to have no effect; others are refused.

Source: Hugging Face, transformers, the configurations and networks of these names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.record import Record
from picograd_formats.gguf_file import Array, PackedTensor
from picograd_programs.data.published import map_published
from picograd_programs.data.tokenizer_json import Pipeline, load_tokenizer, of_vocabulary
from picograd_programs.data.vocabulary import json_in, text_in
from picograd_programs.models.architectures import ACTIVATION_NAMES, PACKED, Names, Positions, rotation_of
from picograd_programs.models.decoder_folder import KINDS, packed
from picograd_programs.models.encoder import Encoder, EncoderConfig
from picograd_programs.models.entries import FIXED, LAYERS_MAX, NEEDED, Entries
from picograd_programs.models.rotary import Rotation

TENSOR = re.compile(r"(?:(?:encoder|transformer)\.layers?\.(\d+)\.)?(.+)\.(weight|bias|gamma|beta)")
OLD = {"gamma": "weight", "beta": "bias"}  # names in TensorFlow's first checkpoint
AROUND = re.compile(r"(?:(?:module|model|auto_model|bert|roberta|mpnet|distilbert|nomic_bert)\.)*")  # prefixes of names
HEADS = re.compile(  # layers of other tasks than embeddings after the last layer, and numbers of positions
    r"(?:pooler|cls|lm_head|classifier|pre_classifier|qa_outputs|vocab_\w+)\..+|embeddings\.position_ids"
)

SIZES: dict[str, Any] = {
    "vocab_size": NEEDED, "hidden_size": NEEDED, "num_hidden_layers": NEEDED, "num_attention_heads": NEEDED,
    "intermediate_size": NEEDED, "max_position_embeddings": 512, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}  # fmt: skip
AFTER_PADDING: dict[str, Any] = {"pad_token_id": 1}  # positions count from the number after the padding's
EMBEDDINGS: Names = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
}  # fmt: skip
FEED_FORWARD: Names = {
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}  # fmt: skip
BERT_NAMES: Names = EMBEDDINGS | FEED_FORWARD | {
    "embeddings.token_type_embeddings": "token_types", "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
}  # fmt: skip


class Kind(Record, eq=False):
    """The published form of the encoders of a model_type.

    entries:  entries of config.json -> transformers' defaults
    tensors:  names in the folder -> ours
    names:    an entry here -> its name in config.json, if it differs
    fixed:    entries with a required value; entries without effect have the value Any
    first:    row of a text's first position, if it does not depend on pad_token_id
    settings: fields of EncoderConfig that the name alone determines
    """

    entries: Mapping[str, Any]
    tensors: Names
    names: Mapping[str, str] = {}
    fixed: Mapping[str, Any] = {}
    first: int = 0
    settings: Mapping[str, Any] = {}


OF_POOLER = ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")
NO_MATTER: dict[str, Any] = {
    "position_embedding_type": "absolute", "tie_word_embeddings": Any, "directionality": Any, "output_past": Any,
    **{f"pooler_{name}": Any for name in OF_POOLER},
}  # fmt: skip
ROBERTA = Kind(SIZES | AFTER_PADDING | {"type_vocab_size": 2}, BERT_NAMES, fixed=NO_MATTER)
ENCODERS: dict[str, Kind] = {
    "bert": Kind(SIZES | {"type_vocab_size": 2}, BERT_NAMES, fixed=NO_MATTER),
    "roberta": ROBERTA, "xlm-roberta": ROBERTA, "camembert": ROBERTA,
    "mpnet": Kind(
        SIZES | {"relative_attention_num_buckets": 32},
        EMBEDDINGS | FEED_FORWARD | {
            "attention.attn.q": "attn_q", "attention.attn.k": "attn_k", "attention.attn.v": "attn_v",
            "attention.attn.o": "attn_output", "attention.LayerNorm": "attn_output_norm",
            "encoder.relative_attention_bias": "attn_rel_b",
        },
        fixed=NO_MATTER, first=2,
    ),
    "distilbert": Kind(
        SIZES, EMBEDDINGS | {
            "attention.q_lin": "attn_q", "attention.k_lin": "attn_k", "attention.v_lin": "attn_v",
            "attention.out_lin": "attn_output", "sa_layer_norm": "attn_output_norm", "ffn.lin1": "ffn_up",
            "ffn.lin2": "ffn_down", "output_layer_norm": "layer_output_norm",
        },
        names={
            "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim", "hidden_act": "activation",
        },
        fixed={**NO_MATTER, "dropout": Any, "qa_dropout": Any, "seq_classif_dropout": Any, "sinusoidal_pos_embds": Any,
               "tie_weights_": Any},
    ),
    "nomic_bert": Kind(
        SIZES | {"type_vocab_size": 2, "rope_theta": 1000.0, "rope_parameters": None},
        {
            "embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
            "emb_ln": "token_embd_norm", "attn.Wqkv": PACKED, "attn.out_proj": "attn_output", "norm1": "attn_output_norm",
            "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down", "norm2": "layer_output_norm",
        },
        names={
            "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
            "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "hidden_act": "activation_function",
            "layer_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base",
        },
        fixed={
            **NO_MATTER, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
            "rotary_scaling_factor": None, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
            "prenorm": False, "use_rms_norm": False, "parallel_block": False, "causal": False,
            "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": Any, "max_trained_positions": Any,
            "pad_vocab_size_multiple": Any, "fused_bias_fc": Any, "fused_dropout_add_ln": Any, "use_flash_attn": Any,
            "use_xentropy": Any, "last_layer_subset": Any, "dense_seq_output": Any, "head_dim": Any,
        },
        settings={"is_gated": True, "has_biases": False},
    ),
}  # fmt: skip


def read_encoder_config(content: Mapping[str, Any], tokens: int) -> tuple[EncoderConfig, Kind]:
    """Returns the configuration in a config.json, and the published form of such networks.

    Args:
      content:  contents of config.json
      tokens:   size of the vocabulary; further rows of the table are padding

    Raises:
      DataError: it describes another network, lacks an entry, or has an unknown one.
    """
    name = content.get("model_type")
    kind = ENCODERS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise DataError(f"config.json says model_type is {str(name)[:40]!r}; {', '.join(ENCODERS)} are run.")
    names = {key: name for key, name in kind.names.items() if key not in content}
    said = Entries(content, "config.json", kind.entries, names)
    rows, positions, width, heads = (
        said.whole(key) for key in ("vocab_size", "max_position_embeddings", "hidden_size", "num_attention_heads")
    )
    padding, shown = said.get("pad_token_id"), said.get("hidden_act")
    if padding is not None and not (type(padding) is int and 0 <= padding < positions - 1):
        raise said.wrong("pad_token_id", padding, f"a whole number below the {positions - 1} of positions is needed")
    shown = "silu" if shown == "swiglu" and kind.settings.get("is_gated") else shown
    if not isinstance(shown, str) or shown not in ACTIVATION_NAMES:
        raise said.wrong("hidden_act", shown, f"{', '.join(ACTIVATION_NAMES)} are known")
    if width % heads:
        raise said.wrong("num_attention_heads", heads, f"it must divide the width of {width}")
    config = EncoderConfig(
        vocabulary=min(rows, tokens), positions=positions, layers=said.size("num_hidden_layers", LAYERS_MAX), width=width,
        hidden=said.whole("intermediate_size"), heads=heads, first=kind.first if padding is None else padding + 1,
        types=said.whole("type_vocab_size") or 0, buckets=said.whole("relative_attention_num_buckets") or 0,
        eps=said.rate("layer_norm_eps"), activation=ACTIVATION_NAMES[shown],
        rotation=rotation_in(said, width // heads, positions), **kind.settings,
    )  # fmt: skip
    said.check_empty(FIXED | dict(kind.fixed))
    return config, kind


def rotation_in(said: Entries, features: int, positions: int) -> Rotation | None:
    """Returns the angles of queries and keys, or None for a network with a table of positions.

    Raises:
      DataError: as in `rotation_of`.
    """
    if "rope_theta" not in said.defaults:
        return None
    all_say = Positions(said.number("rope_theta"), None, features, positions, positions, positions)
    return rotation_of(said.get("rope_parameters"), "rope_parameters", all_say)


def read_encoder(folder: Path) -> tuple[Encoder, Pipeline]:
    """Returns the encoder of a folder, and its tokenizer.

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged or missing, or describes another network.
    """
    content = json_in(folder / "config.json", "embed")
    read_encoder_config(content, 1)  # config errors come before missing files
    tokenizer = tokenizer_of_folder(folder)
    config, kind = read_encoder_config(content, len(tokenizer.tokens))
    tokenizer.fit(content["vocab_size"], config.width)
    return Encoder(config, encoder_tensors(map_published(folder), kind)), tokenizer


def tokenizer_of_folder(folder: Path) -> Pipeline:
    """Returns the tokenizer of tokenizer.json, or of BERT's list of pieces.

    Raises:
      DataError: a file is damaged, or both are missing.
    """
    whole, pieces, said = (folder / name for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"))
    if whole.is_file() or not pieces.is_file():
        return load_tokenizer(whole)
    lowers = json_in(said, "embed").get("do_lower_case", True) if said.is_file() else True
    return of_vocabulary(text_in(pieces, "embed").splitlines(), lowers is True)


def encoder_tensors(arrays: Mapping[str, Array], kind: Kind) -> dict[str, PackedTensor]:
    """Returns tensors by Encoder's names.

    Raises:
      DataError: a tensor is of another network, or not of floats.
    """
    tensors: dict[str, PackedTensor] = {}
    for name, array in arrays.items():
        own = AROUND.sub("", name)
        if HEADS.fullmatch(own):
            continue
        found = TENSOR.fullmatch(own)
        ours = kind.tensors.get(found[2]) if found else None
        if found is None or ours is None or array.dtype.name not in KINDS:
            raise DataError(f"has a tensor {own[:60]!r} of {array.shape}, {array.dtype}, which this network does not have.")
        place, parts = "" if found[1] is None else f"blk.{found[1]}.", [ours] if isinstance(ours, str) else ours
        if array.ndim < 1 or len(array) % len(parts):
            raise DataError(f"has a tensor {own[:60]!r} of {array.shape}, whose rows are not of {len(parts)} matrices.")
        for part, rows in zip(parts, np.split(array, len(parts))):
            tensors[f"{place}{part}.{OLD.get(found[3], found[3])}"] = packed(rows)
    return tensors
