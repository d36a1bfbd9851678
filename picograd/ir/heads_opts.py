"""How an attention or its gradient is made by warpgroups, as data (devices/cuda/hopper_heads.h).

In:    nothing
Out:   `HeadsMatrix`, `HeadsShape`; `PlainAttention`, `PlainGradients`; `HeadsTile`; `WrittenAttention`, `WrittenGradients`
Next:  picograd/ir/opts.py
"""

from __future__ import annotations

from picograd.ir.statements import WARPGROUP_THREADS
from picograd.record import Record

WARPGROUP_ROWS = 64
SWIZZLED = 64  # elements of 16 bits in a swizzled row of a tile


class HeadsMatrix(Record):
    """The rows of all heads in memory, each contiguous; all numbers are elements.

    slot:     of the kernel's parameters
    offset:   before the first
    strides:  from one of the batch to the next, from one head, from one row
    """

    slot: int
    offset: int
    strides: tuple[int, int, int]


class HeadsShape(Record):
    """The sizes of an attention softmax(scale q k^T) v.

    heads, groups:      of queries, and of keys and values
    features, values:   elements of a row of q and k, and of v
    """

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    features: int
    values: int
    dtype: str
    scale: float
    causal: bool

    def nbytes(self, rows: int) -> int:
        """Bytes in shared memory of so many rows of keys and values, or of q and the averages."""
        wide = sum(-(-each // SWIZZLED) * SWIZZLED for each in (self.features, self.values))
        return 2 * rows * wide

    @property
    def pairs(self) -> int:
        """Queries times keys that they see, of all heads."""
        seen = self.queries * self.keys - (self.queries * (self.queries - 1) // 2 if self.causal else 0)
        return self.batch * self.heads * max(seen, 0)


class PlainAttention(Record):
    """An attention of matrices in memory.

    out, logsumexp:  slots of results, that lie without gaps; None: it is not asked for
    """

    shape: HeadsShape
    q: HeadsMatrix
    k: HeadsMatrix
    v: HeadsMatrix
    out: int
    logsumexp: int | None

    @property
    def work(self) -> int:
        """FLOPs."""
        return 2 * self.shape.pairs * (self.shape.features + self.shape.values)


class PlainGradients(Record):
    """The gradients of an attention of matrices in memory.

    grad:              of its averages
    logsumexp, delta:  slots of numbers of each query, that lie without gaps
    dq, dk, dv:        slots of results, that do, too
    """

    shape: HeadsShape
    q: HeadsMatrix
    k: HeadsMatrix
    v: HeadsMatrix
    grad: HeadsMatrix
    logsumexp: int
    delta: int
    dq: int
    dk: int
    dv: int


class HeadsTile(Record):
    """How an attention or its gradient is cut for a block of warpgroups: one copies, the others look at tiles.

    lookers:   warpgroups that look, each for 64 rows: of queries, or of keys where their gradients are made
    columns:   rows of a tile that is looked at, of the other kind
    stages:    of tiles that are on their way or looked at
    together:  heads whose blocks run side by side
    blocks:    of a launch, no more than there are multiprocessors
    keeps:     sets of its own rows that a block has room for: a second one comes while the first is looked at
    lags:      of gradients: the last products of a tile go on beside the first of the next, for which there are registers
    """

    lookers: int
    columns: int
    stages: int
    together: int
    blocks: int
    keeps: int = 1
    lags: bool = False

    @property
    def rows(self) -> int:
        """Rows that a block has at a time."""
        return WARPGROUP_ROWS * self.lookers

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARPGROUP_THREADS * (1 + self.lookers)

    def __str__(self) -> str:
        tiles = f"tiles of {self.columns} in {self.stages} stages, {self.together} heads together"
        return f"warpgroups for {self.keeps} x {self.rows} rows, {tiles}, {self.blocks} blocks{', lagging' * self.lags}"


class WrittenAttention(Record):
    """The choice to have a kernel that was written by hand compute the attention of a kernel.

    plain:  what it computes (codegen/plain_attention.py says in which launches)
    tile:   how it is cut
    """

    plain: PlainAttention
    tile: HeadsTile

    def __str__(self) -> str:
        return str(self.tile)


class WrittenGradients(Record):
    """The choice to have kernels that were written by hand compute the gradients of an attention.

    plain:       what they compute
    by_keys:     how the kernel is cut that makes the gradients of keys and values: its rows are keys
    by_queries:  how that of queries is
    """

    plain: PlainGradients
    by_keys: HeadsTile
    by_queries: HeadsTile

    def __str__(self) -> str:
        return f"of keys by {self.by_keys}; of queries by {self.by_queries}"


def attention_nbytes(shape: HeadsShape, tile: HeadsTile) -> int:
    """Returns the bytes of shared memory that a block of an attention asks for."""
    kept, stored = (2 * tile.rows * -(-each // SWIZZLED) * SWIZZLED for each in (shape.features, shape.values))
    return tile.keeps * kept + tile.stages * shape.nbytes(tile.columns) + stored


def gradients_nbytes(shape: HeadsShape, tile: HeadsTile, by_keys: bool) -> int:
    """Returns the bytes of shared memory that a block asks for, of those that make gradients."""
    slabs = 2 * tile.rows * (2 if by_keys else -(-shape.features // SWIZZLED)) * SWIZZLED
    numbers = tile.stages * 4 * 2 * (tile.columns if by_keys else 1)
    return tile.keeps * shape.nbytes(tile.rows) + tile.stages * shape.nbytes(tile.columns) + slabs + numbers
