"""Exercise 9: a rule, phases, and a price.

Test it:  python -m pytest docs/course/exercises/test_09_lazy_graphs_and_fusion.py
"""

from __future__ import annotations

from typing import NamedTuple


class Node(NamedTuple):
    """An operation on sources; equal nodes compare equal."""

    op: str  # "input", "const", "add", "sub", "mul", "exp", "sum" or "max"
    src: tuple[Node, ...] = ()
    arg: object = None  # the name of an input, the number of a constant


REDUCTIONS = ("sum", "max")


def simplify(node: Node) -> Node:
    """The graph with x - x replaced by the constant 0 and 0 + x by x, as often as that is possible.

    A hint: simplify the sources first; what a rule returns may fit another rule.
    """
    raise NotImplementedError("gap 1")


def phase(node: Node) -> int:
    """The number of reductions that must be finished before this node's loop can begin.

    0 for inputs and constants; else the greatest phase of the sources, where a source that is a reduction counts one more.
    """
    raise NotImplementedError("gap 2")


def is_stored(nbytes: int, readers: int, read_nbytes: int) -> bool:
    """True if storing a value moves fewer bytes than computing it again in each kernel that reads it.

    nbytes:       of the value: it would be written once, and read by each reader
    readers:      kernels that read it, without the one that makes it first
    read_nbytes:  of what one computation of it reads; the one that makes it first reads that in any case

    If both are equal it is not stored: it needs no memory then.
    """
    raise NotImplementedError("gap 3")
