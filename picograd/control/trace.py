"""What a function touches while it is traced: the cells that it makes, reads and writes.

In:    one run of a Python function, in which nothing is computed
Out:   `FunctionTrace`: for whoever traces functions to say what a cell is inside
Called by: control/closure.py, transforms/traced.py.    Next: picograd/control/structure.py
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any, Self

from picograd.errors import JitError
from picograd.interrupts import held_back
from picograd.ir.lines import line_of
from picograd.ir.op import Op
from picograd.living import LivingSet
from picograd.tensor.cell import Cell, trace
from picograd.tensor.tensor import Tensor


class FunctionTrace:
    """What cells tell of a function that is traced.

    transform:  what the user called, for errors
    function:   name of the user's function, for errors
    before:     cells made before that the function read or wrote, in order, and what they held
    written:    cells made before that the function wrote to, in order, and a value that they had inside
    """

    def __init__(self, transform: str, function: str):
        self.transform, self.function = transform, function
        self.before: dict[Cell, Op] = {}
        self.written: dict[Cell, Op] = {}
        self._made: LivingSet[Cell] = LivingSet()
        self._around = trace.get()
        self._hold = held_back()

    def __enter__(self) -> Self:
        self._hold.__enter__()
        trace.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        trace.set(self._around)
        self.leave()
        self._hold.__exit__()

    def leave(self) -> None:
        """Gives cells made before their values again, and keeps in `written` what they had inside."""
        for cell, op in self.before.items():
            if cell in self.written:
                self.written[cell] = cell.op
                cell.op = op

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function, in a `with` block of the trace: an interrupt ends it, but waits for what is put back."""
        return self._hold.let_in(function, *args, **kwargs)

    def enter(self, cell: Cell) -> None:
        """Notes in `before` what a cell holds that is touched for the first time; may give it another value."""
        raise NotImplementedError

    # ---- what cells tell ----
    def on_make(self, cell: Cell) -> None:
        self._made.add(cell)

    def on_read(self, cell: Cell) -> None:
        if cell.made_in is not self and cell not in self.before:
            self.enter(cell)

    def on_write(self, cell: Cell) -> None:
        if cell.made_in is not self:
            self.on_read(cell)
            self.written[cell] = cell.op

    def on_look(self, leaf: Any) -> None:
        if self._around is not None:
            self._around.on_look(leaf)

    def on_forget(self, leaf: Any) -> None:
        if self._around is not None:
            self._around.on_forget(leaf)

    def on_host_read(self, function: str) -> None:
        raise JitError(
            f"{self.transform}: {function}() asks for a value while {self.function} is traced; there is none yet.",
            "return the tensor and read it outside.",
        )

    # ---- afterwards ----
    def check_kept(self, known: Iterable[Tensor], fault: str, hint: str) -> None:
        """Raises JitError where a tensor that the function made, none of those known, outlives the trace."""
        accounted = {tensor.cell for tensor in known}
        if all(cell in accounted for cell in self._made.living()):
            return
        gc.collect()  # what only cycles keep alive is not kept
        kept = next((cell for cell in self._made.living() if cell not in accounted), None)
        if kept is not None:
            raise JitError(
                f"{self.transform}: {self.function} keeps a tensor of shape {kept.op.shape} that it made; {fault}",
                hint,
                line=line_of(kept.op),
            )
