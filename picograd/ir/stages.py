"""The records that cross the boundaries of the compiler, one for each.

In:    Ops and statements
Out:   Schedule, ScheduleItem, LoopItem, Kernel, Nest, Program, Source, Binary, Executable, Plan; `Runner`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from math import prod
from typing import Any, Protocol

from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.op import Buffer, Dim, Op, Shape, greatest
from picograd.ir.statements import Statement
from picograd.ir.symbolic import with_variables
from picograd.record import Record, replace


class NestKind(Enum):
    """The kind of a nest, which decides its emitter in codegen/."""

    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    MATMUL = "matmul"
    CONV = "conv"
    SCATTER = "scatter"
    SCAN = "scan"
    SORT = "sort"
    ATTENTION = "attention"  # of an ATTENTION or its gradients: outputs are its OUTPUTs, each in a shape of its own
    UPDATE = "update"
    HOST = "host"  # of a CUSTOM or a KERNEL: no code is generated for it
    LOOP = "loop"  # of a LOOP or a CALL: a schedule of its own, and no kernel


WITH_ANCHOR = frozenset(
    {NestKind.MATMUL, NestKind.CONV, NestKind.SCATTER, NestKind.SCAN, NestKind.SORT, NestKind.UPDATE,
     NestKind.ATTENTION}
)  # fmt: skip


class WithRows:
    """An iteration space whose axes are either rows or reduced."""

    domain: Shape
    reduced: tuple[int, ...]

    @cached_property
    def row_axes(self) -> tuple[int, ...]:
        """Returns the axes of the domain that number its rows."""
        return tuple([axis for axis in range(len(self.domain)) if axis not in self.reduced])

    @cached_property
    def row_shape(self) -> Shape:
        return tuple([self.domain[axis] for axis in self.row_axes])


class Nest(WithRows, Record):
    """One loop nest: outputs computed together over one domain.

    kind:     the emitter
    domain:   shape of the iteration space; for MATMUL, CONV, SCATTER and UPDATE that of the result
    reduced:  axes of the domain that are reduced (REDUCE only); the others are its rows
    anchor:   the Op the nest is built around, for the kinds WITH_ANCHOR; else None
    outputs:  (slot, value): value is a tensor graph over PARAMs; it has the shape of the domain, or in a REDUCE nest
              that of its rows, and is stored contiguously into parameter `slot`
    """

    kind: NestKind
    domain: Shape
    reduced: tuple[int, ...]
    anchor: Op | Any  # Any: emitters know their kind
    outputs: tuple[tuple[int, Op], ...]


class Elements(Record):
    """Elements of one dtype in memory; a symbolic number of them is an expression of variables."""

    dtype: DType
    numel: Dim

    @property
    def nbytes(self) -> int:
        """Their bytes; a symbolic number counts with its greatest value."""
        return greatest(self.numel) * self.dtype.itemsize


REPORT_WORDS = 2  # of a Param with the role "report"


class Param(Elements):
    """One argument of a kernel.

    role:  "in", "out", "inout" (an UPDATE's: it holds the base before, and only the block is written), "scratch" (memory
           the plan gives the kernel between its phases) or "report": two words, 0 before a run, in which the first Check
           that fails leaves 1 + its number, and the value
    """

    role: str


class Kernel(Record):
    """One fused computation, not yet loops. Equal kernels share one Program for any buffers.

    name:       from kind and shape, e.g. "reduce_32_256"
    params:     arguments by slot
    variables:  symbolic integers, passed after the buffers as int64
    phases:     nests by phase; all of a phase is done before the next begins. () where the kernel comes from the cache,
                compiled
    """

    name: str
    params: tuple[Param, ...]
    variables: tuple[Op, ...]
    phases: tuple[tuple[Nest, ...], ...]

    def values(self) -> list[Op]:
        """Returns the values that it stores."""
        return [value for nests in self.phases for nest in nests for _, value in nest.outputs]


class ScheduleItem(Record):
    """A kernel and what it runs on.

    buffers:  for each slot of the kernel an index into `Schedule.buffers`
    checks:   for each CHECK of the kernel its number in the plan, by which the plan words its error
    """

    kernel: Kernel
    buffers: tuple[int, ...]
    checks: tuple[Any, ...] = ()


class Feed(Record):
    """The place of an input of a LoopItem's body.

    buffer:    of the schedule that has the item
    is_row:    step r reads row r of it, else all of it
    reversed:  the last step reads the first row
    carried:   from the second step on it is this output of the body, as the step before has stored it; None: it is not
    """

    buffer: int
    is_row: bool = False
    reversed: bool = False
    carried: int | None = None


class Result(Record):
    """The place of an output of a LoopItem's body.

    buffer:  of the schedule that has the item; None: it is not asked for in the end
    is_row:  step r stores row r of it; else the last step stores it, and the steps before it into `buffer` and `spare`
             in turn, the last but one into `spare`
    spare:   byte offset in the item's memory of a place of the same length; None where it is not needed
    other:   of a second such place, which is used where `buffer` is None
    """

    buffer: int | None
    is_row: bool = False
    spare: int | None = None
    other: int | None = None


class LoopItem(Record):
    """A schedule that runs step after step: the body of a LOOP, or in one step that of a CALL.

    body:     the schedule; its "input" and "output" buffers are what `feeds` and `results` say at each step
    steps:    how many; a symbolic number may be 0, then nothing is stored
    feeds:    by input of the body
    results:  by output of the body
    memory:   index into the outer `Schedule.buffers` of the item's own memory, with the body's temporaries at its
              start and the results' spare places behind them; None where it needs none
    """

    body: Schedule
    steps: Dim
    feeds: tuple[Feed, ...]
    results: tuple[Result, ...]
    memory: int | None

    @property
    def buffers(self) -> tuple[int, ...]:
        """Returns the buffers that the item reads or writes."""
        used = [feed.buffer for feed in self.feeds] + [r.buffer for r in self.results if r.buffer is not None]
        return tuple(dict.fromkeys(used if self.memory is None else [*used, self.memory]))


class BufferUse(Elements):
    """The schedule's record of one buffer.

    role:    "input" (exists before), "output" (outlives the plan), "temporary" or "lent" (a temporary in the memory of an
             output that is written later)
    source:  the index of its input or output; for a temporary the byte offset in the arena
    over:    of an output: the index of an input whose memory it may be given, because all readers of the input come before
             it is overwritten; None: it needs memory of its own
    also:    of an output: other inputs whose memory it may be given instead
    keeps:   of an output with `over`: its memory must hold before the run what the input holds
    late:    of an output: it is written after every CHECK that may fail. Its memory may be that of the value it replaces,
             if the plan does not read that value: should a CHECK fail, the old value is still there
    """

    role: str
    source: int
    over: int | None = None
    keeps: bool = False
    also: tuple[int, ...] = ()
    late: bool = False


class Schedule(Record):
    """Kernels in an order that respects what each reads, with the memory of temporaries planned.

    items:        kernels, and loops over schedules, in order
    buffers:      every buffer the items name
    inputs:       BUFFER Ops that must hold data, by input index
    outputs:      for each requested graph the index into `buffers` of its memory
    arena_nbytes: bytes of the temporaries, after reuse
    commit:       index of the first item that overwrites old values (of an input, or of what a late output replaces): a
                  run of which a CHECK has failed ends before it; 0 where no CHECK may fail before such an item
    """

    items: tuple[ScheduleItem | LoopItem, ...]
    buffers: tuple[BufferUse, ...]
    inputs: tuple[Op, ...]
    outputs: tuple[int, ...]
    arena_nbytes: int
    commit: int = 0

    def written(self) -> tuple[BufferUse, ...]:
        """Returns the buffers with role "output", by their index."""
        return tuple(sorted((use for use in self.buffers if use.role == "output"), key=lambda use: use.source))

    def kernel_items(self) -> tuple[ScheduleItem, ...]:
        """Returns the items that are kernels, those of bodies at the place of their loop: Plan.executables' order."""
        found: list[ScheduleItem] = []
        for item in self.items:
            found += item.body.kernel_items() if isinstance(item, LoopItem) else [item]
        return tuple(found)


class Program(Record):
    """Loops: what a kernel does, statement by statement.

    name:       of the functions rendered from it; phase i is `{name}_{i}`
    params:     the kernel's parameters, then scratch the code itself needs
    variables:  symbolic integers, passed after the parameters
    phases:     statements by phase. The outermost loops of a phase are its GRID loops, one after the other; a
                thread runs a part of the concatenation of their iterations.
    num_guards: accesses that were not proved to be inside their memory, so that a condition was added
    """

    name: str
    params: tuple[Param, ...]
    variables: tuple[Op, ...]
    phases: tuple[tuple[Statement, ...], ...]
    num_guards: int = 0

    def source(self, language: str, text: str, launches: Sequence[Launch]) -> Source:
        """Returns the text of this Program in a language, with a launch for each phase."""
        return Source(self.name, language, text, self.params, self.variables, tuple(launches))


class TileMap(Record):
    """An array in a parameter's memory that a GPU copies box by box to shared memory or back.

    param:     slot of the parameter
    shape:     of the array
    box:       how much of each axis one copy moves
    swizzles:  the pieces of each row of 128 bytes change places on their way, as matrix instructions read them
    offset:    elements of the parameter before the array
    strides:   elements from one to the next along each axis, 1 along the last; () if it is contiguous
    rounds:    float32 are rounded to TF32 on their way to shared memory: to nearest, ties to even
    """

    param: int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    swizzles: bool = True
    offset: int = 0
    strides: tuple[int, ...] = ()
    rounds: bool = False

    @property
    def steps(self) -> tuple[int, ...]:
        """Returns the elements from one to the next along each axis."""
        return self.strides or tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


class Launch(Record):
    """The launch of one phase.

    symbol:         name of its function
    grid:           number of GRID iterations (blocks), an expression of the variables
    block:          threads of a block; 1 on a CPU
    work:           rough cost of one GRID iteration, in elements touched or FLOPs: decides whether threads share it
    shared_nbytes:  SHARED memory of a block that is asked for at each launch, as it is more than a function can declare
    tile_maps:      passed between the buffers and the variables, to kernels written by hand
    axes:           blocks along y and z, then threads along x, y and z (`block` in all); () if all are along x
    """

    symbol: str
    grid: Dim
    block: int
    work: int
    shared_nbytes: int = 0
    tile_maps: tuple[TileMap, ...] = ()
    axes: tuple[int, ...] = ()


class Source(Record):
    """Text in a compiler's language.

    language:  as Target has it: "llvm", "c", ...
    """

    name: str
    language: str
    text: str
    params: tuple[Param, ...]
    variables: tuple[Op, ...]
    launches: tuple[Launch, ...]

    def binary(self, data: bytes) -> Binary:
        """Returns the machine code that its text was compiled to."""
        return Binary(self.name, data, self.params, self.variables, self.launches)


class Binary(Record):
    """Machine code of a Source: an object file, a cubin, a shared library; or a call of a library (ir/opts.py)."""

    name: str
    data: bytes
    params: tuple[Param, ...]
    variables: tuple[Op, ...]
    launches: tuple[Launch, ...]

    def executable(self, functions: Sequence[Any], owner: Any = None) -> Executable:
        """Returns its code once it is loaded: a function for each launch."""
        return Executable(self.name, self.params, self.variables, self.launches, tuple(functions), owner)


class Executable(Record, eq=False):
    """Loaded code.

    functions:  one for each launch: an address on the CPU, a device function elsewhere
    owner:      objects that must stay alive while the functions may be called
    """

    name: str
    params: tuple[Param, ...]
    variables: tuple[Op, ...]
    launches: tuple[Launch, ...]
    functions: tuple[Any, ...]
    owner: Any = None


class FixedMemory(Record, eq=False):
    """A promise by the caller: runs that are given the same object have the same memory everywhere but in these places.

    moving_inputs, moving_outputs:  places whose memory may differ from run to run
    moving_runs:                    slices of neighbouring inputs; these are not among `moving_inputs`
    """

    moving_inputs: tuple[int, ...]
    moving_outputs: tuple[int, ...]
    moving_runs: tuple[slice, ...] = ()


class Runner(Protocol):
    """Runs a schedule."""

    def __call__(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        variables: Mapping[str, int],
        may_stop: bool = True,
        fixed: FixedMemory | None = None,
        /,
    ) -> None:
        """Runs it once, on Buffers with memory and values of symbolic integers by name.

        Args:
          fixed:     a promise on memory; None where any may be another than in the run before
          may_stop:  False where an interrupt has to wait for the end of the run, since outputs are written over memory that
                     is wanted if they are not complete; of outputs in the memory of inputs the runner knows that itself
        """
        ...


class Plan(Record, eq=False, dict=True):
    """Everything needed to run a schedule again without looking at a graph.

    schedule:     what runs, on which buffers
    executables:  by `schedule.kernel_items()`
    outputs:      the buffers with role "output", by their index
    run:          the device's runner, bound to its arena
    """

    schedule: Schedule
    executables: tuple[Executable, ...]
    outputs: tuple[BufferUse, ...]
    run: Runner

    def of(self, variables: Mapping[str, int]) -> Plan:
        """Returns the plan for these values of symbolic integers: lengths of outputs that depend on no others are known."""
        outputs = [replace(use, numel=with_variables(use.numel, variables)) for use in self.outputs]
        return replace(self, outputs=tuple(outputs))

    @cached_property
    def fixed_outputs(self) -> tuple[tuple[DType, int], ...] | None:
        """Returns dtype and elements of each output, or None where they depend on symbolic integers."""
        fixed = [(use.dtype, use.numel) for use in self.outputs if isinstance(use.numel, int)]
        return tuple(fixed) if len(fixed) == len(self.outputs) else None

    @cached_property
    def fixed_lengths(self) -> tuple[int, ...]:
        """Returns the bytes of each of the fixed outputs."""
        return tuple(numel * dtype.itemsize for dtype, numel in self.fixed_outputs or ())
