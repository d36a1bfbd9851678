"""Solution of chapter 22."""


def expand(a, lanes):
    """Returns the text of a vector with the scalar `a` in each lane."""
    return f"np.full({lanes}, {a})"


def load(memory, index, lanes):
    """Returns the text of `lanes` neighbouring elements of `memory` from `index` on."""
    return f"{memory}[{index} : {index} + {lanes}].copy()"


def gather(memory, indices):
    """Returns the text of the elements of `memory` at a vector of indices, one for each lane."""
    return f"{memory}[{indices}]"


def store(memory, index, lanes, value):
    """Returns a statement that stores the vector `value` to `lanes` neighbouring elements from `index` on."""
    return f"{memory}[{index} : {index} + {lanes}] = {value}"


def where(condition, a, b):
    """Returns the text of a vector with a lane of `a` where `condition` holds, else that of `b`."""
    return f"np.where({condition}, {a}, {b})"


def reduce_add(a, lanes):
    """Returns the text of the sum of all lanes, by halves."""
    parts = [f"{a}[{lane}]" for lane in range(lanes)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [f"({low} + {high})" for low, high in zip(parts[:half], parts[half:])]
    return parts[0]
