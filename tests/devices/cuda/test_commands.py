"""Rows of calls, made by the native function that the CUDA device uses: here of functions of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from picograd.devices.compile_llvm import compile_source, host_target
from picograd.devices.cpu.device import linked
from picograd.devices.cuda import commands
from picograd.devices.cuda.commands import ALWAYS, ARGUMENTS_MAX, NEVER, ONCE, Caller, Commands, Row, bind_caller
from picograd.errors import DeviceError, OutOfMemoryError
from tests.fake_driver import TENSORS, run_on

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * ARGUMENTS_MAX)


@pytest.fixture(scope="module")
def caller() -> Caller:
    target = host_target()
    return bind_caller(linked(compile_source(commands.caller_source(), target)))


class Driver:
    """Functions that note their arguments and give a status; by name, as the driver's are."""

    def __init__(self) -> None:
        self.called: list[tuple[str, tuple[int, ...]]] = []
        self.status: dict[str, int] = {}
        self._functions: dict[str, Callable[..., int]] = {}

    def address_of(self, name: str) -> int:
        def function(*arguments: int) -> int:
            self.called.append((name, arguments))
            return self.status.get(name, 0)

        made = self._functions.setdefault(name, FUNCTION(function))
        return ctypes.cast(made, ctypes.c_void_p).value or 0  # type: ignore[arg-type]

    def names(self) -> str:
        """Returns what was called since the last question."""
        names = " ".join(name for name, _ in self.called)
        self.called.clear()
        return names


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(commands, "address_of", made.address_of)
    return made


def test_arguments_come_as_they_were_put_in(caller: Caller, driver: Driver) -> None:
    numbers = [(-1) ** i * (1 << 5 * i) for i in range(ARGUMENTS_MAX)]
    row = Row("cuFirst", *numbers)
    Commands(caller, [row])()
    row.set(3, 7)
    Commands(caller, [row])()
    assert driver.called == [("cuFirst", tuple(numbers)), ("cuFirst", (*numbers[:3], 7, *numbers[4:]))]


def test_what_is_due_once_is_called_until_it_has_succeeded(caller: Caller, driver: Driver) -> None:
    made = Commands(caller, [Row("cuA", due=ONCE), Row("cuB", due=NEVER), Row("cuC", due=ONCE), Row("cuD", due=ALWAYS)])
    driver.status["cuC"] = 1
    with pytest.raises(DeviceError, match=r"^CUDA: cuC failed with 1 \(CUDA_ERROR_INVALID_VALUE\)\."):
        made()
    assert driver.names() == "cuA cuC" and [row.is_due for row in made.rows] == [False, False, True, True]
    driver.status.clear()
    made()
    made()
    assert driver.names() == "cuC cuD cuD"
    made.rows[1].set_due(ONCE)
    made()
    assert driver.names() == "cuB cuD"


@pytest.mark.parametrize("status", [2, 600, 0x7FFFFFFF])
def test_the_row_that_failed_is_told_with_its_status(caller: Caller, driver: Driver, status: int) -> None:
    made = Commands(caller, [Row("cuA"), Row("cuB")])
    driver.status["cuB"] = status
    ended = made.ended()
    assert ended == made.last | status and "cuB" in str(made.failed(ended))
    assert isinstance(made.failed(ended), OutOfMemoryError) == (status == 2)


def test_nothing_to_call_is_right(caller: Caller) -> None:
    Commands(caller, [])()


@pytest.mark.req("E4")
def test_a_submission_is_one_call_of_the_native_function(fake_driver: Path) -> None:
    """Submissions of one kernel, and of a graph with other memory; one in eight asks the driver what is done."""
    code = TENSORS + """
from picograd.devices.cuda.commands import Commands
from tests.calls import calls
made, ended = [], Commands.ended
def counted(self):
    made.append([row.name for row in self.rows if row.is_due])
    return ended(self)
x = pg.Tensor(np.ones((8, 8), np.float32), device="CUDA").realize()
one, some = pg.jit(lambda x: x + 1), pg.jit(lambda x: (x.cumsum(0) + 1).cumsum(0))
for step in (one, some):
    for _ in range(32):
        kept = step(x)
    made.clear()
    Commands.ended = counted
    for _ in range(8):
        step(x)
    print(*[name for name in made[0] if name != "cuEventQuery"], len(made), sum("cuEventQuery" in each for each in made))
    Commands.ended = ended
    print(calls(lambda: step(x)) <= 22)  # functions of Python
"""
    before, after = "cuCtxSetCurrent", "cuEventRecord 8 1"
    assert run_on(fake_driver, code, FAKE_DRIVER_EAGER="0").splitlines() == [
        f"{before} cuLaunchKernel {after}", "True",
        f"{before} cuGraphExecKernelNodeSetParams cuGraphLaunch {after}", "True",
    ]  # fmt: skip
