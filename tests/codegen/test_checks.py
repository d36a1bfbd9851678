"""CHECKs in every kind of nest: the same meaning at every level, one Check for each index, none where none is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.evaluator import evaluate_kernel, evaluate_program
from picograd.ir.build import cast, expand, pad, reduce, reshape
from picograd.ir.checks import OutOfRange
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import Check, For, walk
from picograd.ir.text_program import format_program
from picograd.rewrites.simplify import simplify_graph
from picograd.road import create_schedule, lower
from picograd_lab.reader import parse_program
from tests.same_meaning import TARGETS, check_same_meaning

F32, I64 = dtypes.float32, dtypes.int64
Array = np.ndarray[Any, Any]
WORDS = np.array([3, 0, 4, 4, 1, 2, 0, 3, 3, 1, 4, 2, 0, 0, 1, 2, 3], np.int64)  # 17: whole vectors and a rest


def param(slot: int, *shape: int, dtype: dtypes.DType = F32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def checked(index: Op, length: Dim, site: int = 7) -> Op:
    return Op(OpCode.CHECK, I64, (index,), (site, length))


def gather(x: Op, index: Op) -> Op:
    return Op(OpCode.GATHER, x.dtype, (x, index), (0, 0))


TABLE, INDEX = param(0, 5, 9), param(1, 17, dtype=I64)
PICKED = gather(TABLE, checked(INDEX, 5))  # (17, 9)
PICKED_SUM = reduce(PICKED, OpCode.ADD, (1,))
PICKED_SHORT = reduce(gather(param(0, 5, 3), checked(INDEX, 5)), OpCode.ADD, (1,))  # of rows that are written out
GRAPHS: dict[str, Op] = {
    "elementwise": PICKED * 2.0,
    "short rows": gather(reshape(TABLE, (45,)), checked(INDEX + 40, 45)),
    "reduce along": PICKED_SUM,
    "reduce down": reduce(PICKED, OpCode.ADD, (0,)),
    "scatter": Op(
        OpCode.SCATTER, F32, (TABLE, checked(INDEX, 5), expand(param(2, 1, 9), (17, 9))), (OpCode.ADD, 0, 0)
    ),
    "matmul": Op(OpCode.MATMUL, F32, (PICKED, param(2, 9, 33))),
    "padded": pad(PICKED, ((1, 2), (0, 3))),
    "padded index": gather(TABLE, checked(pad(INDEX, ((3, 0),)), 5)),
    "same at any index": gather(expand(reshape(param(3, 1), (1, 1)), (5, 9)), checked(INDEX, 5)),
    "one index": gather(reshape(TABLE, (45,)), checked(Op(OpCode.SHRINK, I64, (INDEX,), ((2, 3),)), 45)),
}


def arrays() -> dict[Op, Array]:
    rng = np.random.default_rng(0)
    ops = (TABLE, param(2, 1, 9), param(2, 9, 33), param(3, 1))
    found = {op: rng.integers(-4, 5, op.shape).astype(np.float32) for op in ops}
    return {**found, INDEX: WORDS}


@pytest.mark.req("B6")
@pytest.mark.parametrize("name", GRAPHS)
def test_a_check_lets_pass_what_is_inside(name: str) -> None:
    """Whole numbers so small that every sum is exact."""
    check_same_meaning([GRAPHS[name]], arrays())


@pytest.mark.variants
@pytest.mark.req("B6")
@pytest.mark.parametrize("wrong", [5, -1, 1 << 40, -(1 << 63)])
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in ("short rows", "one index")])
def test_a_check_names_the_site_and_the_value(name: str, wrong: int) -> None:
    schedule = create_schedule(simplify_graph([GRAPHS[name]]))
    given = arrays()
    given[INDEX] = np.where(np.arange(17) == 16, wrong, WORDS)
    item = next(item for item in schedule.items if item.checks)
    assert item.checks == (7,)
    slots = []
    for place in item.buffers:
        use = schedule.buffers[place]
        slots.append(np.zeros(use.numel, use.dtype.numpy) if use.role != "input" else given[schedule.inputs[use.source]])
    with pytest.raises(OutOfRange) as caught:
        evaluate_kernel(item.kernel, [slot.copy().reshape(-1) for slot in slots])
    assert (caught.value.site, caught.value.value) == (0, wrong)
    for target in TARGETS:
        program = lower(item.kernel, target)
        memory: list[Array | None] = [slot.copy().reshape(-1) for slot in slots]
        with pytest.raises(OutOfRange) as caught:
            evaluate_program(program, [*memory, *[None] * (len(program.params) - len(memory))])
        assert (caught.value.site, caught.value.value) == (0, wrong)


def program_of(root: Op) -> Program:
    (item,) = create_schedule(simplify_graph([root])).items
    return lower(item.kernel, TARGETS[1])


def checks_in(program: Program) -> list[Check]:
    return [s for phase in program.phases for s in walk(phase) if isinstance(s, Check)]


def test_a_row_is_checked_once_and_not_for_every_element() -> None:
    long = gather(param(0, 5, 400), checked(INDEX, 5))
    for program, is_loop in ((program_of(reduce(long, OpCode.ADD, (1,))), True), (program_of(PICKED_SHORT), False)):
        loops = [s for phase in program.phases for s in walk(phase) if isinstance(s, For)]
        around = [loop for loop in loops if any(isinstance(s, Check) for s in loop.body)]
        assert around and all(sum(isinstance(s, Check) for s in loop.body) == 1 for loop in around)
        assert all(any(isinstance(s, For) for s in loop.body) == is_loop for loop in around), "beside the row's own loop"


def test_what_is_checked_needs_no_condition_to_be_read() -> None:
    """A gather by a checked index is a plain load: where the index was wrong, row 0 is read."""
    assert " when " not in format_program(program_of(PICKED * 2.0))
    assert " when " in format_program(program_of(gather(TABLE, INDEX) * 2.0))


def test_an_index_that_is_never_below_zero_is_checked_above() -> None:
    of_bytes = gather(TABLE, checked(cast(param(1, 17, dtype=dtypes.uint8), I64), 5))
    assert len(checks_in(program_of(of_bytes * 2.0))) == 1
    of_two = gather(TABLE, checked(cast(param(1, 17, dtype=dtypes.bool_), I64), 5))
    assert not checks_in(program_of(of_two * 2.0))


def test_what_is_read_of_a_converted_table_is_zero_outside() -> None:
    table, index = param(0, 5, 9, dtype=dtypes.int8), param(1, 17, dtype=I64)
    given = {table: np.arange(45, dtype=np.int8).reshape(5, 9), index: np.where(WORDS == 4, -1, WORDS)}
    check_same_meaning([gather(cast(table, F32), index) + 1.0], given)


def test_an_index_that_is_certainly_inside_has_no_check() -> None:
    program = program_of(gather(TABLE, checked(Op(OpCode.MOD, I64, (INDEX, INDEX.filled(5))), 5)))
    assert not checks_in(program) and all(param.role != "report" for param in program.params)


def test_a_program_with_checks_prints_and_reads_back() -> None:
    program = program_of(PICKED * 2.0)
    text = format_program(program)
    assert " else report 0 of " in text and "report int64[2]" in text
    assert parse_program(text) == program
