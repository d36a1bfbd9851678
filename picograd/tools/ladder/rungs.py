"""The rungs of the ladder, from the slowest to the fastest, and what each adds in words.

In:    nothing
Out:   `RUNGS`, by name; FUSED and TWO_PASSES, which the compiler makes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from picograd.ir.stages import Program
from picograd.tools.ladder.blocked import blocked, vectors
from picograd.tools.ladder.naive import naive
from picograd.tools.ladder.packed import packed
from picograd.tools.ladder.product import Product
from picograd.tools.ladder.registers import registers
from picograd.tools.ladder.threads import threads


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    name:       as `--show` knows it
    adds:       what it has that the one before has not
    emit:       writes it; None where the compiler does
    is_shared:  all threads work on it
    """

    name: str
    adds: str
    emit: Callable[[Product], Program] | None
    is_shared: bool = False


TWO_PASSES = Rung("two passes", "bias and relu, in a second pass over c", None, True)  # what FUSED is compared with
FUSED = Rung("fused", "bias and relu on a tile before it is stored", None, True)
LADDER = (
    Rung("naive", "three loops", naive),
    Rung("blocked", "blocks of b that stay in cache, along rows", blocked),
    Rung("vectors", "a vector of columns at a time", vectors),
    Rung("registers", "a tile of sums in registers, FMA", registers),
    Rung("packed", "panels that are read straight through", packed),
    Rung("threads", "tiles shared among all threads", threads, True),
    FUSED,
)
RUNGS = {rung.name: rung for rung in LADDER}
