"""picograd: a deep-learning framework one person can read, from Tensor to machine code.

In:    nothing
Out:   the public surface
Next:  picograd/tensor/tensor.py
"""

from picograd import dtype as dtypes
from picograd import fft as fft
from picograd import linalg as linalg
from picograd import nn as nn
from picograd import optim as optim
from picograd.control.accumulate import accumulate
from picograd.control.checkpoint import checkpoint
from picograd.control.outline import outline
from picograd.control.scan import scan
from picograd.dtype import (
    bfloat16,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from picograd.dtype import bool_ as bool_
from picograd.errors import (
    ArgumentError,
    CompileError,
    DataError,
    DeviceError,
    DTypeError,
    GradientError,
    IndexingError,
    JitError,
    LinAlgError,
    OutOfMemoryError,
    PicogradError,
    ShapeError,
    UnsupportedOp,
    VerifyError,
)  # fmt: skip
from picograd.linalg.named import chain_matmul, vander
from picograd.nn.state import load, save
from picograd.tensor.autograd import enable_grad, grad, is_grad_enabled, jvp, no_grad
from picograd.tensor.core import realize
from picograd.tensor.einsum import einsum, tensordot
from picograd.tensor.explain import count_ops, explain
from picograd.tensor.measures import cdist
from picograd.tensor.memory import max_memory_allocated, memory_allocated, reset_peak_memory_stats
from picograd.tensor.random import Generator, manual_seed
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Variable
from picograd.tools.view import draw
from picograd.transforms.jit import jit

# ---- constructors and joins as functions, as PyTorch names them ----
zeros, ones, full, empty = Tensor.zeros, Tensor.ones, Tensor.full, Tensor.empty
arange, linspace, eye = Tensor.arange, Tensor.linspace, Tensor.eye
zeros_like, ones_like, full_like, empty_like = (
    Tensor.zeros_like, Tensor.ones_like, Tensor.full_like, Tensor.empty_like,
)  # fmt: skip
rand, randn, randint, randperm = Tensor.rand, Tensor.randn, Tensor.randint, Tensor.randperm
rand_like, randn_like = Tensor.rand_like, Tensor.randn_like
cat, stack, where = Tensor.cat, Tensor.stack, Tensor.select

__version__ = "0.1.0"
__all__ = [
    "ArgumentError", "CompileError", "DTypeError", "DataError", "DeviceError", "Generator", "GradientError",
    "IndexingError", "JitError", "LinAlgError", "OutOfMemoryError", "PicogradError", "ShapeError", "Tensor",
    "UnsupportedOp", "Variable", "VerifyError", "accumulate", "arange", "bfloat16", "bool_", "cat", "cdist",
    "chain_matmul", "checkpoint", "count_ops", "draw", "dtypes", "einsum", "empty", "empty_like", "enable_grad",
    "explain", "eye", "fft", "float16", "float32", "float64", "float8_e4m3", "float8_e5m2", "full", "full_like",
    "grad", "int16", "int32", "int64", "int8", "is_grad_enabled", "jit", "jvp", "linalg", "linspace", "load",
    "manual_seed", "max_memory_allocated", "memory_allocated", "nn", "no_grad", "ones", "ones_like", "optim",
    "outline", "rand", "rand_like", "randint", "randn", "randn_like", "randperm", "realize",
    "reset_peak_memory_stats", "save", "scan", "stack", "tensordot", "uint16", "uint32", "uint64", "uint8", "vander",
    "where", "zeros", "zeros_like",
]  # fmt: skip
