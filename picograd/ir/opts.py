"""The choices of a kernel, as data: generated with some Opts, written by hand, or with a call of a vendor's library.

An emitter reads Opts, codegen/emit.py proposes them, engine/choose.py picks among the proposals. With any Opts
the kernel computes the same bits; a library adds up in an order of its own.
"""

from __future__ import annotations

import json
from math import gcd

from picograd.ir.statements import WARP_THREADS, WARPGROUP_THREADS
from picograd.ir.symbolic import ceildiv
from picograd.record import Record, asdict

# ---- attention by warpgroups (devices/cuda/hopper_heads.h) ----
WARPGROUP_ROWS = 64
# Tiles that are copied to shared memory: pieces are copied together, rows are swizzled, a slab has 64 rows.
PIECE_NBYTES, ROW_NBYTES, SLAB_NBYTES = 16, 128, 8192
SWIZZLED = ROW_NBYTES // 2  # elements of 16 bits in a swizzled row of a tile


class HeadsMatrix(Record):
    """The rows of all heads in memory, each contiguous; all numbers are elements.

    slot:     of the kernel's parameters
    offset:   before the first
    strides:  from one of the batch to the next, from one head, from one row
    """

    slot: int
    offset: int
    strides: tuple[int, int, int]


class HeadNumbers(Record):
    """A number of each head: offset + batch * strides[0] + head * strides[1], or what memory has at that place.

    slot:  of the kernel's parameters; None: the numbers themselves
    """

    slot: int | None
    offset: int
    strides: tuple[int, int]


class HeadsDraws(Record):
    """The draws of heads with dropout, as ir/attention.py says."""

    seeds: HeadNumbers
    numbers: HeadNumbers


class HeadsShape(Record):
    """The sizes of an attention softmax(scale q k^T) v, and the fields of its AttentionArg.

    heads, groups:      heads of queries, and heads of keys and values
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
    window: int = 0
    soft_cap: float = 0.0
    dropout: float = 0.0

    def nbytes(self, rows: int) -> int:
        """Returns the bytes in shared memory of these rows of keys and values, or of q and the averages."""
        wide = sum(ceildiv(each, SWIZZLED) * SWIZZLED for each in (self.features, self.values))
        return 2 * rows * wide

    @property
    def pairs(self) -> int:
        """The number of (query, visible key) pairs of all heads."""
        seen = self.queries * self.keys - (self.queries * (self.queries - 1) // 2 if self.causal else 0)
        if self.window:
            seen = min(seen, self.queries * self.window)
        return self.batch * self.heads * max(seen, 0)


class PlainAttention(Record):
    """An attention of matrices in memory.

    logsumexp:  slot of a contiguous result; None: it is not wanted
    draws:      draws of dropout; None without
    """

    shape: HeadsShape
    q: HeadsMatrix
    k: HeadsMatrix
    v: HeadsMatrix
    out: HeadsMatrix
    logsumexp: int | None
    draws: HeadsDraws | None = None

    @property
    def work(self) -> int:
        """FLOPs."""
        return 2 * self.shape.pairs * (self.shape.features + self.shape.values)


class PlainGradients(Record):
    """The gradients of an attention of matrices in memory.

    grad:              gradient of its averages
    logsumexp, delta:  slots of numbers of each query, contiguous
    """

    shape: HeadsShape
    q: HeadsMatrix
    k: HeadsMatrix
    v: HeadsMatrix
    grad: HeadsMatrix
    logsumexp: int
    delta: int
    dq: HeadsMatrix
    dk: HeadsMatrix
    dv: HeadsMatrix
    draws: HeadsDraws | None = None


class HeadsTile(Record):
    """The blocking of an attention or its gradient for a block of warpgroups: one copies tiles, the others multiply.

    lookers:   warpgroups that multiply, each for 64 rows: of queries, or of keys for their gradients
    columns:   rows of a tile of the other kind
    stages:    number of tiles that are under way or in use
    together:  heads whose blocks run at the same time
    blocks:    of a launch, at most as many as multiprocessors
    keeps:     sets of its own rows that a block has room for: a second one is copied while the first is in use
    lags:      for gradients: the last products of a tile overlap the first ones of the next, if there are registers
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

    plain:  the attention (codegen/hopper.py says in which launches)
    tile:   how it is cut
    """

    plain: PlainAttention
    tile: HeadsTile

    def __str__(self) -> str:
        return str(self.tile)


class WrittenGradients(Record):
    """The choice to have kernels that were written by hand compute the gradients of an attention.

    plain:       the gradients
    by_keys:     tile of the kernel for the gradients of keys and values, whose rows are keys
    by_queries:  tile of the kernel for the gradients of queries
    """

    plain: PlainGradients
    by_keys: HeadsTile
    by_queries: HeadsTile

    def __str__(self) -> str:
        return f"of keys by {self.by_keys}; of queries by {self.by_queries}"


def attention_nbytes(shape: HeadsShape, tile: HeadsTile) -> int:
    """Returns the bytes of shared memory of a block of an attention."""
    stored_features = min(shape.values, 2 * SWIZZLED)  # more are stored in two steps
    kept, stored = (2 * tile.rows * ceildiv(each, SWIZZLED) * SWIZZLED for each in (shape.features, stored_features))
    return tile.keeps * kept + tile.stages * shape.nbytes(tile.columns) + stored


def gradients_nbytes(shape: HeadsShape, tile: HeadsTile, by_keys: bool) -> int:
    """Returns the bytes of shared memory of a block that computes gradients."""
    slabs = 2 * tile.rows * (2 if by_keys else ceildiv(shape.features, SWIZZLED)) * SWIZZLED
    numbers = tile.stages * 4 * 2 * (tile.columns if by_keys else 1)
    return tile.keeps * shape.nbytes(tile.rows) + tile.stages * shape.nbytes(tile.columns) + slabs + numbers


# ---- tiles, products and choices ----
GROUP = 4  # elements of float32 in 16 bytes, the widest access of a thread
K_STEP = 64  # a multiple of the depth of every tile on a GPU
MMA_ROWS, MMA_COLUMNS, MMA_DEPTH = 16, 8, 16  # of one matrix instruction (ir/statements.py, Mma)


class RegisterTile(Record):
    """The tiles of a product on a CPU.

    rows:        rows of the tile of the result that stays in registers
    vectors:     vectors of its columns
    panels:      panels of `rows` rows that one GRID iteration multiplies by one panel of columns
    transposed:  b.T @ a.T is computed, and stored as a @ b
    """

    rows: int
    vectors: int
    panels: int
    transposed: bool

    def __str__(self) -> str:
        transposed = " transposed" if self.transposed else ""
        return f"registers {self.rows} x {self.vectors} vectors, {self.panels} panels{transposed}"


class BlockTile(Record):
    """The blocking of a product on a GPU: the part that a block of high x wide threads computes.

    own_rows, own_columns:  rows and columns of the result for one thread
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
        """Consecutive rows of a thread: an access of shared memory."""
        return gcd(self.own_rows, GROUP)

    @property
    def column_group(self) -> int:
        """Consecutive columns of a thread."""
        return gcd(self.own_columns, GROUP)

    def __str__(self) -> str:
        return f"block {self.rows} x {self.columns} x {self.depth}, {self.own_rows} x {self.own_columns} a thread"


class WarpTile(Record):
    """The blocking of a product for matrix instructions: a block of high x wide warps.

    high_tiles, wide_tiles:  tiles of 16 x 8 results for one warp; wide_tiles is even
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


class WarpgroupTile(Record):
    """The blocking of a product for a block of warpgroups: one copies, the others multiply (devices/cuda/hopper_product.h).

    rows, columns:  part of the result that the block computes at a time
    stages:         tiles of both operands that are under way or in use
    slabs:          slabs of each multiplying warpgroup through which results are stored; 0: from registers
    group:          rows of tiles within which tiles follow each other column by column
    blocks:         of a launch, at most as many as multiprocessors
    in_turn:        two warpgroups multiply a tile each, in turn: one stores its results while the other multiplies
    """

    rows: int
    columns: int
    stages: int
    slabs: int
    group: int
    blocks: int
    in_turn: bool = False

    @property
    def multipliers(self) -> int:
        """Warpgroups that multiply."""
        return 2 if self.in_turn else min(2, self.rows // WARPGROUP_ROWS)

    @property
    def num_sums(self) -> int:
        """Sums of a thread."""
        return self.rows * self.columns // WARPGROUP_THREADS // (1 if self.in_turn else self.multipliers)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARPGROUP_THREADS * (1 + self.multipliers)

    def __str__(self) -> str:
        stages = f"{self.stages} stages, {self.slabs} slabs"
        turns = " in turn" * self.in_turn
        return f"warpgroups {self.rows} x {self.columns}{turns}, {stages}, groups of {self.group}, {self.blocks} blocks"


Tile = RegisterTile | BlockTile | WarpTile


class Opts(Record):
    """The choices of one kernel.

    products:  the tile of each MATMUL nest, in the order of the nests
    """

    products: tuple[Tile, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.products)) or "none"


class Matrix(Record):
    """The matrices of a batch in memory; all numbers are elements.

    slot:             of the kernel's parameters
    offset:           elements before the first matrix
    stride:           from one contiguous row to the next
    is_column_major:  columns are contiguous instead, and `stride` is from one column to the next
    batch_stride:     from one matrix to the next; 0: all are the same matrix
    """

    slot: int
    offset: int
    stride: int
    is_column_major: bool
    batch_stride: int


class Bias(Record):
    """A vector with an element for each column of a result.

    slot, offset:  of the kernel's parameters, and the elements before it
    """

    slot: int
    offset: int


class Epilogue(Record):
    """The operations of a library before it stores a product: relu(scale * a @ b + factor * added + bias).

    scale:   factor of the product
    factor:  factor of `added`
    added:   (m, n), in the dtype of the result, row-major; None: nothing is added
    bias:    (n,), in the dtype of the result; None: there is no bias
    relu:    whether elements that are not above 0 become 0
    """

    scale: float = 1.0
    factor: float = 0.0
    added: Matrix | None = None
    bias: Bias | None = None
    relu: bool = False

    def __str__(self) -> str:
        parts = [f"times {self.scale}"] * (self.scale != 1) + [f"plus {self.factor} of a matrix"] * (self.added is not None)
        return ", ".join([*parts, *["plus a bias"] * (self.bias is not None), *["relu"] * self.relu])


class PlainProduct(Record):
    """out = a @ b for each of a batch, with an epilogue and nothing else, in the form that a vendor's library computes.

    a, b:       (m, k) and (k, n)
    out:        slot of the result (batch, m, n), which is contiguous
    dtype:      name of the operands' dtype; sums and the epilogue are float32
    out_dtype:  name of the result's dtype: the same, or float32
    tf32:       operands of float32 may be rounded to 11 bits of significand
    parts:      parts of K, each with a result; if there are several, there is no batch, and `out` is (parts, m, n)
    """

    a: Matrix
    b: Matrix
    out: int
    batch: int
    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str
    tf32: bool = False
    epilogue: Epilogue = Epilogue()
    parts: int = 1

    @property
    def step(self) -> int:
        """K of a step of warpgroups, 128 bytes."""
        return 128 // (4 if self.dtype == "float32" else 2)

    @property
    def steps(self) -> int:
        """Steps of a part of K; the last part may be shorter, filled up with zeros."""
        return ceildiv(self.k, self.parts * self.step)

    @property
    def adds(self) -> bool:
        """True if it needs multiply-adds: for operands of float32 that must not be rounded."""
        return self.dtype == "float32" and not self.tf32


SUMS, DONE = "sums", "done"  # registers of a thread: elements of the product, and results for a copy of tiles


class Columns(Record):
    """The columns that a thread of a product by warpgroups has at a time, some groups of neighbours of a piece of a row.

    matrices, rows, pieces:  extents of all tiles, which may have more rows and columns than the result
    lanes:                   neighbours in a group
    groups:                  groups of a thread
    apart:                   distance from one group of a thread to the next, in groups; the first one is below that
    dtype:                   name of the dtype to which the product's elements are rounded
    stores:                  the thread stores the results; else a copy of tiles does
    is_long:                 there are many statements for each column
    """

    matrices: int
    rows: int
    pieces: int
    lanes: int
    groups: int
    apart: int
    dtype: str
    stores: bool
    is_long: bool

    @property
    def count(self) -> int:
        """Columns of a thread."""
        return self.lanes * self.groups

    @property
    def piece(self) -> int:
        """Columns of a piece."""
        return self.count * self.apart

    @property
    def extents(self) -> dict[str, int]:
        """Extents of the numbers that identify a thread's columns, by the kernel's names for them."""
        return {"matrix": self.matrices, "row": self.rows, "piece": self.pieces, "own": self.apart}


class Generated(Record):
    """The choice to generate a kernel's code.

    opts:  options of the emitters
    """

    opts: Opts

    def __str__(self) -> str:
        return str(self.opts)


class Library(Record):
    """The choice to have a vendor's library compute the product of a kernel; the rest is generated.

    name:              name of the library, with its version
    product:           what it computes (codegen/unfuse.py says in which launches)
    algorithm:         the library's record of the algorithm, for matrices that begin at multiples of 16 bytes
    unaligned:         the same for other matrices
    workspace_nbytes:  bytes of the GPU's memory that either needs
    """

    name: str
    product: PlainProduct
    algorithm: str
    unaligned: str
    workspace_nbytes: int

    def __str__(self) -> str:
        parts = [self.name, str(self.product.epilogue), f"algorithm {self.algorithm}", f"unaligned {self.unaligned}"]
        return ", ".join(filter(None, [*parts, f"{self.workspace_nbytes} bytes"]))


class Written(Record):
    """The choice to have a kernel that was written by hand compute the product of a kernel; the rest is generated.

    product:   what it computes (codegen/unfuse.py says in which launches)
    tile:      how it is cut
    is_whole:  it computes all values that depend on the product, too (codegen/epilogue.py)
    """

    product: PlainProduct
    tile: WarpgroupTile
    is_whole: bool

    def __str__(self) -> str:
        batch = f"{self.product.batch} of K {self.product.k} in {self.product.parts}"
        return ", ".join([str(self.tile), batch, *["with its epilogue"] * self.is_whole])


class Offered(Record):
    """The choice to have a user's kernel compute values of a kernel; the rest is generated.

    name:    name of the Offer (ir/host.py)
    digest:  digest of its source and launch, and of the code generated around it
    """

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}, offered, with the digest {self.digest}"


ByHand = Written | WrittenAttention | WrittenGradients
Choice = Generated | Library | Offered | ByHand
LIBRARY_CALL = b"library "  # begins the data of a Binary that has a LibraryCall as text before its code


class LibraryCall(Record):
    """The launch of a Binary that is a call of a library; its other launches are generated code.

    choice:     the library's way to compute it
    place:      number of the call among the launches
    workspace:  slot of its workspace; None if it needs none
    """

    choice: Library
    place: int
    workspace: int | None


def write_library(call: LibraryCall, code: bytes = b"") -> bytes:
    """Returns the data of a Binary with a call of a library and the code of its other launches."""
    return LIBRARY_CALL + json.dumps(call, default=asdict).encode() + b"\n" + code


def read_library(data: bytes) -> tuple[LibraryCall, bytes]:
    """Returns the record that was given to `write_library`, and the code."""
    text, _, code = data.removeprefix(LIBRARY_CALL).partition(b"\n")
    fields = json.loads(text)
    choice = fields.pop("choice")
    product = choice.pop("product")
    a, b = Matrix(**product.pop("a")), Matrix(**product.pop("b"))
    epilogue = product.pop("epilogue")
    added, bias = epilogue.pop("added"), epilogue.pop("bias")
    made = Epilogue(added=added and Matrix(**added), bias=bias and Bias(**bias), **epilogue)
    return LibraryCall(Library(product=PlainProduct(a, b, epilogue=made, **product), **choice), **fields), code
