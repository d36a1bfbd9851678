"""Reads an ONNX file and its arrays, and checks that it is a valid graph before it is planned or computed.

In:    a path or bytes
Out:   `Source` (the loaded model), `array_of` (a TensorProto as an array); `check`, which raises for an invalid graph
(names used before they are made, recursive functions, ...); `named`, which adds a place to errors

No value of a file is trusted: sizes and offsets are checked before use.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from picograd.errors import ArgumentError, DataError, OutOfMemoryError, PicogradError, UnsupportedOp
from picograd.record import Struct, field
from picograd_onnx.values import Array, numpy_of, type_name

# ---- structure ----
NODES_MAX = 1 << 17  # with each call replaced by its function's body
CALLS_DEEP_MAX = 100  # depth of nested calls of functions
FunctionKey = tuple[str, str, str]  # domain, name, overload


def check(model: onnx.ModelProto) -> None:
    """Checks versions, names, order and functions.

    Raises:
      DataError:     the model contradicts itself.
      UnsupportedOp: the installed onnx does not support the model's version.
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
    """Returns the functions of a model by their keys in calls."""
    found: dict[FunctionKey, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (domain_of(function.domain), function.name, function.overload)
        if key in found:
            raise DataError(f"onnx.load: the function {key[0]}.{key[1]} is defined twice.")
        found[key] = function
    return found


def domain_of(name: str) -> str:
    """Returns the name of a domain, with "ai.onnx" as ""."""
    return "" if name == "ai.onnx" else name


def opsets_of(imports: Iterable[Any]) -> dict[str, int]:
    """Returns the version of each imported domain.

    Raises:
      DataError:     a domain is imported twice, or a version is invalid.
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
    """Returns the name of a node in error messages."""
    name = f' "{node.name}"' if node.name else ""
    return f"{where}node {number}{name} ({node.op_type})"


@contextmanager
def named(place: str) -> Iterator[None]:
    """Adds a place to errors.

    Raises:
      DataError:        replaces an error of Python or NumPy: the model's values are invalid for the operator.
      OutOfMemoryError: replaces NumPy's.
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
    """Returns a message with the place of its error; an error in a function's body also names the place of the call."""
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
    """Checks that nodes read only earlier results; adds their results to `own` and `visible`."""
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
                raise DataError(f"onnx.load: {place} makes {name!r}, which an earlier node made already.")
            own.add(name)
            visible.add(name)


def _absence(nodes: Sequence[NodeProto], maker: int | None, reader: int) -> str:
    if maker is None:
        return "which no node makes."
    if maker == reader:
        return "which it makes itself: the graph has a cycle."
    return f"which is made after it, by node {maker} ({nodes[maker].op_type}): nodes must be in order, without cycles."


def _check_outputs(names: Iterable[str], visible: set[str], where: str) -> None:
    for name in _unique(names, f"{where}outputs"):
        if name not in visible:
            raise DataError(f"onnx.load: {where}output {name!r} is not made by any node.")


# ---- functions ----
def _check_calls(model: onnx.ModelProto, functions: dict[FunctionKey, onnx.FunctionProto]) -> None:
    """Checks that calls of functions are not recursive, and limits the number of nodes after expansion of all calls."""
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
            raise DataError(f"onnx.load: functions are nested more than {CALLS_DEEP_MAX} deep.")
        if key not in counts:
            counts[key] = count(functions[key].node, (*trail, key))
        return counts[key]

    total = count(model.graph.node, ())
    for key in functions:
        of_function(key, ())
    if total > NODES_MAX:
        raise DataError(f"onnx.load: the model has {total} nodes with functions in place; at most {NODES_MAX} are read.")


# ---- files and arrays ----
MAX_FILE_NBYTES = (1 << 31) - 1  # the largest protobuf
MAX_NBYTES = 1 << 36  # bytes of all arrays together
MAX_NDIM = 64

# Element types below a byte, and their elements per byte.
PACKED: dict[int, int] = {
    TensorProto.INT4: 2, TensorProto.UINT4: 2, TensorProto.FLOAT4E2M1: 2, TensorProto.INT2: 4, TensorProto.UINT2: 4,
}  # fmt: skip
# The field of a TensorProto for elements that are not raw, and its entries per element of the tensor.
FIELDS: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("float_data", 1), TensorProto.COMPLEX64: ("float_data", 2),
    TensorProto.DOUBLE: ("double_data", 1), TensorProto.COMPLEX128: ("double_data", 2),
    TensorProto.INT64: ("int64_data", 1), TensorProto.STRING: ("string_data", 1),
    TensorProto.UINT32: ("uint64_data", 1), TensorProto.UINT64: ("uint64_data", 1),
}  # fmt: skip


class Source(Struct):
    """A loaded model.

    model:   the parsed file
    folder:  folder of the external data; None: the model came as bytes and may have no external data
    nbytes:  bytes of all arrays so far
    taken:   bytes read so far from each file of external data
    arrays:  arrays of external data, by file, offset, element type and shape; several tensors may share one
    """

    model: onnx.ModelProto
    folder: Path | None
    nbytes: int = 0
    taken: dict[Path, int] = field(default_factory=dict)
    arrays: dict[tuple[Any, ...], Array] = field(default_factory=dict)

    def array(self, tensor: TensorProto, place: str) -> Array:
        """Returns the array of a tensor of this model.

        Raises:
          DataError:        the data do not fit the declaration, or are outside the model's folder.
          OutOfMemoryError: memory does not suffice.
        """
        with named(f"onnx.load: {place}"):
            return array_of(tensor, place, self)


def read(source: str | os.PathLike[str] | bytes) -> Source:
    """Loads a model.

    Raises:
      ArgumentError: the source is neither a path nor bytes.
      DataError:     the file does not exist, or is not an ONNX model.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Source(_parsed(bytes(source), "the bytes given"), None)
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentError(f"onnx.load: needs a path or bytes, got {type(source).__name__}.")
    path = Path(source)
    if not path.is_file():
        raise DataError(f"onnx.load: there is no file {path}.")
    if path.stat().st_size > MAX_FILE_NBYTES:
        raise DataError(f"onnx.load: {path} has {path.stat().st_size} bytes, an ONNX file has at most {MAX_FILE_NBYTES}.")
    return Source(_parsed(path.read_bytes(), str(path)), path.resolve().parent)


def _parsed(data: bytes, name: str) -> onnx.ModelProto:
    """Parses the complete protobuf of a model."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise DataError(f"onnx.load: {name} is not an intact ONNX model: its protobuf cannot be parsed.") from None
    if not model.HasField("graph"):
        raise DataError(f"onnx.load: {name} is not an intact ONNX model: it has no graph.")
    if not _is_text(model):
        raise DataError(f"onnx.load: {name} is not an intact ONNX model: a name in it is not UTF-8 text.")
    return model


def _is_text(message: Message) -> bool:
    """Returns whether all strings of a message are valid text; protobuf returns bytes for others."""
    for about, value in message.ListFields():
        items = [value] if isinstance(value, (str, bytes, Message)) else value
        if about.type == about.TYPE_STRING and not all(isinstance(item, str) for item in items):
            return False
        if about.type == about.TYPE_MESSAGE and not all(map(_is_text, items)):
            return False
    return True


def array_of(tensor: TensorProto, place: str, source: Source | None = None) -> Array:
    """Returns the array of a tensor; `place` names it in errors."""
    count = _numel(tensor, place)
    dtype = numpy_of(tensor.data_type)
    nbytes = -(-count // PACKED[tensor.data_type]) if tensor.data_type in PACKED else count * dtype.itemsize
    if source is not None:
        source.nbytes += nbytes
        if source.nbytes > MAX_NBYTES:
            raise DataError(f"onnx.load: arrays up to {place} take {source.nbytes} bytes; at most {MAX_NBYTES} are read.")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, place, nbytes, source)
    if tensor.HasField("segment"):
        raise DataError(f"onnx.load: {place} is a segment of a tensor, which no version of ONNX defines.")
    if tensor.HasField("raw_data"):
        held, needed, unit = len(tensor.raw_data), nbytes, "bytes"
    else:
        name, times = FIELDS.get(tensor.data_type, ("int32_data", 1))
        needed = nbytes if tensor.data_type in PACKED else count * times
        held, unit = len(getattr(tensor, name)), f"elements of {name}"
    if held != needed:
        raise DataError(
            f"onnx.load: {place} declares {type_name(tensor.data_type)} of shape {tuple(tensor.dims)}, which is {needed} "
            f"{unit}; it holds {held}."
        )
    return _decoded(tensor, place)


def _decoded(tensor: TensorProto, place: str) -> Array:
    try:
        if tensor.data_type == TensorProto.STRING:  # element by element, as NumPy would pad all to the longest
            strings = np.empty(len(tensor.string_data), object)
            strings[:] = [text.decode() for text in tensor.string_data]
            return strings.reshape(tuple(tensor.dims))
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"onnx.load: {place} cannot be decoded: {error}.") from None


def _numel(tensor: TensorProto, place: str) -> int:
    if len(tensor.dims) > MAX_NDIM or any(dim < 0 for dim in tensor.dims):
        raise DataError(f"onnx.load: {place} has the shape {tuple(tensor.dims)}; up to {MAX_NDIM} lengths >= 0 are one.")
    return math.prod(tensor.dims)


# ---- data in files of their own ----
def _external(tensor: TensorProto, place: str, nbytes: int, source: Source | None) -> Array:
    """Returns the elements of a tensor from a file in the model's folder, in the declared number."""
    if source is None or source.folder is None:
        raise DataError(
            f"onnx.load: {place} has external data, and the folder of the model is unknown.",
            hint="load the model by its path.",
        )
    if tensor.data_type == TensorProto.STRING:
        raise DataError(f"onnx.load: {place} holds strings, which cannot be external data.")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = inside(source.folder, entries.get("location", ""), place)
    offset = _number(entries.get("offset", "0"), "offset", place)
    length = _number(entries.get("length", str(nbytes)), "length", place)
    if length != nbytes:
        raise DataError(
            f"onnx.load: {place} declares {type_name(tensor.data_type)} of shape {tuple(tensor.dims)}, which is {nbytes} "
            f"bytes; its external data have length {length}."
        )
    key = path, offset, tensor.data_type, tuple(tensor.dims)
    if key in source.arrays:
        return source.arrays[key]
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_nlink > 1:
            raise DataError(
                f"onnx.load: {place} is in {path.name}, which has several hard links: it may be a file from "
                "outside the model's folder.",
                hint="replace the file by a copy.",
            )
        if offset + length > status.st_size:
            end, held = offset + length, status.st_size
            raise DataError(f"onnx.load: {place} is at bytes {offset} to {end} of {path.name}, which has {held}.")
        source.taken[path] = source.taken.get(path, 0) + length
        if source.taken[path] > status.st_size:
            raise DataError(f"onnx.load: tensors up to {place} overlap in {path.name}: the file is shorter than they are.")
        file.seek(offset)
        source.arrays[key] = array = _read(file, tensor, length, place)
    return array


def _read(file: BinaryIO, tensor: TensorProto, length: int, place: str) -> Array:
    """Returns the elements of a tensor from this many bytes at a file's current position."""
    if tensor.data_type in PACKED:
        return _decoded(TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=file.read(length)), place)
    array = np.empty(tuple(tensor.dims), numpy_of(tensor.data_type))
    if file.readinto(array.reshape(-1).view(np.uint8)) != length:  # type: ignore[attr-defined]
        raise DataError(f"onnx.load: {place}: its file became shorter while it was read.")
    return array if sys.byteorder == "little" else array.byteswap()


def inside(folder: Path, location: str, place: str) -> Path:
    """Returns the path of a location in a model, which must be in the model's folder after links are resolved."""
    windows = PureWindowsPath(location)  # the stricter rules: both separators, and drives
    if not location or "\0" in location or windows.anchor or ".." in windows.parts:
        raise DataError(
            f"onnx.load: {place} has external data at {location!r}; that must be a path below the model's folder."
        )
    path = Path(os.path.realpath(folder / location))
    if not path.is_relative_to(os.path.realpath(folder)):
        raise DataError(
            f"onnx.load: {place} has external data at {location!r}, which links to outside the model's folder."
        )
    if not path.is_file():
        raise DataError(f"onnx.load: {place} has external data at {location!r}, where no file is.")
    return path


def _number(text: str, name: str, place: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise DataError(f"onnx.load: {place} has external data with {name} {text!r}; that must be a count of bytes.")
    return int(text)
