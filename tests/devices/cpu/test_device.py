"""The CPU device: memory, linking, and plans run by one thread or by several, interrupted, forked and shared."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from picograd.devices.compile_llvm import compile_source, host_target
from picograd.devices.cpu.memory import SLAB_BLOCK_NBYTES_MAX, MemoryPool, size_class
from picograd.devices.cpu.plan import LOOK_BACK, chunk_of, lay_out
from picograd.devices.cpu.render import render
from picograd.devices.cpu.walker import AFTER, CHUNK, COUNT
from picograd.devices.null.backend import NullDevice
from picograd.errors import DeviceError, OutOfMemoryError
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.stages import BufferUse, Executable, FixedMemory, Launch, Param, Program, Source
from picograd.ir.statements import For, Load, Store
from picograd.ir.symbolic import dim_value
from picograd.record import replace
from tests.cpu_programs import (
    F32,
    I64,
    Array,
    Body,
    array_of,
    buffer_of,
    device,
    loop_range,
    make_runner,
    one_phase,
    param,
    scale_add,
    schedule_of,
)  # fmt: skip

N = 1 << 18
PIECE = 512


def mix(name: str, factor: float, numel: int = N) -> Program:
    """out = a * factor + b, by pieces of 512 elements shared out among threads."""
    Body.count = 0
    outer, piece, inner = Body(), Body(), Body()
    block, i = loop_range(0, numel // PIECE, AxisKind.GRID), loop_range(1, PIECE // 16)
    start = piece.let(OpCode.MUL, block, PIECE)
    at = inner.let(OpCode.ADD, start, inner.let(OpCode.MUL, i, 16))
    a, b = (inner.load(param(slot, numel), at, lanes=16) for slot in (0, 1))
    scale = inner.let(OpCode.EXPAND, const(factor, F32), dtype=F32, arg=16, lanes=16)
    inner.store(param(2, numel), at, inner.let(OpCode.FMA, a, scale, b, dtype=F32, lanes=16))
    piece.loop(1, PIECE // 16, AxisKind.LOOP, inner)
    outer.loop(0, numel // PIECE, AxisKind.GRID, piece)
    return one_phase(name, [(F32, numel, "in"), (F32, numel, "in"), (F32, numel, "out")], outer)


def chain(steps: int) -> tuple[list[tuple[Program, tuple[int, ...]]], list[BufferUse], int]:
    """A plan in which each kernel reads the two before it; temporaries take turns in four places of the arena."""
    programs = [mix(f"step{k}", 0.5 + k % 3) for k in range(steps)]
    uses = [BufferUse(F32, N, "input", 0), BufferUse(F32, N, "input", 1)]
    uses += [BufferUse(F32, N, "temporary", 4 * N * (k % 4)) for k in range(steps - 1)]
    uses.append(BufferUse(F32, N, "output", 0))
    return [(p, (k, k + 1, k + 2)) for k, p in enumerate(programs)], uses, 16 * N


def expected_chain(x: Array, y: Array, steps: int) -> Array:
    values = [x.astype(np.float64), y.astype(np.float64)]
    for k in range(steps):
        values.append((values[-2] * (0.5 + k % 3) + values[-1]).astype(np.float32).astype(np.float64))
    return values[-1].astype(np.float32)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setenv("PICOGRAD_THREADS", str(count))


@pytest.fixture
def xy(rng: np.random.Generator) -> tuple[Array, Array]:
    # small integers: sums and products of six steps are exact, whatever rounds
    return tuple(rng.integers(-8, 8, N).astype(np.float32) for _ in range(2))  # type: ignore[return-value]


def run_chain(runner: Any, x: Array, y: Array) -> Array:
    out = buffer_of(np.zeros(N, np.float32), F32)
    runner([buffer_of(x, F32), buffer_of(y, F32)], [out], {})
    return array_of(out)


# ---- memory ----
@pytest.mark.parametrize("nbytes", [1, 64, 65, 1000, SLAB_BLOCK_NBYTES_MAX, SLAB_BLOCK_NBYTES_MAX + 1, 9 << 20])
def test_blocks_are_aligned_and_apart(nbytes: int) -> None:
    pool = MemoryPool()
    blocks = [pool.allocate(nbytes) for _ in range(5)]
    assert all(b.address % 64 == 0 for b in blocks)
    places = sorted(b.address for b in blocks)
    assert all(after - before >= nbytes for before, after in zip(places, places[1:]))


def test_freed_block_is_used_again() -> None:
    pool = MemoryPool()
    for nbytes in (100, 5 << 20):
        first = pool.allocate(nbytes)
        address = first.address
        del first
        assert pool.allocate(nbytes).address == address


def test_pool_counts_what_is_held_as_it_was_asked_for() -> None:
    pool = MemoryPool()
    held = [pool.allocate(nbytes) for nbytes in (1, 100, 3 << 20)]
    assert (pool.in_use, pool.peak, pool.kept) == (101 + (3 << 20), 101 + (3 << 20), 0)
    del held[2]
    assert (pool.in_use, pool.peak, pool.kept) == (101, 101 + (3 << 20), 3 << 20)
    pool.reset_peak()
    pool.allocate(50)
    assert (pool.in_use, pool.peak) == (101, 151)


def test_peak_does_not_count_what_died_before() -> None:
    pool = MemoryPool()
    for _ in range(10):
        pool.allocate(1000)
    assert pool.peak == 1000


def test_arena_goes_from_run_to_run_and_grows() -> None:
    pool = MemoryPool()
    first = pool.borrow_arena(1000)
    second = pool.borrow_arena(10)  # while another run has the first
    assert pool.in_use == 1010
    pool.return_arena(second)
    pool.return_arena(first)
    address = first.address
    del first, second
    again = pool.borrow_arena(500)
    assert (again.address, pool.in_use) == (address, 500)
    pool.return_arena(again)
    del again
    pool.reset_peak()
    pool.return_arena(pool.borrow_arena(5000))
    assert (pool.in_use, pool.peak) == (0, 5000)  # an arena counts while a run has it
    assert pool.kept == size_class(10) + size_class(1000) + size_class(5000)


def test_what_kernels_work_in_counts_apart() -> None:
    pool = MemoryPool()
    kept = pool.allocate(7)
    arena = pool.borrow_arena(1000, scratch=900)
    assert (pool.in_use, pool.peak, pool.peak_with_scratch) == (107, 107, 1007)
    more = pool.allocate(50)  # by another thread, while the run goes on
    assert (pool.in_use, pool.peak, pool.peak_with_scratch) == (157, 157, 1057)
    pool.reset_peak()
    assert (pool.peak, pool.peak_with_scratch) == (157, 1057)
    pool.return_arena(arena)
    del more
    pool.reset_peak()
    assert (pool.in_use, pool.peak, pool.peak_with_scratch) == (kept.nbytes,) * 3


def test_a_quarter_is_lost_at_most() -> None:
    for nbytes in range(257, 100_000, 97):
        assert nbytes <= size_class(nbytes) <= nbytes * 1.25 + 64
        assert size_class(nbytes) % 64 == 0


def test_too_much_memory_is_an_error_that_says_how_much() -> None:
    pool = MemoryPool()
    held = pool.allocate(1 << 30)
    with pytest.raises(OutOfMemoryError, match=r"CPU: cannot allocate 16384\.0 TiB: 1\.0 GiB are in use"):
        pool.allocate(1 << 54)
    assert held.nbytes == 1 << 30


def test_arrays_are_copied_in_and_out() -> None:
    values = np.arange(1000, dtype=np.int64)
    held = buffer_of(values, I64)
    values[:] = 0
    np.testing.assert_array_equal(array_of(held), np.arange(1000))


# ---- linking ----
def test_kernel_that_cannot_be_linked_is_named() -> None:
    text = "declare void @no_such_function()\ndefine void @lost_0(ptr %a, i64 %b, i64 %e) {\n"
    text += "  call void @no_such_function()\n  ret void\n}\n"
    source = Source("lost", "llvm", text, (), (), (Launch("lost_0", 1, 1, 1),))
    with pytest.raises(DeviceError, match="CPU: kernel lost cannot be linked: Failed to materialize symbols.*lost_0"):
        device().load(compile_source(source, host_target()))


# ---- plans ----
@pytest.mark.parametrize("steps", [1, 6])
def test_any_number_of_threads_gives_the_same_bits(
    steps: int, threads: Callable[[int], None], rng: np.random.Generator
) -> None:
    x, y = (rng.standard_normal(N).astype(np.float32) for _ in range(2))
    results = []
    for count in (1, 2, 3, 8):
        threads(count)
        runner = make_runner(*chain(steps))
        assert (runner._effort.helpers > 0) == (count > 1)
        results += [run_chain(runner, x, y).tobytes() for _ in range(5)]
    assert len(set(results)) == 1
    np.testing.assert_allclose(np.frombuffer(results[0], np.float32), expected_chain(x, y, steps), rtol=1e-5, atol=1e-3)


def test_many_runs_with_more_threads_than_processors(threads: Callable[[int], None], xy: tuple[Array, Array]) -> None:
    threads(4 * len(os.sched_getaffinity(0)))
    runner = make_runner(*chain(6))
    expected = expected_chain(*xy, 6)
    inputs, out = [buffer_of(v, F32) for v in xy], buffer_of(np.zeros(N, np.float32), F32)
    for _ in range(200):
        runner(inputs, [out], {})
        np.testing.assert_array_equal(array_of(out), expected)


def test_what_is_settled_is_looked_at_again_for_whoever_says_something_else() -> None:
    runner = make_runner(*chain(1))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(N).astype(np.float32) for _ in range(6)]
    buffers = [buffer_of(v, F32) for v in arrays]
    outs = [buffer_of(np.zeros(N, np.float32), F32) for _ in range(3)]
    one, other = FixedMemory((1,), ()), FixedMemory((1,), (0,))  # the first input stays, and for one the output, too
    both = FixedMemory((), (0,), (slice(0, 2),))
    runs = [(one, 0, 1, 0), (one, 0, 2, 0), (other, 3, 2, 1), (other, 3, 4, 2), (one, 0, 4, 0), (None, 5, 4, 1)]
    runs += [(both, 1, 3, 2), (both, 4, 2, 0)]
    for fixed, a, b, out in [*runs, *runs[::-1], runs[0], runs[1], runs[-1], runs[1]]:
        runner([buffers[a], buffers[b]], [outs[out]], {}, True, fixed)
        np.testing.assert_allclose(
            array_of(outs[out]), expected_chain(arrays[a], arrays[b], 1), rtol=1e-5, atol=1e-5
        )


def test_small_plan_wakes_nobody(threads: Callable[[int], None]) -> None:
    threads(4)
    uses = [BufferUse(F32, 20, "input", 0), BufferUse(F32, 20, "output", 0)]
    runner = make_runner([(scale_add(), (0, 1))], uses)
    assert runner._effort.helpers == 0


def test_a_plan_wakes_nobody_for_work_that_is_done_before_help_comes(threads: Callable[[int], None]) -> None:
    """One launch is long enough to be shared out, but shorter than the way of a thread that has to wake up."""
    threads(4)
    numel = N // 4
    uses = [BufferUse(F32, numel, "input", 0), BufferUse(F32, numel, "input", 1)]
    uses += [BufferUse(F32, numel, "temporary", 4 * numel * k) for k in range(3)] + [BufferUse(F32, numel, "output", 0)]

    def runner_of(steps: int) -> Any:
        items = [(mix(f"short{k}", 2.0, numel), (k, k + 1, k + 2 if k < steps - 1 else 5)) for k in range(steps)]
        return make_runner(items, uses, 12 * numel)

    few, many = runner_of(1), runner_of(4)
    entries = few._layout.entries
    assert (entries[:, CHUNK] < entries[:, COUNT]).all()
    assert (few._effort.helpers, few._effort.woken) == (3, 0)
    assert (many._effort.helpers, many._effort.woken) == (3, 2)


def test_many_python_threads_share_runners(threads: Callable[[int], None], xy: tuple[Array, Array]) -> None:
    threads(2)
    runners = [make_runner(*chain(6)) for _ in range(2)]
    expected, failures = expected_chain(*xy, 6), []

    def work(runner: Any) -> None:
        for _ in range(20):
            if not np.array_equal(run_chain(runner, *xy), expected):
                failures.append(runner)

    workers = [threading.Thread(target=work, args=(runners[k % 2],)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_symbolic_sizes_change_from_run_to_run(threads: Callable[[int], None]) -> None:
    threads(2)
    n = Op(OpCode.VARIABLE, I64, (), ("n", 0, 1 << 20))
    uses = [BufferUse(F32, 1 << 20, "input", 0), BufferUse(F32, 1 << 20, "output", 0)]
    runner = make_runner([(scale_add(8, n), (0, 1))], uses)
    x = np.arange(1 << 20, dtype=np.float32)
    source = buffer_of(x, F32)
    for numel in (5, 1 << 20, 0, 1000, 1000):
        out = buffer_of(np.zeros_like(x), F32)
        runner([source], [out], {"n": numel})
        result = array_of(out)
        np.testing.assert_array_equal(result[:numel], x[:numel] * 2 + 1)
        assert not result[numel:].any()


def test_scratch_of_a_kernel_is_its_own(xy: tuple[Array, Array]) -> None:
    """Two kernels whose scratch shares memory: the second waits for the first."""
    def with_scratch(name: str) -> Program:
        first, second = mix(name, 2.0), mix(name, 3.0)
        params = (*first.params, Param(F32, N, "scratch"))
        return Program(name, params, (), (_moved(first, 2, 3), _moved(second, 0, 3)))

    uses = [BufferUse(F32, N, "input", 0), BufferUse(F32, N, "input", 1)]
    uses += [BufferUse(F32, N, "output", k) for k in range(2)]
    runner = make_runner([(with_scratch("one"), (0, 1, 2)), (with_scratch("two"), (1, 0, 3))], uses)
    outs = [buffer_of(np.zeros(N, np.float32), F32) for _ in range(2)]
    runner([buffer_of(v, F32) for v in xy], outs, {})
    for (x, y), out in zip((xy, xy[::-1]), outs):
        np.testing.assert_array_equal(array_of(out), (x * 2 + y) * 3 + y)


def _moved(program: Program, slot: int, to: int) -> tuple[Any, ...]:
    """Returns the statements of a program's phase with one parameter replaced by another."""
    def move(statement: Any) -> Any:
        if isinstance(statement, For):
            return replace(statement, body=tuple(move(s) for s in statement.body))
        if isinstance(statement, Load | Store) and statement.memory.arg[0] == slot:
            return replace(statement, memory=param(to, N))
        return statement

    return tuple(move(s) for s in program.phases[0])


def test_child_of_a_fork_runs_plans_with_threads_of_its_own(
    threads: Callable[[int], None], xy: tuple[Array, Array]
) -> None:
    threads(2)
    runner = make_runner(*chain(6))
    expected = expected_chain(*xy, 6)
    run_chain(runner, *xy)
    with pytest.warns(DeprecationWarning) if _warns_of_fork() else _nothing():
        child = os.fork()
    if child == 0:
        good = all(np.array_equal(run_chain(runner, *xy), expected) for _ in range(20))
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(run_chain(runner, *xy), expected)


def _warns_of_fork() -> bool:
    return sys.version_info >= (3, 12)  # a fork of a process with threads


def _nothing() -> Any:
    return nullcontext()


def test_long_plan_can_be_interrupted(threads: Callable[[int], None]) -> None:
    """Ctrl-C ends a plan of seconds at the next piece, and the runner can run again."""
    threads(2)
    outer, piece, inner = Body(), Body(), Body()
    block = loop_range(0, 4000, AxisKind.GRID)
    value = inner.load(param(0, 4000), block)
    inner.store(param(0, 4000), block, inner.let(OpCode.ADD, value, const(1.0, F32), dtype=F32))
    piece.loop(1, 2_000_000, AxisKind.LOOP, inner)
    outer.loop(0, 4000, AxisKind.GRID, piece)
    program = one_phase("endless", [(F32, 4000, "out")], outer)
    runner = make_runner([(program, (0,))], [BufferUse(F32, 4000, "output", 0)])
    out = buffer_of(np.zeros(4000, np.float32), F32)
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        runner([], [out], {})
    assert 0 < np.count_nonzero(array_of(out)) < 4000
    assert runner._layout.state[2] == 0


# ---- the flat form ----
def entry_waits(uses: list[BufferUse], items: list[tuple[str, ...]], slots: list[tuple[int, ...]]) -> list[int]:
    """Returns for each kernel how many entries it waits for."""
    programs = [
        Program(f"k{i}", tuple(Param(F32, 16, role) for role in roles), (), ((),)) for i, roles in enumerate(items)
    ]
    executables = [Executable(p.name, p.params, (), (Launch(p.name, 1, 1, 1),), (1,)) for p in programs]
    layout = lay_out(schedule_of(list(zip(programs, slots)), uses, 0), executables, 0, 1)
    return [int(w) for w in layout.entries[:, AFTER]]


def test_kernels_wait_only_for_what_they_touch() -> None:
    uses = [BufferUse(F32, 16, "input", 0)] + [BufferUse(F32, 16, "temporary", 64 * k) for k in range(4)]
    roles = ("in", "out")
    assert entry_waits(uses, [roles] * 2, [(0, 1), (0, 2)]) == [0, 0]  # both only read the input
    assert entry_waits(uses, [roles] * 3, [(0, 1), (0, 2), (1, 3)]) == [0, 0, 1]  # reads what the first wrote
    assert entry_waits(uses, [roles] * 3, [(0, 1), (1, 2), (0, 1)]) == [0, 1, 2]  # writes what the second reads
    overlapping = [*uses[:2], BufferUse(F32, 16, "temporary", 32)]
    assert entry_waits(overlapping, [roles] * 2, [(0, 1), (0, 2)]) == [0, 1]  # the same bytes of the arena


def test_an_output_waits_for_the_readers_of_inputs() -> None:
    uses = [BufferUse(F32, 16, "input", 0), BufferUse(F32, 16, "temporary", 0), BufferUse(F32, 16, "output", 0)]
    assert entry_waits(uses, [("in", "out"), ("in", "out")], [(0, 1), (1, 2)]) == [0, 1]


def test_old_kernels_are_waited_for_without_looking() -> None:
    count = LOOK_BACK + 2
    uses = [BufferUse(F32, 16, "input", 0)] + [BufferUse(F32, 16, "temporary", 64 * k) for k in range(count)]
    waits = entry_waits(uses, [("in", "out")] * count, [(0, k + 1) for k in range(count)])
    assert waits == [0] * (LOOK_BACK + 1) + [1]


def test_chunks_share_what_is_worth_it() -> None:
    assert chunk_of(100, 10, 4) == 100  # too little work
    assert chunk_of(1, 1 << 30, 4) == 1
    assert chunk_of(1000, 1 << 10, 1) == 1000
    assert chunk_of(1600, 1 << 20, 4) == 100
    assert chunk_of(3, 1 << 20, 4) == 1
    assert chunk_of(0, 1 << 20, 4) == 1
    assert chunk_of(1000, 1 << 26, 1) == 4  # so that Ctrl-C does not wait long


def test_extent_of_a_grid_is_evaluated() -> None:
    n = Op(OpCode.VARIABLE, I64, (), ("n", 0, 100))
    blocks = Op(OpCode.IDIV, I64, (n + 15, const(16, I64)))
    assert [dim_value(blocks, {"n": v}) for v in (0, 1, 16, 17)] == [0, 1, 1, 2]


# ---- the device that never runs ----
def test_null_device_compiles_and_does_not_run() -> None:
    null = NullDevice(host_target())
    executable = null.load(compile_source(render(scale_add(), null.target), null.target))
    uses = [BufferUse(F32, 20, "input", 0), BufferUse(F32, 20, "output", 0)]
    memory = null.allocate(80)
    null.copy_in(memory, np.ones(20, np.float32))
    null.make_runner(schedule_of([(scale_add(), (0, 1))], uses, 0), [executable])([], [], {})
    result = np.ones(20, np.float32)
    null.copy_out(memory, result)
    assert (null.name, null.target.device, memory.nbytes) == ("NULL", "NULL", 80)
    assert not result.any()
