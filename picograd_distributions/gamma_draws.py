"""Samples of gamma and Dirichlet distributions, and their derivatives with respect to the concentrations.

A sample x is the quantile of a uniform number u: F(x, a) = u. For fixed u, dx / da = -F_a / F_x (implicit
reparameterization). F_a is the integral of F_x (log t - E log t) up to x, or minus that beyond x. Along log t, for
proportions log(t / (1 - t)), the integrand is smooth, and on one of the sides of one sign: a rule of few nodes has full
precision for every concentration, without cancellation.

Source: Marsaglia, Tsang 2000, ACM TOMS 26(3), section 4 and the note at its end; Figurnov, Mohamed, Mnih 2018,
arXiv:1805.08498, section 3. The integrals, the shifted concentrations and the integration bounds are our own.
"""

from __future__ import annotations

import numpy as np

from picograd import dtype as dtypes
from picograd.control.custom import Function, FunctionContext
from picograd.dtype import DType
from picograd.ir.build import both, cast, either, less, maximum, minimum, shr, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import detached
from picograd.tensor.formulas import formula
from picograd.tensor.random import cosine_of_turns, exp_alike, log_alike, random_bits
from picograd.tensor.special_formulas import digamma
from picograd.tensor.tensor import Tensor

PAIRS = 3  # of tries, made at once: for concentrations from 2 on, all six fail once in 10^10 draws


# ---- draws ----
def _fraction(bits: Op, dtype: DType) -> Op:
    """Returns the lower 32 bits as a fraction in (0, 1]."""
    return (cast(cast(bits, dtypes.uint32), dtype) + 1.0) * 2.0**-32


@formula
def _drawn(a: Op, *bits: Op, logarithm: bool) -> Op:
    """Returns a sample of Gamma(a, 1), above 0, or its logarithm, which is finite even if the sample underflows.

    For a >= 2 a normal x is tried: with v = (1 + x / sqrt(9 d))^3 and d = a - 1/3, d v is accepted with probability
    min(1, v^d exp(x^2 / 2 + d - d v)). The first accepted try counts. For a < 2 the sample is one of Gamma(a + 2) times
    u^(1/a) w^(1/(a + 1)), u and w uniform. Every device gives the same bits, as in tensor/random.py.
    """
    dtype = a.dtype.compute_dtype
    wide = cast(a, dtypes.float64)
    low, a = less(wide, 2.0), cast(a, dtype)
    d = where(low, a + 2.0, a) - 1 / 3
    width = unary(OpCode.SQRT, d * 9.0)
    cube = d.filled(1.0)
    for one, two in reversed([(bits[2 * i], bits[2 * i + 1]) for i in range(PAIRS)]):
        radius = unary(OpCode.SQRT, log_alike(_fraction(shr(one, 32), dtype)) * -2.0)
        turns = cast(one, dtypes.int32)
        for angle, chance in ((turns, two), (turns - (1 << 30), shr(two, 32))):
            x = radius * cosine_of_turns(angle, dtype)
            root = maximum(x / width + 1.0, 2.0**-40)
            v = root * root * root
            most = x * x * 0.5 + (log_alike(root) * 3.0 - v + 1.0) * d
            cube = where(less(log_alike(_fraction(chance, dtype)), most), v, cube)
    powers = [log_alike(_fraction(word, dtypes.float64)) / (wide + i)
              for i, word in enumerate((bits[-1], shr(bits[-1], 32)))]  # fmt: skip
    power = cast(where(low, powers[0] + powers[1], 0.0), dtype)
    drawn = d * cube
    return log_alike(drawn) + power if logarithm else maximum(drawn * exp_alike(power), dtypes.finfo(dtype).tiny)


def _of_gamma(a: Tensor, logarithm: bool) -> Tensor:
    op = detached(a.read())
    bits = [random_bits(op.shape, None, a.device) for _ in range(2 * PAIRS + 1)]
    return Tensor.from_op(_drawn(op, *bits, logarithm=logarithm), a.cell.device)


def standard_gamma(a: Tensor) -> Tensor:
    """Returns a sample of Gamma(a, 1) for each element of `a`, above 0, with a gradient to `a`."""
    return _GammaDraw.apply(a, _of_gamma(a, False).to(a.dtype))


def shares(a: Tensor) -> Tensor:
    """Returns a sample of the Dirichlet distribution along the last axis of `a` (..., K), with a gradient to `a`.

    Its proportions are those of K gammas, computed by logarithms, since all K may underflow. They are never 0 or 1, where a
    density may be infinite.
    """
    info = dtypes.finfo(a.dtype)
    drawn = _of_gamma(a, True).softmax(-1).clamp(info.tiny, 1 - info.eps / 2).to(a.dtype)
    return _SharesDraw.apply(a, drawn)


class _Draw(Function):
    """A sample as a function of its concentrations; subclasses define the derivative."""

    @staticmethod
    def forward(ctx: FunctionContext, a: Tensor, drawn: Tensor) -> Tensor:
        result = drawn * 1.0
        ctx.save_for_backward(a, result)
        return result


class _GammaDraw(_Draw):
    """A sample of Gamma(a, 1) as a function of a."""

    @staticmethod
    def backward(ctx: FunctionContext, grad: Tensor) -> tuple[Tensor, None]:
        a, x = ctx.saved_tensors
        return grad * x * Tensor.from_op(log_gamma_slope(a.read(), x.read()), x.cell.device), None


class _SharesDraw(_Draw):
    """A sample of Dirichlet(a) as a function of a: dx_j / da_i = (d logit x_i / da_i) x_i ([i = j] - x_j)."""

    @staticmethod
    def backward(ctx: FunctionContext, grad: Tensor) -> tuple[Tensor, None]:
        a, x = ctx.saved_tensors
        others = a.double().sum(-1, keepdim=True) - a
        slope = Tensor.from_op(logit_share_slope(*(each.read() for each in (a, others, x))), x.cell.device)
        return (grad - (grad * x).sum(-1, keepdim=True)) * x * slope, None


# ---- derivatives ----
def _rule(dtype: DType) -> tuple[float, list[tuple[float, float]]]:
    """Returns where an integrand is e^-last of its start, and nodes in [0, 1] with weights, for full precision."""
    last, num_nodes = (38.0, 32) if dtype is dtypes.float64 else (20.0, 16)
    places, weights = np.polynomial.legendre.leggauss(num_nodes)
    return last, list(zip(((1 + places) / 2).tolist(), (weights / 2).tolist()))


def _sum(terms: list[Op]) -> Op:
    """Returns the sum by halves, which keeps rounding errors small."""
    middle = len(terms) // 2
    return terms[0] if len(terms) == 1 else _sum(terms[:middle]) + _sum(terms[middle:])


def _log(x: Op) -> Op:
    return unary(OpCode.LOG, x)


def _exp(x: Op) -> Op:
    return unary(OpCode.EXP, x)


def _root(b: Op, square: Op, last: float) -> Op:
    """Returns the positive v with square v^2 + b v = last, without cancellation."""
    root = unary(OpCode.SQRT, b * b + square * (4.0 * last))
    above = less(0.0, b)
    return where(above, b.filled(2.0 * last), root - b) / where(above, root + b, square * 2.0)


@formula
def log_gamma_slope(a: Op, x: Op) -> Op:
    """Returns d log x / da of a sample x of Gamma(a, 1), computed in float64 and rounded to the dtype of a.

    With p(t) ~ t^a e^-t along u = log(t / x), and delta = log x - psi(a):

        d log x / da = integral of e^(a u - x (e^u - 1)) |u + delta| du     from 0 to infinity, or from minus infinity to 0

    Below psi(a + 1) it is the lower integral for a + 1, since slope(a) = (x slope(a + 1) - (log x - psi(a + 1))) / a: both
    terms are positive, and the integrand decays at least as fast as e^u.
    """
    dtype, (last, nodes) = a.dtype, _rule(a.dtype)
    a, x = cast(a, dtypes.float64), cast(x, dtypes.float64)
    raised = _log(x) - digamma(a + 1.0)
    low = less(raised, 0.0)
    p, delta = where(low, a + 1.0, a), where(low, raised, raised + unary(OpCode.RECIPROCAL, a))
    # 1 - e^-v <= 2 v / (2 + v), and e^v - 1 >= v + v^2 / 2, which is as tight up to about v = 1
    below = _root((p - x) * 2.0 - last, p, 2.0 * last)
    above = _root(x - p, x * 0.5, last)
    for _ in range(2):
        above = minimum(above, _log((above * p + last) / x + 1.0))
    end = detached(where(low, -below, above))

    terms = []
    for place, weight in nodes:
        u = end * place
        terms.append(_exp(p * u - x * (_exp(u) - 1.0)) * (u + delta) * weight)
    found = _sum(terms) * end
    return cast(where(low, (x * found - raised) / a, found), dtype)


@formula
def logit_share_slope(a: Op, b: Op, x: Op) -> Op:
    """Returns d log(x / (1 - x)) / da of a sample x of Beta(a, b), computed in float64 and rounded to the dtype of a.

    With p(t) ~ t^a (1 - t)^b along w = logit t, l(w) = log(t / x) and delta = log x - psi(a) + psi(a + b), it is the
    integral of (t / x)^a ((1 - t) / (1 - x))^b |l + delta| dw on one side of x, the lower for a + 1, the upper for b + 1:

        slope(a, b) = (x (a + b) slope(a + 1, b) - delta(a + 1, b)) / a = ((1 - x) (a + b) slope(a, b + 1) + delta) / b

    with psi(a + 1) and the same psi(a + b) in delta(a + 1, b). The side whose terms are both positive is used.
    """
    dtype, (last, nodes) = a.dtype, _rule(a.dtype)
    a, b, x = (cast(op, dtypes.float64) for op in (a, b, x))
    total = a + b
    of_total, of_a, log_x = digamma(total), digamma(a), _log(x)
    upper = log_x - of_a + of_total
    lower = upper - unary(OpCode.RECIPROCAL, a)
    is_left = either(less(upper, 0.0), less(x, 0.5))
    low = both(less(lower, 0.0), is_left)
    # for the upper side z is 1 - x, and w runs down from -logit x
    p, q, z = where(low, a, b) + 1.0, where(low, b, a), where(low, x, -x + 1.0)
    whole, half = total + 1.0, (-z + 1.0) * 0.5
    delta = where(low, lower, upper) + unary(OpCode.RECIPROCAL, total)
    # -log(1 - z (1 - e^-v)) <= z v / (1 + (1 - z) v / 2)
    end = _root(p - whole * z - half * last, p * half, last)
    for _ in range(2):
        end = minimum(end, _log((_exp((end * q + last) / whole) - 1.0) / maximum(half * 2.0, 1e-300) + 1.0))
    end = detached(end)

    sign, linear = where(low, x.filled(-1.0), 1.0), where(low, x.filled(1.0), 0.0)
    terms = []
    for place, weight in nodes:
        v = end * place
        rest = _log((_exp(-v) - 1.0) * z + 1.0)
        terms.append(_exp(-(p * v) - whole * rest) * (v * linear - (rest - delta) * sign) * weight)
    found = _sum(terms) * end * z * total
    return cast(where(low, (found - lower) / a, (found + upper) / b), dtype)
