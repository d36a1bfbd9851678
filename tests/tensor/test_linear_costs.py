"""Indexing, sorting and searching at sizes: ten times the elements are about ten times the work, never a hundred times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.ir.op import Op, toposort

Call = Callable[[Tensor, Tensor, Tensor], Any]
# of n values, n places among them, and n truths
CALLS: dict[str, Call] = {
    "x[i]": lambda x, i, m: x[i],
    "x[m]": lambda x, i, m: x[m],
    "x[i] = v": lambda x, i, m: _written(x, i),
    "x[m] = v": lambda x, i, m: _written(x, m),
    "gather": lambda x, i, m: x.gather(0, i),
    "scatter": lambda x, i, m: x.scatter(0, i, x),
    "scatter_reduce": lambda x, i, m: x.scatter_reduce(0, i, x, "mean", include_self=False),
    "index_add": lambda x, i, m: x.index_add(0, i, x),
    "put": lambda x, i, m: x.put(i, x, True),
    "masked_select": lambda x, i, m: x.masked_select(m),
    "masked_scatter": lambda x, i, m: x.masked_scatter(m, x),
    "repeat_interleave": lambda x, i, m: x.repeat_interleave(i % 3, 0, output_size=x.shape[0]),
    "sort": lambda x, i, m: x.sort().values,
    "topk": lambda x, i, m: x.topk(5).values,
    "kthvalue": lambda x, i, m: x.kthvalue(7).values,
    "median": lambda x, i, m: x.median(),
    "mode": lambda x, i, m: i.mode().values,
    "quantile": lambda x, i, m: x.quantile(0.3),
    "searchsorted": lambda x, i, m: x.searchsorted(x),
    "isin": lambda x, i, m: i.isin(i),
    "unique": lambda x, i, m: i.unique(return_inverse=True, return_counts=True),
    "unique of rows": lambda x, i, m: i.reshape(-1, 4).unique(dim=0),
    "unique_consecutive": lambda x, i, m: i.unique_consecutive(),
    "bincount": lambda x, i, m: i.bincount(),
    "histc": lambda x, i, m: x.histc(50),
    "cumsum": lambda x, i, m: x.cumsum(0),
    "diagonal": lambda x, i, m: x.reshape(-1, 10).diagonal(),
    "unfold": lambda x, i, m: x.unfold(0, 3, 1) + 0,
    "roll": lambda x, i, m: x.roll(3),
}


def _written(x: Tensor, index: Tensor) -> Tensor:
    y = x.clone()
    y[index] = 1.0
    return y


def graphs_of(call: Call, count: int, monkeypatch: pytest.MonkeyPatch) -> list[list[Op]]:
    """Returns the graphs a call leads to: of what it returns, and of what it reads on the host on the way."""
    rng = np.random.default_rng(0)
    x = Tensor(rng.uniform(-2.0, 2.0, count).astype(np.float32), requires_grad=True)
    i, m = Tensor(rng.integers(0, count, count)), Tensor(rng.random(count) < 0.5)
    graphs: list[list[Op]] = []
    host = Tensor._host

    def noted(self: Tensor, function: str) -> Any:
        graphs.append(toposort(written_out([self.op])))
        return host(self, function)

    monkeypatch.setattr(Tensor, "_host", noted)
    found = call(x, i, m)
    found = list(found) if isinstance(found, tuple) else [found]
    for tensor in found:
        if tensor.requires_grad:
            graphs.append(toposort(written_out([pg.grad(tensor.sum(), [x])[0].op])))
        graphs.append(toposort(written_out([tensor.op])))
    return graphs


def work(call: Call, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Returns the elements of all Ops of a call and its gradient, and the number of Ops."""
    graphs = graphs_of(call, count, monkeypatch)
    ops = {op for graph in graphs for op in graph}
    return sum(int(op.numel) for op in ops), len(ops)


@pytest.mark.req("C5")
@pytest.mark.parametrize("name", CALLS)
def test_ten_times_the_elements_are_about_ten_times_the_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    (small, few), (large, many) = (work(CALLS[name], count, monkeypatch) for count in (200, 2000))
    assert large <= 10 * small * max(1.0, many / few) * 1.05
    assert many <= 1.5 * few  # a step more for each doubling, where halves are searched


@pytest.mark.req("C5")
def test_windows_with_a_step_are_no_windows_of_step_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of windows and of their gradient is that of the elements they show, not of a window at each element."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    calls: list[Call] = [
        lambda x, i, m: x.unfold(0, 32, 8) + 0,
        lambda x, i, m: x.unfold(0, 30, 8) + 0,
        lambda x, i, m: x.unfold(0, 32, 32) + 0,
    ]
    (shown, _), (cut, _), (apart, _) = (work(call, 4096, monkeypatch) for call in calls)
    assert shown <= 10 * apart  # an element is in four windows, and moved between shapes
    assert cut <= 1.3 * shown
