"""Every status of the CUDA driver is checked: a call that fails, whichever it is, is an error that names it.

A program that uses the device in every way is run again and again, and each time another of its calls of the driver fails:
the first of that function, or the last. The next run finds the device as it was before, unless the device is lost.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fake_driver import TENSORS, run_on

ROOM = Path(__file__).resolve().parents[3] / "picograd" / "devices" / "cuda"
# The driver, which counts its calls and fails when it is told to; and a program, of which the first calls make graphs.
FAILING = TENSORS + """
import ctypes
import gc
import os
import sys
from collections import Counter
from picograd.engine import realize
from picograd.errors import DeviceError, OutOfMemoryError
from picograd.devices.cuda import commands
from picograd.devices.cuda import driver as cuda_driver
os.dup2(1, 2)  # what a finalizer prints is seen
library, real, calls = ctypes.CDLL("libcuda.so.1"), cuda_driver.driver(), Counter()
def fail(name, number, status):  # returns whether the failure asked for before has come
    return library.fake_driver_fail(name.encode(), number, status) <= 0

class Driver:
    def __getattr__(self, name):
        if name.startswith("cu"):
            calls[name] += 1
        return getattr(real, name)

counting = Driver()
cuda_driver.driver = lambda: counting
def ended(self, make_calls=commands.Commands.ended):  # which the native function makes
    calls.update(row.name for row in self.rows if row.is_due)
    return make_calls(self)
commands.Commands.ended = ended

def program():
    realize._plans.clear()  # everything is made anew, and nobody is told that it is
    realize._repeats = realize.Repeats()
    devices._compilers["CUDA"] = Compiler(device, Backend(render, hostcxx.compile_source))
    gc.collect()
    device.trim()
    weight, x = (pg.Tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device="CUDA") for _ in range(2))
    step = pg.jit(lambda weight, x: weight - 0.1 * (weight * x).cumsum(0))
    for _ in range(4):
        weight = step(weight, x)
    start, stop = (pg.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    seconds = device.timed(lambda: step(weight, x)) + sum(time for _, time in pg.cuda.kernel_times(lambda: step(weight, x)))
    stop.record()
    assert start.elapsed_time(stop) > 0 < seconds and pg.cuda.get_device_name() and pg.cuda.mem_get_info()
    n, sums = pg.Variable("n", 1, 4), []
    for length in (2, 4, 3):  # graphs, whose nodes are told another length, with a CHECK and a function of the host
        sums.append((weight[: n.bind(length)].cumsum(0)[pg.Tensor([1], device="CUDA")] + 1).cumsum(1).sum().item())
        sums.append(pg.linalg.inv(pg.eye(3, device="CUDA").cumsum(0) * length).sum().item())
    return weight.numpy().sum().item(), sums

def held():
    gc.collect()
    return device.memory.in_use
"""


def test_every_call_goes_by_way_of_a_check() -> None:
    """But for the questions whether something is done, and for what is given back when the device cannot be made."""
    text = "".join(path.read_text() for path in ROOM.glob("*.py"))
    assert re.findall(r"driver\(\)\.(cu[A-Z]\w*)\(", text) == []
    assert sorted(re.findall(r"\bask\(([^,)]*)", text)) == ['"cuDevicePrimaryCtxRelease"', "name", "name: str", "query"]


# What needs memory of the driver's is tried again once there is more.
TRIED_AGAIN = [
    "cuMemAlloc", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuGraphCreate", "cuGraphAddKernelNode",
    "cuGraphInstantiate",
]  # fmt: skip
# What the driver may say, and what is told of it.
STATUSES = [
    (800, "{} failed with 800 (CUDA_ERROR_NOT_PERMITTED)"),
    (2, "{} failed with 2 (CUDA_ERROR_OUT_OF_MEMORY)"),
    (9999, "{} failed with a status that cuda-bindings cannot name (9999 "),
]


@pytest.mark.variants(every=9)
@pytest.mark.req("B6")
@pytest.mark.parametrize("turn", range(9))
def test_a_call_that_fails_is_an_error_and_the_device_goes_on(fake_driver: Path, turn: int) -> None:
    """A third of the calls, each with one status; in nine turns all of them, each with all."""
    code = FAILING + f"TRIED_AGAIN, statuses, turn = {TRIED_AGAIN!r}, {STATUSES!r}, {turn}" + """
expected = program()
calls.clear()
assert program() == expected
before, counts = held(), dict(calls)
faults = [(name, number) for name, count in sorted(counts.items()) for number in sorted({1, count})]
gc.freeze()  # each program collects garbage
for place, (name, number) in enumerate(faults[turn % 3 :: 3]):
    status, told = statuses[(place + turn // 3) % len(statuses)]
    fail(name, number, status)
    try:
        found = program()
        has_failed = fail("", 0, 0)
        if found != expected:
            print("wrong:", name, number)
        if has_failed and (status != 2 or name not in TRIED_AGAIN):
            print("not told:", name, number)
    except (DeviceError, OutOfMemoryError) as error:
        if told.format(name) not in str(error) or "hint: " not in str(error) or "<string>:" not in str(error):
            print("said:", name, number, error)
        if isinstance(error, OutOfMemoryError) != (status == 2):
            print("raised:", name, number, type(error))
    fail("", 0, 0)
    if program() != expected or held() != before:
        print("after it:", name, number, program() == expected, held() - before)
print(*sorted(counts))
"""
    said = run_on(fake_driver, code).splitlines()
    assert said[:-1] == []
    assert len(said[-1].split()) >= 25


@pytest.mark.req("B6")
@pytest.mark.parametrize(
    ("status", "told"), [(1, "1 (CUDA_ERROR_INVALID_VALUE)."), (9999, "a status that cuda-bindings cannot name (9999 ")]
)
def test_a_map_that_the_driver_does_not_encode_is_told(fake_driver: Path, status: int, told: str) -> None:
    code = FAILING + f"status = {status}" + """
from picograd.ir.stages import TileMap
from picograd.devices.cuda.tile_maps import encode
memory, room = device.allocate(4096), np.zeros(256, np.uint8)
into = -(-room.ctypes.data // 64) * 64
for number in (1, 0):
    fail("cuTensorMapEncodeTiled", number, status)
    try:
        print(encode(TileMap(0, (16, 32), (8, 32)), pg.float32, memory.address, into))
    except DeviceError as error:
        print(error.fact)
"""
    failure, success = run_on(fake_driver, code).splitlines()
    assert failure.startswith(f"CUDA: cuTensorMapEncodeTiled failed with {told}") and success == "None"


@pytest.mark.req("B6")
def test_a_device_that_is_lost_says_so_ever_after_and_lets_the_process_end(fake_driver: Path) -> None:
    """Finalizers and the end of the process say nothing: what is printed would stand among what is told here."""
    code = FAILING + """
kept = pg.ones(4, device="CUDA").contiguous().realize(), pg.cuda.Event()
kept[1].record()
program()
calls.clear()
program()
for name, count in sorted(calls.items()):
    if name.startswith("cuDevice"):  # which is asked without the context
        continue
    child = os.fork()
    if child == 0:
        device.is_forked = False  # the driver here takes it
        fail(name, (count + 1) // 2, 719)
        asks = [program, lambda: kept[0].tolist(), lambda: (kept[0] + 1).tolist(), pg.cuda.synchronize, kept[1].synchronize]
        asks += [kept[1].query, pg.cuda.empty_cache, pg.cuda.mem_get_info, lambda: pg.Tensor([1.0], device="CUDA")]
        for ask in asks:
            try:
                ask()
                print("not told:", name, ask)
            except DeviceError as error:
                if "failed with 719 (CUDA_ERROR_LAUNCH_FAILED)" not in error.fact or "start it again" not in error.hint:
                    print("said:", name, error)
        del kept
        sys.exit(3)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 3:
        print("ended:", name)
print("all")
"""
    assert run_on(fake_driver, code) == "all"


@pytest.mark.req("B6")
def test_a_device_that_cannot_be_made_can_be_made_later(fake_driver: Path) -> None:
    code = FAILING + """
from picograd.devices.cuda import backend as cuda
devices._compilers.clear()
real.cuDevicePrimaryCtxRelease(0)  # of the device of this file
calls.clear()
STREAMS, EVENTS, CONTEXTS = 0, 1, 6
def alive():
    return [library.fake_driver_alive(kind) for kind in (STREAMS, EVENTS, CONTEXTS)]
cuda.make_compiler()
print(alive())
real.cuDevicePrimaryCtxRelease(0)
for name, count in sorted(calls.items()):
    for number in sorted({1, count}):
        fail(name, number, 46)
        try:
            pg.Tensor([1.0], device="CUDA")
            print("not told:", name, number)
        except DeviceError as error:
            if f"{name} failed with 46 (CUDA_ERROR_DEVICE_UNAVAILABLE)" not in str(error) or "nvidia-smi" not in error.hint:
                print("said:", name, number, error)
        if any(alive()):
            print("kept:", name, number, alive())
print(pg.Tensor([1.0], device="CUDA").tolist(), alive()[2])
"""
    assert run_on(fake_driver, code).splitlines() == ["[2, 1, 1]", "[1.0] 1"]


@pytest.mark.variants(first=1)
@pytest.mark.req("B6")
def test_nothing_leaks_in_ten_thousand_steps(fake_driver: Path) -> None:
    code = FAILING + """
from picograd.devices.cuda.queue import RING_NBYTES
from tests.test_steady_memory import RESIDENT_NBYTES, resident_nbytes

MAKE = {"cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuStreamCreate", "cuModuleLoadData", "cuGraphInstantiate"}
weight, x = (pg.Tensor(np.zeros((4, 3), np.float32), device="CUDA") for _ in range(2))
step = pg.jit(lambda weight, x: weight + x * 2 + weight.mean())
device.copy_in(device.allocate(RING_NBYTES), np.zeros(RING_NBYTES, np.uint8))  # all of the ring is in memory from now on
for number in range(10_600):
    if number == 600:
        before, resident = held(), resident_nbytes()
        calls.clear()
    weight = step(weight, pg.Tensor(np.full((4, 3), number % 3, np.float32), device="CUDA"))
    if number % 100 == 0:
        weight = weight.detach() * 0
made = {name: calls[name] for name in MAKE & set(calls)}
print(held() - before, made, resident_nbytes() - resident <= RESIDENT_NBYTES)
"""
    assert run_on(fake_driver, code) == "0 {} True"
