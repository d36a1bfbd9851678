"""The statements of a Program: ordered, so that two loads around a store are two things.

In:    Ops as expressions
Out:   For, If, Alloc, Let, Load, Store, Transpose, Prefetch, CopyAsync, CommitCopies, WaitForCopies, Shuffle, LoadMatrices,
       Mma, Barrier, Check; `walk`, `operands`, `mapped`, `lanes_of`
Next:  picograd/ir/stages.py

Two forms share these records. Emitters write the free form: expressions are trees with LOADs in them, loops may be
UNROLL or VECTOR. `codegen/passes/linearize.py` makes the linear form, which renderers read: every expression is one
operation on VARs, RANGEs and CONSTs; LOADs are Load statements; only GRID, BLOCK and LOOP loops are left; a VAR has
a number of lanes, and a value with several lanes is a vector.

A statement says of itself what passes ask: which fields are indices and which are values by their names, below, and what it
writes, orders and touches by its class. So a pass names only the kinds that it treats in a way of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar, get_args

from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Record, replace

INDICES = frozenset({"index", "place", "at", "left", "right"})  # fields that say where: int64, or in the linear form int32
VALUES = frozenset({"value", "valid", "condition", "inside"})  # fields that are read for what they are
Span = tuple[Op, Op, int]  # memory, the first element and how many


class Described(Record):
    """The base of statements: facts that passes ask for, beside the fields.

    text:    its line in the text of a Program: {field}, {memory[index]}, and {field?} for what may be left out
    writes:  the field that names the memory it writes
    orders:  what other threads have written to memory is seen after it
    """

    text: ClassVar[str] = ""
    writes: ClassVar[str] = ""
    orders: ClassVar[bool] = False

    def spans(self) -> tuple[Span, ...]:
        """Returns what it touches, whatever holds, but for Load and Store: from the first element to the last."""
        return ()


class For(Described):
    """Runs `body` for each value of `range` (a RANGE Op): 0 up to its extent.

    A loop of extent <= 0 does nothing. The extent is int64; a RANGE of int32 has one that int32 holds.
    GRID and BLOCK loops have no order among their iterations.
    """

    range: Op
    body: tuple[Statement, ...]


class If(Described):
    """Runs `body` where the bool scalar `condition` holds."""

    condition: Op
    body: tuple[Statement, ...]


class Alloc(Described):
    """Makes the memory that `memory` (an ALLOC Op) names; its content is unspecified."""

    text: ClassVar[str] = "alloc {memory}"
    memory: Op


class Let(Described):
    """Names the value of one operation. `value` is an elementwise Op, or one of

    EXPAND(x) arg lanes: scalar x in every lane;  LANES arg n: 0..n-1;  REDUCE(x) arg (op, lanes): over the lanes of x,
    by halves: lane i with lane i + n/2, then n/4, ... so that the order of a float sum is fixed.
    """

    text: ClassVar[str] = "{var} = {value}"
    var: Op
    value: Op


class Load(Described):
    """var = memory[index].

    memory:  PARAM or ALLOC;  index: int64, in the linear form perhaps int32, as all indices below; in elements
    Lanes of var > 1 with a scalar index: that many consecutive elements from there. With a vector index: one
    element for each lane (a gather).
    valid:   None, or a bool of one lane or of var's lanes; where false the value is 0 and memory is not touched.
    """

    text: ClassVar[str] = "load {var} = {memory[index]}{valid?}"
    var: Op
    memory: Op
    index: Op
    valid: Op | None = None


class Store(Described):
    """memory[index] = value, with the rules of Load for lanes and `valid`."""

    text: ClassVar[str] = "{memory[index]} = {value}{valid?}"
    writes: ClassVar[str] = "memory"
    memory: Op
    index: Op
    value: Op
    valid: Op | None = None


class Transpose(Described):
    """into[place + j * step + i] = memory[index + i * stride + j] for i, j < lanes: a square, read and written by lines.

    memory, into:   PARAM or ALLOC, that do not overlap; memory is not in registers
    index, place:   int64 of one lane, in elements
    stride, step:   elements from line to line of each, `lanes` or more
    lanes:          a power of two
    """

    text: ClassVar[str] = "transpose {lanes} to {into[place]} by {step} of {memory[index]} by {stride}"
    writes: ClassVar[str] = "into"
    into: Op
    place: Op
    step: int
    memory: Op
    index: Op
    stride: int
    lanes: int

    def spans(self) -> tuple[Span, ...]:
        last = self.lanes - 1
        read = self.memory, self.index, last * self.stride + self.lanes
        return read, (self.into, self.place, last * self.step + self.lanes)


class Prefetch(Described):
    """Asks for the line of the cache that memory[index] is in. Changes nothing, and the index may be outside of memory.

    index:  int64 of one lane; in a VECTOR loop of the free form, that of its first lane
    """

    text: ClassVar[str] = "prefetch {memory[index]}"
    memory: Op
    index: Op


class CopyAsync(Described):
    """into[place : place + lanes] = memory[index : index + lanes] in the background; zeros where not valid.

    What is copied is there for its own thread once that has waited for it, and for others after a Barrier behind that;
    until then nobody touches the elements.

    into:          SHARED, of the dtype of memory, which is a PARAM
    place, index:  int64 of one lane, multiples of `lanes`
    lanes:         4, 8 or 16 bytes of them
    valid:         None, or a bool of one lane; where false memory is not touched
    """

    text: ClassVar[str] = "copy {lanes} to {into[place]} of {memory[index]}{valid?}"
    writes: ClassVar[str] = "into"
    into: Op
    place: Op
    memory: Op
    index: Op
    lanes: int
    valid: Op | None = None

    def spans(self) -> tuple[Span, ...]:
        return ((self.into, self.place, self.lanes),)


class CommitCopies(Described):
    """Closes a group: the copies that its thread has started since the last one."""

    text: ClassVar[str] = "commit copies"


class WaitForCopies(Described):
    """Waits for all groups of its thread but the last `still`."""

    text: ClassVar[str] = "wait for copies but {still}"
    orders: ClassVar[bool] = True
    still: int


class Shuffle(Described):
    """var = value, as that thread of the warp has it whose number differs by the bit `distance`.

    A warp is WARP_THREADS neighbours of a BLOCK loop; all of them run the statement together.

    value:     of one lane
    distance:  a power of two below WARP_THREADS
    """

    text: ClassVar[str] = "shuffle {var} = {value} by {distance}"
    var: Op
    value: Op
    distance: int


class LoadMatrices(Described):
    """into[place : place + 8] = what a thread holds of four matrices of 8 x 8 in SHARED memory, brought by a warp.

    All threads of the warp run it together. Thread 8 m + r says where row r of matrix m begins; a row lies side by side.
    Where g, t = divmod(its number in the warp, 4), a thread gets of matrix m into[place + 2 m + i] = its element
    (g, 2 t + i), or where they are `turned` the element (2 t + i, g).
    Source: PTX ISA, ldmatrix.

    into:          in registers, 16-bit elements of the dtype of memory
    place, index:  int64 of one lane; the index is a multiple of 8
    """

    text: ClassVar[str] = "{turned?}matrices to {into[place]} of {memory[index]}"
    writes: ClassVar[str] = "into"
    into: Op
    place: Op
    memory: Op
    index: Op
    turned: bool

    def spans(self) -> tuple[Span, ...]:
        return (self.memory, self.index, MATRIX_ROW), (self.into, self.place, 4 * 2)


class Mma(Described):
    """acc[at : at + 4] += lhs[left : left + 8] @ rhs[right : right + 4]: 16 x 8 += (16 x 16) @ (16 x 8), by a warp.

    All threads of the warp run it together. Each holds a part of the three matrices, where g, t = divmod(its number in
    the warp, 4), and i counts its elements (PTX ISA, fragments of mma.m16n8k16):
        acc:  row g + 8 (i // 2),      column 2 t + i % 2
        lhs:  row g + 8 (i // 2 % 2),  k = 2 t + i % 2 + 8 (i // 4)
        rhs:  column g,                k = 2 t + i % 2 + 8 (i // 2)

    acc:            float32 in registers;  lhs, rhs: float16, bfloat16 or float32 in registers. Of a float32 the 11 bits of
                    significand that TF32 has are multiplied, rounded to nearest, ties away from zero
    at, left, right:  int64 of one lane
    """

    text: ClassVar[str] = "mma {acc[at]} += {lhs[left]} @ {rhs[right]}"
    writes: ClassVar[str] = "acc"
    acc: Op
    at: Op
    lhs: Op
    left: Op
    rhs: Op
    right: Op

    def spans(self) -> tuple[Span, ...]:
        return (self.acc, self.at, 4), (self.lhs, self.left, 8), (self.rhs, self.right, 4)


class Barrier(Described):
    """All threads of the block wait here for each other; SHARED memory written before is seen after."""

    text: ClassVar[str] = "barrier"
    orders: ClassVar[bool] = True


class Check(Described):
    """Reports `value` where `inside` does not hold: the first report of a run is the error it ends with.

    inside, value:  bool and int64, of as many lanes
    number:         of the CHECK among those of the kernel
    """

    text: ClassVar[str] = "check {inside} else report {number} of {value}"
    inside: Op
    value: Op
    number: int


MATRIX_ROW = 8  # elements of a row of a LoadMatrices
WARP_THREADS = 32  # on every NVIDIA GPU (CUDA C++ Programming Guide, SIMT architecture)
WARPGROUP_THREADS = 4 * WARP_THREADS

Statement = (
    For | If | Alloc | Let | Load | Store | Transpose | Prefetch | CopyAsync | CommitCopies | WaitForCopies | Shuffle
    | LoadMatrices | Mma | Barrier | Check
)  # fmt: skip


FIELDS = {kind: kind.__struct_fields__ for kind in get_args(Statement)}
CHANGING = {kind: [(name, name in INDICES) for name in FIELDS[kind] if name in INDICES | VALUES] for kind in FIELDS}
S = TypeVar("S", bound=Described)


def lanes_of(op: Op) -> int:
    """Returns how many lanes an operand of the linear form has."""
    return int(op.arg[1]) if op.code is OpCode.VAR else 1


def walk(statements: Iterable[Statement]) -> list[Statement]:
    """Returns every statement, outer before inner."""
    found: list[Statement] = []
    stack = [*statements][::-1]
    while stack:
        statement = stack.pop()
        found.append(statement)
        if isinstance(statement, For | If):
            stack += statement.body[::-1]
    return found


def operands(statement: Statement) -> tuple[Op, ...]:
    """Returns the Ops a statement holds, not those of its body."""
    held = [getattr(statement, name) for name in FIELDS[type(statement)]]
    return tuple([value for value in held if isinstance(value, Op)])


def mapped(statement: S, index: Callable[[Op], Op], value: Callable[[Op], Op]) -> S:
    """Returns a statement with functions of its indices and of its values in their place, in the order of its fields."""
    changed = {}
    for name, is_index in CHANGING[type(statement)]:
        held = getattr(statement, name)
        if held is not None:
            changed[name] = index(held) if is_index else value(held)
    return replace(statement, **changed) if changed else statement
