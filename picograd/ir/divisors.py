"""A number that surely divides an integer of the linear form: what tells that an address is aligned.

In:    an integer operation, and what is known of the VARs it reads
Out:   `divisor_of`
Next:  picograd/ir/intervals.py

Example:  v3 = t1 * 4;  v4 = g0 * 1024;  v5 = v3 + v4        4 divides v3 and v5, 1024 divides v4
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from picograd.ir.op import Op
from picograd.ir.opcode import OpCode


def divisor_of(op: Op, known: Mapping[Op, int]) -> int:
    """Returns a divisor of an integer, 1 where nothing is known, 0 where it is 0, which all numbers divide.

    NOTE: powers of two stay divisors where arithmetic wraps; who asks asks for these.
    """
    found = known.get(op)
    if found is not None:
        return found
    if op.code is OpCode.CONST:
        return abs(int(op.arg))
    below = [divisor_of(s, known) for s in op.src] if op.code in READ else []
    if op.code is OpCode.MUL:
        return below[0] * below[1]
    if op.code in (OpCode.ADD, OpCode.SUB, OpCode.MIN, OpCode.MAX):
        return gcd(*below)
    if op.code is OpCode.WHERE:
        return gcd(below[1], below[2])
    if op.code is OpCode.BIND:
        return below[0]
    if op.code in (OpCode.IDIV, OpCode.MOD) and op.src[1].code is OpCode.CONST and op.src[1].arg > 0:
        divisor = int(op.src[1].arg)
        if op.code is OpCode.MOD:
            return gcd(below[0], divisor)
        return below[0] // divisor if below[0] % divisor == 0 else 1
    return 1


READ = frozenset(
    {OpCode.MUL, OpCode.ADD, OpCode.SUB, OpCode.MIN, OpCode.MAX, OpCode.WHERE, OpCode.BIND, OpCode.IDIV, OpCode.MOD}
)
