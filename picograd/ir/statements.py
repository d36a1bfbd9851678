"""The statements of a Program: ordered, so that two loads around a store are two things.

In:    Ops as expressions
Out:   For, If, Alloc, Let, Load, Store, Transpose, Prefetch, CopyAsync, CommitCopies, WaitForCopies, Shuffle, LoadMatrices,
       Mma, Barrier, Check; `walk`, `operands`, `mapped`, `lanes_of`, WRITERS

Two forms share these records. Emitters write the free form: expressions are trees with LOADs in them, loops may be
UNROLL or VECTOR. `codegen/passes/linearize.py` makes the linear form, which renderers read: every expression is one
operation on VARs, RANGEs and CONSTs; LOADs are Load statements; only GRID, BLOCK and LOOP loops are left; a VAR has
a number of lanes, and a value with several lanes is a vector.

A statement says of itself what passes ask: which fields are indices and which are values by their names, below, and what it
writes, orders and touches by its class. So a pass names only the kinds that it treats in a way of their own, and a renderer
has a method for each kind that its machine has (WRITERS).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, TypeVar, get_args

from picograd import dtype as dtypes
from picograd.ir.op import Op
from picograd.ir.opcode import MemorySpace, OpCode
from picograd.record import Record, replace

INDICES = frozenset({"index", "place", "at", "left", "right"})  # fields that say where: int64, or in the linear form int32
VALUES = frozenset({"value", "valid", "condition", "inside"})  # fields that are read for what they are
Span = tuple[Op, Op, int]  # memory, the first element and how many


class Described(Record):
    """The base of statements: facts that passes ask for, besides the fields.

    text:    its line in the text of a Program: {field}, {memory[index]}, and {field?} for what may be left out
    writes:  the field that names the memory it writes
    orders:  what other threads have written to memory is seen after it
    of_warp: all threads of a warp run it together
    guard:   how it is kept inside of memory: by its "valid", by an "if" around it, or "" where nothing can
    """

    text: ClassVar[str] = ""
    writes: ClassVar[str] = ""
    orders: ClassVar[bool] = False
    of_warp: ClassVar[bool] = False
    guard: ClassVar[str] = ""

    def spans(self) -> tuple[Span, ...]:
        """Returns the memory touched, for any conditions, except for Load and Store: from the first element to the last."""
        return ()

    def spans_where_valid(self) -> tuple[Span, ...]:
        """Returns the memory that is touched only where `valid` holds, except for Load and Store."""
        return ()

    def num_moved(self) -> int:
        """Returns how many elements it reads and writes, of a square in memory; others are counted where they are named."""
        return 0

    def broken(self) -> Iterator[str]:
        """Yields the rules that it breaks by itself, wherever it stands; ir/spec.py has those of all statements."""
        yield from ()


# ---- statements of every machine ----
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

    def broken(self) -> Iterator[str]:
        if self.memory.code is not OpCode.ALLOC or self.memory.arg[1] < 0:
            yield "Alloc makes the memory of an ALLOC"


class Let(Described):
    """Names the value of one operation. `value` is an elementwise Op, or one of

    EXPAND(x) arg lanes: scalar x in every lane;  LANES arg n: 0..n-1;  REDUCE(x) arg (op, lanes): over the lanes of x,
    by halves: lane i with lane i + n/2, then n/4, ... so that the order of a float sum is fixed.
    """

    text: ClassVar[str] = "{var} = {value}"
    var: Op
    value: Op

    def broken(self) -> Iterator[str]:
        if self.var.dtype is not self.value.dtype:
            yield "a VAR has the dtype of its value"


class Load(Described):
    """var = memory[index].

    memory:  PARAM or ALLOC;  index: int64, in the linear form perhaps int32, as all indices below; in elements
    Lanes of var > 1 with a scalar index: that many consecutive elements from there. With a vector index: one
    element for each lane (a gather).
    valid:   None, or a bool of one lane or of var's lanes; where false the value is 0 and memory is not touched.
    """

    text: ClassVar[str] = "load {var} = {memory[index]}{valid?}"
    guard: ClassVar[str] = "valid"
    var: Op
    memory: Op
    index: Op
    valid: Op | None = None

    def broken(self) -> Iterator[str]:
        if self.var.dtype is not self.memory.dtype:
            yield "a VAR has the dtype of the memory it is loaded from"


class Store(Described):
    """memory[index] = value, with the rules of Load for lanes and `valid`."""

    text: ClassVar[str] = "{memory[index]} = {value}{valid?}"
    writes: ClassVar[str] = "memory"
    guard: ClassVar[str] = "valid"
    memory: Op
    index: Op
    value: Op
    valid: Op | None = None

    def broken(self) -> Iterator[str]:
        if self.value.dtype is not self.memory.dtype:
            yield "a stored value has the dtype of the memory"


class Transpose(Described):
    """into[place + j * step + i] = memory[index + i * stride + j] for i, j < lanes: a square, read and written by lines.

    memory, into:   PARAM or ALLOC, that do not overlap; memory is not in registers
    index, place:   int64 of one lane, in elements
    stride, step:   elements from line to line of each, `lanes` or more
    lanes:          a power of two
    """

    text: ClassVar[str] = "transpose {lanes} to {into[place]} by {step} of {memory[index]} by {stride}"
    writes: ClassVar[str] = "into"
    guard: ClassVar[str] = "if"
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

    def num_moved(self) -> int:
        return 2 * self.lanes**2

    def broken(self) -> Iterator[str]:
        if self.memory.dtype is not self.into.dtype:
            yield "a stored value has the dtype of the memory"
        if min(self.step, self.stride) < self.lanes or self.memory is self.into:
            yield "the lines of a transposed square do not overlap"
        if self.lanes < 2 or self.lanes & (self.lanes - 1):
            yield "a transposed square has a vector's lanes, a power of two"
        if _is_in(self.memory, MemorySpace.REGISTER):
            yield "a transposed square is in memory"


# ---- copies ahead, shuffles, matrices ----
class Prefetch(Described):
    """Asks for the line of the cache that memory[index] is in. Changes nothing, and the index may be outside of memory.

    index:  int64 of one lane; in a VECTOR loop of the free form, that of its first lane
    """

    text: ClassVar[str] = "prefetch {memory[index]}"
    memory: Op
    index: Op


COPY_BYTES = (4, 8, 16)  # that a thread copies in the background at a time (PTX ISA, cp.async)


class CopyAsync(Described):
    """into[place : place + lanes] = memory[index : index + lanes] in the background; zeros where not valid.

    A thread may read the elements that it copied once it has waited for them, other threads after a Barrier behind
    that; until then no thread touches them.

    into:          SHARED, of the dtype of memory, which is a PARAM
    place, index:  int64 of one lane, multiples of `lanes`
    lanes:         so many that they have one of COPY_BYTES
    valid:         None, or a bool of one lane; where false memory is not touched
    """

    text: ClassVar[str] = "copy {lanes} to {into[place]} of {memory[index]}{valid?}"
    writes: ClassVar[str] = "into"
    guard: ClassVar[str] = "valid"
    into: Op
    place: Op
    memory: Op
    index: Op
    lanes: int
    valid: Op | None = None

    def spans(self) -> tuple[Span, ...]:
        return ((self.into, self.place, self.lanes),)

    def spans_where_valid(self) -> tuple[Span, ...]:
        return ((self.memory, self.index, self.lanes),)

    def broken(self) -> Iterator[str]:
        memory, into = self.memory, self.into
        if memory.code is not OpCode.PARAM or not _is_in(into, MemorySpace.SHARED) or memory.dtype is not into.dtype:
            yield "an asynchronous copy is from a PARAM to SHARED memory of its dtype"
        if self.lanes * into.dtype.itemsize not in COPY_BYTES:
            yield "an asynchronous copy has 4, 8 or 16 bytes"


class CommitCopies(Described):
    """Closes a group: the copies that its thread has started since the last one."""

    text: ClassVar[str] = "commit copies"


class WaitForCopies(Described):
    """Waits for all groups of its thread but the last `still`."""

    text: ClassVar[str] = "wait for copies but {still}"
    orders: ClassVar[bool] = True
    still: int

    def broken(self) -> Iterator[str]:
        if self.still < 0:
            yield "a wait leaves zero or more groups in flight"


class Shuffle(Described):
    """var = value, as that thread of the warp has it whose number differs by the bit `distance`.

    A warp is WARP_THREADS neighbours of a BLOCK loop; all of them run the statement together.

    value:     of one lane
    distance:  a power of two below WARP_THREADS
    """

    text: ClassVar[str] = "shuffle {var} = {value} by {distance}"
    of_warp: ClassVar[bool] = True
    var: Op
    value: Op
    distance: int

    def broken(self) -> Iterator[str]:
        if self.var.dtype is not self.value.dtype or lanes_of(self.var) != 1 or lanes_of(self.value) != 1:
            yield "a Shuffle passes one value of its VAR's dtype"
        if not 0 < self.distance < WARP_THREADS or self.distance & (self.distance - 1):
            yield "the distance of a Shuffle is a power of two inside a warp"


class LoadMatrices(Described):
    """into[place : place + 8] = what a thread holds of four matrices of 8 x 8 in SHARED memory, brought by a warp.

    All threads of the warp run it together. Thread 8 m + r says where row r of matrix m begins; a row is contiguous.
    Where g, t = divmod(its number in the warp, 4), a thread gets of matrix m into[place + 2 m + i] = its element (g, 2 t +
    i), or if they are `transposed` the element (2 t + i, g).
    Source: PTX ISA, ldmatrix.

    into:          in registers, 16-bit elements of the dtype of memory
    place, index:  int64 of one lane; the index is a multiple of 8
    """

    text: ClassVar[str] = "{transposed?}matrices to {into[place]} of {memory[index]}"
    writes: ClassVar[str] = "into"
    of_warp: ClassVar[bool] = True
    into: Op
    place: Op
    memory: Op
    index: Op
    transposed: bool

    def spans(self) -> tuple[Span, ...]:
        return (self.memory, self.index, MATRIX_ROW), (self.into, self.place, 4 * 2)

    def broken(self) -> Iterator[str]:
        if not _is_in(self.into, MemorySpace.REGISTER) or not _is_in(self.memory, MemorySpace.SHARED):
            yield "matrices are loaded from SHARED memory into registers"
        if self.memory.dtype is not self.into.dtype or self.into.dtype.itemsize != 2:
            yield "loaded matrices have elements of 16 bits"


class Mma(Described):
    """acc[at : at + 4] += lhs[left : left + 8] @ rhs[right : right + 4]: 16 x 8 += (16 x 16) @ (16 x 8), by a warp.

    All threads of the warp run it together. Each holds a part of the three matrices, where g, t = divmod(its number in
    the warp, 4), and i counts its elements (PTX ISA, fragments of mma.m16n8k16):
        acc:  row g + 8 (i // 2),      column 2 t + i % 2
        lhs:  row g + 8 (i // 2 % 2),  k = 2 t + i % 2 + 8 (i // 4)
        rhs:  column g,                k = 2 t + i % 2 + 8 (i // 2)

    acc:            float32 in registers;  lhs, rhs: float16, bfloat16 or float32 in registers. A float32 is rounded to the
                    11 bits of significand that TF32 has, to nearest, ties away from zero
    at, left, right:  int64 of one lane
    """

    text: ClassVar[str] = "mma {acc[at]} += {lhs[left]} @ {rhs[right]}"
    writes: ClassVar[str] = "acc"
    of_warp: ClassVar[bool] = True
    acc: Op
    at: Op
    lhs: Op
    left: Op
    rhs: Op
    right: Op

    def spans(self) -> tuple[Span, ...]:
        return (self.acc, self.at, 4), (self.lhs, self.left, 8), (self.rhs, self.right, 4)

    def broken(self) -> Iterator[str]:
        if not all(_is_in(memory, MemorySpace.REGISTER) for memory in (self.acc, self.lhs, self.rhs)):
            yield "the parts of an Mma's matrices are in registers"
        if self.acc.dtype is not dtypes.float32 or self.lhs.dtype is not self.rhs.dtype:
            yield "an Mma adds products of one dtype in float32"
        if self.lhs.dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
            yield "an Mma multiplies float16, bfloat16 or float32"


# ---- barriers and checks ----
class Barrier(Described):
    """A barrier where all threads of the block wait for each other; SHARED memory written before is seen after."""

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

    def broken(self) -> Iterator[str]:
        if self.inside.dtype is not dtypes.bool_ or self.value.dtype is not dtypes.int64:
            yield "a Check asks a bool about an int64"
        if lanes_of(self.inside) != lanes_of(self.value):
            yield "a Check has a condition for each lane of its value"


# ---- all kinds, and what passes ask of each ----
MATRIX_ROW = 8  # elements of a row of a LoadMatrices
WARP_THREADS = 32  # on every NVIDIA GPU (CUDA C++ Programming Guide, SIMT architecture)
WARPGROUP_THREADS = 4 * WARP_THREADS

Statement = (
    For | If | Alloc | Let | Load | Store | Transpose | Prefetch | CopyAsync | CommitCopies | WaitForCopies | Shuffle
    | LoadMatrices | Mma | Barrier | Check
)  # fmt: skip


FIELDS = {kind: kind.__struct_fields__ for kind in get_args(Statement)}
ACCESSES = {kind: re.findall(r"\{(\w+)\[(\w+)\]\}", kind.text) for kind in FIELDS}  # fields of memory and of its index
CHANGING = {kind: [(name, name in INDICES) for name in FIELDS[kind] if name in INDICES | VALUES] for kind in FIELDS}
# The method of a renderer that writes a kind: write_copy_async for a CopyAsync.
WRITERS = {kind: "write" + re.sub("(?=[A-Z])", "_", kind.__name__).lower() for kind in FIELDS}
S = TypeVar("S", bound=Described)


def lanes_of(op: Op) -> int:
    """Returns how many lanes an operand of the linear form has."""
    return int(op.arg[1]) if op.code is OpCode.VAR else 1


def _is_in(memory: Op, space: MemorySpace) -> bool:
    return memory.code is OpCode.ALLOC and memory.arg[2] is space


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


def held(phases: Iterable[Iterable[Statement]]) -> list[Op]:
    """Returns the indices and the values of all statements: every expression, but for extents of loops."""
    found = []
    for statements in phases:
        for statement in walk(statements):
            for name, _ in CHANGING[type(statement)]:
                value = getattr(statement, name)
                if value is not None:
                    found.append(value)
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
