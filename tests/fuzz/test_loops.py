"""Random Python loops of ever other numbers of steps, beside PyTorch in float64: values and gradients.

A drawn step reads the state, an input and a table; its results go to lists, rows, sums. The first numbers of steps have
plans of their own, later ones share one.

To look for more than a test run has time for:  python -m tests.fuzz.test_loops 1000 1200
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.engine import realize
from tests.fuzz.seeds import run_seeds
from tests.helpers import forgotten

WIDTH = 4
OPERATIONS = (
    "z = lib.tanh({0} @ weights[{1}])", "z = lib.tanh({0}) * 0.5 + x[t] * {2}", "z = z * 0.5 + {0} * factor",
    "z = {0} * (0.1 * (t % {3}) + 0.5)", "z = cell(x[t], lib.tanh({0}))", "z = F.softmax({0}, -1)",
    "z = F.layer_norm({0}, (4,))", "z = z + {0}.detach() * 0.3", "z = lib.where(x[t] > 0.0, {0}, z)",
    "z = z + table[ids[t]]", "z = lib.linalg.solve(square + lib.diag_embed(z[0] ** 2), (z + 0.1).T).T",
)  # fmt: skip
RESULTS = (
    ("a.append(z)", "(lib.stack(a) ** 2).mean()"), ("a.append(z)", "(lib.stack(a[::-1], 1) ** 2).mean()"),
    ("b.append((z**2).sum().reshape(1))", "(lib.cat(b) * rewards[: len(b)]).sum()"),
    ("loss = loss + (z * x[t]).mean()", "loss / steps"), ("rows[t] = z", "(rows * 0.3).pow(2).sum()"),
    ("grown = lib.cat([grown, z.unsqueeze(0)])", "grown.mean()"), ("columns[:, t] = z", "(columns**3).sum()"),
    ("c.append(z.max() * 1.0)", "sum(c)"), ("pass", "(h**2).sum() + (z**2).sum()"),
)  # fmt: skip
ORDERS = ("range(steps)", "range(steps)", "reversed(range(steps))", "range(1, steps)", "range(0, steps, 2)")
SEEDS = 12


def drawn(rng: random.Random) -> tuple[str, str]:
    """Returns the source of a loop, and that of its loss."""
    lines = []
    for _ in range(rng.randint(2, 5)):
        source = rng.choice(["h", "h", "z", "x[t]", "x[t]"])
        lines.append(rng.choice(OPERATIONS).format(source, rng.randint(0, 1), rng.choice([0.1, 1.5]), rng.choice([1, 50])))
    lines.append(rng.choice(["h = z", "h = h * 0.7 + z", "h = lib.tanh(h + z)", "pass"]))
    results = rng.sample(RESULTS, rng.randint(1, 3))
    lines += dict.fromkeys([line for line, _ in results])
    lines += ["seen = z.sum().item() if t == 5 else 0"] if rng.random() < 0.2 else []
    body = "".join([f"    {line}\n" for line in lines])
    return f"for t in {rng.choice(ORDERS)}:\n{body}", " + ".join([f"({result})" for _, result in results])


def run(lib: Any, program: tuple[str, str], steps: int, seed: int) -> list[Any]:
    """Returns the loss of a program, and its gradients by all that it learns."""
    rng = np.random.default_rng(seed)
    weights = [lib.tensor(rng.standard_normal((WIDTH, WIDTH)) / 2).requires_grad_() for _ in range(2)]
    table, factor = (lib.tensor(rng.standard_normal(shape)).requires_grad_() for shape in ((5, WIDTH), (WIDTH,)))
    cell = lib.nn.GRUCell(WIDTH, WIDTH, dtype=lib.float64)
    with lib.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(lib.tensor(rng.standard_normal(tuple(parameter.shape)) / 3))
    names: dict[str, Any] = {name: lib.zeros(2, WIDTH, dtype=lib.float64) for name in ("h", "z")}
    shapes = {"rows": (steps, 2, WIDTH), "columns": (2, steps, WIDTH), "grown": (0, 2, WIDTH)}
    names |= {name: lib.zeros(*shape, dtype=lib.float64) for name, shape in shapes.items()}
    names |= {"square": lib.eye(WIDTH, dtype=lib.float64) * 3}
    names |= {"x": lib.tensor(rng.standard_normal((steps, 2, WIDTH))), "ids": lib.tensor(rng.integers(0, 5, (steps, 2)))}
    names |= {"rewards": lib.tensor(rng.standard_normal(steps)), "a": [], "b": [], "c": [], "loss": 0.0, "steps": steps}
    names |= {"lib": lib, "F": lib.nn.functional, "weights": weights, "table": table, "factor": factor, "cell": cell}
    exec(program[0], names)
    total = eval(program[1], names)
    leaves = [*weights, table, factor, *cell.parameters()]
    if total.requires_grad:
        total.backward()
    gradients = [np.zeros(tuple(leaf.shape)) if leaf.grad is None else leaf.grad.numpy() for leaf in leaves]
    return [total.detach().numpy(), *gradients]


def check(seed: int) -> None:
    """Runs a drawn loop with five numbers of steps."""
    forgotten()
    rng = random.Random(seed)
    program = drawn(rng)
    for steps in rng.sample(range(6, 32), 5):
        for found, wanted in zip(run(pg, program, steps, seed), run(torch, program, steps, seed), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8, err_msg="".join(program))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_loop_of_other_numbers_of_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(realize, "PLANS_MIN", 0)
    check(seed)


if __name__ == "__main__":
    realize.PLANS_MIN = 0
    run_seeds(check)
