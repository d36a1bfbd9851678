"""The table of workloads: shapes, start weights, data and learning rates, all from one NumPy seed.

In:    a name, e.g. "mnist_b32"
Out:   its record: `Training` or `Forward`, or one of bench/language.py and bench/singles.py; its arrays, the same for
       every framework
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.language import Array, Language, Recurrent, Transformer, language_batches, rng_of
from bench.singles import Generation, Overhead, overhead_operands, prompts

LAYER_NORM_EPS = 1e-5
LAYOUTS = ("NN", "NT", "TN", "TT")
MATMUL_EXTENTS = (256, 509, 512, 1000, 1023, 1024, 2048)
LONG_SHAPE = (16384, 1024)  # 16,777,216 floats, 64 MiB


@dataclass(frozen=True)
class Training:
    """A network trained by plain SGD: each step takes the next of `num_batches` batches, round and round.

    sizes:        features at the input, after each hidden layer, and at the output
    activation:   "relu" or "tanh", after every layer but the last
    loss:         "mse": mean((out - y)^2)     "cross_entropy": mean over the batch, y are class numbers
    embedding:    (rows, width, context) of a table looked up first, or None
    """

    name: str
    group: str
    sizes: tuple[int, ...]
    activation: str
    loss: str
    batch: int
    learning_rate: float
    num_batches: int = 32
    embedding: tuple[int, int, int] | None = None

    @property
    def flops(self) -> float:
        """Multiply-adds of the layers, forward and backward, as two flops each; per step."""
        return sum(6.0 * self.batch * fan_in * fan_out for fan_in, fan_out in zip(self.sizes, self.sizes[1:]))


@dataclass(frozen=True)
class Forward:
    """One expression, computed from new operands at each call.

    op:           "matmul", "gelu_scaled", "softmax" or "layer_norm"
    shape:        of the first operand as it is multiplied, (M, K) for matmul; square matmuls only
    layout:       matmul only; "T" at a place means that operand is stored transposed
    num_operands: how many sets of operands the calls of one sample take in turn
    """

    name: str
    group: str
    op: str
    shape: tuple[int, int]
    layout: str = ""
    num_operands: int = 2

    @property
    def flops(self) -> float:
        """Flops of one matmul; 0 for the rest, which are limited by memory."""
        return 2.0 * self.shape[0] ** 3 if self.op == "matmul" else 0.0

    @property
    def nbytes_moved(self) -> float:
        """Bytes that must cross the memory bus: each long operand read once, the result written once."""
        return 8.0 * self.shape[0] * self.shape[1] if self.op != "matmul" else 0.0


Workload = Training | Forward | Language | Overhead | Generation

GPT2 = Transformer(num_layers=12, num_heads=12, width=768, length=1024, vocabulary=50257)
DEPTHS = (1, 12, 48, 96)
HEADLINE_SIZES = ((3, 4, 1), *((width, width, width, 1) for width in (10, 30, 100, 300, 1000, 2235)))


def _headline() -> list[Training]:
    """Perceptrons of 21 to 10 million parameters; one has 300 inputs, 300 and 300 hidden neurons, and one output."""
    named = [(sum((fan_in + 1) * fan_out for fan_in, fan_out in zip(sizes, sizes[1:])), sizes) for sizes in HEADLINE_SIZES]
    return [Training(f"headline_{count}", "headline", sizes, "tanh", "mse", 100, 0.02, 8) for count, sizes in named]


def _matmuls() -> list[Forward]:
    return [
        Forward(f"matmul_{n}_{layout}", "matmul", "matmul", (n, n), layout, 2 if n >= 1000 else 4)
        for n in MATMUL_EXTENTS
        for layout in LAYOUTS
    ]


_TABLE: list[Workload] = [
    #        name         group   sizes                activation  loss            batch  rate
    Training("mlp_2_16", "mlp", (2, 16, 16, 1), "relu", "mse", 32, 0.05),
    Training("mlp_300", "mlp", (300, 300, 300, 1), "tanh", "mse", 100, 0.02),
    Training("mnist_b32", "mnist", (784, 256, 10), "relu", "cross_entropy", 32, 0.05),
    Training("mnist_b512", "mnist", (784, 256, 10), "relu", "cross_entropy", 512, 0.05, num_batches=16),
    Training("names", "names", (30, 200, 27), "tanh", "cross_entropy", 32, 0.1, embedding=(27, 10, 3)),
    *_headline(),
    *_matmuls(),
    Forward("gelu_16m", "elementwise", "gelu_scaled", LONG_SHAPE),
    Forward("softmax_16m", "softmax", "softmax", LONG_SHAPE),
    Forward("layer_norm_16m", "layer_norm", "layer_norm", LONG_SHAPE),
    #        name       group       network                         batch
    Language("nanogpt", "language", Transformer(4, 4, 128, 64, 65), 12),
    Language("nanogpt_384", "language", Transformer(6, 6, 384, 256, 65), 4),
    Language("lstm", "language", Recurrent(128, 64, 65), 32),
    Generation("prefill_256", "prefill", GPT2, prompt=256, count=0),
    Generation("decode_32", "decode", GPT2, prompt=256, count=32),
    *(Overhead(f"chain_{n}", "chain", num_kernels=n, num_arguments=8) for n in (1, 10, 100, 1000)),
    *(Overhead(f"sum_{n}", "sum", num_kernels=1, num_arguments=n) for n in (10, 100)),
    # Only compiled and run a few times in fresh processes (bench/startup.py).
    *(Language(f"gpt_{n}", "depth", Transformer(n, 4, 128, 64, 65), 12) for n in DEPTHS),
]
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _TABLE}
QUICK = (
    "mlp_2_16", "mnist_b32", "names", "matmul_256_NN", "matmul_512_TT", "gelu_16m", "softmax_16m", "lstm", "chain_10",
    "gpt_1",
)  # fmt: skip


def select(only: list[str]) -> list[Workload]:
    """Returns the workloads whose name or group is listed, or starts with a listed word; all for an empty list.

    Raises:
      ValueError: a word that selects nothing.
    """
    for word in only:
        if not any(_is_selected(workload, word) for workload in _TABLE):
            groups = sorted({workload.group for workload in _TABLE})
            raise ValueError(f"--only: {word!r} is no workload or group; groups: {', '.join(groups)}.")
    return [w for w in _TABLE if not only or any(_is_selected(w, word) for word in only)]


def _is_selected(workload: Workload, word: str) -> bool:
    return word == workload.group or workload.name == word or workload.name.startswith(word + "_")


# ---- arrays ----


def start_weights(workload: Training) -> list[tuple[Array, Array]]:
    """Returns per layer (weight (out, in), bias (out,)), uniform in +-1/sqrt(in), float32."""
    rng = rng_of(workload.name, 0)
    layers = []
    for fan_in, fan_out in zip(workload.sizes, workload.sizes[1:]):
        bound = fan_in**-0.5
        weight = rng.uniform(-bound, bound, (fan_out, fan_in)).astype(np.float32)
        layers.append((weight, rng.uniform(-bound, bound, fan_out).astype(np.float32)))
    return layers


def start_embedding(workload: Training) -> Array | None:
    """Returns the embedding table (rows, width), standard normal float32, or None."""
    if workload.embedding is None:
        return None
    rows, width, _ = workload.embedding
    return rng_of(workload.name, 1).standard_normal((rows, width), dtype=np.float32)


def batches(workload: Training) -> tuple[Array, Array]:
    """Returns all batches stacked: xs (S, B, features) and ys, S = num_batches.

    xs:  float32 standard normal; int32 (S, B, context) row numbers when there is an embedding
    ys:  float32 (S, B, 1) of +-1 for mse; int32 (S, B) class numbers for cross_entropy
    """
    rng = rng_of(workload.name, 2)
    lead = (workload.num_batches, workload.batch)
    xs: Array
    if workload.embedding is not None:
        rows, _, context = workload.embedding
        xs = rng.integers(0, rows, (*lead, context)).astype(np.int32)
    else:
        xs = rng.standard_normal((*lead, workload.sizes[0]), dtype=np.float32)
    if workload.loss == "mse":
        return xs, np.sign(rng.standard_normal((*lead, 1))).astype(np.float32)
    return xs, rng.integers(0, workload.sizes[-1], lead).astype(np.int32)


def operands(workload: Forward, which: int) -> tuple[Array, ...]:
    """Returns operand set `which`, as stored, float32.

    matmul:       (lhs, rhs); a transposed operand is stored as (K, M) or (N, K)
    gelu_scaled:  (x, a, b, c): x (R, C), the others (C,)
    softmax:      (x,)
    layer_norm:   (x, weight, bias): weight and bias (C,)
    """
    rng = rng_of(workload.name, 100 + which)
    rows, width = workload.shape
    first = rng.standard_normal((rows, width), dtype=np.float32)
    if workload.op == "matmul":
        return first, rng.standard_normal((rows, width), dtype=np.float32)
    count = {"gelu_scaled": 3, "softmax": 0, "layer_norm": 2}[workload.op]
    return first, *(rng.standard_normal(width, dtype=np.float32) for _ in range(count))


def make_data(workload: Workload) -> list[tuple[Array, ...]]:
    """Returns the stacked batches as one pair, or all operand sets; those of an `Overhead` as one: all x, then the w."""
    if isinstance(workload, Training):
        return [batches(workload)]
    if isinstance(workload, Language):
        return [language_batches(workload)]
    if isinstance(workload, Overhead):
        xs, ws = overhead_operands(workload)
        return [(xs, *ws)]
    if isinstance(workload, Generation):
        return [(prompt,) for prompt in prompts(workload)] if workload.op == "prefill" else [()]
    return [operands(workload, which) for which in range(workload.num_operands)]
