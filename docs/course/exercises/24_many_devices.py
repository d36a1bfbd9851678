"""Exercise of chapter 24: two layers that several devices share, relu(x @ w1) @ w2, of which no device has all.

Test it:  python -m pytest docs/course/exercises/test_24_many_devices.py
"""

import numpy as np


def share(w1, w2, n):
    """Returns what each of n devices keeps: a list of n pairs (its part of w1, its part of w2).

    Args:
      w1:  (C, H) array
      w2:  (H, C) array; n divides H
    """
    return [(w1, w2)] * n


def compute(x, part):
    """Returns what one device computes of all of x with its part; the sum over all devices is relu(x @ w1) @ w2."""
    w1, w2 = part
    return np.maximum(x @ w1, 0) @ w2
