"""Open models as they are published: a small config.json of each, weights by its names, and its equations in float64.

The equations read config.json and the published names themselves, and know nothing of picograd.

Letters: T positions, H heads, D features of a head, R those that are turned.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as TF

from tests.models.published_mixtures import MIXTURES, mixture_logits, mixture_shapes
from tests.models.published_recent import FACTS, RECENT, recent_logits, recent_shapes

Weights = dict[str, torch.Tensor]
Said = dict[str, Any]
SIZES: Said = {
    "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": [258, 3], "torch_dtype": "bfloat16",
    "use_cache": True,
    "transformers_version": "4.51.3", "initializer_range": 0.02, "attention_dropout": 0.1,
}  # fmt: skip
LLAMA: Said = SIZES | {
    "num_key_value_heads": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
    "tie_word_embeddings": False,
}  # fmt: skip
FALCON: Said = {
    **{k: v for k, v in SIZES.items() if k != "intermediate_size"}, "layer_norm_epsilon": 1e-5, "alibi": False,
    "bias": False, "new_decoder_architecture": False, "parallel_attn": True,
}  # fmt: skip
MIXTURE: Said = {"num_experts_per_tok": 2, "output_router_logits": False, "router_aux_loss_coef": 0.001}
OF_GEMMA: Said = {
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 24,
    "sliding_window": 5,
}
# The first entry of each is its model_type; then what its files say beside the sizes.
CONFIGS: dict[str, tuple[str, Said]] = {
    "Llama 2": ("llama", LLAMA | {"num_key_value_heads": 4, "pretraining_tp": 1, "attention_bias": False}),
    "Llama 3.1": ("llama", LLAMA | {"rope_theta": 500.0, "mlp_bias": False, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 50}}),
    "a Llama with biases": ("llama", LLAMA | {"attention_bias": True, "mlp_bias": True, "head_dim": 16}),
    "angles of a factor": ("llama", LLAMA | {"rope_scaling": {"type": "linear", "factor": 3.0}}),
    "angles of rope_parameters": ("llama", LLAMA | {"rope_theta": None, "rope_parameters": {
        "rope_type": "default", "rope_theta": 300.0}}),
    "angles for longer texts": ("llama", LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    "SmolLM2": ("llama", LLAMA | {"tie_word_embeddings": True, "is_llama_config": True, "rope_interleaved": False,
                                  "transformers.js_config": {"dtype": "q4"}, "_name_or_path": "x"}),
    "Mistral": ("mistral", LLAMA | {"sliding_window": 5}),
    "Mistral without a window": ("mistral", LLAMA | {"sliding_window": None, "head_dim": 16}),
    "Qwen 2.5": ("qwen2", LLAMA | {"use_sliding_window": False, "sliding_window": 5, "max_window_layers": 2,
                                   "tie_word_embeddings": True, "use_mrope": False}),
    "Qwen 2 with a window": ("qwen2", LLAMA | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2}),
    "Qwen 2.5 with YaRN": ("qwen2", LLAMA | {"rope_scaling": {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
    "YaRN with all that it says": ("qwen2", LLAMA | {"rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16, "beta_slow": 2,
        "mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False}}),
    "Qwen 3": ("qwen3", LLAMA | {"head_dim": 16, "attention_bias": False, "use_sliding_window": False,
    "sliding_window": None,
                                 "max_window_layers": 4, "tie_word_embeddings": True}),
    "Gemma": ("gemma", LLAMA | {"head_dim": 16, "hidden_act": "gelu", "tie_word_embeddings": True}),
    "Gemma 2": ("gemma2", LLAMA | OF_GEMMA | {
        "hidden_act": "gelu_pytorch_tanh", "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
        "cache_implementation": "hybrid", "tie_word_embeddings": True}),
    "Gemma 3": ("gemma3_text", LLAMA | OF_GEMMA | {
        "num_hidden_layers": 7, "sliding_window_pattern": 3, "rope_local_base_freq": 50.0, "attn_logit_softcapping": None,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "tie_word_embeddings": True}),
    "Gemma 3 of today": ("gemma3_text", LLAMA | OF_GEMMA | {
        "layer_types": ["full_attention", "sliding_attention"] * 2, "rope_theta": None, "tie_word_embeddings": True,
        "use_bidirectional_attention": False, "_sliding_window_pattern": 6, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 900.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}),
    "Phi-3": ("phi3", LLAMA | {"sliding_window": 6, "original_max_position_embeddings": 128, "resid_pdrop": 0.0,
                               "embd_pdrop": 0.0, "attention_bias": False, "auto_map": {"AutoConfig": "x.y"}}),
    "Phi-4 mini": ("phi3", LLAMA | {
        "original_max_position_embeddings": 64, "partial_rotary_factor": 0.75, "full_attn_mod": 1, "interpolate_factor": 1,
        "lm_head_bias": False, "tie_word_embeddings": True, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0, 1.1, 1.5], "long_factor": [1.0, 3.0, 5.0]}}),
    "Mixtral": ("mixtral", LLAMA | MIXTURE | {"num_local_experts": 6, "router_jitter_noise": 0.0, "sliding_window": None}),
    "Qwen 1.5 with experts": ("qwen2_moe", LLAMA | MIXTURE | {
        "num_experts": 7, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "norm_topk_prob": False,
        "decoder_sparse_step": 2, "mlp_only_layers": [], "use_sliding_window": False, "sliding_window": 5,
        "max_window_layers": 2}),
    "Qwen 3 with experts": ("qwen3_moe", LLAMA | MIXTURE | {
        "num_experts": 8, "moe_intermediate_size": 24, "norm_topk_prob": True, "decoder_sparse_step": 1, "head_dim": 16,
        "mlp_only_layers": [1], "use_sliding_window": False, "sliding_window": 0, "max_window_layers": 4,
        "attention_bias": False}),
    "OLMoE": ("olmoe", LLAMA | MIXTURE | {"num_experts": 9, "num_experts_per_tok": 3, "norm_topk_prob": False,
                                          "clip_qkv": None}),
    "SmolLM3": ("smollm3", LLAMA | {"no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4,
    "use_sliding_window": False,
                                    "layer_types": ["full_attention"] * 4, "tie_word_embeddings": True,
                                    "max_window_layers": 2}),
    "Granite": ("granite", LLAMA | {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2,
                                    "logits_scaling": 4.0, "tie_word_embeddings": True}),
    "OLMo 2": ("olmo2", LLAMA | {"attention_bias": False}),
    "StarCoder 2": ("starcoder2", {**{k: v for k, v in LLAMA.items() if k != "rms_norm_eps"}, "norm_epsilon": 1e-5,
                                   "hidden_act": "gelu_pytorch_tanh", "sliding_window": 5, "use_bias": True,
                                   "mlp_type": "default", "norm_type": "layer_norm", "tie_word_embeddings": True,
                                   "activation_function": "gelu", "residual_dropout": 0.1, "embedding_dropout": 0.1}),
    "Pythia": ("gpt_neox", SIZES | {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "rotary_pct": 0.25,
    "rotary_emb_base": 10000,
                                    "use_parallel_residual": True, "tie_word_embeddings": False}),
    "a GPT-NeoX in sequence": ("gpt_neox", SIZES | {
        "hidden_act": "gelu", "layer_norm_eps": 1e-5, "rotary_pct": 0.5, "rotary_emb_base": 300, "attention_bias": False,
        "use_parallel_residual": False, "tie_word_embeddings": False}),
    "Phi-2": ("phi", SIZES | {
        "num_key_value_heads": 4, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_scaling": None, "partial_rotary_factor": 0.5, "qk_layernorm": False, "tie_word_embeddings": False,
        "embd_pdrop": 0.0, "resid_pdrop": 0.1}),
    "a Phi that shares keys": ("phi", SIZES | {
        "num_key_value_heads": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-4, "rope_theta": 300.0,
        "partial_rotary_factor": 0.25}),
    "Command-R": ("cohere", {
        **{k: v for k, v in LLAMA.items() if k not in ("rms_norm_eps", "tie_word_embeddings", "rope_scaling")},
        "num_key_value_heads": 4, "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "model_max_length": 131072,
        "pretraining_tp": 1, "use_qk_norm": False}),
    "Aya 23": ("cohere", {**{k: v for k, v in LLAMA.items() if k != "rms_norm_eps"}, "layer_norm_eps": 1e-5,
                          "logit_scale": 0.3, "attention_bias": True, "tie_word_embeddings": False}),
    "Command-R+": ("cohere", {
        **{k: v for k, v in LLAMA.items() if k not in ("rms_norm_eps", "tie_word_embeddings")},
        "layer_norm_eps": 1e-5, "logit_scale": 0.8333, "use_qk_norm": True}),
    "Command R7B": ("cohere2", {
        **{k: v for k, v in LLAMA.items() if k not in ("rms_norm_eps", "tie_word_embeddings")}, "rope_theta": 50000.0,
        "num_hidden_layers": 5, "head_dim": 16, "layer_norm_eps": 1e-5, "logit_scale": 0.25, "sliding_window": 5,
        "layer_switch": 4, "order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj",
        "rotary_pct": 1.0, "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
        "use_parallel_embedding": False, "use_qk_norm": False, "cache_implementation": "hybrid"}),
    "Falcon 7B": ("falcon", FALCON | {
        "multi_query": True, "apply_residual_connection_post_layernorm": False, "hidden_dropout": 0.0}),
    "Falcon 40B": ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "multi_query": True}),
    "Falcon 2": ("falcon", FALCON | {
        "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 48,
        "rope_theta": 300.0, "tie_word_embeddings": False, "activation": "gelu"}),
    "a Falcon in sequence": ("falcon", FALCON | {
        "multi_query": False, "num_kv_heads": 4, "parallel_attn": False, "bias": True}),
    "Falcon RW": ("falcon", FALCON | {
        "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "max_position_embeddings": 128}),
    "a Falcon of six heads with slopes": ("falcon", FALCON | {
        "alibi": True, "hidden_size": 48, "num_attention_heads": 6, "multi_query": True}),
    "StarCoder": ("gpt_bigcode", {
        "vocab_size": 259, "n_embd": 32, "n_inner": 64, "n_layer": 3, "n_head": 4, "n_positions": 128, "multi_query": True,
        "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
        "resid_pdrop": 0.1,
        "attention_softmax_in_fp32": True, "scale_attention_softmax_in_fp32": True, "inference_runner": 0}),
    "a BigCode of many heads": ("gpt_bigcode", {
        "vocab_size": 259, "n_embd": 32, "n_inner": None, "n_layer": 3, "n_head": 4, "n_positions": 128,
        "multi_query": False,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}),
    **{name: (kind, SIZES | said) for name, (kind, said) in MIXTURES.items()},
    **{name: (kind, said if "n_embd" in said else SIZES | said) for name, (kind, said) in RECENT.items()},
}  # fmt: skip
IN_MIXTURES = {kind for kind, _ in MIXTURES.values()}  # whose equations are there


def config_of(name: str) -> Said:
    """Returns the contents of config.json; entries of null that stand for others are left out."""
    kind, said = CONFIGS[name]
    return {
        "model_type": kind,
        "architectures": ["X"],
        **{k: v for k, v in said.items() if v is not None or k != "rope_theta"},
    }


# ---- weights ----
def random_weights(said: Said, seed: int = 0) -> Weights:
    """Returns weights by their published names, in bfloat16."""
    kind, generator = said["model_type"], torch.Generator().manual_seed(seed)
    width, layers, heads, *_ = sizes(said)
    head = said.get("head_dim") or width // heads
    shared, hidden = (
        said.get("num_key_value_heads", heads),
        said.get("intermediate_size") or said.get("n_inner") or 4 * width,
    )
    inner, vocabulary = heads * head, said["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, rows: int, columns: int, has_bias: bool = False) -> None:
        shapes[f"{name}.weight"] = (rows, columns)
        if has_bias:
            shapes[f"{name}.bias"] = (rows,)

    def norm(name: str, length: int = width) -> None:
        shapes[f"{name}.weight"] = (length,)
        if kind in ("gpt_neox", "gpt_bigcode", "starcoder2", "phi", "falcon"):
            shapes[f"{name}.bias"] = (length,)

    if kind in IN_MIXTURES:
        shapes = mixture_shapes(said)
    elif kind in FACTS:
        shapes = recent_shapes(said)
    elif kind == "gpt_neox":
        has_bias = said.get("attention_bias", True)
        linear("gpt_neox.embed_in", vocabulary, width)
        linear("embed_out", vocabulary, width)
        norm("gpt_neox.final_layer_norm")
        for layer in range(layers):
            part = f"gpt_neox.layers.{layer}"
            norm(f"{part}.input_layernorm")
            norm(f"{part}.post_attention_layernorm")
            linear(f"{part}.attention.query_key_value", 3 * width, width, has_bias)
            linear(f"{part}.attention.dense", width, width, has_bias)
            linear(f"{part}.mlp.dense_h_to_4h", hidden, width, True)
            linear(f"{part}.mlp.dense_4h_to_h", width, hidden, True)
    elif kind == "falcon":
        linear("transformer.word_embeddings", vocabulary, width)
        if not said.get("tie_word_embeddings", True):
            linear("lm_head", vocabulary, width)
        norm("transformer.ln_f")
        for layer in range(layers):
            part, has_bias, hidden = f"transformer.h.{layer}", said["bias"], said.get("ffn_hidden_size") or 4 * width
            for name in norms_of_falcon(said):
                norm(f"{part}.{name}")
            linear(f"{part}.self_attention.query_key_value", width + 2 * head * keys_of_falcon(said), width, has_bias)
            linear(f"{part}.self_attention.dense", width, width, has_bias)
            linear(f"{part}.mlp.dense_h_to_4h", hidden, width, has_bias)
            linear(f"{part}.mlp.dense_4h_to_h", width, hidden, has_bias)
    elif kind == "gpt_bigcode":
        linear("transformer.wte", vocabulary, width)
        linear("transformer.wpe", said["n_positions"], width)
        norm("transformer.ln_f")
        for layer in range(layers):
            part = f"transformer.h.{layer}"
            norm(f"{part}.ln_1")
            norm(f"{part}.ln_2")
            linear(f"{part}.attn.c_attn", width + 2 * (head if said["multi_query"] else width), width, True)
            linear(f"{part}.attn.c_proj", width, width, True)
            linear(f"{part}.mlp.c_fc", hidden, width, True)
            linear(f"{part}.mlp.c_proj", width, hidden, True)
    else:
        biased = said.get("attention_bias") or said.get("use_bias") or kind == "phi"
        linear("model.embed_tokens", vocabulary, width)
        if not said.get("tie_word_embeddings", kind.startswith("cohere")):
            linear("lm_head", vocabulary, width, kind == "phi")
        norm("model.final_layernorm" if kind == "phi" else "model.norm")
        for layer in range(layers):
            part = f"model.layers.{layer}"
            norms = ["post_attention_layernorm", "post_feedforward_layernorm"] if kind == "olmo2" else [
                "input_layernorm"] if kind in ("phi", "cohere", "cohere2") else [
                "input_layernorm", "post_attention_layernorm",
                *(["pre_feedforward_layernorm", "post_feedforward_layernorm"] if kind in ("gemma2", "gemma3_text") else []),
            ]  # fmt: skip
            for name in norms:
                norm(f"{part}.{name}")
            if kind == "phi3":
                linear(f"{part}.self_attn.qkv_proj", inner + 2 * shared * head, width)
            else:
                for name, rows in (("q", inner), ("k", shared * head), ("v", shared * head)):
                    linear(f"{part}.self_attn.{name}_proj", rows, width, biased or kind in ("qwen2", "qwen2_moe"))
            linear(f"{part}.self_attn.{'dense' if kind == 'phi' else 'o_proj'}", width, inner, biased)
            if kind in ("qwen3", "qwen3_moe", "gemma3_text", *NORMS_ALL):
                norm(f"{part}.self_attn.q_norm", inner if kind in NORMS_ALL else head)
                norm(f"{part}.self_attn.k_norm", shared * head if kind in NORMS_ALL else head)
            if kind == "cohere" and said.get("use_qk_norm"):
                shapes |= {
                    f"{part}.self_attn.q_norm.weight": (heads, head),
                    f"{part}.self_attn.k_norm.weight": (shared, head),
                }
            if has_experts(said, layer):
                router, names = EXPERT_NAMES.get(kind, ("mlp.gate", ("gate_proj", "up_proj", "down_proj")))
                each, one = said.get("moe_intermediate_size", hidden), f"{part}.{router.replace('gate', 'experts')}"
                linear(f"{part}.{router}", num_experts(said), width)
                parts = [(f"{one}.{number}.", names, each) for number in range(num_experts(said))]
                if extra := said.get("shared_expert_intermediate_size"):
                    parts.append((f"{part}.mlp.shared_expert.", names, extra))
                    linear(f"{part}.mlp.shared_expert_gate", 1, width)
                for before, (gate, up, down), rows in parts:
                    linear(f"{before}{gate}", rows, width)
                    linear(f"{before}{up}", rows, width)
                    linear(f"{before}{down}", width, rows)
            elif kind == "phi3":
                linear(f"{part}.mlp.gate_up_proj", 2 * hidden, width)
                linear(f"{part}.mlp.down_proj", width, hidden)
            elif kind in ("starcoder2", "phi"):
                up, down = ("c_fc", "c_proj") if kind == "starcoder2" else ("fc1", "fc2")
                linear(f"{part}.mlp.{up}", hidden, width, True)
                linear(f"{part}.mlp.{down}", width, hidden, True)
            else:
                for name in ("gate", "up"):
                    linear(f"{part}.mlp.{name}_proj", hidden, width, said.get("mlp_bias", False))
                linear(f"{part}.mlp.down_proj", width, hidden, said.get("mlp_bias", False))
    is_offset = kind.startswith("gemma")
    return {
        name: (torch.randn(shape, generator=generator) * 0.2
               + ("norm" in name or ".ln_" in name) * name.endswith("weight") * (not is_offset)).bfloat16()
        for name, shape in shapes.items()
    }  # fmt: skip


NORMS_ALL = ("olmo2", "olmoe")  # norms of queries and keys are of all heads as one vector
EXPERT_NAMES = {"mixtral": ("block_sparse_moe.gate", ("w1", "w3", "w2"))}  # the router; gate, up, down of an expert


def norms_of_falcon(said: Said) -> tuple[str, ...]:
    """Returns the names of a block's norms; where both parts read one, there is one."""
    if said["new_decoder_architecture"]:
        return ("input_layernorm",) if said.get("num_ln_in_parallel_attn") == 1 else ("ln_attn", "ln_mlp")
    return ("input_layernorm",) if said["parallel_attn"] else ("input_layernorm", "post_attention_layernorm")


def keys_of_falcon(said: Said) -> int:
    """Returns how many heads of keys there are."""
    is_one = said.get("multi_query", True) and not said["new_decoder_architecture"]
    return 1 if is_one else int(said.get("num_kv_heads", said["num_attention_heads"]))


def slope_of(head: int, heads: int, length: int) -> torch.Tensor:
    """Returns what a head adds to scores of each position, (T,); beyond a power of two, heads have slopes between."""
    most = 1 << (heads.bit_length() - 1)
    exponent = 8 * (head + 1) / most if head < most else 4 * (2 * (head - most) + 1) / most
    product = torch.tensor(2.0**-exponent).bfloat16().float() * torch.arange(length).bfloat16().float()
    return product.bfloat16().double()


def num_experts(said: Said) -> int:
    """Returns how many experts a layer has."""
    return int(said.get("num_experts", said.get("num_local_experts", 0)))


def has_experts(said: Said, layer: int) -> bool:
    """Returns whether a layer has experts."""
    every = said.get("decoder_sparse_step", 1)
    return num_experts(said) > 0 and layer not in said.get("mlp_only_layers", []) and layer % every == every - 1


def sizes(said: Said) -> tuple[int, int, int]:
    """Returns width, layers and heads."""
    names = (
        ("n_embd", "n_layer", "n_head") if "n_embd" in said else ("hidden_size", "num_hidden_layers", "num_attention_heads")
    )
    return tuple(said[name] for name in names)  # type: ignore[return-value]


# ---- equations ----
def speeds_of(said: Said, layer_type: str, features: int, context: int) -> tuple[torch.Tensor, float]:
    """Returns the radians a position by which each pair turns, (R/2,), and the factor of what is turned."""
    rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
    base = said.get("rope_theta") or said.get("rotary_emb_base") or 10000.0
    if "full_attention" in rope:
        rope = rope[layer_type]
    elif layer_type == "sliding_attention" and "rope_local_base_freq" in said:
        rope, base = {}, said["rope_local_base_freq"]
    base = rope.get("rope_theta") or base
    turned = int(features * said.get("partial_rotary_factor", said.get("rotary_pct", 1.0)))
    exponents = torch.arange(0, turned, 2, dtype=torch.float64) / turned
    speeds = 1.0 / base**exponents
    kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor")
    before = rope.get("original_max_position_embeddings")
    if kind == "linear":
        return speeds / factor, 1.0
    if kind == "llama3":
        wavelengths = 2 * math.pi / speeds
        low, high = before / rope["low_freq_factor"], before / rope["high_freq_factor"]
        smooth = (before / wavelengths - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        between = (1 - smooth) * speeds / factor + smooth * speeds
        return torch.where(wavelengths > low, speeds / factor, torch.where(wavelengths < high, speeds, between)), 1.0
    if kind == "yarn":

        def place(turns: float) -> float:
            return turned * math.log(before / (turns * 2 * math.pi)) / (2 * math.log(base))

        ends = [place(rope.get("beta_fast", 32)), place(rope.get("beta_slow", 1))]
        if rope.get("truncate", True):
            ends = [math.floor(ends[0]), math.ceil(ends[1])]
        low, high = max(ends[0], 0), min(ends[1], turned - 1)
        ramp = ((torch.arange(turned // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)).clamp(0, 1)
        scale = 0.1 * math.log(factor) + 1
        if "mscale" in rope:
            scale = (0.1 * rope["mscale"] * math.log(factor) + 1) / (0.1 * rope["mscale_all_dim"] * math.log(factor) + 1)
        return speeds / factor * ramp + speeds * (1 - ramp), scale
    if kind == "longrope":
        before = said["original_max_position_embeddings"]
        factors = torch.tensor(rope["long_factor" if context > before else "short_factor"], dtype=torch.float64)
        stretch = said["max_position_embeddings"] / before
        return speeds / factors, math.sqrt(1 + math.log(stretch) / math.log(before))
    return speeds, 1.0


def layer_kinds(said: Said) -> list[tuple[int, bool, str]]:
    """Returns of each layer how many positions it sees (0: all), whether it turns, and its type."""
    kind, layers, window = said["model_type"], sizes(said)[1], said.get("sliding_window") or 0
    found = []
    for layer in range(layers):
        slides = {
            "mistral": True, "phi3": True, "starcoder2": True, "gemma2": layer % 2 == 0,
            "cohere2": (layer + 1) % 4 > 0, "gemma3_text": bool((layer + 1) % said.get("sliding_window_pattern", 6)),
            "qwen2": said.get("use_sliding_window", False) and layer >= said.get("max_window_layers", 0),
        }.get(kind, False)  # fmt: skip
        if "layer_types" in said:
            slides = said["layer_types"][layer] == "sliding_attention"
        turns = bool(said.get("no_rope_layers", [1] * layers)[layer]) and kind != "gpt_bigcode" and not said.get("alibi")
        turns = turns and (slides or kind != "cohere2")
        found.append((window if slides else 0, turns, "sliding_attention" if slides and window else "full_attention"))
    return found


def logits_of(said: Said, weights: Weights, tokens: np.ndarray, context: int = 64) -> np.ndarray:
    """Returns the logits after each token, (T, V).

    Args:
      context:  most positions that are read, by which Phi chooses its angles
    """
    kind = said["model_type"]
    if kind in FACTS:
        return recent_logits(said, weights, tokens)
    w = {name: value.double() for name, value in weights.items()}
    if kind in IN_MIXTURES:
        by = lambda layer_type, features: speeds_of(said, layer_type, features, context)  # noqa: E731
        return mixture_logits(said, w, torch.from_numpy(tokens), by).numpy()
    width, _, heads = sizes(said)
    head = said.get("head_dim") or width // heads
    shared = 1 if said.get("multi_query") else said.get("num_key_value_heads", heads)
    shared = keys_of_falcon(said) if kind == "falcon" else shared
    eps = next(said[key] for key in ("rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon") if key in said)
    act = {"silu": TF.silu, "gelu": TF.gelu}.get(
        said.get("hidden_activation")
        or said.get("hidden_act")
        or said.get("activation_function")
        or ("gelu" if kind == "falcon" else ""),
        lambda x: TF.gelu(x, approximate="tanh"),
    )
    act = (lambda x: TF.gelu(x, approximate="tanh")) if kind == "gemma" else act
    names = {
        "gpt_neox": ("gpt_neox.embed_in", "gpt_neox.layers", "gpt_neox.final_layer_norm", "embed_out"),
        "gpt_bigcode": ("transformer.wte", "transformer.h", "transformer.ln_f", "transformer.wte"),
        "falcon": ("transformer.word_embeddings", "transformer.h", "transformer.ln_f",
                   "transformer.word_embeddings" if said.get("tie_word_embeddings", True) else "lm_head"),
    }.get(kind, ("model.embed_tokens", "model.layers", "model.final_layernorm" if kind == "phi" else "model.norm",
                 "lm_head" if not said.get("tie_word_embeddings", kind.startswith("cohere")) else "model.embed_tokens",
    ))  # fmt: skip

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return TF.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        weight = w[f"{name}.weight"]
        if f"{name}.bias" in w:
            return TF.layer_norm(x, weight.shape, weight, w[f"{name}.bias"], eps)
        if kind.startswith("cohere"):
            x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * (weight + kind.startswith("gemma"))

    def attention(x: torch.Tensor, part: str, window: int, turns: bool, layer_type: str) -> torch.Tensor:
        length = len(x)
        if kind == "gpt_neox":
            q, k, v = linear(x, f"{part}.attention.query_key_value").view(length, heads, 3, head).unbind(2)
        elif kind == "falcon":  # queries of a group, then the key and the value that they share
            groups = linear(x, f"{part}.self_attention.query_key_value").view(length, shared, -1, head)
            q, k, v = groups[:, :, :-2].reshape(length, heads, head), groups[:, :, -2], groups[:, :, -1]
        elif kind == "gpt_bigcode":
            both = linear(x, f"{part}.attn.c_attn")
            if shared == 1:
                q, k, v = (
                    both[:, :width].view(length, heads, head),
                    both[:, None, width : width + head],
                    both[:, None, width + head :],
                )
            else:
                q, k, v = both.view(length, heads, 3, head).unbind(2)
        else:
            if kind == "phi3":
                joined = linear(x, f"{part}.self_attn.qkv_proj").split([heads * head, shared * head, shared * head], 1)
            else:
                joined = tuple(linear(x, f"{part}.self_attn.{name}_proj") for name in "qkv")
            if kind in NORMS_ALL:
                joined = (*(norm(joined[i], f"{part}.self_attn.{n}_norm") for i, n in enumerate("qk")), joined[2])
            q, k, v = (each.view(length, -1, head) for each in joined)
            if kind in ("qwen3", "qwen3_moe", "gemma3_text") or said.get("use_qk_norm"):
                q, k = norm(q, f"{part}.self_attn.q_norm"), norm(k, f"{part}.self_attn.k_norm")
        if turns:
            speeds, amplitude = speeds_of(said, layer_type, head, context)
            angles = torch.arange(length, dtype=torch.float64)[:, None, None] * speeds
            cos, sin = angles.cos() * amplitude, angles.sin() * amplitude

            def turned(x: torch.Tensor) -> torch.Tensor:
                half = len(speeds)
                if kind.startswith("cohere"):  # neighbours
                    a, b = x[..., ::2], x[..., 1::2]
                    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
                a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
                return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

            q, k = turned(q), turned(k)
        scale = said.get("query_pre_attn_scalar", head) ** -0.5 if kind != "granite" else said["attention_multiplier"]
        places, out = torch.arange(length), []
        sees = places[None] <= places[:, None]
        if window:
            sees = sees & (places[None] > places[:, None] - window)
        for number in range(heads):
            of = number * shared // heads
            score = q[:, number] @ k[:, of].T * scale
            if cap := said.get("attn_logit_softcapping"):
                score = torch.tanh(score / cap) * cap
            if said.get("alibi"):
                score = score + slope_of(number, heads, length) / math.sqrt(head)
            out.append(score.masked_fill(~sees, -math.inf).softmax(-1) @ v[:, of])
        last = {
            "gpt_neox": "attention.dense", "gpt_bigcode": "attn.c_proj", "falcon": "self_attention.dense",
            "phi": "self_attn.dense",
        }.get(kind, "self_attn.o_proj")  # fmt: skip
        return linear(torch.cat(out, 1), f"{part}.{last}")

    def gated(x: torch.Tensor, before: str, names: tuple[str, ...]) -> torch.Tensor:
        gate, up, down = (f"{before}{name}" for name in names)
        return linear(act(linear(x, gate)) * linear(x, up), down)

    def mixture(x: torch.Tensor, part: str) -> torch.Tensor:
        router, names = EXPERT_NAMES.get(kind, ("mlp.gate", ("gate_proj", "up_proj", "down_proj")))
        rows = []
        for row in x:  # each position by itself, each expert by itself
            shares = linear(row, f"{part}.{router}").softmax(0)
            best = sorted(range(len(shares)), key=lambda number: -shares[number])[: said["num_experts_per_tok"]]
            total = sum(shares[number] for number in best) if said.get("norm_topk_prob", True) else 1.0
            experts = f"{part}.{router.replace('gate', 'experts')}"
            rows.append(sum(shares[number] / total * gated(row, f"{experts}.{number}.", names) for number in best))
        out = torch.stack(rows)
        if "shared_expert_intermediate_size" in said:
            share = torch.sigmoid(linear(x, f"{part}.mlp.shared_expert_gate"))
            out = out + share * gated(x, f"{part}.mlp.shared_expert.", names)
        return out

    def feed_forward(x: torch.Tensor, part: str) -> torch.Tensor:
        if has_experts(said, int(part.rpartition(".")[2])):
            return mixture(x, part)
        if kind == "phi":
            return linear(act(linear(x, f"{part}.mlp.fc1")), f"{part}.mlp.fc2")
        if kind in ("gpt_neox", "falcon"):
            return linear(act(linear(x, f"{part}.mlp.dense_h_to_4h")), f"{part}.mlp.dense_4h_to_h")
        if kind in ("gpt_bigcode", "starcoder2"):
            return linear(act(linear(x, f"{part}.mlp.c_fc")), f"{part}.mlp.c_proj")
        if kind == "phi3":
            gate, up = linear(x, f"{part}.mlp.gate_up_proj").chunk(2, 1)
        else:
            gate, up = linear(x, f"{part}.mlp.gate_proj"), linear(x, f"{part}.mlp.up_proj")
        return linear(act(gate) * up, f"{part}.mlp.down_proj")

    x = w[f"{names[0]}.weight"][torch.from_numpy(tokens)] * said.get("embedding_multiplier", 1.0)
    if kind == "gpt_bigcode":
        x = x + w["transformer.wpe.weight"][: len(tokens)]
    if kind.startswith("gemma"):
        x = x * math.sqrt(width)
    residual = said.get("residual_multiplier", 1.0)
    for layer, how in enumerate(layer_kinds(said)):
        part = f"{names[1]}.{layer}"
        if kind == "olmo2":
            x = x + norm(attention(x, part, *how), f"{part}.post_attention_layernorm")
            x = x + norm(feed_forward(x, part), f"{part}.post_feedforward_layernorm")
        elif kind in ("gemma2", "gemma3_text"):
            x = x + norm(attention(norm(x, f"{part}.input_layernorm"), part, *how), f"{part}.post_attention_layernorm")
            inner = feed_forward(norm(x, f"{part}.pre_feedforward_layernorm"), part)
            x = x + norm(inner, f"{part}.post_feedforward_layernorm")
        elif (
            kind in ("phi", "cohere", "cohere2")
            or kind == "falcon"
            and norms_of_falcon(said)[-1] != "post_attention_layernorm"
        ):
            names_of_norms = norms_of_falcon(said) if kind == "falcon" else ("input_layernorm",)
            of_attention, of_mlp = (norm(x, f"{part}.{names_of_norms[place]}") for place in (0, -1))
            x = x + attention(of_attention, part, *how) + feed_forward(of_mlp, part)
        else:
            before = ("ln_1", "ln_2") if kind == "gpt_bigcode" else ("input_layernorm", "post_attention_layernorm")
            read = x + residual * attention(norm(x, f"{part}.{before[0]}"), part, *how)
            seen = x if said.get("use_parallel_residual") else read
            x = read + residual * feed_forward(norm(seen, f"{part}.{before[1]}"), part)
    logits = linear(norm(x, names[2]), names[3]) * said.get("logit_scale", 1.0) / said.get("logits_scaling", 1.0)
    if cap := said.get("final_logit_softcapping"):
        logits = torch.tanh(logits / cap) * cap
    return logits.numpy()
