"""Cuts the text of PTX into words.

In:    text
Out:   Tokens
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from tests.ptx.module import NBYTES, Immediate, PtxError

# PTX ISA 4.1 to 4.5; a word holds its modifiers: ld.global.v4.f32, %tid.x, shared::cluster.
PATTERN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<string>"[^"\n]*")
    |(?P<word>\.?[%$_A-Za-z][\w$]*(?:(?:\.|::)[\w$]+)*)
    |(?P<mark>[-{}()\[\];,:@!+<>=|])""",
    re.VERBOSE | re.DOTALL,
)
FORMATS = {"f16": "e", "f32": "f", "f64": "d"}
LINES = re.compile(r"^[ \t]*\.(?:loc|file|section)\b[^\n]*$", re.MULTILINE)  # of a debugger


class Token(NamedTuple):
    """A word of PTX; `place` is where it begins in the text."""

    kind: str
    text: str
    place: int


def cut(text: str) -> list[Token]:
    """Returns the words of a text.

    Raises:
      PtxError: there is something that is no word of PTX.
    """
    text = LINES.sub(lambda found: " " * len(found[0]), text)
    tokens, place = [], 0
    while place < len(text):
        found = PATTERN.match(text, place)
        if found is None:
            raise PtxError(f"line {line_of(text, place)}: {text[place : place + 20]!r} begins no word of PTX.")
        if found.lastgroup != "blank":
            tokens.append(Token(str(found.lastgroup), found[0], place))
        place = found.end()
    return tokens


def line_of(text: str, place: int) -> int:
    """Returns the number of the line, from 1."""
    return text.count("\n", 0, place) + 1


def number_of(token: Token) -> Immediate:
    """Returns the number that a token is; 0f3F800000 holds the bits of a float32, 0d those of a float64."""
    text = token.text
    if token.kind == "int":
        digits = text.removesuffix("U")
        is_octal = digits.isdigit() and digits.startswith("0")
        return Immediate(int(digits, 8 if is_octal else 0))
    if text[:2].lower() in ("0f", "0d"):
        return Immediate(int(text[2:], 16), "f32" if text[1] in "fF" else "f64")
    return Immediate(int.from_bytes(struct.pack(">d", float(text)), "big"), "f64")


def bits_of(number: Immediate, kind: str) -> int:
    """Returns the bits of a number as a value of a type: a float becomes one of the type, an int wraps.

    >>> hex(bits_of(Immediate(0x3FF0000000000000, "f64"), "f32")), bits_of(Immediate(-1), "u8")
    ('0x3f800000', 255)
    """
    nbits = 8 * NBYTES[kind]
    if not number.format or int(number.format[1:]) == nbits:
        return number.value % (1 << nbits)
    wide = struct.unpack(f">{FORMATS[number.format]}", number.value.to_bytes(int(number.format[1:]) // 8, "big"))[0]
    if kind not in FORMATS:
        raise PtxError(f"{wide} is a float of {number.format[1:]} bits, and no {kind}.")
    return int.from_bytes(struct.pack(f">{FORMATS[kind]}", wide), "big")
