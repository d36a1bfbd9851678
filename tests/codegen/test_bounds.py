"""Accesses are proved to be inside, or guarded, or refused: rule by rule, on real kernels, and on kernels made wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import dtype as dtypes
from picograd.codegen import lower as lowering
from picograd.codegen.bounds import prove_bounds
from picograd.codegen.lower import lower
from picograd.device import Target
from picograd.engine.host import runs_on_host
from picograd.engine.plan import parametrize, schedule_graphs, template
from picograd.errors import VerifyError
from picograd.evaluator import evaluate_program
from picograd.ir.checks import OutOfRange
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.spec_program import verify_program
from picograd.ir.stages import Kernel, Param, Program
from picograd.ir.statements import For, If, Let, Load, Statement, Store, walk
from picograd.ir.text import parse_program
from tests.calls import calls
from tests.counts.workloads import WORKLOADS, indices, leaf
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, TARGETS

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
