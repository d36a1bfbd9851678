"""Folders of transformers: what is read of them against the formulas in NumPy; forms that users have; bad files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from picograd import Tensor
from picograd.errors import DataError
from picograd_programs import cli
from picograd_programs.chat.run import opened
from picograd_programs.data.bpe import CONTROL, LETTER_OF, TEXT, ByteLevel
from picograd_programs.data.vocabulary import save_tokenizer
from picograd_programs.models.llama import LlamaConfig, config_of
from picograd_programs.models.llama_folder import THEIRS, read_folder
from tests.models.numpy_llama import numpy_logits
from tests.models.test_llama import CONFIGS, random_weights

TOKENS = [*LETTER_OF, "er", "<|im_start|>", "<|im_end|>"]
BASE = {"context": 64, "vocabulary": len(TOKENS), "width": 32}
Weights = dict[str, torch.Tensor]


def theirs_of(weights: dict[str, np.ndarray], config: LlamaConfig) -> Weights:
    """Returns weights by the names of transformers; those of GGUF have pairs of features as neighbours in a Llama."""
    found = {}
    for name, array in weights.items():
        *layer, part, end = name.split(".")
        if not config.pairs_are_halves and part in ("attn_q", "attn_k"):
            heads = array.shape[0] // config.features
            array = np.concatenate([row[place::2] for row in np.split(array, heads) for place in (0, 1)])
        place = f"layers.{layer[1]}." if layer else ""
        prefix = "" if part == "output" else "model."
        found[f"{prefix}{place}{THEIRS[part]}.{end}"] = torch.from_numpy(np.ascontiguousarray(array))
    return found


def write_folder(folder: Path, name: str, config: LlamaConfig, weights: Weights | None, **said: Any) -> None:
    """Writes weights, the configuration, and a tokenizer of bytes whose turns are ChatML's."""
    content = {
        "model_type": name, "hidden_size": config.width, "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.shared_heads, "head_dim": config.features,
        "rms_norm_eps": config.eps, "rope_theta": config.base, "max_position_embeddings": config.context,
        "vocab_size": config.vocabulary, "hidden_act": "silu", "rope_scaling": None, "of": "an unknown field",
        "eos_token_id": [len(TOKENS) - 1, 3], "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(content | said))
    save_tokenizer(ByteLevel(TOKENS, ["e r"], [TEXT] * 257 + [CONTROL] * 2, "smollm"), folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ '<|im_start|>' }}"}))
    if weights is not None:
        save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_logits_are_those_of_the_formulas(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    config = replace(CONFIGS[name], **BASE)
    weights, tokens = random_weights(config, rng, is_tied=name != "llama"), rng.integers(0, config.vocabulary, 13)
    write_folder(tmp_path, name, config, theirs_of(weights, config))
    model, tokenizer, *_ = opened(str(tmp_path), 64)
    assert model.config == config
    assert tokenizer.tokens == TOKENS and tokenizer.decode(tokenizer.encode("over 12")) == "over 12"
    found = model(Tensor(tokens[None]))[0].numpy()
    np.testing.assert_allclose(found, numpy_logits(config, weights, tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_angles_are_scaled_as_the_configuration_says(key: str, tmp_path: Path, rng: np.random.Generator) -> None:
    config = replace(CONFIGS["llama"], base=500.0, **BASE)
    weights, tokens = random_weights(config, rng), rng.integers(0, config.vocabulary, 13)
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500.0}
    said = {key: {**scaling, "original_max_position_embeddings": 50}, "rope_theta": 500.0}
    write_folder(tmp_path, "llama", config, theirs_of(weights, config), **said)
    speeds = config.base ** (-np.arange(0, config.features, 2) / config.features)
    share = ((50 * speeds / (2 * math.pi) - 1) / 3).clip(0, 1)
    expected = numpy_logits(config, weights, tokens, (1 - share) * speeds / 8 + share * speeds)
    assert np.abs(expected - numpy_logits(config, weights, tokens)).max() > 0.1
    model, *_ = opened(str(tmp_path), 64)
    np.testing.assert_allclose(model(Tensor(tokens[None]))[0].numpy(), expected, rtol=1e-4, atol=1e-4)
    write_folder(tmp_path, "llama", config, None, rope_scaling={"type": "linear", "factor": 2.0})
    assert config_of(read_folder(tmp_path)).scaling == 2.0


@pytest.mark.parametrize("kind", ["float16", "bfloat16 in parts", "a table that is filled up, and what old files keep"])
def test_forms_that_users_have(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    config = replace(CONFIGS["llama"], **BASE)
    weights, tokens = random_weights(config, rng), rng.integers(0, config.vocabulary, 13)
    theirs = theirs_of(weights, config)
    if kind == "float16":
        theirs = {name: value.half() for name, value in theirs.items()}
    elif kind == "bfloat16 in parts":
        theirs = {name: value.bfloat16() for name, value in theirs.items()}
    else:
        table = torch.cat([theirs["model.embed_tokens.weight"], torch.full((61, 32), 9.0)])
        theirs |= {"model.embed_tokens.weight": table, "lm_head.weight": table.clone()}
        theirs["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    if kind == "bfloat16 in parts":
        write_folder(tmp_path, "llama", config, None, tie_word_embeddings=True)
        names = sorted(theirs)
        places = {name: f"model-0000{1 + place % 2}-of-00002.safetensors" for place, name in enumerate(names)}
        for part in set(places.values()):
            save_file({name: theirs[name] for name in names if places[name] == part}, tmp_path / part)
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    else:
        write_folder(tmp_path, "llama", config, theirs, tie_word_embeddings=True)
    rounded = weights if "table" in kind else {
        name: torch.from_numpy(value).to(torch.float16 if kind == "float16" else torch.bfloat16).float().numpy()
        for name, value in weights.items()
    }  # fmt: skip
    model, *_ = opened(str(tmp_path / "config.json"), 64)
    np.testing.assert_allclose(
        model(Tensor(tokens[None]))[0].numpy(), numpy_logits(config, rounded, tokens), rtol=1e-4, atol=1e-4
    )


def test_the_command_talks_with_a_folder(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(CONFIGS["llama"], **BASE)
    write_folder(tmp_path, "llama", config, theirs_of(random_weights(config, rng), config))
    words = ["chat", "--model", str(tmp_path), "--prompt", "Hi", "--max-tokens", "3", "--temperature", "0"]
    assert cli.main(words) == 0
    assert "wrote" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "change", "said", "words"),
    [
        ("gemma3_text", None, {}, "says model_type is 'gemma3_text'; llama, qwen2, qwen3 are run"),
        ("llama", None, {"hidden_act": "gelu"}, "says hidden_act is gelu; with silu it is computed here"),
        ("llama", None, {"num_attention_heads": 5}, "config.json says 5 heads, which do not divide layers."),
        ("llama", None, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "scales angles by yarn"),
        ("llama", None, {"rope_scaling": {"rope_type": "llama3"}}, "lacks a number that rope_scaling needs"),
        ("llama", None, {"rms_norm_eps": None}, "attention.layer_norm_rms_epsilon is None"),
        ("llama", ("model.layers.1.mlp.up_proj.weight", None), {}, "layers.1.mlp.up_proj.weight of (48, 32), it has none"),
        ("llama", ("model.norm.weight", torch.ones(31)), {}, "a tensor norm.weight of (32,), it has one of (31,)"),
        ("llama", ("model.layers.0.mlp.experts.weight", torch.ones(3)), {}, "'layers.0.mlp.experts.weight' of (3,), fl"),
        ("llama", ("model.norm.weight", torch.ones(32, dtype=torch.int64)), {}, "'norm.weight' of (32,), int64"),
        ("llama", ("model.embed_tokens.weight", torch.ones(200, 32)), {}, "embed_tokens.weight of (200, 32) has vectors"),
    ],
)  # fmt: skip
def test_another_network_is_a_data_error_that_names_the_folder(
    name: str, change: Any, said: dict[str, Any], words: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    config = replace(CONFIGS["llama"], **BASE)
    weights = theirs_of(random_weights(config, rng), config)
    if change is not None:
        weights = {key: value for key, value in (weights | dict([change])).items() if value is not None}
    write_folder(tmp_path, name, config, weights, **said)
    with pytest.raises(DataError) as caught:
        opened(str(tmp_path), 64)
    assert words in caught.value.fact and str(tmp_path) in caught.value.fact


def test_missing_and_damaged_files_are_named(tmp_path: Path, rng: np.random.Generator) -> None:
    config = replace(CONFIGS["llama"], **BASE)
    write_folder(tmp_path, "llama", config, theirs_of(random_weights(config, rng), config))
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        whole = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=file):
            opened(str(tmp_path), 64)
        (tmp_path / file).write_bytes(whole)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="tokenizer.json"):
        opened(str(tmp_path), 64)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match="has none of model.safetensors, model.safetensors.index.json"):
        opened(str(tmp_path), 64)
