"""`picograd.kernel`: a function of Tensors with a kernel that the user has written in CUDA C, or in C.

In:    source, and functions that give shapes, the grid, the meaning in NumPy and the gradient
Out:   `kernel`, `Kernel`

A call becomes an Op, KERNEL, with an OUTPUT per result: lazy, and part of plans like any other. Its inputs are stored
contiguously before it runs. A gradient makes the call a CALL with a body of its own (control/custom.py).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.control.custom import Function, FunctionContext
from picograd.device import Target
from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR, compiler_for, default_device
from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, UnsupportedOp
from picograd.ir.host import MAP_TYPE, GivenKernel, GivenLaunch, Meaning
from picograd.ir.op import Dim, Op, Shape, const, filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.ir.stages import TileMap
from picograd.ir.symbolic import bounds
from picograd.record import Record
from picograd.tensor.arguments import meeting_device, value_at
from picograd.tensor.intake import fitting
from picograd.tensor.modes import enable_grad, is_grad_enabled
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length
from picograd_lab.kernels.check import Report, check
from picograd_lab.kernels.extents import Extent, Shaped, dim_of, extent, shaped
from picograd_lab.kernels.offer import Offering
from picograd_lab.kernels.prepared import Prepared
from picograd_lab.kernels.signature import Parameter, Signature, included, language_of, of_all, signature_of

THREADS_MAX, BLOCKS_MAX, LAST_THREADS_MAX = 1024, (2**31 - 1, 65535, 65535), 64  # CUDA C++ Programming Guide, limits
SHARED_BYTES_MAX = 227 * 1024  # of a block: compute capability 9.0 and 10.0
GRIDS = {"cuda": "a kernel in CUDA C needs a grid.", "c": "a function in C is called once, and has no grid."}
LOOPS = {"cuda": "grid=lambda x: -(-x.numel() // 256)", "c": "loop in the function; inputs=lambda x: (x, x.numel())."}
SUFFIXES = {"cuda": "cu", "c": "c"}
TAKEN_BY = {"cuda": ("CUDA C", "CUDA and CUDASIM", "CUDASIM"), "c": ("C", "CPU, C and CUDASIM", "CPU")}
BLOCK_HINT = "block=256, and a loop in the kernel or more blocks."
Extents = int | Sequence[int] | Callable[..., Any]
# True while kernels have gradients although none are recorded: in a gradient, for the second derivative, but not in that of
# a kernel called there, which may be the same kernel.
in_gradient: ContextVar[bool] = ContextVar("picograd_in_gradient", default=False)


class Launched(Record):
    """The launch of one function, as given by the user.

    entry:  an expression for the function's name
    """

    signature: Signature
    entry: str
    grid: Extents | None
    block: Extents
    shared_bytes: int | Callable[..., int]


class Kernel:
    """A function of Tensors whose kernel is written in CUDA C, or in C; `pg.kernel` makes it.

    text:       the source, with the headers of its folder
    launched:   its functions, in the order of their launches
    signature:  of all of them: operands and results by name
    """

    def __init__(
        self, source: str | Path, output: Any, *, grid: Extents | None, block: Extents, entry: str | None,
        shared_bytes: int | Callable[..., int], inputs: Any, meaning: Callable[..., Any] | None,
        gradient: Callable[..., Any] | None, name: str | None, implements: Callable[..., Any] | None,
        accepts: Callable[..., bool] | None, then: Sequence[Mapping[str, Any]], scratch: Mapping[str, Any],
        tile_maps: Mapping[str, Callable[..., Any]],
    ):  # fmt: skip
        self.text = included(Path(source)) if is_path(source) else f'#line 1 "{{}}"\n{source}'
        self.language = language_of(self.text)
        first = signature_of(self.text, entry, self.language)
        self.name = name or first.name
        if not self.name.isidentifier():  # a part of symbols and of files
            fact = f"kernel: name must be a Python identifier, got {self.name!r}."
            raise ArgumentError(fact, f'name="{first.name}"')
        self.text = self.text.replace('"{}"', f'"{self.name}.{SUFFIXES[self.language]}"', 1)
        if (grid is None) != (self.language == "c"):
            raise ArgumentError(f"{self.name}: {GRIDS[self.language]}", LOOPS[self.language])
        self.launched = [Launched(first, entry or first.name, grid, block, shared_bytes)]
        self.launched += [self._behind(options) for options in then]
        self.signature = of_all(self.name, [one.signature for one in self.launched], scratch)
        named = [one.name for each in self.launched for one in each.signature.parameters if one.type == MAP_TYPE]
        if unknown := sorted(set(tile_maps) - set(named)):
            own = ", ".join(named) or "no map"
            raise ArgumentError(f"{self.name}: tile_maps has {', '.join(unknown)}, the source {own}.")
        self.output, self.grid, self.scratch, self.tile_maps = output, grid, dict(scratch), dict(tile_maps)
        self.inputs, self.meaning, self.gradient = inputs, meaning, gradient
        self.implements, self.accepts = implements, accepts
        self.gradient_takes_out = gradient is not None and "out" in inspect.signature(gradient).parameters
        self._function = differentiable(self)

    def _behind(self, options: Mapping[str, Any]) -> Launched:
        """Returns a launch after the first one."""
        known = {"block": 256, "shared_bytes": 0, **options}
        if self.language == "c" or known.keys() != {"entry", "grid", "block", "shared_bytes"}:
            fact = f"{self.name}: a launch in `then` has entry and grid, maybe block and shared_bytes, got {list(options)}."
            raise ArgumentError(fact, 'then=[{"entry": "total", "grid": lambda x: x.shape[0], "block": 128}]')
        signature = signature_of(self.text, known["entry"], self.language)
        return Launched(signature, known["entry"], known["grid"], known["block"], known["shared_bytes"])

    def __repr__(self) -> str:
        return f"Kernel({self.name})"

    def __call__(self, *args: Any) -> Any:
        """Returns the results of the kernel for Tensors, numbers and anything else that its functions take.

        Raises:
          ArgumentError: the number of values is not that of the source's parameters, or the launch is impossible.
          DTypeError: the dtype of a Tensor or result differs from the source's.
        """
        if self.gradient is None or not (is_grad_enabled() or in_gradient.get()):
            return self.apply(args)
        return self._function.apply(*args)

    def check(self, *args: Any) -> Report:
        """Compares the kernel with its meaning, and its gradient with slopes of the meaning, for these arguments.

        It runs on the arguments' GPU, else on the simulator, with threads in three orders.

        Returns:   a Report, true if nothing deviates; it prints a line per comparison

        Raises:
          UnsupportedOp: the kernel has no meaning.
          DeviceError: the simulator finds a race, an access outside memory or a divergent barrier.
        """
        with enable_grad():
            return check(self, args)

    def offer(self, *args: Any) -> Offering:
        """Offers the kernel to the compiler for everything that computes `implements`, with arguments like these.

        A compiler's kernel with such a value, for Tensors of these ranks and dtypes and any lengths, gets one more
        candidate when candidates are timed (`jit(tune=True)`). It is used untimed if `count()` has shown that it wins.
        Operations before and after it are generated; it is refused if one is not elementwise, if `accepts` returns False,
        and if the launch fails. PICOGRAD_SHOW=choice shows why.

        Returns:   the offer: `withdraw()` ends it, as does the end of a `with` block; `count()` counts for `args`

        Raises:
          ArgumentError: the kernel has no `implements`.
        """
        if self.implements is None:
            fact = f"{self.name}: only a kernel that implements an operation can be offered."
            raise ArgumentError(fact, "pg.kernel(..., implements=lambda x: x.softmax(-1)).")
        return Offering(self.name, self._offered, self.implements, args)

    def _offered(self, target: Target, *args: Any) -> Op | str:
        if self.accepts is not None and not self.accepts(*shaped(args)):
            return f"{self.name} does not accept these lengths"
        return self.call(args)[0]

    def apply(self, args: tuple[Any, ...]) -> Any:
        """Returns the results, without gradient."""
        call, device = self.call(args)
        results = [
            Tensor.from_op(filled(0, dtype, shape) if 0 in shape else _output(call, i, dtype), device)
            for i, (dtype, shape) in enumerate(zip(call.arg[0].results, call.arg[1]))
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def argument(self, number: int) -> str:
        """Returns the name of an argument of the call."""
        names = list(inspect.signature(self.output).parameters) if callable(self.output) else []
        return names[number] if number < len(names) else f"argument {number}"

    def prepare(self, *args: Any) -> Prepared:
        """Returns a launch of the kernel for these arguments, to be run and timed alone."""
        if _has_symbolic_lengths(args):
            raise ShapeError(f"{self.name}: lengths of a single launch must be numbers.", "cut it to some, as in x[:3].")
        return Prepared(*self.call(args))

    # ---- the call ----
    def call(self, args: tuple[Any, ...]) -> tuple[Op, str | None]:
        """Returns the KERNEL for some arguments, and its device."""
        of_shapes, parameters = shaped(args), self.signature.inputs
        values = self._values(args, of_shapes)
        tensors = [value for value in (*values, *args) if isinstance(value, Tensor)]
        device = meeting_device(self.name, *tensors) if tensors else None
        self._check_device(device or default_device())
        ops: dict[Op, int] = {}  # operands, with their numbers
        given = [ops.setdefault(self._operand(one, value, device), len(ops)) for one, value in zip(parameters, values)]
        meaning = self._meaning(args, values, given, ops, device)
        (dtypes_, shapes), between = self._outputs(of_shapes), self._between(of_shapes)
        num_results = len(shapes)
        dtypes_, shapes = (*dtypes_, *(dtype for dtype, _ in between)), (*shapes, *(shape for _, shape in between))
        written = [*(one.name for one in self.signature.results), *self.scratch]
        numbers = {**{name: -1 - i for i, name in enumerate(written)}, **dict(zip((one.name for one in parameters), given))}
        memory = (*(op.shape for op in ops), *reversed(shapes))  # so that -1 is the first result
        whole = {name: memory[number] for name, number in numbers.items()}
        launches = [self._launch(launched, of_shapes, numbers, whole) for launched in self.launched]
        for blocks, _ in launches:
            if 0 in blocks and any(0 not in shape for shape in shapes[:num_results]):
                raise ArgumentError(f"{self.name}: a grid of {blocks} blocks writes nothing, and the output has elements.")
        made, grids = tuple([launch for _, launch in launches]), tuple([blocks[0] for blocks, _ in launches])
        kernel = GivenKernel(self.name, self.language, self.text, made, dtypes_, num_results, meaning)
        op = Op(OpCode.KERNEL, dtypes_[0], tuple(ops), (kernel, shapes, grids))
        record(op)
        return op, device

    def _values(self, args: tuple[Any, ...], of_shapes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns a value for each parameter that is not a result."""
        values = args if self.inputs is None else self._listed(_value_of(self.inputs, of_shapes))
        if len(values) != len(self.signature.inputs):
            names = ", ".join(one.name for one in self.signature.inputs)
            raise ArgumentError(
                f"{self.name}: {len(values)} values, and the parameters that are not results are {names or 'none'}.",
                "inputs=lambda ...: (...) gives a value for each; a pointer that is not const is a result.",
            )
        return tuple([value.tensor if isinstance(value, Shaped) else value for value in values])

    def _meaning(
        self, args: tuple[Any, ...], values: tuple[Any, ...], given: list[int], ops: dict[Op, int], device: str | None
    ) -> Meaning | None:
        """Returns the meaning, with the places of its arguments: their operands, which are added to `ops`, or themselves.

        Args:
          given:  by parameter, the number of the operand
        """
        places: list[int | None] = []
        others = []
        for arg in args:
            if isinstance(arg, (Tensor, Length)):
                places.append(ops.setdefault(value_at(arg, device) if isinstance(arg, Tensor) else arg.op, len(ops)))
            elif (parameter := _number_among(values, arg)) is not None:
                places.append(given[parameter])  # so that graphs of different numbers differ in a constant alone
            else:
                places.append(None)
                others.append(arg)
        try:
            hash(tuple(others))
        except TypeError:
            kinds = ", ".join(type(other).__name__ for other in others)
            fact = f"{self.name}: arguments that are not Tensors must be hashable, got {kinds}."
            raise ArgumentTypeError(fact, "a tuple in place of a list.") from None
        return None if self.meaning is None else Meaning(self.meaning, tuple(places), tuple(others))

    def _launch(
        self, launched: Launched, args: tuple[Any, ...], numbers: Mapping[str, int], shapes: Mapping[str, Shape]
    ) -> tuple[tuple[Dim, int, int], GivenLaunch]:
        """Returns the number of blocks of a launch, and the launch.

        Args:
          numbers:  numbers of operands and results, by names of parameters;  shapes: their shapes
        """
        blocks, threads = self._blocks_and_threads(launched, args)
        shared = _value_of(launched.shared_bytes, args)
        if not isinstance(shared, int):
            raise ArgumentTypeError(f"{self.name}: shared_bytes must be a number of bytes, got {shared!r}.")
        if not 0 <= shared <= SHARED_BYTES_MAX:
            raise ArgumentError(f"{self.name}: shared_bytes must be 0 to {SHARED_BYTES_MAX}, got {shared}.")
        every, maps, given = launched.signature.parameters, list[TileMap](), list[int]()
        for one in every:
            if one.type == MAP_TYPE:
                given.append(len(maps))
                maps.append(self._map(one.name, args, numbers, shapes))
            else:
                given.append(numbers[one.name])
        names, types = tuple([one.name for one in every]), tuple([one.type for one in every])
        bounds = launched.signature.bounds
        return blocks, GivenLaunch(
            launched.entry, bounds, names, types, tuple(given), (*blocks[1:], *threads), shared, tuple(maps)
        )

    def _map(
        self, name: str, args: tuple[Any, ...], numbers: Mapping[str, int], shapes: Mapping[str, Shape]
    ) -> TileMap:
        """Returns a tile map."""
        if name not in self.tile_maps:
            fact = f"{self.name}: {name} is a map of tiles, but tile_maps has no entry for it."
            raise ArgumentError(fact, f'tile_maps={{"{name}": lambda a, b: ("a", (64, 64))}}')
        given = _value_of(self.tile_maps[name], args)
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            fact = f"{self.name}: tile_maps[{name!r}] must give a parameter and a box, optionally a shape, got {given!r}."
            raise ArgumentTypeError(fact)
        parameter, box, *shape = given
        if parameter not in numbers:
            raise ArgumentError(f"{self.name}: {name} is of {parameter!r}, and memory is {', '.join(numbers)}.")
        whole = tuple(shape[0] if shape else shapes[parameter])
        if not all(isinstance(dim, int) for dim in (*whole, *box)) or len(whole) != len(box):
            fact = f"{self.name}: {name} is of an array of {whole}, with a box of {tuple(box)}; their lengths differ."
            raise ShapeError(fact)
        return TileMap(numbers[parameter], whole, tuple(box))

    def _between(self, args: tuple[Any, ...]) -> list[tuple[DType, Shape]]:
        """Returns dtype and shape of each memory between launches."""
        found = []
        for name, spec in self.scratch.items():
            given = _result_of(_value_of(spec, args))
            if given is None:
                raise ArgumentTypeError(f"{self.name}: scratch[{name!r}] must give a Tensor or a pair (shape, dtype).")
            shape, dtype = given
            found.append((dtype, self._shape(name, shape)))
            every = [one for each in self.launched for one in each.signature.parameters if one.name == name]
            if not any(one.is_pointer for one in every):
                raise ArgumentError(f"{self.name}: {name} in `scratch` is not a parameter of a kernel.")
            for one in every:
                if one.dtype is not None and dtype is not one.dtype:
                    raise DTypeError(f"{self.name}: {name} is {one.type!r} in the kernel, scratch says {dtype}.")
        return found

    def _check_device(self, device: str) -> None:
        if self.meaning is None and (device == EVALUATOR or self.language not in compiler_for(device).backend.given):
            text, those, other = TAKEN_BY[self.language]
            raise UnsupportedOp(
                f"{self.name}: {device} takes no {text}; {those} do, and other devices compute the meaning.",
                f'give meaning=..., a function of NumPy arrays, or x.to("{other}").',
            )

    def _operand(self, one: Parameter, value: Any, device: str | None) -> Op:
        """Returns the value of a parameter, in its dtype.

        Raises:
          DTypeError: its dtype differs.
          ArgumentTypeError: it is memory and the value is not a Tensor, or it is a number and the value is not.
        """
        if isinstance(value, Tensor):
            op = value_at(value, device)
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
        if isinstance(value, (Length, Extent)):
            return value.op
        if not isinstance(value, (bool, int, float, np.generic)):
            raise ArgumentTypeError(f"{self.name}: {one.name} is a number in the kernel, got {type(value).__name__}.")
        if not dtype.is_float and isinstance(value, float) and not float(value).is_integer():
            raise DTypeError(f"{self.name}: {one.name} is {one.type!r} in the kernel, got {value}.")
        number = float(value) if dtype.is_float else int(fitting(self.name, int(value), dtype))
        return const(bool(number) if dtype is dtypes.bool_ else number, dtype)

    def _outputs(self, args: tuple[Any, ...]) -> tuple[tuple[DType, ...], tuple[Shape, ...]]:
        """Returns the dtypes of the results, and their shapes."""
        given = _value_of(self.output, args)
        listed, results = self._listed(given), self.signature.results
        specs = [found for spec in listed if (found := _result_of(spec)) is not None]
        if len(specs) != len(listed):
            raise ArgumentTypeError(f"{self.name}: output must give Tensors or pairs (shape, dtype), got {given!r}.")
        if len(specs) != len(results):
            names = ", ".join(one.name for one in results) or "none"
            raise ArgumentError(
                f"{self.name}: output gives {len(specs)} results, and the parameters that the kernel writes are {names}.",
                "a const parameter is only read; any other is a result, and undefined before the kernel.",
            )
        dtypes_, shapes = [], []
        for one, (shape, dtype) in zip(results, specs):
            shapes.append(self._shape(one.name, shape))
            if one.dtype is not None and dtype is not one.dtype:
                raise DTypeError(f"{self.name}: {one.name} is {one.type!r} in the kernel, output says {dtype}.")
            dtypes_.append(dtype)
        return tuple(dtypes_), tuple(shapes)

    def _shape(self, name: str, shape: Sequence[Any]) -> Shape:
        if not all(isinstance(dim, (Extent, Length)) or _is_whole(dim) for dim in shape):
            raise ShapeError(f"{self.name}: the shape of {name} must be of lengths, got {tuple(shape)}.")
        return tuple(map(dim_of, shape))

    def _blocks_and_threads(
        self, launched: Launched, args: tuple[Any, ...]
    ) -> tuple[tuple[Dim, int, int], tuple[int, int, int]]:
        """Returns blocks and threads along x, y and z."""
        if launched.grid is None:
            return (1, 1, 1), (1, 1, 1)
        blocks, (x, y, z) = (
            self._extents(name, _value_of(value, args))
            for name, value in (("grid", launched.grid), ("block", launched.block))
        )
        if not isinstance(x, int):
            raise ShapeError(f"{self.name}: a block must have a fixed number of threads, got {extent(x)!r}.", BLOCK_HINT)
        threads = x, y, z
        if math.prod(threads) > THREADS_MAX or threads[2] > LAST_THREADS_MAX or 0 in threads:
            raise ArgumentError(f"{self.name}: a block of {threads} threads; there are 1 to {THREADS_MAX}, 64 along z.")
        if any(bounds(found)[1] > most for found, most in zip(blocks, BLOCKS_MAX)):
            raise ArgumentError(f"{self.name}: a grid of {blocks} blocks; a GPU has at most {BLOCKS_MAX}.")
        return blocks, threads

    def _extents(self, what: str, value: Any) -> tuple[Dim, int, int]:
        extents = value if isinstance(value, (tuple, list)) else (value,)
        if any(isinstance(n, (Extent, Length)) for n in extents[1:]):
            fact = f"{self.name}: {what} is {value!r}; a symbolic length is along x alone."
            raise ShapeError(fact, "grid=lambda x: (x.shape[0], 4), with blockIdx.x along the axis that changes.")
        if not 1 <= len(extents) <= 3 or not all(isinstance(n, (Extent, Length)) or _is_whole(n) for n in extents):
            raise ArgumentTypeError(f"{self.name}: {what} must be one to three whole numbers, got {value!r}.")
        y, z = (*map(int, extents[1:]), *[1] * (3 - len(extents)))
        return dim_of(extents[0]), y, z

    def _listed(self, found: Any) -> tuple[Any, ...]:
        is_pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], DType)
        return (found,) if not isinstance(found, (tuple, list)) or is_pair else tuple(found)


def differentiable(kernel: Kernel) -> type[Function]:
    """Returns a Function of a kernel and its gradient."""

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
        is_nested = in_gradient.get()
        in_gradient.set(not is_nested)
        try:
            found = kernel.gradient(*grads, *args, **out)
        finally:
            in_gradient.set(is_nested)
        gradients = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(gradients) == len(args):
            return tuple(gradients)
        if len(gradients) != given.count(None):
            raise ArgumentError(
                f"{kernel.name}: gradient returned {len(gradients)} values, and of the arguments"
                f" {given.count(None)} are Tensors.",
                "return one per Tensor, or one per argument, with None where there is no gradient.",
            )
        return tuple([gradients.pop(0) if kept is None else None for kept in given])

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(kernel.name, (Function,), methods)


def _has_symbolic_lengths(args: Sequence[Any]) -> bool:
    return any(isinstance(dim, Op) for arg in args if isinstance(arg, Tensor) for dim in arg.op.shape)


def _number_among(values: Sequence[Any], arg: Any) -> int | None:
    """Returns the index among `values`, given to parameters, of an argument that is a number."""
    is_number = isinstance(arg, (int, float)) and not isinstance(arg, bool)
    same = (i for i, value in enumerate(values) if type(value) is type(arg) and repr(value) == repr(arg))  # -0.0 is not 0.0
    return next(same, None) if is_number else None


def _is_whole(n: Any) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool) and int(n) >= 0


def _value_of(given: Any, args: tuple[Any, ...]) -> Any:
    """Returns the value of an option, which may be a function of the arguments."""
    return given(*args) if callable(given) else given


def _result_of(spec: Any) -> tuple[Any, DType] | None:
    """Returns the shape and dtype that a Tensor has, or a pair; None if it is neither."""
    is_pair = isinstance(spec, tuple) and len(spec) == 2
    shape, dtype = spec if is_pair else (getattr(spec, "shape", None), getattr(spec, "dtype", None))
    return (shape, dtype) if isinstance(shape, (tuple, list)) and isinstance(dtype, DType) else None


def _output(call: Op, number: int, dtype: DType) -> Op:
    op = Op(OpCode.OUTPUT, dtype, (call,), number)
    record(op)
    return op


def is_path(source: str | Path) -> bool:
    """True for a file's path; False for source text."""
    return isinstance(source, Path) or ("\n" not in source and "{" not in source and source.endswith((".cu", ".h", ".c")))


def kernel(
    source: str | Path, output: Any, *, grid: Extents | None = None, block: Extents = 256,
    entry: str | None = None, shared_bytes: int | Callable[..., int] = 0, inputs: Any = None,
    meaning: Callable[..., Any] | None = None, gradient: Callable[..., Any] | None = None, name: str | None = None,
    implements: Callable[..., Any] | None = None, accepts: Callable[..., bool] | None = None,
    then: Sequence[Mapping[str, Any]] = (), scratch: Mapping[str, Any] | None = None,
    tile_maps: Mapping[str, Callable[..., Any]] | None = None,
) -> Kernel:  # fmt: skip
    """Makes a function of Tensors from a kernel in CUDA C, for CUDA and CUDASIM, its simulator; or in C, for processors.

    out = kernel(source, ...)(x, y, ...)    one launch; lazy, within plans and under pg.jit like any operation

    Parameters of the source that are pointers to non-const memory are results, in order, and hold nothing before. The
    others get the arguments of the call, or the values of `inputs`: Tensors arrive contiguous; numbers may be ints, floats,
    0-d Tensors and bound Variables. The simulator finds races, accesses outside memory and divergent barriers, with their
    lines. Other devices compute `meaning`.

    Without a __global__ function the source is C, for CPU and C, compiled by the machine's C compiler. Its function is
    called once, without grid and block. `check` runs it on the simulator and finds accesses outside memory.

    Args:
      source:        text, or the path of a file; it may include headers of its folder and of picograd/devices/cuda
      output:        a Tensor like the result, or a pair (shape, dtype), or a function of the arguments that returns one; a
                      tuple for several results
      grid:          blocks along x, y and z: 1 to 3 numbers, or a function of the arguments; None for C
      block:         threads per block, in the same form
      entry:         name of the function, if the source has several: "saxpy", "rows<256>"
      shared_bytes:  dynamic shared memory per block, `extern __shared__`
      inputs:        a value for each parameter that is not a result, or a function of the arguments that returns them
      meaning:       (arguments, Tensors as NumPy arrays): the results, in NumPy
      gradient:      (gradients of the results, arguments): the gradient of each Tensor, by operations of Tensors and other
                      kernels; a parameter `out` gets the results
      name:          name in messages and profiles
      implements:    (arguments): the results, by operations of Tensors, which the kernel may replace after `offer`
      accepts:       (arguments): whether it may do so for these lengths; None: for all that its functions accept
      then:          launches after the first, each with entry and grid, optionally block and shared_bytes; parameters with
                      the same name have the same value
      scratch:       memory between launches, by names of parameters: a pair (shape, dtype), or a function of the arguments
      tile_maps:     for parameters TILE_MAP(name), by name: (arguments): the parameter whose tiles are copied, the box, and
                      optionally the shape under which it is seen

    Returns:   the function; its check(...) compares it with its meaning, prepare(...) returns a launch to time and to count

    Raises:
      ArgumentError: the source has no kernel of that name, or several and no entry; CUDA C without a grid, or C with one.
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
        gradient=gradient, name=name, implements=implements, accepts=accepts, then=then, scratch=scratch or {},
        tile_maps=tile_maps or {},
    )  # fmt: skip
