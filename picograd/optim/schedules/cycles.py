"""Learning rates and momenta that go up and down: CyclicLR and OneCycleLR.

In:    an optimizer
Out:   new learning rates and momenta in its groups
Next:  picograd/optim/swa_utils.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from picograd.errors import ArgumentError
from picograd.optim.groups import ParamGroup
from picograd.optim.optimizer import Optimizer
from picograd.optim.schedules.base import LRScheduler, each_group

__all__ = ["CyclicLR", "OneCycleLR"]


class CyclicLR(LRScheduler):
    """lr goes in lines between base_lr and max_lr, and momentum the other way.

    Source: Smith 2015, arXiv:1506.01186, section 3.

    Args:
      optimizer:       whose rates are set
      base_lr:         least rate, or one for each group
      max_lr:          greatest rate, or one for each group
      step_size_up:    steps from base_lr to max_lr
      step_size_down:  steps back; as many unless given
      mode:            "triangular"; "triangular2": half as high in each cycle; "exp_range": gamma ** steps as high
      gamma:           of "exp_range"
      scale_fn:        how high, in place of mode: a function of the number of the cycle, or of steps
      scale_mode:      "cycle" or "iterations": what scale_fn gets
      cycle_momentum:  momentum (or the first beta) goes, too
      base_momentum:   least momentum, or one for each group
      max_momentum:    greatest momentum, or one for each group
      last_epoch:      as in LRScheduler

    Raises:
      ArgumentError: another mode, or the optimizer has no momentum.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0, momentum=0.9)
    >>> optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=1.0, step_size_up=2).step()
    >>> optimizer.lr
    0.5
    """

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
                group["lr"] = group["initial_lr"] = rate
        self.base_momentums = each_group("CyclicLR", optimizer, "base_momentum", base_momentum)
        self.max_momentums = each_group("CyclicLR", optimizer, "max_momentum", max_momentum)
        if cycle_momentum:
            for group in optimizer.param_groups:
                _let_momentum_change("CyclicLR", group)
        super().__init__(optimizer, last_epoch)

    def _scale(self, cycle: float) -> float:
        """Returns how high this cycle goes."""
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


class OneCycleLR(LRScheduler):
    """lr rises from max_lr / div_factor to max_lr, then falls far below the start; momentum goes the other way.

    Source: Smith, Topin 2017, arXiv:1708.07120, section 2.

    Args:
      optimizer:         whose rates are set
      max_lr:            greatest rate, or one for each group
      total_steps:       of the cycle; or epochs times steps_per_epoch
      epochs:            see total_steps
      steps_per_epoch:   see total_steps
      pct_start:         part of the steps in which the rate rises
      anneal_strategy:   "cos" or "linear"
      cycle_momentum:    momentum (or the first beta) goes, too
      base_momentum:     least momentum, or one for each group
      max_momentum:      greatest momentum, or one for each group
      div_factor:        of the start
      final_div_factor:  of the end, below the start
      three_phase:       falls back to the start first, as long as it rose, then to the end
      last_epoch:        as in LRScheduler

    Raises:
      ArgumentError: no number of steps, another strategy, a part outside [0, 1], or an optimizer without momentum.

    >>> optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0, momentum=0.9)
    >>> _ = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> round(optimizer.lr, 3)
    0.04
    """

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
        rise = float(pct_start * total_steps) - 1
        # Each phase: its last step, and from where to where rate and momentum go; the names are those in _rate.
        self.phases = [(rise, "start", "peak")]
        if three_phase:
            self.phases += [(float(2 * pct_start * total_steps) - 2, "peak", "start"), (total_steps - 1.0, "start", "end")]
        else:
            self.phases.append((total_steps - 1.0, "peak", "end"))
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
        """Returns the rate at this step of its phase; where momentum cycles, sets that, too."""
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
    """Prepares the momentum, or the betas, for values that change; ArgumentError where there are none."""
    if "momentum" not in group and "betas" not in group:
        raise ArgumentError(f"{name}: the optimizer has no momentum.", hint="cycle_momentum=False")
    group.let_change("betas" if "betas" in group else "momentum")


def _set_momentum(group: ParamGroup, value: Any) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value
