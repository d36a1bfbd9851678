"""Averages of a model's parameters over training steps, and a matching schedule.

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
      decay:  weight of the old average, in [0, 1]

    Raises:
      ArgumentError: decay is not in [0, 1].

    >>> optim.swa_utils.get_ema_avg_fn(0.5)(Tensor([1.0]), Tensor([3.0]), 1)
    Tensor([2.])
    """
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"get_ema_avg_fn: decay must be in 0..1, got {decay}.")
    return functools.partial(_moved, decay)


def _moved(decay: float, averaged: Tensor, current: Tensor, count: Any) -> Tensor:
    return averaged * decay + current * (1 - decay)


def get_swa_avg_fn() -> Average:
    """Returns (averaged, current, count) -> the mean of count + 1 values, where `averaged` is that of the first count.

    >>> optim.swa_utils.get_swa_avg_fn()(Tensor([1.0]), Tensor([4.0]), 2)
    Tensor([2.])
    """
    return _mean


def _mean(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
    return averaged + (current - averaged) / (count + 1)


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageAll:
    """Returns get_ema_avg_fn's function in a form that stores its results in a list of tensors.

    Args:
      decay:  weight of the old average, in [0, 1]

    Raises:
      ArgumentError: decay is not in [0, 1].

    >>> averaged = [Tensor([1.0])]
    >>> optim.swa_utils.get_ema_multi_avg_fn(0.5)(averaged, [Tensor([3.0])], 1)
    >>> averaged
    [Tensor([2.])]
    """
    return _stored(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> AverageAll:
    """Returns get_swa_avg_fn's function in a form that stores its results in a list of tensors.

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
    """A copy of a model whose parameters are averages over the model's history.

    Args:
      model:         the model in training; it is not changed
      device:        device of the averages; None: the model's
      avg_fn:        (averaged, current, count) -> the new average; default: the mean
      multi_avg_fn:  the same for lists of tensors, stored in averaged; at most one of both
      use_buffers:   average buffers, too; else they are copied from the model

    State: n_averaged (), the number of calls of update_parameters, and the copy, `module`.

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
            raise ArgumentError("AveragedModel: give one of avg_fn and multi_avg_fn.")
        self.module = deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", Tensor(0, device=device))
        self.use_buffers = use_buffers
        self._average = multi_avg_fn or _stored(avg_fn or get_swa_avg_fn())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the averaged model's result for `args` and `kwargs`."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Adds the parameters of `model` to the averages; the first call copies them.

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
            is_first = self.n_averaged == 0  # an Op, not a number on the host, so that this may be part of a jitted step
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
      loader:  yields batches, or tuples and lists that begin with one
      model:   its training modes are restored
      device:  device to which batches are moved; None: they are not moved

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
    """Anneals the learning rate from its present value to swa_lr within anneal_epochs.

    lr = swa_lr * a(t) + initial lr * (1 - a(t)),  t = epoch / anneal_epochs, a(t) = t or (1 - cos(pi t)) / 2

    Args:
      optimizer:        the optimizer whose rates are set
      swa_lr:           final rate, or one per group
      anneal_epochs:    number of epochs until then
      anneal_strategy:  "cos" or "linear"
      last_epoch:       as in LRScheduler

    Raises:
      ArgumentError: an unknown strategy, a negative number of epochs, or not one rate per group.

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
        """Returns the rate, from the previous one, which another schedule may have set."""
        epoch = max(1, self.last_epoch) if self.anneal_epochs == 0 else self.last_epoch
        before, now = self._part(epoch - 1), self._part(epoch)
        rate, end = float(group["lr"]), float(group["swa_lr"])
        start = end if before == 1.0 else (rate - before * end) / (1.0 - before)
        return end * now + start * (1.0 - now)

    def _part(self, epoch: float) -> float:
        """Returns the annealed fraction, in [0, 1]."""
        t = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2
