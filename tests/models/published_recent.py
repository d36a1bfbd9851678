"""Open models that differ from a Llama in few things: a small config.json of each, weights by their names, and equations.

The equations are of float64; they read config.json and the published names themselves, and know nothing of picograd. FACTS
says what a kind has beside what its config.json says.

Letters: T positions, D features of a head, R those that are turned.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as TF

Weights = dict[str, torch.Tensor]
Said = dict[str, Any]
LLAMA: Said = {
    "num_key_value_heads": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}  # fmt: skip
MEANS: Said = {key: value for key, value in LLAMA.items() if key != "rms_norm_eps"}
YARN: Said = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.2}
LOCAL = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
RECENT: dict[str, tuple[str, Said]] = {
    "OLMo 3": ("olmo3", LLAMA | {
        "sliding_window": 5, "layer_types": LOCAL, "rope_theta": 5e5, "rope_scaling": YARN, "attention_bias": False}),
    "OLMo 3 of today": ("olmo3", LLAMA | {
        "sliding_window": 5, "layer_types": LOCAL, "rope_theta": None, "rope_parameters": {
            "full_attention": {"rope_theta": 300.0, **YARN},
            "sliding_attention": {"rope_theta": 300.0, "rope_type": "default"}}}),
    "EXAONE 4": ("exaone4", LLAMA | {
        "sliding_window": 5, "sliding_window_pattern": "LLG", "layer_types": LOCAL, "head_dim": 16}),
    "EXAONE 4 without windows": ("exaone4", LLAMA | {
        "sliding_window": None, "sliding_window_pattern": None, "layer_types": ["full_attention"] * 4,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 50}}),
    "Seed-OSS": ("seed_oss", LLAMA | {
        "head_dim": 16, "attention_bias": True, "attention_out_bias": False, "mlp_bias": False, "residual_dropout": 0.1}),
    "ERNIE 4.5": ("ernie4_5", LLAMA | {
        "head_dim": 16, "use_bias": False, "tie_word_embeddings": True, "compression_ratio": 1.0, "rope_scaling": None}),
    "an ERNIE with biases": ("ernie4_5", LLAMA | {"head_dim": 8, "use_bias": True, "tie_word_embeddings": True}),
    "Helium": ("helium", LLAMA | {
        "num_key_value_heads": 4, "head_dim": 8, "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-8}),
    "Ministral": ("ministral", LLAMA | {"head_dim": 16, "sliding_window": 5, "layer_types": LOCAL}),
    "InternLM 3": ("internlm3", LLAMA | {
        "head_dim": 16, "bias": False, "qkv_bias": False, "rope_scaling": {"rope_type": "dynamic", "factor": 6.0}}),
    "GLM 4 9B": ("glm", LLAMA | {"head_dim": 8, "attention_bias": True, "partial_rotary_factor": 0.5}),
    "GLM 4 32B": ("glm4", LLAMA | {"head_dim": 16, "attention_bias": False, "partial_rotary_factor": 0.5}),
    "StableLM 2": ("stablelm", MEANS | {
        "num_key_value_heads": 4, "layer_norm_eps": 1e-5, "use_qkv_bias": True, "partial_rotary_factor": 0.25,
        "use_parallel_residual": False, "qk_layernorm": False}),
    "a StableLM whose parts read one norm": ("stablelm", MEANS | {
        "layer_norm_eps": 1e-4, "use_qkv_bias": False, "partial_rotary_factor": 0.5, "use_parallel_residual": True}),
    "AFM": ("arcee", LLAMA | {"hidden_act": "relu2", "attention_bias": False, "mlp_bias": False}),
    "Nemotron": ("nemotron", MEANS | {
        "hidden_act": "relu2", "norm_eps": 1e-5, "partial_rotary_factor": 0.5, "attention_bias": False, "mlp_bias": False}),
    "GPT-2": ("gpt2", {
        "vocab_size": 259, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "n_ctx": 128,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1, "summary_type": "cls_index", "task_specific_params": {}}),
}  # fmt: skip
# Whether pairs are neighbours; the part of the features that is turned, without an entry; the gate and its values.
FACTS: dict[str, Said] = {
    "olmo3": {"order": "after", "norms": "all"}, "exaone4": {"order": "after", "norms": "heads"},
    "seed_oss": {}, "ernie4_5": {"pairs": "neighbours"}, "helium": {"pairs": "neighbours"}, "ministral": {},
    "internlm3": {}, "glm": {"pairs": "neighbours", "gate": "packed"},
    "glm4": {"pairs": "neighbours", "gate": "packed", "order": "both"}, "stablelm": {"means": True},
    "arcee": {"gate": "none"}, "nemotron": {"means": True, "gate": "none", "adds": 1.0}, "gpt2": {"means": True},
}  # fmt: skip
TABLES: dict[str, tuple[str, str, str]] = {"gpt2": ("transformer.wte", "transformer.h", "transformer.ln_f")}


def parts_of(said: Said, layer: int) -> dict[str, str]:
    """Returns the published names of the parts of a layer."""
    kind = said["model_type"]
    if kind == "gpt2":
        part = f"transformer.h.{layer}"
        return {"norm": f"{part}.ln_1", "norm2": f"{part}.ln_2", "qkv": f"{part}.attn.c_attn", "o": f"{part}.attn.c_proj",
                "up": f"{part}.mlp.c_fc", "down": f"{part}.mlp.c_proj"}  # fmt: skip
    part, order, gate = f"model.layers.{layer}", FACTS[kind].get("order"), FACTS[kind].get("gate")
    found = {key: f"{part}.self_attn.{key}_proj" for key in "qkvo"} | {"down": f"{part}.mlp.down_proj"}
    found |= {"both": f"{part}.mlp.gate_up_proj"} if gate == "packed" else {"up": f"{part}.mlp.up_proj"}
    if gate is None:
        found["gate"] = f"{part}.mlp.gate_proj"
    if FACTS[kind].get("norms"):
        found |= {f"{key}_norm": f"{part}.self_attn.{key}_norm" for key in "qk"}
    if order != "after":
        found["norm"] = f"{part}.input_layernorm"
    if order != "after" and not said.get("use_parallel_residual"):
        found["norm2"] = f"{part}.post_attention_layernorm"
    if order == "after":
        found |= {"after": f"{part}.post_attention_layernorm", "after2": f"{part}.post_feedforward_layernorm"}
    if order == "both":
        found |= {"after": f"{part}.post_self_attn_layernorm", "after2": f"{part}.post_mlp_layernorm"}
    return found


def recent_shapes(said: Said) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of tensors by their published names."""
    kind = said["model_type"]
    width, heads = said.get("n_embd") or said["hidden_size"], said.get("n_head") or said["num_attention_heads"]
    head, shared = said.get("head_dim") or width // heads, said.get("num_key_value_heads", heads)
    hidden, layers = said.get("intermediate_size") or 4 * width, said.get("n_layer") or said["num_hidden_layers"]
    biased = said.get("use_bias") or said.get("bias") or kind == "gpt2"
    of_queries = biased or said.get("attention_bias") or said.get("use_qkv_bias") or said.get("qkv_bias")
    of_output = biased or said.get("attention_bias") and kind not in ("seed_oss", "glm", "glm4", "helium")
    sides: dict[str, tuple[int, int, Any]] = {
        "q": (heads * head, width, of_queries), "k": (shared * head, width, of_queries),
        "v": (shared * head, width, of_queries), "o": (width, heads * head, of_output),
        "qkv": (3 * width, width, of_queries), "gate": (hidden, width, biased or said.get("mlp_bias")),
        "up": (hidden, width, biased or said.get("mlp_bias")), "both": (2 * hidden, width, False),
        "down": (width, hidden, biased or said.get("mlp_bias")),
    }  # fmt: skip
    table, _, norm = TABLES.get(kind, ("model.embed_tokens", "", "model.norm"))
    shapes: dict[str, tuple[int, ...]] = {f"{table}.weight": (said["vocab_size"], width)}
    norms = {norm: width}
    if kind == "gpt2":
        shapes["transformer.wpe.weight"] = (said["n_positions"], width)
    elif not said["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (said["vocab_size"], width)
    for layer in range(layers):
        for key, name in parts_of(said, layer).items():
            if key in sides:
                rows, columns, has_bias = sides[key]
                shapes[f"{name}.weight"] = (columns, rows) if kind == "gpt2" else (rows, columns)
                shapes |= {f"{name}.bias": (rows,)} if has_bias else {}
            elif key in ("q_norm", "k_norm"):
                norms[name] = head if FACTS[kind]["norms"] == "heads" else (heads if key == "q_norm" else shared) * head
            else:
                norms[name] = width
    for name, length in norms.items():
        shapes[f"{name}.weight"] = (length,)
        shapes |= {f"{name}.bias": (length,)} if FACTS[kind].get("means") else {}
    return shapes


def turns_of(said: Said, layer_type: str, head: int) -> tuple[torch.Tensor, float] | None:
    """Returns the speeds of pairs (R/2,) and the amplitude; None: nothing is turned."""
    kind = said["model_type"]
    if kind == "gpt2" or kind == "exaone4" and said["sliding_window"] and layer_type == "full_attention":
        return None
    found = said.get("rope_parameters", {}).get(layer_type) or said.get("rope_scaling") or {}
    base = found.get("rope_theta") or said["rope_theta"]
    num = int(head * said.get("partial_rotary_factor", 1.0))
    speeds = torch.tensor([base ** (-2 * pair / num) for pair in range(num // 2)], dtype=torch.float64)
    name = found.get("rope_type", "default")
    if name in ("default", "dynamic") or kind == "olmo3" and layer_type == "sliding_attention":
        return speeds, 1.0
    before, slower = found["original_max_position_embeddings"], speeds / found["factor"]
    if name == "llama3":
        lengths, low, high = 2 * math.pi / speeds, before / found["low_freq_factor"], before / found["high_freq_factor"]
        smooth = (before / lengths - found["low_freq_factor"]) / (found["high_freq_factor"] - found["low_freq_factor"])
        mixed = (1 - smooth) * slower + smooth * speeds
        return torch.where(lengths > low, slower, torch.where(lengths < high, speeds, mixed)), 1.0

    def pair_of(rounds: float) -> float:
        return num * math.log(before / (rounds * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(pair_of(32)), 0), min(math.ceil(pair_of(1)), num - 1)
    share = ((torch.arange(num // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
    return slower * share + speeds * (1 - share), found["attention_factor"]


def recent_logits(said: Said, weights: Weights, tokens: np.ndarray) -> np.ndarray:
    """Returns the logits after each token, (T, V), float64."""
    kind, w = said["model_type"], {name: value.double() for name, value in weights.items()}
    facts, length = FACTS[kind], len(tokens)
    width, heads = said.get("n_embd") or said["hidden_size"], said.get("n_head") or said["num_attention_heads"]
    head = said.get("head_dim") or width // heads
    eps = next(said[key] for key in ("rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon") if key in said)
    act = {
        "silu": TF.silu, "relu2": lambda x: TF.relu(x) ** 2, "gelu_new": lambda x: TF.gelu(x, approximate="tanh"),
    }[said.get("hidden_act") or said["activation_function"]]  # fmt: skip

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        matrix = w[f"{name}.weight"]
        return x @ (matrix if kind == "gpt2" else matrix.T) + w.get(f"{name}.bias", 0.0)

    def norm(x: torch.Tensor, name: str | None) -> torch.Tensor:
        if name is None:
            return x
        x = x - x.mean(-1, keepdim=True) if facts.get("means") else x
        x = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
        return x * (w[f"{name}.weight"] + facts.get("adds", 0.0)) + w.get(f"{name}.bias", 0.0)

    def attention(x: torch.Tensor, parts: dict[str, str], layer: int) -> torch.Tensor:
        types = said.get("layer_types") or ["full_attention"] * 99
        q, k, v = linear(x, parts["qkv"]).chunk(3, 1) if "qkv" in parts else (linear(x, parts[key]) for key in "qkv")
        if facts.get("norms") == "all":
            q, k = norm(q, parts["q_norm"]), norm(k, parts["k_norm"])
        q, k, v = (each.view(length, -1, head) for each in (q, k, v))
        if facts.get("norms") == "heads":
            q, k = norm(q, parts["q_norm"]), norm(k, parts["k_norm"])
        if (turns := turns_of(said, types[layer], head)) is not None:
            angle = torch.arange(length, dtype=torch.float64)[:, None, None] * turns[0]
            cos, sin, half = angle.cos() * turns[1], angle.sin() * turns[1], len(turns[0])

            def turned(x: torch.Tensor) -> torch.Tensor:
                near, rest = x[..., : 2 * half], x[..., 2 * half :]
                if facts.get("pairs") == "neighbours":
                    a, b = near[..., ::2], near[..., 1::2]
                    return torch.cat([torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), rest], -1)
                a, b = near.chunk(2, -1)
                return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

            q, k = turned(q), turned(k)
        k, v = (each.repeat_interleave(heads // each.shape[1], 1) for each in (k, v))
        far = torch.arange(length)[:, None] - torch.arange(length)
        window = said["sliding_window"] if types[layer] == "sliding_attention" else length
        score = torch.einsum("thd,shd->hts", q, k) / math.sqrt(head)
        shares = score.masked_fill((far < 0) | (far >= window), -math.inf).softmax(-1)
        return linear(torch.einsum("hts,shd->thd", shares, v).reshape(length, -1), parts["o"])

    def feed_forward(x: torch.Tensor, parts: dict[str, str]) -> torch.Tensor:
        if "both" in parts:
            gate, up = linear(x, parts["both"]).chunk(2, 1)
            return linear(act(gate) * up, parts["down"])
        up = linear(x, parts["up"])
        return linear(act(linear(x, parts["gate"])) * up if "gate" in parts else act(up), parts["down"])

    table, _, last = TABLES.get(kind, ("model.embed_tokens", "", "model.norm"))
    x = w[f"{table}.weight"][torch.from_numpy(tokens)]
    if kind == "gpt2":
        x = x + w["transformer.wpe.weight"][:length]
    for layer in range(said.get("n_layer") or said["num_hidden_layers"]):
        parts = parts_of(said, layer)
        seen = norm(x, parts.get("norm"))
        read = x + norm(attention(seen, parts, layer), parts.get("after"))
        seen = seen if said.get("use_parallel_residual") else norm(read, parts.get("norm2"))
        x = read + norm(feed_forward(seen, parts), parts.get("after2"))
    output = w.get("lm_head.weight", w[f"{table}.weight"])
    return (norm(x, last) @ output.T).numpy()
