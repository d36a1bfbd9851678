"""L-BFGS: steps along the gradient times an estimate, from the last steps, of the inverse of the curvature.

The numbers that decide whether to go on (the loss, slopes along the direction) are asked for by value, so a step cannot be
traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from picograd.errors import ArgumentError, JitError
from picograd.nn.utils.clip_grad import vector_to_parameters
from picograd.optim.optimizer import Optimizer
from picograd.record import Record, replace
from picograd.tensor.cell import trace
from picograd.tensor.modes import enable_grad, no_grad
from picograd.tensor.tensor import Tensor


class Point(Record):
    """Loss, gradient and slope at a point along the direction.

    t:      how far along it
    loss:   there
    grad:   there, as one vector
    slope:  of the loss along the direction
    """

    t: float
    loss: float
    grad: Tensor
    slope: float


class LBFGS(Optimizer):
    """Moves all parameters along -H grad, H the inverse curvature that the last `history_size` steps speak of.

    d = -H grad by the two loops over pairs y = change of grad, s = change of the parameters;  p += t d
    Source: Nocedal, Wright 2006, "Numerical optimization", algorithms 7.4, 3.5 and 3.6.

    Args:
      params:            tensors, in one group
      lr:                t, or where the search along a line begins
      max_iter:          iterations in a step
      max_eval:          losses computed in a step; None: 1.25 max_iter
      tolerance_grad:    ends when no element of the gradient is greater
      tolerance_change:  ends when parameters or loss change less
      history_size:      pairs that are kept
      line_search_fn:    None: t is lr (at first min(1, 1 / |grad|_1) lr);  "strong_wolfe": t is searched for

    Raises:
      ArgumentError: several groups, or another line_search_fn.

    >>> w = Tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - Tensor([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> w.detach().round(3)
    Tensor([1., 2.])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError(f'LBFGS: line_search_fn must be "strong_wolfe" or None, got {line_search_fn!r}.')
        counts = {"max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval}
        limits = {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size}
        super().__init__(params, {"lr": lr, **counts, **limits, "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ArgumentError(f"LBFGS: takes one group of parameters, got {len(self.param_groups)}.")

    @no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:
        """Calls `closure`, which computes loss and gradients, several times, and moves on; returns the first loss.

        Raises:
          ArgumentError: there is no closure.
          JitError:      this is traced.

        >>> w = Tensor([3.0], requires_grad=True)
        >>> optimizer = LBFGS([w], lr=0.5, max_iter=1)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (w * w).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item(), w.item()
        (9.0, 2.5)
        """
        if closure is None:
            raise ArgumentError("LBFGS: step() needs a closure that computes the loss and its gradients.")
        if trace.get() is not None:
            raise JitError(
                "jit: LBFGS.step() decides by values of the loss how to go on, and in a trace there are none.",
                "jit the closure, and call step(closure) outside.",
            )
        group, kept = self.param_groups[0], self.state[0] if 0 in self.state else self._begun()
        with enable_grad():
            first = closure()
        evaluations, loss, grad = 1, first.item(), self._grad()
        kept["func_evals"] += 1
        for count in range(1, group["max_iter"] + 1):
            if grad.abs().max().item() <= group["tolerance_grad"]:
                break
            kept["n_iter"] += 1
            direction = self._direction(kept, grad, group["history_size"])
            slope = grad.dot(direction).item()
            kept["prev_flat_grad"], kept["prev_loss"] = grad, loss
            t = group.rate() * (1.0 / max(1.0, grad.abs().sum().item()) if kept["n_iter"] == 1 else 1.0)
            if slope > -group["tolerance_change"]:
                kept["d"], kept["t"] = direction, t
                break
            here, is_last = Point(0.0, loss, grad, slope), count == group["max_iter"]
            found, spent = self._go_along(closure, here, direction, t, is_last)
            before, loss, grad = loss, found.loss, found.grad
            kept["d"], kept["t"] = direction, found.t
            evaluations += spent
            kept["func_evals"] += spent
            moved = (direction * found.t).abs().max().item()
            if evaluations >= group["max_eval"] or min(moved, abs(loss - before)) <= group["tolerance_change"]:
                break
        return first

    def _go_along(
        self, closure: Callable[[], Tensor], here: Point, direction: Tensor, t: float, is_last: bool
    ) -> tuple[Point, int]:
        """Moves by t, or as far as the search finds best; returns where that leads, and how often closure was called.

        Without a search nobody asks for the loss at the end of the last move.
        """
        start, group = self._vector(), self.param_groups[0]
        if group["line_search_fn"] is not None:
            greatest = direction.abs().max().item()
            at = partial(self._at, closure, start, direction)
            found, spent = strong_wolfe(at, here, t, greatest, group["tolerance_change"])
            self._move(start, direction, found.t)
            return found, spent
        if is_last:
            self._move(start, direction, t)
            return replace(here, t=t), 0
        return self._at(closure, start, direction, t), 1

    def _begun(self) -> dict[str, Any]:
        self._keep(0, {"func_evals": 0, "n_iter": 0, "old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1.0})
        return self.state[0]

    # ---- all parameters as one vector ----
    def _vector(self) -> Tensor:
        return Tensor.cat([p.detach().reshape(-1) for p in self.parameters()]).realize()

    def _grad(self) -> Tensor:
        grads = [p.grad if p.grad is not None else Tensor.zeros_like(p) for p in self.parameters()]
        return Tensor.cat([grad.detach().reshape(-1) for grad in grads]).realize()

    def _move(self, start: Tensor, direction: Tensor, t: float) -> None:
        vector_to_parameters((start + direction * t).realize(), self.parameters())

    def _at(self, closure: Callable[[], Tensor], start: Tensor, direction: Tensor, t: float) -> Point:
        self._move(start, direction, t)
        with enable_grad():
            loss = closure().item()
        grad = self._grad()
        return Point(t, loss, grad, grad.dot(direction).item())

    # ---- the direction ----
    def _direction(self, kept: dict[str, Any], grad: Tensor, history_size: int) -> Tensor:
        """Takes in the last step, and returns -H grad by two loops over the pairs."""
        if kept["n_iter"] == 1:
            kept.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return (-grad).realize()
        y, s = (grad - kept["prev_flat_grad"]).realize(), (kept["d"] * kept["t"]).realize()
        curvature = y.dot(s).item()
        if curvature > 1e-10:
            for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / curvature)):
                kept[name] = [*kept[name], value][-history_size:]
            kept["H_diag"] = curvature / y.dot(y).item()
        pairs = list(zip(kept["old_dirs"], kept["old_stps"], kept["ro"]))
        parts: list[Tensor] = []
        q = -grad
        for y, s, ro in reversed(pairs):
            parts.append(s.dot(q) * ro)
            q = q - y * parts[-1]
        q = q * kept["H_diag"]
        for (y, s, ro), part in zip(pairs, reversed(parts)):
            q = q + s * (part - y.dot(q) * ro)
        result: Tensor = q.realize()
        return result


# ---- the search along a line ----
def strong_wolfe(
    at: Callable[[float], Point],
    start: Point,
    t: float,
    greatest: float,
    tolerance: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    most: int = 25,
) -> tuple[Point, int]:
    """Returns a point where the loss has fallen enough and the slope is flat enough, and how many were looked at.

    loss <= loss(0) + c1 t slope(0) and |slope| <= c2 |slope(0)|; greatest: the greatest element of the direction

    >>> parabola = lambda t: Point(t, (t - 1.0) ** 2, Tensor(0.0), 2 * (t - 1.0))
    >>> found, count = strong_wolfe(parabola, parabola(0.0), 1.0, 1.0, 1e-9)
    >>> found.t, count
    (1.0, 1)
    """
    low, point, count = start, at(t), 1
    bracket: list[Point] | None = None
    while count <= most:
        if point.loss > start.loss + c1 * point.t * start.slope or (count > 1 and point.loss >= low.loss):
            bracket = [low, point]
            break
        if abs(point.slope) <= -c2 * start.slope:
            return point, count
        if point.slope >= 0:
            bracket = [low, point]
            break
        ahead = (point.t + 0.01 * (point.t - low.t), point.t * 10)
        following = _cubic(low, point, ahead)
        low, point = point, at(following)
        count += 1
    if bracket is None:
        bracket = [start, point]
    return _zoom(at, start, bracket, count, greatest, tolerance, c1, c2, most)


def _zoom(
    at: Callable[[float], Point],
    start: Point,
    bracket: list[Point],
    count: int,
    greatest: float,
    tolerance: float,
    c1: float,
    c2: float,
    most: int,
) -> tuple[Point, int]:
    """Narrows a bracket until its better end will do."""
    best, other = sorted(bracket, key=lambda point: point.loss)
    is_stuck = False
    while count < most and abs(other.t - best.t) * greatest >= tolerance:
        left, right = sorted((best.t, other.t))
        t = _cubic(best, other, (left, right))
        margin = 0.1 * (right - left)
        is_close = min(right - t, t - left) < margin
        if is_close and (is_stuck or t >= right or t <= left):  # twice in a row: it is moved inside
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            is_close = False
        is_stuck = is_close
        point = at(t)
        count += 1
        if point.loss > start.loss + c1 * t * start.slope or point.loss >= best.loss:
            best, other = (point, best) if point.loss < best.loss else (best, point)
            continue
        if abs(point.slope) <= -c2 * start.slope:
            return point, count
        best, other = point, best if point.slope * (other.t - best.t) >= 0 else other
    return best, count


def _cubic(a: Point, b: Point, bounds: tuple[float, float]) -> float:
    """Returns where the cubic through two points and their slopes is least, within bounds."""
    a, b = (a, b) if a.t <= b.t else (b, a)
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (bounds[0] + bounds[1]) / 2.0
    d2 = square**0.5
    least = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return float(min(max(least, bounds[0]), bounds[1]))
