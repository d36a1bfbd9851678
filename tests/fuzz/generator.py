"""Random tensor graphs that are valid, finite, and come with a bound on the error a device may make.

Every value carries `size`, a bound on its magnitude, and `error`, a bound on what any order of float operations may
add to it. With small whole numbers as inputs a value stays exact (error 0) until it meets a quotient or a function;
only exact values are compared, floored, converted to integers or used as indices, so no error is ever amplified to a
different branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir import build
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode

ULP = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52, dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7}
EXACT = {dtypes.float32: 2.0**22, dtypes.float64: 2.0**50, dtypes.float16: 2.0**10, dtypes.bfloat16: 2.0**7}
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 20)
ADD, MUL, MAX, MIN = OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN
FUNCTIONS = {  # opcode -> (bound on the magnitude of the result, bound on the derivative) where |x| <= 4
    OpCode.EXP: (55.0, 55.0), OpCode.EXP2: (16.0, 12.0), OpCode.SIN: (1.0, 1.0), OpCode.COS: (1.0, 1.0),
    OpCode.TANH: (1.0, 1.0), OpCode.ERF: (1.0, 1.2),
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """An Op with what is known of it.

    size:   bound on the magnitude
    error:  bound on the absolute error; 0 is exact (whole numbers in a float)
    """

    op: Op
    size: float
    error: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.shape  # type: ignore[return-value]

    @property
    def exact(self) -> bool:
        return self.error == 0


@dataclass
class Graph:
    """A generated graph: its roots, arrays for its PARAMs, and a bound on the error of each root.

    most_error:  bound on the error of any value in it, read or not
    """

    roots: list[Op] = field(default_factory=list)
    arrays: dict[Op, np.ndarray[Any, Any]] = field(default_factory=dict)
    errors: list[float] = field(default_factory=list)
    most_error: float = 0.0


class Generator:
    """Makes one graph from a seed; the same seed makes the same graph."""

    def __init__(
        self, seed: int, most_elements: int = 600, dtypes_used: tuple[DType, ...] = (dtypes.float32,),
        actions: tuple[Action, ...] | None = None,
    ):  # fmt: skip
        self.rng = np.random.default_rng(seed)
        self.most = most_elements
        self.dtypes = dtypes_used
        self.actions = actions or ACTIONS
        self.graph = Graph()
        self.values: list[Value] = []

    def make(self, steps: int) -> Graph:
        """Returns a graph of about `steps` operations."""
        for _ in range(int(self.rng.integers(1, 4))):
            self.add(self.param(self.random_shape(), self.pick(self.dtypes)))
        self.grow(steps)
        self.choose_roots()
        return self.graph

    def grow(self, steps: int) -> None:
        """Adds that many values, or fewer where nothing applies."""
        tries = 0
        while steps > 0 and tries < 400:
            tries += 1
            made = self.pick(self.actions)(self, self.recent())
            if made is not None and self.is_usable(made):
                self.add(made)
                steps -= 1

    def choose_roots(self) -> None:
        chosen = [self.values[-1]]
        chosen += [self.pick(self.values) for _ in range(int(self.rng.integers(0, 4)))]
        for value in dict.fromkeys(chosen):
            if value.op.code is not OpCode.PARAM:
                self.graph.roots.append(value.op)
                self.graph.errors.append(value.error)
        if not self.graph.roots:
            op = self.values[-1].op
            self.graph.roots.append(Op(OpCode.CONTIGUOUS, op.dtype, (op,)))
            self.graph.errors.append(0.0)

    # ---- choosing ----
    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def recent(self) -> Value:
        """A value made before, rather a late one: graphs become deep."""
        n = len(self.values)
        return self.values[n - 1 - min(n - 1, int(self.rng.geometric(0.35)) - 1)]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def random_shape(self, most: int | None = None) -> tuple[int, ...]:
        rank = int(self.rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]))
        shape: list[int] = []
        for _ in range(rank):
            length = int(self.pick(LENGTHS)) if not self.chance(0.01) else 0
            shape.append(length if int(np.prod([*shape, length])) <= (most or self.most) else 1)
        return tuple(shape)

    def add(self, value: Value) -> None:
        self.values.append(value)
        self.graph.most_error = max(self.graph.most_error, value.error)

    def is_usable(self, value: Value) -> bool:
        if value.op.numel > self.most or len(value.shape) > 6 or not np.isfinite(value.size):
            return False
        if value.op.dtype.is_float:
            return value.size <= 1e4 and value.error <= 1e-2 * max(1.0, value.size)
        return True

    # ---- leaves ----
    def param(self, shape: tuple[int, ...], dtype: DType) -> Value:
        slot = len(self.graph.arrays)
        op = Op(OpCode.PARAM, dtype, (), (slot, shape))
        if dtype.kind == "b":
            array, size = self.rng.integers(0, 2, shape).astype(np.bool_), 1.0
        elif dtype.is_int:
            low = -9 if dtype.kind == "i" else 0
            array, size = self.rng.integers(low, 10, shape).astype(dtype.numpy), 9.0
        else:
            array, size = self.rng.integers(-4, 5, shape).astype(dtype.numpy), 4.0
        self.graph.arrays[op] = np.asarray(array)
        return Value(op, size, 0.0)

    def index(self, shape: tuple[int, ...], length: int) -> Op:
        """A PARAM of integers below `length`."""
        dtype = self.pick((dtypes.int64, dtypes.int32, dtypes.uint8))
        op = Op(OpCode.PARAM, dtype, (), (len(self.graph.arrays), shape))
        self.graph.arrays[op] = self.rng.integers(0, length, shape).astype(dtype.numpy)
        return op

    def partner(self, value: Value) -> Value:
        """A value of the shape and dtype of `value`: one made before, repeated where needed, a constant or a PARAM."""
        same = [v for v in self.values if v.shape == value.shape and v.op.dtype is value.op.dtype]
        if same and self.chance(0.6):
            return self.pick(same)  # type: ignore[no-any-return]
        fitting = [v for v in self.values if v.op.dtype is value.op.dtype and _broadcasts(v.shape, value.shape)]
        if fitting and self.chance(0.6):
            chosen = self.pick(fitting)
            return Value(_broadcast(chosen.op, value.shape), chosen.size, chosen.error)
        if self.chance(0.4):
            number = int(self.rng.integers(0 if value.op.dtype.kind in "bu" else -3, 4))
            number = number % 2 if value.op.dtype.kind == "b" else number
            return Value(filled(number, value.op.dtype, value.shape), abs(number), 0.0)
        shape = tuple(1 if self.chance(0.25) else dim for dim in value.shape)
        made = self.param(shape, value.op.dtype)
        return Value(_broadcast(made.op, value.shape), made.size, made.error)

    def rounding(self, dtype: DType, size: float, exact: bool) -> float:
        """The error of rounding a result of magnitude `size`: none while whole numbers fit."""
        if not dtype.is_float or (exact and size <= EXACT[dtype]):
            return 0.0
        return size * ULP[dtype]


def _broadcasts(small: Shape, shape: Shape) -> bool:
    padded = (1,) * (len(shape) - len(small)) + tuple(small)
    return len(small) <= len(shape) and all(a in (1, b) for a, b in zip(padded, shape))


def _broadcast(op: Op, shape: Shape) -> Op:
    if op.shape == shape:
        return op
    if op.shape:
        op = build.reshape(op, (1,) * (len(shape) - len(op.shape)) + op.shape)
    return build.expand(op, shape)


def combined(g: Generator, code: OpCode, a: Value, b: Value) -> Value | None:
    """Returns a op b with its bounds."""
    dtype = a.op.dtype
    exact = a.exact and b.exact
    if code is OpCode.MUL:
        size = a.size * b.size
        error = a.error * (b.size + b.error) + b.error * a.size
    elif code in (MAX, MIN):
        size, error = max(a.size, b.size), max(a.error, b.error)
    else:
        size, error = a.size + b.size, a.error + b.error
    if dtype.kind == "b" and code not in (MAX, MIN):
        return None
    return Value(Op(code, dtype, (a.op, b.op)), size, error + g.rounding(dtype, size, exact))


# ---- actions: (generator, a value) -> a new value, or None where it does not apply ----
def binary(g: Generator, v: Value) -> Value | None:
    other = g.partner(v)
    a, b = (v, other) if g.chance(0.5) else (other, v)
    return combined(g, g.pick((ADD, ADD, OpCode.SUB, MUL, MUL, MAX, MIN)), a, b)


def divide(g: Generator, v: Value) -> Value | None:
    """v / (w * w + 2), whose denominator is at least 2."""
    if v.op.dtype is not dtypes.float32 and v.op.dtype is not dtypes.float64:
        return None
    w = g.partner(v)
    if w.size > 100:
        return None
    square = combined(g, MUL, w, w)
    assert square is not None
    below = combined(g, ADD, square, Value(filled(2.0, v.op.dtype, v.shape), 2.0, 0.0))
    assert below is not None
    error = v.error / 2 + v.size * below.error / 4 + v.size * ULP[v.op.dtype]
    return Value(v.op / below.op, v.size / 2, error)


def integer_divide(g: Generator, v: Value) -> Value | None:
    if not v.op.dtype.is_int:
        return None
    code = g.pick((OpCode.IDIV, OpCode.MOD))
    if g.chance(0.5):
        low = -5 if v.op.dtype.kind == "i" else 1
        return Value(Op(code, v.op.dtype, (v.op, filled(int(g.rng.integers(low, 9)), v.op.dtype, v.shape))), v.size, 0)
    return Value(Op(code, v.op.dtype, (v.op, g.partner(v).op)), v.size, 0.0)


def bits(g: Generator, v: Value) -> Value | None:
    if v.op.dtype.kind not in "biu":
        return None
    if v.op.dtype.is_int and g.chance(0.4):
        code = g.pick((OpCode.SHL, OpCode.SHR))
        return Value(Op(code, v.op.dtype, (v.op, filled(int(g.rng.integers(0, 9)), v.op.dtype, v.shape))), 2e9, 0.0)
    code = g.pick((OpCode.AND, OpCode.OR, OpCode.XOR))
    return Value(Op(code, v.op.dtype, (v.op, g.partner(v).op)), 2e9, 0.0)


def unary(g: Generator, v: Value) -> Value | None:
    dtype = v.op.dtype
    if dtype.kind == "b":
        return None
    if g.chance(0.5) or dtype not in (dtypes.float32, dtypes.float64):
        return Value(-v.op, v.size, v.error)
    if v.exact and g.chance(0.5):
        halves = v.op * 0.5
        return Value(Op(OpCode.FLOOR, dtype, (halves,)), v.size / 2 + 1, 0.0)
    if v.size > 4 or dtype is dtypes.float64:
        return None
    code = g.pick(tuple(FUNCTIONS))
    size, slope = FUNCTIONS[code]
    # erf is within 1.5e-7 (Abramowitz and Stegun 7.1.26), the others within 4 ulp of their greatest value
    own = max(4 * ULP[dtype], 5e-7) * size
    return Value(build.unary(code, v.op), size, v.error * slope * 1.1 + own)


def root(g: Generator, v: Value) -> Value | None:
    """sqrt or log of v * v + 1."""
    if v.op.dtype is not dtypes.float32 or v.size > 100:
        return None
    square = combined(g, MUL, v, v)
    assert square is not None
    above = combined(g, ADD, square, Value(filled(1.0, v.op.dtype, v.shape), 1.0, 0.0))
    assert above is not None
    code = g.pick((OpCode.SQRT, OpCode.LOG, OpCode.LOG2, OpCode.RECIPROCAL))
    return Value(build.unary(code, above.op), max(1.0, v.size + 4), above.error * 1.5 + 20 * ULP[v.op.dtype])


def choose(g: Generator, v: Value) -> Value | None:
    if not v.exact:
        return None
    code = g.pick((OpCode.CMPLT, OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE))
    other = g.partner(v)
    if not other.exact:
        return None
    condition = build.compare(code, v.op, other.op)
    if g.chance(0.3):
        return Value(condition, 1.0, 0.0)
    a = g.pick([w for w in g.values if w.shape == v.shape])
    b = g.partner(a)
    return Value(build.where(condition, a.op, b.op), max(a.size, b.size), max(a.error, b.error))


def convert(g: Generator, v: Value) -> Value | None:
    target = g.pick((*g.dtypes, dtypes.float32))
    if not v.exact and (target.kind != "f" or (target.itemsize < 4)):
        return None
    if target.is_float and v.size > EXACT[target]:
        return None
    if target.is_int and v.op.dtype.is_float and (target.kind == "u" or v.size > 120):
        return None
    error = v.error + (v.size * ULP[target] if target.is_float and not v.exact else 0.0)
    return Value(build.cast(v.op, target), max(1.0, v.size) if target.is_float else 2e9 * (target.bits > 8) + 255, error)


# ---- movement ----
def move(g: Generator, v: Value) -> Value | None:
    return Value(moved(g, v.op), v.size, v.error)


def moved(g: Generator, op: Op) -> Op:
    shape = [int(dim) for dim in op.shape]  # type: ignore[arg-type]
    kind = g.pick(("reshape", "reshape", "permute", "permute", "expand", "pad", "shrink", "flip"))
    if kind == "reshape":
        return build.reshape(op, reshaped(g, shape))
    if not shape:
        return build.expand(op, (int(g.pick(LENGTHS)),))
    if kind == "permute":
        return build.permute(op, tuple(int(a) for a in g.rng.permutation(len(shape))))
    if kind == "expand":
        return build.expand(op, tuple(int(g.pick(LENGTHS)) if dim == 1 else dim for dim in shape))
    if kind == "pad":
        return build.pad(op, tuple((int(g.rng.integers(0, 3)), int(g.rng.integers(0, 3))) for _ in shape))
    if kind == "shrink":
        bounds = []
        for dim in shape:
            start = int(g.rng.integers(0, dim + 1)) if g.chance(0.5) else 0
            stop = int(g.rng.integers(start, dim + 1)) if g.chance(0.5) else dim
            bounds.append((start, stop) if stop > start or g.chance(0.02) else (0, dim))
        return build.shrink(op, tuple(bounds))
    return build.flip(op, tuple(a for a in range(len(shape)) if g.chance(0.5)))


def reshaped(g: Generator, shape: list[int]) -> tuple[int, ...]:
    """Merges neighbours, splits a length, or puts in and takes out axes of length 1."""
    new = list(shape)
    for _ in range(int(g.rng.integers(1, 4))):
        at = int(g.rng.integers(0, len(new) + 1))
        kind = g.pick(("one", "merge", "split", "drop"))
        if kind == "one" and len(new) < 5:
            new.insert(at, 1)
        elif kind == "merge" and at + 1 < len(new):
            new[at : at + 2] = [new[at] * new[at + 1]]
        elif kind == "split" and at < len(new) and len(new) < 5:
            factors = [f for f in range(2, new[at]) if new[at] % f == 0]
            if factors:
                factor = int(g.pick(factors))
                new[at : at + 1] = [new[at] // factor, factor]
        elif kind == "drop" and at < len(new) and new[at] == 1:
            del new[at]
    return tuple(new)


# ---- along axes ----
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
    if not v.shape:
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    code = g.pick((ADD, ADD, ADD, MAX, MIN, MUL))
    if code in (MAX, MIN) and count == 0:
        return None
    if code is MUL and v.op.dtype.is_float and (v.size > 4 or count > 3):
        return None
    if code is ADD:
        size, error = v.size * count, v.error * count
        error += 0.0 if v.exact and size <= EXACT.get(v.op.dtype, 1) else size * count * ULP.get(v.op.dtype, 0.0)
    elif code is MUL and v.op.dtype.is_float:
        size = max(1.0, v.size) ** count
        error = 0.0 if v.exact else count * size * (v.error + ULP.get(v.op.dtype, 0.0))
    else:
        size, error = v.size, v.error
    if v.op.dtype.is_int:
        size, error = 2e9, 0.0
    op = build.reduce(v.op, code, axes)
    if g.chance(0.6):
        op = build.reshape(op, tuple(1 if a in axes else dim for a, dim in enumerate(v.shape)))
    return Value(op, size, error)


def normalise(g: Generator, v: Value) -> Value | None:
    """A reduction along axes, brought back to every element and combined with it: what softmax and norms do."""
    if not v.shape or v.op.dtype.kind == "b":
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    code = g.pick((ADD, MAX, MIN))
    if count == 0:
        return None
    size = v.size * (count if code is ADD else 1)
    exact = v.exact and size <= EXACT.get(v.op.dtype, 1e9)
    error = v.error * (count if code is ADD else 1)
    error += 0.0 if exact or code is not ADD else size * count * ULP.get(v.op.dtype, 0.0)
    row = build.repeat_axes(build.reduce(v.op, code, axes), axes, v.shape)
    return combined(g, g.pick((ADD, OpCode.SUB, MAX, MUL)), v, Value(row, size, error))


def softmax(g: Generator, v: Value) -> Value | None:
    """exp(x - max) / sum: three levels over the same rows."""
    if v.op.dtype is not dtypes.float32 or not v.shape or v.size > 30 or 0 in v.shape:
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    top = build.repeat_axes(build.reduce(v.op, MAX, axes), axes, v.shape)
    e = build.unary(OpCode.EXP, v.op - top)
    total = build.repeat_axes(build.reduce(e, ADD, axes), axes, v.shape)
    return Value(e / total, 1.0, (4 * v.error + 16 * ULP[v.op.dtype] * (1 + v.size)) * 2 + count * ULP[v.op.dtype])


def scan(g: Generator, v: Value) -> Value | None:
    if not v.shape:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    count = int(v.shape[axis])  # type: ignore[arg-type]
    code = g.pick((ADD, ADD, MAX, MIN))
    size, error = (v.size * count, v.error * count) if code is ADD else (v.size, v.error)
    if code is ADD and v.op.dtype.is_float and not (v.exact and size <= EXACT[v.op.dtype]):
        error += size * count * ULP[v.op.dtype]
    if v.op.dtype.is_int:
        size, error = 2e9, 0.0
    return Value(build.scan(v.op, code, axis), size, error)


def sort(g: Generator, v: Value) -> Value | None:
    """The order of exact values: of others an error within bounds could change it."""
    if not v.shape or not v.exact:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    op = Op(OpCode.SORT, dtypes.int64, (v.op,), (axis, g.chance(0.5)))
    return Value(op, float(v.shape[axis]), 0.0)  # type: ignore[arg-type]


# ---- contractions and indexing ----
def matmul(g: Generator, v: Value) -> Value | None:
    if len(v.shape) < 2 or v.op.dtype.kind == "b":
        return None
    *batch, _, k = v.shape
    others = [
        w for w in g.values
        if w.op.dtype is v.op.dtype and len(w.shape) == len(v.shape) and w.shape[:-1] == (*batch, k)
    ]  # fmt: skip
    swapped = [
        w for w in g.values
        if w.op.dtype is v.op.dtype and len(w.shape) == len(v.shape) and (*w.shape[:-2], w.shape[-1]) == (*batch, k)
    ]  # fmt: skip
    if others and g.chance(0.5):
        b = g.pick(others)
    elif swapped and g.chance(0.6):
        w = g.pick(swapped)
        b = Value(build.swap_last(w.op), w.size, w.error)
    else:
        b = g.param((*batch, k, int(g.pick(LENGTHS))), v.op.dtype)
    size = v.size * b.size * k
    exact = v.exact and b.exact and size <= EXACT.get(v.op.dtype, 1)
    error = k * (v.error * (b.size + b.error) + b.error * v.size)
    error += 0.0 if exact or not v.op.dtype.is_float else size * k * ULP[v.op.dtype]
    size, error = (2e9, 0.0) if v.op.dtype.is_int else (size, error)
    return Value(Op(OpCode.MATMUL, v.op.dtype, (v.op, b.op)), size, error)


def gather(g: Generator, v: Value) -> Value | None:
    if not v.shape:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    batch = int(g.rng.integers(0, axis + 1)) if g.chance(0.5) else 0
    if v.shape[axis] == 0:
        return None
    shape = (*v.shape[:batch], *g.random_shape(20)[:2])
    return Value(build.gather(v.op, g.index(shape, v.shape[axis]), axis, batch), v.size, v.error)


def scatter(g: Generator, v: Value) -> Value | None:
    if not v.shape:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    batch = int(g.rng.integers(0, axis + 1)) if g.chance(0.5) else 0
    if v.shape[axis] == 0:
        return None
    index = g.index((*v.shape[:batch], *g.random_shape(12)[:2]), v.shape[axis])
    shape = (*v.shape[:axis], *index.shape[batch:], *v.shape[axis + 1 :])
    updates = g.param(tuple(int(dim) for dim in shape), v.op.dtype)  # type: ignore[arg-type]
    fitting = [w for w in g.values if w.shape == shape and w.op.dtype is v.op.dtype]
    if fitting and g.chance(0.5):
        updates = g.pick(fitting)
    code = g.pick((None, ADD, ADD, MAX, MIN))
    count = index.numel
    size, error = max(v.size, updates.size), max(v.error, updates.error)
    if code is ADD and v.op.dtype.kind != "b":
        size = v.size + updates.size * count
        error = v.error + updates.error * count
        exact = v.exact and updates.exact and size <= EXACT.get(v.op.dtype, 1e9)
        error += 0.0 if exact or not v.op.dtype.is_float else size * count * ULP[v.op.dtype]
    return Value(build.scatter(v.op, index, updates.op, code, axis, batch), size, error)


def store(g: Generator, v: Value) -> Value | None:
    return Value(Op(OpCode.CONTIGUOUS, v.op.dtype, (v.op,)), v.size, v.error)


def positions(g: Generator, v: Value) -> Value | None:
    """Adds the position along an axis."""
    if not v.shape or v.op.dtype.kind == "b":
        return None
    axis = int(g.rng.integers(len(v.shape)))
    count = build.cast(build.positions(v.shape, axis), v.op.dtype)
    return combined(g, ADD, v, Value(count, float(v.shape[axis]), 0.0))


Action = Callable[[Generator, Value], Value | None]
ACTIONS: tuple[Action, ...] = (
    binary, binary, binary, binary, divide, integer_divide, bits, unary, root, choose, convert, move, move, move, move,
    reduce, reduce, reduce, normalise, normalise, softmax, matmul, matmul, gather, scatter, scan, sort, store, positions,
)  # fmt: skip
