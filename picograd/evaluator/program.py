"""Runs a Program statement by statement: the meaning of loop code, in its free and its linear form.

Each statement becomes a Python closure over a Frame, the values and memory of a thread; memory records which elements have
been stored. A body with a Barrier becomes a generator that yields the number of the barrier at which it waits, or a `Swap`
if threads of a warp exchange values; a BLOCK loop runs its threads from barrier to barrier, and their warps from exchange
to exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.errors import VerifyError
from picograd.evaluator.elementwise import ELEMENTWISE_RULES, Array, check, rounded, widened
from picograd.evaluator.graph import BOOL_UFUNCS, UFUNCS, prepare, unspecified
from picograd.ir.build import is_register
from picograd.ir.checks import OutOfRange
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import (
    MATRIX_ROW,
    WARP_THREADS,
    Alloc,
    Barrier,
    Check,
    CommitCopies,
    CopyAsync,
    For,
    If,
    Let,
    Load,
    LoadMatrices,
    Mma,
    Prefetch,
    Shuffle,
    Statement,
    Store,
    Transpose,
    WaitForCopies,
    operands,
    walk,
)
from picograd.ir.symbolic import to_op
from picograd.record import Record, Struct, field


# ---- what a thread knows ----
class Memory(Struct):
    """The memory of a PARAM or an ALLOC.

    array:   its elements
    stored:  for each element, whether it has been stored; None: all come from outside
    """

    array: Array
    stored: Array | None = None

    @staticmethod
    def unwritten(array: Array) -> Memory:
        """Returns memory in which nothing has been stored."""
        return Memory(array, np.zeros(array.size, np.bool_))

    def copy(self) -> Memory:
        """Returns a copy."""
        return Memory(self.array.copy(), None if self.stored is None else self.stored.copy())


class Copy(Record):
    """A copy in the background: `values` on their way to elements `at` of memory."""

    memory: Memory
    at: Array
    values: Array

    def arrive(self) -> None:
        """Stores the copied elements."""
        self.memory.array[self.at] = self.values
        assert self.memory.stored is not None
        self.memory.stored[self.at] = True


class Frame(Struct):
    """The state of one thread.

    values:  of RANGEs, VARs and VARIABLEs; the Memory of PARAMs and ALLOCs
    shared:  SHARED memory of the block, the same object in all its threads
    copies:  copies in the background, by group; the last group is still open
    """

    values: dict[Op, Any]
    shared: dict[Op, Memory]
    copies: list[list[Copy]] = field(default_factory=lambda: [[]])

    def thread(self) -> Frame:
        """Returns a frame for a thread, with its own REGISTER memory and values, and common SHARED memory."""
        values = {op: value.copy() if is_register(op) else value for op, value in self.values.items()}
        return Frame(values, self.shared)


# ---- threads of a block ----
END = -1  # where a finished thread waits


class Swap(Record):
    """A thread's contribution to a Shuffle or an Mma; the reply is its number in the warp and all contributions.

    number:  number of the statement
    """

    number: int
    value: Any


Waiting = int | Swap
Thread = Generator[Waiting, Any, None]


def run_threads(name: str, threads: Mapping[int, Thread]) -> Iterator[int]:
    """Runs threads in the given order, each to its next barrier; yields the number of that barrier.

    Args:
      name: name of the program, for errors

    Raises:
      VerifyError: threads of a block wait at different barriers, or those of a warp at different statements.
    """
    warps: dict[int, dict[int, Thread]] = {}
    for number, thread in threads.items():
        warps.setdefault(number // WARP_THREADS, {})[number] = thread
    while threads:
        reached = {place for warp in warps.values() for place in _run_warp(name, warp)}
        if len(reached) > 1:
            raise _apart(name, "block", reached)
        (barrier,) = reached
        if barrier == END:
            return
        yield barrier


def _run_warp(name: str, warp: Mapping[int, Thread]) -> set[int]:
    """Runs a warp from exchange to exchange until its threads wait at a barrier or have ended; returns where."""
    answers: dict[int, Any] = dict.fromkeys(warp)
    while True:
        reached = {number: _resume(thread, answers[number]) for number, thread in warp.items()}
        swaps = {number: each for number, each in reached.items() if isinstance(each, Swap)}
        places = {each.number if isinstance(each, Swap) else each for each in reached.values()}
        if not swaps:
            return places
        if len(places) > 1:
            raise _apart(name, "warp", places)
        if len(swaps) < WARP_THREADS:
            raise VerifyError(f"program {name}: {len(swaps)} threads of a warp reach a statement that needs all of them.")
        given = [swaps[number].value for number in sorted(swaps)]
        answers = {number: (number % WARP_THREADS, given) for number in warp}


def _resume(thread: Thread, answer: Any) -> Waiting:
    try:
        return thread.send(answer)
    except StopIteration:
        return END


def _apart(name: str, what: str, places: set[int]) -> VerifyError:
    kind = "shuffle" if what == "warp" else "barrier"
    shown = sorted("the end" if place == END else f"{kind} {place}" for place in places)
    return VerifyError(f"program {name}: threads of a {what} wait at {' and '.join(shown)}.")


# ---- matrices of a warp ----
LANES = np.arange(WARP_THREADS)[:, None]
GROUPS, PLACES = LANES // 4, LANES % 4


LHS, RHS, ACC = np.arange(8)[None], np.arange(4)[None], np.arange(4)[None]  # indices of a thread's elements
# (row, column) of each element that a thread holds: PTX ISA, fragments of mma.m16n8k16
LHS_AT = GROUPS + 8 * (LHS // 2 % 2), 2 * PLACES + LHS % 2 + 8 * (LHS // 4)
RHS_AT = 2 * PLACES + RHS % 2 + 8 * (RHS // 2), GROUPS + 0 * RHS
ACC_AT = GROUPS + 8 * (ACC // 2), 2 * PLACES + ACC % 2


def product_part(lane: int, given: Sequence[tuple[Array, Array]]) -> Array:
    """Returns a thread's four elements of lhs @ rhs in float64, from the parts of all threads.

    >>> ones = [(np.ones(8), np.ones(4))] * WARP_THREADS
    >>> product_part(5, ones)
    array([16., 16., 16., 16.])
    """
    lhs, rhs = np.zeros((16, 16)), np.zeros((16, 8))
    lhs[LHS_AT] = [left for left, _ in given]
    rhs[RHS_AT] = [right for _, right in given]
    rows, columns = ACC_AT[0][lane], ACC_AT[1][lane]
    return (lhs[rows] * rhs[:, columns].T).sum(1)


def as_tf32(values: Array) -> Array:
    """Returns float32 rounded to 11 bits of significand, ties away from zero.

    >>> as_tf32(np.array([1 + 2**-11, 1 + 2**-12, -np.inf], np.float32)).tolist()
    [1.0009765625, 1.0, -inf]
    """
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(1 << 12)) & ~np.uint32((1 << 13) - 1)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def matrices_part(lane: int, rows: Sequence[Array], transposed: bool) -> Array:
    """Returns a thread's two elements of each of four 8 x 8 matrices, from the rows that all threads read.

    >>> rows = [np.arange(8) + 10 * row for row in range(WARP_THREADS)]
    >>> matrices_part(5, rows, transposed=False)
    array([ 12,  13,  92,  93, 172, 173, 252, 253])
    """
    matrices = np.stack(rows).reshape(4, 8, 8)
    own = matrices.transpose(0, 2, 1) if transposed else matrices
    return own[:, lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2].reshape(8)


# ---- expressions ----
VALUES = frozenset({OpCode.RANGE, OpCode.VAR, OpCode.VARIABLE, OpCode.PARAM, OpCode.ALLOC})


class ValueMaker:
    """Translates expressions to functions.

    name:  name of the program, for errors
    """

    def __init__(self, name: str):
        self.name = name

    # ---- expressions ----
    def expression(self, root: Op) -> Callable[[Frame], Any]:
        """Returns a function from a Frame to the value of `root`: a scalar, or an array of lanes."""
        if root.code in VALUES:
            return lambda frame: self._value(root, frame)
        order = toposort([root], stop=_Leaves())
        place = {op: i for i, op in enumerate(order)}
        sources = {op: [] if op.code in VALUES else [place[s] for s in op.src] for op in order}
        steps = [(self._operation(op), sources[op]) for op in order]

        def run(frame: Frame) -> Any:
            results: list[Any] = []
            for operation, places in steps:
                results.append(operation(frame, [results[i] for i in places]))
            return results[-1]

        return run

    def _operation(self, op: Op) -> Callable[[Frame, list[Any]], Any]:
        """Returns the function that computes an Op of an expression from the values of its sources."""
        if op.code in VALUES:
            return lambda frame, args: self._value(op, frame)
        if op.code is OpCode.CONST:
            constant = rounded(op.arg, op.dtype)[()]
            return lambda frame, args: constant
        if op.code is OpCode.LOAD:
            return self._load_expression(op)
        if op.code is OpCode.CHECK:
            length = self.expression(to_op(op.arg[1]))
            return lambda frame, args: check(op, args, int(length(frame)))[()]
        elementwise = ELEMENTWISE_RULES.get(op.code)
        if elementwise is not None:
            rule = elementwise
            return lambda frame, args: rounded(rule(op, args), op.dtype)[()]
        vector = VECTOR_RULES.get(op.code)
        if vector is None:
            raise VerifyError(f"program {self.name}: {op} is not an expression of a program.")
        found = vector
        return lambda frame, args: found(op, args)

    def _value(self, op: Op, frame: Frame) -> Any:
        value = frame.values.get(op)
        if value is None:
            raise VerifyError(f"program {self.name}: {op} is read before it has a value.")
        return value

    def _load_expression(self, op: Op) -> Callable[[Frame, list[Any]], Any]:
        def run(frame: Frame, args: list[Any]) -> Any:
            return self.read(op.src[0], args[0], args[1], args[2] if len(args) > 2 else True, 1)

        return run

    # ---- memory ----
    def reader(self, op: Op, index: Op, valid: Op | None, lanes: int) -> Callable[[Frame], Any]:
        memory, at = self.expression(op), self.expression(index)
        mask = self.expression(valid) if valid is not None else None
        return lambda frame: self.read(op, memory(frame), at(frame), True if mask is None else mask(frame), lanes)

    def read(self, op: Op, memory: Memory, index: Any, valid: Any, lanes: int) -> Any:
        at, mask = lanes_of_access(index, lanes, valid)
        self.check_bounds("load from", op, memory, at[mask])
        if memory.stored is not None and not memory.stored[at[mask]].all():
            first = int(at[mask][~memory.stored[at[mask]]][0])
            raise VerifyError(f"program {self.name}: load from {op} at index {first}, where nothing has been stored.")
        result = np.zeros(at.shape, memory.array.dtype)
        result[mask] = memory.array[at[mask]]
        return result if result.size > 1 else result[0]

    def check_bounds(self, what: str, op: Op, memory: Memory, index: Array) -> None:
        outside = (index < 0) | (index >= memory.array.size)
        if outside.any():
            raise VerifyError(
                f"program {self.name}: {what} {op} at index {int(index[outside][0])}, "
                f"outside its {memory.array.size} elements."
            )


class _Leaves:
    """The Ops below which `toposort` does not look; their sources (a RANGE's extent) are read elsewhere."""

    def __contains__(self, op: Op) -> bool:
        return op.code in VALUES


def lanes_of_access(index: Any, lanes: int, valid: Any) -> tuple[Array, Any]:
    """Returns one index per lane, and a mask of the valid ones: a bool per lane, or `...` for all.

    A scalar index with several lanes is the first of consecutive ones.
    """
    at = np.atleast_1d(np.asarray(index))
    if at.size == 1 and lanes > 1:
        at = at[0] + np.arange(lanes)
    return at, ... if valid is True else np.broadcast_to(np.asarray(valid, np.bool_), at.shape)


# ---- lanes ----
def _spread(op: Op, args: Sequence[Any]) -> Any:
    return np.full(op.arg, args[0], op.dtype.numpy)


def _lane_numbers(op: Op, args: Sequence[Any]) -> Any:
    return np.arange(op.arg).astype(op.dtype.numpy)


def _combine_lanes(op: Op, args: Sequence[Any]) -> Any:
    """Combines lane i with lane i + n/2, then n/4, ...; each step is rounded to the dtype."""
    code = op.arg[0]
    values = np.atleast_1d(args[0])
    lanes = values.size
    ufunc = (BOOL_UFUNCS if op.dtype.kind == "b" else UFUNCS)[code]
    while lanes > 1:
        lanes //= 2
        low, high = (widened(half, op.dtype) for half in (values[:lanes], values[lanes : 2 * lanes]))
        values = rounded(ufunc(low, high), op.dtype)
    return values[0]


VECTOR_RULES: dict[OpCode, Callable[[Op, Sequence[Any]], Any]] = {
    OpCode.EXPAND: _spread,
    OpCode.LANES: _lane_numbers,
    OpCode.REDUCE: _combine_lanes,
}


# ---- statements ----
Order = Callable[[int], Iterable[int]]


class Compiled(Record):
    """A compiled statement: `run(frame)`, a generator if it `waits` at barriers."""

    waits: bool
    run: Callable[[Frame], Any]


def evaluate_program(
    program: Program,
    arrays: Sequence[Array | None],
    variables: Mapping[str, int] | None = None,
    order: Order = range,
) -> None:
    """Runs all phases of `program`.

    Args:
      arrays:     by slot, in the params' dtypes and with at least their elements; None for scratch allocates it
      variables:  values of the program's symbolic integers by name
      order:      order(n) is the order, a permutation of 0..n-1, in which iterations of GRID and BLOCK loops run; a correct
                  program has the same result for all orders

    Raises:
      OutOfRange: a CHECK fails.
      VerifyError: an access outside its memory, a read of memory that was not stored, or threads of a block that wait at
                   different barriers.
    """
    known = dict(variables or {})
    given = [*arrays, *[None] * (len(program.params) - len(arrays))]
    memories = [
        Memory(array) if came is not None else Memory.unwritten(array)
        for came, array in zip(given, prepare(program.params, arrays, known))
    ]
    maker = StepMaker(program.name, order)
    values: dict[Op, Any] = {op: np.int64(known[op.arg[0]]) for op in program.variables}
    with np.errstate(all="ignore"):
        for phase in program.phases:
            step = maker.body(phase)
            frame = Frame({**values, **_memory_ops(phase, memories)}, {})
            result = step.run(frame)
            if step.waits:  # without threads there is nothing to wait for
                for _ in result:
                    pass


def _memory_ops(statements: Sequence[Statement], memories: Sequence[Memory]) -> dict[Op, Memory]:
    """Returns the memory of each PARAM in the statements."""
    roots = [op for s in walk(statements) for op in operands(s)]
    return {op: memories[op.arg[0]] for op in toposort(roots) if op.code is OpCode.PARAM}


class StepMaker(ValueMaker):
    """Translates statements to Steps.

    name:   name of the program, for errors
    order:  order of GRID and BLOCK iterations
    """

    def __init__(self, name: str, order: Order):
        super().__init__(name)
        self.order = order
        self.num_places = 0  # number of places where a thread may wait
        self.by_type: dict[type, Callable[[Any], Compiled]] = {
            For: self.loop,
            If: self.condition,
            Alloc: self.alloc,
            Let: self.let,
            Load: self.load,
            Store: self.store,
            Transpose: self.transpose,
            Prefetch: self.prefetch,
            CopyAsync: self.copy_async,
            CommitCopies: self.commit_copies,
            WaitForCopies: self.wait_for_copies,
            Shuffle: self.shuffle,
            LoadMatrices: self.load_matrices,
            Mma: self.mma,
            Barrier: self.barrier,
            Check: self.check,
        }

    def body(self, statements: Sequence[Statement]) -> Compiled:
        """Returns the statements as one Compiled."""
        steps = [self.by_type[type(s)](s) for s in statements]

        def run(frame: Frame) -> None:
            for step in steps:
                step.run(frame)

        def run_waiting(frame: Frame) -> Iterator[int]:
            for step in steps:
                if step.waits:
                    yield from step.run(frame)
                else:
                    step.run(frame)

        waits = any(step.waits for step in steps)
        return Compiled(waits, run_waiting if waits else run)

    # ---- statements ----
    def loop(self, statement: For) -> Compiled:
        """Returns a step that runs the body for each index; threads of a BLOCK that wait take turns."""
        kind = statement.range.arg[1]
        if kind is AxisKind.VECTOR:
            return self._vector(statement)
        extent = self.expression(statement.range.src[0])
        body = self.body(statement.body)
        if kind is AxisKind.BLOCK and body.waits:
            return Compiled(True, self._block(statement.range, extent, body))
        order: Order = self.order if kind in (AxisKind.GRID, AxisKind.BLOCK) else range

        def frames(frame: Frame) -> Iterator[Frame]:
            for i in order(max(0, int(extent(frame)))):
                inner = frame
                if kind is AxisKind.GRID:
                    inner = Frame(dict(frame.values), dict(frame.shared))
                elif kind is AxisKind.BLOCK:
                    inner = frame.thread()
                inner.values[statement.range] = statement.range.dtype.numpy.type(i)
                yield inner

        def run(frame: Frame) -> None:
            for inner in frames(frame):
                body.run(inner)

        def run_waiting(frame: Frame) -> Iterator[int]:
            for inner in frames(frame):
                yield from body.run(inner)

        return Compiled(body.waits, run_waiting if body.waits else run)

    def _vector(self, statement: For) -> Compiled:
        """All lanes run the body together, statement by statement: the RANGE has the vector 0..n-1 as value."""
        body, extent = self.body(statement.body), self.expression(statement.range.src[0])

        def run(frame: Frame) -> Any:
            frame.values[statement.range] = np.arange(int(extent(frame)))
            return body.run(frame)

        return Compiled(body.waits, run)

    def _block(self, axis: Op, extent: Callable[[Frame], Any], body: Compiled) -> Callable[[Frame], Iterator[int]]:
        """Runs all threads to their next barrier, then continues; within another BLOCK loop it waits there, too."""

        def run(frame: Frame) -> Iterator[int]:
            threads = {}
            for i in self.order(max(0, int(extent(frame)))):
                inner = frame.thread()
                inner.values[axis] = axis.dtype.numpy.type(i)
                threads[i] = body.run(inner)
            yield from run_threads(self.name, threads)

        return run

    def condition(self, statement: If) -> Compiled:
        """Returns a step that runs the body if the condition is true."""
        holds, body = self.expression(statement.condition), self.body(statement.body)

        def taken(frame: Frame) -> bool:
            value = holds(frame)
            if np.size(value) != 1:
                raise VerifyError(f"program {self.name}: an If with one condition is executed by the lanes of a vector.")
            return bool(value)

        def run(frame: Frame) -> None:
            if taken(frame):
                body.run(frame)

        def run_waiting(frame: Frame) -> Iterator[int]:
            if taken(frame):
                yield from body.run(frame)

        return Compiled(body.waits, run_waiting if body.waits else run)

    def alloc(self, statement: Alloc) -> Compiled:
        """Returns a step that allocates memory of unspecified content: SHARED once per block, else once per frame."""
        op = statement.memory
        _, numel, space = op.arg

        def run(frame: Frame) -> None:
            memory = Memory.unwritten(unspecified(numel, op.dtype.numpy))
            frame.values[op] = frame.shared.setdefault(op, memory) if space is MemorySpace.SHARED else memory

        return Compiled(False, run)

    def let(self, statement: Let) -> Compiled:
        value, var = self.expression(statement.value), statement.var

        def run(frame: Frame) -> None:
            frame.values[var] = value(frame)

        return Compiled(False, run)

    def load(self, statement: Load) -> Compiled:
        read = self.reader(statement.memory, statement.index, statement.valid, statement.var.arg[1])
        var = statement.var

        def run(frame: Frame) -> None:
            frame.values[var] = read(frame)

        return Compiled(False, run)

    def store(self, statement: Store) -> Compiled:
        """Returns a step that stores a value, or its lanes in order, if valid."""
        memory, index, value = (self.expression(x) for x in (statement.memory, statement.index, statement.value))
        valid = self.expression(statement.valid) if statement.valid is not None else None

        def run(frame: Frame) -> None:
            stored = value(frame)
            at, mask = lanes_of_access(index(frame), np.size(stored), True if valid is None else valid(frame))
            target = memory(frame)
            self.check_bounds("store to", statement.memory, target, at[mask])
            target.array[at[mask]] = stored if mask is ... else np.broadcast_to(stored, at.shape)[mask]
            if target.stored is not None:
                target.stored[at[mask]] = True

        return Compiled(False, run)

    def transpose(self, statement: Transpose) -> Compiled:
        """Returns a step that transposes a square."""
        s = statement
        into, place, memory, index = (self.expression(x) for x in (s.into, s.place, s.memory, s.index))
        steps = np.arange(s.lanes)

        def run(frame: Frame) -> None:
            source, target = memory(frame), into(frame)
            read = index(frame) + steps[None, :] * s.stride + steps[:, None]  # [j, i]
            written = place(frame) + steps[:, None] * s.step + steps[None, :]
            self.check_bounds("load from", s.memory, source, read.ravel())
            self.check_bounds("store to", s.into, target, written.ravel())
            target.array[written] = source.array[read]
            if target.stored is not None:
                target.stored[written] = True if source.stored is None else source.stored[read]

        return Compiled(False, run)

    def prefetch(self, statement: Prefetch) -> Compiled:
        return Compiled(False, lambda frame: None)

    def copy_async(self, statement: CopyAsync) -> Compiled:
        """Returns a step that starts a copy; its target is unchanged until the thread waits for it."""
        s = statement
        read = self.reader(s.memory, s.index, s.valid, s.lanes)
        into, place, index = self.expression(s.into), self.expression(s.place), self.expression(s.index)

        def run(frame: Frame) -> None:
            target, at = into(frame), place(frame) + np.arange(s.lanes)
            self.check_bounds("copy to", s.into, target, at)
            if int(at[0]) % s.lanes or int(index(frame)) % s.lanes:  # also for invalid elements, as on a GPU
                ends = f"from {s.memory} at index {index(frame)} to {s.into} at {at[0]}"
                raise VerifyError(f"program {self.name}: copy {ends}, which are not multiples of {s.lanes}.")
            target.stored[at] = False
            frame.copies[-1].append(Copy(target, at, read(frame)))

        return Compiled(False, run)

    def commit_copies(self, statement: CommitCopies) -> Compiled:
        return Compiled(False, lambda frame: frame.copies.append([]))

    def wait_for_copies(self, statement: WaitForCopies) -> Compiled:
        """Returns a step that completes the copies of all closed groups except the last ones."""

        def run(frame: Frame) -> None:
            while len(frame.copies) - 1 > statement.still:
                for copy in frame.copies.pop(0):
                    copy.arrive()

        return Compiled(False, run)

    def load_matrices(self, statement: LoadMatrices) -> Compiled:
        """Returns a step that loads a thread's part of four matrices, whose rows the threads of the warp read."""
        s = statement
        read = self.reader(s.memory, s.index, None, MATRIX_ROW)
        into, place = self.expression(s.into), self.expression(s.place)
        number = self.num_places
        self.num_places += 1

        def run(frame: Frame) -> Generator[Swap, Any, None]:
            lane, rows = yield Swap(number, read(frame))
            target, at = into(frame), place(frame) + np.arange(8)
            self.check_bounds("store to", s.into, target, at)
            target.array[at] = matrices_part(lane, rows, s.transposed)
            target.stored[at] = True

        return Compiled(True, run)

    def shuffle(self, statement: Shuffle) -> Compiled:
        """Returns a step that gives a value to another thread of the warp and takes that thread's."""
        value, var, distance = self.expression(statement.value), statement.var, statement.distance
        number = self.num_places
        self.num_places += 1

        def run(frame: Frame) -> Generator[Swap, Any, None]:
            lane, given = yield Swap(number, value(frame))
            frame.values[var] = given[lane ^ distance]

        return Compiled(True, run)

    def mma(self, statement: Mma) -> Compiled:
        """Returns a step that adds a product of matrices; each thread of the warp holds a part of them."""
        readers = [self.reader(memory, index, None, count) for memory, index, count in statement.spans()]
        memory, index = self.expression(statement.acc), self.expression(statement.at)
        number = self.num_places
        self.num_places += 1

        def run(frame: Frame) -> Generator[Swap, Any, None]:
            acc, *sides = (reader(frame) for reader in readers)
            lhs, rhs = (as_tf32(side) if side.dtype == np.float32 else side for side in sides)
            lane, given = yield Swap(number, (lhs.astype(np.float64), rhs.astype(np.float64)))
            first = int(index(frame))
            memory(frame).array[first : first + acc.size] = acc.astype(np.float64) + product_part(lane, given)

        return Compiled(True, run)

    def barrier(self, statement: Barrier) -> Compiled:
        number = self.num_places
        self.num_places += 1

        def run(frame: Frame) -> Iterator[int]:
            yield number

        return Compiled(True, run)

    def check(self, statement: Check) -> Compiled:
        inside, value = self.expression(statement.inside), self.expression(statement.value)

        def run(frame: Frame) -> None:
            found = np.atleast_1d(value(frame))[~np.atleast_1d(inside(frame))]
            if found.size:
                raise OutOfRange(statement.number, int(found[0]))

        return Compiled(False, run)
