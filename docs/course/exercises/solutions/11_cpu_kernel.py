"""Solution of chapter 11: tiles of 4 x 4 x 4 numbers, which need four lines of each matrix."""

import itertools

N = 16


def order():
    """Yields each (i, j, k) with 0 <= i, j, k < N once, in tiles; a tile of c stays while k runs through all tiles."""
    blocks = range(0, N, 4)
    for i0, j0, k0 in itertools.product(blocks, blocks, blocks):
        for i, k, j in itertools.product(range(4), repeat=3):
            yield i0 + i, j0 + j, k0 + k
