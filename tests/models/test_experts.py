"""Mixtures of experts: only chosen experts are computed, whatever the choice, packed or not; one plan for all choices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as TF

from picograd import Tensor
from picograd.nn import functional as F
from picograd.transforms.jit import jit
from picograd_formats.gguf_file import PACKINGS, PackedTensor, plain_tensor
from picograd_programs.models.experts import Expert, Experts, Router, Routing, tiles
from picograd_programs.models.packed import PackedMatrix

E, C, H, CHOSEN = 6, 64, 32, 2


def experts_of(router: np.ndarray, parts: list[PackedTensor], shares_to_one: bool = True) -> Experts:
    matrices = [Expert(PackedMatrix(part), None, E) for part in parts]
    routing = Routing(CHOSEN, shares_to_one)
    return Experts(Router(PackedMatrix(plain_tensor(router)), None, routing), *matrices, lambda gate, up: F.silu(gate) * up)


def expected(router: np.ndarray, parts: list[PackedTensor], x_nC: np.ndarray, shares_to_one: bool) -> np.ndarray:
    """Each position by itself, in float64."""
    gate, up, down = (torch.from_numpy(part.unpacked()).double().chunk(E) for part in parts)
    rows = []
    for row in torch.from_numpy(x_nC).double():
        shares, best = torch.softmax(torch.from_numpy(router).double() @ row, 0).topk(CHOSEN)
        shares = shares / shares.sum() if shares_to_one else shares
        rows.append(sum(s * (down[e] @ (TF.silu(gate[e] @ row) * (up[e] @ row))) for s, e in zip(shares, best.tolist())))
    return torch.stack(rows).numpy()


def packed_parts(kind: str, rng: np.random.Generator) -> list[PackedTensor]:
    """Three matrices of all experts: plain, or of random bits in a packing of GGUF."""
    shapes = [(E * H, C), (E * H, C), (E * C, H)]
    if kind == "F32":
        return [plain_tensor((rng.standard_normal(shape) * 0.2).astype(np.float32)) for shape in shapes]
    packing = next(each for each in PACKINGS.values() if each.name == kind)
    found = []
    for rows, columns in shapes:
        blocks = rng.integers(0, 256, (rows * columns // 32, packing.nbytes), dtype=np.uint8)
        blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
        found.append(PackedTensor((rows, columns), packing, blocks))
    return found


@pytest.mark.parametrize("kind", ["F32", "Q4_0", "Q8_0"])
@pytest.mark.parametrize("shares_to_one", [True, False])
@pytest.mark.parametrize("num", [1, 2, 19, 60])
def test_experts_are_those_of_each_position(kind: str, shares_to_one: bool, num: int, rng: np.random.Generator) -> None:
    router, parts = rng.standard_normal((E, C)).astype(np.float32), packed_parts(kind, rng)
    x_nC = rng.standard_normal((num, C)).astype(np.float32)
    found = experts_of(router, parts, shares_to_one)(Tensor(x_nC[None]))[0].numpy()
    wanted = expected(router, parts, x_nC, shares_to_one)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=max(1e-4, 2e-6 * np.abs(wanted).max()))


@pytest.mark.parametrize("num", [1, 8, 60])
def test_experts_that_nobody_chose_are_not_read(num: int, rng: np.random.Generator) -> None:
    """Their weights are no numbers: a product with them would be none, even one times 0."""
    router = np.zeros((E, C), np.float32)
    router[[1, 4]] = 1.0
    parts = packed_parts("F32", rng)
    whole = [part.unpacked().reshape(E, -1, part.shape[1]).copy() for part in parts]
    for each in whole:
        each[[0, 2, 3, 5]] = np.nan
    poisoned = [plain_tensor(each.reshape(part.shape)) for each, part in zip(whole, parts)]
    x_nC = np.abs(rng.standard_normal((num, C))).astype(np.float32)
    found = experts_of(router, poisoned)(Tensor(x_nC[None]))[0].numpy()
    np.testing.assert_allclose(found, expected(router, parts, x_nC, True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num", [12, 60])
def test_one_plan_serves_all_choices(num: int, rng: np.random.Generator) -> None:
    router, parts = rng.standard_normal((E, C)).astype(np.float32), packed_parts("F32", rng)
    call = jit(experts_of(router, parts).forward)
    for pull in (0.0, 9.0, -9.0):  # towards one expert, or away from it
        x_nC = (rng.standard_normal((num, C)) + pull * router[2]).astype(np.float32)
        found = call(Tensor(x_nC[None]))[0].numpy()
        np.testing.assert_allclose(found, expected(router, parts, x_nC, True), rtol=1e-3, atol=1e-3)
    assert call.num_captures == 1


def test_many_pairs_read_a_matrix_in_tiles_of_rows() -> None:
    """As many tiles as any choice may need: here those of every choice of 30 pairs among 3 experts are enough."""
    for counts in ((30, 0, 0), (10, 10, 10), (0, 1, 29), (13, 12, 5), (1, 0, 29)):
        expert_P = np.repeat(np.arange(3), counts)
        expert_T, pair_TR, slot_P = (part.numpy() for part in tiles(Tensor(expert_P), 3, 4))
        assert len(expert_T) == (30 + 3 * 3) // 4
        np.testing.assert_array_equal(pair_TR.ravel()[slot_P], np.arange(30))
        np.testing.assert_array_equal(expert_T[slot_P // 4], expert_P)
        assert set(expert_T) <= set(expert_P)
