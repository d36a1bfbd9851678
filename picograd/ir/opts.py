"""The choices of a kernel, as data: generated with some Opts, written by hand, or with a call of a vendor's library.

An emitter reads Opts, codegen/emit.py proposes them, engine/choose.py picks among the proposals. Whatever the Opts are,
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
# Tiles that are copied to shared memory: a multiple of a piece goes at once; a row is what is swizzled, a slab 64 rows.
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
    """The sizes of an attention softmax(scale q k^T) v, and what else its AttentionArg says.

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
    window: int = 0
    soft_cap: float = 0.0
    dropout: float = 0.0

    def nbytes(self, rows: int) -> int:
        """Bytes in shared memory of these rows of keys and values, or of q and the averages."""
        wide = sum(ceildiv(each, SWIZZLED) * SWIZZLED for each in (self.features, self.values))
        return 2 * rows * wide

    @property
    def pairs(self) -> int:
        """Queries times keys that they see, of all heads."""
        seen = self.queries * self.keys - (self.queries * (self.queries - 1) // 2 if self.causal else 0)
        if self.window:
            seen = min(seen, self.queries * self.window)
        return self.batch * self.heads * max(seen, 0)


class PlainAttention(Record):
    """An attention of matrices in memory.

    logsumexp:  slot of a result, contiguous; None: it is not asked for
    draws:      where there is dropout
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

    grad:              of its averages
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
    """The blocking of an attention or its gradient for a block of warpgroups: one copies, the others look at tiles.

    lookers:   warpgroups that look, each for 64 rows: of queries, or of keys where their gradients are made
    columns:   rows of a tile that is looked at, of the other kind
    stages:    of tiles that are on their way or looked at
    together:  heads whose blocks run at the same time
    blocks:    of a launch, at most as many as multiprocessors
    keeps:     sets of its own rows that a block has room for: a second one comes while the first is looked at
    lags:      of gradients: the last products of a tile overlap the first of the next, if there are registers
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

    plain:  what it computes (codegen/hopper.py says in which launches)
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
    stored_features = min(shape.values, 2 * SWIZZLED)  # more are stored in two goes
    kept, stored = (2 * tile.rows * ceildiv(each, SWIZZLED) * SWIZZLED for each in (shape.features, stored_features))
    return tile.keeps * kept + tile.stages * shape.nbytes(tile.columns) + stored


def gradients_nbytes(shape: HeadsShape, tile: HeadsTile, by_keys: bool) -> int:
    """Returns the bytes of shared memory that a block asks for, of those that make gradients."""
    slabs = 2 * tile.rows * (2 if by_keys else ceildiv(shape.features, SWIZZLED)) * SWIZZLED
    numbers = tile.stages * 4 * 2 * (tile.columns if by_keys else 1)
    return tile.keeps * shape.nbytes(tile.rows) + tile.stages * shape.nbytes(tile.columns) + slabs + numbers


# ---- tiles, products and choices ----
GROUP = 4  # of float32 are 16 bytes, the widest access of a thread
K_STEP = 64  # a multiple of the depth of every tile on a GPU
MMA_ROWS, MMA_COLUMNS, MMA_DEPTH = 16, 8, 16  # of one matrix instruction (ir/statements.py, Mma)


class RegisterTile(Record):
    """The tiles of a product on a CPU.

    rows:        of the tile of the result that stays in registers
    vectors:     of its columns
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


class WarpgroupTile(Record):
    """The blocking of a product for a block of warpgroups: one copies, the others multiply (devices/cuda/hopper_product.h).

    rows, columns:  of the result, that the block computes at a time
    stages:         of both operands' tiles, that are on their way or read
    slabs:          of each warpgroup that multiplies, by which results leave; 0: they leave from registers
    group:          rows of tiles, in which tiles follow each other column by column
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

    products:  how each MATMUL nest is cut, in the order of the nests
    """

    products: tuple[Tile, ...] = ()

    def __str__(self) -> str:
        return "; ".join(map(str, self.products)) or "none"


class Matrix(Record):
    """The matrices of a batch in memory; all numbers are elements.

    slot:             of the kernel's parameters
    offset:           before the first of them
    stride:           from one row to the next, each of which is contiguous
    is_column_major:  columns are contiguous instead, and `stride` is from one of them to the next
    batch_stride:     from one matrix to the next; 0: they are all the same one
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

    scale:   of the product
    factor:  of the addition
    added:   (m, n), in the dtype of the result, row-major; None where nothing is
    bias:    (n,), in the dtype of the result; None where there is none
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
    """out = a @ b for each of a batch, with an epilogue and nothing else: what a vendor's library is asked for.

    a, b:       (m, k) and (k, n)
    out:        slot of the result (batch, m, n), which is contiguous
    dtype:      name of that of both operands; sums are float32, and so is the epilogue
    out_dtype:  name of the result's: the same, or float32
    tf32:       operands of float32 may be rounded to 11 bits of significand
    parts:      of K, each with a result; then there is no batch, and `out` is (parts, m, n)
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
        """Steps of a part of K; the last part may have less, and zeros for the rest."""
        return ceildiv(self.k, self.parts * self.step)

    @property
    def adds(self) -> bool:
        """True where only multiply-adds compute it: of float32 that is not rounded."""
        return self.dtype == "float32" and not self.tf32


SUMS, DONE = "sums", "done"  # of a thread: elements of the product, and what a copy of tiles stores in their place


class Columns(Record):
    """The columns that a thread of a product by warpgroups has at a time, some groups of neighbours of a piece of a row.

    matrices, rows, pieces:  extents of the whole: those of tiles, which may have more rows and columns than the result
    lanes:                   neighbours in a group
    groups:                  of a thread
    apart:                   from one group of a thread to the next, in groups; the first is less than that
    dtype:                   name of that of the product's elements, which they are rounded to
    stores:                  the thread stores the values computed of them; else a copy of tiles does
    is_long:                 the statements for each of them are many
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
        """Extents of the numbers that say which columns a thread has, as the kernel calls them."""
        return {"matrix": self.matrices, "row": self.rows, "piece": self.pieces, "own": self.apart}


class Generated(Record):
    """The choice to have codegen/ write a kernel's code.

    opts:  with these choices
    """

    opts: Opts

    def __str__(self) -> str:
        return str(self.opts)


class Library(Record):
    """The choice to have a vendor's library compute the product of a kernel; what it leaves is generated.

    name:              of the library, with its version
    product:           what it computes (codegen/unfuse.py says in which launches)
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
        parts = [self.name, str(self.product.epilogue), f"algorithm {self.algorithm}", f"unaligned {self.unaligned}"]
        return ", ".join(filter(None, [*parts, f"{self.workspace_nbytes} bytes"]))


class Written(Record):
    """The choice to have a kernel that was written by hand compute the product of a kernel; what it leaves is generated.

    product:   what it computes (codegen/unfuse.py says in which launches)
    tile:      how it is cut
    is_whole:  it computes all of the kernel's values of the product as well (codegen/epilogue.py)
    """

    product: PlainProduct
    tile: WarpgroupTile
    is_whole: bool

    def __str__(self) -> str:
        batch = f"{self.product.batch} of K {self.product.k} in {self.product.parts}"
        return ", ".join([str(self.tile), batch, *["with its epilogue"] * self.is_whole])


class Offered(Record):
    """The choice to have a user's kernel compute values of a kernel; what it leaves is generated.

    name:    of the Offer (ir/host.py)
    digest:  of its source and launch, and of the code generated around it
    """

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}, offered, with the digest {self.digest}"


ByHand = Written | WrittenAttention | WrittenGradients
Choice = Generated | Library | Offered | ByHand
LIBRARY_CALL = b"library "  # what the data of a Binary begins with that has a LibraryCall as text before its code


class LibraryCall(Record):
    """The launch of a Binary that is a call of a library; the others are generated code.

    choice:     what is called
    place:      of the call among the launches
    workspace:  slot of the memory that it works in; None where it needs none
    """

    choice: Library
    place: int
    workspace: int | None


def write_library(call: LibraryCall, code: bytes = b"") -> bytes:
    """Returns the data of a Binary with a call of a library and the code of its other launches."""
    return LIBRARY_CALL + json.dumps(call, default=asdict).encode() + b"\n" + code


def read_library(data: bytes) -> tuple[LibraryCall, bytes]:
    """Returns the record that `write_library` was given, and the code."""
    text, _, code = data.removeprefix(LIBRARY_CALL).partition(b"\n")
    fields = json.loads(text)
    choice = fields.pop("choice")
    product = choice.pop("product")
    a, b = Matrix(**product.pop("a")), Matrix(**product.pop("b"))
    epilogue = product.pop("epilogue")
    added, bias = epilogue.pop("added"), epilogue.pop("bias")
    made = Epilogue(added=added and Matrix(**added), bias=bias and Bias(**bias), **epilogue)
    return LibraryCall(Library(product=PlainProduct(a, b, epilogue=made, **product), **choice), **fields), code
