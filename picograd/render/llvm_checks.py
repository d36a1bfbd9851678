"""CHECKs in LLVM IR: a branch that is taken when an index is outside its axis, and what it leaves in the kernel's report.

In:    Check statements
Out:   instructions;  `LIKELY`, for the end of a text that has any
Called by: render/llvm.py.    Next: picograd/render/llvm_streams.py

The first of all lanes and threads that finds an index outside reports; the run goes on to its end (ir/checks.py).
"""

from __future__ import annotations

from typing import Protocol

from picograd.device import Target
from picograd.ir.op import Op
from picograd.ir.stages import Program
from picograd.ir.statements import Check, lanes_of

LIKELY = '!0 = !{!"branch_weights", i32 1048576, i32 1}\n'  # a report ends the run: it stands out of the way


class Writer(Protocol):
    """The function under construction, as checks see it."""

    program: Program
    target: Target
    lines: list[str]
    num_labels: int

    def emit(self, instruction: str, name: str | None = None) -> str: ...
    def operand(self, op: Op, lanes: int) -> str: ...
    def label(self, text: str) -> None: ...


def write_check(write: Writer, checked: Check) -> None:
    """Writes a branch that is taken when an index is outside, with the report of the first such lane.

    No call: it would cost the loops around the registers that a call overwrites.
    """
    write.num_labels += 1
    label, lanes = f"outside{write.num_labels}", lanes_of(checked.value)
    inside, value = write.operand(checked.inside, lanes), write.operand(checked.value, lanes)
    holds = inside
    if lanes > 1:
        mask = write.emit(f"bitcast <{lanes} x i1> {inside} to i{lanes}")
        holds = write.emit(f"icmp eq i{lanes} {mask}, -1")
    write.lines.append(f"  br i1 {holds}, label %{label}.done, label %{label}, !prof !0")
    write.label(label)
    if lanes > 1:
        value = first_outside(write, inside, mask, value, lanes)
    slot = next(i for i, param in enumerate(write.program.params) if param.role == "report")
    number = checked.number + 1
    swap = write.emit(f"cmpxchg ptr %p{slot}, i64 0, i64 {number} monotonic monotonic, align 8")
    first = write.emit(f"extractvalue {{ i64, i1 }} {swap}, 1")
    write.lines.append(f"  br i1 {first}, label %{label}.keep, label %{label}.done")
    write.label(f"{label}.keep")
    place = write.emit(f"getelementptr i64, ptr %p{slot}, i64 1")
    write.lines.append(f"  store i64 {value}, ptr {place}, align 8")
    write.lines.append(f"  br label %{label}.done")
    write.label(f"{label}.done")


def first_outside(write: Writer, inside: str, mask: str, value: str, lanes: int) -> str:
    """Writes the value of the first lane that is outside. A GPU has no vector that a number picks from but in memory."""
    if write.target.is_gpu:
        found = write.emit(f"extractelement <{lanes} x i64> {value}, i64 {lanes - 1}")
        for number in reversed(range(lanes - 1)):
            holds = write.emit(f"extractelement <{lanes} x i1> {inside}, i64 {number}")
            own = write.emit(f"extractelement <{lanes} x i64> {value}, i64 {number}")
            found = write.emit(f"select i1 {holds}, i64 {found}, i64 {own}")
        return found
    wrong = write.emit(f"xor i{lanes} {mask}, -1")
    whole = write.emit(f"zext i{lanes} {wrong} to i64")
    lane = write.emit(f"call i64 @llvm.cttz.i64(i64 {whole}, i1 true)")
    return write.emit(f"extractelement <{lanes} x i64> {value}, i64 {lane}")
