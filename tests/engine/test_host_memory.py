"""Views that the host reads where they lie."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine.host_memory import value_on_host
from picograd.look import watch

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "an element": lambda x: x[1, 2, 3],
    "a slice": lambda x: x[1:, :2],
    "axes": lambda x: x.permute(2, 0, 1),
    "a shape": lambda x: x.reshape(6, 4),
    "a shape of other axes": lambda x: x.permute(2, 0, 1).reshape(-1),
    "repeated": lambda x: x[:, :1].expand(2, 3, 4),
    "backwards": lambda x: x.flip(0, 2),
    "among zeros": lambda x: x.pad((1, 2, 0, 1))[:, 1:],
    "detached": lambda x: x.detach()[0],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", [pg.float32, pg.int64, pg.bool, pg.bfloat16])
def test_a_view_is_read_without_a_plan(name: str, dtype: pg.DType) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    x = Tensor(array, device="CPU").to(dtype).realize()
    view = VIEWS[name](x)
    expected = VIEWS[name](Tensor(array, device="NUMPY").to(dtype)).tolist()
    with watch() as counts:
        assert view.tolist() == expected
    assert counts.plans == 0


def test_what_is_read_is_a_copy() -> None:
    x = Tensor([1.0, 2.0], device="CPU").realize()
    before = x[:1].numpy()
    x += 1
    assert before.tolist() == [1.0] and x[:1].numpy().tolist() == [2.0]


def test_a_number_and_another_run_nothing() -> None:
    data, ix = Tensor(np.arange(100), device="CPU").realize(), Tensor([3, 50], device="CPU").realize()
    with watch() as counts:
        for i in ix:
            assert data[i : i + 4].tolist() == list(range(int(i), int(i) + 4))
    assert counts.plans == 0
    last = Tensor(2**63 - 1, device="CPU").realize()
    assert (last + 1).item() == -(2**63)


def test_all_else_is_left_to_plans() -> None:
    x = Tensor([1.0, 2.0], device="CPU").realize()
    n = pg.Variable("n", 1, 2).bind(2)
    others = [x[:n][-1], x[n - 1 :], x + 1, Tensor([1.0], device="NUMPY"), x.sum()]
    assert [value_on_host(other.op) for other in others] == [None] * 5


# ---- what does not fit ----
HUGE = 1 << 50  # of float32: four times what any process can address


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Tensor([1]).realize().repeat(HUGE).tolist(),
        lambda: Tensor([1]).realize().pad((0, HUGE)).numpy(),
        lambda: pg.tensor(np.broadcast_to(np.float32(1), (HUGE,))),
        lambda: pg.from_numpy(np.broadcast_to(np.float32(1), (HUGE,))),
        lambda: pg.tril_indices(HUGE, HUGE),
        lambda: (pg.ones(1).expand(HUGE) + 1).numpy(),
        lambda: pg.linalg.inv(pg.ones(1 << 22, 1 << 22)).sum().item(),
    ],
)
def test_an_array_too_large_for_the_host_is_an_error_of_picograd(ask: Callable[[], object]) -> None:
    with pytest.raises(pg.OutOfMemoryError, match="(cannot|Unable to) allocate [0-9.]+ [TP]iB"):
        ask()
