"""Exercise of chapter 11: an order of steps that a small cache likes.

Test it:  python -m pytest docs/course/exercises/test_11_cpu_kernel.py
"""

N = 16


def order():
    """Yields each (i, j, k) with 0 <= i, j, k < N once, in any order.

    A step does c[i, j] += a[i, k] * b[k, j]. The cache has 24 lines; a line is 4 neighbouring numbers of a row of a, b
    or c. When a line is not there, it is fetched, and the line that was used least recently goes. Three plain loops fetch
    more than 4000 lines; 600 is good.
    """
    for i in range(N):
        for j in range(N):
            for k in range(N):
                yield i, j, k
