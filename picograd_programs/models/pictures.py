"""Networks for small pictures: a perceptron with one hidden layer, and a convolutional network.

In:    normalized pixels
Out:   one logit per class

Source: LeCun, Bottou, Bengio, Haffner 1998, "Gradient-based learning applied to document recognition", section II
(convolutions and subsampling); Simonyan, Zisserman 2014, arXiv:1409.1556 (pairs of 3 x 3 convolutions).

Letters: B batch, P pixels, H hidden units or height, W width, C channels, K classes.
"""

from __future__ import annotations

from picograd import nn
from picograd.errors import ShapeError
from picograd.tensor.tensor import Tensor


# ---- a perceptron ----
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


# ---- two pairs of convolutions, each pair halved by maxima, and one layer ----
class PixelCNN(nn.Module):
    """logits = out(pool(relu(conv(relu(conv(pool(relu(conv(relu(conv(x)))))))))), every kernel 3 x 3.

    side:      H = W, 28 for MNIST; a multiple of 4
    channels:  channels of the first pair; the second has twice as many
    classes:   K
    """

    def __init__(self, side: int = 28, channels: int = 32, classes: int = 10):
        super().__init__()
        self.side = side
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv3 = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.conv4 = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.out = nn.Linear(2 * channels * (side // 4) ** 2, classes)

    def forward(self, x_BP: Tensor) -> Tensor:
        """Returns the logits, (B, K) of the dtype of x, for pixels (B, P).

        Raises:
          ShapeError: the number of pixels is not side * side.
        """
        if x_BP.shape[1:] != (self.side * self.side,):
            raise ShapeError(f"PixelCNN: pixels must be (B, {self.side * self.side}), got {x_BP.shape}.")
        x_BCHW = x_BP.reshape(-1, 1, self.side, self.side)
        x_BCHW = self.pool(self.conv2(self.conv1(x_BCHW).relu()).relu())
        x_BCHW = self.pool(self.conv4(self.conv3(x_BCHW).relu()).relu())
        logits_BK: Tensor = self.out(x_BCHW.flatten(1))
        return logits_BK
