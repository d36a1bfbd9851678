"""Annotations as rules: whether a value fits one, and what errors say of both; objects that print as a call.

In:    values, types as annotations have them
Out:   `fits`, `described`, `shown`, `remedy`, `Shown`
"""

from __future__ import annotations

import inspect
import numbers
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MethodType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

NUMBERS: dict[type, tuple[type, ...]] = {
    float: (numbers.Real,),
    int: (numbers.Integral,),
    bool: (numbers.Integral, np.bool_),
}
SAID = {
    float: "a number", int: "an int", bool: "a bool", str: "a str", NoneType: "None", Callable: "a function",
}  # fmt: skip
# Classes of picograd by what users call them; others by their own name.
SAID_BY_NAME = {
    "Tensor": "a tensor", "TensorCore": "a tensor", "DType": "a dtype", "Generator": "a Generator", "Module": "a module",
}  # fmt: skip
PLURAL = {
    "a number": "numbers", "an int": "ints", "a tensor": "tensors", "a str": "strs", "a module": "modules",
    "a function": "functions", "a bool": "bools", "a LRScheduler": "schedules",
}  # fmt: skip
NUMERAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")


# ---- does it fit ----
def fits(value: Any, wanted: Any) -> bool:
    """True if `value` satisfies the annotation `wanted`; also if that cannot be decided."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if wanted is Any or wanted is None:
        return wanted is Any or value is None
    if origin is Literal:
        return value in parts
    if isinstance(wanted, type) and wanted in NUMBERS:  # P.args of a ParamSpec has no hash
        return isinstance(value, NUMBERS[wanted])
    if origin is None:
        return not isinstance(wanted, type) or wanted is object or isinstance(value, wanted)
    if not isinstance(origin, type) or not isinstance(value, _accepted(origin)):
        return not isinstance(origin, type)
    return _parts_fit(value, origin, parts)


def _accepted(origin: type) -> tuple[type, ...]:
    """Returns the types accepted in place of a container: lists and tuples for each other, arrays for sequences."""
    if origin in (tuple, list):
        return (tuple, list)
    return (Sequence, np.ndarray) if origin is Sequence else (origin,)


def _parts_fit(value: Any, origin: type, parts: tuple[Any, ...]) -> bool:
    """True where the elements of a container fit; an iterator is not used up for it."""
    if origin is tuple and parts[-1] is not Ellipsis:
        return len(value) == len(parts) and all(map(fits, value, parts))
    if origin is Mapping:
        return all(fits(key, parts[0]) and fits(item, parts[1]) for key, item in value.items())
    if origin in (Sequence, Iterable, list, tuple):
        if isinstance(value, (str, bytes)) or getattr(value, "ndim", 1) == 0:  # nothing to go through
            return isinstance(value, str) and parts[0] in (Any, str)
        return not isinstance(value, (Sequence, np.ndarray)) or all(fits(item, parts[0]) for item in islice(value, 1000))
    return True


# ---- in words ----
def described(wanted: Any) -> str:
    """Returns the words of errors for an annotation.

    Example: int | Sequence[int] | None  ->  "an int, a sequence of ints or None"
    """
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return _either([described(part) for part in parts])
    if origin is Literal:
        return _either([repr(part) for part in parts])
    if origin is tuple and parts[-1] is not Ellipsis:
        same = f"{len(parts)} {_plural(parts[0])}"
        return same if len(set(parts)) == 1 else f"a tuple of {' and '.join(map(described, parts))}"
    if origin in (Sequence, list, tuple):
        return f"a sequence of {_plural(parts[0])}"
    if origin is Iterable:
        return "an iterable" if parts[0] is Any else f"an iterable of {_plural(parts[0])}"
    if origin is Mapping:
        return f"a dict of {_plural(parts[1])}"
    kind = origin or wanted
    return SAID.get(kind) or _class_described(kind)


def _either(words: Sequence[str]) -> str:
    """Returns "a, b or c"; numbers are named once, for any kinds of them, and None once, of elements and of their list."""
    kept = [word for word in dict.fromkeys(words) if word not in ("a bool", "an int") or "a number" not in words]
    kept = [word for word in kept if word != "None" or not any(other.endswith(" or None") for other in kept)]
    return f"{', '.join(kept[:-1])} or {kept[-1]}" if len(kept) > 1 else kept[0]


def _class_described(kind: Any) -> str:
    """Returns the name of a class for users."""
    name = getattr(kind, "__name__", str(kind))
    return SAID_BY_NAME.get(name) or with_article(name)


def with_article(name: str) -> str:
    """Returns a name with "a" or "an" before it."""
    return f"an {name}" if name[:1] in "AEIOU" or name.startswith("nd") else f"a {name}"


def _plural(wanted: Any) -> str:
    if wanted is Any:
        return "values"
    if get_origin(wanted) in (Union, UnionType):
        return _either([_plural(part) for part in get_args(wanted)])
    said = described(wanted)
    return PLURAL.get(said) or re.sub("^a tuple", "tuples", said)


def shown(value: Any) -> str:
    """Returns a value as errors name it: its type, and what it is where that is short."""
    if value is None:
        return "None"
    kind = type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{with_article(kind)} of shape {tuple(value.shape)} and dtype {value.dtype}"
    if isinstance(value, (numbers.Number, str)):
        return f"{kind} {reprlib.repr(value)}"
    if isinstance(value, (list, tuple)):
        parts = [reprlib.repr(part) if isinstance(part, (numbers.Number, str)) else shown(part) for part in value[:5]]
        text = ", ".join([*parts, "..."] if len(value) > 5 else parts)
        return f"list [{text}]" if isinstance(value, list) else f"{kind} ({text})"
    return f"class {value.__name__}" if isinstance(value, type) else kind


def remedy(value: Any, wanted: Any) -> str | None:
    """Returns a hint for a value of the wrong type, where one mistake is the likely one; None elsewhere."""
    if isinstance(value, MethodType):
        return f"{value.__name__} is a method: call it, {value.__name__}()."
    said = described(wanted)
    if is_module(type(value)) and "iterable" in said:
        return "a list with one module in it, [module]." if "modules" in said else "model.parameters()"
    if is_module(type(value)) and said == "an Optimizer":
        return "make one first: optimizer = pg.optim.SGD(model.parameters(), lr=0.1)."
    if isinstance(value, str) and NUMERAL.fullmatch(value) and ("a number" in said or "an int" in said):
        return "a number has no quotes; float(text) and int(text) read one."
    if isinstance(value, (list, tuple)) and "a module" in said:
        return "a star before the list passes them one by one: Sequential(*layers)."
    if said == "a sequence of tensors" and hasattr(value, "requires_grad"):
        return "put them into a list: [x, y]."
    is_data = isinstance(value, (np.ndarray, list, tuple, numbers.Number))
    return "pg.tensor(...) makes a tensor of it." if is_data and "a tensor" in said else None


def is_module(kind: type) -> bool:
    """True for nn.Module and its subclasses, which this file cannot import."""
    return any(base.__name__ == "Module" for base in kind.__mro__)


# ---- as the call that makes it ----
class Shown:
    """Base of objects that print as a call of their constructor, with those of its arguments that they keep as attributes.

    Example: StepLR(optimizer=SGD, step_size=3, gamma=0.1, last_epoch=0)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        kept = [name for name in inspect.signature(type(self).__init__).parameters if name in vars(self)]
        return f"{type(self).__name__}({', '.join(f'{name}={_short(vars(self)[name])}' for name in kept)})"


def _short(value: Any) -> str:
    """Returns a number, a text or a list of them as it is written, shortened; the type of anything else."""
    if value is None or isinstance(value, (numbers.Number, str)):
        return reprlib.repr(value)
    if isinstance(value, (list, tuple)) and all(isinstance(part, (numbers.Number, str)) for part in value):
        return reprlib.repr(value)
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple, dict)) else type(value).__name__
