"""Expressions of Jinja: words -> a function of the variables.

Source: Pallets, Jinja, "Template Designer Documentation", expressions; its parser (the precedence of operators).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from picograd.errors import DataError
from picograd_programs.chat.jinja_values import (
    ARITHMETIC,
    COMPARISONS,
    FILTERS,
    GLOBALS,
    TESTS,
    Undefined,
    Value,
    found_in,
    known,
    length_of,
)  # fmt: skip

STEPS_MAX = 500_000  # of one rendering: a template with a dialogue of a thousand turns takes a twentieth of this
LETTERS_OF_A_STEP = 64  # or values: larger results count as several steps
STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
TOKEN = re.compile(
    rf"\s*(?:(\d+\.\d+|\d+)|([^\W\d]\w*)|({STRING})|(==|!=|<=|>=|//|\*\*|[-+*/%~<>=()\[\]{{}}.,:|])|(\S))",
    re.DOTALL,
)
CONSTANTS = {"true": True, "false": False, "none": None, "True": True, "False": False, "None": None}
LEVELS = (("+", "-"), ("~",), ("*", "/", "//", "%"), ("**",))  # of operators, from the lowest precedence
Expression = Callable[["Scope"], Value]


class Scope:
    """Variables of a part of a template, nested in those of the enclosing part; and the number of steps left."""

    def __init__(self, around: Scope | None, values: Mapping[str, Value]):
        self.around, self.values = around, dict(values)
        self.steps: list[int] = [STEPS_MAX] if around is None else around.steps

    def get(self, name: str) -> Value:
        """Returns the value of a variable."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.around
        return GLOBALS.get(name, Undefined(name))

    def step(self, num: int = 1) -> None:
        """Counts steps.

        Raises:
          DataError: there are too many steps.
        """
        self.steps[0] -= num
        if self.steps[0] < 0:
            raise DataError(f"the template takes more than {STEPS_MAX:,} steps.")


    def made(self, value: Value) -> Value:
        """Returns a new value, whose length counts as steps.

        Raises:
          DataError: it is too long, or there are too many steps.
        """
        self.step(length_of(value) // LETTERS_OF_A_STEP)
        return value


class Words:
    """The words of an expression or a statement, in sequence.

    Raises:
      DataError: a word is unknown. Also raised by the methods, if another word is needed.
    """

    def __init__(self, text: str):
        self.text, self.place = text, 0
        self.words: list[tuple[str, str]] = []
        for found in TOKEN.finditer(text.rstrip()):
            kind = ("number", "name", "string", "sign", "")[(found.lastindex or 1) - 1]
            if not kind:
                raise self.wrong()
            self.words.append((kind, found[found.lastindex or 0]))

    def wrong(self) -> DataError:
        """Returns the error message for these words."""
        return DataError(f"the template has {' '.join(self.text.split())[:60]!r}, which is not supported.")

    def peek(self, offset: int = 0) -> tuple[str, str]:
        """Returns the kind and the text of a word ahead."""
        place = self.place + offset
        return self.words[place] if place < len(self.words) else ("end", "")

    def takes(self, *texts: str) -> str:
        """Consumes the next word if it is one of some, and returns it, or ""."""
        kind, text = self.peek()
        if kind in ("name", "sign") and text in texts:
            self.place += 1
            return text
        return ""

    def need(self, text: str) -> None:
        """Consumes the given word."""
        if not self.takes(text):
            raise self.wrong()

    def name(self) -> str:
        """Consumes a name."""
        kind, text = self.peek()
        if kind != "name":
            raise self.wrong()
        self.place += 1
        return text

    def whole(self) -> Expression:
        """Parses an expression that ends the words."""
        found = self.expression()
        self.end()
        return found

    def end(self) -> None:
        """Checks that no word is left."""
        if self.peek()[0] != "end":
            raise self.wrong()

    def several(self) -> Expression:
        """Parses expressions separated by commas: a tuple, if there are commas."""
        first = self.expression()
        if self.peek() != ("sign", ","):
            return first
        parts = [first]
        while self.takes(",") and self.peek()[0] != "end":
            parts.append(self.expression())
        return lambda scope: tuple(part(scope) for part in parts)

    def expression(self) -> Expression:
        """Parses: A if B else C"""
        value = self.either()
        while self.takes("if"):
            condition, yes = self.either(), value
            no: Expression = self.expression() if self.takes("else") else lambda scope: Undefined()
            value = choice(condition, yes, no)
        return value

    def either(self) -> Expression:
        """Parses: A or B"""
        value = self.both()
        while self.takes("or"):
            value = choice_of_first(value, self.both(), True)
        return value

    def both(self) -> Expression:
        """Parses: A and B"""
        value = self.negation()
        while self.takes("and"):
            value = choice_of_first(value, self.negation(), False)
        return value

    def negation(self) -> Expression:
        """Parses: not A"""
        if self.takes("not"):
            value = self.negation()
            return lambda scope: not value(scope)
        return self.comparison()

    def comparison(self) -> Expression:
        """Parses: A < B, or A in B; a chain of comparisons holds if all do"""
        first, parts = self.operation(0), []
        while True:
            sign = self.takes("==", "!=", "<", ">", "<=", ">=", "in")
            if not sign and self.peek() == ("name", "not") and self.peek(1) == ("name", "in"):
                self.place += 2
                sign = "not in"
            if not sign:
                break
            parts.append((COMPARISONS[sign], self.operation(0)))

        def compared(scope: Scope) -> Value:
            left = first(scope)
            for compare, right in parts:
                value = right(scope)
                if not compare(left, value):
                    return False
                left = value
            return True

        return compared if parts else first

    def operation(self, level: int) -> Expression:
        """Parses: A + B, and operators of higher precedence"""
        if level == len(LEVELS):
            return self.unary()
        value = self.operation(level + 1)
        while sign := self.takes(*LEVELS[level]):
            value = combined(ARITHMETIC[sign], value, self.operation(level + 1))
        return value

    def unary(self, takes_filters: bool = True) -> Expression:
        """Parses: -A, A.b[c](d) | filter is test"""
        if sign := self.takes("-", "+"):
            inner = self.unary(False)
            value: Expression = (lambda scope: -inner(scope)) if sign == "-" else lambda scope: +inner(scope)
        else:
            value = self.primary()
        value = self.behind(value)
        while takes_filters:
            if self.takes("|"):
                kind = known(self.name(), FILTERS, "filter")
                value = self.behind(filtered(kind, value, self.arguments() if self.takes("(") else NO_ARGUMENTS))
            elif self.takes("is"):
                is_not, name = bool(self.takes("not")), self.name()
                value = tested(known(name, TESTS, "test"), value, self.of_test(), is_not)
            else:
                break
        return value

    def of_test(self) -> Arguments:
        """Parses the arguments of a test; a single one needs no parentheses."""
        if self.takes("("):
            return self.arguments()
        kind, text = self.peek()
        if kind in ("number", "string") or text in ("[", "{") or kind == "name" and text not in (
            "and", "or", "if", "else", "is", "in", "not", "recursive",
        ):  # fmt: skip
            return [self.behind(self.primary())], {}
        return NO_ARGUMENTS

    def behind(self, value: Expression) -> Expression:
        """Parses the suffixes of a value: .name, [index], (arguments)"""
        while sign := self.takes(".", "[", "("):
            if sign == ".":
                kind, name = self.peek()
                self.place += 1
                if kind not in ("name", "number"):
                    raise self.wrong()
                value = attribute(value, name) if kind == "name" else item(value, constant(int(float(name))))
            elif sign == "(":
                value = called(value, self.arguments())
            else:
                value = item(value, self.index())
        return value

    def index(self) -> Expression:
        """Parses an index or a slice, with its closing bracket."""
        parts: list[Expression | None] = [None]
        while not self.takes("]"):
            if self.takes(":"):
                parts.append(None)
            else:
                parts[-1] = self.several()
        if len(parts) == 1 and parts[0] is not None:
            return parts[0]
        if len(parts) not in (2, 3):
            raise self.wrong()
        return lambda scope: slice(*(None if part is None else part(scope) for part in parts))

    def arguments(self) -> Arguments:
        """Parses arguments, with their closing parenthesis."""
        places, names = list[Expression](), dict[str, Expression]()
        while not self.takes(")"):
            if self.peek()[0] == "name" and self.peek(1) == ("sign", "="):
                name = self.name()
                self.need("=")
                names[name] = self.expression()
            else:
                places.append(self.expression())
            if self.peek() != ("sign", ")"):
                self.need(",")
        return places, names

    def primary(self) -> Expression:
        """Parses a constant, a variable, a list, a dict, or an expression in parentheses."""
        kind, text = self.peek()
        self.place += 1
        if kind == "number":
            return constant(float(text) if "." in text else int(text))
        if kind == "string":
            joined = unescaped(text)
            while self.peek()[0] == "string":
                joined += unescaped(self.peek()[1])
                self.place += 1
            return constant(joined)
        if kind == "name":
            if text in CONSTANTS:
                return constant(CONSTANTS[text])
            return lambda scope: scope.get(text)
        if text == "(":
            if self.takes(")"):
                return lambda scope: ()
            parts = self.listed(")")
            return parts[0][0] if len(parts) == 1 and not parts[0][1] else lambda scope: tuple(p(scope) for p, _ in parts)
        if text == "[":
            inside = [part for part, _ in self.listed("]")] if not self.takes("]") else []
            return lambda scope: [part(scope) for part in inside]
        if text == "{":
            pairs = list[tuple[Expression, Expression]]()
            while not self.takes("}"):
                key = self.expression()
                self.need(":")
                pairs.append((key, self.expression()))
                if self.peek() != ("sign", "}"):
                    self.need(",")
            return lambda scope: {key(scope): value(scope) for key, value in pairs}
        raise self.wrong()

    def listed(self, bracket: str) -> list[tuple[Expression, bool]]:
        """Parses expressions up to a closing bracket; with each, whether a comma follows."""
        parts = list[tuple[Expression, bool]]()
        while not self.takes(bracket):
            part = self.expression()
            has_comma = bool(self.takes(","))
            parts.append((part, has_comma))
            if not has_comma and self.peek() != ("sign", bracket):
                raise self.wrong()
        return parts


Arguments = tuple[list[Expression], dict[str, Expression]]
NO_ARGUMENTS: Arguments = ([], {})


def unescaped(text: str) -> str:
    """Returns the characters of a string literal."""
    found = text[1:-1].encode("ascii", "backslashreplace").decode("unicode-escape")
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def constant(value: Value) -> Expression:
    """Returns a constant's node."""
    return lambda scope: value


def choice(condition: Expression, yes: Expression, no: Expression) -> Expression:
    """Returns: yes if condition else no"""
    return lambda scope: yes(scope) if condition(scope) else no(scope)


def choice_of_first(left: Expression, right: Expression, is_or: bool) -> Expression:
    """Returns: left or right; left and right"""
    return lambda scope: value if bool(value := left(scope)) == is_or else right(scope)


def combined(function: Callable[[Value, Value], Value], left: Expression, right: Expression) -> Expression:
    """Returns an operation on two values."""

    def value(scope: Scope) -> Value:
        scope.step()
        return scope.made(function(left(scope), right(scope)))

    return value


def attribute(owner: Expression, name: str) -> Expression:
    """Returns: owner.name, a method of the table or an entry of a dict"""
    return lambda scope: found_in(owner(scope), name, True)


def item(owner: Expression, index: Expression) -> Expression:
    """Returns: owner[index]"""
    return lambda scope: found_in(owner(scope), index(scope), False)


def called(function: Expression, arguments: Arguments) -> Expression:
    """Returns: function(arguments)"""
    places, names = arguments

    def value(scope: Scope) -> Value:
        scope.step()
        found = function(scope)
        if not callable(found):
            raise DataError(
                f"the template calls {'an undefined name' if isinstance(found, Undefined) else str(found)[:40]}."
            )
        return scope.made(found(*(place(scope) for place in places), **{n: each(scope) for n, each in names.items()}))

    return value


def filtered(function: Callable[..., Value], owner: Expression, arguments: Arguments) -> Expression:
    """Returns: owner | function(arguments)"""
    places, names = arguments

    def value(scope: Scope) -> Value:
        scope.step()
        values = [owner(scope), *(place(scope) for place in places)]
        return scope.made(function(*values, **{name: each(scope) for name, each in names.items()}))

    return value


def tested(test: Callable[..., Value], owner: Expression, arguments: Arguments, is_not: bool) -> Expression:
    """Returns: owner is test(arguments)"""
    return lambda scope: bool(test(owner(scope), *(place(scope) for place in arguments[0]))) != is_not
