"""The device of new tensors: chosen for a block, for a thread, or by PICOGRAD_DEVICE."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import DeviceError


@pytest.fixture(autouse=True)
def nothing_chosen() -> Iterator[None]:
    yield
    pg.set_default_device(None)


MAKERS = {
    "data": lambda: Tensor([1.0, 2.0]),
    "constant": lambda: pg.zeros(2),
    "range": lambda: pg.arange(2),
    "random": lambda: pg.rand(2),
    "permutation": lambda: pg.randperm(2),
    "layer": lambda: pg.nn.Linear(2, 2).weight,
    "array": lambda: pg.tensor(np.ones(2)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_whatever_is_made_in_a_block_is_on_its_device(name: str) -> None:
    with pg.device("numpy") as chosen:
        made = MAKERS[name]()
        assert chosen == "NUMPY" and made.device == "NUMPY"
    made = made.detach()
    assert made.device == "NUMPY" and (made * 2).device == "NUMPY" and np.isfinite((made * 2).numpy()).all()
    assert MAKERS[name]().device == "CPU"


def test_a_block_inside_one_counts_and_ends() -> None:
    pg.set_default_device("numpy")
    with pg.device("cpu"), pg.device("null"):
        assert pg.get_default_device() == "NULL"
    assert pg.zeros(2).device == "NUMPY"


def test_a_choice_inside_a_block_lasts_until_its_end() -> None:
    with pg.device("numpy"):
        pg.set_default_device("cpu")
        assert pg.zeros(2).device == "CPU"
        pg.set_default_device(None)
        assert pg.zeros(2).device == "CPU"
    assert pg.get_default_device() == "CPU"


def test_the_attribute_is_the_same_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    pg.Device.default = "numpy"
    assert pg.Device.default == pg.get_default_device() == pg.ones(1).device == "NUMPY"
    assert {"CPU", "NUMPY"} <= {*pg.Device.usable} and "NULL" not in pg.Device.usable and "NUMPY" in repr(pg.Device)
    pg.Device.default = None
    monkeypatch.setenv("PICOGRAD_DEVICE", "null")
    assert pg.Device.default == "NULL"


def test_an_exception_ends_the_block() -> None:
    with pytest.raises(KeyError), pg.device("numpy"):
        raise KeyError
    assert pg.get_default_device() == "CPU"


def test_threads_choose_for_themselves() -> None:
    """One block object entered by two threads, which leave it in the order in which they entered."""
    block, entered, left = pg.device("numpy"), threading.Event(), threading.Event()
    found: list[str] = []

    def other() -> None:
        found.append(pg.get_default_device())
        with block:
            entered.set()
            left.wait(10)
            found.append(pg.get_default_device())
        found.append(pg.get_default_device())

    thread = threading.Thread(target=other)
    with block:
        thread.start()
        entered.wait(10)
    left.set()
    thread.join()
    assert found == ["CPU", "NUMPY", "CPU"] and pg.get_default_device() == "CPU"


def test_jit_traces_anew_for_another_default_device() -> None:
    calls = Mock()

    @pg.jit
    def made() -> Tensor:
        calls()
        return pg.rand(3) * 2

    for device in ("cpu", "numpy", "cpu", "numpy", "cpu"):
        with pg.device(device):
            assert made().device == device
    assert calls.call_count == 4


def test_a_network_is_made_and_trained_where_the_block_says() -> None:
    with pg.device("numpy"):
        model = pg.nn.Linear(3, 1)
        optimizer = pg.optim.Adam(model.parameters(), lr=0.1)
        x, y = pg.randn(8, 3), pg.ones(8, 1)
    losses = []
    for _ in range(3):  # outside: all that is made follows what it is made of
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and model.weight.grad is not None and model.weight.grad.device == "NUMPY"


def test_a_name_that_no_device_has() -> None:
    with pytest.raises(DeviceError, match="this is not a device"):
        pg.set_default_device("tpu")
    with pytest.raises(DeviceError, match="this is not a device"), pg.device("tpu"):
        pg.zeros(2)
    assert pg.get_default_device() == "CPU"
