"""Blocks written in place: UPDATEs, what runs before them, and what may be written over what."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd import dtype as dtypes
from picograd.engine.plan import parametrize, template
from picograd.ir import build
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Schedule, ScheduleItem
from picograd.ir.symbolic import subtract
from picograd.road import schedule_graphs
from tests.helpers import same_value
from tests.same_meaning import check_same_meaning


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def state(*shape: int) -> Tensor:
    return Tensor(np.arange(np.prod(shape)).reshape(shape).astype(np.float32)).realize()


def scheduled(*tensors: Tensor | Op) -> Schedule:
    roots = [t.cell.op if isinstance(t, Tensor) else t for t in tensors]
    form = template(roots)
    return schedule_graphs(parametrize(roots, form))


def kinds(schedule: Schedule) -> list[str]:
    items = [item for item in schedule.items if isinstance(item, ScheduleItem)]
    return [nest.kind.value for item in items for phase in item.kernel.phases for nest in phase]


def kept(schedule: Schedule) -> list[int | None]:
    return [use.over for use in schedule.written() if use.keeps]


@pytest.mark.req("G4")
def test_a_row_is_written_where_it_lies() -> None:
    x = state(6, 4)
    x[2] = Tensor([1.0, 2.0, 3.0, 4.0])
    schedule = scheduled(x)
    assert kinds(schedule) == ["update"] and kept(schedule) == [1]
    (use,) = schedule.written()
    assert schedule.inputs[use.over or 0].numel == 24  # its own old version


@pytest.mark.req("G4")
def test_several_writes_are_a_chain_in_one_memory() -> None:
    x, y = state(6, 4), state(4)
    x[0] = y
    first = x[0].sum()
    x[1] = y + first
    x[2:4, 1] = 7.0
    schedule = scheduled(x)
    assert kinds(schedule).count("update") == 3 and len(kept(schedule)) == 1
    expected = np.arange(24).reshape(6, 4).astype(np.float32)
    expected[1], expected[2:4, 1] = [6, 7, 8, 9], 7
    same_value(x, expected)


@pytest.mark.req("G4")
def test_who_reads_the_old_version_runs_first() -> None:
    x = state(6, 4)
    before = x.sum(1)
    x[2] = -1.0
    schedule = scheduled(x, (before * 2).contiguous())
    assert kinds(schedule)[-1] == "update" and kept(schedule) == [0]


@pytest.mark.req("G4")
def test_a_value_that_needs_both_versions_has_memory_of_its_own() -> None:
    x = state(6, 4)
    before = x * 1
    x[2] = -1.0
    mixed = x.max(1).values + before.sum(1)
    expected = np.arange(24).reshape(6, 4).astype(np.float32)
    later = expected.copy()
    later[2] = -1
    pg.realize([x, mixed])
    same_value(mixed, later.max(1) + expected.sum(1))
    same_value(x, later)


@pytest.mark.req("G4")
def test_rows_computed_from_the_buffer_itself_are_stored_before() -> None:
    x = state(6, 4)
    x[1:5] = x[0:4] * 2 + x[2:6]
    schedule = scheduled(x)
    assert kinds(schedule) == ["elementwise", "update"]
    expected = np.arange(24).reshape(6, 4).astype(np.float32)
    expected[1:5] = expected[0:4] * 2 + expected[2:6]
    same_value(x, expected)


@pytest.mark.req("G4")
def test_a_version_that_is_wanted_is_not_written_over() -> None:
    x = state(6, 4)
    old = x.cell.op
    x[2] = -1.0
    middle = x.cell.op
    x[3] = -2.0
    assert kinds(scheduled(x, old)) == ["elementwise"]  # the old version is an output
    schedule = scheduled(x, middle)
    assert kept(schedule) in ([], [0]) and kinds(schedule)[-1] == "elementwise"  # one of the two lies elsewhere
    values = [Tensor.from_op(op, "CPU") for op in (x.cell.op, middle)]
    pg.realize(values)
    assert values[0][2:4, 0].tolist() == [-1, -2] and values[1][2:4, 0].tolist() == [-1, 12]


@pytest.mark.req("G4")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_])
def test_every_block_of_every_dtype(dtype: dtypes.DType, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", device)
    start = np.arange(3 * 5 * 35).reshape(3, 5, 35) % 7
    thinned = (np.s_[::2, :, 3:30:4], np.s_[:, ::-1, 5:20])
    for block in (np.s_[1], np.s_[:, 2], np.s_[..., 4:33], np.s_[1:, 1:4, 7], *thinned):
        x = Tensor(start).cast(dtype).realize()
        expected = x.cast(dtypes.float32).numpy()
        value = (np.arange(expected[block].size).reshape(expected[block].shape) % 5).astype(np.float32)
        x[block] = Tensor(value).cast(dtype)
        expected[block] = value != 0 if dtype is dtypes.bool_ else value
        same_value(x.cast(dtypes.float32), expected)


# ---- outputs over inputs ----
def over(schedule: Schedule) -> list[tuple[int, ...] | None]:
    return [None if use.over is None else schedule.inputs[use.over].shape for use in schedule.written()]


def sum_of(*tensors: Tensor) -> Op:
    return Op(OpCode.ADD, dtypes.float32, tuple(t.op for t in tensors))


@pytest.mark.req("G8")
def test_an_elementwise_output_may_lie_over_what_it_is_computed_from() -> None:
    x = state(6, 4)
    assert over(scheduled(x * 2 + 1)) == [(6, 4)]
    assert over(scheduled((x * 2).T.contiguous())) == [None]  # read at other positions
    assert over(scheduled(x.softmax(-1))) == [None]  # read by rows
    assert over(scheduled((x * 2).cast(dtypes.float64))) == [None]


@pytest.mark.req("G8")
def test_the_update_of_a_weight_waits_for_who_reads_the_weight() -> None:
    x, w, y = state(5, 6), state(6, 7), state(5, 7)
    inner = x.exp().contiguous()
    error = inner @ w - y
    new = w - (inner.T @ error) * 0.1
    back = error @ w.T
    schedule = scheduled(new, back)
    assert over(schedule)[0] == (6, 7)
    writers = [i for i, item in enumerate(schedule.items) if schedule.outputs[0] in item.buffers]
    number = schedule.written()[0].over
    old = next(i for i, use in enumerate(schedule.buffers) if use.role == "input" and use.source == number)
    readers = [i for i, item in enumerate(schedule.items) if old in item.buffers]
    assert max(readers) <= min(writers)


@pytest.mark.req("B6")
def test_a_block_that_is_written_before_a_check_has_memory_of_its_own() -> None:
    x, index = state(6, 4), Tensor([1, 9])
    x[2] = -1.0
    picked = x[index]
    assert kinds(scheduled(x, picked.op))[0] == "elementwise" and not kept(scheduled(x, picked.op))
    y = state(6, 4)
    y[2] = y[index][0] * 2  # the value itself may fail
    assert not any(use.keeps and schedule.commit == 0 for schedule in [scheduled(y)] for use in schedule.written())


def lent(schedule: Schedule) -> list[int]:
    """Returns the items that write temporaries which lie in outputs."""
    own = [i for i, use in enumerate(schedule.buffers) if use.role == "lent"]
    return [min(n for n, item in enumerate(schedule.items) if i in item.buffers) for i in own]


@pytest.mark.req("G8")
def test_a_temporary_lies_in_an_output_only_where_nothing_is_wanted() -> None:
    x, w, index = state(8, 8), state(8, 8), Tensor([1, 9, 0, 0, 0, 0, 0, 0])

    def chain(y: Tensor, length: int = 5) -> Tensor:
        for _ in range(length):
            y = y @ w / 2
        return y

    assert lent(scheduled(chain(x)))
    assert not lent(scheduled(x + chain(w)))  # which may lie over x
    checked = scheduled(chain(x[index] @ w))
    assert lent(checked) and min(lent(checked)) >= checked.commit > 0
    checked = scheduled(chain(x[index] @ w, 6))  # its first temporary could lie in the output, too
    assert min(lent(checked), default=1) >= checked.commit > 0


@pytest.mark.req("G8")
def test_a_plan_that_may_end_in_an_error_keeps_its_inputs() -> None:
    x, index = state(6, 4), Tensor([1, 2, 3, 4, 5, 9])
    assert over(scheduled(x + x[index])) == [None]
    with pytest.raises(pg.IndexingError):
        (x + x[index]).numpy()


@pytest.mark.req("G4")
def test_updates_mean_the_same_at_every_level() -> None:
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 0, 9))
    base, row = (Op(OpCode.PARAM, dtypes.float32, (), (i, shape)) for i, shape in enumerate([(3, 11, 37), (3, 1, 37)]))
    margins = ((0, 0), (n, subtract(10, n)), (0, 0))
    inside = build.pad(filled(True, dtypes.bool_, row.shape), margins)
    root = build.where(inside, build.pad(row, margins), base)
    rng = np.random.default_rng(0)
    arrays = {p: rng.integers(-4, 5, p.shape).astype(np.float32) for p in (base, row)}
    for value in (0, 4, 9):
        schedule = check_same_meaning([root, build.reduce(base * 2, OpCode.ADD, (1,))], arrays, variables={"n": value})
        assert kept(schedule) == [schedule.inputs.index(base)] and kinds(schedule)[-1] == "update"
