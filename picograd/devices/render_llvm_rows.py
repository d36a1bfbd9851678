"""Operations in LLVM IR: types, constants, and one row per opcode and kind of operand.

In:    one Op on named operands
Out:   the instructions for it, written through a `WriteLine`
Source: LLVM Language Reference Manual, version 22.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import VerifyError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

WriteLine = Callable[[str], str]  # writes an instruction and returns the name of its result

# In registers. Floats narrower than float32 are held as bits: their arithmetic is float32's.
TYPES: dict[DType, str] = {
    dtypes.bool_: "i1", dtypes.uint8: "i8", dtypes.uint16: "i16", dtypes.uint32: "i32", dtypes.uint64: "i64",
    dtypes.int8: "i8", dtypes.int16: "i16", dtypes.int32: "i32", dtypes.int64: "i64",
    dtypes.float8_e4m3: "i8", dtypes.float8_e5m2: "i8", dtypes.float16: "i16", dtypes.bfloat16: "i16",
    dtypes.float32: "float", dtypes.float64: "double",
}  # fmt: skip


@lru_cache(maxsize=256)
def type_of(dtype: DType, lanes: int = 1) -> str:
    """Returns the type of a value in registers."""
    return vector(TYPES[dtype], lanes)


@lru_cache(maxsize=256)
def memory_type(dtype: DType, lanes: int = 1) -> str:
    """Returns the type of a value in memory, where a bool is a byte."""
    return vector("i8" if dtype is dtypes.bool_ else TYPES[dtype], lanes)


@lru_cache(maxsize=256)
def vector(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


@lru_cache(maxsize=256)
def suffix(llvm_type: str) -> str:
    """Returns the spelling of a type in overloaded intrinsics: <8 x float> is v8f32."""
    if llvm_type.startswith("<"):
        lanes, scalar = llvm_type[1:-1].split(" x ")
        return f"v{lanes}{suffix(scalar)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(llvm_type, llvm_type)


def literal(value: Scalar, dtype: DType) -> str:
    """Returns a constant's text; floats as bits, to be exact."""
    if dtype is dtypes.bool_:
        return "true" if value else "false"
    if dtype in (dtypes.float32, dtypes.float64):
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if dtype.is_float:
        return str(int(np.array([value], dtype.numpy).view(dtype.unsigned.numpy)[0]))
    return str(int(value) - (1 << 64) if int(value) >= 1 << 63 else int(value))


def constant(value: Scalar, dtype: DType, lanes: int) -> str:
    """Returns a constant repeated in all lanes."""
    text = literal(value, dtype)
    return text if lanes == 1 else f"splat ({TYPES[dtype]} {text})"


@lru_cache(maxsize=256)
def operand_kind(dtype: DType) -> str:
    """Returns an operand's column in the tables: its dtype's kind, or "h" for floats held as bits."""
    return "h" if dtype.is_narrow else dtype.kind


# ---- one instruction each: {t} is the operands' type, {s} its spelling in intrinsics ----
_SIGNED_COMPARE = {OpCode.CMPLT: "slt", OpCode.CMPLE: "sle", OpCode.CMPEQ: "eq", OpCode.CMPNE: "ne"}
_FLOAT_COMPARE = {OpCode.CMPLT: "olt", OpCode.CMPLE: "ole", OpCode.CMPEQ: "oeq", OpCode.CMPNE: "une"}
_INTEGER = {
    OpCode.ADD: "add {t} {0}, {1}", OpCode.SUB: "sub {t} {0}, {1}", OpCode.MUL: "mul {t} {0}, {1}",
    OpCode.NEG: "sub {t} zeroinitializer, {0}",
    OpCode.AND: "and {t} {0}, {1}", OpCode.OR: "or {t} {0}, {1}", OpCode.XOR: "xor {t} {0}, {1}",
    OpCode.SHL: "shl {t} {0}, {1}",
}  # fmt: skip
_FLOAT = {
    OpCode.ADD: "fadd {t} {0}, {1}", OpCode.SUB: "fsub {t} {0}, {1}", OpCode.MUL: "fmul {t} {0}, {1}",
    OpCode.DIV: "fdiv {t} {0}, {1}", OpCode.NEG: "fneg {t} {0}",
    OpCode.SQRT: "call {t} @llvm.sqrt.{s}({t} {0})", OpCode.FLOOR: "call {t} @llvm.floor.{s}({t} {0})",
    OpCode.FMA: "call {t} @llvm.fma.{s}({t} {0}, {t} {1}, {t} {2})",
}  # fmt: skip
ONE_INSTRUCTION: dict[tuple[OpCode, str], str] = {
    **{(code, kind): text for kind in "iu" for code, text in _INTEGER.items()},
    **{(code, "f"): text for code, text in _FLOAT.items()},
    **{(code, "i"): f"icmp {c} {{t}} {{0}}, {{1}}" for code, c in _SIGNED_COMPARE.items()},
    **{(code, k): f"icmp {c.replace('s', 'u', 1)} {{t}} {{0}}, {{1}}"
       for code, c in _SIGNED_COMPARE.items() for k in "ub"},
    **{(code, "f"): f"fcmp {c} {{t}} {{0}}, {{1}}" for code, c in _FLOAT_COMPARE.items()},
    **{(code, "b"): f"{code.name.lower()} {{t}} {{0}}, {{1}}" for code in (OpCode.AND, OpCode.OR, OpCode.XOR)},
    (OpCode.ADD, "b"): "or {t} {0}, {1}", (OpCode.MUL, "b"): "and {t} {0}, {1}",
    (OpCode.MAX, "b"): "or {t} {0}, {1}", (OpCode.MIN, "b"): "and {t} {0}, {1}",
    (OpCode.MAX, "i"): "call {t} @llvm.smax.{s}({t} {0}, {t} {1})",
    (OpCode.MIN, "i"): "call {t} @llvm.smin.{s}({t} {0}, {t} {1})",
    (OpCode.MAX, "u"): "call {t} @llvm.umax.{s}({t} {0}, {t} {1})",
    (OpCode.MIN, "u"): "call {t} @llvm.umin.{s}({t} {0}, {t} {1})",
    (OpCode.SHR, "i"): "ashr {t} {0}, {1}", (OpCode.SHR, "u"): "lshr {t} {0}, {1}",
    (OpCode.IDIV, "u"): "udiv {t} {0}, {1}", (OpCode.MOD, "u"): "urem {t} {0}, {1}",
}  # fmt: skip


# ---- several instructions ----
def extremum(emit: WriteLine, op: Op, sources: Sequence[Op], values: Sequence[str], lanes: int) -> str:
    """MAX and MIN of floats, NaN if one is NaN: with a constant operand one vmaxps; otherwise also a compare and a blend.

    `a > b ? a : b` is b if either is NaN, so only a NaN in a must be restored.
    """
    t, mask = type_of(op.dtype, lanes), vector("i1", lanes)
    order = "ogt" if op.code is OpCode.MAX else "olt"
    a, b = values
    never_nan = [s.code is OpCode.CONST and s.arg == s.arg for s in sources]
    if never_nan[1]:
        a, b = b, a
    chosen = emit(f"fcmp {order} {t} {a}, {b}")
    result = emit(f"select {mask} {chosen}, {t} {a}, {t} {b}")
    if any(never_nan):
        return result
    is_nan = emit(f"fcmp uno {t} {a}, {a}")
    return emit(f"select {mask} {is_nan}, {t} {a}, {t} {result}")


def floor_division(emit: WriteLine, op: Op, sources: Sequence[Op], values: Sequence[str], lanes: int) -> str:
    """IDIV and MOD of signed integers by a nonzero divisor: truncated, then corrected if the signs differ."""
    t, mask = type_of(op.dtype, lanes), vector("i1", lanes)
    a, b = values
    rest = emit(f"srem {t} {a}, {b}")
    signs = emit(f"xor {t} {rest}, {b}")
    differ = emit(f"icmp slt {t} {signs}, zeroinitializer")
    uneven = emit(f"icmp ne {t} {rest}, zeroinitializer")
    down = emit(f"and {mask} {differ}, {uneven}")
    if op.code is OpCode.MOD:
        moved = emit(f"add {t} {rest}, {b}")
        return emit(f"select {mask} {down}, {t} {moved}, {t} {rest}")
    quotient = emit(f"sdiv {t} {a}, {b}")
    one = emit(f"sext {mask} {down} to {t}")
    return emit(f"add {t} {quotient}, {one}")


def index_division(emit: WriteLine, op: Op, values: Sequence[str], lanes: int, fits_32_bits: bool) -> str:
    """IDIV and MOD of nonnegative numbers: unsigned, and in 32 bits if the operands fit.

    Why: divisions by constants need a high product, which vectors have for 32-bit integers, not for longer ones.
    """
    whole, narrow = type_of(op.dtype, lanes), vector("i32", lanes)
    instruction = "udiv" if op.code is OpCode.IDIV else "urem"
    if not fits_32_bits:
        return emit(f"{instruction} {whole} {values[0]}, {values[1]}")
    a, b = (
        emit(f"trunc {whole} {value} to {narrow}") if value.startswith("%") else value.replace("i64", "i32")
        for value in values
    )
    result = emit(f"{instruction} {narrow} {a}, {b}")
    return emit(f"zext {narrow} {result} to {whole}")


def float_remainder(emit: WriteLine, op: Op, sources: Sequence[Op], values: Sequence[str], lanes: int) -> str:
    """MOD of floats: exact, with the sign of the divisor (C's fmod, corrected if the signs differ)."""
    rest = emit(f"frem {type_of(op.dtype, lanes)} {values[0]}, {values[1]}")
    return with_sign_of_divisor(emit, op.dtype, rest, values[1], lanes)


def with_sign_of_divisor(emit: WriteLine, dtype: DType, rest: str, b: str, lanes: int) -> str:
    """Corrects the remainder of C's fmod to the sign of `b`."""
    t, mask = type_of(dtype, lanes), vector("i1", lanes)
    none = constant(0.0, dtype, lanes)
    moved = emit(f"fadd {t} {rest}, {b}")
    rest_negative, b_negative = (emit(f"fcmp olt {t} {x}, {none}") for x in (rest, b))
    differ = emit(f"xor {mask} {rest_negative}, {b_negative}")
    signed_zero = emit(f"call {t} @llvm.copysign.{suffix(t)}({t} {none}, {t} {b})")
    placed = emit(f"select {mask} {differ}, {t} {moved}, {t} {rest}")
    is_zero = emit(f"fcmp oeq {t} {rest}, {none}")
    return emit(f"select {mask} {is_zero}, {t} {signed_zero}, {t} {placed}")


def select(emit: WriteLine, op: Op, sources: Sequence[Op], values: Sequence[str], lanes: int) -> str:
    t = type_of(op.dtype, lanes)
    return emit(f"select {vector('i1', lanes)} {values[0]}, {t} {values[1]}, {t} {values[2]}")


def bitcast(emit: WriteLine, op: Op, sources: Sequence[Op], values: Sequence[str], lanes: int) -> str:
    before, after = type_of(op.src[0].dtype, lanes), type_of(op.dtype, lanes)
    return values[0] if before == after else emit(f"bitcast {before} {values[0]} to {after}")


def cast(emit: WriteLine, op: Op, sources: Sequence[Op], values: Sequence[str], lanes: int) -> str:
    """CAST: floats are truncated to integers with saturation, NaN becomes 0; bool means nonzero."""
    before, after, value = op.src[0].dtype, op.dtype, values[0]
    source, result = type_of(before, lanes), type_of(after, lanes)
    if before is after:
        return value
    if after is dtypes.bool_:
        compare = "fcmp une" if before.is_float else "icmp ne"
        return emit(f"{compare} {source} {value}, zeroinitializer")
    if dtypes.float16 in (before, after):
        return _cast_half(emit, op, value, lanes)
    if operand_kind(before) == "h" or operand_kind(after) == "h":
        raise VerifyError(f"render llvm: CAST from {before} to {after} has no row: legalize writes it in integers.")
    if before.is_float and after.is_float:
        return emit(f"{'fpext' if after.itemsize > before.itemsize else 'fptrunc'} {source} {value} to {result}")
    if before.is_float and lanes > 1:
        return _cast_to_integers(emit, op, value, lanes)
    if before.is_float:
        way = "fptosi" if after.kind == "i" else "fptoui"
        return emit(f"call {result} @llvm.{way}.sat.{suffix(result)}.{suffix(source)}({source} {value})")
    if after.is_float:
        return emit(f"{'sitofp' if before.kind == 'i' else 'uitofp'} {source} {value} to {result}")
    if after.bits == before.bits:
        return value
    narrower = "trunc" if after.bits < before.bits else ("sext" if before.kind == "i" else "zext")
    return emit(f"{narrower} {source} {value} to {result}")


def _cast_to_integers(emit: WriteLine, op: Op, value: str, lanes: int) -> str:
    """Floats to integers with saturation, in vectors: LLVM's own instruction for it goes lane by lane.

    NaN becomes 0, then all are clamped as floats. If the upper limit is not a float, the largest float below it is used,
    and greater values are replaced by the limit.
    """
    before, after = op.src[0].dtype, op.dtype
    source, mask = type_of(before, lanes), vector("i1", lanes)
    wide = after if after.bits >= 32 else dtypes.int32
    whole = type_of(wide, lanes)

    def clamped(x: str, order: str, limit: float) -> str:
        bound = constant(limit, before, lanes)
        inside = emit(f"fcmp {order} {source} {x}, {bound}")
        return emit(f"select {mask} {inside}, {source} {x}, {source} {bound}")

    known = emit(f"fcmp ord {source} {value}, {value}")
    number = emit(f"select {mask} {known}, {source} {value}, {source} zeroinitializer")
    greatest = float(before.numpy.type(after.max))
    is_exact = int(greatest) == after.max
    high = greatest if is_exact else float(np.nextafter(before.numpy.type(greatest), before.numpy.type(0)))
    inside = clamped(clamped(number, "ogt", float(after.min)), "olt", high)
    result = emit(f"{'fptosi' if wide.kind == 'i' else 'fptoui'} {source} {inside} to {whole}")
    if not is_exact:
        fits = emit(f"fcmp ole {source} {number}, {constant(high, before, lanes)}")
        result = emit(f"select {mask} {fits}, {whole} {result}, {whole} {constant(after.max, wide, lanes)}")
    return result if wide is after else emit(f"trunc {whole} {result} to {type_of(after, lanes)}")


def _cast_half(emit: WriteLine, op: Op, value: str, lanes: int) -> str:
    """float16 to and from float32, if the processor has the instruction."""
    bits, half, single = vector("i16", lanes), vector("half", lanes), vector("float", lanes)
    if op.src[0].dtype is dtypes.float16 and op.dtype is dtypes.float32:
        held = emit(f"bitcast {bits} {value} to {half}")
        return emit(f"fpext {half} {held} to {single}")
    if op.src[0].dtype is dtypes.float32:
        rounded = emit(f"fptrunc {single} {value} to {half}")
        return emit(f"bitcast {half} {rounded} to {bits}")
    raise VerifyError(f"render llvm: CAST from {op.src[0].dtype} to {op.dtype} must pass through float32.")


Steps = Callable[[WriteLine, Op, Sequence[Op], Sequence[str], int], str]
SEVERAL_INSTRUCTIONS: dict[tuple[OpCode, str], Steps] = {
    (OpCode.MAX, "f"): extremum,
    (OpCode.MIN, "f"): extremum,
    (OpCode.IDIV, "i"): floor_division,
    (OpCode.MOD, "i"): floor_division,
    (OpCode.MOD, "f"): float_remainder,
    **{(OpCode.WHERE, kind): select for kind in "biufh"},
    **{(OpCode.BITCAST, kind): bitcast for kind in "iufh"},
    **{(OpCode.CAST, kind): cast for kind in "biufh"},
}


def write_operation(emit: WriteLine, op: Op, sources: Sequence[Op], values: Sequence[str], lanes: int) -> str:
    """Writes an elementwise Op on operands with `lanes` lanes; returns the name of its result.

    Args:
      sources: the operands as Ops; one that is constant in all lanes is that constant
      values:  their names

    Raises:
      VerifyError: no row for this opcode and dtype; `legalize` should have replaced the Op.
    """
    dtype = op.src[1].dtype if op.code is OpCode.WHERE else op.src[0].dtype
    key = (op.code, operand_kind(dtype))
    row = ONE_INSTRUCTION.get(key)
    if row is not None:
        t = type_of(dtype, lanes)
        return emit(row.format(*values, t=t, s=suffix(t)))
    steps = SEVERAL_INSTRUCTIONS.get(key)
    if steps is None:
        raise VerifyError(f"render llvm: {op.code.name} of {dtype} has no row: legalize must replace it.")
    return steps(emit, op, sources, values, lanes)


# ---- lanes ----
def splat(emit: WriteLine, value: str, scalar: str, lanes: int) -> str:
    """Repeats a scalar of an LLVM type in all lanes of a vector."""
    one = emit(f"insertelement {vector(scalar, lanes)} poison, {scalar} {value}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return emit(f"shufflevector {vector(scalar, lanes)} {one}, {vector(scalar, lanes)} poison, {zeros}")


def join_lanes(emit: WriteLine, op: Op, value: str) -> str:
    """Writes a REDUCE of lanes: combines lane i with lane i + n/2, then n/4, ... until one is left."""
    code, lanes = op.arg
    step = Op(code, op.dtype, (Op(OpCode.VAR, op.dtype, (), ("lane", 1)),) * 2)
    while lanes > 1:
        assert lanes % 2 == 0, f"{op}: lanes are joined by halves"
        whole, lanes = type_of(op.dtype, lanes), lanes // 2
        halves = []
        for first in (0, lanes):
            picked = ", ".join(f"i32 {first + i}" for i in range(lanes))
            halves.append(emit(f"shufflevector {whole} {value}, {whole} poison, <{lanes} x i32> <{picked}>"))
        if lanes == 1:
            single = f"<1 x {type_of(op.dtype)}>"
            halves = [emit(f"extractelement {single} {half}, i64 0") for half in halves]
        value = write_operation(emit, step, step.src, halves, lanes)
    return value
