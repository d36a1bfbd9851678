"""Learning rates by steps, lines, powers and cosines, and by what a measured value does.

In:    an optimizer
Out:   new learning rates in its groups
Next:  picograd/optim/schedules/cycles.py
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from picograd.annotations import Shown
from picograd.errors import ArgumentError
from picograd.optim.groups import ParamGroup
from picograd.optim.optimizer import Optimizer
from picograd.optim.schedules.base import LRScheduler, each_group
from picograd.tensor.arguments import at_least, saved_state

__all__ = [
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LinearLR", "MultiStepLR",
    "PolynomialLR", "ReduceLROnPlateau", "StepLR",
]  # fmt: skip


# ---- from the rate before ----
class StepLR(LRScheduler):
    """lr *= gamma every `step_size` epochs. optimizer, last_epoch: as in LRScheduler.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5).step()
    >>> optimizer.lr
    0.5
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = at_least("StepLR", "step_size", step_size, 1), gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return float(group["lr"] * self.gamma if falls else group["lr"])


class MultiStepLR(LRScheduler):
    """lr *= gamma at each epoch of `milestones`, as often as it stands there. optimizer, last_epoch: as in LRScheduler.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.MultiStepLR(optimizer, [1, 5], gamma=0.5).step()
    >>> optimizer.lr
    0.5
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        return float(group["lr"] * self.gamma ** self.milestones[self.last_epoch])


class ConstantLR(LRScheduler):
    """lr is `factor` of the initial one up to epoch total_iters. optimizer, last_epoch: as in LRScheduler.

    Raises:
      ArgumentError: factor is not in [0, 1].

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> _ = optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=4)
    >>> optimizer.lr
    0.5
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0.0 <= factor <= 1.0:
            raise ArgumentError(f"ConstantLR: factor must be in [0, 1], got {factor}.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        if self.last_epoch == 0:
            return float(group["lr"] * self.factor)
        return float(group["lr"] / self.factor if self.last_epoch == self.total_iters else group["lr"])


class LinearLR(LRScheduler):
    """lr goes in a line from start_factor to end_factor of the initial one, over total_iters epochs.

    optimizer, last_epoch: as in LRScheduler.

    Raises:
      ArgumentError: start_factor is not in (0, 1], or end_factor not in [0, 1].

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2).step()
    >>> optimizer.lr
    0.75
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0.0 < start_factor <= 1.0 or not 0.0 <= end_factor <= 1.0:
            raise ArgumentError(
                f"LinearLR: start_factor must be in (0, 1] and end_factor in [0, 1], got {start_factor} and {end_factor}."
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        if self.last_epoch == 0:
            return float(group["lr"] * self.start_factor)
        if self.last_epoch > self.total_iters:
            return float(group["lr"])
        # The factor of epoch t is start_factor + slope t / total_iters; this is that factor over the one before.
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return float(group["lr"] * (1.0 + slope / before))


class ExponentialLR(LRScheduler):
    """lr *= gamma every epoch. optimizer, last_epoch: as in LRScheduler.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5).step()
    >>> optimizer.lr
    0.5
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        return float(group["lr"] * self.gamma if self.last_epoch > 0 else group["lr"])


class PolynomialLR(LRScheduler):
    """lr is the initial one times (1 - epoch / total_iters) ** power, 0 from total_iters on.

    optimizer, last_epoch: as in LRScheduler.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2).step()
    >>> optimizer.lr
    0.5
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return float(group["lr"])
        left = (1.0 - self.last_epoch / self.total_iters) / (1.0 - (self.last_epoch - 1) / self.total_iters)
        return float(group["lr"] * left**self.power)


class CosineAnnealingLR(LRScheduler):
    """lr falls from the initial one to eta_min along half a cosine over T_max epochs, and rises again after that.

    Source: Loshchilov, Hutter 2016, arXiv:1608.03983, eq. 5. optimizer, last_epoch: as in LRScheduler.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2).step()
    >>> round(optimizer.lr, 3)
    0.5
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = at_least("CosineAnnealingLR", "T_max", T_max, 1), eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        if self.last_epoch == 0:
            return float(group["lr"])
        # Above eta_min the rate is height (1 + cos(pi t / T_max)) / 2: it changes by the quotient of two of these.
        height = self.base_lrs[index] - self.eta_min
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the one before is 0, and has no quotient
            return float(group["lr"] + height * (1.0 - math.cos(math.pi / self.T_max)) / 2)
        now, before = (1.0 + math.cos(math.pi * epoch / self.T_max) for epoch in (self.last_epoch, self.last_epoch - 1))
        return float(now / before * (group["lr"] - self.eta_min) + self.eta_min)


# ---- from the rate at the start ----
class CosineAnnealingWarmRestarts(LRScheduler):
    """lr falls along half a cosine to eta_min, again and again: over T_0 epochs, then T_0 T_mult, T_0 T_mult^2, ...

    Source: Loshchilov, Hutter 2016, arXiv:1608.03983, eq. 5. optimizer, last_epoch: as in LRScheduler.

    Raises:
      ArgumentError: T_0 or T_mult is below 1.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2).step()
    >>> round(optimizer.lr, 3)
    0.5
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 < 1 or T_mult < 1:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: T_0 and T_mult must be at least 1, got {T_0} and {T_mult}.")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        place, length = self.last_epoch, self.T_0
        while place >= length:
            place, length = place - length, length * self.T_mult
            if self.T_mult == 1:
                place %= length
        return self.eta_min + (self.base_lrs[index] - self.eta_min) * (1.0 + math.cos(math.pi * place / length)) / 2


# ---- from what is measured ----
class ReduceLROnPlateau(Shown):
    """lr *= factor when a measured value has not become better for more than `patience` epochs.

    Args:
      optimizer:       whose rates are set
      mode:            "min": less is better; "max": more
      factor:          below 1
      patience:        epochs without progress that are allowed
      threshold:       what counts as progress
      threshold_mode:  "rel": threshold is a fraction of the best value; "abs": an amount
      cooldown:        epochs after a fall in which nothing is counted
      min_lr:          least rate, or one for each group
      eps:             a fall by less is left out

    Raises:
      ArgumentError: factor is not below 1, another mode, or as many min_lr as another number of groups.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    >>> for loss in (1.0, 1.0):
    ...     schedule.step(loss)
    >>> optimizer.lr
    0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ):
        if not factor < 1.0:
            raise ArgumentError(f"ReduceLROnPlateau: factor must be below 1, got {factor}.")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                f'ReduceLROnPlateau: mode is "min" or "max", threshold_mode "rel" or "abs", got {mode!r} and'
                f" {threshold_mode!r}."
            )
        self.min_lrs = each_group("ReduceLROnPlateau", optimizer, "min_lr", min_lr)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs, self.cooldown_counter, self.last_epoch = 0, 0, 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Takes in the value of an epoch, the next one or `epoch`; `metrics`: a number, or a scalar tensor.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(2.0)
        >>> optimizer.lr
        1.0
        """
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        better = self._is_better(value)
        self.best = value if better else self.best
        self.num_bad_epochs = 0 if better else self.num_bad_epochs + 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                rate = max(group["lr"] * self.factor, least)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, value: float) -> bool:
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "rel":
            return (value - self.best * (1.0 + sign * self.threshold)) * sign > 0
        return (value - (self.best + sign * self.threshold)) * sign > 0

    def get_last_lr(self) -> list[float]:
        """Returns the rates of the groups.

        >>> optim.lr_scheduler.ReduceLROnPlateau(optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)).get_last_lr()
        [1.0]
        """
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Returns all but the optimizer.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ReduceLROnPlateau(optimizer).state_dict()["num_bad_epochs"]
        0
        """
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict() returned.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ReduceLROnPlateau(optimizer).load_state_dict({"best": 0.5})
        """
        vars(self).update(saved_state(self, state_dict))
