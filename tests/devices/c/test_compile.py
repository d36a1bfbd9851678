"""The C compiler of this machine: a shared library, and what it rejects."""

from __future__ import annotations

import pytest

from picograd.devices.c import compile as hostc
from picograd.errors import CompileError
from picograd.ir.stages import Launch, Source
from tests.devices.c.test_render import PROGRAMS, render
from tests.on_devices import device_params

needs_compiler = pytest.mark.parametrize("device", device_params("C"))


@needs_compiler
def test_a_program_becomes_a_shared_library(device: str) -> None:
    target = hostc.c_target()
    source = render(PROGRAMS["functions"], target)
    binary = hostc.compile_source(source, target)
    assert binary.data[:4] == b"\x7fELF" and b"functions_0_words" in binary.data
    assert binary.launches == source.launches


@needs_compiler
def test_what_the_compiler_is_is_part_of_the_target(device: str) -> None:
    target = hostc.c_target()
    assert any(digit.isdigit() for digit in target.compiler) and target.vector_bytes == 1


@needs_compiler
def test_rejected_source_shows_the_line(device: str) -> None:
    text = '#include "primitives.h"\nvoid written_0(float32 *p0, int64 begin, int64 end) {\n  p0[0] = nothing;\n}\n'
    with pytest.raises(CompileError) as caught:
        hostc.compile_source(Source("written", "c", text, (), (), (Launch("written_0", 1, 1, 1),)), hostc.c_target())
    lines = caught.value.fact.splitlines()
    assert "rejected kernel written for " in lines[0]
    assert lines[1].startswith("  written.c:3: error: ") and "nothing" in lines[1]
    assert lines[2] == "     3 |   p0[0] = nothing;"


@needs_compiler
def test_a_compiler_that_compiles_nothing_is_told(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostc, "compiler", lambda: "/bin/false")
    monkeypatch.setattr(hostc, "options", lambda: hostc.OPTIONS)
    with pytest.raises(CompileError) as caught:
        hostc.c_target.__wrapped__()
    assert caught.value.fact == "C: /bin/false does not compile C for this machine."
