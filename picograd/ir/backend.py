"""What every device offers to the engine.

In:    Binaries, Schedules, host arrays
Out:   `Device`, the protocol that runtime/ implements
Next:  picograd/ir/text_values.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from picograd.device import Target
from picograd.ir.op import Buffer
from picograd.ir.stages import Binary, Executable, Schedule

Runner = Callable[[Sequence[Buffer], Sequence[Buffer], Mapping[str, int]], None]


class Device(Protocol):
    """Memory, code and launches of one machine.

    name:    as users write it
    target:  what code generation needs to know
    """

    name: str
    target: Target

    def allocate(self, nbytes: int) -> Any:
        """Returns memory of at least `nbytes` bytes, aligned to 64; it is free again when the object dies.

        Raises:
          OutOfMemoryError: the device has no more.
        """
        ...

    def copy_in(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Stores a C-contiguous host array at the start of `memory`."""
        ...

    def copy_out(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        """Fills a C-contiguous host array from the start of `memory`, after all work submitted before."""
        ...

    def load(self, binary: Binary) -> Executable:
        """Makes code callable."""
        ...

    def make_runner(self, schedule: Schedule, executables: Sequence[Executable]) -> Runner:
        """Returns run(inputs, outputs, variables), which runs the whole schedule once, in order.

        inputs and outputs are Buffers with memory, by the indices of `Schedule.inputs` and of the BufferUses with
        role "output"; variables are the values of symbolic integers by name. The arena for temporaries belongs to
        the runner and is kept from run to run.
        """
        ...
