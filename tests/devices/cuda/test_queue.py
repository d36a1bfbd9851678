"""What the CUDA device submits, on a driver whose two streams run as far apart as what they wait for allows.

With FAKE_DRIVER_EAGER=0 kernels run as soon as they are submitted and copies from the host when somebody waits for them;
with 1 it is the other way round; without it everything runs when it is waited for. A wait that is missing in the device's
code lets a copy overwrite what a kernel still reads, or a kernel read what has not come.
"""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from picograd.devices.cuda.memory import LARGE_SEGMENT_NBYTES, SMALL_SEGMENT_NBYTES, Memory, Pool
from tests.fake_driver import TENSORS, run_on
from tests.on_devices import train
from tests.test_interrupts import Work, interrupted
from tests.test_interrupts import silent_collections as silent_collections

MODES = pytest.mark.parametrize("eager", [{}, {"FAKE_DRIVER_EAGER": "0"}, {"FAKE_DRIVER_EAGER": "1"}], ids=str)


# ---- order ----
@pytest.mark.req("E4")
@pytest.mark.variants(every=3)
@MODES
def test_batches_come_while_steps_run(fake_driver: Path, eager: dict[str, str]) -> None:
    """The memory of a batch is that of one before: it may be filled when the step that read it is done, and not before."""
    code = TENSORS + """
weight = pg.Tensor(np.zeros((64, 4), np.float32), device="CUDA").realize()
@pg.jit
def step(weight, batch, scale):
    return weight + (batch * scale).cumsum(0)[-1].reshape(64, 4) * 0.5
rng, expected = np.random.default_rng(0), np.zeros((64, 4))
for number in range(12):
    batch = rng.integers(0, 9, (32, 256)).astype(np.float32)
    weight = step(weight, pg.Tensor(batch, device="CUDA"), pg.Tensor(np.float32(number % 3), device="CUDA"))
    expected += (batch * (number % 3)).sum(0).reshape(64, 4) * 0.5
    batch[:] = np.nan  # the host's memory is the caller's again
print(np.array_equal(weight.numpy(), expected))
"""
    assert run_on(fake_driver, code, **eager) == "True"


@pytest.mark.variants(every=3)
@MODES
def test_a_perceptron_trains_as_on_the_evaluator(fake_driver: Path, eager: dict[str, str]) -> None:
    code = TENSORS + "from tests.on_devices import train\nprint(*train('CUDA'))"
    losses = [float(word) for word in run_on(fake_driver, code, **eager).split()]
    np.testing.assert_allclose(losses, train("NUMPY"), rtol=1e-5)  # float32 sums in another order, over three steps


@pytest.mark.req("E4")
@pytest.mark.variants(every=3)
@MODES
def test_large_copies_go_through_the_ring_in_pieces(fake_driver: Path, eager: dict[str, str]) -> None:
    code = """
from picograd.devices.cuda.queue import RING_NBYTES
sent = np.arange(RING_NBYTES // 8 + 1000003)
memory, got = device.allocate(sent.nbytes), np.zeros_like(sent)
for turn in range(2):
    device.copy_in(memory, sent + turn)
    device.copy_out(memory, got)
    print(np.array_equal(got, sent + turn))
"""
    assert run_on(fake_driver, code, **eager).split() == ["True", "True"]


@pytest.mark.variants(every=3)
@MODES
def test_copies_within_the_gpu_keep_their_place(fake_driver: Path, eager: dict[str, str]) -> None:
    code = """
a, b, c = (device.allocate(8000) for _ in range(3))
x, got = np.arange(1000.0), np.zeros(1000)
device.copy_in(a, x); device.copy(c, a, 8000); device.copy(b, a, 8000); device.copy_in(a, -x)
device.copy_out(b, got); print(np.array_equal(got, x))
device.copy_out(a, got); print(np.array_equal(got, -x))
"""
    assert run_on(fake_driver, code, **eager).split() == ["True", "True"]


# ---- graphs ----
GRAPHS = TENSORS + """
import ctypes
launched = ctypes.CDLL("libcuda.so.1").fake_driver_graph_launches
"""


@pytest.mark.req("E4")
def test_a_plan_is_a_graph_from_its_second_run_on(fake_driver: Path) -> None:
    code = GRAPHS + """
for turn in range(4):
    x = np.random.default_rng(turn).integers(0, 9, (300, 7)).astype(np.float32)
    kept = pg.Tensor(x, device="CUDA")  # other memory each time
    y = (kept.cumsum(0) * 2).sort(0)[0].numpy()
    print(launched(), np.array_equal(y, np.sort(2 * x.cumsum(0), 0)))
"""
    assert run_on(fake_driver, code).splitlines() == ["0 True", "1 True", "2 True", "3 True"]


@pytest.mark.req("E4")
def test_what_the_driver_made_for_plans_it_has_back_when_they_are_gone(fake_driver: Path) -> None:
    """Graphs, loops of several lengths, functions of the host, code and memory; twice, for what the second time leaves."""
    code = GRAPHS + """
import gc
from picograd.engine import realize
library = ctypes.CDLL("libcuda.so.1")
def alive():
    GRAPHS, READY_GRAPHS, MODULES = 2, 3, 4
    return [library.fake_driver_alive(kind) for kind in (GRAPHS, READY_GRAPHS, MODULES)]
def program():
    x, n = pg.Tensor(np.ones((4, 3), np.float32), device="CUDA").realize(), pg.Variable("n", 1, 4)
    step = pg.jit(lambda x: (x * 2).cumsum(0) + (x + 1).cumsum(1))
    for turn in range(4):
        step(x)
        ((x.cumsum(0) * 2).sort(0)[0] + pg.linalg.inv(pg.eye(4, device="CUDA") * 2.0)[:, :3].cumsum(1)).numpy()
        for length in (2, 4):
            pg.scan(lambda total, row: (total + row.cumsum(0), total.cumsum(0)), x[0], x[: n.bind(length)])[1].numpy()
    print(alive()[0] == alive()[1] > 3, alive()[2] > 3)
for turn in range(2):
    program()
    realize._plans.clear()
    devices._compilers["CUDA"] = Compiler(
        device, Backend(render, hostcxx.compile_source, {"cuda": Given(source_of_given, hostcxx.compile_source)}))
    gc.collect()
    device.trim()
    left, total = device.memory_info()
    print(*alive(), device.memory.in_use, total - left)
"""
    assert run_on(fake_driver, code).splitlines() == ["True True", "0 0 0 0 0"] * 2


@pytest.mark.req("E4")
@pytest.mark.parametrize("is_held", [False, True], ids=["in the pool", "held"])
def test_a_driver_without_memory_for_a_graph_launches_kernel_by_kernel(fake_driver: Path, is_held: bool) -> None:
    """Memory that waits in the pool is given back first: then there is a graph."""
    code = GRAPHS + f"is_held = {is_held}" + """
step = pg.jit(lambda x: (x * 2).cumsum(0).cumsum(1).cumsum(0))
x = np.arange(12, dtype=np.float32).reshape(4, 3)
held, expected = pg.Tensor(x, device="CUDA").realize(), (2 * x).cumsum(0).cumsum(1).cumsum(0)
kept = [step(held)]
rest = [device.allocate(device.memory_info()[0] // 512 * 512)]
if not is_held:
    rest.clear()
print(device.memory_info()[0] < 512)
kept += [step(held) for turn in range(4)]
print(all(np.array_equal(each.numpy(), expected) for each in kept), launched())
"""
    assert run_on(fake_driver, code).splitlines() == ["True", f"True {0 if is_held else 4}"]


@pytest.mark.req("E4")
def test_room_for_a_graph_is_not_made_of_memory_that_the_run_has(fake_driver: Path) -> None:
    """A plan in two parts keeps what the first has computed where the graph of the second finds no memory."""
    code = GRAPHS + """
library = ctypes.CDLL("libcuda.so.1")
@pg.jit
def step(x):  # nothing but the arena is in the segment of large blocks
    large = (x.reshape(1, -1) * x.reshape(-1, 1)).cumsum(0)
    total = pg.linalg.inv(large[:2, :2] + pg.eye(2, device="CUDA")).sum()
    return (large * total).cumsum(1).cumsum(0).sum(0)
x = pg.Tensor(np.random.default_rng(0).integers(0, 3, 700).astype(np.float32), device="CUDA").realize()
first = step(x).numpy()
library.fake_driver_fail(b"cuGraphInstantiate", 2, 2)
print(np.array_equal(step(x).numpy(), first), library.fake_driver_fail(b"", 0, 0) <= 0)
print(np.array_equal(step(x).numpy(), first), launched())
"""
    assert run_on(fake_driver, code).splitlines() == ["True True", "True 4"]


@pytest.mark.req("E4")
@pytest.mark.variants(every=3)
@MODES
def test_launches_and_graphs_ask_for_large_shared_memory(fake_driver: Path, eager: dict[str, str]) -> None:
    """The driver refuses a launch that asks for more than its function was allowed."""
    code = GRAPHS + """
from picograd.nn import functional as F
asked_for, load_one = [], device.load
def load(binary):
    asked_for.extend(launch.shared_nbytes for launch in binary.launches)
    return load_one(binary)
device.load = load
for turn in range(3):
    q, k, v = (np.random.default_rng(3 * turn + i).standard_normal((1, 1, 17, 300), np.float32) for i in range(3))
    found = F.scaled_dot_product_attention(*(pg.Tensor(x, device="CUDA") for x in (q, k, v))).cumsum(-2).numpy()
    weights = np.exp(q @ k.swapaxes(-1, -2) / 300**0.5)
    print(np.allclose(found, (weights / weights.sum(-1, keepdims=True) @ v).cumsum(-2), atol=1e-5))
print(max(asked_for) > 48 * 1024, launched())
"""
    assert run_on(fake_driver, code, **eager).split() == ["True"] * 4 + ["2"]


@pytest.mark.req("E4")
def test_a_graph_follows_symbolic_lengths(fake_driver: Path) -> None:
    code = GRAPHS + """
n = pg.Variable("n", 0, 400)
x = np.arange(400, dtype=np.float32)
held = pg.Tensor(x, device="CUDA").realize()
for length in (5, 400, 1, 0, 399):
    found = (held[: n.bind(length)].cumsum(0) + 1).cumsum(0).numpy()
    print(np.array_equal(found, (x[:length].cumsum() + 1).cumsum()))
print(launched() > 0)
"""
    assert run_on(fake_driver, code).split() == ["True"] * 6


@pytest.mark.req("E4")
def test_a_graph_follows_the_places_of_temporaries(fake_driver: Path) -> None:
    code = GRAPHS + """
from picograd.devices import launches
launches.SPREAD_NBYTES_MAX = -1
n, x = pg.Variable("n", 0, 400), np.arange(400, dtype=np.float32) % 2
held = pg.Tensor(x, device="CUDA").realize()
for length in (5, 400, 1, 0, 399, 399, 5):
    found = ((held[: n.bind(length)].cumsum(0) + 1).sort(0)[0].cumsum(0) + 1).sort(0)[0].numpy()
    print(np.array_equal(found, np.sort(x[:length].cumsum() + 1).cumsum() + 1))
print(launched() > 0)
"""
    assert run_on(fake_driver, code).split() == ["True"] * 8


def test_plans_share_an_arena_that_grows(fake_driver: Path) -> None:
    code = GRAPHS + """
def twice(n):
    x = np.random.default_rng(n).integers(0, 9, (n, 16)).astype(np.float32)
    found = (pg.Tensor(x, device="CUDA").cumsum(0) + 1).sort(0)[0].cumsum(0).numpy()
    return np.array_equal(found, np.sort(x.cumsum(0) + 1, 0).cumsum(0))
print([twice(n) for n in (100, 100, 1200, 100, 1200, 100, 1200)])
held = device.memory.in_use
device.trim()
print(twice(100), twice(1200), device.memory.in_use == held)
"""
    assert run_on(fake_driver, code).splitlines() == [str([True] * 7), "True True True"]


@pytest.mark.req("E4")
def test_reports_of_checks_come_from_graphs_too(fake_driver: Path) -> None:
    code = GRAPHS + """
table = pg.Tensor(np.arange(10.0, dtype=np.float32), device="CUDA")
for indices in ([1, 2], [3, 4], [5, 11], [6, 7]):
    try:
        print((table.cumsum(0)[pg.Tensor(indices, device="CUDA")] + 1).cumsum(0).tolist())
    except pg.IndexingError as error:
        print("11" in error.fact)
"""
    assert run_on(fake_driver, code).splitlines() == ["[2.0, 6.0]", "[7.0, 18.0]", "True", "[22.0, 51.0]"]


@pytest.mark.variants(every=3)
@MODES
def test_functions_of_the_host_are_called_between_kernels(fake_driver: Path, eager: dict[str, str]) -> None:
    code = GRAPHS + """
for turn in range(3):
    x = np.random.default_rng(turn).standard_normal((5, 6, 6)).astype(np.float32)
    given = pg.Tensor(x, device="CUDA")
    found = (pg.linalg.inv(given.cumsum(1) * 2) @ given.sort(2)[0]).cumsum(0)
    expected = (np.linalg.inv(x.astype(np.float64).cumsum(1) * 2) @ np.sort(x, 2)).cumsum(0)
    print(np.abs(found.numpy() - expected).max() < 1e-3 * np.abs(expected).max())
try:
    pg.linalg.inv(pg.zeros(2, 3, 3, device="CUDA") * 2).sum().numpy()
except pg.LinAlgError as error:
    print(error.fact)
"""
    assert run_on(fake_driver, code, **eager).splitlines() == ["True", "True", "True", SINGULAR]


SINGULAR = "linalg.inv: matrix 0 of a stack of 2 is singular."


# ---- interruption, processes ----
def test_ctrl_c_ends_the_waiting_and_leaves_the_device_usable(fake_driver: Path) -> None:
    code = TENSORS + """
import os, signal
asked = device.queue.is_done
def interrupted(event):
    device.queue.is_done = asked
    os.kill(os.getpid(), signal.SIGINT)
    return False
x = pg.Tensor([1.0, 2.0], device="CUDA")
device.queue.is_done = interrupted
try:
    (x * 3).numpy()
except KeyboardInterrupt:
    print((x * 3).numpy())
"""
    assert run_on(fake_driver, code) == "[3. 6.]"


def test_ctrl_c_waits_until_all_kernels_that_write_over_state_are_submitted(fake_driver: Path) -> None:
    code = TENSORS + """
import pytest
from tests.on_devices import check_interrupt
device.queue.laps = []  # kernels are submitted one by one, where otherwise a graph is
with pytest.MonkeyPatch.context() as patch:
    check_interrupt("CUDA", type(device.queue), "launch", patch)
print("whole")
"""
    assert run_on(fake_driver, code) == "whole"


def test_a_run_that_finds_kernels_timed_once_it_has_the_queue_keeps_ctrl_c_waiting(fake_driver: Path) -> None:
    """Another thread had the queue, and began to time kernels."""
    code = TENSORS + """
import signal
from picograd.interrupts import held_back
state = pg.zeros(3, device="CUDA")
step = pg.jit(lambda: (state.add_(1), None)[1])
for turn in range(3):
    step()
class Lock:  # of another thread, until it is entered
    def __enter__(self):
        device.queue.laps = []
        return lock.__enter__()
    def __exit__(self, *error):
        return lock.__exit__(*error)
lock, launch, waits = device.queue.lock, device.queue.launch, []
device.queue.lock = Lock()
def look(name, row):
    waits.append(isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), held_back))
    launch(name, row)
device.queue.launch = look
step()
print(waits)
"""
    assert run_on(fake_driver, code) == "[True]"


def test_kernels_are_timed_until_no_submission_is_under_way(fake_driver: Path) -> None:
    code = TENSORS + """
import threading
failed, seen = threading.Event(), []
def submit(is_in):
    with device.queue.lock:
        is_in.set()
        failed.wait()
        for _ in range(20):
            seen.append(device.queue.laps is None)
            failed.clear(), failed.wait(0.005)
def work():
    is_in = threading.Event()
    thread.append(threading.Thread(target=submit, args=(is_in,)))
    thread[0].start()
    is_in.wait()
    failed.set()
    raise ArithmeticError
thread = []
try:
    device.kernel_times(work)
except ArithmeticError:
    thread[0].join()
    print(any(seen), device.queue.laps)
"""
    assert run_on(fake_driver, code) == "False None"


@pytest.mark.req("B6")
@pytest.mark.variants(every=3)
@MODES
@pytest.mark.parametrize("record", [1, 2], ids=["of the ring", "of the copy"])
def test_a_copy_that_nobody_noted_is_over_before_its_memory_is_used(
    fake_driver: Path, record: int, eager: dict[str, str]
) -> None:
    """The driver takes a copy from the host, and refuses to record an event behind it; its memory is free then."""
    code = TENSORS + f"record = {record}" + """
import ctypes
fail = ctypes.CDLL("libcuda.so.1").fake_driver_fail
x = pg.Tensor(np.arange(1000, dtype=np.float32), device="CUDA").realize()
expected = (x * 2).numpy()
for turn in range(3):
    fail(b"cuEventRecord", record, 800)
    try:
        pg.Tensor(np.full(1000, 7, np.float32), device="CUDA")
    except pg.DeviceError:
        pass
    assert fail(b"", 0, 0) <= 0
    y = (x * 2).realize()
    other = pg.Tensor(np.ones(10, np.float32), device="CUDA") + 1
    print(other.sum().item() == 20 and np.array_equal(y.numpy(), expected))
    del y
"""
    assert run_on(fake_driver, code, **eager).split() == ["True"] * 3


def test_what_an_interrupted_run_reports_is_not_told_of_the_next(fake_driver: Path) -> None:
    code = TENSORS + """
asked = device.queue.is_done
def interrupted(event):
    device.queue.is_done = asked
    raise KeyboardInterrupt
table = pg.Tensor(np.arange(10.0, dtype=np.float32), device="CUDA").realize()
def look_up(*indices):
    return (table.cumsum(0)[pg.Tensor(indices, device="CUDA")] + 1).tolist()
print(look_up(1, 2))
try:
    wrong = pg.Tensor([3, 11], device="CUDA").realize()
    pg.cuda.synchronize()
    device.queue.is_done = interrupted
    print((table.cumsum(0)[wrong] + 1).tolist())
except KeyboardInterrupt:
    print(look_up(3, 4))
try:
    look_up(5, 12)
except pg.IndexingError as error:
    print("12" in error.fact)
"""
    assert run_on(fake_driver, code).splitlines() == ["[2.0, 4.0]", "[7.0, 11.0]", "True"]


def test_a_forked_process_is_told(fake_driver: Path) -> None:
    code = """
import os
from picograd.errors import DeviceError
memory = device.allocate(8)
child = os.fork()
if child == 0:
    try:
        device.copy_out(memory, np.zeros(1))
    except DeviceError as error:
        os._exit(7 if "forked" in error.fact else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_on(fake_driver, code) == "7"


# ---- the pool, by itself ----
class Segments:
    """Stands for a driver with some bytes."""

    def __init__(self, nbytes: int) -> None:
        self.left, self.made, self.ticket = nbytes, dict[int, int](), 0

    def new(self, nbytes: int) -> int | None:
        if nbytes > self.left:
            return None
        self.left -= nbytes
        address = max((start + length for start, length in self.made.items()), default=1 << 20)
        self.made[address] = nbytes
        return address

    def drop(self, address: int) -> None:
        self.left += self.made.pop(address)

    def pool(self) -> Pool:
        return Pool(self.new, self.drop, lambda: self.ticket)


def test_blocks_never_overlap_and_all_come_back(rng: np.random.Generator) -> None:
    segments = Segments(1 << 30)
    pool, held = segments.pool(), list[Memory]()
    for _ in range(3000):
        if held and rng.random() < 0.48:
            held.pop(int(rng.integers(len(held))))
        else:
            nbytes = int(2 ** rng.uniform(0, 25))
            memory = pool.allocate(nbytes)
            if memory is None:
                held = held[::2]
            else:
                assert memory.nbytes == nbytes and memory.address % 256 == 0
                held.append(memory)
            del memory
        ends = sorted((memory.address, memory.address + memory.nbytes) for memory in held)
        assert all(end <= start for (_, end), (start, _) in zip(ends, ends[1:]))
        assert pool.count.in_use == sum(memory.nbytes for memory in held)
        for start, end in ends:
            assert any(at <= start and end <= at + length for at, length in segments.made.items())
    held.clear()
    pool.trim()
    assert not segments.made and pool.held == 0 and segments.left == 1 << 30


class Steps(Work):
    """Memory is let go and asked for again, of the same length and of another."""

    def __init__(self) -> None:
        self.segments = Segments(100 << 20)
        self.pool = self.segments.pool()

    def run(self) -> None:
        for nbytes in (4, 4, 4, 2 << 20, 2 << 20, 4) * 20:
            memory = self.pool.allocate(nbytes)
            del memory

    def check(self) -> None:
        assert self.pool.count.in_use == 0
        self.pool.trim()
        assert not self.segments.made and self.pool.held == 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_an_interrupt_at_any_instant_loses_no_block(silent_collections: None) -> None:
    assert interrupted(Steps(), tries=100, seed=1) == 100


def test_what_was_let_go_first_is_taken_again_where_it_has_the_length() -> None:
    segments = Segments(100 << 20)
    pool, wanted = segments.pool(), 4 << 20

    def taken(nbytes: int) -> Memory:
        memory = pool.allocate(nbytes)
        assert memory is not None
        return memory

    first, second, third = (taken(wanted) for _ in range(3))
    places, segments.ticket = (first.address, second.address), 7
    del first, second
    again = taken(wanted - 1)
    assert (again.address, again.nbytes, again.freed, again.born) == (places[0], wanted - 1, 7, 7)
    longer, last = taken(8 << 20).address, taken(wanted).address
    assert longer not in places and last == places[1]
    assert (pool.count.in_use, pool.count.peak) == (again.nbytes + third.nbytes, (16 << 20) - 1)


def test_blocks_are_split_and_merged() -> None:
    segments = Segments(100 << 20)
    pool = segments.pool()
    first, second, third = (pool.allocate(8 << 20) for _ in range(3))
    assert first and second and third and len(segments.made) == 1 and pool.held == LARGE_SEGMENT_NBYTES
    assert (second.address, third.address) == (first.address + (8 << 20), first.address + (16 << 20))
    start = first.address
    del first, third
    again = pool.allocate(16 << 20)  # the third and what was left behind it
    assert again and again.address == start + (16 << 20)
    del second, again
    whole = pool.allocate(LARGE_SEGMENT_NBYTES)
    assert whole and whole.address == start and len(segments.made) == 1


def test_little_ones_have_segments_of_their_own() -> None:
    segments = Segments(100 << 20)
    pool = segments.pool()
    kept = [pool.allocate(nbytes) for nbytes in (100, 30 << 20, 2000)]
    assert kept[0] and kept[2] and kept[2].address == kept[0].address + 512
    assert sorted(segments.made.values()) == [SMALL_SEGMENT_NBYTES, LARGE_SEGMENT_NBYTES]


def test_a_block_knows_the_last_submission_that_may_use_it() -> None:
    segments = Segments(100 << 20)
    pool = segments.pool()
    first, second = pool.allocate(4 << 20), pool.allocate(4 << 20)
    assert first and first.freed == 0
    segments.ticket = 3
    del first
    assert pool.allocate(1) is not None
    segments.ticket = 5
    again = pool.allocate(4 << 20)
    assert again and (again.freed, again.born) == (3, 5)
    del again, second
    both = pool.allocate(8 << 20)
    assert both and both.freed == 5


def test_a_driver_with_little_left_gives_what_is_needed() -> None:
    segments = Segments(5 << 20)
    pool = segments.pool()
    held = pool.allocate(3 << 20)
    assert held is not None and list(segments.made.values()) == [4 << 20]
    assert pool.allocate(3 << 20) is None
