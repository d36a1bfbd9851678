"""Loom, an accelerator that does not exist: vectors of 128 bytes, memory of its own. One file makes it a device.

    pip install .  with this in its pyproject.toml, and PICOGRAD_DEVICE=LOOM is there:

        [project.entry-points."picograd.devices"]
        LOOM = "loom:make_compiler"

The sections stand in the order in which a device is made: Target, allocator, renderer rows, compile, launch.
docs/accelerator.md walks through them.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.launches import Call, HostFunction, load_host, runner_of_calls
from picograd.devices.render_grids import launch_of
from picograd.dtype import DType
from picograd.engine.compiler import Backend, Compiler
from picograd.errors import CompileError, VerifyError
from picograd.interrupts import AtDeath
from picograd.ir.backend import MemoryCount
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.origin import format_nbytes, out_of_memory
from picograd.ir.stages import Binary, Executable, Program, Runner, Schedule, Source
from picograd.ir.statements import Alloc, Check, For, If, Let, Load, Statement, Store, Transpose, lanes_of
from picograd.ir.symbolic import dim_value

Array = np.ndarray[Any, Any]
Values = dict[str, Any]  # what a running kernel has named: numbers, vectors, and memory as arrays

# ---- 1. the Target: what code generation needs to know, as data ----
TARGET = Target(device="LOOM", language="loom", arch="loom1", vector_bytes=128, num_registers=32)
MEMORY_NBYTES, ALIGNMENT = 256 << 20, 64


# ---- 2. the allocator ----
class LoomMemory:
    """A piece of the accelerator's memory; free again, and counted no more, when this object dies."""

    def __init__(self, address: int, nbytes: int, free: list[int], count: MemoryCount):
        self.address, self.nbytes = address, nbytes
        self._at_death = count.take(nbytes), AtDeath(free.append, address)


class Allocator:
    """Gives out pieces from the start of memory on; one of the same length as a free one takes its place."""

    def __init__(self) -> None:
        self.bytes = np.zeros(MEMORY_NBYTES, np.uint8)
        self.count = MemoryCount()
        self._next = 0
        self._free: dict[int, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> LoomMemory:
        length = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        with self._lock:
            free = self._free[length]
            address = free.pop() if free else self._grown(nbytes, length)
        return LoomMemory(address, nbytes, free, self.count)

    def _grown(self, nbytes: int, length: int) -> int:
        """Returns the start of bytes that nobody has had."""
        if self._next + length > MEMORY_NBYTES:
            given, all_ = format_nbytes(self._next), format_nbytes(MEMORY_NBYTES)
            raise out_of_memory("LOOM", nbytes, f"{given} of {all_} are given out")
        self._next += length
        return self._next - length


# ---- 3. renderer rows: a Program -> the assembler's text ----
# Every operation is an instruction of its own name. What Loom lacks (random bits, a power of integers) picograd has put
# together from these before it comes here.
INSTRUCTIONS = (
    "neg", "reciprocal", "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "sqrt", "floor", "add", "sub", "mul",
    "div", "idiv", "mod", "pow", "max", "min", "cmplt", "cmple", "cmpeq", "cmpne", "and", "or", "xor", "shl", "shr",
    "where", "fma", "cast", "bitcast", "expand", "lanes", "reduce",
)  # fmt: skip


def render(program: Program, target: Target) -> Source:
    """Writes a Program as Loom's assembler: one instruction a line, `end` closes a loop or a branch."""
    lines: list[str] = []
    launches = []
    for i, statements in enumerate(program.phases):
        symbol = f"{program.name}_{i}"
        launches.append(launch_of(symbol, statements))
        lines.append(f"kernel {symbol}")
        _write(program, statements, lines)
        lines.append("end")
    text = "".join(f"{line}\n" for line in lines)
    return program.source(target.language, text, launches)


def _write(program: Program, statements: Sequence[Statement], lines: list[str]) -> None:
    """Writes a line for each statement; loops and conditions go on to their `end`."""
    for s in statements:
        valid = [_operand(s.valid)] if isinstance(s, Load | Store) and s.valid is not None else []
        if isinstance(s, For):
            lines.append(f"loop {_operand(s.range)} {_operand(s.range.src[0])}")
        elif isinstance(s, If):
            lines.append(f"if {_operand(s.condition)}")
        elif isinstance(s, Let):
            lines.append(" ".join([_row(s.value), "->", _type(s.var), *map(_operand, s.value.src)]))
        elif isinstance(s, Load):
            lines.append(" ".join(["load", "->", _type(s.var), _memory(s.memory), _operand(s.index), *valid]))
        elif isinstance(s, Store):
            lanes = max(lanes_of(s.value), 1 if s.valid is None else lanes_of(s.valid))
            lines.append(" ".join(["store", _memory(s.memory), str(lanes), _operand(s.index), _operand(s.value), *valid]))
        elif isinstance(s, Alloc):
            lines.append(f"alloc {_memory(s.memory)} {s.memory.dtype} {s.memory.arg[1]}")
        elif isinstance(s, Transpose):
            places = f"{_memory(s.into)} {_operand(s.place)} {s.step} {_memory(s.memory)} {_operand(s.index)} {s.stride}"
            lines.append(f"transpose {places} {s.lanes}")
        elif isinstance(s, Check):
            slot = next(i for i, param in enumerate(program.params) if param.role == "report")
            lines.append(f"check p{slot} {s.number + 1} {_operand(s.inside)} {_operand(s.value)}")
        if isinstance(s, For | If):
            _write(program, s.body, lines)
            lines.append("end")


def _row(op: Op) -> str:
    """Returns the instruction for an operation; a value that is only named is one repeated in a single lane."""
    if not op.src and op.code is not OpCode.LANES:
        raise VerifyError(f"render loom: {op} is no operation.")
    name = op.code.name.lower()
    if name not in INSTRUCTIONS:
        raise VerifyError(f"render loom: no instruction for {op.code.name} of {op.src[0].dtype}.")
    return f"{name}.{op.arg[0].name.lower()}" if op.code is OpCode.REDUCE else name


def _type(var: Op) -> str:
    return f"{var.dtype} {lanes_of(var)} {var.arg[0]}"


def _memory(memory: Op) -> str:
    return f"p{memory.arg[0]}" if memory.code is OpCode.PARAM else f"m.{memory.arg[0]}"


def _operand(op: Op) -> str:
    if op.code is OpCode.CONST:
        return f"#{op.dtype}:{float(op.arg).hex() if op.dtype.is_float else int(op.arg)}"
    if op.code is OpCode.BIND:
        return _operand(op.src[0])
    names = {OpCode.VAR: "{0}", OpCode.RANGE: "r{0}", OpCode.VARIABLE: "n.{0}"}
    if op.code not in names:
        raise VerifyError(f"render loom: {op} is no operand.")
    return names[op.code].format(op.arg[0])


# ---- 4. compile: text -> Binary ----
def compile_source(source: Source, target: Target) -> Binary:
    """Assembles: the machine reads the text itself, so what is left is to see that it can.

    Raises:
      CompileError: a line is no instruction.
    """
    for number, line in enumerate(source.text.splitlines(), 1):
        word = line.split(" ")[0].partition(".")[0]
        if word not in INSTRUCTIONS and word not in CONTROL:
            raise CompileError(f"loom rejected kernel {source.name}.\n  line {number}: {line}")
    return source.binary(source.text.encode())


# ---- 5. launch: the machine itself, in NumPy ----
Step = Callable[[Values], None]


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c; in float32 rounded once, or in one case in 2**29 twice: float64 holds the product exactly."""
    return np.float64(a) * np.float64(b) + np.float64(c)


COMPUTE: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "reciprocal": lambda a: 1 / a, "sqrt": np.sqrt, "floor": np.floor, "exp": np.exp, "exp2": np.exp2,
    "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": lambda a: np.vectorize(math.erf, [np.float64])(a), "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "div": np.divide, "idiv": np.floor_divide, "mod": np.mod, "pow": np.power, "max": np.maximum, "min": np.minimum,
    "cmplt": np.less, "cmple": np.less_equal, "cmpeq": np.equal, "cmpne": np.not_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift, "where": np.where, "fma": _fma,
}  # fmt: skip
CONTROL = ("kernel", "loop", "if", "end", "load", "store", "alloc", "transpose", "check")


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    """A float becomes the nearest integer that the type has, towards 0; NaN becomes 0."""
    value = np.asarray(value)
    if dtype.kind not in "iu" or value.dtype.kind in "biu":
        return value.astype(dtype)
    wide, bounds = np.trunc(np.nan_to_num(value.astype(np.float64), posinf=np.inf, neginf=-np.inf)), np.iinfo(dtype)
    is_low, is_high = wide <= bounds.min, wide >= bounds.max
    inside = np.where(is_low | is_high, 0, wide).astype(dtype)
    return np.where(is_high, dtype.type(bounds.max), np.where(is_low, dtype.type(bounds.min), inside))


def _dtype(name: str) -> DType:
    """Returns the element type that a line names."""
    found: DType = getattr(dtypes, "bool_" if name == "bool" else name)
    return found


def _reader(text: str) -> Callable[[Values], Any]:
    """Returns what gives an operand's value."""
    if not text.startswith("#"):
        return lambda values: values[text]
    name, _, number = text[1:].partition(":")
    dtype = _dtype(name)
    constant = np.array(float.fromhex(number) if dtype.is_float else int(number)).astype(dtype.numpy)[()]
    return lambda values: constant


def _computing(word: str, words: list[str]) -> Step:
    """An operation: `add -> float32 16 v3 v1 v2`."""
    name, lanes_text, var, *texts = words
    dtype = _dtype(name).numpy
    lanes, read = int(lanes_text), [_reader(text) for text in texts]
    code, _, joined = word.partition(".")

    def run(values: Values) -> None:
        operands = [one(values) for one in read]
        if code == "lanes":
            result = np.arange(lanes)
        elif code == "expand":
            result = np.full(lanes, operands[0]) if lanes > 1 else operands[0]
        elif code == "bitcast":
            result = np.asarray(operands[0]).view(dtype)
        elif code == "cast":
            result = _cast(operands[0], dtype)
        elif code == "reduce":
            (result,) = operands
            while len(result) > 1:  # by halves, so that the order of a float sum is fixed
                result = COMPUTE[joined](result[: len(result) // 2], result[len(result) // 2 :]).astype(dtype)
            result = result[0]
        else:
            result = COMPUTE[code](*operands)
        values[var] = np.asarray(result, dtype)[()]

    return run


def _loading(words: list[str]) -> Step:
    """A read: `load -> float32 16 v3 p0 r1`, and a condition, where it has one, without which the value is 0."""
    _, lanes_text, var, memory, *texts = words
    lanes, (read_index, *conditions) = int(lanes_text), map(_reader, texts)

    def run(values: Values) -> None:
        index, elements = _places(read_index(values), lanes), values[memory]
        if conditions:
            holds = conditions[0](values)
            found = elements[np.where(holds, index, 0)] if np.any(holds) else np.zeros(np.shape(index), elements.dtype)
            values[var] = np.where(holds, found, elements.dtype.type(0))[()]
        else:
            values[var] = elements[index].copy()

    return run


def _storing(words: list[str]) -> Step:
    """A write: `store p1 16 r1 v3`, and a condition, where it has one, without which memory stays as it is."""
    memory, lanes_text, *texts = words
    lanes, (read_index, read_value, *conditions) = int(lanes_text), map(_reader, texts)

    def run(values: Values) -> None:
        index, value = _places(read_index(values), lanes), read_value(values)
        if conditions:
            holds = np.broadcast_to(conditions[0](values), np.shape(index))
            if np.any(holds):
                values[memory][index[holds]] = np.broadcast_to(value, np.shape(index))[holds]
        else:
            values[memory][index] = value

    return run


def _places(index: Any, lanes: int) -> Any:
    """Returns the elements an access is about: as many side by side as it has lanes, or one for each."""
    return np.asarray(index + np.arange(lanes) if lanes > 1 and np.ndim(index) == 0 else index)


def _statement(word: str, words: list[str]) -> Step:
    """What is neither a computation nor a loop."""
    if word == "load":
        return _loading(words[1:])
    if word == "store":
        return _storing(words)
    if word == "alloc":
        memory, name, numel = words
        dtype = _dtype(name).numpy
        return lambda values: values.__setitem__(memory, np.zeros(int(numel), dtype))
    if word == "check":
        return _checking(words)
    if word == "transpose":
        return _transposing(words)
    return _computing(word, words[1:])


def _checking(words: list[str]) -> Step:
    report, number, *texts = words
    inside, value = map(_reader, texts)

    def run(values: Values) -> None:
        holds = np.atleast_1d(inside(values))
        if not holds.all() and values[report][0] == 0:
            values[report][:2] = int(number), np.atleast_1d(value(values))[~holds][0]

    return run


def _transposing(words: list[str]) -> Step:
    into, place, step, memory, index, stride, lanes = words
    read_place, read_index, n = _reader(place), _reader(index), np.arange(int(lanes))

    def run(values: Values) -> None:
        square = values[memory][read_index(values) + n[:, None] * int(stride) + n]
        values[into][read_place(values) + n[:, None] * int(step) + n] = square.T

    return run


def assemble(text: str) -> dict[str, list[Step]]:
    """Returns the steps of each kernel of a text."""
    kernels: dict[str, list[Step]] = {}
    open_: list[tuple[list[str], list[Step]]] = []
    for line in text.splitlines():
        word, *words = line.split()
        if word in ("kernel", "loop", "if"):
            open_.append(([word, *words], []))
        elif word == "end":
            (kind, *arguments), body = open_.pop()
            if kind == "kernel":
                kernels[arguments[0]] = body
            else:
                open_[-1][1].append(_loop(arguments, body) if kind == "loop" else _branch(arguments, body))
        else:
            open_[-1][1].append(_statement(word, words))
    return kernels


def _loop(arguments: list[str], body: list[Step]) -> Step:
    name, extent = arguments[0], _reader(arguments[1])

    def run(values: Values) -> None:
        for i in range(int(extent(values))):
            values[name] = np.int64(i)
            for step in body:
                step(values)

    return run


def _branch(arguments: list[str], body: list[Step]) -> Step:
    condition = _reader(arguments[0])

    def run(values: Values) -> None:
        if condition(values):
            for step in body:
                step(values)

    return run


@dataclass
class LoomDevice:
    """The accelerator: its memory, its code, its launches."""

    allocator: Allocator
    name: str = TARGET.device
    target: Target = TARGET

    @property
    def memory(self) -> MemoryCount:
        return self.allocator.count

    def allocate(self, nbytes: int) -> LoomMemory:
        return self.allocator.allocate(nbytes)

    def allocate_all(self, lengths: Sequence[int]) -> list[LoomMemory]:
        return [self.allocate(nbytes) for nbytes in lengths]

    def copy_in(self, memory: LoomMemory, array: Array) -> None:
        self._bytes(memory.address, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def copy_out(self, memory: LoomMemory, array: Array) -> None:
        array.reshape(-1).view(np.uint8)[:] = self._bytes(memory.address, array.nbytes)

    def copy(self, target: LoomMemory, source: LoomMemory, nbytes: int) -> None:
        self._bytes(target.address, nbytes)[:] = self._bytes(source.address, nbytes)

    def _bytes(self, address: int, nbytes: int) -> Array:
        return self.allocator.bytes[address : address + nbytes]

    def load(self, binary: Binary) -> Executable:
        kernels = assemble(binary.data.decode())
        functions = tuple(kernels[launch.symbol] for launch in binary.launches)
        return binary.executable(functions)

    load_host = staticmethod(load_host)

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns run(inputs, outputs, variables), which launches a plan's kernels one after the other."""
        return runner_of_calls(self, schedule, executables, self._make_call, threading.Lock())

    def _make_call(self, call: Call, places: Sequence[tuple[Any, int]], variables: Mapping[str, int]) -> None:
        """Launches one kernel on memory at these places."""
        arrays = []
        for (memory, at), argument in zip(places, call.arguments):
            nbytes = dim_value(argument.numel, variables) * argument.dtype.itemsize
            arrays.append(self._bytes(memory.address + at, nbytes).view(argument.dtype.numpy))
        _launch(call, arrays, variables)


def _launch(call: Call, arrays: list[Array], variables: Mapping[str, int]) -> None:
    """Runs a kernel, or a function of the host, which finds the accelerator's memory where it lies."""
    if isinstance(call.function, HostFunction):
        call.function(arrays, variables)
        return
    values: Values = {f"p{i}": array for i, array in enumerate(arrays)}
    values |= {f"n.{v.arg[0]}": np.int64(variables[v.arg[0]]) for v in call.variables}
    with np.errstate(all="ignore"):
        for step in call.function:
            step(values)


def make_compiler() -> Compiler:
    """Returns the Compiler of the accelerator: what the entry point names."""
    return Compiler(LoomDevice(Allocator()), Backend(render, compile_source))
