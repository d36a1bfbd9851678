"""The runner of PyTorch's own table: a few operators of each kind, and what it says where the libraries differ."""

from __future__ import annotations

import pytest
import torch

import picograd as pg

pytest.importorskip("expecttest", reason="PyTorch's tests import it; it is no dependency of picograd")

from tools.opinfo.__main__ import run, summary
from tools.opinfo.compare import compare
from tools.opinfo.convert import Converter
from tools.opinfo.found import Differs, Row


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "dtype"), [("samples", "float32"), ("samples", "int64"), ("gradients", "float64"), ("errors", "float32")]
)
def test_a_few_operators_are_right(kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    rows = list(run(["flip", "polygamma", "gather", "linalg.svd", "fft.rfft"], [kind], [dtype], limit=2))
    assert rows and {row.verdict for row in rows} <= {"right", "skipped"}, rows
    assert summary(rows).startswith(f"{kind}: ")


@pytest.mark.filterwarnings("ignore")
def test_a_module_and_an_optimizer_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    rows = list(run(["nn.GroupNorm", "SGD"], ["modules", "optimizers"], ["float32"], limit=2))
    assert [row.verdict for row in rows] == ["right", "right"], rows


def test_what_is_left_out_says_why() -> None:
    (row,) = run(["polar"], ["samples"], ["float32"])
    assert (row.verdict, row.examples) == ("not applicable", ["complex numbers are left out"])


def test_a_difference_is_told() -> None:
    for ours, theirs, text in (
        (pg.Tensor([1.0]), torch.tensor(1.0), "shape (1,) is not ()"),
        (pg.Tensor([1]), torch.tensor([1.0]), "dtype int64 is not float32"),
        (1.0, torch.tensor(1.0), "result is float, not a Tensor"),
        ([], [torch.tensor(1.0)], "result is list of 0, not of 1"),
    ):
        with pytest.raises(Differs) as caught:
            compare(ours, theirs, 0.0, 0.0)
        assert str(caught.value) == text
    with pytest.raises(Differs, match="values: .*not close"):
        compare(pg.Tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), 1e-5, 1e-5)


def test_one_tensor_given_twice_stays_one() -> None:
    x = torch.tensor([1.0], requires_grad=True)
    (first, (second,)), third = Converter()(((x, [x]), torch.tensor(2.0)))
    assert first is second and first is not third and first.requires_grad and not third.requires_grad


def test_the_worst_call_is_the_verdict() -> None:
    row = Row("f", "samples", "float32")
    for verdict in ("right", "refused", "wrong", "right"):
        row.add(verdict, "why")
    assert row.close().verdict == "wrong" and row.counts == {"right": 2, "refused": 1, "wrong": 1}
