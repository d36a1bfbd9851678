"""Whisper: log-mel spectrograms, logits and texts of its equations, the command, and what is refused."""

from __future__ import annotations

import json
import math
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as TF

from picograd import Tensor
from picograd.errors import DataError
from picograd_programs import cli
from picograd_programs.data.bpe import CONTROL, LETTER_OF, TEXT, ByteLevel
from picograd_programs.data.tokenizer_json import save_tokenizer
from picograd_programs.models.transcribe import Transcriber, at_rate, read_sound
from picograd_programs.models.whisper import log_mel, mel_filters
from picograd_programs.models.whisper_folder import read_whisper
from tests.models.torch_layers import NamedLayers

Said = dict[str, Any]
Weights = dict[str, torch.Tensor]
MARKS = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|fr|>", "<|translate|>", "<|transcribe|>",
         "<|notimestamps|>"]  # fmt: skip
END, BEGIN, ENGLISH, GERMAN, TRANSLATE, TRANSCRIBE, NO_TIMES = 256, 257, 258, 259, 261, 262, 263
SIZES: Said = {
    "model_type": "whisper", "vocab_size": 264, "d_model": 32, "num_mel_bins": 20, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "activation_function": "gelu", "max_source_positions": 50, "max_target_positions": 24, "is_encoder_decoder": True,
    "decoder_start_token_id": BEGIN, "eos_token_id": END, "pad_token_id": END, "scale_embedding": False, "dropout": 0.0,
    "num_hidden_layers": 2, "suppress_tokens": [1, 2], "begin_suppress_tokens": [220], "forced_decoder_ids": [[1, 3]],
    "use_cache": True, "init_std": 0.02, "torch_dtype": "float32",
}  # fmt: skip


def drawn(said: Said) -> Weights:
    """Returns weights by their published names."""
    generator, width, hidden = torch.Generator().manual_seed(0), said["d_model"], said["encoder_ffn_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.conv1.weight": (width, said["num_mel_bins"], 3), "encoder.conv1.bias": (width,),
        "encoder.conv2.weight": (width, width, 3), "encoder.conv2.bias": (width,),
        "encoder.embed_positions.weight": (said["max_source_positions"], width),
        "decoder.embed_positions.weight": (said["max_target_positions"], width),
        "decoder.embed_tokens.weight": (said["vocab_size"], width),
    }  # fmt: skip
    for side in ("encoder", "decoder"):
        norms = ["layer_norm"]
        for layer in range(said[f"{side}_layers"]):
            part = f"layers.{layer}"
            norms += [f"{part}.self_attn_layer_norm", f"{part}.final_layer_norm"]
            norms += [f"{part}.encoder_attn_layer_norm"] * (side == "decoder")
            for kind in ["self_attn"] + ["encoder_attn"] * (side == "decoder"):
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes[f"{side}.{part}.{kind}.{name}.weight"] = (width, width)
                    if name != "k_proj":
                        shapes[f"{side}.{part}.{kind}.{name}.bias"] = (width,)
            shapes |= {f"{side}.{part}.fc1.weight": (hidden, width), f"{side}.{part}.fc1.bias": (hidden,)}
            shapes |= {f"{side}.{part}.fc2.weight": (width, hidden), f"{side}.{part}.fc2.bias": (width,)}
        shapes |= {f"{side}.{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    return {
        f"model.{name}": torch.randn(*shape, generator=generator) * (0.2 if len(shape) > 1 else 0.1)
        + (name.endswith("norm.weight"))
        for name, shape in shapes.items()
    }


def spectrogram(sound: np.ndarray, bands: int) -> torch.Tensor:
    """The log-mel spectrogram (M, P), by the definition of each step, in float64."""
    padded = np.pad(sound.astype(np.float64), 200, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    frames = np.stack([padded[160 * n : 160 * n + 400] * window for n in range(len(sound) // 160)])
    power = np.abs(np.fft.rfft(frames)) ** 2

    def hertz(mel: float) -> float:
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    highest = 15 + 27 * math.log(8) / math.log(6.4)
    corners = [hertz(highest * n / (bands + 1)) for n in range(bands + 2)]
    filters = np.zeros((bands, 201))
    for row, (low, middle, high) in enumerate(zip(corners, corners[1:], corners[2:])):
        for place in range(201):
            at = place * 40.0
            share = (at - low) / (middle - low) if at <= middle else (high - at) / (high - middle)
            filters[row, place] = max(share, 0) * 2 / (high - low)
    loudness = np.log10(np.maximum(filters @ power.T, 1e-10))
    return torch.from_numpy((np.maximum(loudness, loudness.max() - 8) + 4) / 4)


def logits_of(said: Said, weights: Weights, loudness: torch.Tensor, written: list[int]) -> torch.Tensor:
    """The logits after each token that is written, from the equations of the paper, float64: (T, V)."""
    layers = NamedLayers(weights, 4)
    w, linear, norm, attention = layers.weights, layers.linear, layers.norm, layers.attention

    def feed_forward(x: torch.Tensor, part: str) -> torch.Tensor:
        return linear(TF.gelu(linear(norm(x, f"{part}.final_layer_norm"), f"{part}.fc1")), f"{part}.fc2")

    x = TF.gelu(TF.conv1d(loudness[None], w["encoder.conv1.weight"], w["encoder.conv1.bias"], padding=1))
    x = TF.gelu(TF.conv1d(x, w["encoder.conv2.weight"], w["encoder.conv2.bias"], stride=2, padding=1))[0].T
    x = x + w["encoder.embed_positions.weight"]
    for layer in range(said["encoder_layers"]):
        part = f"encoder.layers.{layer}"
        seen = norm(x, f"{part}.self_attn_layer_norm")
        x = x + attention(seen, seen, f"{part}.self_attn")
        x = x + feed_forward(x, part)
    memory = norm(x, "encoder.layer_norm")
    x = w["decoder.embed_tokens.weight"][written] + w["decoder.embed_positions.weight"][: len(written)]
    for layer in range(said["decoder_layers"]):
        part = f"decoder.layers.{layer}"
        seen = norm(x, f"{part}.self_attn_layer_norm")
        x = x + attention(seen, seen, f"{part}.self_attn", is_causal=True)
        x = x + attention(norm(x, f"{part}.encoder_attn_layer_norm"), memory, f"{part}.encoder_attn")
        x = x + feed_forward(x, part)
    return norm(x, "decoder.layer_norm") @ w["decoder.embed_tokens.weight"].T


def write_folder(folder: Path, said: Said, weights: Weights | None, generation: Said | None = None) -> None:
    """Writes a configuration, weights, and a tokenizer of bytes with Whisper's marks."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said))
    tokens = [*LETTER_OF, *MARKS]
    save_tokenizer(ByteLevel(tokens, [], [TEXT] * 256 + [CONTROL] * len(MARKS), "gpt-2"), folder / "tokenizer.json")
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    if weights is not None:
        save_file(weights | {"proj_out.weight": weights["model.decoder.embed_tokens.weight"].clone()},
                  folder / "model.safetensors")  # fmt: skip


def a_sound(seconds: float) -> np.ndarray:
    """A tone that rises, with noise."""
    rng, place = np.random.default_rng(0), np.arange(round(seconds * 16000))
    tone = 0.3 * np.sin(place * (0.05 + place / 2e5)) + 0.05 * rng.standard_normal(len(place))
    return np.asarray(tone, np.float32)


def write_sound(path: Path, sound: np.ndarray, rate: int = 16000, nbytes: int = 2, channels: int = 1) -> None:
    """Writes a WAV file, each channel the same."""
    whole = np.round(sound.astype(np.float64) * (2 ** (8 * nbytes - 1) - 1)).astype("<i4")
    whole = whole + 128 if nbytes == 1 else whole
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(nbytes)
        file.setframerate(rate)
        file.writeframes(np.repeat(whole, channels).view(np.uint8).reshape(-1, 4)[:, :nbytes].tobytes())


@pytest.mark.parametrize("bands", [20, 80, 128])
def test_the_spectrogram_of_a_sound_is_that_of_its_definition(bands: int) -> None:
    sound = a_sound(1.0)
    sound[8000:] = 0  # silence, whose logarithm has a floor
    found = log_mel(Tensor(sound), Tensor(mel_filters(bands))).numpy()
    assert found.shape == (bands, 100)
    np.testing.assert_allclose(found, spectrogram(sound, bands).numpy(), atol=2e-4)


@pytest.mark.req("D9")
def test_a_folder_has_the_logits_and_the_likeliest_text_of_its_equations(tmp_path: Path) -> None:
    weights, rng = drawn(SIZES), np.random.default_rng(0)
    write_folder(tmp_path, SIZES, weights, {"is_multilingual": True, "suppress_tokens": [1, 2, 9999]})
    transcriber, sound = Transcriber(read_whisper(tmp_path)), a_sound(1.0)
    for piece in (sound, sound[:9000]):
        transcriber.read(piece)
        loudness = spectrogram(np.pad(piece, (0, 16000 - len(piece))), 20)
        written = [BEGIN, *rng.integers(0, 256, 15).tolist()]
        logits = [transcriber.writer.logits(token, place, 50) for place, token in enumerate(written)]
        expected = logits_of(SIZES, weights, loudness, written).numpy()
        np.testing.assert_allclose(np.stack(logits), expected, rtol=1e-3, atol=2e-4)
        languages = expected[0, [ENGLISH, GERMAN, GERMAN + 1]]
        assert transcriber.language() == ("en", "de", "fr")[languages.argmax()]
        text = [BEGIN, GERMAN, TRANSLATE, NO_TIMES]
        while len(text) < 16:
            row = logits_of(SIZES, weights, loudness, text)[-1].numpy()
            row[[1, 2, *([220] if len(text) == 4 else [])]] = -np.inf
            text.append(int(row.argmax()))
        found = [*transcriber.tokens("de", "translate", 12)]
        assert found == text[4 : text.index(END) if END in text else None]
    assert transcriber.read_piece.num_captures == 1 and transcriber.writer.write_tokens.num_captures == 1


def test_a_network_for_english_alone_begins_without_a_language(tmp_path: Path) -> None:
    write_folder(tmp_path, SIZES, drawn(SIZES))
    speech = read_whisper(tmp_path)
    assert speech.languages == {} and speech.start("", "transcribe") == (BEGIN, NO_TIMES)
    assert speech.barred.always == (1, 2) and speech.barred.first == (220,)
    write_folder(tmp_path, SIZES, None, {"is_multilingual": True})
    speech = read_whisper(tmp_path)
    assert speech.languages == {"en": 258, "de": 259, "fr": 260}
    assert speech.start("fr", "transcribe") == (BEGIN, 260, TRANSCRIBE, NO_TIMES)


@pytest.mark.parametrize(("nbytes", "channels"), [(1, 1), (2, 1), (2, 2), (3, 1), (4, 3)])
def test_sounds_of_files(nbytes: int, channels: int, tmp_path: Path) -> None:
    sound = a_sound(0.2)
    write_sound(tmp_path / "a.wav", sound, 16000, nbytes, channels)
    np.testing.assert_allclose(read_sound(tmp_path / "a.wav"), sound, atol=2.0 ** (2 - 8 * min(nbytes, 3)))


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_a_sound_of_another_rate_has_the_same_tones(rate: int) -> None:
    ours, theirs = (np.sin(2 * np.pi * 440 * np.arange(n) / n) for n in (16000, rate))
    np.testing.assert_allclose(at_rate(theirs.astype(np.float32), rate), ours, atol=1e-4)


def test_the_command_writes_the_text_of_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, model = drawn(SIZES), tmp_path / "model"
    write_folder(model, SIZES, weights, {"is_multilingual": True})
    write_sound(tmp_path / "long.wav", a_sound(2.5), 16000)
    write_sound(tmp_path / "fast.wav", a_sound(0.5), 44100, channels=2)
    words = ["transcribe", str(tmp_path / "long.wav"), str(tmp_path / "fast.wav"), "--model", str(model)]
    assert cli.main([*words, "--max-tokens", "4"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("wrote") == 2 and shown.out
    assert cli.main([*words, "--language", "xx"]) == 1
    assert "--language xx is not one of en, de, fr" in capsys.readouterr().err
    write_folder(model, SIZES, weights, {"is_multilingual": False})
    assert cli.main([*words, "--translate"]) == 1
    assert "--translate needs a network that knows other languages" in capsys.readouterr().err


def test_files_that_are_missing_or_damaged_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, sound = tmp_path / "model", tmp_path / "a.wav"
    write_folder(model, SIZES, drawn(SIZES))
    words = ["transcribe", str(sound), "--model", str(model)]
    assert cli.main(words) == 1 and str(sound) in capsys.readouterr().err
    sound.write_bytes(b"RIFF" + bytes(50))
    assert cli.main(words) == 1
    assert "is not a WAV file of whole numbers" in (shown := capsys.readouterr().err) and "ffmpeg" in shown
    sound.write_bytes(b"hello")
    assert cli.main(words) == 1 and "(it ends in its header)" in capsys.readouterr().err
    write_sound(sound, a_sound(0.1))
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        whole = (model / file).read_bytes()
        (model / file).write_bytes(whole[: len(whole) // 2])
        assert cli.main(words) == 1 and str(model / file) in capsys.readouterr().err
        (model / file).write_bytes(whole)
    write_sound(sound, a_sound(0.0))
    assert cli.main(words) == 0 and capsys.readouterr().out == "\n", "no sound has no text"


# ---- what is refused ----
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "t5"}, "says model_type is 't5'; whisper is run"),
    ({"decoder_ffn_dim": 64}, "says decoder_ffn_dim is 64; as many as of the encoder, 48, are done here"),
    ({"decoder_attention_heads": 2}, "says decoder_attention_heads is 2; as many as of the encoder, 4"),
    ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "they must divide d_model, 32"),
    ({"activation_function": "mish"}, "says activation_function is mish"),
    ({"scale_embedding": True}, "says scale_embedding is True; with False it is computed here"),
    ({"eos_token_id": 264}, "says eos_token_id is 264; a number of the 264 tokens is needed"),
    ({"suppress_tokens": "all"}, "suppress_tokens is all; a list of numbers of tokens is needed"),
    ({"cross_layers": 2}, "says cross_layers is 2, which is not known here"),
    ({"vocab_size": 100, "eos_token_id": 9}, "the network 100 vectors"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_configuration_that_is_not_done_is_refused_before_weights_are_looked_for(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_folder(tmp_path, SIZES | change, None)
    with pytest.raises(DataError) as caught:
        read_whisper(tmp_path)
    assert words in caught.value.fact


@pytest.mark.parametrize(
    ("tensor", "value", "words"),
    [
        ("model.encoder.conv2.bias", None, "a tensor encoder.conv2.bias of (32,), it has none"),
        ("model.decoder.layers.1.encoder_attn.q_proj.weight", torch.ones(3, 32),
         "a tensor decoder.layers.1.encoder_attn.q_proj.weight of (32, 32), it has one of (3, 32)"),
        ("model.decoder.layers.1.self_attn.k_proj.bias", torch.ones(32), "decoder.layers.1.self_attn.k_proj.bias', which"),
        ("model.encoder.layers.0.encoder_attn.q_proj.bias", torch.ones(32), "encoder_attn.q_proj.bias' of (32,), float32"),
    ],
)  # fmt: skip
def test_tensors_of_another_network_are_named(tensor: str, value: Any, words: str, tmp_path: Path) -> None:
    write_folder(tmp_path, SIZES, {k: v for k, v in (drawn(SIZES) | {tensor: value}).items() if v is not None})
    with pytest.raises(DataError) as caught:
        read_whisper(tmp_path)
    assert words in caught.value.fact
