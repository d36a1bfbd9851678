"""Beside the layers: norms of gradients, vectors of parameters, packed sequences, weights computed from others.

In:    parameters, modules, sequences
Out:   what `picograd.nn.utils` offers
Next:  picograd/nn/utils/clip_grad.py
"""

from picograd.nn.utils import parametrizations as parametrizations
from picograd.nn.utils import parametrize as parametrize
from picograd.nn.utils import prune as prune
from picograd.nn.utils import rnn as rnn
from picograd.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm  # noqa: F401  # PyTorch's older name
from picograd.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from picograd.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from picograd.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from picograd.nn.utils.clip_grad import get_total_norm as get_total_norm
from picograd.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from picograd.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from picograd.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from picograd.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from picograd.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from picograd.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from picograd.nn.utils.init import skip_init as skip_init
from picograd.nn.utils.weight_norm import remove_spectral_norm as remove_spectral_norm
from picograd.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from picograd.nn.utils.weight_norm import spectral_norm as spectral_norm
from picograd.nn.utils.weight_norm import weight_norm as weight_norm
