"""A CUDA driver that keeps its memory on the host (tests/devices/cuda/fake_driver.c), to test the CUDA device's own code.

What runs on it is a process of its own, since the bindings look for a driver once.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.forks import Forks

SOURCES = Path(__file__).parent / "devices" / "cuda"
# A kernel that a program before has compiled is in the driver's folder.
HEAD = """
import os
from hashlib import sha256
from pathlib import Path
import numpy as np
from picograd.devices.cudasim import compile as hostcxx
def kept_library(compiler, options, source, *rest, compile_library=hostcxx.compile_library):
    kept = Path(os.environ["LD_LIBRARY_PATH"], sha256(repr((options, source, rest)).encode()).hexdigest())
    if not kept.exists():
        kept.write_bytes(compile_library(compiler, options, source, *rest))
    return kept.read_bytes()
hostcxx.compile_library = kept_library
from picograd.devices.cuda.render import render
from picograd.devices.cuda.backend import make_device
from picograd.devices.cuda.driver import capability
from tests.gpu_programs import *
device = make_device()
def load(program):
    return device.load(hostcxx.compile_source(render(program, device.target), device.target))
"""
# What is done at exit is done; that every object of the process is then let go, a tenth of a second, is not waited for.
END = """
import atexit, os, sys
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(0)
"""
# Tensors on CUDA: their kernels are compiled for this machine, which is what the fake driver runs.
TENSORS = """
import picograd as pg
from picograd.engine import devices
from picograd.devices.cuda.render import source_of_given
from picograd.engine.compiler import Backend, Compiler, Given
devices._compilers["CUDA"] = Compiler(
    device, Backend(render, hostcxx.compile_source, {"cuda": Given(source_of_given, hostcxx.compile_source)})
)
"""
# The same, with the fake cuBLASLt: another one may be installed, and would find no GPU.
LIBRARY = TENSORS + """
import ctypes
from types import SimpleNamespace
from picograd.devices.cuda import cublaslt as cublaslt_calls
folder = os.environ["LD_LIBRARY_PATH"]
cublaslt_calls.import_module = lambda name: SimpleNamespace(
    load_nvidia_dynamic_lib=lambda name: SimpleNamespace(abs_path=f"{folder}/lib{name}.so.13"))
"""
# The library wins every timing; how many candidates it has had, and what has been written down.
TUNED = LIBRARY + """
from picograd.engine import choose as tune
from picograd.engine import realize
from picograd.look import watch
from picograd.ir.opts import Library
from picograd.devices.cuda import cublaslt
def library_wins(kernel, found, device, make):
    wins = [isinstance(choice, Library) and tune._started(kernel, choice, device, make) is not None for choice in found]
    return [[1.0 if won else 2.0] * 9 for won in wins]
tune.time_candidates = library_wins
calls = []
def counted(self, addresses, stream, call=cublaslt.ProductCall.__call__):
    calls.append(self)
    call(self, addresses, stream)
cublaslt.ProductCall.__call__ = counted
def forget():  # as in a new process
    realize._plans.clear()
    devices._compilers["CUDA"] = Compiler(device, Backend(render, hostcxx.compile_source))
rng = np.random.default_rng(0)
def held(*shape, dtype=pg.float32):
    return pg.Tensor(rng.standard_normal(shape).astype(np.float32), device="CUDA").cast(dtype).realize()
def backwards(a, b):
    total = np.float32(0)
    for k in range(a.shape[-1])[::-1]:
        total = total + a[..., k : k + 1].astype(np.float32) * b[..., k : k + 1, :].astype(np.float32)
    return total
"""


def build(folder: Path) -> None:
    """Makes a folder's libcuda.so.1 and libcublasLt.so.13, or skips the test."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or shutil.which("c++") is None or sys.platform != "linux":
        pytest.skip("the fake driver needs Linux and a C and a C++ compiler")
    for source, library in ("fake_driver.c", "libcuda.so.1"), ("fake_cublaslt.c", "libcublasLt.so.13"):
        options = "-shared", "-fPIC", "-O1", str(SOURCES / source), "-o", str(folder / library), "-ldl", "-lm"
        subprocess.run([compiler, *options], check=True)


def run_on(driver: Path, code: str, head: str = HEAD, **environment: str) -> str:
    """Runs lines of Python, after those of `head`, with the fake driver as libcuda; returns what they print."""
    done = _forks(driver).run(head + code + END, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@cache
def _forks(driver: Path) -> Forks:
    """The process that those on a driver are forks of; where libraries are is settled when a process starts."""
    ours = "tests.gpu_programs", "picograd.engine.compiler", "picograd.devices.cudasim.compile"
    cuda = "picograd.devices.cuda.backend", "picograd.devices.cuda.cublaslt", "cuda.bindings.driver"
    return Forks(*ours, *cuda, "llvmlite.binding", "numpy.random", LD_LIBRARY_PATH=str(driver))
