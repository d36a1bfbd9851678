"""The product that every rung computes, c = a @ b in float32, the loops that several rungs share, and how a rung is run.

In:    lengths and the Target
Out:   `Product`; `cuts`; a rung writes statements on it and gives them to `Product.program`. `Runnable` takes a Program in
       the free form down the road that every kernel goes, and runs it on arrays; `text_of` shows it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.builder import read
from picograd.codegen.matmul import most_rows
from picograd.device import Target
from picograd.engine.compiler import Compiler
from picograd.ir.op import Buffer, Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import BufferUse, Kernel, Param, Program, Schedule, ScheduleItem
from picograd.ir.statements import Statement
from picograd.ir.symbolic import add, dim_value, mul
from picograd.ir.text_program import format_program
from picograd.record import replace
from picograd.road import finish

# ---- the product ----
NUM_OPERANDS = 3  # a, b, c: scratch parameters come after them


@dataclass(frozen=True)
class Product:
    """c (m, n) = a (m, k) @ b (k, n), each stored row after row.

    lanes:    float32 in one vector
    rows:     of the tile of c that fits into the registers
    vectors:  of a row of it
    has_fma:  an instruction multiplies and adds
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
        """Multiplications and additions."""
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
        """Returns a[i, k]; 0 where it is not `valid`."""
        return read(self.memory(0, self.m * self.k), at(i, self.k, k), valid)

    def b(self, k: Dim, j: Dim, valid: Op | bool = True) -> Op:
        """Returns b[k, j]; 0 where it is not `valid`."""
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
    """Returns a product whose register tile leaves room for what it multiplies: 24 or 12 sums of 32 or 16 registers."""
    rows = most_rows(target)
    return Product(m, k, n, max(1, target.vector_bytes // 4), rows, 2, target.has_fma)


def at(row: Dim, width: int, column: Dim) -> Dim:
    """Returns the place of an element in rows of `width`."""
    return add(mul(row, width), column)


def cuts(length: int, widths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cuts a length into pieces: as many as fit of each width; yields (start, how many, width).

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
Array = np.ndarray[Any, Any]
PHASE = "  phase"  # how a phase begins in the text of a Program


def text_of(program: Program) -> str:
    """Returns the text of a Program, to be read by people: each phase names its loops again."""
    first, *rest = [format_program(replace(program, phases=(phase,))) for phase in program.phases]
    return "\n".join([first, *(text[text.index(PHASE) :] for text in rest)])


class Runnable:
    """A Program as machine code, with memory for its parameters; its threads are those of the moment when it is made.

    program:  in the free form; its parameters are inputs, then one output, then scratch memory
    inputs:   float32
    """

    def __init__(self, program: Program, compiler: Compiler, inputs: Sequence[Array]):
        device, backend = compiler.device, compiler.backend
        source = backend.render(finish(program, device.target), device.target)
        executable = device.load(backend.compile(source, device.target))
        given = [param for param in program.params if param.role != "scratch"]
        self._device = device
        self._buffers = [
            Buffer(device.target.device, p.dtype, dim_value(p.numel, {}), device.allocate(4 * dim_value(p.numel, {})))
            for p in given
        ]
        for buffer, array in zip(self._buffers, inputs):
            device.copy_in(buffer.memory, np.ascontiguousarray(array, np.float32))
        roles = [("input", i) for i in range(len(inputs))] + [("output", 0)]
        uses = tuple(BufferUse(p.dtype, p.numel, role, source) for p, (role, source) in zip(given, roles))
        item = ScheduleItem(Kernel(program.name, program.params, (), ()), tuple(range(len(given))))
        self._run = device.make_runner(Schedule((item,), uses, (), (len(inputs),), 0), (executable,))

    def run(self) -> None:
        """Computes the output."""
        self._run(self._buffers[:-1], self._buffers[-1:], {})

    def result(self) -> Array:
        """Returns the output as a flat array."""
        out = self._buffers[-1]
        array = np.empty(dim_value(out.numel, {}), np.float32)
        self._device.copy_out(out.memory, array)
        return array
