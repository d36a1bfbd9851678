"""Networks of GGUF files against the same formulas in NumPy and float64; one plan for all positions; packed weights."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, DataError, ShapeError
from picograd.tensor.variable import Length
from picograd_formats.gguf_file import GGUF, PACKINGS, PackedTensor, plain_tensor
from picograd_programs.models.decoder import Decoder, DecoderConfig, Sight
from picograd_programs.models.decoder_gguf import IN_GGUF, config_of, tensors_in
from picograd_programs.models.packed import PackedMatrix
from picograd_programs.models.rotary import Rotation
from tests.helpers import mostly_evaluated, same_value
from tests.models.numpy_decoder import numpy_logits


def sights(*windows: int, base: float = 10000.0, features: int = 8, slower: tuple[float, ...] = ()) -> tuple[Sight, ...]:
    """Returns what layers know of positions: those with a window turn by the base 10,000."""
    far, near = Rotation(features, base, slower), Rotation(features)
    return tuple(Sight(window, near if window else far) for window in windows)


LLAMA = DecoderConfig(
    vocabulary=23, context=16, layers=2, width=32, hidden=48, heads=4, shared_heads=2, features=8, sights=sights(0, 0),
    pairs_are_halves=False,
)  # fmt: skip
CONFIGS = {
    "llama": LLAMA,
    "qwen2": replace(LLAMA, pairs_are_halves=True, attention_biases=True, sights=sights(0, 0, base=1e6)),
    "qwen3": replace(
        LLAMA, features=16, pairs_are_halves=True, norms_heads=True, sights=sights(0, 0, base=1e6, features=16)
    ),
    "gemma3": replace(
        LLAMA, layers=3, shared_heads=1, pairs_are_halves=True, norms_heads=True, norms_after=True, activation="gelu_tanh",
        embedding_scale=math.sqrt(32), sights=sights(4, 4, 0, base=1e6),
    ),
}  # fmt: skip


def random_weights(config: DecoderConfig, rng: np.random.Generator, is_tied: bool = True) -> dict[str, np.ndarray]:
    """Returns weights by the names of GGUF."""
    inner, shared = config.heads * config.features, config.shared_heads * config.features
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (config.vocabulary, config.width), "output_norm": (config.width,)}
    if not is_tied:
        shapes["output"] = shapes["token_embd"]
    for layer in range(config.layers):
        part = {
            "attn_norm": (config.width,), "ffn_norm": (config.width,),
            "attn_q": (inner, config.width), "attn_k": (shared, config.width), "attn_v": (shared, config.width),
            "attn_output": (config.width, inner), "ffn_gate": (config.hidden, config.width),
            "ffn_up": (config.hidden, config.width), "ffn_down": (config.width, config.hidden),
        }  # fmt: skip
        if config.norms_heads:
            part |= {"attn_q_norm": (config.features,), "attn_k_norm": (config.features,)}
        biases = {"attn_q": inner, "attn_k": shared, "attn_v": shared} if config.attention_biases else {}
        shapes |= {f"blk.{layer}.{name}.bias": (length,) for name, length in biases.items()}
        if config.norms_after:
            part |= {"post_attention_norm": (config.width,), "post_ffw_norm": (config.width,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in part.items()}
    return {
        name + ("" if name.endswith("bias") else ".weight"): rng.normal("norm" in name, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def network(config: DecoderConfig, weights: dict[str, np.ndarray]) -> Decoder:
    return Decoder(config, {name: plain_tensor(array) for name, array in weights.items()})


@pytest.mark.req("H2")
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_the_formulas(name: str, device: str, rng: np.random.Generator) -> None:
    config = CONFIGS[name]
    weights = random_weights(config, rng, is_tied=name != "llama")
    tokens = rng.integers(0, config.vocabulary, 13)
    expected = numpy_logits(config, weights, tokens).astype(np.float32)
    same_value(network(config, weights)(Tensor(tokens[None]))[0], expected, 1e-4, 1e-5)


@pytest.mark.req("D9")
@pytest.mark.parametrize("kind", ["a tensor of factors", "linear"])
def test_angles_are_scaled_as_the_file_says(kind: str, rng: np.random.Generator) -> None:
    factors = np.array([1, 1.5, 8, 8] if kind == "a tensor of factors" else [3, 3, 3, 3], np.float32)
    config = replace(LLAMA, sights=sights(0, 0, base=500.0, slower=tuple(factors.tolist())))
    weights, tokens = random_weights(config, rng), rng.integers(0, config.vocabulary, 13)
    expected = numpy_logits(config, weights, tokens).astype(np.float32)
    assert np.abs(expected - numpy_logits(replace(config, sights=sights(0, 0, base=500.0)), weights, tokens)).max() > 0.1
    metadata = {key.replace("gemma3", "llama"): value for key, value in METADATA.items()} | {
        "general.architecture": "llama", "llama.embedding_length": 32, "llama.block_count": 2,
        "llama.rope.freq_base": 500.0, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 8,
        "llama.feed_forward_length": 48, "llama.context_length": 16, "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    del metadata["llama.attention.sliding_window"]
    tensors = {name: plain_tensor(array) for name, array in weights.items()}
    if kind == "linear":
        metadata |= {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 3.0}
    else:
        tensors["rope_freqs.weight"] = plain_tensor(factors)
    file = GGUF(metadata, tensors)
    assert config_of(file) == config
    same_value(Decoder(config_of(file), tensors_in(file))(Tensor(tokens[None]))[0], expected, 1e-4, 1e-5)
    wrong = GGUF(metadata, {**tensors, "rope_freqs.weight": plain_tensor(np.ones(3))})
    with pytest.raises(DataError, match=r"rope_freqs.weight of \(4,\), it has one of \(3,\)"):
        config_of(wrong)


@pytest.mark.req("D9")
@mostly_evaluated(every=5)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_text_read_in_pieces_is_the_text_read_at_once_with_one_plan_for_a_length(
    name: str, device: str, rng: np.random.Generator
) -> None:
    config = CONFIGS[name]
    model = network(config, random_weights(config, rng))
    tokens, cache, place = rng.integers(0, config.vocabulary, (1, 16)), model.cache(1), pg.Variable("position", 0, 12)

    @pg.jit
    def read(piece: Tensor, position: Length) -> Tensor:
        return model.logits(model.read_on(piece, cache, position))

    pieces = [(0, 4), (4, 4), (8, 1), (9, 1), (10, 1), (11, 4)]
    found = [read(Tensor(tokens[:, at : at + n]), place.bind(at)).numpy() for at, n in pieces]
    assert read.num_captures == 2, "one for four tokens, one for one"
    same_value(np.concatenate(found, 1), model(Tensor(tokens[:, :15])), 1e-4, 1e-5)


@pytest.mark.req("I4")
@pytest.mark.parametrize("kind", PACKINGS, ids=lambda kind: PACKINGS[kind].name)
def test_a_packed_matrix_is_the_unpacked_one(kind: int, device: str, rng: np.random.Generator) -> None:
    packing = PACKINGS[kind]
    blocks = rng.integers(0, 256, (6 * 512 // packing.numel, packing.nbytes), dtype=np.uint8)
    scales_at = {"Q6_K": (208,), "Q3_K": (108,), "Q2_K": (80, 82), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2)}
    for start in scales_at.get(packing.name, (0, 2) if packing.name == "Q5_K" else (0,)):
        if packing.bits:
            scales = rng.normal(size=(len(blocks), 1)).astype("<f2")
            blocks[:, start : start + 2] = scales.view(np.uint8)
    if packing.name == "MXFP4":
        blocks[:, 0] = rng.integers(120, 132, len(blocks))  # exponents
    if not packing.bits:
        values = rng.normal(size=(6, 512)).astype(np.float32)
        blocks = {"F32": values, "F16": values.astype("<f2"), "F64": values.astype("<f8")}.get(
            packing.name, (values.view(np.uint32) >> 16).astype("<u2")
        ).reshape(-1, 1).view(np.uint8)  # fmt: skip
    tensor = PackedTensor((6, 512), packing, blocks)
    matrix, expected = PackedMatrix(tensor), tensor.unpacked()
    np.testing.assert_array_equal(matrix.weight().numpy(), expected)
    np.testing.assert_array_equal(matrix.rows(Tensor([[5, 0], [3, 3]])).numpy(), expected[[[5, 0], [3, 3]]])
    x = rng.normal(size=(3, 512)).astype(np.float32)
    for rows in (x[:1], x):
        exact = (rows.astype(np.float64) @ expected.T).astype(np.float32)
        same_value(matrix(Tensor(rows)), exact, 0, 1e-6 * float((np.abs(rows) @ np.abs(expected.T)).max()))


@pytest.mark.req("I4")
def test_weights_of_four_and_eight_bits_stay_packed_in_memory(rng: np.random.Generator) -> None:
    def nbytes(kind: int) -> int:
        packing = PACKINGS[kind]
        blocks = np.zeros((64 * 512 // packing.numel, packing.nbytes), np.uint8)
        return PackedMatrix(PackedTensor((64, 512), packing, blocks)).nbytes()

    numbers = {"Q4_1": 4, "Q4_0": 4, "Q4_K": 4, "Q8_0": 8, "Q6_K": 8, "IQ4_NL": 8, "MXFP4": 4}
    for kind, packing in PACKINGS.items():
        if packing.name in numbers:  # and float32 for one or two scales of each 16 or 32
            assert nbytes(kind) <= 64 * 512 * (numbers[packing.name] / 8 + 2 * 4 / 32), packing.name


def test_tokens_that_do_not_fit(rng: np.random.Generator) -> None:
    model = network(LLAMA, random_weights(LLAMA, rng))
    cache = model.cache(1, 8)
    for tokens, position in [(Tensor([1, 2]), 0), (Tensor([[1], [2]]), 0), (Tensor([[1, 2]]), 7)]:
        with pytest.raises(ShapeError, match="end by its 8 positions"):
            model.read_on(tokens, cache, position)
    with pytest.raises(ArgumentError, match="from 1 to 16, got 17"):
        model.cache(1, 17)


def test_weights_of_another_network_are_data_errors(rng: np.random.Generator) -> None:
    weights = random_weights(LLAMA, rng)
    for name, array, words in [
        ("blk.1.ffn_up.weight", None, r"blk.1.ffn_up.weight of \(48, 32\), it has none"),
        ("blk.0.attn_k.weight", np.zeros((32, 32)), r"attn_k.weight of \(16, 32\), it has one of \(32, 32\)"),
        ("blk.0.attn_q.bias", np.zeros(32), "'blk.0.attn_q.bias', which this network does not have"),
    ]:
        changed = {key: value for key, value in {**weights, name: array}.items() if value is not None}
        with pytest.raises(DataError, match=words):
            network(LLAMA, changed)


METADATA: dict[str, Any] = {
    "general.architecture": "gemma3", "gemma3.context_length": 64, "gemma3.embedding_length": 16, "gemma3.block_count": 1,
    "gemma3.feed_forward_length": 32, "gemma3.attention.head_count": 2, "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6, "gemma3.rope.freq_base": 1e6, "gemma3.attention.key_length": 4,
    "gemma3.attention.sliding_window": 8,
}  # fmt: skip
TABLE = {"token_embd.weight": plain_tensor(np.zeros((5, 16)))}


def test_settings_come_from_the_metadata() -> None:
    assert config_of(GGUF(METADATA, TABLE)) == DecoderConfig(
        vocabulary=5, context=64, layers=1, width=16, hidden=32, heads=2, shared_heads=1, features=4, eps=1e-6,
        sights=(Sight(8, Rotation(4)),), norms_heads=True, norms_after=True, activation="gelu_tanh", embedding_scale=4.0,
    )  # fmt: skip


def test_a_file_may_say_that_angles_are_slower() -> None:
    six = METADATA | {"gemma3.block_count": 6}
    tables = TABLE | {f"a{number}": TABLE["token_embd.weight"] for number in range(5)}
    linear = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    found = config_of(GGUF(six | linear, tables)).sights
    assert found == (Sight(8, Rotation(4)),) * 5 + (Sight(0, Rotation(4, 1e6, (8.0, 8.0))),)
    assert config_of(GGUF(six | {"gemma3.rope.scaling.type": "none"}, tables)).sights[5].rotation == Rotation(
        4, 1e6, (1.0, 1.0)
    )
    qwen2 = {name.replace("gemma3", "qwen2"): "qwen2" if value == "gemma3" else value for name, value in METADATA.items()}
    assert config_of(GGUF(qwen2, TABLE)).attention_biases


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("general.architecture", "mamba", f"type 'mamba'; {', '.join(IN_GGUF)} are run"),
        ("gemma3.block_count", 0, "the file says block_count is 0; a whole number above 0 is needed"),
        ("gemma3.block_count", 1.5, "the file says block_count is 1.5; a whole number"),
        ("gemma3.context_length", "many", "context_length is many"),
        ("gemma3.attention.head_count_kv", 3, "2 heads of 4 features, 3 of keys and values, for a width of 16: heads must"),
        ("gemma3.attention.key_length", 5, "2 heads of 5 features"),
        ("tokenizer.ggml.tokens", ["a"] * 6, "table token_embd.weight of (5, 16) has vectors of 5 tokens, and the"),
        ("tokenizer.ggml.tokens", ["a", "b"], "has 2: they belong to different models"),
        ("gemma3.rope.dimension_count", 3, "the file rotates 3 of 4 features of a head; an even number is needed"),
        ("gemma3.rope.scaling.type", "yarn", "the file's rope.scaling has no factor"),
        ("gemma3.rope.scaling.type", ["linear"], "says rope.scaling is {'rope_type': ['linear']}; a dict of type"),
    ],
)
def test_metadata_of_another_network_are_data_errors(key: str, value: object, words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        config_of(GGUF({**METADATA, key: value}, TABLE))


def test_heads_that_do_not_divide_the_width_are_a_data_error() -> None:
    metadata = {name: value for name, value in METADATA.items() if not name.endswith("key_length")}
    with pytest.raises(DataError, match="3 heads of 5 features, 1 of keys and values, for a width of 16: heads must"):
        config_of(GGUF({**metadata, "gemma3.attention.head_count": 3}, TABLE))


@pytest.mark.parametrize("is_tied", [True, False])
def test_rows_that_fill_up_a_table_are_left_out(is_tied: bool, rng: np.random.Generator) -> None:
    weights, tokens = random_weights(LLAMA, rng, is_tied), rng.integers(0, LLAMA.vocabulary, 9)
    metadata = {key.replace("gemma3", "llama"): value for key, value in METADATA.items()}
    metadata |= {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a"] * LLAMA.vocabulary}
    tables = [name for name in ("token_embd.weight", "output.weight") if name in weights]
    filled = weights | {name: np.concatenate([weights[name], np.full((9, 32), 9.0, np.float32)]) for name in tables}
    packed = {name: plain_tensor(array) for name, array in filled.items()}
    assert config_of(GGUF(metadata, packed)).vocabulary == LLAMA.vocabulary
    found = Decoder(LLAMA, packed)(Tensor(tokens[None]))[0]
    same_value(found, numpy_logits(LLAMA, weights, tokens).astype(np.float32), 1e-4, 1e-5)
    with pytest.raises(DataError, match=r"token_embd.weight of \(33, 32\), it has one of \(32, 32\)"):
        network(replace(LLAMA, vocabulary=33), filled)
