"""Compares what it costs to compute a value again wherever it is read with what it costs to store it, in bytes moved.

In:    nests as they grow, a value that one of them computes or that is free
Out:   `bytes_read`, `reads_few`; `dear_operands` of a product
Called by: schedule/fuse.py.    Next: picograd/schedule/nests.py

A narrow copy of a value costs as many bytes to compute again as what it is a copy of: bytes are counted, not values.
"""

from __future__ import annotations

from collections.abc import Collection

from picograd.device import Target
from picograd.ir.op import Op, greatest
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, OpCode
from picograd.schedule.draft import nbytes
from picograd.schedule.nests import Nests

MOST_READ = 2  # times its own bytes: more is not read to compute a value again at each of its readers
TILE = 128  # rows and columns of a GPU's product that a block computes
LAUNCH_BYTES = 1 << 22  # that a GPU moves while it starts a kernel
OPS_PER_BYTE = 8  # that a GPU computes while it moves a byte


def bytes_read(nests: Nests, value: Op, stored: Collection[Op] = ()) -> int:
    """Returns the bytes of the large values that a value is computed from, where `stored` were in memory, too.

    Of memory of which x[k : k + 1] is read that row counts, not the batch: it costs as much as one that stands alone.
    """
    leaves = nests.leaves([value], stored, blocks=True)
    return sum(nbytes(leaf) for leaf in leaves if 2 * leaf.numel > value.numel)


def reads_few(nests: Nests, value: Op) -> bool:
    """True for a value that is computed from few bytes; sums along a network would read ever more."""
    return bytes_read(nests, value) <= MOST_READ * nbytes(value)


def dear_operands(nests: Nests, product: Op, target: Target | None) -> list[Op]:
    """Returns what a product's tiles on a GPU would compute again at a higher price than it is stored and read for.

    Each column of tiles reads the whole left operand, each row of tiles the right one. What is computed on the way passes
    through registers, which takes as long as to read it once more: copies in the background only take what is stored. A CPU
    computes its operands while it packs them.
    """
    if product.code is not OpCode.MATMUL or target is None or not target.is_gpu:
        return []
    *_, rows, columns = product.shape
    found = []
    for operand, across in zip(product.src, (columns, rows)):
        value = operand
        while value.code in MOVEMENT and value.code is not OpCode.PAD:
            value = value.src[0]
        readers = -(-greatest(across) // TILE) * max(1, operand.numel // max(1, value.numel))
        is_computed = value.code in ELEMENTWISE or value.code is OpCode.GATHER
        is_dear = is_computed and readers > 1 and value not in nests.home
        if is_dear and _again(nests, value) * readers > _stored(nests, value, readers):
            found.append(value)
    return found


def _again(nests: Nests, value: Op) -> int:
    """Returns the price of computing a value in a tile."""
    return bytes_read(nests, value) + nbytes(value) + nests.num_ops(value) * value.numel // OPS_PER_BYTE


def _stored(nests: Nests, value: Op, readers: int) -> int:
    """Returns the price of storing a value where it is computed anyway, or else in a kernel of its own, and reading it."""
    is_at_hand = nests.is_bound(value) and nests.is_storable(value)
    return (0 if is_at_hand else _again(nests, value) + LAUNCH_BYTES) + (1 + readers) * nbytes(value)
