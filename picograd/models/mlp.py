"""A multi-layer perceptron for pictures: one hidden layer.

In:    normalised pixels
Out:   one logit per class

Letters: B batch, P pixels, H hidden units, C classes.
"""

from __future__ import annotations

from picograd import nn
from picograd.tensor.tensor import Tensor


class PixelMLP(nn.Module):
    """logits = relu(x @ W1 + b1) @ W2 + b2

    pixels:   P, 784 for MNIST
    hidden:   H
    classes:  C
    """

    def __init__(self, pixels: int = 784, hidden: int = 512, classes: int = 10):
        super().__init__()
        self.hidden = nn.Linear(pixels, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x_BP: Tensor) -> Tensor:
        """Returns the logits, (B, C) of the dtype of x, for pixels (B, P)."""
        hidden_BH: Tensor = self.hidden(x_BP).relu()
        logits_BC: Tensor = self.out(hidden_BH)
        return logits_BC
