"""The ladder of a step of AdamW on a GPU: from a kernel for each formula to all tensors in one launch.

In:    length N: elements of the first of four tensors; each of the others has half the elements of the one before
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.stages import Launch
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung, ceil_div
from picograd_lab.ladder.rules import Launches, roundings, whole
from picograd_lab.ladder.runnable import Array

TENSORS = 4
# The constants in the text, as float32.
CONSTANTS = np.array([1e-3, 0.9, 0.999, 1e-8, 0.1, 0.65132156, 0.00995512], np.float32)
RATE, B1, B2, EPS, DECAY, CORRECTION_1, CORRECTION_2 = map(float, CONSTANTS)


def lengths_of(lengths: Lengths) -> list[int]:
    """Returns the number of elements of each tensor."""
    return [ceil_div(lengths["N"], 2**tensor) for tensor in range(TENSORS)]


def total(lengths: Lengths) -> int:
    """Returns the number of elements of all tensors."""
    return sum(lengths_of(lengths))


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns parameters, gradients, and the averages of gradients and of squared gradients."""
    p, g, m = (rng.standard_normal(total(lengths)) for _ in range(3))
    return p, g, m / 3, rng.uniform(0, 1, total(lengths)) ** 2


def adamw(lengths: Lengths, p: Array, g: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """Returns the parameters and averages after the tenth step; tensors with even numbers have weight decay."""
    m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
    decay = np.concatenate([np.full(n, 0.0 if i % 2 else DECAY) for i, n in enumerate(lengths_of(lengths))])
    return p - RATE * (m / CORRECTION_1 / (np.sqrt(v / CORRECTION_2) + EPS) + decay * p), m, v


def bound(lengths: Lengths, roundoff: float, p: Array, g: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """Returns g(4) of the terms of each average; for parameters g(16) of the step plus g(4) of |p|."""
    new_p, new_m, new_v = adamw(lengths, np.abs(p), np.abs(g), np.abs(m), v)
    part = roundings(4, roundoff)
    step = new_m / CORRECTION_1 / (np.sqrt(new_v / CORRECTION_2) + EPS)
    return RATE * step * roundings(16, roundoff) + roundings(4, roundoff) * np.abs(p), part * new_m, part * new_v


def own(lengths: Lengths, *given: Tensor) -> tuple[list[Tensor], ...]:
    """Returns parameters and averages after the step, for four tensors each."""
    steps: list[tuple[Tensor, Tensor, Tensor]] = []
    first = 0
    for number, length in enumerate(lengths_of(lengths)):
        p, g, m, v = (whole[first : first + length].clone().realize() for whole in given)  # separate memory
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
        decay = 0.0 if number % 2 else DECAY
        steps.append((p - RATE * (m / CORRECTION_1 / ((v / CORRECTION_2).sqrt() + EPS) + decay * p), m, v))
        first += length
    return tuple(map(list, zip(*steps)))


# ---- launches ----
def for_each(symbols: str, each: int) -> Launches:
    """Returns a launch for each tensor and each of these kernels, with blocks of `each` elements."""

    def launches(lengths: Lengths) -> tuple[Launch, ...]:
        return tuple(
            Launch(f"{symbol}_{tensor}", ceil_div(length, each), 256, 1)
            for tensor, length in enumerate(lengths_of(lengths))
            for symbol in symbols.split()
        )

    return launches


def of_all(lengths: Lengths) -> tuple[Launch, ...]:
    """Returns the only launch."""
    return (Launch("one_launch", sum(ceil_div(length, 1024) for length in lengths_of(lengths)), 256, 1),)


def steps(lengths: Lengths) -> tuple[tuple[DType, int], ...]:
    """Returns scratch memory for the step of each element."""
    return ((dtypes.float32, total(lengths)),)


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="a step of AdamW, of tensors of N, N/2, N/4 and N/8 elements",
    lengths={"N": 8192},
    inputs=operands,
    meaning=adamw,
    bound=bound,
    flops=lambda lengths: 16 * total(lengths),
    tensors=own,
    rungs=(
        Rung("01_kernel_a_formula.cu", for_each("mean square divide change", 256), scratch=steps),
        Rung("02_fused.cu", for_each("fused", 256)),
        Rung("03_vectors.cu", for_each("vectors", 1024), whole("N", 32)),
        Rung("04_one_launch.cu", of_all, whole("N", 32)),
    ),
)
