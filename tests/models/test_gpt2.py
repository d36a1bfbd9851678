"""GPT-2's published format: random weights in it against the same network from its equations; the vocabulary; bad files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import picograd as pg
from picograd import Tensor
from picograd.errors import DataError, FileError
from picograd_programs import cli
from picograd_programs.data.bpe import LETTER_OF
from picograd_programs.data.tokenizer_json import tokenizer_in
from picograd_programs.models.gpt2 import END, config_of, read_gpt2

VOCABULARY, BLOCK, LAYERS, HEADS, WIDTH = 261, 96, 2, 3, 48
MERGES = ["t h", "th e", "Ġ the", "e r"]
NUMBERS = {token: place for place, token in enumerate([*LETTER_OF, "th", "the", "Ġthe", "er", END])}
Weights = dict[str, torch.Tensor]


def published(width: int = WIDTH) -> Weights:
    """Returns random weights with the published names and shapes, masks among them."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int, deviation: float = 0.2) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * deviation

    weights = {"wte.weight": drawn(VOCABULARY, width, deviation=0.3), "wpe.weight": drawn(BLOCK, width)}
    norms = ["ln_f", *(f"h.{layer}.{name}" for layer in range(LAYERS) for name in ("ln_1", "ln_2"))]
    for name in norms:
        weights |= {f"{name}.weight": 1 + drawn(width), f"{name}.bias": drawn(width)}
    for layer in range(LAYERS):
        for name, inner, outer in [
            ("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4), ("mlp.c_proj", 4, 1)
        ]:  # fmt: skip
            weights[f"h.{layer}.{name}.weight"] = drawn(inner * width, outer * width)
            weights[f"h.{layer}.{name}.bias"] = drawn(outer * width)
        weights[f"h.{layer}.attn.bias"] = torch.ones(1, 1, BLOCK, BLOCK).tril()
        weights[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return weights


def reference(weights: Weights, tokens: np.ndarray, heads: int = HEADS, is_exact: bool = False) -> np.ndarray:
    """Returns the logits after each token of a text from the equations, in float64: (T, V); the exact GELU as nanoGPT's."""
    w = {name: value.double() for name, value in weights.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def conv1d(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][torch.as_tensor(tokens)] + w["wpe.weight"][: len(tokens)]
    for layer in range(LAYERS):
        q, k, v = (
            part.unflatten(-1, (heads, -1)).transpose(0, 1)
            for part in conv1d(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn").chunk(3, -1)
        )
        later = torch.ones(len(x), len(x)).triu(1) == 1
        score = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(later, -math.inf)
        x = x + conv1d((score.softmax(-1) @ v).transpose(0, 1).flatten(1), f"h.{layer}.attn.c_proj")
        hidden = conv1d(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        near = torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3))
        opened = hidden / 2 * (1 + (torch.erf(hidden / math.sqrt(2)) if is_exact else near))
        x = x + conv1d(opened, f"h.{layer}.mlp.c_proj")
    return (norm(x, "ln_f") @ w["wte.weight"].T).numpy()


def write_vocabulary(folder: Path) -> None:
    (folder / "vocab.json").write_text(json.dumps(NUMBERS))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in MERGES))


def write_model(folder: Path, weights: Weights | None = None, **said: Any) -> Path:
    """Writes weights, a vocabulary, and what config.json says; returns the file of the weights."""
    write_vocabulary(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": HEADS, **said}))
    save_file(published() if weights is None else weights, folder / "model.safetensors")
    return folder / "model.safetensors"


def logits_of(path: Path, tokens: np.ndarray, gelu: str = "") -> np.ndarray:
    with pg.no_grad():
        return read_gpt2(path, gelu=gelu)(Tensor(tokens[None]))[0][0].numpy()


# ---- logits ----
@pytest.mark.req("D8")
@pytest.mark.parametrize("kind", ["safetensors", "bin", "with an output layer", "float16"])
def test_logits_are_those_of_the_equations(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    weights, tokens = published(), rng.integers(0, VOCABULARY, 40)
    path = write_model(tmp_path)
    if kind == "float16":
        weights = {name: value.half() for name, value in weights.items()}
        path = write_model(tmp_path, weights)
    if kind == "with an output layer":
        named = {f"transformer.{name}": value for name, value in weights.items()}
        path = write_model(tmp_path, {**named, "lm_head.weight": weights["wte.weight"].clone()})
    if kind == "bin":
        path = tmp_path / "pytorch_model.bin"
        torch.save(weights, path)
    expected = reference(weights, tokens)
    assert np.abs(expected).max() > 5
    np.testing.assert_allclose(logits_of(path, tokens), expected, atol=1e-3, rtol=0)


def nanogpt(has_biases: bool = True) -> Weights:
    """Returns the same weights as a checkpoint of nanoGPT names and turns them, compiled and in several processes."""
    named = {name: value for name, value in published().items() if not name.endswith((".attn.bias", "masked_bias"))}
    return {
        f"module._orig_mod.transformer.{name}": value.T.contiguous() if ".c_" in name and value.ndim == 2 else value
        for name, value in named.items()
        if has_biases or not name.endswith(".bias")
    }


@pytest.mark.parametrize("has_biases", [True, False])
def test_a_checkpoint_of_nanogpt_is_read(has_biases: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    weights, tokens = nanogpt(has_biases), rng.integers(0, VOCABULARY, 20)
    head = {"module._orig_mod.lm_head.weight": weights["module._orig_mod.transformer.wte.weight"]}
    settings = {"n_head": HEADS, "n_layer": LAYERS, "block_size": BLOCK, "bias": has_biases, "dropout": 0.1}
    rest = {"optimizer": {"state": {0: {"step": torch.tensor(3.0)}}}, "iter_num": 3, "best_val_loss": torch.tensor(2.5)}
    torch.save({"model": {**weights, **head}, "model_args": settings, **rest}, tmp_path / "ckpt.pt")
    expected = published()
    if not has_biases:
        expected = {name: value * (not name.endswith(".bias")) for name, value in expected.items()}
    np.testing.assert_allclose(
        logits_of(tmp_path / "ckpt.pt", tokens), reference(expected, tokens, is_exact=True), atol=1e-3, rtol=0
    )


def test_a_checkpoint_of_nanogpts_first_months_has_another_gelu(tmp_path: Path, rng: np.random.Generator) -> None:
    weights, tokens = nanogpt(True), rng.integers(0, VOCABULARY, 20)
    old = {"n_head": HEADS, "n_layer": LAYERS, "block_size": BLOCK, "dropout": 0.1}
    exact, approximated = (reference(published(), tokens, is_exact=each) for each in (True, False))
    assert np.abs(exact - approximated).max() > 2e-4
    for settings, gelu, expected in [
        (old, "", approximated), (old | {"bias": True}, "", exact),
        (old, "none", exact), (old | {"bias": True}, "tanh", approximated),
    ]:  # fmt: skip
        torch.save({"model": weights, "model_args": settings}, tmp_path / "ckpt.pt")
        np.testing.assert_allclose(logits_of(tmp_path / "ckpt.pt", tokens, gelu), expected, atol=1e-4, rtol=0)


def write_parts(folder: Path, weights: Weights, ending: str = "safetensors") -> Path:
    """Writes weights in two parts and their index, which it returns."""
    stem = {"safetensors": "model", "bin": "pytorch_model"}[ending]
    names, parts = sorted(weights), [f"{stem}-0000{number}-of-00002.{ending}" for number in (1, 2)]
    places = {name: parts[place % 2] for place, name in enumerate(names)}
    for part in parts:
        kept = {name: weights[name] for name in names if places[name] == part}
        save_file(kept, folder / part) if ending == "safetensors" else torch.save(kept, folder / part)
    index = folder / f"{stem}.{ending}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


@pytest.mark.parametrize("kind", ["the old stream of PyTorch", "bfloat16 in two parts", "parts of PyTorch", "a folder"])
def test_forms_of_files_that_users_have(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    weights, tokens = published(), rng.integers(0, VOCABULARY, 20)
    path, given = tmp_path / "pytorch_model.bin", tmp_path / "pytorch_model.bin"
    (tmp_path / "config.json").write_text(json.dumps({"n_head": HEADS, "of": "an unknown field", "resid_pdrop": 0.1}))
    if kind == "the old stream of PyTorch":
        torch.save(weights, path, _use_new_zipfile_serialization=False)
    elif kind == "bfloat16 in two parts":
        weights = {name: value.bfloat16() for name, value in weights.items()}
        given = write_parts(tmp_path, {f"transformer.{name}": value for name, value in weights.items()})
    else:
        given = write_parts(tmp_path, weights, "bin")
        given = tmp_path if kind == "a folder" else tmp_path / "pytorch_model-00002-of-00002.bin"
    np.testing.assert_allclose(logits_of(given, tokens), reference(weights, tokens), atol=1e-3, rtol=0)


def test_parts_that_do_not_fit_their_index_are_sentences(tmp_path: Path) -> None:
    index, part = write_parts(tmp_path, published()), tmp_path / "model-00002-of-00002.safetensors"
    (tmp_path / "config.json").write_text(json.dumps({"n_head": HEADS}))

    def said(path: Path) -> DataError:
        with pytest.raises(DataError) as caught:
            read_gpt2(path)
        return caught.value

    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    assert str(part) in said(index).fact and "cannot be read as a safetensors file" in said(index).fact
    save_file({"ln_f.bias": torch.zeros(WIDTH)}, part)
    assert "00002-of-00002.safetensors: has no tensor h.0.attn.c_attn.bias, which model.safetensors.index.json says" in (
        said(tmp_path).fact
    )
    part.unlink()
    missing = said(index)
    assert isinstance(missing, FileError) and "names 2 parts: all must be in its folder" in str(missing.hint)
    index.write_text('{"weight_map": {"wte.weight": "../elsewhere.safetensors"}}')
    assert "has no weight_map" in said(index).fact
    index.unlink()
    alone = said(tmp_path / "model-00001-of-00002.safetensors").fact
    assert "is one part of a network, and model.safetensors.index.json, the list of all parts, is not" in alone
    assert "has none of model.safetensors" in said(tmp_path).fact
    twice = {"wte.weight": torch.zeros(3, 3), "transformer.wte.weight": torch.zeros(3, 3)}
    save_file(twice, tmp_path / "model.safetensors")
    assert "wte.weight and " in said(tmp_path).fact and "two tensors for one part of the network" in said(tmp_path).fact


@pytest.mark.parametrize("rows", [320, VOCABULARY + 1])
def test_a_table_that_is_filled_up_gives_the_tokens_of_the_vocabulary_alone(
    rows: int, tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, tokens = published(), rng.integers(0, VOCABULARY, 20)
    likeliest = torch.full((rows - VOCABULARY, WIDTH), 9.0)  # if they counted
    filled = torch.cat([weights["wte.weight"], likeliest])
    path = write_model(tmp_path, {**weights, "wte.weight": filled, "lm_head.weight": filled.clone()})
    with pg.no_grad():
        logits = read_gpt2(path, VOCABULARY)(Tensor(tokens[None]))[0][0].numpy()
    np.testing.assert_allclose(logits, reference(weights, tokens), atol=1e-3, rtol=0)
    assert cli.main(["sample", "gpt2", "--weights", str(path), "--prompt", "the", "--length", "30", "--top-k", "0"]) == 0
    assert capsys.readouterr().out.startswith("the")


@pytest.mark.parametrize("rows", [VOCABULARY - 1, 2 * VOCABULARY + 1])
def test_a_table_of_another_vocabulary_is_a_sentence(rows: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_model(tmp_path, {**published(), "wte.weight": torch.zeros(rows, WIDTH)})
    assert cli.main(["sample", "gpt2", "--weights", str(path), "--prompt", "the"]) == 1
    error = capsys.readouterr().err
    assert f"{path}: its table wte.weight of ({rows}, 48) has vectors of {rows} tokens, and the vocabulary has 261" in error
    assert "take both from where the model is published" in error


@pytest.mark.req("D8")
def test_without_config_json_heads_follow_from_the_width(tmp_path: Path, rng: np.random.Generator) -> None:
    weights, tokens = published(width=128), rng.integers(0, VOCABULARY, 9)
    path = write_model(tmp_path, weights)
    (tmp_path / "config.json").unlink()
    np.testing.assert_allclose(logits_of(path, tokens), reference(weights, tokens, heads=2), atol=1e-3, rtol=0)
    for width, layers, heads in [(768, 12, 12), (1024, 24, 16), (1280, 36, 20), (1600, 48, 25)]:  # all that were published
        names = {f"h.{layer}.ln_1.weight": Tensor.zeros(width) for layer in range(layers)}
        tables = {"wte.weight": Tensor.zeros(50257, width), "wpe.weight": Tensor.zeros(1024, width)}
        config = config_of({**tables, **names}, {})
        assert (config.vocabulary, config.block, config.layers, config.heads) == (50257, 1024, layers, heads)


# ---- text ----
def test_weights_are_in_memory_once_while_they_are_read(tmp_path: Path) -> None:
    save_file(published(128), path := tmp_path / "model.safetensors")
    before = pg.memory_allocated()
    pg.reset_peak_memory_stats()
    model = read_gpt2(path)
    model.logits(model.hidden(Tensor([[1, 2]]))).realize()
    nbytes = sum(parameter.nbytes for parameter in model.parameters())
    assert nbytes < pg.max_memory_allocated() - before < 1.4 * nbytes  # blocks of size classes; the largest is a seventh


@pytest.mark.req("D8")
def test_the_command_continues_a_prompt_as_the_equations_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, weights = write_model(tmp_path), published()
    tokenizer = tokenizer_in(tmp_path)
    prompt = "the other thérapist " * 5  # longer than a piece that is read at once
    tokens = tokenizer.encode(prompt)
    assert 64 < len(tokens) < BLOCK - 12
    for _ in range(12):
        tokens.append(int(reference(weights, np.array(tokens))[-1].argmax()))
    drawn = tokens[-12:]
    ends = drawn.index(NUMBERS[END]) if NUMBERS[END] in drawn else 12
    words = ["sample", "gpt2", "--weights", str(path), "--prompt", prompt, "--temperature", "0", "--length", "12"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out == prompt + tokenizer.decode(drawn[:ends]) + "\n"


def test_without_a_prompt_a_text_begins_and_a_seed_decides_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, texts = write_model(tmp_path), []
    for seed in ("1", "1", "3"):
        assert cli.main(["sample", "gpt2", "--weights", str(path), "--num", "2", "--length", "20", "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].count("\n" + "-" * 20 + "\n") == 1


@pytest.mark.req("H1")
def test_tokens_are_those_of_the_tokenizers_library(tmp_path: Path, rng: np.random.Generator) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    write_vocabulary(tmp_path)
    theirs = tokenizers.ByteLevelBPETokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    theirs.add_special_tokens([END])
    (tmp_path / "other").mkdir()
    theirs.save(str(tmp_path / "other" / "tokenizer.json"))
    letters = [*"the rTHE\n\t'd 12", "é", "日", "\u00a0", "😀"]
    texts = ["".join(rng.choice(letters, 40)) for _ in range(50)]
    for folder in (tmp_path, tmp_path / "other"):
        ours = tokenizer_in(folder)
        assert ours.control == {END: 260}
        for text in texts:
            assert ours.encode(text) == theirs.encode(text).ids
            assert ours.decode(ours.encode(text)) == text


# ---- bad files ----
def changed(name: str, value: torch.Tensor | None) -> Weights:
    return {key: each for key, each in {**published(), name: value}.items() if each is not None}


@pytest.mark.parametrize(
    ("weights", "said", "words"),
    [
        (changed("h.1.mlp.c_fc.bias", None), {}, "a tensor h.1.mlp.c_fc.bias of (192,), of floats; it has none"),
        (changed("h.0.attn.c_attn.weight", torch.zeros(144, 48)), {}, "c_attn.weight of (48, 144), of floats; it has"),
        (changed("ln_f.bias", torch.zeros(48, dtype=torch.int64)), {}, "of floats; it has one of (48,), int64"),
        (changed("h.0.attn.rotary", torch.zeros(1)), {}, "a tensor 'h.0.attn.rotary', which GPT-2 does not have"),
        (changed("lm_head.weight", torch.zeros(261, 48)), {}, "its lm_head.weight is not its wte.weight"),
        (changed("wpe.weight", None), {}, "it is not a GPT-2"),
        ({"fc.weight": torch.zeros(3, 3)}, {}, "it is not a GPT-2"),
        (published(), {"n_head": 5}, "has 5 heads, which do not divide its width of 48"),
        (published(), {"n_layer": 3}, "n_layer is 3; its tensors have 2, as wte.weight of (261, 48), wpe.weight of (96, "),
        (published(), {"n_embd": 64}, "says n_embd is 64; its tensors have 48"),
        (published(), {"n_head": "many"}, "has many heads, which do not divide its width of 48"),
        (published(), {"activation_function": "relu"}, "says activation_function is relu; only gelu_new is supported"),
        (published(), {"model_type": "bert"}, "says model_type is bert"),
    ],
)  # fmt: skip
def test_another_network_is_a_data_error(weights: Weights, said: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = write_model(tmp_path, weights, **said)
    with pytest.raises(DataError) as caught:
        read_gpt2(path)
    assert words in caught.value.fact and str(path) in caught.value.fact


def test_damaged_and_missing_files_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_model(tmp_path)

    def said(*more: str) -> str:
        assert cli.main(["sample", "gpt2", "--weights", str(path), "--length", "2", *more]) == 1
        return capsys.readouterr().err

    whole = path.read_bytes()
    assert "--prompt: has 96 tokens; 1 to 95 can be continued" in said("--prompt", "x" * 96)
    assert "--length: got 0" in said("--length", "0")
    (tmp_path / "config.json").unlink()
    assert "has 0 heads, which do not divide its width of 48" in (err := said()) and "config.json, which has n_head" in err
    (tmp_path / "config.json").write_text("[]")
    assert "config.json: has no dict" in said()
    (tmp_path / "config.json").write_text('{"n_head": 3')
    assert "config.json: its JSON is damaged" in said()
    (tmp_path / "config.json").write_text('{"n_head": 3}')
    for damaged in (whole[:1000], whole[: len(whole) // 2], b"", whole[:8] + b"}" + whole[9:]):
        path.write_bytes(damaged)
        assert str(path) in said()
    torch.save({"weights": published()}, path)
    assert "has more than tensors by name, and no dict of them that is called model or state_dict" in (err := said())
    assert "torch.save(model.state_dict(), path)" in err
    torch.save(torch.nn.Linear(2, 2), path)
    assert "its pickle names torch.nn.modules.linear.Linear" in (err := said()) and "torch.save(model.state_dict()" in err
    path.write_bytes(whole[: len(whole) // 2])
    assert f"it is cut short: it has {len(whole) // 2:,} of {len(whole):,} bytes" in said()
    path.unlink()
    assert "model.safetensors: does not exist" in (err := said()) and "--weights names a file or folder with GPT-2" in err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("merges.txt", None, "vocab.json is there, merges.txt is not"),
        ("vocab.json", None, "vocab.json and merges.txt, which turn text into tokens, are not there"),
        ("vocab.json", "{", "vocab.json: its JSON is damaged"),
        ("vocab.json", '{"a": 0, "a": 1}', "vocab.json: a dict in its JSON has a duplicate key"),
        ("vocab.json", "[]", "vocab.json: has no dict"),
        ("vocab.json", "{}", "has no vocabulary"),
        ("vocab.json", '{"a": 0, "b": 2}', "the numbers of its 2 tokens must be 0, 1, 2, ...; 'b' has the number 2"),
        ("vocab.json", '{"a": "0"}', "'a' has the number 0"),
        ("vocab.json", '{"a": 0}', "wte.weight of (261, 48) has vectors of 261 tokens, and the vocabulary has 1"),
        ("merges.txt", "a b c\n", "the merge 'a b c', which is not a pair"),
        ("merges.txt", b"\xff", "merges.txt: is not UTF-8: byte 0"),
        ("tokenizer.json", '{"model": {"type": "WordLevel"}}', "tokenizer.json: has a model of type 'WordLevel'"),
        ("tokenizer.json", '{"model": {"type": "BPE"}}', "tokenizer.json: has no vocabulary"),
    ],
)  # fmt: skip
def test_a_damaged_vocabulary_is_a_sentence(
    name: str, text: str | bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_model(tmp_path)
    if name == "tokenizer.json":
        (tmp_path / "merges.txt").unlink()
    (tmp_path / name).unlink() if text is None else (tmp_path / name).write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )
    assert cli.main(["sample", "gpt2", "--weights", str(path), "--prompt", "a"]) == 1
    assert words in capsys.readouterr().err
