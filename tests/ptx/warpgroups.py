"""Matrix instructions of a warpgroup: what is under way, which registers wait for it, and what a wait gives back.

In:    instructions of one warp, its registers, shared memory as the asynchronous proxy sees it
Out:   registers, behind the wait

PTX ISA 9.0, 9.7.15: "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Warp w of the four makes rows
16 w to 16 w + 15 by itself, so each keeps its own account, and the four accounts have to tell the same story. Between the
instruction and the wait accumulators hold POISON: who reads them gets a NaN, who writes them is found out at the wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tests.ptx.copies import Memory, When
from tests.ptx.descriptors import accumulator_places, decode, places
from tests.ptx.fragments import bfloat16_numbers, exact_product, float16_numbers, tf32_numbers
from tests.ptx.module import PtxError

Array = np.ndarray[Any, Any]
Names = tuple[str, ...]
POISON = np.uint32(0x7FDEAD00)
NUMBERS = {"f16": float16_numbers, "bf16": bfloat16_numbers, "tf32": tf32_numbers}
DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8}  # of K: 32 bytes


class Registers(Protocol):
    """Those of one warp, by name: (32, names) uint32."""

    def read(self, names: Names) -> Array: ...

    def write(self, names: Names, values: Array) -> None: ...


@dataclass(frozen=True)
class Step:
    """One wgmma.mma_async of m64 x columns x k16, of TF32 k8.

    lhs, rhs:  descriptors
    adds:      scale-d: whether it adds to what the accumulators hold
    signs:     imm-scale-a, imm-scale-b
    turned:    imm-trans-a, imm-trans-b: M- or N-major
    held:      registers of lhs, where it is not in shared memory
    """

    accumulators: Names
    columns: int
    kind: str
    lhs: int
    rhs: int
    adds: bool
    signs: tuple[int, int] = (1, 1)
    turned: tuple[bool, bool] = (False, False)
    held: Names = ()


def operand(shared: Memory, thread: int, descriptor: int, rows: range, of: int, kind: str, turned: bool) -> Array:
    """Returns `rows` of a matrix that has `of` rows and 32 bytes of columns, float64."""
    depth = DEPTHS[kind]
    at = places(decode(descriptor), of, depth, 32 // depth, not turned)[rows.start : rows.stop].reshape(-1)
    words = shared.read(np.full(len(at), thread), at, 32 // depth).reshape(len(rows), 32).view("<u4")
    return NUMBERS[kind](words)


def held_rows(pairs: Array, kind: str) -> Array:
    """Returns the 16 rows of a left operand whose pairs (32, 4) lie in the registers of a warp, float64."""
    numbers = NUMBERS[kind](np.ascontiguousarray(pairs))  # (32, 8)
    rows, lane, i = np.empty((16, 16)), np.arange(32)[:, None], np.arange(8)
    rows[lane // 4 + 8 * (i // 2 % 2), 2 * (lane % 4) + 8 * (i // 4) + i % 2] = numbers
    return rows


class WarpProducts:
    """The account of one warp: the place it has among the four of its group, and its first thread."""

    def __init__(self, warp: int, thread: int, shared: Memory, when: When):
        self.warp, self.thread, self.shared, self.when = warp, thread, shared, when
        self.fenced: dict[str, Array] = {}  # what each register held at the last fence
        self.sums: dict[Names, Array] = {}  # results on their way, (16, columns)
        self.given: dict[int, Array] = {}  # what registers of a left operand held, by step
        self.open: list[Step] = []
        self.groups: list[list[Step]] = []
        self.story: list[object] = []  # what the other warps of the group have to have done as well

    def fence(self, registers: Registers, names: Names) -> None:
        """`names`: all that some wgmma of the kernel uses."""
        values = registers.read(names)
        self.fenced = {name: values[:, i].copy() for i, name in enumerate(names)}
        self.story.append("fence")

    def start(self, registers: Registers, step: Step) -> None:
        names = step.accumulators
        held = registers.read(names)
        if names in self.sums:
            self._check_untouched(held, names)
        else:
            self._check_fenced(held, names)
            self.sums[names] = np.empty((16, step.columns), np.float32)
            self.sums[names][accumulator_places(step.columns)] = held.view(np.float32)
        if step.held:
            self.given[id(step)] = registers.read(step.held).copy()
            self._check_fenced(self.given[id(step)], step.held)
        registers.write(names, np.full_like(held, POISON))
        if self.when is When.AT_ONCE:
            self._run(step)
        self.open.append(step)
        self.story.append((step.columns, step.kind, step.held, step.lhs, step.rhs, step.adds, step.signs, step.turned))

    def close(self) -> None:
        self.groups.append(self.open)
        self.open = []
        self.story.append("commit")

    def wait(self, registers: Registers, but: int) -> None:
        """Runs all groups but the last `but`, and gives back the registers that none of the others adds to."""
        ends = max(len(self.groups) - but, 0)
        done, self.groups = self.groups[:ends], self.groups[ends:]
        for step in [step for group in done for step in group]:
            if step.held and (registers.read(step.held) != self.given[id(step)]).any():
                raise PtxError(f"{step.held} were written while a wgmma reads them: no wgmma.wait_group before.")
            if self.when is not When.AT_ONCE:
                self._run(step)
        busy = {step.accumulators for group in [*self.groups, self.open] for step in group}
        for names in [names for names in self.sums if names not in busy]:
            self._check_untouched(registers.read(names), names)
            sums = self.sums.pop(names)
            values = np.ascontiguousarray(sums[accumulator_places(sums.shape[1])]).view(np.uint32)
            registers.write(names, values)
            self.fenced |= {name: values[:, i] for i, name in enumerate(names)}  # the wait hands them back in order
        self.story.append(("wait", but))

    def _run(self, step: Step) -> None:
        own = range(16 * self.warp, 16 * self.warp + 16)
        all_rows, (turned_lhs, turned_rhs) = range(step.columns), step.turned
        if step.held:
            lhs = held_rows(self.given[id(step)], step.kind)
        else:
            lhs = operand(self.shared, self.thread, step.lhs, own, 64, step.kind, turned_lhs)
        rhs = operand(self.shared, self.thread, step.rhs, all_rows, step.columns, step.kind, turned_rhs)
        sums = self.sums[step.accumulators]
        sign = step.signs[0] * step.signs[1]
        sums[:] = exact_product(sign * lhs, rhs.T, sums if step.adds else np.zeros_like(sums))

    def _check_fenced(self, held: Array, names: Names) -> None:
        for i, name in enumerate(names):
            if name not in self.fenced:
                raise PtxError("wgmma.mma_async before any wgmma.fence of its warp.")
            if not np.array_equal(self.fenced[name], held[:, i]):
                raise PtxError(f"wgmma.mma_async: {name} was written with no wgmma.fence behind it.")
        overlap = set(names) & {name for other in self.sums for name in other}
        if overlap:
            raise PtxError(f"wgmma.mma_async: {sorted(overlap)[0]} belongs to another shape that is under way.")

    def _check_untouched(self, held: Array, names: Names) -> None:
        touched = (held != POISON).any(axis=0)
        if touched.any():
            name = names[int(np.flatnonzero(touched)[0])]
            raise PtxError(f"{name} was written while a wgmma adds to it: no wgmma.wait_group before.")


def check_one_story(warps: Sequence[WarpProducts]) -> None:
    """Asks at the end whether the four warps of a group executed the same.

    Raises:
      PtxError: they did not, or something is still under way.
    """
    for own in warps:
        if own.sums:
            raise PtxError(f"warp {own.warp} of a warpgroup ends while a wgmma adds to its registers: no wgmma.wait_group.")
        if own.story != warps[0].story:
            raise PtxError(f"warps {warps[0].warp} and {own.warp} of a warpgroup did not execute the same instructions.")
    if len(warps) != 4 and warps[0].story:
        raise PtxError(f"{len(warps)} warps of a warpgroup execute its instructions, which need four.")
