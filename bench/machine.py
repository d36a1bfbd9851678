"""What the figures were measured on: processor, memory, versions, commit. Nothing that names a host or a path.

Out:   a dictionary of plain values for the JSON
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.driver import ROOT

PACKAGES = ("numpy", "llvmlite", "torch", "jax", "jaxlib", "tinygrad", "cyllama")


def describe_machine() -> dict[str, Any]:
    """Returns processor, cores, caches, memory in bytes, system, Python and the load when asked.

    >>> describe_machine()["python"].count(".")
    2
    """
    return {
        "processor": _cpu_field("model name") or platform.processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "vector_flags": [f for f in ("avx2", "fma", "avx512f", "asimd", "sve") if f in _cpu_field("flags").split()],
        "last_level_cache": _cpu_field("cache size"),
        "memory_nbytes": _memory_nbytes(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def describe_versions() -> dict[str, str]:
    """Returns the versions of the packages that matter, of those installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def describe_commit() -> dict[str, object]:
    """Returns the commit, whether tracked files differ from it, and the time in UTC.

    Of a copy that git knows nothing of, BENCH_COMMIT says which one it is of.
    """
    return {
        "commit": _git("rev-parse", "HEAD") or os.environ.get("BENCH_COMMIT", "unknown"),
        "is_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return "unknown"


def _cpu_field(name: str) -> str:
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else []:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _memory_nbytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
