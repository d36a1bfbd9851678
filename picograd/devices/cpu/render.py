"""Writes a Program as LLVM IR for a processor: a function a phase, with vectors.

In:    Program in the linear form, Target
Out:   Source (language "llvm"): `define void @{name}_{phase}(ptr %args, i64 %begin, i64 %end)`

%args is an array of 64-bit words: a pointer for each parameter, then the variables. A call runs the iterations
begin..end of the phase's GRID loops, counted one loop after the other.

Where a condition may be false the address is replaced, not the code branched around: a scalar reads from a block of
zeros or writes to a block never read. Only lanes that differ need the masked instructions. One of these takes as long as
hundreds of others where its address is in a page that is not there, though no lane wants it: where that may be, it reads
zeros if no lane does.

Results so large that what is written first is gone before anything reads it are stored past the cache. A line of the
cache that is stored to is read first: 64 MiB of results move 128 MiB. A non-temporal store of a whole vector moves what
it writes, and leaves the cache to what is read again. It takes an address that is a multiple of its size: places in
memory are shown to be, memory itself is asked when the kernel runs, for other libraries' may begin anywhere. So such a
phase has two bodies, and a function that chooses. Measured on two Zen 4 cores: 64 MiB scaled in 1.9 ms, with stores
through the cache in 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from math import gcd
from operator import attrgetter
from typing import NamedTuple

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.render_grids import grid_loops, launch_of
from picograd.devices.render_llvm import LIKELY, Dialect, LlvmWriter, Slot, slots_by_id, slots_of
from picograd.devices.render_llvm_rows import constant, memory_type, splat, suffix, type_of, with_sign_of_divisor
from picograd.dtype import DType
from picograd.errors import VerifyError
from picograd.ir.arithmetic import fold
from picograd.ir.backend import ALIGNMENT
from picograd.ir.build import is_register
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.stages import Program, Source
from picograd.ir.statements import For, If, Let, Load, Statement, Store, Transpose, lanes_of, walk

PROCESSOR = Dialect(
    apart=False, picks=True, barrier="", prefetch="call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)", rows={}
)
# Zeros that a Load reads where its condition is false; no vector is longer: 64 lanes have 512 bytes.
ZEROS = f"@zeros = internal constant [1024 x i8] zeroinitializer, align {ALIGNMENT}"
BLOCK_BYTES = 16  # of a vector: what instructions interleave, of two vectors, in each of their blocks
NEAR_NBYTES = 1 << 16  # outside of memory other memory is as good as always; a last block of rows may seem to go on as far
STREAMED_NBYTES = 32 << 20  # of a result: as many as a last-level cache holds
NONTEMPORAL = "!1 = !{i32 1}\n"


# ---- a Program ----
def render(program: Program, target: Target) -> Source:
    """Returns the text of a Program.

    Raises:
      VerifyError: an operation that `legalize` should have replaced is left.
    """
    functions, launches = [], []
    streamed = streamed_stores(program, target)
    for phase, statements in enumerate(program.phases):
        symbol = f"{program.name}_{phase}"
        slots = {streamed[id(s)] for s in walk(statements) if id(s) in streamed} if streamed else ()
        if slots:
            functions.append(CpuWriter(program, target, streamed).function(f"{symbol}_streamed", statements))
            functions.append(CpuWriter(program, target).function(f"{symbol}_plain", statements))
            functions.append(choice_of_streams(symbol, sorted(slots)))
        else:
            functions.append(CpuWriter(program, target).function(symbol, statements))
        launches.append(launch_of(symbol, statements))
    text = "\n".join(functions)
    if "@zeros" in text:
        text = f"{ZEROS}\n\n{text}"
    for lanes, bits in sorted(set(re.findall(r"@remainder\.v(\d+)f(\d+)", text))):
        text = f"{text}\n{remainder(int(lanes), dtypes.float32 if bits == '32' else dtypes.float64)}"
    if "!prof !0" in text:
        text = f"{text}\n{LIKELY}"
    if streamed:
        text = f"{text}\n{NONTEMPORAL}"
    return program.source("llvm", text, launches)


# ---- one function ----
class CpuWriter(LlvmWriter):
    """The text of one phase's function under construction.

    streamed:    ids of the Stores that pass by the cache
    sink_nbytes: of the block of the stack that is never read
    lane_values: VAR of several lanes -> its LaneValues, where a Load asked
    """

    dialect = PROCESSOR

    def __init__(self, program: Program, target: Target, streamed: Collection[int] = ()):
        super().__init__(program, target)
        self.streamed, self.sink_nbytes = streamed, 0
        self.lane_values: dict[Op, LaneValues | None] = {}

    def function(self, symbol: str, statements: Sequence[Statement]) -> str:
        """Returns the text of one phase as a function: its arguments, its GRID loops one after the other."""
        for slot, param in enumerate(self.program.params):
            self._argument(f"%p{slot}", slot, "ptr")
            self.pointers[Op(OpCode.PARAM, param.dtype, (), (slot, (param.numel,)))] = f"%p{slot}"
        for i, variable in enumerate(self.program.variables):
            self.values[variable] = f"%n_{variable.arg[0]}"
            self._argument(self.values[variable], len(self.program.params) + i, "i64")
        self.slots_by_id = slots_by_id(statements)
        loops = grid_loops(statements)
        before = "0"
        for statement in statements:
            if isinstance(statement, For) and statement.range.arg[1] is AxisKind.GRID:
                before = self._grid(statement, before, statement is loops[0], statement is loops[-1])
            else:
                beside = not isinstance(statement, For | If) and not statement.writes
                assert not loops or beside, f"{statement} is outside the GRID loops"
                self.statements([statement])
        if self.sink_nbytes:
            self.entry.append(f"  %sink = alloca [{self.sink_nbytes} x i8], align {ALIGNMENT}")
        head = f"define void @{symbol}(ptr %args, i64 %begin, i64 %end) {{\nentry:\n"
        return head + "\n".join([*self.entry, *filter(None, self.lines)]) + "\n  ret void\n}\n"

    def _argument(self, name: str, word: int, llvm_type: str) -> None:
        self.entry.append(f"  {name}.at = getelementptr i64, ptr %args, i64 {word}")
        self.entry.append(f"  {name} = load {llvm_type}, ptr {name}.at, align 8")

    def _grid(self, loop: For, before: str, is_first: bool, is_last: bool) -> str:
        """Writes a GRID loop, the part of its iterations in begin..end; returns where the next one starts."""
        if is_first and is_last:
            if loop.range.src[0] is const(1, dtypes.int64):  # a call runs at least one iteration
                self.ranges[loop.range.arg[0]] = "0"
                self.statements(loop.body)
            else:
                self.loop(loop, "%begin", "%end", False)
            return before
        extent = self.operand(loop.range.src[0], 1)
        length = self.emit(f"call i64 @llvm.smax.i64(i64 {extent}, i64 0)")
        after = length if is_first else self.emit(f"add i64 {before}, {length}")
        first = self.emit(f"call i64 @llvm.smax.i64(i64 %begin, i64 {before})")
        last = self.emit(f"call i64 @llvm.smin.i64(i64 %end, i64 {after})")
        low = first if is_first else self.emit(f"sub i64 {first}, {before}")
        high = last if is_first else self.emit(f"sub i64 {last}, {before}")
        self.loop(loop, low, high, False)
        return after

    def allocate(self, memory: Op) -> None:
        """Takes memory on the stack; registers are values and need none."""
        if is_register(memory) or memory in self.pointers:
            return
        name, numel, _ = memory.arg
        self.entry.append(f"  %{name} = alloca [{numel} x {memory_type(memory.dtype)}], align {ALIGNMENT}")
        self.pointers[memory] = f"%{name}"

    def operation(self, op: Op, lanes: int) -> str:
        """Writes the value of a Let; a remainder of floats calls `remainder`, a function of whole vectors."""
        if op.code is not OpCode.MOD or not op.dtype.is_float or lanes == 1 or not self.target.has_fma:
            return super().operation(op, lanes)
        kind, (a, b) = type_of(op.dtype, lanes), (self.operand(s, lanes) for s in op.src)
        rest = self.emit(f"call {kind} @remainder.{suffix(kind)}({kind} {a}, {kind} {b})")
        return with_sign_of_divisor(self.emit, op.dtype, rest, b, lanes)

    # ---- loads and stores ----
    def read(self, load: Load) -> str:
        """Writes a Load; where the condition is false another address is read, or some lanes are masked.

        Elements that are near each other, such as some in falling order, are loaded in order and permuted in registers.
        """
        lanes, dtype = int(load.var.arg[1]), load.var.dtype
        if load.index in self.repeated:
            held = self._repeated(load, self.repeated[load.index], lanes)
        elif lanes_of(load.index) == 1:
            address = self.address(load.memory, load.index)
            held = self._load(address, dtype, lanes) if load.valid is None else self._contiguous(load, address, lanes)
        elif (near := near_elements(self, load, lanes)) is not None:
            held = near
        else:
            held = self._gather(load, lanes)
        return self.from_memory(held, dtype, lanes)

    def _contiguous(self, load: Load, address: str, lanes: int, is_reversed: bool = False) -> str:
        """Loads as many elements as there are lanes; where they are reversed the last lane's condition is first."""
        dtype = load.var.dtype
        if load.valid is None:
            return self._load(address, dtype, lanes)
        if lanes_of(load.valid) == 1:
            condition = self.operand(load.valid, 1)
            return self._load(self.emit(f"select i1 {condition}, ptr {address}, ptr @zeros"), dtype, lanes)
        mask, kind = self.operand(load.valid, lanes), memory_type(dtype, lanes)
        if is_reversed:
            mask = self._reversed(f"<{lanes} x i1>", mask, lanes)
        if self._may_be_far(load):
            address = self.emit(f"select i1 {self._any(mask, lanes)}, ptr {address}, ptr @zeros")
        return self.emit(
            f"call {kind} @llvm.masked.load.{suffix(kind)}.p0(ptr align {dtype.itemsize} {address}, "
            f"<{lanes} x i1> {mask}, {kind} zeroinitializer)"
        )

    def _reversed(self, kind: str, value: str, lanes: int) -> str:
        """Returns the lanes of a vector in the opposite order."""
        return self._picked(kind, value, "poison", [*reversed(range(lanes))])

    def write(self, store: Store) -> None:
        """Writes a Store; where the condition is false it goes where nothing reads, or some lanes are masked."""
        lanes, dtype = lanes_of(store.value), store.memory.dtype
        lanes = max(lanes, lanes_of(store.index), 1 if store.valid is None else lanes_of(store.valid))
        value = self.to_memory(self.operand(store.value, lanes), dtype, lanes)
        kind = memory_type(dtype, lanes)
        if lanes_of(store.index) > 1:
            self._scatter(store, value, lanes)
            return
        if store.valid is None:
            address = self.address(store.memory, store.index)
        elif lanes_of(store.valid) == 1:
            address = self._or_sink(self.address(store.memory, store.index), store.valid, lanes, dtype)
        else:
            address, mask = self.address(store.memory, store.index), self.operand(store.valid, lanes)
            self.lines.append(
                f"  call void @llvm.masked.store.{suffix(kind)}.p0({kind} {value}, "
                f"ptr align {dtype.itemsize} {address}, <{lanes} x i1> {mask})"
            )
            return
        if id(store) in self.streamed:
            self.lines.append(f"  store {kind} {value}, ptr {address}, align {lanes * dtype.itemsize}, !nontemporal !1")
        else:
            self._store(value, address, dtype, lanes)

    def write_transpose(self, square: Transpose) -> None:
        """Writes a Transpose: lines loaded, exchanged lane by lane, and stored unless registers are their place."""
        dtype, lanes = square.memory.dtype, square.lanes
        kind, scalar = memory_type(dtype, lanes), memory_type(dtype)

        def line(base: str, offset: int) -> str:
            return self.emit(f"getelementptr {scalar}, ptr {base}, i64 {offset}") if offset else base

        base = self.address(square.memory, square.index)
        lines = [self._load(line(base, i * square.stride), dtype, lanes) for i in range(lanes)]
        lines = self._transposed(kind, lines, min(lanes, BLOCK_BYTES // dtype.itemsize))
        if is_register(square.into):
            self.held |= zip(slots_of(square), [self.from_memory(value, dtype, lanes) for value in lines])
            return
        base = self.address(square.into, square.place)
        for j, value in enumerate(lines):
            self._store(value, line(base, j * square.step), dtype, lanes)

    def _transposed(self, kind: str, lines: list[str], block: int) -> list[str]:
        """Returns the columns of a square: those of each block x block first, in place, then whole blocks change lines."""
        squares = [self._interleaved(kind, lines[i : i + block], len(lines)) for i in range(0, len(lines), block)]
        columns = [self._dealt(kind, [square[j] for square in squares], block, len(lines)) for j in range(block)]
        return [columns[j][number] for number in range(len(squares)) for j in range(block)]

    def _interleaved(self, kind: str, lines: list[str], lanes: int) -> list[str]:
        """Returns the columns of the blocks of as many lines as a block has lanes: x86's unpack, NEON's zip.

        Each step interleaves a line of the first half with one of the second: a bit of a line's number becomes a lane's.
        """
        half = len(lines) // 2
        low = [lane for i in range(lanes) if i % len(lines) < half for lane in (i, lanes + i)]
        high = [lane + half for lane in low]
        for _ in range(half.bit_length()):  # log2(len(lines)) times
            pairs = [(lines[j], lines[j + half]) for j in range(half)]
            lines = [self._picked(kind, a, b, picked) for a, b in pairs for picked in (low, high)]
        return lines

    def _dealt(self, kind: str, lines: list[str], block: int, lanes: int) -> list[str]:
        """Returns lines: the first has the first block of each of `lines`, the second the second ones, and so on."""
        if len(lines) == 1:
            return lines
        even = [lane for lane in range(2 * lanes) if lane // block % 2 == 0]
        parts = [even, [lane + block for lane in even]]
        chosen = [[self._picked(kind, a, b, part) for a, b in zip(lines[::2], lines[1::2])] for part in parts]
        evens, odds = (self._dealt(kind, part, block, lanes) for part in chosen)
        return [line for pair in zip(evens, odds) for line in pair]

    def _picked(self, kind: str, a: str, b: str, lanes: list[int]) -> str:
        """Returns lanes of two vectors, those of the second counted on from those of the first."""
        picked = ", ".join([f"i32 {lane}" for lane in lanes])
        return self.emit(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{picked}>")

    def _may_be_far(self, load: Load) -> bool:
        """True where some address of a Load may be NEAR_NBYTES outside of its memory."""
        numel, near = load.memory.arg[1], NEAR_NBYTES // load.memory.dtype.itemsize
        (numel,) = numel if load.memory.code is OpCode.PARAM else (numel,)
        low, high = self.interval(load.index)
        return not isinstance(numel, int) or low < -near or high > numel + near

    def _any(self, mask: str, lanes: int) -> str:
        return self.emit(f"call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> {mask})")

    def _or_sink(self, address: str, valid: Op, lanes: int, dtype: DType) -> str:
        self.sink_nbytes = max(self.sink_nbytes, lanes * dtype.itemsize)
        return self.emit(f"select i1 {self.operand(valid, 1)}, ptr {address}, ptr %sink")

    def _load(self, address: str, dtype: DType, lanes: int) -> str:
        return self.emit(f"load {memory_type(dtype, lanes)}, ptr {address}, align {dtype.itemsize}")

    def _store(self, value: str, address: str, dtype: DType, lanes: int) -> None:
        self.lines.append(f"  store {memory_type(dtype, lanes)} {value}, ptr {address}, align {dtype.itemsize}")

    def look_up(self, parts: Sequence[Slot], index: Op) -> str:
        """Returns lanes of a table: AVX-512's vpermps, which reads the low bits of an index alone."""
        (slot,) = parts
        if type_of(slot[0].dtype, slot[2]) != "<16 x float>" or lanes_of(index) != slot[2]:
            raise VerifyError(f"render llvm: {slot[0]} is not a table of 16 float32 that 16 lanes read.")
        table = self.held.get(slot, "poison")
        narrow = self.emit(f"trunc <16 x i64> {self.operand(index, slot[2])} to <16 x i32>")
        return self.emit(f"call <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float> {table}, <16 x i32> {narrow})")

    # ---- lanes that are not contiguous ----
    def _repeated(self, load: Load, index: Op, lanes: int) -> str:
        """Loads the one element that all lanes want, or some of them; 0 in the others."""
        dtype, address = load.var.dtype, self.address(load.memory, index)
        kind, scalar = memory_type(dtype, lanes), memory_type(dtype)
        if load.valid is None:
            return splat(self.emit, self._load(address, dtype, 1), scalar, lanes)
        mask = self.operand(load.valid, lanes)
        one = self._load(self.emit(f"select i1 {self._any(mask, lanes)}, ptr {address}, ptr @zeros"), dtype, 1)
        held = splat(self.emit, one, scalar, lanes)
        return self.emit(f"select <{lanes} x i1> {mask}, {kind} {held}, {kind} zeroinitializer")

    def _gather(self, load: Load, lanes: int) -> str:
        """Loads one element for each lane: by the instruction where there is a fast one, else one by one."""
        dtype, pointer = load.var.dtype, self.pointers[load.memory]
        kind, scalar = memory_type(dtype, lanes), memory_type(dtype)
        index = self.operand(load.index, lanes)
        if dtype.itemsize >= 4 and self.target.vector_bytes >= 64:
            addresses = self.emit(f"getelementptr {scalar}, ptr {pointer}, <{lanes} x i64> {index}")
            if load.valid is not None:  # with a mask of its own an instruction takes ten times as long
                mask = f"<{lanes} x i1> {self.operand(load.valid, lanes)}"
                addresses = self.emit(f"select {mask}, <{lanes} x ptr> {addresses}, <{lanes} x ptr> splat (ptr @zeros)")
            return self.emit(
                f"call {kind} @llvm.masked.gather.{suffix(kind)}.v{lanes}p0(<{lanes} x ptr> align {dtype.itemsize} "
                f"{addresses}, <{lanes} x i1> splat (i1 true), {kind} zeroinitializer)"
            )
        held = "poison"
        for lane, address in enumerate(self._lane_addresses(load.memory, index, lanes, load.valid, "@zeros")):
            one = self._load(address, dtype, 1)
            held = self.emit(f"insertelement {kind} {held}, {scalar} {one}, i64 {lane}")
        return held

    def _scatter(self, store: Store, value: str, lanes: int) -> None:
        """Stores one element for each lane, in the order of the lanes."""
        dtype = store.memory.dtype
        kind, index = memory_type(dtype, lanes), self.operand(store.index, lanes)
        if store.valid is not None:
            self.sink_nbytes = max(self.sink_nbytes, dtype.itemsize)
        for lane, address in enumerate(self._lane_addresses(store.memory, index, lanes, store.valid, "%sink")):
            one = self.emit(f"extractelement {kind} {value}, i64 {lane}")
            self._store(one, address, dtype, 1)

    def _lane_addresses(self, memory: Op, index: str, lanes: int, valid: Op | None, elsewhere: str) -> list[str]:
        """Returns the address for each lane, `elsewhere` for those where `valid` is false."""
        pointer, scalar = self.pointers[memory], memory_type(memory.dtype)
        mask = None if valid is None else self.operand(valid, lanes)
        addresses = []
        for lane in range(lanes):
            at = self.emit(f"extractelement <{lanes} x i64> {index}, i64 {lane}")
            address = self.emit(f"getelementptr {scalar}, ptr {pointer}, i64 {at}")
            if mask is not None:
                condition = self.emit(f"extractelement <{lanes} x i1> {mask}, i64 {lane}")
                address = self.emit(f"select i1 {condition}, ptr {address}, ptr {elsewhere}")
            addresses.append(address)
        return addresses


# ---- elements near each other ----
class LaneValues(NamedTuple):
    """The values of a vector's lanes, or, where only these are known, their distances from the first lane's."""

    numbers: tuple[int, ...]
    is_exact: bool


NUMBERS, IS_EXACT = attrgetter("numbers"), attrgetter("is_exact")


def lane_values(value: Op, lanes: int, of: Sequence[LaneValues]) -> LaneValues | None:
    """Returns the known lanes of an integer or a condition, from those of its sources, or None."""
    if value.dtype.kind == "f":
        return None
    if value.code is OpCode.LANES:
        return LaneValues(tuple(range(lanes)), True)
    if value.code is OpCode.EXPAND:
        is_exact = value.src[0].code is OpCode.CONST
        return LaneValues((int(value.src[0].arg) if is_exact else 0,) * lanes, is_exact)
    if not of:
        return None
    if all(map(IS_EXACT, of)):
        operands = [*zip(*map(NUMBERS, of))]
        found = {each: fold(value.code, value.dtype, value.src[0].dtype, each) for each in {*operands}}
        numbers = [*map(found.__getitem__, operands)]
        return LaneValues(tuple(map(int, numbers)), True) if None not in numbers else None  # type: ignore[arg-type]
    if value.code is OpCode.ADD:
        sums = [a + b for a, b in zip(of[0].numbers, of[1].numbers)]
        return LaneValues(tuple([number - sums[0] for number in sums]), False)
    if value.code is OpCode.MUL and of[1].is_exact and len(set(of[1].numbers)) == 1:
        return LaneValues(tuple([number * of[1].numbers[0] for number in of[0].numbers]), False)
    return None


def near_elements(writer: CpuWriter, load: Load, lanes: int) -> str | None:
    """Loads all elements from the first to the last in memory, and gives each lane its own.

    None where two vectors do not hold them, or distances are not known, or which lanes want theirs.
    """
    found = lanes_known(writer, load.index, lanes)
    if found is None:
        return None
    if found.numbers == tuple(range(found.numbers[0], found.numbers[0] - lanes, -1)):
        address = lane_address(writer, load, lanes, lanes - 1)
        return writer._reversed(memory_type(load.var.dtype, lanes), writer._contiguous(load, address, lanes, True), lanes)
    wanted = [*range(lanes)]
    if load.valid is not None:
        mask = lanes_known(writer, load.valid, lanes)
        if mask is None or not mask.is_exact or not any(mask.numbers):
            return None
        wanted = [lane for lane in wanted if mask.numbers[lane]]
    low = min(wanted, key=found.numbers.__getitem__)
    places = [found.numbers[lane] - found.numbers[low] if lane in wanted else 0 for lane in range(lanes)]
    if max(places) >= 2 * lanes:
        return None
    held = permuted(writer, lane_address(writer, load, lanes, low), load.var.dtype, places)
    if load.valid is None:
        return held
    kind = memory_type(load.var.dtype, lanes)
    return writer.emit(f"select <{lanes} x i1> {writer.operand(load.valid, lanes)}, {kind} {held}, {kind} zeroinitializer")


def lanes_known(writer: CpuWriter, op: Op, lanes: int) -> LaneValues | None:
    """Returns the known lanes of an index or a condition, or None."""
    if op in writer.lane_values:
        return writer.lane_values[op]
    value = writer.vectors.get(op)
    found = None
    if value is not None:
        of = []
        for source in value.src if value.code is not OpCode.EXPAND else ():
            of.append(lanes_known(writer, source, lanes))
        found = lane_values(value, lanes, [*filter(None, of)]) if None not in of else None
    writer.lane_values[op] = found
    return found


def lane_address(writer: CpuWriter, load: Load, lanes: int, lane: int) -> str:
    """Returns the address of the element that a lane wants."""
    place = writer.emit(f"extractelement <{lanes} x i64> {writer.operand(load.index, lanes)}, i64 {lane}")
    return writer.emit(f"getelementptr {memory_type(load.var.dtype)}, ptr {writer.pointers[load.memory]}, i64 {place}")


def permuted(writer: CpuWriter, address: str, dtype: DType, places: list[int]) -> str:
    """Loads elements at distances from an address: by one vector, or by two that have the first and the last."""
    span = max(places) + 1
    if span == 1:
        return splat(writer.emit, writer._load(address, dtype, 1), memory_type(dtype), len(places))
    size = min(1 << span.bit_length() - 1, len(places))
    kind, later = memory_type(dtype, size), span - size
    first = second = writer._load(address, dtype, size)
    if later:
        second = writer._load(writer.emit(f"getelementptr {memory_type(dtype)}, ptr {address}, i64 {later}"), dtype, size)
    return writer._picked(kind, first, second, [place if place < size else size + place - later for place in places])


# ---- remainders of floats ----
# With a quotient of fewer digits than a float has, q is the exact one truncated, or one more. So a - q b is at most b: a
# float, which one multiply-add finds without an error. LLVM's own frem calls a function of C's library for each lane; here
# only vectors do that have a quotient which is large, infinite or NaN.
REMAINDER = """define internal {t} @remainder.{s}({t} %a, {t} %b) {{
  %quotient = fdiv {t} %a, %b
  %q = call {t} @llvm.trunc.{s}({t} %quotient)
  %height = call {t} @llvm.fabs.{s}({t} %q)
  %width = call {t} @llvm.fabs.{s}({t} %b)
  %low = fcmp olt {t} %height, {most}
  %finite = fcmp olt {t} %width, {infinite}
  %near = and <{lanes} x i1> %low, %finite
  %all = call i1 @llvm.vector.reduce.and.v{lanes}i1(<{lanes} x i1> %near)
  br i1 %all, label %exact, label %large
exact:
  %back = fneg {t} %q
  %rest = call {t} @llvm.fma.{s}({t} %back, {t} %b, {t} %a)
  %side = call {t} @llvm.copysign.{s}({t} {one}, {t} %a)
  %along = fmul {t} %rest, %side
  %beyond = fcmp olt {t} %along, zeroinitializer
  %step = call {t} @llvm.copysign.{s}({t} %b, {t} %a)
  %moved = fadd {t} %rest, %step
  %inside = select <{lanes} x i1> %beyond, {t} %moved, {t} %rest
  %result = call {t} @llvm.copysign.{s}({t} %inside, {t} %a)
  ret {t} %result
large:
  %each = frem {t} %a, %b
  ret {t} %each
}}
"""


def remainder(lanes: int, dtype: DType) -> str:
    """Returns the text of a function: what C's fmod leaves of a division, with the sign of `a`, exact."""
    kind = type_of(dtype, lanes)
    most, infinite, one = (constant(value, dtype, lanes) for value in (2.0 ** (dtype.mantissa - 1), float("inf"), 1.0))
    return REMAINDER.format(t=kind, s=suffix(kind), lanes=lanes, most=most, infinite=infinite, one=one)


# ---- stores past the cache ----
def streamed_stores(program: Program, target: Target) -> dict[int, int]:
    """Returns the Stores (by id) that pass by the cache, with the slot of the memory that each writes."""
    large = {
        slot for slot, param in enumerate(program.params)
        if param.role == "out" and isinstance(param.numel, int) and param.nbytes >= STREAMED_NBYTES
    }  # fmt: skip
    found: dict[int, int] = {}
    for phase in program.phases if large else ():
        statements = list(walk(phase))
        large -= {s.memory.arg[0] for s in statements if isinstance(s, Load | Transpose) and s.memory.code is OpCode.PARAM}
        multiples = _multiples(statements)
        for store in statements:
            if isinstance(store, Store) and store.memory.code is OpCode.PARAM and _is_whole(store, multiples, target):
                found[id(store)] = store.memory.arg[0]
    return {store: slot for store, slot in found.items() if slot in large}


def _is_whole(store: Store, multiples: dict[Op, int], target: Target) -> bool:
    """True for a store of a whole vector at a multiple of its lanes."""
    lanes = lanes_of(store.value)
    is_vector = lanes == target.lanes(store.memory.dtype) and lanes_of(store.index) == 1
    return is_vector and store.valid is None and _multiple(store.index, multiples) % lanes == 0


def _multiples(statements: Sequence[Statement]) -> dict[Op, int]:
    """Returns for each integer that is named a number that it is a multiple of; 0 is one of any."""
    known: dict[Op, int] = {}
    for statement in statements:
        if isinstance(statement, Let) and statement.var.dtype is dtypes.int64:
            parts = [_multiple(s, known) for s in statement.value.src]
            if statement.value.code is OpCode.MUL:
                known[statement.var] = parts[0] * parts[1]
            elif statement.value.code in (OpCode.ADD, OpCode.SUB, OpCode.MIN, OpCode.MAX):
                known[statement.var] = gcd(*parts)
    return known


def _multiple(op: Op, known: dict[Op, int]) -> int:
    return abs(int(op.arg)) if op.code is OpCode.CONST else known.get(op, 1)


def choice_of_streams(symbol: str, slots: Sequence[int]) -> str:
    """Returns the text of a function that calls `symbol`_streamed where memory is aligned, else `symbol`_plain.

    A fence follows non-temporal stores: other threads see them in no order.
    """
    lines = []
    for slot in slots:
        lines.append(f"  %p{slot}.at = getelementptr i64, ptr %args, i64 {slot}")
        lines.append(f"  %p{slot} = load i64, ptr %p{slot}.at, align 8")
    whole = f"%p{slots[0]}"
    for slot in slots[1:]:
        lines.append(f"  %or{slot} = or i64 {whole}, %p{slot}")
        whole = f"%or{slot}"
    lines += [
        f"  %low = and i64 {whole}, {ALIGNMENT - 1}",
        "  %aligned = icmp eq i64 %low, 0",
        "  br i1 %aligned, label %streamed, label %plain",
        "streamed:",
        f"  call void @{symbol}_streamed(ptr %args, i64 %begin, i64 %end)",
        "  fence seq_cst",
        "  ret void",
        "plain:",
        f"  call void @{symbol}_plain(ptr %args, i64 %begin, i64 %end)",
        "  ret void",
    ]
    return f"define void @{symbol}(ptr %args, i64 %begin, i64 %end) {{\nentry:\n" + "\n".join(lines) + "\n}\n"
