"""Writes Programs as LLVM IR: vectors and phi nodes spelled out, so that no pass is needed.

In:    statements of the linear form, a Target, the Dialect of a kind of machine
Out:   `LlvmWriter`, the base of the devices' renderers (devices/cpu/render.py, devices/ptx/render.py)

Three ideas spare LLVM the search for facts that are known here.

REGISTER memory has no address: in the linear form it is accessed at constant positions, each always with the same number of
lanes. So a position is a name for the value stored last (a Slot), and a loop or branch that changes it has a phi node. A
table (codegen/passes/tables.py) is a single position, from which lanes are selected.

    for r in loop(48):                   loop1:
      load v1 = acc[0]                     %acc = phi float [ %zero, %entry ], [ %sum, %loop1 ]
      v2 = v1 + v0                         %sum = fadd float %acc, %v0
      acc[0] = v2

Source: Braun et al. 2013, "Simple and Efficient Construction of Static Single Assignment Form"; loops and branches are
nested here, so what a body changes is known before it is written.

An address is a base plus the step of the innermost loop, as in addressing modes. An index c * i + (terms that are constant
in the loop of i) + constant becomes a base before the loop, a counter that grows by c, and the constant, which loads and
stores add for free. Accesses share bases and counters, so LLVM's loop strength reduction is not needed.

    for r in loop(48):                       before:       %base = getelementptr float, ptr %p1, i64 %v3
      v5 = r * 32                            loop1:        %by32 = phi i64 [ 0, ... ], [ %by32.next, ... ]
      v6 = v5 + v3                                         %at = getelementptr float, ptr %base, i64 %by32
      load 16 of p1 at v6                                  load <16 x float>, ptr %at

The value of an index that is a sum is written only if something other than an address reads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.render_grids import broken
from picograd.devices.render_llvm_rows import (
    constant,
    index_division,
    join_lanes,
    memory_type,
    splat,
    suffix,
    type_of,
    vector,
    write_operation,
)
from picograd.dtype import DType
from picograd.errors import VerifyError
from picograd.ir.arithmetic import Interval
from picograd.ir.build import is_register
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.ranges import interval_of
from picograd.ir.stages import Program
from picograd.ir.statements import (
    WRITERS,
    Alloc,
    Check,
    For,
    If,
    Let,
    Load,
    Prefetch,
    Statement,
    Store,
    Transpose,
    lanes_of,
)
from picograd.record import Record, Struct, field

LIKELY = '!0 = !{!"branch_weights", i32 1048576, i32 1}\n'  # a report ends the run, so its branch is placed out of line


class Dialect(Record):
    """The differences between text for processors and for GPUs, except accesses to memory.

    apart:     a register holds one element; else a vector of lanes
    picks:     an instruction extracts a lane of a vector by a variable number
    barrier:   instruction that synchronizes the threads of a block; "": a block has one thread
    prefetch:  instruction that prefetches the line of an {address}; "": threads hide latency instead
    rows:      (opcode, dtype) -> a better instruction than that of render_llvm_rows.py
    """

    apart: bool
    picks: bool
    barrier: str
    prefetch: str
    rows: Mapping[tuple[OpCode, DType], str]


# ---- which places of registers a body changes ----
Slot = tuple[Op, int, int]  # memory, first lane's position, lanes


def slot_of(access: Load | Store) -> Slot:
    """Returns the slot that an access of REGISTER memory reads or writes.

    Raises:
      VerifyError: the position is computed at run time.
    """
    if is_lookup(access):
        return access.memory, 0, access.memory.arg[1]
    value = access.var if isinstance(access, Load) else access.value
    lanes = lanes_of(value) if access.valid is None else max(lanes_of(value), lanes_of(access.valid))
    return access.memory, _constant_place(access.memory, access.index), lanes


def elements_of(slot: Slot) -> list[Slot]:
    """Returns the slots of one lane each that make up a slot of several."""
    memory, place, lanes = slot
    return [(memory, place + i, 1) for i in range(lanes)]


def parts_of(statement: Statement) -> list[list[Slot]]:
    """Returns the slots of a thread's parts of matrices in registers: for each span one per element."""
    spans = [span for span in statement.spans() if is_register(span[0])]
    return [elements_of((memory, _constant_place(memory, index), count)) for memory, index, count in spans]


def is_lookup(access: Load | Store) -> bool:
    """True for a Load with a separate index per lane: its memory is a table, held as one vector."""
    return isinstance(access, Load) and lanes_of(access.index) > 1


def slots_of(square: Transpose) -> list[Slot]:
    """Returns the slots of the lines that a Transpose writes to REGISTER memory."""
    first = _constant_place(square.into, square.place)
    return [(square.into, first + j * square.step, square.lanes) for j in range(square.lanes)]


def _constant_place(memory: Op, index: Op) -> int:
    if index.code is not OpCode.CONST:
        raise VerifyError(f"render llvm: {memory} is in registers, and its index {index} is not a constant.")
    return int(index.arg)


def slots_by_id(body: Iterable[Statement], apart: bool = False) -> dict[int, list[Slot]]:
    """Returns, by id of each For and If, the outer slots that its body stores to, in the order of the first stores; and by
    id of each other statement that accesses registers its slots. One pass over the statements.

    Args:
      apart: each element is a slot of its own, whatever the lanes of its accesses

    Raises:
      VerifyError: two accesses of REGISTER memory overlap and are not equal.
    """
    found: dict[int, list[Slot]] = {}
    lanes_at: dict[tuple[Op, int], int] = {}
    _add_slots(body, found, lanes_at, apart)
    _check_places(lanes_at)
    return found


def _add_slots(
    body: Iterable[Statement], found: dict[int, list[Slot]], lanes_at: dict[tuple[Op, int], int], apart: bool
) -> list[Slot]:
    """Adds the changes by a body's loops and branches to `found`, and the lanes at each position; returns all changes."""
    stored: dict[Slot, None] = {}
    own = set()
    for statement in body:
        if isinstance(statement, Let):  # the most common kind
            continue
        if isinstance(statement, For | If):
            inside = found[id(statement)] = _add_slots(statement.body, found, lanes_at, apart)
            stored.update(dict.fromkeys(inside))
            continue
        if isinstance(statement, Alloc):
            own.add(statement.memory)
            continue
        slots = _slots(statement)
        if apart:
            slots = [each for slot in slots for each in elements_of(slot)]
        for memory, place, lanes in slots:
            if lanes_at.setdefault((memory, place), lanes) != lanes:
                raise VerifyError(f"render llvm: {memory}[{place}] is used with {lanes} lanes and with another number.")
        if not slots:
            continue
        found[id(statement)] = slots
        if statement.writes:
            written = getattr(statement, statement.writes)
            stored.update(dict.fromkeys(slot for slot in slots if slot[0] is written))
    return [slot for slot in stored if slot[0] not in own]


def _slots(statement: Statement) -> list[Slot]:
    """Returns the register slots that a statement reads or writes."""
    if isinstance(statement, Load | Store):
        return [slot_of(statement)] if is_register(statement.memory) else []
    if isinstance(statement, Transpose):
        return slots_of(statement) if is_register(statement.into) else []
    return [slot for part in parts_of(statement) for slot in part]


def _check_places(lanes_at: dict[tuple[Op, int], int]) -> None:
    """Raises VerifyError if a position is inside the lanes of another slot."""
    places = sorted([(memory.arg[0], place, lanes) for (memory, place), lanes in lanes_at.items()])
    for (name, first, lanes), (other, second, _) in zip(places, places[1:]):
        if name == other and second < first + lanes:
            raise VerifyError(f"render llvm: {name}[{second}] is inside the {lanes} lanes at {first}.")


# ---- addresses ----
class Sum(Record):
    """step * index of the innermost loop + the terms + constant; the terms do not change in that loop."""

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

    range:     name of its RANGE
    index:     name of its counter
    is_wide:   the counter has 64 bits, as addresses do
    head:      instructions before the first iteration
    sums:      the Sum of each VAR of the body that is one
    counters:  step -> name of a counter that grows by it
    totals:    terms -> name of their sum
    bases:     (memory, terms) -> name of their address
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
    """Returns the Sum of one operation on the operands' Sums, or None."""
    if value.code is OpCode.ADD:
        a, b = sum_of(value.src[0]), sum_of(value.src[1])
        return None if a is None or b is None else a.plus(b)
    if value.code is OpCode.MUL and value.src[1].code is OpCode.CONST:
        a = sum_of(value.src[0])
        return None if a is None else a.times(int(value.src[1].arg))
    return None


# ---- functions ----
class LlvmWriter(ABC):
    """The text of a function under construction.

    entry:     instructions before the code: arguments, stack memory
    lines:     the code
    block:     label of the current basic block
    values:    VAR -> name of its value
    constants: VAR -> constant that all its lanes are
    repeated:  VAR -> scalar that all its lanes are
    vectors:   VAR of several lanes -> name of the vector
    intervals: integer VAR -> its least and greatest value
    indices:   integer VARs with their values, until their interval is needed
    ranges:    id of a RANGE -> name of its value
    pointers:  memory -> name of its address
    held:      slot -> name of the value stored last
    slots_by_id: id of a loop or branch -> the slots that it changes; of an access -> its own slots
    loops:     the open loops, outermost first
    depths:    VAR -> number of loops open at its definition
    waiting:   VAR whose value is not needed yet -> position of its instruction
    """

    dialect: Dialect

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.block = "entry"
        self.values: dict[Op, str] = {}
        self.constants: dict[Op, Op] = {}
        self.repeated: dict[Op, Op] = {}
        self.vectors: dict[Op, Op] = {}
        self.intervals: dict[Op, Interval] = {}
        self.indices: list[tuple[Op, Op]] = []
        self.ranges: dict[int, str] = {}
        self.pointers: dict[Op, str] = {}
        self.held: dict[Slot, str] = {}
        self.slots_by_id: dict[int, list[Slot]] = {}
        self.loops: list[OpenLoop] = []
        self.depths: dict[Op, int] = {}
        self.waiting: dict[Op, tuple[list[str], int, Op]] = {}
        self.num_names = self.num_labels = 0

    def name(self) -> str:
        self.num_names += 1
        return f"%t{self.num_names}"

    def emit(self, instruction: str, name: str | None = None) -> str:
        """Writes one instruction and returns the name of its result."""
        if name is None:
            self.num_names += 1  # `name` written out
            name = f"%t{self.num_names}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    # ---- what a machine does in its own way ----
    @abstractmethod
    def read(self, load: Load) -> str:
        """Writes a Load from memory with addresses and returns the name of its value."""

    @abstractmethod
    def write(self, store: Store) -> None:
        """Writes a Store to memory with addresses."""

    @abstractmethod
    def allocate(self, memory: Op) -> None:
        """Allocates the kernel's own memory."""

    # ---- statements ----
    def statements(self, body: Sequence[Statement]) -> None:
        """Writes the instructions of statements in order, each by the method of its kind."""
        for statement in body:
            getattr(self, WRITERS[type(statement)], self.write_unknown)(statement)

    def write_unknown(self, statement: Statement) -> None:
        """Raises the error for a statement that the machine does not support."""
        raise broken(self.program, f"a {type(statement).__name__} is a statement of another kind of machine")

    def write_load(self, load: Load) -> None:
        parts, self.depths[load.var] = self.slots_by_id.get(id(load)), len(self.loops)
        self.values[load.var] = self.read(load) if parts is None else self.read_register(load, parts)

    def write_store(self, store: Store) -> None:
        parts = self.slots_by_id.get(id(store))
        if parts is None:
            self.write(store)
        else:
            self.write_register(store, parts)

    def write_for(self, loop: For) -> None:
        extent = loop.range.src[0]
        self.loop(loop, "0", self.end_of(loop), extent.code is OpCode.CONST and extent.arg > 0)

    def write_if(self, branch: If) -> None:
        with self.when(self.operand(branch.condition, 1), self.slots_by_id[id(branch)]):
            self.statements(branch.body)

    def write_alloc(self, alloc: Alloc) -> None:
        self.allocate(alloc.memory)

    def write_prefetch(self, prefetch: Prefetch) -> None:
        if self.dialect.prefetch:
            address = self.address(prefetch.memory, prefetch.index)
            self.lines.append(f"  {self.dialect.prefetch.format(address=address)}")

    def write_barrier(self, statement: Statement) -> None:
        if self.dialect.barrier:
            self.lines.append(f"  {self.dialect.barrier}")

    # ---- loops and branches ----
    def loop(self, loop: For, low: str, high: str, runs: bool) -> None:
        """Writes a loop from `low` up to `high`; `runs`: it has at least one iteration.

        It has as few basic blocks as possible: LLVM selects instructions block by block.
        """
        self.num_labels += 1
        label, counter = f"loop{self.num_labels}", type_of(loop.range.dtype)
        start = self.block
        here = OpenLoop(loop.range.arg[0], f"%i{self.num_labels}", loop.range.dtype is dtypes.int64)
        before = {slot: self.held.get(slot, "poison") for slot in self.slots_by_id[id(loop)]}
        heads = {slot: self.name() for slot in before}
        self.held.update(heads)
        body = self._body_of(loop, here, label)
        end = self.block
        after = {slot: self.held[slot] for slot in before}
        origins = {here.index: (low, 1), **{n: (self.times(here, low, step), step) for step, n in here.counters.items()}}
        self.lines += here.head
        if runs:
            self.lines.append(f"  br label %{label}")
        else:
            some = self.emit(f"icmp slt {counter} {low}, {high}")
            self.lines.append(f"  br i1 {some}, label %{label}, label %{label}.done")
        self.lines.append(f"{label}:")
        for name, (first, _) in origins.items():
            kind = counter if name is here.index else "i64"
            self.emit(f"phi {kind} [ {first}, %{start} ], [ {name}.next, %{end} ]", name)
        for slot, name in heads.items():
            self.emit(_phi(slot, (before[slot], start), (after[slot], end)), name)
        self.lines += body
        for name, (_, step) in origins.items():
            how = f"add nuw nsw {counter} {name}, 1" if name is here.index else f"add i64 {name}, {step}"
            self.emit(how, f"{name}.next")
        more = self.emit(f"icmp slt {counter} {here.index}.next, {high}")
        self.lines.append(f"  br i1 {more}, label %{label}, label %{label}.done{self.hint(loop)}")
        self.label(f"{label}.done")
        if not runs:
            self._join(before, start, after, end)

    def end_of(self, loop: For) -> str:
        """Returns the extent of a loop in the type of its counter."""
        end = self.operand(loop.range.src[0], 1)
        is_wide = loop.range.dtype is dtypes.int64 or not end.startswith("%")
        return end if is_wide else self.emit(f"trunc i64 {end} to {type_of(loop.range.dtype)}")

    def hint(self, loop: For) -> str:
        """Returns the compiler's hint for a loop."""
        return ""

    def _body_of(self, loop: For, here: OpenLoop, label: str) -> list[str]:
        """Returns the lines of a loop's body; lines before the first iteration go to `here`."""
        outside, self.lines = self.lines, []
        self.loops.append(here)
        self.ranges[here.range] = here.index
        self.block = label
        self.statements(loop.body)
        self.loops.pop()
        body, self.lines = self.lines, outside
        return [line for line in body if line]

    def _join(self, before: Mapping[Slot, str], start: str, after: Mapping[Slot, str], end: str) -> None:
        """Writes the phi nodes of registers where two paths meet: `before` from `start`, `after` from `end`."""
        for slot, value in before.items():
            self.held[slot] = self.emit(_phi(slot, (value, start), (after[slot], end)))

    def label(self, text: str) -> None:
        self.lines.append(f"{text}:")
        self.block = text

    @contextmanager
    def when(self, condition: str, changed: Iterable[Slot] = ()) -> Iterator[None]:
        """Writes a branch; registers that it changes get phi nodes after it."""
        self.num_labels += 1
        label = f"if{self.num_labels}"
        self.lines.append(f"  br i1 {condition}, label %{label}, label %{label}.done")
        start, before = self.block, {slot: self.held.get(slot, "poison") for slot in changed}
        self.label(label)
        yield
        self.lines.append(f"  br label %{label}.done")
        end, after = self.block, {slot: self.held[slot] for slot in before}
        self.label(f"{label}.done")
        self._join(before, start, after, end)

    # ---- registers ----
    def read_register(self, load: Load, parts: list[Slot]) -> str:
        """Returns a register's value from the slots `parts`; 0 if the condition is false."""
        values = [self.held.get(part, "poison") for part in parts]  # unspecified until stored
        if is_lookup(load):
            values = [self.look_up(parts, load.index)]
        if load.valid is not None:
            values = [
                self._chosen(load.valid, lane, part, value, "zeroinitializer")
                for lane, (part, value) in enumerate(zip(parts, values))
            ]
        if len(values) == 1:
            return values[0]
        kind, scalar, held = type_of(load.var.dtype, len(parts)), type_of(load.var.dtype), "poison"
        for lane, value in enumerate(values):
            held = self.emit(f"insertelement {kind} {held}, {scalar} {value}, i64 {lane}")
        return held

    def look_up(self, parts: Sequence[Slot], index: Op) -> str:
        """Returns lanes of a table whose elements have a register each; LLVM folds constant positions."""
        lanes, dtype = lanes_of(index), parts[0][0].dtype
        table, places, held = "poison", self.operand(index, lanes), "poison"
        for i, part in enumerate(parts):
            one = f"{type_of(dtype)} {self.held.get(part, 'poison')}"
            table = self.emit(f"insertelement {type_of(dtype, len(parts))} {table}, {one}, i64 {i}")
        for lane in range(lanes):
            place = self.emit(f"extractelement {type_of(index.dtype, lanes)} {places}, i64 {lane}")
            one = self.emit(f"extractelement {type_of(dtype, len(parts))} {table}, {type_of(index.dtype)} {place}")
            held = self.emit(f"insertelement {type_of(dtype, lanes)} {held}, {type_of(dtype)} {one}, i64 {lane}")
        return held

    def write_register(self, store: Store, parts: list[Slot]) -> None:
        """Stores a value to the slots `parts` of a register; if the condition is false, they keep their values."""
        memory, lanes = store.memory, len(parts) * parts[0][2]
        value = self.operand(store.value, lanes)
        for lane, part in enumerate(parts):
            one = value
            if len(parts) > 1:
                one = self.emit(f"extractelement {type_of(memory.dtype, lanes)} {value}, i64 {lane}")
            if store.valid is not None:
                one = self._chosen(store.valid, lane, part, one, self.held.get(part, "poison"))
            self.held[part] = one

    def _chosen(self, valid: Op, lane: int, part: Slot, value: str, otherwise: str) -> str:
        """Writes the select of a value by a condition, for all lanes of a slot."""
        memory, _, lanes = part
        own = lanes_of(valid) if self.dialect.apart else lanes
        condition = self.operand(valid, own)
        if own > lanes:
            condition = self.emit(f"extractelement <{own} x i1> {condition}, i64 {lane}")
        kind = type_of(memory.dtype, lanes)
        return self.emit(f"select {vector('i1', lanes)} {condition}, {kind} {value}, {kind} {otherwise}")

    # ---- values ----
    def write_let(self, let: Let) -> None:
        """Names a value. That of an index that is a sum is written only if something other than an address reads it."""
        var, value, lanes = let.var, let.value, let.var.arg[1]
        if value.code is OpCode.EXPAND:
            (self.constants if value.src[0].code is OpCode.CONST else self.repeated)[var] = value.src[0]
        self.depths[var] = len(self.loops)
        if lanes > 1:
            self.vectors[var] = value
        if not self.is_index(value):
            self.values[var] = self.operation(value, lanes)
            return
        self.indices.append((var, value))
        found = add_up(value, self.sum_of) if self.loops and lanes == 1 else None
        if found is None:
            self.values[var] = self.values.get(value) or self.operation(value, lanes)
        else:
            self.loops[-1].sums[var] = found
            self.waiting[var] = (self.lines, len(self.lines), value)
            self.lines.append("")  # accesses alone use most indices

    def is_index(self, value: Op) -> bool:
        """True for possible parts of addresses: int64, the type of addresses, too."""
        return value.dtype is dtypes.int64

    def operand(self, op: Op, lanes: int) -> str:
        """Returns the text of a value with this number of lanes; a scalar is repeated."""
        if op.code is OpCode.CONST:
            return constant(op.arg, op.dtype, lanes)
        own = op.arg[1] if op.code is OpCode.VAR else 1  # `lanes_of` written out: half of all calls come by here
        if own == lanes:
            return self.values.get(op) or self.value_of(op)
        if own != 1:
            raise VerifyError(f"render llvm: {op} has {own} lanes where {lanes} are needed.")
        return splat(self.emit, self.value_of(op), type_of(op.dtype), lanes)

    def value_of(self, op: Op) -> str:
        """Returns the name or literal of a scalar value."""
        if op.code is OpCode.RANGE:
            return self.ranges[op.arg[0]]
        if op.code is OpCode.BIND:
            return self.value_of(op.src[0])
        if op in self.waiting:
            self._write_waiting(op)
        found = self.values.get(op)
        if found is not None:
            return found
        if not op.src:
            raise VerifyError(f"render llvm: {op} is used before the statement that defines it.")
        return self.operation(op, 1)

    def _write_waiting(self, var: Op) -> None:
        """Writes the instruction of a Let at its position, since more than addresses use it."""
        lines, place, value = self.waiting.pop(var)
        sources = [self.operand(s, 1) for s in value.src]
        self.values[var] = name = self.name()
        kind = "i64" if var.dtype is dtypes.int64 else "nsw i32"
        lines[place] = f"  {name} = {value.code.name.lower()} {kind} {sources[0]}, {sources[1]}"

    def operation(self, op: Op, lanes: int) -> str:
        """Writes the value of a Let, or of a scalar expression such as a loop's extent."""
        if op.code is OpCode.LANES:
            return "<" + ", ".join(f"{type_of(op.dtype)} {i}" for i in range(lanes)) + ">"
        if op.code is OpCode.EXPAND or not op.src or op.code in (OpCode.RANGE, OpCode.BIND):
            return self.operand(op.src[0] if op.code is OpCode.EXPAND else op, lanes)
        if op.code is OpCode.REDUCE:
            return join_lanes(self.emit, op, self.operand(op.src[0], op.arg[1]))
        sources = list(map(self.constants.get, op.src, op.src))
        if op.code in (OpCode.IDIV, OpCode.MOD) and op.dtype is dtypes.int64:
            a, b = map(self.interval, op.src)
            if a[0] >= 0 and b[0] > 0:
                names = [self.operand(s, lanes) for s in op.src]
                return index_division(self.emit, op, names, lanes, max(a[1], b[1]) < 1 << 32)
        names = list(map(self.operand, op.src, repeat(lanes)))
        row = self.dialect.rows.get((op.code, op.dtype))
        if row is not None:
            t = type_of(op.dtype, lanes)
            return self.emit(row.format(*names, t=t, s=suffix(t)))
        return write_operation(self.emit, op, sources, names, lanes)

    def interval(self, op: Op) -> Interval:
        """Returns the least and greatest value of an integer."""
        for var, value in self.indices:
            self.intervals[var] = interval_of(value, self.intervals)
        self.indices.clear()
        return interval_of(op, self.intervals)

    # ---- addresses ----
    def address(self, memory: Op, index: Op) -> str:
        """Returns the address of one element."""
        pointer, kind = self.pointers[memory], memory_type(memory.dtype)
        found = self.sum_of(index) if self.loops else None
        if found is None:
            if index.code is not OpCode.CONST or index.arg != 0:
                step = f"{type_of(index.dtype)} {self.operand(index, 1)}"
                pointer = self.emit(f"getelementptr {kind}, ptr {pointer}, {step}")
            return pointer
        loop = self.loops[-1]
        if found.terms:
            key = memory, found.terms
            if key not in loop.bases:
                loop.bases[key] = self._base(loop, pointer, kind, found)
            pointer = loop.bases[key]
        for offset in (loop.counter(found.step) if found.step else 0, found.constant):
            if offset != 0:
                pointer = self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {offset}")
        return pointer

    def _base(self, loop: OpenLoop, pointer: str, kind: str, found: Sum) -> str:
        """Writes the base of an address, constant in the loop, before its first iteration."""
        total = loop.totals.get(found.terms)
        if total is None:
            total = loop.totals[found.terms] = self._total(loop, found)
        base = self.name()
        loop.head.append(f"  {base} = getelementptr {kind}, ptr {pointer}, i64 {total}")
        return base

    def _total(self, loop: OpenLoop, found: Sum) -> str:
        """Writes the sum of the terms, before the first iteration."""
        total, *parts = [self.times(loop, self.wide(op, loop.head), factor) for op, factor in found.terms]
        for part in parts:
            name = self.name()
            loop.head.append(f"  {name} = add i64 {total}, {part}")
            total = name
        return total

    def wide(self, op: Op, lines: list[str]) -> str:
        """Returns the name of a part of an address in 64 bits."""
        value = self.value_of(op)
        if op.dtype is dtypes.int64:
            return value
        name = self.name()
        lines.append(f"  {name} = sext {type_of(op.dtype)} {value} to i64")
        return name

    def sum_of(self, op: Op) -> Sum | None:
        """Returns an index as a Sum over the innermost loop; None if it is not one."""
        if op.code is OpCode.CONST:
            return Sum(constant=int(op.arg))
        loop = self.loops[-1]
        if op.code is OpCode.RANGE and op.arg[0] == loop.range:
            return Sum(step=1)
        if op.code is OpCode.VAR and self.depths.get(op) == len(self.loops):
            return loop.sums.get(op)
        return Sum(terms=((op, 1),)) if op.code in (OpCode.VAR, OpCode.RANGE, OpCode.VARIABLE, OpCode.BIND) else None

    def times(self, loop: OpenLoop, value: str, factor: int) -> str:
        """Returns a value times a number, computed before the first iteration of a loop."""
        if value == "0" or factor == 1:
            return value
        name = self.name()
        loop.head.append(f"  {name} = mul i64 {value}, {factor}")
        return name

    # ---- memory ----
    def from_memory(self, held: str, dtype: DType, lanes: int) -> str:
        if dtype is not dtypes.bool_:
            return held
        return self.emit(f"icmp ne {memory_type(dtype, lanes)} {held}, zeroinitializer")

    def to_memory(self, value: str, dtype: DType, lanes: int) -> str:
        if dtype is not dtypes.bool_:
            return value
        return self.emit(f"zext {type_of(dtype, lanes)} {value} to {memory_type(dtype, lanes)}")

    # ---- checks ----
    def write_check(self, checked: Check) -> None:
        """Writes a branch for an index out of range, which reports its first such lane.

        It makes no call: a call would clobber registers of the surrounding loops.
        """
        self.num_labels += 1
        before, label, lanes = self.block, f"outside{self.num_labels}", lanes_of(checked.value)
        inside, value = self.operand(checked.inside, lanes), self.operand(checked.value, lanes)
        holds = inside
        if lanes > 1:
            mask = self.emit(f"bitcast <{lanes} x i1> {inside} to i{lanes}")
            holds = self.emit(f"icmp eq i{lanes} {mask}, -1")
        self.lines.append(f"  br i1 {holds}, label %{label}.done, label %{label}, !prof !0")
        self.label(label)
        if lanes > 1:
            value = self._first_outside(inside, mask, value, lanes)
        slot = next(i for i, param in enumerate(self.program.params) if param.role == "report")
        number = checked.number + 1
        swap = self.emit(f"cmpxchg ptr %p{slot}, i64 0, i64 {number} monotonic monotonic, align 8")
        first = self.emit(f"extractvalue {{ i64, i1 }} {swap}, 1")
        self.lines.append(f"  br i1 {first}, label %{label}.keep, label %{label}.done")
        self.label(f"{label}.keep")
        place = self.emit(f"getelementptr i64, ptr %p{slot}, i64 1")
        self.lines.append(f"  store i64 {value}, ptr {place}, align 8")
        self.lines.append(f"  br label %{label}.done")
        self.label(f"{label}.done")
        if lanes == 1:  # NOTE: a condition kept in a byte of a register would wait for that register's old value
            passed = Op(OpCode.WHERE, dtypes.int64, (checked.inside, checked.value, const(0, dtypes.int64)))
            self.values[passed] = self.emit(f"phi i64 [ {value}, %{before} ], [ 0, %{label} ], [ 0, %{label}.keep ]")

    def _first_outside(self, inside: str, mask: str, value: str, lanes: int) -> str:
        """Writes the value of the first lane out of range."""
        if not self.dialect.picks:
            found = self.emit(f"extractelement <{lanes} x i64> {value}, i64 {lanes - 1}")
            for number in reversed(range(lanes - 1)):
                holds = self.emit(f"extractelement <{lanes} x i1> {inside}, i64 {number}")
                own = self.emit(f"extractelement <{lanes} x i64> {value}, i64 {number}")
                found = self.emit(f"select i1 {holds}, i64 {found}, i64 {own}")
            return found
        wrong = self.emit(f"xor i{lanes} {mask}, -1")
        whole = self.emit(f"zext i{lanes} {wrong} to i64")
        lane = self.emit(f"call i64 @llvm.cttz.i64(i64 {whole}, i1 true)")
        return self.emit(f"extractelement <{lanes} x i64> {value}, i64 {lane}")


def _phi(slot: Slot, *origins: tuple[str, str]) -> str:
    """Returns the instruction for a value that depends on the preceding block."""
    memory, _, lanes = slot
    return f"phi {type_of(memory.dtype, lanes)} " + ", ".join(f"[ {value}, %{block} ]" for value, block in origins)
