"""What the threads of a warp do together, at once: mma, ldmatrix, stmatrix, movmatrix; and elect, setmaxnreg.

In:    an Instruction, whole warps of lanes
Out:   `MATRICES`, rows of the table
Source: PTX ISA 9.0, 9.7.14.5 (mma.sync, ldmatrix, stmatrix, movmatrix), 9.7.13.14 (elect.sync), 9.7.20.5 (setmaxnreg)

Of a warp that is not whole those who are there wait for the others; who waits for ever makes the machine say so.
"""

from __future__ import annotations

import numpy as np

from tests.ptx import fragments
from tests.ptx.lanes import WARP, Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Immediate, Instruction, Operand, Pair, PtxError, Vector, meaning

EVERYBODY = np.uint32(0xFFFFFFFF)


def whole_warps(machine: Machine, lanes: Lanes) -> tuple[Lanes, Array]:
    """Returns the lanes whose warp is complete, and the numbers of the others, who ask again."""
    whole, missing = machine.whole_warps(lanes, np.full(len(lanes), EVERYBODY))
    return whole, machine.retry(missing)


def parts_of(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if isinstance(operand, Vector) else (operand,)


def fragment(machine: Machine, operand: Operand, kind: str, lanes: Lanes) -> Array:
    """Returns registers of whole warps, (W, 32, registers)."""
    values = [machine.read(part, kind, lanes) for part in parts_of(operand)]
    return np.stack(values, axis=1).reshape(-1, WARP, len(values))


def write_fragment(machine: Machine, operand: Operand, values: Array, lanes: Lanes) -> None:
    parts = parts_of(operand)
    if len(parts) != values.shape[2]:
        raise PtxError(f"{len(parts)} registers for {values.shape[2]}.")
    for i, part in enumerate(parts):
        machine.write(part, np.ascontiguousarray(values[:, :, i]).reshape(-1), lanes)


def mma(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    name = ".".join(instruction.modifiers[3:])
    if name not in fragments.WARP_PRODUCTS:
        raise PtxError(f"{name} is a product that is not known here.")
    lanes, missing = whole_warps(machine, lanes)
    if len(lanes):
        result, lhs, rhs, acc = instruction.operands
        factors = (fragment(machine, each, "b32", lanes) for each in (lhs, rhs))
        sums = fragments.multiply(name, *factors, fragment(machine, acc, "f32", lanes))
        write_fragment(machine, result, sums, lanes)
    return missing


# ---- matrices of 8 x 8 ----
def count_of(instruction: Instruction) -> int:
    return next(count for count in (1, 2, 4) if instruction.has(f"x{count}"))


def rows_of(machine: Machine, instruction: Instruction, operand: Operand, lanes: Lanes) -> tuple[str, Lanes, Array]:
    """Returns the space, the threads that say where a row lies, and where: addresses that are multiples of 16."""
    space = "shared" if any(part.startswith("shared") for part in instruction.modifiers) else ""
    those = lanes.where(lanes.pick(machine.layout.place) < 8 * count_of(instruction))
    addresses = machine.addresses(operand, those)
    machine.memory.check_aligned(addresses, 16, those, "a row in shared")
    return space, those, addresses


def ldmatrix(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    lanes, missing = whole_warps(machine, lanes)
    if len(lanes):
        result, operand = instruction.operands
        space, those, addresses = rows_of(machine, instruction, operand, lanes)
        words = [machine.memory.load(space, addresses + np.uint64(half), 8, those) for half in (0, 8)]
        count = count_of(instruction)
        rows = np.zeros((len(lanes) // WARP, WARP, 8), np.uint16)
        rows[:, : 8 * count] = np.stack(words, axis=1).view("<u2").reshape(-1, 8 * count, 8)
        write_fragment(machine, result, fragments.load_matrices(rows, count, instruction.has("trans")), lanes)
    return missing


def stmatrix(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    lanes, missing = whole_warps(machine, lanes)
    if len(lanes):
        operand, given = instruction.operands
        space, those, addresses = rows_of(machine, instruction, operand, lanes)
        rows = fragments.store_matrices(fragment(machine, given, "b32", lanes), instruction.has("trans"))
        words = np.ascontiguousarray(rows).view("<u8").reshape(-1, 2)
        for half in (0, 1):
            machine.memory.store(space, addresses + np.uint64(8 * half), words[:, half].copy(), those)
    return missing


def movmatrix(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    lanes, missing = whole_warps(machine, lanes)
    if len(lanes):
        result, given = instruction.operands
        turned = fragments.turn_matrix(machine.read(given, "b32", lanes).reshape(-1, WARP))
        machine.write(result, turned.reshape(-1), lanes)
    return missing


# ---- one of a warp; registers of a warpgroup ----
def elect(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    """Elects the last thread of a mask: the ISA leaves open which, so that nobody may count on the first."""
    pair, mask = instruction.operands
    assert isinstance(pair, Pair)
    able, missing = machine.whole_warps(lanes, machine.read(mask, "u32", lanes))
    if len(able):
        members = machine.read(mask, "u32", able).astype(np.float64)
        last = np.frexp(members)[1] - 1  # the highest bit
        machine.write(pair.first, last.astype(np.uint32), able)
        machine.write(pair.second, able.pick(machine.layout.place) == last, able)
    return machine.retry(missing)


def setmaxnreg(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    (count,) = instruction.operands
    if not isinstance(count, Immediate) or count.value not in range(24, 257, 8):
        raise PtxError("setmaxnreg takes 24 to 256 registers, a multiple of 8.")
    return whole_warps(machine, lanes)[1]


MATRICES = {
    "mma.sync.aligned": meaning(mma, "m16n8k16 m16n8k8 row col f32 f16 bf16 tf32"),
    "ldmatrix.sync.aligned.m8n8": meaning(ldmatrix, "x1 x2 x4 trans shared shared::cta b16"),
    "stmatrix.sync.aligned.m8n8": meaning(stmatrix, "x1 x2 x4 trans shared shared::cta b16"),
    "movmatrix.sync.aligned.m8n8.trans": meaning(movmatrix, "b16"),
    "elect.sync": meaning(elect, ""),
    "setmaxnreg.inc.sync.aligned": meaning(setmaxnreg, "u32"),
    "setmaxnreg.dec.sync.aligned": meaning(setmaxnreg, "u32"),
}
