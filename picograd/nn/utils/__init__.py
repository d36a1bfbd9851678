"""Tools around layers: norms of gradients, vectors of parameters, packed sequences, reparametrized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any as _Any

from picograd.nn.module import Module as _Module
from picograd.nn.utils import rnn as rnn
from picograd.nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)
from picograd.public import publish_late as _publish_late

if TYPE_CHECKING:
    from picograd.nn.utils import parametrizations as parametrizations
    from picograd.nn.utils import parametrize as parametrize
    from picograd.nn.utils import prune as prune
    from picograd_training.fusion import (
        fuse_conv_bn_eval,
        fuse_conv_bn_weights,
        fuse_linear_bn_eval,
        fuse_linear_bn_weights,
    )
    from picograd_training.weight_norm import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm", "parameters_to_vector",
    "parametrizations", "parametrize", "prune", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init",
    "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip

clip_grad_norm = clip_grad_norm_  # PyTorch's older name
_LATE = {
    "picograd_training.fusion": (
        "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
    ),
    "picograd_training.weight_norm": ("remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"),
}  # fmt: skip
_PAGES = [f"{__name__}.{page}" for page in ("parametrizations", "parametrize", "prune")]
_publish_late(globals(), _PAGES, _LATE)


def skip_init(module_cls: type[_Module], *args: _Any, **kwargs: _Any) -> _Module:
    """Returns module_cls(*args, **kwargs); the caller loads or initializes its parameters.

    Initialization is lazy: values that are overwritten before they are read are never drawn, so there is nothing to skip.
    Values that are read all the same are drawn as usual, not left as old memory.

    Args:
      module_cls:    a class of modules
      args, kwargs:  arguments of the class

    >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
    (3, 2)
    """
    return module_cls(*args, **kwargs)
