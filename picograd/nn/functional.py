"""Functions of networks by name: a page of what stands in the files beside it.

In:    tensors
Out:   what `picograd.nn.functional` offers
Next:  picograd/nn/linear.py
"""

from picograd.nn.activations import gelu as gelu
from picograd.nn.activations import glu as glu
from picograd.nn.activations import gumbel_softmax as gumbel_softmax
from picograd.nn.activations import log_softmax as log_softmax
from picograd.nn.activations import logsigmoid as logsigmoid
from picograd.nn.activations import mish as mish
from picograd.nn.activations import sigmoid as sigmoid
from picograd.nn.activations import silu as silu
from picograd.nn.activations import softmax as softmax
from picograd.nn.activations import softmin as softmin
from picograd.nn.activations import softplus as softplus
from picograd.nn.activations import softsign as softsign
from picograd.nn.activations import tanh as tanh
from picograd.nn.activations import tanhshrink as tanhshrink
from picograd.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from picograd.nn.class_losses import cross_entropy as cross_entropy
from picograd.nn.class_losses import nll_loss as nll_loss
from picograd.nn.ctc import ctc_loss as ctc_loss
from picograd.nn.distances import cosine_similarity as cosine_similarity
from picograd.nn.distances import normalize as normalize
from picograd.nn.distances import pairwise_distance as pairwise_distance
from picograd.nn.distances import pdist as pdist
from picograd.nn.dropout import alpha_dropout as alpha_dropout
from picograd.nn.dropout import dropout as dropout
from picograd.nn.dropout import dropout1d as dropout1d
from picograd.nn.dropout import dropout2d as dropout2d
from picograd.nn.dropout import dropout3d as dropout3d
from picograd.nn.dropout import feature_alpha_dropout as feature_alpha_dropout
from picograd.nn.embedding import embedding as embedding
from picograd.nn.linear import linear as linear
from picograd.nn.losses import binary_cross_entropy as binary_cross_entropy
from picograd.nn.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from picograd.nn.losses import gaussian_nll_loss as gaussian_nll_loss
from picograd.nn.losses import huber_loss as huber_loss
from picograd.nn.losses import kl_div as kl_div
from picograd.nn.losses import l1_loss as l1_loss
from picograd.nn.losses import mse_loss as mse_loss
from picograd.nn.losses import poisson_nll_loss as poisson_nll_loss
from picograd.nn.losses import smooth_l1_loss as smooth_l1_loss
from picograd.nn.losses import soft_margin_loss as soft_margin_loss
from picograd.nn.margin_losses import cosine_embedding_loss as cosine_embedding_loss
from picograd.nn.margin_losses import hinge_embedding_loss as hinge_embedding_loss
from picograd.nn.margin_losses import margin_ranking_loss as margin_ranking_loss
from picograd.nn.margin_losses import multi_margin_loss as multi_margin_loss
from picograd.nn.margin_losses import multilabel_margin_loss as multilabel_margin_loss
from picograd.nn.margin_losses import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from picograd.nn.margin_losses import triplet_margin_loss as triplet_margin_loss
from picograd.nn.margin_losses import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from picograd.nn.normalization import batch_norm as batch_norm
from picograd.nn.normalization import group_norm as group_norm
from picograd.nn.normalization import instance_norm as instance_norm
from picograd.nn.normalization import layer_norm as layer_norm
from picograd.nn.normalization import local_response_norm as local_response_norm
from picograd.nn.normalization import rms_norm as rms_norm
from picograd.nn.rectifiers import celu as celu
from picograd.nn.rectifiers import elu as elu
from picograd.nn.rectifiers import hardshrink as hardshrink
from picograd.nn.rectifiers import hardsigmoid as hardsigmoid
from picograd.nn.rectifiers import hardswish as hardswish
from picograd.nn.rectifiers import hardtanh as hardtanh
from picograd.nn.rectifiers import leaky_relu as leaky_relu
from picograd.nn.rectifiers import prelu as prelu
from picograd.nn.rectifiers import relu as relu
from picograd.nn.rectifiers import relu6 as relu6
from picograd.nn.rectifiers import rrelu as rrelu
from picograd.nn.rectifiers import selu as selu
from picograd.nn.rectifiers import softshrink as softshrink
from picograd.nn.rectifiers import threshold as threshold
