"""The instructions by opcode, and the steps of a function: each of its instructions beside what it does.

In:    a Function
Out:   `TABLE`, `steps_of`
"""

from __future__ import annotations

from tests.ptx import floats, integers
from tests.ptx.approximations import APPROXIMATIONS
from tests.ptx.async_rows import ASYNCHRONOUS
from tests.ptx.atomics import ATOMICS
from tests.ptx.bits import BITS
from tests.ptx.compare import COMPARE
from tests.ptx.control import CONTROL
from tests.ptx.convert import CONVERT
from tests.ptx.floats import FLOATS
from tests.ptx.integers import INTEGERS
from tests.ptx.matrix_rows import MATRICES
from tests.ptx.module import Function, Instruction, Meaning, PtxError
from tests.ptx.moves import MOVES
from tests.ptx.warps import WARPS
from tests.ptx.wgmma_rows import WARPGROUPS

TABLE: dict[str, Meaning] = {
    **MOVES, **INTEGERS, **BITS, **FLOATS, **APPROXIMATIONS, **CONVERT, **COMPARE, **WARPS, **ATOMICS, **CONTROL,
    **MATRICES, **ASYNCHRONOUS, **WARPGROUPS,
}  # fmt: skip


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
        beginning = ".".join(parts[:count])
        found = TABLE.get(beginning) or by_type(instruction, beginning)
        if found is not None:
            unknown = [part for part in parts[count:] if part not in found.modifiers]
            if unknown:
                raise PtxError(f"{instruction}: .{unknown[0]} is not known of {beginning}.")
            return found
    raise PtxError(f"{instruction}: there is no {instruction.opcode} in the table.")


def by_type(instruction: Instruction, name: str) -> Meaning | None:
    """Returns the row of an instruction that integers and floats have, such as add."""
    if not instruction.types:
        return None
    rows = floats.BY_NAME if instruction.type in floats.FLOAT_KINDS else integers.BY_NAME
    return rows.get(name)
