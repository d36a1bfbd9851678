"""The memory of a launch: state spaces of bytes, each access checked.

In:    a launch's buffers, at addresses of the host
Out:   `Memory`: loads and stores by address, one for each lane;  `Region`

Addresses are pretended ones: a buffer has 2^40 bytes of them for itself, so that an access past its end meets nobody
else's. It begins at the remainder by 256 at which it begins on the host: what is aligned here is aligned there. Shared,
local and parameter memory are windows of generic addresses (PTX ISA 9.0, 5.1 and 9.7.9.20); within such a space an address
is a number from 1024 on, so that 0 is never one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.ptx.lanes import Array, Lanes, Layout
from tests.ptx.module import PtxError

START = 1024  # address of the first byte in shared, local and parameter space
REGION_BITS = 40
WINDOWS = {"shared": 0x7F01 << 48, "local": 0x7F02 << 48, "param": 0x7F03 << 48}
POISON = 0xA5  # what nobody wrote


class Region:
    """Bytes that lie together.

    name:      for errors
    base:      address of the first byte
    nbytes:    of each owner: of a lane, of a block, or of everybody
    bytes:     of all owners, one behind the other
    written:   0xFF for each byte that has been written; None where that is not looked at
    """

    def __init__(self, name: str, base: int, nbytes: int, data: Array, is_watched: bool = False):
        self.name, self.base, self.nbytes, self.bytes = name, base, nbytes, data
        self.written = np.zeros_like(data) if is_watched else None

    def load(self, offsets: Array, nbytes: int) -> Array:
        return self._load(self.bytes, offsets, nbytes)

    def _load(self, data: Array, offsets: Array, nbytes: int) -> Array:
        """Returns what lies at each offset, as unsigned numbers."""
        if self.base % nbytes == 0 and self.nbytes % nbytes == 0:
            return data.view(f"u{nbytes}")[offsets // nbytes]
        return data[offsets[:, None] + np.arange(nbytes)].view(f"u{nbytes}")[:, 0]

    def store(self, offsets: Array, values: Array) -> None:
        """Stores unsigned numbers; of two lanes that write to one place the last one wins."""
        nbytes = values.itemsize
        for data, source in [(self.bytes, values)] + ([] if self.written is None else [(self.written, ~(values & 0))]):
            if self.base % nbytes == 0 and self.nbytes % nbytes == 0:
                data.view(f"u{nbytes}")[offsets // nbytes] = source
            else:
                data[offsets[:, None] + np.arange(nbytes)] = np.ascontiguousarray(source)[:, None].view(np.uint8)

    def is_written(self, offsets: Array, nbytes: int) -> Array:
        """Returns for each offset whether all bytes there have been written."""
        if self.written is None:
            return np.ones(len(offsets), bool)
        return self._load(self.written, offsets, nbytes) == np.array(-1, np.int64).astype(f"u{nbytes}")


class Memory:
    """What the lanes of a machine can reach.

    buffers:  regions of the global space
    private:  "shared", "local" and "param", whose region has one owner for a block, a lane, and all
    """

    def __init__(self, layout: Layout, buffers: Sequence[Region], nbytes: dict[str, int]):
        self.layout, self.buffers = layout, list(buffers)
        count = {"shared": layout.blocks, "local": layout.blocks * layout.threads, "param": 1}
        self.owner = {"shared": layout.block, "local": np.arange(count["local"]), "param": np.zeros(count["local"], int)}
        self.private = {}
        for space, owners in count.items():
            rounded = -(-nbytes.get(space, 0) // 16) * 16
            data = np.full(owners * rounded, POISON, np.uint8)
            self.private[space] = Region(space, START, rounded, data, is_watched=space == "shared")
        self.ends = {space: START + nbytes.get(space, 0) for space in count}

    # ---- generic addresses ----
    def space_of(self, addresses: Array) -> Array:
        """Returns for each generic address its window, 0 for the global space."""
        high = (addresses >> np.uint64(48)).astype(np.int64)
        return np.where(high >= 0x7F00, high, 0)

    def parts(self, space: str, addresses: Array) -> list[tuple[str, Array | None, Array]]:
        """Splits an access by space: (space, which of the lanes or None for all, addresses in that space)."""
        if space:
            return [(space, None, addresses)]
        windows = self.space_of(addresses)
        found: list[tuple[str, Array | None, Array]] = []
        names = {0: "global", **{base >> 48: name for name, base in WINDOWS.items()}}
        for window in np.unique(windows):
            name = names[int(window)]
            mask = None if (windows == window).all() else windows == window
            own = addresses if mask is None else addresses[mask]
            found.append((name, mask, own - np.uint64(WINDOWS.get(name, 0))))
        return found

    # ---- accesses ----
    def load(self, space: str, addresses: Array, nbytes: int, lanes: Lanes) -> Array:
        """Returns the unsigned numbers of 1, 2, 4 or 8 bytes at an address for each lane; "" is a generic address."""
        result = np.empty(len(addresses), f"u{nbytes}")
        for name, mask, own in self.parts(space, addresses):
            which = lanes if mask is None else lanes.where(mask)
            values = np.empty(len(own), f"u{nbytes}")
            for region, chosen, offsets in self._places(name, own, nbytes, which):
                missing = ~region.is_written(offsets, nbytes)
                if missing.any():
                    bad = int(np.flatnonzero(missing)[0])
                    lane, at = int(which.at[chosen][bad]), int(own[chosen][bad]) - START
                    who = self.layout.names(lane)
                    raise PtxError(f"{who} reads {nbytes} bytes at {at} of {region.name} memory, which nobody wrote.")
                values[chosen] = region.load(offsets, nbytes)
            result[slice(None) if mask is None else mask] = values
        return result

    def store(self, space: str, addresses: Array, values: Array, lanes: Lanes) -> None:
        """Stores an unsigned number for each lane, in the order of lanes."""
        for name, mask, own in self.parts(space, addresses):
            which = lanes if mask is None else lanes.where(mask)
            given = values if mask is None else values[mask]
            for region, chosen, offsets in self._places(name, own, values.itemsize, which):
                region.store(offsets, given[chosen])

    def _places(self, space: str, addresses: Array, nbytes: int, lanes: Lanes) -> list[tuple[Region, slice | Array, Array]]:
        """Returns for each region that is met: which of the lanes meet it, and their offsets into it."""
        self.check_aligned(addresses, nbytes, lanes, space)
        if space in self.private:
            region = self.private[space]
            offsets = addresses.astype(np.int64) - START
            self._check_inside(space, addresses, (offsets < 0) | (offsets + nbytes > self.ends[space] - START), lanes)
            return [(region, slice(None), offsets + lanes.pick(self.owner[space]) * region.nbytes)]
        numbers = (addresses >> np.uint64(REGION_BITS)).astype(np.int64) - 1
        self._check_inside(space, addresses, (numbers < 0) | (numbers >= len(self.buffers)), lanes)
        found: list[tuple[Region, slice | Array, Array]] = []
        for number in [numbers[0]] if (numbers == numbers[0]).all() else np.unique(numbers):
            region = self.buffers[int(number)]
            mask = numbers == number
            chosen = slice(None) if mask.all() else mask
            offsets = (addresses[chosen] - np.uint64(region.base)).astype(np.int64)
            outside = (offsets < 0) | (offsets + nbytes > region.nbytes)
            which = lanes if mask.all() else Lanes(lanes.at[mask], False)
            self._check_inside(region.name, addresses[chosen] - np.uint64(region.base), outside, which)
            found.append((region, chosen, offsets))
        return found

    def check_aligned(self, addresses: Array, nbytes: int, lanes: Lanes, space: str) -> None:
        """Checks that addresses are multiples of what is accessed.

        Raises:
          PtxError: one is not.
        """
        off = (addresses & np.uint64(nbytes - 1)) != 0
        if off.any():
            bad = int(np.flatnonzero(off)[0])
            who, at = self.layout.names(int(lanes.at[bad])), int(addresses[bad])
            raise PtxError(f"{who} accesses {nbytes} bytes of {space} memory at {at:#x}, which is no multiple of {nbytes}.")

    def _check_inside(self, name: str, addresses: Array, outside: Array, lanes: Lanes) -> None:
        if outside.any():
            bad = int(np.flatnonzero(outside)[0])
            place = int(addresses[bad].astype(np.int64))
            raise PtxError(f"{self.layout.names(int(lanes.at[bad]))} accesses {name} memory at {place}, outside of it.")
