"""Character models trained by Adam: a GPT of nanoGPT's form and an LSTM; shapes, start weights, data.

In:    a `Language` record of the table in bench/workloads.py
Out:   its arrays, the same for every framework

    T length, C width, V vocabulary, B batch, S number of batches
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Weights = dict[str, Any]

INIT_STD = 0.02  # nanoGPT's


@dataclass(frozen=True)
class Transformer:
    """nanoGPT's network: pre-norm, no biases, exact GELU, learned positions, the head is the token table."""

    num_layers: int
    num_heads: int
    width: int
    length: int
    vocabulary: int

    @property
    def num_weights(self) -> int:
        """Weights of the products, head included."""
        return 12 * self.num_layers * self.width**2 + self.vocabulary * self.width


@dataclass(frozen=True)
class Recurrent:
    """Embedding, one LSTM layer (PyTorch's weights and order of gates: i f g o), linear head with bias."""

    width: int
    length: int
    vocabulary: int

    @property
    def num_weights(self) -> int:
        """Weights of the products, head included."""
        return 8 * self.width**2 + self.vocabulary * self.width


@dataclass(frozen=True)
class Language:
    """A network trained to predict the next token: cross-entropy over all positions, mean; AdamW.

    weight_decay:  of matrices and tables; vectors have none
    num_batches:   a step takes the next of them, round and round
    """

    name: str
    group: str
    network: Transformer | Recurrent
    batch: int
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    eps: float = 1e-8
    num_batches: int = 10

    @property
    def num_tokens(self) -> int:
        return self.batch * self.network.length

    @property
    def flops(self) -> float:
        """Multiply-adds as two flops each, forward and backward; attention's products counted in full. Per step."""
        found = 6.0 * self.num_tokens * self.network.num_weights
        if isinstance(self.network, Transformer):
            found += 12.0 * self.num_tokens * self.network.num_layers * self.network.width * self.network.length
        return found


def rng_of(name: str, part: int) -> np.random.Generator:
    """Returns the generator of one part of a workload's arrays."""
    return np.random.default_rng([zlib.crc32(name.encode()), part])


def network_weights(network: Transformer | Recurrent, name: str) -> Weights:
    """Returns the start weights as nested dictionaries and lists of float32 arrays, in the order they are made."""
    rng = rng_of(name, 0)
    return _transformer(network, rng) if isinstance(network, Transformer) else _recurrent(network, rng)


def _transformer(network: Transformer, rng: np.random.Generator) -> Weights:
    """Normal, standard deviation 0.02, the projections back into the stream less by sqrt(2 * layers); norms 1."""
    width = network.width

    def normal(*shape: int, std: float = INIT_STD) -> Array:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(std)

    back = INIT_STD * (2 * network.num_layers) ** -0.5
    layers = [
        {
            "norm1": np.ones(width, np.float32),
            "qkv": normal(3 * width, width),
            "proj": normal(width, width, std=back),
            "norm2": np.ones(width, np.float32),
            "up": normal(4 * width, width),
            "down": normal(width, 4 * width, std=back),
        }
        for _ in range(network.num_layers)
    ]
    token, position = normal(network.vocabulary, width), normal(network.length, width)
    return {"token": token, "position": position, "layers": layers, "norm": np.ones(width, np.float32)}


def _recurrent(network: Recurrent, rng: np.random.Generator) -> Weights:
    """The table standard normal, the rest uniform in +-1/sqrt(width), as PyTorch starts them."""
    width, bound = network.width, network.width**-0.5

    def uniform(*shape: int) -> Array:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return {
        "token": rng.standard_normal((network.vocabulary, width), dtype=np.float32),
        "input": uniform(4 * width, width),
        "hidden": uniform(4 * width, width),
        "input_bias": uniform(4 * width),
        "hidden_bias": uniform(4 * width),
        "head": uniform(network.vocabulary, width),
        "head_bias": uniform(network.vocabulary),
    }


def is_decayed(array: Any) -> bool:
    """True for what weight decay is applied to."""
    return len(array.shape) >= 2


def flat(weights: Any) -> list[Any]:
    """Returns the leaves of nested dictionaries and lists, in order.

    >>> flat({"a": 1, "b": [{"c": 2}, {"c": 3}]})
    [1, 2, 3]
    """
    if isinstance(weights, dict):
        weights = list(weights.values())
    if not isinstance(weights, list):
        return [weights]
    return [leaf for inner in weights for leaf in flat(inner)]


def mapped(function: Any, weights: Any) -> Any:
    """Returns the same nesting with `function` of each leaf.

    >>> mapped(str, {"a": 1, "b": [2]})
    {'a': '1', 'b': ['2']}
    """
    if isinstance(weights, dict):
        return {key: mapped(function, inner) for key, inner in weights.items()}
    return [mapped(function, inner) for inner in weights] if isinstance(weights, list) else function(weights)


def language_batches(workload: Language) -> tuple[Array, Array]:
    """Returns xs and ys (S, B, T) int32: walks that go 1, 2 or 3 on at each token, so that there is much to learn."""
    network = workload.network
    rng = rng_of(workload.name, 1)
    shape = (workload.num_batches, workload.batch, network.length + 1)
    steps = rng.integers(1, 4, shape)
    steps[..., 0] = rng.integers(0, network.vocabulary, shape[:-1])
    tokens = (np.cumsum(steps, -1) % network.vocabulary).astype(np.int32)
    return np.ascontiguousarray(tokens[..., :-1]), np.ascontiguousarray(tokens[..., 1:])
