"""`picograd.kernel`: a function of Tensors whose kernel the user has written in CUDA C.

In:    source, and functions that give shapes, the grid, the meaning in NumPy and the gradient
Out:   `kernel`, `Kernel`

A call becomes one Op, KERNEL, with an OUTPUT for each result: lazy, and a part of plans like any other. Its inputs are
stored contiguously before it runs. A gradient makes the call a CALL with a body of its own (control/custom.py).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.control.custom import Function, FunctionContext
from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR, compiler_for
from picograd.engine.realize import default_device
from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, UnsupportedOp
from picograd.ir.host import GivenKernel, Meaning
from picograd.ir.op import Op, const, filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.tensor.arguments import meeting_device, value_at
from picograd.tensor.host import fitting
from picograd.tensor.modes import enable_grad, is_grad_enabled
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length
from picograd_lab.kernels.check import Report, check
from picograd_lab.kernels.prepared import Prepared
from picograd_lab.kernels.signature import Parameter, included, signature_of

THREADS_MAX, BLOCKS_MAX, LAST_THREADS_MAX = 1024, (2**31 - 1, 65535, 65535), 64  # CUDA C++ Programming Guide, limits
Extents = int | Sequence[int] | Callable[..., Any]


class Kernel:
    """A function of Tensors whose kernel is written in CUDA C; `pg.kernel` makes it.

    text:       the source, with the headers of its folder
    signature:  of the function that is launched
    """

    def __init__(
        self, source: str | Path, output: Callable[..., Any], *, grid: Extents, block: Extents, entry: str | None,
        shared_bytes: int | Callable[..., int], inputs: Callable[..., Any] | None, meaning: Callable[..., Any] | None,
        gradient: Callable[..., Any] | None, name: str | None,
    ):  # fmt: skip
        self.text = included(Path(source)) if is_path(source) else f'#line 1 "{{}}.cu"\n{source}'
        self.signature = signature_of(self.text, entry)
        self.name = name or self.signature.name
        self.text = self.text.replace('"{}.cu"', f'"{self.name}.cu"', 1)
        self.entry = entry or self.signature.name
        self.output, self.grid, self.block, self.shared_bytes = output, grid, block, shared_bytes
        self.inputs, self.meaning, self.gradient = inputs, meaning, gradient
        self.gradient_takes_out = gradient is not None and "out" in inspect.signature(gradient).parameters
        self._function = differentiable(self)

    def __repr__(self) -> str:
        return f"Kernel({self.name})"

    def __call__(self, *args: Any) -> Any:
        """Returns the results of the kernel for Tensors, numbers and anything else that its functions take.

        Raises:
          ArgumentError: there are more or fewer values than parameters of the source, or the launch is impossible.
          DTypeError: a Tensor, or a result, has another dtype than the source.
        """
        return self.apply(args) if self.gradient is None or not is_grad_enabled() else self._function.apply(*args)

    def check(self, *args: Any) -> Report:
        """Compares the kernel with its meaning, and its gradient with slopes of the meaning, for these arguments.

        It runs on the GPU that the arguments are on, else on the simulator, there with threads in three orders.

        Returns:   a Report, true where nothing deviates; it prints a line for each comparison

        Raises:
          UnsupportedOp: the kernel has no meaning.
          DeviceError: the simulator finds a race, an access outside memory or a divergent barrier.
        """
        with enable_grad():
            return check(self, args)

    def apply(self, args: tuple[Any, ...]) -> Any:
        """Returns the results, through which no gradient flows."""
        call, device = self.call(args)
        results = [
            Tensor.from_op(filled(0, dtype, shape) if 0 in shape else _output(call, i, dtype), device)
            for i, (dtype, shape) in enumerate(call.arg.outputs)
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def argument(self, number: int) -> str:
        """Returns the name of an argument of the call."""
        names = list(inspect.signature(self.output).parameters)
        return names[number] if number < len(names) else f"argument {number}"

    def prepare(self, *args: Any) -> Prepared:
        """Returns one launch of the kernel for these arguments, to be run alone and timed."""
        return Prepared(*self.call(args))

    # ---- the call ----
    def call(self, args: tuple[Any, ...]) -> tuple[Op, str | None]:
        """Returns the KERNEL for some arguments, and its device."""
        values = args if self.inputs is None else self._listed("inputs", self.inputs(*args))
        parameters = self.signature.inputs
        if len(values) != len(parameters):
            names = ", ".join(one.name for one in parameters)
            raise ArgumentError(
                f"{self.name}: {len(values)} values, and the parameters that are no results are {names or 'none'}.",
                "inputs=lambda ...: (...) gives a value for each; a pointer to what is not const is a result.",
            )
        tensors = [value for value in (*values, *args) if isinstance(value, Tensor)]
        device = meeting_device(self.name, *tensors) if tensors else None
        self._check_device(device or default_device())
        ops: list[Op] = []

        def number(op: Op) -> int:
            if op not in ops:
                ops.append(op)
            return ops.index(op)

        given = [number(self._operand(one, value, device)) for one, value in zip(parameters, values)]
        places: list[int | None] = []
        others = []
        for arg in args:
            is_operand = isinstance(arg, (Tensor, Length))
            places.append(number(value_at(arg, device) if isinstance(arg, Tensor) else arg.op) if is_operand else None)
            others += [] if is_operand else [arg]
        outputs = self._outputs(args)
        try:
            hash(tuple(others))
        except TypeError:
            kinds = ", ".join(type(other).__name__ for other in others)
            fact = f"{self.name}: arguments that are no Tensors must be hashable, got {kinds}."
            raise ArgumentTypeError(fact, "a tuple in place of a list.") from None
        meaning = None if self.meaning is None else Meaning(self.meaning, tuple(places), tuple(others))
        in_order, numbers, wanted = iter(given), iter(range(len(outputs))), []
        for one in self.signature.parameters:
            wanted.append(-1 - next(numbers) if one.is_pointer and not one.is_const else next(in_order))
        blocks, threads = self._launch(args)
        shared = self.shared_bytes(*args) if callable(self.shared_bytes) else self.shared_bytes
        if not isinstance(shared, int) or shared < 0:
            raise ArgumentTypeError(f"{self.name}: shared_bytes must be a number of bytes, got {shared!r}.")
        every = self.signature.parameters
        made = GivenKernel(
            self.name, self.text, self.entry, self.signature.bounds, tuple([one.name for one in every]),
            tuple([one.type for one in every]), tuple(wanted), outputs, blocks, threads, shared, meaning,
        )  # fmt: skip
        if 0 in blocks and any(0 not in shape for _, shape in outputs):
            raise ArgumentError(f"{self.name}: a grid of {blocks} blocks writes nothing, but the output has elements.")
        op = Op(OpCode.KERNEL, outputs[0][0], tuple(ops), made)
        record(op)
        return op, device

    def _check_device(self, device: str) -> None:
        if self.meaning is None and (device == EVALUATOR or compiler_for(device).backend.given is None):
            raise UnsupportedOp(
                f"{self.name}: {device} takes no CUDA C; CUDA and CUDASIM do, and other devices compute the meaning.",
                'give meaning=..., a function of NumPy arrays, or x.to("CUDASIM").',
            )

    def _operand(self, one: Parameter, value: Any, device: str | None) -> Op:
        """Returns the value of a parameter, of its dtype.

        Raises:
          DTypeError: it has another.
          ArgumentTypeError: a parameter that is memory is no Tensor, or a number is none.
        """
        if isinstance(value, Tensor):
            op = value_at(value, device)
            if any(isinstance(dim, Op) for dim in op.shape):
                raise ShapeError(f"{self.name}: {one.name} has a symbolic length, shape {op.shape}.", "x[:3] has a number.")
            if one.dtype is not None and op.dtype is not one.dtype:
                raise DTypeError(
                    f"{self.name}: {one.name} is {one.type!r} in the kernel, got {op.dtype} of shape {op.shape}.",
                    f"x.to({one.dtype})",
                )
            if not one.is_pointer and op.shape:
                raise ShapeError(f"{self.name}: {one.name} is a number in the kernel, got a Tensor of shape {op.shape}.")
            return op
        if one.is_pointer:
            raise ArgumentTypeError(f"{self.name}: {one.name} is memory in the kernel, got {type(value).__name__}.")
        dtype = one.dtype or (dtypes.float32 if isinstance(value, float) else dtypes.int32)
        if isinstance(value, Length):
            return value.op
        if not isinstance(value, (bool, int, float, np.generic)):
            raise ArgumentTypeError(f"{self.name}: {one.name} is a number in the kernel, got {type(value).__name__}.")
        if not dtype.is_float and isinstance(value, float) and not float(value).is_integer():
            raise DTypeError(f"{self.name}: {one.name} is {one.type!r} in the kernel, got {value}.")
        number = float(value) if dtype.is_float else int(fitting(self.name, int(value), dtype))
        return const(bool(number) if dtype is dtypes.bool_ else number, dtype)

    def _outputs(self, args: tuple[Any, ...]) -> tuple[tuple[DType, tuple[int, ...]], ...]:
        """Returns dtype and shape of each result."""
        specs = self._listed("output", self.output(*args))
        results = self.signature.results
        if len(specs) != len(results):
            names = ", ".join(one.name for one in results) or "none"
            raise ArgumentError(
                f"{self.name}: output gives {len(specs)} results, and the parameters that the kernel writes are {names}.",
                "a parameter that is only read is const; one that is not const is a result, and holds nothing before.",
            )
        found = []
        for one, spec in zip(results, specs):
            shape, dtype = spec if isinstance(spec, tuple) and len(spec) == 2 else (_of(spec, "shape"), _of(spec, "dtype"))
            if not isinstance(shape, (tuple, list)) or not isinstance(dtype, DType):
                raise ArgumentTypeError(f"{self.name}: output must give Tensors or pairs (shape, dtype), got {spec!r}.")
            if not all(isinstance(dim, (int, np.integer)) and dim >= 0 for dim in shape):
                raise ShapeError(f"{self.name}: the shape of {one.name} must be of numbers, got {tuple(shape)}.")
            if one.dtype is not None and dtype is not one.dtype:
                raise DTypeError(f"{self.name}: {one.name} is {one.type!r} in the kernel, output says {dtype}.")
            found.append((dtype, tuple([int(dim) for dim in shape])))
        return tuple(found)

    def _launch(self, args: tuple[Any, ...]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Returns blocks and threads along x, y and z."""
        blocks, threads = (
            self._extents(name, value(*args) if callable(value) else value)
            for name, value in (("grid", self.grid), ("block", self.block))
        )
        if math.prod(threads) > THREADS_MAX or threads[2] > LAST_THREADS_MAX or 0 in threads:
            raise ArgumentError(f"{self.name}: a block of {threads} threads; there are 1 to {THREADS_MAX}, 64 along z.")
        if any(found > most for found, most in zip(blocks, BLOCKS_MAX)):
            raise ArgumentError(f"{self.name}: a grid of {blocks} blocks; a GPU has at most {BLOCKS_MAX}.")
        return blocks, threads

    def _extents(self, what: str, value: Any) -> tuple[int, int, int]:
        extents = value if isinstance(value, (tuple, list)) else (value,)
        if not 1 <= len(extents) <= 3 or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in extents):
            raise ArgumentTypeError(f"{self.name}: {what} must be one to three whole numbers, got {value!r}.")
        x, y, z = (*map(int, extents), *[1] * (3 - len(extents)))
        return x, y, z

    def _listed(self, what: str, found: Any) -> tuple[Any, ...]:
        is_pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], DType)
        return (found,) if not isinstance(found, (tuple, list)) or is_pair else tuple(found)


def differentiable(kernel: Kernel) -> type[Function]:
    """Returns a kernel with its gradient as a Function."""

    def forward(ctx: FunctionContext, *args: Any) -> Any:
        found = kernel.apply(args)
        results = found if isinstance(found, tuple) else (found,)
        ctx.save_for_backward(*[arg for arg in args if isinstance(arg, Tensor)], *results)
        ctx.args = [None if isinstance(arg, Tensor) else (arg,) for arg in args]  # type: ignore[attr-defined]
        return found

    def backward(ctx: FunctionContext, *grads: Tensor) -> tuple[Any, ...]:
        assert kernel.gradient is not None
        given: list[tuple[Any] | None] = ctx.args  # type: ignore[attr-defined]
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if kept is None else kept[0] for kept in given]
        results = tuple(saved)
        out = {"out": results[0] if len(results) == 1 else results} if kernel.gradient_takes_out else {}
        found = kernel.gradient(*grads, *args, **out)
        gradients = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(gradients) == len(args):
            return tuple(gradients)
        if len(gradients) != given.count(None):
            raise ArgumentError(
                f"{kernel.name}: gradient returned {len(gradients)} values, and of the arguments"
                f" {given.count(None)} are Tensors.",
                "return one for each Tensor, or one for each argument, None where there is none.",
            )
        return tuple([gradients.pop(0) if kept is None else None for kept in given])

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(kernel.name, (Function,), methods)


def _of(spec: Any, name: str) -> Any:
    return getattr(spec, name, None)


def _output(call: Op, number: int, dtype: DType) -> Op:
    op = Op(OpCode.OUTPUT, dtype, (call,), number)
    record(op)
    return op


def is_path(source: str | Path) -> bool:
    """True for the path of a file, and for text without a line that names one."""
    return isinstance(source, Path) or ("\n" not in source and "{" not in source and source.endswith((".cu", ".h")))


def kernel(
    source: str | Path, output: Callable[..., Any], *, grid: Extents, block: Extents = 256, entry: str | None = None,
    shared_bytes: int | Callable[..., int] = 0, inputs: Callable[..., Any] | None = None,
    meaning: Callable[..., Any] | None = None, gradient: Callable[..., Any] | None = None, name: str | None = None,
) -> Kernel:  # fmt: skip
    """Makes a function of Tensors of a kernel in CUDA C, for CUDA and for CUDASIM, its simulator.

    out = kernel(source, ...)(x, y, ...)    one launch; lazy, within plans and under pg.jit like any operation

    Parameters of the source that are pointers to what is not const are results, in their order, and hold nothing before.
    The others are given the arguments of the call, or what `inputs` makes of them: Tensors arrive contiguous; numbers may
    be ints, floats, Tensors without axes and bound Variables. The simulator finds races, accesses outside memory and
    divergent barriers, with the line. Other devices compute `meaning`.

    Args:
      source:        text, or the path of a file; headers in its folder, and those of picograd/devices/cuda, may be included
      output:        (arguments): a Tensor, or a pair (shape, dtype), like the result; a tuple for several
      grid:          blocks along x, y and z: 1 to 3 numbers, or a function of the arguments that gives them
      block:         threads of a block, the same way
      entry:         name of the function, where the source has several: "saxpy", "rows<256>"
      shared_bytes:  of dynamic shared memory of a block, `extern __shared__`
      inputs:        (arguments): a value for each parameter that is no result
      meaning:       (arguments, Tensors as NumPy arrays): the results, in NumPy
      gradient:      (gradients of the results, arguments): the gradient of each Tensor, by operations of Tensors and other
                     kernels; if it has a parameter `out`, the results are in it
      name:          in messages and profiles

    Returns:   the function; its check(...) compares it with its meaning, prepare(...) gives a launch to time and to count

    Raises:
      ArgumentError: the source has no kernel of that name, or several and none is named.
      FileError:     the file cannot be read.

    >>> double = kernel(
    ...     "__global__ void twice(float *out, const float *x) { out[threadIdx.x] = 2.0f * x[threadIdx.x]; }",
    ...     output=lambda x: x, grid=1, block=lambda x: x.numel(),
    ...     meaning=lambda x: 2 * x, gradient=lambda grad, x: 2 * grad,
    ... )
    >>> double(Tensor([1.0, 2.0]))
    Tensor([2., 4.])
    """
    return Kernel(
        source, output, grid=grid, block=block, entry=entry, shared_bytes=shared_bytes, inputs=inputs, meaning=meaning,
        gradient=gradient, name=name,
    )  # fmt: skip
