"""An ONNX model as a module, for calls with tensors and for training.

In:    a path or bytes
Out:   `load`, `Model`

The road: read (the file), check (the graph is valid), plan (a function for each node), apply.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.nn.module import Module
from picograd.record import replace
from picograd.tensor.tensor import Tensor
from picograd_onnx.plan import Planner
from picograd_onnx.read import check, read
from picograd_onnx.record import Declared, Graph, Operator, Step
from picograd_onnx.run import Run
from picograd_onnx.values import (
    FOLDED_WORK_A_BYTE,
    FOLDED_WORK_MAX,
    KNOWN_NBYTES,
    Array,
    Constants,
    Value,
    element_type,
    is_tensor_dtype,
    known,
    spending,
    type_name,
)


def load(source: str | os.PathLike[str] | bytes, device: str | None = None) -> Model:
    """Reads an ONNX model and returns it as a module.

    The whole file is checked before any computation: sizes, names, order, attributes. External data must be in the
    model's folder.

    Args:
      source:  path of the file, or its bytes
      device:  device of the parameters; default PICOGRAD_DEVICE

    Raises:
      DataError:     the file is damaged or contradicts itself.
      UnsupportedOp: an operator, attribute or element type is not supported; the message names it and its place.

    >>> from onnx import parser
    >>> text = '<ir_version: 10, opset_import: ["": 21]> net (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {3, 4}>'
    >>> model = load(parser.parse_model(text + " { y = MatMul(x, w) }").SerializeToString())
    >>> model(Tensor([[1.0, 2.0]]))
    Tensor([[11.]], requires_grad=True)
    >>> [name for name, _ in model.named_parameters()]
    ['w']
    """
    found = read(source)
    check(found.model)
    planner = Planner(found)
    graph = planner.main()
    found.arrays.clear()  # the graph holds the ones that it needs
    return Model(planner, graph, device)


class Model(Module):
    """A model loaded from ONNX.

    Called with its inputs in order or by name, it returns its output, or a tuple of several. Float initializers are
    parameters, under their names in the file, except those that are used only as shapes, scales or statistics.

    inputs:   name, element type and shape of each input
    outputs:  name, element type and shape of each output
    """

    def __init__(self, planner: Planner, graph: Graph, device: str | None = None) -> None:
        names = {entry.name for entry in graph.inputs}
        self.inputs = tuple(entry for entry in graph.inputs if entry.name not in graph.constants)
        self.optional = tuple(entry for entry in graph.inputs if entry.name in graph.constants)
        self.outputs = graph.outputs
        self._constants = Constants(device)
        self._run = Run(planner, self._constants)
        self._trained: dict[str, Tensor] = {}
        self._held: dict[str, Tensor] = {}
        self._made: dict[tuple[int, bool], Tensor] = {}
        uses: defaultdict[str, set[str]] = defaultdict(set)
        for name, use in _uses(graph):
            uses[name].add(use)
        values = {name: self._initial(name, value, uses[name], device) for name, value in graph.constants.items()}
        self._made.clear()
        self._graph = self._folded(replace(graph, constants=values), names)

    # ---- what it holds ----
    def _initial(self, name: str, array: Array, uses: set[str], device: str | None) -> Value:
        """Converts an initializer according to its uses: to a parameter, a buffer of statistics, or a known value."""
        if not is_tensor_dtype(array):
            return array
        trained = array.dtype.kind not in "biu" and "trained" in uses
        if not trained and array.nbytes <= KNOWN_NBYTES and "state" not in uses:
            return array
        key = id(array), trained
        if key not in self._made:  # several names of the same bytes of a file share a tensor
            self._made[key] = Tensor(array, device=device, requires_grad=trained)
        (self._trained if trained else self._held)[name] = self._made[key]
        return self._made[key]

    def _folded(self, graph: Graph, overridable: set[str]) -> Graph:
        """Folds constants: returns the graph without the steps whose results are known now and cheap to compute."""
        values = {name: value for name, value in graph.constants.items() if name not in overridable and known(value)}
        limit = FOLDED_WORK_MAX + FOLDED_WORK_A_BYTE * self._run.planner.source.nbytes
        steps = []
        with spending() as spent:
            for step in graph.steps:
                ahead = isinstance(step.does, Operator) and not (step.does.random or step.does.takes_run)
                if ahead and spent[0] < limit and all(name in values for name in step.inputs if name):
                    self._run.step(step, values)
                    long = [name for name in step.outputs if name and not known(values[name])]
                    for name in long:  # a tensor, computed when the model runs
                        del values[name]
                    if not long:
                        continue
                steps.append(step)
        for value in values.values():
            self._constants.keep(value)
        return replace(graph, steps=tuple(steps), constants={**graph.constants, **values})

    def _named_tensors(
        self, *kinds: str, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        for kind, held in (("parameter", self._trained), ("buffer", self._held)):
            if kind in kinds:
                yield from ((f"{prefix}.{name}" if prefix else name, tensor) for name, tensor in held.items())

    def extra_repr(self) -> str:
        """Returns the text in the parentheses of the model's printed form."""
        return ", ".join(entry.name for entry in self.inputs) + " -> " + ", ".join(entry.name for entry in self.outputs)

    # ---- calling it ----
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the outputs from the inputs in order (args), or by their names (kwargs).

        Raises:
          ArgumentError: an input is missing, or its name is unknown.
          ShapeError:    an input's shape is not the declared one.
          DTypeError:    an input's element type is not the declared one.
          JitError:      under jit, the values of an input decide a shape or a branch.
        """
        given = self._bound(args, kwargs)
        lengths: dict[str, int] = {}
        for entry in (*self.inputs, *self.optional):
            if entry.name in given:
                _check_input(entry, given[entry.name], lengths)
        self._constants.device = next(
            (value.device for value in (*given.values(), *self._trained.values()) if isinstance(value, Tensor)), None
        )
        results = self._run.graph(replace(self._graph, inputs=(), constants={**self._graph.constants, **given}), ())
        made = tuple(self._result(value) for value in results)
        return made[0] if len(made) == 1 else made

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Value]:
        """Returns the arguments of a call as a dict from the inputs' names."""
        names = [entry.name for entry in self.inputs]
        if len(args) > len(names):
            raise ArgumentError(f"onnx: the model takes {len(names)} inputs ({', '.join(names)}), got {len(args)}.")
        given = {**dict(zip(names, args))}
        known_names = {*names, *(entry.name for entry in self.optional)}
        for name, value in kwargs.items():
            if name not in known_names or name in given:
                what = "is given twice" if name in given else "is not an input"
                raise ArgumentError(f"onnx: {name!r} {what}; the model takes {', '.join(sorted(known_names))}.")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise ArgumentError(f"onnx: the inputs {', '.join(missing)} are missing.")
        entries = {entry.name: entry for entry in (*self.inputs, *self.optional)}
        return {name: _taken(value, entries[name].is_tensor) for name, value in given.items()}

    def _result(self, value: Value) -> Value:
        if isinstance(value, list):
            return [self._result(item) for item in value]
        if isinstance(value, np.ndarray) and is_tensor_dtype(value):
            return self._constants.tensor(value)
        return value


def _taken(value: Any, is_tensor: bool) -> Value:
    """Converts an argument: tensors stay, arrays and lists of numbers become tensors, other lists sequences."""
    if isinstance(value, Tensor) or value is None:
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "US":
            return value.astype(object)
        return Tensor(value) if is_tensor_dtype(value) else value
    if isinstance(value, (list, tuple)) and not is_tensor:
        return [_taken(item, True) for item in value]
    return Tensor(value)


def _check_input(entry: Declared, value: Value, lengths: dict[str, int]) -> None:
    """Raises if an input does not fit its declaration; `lengths` are the lengths of named axes so far."""
    if not entry.is_tensor or not isinstance(value, (Tensor, np.ndarray)):
        return
    if entry.elem_type is not None and element_type(value) != entry.elem_type:
        raise DTypeError(
            f"onnx: input {entry.name!r} must be {type_name(entry.elem_type)}, got {type_name(element_type(value))}."
        )
    if entry.shape is None:
        return
    fits = len(entry.shape) == len(value.shape)
    for wanted, length in zip(entry.shape, value.shape):
        if isinstance(wanted, str):
            wanted = lengths.setdefault(wanted, length)
        fits = fits and wanted in (None, length)
    if not fits:
        shown = ", ".join("?" if dim is None else str(dim) for dim in entry.shape)
        named = "".join(f", {name} = {n}" for name, n in lengths.items() if name in entry.shape)
        raise ShapeError(f"onnx: input {entry.name!r} must have the shape ({shown}){named}, got {tuple(value.shape)}.")


def _uses(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yields pairs of a value's name and a use: "static" (it decides shapes), "state" or "trained"."""
    for entry in graph.outputs:
        yield entry.name, "trained"
    for step in graph.steps:
        for number, name in enumerate(step.inputs):
            yield name, _use(step, number)
        for body in [value for value in step.attributes.values() if isinstance(value, Graph)]:
            yield from [(name, use) for name, use in _uses(body) if name not in body.constants]


def _use(step: Step, number: int) -> str:
    if isinstance(step.does, Operator):
        if step.does.kind(number).is_known:
            return "static"
        if number in step.does.state:
            return "state"
    return "trained"
