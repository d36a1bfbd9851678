"""Checks the element types of a node's inputs against what ONNX allows, and tells types to what asks for them.

In:    the inputs of a Step
Out:   `check_types`, `check_results`, `type_of`
Next:  picograd/onnx/fit.py
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from picograd.errors import DTypeError
from picograd.onnx.record import Step
from picograd.onnx.values import Value, element_type, type_name
from picograd.tensor.tensor import Tensor

TYPES = {"dtype", "to", "output_dtype", "output_datatype"}  # attributes that say an element type


@lru_cache(maxsize=4096)
def _allowed(name: str, domain: str, since: int) -> dict[str, frozenset[str]]:
    """Returns for each type parameter of an operator the types it may be."""
    schema = onnx.defs.get_schema(name, since, domain)
    return {entry.type_param_str: frozenset(entry.allowed_type_strs) for entry in schema.type_constraints}


def check_types(step: Step, inputs: Sequence[Value]) -> None:
    """Raises where the element types of inputs are not allowed, or differ where they must be equal.

    Raises:
      DTypeError: with both inputs.
    """
    schema: OpSchema = step.schema
    allowed = _allowed(schema.name, schema.domain, schema.since_version)
    bound: dict[str, tuple[str, str]] = {}
    for number, value in enumerate(inputs):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        kinds = allowed.get(formal.type_str, frozenset((formal.type_str,)))
        if not isinstance(value, (Tensor, np.ndarray)):
            if isinstance(value, list) and not any(kind.startswith(("seq(", "optional(seq(")) for kind in kinds):
                raise DTypeError(f"{schema.name}: input {formal.name} is a sequence; it may be {_listed(kinds)}.")
            if value is None and step.inputs[number] and not any(kind.startswith("optional(") for kind in kinds):
                raise DTypeError(f"{schema.name}: input {formal.name} is an empty optional; it may be {_listed(kinds)}.")
            continue
        found = type_name(element_type(value))
        if not {f"tensor({found})", f"optional(tensor({found}))"} & kinds:
            raise DTypeError(f"{schema.name}: input {formal.name} is a tensor of {found}; it may be {_listed(kinds)}.")
        if formal.type_str in allowed and formal.is_homogeneous:
            other, name = bound.setdefault(formal.type_str, (found, formal.name))
            if other != found:
                raise DTypeError(
                    f"{schema.name}: inputs {name} ({other}) and {formal.name} ({found}) must be of one element type."
                )


def check_results(step: Step, results: Sequence[Value]) -> None:
    """Raises where an attribute asks for an element type that an operator's results do not have.

    Raises:
      DTypeError: with the types there are.
    """
    if TYPES.isdisjoint(step.attributes):
        return
    schema: OpSchema = step.schema
    allowed = _allowed(schema.name, schema.domain, schema.since_version)
    for number, (value, _) in enumerate(zip(results, step.outputs)):
        formal = schema.outputs[min(number, len(schema.outputs) - 1)]
        kinds = allowed.get(formal.type_str)
        if kinds and isinstance(value, (Tensor, np.ndarray)):
            found = type_name(element_type(value))
            if not {f"tensor({found})", f"optional(tensor({found}))"} & kinds:
                raise DTypeError(f"{schema.name}: output {formal.name} is a tensor of {found}; it may be {_listed(kinds)}.")


def _listed(kinds: frozenset[str]) -> str:
    return ", ".join(sorted(kinds))


def type_of(value: Value) -> onnx.TypeProto:
    """Returns the type of a value as ONNX writes it; an empty one for an input that is left out."""
    kind = onnx.TypeProto()
    if isinstance(value, list):
        if value:
            kind.sequence_type.elem_type.CopyFrom(type_of(value[0]))
        return kind
    if value is not None:
        kind.tensor_type.elem_type = element_type(value)
        for length in value.shape:
            kind.tensor_type.shape.dim.add().dim_value = int(length)
        kind.tensor_type.shape.SetInParent()
    return kind


def signature(values: Sequence[Any]) -> tuple[bytes, ...]:
    """Returns what a body that depends on types is kept under."""
    return tuple(type_of(value).SerializeToString() for value in values)
