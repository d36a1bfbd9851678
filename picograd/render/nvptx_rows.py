"""Operations of a GPU's thread in LLVM IR that are not those of a CPU: functions without vectors, an exact remainder.

In:    one Op on named operands
Out:   the instructions for it, written through an `Emit`;  `functions_called_by`, for the end of a text
Called by: render/nvptx.py.    Next: picograd/render/nvptx_memory.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.ir.op import Op
from picograd.render.llvm_rows import Emit, suffix, type_of, vector

ROUGH_EXP2 = "call float @llvm.nvvm.ex2.approx.ftz.f(float {})"

# What C's fmod gives, exactly: b is doubled while it is not above a, then taken from a and halved. Every step is exact.
REMAINDER = """define internal {t} @remainder_{s}({t} %x, {t} %y) {{
entry:
  %a = call {t} @llvm.fabs.{s}({t} %x)
  %b = call {t} @llvm.fabs.{s}({t} %y)
  %finite = fcmp olt {t} %a, 0x7FF0000000000000
  %divisor = fcmp ogt {t} %b, 0.0
  %defined = and i1 %finite, %divisor
  br i1 %defined, label %double, label %none
double:
  %part = phi {t} [ %b, %entry ], [ %twice, %double ]
  %twice = fmul {t} %part, 2.0
  %again = fcmp ole {t} %twice, %a
  br i1 %again, label %double, label %halve
halve:
  %step = phi {t} [ %part, %double ], [ %less, %halve ]
  %left = phi {t} [ %a, %double ], [ %rest, %halve ]
  %fits = fcmp oge {t} %left, %step
  %taken = fsub {t} %left, %step
  %rest = select i1 %fits, {t} %taken, {t} %left
  %less = fmul {t} %step, 0.5
  %more = fcmp ogt {t} %step, %b
  br i1 %more, label %halve, label %done
done:
  %signed = call {t} @llvm.copysign.{s}({t} %rest, {t} %x)
  ret {t} %signed
none:
  ret {t} 0x7FF8000000000000
}}
"""


def functions_called_by(text: str) -> str:
    """Returns the definitions of the functions above that a text calls."""
    scalars = [scalar for scalar in ("float", "double") if f"@remainder_{suffix(scalar)}(" in text]
    return "".join("\n" + REMAINDER.format(t=scalar, s=suffix(scalar)) for scalar in scalars)


def remainder(emit: Emit, op: Op, a: str, b: str, lanes: int) -> str:
    """Writes C's fmod lane by lane. NOTE: LLVM's `frem` is a - trunc(a / b) * b here, which large quotients make wrong."""
    scalar = type_of(op.dtype)
    return lane_by_lane(emit, op, f"call {scalar} @remainder_{suffix(scalar)}({scalar} {{}}, {scalar} {{}})", [a, b], lanes)


def lane_by_lane(emit: Emit, op: Op, call: str, operands: Sequence[str], lanes: int) -> str:
    """Writes a call of a function that has no vectors."""
    scalar, whole = type_of(op.dtype), type_of(op.dtype, lanes)
    if lanes == 1:
        return emit(call.format(*operands))
    result = "poison"
    for lane in range(lanes):
        parts = [emit(f"extractelement {whole} {value}, i64 {lane}") for value in operands]
        result = emit(f"insertelement {whole} {result}, {scalar} {emit(call.format(*parts))}, i64 {lane}")
    return result


def select_bytes(emit: Emit, values: Sequence[str], lanes: int) -> str:
    """Writes a choice between bytes lane by lane.

    NOTE: LLVM 22 fails an assertion, which ends the process, on `select <4 x i1>, <4 x i8>` of two constants.
    """
    result, (mask, a, b) = "poison", values
    whole = vector("i8", lanes)
    for lane in range(lanes):
        condition = emit(f"extractelement {vector('i1', lanes)} {mask}, i64 {lane}")
        parts = [emit(f"extractelement {whole} {value}, i64 {lane}") for value in (a, b)]
        chosen = emit(f"select i1 {condition}, i8 {parts[0]}, i8 {parts[1]}")
        result = emit(f"insertelement {whole} {result}, i8 {chosen}, i64 {lane}")
    return result
