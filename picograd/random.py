"""torch.random by its name: the default generator, and blocks after which it goes on as if they had not been."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

from picograd.interrupts import whole_context
from picograd.public import publish
from picograd.tensor.generator import (
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    resumed,
    seed,
    set_rng_state,
)

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
]  # fmt: skip


@whole_context
def fork_rng(devices: Iterable[Any] | None = None, enabled: bool = True, device_type: str = "cuda") -> Iterator[None]:
    """Returns a context after which the default generator goes on, on every device, from where it was before.

    Args:
      devices:      has no effect: every device is meant
      enabled:      False: a context without effect
      device_type:  has no effect

    >>> _ = pg.manual_seed(1)
    >>> with pg.random.fork_rng():
    ...     first = pg.rand(3)
    >>> bool((pg.rand(3) == first).all())
    True
    """
    with resumed() if enabled else nullcontext():
        yield


publish(globals())
