"""The table of workloads: shapes, start weights, data and learning rates, all from one NumPy seed.

In:    a name, e.g. "mnist_b32"
Out:   a `Training` or a `Forward` record; its arrays, the same for every framework
Called by: bench/worker.py, bench/reference.py, bench/report.py
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

Array = np.ndarray

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


Workload = Training | Forward


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
    *_matmuls(),
    Forward("gelu_16m", "elementwise", "gelu_scaled", LONG_SHAPE),
    Forward("softmax_16m", "softmax", "softmax", LONG_SHAPE),
    Forward("layer_norm_16m", "layer_norm", "layer_norm", LONG_SHAPE),
]
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _TABLE}
QUICK = ("mlp_2_16", "mnist_b32", "names", "matmul_256_NN", "matmul_512_TT", "gelu_16m", "softmax_16m")


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


def _rng(workload: Workload, part: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(workload.name.encode()), part])


def start_weights(workload: Training) -> list[tuple[Array, Array]]:
    """Returns per layer (weight (out, in), bias (out,)), uniform in +-1/sqrt(in), float32."""
    rng = _rng(workload, 0)
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
    return _rng(workload, 1).standard_normal((rows, width), dtype=np.float32)


def batches(workload: Training) -> tuple[Array, Array]:
    """Returns all batches stacked: xs (S, B, features) and ys, S = num_batches.

    xs:  float32 standard normal; int32 (S, B, context) row numbers when there is an embedding
    ys:  float32 (S, B, 1) of +-1 for mse; int32 (S, B) class numbers for cross_entropy
    """
    rng = _rng(workload, 2)
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
    rng = _rng(workload, 100 + which)
    rows, width = workload.shape
    first = rng.standard_normal((rows, width), dtype=np.float32)
    if workload.op == "matmul":
        return first, rng.standard_normal((rows, width), dtype=np.float32)
    count = {"gelu_scaled": 3, "softmax": 0, "layer_norm": 2}[workload.op]
    return first, *(rng.standard_normal(width, dtype=np.float32) for _ in range(count))


def make_data(workload: Workload) -> list[tuple[Array, ...]]:
    """Returns the stacked batches as one pair, or all operand sets."""
    if isinstance(workload, Training):
        return [batches(workload)]
    return [operands(workload, which) for which in range(workload.num_operands)]
