"""Processes with threads that help: how they start, end, fork, are interrupted, and how many threads they have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 120  # for a process that hangs; none takes that long
START = """
import os, signal, sys, threading, time
import numpy as np
import picograd as pg
from picograd import Tensor
from picograd.devices.cpu.pool import pool

def work(n=512):
    a = Tensor(np.ones((n, n), np.float32))
    return float((a @ a).sum().item())

assert work() == 512.0 ** 3
"""


def start(code: str, threads: int | None = 2) -> subprocess.Popen[str]:
    """Starts a process that has run a plan with helpers and then runs `code`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PICOGRAD_") or k == "PICOGRAD_CACHE"}
    environment = {**kept, "PYTHONPATH": str(ROOT), "PICOGRAD_DEVICE": "CPU"}
    if threads is not None:
        environment["PICOGRAD_THREADS"] = str(threads)
    return subprocess.Popen(
        [sys.executable, "-c", START + code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()  # or its pipes stay open, and trouble a later test
        raise
    return process.returncode, out.strip(), err


# ---- the end of a process ----
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("assert pool.helpers", 0),
        ("assert pool.helpers; sys.exit(3)", 3),
        ("raise KeyError('mine')", 1),
        ("threading.Thread(target=lambda: (work(), sys.exit(5))).start(); work()", 0),
        ("threading.Thread(target=work, daemon=True).start()", 0),
        ("pool.stop(); work()", 0),
    ],
    ids=["the end of its code", "sys.exit", "an exception", "sys.exit in a thread", "a daemon at work", "after a stop"],
)
def test_a_process_with_helpers_ends(code: str, status: int) -> None:
    got, _, err = finish(start(code))
    assert got == status, err
    assert ("KeyError: 'mine'" in err) == ("mine" in code)
    assert "Fatal" not in err


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_a_signal_that_ends_a_process_ends_it_in_the_middle_of_a_plan(how: str) -> None:
    code = "print('ready', flush=True)\nwhile True: work(1024)"
    process = start(code)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, how))
    assert finish(process)[0] == -getattr(signal, how)


# ---- Ctrl-C ----
def test_ctrl_c_stops_a_plan_of_an_hour_and_leaves_state_as_before() -> None:
    """The signal comes when the plan has begun; a process that does not stop is one that hangs."""
    code = """
from picograd.devices.cpu import runner

lead = runner._lead_elsewhere
def interrupted(*arguments):
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    lead(*arguments)

state, x = Tensor([7.0]), Tensor(np.zeros((512, 512), np.float32))
long = pg.jit(lambda x: state + pg.scan(lambda total, _: ((total @ x) * 0.5, None), x, length=10**6)[0].sum())
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
runner._lead_elsewhere = interrupted
try:
    long(x)
except KeyboardInterrupt:
    print("stopped", state.item(), (Tensor([1.0]) + 1).item(), work())
"""
    status, out, err = finish(start(code))
    assert status == 0, err
    assert out == f"stopped 7.0 2.0 {512.0**3}"


# ---- how many threads ----
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not say which processors may be used")
def test_a_process_on_one_processor_has_no_helpers() -> None:
    code = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
pool.stop()
work(384)
print(len(pool.helpers), pg.config.num_threads())
"""
    status, out, err = finish(start(code, threads=None))
    assert (status, out) == (0, "0 1"), err


def test_threads_are_as_many_as_asked_for() -> None:
    for threads in (1, 3):
        status, out, err = finish(start("pool.stop(); work(256); print(len(pool.helpers))", threads))
        assert (status, out) == (0, str(threads - 1)), err


# ---- forks ----
def test_children_of_a_fork_and_their_parent_run_plans_side_by_side() -> None:
    code = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads is what is tested
step = pg.jit(lambda x: (x @ x).sum())
x = Tensor(np.ones((256, 256), np.float32))
for _ in range(3):
    assert step(x).item() == 256.0 ** 3
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        good = all(step(x).item() == 256.0 ** 3 and work(256) == 256.0 ** 3 for _ in range(5))
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if work() == 512.0 ** 3 else 1)
        os._exit(0 if good and os.waitpid(grandchild, 0)[1] == 0 else 1)
    children.append(child)
assert all(step(x).item() == 256.0 ** 3 for _ in range(5))
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
print("done")
"""
    status, out, err = finish(start(code))
    assert (status, out) == (0, "done"), err


def test_a_fork_while_helpers_look_for_a_plan() -> None:
    """The child has no helpers, whatever those of its parent did; it starts its own. The parent keeps its."""
    code = """
import warnings
from picograd.devices.cpu import pool as cpu_pool
warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads is what is tested
cpu_pool.num_processors = lambda: 2.0  # so that helpers look for plans wherever this runs
step = pg.jit(lambda x: (x @ x).sum())
x = Tensor(np.ones((256, 256), np.float32))
good = lambda: step(x).item() == 256.0 ** 3
pool.stop()
assert all(good() for _ in range(3)) and len(pool.helpers) == 1
for turn in range(30):
    time.sleep(turn * 1e-5)  # from looking to sleeping
    assert good()
    child = os.fork()
    if child == 0:
        alone = not pool.helpers
        os._exit(0 if alone and good() and good() and len(pool.helpers) == 1 else 1)
    assert good()
    assert os.waitpid(child, 0)[1] == 0
assert len(pool.helpers) == 1 and pool.helpers[0].is_alive()
print("done")
"""
    status, out, err = finish(start(code))
    assert (status, out) == (0, "done"), err
