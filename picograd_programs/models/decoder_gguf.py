"""A decoder in a GGUF file, with a record for each `general.architecture`, as in architectures.py.

Every entry of the metadata about the network is read, must have one value, or is known to have no effect; others are
refused. Tensors have Decoder's names; a record names those that are rows of one matrix.

Source: ggml, the specification of GGUF; llama.cpp, the networks of these names (rotated pairs, layers with
       a window, and scales that files omit).

Letters: H heads, L features of a latent, N unrotated features of a head, V of a head's values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.record import Record
from picograd_formats.gguf_file import GGUF, PackedTensor, plain_tensor
from picograd_programs.data.vocabulary import check_rows
from picograd_programs.models.architectures import Positions, reach_of, rotation_of
from picograd_programs.models.decoder import DecoderConfig, Sight, rows_of
from picograd_programs.models.entries import LAYERS_MAX, NEEDED, Entries
from picograd_programs.models.experts import Routing, are_groups
from picograd_programs.models.rotary import Rotation

SIZES: dict[str, Any] = {
    "context_length": NEEDED, "embedding_length": NEEDED, "block_count": NEEDED, "feed_forward_length": NEEDED,
    "attention.head_count": NEEDED, "attention.head_count_kv": None, "attention.key_length": None,
    "attention.value_length": None, "attention.sliding_window": None,
}  # fmt: skip
ANGLES: dict[str, Any] = {
    "rope.freq_base": 10000.0, "rope.dimension_count": None, "rope.scaling.type": "none", "rope.scaling.factor": None,
    "rope.scaling.original_context_length": None, "rope.scaling.attn_factor": None, "rope.scaling.yarn_beta_fast": None,
    "rope.scaling.yarn_beta_slow": None, "rope.scaling.yarn_attn_factor": None,
}  # fmt: skip
LLAMA: dict[str, Any] = SIZES | ANGLES | {"attention.layer_norm_rms_epsilon": NEEDED}
MEANS: dict[str, Any] = SIZES | ANGLES | {"attention.layer_norm_epsilon": NEEDED}  # norms subtract the mean
CAPS: dict[str, Any] = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
EXPERTS: dict[str, Any] = {
    "expert_count": None, "expert_used_count": None, "expert_feed_forward_length": None,
    "expert_shared_feed_forward_length": None, "expert_weights_norm": None,
}  # fmt: skip
FIXED: dict[str, Any] = {
    "vocab_size": Any, "tensor_data_layout": Any, "rope.scaling.finetuned": Any, "pooling_type": Any,
    "attention.causal": True, "attention.max_alibi_bias": 0, "attention.clamp_kqv": 0, "expert_gating_func": 1,
    "expert_group_count": 1, "expert_weights_scale": 1.0, "expert_shared_count": Any,
}  # fmt: skip
PACKED = ("attn_q", "attn_k", "attn_v")
LATENTS: dict[str, Any] = LLAMA | EXPERTS | {
    "attention.q_lora_rank": None, "attention.kv_lora_rank": NEEDED, "attention.key_length_mla": None,
    "attention.value_length_mla": None, "rope.dimension_count": NEEDED, "rope.scaling.yarn_log_multiplier": None,
    "leading_dense_block_count": None, "expert_shared_count": None, "expert_group_count": None,
    "expert_group_used_count": None, "expert_weights_scale": None, "expert_gating_func": 1,
}  # fmt: skip
OF_GEMMA: dict[str, Any] = {"activation": "gelu_tanh"}
OF_COHERE: dict[str, Any] = {
    "subtracts_mean": True, "norm_biases": False, "pairs_are_halves": False, "is_parallel": True, "norms_once": True,
}  # fmt: skip
SCALES_BY_WIDTH = (46, 62)  # Gemma 2 and 3 of 27 billion weights: scores are divided by sqrt(C / H), not sqrt(D)


class Kind(Record, eq=False):
    """The form of a network in GGUF files.

    entries:           entries of the metadata -> their defaults
    settings:          fields of DecoderConfig that the name alone determines
    packed:            a tensor -> ours, which are its rows
    renamed:           a tensor -> ours, in files with the first of them
    slides_every:      of this many layers in a row the last sees everything, the others a window; 1: all have a window
    turns_near_alone:  layers that see everything have no rotation
    near_base:         base of the angles in layers with a window; 0: as in the others
    turns_every:       of this many layers in a row the last has no rotation; 0: all have one
    scales_embedding:  the embedding is multiplied by the root of the width
    shares_to_one:     as in Routing
    multiplies_logits: the scale of logits is a factor; otherwise a divisor
    scaling:           parameters of YaRN besides those of a file
    fixed:             entries with a required value, besides FIXED
    """

    entries: Mapping[str, Any]
    settings: Mapping[str, Any] = {}
    packed: Mapping[str, tuple[str, ...]] = {}
    renamed: Mapping[str, str] = {}
    slides_every: int = 1
    turns_near_alone: bool = False
    near_base: float = 0.0
    turns_every: int = 0
    scales_embedding: bool = False
    shares_to_one: bool = True
    multiplies_logits: bool = False
    scaling: Mapping[str, Any] = {}
    fixed: Mapping[str, Any] = {}


NO_WINDOW: dict[str, Any] = {key: value for key, value in LLAMA.items() if key != "attention.sliding_window"}
OF_QWEN: dict[str, Any] = {"attention.sliding_window": Any}  # its files have an unused window
IN_GGUF: dict[str, Kind] = {
    "llama": Kind(LLAMA | EXPERTS, {"pairs_are_halves": False}),
    "qwen2": Kind(NO_WINDOW, {"attention_biases": True}, fixed=OF_QWEN),
    "qwen3": Kind(NO_WINDOW, {"norms_heads": True}, fixed=OF_QWEN),
    "qwen2moe": Kind(
        NO_WINDOW | EXPERTS | {"expert_count": NEEDED}, {"attention_biases": True}, shares_to_one=False, fixed=OF_QWEN
    ),
    "qwen3moe": Kind(NO_WINDOW | EXPERTS | {"expert_count": NEEDED}, {"norms_heads": True}, fixed=OF_QWEN),
    "olmoe": Kind(LLAMA | EXPERTS | {"expert_count": NEEDED}, {"norms_queries": True}, shares_to_one=False),
    "gemma": Kind(LLAMA, OF_GEMMA, scales_embedding=True),
    "gemma2": Kind(LLAMA | CAPS, OF_GEMMA | {"norms_after": True}, slides_every=2, scales_embedding=True),
    "gemma3": Kind(
        LLAMA | CAPS | {"rope.freq_base": 1e6}, OF_GEMMA | {"norms_heads": True, "norms_after": True}, slides_every=6,
        near_base=1e4, scales_embedding=True,
    ),
    "phi3": Kind(LLAMA, packed={"attn_qkv": PACKED, "ffn_up": ("ffn_gate", "ffn_up")}),
    "olmo2": Kind(LLAMA, {"norms_before": False, "norms_after": True, "norms_queries": True}),
    "starcoder2": Kind(MEANS, {
        "subtracts_mean": True, "is_gated": False, "activation": "gelu_tanh", "attention_biases": True, "output_bias": True,
        "feed_forward_biases": True,
    }),
    "gptneox": Kind(MEANS | {"use_parallel_residual": True}, {
        "subtracts_mean": True, "is_gated": False, "activation": "gelu", "attention_biases": True, "output_bias": True,
        "feed_forward_biases": True,
    }, packed={"attn_qkv": PACKED}),
    "granite": Kind(
        LLAMA | {"attention.scale": None, "embedding_scale": None, "residual_scale": None, "logit_scale": None},
        {"pairs_are_halves": False},
    ),
    "smollm3": Kind(LLAMA, {"pairs_are_halves": False}, turns_every=4),
    "gpt-oss": Kind(
        LLAMA | EXPERTS | {"expert_count": NEEDED},
        {"sinks": True, "expert_biases": True, "attention_biases": True, "output_bias": True, "gate_limit": 7.0},
        renamed={"post_attention_norm": "ffn_norm"}, slides_every=2, scaling={"truncate": False},
    ),
    "phi2": Kind(MEANS, {
        "subtracts_mean": True, "is_gated": False, "activation": "gelu_tanh", "attention_biases": True, "output_bias": True,
        "feed_forward_biases": True, "logit_biases": True, "is_parallel": True, "norms_once": True,
    }, packed={"attn_qkv": PACKED}),
    "command-r": Kind(MEANS | {"logit_scale": None}, OF_COHERE, multiplies_logits=True),
    "cohere2": Kind(
        MEANS | {"logit_scale": None}, OF_COHERE, slides_every=4, turns_near_alone=True, multiplies_logits=True
    ),
    "deepseek2": Kind(
        LATENTS, {"gates_shared": False, "pairs_are_halves": False}, shares_to_one=False, scaling={"attention_factor": 1.0}
    ),
    "falcon": Kind(
        MEANS, {
            "subtracts_mean": True, "is_gated": False, "activation": "gelu", "is_parallel": True, "norms_once": True,
        }, packed={"attn_qkv": PACKED}, renamed={"attn_norm_2": "attn_norm", "attn_norm": "ffn_norm"},
    ),
}  # fmt: skip


def kind_of(file: GGUF) -> tuple[str, Kind]:
    """Returns the name of a file's network, and its kind.

    Raises:
      DataError: the name is unknown.
    """
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in IN_GGUF:
        raise DataError(f"the file has a network of type {str(name)[:40]!r}; {', '.join(IN_GGUF)} are run.")
    return name, IN_GGUF[name]


def config_of(file: GGUF, read: int | None = None) -> DecoderConfig:
    """Returns the configuration in a file's metadata.

    Args:
      read:  largest number of positions that are read; None: the network's

    Raises:
      DataError: the metadata describe another network, lack an entry, or have an unknown one.
    """
    name, kind = kind_of(file)
    content = {key.removeprefix(f"{name}."): value for key, value in file.metadata.items() if key.startswith(f"{name}.")}
    said = Entries(content, "the file", kind.entries, {key: key for key in kind.entries})
    width, layers, longest, hidden = (
        said.whole(key) for key in ("embedding_length", "block_count", "context_length", "feed_forward_length")
    )
    heads = heads_of(said, width)
    scaling = scaling_of(said, kind, file.tensors)
    reach = reach_of(scaling, longest)
    read = reach if read is None else min(read, reach)
    far = far_rotation(said, file.tensors, scaling, heads.get("turned") or heads["features"], longest, read)
    near = Rotation(heads["features"], kind.near_base) if kind.near_base else far
    norms = file.tensors.get("blk.0.attn_q_norm.weight")
    fields: dict[str, Any] = {
        "vocabulary": vocabulary_of(file), "context": read, "layers": layers, "width": width, "hidden": hidden,
        "sights": sights_of(said, kind, name, min(layers, len(file.tensors)), far, near),
        "eps": said.number("attention.layer_norm_rms_epsilon") or said.number("attention.layer_norm_epsilon"),
        "is_parallel": said.flag("use_parallel_residual"), "norms_each_head": norms is not None and len(norms.shape) == 2,
    }  # fmt: skip
    fields |= factors_of(said, kind, width, heads["heads"], layers) | experts_of(said, kind, file.tensors, hidden) | heads
    said.check_empty(FIXED | dict(kind.fixed))
    settings = dict(kind.settings)
    if settings.get("norms_once") and renames_of(file, kind):
        settings["norms_once"] = False  # the second norm exists
    return DecoderConfig(**fields | settings)


# ---- fields of DecoderConfig ----
def vocabulary_of(file: GGUF) -> int:
    """Returns the number of tokens.

    Raises:
      DataError: the table has fewer rows.
    """
    table, tokens = file.tensors.get("token_embd.weight"), file.metadata.get("tokenizer.ggml.tokens")
    shape = (0,) if table is None else table.shape
    if not isinstance(tokens, list):
        return shape[0]
    check_rows("token_embd.weight", shape, len(tokens))
    return len(tokens)


def heads_of(said: Entries, width: int) -> dict[str, Any]:
    """Returns the fields about heads, and about latents of their keys and values.

    Raises:
      DataError: numbers do not divide each other, or values have other features than keys.
    """
    heads, own = said.whole("attention.head_count"), said.whole("attention.key_length")
    shared, value_features = said.whole("attention.head_count_kv") or heads, said.whole("attention.value_length")
    features = own or width // heads
    latents = latents_of(said, features, value_features)
    if not latents and (
        features % 2 or heads % shared or own is None and width % heads or value_features not in (None, features)
    ):
        raise DataError(
            f"the file says {heads} heads of {features} features, {shared} of keys and values, for a width of {width}:"
            " heads must divide the width, shared heads the heads, and features must be even, and as many of values."
        )
    return {"heads": heads, "shared_heads": shared, "features": features} | latents


def sights_of(said: Entries, kind: Kind, name: str, layers: int, far: Rotation, near: Rotation) -> tuple[Sight, ...]:
    """Returns a sight for each layer; `far` are the angles of layers that see everything, `near` of those with a window.

    Raises:
      DataError: a kind with alternating windows gives no window.
    """
    window, turns = said.whole("attention.sliding_window") or 0, kind.turns_every
    if kind.slides_every > 1 and not window:
        raise DataError(f"the file has no {name}.attention.sliding_window.")
    return tuple(
        Sight(window, near) if window and (kind.slides_every == 1 or (layer + 1) % kind.slides_every)
        else Sight(0, far if not kind.turns_near_alone and (not turns or (layer + 1) % turns) else None)
        for layer in range(layers)
    )  # fmt: skip


def factors_of(said: Entries, kind: Kind, width: int, heads: int, layers: int) -> dict[str, Any]:
    """Returns the fields about factors and caps."""
    scale, embedding = said.number("attention.scale"), said.number("embedding_scale") or 1.0
    return {
        "attention_scale": (heads / width) ** 0.5 if kind.scales_embedding and layers in SCALES_BY_WIDTH else scale,
        "attention_cap": said.number("attn_logit_softcapping") or 0.0,
        "logit_cap": said.number("final_logit_softcapping") or 0.0,
        "embedding_scale": embedding * (width**0.5 if kind.scales_embedding else 1.0),
        "residual_scale": said.number("residual_scale") or 1.0,
        "logit_scale": (said.number("logit_scale") or 1.0) ** (1 if kind.multiplies_logits else -1),
    }


def experts_of(said: Entries, kind: Kind, tensors: Mapping[str, PackedTensor], hidden: int) -> dict[str, Any]:
    """Returns the fields about experts.

    Args:
      hidden:  width of the feed-forward part, and by default of an expert

    Raises:
      DataError: more experts are chosen than exist, or by an unsupported rule.
    """
    experts, chosen = said.whole("expert_count"), said.whole("expert_used_count")
    own, shared = said.whole("expert_feed_forward_length") or hidden, said.whole("expert_shared_feed_forward_length")
    if not experts:
        return {}
    if not chosen or chosen > experts:
        raise DataError(f"the file says expert_used_count is {chosen}; it has {experts} experts.")
    shared = shared or (said.whole("expert_shared_count") or 0) * own
    return {
        "experts": experts, "routing": routing_of(said, kind, tensors, experts, chosen), "expert_hidden": own,
        "shared_hidden": shared_hidden_of(tensors, shared),
        "plain_layers": frozenset(range(min(said.whole("leading_dense_block_count") or 0, LAYERS_MAX))),
    }  # fmt: skip


def renames_of(file: GGUF, kind: Kind) -> Mapping[str, str]:
    """Returns the new names of this file's tensors."""
    first = next(iter(kind.renamed), None)
    return kind.renamed if f"blk.0.{first}.weight" in file.tensors else {}


def latents_of(said: Entries, features: int, value_features: int | None) -> dict[str, Any]:
    """Returns the fields about latents of keys and values.

    Args:
      features:        features of a head in older files; newer ones have the latent's here
      value_features:  the same of values
    """
    if "attention.kv_lora_rank" not in said.defaults:
        return {}
    features = said.whole("attention.key_length_mla") or features
    grown, factor = said.number("rope.scaling.yarn_log_multiplier"), said.left.get("rope.scaling.factor")
    scale = 1 + grown * math.log(factor) if grown and isinstance(factor, int | float) and factor > 1 else 1.0
    return {
        "latent": said.whole("attention.kv_lora_rank"), "query_latent": said.whole("attention.q_lora_rank") or 0,
        "features": features, "turned": said.left.get("rope.dimension_count"),
        "value_features": said.whole("attention.value_length_mla") or value_features or features,
        "attention_scale": scale**2 / math.sqrt(features),
    }  # fmt: skip


def routing_of(said: Entries, kind: Kind, tensors: Mapping[str, PackedTensor], experts: int, chosen: int) -> Routing:
    """Returns the routing to experts.

    Raises:
      DataError: groups do not divide the experts, or the kind of scores is unsupported.
    """
    to_one, scores = said.get("expert_weights_norm"), said.get("expert_gating_func", 1)
    groups, best = said.whole("expert_group_count") or 1, said.whole("expert_group_used_count") or 1
    if scores not in (1, 2):
        raise said.wrong("expert_gating_func", scores, "1, softmax, and 2, sigmoid, are known")
    if not are_groups(experts, groups, best):
        raise said.wrong("expert_group_count", groups, f"it must divide {experts} experts into groups of two or more")
    return Routing(
        chosen, kind.shares_to_one if to_one is None else bool(to_one), scores == 2, groups, best,
        any(name.endswith("exp_probs_b.bias") for name in tensors), said.number("expert_weights_scale") or 1.0,
    )  # fmt: skip


def shared_hidden_of(tensors: Mapping[str, PackedTensor], said: int | None) -> int:
    """Returns the width of the shared expert; older files omit it."""
    found = tensors.get("blk.0.ffn_gate_shexp.weight")
    return said or (found.shape[0] if found is not None else 0)


def scaling_of(said: Entries, kind: Kind, tensors: Mapping[str, PackedTensor]) -> dict[str, Any]:
    """Returns the entries about slower angles, in the form of `rope_scaling` of a config.json."""
    way = said.get("rope.scaling.type")
    found = {
        "rope_type": "default" if way == "none" else way, "factor": said.number("rope.scaling.factor"),
        "original_max_position_embeddings": said.whole("rope.scaling.original_context_length"),
        "attention_factor": said.number("rope.scaling.attn_factor"),
        "beta_fast": said.number("rope.scaling.yarn_beta_fast"), "beta_slow": said.number("rope.scaling.yarn_beta_slow"),
    }  # fmt: skip
    found["attention_factor"] = said.number("rope.scaling.yarn_attn_factor") or found["attention_factor"]
    short, long = (tensors.get(f"rope_factors_{length}.weight") for length in ("short", "long"))
    if short is not None and long is not None:
        found |= {"rope_type": "longrope", "short_factor": short.unpacked().tolist()}
        found["long_factor"] = long.unpacked().tolist()
    found |= dict(kind.scaling) if found["rope_type"] == "yarn" else {}
    return {key: value for key, value in found.items() if value is not None}


def far_rotation(
    said: Entries, tensors: Mapping[str, PackedTensor], scaling: dict[str, Any], features: int, longest: int, read: int
) -> Rotation:
    """Returns the angles of layers that see everything.

    Raises:
      DataError: the metadata or a tensor ask for something unsupported.
    """
    base, turned = said.number("rope.freq_base"), said.whole("rope.dimension_count") or features
    rotation = rotation_of(scaling, "rope.scaling", Positions(base, turned / features, features, longest, longest, read),
                           "the file")  # fmt: skip
    of_pairs = tensors.get("rope_freqs.weight")
    if of_pairs is None:
        return rotation
    slower = np.asarray(rotation.slower)  # by a tensor, such as Llama 3.1's for longer texts
    if of_pairs.shape != slower.shape:
        raise DataError(
            f"the file must have a tensor rope_freqs.weight of {slower.shape}, it has one of {of_pairs.shape}."
        )
    return Rotation(rotation.features, base, tuple((slower * of_pairs.unpacked()).tolist()), rotation.amplitude)


def tensors_in(file: GGUF) -> dict[str, PackedTensor]:
    """Returns the tensors of a file by Decoder's names, with matrices split into ours.

    Raises:
      DataError: a matrix has another number of rows.
    """
    config, kind = config_of(file), kind_of(file)[1]
    renames = renames_of(file, kind)
    found: dict[str, PackedTensor] = {}
    for name, tensor in file.tensors.items():
        if name.startswith("rope_"):
            continue
        place, _, own = name.rpartition(".")[0].rpartition(".")
        ours, ending = kind.packed.get(own), name.rpartition(".")[2]
        if own == "ffn_gate_inp_shexp" and len(tensor.shape) == 1:
            tensor = PackedTensor((1, *tensor.shape), tensor.packing, tensor.blocks)
        if ours is None:
            found[f"{place}.{renames[own]}.{ending}" if own in renames else name] = tensor
            continue
        past = np.cumsum([0, *(config.rows[part] for part in ours)]).tolist()
        if tensor.shape[:1] != (past[-1],):
            raise DataError(f"the file must have a tensor {name} of {past[-1]:,} rows, it has one of {tensor.shape}.")
        found |= {f"{place}.{part}.{ending}": rows_of(tensor, *ends) for part, *ends in zip(ours, past, past[1:])}
    for name in [name for name in found if name.endswith("attn_k_b.weight")]:
        values = name.replace("attn_k_b", "attn_v_b")
        if values not in found or {len(found[each].shape) for each in (name, values)} != {3}:
            raise DataError(f"the file has a tensor {name} of {found[name].shape}, and no fitting tensor of values.")
        found[name.replace("attn_k_b", "attn_kv_b")] = joined_latents(found.pop(name), found.pop(values))
    return found


def joined_latents(keys: PackedTensor, values: PackedTensor) -> PackedTensor:
    """Returns one matrix of keys (H, L, N) and values (H, V, L), head by head, (H (N + V), L), in float32.

    Raises:
      DataError: their numbers of heads or of latent features differ.
    """
    keys_HNL, values_HVL = keys.unpacked().swapaxes(1, 2), values.unpacked()
    if keys_HNL.shape[0] != values_HVL.shape[0] or keys_HNL.shape[2] != values_HVL.shape[2]:
        raise DataError(f"the file has keys of latents of {keys.shape} beside values of {values.shape}.")
    return plain_tensor(np.concatenate([keys_HNL, values_HVL], 1).reshape(-1, keys_HNL.shape[2]))
