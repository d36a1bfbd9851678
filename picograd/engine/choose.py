"""Picks how a kernel is made: the best guess, or where that is asked for the candidate that timing finds fastest.

In:    Kernel, Device
Out:   `Generated`, with the Opts to lower it with
Called by: engine/compiler.py.    Next: picograd/codegen/opts.py
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.codegen.opts import candidates, guess
from picograd.engine.tune import fastest
from picograd.ir.backend import Device
from picograd.ir.opts import Generated, Opts
from picograd.ir.stages import Executable, Kernel


def choose(kernel: Kernel, device: Device, make: Callable[[Kernel, Opts], Executable], tune: bool = False) -> Generated:
    """Returns the choice for a kernel; all choices give the same bits.

    Args:
      make: gives callable code for a kernel with the Opts of a candidate
      tune: whether candidates are timed
    """
    if not tune or kernel.variables:  # NOTE: with a symbolic extent there is no one size to time
        return Generated(guess(kernel, device.target))
    found = candidates(kernel, device.target)
    return Generated(found[0] if len(found) == 1 else fastest(kernel, found, device, make))
