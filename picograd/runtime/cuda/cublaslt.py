"""Products of matrices by cuBLASLt, as launches of a GPU's plan.

In:    PlainProducts; calls of the library, as data
Out:   `CublasLt`: which way it would compute a product; `ProductCall`, which does
Called by: runtime/cuda/device.py, runtime/cuda/plan.py, runtime/cuda/queue.py
Next:  picograd/runtime/cuda/cublaslt_calls.py

The library knows matrices by columns. What lies in memory as a matrix by rows is to it the transposed one, by columns: so
it is asked for out.T = b.T @ a.T, and b.T is its first operand. A bias, one element a row of out.T, is one of its own
epilogue; what is added is its C. It takes the stream of kernels and memory that the plan
gives it, and never waits for the host.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from picograd.dtype import dtype_named
from picograd.errors import DeviceError
from picograd.forks import cached_property
from picograd.ir.opts import LIBRARY_CALL, Library, LibraryCall, Matrix, PlainProduct
from picograd.ir.stages import Binary
from picograd.living import AtDeath
from picograd.runtime.cuda import cublaslt_calls as lt
from picograd.runtime.cuda.cublaslt_calls import Algorithm, Heuristic, call, set_attribute

MOST_WORKSPACE = 32 << 20  # bytes; what the library's manual has for Hopper
ALIGNMENT = 16  # bytes, of the widest access; of memory that begins elsewhere another algorithm is in charge
DTYPES = {"float32": lt.R_32F, "float16": lt.R_16F, "bfloat16": lt.R_16BF}


def is_call(binary: Binary) -> bool:
    """True for a Binary with a call of a library among its launches."""
    return binary.data.startswith(LIBRARY_CALL)


_dropped: deque[tuple[Callable[[Any], Any], Any]] = deque()  # what nobody needs any more, with what gives it back


class Made:
    """Something that the library made, given back when nothing needs it any more.

    handle:  what its functions take
    """

    def __init__(self, kind: str, *arguments: object):
        while _dropped:
            destroy, handle = _dropped.popleft()
            destroy(handle)  # whose status would have nobody to tell
        self._kind, self.handle = kind, ctypes.c_void_p()
        call(f"cublasLt{kind}Create", ctypes.byref(self.handle), *arguments)
        self._given_back = AtDeath(_dropped.append, (getattr(lt.library(), f"cublasLt{kind}Destroy"), self.handle))

    def set(self, attribute: int, value: object) -> None:
        """Sets an attribute; the value has its C type."""
        set_attribute(f"cublasLt{self._kind}SetAttribute", self.handle, attribute, value)


class Description:
    """A product as the library has it described.

    operation:           what is computed
    left, right, result: how three matrices lie; `left` is b.T
    added:               how that lies that is added; the result, times 0, where nothing is
    """

    def __init__(self, product: PlainProduct):
        m, n, k = product.m, product.n, product.k
        dtype, out_dtype = DTYPES[product.dtype], DTYPES[product.out_dtype]
        compute = lt.COMPUTE_32F_FAST_TF32 if product.tf32 else lt.COMPUTE_32F
        self.operation = Made("MatmulDesc", compute, lt.R_32F)
        for attribute, matrix in (lt.TRANSA, product.b), (lt.TRANSB, product.a):
            if matrix.is_turned:
                self.operation.set(attribute, ctypes.c_int32(lt.TRANSPOSE))
        epilogue = product.epilogue
        own = lt.RELU * epilogue.relu | lt.BIAS * (epilogue.bias is not None)
        if own:
            self.operation.set(lt.EPILOGUE, ctypes.c_uint32(own))
        self.left = _layout(k, n, product.b, product.batch, dtype)
        self.right = _layout(m, k, product.a, product.batch, dtype)
        out = Matrix(product.out, 0, n, is_turned=False, batch_stride=m * n)
        self.result = _layout(m, n, out, product.batch, out_dtype)
        self.added = self.result if epilogue.added is None else _layout(m, n, epilogue.added, product.batch, out_dtype)

    def set_bias(self, address: int) -> None:
        """Says where the bias lies."""
        self.operation.set(lt.BIAS_POINTER, ctypes.c_void_p(address))

    @property
    def layouts(self) -> tuple[ctypes.c_void_p, ...]:
        """Returns the layouts of A, B, C and D."""
        return self.left.handle, self.right.handle, self.added.handle, self.result.handle


def _layout(rows: int, columns: int, matrix: Matrix, batch: int, dtype: int) -> Made:
    """Returns how a matrix of rows and columns lies: what lies side by side is a column to the library."""
    length, count = (rows, columns) if matrix.is_turned else (columns, rows)
    made = Made("MatrixLayout", dtype, ctypes.c_uint64(length), ctypes.c_uint64(count), ctypes.c_int64(matrix.stride))
    if batch > 1:
        made.set(lt.BATCH_COUNT, ctypes.c_int32(batch))
        made.set(lt.STRIDED_BATCH_OFFSET, ctypes.c_int64(matrix.batch_stride))
    return made


class CublasLt:
    """The library on one GPU, whose context is current whenever it is called.

    name:  with the version, and what else its algorithms and their bits depend on

    Raises:
      DeviceError: it is not here, or too old.

    Source: cuBLAS manual, 2.1.4, "Results reproducibility": the same bits in every run, with one version, on GPUs of one
            architecture with as many multiprocessors.
    """

    def __init__(self, num_multiprocessors: int) -> None:
        self.name = f"{lt.library_name()} for {num_multiprocessors} multiprocessors"

    @cached_property
    def _handle(self) -> ctypes.c_void_p:
        """Returns the library's state on this GPU, which stays until the process ends."""
        handle = ctypes.c_void_p()
        call("cublasLtCreate", ctypes.byref(handle))
        return handle

    def way_of(self, product: PlainProduct) -> Library:
        """Returns the algorithm that the library's heuristics take for a product, for memory aligned and not.

        The parts of a sum that several blocks share are float32, as all else that is added.

        Raises:
          DeviceError: it has none.
        """
        description = Description(product)
        itemsizes = tuple(dtype_named(name).itemsize for name in (product.dtype, product.out_dtype))
        found = [self._heuristic(description, product, *at_least) for at_least in ((ALIGNMENT, ALIGNMENT), itemsizes)]
        aligned, unaligned = (bytes(one.algorithm).hex() for one in found)
        return Library(self.name, product, aligned, unaligned, max(int(one.workspace_nbytes) for one in found))

    def _heuristic(self, description: Description, product: PlainProduct, of_operands: int, of_results: int) -> Heuristic:
        """Returns the first algorithm for operands, and results, that begin at multiples of so many bytes."""
        if product.epilogue.bias is not None:
            description.set_bias(of_results)  # an address that tells that much: nothing is read (cublasLt.h, BIAS_POINTER)
        preference = Made("MatmulPreference")
        preference.set(lt.MAX_WORKSPACE_BYTES, ctypes.c_uint64(MOST_WORKSPACE))
        preference.set(lt.REDUCTION_SCHEME_MASK, ctypes.c_uint32(lt.REDUCTION_COMPUTE_TYPE))
        for attribute, alignment in zip(lt.MIN_ALIGNMENTS, (of_operands, of_operands, of_results, of_results)):
            preference.set(attribute, ctypes.c_uint32(alignment))
        found, count = Heuristic(), ctypes.c_int()
        operands = self._handle, description.operation.handle, *description.layouts
        call("cublasLtMatmulAlgoGetHeuristic", *operands, preference.handle, 1, ctypes.byref(found), ctypes.byref(count))
        if count.value < 1 or found.state != lt.SUCCESS:
            raise DeviceError(f"cuBLASLt: it has no algorithm for memory aligned to {of_operands} bytes.", lt.WITHOUT)
        return found

    def load(self, name: str, called: LibraryCall) -> ProductCall:
        """Makes a call of the library the launch of a kernel.

        Raises:
          DeviceError: it was made for another version.
        """
        made_for = called.choice.name
        if made_for != self.name:
            raise DeviceError(f"{name} is a call of {made_for}, but {self.name} is here.", "picograd cache clear")
        return ProductCall(self._handle, called)


class ProductCall:
    """One product, whose algorithm is fixed: the same bits in every run on memory that is aligned alike."""

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
          DeviceError: the library does not take it.
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
        algorithm = self._unaligned if any(address % ALIGNMENT for address in used) else self._aligned
        a, b, c, d = description.layouts
        workspace = ctypes.c_void_p(None if self._workspace is None else addresses[self._workspace])
        call(
            "cublasLtMatmul", self._handle, description.operation.handle, ctypes.byref(self._scale),
            ctypes.c_void_p(left), a, ctypes.c_void_p(right), b, ctypes.byref(self._factor),
            ctypes.c_void_p(added), c, ctypes.c_void_p(result), d,
            ctypes.byref(algorithm), workspace, ctypes.c_size_t(self._workspace_nbytes), ctypes.c_void_p(stream),
        )  # fmt: skip
