"""The captures of a function for arguments of one form, and how a call sees that one may be replayed.

In:    what was traced, and what there was then
Out:   `Form`; `modes_now`
Called by: transforms/jit.py.    Next: picograd/transforms/described.py
"""

from __future__ import annotations

from collections.abc import Hashable

from picograd import dtype as dtypes
from picograd.device import choices
from picograd.dtype import DType
from picograd.nn.module import Module
from picograd.tensor.cell import grad_mode, last_change
from picograd.tensor.modes import float32_mode, precision_mode
from picograd.transforms.capture import Capture, Replay
from picograd.transforms.containers import Kind
from picograd.transforms.watched import Holds

Modes = tuple[DType | None, str, tuple[str | None, ...], bool, DType]


def modes_now() -> Modes:
    """Returns how exact products are, where tensors are made and of which dtype, and whether gradients are recorded."""
    return precision_mode.get(), float32_mode.get(), choices.get(), grad_mode.get(), dtypes.default_float


class Form:
    """Arguments of one form: the Modules that the function mentions, and captures by how exact products are to be, by the
    device that new tensors are to be on, by whether gradients are recorded, and by whether the Modules train.

    kinds:      what the arguments are where all are Tensors, else None
    replay:     of the capture for the modes there were when last looked, or None
    seen:       the last change there was then
    modes:      of products, new tensors and gradients then
    same:       tells whether names mean what they meant then; None where there are none to ask
    """

    def __init__(self, modules: tuple[Module, ...], kinds: list[Kind] | None):
        self.modules, self.kinds = modules, kinds
        self.captures: dict[Hashable, list[Capture]] = {}
        self.forget()

    def forget(self) -> None:
        """Has the next call look at everything."""
        self.replay: Replay | None = None
        self.seen = -1
        self.modes: Modes | None = None
        self.same: Holds | None = None

    def see(self, replay: Replay, change: int, modes: Modes) -> None:
        """Takes note of what there is now."""
        self.replay, self.seen, self.modes = replay, change, modes
        watched = replay.watched
        assert watched is not None, "jit: a replay that nobody has looked at"
        self.same = watched.is_the_same if watched.asks else None

    def ready(self) -> Replay | None:
        """Returns the replay if nothing has changed since."""
        if last_change.number != self.seen:
            return None
        now = precision_mode.get(), float32_mode.get(), choices.get(), grad_mode.get(), dtypes.default_float
        if now != self.modes:  # modes_now() written out: every call comes by here
            return None
        return self.replay if self.same is None or self.same() else None

    def found(self, modes: Modes) -> list[Capture]:
        """Returns the captures for the modes there are now: none, one that is to be checked, or the same one twice."""
        return self.captures.setdefault((modes, *[module.training for module in self.modules]), [])
