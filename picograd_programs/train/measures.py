"""Measures of a language model: perplexity per token, and bits per byte, which is comparable between vocabularies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.tensor import Tensor


def perplexity(losses: Any) -> float:
    """Returns exp(mean(losses)): the number of equally likely tokens with the same mean loss.

    Args:
      losses:  -log(probability) of each token, in nats; or their mean

    Raises:
      ArgumentError: there are none.

    >>> round(perplexity([math.log(2.0), math.log(8.0)]), 6)
    4.0
    """
    found = _numbers("perplexity", losses)
    with np.errstate(over="ignore"):
        return float(np.exp(found.mean()))


def bits_per_byte(losses: Any, nbytes: Any) -> float:
    """Returns sum(losses) / (log(2) sum(nbytes)), the bits per byte of a compressor with this model.

    Targets without bytes, such as the mark between two documents, are ignored.

    Args:
      losses:  -log(probability) of each token, in nats
      nbytes:  bytes of the same tokens, integers

    Raises:
      ShapeError: the shapes differ.
      ArgumentError: no token has bytes.

    Source:    Karpathy 2025, nanochat, `evaluate_bpb`; Gao et al. 2020, arXiv:2101.00027, section 3.1.

    >>> round(bits_per_byte([math.log(2.0), math.log(8.0), 5.0], [1, 3, 0]), 6)
    1.0
    """
    found, lengths = _numbers("bits_per_byte", losses), _numbers("bits_per_byte", nbytes)
    if found.shape != lengths.shape:
        raise ShapeError(f"bits_per_byte: losses {found.shape} and nbytes {lengths.shape} must have the same shape.")
    counted = lengths > 0
    if not counted.any():
        raise ArgumentError("bits_per_byte: no token has bytes.")
    return float(found[counted].sum() / (math.log(2.0) * lengths.sum()))


def _numbers(function: str, values: Any) -> NDArray[np.float64]:
    found = np.asarray(values.detach().numpy() if isinstance(values, Tensor) else values, dtype=np.float64)
    if not found.size:
        raise ArgumentError(f"{function}: there are no tokens.")
    return found
