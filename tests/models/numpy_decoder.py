"""The formulas of networks of GGUF files in NumPy and float64, position by position and head by head."""

from __future__ import annotations

import math

import numpy as np

from picograd_programs.models.decoder import DecoderConfig, Sight

Array = np.ndarray


def numpy_logits(config: DecoderConfig, weights: dict[str, Array], tokens: Array) -> Array:
    """Returns the logits after each token, (T, V), in float64."""
    w = {name.removesuffix(".weight"): array.astype(np.float64) for name, array in weights.items()}

    def norm(x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config.eps) * w[name]

    def rotated(x: Array, sight: Sight) -> Array:
        """Turns pairs as complex numbers: x (T, D)."""
        half = config.features // 2
        speed = sight.rotation.base ** (-np.arange(half) / half) / np.array(sight.rotation.slower or 1.0)
        angle = np.arange(len(x))[:, None] * speed
        first, second = (x[:, :half], x[:, half:]) if config.pairs_are_halves else (x[:, ::2], x[:, 1::2])
        pairs = (first + 1j * second) * np.exp(1j * angle)
        out = np.empty_like(x)
        if config.pairs_are_halves:
            out[:, :half], out[:, half:] = pairs.real, pairs.imag
        else:
            out[:, ::2], out[:, 1::2] = pairs.real, pairs.imag
        return out

    def attention(x: Array, part: str, layer: int) -> Array:
        sight = config.sights[layer]
        heads, zeros = [], np.zeros(config.heads * config.features)
        for head in range(config.heads):
            shared = head * config.shared_heads // config.heads
            rows = slice(head * config.features, (head + 1) * config.features)
            shared_rows = slice(shared * config.features, (shared + 1) * config.features)
            q, k, v = (
                x @ w[f"{part}.attn_{name}"][places].T + w.get(f"{part}.attn_{name}.bias", zeros)[places]
                for name, places in (("q", rows), ("k", shared_rows), ("v", shared_rows))
            )
            if config.norms_heads:
                q, k = norm(q, f"{part}.attn_q_norm"), norm(k, f"{part}.attn_k_norm")
            q, k = rotated(q, sight), rotated(k, sight)
            mixed = np.empty_like(q)
            for t in range(len(x)):
                first = max(0, t + 1 - sight.window) if sight.window else 0
                score = k[first : t + 1] @ q[t] / math.sqrt(config.features)
                share = np.exp(score - score.max())
                mixed[t] = share / share.sum() @ v[first : t + 1]
            heads.append(mixed)
        return np.concatenate(heads, 1) @ w[f"{part}.attn_output"].T

    def feed_forward(x: Array, part: str) -> Array:
        gate = x @ w[f"{part}.ffn_gate"].T
        if config.activation == "gelu_tanh":
            opened = gate / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        else:
            opened = gate / (1 + np.exp(-gate))
        return (opened * (x @ w[f"{part}.ffn_up"].T)) @ w[f"{part}.ffn_down"].T

    x = w["token_embd"][tokens] * config.embedding_scale
    for layer in range(config.layers):
        part = f"blk.{layer}"
        read = attention(norm(x, f"{part}.attn_norm"), part, layer)
        x = x + (norm(read, f"{part}.post_attention_norm") if config.norms_after else read)
        thought = feed_forward(norm(x, f"{part}.ffn_norm"), part)
        x = x + (norm(thought, f"{part}.post_ffw_norm") if config.norms_after else thought)
    return norm(x, "output_norm") @ w.get("output", w["token_embd"]).T
