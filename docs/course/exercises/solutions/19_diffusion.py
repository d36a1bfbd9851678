"""Solution of chapter 19."""

import numpy as np


def cosine_schedule(num_steps):
    """Returns a[0], ..., a[num_steps - 1], the part of the variance that is data."""
    return np.cos(np.pi / 2 * np.arange(1, num_steps + 1) / (num_steps + 1)) ** 2


def back(x, noise, a_now, a_before):
    """Returns the points a step nearer to the data."""
    data = (x - np.sqrt(1 - a_now) * noise) / np.sqrt(a_now)
    return np.sqrt(a_before) * data + np.sqrt(1 - a_before) * noise
