"""LLVM is given text that needs no pass, and its errors come with the line (issue 3.5)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from picograd import dtype as dtypes
from picograd.devices import compile_llvm as llvm
from picograd.errors import CompileError
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Launch, Source
from tests.forks import imported

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

PRINT_PASSES = """
from picograd.devices import compile_llvm as llvm
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Launch, Source

binding, target = llvm._binding(), llvm.host_target()
machine, module = llvm._machine(target.arch, target.features, target.triple)[0], binding.parse_assembly("")
binding.set_option("picograd", "-debug-pass=Structure")
machine.emit_object(module)
llvm.compile_source(Source("f", "llvm", "", (), (), ()), target)
machine.emit_object(module)
"""


def source(text: str) -> Source:
    return Source("f", "llvm", text, (), (), ())


# Blends of eight 16-bit lanes by any instruction that becomes one, in a launch that is short.
BLENDS = """
from picograd.devices import compile_llvm as llvm
from picograd.ir.stages import Launch, Source

def compile_for(generation, taken, given, text):
    text = f"define void @f_0(ptr %args, i64 %begin, i64 %end) {{\\n  %x = load {taken}, ptr %args\\n  %y = {text}\\n"
    text += f"  store {given} %y, ptr %args\\n  ret void\\n}}\\n"
    target = llvm.processor_target("x86_64-unknown-linux-gnu", *llvm.GENERATIONS[generation])
    assert llvm.compile_source(Source("f", "llvm", text, (), (), (Launch("f_0", 1, 1, 1),)), target).data

for generation in llvm.GENERATIONS:
    for lanes in (2, 4, 8):
        for kind in ("half", "float"):
            taken, given = f"<{lanes} x i32>", f"<{lanes} x {kind}>"
            compile_for(generation, taken, given, f"uitofp {taken} %x to {given}")
        compile_for(generation, f"<{lanes} x i64>", f"<{lanes} x i16>", f"trunc <{lanes} x i64> %x to <{lanes} x i16>")
    for kind, lanes in (("i16", 8), ("half", 8), ("bfloat", 8), ("i8", 16)):
        taken = f"<{lanes} x {kind}>"
        for step in (1, 2):
            places = ", ".join(f"i32 {lane + (lane // step % 2) * lanes}" for lane in range(lanes))
            shuffle = f"shufflevector {taken} %x, {taken} zeroinitializer, <{lanes} x i32> <{places}>"
            compile_for(generation, taken, taken, shuffle)
"""


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
    assert noted == [f"@{llvm.LEAVE_OUT}", f"@{llvm.PUT_BACK}"]


def test_every_option_that_is_set_is_set_back() -> None:
    options = llvm.LEAVE_OUT.read_text().split()
    assert len(options) > 10 and all(option.endswith("=true") for option in options)
    assert llvm.PUT_BACK.read_text().split() == [option.replace("=true", "=false") for option in options]


def test_options_are_set_by_their_file() -> None:
    """With the option that makes LLVM print its passes, in a process of its own: there is no other way to see them."""
    done = subprocess.run([sys.executable, "-c", PRINT_PASSES], capture_output=True, text=True, check=True)
    before, during, after = done.stderr.split("Pass Arguments:")[1:]
    assert after == before
    for name in ("Loop Strength Reduction", "CodeGen Prepare", "Machine code sinking", "Tail Duplication"):
        assert name in before and name not in during, name


def test_another_llvm_is_given_no_options(noted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "LLVM_TRIED", 0)
    assert llvm.compile_source(source(TEXT), llvm.host_target()).data
    assert noted == []


def test_an_installation_without_the_options_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(llvm, "LEAVE_OUT", tmp_path / "gone.rsp")
    with pytest.raises(CompileError, match=r"gone\.rsp is missing"):
        llvm.compile_source(source(TEXT), llvm.host_target())


def test_options_in_an_archive_are_set_one_by_one(noted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    files = [llvm.LEAVE_OUT, llvm.PUT_BACK]
    for name, file in zip(("LEAVE_OUT", "PUT_BACK"), files):
        monkeypatch.setattr(llvm, name, Path("picograd.zip") / file.name)
    assert llvm.compile_source(source(TEXT), llvm.host_target()).data
    assert noted == [option for file in files for option in file.read_text().split()]


def test_options_in_a_folder_that_is_no_utf8_are_set_one_by_one(noted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = llvm.LEAVE_OUT.read_text().split()
    monkeypatch.setattr(llvm, "LEAVE_OUT", Path("/p\udce4th") / llvm.LEAVE_OUT.name)
    monkeypatch.setattr(llvm.os.path, "isfile", lambda path: True)
    assert llvm.compile_source(source(TEXT), llvm.host_target()).data
    assert noted[:-1] == options


def test_text_that_is_wrong_changes_no_settings(noted: list[str]) -> None:
    with pytest.raises(CompileError):
        llvm.compile_source(source(TEXT.replace("ret void", "ret float %x", 1)), llvm.host_target())
    assert noted == []


def test_only_launches_that_are_short_at_any_length_are_compiled_in_haste() -> None:
    twice = "define void @f_0(ptr %args, i64 %begin, i64 %end) {\n" + "".join(
        f"  %a{i} = xor i64 %begin, 11\n  store i64 %a{i}, ptr %args, align 8\n" for i in range(2)
    )
    length = Op(OpCode.VARIABLE, dtypes.int64, (), ("length", 1, 1 << 20))

    def num_computed(grid: Dim, work: int) -> int:
        launch = Launch("f_0", grid, 1, work)
        text = llvm.assembly(Source("f", "llvm", twice + "  ret void\n}\n", (), (), (launch,)), llvm.host_target())
        return text.count("xor")

    short, long = num_computed(4, llvm.SHORT_WORK // 4), num_computed(4, llvm.SHORT_WORK)
    assert short > long == num_computed(length, 4)


def test_no_blend_of_short_lanes_ends_the_process() -> None:
    done = imported().run(BLENDS, {})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("generation", "num_computed"), [("avx512", 2), ("avx2", 1)])
def test_joined_conditions_are_not_compiled_in_haste_where_they_are_short_lanes(generation: str, num_computed: int) -> None:
    computed = "".join(f"  %a{i} = xor i64 %begin, 11\n  store i64 %a{i}, ptr %args, align 8\n" for i in range(2))
    joined = "  %c = icmp slt <8 x i32> zeroinitializer, splat (i32 1)\n  %d = and <8 x i1> %c, %c\n"
    text = "define void @f_0(ptr %args, i64 %begin, i64 %end) {\n" + computed + joined + "  ret void\n}\n"
    target = llvm.processor_target("x86_64-unknown-linux-gnu", *llvm.GENERATIONS[generation])
    written = llvm.assembly(Source("f", "llvm", text, (), (), (Launch("f_0", 1, 1, 1),)), target)
    assert written.count("xor") == num_computed


def test_an_error_quotes_the_line() -> None:
    with pytest.raises(CompileError, match="ret float") as caught:
        llvm.compile_source(source(TEXT.replace("ret void", "ret float %x", 1)), llvm.host_target())
    assert "kernel f" in str(caught.value)


def test_threads_generate_code_beside_each_other(noted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are in the code generator before either goes on; options are set once, and back when the last is done."""
    together, object_file = threading.Barrier(2, timeout=30), llvm._object_file

    def meet(*given: Any) -> bytes:
        together.wait()
        found = object_file(*given)
        together.wait()
        return found

    alone = llvm.compile_source(source(TEXT), llvm.host_target()).data
    noted.clear()
    monkeypatch.setattr(llvm, "_object_file", meet)
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda _: llvm.compile_source(source(TEXT), llvm.host_target()).data, range(2)))
    assert made == [alone, alone]
    assert noted == [f"@{llvm.LEAVE_OUT}", f"@{llvm.PUT_BACK}"]


def test_the_lock_of_llvmlite_is_free_while_code_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    ffi = llvm._binding().ffi
    emit, held, seen = ffi.lib.LLVMPY_TargetMachineEmitToMemory._cfn, [], []

    def watched(*given: Any) -> Any:
        seen.append(list(held))
        return emit(*given)

    acquired, released = partial(held.append, True), held.pop
    ffi.register_lock_callback(acquired, released)
    monkeypatch.setitem(ffi.lib._fntab, "LLVMPY_TargetMachineEmitToMemory", SimpleNamespace(_cfn=watched))
    try:
        assert llvm.compile_source(source(TEXT), llvm.host_target()).data
    finally:
        ffi.unregister_lock_callback(acquired, released)
    assert seen == [[]]


FORK_AT_ONCE = """
import os, threading
from picograd.devices import compile_llvm as llvm

child = os.fork()
target = llvm.host_target()
binary = llvm.compile_source(llvm.Source("f", "llvm", "define void @f_0() { ret void }", (), (), ()), target)
assert binary.data
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert "picograd_llvm" not in [thread.name for thread in threading.enumerate()]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("num_threads", ["1", "2"])
def test_the_library_is_loaded_on_another_thread_and_a_fork_waits_for_it(num_threads: str) -> None:
    environment = {**os.environ, "PICOGRAD_THREADS": num_threads}
    command = [sys.executable, "-c", FORK_AT_ONCE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
