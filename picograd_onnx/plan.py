"""Plans an ONNX model: chooses for each node the row of the table that computes it, or the operator's body.

In:    a checked model
Out:   `Planner`, which makes a Graph from a GraphProto or from a function's body
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto
from onnx.defs import OpSchema

from picograd.errors import DataError, UnsupportedOp
from picograd_onnx.fit import check_attributes
from picograd_onnx.operators import find, newest
from picograd_onnx.read import FunctionKey, Source, domain_of, functions_of, named, opsets_of, place_of
from picograd_onnx.record import Call, Declared, Graph, Operator, Step
from picograd_onnx.values import numpy_of

# Hints about memory in the first versions; they have no effect.
HINTS = {"consumed_inputs"}
ONNX_DOMAINS = {"", "ai.onnx", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.ml"}
FIELD = {
    AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.STRING: "s", AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints", AttributeProto.STRINGS: "strings", AttributeProto.TYPE_PROTO: "tp",
}  # fmt: skip


class Planner:
    """Makes Graphs of one model's graphs and functions.

    source:     the loaded model
    functions:  functions that the model defines
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.functions: dict[FunctionKey, FunctionProto] = functions_of(source.model)
        self._bodies: dict[tuple[FunctionKey, tuple[bool, ...], tuple[bytes, ...]], Graph] = {}

    # ---- graphs ----
    def main(self) -> Graph:
        """Returns the model's graph."""
        return self.graph(self.source.model.graph, opsets_of(self.source.model.opset_import), {}, "")

    def graph(
        self, graph: GraphProto, opsets: Mapping[str, int], bound: Mapping[str, AttributeProto], where: str
    ) -> Graph:
        """Returns a graph; `bound` are the attributes of the enclosing function, `where` is its place in error messages."""
        constants = {
            tensor.name: self.source.array(tensor, f'{where}initializer "{tensor.name}"') for tensor in graph.initializer
        }
        with named(f"onnx.load: {where}inputs and outputs"):
            inputs, outputs = tuple(map(declared, graph.input)), tuple(map(declared, graph.output))
        return Graph(graph.name, inputs, outputs, self._steps(graph.node, opsets, bound, where), constants)

    def body(self, function: FunctionProto, node: NodeProto, where: str) -> Graph:
        """Returns the body of a function that `node` calls."""
        if len(function.output) < len(node.output):
            raise DataError(f"{where}the body has {len(function.output)} outputs, the node {len(node.output)}.")
        given = {attribute.name: attribute for attribute in node.attribute}
        bound = {attribute.name: attribute for attribute in function.attribute_proto} | given
        opsets = opsets_of(function.opset_import)
        if function.domain in ONNX_DOMAINS:  # ONNX's own bodies do not always name their version of the base domain
            opsets = {**opsets_of(self.source.model.opset_import), **opsets}
        return Graph(
            function.name, tuple(Declared(name, None, None) for name in function.input),
            tuple(Declared(name, None, None) for name, asked in zip(function.output, node.output) if asked),
            self._steps(function.node, opsets, bound, where),
        )  # fmt: skip

    def _own_body(self, function: FunctionProto, node: NodeProto) -> Graph:
        """Returns the body of one of the model's functions, shared by equal calls, so that calls do not multiply it."""
        key = domain_of(function.domain), function.name, function.overload
        asked, given = tuple(map(bool, node.output)), tuple(entry.SerializeToString() for entry in node.attribute)
        if (key, asked, given) not in self._bodies:
            self._bodies[key, asked, given] = self.body(function, node, f"function {key[0]}.{key[1]}, ")
        return self._bodies[key, asked, given]

    # ---- nodes ----
    def _steps(
        self, nodes: Sequence[NodeProto], opsets: Mapping[str, int], bound: Mapping[str, AttributeProto], where: str
    ) -> tuple[Step, ...]:
        steps = []
        for number, node in enumerate(nodes):
            place = place_of(node, number, where)
            with named(f"onnx.load: {place}"):
                steps.append(self._step(node, opsets, bound, place))
        return tuple(steps)

    def _step(
        self, node: NodeProto, opsets: Mapping[str, int], bound: Mapping[str, AttributeProto], place: str
    ) -> Step:
        """Returns a node's Step: its checked inputs and attributes, and its computation."""
        node = _resolved(node, bound)
        domain, version = domain_of(node.domain), opsets.get(domain_of(node.domain))
        own = self.functions.get((domain, node.op_type, node.overload))
        if version is None and own is None:
            raise DataError(f"onnx.load: {place} is of domain {domain!r}, which the model does not import.")
        inputs, outputs = _trimmed(node.input), tuple(node.output)
        if own is not None:
            if len(inputs) > len(own.input) or len(outputs) > len(own.output):
                raise DataError(f"onnx.load: {place} has more inputs or outputs than the function it calls.")
            return Step(place, Call(self._own_body(own, node)), node, None, version or 0, inputs, outputs, {})
        assert version is not None
        schema = _schema(node.op_type, domain, version, place)
        _check_counts(schema, inputs, outputs, place)
        attributes = self._attributes(node, schema, opsets, bound, place)
        check_attributes(schema.name, attributes)
        does = self._does(node, schema, version, attributes, place)
        return Step(place, does, node, schema, version, inputs, outputs, attributes)

    def _does(
        self, node: NodeProto, schema: Any, version: int, attributes: Mapping[str, Any], place: str
    ) -> Operator | Call:
        """Returns the computation of a node: a row of the table, else ONNX's body of the operator."""
        row = find(schema.domain, schema.name, schema.since_version)
        if row is not None:
            _check_accepted(row, len(_trimmed(node.input)), attributes, place)
            return row
        fixed = [v for v in schema.function_opset_versions if v <= version]
        if fixed:
            function = FunctionProto()
            function.ParseFromString(schema.get_function_with_opset_version(max(fixed)))
            return Call(self.body(_with_defaults(function, schema), node, f"{place}, "))
        if any(v <= version for v in schema.context_dependent_function_opset_versions):
            return Call(None)
        domain = f"{schema.domain}." if schema.domain else ""
        raise UnsupportedOp(
            f"onnx.load: {place}: {domain}{schema.name} of version {schema.since_version} is not supported."
        )

    def typed_body(self, step: Step, types: Sequence[onnx.TypeProto]) -> Graph:
        """Returns ONNX's body of an operator for inputs of these types."""
        schema = step.schema
        version = max(v for v in schema.context_dependent_function_opset_versions if v <= step.version)
        packed = [entry.SerializeToString() for entry in types]
        made = schema.get_context_dependent_function_with_opset_version(version, step.node.SerializeToString(), packed)
        function = FunctionProto()
        function.ParseFromString(made)
        return self.body(_with_defaults(function, schema), step.node, f"{step.place}, ")

    # ---- attributes ----
    def _attributes(
        self, node: NodeProto, schema: Any, opsets: Mapping[str, int], bound: Mapping[str, AttributeProto], place: str
    ) -> dict[str, Any]:
        """Returns the values of a node's attributes by name, with ONNX's defaults."""
        values: dict[str, Any] = {}
        given = {attribute.name: attribute for attribute in node.attribute if attribute.name not in HINTS}
        for name, attribute in given.items():
            if name not in schema.attributes:
                raise DataError(f"onnx.load: {place} has an attribute {name!r}, which {schema.name} does not define.")
            if int(schema.attributes[name].type.value) != attribute.type:
                wanted = str(schema.attributes[name].type).removeprefix("AttrType.")
                raise DataError(f"onnx.load: {place}: attribute {name!r} must be of type {wanted}.")
            values[name] = self._value(attribute, opsets, bound, f"{place}, {name}")
        for name, about in schema.attributes.items():
            if name not in values:
                if about.required and name not in HINTS:
                    raise DataError(f"onnx.load: {place} lacks the attribute {name!r}.")
                if about.default_value.name:
                    values[name] = self._value(about.default_value, opsets, bound, place)
        return values

    def _value(
        self, attribute: AttributeProto, opsets: Mapping[str, int], bound: Mapping[str, AttributeProto], place: str
    ) -> Any:
        """Returns the value of an attribute: a number, a string, an array, a Graph, or a list of these."""
        if attribute.type == AttributeProto.GRAPH:
            return self.graph(attribute.g, opsets, bound, f"{place}, ")
        if attribute.type == AttributeProto.TENSOR:
            return self.source.array(attribute.t, place)
        if attribute.type == AttributeProto.TENSORS:
            return [self.source.array(tensor, place) for tensor in attribute.tensors]
        if attribute.type not in FIELD:
            kind = AttributeProto.AttributeType.Name(attribute.type)
            raise UnsupportedOp(f"onnx.load: {place}: attributes of type {kind} are not read.")
        value = getattr(attribute, FIELD[attribute.type])
        if attribute.type == AttributeProto.STRING:
            return _text(value, place)
        if attribute.type == AttributeProto.STRINGS:
            return [_text(item, place) for item in value]
        single = attribute.type in (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.TYPE_PROTO)
        return value if single else [*value]


# ---- one node ----
def _text(data: bytes, place: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DataError(f"onnx.load: {place} is not UTF-8 text.") from None


def _resolved(node: NodeProto, bound: Mapping[str, AttributeProto]) -> NodeProto:
    """Returns a node whose references to the enclosing function's attributes are replaced by their values."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        value = bound.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if value is not None:  # an attribute that the call omits is omitted here
            entry = copy.attribute.add()
            entry.CopyFrom(value)
            entry.name = attribute.name
    return copy


def _with_defaults(function: FunctionProto, schema: Any) -> FunctionProto:
    """Returns a function of ONNX with the operator's default attributes as its own."""
    named = {attribute.name for attribute in function.attribute_proto}
    for name, about in schema.attributes.items():
        if about.default_value.name and name not in named:
            function.attribute_proto.add().CopyFrom(about.default_value)
    return function


def _trimmed(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of inputs without omitted ones at the end."""
    kept = [*names]
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)


def _schema(name: str, domain: str, version: int, place: str) -> Any:
    """Returns ONNX's schema of an operator in this version of its domain; raises if there is none."""
    full = f"{domain}.{name}" if domain else name
    if not onnx.defs.has(name, domain):
        raise UnsupportedOp(f"onnx.load: {place}: {full} is not an operator that onnx {onnx.__version__} knows.")
    try:
        schema: Any = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        raise DataError(f"onnx.load: {place}: {full} does not exist in version {version} of its domain.") from None
    if schema.deprecated:
        raise DataError(f"onnx.load: {place}: {full} is deprecated since {schema.since_version}; the model uses {version}.")
    if schema.since_version > newest(domain) and not (
        schema.function_opset_versions or schema.context_dependent_function_opset_versions
    ):
        raise UnsupportedOp(f"onnx.load: {place}: {full} of version {schema.since_version} is newer than picograd knows.")
    return schema


def _check_counts(schema: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], place: str) -> None:
    """Raises if a node has too few or too many inputs or outputs, or omits a required one."""
    if not schema.min_input <= len(inputs) <= schema.max_input:
        raise DataError(
            f"onnx.load: {place} has {len(inputs)} inputs; {schema.name} takes {schema.min_input} to {schema.max_input}."
        )
    if not schema.min_output <= len(outputs) <= schema.max_output:
        raise DataError(
            f"onnx.load: {place} has {len(outputs)} outputs; {schema.name} has {schema.min_output} to {schema.max_output}."
        )
    for number, name in enumerate(inputs):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if not name and formal.option != OpSchema.FormalParameterOption.Optional:
            raise DataError(f"onnx.load: {place} leaves out the input {formal.name!r}, which {schema.name} needs.")


def _check_accepted(row: Operator, num_inputs: int, attributes: Mapping[str, Any], place: str) -> None:
    if num_inputs > row.max_inputs:
        raise UnsupportedOp(f"onnx.load: {place}: {row.name} with {num_inputs} inputs is not supported.")
    for name in attributes:
        if name not in row.parameters:
            raise UnsupportedOp(f"onnx.load: {place}: the attribute {name!r} of {row.name} is not supported.")


def declared(info: Any) -> Declared:
    """Returns a model's declaration of an input or output."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Declared(info.name, None, None, is_tensor=kind is None)
    entry = info.type.tensor_type
    if entry.elem_type:
        numpy_of(entry.elem_type)  # raises for an unknown type
    shape: tuple[int | str | None, ...] | None = None
    if entry.HasField("shape"):
        shape = tuple(map(_length, entry.shape.dim))
    return Declared(info.name, entry.elem_type or None, shape)


def _length(dim: Any) -> int | str | None:
    """Returns a length, its name, or None; some exporters write -1 or "?" for an unknown length."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param if any(map(str.isalnum, dim.dim_param)) else None
