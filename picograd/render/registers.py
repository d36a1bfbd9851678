"""Which places of REGISTER memory a loop or a branch changes: there a value has two origins, which SSA form must name.

In:    statements of the linear form
Out:   `Slot`, one value in a register; `slot_of(access)`, `slots_of(square)`, `parts_of(mma)`,
       `brought_by(load)`; `changes(body)`
Called by: render/llvm.py, render/llvm_memory.py.    Next: picograd/render/addresses.py

REGISTER memory has no address: in the linear form it is read and written at constant places, each place always with
the same number of lanes. So a place is a name for the value stored last, and nothing is left for LLVM to find out. A table
(codegen/passes/tables.py) is one place, and lanes of it are chosen.

    for r in loop(48):                   loop1:
      load v1 = acc[0]                     %acc = phi float [ %zero, %entry ], [ %sum, %loop1 ]
      v2 = v1 + v0                         %sum = fadd float %acc, %v0
      acc[0] = v2

Source: Braun et al. 2013, "Simple and Efficient Construction of Static Single Assignment Form"; loops and branches
are nested here, so what a body changes is known before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable

from picograd.errors import VerifyError
from picograd.ir.op import Op
from picograd.ir.opcode import MemorySpace, OpCode
from picograd.ir.statements import (
    Alloc,
    For,
    If,
    Let,
    Load,
    LoadMatrices,
    Mma,
    Statement,
    Store,
    Transpose,
    lanes_of,
)

Access = Load | Store | Transpose | LoadMatrices | Mma
Slot = tuple[Op, int, int]  # memory, place of the first lane, lanes


def is_register(memory: Op) -> bool:
    """True for memory without an address."""
    return memory.code is OpCode.ALLOC and memory.arg[2] is MemorySpace.REGISTER


def slot_of(access: Load | Store) -> Slot:
    """Returns the value that an access of REGISTER memory reads or writes.

    Raises:
      VerifyError: the place is computed when the kernel runs.
    """
    if is_lookup(access):
        return access.memory, 0, access.memory.arg[1]
    value = access.var if isinstance(access, Load) else access.value
    lanes = lanes_of(value) if access.valid is None else max(lanes_of(value), lanes_of(access.valid))
    return access.memory, _place(access.memory, access.index), lanes


def elements_of(slot: Slot) -> list[Slot]:
    """Returns the places of one lane each that a place of several has."""
    memory, place, lanes = slot
    return [(memory, place + i, 1) for i in range(lanes)]


def parts_of(mma: Mma) -> list[list[Slot]]:
    """Returns the places of what a thread holds of the three matrices: the accumulators', then the operands'."""
    starts = [(memory, _place(memory, index), count) for memory, index, count in mma.spans()]
    return [elements_of(slot) for slot in starts]


def brought_by(load: LoadMatrices) -> list[Slot]:
    """Returns the places that a LoadMatrices writes: two for each matrix."""
    return elements_of((load.into, _place(load.into, load.place), 8))


def is_lookup(access: Load | Store) -> bool:
    """True for a Load that takes each of its lanes from a place of its own: memory is a table then, held as one vector."""
    return isinstance(access, Load) and lanes_of(access.index) > 1


def slots_of(square: Transpose) -> list[Slot]:
    """Returns the values of the lines that a Transpose writes to REGISTER memory."""
    first = _place(square.into, square.place)
    return [(square.into, first + j * square.step, square.lanes) for j in range(square.lanes)]


def _place(memory: Op, index: Op) -> int:
    if index.code is not OpCode.CONST:
        raise VerifyError(f"render llvm: {memory} is in registers, and {index} is not a constant place.")
    return int(index.arg)


def changes(body: Iterable[Statement], apart: bool = False) -> dict[int, list[Slot]]:
    """Returns for each For and If (by id) what its body stores in registers that are there before it.

    In the order of the first stores; one visit of each statement.

    Args:
      apart: every element is a place of its own, however many lanes an access has

    Raises:
      VerifyError: two accesses of REGISTER memory share an element and are not the same.
    """
    found: dict[int, list[Slot]] = {}
    lanes_at: dict[tuple[Op, int], int] = {}
    _add_changes(body, found, lanes_at, apart)
    _check_places(lanes_at)
    return found


def _add_changes(
    body: Iterable[Statement], found: dict[int, list[Slot]], lanes_at: dict[tuple[Op, int], int], apart: bool
) -> list[Slot]:
    """Adds the changes of a body's loops and branches to `found`, and the lanes at each place; returns its own."""
    stored: dict[Slot, None] = {}
    own = set()
    for statement in body:
        if isinstance(statement, Let):  # most are
            continue
        if isinstance(statement, Access):
            slots = _slots(statement)
            if apart:
                slots = [each for slot in slots for each in elements_of(slot)]
            for memory, place, lanes in slots:
                if lanes_at.setdefault((memory, place), lanes) != lanes:
                    raise VerifyError(f"render llvm: {memory}[{place}] is used with {lanes} lanes and with other numbers.")
            if isinstance(statement, Mma):
                slots = parts_of(statement)[0]
            if not isinstance(statement, Load):
                stored.update(dict.fromkeys(slots))
        elif isinstance(statement, For | If):
            inside = found[id(statement)] = _add_changes(statement.body, found, lanes_at, apart)
            stored.update(dict.fromkeys(inside))
        elif isinstance(statement, Alloc):
            own.add(statement.memory)
    return [slot for slot in stored if slot[0] not in own]


def _slots(access: Access) -> list[Slot]:
    """Returns what an access reads or writes in registers."""
    if isinstance(access, Load | Store):
        return [slot_of(access)] if is_register(access.memory) else []
    if isinstance(access, Mma):
        return [slot for part in parts_of(access) for slot in part]
    if isinstance(access, LoadMatrices):
        return brought_by(access)
    return slots_of(access) if is_register(access.into) else []


def _check_places(lanes_at: dict[tuple[Op, int], int]) -> None:
    """Raises VerifyError where a place lies inside the lanes of another."""
    places = sorted([(memory.arg[0], place, lanes) for (memory, place), lanes in lanes_at.items()])
    for (name, first, lanes), (other, second, _) in zip(places, places[1:]):
        if name == other and second < first + lanes:
            raise VerifyError(f"render llvm: {name}[{second}] lies inside the {lanes} lanes at {first}.")
