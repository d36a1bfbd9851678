"""Computes a planned ONNX graph: a sequence of steps, each a function on tensors.

In:    a Graph and the values of its inputs
Out:   `Run`; the values of its outputs, as graphs of Ops

A step whose inputs are all known is computed immediately, on the host. So shapes are known numbers, also under jit.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from picograd.errors import DataError, UnsupportedOp
from picograd.interrupts import Latest
from picograd.tensor.tensor import Tensor
from picograd_onnx.fit import check_fit, check_results, check_types, fitted, signature, type_of
from picograd_onnx.plan import Planner
from picograd_onnx.read import named
from picograd_onnx.record import Graph, Operator, Step
from picograd_onnx.values import (
    HOST,
    Constants,
    Value,
    element_type,
    is_little,
    is_tensor_dtype,
    known,
    settled,
    type_name,
    unwatched,
)

MAX_BODIES = 256  # bodies of one model; the limit keeps varying shapes from filling memory


class Run:
    """The state for computing the steps of one model.

    planner:    makes the bodies that depend on types
    constants:  tensors of known values
    """

    def __init__(self, planner: Planner, constants: Constants) -> None:
        self.planner, self.constants = planner, constants
        # The Step is kept with its body, so that its id is not reused.
        self._bodies: Latest[tuple[int, tuple[bytes, ...]], tuple[Step, Graph]] = Latest(MAX_BODIES)

    # ---- graphs ----
    def graph(self, graph: Graph, inputs: Sequence[Value], outer: Mapping[str, Value] | None = None) -> list[Value]:
        """Returns the outputs of a graph; `outer` are the values of the enclosing graph that it may read."""
        values: dict[str, Value] = {**(outer or {}), **graph.constants}
        values.update(zip((entry.name for entry in graph.inputs), inputs))
        for step in graph.steps:
            self.step(step, values)
        return [values[entry.name] for entry in graph.outputs]

    def step(self, step: Step, values: MutableMapping[str, Value]) -> None:
        """Computes one step and adds its results to `values`.

        Raises:
          PicogradError: an error of the operator, with the step's place added; other errors become a DataError.
        """
        try:
            inputs = [values[name] if name else None for name in step.inputs]
            if step.schema is not None:
                check_types(step, inputs)
                check_fit(step, inputs)
            results = self.results(step, inputs, values)
            if len(results) < len(step.outputs):
                raise UnsupportedOp(f"only the first {len(results)} of its outputs are computed.")
            if step.schema is not None:
                check_results(step, results)
        except Exception:
            with named(f"onnx: {step.place}"):
                raise
        values.update((name, result) for name, result in zip(step.outputs, results) if name)

    def results(self, step: Step, inputs: Sequence[Value], values: Mapping[str, Value]) -> Sequence[Value]:
        """Returns the outputs of a step."""
        if not isinstance(step.does, Operator):
            return self._called(step, inputs)
        if not step.does.random and not step.does.takes_run and all(map(known, inputs)):
            with unwatched():
                results = _as_tuple(self._applied(step, step.does, inputs, values, ahead=True))
                if is_little(results):
                    return [settled(result) for result in results]
        return _as_tuple(self._applied(step, step.does, inputs, values, ahead=False))

    def _called(self, step: Step, inputs: Sequence[Value]) -> Sequence[Value]:
        """Returns the outputs of a step with a body."""
        assert not isinstance(step.does, Operator)
        body = step.does.graph or self._typed_body(step, inputs)
        padded = [*inputs, *[None] * (len(body.inputs) - len(inputs))]
        results = iter(self.graph(body, padded))
        return [next(results) if name else None for name in step.outputs]  # the body computes only the requested outputs

    def _typed_body(self, step: Step, inputs: Sequence[Value]) -> Graph:
        """Returns a step's body for the types of its inputs; the last MAX_BODIES are cached."""
        key = (id(step), signature(inputs))
        kept = self._bodies.get(key)
        if kept is None:
            kept = step, self.planner.typed_body(step, [type_of(value) for value in inputs])
        self._bodies.put(key, kept)
        return kept[1]

    # ---- rows of the table ----
    def _applied(
        self, step: Step, operator: Operator, inputs: Sequence[Value], values: Mapping[str, Value], ahead: bool
    ) -> Any:
        """Returns the result of an operator's function; with `ahead` all inputs are known, and the host computes it."""
        given = [self._argument(operator, number, value, ahead) for number, value in enumerate(inputs)]
        given, keywords = fitted(step, operator, given)
        if operator.takes_step:
            keywords["step"] = step
        if operator.takes_run:
            keywords["run"], keywords["outer"] = self, values
        if not ahead:
            return operator.function(*given, **keywords)
        with np.errstate(all="ignore"):  # a model's numbers may be infinite
            return operator.function(*given, **keywords)

    def _argument(self, operator: Operator, number: int, value: Value, ahead: bool) -> Any:
        """Returns an input in the form that the operator's function accepts."""
        if isinstance(value, list) and not known(value):
            return [item if item is None else self._argument(operator, number, item, ahead) for item in value]
        if value is None or isinstance(value, list) or operator.takes_run:
            return value
        if isinstance(value, Tensor) or operator.kind(number).is_known:
            return value
        if is_tensor_dtype(value):
            return Tensor(value, device=HOST) if ahead else self.constants.tensor(value)
        if not operator.hosts:
            raise UnsupportedOp(f"{operator.name}: element type {type_name(element_type(value))} is not supported.")
        return value

    def tensor(self, value: Value) -> Tensor:
        """Converts a value to a tensor.

        Raises:
          DataError: the value is not a tensor.
        """
        if isinstance(value, np.ndarray) and is_tensor_dtype(value):
            return self.constants.tensor(value)
        if not isinstance(value, Tensor):
            raise DataError(f"needs a tensor, got {_kind(value)}.")
        return value


def _kind(value: Value) -> str:
    return "nothing" if value is None else "a sequence" if isinstance(value, list) else "an array of another element type"


def _as_tuple(result: Any) -> tuple[Value, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)
