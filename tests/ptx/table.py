"""The instructions by opcode, and the steps of a function: each of its instructions beside what it does.

In:    a Function
Out:   `TABLE`, `steps_of`
Next:  tests/ptx/moves.py
"""

from __future__ import annotations

from tests.ptx.control import CONTROL
from tests.ptx.module import Function, Instruction, Meaning, PtxError
from tests.ptx.moves import MOVES

TABLE: dict[str, Meaning] = {**MOVES, **CONTROL}


def steps_of(function: Function) -> list[tuple[Instruction, Meaning]]:
    """Returns the instructions of a function, each with its meaning.

    Raises:
      PtxError: one is not in the table, or has a modifier that its row does not know.
    """
    return [(instruction, meaning_of(instruction)) for instruction in function.instructions]


def meaning_of(instruction: Instruction) -> Meaning:
    """Returns the row of the longest beginning of an opcode that is in the table."""
    parts = instruction.modifiers
    for count in range(len(parts), 0, -1):
        found = TABLE.get(".".join(parts[:count]))
        if found is not None:
            unknown = [part for part in parts[count:] if part not in found.modifiers]
            if unknown:
                raise PtxError(f"{instruction}: .{unknown[0]} is not known of {'.'.join(parts[:count])}.")
            return found
    raise PtxError(f"{instruction}: there is no {instruction.opcode} in the table.")
