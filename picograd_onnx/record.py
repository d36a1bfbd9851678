"""Records of a planned ONNX model, and the kinds of inputs in the rows of the table.

In:    words, in the rows of operators/
Out:   `Operator`, `Step`, `Call`, `Graph`, `Declared`; `Kind`: an input's number of axes and its form; `of_input` and
the others: the range of axes that numbers among inputs and attributes may name

A word for each input; "x" for all inputs after the last word:

    x             a tensor of any number of axes
    2, 2+, 1-2    a tensor of two axes, at least two, one or two
    like          a tensor with the first input's number of axes
    single        a tensor of one element, which the function gets without axes
    x!, 2!        an array of the host, since the result's shape depends on its elements; also for all words below
    scalar, one   one element: as an array without axes, as a number
    row, each     a list of numbers; one for each axis of the first input
    axis, axes    numbers of axes, which the function gets nonnegative and distinct
"""

from __future__ import annotations

import copyreg
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import onnx

from picograd.interrupts import cached_property
from picograd.record import Record, field
from picograd.tensor.tensor import Tensor
from picograd_onnx.values import Array, Value

# ---- kinds of inputs ----
NDIM_MAX = 64
ELEMENT = {"single", "scalar", "one", "axis"}  # forms of one element
KNOWN = {"array", "scalar", "one", "row", "each", "axis", "axes"}  # forms that need an array


class Kind(Record):
    """The form of an operator's input.

    form:         one of the words; "tensor" and "array" for words that are numbers of axes
    least, most:  smallest and largest number of axes
    """

    form: str
    least: int = 0
    most: int = NDIM_MAX

    @property
    def is_known(self) -> bool:
        """True for arrays of the host."""
        return self.form in KNOWN


ANY = Kind("tensor")
WORDS = {word: Kind(word) for word in ("like", "single", "scalar", "one", "axis")}
WORDS |= {"row": Kind("row", 1, 1), "each": Kind("each", 1, 1), "axes": Kind("axes", 0, 1)}


def kinds_of(words: str) -> tuple[Kind, ...]:
    """Returns the kinds that words name.

    >>> kinds_of("2+ row")
    (Kind(form='tensor', least=2, most=64), Kind(form='row', least=1, most=1))
    """
    return tuple(WORDS[word] if word in WORDS else _of_axes(word) for word in words.split())


def _of_axes(word: str) -> Kind:
    """Returns the kind of a word that is a number of axes."""
    found = re.fullmatch(r"(?:x|(\d+)(\+|-(\d+))?)(!?)", word)
    assert found is not None, word
    form = "array" if found[4] else "tensor"
    if found[1] is None:
        return Kind(form) if found[4] else ANY
    least = int(found[1])
    return Kind(form, least, least if not found[2] else int(found[3] or NDIM_MAX))


# ---- which axes numbers mean ----
# The number of axes that negative numbers count back from, and the largest valid axis; None: no check.
Span = tuple[int, int] | None
SpanOf = Callable[[Sequence[Value], Mapping[str, Any]], Span]


def of_input(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the first input, or of a sequence's first element."""
    first = inputs[0] if inputs else None
    first = first[0] if isinstance(first, list) and first else first
    if first is None or isinstance(first, list):
        return None
    return len(first.shape), len(first.shape) - 1


def of_gaps(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the first input and the position after the last one."""
    ndim = len(inputs[0].shape)
    return ndim, ndim


def of_more(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the result: those of the first input, and the named ones."""
    more = len(attributes["axes"]) if "axes" in attributes else math.prod(inputs[1].shape)
    ndim = len(inputs[0].shape) + more
    return ndim, ndim - 1


def of_one_more(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the result: those of the first input, and one more."""
    ndim = len(inputs[0].shape) + 1
    return ndim, ndim - 1


def of_joined(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the joined elements of a sequence; one more with new_axis."""
    span = of_input(inputs, attributes)
    more = 1 if attributes.get("new_axis") else 0
    return None if span is None else (span[0] + more, span[1] + more)


def of_scaled(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the first input, if its scale or zero point (the next inputs) has several elements."""
    several = any(value is not None and math.prod(value.shape) != 1 for value in inputs[1:3])
    return of_input(inputs, attributes) if several else None


# ---- records ----
def _schema(name: str, since: int, domain: str) -> Any:
    return onnx.defs.get_schema(name, since, domain)


# Replaces onnx's own records in copies of a model.
copyreg.pickle(onnx.defs.OpSchema, lambda schema: (_schema, (schema.name, schema.since_version, schema.domain)))


class Operator(Record, dict=True):
    """A row of the table of operators.

    name, since, domain:  name and domain of the ONNX operator, and the first version that the row computes
    function:  accepts the inputs in order and the attributes by name; returns a value, or a tuple of several
    kinds:     kinds of the inputs
    span:      range of axes that numbers among inputs and attributes may name
    state:     numbers of inputs that are not trained, such as running statistics
    random:    results differ between calls, so they are not computed ahead
    hosts:     accepts arrays of element types that tensors lack
    """

    name: str
    since: int
    function: Callable[..., Any]
    kinds: tuple[Kind, ...] = ()
    span: SpanOf = of_input
    state: frozenset[int] = frozenset()
    random: bool = False
    hosts: bool = False
    domain: str = ""

    @cached_property
    def takes_axes(self) -> bool:
        """True if inputs are numbers of axes."""
        return any(kind.form in ("axis", "axes") for kind in self.kinds)

    def kind(self, number: int) -> Kind:
        """Returns the kind of an input."""
        return self.kinds[number] if number < len(self.kinds) else ANY

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function."""
        return inspect.signature(self.function).parameters

    @cached_property
    def max_inputs(self) -> float:
        """The largest number of inputs."""
        kinds = [entry.kind for entry in self.parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            return math.inf
        return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)

    @cached_property
    def takes_step(self) -> bool:
        """True if the function has a parameter for the Step."""
        return "step" in self.parameters

    @cached_property
    def takes_run(self) -> bool:
        """True if the function has a parameter for the Run, which computes graphs among its attributes."""
        return "run" in self.parameters


def row(
    name: str,
    since: int,
    function: Callable[..., Any],
    kinds: str = "",
    span: SpanOf = of_input,
    state: tuple[int, ...] = (),
    random: bool = False,
    hosts: bool = False,
    domain: str = "",
) -> Operator:
    """Returns a row of the table of operators; `kinds` are words."""
    return Operator(name, since, function, kinds_of(kinds), span, frozenset(state), random, hosts, domain)


class Call(Record):
    """The body of a function for a node.

    graph:  the body; None: it depends on the types of the inputs
    """

    graph: Graph | None


class Step(Record):
    """A node, ready to run.

    place:       its kind and place in error messages
    does:        its computation: a row of the table, or a body
    node:        the node of the file, with values for references to the enclosing function's attributes
    schema:      ONNX's schema of the operator; None for a function of the model
    version:     version of its domain
    inputs:      names of values; "" for an omitted one
    outputs:     names of values; "" for an omitted one
    attributes:  values by name, including defaults
    """

    place: str
    does: Operator | Call
    node: onnx.NodeProto
    schema: Any
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


class Declared(Record):
    """A declaration of an input or output of a model.

    name:        name of the value
    elem_type:   number of ONNX's element type; None: unknown, or not a tensor
    shape:       lengths of axes, or their names, None for an unknown one; None: any number of axes
    is_tensor:   False for sequences and optionals
    """

    name: str
    elem_type: int | None
    shape: tuple[int | str | None, ...] | None
    is_tensor: bool = True


class Graph(Record):
    """A graph, ready to run.

    inputs, outputs:  declarations
    steps:            in topological order
    constants:        known values, by name
    """

    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    steps: tuple[Step, ...]
    constants: Mapping[str, Array | Value] = field(default_factory=dict)


class Runner(Protocol):
    """The part of a Run that operators with graphs among their attributes use."""

    def graph(self, graph: Graph, inputs: Sequence[Value], outer: Mapping[str, Value] | None = None) -> list[Value]:
        """Returns the outputs of a graph."""

    def tensor(self, value: Value) -> Tensor:
        """Converts a value to a tensor."""
