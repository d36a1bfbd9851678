"""Averages of a model's parameters over steps of training, with a schedule that goes with them.

Source: Izmailov et al. 2018, arXiv:1803.05407 (stochastic weight averaging).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from picograd.errors import ArgumentError
from picograd.nn.layers.norms import BatchNorm1d, BatchNorm2d, BatchNorm3d
from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer, ParamGroup
from picograd.tensor.build import is_integer
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_training.schedules import LRScheduler, each_group

__all__ = [
    "AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip

Average = Callable[[Tensor, Tensor, Any], Tensor]
AverageAll = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


# ---- averages ----
def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Returns (averaged, current, count) -> decay * averaged + (1 - decay) * current.

    Args:
      decay:  part of the average that stays, in 0..1

    Raises:
      ArgumentError: decay is not in 0..1.

    >>> optim.swa_utils.get_ema_avg_fn(0.5)(Tensor([1.0]), Tensor([3.0]), 1)
    Tensor([2.])
    """
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"get_ema_avg_fn: decay must be in 0..1, got {decay}.")
    return functools.partial(_moved, decay)


def _moved(decay: float, averaged: Tensor, current: Tensor, count: Any) -> Tensor:
    return averaged * decay + current * (1 - decay)


def get_swa_avg_fn() -> Average:
    """Returns (averaged, current, count) -> the mean of count + 1 values; `averaged` is the mean of the first count.

    >>> optim.swa_utils.get_swa_avg_fn()(Tensor([1.0]), Tensor([4.0]), 2)
    Tensor([2.])
    """
    return _mean


def _mean(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
    return averaged + (current - averaged) / (count + 1)


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageAll:
    """Returns the function of get_ema_avg_fn in a form that stores its result in each of a list of tensors.

    Args:
      decay:  part of the average that stays, in 0..1

    Raises:
      ArgumentError: decay is not in 0..1.

    >>> averaged = [Tensor([1.0])]
    >>> optim.swa_utils.get_ema_multi_avg_fn(0.5)(averaged, [Tensor([3.0])], 1)
    >>> averaged
    [Tensor([2.])]
    """
    return _stored(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> AverageAll:
    """Returns the function of get_swa_avg_fn in a form that stores its result in each of a list of tensors.

    >>> averaged = [Tensor([1.0])]
    >>> optim.swa_utils.get_swa_multi_avg_fn()(averaged, [Tensor([4.0])], 2)
    >>> averaged
    [Tensor([2.])]
    """
    return _stored(get_swa_avg_fn())


def _stored(average: Average) -> AverageAll:
    return functools.partial(_store, average)


def _store(average: Average, averaged: Sequence[Tensor], current: Sequence[Tensor], count: Any) -> None:
    with no_grad():
        for mean, value in zip(averaged, current, strict=True):
            mean.assign(average(mean, value, count).to(mean.dtype))


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those the model has had.

    Args:
      model:         in training; it stays as it is
      device:        of the averages; None: that of the model
      avg_fn:        (averaged, current, count) -> the new average; default: the mean
      multi_avg_fn:  the same for lists of tensors, stored in place of averaged; one of both at most
      use_buffers:   buffers are averaged, too; else they are those of the model

    State: n_averaged (), how often update_parameters was called, and the copy, `module`.

    Raises:
      ArgumentError: both functions are given.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> averaged = optim.swa_utils.AveragedModel(net)
    >>> for value in (1.0, 3.0):
    ...     _ = nn.init.constant_(net.weight, value)
    ...     averaged.update_parameters(net)
    >>> averaged(Tensor([1.0])).item(), averaged.n_averaged.item()
    (2.0, 2)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: AverageAll | None = None,
        use_buffers: bool = False,
    ):
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: avg_fn and multi_avg_fn are two ways to say one thing; give one.")
        self.module = deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", Tensor(0, device=device))
        self.use_buffers = use_buffers
        self._average = multi_avg_fn or _stored(avg_fn or get_swa_avg_fn())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the averaged model for `args` and `kwargs`."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Lets the parameters of `model` count in the averages; the first time they are taken over.

        >>> net = nn.Linear(1, 1)
        >>> averaged = optim.swa_utils.AveragedModel(net)
        >>> averaged.update_parameters(net)
        >>> bool((averaged.module.weight == net.weight).all())
        True
        """
        own, given = (
            list(chain(each.parameters(), each.buffers() if self.use_buffers else ())) for each in (self.module, model)
        )
        with no_grad():
            current = [value.detach().to(mean.device) for value, mean in zip(given, own, strict=True)]
            is_first = self.n_averaged == 0  # no value is read on the host, so that this may be part of a jitted step
            self._average(own, current, self.n_averaged)
            for mean, value in zip(own, current):
                mean.assign(Tensor.choose(is_first, value, mean))
            if not self.use_buffers:
                for mean, value in zip(self.module.buffers(), model.buffers(), strict=True):
                    mean.assign(value.detach().to(mean.device))
            self.n_averaged.add_(1)


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recomputes the running statistics of a model's BatchNorm layers, as means over all batches.

    Args:
      loader:  yields batches, or tuples and lists whose first element is one
      model:   its modes are restored
      device:  where batches are moved before; None: they stay

    >>> net = nn.BatchNorm1d(1)
    >>> optim.swa_utils.update_bn([Tensor([[1.0], [3.0]]), Tensor([[5.0], [7.0]])], net)
    >>> net.running_mean
    Tensor([4.])
    """
    layers = [layer for layer in model.modules() if isinstance(layer, (BatchNorm1d, BatchNorm2d, BatchNorm3d))]
    if not layers:
        return
    momenta, modes = [layer.momentum for layer in layers], [(module, module.training) for module in model.modules()]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.train()
    with no_grad():
        for batch in loader:
            first = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(first if device is None else first.to(device))
    for layer, momentum in zip(layers, momenta):
        layer.momentum = momentum
    for module, is_training in modes:
        module.training = is_training


# ---- the schedule ----
class SWALR(LRScheduler):
    """Goes from the learning rate there is to swa_lr within anneal_epochs, and stays there.

    lr = swa_lr * a(t) + lr before it began * (1 - a(t)),  t = epoch / anneal_epochs, a(t) = t or (1 - cos(pi t)) / 2

    Args:
      optimizer:        whose rates are set
      swa_lr:           the rate at the end, or one for each group
      anneal_epochs:    how many epochs it takes
      anneal_strategy:  "cos" or "linear"
      last_epoch:       as in LRScheduler

    Raises:
      ArgumentError: another strategy, a negative number of epochs, or rates for another number of groups.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> schedule.step()
    >>> optimizer.lr
    0.75
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f'SWALR: anneal_strategy must be "cos" or "linear", got {anneal_strategy!r}.')
        if not is_integer(anneal_epochs) or anneal_epochs < 0:
            raise ArgumentError(f"SWALR: anneal_epochs must be a number of epochs, got {anneal_epochs!r}.")
        self.optimizer, self.anneal_epochs, self.anneal_strategy = optimizer, anneal_epochs, anneal_strategy
        for rate, group in zip(each_group("SWALR", optimizer, "swa_lr", swa_lr), optimizer.param_groups):
            group["swa_lr"] = rate
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        """Returns the rate, from the one before: another schedule may have set that."""
        epoch = max(1, self.last_epoch) if self.anneal_epochs == 0 else self.last_epoch
        before, now = self._part(epoch - 1), self._part(epoch)
        rate, end = float(group["lr"]), float(group["swa_lr"])
        start = end if before == 1.0 else (rate - before * end) / (1.0 - before)
        return end * now + start * (1.0 - now)

    def _part(self, epoch: float) -> float:
        """Returns how much of the way is done, 0..1."""
        t = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2
