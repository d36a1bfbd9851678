"""The simulator's compiler: same text, a shared library."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from tempfile import gettempdir

import pytest

from picograd.compilers.host_compiler import compile_library
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import TARGET
from picograd.errors import CompileError
from picograd.ir.stages import Launch, Source
from tests.gpu_programs import elementwise


def test_program_becomes_a_shared_library() -> None:
    source = render(elementwise(), TARGET)
    binary = hostcxx.compile_source(source, TARGET)
    assert binary.data[:4] == b"\x7fELF" and b"exp_add_0_launch" in binary.data
    assert binary.launches == source.launches


def test_rejected_source_shows_the_line() -> None:
    text = '#include "primitives.h"\nextern "C" __global__ void written_0() {\n  const float32 v1 = hexp2(1.0f);\n}\n'
    with pytest.raises(CompileError) as caught:
        hostcxx.compile_source(Source("written", "cuda", text, (), (), (Launch("written_0", 1, 32, 1),)), TARGET)
    lines = caught.value.fact.splitlines()
    assert lines[0].endswith("rejected kernel written for sim.")
    assert lines[1].startswith("  written.cu:3: error: ") and "hexp2" in lines[1]
    assert lines[2] == "     3 |   const float32 v1 = hexp2(1.0f);"


def test_writing_an_input_is_rejected() -> None:
    text = (
        '#include "primitives.h"\nextern "C" __global__ void written_0(Global<const float32> p0) {\n  p0[0] = 1;\n}\n'
    )
    with pytest.raises(CompileError, match=r"written\.cu:3: error"):
        hostcxx.compile_source(Source("written", "cuda", text, (), (), (Launch("written_0", 1, 32, 1),)), TARGET)


def test_no_compiler_says_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    hostcxx.compiler.cache_clear()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError) as caught:
        hostcxx.compiler()
    hostcxx.compiler.cache_clear()
    assert caught.value.fact == "CUDASIM: needs a C++ compiler, and none of c++, g++, clang++ is on PATH."
    assert caught.value.hint == "PICOGRAD_DEVICE=CPU"


def test_a_compiler_that_says_nothing_is_told_with_its_status() -> None:
    source = Source("silent", "cuda", "", (), (), ())
    with pytest.raises(CompileError) as caught:
        compile_library(shutil.which("false") or "false", (), source, "sim", "cu", ())
    assert caught.value.fact == "false rejected kernel silent for sim.\n  it ended with status 1 and said nothing"


def test_a_full_disk_is_told_with_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CompileError) as caught:
        compile_library(hostcxx.compiler(), (), Source("large", "cuda", "", (), (), ()), "sim", "cu", ())
    assert caught.value.fact.endswith(f" cannot be given kernel large in {gettempdir()} (No space left on device).")
    assert caught.value.hint == "TMPDIR names another folder for what lives only while it compiles"
