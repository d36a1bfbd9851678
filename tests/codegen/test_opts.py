"""Candidates: another cut of a product is another Program that gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.emit import candidates, guess
from picograd.codegen.matmul_cpu import WORTH_ANOTHER_TILE, rows_and_vectors
from picograd.device import Target
from picograd.engine.devices import compiler_for
from picograd.evaluator import evaluate_program
from picograd.ir.build import expand, swap_last
from picograd.ir.op import Buffer, Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import BlockTile, Generated, Opts, RegisterTile
from picograd.ir.spec import verify_program
from picograd.ir.stages import BufferUse, Kernel, Schedule, ScheduleItem
from picograd.ir.text_program import format_program
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, TARGETS, unspecified

LENGTH = Op(OpCode.VARIABLE, dtypes.int64, (), ("length", 1, 1000))


def product(m: int, k: int, n: int, turn_b: bool) -> Kernel:
    """Returns the kernel of (a @ b) ** 2, with b stored transposed or not."""
    a = Op(OpCode.PARAM, dtypes.float32, (), (0, (m, k)))
    b = Op(OpCode.PARAM, dtypes.float32, (), (1, (n, k) if turn_b else (k, n)))
    b = Op(OpCode.PERMUTE, b.dtype, (b,), (1, 0)) if turn_b else b
    result = Op(OpCode.MATMUL, dtypes.float32, (a, b))
    (item,) = create_schedule([Op(OpCode.MUL, dtypes.float32, (result, result))]).items
    return item.kernel


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((40, 48), (8, 3)), ((36, 64), (12, 2)), ((64, 64), (8, 2)), ((100, 64), (10, 2)), ((512, 512), (12, 2)),
        ((5, 9), (5, 1)),
    ],  # fmt: skip
)
def test_a_tile_follows_the_shape_where_that_leaves_no_edges(shape: tuple[int, int], tile: tuple[int, int]) -> None:
    (wide,) = [target for target in CPU_TARGETS if target.num_registers >= 32]
    (chosen,) = guess(product(shape[0], 7, shape[1], False), wide).products
    assert (chosen.rows, chosen.vectors) == tile


@pytest.mark.parametrize(
    ("m", "n", "tile"),
    [
        (5, 9, (5, 1)), (12, 100, (12, 2)), (12, 16, (12, 1)), (12, 17, (12, 2)), (13, 16, (12, 1)), (100, 1, (12, 1)),
        (5, LENGTH, (5, 2)), (100, LENGTH, (12, 2)), (LENGTH, 16, (12, 1)), (LENGTH, 17, (12, 2)),
        (LENGTH, LENGTH, (12, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_a_small_or_unknown_result_has_a_tile_no_larger(m: Dim, n: Dim, tile: tuple[int, int]) -> None:
    assert rows_and_vectors(m, n, 16, 12) == tile


@pytest.mark.parametrize(("lanes", "most"), [(16, 12), (4, 6), (8, 12)])
def test_another_tile_is_taken_where_it_computes_much_less(lanes: int, most: int) -> None:
    narrow = [(rows, 2) for rows in range(2 * most // 3, most)]
    for m in range(most + 1, 80):
        for n in range(lanes + 1, 8 * lanes, 5):
            tiles = [(most, 2), *narrow, (2 * most // 3, 3)]
            computed = {(r, v): -(-m // r) * r * -(-n // (v * lanes)) * v for r, v in tiles}
            usual = computed[most, 2]
            rows, vectors = rows_and_vectors(m, n, lanes, most)
            if (rows, vectors) == (most, 2):
                assert min(computed.values()) >= WORTH_ANOTHER_TILE * usual
                continue
            assert computed[rows, vectors] == min(computed.values()) < WORTH_ANOTHER_TILE * usual
            assert all(r * v <= rows * vectors for (r, v), area in computed.items() if area == computed[rows, vectors])


@pytest.mark.parametrize(
    ("shape", "turn_b", "panels"),
    [
        ((2048, 256), False, 86),  # 8 blocks of columns, 2 pieces of each
        ((2048, 256), True, 171),  # whole columns: packing transposes them
        ((5000, 300), False, 209),  # 10 blocks of columns: 20 pieces
        ((5000, 512), False, 417),  # 16 blocks are enough
        ((4096, 32), False, 8),  # 4 pieces of one block of columns would be too few
        ((256, 5000), True, 417),  # turned: the rows of the first operand are its columns, which packing transposes
        ((64, 100), True, 8), ((512, 64), False, 8), ((512, 64), True, 8),
    ],
    ids=str,
)  # fmt: skip
def test_row_panels(shape: tuple[int, int], turn_b: bool, panels: int) -> None:
    (wide,) = [target for target in CPU_TARGETS if target.num_registers >= 32]
    (chosen,) = guess(product(shape[0], 7, shape[1], turn_b), wide).products
    assert chosen.panels == panels


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((2048, 64, 2048), (8, 2)),  # 12 rows would compute 0.2 % more, and go through memory
        ((2048, 512, 2048), (12, 2)),  # the sums take so long that this does not count
        ((2040, 64, 2048), (12, 2)), ((2042, 64, 2048), (12, 2)),  # whole anyway; with no tile
    ],
)  # fmt: skip
def test_short_sums_stored_as_they_are_have_whole_tiles(shape: tuple[int, int, int], tile: tuple[int, int]) -> None:
    (wide,) = [target for target in CPU_TARGETS if target.num_registers >= 32]
    m, k, n = shape
    a, b = Op(OpCode.PARAM, dtypes.float32, (), (0, (m, k))), Op(OpCode.PARAM, dtypes.float32, (), (1, (k, n)))
    plain, squared = Op(OpCode.MATMUL, dtypes.float32, (a, b)), product(m, k, n, False)
    (item,) = create_schedule([plain]).items
    ((rows, vectors),) = [(tile.rows, tile.vectors) for tile in guess(item.kernel, wide).products]
    assert (rows, vectors) == tile
    assert guess(squared, wide).products[0].rows == 12, "an epilogue goes through memory in any case"


@pytest.mark.variants(first=2)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: f"{t.device}{t.vector_bytes}")
def test_whole_tiles_of_a_plain_product_are_stored_from_registers(target, rng):
    """No tile stands in memory, and no edge is asked for."""
    a, b = (Op(OpCode.PARAM, dtypes.float32, (), (slot, (48, 48))) for slot in range(2))
    (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, (a, b))]).items
    program = lower(item.kernel, target)
    verify_program(program, after="lower")
    text = format_program(program)
    assert text.count("shared") <= 1 and "min(" not in text  # the panel of columns
    left, right = (rng.standard_normal((48, 48)).astype(np.float32) for _ in range(2))
    given = {"in": iter([left.ravel(), right.ravel()])}
    memory = [next(given["in"]) if p.role == "in" else unspecified(p, {}) for p in program.params]
    evaluate_program(program, memory, {}, range)
    out = memory[[p.role for p in program.params].index("out")].reshape(48, 48)
    np.testing.assert_allclose(out, left.astype(np.float64) @ right, rtol=1e-4, atol=1e-4)


@pytest.mark.variants(first=5)
@pytest.mark.parametrize("turn_b", [False, True])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.device}{t.vector_bytes}")
def test_every_candidate_gives_the_same_bits(target, turn_b, rng):
    kernel = product(14 if target.is_gpu else 70, 5, 37, turn_b)  # 70: more panels than one GRID iteration takes
    proposals = candidates(kernel, target)
    assert len(proposals) >= 2
    inputs = [rng.standard_normal(p.numel).astype(np.float32) for p in kernel.params if p.role == "in"]
    texts, results = set(), []
    for opts in proposals:
        program = lower(kernel, target, opts)
        verify_program(program, after="lower")
        texts.add(format_program(program))
        rest = [unspecified(p, {}) for p in kernel.params if p.role == "out"]
        memory = [*inputs, *rest, *[None] * (len(program.params) - len(kernel.params))]
        evaluate_program(program, memory, {}, range)
        results.append(memory[kernel.params.index(next(p for p in kernel.params if p.role == "out"))].tobytes())
    assert len(texts) == len(proposals)
    assert set(results) == {results[0]}


def test_machine_code_of_every_candidate_gives_the_same_bits(rng):
    compiler = compiler_for("CPU")
    kernel = product(50, 70, 130, True)
    device = compiler.device
    a, b = rng.standard_normal(50 * 70).astype(np.float32), rng.standard_normal(130 * 70).astype(np.float32)
    uses = [BufferUse(p.dtype, p.numel, "input" if p.role == "in" else "output", 0) for p in kernel.params]
    (out,) = [place for place, p in enumerate(kernel.params) if p.role == "out"]
    ins = [place for place in range(3) if place != out]
    for source, place in enumerate(ins):
        uses[place] = BufferUse(uses[place].dtype, uses[place].numel, "input", source)
    results = set()
    for opts in candidates(kernel, device.target):
        schedule = Schedule((ScheduleItem(kernel, (0, 1, 2)),), tuple(uses), (), (out,), 0)
        run = device.make_runner(schedule, (compiler.make(kernel, Generated(opts)),))
        buffers = [Buffer("CPU", dtypes.float32, n, device.allocate(4 * n)) for n in (50 * 70, 130 * 70, 50 * 130)]
        device.copy_in(buffers[0].memory, a)
        device.copy_in(buffers[1].memory, b)
        run(buffers[:2], buffers[2:], {})
        found = np.empty((50, 130), np.float32)
        device.copy_out(buffers[2].memory, found)
        results.add(found.tobytes())
        exact = (a.reshape(50, 70).astype(float) @ b.reshape(130, 70).T.astype(float)) ** 2
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)  # 70 roundings of products of about 1
    assert len(results) == 1


def test_candidates_cut_one_product_in_a_few_other_ways() -> None:
    (wide,) = [target for target in CPU_TARGETS if target.num_registers >= 32]

    def tiles(kernel: Kernel, target: Target) -> list[RegisterTile | BlockTile]:
        return [opts.products[0] for opts in candidates(kernel, target)]

    usual = RegisterTile(12, 2, 43, False)
    others = [replace(usual, panels=4), replace(usual, panels=16), replace(usual, rows=8, vectors=3)]
    assert tiles(product(512, 7, 512, False), wide) == [usual, *others, replace(usual, transposed=True)]
    small = [RegisterTile(10, 2, 8, False), RegisterTile(6, 3, 8, False), RegisterTile(8, 3, 8, True)]
    assert tiles(product(40, 7, 512, False), wide) == small
    small_block = BlockTile(4, 8, 8, 8, 8)
    others = [replace(small_block, own_rows=4), replace(small_block, depth=4), replace(small_block, depth=16)]
    assert tiles(product(512, 7, 512, False), GPU_TARGET) == [small_block, *others]
    large = replace(GPU_TARGET, block_threads=256)
    assert tiles(product(512, 7, 512, False), large)[0] == BlockTile(16, 16, 4, 2, 16)
    assert tiles(product(4096, 7, 4096, False), large)[0] == BlockTile(16, 16, 8, 8, 8)
    assert tiles(product(4096, 7, 10, False), large)[0] == BlockTile(16, 16, 4, 1, 16)


@pytest.mark.parametrize(("shape", "turned"), [((30, 256), False), ((1, 256), True), ((30, 1), True)])
def test_what_reads_more_of_its_own_size_is_not_turned(shape: tuple[int, int], turned: bool) -> None:
    (wide,) = [target for target in CPU_TARGETS if target.num_registers >= 32]
    a, w, more = (Op(OpCode.PARAM, dtypes.float32, (), (i, s)) for i, s in enumerate([(30, 64), (256, 64), shape]))
    result = Op(OpCode.MATMUL, dtypes.float32, (a, swap_last(w))) + expand(more, (30, 256))
    (item,) = create_schedule([result]).items
    (tile,) = guess(item.kernel, wide).products
    assert tile.transposed is turned


def test_a_layer_on_a_small_batch_is_turned():
    kernel, wide = product(30, 64, 256, True), product(256, 64, 30, True)
    for target in CPU_TARGETS:
        assert candidates(kernel, target)[0].products[0].transposed
        assert not candidates(wide, target)[0].products[0].transposed


def test_a_kernel_without_a_product_has_one_candidate():
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (8,)))
    (item,) = create_schedule([Op(OpCode.EXP2, dtypes.float32, (x,))]).items
    assert candidates(item.kernel, GPU_TARGET) == (Opts(),)
