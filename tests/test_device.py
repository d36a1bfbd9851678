"""Names of devices."""

from __future__ import annotations

import copy
import pickle

import pytest

import picograd as pg
from picograd.engine.devices import memory_of


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
