"""Every row of the table computes what the evaluator says: each runs on special and random values in every language.

CUDA C runs in the simulator. OpenCL C's own functions of numbers are in no kernel (codegen/passes/legalize.py), nor are
they here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import dtype as dtypes
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.render_rules import CASTS, OPENCL, RULES, Rule, literal, rule_for
from picograd.dtype import DType
from picograd.engine.devices import compiler_for
from picograd.errors import IndexingError
from picograd.evaluator.program import evaluate_program
from picograd.ir.op import Op, const
from picograd.ir.opcode import COMPARE, TRANSCENDENTAL, AxisKind, OpCode
from picograd.ir.stages import Binary, Param, Program
from picograd.ir.statements import For
from tests.gpu_programs import Array, Body, loop_range, param, run
from tests.on_devices import device_params

LANGUAGES = device_params("CUDASIM", "C", "OPENCL")
NUM_VALUES = 192
DTYPES_OF_CLASS = {
    "f": (dtypes.float32, dtypes.float64, dtypes.float16),
    "b": (dtypes.bool_,),
    "i": (dtypes.int64, dtypes.int8, dtypes.uint16),
    "x": (dtypes.int32, dtypes.uint64),
}
CASES_AT_ONCE = 60  # in one program
NUM_OPERANDS = {OpCode.WHERE: 3, OpCode.FMA: 3}
# Rounding of a result in units in the last place. The C library's functions are within 2 ulp of the exact value (glibc
# manual, "Errors in Math Functions"); on narrow floats both sides are a last rounding away from that.
ULPS_OF_FUNCTIONS = 2.5


def values_of(dtype: DType, seed: int) -> Array:
    """Returns special values of a type, and random ones for the rest."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, NUM_VALUES).astype(bool)
    if dtype.is_int:
        low, high = int(dtype.min), int(dtype.max)
        special = [v for v in (low, low + 1, -2, -1, 0, 1, 2, 7, high - 1, high) if low <= v <= high]
        values = [*special, *rng.integers(max(low, -70), min(high, 70), NUM_VALUES // 2).tolist()]
        values += rng.integers(low, high, NUM_VALUES - len(values), dtype.numpy, endpoint=True).tolist()
        return np.array(rng.permutation(np.array(values, dtype.numpy)))
    special_floats = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, np.inf, -np.inf, np.nan, 1e-40, 6e-8, 1e30, -1e30, 300.0]
    normal = rng.standard_normal(NUM_VALUES - len(special_floats)) * np.exp(rng.uniform(-6, 4, NUM_VALUES - 15))
    with np.errstate(over="ignore"):
        return np.array(rng.permutation(np.concatenate([special_floats, normal]))).astype(dtype.numpy)


class Case:
    """One operation on one type: a phase of the program under test."""

    def __init__(self, code: OpCode, dtype: DType, result: DType, bounded: bool, letter: str):
        self.code, self.dtype, self.result, self.bounded, self.letter = code, dtype, result, bounded, letter
        self.name = f"{code.name} {dtype} -> {result}{' bounded' if bounded else ''}"

    def phase(self, slots: list[int], out: int) -> tuple[tuple[For, ...], Rule | None]:
        """Returns statements that compute the operation element by element, and the row that will write it."""
        grid = loop_range(0, AxisKind.GRID, NUM_VALUES)
        body = Body()
        intervals: dict[Op, tuple[int, int]] = {}
        operands = [body.load(param(slot, NUM_VALUES, self.dtype), grid) for slot in slots]
        if self.bounded:
            for i, operand in enumerate(operands):
                operands[i] = body.let(OpCode.MOD, operand, const(13, self.dtype), dtype=self.dtype)
                operands[i] = body.let(OpCode.ADD, operands[i], const(1, self.dtype), dtype=self.dtype)
                intervals[operands[i]] = 1, 13
        if self.code is OpCode.WHERE:
            operands[0] = body.let(OpCode.CMPEQ, operands[0], operands[1], dtype=dtypes.bool_)
        op = Op(self.code, self.result, tuple(operands))
        row = rule_for(op, intervals)
        body.store(param(out, NUM_VALUES, self.result), grid, body.let(self.code, *operands, dtype=self.result))
        return (For(grid, body.done()),), row


def cases_of(rule: Rule) -> list[Case]:
    found = []
    for letter in rule.classes:
        for dtype in DTYPES_OF_CLASS[letter]:
            result = dtypes.bool_ if rule.code in COMPARE else dtype
            if rule.code is OpCode.THREEFRY:
                dtype = result = dtypes.uint64
            found.append(Case(rule.code, dtype, result, letter == "x" and dtype.kind == "i", letter))
    return found


def run_cases(cases: list[Case], device: str) -> tuple[list[Array], list[Array], list[Rule | None]]:
    """Returns what a device and what the evaluator make of each case, and the row it was written by."""
    params: list[Param] = []
    inputs, outputs, phases, rows = [], [], [], []
    slot_of: dict[tuple[DType, int], int] = {}
    for case in cases:
        for i in range(NUM_OPERANDS.get(case.code, 2)):
            if (case.dtype, i) not in slot_of:
                slot_of[case.dtype, i] = len(params)
                params.append(Param(case.dtype, NUM_VALUES, "in"))
                inputs.append(values_of(case.dtype, i))
    for case in cases:
        binary = case.code not in (*UNARY_CODES, OpCode.CAST)
        count = NUM_OPERANDS.get(case.code, 2) if binary else 1
        statements, row = case.phase([slot_of[case.dtype, i] for i in range(count)], len(params))
        phases.append(statements)
        rows.append(row)
        params.append(Param(case.result, NUM_VALUES, "out"))
        outputs.append(np.zeros(NUM_VALUES, case.result.numpy))
    program = Program("rules", tuple(params), (), tuple(phases))
    compiler = compiler_for(device)
    run(compiler.device, compiler.device.load(compiled(program, device)), [*inputs, *outputs])
    expected = [np.zeros_like(output) for output in outputs]
    evaluate_program(program, [*inputs, *expected])
    return outputs, expected, rows


def compiled(program: Program, device: str) -> Binary:
    """Returns the code of a program; the simulator's is not worth being optimised."""
    compiler = compiler_for(device)
    target = compiler.device.target
    source = compiler.backend.render(program, target)
    if device == "CUDASIM":
        return hostcxx.compile_source(source, target, "-O0")
    return compiler.backend.compile(source, target)


UNARY_CODES = frozenset(rule.code for rule in RULES if "{b}" not in rule.text and rule.code is not OpCode.THREEFRY)


def check(case: Case, got: Array, expected: Array) -> None:
    if not case.result.is_float:
        np.testing.assert_array_equal(got, expected, case.name)
        return
    inexact = case.code in TRANSCENDENTAL
    step, tiny = {"float64": (2.0**-52, 2.0**-1074), "float32": (2.0**-23, 2.0**-149), "float16": (2.0**-10, 2.0**-24)}[
        case.result.name
    ]
    wide, wide_expected = got.astype(np.float64), expected.astype(np.float64)
    rtol, atol = (ULPS_OF_FUNCTIONS * step, 2 * tiny) if inexact else (0.0, 0.0)
    np.testing.assert_allclose(wide, wide_expected, rtol=rtol, atol=atol, equal_nan=True, err_msg=case.name)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("device", LANGUAGES)
def test_every_row_means_what_the_evaluator_says(device: str) -> None:
    rules = [rule for rule in RULES if device != "OPENCL" or rule.code not in TRANSCENDENTAL - {OpCode.SQRT}]
    cases = [case for rule in rules for case in cases_of(rule)]
    used = set()
    for first in range(0, len(cases), CASES_AT_ONCE):
        some = cases[first : first + CASES_AT_ONCE]
        got, expected, rows = run_cases(some, device)
        used |= {row.name for row in rows if row is not None}
        for case, result, right in zip(some, got, expected):
            check(case, result, right)
    assert used == {rule.name for rule in rules}


CAST_DTYPES = tuple(t for t in dtypes.ALL)


@pytest.mark.variants(every=15)
@pytest.mark.parametrize("device", LANGUAGES)
@pytest.mark.parametrize("source", CAST_DTYPES, ids=str)
def test_every_cast_means_what_the_evaluator_says(source: DType, device: str) -> None:
    cases = [Case(OpCode.CAST, source, target, False, "") for target in CAST_DTYPES]
    got, expected, _ = run_cases(cases, device)
    for case, result, right in zip(cases, got, expected):
        same = result.astype(np.float64), right.astype(np.float64)
        np.testing.assert_array_equal(*same, case.name)


def test_casts_are_enumerated() -> None:
    classes = {"b", "i", "f", "n"}
    assert {target for _, target in CASTS} == classes and {source for source, _ in CASTS} == classes - {"n"}


BITS: list[tuple[DType, DType]] = [  # literals of C++ are int or longer, whatever the dtype
    (dtypes.int8, dtypes.uint8),
    (dtypes.int16, dtypes.float16),
    (dtypes.int32, dtypes.float32),
    (dtypes.int64, dtypes.uint64),
    (dtypes.int64, dtypes.float64),
    (dtypes.float16, dtypes.int16),
]


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("device", LANGUAGES)
@pytest.mark.parametrize(("source", "target"), BITS, ids=str)
def test_bits_of_a_constant_are_read_as_of_its_type(source: DType, target: DType, device: str) -> None:
    bits = pg.full((3,), 5, dtype=source, device=device).view(target)
    np.testing.assert_array_equal(bits.numpy(), np.full(3, 5, source.numpy).view(target.numpy))


@pytest.mark.parametrize("device", LANGUAGES)
def test_a_constant_index_outside_of_its_axis_is_reported(device: str) -> None:
    with pytest.raises(IndexingError, match="9 is out of range for axis 0 of length 3"):
        pg.ones(3, device=device)[pg.full((4,), 9, device=device)].tolist()


LITERALS: list[tuple[Any, DType, str]] = [
    (True, dtypes.bool_, "true"),
    (-5, dtypes.int64, "(-5)"),
    (1 << 40, dtypes.int64, "1099511627776ll"),
    (-(1 << 63), dtypes.int64, "(-9223372036854775807ll - 1)"),
    (-(1 << 31), dtypes.int32, "(-2147483647 - 1)"),
    (7, dtypes.uint32, "7u"),
    ((1 << 64) - 1, dtypes.uint64, "18446744073709551615ull"),
    (1.0, dtypes.float32, "1.0f"),
    (-0.0, dtypes.float32, "(-0.0f)"),
    (dtypes.float32.scalar(0.1), dtypes.float32, "0x1.99999ap-4f"),
    (0.1, dtypes.float64, "0x1.999999999999ap-4"),
    (float("inf"), dtypes.float32, "float32_of_bits(0x7f800000u)"),
    (float("nan"), dtypes.float64, "float64_of_bits(0x7ff8000000000000ull)"),
    (1.5, dtypes.bfloat16, "to_bfloat16(0x1.8p+0f)"),
]


@pytest.mark.parametrize(("value", "dtype", "text"), LITERALS, ids=[text for _, _, text in LITERALS])
def test_constant_is_exact(value: Any, dtype: DType, text: str) -> None:
    assert literal(value, dtype) == text


def test_constants_of_opencl_name_its_types() -> None:
    assert literal(-(1 << 63), dtypes.int64, OPENCL) == "(-9223372036854775807l - 1)"
    assert literal(1.5, dtypes.bfloat16, OPENCL) == "to_bfloat16_float32(0x1.8p+0f)"
