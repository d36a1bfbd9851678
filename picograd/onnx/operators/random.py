"""Random numbers: of the default generator, or of one that a seed begins.

In:    shapes
Out:   `OPERATORS`, `generator_of`
Next:  picograd/onnx/patterns.py
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.onnx.record import row
from picograd.onnx.values import dtype_of
from picograd.tensor.creation.generator import Generator
from picograd.tensor.tensor import Tensor


def generator_of(seed: float | None) -> Generator | None:
    """Returns the generator a seed begins; None, for the default one, without a seed."""
    return None if seed is None else Generator(struct.unpack("<Q", struct.pack("<d", float(seed)))[0])


def uniform(
    *, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Tensor:
    """Returns numbers uniform in [low, high)."""
    made = Tensor.rand(*shape, generator=generator_of(seed))
    return (made * (high - low) + low).to(dtype_of(dtype, "RandomUniform"))


def normal(
    *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    """Returns numbers of a normal distribution."""
    made = Tensor.randn(*shape, generator=generator_of(seed))
    return (made * scale + mean).to(dtype_of(dtype, "RandomNormal"))


def uniform_like(
    x: Tensor, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Tensor:
    """Returns numbers uniform in [low, high), of the shape of x."""
    made = uniform(shape=x.shape, low=low, high=high, seed=seed)
    return made.to(x.dtype if dtype is None else dtype_of(dtype, "RandomUniformLike"))


def normal_like(
    x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    """Returns numbers of a normal distribution, of the shape of x."""
    made = normal(shape=x.shape, mean=mean, scale=scale, seed=seed)
    return made.to(x.dtype if dtype is None else dtype_of(dtype, "RandomNormalLike"))


def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """Returns 1 with the probability that x says, else 0."""
    made = Tensor.rand(*x.shape, generator=generator_of(seed), device=x.device) < x.to(dtypes.float32)
    return made.to(x.dtype if dtype is None else dtype_of(dtype, "Bernoulli"))


def multinomial(x: Tensor, *, sample_size: int = 1, dtype: int = 6, seed: float | None = None) -> Tensor:
    """Returns classes drawn with the probabilities whose logarithms, up to a constant, are the rows of x."""
    drawn = x.softmax(-1).multinomial(sample_size, True, generator=generator_of(seed))
    return drawn.to(dtype_of(dtype, "Multinomial"))


OPERATORS = [
    row("RandomUniform", 1, uniform, random=True), row("RandomNormal", 1, normal, random=True),
    row("RandomUniformLike", 1, uniform_like, random=True), row("RandomNormalLike", 1, normal_like, random=True),
    row("Bernoulli", 15, bernoulli, random=True), row("Multinomial", 7, multinomial, "2", random=True),
]  # fmt: skip
