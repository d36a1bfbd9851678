"""The records an ONNX model is planned as.

In:    nothing
Out:   `Operator`, `Step`, `Call`, `Graph`, `Declared`
Next:  picograd/onnx/read.py
"""

from __future__ import annotations

import copyreg
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import onnx

from picograd.forks import cached_property
from picograd.onnx.kinds import ANY, Kind, SpanOf, kinds_of, of_input
from picograd.onnx.values import Array, Value
from picograd.record import Record, field
from picograd.tensor.tensor import Tensor


def _schema(name: str, since: int, domain: str) -> Any:
    return onnx.defs.get_schema(name, since, domain)


# What a copy of a model has in the place of onnx's own records.
copyreg.pickle(onnx.defs.OpSchema, lambda schema: (_schema, (schema.name, schema.since_version, schema.domain)))


class Operator(Record, dict=True):
    """A row of the table of operators.

    name, since, domain:  of the ONNX operator; the row holds from version `since` of its domain on
    function:  takes the inputs in order and the attributes by name; returns a value, or a tuple of them
    kinds:     of the inputs: how many axes each has, and in which form it is taken
    span:      which axes the numbers of axes among inputs and attributes mean
    state:     numbers of the inputs that no gradient trains, such as running statistics
    random:    differs from call to call, so is not computed ahead
    hosts:     takes arrays of element types that tensors lack
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
        """True where inputs are numbers of axes."""
        return any(kind.form in ("axis", "axes") for kind in self.kinds)

    def kind(self, number: int) -> Kind:
        """Returns the kind of an input."""
        return self.kinds[number] if number < len(self.kinds) else ANY

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What the function takes."""
        return inspect.signature(self.function).parameters

    @cached_property
    def max_inputs(self) -> float:
        """How many inputs the function takes."""
        kinds = [entry.kind for entry in self.parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            return math.inf
        return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)

    @cached_property
    def takes_step(self) -> bool:
        """Whether the function asks for the Step itself."""
        return "step" in self.parameters

    @cached_property
    def takes_run(self) -> bool:
        """Whether the function asks for the Run it is part of, to compute graphs among its attributes."""
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
    """The body of a function that stands for a node.

    graph:  the body; None where it depends on the types of the inputs
    """

    graph: Graph | None


class Step(Record):
    """A node, ready to run.

    place:       what it is and where it stands, for errors
    does:        the row of the table that computes it, or the body that stands for it
    node:        as it was read; with the values of attributes that a function's body refers to
    schema:      what ONNX says about the operator; None for a function of the model
    version:     version of its domain
    inputs:      names of values, "" where one is left out
    outputs:     the same
    attributes:  values by name, defaults among them
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
    """An input or output as the model declares it.

    name:        of the value
    elem_type:   number of ONNX's element type; None: unknown, or no tensor
    shape:       lengths of axes, names of lengths, None where nothing is said; None: any number of axes
    is_tensor:   False for sequences and optionals
    """

    name: str
    elem_type: int | None
    shape: tuple[int | str | None, ...] | None
    is_tensor: bool = True


class Graph(Record):
    """A graph, ready to run.

    inputs, outputs:  what is declared
    steps:            in an order in which they can be computed
    constants:        values that are known now, by name
    """

    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    steps: tuple[Step, ...]
    constants: Mapping[str, Array | Value] = field(default_factory=dict)


class Runner(Protocol):
    """What an operator with graphs among its attributes asks of the Run it is part of."""

    def graph(self, graph: Graph, inputs: Sequence[Value], outer: Mapping[str, Value] | None = None) -> list[Value]:
        """Returns the outputs of a graph."""

    def tensor(self, value: Value) -> Tensor:
        """Returns a value as a tensor."""
