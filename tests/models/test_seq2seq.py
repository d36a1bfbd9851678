"""Folders of T5 and BART: logits and texts of their equations, plans that do not grow, and refusals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as TF

from picograd import Tensor
from picograd.errors import ArgumentError, DataError
from picograd_programs import cli
from picograd_programs.chat.answer import Choice
from picograd_programs.chat.run import Chat, TextToText
from picograd_programs.chat.search import Search
from picograd_programs.chat.writer import Way, Writer, tokens_of
from picograd_programs.data.sentencepiece import CONTROL, NORMAL, UNKNOWN
from picograd_programs.models.seq2seq_folder import Lengths, is_seq2seq, lengths_of, read_seq2seq
from tests.data.test_sentencepiece import write as write_pieces
from tests.models.torch_layers import NamedLayers

Said = dict[str, Any]
Weights = dict[str, torch.Tensor]
PIECES = ["<pad>", "</s>", "<unk>", "\u2581", *"abcdefghijklmnopqrstuvwxyz:.", "\u2581the", "er", "<extra_id_0>"]
SIZES: Said = {
    "model_type": "t5", "vocab_size": 40, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 3, "num_heads": 3,
    "relative_attention_num_buckets": 8, "layer_norm_epsilon": 1e-6, "dropout_rate": 0.1, "n_positions": 512,
    "is_encoder_decoder": True, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "use_cache": True,
    "initializer_factor": 1.0, "architectures": ["T5ForConditionalGeneration"], "torch_dtype": "float32",
}  # fmt: skip
CONFIGS: dict[str, Said] = {
    "T5": SIZES | {"output_past": True, "task_specific_params": {"translation_en_to_de": {"max_length": 300}}},
    "flan-T5": SIZES | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "is_gated_act": True,
                        "dense_act_fn": "gelu_new", "relative_attention_max_distance": 128, "num_decoder_layers": 2},
    "mT5": SIZES | {"model_type": "mt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_layers": 2},
    "flan-T5 of today": SIZES | {"feed_forward_proj": "gated-gelu", "scale_decoder_outputs": False},
    "T5 with SiLU": SIZES | {"feed_forward_proj": "gated-silu", "relative_attention_num_buckets": 32},
}  # fmt: skip


def is_scaled(said: Said) -> bool:
    """True where the table of tokens is the output layer."""
    return bool(said.get("scale_decoder_outputs", said.get("tie_word_embeddings", True)))


def drawn(said: Said) -> Weights:
    """Returns weights by their published names."""
    generator, width, inner = torch.Generator().manual_seed(0), said["d_model"], said["d_kv"] * said["num_heads"]
    is_gated = said.get("feed_forward_proj", "relu").startswith("gated")
    shapes: dict[str, tuple[int, ...]] = {"shared": (said["vocab_size"], width)}
    if not is_scaled(said):
        shapes["lm_head"] = (said["vocab_size"], width)
    for side, layers in (("encoder", said["num_layers"]), ("decoder", said.get("num_decoder_layers", said["num_layers"]))):
        kinds = ["SelfAttention"] + ["EncDecAttention"] * (side == "decoder")
        shapes[f"{side}.final_layer_norm"] = (width,)
        shapes[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"] = (
            said["relative_attention_num_buckets"], said["num_heads"],
        )  # fmt: skip
        for layer in range(layers):
            for place, kind in enumerate([*kinds, "DenseReluDense"]):
                part = f"{side}.block.{layer}.layer.{place}"
                shapes[f"{part}.layer_norm"] = (width,)
                if kind == "DenseReluDense":
                    for name in ("wi_0", "wi_1") if is_gated else ("wi",):
                        shapes[f"{part}.{kind}.{name}"] = (said["d_ff"], width)
                    shapes[f"{part}.{kind}.wo"] = (width, said["d_ff"])
                else:
                    shapes |= {f"{part}.{kind}.{name}": (inner, width) for name in "qkv"}
                    shapes[f"{part}.{kind}.o"] = (width, inner)
    scale = {1: 0.1, 2: 0.2}
    return {
        f"{name}.weight": torch.randn(*shape, generator=generator) * scale[len(shape)] + (len(shape) == 1)
        for name, shape in shapes.items()
    }


def bucket(distance: int, num: int) -> int:
    """The bucket of how far behind something is: one each for half of them, then by its logarithm up to 128."""
    exact = num // 2
    if distance < exact:
        return distance
    return min(num - 1, exact + int(math.log(distance / exact) / math.log(128 / exact) * (num - exact) + 1e-9))


def logits_of(said: Said, weights: Weights, text: list[int], written: list[int]) -> torch.Tensor:
    """The logits after each token that is written, from the equations of T5, float64: (T, V)."""
    w = {name.removesuffix(".weight"): value.double() for name, value in weights.items()}
    heads, num = said["num_heads"], said["relative_attention_num_buckets"]
    way = said.get("feed_forward_proj", "relu")

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + said["layer_norm_epsilon"]).sqrt() * w[name]

    def attention(x: torch.Tensor, memory: torch.Tensor, name: str, added: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            (each @ w[f"{name}.{part}"].T).unflatten(1, (heads, -1)).transpose(0, 1)
            for part, each in (("q", x), ("k", memory), ("v", memory))
        )
        y = (q @ k.transpose(1, 2) + added).softmax(-1) @ v  # scores are not scaled
        return y.transpose(0, 1).flatten(1) @ w[f"{name}.o"].T

    def feed_forward(x: torch.Tensor, name: str) -> torch.Tensor:
        if way == "relu":
            return (x @ w[f"{name}.wi"].T).relu() @ w[f"{name}.wo"].T
        gate = x @ w[f"{name}.wi_0"].T
        gate = TF.gelu(gate, approximate="tanh") if way == "gated-gelu" else TF.silu(gate)
        return (gate * (x @ w[f"{name}.wi_1"].T)) @ w[f"{name}.wo"].T

    def bias(length: int, side: str) -> torch.Tensor:
        table = w[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"]
        out = torch.full((heads, length, length), -math.inf, dtype=torch.float64)
        for query in range(length):
            for key in range(length):
                if side == "encoder":
                    out[:, query, key] = table[bucket(abs(query - key), num // 2) + (num // 2 if key > query else 0)]
                elif key <= query:
                    out[:, query, key] = table[bucket(query - key, num)]
        return out

    x, added = w["shared"][text], bias(len(text), "encoder")
    for layer in range(said["num_layers"]):
        part = f"encoder.block.{layer}.layer"
        seen = norm(x, f"{part}.0.layer_norm")
        x = x + attention(seen, seen, f"{part}.0.SelfAttention", added)
        x = x + feed_forward(norm(x, f"{part}.1.layer_norm"), f"{part}.1.DenseReluDense")
    memory, nothing = norm(x, "encoder.final_layer_norm"), torch.zeros(1)
    x, added = w["shared"][written], bias(len(written), "decoder")
    for layer in range(said.get("num_decoder_layers", said["num_layers"])):
        part = f"decoder.block.{layer}.layer"
        seen = norm(x, f"{part}.0.layer_norm")
        x = x + attention(seen, seen, f"{part}.0.SelfAttention", added)
        x = x + attention(norm(x, f"{part}.1.layer_norm"), memory, f"{part}.1.EncDecAttention", nothing)
        x = x + feed_forward(norm(x, f"{part}.2.layer_norm"), f"{part}.2.DenseReluDense")
    x = norm(x, "decoder.final_layer_norm")
    if is_scaled(said):
        return x * said["d_model"] ** -0.5 @ w["shared"].T
    return x @ w["lm_head"].T


# ---- BART ----
BART: Said = {
    "model_type": "bart", "vocab_size": 40, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "activation_function": "gelu",
    "max_position_embeddings": 50, "scale_embedding": False, "is_encoder_decoder": True, "decoder_start_token_id": 1,
    "eos_token_id": 1, "forced_bos_token_id": 0, "forced_eos_token_id": 1, "normalize_before": False, "dropout": 0.1,
    "num_hidden_layers": 2, "init_std": 0.02, "num_beams": 4, "no_repeat_ngram_size": 3, "add_final_layer_norm": False,
}  # fmt: skip


# What its relatives change. Files of M2M-100 and NLLB do not say how they are made.
PRE: Said = {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False, "scale_embedding": True}
RELATIVES: dict[str, Said] = {
    "mBART": {"model_type": "mbart"} | PRE | {"normalize_embedding": True, "activation_function": "relu"},
    "NLLB": {"model_type": "m2m_100", "scale_embedding": True, "activation_function": "relu"},
    "Pegasus": {"model_type": "pegasus", "static_position_embeddings": True, "forced_bos_token_id": None,
                "do_blenderbot_90_layernorm": False, "extra_pos_embeddings": 0, "save_step": 500} | PRE,
    "Marian": {"model_type": "marian", "scale_embedding": True, "static_position_embeddings": True,
               "normalize_embedding": False, "activation_function": "swish", "forced_bos_token_id": None,
               "share_encoder_decoder_embeddings": True, "decoder_vocab_size": 40, "add_bias_logits": True},
}  # fmt: skip
UNSAID = ("normalize_before", "add_final_layer_norm")  # by NLLB's files


def bart_like(name: str) -> Said:
    """Returns the configuration of a relative of BART."""
    said = BART | RELATIVES[name]
    return {key: value for key, value in said.items() if name != "NLLB" or key not in UNSAID}


def bart_weights(said: Said) -> Weights:
    """Returns weights by their published names."""
    generator, width, hidden = torch.Generator().manual_seed(0), said["d_model"], said["encoder_ffn_dim"]
    shapes: dict[str, tuple[int, ...]] = {"model.shared.weight": (said["vocab_size"], width)}
    kind = said["model_type"]
    for side in ("encoder", "decoder"):
        if kind in ("bart", "mbart"):
            shapes[f"model.{side}.embed_positions.weight"] = (said["max_position_embeddings"] + 2, width)
        norms = ["layernorm_embedding"] * (kind in ("bart", "mbart")) + ["layer_norm"] * (kind not in ("bart", "marian"))
        for layer in range(said[f"{side}_layers"]):
            part = f"layers.{layer}"
            norms += [f"{part}.self_attn_layer_norm", f"{part}.final_layer_norm"]
            norms += [f"{part}.encoder_attn_layer_norm"] * (side == "decoder")
            linear = {f"{kind}.{name}_proj": (width, width) for kind in ("self_attn", "encoder_attn") for name in "qkv"}
            linear |= {f"{kind}.out_proj": (width, width) for kind in ("self_attn", "encoder_attn")}
            linear |= {"fc1": (hidden, width), "fc2": (width, hidden)}
            for name, shape in linear.items():
                if side == "decoder" or not name.startswith("encoder_attn"):
                    shapes[f"model.{side}.{part}.{name}.weight"] = shape
                    shapes[f"model.{side}.{part}.{name}.bias"] = shape[:1]
        shapes |= {f"model.{side}.{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    return {
        name: torch.randn(*shape, generator=generator) * (0.3 if len(shape) > 1 else 0.1) + ("norm" in name)
        for name, shape in shapes.items()
    } | {"final_logits_bias": torch.randn(1, said["vocab_size"], generator=generator) * (kind == "marian")}


def waves(said: Said) -> torch.Tensor:
    """The table of positions of a network whose files have none: sines, then cosines."""
    half, is_m2m = said["d_model"] // 2, said["model_type"] == "m2m_100"
    table = torch.zeros(said["max_position_embeddings"] + 2, 2 * half, dtype=torch.float64)
    for place in range(len(table)):
        for wave in range(half):
            angle = place / 10000 ** (wave / (half - 1 if is_m2m else half))
            table[place, wave], table[place, half + wave] = math.sin(angle), math.cos(angle)
    return table[2 if is_m2m else 0 :]


def bart_logits(said: Said, weights: Weights, text: list[int], written: list[int]) -> torch.Tensor:
    """The logits after each token that is written, from the equations of BART, float64: (T, V)."""
    layers = NamedLayers(weights, 4)
    w, linear, norm, attention = layers.weights, layers.linear, layers.norm, layers.attention
    scale = said["d_model"] ** 0.5 if said["scale_embedding"] else 1.0

    kind, act = said["model_type"], {"gelu": TF.gelu, "relu": TF.relu, "swish": TF.silu}[said["activation_function"]]

    def begin(tokens: list[int], side: str) -> torch.Tensor:
        table = w[f"{side}.embed_positions.weight"][2:] if kind in ("bart", "mbart") else waves(said)
        x = w["shared.weight"][tokens] * scale + table[: len(tokens)]
        return norm(x, f"{side}.layernorm_embedding") if kind in ("bart", "mbart") else x

    def added(x: torch.Tensor, name: str, part: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        if kind in ("bart", "marian"):
            return norm(x + part(x), name)
        return x + part(norm(x, name))

    def fed(x: torch.Tensor, part: str) -> torch.Tensor:
        return added(x, f"{part}.final_layer_norm", lambda x: linear(act(linear(x, f"{part}.fc1")), f"{part}.fc2"))

    def ended(x: torch.Tensor, side: str) -> torch.Tensor:
        return x if kind in ("bart", "marian") else norm(x, f"{side}.layer_norm")

    memory = begin(text, "encoder")
    for layer in range(said["encoder_layers"]):
        part = f"encoder.layers.{layer}"
        memory = added(memory, f"{part}.self_attn_layer_norm", partial(whole, attention, f"{part}.self_attn", False))
        memory = fed(memory, part)
    x, memory = begin(written, "decoder"), ended(memory, "encoder")
    for layer in range(said["decoder_layers"]):
        part = f"decoder.layers.{layer}"
        x = added(x, f"{part}.self_attn_layer_norm", partial(whole, attention, f"{part}.self_attn", True))
        x = added(x, f"{part}.encoder_attn_layer_norm", partial(across, attention, f"{part}.encoder_attn", memory))
        x = fed(x, part)
    return ended(x, "decoder") @ w["shared.weight"].T + weights["final_logits_bias"].double()


def whole(attention: Any, name: str, is_causal: bool, x: torch.Tensor) -> torch.Tensor:
    """A text that attends to itself."""
    out: torch.Tensor = attention(x, x, name, is_causal=is_causal)
    return out


def across(attention: Any, name: str, memory: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A text that attends to another."""
    out: torch.Tensor = attention(x, memory, name)
    return out


@pytest.mark.req("D9")
@pytest.mark.parametrize("name", RELATIVES)
def test_relatives_of_bart_have_the_logits_and_the_likeliest_text_of_their_equations(name: str, tmp_path: Path) -> None:
    said, rng = bart_like(name), np.random.default_rng(0)
    weights = bart_weights(said)
    saved = {"model.encoder.embed_positions.weight": torch.ones(50, 32)} if name == "Marian" else {}  # is not read
    write_folder(tmp_path, said, weights | saved)
    found = read_seq2seq(tmp_path, 64)
    writer, text = Writer(found.network, 50), rng.integers(3, 30, 23).tolist()
    written = [1, 0, *rng.integers(3, 30, 19).tolist()]
    assert writer.read(text) == 23
    expected = bart_logits(said, weights, text, written).numpy()[:, : len(PIECES)]
    logits = [writer.logits(token, place, 23) for place, token in enumerate(written)]
    np.testing.assert_allclose(np.stack(logits), expected, rtol=1e-3, atol=1e-4)
    likeliest = [*found.manner.start]
    while len(likeliest) < 14 and 1 not in likeliest[1:]:
        likeliest.append(int(bart_logits(said, weights, text, likeliest)[-1, : len(PIECES)].argmax()))
    way = Way(14 - len(found.manner.start), Choice(temperature=0.0, repetition=1.0))
    answer = [*writer.write(23, found.manner, way)]
    assert answer == [token for token in likeliest[len(found.manner.start) :] if token != 1]


def test_a_folder_with_a_model_of_sentencepiece_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = bart_like("Marian")
    write_folder(tmp_path, said, bart_weights(said))
    (tmp_path / "tokenizer.json").unlink()
    pieces = [("<unk>", 0.0, UNKNOWN), ("</s>", 0.0, CONTROL)]
    pieces += [(piece, float(number - 40), NORMAL) for number, piece in enumerate(PIECES[3:])]
    write_pieces(tmp_path / "source.spm", pieces)
    (tmp_path / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(PIECES)}))
    found = read_seq2seq(tmp_path, 50)
    written = ("\u2581the", "\u2581", "er", "</s>")
    assert tokens_of(found.tokenizer, "the er", False) == [PIECES.index(piece) for piece in written]
    assert found.network.config.vocabulary == len(PIECES)
    assert cli.main(["chat", "--model", str(tmp_path), "--context", "50", "--prompt", "the", "--max-tokens", "4"]) == 0
    (tmp_path / "source.spm").write_bytes(b"hello")
    assert cli.main(["chat", "--model", str(tmp_path), "--prompt", "the"]) == 1
    assert "source.spm: is not a model of SentencePiece, or is damaged" in capsys.readouterr().err


def test_languages_of_a_text_and_of_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = bart_like("NLLB") | {"forced_bos_token_id": None}
    write_folder(tmp_path, said, bart_weights(said))
    path = tmp_path / "tokenizer.json"
    tokenizer, names = json.loads(path.read_text()), ("eng_Latn", "deu_Latn")
    tokenizer["model"]["vocab"] += [[name, 0.0] for name in names]
    tokenizer["added_tokens"] += [{"id": 35 + n, "content": name, "special": True} for n, name in enumerate(names)]
    of_template = tokenizer["post_processor"]
    of_template["single"].insert(0, {"SpecialToken": {"id": "eng_Latn"}})
    of_template["special_tokens"]["eng_Latn"] = {"id": "eng_Latn", "ids": [35], "tokens": ["eng_Latn"]}
    path.write_text(json.dumps(tokenizer))

    def chat(**wanted: Any) -> TextToText:
        return TextToText(Chat(model=str(tmp_path), context=50, **wanted))

    english = chat(target="deu_Latn")
    assert english.manner.start == (1, 36) and tokens_of(english.tokenizer, "the", False) == [35, 32, 1]
    assert tokens_of(chat(source="deu_Latn", target="eng_Latn").tokenizer, "the", False) == [36, 32, 1]
    words = ["chat", "--model", str(tmp_path), "--context", "50", "--prompt", "the"]
    for more, fact in [
        ([], "--target must name the language of the answer, such as deu_Latn."),
        (["--target", "deu"], "--target deu: the network knows eng_Latn, deu_Latn"),
        (["--target", "deu_Latn", "--source", "xx"], "--source xx: the network knows eng_Latn"),
    ]:
        assert cli.main([*words, *more]) == 1 and fact in capsys.readouterr().err
    assert cli.main([*words, "--target", "eng_Latn", "--max-tokens", "4"]) == 0
    write_folder(tmp_path, BART, bart_weights(BART))
    assert cli.main([*words, "--target", "deu_Latn"]) == 1 and "the network knows none by name" in capsys.readouterr().err


@pytest.mark.req("D9")
@pytest.mark.parametrize("change", [{}, {"scale_embedding": True, "forced_bos_token_id": None}])
def test_a_folder_of_bart_has_the_logits_and_the_likeliest_text_of_its_equations(change: Said, tmp_path: Path) -> None:
    said, rng = BART | change, np.random.default_rng(0)
    weights = bart_weights(said)
    write_folder(tmp_path, said, weights)
    found = read_seq2seq(tmp_path, 64)
    writer = Writer(found.network, found.network.config.context)
    assert writer.longest == 50 and found.manner.start == ((1,) if change else (1, 0))
    for length in (50, 9):
        text, written = rng.integers(3, 30, length).tolist(), [1, 0, *rng.integers(3, 30, 19).tolist()]
        assert writer.read(text) == length
        expected = bart_logits(said, weights, text, written).numpy()[:, : len(PIECES)]
        logits = [writer.logits(token, place, length) for place, token in enumerate(written)]
        np.testing.assert_allclose(np.stack(logits), expected, rtol=1e-3, atol=1e-4)
        likeliest = [*found.manner.start]
        for _ in range(12):
            likeliest.append(int(bart_logits(said, weights, text, likeliest)[-1, : len(PIECES)].argmax()))
        answer = [*writer.write(length, found.manner, Way(12, Choice(temperature=0.0, repetition=1.0)))]
        past = likeliest.index(1, 1) if 1 in likeliest[1:] else None
        assert answer == likeliest[len(found.manner.start) : past]
    assert writer.write_tokens.num_captures == 1


def test_tokens_around_a_text_that_another_file_says(tmp_path: Path) -> None:
    write_folder(tmp_path, {key: value for key, value in BART.items() if "bos" not in key}, bart_weights(BART))
    (tmp_path / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": 0, "eos_token_id": [1, 5]}))
    with pytest.raises(DataError, match=r"says eos_token_id is \[1, 5\]; a number of the 40 tokens is needed"):
        read_seq2seq(tmp_path, 64)
    (tmp_path / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": 0, "eos_token_id": 5}))
    manner = read_seq2seq(tmp_path, 64).manner
    assert manner.start == (1, 0) and manner.ends == {5}


def test_a_folder_of_bart_that_is_not_done_is_refused(tmp_path: Path) -> None:
    for change, words in [
        ({"normalize_before": True}, "says normalize_before is True; only False is supported"),
        ({"model_type": "mbart"}, "says normalize_before is False; only True is supported"),
        ({"share_encoder_decoder_embeddings": False}, "says share_encoder_decoder_embeddings is False; only True"),
        ({"decoder_ffn_dim": 64}, "says decoder_ffn_dim is 64; it must equal the encoder's, 48"),
        ({"forced_bos_token_id": 77}, "says forced_bos_token_id is 77; a number of the 40 tokens is needed"),
    ]:
        write_folder(tmp_path, BART | change, None)
        with pytest.raises(DataError) as caught:
            read_seq2seq(tmp_path, 64)
        assert words in caught.value.fact
    weights = bart_weights(BART)
    del weights["model.decoder.layers.2.encoder_attn.k_proj.bias"]
    write_folder(tmp_path, BART, weights)
    with pytest.raises(DataError, match="decoder.layers.2.encoder_attn.k_proj.bias of .32,., it has none"):
        read_seq2seq(tmp_path, 64)


def test_a_copy_of_the_table_is_read_where_it_is_the_only_one(tmp_path: Path) -> None:
    weights = drawn(SIZES)
    write_folder(tmp_path, SIZES, weights | {"encoder.embed_tokens.weight": weights["shared.weight"] * 2})
    first = read_seq2seq(tmp_path, 8).network.embedding.weight().numpy()
    weights["decoder.embed_tokens.weight"] = weights.pop("shared.weight")
    write_folder(tmp_path, SIZES, weights)
    np.testing.assert_array_equal(read_seq2seq(tmp_path, 8).network.embedding.weight().numpy(), first)


# ---- folders ----
def write_folder(folder: Path, said: Said, weights: Weights | None) -> None:
    """Writes a configuration, weights, and a tokenizer as T5's: pieces with scores, and an end behind every text."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said))
    space = {"replacement": "\u2581", "add_prefix_space": True}
    cut = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", **space}]}
    special = [{"id": n, "content": PIECES[n], "special": True} for n in (0, 1, 2, len(PIECES) - 1)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": special, "normalizer": None, "decoder": {"type": "Metaspace", **space},
        "pre_tokenizer": cut,
        "post_processor": {
            "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
        },
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [[piece, -float(n % 7)] for n, piece in enumerate(PIECES)]},
    }))  # fmt: skip
    if weights is not None:
        save_file(weights, folder / "model.safetensors")


@pytest.mark.req("D9")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_has_the_logits_and_the_likeliest_text_of_its_equations(name: str, tmp_path: Path) -> None:
    said = CONFIGS[name]
    weights = drawn(said)
    write_folder(tmp_path, said, weights)
    found = read_seq2seq(tmp_path, 64)
    text, rng = tokens_of(found.tokenizer, "translate: the letter.", False), np.random.default_rng(0)
    assert text[-1] == 1 and len(text) > 16
    for length in (len(text), 40):  # beyond all distances that have a bucket of their own
        text = [*text, *rng.integers(3, 30, 40).tolist()][:length]
        written = [0, *rng.integers(3, 30, 19).tolist()]
        writer = Writer(found.network, 64)
        assert writer.read(text) == length
        expected = logits_of(said, weights, text, written).numpy()
        logits = [writer.logits(token, place, length) for place, token in enumerate(written)]
        np.testing.assert_allclose(np.stack(logits)[:, : len(PIECES)], expected[:, : len(PIECES)], rtol=1e-3, atol=1e-4)
        whole = found.network.write(Tensor([written]), found.network.empty(64), 0, writer.memory, length)[0].numpy()
        np.testing.assert_allclose(whole, expected[:, : len(PIECES)], rtol=1e-3, atol=1e-4)
        likeliest = [0]
        for _ in range(12):
            likeliest.append(int(logits_of(said, weights, text, likeliest)[-1, : len(PIECES)].argmax()))
        answer = writer.write(length, found.manner, Way(12, Choice(temperature=0.0, repetition=1.0)))
        assert [*answer] == likeliest[1 : likeliest.index(1) if 1 in likeliest else None]


@pytest.mark.req("G4")
def test_few_plans_serve_all_texts(tmp_path: Path) -> None:
    write_folder(tmp_path, SIZES, drawn(SIZES))
    found = read_seq2seq(tmp_path, 64)
    writer = Writer(found.network, 64)
    for length in (3, 16, 17, 30, 32, 50, 64):
        writer.read([5] * length)
        for place in range(9):
            writer.logits(3, place, length)
    assert writer.read_text.num_captures == 3 and writer.write_tokens.num_captures == 1
    with pytest.raises(ArgumentError, match="the text has 65 tokens; 1 to 64 are read"):
        writer.read([5] * 65)


def test_the_command_answers_each_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path, CONFIGS["flan-T5"], drawn(CONFIGS["flan-T5"]))
    assert is_seq2seq(tmp_path)
    words = ["chat", "--model", str(tmp_path), "--context", "64", "--max-tokens", "5"]
    assert cli.main([*words, "--prompt", "the letter"]) == 0
    first = capsys.readouterr()
    assert "read 9 tokens" in first.err and "wrote" in first.err
    assert cli.main([*words, "--prompt", "the letter"]) == 0
    assert capsys.readouterr().out == first.out, "the likeliest text, where the files say nothing of drawing"
    assert cli.main([*words, "--prompt", "a", "--system", "b"]) == 1
    assert "--system is for models that hold dialogues" in capsys.readouterr().err
    assert cli.main(["perplexity", "--text", __file__, "--model", str(tmp_path)]) == 1
    assert "hint: picograd chat answers with it" in capsys.readouterr().err


def test_drawing_is_as_the_files_say(tmp_path: Path) -> None:
    write_folder(tmp_path, SIZES, drawn(SIZES))
    assert read_seq2seq(tmp_path, 8).manner.drawing == {"temperature": 0.0, "repetition": 1.0}
    (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.7}))
    assert read_seq2seq(tmp_path, 8).manner.drawing["temperature"] == 0.7


# ---- searches ----
# What transformers 5.24 writes with the weights above; the 5 tokens beyond the pieces are left out of its vocabulary.
SEARCHED: list[tuple[str, Said, list[int]]] = [
    ("BART", {"num_beams": 4, "no_repeat_ngram_size": 2}, [12, 12]),
    ("BART", {"num_beams": 4, "early_stopping": True, "length_penalty": 2.0, "min_length": 9, "no_repeat_ngram_size": 1},
     [18, 12, 11, 10, 17, 24, 13, 8, 14, 4, 6, 32, 31, 27]),
    ("BART", {"num_beams": 3, "early_stopping": "never", "length_penalty": 0.5, "no_repeat_ngram_size": 1},
     [11, 12, 18, 10, 17, 24, 13, 8, 14, 4, 6, 31, 32, 27]),
    ("BART", {"no_repeat_ngram_size": 2, "min_new_tokens": 12}, [12, 12, 11, 12, 18, 12, 10, 12, 17, 12, 24, 12]),
    ("BART", {"num_beams": 4, "repetition_penalty": 1.5, "bad_words_ids": [[12], [6]], "max_new_tokens": 7,
              "forced_eos_token_id": 1}, [18, 11, 10, 17, 24]),
    ("flan-T5", {"num_beams": 4, "no_repeat_ngram_size": 2}, [26, 13, 31, 6, 6, 18, 32, 6, 22, 15, 10, 19, 26, 26, 22]),
    ("flan-T5", {"num_beams": 4, "repetition_penalty": 1.5, "bad_words_ids": [[12], [6]], "max_new_tokens": 7,
                 "forced_eos_token_id": 1}, [26, 13, 19, 22, 31, 2]),
]  # fmt: skip


@pytest.mark.req("D9")
@pytest.mark.parametrize(("name", "generation", "written"), SEARCHED)
def test_a_search_writes_what_transformers_writes(name: str, generation: Said, written: list[int], tmp_path: Path) -> None:
    said, weights = (BART, bart_weights(BART)) if name == "BART" else (CONFIGS[name], drawn(CONFIGS[name]))
    write_folder(tmp_path, said, weights)
    length = {} if "max_new_tokens" in generation else {"max_length": 16}
    (tmp_path / "generation_config.json").write_text(json.dumps(length | generation))
    chat = TextToText(Chat(model=str(tmp_path), context=64))
    text = np.random.default_rng(3).integers(3, 30, 12).tolist()
    for _ in range(2):
        assert [*chat.writer.write(chat.writer.read(text), chat.manner, chat.way(None, chat.choice, 0))] == written
    assert chat.writer.write_tokens.num_captures == 1 and chat.writer.copy_text.num_captures <= 1


def test_options_of_a_search_replace_what_the_files_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path, BART, bart_weights(BART))
    found = read_seq2seq(tmp_path, 64)
    assert found.manner.search == Search(4, no_repeat=3), "of config.json, where they were once"
    assert found.lengths == Lengths(end=1)

    def chat(**wanted: Any) -> TextToText:
        return TextToText(Chat(model=str(tmp_path), context=64, **wanted))

    assert chat().search == Search(4, no_repeat=3) and chat(beams=1).search.beams == 1 and chat(beams=2).writer.num == 2
    assert chat(temperature=0.7).search == Search(1, no_repeat=3) and chat(temperature=0.0, beams=3).search.beams == 3
    with pytest.raises(ArgumentError, match="--beams searches for the likeliest text;"):
        chat(temperature=0.7, beams=3)
    assert chat(length_penalty=2.0, no_repeat=0).search == Search(4, 2.0)
    way = chat().way(None, Choice(), 3)
    assert (way.num, way.counted, way.seed, way.search.beams) == (512, 1, 3, 4) and chat().way(5, Choice(), 0).num == 5
    assert chat().way(5, Choice(), 0, draws=True).search == Search(1, no_repeat=3)
    (tmp_path / "generation_config.json").write_text(json.dumps({"max_length": 20, "do_sample": True, "num_beams": 2}))
    assert chat().way(None, Choice(), 0).num == 18 and chat().search == Search(1)
    assert cli.main(["chat", "--model", str(tmp_path), "--prompt", "a", "--beams", "0"]) == 1
    assert "--beams: got 0, it must be" in capsys.readouterr().err
    assert cli.main(["chat", "--model", str(tmp_path), "--prompt", "a", "--beams", "3", "--max-tokens", "4"]) == 0
    assert "3 beams" in chat(beams=3).describe()
    words = ["chat", "--model", str(tmp_path), "--prompt", "a", "--max-tokens", "3"]
    assert cli.main([*words, "--beams", "2", "--no-repeat", "0", "--length-penalty", "-1"]) == 0
    capsys.readouterr()
    for option, value, fact in [("--length-penalty", "nan", "got nan, it must be from -100 to 100"),
                                ("--no-repeat", "-1", "--no-repeat: got -1")]:  # fmt: skip
        assert cli.main([*words, option, value]) == 1 and fact in capsys.readouterr().err


def test_lengths_that_are_out_of_range_are_named() -> None:
    assert lengths_of({"min_length": 3, "min_new_tokens": 5, "max_length": 9}, 40) == Lengths(6, 9)
    assert lengths_of({"bad_words_ids": [[3], [99]]}, 40) == Lengths(barred=(3,))
    for said, words in [
        ({"max_length": -1}, "max_length is -1"), ({"min_length": 1.5}, "min_length is 1.5"),
        ({"forced_eos_token_id": 40}, "forced_eos_token_id is 40"), ({"bad_words_ids": [["a"]]}, "bad_words_ids is a"),
        ({"bad_words_ids": [[3, 4]]}, "words of a token each are known"), ({"bad_words_ids": "ab"}, "bad_words_ids is ab"),
    ]:  # fmt: skip
        with pytest.raises(DataError) as caught:
            lengths_of(said, 40)
        assert words in caught.value.fact


# ---- what is refused ----
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "umt5"}, "says model_type is 'umt5'; t5, mt5, bart, mbart, m2m_100, pegasus, marian are"),
    ({"feed_forward_proj": "gated-mish"}, "says feed_forward_proj is gated-mish; relu, gated-gelu and others"),
    ({"feed_forward_proj": 3}, "says feed_forward_proj is 3"),
    ({"relative_attention_max_distance": 64}, "says relative_attention_max_distance is 64; only 128 is supported"),
    ({"relative_attention_num_buckets": 6}, "says relative_attention_num_buckets is 6; a multiple of 4 is needed"),
    ({"is_encoder_decoder": False}, "says is_encoder_decoder is False; only True is supported"),
    ({"decoder_start_token_id": 40}, "says decoder_start_token_id is [40]; a number of the 40 tokens is needed"),
    ({"decoder_start_token_id": None}, "says decoder_start_token_id is [None]"),
    ({"eos_token_id": [1, "a"]}, "says eos_token_id is [1, 'a']"),
    ({"num_heads": 0}, "says num_heads is 0; a whole number above 0 is needed"),
    ({"local_radius": 127}, "says local_radius is 127, which is not supported"),
    ({"vocab_size": 9}, "has 35 tokens such as"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_configuration_that_is_not_done_is_refused_before_weights_are_looked_for(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_folder(tmp_path, SIZES | change, None)
    with pytest.raises(DataError) as caught:
        read_seq2seq(tmp_path, 64)
    assert words in caught.value.fact


@pytest.mark.parametrize(
    ("tensor", "value", "words"),
    [
        ("encoder.block.1.layer.1.DenseReluDense.wi.weight", None,
         "a tensor encoder.block.1.layer.1.DenseReluDense.wi.weight of (48, 32), it has none"),
        ("decoder.final_layer_norm.weight", torch.ones(31),
         "a tensor decoder.final_layer_norm.weight of (32,), it has one of (31,)"),
        ("encoder.block.0.layer.0.SelfAttention.q.bias", torch.ones(48), "SelfAttention.q.bias', which"),
        ("encoder.block.9.layer.0.SelfAttention.q.weight", torch.ones(48, 32), "'encoder.block.9.layer.0.Self"),
        ("decoder.final_layer_norm.weight", torch.ones(32, dtype=torch.int64), "of (32,), int64, which"),
    ],
)  # fmt: skip
def test_tensors_of_another_network_are_named(tensor: str, value: Any, words: str, tmp_path: Path) -> None:
    weights = {key: each for key, each in (drawn(SIZES) | {tensor: value}).items() if each is not None}
    write_folder(tmp_path, SIZES, weights)
    with pytest.raises(DataError) as caught:
        read_seq2seq(tmp_path, 64)
    assert words in caught.value.fact


@pytest.mark.parametrize(
    ("said", "change", "words"),
    [
        (SIZES, {"num_layers": 10_001}, "num_layers is 10001; a whole number from 1 to 10,000"),
        (SIZES, {"num_decoder_layers": 2**31 - 1}, "num_decoder_layers is 2147483647; a whole number from 1 to 10,000"),
        (SIZES, {"relative_attention_num_buckets": None}, "relative_attention_num_buckets is None; a whole number"),
        (SIZES, {"layer_norm_epsilon": None}, "layer_norm_epsilon is None; a number above 0 is needed"),
        (BART, {"decoder_layers": 2**31 - 1}, "decoder_layers is 2147483647; a whole number from 1 to 10,000"),
        (BART, {"encoder_layers": 2**31 - 1}, "encoder_layers is 2147483647; a whole number from 1 to 10,000"),
        (BART, {"max_position_embeddings": None}, "max_position_embeddings is None; a whole number"),
        (BART, {"activation_function": [[]]}, r"activation_function is \[\[\]\]; .*gelu.* are known"),
    ],
)
def test_sizes_that_are_damage_are_refused_at_once(said: Said, change: Said, words: str, tmp_path: Path) -> None:
    write_folder(tmp_path, said | change, None)
    with pytest.raises(DataError, match=words):
        read_seq2seq(tmp_path, 50)


def test_waves_are_made_for_positions_that_are_read_and_a_width_that_the_file_has(tmp_path: Path) -> None:
    said = bart_like("Marian") | {"max_position_embeddings": 2**31 - 1}
    write_folder(tmp_path, said, bart_weights(said))
    config = read_seq2seq(tmp_path, 50).network.config
    assert (config.context, config.positions, config.text_positions) == (50, 50, 50)
    (tmp_path / "config.json").write_text(json.dumps(said | {"d_model": 2**30}))
    with pytest.raises(DataError, match=r"must have a tensor shared.weight of \(\d+, 1073741824\)"):
        read_seq2seq(tmp_path, 50)


@pytest.mark.parametrize("value", [-1, True, 10_001, 10**12, "100", None, 1.0])
@pytest.mark.parametrize("key", ["extra_ids", "offset"])
def test_numbers_of_tokens_beside_pieces_have_a_range(key: str, value: Any, tmp_path: Path) -> None:
    said = SIZES if key == "extra_ids" else bart_like("Pegasus")
    write_folder(tmp_path, said, None)
    (tmp_path / "tokenizer.json").unlink()
    write_pieces(tmp_path / "spiece.model", [(piece, 0.0, UNKNOWN if n == 2 else NORMAL) for n, piece in enumerate(PIECES)])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(DataError, match=f"tokenizer_config.json says {key} is {value}; a number from 0 to 10,000"):
        read_seq2seq(tmp_path, 50)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--beams", "0", "must be from 1 to 32"), ("--beams", "33", "must be from 1 to 32"),
        ("--no-repeat", "-1", "must be at least 0"), ("--length-penalty", "nan", "must be from -100 to 100"),
        ("--top-k", "-1", "must be at least 0"),
        ("--context", "99999999", "must be at most 16,777,216"),
    ],
)  # fmt: skip
def test_options_are_checked_before_a_model_is_read(
    option: str, value: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, SIZES, None)  # has no weights
    assert cli.main(["chat", "--model", str(tmp_path), "--prompt", "the", option, value]) == 1
    assert f"ArgumentError: {option}" in (said := capsys.readouterr().err) and words in said


def test_missing_and_damaged_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = CONFIGS["flan-T5"]
    write_folder(tmp_path, said, drawn(said))
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        whole = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(whole[: len(whole) // 2])
        assert cli.main(["chat", "--model", str(tmp_path), "--prompt", "a"]) == 1
        assert str(tmp_path / file) in capsys.readouterr().err
        (tmp_path / file).write_bytes(whole)
    weights = {name: value for name, value in drawn(said).items() if name != "lm_head.weight"}
    write_folder(tmp_path, said, weights)
    with pytest.raises(DataError, match=r"must have a tensor lm_head.weight of \(35, 32\), it has none"):
        read_seq2seq(tmp_path, 64)
