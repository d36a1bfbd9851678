"""Mixed precision: products in 16 bits, losses, norms and softmax in 32, wherever a block says so; or products in TF32.

In:    nothing
Out:   `autocast`; `lowered` for what profits from 16 bits (`widened` of nn/functions/ is for what suffers from them);
       `set_float32_matmul_precision`; `uses_tf32`; `precision_mode`, `float32_mode`
Next:  picograd/tensor/anomaly.py

What is cast is decided when an Op is built, and the graph says it; jit, which builds no graph at a replay, has one for each
precision.
"""

from __future__ import annotations

from contextvars import ContextVar

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.tensor.exchange.host import device_named
from picograd.tensor.modes import Mode

IN_FLOAT16 = frozenset({"CUDA", "PTX", "CUDASIM"})  # devices that take float16 unless told otherwise, as PyTorch's does
PRECISIONS = ("highest", "high", "medium")  # of products of float32, as PyTorch calls them
float32_mode: ContextVar[str] = ContextVar("float32", default="highest")
precision_mode: ContextVar[DType | None] = ContextVar("precision", default=None)  # of products, or None: as they are given


class autocast(Mode[DType | None]):  # noqa: N801  # PyTorch's name
    """Computes products of float32 in 16 bits inside a `with` block or a decorated function; a block inside one counts.

    Products (matmul, addmm, einsum, linear, attention, convolution) take and give `dtype`. Losses and norms of
    picograd.nn.functional, and its softmax, log_softmax and grid_sample, take 16-bit floats as float32. All else is
    computed in the dtype of its operands, prelu in that of its input; recurrent layers keep that of their state.
    float64 stays.

    Args:
      device_type:    a device's name, which says what dtype is unless given
      dtype:          bfloat16 or float16; default float16 for "cuda" (and PTX, CUDASIM), else bfloat16
      enabled:        False: the block computes as if there were none around it
      cache_enabled:  has no effect: equal casts are one Op

    Raises:
      ArgumentError: another dtype.
      DeviceError:   there is no such device.

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


def is_autocast_enabled() -> bool:
    """Returns whether products are computed in 16 bits here.

    >>> with pg.autocast("cpu"):
    ...     is_autocast_enabled()
    True
    """
    return precision_mode.get() is not None


def lowered(dtype: DType) -> DType:
    """Returns the dtype that operands of a product are to have."""
    precision = precision_mode.get()
    return dtype if precision is None or not dtype.is_float or dtype is dtypes.float64 else precision


def set_float32_matmul_precision(precision: str) -> None:
    """Says how exact products of float32 have to be that are built from here on: matmul, linear, convolution, attention.

    With "high" a GPU's matrix instructions may round operands to TF32, 11 bits of significand of the 24: each is off by
    2^-11 of itself at most; sums stay float32. An A100 has 156 TFLOP/s then, not 19.5 (its data sheet). Devices without
    such instructions compute as ever. It holds in this thread, and for the gradients of such products.

    Args:
      precision:  "highest" (until something is said), "high" or "medium", which is the same here

    Raises:
      ArgumentError: it is none of these.

    >>> pg.set_float32_matmul_precision("high")
    >>> pg.get_float32_matmul_precision()
    'high'
    >>> pg.set_float32_matmul_precision("highest")
    """
    if precision not in PRECISIONS:
        names = ", ".join(map(repr, PRECISIONS))
        raise ArgumentError(f"set_float32_matmul_precision: precision must be one of {names}, got {precision!r}.")
    float32_mode.set(precision)


def get_float32_matmul_precision() -> str:
    """Returns how exact products of float32 have to be that are built now.

    >>> pg.get_float32_matmul_precision()
    'highest'
    """
    return float32_mode.get()


def uses_tf32(dtype: DType) -> bool:
    """Returns whether a product of this dtype that is built now may take TF32."""
    return dtype is dtypes.float32 and float32_mode.get() != "highest"
