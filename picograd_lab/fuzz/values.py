"""Random tensor graphs that are valid, finite, and have a bound on a device's error.

In:    a seed, and the actions that extend a graph
Out:   `Generator`, which makes a `Graph` of `Value`s

A value has bounds on its magnitude and on its error with any order of operations. With small whole numbers as inputs it
is exact (error 0) until a quotient or a function; only exact values are compared, floored, converted to integers or used
as indices, so no error is amplified to a different branch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir import build
from picograd.ir.op import Op, Shape, filled
from picograd.ir.opcode import OpCode
from picograd.record import Record, Struct, field

# ---- values and their bounds ----
Array = np.ndarray[Any, Any]
ULP = {dtype: 2.0 ** (1 - dtype.precision) for dtype in dtypes.ALL if dtype.is_float}
EXACT = {dtypes.float32: 2.0**22, dtypes.float64: 2.0**50, dtypes.float16: 2.0**10, dtypes.bfloat16: 2.0**7}
ADD, MUL, MAX, MIN = OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN


class Value(Record):
    """An Op with its bounds.

    magnitude:   bound on the magnitude
    error:  bound on the absolute error; 0 is exact (whole numbers in a float)
    """

    op: Op
    magnitude: float
    error: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.shape  # type: ignore[return-value]

    @property
    def exact(self) -> bool:
        return self.error == 0


class Graph(Struct):
    """A generated graph: its roots, arrays for its PARAMs, and a bound on the error of each root.

    most_error:  bound on the error of all its values, read or not
    """

    roots: list[Op] = field(default_factory=list)
    arrays: dict[Op, Array] = field(default_factory=dict)
    errors: list[float] = field(default_factory=list)
    most_error: float = 0.0


def rounding(dtype: DType, magnitude: float, exact: bool) -> float:
    """Returns the rounding error of a result of `magnitude`; 0 while whole numbers are represented exactly."""
    if not dtype.is_float or (exact and magnitude <= EXACT[dtype]):
        return 0.0
    return magnitude * ULP[dtype]


def combined(code: OpCode, a: Value, b: Value) -> Value | None:
    """Returns a op b with its bounds."""
    dtype = a.op.dtype
    exact = a.exact and b.exact
    if code is OpCode.MUL:
        magnitude = a.magnitude * b.magnitude
        error = a.error * (b.magnitude + b.error) + b.error * a.magnitude
    elif code in (MAX, MIN):
        magnitude, error = max(a.magnitude, b.magnitude), max(a.error, b.error)
    else:
        magnitude, error = a.magnitude + b.magnitude, a.error + b.error
    if dtype.kind == "b" and code not in (MAX, MIN):
        return None
    return Value(Op(code, dtype, (a.op, b.op)), magnitude, error + rounding(dtype, magnitude, exact))


# ---- a graph, action by action ----
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 20)
INDICES = (dtypes.int64, dtypes.int32, dtypes.uint8)


class Generator:
    """Makes one graph from a seed; equal seeds make equal graphs.

    actions:        actions to draw from
    most_elements:  limit for any value
    dtypes_used:    dtypes of its PARAMs
    is_smooth:      float PARAMs are any numbers, so nothing that depends on them is compared, floored or sorted
    """

    def __init__(
        self, seed: int, actions: tuple[Action, ...], most_elements: int = 600,
        dtypes_used: tuple[DType, ...] = (dtypes.float32,), is_smooth: bool = False,
    ):  # fmt: skip
        self.rng = np.random.default_rng(seed)
        self.actions = actions
        self.most = most_elements
        self.dtypes = dtypes_used
        self.is_smooth = is_smooth
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
        """Adds a number of values, or fewer if no action applies."""
        tries = 0
        while steps > 0 and tries < 400:
            tries += 1
            made = self.pick(self.actions)(self, self.recent())
            if made is not None and self.is_usable(made):
                self.add(made)
                steps -= 1

    def choose_roots(self) -> None:
        """Chooses the last value and some others as roots of the graph; at least one is computed."""
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
        """Returns an earlier value, more likely a late one, so that graphs become deep."""
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
        if value.op.numel > self.most or len(value.shape) > 6 or not np.isfinite(value.magnitude):
            return False
        if value.op.dtype.is_float:
            return value.magnitude <= 1e4 and value.error <= 1e-2 * max(1.0, value.magnitude)
        return True

    # ---- leaves ----
    def param(self, shape: tuple[int, ...], dtype: DType) -> Value:
        """Returns a new PARAM with random elements: small whole numbers, or any numbers in smooth graphs."""
        slot = len(self.graph.arrays)
        op = Op(OpCode.PARAM, dtype, (), (slot, shape))
        if dtype.kind == "b":
            array, magnitude = self.rng.integers(0, 2, shape).astype(np.bool_), 1.0
        elif dtype.is_int:
            low = -9 if dtype.kind == "i" else 0
            array, magnitude = self.rng.integers(low, 10, shape).astype(dtype.numpy), 9.0
        elif self.is_smooth:
            self.graph.arrays[op] = np.asarray(self.rng.uniform(-1.5, 1.5, shape)).astype(dtype.numpy)
            return Value(op, 1.5, ULP[dtype])
        else:
            array, magnitude = self.rng.integers(-4, 5, shape).astype(dtype.numpy), 4.0
        self.graph.arrays[op] = np.asarray(array)
        return Value(op, magnitude, 0.0)

    def index(self, shape: tuple[int, ...], length: int, among: tuple[DType, ...] = INDICES) -> Op:
        """Returns a PARAM of integers below `length`."""
        dtype = self.pick(among)
        op = Op(OpCode.PARAM, dtype, (), (len(self.graph.arrays), shape))
        self.graph.arrays[op] = self.rng.integers(0, length, shape).astype(dtype.numpy)
        return op

    def partner(self, value: Value) -> Value:
        """Returns a value of the shape and dtype of `value`: an earlier one, broadcast as needed, a constant or a PARAM."""
        same = [v for v in self.values if v.shape == value.shape and v.op.dtype is value.op.dtype]
        if same and self.chance(0.6):
            return self.pick(same)
        fitting = [v for v in self.values if v.op.dtype is value.op.dtype and _broadcasts(v.shape, value.shape)]
        if fitting and self.chance(0.6):
            chosen = self.pick(fitting)
            return Value(_broadcast(chosen.op, value.shape), chosen.magnitude, chosen.error)
        if self.chance(0.4):
            number = int(self.rng.integers(0 if value.op.dtype.kind in "bu" else -3, 4))
            number = number % 2 if value.op.dtype.kind == "b" else number
            return Value(filled(number, value.op.dtype, value.shape), abs(number), 0.0)
        shape = tuple(1 if self.chance(0.25) else dim for dim in value.shape)
        made = self.param(shape, value.op.dtype)
        return Value(_broadcast(made.op, value.shape), made.magnitude, made.error)


def _broadcasts(small: Shape, shape: Shape) -> bool:
    padded = (1,) * (len(shape) - len(small)) + tuple(small)
    return len(small) <= len(shape) and all(a in (1, b) for a, b in zip(padded, shape))


def _broadcast(op: Op, shape: Shape) -> Op:
    if op.shape == shape:
        return op
    if op.shape:
        op = build.reshape(op, (1,) * (len(shape) - len(op.shape)) + op.shape)
    return build.expand(op, shape)


Action = Callable[[Generator, Value], Value | None]
