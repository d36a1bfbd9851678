"""torch.utils.tensorboard: the SummaryWriter of the package tensorboardX; tensors are passed as arrays."""

from __future__ import annotations

from typing import Any

from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor

__all__ = ["SummaryWriter"]


class SummaryWriter:
    """Writes scalars, images and texts for TensorBoard. Needs `pip install tensorboardX`.

    Methods are those of tensorboardX.SummaryWriter, as are the arguments `args` and `kwargs`: add_scalar, add_histogram,
    add_image, close and so on. Tensors in their arguments, also within lists and dicts, are computed.

    Raises:
      ArgumentError: tensorboardX is not installed.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        try:
            from tensorboardX import SummaryWriter as Writer  # type: ignore[import-not-found]
        except ImportError:
            raise ArgumentError("SummaryWriter: tensorboardX is not installed.", hint="pip install tensorboardX") from None
        self._writer = Writer(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_writer":  # not set yet
            raise AttributeError(name)
        found = getattr(self._writer, name)
        return (lambda *args, **kwargs: found(*_arrays(args), **_arrays(kwargs))) if callable(found) else found

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()


def _arrays(value: Any) -> Any:
    """Returns a value with tensors replaced by arrays, and 0-d ones by numbers."""
    if isinstance(value, Tensor):
        found = value.detach().numpy()
        return found if found.ndim else found.item()
    if isinstance(value, dict):
        return {key: _arrays(part) for key, part in value.items()}
    return type(value)(map(_arrays, value)) if type(value) in (list, tuple) else value
