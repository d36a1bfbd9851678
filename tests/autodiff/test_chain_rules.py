"""Every row of chain_rules against central differences in float64: reverse and forward mode, first and second order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.gradient import gradient, jvp
from picograd.evaluator import evaluate
from picograd.ir.bodies import CustomGradient, mark_of
from picograd.ir.build import (
    cast,
    compare,
    diagonal,
    expand,
    flip,
    gather,
    iota,
    pad,
    permute,
    positions,
    reduce,
    reshape,
    scan,
    scatter,
    shrink,
    swap_last,
    triangle,
    unary,
    where,
    with_diagonal,
)  # fmt: skip
from picograd.ir.host import host_call
from picograd.ir.op import Buffer, Op, Shape, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg, ConvArg

f64, i64 = dtypes.float64, dtypes.int64
Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """A function of float64 Ops and where to differentiate it.

    function:  Ops -> Op
    shapes:    of the inputs
    positive:  inputs are drawn from 0.5..2 instead of the normal distribution
    zeros:     how many leading elements of the first input are 0
    step:      of the central difference; its error falls as step^2, that of rounding grows as 1e-16 / step
    rounding:  relative error of the arithmetic, summed over a case
    """

    function: Callable[..., Op]
    shapes: tuple[tuple[int, ...], ...]
    positive: bool = False
    zeros: int = 0
    step: float = 1e-5
    rounding: float = 1e-10


def op2(code: OpCode) -> Callable[[Op, Op], Op]:
    return lambda a, b: Op(code, f64, (a, b))


def op1(code: OpCode) -> Callable[[Op], Op]:
    return lambda a: unary(code, a)


def gamma_part(name: str) -> Callable[[Op], Op]:
    """An incomplete gamma function of order 2.5, whose third operand is log(gamma(2.5 + 1))."""
    return lambda x: host(name, x.filled(2.5), x, x.filled(math.lgamma(3.5)))


def host(name: str, *src: Op, options: tuple[int | bool, ...] = ()) -> Op:
    """A function of the host."""
    return host_call(name, f64, src, options)


def near_one(a: Op) -> Op:
    """A matrix that has an inverse, and whose LU needs no order of rows."""
    return with_diagonal(a, diagonal(a) * 0.1 + 6)


def positive(a: Op) -> Op:
    """A symmetric matrix with different positive eigenvalues."""
    lower = triangle(a, True, 0.0) * 0.3
    n = int(a.shape[-1])
    rising = expand(reshape(cast(iota(n), f64) + 2, (1,) * (len(a.shape) - 2) + (n,)), a.shape[:-1])
    return with_diagonal(lower + swap_last(lower), diagonal(a) * 0.1 + rising)


def spread(a: Op) -> Op:
    """A matrix of different real eigenvalues that is not symmetric: its columns' other elements are small."""
    n = int(a.shape[-1])
    rising = expand(reshape(cast(iota(n), f64) + 2, (1,) * (len(a.shape) - 2) + (n,)), a.shape[:-1])
    return with_diagonal(a * 0.1, diagonal(a) * 0.05 + rising)


def normalized(a: Op) -> Op:
    """Rows with mean 0 and variance near 1."""
    deviation = a - expand(reduce(a, OpCode.ADD, (1,), keepdim=True) / float(a.shape[1]), a.shape)
    variance = reduce(deviation * deviation, OpCode.ADD, (1,), keepdim=True) + 1.0
    return deviation * expand(unary(OpCode.RECIPROCAL, unary(OpCode.SQRT, variance)), a.shape)


def squared(a: Op) -> Op:
    """What does not depend on signs of vectors."""
    return a * a


def ints(*values: int, shape: tuple[int, ...] | None = None) -> Op:
    """An int64 constant array, made of Ops."""
    shape = (len(values),) if shape is None else shape
    total = filled(0, i64, (len(values),))
    iota = Op(OpCode.IOTA, i64, (), len(values))
    for i, value in enumerate(values):
        here = compare(OpCode.CMPEQ, iota, filled(i, i64, (len(values),)))
        total = where(here, filled(value, i64, (len(values),)), total)
    return reshape(total, shape)


def relu(x: Op) -> Op:
    zero = filled(0, x.dtype, x.shape)
    return where(compare(OpCode.CMPLE, x, zero), zero, x)


def positive_places(x: Op) -> Op:
    return compare(OpCode.CMPLT, filled(0, f64, x.shape), x)


def conv(*arg: object) -> Callable[[Op, Op], Op]:
    return lambda x, w: Op(OpCode.CONV, f64, (x, w), ConvArg(*arg))  # type: ignore[arg-type]


def attention(output: int, **arg: object) -> Callable[[Op, Op, Op], Op]:
    def function(q: Op, k: Op, v: Op) -> Op:
        draws = draws_for(q) if "dropout" in arg else ()
        made = Op(OpCode.ATTENTION, f64, (q, k, v, *draws), AttentionArg(0.4, **arg))  # type: ignore[arg-type]
        return Op(OpCode.OUTPUT, f64, (made,), output)

    return function


def draws_for(q: Op) -> tuple[Op, Op]:
    """One seed, and the number of each head."""
    heads = q.shape[:2]
    numbers = positions(heads, 0) * q.shape[1] + positions(heads, 1)
    return filled(77, dtypes.uint64, heads), numbers


def both_of_attention(q: Op, k: Op, v: Op) -> Op:
    out, logsumexp = (attention(number, causal=True)(q, k, v) for number in (0, 1))
    return out * expand(reshape(logsumexp, (*logsumexp.shape, 1)), out.shape)


def attention_grad(output: int, **arg: object) -> Callable[..., Op]:
    """One gradient of an attention; its logsumexp and delta may be any numbers."""

    def function(*src: Op) -> Op:
        draws = draws_for(src[0]) if "dropout" in arg else ()
        made = Op(OpCode.ATTENTION_GRAD, f64, (*src, *draws), AttentionArg(0.4, **arg))  # type: ignore[arg-type]
        return Op(OpCode.OUTPUT, f64, (made,), output)

    return function


def inside(slot: int, *shape: int) -> Op:
    return Op(OpCode.PARAM, f64, (), (slot, shape))


def body_of(*roots: Op, mark: str | None = None) -> Op:
    return Op(OpCode.SINK, f64, roots, mark)


def matmul(a: Op, b: Op) -> Op:
    return Op(OpCode.MATMUL, f64, (a, b))


def result(producer: Op, number: int) -> Op:
    return Op(OpCode.OUTPUT, f64, (producer,), number)


P, Q, M = inside(0, 3, 4), inside(1, 3, 4), inside(1, 4, 4)
PRODUCT = (unary(OpCode.TANH, P * Q) * P, relu(Q) - P, unary(OpCode.DETACH, unary(OpCode.FLOOR, P)) * Q, Q)
H, W, B, X = inside(0, 2, 3), inside(1, 3, 3), inside(2, 3), inside(3, 2, 3)
SUM = unary(OpCode.TANH, matmul(H, W) + matmul(X, permute(W, (1, 0))) + expand(reshape(B, (1, 3)), (2, 3)))
RNN = body_of(SUM, W, B, SUM)
POWERS = body_of(inside(0, 2, 3) * inside(1, 2, 3), inside(1, 2, 3) * inside(2, 2, 3), inside(0, 2, 3))
HELD = body_of(unary(OpCode.SIN, H * X), W, B, unary(OpCode.EXP, X), matmul(X, unary(OpCode.SIN, W)))


def call(number: int, mark: str | None = None) -> Callable[[Op, Op], Op]:
    return lambda a, b: result(Op(OpCode.CALL, f64, (a, b), body_of(*PRODUCT, mark=mark)), number)


def written(number: int) -> Callable[[Op, Op], Op]:
    """f(p, q) = sin(p) q, p q with a gradient that reads the second argument, the second result and cos(p)."""
    cosine = unary(OpCode.COS, P)
    body = (unary(OpCode.SIN, P) * Q, P * Q, cosine)
    q, product, c, first, second = (inside(i, 3, 4) for i in range(5))
    p = product / q
    back = body_of(first * q * c + second * q, first * unary(OpCode.SIN, p) + second * p)
    made = CustomGradient(back, (("source", 1), ("result", 1), ("result", 2)), 2, (0, 1))

    def function(a: Op, b: Op) -> Op:
        return result(Op(OpCode.CALL, f64, (a, b + 3.0), body_of(*body, mark=mark_of(made))), number)

    return function


def both_results(mark: str | None = None) -> Callable[[Op, Op], Op]:
    def function(a: Op, b: Op) -> Op:
        made = Op(OpCode.CALL, f64, (a, b), body_of(*PRODUCT, mark=mark))
        return result(made, 0) * result(made, 1) + result(made, 3)

    return function


def loop(body: Op, num_carry: int, *numbers: int) -> Callable[..., Op]:
    """The sum of some results of a LOOP; the carry, repeated over the steps, adds to the rows."""

    def function(*sources: Op) -> Op:
        made = Op(OpCode.LOOP, f64, sources, (body, num_carry, 4))
        parts = [result(made, number) for number in numbers]
        parts = [part if part.shape[0] == 4 else repeated(part) for part in parts]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    return function


def repeated(x: Op) -> Op:
    return expand(reshape(x, (1, *x.shape)), (4, *x.shape))


def loop_in_loop(h: Op, w: Op, xs: Op) -> Op:
    """Each outer step runs an inner loop over the rows of its row."""
    inner = body_of(
        unary(OpCode.TANH, inside(0, 3) * inside(1, 3) + inside(2, 3)), inside(1, 3), inside(0, 3) * inside(2, 3)
    )
    made = Op(OpCode.LOOP, f64, (inside(0, 3), inside(1, 3), inside(2, 2, 3)), (inner, 2, 2))
    outer = body_of(result(made, 0), inside(1, 3), result(made, 2))
    run = Op(OpCode.LOOP, f64, (h, w, xs), (outer, 2, 4))
    return result(run, 2) + expand(reshape(result(run, 0), (1, 1, 3)), (4, 2, 3))


RNN_SHAPES = ((2, 3), (3, 3), (3,), (4, 2, 3))
INDEX = ints(2, 0, 2, 3)
BATCHED = ints(2, 0, 1, 1, 3, 0, shape=(2, 3))
S, QKV = ((3, 4),), ((2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 5))
UNSEEN = (1, 2, 4, 3), (1, 2, 2, 3), (1, 2, 2, 5)  # causal: two queries stand before both keys
OF_GRAD = *QKV, (2, 4, 3, 5), (2, 4, 3), (2, 4, 3)

# row -> one case or several
CASES: dict[str, Case | list[Case]] = {
    "add": Case(op2(OpCode.ADD), S * 2),
    "sub": Case(op2(OpCode.SUB), S * 2),
    "neg": Case(op1(OpCode.NEG), S),
    "mul": [Case(op2(OpCode.MUL), S * 2), Case(lambda a: a * a, S)],
    "div": Case(op2(OpCode.DIV), S * 2, positive=True),
    "fma": Case(lambda a, b, c: Op(OpCode.FMA, f64, (a, b, c)), S * 3),
    "mod": Case(op2(OpCode.MOD), S * 2, positive=True),
    "pow constant": [
        *(Case(lambda a, p=p: Op(OpCode.POW, f64, (a, filled(p, f64, a.shape))), S) for p in (0, 1, 2, 3, -2)),
        Case(lambda a: Op(OpCode.POW, f64, (a, filled(0.3, f64, a.shape))), S, positive=True),
        Case(lambda a: Op(OpCode.POW, f64, (a, filled(3, f64, a.shape))), S, zeros=2),
    ],
    "pow": Case(op2(OpCode.POW), S * 2, positive=True),
    "reciprocal": Case(op1(OpCode.RECIPROCAL), S, positive=True),
    "sqrt": Case(op1(OpCode.SQRT), S, positive=True),
    "floor": Case(op1(OpCode.FLOOR), S),
    "exp": Case(op1(OpCode.EXP), S),
    "exp2": Case(op1(OpCode.EXP2), S),
    "log": Case(op1(OpCode.LOG), S, positive=True),
    "log2": Case(op1(OpCode.LOG2), S, positive=True),
    "sin": Case(op1(OpCode.SIN), S),
    "cos": Case(op1(OpCode.COS), S),
    "tanh": Case(op1(OpCode.TANH), S),
    "erf": Case(op1(OpCode.ERF), S),
    "max": Case(op2(OpCode.MAX), S * 2),
    "min": Case(op2(OpCode.MIN), S * 2),
    "relu": [Case(relu, S), Case(lambda a: relu(a) * relu(a), S)],
    "where": Case(lambda a, b: where(positive_places(b), a * b, b), S * 2),
    "leaf": Case(lambda a: Op(OpCode.LEAF, f64, (a * a,), "inner"), S),
    "detach": Case(lambda a: Op(OpCode.DETACH, f64, (unary(OpCode.FLOOR, a),)) * a, S),
    "contiguous": Case(lambda a: Op(OpCode.CONTIGUOUS, f64, (a * a,)), S),
    "cast": Case(lambda a: cast(cast(a, dtypes.float32), f64), S, step=1.0, rounding=1e-6),
    "copy": Case(lambda a: Op(OpCode.COPY, f64, (a * a,), "CPU"), S),
    "reshape": Case(lambda a: reshape(a * a, (6, 2)), S),
    "permute": Case(lambda a: permute(a * a, (2, 0, 1)), ((2, 3, 4),)),
    "expand": [
        Case(lambda a: expand(a * a, (3, 4, 2)), ((3, 1, 1),)),
        Case(lambda a: expand(a * a, (3, 4)), ((),)),
        Case(lambda a: expand(a * a, (1, 5)), ((1, 1),)),
        Case(lambda a, b, c: (b - expand(a, (3, 4))) * expand(c * a, (3, 4)), ((3, 1), (3, 4), (3, 1))),
        Case(lambda a, b: normalized(a) * b, ((3, 4), (3, 4))),
        Case(lambda a, b: expand(a, (3, 4)) * expand(b, (3, 4)), ((3, 1), (1, 4))),
    ],
    "pad": Case(lambda a: pad(a * a, ((1, 0), (0, 2))), S),
    "shrink": Case(lambda a: shrink(a * a, ((1, 3), (0, 3))), S),
    "flip": Case(lambda a: flip(a * a, (1,)), S),
    "reduce add": [
        Case(lambda a: reduce(a * a, OpCode.ADD, (1,)), ((2, 3, 4),)),
        Case(lambda a: reduce(a * a, OpCode.ADD, (0, 2)), ((2, 3, 4),)),
        Case(lambda a: reduce(a * a, OpCode.ADD, (0, 1)), S),
    ],
    "reduce mul": [
        Case(lambda a: reduce(a, OpCode.MUL, (1,)), ((2, 5, 3),)),
        Case(lambda a: reduce(a, OpCode.MUL, (2, 0)), ((2, 3, 3),), zeros=1),
        Case(lambda a: reduce(a, OpCode.MUL, (1,)), ((2, 4),), zeros=2),
        Case(lambda a: reduce(a, OpCode.MUL, (0,)), ((1,),)),
    ],
    "reduce max": Case(lambda a: reduce(a * a, OpCode.MAX, (0, 2)), ((2, 3, 4),)),
    "reduce min": Case(lambda a: reduce(a * a, OpCode.MIN, (1,)), S),
    "scan add": Case(lambda a: scan(a * a, OpCode.ADD, 1), ((2, 5, 3),)),
    "scan mul": [
        Case(lambda a: scan(a, OpCode.MUL, 1), ((2, 5, 3),)),
        Case(lambda a: scan(a, OpCode.MUL, 0), ((6, 2),), zeros=5),
        Case(lambda a: scan(a * a, OpCode.MUL, 0), ((1, 2),)),
    ],
    "scan max": Case(lambda a: scan(a * a, OpCode.MAX, 0), ((6, 2),)),
    "scan min": Case(lambda a: scan(a * a, OpCode.MIN, 1), ((2, 6, 2),)),
    "gather": [
        Case(lambda a: gather(a * a, INDEX, 1, 0), ((3, 4, 2),)),
        Case(lambda a: gather(a * a, BATCHED, 2, 1), ((2, 3, 4, 2),)),
    ],
    "scatter add": [
        Case(lambda a, u: scatter(a * a, INDEX, u * u, OpCode.ADD, 1, 0), ((3, 5, 2), (3, 4, 2))),
        Case(lambda a, u: scatter(a * a, BATCHED, u * u, OpCode.ADD, 2, 1), ((2, 3, 4, 2), (2, 3, 3, 2))),
    ],
    "scatter store": [
        Case(lambda a, u: scatter(a * a, INDEX, u * u, None, 1, 0), ((3, 5, 2), (3, 4, 2))),
        Case(lambda a, u: scatter(a * a, BATCHED, u * u, None, 2, 1), ((2, 3, 4, 2), (2, 3, 3, 2))),
        Case(lambda a, u: scatter(a, INDEX, u * u, None, 0, 0), ((5,), (4,))),
    ],
    "scatter mul": [
        Case(lambda a, u: scatter(a, INDEX, u, OpCode.MUL, 1, 0), ((3, 5, 2), (3, 4, 2))),
        Case(lambda a, u: scatter(a, BATCHED, u, OpCode.MUL, 2, 1), ((2, 3, 4, 2), (2, 3, 3, 2)), zeros=5),
    ],
    "scatter max": Case(lambda a, u: scatter(a * a, INDEX, u * u, OpCode.MAX, 1, 0), ((3, 5, 2), (3, 4, 2))),
    "scatter min": Case(lambda a, u: scatter(a * a, BATCHED, u * u, OpCode.MIN, 2, 1), ((2, 3, 4, 2), (2, 3, 3, 2))),
    "update": Case(lambda a, b: Op(OpCode.UPDATE, f64, (a * a, b * b), ((1, 3), (0, 2))), (*S, (2, 2))),
    "matmul": [
        Case(op2(OpCode.MATMUL), ((3, 4), (4, 2))),
        Case(op2(OpCode.MATMUL), ((2, 3, 3, 4), (2, 3, 4, 5))),
        Case(lambda a: Op(OpCode.MATMUL, f64, (a, a)), ((3, 3),)),
    ],
    "conv": [
        Case(conv((1,), ((0, 0),), (1,), (1,)), ((2, 3, 7), (4, 3, 3))),
        Case(conv((2, 1), ((1, 2), (0, 1)), (1, 2), (1, 1)), ((2, 3, 6, 7), (2, 3, 3, 2))),
        Case(conv((3,), ((2, 1),), (2,), (2,), 2), ((2, 4, 6), (6, 2, 3))),
        Case(conv((2,), ((3, 4),), (1,), (1,)), ((1, 2, 5), (2, 2, 2))),
        Case(conv((1, 1), ((2, 2), (3, 0)), (1, 1), (3, 2)), ((1, 2, 3, 3), (2, 2, 1, 2))),
        Case(conv((4,), ((0, 0),), (1,), (1,), 3), ((2, 3, 10), (3, 1, 3))),
    ],
    "custom": [
        Case(lambda a: host("inv", near_one(a)), ((3, 3),)),
        Case(lambda a: host("inv", near_one(a)), ((2, 3, 3),)),
        Case(lambda a, b: host("solve", near_one(a), b), ((3, 3), (3, 2))),
        Case(lambda a, b: host("solve_triangular", near_one(a), b, options=(True, False)), ((3, 3), (3, 2))),
        Case(lambda a, b: host("solve_triangular", near_one(a), b, options=(False, True)), ((3, 3), (3, 2))),
        Case(lambda a: host("pinv", a, filled(0.0, f64, ()), filled(0.0, f64, ())), ((4, 2),)),
        Case(lambda a: host("pinv", a, filled(0.0, f64, ()), filled(0.0, f64, ())), ((2, 4),)),
        Case(lambda a: host("det", near_one(a)), ((2, 3, 3),)),
        Case(lambda a: host("cofactor", near_one(a)), ((3, 3),)),
        Case(lambda a: host("slogdet", near_one(a)), ((3, 3),)),
        Case(lambda a: host("cholesky", positive(a)), ((3, 3),)),
        Case(lambda a: host("lu", near_one(a)), ((3, 3),)),
        Case(lambda a: host("qr", a), ((4, 2),)),
        Case(lambda a: squared(host("eigh", positive(a))), ((3, 3),)),
        Case(lambda a: squared(host("eig", spread(a))), ((3, 3),)),
        Case(lambda a: host("eigvalsh", positive(a)), ((3, 3),)),
        Case(lambda a: squared(host("svd", a)), ((4, 2),)),
        Case(lambda a: squared(host("svd", a)), ((2, 4),)),
        Case(lambda a: host("svdvals", a), ((2, 4, 2),)),
        Case(lambda a: host("matrix_exp", a), ((3, 3),)),
        # ---- a batch of matrices ----
        Case(lambda a, b: host("solve", near_one(a), b), ((2, 3, 3), (2, 3, 1))),
        Case(lambda a, b: host("solve_triangular", near_one(a), b, options=(True, True)), ((2, 2, 2), (2, 2, 3))),
        Case(lambda a: host("pinv", a, filled(0.0, f64, ()), filled(0.0, f64, ())), ((2, 3, 2),)),
        Case(lambda a: host("cofactor", near_one(a)), ((2, 2, 2),)),
        Case(lambda a: host("slogdet", near_one(a)), ((2, 1, 2, 2),)),
        Case(lambda a: host("cholesky", positive(a)), ((2, 2, 2),)),
        Case(lambda a: host("lu", near_one(a)), ((2, 3, 3),)),
        Case(lambda a: host("qr", a), ((2, 3, 2),)),
        Case(lambda a: squared(host("eigh", positive(a))), ((2, 2, 2),)),
        Case(lambda a: host("eigvalsh", positive(a)), ((2, 2, 2),)),
        Case(lambda a: squared(host("svd", a)), ((2, 3, 2),)),
        Case(lambda a: host("matrix_exp", a), ((2, 1, 2, 2),)),
        # ---- incomplete gamma functions ----
        Case(gamma_part("gammainc"), ((2, 3),), positive=True),
        Case(gamma_part("gammaincc"), ((2, 3),), positive=True),
        # ---- transforms ----
        Case(lambda a: host("fft", a, options=(-1, -2, -1)), ((3, 4, 2),)),
        Case(lambda a: host("fft", a, options=(1, -2)), ((3, 4, 2),)),
        Case(lambda a: host("rfft", a, options=(5, -1)), ((2, 5),)),
        Case(lambda a: host("rfft", a, options=(4, -2)), ((4, 2),)),
        Case(lambda a: host("irfft", a, options=(5, -1)), ((2, 3, 2),)),
        Case(lambda a: host("irfft", a, options=(4, -2)), ((3, 2, 2),)),
    ],
    "attention": [
        Case(attention(0), QKV),
        Case(attention(0, causal=True), QKV),
        Case(attention(0, causal=True, window=2), QKV),
        Case(attention(0, window=2), QKV),
        Case(attention(0, soft_cap=0.7), QKV),
        Case(attention(1, causal=True, soft_cap=2.0), QKV),
        Case(attention(0, causal=True, dropout=0.4), QKV),
        Case(attention(0, causal=True), UNSEEN),
        Case(attention(1, causal=True, window=1), QKV),
        Case(both_of_attention, QKV),
        Case(lambda x: attention(0, causal=True)(x, x, x), ((2, 2, 3, 4),)),
    ],
    "attention grad": [
        *(Case(attention_grad(i), OF_GRAD) for i in range(3)),
        *(Case(attention_grad(i, causal=True, window=2), OF_GRAD) for i in range(3)),
        *(Case(attention_grad(i, window=3, soft_cap=0.7), OF_GRAD) for i in range(3)),
        *(Case(attention_grad(i, causal=True, dropout=0.4), OF_GRAD) for i in range(3)),
        *(Case(attention_grad(i, causal=True), (*UNSEEN, (1, 2, 4, 5), (1, 2, 4), (1, 2, 4))) for i in range(3)),
        Case(lambda q, k, v, grad: attention_grad(0)(q, k, v, grad, *(attention(1)(q, k, v),) * 2), OF_GRAD[:4]),
    ],
    "written": [*(Case(written(number), S * 2) for number in range(3)), Case(lambda a: written(0)(a, a) * 2.0, S)],
    "call": [
        *(Case(call(number), S * 2) for number in range(4)),
        Case(both_results(), S * 2),
        Case(both_results("recompute"), S * 2),
        Case(lambda a: call(0)(a, a) * 2.0, S),
        Case(lambda a, b: call(1, "recompute")(call(0)(a, b), b), S * 2),
    ],
    "loop": [
        Case(loop(RNN, 3, 0), RNN_SHAPES),
        Case(loop(RNN, 3, 3), RNN_SHAPES),
        Case(loop(RNN, 3, 0, 3), RNN_SHAPES),
        Case(loop(RNN, 3, 1), RNN_SHAPES),
        Case(loop(POWERS, 2, 0, 2), ((2, 3), (2, 3), (4, 2, 3))),
        Case(loop(POWERS, 2, 1), ((2, 3), (2, 3), (4, 2, 3))),
        Case(loop(HELD, 3, 3), RNN_SHAPES),
        Case(loop(HELD, 3, 4, 0), RNN_SHAPES),
        Case(loop_in_loop, ((3,), (3,), (4, 2, 3))),
        Case(lambda h, w, b, xs: reduce(loop(RNN, 3, 3)(h, w, b, flip(xs, (0,))), OpCode.ADD, (0,)), RNN_SHAPES),
    ],
}
FLAT = [
    (name, i, case) for name, cases in CASES.items() for i, case in enumerate(cases if isinstance(cases, list) else [cases])
]


def buffer(shape: Shape) -> Op:
    return Op(OpCode.BUFFER, f64, (), (Buffer("CPU", f64, 0), shape))


class Setup:
    """A case with its inputs as leaves, a random point, direction and weights of the outputs."""

    def __init__(self, case: Case):
        rng = np.random.default_rng(len(case.shapes) + sum(map(sum, case.shapes)))
        self.step = case.step
        self.places = [buffer(shape) for shape in case.shapes]
        self.leaves = [Op(OpCode.LEAF, f64, (place,), i) for i, place in enumerate(self.places)]
        self.point = [
            rng.uniform(0.5, 2.0, shape) if case.positive else rng.standard_normal(shape) for shape in case.shapes
        ]
        if case.zeros:
            self.point[0].reshape(-1)[: case.zeros] = 0.0
        self.direction = [rng.standard_normal(shape) for shape in case.shapes]
        self.result = case.function(*self.leaves)
        self.weight = rng.standard_normal(self.result.shape)
        self.weights = buffer(self.result.shape)
        self.moves = [buffer(shape) for shape in case.shapes]
        self.given = {self.weights: self.weight, **dict(zip(self.moves, self.direction))}

    def at(self, op: Op, shift: float = 0.0) -> Array:
        """The value of a graph at the point, moved along the direction."""
        values = {place: x + shift * v for place, x, v in zip(self.places, self.point, self.direction)}
        return evaluate([op], {**values, **self.given})[0]

    def along(self, op: Op) -> Array:
        """The central difference of a graph along the direction."""
        return (self.at(op, self.step) - self.at(op, -self.step)) / (2 * self.step)

    def pulled(self, root: Op, seed: Op) -> Op:
        """<gradient of root, direction>: a scalar graph."""
        grads = gradient(root, seed, self.leaves)
        return scalar_sum([grads[leaf] * move for leaf, move in zip(self.leaves, self.moves) if leaf in grads])

    def pushed(self, root: Op) -> Op:
        tangent = jvp([root], dict(zip(self.leaves, self.moves)))[0]
        return filled(0, f64, root.shape) if tangent is None else tangent


def scalar_sum(parts: list[Op]) -> Op:
    total = filled(0, f64, ())
    for part in parts:
        total = total + reduce(part, OpCode.ADD, tuple(range(len(part.shape))))
    return total


def close(a: Array, b: Array) -> None:
    """A central difference with step 1e-5 is right to about 1e-10 of the third derivative: of the cases below 1e4."""
    np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_every_row_has_a_case() -> None:
    assert list(CASES) == [rule.name for rule in chain_rules.rules]


@pytest.mark.req("A6")
@pytest.mark.parametrize(("name", "i", "case"), FLAT, ids=[f"{name}-{i}" for name, i, _ in FLAT])
def test_row(name: str, i: int, case: Case) -> None:
    setup = Setup(case)
    matched = [found[0].name for op in toposort([setup.result]) if (found := chain_rules.find(op)) is not None]
    assert name in matched
    difference = setup.along(setup.result)
    forward = setup.pushed(setup.result)
    reverse = setup.pulled(setup.result, setup.weights)
    close(setup.at(forward), difference)
    close(setup.at(reverse), np.sum(setup.weight * difference))
    np.testing.assert_allclose(  # the same sums in another order
        setup.at(reverse), np.sum(setup.weight * setup.at(forward)), rtol=case.rounding, atol=case.rounding
    )


@pytest.mark.req("A9")
@pytest.mark.parametrize(("name", "i", "case"), FLAT, ids=[f"{name}-{i}" for name, i, _ in FLAT])
def test_row_to_second_order(name: str, i: int, case: Case) -> None:
    setup = Setup(case)
    first = setup.pulled(setup.result, setup.weights)
    difference = setup.along(first)
    one = filled(1, f64, ())
    close(setup.at(setup.pulled(first, one)), difference)  # reverse over reverse
    close(setup.at(setup.pushed(first)), difference)  # forward over reverse: a Hessian-vector product
    forward = setup.pushed(setup.result)
    close(setup.at(setup.pulled(scalar_sum([forward * setup.weights]), one)), difference)  # reverse over forward


# ---- ties and zeros, where a difference is no judge ----
def grads_at(function: Callable[..., Op], *points: Any) -> list[list[float]]:
    leaves = [Op(OpCode.LEAF, f64, (buffer(np.shape(p)),), i) for i, p in enumerate(points)]
    result = function(*leaves)
    grads = gradient(result, filled(1, f64, result.shape), leaves)
    values = {leaf.src[0]: np.array(p) for leaf, p in zip(leaves, points)}
    return [array.tolist() for array in evaluate([grads[leaf] for leaf in leaves], values)]


def test_equal_operands_of_max_and_min_get_half_each() -> None:
    for code in (OpCode.MAX, OpCode.MIN):
        assert grads_at(op2(code), [1.0, 2.0], [1.0, 2.0]) == [[0.5, 0.5], [0.5, 0.5]]


def test_equal_elements_of_a_maximum_share_its_gradient() -> None:
    assert grads_at(lambda a: reduce(a, OpCode.MAX, (0,)), [3.0, 1.0, 3.0, 3.0])[0] == [1 / 3, 0.0, 1 / 3, 1 / 3]
    assert grads_at(lambda a: reduce(a, OpCode.MIN, (0,)), [1.0, 1.0, 3.0])[0] == [0.5, 0.5, 0.0]


def test_a_running_maximum_gives_its_gradient_to_the_last_equal_element() -> None:
    assert grads_at(lambda a: scan(a, OpCode.MAX, 0), [1.0, 2.0, 2.0, 1.0])[0] == [1.0, 1.0, 2.0, 0.0]


def test_the_last_of_equal_indices_gets_the_gradient_of_what_is_stored() -> None:
    grads = grads_at(lambda a, u: scatter(a, ints(1, 1), u, None, 0, 0), [1.0, 2.0, 3.0], [4.0, 5.0])
    assert grads == [[1.0, 0.0, 1.0], [0.0, 1.0]]


def test_equal_candidates_of_a_scattered_maximum_share() -> None:
    grads = grads_at(lambda a, u: scatter(a, ints(0, 0), u, OpCode.MAX, 0, 0), [2.0, 9.0], [2.0, 1.0])
    assert grads == [[0.5, 1.0], [0.5, 0.0]]


def test_relu_has_no_gradient_at_zero_and_reads_only_its_result() -> None:
    assert grads_at(relu, [-1.0, 0.0, -0.0, 2.0])[0] == [0.0, 0.0, 0.0, 1.0]
    x = Op(OpCode.LEAF, f64, (buffer((3,)),), 0)
    out = relu(x)
    grad = gradient(out, filled(1, f64, (3,)), [x])[x]
    assert x not in toposort([grad], stop={out})


def test_a_product_with_zeros_has_the_product_of_the_others_as_gradient() -> None:
    assert grads_at(lambda a: reduce(a, OpCode.MUL, (0,)), [2.0, 0.0, 5.0])[0] == [0.0, 10.0, 0.0]
    assert grads_at(lambda a: reduce(a, OpCode.MUL, (0,)), [0.0, 0.0, 5.0])[0] == [0.0, 0.0, 0.0]
    assert grads_at(lambda a: scan(a, OpCode.MUL, 0), [2.0, 0.0, 5.0])[0] == [1.0, 12.0, 0.0]


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 70), (1,)), ((70, 3), (0,)), ((2, 5, 3, 7), (1, 2)), ((4, 3, 11), (0, 2))]
)
def test_the_gradient_of_a_product_is_that_of_the_others(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).uniform(0.8, 1.2, shape)
    x.flat[1] = 0.0
    (found,) = grads_at(lambda a: reduce(a, OpCode.MUL, axes), x)
    others = np.ones(shape)
    for place in np.ndindex(shape):
        ones = x.copy()
        ones[place] = 1.0
        row = tuple(0 if i in axes else place[i] for i in range(len(shape)))
        others[place] = np.prod(ones, axes, keepdims=True)[row]
    np.testing.assert_allclose(found, others, rtol=1e-12)


def test_powers_at_zero_are_as_in_pytorch() -> None:
    power = op2(OpCode.POW)
    base, exponent = grads_at(power, [0.0, 0.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.5, 0.0])
    assert base == [0.0, 1.0, 0.0, np.inf, 0.0]
    assert exponent == [0.0, 0.0, 0.0, 0.0, float(np.log(2.0))]
