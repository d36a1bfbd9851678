"""Arithmetic, comparisons, logic, bits and activations; matrix products; Fourier transforms; random numbers.

Tensors broadcast. Complex numbers are pairs along the last axis, as in picograd.fft.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd import fft
from picograd.errors import ArgumentError, ShapeError
from picograd.nn import functional as F
from picograd.tensor.generator import Generator
from picograd.tensor.products import einsum as sum_products
from picograd.tensor.tensor import Tensor
from picograd_onnx.record import row
from picograd_onnx.values import Array, affordable, choose, dtype_of, numpy_of

Binary = Callable[[Any, Any], Any]


def legacy(function: Binary) -> Callable[..., Tensor]:
    """Returns a binary function with the rules before version 7.

    With `broadcast` the second operand is aligned to the first at `axis`, or at its end; without it, shapes must be equal.
    """

    def apply(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        if broadcast and axis is not None:
            b = b.reshape(*b.shape, *(1,) * (a.ndim - axis - b.ndim))
        result: Tensor = function(a, b)
        if result.shape != a.shape or not (broadcast or a.shape == b.shape):
            raise ShapeError(f"shapes {a.shape} and {b.shape} do not fit with broadcast={broadcast}.")
        return result

    return apply


# ---- arithmetic ----
def divide(a: Tensor, b: Tensor) -> Tensor:
    """Returns a / b; the quotient of integers is rounded towards zero."""
    return a / b if a.dtype.is_float else a.div(b, rounding_mode="trunc")


def modulo(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """Returns the remainder, with the sign of b, or of a if fmod is set."""
    return a.fmod(b) if fmod else a % b


def power(base: Tensor, exponent: Tensor) -> Tensor:
    """Returns base ** exponent in the element type of the base."""
    if base.dtype.is_int and exponent.dtype.is_float:
        return (base.to(dtypes.float64) ** exponent.to(dtypes.float64)).to(base.dtype)
    return (base ** exponent.to(base.dtype if base.dtype.is_float else exponent.dtype)).to(base.dtype)


def total(*values: Tensor) -> Tensor:
    """Returns the sum of all operands."""
    return reduce(Tensor.add, values)


def average(*values: Tensor) -> Tensor:
    """Returns the mean of all operands."""
    return total(*values) / len(values)


def largest(*values: Tensor) -> Tensor:
    """Returns the largest of all operands."""
    return reduce(Tensor.maximum, values)


def least(*values: Tensor) -> Tensor:
    """Returns the least of all operands."""
    return reduce(Tensor.minimum, values)


def clip_to(x: Tensor, *, min: float | None = None, max: float | None = None) -> Tensor:  # noqa: A002
    """Clamps x to `min` and `max`."""
    return x.clamp(min, max) if min is not None or max is not None else x


def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Clamps x to at least `low`, then to at most `high`."""
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Returns True for infinite elements of the requested signs."""
    found = x.isinf()
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


# ---- comparisons, logic, bits ----
def equal(a: Any, b: Any) -> Any:
    """Returns a == b, also for strings."""
    if isinstance(a, np.ndarray):
        return np.asarray(a == b, dtype=bool)
    return a.eq(b)


def shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    """Returns a * 2 ** b or a / 2 ** b of integers; 0 if b is at least their number of bits."""
    if direction not in ("LEFT", "RIGHT"):
        raise ArgumentError(f'BitShift: direction must be "LEFT" or "RIGHT", got {direction!r}.')
    most = a.dtype.bits - 1
    if direction == "LEFT":
        return (a << b.minimum(most)).masked_fill(b > most, 0)
    shifted = a >> b.minimum(most)
    return shifted if a.dtype.kind == "i" else shifted.masked_fill(b > most, 0)


# ---- activations ----
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Returns alpha * x + beta, clamped to [0, 1]."""
    return (x * alpha + beta).clamp(0, 1)


def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """Returns x if it is positive, else alpha * x."""
    return F.leaky_relu(x, alpha)


def parametric_relu(x: Tensor, slope: Tensor) -> Tensor:
    """Returns x if it is positive, else slope * x; slope broadcasts to x.

    Raises:
      ShapeError: slope does not broadcast to x.
    """
    result = choose(x < 0, x * slope, x)
    if result.shape != x.shape:
        raise ShapeError(f"PRelu: slopes of shape {slope.shape} do not broadcast to {x.shape}.")
    return result


def legacy_parametric_relu(x: Tensor, slope: Tensor) -> Tensor:
    """Returns parametric_relu with a slope for each channel, axis 1."""
    return parametric_relu(x, slope.reshape(-1, *(1,) * (x.ndim - 2)) if slope.numel() > 1 and x.ndim > 1 else slope)


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x if it is positive, else alpha * (exp(x) - 1)."""
    return F.elu(x, alpha)


def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    """Returns gamma * x if x is positive, else gamma * alpha * (exp(x) - 1)."""
    return elu(x, alpha=alpha) * gamma


def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x if it is above alpha, else 0."""
    return F.threshold(x, alpha, 0.0)


def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """Returns x moved towards 0 by `bias` if its magnitude is above lambd, else 0."""
    return choose(x < -lambd, x + bias, choose(x > lambd, x - bias, x * 0))


def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x if it is positive, else alpha * (exp(x / alpha) - 1)."""
    return F.celu(x, alpha)


def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x * sigmoid(alpha * x)."""
    return x * (x * alpha).sigmoid()


def where(condition: Tensor, a: Any, b: Any) -> Any:
    """Returns a if the condition holds, else b; also for strings."""
    if isinstance(a, np.ndarray):
        return np.where(condition.numpy(), a, b)
    return choose(condition, a, b)


def identity(x: Any) -> Any:
    """Returns the input."""
    return x


OPERATORS = [
    # ---- one operand ----
    row("Abs", 1, Tensor.abs), row("Neg", 1, Tensor.neg), row("Sign", 9, Tensor.sign),
    row("Reciprocal", 1, Tensor.reciprocal),
    row("Floor", 1, Tensor.floor), row("Ceil", 1, Tensor.ceil), row("Round", 11, lambda x: x.round()),
    row("Sqrt", 1, Tensor.sqrt), row("Exp", 1, Tensor.exp), row("Log", 1, Tensor.log), row("Erf", 9, Tensor.erf),
    row("Sin", 7, Tensor.sin), row("Cos", 7, Tensor.cos), row("Tan", 7, Tensor.tan),
    row("Acos", 7, Tensor.acos), row("Asin", 7, Tensor.asin), row("Atan", 7, Tensor.atan),
    row("Acosh", 9, Tensor.acosh), row("Asinh", 9, Tensor.asinh), row("Atanh", 9, Tensor.atanh),
    row("Sinh", 9, Tensor.sinh), row("Cosh", 9, Tensor.cosh), row("Tanh", 1, Tensor.tanh),
    row("Sigmoid", 1, Tensor.sigmoid), row("Relu", 1, Tensor.relu), row("Softplus", 1, lambda x: x.softplus()),
    row("IsNaN", 9, Tensor.isnan), row("IsInf", 10, is_infinite), row("Not", 1, operator.invert),
    row("BitwiseNot", 18, operator.invert),
    row("Identity", 1, identity, hosts=True),
    # ---- several operands ----
    row("Add", 1, legacy(Tensor.add)), row("Sub", 1, legacy(Tensor.sub)), row("Mul", 1, legacy(Tensor.mul)),
    row("Div", 1, legacy(divide)), row("Pow", 1, legacy(power)), row("Equal", 1, legacy(operator.eq)),
    row("Greater", 1, legacy(operator.gt)), row("Less", 1, legacy(operator.lt)),
    row("And", 1, legacy(operator.and_)), row("Or", 1, legacy(operator.or_)), row("Xor", 1, legacy(operator.xor)),
    row("Add", 7, Tensor.add), row("Sub", 7, Tensor.sub), row("Mul", 7, Tensor.mul), row("Div", 7, divide),
    row("Pow", 7, power), row("Equal", 7, equal, hosts=True), row("Greater", 7, operator.gt), row("Less", 7, operator.lt),
    row("GreaterOrEqual", 12, operator.ge), row("LessOrEqual", 12, operator.le),
    row("And", 7, operator.and_), row("Or", 7, operator.or_), row("Xor", 7, operator.xor),
    row("BitwiseAnd", 18, operator.and_), row("BitwiseOr", 18, operator.or_), row("BitwiseXor", 18, operator.xor),
    row("BitShift", 11, shift),
    row("Mod", 10, modulo),
    row("Sum", 1, total), row("Mean", 1, average), row("Max", 1, largest), row("Min", 1, least),
    row("Clip", 1, clip_to), row("Clip", 11, clip, "x single single"), row("Where", 9, where, hosts=True),
    # ---- activations ----
    row("HardSigmoid", 1, hard_sigmoid), row("LeakyRelu", 1, leaky_relu), row("PRelu", 1, legacy_parametric_relu),
    row("PRelu", 7, parametric_relu), row("Elu", 1, elu), row("Selu", 1, selu),
    row("ThresholdedRelu", 10, thresholded_relu),
    row("Shrink", 9, shrink), row("Softsign", 1, lambda x: F.softsign(x)), row("Swish", 24, swish),
    row("Gelu", 20, Tensor.gelu),
    row("Celu", 12, celu), row("Mish", 18, lambda x: F.mish(x)), row("HardSwish", 14, lambda x: F.hardswish(x)),
]  # fmt: skip


# ---- matrix products ----
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Returns a @ b, batched and broadcast."""
    return a @ b


def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,  # noqa: N803
) -> Tensor:  # fmt: skip
    """Returns alpha * A @ B + beta * C, with A and B transposed as transA and transB say."""
    product = (a.T if transA else a) @ (b.T if transB else b)
    if alpha != 1.0:
        product = (product * alpha).to(product.dtype)
    if c is None or beta == 0.0:
        return product
    return product + (c if beta == 1.0 else (c * beta).to(c.dtype))


def legacy_gemm(
    a: Tensor, b: Tensor, c: Tensor, *,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0, broadcast: int = 0,  # noqa: N803
) -> Tensor:  # fmt: skip
    """Returns gemm; an attribute allows C to broadcast.

    Raises:
      ShapeError: C may not broadcast and its shape is not the result's.
    """
    result = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if not broadcast and c.shape != result.shape:
        raise ShapeError(f"Gemm: C of shape {c.shape} does not broadcast to {result.shape} without broadcast=1.")
    return result


def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """Returns (A - a_zero) @ (B - b_zero) in int32; with one zero point, or one per row of A or column of B."""
    lhs, rhs = a.to(dtypes.int32), b.to(dtypes.int32)
    if a_zero is not None:
        point = a_zero.to(dtypes.int32)
        lhs = lhs - (point.unsqueeze(-1) if point.ndim == 1 and point.shape[0] > 1 else point)
    if b_zero is not None:
        rhs = rhs - b_zero.to(dtypes.int32)
    if lhs.shape != a.shape or rhs.shape != b.shape:
        raise ShapeError(f"MatMulInteger: zero points do not broadcast to {a.shape} and {b.shape}.")
    return lhs @ rhs


def einsum(*operands: Tensor, equation: str) -> Tensor:
    """Returns the sums of products of an equation."""
    return sum_products(equation, *operands)


OPERATORS += [
    row("MatMul", 1, matmul, "1+ 1+"), row("Gemm", 1, legacy_gemm, "2 2 0-2"), row("Gemm", 7, gemm, "2 2 0-2"),
    row("Einsum", 12, einsum), row("Det", 11, Tensor.det, "2+"), row("MatMulInteger", 10, matmul_integer, "1+ 1+"),
]  # fmt: skip


# ---- signals ----
def transform(
    x: Tensor, length: int | None = None, axis: int | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """Returns the discrete Fourier transform along an axis, or its inverse; onesided: half a real signal's spectrum."""
    return _transform(x, length, x.ndim - 2 if axis is None else axis, inverse, onesided)


def transform_17(
    x: Tensor, length: int | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """Returns transform, with the axis as an attribute."""
    return _transform(x, length, axis, inverse, onesided)


def _transform(x: Tensor, n: int | None, axis: int, inverse: int, onesided: int) -> Tensor:
    """Returns the discrete Fourier transform along an axis; the last axis holds a real number, or real, imaginary part."""
    if x.shape[-1] not in (1, 2):
        raise ShapeError(f"DFT: the last axis must hold 1 real or 2 parts of a complex number, got shape {x.shape}.")
    if axis == x.ndim - 1:
        raise ArgumentError(f"DFT: axis {axis} of shape {x.shape} is the axis of real and imaginary parts.")
    if onesided and not inverse:
        if x.shape[-1] == 2:
            raise ArgumentError("DFT: onesided needs real signals, got complex ones.")
        return fft.rfft(x[..., 0], n, axis)
    numbers = fft.pairs(x[..., 0]) if x.shape[-1] == 1 else x
    if onesided:
        return fft.irfft(numbers, n, axis).unsqueeze(-1)
    return fft.ifft(numbers, n, axis) if inverse else fft.fft(numbers, n, axis)


def frames(
    signal: Tensor, hop: int, window: Tensor | None = None, length: int | None = None, *, onesided: int = 1
) -> Tensor:
    """Returns the transform of each windowed frame, (batches, frames, frequencies, 2)."""
    if length is None and window is None:
        raise ArgumentError("STFT: needs a window or a frame_length.")
    count = length if length is not None else window.shape[0]  # type: ignore[union-attr]
    total = signal.shape[1]
    if not 0 < count <= total or hop < 1:
        raise ArgumentError(f"STFT: frames of {count} in steps of {hop} do not fit a signal of {total}.")
    starts = Tensor.arange((total - count) // hop + 1, device=signal.device) * hop
    places = starts.unsqueeze(1) + Tensor.arange(count, device=signal.device)
    taken = signal.index_select(1, places.reshape(-1)).unflatten(1, places.shape)  # (batches, frames, count, parts)
    if window is not None:
        taken = taken * window.unsqueeze(-1)
    return _transform(taken, None, 2, 0, onesided)


def mel_weights(
    count: int, length: int, sample_rate: int, low: float, high: float, *, output_datatype: int = 1
) -> Array:
    """Returns triangular filters (frequencies, bands) at equal distances on the mel scale, 2595 log10(1 + f / 700)."""
    if count < 0 or length < 0 or sample_rate < 1 or not 0 <= low <= high <= sample_rate / 2:
        shown = f"{count} bands of {low} to {high} Hz, dft_length {length} and sample_rate {sample_rate}"
        raise ArgumentError(f"MelWeightMatrix: {shown} do not fit.")
    affordable("MelWeightMatrix", length // 2 + 1, count + 2)
    first, last = (2595 * np.log10(1 + end / 700) for end in (low, high))
    mels = first + np.arange(count + 2) * ((last - first) / (count + 2))  # the specification's spacing
    bins = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / sample_rate).astype(np.int64)
    weights = np.zeros((length // 2 + 1, count))
    for band in range(count):
        left, middle, right = bins[band : band + 3]
        weights[left:middle, band] = np.arange(middle - left) / max(middle - left, 1)
        weights[middle, band] = 1
        weights[middle:right, band] = np.arange(right - middle, 0, -1) / max(right - middle, 1)
    return weights.astype(numpy_of(output_datatype))


OPERATORS += [
    row("DFT", 17, transform_17, "2+ one"), row("DFT", 20, transform, "2+ one axis"),
    row("STFT", 17, frames, "2-3 one 1 one"), row("MelWeightMatrix", 17, mel_weights, "one one one one one"),
]  # fmt: skip


# ---- random numbers ----
def generator_of(seed: float | None) -> Generator | None:
    """Returns a generator with a seed; None, for the default generator, without one."""
    return None if seed is None else Generator(struct.unpack("<Q", struct.pack("<d", float(seed)))[0])


def uniform(
    *, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Tensor:
    """Draws numbers uniformly from [low, high)."""
    made = Tensor.rand(*shape, generator=generator_of(seed))
    return (made * (high - low) + low).to(dtype_of(dtype, "RandomUniform"))


def normal(
    *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    """Draws numbers of a normal distribution."""
    made = Tensor.randn(*shape, generator=generator_of(seed))
    return (made * scale + mean).to(dtype_of(dtype, "RandomNormal"))


def uniform_like(
    x: Tensor, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Tensor:
    """Draws numbers uniformly from [low, high), in the shape of x."""
    made = uniform(shape=x.shape, low=low, high=high, seed=seed)
    return made.to(x.dtype if dtype is None else dtype_of(dtype, "RandomUniformLike"))


def normal_like(
    x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    """Draws numbers of a normal distribution, in the shape of x."""
    made = normal(shape=x.shape, mean=mean, scale=scale, seed=seed)
    return made.to(x.dtype if dtype is None else dtype_of(dtype, "RandomNormalLike"))


def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """Draws 1 with probability x, else 0."""
    made = Tensor.rand(*x.shape, generator=generator_of(seed), device=x.device) < x.to(dtypes.float32)
    return made.to(x.dtype if dtype is None else dtype_of(dtype, "Bernoulli"))


def multinomial(x: Tensor, *, sample_size: int = 1, dtype: int = 6, seed: float | None = None) -> Tensor:
    """Draws classes; the rows of x are logarithms of their probabilities, up to a constant."""
    drawn = x.softmax(-1).multinomial(sample_size, True, generator=generator_of(seed))
    return drawn.to(dtype_of(dtype, "Multinomial"))


OPERATORS += [
    row("RandomUniform", 1, uniform, random=True), row("RandomNormal", 1, normal, random=True),
    row("RandomUniformLike", 1, uniform_like, random=True), row("RandomNormalLike", 1, normal_like, random=True),
    row("Bernoulli", 15, bernoulli, random=True), row("Multinomial", 7, multinomial, "2", random=True),
]  # fmt: skip
