"""The head of a kernel in CUDA C or in C: its name, its parameters with their types, and the bounds of its launch.

In:    source text
Out:   `Signature`;  `included`: a source with the headers of its folder inserted

Only heads of functions are read, by regular expressions on a text without comments; the compiler reads the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, FileError
from picograd.ir.host import MAP_TYPE, without_comments
from picograd.record import Record

# By the words of a type in alphabetical order, without const and similar words.
DTYPES: dict[str, DType] = {
    "float": dtypes.float32, "float32": dtypes.float32, "double": dtypes.float64, "float64": dtypes.float64,
    "half": dtypes.float16, "__half": dtypes.float16, "float16": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "__nv_bfloat16": dtypes.bfloat16,
    "float8_e4m3": dtypes.float8_e4m3, "float8_e5m2": dtypes.float8_e5m2, "bool": dtypes.bool_,
    "int8": dtypes.int8, "int8_t": dtypes.int8, "char": dtypes.int8, "char signed": dtypes.int8,
    "uint8": dtypes.uint8, "uint8_t": dtypes.uint8, "char unsigned": dtypes.uint8,
    "int16": dtypes.int16, "int16_t": dtypes.int16, "short": dtypes.int16,
    "uint16": dtypes.uint16, "uint16_t": dtypes.uint16, "short unsigned": dtypes.uint16,
    "int": dtypes.int32, "int32": dtypes.int32, "int32_t": dtypes.int32,
    "uint32": dtypes.uint32, "uint32_t": dtypes.uint32, "int unsigned": dtypes.uint32, "unsigned": dtypes.uint32,
    "int64": dtypes.int64, "int64_t": dtypes.int64, "long long": dtypes.int64, "long": dtypes.int64,
    "uint64": dtypes.uint64, "uint64_t": dtypes.uint64, "long long unsigned": dtypes.uint64, "size_t": dtypes.uint64,
}  # fmt: skip


class Parameter(Record):
    """A parameter of a kernel.

    type:        type in the source, without the name; MAP_TYPE for tile maps
    dtype:       dtype of the number, or of the memory's elements; None: a type of the source's own
    is_pointer:  it is memory
    is_const:    memory that is only read
    """

    name: str
    type: str
    dtype: DType | None
    is_pointer: bool
    is_const: bool


class Signature(Record):
    """The head of a kernel.

    bounds:  arguments of its __launch_bounds__, or ""
    """

    name: str
    bounds: str
    parameters: tuple[Parameter, ...]

    @property
    def results(self) -> list[Parameter]:
        """Returns the parameters that the kernel writes: memory that is not const."""
        return [one for one in self.parameters if one.is_pointer and not one.is_const]

    @property
    def inputs(self) -> list[Parameter]:
        """Returns the parameters that are neither results nor maps of tiles."""
        return [one for one in self.parameters if one.type != MAP_TYPE and (not one.is_pointer or one.is_const)]


def of_all(name: str, signatures: Sequence[Signature], memory: Collection[str]) -> Signature:
    """Returns the joint head of several functions: their parameters by name, except memory between launches.

    Raises:
      ArgumentError: a name has two types.
    """
    found: dict[str, Parameter] = {}
    for one in [one for signature in signatures for one in signature.parameters if one.name not in memory]:
        known = found.setdefault(one.name, one)
        if (known.dtype, known.is_pointer) != (one.dtype, one.is_pointer):
            raise ArgumentError(f"{name}: {one.name} is {known.type!r} in one function, and {one.type!r} in another.")
        if not one.is_const:
            found[one.name] = one  # a parameter that one of them writes is a result
    return Signature(name, "", tuple(found.values()))


HEAD = re.compile(
    r"__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\((?P<bounds>(?:[^()]|\([^()]*\))*)\)\s*)?(?:void\s+)?(?P<name>\w+)\s*\("
)

MAP = re.compile(rf"{MAP_TYPE}\s*\(\s*(\w+)\s*\)")
TEMPLATE = re.compile(r"\btemplate\s*<([^<>]*)>\s*\Z")


HEAD_IN_C = re.compile(r"^(?P<bounds>)(?:extern\s+)?void\s+(?P<name>\w+)\s*\(", re.MULTILINE)


def language_of(text: str) -> str:
    """Returns "cuda" for a source with a __global__ function, else "c"."""
    return "cuda" if "__global__" in without_comments(text) else "c"


def signature_of(text: str, entry: str | None, language: str = "cuda") -> Signature:
    """Returns the head of the kernel `entry`, such as "product<16>"; None: of the only one.

    Raises:
      ArgumentError: there is no kernel of that name, or there are several and entry is None.
    """
    plain = without_comments(text)
    form = HEAD if language == "cuda" else HEAD_IN_C
    heads = {head["name"]: head for head in form.finditer(plain)}
    if not heads:
        raise ArgumentError("kernel: the source has no __global__ function and no C function `void name(...)`.")
    wanted = next(iter(heads)) if entry is None else entry.partition("<")[0].strip()
    if entry is None and len(heads) > 1:
        raise ArgumentError(f"kernel: the source has {len(heads)} kernels: {', '.join(heads)}.", f'entry="{wanted}"')
    if wanted not in heads:
        raise ArgumentError(f"kernel: the source has no kernel {wanted!r}, only {', '.join(heads)}.")
    head = heads[wanted]
    listed, bounds = _until_closed(plain, head.end()), (head["bounds"] or "").strip()
    if listed is None:
        raise ArgumentError(f"kernel: the parameters of {wanted} are not closed by a parenthesis.")
    macro = listed.strip()
    if macro.isidentifier() and (found := re.search(rf"^#define {macro}\b((?:.*\\\n)*.*)", plain, re.MULTILINE)):
        listed = found[1].replace("\\\n", " ")  # parameters shared by functions
    template = TEMPLATE.search(plain, 0, head.start())
    if template is not None and not set(re.findall(r"\w+", bounds)).isdisjoint(re.findall(r"\w+", template[1])):
        bounds = ""  # the bounds depend on the source's own parameters
    return Signature(wanted, bounds, tuple(map(_parameter, _split(listed))))


def _until_closed(text: str, start: int) -> str | None:
    """Returns the text from `start` to the parenthesis that closes one before it; None if nothing does."""
    depth = 1
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[start:end]
    return None


def _split(text: str) -> list[str]:
    """Returns the parts between commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _parameter(text: str) -> Parameter:
    """Returns a parameter such as `const float *__restrict__ x` or `Global<const float> x`.

    >>> _parameter("const float *x")
    Parameter(name='x', type='const float *', dtype=float32, is_pointer=True, is_const=True)
    """
    if of_tiles := MAP.fullmatch(text):
        return Parameter(of_tiles[1], MAP_TYPE, None, False, True)
    bare = re.sub(r"\b(__restrict__|__restrict|__grid_constant__|volatile|register)\b", " ", text.partition("=")[0])
    found = re.fullmatch(r"(?P<type>.*?)(?P<name>\w+)\s*(?P<array>\[[^\]]*\])?\s*", bare, re.DOTALL)
    if found is None or not found["type"].strip():
        raise ArgumentError(f"kernel: the parameter {' '.join(text.split())!r} has no name.")
    type_ = " ".join(found["type"].split()) + (" *" if found["array"] else "")
    held = re.fullmatch(r"Global\s*<(.*)>", type_)
    is_pointer = held is not None or "*" in type_
    element = held[1] if held else type_.partition("*")[0]
    words = re.findall(r"\w+", element)
    dtype = DTYPES.get(" ".join(sorted(word for word in words if word != "const")))
    return Parameter(found["name"], type_, dtype, is_pointer, "const" in words)


# ---- headers ----
ALREADY = ("primitives.h", "given.h")  # before the first line
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*$', re.MULTILINE)


def included(path: Path, folders: Sequence[Path] = (), known: set[Path] | None = None) -> str:
    """Returns the text of a file in which the first include of each header in its folder is replaced by its text.

    Other headers are the compiler's, or picograd's.

    Raises:
      FileError: the file cannot be read.
    """
    known = {path.resolve()} if known is None else known
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"kernel: {path} cannot be read ({error}).") from None

    def replaced(found: re.Match[str]) -> str:
        if found[1] in ALREADY:
            return ""
        header = next((place for folder in (path.parent, *folders) if (place := folder / found[1]).is_file()), None)
        if header is None:
            return found[0]
        after = f'#line {text.count(chr(10), 0, found.end()) + 2} "{path.name}"'
        if header.resolve() in known:
            return ""
        known.add(header.resolve())
        return f"{included(header, folders, known)}\n{after}"

    return f'#line 1 "{path.name}"\n{INCLUDE.sub(replaced, text)}'
