"""The CUDA device: on a GPU where there is one (marked gpu), else on a driver that keeps its memory on the host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda import driver as cuda_driver
from picograd.devices.cuda.backend import make_device
from picograd.devices.cuda.device import CudaDevice
from picograd.devices.cuda.render import render
from picograd.engine.devices import reason_of
from picograd.errors import DeviceError
from picograd.ir.stages import Binary
from tests.fake_driver import TENSORS, run_on
from tests.gpu_programs import check_elementwise, check_matmul, check_row_sums, elementwise, matmul, row_sums
from tests.on_devices import on

ROOT = Path(__file__).resolve().parents[3]
NO_DRIVER = "CUDA: cuInit cannot be called: this machine has no NVIDIA driver (libcuda)."
on_gpu = on("CUDA")


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return make_device()


# ---- on a GPU ----
class TestOnGpu:
    pytestmark = on_gpu

    def test_target_names_the_architecture(self, device: CudaDevice) -> None:
        assert device.target.arch.startswith("sm_") and device.target.shared_bytes >= 48 * 1024

    def test_elementwise(self, device: CudaDevice) -> None:
        source = render(elementwise(), device.target)
        check_elementwise(device, device.load(nvrtc.compile_source(source, device.target)))

    def test_row_sums(self, device: CudaDevice) -> None:
        source = render(row_sums(7, 1000), device.target)
        check_row_sums(device, device.load(nvrtc.compile_source(source, device.target)), 7, 1000)

    def test_matmul(self, device: CudaDevice) -> None:
        source = render(matmul(256, 128, 64), device.target)
        check_matmul(device, device.load(nvrtc.compile_source(source, device.target)), 256, 128, 64)

    def test_memory_is_used_again(self, device: CudaDevice) -> None:
        first = device.allocate(1000)
        address = first.address
        del first
        assert device.allocate(1000).address == address

    def test_what_is_no_cubin_is_refused(self, device: CudaDevice) -> None:
        with pytest.raises(DeviceError, match="CUDA: kernel broken cannot be loaded: CUDA: cuModuleLoadData failed"):
            device.load(Binary("broken", b"\x7fELF no cubin" + bytes(64), (), (), ()))


# ---- without one ----
@pytest.mark.req("B6")
def test_no_gpu_says_what_failed_and_what_to_use_instead() -> None:
    reason = reason_of(cuda_driver.capability)
    if reason is None:
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError) as caught:
        make_device()
    assert caught.value.fact == reason
    assert reason == NO_DRIVER or reason.startswith("CUDA: cuInit failed with ")
    assert caught.value.hint == (
        "PICOGRAD_DEVICE=CPU, or NUMPY (the reference), or CUDASIM (the same CUDA C, simulated)"
    )


@pytest.mark.req("B6")
def test_driver_without_a_device_gives_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuInit", lambda flags: (driver.CUresult.CUDA_ERROR_NO_DEVICE,))
    assert reason_of(cuda_driver.capability) == "CUDA: cuInit failed with 100 (CUDA_ERROR_NO_DEVICE)."
    with pytest.raises(DeviceError, match=r"^CUDA: cuInit failed with 100 \(CUDA_ERROR_NO_DEVICE\)\.\n"):
        make_device()


def test_missing_bindings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    cuda_driver.driver.cache_clear()
    monkeypatch.setattr(cuda_driver, "import_module", missing)
    reason = reason_of(cuda_driver.capability)
    monkeypatch.undo()
    cuda_driver.driver.cache_clear()
    assert reason == "CUDA: cuda-bindings cannot be imported (No module named 'cuda.bindings.driver')."


# ---- on the fake driver ----
def test_launches_reach_the_driver(fake_driver: Path) -> None:
    code = """
capability()
check_elementwise(device, load(elementwise()))
check_row_sums(device, load(row_sums(3, 100)), 3, 100)
check_matmul(device, load(matmul(64, 16, 32)), 64, 16, 32)
print(device.target.arch, device.target.block_threads, device.target.shared_bytes)
"""
    assert run_on(fake_driver, code) == "sm_90a 256 232448"


@pytest.mark.req("E4")
def test_work_is_timed_by_events(fake_driver: Path) -> None:
    code = """
import time
executable = load(row_sums(64, 4096))
x, y = np.ones((64, 4096), np.float32), np.zeros(64, np.float32)
start = time.perf_counter()
by_events = device.timed(lambda: run(device, executable, [x, y]))
print(0 < by_events <= time.perf_counter() - start, y[0])
"""
    assert run_on(fake_driver, code) == "True 4096.0"


@pytest.mark.req("E4")
def test_each_kernel_is_timed_by_events(fake_driver: Path) -> None:
    """One by one, though the plan is a graph by then; afterwards it is one again, with the memory of that run."""
    code = TENSORS + """
step = pg.jit(lambda x: ((x @ x).relu(), x.sum(0)))
x = pg.ones(8, 8).contiguous().realize()
for _ in range(3):
    before = step(x)
times = pg.cuda.kernel_times(lambda: step(x + 1))
after = step(x)
print(len(times) >= 2, any(name.startswith("matmul") for name, _ in times), all(seconds > 0 for _, seconds in times))
print(*[(a == b).all().item() for a, b in zip(before, after)], len(pg.cuda.kernel_times(lambda: None)))
"""
    assert run_on(fake_driver, code, PICOGRAD_DEVICE="CUDA").splitlines() == ["True True True", "True True 0"]


@pytest.mark.parametrize("timer", ["pg.cuda.kernel_times", "device.timed"])
def test_what_is_timed_may_wait_for_a_thread_that_uses_the_gpu(fake_driver: Path, timer: str) -> None:
    """As a step waits for one that brings its batch."""
    code = TENSORS + f"timed = {timer}" + """
import threading
step = pg.jit(lambda x: (x * 2).sum())
def work():
    brought = []
    loader = threading.Thread(target=lambda: brought.append(pg.Tensor(np.ones(4, np.float32), device="CUDA").realize()))
    loader.start()
    loader.join(20)
    print(step(brought[0]).item())
timed(work)
"""
    assert run_on(fake_driver, code) == "8.0"


def test_phases_and_scratch_memory(fake_driver: Path) -> None:
    """Two launches of one kernel, the second reads the scratch memory the first wrote."""
    code = """
first, second = Body(), Body()
grid = loop_range(0, AxisKind.GRID, 8)
first.store(param(2, 8), grid, first.let(OpCode.ADD, first.load(param(0, 8), grid), const(1, F32), dtype=F32))
second.store(param(1, 8), grid, second.let(OpCode.MUL, *[second.load(param(2, 8), grid)] * 2, dtype=F32))
params = Param(F32, 8, "in"), Param(F32, 8, "out"), Param(F32, 8, "scratch")
executable = load(Program("squares", params, (), ((For(grid, first.done()),), (For(grid, second.done()),))))
x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
run(device, executable, [x, y])
print(y.tolist())
"""
    assert run_on(fake_driver, code) == str([float((i + 1) ** 2) for i in range(8)])


def test_memory_returns_to_the_pool_and_to_the_driver(fake_driver: Path) -> None:
    code = """
first = device.allocate(1000); address = first.address; del first
again = device.allocate(900)
assert again.address == address and again.nbytes == 900
other = device.allocate(1000)
assert other.address != address
assert (device.memory.in_use, device.memory.peak) == (1900, 1900)
large = [device.allocate(20 << 20) for _ in range(2)]
del large
print(device.allocate(50 << 20).nbytes >> 20)  # fits only once the pool has given the two back
"""
    assert run_on(fake_driver, code) == "50"


@pytest.mark.req("B6")
def test_out_of_memory_says_who_holds_it(fake_driver: Path) -> None:
    code = """
import os
os.environ["PICOGRAD_DEVICE"] = "CUDA"
import picograd as pg
kept = [pg.Tensor(np.zeros(n, np.float32)).realize() for n in (1 << 20, 3 << 20, 256, 128, 64, 32)]
try:
    pg.Tensor(np.zeros((100, 1 << 18), np.float32)).realize()
except pg.OutOfMemoryError as error:
    print(error)
"""
    # The process has two devices, this file's and picograd's, each with segments of its own.
    said = re.sub(r"<string>:\d+", "LINE", run_on(fake_driver, code))
    assert said.splitlines() == [
        "CUDA: cannot allocate 100.0 MiB: 30.0 MiB of 64.0 MiB are free, picograd holds 34.0 MiB; "
        "the largest of its values:",
        "    12.0 MiB float32 (3145728,) made at LINE",
        "    4.0 MiB float32 (1048576,) made at LINE",
        "    1.0 KiB float32 (256,) made at LINE",
        "    512 B float32 (128,) made at LINE",
        "    2 others with 384 B.",
        "  at LINE",
        "  hint: release tensors, use smaller batches, or recompute values with pg.checkpoint",
    ]


@pytest.mark.req("B6")
def test_failed_kernel_is_told_at_the_next_copy(fake_driver: Path) -> None:
    """Thread 1000 reads past the segment: memory is a part of 2 MiB."""
    code = """
from picograd.errors import DeviceError
executable = load(elementwise())
x = np.ones(100, np.float32)
for _ in range(2):
    try:
        run(device, executable, [x, x[:1].copy(), np.zeros(100, np.float32)], {"n": 1 << 20})
    except DeviceError as error:
        print(error.fact, error.hint, sep="\\n")
"""
    told = (
        "CUDA: {} failed with 700 (CUDA_ERROR_ILLEGAL_ADDRESS): a kernel before it did.\n"
        "this process can no longer use the GPU: start it again; PICOGRAD_DEVICE=CUDASIM names the faulty access\n"
    )
    assert run_on(fake_driver, code) + "\n" == told.format("cuEventQuery") + told.format("cuStreamQuery")


def test_function_that_a_binary_lacks_is_an_error(fake_driver: Path) -> None:
    code = """
from picograd.record import replace
from picograd.errors import DeviceError
binary = hostcxx.compile_source(render(elementwise(), device.target), device.target)
try:
    device.load(replace(binary, launches=(replace(binary.launches[0], symbol="other_0"),)))
except DeviceError as error:
    print(error.fact)
"""
    assert run_on(fake_driver, code) == (
        "CUDA: kernel exp_add cannot be loaded: CUDA: cuModuleGetFunction failed with 500 (CUDA_ERROR_NOT_FOUND). "
        "The driver is made for CUDA 13.0 and older."
    )


def test_ptx_is_loaded_by_the_same_device(fake_driver: Path) -> None:
    code = """
from picograd.record import replace
from picograd.devices.ptx.compile import compile_source
from picograd.devices.ptx import backend as ptx
from picograd.errors import DeviceError
made = ptx.make_compiler()
ptx.check_usable()
assert made.device.name == "PTX"
target = made.device.target
print(target.arch, target.features, target.language, target.block_threads, target.shared_bytes)
binary = compile_source(made.backend.render(row_sums(3, 100), target), target)
executable = made.device.load(binary)
print(executable.name, len(executable.functions), executable.launches == binary.launches)
for broken in (replace(binary, data=b"no text of PTX\\0"), replace(binary, data=binary.data.replace(b".entry", b".func"))):
    try:
        made.device.load(broken)
    except DeviceError as error:
        print(error.fact)
"""
    assert run_on(fake_driver, code).splitlines() == [
        "sm_90 +ptx78 nvptx 256 232448",
        "row_sums_3_100 1 True",
        "PTX: kernel row_sums_3_100 cannot be loaded: CUDA: cuModuleLoadDataEx failed with 218 (CUDA_ERROR_INVALID_PTX). "
        'Its compiler says "ptxas application ptx input, line 1; fatal   : no version". '
        "The driver is made for CUDA 13.0 and older.",
        "PTX: kernel row_sums_3_100 cannot be loaded: CUDA: cuModuleGetFunction failed with 500 (CUDA_ERROR_NOT_FOUND). "
        "The driver is made for CUDA 13.0 and older.",
    ]


def test_nothing_is_loaded_by_importing_the_device() -> None:
    code = "import sys, picograd.devices.cuda.device, picograd.devices.cuda.compile; print('cuda.bindings' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_copies_of_nothing_need_no_driver_call(fake_driver: Path) -> None:
    code = """
memory, empty = device.allocate(0), np.zeros(0, np.float32)
device.copy_in(memory, empty); device.copy_out(memory, empty)
print(memory.nbytes)
"""
    assert run_on(fake_driver, code) == "0"


def test_code_is_kept_by_the_version_of_its_compiler(fake_driver: Path) -> None:
    """Who puts in an older NVRTC since the driver takes no newer code gets code of that one, not what the disk keeps."""
    code = """
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda import backend as cuda
from picograd.engine.cache import entry_name
from picograd.devices.cuda.device import target_of
target = cuda.make_compiler().device.target
print(target.arch, target.compiler == "nvrtc {}.{}".format(*nvrtc.version()))
names = {entry_name("a kernel", each) for each in (target, target_of(cuda.capability(), "nvrtc 12.9"))}
print(len(names))
"""
    assert run_on(fake_driver, code).splitlines() == ["sm_90a True", "2"]


def test_a_gpu_without_nvrtc_is_told_of_before_it_is_used(fake_driver: Path) -> None:
    code = """
from picograd.devices.cuda import compile as nvrtc
from picograd.engine.devices import why_not
print(why_not("CUDA"))
def missing(name):
    raise ImportError(f"No module named '{name}'")
nvrtc._nvrtc.cache_clear()
nvrtc.import_module = missing
print(why_not("CUDA"), why_not("PTX"))
"""
    missing = "nvrtc: cannot be loaded (No module named 'cuda.bindings.nvrtc')."
    assert run_on(fake_driver, code).splitlines() == ["None", f"{missing} None"]


def test_code_is_unloaded_when_none_of_it_runs(fake_driver: Path) -> None:
    """It is let go in a thread that has no context, while its kernel still waits; the driver here takes neither."""
    code = """
import threading
from picograd.devices.cuda import driver
called, call = [], driver.call
driver.call = lambda name, *arguments: (called.append(name), call(name, *arguments))[1]
held = [load(elementwise())]
x, y = (device.allocate(400) for _ in range(2))
device.copy_in(x, np.ones(100, np.float32))
device.copy(y, x, 400)
thread = threading.Thread(target=held.clear)
thread.start(); thread.join()
print(called.count("cuModuleUnload"))
other = load(row_sums(3, 100))
print(called.count("cuModuleUnload"), called.index("cuModuleUnload") < len(called) - called[::-1].index("cuModuleLoadData"))
"""
    assert run_on(fake_driver, code).splitlines() == ["0", "1 True"]


def test_code_that_is_dropped_while_others_are_waited_for_stays_loaded(fake_driver: Path) -> None:
    """Its kernels may have been submitted after what the wait is for."""
    code = """
from picograd.devices.cuda import driver
unloaded, call = [], driver.call
driver.call = lambda name, *arguments: (name == "cuModuleUnload" and unloaded.append(name), call(name, *arguments))[1]
first, second = [load(elementwise())], [load(row_sums(3, 100))]
first.clear()
device._code.unload(second.clear)
print(len(unloaded), len(device._code.modules))
device._code.unload(device.synchronize)
print(len(unloaded), len(device._code.modules))
"""
    assert run_on(fake_driver, code).splitlines() == ["1 1", "2 0"]
