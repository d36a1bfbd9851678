"""Whisper: speech to text. An encoder reads the log-mel spectrogram of half a minute of sound, a decoder writes the text.

    sound (480,000,) -> log-mel spectrogram (M, 3000) -> two convolutions (1500, C) -> encoder -> decoder -> text

Source: Radford et al. 2022, arXiv:2212.04356, section 2.2; Slaney 1998, Auditory Toolbox, Technical report 1998-010 (the
       mel scale, and filters of one area each).

Letters: n samples, P frames, Q frequencies, M mel bands, C width, T positions of the memory.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from picograd import fft, nn
from picograd.nn import functional as F
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd_formats.gguf_file import PackedTensor
from picograd_math.sampled import hann_window
from picograd_programs.models.cache import KVCache
from picograd_programs.models.decoder import Weights
from picograd_programs.models.seq2seq import Seq2Seq, Seq2SeqConfig

RATE = 16_000  # samples per second
WINDOW, STEP = 400, 160  # samples per frame, and between frames: 25 and 10 ms
FRAME_POSITIONS = 2  # frames per position of the memory
RANGE = 8.0  # of logarithms; smaller values are raised to the maximum minus this
LINEAR_MAX, LINEAR_STEP, GROWTH = 1000.0, 200 / 3, math.log(6.4) / 27  # Slaney's mel scale: linear, then exponential


def mel_filters(num: int) -> NDArray[np.float32]:
    """Returns the weight of each frequency up to 8 kHz in each mel band, (M, Q): triangles of area 1, in 1 / Hz.

    >>> filters = mel_filters(80)
    >>> filters.shape, round(float(filters.sum() * RATE / WINDOW))
    ((80, 201), 80)
    """
    last = LINEAR_MAX / LINEAR_STEP + math.log(RATE / 2 / LINEAR_MAX) / GROWTH
    mels = np.linspace(0, last, num + 2)
    beyond = mels - LINEAR_MAX / LINEAR_STEP
    corner_M = np.where(beyond < 0, mels * LINEAR_STEP, LINEAR_MAX * np.exp(np.maximum(beyond, 0) * GROWTH))  # Hz
    frequency_Q = np.arange(WINDOW // 2 + 1) * RATE / WINDOW
    low, middle, high = (corner_M[k : k + num, None] for k in range(3))
    rising, falling = (frequency_Q - low) / (middle - low), (high - frequency_Q) / (high - middle)
    return np.asarray(np.minimum(rising, falling).clip(0) * 2 / (high - low), np.float32)


def log_power(sound_n: Tensor, filters_MQ: Tensor) -> Tensor:
    """Returns the log-power in each mel band: (n,) -> (M, (n - WINDOW) / STEP + 1)."""
    frames_Pn = sound_n.unfold(0, WINDOW, STEP) * hann_window(WINDOW)
    power_PQ = fft.rfft(frames_Pn).square().sum(-1)
    return (filters_MQ @ power_PQ.T).clamp(min=1e-10).log10()


def scaled(power_MP: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the log-mel spectrogram, about -1..1, from the logarithms of a whole sound."""
    return np.asarray((np.maximum(power_MP, power_MP.max(initial=-np.inf) - RANGE) + 4) / 4, np.float32)


class Stem(nn.Module):
    """gelu(conv(gelu(conv(x)))) + positions; the second convolution has stride 2."""

    def __init__(self, weights: Weights, bands: int, width: int, positions: int):
        self.convs = nn.ModuleList(nn.Conv1d(n, width, 3, padding=1, stride=s) for n, s in ((bands, 1), (width, 2)))
        for number, conv in enumerate(self.convs, 1):
            conv.requires_grad_(False)
            state = {"weight": conv.weight.shape, "bias": conv.bias.shape}
            conv.load_state_dict({
                part: Tensor(weights.take(f"enc.conv{number}.{part}", *shape).unpacked()) for part, shape in state.items()
            })  # fmt: skip
        table = weights.take("enc.position_embd.weight", positions, width)
        self.register_buffer("places", Tensor(table.unpacked()).realize())

    def forward(self, mel_MP: Tensor) -> Tensor:
        """mel (M, P) -> (1, T, C)."""
        x = mel_MP[None]
        for conv in self.convs:
            x = F.gelu(conv(x))
        return (x.transpose(1, 2) + self.places).contiguous()


class Whisper(nn.Module):
    """logits = decoder(tokens, encoder(stem(spectrogram)))

    Args:
      config:     configuration of encoder and decoder
      bands:      M
      positions:  T: half a minute has 1,500
      tensors:    weights by GGUF's names, removed from the dict

    Raises:
      DataError: a tensor is missing, has another shape, or belongs to no part of the network.
    """

    def __init__(self, config: Seq2SeqConfig, bands: int, positions: int, tensors: dict[str, PackedTensor]):
        weights = Weights(tensors)
        self.positions = positions
        self.stem = Stem(weights, bands, config.width, positions)
        self.seq2seq = Seq2Seq(config, weights.tensors)
        self.register_buffer("filters", Tensor(mel_filters(bands)))
        realize([self.filters])

    @property
    def frames(self) -> int:
        """Number of frames of a window."""
        return self.positions * FRAME_POSITIONS

    def read(self, mel_MP: Tensor, memory: KVCache) -> Tensor:
        """Encodes a spectrogram with `frames` frames (M, P) into the memory, and returns the encoder's output (1, T, C)."""
        return self.seq2seq.read(self.stem(mel_MP), None, memory)
