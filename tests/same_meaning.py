"""The one idea the compiler is tested by: a graph means the same at every level of the road.

`check_same_meaning` takes a graph over PARAMs and holds against the evaluator's value of it: the simplified graph, the
Kernels, the Programs (for several vector widths, and for a GPU), and what the CPU computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from picograd.autodiff.gradient import written_out
from picograd.device import Target
from picograd.engine.realize import from_host, realize, to_host
from picograd.evaluator import evaluate, evaluate_kernel, evaluate_program
from picograd.ir.bodies import map_bodies
from picograd.ir.op import Op, const, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.spec import verify_graph, verify_kernel, verify_program
from picograd.ir.stages import BufferUse, Kernel, LoopItem, Nest, Param, Schedule, ScheduleItem
from picograd.ir.symbolic import dim_value
from picograd.ir.text import format_graph, format_kernel
from picograd.ir.text_program import format_program, format_schedule
from picograd.record import replace
from picograd.road import create_schedule, lower, simplify

Array = np.ndarray[Any, Any]
CPU_TARGETS = tuple(
    Target("CPU", "llvm", "any", vector_bytes=nbytes, num_registers=32 if nbytes == 64 else 16)
    for nbytes in (16, 32, 64)
)
GPU_TARGET = Target(
    "CUDASIM", "cuda", "any", has_mma=True, has_async_copies=True, vector_bytes=16, block_threads=32, shared_bytes=48 * 1024
)
TARGETS = (*CPU_TARGETS, GPU_TARGET)


def backwards(n: int) -> range:
    """An order of GRID and BLOCK iterations in which a right program means the same."""
    return range(n - 1, -1, -1)


class ByTurns:
    """An order of GRID and BLOCK iterations: backwards and forwards by turns, from loop to loop.

    A race between blocks, or between threads of several blocks or from one barrier to the next, meets both.
    """

    def __init__(self) -> None:
        self.forwards = True

    def __call__(self, n: int) -> range:
        self.forwards ^= n > 1
        return range(n) if self.forwards else backwards(n)


def check_same_meaning(
    roots: Sequence[Op],
    arrays: Mapping[Op, Array],
    tolerance: float | Sequence[float] = 0.0,
    targets: Sequence[Target] = TARGETS,
    device: bool = True,
    variables: Mapping[str, int] | None = None,
    kernel_tolerance: float | None = None,
) -> Schedule:
    """Checks that `roots`, on `arrays` for its PARAMs, has one value at every level; returns the schedule.

    Programs of several targets run in one order of their iterations or the other; those of one alone in both by turns.

    Args:
      tolerance: greatest absolute error of a root (one for all, or one each); 0 asks for equal values. Bounds come
                 from an error analysis of the graph, or from whole numbers so small that every sum is exact.
      kernel_tolerance: of a kernel against its Programs; the greatest of `tolerance` where it is not given
    """
    roots, known = written_out(roots), dict(variables or {})
    tolerances = list(tolerance) if isinstance(tolerance, Sequence) else [tolerance] * len(roots)
    verify_graph(roots, after="test")
    expected = evaluate(roots, arrays, known)
    simple = simplify(map_bodies(roots, simplify))
    verify_graph(simple, after="simplify")
    _compare("the simplified graph", evaluate(simple, arrays, known), expected, tolerances, roots)
    schedule = create_schedule(simple)
    _check_order(schedule)
    check_places(schedule)
    memory = _memory_of(schedule, arrays, known)
    _run_items(schedule, memory, known, targets, max(tolerances) if kernel_tolerance is None else kernel_tolerance)
    found = [memory[i][: e.size].reshape(e.shape) for i, e in zip(schedule.outputs, expected)]
    _compare("the Kernels", found, expected, tolerances, roots)
    if device:
        _compare("the CPU", run_on("CPU", roots, arrays, known), expected, tolerances, roots)
    return schedule


def run_on(device: str, roots: Sequence[Op], arrays: Mapping[Op, Array], variables: Mapping[str, int]) -> list[Array]:
    """Returns the values a device computes for graphs over PARAMs."""
    became: dict[Op, Op] = {}

    def bound(item: Any) -> Any:
        if isinstance(item, Op):
            if item.code is OpCode.SINK:
                return item  # a body; what it is bound to is known from outside
            if item.code is OpCode.VARIABLE:
                return Op(OpCode.BIND, item.dtype, (item, const(variables[item.arg[0]], item.dtype)))
            return item.replace(src=tuple(bound(s) for s in item.src)) if item.src else item
        return tuple(bound(part) for part in item) if isinstance(item, tuple) else item

    for op in toposort(roots):
        if op.code is OpCode.PARAM:
            leaf = from_host(arrays[op], op.dtype, device)
            became[op] = leaf.replace(arg=(leaf.arg[0], bound(op.shape)))
        elif op.code is OpCode.VARIABLE:
            became[op] = bound(op)
        else:
            became[op] = Op(op.code, op.dtype, tuple(became[s] for s in op.src), bound(op.arg))
    return [to_host(op) for op in realize([became[root] for root in roots])]


def lowered(kernel: Kernel, target: Target) -> str:
    """Returns the text of a kernel's Program."""
    return format_program(lower(kernel, target))


def wider(target: Target, nbytes: int) -> Target:
    """Returns a target with another vector width."""
    return replace(target, vector_bytes=nbytes)


# ---- one level against the next ----
def _run_items(
    schedule: Schedule, memory: list[Array], known: Mapping[str, int], targets: Sequence[Target], tolerance: float
) -> None:
    """Evaluates the kernels of a schedule in order, loops step by step, each kernel against its Programs.

    That is done twice: with memory of its own for each slot, so that all it writes can be compared, and where the
    schedule says, where what it writes last may lie over what it read or wrote before.
    """
    for item in schedule.items:
        if isinstance(item, LoopItem):
            _run_loop(item, memory, known, targets, tolerance)
            continue
        verify_kernel(item.kernel, after="create_schedule")
        slots = [memory[i] for i in item.buffers]
        before, after = _copies(slots), _copies(slots)
        evaluate_kernel(item.kernel, after, known)
        for number, target in enumerate(targets):
            orders = orders_of(number, targets, item.kernel.name)
            _check_program(item, target, orders, before, after, known, tolerance)
        evaluate_kernel(item.kernel, slots, known)


def _run_loop(
    item: LoopItem, memory: list[Array], known: Mapping[str, int], targets: Sequence[Target], tolerance: float
) -> None:
    steps = dim_value(item.steps, known)
    made: dict[int, Array] = {}  # by output of the body, what the last step stored
    for r in range(steps):
        before, made = made, {}
        inside: list[Array] = []
        arena = _bytes(item.body.arena_nbytes)
        for use in item.body.buffers:
            if use.role == "temporary":
                inside.append(_part(arena, use, use.source, known))
                continue
            if use.role != "input":
                inside.append(unspecified(Param(use.dtype, use.numel, "out"), known))
                if use.role == "output":
                    made[use.source] = inside[-1]
                continue
            feed = item.feeds[use.source]
            if feed.carried is not None and r > 0:
                inside.append(before[feed.carried])
            elif feed.is_row:
                row = steps - 1 - r if feed.reversed else r
                inside.append(memory[feed.buffer].reshape(steps, -1)[row].copy())
            else:
                inside.append(memory[feed.buffer])
        _run_items(item.body, inside, known, targets, tolerance)
        for i, result in enumerate(item.results):
            if result.buffer is not None and result.is_row:
                memory[result.buffer].reshape(steps, -1)[r] = made[i]
            elif result.buffer is not None and r == steps - 1:
                memory[result.buffer][:] = made[i]


def _memory_of(schedule: Schedule, arrays: Mapping[Op, Array], variables: Mapping[str, int]) -> list[Array]:
    """Returns an array for each buffer, all where the schedule says: an output over an input, a temporary in the arena."""
    arena = _bytes(schedule.arena_nbytes)
    inputs = [np.array(arrays[op], order="C").reshape(-1) for op in schedule.inputs]
    memory: list[Array] = []
    for use in schedule.buffers:
        if use.role == "input":
            memory.append(inputs[use.source])
        elif use.over is not None:
            memory.append(inputs[use.over])
        elif use.role == "temporary":
            memory.append(_part(arena, use, use.source, variables))
        else:
            memory.append(unspecified(Param(use.dtype, use.numel, "out"), variables))
    written = {use.source: memory[i] for i, use in enumerate(schedule.buffers) if use.role == "output"}
    for i, use in enumerate(schedule.buffers):
        if use.role == "lent":
            memory[i] = _part(written[use.source].view(np.uint8), use, 0, variables)
    return memory


def _bytes(count: int) -> Array:
    return np.full(count, 0x7F, np.uint8)


def _part(memory: Array, use: BufferUse, start: int, variables: Mapping[str, int]) -> Array:
    """Returns the part of some bytes that a buffer is."""
    part: Array = memory[start : start + dim_value(use.numel, variables) * use.dtype.itemsize].view(use.dtype.numpy)
    return part


def unspecified(param: Param, variables: Mapping[str, int]) -> Array:
    """Returns memory that nobody has written to: what reads it gives itself away."""
    memory: Array = np.zeros(dim_value(param.numel, variables), param.dtype.numpy)
    memory.view(np.uint8)[...] = 1 if param.dtype.kind == "b" else 0x7F
    return memory


def _copies(slots: Sequence[Array]) -> list[Array]:
    """Returns copies; what is one memory stays one."""
    copies = {id(slot): slot.copy() for slot in slots}
    return [copies[id(slot)] for slot in slots]


def orders_of(number: int, targets: Sequence[Target], kernel: str) -> tuple[Callable[[int], range], ...]:
    """Returns the orders of iterations in which the Program of one of several targets runs.

    On a GPU beside others, where an order takes as long as all CPUs, the kernel's name says which: of kernels with the
    same race some show it.
    """
    is_gpu, num_cpus = targets[number].is_gpu, sum(not target.is_gpu for target in targets)
    if num_cpus == (0 if is_gpu else 1):
        return (ByTurns(),)
    turn = crc32(kernel.encode()) if is_gpu else number
    return ((range, backwards)[turn % 2],)


def _check_program(
    item: ScheduleItem, target: Target, orders: Iterable[Callable[[int], range]], before: Sequence[Array],
    after: Sequence[Array], known: Mapping[str, int], tolerance: float,
) -> None:  # fmt: skip
    program = lower(item.kernel, target)
    verify_program(program, after="lower")
    for order in orders:
        memory: list[Array | None] = [*_copies(before)]
        memory += [None] * (len(program.params) - len(memory))
        evaluate_program(program, memory, known, order)
        for param, found, expected in zip(item.kernel.params, memory, after):
            if param.role in ("out", "inout"):
                assert found is not None
                problem = difference(found, expected, tolerance)
                where = f"width {target.vector_bytes}" if target.language == "llvm" else "GPU"
                name = getattr(order, "__name__", "by turns")
                assert problem is None, (
                    f"the Program of {item.kernel.name} ({where}, {name}): {problem}\n"
                    f"{format_kernel(item.kernel)}\n{format_program(program)}"
                )


def _check_order(schedule: Schedule) -> None:
    """What a kernel reads is an input or was written by an earlier kernel; only blocks are written one after the other."""
    written: set[int] = set()
    for item in schedule.items:
        if isinstance(item, LoopItem):
            for feed in item.feeds:
                assert feed.buffer in written or schedule.buffers[feed.buffer].role == "input", "a loop is too early"
            outs = {result.buffer for result in item.results if result.buffer is not None}
            assert not outs & written, "a loop writes a buffer again"
            written |= outs
            _check_order(item.body)
            continue
        for param, buffer in zip(item.kernel.params, item.buffers):
            if param.role == "in":
                assert buffer in written or schedule.buffers[buffer].role == "input", f"{item.kernel.name} is too early"
        outs = {b for p, b in zip(item.kernel.params, item.buffers) if p.role == "out"}
        assert not outs & written, f"{item.kernel.name} writes a buffer again"
        written |= outs | {b for p, b in zip(item.kernel.params, item.buffers) if p.role == "inout"}


def _compare(
    level: str, found: Sequence[Array], expected: Sequence[Array], tolerances: Sequence[float], roots: Sequence[Op]
) -> None:
    for i, (a, b, tolerance) in enumerate(zip(found, expected, tolerances)):
        problem = difference(a, b, tolerance)
        assert problem is None, f"{level}, root {i}: {problem}\n{format_graph(roots)}"


def difference(found: Array, expected: Array, tolerance: float) -> str | None:
    """Returns how `found` differs from `expected`, or None. NaN equals NaN, and 0.0 equals -0.0."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype} {found.shape} instead of {expected.dtype} {expected.shape}"
    if found.dtype.kind in "biu":
        wrong = found != expected
    else:
        a, b = found.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= tolerance))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ; first at {at}: {found[at]!r} instead of {expected[at]!r}"


def check_places(schedule: Schedule) -> None:
    """Temporaries that hold data in the same phase of a kernel do not overlap, nor does what an output holds."""
    lives: dict[int, tuple[int, int]] = {}
    moment = 0
    for item in schedule.items:
        if isinstance(item, LoopItem):
            check_places(item.body)
            used = [set(item.buffers)]
        else:
            used = [{item.buffers[slot] for slot in _slots(phase)} for phase in item.kernel.phases]
        for buffers in used:
            lives |= {i: (lives.get(i, (moment, 0))[0], moment) for i in buffers}
            moment += 1
    lives |= {i: (lives[i][0], moment) for i in schedule.outputs if i in lives}
    places = [(i, *_place(use)) for i, use in enumerate(schedule.buffers) if use.role != "input" and i in lives]
    for number, (i, space, start, end) in enumerate(places):
        for j, other, begin, stop in places[:number]:
            is_later = lives[i][1] < lives[j][0] or lives[j][1] < lives[i][0]
            is_apart = space != other or end <= begin or stop <= start
            assert is_later or is_apart, f"buffers {j} and {i} share memory at a time:\n{format_schedule(schedule)}"


def _slots(phase: Sequence[Nest]) -> set[int]:
    """Returns the slots that a phase of a kernel reads or writes."""
    values = [value for nest in phase for _, value in nest.outputs]
    read = {op.arg[0] for op in toposort(values) if op.code is OpCode.PARAM}
    return read | {slot for nest in phase for slot, _ in nest.outputs}


def _place(use: BufferUse) -> tuple[str, int, int]:
    """Returns where a temporary or an output is: arena or number of the output, first byte, and last."""
    nbytes = greatest(use.numel) * use.dtype.itemsize
    if use.role == "temporary":
        return "arena", use.source, use.source + nbytes
    return f"output {use.source}", 0, nbytes
