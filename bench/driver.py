"""Starts the worker of a variant and asks it things, with a time limit.

In:    a variant's name
Out:   a `Worker`; `WorkerError` in one line when the framework cannot do what was asked
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class WorkerError(RuntimeError):
    """The framework raised, died or took too long; the message is one line without local paths."""


def environment(num_threads: int) -> dict[str, str]:
    """Returns the variables that hold every framework to `num_threads`, and put this checkout first on the path.

    Python may keep its bytecode, as it has that of every installed framework.
    """
    count = str(num_threads)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUM_CPU_THREADS", "PICOGRAD_THREADS")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    quiet = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "TORCHINDUCTOR_COMPILE_THREADS": count}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **dict.fromkeys(names, count), **quiet, "PYTHONPATH": path}


def bind_to_cores(num_threads: int) -> None:
    """Binds this process, and all it starts, to the first cores it may use; pools that count cores then agree."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:num_threads])


def without_paths(text: str) -> str:
    """Returns a message with each absolute path cut to its last part, fit to be committed."""
    return re.sub(r"(?<![\w.])(?:/[^\s/:'\"]+)+/([^\s/:'\"]+)", r"\1", text)


class Worker:
    """A process that runs one variant; `version` is its framework's.

    Raises:
      WorkerError: the framework does not start.
    """

    START_LIMIT_S = 120.0

    def __init__(self, variant: str, num_threads: int) -> None:
        self.variant = variant
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (close() closes it)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "bench.worker", variant],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env=environment(num_threads),
        )
        self.version = str(self._answer(self.START_LIMIT_S)["version"])

    def ask(self, do: str, limit_s: float = 60.0, **arguments: Any) -> dict[str, Any]:
        """Sends one request of `bench.worker.Session` and waits for its answer."""
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            raise WorkerError("the process was ended")
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        """Returns what the worker says; WorkerError where it says that it failed, or nothing in time."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                self.close()
                raise WorkerError(f"no answer in {limit_s:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(without_paths(answer["error"]))
        return answer

    def _last_words(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = [line for line in self.errors.read().splitlines() if line.strip()]
        return without_paths(f"process ended with {code}: {lines[-1] if lines else 'no message'}")[:200]

    def close(self) -> None:
        """Ends the process; does nothing the second time."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None and not stream.closed:
                with suppress(BrokenPipeError):
                    stream.close()
