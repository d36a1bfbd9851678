"""Reads PTX: words -> Module.

In:    text
Out:   Module, with unique names of registers, labels and variables in each function

A `{ }` inside a function, such as inline assembly writes, has registers and labels of its own: they get the number of their
scope behind their name.
"""

from __future__ import annotations

from dataclasses import replace

from tests.ptx.module import (
    NBYTES,
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Operand,
    Pair,
    PtxError,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from tests.ptx.tokens import Token, bits_of, cut, line_of, number_of

SPACES = (".global", ".shared", ".const", ".local", ".param")
LINKS = (".visible", ".extern", ".weak", ".common")
SPECIAL = (
    "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt",
    "%lanemask_ge", "%lanemask_gt", "%clock", "%clock64", "%globaltimer", "%smid", "%dynamic_smem_size",
    "%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster", "%total_smem_size",
)  # fmt: skip


def parse(text: str) -> Module:
    """Returns the module that a text of PTX is.

    Raises:
      PtxError: the text is not PTX, or says something that no kernel of picograd has said so far.
    """
    return Parser(text).module()


class Scope:
    """Names between `{` and `}`: as they are written -> as they are in the function."""

    def __init__(self, number: int, outer: Scope | None, function: Function):
        self.number, self.outer, self.function = number, outer, function
        self.labels: set[str] = set(outer.labels) if outer else set()
        self.names: dict[str, str] = {}
        self.families: dict[str, int] = {}  # "%r" of `.reg .b32 %r<5>` -> 5

    def own(self, name: str) -> str:
        return f"{name}@{self.number}" if self.number else name

    def find(self, name: str) -> str | None:
        """Returns the function's name for a name, from here outwards."""
        if name in self.names:
            return self.names[name]
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        if digits and stem in self.families and int(digits) < self.families[stem]:
            return self.own(name)
        return self.outer.find(name) if self.outer else None


class Parser:
    """Walks the words of a text."""

    def __init__(self, text: str):
        self.text, self.tokens, self.at = text, cut(text), 0
        self.globals: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self.count_scopes = 0

    # ---- words ----
    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead].text if self.at + ahead < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> Token:
        """Returns the next word, which has to be the expected one."""
        if self.at >= len(self.tokens):
            raise PtxError(f"the text ends where {expected or 'a word'} is missing.")
        token = self.tokens[self.at]
        if expected is not None and token.text != expected:
            raise self.error(f"{token.text!r} stands where {expected!r} is needed")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def error(self, fact: str) -> PtxError:
        place = self.tokens[min(self.at, len(self.tokens) - 1)].place
        return PtxError(f"line {line_of(self.text, place)}: {fact}.")

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        return sign * number_of(self.take()).value

    def negative(self) -> Immediate:
        number = number_of(self.take())
        if number.format:
            return replace(number, value=number.value ^ 1 << int(number.format[1:]) - 1)
        return Immediate(-number.value)

    # ---- the module ----
    def module(self) -> Module:
        self.take(".version")
        version = self.take().text
        self.take(".target")
        target = self.take().text
        while self.accept(","):
            self.take()
        self.take(".address_size")
        if self.integer() != 64:
            raise self.error("addresses have 64 bits")
        while self.at < len(self.tokens):
            self.declaration()
        return Module(version, target, self.functions, tuple(self.globals.values()))

    def declaration(self) -> None:
        """Reads a variable or a function of the module."""
        is_extern = False
        while self.peek() in LINKS:
            is_extern |= self.take().text == ".extern"
        if self.peek() in (".entry", ".func"):
            self.function(self.take().text == ".entry")
        elif self.peek() in SPACES:
            variable = self.variable(is_extern)
            self.globals[variable.name] = variable
            self.take(";")
        else:
            raise self.error(f"{self.peek()!r} begins no declaration")

    def variable(self, is_extern: bool = False) -> Variable:
        """Reads `.shared .align 16 .b8 name[64] = {1, 2}`, without what ends it."""
        space, align, lanes, kind = self.take().text[1:], 0, 1, ""
        while self.tokens[self.at].text.startswith("."):
            word = self.take().text[1:]
            if word == "align":
                given = self.integer()
                align = align if kind.endswith("ptr") else given  # of what a pointer points at, once .ptr was seen
            elif word in ("v2", "v4"):
                lanes = int(word[1])
            elif word in NBYTES or word == "ptr":
                kind += word
            elif word not in ("global", "shared", "const", "local"):  # what a pointer points to
                raise self.error(f".{word} is no part of a variable")
        element = kind.removesuffix("ptr")
        name, numel = self.take().text, 1
        while self.accept("["):
            numel *= 0 if self.peek() == "]" else self.integer()
            self.take("]")
        nbytes = NBYTES[element] * lanes * numel
        data = self.initial(element, nbytes) if self.accept("=") else None
        return Variable(name, space, nbytes, align or NBYTES[element] * lanes, data, is_extern)

    def initial(self, element: str, nbytes: int) -> bytes:
        """Reads the numbers that a variable begins with; the rest is 0."""
        numbers: list[Immediate] = []
        depth = 0
        while self.peek() != ";":
            token = self.take()
            depth += {"{": 1, "}": -1}.get(token.text, 0)
            if token.kind in ("int", "float"):
                numbers.append(number_of(token))
            elif token.text == "-":
                numbers.append(self.negative())
            elif token.text not in "{},":
                raise self.error(f"{token.text!r} is no number that a variable begins with")
        width = NBYTES[element]
        return b"".join(bits_of(number, element).to_bytes(width, "little") for number in numbers).ljust(nbytes, b"\0")

    # ---- functions ----
    def function(self, is_entry: bool) -> None:
        results = self.parameters() if self.peek() == "(" else ()
        made = Function(self.take().text, is_entry, results=results)
        made.params = self.parameters() if self.peek() == "(" else ()
        while self.peek() not in ("{", ";"):
            self.directive(made)
        if self.accept(";"):  # a declaration: the function follows, or is called and not there
            return
        self.functions[made.name] = made
        self.block(made, None)

    def directive(self, made: Function) -> None:
        """Reads `.maxntid 64, 1, 1` and others that stand before a body."""
        word = self.take().text
        numbers = []
        while self.tokens[self.at].kind == "int":
            numbers.append(self.integer())
            if not self.accept(","):
                break
        if word in (".maxntid", ".reqntid"):
            made.max_threads = numbers[0]
        elif word not in (".minnctapersm", ".maxnreg", ".noreturn", ".pragma", ".unified"):
            raise self.error(f"{word} is no directive of a function that is known here")

    def parameters(self) -> tuple[Variable, ...]:
        self.take("(")
        found = []
        while not self.accept(")"):
            found.append(self.variable())
            self.accept(",")
        return tuple(found)

    def block(self, made: Function, outer: Scope | None) -> None:
        """Reads `{ ... }`."""
        scope = Scope(self.count_scopes if outer else 0, outer, made)
        self.count_scopes += 1
        self.take("{")
        self.find_labels(scope)
        for variable in (*made.params, *made.results) if outer is None else ():
            scope.names[variable.name] = variable.name
        while not self.accept("}"):
            self.statement(made, scope)

    def find_labels(self, scope: Scope) -> None:
        """Names the labels of a block, which are used before they stand there."""
        depth, at = 0, self.at
        while depth >= 0:
            here = self.tokens[at]
            depth += {"{": 1, "}": -1}.get(here.text, 0)
            if depth == 0 and here.kind == "word" and self.tokens[at + 1].text == ":":
                scope.names[here.text] = scope.own(here.text)
                scope.labels.add(scope.own(here.text))
            at += 1

    def statement(self, made: Function, scope: Scope) -> None:
        word = self.peek()
        if word == "{":
            self.block(made, scope)
        elif word == ".reg":
            self.take()
            self.registers(made, scope)
        elif word in SPACES:
            variable = self.variable()
            scope.names[variable.name] = scope.own(variable.name)
            made.variables.append(replace(variable, name=scope.own(variable.name)))
            self.take(";")
        elif word == ".pragma":
            while not self.accept(";"):
                self.take()
        elif self.peek(1) == ":":
            self.label(made, scope)
        elif word != ";":
            made.instructions.append(self.instruction(scope))
        else:
            self.take(";")

    def label(self, made: Function, scope: Scope) -> None:
        """Reads `name:`, or `name: .branchtargets a, b;`."""
        name = scope.own(self.take().text)
        self.take(":")
        if not self.accept(".branchtargets"):
            made.labels[name] = len(made.instructions)
            return
        labels = []
        while not self.accept(";"):
            labels.append(scope.find(self.take().text) or "")
            self.accept(",")
        made.targets[name] = tuple(labels)

    def registers(self, made: Function, scope: Scope) -> None:
        """Reads `.pred p, q;` or `.b32 %r<5>;`."""
        kind = self.take().text[1:]
        if kind not in NBYTES:
            raise self.error(f".{kind} is no type of a register")
        while not self.accept(";"):
            name = self.take().text
            if self.accept("<"):
                scope.families[name] = self.integer()
                self.take(">")
                for number in range(scope.families[name]):
                    made.registers[scope.own(f"{name}{number}")] = kind
            else:
                scope.names[name] = scope.own(name)
                made.registers[scope.own(name)] = kind
            self.accept(",")

    # ---- instructions ----
    def instruction(self, scope: Scope) -> Instruction:
        first = self.tokens[self.at].place
        guard = None
        if self.accept("@"):
            negated = self.accept("!")
            guard = Register(self.known(scope, self.take().text), negated)
        opcode = self.take()
        if opcode.kind != "word" or opcode.text[0] in ".%":
            raise self.error(f"{opcode.text!r} is no instruction")
        operands = []
        while self.peek() != ";":
            operands.append(self.operand(scope))
            if self.peek() != ";":
                self.take(",")
        last = self.take(";").place
        text = " ".join(self.text[first : last + 1].split())
        return Instruction(opcode.text, guard, tuple(operands), line_of(self.text, first), text)

    def known(self, scope: Scope, name: str) -> str:
        found = scope.find(name)
        if found is None:
            raise self.error(f"{name!r} is not declared")
        return found

    def operand(self, scope: Scope) -> Operand:
        """Reads one operand; of a call, a list in parentheses."""
        if self.accept("["):
            return self.address(scope)
        if self.peek() in ("{", "("):
            end = {"{": "}", "(": ")"}[self.take().text]
            parts = []
            while not self.accept(end):
                parts.append(self.operand(scope))
                self.accept(",")
            return Vector(tuple(parts))
        if self.accept("!"):
            return Register(self.known(scope, self.take().text), negated=True)
        found = self.simple(scope)
        return Pair(found, self.simple(scope)) if self.accept("|") else found

    def simple(self, scope: Scope) -> Operand:
        """Reads a number or a name."""
        if self.accept("-"):
            return self.negative()
        token = self.take()
        if token.kind in ("int", "float"):
            return number_of(token)
        if token.text == "_":
            return Sink()
        if token.text.split(".")[0] in SPECIAL:
            return Special(token.text)
        name = scope.find(token.text)
        if name is None and token.text.startswith("%"):
            raise self.error(f"{token.text!r} is not declared")
        if name in scope.function.registers:
            return Register(name)
        if name in scope.labels:
            return Label(name)
        return Symbol(name or token.text, self.offset())

    def offset(self) -> int:
        """Reads the bytes that are added to an address, if there are any."""
        if self.peek() not in ("+", "-"):
            return 0
        return -self.integer() if self.take().text == "-" else self.integer()

    def address(self, scope: Scope) -> Address:
        """Reads `base + offset]`, or `map, {x, y}]`."""
        base = self.simple(scope)
        offset = self.offset()
        index: tuple[Operand, ...] = ()
        if self.accept(","):
            vector = self.operand(scope)
            assert isinstance(vector, Vector)
            index = vector.parts
        self.take("]")
        if isinstance(base, Immediate):
            return Address(None, base.value + offset, index)
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset, index)
        assert isinstance(base, Register)
        return Address(base, offset, index)
