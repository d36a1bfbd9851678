"""Functions of networks that PyTorch has at its top, too: torch.conv2d is picograd.conv2d."""
# ruff: noqa: F403, F405

from picograd.nn.functional import *

__all__ = [
    "adaptive_avg_pool1d", "avg_pool1d", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "group_norm", "layer_norm",
    "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu",
    "rms_norm", "selu", "selu_", "threshold", "threshold_",
]  # fmt: skip
