"""Gradients of tensors under the names of torch.autograd, on one page.

In:    picograd/tensor, picograd/transforms
Out:   `backward`, `grad` and the others
"""

from picograd.autograd import functional as functional
from picograd.control.custom import Function
from picograd.public import publish
from picograd.tensor.autograd import backward
from picograd.tensor.gradients import grad
from picograd.tensor.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from picograd.transforms.gradcheck import gradcheck, gradgradcheck

__all__ = [
    "Function", "backward", "enable_grad", "functional", "grad", "gradcheck", "gradgradcheck", "inference_mode", "no_grad",
    "set_grad_enabled",
]  # fmt: skip

publish(globals())
