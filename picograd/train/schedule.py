"""What changes from step to step and follows from the step's number alone.

In:    the number of a step
Out:   its learning rate; its seed
"""

from __future__ import annotations

import math

import numpy as np

LEAST = 0.1  # of the highest learning rate: where the cosine ends


def cosine_with_warmup(step: int, lr: float, warmup: int, last: int) -> float:
    """Returns the learning rate of a step: a straight line up to lr, then half a cosine down to a tenth of it.

    lr * (step + 1) / (warmup + 1) before `warmup`; then lr * (0.1 + 0.9 * (1 + cos(pi * done)) / 2), done from 0 to 1

    Args:
      step:    counted from 0
      lr:      the highest learning rate
      warmup:  steps of the straight line
      last:    steps of the whole training

    Source:    Loshchilov, Hutter 2016, arXiv:1608.03983, eq. 5, one period; the line up and the tenth as in nanoGPT.

    >>> [round(cosine_with_warmup(step, 1.0, 2, 10), 3) for step in (0, 1, 2, 6, 10)]
    [0.333, 0.667, 1.0, 0.55, 0.1]
    """
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, last - warmup))
    return lr * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * done)))


def seed_of_step(seed: int, step: int) -> int:
    """Returns the seed of what a step draws, dropout say, so that a resumed run draws what an unbroken one would have.

    >>> seed_of_step(0, 1) == seed_of_step(0, 1) != seed_of_step(1, 0)
    True
    """
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0])
