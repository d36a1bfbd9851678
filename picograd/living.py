"""Tables of objects that are alive, and work at an object's death: in C, where no Ctrl-C can come.

In:    objects
Out:   `LivingSet`, `LivingKeys`, `LivingValues`; `AtDeath`; `later`, work left over by finalizers, and `finish_later`

Python hears a signal between two steps of a program in Python, wherever that is. In a `__del__`, or in the callback of a
weak reference, the KeyboardInterrupt has nowhere to go: it is printed and dropped, the finalizer is left half done, and the
loop that somebody wanted to stop goes on. The weak tables of the standard library have such callbacks in Python. So every
finalizer of picograd is one function of C: `dict.pop`, `deque.append`, `set.discard`.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

later: deque[Callable[[], object]] = deque()


def finish_later() -> None:
    """Does what finalizers left over because it takes more than one function of C; who asks for memory comes by here."""
    while later:
        try:
            work = later.popleft()
        except IndexError:  # another thread was faster
            return
        try:
            work()
        except BaseException:  # an interrupt; all work here can be done twice
            later.appendleft(work)
            raise


class AtDeath:
    """A finalizer for the object that holds it: calls a function of C, with some arguments, when it dies.

    >>> gone = deque()
    >>> held = AtDeath(gone.append, "a")
    >>> del held
    >>> list(gone)
    ['a']
    """

    # Python looks for __del__ in the type, finds a slot there, and calls what is in the slot. An empty slot is passed over.
    __slots__ = ("__del__",)

    def __init__(self, function: Callable[..., object], *arguments: object):
        self.__del__ = partial(function, *arguments)


class LivingSet(dict[int, weakref.ref[K]]):
    """Objects that are alive, by identity, in the order in which they were added: a WeakSet has another order in each run.

    The finalizer is `pop(identity, reference)`. The reference is the default: nothing is raised where the object was
    discarded, and another thread's list of all kept its reference until it died.
    """

    __slots__ = ()

    def add(self, one: K) -> None:
        """Adds an object, which leaves when it dies."""
        self[id(one)] = weakref.ref(one, partial(self.pop, id(one)))

    def discard(self, one: K) -> None:
        """Removes an object, if it is there."""
        self.pop(id(one), None)

    def has(self, one: K) -> bool:
        """Returns whether an object is there."""
        return id(one) in self

    def living(self) -> list[K]:
        """Returns the objects of now; other threads may add some meanwhile."""
        return [one for reference in list(self.values()) if (one := reference()) is not None]


class LivingKeys(Generic[K, V]):
    """A table by objects, equal ones apart; an entry leaves when its object dies.

    data:  the dict within, by identity, whose length costs no call; finalizers are as those of LivingSet
    """

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: dict[int, tuple[weakref.ref[K], V]] = {}

    def _entry(self, key: K, value: V) -> tuple[weakref.ref[K], V]:
        return weakref.ref(key, partial(self.data.pop, id(key))), value

    def __setitem__(self, key: K, value: V) -> None:
        self.data[id(key)] = self._entry(key, value)

    def __getitem__(self, key: K) -> V:
        return self.data[id(key)][1]

    def __delitem__(self, key: K) -> None:
        del self.data[id(key)]

    def __contains__(self, key: K) -> bool:
        return id(key) in self.data

    def __len__(self) -> int:
        return len(self.data)

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Returns the entry of an object, or the default."""
        found = self.data.get(id(key))
        return default if found is None else found[1]

    def setdefault(self, key: K, value: V) -> V:
        """Returns the entry of an object, which is `value` if there was none."""
        return self.data.setdefault(id(key), self._entry(key, value))[1]

    def pop(self, key: K, default: D) -> V | D:
        """Removes the entry of an object, and returns it, or the default."""
        found = self.data.pop(id(key), None)
        return default if found is None else found[1]

    def living(self) -> list[K]:
        """Returns the objects of now; other threads may add some meanwhile."""
        return [key for key, _ in self.items()]

    def items(self) -> list[tuple[K, V]]:
        """Returns the objects of now with their entries."""
        return [(key, value) for reference, value in list(self.data.values()) if (key := reference()) is not None]


class LivingValues(Generic[K, V]):
    """A table of objects that leave it when they die; a key has one object after another, or always the same.

    data:  the dict within

    NOTE: keys need a hash and an equality in C: an entry is looked up when its object dies.
    """

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: dict[K, weakref.ref[V]] = {}

    def __setitem__(self, key: K, value: V) -> None:
        data = self.data
        data[key] = weakref.ref(value, partial(data.pop, key))  # the reference itself is the default: nothing is raised

    def __getitem__(self, key: K) -> V:
        found = self.data[key]()
        if found is None:
            raise KeyError(key)
        return found

    def __delitem__(self, key: K) -> None:
        del self.data[key]

    def get(self, key: K, default: V | None = None) -> V | None:
        """Returns the object of a key, or the default."""
        reference = self.data.get(key)
        found = None if reference is None else reference()
        return default if found is None else found

    def items(self) -> list[tuple[K, V]]:
        """Returns the objects of now with their keys; other threads may add some meanwhile."""
        return [(key, one) for key, reference in self.data.copy().items() if (one := reference()) is not None]

    def values(self) -> list[V]:
        """Returns the objects of now."""
        return [one for _, one in self.items()]
