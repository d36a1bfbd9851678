"""Random bits: a sequence determined by a seed, with its position in a tensor's cell.

Draw number n of a generator has the key threefry(n, seed); element i of it has the bits threefry(i, key).
Outside a trace the host knows the number and computes the key, which enters the graph as a small buffer, so that
equal draws are equal programs. Inside a trace the cell holds the number, as state that the captured plan advances. A draw
outside a jitted function advances the number at once, even if its tensor is never computed; a jitted call that raises an
error does not advance it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.codegen.passes.integers import PARITY, ROTATIONS
from picograd.device import device as Device
from picograd.engine.devices import default_device, device_named, device_or_default
from picograd.engine.realize import from_host, realize, to_host
from picograd.errors import ArgumentError
from picograd.interrupts import whole_context
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.tensor.build import whole
from picograd.tensor.cell import Cell, TakenBuffers, changing, replace_op, set_op, trace
from picograd.tensor.modes import Mode

__all__ = [
    "Generator", "default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
]  # fmt: skip

MASK = 0xFFFFFFFF  # 32 bits
KEYS_AHEAD = 64  # keys computed together: NumPy takes as long for all of them as Python for ten


class Word(Cell):
    """A cell with one uint64 that the host usually knows; it gets memory when a plan reads it.

    number:  its value; None once a plan may have written to it
    """

    __slots__ = ("number",)
    number: int | None

    def __init__(self, number: int, device: str):
        super().__init__(_word(number, device), device)
        self.number = number

    @property
    def content(self) -> Any:
        """The present value, as of any cell; memory for it is made here."""
        while (held := _content.__get__(self)) is None:
            assert self.device is not None
            if (number := self.number) is not None:  # None: another thread is giving it memory
                made = _word(number, self.device).arg
                with changing:
                    if _content.__get__(self) is None and self.number == number:  # no other thread has drawn
                        _content.__set__(self, made)
        return held

    @content.setter
    def content(self, value: Any) -> None:
        self.number = None
        _content.__set__(self, value)

    def on_host(self) -> int:
        """Returns the value; it is read from the device only if the host does not know it."""
        number = self.number
        if number is None:
            if (active := trace.get()) is not None:
                active.on_host_read("get_rng_state")
            op = self.op
            number = int(to_host(realize([op])[0]))
            with changing:
                if _content.__get__(self) == op.arg:  # else it is a graph, taken by a plan, or another value by now
                    self.number = number
        return number

    def start(self, number: int) -> None:
        """Sets the number; outside a trace without the device, which a forked child must not use."""
        if trace.get() is not None:
            set_op(self, _word(number, self.device or default_device()))
            return
        while True:
            if isinstance(held := _content.__get__(self), TakenBuffers):
                held.leave(self)  # waits while the plan runs
            with changing:
                if not isinstance(_content.__get__(self), TakenBuffers):
                    _content.__set__(self, None)
                    self._named, self.number = None, number
                    return

    def advance(self) -> int:
        """Adds 1 and returns the number before, outside a trace. Several threads get different numbers."""
        while True:
            number = self.number
            number = self.on_host() if number is None else number
            with changing:
                if self.number == number:  # no other thread has taken it
                    _content.__set__(self, None)
                    self.number = (number + 1) % 2**64
                    return number
                if self.number is not None:  # another thread has drawn
                    continue
            before = self.op
            number = int(to_host(realize([before])[0]))
            if replace_op(self, before, _word((number + 1) % 2**64, str(self.device))):
                return number


_content = Cell.__dict__["content"]  # the slot


class GeneratorState:
    """The position of one device in the sequence.

    seed, count:  cells of one uint64 each
    ahead:        a seed, a number, and keys that were computed together: of draw number * KEYS_AHEAD and the next ones
    """

    def __init__(self, seed: int, device: str):
        self.seed, self.count = Word(seed, device), Word(0, device)
        self.ahead: tuple[int, int, list[int]] = (seed, 0, [])

    def start(self, seed: int, count: int) -> None:
        """Continues with draw number `count` of the sequence of `seed`."""
        for cell, number in ((self.seed, seed), (self.count, count)):
            cell.start(number)

    def key(self, count: int) -> int:
        """Returns the key of a draw."""
        seed, (of, begun, known) = self.seed.number, self.ahead
        seed = self.seed.on_host() if seed is None else seed
        number, place = divmod(count, KEYS_AHEAD)
        if known and begun == number and of == seed:
            return known[place]
        if place or not number:  # programs with few draws do not need further keys
            return int(threefry(count, seed))
        keys: list[int] = threefry(count + np.arange(KEYS_AHEAD, dtype=np.uint64), seed).tolist()
        self.ahead = seed, number, keys
        return keys[0]


class Generator:
    """A sequence of random bits determined by a seed. Each device runs through the same sequence.

    Args:
      seed:    a number; None: one from the operating system. A name is a device, as in PyTorch
      device:  device of get_state and set_state; None: that of new tensors

    >>> a, b = Generator(1), Generator(1)
    >>> bool((Tensor.rand(3, generator=a) == Tensor.rand(3, generator=b)).all())
    True
    """

    def __init__(self, seed: int | str | None = None, device: str | None = None):
        if isinstance(seed, str):
            seed, device = None, seed
        self._device = None if device is None else device_named(device)
        self.states: dict[str, GeneratorState] = {}
        self._made_in = trace.get()
        self.manual_seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    @property
    def device(self) -> Device:
        """Device of get_state and set_state.

        >>> Generator(device="cpu").device
        device(type='cpu')
        """
        return Device(self._device or default_device())

    def __repr__(self) -> str:
        return f"Generator({self._seed}{'' if self._device is None else f', device={self._device.lower()!r}'})"

    def __reduce__(self) -> tuple[Any, ...]:  # a copy continues from the same position
        return _generator, (self._seed, {device: self.get_state(device) for device in list(self.states)})

    def manual_seed(self, seed: int) -> Generator:
        """Restarts the sequence with `seed` on every device; returns self.

        >>> a = Generator(1)
        >>> Tensor.rand(2, generator=a)
        Tensor([0.8626317, 0.6300258])
        >>> Tensor.rand(2, generator=a.manual_seed(1))
        Tensor([0.8626317, 0.6300258])
        """
        if trace.get() not in (None, self._made_in):
            self.state(default_device())  # so that the second trace finds the same cells as the first
        self._seed = whole("manual_seed", "seed", seed) & (2**64 - 1)
        for state in self.states.values():
            state.start(self._seed, 0)
        return self

    def initial_seed(self) -> int:
        """Returns the seed of the last restart.

        >>> Generator(7).initial_seed()
        7
        """
        return self._seed

    def get_state(self, device: str | None = None) -> tuple[int, int]:
        """Returns the position in the sequence on a device: the seed and the number of draws so far.

        Args:
          device: default: that of new tensors

        >>> a = Generator(1)
        >>> state = a.get_state()
        >>> first = Tensor.rand(2, generator=a)
        >>> bool((Tensor.rand(2, generator=a.set_state(state)) == first).all())
        True
        """
        state = self.state(device_or_default(device or self._device))
        return state.seed.on_host(), state.count.on_host()

    def set_state(self, new_state: Sequence[int], device: str | None = None) -> Generator:
        """Continues on one device from the position that `get_state` returned; returns self.

        Args:
          new_state: a result of get_state
          device:    default: that of new tensors

        Raises:
          ArgumentError: new_state is not a result of get_state.

        >>> Generator(1).set_state(Generator(7).get_state()).initial_seed()
        7
        """
        given = new_state if isinstance(new_state, Sequence) and not isinstance(new_state, str) else ()
        numbers = [whole("set_state", "new_state", number) for number in given]
        if len(numbers) != 2 or not all(0 <= number < 2**64 for number in numbers):
            raise ArgumentError(f"set_state: a state is what get_state returned, two numbers, got {new_state!r}.")
        self._seed, count = numbers
        self.state(device_or_default(device or self._device)).start(self._seed, count)
        return self

    def state(self, device: str) -> GeneratorState:
        """Returns the state on a device, made on first use."""
        found = self.states.get(device)
        if found is None:
            with Mode(trace, self._made_in):  # it counts as made where its generator was
                made = GeneratorState(self._seed, str(device))
                return self.states.setdefault(str(device), made)  # another thread may have been first
        return found

    def next_key(self, device: str) -> Op:
        """Returns the uint64 key of the next draw, and advances."""
        state = self.state(device)
        active = trace.get()
        if active is not None:
            active.on_read(state.seed)
            active.on_read(state.count)
            number = state.count.op
            set_op(state.count, _plus_one(number))
            return Op(OpCode.THREEFRY, dtypes.uint64, (number, state.seed.op))
        return _word(state.key(state.count.advance()), str(state.count.device))


def _generator(seed: int, states: dict[str, tuple[int, int]]) -> Generator:
    generator = Generator(seed)
    for device, state in states.items():
        generator.set_state(state, device)
    generator._seed = seed
    return generator


def threefry(counter: Any, key: int) -> Any:
    """Returns OpCode.THREEFRY of two 64-bit numbers: 20 rounds on their halves; or of an array and a number.

    Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
    """
    keys = [key >> 32, key & MASK]
    keys.append(keys[0] ^ keys[1] ^ PARITY)
    a, b = (counter >> 32) + keys[0] & MASK, counter + keys[1] & MASK
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            a = a + b & MASK
            b = (b << rotation & MASK | b >> 32 - rotation) ^ a
        a = a + keys[(group + 1) % 3] & MASK
        b = b + keys[(group + 2) % 3] + group + 1 & MASK
    return a << 32 | b


def _word(value: int, device: str) -> Op:
    return from_host(np.array(value, dtype=np.uint64), dtypes.uint64, device)


def _plus_one(number: Op) -> Op:
    """Returns number + 1; repeated calls make one ADD of a larger number."""
    if number.code is OpCode.ADD and number.src[1].code is OpCode.CONST:
        return number.src[0] + const(int(number.src[1].arg) + 1, number.dtype)
    return number + const(1, number.dtype)


default_generator = Generator(0)


@whole_context
def resumed() -> Iterator[None]:
    """Opens a block; at its end the default generator returns to its old position on every device."""
    begun = default_generator.initial_seed()
    states = {name: default_generator.get_state(name) for name in {*default_generator.states, default_device()}}
    try:
        yield
    finally:
        default_generator.manual_seed(begun)
        for name, state in states.items():
            default_generator.set_state(state, name)


def manual_seed(seed: int) -> Generator:
    """Restarts the default generator with `seed`; returns the generator.

    >>> _ = manual_seed(7)
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Restarts the default generator with a seed of the operating system; returns the seed.

    >>> isinstance(seed(), int)
    True
    """
    manual_seed(int.from_bytes(os.urandom(8), "little"))
    return default_generator.initial_seed()


def initial_seed() -> int:
    """Returns the seed of the default generator's last restart.

    >>> _ = manual_seed(7)
    >>> initial_seed()
    7
    """
    return default_generator.initial_seed()


def get_rng_state() -> tuple[int, int]:
    """Returns the default generator's position on the device of new tensors: see `Generator.get_state`.

    >>> _ = manual_seed(7)
    >>> get_rng_state()
    (7, 0)
    """
    return default_generator.get_state()


def set_rng_state(new_state: Sequence[int]) -> None:
    """Sets the default generator to the position `new_state`, a result of `get_rng_state`.

    >>> state = get_rng_state()
    >>> first = Tensor.rand(2)
    >>> set_rng_state(state)
    >>> bool((Tensor.rand(2) == first).all())
    True
    """
    default_generator.set_state(new_state)
