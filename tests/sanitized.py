"""Runs tests with kernels for CUDASIM compiled under sanitizers of addresses and of undefined behaviour.

    python -m tests.sanitized tests/engine/test_cuda_devices.py -k CUDASIM
    TEST_DEVICES=CUDASIM TEST_PART=3/40 python -m tests.sanitized tests/operations/test_operations.py -k test_values

Where the compiler has no sanitizers, tests run without, and that is said.

What a kernel does wrong the simulator says itself (devices/cudasim/); this looks at the simulator, and at the primitives.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from picograd.devices.cudasim import compile as hostcxx

# Most kernels run once: what optimizing them takes it does not give back.
OPTIONS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O0")
LIBRARIES = ("libasan.so", "libubsan.so")
# The compiler is a process without them: under them it takes three times as long.
INSIDE = """
import os, sys, pytest
from picograd.devices.cudasim import compile as hostcxx
del os.environ["LD_PRELOAD"]
hostcxx.OPTIONS += {!r}
sys.exit(pytest.main({!r}))
"""


def libraries() -> list[str]:
    """Returns what must be there before Python is, for a library under sanitizers to be loaded; empty without them."""
    command = [hostcxx.compiler(), *(f"-print-file-name={name}" for name in LIBRARIES)]
    found = [subprocess.run([command[0], flag], capture_output=True, text=True, check=True) for flag in command[1:]]
    paths = [run.stdout.strip() for run in found]
    return paths if all(Path(path).is_absolute() for path in paths) else []


def run(*arguments: str, shown: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a process of its own, with a cache of its own: there are kernels compiled in another way.

    Args:
      shown:  what it prints goes where this process's does, and is not kept
    """
    code = INSIDE.format(OPTIONS, ["-p", "no:cacheprovider", "-s", *arguments])
    with TemporaryDirectory(prefix="picograd_") as folder:
        # Python keeps memory to its end, and threads' stacks are the simulator's own.
        own = {
            "LD_PRELOAD": " ".join(libraries()), "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
            "PICOGRAD_CACHE": folder,
        }  # fmt: skip
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env={**os.environ, **own}, capture_output=not shown, text=True, check=False)


if __name__ == "__main__":
    if libraries():
        sys.exit(run(*sys.argv[1:], shown=True).returncode)
    print(f"without sanitizers: {hostcxx.compiler()} has no {' and no '.join(LIBRARIES)}.")
    sys.exit(pytest.main(sys.argv[1:]))
