"""`picograd transcribe`: the text of speech in a sound file, by a folder of Whisper that the user has.

A sound is read in pieces of half a minute, each by itself; a word across the end of one may be lost.
"""

from __future__ import annotations

import sys
import wave
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray

from picograd.errors import ArgumentError, DataError, FileError
from picograd.files import opened
from picograd.record import replace
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.chat.answer import Choice
from picograd_programs.chat.turns import Manner
from picograd_programs.chat.writer import Way, Writer
from picograd_programs.models.whisper import RATE
from picograd_programs.models.whisper_folder import BEGIN, TASKS, Speech, read_whisper

LIKELIEST = Choice(temperature=0.0, repetition=1.0)
HINT = "ffmpeg -i FILE -ar 16000 -ac 1 sound.wav writes one."
OFFSET = np.uint8(128)  # samples of eight bits are unsigned


# ---- sounds ----
def read_sound(path: Path) -> NDArray[np.float32]:
    """Returns the sound of a WAV file, 16,000 samples a second between -1 and 1; several channels as their mean.

    Raises:
      FileError: it cannot be read.
      DataError: it is not a WAV file of whole numbers.
    """
    try:
        with opened("transcribe", path) as whole_file, wave.open(whole_file, "rb") as file:
            channels, nbytes, rate, num, *_ = file.getparams()
            data = file.readframes(num)
    except (wave.Error, EOFError) as error:
        reason = str(error) or "it ends in its header"
        raise DataError(f"{path}: is not a WAV file of whole numbers ({reason}).", HINT) from None
    if not rate or not channels or nbytes not in (1, 2, 3, 4):
        raise DataError(f"{path}: has {channels} channels of {nbytes} bytes, {rate} a second.", HINT)
    whole = np.frombuffer(data[: len(data) // (channels * nbytes) * channels * nbytes], np.uint8).reshape(-1, nbytes)
    if nbytes == 1:
        whole = whole ^ OFFSET
    filled = np.concatenate([np.zeros((len(whole), 4 - nbytes), np.uint8), whole], 1)  # the lowest bytes come first
    samples = np.ascontiguousarray(filled).view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    return at_rate(samples.reshape(-1, channels).mean(1, dtype=np.float32), rate)


def at_rate(sound: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Returns a sound of `rate` samples a second at RATE, by its spectrum: frequencies beyond 8 kHz are left out.

    >>> tone = np.sin(np.arange(4000) * 2 * np.pi * 440 / 8000).astype(np.float32)
    >>> bool(np.abs(at_rate(tone, 8000)[::2] - tone).max() < 1e-4)
    True
    """
    num = round(len(sound) * RATE / rate)
    if rate == RATE or not num:
        return sound[:num]
    return np.asarray(np.fft.irfft(np.fft.rfft(sound)[: num // 2 + 1], num) * (num / len(sound)), np.float32)


# ---- texts of sounds ----
class Transcriber:
    """A Whisper, and the plans by which it reads a piece of a sound and writes its text."""

    def __init__(self, speech: Speech):
        self.speech, self.network = speech, speech.network
        self.writer = Writer(self.network.seq2seq, self.network.seq2seq.config.context, self.network.positions)

        @jit
        def read(sound_n: Tensor) -> Tensor:
            return self.network.read(sound_n, self.writer.memory)

        self.read_piece = read

    def read(self, piece: NDArray[np.float32]) -> None:
        """Reads a piece of a sound, padded with silence."""
        with no_grad():
            self.read_piece(Tensor(np.pad(piece, (0, self.network.samples - len(piece))))).realize()

    def language(self) -> str:
        """Returns the likeliest language of the last piece that was read; "" where the network knows English alone."""
        speech = self.speech
        if not speech.languages:
            return ""
        logits = self.writer.logits(speech.tokenizer.control[BEGIN], 0, self.network.positions)
        return max(speech.languages, key=lambda name: float(logits[speech.languages[name]]))

    def tokens(self, language: str, task: str, num: int) -> Iterator[int]:
        """Yields the tokens of the text of the last piece that was read.

        Args:
          language, task:  as `Speech.start` takes them
          num:             most tokens
        """
        manner = Manner("", {}, self.speech.start(language, task), frozenset({self.speech.end}))
        barred = replace(self.speech.barred, start=len(manner.start))
        yield from self.writer.write(self.network.positions, manner, Way(num, LIKELIEST, [barred]))

    def pieces(self, sound: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Yields the half minutes of a sound, the last one perhaps shorter."""
        for first in range(0, len(sound), self.network.samples):
            yield sound[first : first + self.network.samples]


@dataclass(frozen=True)
class TranscribeSettings:
    """Writes the text of speech in sound files, with the weights of Whisper, which you have."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE ...")]  # WAV files
    # the folder of a Whisper as it is published: config.json, model.safetensors, tokenizer.json, generation_config.json
    model: Path = Path("whisper")
    language: str = ""  # en, de, ...: that is spoken; without it, the likeliest at the beginning
    translate: bool = False  # writes English, whatever is spoken
    max_tokens: int = 224  # most tokens for half a minute


def transcribe(settings: TranscribeSettings) -> int:
    """Prints the text of each file; returns 0.

    Raises:
      ArgumentError: there are no files, or the network does not know the language.
      DataError: a file or the folder is damaged, or of another kind.
    """
    if not settings.files:
        raise ArgumentError("transcribe: there are no files.", hint="picograd transcribe sound.wav --model whisper-tiny")
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
        raise ArgumentError("transcribe: --translate needs a network that knows other languages than English.")
    transcriber = Transcriber(speech)
    for sound in sounds:
        with suppress(KeyboardInterrupt):
            print_text(transcriber, sound, settings)
    return 0


def print_text(transcriber: Transcriber, sound: NDArray[np.float32], settings: TranscribeSettings) -> None:
    """Prints the text of a sound as it is written."""
    language, task = settings.language, TASKS[settings.translate]
    for piece in transcriber.pieces(sound):
        transcriber.read(piece)
        language = language or transcriber.language()
        stream = transcriber.speech.tokenizer.stream()
        for token in transcriber.tokens(language, task, settings.max_tokens):
            print(stream.text(token), end="", flush=True)
        print(stream.rest(), end="", flush=True)
    print(flush=True)
    print(f"[wrote {transcriber.writer.write_speed}]", file=sys.stderr, flush=True)
