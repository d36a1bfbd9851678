"""Calls of cuBLASLt, NVIDIA's library of matrix products, each checked; the library is found where it is installed.

In:    names and arguments of the library's functions
Out:   `library`; `library_name`; `call`; `why_no_library`; numbers of its headers
Called by: runtime/cuda/cublaslt.py, tools/doctor.py.    Next: picograd/runtime/host_calls.py

Nothing is loaded before the first call. The package cuda-bindings has no cuBLASLt; nvmath-python has, for all of its
functions, of which fifteen are needed.
Source of numbers: cublasLt.h, cublas_api.h and library_types.h of CUDA 13, the same in CUDA 12.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import Any

from picograd.errors import DeviceError

LEAST_VERSION = 120_000  # 12.0: of older ones nobody has looked at the numbers below
SUCCESS = 0  # cublasStatus_t
WITHOUT = "PICOGRAD_PLAIN_SUMS=1 leaves the library out"
INSTALL = "pip install 'picograd[cuda-libraries]'"

R_32F, R_16F, R_16BF = 0, 2, 14  # cudaDataType_t
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77  # cublasComputeType_t
TRANSPOSE = 1  # cublasOperation_t
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
RELU, BIAS = 2, 4  # cublasLtEpilogue_t, which may be joined
BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6  # cublasLtMatrixLayoutAttribute_t
MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK = 1, 3  # cublasLtMatmulPreferenceAttributes_t
MIN_ALIGNMENTS = (5, 6, 7, 8)  # of A, B, C and D
REDUCTION_COMPUTE_TYPE = 2  # cublasLtReductionScheme_t: parts of a sum are float32, too


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: may be written down, and read again with the same version of the library."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", Algorithm), ("workspace_nbytes", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


@cache
def library() -> ctypes.CDLL:
    """Loads the library: of the nvidia-cublas package, or of a CUDA toolkit.

    Raises:
      DeviceError: it is not installed, or too old.
    """
    try:
        found = ctypes.CDLL(import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublasLt").abs_path)
        found.cublasLtGetVersion.restype, found.cublasLtGetStatusName.restype = ctypes.c_size_t, ctypes.c_char_p
        version = int(found.cublasLtGetVersion())
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        if type(error).__name__ == "DynamicLibNotFoundError":
            raise DeviceError("cuBLASLt: libcublasLt is not installed.", INSTALL) from None
        raise DeviceError(f"cuBLASLt: it cannot be loaded ({error}).", INSTALL) from None
    if version < LEAST_VERSION:
        raise DeviceError(f"cuBLASLt: {version_text(version)} is older than {version_text(LEAST_VERSION)}.", INSTALL)
    return found


def version_text(number: int) -> str:
    """Returns a version of the library as people write it.

    >>> version_text(131002)
    '13.10.2'
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def library_name() -> str:
    """Returns the name of the library, with its version."""
    return f"cuBLASLt {version_text(int(library().cublasLtGetVersion()))}"


@cache
def why_no_library() -> str | None:
    """Returns None where the library can be loaded, or the reason why not."""
    try:
        library()
    except DeviceError as error:
        return error.fact
    return None


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the library.

    Raises:
      DeviceError: with the function, the status's number and its name.
    """
    status = int(getattr(library(), name)(*arguments))
    if status != SUCCESS:
        status_name = library().cublasLtGetStatusName(status).decode()
        raise DeviceError(f"cuBLASLt: {name} failed with {status} ({status_name}).", WITHOUT)


def set_attribute(name: str, of: ctypes.c_void_p, attribute: int, value: Any) -> None:
    """Sets an attribute of what was made by a function of the library; the value has its C type."""
    call(name, of, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))
