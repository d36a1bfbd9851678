"""picograd on a GPU: bench/peers/picograd_.py with CUDA for the default device.

In:    a training
Out:   functions of tensors on the GPU (see `bench.runner.Peer`)
"""

from __future__ import annotations

import picograd as pg
from bench.peers.picograd_ import count, numpy, scratch_nbytes, tensor, tensor_nbytes, train, version, wait

__all__ = ["count", "numpy", "scratch_nbytes", "tensor", "tensor_nbytes", "train", "version", "wait"]
VARIANTS = ("picograd_cuda",)

pg.Device.default = "CUDA"  # this process runs nothing else
pg.zeros(1).realize()  # a machine without one says so now
