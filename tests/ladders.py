"""Rungs of GPU ladders on the simulator: their counts, and whether a planted bug is found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module

import pytest

from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cudasim import compile as simulated
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.engine.devices import compiler_for
from picograd.errors import CompileError, DeviceError, VerifyError
from picograd.record import replace
from picograd_lab.ladder import gpu
from picograd_lab.ladder.gpu import Ladder, Rung
from picograd_lab.ladder.runnable import Runnable


def missing(*_: object) -> None:
    """Is NVRTC where it is not installed."""
    raise CompileError("nvrtc: cannot be loaded (gone).")


def ladder_of(name: str) -> Ladder:
    ladder: Ladder = import_module(f"picograd_lab.ladder.{name}").LADDER
    return ladder


def rung_of(ladder: Ladder, name: str) -> Rung:
    (rung,) = (rung for rung in ladder.rungs if rung.name == name)
    return rung


@cache
def counts_of_rung(name: str, rung: str, *values: int) -> dict[str, int]:
    """Returns the counts of a rung of a ladder at these lengths."""
    ladder = ladder_of(name)
    return counted(replace(ladder, rungs=(rung_of(ladder, rung),)), dict(zip(ladder.lengths, values, strict=True)))[rung]


def counted(ladder: Ladder, lengths: dict[str, int]) -> dict[str, dict[str, int]]:
    """Returns the counts of each rung of a ladder, as though NVRTC were not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "machine_code", missing)
        return {figure.name: figure.counts for figure in gpu.climb(ladder, lengths, compiler_for("CUDASIM"))}


def with_headers(text: str, headers: Sequence[str]) -> str:
    """Returns a rung's text with headers in the place of the lines that include them."""
    for header in headers:
        text = text.replace(f'#include "{header}"\n', (nvrtc.HEADERS / header).read_text())
    return text


def found_with_bug(
    ladder: Ladder, name: str, lengths: dict[str, int], pattern: str, becomes: str, headers: Sequence[str] = ()
) -> list[str]:
    """Returns what is said of a rung whose text is changed, once for each order that finds it; "" for a wrong result.

    Args:
      headers: those whose text may be changed, too
    """
    rung, found = rung_of(ladder, name), list[str]()
    source = ladder.source(rung, lengths)
    text, count = re.subn(pattern, becomes, with_headers(source.text, headers), count=1)
    assert count == 1, "the text has such a place"
    binary, given = simulated.compile_source(replace(source, text=text), TARGET), ladder.given(rung, lengths)
    for order in ORDERS:
        device = CudaSimDevice(order, seed=1)
        made = Runnable(device, device.load(binary), given)
        try:
            made.run()
            gpu.checked(ladder, rung, lengths, given, made.results())
        except DeviceError as error:
            found.append(str(error))
        except VerifyError:
            found.append("")
    return found
