"""Checks a node's inputs against its row of the table (ranks, axes, counts) and against ONNX's allowed element types.

In:    a Step, its inputs
Out:   `check_types` and `check_fit`, both before the computation; `fitted`: inputs and attributes in the function's forms;
`type_of`, `signature`: the types of values
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from picograd.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from picograd.tensor.tensor import Tensor
from picograd_onnx.record import ANY, ELEMENT, Kind, Operator, Span, Step, of_input
from picograd_onnx.values import Value, as_array, element_type, type_name

# ---- element types ----
TYPES = {"dtype", "to", "output_dtype", "output_datatype"}  # attributes that name an element type


@lru_cache(maxsize=4096)
def _allowed(name: str, domain: str, since: int) -> dict[str, frozenset[str]]:
    """Returns the allowed types of each type parameter of an operator."""
    schema = onnx.defs.get_schema(name, since, domain)
    return {entry.type_param_str: frozenset(entry.allowed_type_strs) for entry in schema.type_constraints}


def check_types(step: Step, inputs: Sequence[Value]) -> None:
    """Raises if the element types of inputs are not allowed, or differ although they must be equal.

    Raises:
      DTypeError: as the summary says; the message names both inputs.
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
                    f"{schema.name}: inputs {name} ({other}) and {formal.name} ({found}) must have one element type."
                )


def check_results(step: Step, results: Sequence[Value]) -> None:
    """Raises if an attribute names an element type that is not allowed for an operator's results.

    Raises:
      DTypeError: as the summary says; the message lists the allowed types.
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
    """Returns a value's type as a TypeProto; an empty one for an omitted input."""
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
    """Returns the key of a body that depends on the types of these values."""
    return tuple(type_of(value).SerializeToString() for value in values)


# ---- ranks, axes, counts ----
ROW_LENGTH_MAX = 1 << 16
AXES = ("axis", "axes", "batch_axis", "time_axis")  # attributes that name axes
# Attributes that are counts, with their lower limits; in lists the limit is for each element.
COUNTS = {
    "kernel_shape": 1, "strides": 1, "dilations": 1, "group": 1, "offset_group": 1, "num_groups": 1, "blocksize": 1,
    "size": 1, "num_outputs": 1, "hidden_size": 1, "sample_size": 1, "output_height": 1, "output_width": 1, "p": 1,
    "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_indexes": 0, "ngram_counts": 0,
    "block_size": 0, "batch_dims": 0, "sampling_ratio": 0, "pads": 0, "q_num_heads": 1, "kv_num_heads": 1, "num_heads": 1,
    "chunk_size": 1, "rotary_embedding_dim": 0,
}  # fmt: skip
A_SPATIAL_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 1, "pads": 2}  # numbers an axis
FLAGS = {
    "align_corners", "allowzero", "antialias", "broadcast", "ceil_mode", "center_point_box", "count_include_pad",
    "detect_negative", "detect_positive", "exclude_outside", "exclusive", "fmod", "input_forget", "interleaved", "inverse",
    "is_case_sensitive", "is_causal", "is_test", "keepdims", "largest", "layout", "linear_before_reset", "new_axis",
    "noop_with_empty_axes", "onesided", "output_sequence", "periodic", "reverse", "saturate", "select_last_index", "sorted",
    "spatial", "storage_order", "training_mode", "transA", "transB", "upper",
}  # fmt: skip


def check_attributes(operator: str, attributes: Mapping[str, Any]) -> None:
    """Checks each attribute by itself.

    Raises:
      ArgumentError: a count is below its limit, or a flag is neither 0 nor 1.
    """
    for name, value in attributes.items():
        values = value if isinstance(value, list) else [value]
        if name in COUNTS and any(number < COUNTS[name] for number in values):
            raise ArgumentError(f"{operator}: {name} must be at least {COUNTS[name]}, got {value}.")
        if name in FLAGS and value not in (0, 1):
            raise ArgumentError(f"{operator}: {name} must be 0 or 1, got {value}.")


def check_fit(step: Step, inputs: Sequence[Value]) -> None:
    """Checks the ranks of inputs and the attributes that name axes; axes among the inputs are checked by `fitted`.

    Raises:
      ShapeError:    the operator does not accept an input's number of axes or of elements.
      IndexingError: an axis is out of range.
    """
    row = step.does if isinstance(step.does, Operator) else None
    if row is None:
        _axes_of(step, row, inputs)
        return
    for number, (kind, value) in enumerate(zip(row.kinds, inputs)):
        if value is not None and kind is not ANY and not isinstance(value, list):
            _check_rank(step, number, kind, value, inputs[0])
    if "kernel_shape" in row.parameters:
        _check_windows(step, len(inputs[0].shape) - 2)


def _check_windows(step: Step, axes: int) -> None:
    """Checks that attributes of windows have the right number of elements for the spatial axes."""
    for name, each in A_SPATIAL_AXIS.items():
        given = step.attributes.get(name)
        if given and len(given) != each * axes:
            fact = f"{step.schema.name}: {name} must have {each * axes} numbers for {axes} spatial axes, got {given}."
            raise ShapeError(fact)


def fitted(step: Step, row: Operator, inputs: Sequence[Value]) -> tuple[list[Any], dict[str, Any]]:
    """Returns inputs and attributes in the forms that the row's function accepts."""
    attributes, span = _axes_of(step, row, inputs)
    given = [
        value if value is None or kind is ANY or isinstance(value, list) else _formed(step, number, kind, value, span)
        for number, value in enumerate(inputs)
        for kind in (row.kind(number),)
    ]
    return given, attributes


# ---- ranks ----
def _label(step: Step, about: int | str) -> str:
    """Returns the name, in error messages, of an input (by its number) or of an attribute."""
    if isinstance(about, int):
        about = f"input {step.schema.inputs[min(about, len(step.schema.inputs) - 1)].name}"
    return f"{step.schema.name}: {about}"


def _check_rank(step: Step, number: int, kind: Kind, value: Value, first: Value) -> None:
    shape = tuple(value.shape)
    fact = ""
    if kind.form in ELEMENT:
        if any(length != 1 for length in shape):
            fact = "must have one element"
    elif not kind.least <= len(shape) <= kind.most:
        fact = f"must have {kind.least}" + ("" if kind.least == kind.most else f" to {kind.most}") + " axes"
    elif kind.form == "like" and len(shape) != len(first.shape):
        fact = f"must have as many axes as {tuple(first.shape)}"
    elif kind.form == "each" and shape != (len(first.shape),):
        fact = f"must have a number for each axis of {tuple(first.shape)}"
    elif kind.form in ("row", "axes") and shape and isinstance(shape[0], int) and shape[0] > ROW_LENGTH_MAX:
        fact = f"may have up to {ROW_LENGTH_MAX} elements"
    if fact:
        raise ShapeError(f"{_label(step, number)} {fact}, got shape {shape}.")


# ---- axes ----
def _axes_of(step: Step, row: Operator | None, inputs: Sequence[Value]) -> tuple[dict[str, Any], Span]:
    """Returns the attributes with nonnegative axes, and the range of axes that such numbers may name."""
    attributes: dict[str, Any] = {**step.attributes}
    named = [name for name in AXES if name in attributes] if attributes else ()
    if not named and (row is None or not row.takes_axes):
        return attributes, None
    span = (row.span if row is not None else of_input)(inputs, attributes)
    for name in named if span is not None else ():
        value = attributes[name]
        attributes[name] = (_axes if isinstance(value, list) else _axis)(step, name, value, span)
    return attributes, span


def _axis(step: Step, about: int | str, axis: int, span: Span) -> int:
    ndim, most = span or (0, -1)
    if not -ndim <= axis <= most:
        label = _label(step, about)
        raise IndexingError(f"{label} must be from {-ndim} to {most}, got {axis}." if most >= 0 else f"{label}: no axes.")
    return axis + ndim if axis < 0 else axis


def _axes(step: Step, about: int | str, axes: Sequence[int], span: Span) -> list[int]:
    found = [_axis(step, about, axis, span) for axis in axes]
    if len({*found}) < len(found):
        raise ArgumentError(f"{_label(step, about)} must name different axes, got {[*axes]}.")
    return found


# ---- forms ----
def _formed(step: Step, number: int, kind: Kind, value: Value, span: Span) -> Any:
    """Converts an input to the form of its kind."""
    if kind.form == "single":
        return value.reshape(())
    if not kind.is_known:
        return value
    array = as_array(value)
    if kind.form in ("array", "scalar"):
        return array if kind.form == "array" else array.reshape(())
    if kind.form in ("one", "axis"):
        single = array.reshape(()).item()
        return single if kind.form == "one" else _axis(step, number, single, span)
    numbers = array.reshape(-1).tolist()
    return numbers if kind.form != "axes" else _axes(step, number, numbers, span)
