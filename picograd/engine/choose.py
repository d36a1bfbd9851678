"""Picks how a kernel is made: the best guess, or where that is asked for the candidate that timing finds fastest.

In:    Kernel, Device
Out:   `Choice`: Opts to lower it with, a kernel written by hand, or a call of a library
Called by: engine/compiler.py.    Next: picograd/codegen/opts.py
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.codegen.opts import candidates, guess
from picograd.device import Target
from picograd.engine.library import library_candidates
from picograd.engine.tune import fastest
from picograd.engine.written import written_candidates
from picograd.ir.backend import Device
from picograd.ir.opts import Choice, Generated
from picograd.ir.stages import Executable, Kernel


def choose(kernel: Kernel, device: Device, make: Callable[[Kernel, Choice], Executable], tune: bool) -> Choice:
    """Returns the choice for a kernel.

    Where a kernel written by hand is thought to be fastest it is the guess (engine/written.py). All generated ones give the
    same bits; that one adds up in an order of its own, as does a vendor's library. What is not the guess is taken only
    where it was timed and won, and then by every process that finds the winner on disk.

    Args:
      make: gives callable code for a kernel by a candidate
      tune: whether candidates are timed
    """
    written = written_candidates(kernel, device.target)
    if not tune or not may_be_tuned(kernel, device.target):
        return written[0] if written else Generated(guess(kernel, device.target))
    generated = [Generated(opts) for opts in candidates(kernel, device.target)]
    return fastest(kernel, [*written, *generated, *library_candidates(kernel, device)], device, make)


def may_be_tuned(kernel: Kernel, target: Target) -> bool:
    """True for a kernel with several candidates, of one size: with a symbolic extent there is none to time."""
    return not kernel.variables and len(candidates(kernel, target)) > 1
