"""Runs the steps of one workload in one framework, and blocks until they are done.

In:    a `Peer` (one file of bench/peers/) and a workload
Out:   a `Runner`: `step(n)` is what is timed; `values` are what is compared
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from bench.language import Language
from bench.reference import NUM_LOSSES, compared
from bench.singles import Generation, Overhead
from bench.workloads import Array, Forward, Training, Workload, make_data

NOT_COUNTED: dict[str, int | None] = {"kernels": None, "binaries": None}

# A tensor of whichever framework: the harness never looks inside.
Handle = Any
Data = list[tuple[Array, ...]]  # see `bench.workloads.make_data`

LONG_CALL_S = 1.5
STACKED_VARIANTS = ("picograd_loop", "jax_scan")


class Peer(Protocol):
    """What a file of bench/peers/ offers. A variant is one way to use the framework, e.g. "torch_compile"."""

    VARIANTS: tuple[str, ...]

    def version(self) -> str:
        """The framework's version."""

    def tensor(self, array: Array) -> Handle:
        """A tensor of its own: the framework's memory, its dtypes for class numbers."""

    def train(self, workload: Training | Language, variant: str) -> Callable[[Handle, Handle], Handle]:
        """A function of one batch that does one step and returns the loss, not waiting for it.

        In a stacked variant: of all batches, a step for each, the losses.
        """

    def forward(self, workload: Forward | Overhead | Generation, variant: str) -> Callable[..., Handle]:
        """A function of the stored operands that returns the result, not waiting for it.

        Prefill: of a prompt, the last logits. Decode: of nothing, (tokens, logits after them); the cache was filled before.
        In a stacked variant an `Overhead` takes all x at once.
        """

    def wait(self, handle: Handle) -> None:
        """Blocks until the tensor is computed."""

    def numpy(self, handle: Handle) -> Array:
        """The tensor's values."""

    def tensor_nbytes(self, runner: Runner) -> int | None:
        """Peak bytes of tensors during a step, as the framework counts them; None when it does not."""

    def scratch_nbytes(self) -> int | None:
        """How much higher the peak of that step was with what kernels work in; None when the framework does not tell."""

    def count(self, work: Callable[[], None]) -> dict[str, int | None]:
        """Does the work; the kernels it ran, the binaries it compiled or loaded. None where nobody counts."""


def count_nothing(work: Callable[[], None]) -> dict[str, int | None]:
    """`Peer.count` of a framework that counts nothing."""
    work()
    return NOT_COUNTED


def no_nbytes(*_: object) -> int | None:
    """`Peer.tensor_nbytes` and `scratch_nbytes` of a framework that tells neither."""
    return None


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

    def values(self) -> list[float]:
        """Returns what `bench.reference.make_judge` judges: call it first."""
        raise NotImplementedError


class TrainingRunner(Runner):
    """Takes the batches in turn, one call a step; the state is inside `function`."""

    def __init__(self, peer: Peer, workload: Training | Language, variant: str, data: Data) -> None:
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

    def values(self) -> list[float]:
        """Returns the losses of the first steps, from the start weights."""
        found = []
        for _ in range(NUM_LOSSES):
            x, y = self.batches[self.position % len(self.batches)]
            found.append(float(self.peer.numpy(self.function(x, y))))
            self.position += 1
        return found


class StackedRunner(Runner):
    """Does one step for each of the stacked batches in a single call of the framework (a scan)."""

    def __init__(self, peer: Peer, workload: Training | Language, variant: str, data: Data) -> None:
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

    def values(self) -> list[float]:
        """Returns the losses of the first steps of one call, from the start weights."""
        return [float(loss) for loss in self.peer.numpy(self.function(*self.batches[0]))[:NUM_LOSSES]]


class ForwardRunner(Runner):
    """Calls with the next set of operands each time, and waits for each result as a user would."""

    def __init__(self, peer: Peer, workload: Forward | Overhead | Generation, variant: str, data: Data) -> None:
        super().__init__(peer)
        self.workload, self.arrays = workload, data
        if isinstance(workload, Overhead):
            is_stacked = variant in STACKED_VARIANTS
            self.granularity = workload.num_operands if is_stacked else 1
            self.arrays = data if is_stacked else [(x, *data[0][1:]) for x in data[0][0]]
        elif isinstance(workload, Generation) and workload.op == "decode":
            self.granularity = workload.count
        self.function = peer.forward(workload, variant)
        self.refresh()

    def refresh(self) -> None:
        if isinstance(self.workload, Overhead):  # the w are the same tensors in every call, as weights are
            ws = [self.peer.tensor(array) for array in self.arrays[0][1:]]
            self.operands = [(self.peer.tensor(arrays[0]), *ws) for arrays in self.arrays]
        else:
            self.operands = [tuple(self.peer.tensor(array) for array in arrays) for arrays in self.arrays]

    def step(self, count: int) -> None:
        taken, position, function, wait = self.operands, self.position, self.function, self.peer.wait
        num_calls = count // self.granularity
        for number in range(position, position + num_calls):
            out = function(*taken[number % len(taken)])
            wait(out[0] if type(out) is tuple else out)
        self.position = position + num_calls

    def values(self) -> list[float]:
        """Returns places of the result on operand set 0, from the third call on it: later than any tracing.

        From the first when that took more than LONG_CALL_S.
        """
        for _ in range(3):
            start = time.perf_counter()
            out = self.function(*self.operands[0])
            parts = out if type(out) is tuple else (out,)
            self.peer.wait(parts[0])
            if time.perf_counter() - start > LONG_CALL_S:
                break
        return compared(self.workload, *(self.peer.numpy(part) for part in parts))


def make_runner(peer: Peer, workload: Workload, variant: str, data: Data | None = None) -> Runner:
    """Returns a workload made ready in one variant of a framework; nothing has run yet."""
    data = make_data(workload) if data is None else data
    if not isinstance(workload, (Training, Language)):
        return ForwardRunner(peer, workload, variant, data)
    if variant in STACKED_VARIANTS:
        return StackedRunner(peer, workload, variant, data)
    return TrainingRunner(peer, workload, variant, data)
