"""A small GPT: blocks, groups with and without weight decay, warm-up, clipped gradients, greedy writing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.program import Program

V, C, T, H = 11, 16, 8, 2  # words, features, longest text, heads


def gpt(torch: Any, nn: Any, F: Any) -> Program:  # noqa: N803
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
            self.register_buffer("later", torch.ones(T, T).triu(1).bool(), persistent=False)

        def forward(self, x):
            b, t, _ = x.size()
            q, k, v = (part.view(b, t, H, -1).transpose(1, 2) for part in self.qkv(x).split(C, dim=2))
            scores = q @ k.transpose(-2, -1) / (C // H) ** 0.5
            scores = scores.masked_fill(self.later[:t, :t], float("-inf"))
            mixed = F.softmax(scores, dim=-1) @ v
            return self.out(mixed.transpose(1, 2).contiguous().view(b, t, C))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(C), nn.LayerNorm(C)])
            self.attention = Attention()
            self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(approximate="tanh"), nn.Linear(4 * C, C))
            self.gain = nn.Parameter(torch.ones(C))

        def forward(self, x):
            x = x + self.attention(self.norms[0](x))
            return x + self.gain * self.mlp(self.norms[1](x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(V, C), nn.Embedding(T, C)
            self.blocks = nn.Sequential(*[Block() for _ in range(2)])
            self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids, targets=None):
            places = torch.arange(ids.size(1), dtype=torch.long, device=ids.device)
            logits = self.head(self.norm(self.blocks(self.words(ids) + self.places(places)[None])))
            if targets is None:
                return logits, None
            return logits, F.cross_entropy(logits.view(-1, V), targets.view(-1), ignore_index=-1)

        @torch.no_grad()
        def write(self, ids, count):
            for _ in range(count):
                logits, _ = self(ids[:, -T:])
                best, _ = torch.topk(logits[:, -1], 3)
                scores = logits[:, -1].clone()
                scores[scores < best[:, [-1]]] = -float("inf")
                ids = torch.cat((ids, scores.softmax(-1).argmax(-1, keepdim=True)), dim=1)
            return ids

    net = GPT()
    groups = [
        {"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": 0.1, "name": "matrices"},
        {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0, "name": "vectors"},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / 2))

    def step(ids, targets):
        net.train()
        _, loss = net(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        net.eval()
        return [loss.item(), *schedule.get_last_lr(), *net.write(ids[:, :3], 7).flatten().tolist()]

    rng = np.random.default_rng(0)
    texts = [rng.integers(0, V, (4, T + 1)) for _ in range(3)]
    for text in texts:
        text[:, 3] = -1
    return net, step, [(np.maximum(text[:, :-1], 0), text[:, 1:].copy()) for text in texts]
