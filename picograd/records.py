"""Records: frozen dataclasses whose classes are made in a quarter of the time.

In:    a class with annotated fields
Out:   `frozen`, its decorator

`dataclass(frozen=True)` compiles six methods for each class, 0.3 ms, and importing picograd makes a hundred classes. Five
of the six say the same in every class: here they are written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes a class a frozen dataclass: equal by its fields, printed with them, never changed.

    >>> @frozen
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0)
    (Point(x=1, y=0), True)
    """
    made: Any = dataclass(init=False, repr=False, eq=False)(cls)
    own = fields(made)
    made.__init__ = _init(own)
    made.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__eq__, made.__hash__ = _comparison([f.name for f in own if f.compare])
    made.__repr__ = _repr([f.name for f in own if f.repr])
    made.__setattr__, made.__delattr__ = _no_change, _no_change
    found: type[T] = made
    return found


def _init(own: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Returns the method that stores the fields, compiled: it is called for every statement of every kernel."""
    names: dict[str, Any] = {"store": object.__setattr__, "MISSING": MISSING}
    parameters, lines = ["self"], []
    for f in own:
        value = f.name
        if f.default is not MISSING:
            names[f"default_{f.name}"] = f.default
            parameters.append(f"{f.name}=default_{f.name}")
        elif f.default_factory is not MISSING:
            names[f"make_{f.name}"] = f.default_factory
            parameters.append(f"{f.name}=MISSING")
            value = f"make_{f.name}() if {f.name} is MISSING else {f.name}"
        else:
            parameters.append(f.name)
        lines.append(f" store(self, {f.name!r}, {value})")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), names)  # noqa: S102
    made: Callable[..., None] = names["__init__"]
    return made


def _comparison(names: list[str]) -> tuple[Callable[[Any, object], Any], Callable[[Any], int]]:
    """Returns __eq__ and __hash__, by these fields."""
    values: Callable[[Any], Any] = attrgetter(*names) if names else type

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if self.__class__ is other.__class__ else NotImplemented

    return equal, lambda self: hash(values(self))


def _repr(names: list[str]) -> Callable[[Any], str]:
    def text(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return text


def _no_change(self: Any, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"{type(self).__name__} is a record: dataclasses.replace makes one with another {name!r}")
