"""Random reductions, normalisations, scans and sorts, with bounds.

In:    a Generator and a value it has made
Out:   a new value, or None where the operation does not apply
Next:  picograd/tools/fuzz/contractions.py
"""

from __future__ import annotations

import numpy as np

from picograd import dtype as dtypes
from picograd.ir import build
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tools.fuzz.generator import Action, Generator
from picograd.tools.fuzz.values import ADD, EXACT, MAX, MIN, MUL, ULP, Value, combined


def random_axes(g: Generator, rank: int) -> tuple[int, ...]:
    kind = g.pick(("last", "first", "all", "some", "some"))
    if kind == "last":
        return (rank - 1,)
    if kind == "first":
        return (0,)
    if kind == "all":
        return tuple(range(rank))
    chosen = tuple(a for a in range(rank) if g.chance(0.5))
    return chosen or (int(g.rng.integers(rank)),)


def reduce(g: Generator, v: Value) -> Value | None:
    """Reduces some axes, perhaps kept with length 1."""
    if not v.shape:
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    code = g.pick((ADD, ADD, ADD, MAX, MIN, MUL))
    if code in (MAX, MIN) and count == 0:
        return None
    if code is MUL and v.op.dtype.is_float and (v.magnitude > 4 or count > 3):
        return None
    if code is ADD:
        magnitude, error = v.magnitude * count, v.error * count
        error += 0.0 if v.exact and magnitude <= EXACT.get(v.op.dtype, 1) else magnitude * count * ULP.get(v.op.dtype, 0.0)
    elif code is MUL and v.op.dtype.is_float:
        magnitude = max(1.0, v.magnitude) ** count
        error = 0.0 if v.exact else count * magnitude * (v.error + ULP.get(v.op.dtype, 0.0))
    else:
        magnitude, error = v.magnitude, v.error
    if v.op.dtype.is_int:
        magnitude, error = 2e9, 0.0
    op = build.reduce(v.op, code, axes)
    if g.chance(0.6):
        op = build.reshape(op, tuple(1 if a in axes else dim for a, dim in enumerate(v.shape)))
    return Value(op, magnitude, error)


def normalise(g: Generator, v: Value) -> Value | None:
    """A reduction along axes, brought back to every element and combined with it: what softmax and norms do."""
    if not v.shape or v.op.dtype.kind == "b":
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    code = g.pick((ADD, MAX, MIN))
    if count == 0:
        return None
    magnitude = v.magnitude * (count if code is ADD else 1)
    exact = v.exact and magnitude <= EXACT.get(v.op.dtype, 1e9)
    error = v.error * (count if code is ADD else 1)
    error += 0.0 if exact or code is not ADD else magnitude * count * ULP.get(v.op.dtype, 0.0)
    row = build.repeat_axes(build.reduce(v.op, code, axes), axes, v.shape)
    return combined(g.pick((ADD, OpCode.SUB, MAX, MUL)), v, Value(row, magnitude, error))


def softmax(g: Generator, v: Value) -> Value | None:
    """exp(x - max) / sum: three levels over the same rows."""
    if v.op.dtype not in (dtypes.float32, dtypes.float64) or not v.shape or v.magnitude > 30 or 0 in v.shape:
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    top = build.repeat_axes(build.reduce(v.op, MAX, axes), axes, v.shape)
    e = build.unary(OpCode.EXP, v.op - top)
    total = build.repeat_axes(build.reduce(e, ADD, axes), axes, v.shape)
    return Value(e / total, 1.0, (4 * v.error + 16 * ULP[v.op.dtype] * (1 + v.magnitude)) * 2 + count * ULP[v.op.dtype])


def scan(g: Generator, v: Value) -> Value | None:
    """Takes a running sum or extreme along an axis."""
    if not v.shape:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    count = int(v.shape[axis])
    code = g.pick((ADD, ADD, MAX, MIN))
    magnitude, error = (v.magnitude * count, v.error * count) if code is ADD else (v.magnitude, v.error)
    if code is ADD and v.op.dtype.is_float and not (v.exact and magnitude <= EXACT[v.op.dtype]):
        error += magnitude * count * ULP[v.op.dtype]
    if v.op.dtype.is_int:
        magnitude, error = 2e9, 0.0
    return Value(build.scan(v.op, code, axis), magnitude, error)


def sort(g: Generator, v: Value) -> Value | None:
    """The order of exact values: of others an error within bounds could change it."""
    if not v.shape or not v.exact:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    op = Op(OpCode.SORT, dtypes.int64, (v.op,), (axis, g.chance(0.5)))
    return Value(op, float(v.shape[axis]), 0.0)


AXES: tuple[Action, ...] = (reduce, reduce, reduce, normalise, normalise, softmax, scan, sort)
