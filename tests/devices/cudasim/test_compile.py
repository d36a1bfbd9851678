"""The simulator's compiler: same text, a shared library."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from tempfile import gettempdir

import pytest

from picograd.devices.compile_host import compile_library
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


def names_in(folder: Path) -> set[str]:
    return {"".join(path.suffixes) for path in folder.rglob("*") if path.is_file()}


def test_what_kernels_share_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path / "cache"))
    first = hostcxx.prepared(hostcxx.OPTIONS)
    assert first.is_relative_to(tmp_path) and names_in(tmp_path) == {".h", ".h.gch", ".o"}
    with monkeypatch.context() as patch:
        patch.setattr("subprocess.Popen", None)
        assert hostcxx.prepared(hostcxx.OPTIONS) == first
    os.remove(first)  # the cache lets go what is unused for longest
    assert hostcxx.prepared(hostcxx.OPTIONS) == first and first.exists()


def test_what_kernels_share_has_a_name_by_all_it_is_made_of(tmp_path: Path) -> None:
    header = tmp_path / "other.h"
    names = set()
    for text in ("", "// another"):
        header.write_text(f'#include "primitives.h"\n{text}')
        hostcxx._digest.cache_clear()
        names |= {hostcxx._digest(hostcxx.compiler(), hostcxx.OPTIONS, header)}
    names |= {hostcxx._digest(hostcxx.compiler(), (*hostcxx.OPTIONS, "-DOTHER"), header)}
    assert len(names) == 3


@pytest.mark.parametrize("mode", [0o777, None], ids=["others can write to it", "there is none"])
def test_without_a_folder_of_its_own_a_process_makes_what_kernels_share(
    mode: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path) if mode else "off")
    if mode:
        (tmp_path / "headers").mkdir()
        (tmp_path / "headers").chmod(mode)
    assert hostcxx._including(hostcxx.PRIMITIVES, "0").parent == Path(hostcxx._own_folder().name)


def test_a_cache_that_takes_no_files_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a full disk, where the compiler cannot write what it has made."""
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))
    name = hostcxx._digest(hostcxx.compiler(), hostcxx.OPTIONS, hostcxx.PRIMITIVES)
    in_the_way = hostcxx._part(tmp_path / "headers" / name[0] / f"{name}.o")
    in_the_way.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "headers", in_the_way.parent):
        folder.chmod(0o700)
    monkeypatch.setattr(hostcxx, "_not_cached", set())
    first = hostcxx.prepared(hostcxx.OPTIONS)
    assert tmp_path not in first.parents and first.with_suffix(".o").exists()
    assert not list(tmp_path.rglob("*.gch*")), "nothing half written is left"
    assert hostcxx.prepared(hostcxx.OPTIONS) == first


def test_a_compiler_that_rejects_the_simulator_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))
    with pytest.raises(CompileError, match="rejected the simulator.\n  .*-std=none"):
        hostcxx.prepared((*hostcxx.OPTIONS, "-std=none"))
    assert not {".h.gch", ".o"} & names_in(tmp_path)


def test_functions_of_floats_in_plain_cuda_are_of_floats() -> None:
    floats = " && ".join(f"sizeof({name}(1.5f)) == 4" for name in ("abs", "exp", "fabs", "sqrt", "floor"))
    text = f'#include "given.h"\nstatic_assert({floats} && sizeof(pow(1.5f, 2.0f)) == 4);\n'
    assert hostcxx.compile_source(Source("floats", "cuda", text, (), (), ()), TARGET).data


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
    assert caught.value.fact == "false rejected kernel silent for sim.\n  it ended with status 1 and no message"


def test_a_full_disk_is_told_with_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CompileError) as caught:
        compile_library(hostcxx.compiler(), (), Source("large", "cuda", "", (), (), ()), "sim", "cu", ())
    assert caught.value.fact.endswith(f" cannot compile kernel large in {gettempdir()} (No space left on device).")
    assert caught.value.hint == "TMPDIR names another folder for temporary files"
