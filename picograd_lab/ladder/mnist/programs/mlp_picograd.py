"""The perceptron in picograd, phase by phase: each is computed before the next begins, so that it can be timed.

    python prepare.py small && python mlp_picograd.py
    PICOGRAD_DEVICE=C python mlp_picograd.py mnist_small.bin 1

mlp_jit.py is the same with the whole step in one plan, as in normal training.
"""

from common import LEARNING_RATE, Problem, Timer, report

import picograd as pg

timer, problem = Timer(), Problem()
w1, b1, w2, b2 = weights = [pg.Tensor(each, requires_grad=True) for each in problem.weights]
optimizer = pg.optim.SGD(weights, lr=LEARNING_RATE)
timer.tick("load")


def shown(tensor):
    """Keeps the gradient of an intermediate result, if it is dumped."""
    if problem.is_shown:
        tensor.retain_grad()
    return tensor


def forward(x):
    z1 = shown(x @ w1 + b1)
    h = shown(z1.relu())
    return z1, h, shown(h @ w2 + b2)


for epoch in range(problem.epochs or 1):
    losses = []
    for rows in problem.batches():
        x, labels = pg.Tensor(problem.images[rows]), pg.Tensor(problem.labels[rows])
        pg.realize([x, labels])
        timer.tick("copy")

        z1, h, logits = forward(x)
        inner = [z1, h, logits] if problem.is_shown else []
        pg.realize([z1, h, logits])
        timer.tick("forward")

        loss = pg.nn.functional.cross_entropy(logits, labels)
        losses.append(loss.item())
        timer.tick("loss")

        optimizer.zero_grad()
        loss.backward()
        pg.realize([tensor.grad for tensor in [*weights, *inner]])
        timer.tick("backward")

        optimizer.step()
        pg.realize(weights)
        timer.tick("update")

        if problem.is_shown:
            values = {
                "x": x, "z1": z1, "h": h, "logits": logits, "loss": loss, "dlogits": logits.grad, "dw2": w2.grad,
                "db2": b2.grad, "dh": h.grad, "dz1": z1.grad, "dw1": w1.grad, "db1": b1.grad,
                "w1": w1, "b1": b1, "w2": w2, "b2": b2,
            }  # fmt: skip
            for name, tensor in values.items():
                problem.dump(name, "picograd", tensor.detach().numpy())
        if problem.is_shown:
            print(f"step {problem.step + 1} loss {losses[-1]:.9g}")
        timer.skip()
    if problem.epochs:
        print(f"epoch {epoch + 1} loss {sum(losses) / max(len(losses), 1):.9g}")

test_logits = forward(pg.Tensor(problem.test_images))[2]
report(problem, timer, [each.detach().numpy() for each in weights], test_logits.detach().numpy())
