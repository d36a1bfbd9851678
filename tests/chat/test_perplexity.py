"""`picograd perplexity`: losses beside formulas in float64, windows, weights in fewer bits, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import ArgumentError, DataError
from picograd_formats.gguf_blocks import PACKS, repacked
from picograd_formats.gguf_file import plain_tensor, read_gguf
from picograd_programs import cli
from picograd_programs.chat.perplexity import PerplexitySettings, losses_of, windows_of
from picograd_programs.chat.run import opened
from picograd_programs.models.decoder_gguf import config_of, tensors_in
from tests.chat.small_model import write_model
from tests.models.numpy_decoder import numpy_logits

TEXT = "To be, or not to be: that is the question. Ärger, 東京 and 🙂 are other words; er er er."
ROW = r"(\w+) +([\d.]+ [KM]iB) +([\d.]+) +([\d.]+) +(\d+|-)"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "small.gguf"))


def by_formula(path: str, tokens: list[int], start: list[int], context: int, stride: int) -> list[float]:
    """Returns each token's loss by its own prefix: that of the first window which holds it."""
    file = read_gguf(path)
    weights, found = {name: tensor.unpacked() for name, tensor in tensors_in(file).items()}, []
    for place in range(0 if start else 1, len(tokens)):
        number = next(n for n in range(len(tokens)) if place < n * stride + context - len(start))
        prefix = [*start, *tokens[number * stride : place]]
        logits = numpy_logits(config_of(file), weights, np.array(prefix))[-1]
        top = logits.max()
        found.append(top + np.log(np.exp(logits - top).sum()) - logits[tokens[place]])
    return found


@pytest.mark.parametrize(
    ("start", "context", "stride"),
    [([], 70, 20), ([], 128, 64), ([257], 40, 39), ([257, 9], 8, 1), ([], 2, 1)],
    ids=["last piece overlaps", "all in one window", "begins with a token", "a token a window", "pairs"],
)
def test_losses_are_those_of_the_formulas(model: str, start: list[int], context: int, stride: int) -> None:
    network, tokenizer, *_ = opened(model, 256)
    tokens = tokenizer.encode(TEXT)
    losses, _ = losses_of(network, tokens, start, context, stride)
    assert len(losses) == len(tokens) - (not start)
    np.testing.assert_allclose(losses, by_formula(model, tokens, start, context, stride), atol=2e-5)


def test_a_row_has_perplexity_bits_and_memory_of_each_packing(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text(TEXT)
    words = ["--model", model, "--context", "64", "--stride", "16", "--pack", "file", "f32", "q8_0", "q4_0"]
    assert cli.main(["perplexity", "--text", str(tmp_path / "text"), *words]) == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split("  ")[0] == "weights" and "bits per byte" in head
    found = {name: (memory, float(value), float(bits)) for name, memory, value, bits, _ in re.findall(ROW, out)}
    assert [*found] == ["file", "f32", "q8_0", "q4_0"] and len(rows) == 4
    network, tokenizer, *_ = opened(model, 64)
    tokens = tokenizer.encode(TEXT)
    losses = by_formula(model, tokens, [], 64, 16)
    assert found["file"][1] == pytest.approx(np.exp(np.mean(losses)), abs=1e-2)
    nbytes = len(TEXT.encode()) - len(tokenizer.bytes_of(tokens[0]))
    assert found["file"][2] == pytest.approx(sum(losses) / np.log(2) / nbytes, abs=2e-4)
    assert f"{len(tokens)} tokens of which {len(losses)} count, {nbytes} bytes, windows of 64 every 16" in err
    assert found["f32"][1:] == pytest.approx(found["file"][1:], rel=1e-6), "the same numbers"
    nbytes_of = {name: float(memory.removesuffix(" KiB")) for name, (memory, *_) in found.items()}
    assert nbytes_of["f32"] > 3 * nbytes_of["file"] and nbytes_of["q8_0"] > 1.5 * nbytes_of["q4_0"] - 10
    assert 0 < abs(found["q8_0"][1] / found["file"][1] - 1) < 0.01 < abs(found["q4_0"][1] / found["file"][1] - 1) < 0.3


@pytest.mark.parametrize("name", PACKS)
def test_blocks_have_the_bits_of_the_gguf_package(name: str, rng: np.random.Generator) -> None:
    gguf = pytest.importorskip("gguf")
    values = (rng.normal(size=(64, 96)) * 10.0 ** rng.integers(-4, 4, (64, 1))).astype(np.float32)
    values[3], values[5, :32], values[7] = 0, 0.5, np.round(values[7])
    theirs = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)
    ours = repacked(plain_tensor(values), name)
    np.testing.assert_array_equal(ours.blocks.reshape(64, -1), theirs)
    np.testing.assert_array_equal(ours.unpacked(), gguf.quants.dequantize(theirs, gguf.GGMLQuantizationType[name]))


def test_rows_of_no_whole_blocks_stay_as_they_are() -> None:
    tensor = plain_tensor(np.ones((2, 33)))
    assert repacked(tensor, "Q4_0") is tensor and repacked(tensor, "") is tensor


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (b"", [], "is empty"),
        (b"a", [], "has 1 token; two or more are needed"),
        (b"K\xe4se", [], "not UTF-8: byte 1 is 0xe4"),
        (b"abc", ["--context", "257"], "--context: got 257; this model reads 256 tokens at most"),
        (b"abc", ["--context", "1"], "--context: got 1; a window needs 2 tokens or more"),
        (b"abc", ["--context", "8", "--stride", "8"], "--stride: got 8; it must be from 1 to 7"),
        (b"abc", ["--stride", "0"], "--stride: got 0"),
        (b"abc", ["--letters", "-1"], "--letters: got -1"),
        (b"abc", ["--letters", "1"], "has 1 token"),
    ],
)
def test_what_is_wrong_is_said(
    text: bytes, words: list[str], said: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_bytes(text)
    assert cli.main(["perplexity", "--model", model, "--text", str(tmp_path / "text"), "--context", "64", *words]) == 1
    assert said in capsys.readouterr().err


def test_a_text_and_a_model_that_continues_it_are_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["perplexity"]) == 1
    assert "hint: picograd perplexity --text FILE" in capsys.readouterr().err
    assert cli.main(["perplexity", "text"]) == 2
    assert "hint: picograd perplexity --text text" in capsys.readouterr().err
    for kind, said in (("t5", "has an encoder and a decoder"), ("whisper", "whisper"), ("bert", "bert")):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}"}}')
        assert cli.main(["perplexity", "--text", __file__, "--model", str(tmp_path)]) == 1
        assert said in capsys.readouterr().err
    assert windows_of(PerplexitySettings(context=8), 1, 8) == (8, 4)
    with pytest.raises(ArgumentError, match="needs 4 tokens or more"):
        windows_of(PerplexitySettings(context=3), 3, 8)


def test_numbers_that_are_not_finite_are_said(model: str) -> None:
    network, *_ = opened(model, 64)
    network.norm.weight *= float("nan")
    with pytest.raises(DataError, match="numbers are not finite"):
        losses_of(network, [1, 2, 3], [], 64, 32)
