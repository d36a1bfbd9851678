"""picograd: a deep-learning framework one person can read, from Tensor to machine code.

In:    nothing
Out:   the public surface
"""

from __future__ import annotations

import math as _math
import sys as _sys
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING

from picograd.interrupts import whole_at_fork as _whole_at_fork
from picograd.loading import collecting_later as _collecting_later
from picograd.loading import end_at_once as _end_at_once
from picograd.loading import importing as _importing
from picograd.loading import load_late as _load_late

if TYPE_CHECKING:  # loaded when they are first asked for, by __getattr__
    from picograd import amp as amp
    from picograd import array_api as array_api
    from picograd import autograd as autograd
    from picograd import backends as backends
    from picograd import cuda as cuda
    from picograd import data as data
    from picograd import distributions as distributions
    from picograd import fft as fft
    from picograd import func as func
    from picograd import linalg as linalg
    from picograd import models as models
    from picograd import onnx as onnx
    from picograd import random as random
    from picograd import signal as signal
    from picograd import special as special
    from picograd import train as train
    from picograd.transforms.derivatives import grad, jvp, linearize, value_and_grad, vjp
    from picograd.transforms.jacobians import hessian, hvp, jacfwd, jacrev, vhp
    from picograd.transforms.vmap import vmap
    from picograd_formats.state_file import load, save
    from picograd_lab.drawing import draw
    from picograd_lab.gradcheck import gradcheck, gradgradcheck
    from picograd_lab.kernels.kernel import kernel
    from picograd_lab.profile import profile
    from picograd_lab.verify.function import verify
    from picograd_math.linalg.named import *  # noqa: F403
    from picograd_math.sampled import *  # noqa: F403
    from picograd_torch import accelerator as accelerator
    from picograd_torch.layouts import *  # noqa: F403
    from picograd_torch.modules import functional_call
    from picograd_torch.nn_named import *  # noqa: F403
    from picograd_training.scaler import GradScaler

_end_at_once()
with _collecting_later():
    from picograd import dtype as dtypes
    from picograd import nn as nn
    from picograd import optim as optim
    from picograd import utils as utils
    from picograd.config import warn_of_settings as _warn_of_settings
    from picograd.control.flow import accumulate, cond, scan, while_loop
    from picograd.control.outline import checkpoint, outline
    from picograd.device import device as device  # the class, in the place of the module of its name
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
    from picograd.dtype import finfo as finfo
    from picograd.dtype import iinfo as iinfo
    from picograd.engine.devices import check_exists as _check_exists
    from picograd.engine.devices import default_device as _default_device
    from picograd.errors import AbsentModules as _AbsentModules
    from picograd.errors import (
        ArgumentError,
        ArgumentTypeError,
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
        PlanningWarning,
        ShapeError,
        UnsupportedOp,
        VerifyError,
        WorkerError,
    )  # fmt: skip
    from picograd.public import publish as _publish
    from picograd.public import publish_constructor as _publish_constructor
    from picograd.public import publish_late as _publish_late
    from picograd.public import publish_methods as _publish_methods
    from picograd.tensor import names as _names
    from picograd.tensor.core import Size as Size
    from picograd.tensor.core import realize
    from picograd.tensor.costs import count_ops, explain, max_memory_allocated, memory_allocated, reset_peak_memory_stats
    from picograd.tensor.generator import Generator, default_generator, manual_seed
    from picograd.tensor.modes import (
        autocast,
        enable_grad,
        get_float32_matmul_precision,
        inference_mode,
        is_autocast_enabled,
        is_grad_enabled,
        no_grad,
        set_float32_matmul_precision,
        set_grad_enabled,
    )
    from picograd.tensor.names import *  # noqa: F403
    from picograd.tensor.settings import Device, get_default_device, set_default_device
    from picograd.tensor.tensor import Tensor
    from picograd.tensor.variable import Variable
    from picograd.transforms.jit import jit

# ---- what torch.* calls numbers and dtypes ----
e, inf, nan, newaxis, pi = _math.e, _math.inf, _math.nan, None, _math.pi
double, half, long, short = float64, float16, int64, int16
float8_e4m3fn = float8_e4m3
# Not in __all__: after `from picograd import *`, bool, float and int are still Python's.
bool, float, int = bool_, float32, int32  # noqa: A001

__version__ = "0.1.0"
__all__ = [
    "ArgumentError", "ArgumentTypeError", "CompileError", "DTypeError", "DataError", "Device", "DeviceError",
    "Generator", "GradScaler", "GradientError", "IndexingError", "JitError", "LinAlgError", "OutOfMemoryError",
    "PicogradError", "PlanningWarning", "ShapeError", "Tensor", "UnsupportedOp", "Variable", "VerifyError",
    "WorkerError",
    "accumulate", "amp", "autocast", "autograd", "bfloat16", "bool_", "checkpoint", "compile", "cond", "count_ops",
    "cuda", "default_generator", "device", "distributions", "double", "draw", "dtypes", "e", "enable_grad", "explain",
    "fft", "finfo", "float16", "float32", "float64", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "func",
    "functional_call", "get_default_device", "get_float32_matmul_precision", "grad", "gradcheck", "gradgradcheck",
    "half", "hessian", "hvp", "iinfo", "inf", "inference_mode", "int16", "int32", "int64", "int8",
    "is_autocast_enabled", "is_grad_enabled", "jacfwd", "jacrev", "jit", "jvp", "kernel", "linalg", "linearize", "load",
    "long", "manual_seed", "max_memory_allocated", "memory_allocated", "nan", "newaxis", "nn", "no_grad", "optim",
    "outline", "pi", "profile", "realize", "reset_peak_memory_stats", "save", "scan", "set_default_device",
    "set_float32_matmul_precision", "set_grad_enabled", "short", "signal", "special", "train", "uint16", "uint32", "uint64",
    "uint8", "utils", "value_and_grad", "vhp", "vjp", "verify", "vmap", "while_loop",
]  # fmt: skip
__all__ += [name for name in vars(_names) if name[:1] != "_" and name not in __all__]

# ---- functions whose bare errors are explained ----
# Methods that are left as they are: picograd calls them many times a step, and they check their arguments themselves.
_INSIDE = frozenset({"from_op", "from_memory", "viewed", "viewed_by", "read", "write", "other_device", "forget_old",
                    "take_result", "add", "sub", "mul", "div", "matmul", "reshape"})  # fmt: skip
_PAGES = (
    _names, nn, nn.functional, nn.init, nn.utils, nn.utils.rnn, nn.attention, optim, utils, utils.checkpoint,
)  # fmt: skip
with _collecting_later():
    _publish_methods(Tensor, without=_INSIDE)
    _publish_constructor(Tensor, looks_first=False)
    for _page in _PAGES:
        _publish(vars(_page))
    _publish(globals())
    _publish_late(vars(nn), ("picograd.nn.grad", "picograd.nn.modules"))
    # einops asks the backends it knows for one that takes a tensor. It takes 4 ms, and only where it is installed.
    if _find_spec("einops") is not None:
        _load_late("picograd.nn.einops")


_warn_of_settings(lambda: _check_exists(_default_device(), lists_usable=False))


_sys.meta_path.append(_AbsentModules)
# The last lock that a fork waits for: a thread that holds it, and so loads a module, may take any of the others.
_whole_at_fork(_importing.acquire, _importing.release)


# ---- pages, and functions by their modules, that are loaded when they are first asked for ----
_LATE_PAGES = (
    "amp", "array_api", "autograd", "backends", "cuda", "data", "distributions", "fft", "func", "linalg", "models", "onnx",
    "random", "signal", "special", "train",
)  # fmt: skip
_LATE = {
    "picograd.transforms.derivatives": ("grad", "jvp", "linearize", "value_and_grad", "vjp"),
    "picograd.transforms.jacobians": ("hessian", "hvp", "jacfwd", "jacrev", "vhp"),
    "picograd.transforms.jit": ("compile",),
    "picograd.transforms.vmap": ("vmap",),
    "picograd_formats.state_file": ("load", "save"),
    "picograd_lab.drawing": ("draw",),
    "picograd_lab.gradcheck": ("gradcheck", "gradgradcheck"),
    "picograd_lab.kernels.kernel": ("kernel",),
    "picograd_lab.profile": ("profile",),
    "picograd_lab.verify.function": ("verify",),
    "picograd_math.linalg.named": ("chain_matmul", "lu_unpack", "vander"),
    "picograd_math.sampled": (
        "bartlett_window", "blackman_window", "cumulative_trapezoid", "gradient", "hamming_window", "hann_window",
        "histogramdd", "kaiser_window", "segment_reduce", "trapezoid", "trapz",
    ),
    "picograd_torch.layouts": (
        "channels_last", "channels_last_3d", "contiguous_format", "memory_format", "preserve_format",
    ),
    "picograd_torch.modules": ("functional_call",),
    "picograd_torch.nn_named": (
        "adaptive_avg_pool1d", "alpha_dropout", "avg_pool1d", "batch_norm", "bilinear", "celu", "celu_",
        "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "cosine_similarity", "dropout", "embedding", "feature_dropout", "group_norm", "layer_norm", "max_pool1d",
        "max_pool2d", "max_pool3d", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu",
        "rms_norm", "rrelu", "selu", "selu_", "threshold", "threshold_",
    ),
    "picograd_training.scaler": ("GradScaler",),
}
_publish_late(globals(), [*(f"picograd.{page}" for page in _LATE_PAGES), "picograd_torch.accelerator"], _LATE)
__all__ += [name for names in _LATE.values() for name in names if name not in __all__]


def __dir__() -> list[str]:
    own = {"Size", "__doc__", "__file__", "__name__", "__path__", "__version__", "bool", "float", "int"}
    return sorted({*__all__, *_LATE_PAGES, "accelerator"} | own)
