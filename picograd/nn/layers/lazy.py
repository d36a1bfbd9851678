"""Layers that take their number of features or channels from their first input.

Before that, such a layer is the ordinary one with 0 features: its parameters exist, without elements, so it can be moved;
`weight` stays the same tensor when it gets its shape.
"""

from __future__ import annotations

from typing import Any, ClassVar

from picograd.dtype import DType
from picograd.errors import ShapeError
from picograd.nn.functions.windows import Each
from picograd.nn.layers.features import Linear
from picograd.nn.layers.norms import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from picograd.nn.layers.spatial import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from picograd.nn.module import Module
from picograd.tensor.cell import set_op
from picograd.tensor.tensor import Tensor

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class _Lazy(Module):
    """Base of lazy layers.

    becomes:   class of the ordinary layer, the last of the bases
    features:  name of the argument that is still unknown
    """

    becomes: ClassVar[Any]
    features: ClassVar[str]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        ordinary = next(base for base in cls.__mro__ if not issubclass(base, _Lazy))
        if ordinary is not Module and not hasattr(cls, "becomes"):
            cls.becomes = ordinary

    def _postpone(self, given: dict[str, Any]) -> None:
        """Makes the layer with 0 features, and keeps the constructor's arguments."""
        settings = {name: value for name, value in given.items() if name != "self"}
        self.becomes.__init__(self, **{self.features: 0}, **settings)
        self._settings = settings
        self._until_loaded = self.register_load_state_dict_pre_hook(_become_as_saved)

    def _coming_in(self, x: Tensor) -> int:
        """Returns the number of features of an input."""
        raise NotImplementedError

    def _length(self, x: Tensor, axis: int, ranks: tuple[int, ...]) -> int:
        """Returns the length of an axis of an input; raises ShapeError unless its rank is one of `ranks`."""
        if x.ndim not in ranks:
            numbers = " or ".join(map(str, ranks))
            raise ShapeError(f"{type(self).__name__}: input must have {numbers} axes, got shape {x.shape}.")
        return x.shape[axis]

    def _saved(self, shapes: dict[str, tuple[int, ...]]) -> int | None:
        """Returns the number of features of a saved state; None if the state does not tell."""
        return next((shape[0] for name, shape in shapes.items() if shape), None)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Becomes the ordinary layer for this input, and calls it with input, args and kwargs."""
        self._become(self._coming_in(input))
        return self.forward(input, *args, **kwargs)

    def _become(self, number: int) -> None:
        """Takes the state and class of a module made for `number` features; tensors stay the same objects."""
        made = self.becomes(**{self.features: number}, **self._settings)
        for name, drawn in made._named_tensors("parameter", "buffer"):
            held = getattr(self, name)
            set_op(held.cell, drawn.detach().to(held.device, held.dtype).read())
        for name, value in vars(made).items():
            if not isinstance(value, Tensor) and name != "_state_kinds":
                setattr(self, name, value)
        self._until_loaded.remove()
        del self._settings, self._until_loaded
        self.__class__ = self.becomes

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._settings.items())


def _become_as_saved(module: Any, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Becomes the layer of a state that is loaded before any input."""
    own = [name for name in module._kinds() if prefix + name in state_dict]
    number = module._saved({name: tuple(state_dict[prefix + name].shape) for name in own})
    if number:
        module._become(number)


class LazyLinear(_Lazy, Linear):
    """Linear whose in_features is the last axis of the first input; `out_features` and `bias` as there.

    >>> layer = LazyLinear(2)
    >>> layer(Tensor.ones(4, 3)).shape, layer
    ((4, 2), Linear(in_features=3, out_features=2, bias=True))
    """

    features = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: str | None = None, dtype: DType | None = None):
        self._postpone(vars())

    def _coming_in(self, x: Tensor) -> int:
        if not x.ndim:
            raise ShapeError("LazyLinear: input needs an axis of features, got shape ().")
        return x.shape[-1]

    def _saved(self, shapes: dict[str, tuple[int, ...]]) -> int | None:
        return shapes["weight"][1] if "weight" in shapes else None


# ---- convolutions ----
class _LazyConvolution(_Lazy):
    features = "in_channels"

    def _coming_in(self, x: Tensor) -> int:
        axes: int = self.becomes.axes
        return self._length(x, -1 - axes, (axes + 1, axes + 2))

    def _saved(self, shapes: dict[str, tuple[int, ...]]) -> int | None:
        if "weight" not in shapes:
            return None
        transposed, groups = self.becomes.transposed, self._settings["groups"]
        return shapes["weight"][0] if transposed else shapes["weight"][1] * int(groups)


class _LazyConv(_LazyConvolution):
    def __init__(
        self, out_channels: int, kernel_size: Each, stride: Each = 1, padding: str | Each = 0, dilation: Each = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: str | None = None,
        dtype: DType | None = None,
    ):  # fmt: skip
        self._postpone(vars())


class _LazyConvTranspose(_LazyConvolution):
    def __init__(
        self, out_channels: int, kernel_size: Each, stride: Each = 1, padding: Each = 0, output_padding: Each = 0,
        groups: int = 1, bias: bool = True, dilation: Each = 1, padding_mode: str = "zeros", device: str | None = None,
        dtype: DType | None = None,
    ):  # fmt: skip
        self._postpone(vars())


class LazyConv1d(_LazyConv, Conv1d):
    """Conv1d whose in_channels are the channels of the first input; the other arguments as in `Conv1d`.

    >>> LazyConv1d(2, 3)(Tensor.ones(1, 3, 4)).shape
    (1, 2, 2)
    """


class LazyConv2d(_LazyConv, Conv2d):
    """Conv2d whose in_channels are the channels of the first input; the other arguments as in `Conv2d`.

    >>> LazyConv2d(2, 3)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 2, 2, 2)
    """


class LazyConv3d(_LazyConv, Conv3d):
    """Conv3d whose in_channels are the channels of the first input; the other arguments as in `Conv3d`.

    >>> LazyConv3d(2, 3)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """ConvTranspose1d whose in_channels are the channels of the first input; the other arguments as in `ConvTranspose1d`.

    >>> LazyConvTranspose1d(2, 3)(Tensor.ones(1, 3, 4)).shape
    (1, 2, 6)
    """


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """ConvTranspose2d whose in_channels are the channels of the first input; the other arguments as in `ConvTranspose2d`.

    >>> LazyConvTranspose2d(2, 3)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 2, 6, 6)
    """


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """ConvTranspose3d whose in_channels are the channels of the first input; the other arguments as in `ConvTranspose3d`.

    >>> LazyConvTranspose3d(2, 3)(Tensor.ones(1, 3, 4, 4, 4)).shape
    (1, 2, 6, 6, 6)
    """


# ---- norms ----
class _LazyNorm(_Lazy):
    features = "num_features"

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        self._postpone(vars())

    def _coming_in(self, x: Tensor) -> int:
        has_batch = x.ndim == max(self.becomes.ranks) or self.becomes is BatchNorm1d
        return self._length(x, 1 if has_batch else 0, self.becomes.ranks)


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """BatchNorm1d whose num_features are the channels of the first input; the other arguments as in `BatchNorm1d`.

    >>> layer = LazyBatchNorm1d()
    >>> layer(Tensor.ones(2, 3, 4)).shape, layer.num_features
    ((2, 3, 4), 3)
    """


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """BatchNorm2d whose num_features are the channels of the first input; the other arguments as in `BatchNorm2d`.

    >>> layer = LazyBatchNorm2d()
    >>> layer(Tensor.ones(2, 3, 4, 4)).shape, layer.num_features
    ((2, 3, 4, 4), 3)
    """


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """BatchNorm3d whose num_features are the channels of the first input; the other arguments as in `BatchNorm3d`.

    >>> layer = LazyBatchNorm3d()
    >>> layer(Tensor.ones(2, 3, 4, 4, 4)).shape, layer.num_features
    ((2, 3, 4, 4, 4), 3)
    """


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """InstanceNorm1d whose num_features are the channels of the first input; arguments as in `InstanceNorm1d`.

    affine and track_running_stats are True by default here.

    >>> layer = LazyInstanceNorm1d()
    >>> layer(Tensor.ones(2, 3, 4)).shape, layer.num_features
    ((2, 3, 4), 3)
    """


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """InstanceNorm2d whose num_features are the channels of the first input; arguments as in `InstanceNorm2d`.

    affine and track_running_stats are True by default here.

    >>> layer = LazyInstanceNorm2d()
    >>> layer(Tensor.ones(2, 3, 4, 4)).shape, layer.num_features
    ((2, 3, 4, 4), 3)
    """


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """InstanceNorm3d whose num_features are the channels of the first input; arguments as in `InstanceNorm3d`.

    affine and track_running_stats are True by default here.

    >>> layer = LazyInstanceNorm3d()
    >>> layer(Tensor.ones(2, 3, 4, 4, 4)).shape, layer.num_features
    ((2, 3, 4, 4, 4), 3)
    """
