"""Settings of the process: the dtype of new floats, threads, how tensors print."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import nn
from tests.helpers import same_value


@pytest.fixture
def wide() -> Iterator[None]:
    pg.set_default_dtype(pg.float64)
    torch.set_default_dtype(torch.float64)
    yield
    pg.set_default_dtype(pg.float32)
    torch.set_default_dtype(torch.float32)


@pytest.mark.req("C9")
def test_the_default_dtype_is_that_of_new_floats(wide: None) -> None:
    assert pg.get_default_dtype() == pg.float64
    for code in (
        "tensor([1.0])", "ones(2)", "zeros(2)", "full((2,), 1.5)", "arange(0.0, 2.0)", "linspace(0, 1, 3)", "eye(2)",
        "tensor([1, 2]) / 2", "tensor([1, 2]).exp()", "tensor([1, 2]) * 1.5", "tensor([True]).sin()", "hann_window(4)",
        "logspace(0, 1, 3)", "scalar_tensor(2)", "tensor([1, 2]).float()", "ones(2).half() + 1.5",
        "fft.fftfreq(4)", "where(tensor([True]), 1.0, 2.0)",
    ):  # fmt: skip
        ours, theirs = (eval(code, {**vars(module), "fft": module.fft}) for module in (pg, torch))
        same_value(ours, theirs)
    assert pg.rand(2).dtype == pg.randn(2).dtype == pg.float64 == nn.Linear(2, 3).weight.dtype


def test_a_jitted_function_is_captured_anew_for_another_default_dtype() -> None:
    made = pg.jit(lambda x: x + pg.ones(2))
    x = pg.tensor([1, 2])
    assert [made(x).dtype for _ in range(3)] == [pg.float32] * 3
    pg.set_default_dtype(pg.float64)
    try:
        assert [made(x).dtype for _ in range(3)] == [pg.float64] * 3
    finally:
        pg.set_default_dtype(pg.float32)
    assert made(x).dtype == pg.float32


def test_the_default_dtype_must_be_a_float() -> None:
    with pytest.raises(pg.DTypeError) as told:
        pg.set_default_dtype(pg.int64)
    assert told.value.fact == "set_default_dtype: needs a float of 16, 32 or 64 bits, got int64."


def test_threads_are_set_for_what_is_computed_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_THREADS", "2")
    x = pg.rand(300, 300)
    first = (x @ x).sum(0).numpy()
    pg.set_num_threads(1)
    assert pg.get_num_threads() == 1
    assert np.array_equal(((x @ x).sum(0) + 0.0).numpy(), first)
    with pytest.raises(pg.ArgumentError, match="set_num_threads: number must be at least 1, got 0"):
        pg.set_num_threads(0)
    with pytest.raises(pg.ArgumentError, match="set_num_threads: number must be at most 1024, got 1000000"):
        pg.set_num_threads(1_000_000)
    assert pg.get_num_threads() == 1


def test_print_options() -> None:
    x = pg.tensor([3.14159, 200.0])
    try:
        pg.set_printoptions(precision=2)
        assert repr(x) == "Tensor([  3.14, 200.  ])"
        pg.set_printoptions(sci_mode=True)
        assert repr(x) == "Tensor([3.14e+00, 2.00e+02])"
        pg.set_printoptions(sci_mode=False)
        assert repr(x * 1e-3) == "Tensor([0. , 0.2])"
        pg.set_printoptions(profile="short", edgeitems=1, threshold=3)
        assert repr(pg.arange(9)) == "Tensor([0, ..., 8], shape=(9,))"
    finally:
        pg.set_printoptions(profile="default")
    assert repr(x) == "Tensor([  3.14159, 200.     ])"
    for wrong, said in (
        ({"precision": -1}, "precision must be an integer from 0 on, got int -1."),
        ({"precision": 2.5}, "precision must be an integer from 0 on, got float 2.5."),
        ({"linewidth": "a"}, "linewidth must be an integer from 0 on, got str 'a'."),
        ({"threshold": float("nan")}, "threshold must be a number from 0 on, got float nan."),
    ):
        with pytest.raises(pg.ArgumentError) as caught:
            pg.set_printoptions(**wrong, edgeitems=1)
        assert caught.value.fact == f"set_printoptions: {said}"
    assert repr(x) == "Tensor([  3.14159, 200.     ])"
    with pytest.raises(pg.ArgumentTypeError, match="set_printoptions: profile must be"):
        pg.set_printoptions(profile="long")  # type: ignore[arg-type]
