"""Networks: modules, layers, losses, start values and saved state.

In:    tensors
Out:   what `picograd.nn` offers
Next:  picograd/nn/module.py
"""

from picograd.nn import functional as functional
from picograd.nn import init as init
from picograd.nn import utils as utils
from picograd.nn.activation_layers import GELU as GELU
from picograd.nn.activation_layers import GLU as GLU
from picograd.nn.activation_layers import LogSigmoid as LogSigmoid
from picograd.nn.activation_layers import LogSoftmax as LogSoftmax
from picograd.nn.activation_layers import Mish as Mish
from picograd.nn.activation_layers import Sigmoid as Sigmoid
from picograd.nn.activation_layers import SiLU as SiLU
from picograd.nn.activation_layers import Softmax as Softmax
from picograd.nn.activation_layers import Softmax2d as Softmax2d
from picograd.nn.activation_layers import Softmin as Softmin
from picograd.nn.activation_layers import Softplus as Softplus
from picograd.nn.activation_layers import Softsign as Softsign
from picograd.nn.activation_layers import Tanh as Tanh
from picograd.nn.activation_layers import Tanhshrink as Tanhshrink
from picograd.nn.class_loss_layers import CosineEmbeddingLoss as CosineEmbeddingLoss
from picograd.nn.class_loss_layers import CrossEntropyLoss as CrossEntropyLoss
from picograd.nn.class_loss_layers import CTCLoss as CTCLoss
from picograd.nn.class_loss_layers import HingeEmbeddingLoss as HingeEmbeddingLoss
from picograd.nn.class_loss_layers import MarginRankingLoss as MarginRankingLoss
from picograd.nn.class_loss_layers import MultiLabelMarginLoss as MultiLabelMarginLoss
from picograd.nn.class_loss_layers import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from picograd.nn.class_loss_layers import MultiMarginLoss as MultiMarginLoss
from picograd.nn.class_loss_layers import NLLLoss as NLLLoss
from picograd.nn.class_loss_layers import TripletMarginLoss as TripletMarginLoss
from picograd.nn.class_loss_layers import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from picograd.nn.containers import ModuleList as ModuleList
from picograd.nn.containers import Sequential as Sequential
from picograd.nn.dropout_layers import Dropout as Dropout
from picograd.nn.layers import MLP as MLP
from picograd.nn.layers import Embedding as Embedding
from picograd.nn.layers import Linear as Linear
from picograd.nn.loss_layers import BCELoss as BCELoss
from picograd.nn.loss_layers import BCEWithLogitsLoss as BCEWithLogitsLoss
from picograd.nn.loss_layers import CosineSimilarity as CosineSimilarity
from picograd.nn.loss_layers import GaussianNLLLoss as GaussianNLLLoss
from picograd.nn.loss_layers import HuberLoss as HuberLoss
from picograd.nn.loss_layers import KLDivLoss as KLDivLoss
from picograd.nn.loss_layers import L1Loss as L1Loss
from picograd.nn.loss_layers import MSELoss as MSELoss
from picograd.nn.loss_layers import PairwiseDistance as PairwiseDistance
from picograd.nn.loss_layers import PoissonNLLLoss as PoissonNLLLoss
from picograd.nn.loss_layers import SmoothL1Loss as SmoothL1Loss
from picograd.nn.loss_layers import SoftMarginLoss as SoftMarginLoss
from picograd.nn.module import Module as Module
from picograd.nn.norm_layers import LayerNorm as LayerNorm
from picograd.nn.rectifier_layers import CELU as CELU
from picograd.nn.rectifier_layers import ELU as ELU
from picograd.nn.rectifier_layers import SELU as SELU
from picograd.nn.rectifier_layers import Hardshrink as Hardshrink
from picograd.nn.rectifier_layers import Hardsigmoid as Hardsigmoid
from picograd.nn.rectifier_layers import Hardswish as Hardswish
from picograd.nn.rectifier_layers import Hardtanh as Hardtanh
from picograd.nn.rectifier_layers import LeakyReLU as LeakyReLU
from picograd.nn.rectifier_layers import PReLU as PReLU
from picograd.nn.rectifier_layers import ReLU as ReLU
from picograd.nn.rectifier_layers import ReLU6 as ReLU6
from picograd.nn.rectifier_layers import RReLU as RReLU
from picograd.nn.rectifier_layers import Softshrink as Softshrink
from picograd.nn.rectifier_layers import Threshold as Threshold
from picograd.nn.recurrent import GRU as GRU
from picograd.nn.recurrent import LSTM as LSTM
from picograd.nn.recurrent import RNN as RNN
from picograd.nn.recurrent import GRUCell as GRUCell
from picograd.nn.recurrent import LSTMCell as LSTMCell
from picograd.nn.recurrent import RNNCell as RNNCell
