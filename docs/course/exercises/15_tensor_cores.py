"""Exercise of chapter 15: the addresses that ldmatrix is given.

Test it:  python -m pytest docs/course/exercises/test_15_tensor_cores.py
"""


def row_of(thread):
    """Returns (row, column) of the tile of 16 x 16 where the row begins that this thread names.

    ldmatrix brings four matrices of 8 x 8. Thread 8 * m + r, for r < 8, names the first element of row r of matrix m. Then
    each thread holds eight numbers: with g, t = divmod(thread, 4), its numbers 2 * m and 2 * m + 1 are elements (g, 2 * t)
    and (g, 2 * t + 1) of matrix m.

    mma wants number i to be element (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)) of the tile.
    """
    return thread % 16, 0
