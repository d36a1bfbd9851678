"""picograd as a backend of ONNX's own test suite, `onnx.backend.test`.

In:    ModelProtos and arrays
Out:   `Backend`, `Prepared`; arrays
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep

from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_onnx.model import Model, load


class Prepared(BackendRep):
    """A model ready to run on arrays."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Returns the outputs as arrays; an empty sequence or optional is a list or None."""
        with no_grad():
            outputs = self.model(*inputs)
            return tuple(map(_as_array, outputs)) if len(self.model.outputs) > 1 else (_as_array(outputs),)


def _as_array(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_array(item) for item in value]
    return value.numpy() if isinstance(value, Tensor) else value


class Backend(OnnxBackend):
    """The interface that `onnx.backend.test.BackendTest` asks for."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Returns a model ready to run on the default device, whatever device is named."""
        return Prepared(load(model.SerializeToString()))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Sequence[Any], device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Returns the outputs of a model."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Returns whether tests for a device run: for the CPU alone."""
        return device == "CPU"
