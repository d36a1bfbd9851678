"""Ctrl-C and forks: what must not be left half done when a process is interrupted or copied.

In:    objects; blocks of code; locks
Out:   `LivingSet`, `LivingKeys`, `LivingValues`, `AtDeath`; `later`, work left over by finalizers, and `finish_later`
       `held_back`, `Ends`, `whole_context`: an interrupt waits until a block ends;  `wait_until`: it is heard meanwhile
       `lock`, `rlock`: free in a child;  `whole_at_fork`, `forks_wait`: a fork waits until one is free, or a block ends;
       `cached_property`, which has no lock;  `Latest`: a table that makes room for new entries, whole at any moment

Python hears a signal between two steps of a program in Python, wherever that is. In a `__del__`, or in the callback of a
weak reference, the KeyboardInterrupt has nowhere to go: it is printed and dropped, the finalizer is left half done, and the
loop that somebody wanted to stop goes on. The weak tables of the standard library have such callbacks in Python. So every
finalizer of picograd is one function of C: `dict.pop`, `deque.append`, `set.discard`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import functools
import os
import signal
import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from functools import partial
from types import CodeType, FrameType, MethodType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# ---- tables of objects that are alive, and work at an object's death: in C, where no Ctrl-C can come ----
later: deque[Callable[[], object]] = deque()


def finish_later() -> None:
    """Does work that finalizers left because it takes more than one function of C; each request for memory calls this."""
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
        self[id(one)] = weakref.ref(one, MethodType(self.pop, id(one)))  # half the memory of a partial

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
        return weakref.ref(key, MethodType(self.data.pop, id(key))), value

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
        data[key] = weakref.ref(value, MethodType(data.pop, key))  # the reference itself is the default: nothing is raised

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


# ---- Ctrl-C: held back, and heard while a device is waited for ----
# Module signal wraps them, to make enums of numbers and numbers of enums, which costs more than they do.
_handler_of, _set_handler = _signal.getsignal, _signal.signal
SPIN_SECONDS, PAUSE_SECONDS = 2e-3, 1e-4  # of asking again and again; then between two questions


class held_back:  # noqa: N801  # as it is called
    """Delays an interrupt until the block ends, except in `let_in`. Other threads than the first are never interrupted.

    A `finally` or `__exit__` is not enough where something must be put back: an interrupt may come at its first step, or
    between the change that it shall undo and the `try`.

    Cost: 1 us.
    """

    __slots__ = ("_usual", "_waiting", "_is_open")

    def __enter__(self) -> held_back:
        usual, self._usual, self._is_open = _handler_of(signal.SIGINT), None, False
        if callable(usual) and threading.current_thread() is threading.main_thread():
            self._waiting: list[tuple[int, FrameType | None]] = []
            _set_handler(signal.SIGINT, self._note)
            self._usual = usual
        return self

    @property
    def ends_at_once(self) -> bool:
        """True where an interrupt waits for the end of this block, and of no other: what is under way may be given up."""
        usual = self._usual
        return usual is not None and bool(self._waiting) and not isinstance(getattr(usual, "__self__", None), held_back)

    def let_in(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function, which an interrupt ends at once; nothing of the block after it."""
        try:
            self._is_open = True
            return function(*args, **kwargs)
        finally:
            self._is_open = False  # NOTE: no call before this, where an interrupt might come

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_open and self._usual is not None:
            self._is_open = False
            self._usual(number, frame)
            self._is_open = True  # a handler of the user's that does not raise
        else:
            self._waiting.append((number, frame))

    def __exit__(self, *failure: object) -> None:
        usual = self._usual
        if usual is not None:
            _set_handler(signal.SIGINT, usual)
            if self._waiting:
                usual(*self._waiting[0])


class Ends:
    """The two ends of a `with` block, which no interrupt cuts; one that comes in the block ends that at once.

    The block's __enter__ calls this object `ends`, calls begin(), and last tells an interrupt that waits: `if ends.waiting:
    ends.tell()`. Its __exit__ calls it `ends`, too, and comes to over() last. Not even the first step of that is cut.

    waiting:  interrupts that came at one of the ends

    Cost: 3 us a block.
    """

    __slots__ = ("waiting", "_enter", "_leave", "_usual", "_is_over")

    def begin(self, enter: CodeType, leave: CodeType) -> None:
        """Delays, from here on, an interrupt that arrives in the code of __enter__ or of __exit__."""
        self._enter, self._leave, self._is_over = enter, leave, False
        self.waiting: list[tuple[int, FrameType | None]] = []
        self._usual = _handler_of(signal.SIGINT)
        try:
            if callable(self._usual):
                _set_handler(signal.SIGINT, self._hear)
        except ValueError:  # another thread than the first: it is not interrupted
            self._usual = None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        here = frame
        while here is not None and not self._is_end(here):
            here = here.f_back
        if here is not None:
            self.waiting.append((number, frame))
        else:
            self._usual(number, frame)

    def _is_end(self, frame: FrameType) -> bool:
        # At the first step of __exit__ no block is named yet: it is the newest one's, and so of the block that hears.
        default = {self._enter: None, self._leave: self}
        return frame.f_code in default and frame.f_locals.get("ends", default[frame.f_code]) is self

    def tell(self) -> None:
        """Lets through what waits."""
        self._usual(*self.waiting.pop())

    def over(self) -> None:
        """Lets interrupts through again, and first what waits."""
        self._is_over, usual = True, self._usual
        if not callable(usual):
            return
        if _handler_of(signal.SIGINT) == self._hear:  # and not that of a block that began in this one and goes on
            while isinstance(outer := getattr(usual, "__self__", None), Ends) and outer._is_over:
                usual = outer._usual
            try:
                _set_handler(signal.SIGINT, usual)
            except ValueError:  # the block ends in another thread than it began in
                return
        if self.waiting:
            usual(*self.waiting[0])


class WholeContext(ContextDecorator, Generic[R]):
    """A context of contextlib's whose ends no interrupt cuts, so that it puts back all it has changed."""

    def __init__(self, make: Callable[[], AbstractContextManager[R]]):
        self._make = make
        self._blocks: list[tuple[AbstractContextManager[R], Ends]] = []  # that have begun

    def __enter__(self) -> R:
        ends = Ends()
        ends.begin(WholeContext.__enter__.__code__, WholeContext.__exit__.__code__)
        try:
            context = self._make()
            result = context.__enter__()
            self._blocks.append((context, ends))
        except BaseException:
            ends.over()
            raise
        if ends.waiting:
            try:
                ends.tell()
            except BaseException:
                self.__exit__(*sys.exc_info())
                raise
        return result

    def __exit__(self, *error: Any) -> bool | None:
        context, ends = self._blocks.pop()
        try:
            return context.__exit__(*error)
        finally:
            ends.over()


def whole_context(function: Callable[P, Iterator[R]]) -> Callable[P, WholeContext[R]]:
    """Makes a context of a generator, as contextlib.contextmanager does; no interrupt cuts its ends."""
    make = contextmanager(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> WholeContext[R]:
        return WholeContext(functools.partial(make, *args, **kwargs))

    return call


def wait_until(is_done: Callable[[], bool], spin_seconds: float = SPIN_SECONDS) -> None:
    """Asks until it is done. Ctrl-C ends the waiting, and nothing else: the work of a device goes on.

    Args:
      spin_seconds:  of asking again and again; few for a device that shares the host's processors
    """
    start = time.perf_counter()
    while not is_done():
        if time.perf_counter() - start > spin_seconds:
            time.sleep(PAUSE_SECONDS)


# ---- forks: a child finds locks free, and nothing half done by a thread that only the parent has ----
_locks: LivingSet[Any] = LivingSet()


def lock() -> threading.Lock:
    """Returns a lock that a forked child finds free: for moments, and data that may be found at any step of a change."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """Returns a lock that one thread may take several times, and that a forked child finds free."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _free_locks() -> None:
    for made in _locks.living():
        is_own = getattr(made, "_is_owned", None)  # a thread that forks with one keeps it in the child
        if is_own is None or not is_own():
            made._at_fork_reinit()  # as the locks of Python's own modules do


def whole_at_fork(acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """Delays forks until no other thread holds a lock: for steps that a child must not find half done.

    For locks of modules that are loaded with picograd: a fork that waits releases locks named meanwhile, too. The
    lock that was named last is taken first, so a thread that holds one may wait for those that were named before it.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)


_idle = threading.Condition()
_num_busy = 0  # threads in such a block


@contextmanager
def forks_wait() -> Iterator[None]:
    """Delays forks until the block ends, in which many threads may be at once: for libraries with locks of their own."""
    global _num_busy
    with _idle:
        _num_busy += 1
    try:
        yield
    finally:
        with _idle:
            _num_busy -= 1
            if not _num_busy:
                _idle.notify_all()


def _wait_until_idle() -> None:
    _idle.acquire()
    while _num_busy:
        _idle.wait()


whole_at_fork(_wait_until_idle, _idle.release)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


# ---- attributes ----
class cached_property(Generic[T]):
    """An attribute whose value a method gives once; two threads that ask at once may both work it out.

    That of functools has, up to Python 3.11, one lock for all objects of a class, which a thread holds while it works: a
    process forked at that moment would wait for it for ever.

    >>> class Square:
    ...     side = 3
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("worked out")
    ...         return self.side ** 2
    >>> square = Square()
    >>> square.area, square.area
    worked out
    (9, 9)
    """

    def __init__(self, function: Callable[[Any], T]):
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        value: T = self.function(instance)
        return instance.__dict__.setdefault(self.name, value)


# ---- tables of the latest entries ----
class Latest(OrderedDict[K, V]):
    """A dict of at most `most` entries. The oldest goes first; threads may use it at once.

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
