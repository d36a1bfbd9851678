"""Checks ranks, axes and counts of a node against its row of the table, and gives inputs the forms its function takes.

In:    a Step, its inputs
Out:   `check_fit`, before anything is computed; `fitted`: inputs and attributes as the function gets them
Next:  picograd/onnx/run.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from picograd.errors import ArgumentError, IndexingError, ShapeError
from picograd.onnx.kinds import ANY, ELEMENT, Kind, Span, of_input
from picograd.onnx.record import Operator, Step
from picograd.onnx.values import Value, as_array

ROW_LENGTH_MAX = 1 << 16
AXES = ("axis", "axes", "batch_axis", "time_axis")  # attributes that name axes
# Attributes that count something, and how many there are at least: of lists, each element.
COUNTS = {
    "kernel_shape": 1, "strides": 1, "dilations": 1, "group": 1, "offset_group": 1, "num_groups": 1, "blocksize": 1,
    "size": 1, "num_outputs": 1, "hidden_size": 1, "sample_size": 1, "output_height": 1, "output_width": 1, "p": 1,
    "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_indexes": 0, "ngram_counts": 0,
    "block_size": 0, "batch_dims": 0, "sampling_ratio": 0, "pads": 0, "q_num_heads": 1, "kv_num_heads": 1, "num_heads": 1,
    "chunk_size": 1, "rotary_embedding_dim": 0,
}  # fmt: skip
A_SPATIAL_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 1, "pads": 2}  # numbers of windows
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
      ArgumentError: one counts less than nothing, or a flag is neither 0 nor 1.
    """
    for name, value in attributes.items():
        values = value if isinstance(value, list) else [value]
        if name in COUNTS and any(number < COUNTS[name] for number in values):
            raise ArgumentError(f"{operator}: {name} must be at least {COUNTS[name]}, got {value}.")
        if name in FLAGS and value not in (0, 1):
            raise ArgumentError(f"{operator}: {name} must be 0 or 1, got {value}.")


def check_fit(step: Step, inputs: Sequence[Value]) -> None:
    """Checks the ranks of inputs, and attributes that name axes; `fitted` checks axes of a row of the table.

    Raises:
      ShapeError:    an input has another number of axes or of elements than the operator takes.
      IndexingError: an axis is none.
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
    """Checks that there are as many numbers about windows as axes they move along."""
    for name, each in A_SPATIAL_AXIS.items():
        given = step.attributes.get(name)
        if given and len(given) != each * axes:
            fact = f"{step.schema.name}: {name} must have {each * axes} numbers for {axes} spatial axes, got {given}."
            raise ShapeError(fact)


def fitted(step: Step, row: Operator, inputs: Sequence[Value]) -> tuple[list[Any], dict[str, Any]]:
    """Returns inputs and attributes in the forms that the function of a row takes."""
    attributes, span = _axes_of(step, row, inputs)
    given = [
        value if value is None or kind is ANY or isinstance(value, list) else _formed(step, number, kind, value, span)
        for number, value in enumerate(inputs)
        for kind in (row.kind(number),)
    ]
    return given, attributes


# ---- ranks ----
def _label(step: Step, about: int | str) -> str:
    """Returns the name in errors of an input, by its number, or of an attribute."""
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
    """Returns the attributes with axes counted from the first one, and which axes such numbers may mean."""
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
    """Returns an input in the form of its kind."""
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
