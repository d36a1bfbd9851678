"""L-BFGS: steps along the gradient times an inverse curvature that is estimated from the last steps.

Values of the loss and of slopes decide, on the host, how a step goes on, so a step cannot be traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from picograd.control.flow import scan
from picograd.errors import ArgumentError, JitError
from picograd.ir.op import Op
from picograd.nn.utils.clip_grad import vector_to_parameters
from picograd.optim.optimizer import Optimizer
from picograd.record import Record, replace
from picograd.tensor.cell import trace
from picograd.tensor.core import realize
from picograd.tensor.formulas import formula
from picograd.tensor.modes import enable_grad, no_grad
from picograd.tensor.tensor import Tensor


class Point(Record):
    """Loss, gradient and slope at a point along the direction.

    t:         position along the direction
    loss:      its value
    grad:      its gradient, as one vector
    slope:     derivative of the loss along the direction
    greatest:  largest absolute value in the gradient
    """

    t: float
    loss: float
    grad: Tensor
    slope: float
    greatest: float = 0.0


class LBFGS(Optimizer):
    """Moves all parameters along -H grad, H the inverse curvature estimated from the last `history_size` steps.

    d = -H grad by the two-loop recursion over pairs y = change of grad, s = change of the parameters;  p += t d
    Source: Nocedal, Wright 2006, "Numerical optimization", algorithms 7.4, 3.5 and 3.6.

    Args:
      params:            tensors, in one group
      lr:                t, or the first t of the line search
      max_iter:          iterations in a step
      max_eval:          evaluations of the loss in a step; None: 1.25 max_iter
      tolerance_grad:    a step ends if no element of the gradient is greater
      tolerance_change:  a step ends if parameters or loss change less
      history_size:      pairs that are kept
      line_search_fn:    None: t is lr (at first min(1, 1 / |grad|_1) lr);  "strong_wolfe": a line search finds t

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
        """Iterates, calling `closure` for loss and gradients; returns the first loss.

        Raises:
          ArgumentError: closure is None.
          JitError:      the call is traced.

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
        closure = _checked(closure)
        group, kept = self.param_groups[0], self.state[0] if 0 in self.state else self._begun()
        with enable_grad():
            first = closure()
        grad = self._grad()
        loss, greatest, total = _numbers(first, grad.abs().max(), grad.abs().sum(), beside=[grad])
        here, evaluations = Point(0.0, loss, grad, 0.0, greatest), 1
        kept["func_evals"] += 1
        for count in range(1, group["max_iter"] + 1):
            if here.greatest <= group["tolerance_grad"]:
                break
            kept["n_iter"] += 1
            direction = self._direction(kept, here.grad, group["history_size"])
            pairs = [rows for name in PAIRS if isinstance(rows := kept[name], Tensor)]
            slope, longest = _numbers(here.grad.dot(direction), direction.abs().max(), beside=[direction, *pairs])
            kept.update(prev_flat_grad=here.grad, prev_loss=here.loss)
            t = group.rate() * (1.0 / max(1.0, total) if kept["n_iter"] == 1 else 1.0)
            if slope > -group["tolerance_change"]:
                kept.update(d=direction, t=t)
                break
            here, is_last = replace(here, t=0.0, slope=slope), count == group["max_iter"]
            found, spent = self._go_along(closure, here, direction, t, longest, is_last)
            moved = min(longest * abs(found.t), abs(found.loss - here.loss))
            kept.update(d=direction, t=found.t)
            here, evaluations = found, evaluations + spent
            kept["func_evals"] += spent
            if evaluations >= group["max_eval"] or moved <= group["tolerance_change"]:
                break
        return first

    def _go_along(
        self, closure: Callable[[], Tensor], here: Point, direction: Tensor, t: float, longest: float, is_last: bool
    ) -> tuple[Point, int]:
        """Moves by t, or to the best point of a line search; returns the point reached and the number of closure calls.

        The last move of a step without a line search does not evaluate the loss.

        Args:
          longest:  largest absolute value in the direction
        """
        start, group = Tensor.cat([p.detach().reshape(-1) for p in self.parameters()]), self.param_groups[0]
        if group["line_search_fn"] is not None:
            at = partial(self._at, closure, start, direction)
            found, spent = strong_wolfe(at, here, t, longest, group["tolerance_change"])
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
    def _grad(self) -> Tensor:
        grads = [p.grad if p.grad is not None else Tensor.zeros_like(p) for p in self.parameters()]
        return Tensor.cat([grad.detach().reshape(-1) for grad in grads])

    def _move(self, start: Tensor, direction: Tensor, t: float) -> None:
        there = start + direction * t
        realize([start, there])
        vector_to_parameters(there, self.parameters())

    def _at(self, closure: Callable[[], Tensor], start: Tensor, direction: Tensor, t: float) -> Point:
        self._move(start, direction, t)
        with enable_grad():
            loss = closure()
        grad = self._grad()
        value, slope, greatest = _numbers(loss, grad.dot(direction), grad.abs().max(), beside=[grad])
        return Point(t, value, grad, slope, greatest)

    # ---- the direction ----
    def _direction(self, kept: dict[str, Any], grad: Tensor, history_size: int) -> Tensor:
        """Adds the last step to the history and returns -H grad."""
        if kept["n_iter"] == 1:
            kept.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -grad
        y, s = grad - kept["prev_flat_grad"], kept["d"] * kept["t"]
        along = y.dot(s)
        (curvature,) = _numbers(along, beside=[y, s])
        if curvature > 1e-10:
            _remember(kept, y, s, 1.0 / along, history_size)
            kept["H_diag"] = along / y.dot(y)
        scale = Tensor(kept["H_diag"], dtype=grad.dtype)
        if not len(kept["ro"]):
            return -grad * scale
        read = [operand.read() for operand in (*_rows(kept), -grad, scale)]
        return Tensor.from_op(_two_loops(*read), grad.device)

    def state_dict(self) -> dict[str, Any]:
        """Returns state and settings in PyTorch's form: pairs are lists of vectors.

        >>> LBFGS([Tensor([1.0], requires_grad=True)]).state_dict()["state"]
        {}
        """
        found: dict[str, Any] = super().state_dict()
        for kept in found["state"].values():
            count = kept.pop("num_pairs", 0)
            kept.update({name: [*rows[len(rows) - count :]] for name, rows in zip(PAIRS, _rows(kept)) if count})
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads state and settings of another LBFGS, also of PyTorch's.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> LBFGS([w]).load_state_dict(LBFGS([w], lr=0.5).state_dict())
        """
        self.state.pop(0, None)
        super().load_state_dict(state_dict)


def _checked(closure: Callable[[], Tensor] | None) -> Callable[[], Tensor]:
    """Returns the closure of a step; raises an error if there is none, or in a trace."""
    if closure is None:
        raise ArgumentError("LBFGS: step() needs a closure that computes the loss and its gradients.")
    if trace.get() is not None:
        raise JitError(
            "jit: LBFGS.step() needs values of the loss, and a trace has no values.",
            "jit the closure, and call step(closure) outside.",
        )
    return closure


# ---- pairs of steps ----
PAIRS = ("old_dirs", "old_stps", "ro")  # changes of the gradient, of the parameters, and 1 / (y s)


def _numbers(*scalars: Tensor | float, beside: Iterable[Tensor] = ()) -> list[float]:
    """Returns numbers, computed in one plan with the tensors `beside`; a closure may return a number, not a tensor."""
    realize([*[scalar for scalar in scalars if isinstance(scalar, Tensor)], *beside])
    return [float(scalar) for scalar in scalars]


def _rows(kept: Mapping[str, Any]) -> list[Tensor]:
    """Returns the pairs as matrices, oldest row first; a saved state has them as lists."""
    return [Tensor.stack(rows) if isinstance(rows := kept[name], list) else rows for name in PAIRS]


def _remember(kept: dict[str, Any], y: Tensor, s: Tensor, ro: Tensor, history_size: int) -> None:
    """Appends a pair and drops the first row.

    Unused rows come first and are 0, which changes no direction. The number of rows doubles when they are full, since each
    number of rows has a plan of its own.
    """
    count = kept.get("num_pairs", len(kept["ro"]))
    before = _rows(kept) if count else [y[None] * 0, s[None] * 0, ro[None] * 0]
    if 0 < len(before[0]) == count < history_size:
        more = min(count, history_size - count)
        before = [Tensor.cat([rows[:1] * 0] * more + [rows]) for rows in before]
    rows = [Tensor.cat([old[1:], new[None]]) for old, new in zip(before, (y, s, ro))]
    kept.update(zip(PAIRS, rows), num_pairs=min(count + 1, history_size))


@formula
def _two_loops(y: Op, s: Op, ro: Op, q: Op, scale: Op) -> Op:
    """Returns H q, with H = scale * identity before the first pair."""

    def back(q_N: Tensor, pair: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:  # noqa: N803
        y_N, s_N, ro = pair
        part = s_N.dot(q_N) * ro
        return q_N - y_N * part, part

    def forth(q_N: Tensor, pair: tuple[Tensor, ...]) -> tuple[Tensor, None]:  # noqa: N803
        y_N, s_N, ro, part = pair
        return q_N + s_N * (part - y_N.dot(q_N) * ro), None

    pairs, first = [Tensor.from_op(rows) for rows in (y, s, ro)], Tensor.from_op(q)
    q_N, part_M = scan(back, first, pairs, reverse=True)
    result: Tensor = scan(forth, q_N * Tensor.from_op(scale), [*pairs, part_M])[0]
    return result.op


# ---- the search along a line ----
DECREASE, CURVATURE = 1e-4, 0.9  # c1 and c2 of the strong Wolfe conditions
POINTS_MAX = 25  # per line search


def strong_wolfe(
    at: Callable[[float], Point],
    start: Point,
    t: float,
    greatest: float,
    tolerance: float,
) -> tuple[Point, int]:
    """Line search: returns a point that satisfies the strong Wolfe conditions, and the number of points evaluated.

    loss <= loss(0) + c1 t slope(0) and |slope| <= c2 |slope(0)|; greatest: largest absolute value in the direction

    >>> parabola = lambda t: Point(t, (t - 1.0) ** 2, Tensor(0.0), 2 * (t - 1.0))
    >>> found, count = strong_wolfe(parabola, parabola(0.0), 1.0, 1.0, 1e-9)
    >>> found.t, count
    (1.0, 1)
    """
    low, point, count = start, at(t), 1
    bracket: list[Point] | None = None
    while count <= POINTS_MAX:
        if point.loss > start.loss + DECREASE * point.t * start.slope or (count > 1 and point.loss >= low.loss):
            bracket = [low, point]
            break
        if abs(point.slope) <= -CURVATURE * start.slope:
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
    return _zoom(at, start, bracket, count, greatest, tolerance)


def _zoom(
    at: Callable[[float], Point], start: Point, bracket: list[Point], count: int, greatest: float, tolerance: float
) -> tuple[Point, int]:
    """Narrows a bracket until its better end satisfies the conditions."""
    best, other = sorted(bracket, key=lambda point: point.loss)
    is_stuck = False
    while count < POINTS_MAX and abs(other.t - best.t) * greatest >= tolerance:
        left, right = sorted((best.t, other.t))
        t = _cubic(best, other, (left, right))
        margin = 0.1 * (right - left)
        is_close = min(right - t, t - left) < margin
        if is_close and (is_stuck or t >= right or t <= left):  # twice in a row: moved inside
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            is_close = False
        is_stuck = is_close
        point = at(t)
        count += 1
        if point.loss > start.loss + DECREASE * t * start.slope or point.loss >= best.loss:
            best, other = (point, best) if point.loss < best.loss else (best, point)
            continue
        if abs(point.slope) <= -CURVATURE * start.slope:
            return point, count
        best, other = point, best if point.slope * (other.t - best.t) >= 0 else other
    return best, count


def _cubic(a: Point, b: Point, bounds: tuple[float, float]) -> float:
    """Returns the minimum, within bounds, of the cubic through two points and their slopes."""
    a, b = (a, b) if a.t <= b.t else (b, a)
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (bounds[0] + bounds[1]) / 2.0
    d2 = square**0.5
    least = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return float(min(max(least, bounds[0]), bounds[1]))
