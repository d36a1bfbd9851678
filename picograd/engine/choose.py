"""Picks how a kernel is made: the best guess, or where that is asked for the candidate that timing finds fastest.

In:    Kernel, Device
Out:   `Generated`, with the Opts to lower it with
Called by: engine/compiler.py.    Next: picograd/codegen/opts.py
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.codegen.opts import candidates, guess
from picograd.device import Target
from picograd.engine.tune import fastest
from picograd.ir.backend import Device
from picograd.ir.opts import Generated, Opts
from picograd.ir.stages import Executable, Kernel


def choose(kernel: Kernel, device: Device, make: Callable[[Kernel, Opts], Executable], tune: bool) -> Generated:
    """Returns the choice for a kernel; all choices give the same bits.

    Args:
      make: gives callable code for a kernel with the Opts of a candidate
      tune: whether candidates are timed
    """
    if not tune or not may_be_tuned(kernel, device.target):
        return Generated(guess(kernel, device.target))
    return Generated(fastest(kernel, candidates(kernel, device.target), device, make))


def may_be_tuned(kernel: Kernel, target: Target) -> bool:
    """True for a kernel with several candidates, of one size: with a symbolic extent there is none to time."""
    return not kernel.variables and len(candidates(kernel, target)) > 1
