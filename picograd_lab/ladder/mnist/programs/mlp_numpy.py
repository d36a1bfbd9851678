"""The perceptron in NumPy, gradients by hand.

    python prepare.py small && python mlp_numpy.py

relu(x @ w1 + b1) @ w2 + b2, mean cross-entropy, plain gradient descent. Shapes: B batch, D inputs, H hidden, V outputs.
"""

import numpy as np
from common import LEARNING_RATE, Problem, Timer, report

timer, problem = Timer(), Problem()
w1, b1, w2, b2 = problem.weights
timer.tick("load")

for epoch in range(problem.epochs or 1):
    losses = []
    for rows in problem.batches():
        x, labels = problem.images[rows], problem.labels[rows]  # (B, D), (B)
        timer.tick("copy")

        z1 = x @ w1 + b1  # (B, H)
        h = np.maximum(z1, 0)
        logits = h @ w2 + b2  # (B, V)
        timer.tick("forward")

        e = np.exp(logits - logits.max(1, keepdims=True))
        probabilities = e / e.sum(1, keepdims=True)
        picked = np.arange(len(labels)), labels
        loss = -np.log(probabilities[picked]).mean()
        losses.append(float(loss))
        timer.tick("loss")

        dlogits = probabilities.copy()  # d(loss) / d(logits) = (probabilities - one hot) / B
        dlogits[picked] -= 1
        dlogits /= np.float32(problem.batch)
        dw2 = h.T @ dlogits
        db2 = dlogits.sum(0)
        dh = dlogits @ w2.T
        dz1 = dh * (h > 0)
        dw1 = x.T @ dz1
        db1 = dz1.sum(0)
        timer.tick("backward")

        gradients = {"dw1": dw1, "db1": db1, "dw2": dw2, "db2": db2}
        for weight, gradient in zip((w1, b1, w2, b2), gradients.values()):
            weight -= np.float32(LEARNING_RATE) * gradient
        timer.tick("update")

        for name in ("x", "z1", "h", "logits", "probabilities", "loss", "dlogits", "dw2", "db2", "dh", "dz1", "dw1", "db1",
                     "w1", "b1", "w2", "b2"):  # fmt: skip
            problem.dump(name, f"line:{name}", globals()[name])
        if problem.is_shown:
            print(f"step {problem.step + 1} loss {losses[-1]:.9g}")
        timer.skip()
    if problem.epochs:
        print(f"epoch {epoch + 1} loss {np.mean(losses):.9g}")

report(problem, timer, (w1, b1, w2, b2), np.maximum(problem.test_images @ w1 + b1, 0) @ w2 + b2)
