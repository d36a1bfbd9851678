"""What legalize makes of every operation: run natively and compared with NumPy, bit for bit where one rounding decides.

Functions are measured in ulp of the float they return, against NumPy in the next wider float.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.passes.legalize import Legalizer, legalize_statements
from picograd.codegen.passes.linearize import linearize
from picograd.device import Target
from picograd.devices.compile_llvm import host_target
from picograd.devices.ptx.compile import gpu_target
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.ir.build import rough_exp
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import TRANSCENDENTAL, AxisKind, OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.statements import For, If, Load, Store
from picograd.record import replace
from tests.cpu_programs import loop_range, run

Array = np.ndarray[Any, Any]
Function = Callable[..., Op]
SINGLE, DOUBLE, NARROW = dtypes.float32, dtypes.float64, [t for t in dtypes.ALL if t.is_float and t.itemsize < 4]
SIGNED = [dtypes.int8, dtypes.int32, dtypes.int64]
UNSIGNED = [dtypes.uint8, dtypes.uint32, dtypes.uint64]
LANES = 16
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0]
# What the docstrings of codegen/passes/functions.py and trigonometry.py promise, in ulp.
ULP = {
    OpCode.EXP: (0.9, 0.9), OpCode.EXP2: (0.9, 1.0), OpCode.LOG: (0.8, 0.8), OpCode.LOG2: (1.0, 0.6),
    OpCode.SIN: (1.6, 2.1), OpCode.COS: (1.6, 2.1), OpCode.TANH: (1.6, 1.6), OpCode.ERF: (1.6, 1.1),
}  # fmt: skip
erf = np.frompyfunc(math.erf, 1, 1)
REFERENCE: dict[OpCode, Callable[[Array], Any]] = {
    OpCode.EXP: np.exp, OpCode.EXP2: np.exp2, OpCode.LOG: np.log, OpCode.LOG2: np.log2, OpCode.SIN: np.sin,
    OpCode.COS: np.cos, OpCode.TANH: np.tanh, OpCode.ERF: lambda x: np.asarray(erf(x.astype(np.float64)), np.float64),
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of overflow and NaN


def legalize(root: Op, target: Target) -> Op:
    """Returns one expression as a target gets it."""
    return Legalizer(target).expression(root)


def of(code: OpCode, dtype: DType | None = None) -> Function:
    """Returns the function that makes an Op of its operands, of their dtype unless one is given."""
    boolean = code in (OpCode.CMPLT, OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE)
    return lambda *src: Op(code, dtype or (dtypes.bool_ if boolean else src[-1].dtype), src)


def map_native(function: Function, arrays: Sequence[Array], inputs: Sequence[DType], output: DType) -> Array:
    """Returns function(elements of arrays...) for every element, by vectors and a scalar tail."""
    count = arrays[0].size
    params = [Op(OpCode.PARAM, d, (), (i, (count,))) for i, d in enumerate((*inputs, output))]
    index, lane, rest = loop_range(0, count // LANES, AxisKind.GRID), loop_range(1, LANES, AxisKind.VECTOR), None
    rest = loop_range(2, count % LANES, AxisKind.GRID)

    def at(place: Op) -> Store:
        loads = [Op(OpCode.LOAD, p.dtype, (p, place)) for p in params[:-1]]
        return Store(params[-1], place, function(*loads))

    whole = const(count // LANES * LANES, dtypes.int64)
    free = (For(index, (For(lane, (at(index * LANES + lane),)),)), For(rest, (at(rest + whole),)))
    phase = linearize(legalize_statements(free, host_target()), itertools.count(1))
    roles = ["in"] * len(inputs) + ["out"]
    declared = tuple(Param(d, count, role) for d, role in zip((*inputs, output), roles))
    (result,) = run(Program("mapped", declared, (), (phase,)), [*arrays, np.zeros(count, output.numpy)])
    return result


def meaning(function: Function, arrays: Sequence[Array], inputs: Sequence[DType]) -> Array:
    """The same by the evaluator."""
    params = [Op(OpCode.PARAM, d, (), (i, (a.size,))) for i, (d, a) in enumerate(zip(inputs, arrays))]
    return evaluate([function(*params)], dict(zip(params, arrays)))[0]


def pairs(values: Sequence[Any], dtype: DType) -> list[Array]:
    """Returns all pairs of values, as two arrays."""
    first, second = np.meshgrid(np.array(values).astype(dtype.numpy), np.array(values).astype(dtype.numpy))
    return [first.ravel().copy(), second.ravel().copy()]


def same(result: Array, expected: Array) -> None:
    """Fails unless both have the same values; every NaN is as good as another, and -0.0 is not 0.0."""
    assert result.dtype == expected.dtype
    wide = [x.astype(np.float64) if x.dtype.kind not in "biu" else x for x in (result, expected)]
    np.testing.assert_array_equal(*wide)
    if result.dtype.kind not in "biu":
        there = ~np.isnan(wide[0])
        np.testing.assert_array_equal(np.signbit(wide[0][there]), np.signbit(wide[1][there]))


def ulps(result: Array, exact: Array) -> float:
    """Returns the greatest error in ulp of the result's dtype; fails where infinity, NaN or a sign is wrong."""
    expected = exact.astype(result.dtype)
    finite = np.isfinite(expected) & np.isfinite(result)
    # where rounding decides between the greatest float and infinity an ulp is an ulp
    edge = np.isinf(expected) != np.isinf(result)
    assert not np.any(edge & (np.abs(exact) < np.finfo(result.dtype).max))
    np.testing.assert_array_equal(result[~finite & ~edge], expected[~finite & ~edge])
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[there]), np.signbit(expected[there]))
    size = np.maximum(np.spacing(np.abs(expected[finite])), np.finfo(result.dtype).smallest_subnormal)
    error = np.abs(result[finite].astype(exact.dtype) - exact[finite]) / size.astype(exact.dtype)
    return float(error.max(initial=0.0))


def samples(dtype: DType, rng: np.random.Generator) -> Array:
    """Every magnitude, densely where functions change, and what is special."""
    whole = dtype.numpy
    anything = rng.integers(0, 1 << (8 * dtype.itemsize), 60_000, dtype=f"u{dtype.itemsize}").view(whole)
    tiny, big = np.finfo(whole).smallest_subnormal, np.finfo(whole).max
    edges = [*SPECIAL, tiny, -tiny, big, -big, np.finfo(whole).tiny]
    spread = [np.linspace(-2, 2, 20_001), np.linspace(-110, 100, 20_001), rng.uniform(-30, 30, 20_000)]
    limits = np.linspace(-760, 720, 20_001) if dtype is DOUBLE else np.linspace(87, 90, 2_001)
    return np.concatenate([anything, *(np.asarray(part).astype(whole) for part in (*spread, limits, edges))])


# ---- functions ----
@pytest.fixture(params=[True, False], ids=["fma", "no_fma"])
def either_processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Has functions written for a processor with the instruction that multiplies and adds, then for one without."""
    target = replace(host_target(), has_fma=request.param)
    monkeypatch.setattr("tests.codegen.passes.test_legalize.host_target", lambda: target)
    return bool(request.param)


@pytest.mark.variants(every=2)
@pytest.mark.usefixtures("either_processor")
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("code", ULP, ids=lambda c: c.name)
def test_function_is_within_its_bound(code: OpCode, dtype: DType, rng: np.random.Generator) -> None:
    x = samples(dtype, rng)
    wider = np.float64 if dtype is SINGLE or code is OpCode.ERF else np.longdouble
    exact = REFERENCE[code](x.astype(wider))
    # where long double is no wider than float64 NumPy's own error counts too
    slack = 0.6 if dtype is DOUBLE and np.finfo(wider).nmant == 52 else 0.0
    assert ulps(map_native(of(code), [x], [dtype], dtype), exact) <= ULP[code][dtype is DOUBLE] + slack


@pytest.mark.usefixtures("either_processor")
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_sine_of_huge_arguments(dtype: DType, rng: np.random.Generator) -> None:
    """Up to the largest float: as many bits of pi are needed as the argument has before its point."""
    x = (2.0 ** rng.uniform(20, 127 if dtype is SINGLE else 1023, 50_000)).astype(dtype.numpy)
    x[:3] = [1e22, 3.4e38, 6381956970095103.0 * 2.0**60]
    exact = np.sin(x.astype(np.float64 if dtype is SINGLE else np.longdouble))
    assert ulps(map_native(of(OpCode.SIN), [x], [dtype], dtype), exact) <= ULP[OpCode.SIN][dtype is DOUBLE] + 0.6


@pytest.mark.usefixtures("either_processor")
@pytest.mark.parametrize("dtype, bound", [(SINGLE, 0.51), (DOUBLE, 1.2)], ids=str)
def test_powers(dtype: DType, bound: float, rng: np.random.Generator) -> None:
    corner = np.array([*SPECIAL, -3.0, 4.0, 0.25, 2.0**60, -(2.0**53) - 1, 1e-40])
    x, y = (corner.repeat(len(corner)), np.tile(corner, len(corner)))
    x = np.concatenate([x, rng.uniform(0, 4, 50_000), rng.uniform(0.999, 1.001, 20_000), -rng.integers(0, 9, 9_000)])
    y = np.concatenate([y, rng.uniform(-20, 20, 50_000), rng.uniform(-3e4, 3e4, 20_000), rng.integers(-9, 9, 9_000)])
    x, y = x.astype(dtype.numpy), y.astype(dtype.numpy)
    wider = np.float64 if dtype is SINGLE else np.longdouble
    exact = np.power(x.astype(wider), y.astype(wider))
    assert ulps(map_native(of(OpCode.POW), [x, y], [dtype, dtype], dtype), exact) <= bound + 0.1


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_multiply_add_rounds_once(either_processor: bool, dtype: DType, rng: np.random.Generator) -> None:
    """Also where nearly all of the product is taken away: what its rounding lost is left."""
    a, b = (rng.standard_normal(20_000) * 2.0 ** rng.integers(-40, 40, 20_000) for _ in range(2))
    a, b = a.astype(dtype.numpy), b.astype(dtype.numpy)
    c = np.where(np.arange(a.size) % 2, -a * b, a * b * rng.standard_normal(a.size)).astype(dtype.numpy)
    special = np.array([*SPECIAL, np.finfo(dtype.numpy).max, 1e30], dtype.numpy)
    x, y = (part.ravel() for part in np.meshgrid(special, special))
    arrays = [np.concatenate(parts) for parts in ((a, x), (b, y), (c, y[::-1]))]
    result, expected = map_native(of(OpCode.FMA), arrays, [dtype] * 3, dtype), meaning(of(OpCode.FMA), arrays, [dtype] * 3)
    tree = legalize(Op(OpCode.FMA, dtype, tuple(Op(OpCode.PARAM, dtype, (), (i, ())) for i in range(3))), host_target())
    assert (tree.code is OpCode.FMA) == either_processor
    same(result, expected)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0])
def test_common_exponents_are_products_and_roots(exponent: float) -> None:
    x = np.array([*SPECIAL, 7.1, -7.1, 1e-30], np.float32)
    result = map_native(lambda v: Op(OpCode.POW, SINGLE, (v, const(exponent, SINGLE))), [x], [SINGLE], SINGLE)
    assert ulps(result, np.power(x.astype(np.float64), np.full(x.shape, exponent))) <= 1.5  # two roundings
    tree = legalize(Op(OpCode.POW, SINGLE, (Op(OpCode.PARAM, SINGLE, (), (0, ())), const(exponent, SINGLE))), LLVM)
    assert len(toposort([tree])) < 10


LLVM, CUDA = host_target(), Target("CUDA", "cuda", "sm_90", block_threads=256)
PTX = gpu_target(9, 0, 48 * 1024)


@pytest.mark.parametrize("code", sorted(TRANSCENDENTAL - {OpCode.THREEFRY}, key=str), ids=lambda c: c.name)
def test_cuda_keeps_its_own_functions(code: OpCode) -> None:
    x = Op(OpCode.PARAM, SINGLE, (), (0, ()))
    op = Op(code, SINGLE, (x, x) if code is OpCode.POW else (x,))
    assert legalize(op, CUDA) is op
    left = {o.code for o in toposort([legalize(op, LLVM)])}
    assert not left & TRANSCENDENTAL


def test_a_rough_exponential_stays_where_an_instruction_computes_it() -> None:
    """On GPUs of NVIDIA, by both roads; elsewhere it is as exact as any other."""
    rough = rough_exp(Op(OpCode.PARAM, SINGLE, (), (0, ())))
    exact = Op(OpCode.EXP2, SINGLE, rough.src)
    assert legalize(rough, CUDA) is rough and legalize(rough, PTX) is rough
    for target in (LLVM, Target("OPENCL", "opencl", "any", block_threads=256)):
        assert legalize(rough, target) is legalize(exact, target)
    assert OpCode.EXP2 not in {op.code for op in toposort([legalize(exact, PTX)])}


def one_and_erf(x: Op) -> Op:
    return Op(OpCode.ADD, x.dtype, (Op(OpCode.ERF, x.dtype, (x,)), const(1.0, x.dtype)))


def test_one_and_erf_is_as_exact_as_a_sum_without_an_erf() -> None:
    """A factor of gelu: the error is that of a float32 near 1, on either side, and the result 0 far below."""
    x = np.concatenate([np.linspace(-12, 12, 200_001), SPECIAL, [3.4e38, -3.4e38, 1e-40]]).astype(np.float32)
    found = map_native(lambda value: legalize(one_and_erf(value), CUDA), [x], [SINGLE], SINGLE)
    exact = np.array([1 + math.erf(value) for value in x.astype(np.float64)])
    assert np.array_equal(np.isnan(found), np.isnan(exact)) and not found[x < -12].any()
    error = np.abs(found - exact)
    assert np.nanmax(error) <= 2.4e-7 and np.nanmax(error[x < 0]) <= 1.2e-7
    single, double = (Op(OpCode.PARAM, dtype, (), (0, ())) for dtype in (SINGLE, DOUBLE))
    codes = [op.code for op in toposort([legalize(one_and_erf(single), CUDA)])]
    assert OpCode.ERF not in codes and codes.count(OpCode.FMA) == 7
    assert legalize(one_and_erf(double), CUDA) is one_and_erf(double)


def test_exp_is_short() -> None:
    """It stands inside softmax: 6 steps of the polynomial, 4 of the reduction, 6 of the power of two, 2 limits."""
    tree = legalize(Op(OpCode.EXP, SINGLE, (Op(OpCode.PARAM, SINGLE, (), (0, ())),)), LLVM)
    steps = [o for o in toposort([tree]) if o.src and o.code is not OpCode.BITCAST]
    assert len(steps) <= 19


# ---- narrow floats ----
def every(dtype: DType) -> Array:
    """Returns every value of a float of 8 or 16 bits."""
    return np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype.numpy)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("wider", [SINGLE, DOUBLE], ids=str)
def test_narrow_float_widens_exactly(dtype: DType, wider: DType) -> None:
    same(map_native(of(OpCode.CAST, wider), [every(dtype)], [dtype], wider), every(dtype).astype(wider.numpy))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("wider", [SINGLE, DOUBLE], ids=str)
def test_float_rounds_to_nearest_even_when_narrowed(dtype: DType, wider: DType, rng: np.random.Generator) -> None:
    values = every(dtype).astype(np.float64)
    finite = np.sort(values[np.isfinite(values)])
    ties = (finite[1:] + finite[:-1]) / 2
    # what rounds in float32 to two places above a tie, from below, and the other way round
    two_off = [np.nextafter(np.nextafter(ties.astype(np.float32), side), side) for side in np.float32([np.inf, -np.inf])]
    beside = np.concatenate([off + (ties - off) * 2.0**-20 for off in np.array(two_off, np.float64)])
    near = np.concatenate([finite, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf), beside])
    x = np.concatenate([near, samples(SINGLE, rng).astype(np.float64)]).astype(wider.numpy)
    expected = meaning(of(OpCode.CAST, dtype), [x], [wider])
    same(map_native(of(OpCode.CAST, dtype), [x], [wider], dtype), expected)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize(
    "code",
    [OpCode.ADD, OpCode.MUL, OpCode.DIV, OpCode.MAX, OpCode.MIN, OpCode.CMPLT, OpCode.CMPEQ],
    ids=lambda c: c.name,
)
def test_arithmetic_of_narrow_floats_is_that_of_float32_rounded(code: OpCode, dtype: DType) -> None:
    arrays = pairs([*SPECIAL, 0.1, 300.0, -1e-3, 1e-7, 6e4], dtype)
    output = dtypes.bool_ if code in (OpCode.CMPLT, OpCode.CMPEQ) else dtype
    same(map_native(of(code), arrays, [dtype] * 2, output), meaning(of(code), arrays, [dtype] * 2))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_functions_of_narrow_floats(dtype: DType) -> None:
    x = every(dtype)
    result = map_native(of(OpCode.EXP), [x], [dtype], dtype).astype(np.float64)
    expected = meaning(of(OpCode.EXP), [x], [dtype]).astype(np.float64)
    # rounded twice: a float32 that is 1 ulp off may fall on the other side of a tie, one place of the narrow float
    close = np.isclose(result, expected, rtol=2.0 ** -(2 if dtype.itemsize == 1 else 7), atol=1e-7, equal_nan=True)
    assert close.all()
    assert (result == expected)[~np.isnan(expected)].mean() > 0.999


def test_float16_without_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """By integer operations alone, to the same bits."""
    monkeypatch.setattr("picograd.codegen.passes.legalize.has_half", lambda target: False)
    x = np.concatenate([np.random.default_rng(0).standard_normal(5000) * 10.0 ** np.arange(-8, 8).repeat(5000)[:5000],
                        every(dtypes.float16).astype(np.float64)]).astype(np.float32)  # fmt: skip
    same(map_native(of(OpCode.CAST, dtypes.float16), [x], [SINGLE], dtypes.float16), x.astype(np.float16))
    halves = every(dtypes.float16)
    same(map_native(of(OpCode.CAST, SINGLE), [halves], [dtypes.float16], SINGLE), halves.astype(np.float32))


# ---- arithmetic ----
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize(
    "code",
    [OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.DIV, OpCode.MAX, OpCode.MIN, OpCode.MOD, OpCode.IDIV, OpCode.CMPLT,
     OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE],
    ids=lambda c: c.name,
)  # fmt: skip
def test_arithmetic_of_floats(code: OpCode, dtype: DType) -> None:
    arrays = pairs([*SPECIAL, 0.1, -7.3, 1e30, 1e-40], dtype)
    output = dtypes.bool_ if code.name.startswith("CMP") else dtype
    result, expected = map_native(of(code), arrays, [dtype] * 2, output), meaning(of(code), arrays, [dtype] * 2)
    if code in (OpCode.MAX, OpCode.MIN):  # which zero wins is nobody's promise
        result, expected = result + 0.0, expected + 0.0
    same(result.astype(output.numpy), expected.astype(output.numpy))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("code", [OpCode.NEG, OpCode.RECIPROCAL, OpCode.SQRT, OpCode.FLOOR], ids=lambda c: c.name)
def test_functions_with_an_instruction(code: OpCode, dtype: DType) -> None:
    x = np.array([*SPECIAL, 0.1, -7.3, 1e30, 1e-40, 2.0**52 + 1, -0.5], dtype.numpy)
    same(map_native(of(code), [x], [dtype], dtype), meaning(of(code), [x], [dtype]))


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint8], ids=str)
def test_the_floor_of_a_whole_number_is_the_number(dtype: DType) -> None:
    x = np.array([0, 1, 7, 100], dtype.numpy)
    same(map_native(of(OpCode.FLOOR), [x], [dtype], dtype), x)


def test_every_expression_of_a_statement_is_rewritten() -> None:
    def floor(x: Op) -> Op:
        return Op(OpCode.FLOOR, x.dtype, (x,))

    i = Op(OpCode.RANGE, dtypes.int64, (const(9, dtypes.int64),), (1, AxisKind.LOOP))
    memory, var = Op(OpCode.PARAM, dtypes.int64, (), (0, (9,))), Op(OpCode.VAR, dtypes.int64, (), ("v", 1))
    holds = Op(OpCode.CMPLT, dtypes.bool_, (i, const(5, dtypes.int64)))
    odd = Op(OpCode.CMPLT, dtypes.bool_, (floor(i), const(5, dtypes.int64)))
    written = (Load(var, memory, floor(i), odd), If(odd, (Store(memory, floor(i), floor(var), odd),)))
    expected = (Load(var, memory, i, holds), If(holds, (Store(memory, i, var, holds),)))
    assert legalize_statements((For(i, written),), host_target()) == (For(i, expected),)


@pytest.mark.parametrize("constant", [0.0, 1.5, math.nan])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("code", [OpCode.MAX, OpCode.MIN], ids=lambda c: c.name)
def test_extremum_with_a_constant_keeps_nan(code: OpCode, constant: float, first: bool) -> None:
    x = np.array([*SPECIAL, 5.0], np.float32)
    operands = (lambda v, c: (c, v)) if first else (lambda v, c: (v, c))
    result = map_native(lambda v: Op(code, SINGLE, operands(v, const(constant, SINGLE))), [x], [SINGLE], SINGLE)
    expected = (np.maximum if code is OpCode.MAX else np.minimum)(x, np.float32(constant))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=str)
@pytest.mark.parametrize(
    "code",
    [OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.IDIV, OpCode.MOD, OpCode.MAX, OpCode.MIN, OpCode.AND, OpCode.OR,
     OpCode.XOR, OpCode.SHL, OpCode.SHR, OpCode.CMPLT, OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE, OpCode.POW],
    ids=lambda c: c.name,
)  # fmt: skip
def test_arithmetic_of_integers(code: OpCode, dtype: DType) -> None:
    """It wraps; division rounds down and by 0 gives 0; shifts by the width or more leave nothing but the sign."""
    least, most = int(dtype.min), int(dtype.max)
    values = {0, 1, 2, 3, 7, 64, 100, dtype.bits - 1, dtype.bits, most, most - 1, most // 3}
    values |= {least, least + 1, -1, -2, -3, -7} if dtype.kind == "i" else set()
    array = np.array([v for v in sorted(values) if least <= v <= most], dtype.numpy)
    arrays = pairs(array, dtype)
    output = dtypes.bool_ if code.name.startswith("CMP") else dtype
    same(map_native(of(code), arrays, [dtype] * 2, output), meaning(of(code), arrays, [dtype] * 2))


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 64, -1, -2, -7, 0])
@pytest.mark.parametrize("code", [OpCode.IDIV, OpCode.MOD], ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64], ids=str)
def test_division_by_a_constant(code: OpCode, dtype: DType, divisor: int) -> None:
    x = np.array([*range(-20, 20), dtype.min, dtype.max], dtype.numpy)
    function = lambda v: Op(code, dtype, (v, Op(OpCode.CONST, dtype, (), divisor)))  # noqa: E731
    result = map_native(function, [x], [dtype], dtype)
    divisors = np.full_like(x, divisor)
    same(result, meaning(of(code), [x, divisors], [dtype] * 2))


@pytest.mark.parametrize("exponent", [-3, -2, -1, 0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.uint8], ids=str)
def test_a_power_of_integers_to_a_constant(dtype: DType, exponent: int) -> None:
    """To a negative exponent only 1 and -1 have one."""
    if dtype.kind == "u":
        exponent = abs(exponent)
    x = np.array([v for v in (-7, -2, -1, 0, 1, 2, 3, 100) if v >= dtype.min], dtype.numpy)
    function = lambda v: Op(OpCode.POW, dtype, (v, Op(OpCode.CONST, dtype, (), exponent)))  # noqa: E731
    result = map_native(function, [x], [dtype], dtype)
    same(result, meaning(of(OpCode.POW), [x, np.full_like(x, exponent)], [dtype] * 2))


def test_index_division_is_left_to_the_processor() -> None:
    index = loop_range(0, 1000, AxisKind.GRID)
    op = Op(OpCode.IDIV, dtypes.int64, (index, const(7, dtypes.int64)))
    assert legalize(op, LLVM) is op
    assert legalize(Op(OpCode.IDIV, dtypes.int64, (index - 5, const(7, dtypes.int64))), LLVM).code is not OpCode.IDIV


@pytest.mark.parametrize("code", [OpCode.AND, OpCode.OR, OpCode.XOR, OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN,
                                  OpCode.CMPLT, OpCode.CMPEQ, OpCode.CMPNE], ids=lambda c: c.name)  # fmt: skip
def test_arithmetic_of_bools(code: OpCode) -> None:
    arrays = pairs([False, True], dtypes.bool_)
    expected = meaning(of(code), arrays, [dtypes.bool_] * 2)
    np.testing.assert_array_equal(map_native(of(code), arrays, [dtypes.bool_] * 2, dtypes.bool_), expected)


def test_fma_rounds_once(rng: np.random.Generator) -> None:
    x = rng.standard_normal(2000).astype(np.float32)
    arrays = [1 + x * np.float32(1e-4), 1 - x * np.float32(1e-4), np.full_like(x, -1)]
    same(map_native(of(OpCode.FMA), arrays, [SINGLE] * 3, SINGLE), meaning(of(OpCode.FMA), arrays, [SINGLE] * 3))
    whole = [np.arange(-5, 5), np.arange(10), np.full(10, 3)]
    same(map_native(of(OpCode.FMA), whole, [dtypes.int64] * 3, dtypes.int64), whole[0] * whole[1] + 3)


# ---- casts ----
@pytest.mark.variants(every=2)
@pytest.mark.parametrize("before", dtypes.ALL, ids=str)
def test_cast(before: DType) -> None:
    """Floats truncate and saturate as integers, NaN gives 0; integers wrap; anything but 0 is True."""
    if before.is_float:
        values: list[Any] = [*SPECIAL, 0.9, -0.9, 127.5, 255.0, 256.0, -129.0, 65504.0, 3e9, -3e9, 1e19, -1e19, 1e-3]
    else:
        candidates = (0, 1, 2, 77, 255, 256, -1, -128, 1 << 24, (1 << 24) + 1, (1 << 31) - 1, 1 << 40, -(1 << 62))
        values = [v for v in candidates if before.min <= v <= before.max]
    x = np.array(values).astype(before.numpy)
    for after in (dtype for dtype in dtypes.ALL if dtype is not before):
        same(map_native(of(OpCode.CAST, after), [x], [before], after), meaning(of(OpCode.CAST, after), [x], [before]))


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL if t.is_float], ids=str)
def test_bitcast_keeps_bits(dtype: DType) -> None:
    bits = next(t for t in dtypes.ALL if t.kind == "u" and t.itemsize == dtype.itemsize)
    x = np.random.default_rng(0).integers(0, 1 << (8 * dtype.itemsize), 100, dtype=bits.numpy)
    there = map_native(of(OpCode.BITCAST, dtype), [x], [bits], dtype)
    assert there.tobytes() == x.tobytes()
    assert map_native(of(OpCode.BITCAST, bits), [there], [dtype], bits).tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_where_chooses(dtype: DType) -> None:
    a, b = (np.arange(20) % 7).astype(dtype.numpy), (np.arange(20) % 5).astype(dtype.numpy)
    condition = np.arange(20) % 3 == 0
    result = map_native(of(OpCode.WHERE), [condition, a, b], [dtypes.bool_, dtype, dtype], dtype)
    same(result, np.where(condition, a, b))


# ---- random bits ----
@pytest.mark.parametrize(
    "counter, key, expected",
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(
    counter: tuple[int, int], key: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Random123's kat_vectors, threefry2x32 with 20 rounds: words of counter and key, words of the result."""
    words = [np.array([high << 32 | low], np.uint64) for high, low in (counter, key)]
    (result,) = map_native(of(OpCode.THREEFRY), words, [dtypes.uint64] * 2, dtypes.uint64)
    assert (int(result) >> 32, int(result) & 0xFFFFFFFF) == expected
