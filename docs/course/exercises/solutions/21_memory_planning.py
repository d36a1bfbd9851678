"""Solution of chapter 21: chains of values that are written over each other are placed as one value."""

from typing import NamedTuple


class Temporary(NamedTuple):
    """A value between kernels."""

    nbytes: int
    first: int
    last: int
    over: int | None = None


def place(temporaries):
    """Returns an offset for each temporary: chains by first fit, the longest first."""
    chain_of, chains = {}, []  # a chain: [nbytes, first, last]
    for number, t in enumerate(temporaries):
        below = None if t.over is None else temporaries[t.over]
        if (
            below is not None
            and below.last == t.first
            and below.nbytes >= t.nbytes
            and chains[chain_of[t.over]][2] == t.first
        ):
            chain_of[number] = chain_of[t.over]
            chains[chain_of[number]][2] = t.last
        else:
            chain_of[number] = len(chains)
            chains.append([t.nbytes, t.first, t.last])
    offsets = {}
    for number in sorted(range(len(chains)), key=lambda n: -chains[n][0]):
        nbytes, first, last = chains[number]
        offset = 0
        others = [other for other in offsets if chains[other][1] <= last and first <= chains[other][2]]
        for other in sorted(others, key=offsets.get):
            if offsets[other] - offset >= nbytes:
                break
            offset = max(offset, offsets[other] + chains[other][0])
        offsets[number] = offset
    return [offsets[chain_of[number]] for number in range(len(temporaries))]
