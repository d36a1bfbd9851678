"""The tunable choices of a kernel, as data: whatever they are, the kernel computes the same bits.

In:    nothing
Out:   `RegisterTile`, `BlockTile`, `Opts`, `Generated`
Next:  picograd/ir/backend.py

An emitter reads them, codegen/opts.py proposes them, engine/choose.py picks among the proposals.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RegisterTile:
    """How a product is cut on a CPU.

    rows:     of the tile of the result that stays in registers
    vectors:  vectors side by side in it
    panels:   panels of `rows` rows that one GRID iteration multiplies by one panel of columns
    turned:   it is b.T @ a.T that is computed, and stored as a @ b
    """

    rows: int
    vectors: int
    panels: int
    turned: bool

    def __str__(self) -> str:
        turned = " turned" if self.turned else ""
        return f"registers {self.rows} x {self.vectors} vectors, {self.panels} panels{turned}"


@dataclass(frozen=True)
class BlockTile:
    """How a product is cut on a GPU: a block of side * side threads.

    side:  threads along a side, and how much of K is in shared memory at a time
    own:   rows and columns of the result that one thread computes
    """

    side: int
    own: int

    @property
    def length(self) -> int:
        """Rows and columns of the result that a block computes."""
        return self.side * self.own

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.side * self.side

    def __str__(self) -> str:
        return f"block {self.length} x {self.length}, {self.own} x {self.own} a thread"


@dataclass(frozen=True)
class Opts:
    """The choices of one kernel.

    products:  how each MATMUL nest is cut, in the order of the nests
    """

    products: tuple[RegisterTile | BlockTile, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.products)) or "none"


@dataclass(frozen=True)
class Generated:
    """The choice to have codegen/ write a kernel's code.

    opts:  with these choices
    """

    opts: Opts
