"""Schedules of learning rates and momenta by epoch. New rates are written to buffers, so plans serve all of them.

`_rate` returns the rate of a group for an epoch. Some schedules compute it from the previous rate, group["lr"], so that
several can act on one optimizer, each with its own factor; others from the initial rate, self.base_lrs. The choice is
PyTorch's, since it decides what happens to a rate that the user has changed. A schedule that continues after `last_epoch`
finds its first rate in the groups; those of the former kind keep it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from picograd.annotations import Shown
from picograd.errors import ArgumentError
from picograd.optim.optimizer import Optimizer, ParamGroup
from picograd.tensor.arguments import at_least, saved_state
from picograd.tensor.build import is_integer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


class LRScheduler(Shown):
    """Base: counts epochs and sets the learning rates of an optimizer's groups.

    Args:
      optimizer:   the optimizer whose rates are set, at once to those of the first epoch
      last_epoch:  -1 for a new start; else the last finished epoch, and groups have an "initial_lr"

    Raises:
      ArgumentError: last_epoch is not -1, and a group lacks initial_lr.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2)
    >>> for epoch in range(3):
    ...     optimizer.step()
    ...     schedule.step()
    >>> round(optimizer.lr, 3), schedule.last_epoch
    (0.1, 3)
    """

    follows = True  # the rate is computed from the previous one

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group.rate())
            elif "initial_lr" not in group:
                raise ArgumentError(f"{type(self).__name__}: last_epoch is {last_epoch}, but a group has no initial_lr.")
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch: Any = last_epoch  # an int, unless step() was given a fraction
        self._last_lr: list[float] = []
        self._is_initial = True
        self.step()
        self._is_initial = False

    def _rate(self, index: int, group: ParamGroup) -> float:
        """Returns the rate of group `index` for the epoch self.last_epoch; group["lr"] is the previous rate."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(); define it.")

    def get_lr(self) -> list[float]:
        """Returns the rates for the epoch self.last_epoch, one per group; users' subclasses define it.

        >>> class Halved(optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [rate / 2**self.last_epoch for rate in self.base_lrs]
        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> Halved(optimizer).step()
        >>> optimizer.lr
        0.5
        """
        return [self._rate(index, group) for index, group in enumerate(self.optimizer.param_groups)]

    def step(self, epoch: float | None = None) -> None:
        """Advances to the next epoch, or to `epoch`, and sets the rates.

        Args:
          epoch:  may be a fraction if rates depend on the initial one: LambdaLR, CosineAnnealingWarmRestarts, CyclicLR

        Raises:
          ArgumentError: a fraction for rates that are computed from the previous one.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ExponentialLR(optimizer, 0.5).step()
        >>> optimizer.lr
        0.5
        """
        if epoch is None:
            return self._go_to(self.last_epoch + 1)
        if not self.follows:
            return self._go_to(epoch)
        if not is_integer(epoch):
            raise ArgumentError(f"{type(self).__name__}: a rate follows from the one before; epoch {epoch} is not whole.")
        for group, rate in zip(self.optimizer.param_groups, self.base_lrs):
            group.set_rate(rate)
        for number in range(int(epoch) + 1):
            self._go_to(number)
        return None

    def _go_to(self, epoch: float) -> None:
        self.last_epoch = epoch
        rates = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates):
            group.set_rate(rate)
        self._last_lr = rates

    def get_last_lr(self) -> list[float]:
        """Returns the rates set last, one per group.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ExponentialLR(optimizer, 0.5).get_last_lr()
        [1.0]
        """
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything except the optimizer and functions.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ExponentialLR(optimizer, 0.5).state_dict()["last_epoch"]
        0
        """
        return {name: value for name, value in vars(self).items() if name != "optimizer" and not _has_function(value)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a result of state_dict(); the rates themselves are in the optimizer's state.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        >>> schedule.load_state_dict({"last_epoch": 3})
        >>> schedule.last_epoch
        3
        """
        vars(self).update(saved_state(self, state_dict))


def _has_function(value: Any) -> bool:
    return callable(value) or (isinstance(value, (list, tuple)) and any(_has_function(part) for part in value))


def each_group(schedule: str, optimizer: Optimizer, name: str, value: Any) -> list[Any]:
    """Returns one value per group from a single `value` or a list; errors call it `name`.

    Raises:
      ArgumentError: the list's length is not the number of groups.
    """
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
    if len(values) != groups:
        raise ArgumentError(f"{schedule}: {name} has {len(values)} values for {groups} groups.")
    return values


# ---- rates by the user's functions ----
class _OfFunctions(LRScheduler):
    """Base of schedules by functions: lr_lambdas, one per group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ):
        self.lr_lambdas: list[Callable[[int], float]] = each_group(type(self).__name__, optimizer, "lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything except the optimizer and functions; for callable objects their attributes.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5).state_dict()["lr_lambdas"]
        [None]
        """
        attributes = [None if isinstance(each, FunctionType) else dict(vars(each)) for each in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": attributes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a result of state_dict(), or of PyTorch's; functions are kept.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)
        >>> schedule.load_state_dict({"last_epoch": 3, "lr_lambdas": [None]})
        >>> schedule.last_epoch
        3
        """
        state = saved_state(self, state_dict)
        for function, attributes in zip(self.lr_lambdas, state.pop("lr_lambdas", ())):
            if attributes is not None:
                vars(function).update(attributes)
        super().load_state_dict(state)


class LambdaLR(_OfFunctions):
    """lr = initial lr * lr_lambda(epoch); a list has a function per group.

    Args:
      optimizer:   the optimizer whose rates are set
      lr_lambda:   epoch -> factor, or a list of these
      last_epoch:  as in LRScheduler

    Raises:
      ArgumentError: the number of functions is not that of groups.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)).step()
    >>> optimizer.lr
    0.5
    """

    follows = False

    def _rate(self, index: int, group: ParamGroup) -> float:
        return self.base_lrs[index] * self.lr_lambdas[index](self.last_epoch)


class MultiplicativeLR(_OfFunctions):
    """lr *= lr_lambda(epoch) from epoch 1 on; a list has a function per group.

    optimizer, lr_lambda, last_epoch: as in LambdaLR.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5).step()
    >>> optimizer.lr
    0.5
    """

    def _rate(self, index: int, group: ParamGroup) -> float:
        stays = self._is_initial or self.last_epoch == 0
        return float(group["lr"] * (1.0 if stays else self.lr_lambdas[index](self.last_epoch)))


# ---- steps, lines, powers, cosines: from the rate before ----
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
    """lr *= gamma at each epoch of `milestones`, as often as it is listed. optimizer, last_epoch: as in LRScheduler.

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
    """lr is `factor` times the initial one before epoch total_iters. optimizer, last_epoch: as in LRScheduler.

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
    """lr is interpolated linearly from start_factor to end_factor times the initial one over total_iters epochs.

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
        if self._is_initial or self.last_epoch > self.total_iters:
            return float(group["lr"])
        # The factor of epoch t is start_factor + slope t / total_iters; this is its quotient by the previous factor.
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
        return float(group["lr"] if self._is_initial or self.last_epoch == 0 else group["lr"] * self.gamma)


class PolynomialLR(LRScheduler):
    """lr is the initial one times (1 - epoch / total_iters) ** power; 0 from total_iters on.

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
        if self._is_initial or self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return float(group["lr"])
        left = (1.0 - self.last_epoch / self.total_iters) / (1.0 - (self.last_epoch - 1) / self.total_iters)
        return float(group["lr"] * left**self.power)


class CosineAnnealingLR(LRScheduler):
    """lr follows a cosine from the initial one to eta_min in T_max epochs, then back.

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
        if self._is_initial or self.last_epoch == 0:
            return float(group["lr"])
        # Above eta_min the rate is height (1 + cos(pi t / T_max)) / 2: it changes by the quotient of two such values.
        height = self.base_lrs[index] - self.eta_min
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the previous one is 0, so there is no quotient
            return float(group["lr"] + height * (1.0 - math.cos(math.pi / self.T_max)) / 2)
        now, before = (1.0 + math.cos(math.pi * epoch / self.T_max) for epoch in (self.last_epoch, self.last_epoch - 1))
        return float(now / before * (group["lr"] - self.eta_min) + self.eta_min)


# ---- warm restarts: from the rate at the start ----
class CosineAnnealingWarmRestarts(LRScheduler):
    """lr falls along half a cosine to eta_min, repeatedly: over T_0 epochs, then T_0 T_mult, T_0 T_mult^2, ...

    Source: Loshchilov, Hutter 2016, arXiv:1608.03983, eq. 5. optimizer, last_epoch: as in LRScheduler.

    Raises:
      ArgumentError: T_0 or T_mult is below 1.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2).step()
    >>> round(optimizer.lr, 3)
    0.5
    """

    follows = False

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


# ---- plateaus of a measured value ----
class ReduceLROnPlateau(Shown):
    """lr *= factor when a metric has not improved for more than `patience` epochs.

    Args:
      optimizer:       the optimizer whose rates are set
      mode:            "min": lower is better; "max": higher
      factor:          below 1
      patience:        number of epochs without improvement that are tolerated
      threshold:       least improvement that counts
      threshold_mode:  "rel": threshold is a fraction of the best value; "abs": an amount
      cooldown:        number of epochs after a reduction in which nothing is counted
      min_lr:          lower bound of the rate, or one per group
      eps:             smaller reductions are left out

    Raises:
      ArgumentError: factor is not below 1, an unknown mode, or not one min_lr per group.

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
        """Takes the metric of the next epoch, or of `epoch`; `metrics`: a number, or a 0-d tensor.

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
                rate = max(group.rate() * self.factor, least)
                if group.rate() - rate > self.eps:
                    group.set_rate(rate)
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
        """Returns everything except the optimizer.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ReduceLROnPlateau(optimizer).state_dict()["num_bad_epochs"]
        0
        """
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a result of state_dict().

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ReduceLROnPlateau(optimizer).load_state_dict({"best": 0.5})
        """
        vars(self).update(saved_state(self, state_dict))


# ---- cycles ----
class CyclicLR(LRScheduler):
    """lr moves linearly between base_lr and max_lr, and momentum in the opposite direction.

    Source: Smith 2015, arXiv:1506.01186, section 3.

    Args:
      optimizer:       the optimizer whose rates are set
      base_lr:         lowest rate, or one per group
      max_lr:          highest rate, or one per group
      step_size_up:    steps from base_lr to max_lr
      step_size_down:  steps back; by default step_size_up
      mode:            "triangular"; "triangular2": half the height in each cycle; "exp_range": height gamma ** steps
      gamma:           base of "exp_range"
      scale_fn:        height, instead of mode: a function of the cycle's number, or of steps
      scale_mode:      "cycle" or "iterations": the argument of scale_fn
      cycle_momentum:  change momentum (or the first beta), too
      base_momentum:   lowest momentum, or one per group
      max_momentum:    highest momentum, or one per group
      last_epoch:      as in LRScheduler

    Raises:
      ArgumentError: an unknown mode, or the optimizer has no momentum.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0, momentum=0.9)
    >>> optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=1.0, step_size_up=2).step()
    >>> optimizer.lr
    0.5
    """

    follows = False

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ):
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(f'CyclicLR: mode must be "triangular", "triangular2" or "exp_range", got {mode!r}.')
        self.mode, self.gamma = mode, gamma
        self.scale_fn, self.scale_mode, self.cycle_momentum = scale_fn, scale_mode, cycle_momentum
        down = step_size_up if step_size_down is None else step_size_down
        if step_size_up + down <= 0:
            raise ArgumentError(f"CyclicLR: a cycle needs a step, got step_size_up={step_size_up}, step_size_down={down}.")
        self.total_size, self.step_ratio = float(step_size_up + down), step_size_up / (step_size_up + down)
        self.max_lrs = each_group("CyclicLR", optimizer, "max_lr", max_lr)
        for group, rate in zip(optimizer.param_groups, each_group("CyclicLR", optimizer, "base_lr", base_lr)):
            if last_epoch == -1:
                group["initial_lr"] = rate
                group.set_rate(rate)
        self.base_momentums = each_group("CyclicLR", optimizer, "base_momentum", base_momentum)
        self.max_momentums = each_group("CyclicLR", optimizer, "max_momentum", max_momentum)
        if cycle_momentum:
            for group in optimizer.param_groups:
                _let_momentum_change("CyclicLR", group)
        super().__init__(optimizer, last_epoch)

    def _scale(self, cycle: float) -> float:
        """Returns the height of this cycle."""
        if self.scale_fn is not None:
            return self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.mode == "exp_range":
            return float(self.gamma**self.last_epoch)
        return 1.0 if self.mode == "triangular" else 0.5 ** (cycle - 1)

    def _rate(self, index: int, group: ParamGroup) -> float:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        height = place / self.step_ratio if place <= self.step_ratio else (place - 1) / (self.step_ratio - 1)
        scale = height * self._scale(cycle)
        if self.cycle_momentum:
            least, greatest = self.base_momentums[index], self.max_momentums[index]
            _set_momentum(group, greatest - (greatest - least) * scale)
        base = self.base_lrs[index]
        return float(base + (self.max_lrs[index] - base) * scale)


def _phases_of_a_cycle(total_steps: int, pct_start: float, three_phase: bool) -> list[tuple[float, str, str]]:
    """Returns (last step, start, end) of each phase of OneCycleLR; start and end are names of rates in `_rate`."""
    rise, end = float(pct_start * total_steps) - 1, total_steps - 1.0
    if three_phase:
        return [(rise, "start", "peak"), (float(2 * pct_start * total_steps) - 2, "peak", "start"), (end, "start", "end")]
    return [(rise, "start", "peak"), (end, "peak", "end")]


class OneCycleLR(LRScheduler):
    """lr rises from max_lr / div_factor to max_lr, then falls far below the initial rate; momentum moves the other way.

    Source: Smith, Topin 2017, arXiv:1708.07120, section 2.

    Args:
      optimizer:         the optimizer whose rates are set
      max_lr:            highest rate, or one per group
      total_steps:       length of the cycle; or epochs times steps_per_epoch
      epochs:            with steps_per_epoch: replaces total_steps
      steps_per_epoch:   see epochs
      pct_start:         fraction of the steps in which the rate rises
      anneal_strategy:   "cos" or "linear"
      cycle_momentum:    change momentum (or the first beta), too
      base_momentum:     lowest momentum, or one per group
      max_momentum:      highest momentum, or one per group
      div_factor:        max_lr / initial rate
      final_div_factor:  initial rate / final rate
      three_phase:       fall to the initial rate in as many steps as it rose, then to the final rate
      last_epoch:        as in LRScheduler

    Raises:
      ArgumentError: no number of steps, an unknown strategy, a fraction outside [0, 1], or an optimizer without momentum.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0, momentum=0.9)
    >>> _ = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> round(optimizer.lr, 3)
    0.04
    """

    follows = False

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ArgumentError("OneCycleLR: give total_steps, or epochs and steps_per_epoch.")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0.0 <= pct_start <= 1.0 or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"OneCycleLR: total_steps must be positive, pct_start in [0, 1] and anneal_strategy cos or linear, got"
                f" {total_steps}, {pct_start} and {anneal_strategy!r}."
            )
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self.cycle_momentum = cycle_momentum
        self.peaks = each_group("OneCycleLR", optimizer, "max_lr", max_lr)
        greatest = each_group("OneCycleLR", optimizer, "max_momentum", max_momentum)
        least = each_group("OneCycleLR", optimizer, "base_momentum", base_momentum)
        self.momentums = list(zip(greatest, least))
        self.phases = _phases_of_a_cycle(total_steps, pct_start, three_phase)
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        if div_factor == 0 or final_div_factor == 0:
            raise ArgumentError(f"OneCycleLR: rates are divided by {div_factor} and {final_div_factor}; neither may be 0.")
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, self.peaks):
                group["initial_lr"] = peak / div_factor
        if cycle_momentum:
            for group in optimizer.param_groups:
                _let_momentum_change("OneCycleLR", group)
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        """Returns the rate at this step of its phase; sets the momentum, too, if it cycles."""
        if self.last_epoch > self.total_steps:
            raise ArgumentError(f"OneCycleLR: step {self.last_epoch} is beyond the {self.total_steps} of the cycle.")
        number = next((i for i, phase in enumerate(self.phases) if self.last_epoch <= phase[0]), len(self.phases) - 1)
        first = self.phases[number - 1][0] if number else 0.0
        last, begin, end = self.phases[number]
        part = (self.last_epoch - first) / (last - first)
        start = self.peaks[index] / self.div_factor
        rates = {"start": start, "peak": self.peaks[index], "end": start / self.final_div_factor}
        if self.cycle_momentum:
            greatest, least = self.momentums[index]
            levels = {"start": greatest, "peak": least, "end": greatest}
            _set_momentum(group, self._between(levels[begin], levels[end], part))
        return self._between(rates[begin], rates[end], part)

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)


def _let_momentum_change(name: str, group: ParamGroup) -> None:
    """Prepares momentum, or betas, for changes; ArgumentError if the optimizer has neither."""
    if "momentum" not in group and "betas" not in group:
        raise ArgumentError(f"{name}: the optimizer has no momentum.", hint="cycle_momentum=False")
    group.let_change("betas" if "betas" in group else "momentum")


def _set_momentum(group: ParamGroup, value: Any) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


# ---- several schedules ----
class _Combined(LRScheduler):
    """Base of schedules made of others: `schedulers` of one optimizer, whose state is part of its own."""

    schedulers: list[LRScheduler]

    def _take(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        """Stores schedules, all of which must be of one optimizer."""
        for index, schedule in enumerate(schedulers):
            if schedule.optimizer is not optimizer:
                raise ArgumentError(f"{type(self).__name__}: schedule {index} belongs to another optimizer.")
        self.optimizer, self.schedulers = optimizer, list(schedulers)

    def _check_step(self, epoch: float | None) -> None:
        if epoch is not None:
            raise ArgumentError(f"{type(self).__name__}: step() goes on by one epoch only, got {epoch}.")

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, with that of the schedules.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> one = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> optim.lr_scheduler.SequentialLR(optimizer, [one], []).state_dict()["last_epoch"]
        0
        """
        state = {name: value for name, value in vars(self).items() if name not in ("optimizer", "schedulers")}
        return {**state, "_schedulers": [schedule.state_dict() for schedule in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a result of state_dict().

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = optim.lr_scheduler.SequentialLR(optimizer, [optim.lr_scheduler.ExponentialLR(optimizer, 0.5)], [])
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        state_dict = saved_state(self, state_dict, "_schedulers")
        for schedule, state in zip(self.schedulers, state_dict["_schedulers"], strict=True):
            schedule.load_state_dict(state)
        vars(self).update({name: value for name, value in state_dict.items() if name != "_schedulers"})


class SequentialLR(_Combined):
    """Schedules one after the other: schedule i + 1 starts from its own epoch 0 at epoch milestones[i].

    Args:
      optimizer:   the optimizer of the schedules
      schedulers:  in order
      milestones:  increasing epochs, one fewer than schedulers
      last_epoch:  as in LRScheduler

    Raises:
      ArgumentError: a wrong number of milestones, or a schedule of a different optimizer.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> warm = optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
    >>> falling = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    >>> schedule = optim.lr_scheduler.SequentialLR(optimizer, [warm, falling], [1])
    >>> before = optimizer.lr
    >>> schedule.step()
    >>> before, optimizer.lr
    (0.1, 1.0)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ):
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedules need one milestone less, got {list(milestones)}."
            )
        self._take(optimizer, schedulers)
        self.milestones, self.last_epoch = list(milestones), last_epoch + 1
        for group in optimizer.param_groups:  # undoes the steps that the schedules took in their constructors
            group.set_rate(group["initial_lr"])
        for schedule in schedulers:
            schedule.last_epoch -= 1
        schedulers[0].step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self, epoch: float | None = None) -> None:
        """Advances to the next epoch, with the schedule of that epoch.

        Raises:
          ArgumentError: `epoch` is given.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> one = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> optim.lr_scheduler.SequentialLR(optimizer, [one], []).step()
        >>> optimizer.lr
        0.5
        """
        self._check_step(epoch)
        self.last_epoch += 1
        index = sum(self.last_epoch >= milestone for milestone in self.milestones)
        schedule = self.schedulers[index]
        schedule.step(0 if index and self.last_epoch == self.milestones[index - 1] else None)
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_Combined):
    """Several schedules, applied one after the other in each epoch: their factors multiply.

    Args:
      schedulers:  schedules of one optimizer
      optimizer:   the optimizer of the schedules, if given

    Raises:
      ArgumentError: no schedule, or schedules of different optimizers.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedules = [optim.lr_scheduler.ExponentialLR(optimizer, gamma) for gamma in (0.5, 0.5)]
    >>> optim.lr_scheduler.ChainedScheduler(schedules).step()
    >>> optimizer.lr
    0.25
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise ArgumentError("ChainedScheduler: got no schedules.")
        self._take(optimizer or schedulers[0].optimizer, schedulers)
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: float | None = None) -> None:
        """Advances all schedules to the next epoch.

        Raises:
          ArgumentError: `epoch` is given.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ChainedScheduler([optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]).step()
        >>> optimizer.lr
        0.5
        """
        self._check_step(epoch)
        for schedule in self.schedulers:
            schedule.step()
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]


_LRScheduler = LRScheduler
