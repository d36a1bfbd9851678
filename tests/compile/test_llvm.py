"""LLVM is given text that needs no pass, and its errors come with the line (issue 3.5)."""

from __future__ import annotations

from typing import Any

import pytest

from picograd.compile import llvm
from picograd.errors import CompileError
from picograd.ir.stages import Source

TEXT = """define void @f_0(ptr %args, i64 %begin, i64 %end) {
entry:
  %kept = alloca i64, align 8
  store i64 %begin, ptr %kept, align 8
  ret void
}

define void @f_1(ptr %args, i64 %begin, i64 %end) {
  ret void
}
"""


def source(text: str) -> Source:
    return Source("f", "llvm", text, (), (), ())


class Recorder:
    """Passes everything on and notes the passes and settings that LLVM is given."""

    def __init__(self, inner: Any, noted: list[str]):
        self.inner, self.noted = inner, noted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name.startswith("add_"):
            self.noted.append(name)
        if name == "set_option":
            return lambda program, option: (self.noted.append(option), found(program, option))
        if name.startswith("create_") and name.endswith("pass_manager"):
            return lambda *given: Recorder(found(*given), self.noted)
        return found


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    notes: list[str] = []
    recorder = Recorder(llvm._binding(), notes)
    monkeypatch.setattr(llvm, "_binding", lambda: recorder)
    return notes


def test_no_pass_runs_before_code_is_generated_and_settings_do_not_stay(noted: list[str]) -> None:
    assert llvm.compile_source(source(TEXT), llvm.host_target()).data
    assert noted == [f"{option}={value}" for value in ("true", "false") for option in llvm.NOT_NEEDED]


def test_text_that_is_wrong_changes_no_settings(noted: list[str]) -> None:
    with pytest.raises(CompileError):
        llvm.compile_source(source(TEXT.replace("ret void", "ret float %x", 1)), llvm.host_target())
    assert noted == []


def test_an_error_quotes_the_line() -> None:
    with pytest.raises(CompileError, match="ret float") as caught:
        llvm.compile_source(source(TEXT.replace("ret void", "ret float %x", 1)), llvm.host_target())
    assert "kernel f" in str(caught.value)
