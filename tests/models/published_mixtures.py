"""gpt-oss and DeepSeek as they are published: names and shapes of weights, and the equations in float64.

Letters: T positions, H heads, D features of a head, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as TF

Weights = dict[str, torch.Tensor]
Said = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
Speeds = Callable[[str, int], tuple[torch.Tensor, float]]  # of a kind of layer, for so many features
YARN: Said = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
LATENTS: Said = {
    "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 12, "moe_intermediate_size": 24,
    "n_shared_experts": 2, "n_routed_experts": 8, "num_experts_per_tok": 3, "num_key_value_heads": 4, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 300.0, "first_k_dense_replace": 1, "moe_layer_freq": 1, "ep_size": 1,
    "aux_loss_alpha": 0.001, "seq_aux": True, "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip
MIXTURES: dict[str, tuple[str, Said]] = {  # beside the sizes
    "gpt-oss": ("gpt_oss", {
        "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "experts_per_token": 2,
        "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 2, "rope_theta": 150000,
        "rope_scaling": YARN | {"truncate": False}, "swiglu_limit": 1.5, "attention_bias": True, "hidden_act": "silu",
        "initial_context_length": 32, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "output_router_logits": False,
        "router_aux_loss_coef": 0.9}),
    "DeepSeek V2 Lite": ("deepseek_v2", LATENTS | {
        "q_lora_rank": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "norm_topk_prob": False,
        "routed_scaling_factor": 1.0, "scoring_func": "softmax", "rope_scaling": {
            **{key: value for key, value in YARN.items() if key != "rope_type"}, "type": "yarn", "mscale": 0.707,
            "mscale_all_dim": 0.707}}),
    "DeepSeek V2": ("deepseek_v2", LATENTS | {
        "q_lora_rank": 20, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "norm_topk_prob": False,
        "routed_scaling_factor": 4.0, "scoring_func": "softmax"}),
    "DeepSeek V3": ("deepseek_v3", LATENTS | {
        "q_lora_rank": 20, "topk_method": "noaux_tc", "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "num_nextn_predict_layers": 1, "rope_scaling": {
            **YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "a DeepSeek V3 of halves": ("deepseek_v3", LATENTS | {
        "q_lora_rank": None, "n_group": 1, "topk_group": 1, "norm_topk_prob": False, "rope_interleave": False,
        "first_k_dense_replace": 0}),
}  # fmt: skip


# ---- weights ----
def mixture_shapes(said: Said) -> Shapes:
    """Returns the shapes of all tensors, by their published names."""
    width, vocabulary = said["hidden_size"], said["vocab_size"]
    found: Shapes = {f"{name}.weight": (vocabulary, width) for name in ("model.embed_tokens", "lm_head")}
    found["model.norm.weight"] = (width,)
    for layer in range(said["num_hidden_layers"] + said.get("num_nextn_predict_layers", 0)):
        own = {"input_layernorm.weight": (width,), "post_attention_layernorm.weight": (width,)}
        own |= of_gpt_oss(said) if said["model_type"] == "gpt_oss" else of_deepseek(said, layer)
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    return found


def of_gpt_oss(said: Said) -> Shapes:
    width, hidden, num = said["hidden_size"], said["intermediate_size"], said["num_local_experts"]
    inner, shared = (said[f"num_{kind}_heads"] * said["head_dim"] for kind in ("attention", "key_value"))
    rows = {"q": inner, "k": shared, "v": shared}
    return {
        "self_attn.sinks": (said["num_attention_heads"],),
        **{f"self_attn.{name}_proj.weight": (each, width) for name, each in rows.items()},
        **{f"self_attn.{name}_proj.bias": (each,) for name, each in rows.items()},
        "self_attn.o_proj.weight": (width, inner), "self_attn.o_proj.bias": (width,), "mlp.router.weight": (num, width),
        "mlp.router.bias": (num,), "mlp.experts.gate_up_proj": (num, width, 2 * hidden),
        "mlp.experts.gate_up_proj_bias": (num, 2 * hidden), "mlp.experts.down_proj": (num, hidden, width),
        "mlp.experts.down_proj_bias": (num, width),
    }  # fmt: skip


def of_deepseek(said: Said, layer: int) -> Shapes:
    width, heads, rank, own = said["hidden_size"], said["num_attention_heads"], said["kv_lora_rank"], said["q_lora_rank"]
    plain, turned, values = (said[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    found: Shapes = {
        "self_attn.kv_a_proj_with_mqa.weight": (rank + turned, width), "self_attn.kv_a_layernorm.weight": (rank,),
        "self_attn.kv_b_proj.weight": (heads * (plain + values), rank), "self_attn.o_proj.weight": (width, heads * values),
        f"self_attn.q_{'b_' if own else ''}proj.weight": (heads * (plain + turned), own or width),
    }  # fmt: skip
    if own:
        found |= {"self_attn.q_a_proj.weight": (own, width), "self_attn.q_a_layernorm.weight": (own,)}
    each, num = said["moe_intermediate_size"], said["n_routed_experts"]
    parts = {"mlp.": said["intermediate_size"]}
    if layer >= said["first_k_dense_replace"]:
        parts = {f"mlp.experts.{number}.": each for number in range(num)}
        parts["mlp.shared_experts."] = each * said["n_shared_experts"]
        found["mlp.gate.weight"] = (num, width)
        if said["model_type"] == "deepseek_v3":
            found["mlp.gate.e_score_correction_bias"] = (num,)
    for before, rows in parts.items():
        found |= {f"{before}{name}_proj.weight": (rows, width) for name in ("gate", "up")}
        found[f"{before}down_proj.weight"] = (width, rows)
    return found


# ---- equations ----
def mixture_logits(said: Said, w: Weights, tokens: torch.Tensor, speeds: Speeds) -> torch.Tensor:
    """Returns the logits after each token, (T, V), from weights in float64."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + said["rms_norm_eps"]) * w[f"{name}.weight"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return TF.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def turned(x: torch.Tensor, layer_type: str, are_halves: bool) -> torch.Tensor:
        by, amplitude = speeds(layer_type, x.shape[-1])
        angles = torch.arange(len(x), dtype=torch.float64)[:, None, None] * by
        half = x.shape[-1] // 2
        a, b = (x[..., :half], x[..., half:]) if are_halves else (x[..., ::2], x[..., 1::2])
        pairs = torch.complex(a, b) * torch.polar(torch.full_like(angles, amplitude), angles)
        both = [pairs.real, pairs.imag]
        return torch.cat(both, -1) if are_halves else torch.stack(both, -1).flatten(-2)

    def of_gpt_oss(x: torch.Tensor, part: str, layer: int) -> torch.Tensor:
        kind, heads = said["layer_types"][layer], said["num_attention_heads"]
        q, k, v = (linear(x, f"{part}.{name}_proj").view(len(x), -1, said["head_dim"]) for name in "qkv")
        q, k = turned(q, kind, True), turned(k, kind, True)
        places = torch.arange(len(x))
        sees = places[None] <= places[:, None]
        if kind == "sliding_attention":
            sees = sees & (places[None] > places[:, None] - said["sliding_window"])
        out = []
        for head in range(heads):
            of = head * k.shape[1] // heads
            scores = (q[:, head] @ k[:, of].T / math.sqrt(said["head_dim"])).masked_fill(~sees, -math.inf)
            weights = scores.exp() / (scores.exp().sum(-1, keepdim=True) + w[f"{part}.sinks"][head].exp())
            out.append(weights @ v[:, of])
        return linear(torch.cat(out, 1), f"{part}.o_proj")

    def of_deepseek(x: torch.Tensor, part: str, layer: int) -> torch.Tensor:
        heads, rank, plain = said["num_attention_heads"], said["kv_lora_rank"], said["qk_nope_head_dim"]
        are_halves = not said.get("rope_interleave", True)
        own = norm(linear(x, f"{part}.q_a_proj"), f"{part}.q_a_layernorm") if said["q_lora_rank"] else x
        q = linear(own, f"{part}.q_{'b_' if said['q_lora_rank'] else ''}proj").view(len(x), heads, -1)
        latent, key = linear(x, f"{part}.kv_a_proj_with_mqa").split([rank, said["qk_rope_head_dim"]], 1)
        both = linear(norm(latent, f"{part}.kv_a_layernorm"), f"{part}.kv_b_proj").view(len(x), heads, -1)
        k, v = both.split([plain, said["v_head_dim"]], 2)
        key = turned(key[:, None], "", are_halves).expand(-1, heads, -1)
        q = torch.cat([q[..., :plain], turned(q[..., plain:], "", are_halves)], 2)
        rope, scale = said.get("rope_scaling") or {}, q.shape[2] ** -0.5
        if "mscale_all_dim" in rope:
            scale *= (0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2
        scores = torch.einsum("thd,shd->hts", q, torch.cat([k, key], 2)) * scale
        sees = torch.ones(len(x), len(x)).tril() > 0
        mixed = torch.einsum("hts,shd->thd", scores.masked_fill(~sees, -math.inf).softmax(-1), v)
        return linear(mixed.flatten(1), f"{part}.o_proj")

    def gated(x: torch.Tensor, before: str) -> torch.Tensor:
        return linear(TF.silu(linear(x, f"{before}gate_proj")) * linear(x, f"{before}up_proj"), f"{before}down_proj")

    def clamped(row: torch.Tensor, part: str) -> torch.Tensor:
        logits = linear(row, f"{part}.router")
        best = logits.argsort(descending=True)[: said["num_experts_per_tok"]]
        out = torch.zeros_like(row)
        for share, number in zip(logits[best].softmax(0), best.tolist()):
            both = row @ w[f"{part}.experts.gate_up_proj"][number] + w[f"{part}.experts.gate_up_proj_bias"][number]
            limit = said["swiglu_limit"]
            gate, up = both[::2].clamp(max=limit), both[1::2].clamp(-limit, limit)
            opened = gate * torch.sigmoid(1.702 * gate) * (up + 1)
            out += share * (opened @ w[f"{part}.experts.down_proj"][number] + w[f"{part}.experts.down_proj_bias"][number])
        return out

    def routed(row: torch.Tensor, part: str) -> torch.Tensor:
        is_third, logits = said["model_type"] == "deepseek_v3", linear(row, f"{part}.gate")
        scores = torch.sigmoid(logits) if is_third else logits.softmax(0)
        rated = scores + w[f"{part}.gate.e_score_correction_bias"] if is_third else scores.clone()
        if said["n_group"] > 1 and said.get("topk_method") != "greedy":
            groups = rated.view(said["n_group"], -1)
            of_group = groups.topk(2).values.sum(1) if is_third else groups.max(1).values
            for number in of_group.argsort(descending=True)[said["topk_group"] :].tolist():
                groups[number] = -math.inf
        best = rated.argsort(descending=True)[: said["num_experts_per_tok"]].tolist()
        total = sum(scores[number] for number in best) if said["norm_topk_prob"] else 1.0
        factor = said.get("routed_scaling_factor", 2.5) / total
        out = sum(scores[number] * factor * gated(row, f"{part}.experts.{number}.") for number in best)
        return out + gated(row, f"{part}.shared_experts.")

    x, is_oss = w["model.embed_tokens.weight"][tokens], said["model_type"] == "gpt_oss"
    for layer in range(said["num_hidden_layers"]):
        part = f"model.layers.{layer}"
        attention = of_gpt_oss if is_oss else of_deepseek
        x = x + attention(norm(x, f"{part}.input_layernorm"), f"{part}.self_attn", layer)
        seen = norm(x, f"{part}.post_attention_layernorm")
        if not is_oss and layer < said["first_k_dense_replace"]:
            x = x + gated(seen, f"{part}.mlp.")
        else:
            x = x + torch.stack([(clamped if is_oss else routed)(row, f"{part}.mlp") for row in seen])
    return linear(norm(x, "model.norm"), "lm_head")
