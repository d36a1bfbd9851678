"""A line on the terminal while something takes long: what is going on, and for how many seconds.

In:    what to say, asked anew every second
Out:   `telling`
Called by: engine/plan.py, engine/compiler.py.    Next: picograd/road.py

It appears after a second and is wiped away at the end. Nothing is written where standard error is no terminal, nor where
PICOGRAD_QUIET is 1.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from picograd.config import is_on

PATIENCE_SECONDS = 1.0
WIPE = "\r\x1b[K"  # to the beginning of the line, then all to its end


@contextmanager
def telling(text: Callable[[], str]) -> Iterator[None]:
    """Shows a line while the block runs, if that takes longer than PATIENCE_SECONDS.

    Cost: 0.1 ms where standard error is a terminal, for a thread is started.
    """
    if is_on("PICOGRAD_QUIET") or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(text, done), name="picograd_progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(text: Callable[[], str], done: threading.Event) -> None:
    """Writes the line every second, and wipes it away once all is done."""
    start, shown = time.monotonic(), False
    while not done.wait(PATIENCE_SECONDS):
        shown = True
        sys.stderr.write(f"{WIPE}picograd: {text()}, {time.monotonic() - start:.0f} s")
        sys.stderr.flush()
    if shown:
        sys.stderr.write(WIPE)
        sys.stderr.flush()
