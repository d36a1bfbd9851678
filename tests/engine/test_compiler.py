"""How many kernels are compiled, and how much work that is, counted (issue 3.5)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.device import Target
from picograd.engine import compiler, realize
from picograd.engine.compiler import Compiler
from picograd.engine.devices import compiler_for
from picograd.interrupts import Latest
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Executable, Kernel
from picograd.road import create_schedule, lower
from picograd_programs.models.gpt import GPT, GPTConfig, optimizer_of
from tests.calls import calls

MOST_BINARIES = 60  # of a training step of a GPT, its start weights included


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> set[Kernel]:
    """The kernels that plans are made of, on a device where nothing is compiled and nothing runs."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NULL")
    kernels: set[Kernel] = set()

    def executables(self: Compiler, wanted: Sequence[Kernel], tune: bool) -> list[Executable]:
        kernels.update(wanted)
        return [Executable(kernel.name, kernel.params, kernel.variables, (), ()) for kernel in wanted]

    monkeypatch.setattr(Compiler, "executables", executables)
    monkeypatch.setattr(realize, "_plans", Latest(1024))
    return kernels


def gpt_step(layers: int, clip: bool, asked_for: set[Kernel]) -> tuple[set[Kernel], set[Kernel]]:
    """The kernels of nanoGPT's CPU configuration, but for the number of layers: to start, and in a training step."""
    asked_for.clear()
    model = GPT(GPTConfig(vocabulary=65, block=64, layers=layers, heads=4, width=128, bias=False))
    optimizer = optimizer_of(model, lr=1e-3)
    parameters = list(model.parameters())
    tokens = Tensor(np.zeros((12, 64), np.int64))
    start = set(asked_for)

    @pg.jit
    def step(tokens_BT: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(tokens_BT, tokens_BT)[1]
        loss.backward()
        if clip:
            pg.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    step(tokens)
    return start, asked_for - start


@pytest.mark.parametrize("clip", [False, True])
def test_a_gpt_takes_few_binaries(clip: bool, asked_for: set[Kernel]) -> None:
    start, step = gpt_step(4, clip, asked_for)
    assert len(start) + len(step) <= MOST_BINARIES


def test_more_layers_take_no_more_binaries(asked_for: set[Kernel]) -> None:
    _, step = gpt_step(4, False, asked_for)
    assert gpt_step(7, False, asked_for)[1] == step


def test_equal_start_weights_are_drawn_by_one_kernel(asked_for: set[Kernel]) -> None:
    weights = [Tensor.randn(17, 33) for _ in range(9)]
    pg.realize(weights)
    assert len(asked_for) == 1


# ---- work ----
def chain(length: int) -> Kernel:
    x = value = Op(OpCode.PARAM, pg.float32, (), (0, (64, 48)))
    for i in range(length):
        factor = Op(OpCode.EXPAND, pg.float32, (const(1.0 + i, pg.float32),), (64, 48))
        value = Op(OpCode.ADD, pg.float32, (Op(OpCode.MUL, pg.float32, (value, factor)), x))
    return create_schedule([value]).items[0].kernel


def columns(length: int) -> Kernel:
    """A sum whose index is made of `length` parts."""
    x = Op(OpCode.PARAM, pg.float32, (), (0, (3,) * length))
    turned = Op(OpCode.PERMUTE, pg.float32, (x,), tuple(reversed(range(length))))
    return create_schedule([Op(OpCode.ADD, pg.float32, (turned, x))]).items[0].kernel


@pytest.mark.parametrize(("make", "short", "most"), [(chain, 10, 5.0), (columns, 3, 10.0)])
def test_lowering_takes_work_in_proportion_to_length(make: Callable[[int], Kernel], short: int, most: float) -> None:
    target = Target("CPU", "llvm", "any", vector_bytes=32)
    kernels = [make(short), make(4 * short)]
    lower(kernels[0], target)  # tables are made now
    few, many = [calls(lambda kernel=kernel: lower(kernel, target)) for kernel in kernels]
    assert many <= most * few


def test_copies_of_an_unrolled_loop_cost_little_each() -> None:
    """A register tile of 12 rows: each of its 24 vectors is a multiplication, no new analysis of its index."""
    compiler = compiler_for("NULL")
    a, b = (Op(OpCode.PARAM, pg.float32, (), (slot, (96, 96))) for slot in (0, 1))
    kernel = create_schedule([Op(OpCode.MATMUL, pg.float32, (a, b))]).items[0].kernel
    program = lower(kernel, compiler.device.target)
    text = compiler.backend.render(program, compiler.device.target).text
    made = calls(lambda: lower(kernel, compiler.device.target))
    assert made <= 80 * text.count("\n"), (made, text.count("\n"))


@pytest.mark.parametrize("was_on", [True, False])
def test_no_garbage_is_looked_for_while_a_plan_is_made(
    was_on: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def noting(function: Callable[..., object]) -> Callable[..., object]:
        return lambda *args: (seen.append(gc.isenabled()), function(*args))[1]

    for name in ("schedule_graphs", "source_of"):
        monkeypatch.setattr(compiler, name, noting(getattr(compiler, name)))
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))
    before, value = gc.isenabled(), Tensor(np.arange(17.0))
    try:
        (gc.enable if was_on else gc.disable)()
        (value * 3.25 - 5 if was_on else value / 3.25 + value).tolist()  # another form, so that it is planned
        assert seen == [False, False] and gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()
