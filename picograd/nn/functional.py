"""Functions of networks by name: a page of what stands in the files beside it.

In:    tensors
Out:   what `picograd.nn.functional` offers
Next:  picograd/nn/linear.py
"""

from picograd.nn.activations import gelu as gelu
from picograd.nn.activations import log_softmax as log_softmax
from picograd.nn.activations import relu as relu
from picograd.nn.activations import silu as silu
from picograd.nn.activations import softmax as softmax
from picograd.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from picograd.nn.dropout import dropout as dropout
from picograd.nn.embedding import embedding as embedding
from picograd.nn.linear import linear as linear
from picograd.nn.losses import binary_cross_entropy as binary_cross_entropy
from picograd.nn.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from picograd.nn.losses import cross_entropy as cross_entropy
from picograd.nn.losses import l1_loss as l1_loss
from picograd.nn.losses import mse_loss as mse_loss
from picograd.nn.losses import nll_loss as nll_loss
from picograd.nn.normalization import layer_norm as layer_norm
