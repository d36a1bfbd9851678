"""Tools around layers: norms of gradients, vectors of parameters, packed sequences, weights computed from others."""

from __future__ import annotations

from typing import Any as _Any

from picograd.nn.module import Module as _Module
from picograd.nn.utils import parametrizations as parametrizations
from picograd.nn.utils import parametrize as parametrize
from picograd.nn.utils import prune as prune
from picograd.nn.utils import rnn as rnn
from picograd.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm  # noqa: F401  # PyTorch's older name
from picograd.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from picograd.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from picograd.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from picograd.nn.utils.clip_grad import get_total_norm as get_total_norm
from picograd.nn.utils.clip_grad import parameters_to_vector as parameters_to_vector
from picograd.nn.utils.clip_grad import vector_to_parameters as vector_to_parameters
from picograd.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from picograd.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from picograd.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from picograd.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from picograd.nn.utils.weight_norm import remove_spectral_norm as remove_spectral_norm
from picograd.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from picograd.nn.utils.weight_norm import spectral_norm as spectral_norm
from picograd.nn.utils.weight_norm import weight_norm as weight_norm


def skip_init(module_cls: type[_Module], *args: _Any, **kwargs: _Any) -> _Module:
    """Returns module_cls(*args, **kwargs) whose parameters the caller loads or draws himself.

    Drawing is lazy: a parameter that is overwritten before it is read was never drawn. So nothing has to be skipped, and
    a parameter that is read all the same holds numbers that were drawn, not old memory.

    Args:
      module_cls:    a class of modules
      args, kwargs:  for it

    >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
    (3, 2)
    """
    return module_cls(*args, **kwargs)
