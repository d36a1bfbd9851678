"""Tables of the latest entries, which make room for new ones.

In:    entries
Out:   `Latest`
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Latest(OrderedDict[K, V]):
    """A dict of at most `most` entries. What was put there first goes first; threads may use it at once.

    A plain dict cannot do that: `del table[next(iter(table))]` fails where another thread adds an entry in between, while
    `OrderedDict.popitem` is one step.

    >>> table = Latest(2)
    >>> for name in "abac":
    ...     table.put(name, name.upper())
    >>> list(table)
    ['a', 'c']
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.most,), None, None, iter(self.items())

    def put(self, key: K, value: V) -> None:
        """Puts an entry behind all others, and takes out the first ones while there are too many."""
        self.pop(key, None)
        self[key] = value
        while len(self) > self.most:
            self.popitem(last=False)
