"""The rungs of the ladder: how and on which machine each program is built and run, and its report.

In:    prepare.py's file
Out:   `RUNGS`; `run`: an `Outcome`

Each runs as a reader would run it, in its own process, without changes by picograd.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from picograd.devices.compile_host import find_compiler
from picograd.engine.devices import why_not as device_missing
from picograd.errors import CompileError, DataError
from picograd.record import Record, field

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[3]  # picograd's folder
DEVICES = ROOT / "picograd" / "devices"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PICOGRAD_THREADS")


class Rung(Record):
    """One program.

    name:     name of the rung
    file:     file in programs/
    adds:     its idea, in one line
    options:  options of the compiler
    device:   picograd's device
    unit:     largest relative error of an operand of its products
    bits:     rung with equal results, bit for bit; "" if the order of sums differs
    after:    rung that its gain is relative to
    """

    name: str
    file: str
    adds: str
    options: tuple[str, ...] = ()
    device: str = ""
    unit: float = 2.0**-24
    bits: str = ""
    after: str = ""

    @property
    def source(self) -> Path:
        """The program's file."""
        return PROGRAMS / self.file

    @property
    def is_by_hand(self) -> bool:
        """True if gradients are written by hand, kernel by kernel."""
        return self.source.suffix in (".c", ".cu") or self.name == "numpy"


EXACT = "-ffp-contract=off"
SIMULATED = ("-std=c++17", "-Og", "-w", "-fno-strict-aliasing", EXACT)
RUNGS = (
    Rung("torch", "mlp_torch.py", "PyTorch, the gold standard"),
    Rung("numpy", "mlp_numpy.py", "gradients by hand, products by BLAS", after="torch"),
    Rung("c-O0", "mlp.c", "loops, compiled word by word", ("-O0", EXACT)),
    Rung("c-O3", "mlp.c", "loops, compiled well", ("-O3", EXACT), bits="c-O0", after="c-O0"),
    Rung("c-native", "mlp.c", "for this machine's vectors", ("-O3", "-march=native", EXACT), bits="c-O0", after="c-O3"),
    Rung("cuda-naive", "mlp_naive.cu", "a thread for each element", ("-fmad=false",), bits="c-O0", after="c-native"),
    Rung("cuda-cublas", "mlp_cublas.cu", "products by cuBLAS; if simulated, by a stand-in", after="cuda-naive"),
    Rung("cuda-fused", "mlp_fused.cu", "6 launches a step, not 16", after="cuda-naive"),
    Rung("cuda-half", "mlp_fused.cu", "half precision between kernels", ("-DHALF",), unit=2.0**-11, after="cuda-fused"),
    Rung("cuda-double", "mlp_fused.cu", "the next batch on its way", ("-DDOUBLE",), bits="cuda-fused", after="cuda-fused"),
    Rung("cuda-tf32", "mlp_fused.cu", "large products on tensor cores", ("-DTF32",), unit=2.0**-11, after="cuda-fused"),
    Rung("picograd", "mlp_picograd.py", "a plan for each phase", device="CPU", after="c-native"),
    Rung("jit", "mlp_jit.py", "the step in one plan", device="CPU", after="picograd"),
    *(
        Rung(f"jit-{device}", "mlp_jit.py", f"the same on {device}", device=device, after="jit")
        for device in ("C", "OPENCL", "NUMPY", "CUDASIM", "CUDA", "PTX")
    ),
)
BY_NAME = {rung.name: rung for rung in RUNGS}
CUBLAS = "mlp_cublas.cu"
NO_CUBLAS = "nvcc finds no cuBLAS: neither its toolkit nor a package nvidia-cublas has it"


# ---- what a rung needs ----
def is_simulated(rung: Rung) -> bool:
    """Returns whether it runs on a simulator of a GPU, which is slow."""
    return rung.device == "CUDASIM" or (rung.source.suffix == ".cu" and not has_gpu())


@cache
def has_gpu() -> bool:
    """Returns whether CUDA programs can be compiled and run."""
    return device_missing("CUDA") is None and shutil.which("nvcc") is not None


def why_not(rung: Rung) -> str:
    """Returns why this machine cannot run it; "" if it can."""
    if rung.file == "mlp_torch.py" and find_spec("torch") is None:
        return "PyTorch is not installed"
    if rung.device and rung.device != "NUMPY":
        return device_missing(rung.device) or ""
    if rung.file == CUBLAS and has_gpu():
        return "" if cublas_options() else NO_CUBLAS
    try:
        if rung.source.suffix == ".c":
            c_compiler()
        elif rung.source.suffix == ".cu" and not has_gpu():
            cpp_compiler()
    except CompileError as error:
        return error.fact
    return ""


@cache
def cublas_options() -> tuple[str, ...]:
    """Returns nvcc's options for cuBLAS in its toolkit or in the package nvidia-cublas; () without either."""
    program = "#include <cublas_v2.h>\nint main() { return (int)cublasGetVersion(0, 0); }"
    found = find_spec("nvidia")
    headers = [path for root in (found.submodule_search_locations or () if found else ())
               for path in Path(root).glob("*/include/cublas_v2.h")]  # fmt: skip
    folders = [(header.parent, library) for header in headers for library in header.parents[1].glob("lib/libcublas.so*")]
    choices = [("-lcublas",), *(
        (f"-I{include}", f"-L{library.parent}", f"-l:{library.name}", "-Xlinker", f"-rpath={library.parent}")
        for include, library in folders
    )]  # fmt: skip
    for options in choices:
        command = ["nvcc", "-x", "cu", "-", *options, "-o", os.devnull]
        if not subprocess.run(command, input=program, capture_output=True, text=True, check=False).returncode:
            return options
    return ()


def c_compiler() -> str:
    """Returns the path of the C compiler.

    Raises:
      CompileError: PATH has no C compiler.
    """
    return find_compiler("ladder", "C", "CC", ("cc", "gcc", "clang"))


def cpp_compiler() -> str:
    """Returns the path of the C++ compiler.

    Raises:
      CompileError: PATH has no C++ compiler.
    """
    return find_compiler("ladder", "C++", "CXX", ("c++", "g++", "clang++"))


# ---- building and running ----
def built(rung: Rung, folder: Path, source: Path | None = None) -> list[str]:
    """Compiles a program if needed, and returns the command that runs it; `source` replaces the rung's file.

    Raises:
      CompileError: the compiler rejected it.
    """
    source = source or rung.source
    if source.suffix == ".py":
        return [sys.executable, str(source)]
    target = folder / f"{source.stem}_{rung.name}"
    command = compile_command(rung, source, target)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"ladder: rung {rung.name}: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return [str(target)]


def compile_command(rung: Rung, source: Path, target: Path) -> list[str]:
    """Returns the command that compiles a rung in C or CUDA; CUDA for the simulator if there is no GPU."""
    if source.suffix == ".cu" and has_gpu():
        libraries = cublas_options() if rung.file == CUBLAS else ()
        return ["nvcc", "-O3", "-arch=native", *rung.options, f"-I{PROGRAMS}", str(source), *libraries, "-o", str(target)]
    if source.suffix == ".cu":
        folders = [f"-I{folder}" for folder in (PROGRAMS, DEVICES, DEVICES / "cuda")]
        defined = [option for option in rung.options if option.startswith("-D")]  # the others are nvcc's
        return [cpp_compiler(), *SIMULATED, *defined, *folders, "-x", "c++", str(source), "-o", str(target)]
    return [c_compiler(), *rung.options, f"-I{PROGRAMS}", str(source), "-o", str(target), "-lm"]


class Outcome(Record):
    """The report of one run.

    epochs, steps:  mean losses of epochs; losses of the first steps
    accuracy:       share of correct test images, in percent; None without an epoch
    weights:        checksum of the final weights
    seconds:        seconds of each phase
    """

    epochs: tuple[float, ...]
    steps: tuple[float, ...]
    accuracy: float | None
    weights: str
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Seconds of all phases except loading."""
        return sum(seconds for phase, seconds in self.seconds.items() if phase != "load")


def run(
    rung: Rung, command: Sequence[str], problem: Path, epochs: int,
    steps: int = 0, dump: Path | None = None, threads: int = 1,
) -> Outcome:  # fmt: skip
    """Runs a rung and returns its report.

    Raises:
      DataError: the program ended with an error, or printed no report.
    """
    words = [*command, str(problem), str(epochs), str(steps), *([str(dump)] if dump else [])]
    device = {"PICOGRAD_DEVICE": rung.device} if rung.device else {}
    return read_report(rung.name, start(words, f"rung {rung.name}", dict.fromkeys(THREADS, str(threads)) | device))


def start(words: Sequence[str], what: str, variables: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end, with picograd and the ladder's programs importable, and returns its output.

    Raises:
      DataError: the program ended with an error.
    """
    paths = os.pathsep.join(filter(None, (str(PROGRAMS), str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, **(variables or {}), "PYTHONPATH": paths}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise DataError(f"ladder: {what} ended with status {done.returncode}:\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def read_report(name: str, text: str) -> Outcome:
    """Parses the output of a program.

    Raises:
      DataError: a line is missing.

    >>> read_report("c", "epoch 1 loss 0.5\\ntest accuracy 90.0 %\\nweights 0a\\nseconds load 0.1 copy 2.0").total
    2.0
    """
    lines = [line.split() for line in text.splitlines()]
    first = {line[0]: line for line in lines if line}
    wanted = ("weights", "seconds", *(["test"] if "epoch" in first else []))
    missing = [word for word in wanted if word not in first]
    if missing:
        raise DataError(f"ladder: rung {name} printed no line that begins with {missing[0]!r}.")
    seconds = first["seconds"][1:]
    return Outcome(
        tuple(float(line[3]) for line in lines if line[:1] == ["epoch"]),
        tuple(float(line[3]) for line in lines if line[:1] == ["step"]),
        float(first["test"][2]) if "test" in first else None,
        first["weights"][1],
        {phase: float(value) for phase, value in zip(seconds[::2], seconds[1::2])},
    )
