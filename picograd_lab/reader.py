"""Programs read from the text that ir/text_program.py writes: for tests, which are written as programs.

In:    a text
Out:   `parse_program`: its Program
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType, dtype_named
from picograd.errors import DataError
from picograd.ir.op import Op
from picograd.ir.opcode import INFIX, AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Param, Program
from picograd.ir.statements import FIELDS, Described, For, If, Let, Statement, Store
from picograd.ir.symbolic import from_op
from picograd.ir.text import ValueReader, parse_expression
from picograd.ir.text_program import FUNCTIONS, HOLE, WHEN, derived_dtype


def _node_of(sign: str) -> type[ast.AST]:
    """Returns the node that Python reads a sign as."""
    read = ast.parse(f"a {sign} b", mode="eval").body
    return type(read.ops[0] if isinstance(read, ast.Compare) else read.op)  # type: ignore[attr-defined]


AST_CODES = {_node_of(sign): code for code, (sign, _) in INFIX.items()}
FUNCTION_CODES = {code.name.lower(): code for code in FUNCTIONS}


def _line_of(kind: type[Described]) -> re.Pattern[str]:
    """Returns the pattern of a statement's line."""

    def hole(found: re.Match[str]) -> str:
        name, index, may_be_left_out = found.groups()
        is_number = kind.__annotations__[name] == "int"
        if may_be_left_out:
            return rf"({name} )?" if kind.__annotations__[name] == "bool" else rf"(?: {WHEN} (.*))?"
        return r"(-?\d+)" if is_number else r"(.*?\])" if index else "(.*?)"

    literal = re.sub(r"([+*.])", r"\\\1", kind.text)
    return re.compile(HOLE.sub(hole, literal))


# Those that begin with a word are tried first, for all others look like a Let.
LINES = {kind: _line_of(kind) for kind in sorted(FIELDS, key=lambda kind: (kind is Let, kind is Store)) if kind.text}
DECLARED = re.compile(r"^(\w+)(?: as ('(?:\\.|[^'\\])*'|[^:=]*?))?$")


def parse_program(text: str) -> Program:
    """Returns the Program that `format_program` wrote.

    Raises:
      DataError: a line is not of the syntax that ir/text_program.py describes.
    """
    return _Reader().program(text)


class _Reader:
    """Reads the lines of a Program; names mean what earlier lines declared."""

    def __init__(self) -> None:
        self.ops: dict[str, Op] = {}
        self.values = ValueReader(self.argument_name)
        self.calls: dict[str, Callable[[ast.Call], Op]] = {
            "load": self.load_call,
            "spread": self.spread,
            "lanes": lambda node: Op(OpCode.LANES, dtypes.int64, (), self.values.value(node.args[0])),
            "cast": lambda node: self.convert(OpCode.CAST, node),
            "bitcast": lambda node: self.convert(OpCode.BITCAST, node),
        }

    def argument_name(self, name: str) -> Any:
        return self.ops.get(name) or OpCode.__members__.get(name)

    # ---- lines ----
    def program(self, text: str) -> Program:
        """Returns the Program of a text: its heading, its declarations, its phases."""
        lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines() if line.strip()]
        name = lines[0][1].removeprefix("program ")
        params: list[Param] = []
        variables: list[Op] = []
        phases: list[tuple[Statement, ...]] = []
        at = 1
        while at < len(lines):
            word, _, rest = lines[at][1].partition(" ")
            at += 1
            if word == "param":
                params.append(self.param(rest))
            elif word == "variable":
                variables.append(self.variable(rest))
            elif word == "memory":
                self.memory(rest)
            elif word == "phase":
                body, at = self.body(lines, at, lines[at - 1][0])
                phases.append(body)
            else:
                raise DataError(f"text: {word!r} is not the beginning of a line of a program.")
        return Program(name, tuple(params), tuple(variables), tuple(phases))

    def body(self, lines: list[tuple[int, str]], at: int, outer: int) -> tuple[tuple[Statement, ...], int]:
        """Reads the statements indented deeper than `outer`; returns them and the number of the next line."""
        statements: list[Statement] = []
        while at < len(lines) and lines[at][0] > outer:
            indent, line = lines[at]
            at += 1
            if " := " in line:
                name, _, value = line.partition(" := ")
                self.ops[name] = self.expression(value)
            elif line.startswith("for "):
                axis = self.range(line)
                inner, at = self.body(lines, at, indent)
                statements.append(For(axis, inner))
            elif line.startswith("if "):
                condition = self.expression(line[3:].removesuffix(":"))
                inner, at = self.body(lines, at, indent)
                statements.append(If(condition, inner))
            else:
                statements.append(self.simple(line))
        return tuple(statements), at

    def simple(self, line: str) -> Statement:
        """Returns the statement of one line that opens no body."""
        kind = next((kind for kind, pattern in LINES.items() if pattern.fullmatch(line)), None)
        if kind is None:
            raise DataError(f"text: {line!r} is not a statement.")
        texts, fields = iter(LINES[kind].fullmatch(line).groups()), {}  # type: ignore[union-attr]
        for name, index, may_be_left_out in HOLE.findall(kind.text):
            text = next(texts)
            if may_be_left_out:
                fields[name] = bool(text) if kind.__annotations__[name] == "bool" else text and self.expression(text)
            elif index:
                fields[name], fields[index] = self.access(text)
            elif name == "var":
                fields[name] = self.var(text)
            elif name == "memory":
                fields[name] = self.alloc(text)
            else:
                fields[name] = int(text) if kind.__annotations__[name] == "int" else self.expression(text)
        return kind(**fields)

    # ---- what has a name ----
    def declare(self, text: str, make: Callable[[Any], Op], default: Callable[[str], Any] = str) -> Op:
        """Makes the Op called `name` or `name as identity` and remembers its name."""
        found = DECLARED.match(text)
        if found is None:
            raise DataError(f"text: {text!r} declares no name.")
        identity = default(found.group(1)) if found.group(2) is None else self.values.read(found.group(2))
        op = self.ops[found.group(1)] = make(identity)
        return op

    def param(self, rest: str) -> Param:
        _, role, memory = rest.split(" ", 2)
        dtype, _, numel = memory.removesuffix("]").partition("[")
        return Param(dtype_named(dtype), from_op(self.expression(numel)), role)

    def variable(self, rest: str) -> Op:
        declared, _, described = rest.rpartition(": ")
        dtype, ends = described.split(" ")
        least, greatest = (int(end) for end in ends.split(".."))
        return self.declare(declared, lambda n: Op(OpCode.VARIABLE, dtype_named(dtype), (), (n, least, greatest)))

    def memory(self, rest: str) -> None:
        name, _, described = rest.partition(" = ")
        slot, dtype, shape = described.split(" ", 2)
        self.ops[name] = Op(OpCode.PARAM, dtype_named(dtype), (), (int(slot), self.shape(shape)))

    def shape(self, text: str) -> Any:
        node = parse_expression(text)
        assert isinstance(node, ast.Tuple)
        return tuple(from_op(self.op(part)) for part in node.elts)

    def range(self, line: str) -> Op:
        declared, _, loop = line.removeprefix("for ").removesuffix(":").rpartition(" in ")
        kind, _, extent = loop.removesuffix(")").partition("(")
        src, axis = (self.expression(extent),), AxisKind[kind.upper()]
        declared, _, width = declared.partition(": ")
        dtype = dtype_named(width) if width else dtypes.int64
        return self.declare(
            declared, lambda identity: Op(OpCode.RANGE, dtype, src, (identity, axis)), lambda name: int(name[1:])
        )

    def alloc(self, text: str) -> Op:
        declared, _, memory = text.rpartition(": ")
        element, space = memory.split(" ")
        dtype, numel = element.removesuffix("]").split("[")
        where: MemorySpace = MemorySpace[space.upper()]
        return self.declare(declared, lambda n: Op(OpCode.ALLOC, dtype_named(dtype), (), (n, int(numel), where)))

    def var(self, text: str) -> Op:
        declared, _, kind = text.rpartition(": ")
        found = re.fullmatch(r"(\w+?)(?:x(\d+))?", kind)
        if found is None or not declared:
            raise DataError(f"text: {text!r} names no value: that is NAME: dtype, or NAME: dtypexLANES.")
        dtype, lanes = dtype_named(found.group(1)), int(found.group(2) or 1)
        return self.declare(declared, lambda name: Op(OpCode.VAR, dtype, (), (name, lanes)))

    # ---- expressions ----
    def expression(self, text: str) -> Op:
        return self.op(parse_expression(text))

    def access(self, text: str) -> tuple[Op, Op]:
        node = parse_expression(text)
        if not isinstance(node, ast.Subscript):
            raise DataError(f"text: {text!r} is not an access memory[index].")
        return self.op(node.value), self.op(node.slice)

    def op(self, node: ast.expr) -> Op:
        """Returns the Op of an expression, given as Python's syntax tree."""
        if isinstance(node, ast.Name) and node.id in self.ops:
            return self.ops[node.id]
        if isinstance(node, ast.BinOp):
            return self.infix(type(node.op), node.left, node.right)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.infix(type(node.ops[0]), node.left, node.comparators[0])
        if isinstance(node, ast.Subscript):
            memory, index = self.op(node.value), self.op(node.slice)
            return Op(OpCode.LOAD, memory.dtype, (memory, index))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id != "nan_bits":
            return self.call(node.func.id, node)
        return self.constant(self.values.value(node), None)

    def constant(self, value: Any, dtype: DType | None) -> Op:
        if not isinstance(value, bool | int | float):
            raise DataError(f"text: {value!r} is not a constant.")
        return Op(OpCode.CONST, dtype if dtype is not None else dtypes.dtype_of_scalar(value), (), value)

    def infix(self, kind: type[ast.AST], left: ast.expr, right: ast.expr) -> Op:
        if kind not in AST_CODES:
            raise DataError(f"text: {kind.__name__} is not an operator of a program.")
        code, src = AST_CODES[kind], (self.op(left), self.op(right))
        return Op(code, derived_dtype(code, src), src)

    def call(self, name: str, node: ast.Call) -> Op:
        """Returns the Op of f(...): a function, CODE(...), or a constant as dtype(value)."""
        special = self.calls.get(name)
        if special is not None:
            return special(node)
        if name in FUNCTION_CODES:
            src = tuple(self.op(part) for part in node.args)
            return Op(FUNCTION_CODES[name], derived_dtype(FUNCTION_CODES[name], src), src)
        if name in OpCode.__members__:
            dtype = self.dtype(node.args[0])
            arg = self.values.value(node.keywords[0].value) if node.keywords else None
            return Op(OpCode[name], dtype, tuple(self.op(part) for part in node.args[1:]), arg)
        return self.constant(self.values.value(node.args[0]), dtype_named(name))

    def dtype(self, node: ast.expr) -> DType:
        found = self.values.value(node)
        if not isinstance(found, DType):
            raise DataError(f"text: {ast.unparse(node)!r} is not a dtype.")
        return found

    def load_call(self, node: ast.Call) -> Op:
        src = tuple(self.op(part) for part in node.args)
        return Op(OpCode.LOAD, src[0].dtype, src)

    def spread(self, node: ast.Call) -> Op:
        value = self.op(node.args[0])
        return Op(OpCode.EXPAND, value.dtype, (value,), self.values.value(node.args[1]))

    def convert(self, code: OpCode, node: ast.Call) -> Op:
        return Op(code, self.dtype(node.args[1]), (self.op(node.args[0]),))
