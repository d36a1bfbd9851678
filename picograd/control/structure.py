"""Tensors in lists, tuples, dicts and dataclasses: taken out in order, with their names, and put back.

In:    a container that a user's function takes or gives
Out:   `take`: its Tensors with their names, and its form;  `put`: with other Tensors;  `parts_of`: what one holds
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from picograd.ir.op import Op
from picograd.record import Record
from picograd.tensor.tensor import Tensor

PLACE = object()  # the place of a Tensor in a skeleton
LISTS = (list, tuple)


class Taken(Record):
    """The Tensors of a container.

    container:  as the user gave it
    tensors:    in order
    names:      as the user would write each, e.g. "carry[0]['h']"
    form:       the containers around them, with everything else they hold; equal for equal forms
    others:     (name, value) of anything but containers, Tensors and None
    """

    container: Any
    tensors: tuple[Tensor, ...]
    names: tuple[str, ...]
    form: Any
    others: tuple[tuple[str, Any], ...]

    def with_ops(self, ops: Iterable[Op]) -> Any:
        """Returns the container with Tensors of these Ops in the places of its own, on their devices."""
        return put(self.container, [Tensor.from_op(op, tensor.cell.device) for op, tensor in zip(ops, self.tensors)])


def take(value: Any, name: str) -> Taken:
    """Takes the Tensors out of a container that the user knows as `name`.

    >>> taken = take({"h": Tensor([1.0]), "n": None}, "carry")
    >>> taken.names, taken.form
    (("carry['h']",), (<class 'dict'>, ('h', '*'), ('n', None)))
    """
    tensors: list[tuple[str, Tensor]] = []
    others: list[tuple[str, Any]] = []
    form = _form_of(value, name, tensors, others)
    names = tuple([path for path, _ in tensors])
    return Taken(value, tuple([tensor for _, tensor in tensors]), names, form, tuple(others))


def _form_of(part: Any, path: str, tensors: list[tuple[str, Tensor]], others: list[tuple[str, Any]]) -> Any:
    """Returns the form of a part of a container; adds its Tensors, and what else it holds, to the lists, with names."""
    if isinstance(part, Tensor):
        tensors.append((path, part))
        return "*"
    inside = list(parts_of(part, path))
    if inside or isinstance(part, list | tuple | dict):
        return (type(part), *[(key, _form_of(inner, longer, tensors, others)) for key, longer, inner in inside])
    if part is not None:
        others.append((path, part))
    return part


def parts_of(value: Any, path: str) -> Iterator[tuple[Any, str, Any]]:
    """Yields (key, name, value) of a container's parts."""
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)
        for i, part in enumerate(value):
            yield i, f"{path}.{names[i]}" if names else f"{path}[{i}]", part
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key, f"{path}[{key!r}]", part
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield field.name, f"{path}.{field.name}", getattr(value, field.name)


def put(container: Any, tensors: Iterable[Tensor]) -> Any:
    """Returns the container with these Tensors in place of its own.

    >>> put([Tensor(1), (Tensor(2),)], [Tensor(3), Tensor(4)])
    [Tensor(3), (Tensor(4),)]
    """
    values = iter(tensors)
    return mapped(container, lambda _: next(values))


def shown(form: Any) -> str:
    """Returns a form as an error shows it.

    >>> shown(take([Tensor(1), {"a": None}], "carry").form)
    "[*, {'a': None}]"
    """
    if form == "*":
        return "*"
    if not isinstance(form, tuple) or not form or not isinstance(form[0], type):
        return repr(form)
    kind, parts = form[0], form[1:]
    if issubclass(kind, dict):
        return "{" + ", ".join(f"{key!r}: {shown(part)}" for key, part in parts) + "}"
    inside = ", ".join(shown(part) for _, part in parts)
    if kind is list:
        return f"[{inside}]"
    return f"({inside}{',' if len(parts) == 1 else ''})" if kind is tuple else f"{kind.__name__}({inside})"


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a container with each Tensor (or each place of one) changed."""
    if isinstance(value, Tensor) or value is PLACE:
        changed = change(value)
        return PLACE if changed is None else changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(v, change) for v in value])
    if isinstance(value, LISTS):
        return type(value)(mapped(v, change) for v in value)
    if isinstance(value, dict):
        items = {k: mapped(v, change) for k, v in value.items()}
        if type(value) is dict:
            return items
        kept = copy.copy(value)  # a defaultdict keeps its default
        kept.update(items)
        return kept
    if is_dataclass(value) and not isinstance(value, type):
        record = copy.copy(value)  # NOTE: its __init__ and __post_init__ could compute, or refuse a mark
        for field in fields(value):
            object.__setattr__(record, field.name, mapped(getattr(value, field.name), change))
        return record
    return value
