"""A classifier of sequences of many lengths: an LSTM in both directions reads a packed batch.

    python -m examples.lstm [--jit]

Source: Hochreiter, Schmidhuber 1997, "Long short-term memory".
"""

import random
import sys

import picograd as torch  # import torch: the same program on PyTorch

nn, F = torch.nn, torch.nn.functional
V, C, H, K = 20, 16, 32, 4  # words, features of a word, hidden units, classes


def sentences(count, seed=0):
    """Returns sequences of 4 to 20 words and their classes: the class is the step from most words to the next."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        label, words = rng.randrange(K), [rng.randrange(1, V)]
        for _ in range(rng.randint(3, 19)):
            words.append((words[-1] + label) % (V - 1) + 1 if rng.random() < 0.7 else rng.randrange(1, V))
        found.append((torch.tensor(words), label))
    return found


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, C, padding_idx=0)
        self.lstm = nn.LSTM(C, H, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * H, K)

    def forward(self, x, lengths):  # (B, T), (B,)
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)  # (2, B, H)
        return self.head(torch.cat([h[0], h[1]], dim=1))  # (B, K)


def collate(batch):
    """Returns the words of a batch, zeros after the end: (B, T) for its longest; the lengths and the classes (B,)."""
    x = nn.utils.rnn.pad_sequence([words for words, _ in batch], batch_first=True)
    return x, torch.tensor([len(words) for words, _ in batch]), torch.tensor([label for _, label in batch])


def make():
    torch.manual_seed(0)
    return Classifier()


def train(model, jit=False, num_epochs=5, count=640, B=32):
    """Yields the epoch and the loss of each step."""
    loader = torch.utils.data.DataLoader(sentences(count), batch_size=B, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(x, lengths, y):
        logits = model(x, lengths)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss, (logits.argmax(1) == y).sum()

    if jit:
        step = torch.jit(step)
    for epoch in range(num_epochs):
        right = 0
        for x, lengths, y in loader:
            loss, found = step(x, lengths, y)
            right += found.item()
            yield epoch, loss.item()
        print(f"epoch {epoch}: {right / count:.0%} right")


def main(jit=False):
    return [loss for _, loss in train(make(), jit)]


if __name__ == "__main__":
    main("--jit" in sys.argv)
