"""The perceptron in picograd, with its step as one plan: forward, loss, backward and update are fused if possible.

    python prepare.py small && python mlp_jit.py
"""

from common import LEARNING_RATE, Problem, Timer, report

import picograd as pg

timer, problem = Timer(), Problem()
w1, b1, w2, b2 = weights = [pg.Tensor(each, requires_grad=True) for each in problem.weights]
optimizer = pg.optim.SGD(weights, lr=LEARNING_RATE)
timer.tick("load")


def forward(x):
    return (x @ w1 + b1).relu() @ w2 + b2


@pg.jit
def train(x, labels):
    loss = pg.nn.functional.cross_entropy(forward(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


for epoch in range(problem.epochs or 1):
    losses = []
    for rows in problem.batches():
        x, labels = pg.Tensor(problem.images[rows]), pg.Tensor(problem.labels[rows])
        timer.tick("copy")

        losses.append(train(x, labels).item())
        timer.tick("step")

        if problem.is_shown:
            values = {"x": x, "loss": losses[-1], "w1": w1, "b1": b1, "w2": w2, "b2": b2}
            for name, value in values.items():
                problem.dump(name, "picograd", value.detach().numpy() if isinstance(value, pg.Tensor) else value)
        if problem.is_shown:
            print(f"step {problem.step + 1} loss {losses[-1]:.9g}")
        timer.skip()
    if problem.epochs:
        print(f"epoch {epoch + 1} loss {sum(losses) / max(len(losses), 1):.9g}")

test_logits = forward(pg.Tensor(problem.test_images))
report(problem, timer, [each.detach().numpy() for each in weights], test_logits.detach().numpy())
