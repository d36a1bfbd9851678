"""How a GPU cuts an attention of few queries over many keys: parts of the keys, and rows of a block of threads.

In:    an ATTENTION or ATTENTION_GRAD, Target
Out:   `Parts`;  `parts_of`, `has_one_mask`, `most_keys`
Next:  picograd/ir/attention_cuts.py

Such an attention is limited by how fast keys and values are read, and its queries alone would leave most of a GPU idle. So
blocks share the keys. The queries of all heads that share a head of keys are rows of one block, up to what registers hold:
each key is read once for all of them. How sums are cut follows from the number of keys and features and from the dtype
alone, so that a row has the same bits alone and in any batch.
"""

from __future__ import annotations

from math import gcd

from picograd.device import Target
from picograd.ir.build import static_shape
from picograd.ir.coordinates import Coords, move, placeholders
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import LARGE, add, bounds, minimum
from picograd.record import Record

FEW_QUERIES = 16  # so many fill the rows of a matrix instruction; fewer are rows of what is read but once
MOST_ROWS = 64  # for one head of keys: more are worth a product by matrix instructions
MOST_THREADS = 128
MOST_AT_ONCE = 4  # keys that a team looks at together
ON_ITS_WAY = 32  # 32-bit words of keys and values that a thread reads together, once they are as wide as what is computed
REGISTERS = 112  # the same with what it keeps of rows; the others are addresses, and 16 bits at a time where they must be
LEAST_PART = 64  # keys: what storing and joining a part costs is then little
MOST_PARTS = 64


class Parts(Record):
    """How an attention of few queries is cut.

    threads:  of a block
    team:     threads that look at a key together, a power of two
    lanes:    features of one access
    at_once:  keys that a team looks at together
    rows:     of a block
    length:   keys of a part, a multiple of what the teams of a block look at together
    most:     parts there can be
    """

    threads: int
    team: int
    lanes: int
    at_once: int
    rows: int
    length: int
    most: int

    @property
    def num_teams(self) -> int:
        return self.threads // self.team

    @property
    def num_warps(self) -> int:
        return self.threads // WARP_THREADS

    def steps(self, features: int) -> int:
        """Returns the accesses that a thread makes to the features of a key or value."""
        return -(-features // (self.team * self.lanes))


def parts_of(attention: Op, target: Target) -> Parts | None:
    """Returns how an ATTENTION of few queries is cut; None where it has more, a target no shuffles, and of a gradient."""
    if attention.code is not OpCode.ATTENTION:
        return None
    (_, heads, queries, features), (_, groups, keys, _), (*_, values) = (s.shape for s in attention.src[:3])
    if not target.is_gpu or not target.has_shuffle or not isinstance(queries, int) or queries >= FEW_QUERIES:
        return None
    H, G, D, E = static_shape((heads, groups, features, values))
    num_rows, span = H // G * queries, most_keys(attention, queries, keys)
    if num_rows > MOST_ROWS or span >= LARGE:
        return None
    lanes = gcd(D, E, target.vector_bytes // attention.dtype.itemsize)
    threads, team = min(target.block_threads, MOST_THREADS), 1
    while team < WARP_THREADS and team * lanes < max(D, E):
        team *= 2
    own = sum(-(-features // (team * lanes)) * lanes for features in (D, E))
    words = attention.dtype.compute_dtype.itemsize // 4
    at_once = max(1, min(MOST_AT_ONCE, ON_ITS_WAY // (own * words)))
    left = REGISTERS // words - at_once * own
    if left < own + 2 + at_once:
        return None
    masks = 0 if len(attention.src) == 3 or has_one_mask(attention) else at_once  # that a row has of its own
    most_rows = max(1, left // (own + 2 + at_once + masks))
    rows = -(-num_rows // -(-num_rows // most_rows))  # as many in each block, but for the last
    length = max(LEAST_PART, -(-span // MOST_PARTS))
    length += -length % (threads // team * at_once)
    return Parts(threads, team, lanes, at_once, rows, length, max(1, -(-span // length)))


def has_one_mask(attention: Op) -> bool:
    """Returns whether all heads and queries of an example share what a mask says of a key."""
    mask = attention.src[3]
    coords: Coords = placeholders(mask.shape)
    rows = coords[1:3]
    while mask.code in MOVEMENT:
        coords, _ = move(mask, coords)
        mask = mask.src[0]
    used = toposort([coord for coord in coords if isinstance(coord, Op)])
    return not any(axis in used for axis in rows)


def most_keys(attention: Op, queries: int, keys: Dim) -> int:
    """Returns how many keys some of the queries see at most."""
    window = attention.arg.window
    return bounds(minimum(keys, add(queries, window - 1)) if window else keys)[1]
