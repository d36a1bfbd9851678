"""Solution of chapter 20: equal steps first, from the front; then unused ones, from the back."""


def shorten(steps, results):
    """Returns (steps, results) of a tape that computes the same in fewer steps."""
    same, known, different = {}, {}, []
    for name, operands, out in steps:
        operands = tuple(same.get(place, place) for place in operands)
        if (name, operands) in known:
            same[out] = known[name, operands]
        else:
            known[name, operands] = out
            different.append((name, operands, out))
    results = [same.get(place, place) for place in results]
    needed, kept = set(results), []
    for name, operands, out in reversed(different):
        if out in needed:
            needed.update(operands)
            kept.append((name, operands, out))
    return kept[::-1], results
