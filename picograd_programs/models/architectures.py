"""Decoders by the model_type of their config.json: a record for each names the entries and tensors of its files.

Source: Hugging Face, transformers, the configurations and networks of these names, and `modeling_rope_utils` (angles); Peng
       et al. 2023, arXiv:2309.00071 (YaRN); Ding et al. 2024, arXiv:2402.13753 (LongRoPE); Grattafiori et al. 2024,
       arXiv:2407.21783 (Llama 3.1's angles).

Letters: R rotated features of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.record import Record
from picograd_formats.gguf_file import Array
from picograd_programs.models.decoder import SWIGLU_SLOPE, DecoderConfig, Sight
from picograd_programs.models.entries import FIXED, LAYERS_MAX, NEEDED, Entries
from picograd_programs.models.experts import Routing, are_groups
from picograd_programs.models.float8 import scaled_by
from picograd_programs.models.folder_forms import Arrays, of_conv1d, of_gpt_oss, with_corrections, without_heads
from picograd_programs.models.rotary import Rotation

ACTIVATION_NAMES = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "relu2": "relu2",
}  # fmt: skip

# ---- angles ----
SCALING: dict[str, dict[str, Any]] = {  # kinds of scaling -> their entries
    "default": {},
    "linear": {"factor": NEEDED},
    "dynamic": {"factor": None, "original_max_position_embeddings": None, "alpha": None},
    "llama3": {
        "factor": NEEDED, "low_freq_factor": NEEDED, "high_freq_factor": NEEDED, "original_max_position_embeddings": NEEDED,
    },
    "yarn": {
        "factor": NEEDED, "original_max_position_embeddings": None, "attention_factor": None, "beta_fast": 32,
        "beta_slow": 1, "mscale": None, "mscale_all_dim": None, "truncate": True, "finetuned": None,
    },
    "longrope": {
        "short_factor": NEEDED, "long_factor": NEEDED, "factor": None, "attention_factor": None,
        "original_max_position_embeddings": None,
    },
}  # fmt: skip
SCALING["su"] = SCALING["longrope"]  # its name in Phi-3's first files


class Positions(Record):
    """The entries of config.json about positions, except for the scaling.

    base:      base of the frequencies
    share:     rotated share of a head's features; None: all, and no entry can change it
    features:  features of a head
    before:    positions of the original training
    longest:   positions of the last training
    read:      largest number of positions that are read here
    """

    base: float | None
    share: float | None
    features: int
    before: int
    longest: int
    read: int


def reach_of(content: Any, longest: int) -> int:
    """Returns the largest number of positions that a network can read; YaRN's files may give it before the extension.

    Args:
      content:  a dict `rope_scaling` or `rope_parameters`; or None
      longest:  the file's number of positions

    >>> reach_of({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 32768)
    131072
    """
    if not isinstance(content, dict) or content.get("rope_type", content.get("type")) != "yarn":
        return longest
    factor, before = content.get("factor"), content.get("original_max_position_embeddings") or longest
    if not isinstance(factor, int | float) or not isinstance(before, int | float) or not 0 < factor * before < 2**31:
        return longest  # the functions of angles read it
    return max(longest, int(factor * before))


def rotation_of(content: Any, where: str, all_say: Positions, file: str = "config.json") -> Rotation:
    """Returns the angles of a dict `rope_scaling` or `rope_parameters`.

    Args:
      content:  the dict; or None
      where:    name of the dict
      file:     name of its file

    Raises:
      DataError: a number is missing or wrong, or the dict asks for something unsupported.
    """
    content = {} if content is None else content
    kind = content.get("rope_type", content.get("type", "default")) if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in SCALING:
        raise DataError(f"{file} says {where} is {str(content)[:60]}; a dict of type {', '.join(SCALING)} is known.")
    both = {"rope_type": None, "type": None, "rope_theta": None, "partial_rotary_factor": None}
    said = Entries(content, f"{file}'s {where}", SCALING[kind] | both, {})
    said.get("rope_type"), said.get("type")
    base = said.number("rope_theta") or all_say.base
    if base is None or base <= 1:
        raise DataError(f"{file} says the base of the angles, rope_theta, is {base}; a number above 1 is needed.")
    share = said.number("partial_rotary_factor")
    if all_say.share is None and share not in (None, 1):
        raise said.wrong("partial_rotary_factor", share, "this kind of network rotates all features of a head")
    turned = int(all_say.features * (share or all_say.share or 1.0) + 1e-6)
    if turned < 2 or turned % 2 or turned > all_say.features:
        raise DataError(f"{file} rotates {turned} of {all_say.features} features of a head; an even number is needed.")
    before = said.whole("original_max_position_embeddings") or all_say.before
    slower, amplitude = slower_of(said, kind, float(base), turned, before, all_say)
    said.check_empty({})
    return Rotation(turned, float(base), tuple(slower.tolist()), amplitude)


def slower_of(
    said: Entries, kind: str, base: float, features: int, before: int, all_say: Positions
) -> tuple[Array, float]:
    """Returns the divisor of each pair's frequency, (R/2,), and the amplitude, for a kind of scaling."""
    ones = np.ones(features // 2)
    if kind == "linear":
        return ones * said.number("factor"), 1.0
    if kind == "llama3":
        return slower_llama3(said, base ** (-np.arange(0, features, 2) / features), before), 1.0
    if kind == "yarn":
        return slower_yarn(said, base, features, before)
    if kind in ("longrope", "su"):
        return slower_longrope(said, ones, before, all_say.longest, all_say.read)
    if kind == "dynamic":  # it affects only texts longer than the context, which are not read
        said.get("factor"), said.get("alpha")
    return ones, 1.0


def slower_llama3(said: Entries, speeds: Array, before: int) -> Array:
    """Returns the divisor of each pair's frequency: a factor for low ones, 1 for high ones, mixed between; (R/2,)."""
    turns = before * speeds / (2 * math.pi)  # of a pair, over all positions of the original training
    low, high, factor = (said.number(key) for key in ("low_freq_factor", "high_freq_factor", "factor"))
    if low >= high:
        raise said.wrong("high_freq_factor", high, f"it must be above low_freq_factor, {low}")
    share = ((turns - low) / (high - low)).clip(0, 1)
    return np.asarray(1 / ((1 - share) / factor + share))


def slower_yarn(said: Entries, base: float, features: int, before: int) -> tuple[Array, float]:
    """Returns the divisor of each pair's frequency, (R/2,), and the amplitude; as Llama 3.1's, interpolated by number."""
    factor, amplitude = said.number("factor"), said.number("attention_factor")
    of_one, of_all = said.number("mscale"), said.number("mscale_all_dim")
    is_whole = said.flag("truncate")
    said.get("finetuned")

    def stretched(share: float) -> float:
        return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0

    if amplitude is None:
        amplitude = stretched(of_one) / stretched(of_all) if of_one and of_all else stretched(1.0)

    def pair(turns: float) -> float:
        """Returns the number of the pair with this many turns over all positions."""
        return features * math.log(before / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(said.number("beta_fast") or 32), pair(said.number("beta_slow") or 1)
    low, high = (math.floor(low), math.ceil(high)) if is_whole else (low, high)
    low, high = max(low, 0), min(high, features - 1)
    share = 1 - ((np.arange(features // 2) - low) / (high - low or 0.001)).clip(0, 1)  # share that keeps its frequency
    return np.asarray(1 / ((1 - share) / factor + share)), float(amplitude)


def slower_longrope(said: Entries, ones: Array, before: int, longest: int, read: int) -> tuple[Array, float]:
    """Returns the divisor of each pair's frequency, (R/2,), and the amplitude.

    There is a list for texts of the original training's length, and one for longer texts; `read` decides.
    """
    short, long = (said.get(key) for key in ("short_factor", "long_factor"))
    for key, factors in (("short_factor", short), ("long_factor", long)):
        numbers = factors if isinstance(factors, list) else []
        if len(numbers) != len(ones) or not all(type(n) in (int, float) and n > 0 for n in numbers):
            raise said.wrong(key, factors, f"a list of {len(ones)} numbers above 0 is needed")
    amplitude, factor = said.number("attention_factor"), said.number("factor")
    factor = longest / before if longest > before or factor is None else factor
    if before < 2:
        raise said.wrong("original_max_position_embeddings", before, "a number above 1 is needed")
    if amplitude is None:
        amplitude = math.sqrt(1 + math.log(factor) / math.log(before)) if factor > 1 else 1.0
    return np.asarray(long if read > before else short, np.float64), float(amplitude)


# ---- architectures ----
Names = dict[str, str | tuple[str, ...]]
AROUND: Names = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
ATTENTION: Names = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}  # fmt: skip
HEAD_NORMS: Names = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
GATED: Names = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
BEFORE: Names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
AFTER: Names = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
LLAMA_NAMES: Names = AROUND | ATTENTION | GATED | BEFORE
GEMMA_NAMES: Names = LLAMA_NAMES | AFTER | {"pre_feedforward_layernorm": "ffn_norm"}
PACKED = ("attn_q", "attn_k", "attn_v")
EXPERTS: Names = {  # experts' numbers follow `experts`
    "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}  # fmt: skip
SHARED_EXPERT: Names = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}  # fmt: skip

SIZES: dict[str, Any] = {
    "vocab_size": NEEDED, "hidden_size": NEEDED, "intermediate_size": NEEDED, "num_hidden_layers": NEEDED,
    "num_attention_heads": NEEDED, "max_position_embeddings": NEEDED, "hidden_act": None, "tie_word_embeddings": False,
}  # fmt: skip
ROTARY: dict[str, Any] = {"rope_theta": 10000.0, "rope_scaling": None, "rope_parameters": None}
LLAMA: dict[str, Any] = SIZES | ROTARY | {"num_key_value_heads": None, "head_dim": None, "rms_norm_eps": 1e-6}
BIASES: dict[str, Any] = {"attention_bias": False, "mlp_bias": False}
WINDOW: dict[str, Any] = {"sliding_window": None, "layer_types": None}
QWEN: dict[str, Any] = LLAMA | WINDOW | {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28}
GEMMA: dict[str, Any] = LLAMA | {
    "head_dim": 256, "tie_word_embeddings": True, "hidden_activation": None, "attention_bias": False,
}  # fmt: skip
GEMMA2: dict[str, Any] = GEMMA | WINDOW | {
    "sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": None, "final_logit_softcapping": None,
}  # fmt: skip
MIXTURE: dict[str, Any] = {"num_experts": None, "num_local_experts": None, "num_experts_per_tok": NEEDED}
SPARSE: dict[str, Any] = MIXTURE | {
    "moe_intermediate_size": NEEDED, "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": None,
}  # fmt: skip
OF_TRAINING: dict[str, Any] = {  # of balanced loads of experts
    "router_aux_loss_coef": Any, "output_router_logits": Any, "router_jitter_noise": Any,
}  # fmt: skip
LATENTS: dict[str, Any] = LLAMA | MIXTURE | {
    "kv_lora_rank": NEEDED, "qk_rope_head_dim": NEEDED, "qk_nope_head_dim": NEEDED, "v_head_dim": NEEDED,
    "moe_intermediate_size": NEEDED, "first_k_dense_replace": 0, "n_shared_experts": None, "attention_bias": False,
}  # fmt: skip
NO_LATENTS: dict[str, Any] = {  # of trainings, and derived entries
    **OF_TRAINING, "moe_layer_freq": 1, "aux_loss_alpha": Any, "seq_aux": Any, "ep_size": Any, "head_dim": Any,
    "qk_head_dim": Any, "mlp_bias": False,
}  # fmt: skip
LATER_LAYERS: dict[str, Any] = {"num_nextn_predict_layers": Any}  # layers that predict further tokens; not read
OF_DEEPSEEK = {"num_experts": "n_routed_experts"}
LATENT_NAMES: Names = LLAMA_NAMES | EXPERTS | {
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
}  # fmt: skip
COHERE: dict[str, Any] = LLAMA | {
    "rms_norm_eps": 1e-5, "rope_theta": None, "attention_bias": False, "logit_scale": 0.0625, "tie_word_embeddings": True,
}  # fmt: skip
COHERE_NAMES: Names = AROUND | ATTENTION | GATED | {"input_layernorm": "attn_norm"}
OF_COHERE: dict[str, Any] = {
    "subtracts_mean": True, "norm_biases": False, "pairs_are_halves": False, "is_parallel": True, "norms_once": True,
}  # fmt: skip
GPT: dict[str, Any] = SIZES | {"intermediate_size": None, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
GPT_NAMES: Names = {
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output", "ln_1": "attn_norm",
    "ln_2": "ffn_norm", "attn.c_attn": PACKED, "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}  # fmt: skip
OF_GPT: dict[str, Any] = {
    "subtracts_mean": True, "is_gated": False, "attention_biases": True, "output_bias": True, "feed_forward_biases": True,
}  # fmt: skip
OF_GPT2 = {
    "hidden_size": "n_embd", "intermediate_size": "n_inner", "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions", "rms_norm_eps": "layer_norm_epsilon", "hidden_act": "activation_function",
}  # fmt: skip
OF_OLMO: dict[str, Any] = {"norms_before": False, "norms_after": True}
GLM: dict[str, Any] = LLAMA | {
    "attention_bias": True, "head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-07,
    "partial_rotary_factor": 0.5,
}  # fmt: skip
GLM_NAMES: Names = AROUND | ATTENTION | BEFORE | {"mlp.gate_up_proj": ("ffn_gate", "ffn_up"), "mlp.down_proj": "ffn_down"}
OF_GLM: dict[str, Any] = {"output_bias": False, "pairs_are_halves": False}
PLAIN_NAMES: Names = AROUND | ATTENTION | BEFORE | {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # without gates
OF_GEMMA: dict[str, Any] = {"norm_offset": 1.0, "scales_embedding": True, "activation": "gelu_pytorch_tanh"}


class Architecture(Record, eq=False):
    """The published form of the networks of a model_type.

    entries:            entries of config.json that are read -> transformers' defaults
    tensors:            names in the folder -> ours; several of ours may be rows of one of theirs
    settings:           fields of DecoderConfig that the name alone determines
    names:              an entry here -> its name in config.json, if it differs
    fixed:              entries with a required value; entries without effect have the value Any
    slides_every:       of this many layers in a row the last sees everything, the others a window; 1: all have a window
    sees_all_first:     the first in a row sees everything, instead of the last
    turns_near_alone:   layers that see everything have no rotation
    turns_without:      unless no layer has a window
    heads_are_packed:   rows of queries, keys and values in one matrix alternate, by groups of heads with the same keys
    norm_offset:        number added to weights of norms
    scales_embedding:   the embedding is multiplied by the root of the width
    activation:         default if config.json has none
    routing:            default if config.json has none
    form:               converts tensors that do not correspond one to one to ours
    """

    entries: Mapping[str, Any]
    tensors: Names
    settings: Mapping[str, Any] = {}
    names: Mapping[str, str] = {}
    fixed: Mapping[str, Any] = {}
    slides_every: int = 1
    sees_all_first: bool = False
    turns_near_alone: bool = False
    turns_without: bool = False
    heads_are_packed: bool = False
    norm_offset: float = 0.0
    scales_embedding: bool = False
    activation: str = "silu"
    routing: Mapping[str, Any] = {}
    form: Callable[[Arrays], Arrays] = lambda arrays: arrays


QWEN3 = Architecture(
    QWEN | BIASES | {"head_dim": 128}, LLAMA_NAMES | HEAD_NORMS, {"norms_heads": True}, fixed={"use_mrope": False}
)
ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(LLAMA | BIASES, LLAMA_NAMES),
    "mistral": Architecture(LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096}, LLAMA_NAMES),
    "qwen2": Architecture(QWEN, LLAMA_NAMES, {"attention_biases": True}, fixed={"use_mrope": False}),
    "qwen3": QWEN3,
    "mixtral": Architecture(
        LLAMA | MIXTURE | {"num_key_value_heads": 8, "sliding_window": None, "rms_norm_eps": 1e-5, "rope_theta": 1e6},
        AROUND | ATTENTION | BEFORE | {
            "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.experts.w1": "ffn_gate_exps",
            "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps",
        },
        fixed=OF_TRAINING,
    ),
    "qwen2_moe": Architecture(
        QWEN | SPARSE | {"shared_expert_intermediate_size": NEEDED}, LLAMA_NAMES | EXPERTS | SHARED_EXPERT,
        {"attention_biases": True}, fixed={**OF_TRAINING, "use_mrope": False, "qkv_bias": True},
    ),
    "qwen3_moe": Architecture(
        QWEN | SPARSE | {"head_dim": None, "attention_bias": False}, LLAMA_NAMES | HEAD_NORMS | EXPERTS,
        {"norms_heads": True}, fixed={**OF_TRAINING, "use_mrope": False},
    ),
    "olmoe": Architecture(
        LLAMA | MIXTURE | {"attention_bias": False, "rms_norm_eps": 1e-5, "norm_topk_prob": False},
        AROUND | ATTENTION | HEAD_NORMS | BEFORE | EXPERTS, {"norms_queries": True},
        fixed={**OF_TRAINING, "clip_qkv": None},
    ),
    "gpt_oss": Architecture(
        LLAMA | MIXTURE | WINDOW | {"sliding_window": 128, "head_dim": 64, "num_key_value_heads": 8, "attention_bias": True,
                                    "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "swiglu_limit": 7.0},
        AROUND | ATTENTION | BEFORE | {
            "self_attn.sinks": "attn_sinks", "mlp.router": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
            "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
        },
        {"sinks": True, "expert_biases": True}, slides_every=2, form=of_gpt_oss,
        fixed={**OF_TRAINING, "swiglu_alpha": SWIGLU_SLOPE, "experts_per_token": Any, "initial_context_length": Any,
               "quantization_config": Any},  # of experts; the tensors show it
    ),
    "deepseek_v2": Architecture(
        LATENTS | {"topk_method": "greedy", "n_group": None, "topk_group": None, "routed_scaling_factor": 1.0,
                   "q_lora_rank": 1536},
        LATENT_NAMES, {"gates_shared": False, "pairs_are_halves": False}, names=OF_DEEPSEEK,
        routing={"shares_to_one": False}, fixed={**NO_LATENTS, "norm_topk_prob": False, "scoring_func": "softmax"},
    ),
    "deepseek_v3": Architecture(
        LATENTS | {"n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "q_lora_rank": 1536, "norm_topk_prob": True,
                   "first_k_dense_replace": 3, "rope_interleave": True},
        LATENT_NAMES | {"mlp.gate.e_score_correction": "exp_probs_b"}, {"gates_shared": False}, names=OF_DEEPSEEK,
        routing={"is_sigmoid": True, "corrects": True}, form=with_corrections,
        fixed={**NO_LATENTS, "topk_method": "noaux_tc", "scoring_func": "sigmoid", **LATER_LAYERS},
    ),
    "smollm3": Architecture(
        LLAMA | BIASES | {"no_rope_layers": None, "no_rope_layer_interval": 4, "num_key_value_heads": 4,
                          "tie_word_embeddings": True, "layer_types": None},
        LLAMA_NAMES, fixed={"use_sliding_window": False, "sliding_window": None, "max_window_layers": Any},
    ),
    "granite": Architecture(
        LLAMA | BIASES | {"embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
                          "logits_scaling": 1.0},
        LLAMA_NAMES,
    ),
    "gemma": Architecture(GEMMA, LLAMA_NAMES, **OF_GEMMA),
    "gemma2": Architecture(
        GEMMA2 | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, GEMMA_NAMES, {"norms_after": True},
        fixed={"sliding_window_size": Any}, slides_every=2, **OF_GEMMA,
    ),
    "gemma3_text": Architecture(
        GEMMA2 | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": None,
                  "use_bidirectional_attention": False},
        GEMMA_NAMES | HEAD_NORMS, {"norms_after": True, "norms_heads": True}, slides_every=6, **OF_GEMMA,
    ),
    "modernbert": Architecture(
        {
            **SIZES, **WINDOW, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "hidden_activation": None,
            "rope_theta": 160000.0, "rope_local_base_freq": 10000.0, "rope_parameters": None, "sliding_window": 128,
            "sliding_window_pattern": 3,
        },
        {
            "embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
            "attn_norm": "attn_norm", "attn.Wqkv": PACKED, "attn.Wo": "attn_output", "mlp_norm": "ffn_norm",
            "mlp.Wi": ("ffn_gate", "ffn_up"), "mlp.Wo": "ffn_down",
        },
        {"sees_ahead": True, "norms_embedding": True, "subtracts_mean": True, "norm_biases": False},
        names={
            "rms_norm_eps": "norm_eps", "rope_theta": "global_rope_theta", "rope_local_base_freq": "local_rope_theta",
            "sliding_window": "local_attention", "sliding_window_pattern": "global_attn_every_n_layers",
        },
        fixed={
            "norm_bias": False, "attention_bias": False, "mlp_bias": False, "layer_norm_eps": Any,
            "position_embedding_type": Any, "initializer_cutoff_factor": Any, "mlp_dropout": Any, "decoder_bias": Any,
            "classifier_pooling": Any, "classifier_bias": Any, "classifier_activation": Any, "sparse_prediction": Any,
            "sparse_pred_ignore_index": Any, "deterministic_flash_attn": Any, "reference_compile": Any,
            "repad_logits_with_grad": Any,
        },
        slides_every=3, sees_all_first=True, activation="gelu", form=without_heads,
    ),
    "phi3": Architecture(
        LLAMA | {"sliding_window": None, "partial_rotary_factor": 1.0, "original_max_position_embeddings": 4096,
                 "rms_norm_eps": 1e-5},
        AROUND | BEFORE | {
            "self_attn.qkv_proj": PACKED, "self_attn.o_proj": "attn_output", "mlp.gate_up_proj": ("ffn_gate", "ffn_up"),
            "mlp.down_proj": "ffn_down",
        },
        fixed={"attention_bias": False, "mlp_bias": False, "full_attn_mod": 1, "interpolate_factor": 1},
    ),
    "olmo2": Architecture(
        LLAMA | {"attention_bias": False, "rms_norm_eps": 1e-5}, AROUND | ATTENTION | HEAD_NORMS | GATED | AFTER,
        OF_OLMO | {"norms_queries": True},
    ),
    "olmo3": Architecture(
        LLAMA | WINDOW | {
            "attention_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "sliding_window": 4096,
            "rope_local_base_freq": None,
        },
        AROUND | ATTENTION | HEAD_NORMS | GATED | AFTER, OF_OLMO | {"norms_queries": True}, slides_every=4,
    ),
    "exaone4": Architecture(
        LLAMA | WINDOW | {"rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4},
        AROUND | ATTENTION | HEAD_NORMS | GATED | AFTER, OF_OLMO | {"norms_heads": True}, slides_every=4,
        turns_near_alone=True, turns_without=True,
    ),
    "seed_oss": Architecture(
        LLAMA | BIASES | {"attention_bias": True, "attention_out_bias": False, "head_dim": 128, "num_key_value_heads": 8},
        LLAMA_NAMES,
    ),
    "ernie4_5": Architecture(
        LLAMA | {
            "use_bias": False, "head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
            "tie_word_embeddings": True,
        },
        LLAMA_NAMES, {"pairs_are_halves": False}, fixed={"compression_ratio": 1.0},
    ),
    "helium": Architecture(
        LLAMA | BIASES | {"head_dim": 128, "num_key_value_heads": 20, "rms_norm_eps": 1e-8, "rope_theta": 1e5},
        LLAMA_NAMES, {"pairs_are_halves": False, "output_bias": False},
    ),
    "ministral": Architecture(LLAMA | WINDOW | {"num_key_value_heads": 8, "sliding_window": 4096}, LLAMA_NAMES),
    "internlm3": Architecture(
        LLAMA | BIASES | {"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}, LLAMA_NAMES,
        names={"attention_bias": "qkv_bias", "mlp_bias": "bias"},
    ),
    "glm": Architecture(GLM, GLM_NAMES, OF_GLM),
    "glm4": Architecture(
        GLM, GLM_NAMES | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
        OF_GLM | {"norms_after": True},
    ),
    "stablelm": Architecture(
        LLAMA | {
            "attention_bias": False, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "use_parallel_residual": False,
            "num_ln_in_parallel_attn": None,
        },
        LLAMA_NAMES, {"subtracts_mean": True, "output_bias": False}, fixed={"qk_layernorm": False},
        names={"rms_norm_eps": "layer_norm_eps", "attention_bias": "use_qkv_bias"},
    ),
    "arcee": Architecture(LLAMA | BIASES | {"rms_norm_eps": 1e-5}, PLAIN_NAMES, {"is_gated": False}, activation="relu2"),
    "nemotron": Architecture(
        LLAMA | BIASES | {"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5}, PLAIN_NAMES,
        {"is_gated": False, "subtracts_mean": True}, names={"rms_norm_eps": "norm_eps"}, norm_offset=1.0,
        activation="relu2",
    ),
    "starcoder2": Architecture(
        LLAMA | {"sliding_window": None, "use_bias": True, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
                 "num_key_value_heads": 2},
        AROUND | ATTENTION | BEFORE | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
        {"subtracts_mean": True, "is_gated": False}, names={"rms_norm_eps": "norm_epsilon"}, activation="gelu_pytorch_tanh",
        fixed={"norm_type": "layer_norm", "mlp_type": "default", "activation_function": Any},
    ),
    "gpt_neox": Architecture(
        SIZES | ROTARY | {"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "use_parallel_residual": True,
                          "attention_bias": True},
        {
            "embed_in": "token_embd", "final_layer_norm": "output_norm", "embed_out": "output", **BEFORE,
            "attention.query_key_value": PACKED, "attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
        {"subtracts_mean": True, "is_gated": False, "feed_forward_biases": True}, heads_are_packed=True, activation="gelu",
        names={"rms_norm_eps": "layer_norm_eps", "partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base"},
    ),
    "phi": Architecture(
        {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"} | {
            "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
        },
        {
            "embed_tokens": "token_embd", "final_layernorm": "output_norm", "lm_head": "output",
            "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v", "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
        },
        {
            "subtracts_mean": True, "is_gated": False, "attention_biases": True, "output_bias": True,
            "feed_forward_biases": True, "logit_biases": True, "is_parallel": True, "norms_once": True,
        },
        names={"rms_norm_eps": "layer_norm_eps"}, fixed={"qk_layernorm": False, "tie_word_embeddings": False},
        activation="gelu_new",
    ),
    "cohere": Architecture(
        COHERE | {"use_qk_norm": False}, COHERE_NAMES | HEAD_NORMS, OF_COHERE, names={"rms_norm_eps": "layer_norm_eps"},
        fixed={"model_max_length": Any},
    ),
    "cohere2": Architecture(
        COHERE | WINDOW | {"sliding_window": 4096, "sliding_window_pattern": None}, COHERE_NAMES, OF_COHERE,
        names={"rms_norm_eps": "layer_norm_eps"}, slides_every=4, turns_near_alone=True,
        fixed={
            "layer_switch": 4, "order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj",
            "rotary_pct": 1.0, "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
            "use_parallel_embedding": Any, "use_qk_norm": False,
        },
    ),
    "falcon": Architecture(
        SIZES | ROTARY | {
            "intermediate_size": None, "max_position_embeddings": 2048, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
            "num_key_value_heads": None, "multi_query": True, "use_bias": False, "use_parallel_residual": True,
            "new_decoder_architecture": False, "num_ln_in_parallel_attn": None, "alibi": False,
        },
        {
            "word_embeddings": "token_embd", "ln_f": "output_norm", "lm_head": "output", "ln_attn": "attn_norm",
            "ln_mlp": "ffn_norm", **BEFORE, "self_attention.query_key_value": PACKED, "self_attention.dense": "attn_output",
            "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
        },
        {"subtracts_mean": True, "is_gated": False}, heads_are_packed=True, activation="gelu",
        names={
            "intermediate_size": "ffn_hidden_size", "hidden_act": "activation", "rms_norm_eps": "layer_norm_epsilon",
            "num_key_value_heads": "num_kv_heads", "use_bias": "bias", "use_parallel_residual": "parallel_attn",
        },
        fixed={"apply_residual_connection_post_layernorm": False},
    ),
    "gpt2": Architecture(
        GPT, GPT_NAMES, OF_GPT, names=OF_GPT2, activation="gelu_new", form=of_conv1d, fixed={
            "n_ctx": Any, "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": Any,
        },
    ),
    "gpt_bigcode": Architecture(
        GPT | {"multi_query": True}, GPT_NAMES, OF_GPT, names=OF_GPT2,
        activation="gelu_pytorch_tanh", heads_are_packed=True, fixed={
            "num_key_value_heads": Any, "n_ctx": Any, "inference_runner": 0, "validate_runner_input": Any,
            "max_batch_size": Any, "pre_allocate_kv_cache": Any,
        },
    ),
}  # fmt: skip


def read_config(content: Mapping[str, Any], tokens: int, read: int) -> tuple[DecoderConfig, Architecture, bool]:
    """Returns the configuration of a config.json, the published form of such networks, and whether one token table serves.

    Args:
      content:  contents of config.json
      tokens:   size of the vocabulary; further rows of the table are padding
      read:     largest number of positions that are read

    Raises:
      DataError: it describes another network, lacks an entry, or has an unknown one.
    """
    kind = architecture_of(content)
    said = Entries(content, "config.json", kind.entries, kind.names)
    if "quantization_config" not in kind.fixed:
        scaled_by(said.left.pop("quantization_config", None))
    rows, width, layers, longest = (
        said.size(key, LAYERS_MAX) if key == "num_hidden_layers" else said.whole(key)
        for key in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings")
    )
    reach = reach_of(content.get("rope_parameters") or content.get("rope_scaling"), longest)
    latents, is_new = latents_of(said), said.flag("new_decoder_architecture")
    fields: dict[str, Any] = {
        "vocabulary": min(rows, tokens), "layers": layers, "width": width, "context": min(read, reach),
        "hidden": said.whole("intermediate_size") or 4 * width, "eps": said.number("rms_norm_eps"),
        "positions": longest if "position_embd" in kind.tensors.values() else 0,
        "activation": activation_of(said, kind), "gate_limit": said.number("swiglu_limit") or 0.0,
    }  # fmt: skip
    fields |= heads_of(said, width, is_new, latents) | norms_of(said, is_new) | biases_of(said)
    fields |= factors_of(said, kind, width)
    fields |= view_of(said, kind, layers, latents.get("turned", fields["features"]), longest, read)
    fields |= experts_of(said, layers, fields["hidden"], kind.routing) | latents
    is_tied = said.flag("tie_word_embeddings")
    said.check_empty(FIXED | dict(kind.fixed))
    return DecoderConfig(**fields | dict(kind.settings)), kind, is_tied


def architecture_of(content: Mapping[str, Any]) -> Architecture:
    """Returns the published form of networks of the file's model_type.

    Raises:
      DataError: the model_type is unknown.
    """
    name = content.get("model_type")
    kind = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise DataError(f"config.json says model_type is {str(name)[:40]!r}; {known} are run.")
    return kind


# ---- fields of DecoderConfig ----
def heads_of(said: Entries, width: int, is_new: bool, latents: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields about heads.

    Args:
      is_new:   Falcon's later form, with several heads of keys
      latents:  the fields about latents

    Raises:
      DataError: numbers do not divide each other.
    """
    heads, own = said.whole("num_attention_heads"), said.whole("head_dim")
    features = latents.get("features") or own or width // heads
    shared = said.whole("num_key_value_heads") or heads
    shared = 1 if said.flag("multi_query") and not is_new else shared
    if features % 2 or heads % shared or heads * features != width and not (latents or own):
        raise DataError(
            f"config.json says num_attention_heads is {heads}, of {features} features, num_key_value_heads {shared},"
            f" hidden_size {width}: heads must divide the width, shared heads the heads, and features must be even."
        )
    return {"heads": heads, "features": features, "shared_heads": shared}


def norms_of(said: Entries, is_new: bool) -> dict[str, Any]:
    """Returns the fields about norms, and about the inputs of a block's parts.

    Raises:
      DataError: parts have more norms than are supported.
    """
    is_parallel, norms = said.flag("use_parallel_residual") or is_new, said.whole("num_ln_in_parallel_attn")
    if norms is not None and norms > 1 + is_new:
        raise said.wrong("num_ln_in_parallel_attn", norms, f"at most {1 + is_new} is supported")
    norms = norms or 1 + is_new
    return {
        "is_parallel": is_parallel, "norms_each_head": said.flag("use_qk_norm"),
        "norms_once": "num_ln_in_parallel_attn" in said.defaults and is_parallel and norms == 1,
    }  # fmt: skip


def biases_of(said: Entries) -> dict[str, Any]:
    """Returns the fields about biases; `use_bias` is for all of them, `attention_bias` and `mlp_bias` for some."""
    attention = said.flag("attention_bias") or said.flag("use_bias")
    feed_forward = said.flag("mlp_bias") or "use_bias" in said.defaults and attention
    output = said.flag("attention_out_bias", attention)
    return {"attention_biases": attention, "output_bias": output, "feed_forward_biases": feed_forward}


def factors_of(said: Entries, kind: Architecture, width: int) -> dict[str, Any]:
    """Returns the fields about factors and caps."""
    score = said.number("query_pre_attn_scalar")
    return {
        "attention_scale": said.number("attention_multiplier") or (score**-0.5 if score else None),
        "attention_cap": said.number("attn_logit_softcapping") or 0.0,
        "logit_cap": said.number("final_logit_softcapping") or 0.0,
        "embedding_scale": (said.number("embedding_multiplier") or 1.0) * (width**0.5 if kind.scales_embedding else 1.0),
        "residual_scale": said.number("residual_multiplier") or 1.0,
        "logit_scale": (said.number("logit_scale") or 1.0) / (said.number("logits_scaling") or 1.0),
    }


def view_of(said: Entries, kind: Architecture, layers: int, turned: int, longest: int, read: int) -> dict[str, Any]:
    """Returns the fields about visible positions.

    Args:
      turned:   rotated features of a head
      longest:  positions of the training
      read:     largest number of positions that are read
    """
    sights = sights_of(said, kind, layers, turned, longest, read)
    has_slopes = said.flag("alibi")
    if has_slopes:
        sights = [Sight()] * layers
    sees_ahead = kind.settings.get("sees_ahead") or said.flag("use_bidirectional_attention")
    if sees_ahead:  # half of a window is on each side
        sights = [Sight(each.window and each.window // 2 + 1, each.rotation) for each in sights]
    return {"sights": tuple(sights), "has_slopes": has_slopes, "sees_ahead": sees_ahead}


def activation_of(said: Entries, kind: Architecture) -> str:
    """Returns the activation of the feed-forward part, a key of ACTIVATIONS.

    Raises:
      DataError: the activation is unknown.
    """
    of_gate, of_all = said.get("hidden_activation"), said.get("hidden_act")
    shown = of_gate or of_all or kind.activation
    if kind.activation == "gelu_pytorch_tanh" and shown == "gelu" and kind.scales_embedding:
        shown = kind.activation  # Gemma's first files say "gelu" and mean the approximation
    if not isinstance(shown, str) or shown not in ACTIVATION_NAMES:
        raise said.wrong("hidden_act", shown, f"{', '.join(ACTIVATION_NAMES)} are known")
    return ACTIVATION_NAMES[shown]


def latents_of(said: Entries) -> dict[str, Any]:
    """Returns the fields of DecoderConfig about latents of keys and values."""
    if "kv_lora_rank" not in said.defaults:
        return {}
    plain, turned = said.whole("qk_nope_head_dim"), said.whole("qk_rope_head_dim")
    rope = said.left.get("rope_parameters") or said.left.get("rope_scaling")
    factor, share = (rope.get("factor"), rope.get("mscale_all_dim")) if isinstance(rope, dict) else (None, None)
    scale = 1.0
    if isinstance(factor, int | float) and isinstance(share, int | float) and factor > 1:
        scale = 0.1 * share * math.log(factor) + 1  # other values are errors in the functions of angles
    return {
        "latent": said.whole("kv_lora_rank"), "query_latent": said.whole("q_lora_rank") or 0, "turned": turned,
        "value_features": said.whole("v_head_dim"), "features": plain + turned,
        "attention_scale": scale**2 / math.sqrt(plain + turned), "pairs_are_halves": not said.flag("rope_interleave"),
    }  # fmt: skip


def experts_of(said: Entries, layers: int, hidden: int, routing: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of DecoderConfig about experts.

    Args:
      hidden:   width of layers without experts
      routing:  as in Architecture

    Raises:
      DataError: an entry has another form, or more experts are chosen than exist.
    """
    if "num_experts" not in said.defaults:
        return {}
    num, theirs = said.whole("num_experts"), said.whole("num_local_experts")  # Mixtral's name, and the newer one
    num, chosen, every = num or theirs, said.whole("num_experts_per_tok"), said.whole("decoder_sparse_step")
    plain, own = said.get("mlp_only_layers") or [], said.whole("moe_intermediate_size")
    shared, first = said.whole("shared_expert_intermediate_size") or 0, said.get("first_k_dense_replace") or 0
    shared += (said.whole("n_shared_experts") or 0) * (own or 0)
    if num is None:
        raise DataError("config.json has no num_experts.")
    if chosen > num:
        raise said.wrong("num_experts_per_tok", chosen, f"there are {num} experts")
    if type(first) is not int or first < 0:
        raise said.wrong("first_k_dense_replace", first, "a number of layers is needed")
    if not isinstance(plain, list) or not all(type(layer) is int for layer in plain):
        raise said.wrong("mlp_only_layers", plain, "a list of numbers of layers is needed")
    without = [layer for layer in range(layers) if layer < first or layer in plain or (layer + 1) % (every or 1)]
    groups, best = groups_of(said, num)
    to_one = {"shares_to_one": said.flag("norm_topk_prob")} if "norm_topk_prob" in said.defaults else {}
    found = Routing(chosen, groups=groups, best_groups=best, scale=said.number("routed_scaling_factor") or 1.0)
    return {
        "experts": num, "routing": replace(found, **routing, **to_one), "expert_hidden": own or hidden,
        "shared_hidden": shared, "plain_layers": frozenset(without),
    }  # fmt: skip


def groups_of(said: Entries, num: int) -> tuple[int, int]:
    """Returns the number of groups of experts, and the number of groups to choose from.

    Raises:
      DataError: groups do not divide the experts, or the rule of choice is unsupported.
    """
    groups, best, way = said.whole("n_group") or 1, said.whole("topk_group") or 1, said.get("topk_method")
    if way == "greedy":
        return 1, 1
    if way not in (None, "group_limited_greedy"):
        raise said.wrong("topk_method", way, "greedy and group_limited_greedy are known")
    if not are_groups(num, groups, best):
        raise said.wrong(
            "n_group", groups, f"it must divide the {num} experts into groups of two or more, {best} of them chosen"
        )
    return groups, best


def sights_of(said: Entries, kind: Architecture, layers: int, features: int, longest: int, read: int) -> list[Sight]:
    """Returns a sight for each layer.

    Raises:
      DataError: an entry has another form, or its length is not the number of layers.
    """
    if "rope_theta" not in kind.entries:
        return [Sight()] * layers
    window, slides = window_of(said, kind, layers)
    found = {key: said.get(key) for key in ("rope_scaling", "rope_parameters")}
    where = "rope_parameters" if found["rope_parameters"] else "rope_scaling"
    parts, base = found[where] or {}, said.number("rope_theta")
    near_base = said.number("rope_local_base_freq") or base
    both = [parts, {"rope_theta": near_base} if "rope_local_base_freq" in said.defaults else parts]
    if isinstance(parts, dict) and "full_attention" in parts:
        both = [parts.get("full_attention"), parts.get("sliding_attention")]
    share, before = said.number("partial_rotary_factor"), said.whole("original_max_position_embeddings")
    share = share or 1.0 if "partial_rotary_factor" in said.defaults else None
    far, near = (
        rotation_of(each, where, Positions(base, share, features, before or longest, longest, read)) for each in both
    )
    turns = list_of(said, "no_rope_layers", layers, (0, 1))
    every = said.whole("no_rope_layer_interval")
    turns = turns or [not every or (layer + 1) % every for layer in range(layers)]
    all_turn = not kind.turns_near_alone or kind.turns_without and not any(slides)
    turns = [turned and (slid or all_turn) for turned, slid in zip(turns, slides)]
    return [
        Sight(window if slid else 0, (near if slid else far) if turned else None) for slid, turned in zip(slides, turns)
    ]


def window_of(said: Entries, kind: Architecture, layers: int) -> tuple[int, list[bool]]:
    """Returns the number of positions in a window, and the layers that have one.

    Raises:
      DataError: an entry has another form, or its length is not the number of layers.
    """
    if said.left.get("sliding_window") == 0:  # newer files mean null
        said.left["sliding_window"] = None
    pattern = said.left.get("sliding_window_pattern")  # "LLLG": three local layers, then a global one
    if isinstance(pattern, str) and pattern == "L" * (len(pattern) - 1) + "G":
        said.left["sliding_window_pattern"] = len(pattern)
    window, is_used = said.whole("sliding_window"), said.flag("use_sliding_window", True)
    first, every = (
        said.whole("max_window_layers") if is_used else said.get("max_window_layers"),
        said.whole("sliding_window_pattern"),
    )
    types = list_of(said, "layer_types", layers, ("full_attention", "sliding_attention"))
    if types is not None:
        slides = [each == "sliding_attention" for each in types]
        if any(slides) and not (window and is_used):
            raise said.wrong("layer_types", types, "there is no sliding_window for its sliding_attention")
        return window or 0, slides
    if not window or not is_used:
        return 0, [False] * layers
    every = every or kind.slides_every
    shift = 0 if kind.sees_all_first else 1
    return window, [layer >= (first or 0) and (every == 1 or (layer + shift) % every > 0) for layer in range(layers)]


def list_of(said: Entries, key: str, layers: int, values: tuple[Any, ...]) -> list[Any] | None:
    """Returns an entry with a value for each layer, or None.

    Raises:
      DataError: the number of values is wrong.
    """
    found = said.get(key)
    if found is not None and (not isinstance(found, list) or len(found) != layers or any(v not in values for v in found)):
        raise said.wrong(
            key, found, f"a list with one of {', '.join(map(str, values))} for each of {layers} layers is needed"
        )
    return found
