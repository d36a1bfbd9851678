"""torch.nn.attention by its name: the choice of an attention kernel, as a context that has no effect.

Attention is one Op with one kernel per device; nn.functional.scaled_dot_product_attention computes it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

from picograd.errors import ArgumentTypeError
from picograd.interrupts import whole_context

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.Enum):
    """The kernels that PyTorch has for attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@whole_context
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Returns a context without effect: attention never stores its scores, and gives the same bits in every block.

    Args:
      backends:      one or several of SDPBackend
      set_priority:  accepted, without effect

    Raises:
      ArgumentTypeError: backends has something else.

    >>> from picograd.nn.attention import SDPBackend, sdpa_kernel
    >>> x = pg.ones(1, 2, 4)
    >>> with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    ...     nn.functional.scaled_dot_product_attention(x, x, x).shape
    (1, 2, 4)
    """
    named = [backends] if isinstance(backends, SDPBackend) else list(backends)
    for backend in named:
        if not isinstance(backend, SDPBackend):
            raise ArgumentTypeError(f"sdpa_kernel: backends must be of SDPBackend, got {backend!r}.")
    yield

