"""Fine-tuning: a network that knows ten classes learns three of another kind, and training goes on from a checkpoint.

    python -m examples.finetune [--jit]

The first layer is frozen, the second learns slowly, a new head fast; the rates fall where the loss of held images does not;
gradients are clipped; training ends when nothing gets better.

Source: Yosinski et al. 2014, arXiv:1411.1792.
"""

import sys
import tempfile
from pathlib import Path

import picograd as torch  # import torch: the same program on PyTorch
from examples.images import images

nn, F = torch.nn, torch.nn.functional
P, H = 784, 64  # pixels, hidden units


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer1, self.layer2, self.head = nn.Linear(P, H), nn.Linear(H, H), nn.Linear(H, classes)

    def forward(self, x):  # (B, P)
        return self.head(F.relu(self.layer2(F.relu(self.layer1(x)))))


def make():
    """Returns a network of ten classes, as one that was trained before."""
    torch.manual_seed(0)
    return Net(10)


def learner(model):
    """Returns a frozen first layer's network with a new head of three classes, its optimizer and its schedule."""
    for p in model.layer1.parameters():
        p.requires_grad_(False)
    groups = [
        {"params": model.layer2.parameters(), "lr": 1e-3},
        {"params": model.head.parameters(), "lr": 1e-2},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=1e-2)
    return optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)


def new_head(model):
    with torch.no_grad():
        weight, bias = model.head.weight[:3].clone(), model.head.bias[:3].clone()
    model.head = nn.Linear(H, 3)
    model.head.load_state_dict({"weight": weight, "bias": bias})
    return model


def make_step(model, optimizer, jit):
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], max_norm=1.0)
        optimizer.step()
        return loss

    @torch.no_grad()
    def evaluate(x, y):
        return F.cross_entropy(model(x), y)

    return (torch.jit(step), torch.jit(evaluate)) if jit else (step, evaluate)


def train(model, jit=False, num_epochs=8, count=500, B=50, stop_after=1, patience=3):
    """Yields the epoch and the loss of each step, and of the held images after each epoch.

    After `stop_after` epochs all is saved, and new objects go on from the file; None: never.
    """
    x, y = map(torch.tensor, images(count))
    x, y = x.view(-1, P), y % 3  # (N, P), (N,)
    cut = count * 8 // 10
    model = new_head(model)
    optimizer, scheduler = learner(model)
    step, evaluate = make_step(model, optimizer, jit)
    best, bad_epochs = float("inf"), 0
    for epoch in range(num_epochs):
        order = torch.randperm(cut)
        for i in range(0, cut, B):
            picked = order[i : i + B]
            yield epoch, step(x[picked], y[picked]).item()
        loss = evaluate(x[cut:], y[cut:]).item()
        scheduler.step(loss)
        yield epoch, loss
        best, bad_epochs = (loss, 0) if loss < best else (best, bad_epochs + 1)
        if bad_epochs == patience:
            print(f"epoch {epoch}: the best of {patience} epochs ago was {best:.4f}")
            break
        if epoch + 1 == stop_after:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "checkpoint.pt")
                states = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
                torch.save({name: found.state_dict() for name, found in states.items()}, file)
                saved = torch.load(file)
            model = Net(3)
            optimizer, scheduler = learner(model)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            scheduler.load_state_dict(saved["scheduler"])
            step, evaluate = make_step(model, optimizer, jit)


def main(jit=False):
    losses = [loss for _, loss in train(make(), jit, num_epochs=30)]
    print(f"loss {losses[0]:.4f}, at the end {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main("--jit" in sys.argv)
