"""How a kernel is made, as data: generated with some Opts, or by a call of a vendor's library.

In:    nothing
Out:   `RegisterTile`, `BlockTile`, `WarpTile`, `Opts`; `Matrix`, `PlainProduct`; `Choice`: `Generated` or `Library`
Next:  picograd/ir/backend.py

An emitter reads Opts, codegen/opts.py proposes them, engine/choose.py picks among the proposals. Whatever the Opts are, the
kernel computes the same bits; a library adds up in an order of its own.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
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
class Matrix:
    """Where the matrices of a batch lie in memory; all numbers are elements.

    slot:          of the kernel's parameters
    offset:        before the first of them
    stride:        from one row to the next; in each, elements lie side by side
    is_turned:     columns lie so instead, and `stride` is from one of them to the next
    batch_stride:  from one matrix to the next; 0: they are all the same one
    """

    slot: int
    offset: int
    stride: int
    is_turned: bool
    batch_stride: int


@dataclass(frozen=True)
class PlainProduct:
    """out = a @ b for each of a batch, and nothing else: what a vendor's library is asked for.

    a, b:   (m, k) and (k, n)
    out:    slot of the result (batch, m, n), which lies contiguously
    dtype:  name of that of all three; sums are float32
    tf32:   operands of float32 may be rounded to 11 bits of significand
    """

    a: Matrix
    b: Matrix
    out: int
    batch: int
    m: int
    n: int
    k: int
    dtype: str
    tf32: bool = False


@dataclass(frozen=True)
class Generated:
    """The choice to have codegen/ write a kernel's code.

    opts:  with these choices
    """

    opts: Opts

    def __str__(self) -> str:
        return str(self.opts)


@dataclass(frozen=True)
class Library:
    """The choice to have a vendor's library compute a kernel.

    name:              of the library, with its version
    product:           what it computes
    algorithm:         how, as the library writes that down, where every matrix begins at a multiple of 16 bytes
    unaligned:         the same where one does not
    workspace_nbytes:  of the GPU's memory, that either needs
    """

    name: str
    product: PlainProduct
    algorithm: str
    unaligned: str
    workspace_nbytes: int

    def __str__(self) -> str:
        return f"{self.name}, algorithm {self.algorithm}, unaligned {self.unaligned}, {self.workspace_nbytes} bytes"


Choice = Generated | Library
LIBRARY_CALL = b"library "  # what the data of a Binary begins with that is no code, but a Library as text


def write_library(choice: Library) -> bytes:
    """Returns the data of a Binary that is a call of a library."""
    return LIBRARY_CALL + json.dumps(asdict(choice)).encode()


def read_library(data: bytes) -> Library:
    """Returns what `write_library` wrote."""
    fields = json.loads(data.removeprefix(LIBRARY_CALL))
    product = fields.pop("product")
    a, b = Matrix(**product.pop("a")), Matrix(**product.pop("b"))
    return Library(product=PlainProduct(a, b, **product), **fields)
