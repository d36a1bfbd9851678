"""Times the host's part of calls: on the CPU without the walk through the plan, elsewhere up to the last submission.

    python -m bench.calls                    a few seconds; --repeats N
    PICOGRAD_THREADS=1 python -m bench.calls
    python -m bench.calls --device CUDA      on a GPU

In:    nothing
Out:   a table: microseconds of each call, the fastest tenth and the median; then the cost of each argument and state tensor
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from unittest import mock

import numpy as np

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.devices.cpu.runner import Runner
from picograd.engine.devices import compiler_for, default_device

FEW, MANY = 2, 66  # arguments
MOST_SUBMITTED = 32  # calls, before the device is waited for: so none of them waits
LAYERS = (3, 11)  # of a network, each with a weight, a bias, and what Adam keeps of both


def values(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32)).realize()


def one_element() -> tuple[Callable[[], object], Callable[[], object]]:
    """Returns two calls of one kernel on one element: jitted, and eager."""
    x = values(1)
    add = pg.jit(lambda x: x + 1)
    return lambda: add(x), lambda: (x + 1).realize()


def adds(count: int, keeps: bool = False) -> Callable[[], object]:
    """Returns a call that adds so many arguments, other ones each time; `keeps`: it writes to a tensor of state, too."""
    arguments, state = cycle([[values(4) for _ in range(count)] for _ in range(3)]), values(4)

    @pg.jit
    def total(first: Tensor, *others: Tensor) -> Tensor:
        result = sum(others, first)
        if keeps:
            state.add_(result)
        return result

    return lambda: total(*next(arguments))


def trains(num_layers: int) -> tuple[Callable[[], object], int]:
    """Returns a call that trains a network of small layers with Adam, and how many tensors of state it has."""
    net = nn.Sequential(*[layer for _ in range(num_layers) for layer in (nn.Linear(2, 2), nn.Tanh())])
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    x, y = values(4, 2), values(4, 2)

    @pg.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y), 6 * num_layers + 2


@contextmanager
def nothing_walked() -> Iterator[None]:
    """Leaves out the native part of runs."""
    with mock.patch.object(Runner, "_lead", lambda runner: None):
        yield


def times_us(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Returns the fastest tenth, which others on the machine disturb least, and the median of the host's part of a call."""
    for _ in range(4):  # traced twice, then settled
        call()
    wait = getattr(compiler_for(default_device()).device, "synchronize", lambda: None)
    samples = np.empty(repeats)
    with nothing_walked():
        for number in range(repeats):
            start = time.perf_counter()
            call()
            samples[number] = time.perf_counter() - start
            if number % MOST_SUBMITTED == 0:
                wait()
    best, middle = np.quantile(samples, [0.1, 0.5], method="lower")
    return 1e6 * best, 1e6 * middle


def show(what: str, times: tuple[float, float]) -> None:
    print(f"{what:48} {times[0]:9.2f} {times[1]:9.2f}")


def main(repeats: int) -> None:
    """Prints what was measured."""
    print(f"{f'us of the host in a call on {default_device()}':48} {'best':>9} {'median':>9}")
    jitted, eager = one_element()
    show("one element plus 1, jitted", times_us(jitted, repeats))
    show("one element plus 1, eager", times_us(eager, repeats))
    few, many = (times_us(adds(count), repeats) for count in (FEW, MANY))
    show(f"a sum of {FEW} arguments", few)
    show(f"a sum of {MANY} arguments", many)
    show(f"a sum of {MANY} arguments, added to state", times_us(adds(MANY, keeps=True), repeats))
    (small, num_small), (large, num_large) = map(trains, LAYERS)
    fewer, more = times_us(small, repeats), times_us(large, repeats)
    show(f"a step of training, {num_small} tensors of state", fewer)
    show(f"a step of training, {num_large} tensors of state", more)
    show("each argument adds", ((many[0] - few[0]) / (MANY - FEW), (many[1] - few[1]) / (MANY - FEW)))
    each = [(b - a) / (num_large - num_small) for a, b in zip(fewer, more)]
    show("each tensor of state adds", (each[0], each[1]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m bench.calls", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3000, help="calls of each kind (default: 3000)")
    parser.add_argument("--device", default="CPU", help="device of the calls (default: CPU)")
    options = parser.parse_args()
    pg.set_default_device(options.device)
    main(options.repeats)
