"""Malformed models by the thousand: of one node, and whole ones with bytes or fields changed. All errors are picograd's.

    PICOGRAD_DEVICE=NUMPY python -m tests.onnx.malformed nodes --count 10000
    PICOGRAD_DEVICE=NUMPY python -m tests.onnx.malformed files --count 10000 --seed 7

Each model is loaded and run in a process of its own, that may take a second of processor time and 200 MB. What ends in a
result or in an error of picograd's is counted; anything else is printed with its number, by which `--only` runs it again.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import picograd as pg
import picograd.onnx
from picograd.errors import PicogradError
from picograd_onnx.operators import OPERATORS
from tests.onnx.suite import decoded, node_cases

SECONDS, NBYTES = 1.0, 200 << 20
BATCH = 50  # cases that a process runs if it lives
INTEGERS = [-(2**63), -(2**40), -100, -3, -2, -1, 0, 1, 2, 3, 5, 7, 100, 2**31, 2**40, 2**60, 2**63 - 1]
FLOATS = [-1e30, -2.5, -1.0, 0.0, 0.5, 1.0, 3.0, 1e9, 1e30, float("inf"), float("nan")]
STRINGS = ["", "a", "constant", "NOTSET", "(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "ij,jk->ik", "\0", "é" * 9]
DTYPES = [np.float32, np.int64, np.int32, np.uint8, np.int8, np.float64, np.float16, np.bool_, object]
Case = tuple[ModelProto | bytes, dict[str, Any]]  # a model, and values of its inputs


# ---- what a value may be ----
def lengths(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice((0, 1, 1, 2, 3, 4)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 5))))


def array(rng: random.Random, dtype: Any = None, shape: Sequence[int] | None = None) -> np.ndarray[Any, Any]:
    """Returns an array whose elements are small, or what sizes and axes are hostile with."""
    dtype = np.dtype(rng.choice(DTYPES) if dtype is None else dtype)
    shape = lengths(rng) if shape is None else tuple(shape)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.kind == "O":
        return np.array([rng.choice(STRINGS) for _ in range(count)], object).reshape(shape)
    pool: list[Any] = [rng.randrange(-3, 4) for _ in range(4)]
    if rng.random() < 0.3:
        pool = FLOATS if dtype.kind == "f" else INTEGERS if dtype.kind in "iu" else [0, 1]
    with np.errstate(all="ignore"):
        picked = [rng.choice(pool) for _ in range(count)]
        if dtype.kind in "iu":
            picked = [int(n) % 2 ** (8 * dtype.itemsize) for n in picked]
            return np.array(picked, np.uint64).astype(dtype).reshape(shape)
        return np.array(picked, np.float64).astype(dtype).reshape(shape)


def attribute(rng: random.Random, name: str, kind: int) -> AttributeProto | None:
    """Returns an attribute of a type, or None for types without a value to draw."""
    many = rng.randrange(6)
    values: dict[int, Callable[[], Any]] = {
        AttributeProto.INT: lambda: rng.choice(INTEGERS), AttributeProto.FLOAT: lambda: rng.choice(FLOATS),
        AttributeProto.STRING: lambda: rng.choice(STRINGS),
        AttributeProto.INTS: lambda: [rng.choice(INTEGERS) for _ in range(many)],
        AttributeProto.FLOATS: lambda: [rng.choice(FLOATS) for _ in range(many)],
        AttributeProto.STRINGS: lambda: [rng.choice(STRINGS) for _ in range(many)],
        AttributeProto.TENSOR: lambda: tensor(array(rng), name),
    }  # fmt: skip
    return helper.make_attribute(name, values[kind](), attr_type=kind) if kind in values else None


def tensor(value: np.ndarray[Any, Any], name: str) -> TensorProto:
    return numpy_helper.from_array(value, name)


# ---- models of one node ----
@cache
def schemas() -> dict[str, list[Any]]:
    """Returns the versions of each operator that has a row in the table, or a body in onnx.defs, by name."""
    found: dict[str, list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if (schema.domain, schema.name) in OPERATORS or schema.has_function or schema.has_context_dependent_function:
            found.setdefault(schema.name, []).append(schema)
    return {name: found[name] for name in sorted(found)}


def drawn(rng: random.Random, schema: Any) -> Case:
    """Returns a model of one node whose inputs and attributes are drawn, of the types the operator asks for or not."""
    kinds = {entry.type_param_str: sorted(entry.allowed_type_strs) for entry in schema.type_constraints}
    count = rng.randint(schema.min_input, min(schema.max_input, max(len(schema.inputs), 3)))
    values = {}
    shape = lengths(rng)
    for number in range(count):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        types = kinds.get(formal.type_str, [formal.type_str])
        allowed = [dtype for dtype in DTYPES if f"tensor({name_of(dtype)})" in types]
        dtype = rng.choice(allowed) if allowed and rng.random() < 0.97 else None
        values[f"i{number}"] = array(rng, dtype, shape if rng.random() < 0.4 else None)
    attributes = []
    for name, about in schema.attributes.items():
        if rng.random() < (0.97 if about.required else 0.35):
            attributes.append(attribute(rng, name, int(about.type.value)))
    outputs = [f"o{number}" for number in range(rng.randint(schema.min_output, min(schema.max_output, 4)))]
    node = NodeProto(op_type=schema.name, domain=schema.domain, input=[*values], output=outputs)
    node.attribute.extend(entry for entry in attributes if entry is not None)
    inputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in values]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "one", inputs, results)
    newest = onnx.defs.onnx_opset_version()
    own = rng.choice((schema.since_version, newest)) if not schema.domain else schema.since_version
    imports = [helper.make_opsetid(domain, version) for domain, version in {"": newest, schema.domain: own}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), values


def name_of(dtype: Any) -> str:
    name = np.dtype(dtype).name
    return {"float32": "float", "float64": "double", "object": "string"}.get(name, name)


def taken(rng: random.Random, name: str) -> Case | None:
    """Returns a case of ONNX's own suite for an operator, with inputs and attributes changed; None: there is none."""
    cases = _cases_of().get(name, [])
    if not cases:
        return None
    case = rng.choice(cases)
    model, (inputs, _) = ModelProto.FromString(case.model.SerializeToString()), case.data_sets[0]
    values = {entry.name: decoded(value) for entry, value in zip(model.graph.input, inputs)}
    for entry in model.graph.input:
        entry.type.Clear() if not isinstance(values.get(entry.name), list) else None
    node = model.graph.node[rng.randrange(len(model.graph.node))]
    for _ in range(rng.choice((1, 1, 2))):
        change(rng, node, values)
    return model, values


@cache
def _cases_of() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for case in node_cases().values():
        found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


def change(rng: random.Random, node: NodeProto, values: dict[str, Any]) -> None:
    """Changes one thing of a node: an attribute, the shape or the elements of an input, or how many there are."""
    names = [name for name in node.input if isinstance(values.get(name), np.ndarray)]
    what = rng.random()
    if what < 0.35 and node.attribute:
        entry = rng.choice([*node.attribute])
        made = attribute(rng, entry.name, entry.type if rng.random() < 0.95 else rng.choice((1, 2, 3, 6, 7)))
        if made is not None:
            entry.CopyFrom(made)
    elif what < 0.45 and onnx.defs.has(node.op_type, node.domain):
        options = onnx.defs.get_schema(node.op_type, node.domain).attributes
        absent = [name for name in options if name not in {entry.name for entry in node.attribute}]
        if absent:
            made = attribute(rng, name := rng.choice(absent), int(options[name].type.value))
            node.attribute.extend([made] if made is not None else [])
    elif what < 0.5 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif what < 0.75 and names:
        name = rng.choice(names)
        values[name] = array(rng, values[name].dtype if values[name].dtype.kind in "biufO" else None)
    elif what < 0.9 and names:
        name = rng.choice(names)
        if values[name].dtype.kind in "biufO":
            values[name] = array(rng, values[name].dtype, values[name].shape)
    elif what < 0.95 and node.input:
        node.input[rng.randrange(len(node.input))] = ""
    elif node.output:
        node.output.append("more")


def nodes(seed: int, number: int) -> Case:
    """Returns the malformed model of one node of a number: half of them drawn, half of ONNX's own cases, changed."""
    rng = random.Random(f"{seed} node {number}")
    known = schemas()
    name = [*known][number % len(known)]
    case = taken(rng, name) if rng.random() < 0.5 else None
    model, values = case if case is not None else drawn(rng, rng.choice(known[name]))
    for entry in [*model.graph.input]:
        value = values.get(entry.name)
        if isinstance(value, np.ndarray) and rng.random() < 0.7:  # known when the model is loaded
            model.graph.initializer.append(tensor(value, entry.name))
            model.graph.input.remove(entry)
            del values[entry.name]
    return model, values


# ---- whole models ----
def files(seed: int, number: int) -> Case:
    """Returns a whole model with bytes changed, or with fields of its messages changed, removed or repeated."""
    rng = random.Random(f"{seed} file {number}")
    cases = sorted(node_cases())
    case = node_cases()[cases[rng.randrange(len(cases))]]
    model = ModelProto.FromString(case.model.SerializeToString())
    values = {entry.name: decoded(value) for entry, value in zip(model.graph.input, case.data_sets[0][0])}
    if rng.random() < 0.5:
        whole = bytearray(model.SerializeToString())
        for _ in range(rng.choice((1, 1, 2, 4))):
            place = rng.randrange(len(whole))
            removed, added = rng.choice((0, 1, 1, 1, 2)), rng.choice((0, 1, 1, 1, 2))
            whole[place : place + removed] = bytes(rng.choices(range(256), k=added))
        return bytes(whole[: rng.randrange(len(whole))] if rng.random() < 0.1 else whole), values
    for _ in range(rng.choice((1, 1, 2, 4))):
        change_field(rng, model)
    return model, values


def change_field(rng: random.Random, message: Message) -> None:
    """Changes one field of a message, or of one below it."""
    fields = message.ListFields()
    messages = [(field, value) for field, value in fields if field.type == field.TYPE_MESSAGE]
    below = [item for field, value in messages for item in (value if field.is_repeated else [value])]
    if below and rng.random() < 0.85:
        return change_field(rng, rng.choice(below))
    if not fields:
        return None
    field, value = rng.choice(fields)
    made: Any = {
        field.TYPE_STRING: rng.choice([*STRINGS, "x", "y"]), field.TYPE_BYTES: rng.choice(STRINGS).encode(),
        field.TYPE_FLOAT: rng.choice(FLOATS), field.TYPE_DOUBLE: rng.choice(FLOATS),
    }.get(field.type, rng.choice(INTEGERS))  # fmt: skip
    try:
        if rng.random() < 0.2 or field.type == field.TYPE_MESSAGE and not field.is_repeated:
            message.ClearField(field.name)
        elif field.is_repeated:
            place = rng.randrange(len(value))
            if rng.random() < 0.3:
                del value[place]
            elif field.type == field.TYPE_MESSAGE:
                value.add().CopyFrom(value[place])
            else:
                value[place] = made
        else:
            setattr(message, field.name, made)
    except (ValueError, TypeError, OverflowError):
        pass  # a number that does not fit the field


# ---- running them ----
def run(model: ModelProto | bytes, values: dict[str, Any]) -> str:
    """Loads and runs a model; returns how it ends."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    try:
        net = picograd.onnx.load(data)
        result = net(**{entry.name: values[entry.name] for entry in net.inputs if entry.name in values})
        read(result)
    except PicogradError as error:
        return type(error).__name__
    return "result"


def read(value: Any) -> None:
    """Computes what a model returned."""
    if isinstance(value, (list, tuple)):
        for item in value:
            read(item)
    elif isinstance(value, pg.Tensor):
        value.detach().numpy()


def limited(case: Callable[[], Case]) -> str:
    """Returns how a case ends within its limits; beyond the one of time the process does."""
    model, values = case()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[5])
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + NBYTES, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        return run(model, values)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = next((frame for frame in reversed(frames) if "picograd" in frame.filename), frames[-1])
        return f"RAW {type(error).__name__}: {error} at {os.path.basename(place.filename)}:{place.lineno}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def in_child(cases: Sequence[Callable[[], Case]]) -> list[str]:
    """Returns how cases end in a process of their own; it ends with the first that is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        for case in cases:
            os.write(writer, limited(case).encode().replace(b"\n", b" ")[:1000] + b"\n")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        ends = pipe.read().decode(errors="replace").splitlines()
    _, status = os.waitpid(child, 0)
    return ends if os.WIFEXITED(status) else [*ends, f"RAW killed by signal {os.WTERMSIG(status)}"]


def campaign(draw: Callable[[int, int], Case], seed: int, numbers: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Runs cases; returns how often each end was met, and those that are not picograd's errors."""
    ends: list[str] = []
    while len(ends) < len(numbers):
        batch = numbers[len(ends) : len(ends) + BATCH]
        ends += in_child([partial(draw, seed, number) for number in batch])
    counts = Counter(end.split(":")[0] for end in ends)
    return counts, [(number, end) for number, end in zip(numbers, ends) if end.startswith("RAW")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["nodes", "files"], nargs="+")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    draws = {"nodes": nodes, "files": files}
    if asked.only is not None:
        case = partial(draws[asked.kind[0]], asked.seed, asked.only)
        print(*case())
        print(*in_child([case]))
        return
    _cases_of()
    failed = False
    for kind in asked.kind:
        counts, bad = campaign(draws[kind], asked.seed, range(asked.start, asked.start + asked.count))
        for number, end in bad:
            print(kind, number, end)
        print(kind, dict(counts.most_common()))
        failed |= bool(bad)
    sys.exit(failed)


if __name__ == "__main__":
    main()
