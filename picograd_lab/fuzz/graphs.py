"""A random graph for every seed, with loops and calls whose bodies are random graphs.

In:    a seed
Out:   `Graph`

The bounds of a body hold at every step: a loop's carries are exact and stay within their initial bounds, so nothing grows
from step to step; its rows may be anything. Values of the enclosing graph are sources that stay constant.
"""

from __future__ import annotations

import math

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.bodies import param, substitute
from picograd.ir.op import Op, filled, toposort
from picograd.ir.opcode import OpCode
from picograd_lab.fuzz.operations import AXES, CONTRACTIONS, ELEMENTWISE, MOVEMENT, matmul
from picograd_lab.fuzz.values import INDICES, Action, Generator, Graph, Value

# ---- bodies of loops and calls ----
FIXED, ROWS = 1000, 2000  # first slots of a body: constant sources, rows of stacked inputs
ANY_INTEGER = 2e19
MOST_DEEP = 2
PLAIN: tuple[Action, ...] = (*ELEMENTWISE, *MOVEMENT, *AXES, *CONTRACTIONS)


class Inside(Generator):
    """A Generator of a body; the body's PARAMs are also PARAMs of the enclosing graph.

    carries, fixed, rows:  the sources' values outside
    """

    def __init__(self, outer: Generator):
        self.outer = outer
        self.depth: int = outer.depth + 1 if isinstance(outer, Inside) else 1
        self.rng, self.dtypes, self.most, self.is_smooth = outer.rng, outer.dtypes, outer.most // 2, outer.is_smooth
        self.actions = WITH_BODIES if self.depth < MOST_DEEP else PLAIN
        self.graph, self.values = Graph(), []
        self.carries: list[Op] = []
        self.fixed: list[Op] = []
        self.rows: list[Op] = []

    def add(self, value: Value) -> None:
        super().add(value)
        self.outer.graph.most_error = max(self.outer.graph.most_error, self.graph.most_error)

    def carry(self, value: Value) -> None:
        stand = Op(OpCode.PARAM, value.op.dtype, (), (len(self.carries), value.shape))
        self.carries.append(value.op)
        self.add(Value(stand, _within(value), value.error))

    def row(self, value: Value) -> None:
        stand = Op(OpCode.PARAM, value.op.dtype, (), (ROWS + len(self.rows), value.shape[1:]))
        self.rows.append(value.op)
        self.add(Value(stand, value.magnitude, value.error))

    def same(self, value: Value) -> Value:
        stand = Op(OpCode.PARAM, value.op.dtype, (), (FIXED + len(self.fixed), value.shape))
        self.fixed.append(value.op)
        return Value(stand, value.magnitude, value.error)

    def param(self, shape: tuple[int, ...], dtype: DType) -> Value:
        return self.same(self.outer.param(shape, dtype))

    def index(self, shape: tuple[int, ...], length: int, among: tuple[DType, ...] = INDICES) -> Op:
        return self.same(Value(self.outer.index(shape, length, among), length, 0.0)).op

    def next_carry(self, number: int) -> Op:
        """Returns an exact value that fits the carry of this number, within its bound."""
        before = self.values[number]
        dtype = before.op.dtype
        fitting = [v for v in self.values if v.op.dtype is dtype and v.shape == before.shape and self.may_carry(v)]
        op: Op = self.pick(fitting[-4:]).op
        if dtype.is_float:
            op = Op(OpCode.MIN, dtype, (op, filled(before.magnitude, dtype, before.shape)))
            op = Op(OpCode.MAX, dtype, (op, filled(-before.magnitude, dtype, before.shape)))
        return op

    def may_carry(self, value: Value) -> bool:
        """True for exact values: errors would grow from step to step, and smooth graphs have no bound on them."""
        return value.exact or self.is_smooth

    def body(self, roots: list[Op]) -> tuple[Op, tuple[Op, ...]]:
        """Returns the body over PARAMs in order, and its sources."""
        at = {FIXED: len(self.carries), ROWS: len(self.carries) + len(self.fixed)}
        inside = [op for op in toposort(roots) if op.code is OpCode.PARAM]
        places = {op: param(op, op.arg[0] % 1000 + at.get(op.arg[0] // 1000 * 1000, 0)) for op in inside}
        roots = substitute(roots, places)
        return Op(OpCode.SINK, roots[0].dtype, tuple(roots)), (*self.carries, *self.fixed, *self.rows)


def _within(value: Value) -> float:
    """Returns a value within a carry's bound; whole numbers are clamped to whole numbers."""
    return float(math.ceil(value.magnitude)) if value.op.dtype.is_float else ANY_INTEGER if value.op.dtype.is_int else 1.0


def loop(g: Generator, v: Value) -> Value | None:
    """Adds a LOOP with a few operations as its steps: with carried values, rows and stacked results."""
    steps = int(g.rng.integers(1, 5))
    if v.shape and v.shape[0] <= 5 and g.chance(0.7):
        steps = v.shape[0]
    inside = Inside(g)
    exact = [w for w in g.values[-6:] if inside.may_carry(w) and (not w.op.dtype.is_float or w.magnitude <= 100)]
    for _ in range(int(g.rng.integers(0, 4)) if exact else 0):
        inside.carry(g.pick(exact))
    for stack in [w for w in g.values[-6:] if w.shape and w.shape[0] == steps][: int(g.rng.integers(0, 3))]:
        inside.row(stack)
    for _ in range(int(g.rng.integers(0 if inside.values else 1, 3))):
        inside.add(inside.same(g.recent()))
    inside.grow(int(g.rng.integers(1, 9)))
    carry = [inside.next_carry(i) for i in range(len(inside.carries))]
    rows = [inside.recent() for _ in range(int(g.rng.integers(0 if carry else 1, 3)))]
    rows = [w for w in dict.fromkeys(rows) if w.op.numel * steps <= g.most]
    if not carry and not rows:
        return None
    fixed = [Op(OpCode.PARAM, op.dtype, (), (FIXED + i, op.shape)) for i, op in enumerate(inside.fixed)]
    body, sources = inside.body([*carry, *fixed, *(w.op for w in rows)])
    num_carry = len(carry) + len(fixed)
    made = Op(OpCode.LOOP, body.dtype, sources, (body, num_carry, steps))
    results = [Value(_output(made, i), inside.values[i].magnitude, 0.0) for i in range(len(carry))]
    results += [Value(_output(made, num_carry + i), w.magnitude, w.error) for i, w in enumerate(rows)]
    return _all_but_last(g, results)


def call(g: Generator, v: Value) -> Value | None:
    """Adds a CALL with a few operations as its body, perhaps with a second call on other values."""
    inside = Inside(g)
    for value in (v, *(g.recent() for _ in range(int(g.rng.integers(0, 3))))):
        inside.add(inside.same(value))
    inside.grow(int(g.rng.integers(1, 9)))
    chosen = [inside.values[-1], *(inside.recent() for _ in range(int(g.rng.integers(0, 3))))]
    chosen = [w for w in dict.fromkeys(chosen) if w.op.code is not OpCode.PARAM]
    if not chosen:
        return None
    body, sources = inside.body([w.op for w in chosen])
    made = Op(OpCode.CALL, body.dtype, sources, body)
    if g.chance(0.4) and all(g.is_usable(w) for w in chosen):  # a second call of the body with other values
        again = [g.pick([w.op, *_alike(g, w)]) for w in (Value(s, 0.0, 0.0) for s in sources)]
        if again != list(sources):
            other = made.replace(src=tuple(again))
            g.graph.roots += [_output(other, i) for i in range(len(chosen))] if _is_outer(g) else []
            g.graph.errors += [w.error for w in chosen] if _is_outer(g) else []
    return _all_but_last(g, [Value(_output(made, i), w.magnitude, w.error) for i, w in enumerate(chosen)])


def _is_outer(g: Generator) -> bool:
    return not isinstance(g, Inside)


def _alike(g: Generator, source: Value) -> list[Op]:
    """Returns PARAMs of whole numbers from -4 to 4 that may replace the source within the body's bounds."""
    op = source.op
    same = [w for w in g.graph.arrays if w.dtype is op.dtype and w.shape == op.shape] if op.code is OpCode.PARAM else []
    return [w for w in same if w.dtype.is_float and op in g.graph.arrays]


def _output(made: Op, number: int) -> Op:
    body = made.arg if isinstance(made.arg, Op) else made.arg[0]
    return Op(OpCode.OUTPUT, body.src[number].dtype, (made,), number)


def _all_but_last(g: Generator, results: list[Value]) -> Value:
    for value in results[:-1]:
        if g.is_usable(value) and int(np.prod(value.shape)) <= g.most:
            g.add(value)
    return results[-1]


WITH_BODIES: tuple[Action, ...] = (*PLAIN, *[loop] * 4, *[call] * 3)


# ---- graphs ----
DTYPES = (
    (dtypes.float32,),
    (dtypes.float32,),
    (dtypes.float32, dtypes.int32, dtypes.bool_),
    (dtypes.float32,),
    (dtypes.int64, dtypes.int32, dtypes.float32),
    (dtypes.float16, dtypes.bfloat16, dtypes.float32),
    (dtypes.float64, dtypes.float32, dtypes.uint8, dtypes.int16),
    (dtypes.bool_, dtypes.uint32, dtypes.uint64, dtypes.int8),
)
MOST_STEPS = 53


def any_graph(seed: int, most_elements: int = 600, has_bodies: bool | None = None) -> Graph:
    """Returns a graph of 3 to 55 operations; by default a quarter of the seeds have loops and calls."""
    with_bodies = seed % 4 == 3 if has_bodies is None else has_bodies
    actions = WITH_BODIES if with_bodies else PLAIN
    generator = Generator(seed, actions, most_elements, DTYPES[seed // 4 % len(DTYPES)])
    return generator.make(steps=3 + seed * 7 % MOST_STEPS)


def smooth_graph(seed: int, most_elements: int = 200) -> Graph:
    """Returns a graph of float64 and integers that is differentiable in its PARAMs, except for rare kinks."""
    actions = WITH_BODIES if seed % 4 == 3 else PLAIN
    generator = Generator(seed, actions, most_elements, (dtypes.float64, dtypes.float64, dtypes.int32), is_smooth=True)
    return generator.make(steps=3 + seed * 7 % MOST_STEPS)


def product_graph(seed: int, most_elements: int = 60) -> Graph:
    """Returns a graph of 1 to 6 operations on a matrix, many of them products; each runs with several tiles.

    Matrices of float16 are larger: large enough for matrix instructions.
    """
    dtype = (dtypes.float32, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.float16)[seed % 5]
    least, most = 1, 8
    if dtype is dtypes.float16:
        least, most, most_elements = 8, 20, 6 * most_elements
    generator = Generator(seed, (*PLAIN, *[matmul] * len(PLAIN)), most_elements, (dtype,))
    rows, columns = (int(n) for n in generator.rng.integers(least, most, 2))
    generator.add(generator.param((rows, columns), dtype))
    generator.grow(1 + seed * 7 % 6)
    generator.choose_roots()
    return generator.graph
