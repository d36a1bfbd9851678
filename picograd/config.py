"""The environment variables picograd reads, in one table.

In:    the process environment
Out:   `setting(name)`: the text of one variable, or its default
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache, lru_cache, partial
from pathlib import Path

from picograd.errors import ArgumentError, DeviceError, warn_user

DEVICES = ("CPU", "C", "NULL", "CUDA", "PTX", "CUDASIM", "OPENCL")  # each a folder of picograd/devices, in small letters
# The stages of a graph: of whole plans first and last, and between them of each kernel.
OF_KERNELS = ("kernel", "choice", "program", "source")
STAGES = ("graph", "schedule", *OF_KERNELS, "plan")
VARIABLES: dict[str, tuple[str, str]] = {
    # name               default   meaning
    "PICOGRAD_DEVICE": ("CPU", f"device of new tensors: NUMPY, {', '.join(DEVICES)}"),
    "PICOGRAD_SHOW": ("", "comma list of stages to print: " + ", ".join(STAGES)),
    "DEBUG": ("0", f"1..{len(STAGES)}: alias of PICOGRAD_SHOW, each level shows one stage more"),
    "PICOGRAD_DUMP": ("", "folder that receives every stage of every kernel; an edited source there is used instead"),
    "PICOGRAD_VERIFY": ("0", "1: check the spec after every pass (on in the tests)"),
    "PICOGRAD_CACHE": ("", "folder of the on-disk cache; 'off' or 0 turns it off (default: ~/.cache/picograd)"),
    "PICOGRAD_CPU": ("native", "instructions of the CPU device, read once: native, avx512, avx2, sse (x86-64-v4, v3, v2)"),
    "PICOGRAD_THREADS": ("", "threads of the CPU device (default: the processors this process may use)"),
    "PICOGRAD_QUIET": ("0", "1: no progress line on the terminal when compiling takes more than a second"),
    "PICOGRAD_DATA": ("", "folder searched first for data sets"),
    "PICOGRAD_PLAIN_SUMS": ("0", "1: each result sums its own products: no Winograd, warpgroups or cuBLASLt; slower"),
    "PICOGRAD_TUNE": ("0", "1: time the candidates of each kernel when it is compiled, and remember the winner"),
}

PREFIX = "PICOGRAD_"
FOLDERS = ("PICOGRAD_DUMP", "PICOGRAD_CACHE", "PICOGRAD_DATA")
OFF = ("off", "0")  # of PICOGRAD_CACHE, in capitals too: not the name of a folder
THREADS_MAX = 1024
SWITCHES = ("PICOGRAD_VERIFY", "PICOGRAD_QUIET", "PICOGRAD_PLAIN_SUMS", "PICOGRAD_TUNE")
PROCESSORS = ("native", "avx512", "avx2", "sse")


def setting(name: str) -> str:
    """Returns the text of an environment variable of the table, or its default where it is not set, or empty.

    A folder may begin with ~, the user's home: a shell leaves it as it is behind a = or in quotes.

    >>> setting("PICOGRAD_TUNE") in ("0", "1")
    True
    """
    text = os.environ.get(name) or VARIABLES[name][0]
    return os.path.expanduser(text) if name in FOLDERS and text.startswith("~") else text


def warn_of_settings(*checks: Callable[[], object]) -> None:
    """Gives a warning for each variable that has a wrong value, or begins as picograd's do and is not one of them.

    It is given when picograd is imported; where such a value counts, it is an error.

    Args:
      checks:  further ones, which raise the error of a value
    """
    switches = [partial(is_on, name) for name in SWITCHES]
    values: list[Callable[[], object]] = [shown_stages, num_threads, processor, *switches]
    for check in [*values, *checks]:
        try:
            check()
        except (ArgumentError, DeviceError) as error:
            warn_user(error.fact + (f"\n  hint: {error.hint}" if error.hint else ""))
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in VARIABLES:
            own = ", ".join(known for known in VARIABLES if known.startswith(PREFIX))
            warn_user(f"{name}: picograd reads no variable of this name, only {own}.")


def _count(text: str) -> int | None:
    """Returns the number that a few ASCII digits write, or None: int() takes those of all languages, and any number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def users_setting(name: str) -> str | None:
    """Returns an environment variable that is not picograd's, or None: such as CC."""
    return os.environ.get(name)


def shown_stages() -> frozenset[str]:
    """Returns the stages that PICOGRAD_SHOW or DEBUG asks to print.

    Raises:
      ArgumentError: a stage has no such name.
    """
    return _stages(setting("PICOGRAD_SHOW"), setting("DEBUG"))


@lru_cache(maxsize=8)
def _stages(shown: str, level: str) -> frozenset[str]:
    named = {part.strip() for part in shown.split(",") if part.strip()}
    for name in sorted(named - {*STAGES}):
        raise ArgumentError(f"PICOGRAD_SHOW={name} is not a stage; the stages are {', '.join(STAGES)}.")
    # Other programs read DEBUG too: a value that is not a number is meant for them.
    return frozenset(named | set(STAGES[: _count(level) or 0]))


def is_on(name: str) -> bool:
    """True when a variable that is 0 or 1 is 1.

    Raises:
      ArgumentError: it is something else.
    """
    chosen = setting(name)
    if chosen not in ("0", "1"):
        raise ArgumentError(f"{name}={chosen}: must be 0 or 1.")
    return chosen == "1"


def processor() -> str:
    """Returns the kind of processor that code of the CPU device is for: a name of PROCESSORS.

    Raises:
      ArgumentError: PICOGRAD_CPU names no processor.
    """
    chosen = setting("PICOGRAD_CPU").lower()
    if chosen not in PROCESSORS:
        raise ArgumentError(f"PICOGRAD_CPU={chosen}: this is not a processor; the processors are {', '.join(PROCESSORS)}.")
    return chosen


def num_threads() -> int:
    """Returns how many threads the CPU device uses: by default one for each processor that this process is granted.

    Raises:
      ArgumentError: PICOGRAD_THREADS is not a positive number up to THREADS_MAX.
    """
    asked = setting("PICOGRAD_THREADS")
    if not asked:
        return max(1, math.ceil(num_processors()))
    count = _count(asked)
    if count is None or not 0 < count <= THREADS_MAX:
        fact = f"PICOGRAD_THREADS={asked[:20]}: must be a positive number up to {THREADS_MAX}."
        raise ArgumentError(fact, "unset it to use every processor")
    return count


def set_num_threads(number: int) -> None:
    """Sets PICOGRAD_THREADS, for this process and those that it starts."""
    os.environ["PICOGRAD_THREADS"] = str(number)


def num_processors() -> float:
    """Returns how many processors' time this process is granted: what it may run on, and its control groups' share."""
    return min(_processors(), _quota())


def _processors() -> int:
    """Returns how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _quota(cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float:
    """Returns how many processors' time the control groups of this process grant it; infinity where nothing limits it.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "cpu.max", and scheduler/sched-bwc.rst for version 1.
    """
    granted = math.inf
    for line in _text_of(cgroup).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers if controllers else root
        own = top / path.lstrip("/")
        for folder in [own, *own.parents]:  # the narrowest of its groups counts
            granted = min(granted, _limit(folder))
            if folder == top:
                break
    return granted


def _limit(folder: Path) -> float:
    """Returns the processors' time that one control group grants."""
    quota, _, period = _text_of(folder / "cpu.max").strip().partition(" ")
    if not quota:  # version 1
        quota, period = (_text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else math.inf


def _text_of(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # no control groups, or none of this version
        return ""


def cache_folder() -> Path | None:
    """Returns the folder of the on-disk cache, or None if it is turned off, or this user has no home for it."""
    chosen = setting("PICOGRAD_CACHE")
    if chosen.lower() in OFF:
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "picograd"
    except RuntimeError:  # of Path.home: no HOME, and no user of that number
        return None
