"""What a PTX module is, as data: functions, variables, instructions, operands.

Out:   `Module`, `Function`, `Variable`, `Instruction`, operands, `Meaning`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

NBYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
    "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "e4m3x2": 2, "e5m2x2": 2, "tf32": 4,
    "pred": 1,
}  # fmt: skip


class PtxError(Exception):
    """PTX that breaks a rule, when it is read or when it runs; or that this interpreter does not know."""


# ---- operands ----
@dataclass(frozen=True)
class Register:
    """A register by its name in the function; of an operand `!%p`, the opposite of what it holds."""

    name: str
    negated: bool = False


@dataclass(frozen=True)
class Special:
    """A register that the machine sets, such as %tid.x."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A number: an int, or the bits of a float of a `format`, "f32" or "f64"."""

    value: int
    format: str = ""


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, or of a parameter, `offset` bytes on."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; a base of None is an address that is a number alone.

    index:  of a tensor, the coordinates in `[map, {x, y}]`
    """

    base: Register | Symbol | None
    offset: int = 0
    index: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vector:
    """`{a, b}`."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`d|p`: a result, and a predicate beside it."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Label:
    """A place in the function: the number of the instruction that follows it."""

    name: str


@dataclass(frozen=True)
class Sink:
    """`_`: nobody wants this result."""


Operand = Register | Special | Immediate | Symbol | Address | Vector | Pair | Label | Sink


# ---- instructions ----
@dataclass(frozen=True)
class Instruction:
    """One instruction.

    opcode:    with all modifiers, such as "ld.global.v4.f32"
    guard:     the predicate that says which threads execute it
    operands:  in the order in which they are written
    line:      of the text, from 1
    """

    opcode: str
    guard: Register | None
    operands: tuple[Operand, ...]
    line: int
    text: str

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))

    @property
    def type(self) -> str:
        """The last type that the opcode names."""
        return next(part for part in reversed(self.modifiers) if part in NBYTES)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(part for part in self.modifiers if part in NBYTES)

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


class Meaning(NamedTuple):
    """What an opcode does.

    execute:    (machine, instruction, lanes) -> None, or those lanes (an array of numbers) that could not go on and ask
                again later: it has to have done nothing for them, and all of its work for the others
    modifiers:  that it knows; with another one the opcode is an unknown one
    """

    execute: Callable[..., np.ndarray[Any, Any] | None]
    modifiers: frozenset[str]


def meaning(execute: Callable[..., np.ndarray[Any, Any] | None], modifiers: str) -> Meaning:
    """Returns the Meaning of an opcode whose modifiers are written with blanks between them."""
    return Meaning(execute, frozenset(modifiers.split()))


# ---- what holds them ----
@dataclass(frozen=True)
class Variable:
    """Memory that a module, a function or a launch has.

    space:   "global", "shared", "const", "local" or "param"
    nbytes:  0 for a dynamic one, `.extern .shared x[]`
    data:    what it begins with
    """

    name: str
    space: str
    nbytes: int
    align: int
    data: bytes | None = None
    is_extern: bool = False


@dataclass
class Function:
    """A kernel (`.entry`) or a function that is called.

    params, results:  in order
    registers:        name -> its type, "b32" or "pred"
    variables:        declared in its body: shared memory of a block, local memory and parameters of calls of a thread
    labels:           name -> number of the instruction
    targets:          name of a list for brx.idx -> labels
    max_threads:      of a block, as `.maxntid` or `.reqntid` says; 0: not said
    """

    name: str
    is_entry: bool
    params: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: int = 0


@dataclass(frozen=True)
class Module:
    """A text of PTX."""

    version: str
    target: str
    functions: Mapping[str, Function]
    variables: tuple[Variable, ...]
