"""Schedules made of others: one after the other, or all at once.

In:    schedules of one optimizer
Out:   new learning rates in its groups
Next:  picograd/optim/schedules/shapes.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.optim.optimizer import Optimizer
from picograd.optim.schedules.base import LRScheduler
from picograd.tensor.arguments import saved_state

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Combined(LRScheduler):
    """What schedules made of others share: `schedulers` of one optimizer, which do the work, and a state with theirs."""

    schedulers: list[LRScheduler]

    def _take(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        """Takes over schedules, all of which must be of one optimizer."""
        for index, schedule in enumerate(schedulers):
            if schedule.optimizer is not optimizer:
                raise ArgumentError(f"{type(self).__name__}: schedule {index} belongs to another optimizer.")
        self.optimizer, self.schedulers = optimizer, list(schedulers)

    def _check_step(self, epoch: int | None) -> None:
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
        """Takes over what state_dict() returned.

        >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = optim.lr_scheduler.SequentialLR(optimizer, [optim.lr_scheduler.ExponentialLR(optimizer, 0.5)], [])
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        state_dict = saved_state(self, state_dict, "_schedulers")
        for schedule, state in zip(self.schedulers, state_dict["_schedulers"], strict=True):
            schedule.load_state_dict(state)
        vars(self).update({name: value for name, value in state_dict.items() if name != "_schedulers"})


class SequentialLR(_Combined):
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
        self._take(optimizer, schedulers)
        self.milestones, self.last_epoch = list(milestones), last_epoch + 1
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
        self._check_step(epoch)
        self.last_epoch += 1
        index = sum(self.last_epoch >= milestone for milestone in self.milestones)
        schedule = self.schedulers[index]
        schedule.step(0 if index and self.last_epoch == self.milestones[index - 1] else None)
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_Combined):
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
        self._take(optimizer or schedulers[0].optimizer, schedulers)
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
        self._check_step(epoch)
        for schedule in self.schedulers:
            schedule.step()
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]
