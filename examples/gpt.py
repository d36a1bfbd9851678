"""nanoGPT: a decoder that learns to write, its own batches, writing with a growing context and with a cache.

    python -m examples.gpt [--jit] [text.txt]

Source: Radford et al. 2019, "Language models are unsupervised multitask learners"; Karpathy, nanoGPT.
"""

import math
import sys
from pathlib import Path

import picograd as torch  # import torch: the same program on PyTorch
from examples.words import words

nn, F = torch.nn, torch.nn.functional
T, C, H, L = 32, 64, 4, 2  # longest context, features, heads, layers


class Attention(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, past=None):
        B, T, _ = x.shape
        q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in self.qkv(x).split(C, dim=2))  # (B, H, T, D)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.dropout(self.out(y.transpose(1, 2).reshape(B, T, C))), (k, v)


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(C), Attention(dropout)
        self.norm2 = nn.LayerNorm(C)
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(dropout))

    def forward(self, x, past=None):  # (B, T, C)
        y, present = self.attention(self.norm1(x), past)
        x = x + y
        return x + self.mlp(self.norm2(x)), present


class GPT(nn.Module):
    def __init__(self, V, dropout):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList([Block(dropout) for _ in range(L)])
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, idx, cache=None):  # (B, T), what `cache` holds is earlier
        start = 0 if cache is None or cache[0] is None else cache[0][0].shape[2]
        x = self.tokens(idx) + self.positions(torch.arange(start, start + idx.shape[1]))
        for i, block in enumerate(self.blocks):
            x, present = block(x, None if cache is None else cache[i])
            if cache is not None:
                cache[i] = present
        return self.head(self.norm(x))  # (B, T, V)


def next_token(logits, top_k=5):
    """Draws one of the likeliest tokens: (B, V) -> (B, 1)."""
    best, _ = torch.topk(logits, top_k)
    logits = logits.masked_fill(logits < best[:, [-1]], -float("inf"))
    return torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)


@torch.no_grad()
def generate(model, idx, count, top_k=5):
    """Writes `count` tokens after idx (B, T), and reads all of them again for each."""
    for _ in range(count):
        logits = model(idx[:, -T:])[:, -1, :]
        idx = torch.cat([idx, next_token(logits, top_k)], dim=1)
    return idx


@torch.no_grad()
def generate_cached(model, idx, count, top_k=5):
    """The same, up to T tokens in all: the keys and values of earlier tokens are kept."""
    cache, new = [None] * L, idx
    for _ in range(count):
        logits = model(new, cache)[:, -1, :]
        new = next_token(logits, top_k)
        idx = torch.cat([idx, new], dim=1)
    return idx


def invented():
    return "\n".join(words())


def make(text=None, dropout=0.0):
    torch.manual_seed(1337)
    return GPT(len(set(text or invented())), dropout)


def encode(text):
    characters = sorted(set(text))
    return torch.tensor([characters.index(c) for c in text]), characters


def train(model, jit=False, num_epochs=5, num_steps=25, B=16, count=20, text=None):
    """Yields the epoch and the loss of each step; after each epoch that of text it does not learn from, and writes."""
    data, characters = encode(text or invented())  # (N,)
    cut = int(0.9 * len(data))
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))

    def get_batch(split):
        part = data[:cut] if split == "train" else data[cut:]
        ix = torch.randint(len(part) - T, (B,))
        x = torch.stack([part[i : i + T] for i in ix])  # (B, T)
        y = torch.stack([part[i + 1 : i + 1 + T] for i in ix])
        return x, y

    def loss_of(x, y):
        logits = model(x)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))

    def step(x, y):
        loss = loss_of(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if jit:
        step, loss_of = torch.jit(step), torch.jit(loss_of)
    for k in range(num_epochs * num_steps):
        warm_up, decay = (k + 1) / 10, 0.5 * (1 + math.cos(math.pi * k / (num_epochs * num_steps)))
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(warm_up, decay)
        x, y = get_batch("train")
        yield k // num_steps, step(x, y).item()
        if k % num_steps == num_steps - 1:
            model.eval()
            with torch.no_grad():
                loss = sum(loss_of(*get_batch("validation")).item() for _ in range(2)) / 2
            start = torch.zeros((1, 1), dtype=torch.long)
            for write in (generate, generate_cached):
                print("".join(characters[i] for i in write(model, start, count)[0].tolist()).split("\n"))
            model.train()
            yield k // num_steps, loss


def main(jit=False, path=None):
    text = Path(path).read_text() if path else invented()
    losses = [loss for _, loss in train(make(text), jit, text=text)]
    print(f"loss {losses[0]:.4f}, at the end {losses[-1]:.4f} of new text")
    return losses


if __name__ == "__main__":
    files = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    main("--jit" in sys.argv, *files)
