"""Products by warpgroups, devices/cuda/hopper_product.h: on the simulator, as machine code, on a GPU."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from picograd.codegen.hopper import MENU, MENU_IN_TURN, MENU_OF_ADDS, product_tiles, why_not
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.render_hopper import functions_of, header_of
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import dtype_named
from picograd.engine import devices
from picograd.engine.choose import epilogue_of
from picograd.ir.build import cast, combined, expand, maximum, reshape
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Epilogue, Matrix, PlainProduct, WarpgroupTile, Written
from picograd.ir.stages import Nest, NestKind, Param, Source
from picograd.record import replace
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.on_devices import device_params

HOPPER = Target(
    "CUDA", "cuda", "sm_90a", vector_bytes=16, block_threads=256, shared_bytes=227 * 1024, has_mma=True,
    has_async_copies=True, has_warpgroups=True, multiprocessors=132,
)  # fmt: skip
MAJORS = ("NN", "NT", "TN", "TT")  # T: of that operand columns lie side by side


@dataclass(frozen=True)
class Given:
    """A product and what it is computed of."""

    product: PlainProduct
    nest: Nest
    arrays: tuple[Array, ...]
    params: tuple[Param, ...]
    expected: Array


def given(
    m: int, n: int, k: int, majors: str = "NN", batch: int = 1, dtype: str = "bfloat16", out: str | None = None,
    epilogue: str = "", seed: int = 0, parts: int = 1,
) -> Given:  # fmt: skip
    """Returns a product of small whole numbers, exact in any order; where rows are odd there are gaps between them."""
    rng, narrow, out_dtype = np.random.default_rng(seed), dtype_named(dtype), dtype_named(out or dtype)
    lhs, rhs = (rng.integers(-3, 4, (batch, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
    held, matrices = [], []
    for slot, (array, major) in enumerate(zip((lhs, rhs), majors)):
        stored = array if major == "N" else array.swapaxes(1, 2)
        count, length = stored.shape[1:]
        stride = -(-length // 8) * 8
        wide = np.full((batch, count, stride), np.nan, np.float32)
        wide[..., :length] = stored
        held.append(wide.astype(narrow.numpy))
        matrices.append(Matrix(slot, 0, stride, major == "T", count * stride))
    value = lhs.astype(np.float64) @ rhs
    if parts > 1:
        length = -(-k // (parts * 64)) * 64 if narrow.itemsize == 2 else -(-k // (parts * 32)) * 32
        value = np.concatenate([
            lhs[..., first : first + length].astype(np.float64) @ rhs[:, first : first + length]
            for first in range(0, parts * length, length)
        ])  # fmt: skip
    params = [Param(narrow, array.size, "in") for array in held]
    exact = out_dtype if out or parts > 1 else narrow
    shapes = (batch * parts, m, 1), (batch * parts, 1, n)
    anchor = result = Op(OpCode.MATMUL, exact, tuple(Op(OpCode.PARAM, exact, (), (i, s)) for i, s in enumerate(shapes)))
    if epilogue:
        shape = (n,) if epilogue == "bias" else (batch, m, n)
        other = rng.integers(-3, 4, shape).astype(out_dtype.numpy)
        held.append(other)
        params.append(Param(out_dtype, other.size, "in"))
        value = np.maximum(value.astype(out_dtype.numpy).astype(np.float64) + other.astype(np.float64), 0)
        added = Op(OpCode.PARAM, out_dtype, (), (2, shape))
        added = expand(reshape(added, (1, 1, n)), (batch, m, n)) if epilogue == "bias" else added
        result = maximum(combined(OpCode.ADD, anchor, added), 0)
    params.append(Param(out_dtype, batch * parts * m * n, "out"))
    product = PlainProduct(*matrices, len(held), batch, m, n, k, dtype, out_dtype.name, dtype == "float32", parts=parts)
    nest = Nest(NestKind.MATMUL, anchor.shape, (), anchor, ((len(held), cast(result, out_dtype)),))
    return Given(product, nest, tuple(held), tuple(params), value)


def by_adds(problem: Given) -> Given:
    """Returns a product of float32 that rounds nothing."""
    return dataclasses.replace(problem, product=replace(problem.product, tf32=False))


def source_of(problem: Given, tile: WarpgroupTile) -> Source:
    choice = Written(problem.product, tile, True)
    epilogue = epilogue_of(choice, problem.nest, problem.params, HOPPER)
    text, *launches = functions_of(choice, problem.params, "product_0", epilogue)
    return Source("product", "cuda", f"{header_of(choice)}\n{text}", problem.params, (), tuple(launches))


def check(device: Any, binary: Any, problem: Given) -> None:
    found = np.full(problem.expected.shape, np.nan, problem.params[-1].dtype.numpy)
    run(device, device.load(binary), [*problem.arrays, found])
    np.testing.assert_array_equal(found, problem.expected.astype(found.dtype))


SMALL = WarpgroupTile(128, 64, 3, 2, 2, 3)
CASES = {
    **{f"{majors}, edges": (given(200, 104, 136, majors), SMALL) for majors in MAJORS},
    "K of 1": (given(72, 72, 1, "TN"), SMALL),
    "several rounds of the ring, one block": (given(130, 72, 600, "NT"), replace(SMALL, blocks=1)),
    "256 rows": (given(264, 136, 200, "TN"), replace(SMALL, rows=256, columns=128)),
    "256 columns": (given(130, 264, 72, "NT", dtype="float16"), replace(SMALL, columns=256, slabs=1)),
    "96 columns": (given(130, 200, 72, "NN"), replace(SMALL, columns=96)),
    "208 columns": (given(130, 416, 72, "NT"), replace(SMALL, columns=208)),
    "a warpgroup": (given(136, 136, 136, "NN"), replace(SMALL, rows=64, columns=128)),
    "float32": (given(200, 204, 72, "NT", out="float32"), replace(SMALL, columns=112)),
    "a batch": (given(72, 72, 72, "NN", batch=3), SMALL),
    **{f"TF32, {majors}, edges": (given(200, 104, 140, majors, dtype="float32"), SMALL) for majors in MAJORS},
    "TF32, K of 1": (given(72, 72, 1, "TN", dtype="float32"), SMALL),
    "TF32, several rounds, one block": (given(130, 72, 300, "TN", dtype="float32"), replace(SMALL, blocks=1)),
    "TF32, 256 rows": (given(264, 136, 200, "TN", dtype="float32"), replace(SMALL, rows=256, columns=128)),
    "TF32, 208 columns": (given(130, 416, 72, "NN", dtype="float32"), replace(SMALL, columns=208)),
    "TF32, a warpgroup": (given(136, 136, 136, "NN", dtype="float32"), replace(SMALL, rows=64, columns=128)),
    "three parts of K": (given(72, 72, 456, "TN", out="float32", parts=3), SMALL),
    "TF32, three parts of K": (given(72, 72, 200, "NT", dtype="float32", parts=3), SMALL),
    "TF32, a batch": (given(72, 72, 72, "NN", batch=3, dtype="float32"), SMALL),
    "TF32, a bias and relu": (given(200, 104, 72, "TT", dtype="float32", epilogue="bias"), replace(SMALL, columns=96)),
    "TF32, added": (
        given(200, 104, 72, "NT", batch=2, dtype="float32", epilogue="added"), replace(SMALL, columns=128, slabs=0),
    ),
    "a bias and relu": (given(200, 104, 72, "NT", epilogue="bias"), replace(SMALL, columns=96)),
    "a matrix that is added": (given(200, 104, 72, "NT", batch=2, epilogue="added"), replace(SMALL, slabs=0)),
}
IN_TURN = WarpgroupTile(64, 64, 3, 2, 2, 3, in_turn=True)
CASES |= {
    "in turn, edges": (given(200, 104, 136, "NT"), IN_TURN),
    "in turn, one block": (given(200, 104, 600, "TN"), replace(IN_TURN, blocks=1)),
    "in turn, four stages": (given(136, 136, 200, "NT"), replace(IN_TURN, rows=128, stages=4, blocks=1)),
    "in turn, an odd number of tiles": (given(136, 72, 200, "NT"), replace(IN_TURN, columns=128, blocks=1)),
    "in turn, a batch": (given(72, 72, 72, "NN", batch=5), replace(IN_TURN, blocks=2)),
    "in turn, by threads": (given(200, 104, 136, "NT", epilogue="added"), replace(IN_TURN, slabs=0, blocks=2)),
    "TF32 in turn": (given(200, 104, 140, "TN", dtype="float32"), replace(IN_TURN, blocks=2)),
}  # fmt: skip
CASES |= {  # the same by multiply-adds
    f"float32{name[4:]}": (by_adds(problem), replace(tile, columns=-(-tile.columns // 64) * 64, slabs=0))
    for name, (problem, tile) in CASES.items() if name.startswith("TF32") and not tile.in_turn
}  # fmt: skip


@pytest.mark.variants(every=31)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_it_is_exact_in_every_order(name: str) -> None:
    problem, tile = CASES[name]
    assert why_not(problem.product, problem.params) is None
    binary = hostcxx.compile_source(source_of(problem, tile), TARGET)
    for order in ORDERS:
        check(CudaSimDevice(order, 1), binary, problem)


@pytest.mark.parametrize("device", device_params("CUDA"))
@pytest.mark.parametrize("name", CASES)
def test_it_on_a_gpu(name: str, device: str) -> None:
    compiler, (problem, tile) = devices.compiler_for(device), CASES[name]
    if not compiler.device.target.has_warpgroups:
        pytest.skip(f"wgmma is of sm_90a, this GPU is {compiler.device.target.arch}")
    check(compiler.device, compiler.backend.compile(source_of(problem, tile), compiler.device.target), problem)


@pytest.mark.variants(every=8)
@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("dtype", ["bfloat16", "TF32", "float32"])
def test_it_is_machine_code_that_waits_for_nothing(dtype: str, majors: str) -> None:
    """No register is spilled, and ptxas puts no waits between matrix instructions, of which it tells: C7510 and others."""
    problem = given(1024, 1024, 256, majors, dtype="bfloat16" if dtype == "bfloat16" else "float32")
    if dtype == "float32":
        problem = by_adds(problem)
    few = replace(HOPPER, multiprocessors=2)  # so that each has several tiles
    tiles = {(tile.rows, tile.columns, tile.in_turn): tile for tile in product_tiles(problem.product, few)}
    of_both = [(rows, columns, False) for rows, columns in (MENU_OF_ADDS if dtype == "float32" else MENU)]
    if dtype == "bfloat16" and majors[0] == "T":
        of_both.remove((256, 192, False))  # it would spill
    in_turn = [(rows, columns, True) for rows, columns in (() if dtype == "float32" else MENU_IN_TURN)]
    assert tiles.keys() == {*of_both, *in_turn}
    large = (256, 128 if dtype == "float32" or (256, 192, False) not in tiles else 192, False)
    for each in [*tiles] if majors == "NT" else [(128, 256, False), large]:
        _, log = nvrtc.compiled(source_of(problem, tiles[each]), HOPPER, "--ptxas-options=-v")
        (usage,) = nvrtc.read_usage(log).values()
        assert usage.spill_nbytes == usage.stack_nbytes == 0, each
        assert "(C75" not in log, log


def test_what_copies_of_tiles_cannot_take() -> None:
    plain = given(136, 136, 136)
    assert why_not(plain.product, plain.params) is None
    for wrong in (
        replace(plain.product, dtype="float64"),
        replace(plain.product, n=132),
        replace(plain.product, a=replace(plain.product.a, offset=4)),
        replace(plain.product, b=replace(plain.product.b, stride=140)),
        replace(plain.product, batch=2, a=replace(plain.product.a, batch_stride=36)),
        replace(plain.product, epilogue=Epilogue(relu=True)),
    ):
        assert why_not(wrong, plain.params) is not None
    assert why_not(plain.product, (replace(plain.params[0], numel=136 * 136 + 4), *plain.params[1:])) is not None
    assert why_not(plain.product, (replace(plain.params[0], numel=1 << 31), *plain.params[1:])) is not None
