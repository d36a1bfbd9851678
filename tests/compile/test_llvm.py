"""LLVM is given text that needs one pass, and its errors come with the line (issue 3.5)."""

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
    """Passes everything on and notes the passes that are added."""

    def __init__(self, inner: Any, added: list[str]):
        self.inner, self.added = inner, added

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name.startswith("add_"):
            self.added.append(name)
        if name.startswith("create_") and name.endswith("pass_manager"):
            return lambda *given: Recorder(found(*given), self.added)
        return found


def test_one_pass_runs_before_code_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    recorder = Recorder(llvm._binding(), added)
    monkeypatch.setattr(llvm, "_binding", lambda: recorder)
    assert llvm.compile_source(source(TEXT), llvm.host_target()).data
    assert added == ["add_sroa_pass"]


def test_an_error_quotes_the_line() -> None:
    with pytest.raises(CompileError, match="ret float") as caught:
        llvm.compile_source(source(TEXT.replace("ret void", "ret float %x", 1)), llvm.host_target())
    assert "kernel f" in str(caught.value)
