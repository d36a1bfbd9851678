"""ATTENTION and ATTENTION_GRAD: their composition, whether a device has a kernel for them, their blocking on a GPU.

They are composed of MATMULs, reductions and elementwise Ops, which give their higher derivatives, and their values
if there is no kernel.

C = cap tanh(scale q k^T / cap), or scale q k^T, plus a mask of floats (B, H, T, S). Keys are visible where causal, window
and a mask of bools allow it. L = log(sum(exp(C))) over visible keys; P = exp(C - L); O = P v.
dv = P^T dO;  dP = dO v^T;  dC = P (dP - delta);  dS = scale dC (1 - (C / cap)^2);  dq = dS k;  dk = dS^T q.
delta = rowsum(dO O) - dL sums up a row's feedback.

With dropout of probability p, O = (M P) v, dv = (M P)^T dO and dP = M (dO v^T), where M is 1 / (1 - p), or 0 where a weight
is dropped. That follows from its place: weight (t, s) of head number n of those that share a seed has the random bits
threefry((n T + t) S + s, seed), as dropout of all weights in memory would. A seed and a number of each head are sources,
(B, H) uint64 and int64.

Source: Dao, Fu, Ermon, Rudra, Re 2022, arXiv:2205.14135, appendix B.2. Letters: B batch, H = G R heads, R of them share k
and v, T queries, S keys, D and E features. Heads that share keys are R T rows of one matrix. B, T and S may be
symbolic. All is computed in the dtype that narrow floats are computed in, and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, gcd

from picograd import dtype as dtypes
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.dtype import DType
from picograd.ir.build import (
    both,
    cast,
    equal,
    expand,
    less,
    less_equal,
    positions,
    product,
    reduce,
    repeat_axes,
    reshape,
    shr,
    static_shape,
    swap_last,
    unary,
    where,
)
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.shape import AttentionArg, draws_of, takes_tf32
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import LARGE, Coords, add, bounds, ceildiv, minimum, move, mul, placeholders, subtract, to_op
from picograd.record import Record

NOTHING = float("-inf")  # the score of a key that is not visible, and the logsumexp of a row without visible keys


def outputs(op: Op) -> list[Op]:
    """Returns the OUTPUTs of an ATTENTION or an ATTENTION_GRAD."""
    first, wide = op.dtype, op.dtype.compute_dtype
    dtypes = (first, wide) if op.code is OpCode.ATTENTION else (first, first, first)
    return [Op(OpCode.OUTPUT, dtype, (op,), number) for number, dtype in enumerate(dtypes)]


def lengths(op: Op) -> tuple[int, int, int, int, int, int]:
    """Returns H, G, T, S, D and E of an ATTENTION or an ATTENTION_GRAD; all of them must be known."""
    (_, heads, queries, features), (_, groups, keys, _), (*_, values) = (s.shape for s in op.src[:3])
    H, G, T, S, D, E = static_shape((heads, groups, queries, keys, features, values))
    return H, G, T, S, D, E


def mask_of(op: Op) -> Op | None:
    """Returns the mask of an ATTENTION, (B, H, T, S): whether a key counts, or a number that is added to its score."""
    return op.src[3] if op.code is OpCode.ATTENTION and len(op.src) == 4 else None


def is_kept(number: Op, seed: Op, probability: float) -> Op:
    """Returns whether dropout keeps a weight: its upper 24 bits, as a fraction, are not below the probability (float32)."""
    bits = Op(OpCode.THREEFRY, dtypes.uint64, (cast(number, dtypes.uint64), seed))
    fraction = cast(shr(bits, 40), dtypes.uint32)
    return less_equal(least_kept(probability), fraction)


def least_kept(probability: float) -> int:
    """Returns the least number of 24 bits with which dropout keeps a weight; 2^24 if it keeps none."""
    return ceil(float(dtypes.float32.scalar(probability)) * 2**24)


def with_rows_of_a_head(op: Op) -> Op:
    """Returns an ATTENTION or ATTENTION_GRAD in which heads that share keys are the queries of one head.

    Its results have the layout of `op`'s in memory. Scores must not depend on positions: no causal,
    window, or dropout, whose draws follow from positions.
    """
    return op.replace(tuple(_with_rows(op)))


def _with_rows(op: Op) -> list[Op]:
    """Returns the sources without draws, those of H heads (B, H, T, ...) as (B, G, R T, ...)."""
    B, G, R, T, _ = _extents(op)
    src = op.src[: len(op.src) - len(draws_of(op))]
    return [x if i in (1, 2) else reshape(x, (B, G, mul(R, T), *x.shape[3:])) for i, x in enumerate(src)]


def composed(op: Op) -> list[Op]:
    """Returns the composed form of each result of an ATTENTION or an ATTENTION_GRAD; common parts are one Op."""
    results = _averages(op) if op.code is OpCode.ATTENTION else _gradients(op)
    return [cast(reshape(x, like.shape), like.dtype) for x, like in zip(results, outputs(op))]


def _averages(attention: Op) -> list[Op]:
    """Returns O (B, G, R T, E) and L (B, G, R T); 0 and -inf, without NaN, for a row without visible keys."""
    q, k, v, *masks = _grouped(attention)
    arg: AttentionArg = attention.arg
    scores = _visible(_scores(q, k, arg)[0], attention)
    for mask in masks:
        scores = where(mask, scores, NOTHING) if mask.dtype is dtypes.bool_ else scores + mask
    greatest = unary(OpCode.DETACH, reduce(scores, OpCode.MAX, (3,)))
    greatest = where(equal(greatest, NOTHING), 0.0, greatest)
    powers = unary(OpCode.EXP, scores - _along(greatest, scores))
    total = reduce(powers, OpCode.ADD, (3,))
    sees_none = equal(total, 0.0)
    total = where(sees_none, 1.0, total)
    weights = _dropped(powers * _along(unary(OpCode.RECIPROCAL, total), powers), attention)
    return [product(weights, v), where(sees_none, NOTHING, greatest + unary(OpCode.LOG, total))]


def _gradients(gradient: Op) -> list[Op]:
    """Returns dq (B, G, R T, D), dk and dv, the latter summed over the heads that share k and v."""
    q, k, v, grad, logsumexp, delta = _grouped(gradient)
    arg: AttentionArg = gradient.arg
    scores, bent = _scores(q, k, arg)
    # Masked last: for a row without visible keys the difference is infinite.
    weights = unary(OpCode.EXP, _visible(scores - _along(logsumexp, scores), gradient))
    slopes = weights * (_dropped(product(grad, swap_last(v)), gradient) - _along(delta, scores))
    if bent is not None:
        slopes = slopes * (bent.filled(1) - bent * bent)
    slopes = slopes * arg.scale
    return [product(slopes, k), product(swap_last(slopes), q), product(swap_last(_dropped(weights, gradient)), grad)]


def _extents(op: Op) -> tuple[Dim, int, int, Dim, Dim]:
    """Returns B, G, R, T and S."""
    q, k = op.src[0].shape, op.src[1].shape
    H, G = static_shape((q[1], k[1]))
    return q[0], G, H // G, q[2], k[2]


def _grouped(op: Op) -> list[Op]:
    """Returns the sources in the dtype of computation, those of H heads (B, H, T, ...) as (B, G, R T, ...)."""
    found = _with_rows(op)
    return [x if x.dtype is dtypes.bool_ else cast(x, op.dtype.compute_dtype) for x in found]


def _scores(q: Op, k: Op, arg: AttentionArg) -> tuple[Op, Op | None]:
    """Returns C (B, G, R T, S), as if all keys were visible, and C / cap if there is a cap."""
    scores = product(q, swap_last(k)) * arg.scale
    if not arg.soft_cap:
        return scores, None
    bent = unary(OpCode.TANH, scores / arg.soft_cap)
    return bent * arg.soft_cap, bent


def _visible(scores: Op, op: Op) -> Op:
    """Returns scores (B, G, R T, S), -inf for keys that are not visible."""
    arg: AttentionArg = op.arg
    if not arg.causal and not arg.window:
        return scores
    heads = _extents(op)  # (B, G, R, T, S)
    T, S = heads[3:]
    position, key = positions(heads, 3) + expand(to_op(subtract(S, T)), heads), positions(heads, 4)
    seen: list[Op] = []
    if arg.causal:
        seen.append(less_equal(key, position))
    if arg.window:
        seen.append(less(position, key + arg.window))
    return where(reshape(seen[0] if len(seen) == 1 else both(*seen), scores.shape), scores, NOTHING)


def _dropped(weights: Op, op: Op) -> Op:
    """Returns weights (B, G, R T, S), or their gradients, after dropout."""
    if not op.arg.dropout:
        return weights
    B, G, R, T, S = _extents(op)
    places = (B, mul(G, R), T, S)
    seed, number = (repeat_axes(x, (2, 3), places) for x in draws_of(op))
    number = number * expand(to_op(mul(T, S)), places) + positions(places, 2) * expand(to_op(S), places)
    kept = reshape(is_kept(number + positions(places, 3), seed, op.arg.dropout), weights.shape)
    return where(kept, weights * (1.0 / (1.0 - op.arg.dropout)), 0.0)


def _along(rows: Op, scores: Op) -> Op:
    """Returns a value for each row (B, G, R T) at each of its scores."""
    return repeat_axes(rows, (3,), scores.shape)


# ---- parts of the keys, for few queries ----
# How a GPU cuts an attention of few queries over many keys: parts of the keys, and rows of a block of threads.
#
# Such an attention is limited by reading keys and values, and its queries alone would leave most of a GPU idle.
# So blocks share the keys. The queries of all heads that share a head of keys are rows of one block, as many as registers
# hold: each key is read once for all of them. How sums are cut follows from the number of keys and features and from the
# dtype alone, so that a row has the same bits alone and in any batch.
MATRIX_QUERIES_MIN = 16  # queries, as many as a matrix instruction has rows; for fewer blocks share the keys
ROWS_MAX = 64  # rows for one head of keys: more are worth matrix instructions
THREADS_MAX = 128
KEYS_AT_ONCE_MAX = 4  # keys that a team handles together
READ_WORDS = 32  # 32-bit words of keys and values that a thread reads together, in the dtype of computation
PART_REGISTERS = 112  # for those and for a thread's rows; the others are for addresses and unconverted elements
PART_KEYS_MIN = 64  # keys of a part: storing and joining it is then cheap
PARTS_MAX = 64


class Parts(Record):
    """The blocking of an attention of few queries.

    threads:  threads of a block
    team:     threads that share a key, a power of two
    lanes:    features of one access
    at_once:  keys that a team handles together
    rows:     rows of a block
    length:   keys of a part, a multiple of the number that the teams of a block handle together
    most:     greatest number of parts
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
        return ceildiv(features, self.team * self.lanes)


def parts_of(attention: Op, target: Target) -> Parts | None:
    """Returns the cut of an ATTENTION of few queries; None for more, for dropout, for gradients, and without shuffles."""
    if attention.code is not OpCode.ATTENTION or attention.arg.dropout:
        return None
    (_, heads, queries, features), (_, groups, keys, _), (*_, values) = (s.shape for s in attention.src[:3])
    if not target.is_gpu or not target.has_shuffle or not isinstance(queries, int) or queries >= MATRIX_QUERIES_MIN:
        return None
    H, G, D, E = static_shape((heads, groups, features, values))
    num_rows, span = H // G * queries, most_keys(attention, queries, keys)
    if num_rows > ROWS_MAX or span >= LARGE:
        return None
    lanes = gcd(D, E, target.lanes(attention.dtype))
    threads, team = min(target.block_threads, THREADS_MAX), 1
    while team < WARP_THREADS and team * lanes < max(D, E):
        team *= 2
    own = sum(ceildiv(features, team * lanes) * lanes for features in (D, E))
    words = attention.dtype.compute_dtype.itemsize // 4
    at_once = max(1, min(KEYS_AT_ONCE_MAX, READ_WORDS // (own * words)))
    left = PART_REGISTERS // words - at_once * own
    if left < own + 2 + at_once:
        return None
    masks = 0 if mask_of(attention) is None or has_one_mask(attention) else at_once  # that a row has of its own
    most_rows = max(1, left // (own + 2 + at_once + masks))
    rows = ceildiv(num_rows, ceildiv(num_rows, most_rows))  # equally many in each block except the last
    length = max(PART_KEYS_MIN, ceildiv(span, PARTS_MAX))
    length += -length % (threads // team * at_once)
    return Parts(threads, team, lanes, at_once, rows, length, max(1, ceildiv(span, length)))


def has_one_mask(attention: Op) -> bool:
    """Returns whether all heads and queries of an example have the same mask."""
    mask = attention.src[3]
    coords: Coords = placeholders(mask.shape)
    rows = coords[1:3]
    while mask.code in MOVEMENT:
        coords, _ = move(mask, coords)
        mask = mask.src[0]
    used = toposort([coord for coord in coords if isinstance(coord, Op)])
    return not any(axis in used for axis in rows)


def most_keys(attention: Op, queries: int, keys: Dim) -> int:
    """Returns the largest number of keys that some of the queries see."""
    window = attention.arg.window
    return bounds(minimum(keys, add(queries, window - 1)) if window else keys)[1]


# ---- cuts of a block of threads ----
# How a GPU cuts an attention: the rows of a block of threads, and the positions that it handles together.
#
# A block keeps rows, of queries or of keys, in shared memory, and their results in registers; tiles of the
# others are copied to shared memory one after the other. The first cut, in order of preference, that fits the memory is
# taken: more rows need fewer reads of shared memory, more columns fewer barriers. It leaves
# shared memory to a second block of the same multiprocessor, which computes while the first waits.
WARPS_MAX = 4
ROW_THREADS = 16  # threads that share a row without matrix instructions
ACCUMULATOR_WORDS_MAX = 127  # 32-bit words of accumulators and values under way; the others of 255: fragments and addresses
REGISTERS_MAX = 176  # the same if there is no smaller cut; nothing spills (tests/golden/compilers/gpu_resources.txt)
WARP_CUTS = ((2, 64), (1, 64), (2, 32), (1, 32), (1, 16))  # (row tiles of a warp, columns), the best first
THREAD_CUTS = ((4, 64), (4, 32), (2, 32), (2, 16), (1, 16))  # (rows of a thread, columns)
LANE_QUERIES_MIN = 8  # queries that fill the lanes of a CPU
BLOCKS_MIN = 128  # fewer blocks leave parts of a GPU idle
QUERY_KEYS_MIN = 8  # keys for each query from which on blocks share them
TILE_PART_KEYS_MIN = 512  # keys of a part of 64 rows: storing and joining it is then cheap
PART_ROWS = 64  # rows for which blocks share the keys


class Cut(Record):
    """The share of a block of threads in an attention.

    by_warps:  products use matrix instructions, else multiply-adds (codegen/block_rows.py)
    dtype:     dtype in shared memory
    threads:   threads of the block
    high:      row tiles of a warp, or rows of a thread
    columns:   positions that are handled together
    """

    by_warps: bool
    dtype: DType
    threads: int
    high: int
    columns: int

    @property
    def row_threads(self) -> int:
        """Threads that share a row."""
        return 4 if self.by_warps else ROW_THREADS

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
    """The memory that a kernel needs, in numbers of features.

    own:      features of the matrices whose rows a block keeps
    walked:   features of the matrices that are read tile by tile
    scores:   matrices of rows x columns in registers
    results:  features of sums in registers
    """

    own: Sequence[int]
    walked: Sequence[int]
    scores: int
    results: Sequence[int]


def cut_of_averages(attention: Op, target: Target) -> Cut | None:
    """Returns the cut of an ATTENTION; None if none fits."""
    H, _, T, _, D, E = lengths(attention)
    return _cut(attention, target, Needs((D,), (D, E), 1, (E,)), T, H)


def cut_of_queries(attention: Op, target: Target) -> Cut | None:
    """Returns the cut for the gradients of queries; None if none fits."""
    H, _, T, _, D, E = lengths(attention)
    return _cut(attention, target, Needs((D, E), (D, E), 2, (D,)), T, H)


def cut_of_keys(attention: Op, target: Target) -> Cut | None:
    """Returns the cut for the gradients of keys and values; None if none fits."""
    _, G, _, S, D, E = lengths(attention)
    return _cut(attention, target, Needs((D, E), (D, E), 2, (D, E)), S, G)


def part_of_keys(attention: Op, cut: Cut) -> int | None:
    """Returns the number of keys of a block if several blocks share the keys of its queries; None if it has all.

    It follows from the numbers of queries and keys alone, so that a row has the same bits alone and in any batch.
    """
    _, _, T, S, _, _ = lengths(attention)
    keys = most_keys(attention, T, S)
    length = max(TILE_PART_KEYS_MIN, ceildiv(keys, max(1, PARTS_MAX // ceildiv(T, PART_ROWS))))
    length += -length % cut.columns
    return length if keys >= QUERY_KEYS_MIN * T and length < keys else None


def as_it_is_cut(attention: Op, target: Target | None) -> Op:
    """Returns the attention that a kernel computes: few queries of heads that share keys become one head's.

    They stay as they are if scores depend on positions, with a mask or dropout, and on a CPU.
    """
    queries, arg = attention.src[0].shape[2], attention.arg
    has_places = arg.causal or arg.window or arg.dropout or mask_of(attention) is not None
    if target is None or not target.is_gpu or not isinstance(queries, int) or queries >= MATRIX_QUERIES_MIN:
        return attention
    return attention if has_places else with_rows_of_a_head(attention)


def has_kernel(attention: Op, target: Target | None) -> bool:
    """Returns whether an ATTENTION or ATTENTION_GRAD has a kernel; without a target, on a CPU.

    Its lengths must be known, except for the batch's; on a CPU the numbers of queries and keys need not be, on a GPU with
    shuffles the number of keys for few queries. On a GPU there are no gradients of few queries, and masks only for few.
    """
    if target is not None and parts_of(attention, target):
        return True
    attention = as_it_is_cut(attention, target)
    if mask_of(attention) is not None:
        return False
    is_cpu = target is None or not target.is_gpu
    known = slice(1, None, 2 if is_cpu else 1)
    if not all(isinstance(length, int) for source in attention.src[:3] for length in source.shape[known]):
        return False
    if target is None or not target.is_gpu:
        return bounds(attention.src[0].shape[2])[0] >= LANE_QUERIES_MIN
    if not target.has_shuffle or attention.src[0].shape[2] < MATRIX_QUERIES_MIN:
        return False
    cuts = (cut_of_averages,) if attention.code is OpCode.ATTENTION else (cut_of_queries, cut_of_keys)
    return all(cut(attention, target) is not None for cut in cuts)


def padded(features: int) -> int:
    """Returns the number of features that are computed: whole steps of a matrix instruction, shared evenly by threads."""
    return ceildiv(features, ROW_THREADS) * ROW_THREADS


def _cut(attention: Op, target: Target, needs: Needs, length: int, num_heads: int) -> Cut | None:
    """Returns the first cut that fits a block's shared memory and a thread's registers; by warps if they multiply.

    Args:
      length, num_heads:  rows of a head, and number of heads, that blocks share out
    """
    dtype, wide = attention.dtype, attention.dtype.compute_dtype
    found = None
    if target.multiplies(dtype, takes_tf32(attention)):
        threads = min(target.block_threads, WARPS_MAX * WARP_THREADS)
        cuts = [Cut(True, dtype, threads, high, columns) for high, columns in WARP_CUTS]
        found = _first_that_fits(cuts, attention, target, needs, length, num_heads)
        if dtype is not wide:
            return found
    cuts = [Cut(False, wide, target.block_threads, high, columns) for high, columns in THREAD_CUTS]
    return found or _first_that_fits(cuts, attention, target, needs, length, num_heads)


def _first_that_fits(
    cuts: Sequence[Cut], attention: Op, target: Target, needs: Needs, length: int, num_heads: int
) -> Cut | None:
    """Returns the first cut with enough blocks, and room for two on a multiprocessor; the last need not."""
    batch = attention.src[0].shape[0] if isinstance(attention.src[0].shape[0], int) else BLOCKS_MIN
    for cut in cuts:
        leaves_enough = cut.rows < 2 * length and batch * num_heads * ceildiv(length, cut.rows) >= BLOCKS_MIN
        most, room = ACCUMULATOR_WORDS_MAX, min(target.shared_bytes, max(DECLARED_SHARED_BYTES, target.shared_bytes // 2))
        if cut is cuts[-1]:
            most, room = REGISTERS_MAX, target.shared_bytes
        registers = _registers(cut, needs, attention.dtype.compute_dtype, target.has_async_copies)
        fits = registers <= most and _shared_nbytes(cut, needs, target.has_async_copies) <= room
        if fits and (cut.high == 1 or leaves_enough):
            return cut
    return None


def _registers(cut: Cut, needs: Needs, wide: DType, copied: bool) -> int:
    """Returns the 32-bit words that a thread keeps: accumulators, and tiles under way unless `copied`."""
    width = needs.scores * cut.columns + sum(map(padded, needs.results))
    on_its_way = 0 if copied else cut.columns * sum(map(padded, needs.walked)) * cut.dtype.itemsize // cut.threads
    return (cut.own_rows * width // cut.row_threads * wide.itemsize + on_its_way) // 4


def _shared_nbytes(cut: Cut, needs: Needs, copied: bool) -> int:
    """Returns the shared memory of a block: matrices, twice those that are copied, and for multiply-adds the weights of
    a tile."""
    numel = cut.rows * sum(padded(features) + cut.padding for features in needs.own)
    numel += (2 if copied else 1) * cut.columns * sum(padded(features) + cut.padding for features in needs.walked)
    numel += 0 if cut.by_warps else cut.rows * (cut.columns + cut.padding)
    return numel * cut.dtype.itemsize
