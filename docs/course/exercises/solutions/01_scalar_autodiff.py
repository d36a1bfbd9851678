"""A solution of exercise 1."""

from __future__ import annotations

import math


class Value:
    """A number with the values it was computed from, the slope to each of them, and the gradient of the result by it."""

    def __init__(self, data: float, sources: tuple[Value, ...] = (), slopes: tuple[float, ...] = ()) -> None:
        self.data, self.sources, self.slopes, self.grad = data, sources, slopes, 0.0

    def __add__(self, other: Value) -> Value:
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other: Value) -> Value:
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def tanh(self) -> Value:
        t = math.tanh(self.data)
        return Value(t, (self,), (1 - t * t,))

    def backward(self) -> None:
        order: list[Value] = []
        waiting = [(self, False)]  # a list instead of recursion: a chain of 10,000 values is no problem
        seen: set[Value] = set()
        while waiting:
            value, are_sources_done = waiting.pop()
            if are_sources_done:
                order.append(value)
            elif value not in seen:
                seen.add(value)
                waiting.append((value, True))
                waiting += [(source, False) for source in value.sources]
        self.grad = 1.0
        for value in reversed(order):
            for source, slope in zip(value.sources, value.slopes):
                source.grad += slope * value.grad
