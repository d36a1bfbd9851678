"""Functions of the host within plans: eager and under jit, in loops, kept on disk, and what happens when they fail."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.engine.devices import compiler_for
from picograd.errors import UnsupportedOp
from picograd.evaluator import host as functions
from picograd.look import watch
from tests.forks import imported

MATRIX = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]], np.float32)


def test_a_function_of_the_host_is_one_kernel_of_its_plan(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor(MATRIX)
    with watch() as counts:
        found = (pg.linalg.inv(x * 2) + 1).numpy()
    assert counts.plans == 1 and counts.kernels == 3
    assert counts.names[1] == "inv_2_2"
    np.testing.assert_allclose(found, np.linalg.inv(MATRIX * 2) + 1, rtol=1e-6)


def test_movement_of_what_is_in_memory_is_left_to_the_host(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor(np.stack([MATRIX, 2 * MATRIX])).realize()
    with watch() as counts:
        found = pg.linalg.inv(x.mT[1:].flip(0)).numpy()
    assert counts.kernels == 1
    np.testing.assert_allclose(found[0], np.linalg.inv(2 * MATRIX.T), rtol=1e-6)


def test_jit_runs_it_with_new_values(device):
    captured = pg.jit(lambda a, b: pg.linalg.solve(a @ a.mT + Tensor.eye(2), b).sum(-1))
    rng = np.random.default_rng(0)
    for _ in range(4):
        a, b = rng.standard_normal((3, 2, 2)).astype("f4"), rng.standard_normal((3, 2, 1)).astype("f4")
        expected = np.linalg.solve(a @ a.swapaxes(1, 2) + np.eye(2), b).sum(-1)
        np.testing.assert_allclose(captured(Tensor(a), Tensor(b)).numpy(), expected, rtol=1e-4)


def test_a_loop_calls_it_at_each_step(device):
    xs = np.stack([MATRIX, MATRIX * 2, MATRIX * 4])
    total, rows = pg.scan(lambda carry, x: (carry + pg.linalg.inv(x), pg.linalg.det(x)), Tensor.zeros(2, 2), Tensor(xs))
    np.testing.assert_allclose(total.numpy(), np.linalg.inv(xs).sum(0), rtol=1e-5)
    np.testing.assert_allclose(rows.numpy(), np.linalg.det(xs), rtol=1e-5)


def test_a_symbolic_number_of_matrices(device):
    x = Tensor(np.stack([MATRIX, MATRIX * 2, MATRIX * 4])).realize()
    n = pg.Variable("n", 1, 3)
    for count in (1, 3, 2):
        found = pg.linalg.inv(x[: n.bind(count)]).sum(0).numpy()
        np.testing.assert_allclose(found, np.linalg.inv(x.numpy()[:count]).sum(0), rtol=1e-5)


@pytest.mark.parametrize("name", ["inv", "det", "eigvalsh", "slogdet"])
def test_vmap_has_it_compute_all_examples_at_once(name, device):
    x = Tensor(np.stack([MATRIX, MATRIX * 2, MATRIX * 4]))
    function = getattr(pg.linalg, name)
    mapped, expected = pg.vmap(function)(x), function(x)
    for found, wanted in zip(*((part,) if isinstance(part, Tensor) else part for part in (mapped, expected)), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)


# ---- errors that values decide ----
def test_the_error_names_the_line_and_the_matrix(device):
    x = Tensor(np.stack([MATRIX, SINGULAR * 0]))
    inverse = pg.linalg.inv(x)
    total = inverse.sum()
    with pytest.raises(pg.LinAlgError) as caught:
        total.item()
    assert caught.value.fact == "linalg.inv: matrix 1 of a stack of 2 is singular."
    assert caught.value.hint == "pg.linalg.pinv takes any matrix."
    assert "inverse = pg.linalg.inv(x)" in str(caught.value.line)


def test_under_jit_too_and_state_stays_as_it_was(device):
    state = Tensor(np.eye(2, dtype="f4")).realize()

    @pg.jit
    def step(x):
        state.assign(pg.linalg.inv(x) + state)
        return state.sum()

    good = Tensor(MATRIX)
    for _ in range(3):
        step(good).item()
    before = state.numpy()
    with pytest.raises(pg.LinAlgError, match="the matrix is singular"):
        step(Tensor(SINGULAR * 0)).item()
    np.testing.assert_array_equal(state.numpy(), before)
    step(good).item()
    np.testing.assert_allclose(state.numpy(), before + np.linalg.inv(MATRIX), rtol=1e-6)


def test_of_several_failures_the_first_in_order_is_raised(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor(SINGULAR * 0)
    with pytest.raises(pg.LinAlgError, match="linalg.cholesky"):
        pg.linalg.inv(pg.linalg.cholesky(x)).numpy()


def test_another_error_leaves_the_plan_as_it_is(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")

    def fails(a):
        raise ArithmeticError("no room")

    monkeypatch.setitem(functions.HOST_FUNCTIONS, "matrix_exp", fails)
    x = Tensor(MATRIX)
    with pytest.raises(ArithmeticError, match="no room"):
        x.matrix_exp().numpy()
    monkeypatch.undo()
    assert np.isfinite(Tensor(MATRIX).matrix_exp().numpy()).all()


def test_an_interrupt_waits_until_the_value_is_whole(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    tries = []

    def interrupted_once(a):
        tries.append(1)
        if len(tries) == 1:
            raise KeyboardInterrupt
        return a * 0 + 1

    monkeypatch.setitem(functions.HOST_FUNCTIONS, "matrix_exp", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        Tensor(MATRIX).matrix_exp().numpy()
    assert len(tries) == 2


# ---- threads, devices, disk ----
def test_threads_of_python_run_plans_at_one_time(monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    found: dict[int, np.ndarray] = {}

    def work(i: int) -> None:
        for _ in range(20):
            found[i] = pg.linalg.inv(Tensor(MATRIX * (i + 1)) + 0.5).numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, value in found.items():
        np.testing.assert_allclose(value, np.linalg.inv(MATRIX * (i + 1) + 0.5), rtol=1e-5)


def test_a_device_whose_plans_cannot_call_the_host_says_so(monkeypatch):
    class Elsewhere:
        name = "GPU"

    from picograd.engine import compiler as host

    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    kernels = []
    monkeypatch.setattr(type(compiler_for("CPU")), "executables", lambda self, found, tune: kernels.extend(found) or [])
    with pytest.raises(Exception):  # noqa: B017, PT011  nothing was compiled
        pg.linalg.inv(Tensor(MATRIX)).numpy()
    with pytest.raises(UnsupportedOp) as caught:
        host.load_host(kernels[0], Elsewhere())
    assert caught.value.fact == "inv: a plan on GPU cannot call a function of the host."
    assert caught.value.hint == 'x.to("CPU") moves a tensor to a device that can.'


SCRIPT = """
import picograd as pg
from picograd.look import watch
with watch() as counts:
    x = pg.Tensor([[2.0, 1.0], [1.0, 3.0]]).realize()
    y = (pg.linalg.inv(x * 2) + 1).sum()
    print(round(y.item(), 5), counts.scheduled, counts.compiled)
    try:
        (pg.linalg.inv(x * 0) + 1).sum().item()
    except pg.LinAlgError as error:
        print(error.fact)
"""


def test_a_second_process_finds_the_plan_on_disk(tmp_path):
    names = {"PICOGRAD_CACHE": str(tmp_path / "cache"), "PICOGRAD_DEVICE": "CPU", "PICOGRAD_VERIFY": "0"}
    runs = [imported().run(SCRIPT, names) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    first, second = (run.stdout.splitlines() for run in runs)
    assert first[1:] == second[1:] == ["linalg.inv: the matrix is singular."]
    assert first[0].split()[0] == second[0].split()[0] == "4.3"
    assert int(first[0].split()[1]) > 0
    assert second[0].split()[1:] == ["0", "0"]


def test_complex_arrays_of_real_eigenvalues_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy from 2.5 on gives complex eigenvalues and eigenvectors of every matrix."""
    eig = np.linalg.eig
    monkeypatch.setattr(np.linalg, "eig", lambda a: tuple(part.astype(complex) for part in eig(a)))
    values, vectors = pg.linalg.eig(pg.Tensor([[2.0, 1.0], [0.0, 1.0]]))
    assert values.tolist() == [1.0, 2.0]
    np.testing.assert_allclose(vectors.numpy(), [[-(0.5**0.5), 1.0], [0.5**0.5, 0.0]], rtol=1e-6)
    with pytest.raises(pg.LinAlgError, match="complex eigenvalues"):
        pg.linalg.eigvals(pg.Tensor([[0.0, 1.0], [-1.0, 0.0]])).realize()


@pytest.mark.parametrize("shape", [(70, 70), (3, 40, 40), (100, 40), (40, 100), (2, 5, 3)])
def test_lu_computes_a_block_of_columns_after_the_other(shape, monkeypatch):
    solved, solve = [], functions._substituted
    monkeypatch.setattr(functions, "_routine", lambda name, dtype: None)
    monkeypatch.setattr(functions, "_substituted", lambda *args: solved.append(args) or solve(*args))
    a = np.random.default_rng(0).standard_normal(shape)
    a[..., 0, 1] = a[..., 1, 1] = 0
    pivots = functions._lu_pivots(a)
    k = min(shape[-2:])
    assert len(solved) == sum(start + functions.BLOCK_COLUMNS < shape[-1] for start in range(0, k, functions.BLOCK_COLUMNS))
    expected, expected_pivots = torch.linalg.lu_factor(torch.from_numpy(a))
    np.testing.assert_array_equal(pivots, expected_pivots.numpy())
    rows = functions._rows_of_pivots(pivots, shape[-2])
    corner = np.take_along_axis(a, rows[..., None], -2)[..., :k, :k]
    np.testing.assert_allclose(functions._lu(corner), expected.numpy()[..., :k, :k], rtol=1e-9, atol=1e-9)


SHAPES = [(16, 16), (70, 70), (3, 40, 40), (100, 40), (40, 100), (2, 3, 20, 20), (0, 20, 20), (5, 5)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_lapack_and_steps_of_numpy_give_the_same_factors(shape, dtype, monkeypatch):
    """A NumPy whose LAPACK shows no routines has steps of its own."""
    a = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    k = min(shape[-2:])
    square = a[..., :k, :k]
    positive = square @ square.swapaxes(-1, -2) / k + np.eye(k, dtype=dtype)
    triangles = square + k * np.eye(k, dtype=dtype)
    right = a[..., :k, :3]

    def found() -> list:
        solved = [
            functions._solve_triangular(triangle, right, upper, unit)
            for triangle, unit in ((triangles, False), (np.swapaxes(triangles, -1, -2), False), (square / k, True))
            for upper in (False, True)
        ]
        orders = functions._cholesky_order(square + square.swapaxes(-1, -2)), functions._cholesky_order(positive)
        return [functions._lu_pivots(a), functions._lu(square), functions._cholesky(positive), *orders, *solved]

    by_lapack = found()
    monkeypatch.setattr(functions, "_routine", lambda name, dtype: None)
    close = np.finfo(dtype).eps * 1e4  # the LU of rows in any order multiplies errors
    for one, other in zip(by_lapack, found()):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=close * max(1, np.abs(other).max(initial=0)))


def test_only_its_triangle_of_a_matrix_is_read():
    a = np.tril(np.random.default_rng(0).standard_normal((20, 20))) + 20 * np.eye(20)
    b, nan = np.ones((20, 0)), np.triu(np.full((20, 20), np.nan), 1)
    assert functions._solve_triangular(a + nan, b, False, False).shape == (20, 0)
    np.testing.assert_allclose(functions._solve_triangular(a + nan, a, False, False), np.eye(20), atol=1e-12)


def test_cholesky_names_the_first_matrix_that_is_not_positive():
    stack = np.stack([np.eye(20)] * 4)
    stack[2, 7, 7] = stack[3, 0, 0] = -1
    with pytest.raises(functions.Failed) as failed:
        functions._cholesky(stack)
    assert failed.value.number == 2
    assert functions._cholesky_order(stack).tolist() == [0, 0, 8, 1]


def test_lu_of_a_singular_matrix_has_zeros_behind_a_column_of_zeros():
    a = np.random.default_rng(0).standard_normal((50, 50))
    a[:, 35] = a[:, 3] * 0
    rows = functions._rows_of_pivots(functions._lu_pivots(a), 50)
    lu = functions._lu(a[rows])
    assert np.isfinite(lu).all() and not lu[36:, 35].any()
    np.testing.assert_allclose((np.tril(lu, -1) + np.eye(50)) @ np.triu(lu), a[rows], atol=1e-12)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_pairs_in_the_same_memory(dtype):
    z = np.array([[1 + 2j, 3 - 4j]], dtype)
    pairs = functions._pairs(z)
    assert np.shares_memory(pairs, z)
    np.testing.assert_array_equal(pairs, [[[1, 2], [3, -4]]])
    np.testing.assert_array_equal(functions._pairs(z.T), [[[1, 2]], [[3, -4]]])


def test_low_rates_are_counted_up_to_the_counts_that_halving_finds(monkeypatch):
    rng = np.random.default_rng(0)
    rate, uniform = rng.random(3000) * 40, rng.random(3000)
    rate[:2], uniform[2:4] = 0, (0, 1 - 2.0**-53)
    halved, found = [], functions._halved
    monkeypatch.setattr(functions, "_halved", lambda uniform, rate: halved.append(rate) or found(uniform, rate))
    counts = functions._poisson(uniform, rate)
    assert halved[0].size == (rate >= functions.COUNTED_RATE).sum()
    usual = np.arange(rate.size) != 3  # where the rounding of the sum decides
    np.testing.assert_array_equal(counts[usual], found(uniform, rate)[usual])
    assert not counts[:3].any() and rate[3] < counts[3] < rate[3] + 12 * np.sqrt(rate[3]) + 50


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 30, 257])
def test_fourier_transforms_are_numpys_without_a_scale(length: int, dtype: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, length, 4)).astype(dtype)
    tolerance: dict[str, Any] = {"rtol": 0, "atol": (1e-5 if dtype is np.float32 else 1e-13) * length * 12}
    z = (x + 1j * x[::-1]).astype(np.result_type(dtype, np.complex64))
    pairs = np.stack([z.real, z.imag], -1)
    for axes in ((-2,), (-1,), (-2, -1), (-3, -2, -1)):
        for sign, transform in ((-1, np.fft.fftn), (1, np.fft.ifftn)):
            found = functions.HOST_FUNCTIONS["fft"](pairs, sign, *axes)
            wanted = transform(z, axes=axes, norm="backward" if sign < 0 else "forward")
            assert found.dtype == dtype
            np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, **tolerance)
    for n in {length, max(1, length - 1), length + 3}:  # cut, or with zeros behind it
        found = functions.HOST_FUNCTIONS["rfft"](x, n, 1)
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], np.fft.rfft(x, n, 1), **tolerance)
        back = functions.HOST_FUNCTIONS["irfft"](found, n, 1)
        assert back.dtype == found.dtype == dtype
        wanted = np.fft.irfft(found[..., 0] + 1j * found[..., 1], n, 1, norm="forward")
        np.testing.assert_allclose(back, wanted, **tolerance)
