"""Calls of every public function that are right but for one argument: what test_wrong_arguments.py makes of them.

A call that is right comes from the table of operations; of what has no row there, from `CALLS`, or from annotations.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.public import plain
from tests.operations.table import Sample, all_operations, sample, with_arrays
from tools.api import INTERNAL, public_values

MODULES = ("", "nn.functional", "nn.init", "linalg", "fft", "special", "nn", "optim", "optim.lr_scheduler")


class Call(NamedTuple):
    """A function as users name it, with arguments that are right."""

    name: str
    function: Callable[..., Any]
    sample: Sample


# Each makes a new one for every call: what is stored in place is not there the next time.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "1.5": lambda: 1.5,
    "NaN": lambda: float("nan"),
    "str": lambda: "x",
    "object": object,
    "list": lambda: [1, 2],
    "list of objects": lambda: [object()],
    "int Tensor": lambda: Tensor([1, 2, 3, 4, 5, 6, 7]),
    "Tensor of five axes": lambda: Tensor(np.ones((1, 2, 1, 3, 2), np.float32)),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields what users call, by name after `pg.`; what has several names under the first."""
    seen: set[int] = set()
    for module in MODULES:
        page = importlib.import_module(f"picograd.{module}" if module else "picograd")
        for name, value in public_values(page):
            is_error = isinstance(value, type) and issubclass(value, BaseException)
            if not is_error and id(plain(value)) not in seen:
                seen.add(id(plain(value)))
                yield f"{module}.{name}".lstrip("."), value  # type: ignore[misc]
    for name in dir(Tensor):
        value = getattr(Tensor, name)
        is_method = not name.startswith("_") and name not in INTERNAL and callable(value)
        if is_method and id(plain(value)) not in seen:
            seen.add(id(plain(value)))
            yield f"Tensor.{name}", value


def rows() -> dict[Any, Sample]:
    """Returns the first call of each function that the table has, of what is not empty."""
    found: dict[Any, Sample] = {}
    for row in all_operations():
        if row.call is None:
            samples = row.samples(np.random.default_rng(0))
            found.setdefault(plain(row.ours()), samples[0])
    return found


# ---- calls of what has no row ----
def parameter() -> Tensor:
    return Tensor([1.0, 2.0], requires_grad=True)


BY_ANNOTATION: dict[str, Callable[[], Any]] = {
    "int": lambda: 2,
    "float": lambda: 0.5,
    "Each": lambda: 2,
    "Bins": lambda: 2,
    "bool": lambda: True,
    "Tensor": lambda: np.ones((2, 3)),
    "TensorCore": lambda: np.ones((2, 3)),
    "Operand": lambda: np.ones((2, 3)),
    "Iterable[Any]": lambda: [parameter()],
    "Optimizer": lambda: optim.SGD([parameter()], lr=0.1),
    "Sequence[int]": lambda: (2, 3),
    "int | Sequence[int]": lambda: 2,
    "Callable[..., Any]": lambda: lambda *args: args[0].sum(),
}
CALLS: dict[str, Callable[[], Sample]] = {}


def from_annotations(function: Callable[..., Any]) -> Sample | None:
    """Returns a call with what must be given, by the annotations; None where one of them says nothing."""
    given = []
    for name, p in inspect.signature(function).parameters.items():
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            annotation = "Tensor" if name == "self" else str(p.annotation)
            if annotation not in BY_ANNOTATION:
                return None
            given.append(BY_ANNOTATION[annotation]())
    return Sample(tuple(given))


def calls() -> Iterator[Call | str]:
    """Yields a right call of every public function, or its name where there is none."""
    table = rows()
    for name, function in public_functions():
        if name in CALLS:
            yield Call(name, function, CALLS[name]())
        elif plain(function) in table:
            yield Call(name, function, table[plain(function)])
        else:
            found = from_annotations(function)
            yield name if found is None else Call(name, function, found)


# ---- one argument replaced ----
def places(call: Call) -> list[int | str]:
    """Returns where an argument can be replaced: a position, or the name of one that is not given or given by name."""
    parameters = list(inspect.signature(call.function).parameters.values())
    taken: list[int | str] = list(range(len(call.sample.args)))
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return taken + [name for name in named if name not in positional[: len(taken)]]


def replaced(call: Call, place: int | str, value: Any) -> Callable[[], Any]:
    """Returns the call with another argument in one place, on new tensors."""
    args = list(with_arrays(list(call.sample.args), tensor))
    kwargs = with_arrays(dict(call.sample.kwargs), tensor)
    if isinstance(place, int):
        args[place] = value
    else:
        kwargs[place] = value
    return lambda: call.function(*args, **kwargs)


def tensor(array: np.ndarray[Any, Any]) -> Tensor:
    return Tensor(array.astype(np.float32) if array.dtype == np.float64 else array)
