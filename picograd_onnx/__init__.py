"""ONNX models as modules: `load` gives a callable with parameters.

In:    a file or its bytes
Out:   `load`, `Model`

Needs the package onnx (`pip install "picograd[onnx]"`), which no other part of picograd imports.
"""

try:
    import onnx as _onnx  # noqa: F401
except ImportError:
    raise ImportError('picograd.onnx needs the package onnx: pip install "picograd[onnx]"') from None

from picograd_onnx.model import Model as Model
from picograd_onnx.model import load as load

__all__ = ["Model", "load"]
