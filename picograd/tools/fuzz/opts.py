"""What is held of a random graph of products: however they are cut, their kernels compute the same bits.

In:    a `Graph` and a seed, which draws tiles
Out:   `Wrong`, or nothing
Next:  picograd/tools/fuzz/shrink.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from picograd.codegen.opts import candidates, guess
from picograd.device import Target
from picograd.evaluator import evaluate_kernel, evaluate_program
from picograd.evaluator.graph import unspecified
from picograd.ir.op import greatest
from picograd.ir.opts import BlockTile, Opts, RegisterTile, Tile, WarpTile
from picograd.ir.pattern import graph_rewrite
from picograd.ir.spec import verify_program
from picograd.ir.stages import Kernel, LoopItem, NestKind, Program, Schedule
from picograd.rewrites.simplify import simplify_graph, strip_identity
from picograd.road import create_schedule, lower
from picograd.tools.fuzz.check import Wrong, compare
from picograd.tools.fuzz.values import Array, Graph

TILES = 3  # drawn for each seed
THREADS = 64


def check_opts(graph: Graph, seed: int) -> bool:
    """Holds every kernel with a product, under tiles drawn by the seed, against the evaluator and against the best guess.

    All kernels are given the same tiles, so that a graph that is made smaller meets them, too. Returns whether there was
    a product.

    Raises:
      Wrong: a result is off by more than rounding explains, or in a bit from that of the best guess.
    """
    roots = graph_rewrite(graph.roots, strip_identity)
    schedule = create_schedule(simplify_graph([roots[root] for root in graph.roots]))
    memory, held = memory_of(schedule, graph), False
    for item in schedule.items:
        assert not isinstance(item, LoopItem), "a graph of products has no loops"
        slots = [memory[i] for i in item.buffers]
        if products_in(item.kernel):
            check_kernel(item.kernel, slots, 2 * graph.most_error, seed)
            held = True
        evaluate_kernel(item.kernel, slots)
    return held


def memory_of(schedule: Schedule, graph: Graph) -> list[Array]:
    """Returns memory for each buffer: what is written over an input lies there, all other memory is its own."""
    inputs = [np.array(graph.arrays[op], order="C").reshape(-1) for op in schedule.inputs]
    return [
        inputs[use.source] if use.role == "input" else inputs[use.over] if use.over is not None
        else unspecified(greatest(use.numel), use.dtype.numpy)
        for use in schedule.buffers
    ]  # fmt: skip


def products_in(kernel: Kernel) -> int:
    return sum(nest.kind is NestKind.MATMUL for phase in kernel.phases for nest in phase)


def choices(kernel: Kernel, seed: int) -> Iterator[tuple[Target, Opts]]:
    """Yields targets and what the kernel is lowered with: one of the candidates, then tiles that nobody would choose."""
    rng = np.random.default_rng(seed)

    def draw(least: int, most: int) -> int:
        return int(rng.integers(least, most + 1))

    cpu = Target("CPU", "llvm", "any", vector_bytes=16 << draw(0, 2), num_registers=16 << draw(0, 1))
    newer = bool(draw(0, 1))  # matrix instructions, and copies in the background
    gpu = Target(
        "CUDASIM", "cuda", "any", vector_bytes=16, block_threads=THREADS, shared_bytes=96 * 1024,
        has_mma=newer, has_async_copies=newer,
    )  # fmt: skip

    def tile(usual: Tile) -> Tile:
        if isinstance(usual, RegisterTile):
            return RegisterTile(draw(1, 13), draw(1, 4), draw(1, 9), bool(draw(0, 1)))
        if isinstance(usual, BlockTile):
            return BlockTile(2 ** draw(0, 2), 2 ** draw(0, 3), draw(1, 8), draw(1, 8), draw(1, 20))
        return WarpTile(1, draw(1, 2), draw(1, 3), 2 * draw(1, 3), 16 * draw(1, 3))

    for target in (cpu, gpu):
        worth_trying = candidates(kernel, target)
        yield target, worth_trying[draw(0, 99) % len(worth_trying)]
    for target in (*[cpu] * TILES, gpu):
        yield target, Opts(tuple(map(tile, guess(kernel, target).products)))


def check_kernel(kernel: Kernel, slots: Sequence[Array], tolerance: float, seed: int) -> None:
    """Holds the Programs of a kernel against what the evaluator makes of it, and bit by bit against each other."""
    expected = copies(slots)
    evaluate_kernel(kernel, expected)
    usual: dict[Target, list[Array]] = {}
    for target, opts in choices(kernel, seed):
        if target not in usual:
            usual[target] = run(lower(kernel, target, guess(kernel, target)), slots)
        found = run(lower(kernel, target, opts), slots)
        for param, a, same, b in zip(kernel.params, found, usual[target], expected):
            if param.role in ("out", "inout"):
                said = f"{kernel.name} for {target.language} with {opts}"
                compare(said, a, b, tolerance)
                if a.tobytes() != same.tobytes():
                    raise Wrong(f"{said}: other bits than with {guess(kernel, target)}")


def run(program: Program, slots: Sequence[Array]) -> list[Array]:
    """Returns what memory holds after a program."""
    verify_program(program, after="lower")
    memory = copies(slots)
    evaluate_program(program, memory)
    return memory


def copies(slots: Sequence[Array]) -> list[Array]:
    """Returns copies; what is one memory stays one."""
    made = {id(slot): slot.copy() for slot in slots}
    return [made[id(slot)] for slot in slots]
