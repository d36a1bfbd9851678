"""Solution of chapter 14."""

import numpy as np


def join(one, other):
    """Returns (m, l, o) of all keys that either worker has seen."""
    m = max(one[0], other[0])
    if m == -np.inf:
        return one  # neither has seen a key; -inf - -inf would be nan
    corrections = [np.exp(each[0] - m) for each in (one, other)]
    total = sum(each[1] * correction for each, correction in zip((one, other), corrections))
    o = sum(each[2] * correction for each, correction in zip((one, other), corrections))
    return m, total, o
