"""Exercise of chapter 16: a convolution as a matrix product.

Test it:  python -m pytest docs/course/exercises/test_16_cnn.py
"""

import numpy as np


def conv2d(x, w, padding=0, stride=1):
    """Returns the convolution of pictures with filters, by one matrix product for each picture or for all.

        out[b, o, i, j] = sum over c, p, q of x[b, c, stride * i + p - padding, stride * j + q - padding] * w[o, c, p, q]

    Places outside of a picture count as 0.

    Args:
      x:  (B, C, H, W) array
      w:  (O, C, h, w) array

    Returns:   (B, O, (H + 2 * padding - h) // stride + 1, (W + 2 * padding - w) // stride + 1)
    """
    return np.zeros((len(x), len(w), 1, 1))
