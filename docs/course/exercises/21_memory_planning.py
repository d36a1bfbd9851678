"""Exercise of chapter 21: a planner that lets values be written over their inputs.

Test it:  python -m pytest docs/course/exercises/test_21_memory_planning.py
"""

from typing import NamedTuple


class Temporary(NamedTuple):
    """A value between kernels.

    nbytes:  its length
    first:   the kernel that writes it
    last:    the last kernel that reads it
    over:    the number of a temporary over which it may be written, or None. It may be if that one is read by kernel
             `first` for the last time, and is at least as long
    """

    nbytes: int
    first: int
    last: int
    over: int | None = None


def place(temporaries):
    """Returns an offset for each temporary.

    Two temporaries that are alive at the same kernel have no byte in common, unless one may be written over the other: then
    it may begin at the same offset. The end of the last byte should be as low as possible.
    """
    offsets, end = [], 0
    for temporary in temporaries:
        offsets.append(end)
        end += temporary.nbytes
    return offsets
