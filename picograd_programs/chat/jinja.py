"""Jinja, the language of chat templates, as far as models' templates use it.

    source -> tags and text -> functions of the variables -> text

A template comes from a file of unknown origin. So it has access to values only: the methods of strings, lists and dicts in
a table here, none of Python's attributes, files or modules; and its number of steps is limited.

Source: Pallets, Jinja, "Template Designer Documentation"; Hugging Face, transformers, `chat_template_utils` (trimmed
       blocks, `raise_exception`, `strftime_now`, `tojson`, loop controls).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from picograd.errors import DataError
from picograd_programs.chat.jinja_values import FILTERS, Space, Undefined, Value, known, shown
from picograd_programs.chat.jinja_words import NO_ARGUMENTS, STRING, Expression, Scope, Words, filtered

# The inside of a tag; strings and dicts may contain the tag's end. Alternatives are disjoint, so that matching is linear.
INSIDE = rf"((?:{STRING}|\{{(?:{STRING}|[^}}'\"])*?\}}|[^{{'\"])*?)"
OPENING = re.compile(r"\{[{%#]")
TAG = re.compile(rf"\{{%([-+]?){INSIDE}([-+]?)%\}}|\{{\{{([-+]?){INSIDE}([-+]?)\}}\}}|\{{#([-+]?).*?([-+]?)#\}}", re.DOTALL)
Node = Callable[[Scope, list[str]], None]


class Broken(Exception):
    """Leaves a loop."""


class Continued(Exception):
    """Continues with the next iteration of a loop."""


# ---- tags and text ----
def tags_in(source: str) -> Iterator[re.Match[str]]:
    """Yields the tags of a template.

    Raises:
      DataError: a tag is not closed.
    """
    place = 0
    while opening := OPENING.search(source, place):
        found = TAG.match(source, opening.start())
        if found is None:
            raise DataError(f"the template has an unclosed tag: {source[opening.start() :][:40]!r}.")
        yield found
        place = found.end()


def pieces_of(source: str) -> list[tuple[str, str]]:
    """Returns the pieces of a template: ("text", ...), ("block", ...) and ("value", ...).

    Removes the newline after a block and the spaces before a block at the start of a line; "-" removes all white space.

    >>> pieces_of("a {%- if x %}\\nb{% endif %}")
    [('text', 'a'), ('block', ' if x '), ('text', 'b'), ('block', ' endif ')]
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    pieces: list[tuple[str, str]] = []
    past, strips, trims = 0, False, False
    for found in tags_in(source):
        text = source[past : found.start()]
        is_value = found[5] is not None
        before, behind = (found[4], found[6]) if is_value else (found[1] or found[7] or "", found[3] or found[8] or "")
        text = text.lstrip() if strips else text[1:] if trims and text.startswith("\n") else text
        if before == "-":
            text = text.rstrip()
        elif not is_value and before != "+":
            line = text.rpartition("\n")
            if not line[2].strip(" \t") and (line[1] or past == 0 or trims and source[past : past + 1] == "\n"):
                text = line[0] + line[1]
        if text:
            pieces.append(("text", text))
        if found[2] is not None or is_value:
            pieces.append(("value", found[5]) if is_value else ("block", found[2]))
        past, strips, trims = found.end(), behind == "-", not is_value and behind != "+"
    text = source[past:]
    text = text.lstrip() if strips else text[1:] if trims and text.startswith("\n") else text
    return [*pieces, ("text", text)] if text else pieces


# ---- statements ----
class Template:
    """A parsed template, to be rendered with variables.

    Raises:
      DataError: it uses an unsupported part of Jinja.

    >>> Template("{% for name in names %}{{ loop.index }}. {{ name | title }}\\n{% endfor %}").render(names=["ann", "bo"])
    '1. Ann\\n2. Bo\\n'
    """

    def __init__(self, source: str):
        self.pieces, self.place = pieces_of(source), 0
        try:
            self.body, _ = self._nodes()
        except RecursionError:
            raise DataError("the template is nested too deeply.") from None

    def render(self, **values: Value) -> str:
        """Renders the template.

        Raises:
          DataError: the template rejects the values, or applies an invalid operation to one.
        """
        out: list[str] = []
        try:
            self.body(Scope(None, values), out)
        except (Broken, Continued):
            raise DataError("the template has a break or continue outside a loop.") from None
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"the template fails: {type(error).__name__}: {str(error)[:100]}.") from None
        return "".join(out)

    def _nodes(self, *ends: str) -> tuple[Node, Words]:
        """Parses pieces up to a block that starts with one of some words; returns their nodes, and the block."""
        nodes = list[Node]()
        while self.place < len(self.pieces):
            kind, text = self.pieces[self.place]
            self.place += 1
            if kind == "text":
                nodes.append(text_node(text))
                continue
            words = Words(text)
            if kind == "value":
                nodes.append(value_node(words.several()))
                words.end()
                continue
            name = words.name()
            if name in ends:
                words.place = 0
                return sequence(nodes), words
            nodes.append(self._block(name, words))
        if ends:
            raise DataError(f"the template has no {ends[-1]} where it needs one.")
        return sequence(nodes), Words("")

    def _block(self, name: str, words: Words) -> Node:
        if name == "if":
            return self._if(words)
        if name == "for":
            return self._for(words)
        if name == "set":
            return self._set(words)
        if name == "macro":
            return self._macro(words)
        if name == "filter":
            kind = known(words.name(), FILTERS, "filter")
            arguments = words.arguments() if words.takes("(") else NO_ARGUMENTS
            words.end()
            body, _ = self._nodes("endfilter")
            return value_node(filtered(kind, rendered(body), arguments))
        if name == "generation":
            body, _ = self._nodes("endgeneration")
            return body
        if name in ("break", "continue"):
            return leave(Broken if name == "break" else Continued)
        raise words.wrong()

    def _if(self, words: Words) -> Node:
        cases = list[tuple[Expression, Node]]()
        condition: Expression | None = words.whole()
        while True:
            body, words = self._nodes("elif", "else", "endif")
            cases.append((condition or (lambda scope: True), body))
            ending = words.name()
            if ending == "endif":
                break
            condition = words.whole() if ending == "elif" else None

        def node(scope: Scope, out: list[str]) -> None:
            scope.step()
            for condition, body in cases:
                if condition(scope):
                    body(scope, out)
                    return

        return node

    def _for(self, words: Words) -> Node:
        names = [words.name()]
        while words.takes(","):
            names.append(words.name())
        words.need("in")
        values = words.either()
        condition = words.expression() if words.takes("if") else None
        words.end()
        body, words = self._nodes("else", "endfor")
        otherwise: Node | None = None
        if words.name() == "else":
            otherwise, _ = self._nodes("endfor")

        def bound(value: Value) -> dict[str, Value]:
            if len(names) == 1:
                return {names[0]: value}
            return dict(zip(names, value, strict=True))

        def node(scope: Scope, out: list[str]) -> None:
            found = [*(values(scope) or ())]
            if condition is not None:
                found = [value for value in found if condition(Scope(scope, bound(value)))]
            for place, value in enumerate(found):
                scope.step()
                try:
                    body(Scope(scope, {**bound(value), "loop": loop_of(found, place)}), out)
                except Continued:
                    continue
                except Broken:
                    break
            if not found and otherwise is not None:
                otherwise(scope, out)

        return node

    def _set(self, words: Words) -> Node:
        names = [words.name()]
        owner = ""
        if words.takes("."):
            owner, names = names[0], [words.name()]
        while words.takes(","):
            names.append(words.name())
        if words.takes("="):
            value = words.several()
            words.end()
        else:
            words.end()
            body, _ = self._nodes("endset")
            value = rendered(body)

        def node(scope: Scope, out: list[str]) -> None:
            scope.step()
            found = value(scope)
            if owner:
                space = scope.get(owner)
                if not isinstance(space, Space):
                    raise DataError(f"the template sets {names[0][:40]} of {owner[:40]}, which is not a namespace.")
                space[names[0]] = found
            else:
                scope.values.update({names[0]: found} if len(names) == 1 else zip(names, found, strict=True))

        return node

    def _macro(self, words: Words) -> Node:
        name = words.name()
        words.need("(")
        names, defaults = list[str](), dict[str, Expression]()
        while not words.takes(")"):
            names.append(words.name())
            if words.takes("="):
                defaults[names[-1]] = words.expression()
            if words.peek() != ("sign", ")"):
                words.need(",")
        words.end()
        body, _ = self._nodes("endmacro")

        def node(scope: Scope, out: list[str]) -> None:
            def macro(*places: Value, **named: Value) -> str:
                scope.step()
                given = dict(zip(names, places)) | named
                if len(places) > len(names) or not given.keys() <= set(names):
                    raise DataError(f"the template gives too many arguments to the macro {name[:40]}.")
                inner = Scope(scope, given)
                for each in names:
                    if each not in given:
                        inner.values[each] = defaults[each](inner) if each in defaults else Undefined(each)
                return str(rendered(body)(inner))

            scope.values[name] = macro

        return node


def loop_of(values: list[Value], place: int) -> dict[str, Value]:
    """Returns the variable `loop` of one iteration."""
    num = len(values)
    return {
        "index": place + 1, "index0": place, "revindex": num - place, "revindex0": num - place - 1, "first": place == 0,
        "last": place == num - 1, "length": num, "depth": 1, "depth0": 0,
        "previtem": values[place - 1] if place else Undefined("the item before the first"),
        "nextitem": values[place + 1] if place + 1 < num else Undefined("the item behind the last"),
        "cycle": lambda *each: each[place % len(each)],
    }  # fmt: skip


def text_node(text: str) -> Node:
    """Returns the node that writes a text."""
    return lambda scope, out: out.append(scope.made(text))


def value_node(value: Expression) -> Node:
    """Returns the node that writes a value."""

    def node(scope: Scope, out: list[str]) -> None:
        scope.step()
        out.append(scope.made(shown(value(scope))))

    return node


def leave(how: type[Exception]) -> Node:
    """Returns the node that leaves a loop, or its iteration."""

    def node(scope: Scope, out: list[str]) -> None:
        raise how

    return node


def sequence(nodes: list[Node]) -> Node:
    """Returns a node that runs others in sequence."""

    def node(scope: Scope, out: list[str]) -> None:
        for each in nodes:
            each(scope, out)

    return node


def rendered(body: Node) -> Expression:
    """Returns the text that a node writes."""

    def value(scope: Scope) -> str:
        out: list[str] = []
        body(scope, out)
        return "".join(out)

    return value
