"""PyTorch's memory formats by name: accepted, without effect, since tensors are always row-major here."""

from __future__ import annotations

from enum import Enum, auto


class memory_format(Enum):  # noqa: N801  # torch.memory_format
    """Memory format of PyTorch's tensors; all have the same values.

    >>> pg.zeros_like(Tensor([1.0]), memory_format=pg.preserve_format).tolist()
    [0.0]
    """

    contiguous_format = auto()
    preserve_format = auto()
    channels_last = auto()
    channels_last_3d = auto()


contiguous_format, preserve_format = memory_format.contiguous_format, memory_format.preserve_format
channels_last, channels_last_3d = memory_format.channels_last, memory_format.channels_last_3d
