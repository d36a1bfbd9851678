"""Graphs and Kernels as text that reads back: what is shown, dumped, compared in tests, and the key of caches.

In:    Ops or a Kernel, or their text
Out:   the text, the same in every process; or the same Ops

One line an Op, sources first. The shape at the right is derived; reading checks it. A BUFFER is printed by order of
appearance, with its device and elements, and reads back as the Buffer given for that place, or a new one.

    %0 = PARAM 0                       float32 (32, 768)
    %1 = PERMUTE %0 (1, 0)             float32 (768, 32)
    return %1

Arguments are Python literals, names of enums, and the records of `RECORDS`: reading walks Python's syntax tree of the text,
and nothing is evaluated.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from typing import Any

from picograd.dtype import ALL, DType, dtype_named
from picograd.errors import DataError
from picograd.ir.checks import Site
from picograd.ir.host import HostCall
from picograd.ir.op import Buffer, Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, Named, OpCode
from picograd.ir.shape import AttentionArg, ConvArg, MatmulArg
from picograd.ir.stages import Kernel, Nest, NestKind, Param
from picograd.record import Record

# ---- arguments ----
# Records that may be in an argument, by name; those of a KERNEL are shown, and not read.
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

    names:  the meaning of a name, before the names all texts share
    """

    constants: Mapping[str, Any] = {"inf": float("inf"), "nan": float("nan"), **{t.name: t for t in ALL}}

    def __init__(self, names: Callable[[str], Any]):
        self.names = names

    def read(self, text: str) -> Any:
        """Returns the value of `text`.

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
        raise DataError(f"text: {ast.unparse(node)!r} is not an argument of an Op.")

    def record(self, name: str, node: ast.Call) -> Any:
        """Returns a record of `RECORDS`, or a NaN by its bits."""
        if name == "nan_bits":
            return struct.unpack("d", struct.pack("Q", self.value(node.args[0])))[0]
        if name not in RECORDS:
            raise DataError(f"text: {name} is not a record of RECORDS in picograd/ir/text.py.")
        return RECORDS[name](**{str(k.arg): self.value(k.value) for k in node.keywords})


def parse_expression(text: str) -> ast.expr:
    """Returns the syntax tree of an expression.

    Raises:
      DataError: the text is not an expression.
    """
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise DataError(f"text: {text!r} cannot be read: {error}.") from None


def enum_names(code: OpCode) -> Callable[[str], Any]:
    """Returns the meaning of bare names in the argument of `code`: members of AxisKind, MemorySpace or OpCode."""
    members = ENUMS.get(code, OpCode).__members__
    return lambda name: members.get(name)


# ---- lines ----
LEFT_COLUMNS = 34  # columns before the dtype
REFERENCE = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|%(\d+)""")
LINE = re.compile(r"^\s*%(\d+) = ([A-Z0-9_]+)((?: %\d+)*)(?: (.*?))?$")


# ---- order and names ----
def ops_in(value: Any) -> list[Op]:
    """Returns the Ops an argument holds: symbolic dimensions, the body of a CALL or a LOOP."""
    if isinstance(value, Op):
        return [value]
    found: list[Op] = []
    if isinstance(value, tuple):
        for part in value:
            if isinstance(part, Op | tuple):
                found += ops_in(part)
    return found


def _order(roots: Iterable[Op]) -> list[Op]:
    """Returns every Op that the text of `roots` names, after those its own line names."""
    return toposort(roots, sources=lambda op: [*op.src, *ops_in(op.arg), *ops_in(op.shape)])


def buffers_of(roots: Iterable[Op]) -> list[Buffer]:
    """Returns the Buffers of a graph in the order in which its text numbers them."""
    found: dict[int, Buffer] = {}
    for op in _order(roots):
        if op.code is OpCode.BUFFER:
            found.setdefault(id(op.arg[0]), op.arg[0])
    return list(found.values())


class _Names:
    """%-numbers of Ops and places of Buffers."""

    def __init__(self, order: Sequence[Op]):
        self.number = {op: i for i, op in enumerate(order)}
        self.buffers: dict[int, int] = {}

    def of(self, op: Op) -> str:
        return f"%{self.number[op]}"

    def line(self, op: Op) -> str:
        """Returns the line that defines `op`."""
        left = " ".join([self.of(op), "=", op.code.name, *map(self.of, op.src)])
        argument = self.argument(op)
        left = f"{left} {argument}" if argument else left
        return f"{left.ljust(LEFT_COLUMNS)}   {op.dtype} {show(op.shape, self.of)}"

    def argument(self, op: Op) -> str:
        """Returns the text of an Op besides its code and sources."""
        if op.code is OpCode.BUFFER:
            buffer = op.arg[0]
            place = self.buffers.setdefault(id(buffer), len(self.buffers))
            return f"{place} {buffer.device} {buffer.numel}"
        if op.code is OpCode.PARAM:
            return str(op.arg[0])
        if op.code is OpCode.CONST and op.dtype.is_float:
            return show(float(op.arg), self.of)
        if isinstance(op.arg, Op):
            return f"body={self.of(op.arg)}"
        return "" if op.arg is None else show(op.arg, self.of)


# ---- graphs ----
def format_graph(roots: Sequence[Op]) -> str:
    """Returns the text of a graph.

    >>> print(format_graph([Op(OpCode.CONST, dtype_named("float32"), (), 2.0)]))
    %0 = CONST 2.0                       float32 ()
    return %0
    """
    order = _order(roots)
    names = _Names(order)
    return "\n".join([*(names.line(op) for op in order), " ".join(["return", *(names.of(op) for op in roots)])])


def parse_graph(text: str, buffers: Sequence[Buffer] = ()) -> list[Op]:
    """Returns the roots that `format_graph` wrote; with `buffers_of(roots)` as buffers they are identical.

    Raises:
      DataError: a line is not of the syntax above, or its shape is not what the Op has.
    """
    reader = _GraphReader(buffers)
    for line in text.splitlines():
        if line.startswith("return"):
            return [reader.reference(name) for name in line.split()[1:]]
        if line.strip():
            reader.line(line)
    raise DataError("text: a graph ends in a line 'return %n ...'.")


class _GraphReader:
    """Reads the lines of a graph into Ops by number."""

    def __init__(self, buffers: Sequence[Buffer] = ()):
        self.ops: dict[int, Op] = {}
        self.buffers: dict[int, Buffer] = dict(enumerate(buffers))

    def reference(self, name: str) -> Op:
        """Returns the Op of a name like %3."""
        number = name.lstrip("%")
        if not number.isdigit() or int(number) not in self.ops:
            raise DataError(f"text: {name} is not defined above.")
        return self.ops[int(number)]

    def value(self, text: str, code: OpCode = OpCode.SINK) -> Any:
        """Returns an argument; %-names in it are those of the lines above."""

        def replace(match: re.Match[str]) -> str:
            return match.group(0) if match.group(1) is None else f"op_{match.group(1)}"

        members = enum_names(code)

        def names(name: str) -> Any:
            return self.reference(name[3:]) if name.startswith("op_") else members(name)

        return ValueReader(names).read(REFERENCE.sub(replace, text))

    def line(self, line: str) -> Op:
        """Reads one line into `ops` and returns the Op."""
        left, _, right = line.rpartition("   ")
        found = LINE.match(left.rstrip())
        if found is None or found.group(2) not in OpCode.__members__:
            raise DataError(f"text: {line!r} is not a line '%n = CODE %sources argument   dtype shape'.")
        number, code = int(found.group(1)), OpCode[found.group(2)]
        dtype, _, shape = right.strip().partition(" ")
        src = tuple(self.reference(name) for name in found.group(3).split())
        shape_given = self.value(shape)
        arg = self.argument(code, found.group(4) or "", dtype, shape_given)
        op = Op(code, dtype_named(dtype), src, arg)
        if op.shape != shape_given:
            raise DataError(f"text: {line.strip()!r} has shape {op.shape}.")
        self.ops[number] = op
        return op

    def argument(self, code: OpCode, text: str, dtype: str, shape: Any) -> Any:
        if code is OpCode.BUFFER:
            place, device, numel = text.split()
            new = Buffer(device, dtype_named(dtype), int(numel))
            return (self.buffers.setdefault(int(place), new), shape)
        if code is OpCode.PARAM:
            return (int(text), shape)
        if text.startswith("body="):
            return self.reference(text.removeprefix("body="))
        return self.value(text, code) if text else None


# ---- kernels ----
def format_kernel(kernel: Kernel) -> str:
    """Returns the text of a Kernel: its graph, its params and its nests."""
    nests = [nest for phase in kernel.phases for nest in phase]
    dims = [op for p in kernel.params for op in ops_in(p.numel)] + [op for n in nests for op in ops_in(n.domain)]
    anchors = [nest.anchor for nest in nests if nest.anchor is not None]
    values = [value for nest in nests for _, value in nest.outputs]
    order = _order([*kernel.variables, *dims, *values, *anchors])
    names = _Names(order)
    lines = [f"kernel {kernel.name}", *[f"  {names.line(op)}" for op in order]]
    lines += [f"  param {p.role} {p.dtype} {show(p.numel, names.of)}" for p in kernel.params]
    lines += [f"  variable {names.of(v)}" for v in kernel.variables]
    for phase in kernel.phases:
        lines.append("  phase")
        for nest in phase:
            lines.append(f"    nest {nest.kind.value} domain {show(nest.domain, names.of)} reduced {nest.reduced}")
            lines += [f"      anchor {names.of(nest.anchor)}"] if nest.anchor is not None else []
            lines += [f"      store {slot} {names.of(value)}" for slot, value in nest.outputs]
    return "\n".join(lines)


def parse_kernel(text: str) -> Kernel:
    """Returns the Kernel that `format_kernel` wrote.

    Raises:
      DataError: a line is not of its syntax.
    """
    reader = _GraphReader()
    name = ""
    params: list[Param] = []
    variables: list[Op] = []
    phases: list[list[_NestText]] = []
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "kernel":
            name = rest
        elif word == "param":
            role, dtype, numel = rest.split(" ", 2)
            params.append(Param(dtype_named(dtype), reader.value(numel), role))
        elif word == "variable":
            variables.append(reader.reference(rest))
        elif word == "phase":
            phases.append([])
        elif word == "nest":
            phases[-1].append(_NestText(rest, reader))
        elif word in ("anchor", "store"):
            phases[-1][-1].detail(word, rest, reader)
        elif word:
            reader.line(line)
    made = tuple(tuple(nest.finish() for nest in phase) for phase in phases)
    return Kernel(name, tuple(params), tuple(variables), made)


class _NestText:
    """A Nest whose lines are being read."""

    def __init__(self, rest: str, reader: _GraphReader):
        kind, domain, reduced = re.split(" domain | reduced ", rest)
        self.kind, self.domain, self.reduced = NestKind(kind), reader.value(domain), reader.value(reduced)
        self.anchor: Op | None = None
        self.outputs: list[tuple[int, Op]] = []

    def detail(self, word: str, rest: str, reader: _GraphReader) -> None:
        if word == "anchor":
            self.anchor = reader.reference(rest)
        else:
            slot, value = rest.split()
            self.outputs.append((int(slot), reader.reference(value)))

    def finish(self) -> Nest:
        return Nest(self.kind, self.domain, self.reduced, self.anchor, tuple(self.outputs))


# ---- errors ----
def neighbourhood(op: Op) -> str:
    """Returns the lines of an Op and its sources, the Op itself marked: what an error shows."""
    order = list(dict.fromkeys([*op.src, op]))
    names: Mapping[Op, int] = {o: i for i, o in enumerate(order)}

    def of(o: Op) -> str:
        return f"%{names[o]}" if o in names else f"<{o.code.name}>"

    lines = []
    for o in order:
        shown = "" if o.arg is None else " " + show(o.arg, of)
        sources = " ".join(of(s) for s in o.src)
        left = f"{of(o)} = {o.code.name} {sources}".rstrip() + shown
        lines.append(f"{'  > ' if o is op else '    '}{left.ljust(LEFT_COLUMNS)}   {o.dtype} {show(o.shape, of)}")
    return "\n".join(lines)
