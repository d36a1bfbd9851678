"""Folders of published weights: each kind of model against its equations; forms that users have; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from picograd import Tensor
from picograd.errors import DataError
from picograd_programs import cli
from picograd_programs.chat.answer import Choice, Plans, Reader
from picograd_programs.chat.run import Chat, Dialogue, extent_of, opened
from picograd_programs.data.bpe import CONTROL, LETTER_OF, TEXT, ByteLevel
from picograd_programs.data.tokenizer_json import save_tokenizer
from picograd_programs.models.architectures import ARCHITECTURES
from picograd_programs.models.encoder_folder import ENCODERS
from picograd_programs.models.packed import PackedMatrix
from tests.chat.test_answer import check_rows
from tests.models.published import CONFIGS, Said, Weights, config_of, logits_of, random_weights
from tests.models.published_encoders import TURNING

TOKENS = [*LETTER_OF, "er", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_folder(folder: Path, said: Said, weights: Weights | None, num_parts: int = 1) -> None:
    """Writes a configuration, weights in parts, and a tokenizer of bytes whose turns are ChatML's."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said))
    save_tokenizer(ByteLevel(TOKENS, ["e r"], [TEXT] * 257 + [CONTROL] * 2, "smollm"), folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    if weights is not None and num_parts == 1:
        save_file(weights, folder / "model.safetensors")
    elif weights is not None:
        names = sorted(weights)
        places = {
            name: f"model-{1 + place % num_parts:05}-of-{num_parts:05}.safetensors" for place, name in enumerate(names)
        }
        for part in set(places.values()):
            save_file({name: weights[name] for name in names if places[name] == part}, folder / part)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.req("D9")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_model_has_the_logits_and_the_likeliest_text_of_its_equations(
    name: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    said = config_of(name)
    weights, tokens = random_weights(said), rng.integers(0, 257, 20)
    write_folder(tmp_path, said, weights, num_parts=1 + len(name) % 3)
    model, tokenizer, manner, longest = opened(str(tmp_path), 64)
    expected = logits_of(said, weights, tokens)
    np.testing.assert_allclose(model(Tensor(tokens[None]))[0].numpy(), expected, rtol=1e-3, atol=1e-4)
    assert longest == said.get("n_positions", 128) and tokenizer.decode(tokenizer.encode("over 12")) == "over 12"
    text = [*tokens.tolist()]
    for _ in range(6):
        text.append(int(logits_of(said, weights, np.array(text))[-1].argmax()))
    answer = Reader(Plans(model, 64)).answer(tokens.tolist(), set(), 6, Choice(temperature=0.0, repetition=1.0), 0)
    assert [*answer] == text[20:]


@pytest.mark.variants(every=6)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_text_of_a_published_model_has_the_same_bits_alone_and_among_others(
    name: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    said = config_of(name)
    write_folder(tmp_path, said, random_weights(said))
    check_rows(opened(str(tmp_path), 64)[0], rng)


def test_every_kind_of_model_has_its_equations_in_a_test() -> None:
    readers = {each["model_type"] for each in TURNING.values()}  # which write nothing, in test_encoder_folder
    assert {kind for kind, _ in CONFIGS.values()} | readers & set(ARCHITECTURES) == set(ARCHITECTURES)


def test_a_text_that_is_read_far_has_the_angles_of_long_texts(tmp_path: Path, rng: np.random.Generator) -> None:
    said = config_of("Phi-4 mini")
    weights, tokens = random_weights(said), rng.integers(0, 257, 20)
    write_folder(tmp_path, said, weights)
    far, near = (logits_of(said, weights, tokens, context) for context in (100, 64))
    assert np.abs(far - near).max() > 0.1
    found = opened(str(tmp_path), 100)[0](Tensor(tokens[None]))[0].numpy()
    np.testing.assert_allclose(found, far, rtol=1e-3, atol=1e-4)


def test_a_text_of_yarn_is_as_long_as_it_was_stretched(tmp_path: Path) -> None:
    said = config_of("Qwen 2.5 with YaRN") | {"max_position_embeddings": 32}
    write_folder(tmp_path, said, random_weights(said))
    network, _, _, longest = opened(str(tmp_path), 100)
    assert longest == 128 and network.config.context == 100


@pytest.mark.parametrize("kind", ["float16", "float32", "PyTorch's", "a table that is filled up", "what old files keep"])
def test_forms_that_users_have(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    said = config_of("Qwen 2 with a window")
    weights, tokens = random_weights(said), rng.integers(0, 257, 13)
    expected = logits_of(said, weights, tokens)
    theirs = {name: value.to(torch.float16 if kind == "float16" else torch.float32) for name, value in weights.items()}
    if kind == "float16":
        expected = logits_of(said, theirs, tokens)
    if kind == "a table that is filled up":
        said["vocab_size"] = 320
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            theirs[name] = torch.cat([theirs[name], torch.full((61, 32), 9.0)])
    if kind == "what old files keep":
        theirs["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
        said["tie_word_embeddings"] = True
        expected = logits_of(said, theirs, tokens)  # there is a table of its own, and the configuration says it is not read
    write_folder(tmp_path, said, None if kind == "PyTorch's" else theirs)
    if kind == "PyTorch's":
        torch.save(theirs, tmp_path / "pytorch_model.bin")
    model, *_ = opened(str(tmp_path / "config.json"), 64)
    np.testing.assert_allclose(model(Tensor(tokens[None]))[0].numpy(), expected, rtol=1e-3, atol=1e-4)


def test_the_cache_of_latents_has_one_for_all_heads(tmp_path: Path) -> None:
    said = config_of("DeepSeek V3")
    write_folder(tmp_path, said, random_weights(said))
    cache = opened(str(tmp_path), 64)[0].cache(1, 50)
    assert [each.shape for each in cache.keys] == [(1, 1, 50, 16 + 4)] * 4 and cache.values == ()


def test_experts_of_four_bits_are_those_that_their_bits_say_and_stay_so_in_memory(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    said = config_of("gpt-oss") | {
        "hidden_size": 64,
        "intermediate_size": 32,
        "quantization_config": {"quant_method": "mxfp4"},
    }
    weights, tokens = random_weights(said), rng.integers(0, 257, 20)
    floats = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    stored = dict(weights)
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        rows, columns = weights[name].shape[2], weights[name].shape[1]  # plain ones have rows of inputs
        blocks = torch.from_numpy(rng.integers(0, 256, (6, rows, columns // 32, 16), dtype=np.uint8))
        scales = torch.from_numpy(rng.integers(122, 126, blocks.shape[:3], dtype=np.uint8))
        values = floats[torch.stack([blocks & 15, blocks >> 4], -1).int()].flatten(3) * 2.0 ** (
            scales[..., None].float() - 127
        )
        del stored[name]
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        weights[name] = values.flatten(2).swapaxes(1, 2)
    write_folder(tmp_path, said, stored)
    model = opened(str(tmp_path), 64)[0]
    np.testing.assert_allclose(
        model(Tensor(tokens[None]))[0].numpy(), logits_of(said, weights, tokens), rtol=1e-3, atol=1e-4
    )
    down = model.blocks[0].mlp.experts.down.matrix
    assert down.nbytes() == down.shape[0] * down.shape[1] * (4 + 1) // 8, "and a scale of four bytes for each 32"
    del stored["model.layers.0.mlp.experts.down_proj_scales"]
    write_folder(tmp_path, said, stored)
    with pytest.raises(DataError, match=r"down_proj_blocks of \(6, 64, 1, 16\), uint8, and scales of \(0,\)"):
        opened(str(tmp_path), 64)


def test_weights_of_two_bytes_stay_so_in_memory(tmp_path: Path) -> None:
    said = config_of("Llama 3.1")
    weights = random_weights(said)
    write_folder(tmp_path, said, weights)
    model, *_ = opened(str(tmp_path), 64)
    matrices = [part for part in model.modules() if isinstance(part, PackedMatrix)]
    assert sum(part.nbytes() for part in matrices) == sum(
        2 * value.numel() for value in weights.values() if value.ndim == 2
    )


def test_the_command_talks_with_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = config_of("Gemma 2")
    write_folder(tmp_path, said, random_weights(said))
    words = ["chat", "--model", str(tmp_path), "--prompt", "Hi", "--max-tokens", "3", "--temperature", "0"]
    assert cli.main(words) == 0
    assert "wrote" in capsys.readouterr().err


def test_what_the_files_say_of_dialogues(tmp_path: Path) -> None:
    said = config_of("Llama 2")
    write_folder(tmp_path, said, random_weights(said))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 10**6]}))
    manner = opened(str(tmp_path), 64)[2]
    assert manner.template == TEMPLATE and manner.ends == {258, 3, 257}
    both = [{"name": "tools", "template": "x"}, {"name": "default", "template": "y"}]
    added = {"content": "<|im_start|>", "special": True}
    content = {"chat_template": both, "bos_token": added, "eos_token": "<|im_end|>", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(content))
    _, tokenizer, manner, _ = opened(str(tmp_path), 64)
    assert manner.template == "y" and manner.names == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert tokenizer.start == [257]
    (tmp_path / "chat_template.jinja").write_text("z")
    assert opened(str(tmp_path), 64)[2].template == "z"


def test_tokens_are_drawn_as_the_files_say_where_nobody_says_it(tmp_path: Path) -> None:
    said = config_of("Llama 2")
    write_folder(tmp_path, said, random_weights(said))
    path = tmp_path / "generation_config.json"

    def choice(**wanted: Any) -> Choice:
        return Dialogue(Chat(model=str(tmp_path), context=64, **wanted)).choice

    assert choice() == Choice()
    path.write_text(json.dumps({"temperature": 0.6, "top_p": 0.95}))
    assert choice() == Choice(), "a file that does not say that tokens are drawn says nothing"
    path.write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": None}))
    assert choice() == Choice(0.6, 50, 0.95, 1.0), "and what it leaves out is as in transformers"
    assert choice(top_k=0, repetition=1.2) == Choice(0.6, 0, 0.95, 1.2)
    for wrong in ({"temperature": "hot"}, {"top_p": 0}, {"top_k": 2.5}, {"repetition_penalty": -1}):
        path.write_text(json.dumps({"do_sample": True} | wrong))
        with pytest.raises(DataError, match="generation_config.json says .* is out of its range"):
            choice()


# ---- what is refused ----
CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("Llama 2", {"model_type": "mpt"}, "says model_type is 'mpt'; arcee, cohere, cohere2, deepseek_v2, "),
    ("DeepSeek V2", {"first_k_dense_replace": "1"}, "says first_k_dense_replace is 1; a number of layers is needed"),
    ("DeepSeek V2", {"n_group": 3}, "says n_group is 3; it must divide the 8 experts into groups of two or more"),
    ("DeepSeek V2", {"topk_method": "noaux_tc"}, "says topk_method is noaux_tc; greedy and group_limited_greedy are known"),
    ("DeepSeek V3", {"topk_method": "greedy"}, "says topk_method is greedy; only noaux_tc is supported"),
    ("DeepSeek V3", {"kv_lora_rank": None}, "says kv_lora_rank is None; a whole number above 0 is needed"),
    ("DeepSeek V3", {"quantization_config": {"bits": 8}}, "says quantization_config is {'bits': 8}; fp8, fbgemm_fp8"),
    ("gpt-oss", {"swiglu_alpha": 1.0}, "says swiglu_alpha is 1.0; only 1.702 is supported"),
    ("Phi-2", {"qk_layernorm": True}, "says qk_layernorm is True; only False is supported"),
    ("Phi-2", {"tie_word_embeddings": True}, "says tie_word_embeddings is True; only False is supported"),
    ("Command R7B", {"use_qk_norm": True}, "says use_qk_norm is True; only False is supported"),
    ("Command R7B", {"layer_switch": 3}, "says layer_switch is 3; only 4 is supported"),
    ("Command-R", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
     "says partial_rotary_factor is 0.5; this kind of network rotates all features of a head"),
    ("Falcon 7B", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "rotates all features"),
    ("Command-R", {"rope_theta": None}, "says the base of the angles, rope_theta, is None"),
    ("Falcon 7B", {"alibi": 1}, "says alibi is 1; true or false is needed"),
    ("Falcon 7B", {"num_ln_in_parallel_attn": 2}, "says num_ln_in_parallel_attn is 2; at most 1 is supported"),
    ("Falcon 40B", {"num_ln_in_parallel_attn": 3}, "says num_ln_in_parallel_attn is 3; at most 2 is supported"),
    ("Mixtral", {"num_experts_per_tok": 7}, "says num_experts_per_tok is 7; there are 6 experts"),
    ("Mixtral", {"num_local_experts": None}, "config.json has no num_experts"),
    ("OLMoE", {"clip_qkv": 8.0}, "says clip_qkv is 8.0; only None"),
    ("Qwen 3 with experts", {"mlp_only_layers": ["a"]}, "says mlp_only_layers is ['a']; a list of numbers of layers"),
    ("Llama 2", {"model_type": ["llama"]}, "says model_type is \"['llama']\""),
    ("Llama 2", {"hidden_act": "mish"}, "says hidden_act is mish; silu, swish"),
    ("Llama 2", {"num_attention_heads": 5}, "says num_attention_heads is 5, of 6 features"),
    ("Llama 2", {"num_key_value_heads": 3}, "num_key_value_heads 3"),
    ("Llama 2", {"hidden_size": True}, "says hidden_size is True; a whole number above 0 is needed"),
    ("Llama 2", {"hidden_size": 2**40}, "says hidden_size is 1099511627776"),
    ("Llama 2", {"num_hidden_layers": None}, "says num_hidden_layers is None; a whole number above 0 is needed"),
    ("Llama 2", {"rms_norm_eps": "small"}, "says rms_norm_eps is small; a number above 0 is needed"),
    ("Llama 2", {"attention_bias": "no"}, "says attention_bias is no; true or false is needed"),
    ("Llama 2", {"rope_scaling": {"rope_type": "spiral"}}, "says rope_scaling is {'rope_type': 'spiral'}; a dict of type"),
    ("Llama 2", {"rope_scaling": 7}, "says rope_scaling is 7; a dict of type"),
    ("Llama 2", {"rope_scaling": {"rope_type": "linear"}}, "config.json's rope_scaling has no factor"),
    ("Llama 2", {"rope_scaling": {"type": "linear", "factor": 2.0, "offset": 3}},
     "config.json's rope_scaling says offset is 3"),
    ("Llama 2", {"rope_theta": None}, "says the base of the angles, rope_theta, is None; a number above 1"),
    ("Qwen 2.5 with YaRN", {"rope_theta": 1}, "rope_theta, is 1; a number above 1 is needed"),
    ("Llama 2", {"sliding_window": 4096}, "says sliding_window is 4096, which is not supported"),
    ("Llama 2", {"logit_scale": 0.0625}, "says logit_scale is 0.0625, which is not supported"),
    ("Llama 2", {"quantization_config": {"bits": 4}}, "says quantization_config is {'bits': 4}; fp8, fbgemm_fp8"),
    ("Llama 2", {"num_local_experts": 8}, "says num_local_experts is 8"),
    ("Llama 2", {"rope_interleaved": True}, "says rope_interleaved is True; only False is supported"),
    ("Llama 2", {"rope_scaling": {"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}}, "rotates all features"),
    ("Llama 2", {"partial_rotary_factor": 0.5}, "says partial_rotary_factor is 0.5, which is not supported"),
    ("Phi-4 mini", {"partial_rotary_factor": 0.4}, "rotates 3 of 8 features of a head; an even number"),
    ("Phi-4 mini", {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
     "a list of 3 numbers"),
    ("Gemma 3 of today", {"layer_types": ["full_attention"] * 3}, "says layer_types is ['full_attention'"),
    ("Gemma 3 of today", {"layer_types": ["chunked_attention"] * 4},
     "a list with one of full_attention, sliding_attention"),
    ("Gemma 2", {"use_bidirectional_attention": True}, "says use_bidirectional_attention is True; only False"),
    ("Gemma 3 of today", {"use_bidirectional_attention": True}, "sees following positions, and cannot write text"),
    ("Qwen 2.5", {"layer_types": ["sliding_attention"] * 4}, "there is no sliding_window for its sliding_attention"),
    ("Qwen 2.5", {"use_mrope": True}, "says use_mrope is True; only False"),
    ("SmolLM3", {"no_rope_layers": [1, 2, 1, 1]}, "says no_rope_layers is [1, 2, 1, 1]; a list with one of 0, 1"),
    ("StarCoder", {"scale_attn_weights": False}, "says scale_attn_weights is False"),
    ("Llama 2", {"vocab_size": 2**20}, "vectors of 1,048,576 tokens, and the vocabulary has 259"),
    ("Llama 2", {"vocab_size": 100}, "has 259 tokens such as 'er', the network 100 vectors"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "words"), CHANGES)
def test_a_configuration_that_is_not_done_is_refused_before_weights_are_looked_for(
    name: str, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_folder(tmp_path, config_of(name) | change, None)
    with pytest.raises(DataError) as caught:
        opened(str(tmp_path), 64)
    assert words in caught.value.fact and str(tmp_path) in caught.value.fact


@pytest.mark.parametrize(("kind", "command"), [("whisper", "transcribe"), *((name, "embed") for name in ENCODERS)])
def test_a_network_of_another_program_is_refused_with_its_name(kind: str, command: str, tmp_path: Path) -> None:
    write_folder(tmp_path, config_of("Llama 2") | {"model_type": kind}, None)
    with pytest.raises(DataError, match=f"model_type is '{kind}', which ") as caught:
        opened(str(tmp_path), 64)
    assert caught.value.hint == f"picograd {command} runs it."


def test_an_entry_of_null_is_none_and_one_that_programs_keep_for_themselves_is_no_matter(tmp_path: Path) -> None:
    said = config_of("Llama 2") | {"logit_scale": None, "_attn_implementation_autoset": True, "unsloth_version": "1"}
    write_folder(tmp_path, said, random_weights(said))
    opened(str(tmp_path), 64)
    for key in ("hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings"):
        write_folder(tmp_path, {name: value for name, value in said.items() if name != key}, None)
        with pytest.raises(DataError, match=f"config.json has no {key}"):
            opened(str(tmp_path), 64)


@pytest.mark.parametrize(
    ("name", "tensor", "value", "words"),
    [
        ("Llama 2", "model.layers.1.mlp.up_proj.weight", None, "layers.1.mlp.up_proj.weight of (48, 32), it has none"),
        ("Llama 2", "model.norm.weight", torch.ones(31), "a tensor norm.weight of (32,), it has one of (31,)"),
        ("Llama 2", "model.layers.0.mlp.experts.weight", torch.ones(3), "'layers.0.mlp.experts.weight' of (3,), fl"),
        ("Llama 2", "model.norm.weight", torch.ones(32, dtype=torch.int64), "'norm.weight' of (32,), int64"),
        ("Llama 2", "model.layers.0.self_attn.q_proj.bias", torch.ones(32),
         "q_proj.bias', which this network does not have"),
        ("Llama 2", "lm_head.weight", None,
         "has no tensor lm_head.weight, and its config.json says no tie_word_embeddings"),
        ("Mixtral", "model.layers.0.block_sparse_moe.experts.5.w1.weight", None,
         "layers.0.block_sparse_moe.experts.w1.weight of each of 6 experts, of one shape; it has 5 of (48, 32)"),
        ("Mixtral", "model.layers.0.block_sparse_moe.experts.5.w1.weight", torch.ones(3, 32), "(48, 32), (48, 32)"),
        ("OLMoE", "model.layers.1.mlp.experts.9.up_proj.weight", torch.ones(48, 32), "each of 9 experts, of one shape"),
        ("Phi-3", "model.layers.0.self_attn.qkv_proj.weight", torch.ones(60, 32), "self_attn.qkv_proj.weight of 64 rows"),
        ("Pythia", "gpt_neox.layers.2.attention.query_key_value.bias", torch.ones(7), "query_key_value.bias of 96 rows"),
        ("Falcon 7B", "transformer.h.0.ln_attn.weight", torch.ones(32), "and another of the same part, and only one"),
        ("Falcon 7B", "transformer.h.1.input_layernorm.bias", None, "h.1.input_layernorm.bias of (32,), it has none"),
        ("Falcon 40B", "transformer.h.2.self_attention.query_key_value.weight", torch.ones(40, 32), "of 64 rows, it has"),
        ("Phi-2", "lm_head.bias", torch.ones(258), "a tensor lm_head.bias of (259,), it has one of (258,)"),
        ("StarCoder", "transformer.wpe.weight", torch.ones(64, 32),
         "a tensor wpe.weight of (128, 32), it has one of (64, 32)"),
    ],
)  # fmt: skip
def test_tensors_of_another_network_are_named(name: str, tensor: str, value: Any, words: str, tmp_path: Path) -> None:
    said = config_of(name)
    weights = {key: each for key, each in (random_weights(said) | {tensor: value}).items() if each is not None}
    write_folder(tmp_path, said, weights)
    with pytest.raises(DataError) as caught:
        opened(str(tmp_path), 64)
    assert words in caught.value.fact and str(tmp_path) in caught.value.fact


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    said = config_of("Llama 2")
    write_folder(tmp_path, said, random_weights(said))
    for file in ("model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"):
        whole = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=file):
            opened(str(tmp_path), 64)
        (tmp_path / file).write_bytes(whole)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="tokenizer.json"):
        opened(str(tmp_path), 64)
    (tmp_path / "model.safetensors").unlink()
    write_folder(tmp_path, said, None)
    with pytest.raises(DataError, match="has none of model.safetensors, model.safetensors.index.json"):
        opened(str(tmp_path), 64)


def test_weights_of_a_folder_are_packed_in_fewer_bits(tmp_path: Path, rng: np.random.Generator) -> None:
    said, tokens = config_of("GLM 4 9B"), rng.integers(0, 257, 20)
    write_folder(tmp_path, said, random_weights(said))
    logits, nbytes = {}, {}
    for pack in ("file", "f32", "q8_0", "q4_0"):
        network = opened(str(tmp_path), 64, pack)[0]
        logits[pack], nbytes[pack] = network(Tensor(tokens[None])).numpy(), extent_of(network)[1]
    np.testing.assert_array_equal(logits["f32"], logits["file"])
    far = {pack: float(np.abs(found - logits["file"]).mean()) for pack, found in logits.items()}
    assert 0 < far["q8_0"] < 0.1 < far["q4_0"] and nbytes["q4_0"] < nbytes["q8_0"] < nbytes["file"] < nbytes["f32"]
