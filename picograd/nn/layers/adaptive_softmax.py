"""A softmax over many classes in clusters, so that rare ones share few numbers.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/convolution.py

Source: Grave et al. 2017, arXiv:1609.04309.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.containers import ModuleList, Sequential
from picograd.nn.layers.features import Linear
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class ASMoutput(NamedTuple):
    """The logarithm of each target's probability (N,), and their mean with the other sign."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A loss of classes that are sorted by how often they come, the frequent ones in front, in clusters at `cutoffs`.

    log p(class) = log p(cluster) + log p(class in cluster), cluster i seen through in_features / div_value^i numbers

    Args:
      in_features:  C
      n_classes:    V
      cutoffs:      rising numbers in 1..V-1: where clusters end
      div_value:    by how much the numbers of a cluster become fewer from one to the next
      head_bias:    the frequent classes have a bias

    Raises:
      ArgumentError: cutoffs do not rise within 1..V-1, or div_value is not above 0.

    Cost:      all clusters are computed for each row.

    >>> layer = AdaptiveLogSoftmaxWithLoss(4, 10, [2, 6])
    >>> layer(Tensor.ones(3, 4), Tensor([0, 5, 9])).output.shape
    (3,)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        ends = [*cutoffs, n_classes]
        if not cutoffs or not ends[0] > 0 or sorted(set(ends)) != ends:
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must rise within 1..{n_classes - 1}, got {list(cutoffs)}."
            )
        if not div_value > 0:
            raise ArgumentError(f"AdaptiveLogSoftmaxWithLoss: div_value must be above 0, got {div_value}.")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, ends
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = ends[0], len(ends) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner = int(in_features // div_value ** (i + 1))
            down = Linear(in_features, inner, False, device, dtype)
            self.tail.append(Sequential(down, Linear(inner, ends[i + 1] - ends[i], False, device, dtype)))

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        """Returns (output, loss): input (N, C), target (N,) -> (N,) and (); or of one row.

        Raises:
          ShapeError: input has neither one axis nor two, or target has another number of rows.
        """
        if input.ndim not in (1, 2) or target.shape != input.shape[:-1]:
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: needs input (N, C) and target (N,), got {input.shape} and {target.shape}."
            )
        output = self._rows(input).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return ASMoutput(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """Returns the logarithm of the probability of each class: input (N, C) -> (N, V).

        >>> AdaptiveLogSoftmaxWithLoss(4, 10, [2, 6]).log_prob(Tensor.ones(3, 4)).shape
        (3, 10)
        """
        return self._rows(input)

    def predict(self, input: Tensor) -> Tensor:
        """Returns the most probable class of each row: input (N, C) -> (N,).

        >>> AdaptiveLogSoftmaxWithLoss(4, 10, [2, 6]).predict(Tensor.ones(3, 4)).shape
        (3,)
        """
        return self._rows(input).argmax(-1)

    def _rows(self, x: Tensor) -> Tensor:
        head = self.head(x).log_softmax(-1)
        parts = [head[..., : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            place = self.shortlist_size + i
            parts.append(cluster(x).log_softmax(-1) + head[..., place : place + 1])
        return Tensor.cat(parts, -1)
