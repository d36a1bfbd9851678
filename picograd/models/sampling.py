"""Draws tokens from what a language model gives.

In:    logits
Out:   token numbers

Letters: B batch, V vocabulary.
"""

from __future__ import annotations

import math

from picograd.tensor.generator import Generator
from picograd.tensor.tensor import Tensor


def drawn_from(
    logits_BV: Tensor, temperature: float = 1.0, top_k: int | None = None, generator: Generator | None = None
) -> Tensor:
    """Returns (B,) token numbers, drawn from softmax(logits / temperature) over the top_k likeliest.

    >>> drawn_from(Tensor([[0.0, 9.0, 1.0]]), temperature=0.0)
    Tensor([1])
    """
    if temperature == 0.0:
        return logits_BV.argmax(-1)
    scaled_BV = logits_BV / temperature
    if top_k is not None and top_k < logits_BV.shape[-1]:
        least_B1 = scaled_BV.topk(top_k).values[:, -1:]
        scaled_BV = scaled_BV.masked_fill(scaled_BV < least_B1, -math.inf)
    return scaled_BV.softmax(-1).multinomial(1, generator=generator).squeeze(1)
