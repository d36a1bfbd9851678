"""Transforms of functions under the names of torch.func, on one page."""

from picograd.public import publish
from picograd.transforms.derivatives import grad_and_value, linearize, value_and_grad, vjp
from picograd.transforms.derivatives import grad_of as grad
from picograd.transforms.derivatives import jvp_of as jvp
from picograd.transforms.jacobians import hessian, jacfwd, jacrev
from picograd.transforms.vmap import vmap
from picograd_torch.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "value_and_grad", "vjp", "vmap",
]  # fmt: skip

publish(globals())
