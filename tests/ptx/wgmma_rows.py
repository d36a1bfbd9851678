"""Matrix instructions of a warpgroup as rows of the table.

In:    an Instruction, whole warps of lanes
Out:   `WARPGROUPS`
Source: PTX ISA 9.0, 9.7.15 (wgmma.mma_async, fence, commit_group, wait_group)
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tests.ptx.async_rows import number_in
from tests.ptx.background import background_of
from tests.ptx.lanes import WARP, Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.matrix_rows import parts_of, whole_warps
from tests.ptx.module import Instruction, Operand, PtxError, Register, meaning
from tests.ptx.warpgroups import DEPTHS, Names, Step, WarpProducts


class OfWarp:
    """The registers of one warp."""

    def __init__(self, machine: Machine, lanes: Array):
        self.machine, self.lanes = machine, lanes

    def read(self, names: Names) -> Array:
        return np.stack([self.machine.registers.of(name)[self.lanes] for name in names], axis=1)

    def write(self, names: Names, values: Array) -> None:
        for i, name in enumerate(names):
            self.machine.registers.of(name)[self.lanes] = values[:, i]


def names_of(operand: Operand) -> Names:
    return tuple(part.name for part in parts_of(operand) if isinstance(part, Register))


def for_warps(machine: Machine, lanes: Lanes, act: Callable[[WarpProducts, OfWarp, Lanes], None]) -> Array:
    """Has each whole warp act; returns who waits for others of its warp."""
    lanes, missing = whole_warps(machine, lanes)
    for at in lanes.at.reshape(-1, WARP):
        own = background_of(machine).warp(int(machine.layout.warp[at[0]]), int(at[0]))
        act(own, OfWarp(machine, at), Lanes(at, False))
    return missing


def fence(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    if "wgmma registers" not in machine.state:
        steps = [each for each in machine.function.instructions if each.opcode.startswith("wgmma.mma_async")]
        given = [operand for step in steps for operand in step.operands[:2] if len(parts_of(operand)) > 1]
        machine.state["wgmma registers"] = tuple({name: None for operand in given for name in names_of(operand)})
    names = machine.state["wgmma registers"]
    return for_warps(machine, lanes, lambda own, registers, _: own.fence(registers, names))


def mma_async(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    shape = re.fullmatch(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.f32\.(\w+)\.(\w+)", instruction.opcode)
    if shape is None or shape[3] != shape[4] or DEPTHS.get(shape[3]) != int(shape[2]):
        raise PtxError(f"{instruction.opcode} is a product that is not known here.")
    columns, kind = int(shape[1]), shape[3]
    result, lhs, rhs, scale, *rest = instruction.operands
    names = names_of(result)
    if columns % 8 or not 8 <= columns <= 256 or len(names) != columns // 2:
        raise PtxError(f"a product of {columns} columns with {len(names)} accumulators.")
    signs, turned = [number_in(each) for each in rest[:2]], [number_in(each) for each in rest[2:]]
    held = names_of(lhs) if len(parts_of(lhs)) > 1 else ()
    if len(held) not in (0, 4):
        raise PtxError(f"a left operand of {len(held)} registers; it has four pairs.")
    if len(rest) != (2 if kind == "tf32" else 3 if held else 4) or not {*signs} <= {1, -1} or not {*turned} <= {0, 1}:
        raise PtxError("two signs of 1 or -1, and of 16 bits for operands in shared memory 0 for K-major, else 1.")

    def start(own: WarpProducts, registers: OfWarp, lanes: Lanes) -> None:
        left = 0 if held else same_in(lanes, machine.read(lhs, "b64", lanes))
        right = same_in(lanes, machine.read(rhs, "b64", lanes))
        adds = bool(same_in(lanes, machine.read(scale, "pred", lanes)))
        flags = (signs[0], signs[1]), (not held and turned[:1] == [1], turned[-1:] == [1])
        own.start(registers, Step(names, columns, kind, left, right, adds, *flags, held))

    return for_warps(machine, lanes, start)


def same_in(lanes: Lanes, values: Array) -> int:
    if (values != values[0]).any():
        raise PtxError("the threads of a warp say different things to one wgmma.")
    return int(values[0])


def commit(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    return for_warps(machine, lanes, lambda own, *_: own.close())


def wait(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    but = number_in(instruction.operands[0])
    return for_warps(machine, lanes, lambda own, registers, _: own.wait(registers, but))


SHAPES = " ".join(f"m64n{columns}k{depth}" for columns in range(8, 257, 8) for depth in (16, 8))
WARPGROUPS = {
    "wgmma.fence.sync.aligned": meaning(fence, ""),
    "wgmma.mma_async.sync.aligned": meaning(mma_async, f"{SHAPES} f32 f16 bf16 tf32"),
    "wgmma.commit_group.sync.aligned": meaning(commit, ""),
    "wgmma.wait_group.sync.aligned": meaning(wait, ""),
}
