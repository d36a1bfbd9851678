"""Folders with matrices of eight-bit floats, and a scale for a tensor, for each row, or for each block.

    value[r, k] = float8[r, k] * scale[r // rows of a block, k // columns of a block]

Matrices keep this form in memory. Some GPU programs also round activations to eight bits; here they are not rounded. Files
name a scale `weight_scale` or `weight_scale_inv`; both are factors.

Source: Micikevicius et al. 2022, arXiv:2209.05433 (the floats); DeepSeek 2024, arXiv:2412.19437, section 3.3 (blocks);
       the entry quantization_config of transformers, compressed-tensors, FBGEMM and ModelOpt.

Letters: R rows, K columns, G groups of a row, g columns of a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from picograd.errors import DataError
from picograd_formats.gguf_file import Array, Groups, PackedTensor, Packing, plain_tensor
from picograd_programs.models.entries import NEEDED, Entries
from picograd_programs.models.folder_forms import Arrays

WHERE = "config.json's quantization_config"
GROUP_MIN = 16  # smallest group with a scale; smaller groups, whose scales take too much memory, become float32
SCALES = ("_scale", "_scale_inv")  # suffixes of a scale's name, after its matrix's name
ACTIVATION_SCALES = ("input_scale", "output_scale", "k_scale", "v_scale", "q_scale")  # ignored
NO_MATTER: dict[str, Any] = {  # the dtypes of tensors show which parts have eight bits
    "quant_method": Any, "modules_to_not_convert": Any, "ignored_layers": Any, "ignore": Any, "exclude_modules": Any,
    "activation_scheme": Any, "activation_scale_ub": Any, "scale_fmt": Any, "dequantize": Any, "kv_cache_scheme": Any,
    "kv_cache_quant_algo": Any, "quantization_status": Any, "global_compression_ratio": Any, "version": Any,
    "producer": Any, "run_compressed": Any,
}  # fmt: skip
GROUPS: dict[str, Any] = {"quant_algo": None, "config_groups": None}  # of parts, in compressed-tensors and ModelOpt
STRATEGIES = (None, "tensor", "channel", "block")  # units of a scale; a channel is a row
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # entries that are read, and entries with a required value
    "fp8": ({"weight_block_size": None}, {"fmt": "e4m3"}),
    "fbgemm_fp8": ({}, {}),
    "compressed-tensors": (
        GROUPS | {"config_groups": NEEDED}, {"format": "float-quantized", "sparsity_config": {}, "transform_config": {}},
    ),
    "modelopt": (GROUPS | {"quant_algo": NEEDED}, {}),
}  # fmt: skip
Block = tuple[int, int]


def scaled_by(content: Any) -> Callable[[Arrays], Arrays]:
    """Returns the function that packs a folder's matrices with their scales.

    Args:
      content:  the entry quantization_config; None without one

    Raises:
      DataError: it describes other numbers, or has an unknown entry.
    """
    if content is None:
        return lambda arrays: arrays
    method = content.get("quant_method") if isinstance(content, dict) else None
    if not isinstance(method, str) or method not in METHODS:
        raise DataError(f"config.json says quantization_config is {str(content)[:60]}; {', '.join(METHODS)} are read.")
    entries, fixed = METHODS[method]
    said = Entries(content, WHERE, entries, {})
    block = block_of(said, "weight_block_size", said.get("weight_block_size"))
    if (algorithm := said.get("quant_algo")) not in (None, "FP8"):
        raise said.wrong("quant_algo", algorithm, "FP8 is supported")
    if (groups := said.get("config_groups")) is not None or entries.get("config_groups") is NEEDED:
        block = block_of_groups(said, groups)
    said.check_empty(NO_MATTER | fixed)
    return lambda arrays: with_scales(arrays, block)


def block_of(said: Entries, key: str, value: Any) -> Block | None:
    """Returns the rows and columns of a block in an entry, or None.

    Raises:
      DataError: the entry is not a list of two integers.
    """
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and 0 < n < 2**31 for n in value):
        raise said.wrong(key, value, "two whole numbers above 0 are needed")
    return value[0], value[1]


def block_of_groups(said: Entries, groups: Any) -> Block | None:
    """Returns the rows and columns of a block for all groups of parts; None: scales are for tensors or rows.

    Raises:
      DataError: a group has other numbers, or the blocks of groups differ.
    """
    found = set[Block | None]()
    for group in groups.values() if isinstance(groups, dict) else [None]:
        weights = group.get("weights") if isinstance(group, dict) else None
        kind = (weights.get("num_bits"), weights.get("type")) if isinstance(weights, dict) else None
        if not isinstance(weights, dict) or kind != (8, "float") or weights.get("strategy") not in STRATEGIES:
            raise said.wrong("config_groups", weights, "floats of eight bits, by tensor, channel or block, are supported")
        blocks = weights.get("block_structure") if weights.get("strategy") == "block" else None
        found.add(block_of(said, "block_structure", blocks))
    if len(found) != 1:
        raise said.wrong("config_groups", groups, "all of them must have blocks of one shape")
    return found.pop()


def with_scales(arrays: Arrays, block: Block | None) -> Arrays:
    """Packs matrices of eight bits with their scales, and drops scales of activations.

    Raises:
      DataError: a scale is missing, or has another shape.
    """
    found: dict[str, Array | PackedTensor] = {}
    scales = {f"{name}{ending}" for name, array in arrays.items() if is_float8(array) for ending in SCALES}
    for name, array in arrays.items():
        if name in scales or name.rpartition(".")[2] in ACTIVATION_SCALES:
            continue
        if not isinstance(array, PackedTensor) and is_float8(array):
            scale = next((each for ending in SCALES if (each := arrays.get(f"{name}{ending}")) is not None), None)
            if scale is None:
                raise DataError(f"has a tensor {name[:60]!r} of eight bits, and no {name[:60]}{SCALES[0]}.")
            array = packed_with(name, array, np.asarray(scale, np.float32), block)
        found[name] = array
    return found


def is_float8(array: Array | PackedTensor) -> bool:
    """True for numbers with four exponent and three mantissa bits."""
    return not isinstance(array, PackedTensor) and array.dtype == ml_dtypes.float8_e4m3fn


def packed_with(name: str, array: Array, scale: Array, block: Block | None) -> PackedTensor:
    """Packs a matrix (R, K) in groups of columns, each after its scale.

    Args:
      scale:  one scale, one per row, or one per block

    Raises:
      DataError: the number of scales is wrong, or a number is NaN.
    """
    block, shape = block_and_counts(name, array, scale, block)
    rows, columns = array.shape
    length = math.gcd(block[1], columns)  # a row may end inside a block
    row_R, column_G = np.arange(rows) // block[0], np.arange(0, columns, length) // block[1]
    scale_RG1 = np.ascontiguousarray(scale.reshape(shape)[row_R[:, None], column_G])[:, :, None]
    if (array.view(np.uint8) & 0x7F == 0x7F).any():
        raise DataError(f"has a tensor {name[:60]!r} with NaN: its file is damaged.")
    numbers_RGg = array.reshape(rows, -1, length)
    if length < GROUP_MIN or length % 2:
        return plain_tensor((numbers_RGg.astype(np.float32) * scale_RG1).reshape(rows, columns))
    blocks = np.concatenate([scale_RG1.view(np.uint8), numbers_RGg.view(np.uint8)], 2)
    packing = Packing("F8_E4M3", length, length + 4, of_float8, 8)
    return PackedTensor((rows, columns), packing, blocks.reshape(-1, length + 4))


def block_and_counts(name: str, array: Array, scale: Array, block: Block | None) -> tuple[Block, Block]:
    """Returns the shape of a scale's block, and the numbers of blocks vertically and horizontally.

    Raises:
      DataError: the number of scales is wrong.
    """
    rows, columns = array.shape if array.ndim == 2 else (0, 0)
    if scale.size == 1:
        block = rows, columns
    elif scale.shape in ((rows,), (rows, 1)):
        block = 1, columns
    counts = (-(-rows // block[0]), -(-columns // block[1])) if block and rows * columns else None
    if block is None or counts is None or scale.size != math.prod(counts) or scale.ndim == 2 and scale.shape != counts:
        by_block = f", or {counts} of blocks of {block}" if counts else ""
        raise DataError(
            f"has a tensor {name[:60]!r} of {array.shape} and scales of {scale.shape};"
            f" one, {(rows, 1)} of rows{by_block} are needed."
        )
    return block, counts


def of_float8(blocks: Array) -> Groups:
    """d * q: d float32, q eight-bit floats."""
    scale = blocks[:, None, :4].copy().view("<f4")
    return Groups(np.ascontiguousarray(blocks[:, None, 4:]).view(ml_dtypes.float8_e4m3fn), scale)
