"""Derivatives compared with central differences, element by element: gradcheck, gradgradcheck.

In:    a function, and a point of float64 Tensors
Out:   True, or an error that names the first element that differs
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.control.closure import name_of
from picograd.control.structure import put, take
from picograd.errors import ArgumentError, DTypeError, GradientError
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.derivatives import linearize, vjp
from picograd.transforms.jacobians import jacrev

Array = np.ndarray[Any, Any]


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    check_batched_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
) -> bool:
    """Compares the derivatives of a function with central differences.

    (f(x + eps e) - f(x - eps e)) / (2 eps), with e the unit vector of each element

    The inputs that require grad are checked, or if there are none, all floats.

    Args:
      func:                function of the inputs; returns Tensors, alone or in lists, tuples, dicts and dataclasses
      inputs:              a Tensor of float64, or a tuple of arguments
      eps:                 step of the differences
      atol, rtol:          a derivative may differ by atol + rtol * |central difference|
      raise_exception:     raise an error for a difference; False: return False
      check_batched_grad:  compare all rows at once, by vmap, too
      check_forward_ad:    compare forward mode, too
      check_backward_ad:   compare reverse mode

    Returns:   True if all of them agree

    Raises:
      GradientError: a derivative differs; the error says which, and by how much.
      DTypeError:    a checked input is not a float64.
      ArgumentError: no input is a float, or eps is not positive.

    Cost:      two runs of func per element of the inputs, one of its gradient per element of its results.

    >>> gradcheck(lambda x: x.sin() * x, Tensor([0.5, 1.5], dtypes.float64))
    True
    """
    check = _Check("gradcheck", func, inputs, eps, atol, rtol)
    try:
        numeric = check.numeric()
        if check_backward_ad:
            check.compare(numeric, check.by_rows(), "reverse mode")
        if check_batched_grad:
            check.compare(numeric, check.by_all_rows(), "reverse mode under vmap")
        if check_forward_ad:
            check.compare(numeric, check.by_columns(), "forward mode")
    except GradientError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Any] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
) -> bool:
    """Compares the second derivatives of a function with central differences of its gradient.

    gradcheck of (x, v) -> v^T J, with J = df(x) / dx

    Args:
      func:                function of the inputs; returns float Tensors
      inputs:              a Tensor of float64, or a tuple of arguments
      grad_outputs:        v: a Tensor of each result's shape; None: normal numbers, the same in every call
      eps:                 step of the differences
      atol, rtol:          a derivative may differ by atol + rtol * |central difference|
      raise_exception:     raise an error for a difference; False: return False
      check_batched_grad:  compare all rows at once, by vmap, too
      check_fwd_over_rev:  compare forward mode of the gradient, too
      check_rev_over_rev:  compare reverse mode of the gradient

    Returns:   True if all of them agree

    Raises:
      GradientError: a derivative differs; the error says which, and by how much.
      DTypeError:    a checked input is not a float64.
      ArgumentError: no input is a float, or eps is not positive.

    >>> gradgradcheck(lambda x: x.sin() * x, Tensor([0.5, 1.5], dtypes.float64))
    True
    """
    check = _Check("gradgradcheck", func, inputs, eps, atol, rtol)
    count = len(check.points)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        weights = [Tensor(rng.standard_normal(result.shape)) for result in check.results(check.points)]
    else:
        weights = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradient(*args: Tensor) -> tuple[Any, ...]:
        pull = vjp(lambda *points: tuple(check.results(points)), *args[:count])[1]
        return tuple(pull(tuple(args[count:])))

    return gradcheck(
        gradient, (*check.points, *weights), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev,
    )  # fmt: skip


@dataclass
class _Check:
    """A function and the point at which it is checked. A Jacobian is a matrix per pair of (result, input).

    places:  indices of the checked Tensors among the inputs
    """

    transform: str
    function: Callable[..., Any]
    inputs: Any
    eps: float
    atol: float
    rtol: float

    def __post_init__(self) -> None:
        if not 0.0 < self.eps < math.inf:
            raise ArgumentError(f"{self.transform}: eps must be positive and finite, got {self.eps}.")
        args = (self.inputs,) if isinstance(self.inputs, Tensor) else tuple(self.inputs)
        self.taken = take(args, "inputs")
        floats = [i for i, tensor in enumerate(self.taken.tensors) if tensor.dtype.is_float]
        self.places = [i for i in floats if self.taken.tensors[i].requires_grad] or floats
        if not self.places:
            raise ArgumentError(f"{self.transform}: no input of {name_of(self.function)} is a Tensor of floats.")
        for i in self.places:
            tensor = self.taken.tensors[i]
            if tensor.dtype is not dtypes.float64:
                raise DTypeError(
                    f"{self.transform}: {self.taken.names[i]} is {tensor.dtype} of shape {tensor.shape}; central"
                    " differences need float64.",
                    "Tensor(data, dtypes.float64), or x.double().",
                )
        self.points = [self.taken.tensors[i].detach() for i in self.places]

    def results(self, points: Sequence[Tensor]) -> list[Tensor]:
        """Returns the float results for these values of the checked inputs."""
        tensors = list(self.taken.tensors)
        for place, point in zip(self.places, points):
            tensors[place] = point
        returned = take(self.function(*put(self.taken.container, tensors)), "result")
        self.names = [name for name, tensor in zip(returned.names, returned.tensors) if tensor.dtype.is_float]
        return [tensor for tensor in returned.tensors if tensor.dtype.is_float]

    # ---- Jacobians ----
    def numeric(self) -> list[list[Array]]:
        """Returns central differences: by result and input, (elements of the result, elements of the input)."""
        values = [point.numpy() for point in self.points]
        with no_grad():
            numels = [np.asarray(result.numpy()).size for result in self.results(self.points)]
            found = [[np.zeros((numel, value.size)) for value in values] for numel in numels]
            for i, value in enumerate(values):
                for j in range(value.size):
                    ahead, behind = (self._moved(values, i, j, step) for step in (self.eps, -self.eps))
                    for number, (a, b) in enumerate(zip(ahead, behind)):
                        found[number][i][:, j] = (a - b).ravel() / (2 * self.eps)
        return found

    def _moved(self, values: Sequence[Array], number: int, element: int, step: float) -> list[Array]:
        moved = values[number].copy()
        moved.reshape(-1)[element] += step
        points = [Tensor(moved if i == number else value) for i, value in enumerate(values)]
        return [result.numpy().astype(np.float64) for result in self.results(points)]

    def by_rows(self) -> list[list[Array]]:
        """Returns the Jacobians by reverse mode, a row at a time."""
        results, pull = vjp(lambda *points: tuple(self.results(points)), *self.points)
        found: list[list[Array]] = []
        for number, result in enumerate(results):
            numel = result.numel()
            rows = []
            for element in range(numel):
                unit = Tensor(np.eye(1, numel, element).reshape(result.shape), result.dtype)
                seeds = tuple(unit if i == number else Tensor.zeros_like(other) for i, other in enumerate(results))
                rows.append([_flat(grad) for grad in pull(seeds)])
            found.append([_matrix(parts, numel, point) for parts, point in zip(_columns(rows, self.points), self.points)])
        return found

    def by_all_rows(self) -> list[list[Array]]:
        """Returns the Jacobians by reverse mode, all rows at once."""
        numbers = tuple(range(len(self.points)))
        jacobians = jacrev(lambda *points: tuple(self.results(points)), numbers)(*self.points)
        results = self.results(self.points)
        return [
            [_flat(part).reshape(result.numel(), point.numel()) for part, point in zip(row, self.points)]
            for row, result in zip(jacobians, results)
        ]

    def by_columns(self) -> list[list[Array]]:
        """Returns the Jacobians by forward mode, a column at a time."""
        results, push = linearize(lambda *points: tuple(self.results(points)), *self.points)
        found = [[np.zeros((result.numel(), point.numel())) for point in self.points] for result in results]
        for number, point in enumerate(self.points):
            for element in range(point.numel()):
                unit = Tensor(np.eye(1, point.numel(), element).reshape(point.shape))
                moved = push(*(unit if i == number else Tensor.zeros_like(p) for i, p in enumerate(self.points)))
                for row, change in enumerate(moved):
                    found[row][number][:, element] = _flat(change)
        return found

    # ---- comparing ----
    def compare(self, numeric: list[list[Array]], analytic: list[list[Array]], mode: str) -> None:
        """Raises GradientError for the first element that differs."""
        results = self.results(self.points)
        for row, name in enumerate(self.names):
            for column, point in enumerate(self.points):
                expected, found = numeric[row][column], analytic[row][column]
                allowed = self.atol + self.rtol * np.abs(expected)
                wrong = ~(np.abs(found - expected) <= allowed) & ~(np.isnan(found) & np.isnan(expected))
                if wrong.any():
                    i, j = (int(k) for k in np.argwhere(wrong)[0])
                    at, by = _place(i, results[row].shape), _place(j, point.shape)
                    raise GradientError(
                        f"{self.transform}: the derivative of {name}{at} by {self.taken.names[self.places[column]]}{by} is"
                        f" {found[i, j]:.9g} in {mode}, {expected[i, j]:.9g} by central differences; {int(wrong.sum())} of"
                        f" {wrong.size} differ by more than atol={self.atol:g} + rtol={self.rtol:g} * |difference|."
                    )


def _flat(tensor: Tensor) -> Array:
    return tensor.detach().numpy().astype(np.float64).ravel()


def _columns(rows: Sequence[Sequence[Array]], points: Sequence[Tensor]) -> list[list[Array]]:
    return [[row[i] for row in rows] for i in range(len(points))]


def _matrix(rows: Sequence[Array], numel: int, point: Tensor) -> Array:
    return np.stack(rows) if rows else np.zeros((numel, point.numel()))


def _place(number: int, shape: Sequence[int]) -> str:
    """Returns the indices of an element as an error shows them."""
    return "".join(f"[{int(i)}]" for i in np.unravel_index(number, tuple(shape))) if shape else ""
