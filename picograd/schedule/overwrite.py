"""Which outputs of a schedule may be stored over an input that nobody needs afterwards.

In:    Schedule
Out:   (output, input) pairs
Called by: transforms/donate.py.    Next: picograd/codegen/opts.py

An output may take an input's place when no kernel reads the input after the output is begun. The kernel that stores the
output may read it where each element is read at its own place only: nobody else will read what is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ELEMENTWISE, OpCode
from picograd.ir.stages import BufferUse, Kernel, NestKind, Schedule, ScheduleItem

IN_PLACE = frozenset({NestKind.ELEMENTWISE, NestKind.MATMUL})  # whose outputs are stored an element once


def overwritable(schedule: Schedule, inputs: Iterable[int]) -> list[tuple[int, int]]:
    """Returns pairs (output, input) that may share memory, each input (of those given) and each output at most once."""
    if not all(type(item) is ScheduleItem for item in schedule.items):  # a loop's body runs many times
        return []
    place = {use.source: i for i, use in enumerate(schedule.buffers) if use.role == "input"}
    results = [(i, use) for i, use in enumerate(schedule.buffers) if use.role == "output"]
    kept = {use.source for i in schedule.outputs if (use := schedule.buffers[i]).role == "input"}  # given back as it is
    pairs: list[tuple[int, int]] = []
    for source in inputs:
        if source not in place or source in kept:
            continue
        taken = {output for output, _ in pairs}
        for i, use in results:
            if use.source not in taken and _may_take(schedule, i, place[source]):
                pairs.append((use.source, source))
                break
    return pairs


def _may_take(schedule: Schedule, output: int, source: int) -> bool:
    """True when the buffer `output` may be stored where the buffer `source` is."""
    lengths = [_nbytes(schedule.buffers[i]) for i in (output, source)]
    if lengths[0] is None or lengths[0] != lengths[1]:
        return False
    first = next(i for i, item in enumerate(schedule.items) if output in item.buffers)
    if any(source in item.buffers for item in schedule.items[first + 1 :]):
        return False
    writer = schedule.items[first]
    if source not in writer.buffers:
        return True
    reads, stores = (_slots(writer, buffer) for buffer in (source, output))
    return len(reads) == len(stores) == 1 and _reads_at_own_place(writer.kernel, reads[0], stores[0])


def _nbytes(use: BufferUse) -> int | None:
    return use.numel * use.dtype.itemsize if isinstance(use.numel, int) else None


def _slots(item: ScheduleItem, buffer: int) -> list[int]:
    return [slot for slot, index in enumerate(item.buffers) if index == buffer]


def _reads_at_own_place(kernel: Kernel, read: int, stored: int) -> bool:
    """True when element i of parameter `read` is only used for element i of parameter `stored`."""
    for phase in kernel.phases:
        for nest in phase:
            others = [value for slot, value in nest.outputs if slot != stored]
            if nest.anchor is not None:
                others.append(nest.anchor)
            if any(map(_is(read), toposort(others))):
                return False
            own = [value for slot, value in nest.outputs if slot == stored]
            if any(map(_is(read), toposort(own))) and (nest.kind not in IN_PLACE or not _is_pointwise(own[0], read)):
                return False
    return True


def _is_pointwise(value: Op, slot: int) -> bool:
    """True when every way from a value to a parameter goes through elementwise operations alone."""
    return not any(_is(slot)(op) for op in _beyond_elementwise(value))


def _beyond_elementwise(value: Op) -> Iterator[Op]:
    """Yields the Ops below a value that stand under some operation that is not elementwise."""
    near = toposort([value], stop={op for op in toposort([value]) if op.code not in ELEMENTWISE})
    far = [source for op in near if op.code not in ELEMENTWISE for source in op.src]
    yield from toposort(far)


def _is(slot: int) -> Callable[[Op], bool]:
    return lambda op: op.code is OpCode.PARAM and op.arg[0] == slot
