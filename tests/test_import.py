"""What `import picograd` loads, counted: nothing that the first kernel does without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from picograd.errors import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
# Packages of their own, each loaded where it is needed: LLVM with the first kernel, the others by commands and files.
LATE = {"llvmlite", "rich", "tyro", "safetensors", "onnx", "cuda", "pyopencl", "torch"}
LATE_PARTS = {"picograd.array_api", "picograd.onnx", "picograd.models", "picograd.data", "picograd.linalg"}
LATE_PARTS |= {*PACKAGES, "numpy.random"} - {"picograd"}
LATE_PARTS |= {f"picograd.{page}" for page in ("amp", "autograd", "cuda", "distributions", "fft", "func", "random")}
LATE_PARTS |= {"picograd.signal", "picograd.special", "picograd.backends"}
OF_DEVICES = {"picograd.devices.cpu", "picograd.devices.cpu.memory"}  # what engine/host_memory.py looks at
MOST_MODULES = 176  # of picograd; 16 of them are a millisecond
MOST_OTHERS = 56  # of Python and of packages, beside those of NumPy


def loaded(code: str) -> set[str]:
    """Returns the modules that a new process has after it has run `code`."""
    script = f"import sys\nsys.modules['einops'] = None  # it would be told of tensors\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_loads_what_the_first_kernel_needs() -> None:
    new = loaded("import picograd") - loaded("import numpy")
    ours = {name for name in new if name.partition(".")[0] in PACKAGES}
    assert not {name.partition(".")[0] for name in new} & LATE
    assert not {".".join(name.split(".")[:2]) for name in new} & LATE_PARTS
    assert {name for name in ours if name.startswith("picograd.devices.")} <= OF_DEVICES
    assert len(ours) <= MOST_MODULES
    assert len(new - ours) <= MOST_OTHERS
