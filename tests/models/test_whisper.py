"""Whisper: log-mel spectrograms, logits and texts of its equations, the command, and what is refused."""

from __future__ import annotations

import json
import math
import tracemalloc
import wave
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as TF

from picograd.errors import DataError
from picograd_programs import cli
from picograd_programs.chat.rules import BARRED
from picograd_programs.data.bpe import CONTROL, LETTER_OF, TEXT, ByteLevel
from picograd_programs.data.tokenizer_json import save_tokenizer
from picograd_programs.models.transcribe import TEMPERATURES, Draft, Transcriber, TranscribeSettings, at_rate, read_sound
from picograd_programs.models.whisper_folder import BEFORE, read_whisper
from picograd_programs.models.whisper_times import Times, parts_of
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


@pytest.mark.parametrize("seconds", [0.4, 1.0, 2.53])
@pytest.mark.parametrize("bands", [20, 80])
def test_the_spectrogram_of_a_sound_is_that_of_its_definition(bands: int, seconds: float, tmp_path: Path) -> None:
    sound, said = a_sound(seconds), SIZES | {"num_mel_bins": bands}
    sound[round(len(sound) * 0.6) : round(len(sound) * 0.8)] = 0  # silence, whose logarithm has a floor
    write_folder(tmp_path, said, drawn(said))
    transcriber = Transcriber(read_whisper(tmp_path))
    found = transcriber.spectrogram(sound)
    assert found.shape == (bands, len(sound) // 160)
    whole = spectrogram(np.pad(sound, (0, 16000)), bands).numpy()[:, : found.shape[1]]
    np.testing.assert_allclose(found, whole, atol=2e-4)
    assert transcriber.power.num_captures == 1 and transcriber.spectrogram(sound[:0]).shape == (bands, 0)


@pytest.mark.req("D9")
def test_a_folder_has_the_logits_and_the_likeliest_text_of_its_equations(tmp_path: Path) -> None:
    weights, rng = drawn(SIZES), np.random.default_rng(0)
    write_folder(tmp_path, SIZES, weights, {"is_multilingual": True, "suppress_tokens": [1, 2, 9999]})
    transcriber, sound = Transcriber(read_whisper(tmp_path)), a_sound(1.0)
    for piece in (sound, sound[:9000]):
        transcriber.read(transcriber.spectrogram(piece))
        whole = spectrogram(np.pad(piece, (0, 16000)), 20)[:, : len(piece) // 160]
        loudness = TF.pad(whole, (0, 100 - whole.shape[1]))
        written = [BEGIN, *rng.integers(0, 256, 15).tolist()]
        logits = [transcriber.writer.logits(token, place, 50) for place, token in enumerate(written)]
        expected = logits_of(SIZES, weights, loudness, written).numpy()
        np.testing.assert_allclose(np.stack(logits), expected, rtol=1e-3, atol=2e-4)
        languages = expected[0, [ENGLISH, GERMAN, GERMAN + 1]]
        assert transcriber.language() == ("en", "de", "fr")[languages.argmax()]
        shares = np.exp(expected[0] - expected[0].max())
        assert transcriber.silence() == pytest.approx(shares[NO_TIMES - 1] / shares.sum(), rel=1e-3)
        text, likely = [BEGIN, GERMAN, TRANSLATE, NO_TIMES], list[float]()
        while len(text) < 16 and text[-1] != END:
            row = logits_of(SIZES, weights, loudness, text)[-1].numpy()
            row[[1, 2, *([220] if len(text) == 4 else [])]] = -np.inf
            text.append(int(row.argmax()))
            likely.append(row.max() - math.log(np.exp(row).sum()))
        draft = transcriber.draft("de", "translate", 12)
        assert [*draft.tokens] == text[4 : text.index(END) if END in text else None]
        assert draft.log_probability == pytest.approx(np.mean(likely), rel=1e-3)
    assert transcriber.read_window.num_captures == 1 and transcriber.writer.write_tokens.num_captures == 1


# ---- times ----
TIMED = SIZES | {"vocab_size": 315, "max_target_positions": 40, "begin_suppress_tokens": [220, END]}
OF_TIMES: Said = {
    "is_multilingual": False, "suppress_tokens": [1, 2, *range(257, 263)], "begin_suppress_tokens": [220, END],
    "max_initial_timestamp_index": 20,
}  # fmt: skip
FIRST = NO_TIMES + 1  # token of the time 0
WHOLE = TranscribeSettings((), retry=False)


def write_timed(folder: Path, names: bool = False, continues: bool = False) -> None:
    """Writes a folder of a network whose vocabulary has 51 times, with names or without.

    Args:
      continues:  it knows the token of a text before
    """
    weights = drawn(TIMED)
    weights["model.decoder.embed_tokens.weight"][FIRST:] *= 1.5
    write_folder(folder, TIMED, weights, OF_TIMES)
    if names or continues:
        marks = [BEFORE if mark == "<|fr|>" and continues else mark for mark in MARKS]
        tokens = [*LETTER_OF, *marks, *(f"<|{step / 50:.2f}|>" for step in range(51))]
        kinds = [TEXT] * 256 + [CONTROL] * (len(tokens) - 256)
        save_tokenizer(ByteLevel(tokens, [], kinds, "gpt-2"), folder / "tokenizer.json")


# Parts that transformers 5.24 makes of two seconds, of which its network reads one at a time; with the text before, too.
HEARD = {
    1: [(0.28, 0.58, (94,)), (0.84, 1.16, (93,)), (1.3, 1.7, (94,)), (1.7, 1.88, (10,)), (1.88, 2.16, (130,)),
        (2.3, 3.04, (159,)), (3.04, 3.12, (31,))],
    3: [(0.28, 0.58, (239,)), (0.84, 1.16, (93,)), (1.3, 1.7, (10,)), (1.7, 1.74, (130,)), (1.74, 1.88, (120,)),
        (2.02, 2.76, (204,)), (2.76, 2.78, (10, 10, 10, 31, *[10] * 14))],
}  # fmt: skip


@pytest.mark.req("D9")
@pytest.mark.parametrize("beams", HEARD)
def test_parts_and_windows_follow_times_as_in_transformers(beams: int, tmp_path: Path) -> None:
    for names in (False, True):
        write_timed(tmp_path, names)
        transcriber = Transcriber(read_whisper(tmp_path), beams)
        assert transcriber.speech.start("", "transcribe") == (BEGIN,)
        found = [(round(each.begin, 2), round(each.end, 2), each.tokens) for each in transcriber.parts(a_sound(2.2), WHOLE)]
        assert found == HEARD[beams]
    assert transcriber.writer.write_tokens.num_captures == transcriber.power.num_captures == 1


CONTINUED = {
    1: [(0.28, 0.58, (94,)), (0.72, 1.16, (93,)), (1.3, 1.7, (10,)), (1.7, 1.88, (10,)), (1.88, 2.06, (10,)),
        (2.36, 2.94, (31,))],
    3: [(0.28, 0.58, (239,)), (0.72, 1.16, (93,)), (1.3, 1.7, (10,)), (1.7, 1.74, (10,)), (1.74, 1.88, (120,)),
        (1.88, 2.16, (10, 10)), (2.3, 3.04, (20,))],
}  # fmt: skip


@pytest.mark.parametrize("beams", CONTINUED)
def test_a_window_continues_the_text_before_it_as_in_transformers(beams: int, tmp_path: Path) -> None:
    write_timed(tmp_path, continues=True)
    transcriber = Transcriber(read_whisper(tmp_path), beams)
    for settings, expected in ((WHOLE, CONTINUED), (replace(WHOLE, previous_text=False), HEARD)):
        found = [(round(e.begin, 2), round(e.end, 2), e.tokens) for e in transcriber.parts(a_sound(2.2), settings)]
        assert found == expected[beams]


def test_the_text_before_is_that_of_good_windows_and_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_timed(tmp_path, continues=True)
    transcriber, before = Transcriber(read_whisper(tmp_path)), list[tuple[int, ...]]()
    drafts = iter([
        Draft((FIRST, 65, FIRST + 9, FIRST + 9), -0.1), None, Draft((FIRST, 66, FIRST + 5), -0.1, 0.4),
        Draft((FIRST, 67, FIRST + 5), -0.1, 0.6), Draft((FIRST, 68, FIRST + 5), -0.1), None,
    ])  # fmt: skip

    def best(language: str, task: str, num: int, temperatures: Sequence[float], given: Sequence[int]) -> Draft | None:
        before.append(tuple(given))
        return next(drafts)

    monkeypatch.setattr(transcriber, "best", best)
    assert len([*transcriber.parts(a_sound(5.1), replace(WHOLE, prompt=" A "))]) == 4
    first = (*transcriber.speech.tokenizer.encode(" A"),)
    heard = (*first, FIRST, 65, FIRST + 9)
    assert before == [first, heard, heard, (*heard, FIRST, 66, FIRST + 5), (), (FIRST, 68, FIRST + 5)]
    assert transcriber.earlier([]) == () and transcriber.earlier([7, 8]) == (260, 7, 8)
    assert transcriber.earlier([*range(99)]) == (260, *range(80, 99)), "half of the context, less one"


def test_tokens_that_begin_a_text_are_read_at_once(tmp_path: Path) -> None:
    said, rng = TIMED | {"max_target_positions": 80}, np.random.default_rng(0)
    write_folder(tmp_path, said, drawn(said), OF_TIMES)
    begun = rng.integers(0, 256, 80).tolist()
    for num, place in ((1, 70), (2, 33), (1, 80)):
        writer = Transcriber(read_whisper(tmp_path), num)
        writer.read(writer.spectrogram(a_sound(1.0)))
        found = writer.writer.begin(begun[:place], 50)
        assert writer.writer.write_piece.num_captures == 1
        each = [writer.writer.logits(token, at, 50) for at, token in enumerate(begun[:place])]
        np.testing.assert_allclose(found, each[-1], atol=1e-5)


def test_times_come_in_pairs_and_rise() -> None:
    rule, (word, other), low = Times(100, 90, 3, 2), (7, 8), np.float32(BARRED)

    def may_follow(*written: int, likely: int = word) -> set[int]:
        scores = np.zeros(110, np.float32)
        scores[likely] = 9
        rule(scores, [91, 92, *written])
        return {*np.flatnonzero(scores > low).tolist()}

    words, times = {*range(99)}, {*range(100, 110)}
    assert may_follow() == {100, 101, 102, 103}, "a text begins with an early time"
    assert may_follow(102) == words, "then a word"
    assert may_follow(102, word) == words | {103, 104, 105, 106, 107, 108, 109}, "a part ends later than it begins"
    assert may_follow(102, word, 105) == {*range(105, 110)}, "times together are likelier than an end"
    assert may_follow(102, word, 105, likely=95) == {*range(90, 99), *range(105, 110)}, "the next part, or the end"
    assert may_follow(102, word, 105, 105) == words
    assert may_follow(102, word, 105, 107, other) == words | {108, 109}
    assert may_follow(102, word, likely=104) == times - {100, 101, 102}, "a time that is likelier than each word"


def test_parts_of_a_window() -> None:
    def parts(*tokens: int) -> tuple[list[tuple[float, float, tuple[int, ...]]], int]:
        found, past = parts_of(tokens, 100, 50)
        return [(round(part.begin, 2), round(part.end, 2), part.tokens) for part in found], past

    assert parts() == ([(0.0, 1.0, ())], 50)
    assert parts(100, 7) == ([(0.0, 1.0, (7,))], 50), "a part without an end is as long as the window"
    assert parts(103, 7, 8, 110) == ([(0.0, 0.2, (7, 8))], 50)
    assert parts(103, 7, 110, 112, 8, 120) == ([(0.06, 0.2, (7,)), (0.24, 0.4, (8,))], 50)
    assert parts(103, 7, 110, 112, 8) == ([(0.06, 0.2, (7,))], 10), "an unfinished part is read again, in the next window"
    assert parts(103, 7, 110, 110) == ([(0.06, 0.2, (7,))], 10)
    assert parts(103, 7, 110, 112, 8, 115, 115, 9) == ([(0.06, 0.2, (7,)), (0.24, 0.3, (8,))], 15)


@pytest.mark.parametrize(
    ("drafts", "silence", "tries", "taken"),
    [
        ([(b"a word", -0.5)], 0.0, 1, b"a word"),
        ([(b"la" * 40, -0.1), (b"a word", -0.5)], 0.0, 2, b"a word"),
        ([(b"a word", -1.1), (b"la" * 40, -0.1), (b"one", -0.9)], 0.0, 3, b"one"),
        ([(b"a word", -1.1)] * 5 + [(b"no good", -2.0)], 0.0, 6, b"no good"),
        ([(b"a word", -1.1)], 0.7, 1, None),
        ([(b"a word", -0.9)], 0.7, 1, b"a word"),
        ([(b"la" * 40, -0.1), (b"hm", -1.5)], 0.7, 2, None),
    ],
)
def test_a_text_that_repeats_itself_or_is_unlikely_is_written_again(
    drafts: list[tuple[bytes, float]], silence: float, tries: int, taken: bytes | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write_folder(tmp_path, SIZES, drawn(SIZES))
    transcriber, temperatures = Transcriber(read_whisper(tmp_path)), list[float]()

    def draft(language: str, task: str, num: int, temperature: float, seed: int, before: Sequence[int]) -> Draft:
        temperatures.append(temperature)
        text, log_probability = drafts[len(temperatures) - 1]
        return Draft(tuple(text), log_probability, temperature)

    monkeypatch.setattr(transcriber, "draft", draft)
    monkeypatch.setattr(transcriber, "silence", lambda before: silence)
    found = transcriber.best("", "transcribe", 9, TEMPERATURES)
    assert (None if found is None else bytes(found.tokens)) == taken
    assert temperatures == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0][:tries]


def test_a_text_is_drawn_at_a_temperature(tmp_path: Path) -> None:
    write_timed(tmp_path)
    transcriber = Transcriber(read_whisper(tmp_path), 2)
    transcriber.read(transcriber.spectrogram(a_sound(1.0)))
    drafts = [transcriber.draft("", "transcribe", 12, 1.0, seed) for seed in (1, 1, 2)]
    assert drafts[0] == drafts[1] != drafts[2]
    assert all(each.tokens[0] >= FIRST for each in drafts)


def test_silence_has_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_timed(tmp_path)
    transcriber = Transcriber(read_whisper(tmp_path))
    monkeypatch.setattr(transcriber, "silence", lambda before: 0.9)
    monkeypatch.setattr(transcriber, "draft", lambda *rest: Draft((FIRST, 65, FIRST + 9), -2.0))
    assert [*transcriber.parts(a_sound(2.2), WHOLE)] == []


def test_the_command_prints_parts_with_their_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_timed(tmp_path / "timed")
    write_sound(tmp_path / "a.wav", a_sound(2.2), nbytes=4)
    words = ["transcribe", str(tmp_path / "a.wav"), "--model"]
    assert cli.main([*words, str(tmp_path / "timed"), "--times", "--no-retry"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:27] for line in lines[:2]] == ["[00:00.280 --> 00:00.580] " + lines[0][26:27],
                                                 "[00:00.840 --> 00:01.160] " + lines[1][26:27]]  # fmt: skip
    assert len(lines) == 7
    write_folder(tmp_path / "plain", SIZES, drawn(SIZES))
    assert cli.main([*words, str(tmp_path / "plain"), "--prompt", "Ann"]) == 1
    assert "--prompt needs a network whose vocabulary has <|startofprev|>" in capsys.readouterr().err
    assert cli.main([*words, str(tmp_path / "plain"), "--times"]) == 1
    assert "--times needs a network whose vocabulary has times" in capsys.readouterr().err
    assert cli.main([*words, str(tmp_path / "timed"), "--beams", "0"]) == 1
    assert "--beams: got 0, it must be from 1 to 32" in capsys.readouterr().err


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


def test_a_length_that_no_file_has_takes_no_memory(tmp_path: Path) -> None:
    path, sound = tmp_path / "a.wav", a_sound(0.1)
    write_sound(path, sound)
    whole = read_sound(path)
    data = bytearray(path.read_bytes())
    data[4:8] = data[40:44] = b"\xff" * 4  # as a program writes that does not know how long the sound will be
    path.write_bytes(data)
    tracemalloc.start()
    np.testing.assert_array_equal(read_sound(path), whole)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_a_text_has_room_for_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sound(tmp_path / "a.wav", a_sound(0.1))
    assert cli.main(["transcribe", str(tmp_path / "a.wav"), "--max-tokens", "0"]) == 1
    assert "--max-tokens: got 0, it must be at least 1." in capsys.readouterr().err


@pytest.mark.parametrize("rate", [1, 999, 1_000_001, 2**31 - 1])
def test_a_rate_that_is_damage_takes_no_memory(rate: int, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    write_sound(path, np.zeros(480_000, np.float32), rate)  # 31 GB at 16,000 samples a second, if a second had one
    with pytest.raises(DataError, match=f"has 1 channels of 2 bytes, {rate} a second"):
        read_sound(path)


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
    assert "--translate needs a network for several languages" in capsys.readouterr().err


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
    ({"decoder_ffn_dim": 64}, "says decoder_ffn_dim is 64; it must equal the encoder's, 48"),
    ({"decoder_attention_heads": 2}, "says decoder_attention_heads is 2; it must equal the encoder's, 4"),
    ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "they must divide d_model, 32"),
    ({"activation_function": "mish"}, "says activation_function is mish"),
    ({"scale_embedding": True}, "says scale_embedding is True; only False is supported"),
    ({"eos_token_id": 264}, "says eos_token_id is 264; a number of the 264 tokens is needed"),
    ({"vocab_size": 9000}, "has vectors of 9,000 tokens, and the vocabulary has 315"),
    ({"suppress_tokens": "all"}, "suppress_tokens is all; a list of numbers of tokens is needed"),
    ({"cross_layers": 2}, "says cross_layers is 2, which is not supported"),
    ({"vocab_size": 100, "eos_token_id": 9}, "the network 100 vectors"),
]


@pytest.mark.parametrize("key", ["num_mel_bins", "max_source_positions", "max_target_positions"])
def test_null_is_no_size(key: str, tmp_path: Path) -> None:
    write_folder(tmp_path, SIZES | {key: None}, None)
    with pytest.raises(DataError, match=f"says {key} is None; a whole number from 1 to 2,147,483,647 is needed"):
        read_whisper(tmp_path)


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
