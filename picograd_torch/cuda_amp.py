"""torch.cuda.amp by its name: pg.amp, with a GPU as the device."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.tensor import modes as anywhere
from picograd_torch.amp import GradScaler, custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(anywhere.autocast):  # noqa: N801  # PyTorch's name
    """Computes products of float32 in 16 bits inside a `with` block or a decorated function: pg.autocast("cuda", ...).

    Args:
      enabled:        False: the block computes as without autocast
      dtype:          float16 or bfloat16
      cache_enabled:  has no effect: equal casts are one Op

    Raises:
      ArgumentError: dtype is neither.

    >>> with pg.cuda.amp.autocast(dtype=pg.bfloat16):
    ...     (pg.ones(2, 2) @ pg.ones(2, 2)).dtype
    bfloat16
    """

    def __init__(self, enabled: bool = True, dtype: DType = dtypes.float16, cache_enabled: bool | None = None):
        super().__init__("cuda", dtype, enabled, cache_enabled)
