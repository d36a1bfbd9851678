"""`picograd pronounce`: the pronunciation of English words, by g2p-en's published weights: two GRUs, reader and writer.

Source: Cho et al. 2014, arXiv:1406.1078 (encoder and decoder); Park, Kim 2019, g2p-en 2.1.0, trained on the CMU
Pronouncing Dictionary with its phonemes: a vowel ends in its stress, 1 for the strongest.

Letters: B words, T letters, C features, P phonemes.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

from picograd import nn
from picograd.control.flow import scan
from picograd.errors import ArgumentError
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_formats.state_file import load
from picograd_programs.data.fetch import Carrier, DataFile, get_files

VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
CONSONANTS = (
    "B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH", "T", "TH", "V", "W", "Y",
    "Z", "ZH",
)  # fmt: skip
SOUNDS = sorted([*(vowel + stress for vowel in VOWELS for stress in "012"), *CONSONANTS, "UW"])
PHONEMES = ("<pad>", "<unk>", "<s>", "</s>", *SOUNDS)
LETTERS = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
PADDING, UNKNOWN, LAST = (LETTERS.index(letter) for letter in ("<pad>", "<unk>", "</s>"))
WIDTH = 256
SOUNDS_MAX, LETTERS_MAX = 20, 32  # limits of a word

WEIGHTS = DataFile("checkpoint20.npz", "b8af35e4596d8dd5836dfd3fe9b2ba4f97b9c311efe8879544cbcfcbd566d8c6", ())
# Parameter of the network -> array of the file.
PUBLISHED = {
    "letters.weight": "enc_emb", "reader.weight_ih": "enc_w_ih", "reader.weight_hh": "enc_w_hh",
    "reader.bias_ih": "enc_b_ih", "reader.bias_hh": "enc_b_hh", "phonemes.weight": "dec_emb",
    "writer.weight_ih": "dec_w_ih", "writer.weight_hh": "dec_w_hh", "writer.bias_ih": "dec_b_ih",
    "writer.bias_hh": "dec_b_hh", "out.weight": "fc_w", "out.bias": "fc_b",
}  # fmt: skip


class Pronouncer(nn.Module):
    """state = reader(letters);  state = writer(phoneme before, state);  phoneme = argmax(state @ W + b)"""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.phonemes = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(len(PHONEMES), WIDTH)
        self.reader, self.writer = nn.GRUCell(WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, len(PHONEMES))

    def read(self, letters_BT: Tensor) -> Tensor:
        """Returns the state after the letters of each word, without padding: (B, C), for (B, T) integers."""

        def step(state_BC: Tensor, letters_B: Tensor) -> tuple[Tensor, None]:
            following_BC = self.reader(self.letters(letters_B), state_BC)
            return following_BC.where(letters_B.unsqueeze(1) != PADDING, state_BC), None

        state_BC: Tensor = scan(step, Tensor.zeros(len(letters_BT), WIDTH), letters_BT.T)[0]
        return state_BC

    def write(self, phonemes_B: Tensor, state_BC: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the likeliest next phonemes (B,), and the state after them (B, C)."""
        state_BC = self.writer(self.phonemes(phonemes_B), state_BC)
        return self.out(state_BC).argmax(1), state_BC


class Speaker:
    """The network with its published weights.

    Raises:
      DataError: the weights are corrupt, or no source has them.
    """

    def __init__(self) -> None:
        data = get_files("g2p", [WEIGHTS], Carrier("g2p-en==2.1.0", _unpack))[WEIGHTS.name]
        arrays = load(io.BytesIO(data))
        self.model = Pronouncer()
        self.model.load_state_dict({name: arrays[array] for name, array in PUBLISHED.items()})
        self.read, self.write = jit(self.model.read), jit(self.model.write)

    def pronounce(self, words: Sequence[str]) -> list[list[str]]:
        """Returns the phonemes of each word.

        Raises:
          ArgumentError: a word is empty or too long.

        >>> Speaker().pronounce(["hello"])  # doctest: +SKIP
        [['HH', 'EH1', 'L', 'OW0']]
        """
        for word in words:
            if not 1 <= len(word) < LETTERS_MAX:
                raise ArgumentError(f"pronounce: {word!r} has {len(word)} letters; a word has 1 to {LETTERS_MAX - 1}.")
        letters_BT = np.full((len(words), LETTERS_MAX), PADDING, np.int32)
        for row, word in zip(letters_BT, words):
            numbers = [LETTERS.index(letter) if letter in LETTERS else UNKNOWN for letter in word.lower()]
            row[: len(word) + 1] = [*numbers, LAST]
        with no_grad():
            state_BC = self.read(Tensor(letters_BT))
            phonemes_B = Tensor([PHONEMES.index("<s>")] * len(words))
            written = []
            for _ in range(SOUNDS_MAX):
                phonemes_B, state_BC = self.write(phonemes_B, state_BC)
                written.append(phonemes_B.tolist())
        spoken = [[PHONEMES[number] for number in column] for column in zip(*written)]
        return [sounds[: sounds.index("</s>")] if "</s>" in sounds else sounds for sounds in spoken]


def _unpack(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
    return {WEIGHTS.name: wheel.read(f"g2p_en/{WEIGHTS.name}")}


# ---- picograd pronounce ----
@dataclass(frozen=True)
class PronounceSettings:
    """Prints the pronunciation of English words."""

    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="WORD ...")]  # in upper or lower case


def pronounce(settings: PronounceSettings) -> int:
    """Prints the phonemes of words, one word per line; returns 0.

    Raises:
      ArgumentError: there are no words, or one is too long.
      DataError: the weights are corrupt, or no source has them.
    """
    if not settings.words:
        raise ArgumentError("pronounce: there are no words.", hint="picograd pronounce hello")
    for word, sounds in zip(settings.words, Speaker().pronounce(settings.words)):
        print(f"{word}: {' '.join(sounds)}")
    return 0
