"""A random graph for every seed.

In:    a seed
Out:   `Graph`
Next:  picograd/tools/fuzz/check.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.tools.fuzz.bodies import PLAIN, WITH_BODIES
from picograd.tools.fuzz.contractions import matmul
from picograd.tools.fuzz.generator import Generator
from picograd.tools.fuzz.values import Graph

DTYPES = (
    (dtypes.float32,),
    (dtypes.float32,),
    (dtypes.float32, dtypes.int32, dtypes.bool_),
    (dtypes.float32,),
    (dtypes.int64, dtypes.int32, dtypes.float32),
    (dtypes.float16, dtypes.bfloat16, dtypes.float32),
    (dtypes.float64, dtypes.float32, dtypes.uint8, dtypes.int16),
    (dtypes.bool_, dtypes.uint32, dtypes.uint64, dtypes.int8),
)
MOST_STEPS = 53


def any_graph(seed: int, most_elements: int = 600, has_bodies: bool | None = None) -> Graph:
    """Returns a graph of 3 to 55 operations; of one seed in four with loops and calls, unless that is said."""
    with_bodies = seed % 4 == 3 if has_bodies is None else has_bodies
    actions = WITH_BODIES if with_bodies else PLAIN
    generator = Generator(seed, actions, most_elements, DTYPES[seed // 4 % len(DTYPES)])
    return generator.make(steps=3 + seed * 7 % MOST_STEPS)


def smooth_graph(seed: int, most_elements: int = 200) -> Graph:
    """Returns a graph of float64 and integers that can be differentiated where its PARAMs are, but for rare kinks."""
    actions = WITH_BODIES if seed % 4 == 3 else PLAIN
    generator = Generator(seed, actions, most_elements, (dtypes.float64, dtypes.float64, dtypes.int32), is_smooth=True)
    return generator.make(steps=3 + seed * 7 % MOST_STEPS)


def product_graph(seed: int, most_elements: int = 60) -> Graph:
    """Returns a graph of 1 to 6 operations on a matrix, many of them products: Python runs each in several ways.

    Matrices of float16 are larger, as large as matrix instructions are worth it.
    """
    dtype = (dtypes.float32, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.float16)[seed % 5]
    least, most = 1, 8
    if dtype is dtypes.float16:
        least, most, most_elements = 8, 20, 6 * most_elements
    generator = Generator(seed, (*PLAIN, *[matmul] * len(PLAIN)), most_elements, (dtype,))
    rows, columns = (int(n) for n in generator.rng.integers(least, most, 2))
    generator.add(generator.param((rows, columns), dtype))
    generator.grow(1 + seed * 7 % 6)
    generator.choose_roots()
    return generator.graph
