"""What every device has to compute as the evaluator does: expressions, a training, loops; and which devices are here.

tests/device_checks.py lists the checks that all devices are asked.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import IndexingError
from picograd.evaluator.program import as_tf32
from picograd.look import watch
from picograd.nn import functional as F
from picograd.optim import SGD
from tests.threads import in_threads

OF_GPUS = ("CUDA", "PTX")  # their tests are marked, for those who have a GPU


def device_params(*names: str) -> list[Any]:
    """Returns the parameters of a test that runs on each of some devices; one that is not here is skipped, and why."""
    return [pytest.param(name, marks=on(name)) for name in names]


def on(name: str) -> list[pytest.MarkDecorator]:
    """Marks of a test that needs a device, which is looked for when the test begins (tests/conftest.py)."""
    return [pytest.mark.on(name), *([pytest.mark.gpu] if name in OF_GPUS else [])]


EXPRESSIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elementwise": lambda a, b: (a * 2 + b).relu().exp(),
    "broadcast": lambda a, b: a + b[:1],
    "softmax": lambda a, b: a.softmax(-1),
    "sum of columns": lambda a, b: a.sum(0),
    "sum of long rows": lambda a, b: a.reshape(-1).expand(3, 40 * 70).sum(1),
    "matmul": lambda a, b: a @ b.T,
    "matmul in bfloat16": lambda a, b: (a.round().bfloat16() @ b.T.round().bfloat16()).float(),  # exact until it is rounded
    "gather": lambda a, b: a[Tensor([3, 0, 39], device=a.device)],
    "maximum of a transpose": lambda a, b: a.T.amax(1),
    "running sums": lambda a, b: a.cumsum(0) + b.cumsum(1),
    "two grids in one kernel": lambda a, b: a.sum() + b.exp().sum(),
}
CALLS_OF_HOST: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "inverses between kernels": lambda a, b: pg.linalg.inv((a.T @ a) + 1e3 * pg.eye(70, device=a.device)) @ b.T,
    "fourier": lambda a, b: pg.fft.rfft(a * b).real + 1,
}
MORE_EXPRESSIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "layer norm": lambda a, b: F.layer_norm(a, (70,)),
    "convolution": lambda a, b: F.conv2d(a.reshape(1, 4, 10, 70), b.reshape(8, 350)[:, :36].reshape(8, 4, 3, 3)),
    "order": lambda a, b: a.argsort(1) + b.sort(0)[1],
    "narrow floats": lambda a, b: (a.half() * b.half()).float() + (a.bfloat16() + 1).float(),
    "wide floats": lambda a, b: (a.double() % b.double()).sin().float(),
    "remainder": lambda a, b: (a * 1e6) % b + (a // b),
    "bools": lambda a, b: (a > b).all(1, keepdim=True) | (a < b).any(0),
    "small integers": lambda a, b: ((a * 9).to(pg.int8) // 2 % 5).float() + (b * 9).to(pg.uint8).cumsum(1),
    "extrema": lambda a, b: a.amax(1) - b.amin(1) + a.argmax(1),
    "what lies across": lambda a, b: a.repeat(7, 3).T.contiguous() + b.reshape(70, 40).repeat(3, 7),
    "sums of bins": lambda a, b: (a[0, :7] * 0).index_add(0, (a.reshape(-1).clip(-1, 1) * 3).long() + 3, b.reshape(-1)),
    "rows of an embedding": lambda a, b: (a[:7] + 1).index_add(0, (a[:, 0].clip(-1, 1) * 3).long() + 3, b),
    "products of half": lambda a, b: ((a * 2).round().half() @ (b * 2).round().half().T).float(),  # exact
    "products of bfloat16": lambda a, b: (a.round().bfloat16() @ (b > 0).bfloat16().T).float(),
    "a long product": lambda a, b: a.T.repeat(1, 30) @ b.repeat(30, 1),
    "attention": lambda a, b: F.scaled_dot_product_attention(*[x[None, None] for x in (a, b, a * b)], is_causal=True),
    "products of doubles": lambda a, b: a.double().prod(1) + b.double().sum(1),
}
ALL_EXPRESSIONS = {**EXPRESSIONS, **CALLS_OF_HOST, **MORE_EXPRESSIONS}


def check_expression(compute: Callable[[Tensor, Tensor], Tensor], device: str, rng: np.random.Generator) -> None:
    """Checks what is made of two matrices against the evaluator."""
    a, b = (rng.standard_normal((40, 70), np.float32) for _ in range(2))
    got, expected = (compute(Tensor(a, device=d), Tensor(b, device=d)).numpy() for d in (device, "NUMPY"))
    # Sums of up to 2800 products differ by their order; nothing else here rounds more than a few times.
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-4)


def check_remainder(dtype: pg.DType, device: str, rng: np.random.Generator) -> None:
    """Checks that a remainder is exact, of special, near and far values."""
    special = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, 1e-40, np.inf, -np.inf, np.nan, 3e38, -7.5])
    near, far = rng.standard_normal(300), np.ldexp(rng.standard_normal(300), rng.integers(-120, 120, 300))
    values = np.concatenate([special, near, far]).astype(dtype.numpy)
    a, b = values[:, None], rng.permutation(np.concatenate([values[: len(special)], values[::5]]))[None]
    got = (Tensor(a, device=device) % Tensor(b, device=device)).numpy()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.remainder(a, b))


def check_memory_that_begins_anywhere(device: str) -> None:
    """Checks a kernel on memory that begins at no round place."""
    whole = Tensor(np.arange(4097, dtype=np.float32), device=device).realize()
    rows = whole[1:].reshape(64, 64)
    np.testing.assert_array_equal((rows * 2 + rows.T).numpy(), (lambda r: r * 2 + r.T)(np.arange(1, 4097).reshape(64, 64)))


def check_permutation(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that random bits are the evaluator's."""
    orders = []
    for name in (device, "NUMPY"):
        monkeypatch.setenv("PICOGRAD_DEVICE", name)
        orders.append(pg.randperm(100, generator=pg.Generator(3)).tolist())
    assert orders[0] == orders[1] and sorted(orders[0]) == list(range(100))


def train(device: str, hidden: int = 64) -> list[float]:
    """Three steps of a perceptron with one hidden layer, of the shape and loss of the MNIST one."""
    rng = np.random.default_rng(0)
    w1, w2 = (rng.standard_normal(shape).astype(np.float32) * 0.1 for shape in ((196, hidden), (hidden, 10)))
    weights = [Tensor(w, device=device, requires_grad=True) for w in (w1, np.zeros(hidden, np.float32), w2)]
    x = Tensor(rng.standard_normal((32, 196), np.float32), device=device)
    y = Tensor(rng.integers(0, 10, 32), device=device)
    optimizer, losses = SGD(weights, lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy((x @ weights[0] + weights[1]).relu() @ weights[2], y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
    return losses


def check_training(device: str) -> None:
    """Checks the losses of a training."""
    losses = train(device)
    np.testing.assert_allclose(losses, train("NUMPY"), rtol=1e-5)  # float32 sums in another order, over three steps
    assert losses[-1] < losses[0]


def recurrent(device: str) -> list[np.ndarray]:
    """Rows, last carry and gradients of a recurrence, whose last step comes first; with a checkpointed part."""
    rng = np.random.default_rng(1)
    h, w, xs = (
        Tensor(rng.standard_normal(shape).astype(np.float32), device=device, requires_grad=True)
        for shape in ((3, 8), (8, 8), (5, 3, 8))
    )
    last, rows = pg.scan(lambda c, x: ((c @ w * 0.3 + x).tanh(), (c * x).sum(1)), h, xs, reverse=True)
    (pg.checkpoint(lambda a: a.exp() * a, last).sum() + rows.sum()).backward()
    return [np.asarray(t.detach().numpy()) for t in (rows, last, h.grad, w.grad, xs.grad)]


def check_loops(device: str) -> None:
    """Checks loops, their gradients and a checkpoint."""
    for got, expected in zip(recurrent(device), recurrent("NUMPY")):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)  # float32 sums in another order, over five steps


# ---- whoever runs a plan, and whatever comes between ----
def check_threads(device: str) -> None:
    """Threads that run one plan at the same time do not see each other's temporaries."""
    x = np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(8, 16)
    weight = Tensor(np.eye(16, dtype=np.float32), device=device)
    found: dict[int, list[bool]] = {number: [] for number in range(4)}

    def run(number: int) -> None:
        rows = x * (number + 1)
        expected = np.tanh(rows).sum(0) + rows
        for _ in range(8):
            given = Tensor(rows, device=device)
            got = (given @ weight).tanh().contiguous().sum(0).contiguous() + given
            found[number].append(np.allclose(got.numpy(), expected, atol=1e-5))  # float32 sums of 8

    in_threads(run, len(found))
    assert all(results == [True] * 8 for results in found.values()), found


def check_interrupt(device: str, owner: Any, launch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a step that writes over its state waits until all of that is written.

    Args:
      owner, launch:  where the function stands that starts one kernel
    """
    states = [Tensor(np.zeros((3 + i, 5), np.float32), device=device) for i in range(4)]

    @pg.jit
    def step(x: Tensor) -> None:
        for i, state in enumerate(states):
            state.add_(x + (states[i - 1].sum() * 0 if i else 0))  # so that it takes several kernels

    one, started = Tensor([1.0], device=device), 0
    for _ in range(3):
        step(one)
    start = getattr(owner, launch)

    def interrupted(*arguments: Any) -> None:
        nonlocal started
        start(*arguments)
        started += 1
        if started == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(owner, launch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(one)
    assert started > 2
    for state in states:
        np.testing.assert_array_equal(state.numpy(), np.full(state.shape, 4, np.float32))
    step(one)
    assert (states[-1].numpy() == 5).all()


def check_report(device: str) -> None:
    """Checks that an index outside is an error, and the next run none."""
    x = Tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3), device=device)
    with pytest.raises(IndexingError, match=r"index 7 is out of bounds|7"):
        x[Tensor([1, 7, 2], device=device)].tolist()
    assert x[Tensor([1, 2], device=device)].tolist() == [[3, 4, 5], [6, 7, 8]]


@contextmanager
def tf32() -> Iterator[None]:
    """Products of float32 that are built in it may take TF32."""
    pg.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        pg.set_float32_matmul_precision("highest")


def check_tf32(device: str, rng: np.random.Generator) -> None:
    """Checks that a product and its gradients are those of operands rounded to TF32, and that a convolution is near."""
    a, b, weight = (rng.standard_normal(shape, np.float32) for shape in ((70, 90), (90, 50), (70, 50)))
    x, y = (Tensor(array, device=device).requires_grad_() for array in (a, b))
    with tf32():
        out = x @ y
        (out * Tensor(weight, device=device)).sum().backward()
    sides = [as_tf32(array).astype(np.float64) for array in (a, b, weight)]
    expected = [sides[0] @ sides[1], sides[2] @ sides[1].T, sides[0].T @ sides[2]]
    for got, one in zip((out.detach(), x.grad, y.grad), expected):
        # Some hundred sums of float32, which matrix instructions cut; operands cut to TF32 would be off by 3e-3.
        np.testing.assert_allclose(got.numpy(), one, rtol=0, atol=1e-4)
    image, kernel = (rng.standard_normal(shape, np.float32) for shape in ((2, 16, 9, 9), (24, 16, 3, 3)))
    with tf32():
        found, near = (F.conv2d(Tensor(image, device=on), Tensor(kernel, device=on), padding=1) for on in (device, "CPU"))
    assert 1e-4 < np.abs(found.numpy() - near.numpy()).max() < 0.03  # 144 products, each off by 2^-10 of itself at most


def check_attention(dtype: pg.DType, device: str, rng: np.random.Generator) -> None:
    """Checks attentions of few heads that share keys, and their gradients, against the CPU: also to many keys."""
    tolerance = {pg.float32: 1e-5, pg.float16: 3e-3, pg.bfloat16: 3e-2}[dtype]
    for is_causal, (B, H, G, T, S) in ((True, (2, 4, 2, 40, 50)), (False, (1, 2, 1, 9, 520))):
        shapes = [(B, H, T, 32), (B, G, S, 32), (B, G, S, 16), (B, H, T, 16)]
        arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
        attend = partial(F.scaled_dot_product_attention, is_causal=is_causal, enable_gqa=True)
        for got, expected in zip(*(with_gradients(attend, arrays, dtype, on) for on in (device, "CPU"))):
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def with_gradients(
    attend: Callable[..., Tensor], arrays: Sequence[np.ndarray], dtype: pg.DType, device: str
) -> list[np.ndarray]:
    """Returns an attention of q, k and v, and its gradients where that of the result is the last array."""
    q, k, v, weight = (Tensor(array, device=device).to(dtype).realize() for array in arrays)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out = attend(*inputs)
    return [x.detach().float().numpy() for x in (out, *pg.autograd.grad((out * weight).sum(), inputs))]


def check_decoding(dtype: pg.DType, device: str, rng: np.random.Generator) -> None:
    """Checks queries of four heads that share two of keys, beside caches of which more and more is seen, by one plan.

    With masks as well, one for all rows and one of their own.
    """
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((2, 4, 3, 32), (2, 2, 200, 32), (2, 2, 200, 16))]
    q, k, v = (Tensor(array, device=device).to(dtype).realize() for array in arrays)
    length = pg.Variable("length", 1, 200)
    attend = partial(F.scaled_dot_product_attention, enable_gqa=True)
    is_open = np.arange(200) >= np.array([0, 90]).reshape(2, 1, 1, 1)  # the second example is padded on the left
    bias = rng.standard_normal((4, 1, 200), np.float32)
    tolerance = {pg.float32: 1e-5, pg.float16: 1e-3, pg.bfloat16: 1e-2}[dtype]
    for mask, lengths in ((None, (1, 63, 64, 65, 200)), (is_open, (1, 100, 200)), (bias, (2, 5, 65))):
        seen_of = None if mask is None else Tensor(mask, device=device)
        step = pg.jit(
            lambda q, n, mask=seen_of: attend(q, k[:, :, :n], v[:, :, :n], None if mask is None else mask[..., :n])
        )
        for number, seen in enumerate(lengths):
            with watch() as counts:
                got = step(q, length.bind(seen)).float().numpy()
            assert number < 2 or counts.scheduled == counts.lowered == 0
            whole = [Tensor(x, device="CPU").to(dtype).float() for x in (arrays[0], *(y[:, :, :seen] for y in arrays[1:]))]
            expected = attend(*whole, None if mask is None else Tensor(mask[..., :seen], device="CPU")).numpy()
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())
