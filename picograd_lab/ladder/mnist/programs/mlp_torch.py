"""The perceptron in PyTorch: the gold standard that the other rungs are compared with.

    python prepare.py small && python mlp_torch.py
"""

import torch
from common import LEARNING_RATE, Problem, Timer, report

timer, problem = Timer(), Problem()
w1, b1, w2, b2 = weights = [torch.tensor(each, requires_grad=True) for each in problem.weights]
optimizer = torch.optim.SGD(weights, lr=LEARNING_RATE)
images, all_labels = torch.from_numpy(problem.images), torch.from_numpy(problem.labels).long()
timer.tick("load")


def forward(x):
    z1 = x @ w1 + b1
    h = torch.relu(z1)
    return z1, h, h @ w2 + b2


for epoch in range(problem.epochs or 1):
    losses = []
    for rows in problem.batches():
        x, labels = images[rows], all_labels[rows]
        timer.tick("copy")

        z1, h, logits = forward(x)
        timer.tick("forward")

        loss = torch.nn.functional.cross_entropy(logits, labels)
        losses.append(loss.item())
        timer.tick("loss")

        if problem.is_shown:
            for tensor in (z1, h, logits):
                tensor.retain_grad()
        optimizer.zero_grad()
        loss.backward()
        timer.tick("backward")

        optimizer.step()
        timer.tick("update")

        if problem.is_shown:
            values = {
                "x": x, "z1": z1, "h": h, "logits": logits, "loss": loss, "dlogits": logits.grad, "dw2": w2.grad,
                "db2": b2.grad, "dh": h.grad, "dz1": z1.grad, "dw1": w1.grad, "db1": b1.grad,
                "w1": w1, "b1": b1, "w2": w2, "b2": b2,
            }  # fmt: skip
            for name, tensor in values.items():
                problem.dump(name, "torch", tensor.detach().numpy())
        if problem.is_shown:
            print(f"step {problem.step + 1} loss {losses[-1]:.9g}")
        timer.skip()
    if problem.epochs:
        print(f"epoch {epoch + 1} loss {sum(losses) / max(len(losses), 1):.9g}")

with torch.no_grad():
    report(problem, timer, [each.numpy() for each in weights], forward(torch.from_numpy(problem.test_images))[2].numpy())
