"""torch.nn.modules: PyTorch's files of layers, for base classes and helpers without public names.

    from picograd.nn.modules.batchnorm import _BatchNorm
    isinstance(layer, _BatchNorm)

Each file also has all names of picograd.nn. Losses have several bases here, which are registered as subclasses of PyTorch's
two.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from picograd import nn
from picograd.errors import missing
from picograd.nn.layers import norms, pointwise, spatial
from picograd.nn.module_state import IncompatibleKeys
from picograd.tensor.tensor import Tensor
from picograd_torch.old_reduction import reduction_of


class _Loss(nn.Module, metaclass=ABCMeta):
    """Base of users' losses, and of picograd's."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        """
        Args:
          size_average, reduce: replaced by `reduction`
          reduction:            "mean", "sum" or "none"
        """
        self.reduction = reduction_of(size_average, reduce) or reduction


class _WeightedLoss(_Loss):
    """Base of losses with a weight per class."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        """Keeps `weight` as a buffer; the other arguments are those of _Loss."""
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


for _weighted in (nn.BCELoss, nn.CrossEntropyLoss, nn.MultiLabelSoftMarginLoss, nn.MultiMarginLoss, nn.NLLLoss):
    _WeightedLoss.register(_weighted)
for _loss in (
    nn.BCEWithLogitsLoss, nn.CTCLoss, nn.CosineEmbeddingLoss, nn.GaussianNLLLoss, nn.HingeEmbeddingLoss, nn.HuberLoss,
    nn.KLDivLoss, nn.L1Loss, nn.MSELoss, nn.MarginRankingLoss, nn.MultiLabelMarginLoss, nn.PoissonNLLLoss, nn.SmoothL1Loss,
    nn.SoftMarginLoss, nn.TripletMarginLoss, nn.TripletMarginWithDistanceLoss,
):  # fmt: skip
    _Loss.register(_loss)


def _ntuple(count: int) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that returns one number per axis, from a number or `count` numbers."""

    def each(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * count

    return each


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Removes a prefix, such as "module.", from the names of a state."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[name.removeprefix(prefix)] = state_dict.pop(name)


FILES: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("activation", "container", "distance", "flatten", "fold", "linear", "normalization", "padding",
                             "pixelshuffle", "rnn", "sparse", "transformer", "upsampling")},
    "batchnorm": {"_BatchNorm": norms._BatchNorm, "_NormBase": norms._Running},
    "conv": {"_ConvNd": spatial._Convolution, "_ConvTransposeNd": spatial._ConvTranspose},
    "dropout": {"_DropoutNd": pointwise._Dropping},
    "instancenorm": {"_InstanceNorm": norms._InstanceNorm, "_NormBase": norms._Running},
    "module": {"_IncompatibleKeys": IncompatibleKeys},
    "loss": {"_Loss": _Loss, "_WeightedLoss": _WeightedLoss},
    "pooling": {"_MaxPoolNd": spatial._MaxPool, "_AvgPoolNd": spatial._AvgPool, "_LPPoolNd": spatial._LPPool,
                "_AdaptiveAvgPoolNd": spatial._AdaptiveAvgPool, "_AdaptiveMaxPoolNd": spatial._AdaptiveMaxPool},
    "utils": {"_ntuple": _ntuple, "_single": _ntuple(1), "_pair": _ntuple(2), "_triple": _ntuple(3),
              "_quadruple": _ntuple(4),
              "consume_prefix_in_state_dict_if_present": consume_prefix_in_state_dict_if_present},
}  # fmt: skip


class File(ModuleType):
    """A file of torch.nn.modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(nn, name):
            raise missing(name, "picograd.nn.modules")
        return getattr(nn, name)


def __getattr__(name: str) -> Any:
    return File.__getattr__(sys.modules[__name__], name)  # type: ignore[arg-type]


for _name, _own in FILES.items():
    _file = File(f"picograd.nn.modules.{_name}", "Layers by the name of PyTorch's file.")
    vars(_file).update(_own)
    globals()[_name] = sys.modules[_file.__name__] = _file
