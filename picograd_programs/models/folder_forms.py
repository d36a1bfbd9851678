"""Converts tensors of published folders that do not correspond one to one to a Decoder's.

Source: Hugging Face, transformers, the networks of these names; Open Compute Project 2023, Microscaling Formats (MX), 1.0.

Letters: E experts, R rows, K columns, G groups of 32 columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from picograd.errors import DataError
from picograd_formats.gguf_file import MXFP4, Array, PackedTensor

Arrays = Mapping[str, Array | PackedTensor]
OF_BOTH = re.compile(r"(.+\.experts\.)gate_up_proj(_bias|)")
OF_ONE = re.compile(r"(.+\.experts\.down_proj)(_bias|)")
HEADS = re.compile(r"(?:head|decoder|classifier)\..+")  # of other tasks than embeddings
CORRECTION = re.compile(r"(.+)_(bias)")
OF_CONV1D = re.compile(r"(?:.+\.)?c_(?:attn|proj|fc)\.weight")


def of_gpt_oss(arrays: Arrays) -> Arrays:
    """Splits the experts' matrices into gates and values, transposes plain ones, and packs those of four bits.

    Gates and values alternate: rows 0, 2, 4, ... are gates. Plain matrices have a column for each output.
    """
    found: dict[str, Array | PackedTensor] = {}
    whole = {name.removesuffix("_blocks"): array for name, array in arrays.items() if not name.endswith("_scales")}
    for name, array in whole.items():
        if f"{name}_blocks" in arrays:
            array = four_bits(name, arrays)
        elif name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            array = np.asarray(array).swapaxes(1, 2)
        if both := OF_BOTH.fullmatch(name):
            ending = "bias" if both[2] else "weight"
            for first, part in enumerate(("gate_proj", "up_proj")):
                found[f"{both[1]}{part}.{ending}"] = every_second(array, first)
        elif one := OF_ONE.fullmatch(name):
            found[f"{one[1]}.{'bias' if one[2] else 'weight'}"] = array
        else:
            found[f"{name}.weight" if name.endswith(".sinks") else name] = array
    return found


def every_second(array: Array | PackedTensor, first: int) -> Array | PackedTensor:
    """Returns every second row of each expert, (E, 2R, ...) -> (E, R, ...)."""
    if not isinstance(array, PackedTensor):
        return array[:, first::2]
    experts, rows, columns = array.shape
    blocks = array.blocks.reshape(experts, rows, -1, array.blocks.shape[1])[:, first::2]
    return PackedTensor((experts, blocks.shape[1], columns), array.packing, blocks.reshape(-1, blocks.shape[3]))


def four_bits(name: str, arrays: Arrays) -> PackedTensor:
    """Packs a matrix of each expert in GGUF's blocks, from `name`_blocks (E, R, G, 16) and `name`_scales (E, R, G).

    A byte has two consecutive numbers here, and in a block one of each half of a group.

    Raises:
      DataError: blocks and scales do not fit.
    """
    numbers, scales = (np.asarray(arrays.get(f"{name}_{part}", ())) for part in ("blocks", "scales"))
    if numbers.dtype != np.uint8 or scales.dtype != np.uint8 or numbers.shape != (*scales.shape, 16) or scales.ndim != 3:
        raise DataError(
            f"has {name}_blocks of {numbers.shape}, {numbers.dtype}, and scales of {scales.shape}, {scales.dtype}."
        )
    codes = np.stack([numbers & 15, numbers >> 4], -1).reshape(-1, 2, 16)
    blocks = np.concatenate([scales.reshape(-1, 1), codes[:, 0] | codes[:, 1] << 4], 1)
    return PackedTensor((*scales.shape[:2], 32 * scales.shape[2]), MXFP4, blocks)


def with_corrections(arrays: Arrays) -> Arrays:
    """Renames the corrections of expert scores to biases."""
    return {
        CORRECTION.sub(r"\1.\2", name) if name.endswith("correction_bias") else name: array
        for name, array in arrays.items()
    }


def of_conv1d(arrays: Arrays) -> Arrays:
    """Transposes GPT-2's matrices, which have a column for each output."""
    return {
        name: array.T if OF_CONV1D.fullmatch(name) and not isinstance(array, PackedTensor) else array
        for name, array in arrays.items()
    }


def without_heads(arrays: Arrays) -> Arrays:
    """Removes tensors after an encoder's last layer."""
    return {name: array for name, array in arrays.items() if not HEADS.fullmatch(name)}
