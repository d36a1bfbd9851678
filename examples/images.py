"""Images to learn from: ten classes, drawn from a seed, so that a program runs where there is no data set."""

import numpy as np


def images(count, pixels=28, seed=0):
    """Returns images (N, 1, pixels, pixels) of float32 from 0 to 1, and the class of each (N,).

    A class is four round spots at places of its own; an image has them brighter or darker, and noise.
    """
    rng, places = np.random.default_rng(seed), np.random.default_rng(1234)
    y, x = np.mgrid[0:1:pixels * 1j, 0:1:pixels * 1j]
    centers = places.uniform(0.2, 0.8, (10, 4, 2, 1, 1))
    spots = np.exp(-((x - centers[:, :, 0]) ** 2 + (y - centers[:, :, 1]) ** 2) / 0.01)  # (10, 4, pixels, pixels)
    classes = rng.integers(0, 10, count)
    found = (spots[classes] * rng.uniform(0.5, 1.0, (count, 4, 1, 1))).sum(1)
    found = np.clip(found + 0.1 * rng.standard_normal(found.shape), 0, 1)
    return found[:, None].astype(np.float32), classes.astype(np.int64)
