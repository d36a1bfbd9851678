"""mbarriers: the 64 bits that stand for one in shared memory, and what each operation makes of them.

In:    the word, a count or a number of bytes
Out:   the word after it

PTX ISA 9.0, 9.7.13.15: "mbarrier". The state is opaque there, so its fields lie here as they please: bit 0 the parity of
the phase, then 20 bits of arrivals expected, 20 of those pending, 21 of bytes pending with a sign; the highest is set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.ptx.module import PtxError

MOST = (1 << 20) - 1  # of arrivals, and of bytes on either side of 0
ALIVE = 1 << 63


@dataclass(frozen=True)
class State:
    """Of a phase that is not complete.

    tx:  bytes that were announced and have not come; below 0 where they come first
    """

    parity: int
    expected: int
    pending: int
    tx: int

    def word(self) -> int:
        return ALIVE | self.parity | self.expected << 1 | self.pending << 21 | (self.tx & 0x1FFFFF) << 41


def read(word: int) -> State:
    """Reads a word.

    Raises:
      PtxError: nobody has initialised it, or something else was written over it.
    """
    tx = word >> 41 & 0x1FFFFF
    state = State(word & 1, word >> 1 & MOST, word >> 21 & MOST, tx - (1 << 21) if tx >> 20 else tx)
    if state.word() != word or not state.expected or state.pending > state.expected:
        raise PtxError(f"{word:#018x} in shared memory is no mbarrier: not initialised, invalidated, or written over.")
    return state


def init(count: int) -> int:
    if not 1 <= count <= MOST:
        raise PtxError(f"mbarrier.init: {count} arrivals; 1 to {MOST} can be.")
    return State(0, count, count, 0).word()


def invalidate(word: int) -> int:
    """Returns a word that is no mbarrier; only one that is can be made so."""
    read(word)
    return 0


def arrive(word: int, count: int = 1, announced: int = 0) -> int:
    """Announces bytes, then counts arrivals: as mbarrier.arrive.expect_tx does."""
    state = read(expect(word, announced))
    if not 1 <= count <= state.pending:
        there = state.expected - state.pending
        raise PtxError(f"mbarrier.arrive: {count} more, where {there} of {state.expected} have arrived.")
    return _next_if_complete(replace(state, pending=state.pending - count))


def expect(word: int, nbytes: int) -> int:
    return _with_bytes(word, nbytes)


def complete(word: int, nbytes: int) -> int:
    """Counts bytes that have come."""
    return _next_if_complete(read(_with_bytes(word, -nbytes)))


def is_complete(word: int, parity: int) -> bool:
    """Whether the phase of a parity is complete: that before the one which is under way."""
    if parity not in (0, 1):
        raise PtxError(f"a parity is 0 or 1, not {parity}.")
    return read(word).parity != parity


def _with_bytes(word: int, nbytes: int) -> int:
    state = read(word)
    tx = state.tx + nbytes
    if abs(tx) > MOST:
        raise PtxError(f"an mbarrier counts {tx} bytes; {MOST} on either side of 0 can be.")
    return replace(state, tx=tx).word()


def _next_if_complete(state: State) -> int:
    if state.pending or state.tx:
        return state.word()
    return State(state.parity ^ 1, state.expected, state.expected, 0).word()
