"""Gradients of tensors under the names of torch.autograd, on one page."""

from typing import TYPE_CHECKING

from picograd.autograd import functional as functional
from picograd.control.custom import Function
from picograd.errors import AnomalyError
from picograd.public import publish, publish_late
from picograd.tensor import modes as grad_mode
from picograd.tensor.anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from picograd.tensor.gradients import backward, grad
from picograd.tensor.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

if TYPE_CHECKING:
    from picograd_lab.gradcheck import gradcheck, gradgradcheck
    from picograd_torch.variable import Variable

__all__ = [
    "AnomalyError", "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad", "grad_mode",
    "gradcheck", "gradgradcheck", "inference_mode", "is_anomaly_enabled", "no_grad", "set_detect_anomaly",
    "set_grad_enabled",
]  # fmt: skip

publish_late(
    globals(),
    ["picograd.autograd.function"],
    {"picograd_lab.gradcheck": ("gradcheck", "gradgradcheck"), "picograd_torch.variable": ("Variable",)},
)
publish(globals())
