"""Where an access lies, as base + step of the innermost loop: what a processor's addressing modes are made for.

In:    an index of the linear form; the loops that are open
Out:   `OpenLoop`, with the counters and bases that its accesses share; `Sum`; `add_up`
Called by: render/llvm.py, render/llvm_values.py.    Next: picograd/compilers/llvm.py

An index that is c * i + (what does not change in the loop of i) + a constant becomes three things: a base before the
loop, a counter that grows by c, and the constant, which a load or store adds by itself. Accesses share bases and
counters, so LLVM's loop strength reduction, which took a third of its time to find the same, is not run.

    for r in loop(48):                       before:       %base = getelementptr float, ptr %p1, i64 %v3
      v5 = r * 32                            loop1:        %by32 = phi i64 [ 0, ... ], [ %by32.next, ... ]
      v6 = v5 + v3                                         %at = getelementptr float, ptr %base, i64 %by32
      load 16 of p1 at v6                                  load <16 x float>, ptr %at
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Record, Struct, field


class Sum(Record):
    """step * index of the innermost loop + the terms + constant; no term changes in that loop."""

    step: int = 0
    terms: tuple[tuple[Op, int], ...] = ()
    constant: int = 0

    def plus(self, other: Sum) -> Sum:
        terms = dict(self.terms)
        for op, factor in other.terms:
            terms[op] = terms.get(op, 0) + factor
        kept = tuple((op, factor) for op, factor in terms.items() if factor)
        return Sum(self.step + other.step, kept, self.constant + other.constant)

    def times(self, factor: int) -> Sum:
        terms = tuple((op, f * factor) for op, f in self.terms) if factor else ()
        return Sum(self.step * factor, terms, self.constant * factor)


class OpenLoop(Struct):
    """A loop whose body is being written.

    range:     number of its RANGE
    index:     name of its counter
    is_wide:   the counter has 64 bits, as addresses have
    head:      instructions before the first iteration
    sums:      VAR of the body that is a Sum -> that
    counters:  step -> name of a counter that grows by it
    totals:    terms -> name of their sum
    bases:     (memory, terms) -> name of the address of what they lead to
    """

    range: int
    index: str
    is_wide: bool = True
    head: list[str] = field(default_factory=list)
    sums: dict[Op, Sum] = field(default_factory=dict)
    counters: dict[int, str] = field(default_factory=dict)
    totals: dict[tuple[tuple[Op, int], ...], str] = field(default_factory=dict)
    bases: dict[tuple[Op, tuple[tuple[Op, int], ...]], str] = field(default_factory=dict)

    def counter(self, step: int) -> str:
        """Returns the name of step * index."""
        if step == 1 and self.is_wide:
            return self.index
        return self.counters.setdefault(step, f"{self.index}.by{step}".replace("-", "m"))


def add_up(value: Op, sum_of: Callable[[Op], Sum | None]) -> Sum | None:
    """Returns the Sum that one operation makes of its operands' Sums; None where it makes none."""
    if value.code is OpCode.ADD:
        a, b = sum_of(value.src[0]), sum_of(value.src[1])
        return None if a is None or b is None else a.plus(b)
    if value.code is OpCode.MUL and value.src[1].code is OpCode.CONST:
        a = sum_of(value.src[0])
        return None if a is None else a.times(int(value.src[1].arg))
    return None
