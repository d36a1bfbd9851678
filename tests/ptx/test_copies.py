"""When copies in the background land: no earlier and no later than their wait, in the order of their groups."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.copies import Array, Load, Store, ThreadCopies, TileCopies, When
from tests.ptx.module import PtxError
from tests.ptx.tensor_maps import TensorMap

ALL = np.arange(4)


class Bytes:
    """Memory of a test: addresses are indices."""

    def __init__(self, data: Array):
        self.data = data

    def read(self, threads: Array, addresses: Array, nbytes: int) -> Array:
        assert len(threads) == len(addresses)
        return self.data[addresses[:, None] + np.arange(nbytes)]

    def now(self, threads: Array, addresses: Array, nbytes: int) -> Array:
        return self.data[addresses[:, None] + np.arange(nbytes)]

    def write(self, threads: Array, addresses: Array, rows: Array) -> None:
        assert len(threads) == len(addresses)
        self.data[addresses[:, None] + np.arange(rows.shape[1])] = rows


def memories() -> tuple[Bytes, Bytes]:
    """Returns global memory that counts up, and shared memory of 255s."""
    return Bytes(np.arange(4096).astype(np.uint8)), Bytes(np.full(4096, 255, np.uint8))


def started(when: When, groups: int) -> tuple[ThreadCopies, Bytes]:
    """Each of four threads copies 4 bytes a group, to places behind each other."""
    memory, shared = memories()
    copies = ThreadCopies(memory, shared, when, 4)
    for group in range(groups):
        to = 16 * group + 4 * ALL
        copies.start(ALL, to, to, 4, np.full(4, 4))
        copies.close(ALL)
    return copies, shared


def test_a_group_is_there_behind_its_wait_and_not_before() -> None:
    copies, shared = started(When.LATE, 3)
    copies.wait(ALL, 3)
    assert (shared.data[:48] == 255).all()
    copies.wait(ALL, 1)
    assert (shared.data[:32] == np.arange(32)).all() and (shared.data[32:48] == 255).all()
    copies.wait(ALL, 0)
    assert (shared.data[:48] == np.arange(48)).all() and not copies.pending


def test_at_once_is_at_the_start() -> None:
    _, shared = started(When.AT_ONCE, 2)
    assert (shared.data[:32] == np.arange(32)).all()


def test_a_thread_waits_for_its_own() -> None:
    copies, shared = started(When.LATE, 1)
    copies.wait(ALL[1:3], 0)
    np.testing.assert_array_equal(shared.data[:16] != 255, np.isin(np.arange(16) // 4, (1, 2)))


def test_a_copy_in_no_group_is_not_waited_for() -> None:
    memory, shared = memories()
    copies = ThreadCopies(memory, shared, When.LATE, 4)
    copies.start(ALL, 4 * ALL, 4 * ALL, 4, np.full(4, 4))
    copies.wait(ALL, 0)
    assert (shared.data[:16] == 255).all()


def test_zeros_where_less_is_given_and_memory_is_not_touched_for_none() -> None:
    memory, shared = memories()
    copies = ThreadCopies(memory, shared, When.AT_ONCE, 4)
    source = np.array([8, 16, 1 << 40, 24])
    copies.start(ALL, 8 * ALL, source, 8, np.array([8, 3, 0, 8]))
    expected = [*range(8, 16), 16, 17, 18, *[0] * 13, *range(24, 32)]
    np.testing.assert_array_equal(shared.data[:32], expected)


@pytest.mark.parametrize(
    "to, source, given, says", [(2, 0, 4, "from 0x0 to 0x2"), (0, 6, 4, "from 0x6 to 0x0"), (0, 0, 8, "8 bytes are given")]
)
def test_a_copy_the_rules_forbid(to: int, source: int, given: int, says: str) -> None:
    memory, shared = memories()
    with pytest.raises(PtxError, match=says):
        ThreadCopies(memory, shared, When.LATE, 4).start(
            ALL[:1], *(np.array([each]) for each in (to, source)), 4, np.array([given])
        )


# ---- tiles ----
TENSOR = TensorMap(0, 1, (16, 7), (1, 16), (16, 4), 16)  # 7 rows of 16 bytes, boxes of 4


def test_a_box_over_the_edge_is_filled_with_zeros() -> None:
    memory, shared = memories()
    TileCopies(memory, shared, When.LATE).land(Load(0, TENSOR, (0, 5), 128, 0))
    np.testing.assert_array_equal(shared.data[128:192], [*range(80, 112), *[0] * 32])


def test_loads_land_in_either_order() -> None:
    for when, first in ((When.LATE, 0), (When.LAST_FIRST, 1)):
        tiles = TileCopies(*memories(), when)
        tiles.loads = [Load(0, TENSOR, (0, 0), 128 * i, i) for i in range(2)]
        assert tiles.next_load().mbarrier == first


def test_a_store_reads_at_its_wait_and_leaves_what_is_outside() -> None:
    memory, shared = memories()
    tiles = TileCopies(memory, shared, When.LATE)
    tiles.start_store(Store(0, TENSOR, (0, 5), 0))
    tiles.close_stores(0)
    tiles.wait_stores(0, 0, only_read=True)
    shared.data[:64] = 8
    assert memory.data[80] == 80
    tiles.end()
    np.testing.assert_array_equal(memory.data[72:120], [*range(72, 80), *[255] * 32, *range(112, 120)])


def test_a_tile_that_is_written_while_it_is_stored() -> None:
    memory, shared = memories()
    tiles = TileCopies(memory, shared, When.LATE)
    tiles.start_store(Store(0, TENSOR, (0, 0), 0))
    tiles.close_stores(0)
    shared.data[20] = 1
    with pytest.raises(PtxError, match="was written while a store still reads it"):
        tiles.wait_stores(0, 0, only_read=True)


def test_a_store_of_which_nobody_waits_is_an_error() -> None:
    tiles = TileCopies(*memories(), When.LATE)
    tiles.start_store(Store(0, TENSOR, (0, 0), 0))
    with pytest.raises(PtxError, match="no group was closed over"):
        tiles.end()
    tiles.close_stores(0)
    with pytest.raises(PtxError, match="no wait for its group"):
        tiles.end()
