"""PyTorch on a GPU: bench/peers/torch_.py with CUDA for the default device.

In:    a training
Out:   functions of tensors on the GPU (see `bench.runner.Peer`)
"""

from __future__ import annotations

import torch

from bench.peers.torch_ import count, numpy, scratch_nbytes, tensor, tensor_nbytes, train, version, wait

__all__ = ["count", "numpy", "scratch_nbytes", "tensor", "tensor_nbytes", "train", "version", "wait"]
VARIANTS = ("torch_cuda",)

torch.cuda.init()  # a machine without one says so now
torch.set_default_device("cuda")  # this process runs nothing else
