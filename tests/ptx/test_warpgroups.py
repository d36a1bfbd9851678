"""The account of one warp of a warpgroup: products that are right behind the wait, and what breaks the rules before it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.copies import When
from tests.ptx.descriptors import accumulator_places, decode, places
from tests.ptx.module import PtxError
from tests.ptx.test_copies import Bytes
from tests.ptx.warpgroups import Array, Names, Step, WarpProducts, check_one_story

NAMES = tuple(f"%f{i}" for i in range(32))
LHS, RHS = (start >> 4 | 1 << 16 | 64 << 32 | 1 << 62 for start in (0, 8192))  # K-major, 128 bytes a row


class Held:
    """Registers of a warp, all of a kernel that has no others."""

    def __init__(self) -> None:
        self.values = {name: np.ones(32, np.float32).view(np.uint32) for name in NAMES}

    def read(self, names: Names) -> Array:
        return np.stack([self.values[name] for name in names], axis=1)

    def write(self, names: Names, values: Array) -> None:
        self.values |= {name: values[:, i].copy() for i, name in enumerate(names)}


def operands(turned: bool) -> tuple[Bytes, Array, Array, int, int]:
    """Returns shared memory with both operands, the operands, and their descriptors."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(-8, 9, (64, 16)).astype(np.float16) for _ in range(2))
    shared = Bytes(np.zeros(16384, np.uint8))
    for matrix, bits in ((lhs, LHS), (rhs, RHS)):
        at = places(decode(bits), 64, 16, 2, not turned)
        shared.write(np.zeros(1024), at.reshape(-1), matrix.reshape(-1, 1).view(np.uint8))
    return shared, lhs.astype(np.float32), rhs.astype(np.float32), LHS, RHS


def step(adds: bool = True, signs: tuple[int, int] = (1, 1), turned: bool = False) -> Step:
    return Step(NAMES, 64, "f16", LHS, RHS, adds, signs, (turned, turned))


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("turned", [False, True])
def test_four_warps_make_a_product(when: When, turned: bool) -> None:
    shared, lhs, rhs, *_ = operands(turned)
    for adds, signs, expected in (
        (True, (1, 1), 1 + lhs @ rhs.T),
        (False, (-1, 1), -lhs @ rhs.T),
        (True, (-1, -1), 1 + lhs @ rhs.T),
    ):
        for warp in range(4):
            held, own = Held(), WarpProducts(warp, 0, shared, when)
            own.fence(held, NAMES)
            own.start(held, step(adds, signs, turned))
            own.close()
            own.wait(held, 0)
            found = np.empty((16, 64), np.float32)
            found[accumulator_places(64)] = held.read(NAMES).view(np.float32)
            np.testing.assert_array_equal(found, expected[16 * warp : 16 * warp + 16])


def begun(when: When = When.LATE, warp: int = 0) -> tuple[WarpProducts, Held, Bytes]:
    shared, *_ = operands(False)
    own, held = WarpProducts(warp, 0, shared, when), Held()
    own.fence(held, NAMES)
    own.start(held, step())
    own.close()
    return own, held, shared


def test_nothing_is_there_before_the_wait() -> None:
    own, held, _ = begun()
    assert np.isnan(held.read(NAMES).view(np.float32)).all()
    own.wait(held, 1)
    assert np.isnan(held.read(NAMES).view(np.float32)).all()
    own.wait(held, 0)
    assert not np.isnan(held.read(NAMES).view(np.float32)).any()


def test_tiles_are_read_at_the_wait_or_at_once() -> None:
    for when, changes in ((When.LATE, True), (When.AT_ONCE, False)):
        own, held, shared = begun(when)
        shared.data[:] = 0
        own.wait(held, 0)
        assert (held.read(NAMES).view(np.float32) == 1).all() == changes


def test_rules_of_registers() -> None:
    held = Held()
    own = WarpProducts(0, 0, operands(False)[0], When.LATE)
    with pytest.raises(PtxError, match="before any wgmma.fence"):
        own.start(held, step())
    own.fence(held, NAMES)
    held.values["%f3"] = np.zeros(32, np.uint32)
    with pytest.raises(PtxError, match="%f3 was written with no wgmma.fence"):
        own.start(held, step())
    own, held, _ = begun()
    held.values["%f5"] = np.zeros(32, np.uint32)
    with pytest.raises(PtxError, match="%f5 was written while a wgmma adds to it"):
        own.wait(held, 0)


def test_four_warps_tell_one_story() -> None:
    accounts = [begun()[0] for _ in range(4)]
    with pytest.raises(PtxError, match="ends while a wgmma adds"):
        check_one_story(accounts)
    accounts = []
    for warp in range(4):
        own, held, _ = begun(warp=warp)
        own.wait(held, 0)
        accounts.append(own)
    check_one_story(accounts)
    accounts[2].close()
    with pytest.raises(PtxError, match="warps 0 and 2 of a warpgroup"):
        check_one_story(accounts)
