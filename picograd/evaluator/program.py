"""Runs a Program statement by statement: what loop code means, in its free and in its linear form.

In:    a Program, an array for each slot, values of symbolic integers
Out:   the arrays of "out" and "scratch" slots, written in place
Next:  picograd/autodiff/flow.py

Each statement becomes a Python closure over a Frame. A body with a Barrier in it becomes a generator that yields the
number of the barrier it waits at; a BLOCK loop runs its threads from one barrier to the next (evaluator/threads.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.errors import VerifyError
from picograd.evaluator.elementwise import Array
from picograd.evaluator.expressions import ValueMaker, lanes_of_access
from picograd.evaluator.frame import Copy, Frame, Memory
from picograd.evaluator.kernel import prepare, unspecified
from picograd.evaluator.mma import as_tf32, matrices_part, product_part
from picograd.evaluator.threads import Swap, run_threads
from picograd.ir.checks import OutOfRange
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import (
    MATRIX_ROW,
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
from picograd.record import Record

Order = Callable[[int], Iterable[int]]


class Step(Record):
    """One compiled statement: `run(frame)`, which is a generator when it `waits` at barriers."""

    waits: bool
    run: Callable[[Frame], Any]


def evaluate_program(
    program: Program,
    arrays: Sequence[Array | None],
    variables: Mapping[str, int] | None = None,
    order: Order = range,
) -> None:
    """Runs every phase of `program`.

    Args:
      arrays:     by slot, of the params' dtypes and at least their elements; None for scratch makes some
      variables:  values of the program's symbolic integers by name
      order:      order(n) gives 0..n-1 in the order in which iterations of GRID and BLOCK loops run; a right program
                  means the same in every order

    Raises:
      OutOfRange: a CHECK does not let an index pass.
      VerifyError: an access outside its memory, a read of what nothing has stored, or threads of a block that wait at
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
            if step.waits:  # no threads: nobody to wait for
                for _ in result:
                    pass


def _memory_ops(statements: Sequence[Statement], memories: Sequence[Memory]) -> dict[Op, Memory]:
    """Returns the memory of every PARAM the statements name."""
    roots = [op for s in walk(statements) for op in operands(s)]
    return {op: memories[op.arg[0]] for op in toposort(roots) if op.code is OpCode.PARAM}


class StepMaker(ValueMaker):
    """Turns statements into Steps.

    name:   of the program, for errors
    order:  of GRID and BLOCK iterations
    """

    def __init__(self, name: str, order: Order):
        super().__init__(name)
        self.order = order
        self.num_places = 0  # where a thread may wait
        self.by_type: dict[type, Callable[[Any], Step]] = {
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

    def body(self, statements: Sequence[Statement]) -> Step:
        """Returns the statements as one Step."""
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
        return Step(waits, run_waiting if waits else run)

    # ---- statements ----
    def loop(self, statement: For) -> Step:
        """Returns a step that runs the body for each index; threads of a BLOCK that waits run side by side."""
        kind = statement.range.arg[1]
        if kind is AxisKind.VECTOR:
            return self._vector(statement)
        extent = self.expression(statement.range.src[0])
        body = self.body(statement.body)
        if kind is AxisKind.BLOCK and body.waits:
            return Step(True, self._block(statement.range, extent, body))
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

        return Step(body.waits, run_waiting if body.waits else run)

    def _vector(self, statement: For) -> Step:
        """The lanes go through the body together, statement by statement: the RANGE is the vector 0..n-1."""
        body, extent = self.body(statement.body), self.expression(statement.range.src[0])

        def run(frame: Frame) -> Any:
            frame.values[statement.range] = np.arange(int(extent(frame)))
            return body.run(frame)

        return Step(body.waits, run)

    def _block(self, axis: Op, extent: Callable[[Frame], Any], body: Step) -> Callable[[Frame], Iterator[int]]:
        """Runs all threads to their next barrier, then goes on; inside another BLOCK loop it waits there too."""

        def run(frame: Frame) -> Iterator[int]:
            threads = {}
            for i in self.order(max(0, int(extent(frame)))):
                inner = frame.thread()
                inner.values[axis] = axis.dtype.numpy.type(i)
                threads[i] = body.run(inner)
            yield from run_threads(self.name, threads)

        return run

    def condition(self, statement: If) -> Step:
        """Returns a step that runs the body where the condition holds."""
        holds, body = self.expression(statement.condition), self.body(statement.body)

        def taken(frame: Frame) -> bool:
            value = holds(frame)
            if np.size(value) != 1:
                raise VerifyError(f"program {self.name}: the lanes of a vector meet an If, which has one condition.")
            return bool(value)

        def run(frame: Frame) -> None:
            if taken(frame):
                body.run(frame)

        def run_waiting(frame: Frame) -> Iterator[int]:
            if taken(frame):
                yield from body.run(frame)

        return Step(body.waits, run_waiting if body.waits else run)

    def alloc(self, statement: Alloc) -> Step:
        """Returns a step that makes memory of unspecified content: SHARED memory once a block, else once a frame."""
        op = statement.memory
        _, numel, space = op.arg

        def run(frame: Frame) -> None:
            memory = Memory.unwritten(unspecified(numel, op.dtype.numpy))
            frame.values[op] = frame.shared.setdefault(op, memory) if space is MemorySpace.SHARED else memory

        return Step(False, run)

    def let(self, statement: Let) -> Step:
        value, var = self.expression(statement.value), statement.var

        def run(frame: Frame) -> None:
            frame.values[var] = value(frame)

        return Step(False, run)

    def load(self, statement: Load) -> Step:
        read = self.reader(statement.memory, statement.index, statement.valid, statement.var.arg[1])
        var = statement.var

        def run(frame: Frame) -> None:
            frame.values[var] = read(frame)

        return Step(False, run)

    def store(self, statement: Store) -> Step:
        """Returns a step that stores a value, or its lanes in order, where valid."""
        memory, index, value = (self.expression(x) for x in (statement.memory, statement.index, statement.value))
        valid = self.expression(statement.valid) if statement.valid is not None else None

        def run(frame: Frame) -> None:
            stored = value(frame)
            at, mask = lanes_of_access(index(frame), np.size(stored), True if valid is None else valid(frame))
            target = memory(frame)
            self.check_bounds("store to", statement.memory, target, at[mask])
            target.array[at[mask]] = np.broadcast_to(stored, at.shape)[mask]
            if target.stored is not None:
                target.stored[at[mask]] = True

        return Step(False, run)

    def transpose(self, statement: Transpose) -> Step:
        """Returns a step that copies a square, turned round."""
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

        return Step(False, run)

    def prefetch(self, statement: Prefetch) -> Step:
        return Step(False, lambda frame: None)

    def copy_async(self, statement: CopyAsync) -> Step:
        """Returns a step that starts a copy; until its thread waits for it nothing is where it goes."""
        s = statement
        read = self.reader(s.memory, s.index, s.valid, s.lanes)
        into, place, index = self.expression(s.into), self.expression(s.place), self.expression(s.index)

        def run(frame: Frame) -> None:
            target, at = into(frame), place(frame) + np.arange(s.lanes)
            self.check_bounds("copy to", s.into, target, at)
            if int(at[0]) % s.lanes or int(index(frame)) % s.lanes:  # of what is not valid, too, as on a GPU
                ends = f"from {s.memory} at index {index(frame)} to {s.into} at {at[0]}"
                raise VerifyError(f"program {self.name}: copy {ends}, which are not multiples of {s.lanes}.")
            target.stored[at] = False
            frame.copies[-1].append(Copy(target, at, read(frame)))

        return Step(False, run)

    def commit_copies(self, statement: CommitCopies) -> Step:
        return Step(False, lambda frame: frame.copies.append([]))

    def wait_for_copies(self, statement: WaitForCopies) -> Step:
        """Returns a step that lets the copies of all closed groups but the last ones arrive."""

        def run(frame: Frame) -> None:
            while len(frame.copies) - 1 > statement.still:
                for copy in frame.copies.pop(0):
                    copy.arrive()

        return Step(False, run)

    def load_matrices(self, statement: LoadMatrices) -> Step:
        """Returns a step that brings a thread's part of four matrices, whose rows the threads of the warp read."""
        s = statement
        read = self.reader(s.memory, s.index, None, MATRIX_ROW)
        into, place = self.expression(s.into), self.expression(s.place)
        number = self.num_places
        self.num_places += 1

        def run(frame: Frame) -> Generator[Swap, Any, None]:
            lane, rows = yield Swap(number, read(frame))
            target, at = into(frame), place(frame) + np.arange(8)
            self.check_bounds("store to", s.into, target, at)
            target.array[at] = matrices_part(lane, rows, s.turned)
            target.stored[at] = True

        return Step(True, run)

    def shuffle(self, statement: Shuffle) -> Step:
        """Returns a step that gives a value to another thread of the warp and takes that one's."""
        value, var, distance = self.expression(statement.value), statement.var, statement.distance
        number = self.num_places
        self.num_places += 1

        def run(frame: Frame) -> Generator[Swap, Any, None]:
            lane, given = yield Swap(number, value(frame))
            frame.values[var] = given[lane ^ distance]

        return Step(True, run)

    def mma(self, statement: Mma) -> Step:
        """Returns a step that adds a product of which each thread of the warp holds a part."""
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

        return Step(True, run)

    def barrier(self, statement: Barrier) -> Step:
        number = self.num_places
        self.num_places += 1

        def run(frame: Frame) -> Iterator[int]:
            yield number

        return Step(True, run)

    def check(self, statement: Check) -> Step:
        inside, value = self.expression(statement.inside), self.expression(statement.value)

        def run(frame: Frame) -> None:
            found = np.atleast_1d(value(frame))[~np.atleast_1d(inside(frame))]
            if found.size:
                raise OutOfRange(statement.number, int(found[0]))

        return Step(False, run)
