"""Indices in 32 bits: what fits is narrowed, what does not is not, at the very limits; and a program means the same."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.passes.narrow_indices import narrow_indices
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda import render as cuda
from picograd.dtype import DType
from picograd.evaluator import evaluate_program
from picograd.ir import build
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.spec import verify_program
from picograd.ir.stages import Program, ScheduleItem
from picograd.ir.statements import For, Let, Load, Store, walk
from picograd.ir.text_program import format_program
from picograd.rewrites.simplify import simplify_graph
from picograd.road import create_schedule, lower
from picograd_lab.reader import parse_program
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

I32, I64 = dtypes.int32, dtypes.int64
LIMIT = 1 << 31


def parsed(text: str) -> Program:
    """Returns the program of a text that leaves out what each PARAM is called."""
    params = re.findall(r"param (p(\d+)): \w+ (\w+)\[(.*)\]", text)
    memory = "".join(f"  memory {name} = {slot} {dtype} ({numel},)\n" for name, slot, dtype, numel in params)
    return parse_program(text.replace("  phase\n", f"{memory}  phase\n"))


def narrowed(text: str) -> Program:
    """Returns a program, narrowed and verified."""
    program = narrow_indices(parsed(text), itertools.count(1000))
    verify_program(program, after="narrow_indices")
    return program


def lines_of(text: str) -> list[str]:
    """Returns the statements of a narrowed program."""
    return format_program(narrowed(text)).partition("  phase\n")[2].splitlines()


def dtype_of(program: Program, name: str) -> DType:
    """Returns the dtype in which a VAR is computed."""
    (found,) = [s.var.dtype for s in walk(program.phases[0]) if isinstance(s, Let) and s.var.arg[0] == name]
    return found


def test_indices_become_int32_and_what_is_stored_stays_int64() -> None:
    assert lines_of("""program p
  param p0: in float32[1000]
  param p1: out float32[1000]
  param p2: out int64[1000]
  phase
    for r0 in grid(100):
      v1: int64 = r0 * 10
      for r1 in block(10):
        v2: int64 = v1 + r1
        load v3: float32 = p0[v2]
        p1[v2] = v3
        p2[v2] = v2
        v4: bool = v2 < 500
        if v4:
          p2[v2] = r1""") == [
        "    for r0: int32 in grid(100):",
        "      v1: int32 = r0 * int32(10)",
        "      for r1: int32 in block(10):",
        "        v1000: int64 = cast(r1, int64)",
        "        v2: int32 = v1 + r1",
        "        v1001: int64 = cast(v2, int64)",
        "        load v3: float32 = p0[v2]",
        "        p1[v2] = v3",
        "        p2[v2] = v1001",
        "        v4: bool = v2 < int32(500)",
        "        if v4:",
        "          p2[v2] = v1000",
    ]


@pytest.mark.parametrize(("numel", "dtype"), [(LIMIT, I32), (LIMIT + 256, I64)])
def test_an_index_of_2_31_elements_is_the_last_that_fits(numel: int, dtype: DType) -> None:
    program = narrowed(f"""program p
  param p0: in int8[{numel}]
  param p1: out int8[{numel}]
  phase
    for r0 in grid({numel // 256}):
      v1: int64 = r0 * 256
      for r1 in block(256):
        v2: int64 = v1 + r1
        load v3: int8 = p0[v2]
        p1[v2] = v3""")
    (load,) = [s for s in walk(program.phases[0]) if isinstance(s, Load)]
    assert load.index.dtype is dtype and dtype_of(program, "v2") is dtype


@pytest.mark.parametrize(("extent", "dtype"), [(LIMIT - 1, I32), (LIMIT, I64)])
def test_a_loop_counts_in_32_bits_as_far_as_its_end_fits(extent: int, dtype: DType) -> None:
    program = narrowed(f"""program p
  param p0: out int8[{extent}]
  phase
    for r0 in grid(1):
      for r1 in loop({extent}):
        p0[r1] = int8(1)""")
    outer, inner = (s for s in walk(program.phases[0]) if isinstance(s, For))
    assert (outer.range.dtype, inner.range.dtype) == (I32, dtype)
    (store,) = [s for s in walk(program.phases[0]) if isinstance(s, Store)]
    assert store.index.dtype is dtype


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("r0 * -2147483648", I32),  # r0 is 0 or 1
        ("r0 * -2147483649", I64),
        ("r0 + 2147483646", I32),
        ("r0 + 2147483647", I64),
        ("r0 * 2147483648", I64),
        ("min(r0, 5000000000)", I64),  # the result fits, an operand does not
        ("v1 // 1048576", I64),
        ("v1 % 10", I64),
        ("v2 // 1048576", I32),
        ("v2 // r0", I64),  # by 0
    ],
)
def test_the_result_and_all_operands_fit(expression: str, dtype: DType) -> None:
    program = narrowed(f"""program p
  param p0: out int64[1]
  phase
    for r0 in grid(2):
      v1: int64 = r0 * 4294967296
      v2: int64 = r0 * 1073741824
      v3: int64 = {expression}
      p0[0] = v3""")
    assert dtype_of(program, "v1") is I64 and dtype_of(program, "v2") is I32
    assert dtype_of(program, "v3") is dtype


def test_what_memory_holds_keeps_its_64_bits() -> None:
    text = """program p
  param p0: in int64[2]
  param p1: out int64[2]
  param p2: out bool[2]
  phase
    for r0 in grid(2):
      load v1: int64 = p0[r0]
      v2: int64 = v1 + 1
      v3: int64 = v2 % 1000
      v4: int64 = v3 + r0
      v5: bool = v1 < v4
      p1[r0] = v4
      p2[r0] = v5"""
    program = narrowed(text)
    assert [dtype_of(program, name) for name in ("v2", "v3", "v4")] == [I64, I64, I32]
    values = np.array([I64.max, -5_000_000_000], np.int64)
    out, less = np.zeros(2, np.int64), np.zeros(2, np.bool_)
    evaluate_program(program, [values, out, less])
    assert out.tolist() == [(int(I64.min)) % 1000, -4_999_999_999 % 1000 + 1] and less.tolist() == [False, True]


@pytest.mark.parametrize(("greatest", "dtype"), [(LIMIT - 1, I32), (LIMIT, I64)])
def test_a_symbolic_integer_is_read_in_32_bits_where_its_bounds_allow(greatest: int, dtype: DType) -> None:
    program = narrowed(f"""program p
  variable n: int64 0..{greatest}
  param p0: out int64[n]
  phase
    v1: int64 = n + 255
    v2: int64 = v1 // 256
    for r0 in grid(v2):
      v3: int64 = n // 2
      v4: bool = r0 < v3
      p0[r0] = v3 when v4""")
    assert dtype_of(program, "v2") is I64, "the number of blocks is computed before them"
    assert dtype_of(program, "v3") is dtype
    out = np.full(100, -1)
    evaluate_program(program, [out], {"n": 100})
    assert out.tolist() == [50] + [-1] * 99


FORMS = ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} // {b}", "{a} % {b}", "min({a}, {b})", "max({a}, {b})"]


def random_program(rng: np.random.Generator) -> str:
    """Returns a program of operations on symbolic integers and loops, whose values lie around the limits."""
    names, lines = ["n", "m", "r0", "r1"], []
    edges = [1, 2, 3, 7, 100, 46341, LIMIT - 1, LIMIT, LIMIT + 1, 1 << 40]
    for k in range(12):
        a, b = rng.choice(names, 2)
        number = int(rng.choice(edges)) * int(rng.choice([-1, 1]))
        right = str(rng.choice([b, str(number)]))
        form = str(rng.choice(FORMS))
        lines.append(f"        v{k}: int64 = {form.format(a=a, b=right)}")
        lines.append(f"        c{k}: bool = v{k} < {b}")
        lines.append(f"        w{k}: int64 = where(c{k}, v{k}, {a})")
        lines += [f"        p0[{k}] = w{k}", f"        p1[{k}] = c{k}"]
        names += [f"v{k}", f"w{k}"]
    ends = [int(rng.choice([5, 1000, LIMIT // 3, LIMIT - 1, LIMIT, 1 << 33])) for _ in range(2)]
    body = "\n".join(lines)
    return f"""program p
  variable n: int64 0..{ends[0]}
  variable m: int64 {-ends[1]}..{ends[1]}
  param p0: out int64[12]
  param p1: out bool[12]
  phase
    for r0 in grid(2):
      for r1 in loop(3):
{body}"""


@pytest.mark.variants(first=1)
def test_random_arithmetic_around_the_limits_means_the_same() -> None:
    rng = np.random.default_rng(0)
    num_narrow = num_wide = 0
    for _ in range(150):
        text = random_program(rng)
        before, after = parsed(text), narrowed(text)
        widths = [s.var.dtype for s in walk(after.phases[0]) if isinstance(s, Let) and s.var.arg[0][0] in "vw"]
        num_narrow, num_wide = num_narrow + widths.count(I32), num_wide + widths.count(I64)
        (_, _, high), (_, low, top) = (variable.arg for variable in before.variables)
        for n, m in itertools.product((0, high // 2, high), (low, 1, top)):
            results = []
            for program in (before, after):
                numbers, truths = np.zeros(12, np.int64), np.zeros(12, np.bool_)
                evaluate_program(program, [numbers, truths], {"n": n, "m": m})
                results.append((numbers.tolist(), truths.tolist()))
            assert results[0] == results[1], text
    assert num_narrow > 500 and num_wide > 500


# ---- whole kernels ----
def turned(rows: int, columns: int) -> ScheduleItem:
    """Returns the kernel of int8 (rows, columns) -> (columns, rows)."""
    x = Op(OpCode.PARAM, dtypes.int8, (), (0, (rows, columns)))
    (item,) = create_schedule(simplify_graph([Op(OpCode.CONTIGUOUS, x.dtype, (build.permute(x, (1, 0)),))])).items
    assert isinstance(item, ScheduleItem)
    return item


@pytest.mark.parametrize(("rows", "is_narrow"), [(1 << 16, True), ((1 << 16) + 4, False)])
def test_a_kernel_of_more_elements_than_2_31_has_indices_of_64_bits(rows: int, is_narrow: bool) -> None:
    program = lower(turned(rows, 1 << 15).kernel, GPU_TARGET)
    accesses = [s for s in walk(program.phases[0]) if isinstance(s, Load | Store)]
    in_memory = [s.index.dtype for s in accesses if s.memory.code is OpCode.PARAM]
    assert set(in_memory) == ({I32} if is_narrow else {I64})
    source = cuda.render(program, GPU_TARGET)
    target = Target("CUDA", "cuda", "sm_80")
    assert nvrtc.compile_source(source, target).data
    verify_program(program, after="lower")


def test_a_cpu_computes_indices_in_64_bits() -> None:
    for target in CPU_TARGETS:
        program = lower(turned(100, 200).kernel, target)
        assert "int32" not in format_program(program)
