"""A grid of threads that run one function of PTX: who runs next, who waits, and what an instruction is given.

In:    a Function, its Layout, Memory and Registers; TABLE of tests/ptx/table.py
Out:   `Machine`

An instruction is a row of a table, opcode -> Meaning(function, modifiers); the longest beginning of an opcode that is in
the table decides ("mbarrier.try_wait" before "mbarrier"). Its function is called as `execute(machine, instruction, lanes)`,
and lanes are the threads that are there and whose guard is true. What it uses:

    machine.read(operand, "f32", lanes)         values, one for each lane, as a type of PTX (b32, s64, f16, pred, ...)
    machine.write(operand, values, lanes)       stores them; a narrower integer is extended by its dtype
    machine.addresses(operand, lanes)           uint64 addresses of `[register + offset]`, in the space of the instruction
    machine.memory.load(space, addresses, nbytes, lanes), .store(space, addresses, unsigned numbers, lanes)
                                                space is "global", "shared", "local", "param", or "" for a generic address
    machine.layout                              thread, block, place (in the warp), warp: arrays with a number for each lane
    machine.state                               a dict of this launch, for what a kind of instruction keeps
    machine.on_stall                            functions of the machine, asked one after the other when no lane can go on:
                                                True if something has happened, such as a copy that landed
    machine.on_end                              functions of the machine, called when all threads are done

It returns None: all of them go on behind it. Or it says of some lanes (an array of their numbers, of lanes.at) where they
go, and returns these: `machine.retry(numbers)`, the same instruction again when nobody else can go on, for which nothing
may have been done yet; `machine.jump(numbers, place)`; `machine.park(numbers)`, until somebody calls `unpark` for them;
`machine.stop(numbers)`, for ever. `machine.whole_warps` is for what threads of a warp do together.

Lanes stand at places, the numbers of instructions. Those at the lowest place run, so that threads that went apart meet
again where their ways join; those of all warps, or of one as far as it gets, which shows a barrier that is missing
(`running`). If nobody can run and somebody is not done, that is a deadlock, and an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

import numpy as np

from tests.ptx.lanes import Array, Lanes, Layout
from tests.ptx.memory import Memory
from tests.ptx.module import Address, Function, Instruction, Meaning, Operand, PtxError, Register
from tests.ptx.registers import Registers

MOST_STEPS = 5_000_000


class Order(Enum):
    """Who runs first of those that can: whoever is at the lowest place, or one warp until it has to wait."""

    TOGETHER = "together"
    FIRST_WARP = "first warp"
    LAST_WARP = "last warp"


_order = [Order.TOGETHER]


@contextmanager
def running(order: Order) -> Iterator[None]:
    """Launches within it run in an order."""
    _order.append(order)
    try:
        yield
    finally:
        _order.pop()


class Machine:
    """The threads of some blocks."""

    def __init__(
        self, function: Function, steps: list[tuple[Instruction, Meaning]], layout: Layout, memory: Memory,
        symbols: Mapping[str, int],
    ):  # fmt: skip
        self.function, self.steps, self.layout, self.memory = function, steps, layout, memory
        self.registers = Registers(function.registers, layout, symbols)
        self.read, self.write = self.registers.read, self.registers.write
        self.state: dict[str, Any] = {}
        self.on_stall: list[Callable[[Machine], bool]] = []
        self.on_end: list[Callable[[Machine], None]] = []
        self.here = 0
        warps = np.arange(int(layout.warp[-1]) + 1)
        self.rank = {Order.TOGETHER: 0 * warps, Order.FIRST_WARP: warps, Order.LAST_WARP: warps[::-1]}[_order[-1]]
        self.ready: dict[tuple[int, int], list[Array]] = {}  # (rank of the warp, place) -> lanes that can run there
        self.waiting: list[tuple[int, Array]] = []  # who asks again
        self.parked: dict[int, int] = {}  # lane -> place
        self.count_done, self.count_steps, self.has_moved = 0, 0, True

    # ---- what instructions call ----
    def addresses(self, operand: Operand, lanes: Lanes) -> Array:
        """Returns the address that an operand names for each lane; one in a register of 32 bits is extended by zeros."""
        if not isinstance(operand, Address):
            raise PtxError(f"{operand} is no address.")
        if operand.base is None:
            return np.full(len(lanes), operand.offset, np.uint64)
        if isinstance(operand.base, Register):
            kind = "u" + self.function.registers[operand.base.name][1:]
            base = self.read(operand.base, kind, lanes).astype(np.uint64)
        else:
            base = self.read(operand.base, "u64", lanes)
        return base + np.uint64(operand.offset % (1 << 64)) if operand.offset else base

    def jump(self, numbers: Array, place: int) -> Array:
        """Sends lanes to an instruction."""
        ranks = self.rank[self.layout.warp[numbers]]
        for rank in np.unique(ranks):
            self.ready.setdefault((int(rank), place), []).append(numbers[ranks == rank])
        return numbers

    def retry(self, numbers: Array) -> Array:
        """Lets lanes ask again when nobody else can go on."""
        if len(numbers):
            self.waiting.append((self.here, numbers))
        return numbers

    def park(self, numbers: Array) -> Array:
        """Leaves lanes where they are until somebody sends them on."""
        self.parked.update(dict.fromkeys(numbers.tolist(), self.here))
        return numbers

    def unpark(self, numbers: Array) -> None:
        """Sends parked lanes on, each behind the instruction at which it is."""
        places = np.array([self.parked.pop(lane) for lane in numbers.tolist()], int)
        for place in np.unique(places):
            self.jump(numbers[places == place], int(place) + 1)

    def stop(self, numbers: Array) -> Array:
        """Ends lanes."""
        self.count_done += len(numbers)
        return numbers

    def whole_warps(self, lanes: Lanes, members: Array) -> tuple[Lanes, Array]:
        """Splits lanes by whether all members of their warp, a mask of 32 bits for each, are here.

        Returns (those that can do it, the numbers of those that have to wait for others).
        """
        here = np.zeros(int(self.layout.warp[-1]) + 1, np.uint64)
        warp, place = lanes.pick(self.layout.warp), lanes.pick(self.layout.place).astype(np.uint64)
        np.bitwise_or.at(here, warp, np.uint64(1) << place)
        asked = members.astype(np.uint64)
        if ((asked >> place) & np.uint64(1) == 0).any():
            raise PtxError("a thread is no member of the mask that it gives.")
        whole = (here[warp] & asked) == asked
        return (lanes, lanes.at[:0]) if whole.all() else (Lanes(lanes.at[whole], False), lanes.at[~whole])

    # ---- running ----
    def run(self) -> None:
        """Runs all threads to their end.

        Raises:
          PtxError: a rule is broken; the text says which, by which instruction, and by which thread.
        """
        self.jump(self.layout.all.at, 0)
        with np.errstate(all="ignore"):
            while self.ready or self._resume():
                rank, place = min(self.ready)
                self._run_from(rank, place, self._lanes_of(self.ready.pop((rank, place))))
        for check in self.on_end:
            check(self)

    def _lanes_of(self, parts: list[Array]) -> Lanes:
        at = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
        return Lanes(at, len(at) == self.registers.count)

    def _run_from(self, rank: int, place: int, lanes: Lanes) -> None:
        """Runs lanes from a place on, until nobody is left or others have to run before them."""
        while len(lanes):
            if self.ready and min(self.ready) <= (rank, place):
                self.jump(lanes.at, place)
                return
            self.here = place
            instruction, known = self.steps[place]
            self.count_steps += 1
            if self.count_steps > MOST_STEPS:
                raise PtxError(f"{instruction}: {MOST_STEPS} instructions are not enough: somebody waits in a loop.")
            lanes = self._execute(instruction, known, lanes)
            place += 1

    def _execute(self, instruction: Instruction, known: Meaning, lanes: Lanes) -> Lanes:
        """Executes one instruction for the lanes whose guard is true; returns those that go on behind it."""
        executed = lanes
        if instruction.guard is not None:
            executed = lanes.where(self.read(instruction.guard, "pred", lanes))
        if not len(executed):
            self.has_moved = True
            return lanes
        count = sum(len(numbers) for _, numbers in self.waiting)
        try:
            gone = known.execute(self, instruction, executed)
        except PtxError as error:
            raise PtxError(f"{self.function.name}, {instruction}: {error}") from error
        retried = sum(len(numbers) for _, numbers in self.waiting) - count
        self.has_moved |= retried < len(lanes)
        if gone is None or not len(gone):
            return lanes
        return lanes.without(gone) if len(gone) < len(lanes) else Lanes(lanes.at[:0], False)

    def _resume(self) -> bool:
        """Lets those who wait ask again; returns whether anybody is left."""
        has_landed = sum(happen(self) for happen in self.on_stall) > 0  # all are asked
        if self.waiting and (self.has_moved or has_landed):
            waiting, self.waiting, self.has_moved = self.waiting, [], False
            for place, numbers in waiting:
                self.jump(numbers, place)
        if self.ready:
            return True
        if self.count_done == self.registers.count:
            return False
        if has_landed:
            return self._resume()
        raise PtxError(f"{self.function.name}: nobody can go on. {self._where()}")

    def _where(self) -> str:
        """Says who waits where."""
        places: dict[int, list[int]] = {}
        for lane, place in [
            *self.parked.items(),
            *((lane, at) for at, numbers in self.waiting for lane in numbers.tolist()),
        ]:
            places.setdefault(place, []).append(lane)
        texts = [
            f"{len(lanes)} threads, such as {self.layout.names(min(lanes))}, wait at {self.steps[place][0]}"
            for place, lanes in sorted(places.items())
        ]
        return f"{self.count_done} of {self.registers.count} threads are done; " + "; ".join(texts) + "."
