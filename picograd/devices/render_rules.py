"""Operations in C-like languages: a table of named rows, and the differences between the languages.

In:    one Op of the linear form, intervals of its integer operands, a Spelling
Out:   the text of an expression

The primitives in rows (`larger`, `floor_div`, `to_float16`, ...) are in devices/cuda/primitives.h and, with types in their
names, in devices/primitives.h.
"""

from __future__ import annotations

import math
import struct

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.ir.op import Op
from picograd.ir.opcode import COMPARE, FUNCTIONS, OpCode
from picograd.ir.ranges import Intervals, exact_interval, interval_of
from picograd.record import Record


class Spelling(Record):
    """The differences between C-like languages.

    of_type:  suffix of a primitive's name for its type argument
    by_type:  suffix of a primitive that C++ overloads by its argument's type
    single:   suffix of the library's float32 functions
    long:     suffix of an integer literal of more than 32 bits
    bitcast:  a value {a} of type {S} as one of type {T}; a constant's text may have another type
    vector:   declaration of several lanes: their type, their number, a name
    lane:     one lane: name, number
    load:     {N} elements {T} of {memory} from {index} on, as lanes; "": element by element. {local}: for shared memory
    store:    lanes {value} to such elements
    zeros:    {N} lanes of zeros
    """

    of_type: str
    by_type: str
    single: str
    long: str
    bitcast: str
    vector: str
    lane: str
    load: str = ""
    store: str = ""
    zeros: str = ""


CPP = Spelling(
    "<{}>", "", "f", "ll", "bitcast<{T}, {S}>({a})", "Lanes<{0}, {1}> {2}", "{0}.at[{1}]",
    "load_lanes<{N}>({memory}, {index})", "store_lanes({memory}, {index}, {value})", "Lanes<{T}, {N}>{{}}",
)  # fmt: skip
C = Spelling("_{}", "_{}", "f", "ll", "{T}_of_bits(bits_of_{S}({a}))", "{0} {2}[{1}]", "{0}[{1}]")
OPENCL = Spelling(
    "_{}", "_{}", "", "l", "{T}_of_bits(bits_of_{S}({a}))", "{0}x{1} {2}", "{0}.at[{1}]",
    "load_{local}{T}x{N}({memory}, {index})", "store_{local}{T}x{N}({memory}, {index}, {value})", "({T}x{N}){{{{0}}}}",
)  # fmt: skip


class Rule(Record):
    """A row of the table.

    name:     name in traces and errors
    code:     the operation
    classes:  letters of its operand classes:  f float   b bool   i integer that may wrap
              x integer whose result is exact in its own type, or wraps by the language's rule
    text:     {a} {b} {c} operands, {T} type of the result, {U} unsigned type for wrapping arithmetic;
              {of_T} {by_T} {f}: suffixes of a primitive for T, of one overloaded by T, of a float32 function
    """

    name: str
    code: OpCode
    classes: str
    text: str


RULES = (
    Rule("negate float", OpCode.NEG, "f", "-{a}"),
    Rule("negate integer", OpCode.NEG, "ix", "({T})(0 - ({U}){a})"),
    Rule("reciprocal", OpCode.RECIPROCAL, "f", "1 / {a}"),
    *(Rule(code.name.lower(), code, "f", f"{code.name.lower()}{{f}}({{a}})") for code in OpCode if code in FUNCTIONS),
    Rule("floor of float", OpCode.FLOOR, "f", "floor{f}({a})"),
    Rule("floor of integer", OpCode.FLOOR, "ixb", "{a}"),
    Rule("add", OpCode.ADD, "fx", "{a} + {b}"),
    Rule("add, wrapping", OpCode.ADD, "i", "({T})(({U}){a} + ({U}){b})"),
    Rule("add bools", OpCode.ADD, "b", "{a} || {b}"),
    Rule("subtract", OpCode.SUB, "fx", "{a} - {b}"),
    Rule("subtract, wrapping", OpCode.SUB, "i", "({T})(({U}){a} - ({U}){b})"),
    Rule("multiply", OpCode.MUL, "fx", "{a} * {b}"),
    Rule("multiply, wrapping", OpCode.MUL, "i", "({T})(({U}){a} * ({U}){b})"),
    Rule("multiply bools", OpCode.MUL, "b", "{a} && {b}"),
    Rule("divide", OpCode.DIV, "f", "{a} / {b}"),
    Rule("quotient of positives", OpCode.IDIV, "x", "{a} / {b}"),
    Rule("quotient", OpCode.IDIV, "i", "floor_div{of_T}({a}, {b})"),
    Rule("quotient of floats", OpCode.IDIV, "f", "float_floor_div{of_T}({a}, {b})"),
    Rule("remainder of positives", OpCode.MOD, "x", "{a} % {b}"),
    Rule("remainder", OpCode.MOD, "i", "floor_mod{of_T}({a}, {b})"),
    Rule("remainder of floats", OpCode.MOD, "f", "float_mod{of_T}({a}, {b})"),
    Rule("power of float", OpCode.POW, "f", "pow{f}({a}, {b})"),
    Rule("power of integer", OpCode.POW, "ix", "int_pow{of_T}({a}, {b})"),
    Rule("maximum of floats", OpCode.MAX, "f", "larger{by_T}({a}, {b})"),
    Rule("maximum of integers", OpCode.MAX, "ix", "larger{of_T}({a}, {b})"),
    Rule("maximum of bools", OpCode.MAX, "b", "{a} || {b}"),
    Rule("minimum of floats", OpCode.MIN, "f", "smaller{by_T}({a}, {b})"),
    Rule("minimum of integers", OpCode.MIN, "ix", "smaller{of_T}({a}, {b})"),
    Rule("minimum of bools", OpCode.MIN, "b", "{a} && {b}"),
    Rule("less", OpCode.CMPLT, "fixb", "{a} < {b}"),
    Rule("less or equal", OpCode.CMPLE, "fixb", "{a} <= {b}"),
    Rule("equal", OpCode.CMPEQ, "fixb", "{a} == {b}"),
    Rule("not equal", OpCode.CMPNE, "fixb", "{a} != {b}"),
    Rule("and", OpCode.AND, "ix", "{a} & {b}"),
    Rule("and of bools", OpCode.AND, "b", "{a} && {b}"),
    Rule("or", OpCode.OR, "ix", "{a} | {b}"),
    Rule("or of bools", OpCode.OR, "b", "{a} || {b}"),
    Rule("exclusive or", OpCode.XOR, "ix", "{a} ^ {b}"),
    Rule("exclusive or of bools", OpCode.XOR, "b", "{a} != {b}"),
    Rule("shift left", OpCode.SHL, "ix", "shift_left{of_T}({a}, {b})"),
    Rule("shift right by a count in range", OpCode.SHR, "x", "{a} >> {b}"),
    Rule("shift right", OpCode.SHR, "i", "shift_right{of_T}({a}, {b})"),
    Rule("threefry", OpCode.THREEFRY, "ix", "threefry({a}, {b})"),
    Rule("where", OpCode.WHERE, "fixb", "{a} ? {b} : {c}"),
    Rule("fused multiply-add", OpCode.FMA, "f", "fma{f}({a}, {b}, {c})"),
    Rule("multiply-add of integers", OpCode.FMA, "ix", "({T})(({U}){a} * ({U}){b} + ({U}){c})"),
)

# (class of the source, class of the result) -> text; n is a float of fewer than 32 bits
CASTS = {
    ("f", "f"): "({T}){a}",
    ("i", "f"): "({T}){a}",
    ("b", "f"): "({T}){a}",
    ("f", "n"): "to_{T}{by_S}({a})",
    ("i", "n"): "to_{T}{by_S}((float32){a})",
    ("b", "n"): "to_{T}{by_S}((float32){a})",
    ("f", "i"): "to_integer{of_T}{by_S}({a})",
    ("i", "i"): "({T}){a}",
    ("b", "i"): "({T}){a}",
    ("f", "b"): "{a} != 0",
    ("i", "b"): "{a} != 0",
    ("b", "b"): "{a}",
}

_BY_CODE: dict[OpCode, tuple[Rule, ...]] = {
    code: tuple(rule for rule in RULES if rule.code is code) for code in {rule.code for rule in RULES}
}


def rule_for(op: Op, intervals: Intervals) -> Rule | None:
    """Returns the row for an operation, or None."""
    letter = _class_of(op, intervals)
    return next((rule for rule in _BY_CODE.get(op.code, ()) if letter in rule.classes), None)


def write_rule(rule: Rule, op: Op, operands: list[str], spelling: Spelling) -> str:
    """Returns the text of an operation by its row."""
    operand, computed = op.src[-1].dtype, dtypes.float32 if op.dtype.is_narrow else op.dtype
    moves_only = op.code is OpCode.WHERE
    if operand.is_narrow and not moves_only:
        operands = [f"to_float32{spelling.by_type.format(operand)}({text})" for text in operands]
    text = rule.text.format(
        **dict(zip("abc", operands)),
        T=computed,
        U="uint64" if operand.itemsize == 8 else "uint32",
        of_T=spelling.of_type.format(computed),
        by_T=spelling.by_type.format(computed),
        f="" if operand is dtypes.float64 else spelling.single,
    )
    if op.code in COMPARE or moves_only:
        return text
    if op.dtype.is_narrow:
        return f"to_{op.dtype}{spelling.by_type.format(computed)}({text})"
    if op.dtype.is_int and op.dtype.itemsize < 4 and not text.startswith(f"({op.dtype})"):
        return f"({op.dtype})({text})"
    return text


def write_cast(op: Op, operand: str, spelling: Spelling) -> str:
    """Returns the text of a CAST. Integers become 16- and 8-bit floats through float32, as in NumPy."""
    source, target = op.src[0].dtype, op.dtype
    if source is target:
        return operand
    if source.is_narrow:
        operand, source = f"to_float32{spelling.by_type.format(source)}({operand})", dtypes.float32
    if target is source:
        return operand
    way = source if source.is_float else dtypes.float32
    of_target, by_source = spelling.of_type.format(target), spelling.by_type.format(way)
    return CASTS[_cast_class(source), _cast_class(target)].format(a=operand, T=target, of_T=of_target, by_S=by_source)


def write_bitcast(op: Op, operand: str, spelling: Spelling) -> str:
    """Returns the text of a BITCAST."""
    return spelling.bitcast.format(a=operand, T=op.dtype, S=op.src[0].dtype)


def _cast_class(dtype: DType) -> str:
    return "n" if dtype.is_narrow else "i" if dtype.is_int else dtype.kind


# ---- constants ----
def literal(value: Scalar, dtype: DType, spelling: Spelling = CPP) -> str:
    """Returns the exact text of a constant.

    >>> literal(0.5, dtypes.float32), literal(3, dtypes.int64), literal(-0.0, dtypes.float64)
    ('0x1p-1f', '3', '(-0.0)')
    """
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.is_narrow:
        return f"to_{dtype}{spelling.by_type.format(dtypes.float32)}({literal(value, dtypes.float32, spelling)})"
    text = _float_literal(float(value), dtype, spelling) if dtype.is_float else _int_literal(int(value), dtype, spelling)
    return f"({text})" if text.startswith("-") else text


def _int_literal(value: int, dtype: DType, spelling: Spelling) -> str:
    if -(1 << 31) < value < 1 << 31:
        return f"{value}u" if dtype.kind == "u" else str(value)
    if value == dtypes.int64.min:
        return f"-{dtypes.int64.max}{spelling.long} - 1"
    if value == dtypes.int32.min:
        return f"-{dtypes.int32.max} - 1"
    return f"{value}{'u' if dtype.kind == 'u' else ''}{spelling.long}"


def _float_literal(value: float, dtype: DType, spelling: Spelling) -> str:
    """Returns a literal with the exact bits: decimal where short, else hexadecimal; NaN and infinity by bits."""
    single = dtype is dtypes.float32
    if not math.isfinite(value):
        bits = struct.pack(">f" if single else ">d", value).hex()
        return f"{dtype}_of_bits(0x{bits}{'u' if single else 'u' + spelling.long})"
    if value == int(value) and abs(value) < 1 << 24:
        text = repr(value)
    else:
        mantissa, exponent = value.hex().split("p")
        text = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{int(exponent):+d}"
    return text + "f" if single else text


def _class_of(op: Op, intervals: Intervals) -> str:
    """Returns the letter of `Rule.classes` for an operation."""
    dtype = op.src[-1].dtype
    if not dtype.is_int:
        return dtype.kind
    if op.code in (OpCode.IDIV, OpCode.MOD):
        positive = interval_of(op.src[0], intervals)[0] >= 0 and interval_of(op.src[1], intervals)[0] >= 1
        return "x" if positive else "i"
    if op.code is OpCode.SHR:
        least, greatest = interval_of(op.src[1], intervals)
        return "x" if least >= 0 and greatest < dtype.bits else "i"
    if dtype.itemsize < 4:
        return "i"
    if dtype.kind == "u" or op.code not in (OpCode.ADD, OpCode.SUB, OpCode.MUL):
        return "x"
    exact = exact_interval(op, intervals)
    return "x" if exact is not None and int(dtype.min) <= exact[0] and exact[1] <= int(dtype.max) else "i"
