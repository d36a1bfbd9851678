"""Workloads that are one call each: chains of tiny kernels, and a GPT-2-sized network that reads and writes text.

In:    an `Overhead` or a `Generation` record of the table in bench/workloads.py
Out:   its arrays, the same for every framework
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.language import Array, Transformer, Weights, network_weights, rng_of

TINY = 16  # rows and columns


@dataclass(frozen=True)
class Overhead:
    """Work that takes next to no time, so that what is timed is the framework.

    op:             "chain": x @ w0 @ w1 ..., one product a kernel, the w taken in turn; "sum": x + w0 + w1 ...
    num_kernels:    products of a chain; a sum is one loop wherever a framework fuses
    num_arguments:  the w
    num_operands:   how many x there are: calls take them in turn; a loop does them all in one call
    """

    name: str
    op: str
    num_kernels: int
    num_arguments: int
    group: str = "overhead"
    num_operands: int = 32
    flops: float = 0.0
    nbytes_moved: float = 0.0


def overhead_operands(workload: Overhead) -> tuple[Array, list[Array]]:
    """Returns xs (num_operands, 16, 16) and the w (16, 16), float32; those of a chain are orthogonal."""
    rng = rng_of(workload.name, 0)
    xs = rng.standard_normal((workload.num_operands, TINY, TINY), dtype=np.float32)
    ws = rng.standard_normal((workload.num_arguments, TINY, TINY))
    if workload.op == "chain":
        ws = np.linalg.qr(ws).Q
    return xs, [np.ascontiguousarray(w, np.float32) for w in ws]


@dataclass(frozen=True)
class Generation:
    """A transformer with random weights and a cache of keys and values, batch 1.

    op:  "prefill": a call reads `prompt` tokens, fills the cache and gives the logits of the last position
         "decode":  a call writes `count` tokens after the prompt, each the likeliest one, fed back in
    """

    name: str
    op: str
    network: Transformer
    prompt: int
    count: int
    group: str = "generation"

    @property
    def num_tokens(self) -> int:
        """Of one step."""
        return self.prompt if self.op == "prefill" else 1

    @property
    def flops(self) -> float:
        """Of one step, which is one prefill or one token written. The head is computed for one position."""
        network = self.network
        inner = 12 * network.num_layers * network.width**2
        return 2.0 * (self.num_tokens * inner + network.vocabulary * network.width)

    @property
    def nbytes_moved(self) -> float:
        """Of one token written: every weight is read once. A prefill is limited by its products."""
        return 4.0 * self.network.num_weights if self.op == "decode" else 0.0


def generation_weights(workload: Generation) -> Weights:
    """Returns the weights, those of `bench.language.network_weights`; prefill and decode have the same."""
    return network_weights(workload.network, workload.group)


def prompts(workload: Generation) -> list[Array]:
    """Returns two prompts (1, prompt) int32; decoding goes on from the first."""
    rng = rng_of(workload.group, 1)
    return [rng.integers(0, workload.network.vocabulary, (1, workload.prompt)).astype(np.int32) for _ in range(2)]
