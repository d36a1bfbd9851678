"""Matrix products by cuBLASLt, NVIDIA's library, as launches of a GPU's plan, if it is installed.

In:    PlainProducts; library calls, as data
Out:   `CublasLt`: chooses an algorithm for a product; `ProductCall`, which runs it;  `why_no_library`, `library_name`

Nothing is loaded before the first call. The package cuda-bindings lacks cuBLASLt; nvmath-python has all its functions, of
which fifteen are needed. Source of numbers: cublasLt.h, cublas_api.h and library_types.h of CUDA 13, the same in CUDA 12.

The library is column-major: it sees a row-major matrix as its transpose. So it computes out.T = b.T @ a.T, with b.T as
first operand. A bias, one element per row of out.T, is in its epilogue; an added matrix is its C. It uses the plan's stream
and workspace, and never waits for the host.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from picograd.dtype import dtype_named
from picograd.errors import DeviceError
from picograd.interrupts import AtDeath, cached_property
from picograd.ir.opts import LIBRARY_CALL, Library, LibraryCall, Matrix, PlainProduct
from picograd.ir.stages import Binary

# ---- calls of the library ----
VERSION_MIN = 120_000  # 12.0: the numbers below were not compared with older versions
SUCCESS = 0  # cublasStatus_t
WITHOUT = "PICOGRAD_PLAIN_SUMS=1 leaves the library out"
INSTALL = "pip install 'picograd[cuda-libraries]'"

R_32F, R_16F, R_16BF = 0, 2, 14  # cudaDataType_t
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77  # cublasComputeType_t
TRANSPOSE = 1  # cublasOperation_t
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
RELU, BIAS = 2, 4  # cublasLtEpilogue_t, bits
BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6  # cublasLtMatrixLayoutAttribute_t
PREF_MAX_WORKSPACE_BYTES, PREF_REDUCTION_SCHEME_MASK = 1, 3  # cublasLtMatmulPreferenceAttributes_t
PREF_MIN_ALIGNMENTS = (5, 6, 7, 8)  # for A, B, C and D
REDUCTION_COMPUTE_TYPE = 2  # cublasLtReductionScheme_t: partial sums are float32, too


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: may be saved, and loaded with the same version of the library."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", Algorithm), ("workspace_nbytes", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


@cache
def library() -> ctypes.CDLL:
    """Loads the library from the nvidia-cublas package, or from a CUDA toolkit.

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
    if version < VERSION_MIN:
        raise DeviceError(f"cuBLASLt: {version_text(version)} is older than {version_text(VERSION_MIN)}.", INSTALL)
    return found


def version_text(number: int) -> str:
    """Returns a version of the library in the usual form.

    >>> version_text(131002)
    '13.10.2'
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def library_name() -> str:
    """Returns the name of the library, with its version."""
    return f"cuBLASLt {version_text(int(library().cublasLtGetVersion()))}"


@cache
def why_no_library() -> str | None:
    """Returns None if the library can be loaded, else the reason why not."""
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
    """Sets an attribute of a library object; the value has its C type."""
    call(name, of, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))


# ---- products ----
WORKSPACE_NBYTES_MAX = 32 << 20  # recommended by the library's manual for Hopper
ACCESS_NBYTES = 16  # bytes, of the widest access; less aligned memory needs a different algorithm
DTYPES = {"float32": R_32F, "float16": R_16F, "bfloat16": R_16BF}


def is_call(binary: Binary) -> bool:
    """True for a Binary with a library call among its launches."""
    return binary.data.startswith(LIBRARY_CALL)


_dropped: deque[tuple[Callable[[Any], Any], Any]] = deque()  # unused objects, with the functions that destroy them


class Made:
    """A library object, destroyed when it is no longer needed.

    handle:  argument for its functions
    """

    def __init__(self, kind: str, *arguments: object):
        with suppress(IndexError):  # another thread was first
            while _dropped:
                destroy, handle = _dropped.popleft()
                destroy(handle)  # its status could not be reported
        self._kind, self.handle = kind, ctypes.c_void_p()
        call(f"cublasLt{kind}Create", ctypes.byref(self.handle), *arguments)
        self._given_back = AtDeath(_dropped.append, (getattr(library(), f"cublasLt{kind}Destroy"), self.handle))

    def set(self, attribute: int, value: object) -> None:
        """Sets an attribute; the value has its C type."""
        set_attribute(f"cublasLt{self._kind}SetAttribute", self.handle, attribute, value)


class Description:
    """A product in the library's form.

    operation:           the product
    left, right, result: layouts of three matrices; `left` is b.T
    added:               layout of the added matrix; without one, the result's, times 0
    """

    def __init__(self, product: PlainProduct):
        m, n, k = product.m, product.n, product.k
        dtype, out_dtype = DTYPES[product.dtype], DTYPES[product.out_dtype]
        compute = COMPUTE_32F_FAST_TF32 if product.tf32 else COMPUTE_32F
        self.operation = Made("MatmulDesc", compute, R_32F)
        for attribute, matrix in (TRANSA, product.b), (TRANSB, product.a):
            if matrix.is_column_major:
                self.operation.set(attribute, ctypes.c_int32(TRANSPOSE))
        epilogue = product.epilogue
        own = RELU * epilogue.relu | BIAS * (epilogue.bias is not None)
        if own:
            self.operation.set(EPILOGUE, ctypes.c_uint32(own))
        self.left = _layout(k, n, product.b, product.batch, dtype)
        self.right = _layout(m, k, product.a, product.batch, dtype)
        out = Matrix(product.out, 0, n, is_column_major=False, batch_stride=m * n)
        self.result = _layout(m, n, out, product.batch, out_dtype)
        self.added = self.result if epilogue.added is None else _layout(m, n, epilogue.added, product.batch, out_dtype)

    def set_bias(self, address: int) -> None:
        """Sets the address of the bias."""
        self.operation.set(BIAS_POINTER, ctypes.c_void_p(address))

    @property
    def layouts(self) -> tuple[ctypes.c_void_p, ...]:
        """Returns the layouts of A, B, C and D."""
        return self.left.handle, self.right.handle, self.added.handle, self.result.handle


def _layout(rows: int, columns: int, matrix: Matrix, batch: int, dtype: int) -> Made:
    """Returns the library's layout of a matrix, in which a contiguous row is a column."""
    length, count = (rows, columns) if matrix.is_column_major else (columns, rows)
    made = Made("MatrixLayout", dtype, ctypes.c_uint64(length), ctypes.c_uint64(count), ctypes.c_int64(matrix.stride))
    if batch > 1:
        made.set(BATCH_COUNT, ctypes.c_int32(batch))
        made.set(STRIDED_BATCH_OFFSET, ctypes.c_int64(matrix.batch_stride))
    return made


class CublasLt:
    """The library on one GPU; the GPU's context must be current.

    name:  its version, and everything else on which algorithms and bits depend

    Raises:
      DeviceError: it is missing, or too old.

    Source: cuBLAS manual, 2.1.4, "Results reproducibility": equal bits in all runs of a version, on GPUs with equal
    architecture and number of multiprocessors.
    """

    def __init__(self, num_multiprocessors: int) -> None:
        self.name = f"{library_name()} for {num_multiprocessors} multiprocessors"

    @cached_property
    def _handle(self) -> ctypes.c_void_p:
        """Returns the library's state on this GPU, kept until the process ends."""
        handle = ctypes.c_void_p()
        call("cublasLtCreate", ctypes.byref(handle))
        return handle

    def way_of(self, product: PlainProduct) -> Library:
        """Returns the algorithms that the library's heuristics choose for a product, for aligned and unaligned memory.

        Partial sums of blocks that share a sum are float32, as are all other sums.

        Raises:
          DeviceError: it has none.
        """
        description = Description(product)
        itemsizes = tuple(dtype_named(name).itemsize for name in (product.dtype, product.out_dtype))
        found = [self._heuristic(description, product, *at_least) for at_least in ((ACCESS_NBYTES,) * 2, itemsizes)]
        aligned, unaligned = (bytes(one.algorithm).hex() for one in found)
        return Library(self.name, product, aligned, unaligned, max(int(one.workspace_nbytes) for one in found))

    def _heuristic(self, description: Description, product: PlainProduct, of_operands: int, of_results: int) -> Heuristic:
        """Returns the first algorithm for operands and results aligned to these bytes."""
        if product.epilogue.bias is not None:
            description.set_bias(of_results)  # only its alignment is read (cublasLt.h, BIAS_POINTER)
        preference = Made("MatmulPreference")
        preference.set(PREF_MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_NBYTES_MAX))
        preference.set(PREF_REDUCTION_SCHEME_MASK, ctypes.c_uint32(REDUCTION_COMPUTE_TYPE))
        for attribute, alignment in zip(PREF_MIN_ALIGNMENTS, (of_operands, of_operands, of_results, of_results)):
            preference.set(attribute, ctypes.c_uint32(alignment))
        found, count = Heuristic(), ctypes.c_int()
        operands = self._handle, description.operation.handle, *description.layouts
        call("cublasLtMatmulAlgoGetHeuristic", *operands, preference.handle, 1, ctypes.byref(found), ctypes.byref(count))
        if count.value < 1 or found.state != SUCCESS:
            raise DeviceError(f"cuBLASLt: it has no algorithm for memory aligned to {of_operands} bytes.", WITHOUT)
        return found

    def load(self, name: str, called: LibraryCall) -> ProductCall:
        """Makes a library call the launch of a kernel.

        Raises:
          DeviceError: it was made for a different version.
        """
        made_for = called.choice.name
        if made_for != self.name:
            raise DeviceError(f"{name} is a call of {made_for}, and this machine has {self.name}.", "picograd cache clear")
        return ProductCall(self._handle, called)


class ProductCall:
    """A product with a fixed algorithm: equal bits in all runs on equally aligned memory."""

    def __init__(self, handle: ctypes.c_void_p, called: LibraryCall):
        choice = called.choice
        self._handle, self._product, self._workspace = handle, choice.product, called.workspace
        self._workspace_nbytes = choice.workspace_nbytes
        self._description = Description(choice.product)
        epilogue = choice.product.epilogue
        self._scale, self._factor = ctypes.c_float(epilogue.scale), ctypes.c_float(epilogue.factor)
        self._aligned, self._unaligned = (
            Algorithm.from_buffer_copy(bytes.fromhex(text)) for text in (choice.algorithm, choice.unaligned)
        )

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Submits the product.

        Args:
          addresses:  of the parameters, by slot

        Raises:
          DeviceError: the library refuses it.
        """
        product, description, epilogue = self._product, self._description, self._product.epilogue
        itemsize, out_itemsize = (dtype_named(name).itemsize for name in (product.dtype, product.out_dtype))
        left, right = (addresses[matrix.slot] + matrix.offset * itemsize for matrix in (product.b, product.a))
        result = added = addresses[product.out]
        if epilogue.added is not None:
            added = addresses[epilogue.added.slot] + epilogue.added.offset * out_itemsize
        used = [left, right, result, added]
        if epilogue.bias is not None:
            used.append(addresses[epilogue.bias.slot] + epilogue.bias.offset * out_itemsize)
            description.set_bias(used[-1])
        algorithm = self._unaligned if any(address % ACCESS_NBYTES for address in used) else self._aligned
        a, b, c, d = description.layouts
        workspace = ctypes.c_void_p(None if self._workspace is None else addresses[self._workspace])
        call(
            "cublasLtMatmul", self._handle, description.operation.handle, ctypes.byref(self._scale),
            ctypes.c_void_p(left), a, ctypes.c_void_p(right), b, ctypes.byref(self._factor),
            ctypes.c_void_p(added), c, ctypes.c_void_p(result), d,
            ctypes.byref(algorithm), workspace, ctypes.c_size_t(self._workspace_nbytes), ctypes.c_void_p(stream),
        )  # fmt: skip
