"""A decoder in transformers' folder format: config.json, model.safetensors or parts, tokenizer.json.

Every refusal comes before a weight is read: from the configuration, the vocabulary, then names and shapes of tensors.
Files of safetensors are memory-mapped, so that weights are loaded on use.

Source: Hugging Face, transformers, the networks of architectures.py.

Letters: H heads, D features of a head, K inputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.record import Record
from picograd_formats.gguf_file import PACKINGS, Array, PackedTensor
from picograd_programs.chat.search import search_of
from picograd_programs.chat.turns import Manner
from picograd_programs.data.published import map_published
from picograd_programs.data.tokenizer_json import Pipeline, load_tokenizer
from picograd_programs.data.vocabulary import json_in, text_in
from picograd_programs.models.architectures import LATER_LAYERS, Architecture, read_config
from picograd_programs.models.decoder import Decoder, DecoderConfig, rows_of
from picograd_programs.models.float8 import scaled_by
from picograd_programs.models.folder_forms import Arrays

TENSOR = re.compile(r"(?:(?:layers|h)\.(\d+)\.)?(.+)\.(weight|bias)")
AROUND = re.compile(r"(?:(?:module|_orig_mod|model|transformer|gpt_neox)\.)*")  # prefixes of names
EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(.+)")  # one expert's tensor; all experts are one tensor here
OURS = re.compile(r"\b(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")
OLD = re.compile(r"(?:.+\.)?(?:rotary_emb\.inv_freq|(?:attention|attn)\.(?:masked_)?bias)")  # derived from config.json
NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")  # in tokenizer_config.json; templates may use them
LENGTHS_MAX = 2**31  # tokens
KINDS = {"float32": 0, "float16": 1, "float64": 28, "bfloat16": 30}  # numbers of GGUF's types


class Published(Record, eq=False):
    """A network loaded from a folder.

    network:    network with its weights
    tokenizer:  tokenizer of the folder
    manner:     the files' settings for dialogues
    longest:    largest number of tokens that it can read
    """

    network: Decoder
    tokenizer: Pipeline
    manner: Manner
    longest: int


def read_folder(folder: Path, context: int, writes: bool = True, packing: str = "") -> Published:
    """Loads the network of a folder.

    Args:
      context:  largest number of tokens that are read
      writes:   True if tokens will be written after those that are read
      packing:  as in Weights

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged or missing, or describes another network.
    """
    content = json_in(folder / "config.json")
    longest = read_config(content, 1, LENGTHS_MAX)[0].context  # config errors come before missing files
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    config, kind, is_tied = read_config(content, len(tokenizer.tokens), context)
    if writes and config.sees_ahead:
        raise DataError("has a network that sees following positions, and cannot write text.", "picograd embed reads it.")
    tokenizer.fit(content[kind.names.get("vocab_size", "vocab_size")], config.width)
    scaled = scaled_by(None if "quantization_config" in kind.fixed else content.get("quantization_config"))
    tensors = tensors_of(scaled(map_published(folder)), config, kind, is_tied)  # the only reference
    try:
        network = Decoder(config, tensors, packing)
    except DataError as error:
        raise DataError(in_their_names(error.fact, kind), error.hint) from None
    return Published(network, tokenizer, manner_of_folder(folder, content, tokenizer), longest)


def tensors_of(arrays: Arrays, config: DecoderConfig, kind: Architecture, is_tied: bool) -> dict[str, PackedTensor]:
    """Returns tensors by Decoder's names.

    Raises:
      DataError: a tensor is of another network, or not of floats, or the output layer is missing.
    """
    tensors: dict[str, PackedTensor] = {}
    parts: dict[str, dict[int, PackedTensor]] = {}  # of experts, by their numbers
    for name, array in kind.form(arrays).items():
        own = AROUND.sub("", name)
        expert = EXPERT.fullmatch(own)
        found = TENSOR.fullmatch(f"{expert[1]}.{expert[3]}" if expert else own)
        ours = kind.tensors.get(found[2]) if found else None
        is_later = found and found[1] and int(found[1]) >= config.layers and LATER_LAYERS.keys() <= kind.fixed.keys()
        if OLD.fullmatch(own) or is_later or ours == "output" and is_tied:
            continue
        dtype = array.packing.name if isinstance(array, PackedTensor) else array.dtype.name
        if found is None or ours is None or not isinstance(array, PackedTensor) and dtype not in KINDS:
            raise DataError(f"has a tensor {own[:60]!r} of {array.shape}, {dtype}, which this network does not have.")
        place = "" if found[1] is None else f"blk.{found[1]}."
        if f"{place}{ours}.{found[3]}" in tensors:
            raise DataError(f"has a tensor {own[:60]!r} and another of the same part, and only one can be read.")
        if isinstance(ours, tuple):
            for part, piece in zip(ours, rows_apart(own, array, ours, config, kind)):
                tensors[f"{place}{part}.{found[3]}"] = packed(piece)
        elif expert:
            parts.setdefault(f"{place}{ours}.{found[3]}", {})[int(expert[2])] = packed(array)
        else:
            is_weight = ours.endswith("norm") and found[3] == "weight"
            is_moved = kind.norm_offset and is_weight and not isinstance(array, PackedTensor)
            moved = np.asarray(array, np.float32) + np.float32(kind.norm_offset) if is_moved else array
            tensors[f"{place}{ours}.{found[3]}"] = packed(moved)
    for name, each in parts.items():
        tensors[name] = stacked(name, each, config.experts, kind)
    if not is_tied and "output.weight" not in tensors:
        raise DataError(
            in_their_names("has no tensor output.weight, and its config.json says no tie_word_embeddings.", kind)
        )
    return tensors


def rows_apart(
    own: str, array: Array | PackedTensor, ours: tuple[str, ...], config: DecoderConfig, kind: Architecture
) -> Sequence[PackedTensor | Array]:
    """Returns the rows of a tensor that belong to each of ours.

    Raises:
      DataError: the number of rows is wrong.
    """
    numbers = [config.rows[part] for part in ours]
    if array.shape[:1] != (sum(numbers),):
        raise DataError(f"must have a tensor {own[:60]} of {sum(numbers):,} rows, it has one of {array.shape}.")
    if not kind.heads_are_packed:
        ends = np.cumsum(numbers).tolist()
        return [rows_of(packed(array), end - num, end) for num, end in zip(numbers, ends)]
    array = array.unpacked() if isinstance(array, PackedTensor) else array
    groups = array.reshape(config.shared_heads, -1, config.features, *array.shape[1:])
    # the queries that share a key and a value, then these
    return [each.reshape(-1, *array.shape[1:]) for each in (groups[:, :-2], groups[:, -2], groups[:, -1])]


def stacked(name: str, tensors: Mapping[int, PackedTensor], num: int, kind: Architecture) -> PackedTensor:
    """Stacks the tensors of all experts.

    Raises:
      DataError: a tensor is missing, superfluous, or of another shape.
    """
    forms = {(tensor.shape, tensor.packing.name, tensor.packing.numel) for tensor in tensors.values()}
    if tensors.keys() != set(range(num)) or len(forms) > 1:
        shapes = ", ".join(str(tensor.shape) for tensor in tensors.values())
        fact = f"must have a tensor {name} of each of {num} experts, of one shape; it has {len(tensors)}"
        raise DataError(in_their_names(f"{fact} of {shapes[:60]}.", kind))
    blocks = np.concatenate([tensors[number].blocks for number in range(num)])
    return PackedTensor((num, *tensors[0].shape), tensors[0].packing, blocks)


def packed(array: Array | PackedTensor) -> PackedTensor:
    """Returns an array as a GGUF tensor, without a copy if its rows are contiguous."""
    if isinstance(array, PackedTensor):
        return array
    packing = PACKINGS[KINDS[array.dtype.name]]
    return PackedTensor(array.shape, packing, np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8))


def in_their_names(fact: str, kind: Architecture) -> str:
    """Returns an error message with the folder's names of tensors.

    >>> from picograd_programs.models.architectures import ARCHITECTURES
    >>> in_their_names("a tensor blk.1.ffn_up.weight of (48, 32)", ARCHITECTURES["phi3"])
    'a tensor layers.1.mlp.gate_up_proj.weight of (48, 32)'
    """
    theirs = {part: name for name, ours in kind.tensors.items() for part in ([ours] if isinstance(ours, str) else ours)}

    def name(found: re.Match[str]) -> str:
        place = f"{'h' if 'ln_f' in kind.tensors else 'layers'}.{found[1]}." if found[1] else ""
        return f"{place}{theirs[found[2]]}.{found[3]}" if found[2] in theirs else found[0]

    return OURS.sub(name, fact)


def manner_of_folder(folder: Path, content: Mapping[str, Any], tokenizer: Pipeline) -> Manner:
    """Returns the template and the marks of the files.

    Raises:
      DataError: a file is damaged.
    """
    paths = [folder / name for name in ("tokenizer_config.json", "generation_config.json", "chat_template.jinja")]
    said, generation = (json_in(path) if path.is_file() else {} for path in paths[:2])
    template = text_in(paths[2]) if paths[2].is_file() else said.get("chat_template")
    if isinstance(template, list):  # several, with names
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    texts = {key: each.get("content") if isinstance(each, dict) else each for key, each in said.items() if key in NAMED}
    names = {key: each for key, each in texts.items() if isinstance(each, str)}
    ends = [
        number
        for value in (content.get("eos_token_id"), generation.get("eos_token_id"))
        for number in (value if isinstance(value, list) else [value])
        if type(number) is int and 0 <= number < len(tokenizer.tokens)
    ]
    first, last = (tokenizer.control.get(names.get(key, "")) for key in ("bos_token", "eos_token"))
    ends += [] if last is None else [last]
    if said.get("add_bos_token") and first is not None:
        tokenizer.start = tokenizer.start or [first]
    elif said.get("add_bos_token") is False:
        tokenizer.start = []
    how = drawing_of(generation), search_of(generation)
    return Manner(template if isinstance(template, str) else "", names, (), frozenset(ends), *how)


def drawing_of(said: Mapping[str, Any]) -> dict[str, float]:
    """Returns a generation_config.json's settings of draws; none unless it has `do_sample`.

    Raises:
      DataError: a number is out of its range.

    >>> drawing_of({"do_sample": True, "temperature": 0.6, "top_p": 0.95})
    {'temperature': 0.6, 'top_k': 50, 'top_p': 0.95, 'repetition': 1.0}
    """
    if said.get("do_sample") is not True:
        return {}
    found = {
        key: default if said.get(name) is None else said[name]
        for key, (name, default) in {
            "temperature": ("temperature", 1.0), "top_k": ("top_k", 50), "top_p": ("top_p", 1.0),
            "repetition": ("repetition_penalty", 1.0),
        }.items()
    }  # fmt: skip
    for key, value in found.items():
        kinds, least = ((int,), 0) if key == "top_k" else ((int, float), 0 if key == "temperature" else 1e-6)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < 2**31:
            raise DataError(f"generation_config.json says {key} is {str(value)[:40]}; that is out of its range.")
    return found
