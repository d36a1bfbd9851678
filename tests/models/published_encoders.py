"""Encoders with angles as they are published: names and shapes of weights, and the equations of one text in float64.

Letters: T positions, C width, H heads.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as TF

Weights = dict[str, torch.Tensor]
Said = dict[str, Any]
TURNING: dict[str, Said] = {
    "nomic": {
        "model_type": "nomic_bert", "vocab_size": 259, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 48,
        "n_positions": 64, "activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "type_vocab_size": 2,
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
        "causal": False, "prenorm": False, "use_rms_norm": False, "parallel_block": False, "fused_bias_fc": True,
        "use_flash_attn": True, "max_trained_positions": 64, "pad_vocab_size_multiple": 64,
        "auto_map": {"AutoConfig": "x.y"}, "resid_pdrop": 0.0,
        "summary_type": "cls_index", "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    "ModernBERT": {
        "model_type": "modernbert", "vocab_size": 259, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64, "norm_eps": 1e-5, "layer_norm_eps": 1e-5,
        "local_attention": 8, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 300.0,
        "hidden_activation": "gelu", "attention_bias": False, "mlp_bias": False, "norm_bias": False, "decoder_bias": True,
        "classifier_pooling": "mean", "position_embedding_type": "absolute", "sparse_prediction": False},
    "ModernBERT of today": {
        "model_type": "modernbert", "vocab_size": 259, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64, "norm_eps": 1e-5, "local_attention": 8,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"], "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 900.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}},
    "EmbeddingGemma": {
        "model_type": "gemma3_text", "vocab_size": 259, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 24, "sliding_window": 9, "rope_theta": 900.0,
        "rope_local_base_freq": 50.0, "hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": True,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "tie_word_embeddings": True,
        "attn_logit_softcapping": None, "_sliding_window_pattern": 2},
}  # fmt: skip


def get(said: Said, *keys: str) -> Any:
    """Returns the entry that is there of several names."""
    return next(said[key] for key in keys if key in said)


def turning_weights(said: Said) -> Weights:
    """Returns weights by their published names."""
    kind, generator = said["model_type"], torch.Generator().manual_seed(0)
    width, hidden, rows = 32, 48, said["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {}
    norms: list[str] = []
    for layer in range(get(said, "num_hidden_layers", "n_layer")):
        if kind == "nomic_bert":
            part = f"encoder.layers.{layer}"
            shapes |= {f"{part}.attn.Wqkv": (3 * width, width), f"{part}.attn.out_proj": (width, width)}
            shapes |= {f"{part}.mlp.{name}": (hidden, width) for name in ("fc11", "fc12")} | {
                f"{part}.mlp.fc2": (width, hidden)
            }
            norms += [f"{part}.norm1", f"{part}.norm2"]
        elif kind == "modernbert":
            part = f"layers.{layer}"
            shapes |= {f"{part}.attn.Wqkv": (3 * width, width), f"{part}.attn.Wo": (width, width)}
            shapes |= {f"{part}.mlp.Wi": (2 * hidden, width), f"{part}.mlp.Wo": (width, hidden)}
            norms += [f"{part}.mlp_norm", *([f"{part}.attn_norm"] if layer else [])]
        else:
            part = f"layers.{layer}"
            shapes |= {f"{part}.self_attn.{n}_proj": (r, width) for n, r in (("q", 64), ("k", 16), ("v", 16))}
            shapes |= {f"{part}.self_attn.o_proj": (width, 64), f"{part}.self_attn.q_norm": (16,)}
            shapes |= {f"{part}.self_attn.k_norm": (16,), f"{part}.mlp.down_proj": (width, hidden)}
            shapes |= {f"{part}.mlp.{name}_proj": (hidden, width) for name in ("gate", "up")}
            names = ("input", "post_attention", "pre_feedforward", "post_feedforward")
            norms += [f"{part}.{name}_layernorm" for name in names]
    around = {
        "nomic_bert": ("embeddings.word_embeddings", ["emb_ln"]), "gemma3_text": ("embed_tokens", ["norm"]),
        "modernbert": ("embeddings.tok_embeddings", ["embeddings.norm", "final_norm"]),
    }  # fmt: skip
    shapes[around[kind][0]] = (rows, width)
    shapes |= dict.fromkeys([*norms, *around[kind][1]], (width,))
    shapes = {f"{name}.weight": shape for name, shape in shapes.items()}
    if kind == "nomic_bert":
        shapes["embeddings.token_type_embeddings.weight"] = (2, width)
        shapes |= {f"{name}.bias": (width,) for name in [*norms, "emb_ln"]}
    offset = 0.0 if kind == "gemma3_text" else 1.0
    return {
        name: torch.randn(shape, generator=generator) * 0.2 + offset * (len(shape) == 1 and name.endswith("weight"))
        for name, shape in shapes.items()
    }


def turning_hidden(said: Said, weights: Weights, tokens: list[int]) -> torch.Tensor:
    """Returns the last layer's output for one text, (T, C)."""
    w, kind = {name: value.double() for name, value in weights.items()}, said["model_type"]
    eps = get(said, "norm_eps", "rms_norm_eps", "layer_norm_epsilon")
    heads = get(said, "num_attention_heads", "n_head")

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        weight = w[f"{name}.weight"]
        if kind == "gemma3_text":
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * (1 + weight)
        return TF.layer_norm(x, weight.shape, weight, w.get(f"{name}.bias"), eps)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T

    def attention(qkv: tuple[torch.Tensor, ...], base: float, window: int, scale: float) -> torch.Tensor:
        """q, k, v (T, H D each) -> (T, H D)."""
        q, k, v = (each.view(len(each), -1, 64 // heads if kind == "gemma3_text" else 32 // heads) for each in qkv)
        if kind == "gemma3_text":
            q, k = norm(q, f"{part}.self_attn.q_norm"), norm(k, f"{part}.self_attn.k_norm")
        half = q.shape[2] // 2
        turns = torch.arange(len(q)).double()[:, None, None] * base ** (-torch.arange(half).double() / half)

        def turned(x: torch.Tensor) -> torch.Tensor:
            pairs = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(turns), turns)
            return torch.cat([pairs.real, pairs.imag], -1)

        q, k = turned(q), turned(k)
        far = (torch.arange(len(q))[:, None] - torch.arange(len(q))).abs()
        out = []
        for head in range(heads):
            of = head * k.shape[1] // heads
            scores = q[:, head] @ k[:, of].T * scale
            scores = scores.masked_fill(far > window, -math.inf) if window else scores
            out.append(scores.softmax(-1) @ v[:, of])
        return torch.cat(out, 1)

    if kind == "nomic_bert":
        x = norm(w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.token_type_embeddings.weight"][0], "emb_ln")
        for layer in range(said["n_layer"]):
            part = f"encoder.layers.{layer}"
            qkv = linear(x, f"{part}.attn.Wqkv").chunk(3, 1)
            x = norm(
                x + linear(attention(qkv, said["rotary_emb_base"], 0, 8**-0.5), f"{part}.attn.out_proj"), f"{part}.norm1"
            )
            opened = linear(x, f"{part}.mlp.fc11") * TF.silu(linear(x, f"{part}.mlp.fc12"))
            x = norm(x + linear(opened, f"{part}.mlp.fc2"), f"{part}.norm2")
        return x
    rope = said.get("rope_parameters", {})
    if kind == "modernbert":
        x = norm(w["embeddings.tok_embeddings.weight"][tokens], "embeddings.norm")
        for layer in range(said["num_hidden_layers"]):
            part = f"layers.{layer}"
            slides = said["layer_types"][layer] == "sliding_attention" if "layer_types" in said else layer % 3 > 0
            name = "sliding_attention" if slides else "full_attention"
            base = rope[name]["rope_theta"] if rope else said["local_rope_theta" if slides else "global_rope_theta"]
            seen = norm(x, f"{part}.attn_norm") if layer else x
            qkv = linear(seen, f"{part}.attn.Wqkv").chunk(3, 1)
            x = x + linear(attention(qkv, base, said["local_attention"] // 2 if slides else 0, 8**-0.5), f"{part}.attn.Wo")
            shown, gate = linear(norm(x, f"{part}.mlp_norm"), f"{part}.mlp.Wi").chunk(2, 1)
            x = x + linear(TF.gelu(shown) * gate, f"{part}.mlp.Wo")
        return norm(x, "final_norm")
    x = w["embed_tokens.weight"][tokens] * math.sqrt(32)
    for layer, name in enumerate(said["layer_types"]):
        part, slides = f"layers.{layer}", name == "sliding_attention"
        seen = norm(x, f"{part}.input_layernorm")
        qkv = tuple(linear(seen, f"{part}.self_attn.{each}_proj") for each in "qkv")
        base = said["rope_local_base_freq" if slides else "rope_theta"]
        y = attention(qkv, base, said["sliding_window"] // 2 if slides else 0, said["query_pre_attn_scalar"] ** -0.5)
        x = x + norm(linear(y, f"{part}.self_attn.o_proj"), f"{part}.post_attention_layernorm")
        seen = norm(x, f"{part}.pre_feedforward_layernorm")
        opened = TF.gelu(linear(seen, f"{part}.mlp.gate_proj"), approximate="tanh") * linear(seen, f"{part}.mlp.up_proj")
        x = x + norm(linear(opened, f"{part}.mlp.down_proj"), f"{part}.post_feedforward_layernorm")
    return norm(x, "norm")
