"""Operands that lie across the order of the result: copied tile by tile, the same values, no gather from memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import elementwise
from picograd.device import Target
from picograd.devices.cpu.render import render
from picograd.dtype import DType
from picograd.ir.build import cast, expand, flip, gather, iota, pad, permute, reshape
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import MemorySpace, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import Alloc, Load, Transpose
from picograd.road import create_schedule, lower
from tests.codegen.test_reduce_cpu import all_of
from tests.same_meaning import CPU_TARGETS, check_same_meaning


def param(slot: int, *shape: int, dtype: DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


SQUARE, LONG = param(0, 70, 130), param(1, 130, 70)
CUBE = param(0, 17, 33, 35)
TURNED = {
    "transpose": permute(SQUARE, (1, 0)),
    "and as it lies": permute(SQUARE, (1, 0)) + LONG,
    "two turned": permute(SQUARE, (1, 0)) * permute(reshape(LONG, (70, 130)), (1, 0)),
    "last two of three": permute(CUBE, (0, 2, 1)),
    "first and last": permute(CUBE, (2, 1, 0)),
    "round": permute(CUBE, (1, 2, 0)),
    "one row repeated": permute(SQUARE, (1, 0)) + expand(param(1, 1, 70), (130, 70)),
    "float64": permute(param(0, 65, 64, dtype=dtypes.float64), (1, 0)),
    "int8": permute(param(0, 65, 64, dtype=dtypes.int8), (1, 0)),
    "half to float": cast(permute(param(0, 65, 64, dtype=dtypes.float16), (1, 0)), dtypes.float32),
}
BACKWARDS = {
    "a quarter": flip(permute(SQUARE, (1, 0)), (0,)),
    "a quarter back": permute(flip(SQUARE, (0,)), (1, 0)),
    "both axes": flip(permute(SQUARE, (1, 0)), (0, 1)),
    "and as it lies": flip(permute(SQUARE, (1, 0)), (0,)) + LONG,
    "int8": flip(permute(param(0, 65, 64, dtype=dtypes.int8), (1, 0)), (0,)),
}
AS_BEFORE = {
    "one column": Op(OpCode.SHRINK, dtypes.float32, (permute(SQUARE, (1, 0)),), ((0, 130), (3, 4))),
    "padded": pad(permute(SQUARE, (1, 0)), ((1, 0), (0, 2))),
    "picked": permute(gather(SQUARE, iota(20) * 3, 1, 0), (1, 0)),
    "a row backwards": flip(SQUARE, (1,)),
    "as it lies": SQUARE + permute(permute(SQUARE, (1, 0)), (1, 0)),
}
EVERY = {**TURNED, **AS_BEFORE, **{f"{name}, backwards": root for name, root in BACKWARDS.items()}}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "ELEMENTS_MIN", 256)


def program_of(root: Op, nbytes: int = 32) -> Program:
    (item,) = create_schedule([root]).items
    return lower(item.kernel, next(target for target in CPU_TARGETS if target.vector_bytes == nbytes))


def copies_of(program: Program) -> list[Alloc]:
    statements = [one for phase in program.phases for one in all_of(phase)]
    return [one for one in statements if isinstance(one, Alloc) and one.memory.arg[2] is MemorySpace.SHARED]


def values_for(root: Op) -> dict[Op, np.ndarray]:
    rng = np.random.default_rng(0)
    found = [op for op in toposort([root]) if op.code is OpCode.PARAM]
    return {op: rng.integers(-9, 9, op.shape).astype(op.dtype.numpy) for op in found}


@pytest.mark.variants(every=14)
@pytest.mark.parametrize("name", EVERY)
def test_it_means_the_same_at_every_level(name: str) -> None:
    root = EVERY[name]
    check_same_meaning([root], values_for(root), targets=CPU_TARGETS)


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_memory_is_read_in_the_order_it_lies_in(name: str, nbytes: int) -> None:
    program = program_of(TURNED[name], nbytes)
    statements = [one for phase in program.phases for one in all_of(phase)]
    loads = [one for one in statements if isinstance(one, Load) and one.memory.code is OpCode.PARAM]
    assert copies_of(program)
    assert all(load.index.code is not OpCode.VAR or load.index.arg[1] == 1 for load in loads), "a gather"
    assert any(load.var.arg[1] > 1 for load in loads), "not one vector"


@pytest.mark.parametrize("name", BACKWARDS)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: str(target.vector_bytes))
def test_what_is_turned_and_backwards_is_copied_in_whole_vectors(name: str, target: Target) -> None:
    (item,) = create_schedule([BACKWARDS[name]]).items
    program = lower(item.kernel, target)
    assert len(copies_of(program)) == 2, "a tile, and its transpose"
    text = render(program, target).text
    assert "gather" not in text and not re.search(r"insertelement <\d+ x (float|i8)>", text), "lane by lane"


def test_two_turned_operands_are_copied_each_and_transposed() -> None:
    program = program_of(TURNED["two turned"])
    first, second, *turned = [copy.memory for copy in copies_of(program)]
    squares = [one for phase in program.phases for one in all_of(phase) if isinstance(one, Transpose)]
    assert [(square.memory, square.into) for square in squares] == list(zip((first, second), turned))


@pytest.mark.parametrize("name", AS_BEFORE)
def test_what_is_not_wholly_across_is_not_copied(name: str) -> None:
    assert not copies_of(program_of(AS_BEFORE[name]))


def test_what_is_short_either_way_is_not_copied() -> None:
    assert not copies_of(program_of(permute(param(0, 100, 15), (1, 0))))
    assert not copies_of(program_of(permute(param(0, 15, 100), (1, 0))))
    assert copies_of(program_of(permute(param(0, 16, 100), (1, 0))))
    assert copies_of(program_of(permute(param(0, 100, 16), (1, 0))))


def test_what_caches_hold_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "ELEMENTS_MIN", 70 * 130 + 1)
    assert not copies_of(program_of(TURNED["transpose"]))
