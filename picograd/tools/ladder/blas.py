"""Other people's products, each in a process of its own, so that its threads are as many as asked for and wait elsewhere.

In:    a library's name, a number of threads, lengths
Out:   `Blas`: seconds per product, when asked
Next:  picograd/tools/ladder/measure.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from picograd.errors import DeviceError

LIBRARIES = ("numpy", "torch")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# Prints a version; then, for each number it reads, the seconds that so many products took.
WORKER = """
import sys, time
import numpy as np
library, m, k, n = sys.argv[1], *map(int, sys.argv[2:])
rng = np.random.default_rng(0)
a, b = (rng.random(shape, np.float32) for shape in ((m, k), (k, n)))
c = np.empty((m, n), np.float32)
if library == "torch":
    import torch
    torch.set_num_threads(int(__import__("os").environ["OMP_NUM_THREADS"]))
    a, b, c = map(torch.from_numpy, (a, b, c))
    multiply, version = torch.mm, torch.__version__ + (", MKL" if torch.backends.mkl.is_available() else "")
else:
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    multiply, version = np.matmul, f"{np.__version__}, {blas.get('name')} {blas.get('version')}"
print(version, flush=True)
for line in sys.stdin:
    count = int(line)
    start = time.perf_counter()
    for _ in range(count):
        multiply(a, b, out=c)
    print(time.perf_counter() - start, flush=True)
"""


class Blas:
    """A process that multiplies matrices with one library.

    version:  of the library, with that of its BLAS

    Raises:
      DeviceError: the library is not installed, or does not start.
    """

    def __init__(self, library: str, num_threads: int, m: int, k: int, n: int):
        self.library, self.num_threads = library, num_threads
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", WORKER, library, *map(str, (m, k, n))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(num_threads))},
        )  # fmt: skip
        try:
            self.version = self._answer()
        except DeviceError:
            self.close()
            raise

    def seconds(self, count: int) -> float:
        """Returns how long so many products take."""
        assert self._process.stdin is not None
        try:
            print(count, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._ended() from None
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> DeviceError:
        return DeviceError(f"ladder: the process that runs {self.library} ended with status {self._process.wait()}.")

    def close(self) -> None:
        """Ends the process; does nothing the second time."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # of a request that it has not read
                    pipe.close()


def start_all(num_threads: int, m: int, k: int, n: int) -> list[Blas]:
    """Starts each library that is installed, once for each number of threads; numpy always is."""
    found = []
    for library in LIBRARIES:
        for count in sorted({1, num_threads}):
            try:
                found.append(Blas(library, count, m, k, n))
            except DeviceError:
                if library == "numpy":
                    raise
    return found
