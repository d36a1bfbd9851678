"""GGUF files of each architecture against the published network's equations; names of tensors are the gguf package's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from picograd import Tensor
from picograd.errors import DataError
from picograd_formats.gguf_file import GGUF, plain_tensor
from picograd_programs.models.decoder import Decoder
from picograd_programs.models.decoder_gguf import IN_GGUF, config_of, tensors_in
from tests.models.published import CONFIGS, Said, Weights, keys_of_falcon, logits_of, num_experts, random_weights
from tests.models.published import config_of as published

# A file's architecture -> published models, with changes where a converter can't say something
MODELS: dict[str, list[tuple[str, Said]]] = {
    "llama": [("Llama 2", {}), ("angles of a factor", {}), ("Mixtral", {}), ("Mistral", {"model_type": "mistral"})],
    "qwen2": [("Qwen 2.5", {}), ("Qwen 2.5 with YaRN", {}), ("YaRN with all that it says", {})],
    "qwen3": [("Qwen 3", {})],
    "qwen2moe": [("Qwen 1.5 with experts", {"decoder_sparse_step": 1})],
    "qwen3moe": [("Qwen 3 with experts", {"mlp_only_layers": []})],
    "olmoe": [("OLMoE", {})],
    "gemma": [("Gemma", {})],
    "gemma2": [("Gemma 2", {"query_pre_attn_scalar": 16})],
    "gemma3": [("Gemma 3", {"query_pre_attn_scalar": 16, "sliding_window_pattern": 6, "rope_local_base_freq": 1e4})],
    "phi3": [("Phi-3", {}), ("Phi-4 mini", {})],
    "olmo2": [("OLMo 2", {})],
    "starcoder2": [("StarCoder 2", {})],
    "gptneox": [("Pythia", {}), ("a GPT-NeoX in sequence", {"attention_bias": True})],
    "granite": [("Granite", {})],
    "smollm3": [("SmolLM3", {})],
    "gpt-oss": [("gpt-oss", {"swiglu_limit": 7.0})],
    "phi2": [("Phi-2", {}), ("a Phi that shares keys", {})],
    "command-r": [("Command-R", {}), ("Command-R+", {})],
    "cohere2": [("Command R7B", {})],
    "deepseek2": [("DeepSeek V2 Lite", {}), ("DeepSeek V2", {}), ("DeepSeek V3", {})],
    "falcon": [("Falcon 7B", {}), ("Falcon 40B", {}), ("Falcon 2", {"ffn_hidden_size": 128})],
}  # fmt: skip
WITH_MEANS = ("starcoder2", "gptneox", "phi2", "command-r", "cohere2", "falcon")
NEIGHBOURS = ("llama", "granite", "smollm3")  # whose pairs are neighbours in a file, and halves as published
ALL = [(arch, name, change) for arch, models in MODELS.items() for name, change in models]


def metadata_of(arch: str, said: Said) -> dict[str, Any]:
    """Returns the metadata that a converter writes of a config.json."""
    rope = said.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type"))
    heads, width = said["num_attention_heads"], said["hidden_size"]
    features = said.get("head_dim") or width // heads
    share = said.get("partial_rotary_factor", said.get("rotary_pct", 1.0))
    names = ("rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon")
    eps = next(said[key] for key in names if key in said)
    shared = keys_of_falcon(said) if arch == "falcon" else said.get("num_key_value_heads")
    found = {
        "context_length": said["max_position_embeddings"], "embedding_length": width, "vocab_size": said["vocab_size"],
        "block_count": said["num_hidden_layers"], "feed_forward_length": said.get("intermediate_size", 4 * width),
        "attention.head_count": heads, "attention.head_count_kv": shared,
        "attention.key_length": features, "attention.value_length": features, "rope.dimension_count": int(features * share),
        "rope.freq_base": said.get("rope_theta", said.get("rotary_emb_base")),
        "attention.layer_norm_epsilon" if arch in WITH_MEANS else "attention.layer_norm_rms_epsilon": eps,
        "attention.sliding_window": said.get("sliding_window") or None,
        "rope.scaling.type": kind if kind in ("linear", "yarn") else None,
        "rope.scaling.factor": rope.get("factor"), "rope.scaling.yarn_beta_fast": rope.get("beta_fast"),
        "rope.scaling.original_context_length": rope.get("original_max_position_embeddings"),
        "rope.scaling.yarn_beta_slow": rope.get("beta_slow"), "expert_count": num_experts(said) or None,
        "expert_used_count": said.get("num_experts_per_tok"),
        "expert_feed_forward_length": said.get("moe_intermediate_size"),
        "attn_logit_softcapping": said.get("attn_logit_softcapping"),
        "final_logit_softcapping": said.get("final_logit_softcapping"),
        "use_parallel_residual": said.get("use_parallel_residual"), "attention.scale": said.get("attention_multiplier"),
        "embedding_scale": said.get("embedding_multiplier"), "residual_scale": said.get("residual_multiplier"),
        "logit_scale": said.get("logits_scaling", said.get("logit_scale")),
    }  # fmt: skip
    if arch == "deepseek2":
        plain, turned, latent = said["qk_nope_head_dim"], said["qk_rope_head_dim"], said["kv_lora_rank"]
        is_third = said["model_type"] == "deepseek_v3"
        found |= {
            "attention.head_count_kv": 1, "attention.q_lora_rank": said["q_lora_rank"], "attention.kv_lora_rank": latent,
            "attention.key_length": latent + turned, "attention.value_length": latent, "rope.dimension_count": turned,
            "attention.key_length_mla": plain + turned, "attention.value_length_mla": said["v_head_dim"],
            "leading_dense_block_count": said["first_k_dense_replace"], "expert_count": said["n_routed_experts"],
            "expert_shared_count": said["n_shared_experts"], "expert_weights_scale": said["routed_scaling_factor"],
            "expert_weights_norm": said["norm_topk_prob"], "expert_gating_func": 2 if is_third else 1,
            "expert_group_count": said["n_group"], "expert_group_used_count": said["topk_group"],
            "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"] if rope else None,
        }  # fmt: skip
    if kind == "longrope":
        found["rope.scaling.original_context_length"] = said["original_max_position_embeddings"]
    if "mscale" in rope and arch != "deepseek2":
        shares = (0.1 * rope[key] * np.log(rope["factor"]) + 1 for key in ("mscale", "mscale_all_dim"))
        found["rope.scaling.yarn_attn_factor"] = float(np.divide(*shares))
    return {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in found.items() if value is not None}


def tensors_of(arch: str, said: Said, weights: Weights) -> dict[str, np.ndarray]:
    """Returns the weights as a converter writes them, by the names of the gguf package."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which knows the names, is not installed")
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(number, said["num_hidden_layers"])
    heads, shared = said["num_attention_heads"], said.get("num_key_value_heads", said["num_attention_heads"])
    arrays = {name: value.float().numpy() for name, value in weights.items()}
    parts: dict[str, dict[int, np.ndarray]] = {}
    for name in [name for name in arrays if re.search(r"\.experts\.\d", name)]:
        before, expert, after = re.fullmatch(r"(.+\.experts)\.(\d+)\.(.+)", name).groups()  # type: ignore[union-attr]
        parts.setdefault(f"{before}.{after}", {})[int(expert)] = arrays.pop(name)
    merged = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    for name, each in parts.items():
        own = re.sub(r"block_sparse_moe\.experts\.(w\d)", lambda found: f"mlp.experts.{merged[found[1]]}", name)
        arrays[own] = np.stack([each[place] for place in range(len(each))])
    found: dict[str, np.ndarray] = {}
    if arch == "deepseek2":
        arrays = of_deepseek(said, arrays)
    for name in [name for name in arrays if "experts.gate_up_proj" in name]:  # gates and values alternate
        both, ending = arrays.pop(name), "bias" if name.endswith("bias") else "weight"
        for first, part in enumerate(("gate", "up")):
            arrays[f"{name.rpartition('.')[0]}.{part}_proj.{ending}"] = both[..., first::2]
    for name in [name for name in arrays if name.rpartition(".")[2] in ("down_proj", "down_proj_bias", "sinks")]:
        arrays[f"{name.removesuffix('_bias')}.{'bias' if name.endswith('bias') else 'weight'}"] = arrays.pop(name)
    for name, array in arrays.items():
        if ".experts." in name and arch == "gpt-oss" and name.endswith("weight"):
            array = array.swapaxes(1, 2)
        theirs = names.get_name(name, (".weight", ".bias"))
        assert theirs is not None, name
        if arch in NEIGHBOURS and re.search(r"[qk]_proj", name):
            of = heads if "q_proj" in name else shared
            array = array.reshape(of, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if "query_key_value" in name and arch == "falcon":
            groups = array.reshape(keys_of_falcon(said), -1, said["hidden_size"] // heads, *array.shape[1:])
            parts_of = (groups[:, :-2], groups[:, -2], groups[:, -1])
            array = np.concatenate([each.reshape(-1, *array.shape[1:]) for each in parts_of])
        elif "query_key_value" in name:
            array = array.reshape(heads, 3, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)
        if arch.startswith("gemma") and "norm" in name:
            array = array + 1
        found[theirs] = array[0] if "shexp" in theirs and array.shape[0] == 1 else array
    rope = said.get("rope_scaling") or {}
    found |= {f"rope_factors_{length}.weight": np.array(rope[f"{length}_factor"], np.float32)
              for length in ("short", "long") if f"{length}_factor" in rope}  # fmt: skip
    return found


def of_deepseek(said: Said, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns keys and values of latents apart, without layers that guess further tokens."""
    found: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if f"layers.{said['num_hidden_layers']}." in name:
            continue
        if name.endswith("kv_b_proj.weight"):
            of_head = array.reshape(said["num_attention_heads"], -1, said["kv_lora_rank"])
            k, v = np.split(of_head, [said["qk_nope_head_dim"]], 1)
            found |= {name.replace("kv_b", "k_b"): k.swapaxes(1, 2), name.replace("kv_b", "v_b"): v}
        else:
            found[name.replace("correction_bias", "correction.bias")] = array
    return found


@pytest.mark.req("D9")
@pytest.mark.parametrize(("arch", "name", "change"), ALL, ids=[name for _, name, _ in ALL])
def test_a_file_has_the_logits_of_the_published_model(
    arch: str, name: str, change: Said, rng: np.random.Generator
) -> None:
    said = published(name) | change
    weights, tokens = random_weights(said), rng.integers(0, 257, 20)
    file = GGUF(metadata_of(arch, said), {k: plain_tensor(v) for k, v in tensors_of(arch, said, weights).items()})
    found = Decoder(config_of(file, 64), tensors_in(file))(Tensor(tokens[None]))[0].numpy()
    np.testing.assert_allclose(found, logits_of(said, weights, tokens), rtol=1e-3, atol=1e-4)


def test_an_older_file_of_latents_has_keys_and_values_as_published(rng: np.random.Generator) -> None:
    said = published("DeepSeek V2 Lite")
    weights, tokens = random_weights(said), rng.integers(0, 257, 20)
    metadata, tensors = metadata_of("deepseek2", said), tensors_of("deepseek2", said, weights)
    older = {"attention.key_length": 12, "attention.value_length": 12, "attention.head_count_kv": 4}
    metadata |= {f"deepseek2.{key}": value for key, value in older.items()}
    for key in ("key_length_mla", "value_length_mla"):
        del metadata[f"deepseek2.attention.{key}"]
    newer = {key: value for key, value in tensors.items() if not key.endswith(("attn_k_b.weight", "attn_v_b.weight"))}
    joined = {f"blk.{n}.attn_kv_b.weight": weights[f"model.layers.{n}.self_attn.kv_b_proj.weight"].float().numpy()
              for n in range(4)}  # fmt: skip
    file = GGUF(metadata, {key: plain_tensor(value) for key, value in (newer | joined).items()})
    found = Decoder(config_of(file, 64), tensors_in(file))(Tensor(tokens[None]))[0].numpy()
    np.testing.assert_allclose(found, logits_of(said, weights, tokens), rtol=1e-3, atol=1e-4)
    del tensors["blk.2.attn_v_b.weight"]
    file = GGUF(metadata_of("deepseek2", said), {key: plain_tensor(value) for key, value in tensors.items()})
    with pytest.raises(DataError, match=r"blk.2.attn_k_b.weight of \(4, 16, 8\), and no fitting tensor of values"):
        tensors_in(file)
    for key, value, words in (
        ("expert_group_count", 3, "says expert_group_count is 3; it must divide 8 experts"),
        ("expert_gating_func", 3, "says expert_gating_func is 3; 1, softmax, and 2, sigmoid, are known"),
    ):
        with pytest.raises(DataError, match=words):
            config_of(GGUF(metadata | {f"deepseek2.{key}": value}, {}))


def test_every_architecture_has_a_published_model() -> None:
    assert MODELS.keys() == IN_GGUF.keys() and all(name in CONFIGS for _, name, _ in ALL)


def test_a_text_of_yarn_is_as_long_as_it_was_stretched() -> None:
    said = published("Qwen 2.5 with YaRN") | {"max_position_embeddings": 32}
    file = GGUF(metadata_of("qwen2", said), {"token_embd.weight": plain_tensor(np.zeros((259, 32)))})
    assert config_of(file).context == 128 and config_of(file, 50).context == 50


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.attention.clamp_kqv", 8.0, "the file says attention.clamp_kqv is 8.0; only 0 is supported"),
        ("llama.attention.value_length", 12, "and as many of values"),
        ("llama.expert_used_count", 9, "the file says expert_used_count is 9; it has 6 experts"),
        ("llama.expert_gating_func", 2, "the file says expert_gating_func is 2; only 1"),
        ("llama.interleave_moe_layer_step", 2, "the file says interleave_moe_layer_step is 2, which is not supported"),
        ("llama.rope.scaling.type", "spiral", "the file says rope.scaling is {'rope_type': 'spiral'}; a dict of type"),
    ],
)
def test_an_entry_that_nobody_reads_is_refused(key: str, value: object, words: str) -> None:
    metadata = metadata_of("llama", published("Mixtral")) | {key: value}
    with pytest.raises(DataError) as caught:
        config_of(GGUF(metadata, {"token_embd.weight": plain_tensor(np.zeros((259, 32)))}))
    assert words in caught.value.fact


def test_a_window_that_is_missing_and_packed_rows_that_do_not_fit_are_refused() -> None:
    metadata = metadata_of("gemma2", published("Gemma 2"))
    del metadata["gemma2.attention.sliding_window"]
    with pytest.raises(DataError, match=r"the file has no gemma2.attention.sliding_window"):
        config_of(GGUF(metadata, {}))
    tensors = {"token_embd.weight": torch.zeros(259, 32), "blk.0.attn_qkv.weight": torch.zeros(60, 32)}
    file = GGUF(metadata_of("phi3", published("Phi-3")), {k: plain_tensor(v.numpy()) for k, v in tensors.items()})
    with pytest.raises(DataError, match=r"blk.0.attn_qkv.weight of 64 rows, it has one of \(60, 32\)"):
        tensors_in(file)
