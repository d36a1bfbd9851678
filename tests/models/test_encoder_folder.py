"""Folders of encoders of sentences: each kind against its equations, ways to one vector; what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as TF

from picograd.errors import ArgumentError, DataError
from picograd_programs import cli
from picograd_programs.chat.run import opened
from picograd_programs.data.wordpiece import END, PADDING, START, UNKNOWN
from picograd_programs.models.embedder import POOLS, read_embedder
from picograd_programs.models.encoder import buckets_of
from picograd_programs.models.encoder_folder import ENCODERS
from tests.models.published import config_of, logits_of, random_weights
from tests.models.published_encoders import TURNING, turning_hidden, turning_weights
from tests.models.test_decoder_folder import write_folder

Said = dict[str, Any]
Weights = dict[str, torch.Tensor]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = [PADDING, UNKNOWN, START, END, *LETTERS, *(f"##{letter}" for letter in LETTERS[:10]), ":", "is"]
SIZES: Said = {
    "vocab_size": len(PIECES), "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "hidden_dropout_prob": 0.1,
    "torch_dtype": "float32", "type_vocab_size": 2, "position_embedding_type": "absolute", "use_cache": True,
}  # fmt: skip
CONFIGS: dict[str, tuple[str, Said]] = {
    "BERT": ("bert", SIZES),
    "LaBSE": ("bert", SIZES | {"directionality": "bidi", "pooler_type": "first_token_transform", "hidden_act": "gelu_new"}),
    "RoBERTa": ("roberta", SIZES | {"type_vocab_size": 1, "pad_token_id": 1}),
    "XLM-R, e5": ("xlm-roberta", SIZES | {"type_vocab_size": 1, "output_past": True, "pad_token_id": 3}),
    "CamemBERT": ("camembert", SIZES | {"type_vocab_size": 1, "hidden_act": "relu"}),
    "MPNet": ("mpnet", {**SIZES, "relative_attention_num_buckets": 8, "pad_token_id": 1, "type_vocab_size": None}),
    "DistilBERT": ("distilbert", {
        "vocab_size": len(PIECES), "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "activation": "gelu",
        "max_position_embeddings": 40, "sinusoidal_pos_embds": False, "tie_weights_": True, "qa_dropout": 0.1}),
}  # fmt: skip
# published names: of queries, keys, values, of what joins the heads and its norm; of both linear layers and their norm
PARTS = {
    "bert": (
        "encoder.layer.{}.attention.self.query", "encoder.layer.{}.attention.self.key",
        "encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.output.dense",
        "encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.intermediate.dense",
        "encoder.layer.{}.output.dense", "encoder.layer.{}.output.LayerNorm",
    ),
    "mpnet": (
        "encoder.layer.{}.attention.attn.q", "encoder.layer.{}.attention.attn.k", "encoder.layer.{}.attention.attn.v",
        "encoder.layer.{}.attention.attn.o", "encoder.layer.{}.attention.LayerNorm", "encoder.layer.{}.intermediate.dense",
        "encoder.layer.{}.output.dense", "encoder.layer.{}.output.LayerNorm",
    ),
    "distilbert": (
        "transformer.layer.{}.attention.q_lin", "transformer.layer.{}.attention.k_lin",
        "transformer.layer.{}.attention.v_lin", "transformer.layer.{}.attention.out_lin",
        "transformer.layer.{}.sa_layer_norm", "transformer.layer.{}.ffn.lin1", "transformer.layer.{}.ffn.lin2",
        "transformer.layer.{}.output_layer_norm",
    ),
}  # fmt: skip


def said_of(name: str) -> Said:
    """Returns the contents of config.json."""
    kind, said = CONFIGS[name]
    return {"model_type": kind, **{key: value for key, value in said.items() if value is not None}}


def drawn(said: Said) -> Weights:
    """Returns weights by their published names."""
    generator, width, hidden = torch.Generator().manual_seed(0), 32, 48
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (said["vocab_size"], width),
        "embeddings.position_embeddings.weight": (said["max_position_embeddings"], width),
    }
    if "type_vocab_size" in said:
        shapes["embeddings.token_type_embeddings.weight"] = (said["type_vocab_size"], width)
    if said["model_type"] == "mpnet":
        shapes["encoder.relative_attention_bias.weight"] = (said["relative_attention_num_buckets"], 4)
    rows = (width, width, width, width, 0, hidden, width, 0)
    for layer in range(3):
        for number, part in enumerate(PARTS.get(said["model_type"], PARTS["bert"])):
            name = part.format(layer)
            shapes[f"{name}.bias"] = (rows[number] or width,)
            shapes[f"{name}.weight"] = (rows[number], hidden if number == 6 else width) if rows[number] else (width,)
    shapes["embeddings.LayerNorm.weight"] = shapes["embeddings.LayerNorm.bias"] = (width,)
    return {
        name: torch.randn(*shape, generator=generator) * (0.1 if len(shape) < 2 else 0.3) + ("orm.weight" in name)
        for name, shape in shapes.items()
    }


def buckets(length: int, num: int) -> torch.Tensor:
    """The bucket of each distance, one by one: half for what is behind, half of these with one distance each."""
    out = torch.zeros(length, length, dtype=torch.long)
    half, exact = num // 2, num // 4
    for query in range(length):
        for key in range(length):
            far = abs(key - query)
            grown = exact + int(math.log(max(far, 1) / exact) / math.log(128 / exact) * (half - exact) + 1e-9)
            out[query, key] = (far if far < exact else min(grown, half - 1)) + (half if key > query else 0)
    return out


def hidden_of(said: Said, weights: Weights, tokens: list[int]) -> torch.Tensor:
    """The last layer's output for one text from its equations, float64: (T, C)."""
    w, kind = {name: value.double() for name, value in weights.items()}, said["model_type"]
    places = torch.arange(len(tokens)) + (0 if kind in ("bert", "distilbert") else said.get("pad_token_id", 1) + 1)
    act = {"gelu": TF.gelu, "relu": TF.relu, "gelu_new": lambda x: TF.gelu(x, approximate="tanh")}
    eps = said.get("layer_norm_eps", 1e-12)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return TF.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return TF.layer_norm(x, (32,), w[f"{name}.weight"], w[f"{name}.bias"], eps)

    x = w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.position_embeddings.weight"][places]
    if "type_vocab_size" in said:
        x = x + w["embeddings.token_type_embeddings.weight"][0]
    x, added = norm(x, "embeddings.LayerNorm"), torch.zeros(1)
    if kind == "mpnet":
        table = w["encoder.relative_attention_bias.weight"]
        added = table[buckets(len(tokens), said["relative_attention_num_buckets"])].permute(2, 0, 1)
    for layer in range(3):
        q, k, v, joined, after, up, down, last = (part.format(layer) for part in PARTS.get(kind, PARTS["bert"]))
        queries, keys, values = (linear(x, name).view(len(x), 4, 8).transpose(0, 1) for name in (q, k, v))
        y = (queries @ keys.transpose(1, 2) / 8**0.5 + added).softmax(-1) @ values
        x = norm(x + linear(y.transpose(0, 1).reshape(len(x), 32), joined), after)
        act_of = act[said.get("hidden_act", said.get("activation"))]
        x = norm(x + linear(act_of(linear(x, up)), down), last)
    return x


def pooled(hidden_TC: torch.Tensor, way: str) -> torch.Tensor:
    """The vector of a text by each way of pooling."""
    weights = torch.arange(1, len(hidden_TC) + 1).double()[:, None]
    return {
        "cls": hidden_TC[0], "mean": hidden_TC.mean(0), "max": hidden_TC.max(0).values, "lasttoken": hidden_TC[-1],
        "mean_sqrt_len": hidden_TC.sum(0) / len(hidden_TC) ** 0.5,
        "weightedmean": (hidden_TC * weights).sum(0) / weights.sum(),
    }[way]  # fmt: skip


def write(folder: Path, said: Said, weights: Weights, ways: list[str], steps: tuple[str, ...] = (), **pooling: Any) -> None:
    """Writes a folder as sentence-transformers does, with BERT's vocabulary of letters."""
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    modules += [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    modules += [{"path": f"{n + 2}_{step}", "type": f"sentence_transformers.models.{step}"} for n, step in enumerate(steps)]
    (folder / "modules.json").write_text(json.dumps([{"idx": n, "name": str(n), **each} for n, each in enumerate(modules)]))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{way}{'' if way == 'lasttoken' else '_token' if way == 'cls' else '_tokens'}": way in ways
             for way in POOLS}  # fmt: skip
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes, **pooling}))


TEXTS = ["is", "abc", "a bij; is ab", "it is a text of more words than are read: " + "abc is " * 20, "é"]


@pytest.mark.req("D6")
@pytest.mark.parametrize("name", CONFIGS)
def test_an_encoder_has_the_vectors_of_its_equations(name: str, tmp_path: Path) -> None:
    said = said_of(name)
    weights = drawn(said)
    write(tmp_path, said, weights, ["mean"])
    embedder = read_embedder(tmp_path)
    found = embedder.embed(TEXTS)
    numbers = [embedder.numbers(text) for text in TEXTS]
    assert len(numbers[3]) == embedder.longest and numbers[3][-1] == PIECES.index(END)
    expected = [pooled(hidden_of(said, weights, row), "mean") for row in numbers]
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-4, atol=1e-5)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, found, rtol=1e-4, atol=1e-5)


@pytest.mark.req("D6")
@pytest.mark.parametrize("name", TURNING)
def test_an_encoder_with_angles_has_the_vectors_of_its_equations(name: str, tmp_path: Path) -> None:
    said = TURNING[name]
    weights = turning_weights(said)
    before = "model." if said["model_type"] == "modernbert" else ""
    others = {"head.dense.weight": torch.ones(32, 32), "decoder.bias": torch.ones(259)} if before else {}
    write_folder(tmp_path, said, {f"{before}{key}": value for key, value in weights.items()} | others)
    embedder = read_embedder(tmp_path, "mean")
    texts = ["over 12", "a", "it is a longer text, of many letters", ""]
    numbers = [embedder.numbers(text) for text in texts[:3]]
    expected = [turning_hidden(said, weights, row).mean(0) for row in numbers]
    np.testing.assert_allclose(embedder.embed(texts[:3]), np.stack(expected), rtol=1e-4, atol=1e-5)
    if said["model_type"] != "nomic_bert":
        with pytest.raises(DataError, match="sees following positions, and cannot write text"):
            opened(str(tmp_path), 64)


def test_nomics_configuration_in_transformers_own_names(tmp_path: Path) -> None:
    said = TURNING["nomic"]
    weights = turning_weights(said)
    own: Said = {
        "model_type": "nomic_bert", "vocab_size": 259, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64, "hidden_act": "silu", "layer_norm_eps": 1e-12,
        "head_dim": 8, "type_vocab_size": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
        "pad_token_id": 0,
    }  # fmt: skip
    vectors = []
    for content in (said, own):
        write_folder(tmp_path, content, weights)
        vectors.append(read_embedder(tmp_path, "mean").embed(["over 12"]))
    np.testing.assert_array_equal(*vectors)
    weights["encoder.layers.0.attn.Wqkv.weight"] = torch.ones(95, 32)
    write_folder(tmp_path, said, weights)
    with pytest.raises(DataError, match=r"Wqkv.weight' of \(95, 32\), whose rows are not of 3 matrices"):
        read_embedder(tmp_path, "mean")


def test_every_kind_of_encoder_has_its_equations_in_a_test() -> None:
    kinds = {kind for kind, _ in CONFIGS.values()} | {each["model_type"] for each in TURNING.values()}
    assert kinds >= ENCODERS.keys()


def test_buckets_of_distances_are_those_of_a_loop() -> None:
    for num in (8, 32):
        np.testing.assert_array_equal(buckets_of(300, num), buckets(300, num))


@pytest.mark.parametrize("ways", [*([way] for way in POOLS), ["mean", "cls"]])
def test_ways_of_pooling(ways: list[str], tmp_path: Path) -> None:
    said = said_of("BERT")
    weights = drawn(said)
    write(tmp_path, said, weights, ways)
    embedder = read_embedder(tmp_path)
    hidden = [hidden_of(said, weights, embedder.numbers(text)) for text in TEXTS]
    expected = [torch.cat([pooled(each, way) for way in POOLS if way in ways]) for each in hidden]
    np.testing.assert_allclose(embedder.embed(TEXTS), np.stack(expected), rtol=1e-4, atol=1e-5)


def test_layers_after_pooling_and_prompts(tmp_path: Path) -> None:
    said = said_of("LaBSE")
    weights, dense = drawn(said), {"linear.weight": torch.randn(8, 32), "linear.bias": torch.randn(8)}
    write(tmp_path, said, weights, ["cls"], ("Dense", "Normalize"), include_prompt=True)
    (tmp_path / "2_Dense").mkdir()
    save_file(dense, tmp_path / "2_Dense" / "model.safetensors")
    content: Said = {"in_features": 32, "out_features": 8, "bias": True}
    content["activation_function"] = "torch.nn.modules.activation.Tanh"
    (tmp_path / "2_Dense" / "config.json").write_text(json.dumps(content))
    prompts = {"prompts": {"query": "is: ", "passage": ""}, "default_prompt_name": "query", "similarity_fn_name": "cosine"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    embedder = read_embedder(tmp_path)

    def expected(text: str) -> np.ndarray:
        first = hidden_of(said, weights, embedder.numbers(text))[0]
        out = torch.tanh(TF.linear(first, dense["linear.weight"].double(), dense["linear.bias"].double()))
        return (out / out.norm()).numpy()

    np.testing.assert_allclose(embedder.embed(["abc"])[0], expected("is: abc"), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(embedder.embed(["abc"], "")[0], expected("abc"), rtol=1e-4, atol=1e-5)
    assert embedder.manner.prompts == {"query": "is: ", "passage": ""}


def test_forms_that_users_have(tmp_path: Path) -> None:
    said = said_of("BERT") | {"vocab_size": len(PIECES) + 4}
    weights = drawn(said)
    write(tmp_path, said, weights, ["mean"])
    expected = read_embedder(tmp_path).embed(TEXTS)
    old = {f"bert.{name}".replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): value
           for name, value in weights.items()}  # fmt: skip
    old |= {"bert.pooler.dense.weight": torch.ones(32, 32), "cls.predictions.bias": torch.ones(46)}
    old |= {"bert.embeddings.position_ids": torch.arange(40)[None]}
    save_file(old, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read_embedder(tmp_path).embed(TEXTS), expected)
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6, "do_lower_case": True}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "model_max_length": 7}))
    embedder = read_embedder(tmp_path)
    assert embedder.longest == 6 and embedder.numbers("ABC") == [2, 4, 31, 32, 3]
    (tmp_path / "sentence_bert_config.json").unlink()
    assert read_embedder(tmp_path).longest == 7 and read_embedder(tmp_path).numbers("ABC") == [2, 1, 3]


@pytest.mark.req("D6")
def test_the_last_token_of_a_decoder_is_a_vector(tmp_path: Path) -> None:
    said = config_of("Qwen 3")
    weights = random_weights(said)
    write_folder(tmp_path, said, weights)
    embedder = read_embedder(tmp_path, "lasttoken")
    texts = ["over 12", "a", "it is a longer text"]
    vectors = embedder.embed(texts)
    table = weights["model.embed_tokens.weight"].double().numpy()  # is the output layer, too
    for text, vector in zip(texts, vectors):
        logits = logits_of(said, weights, np.array(embedder.numbers(text)))[-1]
        np.testing.assert_allclose(vector.astype(np.float64) @ table.T, logits, rtol=1e-3, atol=1e-4)
    with pytest.raises(ArgumentError, match="the text '' has no tokens"):
        embedder.embed([""])


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("config.json", {"model_type": "electra"}, "says model_type is 'electra'; bert, roberta"),
        ("config.json", {"model_type": ["bert"]}, "says model_type is \"['bert']\"; bert, roberta"),
        ("config.json", {"position_embedding_type": "relative_key"}, "says position_embedding_type is relative_key"),
        ("config.json", {"embedding_size": 16}, "says embedding_size is 16, which is not supported"),
        ("config.json", {"is_decoder": True}, "says is_decoder is True; only False"),
        ("config.json", {"num_attention_heads": 5}, "says num_attention_heads is 5; it must divide the width of 32"),
        ("config.json", {"hidden_act": "mish"}, "says hidden_act is mish"),
        ("config.json", {"vocab_size": 9}, "the network 9 vectors: they belong to different models"),
        ("config.json", {"max_position_embeddings": 41}, "position_embd.weight of (41, 32), it has one of (40, 32)"),
        ("1_Pooling/config.json", {"pooling_mode_median": True}, "1_Pooling/config.json says pooling_mode_median is True"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}, "says pooling is []; cls, max, mean"),
        ("1_Pooling/config.json", {"include_prompt": False}, "says include_prompt is False"),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, "sentence_bert_config.json says max_seq_length is long"),
        ("sentence_bert_config.json", {"layers": 3}, "sentence_bert_config.json says layers is 3, which is not supported"),
        ("config_sentence_transformers.json", {"prompts": {"query": 3}}, "prompts that are not a dict of texts"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "says default_prompt_name is x"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_by_its_file(file: str, change: Said, words: str, tmp_path: Path) -> None:
    said = said_of("BERT")
    write(tmp_path, said, drawn(said), ["mean"])
    path = tmp_path / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | change))
    with pytest.raises(DataError) as caught:
        read_embedder(tmp_path)
    assert words in caught.value.fact and str(tmp_path) in caught.value.fact


def test_parts_that_are_not_done_are_refused(tmp_path: Path) -> None:
    said = said_of("BERT")
    for steps, words in ((("Tokens",), "modules.json has a Tokens"), (("../Dense",), "not a list of parts")):
        write(tmp_path, said, drawn(said), ["mean"], steps)
        with pytest.raises(DataError, match=words):
            read_embedder(tmp_path)
    (tmp_path / "modules.json").write_text('[{"path": "", "type": "Pooling"}]')
    with pytest.raises(DataError, match="modules.json has Pooling; a Transformer and a Pooling come first"):
        read_embedder(tmp_path)
    (tmp_path / "modules.json").unlink()
    with pytest.raises(DataError, match="has no modules.json, which says how vectors are made") as caught:
        read_embedder(tmp_path)
    assert "--pooling says it: cls, max, mean" in str(caught.value)


def test_the_command_compares_texts_by_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = said_of("BERT")
    write(tmp_path, said, drawn(said), ["mean"])
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {"query": "is: "}}')
    words = ["embed", "ab", "is: ab", "--model", str(tmp_path)]
    assert cli.main([*words, "--json", "--prompt-name", "query"]) == 0
    named = capsys.readouterr().out.splitlines()
    assert cli.main([*words, "--json", "--prompt", ""]) == 0
    bare = capsys.readouterr().out.splitlines()
    assert named[0] == bare[1] and named[1] != bare[1]
    assert cli.main([*words, "--pooling", "cls"]) == 0
    cosine, *_ = capsys.readouterr().out.split()
    assert -1 < float(cosine) < 1
    for wrong, said_of_it in (
        (["--prompt-name", "doc"], "--prompt-name is one of the folder's prompts (query)"),
        (["--pooling", "median"], "--pooling is cls, max, mean"),
        (["--model", "/nowhere"], "/nowhere: is neither an encoder's folder"),
    ):
        assert cli.main([*words, *wrong]) == 1
        assert said_of_it in capsys.readouterr().err
