"""`picograd transcribe`: the text of speech in a sound file, by a Whisper folder that the user provides.

A sound is read in windows of half a minute. A window's text has timestamps, and the next window starts at the end of the
last complete part, so that no word is split. A window's text continues that of the earlier windows, unless that was drawn
at a high temperature.

Source: Radford et al. 2022, arXiv:2212.04356, section 4.5: the conditions for another attempt at a higher temperature and
for silence, and the text before a window.
"""

from __future__ import annotations

import sys
import wave
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray

from picograd.errors import ArgumentError, DataError, FileError
from picograd.files import opened
from picograd.record import Record, replace
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.chat.answer import Choice
from picograd_programs.chat.rules import Logits, Rule
from picograd_programs.chat.search import BEAMS_MAX, Search, scored
from picograd_programs.chat.turns import Manner
from picograd_programs.chat.writer import Way, Writer
from picograd_programs.models.whisper import FRAME_POSITIONS, RATE, STEP, WINDOW, log_power, scaled
from picograd_programs.models.whisper_folder import BEFORE, BEGIN, NO_TIMES, TASKS, Speech, read_whisper
from picograd_programs.models.whisper_times import Part, parts_of

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
CONTINUED_MAX = 0.5  # highest temperature of a text that the next window continues
LOG_PROBABILITY_MIN, COMPRESSION_MAX, SILENCE_MAX = -1.0, 2.4, 0.6  # beyond these a text is rejected, or is silence
HINT = "ffmpeg -i FILE -ar 16000 -ac 1 sound.wav writes one."
RATE_MIN, RATE_MAX = 1_000, 1_000_000  # samples per second; other rates mean damage
OFFSET = np.uint8(128)  # eight-bit samples are unsigned


# ---- sounds ----
def read_sound(path: Path) -> NDArray[np.float32]:
    """Returns the sound of a WAV file, 16,000 samples per second between -1 and 1; channels are averaged.

    Raises:
      FileError: the file cannot be read.
      DataError: it is not a WAV file of integers.
    """
    try:
        with opened("transcribe", path) as whole_file, wave.open(whole_file, "rb") as file:
            channels, nbytes, rate, num, *_ = file.getparams()
            data = file.readframes(min(num, path.stat().st_size))  # headers of streams may say more
    except (wave.Error, EOFError) as error:
        reason = str(error) or "it ends in its header"
        raise DataError(f"{path}: is not a WAV file of whole numbers ({reason}).", HINT) from None
    if not RATE_MIN <= rate <= RATE_MAX or not channels or nbytes not in (1, 2, 3, 4):
        raise DataError(f"{path}: has {channels} channels of {nbytes} bytes, {rate} a second.", HINT)
    whole = np.frombuffer(data[: len(data) // (channels * nbytes) * channels * nbytes], np.uint8).reshape(-1, nbytes)
    if nbytes == 1:
        whole = whole ^ OFFSET
    filled = np.concatenate([np.zeros((len(whole), 4 - nbytes), np.uint8), whole], 1)  # little-endian
    samples = np.ascontiguousarray(filled).view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    return at_rate(samples.reshape(-1, channels).mean(1, dtype=np.float32), rate)


def at_rate(sound: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Resamples a sound from `rate` to RATE in its spectrum, without frequencies above 8 kHz.

    >>> tone = np.sin(np.arange(4000) * 2 * np.pi * 440 / 8000).astype(np.float32)
    >>> bool(np.abs(at_rate(tone, 8000)[::2] - tone).max() < 1e-4)
    True
    """
    num = round(len(sound) * RATE / rate)
    if rate == RATE or not num:
        return sound[:num]
    return np.asarray(np.fft.irfft(np.fft.rfft(sound)[: num // 2 + 1], num) * (num / len(sound)), np.float32)


# ---- texts of sounds ----
class Draft(Record):
    """One attempt at the text of a window.

    log_probability:  mean per token
    temperature:      temperature of the draws
    """

    tokens: tuple[int, ...]
    log_probability: float
    temperature: float = 0.0


class Transcriber:
    """A Whisper, with the plans that read a window of sound and write its text.

    Args:
      beams:  number of beams of a search; 1: none
    """

    def __init__(self, speech: Speech, beams: int = 1):
        self.speech, self.network, self.search = speech, speech.network, Search(beams)
        network = self.network
        self.writer = Writer(network.seq2seq, network.seq2seq.config.context, network.positions, beams)

        @jit
        def power(sound_n: Tensor) -> Tensor:
            return log_power(sound_n, network.filters)

        @jit
        def read(mel_MP: Tensor) -> Tensor:
            return network.read(mel_MP, self.writer.memory)

        self.power, self.read_window = power, read

    def spectrogram(self, sound: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the log-mel spectrogram (M, P) of a whole sound, with silence after it."""
        frames, num = self.network.frames, len(sound) // STEP
        padded = np.pad(np.pad(sound, (0, frames * STEP)), WINDOW // 2, mode="reflect")
        pieces = [np.zeros((len(self.network.filters), 0), np.float32)]
        with no_grad():
            for first in range(0, num, frames):
                piece = padded[first * STEP : (first + frames - 1) * STEP + WINDOW]
                pieces.append(self.power(Tensor(piece)).numpy())
        return scaled(np.concatenate(pieces, 1)[:, :num])

    def read(self, mel_MP: NDArray[np.float32]) -> None:
        """Encodes a window of a spectrogram, padded with zeros."""
        with no_grad():
            self.read_window(Tensor(np.pad(mel_MP, ((0, 0), (0, self.network.frames - mel_MP.shape[1]))))).realize()

    def first_logits(self, before: Sequence[int] = ()) -> Logits:
        """Returns the logits (V,) after the start token, for the latest window."""
        return self.writer.begin([*self.earlier(before), self.speech.tokenizer.control[BEGIN]], self.network.positions)

    def earlier(self, before: Sequence[int]) -> tuple[int, ...]:
        """Returns the tokens before a window's own: the last ones of the earlier text, as far as they fit."""
        if not before:
            return ()
        return self.speech.tokenizer.control[BEFORE], *before[-max(1, self.writer.longest // 2 - 1) :]

    def language(self) -> str:
        """Returns the likeliest language of the latest window; "" for a network that knows only English."""
        languages = self.speech.languages
        if not languages:
            return ""
        logits = self.first_logits()
        return max(languages, key=lambda name: float(logits[languages[name]]))

    def silence(self, before: Sequence[int] = ()) -> float:
        """Returns the probability that nobody speaks in the latest window."""
        scores_V = scored(self.first_logits(before))
        return float(np.exp(scores_V[self.speech.tokenizer.control[NO_TIMES] - 1]))

    def draft(
        self, language: str, task: str, num: int, temperature: float = 0.0, seed: int = 0, before: Sequence[int] = ()
    ) -> Draft:
        """Returns a text of the latest window: the likeliest one, or a drawn one.

        Args:
          language, task:  as in `Speech.start`
          num:             largest number of tokens
          before:          tokens of the earlier text
        """
        speech = self.speech
        start = (*self.earlier(before), *speech.start(language, task))
        rules: list[Rule] = [replace(speech.barred, start=len(start))]
        if speech.times is not None:
            rules.append(replace(speech.times, start=len(start)))
        manner = Manner("", {}, start, frozenset({speech.end}))
        search = Search() if temperature else self.search
        way = Way(num, Choice(temperature, top_p=1.0, repetition=1.0), rules, search, seed=seed)
        tokens = tuple(self.writer.write(self.network.positions, manner, way))
        return Draft(tokens, self.writer.log_probability / max(self.writer.num_drawn, 1), temperature)

    def text(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens, without timestamps."""
        first = None if self.speech.times is None else self.speech.times.first
        return self.speech.tokenizer.decode([token for token in tokens if first is None or token < first])

    def best(
        self, language: str, task: str, num: int, temperatures: Sequence[float], before: Sequence[int] = ()
    ) -> Draft | None:
        """Returns the first text of the latest window that is neither repetitive nor unlikely; None for silence.

        Args:
          temperatures:  tried in this order; the last one's text is accepted in any case
          before:        tokens of the earlier text
        """
        for number, temperature in enumerate(temperatures):
            draft = self.draft(language, task, num, temperature, number, before)
            is_unlikely = draft.log_probability < LOG_PROBABILITY_MIN
            if is_unlikely and self.silence(before) > SILENCE_MAX:
                return None
            if not is_unlikely and compression(self.text(draft.tokens)) <= COMPRESSION_MAX:
                break
        return draft

    def parts(self, sound: NDArray[np.float32], settings: TranscribeSettings) -> Iterator[Part]:
        """Yields the parts of a sound's text, window by window."""
        mel_MP, at, frames, times = self.spectrogram(sound), 0, self.network.frames, self.speech.times
        language, task = settings.language, TASKS[settings.translate]
        before = self.speech.tokenizer.encode(f" {settings.prompt.strip()}") if settings.prompt.strip() else []
        continues = settings.previous_text and BEFORE in self.speech.tokenizer.control
        temperatures = TEMPERATURES if settings.retry else TEMPERATURES[:1]
        while at < mel_MP.shape[1]:
            window = mel_MP[:, at : at + frames]
            length, begin = window.shape[1], at * STEP / RATE
            self.read(window)
            language = language or self.language()
            draft, at = self.best(language, task, settings.max_tokens, temperatures, before), at + length
            if draft is None:
                continue
            steps = length // FRAME_POSITIONS
            if times is None:
                found, past = [Part(0.0, length * STEP / RATE, draft.tokens, draft.tokens)], steps
            else:
                found, past = parts_of(draft.tokens, times.first, steps)
            if past < steps:
                at += max(past, 1) * FRAME_POSITIONS - length
            parts = [part for part in found if part.tokens]
            goes_on = continues and draft.temperature <= CONTINUED_MAX
            before = [*before, *(token for part in parts for token in part.whole)] if goes_on else []
            yield from (replace(part, begin=begin + part.begin, end=begin + part.end) for part in parts)


def compression(text: str) -> float:
    """Returns the compression ratio of a text by deflation, which is large for repetitive texts.

    >>> compression("ab" * 500) > 20, compression("a fox")
    (True, 0.38461538461538464)
    """
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def clock(seconds: float) -> str:
    """Formats a time as minutes and seconds, with hours if needed.

    >>> clock(83.5), clock(3600.04)
    ('01:23.500', '01:00:00.040')
    """
    minutes, left = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{f'{hours:02}:' if hours else ''}{minutes:02}:{left // 1000:02}.{left % 1000:03}"


@dataclass(frozen=True)
class TranscribeSettings:
    """Writes the text of speech in sound files, with Whisper's weights, which you provide."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE ...")]  # WAV files
    # the folder of a published Whisper: config.json, model.safetensors, tokenizer.json, generation_config.json
    model: Path = Path("whisper")
    language: str = ""  # en, de, ...: spoken language; default: the likeliest at the beginning
    translate: bool = False  # writes English, whatever is spoken
    times: bool = False  # prints each part on a line, with its start and end time
    previous_text: bool = True  # a window's text continues that of the earlier windows
    prompt: str = ""  # words that may occur, such as names: as if said before
    beams: int = 1  # number of beams of a search for the likeliest text; 1: takes the likeliest token
    retry: bool = True  # tries again if a text is repetitive or unlikely, at up to five higher temperatures
    max_tokens: int = 224  # largest number of tokens for half a minute


def transcribe(settings: TranscribeSettings) -> int:
    """Prints the text of each file; returns 0.

    Raises:
      ArgumentError: there are no files, or the network does not know the language.
      DataError: a file or the folder is damaged, or of another kind.
    """
    if not settings.files:
        raise ArgumentError("transcribe: there are no files.", hint="picograd transcribe sound.wav --model whisper-tiny")
    if not 1 <= settings.beams <= BEAMS_MAX:
        raise ArgumentError(f"--beams: got {settings.beams}, it must be from 1 to {BEAMS_MAX}.")
    if settings.max_tokens < 1:
        raise ArgumentError(f"--max-tokens: got {settings.max_tokens}, it must be at least 1.")
    sounds = [read_sound(path) for path in settings.files]
    try:
        speech = read_whisper(settings.model)
    except FileError:
        raise
    except DataError as error:
        fact = error.fact if str(settings.model) in error.fact else f"{settings.model}: {error.fact}"
        raise DataError(fact, error.hint) from None
    if settings.language and settings.language not in (speech.languages or ("en",)):
        known = ", ".join(speech.languages or ("en",))
        raise ArgumentError(f"transcribe: --language {settings.language[:20]} is not one of {known}.")
    if settings.translate and not speech.languages:
        raise ArgumentError("transcribe: --translate needs a network for several languages.")
    if settings.prompt.strip() and BEFORE not in speech.tokenizer.control:
        raise ArgumentError(f"transcribe: --prompt needs a network whose vocabulary has {BEFORE}.")
    if settings.times and speech.times is None:
        raise ArgumentError("transcribe: --times needs a network whose vocabulary has times.")
    transcriber = Transcriber(speech, settings.beams)
    for sound in sounds:
        with suppress(KeyboardInterrupt):
            print_text(transcriber, sound, settings)
    return 0


def print_text(transcriber: Transcriber, sound: NDArray[np.float32], settings: TranscribeSettings) -> None:
    """Prints the text of a sound, window by window."""
    for part in transcriber.parts(sound, settings):
        text = transcriber.text(part.tokens)
        if settings.times:
            print(f"[{clock(part.begin)} --> {clock(part.end)}] {text.strip()}", flush=True)
        else:
            print(text, end="", flush=True)
    if not settings.times:
        print(flush=True)
    print(f"[wrote {transcriber.writer.write_speed}]", file=sys.stderr, flush=True)
