"""Driver calls of a run as rows of words in memory; one native function makes all that are due.

In:    names and arguments of the driver's functions
Out:   `Row`; `Commands`, which calls rows one after the other;
       `caller_source()`: LLVM IR of `i64 @make_calls(ptr rows, i64 count)`, where `rows` are addresses of rows

A call through the bindings costs a microsecond of Python; one made here costs some nanoseconds more than the driver's work.
A row says whether it is due: constant parts are prepared once, and each run submits the rest.

row, in 64-bit words:    0 when it is due: NEVER, ONCE (until its call has succeeded) or ALWAYS
                         1 address of the function   2 to 13 its arguments; extra words are ignored
The result is 0, or the failing row's number times 2**32, plus the status; later rows were not called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

from picograd.devices.cuda.driver import call, failed
from picograd.ir.stages import Executable, Launch, Source

CALLER, SYMBOL = "driver_caller", "make_calls"
DUE, FUNCTION, FIRST, ROW_WORDS = 0, 1, 2, 14
NEVER, ONCE, ALWAYS = 0, 1, 2
ARGUMENTS_MAX = ROW_WORDS - FIRST
DRIVER_VERSION = 12000  # version of the functions' interface
Caller = Callable[[int, int], int]


@cache
def address_of(name: str) -> int:
    """Returns the address of a driver function."""
    place, _ = call("cuGetProcAddress", name.encode(), DRIVER_VERSION, 0)
    return int(place)


def bind_caller(loaded: Executable) -> Caller:
    """Returns the native function; its calls release Python's lock."""
    (address,) = loaded.functions
    made: Any = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(address)
    made.owner = loaded  # the code must stay loaded
    return cast(Caller, made)


class Row:
    """A call, in memory at a fixed address.

    name:   name of the function
    words:  see the file's header
    """

    __slots__ = ("address", "name", "words", "_memory")

    def __init__(self, name: str, *arguments: Any, due: int = ALWAYS):
        self.name, self._memory = name, (ctypes.c_int64 * ROW_WORDS)()
        self.words, self.address = memoryview(self._memory).cast("B").cast("q"), ctypes.addressof(self._memory)
        self.words[FUNCTION], self.words[DUE] = address_of(name), due
        for place, argument in enumerate(arguments, FIRST):
            self.words[place] = int(argument)

    def set(self, number: int, value: int) -> None:
        """Sets an argument."""
        self.words[FIRST + number] = value

    @property
    def is_due(self) -> bool:
        """True if the next run makes the call."""
        return self.words[DUE] != NEVER

    def set_due(self, due: int) -> None:
        """Sets when the call is made."""
        self.words[DUE] = due


class Commands:
    """Rows called in order.

    rows:  in order
    last:  result, minus the status, if the last one fails
    """

    def __init__(self, caller: Caller, rows: Sequence[Row]):
        self._caller, self.rows = caller, tuple(rows)
        self._addresses = (ctypes.c_void_p * max(1, len(rows)))(*[row.address for row in rows])
        self._start, self._count, self.last = ctypes.addressof(self._addresses), len(rows), (len(rows) - 1) << 32

    def __call__(self) -> None:
        """Makes the calls that are due.

        Raises:
          DeviceError:      one failed.
          OutOfMemoryError: the driver is out of memory.
        """
        ended = self.ended()
        if ended:
            raise self.failed(ended)

    def ended(self) -> int:
        """Makes the calls that are due; returns 0, or the failing call's number and status."""
        return self._caller(self._start, self._count)

    def failed(self, ended: int) -> Exception:
        """Returns the error for a result of `ended`."""
        return failed(self.rows[ended >> 32].name, ended & 0xFFFFFFFF)


def caller_source() -> Source:
    """Returns the native function as text for `compile_source`."""
    places = range(ARGUMENTS_MAX)
    loads = "".join(
        f"  %p{i} = getelementptr i64, ptr %row, i64 {FIRST + i}\n  %a{i} = load i64, ptr %p{i}, align 8\n" for i in places
    )
    text = CALLS_OF_ROWS.replace("LOADS", loads).replace("ARGUMENTS", ", ".join(f"i64 %a{i}" for i in places))
    return Source(CALLER, "llvm", text, (), (), (Launch(SYMBOL, 1, 1, 1),))


CALLS_OF_ROWS = r"""
define i64 @make_calls(ptr %rows, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %some = icmp slt i64 %i, %count
  br i1 %some, label %look, label %done
look:
  %row.at = getelementptr ptr, ptr %rows, i64 %i
  %row = load ptr, ptr %row.at, align 8
  %due = load i64, ptr %row, align 8
  %is.due = icmp ne i64 %due, 0
  br i1 %is.due, label %make, label %next
make:
  %function.at = getelementptr i64, ptr %row, i64 1
  %function = load ptr, ptr %function.at, align 8
LOADS  %status = call i32 %function(ARGUMENTS)
  %has.failed = icmp ne i32 %status, 0
  br i1 %has.failed, label %failed, label %succeeded
succeeded:
  %due.later = and i64 %due, 2
  store i64 %due.later, ptr %row, align 8
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %head
failed:
  %wide = zext i32 %status to i64
  %number = shl i64 %i, 32
  %ended = or i64 %number, %wide
  ret i64 %ended
done:
  ret i64 0
}
"""
