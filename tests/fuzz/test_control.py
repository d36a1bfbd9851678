"""Loops and calls in the graph mean what they mean in Python: values, gradients of first and second order, and state.

The reference is the same program unrolled, computed by the evaluator. A failing program is shrunk and printed. To look
for more than a test run has time for:  python -m tests.fuzz.test_control 1000 2000 [CPU|NUMPY|JIT ...]
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from tests.fuzz.control import Maker, Program, run, shrink
from tests.fuzz.seeds import run_seeds

Array = np.ndarray[Any, Any]
SEEDS = range(40)
ORDERS = ("values", "gradients", "second derivatives", "forward", "forward over reverse", "state")


class Unusable(Exception):
    """The program's numbers are too large, or nothing of it can be differentiated."""


def program_of(seed: int) -> Program:
    return Maker(np.random.default_rng(seed)).program()


def evaluate(program: Program, control: bool, way: str) -> dict[str, list[Array | None]]:
    """Returns what a program computes, by order of its derivatives.

    way:  a device, or JIT: by jit on the CPU, the last of three calls that begin alike
    """
    os.environ["PICOGRAD_DEVICE"] = "CPU" if way == "JIT" else way
    leaves = [_leaf(program.shapes[n], n).requires_grad_() for n in program.leaves]
    states = [_leaf(program.shapes[n], n) for n in program.states]
    start = [state.clone().realize() for state in states]

    def derivatives() -> list[list[Tensor | None]]:
        return _derivatives(program, control, leaves, states)

    function = pg.jit(derivatives) if way == "JIT" else derivatives
    for _ in range(3 if way == "JIT" else 1):
        for state, value in zip(states, start):
            state.detach().assign(value)
        pg.manual_seed(5)
        found = function()
    arrays = {order: [None if t is None else t.numpy() for t in part] for order, part in zip(ORDERS, found)}
    return {**arrays, "state": [state.detach().numpy() for state in states]}


def _leaf(shape: tuple[int, ...], number: int) -> Tensor:
    return Tensor(np.random.default_rng(number).uniform(-1, 1, shape)).realize()


def _weights(like: Tensor, number: int) -> Tensor:
    return Tensor(np.random.default_rng(100 + number).uniform(-1, 1, like.shape))


def _dot(tensors: Sequence[Tensor | None]) -> Tensor | None:
    parts = [(t * _weights(t, i)).sum() for i, t in enumerate(tensors) if t is not None]
    return sum(parts[1:], parts[0]) if parts else None


def _derivatives(program: Program, control: bool, leaves: list[Tensor], states: list[Tensor]) -> list[list[Tensor | None]]:
    env = dict(zip((*program.leaves, *program.states), (*leaves, *states)))
    results = run(program.block, env, control)
    found: list[list[Tensor | None]] = [list(results), [], [], [], []]
    loss = _dot([*results, *states])
    if loss is None or not loss.requires_grad:
        return found
    found[1] = list(pg.grad(loss, leaves, create_graph=True, allow_unused=True))
    tangents = [_weights(leaf, 50 + i) for i, leaf in enumerate(leaves)]
    found[3] = [pg.jvp(loss, leaves, tangents)]
    slope = _dot(found[1])
    if slope is not None and slope.requires_grad:
        found[2] = list(pg.grad(slope, leaves, allow_unused=True))
        found[4] = [pg.jvp(slope, leaves, tangents)]
    return [[None if t is None else t.detach() for t in part] for part in found]


def difference(program: Program, way: str) -> str | None:
    """Returns how control flow in the graph differs from Python's, or None."""
    with np.errstate(all="ignore"):
        expected = evaluate(program, control=False, way="NUMPY")
        if any(a is not None and not np.all(np.abs(a) <= 1e6) for part in expected.values() for a in part):
            raise Unusable
        found = evaluate(program, control=True, way=way)
    for order in ORDERS:
        pairs = [*zip(found[order], expected[order])]
        if len(found[order]) != len(expected[order]):  # by way of zeros or not at all
            pairs = [(a, None) for a in found[order]] or [(None, b) for b in expected[order]]
        for i, (a, b) in enumerate(pairs):
            problem = _unequal(a, b)
            if problem is not None:
                return f"{order} {i}: {problem}"
    return None


def _unequal(a: Array | None, b: Array | None) -> str | None:
    """None is no gradient, and equal to zeros."""
    if a is None or b is None:
        other = a if b is None else b
        return None if other is None or not np.any(other) else f"{a} instead of {b}"
    if a.shape != b.shape:
        return f"shape {a.shape} instead of {b.shape}"
    # 1e-16 a rounding; second derivatives of nested loops lose up to 1e6 of that by cancellation
    bound = 1e-9 * (1.0 + np.abs(b).max(initial=0.0))
    return None if np.abs(a - b).max(initial=0.0) <= bound else f"{a!r} instead of {b!r}"


def problem_of(program: Program, way: str) -> str | None:
    try:
        return difference(program, way)
    except Unusable:
        return None
    except Exception:
        return traceback.format_exc(limit=-6)


def kind_of(problem: str) -> str:
    """What stays the same while a failing program is shrunk."""
    return problem.strip().splitlines()[-1].split(":")[0].rstrip("0123456789 ") if "Traceback" in problem else "different"


def check(seed: int, way: str) -> None:
    program = program_of(seed)
    problem = problem_of(program, way)
    if problem is None:
        return

    def fails(smaller: Program) -> bool:
        found = problem_of(smaller, way)
        return found is not None and kind_of(found) == kind_of(problem)

    least = shrink(program, fails)
    raise AssertionError(f"seed {seed}, {way}:\n{least}\n{problem_of(least, way)}\nat first: {problem}")


@pytest.mark.variants(every=4)
@pytest.mark.req("G6")
@pytest.mark.parametrize("seed", SEEDS)
def test_control_flow_in_the_graph_means_what_it_means_in_python(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")  # and put back afterwards
    check(seed, ("NUMPY", "CPU", "NUMPY", "JIT")[seed % 4])


if __name__ == "__main__":
    run_seeds(check, "NUMPY")
