"""A masked language model: an encoder guesses the words that were hidden from it.

    python -m examples.bert [--jit]

Source: Devlin et al. 2018, arXiv:1810.04805.
"""

import random
import sys

import picograd as torch  # import torch: the same program on PyTorch

nn, F = torch.nn, torch.nn.functional
V, T, C, H, L = 40, 24, 64, 4, 2  # words, longest sentence, features, heads, layers
PAD, MASK, FIRST = 0, 1, 2  # the words of a sentence are FIRST to V - 1


def sentences(count, seed=0):
    """Returns sentences of 8 to 24 words that can be guessed: each word is a step of the sentence's own further."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        word, step = rng.randrange(V - FIRST), rng.randint(1, 3)
        found.append([(word + i * step) % (V - FIRST) + FIRST for i in range(rng.randint(8, T))])
    return found


class BERT(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.words, self.positions = nn.Embedding(V, C, padding_idx=PAD), nn.Embedding(T, C)
        self.norm, self.dropout = nn.LayerNorm(C), nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(C, H, 4 * C, dropout, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, L, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(C, C), nn.GELU(), nn.LayerNorm(C), nn.Linear(C, V))

    def forward(self, x):  # (B, T)
        h = self.words(x) + self.positions(torch.arange(x.shape[1]))[None]
        h = self.encoder(self.dropout(self.norm(h)), src_key_padding_mask=x == PAD)
        return self.head(h)  # (B, T, V)


def hide(x):
    """Returns sentences with some words hidden, and those words; -100 where none is to be guessed. (B, T) each.

    15 % of the words are chosen: of them 80 % are hidden, 10 % become any word, 10 % stay.
    """
    chosen = (torch.rand(x.shape) < 0.15) & (x != PAD)
    targets = x.masked_fill(~chosen, -100)
    how = torch.rand(x.shape)
    x = x.masked_fill(chosen & (how < 0.8), MASK)
    other = torch.randint(FIRST, V, x.shape)
    return torch.where(chosen & (how >= 0.8) & (how < 0.9), other, x), targets


def make(dropout=0.1):
    torch.manual_seed(0)
    return BERT(dropout)


def train(model, jit=False, num_epochs=5, count=640, B=32):
    """Yields the epoch and the loss of each step; a batch is as long as its longest sentence."""
    data = sentences(count)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 20))

    def step(x):
        hidden, targets = hide(x)
        loss = F.cross_entropy(model(hidden).view(-1, V), targets.view(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if jit:
        step = torch.jit(step)
    rng = random.Random(0)
    for epoch in range(num_epochs):
        rng.shuffle(data)
        for i in range(0, count, B):
            batch = data[i : i + B]
            longest = max(map(len, batch))
            x = torch.tensor([sentence + [PAD] * (longest - len(sentence)) for sentence in batch])
            yield epoch, step(x).item()
            scheduler.step()


def main(jit=False):
    model = make()
    losses = [loss for _, loss in train(model, jit)]
    print(f"loss {losses[0]:.4f}, at the end {losses[-1]:.4f}")
    sentence = torch.tensor([[FIRST + 2 * i for i in range(8)]])
    hidden = sentence.clone()
    hidden[0, 4] = MASK
    model.eval()
    with torch.no_grad():
        print(f"{hidden[0].tolist()}: it guesses {model(hidden)[0, 4].argmax().item()} for {MASK}")
    return losses


if __name__ == "__main__":
    main("--jit" in sys.argv)
