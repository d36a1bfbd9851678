"""Runs the steps of one workload in one framework, and blocks until they are done.

In:    a `Peer` (one file of bench/peers/) and a workload
Out:   a `Runner`: `step(n)` is what is timed; `losses` and `result` are what is compared
Called by: bench/worker.py, bench/first_step.py
Next:  bench/peers/picograd_.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from bench.workloads import Array, Forward, Training, Workload, make_data

# A tensor of whichever framework: the harness never looks inside.
Handle = Any
Data = list[tuple[Array, ...]]  # see `bench.workloads.make_data`

LONG_CALL_S = 1.5
STACKED_VARIANTS = ("jax_scan",)


class Peer(Protocol):
    """What a file of bench/peers/ offers. A variant is one way to use the framework, e.g. "torch_compile"."""

    VARIANTS: tuple[str, ...]

    def version(self) -> str:
        """The framework's version."""

    def tensor(self, array: Array) -> Handle:
        """A tensor of its own: the framework's memory, its dtypes for class numbers."""

    def train(self, workload: Training, variant: str) -> Callable[[Handle, Handle], Handle]:
        """A function of one batch that does one SGD step and returns the loss, not waiting for it."""

    def forward(self, workload: Forward, variant: str) -> Callable[..., Handle]:
        """A function of the stored operands that returns the result, not waiting for it."""

    def wait(self, handle: Handle) -> None:
        """Blocks until the tensor is computed."""

    def numpy(self, handle: Handle) -> Array:
        """The tensor's values."""

    def tensor_nbytes(self, runner: Runner) -> int | None:
        """Peak bytes of tensors during a step, as the framework counts them; None when it does not."""


class Runner:
    """One workload in one variant of one framework.

    granularity:  steps that one call of the framework does; `step(n)` needs a multiple of it
    """

    granularity = 1

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.position = 0

    def step(self, count: int) -> None:
        """Does `count` steps (training) or calls (forward) and blocks until the last is done."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Makes new operands, untimed, before a sample; training goes on where it was."""


class TrainingRunner(Runner):
    """Takes the batches in turn, one call a step; the state is inside `function`."""

    def __init__(self, peer: Peer, workload: Training, variant: str, data: Data) -> None:
        super().__init__(peer)
        xs, ys = data[0]
        self.batches = [(peer.tensor(x), peer.tensor(y)) for x, y in zip(xs, ys)]
        self.function = peer.train(workload, variant)

    def step(self, count: int) -> None:
        taken, position, function = self.batches, self.position, self.function
        for number in range(position, position + count):
            loss = function(*taken[number % len(taken)])
        self.position = position + count
        self.peer.wait(loss)

    def losses(self, count: int) -> list[float]:
        """Returns the losses of the next `count` steps: called first, those from the start weights."""
        found = []
        for _ in range(count):
            x, y = self.batches[self.position % len(self.batches)]
            found.append(float(self.peer.numpy(self.function(x, y))))
            self.position += 1
        return found


class StackedRunner(Runner):
    """Does one step for each of the stacked batches in a single call of the framework (a scan)."""

    def __init__(self, peer: Peer, workload: Training, variant: str, data: Data) -> None:
        super().__init__(peer)
        self.granularity = workload.num_batches
        xs, ys = data[0]
        self.batches = [(peer.tensor(xs), peer.tensor(ys))]
        self.function = peer.train(workload, variant)

    def step(self, count: int) -> None:
        xs, ys = self.batches[0]
        for _ in range(count // self.granularity):
            losses = self.function(xs, ys)
        self.peer.wait(losses)

    def losses(self, count: int) -> list[float]:
        """Returns the first `count` losses of one call: called first, those from the start weights."""
        return [float(loss) for loss in self.peer.numpy(self.function(*self.batches[0]))[:count]]


class ForwardRunner(Runner):
    """Calls with the next set of operands each time, and waits for each result as a user would."""

    def __init__(self, peer: Peer, workload: Forward, variant: str, data: Data) -> None:
        super().__init__(peer)
        self.arrays = data
        self.function = peer.forward(workload, variant)
        self.refresh()

    def refresh(self) -> None:
        self.operands = [tuple(self.peer.tensor(array) for array in arrays) for arrays in self.arrays]

    def step(self, count: int) -> None:
        taken, position, function, wait = self.operands, self.position, self.function, self.peer.wait
        for number in range(position, position + count):
            wait(function(*taken[number % len(taken)]))
        self.position = position + count

    def result(self) -> Array:
        """Returns the result on operand set 0, from the third call on it: later than any tracing.

        From the first when that took more than LONG_CALL_S.
        """
        for _ in range(3):
            start = time.perf_counter()
            out = self.function(*self.operands[0])
            self.peer.wait(out)
            if time.perf_counter() - start > LONG_CALL_S:
                break
        return self.peer.numpy(out)


def make_runner(peer: Peer, workload: Workload, variant: str, data: Data | None = None) -> Runner:
    """Returns a workload made ready in one variant of a framework; nothing has run yet."""
    data = make_data(workload) if data is None else data
    if isinstance(workload, Forward):
        return ForwardRunner(peer, workload, variant, data)
    if variant in STACKED_VARIANTS:
        return StackedRunner(peer, workload, variant, data)
    return TrainingRunner(peer, workload, variant, data)
