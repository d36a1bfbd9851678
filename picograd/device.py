"""Devices: the names users give them, and what picograd knows of a machine, as data.

In:    names; measured or given facts of a machine
Out:   `device`; `chosen_device`; `Target`, which stages read: they never ask a backend
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DeviceError
from picograd.interrupts import Ends, cached_property
from picograd.record import Record

# The devices of new tensors that blocks of this thread have chosen, the innermost last; before them set_default_device's.
choices: ContextVar[tuple[str | None, ...]] = ContextVar("choices", default=())
_blocks: ContextVar[tuple[Ends, ...]] = ContextVar("blocks", default=())  # of devices that have begun


def chosen_device() -> str | None:
    """Returns the device of new tensors that the program has chosen, or None: then PICOGRAD_DEVICE's counts."""
    chosen = choices.get()
    return chosen[-1] if chosen else None


class device(str):  # noqa: N801  # as PyTorch spells it
    """A device by name: "cpu", "cuda", "cuda:0", device("cuda", 0). It is the name in capitals, as a string.

    Whether this machine can use it is asked when something is put there. Equal to its name in small letters, too; but
    only the name in capitals finds it in a dict. As a `with` block it is the device of the new tensors of this thread.

    type:   the name in small letters, as PyTorch has it
    index:  the number after the colon, which is 0; None where none was given

    Args:
      type:   a name, or a device
      index:  0: each process has one device of a kind

    Raises:
      ArgumentError: it is not a name, or what follows the colon is not a number.
      DeviceError:   another number than 0.

    >>> device("cuda:0")
    device(type='cuda', index=0)
    >>> device("cpu") == "cpu" == device("cpu").type
    True
    >>> with device("numpy"):
    ...     Tensor([1.0]).device
    device(type='numpy')
    """

    index: int | None  # type: ignore[assignment]  # str.index, which is not asked of a name, gives way

    def __new__(cls, type: str, index: int | None = None) -> device:  # noqa: A002
        if not isinstance(type, str) or not type:
            raise ArgumentError(f'device: needs a name such as "CPU", got {type!r}.')
        name, colon, digits = type.partition(":")
        if colon and (index is not None or not digits.isdecimal()):
            raise ArgumentError(f'device: needs a name such as "cuda" or "cuda:0", got {type!r}, index {index!r}.')
        number = int(digits) if colon else getattr(type, "index", None) if isinstance(type, cls) else index
        if number not in (None, 0):
            shown = f"CUDA_VISIBLE_DEVICES={number} shows a process only that GPU, as number 0"
            fact = f"device: each process has one {name.upper()}, number 0, got number {number!r}."
            raise DeviceError(fact, shown if name.upper() in ("CUDA", "PTX") else None)
        made = str.__new__(cls, name.upper())
        made.index = number
        return made

    @property
    def type(self) -> str:
        """The name in small letters: "cpu", "cuda"."""
        return self.lower()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.__eq__(self, other.upper().removesuffix(":0"))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        number = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{number})"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self), self.index)

    def __enter__(self) -> device:
        ends = Ends()
        ends.begin(device.__enter__.__code__, device.__exit__.__code__)
        _blocks.set((*_blocks.get(), ends))
        choices.set((*choices.get(), str(self)))
        if ends.waiting:
            try:
                ends.tell()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        choices.set(choices.get()[:-1])
        *outer, ends = _blocks.get()
        _blocks.set(tuple(outer))
        ends.over()


named = cache(device)  # for names of devices as cells have them: few, and asked for often


# ---- machines ----
class Language(Record):
    """A language of kernels: what its compiler can do, and what picograd does for it.

    suffix:          of a file of its text
    has_functions:   exp, sin, ... are functions of it, as exact as picograd's; else polynomials take their place
    unrolls:         its compiler writes out a loop whose index chooses registers
    has_rough_exp2:  an instruction gives exp2 to 2 ulp, for where that is enough
    """

    suffix: str
    has_functions: bool = True
    unrolls: bool = False
    has_rough_exp2: bool = False


LANGUAGES = {
    "llvm": Language("ll", has_functions=False),
    "nvptx": Language("ll", has_functions=False, has_rough_exp2=True),  # LLVM IR for a GPU
    "cuda": Language("cu", unrolls=True, has_rough_exp2=True),
    "opencl": Language("cl", has_functions=False, unrolls=True),  # whose own functions may be 3 ulp and more off
    "c": Language("c"),
}


def language_of(name: str) -> Language:
    """Returns the facts about a language; of one that a device outside picograd brings the defaults."""
    return LANGUAGES.get(name) or Language(name)


# Bytes that a function of a GPU can declare (CUDA C++ Programming Guide, compute capability 9.0); a launch asks for more.
DECLARED_SHARED_BYTES = 48 * 1024


class Target(Record, dict=True):
    """A machine to generate code for.

    device:            name users choose it by, e.g. "CPU"
    language:          what `render` writes: a name in LANGUAGES, or that of a device of your own; "" (the evaluator)
    arch:              processor or architecture, e.g. "cascadelake", "sm_90a"
    vector_bytes:      width of one vector register; on a GPU of the widest access of a thread
    num_registers:     vector registers
    block_threads:     threads of a block; 1 on a CPU
    shared_bytes:      memory one block shares, where its launch asks for it
    has_shuffle:       threads of a warp exchange values without memory
    has_mma:           a warp multiplies matrices of 16-bit floats, or of TF32, by one instruction
    has_async_copies:  threads copy from memory to shared memory in the background
    has_warpgroups:    128 threads multiply matrices by one instruction, of tiles that are copied in the background (Hopper)
    multiprocessors:   of a GPU, as many blocks run at one time at least; 0: not known
    features:          processor features for the compiler
    triple:            kind of machine for the compiler, e.g. "aarch64-unknown-linux-gnu"; "" is the one at hand
    compiler:          name and version of a compiler that is not part of picograd, on which code depends, too
    has_fma:           an instruction computes a * b + c with one rounding
    plain_sums:        each result of a convolution is made of its own products alone (codegen/winograd.py), and one row
                       times a matrix of int8 is added up as each of many rows is (rewrites/products.py); no vendor's
                       library is a candidate of tuning (engine/choose.py), and no kernel written by hand is taken
    """

    device: str
    language: str
    arch: str
    vector_bytes: int = 0
    num_registers: int = 16
    block_threads: int = 1
    shared_bytes: int = 0
    features: str = ""
    triple: str = ""
    has_fma: bool = True
    plain_sums: bool = False
    has_mma: bool = False
    has_async_copies: bool = False
    has_warpgroups: bool = False
    multiprocessors: int = 0
    has_shuffle: bool = True
    compiler: str = ""

    @cached_property
    def is_gpu(self) -> bool:
        return self.block_threads > 1

    def lanes(self, dtype: DType) -> int:
        """Returns how many elements a vector register holds, 1 without vectors."""
        return max(1, self.vector_bytes // dtype.itemsize)

    def sum_lanes(self, dtype: DType) -> int:
        """Returns how many sums of elements of a dtype a vector register holds; each has 32 bits at least."""
        return min(self.lanes(dtype.compute_dtype), self.lanes(dtypes.float32))

    def multiplies(self, dtype: DType, takes_tf32: bool = False) -> bool:
        """Returns whether a warp multiplies matrices of this dtype by one instruction.

        Args:
          takes_tf32:  float32 may be rounded to TF32 for it
        """
        return self.has_mma and (dtype in (dtypes.float16, dtypes.bfloat16) or (takes_tf32 and dtype is dtypes.float32))
