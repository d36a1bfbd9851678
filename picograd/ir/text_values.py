"""How arguments of Ops are written and read: Python literals, names of enums, records.

In:    a value, or its text
Out:   its text, or the value
Next:  picograd/ir/text.py

Reading walks Python's syntax tree of the text and knows literals, tuples, a few names and the records of `RECORDS`;
nothing is evaluated.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any

from picograd.dtype import ALL, DType
from picograd.errors import DataError
from picograd.ir.checks import Site
from picograd.ir.host import HostCall
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, Named, OpCode
from picograd.ir.shape import AttentionArg, ConvArg, MatmulArg
from picograd.record import Record

# Records that may stand in an argument, by name; the record of a user's CUSTOM is added by who defines it.
RECORDS: dict[str, type[Any]] = {
    "MatmulArg": MatmulArg, "ConvArg": ConvArg, "AttentionArg": AttentionArg, "Site": Site, "HostCall": HostCall
}  # fmt: skip

ENUMS: dict[OpCode, type[Named]] = {OpCode.RANGE: AxisKind, OpCode.ALLOC: MemorySpace}
INTEGER = frozenset({int})
NAN_BITS = struct.pack("d", float("nan"))


def show_float(value: float) -> str:
    """Returns the shortest text that reads back as the same bits."""
    if isnan(value) and struct.pack("d", value) != NAN_BITS:
        return f"nan_bits({struct.unpack('Q', struct.pack('d', value))[0]:#x})"
    return repr(float(value))


def show(value: Any, name_of: Callable[[Op], str]) -> str:
    """Returns the text of an argument; `name_of` names the Ops in it.

    >>> show((OpCode.ADD, (0, 1)), str)
    '(ADD, (0, 1))'
    """
    if isinstance(value, Op):
        return name_of(value)
    if isinstance(value, Named):
        return str(value.name)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple | list):
        if {part.__class__ for part in value} <= INTEGER:  # a shape, most often
            return repr(tuple(value))
        inner = ", ".join(show(part, name_of) for part in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float):
        return show_float(value)
    if isinstance(value, Record):
        kinds = type(value).__annotations__
        fields = [(name, _declared(getattr(value, name), kinds[name])) for name in value.__struct_fields__]
        return f"{type(value).__name__}({', '.join(f'{name}={show(field, name_of)}' for name, field in fields)})"
    if callable(value):
        return f"<{value.__module__}.{value.__qualname__}>"
    if hasattr(value, "item"):  # a NumPy scalar, which is equal to the Python one and hashes the same
        return show(value.item(), name_of)
    return repr(value)


def _declared(value: Any, kind: Any) -> Any:
    """Returns a number as the type its field declares: 1, 1.0 and True are equal, so either may have come first."""
    convert = {"float": float, "int": int, "bool": bool}.get(str(kind))
    return value if convert is None or value is None else convert(value)


class ValueReader:
    """Reads what `show` wrote.

    names:  what a name stands for, before the names all texts share
    """

    constants: Mapping[str, Any] = {"inf": float("inf"), "nan": float("nan"), **{t.name: t for t in ALL}}

    def __init__(self, names: Callable[[str], Any]):
        self.names = names

    def read(self, text: str) -> Any:
        """Returns the value `text` stands for.

        Raises:
          DataError: the text is not of the syntax `show` writes.
        """
        return self.value(parse_expression(text))

    def value(self, node: ast.expr) -> Any:
        """Returns the value of a syntax tree."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(self.value(part) for part in node.elts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(node.operand)
        if isinstance(node, ast.Name):
            found = self.names(node.id)
            if found is None:
                found = self.constants.get(node.id)
            if found is not None:
                return found
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.record(node.func.id, node)
        raise DataError(f"text: {ast.unparse(node)!r} is no argument of an Op.")

    def record(self, name: str, node: ast.Call) -> Any:
        """Returns a record of `RECORDS`, or a NaN by its bits."""
        if name == "nan_bits":
            return struct.unpack("d", struct.pack("Q", self.value(node.args[0])))[0]
        if name not in RECORDS:
            raise DataError(f"text: {name} is no record of RECORDS in picograd/ir/text_values.py.")
        return RECORDS[name](**{str(k.arg): self.value(k.value) for k in node.keywords})


def parse_expression(text: str) -> ast.expr:
    """Returns the syntax tree of an expression.

    Raises:
      DataError: the text is no expression.
    """
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise DataError(f"text: {text!r} cannot be read: {error}.") from None


def enum_names(code: OpCode) -> Callable[[str], Any]:
    """Returns what bare names mean in the argument of `code`: members of AxisKind, MemorySpace or OpCode."""
    members = ENUMS.get(code, OpCode).__members__
    return lambda name: members.get(name)
