"""Checks every rung against NumPy in float64, then measures rungs, libraries and the peak in turn, in several rounds.

In:    lengths of the product, a number of rounds
Out:   a `Figure` for each

Each library's product runs in its own process, so that its threads have the requested number and wait elsewhere. The
peak is the processor's limit: independent chains of FMAs in registers, without access to memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, read
from picograd.config import num_threads
from picograd.device import Target
from picograd.engine.compiler import Compiler
from picograd.errors import DeviceError, VerifyError
from picograd.ir.build import multiply_add
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.symbolic import add, mul
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.product import Product, runnable
from picograd_lab.ladder.rungs import FUSED, LADDER, TWO_PASSES, Rung, Tile, each, fused, two_passes
from picograd_lab.ladder.runnable import Array

# ---- other people's products ----
LIBRARIES = ("numpy", "torch")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# Prints a version; then, for each number n that it reads, the seconds of n products.
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

    version:  version of the library and of its BLAS

    Raises:
      DeviceError: the library is missing, or does not start.
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
        """Returns the seconds of a number of products."""
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
        """Ends the process; a second call has no effect."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # the process may not have read a request
                    pipe.close()


def start_all(num_threads: int, m: int, k: int, n: int) -> list[Blas]:
    """Starts each installed library, once for each number of threads; numpy is always included."""
    found = []
    for library in LIBRARIES:
        for count in sorted({1, num_threads}):
            try:
                found.append(Blas(library, count, m, k, n))
            except DeviceError:
                if library == "numpy":
                    raise
    return found


# ---- the peak ----
CHAINS = 12  # more than the 8 to 10 in flight (latency of 4 or 5 cycles, two start in each)
STEPS = 20_000
PIECES = 16  # per thread, so that none waits long for the last


def peak_program(target: Target, num_threads: int) -> Program:
    """Returns chains s = s * x + y in vectors, `num_threads * PIECES` times, shared by the workers if there are several.

    It reads x and y, float32, from parameter 0, and stores the sums to parameter 1.
    """
    tile = _tile(target)
    numel = CHAINS * tile.lanes
    given = Op(OpCode.PARAM, dtypes.float32, (), (0, (2,)))
    out = Op(OpCode.PARAM, dtypes.float32, (), (1, (numel * num_threads * PIECES,)))
    build = Builder()
    kind = AxisKind.LOOP if num_threads == 1 else AxisKind.GRID
    with build.loop(num_threads * PIECES, kind) as piece:
        sums = build.alloc(dtypes.float32, numel, MemorySpace.REGISTER)
        each(build, tile, lambda row, column, place: build.store(sums, place, read(given, 1)))

        def step(row: Op, column: Dim, place: Dim) -> None:
            total = multiply_add(build.load(sums, place), read(given, 0), read(given, 1), target.has_fma)
            build.store(sums, place, total)

        with build.loop(STEPS, AxisKind.LOOP):
            each(build, tile, step)
        each(
            build, tile,
            lambda row, column, place: build.store(out, add(mul(piece, numel), place), build.load(sums, place)),
        )  # fmt: skip
    params = (Param(dtypes.float32, 2, "in"), Param(dtypes.float32, numel * num_threads * PIECES, "out"))
    return Program("peak", params, (), (build.finish(),))


def peak_flops(target: Target, num_threads: int) -> int:
    """Returns the operations of one run."""
    return 2 * CHAINS * _tile(target).lanes * STEPS * num_threads * PIECES


def _tile(target: Target) -> Tile:
    return Tile(CHAINS, 1, max(1, target.vector_bytes // 4))


# ---- measurements ----
LEAST_S = 0.02  # of a sample, which repeats the work
LONG_S, FEW = 1.0, 2  # work of LONG_S or more has FEW samples
SETTLE_S = 0.01  # idle workers spin for some milliseconds; they sleep before the next entrant's turn
RELATIVE = 2.0**-24  # roundoff of float32


@dataclass
class Figure:
    """The measurement of one rung, one library or the peak.

    kind:       "rung", "blas" or "peak"
    flops:      operations of one run, those of the product only
    error:      largest error as a share of the bound; None if not checked
    samples_s:  seconds of one run, in each round
    """

    kind: str
    name: str
    adds: str
    threads: int
    flops: int
    error: float | None = None
    samples_s: list[float] = field(default_factory=list)

    @property
    def gflops(self) -> float:
        """GFLOP/s of the median sample."""
        return self.flops / median(self.samples_s) / 1e9


@dataclass
class _Entrant:
    """A figure in progress: `seconds` returns the seconds of a number of runs."""

    figure: Figure
    seconds: Callable[[int], float]
    count: int = 1

    def calibrate(self) -> _Entrant:
        """Chooses the number of runs in a sample; one long run is a sample."""
        once = self.seconds(1)
        if once < LONG_S:
            once = min(self.seconds(1), self.seconds(1))
        else:
            self.figure.samples_s.append(once)
        self.count = 1 + int(LEAST_S / max(once, 1e-7))
        return self

    def wants_more(self) -> bool:
        return len(self.figure.samples_s) < FEW or self.figure.samples_s[0] < LONG_S


def climb(product: Product, compiler: Compiler, rounds: int) -> tuple[list[Figure], dict[str, str]]:
    """Returns a figure for each rung, library and number of threads; and the libraries' versions.

    Raises:
      VerifyError: a rung's result differs by more than its roundings explain.
    """
    rungs = [*_rungs(product, compiler), *_peaks(compiler)]
    with _libraries(product) as libraries:
        figures = [Figure("blas", blas.library, "matmul", blas.num_threads, product.flops) for blas in libraries]
        others = [_Entrant(figure, blas.seconds).calibrate() for figure, blas in zip(figures, libraries)]
        entrants = [*rungs, *others]
        for number in range(rounds):
            turn = number % len(entrants)
            for entrant in entrants[turn:] + entrants[:turn]:
                if entrant.wants_more():
                    time.sleep(SETTLE_S)
                    entrant.figure.samples_s.append(entrant.seconds(entrant.count) / entrant.count)
        return [entrant.figure for entrant in entrants], {blas.library: blas.version for blas in libraries}


@contextmanager
def _libraries(product: Product) -> Iterator[list[Blas]]:
    started = start_all(num_threads(), product.m, product.k, product.n)
    try:
        yield started
    finally:
        for blas in started:
            blas.close()


def _timed(run: Callable[[], object]) -> Callable[[int], float]:
    def seconds(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        return time.perf_counter() - start

    return seconds


def _rungs(product: Product, compiler: Compiler) -> list[_Entrant]:
    """Prepares every rung and checks it."""
    rng = np.random.default_rng(0)
    shapes = ((product.m, product.k), (product.k, product.n), (product.n,))
    a, b, bias = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    expected = _Expected(a, b, bias)
    entrants = []
    for rung in LADDER:
        if rung.emit is not None:
            made = runnable(rung.emit(product), compiler, (a, b))
            entrants.append(_entrant(rung, product, made.run))
            entrants[-1].figure.error = expected.error(rung, made.results()[0])
    tensors = [Tensor(array, device=compiler.device.target.device) for array in (a, b, bias)]
    for rung, function in ((TWO_PASSES, two_passes()), (FUSED, fused())):
        for _ in range(2):  # jit traces twice
            result = function(*tensors).numpy()
        entrants.append(_entrant(rung, product, _call(function, tensors)))
        entrants[-1].figure.error = expected.error(rung, result)
    return entrants


def _call(function: Callable[..., Tensor], tensors: list[Tensor]) -> Callable[[], Tensor]:
    return lambda: function(*tensors)


def _entrant(rung: Rung, product: Product, run: Callable[[], object]) -> _Entrant:
    threads = num_threads() if rung.is_shared else 1
    return _Entrant(Figure("rung", rung.name, rung.adds, threads, product.flops), _timed(run)).calibrate()


def _peaks(compiler: Compiler) -> list[_Entrant]:
    """Prepares the peak of one thread, and of all."""
    entrants = []
    for count in sorted({1, num_threads()}):
        target = compiler.device.target
        made = runnable(peak_program(target, count), compiler, [np.array([0.5, 1.0], np.float32)])
        figure = Figure("peak", "FMA peak", "chains of FMAs in registers", count, peak_flops(target, count))
        entrants.append(_Entrant(figure, _timed(made.run)).calibrate())
    return entrants


class _Expected:
    """The results in float64, and the largest errors of float32.

    A sum of K products, in any order, with or without FMA, has an error of at most g(K) * (|a| @ |b|), where g(n) = n u /
    (1 - n u) and u = 2**-24; with the bias it is one rounding more. Relu does not increase errors.
    Source: Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1.
    """

    def __init__(self, a: Array, b: Array, bias: Array):
        wide, others, more = (array.astype(np.float64) for array in (a, b, bias))
        self.depth, self.shape = a.shape[1], (a.shape[0], b.shape[1])
        self.product, self.magnitude = wide @ others, np.abs(wide) @ np.abs(others)
        self.with_bias, self.magnitude_with_bias = np.maximum(self.product + more, 0.0), self.magnitude + np.abs(more)

    def error(self, rung: Rung, result: Array) -> float:
        """Returns the largest error as a share of the bound.

        Raises:
          VerifyError: the share is above 1.
        """
        is_fused = rung.emit is None
        expected, magnitude = (self.with_bias, self.magnitude_with_bias) if is_fused else (self.product, self.magnitude)
        roundings = self.depth + is_fused
        bound = roundings * RELATIVE / (1 - roundings * RELATIVE) * magnitude
        error = float(np.max(np.abs(result.reshape(self.shape) - expected) / np.maximum(bound, np.finfo(np.float64).tiny)))
        if not error <= 1:
            lengths = f"{self.shape[0]} x {self.depth} x {self.shape[1]}"
            raise VerifyError(
                f"ladder: rung {rung.name} of {lengths} is off by {error:.3g} times what {roundings} roundings explain. "
                "This is a bug in picograd."
            )
        return error
