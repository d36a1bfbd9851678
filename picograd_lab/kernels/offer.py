"""Kernels offered to the compiler for an operation: candidates for every kernel that computes it.

In:    the call of a user's kernel for arguments; the operation, as a function of Tensors; arguments like its own
Out:   `Offering`, an Offer (ir/host.py), which finds the kernels that it applies to

The operation is compiled for arguments like the given ones, as far as its kernel. Another kernel computes it if a value has
the same Ops, for any lengths: this gives the operands, and their shapes. For these shapes the operation is compiled again,
and accepted if the value is exactly that graph, with all its numbers.

    pattern   REDUCE(MUL(PARAM 0, EXPAND(PARAM 1)))             a @ x of (4, 4) and (4,)
    kernel    ADD(REDUCE(MUL(PARAM 2, EXPAND(ABS ...))), ...)   PARAM 0 is its PARAM 2, PARAM 1 its ABS, stored before

Counts of the simulator decide which kernel wins untimed, for the requested lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from math import ceil
from typing import Any

from picograd.codegen.emit import guess
from picograd.codegen.unfuse import unfuse_given
from picograd.device import Target
from picograd.dtype import DType
from picograd.engine.choose import TIME_RATIO_MAX, call_of, merged, parts_of, with_given, written_candidates
from picograd.engine.devices import compiler_for
from picograd.engine.realize import realize
from picograd.errors import ArgumentError, ArgumentTypeError, PicogradError
from picograd.interrupts import Latest
from picograd.ir.bodies import substitute
from picograd.ir.host import offers
from picograd.ir.op import Op, Shape, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Kernel, NestKind, Program, Schedule, Source
from picograd.ir.symbolic import dim_value
from picograd.record import Record, replace
from picograd.road import schedule_graphs, source_of
from picograd.tensor.cell import last_change
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.counts import WARP_THREADS, compile_counted, take_counts
from picograd_lab.ladder.gpu import ceil_div
from picograd_lab.ladder.runnable import Planned

SIMULATOR, OWN, MOST_ACCEPTED = "CUDASIM", "picograd", 256
Types = tuple[tuple[DType, Shape], ...]  # of the Tensors among arguments


class Operation(Record):
    """An operation as compiled for some arguments, in one kernel.

    values:    its results, as graphs over a PARAM per Tensor argument
    schedule:  schedule of the kernel
    """

    values: tuple[Op, ...]
    schedule: Schedule

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.schedule.kernel_items()[0].kernel

    @property
    def kind(self) -> NestKind:
        """The kind of its only nest."""
        return self.kernel.phases[0][0].kind


class Offering:
    """A user's kernel as a candidate for an operation, until it is withdrawn; a `with` block withdraws it at its end.

    kernel:      name of the kernel; `name` also has the dtypes and ranks, for each of which it may be offered
    call:        (target, arguments): the KERNEL for them, or why there is none
    implements:  (arguments): the operation, by operations of Tensors
    examples:    example arguments: Tensors stand for all of their rank and dtype, everything else for itself
    """

    def __init__(
        self, kernel: str, call: Callable[..., Op | str], implements: Callable[..., Any], examples: tuple[Any, ...]
    ):
        self.kernel, self.call, self.implements, self.examples = kernel, call, implements, examples
        self.name = f"{kernel} of {', '.join(f'{dtype.name} {len(shape)}-d' for dtype, shape in types_of(examples))}"
        self._won: set[tuple[Any, ...]] = set()
        self._known: dict[tuple[Types, Target], Operation | str] = {}
        self._accepted: Latest[tuple[Kernel, Target], Mapping[Op, Op] | str] = Latest(MOST_ACCEPTED)
        self._results(examples)  # an error of the user's function is raised here, not where kernels are compiled
        self._offer()

    def _offer(self) -> None:
        offers.change(self.name, self)
        last_change.note()  # jitted functions have a plan per set of offers

    def __enter__(self) -> Offering:
        return self

    def __exit__(self, *error: object) -> None:
        self.withdraw()

    def withdraw(self) -> None:
        """Withdraws the offer: plans are made without it."""
        if offers.by_name.get(self.name) is self:
            offers.change(self.name, None)
            last_change.note()

    # ---- as the compiler asks ----
    def accepts(self, kernel: Kernel, target: Target) -> Mapping[Op, Op] | str:
        """Returns values of a kernel with the OUTPUTs of the user's kernel that compute them; or why there are none."""
        found = self._accepted.get((kernel, target))
        if found is None:
            found = self._found(kernel, target)
            self._accepted.put((kernel, target), found)
        return found

    def _found(self, kernel: Kernel, target: Target) -> Mapping[Op, Op] | str:
        pattern = self.operation(types_of(self.examples), target)
        if isinstance(pattern, str):
            return pattern
        if [nest.kind for phase in kernel.phases for nest in phase] != [pattern.kind]:
            return "it is another kind of operation"
        order, reason = toposort(kernel.values()), "it does not compute this value"
        for value in reversed(order):
            operands = operands_of(pattern.values[0], value)
            if operands is not None:
                found = self._computed(operands, set(order), target)
                if not isinstance(found, str):
                    return found
                reason = found
        return reason

    def wins(self, call: Op) -> bool:
        """True for shapes for which counts have shown that the kernel wins."""
        return _shapes(call) in self._won

    def _computed(self, operands: Mapping[int, Op], known: set[Op], target: Target) -> Mapping[Op, Op] | str:
        """Returns the values of the operation for some operands, with their OUTPUTs; or why they are missing."""
        slots = range(len(types_of(self.examples)))
        if operands.keys() != set(slots):
            return "an argument is not one of its operands"
        types = tuple((operands[slot].dtype, operands[slot].shape) for slot in slots)
        exact = self.operation(types, target)
        if isinstance(exact, str):
            return exact
        values = substitute(exact.values, {_param(slot, *one): operands[slot] for slot, one in enumerate(types)})
        if not known.issuperset(values):
            return "its numbers or axes differ"
        call = self._called([operands[slot] for slot in slots], target)
        if isinstance(call, str):
            return call
        results = [(dtype, numel(shape)) for dtype, shape in zip(call.arg[0].results, call.arg[1])]
        if [(value.dtype, numel(value.shape)) for value in values] != results[: len(values)]:
            return "results have other dtypes or other numbers of elements"
        return {value: Op(OpCode.OUTPUT, value.dtype, (call,), number) for number, value in enumerate(values)}

    def _called(self, operands: Sequence[Op], target: Target) -> Op | str:
        tensors = [Tensor.from_op(operand, target.device) for operand in operands]
        try:
            return Context().run(self.call, target, *put(self.examples, tensors))  # without modes or a trace
        except Exception as error:  # a shape that the kernel or its launch does not accept, or the user's functions
            return _reason(error)

    # ---- the operation ----
    def operation(self, types: Types, target: Target) -> Operation | str:
        """Returns the operation for arguments of these types; or why no single kernel computes it."""
        if (types, target) not in self._known:
            self._known[types, target] = Context().run(self._compiled, types, target)
        return self._known[types, target]

    def _results(self, args: Sequence[Any]) -> Sequence[Tensor]:
        """Returns the results of the operation.

        Raises:
          ArgumentTypeError: they are not Tensors.
        """
        with no_grad():
            found = self.implements(*args)
        results = found if isinstance(found, (tuple, list)) else (found,)
        if not results or not all(isinstance(result, Tensor) for result in results):
            raise ArgumentTypeError(f"{self.kernel}: implements must return Tensors, got {found!r}.")
        return results

    def _compiled(self, types: Types, target: Target) -> Operation | str:
        tensors = [Tensor.from_op(_param(slot, *one), target.device) for slot, one in enumerate(types)]
        try:
            schedule = schedule_graphs([result.op for result in self._results(put(self.examples, tensors))], target)
        except Exception as error:  # lengths that the operation, or the user's function, does not accept
            return _reason(error)
        items = schedule.kernel_items()
        if len(items) != 1 or [len(phase) for phase in items[0].kernel.phases] != [1]:
            return f"the operation is {len(items)} kernels, or one kernel of several nests"
        kernel, buffers = items[0].kernel, items[0].buffers
        stored = {buffers[slot]: value for slot, value in kernel.phases[0][0].outputs}
        values = [stored[place] for place in schedule.outputs]
        numbers = [schedule.buffers[place].source for place in buffers]
        params = [op for op in toposort(values) if op.code is OpCode.PARAM]
        arguments = {op: _param(schedule.inputs[numbers[op.arg[0]]].arg[0], op.dtype, op.shape) for op in params}
        return Operation(tuple(substitute(values, arguments)), schedule)

    # ---- counts ----
    def count(self) -> dict[str, int]:
        """Counts the kernel and the compiler's own on the simulator, for the examples; a winner is used for their lengths.

        Returns:   the clocks of both, by name (`clocks_of`)

        Raises:
          ArgumentError: the operation is not one kernel, or the user's kernel does not accept these examples.
          DeviceError: the simulator finds a fault in the kernel.
        """
        compiler = compiler_for(SIMULATOR)
        target, found = compiler.device.target, self.operation(types_of(self.examples), compiler.device.target)
        computed = found if isinstance(found, str) else self.accepts(found.kernel, target)
        if isinstance(found, str) or isinstance(computed, str):
            raise ArgumentError(f"{self.kernel}: {SIMULATOR} cannot count it: {computed}.")
        cut = unfuse_given(found.kernel, computed)
        assert not isinstance(cut, str), f"{self.name} is for all of the kernel of its own operation, but: {cut}"
        own = _own_source(found.kernel, call_of(cut), target, compiler.backend.render)
        given = realize([one.to(SIMULATOR).op for one in self.examples if isinstance(one, Tensor)])
        inputs, clocks = [given[op.arg[0]].arg[0] for op in found.schedule.inputs], {}
        for name, source in ((self.kernel, with_given(cut, None, compiler.writes)), (OWN, own)):
            executable = compiler.device.load(compile_counted(source))
            Planned(compiler.device, found.schedule, [executable], inputs).run()
            blocks = max(dim_value(launch.grid, {}) for launch in source.launches)
            clocks[name] = clocks_of(take_counts(executable), blocks, len(source.launches))
        if clocks[self.kernel] < TIME_RATIO_MAX * clocks[OWN]:
            self._won.add(_shapes(call_of(cut)))
            offers.change(self.name, None)  # offered again under another key, so that plans are made again
            self._offer()
        return clocks


def _reason(error: Exception) -> str:
    """Returns the reason that an error gives, for a kernel that is not taken."""
    return error.fact.rstrip(".") if isinstance(error, PicogradError) else f"{type(error).__name__}: {error}"


# ---- graphs ----
def operands_of(pattern: Op, value: Op) -> dict[int, Op] | None:
    """Returns the Ops of a value that match PARAM 0, 1, ... of a pattern; None if the Ops differ."""
    found: dict[Op, Op] = {}
    pairs = [(pattern, value)]
    while pairs:
        like, op = pairs.pop()
        if found.setdefault(like, op) is not op:
            return None
        if like.code is OpCode.PARAM:
            if op.dtype is not like.dtype or len(op.shape) != len(like.shape) or op.code is OpCode.CONST:
                return None
        elif like.code is not op.code or like.dtype is not op.dtype or len(like.src) != len(op.src):
            return None
        else:
            pairs += zip(like.src, op.src)
    return {like.arg[0]: op for like, op in found.items() if like.code is OpCode.PARAM}


def types_of(args: Sequence[Any]) -> Types:
    """Returns the dtypes and shapes of the Tensors among some arguments."""
    return tuple((one.dtype, one.shape) for one in args if isinstance(one, Tensor))


def put(args: Sequence[Any], tensors: Sequence[Tensor]) -> list[Any]:
    """Returns arguments with their Tensors replaced, in order."""
    others = iter(tensors)
    return [next(others) if isinstance(one, Tensor) else one for one in args]


def _param(slot: int, dtype: DType, shape: Shape) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def _shapes(call: Op) -> tuple[Any, ...]:
    return tuple((op.dtype, op.shape) for op in call.src)


def _own_source(kernel: Kernel, call: Op, target: Target, render: Callable[[Program, Target], Source]) -> Source:
    """Returns the compiler's kernel for the same GPUs as the user's: with tile maps, for those of warpgroups."""
    if any(launch.tile_maps for launch in call.arg[0].launches):
        target = replace(target, has_warpgroups=True, multiprocessors=MULTIPROCESSORS, shared_bytes=HOPPER_SHARED_BYTES)
    written = written_candidates(kernel, target)
    if not written:
        return source_of(kernel, target, guess(kernel, target), render)
    parts = parts_of(kernel, written[0], target)
    rest = None if parts.generated is None else source_of(parts.generated, target, parts.opts, render)
    return merged(kernel, parts, written[0], rest, target)


# ---- what counts come to ----
# An H100, by its clock: NVIDIA H100 Tensor Core GPU Architecture, 2022; its memory has 3.35 TB/s, a multiprocessor asks
# its cache for 64 bytes a clock. A launch takes 2 us, in which two small kernels are alike.
LAUNCH_CLOCKS = 3500
MULTIPROCESSORS, SECTORS_OF_MEMORY, SECTORS, SHARED_BYTES, INSTRUCTIONS, MMA_CLOCKS = 132, 66, 2, 128, 4, 2
WGMMA_COLUMN_CLOCKS, HOPPER_SHARED_BYTES = 0.5, 227 * 1024  # for 64 rows and 16 of K in 16 bits; per block
OF_SHARED = ("shared_loads", "shared_stores", "shared_atomics")
ISSUED = (
    *OF_SHARED, "global_loads", "global_stores", "global_atomics", "async_copies", "tile_loads", "tile_stores", "barriers",
    "shuffles", "mmas", "wgmmas",
)  # fmt: skip
OF_THREADS = ("multiply_adds", "exponentials")


def clocks_of(counts: Mapping[str, int], blocks: int, launches: int = 1) -> int:
    """Returns the clocks of launches, plus those of memory or, if more, of the busiest part of the fullest multiprocessor.

    Its parts are the path to the cache, shared memory, issue and matrix units. The model has no latencies, and a cache that
    keeps nothing: it compares two kernels of the same operation, and does not predict times.

    Args:
      counts:  counts of a kernel (picograd_lab/ladder/counts.h)
      blocks:  blocks of its grid, the largest of several
    """
    sectors = counts["loaded_sectors"] + counts["stored_sectors"]
    issued = sum(counts[name] for name in ISSUED) + sum(counts[name] / WARP_THREADS for name in OF_THREADS)
    shared = max(sum(counts[name] for name in OF_SHARED), counts["shared_bytes"] / SHARED_BYTES) + counts["bank_conflicts"]
    multiplied = MMA_CLOCKS * counts["mmas"] + WGMMA_COLUMN_CLOCKS * counts["wgmma_columns"]
    busiest = max(sectors / SECTORS, shared, issued / INSTRUCTIONS, multiplied)
    busiest *= ceil_div(blocks, MULTIPROCESSORS) / blocks
    return launches * LAUNCH_CLOCKS + ceil(max(sectors / SECTORS_OF_MEMORY, busiest))
