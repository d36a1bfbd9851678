"""What is computed of the result of a product or a convolution, and where it goes.

In:    Nest with an anchor, the value of that at some coordinates
Out:   statements in the free form
Called by: the emitters of products and convolutions.    Next: picograd/codegen/cpu/squares.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.builder import Builder
from picograd.codegen.index import element_within
from picograd.ir.coordinates import Coords, flatten
from picograd.ir.op import Op
from picograd.ir.stages import Nest


def store_outputs(nest: Nest, params: Sequence[Op], coords: Coords, value: Op, build: Builder) -> None:
    """Stores every output of a nest at `coords` of its anchor, whose value there is `value`."""
    assert nest.anchor is not None
    axes = range(len(coords))
    done = [element_within(output, coords, {nest.anchor: value}, axes) for _, output in nest.outputs]
    for (slot, _), result in zip(nest.outputs, done):
        build.store(params[slot], flatten(coords, nest.domain), result)
