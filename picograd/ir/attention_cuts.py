"""How a GPU cuts an attention: rows that a block of threads has, and positions that it looks at together.

In:    an ATTENTION or ATTENTION_GRAD, Target
Out:   `Cut`;  `cut_of_averages`, `cut_of_queries`, `cut_of_keys`;  `part_of_keys`;  `as_it_is_cut`, `has_kernel`
Next:  picograd/ir/substitute.py

A block holds rows of what stays, queries or keys, in shared memory, and what they become in registers; a tile of the others
comes to shared memory at a time. The first cut in the order of preference that registers and shared memory hold is taken:
the more rows, the fewer reads of shared memory a product needs; the more columns, the fewer barriers. It leaves shared
memory to a second block of the same multiprocessor, which computes while the first waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.dtype import DType
from picograd.ir.attention import lengths, with_rows_of_a_head
from picograd.ir.attention_parts import FEW_QUERIES, MOST_PARTS, most_keys, parts_of
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import takes_tf32
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import bounds
from picograd.record import Record

MOST_WARPS = 4
WIDE = 16  # threads that share a row where no matrix instruction is used
REGISTERS = 127  # 32-bit words of accumulators and of what is on its way; the others of 255 are fragments and addresses
MOST_REGISTERS = 176  # the same where there is no smaller cut; nothing spills (tests/golden/compilers/gpu_resources.txt)
WARP_CUTS = ((2, 64), (1, 64), (2, 32), (1, 32), (1, 16))  # (row tiles of a warp, columns), the best first
THREAD_CUTS = ((4, 64), (4, 32), (2, 32), (2, 16), (1, 16))  # (rows of a thread, columns)
FEWEST_LANES = 8  # queries that fill lanes of a CPU
ENOUGH_BLOCKS = 128  # that leave no part of a GPU idle
MANY_TIMES = 8  # as many keys as queries: blocks share them
LONG_PART = 512  # keys: what storing and joining a part of 64 rows costs is then little
PART_ROWS = 64  # of each so many rows blocks share the keys


class Cut(Record):
    """What a block of threads has of an attention.

    by_warps:  products are matrix instructions' (codegen/gpu/warp_rows.py), else multiply-adds (codegen/gpu/thread_rows.py)
    dtype:     in shared memory
    threads:   of the block
    high:      row tiles of a warp, or rows of a thread
    columns:   positions that are looked at together
    """

    by_warps: bool
    dtype: DType
    threads: int
    high: int
    columns: int

    @property
    def row_threads(self) -> int:
        """Threads that share a row."""
        return 4 if self.by_warps else WIDE

    @property
    def own_rows(self) -> int:
        """Rows of which a thread has a part: two of each row tile of its warp."""
        return 2 * self.high if self.by_warps else self.high

    @property
    def rows(self) -> int:
        """Rows of the block."""
        return self.threads // self.row_threads * self.own_rows

    @property
    def padding(self) -> int:
        """Elements between positions in shared memory, so that a column of it is not all in one bank."""
        return 8 if self.by_warps else 16 // self.dtype.itemsize


class Needs(Record):
    """What a kernel keeps, in numbers of features.

    own:      of the matrices whose rows a block has
    walked:   of those that come tile by tile
    scores:   matrices of rows x columns in registers
    results:  of what is added up in registers
    """

    own: Sequence[int]
    walked: Sequence[int]
    scores: int
    results: Sequence[int]


def cut_of_averages(attention: Op, target: Target) -> Cut | None:
    """Returns the cut of an ATTENTION; None where none fits."""
    H, _, T, _, D, E = lengths(attention)
    return _cut(attention, target, Needs((D,), (D, E), 1, (E,)), T, H)


def cut_of_queries(attention: Op, target: Target) -> Cut | None:
    """Returns the cut of what finds the gradients of queries; None where none fits."""
    H, _, T, _, D, E = lengths(attention)
    return _cut(attention, target, Needs((D, E), (D, E), 2, (D,)), T, H)


def cut_of_keys(attention: Op, target: Target) -> Cut | None:
    """Returns the cut of what finds the gradients of keys and values; None where none fits."""
    _, G, _, S, D, E = lengths(attention)
    return _cut(attention, target, Needs((D, E), (D, E), 2, (D, E)), S, G)


def part_of_keys(attention: Op, cut: Cut) -> int | None:
    """Returns how many keys a block looks at where several share those of its queries; None where it looks at all.

    It follows from the numbers of queries and keys alone, so that a row has the same bits alone and in any batch.
    """
    _, _, T, S, _, _ = lengths(attention)
    keys = most_keys(attention, T, S)
    length = max(LONG_PART, -(-keys // max(1, MOST_PARTS // -(-T // PART_ROWS))))
    length += -length % cut.columns
    return length if keys >= MANY_TIMES * T and length < keys else None


def as_it_is_cut(attention: Op, target: Target | None) -> Op:
    """Returns what a kernel of many queries computes: few queries of heads that share keys are those of one head.

    Not where they stand at places among the keys, or have a mask, and not on a CPU.
    """
    queries, arg = attention.src[0].shape[2], attention.arg
    is_masked = attention.code is OpCode.ATTENTION and len(attention.src) > 3
    if target is None or not target.is_gpu or not isinstance(queries, int) or queries >= FEW_QUERIES:
        return attention
    return attention if arg.causal or arg.window or is_masked else with_rows_of_a_head(attention)


def has_kernel(attention: Op, target: Target | None) -> bool:
    """Returns whether an ATTENTION or ATTENTION_GRAD has a kernel, on a CPU where no target is given.

    Its lengths are known, but for the batch's; on a CPU, for those of queries and keys; on a GPU with
    shuffles, where queries are few, for that of the keys.
    Gradients of few rows have none there, and masks only averages of few.
    """
    if target is not None and parts_of(attention, target):
        return True
    attention = as_it_is_cut(attention, target)
    if attention.code is OpCode.ATTENTION and len(attention.src) > 3:
        return False
    is_cpu = target is None or not target.is_gpu
    known = slice(1, None, 2 if is_cpu else 1)
    if not all(isinstance(length, int) for source in attention.src[:3] for length in source.shape[known]):
        return False
    if target is None or not target.is_gpu:
        return bounds(attention.src[0].shape[2])[0] >= FEWEST_LANES
    if not target.has_shuffle or attention.src[0].shape[2] < FEW_QUERIES:
        return False
    cuts = (cut_of_averages,) if attention.code is OpCode.ATTENTION else (cut_of_queries, cut_of_keys)
    return all(cut(attention, target) is not None for cut in cuts)


def padded(features: int) -> int:
    """Returns the features that are computed: whole steps of a matrix instruction, and as many for all threads of a row."""
    return -(-features // WIDE) * WIDE


def _cut(attention: Op, target: Target, needs: Needs, length: int, num_heads: int) -> Cut | None:
    """Returns the first cut that fits a block's shared memory and a thread's registers: one by warps, where they multiply.

    Args:
      length, num_heads:  rows of a head, and heads, over which blocks are laid
    """
    dtype, wide = attention.dtype, attention.dtype.compute_dtype
    found = None
    if target.multiplies(dtype, takes_tf32(attention)):
        threads = min(target.block_threads, MOST_WARPS * WARP_THREADS)
        cuts = [Cut(True, dtype, threads, high, columns) for high, columns in WARP_CUTS]
        found = _first_that_fits(cuts, attention, target, needs, length, num_heads)
        if dtype is not wide:
            return found
    cuts = [Cut(False, wide, target.block_threads, high, columns) for high, columns in THREAD_CUTS]
    return found or _first_that_fits(cuts, attention, target, needs, length, num_heads)


def _first_that_fits(
    cuts: Sequence[Cut], attention: Op, target: Target, needs: Needs, length: int, num_heads: int
) -> Cut | None:
    """Returns the first cut that leaves enough blocks, and room for a second one on a multiprocessor; the last need not."""
    batch = attention.src[0].shape[0] if isinstance(attention.src[0].shape[0], int) else ENOUGH_BLOCKS
    for cut in cuts:
        leaves_enough = cut.rows < 2 * length and batch * num_heads * -(-length // cut.rows) >= ENOUGH_BLOCKS
        most, room = REGISTERS, min(target.shared_bytes, max(DECLARED_SHARED_BYTES, target.shared_bytes // 2))
        if cut is cuts[-1]:
            most, room = MOST_REGISTERS, target.shared_bytes
        registers = _registers(cut, needs, attention.dtype.compute_dtype, target.has_async_copies)
        fits = registers <= most and _shared_nbytes(cut, needs, target.has_async_copies) <= room
        if fits and (cut.high == 1 or leaves_enough):
            return cut
    return None


def _registers(cut: Cut, needs: Needs, wide: DType, copied: bool) -> int:
    """Returns the 32-bit words that a thread keeps: accumulators, and what is not copied of the tiles on their way."""
    width = needs.scores * cut.columns + sum(map(padded, needs.results))
    on_its_way = 0 if copied else cut.columns * sum(map(padded, needs.walked)) * cut.dtype.itemsize // cut.threads
    return (cut.own_rows * width // cut.row_threads * wide.itemsize + on_its_way) // 4


def _shared_nbytes(cut: Cut, needs: Needs, copied: bool) -> int:
    """Returns what a block shares: matrices, twice those that are copied, and for multiply-adds the weights of a tile."""
    numel = cut.rows * sum(padded(features) + cut.padding for features in needs.own)
    numel += (2 if copied else 1) * cut.columns * sum(padded(features) + cut.padding for features in needs.walked)
    numel += 0 if cut.by_warps else cut.rows * (cut.columns + cut.padding)
    return numel * cut.dtype.itemsize


