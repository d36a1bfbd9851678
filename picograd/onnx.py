"""ONNX models as modules: the package picograd_onnx under the name that users know."""

from picograd_onnx import *  # noqa: F403
from picograd_onnx import __all__ as __all__
