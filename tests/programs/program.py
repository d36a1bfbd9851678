"""What a program of a PyTorch user is here: a function of the library that returns a net, a step and its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = tuple[Any, Callable[..., Any], list[tuple[Any, ...]]]
