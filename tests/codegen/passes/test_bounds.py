"""Accesses are proved to be inside, or guarded, or refused: rule by rule, on real kernels, and on kernels made wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import dtype as dtypes
from picograd.codegen.passes.bounds import prove_bounds
from picograd.device import Target
from picograd.engine.compiler import runs_on_host
from picograd.engine.plan import parametrize, template
from picograd.errors import VerifyError
from picograd.evaluator import evaluate_program
from picograd.ir.checks import OutOfRange
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.spec import verify_program
from picograd.ir.stages import Kernel, Program
from picograd.ir.statements import For, If, Let, Load, Statement, Store, Transpose, walk
from picograd.record import replace
from picograd.road import lower, schedule_graphs
from picograd_lab.reader import parse_program
from tests.counts.workloads import WORKLOADS, indices, leaf
from tests.cpu_programs import run as cpu_run
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

# what a rule sees -> how many elements p0 must have, and statements that read it; one element fewer is not enough
INSIDE: dict[str, tuple[int, str]] = {
    "a loop": (10, """
for r1 in loop(10):
  load v1: float32 = p0[r1]"""),
    "a sum of loops": (64, """
for r1 in loop(4):
  v1: int64 = r1 * 16
  for r2 in loop(16):
    v2: int64 = v1 + r2
    load v3: float32 = p0[v2]"""),
    "lanes side by side": (40, """
for r1 in loop(5):
  v1: int64 = r1 * 8
  load v2: float32x8 = p0[v1]"""),
    "a square that is transposed": (35, """
alloc m1: float32[16] shared
for r1 in loop(2):
  v1: int64 = r1 * 4
  transpose 4 to m1[0] by 4 of p0[v1] by 9"""),
    "an index for each lane": (22, """
v1: int64x8 = lanes(8)
v2: int64x8 = spread(3, 8)
v3: int64x8 = v1 * v2
load v4: float32x8 = p0[v3]"""),
    "a length that depends on the loop around": (1000, """
for r1 in loop(16):
  v1: int64 = r1 * 64
  v2: int64 = v1 * -1
  v3: int64 = v2 + 1000
  v4: int64 = min(v3, 64)
  for r2 in loop(v4):
    v5: int64 = v1 + r2
    load v6: float32 = p0[v5]"""),
    "vectors, then what is left": (1000, """
for r1 in loop(4):
  v1: int64 = r1 * 300
  v2: int64 = v1 * -1
  v3: int64 = v2 + 1000
  v4: int64 = min(v3, 300)
  v5: int64 = v4 // 8
  v6: int64 = v5 * 8
  v7: int64 = v6 * -1
  v8: int64 = v4 + v7
  for r2 in loop(v8):
    v9: int64 = v1 + v6
    v10: int64 = v9 + r2
    load v11: float32 = p0[v10]"""),
    "a condition": (1000, """
for r1 in loop(4):
  v1: int64 = r1 * 256
  for r2 in loop(256):
    v2: int64 = v1 + r2
    v3: bool = v2 < 1000
    if v3:
      load v4: float32 = p0[v2]"""),
    "a condition of the access": (8, """
for r1 in loop(12):
  v1: int64 = r1 + -2
  v2: bool = -1 < v1
  v3: bool = v1 < 8
  v4: bool = v2 & v3
  load v5: float32 = p0[v1] when v4"""),
    "a condition for each lane": (7, """
v1: int64x8 = lanes(8)
v2: int64x8 = spread(7, 8)
v3: boolx8 = v1 < v2
load v4: float32x8 = p0[0] when v3"""),
    "a condition that does not hold": (10, """
for r1 in loop(20):
  v1: bool = r1 < 10
  v2: bool = v1 != True
  v3: int64 = 19 - r1
  if v2:
    load v4: float32 = p0[v3]"""),
    "a condition that says which one it is": (6, """
for r1 in loop(20):
  v1: bool = r1 == 5
  if v1:
    load v2: float32 = p0[r1]"""),
    "an unsigned comparison": (10, """
for r1 in loop(20):
  v1: int64 = r1 - 5
  v2: uint64 = bitcast(v1, uint64)
  v3: bool = v2 < uint64(10)
  load v4: float32 = p0[v1] when v3"""),
    "a quotient of a shorter last block": (30, """
for r1 in loop(4):
  v1: int64 = r1 * 16
  for r2 in loop(16):
    v2: int64 = v1 + r2
    v3: bool = v2 < 60
    if v3:
      v4: int64 = v2 // 2
      load v5: float32 = p0[v4]"""),
    "a quotient of whole numbers": (16, """
for r1 in loop(4):
  v1: int64 = r1 * -20
  v2: int64 = v1 + 64
  v3: int64 = min(v2, 20)
  v4: int64 = r1 * 5
  for r2 in loop(v3):
    v5: int64 = r2 // 4
    v6: int64 = v4 + v5
    load v7: float32 = p0[v6]"""),
    "a remainder": (7, """
for r1 in loop(100):
  v1: int64 = r1 % 7
  load v2: float32 = p0[v1]"""),
    "quotient and remainder of one number": (100, """
for r1 in loop(100):
  v1: int64 = r1 // 7
  v2: int64 = v1 * 7
  v3: int64 = r1 % 7
  v4: int64 = v2 + v3
  load v5: float32 = p0[v4]"""),
    "a row that is known by its remainder": (60, """
for r1 in loop(2):
  v1: int64 = r1 * 32
  for r2 in loop(32):
    v2: int64 = v1 + r2
    v3: bool = v2 < 60
    v4: int64 = v2 % 10
    v5: bool = v4 < 2
    v6: bool = v3 & v5
    v7: int64 = v2 + 8
    load v8: float32 = p0[v7] when v6"""),
    "a shift and a mask": (16, """
for r1 in loop(32):
  v1: int64 = r1 >> 2
  v2: int64 = r1 & 1
  v3: int64 = v1 * 2
  v4: int64 = v3 + v2
  load v5: float32 = p0[v4]"""),
    "a loaded index and its condition": (50, """
for r1 in loop(3):
  load v1: int64 = p1[r1]
  v2: bool = -1 < v1
  v3: bool = v1 < 10
  v4: bool = v2 & v3
  v5: int64 = v1 * 5
  v6: int64 = v5 + 4
  load v7: float32 = p0[v6] when v4"""),
    "an index that was checked": (10, """
for r1 in loop(3):
  load v1: int64 = p1[r1]
  v2: uint64 = bitcast(v1, uint64)
  v3: bool = v2 < uint64(10)
  v4: int64 = where(v3, v1, 0)
  load v5: float32 = p0[v4]"""),
    "an index that counts from the end": (10, """
for r1 in loop(20):
  v1: int64 = r1 - 10
  v2: bool = v1 < 0
  v3: int64 = v1 + 10
  v4: int64 = where(v2, v3, v1)
  load v5: float32 = p0[v4]"""),
    "the greater of two": (10, """
for r1 in loop(10):
  v1: int64 = max(r1, 3)
  load v2: float32 = p0[v1]"""),
    "a smaller type": (256, """
for r1 in loop(3):
  load v1: uint8 = p2[r1]
  v2: int64 = cast(v1, int64)
  load v3: float32 = p0[v2]"""),
}  # fmt: skip
HEAD = """program t
  variable n: int64 1..9
  param p0: in float32[{}]
  param p1: in int64[3]
  param p2: in uint8[3]
  memory p0 = 0 float32 ({},)
  memory p1 = 1 int64 (3,)
  memory p2 = 2 uint8 (3,)
  phase
"""
SYMBOLIC: dict[str, tuple[str, str, str]] = {  # numel that suffices, numel that does not, statements
    "rows": ("n * 30", "n * 30 - 1", """
v1: int64 = n * 30
for r1 in loop(v1):
  load v2: float32 = p0[r1]"""),
    "columns": ("n * 30", "n * 29", """
for r1 in loop(30):
  v1: int64 = r1 * n
  for r2 in loop(n):
    v2: int64 = v1 + r2
    load v3: float32 = p0[v2]"""),
    "a position in rows and columns": ("n * 30", "n * 29", """
v1: int64 = n * 30
for r1 in loop(v1):
  v2: int64 = r1 // n
  v3: int64 = r1 % n
  v4: int64 = v3 * 30
  v5: int64 = v4 + v2
  load v6: float32 = p0[v5]"""),
    "a condition": ("n", "n - 1", """
for r1 in loop(9):
  v1: bool = r1 < n
  load v2: float32 = p0[r1] when v1"""),
}  # fmt: skip


def program(numel: object, text: str) -> Program:
    """Returns a Program that reads p0, which has so many elements."""
    lines = text.strip("\n").splitlines()
    made = parse_program(HEAD.format(numel, numel) + "\n".join("    " + line for line in lines) + "\n")
    verify_program(made, after="test")
    return made


def guards(given: Program) -> int:
    """Returns how many accesses are not proved; those that are refused count as well."""
    try:
        return prove_bounds(given, itertools.count(1000)).num_guards
    except VerifyError:
        return 1


@pytest.mark.parametrize("name", INSIDE)
def test_an_access_is_proved_where_the_memory_just_suffices(name: str) -> None:
    numel, text = INSIDE[name]
    assert guards(program(numel, text)) == 0
    assert guards(program(numel - 1, text)) == 1


@pytest.mark.parametrize("name", SYMBOLIC)
def test_an_access_is_proved_where_a_symbolic_length_just_suffices(name: str) -> None:
    numel, too_few, text = SYMBOLIC[name]
    assert guards(program(numel, text)) == 0
    assert guards(program(too_few, text)) == 1


def test_what_is_surely_outside_is_refused() -> None:
    with pytest.raises(VerifyError) as error:
        text = "for r1 in loop(4):\n  v1: int64 = r1 + 10\n  load v2: float32 = p0[v1]"
        prove_bounds(program(10, text), itertools.count(9))
    assert "after pass linearize of program t, a statement is outside its memory" in str(error.value)
    assert "load v2: float32 = p0[v1]" in str(error.value) and "elements 10..13 of 10" in str(error.value)


@pytest.mark.parametrize("text", [
    "load v1: float32 = p0[10]",
    "load v1: float32 = p0[-1]",
    "load v1: float32x8 = p0[3]",
])  # fmt: skip
def test_a_constant_outside_is_refused(text: str) -> None:
    with pytest.raises(VerifyError, match="outside its memory"):
        prove_bounds(program(10, text), itertools.count(9))


def test_what_may_never_run_is_guarded_and_not_refused() -> None:
    """A loop may run no times at all, a condition never hold: then nothing is wrong."""
    assert prove_bounds(program(10, "for r1 in loop(2):\n  for r2 in loop(r1):\n    load v1: float32 = p0[10]"),
                        itertools.count(9)).num_guards == 1  # fmt: skip


def test_a_load_before_a_loop_does_not_lean_on_that_it_runs() -> None:
    """Taken out of the loop of r2, which runs for r1 < 4 only, a load of element r1 is outside for others."""
    text = """
for r1 in loop(8):
  v1: int64 = 4 - r1
  for r2 in loop(v1):
    v2: int64 = r1 + r2
    load v3: float32 = p0[v2]"""
    assert guards(program(4, text)) == 0
    assert guards(program(4, text + "\n  load v4: float32 = p0[r1]")) == 1


# ---- what a guard does ----
GUARDED: dict[str, str] = {
    "one": "for r1 in loop(20):\n  load v1: float32 = p0[r1]\n  p3[r1] = v1",
    "a vector": "for r1 in loop(5):\n  v1: int64 = r1 * 4\n  load v2: float32x4 = p0[v1]\n  p3[v1] = v2",
    "before the start": """
for r1 in loop(5):
  v1: int64 = r1 * 4
  v2: int64 = v1 - 3
  load v3: float32x4 = p0[v2]
  p3[v2] = v3""",
    "an index for each lane": """
v1: int64x4 = lanes(4)
for r1 in loop(5):
  v2: int64x4 = spread(r1, 4)
  v3: int64x4 = v1 * v2
  load v4: float32x4 = p0[v3]
  p3[v3] = v4""",
    "a condition of its own": """
for r1 in loop(20):
  v1: bool = r1 < 15
  load v2: float32 = p0[r1] when v1
  p3[r1] = v2 when v1""",
    "a condition for each lane": """
v1: int64x4 = lanes(4)
v2: int64x4 = spread(2, 4)
v3: boolx4 = v1 < v2
for r1 in loop(20):
  load v4: float32x4 = p0[r1] when v3
  p3[r1] = v4""",
}


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("n", [1, 5])
def test_a_guarded_access_touches_nothing_outside(name: str, n: int) -> None:
    """A load gives 0 there, a store writes nothing; inside all is as it was: with more memory around, the same."""
    params = "  param p3: out float32[2 * n]\n  memory p0"
    head = HEAD.replace("  memory p0", params, 1).replace("  phase", "  memory p3 = 3 float32 (2 * n,)\n  phase")
    lines = "\n".join("    " + line for line in GUARDED[name].strip("\n").splitlines())
    text = head.replace("(2 * n,)", "(10,)").format("2 * n", 10) + lines + "\n"
    guarded = prove_bounds(parse_program(text), itertools.count(1000))
    assert guarded.num_guards == 2
    verify_program(guarded, after="prove_bounds")
    x = np.arange(1, 2 * n + 1, dtype=np.float32)
    found = np.full(2 * n, -1, np.float32)
    evaluate_program(guarded, [x, np.zeros(3, np.int64), np.zeros(3, np.uint8), found], {"n": n})
    assert np.isin(found, [*x, 0, -1]).all()
    assert (found == x).any() if name != "before the start" or n > 1 else True


def test_a_square_that_may_be_outside_is_left_alone() -> None:
    """Whole: of both its memories, and wherever it begins."""
    text = """
  memory p3 = 3 float32 (8,)
  phase
    for r1 in loop(6):
      v1: int64 = r1 * 2
      v2: int64 = v1 - 2
      transpose 2 to p3[v2] by 2 of p0[r1] by 4"""
    head = HEAD.replace("  memory p0", "  param p3: out float32[8]\n  memory p0", 1).split("  phase")[0].format(9, 9)
    guarded = prove_bounds(parse_program(head.rstrip("\n") + text + "\n"), itertools.count(1000))
    assert guarded.num_guards == 1
    verify_program(guarded, after="prove_bounds")
    found = np.full(8, -1, np.float32)
    rest = [np.zeros(3, np.int64), np.zeros(3, np.uint8)]
    evaluate_program(guarded, [np.arange(9, dtype=np.float32), *rest, found], {"n": 1})
    np.testing.assert_array_equal(found, [1, 5, 2, 6, 3, 7, 4, 8])
    (again,) = cpu_run(guarded, [np.arange(9, dtype=np.float32), *rest, np.full(8, -1, np.float32)], {"n": 1})
    np.testing.assert_array_equal(again, found)


def test_a_guard_is_run_by_the_cpu() -> None:
    """20 elements, read and written by vectors of 8."""
    text = """
for r1 in grid(3):
  v1: int64 = r1 * 8
  load v2: float32x8 = p0[v1]
  v3: float32x8 = v2 + v2
  p3[v1] = v3"""
    params = HEAD.replace("  memory p0", "  param p3: out float32[20]\n  memory p0", 1).format(20, 20)
    head = params.replace("  variable n: int64 1..9\n", "").replace("  phase", "  memory p3 = 3 float32 (20,)\n  phase")
    lines = "\n".join("    " + line for line in text.strip("\n").splitlines())
    guarded = prove_bounds(parse_program(head + lines + "\n"), itertools.count(1000))
    assert guarded.num_guards == 2
    x = np.arange(20, dtype=np.float32)
    (found,) = cpu_run(guarded, [x, np.zeros(3, np.int64), np.zeros(3, np.uint8), np.zeros(20, np.float32)])
    np.testing.assert_array_equal(found, x + x)


# ---- real kernels ----
def kernels_of(tensors: Sequence[pg.Tensor]) -> list[Kernel]:
    roots = [tensor.op for tensor in tensors]
    schedule = schedule_graphs(parametrize(roots, template(roots)))
    found = dict.fromkeys(item.kernel for item in schedule.kernel_items())
    return [kernel for kernel in found if not runs_on_host(kernel)]


def written(x: pg.Tensor) -> pg.Tensor:
    x[1:3, ::2] = 1.0
    return x


SMALL: dict[str, Callable[[], Sequence[pg.Tensor]]] = {
    "elementwise": lambda: [leaf(5, 7).detach() * 2.0 + leaf(7, 5).detach().T],
    "padded": lambda: [pg.nn.functional.pad(leaf(4, 6).detach(), (1, 2, 0, 3))],
    "reduce": lambda: [leaf(6, 9).detach().softmax(1), leaf(9, 5).detach().sum(0)],
    "matmul": lambda: [leaf(5, 6).detach() @ leaf(6, 9).detach()],
    "conv": lambda: [pg.nn.functional.conv2d(leaf(1, 2, 5, 5).detach(), leaf(3, 2, 3, 3).detach(), padding=1)],
    "transposed": lambda: [leaf(6, 9).detach() @ leaf(5, 9).detach().T],
    "scan": lambda: [leaf(4, 6).detach().cumsum(1)],
    "sort": lambda: [leaf(3, 7).detach().argsort(1)],
    "scatter": lambda: [leaf(6, 3).detach().index_add(0, indices(4), leaf(4, 3).detach())],
    "gather": lambda: [leaf(6, 3).detach()[indices(4)]],
    "update": lambda: [written(leaf(4, 6).detach())],
}


@cache
def small_programs() -> list[tuple[Program, Target]]:
    """Returns programs as they are when their bounds have been proved: on a GPU a pass follows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("picograd.road.narrow_indices", lambda program, numbers: program)
        return [
            (lower(kernel, target), target)
            for make in SMALL.values() for kernel in kernels_of(make()) for target in (CPU_TARGETS[0], GPU_TARGET)
        ]  # fmt: skip


def run(given: Program) -> str:
    """Runs a program on zeros; returns what the evaluator says of an access that is outside, or nothing."""
    arrays: list[Any] = [
        np.zeros(p.numel, p.dtype.numpy) if p.role in ("in", "inout", "out") else None  # type: ignore[arg-type]
        for p in given.params
    ]
    try:
        evaluate_program(given, arrays)
    except OutOfRange:
        return ""
    except VerifyError as error:
        return str(error) if "outside its" in str(error) else ""
    return ""


class Breaker:
    """Makes one thing of a Program wrong."""

    def __init__(self, given: Program, seed: int):
        self.given, self.rng = given, np.random.default_rng(seed)
        statements = [s for phase in given.phases for s in walk(phase)]
        self.way = self.pick([self.shift, self.shift, self.lengthen, self.drop_if, self.drop_valid, self.shrink])
        self.victim = self.pick(statements)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def broken(self) -> Program:
        if self.way == self.shrink:
            slot = int(self.rng.integers(len(self.given.params)))
            p = self.given.params[slot]
            smaller = replace(p, numel=max(0, int(p.numel) - 1))  # type: ignore[arg-type]
            params = (*self.given.params[:slot], smaller, *self.given.params[slot + 1 :])
            return replace(self.given, params=params)
        return replace(self.given, phases=tuple(map(self.body, self.given.phases)))

    def body(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for statement in statements:
            if isinstance(statement, For | If):
                statement = replace(statement, body=self.body(statement.body))
            made += self.way(statement) if statement is self.victim or self.is_victim(statement) else [statement]
        return tuple(made)

    def is_victim(self, statement: Statement) -> bool:
        """A loop was written anew for its body."""
        if isinstance(statement, For) and isinstance(self.victim, For):
            return statement.range is self.victim.range
        return isinstance(statement, If) and isinstance(self.victim, If) and statement.condition is self.victim.condition

    def shift(self, statement: Statement) -> list[Statement]:
        """An index that is off by some."""
        if isinstance(statement, Transpose):
            moved = Op(OpCode.VAR, dtypes.int64, (), ("w1", 1))
            name = self.pick(["place", "index"])
            sum_ = Op(OpCode.ADD, dtypes.int64, (getattr(statement, name), const(self.pick([1, 4, -2]), dtypes.int64)))
            return [Let(moved, sum_), replace(statement, **{name: moved})]
        if not isinstance(statement, Load | Store) or statement.index.code is OpCode.CONST:
            return [statement]
        lanes = statement.index.arg[1] if statement.index.code is OpCode.VAR else 1
        by = const(int(self.pick([1, 2, 5, -1, -3])), dtypes.int64)
        names = [Op(OpCode.VAR, dtypes.int64, (), (f"w{i}", lanes)) for i in range(2)]
        spread = Op(OpCode.EXPAND, dtypes.int64, (by,), lanes) if lanes > 1 else Op(OpCode.ADD, by.dtype, (by, by * 0))
        moved = Op(OpCode.ADD, dtypes.int64, (statement.index, names[0] if lanes > 1 else by))
        return [*[Let(names[0], spread)] * (lanes > 1), Let(names[1], moved), replace(statement, index=names[1])]

    def lengthen(self, statement: Statement) -> list[Statement]:
        """A loop that runs once more."""
        if not isinstance(statement, For) or statement.range.src[0].code is not OpCode.CONST:
            return [statement]
        longer = statement.range.replace(src=(const(int(statement.range.src[0].arg) + 1, dtypes.int64),))
        return [For(longer, tuple(replaced(s, statement.range, longer) for s in statement.body))]

    def drop_if(self, statement: Statement) -> list[Statement]:
        return [*statement.body] if isinstance(statement, If) else [statement]

    def drop_valid(self, statement: Statement) -> list[Statement]:
        return [replace(statement, valid=None)] if isinstance(statement, Load | Store) else [statement]

    def shrink(self, statement: Statement) -> list[Statement]:
        """A buffer with one element fewer."""
        return [statement]


def replaced(statement: Statement, old: Op, new: Op) -> Statement:
    """Returns a statement that reads the index of another loop."""

    def swap(op: Op) -> Op:
        if op is old:
            return new
        return op.replace(src=tuple(map(swap, op.src))) if op.src else op

    if isinstance(statement, For | If):
        body = tuple(replaced(s, old, new) for s in statement.body)
        return For(swap(statement.range), body) if isinstance(statement, For) else If(swap(statement.condition), body)
    if isinstance(statement, Let):
        return replace(statement, value=swap(statement.value))
    if isinstance(statement, Load):
        return replace(statement, index=swap(statement.index), valid=statement.valid and swap(statement.valid))
    if isinstance(statement, Store):
        value, index = swap(statement.value), swap(statement.index)
        return replace(statement, value=value, index=index, valid=statement.valid and swap(statement.valid))
    if isinstance(statement, Transpose):
        return replace(statement, place=swap(statement.place), index=swap(statement.index))
    return statement


@pytest.mark.variants(first=1)
def test_a_hundred_kernels_made_wrong_touch_nothing_outside() -> None:
    """Those that the evaluator sees outside are refused or guarded, and guarded they stay inside."""
    found, seed, refused = 0, 0, 0
    while found < 100:
        sound, _ = small_programs()[seed % len(small_programs())]
        wrong = Breaker(sound, seed).broken()
        seed += 1
        assert seed < 3000, f"only {found} of them were wrong"
        if not run(wrong):
            continue
        found += 1
        try:
            guarded = prove_bounds(wrong, itertools.count(5000))
        except VerifyError:
            refused += 1
            continue
        assert guarded.num_guards > 0, f"seed {seed - 1}: {run(wrong)}"
        verify_program(guarded, after="prove_bounds")
        assert not run(guarded), f"seed {seed - 1}"
    assert refused > 0


def test_the_kernels_that_were_made_wrong_are_proved_as_they_are() -> None:
    assert [made.num_guards for made, _ in small_programs()] == [0] * len(small_programs())


@pytest.mark.variants
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_access_of_every_workload_is_proved(name: str) -> None:
    """For vectors of 16 and 64 bytes; for those of 32 and for a GPU, tests/counts counts guards."""
    for kernel in kernels_of(WORKLOADS[name]()):
        for target in (CPU_TARGETS[0], CPU_TARGETS[2]):
            assert lower(kernel, target).num_guards == 0, kernel.name
