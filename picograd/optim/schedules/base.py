"""Schedules: learning rates that change from epoch to epoch.

In:    an optimizer
Out:   new learning rates in its groups, which are buffers: no plan is made anew
Next:  picograd/optim/schedules/shapes.py

Each rate is a formula of the number of the epoch and of the rates at the start, so that it can be set to any epoch; where
PyTorch has no formula, but what follows from the rate before, it is the same here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.optim.groups import ParamGroup
from picograd.optim.optimizer import Optimizer


class LRScheduler:
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
        """Returns the rate of a group for the epoch self.last_epoch."""
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
        for number in range(epoch + 1):  # rates that follow from the one before are found again
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
        vars(self).update(state_dict)

    def for_each(self, name: str, value: Any) -> list[Any]:
        """Returns one value for each group, `value` being one for all or a list; `name` is for the error.

        Raises:
          ArgumentError: the list is as long as another number of groups.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ExponentialLR(optimizer, 0.5).for_each("gamma", 0.5)
        [0.5]
        """
        groups = len(self.optimizer.param_groups)
        values = list(value) if isinstance(value, Iterable) else [value] * groups
        if len(values) != groups:
            raise ArgumentError(f"{type(self).__name__}: {name} has {len(values)} values for {groups} groups.")
        return values


def _has_function(value: Any) -> bool:
    return callable(value) or (isinstance(value, (list, tuple)) and any(_has_function(part) for part in value))


class LambdaLR(LRScheduler):
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

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ):
        self.optimizer = optimizer
        self.lr_lambdas: list[Callable[[int], float]] = self.for_each("lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        return self.base_lrs[index] * self.lr_lambdas[index](self.last_epoch)


class MultiplicativeLR(LRScheduler):
    """lr *= lr_lambda(epoch) from epoch 1 on; a list has a function for each group.

    optimizer, lr_lambda, last_epoch are those of LambdaLR.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5).step()
    >>> optimizer.lr
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ):
        self.optimizer = optimizer
        self.lr_lambdas: list[Callable[[int], float]] = self.for_each("lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def _rate(self, index: int, group: ParamGroup) -> float:
        return float(group["lr"] * (self.lr_lambdas[index](self.last_epoch) if self.last_epoch > 0 else 1.0))


class SequentialLR(LRScheduler):
    """One schedule after the other: schedule i + 1 begins anew at epoch milestones[i].

    Args:
      optimizer:   that of the schedules
      schedulers:  in order
      milestones:  rising epochs, one less than schedulers
      last_epoch:  as in LRScheduler

    Raises:
      ArgumentError: another number of milestones, or a schedule of another optimizer.

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
        _check_optimizer("SequentialLR", optimizer, schedulers)
        self.optimizer, self.schedulers, self.milestones = optimizer, list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:  # what the schedules have done when they were made is undone
            group["lr"] = group["initial_lr"]
        for schedule in schedulers:
            schedule.last_epoch -= 1
        schedulers[0].step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch, with the schedule whose turn it is.

        Raises:
          ArgumentError: `epoch` is given.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> one = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> optim.lr_scheduler.SequentialLR(optimizer, [one], []).step()
        >>> optimizer.lr
        0.5
        """
        if epoch is not None:
            raise ArgumentError(f"SequentialLR: step() goes on by one epoch only, got {epoch}.")
        self.last_epoch += 1
        index = sum(self.last_epoch >= milestone for milestone in self.milestones)
        schedule = self.schedulers[index]
        schedule.step(0 if index and self.last_epoch == self.milestones[index - 1] else None)
        self._last_lr = schedule.get_last_lr()

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
        """Takes over what state_dict() returned.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = optim.lr_scheduler.SequentialLR(optimizer, [optim.lr_scheduler.ExponentialLR(optimizer, 0.5)], [])
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        for schedule, state in zip(self.schedulers, state_dict["_schedulers"], strict=True):
            schedule.load_state_dict(state)
        vars(self).update({name: value for name, value in state_dict.items() if name != "_schedulers"})


class ChainedScheduler(LRScheduler):
    """Several schedules at once, one after the other in every epoch: their factors multiply.

    Args:
      schedulers:  of one optimizer
      optimizer:   that of the schedules, if given

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
        self.optimizer = optimizer or schedulers[0].optimizer
        _check_optimizer("ChainedScheduler", self.optimizer, schedulers)
        self.schedulers = list(schedulers)
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch with all schedules.

        Raises:
          ArgumentError: `epoch` is given.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> optim.lr_scheduler.ChainedScheduler([optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]).step()
        >>> optimizer.lr
        0.5
        """
        if epoch is not None:
            raise ArgumentError(f"ChainedScheduler: step() goes on by one epoch only, got {epoch}.")
        for schedule in self.schedulers:
            schedule.step()
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    state_dict, load_state_dict = SequentialLR.state_dict, SequentialLR.load_state_dict


def _check_optimizer(name: str, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
    for index, schedule in enumerate(schedulers):
        if schedule.optimizer is not optimizer:
            raise ArgumentError(f"{name}: schedule {index} belongs to another optimizer.")
