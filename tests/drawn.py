"""What is drawn at random, by every public function that draws: the same bits on every device.

Tests of devices ask for it: tests/tensor/test_drawn_alike.py, tests/engine/test_ptx_device.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import picograd as pg
from picograd import Generator, Tensor, nn
from picograd.nn import functional as F
from picograd.utils import data

N = 1003  # a row of vectors, and a rest
FLOATS = (pg.float32, pg.float64, pg.float16, pg.bfloat16)
Draw = Callable[[Generator], Any]


def filled(fill: Callable[[Tensor, Generator], Any], dtype: pg.DType, *shape: int) -> Draw:
    """Returns what fills a new tensor."""
    return lambda generator: fill(pg.zeros(shape or (N,), dtype=dtype), generator)


def chances(*shape: int) -> Tensor:
    """Returns numbers in [0, 1) that every device holds to the bit: sums of these in float32 depend on their order."""
    return pg.rand(shape or (N,), generator=Generator(5)) ** 3


# ---- of any float dtype ----
FILLS: dict[str, Callable[[Tensor, Generator], Any]] = {
    "uniform_": lambda x, g: x.uniform_(-3.0, 0.1, generator=g),
    "normal_": lambda x, g: x.normal_(3.0, 0.1, generator=g),
    "exponential_": lambda x, g: x.exponential_(0.7, generator=g),
    "geometric_": lambda x, g: x.geometric_(0.1, generator=g),
    "log_normal_": lambda x, g: x.log_normal_(0.3, 1.7, generator=g),
    "cauchy_": lambda x, g: x.cauchy_(0.3, 1.7, generator=g),
    "random_": lambda x, g: x.random_(generator=g),
    "bernoulli_": lambda x, g: x.bernoulli_(0.3, generator=g),
    "trunc_normal_": lambda x, g: nn.init.trunc_normal_(x, 0.1, 1.3, generator=g),
    "trunc_normal_ of a tail": lambda x, g: nn.init.trunc_normal_(x, 0.0, 1.0, 3.0, 5.0, generator=g),
    "rand": lambda x, g: pg.rand_like(x, generator=g),
    "randn": lambda x, g: pg.randn_like(x, generator=g),
    "normal": lambda x, g: pg.normal(x + 3.0, x + 0.3, generator=g),
    "multinomial": lambda x, g: chances().to(x.dtype).multinomial(50, True, generator=g),
    "multinomial without replacement": lambda x, g: chances().to(x.dtype).multinomial(50, generator=g),
    "gumbel_softmax": lambda x, g: F.gumbel_softmax(x[:1000].reshape(50, 20), 0.7, hard=True, generator=g),
    "dropout": lambda x, g: F.dropout(x + 3.0, 0.3, generator=g),
    "alpha_dropout": lambda x, g: F.alpha_dropout(x + 3.0, 0.3, True, generator=g),
    "rrelu": lambda x, g: F.rrelu(x - 3.0, training=True, generator=g),
}
# ---- of one dtype, or of integers ----
DRAWS: dict[str, Draw] = {
    **{f"{name} {dtype}": filled(fill, dtype) for name, fill in FILLS.items() for dtype in FLOATS},
    "random_ int64": filled(FILLS["random_"], pg.int64),
    "random_ uint8": filled(FILLS["random_"], pg.uint8),
    "geometric_ int64": filled(FILLS["geometric_"], pg.int64),
    "bernoulli_ of a tensor": lambda g: pg.zeros(N).bernoulli_(chances(), generator=g),
    "bernoulli": lambda g: chances().bernoulli(generator=g),
    "randint": lambda g: pg.randint(-5, 1000, (N,), generator=g),
    "randint of many": lambda g: pg.randint(-5, 3 * 2**60, (N,), generator=g),
    "randint_like": lambda g: pg.randint_like(pg.zeros(N), 9, generator=g),
    "randperm": lambda g: pg.randperm(N, generator=g),
    "multinomial of rows": lambda g: chances(17, 300).multinomial(1, generator=g),
    "multinomial of many classes": lambda g: chances(70_000).multinomial(9, True, generator=g),
    "poisson": lambda g: pg.poisson(chances() * 9, generator=g),
    "binomial": lambda g: pg.binomial(pg.full((N,), 20.0), chances(), generator=g),
    "feature_alpha_dropout": lambda g: F.feature_alpha_dropout(pg.ones(30, 7, 5), 0.3, True, generator=g),
    "dropout1d": lambda g: F.dropout1d(pg.ones(30, 7, 5), generator=g),
    "dropout2d": lambda g: F.dropout2d(pg.ones(30, 7, 5, 3), generator=g),
    "dropout3d": lambda g: F.dropout3d(pg.ones(5, 7, 5, 3, 2), generator=g),
    "xavier_uniform_": filled(lambda x, g: nn.init.xavier_uniform_(x, generator=g), pg.float32, 30, 40),
    "xavier_normal_": filled(lambda x, g: nn.init.xavier_normal_(x, generator=g), pg.float32, 30, 40),
    "kaiming_uniform_": filled(lambda x, g: nn.init.kaiming_uniform_(x, generator=g), pg.float32, 30, 40),
    "kaiming_normal_": filled(lambda x, g: nn.init.kaiming_normal_(x, generator=g), pg.float32, 30, 40),
    "sparse_": filled(lambda x, g: nn.init.sparse_(x, 0.3, generator=g), pg.float32, 30, 40),
    "orthogonal_": filled(lambda x, g: nn.init.orthogonal_(x, 2.0, generator=g), pg.float32, 30, 40),
    "random_split": lambda g: [list(part.indices) for part in data.random_split(range(N), [0.7, 0.3], g)],
    "RandomSampler": lambda g: list(data.RandomSampler(range(N), generator=g)),
    "RandomSampler with replacement": lambda g: list(data.RandomSampler(range(N), True, N, g)),
    "SubsetRandomSampler": lambda g: list(data.SubsetRandomSampler(range(50, N), g)),
    "WeightedRandomSampler": lambda g: list(data.WeightedRandomSampler(chances().tolist(), N, generator=g)),
    "DataLoader": lambda g: [batch.tolist() for batch in data.DataLoader(list(range(100)), 7, True, generator=g)],
    # From the default generator.
    "fractional_max_pool2d": lambda g: F.fractional_max_pool2d(chances(2, 3, 17, 19), 2, output_ratio=0.6),
    "fractional_max_pool3d": lambda g: F.fractional_max_pool3d(chances(2, 3, 9, 8, 7), 2, output_ratio=0.6),
    "parameters of layers": lambda g: [list(layer().parameters()) for layer in LAYERS],
}
# Rows whose arithmetic is in no other row: for devices whose compilers are slow.
OWN = (
    "uniform_ float16", "normal_ float32", "normal_ float64", "normal_ bfloat16", "exponential_ float64",
    "geometric_ int64", "log_normal_ float32", "log_normal_ float64", "cauchy_ float32", "cauchy_ float64",
    "trunc_normal_ float32", "trunc_normal_ float64", "random_ uint8", "randint of many", "randperm",
    "multinomial of rows", "multinomial without replacement float32", "gumbel_softmax float32", "alpha_dropout float32",
    "rrelu bfloat16", "poisson",
)  # fmt: skip
LAYERS: Sequence[Callable[[], nn.Module]] = (
    partial(nn.Linear, 5, 7), partial(nn.Bilinear, 5, 7, 3), partial(nn.Conv2d, 4, 6, 3), partial(nn.Embedding, 20, 7),
    partial(nn.ConvTranspose2d, 4, 6, 3), partial(nn.LSTM, 5, 7), partial(nn.MultiheadAttention, 8, 2),
)  # fmt: skip


def arrays_of(drawn: Any) -> list[np.ndarray]:
    """Returns tensors and lists of numbers, nested in any way, as arrays."""
    if isinstance(drawn, Tensor):
        return [drawn.detach().numpy()]
    if isinstance(drawn, list) and not all(isinstance(one, int) for one in drawn):
        return [array for one in drawn for array in arrays_of(one)]
    return [np.array(drawn)]


def drawn_on(device: str, draw: Draw) -> list[np.ndarray]:
    """Returns what is drawn from one seed on a device."""
    pg.manual_seed(11)
    with pg.device(device):
        return arrays_of(draw(Generator(11)))


def check_draw(name: str, device: str) -> None:
    """What is drawn has the evaluator's bits."""
    for got, expected in zip(drawn_on(device, DRAWS[name]), drawn_on("NUMPY", DRAWS[name]), strict=True):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        places = np.nonzero(got.reshape(-1) != expected.reshape(-1))[0]
        assert got.tobytes() == expected.tobytes(), f"{name}: {len(places)} of {got.size} differ, the first at {places[:3]}"
