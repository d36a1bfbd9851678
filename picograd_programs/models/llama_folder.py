"""A Llama, Qwen 2 or Qwen 3 in the folder in which transformers keeps it, as the GGUF file that it would be.

    config.json, model.safetensors or parts, tokenizer.json, tokenizer_config.json  ->  metadata and tensors of GGUF

What follows is then the same for both. Names differ, and in a Llama the order of the features that are turned: here pairs
are features i and i + D/2 of a head, in GGUF neighbours.

Source: Hugging Face, transformers, the configurations and networks of Llama, Qwen 2 and Qwen 3; ggml, its description of
       GGUF; Grattafiori et al. 2024, arXiv:2407.21783 (Llama 3.1's angles).

Letters: H heads, D features of a head, K inputs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.tensor.tensor import Tensor
from picograd_formats.gguf_file import GGUF, PACKINGS, Array, PackedTensor, plain_tensor
from picograd_programs.data.published import load_published
from picograd_programs.data.vocabulary import json_in, load_tokenizer, text_in

NAMES = {  # of tensors outside of layers, then of a layer's: here -> in GGUF
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
TENSOR = re.compile(r"(?:layers\.(\d+)\.)?(.+)\.(weight|bias)")
THEIRS = {ours: theirs for theirs, ours in NAMES.items()}
OURS = re.compile(rf"\b(?:blk\.(\d+)\.)?({'|'.join(THEIRS)})\.(?=weight|bias)")
SPEEDS = re.compile(r"(?:.+\.)?rotary_emb\.inv_freq")  # follows from config.json, and is kept by old files
NUMBERS = {  # in config.json -> in GGUF, behind the name of the network
    "max_position_embeddings": "context_length", "num_hidden_layers": "block_count", "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base",
}  # fmt: skip
SAID = {"hidden_act": "silu", "mlp_bias": False, "use_sliding_window": False}  # what picograd computes
ARCHITECTURES = ("llama", "qwen2", "qwen3")
KINDS = {4: {"float32": 0}, 2: {"float16": 1, "bfloat16": 30}}  # numbers of GGUF's packings


def read_folder(folder: Path) -> GGUF:
    """Returns the network in a folder, with the metadata and the names of a GGUF file.

    Raises:
      FileError: a file cannot be read.
      DataError: one is damaged or missing, or describes another network.
    """
    said = json_in(folder / "config.json")
    name = said.get("model_type")
    if name not in ARCHITECTURES:
        raise DataError(f"config.json says model_type is {str(name)[:40]!r}; {', '.join(ARCHITECTURES)} are run.")
    for key, value in SAID.items():
        if (found := said.get(key, value)) != value:
            raise DataError(f"config.json says {key} is {str(found)[:40]}; with {value} it is computed here.")
    weights, _ = load_published(folder)
    scaling = said.get("rope_parameters") or said.get("rope_scaling") or {}
    said = {"rope_theta": scaling.get("rope_theta"), **said}
    numbers = {f"{name}.{key}": said[own] for own, key in NUMBERS.items() if said.get(own) is not None}
    tensors = tensors_of(weights, said, is_llama=name == "llama")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "llama3":
        tensors["rope_freqs.weight"] = plain_tensor(slower_angles(said, scaling))
    elif kind != "default":
        numbers |= {f"{name}.rope.scaling.type": kind, f"{name}.rope.scaling.factor": scaling.get("factor")}
    return GGUF({"general.architecture": name, **numbers, **vocabulary_of(folder, said)}, tensors)


def tensors_of(weights: dict[str, Tensor], said: Mapping[str, Any], is_llama: bool) -> dict[str, PackedTensor]:
    """Returns tensors by their names in GGUF, in its order of features.

    Raises:
      DataError: a tensor is of another network, or not of floats.
    """
    heads, tensors = said.get("num_attention_heads"), dict[str, PackedTensor]()
    shared = said.get("num_key_value_heads") or heads
    for name, value in weights.items():
        if SPEEDS.fullmatch(name) or name == "lm_head.weight" and said.get("tie_word_embeddings"):
            continue
        found = TENSOR.fullmatch(name)
        part = NAMES.get(found[2]) if found else None
        kind = KINDS.get(value.dtype.itemsize, {}).get(value.dtype.name)
        if found is None or part is None or kind is None:
            found_it = f"has a tensor {name[:60]!r} of {value.shape}, {value.dtype}"
            raise DataError(f"{found_it}, which this network does not have.")
        array = value.numpy()
        if is_llama and part in ("attn_q", "attn_k"):
            array = as_neighbours(array, heads if part == "attn_q" else shared, name)
        blocks = np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
        place = f"{part}.{found[3]}" if found[1] is None else f"blk.{found[1]}.{part}.{found[3]}"
        tensors[place] = PackedTensor(array.shape, PACKINGS[kind], blocks)
    return tensors


def in_their_names(fact: str) -> str:
    """Returns a sentence in which tensors have the names of the folder.

    >>> in_their_names("a tensor blk.1.ffn_up.weight of (48, 32)")
    'a tensor layers.1.mlp.up_proj.weight of (48, 32)'
    """
    return OURS.sub(lambda found: f"layers.{found[1]}.{THEIRS[found[2]]}." if found[1] else f"{THEIRS[found[2]]}.", fact)


def as_neighbours(array: Array, heads: Any, name: str) -> Array:
    """Returns rows in an order in which the two features of a pair are neighbours: (H D, ...) -> (H D, ...).

    Raises:
      DataError: the heads do not divide the rows.

    >>> as_neighbours(np.arange(8), 2, "q").tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    if type(heads) is not int or heads < 1 or len(array) % (2 * heads):
        raise DataError(f"config.json says {str(heads)[:20]} heads, which do not divide {name} of {array.shape}.")
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def slower_angles(said: Mapping[str, Any], scaling: Mapping[str, Any]) -> Array:
    """Returns by how much each pair turns slower than before, as Llama 3.1's slow pairs do: (D/2,).

    Raises:
      DataError: a number is missing.
    """
    try:
        features = said.get("head_dim") or said["hidden_size"] // said["num_attention_heads"]
        speeds = float(said["rope_theta"]) ** (-np.arange(0, features, 2) / features)
        turns = scaling["original_max_position_embeddings"] * speeds / (2 * math.pi)  # of a pair, over all those positions
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        share = ((turns - low) / (high - low)).clip(0, 1)
        return np.asarray(1 / ((1 - share) / scaling["factor"] + share), np.float32)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(f"config.json lacks a number that rope_scaling needs, or has a wrong one: {error}.") from None


def vocabulary_of(folder: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of the tokenizer and of the turns of a dialogue.

    Raises:
      DataError: tokenizer.json is missing, damaged, or describes another kind.
    """
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    beside, template = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    more = json_in(beside) if beside.is_file() else {}
    ends, begin = said.get("eos_token_id"), more.get("bos_token")
    begin = begin.get("content") if isinstance(begin, dict) else begin
    begins = isinstance(begin, str) and begin in json.dumps(json_in(folder / "tokenizer.json").get("post_processor"))
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": tokenizer.cut, "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.token_type": np.asarray(tokenizer.kinds),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer.rank_of],
        "tokenizer.ggml.bos_token_id": said.get("bos_token_id"),
        "tokenizer.ggml.eos_token_id": ends[0] if isinstance(ends, list) and ends else ends,
        "tokenizer.ggml.add_bos_token": more.get("add_bos_token", begins),
        "tokenizer.chat_template": text_in(template) if template.is_file() else more.get("chat_template"),
    }  # fmt: skip
