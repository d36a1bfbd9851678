"""Machines whose GPU, driver or packages will not do: what is said of them, and what to do, before all else."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import picograd as pg
from picograd.devices.cuda import compile as nvrtc
from picograd.errors import CompileError
from tests.fake_driver import run_on

# What each device says of the machine, then what somebody is told who uses it anyway.
ASKED = """
import picograd as pg
from picograd.engine.devices import why_not
for name in ("CUDA", "PTX"):
    reason = why_not(name)
    print(name, reason, sep="|")
    try:
        pg.Tensor([1.0], device=name)
    except pg.DeviceError as error:
        assert error.fact in (reason, reason.removeprefix("CUDA: ")), error.fact
        assert str(error.line).startswith("<string>:"), error.line
        assert 'CPU' in error.usable and name not in error.usable
        print(type(error).__name__, error.hint, sep="|")
print(pg.cuda.is_available(), pg.cuda.device_count(), pg.cuda.is_bf16_supported())
pg.cuda.empty_cache()
"""
OLD = "sm_75 or newer is needed"
LISTS = "nvidia-smi lists the GPUs, and CUDA_VISIBLE_DEVICES hides"
UPDATE = "update the NVIDIA driver; until then PICOGRAD_DEVICE=CPU"


def told(reason: str, hint: str) -> list[str]:
    """Returns the lines for a machine on which both ways are closed."""
    return [f"CUDA|CUDA: {reason}", f"DeviceError|{hint}", f"PTX|PTX: {reason}", f"DeviceError|{hint}"]


MACHINES: list[tuple[dict[str, str], list[str]]] = [
    ({"FAKE_DRIVER_VERSION": "11040"}, told("the driver is made for CUDA 11.4 and older, and 12.0 is needed.", UPDATE)),
    ({"FAKE_DRIVER_DEVICES": "0"}, told("the driver knows no device.", LISTS)),
    ({"FAKE_DRIVER_LACKS": "cuInit"}, told("cuInit cannot be called: function cuInit is not found.", UPDATE)),
    (
        {"FAKE_DRIVER_ARCH": "70"},
        [
            "CUDA|nvrtc: NVRTC makes no code for sm_70, only for sm_75,",
            "DeviceError|install an older nvidia-cuda-nvrtc that still knows the GPU, or use PICOGRAD_DEVICE=CPU",
            f"PTX|PTX: the GPU is an sm_70; {OLD}.",
            "DeviceError|PICOGRAD_DEVICE=CPU",
        ],
    ),
    (
        {"FAKE_DRIVER_ARCH": "990"},
        [
            "CUDA|nvrtc: NVRTC makes no code for sm_990a, only for sm_75,",
            "DeviceError|install a newer nvidia-cuda-nvrtc, or use PICOGRAD_DEVICE=PTX, or use PICOGRAD_DEVICE=CPU",
            "PTX|None",
        ],
    ),
]


@pytest.mark.req("B6")
@pytest.mark.parametrize(("machine", "expected"), MACHINES, ids=lambda value: "" if isinstance(value, list) else str(value))
def test_a_gpu_that_cannot_be_used_is_not_there_and_says_why(
    fake_driver: Path, machine: dict[str, str], expected: list[str]
) -> None:
    said = run_on(fake_driver, ASKED, head="", **machine).splitlines()
    assert said[-1] == "False 0 False"
    assert len(said) == len(expected) + 1
    for line, start in zip(said, expected):
        assert re.sub(r"nvrtc: \d+\.\d+ ", "nvrtc: NVRTC ", line).startswith(start)


@pytest.mark.req("B6")
@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (100, LISTS),
        (46, "another process has the GPU for itself"),
        (803, "the driver was updated while it was loaded: restart the machine"),
        (34, "libcuda is the toolkit's stub"),
        (999, "nvidia-smi says whether the GPU answers"),
        (801, "PICOGRAD_DEVICE=CPU, or NUMPY"),
        (9999, "pip install --upgrade cuda-bindings"),
    ],
)
def test_a_driver_that_does_not_start_says_what_to_do(fake_driver: Path, status: int, hint: str) -> None:
    code = f"import ctypes\nctypes.CDLL('libcuda.so.1').fake_driver_fail(b'cuInit', 1, {status})\n"
    code += "import picograd as pg\ntry:\n    pg.cuda.synchronize()\nexcept pg.DeviceError as error:\n    "
    code += "print(error.fact, error.hint, sep='|')"
    fact, _, said = run_on(fake_driver, code, head="").partition("|")
    assert fact.startswith("CUDA: cuInit failed with ") and str(status) in fact and said.startswith(hint)


# ---- NVRTC ----
def broken(what: str) -> Any:
    """Returns an import_module for a machine whose NVRTC, or whose packages, are not as they should be."""

    def refused(*arguments: object) -> Any:
        raise RuntimeError("nvrtc: libnvrtc.so.13 was not found")

    def found(name: str) -> Any:
        if what == "no packages":
            raise ImportError(f"No module named {name!r}")
        return SimpleNamespace() if what == "old packages" else SimpleNamespace(load_nvidia_dynamic_lib=refused)

    return found


@pytest.mark.req("B6")
@pytest.mark.parametrize("what", ["no packages", "old packages", "no library"])
def test_without_nvrtc_there_is_ptx(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._nvrtc.cache_clear()
    with monkeypatch.context() as patch, pytest.raises(CompileError, match="^nvrtc: cannot be loaded ") as caught:
        patch.setattr(nvrtc, "import_module", broken(what))
        nvrtc.check_architecture("sm_90a")
    nvrtc._nvrtc.cache_clear()
    assert caught.value.hint == 'pip install "picograd[cuda]"; PICOGRAD_DEVICE=PTX needs no NVRTC'


@pytest.mark.req("B6")
def test_every_status_of_nvrtc_is_checked() -> None:
    real = nvrtc._nvrtc()

    class Failing:
        nvrtcResult = real.nvrtcResult

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: (real.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY, None)

    for name in ("nvrtcVersion", "nvrtcGetSupportedArchs", "nvrtcCreateProgram", "nvrtcGetCUBINSize"):
        with pytest.raises(CompileError, match=f"^nvrtc: {name} failed with 1 .NVRTC_ERROR_OUT_OF_MEMORY.\\.\n"):
            nvrtc._checked(Failing(), name)
    text = Path(nvrtc.__file__).read_text()
    assert re.findall(r"nvrtc\.(nvrtc[A-Z]\w*)\(", text) == ["nvrtcDestroyProgram"]


def test_another_gpu_than_the_first_is_told_how_to_be_the_first() -> None:
    with pytest.raises(pg.DeviceError) as caught:
        pg.ones(1, device="cuda:1")
    assert caught.value.hint == "CUDA_VISIBLE_DEVICES=1 shows a process only that GPU, as number 0"
