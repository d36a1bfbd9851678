"""Object files in memory that they share: placed by us where they are plain, linked by LLVM where they are not."""

from __future__ import annotations

import ctypes
import errno
import gc
import platform
import sys

import pytest

from picograd.devices.compile_llvm import compile_source, host_target, processor_target
from picograd.devices.cpu import device
from picograd.devices.cpu.device import Placed, image_of, linked
from picograd.errors import DeviceError
from picograd.ir.stages import Binary, Launch, Source

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="other objects are linked by LLVM"
)
# Constants of several lengths, from sections of their own; a function of the object is called, too.
PLAIN = """
define double @inner(double %x) noinline { %y = fmul double %x, 3.25 ret double %y }
define double @plain_0(double %x) {
  %a = call double @inner(double %x)
  %v = fadd <4 x double> <double 1.0, double 2.0, double 3.0, double 4.5>, zeroinitializer
  %w = insertelement <4 x double> %v, double %a, i32 0
  %m = fmul <4 x double> %w, <double 0.5, double 0.25, double 0.125, double 2.0>
  %p = extractelement <4 x double> %m, i32 0
  %q = extractelement <4 x double> %m, i32 3
  %s = fadd double %p, %q
  ret double %s
}
"""
OUTSIDE = """
declare double @cos(double)
define double @plain_0(double %x) { %y = call double @cos(double %x) ret double %y }
"""
WRITABLE = """
@count = internal global double 1.0
define double @plain_0(double %x) {
  %old = load double, ptr @count
  %new = fadd double %old, %x
  store double %new, ptr @count
  ret double %new
}
"""


def compiled(text: str) -> Binary:
    return compile_source(Source("plain", "llvm", text, (), (), (Launch("plain_0", 1, 1, 1),)), host_target())


def call(address: int, x: float) -> float:
    return float(ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(x))


def test_code_and_its_constants_run_wherever_they_are_placed() -> None:
    made = [linked(compiled(PLAIN)) for _ in range(3)]
    assert all(type(executable.owner) is Placed for executable in made)
    assert [call(executable.functions[0], 2.0) for executable in made] == [2.0 * 3.25 * 0.5 + 9.0] * 3
    assert len({executable.functions[0] for executable in made}) == 3


@pytest.mark.parametrize(("text", "expected"), [(OUTSIDE, [1.0, 1.0]), (WRITABLE, [1.0, 1.0])])
def test_objects_with_more_in_them_are_linked_by_llvm(text: str, expected: list[float]) -> None:
    binary = compiled(text)
    assert image_of(binary.data) is None
    executable = linked(binary)
    assert [call(executable.functions[0], 0.0) for _ in range(2)] == expected


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-apple-darwin", "x86_64-pc-windows-msvc"])
def test_objects_of_other_formats_are_not_placed(triple: str) -> None:
    arch = "generic" if triple.startswith("aarch64") else "x86-64"
    source = Source("plain", "llvm", PLAIN, (), (), (Launch("plain_0", 1, 1, 1),))
    assert image_of(compile_source(source, processor_target(triple, arch, "")).data) is None


@pytest.mark.variants(first=1)
def test_what_dropped_code_took_is_used_again() -> None:
    binary = compiled(PLAIN)
    seen = set()
    for _ in range(50):
        executable = linked(binary)
        seen.add(executable.functions[0])
        del executable
        gc.collect()
    assert len(seen) == 1


def test_long_code_gets_memory_of_its_own() -> None:
    image = device.Image(b"\xc3" * (device.CHUNK_NBYTES + 1), {"f": device.CHUNK_NBYTES})
    with_room = device.place(image)
    ctypes.CFUNCTYPE(None)(with_room["f"])()


def test_a_system_that_lets_nobody_make_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EACCES, "mprotect")

    monkeypatch.setattr(device, "_protect", refuse)
    with pytest.raises(DeviceError) as caught:
        linked(compiled(PLAIN))
    assert caught.value.fact == "CPU: kernel plain cannot be loaded: Permission denied."
