"""Folders whose matrices are floats of eight bits: the values that their bits and scales say, kept in a byte each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from picograd import Tensor
from picograd.errors import DataError
from picograd_programs.chat.answer import Choice, Plans, Reader
from picograd_programs.chat.run import opened
from picograd_programs.models.float8 import packed_with
from picograd_programs.models.packed import PackedMatrix
from tests.chat.test_answer import check_rows
from tests.models.published import Said, Weights, config_of, logits_of, random_weights
from tests.models.test_decoder_folder import write_folder

GROUP: Said = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "observer": "minmax"}
LLAMA: Said = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "version": "0.9",
    "quantization_status": "compressed", "kv_cache_scheme": None, "sparsity_config": {},
}  # fmt: skip
WAYS: dict[str, tuple[str, tuple[int, int] | None, str, Said]] = {  # a network, its blocks, the ends of names of scales
    "Qwen 3 by blocks": ("Qwen 3", (20, 16), "_scale_inv", {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [20, 16]}),
    "experts by blocks": ("Qwen 3 with experts", (16, 16), "_scale_inv", {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16],
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}),
    "DeepSeek V3 by blocks that fill no row": ("DeepSeek V3", (20, 24), "_scale_inv", {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [20, 24],
        "scale_fmt": "ue8m0"}),
    "Llama by rows": ("Llama 3.1", (1, 0), "_scale", LLAMA | {"config_groups": {"group_0": {
        "weights": GROUP | {"strategy": "channel"}, "targets": ["Linear"]}}}),
    "Llama by tensors": ("Llama 2", None, "_scale", LLAMA | {"config_groups": {"group_0": {
        "weights": GROUP | {"strategy": "tensor"}, "targets": ["Linear"]}}}),
    "Phi-3 by rows": ("Phi-3", (1, 0), "_scale", {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}),
    "StarCoder's heads": ("StarCoder", None, "_scale", {"quant_method": "modelopt", "quant_algo": "FP8"}),
}  # fmt: skip


def in_eight_bits(weights: Weights, block: tuple[int, int] | None, ending: str) -> tuple[Weights, Weights]:
    """Returns what a folder has, and the weights that it means; tables and routers of experts stay as they are."""
    stored, meant = dict(weights), dict(weights)
    for name, value in weights.items():
        if value.ndim != 2 or any(part in name for part in ("embed", "lm_head", "wte", "wpe", "mlp.gate.")):
            continue
        rows, columns = block or value.shape
        whole = torch.nn.functional.pad(value.float(), (0, -value.shape[1] % (columns or 1), 0, -value.shape[0] % rows))
        columns = columns or value.shape[1]
        blocks = whole.unflatten(1, (-1, columns)).unflatten(0, (-1, rows))  # (blocks, rows, blocks, columns)
        scale = blocks.abs().amax((1, 3), keepdim=True) / 448
        eight = (blocks / scale).to(torch.float8_e4m3fn)
        meant[name] = (eight.float() * scale).flatten(2).flatten(0, 1)[: value.shape[0], : value.shape[1]]
        stored[name] = eight.flatten(2).flatten(0, 1)[: value.shape[0], : value.shape[1]].contiguous()
        stored[f"{name}{ending}"] = scale[:, 0, :, 0] if block else scale.reshape(())
        stored[f"{name.removesuffix('weight')}input_scale"] = torch.ones(1)
    return stored, meant


@pytest.mark.req("C9", "D9")
@pytest.mark.parametrize("way", WAYS)
def test_a_folder_in_eight_bits_has_the_logits_and_the_text_of_the_values_that_they_mean(
    way: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    name, block, ending, quantization = WAYS[way]
    said = config_of(name)
    stored, meant = in_eight_bits(random_weights(said), block, ending)
    tokens = rng.integers(0, 257, 20)
    write_folder(tmp_path, said | {"quantization_config": quantization}, stored, num_parts=1 + len(name) % 3)
    model = opened(str(tmp_path), 64)[0]
    np.testing.assert_allclose(model(Tensor(tokens[None]))[0].numpy(), logits_of(said, meant, tokens), rtol=1e-3, atol=1e-4)
    text = [*tokens.tolist()]
    for _ in range(4):
        text.append(int(logits_of(said, meant, np.array(text))[-1].argmax()))
    answer = Reader(Plans(model, 64)).answer(tokens.tolist(), set(), 4, Choice(temperature=0.0, repetition=1.0), 0)
    assert [*answer] == text[20:]


@pytest.mark.parametrize("way", ["Qwen 3 by blocks", "experts by blocks", "Llama by rows"])
def test_a_text_in_eight_bits_has_the_same_bits_alone_and_among_others(
    way: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    name, block, ending, quantization = WAYS[way]
    said = config_of(name)
    stored, _ = in_eight_bits(random_weights(said), block, ending)
    write_folder(tmp_path, said | {"quantization_config": quantization}, stored)
    check_rows(opened(str(tmp_path), 64)[0], rng)


@pytest.mark.parametrize("block", [None, (1, 256), (128, 128), (128, 96)])
def test_a_matrix_takes_a_byte_for_a_number_and_has_all_floats_of_eight_bits(
    block: tuple[int, int] | None, rng: np.random.Generator
) -> None:
    array = np.tile(np.arange(256, dtype=np.uint8), (200, 1)).view(ml_dtypes.float8_e4m3fn)
    array = np.where(np.isnan(array.astype(np.float32)), np.zeros_like(array), array)  # all 254 that are numbers
    rows, columns = block or (200, 256)
    scale = rng.random((-(-200 // rows), -(-256 // columns)), np.float32)
    matrix = PackedMatrix(packed_with("w", array, scale, block))
    expected = array.astype(np.float32) * np.repeat(np.repeat(scale, rows, 0)[:200], columns, 1)[:, :256]
    np.testing.assert_array_equal(matrix.weight().numpy(), expected)
    np.testing.assert_array_equal(matrix.rows(Tensor([[3, 150, 3]]))[0].numpy(), expected[[3, 150, 3]])
    chosen = matrix.parts(Tensor([3, 0]), 4).numpy()
    np.testing.assert_array_equal(chosen, expected.reshape(4, 50, 256)[[3, 0]])
    x = rng.standard_normal((1, 1, 256)).astype(np.float32)
    np.testing.assert_allclose(matrix(Tensor(x)).numpy(), x @ expected.T, rtol=1e-4, atol=1e-2)
    groups = 256 // np.gcd(columns, 256)
    assert matrix.nbytes() == 200 * (256 + 4 * groups)


@pytest.mark.parametrize("columns", [64, 128, 256, 512])
def test_a_row_has_the_same_bits_alone_and_among_others_whatever_the_groups(columns: int, rng: np.random.Generator) -> None:
    array = rng.standard_normal((96, 512)).astype(ml_dtypes.float8_e4m3fn)
    both = [packed_with("w", array, rng.random((96, 512 // columns), np.float32), (1, columns)) for _ in range(2)]
    gate, up = (PackedMatrix(each) for each in both)
    x = rng.standard_normal((8, 1, 512)).astype(np.float32)

    def opened(rows: Tensor) -> Tensor:
        return gate(rows).sigmoid() * up(rows)

    alone = [opened(Tensor(row[None]))[0].numpy() for row in x]
    for num in (2, 3, 8):
        np.testing.assert_array_equal(opened(Tensor(x[:num])).numpy(), alone[:num])


CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("Qwen 3 by blocks", {"quant_method": "gptq"}, "says quantization_config is {'quant_method': 'gptq'"),
    ("Qwen 3 by blocks", {"fmt": "e5m2"}, "says fmt is e5m2; only e4m3 is supported"),
    ("Qwen 3 by blocks", {"weight_block_size": [128]}, "says weight_block_size is [128]; two whole numbers above 0"),
    ("Qwen 3 by blocks", {"lm_head": True}, "says lm_head is True, which is not supported"),
    ("Llama by rows", {"format": "pack-quantized"}, "says format is pack-quantized; only float-quantized"),
    ("Llama by rows", {"config_groups": None}, "says config_groups is None"),
    ("Llama by rows", {"config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}}}, "of eight bits, by tensor"),
    ("Llama by rows", {"config_groups": {"a": {"weights": GROUP | {"strategy": "group"}}}}, "by tensor, channel or block"),
    ("Llama by rows", {"transform_config": {"a": 1}}, "says transform_config is {'a': 1}; only {} is supported"),
    ("StarCoder's heads", {"quant_algo": "NVFP4"}, "says quant_algo is NVFP4; FP8 is supported"),
]


@pytest.mark.parametrize(("way", "change", "words"), CHANGES)
def test_numbers_of_other_bits_are_refused_before_weights_are_looked_for(
    way: str, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    name, _, _, quantization = WAYS[way]
    write_folder(tmp_path, config_of(name) | {"quantization_config": quantization | change}, None)
    with pytest.raises(DataError) as caught:
        opened(str(tmp_path), 64)
    assert words in caught.value.fact and str(tmp_path) in caught.value.fact


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (None, "'model.layers.1.mlp.up_proj.weight' of eight bits, and no model.layers.1.mlp.up_proj.weight_scale"),
        (torch.ones(7), "of (48, 32) and scales of (7,); one, (48, 1) of rows, or (3, 2) of blocks of (20, 16) are needed"),
        (torch.ones(2, 3), "and scales of (2, 3); one"),
    ],
)
def test_scales_that_do_not_fit_are_named(scale: torch.Tensor | None, words: str, tmp_path: Path) -> None:
    name, block, ending, quantization = WAYS["Qwen 3 by blocks"]
    stored, _ = in_eight_bits(random_weights(config_of(name)), block, ending)
    key = "model.layers.1.mlp.up_proj.weight_scale_inv"
    stored = {**stored, key: scale} if scale is not None else {k: v for k, v in stored.items() if k != key}
    write_folder(tmp_path, config_of(name) | {"quantization_config": quantization}, stored)
    with pytest.raises(DataError) as caught:
        opened(str(tmp_path), 64)
    assert words in caught.value.fact and str(tmp_path) in caught.value.fact


def test_a_matrix_that_is_damaged_is_named(tmp_path: Path) -> None:
    name, block, ending, quantization = WAYS["Qwen 3 by blocks"]
    stored, _ = in_eight_bits(random_weights(config_of(name)), block, ending)
    stored["model.layers.0.mlp.up_proj.weight"].view(torch.uint8)[3, 4] = 0xFF
    write_folder(tmp_path, config_of(name) | {"quantization_config": quantization}, stored)
    with pytest.raises(DataError, match=r"layers.0.mlp.up_proj.weight' with NaN"):
        opened(str(tmp_path), 64)


def test_eight_bits_of_which_the_configuration_says_nothing_are_refused(tmp_path: Path) -> None:
    name, block, ending, _ = WAYS["Qwen 3 by blocks"]
    stored, _ = in_eight_bits(random_weights(config_of(name)), block, ending)
    write_folder(tmp_path, config_of(name), stored)
    with pytest.raises(DataError, match="which this network does not have"):
        opened(str(tmp_path), 64)
