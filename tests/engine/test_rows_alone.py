"""A row has the same bits alone as in a batch: f(x[k : k + 1]) is f(x)[k : k + 1] where rows are independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine import realize
from picograd.engine.devices import compiler_for
from picograd.engine.known import Scalars
from picograd.interrupts import Latest
from picograd.nn import functional as F
from picograd.record import replace

Function = Callable[..., Any]
Shapes = Sequence[tuple[int, ...]]  # of one row of each argument
Case = tuple[str, Function, Shapes, Sequence[int]]

FEW, MANY, LONG = (2, 3), (3, 33), (2, 9)
rng = np.random.default_rng(0)


def draw(*shape: int) -> Tensor:
    return Tensor(rng.standard_normal(shape, dtype=np.float32))


def all_of(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def results(function: Function, arrays: Sequence[np.ndarray], rows: slice) -> list[np.ndarray]:
    found = all_of(function(*(Tensor(np.ascontiguousarray(array[rows])) for array in arrays)))
    pg.realize(found)
    return [one.numpy() for one in found]


def check(function: Function, arrays: Sequence[np.ndarray], counts: Sequence[int]) -> None:
    """Compares the first, the last and a middle row of so many with the same rows alone."""
    for count in counts:
        together = results(function, arrays, slice(0, count))
        for k in sorted({0, count // 2, count - 1}):
            alone = results(function, arrays, slice(k, k + 1))
            for number, (one, all_rows) in enumerate(zip(alone, together, strict=True)):
                row = all_rows[k : k + 1]
                if one.tobytes() != row.tobytes():
                    again = results(function, arrays, slice(k, k + 1))[number].tobytes() == one.tobytes()
                    rows_again = results(function, arrays, slice(0, count))[number][k : k + 1].tobytes() == row.tobytes()
                    raise AssertionError(
                        f"result {number}, row {k} of {count}: {(one != row).sum()} of {one.size} elements differ, by "
                        f"{np.abs(one - row).max()} at most; computed again, {again=}, {rows_again=} have the same bits"
                    )


def gradients(function: Function, *inputs: Tensor, wanted: int = -1) -> tuple[Any, ...]:
    """The gradients of the first `wanted` inputs, by default of all, where a row's depends on its own result."""
    out, pull = pg.vjp(function, *inputs)
    return tuple(pull(out * out + 1.0))[: len(inputs) if wanted < 0 else wanted]


def with_gradients(name: str, function: Function, shapes: Shapes, counts: Sequence[int]) -> list[Case]:
    return [(name, function, shapes, counts), (f"gradient of {name}", partial(gradients, function), shapes, counts)]


# ---- rows ----
def of_rows(width: int, counts: Sequence[int]) -> list[Case]:
    weight, bias, row = draw(width), draw(width), [(width,)]

    def layer_norm_and_gradients(x: Tensor) -> Tensor:
        """Of x, while those of weight and bias are added up beside it."""
        out, pull = pg.vjp(lambda x, w, b: F.layer_norm(x, (width,), w, b), x, weight, bias)
        found: tuple[Tensor, ...] = tuple(pull(out * out))
        pg.realize(found)
        return found[0]

    def reductions(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(-1), x.mean(-1), x.var(-1), x.amax(-1), x.argmax(-1), x.logsumexp(-1), (x * weight).sum(-1)

    def in_other_orders(x: Tensor) -> tuple[Tensor, ...]:
        return x[:, ::2].sum(1), (x.flip(1) * weight).sum(1), x[:, ::2].softmax(1), x[:, pg.arange(width // 3) * 3].sum(1)

    return [
        (f"reductions of {width}", reductions, row, counts),
        (f"in other orders, of {width}", in_other_orders, row, counts),
        *with_gradients(f"softmax of {width}", lambda x: x.softmax(-1), row, counts),
        *with_gradients(f"log_softmax of {width}", lambda x: F.log_softmax(x, -1), row, counts),
        *with_gradients(f"layer_norm of {width}", lambda x: F.layer_norm(x, (width,), weight, bias), row, counts),
        *with_gradients(f"rms_norm of {width}", lambda x: F.rms_norm(x, (width,), weight), row, counts),
        (f"all gradients of a layer_norm of {width}", layer_norm_and_gradients, row, counts),
        (f"cumsum, sort of {width}", lambda x: (x.cumsum(-1), x.sort(-1)[0], x.argsort(-1)), row, counts),
        (f"elementwise {width}", lambda x: (F.gelu(x), pg.tanh(x) / weight), row, counts),
    ]


def masked_means(x: Tensor, mask: Tensor) -> Tensor:
    """Sums along axis 1 of what is read by rows, by columns and by both."""
    return (x * mask.unsqueeze(2) * steps.unsqueeze(1)).sum(1) / mask.sum(1, keepdim=True)


def twice_softmax(x: Tensor) -> Tensor:
    return (x.flatten(1) * factors).softmax(1).softmax(1)


def centred_half(x: Tensor) -> Tensor:
    """Its gradient is 0 at every second place, so that what a row has is read where a condition of places holds."""
    y = x.flip(1).cumsum(1)
    y = (y * (y.square().mean(1, keepdim=True) + 1e-3).rsqrt()).flatten(1)
    return (y - y.mean(1, keepdim=True))[:, 1::2]


factors = draw(85)
steps, table, long_weight = draw(21), draw(50, 37), draw(200_000)
wide, last = draw(130, 37), draw(10, 300)
ROWS: list[Case] = [
    *of_rows(7, FEW), *of_rows(40, MANY), *of_rows(1100, MANY),
    ("a sum by a vector of the rows", lambda x, a: (a.unsqueeze(1) * steps[::2] + x).sum(1), [(11,), ()], MANY),
    ("masked means", masked_means, [(21, 16), (21,)], FEW),
    ("sums of several axes", lambda x: (x.sum((1, 2)), x.sum(1), x.var((1, 3)), x.softmax(1)), [(12, 5, 33)], MANY),
    ("one row of one", lambda x: (x.sum(1), x.softmax(1), x.sum((1, 2))), [(9, 1)], MANY),
    *with_gradients("group_norm", lambda x: F.group_norm(x, 4), [(8, 5, 9)], MANY),
    ("cross_entropy", lambda x, t: F.cross_entropy(x, t.abs().floor().cast(pg.int64), reduction="none"), [(40,), ()], MANY),
    ("embedding", lambda x: F.embedding((x.abs() * 9.0).cast(pg.int64), table), [(5,)], MANY),
    ("gradient of two softmaxes", partial(gradients, twice_softmax), [(17, 5)], (3, 5, 33)),
    ("gradient of what every second is read of", partial(gradients, centred_half), [(130, 1)], MANY),
    ("linear", lambda x: F.gelu(x @ table), [(4, 50)], MANY),
    *with_gradients("two layers", lambda x: F.linear(F.gelu(x @ table), wide), [(50,)], MANY),
    ("a classifier", lambda x: F.linear(x, last).softmax(-1), [(300,)], MANY),
    # so long that they are added up in pieces
    ("long sums", lambda x: (x.sum(-1), x.mean(-1), x.var(-1), x.amax(-1), x.argmax(-1)), [(200_000,)], LONG),
    ("long softmax", lambda x: x.softmax(-1), [(200_000,)], LONG),
    ("gradient of a long softmax", partial(gradients, lambda x: x.softmax(-1)), [(131_072,)], LONG),
    *with_gradients("long layer_norm", lambda x: F.layer_norm(x, (200_000,), long_weight), [(200_000,)], LONG),
    ("long columns", lambda x: x.sum(1), [(150_000, 2)], LONG),
    ("long images", lambda x: x.sum((1, 2)), [(512, 512)], LONG),
]  # fmt: skip


# ---- images ----
def of_convolution(image: tuple[int, ...], outputs: int, taps: int, counts: Sequence[int], **options: Any) -> list[Case]:
    weight = draw(outputs, image[0] // options.get("groups", 1), *[taps] * (len(image) - 1))
    name = f"convolution of {image} by {tuple(weight.shape)} {options}"
    convolve = {2: F.conv1d, 3: F.conv2d}[len(image)]
    return with_gradients(name, lambda x: convolve(x, weight, **options), [image], counts)


IMAGES: list[Case] = [
    *of_convolution((3, 20, 20), 16, 3, MANY),
    *of_convolution((3, 32, 32), 64, 7, FEW, stride=2, padding=3),
    *of_convolution((256, 7, 7), 256, 3, FEW, padding=1),
    *of_convolution((512, 2, 2), 512, 3, (33,), padding=1),
    *of_convolution((1024, 4, 4), 24, 1, FEW),
    *of_convolution((512, 4, 4), 256, 3, (9,), padding=1, stride=2),
    *of_convolution((2, 64, 64), 16, 33, FEW, stride=31),  # several images together would not fit a stack
    *of_convolution((1, 40, 40), 16, 33, FEW),
    *of_convolution((8, 12, 12), 8, 3, MANY, groups=8),
    *of_convolution((300, 5, 5), 10, 5, MANY),
    *of_convolution((512, 16), 64, 3, FEW),
    *of_convolution((120, 1, 1), 80, 3, FEW, padding=1),  # few places are products
    *of_convolution((96, 3), 64, 3, FEW, padding=1, groups=2),
    *of_convolution((70, 2), 33, 1, FEW),
    *with_gradients("max_pool2d", lambda x: F.max_pool2d(x, 2), [(3, 16, 16)], MANY),
    *with_gradients("avg_pool2d", lambda x: F.avg_pool2d(x, 3), [(3, 16, 16)], MANY),
    *with_gradients("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), [(3, 16, 16)], MANY),
    *with_gradients("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 7), [(3, 100)], MANY),
    *with_gradients("adaptive_avg_pool1d, one channel", lambda x: F.adaptive_avg_pool1d(x, 7), [(1, 100)], MANY),
]


# ---- attention ----
def of_attention(queries: tuple[int, ...], keys: tuple[int, ...], counts: Sequence[int], **options: Any) -> list[Case]:
    attend = partial(F.scaled_dot_product_attention, **options)
    return with_gradients(f"attention of {queries} to {keys}", attend, [queries, keys, keys], counts)


ATTENTIONS: list[Case] = [
    *of_attention((1, 200, 16), (1, 300, 16), (2, 4, 9)),
    *of_attention((2, 150, 8), (2, 150, 8), (2, 9), is_causal=True),
    *of_attention((4, 70, 8), (2, 260, 8), FEW, enable_gqa=True),
    *of_attention((4, 40, 16), (4, 270, 16), FEW),
    *of_attention((130, 16), (600, 16), (3, 9)),
    *of_attention((2, 30, 8), (2, 33, 8), FEW, attn_mask=draw(30, 33)),
]


@pytest.fixture(autouse=True)
def no_lengths_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that had other lengths before is symbolic, and a long one is then added up in another order."""
    monkeypatch.setattr(realize, "_scalars", Scalars())


@pytest.mark.variants(every=31)
@pytest.mark.parametrize("case", [*ROWS, *IMAGES, *ATTENTIONS], ids=lambda case: case[0])
def test_a_row_alone_has_the_bits_it_has_among_others(case: Case) -> None:
    _, function, shapes, counts = case
    draws = np.random.default_rng(1)
    check(function, [draws.standard_normal((max(counts), *shape), dtype=np.float32) for shape in shapes], counts)


def test_a_row_that_is_read_as_a_view_has_them_too() -> None:
    """It begins elsewhere: at a number in the first plan, at an input of the plan from the second on."""
    named = ("masked means", "group_norm", "softmax of 40")
    cases = [(function, shapes) for name, function, shapes, _ in ROWS if name in named]
    cases += [(function, [shape]) for function, shape in map(random_function, (13, 25, 26, 29))]
    for function, shapes in cases:
        draws = np.random.default_rng(1)
        inputs = [Tensor(draws.standard_normal((5, *shape), dtype=np.float32)).realize() for shape in shapes]
        (whole,) = all_of(function(*inputs))
        for k in (1, 3, 4):
            (alone,) = all_of(function(*[x[k : k + 1] for x in inputs]))
            assert alone.numpy().tobytes() == whole.numpy()[k : k + 1].tobytes(), (function, k)


# ---- weights of integers, where sums are plain ----
def times_integers(kind: str) -> Function:
    """x (M, 96) times a weight of 40 rows: int8 with a scale for each, or two in a byte with one for each 16."""
    bytes_, scales, book = Tensor(rng.integers(0, 256, (40, 48), dtype=np.uint8)), draw(40, 6, 1), draw(16)
    signed = Tensor(rng.integers(-128, 128, (40, 96), dtype=np.int8))
    low, high = bytes_ & 15, bytes_ >> 4
    whole = {
        "int8": lambda: signed.float() * scales[:, 0],
        "side by side": lambda: pg.stack([low, high], -1).float().reshape(40, 6, 16) * scales,
        "half a row apart": lambda: pg.cat([low, high], -1).float(),
        "from a code book": lambda: book[pg.stack([low, high], -1).long()],
    }[kind]
    return lambda x: x @ whole().reshape(40, 96).T


@pytest.mark.parametrize("kind", ["int8", "side by side", "half a row apart", "from a code book"])
def test_a_row_times_integers_where_sums_are_plain(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PICOGRAD_PLAIN_SUMS=1; else one row is added up along the weight's rows, several are not."""
    compiler = compiler_for("CPU")
    monkeypatch.setattr(compiler.device, "target", replace(compiler.device.target, plain_sums=True))
    monkeypatch.setattr(compiler, "_made", {})
    monkeypatch.setattr(realize, "_plans", Latest(1024))
    check(times_integers(kind), [np.random.default_rng(1).standard_normal((33, 96), dtype=np.float32)], (2, 9, 33))


# ---- random ones ----
STEPS: dict[str, Callable[[Tensor, np.random.Generator], Tensor]] = {
    "sum": lambda x, g: x.sum(_axis(x, g)),
    "mean": lambda x, g: x.mean(_axis(x, g), keepdim=True),
    "centred": lambda x, g: x - x.mean(_axis(x, g), keepdim=True),
    "softmax": lambda x, g: x.softmax(_axis(x, g)),
    "cumsum": lambda x, g: x.cumsum(_axis(x, g)),
    "norm": lambda x, g: x * (x.square().mean(_axis(x, g), keepdim=True) + 1e-3).rsqrt(),
    "flip": lambda x, g: x.flip(_axis(x, g)),
    "every second": lambda x, g: _every_second(x, _axis(x, g)),
    "swap": lambda x, g: x.transpose(_axis(x, g), _axis(x, g)),
    "flatten": lambda x, g: x.flatten(1),
    "by a vector": lambda x, g: x * Tensor(g.standard_normal(x.shape[-1], dtype=np.float32)),
    "exp": lambda x, g: (x * 0.1).exp(),
    "conv": lambda x, g: _convolved(x, g),
    "pool": lambda x, g: F.avg_pool2d(x, 2, stride=1) if x.ndim == 4 and min(x.shape[2:]) > 1 else x,
}


def _axis(x: Tensor, g: np.random.Generator) -> int:
    return int(g.integers(1, x.ndim))


def _every_second(x: Tensor, axis: int) -> Tensor:
    return x[(slice(None),) * axis + (slice(x.shape[axis] > 1, None, 2),)]


def _convolved(x: Tensor, g: np.random.Generator) -> Tensor:
    if x.ndim not in (3, 4):
        return x
    taps = [int(g.integers(1, length + 1)) for length in x.shape[2:]]
    weight = Tensor(g.standard_normal((int(g.integers(1, 40)), x.shape[1], *taps), dtype=np.float32))
    return F.conv1d(x, weight) if x.ndim == 3 else F.conv2d(x, weight)


def random_function(seed: int) -> tuple[Function, tuple[int, ...]]:
    """A few steps drawn from a seed, which keep axis 0 and one more, and the shape of a row."""
    g = np.random.default_rng(seed)
    shape = tuple(int(n) for n in g.choice([1, 2, 3, 5, 8, 12, 17, 33], int(g.integers(1, 4))))
    names = list(g.choice(list(STEPS), 4))

    def function(x: Tensor) -> Tensor:
        draws = np.random.default_rng(seed)
        for name in names:
            x = STEPS[name](x, draws) if x.ndim > 1 else x
        return x

    return partial(gradients, function) if seed % 2 else function, shape


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("seed", range(24))
def test_random_functions_of_rows(seed: int) -> None:
    function, shape = random_function(seed)
    count = (2, 5, 17)[seed % 3]
    check(function, [np.random.default_rng(seed).standard_normal((count, *shape), dtype=np.float32)], [count])
