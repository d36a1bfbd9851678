"""Names of devices."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

import picograd as pg
from picograd.devices.c import compile as hostc
from picograd.devices.cuda import backend as cuda
from picograd.devices.cudasim import compile as hostcxx
from picograd.engine import devices
from picograd.engine.devices import memory_of
from picograd.errors import DeviceError, PicogradError


def test_a_device_is_its_name() -> None:
    assert pg.device("cpu") == pg.device("CPU") == "cpu" == pg.device("cpu") == "CPU"
    assert pg.device("cuda:0") == "cuda:0" == pg.device("cuda", 0) == "cuda" and pg.device("cuda") != "cpu"
    assert {"CPU": 1}[pg.device("cpu")] == 1
    assert (pg.device("cuda:0").type, pg.device("cuda:0").index, pg.device("cpu").index) == ("cuda", 0, None)
    assert repr(pg.device("cpu")) == "device(type='cpu')" and f"{pg.device('cpu')}" == "CPU"
    for device in (pg.device("cuda:0"), pg.device(pg.device("cuda:0"))):
        for twin in (copy.deepcopy(device), pickle.loads(pickle.dumps(device))):
            assert repr(twin) == "device(type='cuda', index=0)"


def test_a_tensor_is_on_a_device(device: str) -> None:
    x = pg.ones(2, device=pg.device(device))
    assert x.device == device and x.device.type == device.lower() and isinstance(x.device, pg.device)
    assert x.to(x.device).cell is x.cell and type(x.cell.device) is str
    assert pg.zeros(2, device=x.device).device == x.device
    assert type(pg.rand(2, device=x.device).cell.device) is str
    assert memory_of(x.device) is memory_of(device)  # one pool of workers, one count of memory
    assert x.to(pg.tensor([1], device=x.device)).dtype == pg.int64


@pytest.mark.parametrize("name", ["numpy", "NUMPY", "numpy:0", "Numpy"])
def test_the_default_device_is_named_as_any_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", name)
    assert (pg.ones(2) + 1).device == "NUMPY" and (pg.ones(2) + pg.ones(2, device="numpy")).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "error", "fact"),
    [
        ((3,), pg.ArgumentError, 'device: needs a name such as "CPU", got 3.'),
        (("cuda:x",), pg.ArgumentError, 'device: needs a name such as "cuda" or "cuda:0", got \'cuda:x\', index None.'),
        (("cuda:0", 0), pg.ArgumentError, 'device: needs a name such as "cuda" or "cuda:0", got \'cuda:0\', index 0.'),
        (("cuda", 1), pg.DeviceError, "device: each process has one CUDA, number 0, got number 1."),
    ],
)
def test_what_is_no_device(arguments: tuple[object, ...], error: type[Exception], fact: str) -> None:
    with pytest.raises(error) as caught:
        pg.device(*arguments)  # type: ignore[arg-type]
    assert caught.value.fact == fact  # type: ignore[attr-defined]


# ---- PICOGRAD_DEVICE ----
@pytest.mark.parametrize(("text", "name"), [("cuda:0", "CUDA"), ("Numpy", "NUMPY"), ("cpu", "CPU"), ("", "CPU")])
def test_the_setting_is_read_as_a_device_is(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", text)
    assert pg.get_default_device() == name


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("cuda:1", "PICOGRAD_DEVICE=cuda:1: each process has one CUDA, number 0, got number 1."),
        ("cuda:x", 'PICOGRAD_DEVICE=cuda:x: needs a name such as "cuda" or "cuda:0", got \'cuda:x\', index None.'),
    ],
)
def test_a_setting_that_is_no_device_is_named(text: str, fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", text)
    with pytest.raises(PicogradError) as caught:
        pg.Tensor([1.0]).realize()
    assert (caught.value.fact, caught.value.hint) == (fact, "PICOGRAD_DEVICE=CPU")


# ---- a device that is not here ----
def in_block(name: str) -> pg.Tensor:
    with pg.device(name):
        return pg.zeros(2)


NAMING = {
    "a constant": lambda: pg.ones(2, device="cuda"),
    "data": lambda: pg.Tensor([1.0], device="cuda"),
    "numbers": lambda: pg.randn(2, device="cuda"),
    "a move": lambda: pg.Tensor([1.0]).to("cuda"),
    "a move by cuda": lambda: pg.Tensor([1.0]).cuda(),
    "a layer": lambda: pg.nn.Linear(2, 2, device="cuda"),
    "the default": lambda: pg.set_default_device("cuda"),
    "a block": lambda: in_block("cuda"),
}


@pytest.mark.req("B6")
@pytest.mark.parametrize("naming", NAMING.values(), ids=NAMING.keys())
def test_a_device_that_is_not_here_is_an_error_where_it_is_named(naming: Callable[[], object], no_gpu: None) -> None:
    with pytest.raises(DeviceError, match="usable here: CPU, .*NUMPY\n  hint: ") as caught:
        naming()
    assert caught.value.line is not None and caught.value.line.file == __file__
    assert {"CPU", "NUMPY"} <= {*caught.value.usable} and not {"CUDA", "NULL"} & {*caught.value.usable}
    assert pg.get_default_device() == "CPU"


@pytest.fixture
def no_compilers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = hostc.compiler, hostc.options, hostc.c_target, hostcxx.compiler
    with monkeypatch.context() as patch:
        for name in ("CC", "CXX"):
            patch.delenv(name, raising=False)
        patch.setenv("PATH", "")
        patch.setattr(devices, "_compilers", {})
        for each in kept:
            each.cache_clear()
        yield
    for each in kept:
        each.cache_clear()


@pytest.mark.req("B6")
@pytest.mark.parametrize("name", ["C", "CUDASIM"])
def test_a_device_without_its_compiler_is_not_here(name: str, no_compilers: None) -> None:
    with pytest.raises(DeviceError, match="usable here: CPU, .*NUMPY\n  hint: ") as caught:
        pg.zeros(2, device=name)
    assert caught.value.fact.startswith(f"{name}: needs a C") and "compiler, and none of " in caught.value.fact
    assert not {"C", "CUDASIM"} & {*caught.value.usable}


@pytest.mark.req("B6")
def test_a_module_stays_where_it_is(no_gpu: None) -> None:
    model = pg.nn.Sequential(pg.nn.Linear(2, 2), pg.nn.BatchNorm1d(2))
    with pytest.raises(DeviceError):
        model.to("cuda")
    assert all(each.device == "CPU" for each in [*model.parameters(), *model.buffers()])


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver, on a machine that has one, too."""

    def nothing() -> NoReturn:
        raise DeviceError("CUDA: the driver knows no device.", "PICOGRAD_DEVICE=CPU")

    monkeypatch.setattr(cuda, "capability", nothing)
    monkeypatch.delitem(devices._compilers, "CUDA", raising=False)


# ---- cuda(...), as programs for PyTorch call it ----
@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        (lambda x: x.cuda(1), "device: each process has one CUDA, number 0, got number 1."),
        (lambda x: x.cuda("cpu"), "cuda: needs a GPU, such as 0 or \"cuda:0\", got 'cpu'."),
        (lambda x: pg.nn.Linear(1, 1).cuda("cpu"), "cuda: needs a GPU, such as 0 or \"cuda:0\", got 'cpu'."),
        (lambda x: pg.nn.Linear(1, 1).to(0), "to: needs a device name or a dtype, got 0."),
    ],
)
def test_cuda_says_what_it_does_not_take(wrong: Callable[[pg.Tensor], object], fact: str) -> None:
    with pytest.raises(PicogradError) as caught:
        wrong(pg.Tensor([1.0]))
    assert caught.value.fact == fact
