"""Ladders of GPU kernels: files of CUDA C for one computation, each with one more idea than the one before.

In:    a `Ladder`: the computation, defined in NumPy, and its `Rung`s, each a file and its launches
Out:   `climb`: a `Figure` for each rung: checked, then timed on a GPU, or counted on the simulator

The lengths of a problem are constants of the text: `static const int M = 128, ...` precedes its first line, so that the
compiler unrolls loops and removes edges. Everything else of a rung is in its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.dtype import DType
from picograd.engine.compiler import Compiler
from picograd.errors import CompileError, VerifyError
from picograd.ir.stages import Binary, Launch, Param, Source
from picograd.record import Record, replace
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.counts import compile_counted, take_counts
from picograd_lab.ladder.roofline import clock_hz, least_seconds, library_seconds
from picograd_lab.ladder.runnable import Array, Planned, Runnable

Lengths = Mapping[str, int]
SAMPLES, LEAST_S, MOST_RUNS = 7, 5e-3, 1000  # for a time: samples, shortest sample, most runs in a sample
LEAST_BOUND = 2.0**-960  # replaces 0, as errors are divided by it


def ceil_div(a: int, b: int) -> int:
    """Returns the number of b that cover a.

    >>> ceil_div(65, 32)
    3
    """
    return -(-a // b)


# ---- what a ladder is ----
def _anything(lengths: Lengths) -> str:
    return ""


def _nothing(lengths: Lengths) -> tuple[Any, ...]:
    return ()


class Rung(Record):
    """One kernel of a ladder, or several in sequence.

    file:      file in the ladder's folder, NN_name.cu; its first line is the idea: `// Name: what this rung adds.`
    launches:  (lengths) -> its functions by symbol, with blocks, threads and tensor maps
    accepts:   (lengths) -> "" or the violated rule
    dtype:     dtype of the float inputs, `Element` in the text if it is narrow; the output is then `Result`, float32
    except in offers to the compiler (offer.py)
    roundoff:  largest relative error of one of its roundings
    oldest:    least compute capability with its instructions: 70, 80, 90 (Hopper only)
    scratch:   (lengths) -> dtype and number of elements of memory between its kernels; parameters after the outputs
    bound:     replaces the ladder's, for a rung with another formula
    """

    file: str
    launches: Callable[[Lengths], tuple[Launch, ...]]
    accepts: Callable[[Lengths], str] = _anything
    dtype: DType = dtypes.float32
    roundoff: float = 2.0**-24
    oldest: int = 70
    scratch: Callable[[Lengths], tuple[tuple[DType, int], ...]] = _nothing
    bound: Callable[..., tuple[Array, ...]] | None = None

    @property
    def name(self) -> str:
        """Name of its file without number and suffix, with spaces."""
        return Path(self.file).stem.partition("_")[2].replace("_", " ")


class Ladder(Record):
    """A computation and its kernels.

    folder:   folder of the rungs' files; it has the ladder's name
    does:     the computation in one line
    lengths:  names in the text, with their default values
    inputs:   (lengths, rng) -> the kernel's input arrays; float64 stands for a rung's dtype
    meaning:  (lengths, *inputs) -> the output arrays, in float64
    bound:    (lengths, roundoff, *inputs) -> largest error of each element
    flops:    (lengths) -> operations
    tensors:  (lengths, *inputs as Tensors) -> picograd's results, perhaps without the last; a list is one result in
    parts
    axes:     for each input, the lengths along its axes, "M K"; () for ladders without offers to the compiler
    results:  (lengths) -> the shapes of the outputs, if `axes` are given
    switches: lengths that are 0 or 1
    library:  (torch, *inputs) -> PyTorch's result, by the library of `library_name`
    """

    folder: Path
    does: str
    lengths: dict[str, int]
    inputs: Callable[[Lengths, np.random.Generator], tuple[Array, ...]]
    meaning: Callable[..., tuple[Array, ...]]
    bound: Callable[..., tuple[Array, ...]]
    flops: Callable[[Lengths], int]
    rungs: tuple[Rung, ...]
    tensors: Callable[..., tuple[Tensor | list[Tensor], ...]]
    axes: tuple[str, ...] = ()
    results: Callable[[Lengths], tuple[tuple[int, ...], ...]] = _nothing
    switches: tuple[str, ...] = ()
    library: Callable[..., Any] | None = None
    library_name: str = "PyTorch"

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    def text(self, rung: Rung) -> str:
        """Returns the file of a rung."""
        return (self.folder / rung.file).read_text()

    def idea(self, rung: Rung) -> str:
        """Returns the idea of a rung, from its first line."""
        return self.text(rung).splitlines()[0].partition(": ")[2].rstrip(".")

    def given(self, rung: Rung, lengths: Lengths, seed: int = 0) -> tuple[Array, ...]:
        """Returns the input arrays of a rung: float64 in its dtype, all others unchanged."""
        arrays = self.inputs(lengths, np.random.default_rng(seed))
        return tuple(array.astype(rung.dtype.numpy) if array.dtype == np.float64 else array for array in arrays)

    def least_nbytes(self, rung: Rung, lengths: Lengths) -> int:
        """Returns the least number of bytes that a rung moves in memory."""
        operands = [param for param in self.source(rung, lengths).params if param.role != "scratch"]
        return sum(int(p.numel) * p.dtype.itemsize for p in operands)

    def text_for(self, rung: Rung, lengths: Lengths, result: str = "float") -> str:
        """Returns the text of a rung with these lengths and its result's type before the first line."""
        before = f"static const int {', '.join(f'{name} = {value}' for name, value in lengths.items())}; "
        if rung.dtype.itemsize < 4:
            before += f"struct {rung.dtype.name}; typedef {rung.dtype.name} Element; typedef {result} Result; "
        return before + self.text(rung)

    def source(self, rung: Rung, lengths: Lengths) -> Source:
        """Returns the text of a rung for these lengths, its parameters and launches."""
        given = self.given(rung, lengths)
        params = [Param(_dtype_of(array), array.size, "in") for array in given]
        meant = self.meaning(lengths, *_wide(given))
        params += [Param(_given_back(array), array.size, "out") for array in meant]
        params += [Param(dtype, numel, "scratch") for dtype, numel in rung.scratch(lengths)]
        launches = rung.launches(lengths)
        return Source(launches[0].symbol, "cuda", self.text_for(rung, lengths), tuple(params), (), launches)


def _dtype_of(array: Array) -> DType:
    (dtype,) = (dtype for dtype, other in dtypes.NUMPY.items() if other == array.dtype)
    return dtype


def _given_back(array: Array) -> DType:
    return dtypes.float32 if array.dtype.kind == "f" else _dtype_of(array)


def _wide(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(array if array.dtype.kind in "iub" else array.astype(np.float64) for array in arrays)


# ---- what a rung needs ----
def why_no_problem(ladder: Ladder, lengths: Lengths) -> str:
    """Returns why a ladder does not accept these lengths; "" if it does."""
    short = [name for name, length in lengths.items() if length < 1 and name not in ladder.switches]
    if short:
        return f"{' and '.join(short)} must be at least 1"
    for name in ladder.switches:
        if lengths[name] not in (0, 1):
            return f"{name} must be 0 or 1"
    return ""


def why_not(ladder: Ladder, rung: Rung, lengths: Lengths, target: Target) -> str:
    """Returns why a rung cannot run with these lengths on a device; "" if it can."""
    if reason := why_no_problem(ladder, lengths):
        return reason
    if target.language == "cuda" and target.arch != "sim":
        own = int("".join(filter(str.isdigit, target.arch)))
        if own < rung.oldest or (rung.oldest == 90 and own != 90):
            return f"needs sm_{rung.oldest}{'a' if rung.oldest == 90 else ''}; this GPU is {target.arch}"
    return rung.accepts(lengths)


def machine_code(ladder: Ladder, rung: Rung, lengths: Lengths, arch: str = "") -> nvrtc.ResourceUsage:
    """Returns the registers, shared memory and spills of a rung's kernels, the largest of each, on a GPU of `arch`.

    Raises:
      CompileError: NVRTC is missing, or rejected the text.
    """
    return greatest_usage([ladder.source(rung, lengths)], arch or ("sm_90a" if rung.oldest == 90 else "sm_80"))


def greatest_usage(sources: Sequence[Source], arch: str) -> nvrtc.ResourceUsage:
    """Returns the largest of each resource among the kernels of several sources, on a GPU of `arch`.

    Raises:
      CompileError: NVRTC is missing, or rejected a text.
    """
    target = Target("CUDA", "cuda", arch, block_threads=256)
    usages = [usage for source in sources for usage in nvrtc.resource_usage(source, target).values()]
    names = ("registers", "shared_nbytes", "stack_nbytes", "spill_nbytes")
    return nvrtc.ResourceUsage(*(max(getattr(usage, name) for usage in usages) for name in names))


# ---- climbing ----
class Figure(Record):
    """The measurements of one rung.

    left_out:   why it did not run; "" if it ran
    error:      largest error as a share of the bound
    nbytes:     least bytes moved in memory
    counts:     counts of one run, on the simulator
    samples_s:  seconds of one run, on a GPU
    copy_s:     seconds of a copy of as many bytes, on a GPU
    least_s:    seconds by the roofline; 0 if unknown
    library_s:  seconds of the ladder's library on the same operands; 0 without it
    registers:  registers per thread by NVRTC; None without it
    """

    name: str
    adds: str
    left_out: str = ""
    error: float = 0.0
    nbytes: int = 0
    counts: dict[str, int] = {}
    samples_s: tuple[float, ...] = ()
    copy_s: float = 0.0
    least_s: float = 0.0
    library_s: float = 0.0
    registers: int | None = None

    @property
    def seconds(self) -> float:
        """The median of the samples."""
        return median(self.samples_s)


def climb(ladder: Ladder, lengths: Lengths, compiler: Compiler) -> Iterator[Figure]:
    """Yields a figure for each rung.

    Raises:
      VerifyError: a rung's result differs by more than its roundings explain.
    """
    for rung in ladder.rungs:
        reason = why_not(ladder, rung, lengths, compiler.device.target)
        if reason:
            yield Figure(rung.name, ladder.idea(rung), reason)
            continue
        try:
            yield _figure(ladder, rung, lengths, compiler)
        except CompileError as error:
            yield Figure(rung.name, ladder.idea(rung), error.fact)


def _figure(ladder: Ladder, rung: Rung, lengths: Lengths, compiler: Compiler) -> Figure:
    device, source, given = compiler.device, ladder.source(rung, lengths), ladder.given(rung, lengths)
    is_simulated = device.target.arch == "sim"
    binary: Binary = compile_counted(source) if is_simulated else compiler.backend.compile(source, device.target)
    made = Runnable(device, device.load(binary), given)
    try:
        registers = machine_code(ladder, rung, lengths, "" if is_simulated else device.target.arch).registers
    except CompileError:
        registers = None
    figure = Figure(rung.name, ladder.idea(rung), registers=registers)
    return measured(figure, ladder, rung, lengths, device, made)


def measured(figure: Figure, ladder: Ladder, rung: Rung, lengths: Lengths, device: Any, made: Planned) -> Figure:
    """Returns a rung's measurements: of one run, and on a GPU times of the kernels, of a copy, and of a library.

    Raises:
      VerifyError: a result differs by more than the roundings of `rung` explain.
    """
    made.run()
    given, is_simulated = ladder.given(rung, lengths), device.target.arch == "sim"
    counts = Counter[str]()
    for executable in made.executables if is_simulated else ():
        counts.update(take_counts(executable))
    error, nbytes = checked(ladder, rung, lengths, given, made.results()), ladder.least_nbytes(rung, lengths)
    figure = replace(figure, error=error, nbytes=nbytes, counts=dict(counts))
    if is_simulated:
        return figure
    samples, copy_s = _timed(device, made.run), _copy_seconds(device, nbytes)
    arch, multiprocessors = device.target.arch, device.num_multiprocessors
    least_s = least_seconds(ladder.flops(lengths), rung.dtype, arch, multiprocessors, clock_hz(), copy_s)
    library_s = library_seconds(ladder.library, given)
    return replace(figure, samples_s=samples, copy_s=copy_s, least_s=least_s, library_s=library_s)


def checked(ladder: Ladder, rung: Rung, lengths: Lengths, given: tuple[Array, ...], results: list[Array]) -> float:
    """Returns the largest error of a rung's results as a share of the bound; narrow floats have one more rounding.

    Raises:
      VerifyError: the share is above 1.
    """
    wide, errors = _wide(given), [0.0]
    bounds = (rung.bound or ladder.bound)(lengths, rung.roundoff, *wide)
    for result, meant, most in zip(results, ladder.meaning(lengths, *wide), bounds):
        most = most + _rounding_of(result) * np.abs(np.where(np.isfinite(meant), meant, 0.0))
        off, result = np.zeros(meant.shape), result.reshape(meant.shape).astype(np.float64)
        is_same = (result == meant) | (np.isnan(result) & np.isnan(meant))  # also for infinities
        np.abs(np.subtract(result, meant, out=off, where=~is_same), out=off)
        errors.append(float(np.max(off / np.maximum(most, LEAST_BOUND), initial=0.0)))
        if not errors[-1] <= 1:  # also true for NaN
            values = ", ".join(f"{name} = {value}" for name, value in lengths.items())
            raise VerifyError(
                f"ladder: rung {rung.name} of {ladder.name} with {values} is off by {errors[-1]:.3g} times what its "
                "roundings explain. This is a bug in picograd."
            )
    return max(errors)


def _rounding_of(result: Array) -> float:
    """Returns the roundoff of results stored as narrow floats; 0 for others, whose bound includes it."""
    dtype = _dtype_of(result)
    return 2.0**-dtype.precision if dtype.is_float and dtype.itemsize < 4 else 0.0


def _timed(device: Any, work: Callable[[], None]) -> tuple[float, ...]:
    """Returns the seconds of one run, in several samples, each of enough runs to be long enough."""
    once = device.timed(work)
    runs = min(MOST_RUNS, 1 + int(LEAST_S / max(once, 1e-7)))

    def repeat() -> None:
        for _ in range(runs):
            work()

    return tuple(device.timed(repeat) / runs for _ in range(SAMPLES))


def _copy_seconds(device: Any, nbytes: int) -> float:
    """Returns the seconds of a copy that reads and writes this many bytes in total."""
    source, target = device.allocate_all([ceil_div(nbytes, 2)] * 2)
    return median(_timed(device, lambda: device.copy(target, source, ceil_div(nbytes, 2))))
