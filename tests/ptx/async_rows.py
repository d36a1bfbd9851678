"""Copies in the background, and the mbarriers and fences that order them, as rows of the table.

In:    an Instruction, lanes
Out:   `ASYNCHRONOUS`
Source: PTX ISA 9.0, 9.7.9.25 (cp.async, cp.async.bulk.tensor), 9.7.13.15 (mbarrier), 9.7.13.4 (fence)

try_wait and test_wait say no once, for a thread's time may be up before it began; when asked again they let a thread wait
until nobody else can go on. So a loop around them is needed, and no answer depends on how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.ptx import mbarriers
from tests.ptx.background import Background, background_of
from tests.ptx.copies import Load, Store
from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.memory import WINDOWS
from tests.ptx.module import Address, Immediate, Instruction, Operand, PtxError, Sink, meaning
from tests.ptx.tensor_maps import ENCODER, TensorMap


def number_in(operand: Operand) -> int:
    """Returns a number that the instruction has in itself."""
    if not isinstance(operand, Immediate) or isinstance(operand.value, float):
        raise PtxError(f"{operand} has to be a number.")
    return operand.value


def shared_addresses(machine: Machine, operand: Operand, lanes: Lanes) -> Array:
    """Returns addresses in shared memory, int64, also where they are given as generic ones."""
    addresses = machine.addresses(operand, lanes)
    window = np.uint64(WINDOWS["shared"])
    return np.where(addresses >= window, addresses - window, addresses).astype(np.int64)


# ---- cp.async ----
def cp_async(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    to, source, size, *less = instruction.operands
    nbytes = number_in(size)
    if nbytes not in ((16,) if instruction.has("cg") else (4, 8, 16)):
        raise PtxError(f"cp.async copies 4, 8 or 16 bytes, with .cg 16; not {nbytes}.")
    given = machine.read(less[0], "u32", lanes).astype(np.int64) if less else np.full(len(lanes), nbytes)
    where = shared_addresses(machine, to, lanes), machine.addresses(source, lanes)
    background_of(machine).copies.start(lanes.at, *where, nbytes, given)


def commit_group(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    background_of(machine).copies.close(lanes.at)


def wait_group(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    background_of(machine).copies.wait(lanes.at, number_in(instruction.operands[0]))


def wait_all(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    copies = background_of(machine).copies
    copies.close(lanes.at)
    copies.wait(lanes.at, 0)


# ---- cp.async.bulk.tensor ----
def tensor_of(machine: Machine, operand: Operand, lane: Lanes) -> tuple[TensorMap, tuple[int, ...]]:
    """Returns the map and the coordinates of `[map, {x, y}]`."""
    assert isinstance(operand, Address)
    first = machine.addresses(Address(operand.base, operand.offset), lane)
    words = [machine.memory.load("", first + np.uint64(8 * i), 8, lane)[0] for i in range(16)]
    corner = tuple(int(machine.read(each, "s32", lane)[0]) for each in operand.index)
    tensor = ENCODER.map_of(np.array(words, np.uint64).tobytes())
    if len(corner) != len(tensor.box):
        raise PtxError(f"{len(corner)} coordinates of a tensor of {len(tensor.box)} axes.")
    return tensor, corner


def each(lanes: Lanes) -> list[Lanes]:
    return [Lanes(lanes.at[i : i + 1], False) for i in range(len(lanes))]


def check_rank(instruction: Instruction, corner: tuple[int, ...]) -> None:
    if not instruction.has(f"{len(corner)}d"):
        raise PtxError(f"{len(corner)} coordinates with {instruction.opcode}.")


def load_tile(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    to, source, barrier = instruction.operands
    for lane in each(lanes):
        tensor, corner = tensor_of(machine, source, lane)
        check_rank(instruction, corner)
        shared, mbarrier = (int(shared_addresses(machine, operand, lane)[0]) for operand in (to, barrier))
        background_of(machine).start_load(Load(int(lane.at[0]), tensor, corner, shared, mbarrier))


def store_tile(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    to, source = instruction.operands
    for lane in each(lanes):
        tensor, corner = tensor_of(machine, to, lane)
        check_rank(instruction, corner)
        shared = int(shared_addresses(machine, source, lane)[0])
        background_of(machine).tiles.start_store(Store(int(lane.at[0]), tensor, corner, shared))


def commit_stores(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    for lane in lanes.at:
        background_of(machine).tiles.close_stores(int(lane))


def wait_stores(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    for lane in lanes.at:
        but = number_in(instruction.operands[0])
        background_of(machine).tiles.wait_stores(int(lane), but, only_read=instruction.has("read"))


# ---- mbarriers ----
def change(machine: Machine, lanes: Lanes, address: Operand, how: Callable[[Lanes, int], int]) -> Array:
    """Changes the mbarrier of each thread, one after the other: how(thread, word). Returns the words before."""
    background = background_of(machine)
    where = zip(each(lanes), shared_addresses(machine, address, lanes))
    words = [background.update(int(lane.at[0]), int(at), partial(how, lane)) for lane, at in where]
    return np.array(words, np.uint64)


def number(machine: Machine, operand: Operand, lane: Lanes) -> int:
    return int(machine.read(operand, "u32", lane)[0])


def mbarrier_init(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    background, (operand, count) = background_of(machine), instruction.operands
    for lane, at in zip(each(lanes), shared_addresses(machine, operand, lanes)):
        word = np.array([mbarriers.init(number(machine, count, lane))], np.uint64)
        machine.memory.store("shared", np.array([at], np.uint64), word, lane)
        background.not_shown[int(machine.layout.block[lane.at[0]]), int(at)] = int(lane.at[0])


def mbarrier_inval(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    change(machine, lanes, instruction.operands[0], lambda _, word: mbarriers.invalidate(word))


def mbarrier_arrive(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array | None:
    state, operand, *more = instruction.operands

    def arrive(lane: Lanes, word: int) -> int:
        given = number(machine, more[0], lane) if more else 1
        return mbarriers.arrive(word, announced=given) if instruction.has("expect_tx") else mbarriers.arrive(word, given)

    words = change(machine, lanes, operand, arrive)
    if not isinstance(state, Sink):
        machine.write(state, words, lanes)
    return None if instruction.has("expect_tx") else background_of(machine).gave(lanes)


def mbarrier_bytes(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """expect_tx and complete_tx."""
    how = mbarriers.expect if instruction.has("expect_tx") else mbarriers.complete
    operand, count = instruction.operands
    change(machine, lanes, operand, lambda lane, word: how(word, number(machine, count, lane)))


def mbarrier_wait(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    """Answers those whose phase is complete, and those who ask for the first time; the others wait."""
    result, operand, phase, *_ = instruction.operands
    refused: set[int] = machine.state.setdefault("refused", set())
    answers = np.zeros(len(lanes), bool)
    waits = np.zeros(len(lanes), bool)
    at = shared_addresses(machine, operand, lanes).astype(np.uint64)
    for i, lane in enumerate(each(lanes)):
        word = int(machine.memory.load("shared", at[i : i + 1], 8, lane)[0])
        if instruction.has("parity"):
            parity = number(machine, phase, lane)
        else:
            parity = mbarriers.read(int(machine.read(phase, "b64", lane)[0])).parity
        answers[i] = mbarriers.is_complete(word, parity)
        waits[i] = not answers[i] and int(lane.at[0]) in refused
    asked = set(lanes.at[~waits & ~answers].tolist())
    refused.update(asked)
    refused.difference_update(lanes.at[answers].tolist())
    machine.write(result, answers[~waits], Lanes(lanes.at[~waits], False))
    return machine.retry(lanes.at[waits])


# ---- fences ----
def fence_proxy(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    background = background_of(machine)
    background.seen.show(lanes)
    show_mbarriers(background, lanes)


def fence_mbarrier_init(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    show_mbarriers(background_of(machine), lanes)


def show_mbarriers(background: Background, lanes: Lanes) -> None:
    shown = set(lanes.at.tolist())
    background.not_shown = {key: thread for key, thread in background.not_shown.items() if thread not in shown}


RANKS = "1d 2d 3d 4d 5d tile"
OF_MBARRIERS = "shared shared::cta b64 release acquire relaxed cta cluster"
ASYNCHRONOUS = {
    "cp.async.ca": meaning(cp_async, "shared shared::cta global"),
    "cp.async.cg": meaning(cp_async, "shared shared::cta global"),
    "cp.async.commit_group": meaning(commit_group, ""),
    "cp.async.wait_group": meaning(wait_group, ""),
    "cp.async.wait_all": meaning(wait_all, ""),
    "cp.async.bulk.tensor": meaning(store_tile, f"{RANKS} global shared::cta bulk_group"),
    **{
        f"cp.async.bulk.tensor.{rank}d.shared::{space}.global": meaning(load_tile, "tile mbarrier::complete_tx::bytes")
        for rank in range(1, 6)
        for space in ("cluster", "cta")
    },
    "cp.async.bulk.commit_group": meaning(commit_stores, ""),
    "cp.async.bulk.wait_group": meaning(wait_stores, "read"),
    "mbarrier.init": meaning(mbarrier_init, OF_MBARRIERS),
    "mbarrier.inval": meaning(mbarrier_inval, OF_MBARRIERS),
    "mbarrier.arrive": meaning(mbarrier_arrive, f"{OF_MBARRIERS} expect_tx"),
    "mbarrier.expect_tx": meaning(mbarrier_bytes, OF_MBARRIERS),
    "mbarrier.complete_tx": meaning(mbarrier_bytes, OF_MBARRIERS),
    "mbarrier.try_wait": meaning(mbarrier_wait, f"{OF_MBARRIERS} parity"),
    "mbarrier.test_wait": meaning(mbarrier_wait, f"{OF_MBARRIERS} parity"),
    "fence.proxy.async": meaning(fence_proxy, "shared::cta"),
    "fence.mbarrier_init": meaning(fence_mbarrier_init, "release cluster"),
}
