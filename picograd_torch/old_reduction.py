"""size_average and reduce: arguments of losses from before `reduction`, given by name or by position.

In:    the arguments of a call of a loss, or of its layer's constructor
Out:   the arguments that picograd has, with `reduction`
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from picograd.errors import warn_user

NEWER = {"delta", "distance_function", "var", "zero_infinity"}  # arguments of losses that never had the old ones


def with_reduction(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replaces size_average and reduce in a call's arguments by `reduction`.

    By position, PyTorch's size_average comes before `ignore_index`, before the `eps` of Poisson's loss, or else before
    `reduction`, and reduce directly before `reduction`. A bool or None at the first of these positions is size_average.

    Example: cross_entropy(x, y, None, False)  ->  cross_entropy(x, y, None, reduction="sum")
    """
    kept, names = dict(kwargs), _names(function)
    if not NEWER.isdisjoint(names):
        return args, kwargs
    before = "ignore_index" if "ignore_index" in names else "eps" if "log_input" in names else "reduction"
    place = names.index(before)
    if len(args) > place and (args[place] is None or isinstance(args[place], bool)):
        theirs = [*names[:place], "size_average", *names[place:]]
        theirs.insert(theirs.index("reduction"), "reduce")
        kept.update(zip(theirs[place:], args[place:]))
        args = args[:place]
    if found := reduction_of(kept.pop("size_average", None), kept.pop("reduce", None)):
        kept["reduction"] = found
    return args, kept


def reduction_of(size_average: bool | None, reduce: bool | None) -> str | None:
    """Returns the reduction for two old arguments, with a warning; None if neither is given."""
    if size_average is None and reduce is None:
        return None
    found = "none" if reduce is False else "sum" if size_average is False else "mean"
    warn_user(f'size_average and reduce are old names: write reduction="{found}".')
    return found


@functools.cache
def _names(function: Callable[..., Any]) -> list[str]:
    """Returns the names of the arguments of a function, or of a constructor without self."""
    code = inspect.unwrap(function).__code__
    return [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name != "self"]
