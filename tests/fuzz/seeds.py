"""Seeds from the command line, for more of them than a test run has time for."""

from __future__ import annotations

import sys
from collections.abc import Callable

LETTERS_MAX = 4000  # of the text of a failure


def run_seeds(check: Callable[..., object], *ways: str) -> None:
    """Runs check(seed, way), for the seeds from the first argument up to the second, and prints what fails.

    Args:
      ways:  in which each seed is run unless others are named after the second argument; none: check(seed)
    """
    failures = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        for way in [(name,) for name in sys.argv[3:] or ways] or [()]:
            try:
                check(seed, *way)
            except Exception as error:
                failures += 1
                print(f"seed {seed} {' '.join(way)}: {type(error).__name__}: {error}"[:LETTERS_MAX], flush=True)
    print(f"{failures} failures")
