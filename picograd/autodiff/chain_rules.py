"""The derivative table: one row for each kind of Op, from which reverse mode, forward mode and higher orders derive.

In:    Ops
Out:   `chain_rules`

A row gives, for each source, the gradient of that source from the gradient `grad` of the Op `out`. The gradients are
graphs of the same Ops, so they have derivatives by the same table. Extend it: `chain_rules + PatternMatcher([...])`;
a row's action may also be a plain function of `grad` and `out` that returns one gradient (or None) for each source.
"""

from __future__ import annotations

import math

from picograd.autodiff.bodies import (
    attention_reverse,
    call_forward,
    call_reverse,
    composed_forward,
    composed_reverse,
    custom_forward,
    custom_reverse,
    has_custom_gradient,
)
from picograd.autodiff.host import custom_first, custom_second
from picograd.autodiff.loops import loop_forward, loop_reverse
from picograd.autodiff.modes import SeveralResults, elementwise, general, linear, multilinear, passes
from picograd.autodiff.reductions import (
    extreme_lhs,
    extreme_rhs,
    reduce_extreme,
    reduce_product,
    scan_extreme,
    scan_product,
    scatter_extreme_base,
    scatter_extreme_updates,
    scatter_product_base,
    scatter_product_updates,
)
from picograd.autodiff.transposes import (
    cast_transpose,
    conv_w,
    conv_x,
    copy_transpose,
    cumsum_transpose,
    expand_transpose,
    flip_transpose,
    gather_transpose,
    matmul_lhs,
    matmul_rhs,
    pad_transpose,
    permute_transpose,
    reshape_transpose,
    scatter_add_transpose,
    scatter_store_base,
    scatter_store_updates,
    shrink_transpose,
    sum_transpose,
    update_base,
    update_value,
)
from picograd.ir.build import both, cast, equal, less, less_equal, unary, where, zeros_like
from picograd.ir.op import Op, const_value
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import Pattern, PatternMatcher, Rule


# ---- elementwise rows of more than one line ----
def relu_derivative(grad: Op, out: Op) -> Op:
    """d relu(x) = dx where relu(x) > 0: the result decides, so the backward pass keeps only that."""
    return where(less(zeros_like(out), out), grad, zeros_like(grad))


def mod_divisor(grad: Op, out: Op) -> Op:
    """d(a mod b) / db = -q, where a = q b + remainder; floor(a / b), which is rounded, may be another number than q.

    Example: 1 mod 0.1 is 0.0999..., so q is 9, and 1 / 0.1 is 10 exactly.
    """
    base, divisor, rest = (cast(op, out.dtype.compute_dtype) for op in (*out.src, out))
    return -grad * cast(unary(OpCode.FLOOR, (base - rest) / divisor + 0.25), out.dtype)


def pow_constant_base(grad: Op, out: Op) -> Op | None:
    """d(a^c) / da = c a^(c - 1), without a POW where c is 0, 1 or 2."""
    base, exponent = out.src
    value = const_value(exponent)
    assert value is not None
    if value in (0, 1):
        return grad if value == 1 else None
    return grad * ((base if value == 2 else Op(OpCode.POW, out.dtype, (base, exponent.filled(value - 1)))) * value)


def pow_base(grad: Op, out: Op) -> Op:
    """d(a^b) / da = b a^(b - 1); 0 at a = b = 0, where the formula would say 0 / 0."""
    base, exponent = out.src
    zero = zeros_like(base)
    undefined = both(equal(base, zero), equal(exponent, zero))
    lowered = where(undefined, zero, exponent - 1)
    return grad * (exponent * Op(OpCode.POW, out.dtype, (base, lowered)))


def pow_exponent(grad: Op, out: Op) -> Op:
    """d(a^b) / db = a^b log a; 0 at a = 0 and b >= 0, where the formula would say 0 log 0."""
    base, exponent = out.src
    zero = zeros_like(base)
    undefined = both(equal(base, zero), less_equal(zero, exponent))
    return grad * (out * unary(OpCode.LOG, where(undefined, base.filled(1), base)))


# ---- heads of more than an opcode ----
def _along_axes(code: OpCode, operation: OpCode | None) -> Pattern:
    """REDUCE, SCAN or SCATTER with one operation."""
    return Pattern(code, name="out", when=lambda op: op.arg[0] is operation)


_X, _ZERO = Pattern(name="x"), Pattern(value=0)
RELU = Pattern(OpCode.WHERE, (Pattern(OpCode.CMPLE, (_X, _ZERO)), _ZERO, _X), name="out")
POW_CONSTANT = Pattern(OpCode.POW, name="out", when=lambda op: const_value(op.src[1]) is not None)

LN2 = math.log(2.0)
ERF_SLOPE = 2.0 / math.sqrt(math.pi)

chain_rules = PatternMatcher(
    [
        # ---- arithmetic ----
        # d(a + b) = da + db              d(a - b) = da - db             d(-a) = -da
        elementwise("add", OpCode.ADD, passes, passes),
        elementwise("sub", OpCode.SUB, passes, lambda grad, out: -grad),
        elementwise("neg", OpCode.NEG, lambda grad, out: -grad),
        # d(a b) = b da + a db
        elementwise("mul", OpCode.MUL, lambda grad, out: grad * out.src[1], lambda grad, out: grad * out.src[0]),
        # d(a / b) = da / b - (a / b) db / b
        elementwise("div", OpCode.DIV, lambda grad, out: grad / out.src[1], lambda grad, out: -grad * (out / out.src[1])),
        # d(a b + c) = b da + a db + dc
        elementwise("fma", OpCode.FMA, lambda grad, out: grad * out.src[1], lambda grad, out: grad * out.src[0], passes),
        # d(a mod b) = da - q db with a = q b + a mod b
        elementwise("mod", OpCode.MOD, passes, mod_divisor),
        # d(a^c) = c a^(c - 1) da         d(a^b) = b a^(b - 1) da + a^b log(a) db
        elementwise("pow constant", POW_CONSTANT, pow_constant_base, None),
        elementwise("pow", OpCode.POW, pow_base, pow_exponent),
        # ---- functions of one operand ----
        # d(1 / a) = -(1 / a)^2 da        d sqrt(a) = da / (2 sqrt(a))   d floor(a) = 0
        elementwise("reciprocal", OpCode.RECIPROCAL, lambda grad, out: -grad * (out * out)),
        elementwise("sqrt", OpCode.SQRT, lambda grad, out: grad / (out * 2)),
        elementwise("floor", OpCode.FLOOR, None),
        # d e^a = e^a da                  d 2^a = ln2 2^a da             d log(a) = da / a      d log2(a) = da / (a ln2)
        elementwise("exp", OpCode.EXP, lambda grad, out: grad * out),
        elementwise("exp2", OpCode.EXP2, lambda grad, out: grad * (out * LN2)),
        elementwise("log", OpCode.LOG, lambda grad, out: grad / out.src[0]),
        elementwise("log2", OpCode.LOG2, lambda grad, out: grad / (out.src[0] * LN2)),
        # d sin(a) = cos(a) da            d cos(a) = -sin(a) da
        elementwise("sin", OpCode.SIN, lambda grad, out: grad * unary(OpCode.COS, out.src[0])),
        elementwise("cos", OpCode.COS, lambda grad, out: -grad * unary(OpCode.SIN, out.src[0])),
        # d tanh(a) = (1 - tanh(a)^2) da  d erf(a) = 2 / sqrt(pi) e^(-a^2) da
        elementwise("tanh", OpCode.TANH, lambda grad, out: grad * (out.filled(1) - out * out)),
        elementwise(
            "erf",
            OpCode.ERF,
            lambda grad, out: grad * (unary(OpCode.EXP, -out.src[0] * out.src[0]) * ERF_SLOPE),
        ),
        # ---- choices ----
        # d max(a, b) = da where a > b, db where a < b, half of each where a = b
        elementwise("max", OpCode.MAX, extreme_lhs, extreme_rhs),
        elementwise("min", OpCode.MIN, extreme_lhs, extreme_rhs),
        # relu: where(x <= 0, 0, x)
        elementwise("relu", RELU, None, None, relu_derivative),
        # d where(c, a, b) = where(c, da, db)
        linear(
            "where",
            OpCode.WHERE,
            None,
            lambda grad, out: where(out.src[0], grad, zeros_like(grad)),
            lambda grad, out: where(out.src[0], zeros_like(grad), grad),
        ),
        # ---- identity with a meaning ----
        elementwise("leaf", OpCode.LEAF, passes),
        elementwise("detach", OpCode.DETACH, None),
        elementwise("contiguous", OpCode.CONTIGUOUS, passes),
        linear("cast", OpCode.CAST, cast_transpose),
        linear("copy", OpCode.COPY, copy_transpose),
        # ---- movement: <A x, y> = <x, A^T y> ----
        linear("reshape", OpCode.RESHAPE, reshape_transpose),
        linear("permute", OpCode.PERMUTE, permute_transpose),
        linear("expand", OpCode.EXPAND, expand_transpose),
        linear("pad", OpCode.PAD, pad_transpose),
        linear("shrink", OpCode.SHRINK, shrink_transpose),
        linear("flip", OpCode.FLIP, flip_transpose),
        # ---- along axes ----
        linear("reduce add", _along_axes(OpCode.REDUCE, OpCode.ADD), sum_transpose),
        general("reduce mul", _along_axes(OpCode.REDUCE, OpCode.MUL), reduce_product),
        general("reduce max", _along_axes(OpCode.REDUCE, OpCode.MAX), reduce_extreme),
        general("reduce min", _along_axes(OpCode.REDUCE, OpCode.MIN), reduce_extreme),
        linear("scan add", _along_axes(OpCode.SCAN, OpCode.ADD), cumsum_transpose),
        general("scan mul", _along_axes(OpCode.SCAN, OpCode.MUL), scan_product),
        general("scan max", _along_axes(OpCode.SCAN, OpCode.MAX), scan_extreme),
        general("scan min", _along_axes(OpCode.SCAN, OpCode.MIN), scan_extreme),
        linear("gather", OpCode.GATHER, gather_transpose, None),
        linear("scatter add", _along_axes(OpCode.SCATTER, OpCode.ADD), passes, None, scatter_add_transpose),
        linear("scatter store", _along_axes(OpCode.SCATTER, None), scatter_store_base, None, scatter_store_updates),
        general(
            "scatter mul", _along_axes(OpCode.SCATTER, OpCode.MUL), scatter_product_base, None, scatter_product_updates
        ),
        general(
            "scatter max", _along_axes(OpCode.SCATTER, OpCode.MAX), scatter_extreme_base, None, scatter_extreme_updates
        ),
        general(
            "scatter min", _along_axes(OpCode.SCATTER, OpCode.MIN), scatter_extreme_base, None, scatter_extreme_updates
        ),
        linear("update", OpCode.UPDATE, update_base, update_value),
        # ---- contractions ----
        # d(a b) = da b + a db
        multilinear("matmul", OpCode.MATMUL, matmul_lhs, matmul_rhs),
        multilinear("conv", OpCode.CONV, conv_x, conv_w),
        # ---- functions of the host, each with a row of its own in autodiff/host.py ----
        general("custom", OpCode.CUSTOM, custom_first, custom_second),
        # ---- several results ----
        Rule("attention", Pattern(OpCode.ATTENTION), SeveralResults(attention_reverse, composed_forward)),
        Rule("attention grad", Pattern(OpCode.ATTENTION_GRAD), SeveralResults(composed_reverse, composed_forward)),
        Rule("written", Pattern(OpCode.CALL, when=has_custom_gradient), SeveralResults(custom_reverse, custom_forward)),
        Rule("call", Pattern(OpCode.CALL), SeveralResults(call_reverse, call_forward)),
        Rule("loop", Pattern(OpCode.LOOP), SeveralResults(loop_reverse, loop_forward)),
    ]
)
