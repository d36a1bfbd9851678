"""The loops of the gradients of an attention on a GPU: blocks of keys see queries, then blocks of queries see keys.

In:    Nest (kind ATTENTION), whose anchor is an ATTENTION_GRAD of known lengths
Out:   one to three phases of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/cpu/scan.py

    phase 1, a block of keys:       for each head that shares them, for each tile of queries:
        P = exp(cap(scale k q) - logsumexp), 0 where not visible;   dS = scale P (v grad - delta) (1 - tanh^2 where capped)
        dv += P grad;   dk += dS q
    phase 2, a block of queries:    for each tile of keys:          P and dS as above, rows and columns exchanged
        dq += dS k
    phase 3, where keys are many times the queries, so that blocks share them in phase 2:   dq is the sum of their parts

Seven products, where what adds to dq from blocks of keys has five: but then either the order of that sum, and with it its
bits, would be the order in which blocks happen to run, or memory would hold a dq for each of them.

Source: Dao 2023, arXiv:2307.08691, algorithm 2. FLOPs: 2 (4 D + 3 E) for each query and key.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.gpu.attention import PartsOfKeys, rows_of, tiles_of
from picograd.codegen.gpu.block_rows import Accumulators, BlockRows, Panel, walk
from picograd.codegen.heads import Heads, is_there, last_at
from picograd.codegen.loops import grid_of_threads, split
from picograd.device import Target
from picograd.ir.attention import as_it_is_cut, cut_of_keys, cut_of_queries, padded
from picograd.ir.build import cast, static_shape, where
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, Shape, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract
from picograd.record import Record

DQ, DK, DV = range(3)  # the results


def emit_attention_grad_gpu(nest: Nest, context: Context) -> None:
    """Writes the gradients of an attention that are asked for: of keys and values first, then of queries."""
    params, target, scratch = context.params, context.target, context.scratch
    builders = [context.phase(number) for number in range(3)]
    assert nest.anchor is not None
    build, after, last, *_ = builders
    heads = Heads(as_it_is_cut(nest.anchor, target))
    slots = {output.arg: params[slot] for slot, output in nest.outputs}
    if DK in slots or DV in slots:
        _emit_keys(heads, slots, build, target)
    if DQ in slots:
        _emit_queries(heads, slots[DQ], after, last, target, scratch)


def _emit_keys(heads: Heads, slots: dict[int, Op], build: Builder, target: Target) -> None:
    """Writes the gradients of keys and values: GRID over blocks of keys."""
    H, G, T, S, D, E = heads.lengths
    cut = cut_of_keys(heads.anchor, target)
    assert cut is not None, f"{heads.anchor} has no kernel on {target.device}"
    blocks = -(-S // cut.rows)
    q, k, v, grad = heads.anchor.src[:4]
    with build.loop(numel((heads.batch, G, blocks)), AxisKind.GRID) as position:
        b, group, number = split(position, [heads.batch, G, blocks])
        first = mul(number, cut.rows)
        with build.loop(cut.threads, AxisKind.BLOCK) as thread:
            rows = rows_of(build, cut, heads, thread, target)
            keys, values = _held(rows, (k, v), (b, group), first, target)
            queries, grads = (Panel(rows, matrix, cut.columns, target, is_walked=True) for matrix in (q, grad))
            dk, dv = rows.zeros(padded(D)), rows.zeros(padded(E))
            start, steps = tiles_of(heads.queries_of(first, cut.rows), cut)
            with build.loop(H // G, AxisKind.LOOP) as index:
                head = add(mul(group, H // G), index)
                if H != G:
                    build.barrier()  # the queries of another head are still looked at

                def look_at(first_query: Dim) -> None:
                    products, grad_weights = rows.scores(keys, queries), rows.scores(values, grads)

                    def put(i: Dim, column: Dim, at: Dim) -> None:
                        query, key = add(first_query, column), add(first, rows.row(i))
                        seen = heads.seen(query, key, is_there(query, T, cut.columns))
                        here = Point(heads, b, head, minimum(query, T - 1), seen)
                        weight, grad_score = here.weight_and_grad(*_loaded(build, products, grad_weights, at))
                        build.store(products.memory, at, weight)
                        build.store(grad_weights.memory, at, grad_score)

                    rows.each(products, put)
                    if DV in slots:
                        rows.add_averages(dv, products, grads)
                    if DK in slots:
                        rows.add_averages(dk, grad_weights, queries)

                walk(rows, (queries, grads), (b, head), start, steps, look_at)
            for result, sums, features in ((DK, dk, D), (DV, dv, E)):
                if result in slots:
                    _store(rows, sums, slots[result], first, (b, group), (heads.batch, G, S, features))


def _emit_queries(heads: Heads, dq: Op, build: Builder, after: Builder, target: Target, scratch: Scratch) -> None:
    """Writes the gradients of queries: GRID over parts of keys and blocks of queries."""
    H, G, T, S, D, _ = heads.lengths
    cut = cut_of_queries(heads.anchor, target)
    assert cut is not None, f"{heads.anchor} has no kernel on {target.device}"
    blocks = -(-T // cut.rows)
    q, k, v, grad = heads.anchor.src[:4]
    parts = PartsOfKeys(heads, cut)
    shape = (parts.count, heads.batch, H, T, D)
    result = dq if parts.count == 1 else scratch(heads.dtype, numel(shape))
    if parts.count > 1:
        _emit_sums(result, shape, dq, after, target)
    with build.loop(numel((parts.count, heads.batch, H, blocks)), AxisKind.GRID) as position:
        part, b, head, number = split(position, [parts.count, heads.batch, H, blocks])
        first = mul(subtract(blocks - 1, number), cut.rows)  # those that see most keys start first, as in the attention
        with build.loop(cut.threads, AxisKind.BLOCK) as thread:
            rows = rows_of(build, cut, heads, thread, target)
            queries, grads = _held(rows, (q, grad), (b, head), first, target)
            keys, values = (Panel(rows, matrix, cut.columns, target, is_walked=True) for matrix in (k, v))
            sums = rows.zeros(padded(D))

            def look_at(first_key: Dim) -> None:
                products, grad_weights = rows.scores(queries, keys), rows.scores(grads, values)

                def put(i: Dim, column: Dim, at: Dim) -> None:
                    query, key = add(first, rows.row(i)), add(first_key, column)
                    seen = heads.seen(query, key, is_there(key, S, cut.columns))
                    here = Point(heads, b, head, last_at(query, T, cut.rows), seen)
                    _, grad_score = here.weight_and_grad(*_loaded(build, products, grad_weights, at))
                    build.store(grad_weights.memory, at, grad_score)

                rows.each(products, put)
                rows.add_averages(sums, grad_weights, keys)

            start, steps = tiles_of(parts.within(part, heads.keys_of(first, cut.rows)), cut)
            walk(rows, (keys, values), (b, floordiv(head, H // G)), start, steps, look_at)
            _store(rows, sums, result, first, (part, b, head), shape)


def _emit_sums(parts: Op, shape: Shape, dq: Op, build: Builder, target: Target) -> None:
    """Writes the sums of what parts of keys (parts, ...) have added to gradients, in order: a thread an element."""
    with grid_of_threads(build, numel(shape[1:]), target) as position:
        total = build.alloc(parts.dtype, 1, MemorySpace.REGISTER)
        build.store(total, 0, const(0, parts.dtype))
        with build.loop(shape[0], AxisKind.LOOP) as part:
            build.store(total, 0, build.load(total, 0) + read(parts, add(mul(part, numel(shape[1:])), position)))
        build.store(dq, position, cast(build.load(total, 0), dq.dtype))


class Point(Record):
    """A query and a key.

    query:  whose numbers are read, one that there is
    seen:   whether it sees the key; None: certainly
    """

    heads: Heads
    b: Dim
    head: Dim
    query: Dim
    seen: Op | None

    def weight_and_grad(self, product: Op, grad_weight: Op) -> tuple[Op, Op]:
        """Returns P and dS.

        Args:
          product:      of the query and the key
          grad_weight:  product of the gradient of the query's result and the value
        """
        logsumexp, delta = (self.heads.row(source, self.b, self.head)(self.query) for source in (4, 5))
        score, bent = self.heads.scaled(product)
        weight = self.heads.power(score - logsumexp)
        grad_score = weight * (grad_weight - delta) * self.heads.arg.scale
        if bent is not None:
            grad_score = grad_score * (bent.filled(1) - bent * bent)
        if self.seen is None:
            return weight, grad_score
        return where(self.seen, weight, const(0, weight.dtype)), where(self.seen, grad_score, const(0, grad_score.dtype))


def _held(rows: BlockRows, matrices: Sequence[Op], head: Sequence[Dim], first: Dim, target: Target) -> list[Panel]:
    """Returns matrices of which a block keeps the rows from `first` on."""
    panels = [Panel(rows, matrix, rows.cut.rows, target) for matrix in matrices]
    for panel in panels:
        panel.hold(head, first)
    return panels


def _loaded(build: Builder, products: Accumulators, grad_weights: Accumulators, at: Dim) -> tuple[Op, Op]:
    return build.load(products.memory, at), build.load(grad_weights.memory, at)


def _store(rows: BlockRows, sums: Accumulators, memory: Op, first: Dim, head: Sequence[Dim], shape: Shape) -> None:
    """Stores a block's gradients in memory of a shape (..., positions, features), of which `head` are the first axes."""
    length, features = static_shape(shape[-2:])

    def put(i: Dim, position: Dim, feature: Dim, value: Op) -> None:
        rows.build.store(memory, flatten((*head, position, feature), shape), cast(value, memory.dtype))

    rows.store(sums, first, length, features, put)
