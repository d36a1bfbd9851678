"""Events, memory and names as picograd.cuda gives them, on a driver that keeps its memory on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_driver import TENSORS, run_on


@pytest.mark.req("E4")
def test_events_are_moments_of_the_stream(fake_driver: Path) -> None:
    """On a driver whose work is done when somebody waits: an event has not come before. Events are used again."""
    code = TENSORS + """
x = pg.ones(1000, device="CUDA").contiguous().realize()
start, stop = pg.cuda.Event(enable_timing=True), pg.cuda.Event(enable_timing=True)
start.record()
y = (x * 3).realize()
stop.record()
had_come = stop.query()
milliseconds = start.elapsed_time(stop)
print(had_come, stop.query(), milliseconds >= 0, y.sum().item())
for _ in range(5):
    stop.record()
stop.synchronize()
del start, stop
print(len(device.queue.moments))
"""
    assert run_on(fake_driver, code).splitlines() == ["False True True 3000.0", "3"]  # the third was on its way


def test_cuda_takes_what_pytorchs_takes(fake_driver: Path) -> None:
    code = TENSORS + """
x, layer = pg.Tensor([1.0]), pg.nn.Linear(2, 2)
moved = (x.cuda(), x.cuda(0), x.cuda("cuda:0", non_blocking=True), x.cuda(device="cuda"))
print({str(each.device) for each in moved}, layer.cuda(0) is layer.cuda() is layer, layer.weight.device)
"""
    assert run_on(fake_driver, code).splitlines() == ["{'CUDA'} True CUDA"]


def test_what_the_driver_says_of_the_gpu(fake_driver: Path) -> None:
    code = TENSORS + """
x = pg.ones(1000, device="CUDA").contiguous().realize()
left, total = pg.cuda.mem_get_info()
pg.cuda.set_device(0)
print(pg.cuda.get_device_name(), 0 < left < total)
gpu = pg.cuda.get_device_properties()
print((gpu.major, gpu.minor) == pg.cuda.get_device_capability(), gpu.total_memory == total, gpu.multi_processor_count)
print(pg.cuda.memory_allocated() == x.nbytes < pg.cuda.memory_reserved())
try:
    pg.cuda.set_device(1)
except pg.DeviceError as error:
    print(error.fact)
"""
    said = run_on(fake_driver, code).splitlines()
    assert said == ["no GPU True", "True True 132", "True", "device: each process has one CUDA, number 0, got number 1."]
