"""torch.backends by its name: settings and queries of PyTorch's programs.

In:    picograd/tensor/modes.py, cuda.py
Out:   cpu cuda cudnn mkl mkldnn mps openmp opt_einsum

Results have the same bits in every run, and kernels are made for their shapes, so there is nothing to choose. One setting,
`cuda.matmul.allow_tf32`, has an effect; all others are stored without one.
"""

from __future__ import annotations

from picograd.config import setting
from picograd.tensor.modes import get_float32_matmul_precision, set_float32_matmul_precision
from picograd_torch import cuda as _cuda

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]


class Library:
    """A library that PyTorch may use, and picograd does not."""

    enabled = False

    def is_available(self) -> bool:
        """Returns False: picograd does not use it."""
        return False

    is_built = is_available


class Cudnn(Library):
    """Settings of convolutions on a GPU, without effect.

    enabled, benchmark, deterministic, allow_tf32:  the program's values
    """

    enabled, benchmark, deterministic, allow_tf32 = True, False, False, False

    def is_available(self) -> bool:
        """Returns whether there is a GPU for convolutions."""
        return _cuda.is_available()

    def version(self) -> None:
        """Returns None: picograd does not use cuDNN."""


class Matmul:
    """Settings of matrix products on a GPU."""

    allow_fp16_reduced_precision_reduction = allow_bf16_reduced_precision_reduction = False  # sums are float32

    @property
    def allow_tf32(self) -> bool:
        """True if float32 products may round operands to TF32, as after pg.set_float32_matmul_precision("high")."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")


class Cuda(Library):
    """Settings of the GPU.

    matmul:  settings of matrix products
    """

    enabled = True

    def __init__(self) -> None:
        self.matmul = Matmul()

    def is_available(self) -> bool:
        """Returns whether there is a GPU."""
        return _cuda.is_available()

    def is_built(self) -> bool:
        """Returns True: kernels are compiled on demand."""
        return True

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Does nothing: attention never stores its scores, with any kernel."""

    enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp


class Cpu:
    """Queries about the processor."""

    def get_cpu_capability(self) -> str:
        """Returns the instruction set of the CPU device; "native" means everything that the processor supports."""
        return setting("PICOGRAD_CPU")


cpu, cuda, cudnn = Cpu(), Cuda(), Cudnn()
mkl, mkldnn, mps, openmp, opt_einsum = (Library() for _ in range(5))
