"""The character models and GPT-2's size in picograd: a scan for the LSTM, one plan for every length of a decoding step.

In:    a `Language` or a `Generation`
Out:   a training step; a prefill; a decoder
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import picograd as pg
from bench.language import Language, Transformer, flat, is_decayed, mapped, network_weights
from bench.singles import Generation, generation_weights, prompts
from bench.workloads import LAYER_NORM_EPS
from picograd_programs.models.gpt import GPT, GPTConfig

F = pg.nn.functional
Weights = dict[str, Any]
Step = Callable[[Any, Any], Any]


def make_step(workload: Language, is_layered: bool) -> Step:
    """One step of AdamW: forward, backward and update.

    is_layered:  the layers' weights are stacked, and one scan runs over them
    """
    arrays = network_weights(workload.network, workload.name)
    weights = mapped(lambda array: pg.Tensor(array, requires_grad=not is_layered), arrays)
    if is_layered:
        layers = weights["layers"]
        weights["layers"] = {name: pg.stack([layer[name] for layer in layers]) for name in layers[0]}
        weights = mapped(lambda tensor: pg.Tensor(tensor.numpy(), requires_grad=True), weights)
    norms = flat(weights["layers"]["norm1"]) + flat(weights["layers"]["norm2"]) if is_layered else []
    params = flat(weights)
    vectors = [p for p in params if not is_decayed(p) or any(p is norm for norm in norms)]
    matrices = [p for p in params if not any(p is vector for vector in vectors)]
    groups = [
        {"params": matrices, "weight_decay": workload.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = pg.optim.AdamW(groups, lr=workload.learning_rate, betas=workload.betas, eps=workload.eps)
    run = _transformer if isinstance(workload.network, Transformer) else _recurrent

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = run(workload.network, weights, x)  # type: ignore[operator]
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def _transformer(network: Transformer, weights: Weights, x: Any) -> Any:
    stream = weights["token"][x] + weights["position"]
    if isinstance(weights["layers"], dict):
        stream, _ = pg.scan(lambda stream, layer: (_block(network, layer, stream), None), stream, weights["layers"])
    else:
        for layer in weights["layers"]:
            stream = _block(network, layer, stream)
    return _logits(weights, stream)


def _block(network: Transformer, layer: Weights, stream: Any) -> Any:
    q, k, v = _qkv(network, layer, stream)
    return _rest(layer, stream, F.scaled_dot_product_attention(q, k, v, is_causal=True))


def _recurrent(network: Any, weights: Weights, x: Any) -> Any:
    """The products with the inputs are one for all times; the scan does what depends on the time before."""
    inputs = F.linear(weights["token"][x], weights["input"], weights["input_bias"] + weights["hidden_bias"])

    def cell_step(state: Any, joint: Any) -> Any:
        hidden, cell = state
        i, f, g, o = (joint + hidden @ weights["hidden"].T).chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        return (hidden, cell), hidden

    start = pg.zeros(x.shape[0], network.width)
    _, outs = pg.scan(cell_step, (start, start), inputs.transpose(0, 1))
    return F.linear(outs.transpose(0, 1), weights["head"], weights["head_bias"])


def _norm(x: Any, weight: Any) -> Any:
    return F.layer_norm(x, weight.shape, weight, eps=LAYER_NORM_EPS)


def _qkv(network: Transformer, layer: Weights, stream: Any) -> Any:
    """Queries, keys and values (B, H, T, D)."""
    joint = F.linear(_norm(stream, layer["norm1"]), layer["qkv"])
    batch, length, width = stream.shape
    return joint.reshape(batch, length, 3, network.num_heads, width // network.num_heads).permute(2, 0, 3, 1, 4).unbind()


def _rest(layer: Weights, stream: Any, mixed: Any) -> Any:
    """The layer after its attention; mixed (B, H, T, D)."""
    stream = stream + F.linear(mixed.transpose(1, 2).reshape(stream.shape), layer["proj"])
    return stream + F.linear(F.gelu(F.linear(_norm(stream, layer["norm2"]), layer["up"])), layer["down"])


def _logits(weights: Weights, stream: Any) -> Any:
    return F.linear(_norm(stream, weights["norm"]), weights["token"])


# ---- generation ----


class Generator:
    """`picograd_programs.models.gpt.GPT` with a cache for as many tokens as are read and written in all."""

    def __init__(self, workload: Generation, is_jitted: bool) -> None:
        self.workload, network = workload, workload.network
        config = GPTConfig(
            network.vocabulary, network.length, network.num_layers, network.num_heads, network.width, bias=False
        )
        self.model = GPT(config).eval().requires_grad_(False)
        self.model.load_state_dict(_by_path(generation_weights(workload)))
        self.length = workload.prompt + workload.count
        self.cache = self.model.cache(1, self.length)
        self.position = pg.Variable("position", 1, self.length - 1)
        self.prefill = pg.jit(self._prefill) if is_jitted else self._prefill
        self.next_token = pg.jit(self._next) if is_jitted else self._next

    def _prefill(self, tokens: Any) -> Any:
        """Returns the last logits (1, V) of a prompt (1, T)."""
        return self.model.logits(self.model.read_on(tokens, self.cache)[:, -1])

    def _next(self, logits: Any, position: Any) -> tuple[Any, Any]:
        """Returns the likeliest token (1, 1), which stands at `position`, and the logits (1, V) after it."""
        token = logits.argmax(-1, keepdim=True)
        return token, self.model.logits(self.model.read_on(token, self.cache, position)[:, -1])

    def decode(self) -> tuple[Any, Any]:
        """Returns `count` tokens after the prompt, which was read before, and the logits (1, V) after them.

        Each is computed before the next, as by someone who prints them: a graph has one value for a position.
        """
        logits, written = self.after_prompt, []
        for position in range(self.workload.prompt, self.length):
            token, logits = self.next_token(logits, self.position.bind(position))
            pg.realize([token, logits])
            written.append(token)
        return pg.cat(written, 1), logits

    def read_prompt(self) -> None:
        """Fills the cache, for `decode`."""
        self.after_prompt = self.prefill(pg.Tensor(prompts(self.workload)[0])).realize()


# What GPT calls the weights of a layer.
PATHS = {
    "norm1": "ln_1",
    "qkv": "attn.c_attn",
    "proj": "attn.c_proj",
    "norm2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}


def _by_path(weights: Weights) -> Weights:
    """Returns the weights by the names that GPT has for them."""
    found = {f"{at}.weight": weights[name] for name, at in (("token", "wte"), ("position", "wpe"), ("norm", "ln_f"))}
    for number, layer in enumerate(weights["layers"]):
        found.update({f"h.{number}.{at}.weight": layer[name] for name, at in PATHS.items()})
    return mapped(pg.Tensor, found)
