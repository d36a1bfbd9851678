"""picograd.cuda: what is asked of a GPU, with and without one."""

from __future__ import annotations

import pytest

import picograd as pg
from picograd.errors import ArgumentError
from picograd_torch import cuda


def test_without_a_gpu_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_not", lambda name: "CUDA: the driver knows no device.")
    assert (pg.cuda.is_available(), pg.cuda.device_count(), pg.cuda.is_bf16_supported()) == (False, 0, False)
    pg.cuda.empty_cache()
    assert ("cuda" if pg.cuda.is_available() else "cpu") == "cpu"


def test_a_seed_is_that_of_every_device() -> None:
    pg.cuda.manual_seed(3)
    first = pg.rand(2).tolist()
    pg.manual_seed(3)
    assert pg.rand(2).tolist() == first


def test_there_is_one_gpu() -> None:
    with pytest.raises(pg.DeviceError) as caught:
        pg.cuda.memory_allocated(1)
    assert caught.value.fact == "device: each process has one CUDA, number 0, got number 1."


def test_another_device_has_no_answer_here() -> None:
    asked = ("get_device_name", "get_device_capability", "get_device_properties", "synchronize", "set_device")
    of_memory = ("memory_allocated", "max_memory_allocated", "memory_reserved", "mem_get_info", "reset_peak_memory_stats")
    for name in (*asked, *of_memory):
        with pytest.raises(ArgumentError) as caught:
            getattr(pg.cuda, name)("cpu")
        assert caught.value.fact == "cuda: needs a GPU, such as 0 or \"cuda:0\", got 'cpu'.", name


@pytest.mark.gpu
@pytest.mark.on("CUDA")
def test_what_a_gpu_says_of_itself() -> None:
    assert pg.cuda.device_count() == 1 and pg.cuda.current_device() == 0
    assert pg.cuda.get_device_capability() >= (7, 0)
    assert pg.Tensor(1.0, device="CUDA").get_device() == 0 and pg.Tensor(1.0, device="CPU").get_device() == -1
    before = pg.cuda.memory_allocated()
    x = pg.zeros(1000, device="cuda").contiguous().realize()
    pg.cuda.synchronize()
    assert pg.cuda.memory_allocated() - before >= x.nbytes
    assert x.device == pg.device("cuda:0") and x.device.type == "cuda"
    times = pg.cuda.kernel_times(lambda: (x + 1).realize())
    assert len(times) == 1 and all(0 < seconds < 1 for _, seconds in times)
    start, stop = pg.cuda.Event(enable_timing=True), pg.cuda.Event(enable_timing=True)
    start.record()
    (x * 2).realize()
    stop.record()
    assert 0 < start.elapsed_time(stop) < 1e3 and stop.query()
    left, total = pg.cuda.mem_get_info()
    gpu = pg.cuda.get_device_properties()
    assert 0 < left < total == gpu.total_memory and gpu.name == pg.cuda.get_device_name()
    assert pg.cuda.memory_reserved() >= pg.cuda.memory_allocated()


# ---- events ----
def test_an_event_that_cannot_tell_a_time_says_why() -> None:
    timed, plain = pg.cuda.Event(enable_timing=True), pg.cuda.Event()
    assert plain.query()
    plain.synchronize()
    with pytest.raises(ArgumentError, match="the first event has no time"):
        plain.elapsed_time(timed)
    with pytest.raises(ArgumentError, match="the first event was never recorded"):
        timed.elapsed_time(timed)
    with pytest.raises(ArgumentError, match="interprocess must be False"):
        pg.cuda.Event(interprocess=True)


def test_kernels_of_no_gpu_are_not_timed() -> None:
    if not pg.cuda.is_available():
        with pytest.raises(pg.DeviceError, match="CUDA"):
            pg.cuda.kernel_times(lambda: None)
