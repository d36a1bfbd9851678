"""Exercise of chapter 19: a schedule of noise, and a step of the sampler.

Test it:  python -m pytest docs/course/exercises/test_19_diffusion.py
"""

import numpy as np


def cosine_schedule(num_steps):
    """Returns a[0], ..., a[num_steps - 1], the part of the variance that is data.

        a[t] = cos(pi / 2 * (t + 1) / (num_steps + 1)) ** 2

    It falls slowly at both ends, so that fewer steps are lost on what is nearly data or nearly noise.
    """
    return np.ones(num_steps)


def back(x, noise, a_now, a_before):
    """Returns the points a step nearer to the data.

    Args:
      x:         sqrt(a_now) * data + sqrt(1 - a_now) * noise
      noise:     what the network says of it
      a_now:     the part of x's variance that is data
      a_before:  that of the result, greater than a_now; 1 at the last step
    """
    return x
