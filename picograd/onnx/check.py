"""Checks the structure of an ONNX model before anything of it is planned or computed.

In:    a parsed model
Out:   `check`, which raises where a graph is no graph: names used before they are made, functions without end, ...;
       `named`, which puts a place into errors
Next:  picograd/onnx/plan.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto

from picograd.errors import DataError, OutOfMemoryError, PicogradError, UnsupportedOp

NODES_MAX = 1 << 17  # after every function has been put in place of its calls
CALLS_DEEP_MAX = 100  # of functions that call functions
FunctionKey = tuple[str, str, str]  # domain, name, overload


def check(model: onnx.ModelProto) -> None:
    """Checks versions, names, order and functions.

    Raises:
      DataError:     the model contradicts itself.
      UnsupportedOp: it is of a version that the installed onnx does not know.
    """
    if not 1 <= model.ir_version <= onnx.IR_VERSION:
        raise UnsupportedOp(
            f"onnx.load: the model has IR version {model.ir_version}; "
            f"onnx {onnx.__version__} knows 1 to {onnx.IR_VERSION}.",
            hint="pip install --upgrade onnx",
        )
    functions = functions_of(model)
    opsets_of(model.opset_import)
    _check_graph(model.graph, set(), "")
    for key, function in functions.items():
        opsets_of(function.opset_import)
        place = f"function {key[0]}.{key[1]}, "
        made = _unique(function.input, f"{place}inputs")
        _check_nodes(function.node, made, made, place)
        _check_outputs(function.output, made, place)
    _check_calls(model, functions)


def functions_of(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    """Returns the functions a model defines, by what calls name them with."""
    found: dict[FunctionKey, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (domain_of(function.domain), function.name, function.overload)
        if key in found:
            raise DataError(f"onnx.load: the function {key[0]}.{key[1]} is defined twice.")
        found[key] = function
    return found


def domain_of(name: str) -> str:
    """Returns the name of a domain; "ai.onnx" is another name of the first one, ""."""
    return "" if name == "ai.onnx" else name


def opsets_of(imports: Iterable[Any]) -> dict[str, int]:
    """Returns the version of each domain that is imported.

    Raises:
      DataError:     a domain is imported twice, or a version is no version.
      UnsupportedOp: the version of ONNX's operators is newer than the installed onnx.
    """
    found: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        if domain in found and found[domain] != entry.version:
            raise DataError(f"onnx.load: domain {domain!r} is imported as versions {found[domain]} and {entry.version}.")
        if not 1 <= entry.version < 1 << 31:
            raise DataError(f"onnx.load: domain {domain!r} is imported as version {entry.version}.")
        found[domain] = entry.version
    newest = onnx.defs.onnx_opset_version()
    if found.get("", 1) > newest:
        raise UnsupportedOp(
            f"onnx.load: the model uses opset {found['']}; onnx {onnx.__version__} knows up to {newest}.",
            hint="pip install --upgrade onnx",
        )
    return found


def place_of(node: NodeProto, number: int, where: str) -> str:
    """Returns the name of a node in errors."""
    name = f' "{node.name}"' if node.name else ""
    return f"{where}node {number}{name} ({node.op_type})"


@contextmanager
def named(place: str) -> Iterator[None]:
    """Names a place in an error that arises there.

    Raises:
      DataError:        in place of an error that is none of picograd's: the model asks for what the operator cannot do.
      OutOfMemoryError: in place of NumPy's.
    """
    try:
        yield
    except PicogradError as error:
        error.restate(_within(place, error.fact))
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"{place}: there is not enough memory for it.") from error
    except Exception as error:
        text = f"{error}".partition("\n")[0].rstrip(".")
        raise DataError(f"{place}: {text or type(error).__name__}.") from error


def _within(place: str, fact: str) -> str:
    """Returns a fact with the place where it arose; that of a function's body also has the place of the call."""
    road = place.partition(" ")[0]  # "onnx:" or "onnx.load:"
    if not fact.startswith("onnx"):
        return f"{place}: {fact}"
    return fact.replace(road, f"{place},", 1) if fact.startswith(f"{road} function ") else fact


def graphs_of(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Yields the graphs among a node's attributes, with the attributes' names."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        for graph in attribute.graphs:
            yield attribute.name, graph


# ---- names ----
def _unique(names: Iterable[str], what: str) -> set[str]:
    found: set[str] = set()
    for name in names:
        if name in found:
            raise DataError(f"onnx.load: {what}: the name {name!r} occurs twice.")
        if not name:
            raise DataError(f"onnx.load: {what}: a name is empty.")
        found.add(name)
    return found


def _check_graph(graph: GraphProto, outer: set[str], where: str) -> None:
    inputs = _unique((entry.name for entry in graph.input), f"{where}inputs")
    held = _unique((tensor.name for tensor in graph.initializer), f"{where}initializers")
    if graph.sparse_initializer:
        raise UnsupportedOp(f"onnx.load: {where}sparse initializers are not read.")
    own = inputs | held
    _check_nodes(graph.node, own, outer | own, where)
    _check_outputs([entry.name for entry in graph.output], outer | own, where)


def _check_nodes(nodes: Sequence[NodeProto], own: set[str], visible: set[str], where: str) -> None:
    """Checks that nodes read only earlier results; adds theirs to `own` and `visible`."""
    later = {name: number for number, node in enumerate(nodes) for name in node.output}
    for number, node in enumerate(nodes):
        place = place_of(node, number, where)
        for name in node.input:
            if name and name not in visible:
                raise DataError(f"onnx.load: {place} reads {name!r}, " + _absence(nodes, later.get(name), number))
        _unique((attribute.name for attribute in node.attribute), f"{place}, attributes")
        for attribute, graph in graphs_of(node):
            _check_graph(graph, visible, f"{place}, {attribute}, ")
        for name in filter(None, node.output):
            if name in own:
                raise DataError(f"onnx.load: {place} makes {name!r}, which something before it made already.")
            own.add(name)
            visible.add(name)


def _absence(nodes: Sequence[NodeProto], maker: int | None, reader: int) -> str:
    if maker is None:
        return "which nothing makes."
    if maker == reader:
        return "which it makes itself: the graph has a cycle."
    return f"which is made after it, by node {maker} ({nodes[maker].op_type}): nodes must stand in order, without cycles."


def _check_outputs(names: Iterable[str], visible: set[str], where: str) -> None:
    for name in _unique(names, f"{where}outputs"):
        if name not in visible:
            raise DataError(f"onnx.load: {where}output {name!r} is made by nothing.")


# ---- functions ----
def _check_calls(model: onnx.ModelProto, functions: dict[FunctionKey, onnx.FunctionProto]) -> None:
    """Checks that calls of functions end, and bounds how many nodes there are when each call is its body."""
    counts: dict[FunctionKey, int] = {}

    def count(nodes: Iterable[NodeProto], trail: tuple[FunctionKey, ...]) -> int:
        total = 0
        for node in nodes:
            total += 1 + sum(count(graph.node, trail) for _, graph in graphs_of(node))
            key = (domain_of(node.domain), node.op_type, node.overload)
            if key in functions:
                total += of_function(key, trail)
        return total

    def of_function(key: FunctionKey, trail: tuple[FunctionKey, ...]) -> int:
        if key in trail:
            raise DataError(f"onnx.load: the function {key[0]}.{key[1]} calls itself.")
        if len(trail) >= CALLS_DEEP_MAX:
            raise DataError(f"onnx.load: functions call functions {CALLS_DEEP_MAX} deep.")
        if key not in counts:
            counts[key] = count(functions[key].node, (*trail, key))
        return counts[key]

    total = count(model.graph.node, ())
    for key in functions:
        of_function(key, ())
    if total > NODES_MAX:
        raise DataError(f"onnx.load: the model has {total} nodes with functions in place; at most {NODES_MAX} are read.")
