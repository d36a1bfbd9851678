"""The character models and GPT-2's size in PyTorch: fused attention, nn.LSTM, a cache of keys and values.

In:    a `Language` or a `Generation`
Out:   the loss of one batch; a prefill; a decoder
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.language import Language, Transformer, flat, is_decayed, mapped, network_weights
from bench.singles import Generation, generation_weights, prompts
from bench.workloads import LAYER_NORM_EPS

Weights = dict[str, Any]
Loss = Callable[[Tensor, Tensor], Tensor]


def make_loss(workload: Language) -> tuple[Loss, torch.optim.Optimizer]:
    """Returns the mean loss of one batch as a function, and the optimizer of what it reads."""
    loss, params = _transformer(workload) if isinstance(workload.network, Transformer) else _recurrent(workload)
    decays = {True: workload.weight_decay, False: 0.0}
    groups = [
        {"params": [param for param in params if is_decayed(param) == which], "weight_decay": decay}
        for which, decay in decays.items()
    ]
    rate, betas, eps = workload.learning_rate, workload.betas, workload.eps
    return loss, torch.optim.AdamW(groups, lr=rate, betas=betas, eps=eps, fused=True)


def _transformer(workload: Language) -> tuple[Loss, list[Tensor]]:
    """Returns the loss of a decoder whose blocks stand in a list, and its parameters, at the start weights."""
    network = workload.network
    assert isinstance(network, Transformer)
    weights = mapped(_param, network_weights(network, workload.name))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        stream = weights["token"][x] + weights["position"]
        for layer in weights["layers"]:
            q, k, v = _qkv(network, layer, stream)
            stream = _rest(layer, stream, F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return F.cross_entropy(_logits(weights, stream).flatten(0, 1), y.flatten())

    return loss, flat(weights)


def _recurrent(workload: Language) -> tuple[Loss, list[Tensor]]:
    """Returns the loss of nn.LSTM between embedding and head, and its parameters, at the start weights."""
    weights = mapped(_param, network_weights(workload.network, workload.name))
    width = workload.network.width
    lstm = torch.nn.LSTM(width, width, batch_first=True)
    inner = dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), list(weights.values())[1:5]))
    with torch.no_grad():
        for name, value in inner.items():
            getattr(lstm, name).copy_(value)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        out, _ = lstm(weights["token"][x])
        logits = F.linear(out, weights["head"], weights["head_bias"])
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    return loss, [weights["token"], *lstm.parameters(), weights["head"], weights["head_bias"]]


def _param(array: Any) -> Tensor:
    return torch.tensor(array, requires_grad=True)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, None, LAYER_NORM_EPS)


def _qkv(network: Transformer, layer: Weights, stream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (B, H, T, D)."""
    joint = F.linear(_norm(stream, layer["norm1"]), layer["qkv"])
    q, k, v = joint.unflatten(-1, (3, network.num_heads, -1)).permute(2, 0, 3, 1, 4)
    return q, k, v


def _rest(layer: Weights, stream: Tensor, mixed: Tensor) -> Tensor:
    """The layer after its attention; mixed (B, H, T, D)."""
    stream = stream + F.linear(mixed.transpose(1, 2).flatten(2), layer["proj"])
    return stream + F.linear(F.gelu(F.linear(_norm(stream, layer["norm2"]), layer["up"])), layer["down"])


def _logits(weights: Weights, stream: Tensor) -> Tensor:
    return F.linear(_norm(stream, weights["norm"]), weights["token"])


# ---- generation ----


class Generator:
    """Weights, and keys and values of every layer (1, H, T, D), T what is needed in all."""

    def __init__(self, workload: Generation) -> None:
        self.workload, self.network = workload, workload.network
        self.weights = mapped(torch.tensor, generation_weights(workload))
        network = self.network
        shape = (1, network.num_heads, workload.prompt + workload.count, network.width // network.num_heads)
        self.caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(network.num_layers)]

    def read(self, tokens: Tensor, start: int) -> Tensor:
        """Returns the logits (1, V) of the last of `tokens` (1, T), which stand from `start` on."""
        stop = start + tokens.shape[1]
        stream = self.weights["token"][tokens] + self.weights["position"][start:stop]
        for layer, (keys, values) in zip(self.weights["layers"], self.caches):
            q, k, v = _qkv(self.network, layer, stream)
            keys[:, :, start:stop], values[:, :, start:stop] = k, v
            k, v = keys[:, :, :stop], values[:, :, :stop]
            stream = _rest(layer, stream, F.scaled_dot_product_attention(q, k, v, is_causal=start == 0))
        return _logits(self.weights, stream[:, -1])

    @torch.no_grad()
    def prefill(self, tokens: Tensor) -> Tensor:
        """Returns the last logits (1, V) of a prompt (1, T)."""
        return self.read(tokens, 0)

    @torch.no_grad()
    def decode(self) -> tuple[Tensor, Tensor]:
        """Returns `count` tokens after the prompt, which was read before, and the logits (1, V) after them."""
        logits, written = self.after_prompt, []
        for position in range(self.workload.prompt, self.workload.prompt + self.workload.count):
            written.append(logits.argmax(-1, keepdim=True))
            logits = self.read(written[-1], position)
        return torch.cat(written, 1), logits

    def read_prompt(self) -> None:
        """Fills the cache, for `decode`."""
        self.after_prompt = self.prefill(torch.tensor(prompts(self.workload)[0]).long())
