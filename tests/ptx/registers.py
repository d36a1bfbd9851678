"""What the lanes hold in registers, as bits without a type; an instruction says as what it reads them.

In:    the registers that a function declares, a Layout, addresses of variables
Out:   `Registers`: read, write
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.ptx.lanes import WARP, Array, Lanes, Layout
from tests.ptx.module import NBYTES, Immediate, Operand, PtxError, Register, Sink, Special, Symbol
from tests.ptx.tokens import bits_of

# Type of PTX -> of NumPy. Those that NumPy does not have come as bits.
DTYPES = {
    "pred": np.dtype(bool), "f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "bu" for bits in (8, 16, 32, 64)},
    **{name: np.dtype(np.uint32) for name in ("f16x2", "bf16x2", "tf32")},
    **{name: np.dtype(np.uint16) for name in ("bf16", "e4m3x2", "e5m2x2")},
}  # fmt: skip


class Registers:
    """The registers of all lanes.

    bits:     name -> an array with a value for each lane, unsigned or bool; of b128 two columns
    special:  name of a register that the machine sets -> uint32 for each lane
    symbols:  name of a variable -> its address in its own space
    """

    def __init__(self, kinds: Mapping[str, str], layout: Layout, symbols: Mapping[str, int]):
        count = layout.blocks * layout.threads
        self.kinds, self.symbols = kinds, symbols
        self.bits: dict[str, Array] = {}
        self.count = count
        self.special = special_registers(layout)
        self.constants: dict[tuple[Immediate, str], Array] = {}

    def of(self, name: str) -> Array:
        """Returns the bits of a register for all lanes; what nobody wrote is a pattern that shows."""
        found = self.bits.get(name)
        if found is None:
            kind = self.kinds[name]
            if kind == "pred":
                found = np.ones(self.count, bool)
            else:
                nbytes = NBYTES[kind]
                shape = (self.count, 2) if nbytes == 16 else (self.count,)
                found = np.full(shape, 0xFFFFA5A5FFFFA5A5, np.uint64).astype(f"u{min(nbytes, 8)}")
            self.bits[name] = found
        return found

    def read(self, operand: Operand, kind: str, lanes: Lanes) -> Array:
        """Returns the values of an operand for some lanes, as a type of PTX; of a wider register its low bits."""
        if isinstance(operand, Register):
            bits = lanes.pick(self.of(operand.name))
            if kind == "pred":
                return ~bits if operand.negated else bits
            return as_type(bits, kind, operand.name)
        if isinstance(operand, Immediate):
            key = (operand, kind)
            if key not in self.constants:
                if kind == "pred":
                    self.constants[key] = np.array([operand.value != 0])
                else:
                    nbytes = NBYTES[kind]
                    self.constants[key] = np.array([bits_of(operand, kind)], f"u{nbytes}").view(DTYPES[kind])
            return np.broadcast_to(self.constants[key], (len(lanes),))
        if isinstance(operand, Special):
            return as_type(lanes.pick(self._special(operand.name)), kind, operand.name)
        if isinstance(operand, Symbol):
            address = np.array([self.address_of(operand)], np.uint64)
            return np.broadcast_to(as_type(address, kind, operand.name), (len(lanes),))
        raise PtxError(f"{operand} is no value.")

    def _special(self, name: str) -> Array:
        if name not in self.special:
            raise PtxError(f"{name} is a register that this machine does not have.")
        return self.special[name]

    def address_of(self, symbol: Symbol) -> int:
        """Returns the address of a variable, in its own space."""
        if symbol.name not in self.symbols:
            raise PtxError(f"{symbol.name!r} is declared nowhere.")
        return self.symbols[symbol.name] + symbol.offset

    def write(self, operand: Operand, values: Array, lanes: Lanes) -> None:
        """Stores values; a narrower number is extended, by its sign if it has one."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise PtxError(f"{operand} is no register that can be written.")
        target = self.of(operand.name)
        if target.dtype != bool:
            if values.dtype.itemsize == target.dtype.itemsize:
                values = values.view(target.dtype)
            elif values.dtype.kind in "iu":
                values = values.astype(target.dtype)
            else:
                raise PtxError(f"{values.dtype} does not fit {operand.name}, a register of {target.itemsize} bytes.")
        lanes.put(target, values)


def as_type(bits: Array, kind: str, name: str) -> Array:
    """Returns unsigned numbers as a type that is no wider."""
    dtype = DTYPES[kind]
    if bits.dtype.itemsize > dtype.itemsize:
        bits = bits.astype(f"u{dtype.itemsize}")
    elif bits.dtype.itemsize < dtype.itemsize or bits.dtype == bool:
        raise PtxError(f"{name} has {bits.dtype.itemsize} bytes, and is read as {kind}.")
    return bits.view(dtype)


def special_registers(layout: Layout) -> dict[str, Array]:
    """Returns the registers that the machine sets (PTX ISA 9.0, 10); a cluster has one block."""
    count = layout.blocks * layout.threads
    place = layout.place.astype(np.uint32)
    own = np.uint32(1) << place
    to_own = own | (own - np.uint32(1))
    found = {
        "%tid.x": layout.thread, "%ctaid.x": layout.first_block + layout.block, "%laneid": place,
        "%warpid": layout.thread // WARP,
        "%lanemask_eq": own, "%lanemask_lt": to_own ^ own, "%lanemask_le": to_own, "%lanemask_gt": ~to_own,
        "%lanemask_ge": ~to_own | own,
    }  # fmt: skip
    for name, value in {"ntid": layout.threads, "nctaid": layout.grid}.items():
        found[f"%{name}.x"] = np.full(count, value)
    for name, value in {"tid": 0, "ctaid": 0, "ntid": 1, "nctaid": 1}.items():
        found |= {f"%{name}.{axis}": np.full(count, value) for axis in "yz"}
    found |= {"%cluster_ctarank": np.zeros(count), "%cluster_nctarank": np.ones(count), "%smid": np.zeros(count)}
    found["%nwarpid"] = np.full(count, -(-layout.threads // WARP))
    return {name: value.astype(np.uint32) for name, value in found.items()}
