"""Schedules: learning rates that change from epoch to epoch.

In:    an optimizer
Out:   new learning rates in its groups, which are buffers: no plan is made anew
Next:  picograd/optim/schedules/combined.py

A schedule says, in `_rate`, the rate of a group for an epoch. Some compute it from the rate before, group["lr"], so that
several of them can work on one optimizer, each with its own factor; others from the rate at the start, self.base_lrs. Which
do which is as in PyTorch, since it decides what a rate becomes that somebody else has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from picograd.annotations import Shown
from picograd.errors import ArgumentError
from picograd.optim.groups import ParamGroup
from picograd.optim.optimizer import Optimizer
from picograd.tensor.arguments import saved_state

__all__ = ["LRScheduler", "LambdaLR", "MultiplicativeLR"]


class LRScheduler(Shown):
    """Base: counts epochs and sets the learning rates of an optimizer's groups.

    Args:
      optimizer:   whose rates are set; at once, to those of the first epoch
      last_epoch:  -1 for a new start; else the last epoch that was done: groups have an "initial_lr"

    Raises:
      ArgumentError: last_epoch is not -1, and a group has no initial_lr.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = optim.lr_scheduler.StepLR(optimizer, step_size=2)
    >>> for epoch in range(3):
    ...     optimizer.step()
    ...     schedule.step()
    >>> round(optimizer.lr, 3), schedule.last_epoch
    (0.1, 3)
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(f"{type(self).__name__}: last_epoch is {last_epoch}, but a group has no initial_lr.")
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        self.step()

    def _rate(self, index: int, group: ParamGroup) -> float:
        """Returns the rate of group number `index` for the epoch self.last_epoch; group["lr"] is the one before."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(); define it.")

    def get_lr(self) -> list[float]:
        """Returns the rates for the epoch self.last_epoch, one for each group; what a subclass of users defines.

        >>> class Halved(optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [rate / 2**self.last_epoch for rate in self.base_lrs]
        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> Halved(optimizer).step()
        >>> optimizer.lr
        0.5
        """
        return [self._rate(index, group) for index, group in enumerate(self.optimizer.param_groups)]

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch, or to `epoch`, and sets the rates.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ExponentialLR(optimizer, 0.5).step()
        >>> optimizer.lr
        0.5
        """
        if epoch is None:
            return self._go_to(self.last_epoch + 1)
        for group, rate in zip(self.optimizer.param_groups, self.base_lrs):
            group["lr"] = rate
        for number in range(epoch + 1):  # a rate may follow from the one before
            self._go_to(number)
        return None

    def _go_to(self, epoch: int) -> None:
        self.last_epoch = epoch
        rates = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate
        self._last_lr = rates

    def get_last_lr(self) -> list[float]:
        """Returns the rates that were set last, one for each group.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ExponentialLR(optimizer, 0.5).get_last_lr()
        [1.0]
        """
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Returns all but the optimizer and functions.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ExponentialLR(optimizer, 0.5).state_dict()["last_epoch"]
        0
        """
        return {name: value for name, value in vars(self).items() if name != "optimizer" and not _has_function(value)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict() returned; the rates themselves are part of the optimizer's state.

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
    """Returns one value for each group, `value` being one for all or a list; `name` is for the error.

    Raises:
      ArgumentError: the list is as long as another number of groups.
    """
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
    if len(values) != groups:
        raise ArgumentError(f"{schedule}: {name} has {len(values)} values for {groups} groups.")
    return values


# ---- rates by the user's functions ----
class _OfFunctions(LRScheduler):
    """What schedules of functions share: lr_lambdas, a function for each group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ):
        self.lr_lambdas: list[Callable[[int], float]] = each_group(type(self).__name__, optimizer, "lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns all but the optimizer and functions; of an object that is called like one, its attributes.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5).state_dict()["lr_lambdas"]
        [None]
        """
        attributes = [None if isinstance(each, FunctionType) else dict(vars(each)) for each in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": attributes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what state_dict(), or that of PyTorch's, returned; functions stay as they are.

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
    """lr = initial lr * lr_lambda(epoch); a list has a function for each group.

    Args:
      optimizer:   whose rates are set
      lr_lambda:   epoch -> factor, or a list of these
      last_epoch:  as in LRScheduler

    Raises:
      ArgumentError: as many functions as another number of groups.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)).step()
    >>> optimizer.lr
    0.5
    """

    def _rate(self, index: int, group: ParamGroup) -> float:
        return self.base_lrs[index] * self.lr_lambdas[index](self.last_epoch)


class MultiplicativeLR(_OfFunctions):
    """lr *= lr_lambda(epoch) from epoch 1 on; a list has a function for each group.

    optimizer, lr_lambda, last_epoch are those of LambdaLR.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5).step()
    >>> optimizer.lr
    0.5
    """

    def _rate(self, index: int, group: ParamGroup) -> float:
        return float(group["lr"] * (self.lr_lambdas[index](self.last_epoch) if self.last_epoch > 0 else 1.0))
