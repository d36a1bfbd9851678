"""Muon and Adafactor: optimizers that treat a parameter as a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, maximum, reduce, swap_last, unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.optim.declared import Declared, Now, Result, decayed_by
from picograd.optim.optimizer import ParamGroup
from picograd.tensor import pointwise
from picograd.tensor.build import broadcast_to
from picograd.tensor.products import matmul_op
from picograd.tensor.reductions import mean_op, norm_op
from picograd.tensor.tensor import Tensor

__all__ = ["Adafactor", "Muon"]


class Muon(Declared):
    """p = p (1 - lr weight_decay) - lr c O(d), O(d) approximately the orthogonal matrix closest to d; for matrices.

    b = momentum b + (1 - momentum) grad;  d = b, or with nesterov grad + momentum (b - grad)
    O: ns_steps iterations of X = a X + (b A + c A A) X with A = X X^T, from X = d / max(|d|, eps), transposed if tall
    Source: Jordan et al. 2024, "Muon"; computed in float32, where PyTorch rounds to bfloat16.

    Args:
      params:           matrices, or groups of them
      lr:               learning rate
      weight_decay:     shrinks the parameter, times lr
      momentum:         decay rate of the running mean
      nesterov:         use the momentum of the next step
      ns_coefficients:  a, b and c
      eps:              lower bound of the norm of d
      ns_steps:         number of iterations
      adjust_lr_fn:     c is sqrt(max(1, rows / columns)) for None and "original", 0.2 sqrt(max(rows, columns)) for
                        "match_rms_adamw"

    Raises:
      ArgumentError: no parameters, or another adjust_lr_fn.
      ShapeError:    a parameter is not a matrix.

    >>> w = Tensor([[1.0, 0.0]], requires_grad=True)
    >>> (w * Tensor([[3.0, 0.0]])).sum().backward()
    >>> _ = Muon([w], lr=0.1, weight_decay=0.0, ns_coefficients=(1.5, -0.5, 0.0)).step()
    >>> w.detach().round(3)
    Tensor([[0.9, 0. ]])
    """

    shared = {}
    slots = ("momentum_buffer",)
    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ):
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(f'Muon: adjust_lr_fn must be "original" or "match_rms_adamw", got {adjust_lr_fn!r}.')
        self._begin(vars())

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        if parameter.ndim != 2:
            raise ShapeError(f"Muon: parameters must be matrices, got {parameter.shape}.", hint="optim.AdamW for this one")
        return super()._state_of(parameter, group)

    @staticmethod
    def _formula(now: Now) -> Result:
        momentum, d, running = now["momentum"], now.d, now.state["momentum_buffer"]
        running = running + (d - running) * (-momentum + 1.0)
        direction = d + (running - d) * momentum if now["nesterov"] else running
        update = orthogonal(direction, now["ns_coefficients"], now["ns_steps"], now["eps"])
        rows, columns = map(int, d.shape)
        factor = max(1.0, rows / columns) ** 0.5
        if now["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * max(rows, columns) ** 0.5
        rate = cast(now.rate, d.dtype) * factor
        return now.value - update * broadcast_to(rate, d.shape), {"momentum_buffer": running}


def orthogonal(x: Op, coefficients: tuple[float, float, float], steps: int, eps: float) -> Op:
    """Returns approximately the orthogonal matrix closest to x, by the Newton-Schulz iteration."""
    a, b, c = coefficients
    tall = int(x.shape[0]) > int(x.shape[1])
    x = swap_last(x) if tall else x
    x = x / broadcast_to(maximum(norm_op(x, 2, tuple(range(len(x.shape)))), eps), x.shape)
    for _ in range(steps):
        gram = matmul_op(x, swap_last(x))
        x = x * a + matmul_op(gram * b + matmul_op(gram, gram) * c, x)
    return swap_last(x) if tall else x


class Adafactor(Declared):
    """p -= alpha u / max(1, RMS(u) / d), u = grad / sqrt(v), v estimated from row means and column means.

    alpha = max(eps2, RMS(p)) min(lr, 1 / sqrt(t));  means move by t^beta2_decay towards those of grad^2
    v = row mean * column mean / mean of the row means; tensors with fewer than two axes keep v whole
    Source: Shazeer, Stern 2018, arXiv:1804.04235, algorithms 4 to 6.

    Args:
      params:         tensors, or groups: dicts of "params" and of settings that differ
      lr:             learning rate
      beta2_decay:    exponent of t
      eps:            lower bounds of sqrt(v) (None: 2^-23, or 2^-52 in float64) and of RMS(p)
      d:              upper bound of RMS(u)
      weight_decay:   shrinks the parameter, times lr
      maximize:       climb: take the gradient's negative
      options:        foreach, fused, capturable: accepted, without effect

    Raises:
      ArgumentError: no parameters, or d below 1.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> (w * 3.0).sum().backward()
    >>> _ = Adafactor([w], lr=0.1).step()
    >>> round(w.item(), 3)
    0.9
    """

    slots = ("variance", "row_var", "col_var")
    decoupled = None

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **options: bool | None,
    ):
        if not d >= 1.0:
            raise ArgumentError(f"Adafactor: d must be at least 1, got {d}.")
        if beta2_decay > 0 or any(bound is not None and bound < 0 for bound in eps):
            raise ArgumentError(f"Adafactor: beta2_decay must be at most 0 and eps at least 0, got {beta2_decay}, {eps}.")
        self._begin(vars())

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        if parameter.ndim < 2:
            return {"variance": Tensor.zeros_like(parameter)}
        row, column = (*parameter.shape[:-1], 1), (*parameter.shape[:-2], 1, parameter.shape[-1])
        shapes = {"row_var": row, "col_var": column}
        return {n: Tensor.zeros(s, dtype=parameter.dtype, device=parameter.device) for n, s in shapes.items()}

    def _numbers(self, group: ParamGroup, step: Op, lr: Op, shared: Mapping[str, Tensor]) -> tuple[Op, ...]:
        exponent = Op(OpCode.CONST, step.dtype, (), group["beta2_decay"])
        least = pointwise.rsqrt(step)
        rate = -maximum(-lr, -least)
        return Op(OpCode.POW, step.dtype, (step, exponent)), rate

    @staticmethod
    def _formula(now: Now) -> Result:
        eps1, eps2 = now["eps"]
        eps1 = (2.0**-52 if now.value.dtype is dtypes.float64 else 2.0**-23) if eps1 is None else eps1
        moved, rate = now.numbers
        alpha = maximum(_rms(now.value), eps2) * rate
        value, d = decayed_by(now["weight_decay"], now.rate, now.value, now.d, True)
        variance, state = _variance(now, moved, eps1)
        update = pointwise.rsqrt(maximum(variance, eps1 * eps1)) * d
        factor = alpha / maximum(_rms(update) / now["d"], 1.0)
        return value - update * broadcast_to(factor, value.shape), state


def _variance(now: Now, moved: Op, eps: float) -> Result:
    """Returns the estimated mean square of each element, and the updated means."""
    squares, rank = now.d * now.d, len(now.d.shape)
    axes = {"variance": ()} if rank < 2 else {"row_var": (rank - 1,), "col_var": (rank - 2,)}
    means = {name: mean_op(squares, along, keepdim=True) if along else squares for name, along in axes.items()}
    moves = {name: (mean - now.state[name]) * broadcast_to(moved, mean.shape) for name, mean in means.items()}
    after = {name: now.state[name] + move for name, move in moves.items()}
    if rank < 2:
        return after["variance"], after
    whole = maximum(mean_op(after["row_var"], (rank - 2,), keepdim=True), eps)
    rows, columns = (broadcast_to(after[name], squares.shape) for name in axes)
    return rows * columns / broadcast_to(whole, squares.shape), after


def _rms(x: Op) -> Op:
    """Returns the root mean square of all elements, 0-d."""
    return unary(OpCode.SQRT, reduce(x * x, OpCode.ADD, tuple(range(len(x.shape)))) / float(x.numel or 1))
