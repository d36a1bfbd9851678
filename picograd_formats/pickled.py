"""Pickles, read by a machine that knows containers, text, numbers and arrays, and runs nothing that a file names.

Python's own unpickler imports and calls everything that a pickle names, sets states on any object, and makes a memo of any
size that a file asks for. Here a name is a key of a table, an argument of a builder in that table, or refused; nothing is
larger than the bytes that exist, nothing recurses, and only plain values are hashed. NumPy itself would accept a dtype of
objects and read the bytes as addresses: here its arrays, scalars and dtypes are numbers and bools only.

Source: CPython, Lib/pickletools.py, protocols 0 to 5.
"""

from __future__ import annotations

import math
import re
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from picograd.device import device
from picograd.dtype import DType
from picograd.errors import DataError
from picograd.record import Record

LINE_NBYTES_MAX = 2**20  # of text that ends with its line, in protocol 0
LONG = (list, tuple, dict, set, frozenset, str, bytes, bytearray)
GIVEN_MAX = 8  # elements and characters of arguments per byte of a file
KEY_MAX = 2**61 - 1  # smaller integers have distinct hashes
PLAIN = (str, bytes, int, float, complex, bool, type(None), DType, device)  # types of keys that are hashed, all by value


class Builder(Record, eq=False):
    """A name that a pickle may call, or pass as an argument.

    name:   "collections.OrderedDict"
    build:  makes the value from the arguments; None: the name is only an argument
    """

    name: str
    build: Callable[..., Any] | None = None


class Unfinished:
    """A value that is completed by a state that follows.

    finish:  makes the value
    places:  its places in the memo
    """

    def __init__(self, finish: Callable[[Any], Any]):
        self.finish = finish
        self.places: list[int] = []


class Stored:
    """An object of a class that picograd lacks, as a file describes it; none of its code is run.

    name:   its class or function, such as "argparse.Namespace"
    args:   arguments of its construction
    state:  its state: usually a dict, whose entries are attributes here
    items:  values appended to it; entries as (key, value)
    """

    def __init__(self, name: str, args: Any):
        self.name, self.args, self.state = name, args, None
        self.items: list[Any] = []

    def __getattr__(self, attribute: str) -> Any:
        state = self.__dict__.get("state")
        if isinstance(state, dict) and attribute in state:
            return state[attribute]
        raise AttributeError(f"a stored {self.__dict__.get('name')} has no {attribute!r}", name=attribute, obj=self)

    def __repr__(self) -> str:
        return f"<stored {self.name}>"


class Unpickler:
    """A stack machine on an open file.

    Args:
      file:        read from its current position
      nbytes:      its size
      names:       "module.name" -> its value, or a Builder
      persistent:  makes a value from a persistent id
      encoding:    encoding of Python 2's text
      others:      make names outside the table classes of Stored objects, instead of refusing them
    """

    def __init__(
        self,
        file: BinaryIO,
        nbytes: int,
        names: Mapping[str, Any],
        persistent: Callable[[Any], Any] | None = None,
        encoding: str = "utf-8",
        others: bool = False,
    ):
        self.file, self.nbytes, self.names, self.persistent = file, nbytes, names, persistent
        self.encoding, self.others = encoding, others

    def load(self) -> Any:
        """Returns the value of the pickle at the file's position, and leaves the position after it.

        Raises:
          DataError: it is cut short or damaged, or has a name outside the table.
        """
        self.at, self.num_unfinished, self.num_given = self.file.tell(), 0, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        code = 0
        try:
            while (code := self.read(1)[0]) != STOP:
                STEPS[code](self)
            (value,) = self.stack
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"its pickle is damaged at byte {self.at:,} (opcode {code:#04x})") from None
        if self.num_unfinished or self.marks:
            raise DataError("its pickle is damaged: a value in it has no end")
        return value

    # ---- bytes ----
    def read(self, nbytes: int) -> bytes:
        """Returns the next bytes."""
        if not 0 <= nbytes <= self.nbytes - self.at:
            raise DataError(f"its pickle is cut short: {nbytes:,} bytes are missing at byte {self.at:,}")
        data = self.file.read(nbytes)
        self.at += nbytes
        return data

    def number(self, layout: str) -> Any:
        """Returns a number in a format of `struct`."""
        return struct.unpack(layout, self.read(struct.calcsize(layout)))[0]

    def line(self) -> bytes:
        """Returns the bytes up to the end of the line."""
        data = self.file.readline(LINE_NBYTES_MAX)
        self.at += len(data)
        if not data.endswith(b"\n"):
            raise DataError(f"its pickle is cut short at byte {self.at:,}")
        return data[:-1]

    # ---- the stack ----
    def push(self, value: Any) -> None:
        """Puts a value on the stack."""
        self.stack.append(value)

    def top(self) -> Any:
        """Returns the last value, and keeps it on the stack."""
        if self.marks and len(self.stack) <= self.marks[-1]:  # it is from before the mark
            raise IndexError
        return self.stack[-1]

    def pop(self) -> Any:
        """Pops the last value."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise IndexError
        return self.stack.pop()

    def popped(self, count: int) -> list[Any]:
        """Pops the last values, in the order in which they were pushed."""
        return [self.pop() for _ in range(count)][::-1]

    def marked(self) -> list[Any]:
        """Pops all values since the last mark, and the mark."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    # ---- values ----
    def named(self, module: str, name: str) -> Any:
        """Returns the value of a name; Python 2's modules are renamed."""
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
        full = f"{module}.{name}"
        if full in self.names:
            return self.names[full]
        if not self.others:
            raise DataError(
                f"its pickle names {full}, which is not a tensor, container or number that picograd reads",
                hint="weights_only=False reads other classes as records of their attributes, and runs no code.",
            )
        return Builder(full, lambda *args: Stored(full, args))

    def call(self, builder: Any, args: Any) -> None:
        """Pushes the result of a builder."""
        if not isinstance(builder, Builder) or type(args) is not tuple:
            raise TypeError
        if builder.build is None:
            raise DataError(f"its pickle calls {builder.name}")
        self.num_given += sum(len(arg) for arg in args if isinstance(arg, LONG))
        if self.num_given > GIVEN_MAX * self.nbytes:  # a long one, repeatedly
            raise DataError("its pickle copies values more often than a file of tensors needs")
        value = builder.build(*args)
        self.num_unfinished += isinstance(value, Unfinished)
        self.push(value)

    def put(self, place: int) -> None:
        """Stores the last value in the memo."""
        value = self.memo[place] = self.top()
        if isinstance(value, Unfinished):
            value.places.append(place)

    def build(self) -> None:
        """Sets the state of the last value but one."""
        value, state = self.popped(2)
        if isinstance(value, Unfinished):
            finished = value.finish(state)
            for place in value.places:
                self.memo[place] = finished
            self.num_unfinished -= 1
            value = finished
        elif isinstance(value, Stored):
            value.state = state
        elif type(value) is not OrderedDict:  # its attributes, such as _metadata, are ignored
            raise TypeError
        self.push(value)

    def append(self, values: list[Any]) -> None:
        """Appends values to the list before them."""
        owner = self.top()
        if type(owner) is list:
            owner.extend(values)
        else:
            stored(owner).items.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Sets keys and values, in turn, in the dict before them."""
        owner, pairs = self.top(), list(zip(values[::2], values[1::2], strict=True))
        if isinstance(owner, dict):
            owner.update((key_of(key), value) for key, value in pairs)
        else:
            stored(owner).items.extend(pairs)

    def add_items(self, values: list[Any]) -> None:
        """Adds values to the set before them."""
        owner = self.top()
        if type(owner) is not set:
            raise TypeError
        owner.update(map(key_of, values))

    def sized(self, layout: str, made: Callable[[bytes], Any]) -> None:
        """Pushes the value of bytes that follow their length."""
        self.push(made(self.read(self.number(layout))))

    def old_text(self, data: bytes) -> str:
        """Returns text that Python 2 wrote."""
        return data.decode(self.encoding)

    def persist(self, identity: Any) -> None:
        """Pushes the value of a persistent id."""
        if self.persistent is None:
            raise TypeError
        self.push(self.persistent(identity))

    def named_by(self, module: Any, name: Any) -> None:
        """Pushes the value of a name."""
        if type(module) is not str or type(name) is not str:
            raise TypeError
        self.push(self.named(module, name))


def stored(value: Any) -> Stored:
    """Returns a Stored object unchanged.

    Raises:
      TypeError: it is another value.
    """
    if not isinstance(value, Stored):
        raise TypeError
    return value


def key_of(value: Any) -> Any:
    """Returns a key of a dict, or an element of a set: a plain value, or a tuple of these.

    Raises:
      DataError: it is something else, whose hash might take very long.
    """
    parts = value if type(value) is tuple else (value,)
    if not all(type(part) in PLAIN and (type(part) is not int or abs(part) < KEY_MAX) for part in parts):
        raise DataError(f"its pickle has a key of type {type(value).__name__}; keys are text, numbers or tuples of these")
    return value


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _of_line(line: bytes) -> int | bool:
    """Returns the number of a line; protocol 0 and 1 write True as 01."""
    return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line)


def _quoted(machine: Unpickler) -> str:
    """Returns quoted text, with escapes as in Python's source; backslashes are decoded as bytes."""
    line = machine.line()
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1] != line[0]:
        raise ValueError
    return machine.old_text(line[1:-1].decode("unicode_escape").encode("latin1"))


def _new_with_keywords(machine: Unpickler) -> None:
    builder, args, keywords = machine.popped(3)
    if keywords != {}:
        raise TypeError
    machine.call(builder, args)


STOP = ord(".")
Step = Callable[[Unpickler], Any]
STEPS: dict[int, Step] = {
    # ---- the stack ----
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("0"): lambda m: m.pop() if not m.marks or len(m.stack) > m.marks[-1] else m.marks.pop(),
    ord("1"): lambda m: m.marked(),
    ord("2"): lambda m: m.push(m.top()),
    0x80: lambda m: m.read(1),  # the protocol
    0x95: lambda m: m.read(8),  # length of the next frame
    # ---- constants, and new containers ----
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord(")"): lambda m: m.push(()),
    ord("]"): lambda m: m.push([]),
    ord("}"): lambda m: m.push({}),
    0x8F: lambda m: m.push(set()),
    # ---- numbers ----
    ord("J"): lambda m: m.push(m.number("<i")),
    ord("K"): lambda m: m.push(m.number("<B")),
    ord("M"): lambda m: m.push(m.number("<H")),
    ord("G"): lambda m: m.push(m.number(">d")),
    0x8A: lambda m: m.sized("<B", _integer),
    0x8B: lambda m: m.sized("<i", _integer),
    ord("I"): lambda m: m.push(_of_line(m.line())),
    ord("L"): lambda m: m.push(int(m.line().removesuffix(b"L"))),
    ord("F"): lambda m: m.push(float(m.line())),
    # ---- text and bytes ----
    ord("X"): lambda m: m.sized("<I", _text),
    0x8C: lambda m: m.sized("<B", _text),
    0x8D: lambda m: m.sized("<Q", _text),
    ord("V"): lambda m: m.push(m.line().decode("raw_unicode_escape")),
    ord("T"): lambda m: m.sized("<i", m.old_text),
    ord("U"): lambda m: m.sized("<B", m.old_text),
    ord("S"): lambda m: m.push(_quoted(m)),
    ord("B"): lambda m: m.sized("<I", bytes),
    ord("C"): lambda m: m.sized("<B", bytes),
    0x8E: lambda m: m.sized("<Q", bytes),
    0x96: lambda m: m.sized("<Q", bytearray),
    # ---- containers ----
    ord("t"): lambda m: m.push(tuple(m.marked())),
    0x85: lambda m: m.push(tuple(m.popped(1))),
    0x86: lambda m: m.push(tuple(m.popped(2))),
    0x87: lambda m: m.push(tuple(m.popped(3))),
    ord("l"): lambda m: m.push(m.marked()),
    ord("d"): lambda m: _dict_of(m, m.marked()),
    ord("a"): lambda m: m.append(m.popped(1)),
    ord("e"): lambda m: m.append(m.marked()),
    ord("s"): lambda m: m.set_items(m.popped(2)),
    ord("u"): lambda m: m.set_items(m.marked()),
    0x90: lambda m: m.add_items(m.marked()),
    0x91: lambda m: m.push(frozenset(map(key_of, m.marked()))),
    # ---- the memo ----
    ord("g"): lambda m: m.push(m.memo[int(m.line())]),
    ord("h"): lambda m: m.push(m.memo[m.number("<B")]),
    ord("j"): lambda m: m.push(m.memo[m.number("<I")]),
    ord("p"): lambda m: m.put(int(m.line())),
    ord("q"): lambda m: m.put(m.number("<B")),
    ord("r"): lambda m: m.put(m.number("<I")),
    0x94: lambda m: m.put(len(m.memo)),
    # ---- names, and values made from them ----
    ord("c"): lambda m: m.named_by(m.line().decode(), m.line().decode()),
    0x93: lambda m: m.named_by(*m.popped(2)),
    ord("R"): lambda m: m.call(*m.popped(2)),
    0x81: lambda m: m.call(*m.popped(2)),
    0x92: _new_with_keywords,
    ord("b"): lambda m: m.build(),
    ord("Q"): lambda m: m.persist(m.pop()),
    ord("P"): lambda m: m.persist(m.line().decode()),
}


def _dict_of(machine: Unpickler, values: list[Any]) -> None:
    machine.push({})
    machine.set_items(values)


# ---- NumPy's arrays ----
Array = np.ndarray[Any, Any]
DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|\?|[bBhHiIlLqQefd])")  # NumPy's names of numbers and bools
NDARRAY = Builder("numpy.ndarray")


def numeric_dtype(text: Any) -> np.dtype[Any]:
    """Returns a dtype of numbers or bools from its name in a file.

    Raises:
      DataError: it is of objects, text or records.
    """
    if type(text) is not str or not DTYPE.fullmatch(text):
        raise DataError(f"it has an array of dtype {str(text)[:40]!r}; only numbers and bools are read")
    return np.dtype(text)


def array_from(data: bytes | bytearray, dtype: np.dtype[Any], shape: Any, is_fortran: bool = False) -> Array:
    """Returns an array on the bytes themselves, which several may share.

    Raises:
      DataError: the number of bytes does not match the shape.
    """
    if type(shape) is not tuple or not all(type(dim) is int and dim >= 0 for dim in shape) or len(shape) > 64:
        raise DataError(f"it has an array of shape {str(shape)[:40]}")
    if math.prod(shape) * dtype.itemsize != len(data) or any(dim >= 2**63 for dim in shape):
        raise DataError(f"it has {len(data):,} bytes for an array of shape {shape} and dtype {dtype}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def _dtype(text: Any, *flags: Any) -> Unfinished:
    """Returns a dtype without its byte order, which is the second part of its state."""

    def finish(state: Any) -> np.dtype[Any]:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise DataError("it has a dtype that is not one of numbers or bools")
        return dtype.newbyteorder(state[1])

    dtype = numeric_dtype(text)
    return Unfinished(finish)


def _array(kind: Any, shape: Any, code: Any) -> Unfinished:
    """Returns an array from its state: version, shape, dtype, order and bytes."""
    if kind is not NDARRAY:
        raise DataError("it has an array of another class than numpy.ndarray")

    def finish(state: Any) -> Array:
        *_, shape, dtype, is_fortran, data = state
        return array_from(_bytes(data), _known(dtype), shape, bool(is_fortran))

    return Unfinished(finish)


def _scalar(dtype: Any, data: Any) -> Any:
    return array_from(_bytes(data), _known(dtype), ())[()]


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> Array:
    return array_from(_bytes(data), _known(dtype), shape, order == "F")


def _known(dtype: Any) -> np.dtype[Any]:
    if not isinstance(dtype, np.dtype):
        raise TypeError
    return dtype


def _bytes(data: Any) -> bytes | bytearray:
    """Returns the bytes of an array; Python 2 wrote them as text."""
    if type(data) is str:
        return data.encode("latin1")
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError
    return data


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "multiarray._reconstruct": _array,
    "multiarray.scalar": _scalar,
    "numeric._frombuffer": _from_buffer,
}
NUMPY_NAMES: dict[str, Any] = {
    "numpy.ndarray": NDARRAY,
    "numpy.dtype": Builder("numpy.dtype", _dtype),
    **{
        f"{core}.{name}": Builder(f"{core}.{name}", build)
        for core in ("numpy.core", "numpy._core")  # of NumPy 1 and 2
        for name, build in _FUNCTIONS.items()
    },
}
