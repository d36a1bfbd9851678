"""Exercise of chapter 22: rows of a renderer for a machine with vectors. A vector is an array of NumPy.

Each function returns Python text. Its arguments are text, too, names or expressions in brackets; only `lanes` is a number.
In the text `np` is NumPy.

Test it:  python -m pytest docs/course/exercises/test_22_a_device_of_your_own.py
"""


def expand(a, lanes):
    """Returns the text of a vector with the scalar `a` in each lane."""
    return a


def load(memory, index, lanes):
    """Returns the text of `lanes` neighbouring elements of `memory` from `index` on. Later stores must not change them."""
    return f"{memory}[{index}]"


def gather(memory, indices):
    """Returns the text of the elements of `memory` at a vector of indices, one for each lane."""
    return f"{memory}[{indices}]"


def store(memory, index, lanes, value):
    """Returns a statement that stores the vector `value` to `lanes` neighbouring elements from `index` on."""
    return f"{memory}[{index}] = {value}"


def where(condition, a, b):
    """Returns the text of a vector with a lane of `a` where `condition` holds, else that of `b`."""
    return f"({a} if {condition} else {b})"


def reduce_add(a, lanes):
    """Returns the text of the sum of all lanes, by halves: lane i with lane i + lanes / 2, then lanes / 4, and so on.

    A sum of floats depends on its order. All devices of picograd use this one, so that their bits agree.
    """
    return f"np.sum({a})"
