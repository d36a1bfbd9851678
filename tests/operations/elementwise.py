"""Elementwise functions: the rows of the table."""

from __future__ import annotations

from tests.operations.table import Operation, broadcasting, uniform

WIDE, POSITIVE = (-2.0, 2.0), (0.1, 3.0)


def function(name: str, *domains: tuple[float, float], dtypes: str = "fiub", orders: int = 2) -> Operation:
    """A row of a function of each element of its operands."""
    return Operation(f"Tensor.{name}", uniform(*domains), dtypes=dtypes, orders=orders, drawn=broadcasting(*domains))


OPERATIONS = [
    function("exp", WIDE),
    function("log", POSITIVE),
    function("add", WIDE, WIDE),
    function("mul", WIDE, WIDE),
]
