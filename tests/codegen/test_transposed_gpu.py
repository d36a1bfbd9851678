"""Operands that lie across the order of the result, on a GPU: brought tile by tile, and accesses of neighbours touch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import elementwise
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.evaluator import evaluate
from picograd.ir.build import cast, expand, flip, permute, reshape
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.spec import verify_program
from picograd.ir.stages import Program
from picograd.ir.statements import Alloc, Barrier, For, Let, Load, Store, walk
from picograd.road import create_schedule, lower
from tests.codegen.test_transposed_cpu import AS_BEFORE, TURNED, param, values_for
from tests.gpu_programs import run
from tests.host_compilers import needs_compiler
from tests.same_meaning import GPU_TARGET, check_same_meaning

IMAGES, CUBE = param(0, 3, 33, 5, 8), param(0, 34, 33, 35)
SHORT = {"shorter than a tile": permute(param(0, 31, 100), (1, 0)), "narrower": permute(param(0, 100, 31), (1, 0))}
DIRECT = {**AS_BEFORE, **SHORT, "first and last": TURNED["first and last"], "round": TURNED["round"]}
MORE = {
    **{name: root for name, root in TURNED.items() if name not in DIRECT},
    "all round": permute(CUBE, (1, 2, 0)),
    "first and last of three": permute(CUBE, (2, 1, 0)),
    "channels last": permute(IMAGES, (0, 2, 3, 1)) * 2,
    "channels first": permute(reshape(IMAGES, (3, 5, 8, 33)), (0, 3, 1, 2)),
    "whole tiles": permute(param(0, 64, 96), (1, 0)),
    "heads": permute(reshape(param(0, 2, 40, 48), (2, 40, 3, 16)), (0, 2, 3, 1)),
    "sides": permute(param(0, 48, 48), (1, 0)) + param(0, 48, 48),
    "backwards": flip(permute(param(0, 64, 96), (1, 0)), (0,)),
    "bfloat16": cast(permute(param(0, 65, 64, dtype=dtypes.bfloat16), (1, 0)), dtypes.float32)
    + expand(param(1, 1, 65), (64, 65)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "ELEMENTS_MIN", 256)


def program_of(root: Op) -> Program:
    (item,) = create_schedule([root]).kernel_items()
    return lower(item.kernel, TARGET)


def copies_of(program: Program) -> list[Op]:
    """Returns the shared memory of a program."""
    statements = [one for phase in program.phases for one in walk(phase)]
    return [one.memory for one in statements if isinstance(one, Alloc) and one.memory.arg[2] is MemorySpace.SHARED]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", ["and as it lies", "channels last", "int8"])
def test_it_means_the_same_at_every_level(name: str) -> None:
    check_same_meaning([MORE[name]], values_for(MORE[name]), targets=(GPU_TARGET,), device=False)


@pytest.mark.variants(every=5)
@needs_compiler
@pytest.mark.parametrize("name", [*MORE, *DIRECT])
def test_the_simulator_runs_them(name: str) -> None:
    root = {**MORE, **DIRECT}[name]
    program, given = program_of(root), values_for(root)
    verify_program(program, after="lower")
    binary = hostcxx.compile_source(render(program, TARGET), TARGET)
    expected = evaluate([root], given)[0]
    for order in ORDERS:
        found = np.zeros(root.numel, root.dtype.numpy)
        arrays = iter(given.values())
        memory = [next(arrays).ravel() if p.role == "in" else found for p in program.params]
        device = CudaSimDevice(order, seed=3)
        run(device, device.load(binary), memory)
        np.testing.assert_array_equal(found.reshape(root.shape), expected)


# ---- form ----
ARITHMETIC: dict[OpCode, Callable[[int, int], int]] = {
    OpCode.ADD: lambda a, b: a + b, OpCode.MUL: lambda a, b: a * b, OpCode.IDIV: lambda a, b: a // b,
    OpCode.MOD: lambda a, b: a % b,
}  # fmt: skip


def addresses(program: Program) -> list[tuple[Op, list[int]]]:
    """Returns for each access to memory or shared memory where the first 32 threads of a block go."""
    statements = [one for phase in program.phases for one in walk(phase)]
    named = {one.var: one.value for one in statements if isinstance(one, Let)}

    def value(op: Op, thread: int) -> int:
        if op.code is OpCode.RANGE:
            return thread if op.arg[1] is AxisKind.BLOCK else 0
        if op.code is OpCode.CONST:
            return int(op.arg)
        return value(named[op], thread) if op in named else ARITHMETIC[op.code](*(value(s, thread) for s in op.src))

    accesses = [one for one in statements if isinstance(one, Load | Store)]
    return [(one.memory, [value(one.index, thread) for thread in range(32)]) for one in accesses]


@pytest.mark.parametrize("name", [name for name in MORE if name != "one row repeated"])
def test_neighbours_touch_what_lies_side_by_side(name: str) -> None:
    program = program_of(MORE[name])
    assert copies_of(program)
    for memory, found in addresses(program):
        if memory.code is OpCode.PARAM:
            assert sorted(found) == list(range(min(found), min(found) + 32))
            assert found in (sorted(found), sorted(found)[::-1])
        elif memory.dtype.itemsize == 4:
            assert len({place % 32 for place in found}) == 32, "two threads meet in a bank of shared memory"


def test_nothing_is_guarded_and_all_threads_reach_the_barrier() -> None:
    for root in MORE.values():
        program = program_of(root)
        (grid,) = (one for one in program.phases[0] if isinstance(one, For))
        (block,) = (one for one in grid.body if isinstance(one, For))
        assert program.num_guards == 0 and any(isinstance(one, Barrier) for one in block.body)


def test_only_what_lies_across_is_brought() -> None:
    assert len(copies_of(program_of(MORE["and as it lies"]))) == 1
    assert len(copies_of(program_of(MORE["two turned"]))) == 2
    for root in DIRECT.values():
        assert not copies_of(program_of(root))


def test_so_many_are_brought_as_shared_memory_holds() -> None:
    total = permute(param(0, 64, 64, dtype=dtypes.float64), (1, 0))
    for slot in range(1, elementwise.TILED_OPERANDS_MAX + 2):
        total = total + permute(param(slot, 64, 64, dtype=dtypes.float64), (1, 0))
    copies = copies_of(program_of(total))
    assert len(copies) == elementwise.TILED_OPERANDS_MAX
    assert sum(copy.arg[1] * copy.dtype.itemsize for copy in copies) <= 48 * 1024
