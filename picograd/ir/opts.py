"""The tunable choices of a kernel, as data: whatever they are, the kernel computes the same bits.

In:    nothing
Out:   `RegisterTile`, `BlockTile`, `WarpTile`, `Opts`, `Generated`
Next:  picograd/ir/backend.py

An emitter reads them, codegen/opts.py proposes them, engine/choose.py picks among the proposals.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from picograd.ir.statements import WARP_THREADS

GROUP = 4  # of float32 are 16 bytes, the widest access of a thread
K_STEP = 64  # a multiple of the depth of every tile on a GPU
MMA_ROWS, MMA_COLUMNS, MMA_DEPTH = 16, 8, 16  # of one matrix instruction (ir/statements.py, Mma)


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
    """How a product is cut on a GPU: what a block of high x wide threads computes.

    own_rows, own_columns:  of the result, by one thread
    depth:                  of K in shared memory at a time
    """

    high: int
    wide: int
    own_rows: int
    own_columns: int
    depth: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.high * self.wide

    @property
    def rows(self) -> int:
        """Rows of the result that a block computes."""
        return self.high * self.own_rows

    @property
    def columns(self) -> int:
        """Columns of the result that a block computes."""
        return self.wide * self.own_columns

    @property
    def row_group(self) -> int:
        """Rows of a thread that stand side by side: an access of shared memory."""
        return gcd(self.own_rows, GROUP)

    @property
    def column_group(self) -> int:
        """Columns of a thread that stand side by side."""
        return gcd(self.own_columns, GROUP)

    def __str__(self) -> str:
        return f"block {self.rows} x {self.columns} x {self.depth}, {self.own_rows} x {self.own_columns} a thread"


@dataclass(frozen=True)
class WarpTile:
    """How a product is cut for matrix instructions: a block of high x wide warps.

    high_tiles, wide_tiles:  of 16 x 8 results, by one warp; wide_tiles is even
    depth:                   of K in shared memory at a time, a multiple of 16
    """

    high: int
    wide: int
    high_tiles: int
    wide_tiles: int
    depth: int

    def __post_init__(self) -> None:
        assert self.wide_tiles % 2 == 0, f"fragments of columns come in pairs, and a warp has {self.wide_tiles}"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.high * self.wide * WARP_THREADS

    @property
    def warp_rows(self) -> int:
        """Rows of the result that a warp computes."""
        return self.high_tiles * MMA_ROWS

    @property
    def warp_columns(self) -> int:
        """Columns of the result that a warp computes."""
        return self.wide_tiles * MMA_COLUMNS

    @property
    def rows(self) -> int:
        """Rows of the result that a block computes."""
        return self.high * self.warp_rows

    @property
    def columns(self) -> int:
        """Columns of the result that a block computes."""
        return self.wide * self.warp_columns

    def __str__(self) -> str:
        return f"block {self.rows} x {self.columns} x {self.depth}, {self.warp_rows} x {self.warp_columns} a warp"


Tile = RegisterTile | BlockTile | WarpTile


@dataclass(frozen=True)
class Opts:
    """The choices of one kernel.

    products:  how each MATMUL nest is cut, in the order of the nests
    """

    products: tuple[Tile, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.products)) or "none"


@dataclass(frozen=True)
class Generated:
    """The choice to have codegen/ write a kernel's code.

    opts:  with these choices
    """

    opts: Opts
