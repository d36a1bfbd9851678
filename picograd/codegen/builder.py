"""Writes statements in order, with loops as `with` blocks.

In:    extents, memory and expressions
Out:   a tuple of statements in the free form (ir/statements.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import HeadsMatrix, Tile
from picograd.ir.statements import (
    Alloc,
    Barrier,
    CommitCopies,
    CopyAsync,
    For,
    If,
    Load,
    LoadMatrices,
    Mma,
    Prefetch,
    Shuffle,
    Statement,
    Store,
    Transpose,
    WaitForCopies,
)
from picograd.ir.symbolic import to_op

Scratch = Callable[[DType, Dim], Op]  # returns memory of that many elements, which the plan lends the kernel


class Context:
    """The arguments of an emitter: parameters, the target, and the builders of phases.

    params:   the kernel's parameters, by slot
    scratch:  returns memory that the plan lends the kernel
    tiles:    the tiles of the kernel's products, in their order
    places:   the places of an attention's results, by slot, that are stored in another parameter
    is_alone: the nest has its launch for itself; all blocks of a launch have the same number of threads
    """

    def __init__(self, params: Sequence[Op], target: Target, scratch: Scratch, tiles: Iterator[Tile]):
        self.params, self.target, self.scratch = params, target, scratch
        self._tiles, self._builders = tiles, list[Builder]()
        self.places, self.is_alone = dict[int, HeadsMatrix](), True

    def phase(self, number: int) -> Builder:
        """Returns the builder of a phase; a phase begins when all threads have ended the one before."""
        self._builders.extend(Builder() for _ in range(len(self._builders), number + 1))
        return self._builders[number]

    def next_tile(self) -> Tile:
        """Returns the tile of the next product of the kernel."""
        return next(self._tiles)

    def finish(self) -> list[tuple[Statement, ...]]:
        """Returns the statements of each phase that has any, and starts again for the nests of the kernel's next phase."""
        finished, self._builders = [builder.finish() for builder in self._builders], []
        return [statements for statements in finished if statements]


class Builder:
    """A list of statements under construction; they go into the innermost open loop."""

    def __init__(self) -> None:
        self._open: list[list[Statement]] = [[]]
        self._num_names = 0

    def _name(self, prefix: str) -> str:
        self._num_names += 1
        return f"{prefix}{self._num_names}"

    @contextmanager
    def loop(self, extent: Dim, kind: AxisKind) -> Iterator[Op]:
        """Opens a loop over 0..extent and yields its RANGE; a LOOP that runs once is left out, and yields the index 0."""
        if extent == 1 and kind is AxisKind.LOOP:
            yield const(0, dtypes.int64)
            return
        self._num_names += 1
        index = Op(OpCode.RANGE, dtypes.int64, (to_op(extent),), (self._num_names, kind))
        self._open.append([])
        yield index
        body = tuple(self._open.pop())
        if body and extent != 0:
            self._open[-1].append(For(index, body))

    @contextmanager
    def again(self, index: Op) -> Iterator[Op]:
        """Reopens the VECTOR loop of `index`, so that values named in it can be used."""
        self._open.append([])
        yield index
        body = tuple(self._open.pop())
        if body:
            self._open[-1].append(For(index, body))

    @contextmanager
    def when(self, condition: Op | bool) -> Iterator[None]:
        """Opens a block that runs where `condition` holds."""
        self._open.append([])
        yield
        body = tuple(self._open.pop())
        if isinstance(condition, Op) and body:
            self._open[-1].append(If(condition, body))
        elif condition is True:
            self._open[-1].extend(body)

    def alloc(self, dtype: DType, numel: int, space: MemorySpace) -> Op:
        """Makes memory of `numel` elements."""
        memory = Op(OpCode.ALLOC, dtype, (), (self._name(space.name.lower()[0]), numel, space))
        self._open[-1].append(Alloc(memory))
        return memory

    def load(self, memory: Op, index: Dim) -> Op:
        """Reads memory[index] now, after every store written before."""
        var = Op(OpCode.VAR, memory.dtype, (), (self._name("x"), 1))
        self._open[-1].append(Load(var, memory, to_op(index)))
        return var

    def store(self, memory: Op, index: Dim, value: Op) -> None:
        """Writes memory[index] = value."""
        self._open[-1].append(Store(memory, to_op(index), value))

    def transpose(self, into: Op, place: Dim, step: int, memory: Op, index: Dim, stride: int, lanes: int) -> None:
        """Writes into[place + j * step + i] = memory[index + i * stride + j] for i, j < lanes."""
        self._open[-1].append(Transpose(into, to_op(place), step, memory, to_op(index), stride, lanes))

    def prefetch(self, memory: Op, index: Dim) -> None:
        """Asks for the cache line of memory[index], which is read or written soon."""
        self._open[-1].append(Prefetch(memory, to_op(index)))

    def copy_async(self, into: Op, place: Dim, source: Op, lanes: int) -> None:
        """Starts copying the element of a LOAD and its neighbours to into[place : place + lanes], in the background."""
        memory, index, *valid = source.src
        self._open[-1].append(CopyAsync(into, to_op(place), memory, index, lanes, *valid))

    def commit_copies(self) -> None:
        """Closes a group of copies."""
        self._open[-1].append(CommitCopies())

    def wait_for_copies(self, still: int) -> None:
        """Waits for all groups of copies except the latest `still`."""
        self._open[-1].append(WaitForCopies(still))

    def load_matrices(self, into: Op, place: Dim, memory: Op, index: Dim, transposed: bool) -> None:
        """Loads a thread's part of four matrices of 8 x 8 to registers; each thread gives the index of one matrix row."""
        self._open[-1].append(LoadMatrices(into, to_op(place), memory, to_op(index), transposed))

    def shuffle(self, value: Op, distance: int) -> Op:
        """Returns the value of the thread in the same warp whose number differs in the bit `distance`."""
        var = Op(OpCode.VAR, value.dtype, (), (self._name("x"), 1))
        self._open[-1].append(Shuffle(var, value, distance))
        return var

    def mma(self, acc: Op, at: Dim, lhs: Op, left: Dim, rhs: Op, right: Dim) -> None:
        """Adds a product of 16 x 16 and 16 x 8 that the warp holds in registers."""
        self._open[-1].append(Mma(acc, to_op(at), lhs, to_op(left), rhs, to_op(right)))

    def barrier(self) -> None:
        """Makes all threads of the block wait for each other."""
        self._open[-1].append(Barrier())

    def finish(self) -> tuple[Statement, ...]:
        """Returns the statements written so far."""
        assert len(self._open) == 1, "a loop is still open"
        return tuple(self._open[0])


def read(memory: Op, index: Dim, valid: Op | bool = True) -> Op:
    """Returns memory[index] as an expression, for memory that is not written nearby."""
    src = (memory, to_op(index))
    return Op(OpCode.LOAD, memory.dtype, src if valid is True else (*src, to_op_bool(valid)))


def to_op_bool(valid: Op | bool) -> Op:
    """Returns a condition as an Op."""
    return valid if isinstance(valid, Op) else Op(OpCode.CONST, dtypes.bool_, (), valid)
