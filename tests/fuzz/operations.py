"""Random chains of operations of the table: on the evaluator, on the CPU, under jit and in PyTorch they are the same.

    python -m tests.fuzz.operations --minutes 10        prints each failure, made small, as a script

Beside `picograd fuzz`, whose graphs are of Ops and which needs neither the tests nor PyTorch: here the table of operations
says what is drawn, and PyTorch what is right. A step is a sample of a row, some of whose float64 arrays lean on values
made before: array + 2 % of its range * v / (1 + |v|). So each call stays one the row accepts (a matrix regular, a
probability between 0 and 1), and no error grows on the way, however long the chain.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

import picograd as pg
from picograd import JitError, Tensor
from tests.operations.table import Array, Operation, Rng, Sample, all_operations, arrays_of, with_arrays

MOST_STEPS = 50
LEAF_SHAPES = ((), (3,), (4, 5), (2, 3, 4), (1, 7), (17,))
LARGEST = 1e6
Tensors = list[Any]


@dataclass(frozen=True)
class Step:
    """One call: a sample of a row.

    row:     as in the table, name and variant
    seed:    of its samples
    sample:  which of them
    slots:   (float64 array of the sample, value it leans on), in pairs
    output:  which of the results is the value of this step
    """

    row: str
    seed: int
    sample: int
    slots: tuple[tuple[int, int], ...]
    output: int


@dataclass(frozen=True)
class Program:
    """Leaves are the first values, each step makes the next one; roots are compared.

    seed:  of the leaves
    """

    seed: int
    leaves: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    roots: tuple[int, ...]

    def __str__(self) -> str:
        steps = "".join(f"\n        {step!r}," for step in self.steps)
        return f"Program(\n    {self.seed}, {self.leaves},\n    ({steps}\n    ),\n    {self.roots},\n)"


class Differs(AssertionError):
    """Two ways of running a program that differ."""


# ---- both libraries ----
@dataclass(frozen=True)
class Library:
    """How one of both makes tensors, calls rows and differentiates."""

    make: Callable[..., Any]
    call: Callable[[Operation], Callable[..., Any]]
    double: Any
    grad: Callable[..., Any]
    where: Callable[..., Any]


OURS = Library(Tensor, Operation.ours, pg.float64, pg.grad, pg.where)
THEIRS = Library(torch.tensor, Operation.theirs, torch.float64, torch.autograd.grad, torch.where)


@cache
def rows() -> dict[str, Operation]:
    """Returns the rows whose digits in float64 can be compared."""
    return {str(row): row for row in all_operations() if not row.is_single}


def call_of(step: Step) -> Sample:
    return rows()[step.row].samples(np.random.default_rng(step.seed))[step.sample]


def doubles(call: Sample) -> list[Array]:
    """Returns the float64 arrays of a call, in order."""
    return [array for array in arrays_of([call.args, call.kwargs]) if array.dtype == np.float64]


def fitted(value: Any, shape: tuple[int, ...], library: Library) -> Any:
    """Returns a value bounded by 1, repeated and cut to a shape."""
    value = value.to(library.double).reshape(-1)
    count, length = int(np.prod(shape)), value.shape[0]
    if not length:
        return library.make(np.zeros(shape))
    value = value / (value.abs() + 1)
    return value.repeat(-(-count // length) or 1)[:count].reshape(shape)


def tensors_in(result: Any) -> Tensors:
    """Returns the tensors of a result, in tuples or not, that have numbers."""
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in tensors_in(part)]
    return [result] if isinstance(result, (Tensor, torch.Tensor)) else []


def constants(program: Program, library: Library) -> list[list[Any]]:
    """Returns for each step the arrays of its call as tensors: made once, so that a second trace is of the same."""
    calls = (call_of(step) for step in program.steps)
    return [[library.make(array) for array in arrays_of([call.args, call.kwargs])] for call in calls]


def run(program: Program, leaves: Tensors, held: list[list[Any]], library: Library) -> Tensors:
    """Returns all values of a program."""
    values = list(leaves)
    for step, tensors in zip(program.steps, held):
        values.append(run_step(step, values, tensors, library)[step.output])
    return values


def run_step(step: Step, values: Tensors, tensors: list[Any], library: Library) -> Tensors:
    """Returns the tensors that one step makes."""
    call, lean, seen, at = call_of(step), dict(step.slots), iter(tensors), iter(range(len(tensors)))
    row = rows()[step.row]

    def operand(array: Array) -> Any:
        tensor = next(seen)
        number = next(at) if array.dtype == np.float64 else None
        if number not in lean:
            return tensor
        known = array[np.isfinite(array)]  # a NaN among them must not spread: which of several a search finds is open
        span = float(np.ptp(known)) if known.size else 0.0
        value = values[lean[number]]
        value = value if row.orders else value.detach()  # PyTorch refuses to go back through some that have no gradient
        return tensor + fitted(value, array.shape, library) * (0.02 * span)

    args, kwargs = with_arrays(call.args, operand), with_arrays(call.kwargs, operand)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensors_in(library.call(row)(*args, **kwargs))


def leaf_arrays(program: Program) -> list[Array]:
    rng = np.random.default_rng(program.seed)
    return [np.asarray(rng.uniform(-2.0, 2.0, shape)) for shape in program.leaves]


# ---- making one ----
def program_of(seed: int, most_steps: int = MOST_STEPS) -> Program:
    """Returns the program of a seed: 1 to 50 steps that PyTorch accepts, with finite values."""
    rng = np.random.default_rng(seed)
    leaves = tuple(LEAF_SHAPES[int(rng.integers(len(LEAF_SHAPES)))] for _ in range(int(rng.integers(1, 4))))
    program = Program(seed, leaves, (), ())
    values = [torch.tensor(array) for array in leaf_arrays(program)]
    wanted = 1 + seed * 7 % most_steps
    for _ in range(10 * wanted):
        if len(program.steps) == wanted:
            break
        step = step_of(rng, len(values))
        made = None if step is None else finite(step, values)
        if step is not None and made is not None:
            program = replace(program, steps=(*program.steps, step))
            values.append(made)
    others = rng.integers(0, len(values), int(rng.integers(0, 3)))
    return replace(program, roots=tuple(dict.fromkeys([len(values) - 1, *map(int, others)])))


def step_of(rng: Rng, count: int) -> Step | None:
    """Returns a call that leans on one or more of the last of `count` values; None: no array of it can."""
    name = list(rows())[int(rng.integers(len(rows())))]
    seed = int(rng.integers(1 << 30))
    calls = rows()[name].samples(np.random.default_rng(seed))
    sample = 0 if rng.random() < 0.5 else int(rng.integers(len(calls)))
    places = [i for i, array in enumerate(doubles(calls[sample])) if rng.random() < 0.8]
    back = [count - 1 - min(count - 1, int(rng.geometric(0.5)) - 1) for _ in places]
    return Step(name, seed, sample, tuple(zip(places, back)), int(rng.integers(4))) if places else None


def finite(step: Step, values: Tensors) -> Any:
    """Returns what a step makes in PyTorch; None where it raises, makes no such tensor, or NaN."""
    tensors = constants(Program(0, (), (step,), ()), THEIRS)[0]
    try:
        made = run_step(step, values, tensors, THEIRS)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    if step.output >= len(made):
        return None
    whole = made[step.output].detach().to(torch.float64)
    return whole if not whole.numel() or float(whole.abs().max()) < LARGEST else None


# ---- comparing ----
@contextmanager
def default_device(name: str) -> Iterator[None]:
    before = os.environ.get("PICOGRAD_DEVICE")
    os.environ["PICOGRAD_DEVICE"] = name
    try:
        yield
    finally:
        os.environ.pop("PICOGRAD_DEVICE")
        if before is not None:
            os.environ["PICOGRAD_DEVICE"] = before


def outcome(program: Program, library: Library) -> tuple[list[Array], list[Array]]:
    """Returns the values of the roots, and the gradients of the leaves."""
    leaves = [library.make(array) for array in leaf_arrays(program)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    values = run(program, leaves, constants(program, library), library)
    roots = [values[number] for number in program.roots]
    total = loss(roots, library)
    grads = list(library.grad(total, leaves, allow_unused=True)) if total is not None else [None] * len(leaves)
    zeros = [np.zeros(shape) for shape in program.leaves]
    return [host(root) for root in roots], [zero if grad is None else host(grad) for grad, zero in zip(grads, zeros)]


def loss(roots: Tensors, library: Library) -> Any:
    """Returns the sum of what has a gradient, each element times a number of its own; None: nothing has."""
    total = None
    for root in roots:
        if root.requires_grad:
            weights = np.random.default_rng(1).uniform(0.5, 2.0, tuple(root.shape))
            part = (root.to(library.double) * library.make(weights)).sum()
            total = part if total is None else total + part
    return total


def jitted(program: Program) -> list[Array] | None:
    """Returns the values of the roots from the third call of a jitted function; None: values decide a shape."""
    held = constants(program, OURS)
    leaves = [Tensor(array).realize() for array in leaf_arrays(program)]
    function = pg.jit(lambda *given: [run(program, list(given), held, OURS)[root] for root in program.roots])
    try:
        for _ in range(2):
            function(*leaves)
        return [host(root) for root in function(*leaves)]
    except JitError:
        return None


def host(tensor: Any) -> Array:
    return np.asarray(tensor.detach().numpy() if isinstance(tensor, Tensor) else tensor.detach().numpy(force=True))


def compare(said: str, found: list[Array], expected: list[Array], tolerance: float) -> None:
    """Raises Differs where arrays are further apart than a share of the largest number among them."""
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Differs(f"{said} {number}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}")
        x, y = a.astype(np.float64), b.astype(np.float64)
        bound = tolerance * (1.0 + float(np.abs(y).max(initial=0.0)))
        if not np.all((np.abs(x - y) <= bound) | (np.isnan(x) & np.isnan(y)) | (x == y)):
            at = np.unravel_index(int(np.nanargmax(np.abs(x - y))) if not np.isnan(x - y).all() else 0, x.shape)
            raise Differs(f"{said} {number}: {a[at]} at {tuple(map(int, at))}, not {b[at]}")


def check(program: Program) -> tuple[bool, bool]:
    """Holds values and gradients on the evaluator and on the CPU against PyTorch's, and values under jit.

    Returns whether there were gradients to compare, and whether it could be traced.

    Raises:
      Differs: they are not the same.
    """
    values, grads = outcome(program, THEIRS)
    smooth = all(np.isfinite(grad).all() for grad in grads)
    for device in ("NUMPY", "CPU"):
        with default_device(device):
            mine, slopes = outcome(program, OURS)
            compare(f"{device}: root", mine, values, 1e-8)
            if smooth:
                compare(f"{device}: gradient", slopes, grads, 1e-6)
    with default_device("CPU"):
        traced = jitted(program)
    if traced is not None:
        compare("jit: root", traced, values, 1e-8)
    return smooth and any(grad.any() for grad in grads), traced is not None


# ---- failures ----
def smallest(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Returns a program that fails, too: one root, no step that it does not need, no value it need not lean on."""
    for number in range(len(program.leaves), len(program.leaves) + len(program.steps)):
        alone = with_root(program, number)
        if fails(alone):
            program = alone
            break
    shrunk = True
    while shrunk:
        shrunk = False
        for at, step in enumerate(program.steps):
            for slot in step.slots:
                rest = replace(step, slots=tuple(other for other in step.slots if other != slot))
                steps = (*program.steps[:at], rest, *program.steps[at + 1 :])
                smaller = with_root(replace(program, steps=steps), program.roots[0]) if len(program.roots) == 1 else None
                if smaller is not None and fails(smaller):
                    program, shrunk = smaller, True
                    break
            if shrunk:
                break
    return program


def with_root(program: Program, root: int) -> Program:
    """Returns the program that computes one value, without the steps that it does not read."""
    first = len(program.leaves)
    needed = {root}
    for number in range(first + len(program.steps) - 1, first - 1, -1):
        if number in needed:
            needed |= {value for _, value in program.steps[number - first].slots}
    kept = [number for number in range(first, first + len(program.steps)) if number in needed]
    names = {**{n: n for n in range(first)}, **{number: first + i for i, number in enumerate(kept)}}
    steps = (program.steps[number - first] for number in kept)
    moved = tuple(replace(step, slots=tuple((place, names[value]) for place, value in step.slots)) for step in steps)
    return replace(program, steps=moved, roots=(names[root],))


def failure(program: Program) -> str | None:
    """Returns the script of a program that fails, made small; None: it does not."""
    kind: type[Exception] | None = None
    try:
        check(program)
    except Exception as error:
        kind = type(error)
    if kind is None:
        return None

    def fails(smaller: Program) -> bool:
        try:
            check(smaller)
        except Exception as error:
            return isinstance(error, kind)
        return False

    small = smallest(program, fails)
    try:
        check(small)
        said = "fails only at times"
    except Exception as error:
        said = f"{type(error).__name__}: {error}".replace("\n", "\n# ")
    return f"# {said}\nfrom tests.fuzz.operations import Program, Step, check\n\ncheck({small})\n"


def main() -> int:
    """Runs seeds until the time is over; returns 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    end, seed, failures = time.monotonic() + 60 * arguments.minutes, arguments.seed, 0
    while time.monotonic() < end:
        script = failure(program_of(seed))
        seed += 1
        if script is not None:
            failures += 1
            print(f"# seed {seed - 1}\n{script}", flush=True)
    print(f"{seed - arguments.seed:,} programs from seed {arguments.seed} on: {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
