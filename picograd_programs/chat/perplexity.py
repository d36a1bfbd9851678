"""`picograd perplexity`: how well a language model predicts a text, with its own weights and with weights of fewer bits.

    perplexity = exp(mean loss per token);    bits per byte = sum of losses / (log(2) bytes)

A loss is -log(probability) of a token after those before it in its window. Windows of `context` tokens start at positions
0, stride, 2 stride, ... of the text, each after the model's start tokens. A token counts once, in its first window, so all
tokens after the first window have at least `context` - `stride` tokens before them. The first token of a text counts only
after a start token.

Source: Jelinek et al. 1977, "Perplexity: a measure of the difficulty of speech recognition tasks"; Hugging Face,
       transformers, "Perplexity of fixed-length models" (overlapping windows).

Letters: T positions of a piece, V vocabulary, N tokens of a text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd.errors import ArgumentError, DataError
from picograd.ir.origin import format_nbytes
from picograd.nn import functional as F
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length, Variable
from picograd.transforms.jit import jit
from picograd_programs.chat.answer import PIECE, Network, Speed
from picograd_programs.chat.run import CONTEXT_MAX, Pack, extent_of, opened
from picograd_programs.data.text import load_text
from picograd_programs.train.measures import bits_per_byte, perplexity
from picograd_programs.train.program import check_settings


@dataclass(frozen=True)
class PerplexitySettings:
    """Measures how well a language model predicts a text: perplexity per token, bits per byte.

    A token's loss is -log(probability) after all tokens before it in its window. Windows of --context tokens start every
    --stride tokens; a token counts once, in its first window.
    """

    text: str = ""  # a text file; or "shakespeare", a megabyte of plays, or "python", source code
    model: str = "smollm2"  # as in picograd chat
    context: int = 512  # tokens of a window
    stride: int | None = None  # tokens between the starts of windows; by default half of --context
    letters: int = 0  # number of characters from the text's beginning; 0: all
    # matrices as in the files, or in GGUF's blocks of eight or four bits a number, or as floats: each a row of the table
    pack: tuple[Pack, ...] = ("file",)


class Losses:
    """The losses of windows' tokens, by a plan that reads a piece of a window.

    speed:  speed without the first piece, for which the plan is made

    Args:
      length:  largest number of tokens of a window
    """

    def __init__(self, network: Network, length: int):
        self.length, self.piece, self.speed, self.is_first = length, min(PIECE, length), Speed(), True
        self.cache, self.first = network.cache(1, length), Variable("first", 0, length - self.piece)

        @jit
        def of_piece(tokens_1T: Tensor, targets_T: Tensor, first: Length) -> Tensor:
            logits_TV = network.logits(network.read_on(tokens_1T, self.cache, first))[0]
            return F.cross_entropy(logits_TV, targets_T, reduction="none")

        self.of_piece = of_piece

    def of(self, window: Sequence[int]) -> NDArray[np.float64]:
        """Returns the loss of each token of a window except the first."""
        found = np.zeros(len(window) - 1)
        filled = np.array([*window, *[0] * (self.length + 1 - len(window))], np.int32)
        for at in range(0, len(found), self.piece):
            first, start = min(at, self.length - self.piece), time.perf_counter()
            past = first + self.piece
            pair = Tensor(filled[None, first:past]), Tensor(filled[first + 1 : past + 1])
            with no_grad():
                losses = self.of_piece(*pair, self.first.bind(first)).numpy()
            found[first:past] = losses[: len(found) - first]
            if not self.is_first:
                self.speed.tokens += self.piece
                self.speed.seconds += time.perf_counter() - start
            self.is_first = False
        return found


def losses_of(
    network: Network, tokens: Sequence[int], start: Sequence[int], context: int, stride: int
) -> tuple[NDArray[np.float64], Speed]:
    """Returns the loss of each counted token of a text, and the reading speed.

    Args:
      start:    start tokens of each window; without them, the first token of the text does not count
      context:  tokens of a window, including `start`
      stride:   from 1 to `context` - max(1, len(start))

    Raises:
      DataError: a loss is not finite.
    """
    room, found = context - len(start), np.zeros(len(tokens))
    losses = Losses(network, min(context, len(start) + len(tokens)))
    counted = least = 0 if start else 1
    for place in range(0, len(tokens), stride):
        past = min(place + room, len(tokens))
        of_window = losses.of([*start, *tokens[place:past]])
        found[counted:past] = of_window[len(of_window) - (past - counted) :]
        counted = past
        if past == len(tokens):
            break
    if not np.isfinite(found).all():
        raise DataError("the model's numbers are not finite: its file is damaged, or of another network.")
    return found[least:], losses.speed


def windows_of(settings: PerplexitySettings, num_start: int, longest: int) -> tuple[int, int]:
    """Returns the number of tokens of a window, and of those between the starts of windows.

    Args:
      num_start:  number of start tokens of each window
      longest:    largest number of tokens that the model reads

    Raises:
      ArgumentError: the model reads fewer tokens, or windows would skip tokens.
    """
    context, most = settings.context, settings.context - max(1, num_start)
    if context > longest:
        raise ArgumentError(f"--context: got {context:,}; this model reads {longest:,} tokens at most.")
    if most < 1:
        raise ArgumentError(f"--context: got {context}; a window needs {max(1, num_start) + 1} tokens or more.")
    stride = max(1, min(context // 2, most)) if settings.stride is None else settings.stride
    if not 1 <= stride <= most:
        fact = f"--stride: got {stride:,}; it must be from 1 to {most:,}, so that each token is in a window"
        raise ArgumentError(f"{fact} of {context:,}, behind another.")
    return context, stride


def measure(settings: PerplexitySettings) -> int:
    """Prints a row for each form of weights; returns 0.

    Raises:
      ArgumentError: the text is missing or has too few tokens, or a number is out of its range.
      DataError: the text is empty or not UTF-8; or the weights are not available, or are of another kind of network.
    """
    check_settings(settings)
    if not settings.text:
        raise ArgumentError("perplexity: there is no text.", "picograd perplexity --text FILE")
    if settings.context > CONTEXT_MAX:
        raise ArgumentError(f"--context: got {settings.context:,}, it must be at most {CONTEXT_MAX:,}.")
    text = load_text(settings.text)[: settings.letters or None]
    for number, pack in enumerate(settings.pack):
        network, tokenizer, manner, longest = opened(settings.model, settings.context, pack)
        start, tokens = [*(manner.start or tokenizer.start)], tokenizer.encode(text)
        context, stride = windows_of(settings, len(start), longest)
        if len(tokens) + len(start) < 2:
            raise ArgumentError(f"--text: {settings.text}: has {len(tokens)} token; two or more are needed.")
        losses, speed = losses_of(network, tokens, start, context, stride)
        nbytes = len(text.encode()) - sum(len(tokenizer.bytes_of(each)) for each in tokens[: len(tokens) - len(losses)])
        if not number:
            fact = f"{len(tokens):,} tokens of which {len(losses):,} count, {nbytes:,} bytes"
            print(f"{settings.model}: {fact}, windows of {context:,} every {stride:,}", file=sys.stderr)
            print(row("weights", "memory", "perplexity", "bits per byte", "tokens a second"), flush=True)
        rate = f"{speed.tokens / speed.seconds:.0f}" if speed.tokens else "-"
        bits = bits_per_byte([losses.sum()], [nbytes])
        memory = format_nbytes(extent_of(network)[1])
        print(row(pack, memory, f"{perplexity(losses):.4f}", f"{bits:.4f}", rate), flush=True)
    return 0


def row(*cells: Any) -> str:
    """Formats cells as a line of a table."""
    return f"{cells[0]:8}" + "".join(f"{cell:>17}" for cell in cells[1:])
