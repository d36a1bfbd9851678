"""The product of every rung, c = a @ b in float32, the loops that several rungs share, and the execution of a rung.

In:    lengths and the Target
Out:   `Product`, whose `program` makes a Program of a rung's statements; `cuts`; `runnable` compiles a Program in the free
form by the passes of every kernel; `text_of` shows it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.builder import read
from picograd.codegen.matmul import most_rows
from picograd.device import Target
from picograd.engine.compiler import Compiler
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.statements import Statement
from picograd.ir.symbolic import add, mul
from picograd.ir.text_program import format_program
from picograd.record import replace
from picograd.road import finish
from picograd_lab.ladder.runnable import Array, Runnable

# ---- the product ----
NUM_OPERANDS = 3  # a, b, c: scratch parameters follow them


@dataclass(frozen=True)
class Product:
    """The product c (m, n) = a (m, k) @ b (k, n), all row-major.

    lanes:    float32 in a vector
    rows:     rows of the register tile of c
    vectors:  vectors in a row of the register tile
    has_fma:  the target has fused multiply-adds
    """

    m: int
    k: int
    n: int
    lanes: int
    rows: int
    vectors: int
    has_fma: bool

    @property
    def flops(self) -> int:
        """Number of multiplications and additions."""
        return 2 * self.m * self.k * self.n

    @property
    def width(self) -> int:
        """Columns of the register tile."""
        return self.vectors * self.lanes

    @property
    def c(self) -> Op:
        """The memory of the result."""
        return self.memory(2, self.m * self.n)

    def a(self, i: Dim, k: Dim, valid: Op | bool = True) -> Op:
        """Returns a[i, k]; 0 if not `valid`."""
        return read(self.memory(0, self.m * self.k), at(i, self.k, k), valid)

    def b(self, k: Dim, j: Dim, valid: Op | bool = True) -> Op:
        """Returns b[k, j]; 0 if not `valid`."""
        return read(self.memory(1, self.k * self.n), at(k, self.n, j), valid)

    def place(self, i: Dim, j: Dim) -> Dim:
        """Returns the index of c[i, j]."""
        return at(i, self.n, j)

    def memory(self, slot: int, numel: int) -> Op:
        """Returns the parameter of a slot: a, b, c, then scratch."""
        return Op(OpCode.PARAM, dtypes.float32, (), (slot, (numel,)))

    def program(self, name: str, *phases: Sequence[Statement], scratch: Sequence[Op] = ()) -> Program:
        """Returns a Program in the free form, on a, b, c and scratch memory."""
        roles = [(self.m * self.k, "in"), (self.k * self.n, "in"), (self.m * self.n, "out")]
        roles += [(memory.arg[1][0], "scratch") for memory in scratch]
        params = tuple(Param(dtypes.float32, numel, role) for numel, role in roles)
        return Program(name, params, (), tuple(tuple(phase) for phase in phases))


def product_for(m: int, k: int, n: int, target: Target) -> Product:
    """Returns a product whose register tile leaves registers for the operands: 24 or 12 sums of 32 or 16 registers."""
    rows = most_rows(target)
    return Product(m, k, n, max(1, target.vector_bytes // 4), rows, 2, target.has_fma)


def at(row: Dim, width: int, column: Dim) -> Dim:
    """Returns the index of an element in rows of `width`."""
    return add(mul(row, width), column)


def cuts(length: int, widths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Splits a length into pieces, as many as fit of each width; yields (start, number, width).

    >>> list(cuts(70, (32, 16, 4, 1)))
    [(0, 2, 32), (64, 1, 4), (68, 2, 1)]
    """
    start = 0
    for width in widths:
        count = (length - start) // width
        if count:
            yield start, count, width
        start += count * width


# ---- running a Program ----
PHASE = "  phase"  # first word of a phase in the text of a Program


def text_of(program: Program) -> str:
    """Formats a Program for readers: each phase names its loops from the start."""
    first, *rest = [format_program(replace(program, phases=(phase,))) for phase in program.phases]
    return "\n".join([first, *(text[text.index(PHASE) :] for text in rest)])


def runnable(program: Program, compiler: Compiler, inputs: Sequence[Array]) -> Runnable:
    """Compiles a Program in the free form, with memory for its parameters; inputs are float32."""
    device, backend = compiler.device, compiler.backend
    source = backend.render(finish(program, device.target), device.target)
    executable = device.load(backend.compile(source, device.target))
    return Runnable(device, executable, [np.asarray(array, np.float32) for array in inputs])
