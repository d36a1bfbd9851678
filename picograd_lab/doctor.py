"""`picograd doctor`: what this machine supports, and a remedy for each missing part.

In:    the processor, the folders, the installed packages, the devices
Out:   `Finding`s
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import tempfile
from pathlib import Path

import llvmlite.binding as llvm

from picograd.config import OFF, cache_folder, num_threads, setting
from picograd.devices.cuda.cublaslt import INSTALL, library_name, why_no_library
from picograd.engine.devices import hint_of, usable
from picograd.record import Record

PACKAGES = ("numpy", "llvmlite", "ml_dtypes", "msgspec", "safetensors", "rich", "tyro")
EXTRAS: dict[str, tuple[str, ...]] = {
    "cuda": ("cuda-bindings", "cuda-pathfinder", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime"),
    "cuda-libraries": ("nvidia-cublas",),
    "opencl": ("pyopencl",),
    "test": ("pytest", "hypothesis", "torch", "ruff", "mypy"),
}
# Processor features that widen vectors, widest first, with the width in bits.
VECTOR_BITS = (("avx512f", 512), ("avx2", 256), ("avx", 256), ("sse2", 128), ("neon", 128))


class Finding(Record):
    """One line of the report.

    topic:  "python", "device CUDA", ...
    ok:     False if something is missing
    text:   what was found
    hint:   a remedy if something is missing
    """

    topic: str
    ok: bool
    text: str
    hint: str = ""


def examine() -> list[Finding]:
    """Returns all findings about this machine; runs only the devices' own checks."""
    findings = [Finding("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")]
    findings += [Finding("package", True, ", ".join(f"{name} {_version(name) or 'missing'}" for name in PACKAGES))]
    findings += [Finding("llvm", True, ".".join(str(part) for part in llvm.llvm_version_info))]
    findings += [examine_processor(), examine_threads(), examine_cache(), examine_data()]
    findings += [*examine_devices(usable()), examine_library()]
    return findings + [examine_extra(name, packages) for name, packages in EXTRAS.items()]


def examine_processor() -> Finding:
    """Returns the processor's name and the width of its vectors."""
    features = llvm.get_host_cpu_features()
    widest = next(((name, bits) for name, bits in VECTOR_BITS if features.get(name)), None)
    vectors = f"{widest[1]}-bit vectors ({widest[0]})" if widest else "no vectors known"
    fused = ", fused multiply-add" if features.get("fma") or features.get("neon") else ""
    return Finding("processor", True, f"{processor_name()}, {vectors}{fused}; llvm: {llvm.get_host_cpu_name()}")


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the vendor's name of the processor, or else its architecture."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def examine_threads() -> Finding:
    """Returns the number of processors, and of threads that picograd uses."""
    text = f"{num_threads()} used, {os.cpu_count()} processors in the machine"
    return Finding("threads", True, text + (" (PICOGRAD_THREADS)" if setting("PICOGRAD_THREADS") else ""))


def examine_cache() -> Finding:
    """Returns the place of the cache, and whether it is writable."""
    folder = cache_folder()
    if folder is None and (chosen := setting("PICOGRAD_CACHE")).lower() in OFF:
        return Finding("cache", False, f"turned off (PICOGRAD_CACHE={chosen}): every process compiles again", "unset it")
    if folder is None:
        return Finding("cache", False, "this user has no home: every process compiles again", "set PICOGRAD_CACHE")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Finding("cache", True, f"{folder}, writable")
    except OSError as error:
        hint = "set PICOGRAD_CACHE to a writable folder"
        return Finding("cache", False, f"{folder}: cannot be written: {error.strerror or error}", hint)


def examine_data() -> Finding:
    """Returns the folder in which data sets are looked for first."""
    folder = setting("PICOGRAD_DATA")
    if folder and not Path(folder).is_dir():
        return Finding("data", False, f"PICOGRAD_DATA={folder}: no such folder", "make it, or unset PICOGRAD_DATA")
    return Finding("data", True, f"PICOGRAD_DATA={folder}" if folder else "PICOGRAD_DATA not set: cache, then network")


def examine_devices(reasons: dict[str, str | None]) -> list[Finding]:
    """Returns a finding for each device.

    Args:
      reasons:  by name: None for a usable device, else why it is not usable
    """
    findings = []
    for name, reason in reasons.items():
        hint = hint_of(name) if reason else ""
        findings.append(Finding(f"device {name}", reason is None, reason or "usable", hint))
    return findings


def examine_library() -> Finding:
    """Returns whether cuBLASLt can be loaded: without it tuning has one candidate fewer."""
    reason = why_no_library()
    text = reason or f"{library_name()}: a candidate of tuning on a GPU, unless PICOGRAD_PLAIN_SUMS=1"
    return Finding("library cuBLASLt", reason is None, text, f"optional: {INSTALL}" if reason else "")


def examine_extra(name: str, packages: tuple[str, ...]) -> Finding:
    """Returns the finding about an extra: the versions of its packages."""
    versions = {package: _version(package) for package in packages}
    text = ", ".join(f"{package} {version or 'missing'}" for package, version in versions.items())
    complete = all(versions.values())
    return Finding(f"extra [{name}]", complete, text, "" if complete else f"pip install 'picograd[{name}]'")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
