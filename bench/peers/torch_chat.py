"""Llama in PyTorch with the weights of a GGUF file in float32, for bench/chat.py: eager, keys and values in one memory.

Letters: T positions, H heads of queries, D features of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from picograd_formats.gguf_file import GGUF
from picograd_programs.models.decoder_gguf import config_of


def answers_of(file: GGUF, length: int, num_threads: int) -> Callable[[list[int], int], Iterator[int]]:
    """Returns a function that reads a prompt and yields the likeliest tokens after it.

    Args:
      file:    of a Llama whose output layer is its table of tokens
      length:  most positions
    """
    torch.set_num_threads(num_threads)
    config = config_of(file)
    weights = {name.removesuffix(".weight"): torch.from_numpy(each.unpacked()) for name, each in file.tensors.items()}
    half = torch.arange(0, config.features, 2) / config.features
    rotation = config.sights[0].rotation
    assert rotation is not None, "queries and keys of a Llama are turned"
    angles = torch.arange(length)[:, None] * rotation.base**-half  # (T, D/2)
    cos, sin = angles.cos(), angles.sin()
    caches = [torch.zeros(2, 1, config.shared_heads, length, config.features) for _ in range(config.layers)]

    def turned(x: torch.Tensor, now: slice) -> torch.Tensor:
        """Turns pairs of neighbours: x (1, H, T, D)."""
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * cos[now] - odd * sin[now], even * sin[now] + odd * cos[now]], -1).flatten(-2)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, (config.width,), weights[name], config.eps)

    def attention(x: torch.Tensor, part: str, cache: torch.Tensor, now: slice) -> torch.Tensor:
        joined = (F.linear(x, weights[f"{part}.attn_{name}"]) for name in "qkv")
        q, k, v = (each.unflatten(-1, (-1, config.features)).transpose(1, 2) for each in joined)  # (1, H, T, D)
        cache[0, :, :, now], cache[1, :, :, now] = turned(k, now), v
        seen = cache[:, :, :, : now.stop]
        is_whole = now.start == 0 and now.stop > 1
        y = F.scaled_dot_product_attention(turned(q, now), seen[0], seen[1], is_causal=is_whole, enable_gqa=True)
        return F.linear(y.transpose(1, 2).flatten(2), weights[f"{part}.attn_output"])

    def logits(tokens: list[int], place: int) -> torch.Tensor:
        """Returns the logits after the last of some tokens: all of a text's beginning, or one."""
        x, now = weights["token_embd"][torch.tensor([tokens])], slice(place, place + len(tokens))
        for layer, cache in enumerate(caches):
            part = f"blk.{layer}"
            x = x + attention(norm(x, f"{part}.attn_norm"), part, cache, now)
            inner = norm(x, f"{part}.ffn_norm")
            gate = F.silu(F.linear(inner, weights[f"{part}.ffn_gate"]))
            x = x + F.linear(gate * F.linear(inner, weights[f"{part}.ffn_up"]), weights[f"{part}.ffn_down"])
        return F.linear(norm(x[:, -1:], "output_norm"), weights["token_embd"])[0, 0]

    def answers(prompt: list[int], num: int) -> Iterator[int]:
        place, tokens = 0, prompt
        with torch.inference_mode():
            for _ in range(num):
                token = int(logits(tokens, place).argmax())
                place, tokens = place + len(tokens), [token]
                yield token

    return answers
