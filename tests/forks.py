"""Processes of their own without the time that importing takes: forks of one that has imported, and done nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
# Imports, then forks for each line: a program, its environment and the files of what it prints. Tells how each ended.
# A fork leaves the loop, so that it ends as any program does; its collections of garbage pass over what was imported.
# This process ends with the one that writes the lines.
SERVER = """
import gc, importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
code, environment, *printed = json.loads(line)
os.environ.clear()
os.environ.update(environment)
for number, path in zip((0, 1, 2), (os.devnull, *printed)):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
sys.argv[1:] = []
exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
"""


class Forks:
    """A process that has imported some modules, for programs that run in forks of it, one after the other.

    `environment` is what it starts with, beside that of the tests; a program's own settings come on top.
    """

    def __init__(self, *modules: str, **environment: str) -> None:
        self.environment = environment
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *modules], cwd=ROOT, env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs a program; returns how it ended, and what it printed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with TemporaryDirectory() as folder:
            printed = [f"{folder}/{name}" for name in ("out", "err")]
            request = [code, {**os.environ, **self.environment, **environment}, *printed]
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            status = int(self.process.stdout.readline())
            return subprocess.CompletedProcess(code, status, *(Path(path).read_text() for path in printed))

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()


@cache
def imported() -> Forks:
    """Returns the process whose forks have imported picograd, and have computed nothing."""
    return Forks("picograd", "picograd.engine.compiler", "picograd.devices.cpu.backend", "numpy.random")
