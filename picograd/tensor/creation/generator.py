"""Where random bits come from: a sequence that a seed decides, whose state is a tensor cell.

In:    seeds
Out:   `Generator`; `default_generator`, `manual_seed`, `seed`, `initial_seed`
Next:  picograd/tensor/creation/random.py

Draw number n of a generator has the key threefry(n, seed); element i of it has the bits threefry(i, key).
Outside a trace the number is known on the host and enters the graph as a small buffer, so that equal draws are equal
programs. Inside a trace the cell holds it, as state that the captured plan advances. A draw outside a jitted function
advances at once, whatever becomes of what it was drawn for; a jitted call that raises has drawn nothing.
"""

from __future__ import annotations

import os

import numpy as np

from picograd import dtype as dtypes
from picograd.engine.realize import from_host, realize, to_host
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.tensor.build import whole
from picograd.tensor.cell import Cell, set_op, trace
from picograd.tensor.exchange.host import default_device


class GeneratorState:
    """Where one device stands in the sequence.

    seed, count:  cells of one uint64 each
    known:        an Op and the count in it: what the host knows while the cell holds that Op (a plan may have advanced it)
    """

    def __init__(self, seed: int, device: str):
        self.seed = Cell(_word(seed, device), device)
        self.count = Cell(_word(0, device), device)
        self.known = self.count.op, 0


class Generator:
    """A sequence of random bits that a seed decides. Each device runs through the same sequence.

    >>> a, b = Generator(1), Generator(1)
    >>> bool((Tensor.rand(3, generator=a) == Tensor.rand(3, generator=b)).all())
    True
    """

    def __init__(self, seed: int | None = None):
        self.states: dict[str, GeneratorState] = {}
        self._made_in = trace.get()
        self.manual_seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the sequence of `seed` anew on every device; returns self.

        >>> a = Generator(1)
        >>> Tensor.rand(2, generator=a)
        Tensor([0.8626317, 0.6300258])
        >>> Tensor.rand(2, generator=a.manual_seed(1))
        Tensor([0.8626317, 0.6300258])
        """
        if trace.get() not in (None, self._made_in):
            self.state(default_device())  # so that the second trace finds what the first finds
        self.initial_seed = whole("manual_seed", "seed", seed) & (2**64 - 1)
        for state in self.states.values():
            device = state.seed.device or default_device()
            set_op(state.seed, _word(self.initial_seed, device))
            set_op(state.count, _word(0, device))
            state.known = state.count.op, 0
        return self

    def state(self, device: str) -> GeneratorState:
        """Returns the state on a device, made when first asked for."""
        if device not in self.states:
            token = trace.set(self._made_in)  # it is as old as its generator, also when a later trace asks first
            try:
                self.states[device] = GeneratorState(self.initial_seed, str(device))
            finally:
                trace.reset(token)
        return self.states[device]

    def next_key(self, device: str) -> Op:
        """Returns the uint64 key of the next draw, and advances."""
        state = self.state(device)
        active = trace.get()
        if active is not None:
            active.on_read(state.seed)
            active.on_read(state.count)
            number = state.count.op
            set_op(state.count, _plus_one(number))
        else:
            number = state.count.op
            held, known = state.known
            known = 1 + (known if held is number else int(to_host(realize([number])[0])))
            state.count.op = after = _word(known, str(device))
            state.known = after, known
        return Op(OpCode.THREEFRY, dtypes.uint64, (number, state.seed.op))


def _word(value: int, device: str) -> Op:
    return from_host(np.array(value, dtype=np.uint64), dtypes.uint64, device)


def _plus_one(number: Op) -> Op:
    """Returns number + 1, with one ADD however often it is applied."""
    if number.code is OpCode.ADD and number.src[1].code is OpCode.CONST:
        return number.src[0] + const(int(number.src[1].arg) + 1, number.dtype)
    return number + const(1, number.dtype)


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Starts the default generator's sequence of `seed`; returns the generator.

    >>> _ = manual_seed(7)
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Starts the default generator from a seed of the operating system's; returns that.

    >>> isinstance(seed(), int)
    True
    """
    manual_seed(int.from_bytes(os.urandom(8), "little"))
    return default_generator.initial_seed


def initial_seed() -> int:
    """Returns the seed that the default generator was started from last.

    >>> _ = manual_seed(7)
    >>> initial_seed()
    7
    """
    return default_generator.initial_seed
