"""Loading picograd without garbage collection (modules are not garbage), and the collector's threshold afterwards.

In:    nothing; names of modules that are loaded when they are first asked for
Out:   `collecting_later`; `load_late`, `importing`; `end_at_once`, `hear_again`

A module makes thousands of objects that live as long as the process. Python's collector walks over all of them again
and again while more come, at each full collection later, and twice when the process ends: half of the time of importing
picograd. All objects that there are when picograd is loaded are therefore frozen (`gc.freeze`): they are freed when
nothing refers to them, but the collector does not look for cycles in them.

Graphs, too, are many small objects that are freed when nothing refers to them. Python looks through the youngest objects
once there are 700 more of them than before. That took a seventh of an eager training step, and a fifth of the time in which
a plan is made. From now on it does so after MADE_BETWEEN. Who sets another threshold after importing picograd has that one;
one that was longer, or no collection at all, stays. A device without memory collects first, then it gives up.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from picograd.interrupts import held_back

OBJECTS_BEFORE_MAX = 50_000  # objects, fewer than picograd's own; NumPy makes 20,000
MADE_BETWEEN = 60_000  # objects that are alive, some MB, more than a training step has; the compiler loads with 24,000
LOOKS_BETWEEN = 2  # at the youngest objects before older ones are looked at, too; 10 by default, as these are many more


importing = threading.RLock()


class Command:
    """A flag: Ctrl-C ends this process at once, since picograd is being loaded as the command."""

    ends_at_once = False


def end_at_once() -> None:
    """Lets Ctrl-C end the command without output, such as a traceback of imports, until `hear_again`.

    Half of a library may be loaded then, which makes an ImportError of an interrupt.
    """
    name = os.path.basename(getattr(sys, "argv", [""])[0])
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if name in ("picograd", "-m") and usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        Command.ends_at_once = True


def hear_again() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again."""
    if Command.ends_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Command.ends_at_once = False


def load_late(module: str) -> Any:
    """Returns a module, loaded now if it has not been. Ctrl-C waits for that: half of a module would be left.

    A fork waits, too (picograd/__init__.py): the lock that Python has for each module that is being loaded would stay held
    in the child.
    """
    known = sys.modules.get(module)
    if known is not None and not getattr(known.__spec__, "_initializing", False):
        return known
    with importing, held_back():
        return importlib.import_module(module)


@contextmanager
def collecting_later() -> Iterator[None]:
    """Stops the collector while modules are loaded, and then excludes their objects from collection.

    After:   it is on, or off, as it was, and looks less often. Objects from before picograd are frozen with its own. Where
             there are many of them nothing is: what a program has built before may become garbage.
    """
    was_on, freezes = gc.isenabled(), len(gc.get_objects()) < OBJECTS_BEFORE_MAX
    gc.disable()
    try:
        yield
        if freezes:
            gc.freeze()
        own, *others = gc.get_threshold()
        if 0 < own < MADE_BETWEEN:
            gc.set_threshold(MADE_BETWEEN, *[min(number, LOOKS_BETWEEN) for number in others])
    finally:
        if was_on:
            gc.enable()
