"""Modes, as contexts and decorators: whether gradients are recorded, and the precision of products.

An Op's precision is fixed when it is built, so graphs contain it; jit, whose replays build no graph, has a plan for each
precision.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from picograd import dtype as dtypes
from picograd.annotations import shown
from picograd.dtype import DType
from picograd.engine.devices import device_named
from picograd.errors import ArgumentError, ArgumentTypeError
from picograd.interrupts import Ends
from picograd.tensor.arguments import check_one_of
from picograd.tensor.cell import grad_mode

# ---- gradients ----
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Mode(Generic[T]):
    """Sets a context variable in a `with` block or in a decorated function."""

    def __init__(self, variable: ContextVar[T], value: T):
        self._variable, self._value = variable, value
        self._blocks: list[tuple[T, Ends]] = []  # for each open block the value before it
        self._before: tuple[T] | None = None  # the value before, if it was replaced before the block

    def __enter__(self) -> None:
        ends = Ends()
        ends.begin(Mode.__enter__.__code__, Mode.__exit__.__code__)
        self._blocks.append((self._before[0] if self._before else self._variable.get(), ends))
        self._variable.set(self._value)
        if ends.waiting:
            try:
                ends.tell()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *error: object) -> None:
        outer, ends = self._blocks.pop()
        self._variable.set(outer)
        ends.over()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            outer = self._variable.get()
            try:
                self._variable.set(self._value)
                return function(*args, **kwargs)
            finally:
                self._variable.set(outer)

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast(R, run(function, *args, **kwargs))

        @functools.wraps(function)
        def stepped(*args: P.args, **kwargs: P.kwargs) -> Any:  # the mode holds in a generator's steps, not in its caller
            generator: Any = function(*args, **kwargs)
            step, given = generator.send, None
            while True:
                try:
                    found = run(step, given)
                except StopIteration as end:
                    return end.value
                try:
                    step, given = generator.send, (yield found)
                except GeneratorExit:
                    run(generator.close)
                    raise
                except BaseException as error:
                    step, given = generator.throw, error

        return stepped if inspect.isgeneratorfunction(function) else wrapped


class GradSwitch(Mode[bool]):
    """Switches the recording of gradients on or off at once, or as a `with` block until its end."""

    _before: tuple[bool]

    def __init__(self, record: bool):
        super().__init__(grad_mode, record)
        self._before = (grad_mode.get(),)
        grad_mode.set(record)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        grad_mode.set(*self._before)  # it was made as a decorator
        return super().__call__(function)


@overload
def no_grad(function: None = None) -> Mode[bool]: ...
@overload
def no_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def no_grad(function: Any = None) -> Any:
    """Returns a context, or decorator, in which results need no gradients and leaves can be changed in place.

    A result that is changed in place here, or through `.data`, keeps its history: gradients of the new value flow to the
    replaced one.

    Args:
      function:  the decorated function, for @no_grad without parentheses

    >>> x = Tensor(1.0, requires_grad=True)
    >>> with no_grad():
    ...     (x * 2).requires_grad
    False
    """
    return Mode(grad_mode, False) if function is None else _decorated(Mode(grad_mode, False), function)


def _decorated(mode: Mode[bool], function: Any) -> Any:
    """Returns the decorated function."""
    if not callable(function):
        raise ArgumentTypeError(f"no_grad: decorates functions, got {shown(function)}.", hint="with no_grad(): ...")
    return mode(function)


@overload
def enable_grad(function: None = None) -> Mode[bool]: ...
@overload
def enable_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def enable_grad(function: Any = None) -> Any:
    """Returns a context, or decorator, in which gradients are recorded again inside no_grad().

    Args:
      function:  the decorated function, for @enable_grad without parentheses

    >>> with no_grad(), enable_grad():
    ...     is_grad_enabled()
    True
    """
    return Mode(grad_mode, True) if function is None else _decorated(Mode(grad_mode, True), function)


def set_grad_enabled(mode: bool) -> Mode[bool]:
    """Switches the recording of gradients on or off at once; as a `with` block until its end, or as a decorator.

    Args:
      mode: True: record gradients

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    >>> is_grad_enabled()
    True
    """
    return GradSwitch(bool(mode))


def inference_mode(mode: bool = True) -> Mode[bool]:
    """Returns a context, or decorator, in which results need no gradients: PyTorch's other name of no_grad.

    Its tensors are ordinary ones, and may be used where gradients are recorded.

    Args:
      mode: False: has no effect

    >>> x = Tensor(1.0, requires_grad=True)
    >>> with inference_mode():
    ...     (x * 2).requires_grad
    False
    """
    return Mode(grad_mode, False if mode else grad_mode.get())


def is_grad_enabled() -> bool:
    """Returns True if gradients are recorded.

    >>> is_grad_enabled()
    True
    """
    return grad_mode.get()


# ---- precision ----
IN_FLOAT16 = frozenset({"CUDA", "PTX", "CUDASIM"})  # devices whose default is float16, as in PyTorch
PRECISIONS = ("highest", "high", "medium")  # of float32 products, in PyTorch's words
float32_mode: ContextVar[str] = ContextVar("float32", default="highest")
precision_mode: ContextVar[DType | None] = ContextVar("precision", default=None)  # of products; None: the operands' dtype


class autocast(Mode[DType | None]):  # noqa: N801  # PyTorch's name
    """Computes products of float32 in 16 bits within a `with` block or a decorated function; the innermost block counts.

    Products (matmul, addmm, einsum, linear, attention, convolution) take and return `dtype`. Losses, norms, softmax,
    log_softmax and grid_sample of picograd.nn.functional convert 16-bit floats to float32. Everything else is computed in
    the dtype of its operands, prelu in that of its input; recurrent layers keep the dtype of their state. float64 is not
    changed.

    Args:
      device_type:    a device's name; it selects the default dtype
      dtype:          bfloat16 or float16; default float16 for "cuda" (and PTX, CUDASIM), else bfloat16
      enabled:        False: compute as outside autocast
      cache_enabled:  has no effect: equal casts are one Op

    Raises:
      ArgumentError: dtype is neither.
      DeviceError:   the device is unknown.

    >>> x = Tensor([[1.0, 2.0]])
    >>> with pg.autocast("cpu"):
    ...     y = x @ x.T
    >>> y
    Tensor([[5.]], dtype=bfloat16)
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        usual = dtypes.float16 if device_named(device_type) in IN_FLOAT16 else dtypes.bfloat16
        chosen = dtype or usual
        if chosen not in (dtypes.bfloat16, dtypes.float16):
            raise ArgumentError(f"autocast: dtype must be bfloat16 or float16, got {chosen}.")
        super().__init__(precision_mode, chosen if enabled else None)


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Returns whether products are computed in 16 bits here.

    Args:
      device_type:  has no effect: autocast holds for all devices

    >>> with pg.autocast("cpu"):
    ...     is_autocast_enabled()
    True
    """
    return precision_mode.get() is not None


def lowered(dtype: DType) -> DType:
    """Returns the dtype of a product's operands in the present mode."""
    return lowered_to(precision_mode.get(), dtype)


def lowered_to(precision: DType | None, dtype: DType) -> DType:
    """Returns the dtype of a product's operands in this precision."""
    return dtype if precision is None or not dtype.is_float or dtype is dtypes.float64 else precision


def set_float32_matmul_precision(precision: str) -> None:
    """Sets the precision of later products of float32: matmul, linear, convolution, attention.

    With "high", a GPU's matrix instructions may round operands to TF32, from 24 bits of significand to 11: each relative
    error is at most 2^-11; sums stay float32. An A100 then has 156 TFLOP/s, not 19.5 (data sheet). Devices without such
    instructions compute as before. The setting holds in this thread, and for the gradients of such products.

    Args:
      precision:  "highest" (the default), "high", or "medium", which means "high" here

    Raises:
      ArgumentError: precision is another word.

    >>> pg.set_float32_matmul_precision("high")
    >>> pg.get_float32_matmul_precision()
    'high'
    >>> pg.set_float32_matmul_precision("highest")
    """
    check_one_of("set_float32_matmul_precision", "precision", precision, PRECISIONS)
    float32_mode.set(precision)


def get_float32_matmul_precision() -> str:
    """Returns the precision of products of float32.

    >>> pg.get_float32_matmul_precision()
    'highest'
    """
    return float32_mode.get()


def uses_tf32(dtype: DType) -> bool:
    """Returns whether a product of this dtype may use TF32 in the present mode."""
    return dtype is dtypes.float32 and float32_mode.get() != "highest"
