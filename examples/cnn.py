"""A convolutional classifier: augmented images from a loader with workers, batch norm, one cycle of the learning rate.

    python -m examples.cnn [--jit] [--mnist]

Source: LeCun et al. 1998, "Gradient-based learning applied to document recognition"; Smith, Topin 2017, arXiv:1708.07120.
"""

import random
import sys

import picograd as torch  # import torch: the same program on PyTorch
from examples.images import images

nn, F = torch.nn, torch.nn.functional


class Augmented(torch.utils.data.Dataset):
    """Images and classes; an image is moved by up to two pixels, and turned upside down in one of two cases."""

    def __init__(self, x, y):
        self.x, self.y = torch.tensor(x), torch.tensor(y)  # (N, 1, 28, 28), (N,)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        dx, dy = random.randint(0, 4), random.randint(0, 4)
        image = F.pad(self.x[i], (2, 2, 2, 2))[:, dy : dy + 28, dx : dx + 28]  # (1, 28, 28)
        if random.random() < 0.5:
            image = image.flip(2)
        return image, self.y[i]


def make():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 16, 14, 14)
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 32, 7, 7)
        nn.Flatten(),
        nn.Dropout(0.0),
        nn.Linear(32 * 7 * 7, 10),
    )


def train(model, jit=False, num_epochs=5, count=1000, B=64, num_workers=2, data=None):
    """Yields the epoch and the loss of each step, and after each epoch that of the tenth that is held back."""
    x, y = data or images(count)
    cut = len(y) * 9 // 10
    loader = torch.utils.data.DataLoader(Augmented(x[:cut], y[:cut]), batch_size=B, shuffle=True, num_workers=num_workers)
    held = torch.utils.data.TensorDataset(torch.tensor(x[cut:]), torch.tensor(y[cut:]))
    test_loader = torch.utils.data.DataLoader(held, batch_size=B)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=max(num_epochs, 5) * len(loader)
    )

    def step(xb, yb):
        loss = F.cross_entropy(model(xb), yb, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    @torch.no_grad()
    def test(xb, yb):
        logits = model(xb)
        return F.cross_entropy(logits, yb, reduction="sum"), (logits.argmax(1) == yb).sum()

    if jit:
        step, test = torch.jit(step), torch.jit(test)
    for epoch in range(num_epochs):
        model.train()
        for xb, yb in loader:
            yield epoch, step(xb, yb).item()
            scheduler.step()
        model.eval()
        total_loss, total_right = 0.0, 0
        for xb, yb in test_loader:
            loss, right = test(xb, yb)
            total_loss += loss.item()
            total_right += right.item()
        print(f"epoch {epoch}: {total_right / len(held):.0%} right")
        yield epoch, total_loss / len(held)


def mnist():
    """Returns 60,000 handwritten digits and their classes."""
    from picograd.data import load_mnist

    digits = load_mnist()
    return digits.train_images.reshape(-1, 1, 28, 28).astype("float32") / 255, digits.train_labels.astype("int64")


def main(jit=False, data=None):
    return [loss for _, loss in train(make(), jit, data=data)]


if __name__ == "__main__":
    main("--jit" in sys.argv, mnist() if "--mnist" in sys.argv else None)
