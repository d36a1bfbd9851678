"""RNN, GRU and LSTM as one LOOP for each direction.

In:    tensors: X (T, B, I), W (D, G*H, I), R (D, G*H, H), B (D, 2*G*H)
Out:   `OPERATORS`

Letters: T steps, B batches, I features of the input, H of the state, G gates, D directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from picograd.control.flow import scan
from picograd.errors import ArgumentError, ShapeError, UnsupportedOp
from picograd.nn import functional as F
from picograd.record import Record
from picograd.tensor.tensor import Tensor
from picograd_onnx.operators.math import hard_sigmoid, leaky_relu, thresholded_relu
from picograd_onnx.record import row
from picograd_onnx.values import choose

Activation = Callable[[Tensor], Tensor]
# Activations without alpha and beta.
PLAIN: dict[str, Activation] = {
    "tanh": Tensor.tanh, "sigmoid": Tensor.sigmoid, "relu": Tensor.relu, "softsign": lambda x: F.softsign(x),
    "softplus": lambda x: x.softplus(),
}  # fmt: skip


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    """Returns the activation of a name, with the next alpha and beta if it has such parameters."""
    lower = name.lower()
    if lower in PLAIN:
        return PLAIN[lower]
    if lower == "leakyrelu":
        alpha = next(alphas, 0.01)
        return lambda x: leaky_relu(x, alpha=alpha)
    if lower == "thresholdedrelu":
        alpha = next(alphas, 1.0)
        return lambda x: thresholded_relu(x, alpha=alpha)
    if lower in ("affine", "scaledtanh", "hardsigmoid"):
        default = (0.2, 0.5) if lower == "hardsigmoid" else (1.0, 0.0 if lower == "affine" else 1.0)
        alpha, beta = next(alphas, default[0]), next(betas, default[1])
        if lower == "affine":
            return lambda x: x * alpha + beta
        if lower == "scaledtanh":
            return lambda x: (x * beta).tanh() * alpha
        return lambda x: hard_sigmoid(x, alpha=alpha, beta=beta)
    raise UnsupportedOp(f"the activation {name!r} is not supported.")


class Layout(Record):
    """The attributes of a recurrent operator.

    function:     name of the operator
    directions:   True for each direction that begins with the last step
    activations:  functions of each direction
    clip:         largest magnitude of the activations' inputs, or None
    batch_first:  X is (B, T, I), and the states are (B, D, H)
    """

    function: str
    directions: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None
    batch_first: bool

    def cut(self, x: Tensor) -> Tensor:
        """Clamps the input of an activation to the clip."""
        return x if self.clip is None else x.clamp(-self.clip, self.clip)


def layout_of(
    function: str, defaults: Sequence[str], direction: str, activations: Sequence[str] | None,
    alphas: Sequence[float] | None, betas: Sequence[float] | None, clip: float | None, layout: int,
) -> Layout:  # fmt: skip
    """Checks and returns the attributes."""
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in ways:
        raise ArgumentError(f'{function}: direction must be "forward", "reverse" or "bidirectional", got {direction!r}.')
    each, count = len(defaults), len(ways[direction])
    names = [*(activations or [*defaults] * count)]
    if len(names) < each * count:  # RNN's default has two activations, for any direction
        raise ArgumentError(f"{function}: needs {each * count} activations, got {len(names)}.")
    first, second = iter(alphas or ()), iter(betas or ())
    made = [_activation(name, first, second) for name in names]
    groups = tuple(tuple(made[i * each : (i + 1) * each]) for i in range(count))
    return Layout(function, ways[direction], groups, clip, bool(layout))


# ---- all directions ----
Cell = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


def _run(
    layout: Layout, x: Tensor, hidden: int, lengths: Tensor | None, starts: Sequence[Tensor | None],
    cell_of: Callable[[int], tuple[Callable[[Tensor], Tensor], Cell]],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns Y and the last states. `cell_of(d)` gives the projection of all steps at once, and the rule of one step."""
    x_TBI = x.transpose(0, 1) if layout.batch_first else x
    if x_TBI.ndim != 3:
        raise ShapeError(f"{layout.function}: X must have three axes, got shape {x.shape}.")
    batches, columns, finals = x_TBI.shape[1], [], []
    for d, backward in enumerate(layout.directions):
        project, cell = cell_of(d)
        state = tuple(_start(layout, start, d, batches, hidden, x) for start in starts)
        ys_TBH, last = _direction(project(x_TBI), cell, state, lengths, backward)
        columns.append(ys_TBH)
        finals.append(last)
    y = Tensor.stack(columns, 1)  # (T, D, B, H)
    states = [Tensor.stack([final[i] for final in finals], 0) for i in range(len(starts))]  # (D, B, H)
    if layout.batch_first:
        return (y.permute(2, 0, 1, 3), *(state.transpose(0, 1) for state in states))
    return (y, *states)


def _start(layout: Layout, start: Tensor | None, d: int, batches: int, hidden: int, x: Tensor) -> Tensor:
    if start is None:
        return Tensor.zeros(batches, hidden, dtype=x.dtype, device=x.device)
    return start[:, d] if layout.batch_first else start[d]


def _direction(
    xs: Tensor, cell: Cell, state: tuple[Tensor, ...], lengths: Tensor | None, backward: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Returns the first state of every step, and the last states; steps beyond a length keep the state and output 0."""
    steps = Tensor.arange(xs.shape[0], device=xs.device)

    def step(carry: tuple[Tensor, ...], now: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        row_BG, number = now
        after = cell(row_BG, carry)
        if lengths is None:
            return after, after[0]
        inside = (number < lengths).unsqueeze(1)
        kept = tuple(choose(inside, new, old) for new, old in zip(after, carry))
        return kept, after[0].masked_fill(~inside, 0)

    last, ys = scan(step, state, (xs, steps), reverse=backward)
    return ys, last


def _biases(bias: Tensor | None, d: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    if bias is None:
        zero = Tensor.zeros(width, dtype=like.dtype, device=like.device)
        return zero, zero
    return bias[d, :width], bias[d, width:]


def _hidden(function: str, r: Tensor, hidden_size: int | None) -> int:
    """Returns the length of a state, from the shape of R."""
    if hidden_size is not None and hidden_size != r.shape[-1]:
        raise ShapeError(f"{function}: hidden_size {hidden_size} differs from that of R, {r.shape}.")
    return r.shape[-1]


# ---- RNN ----
def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None, *,
    hidden_size: int | None = None, direction: str = "forward", activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    clip: float | None = None, layout: int = 0, output_sequence: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns H = f(X @ W.T + H @ R.T + B) for every step, and the last state."""
    about = layout_of("RNN", ["Tanh"], direction, activations, activation_alpha, activation_beta, clip, layout)
    hidden = _hidden("RNN", r, hidden_size)

    def cell_of(d: int) -> tuple[Callable[[Tensor], Tensor], Cell]:
        wb, rb = _biases(b, d, hidden, w)
        (f,) = about.activations[d]

        def cell(row_BH: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (f(about.cut(row_BH + state[0] @ r[d].T)),)

        return lambda xs: xs @ w[d].T + wb + rb, cell

    return _run(about, x, hidden, lengths, [h], cell_of)


# ---- GRU ----
def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None, *,
    hidden_size: int | None = None, direction: str = "forward", activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    clip: float | None = None, layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns H = (1 - z) * n + z * H for every step, and the last state; the order of gates is z, r, n."""
    about = layout_of(
        "GRU", ["Sigmoid", "Tanh"], direction, activations, activation_alpha, activation_beta, clip, layout
    )
    hidden = _hidden("GRU", r, hidden_size)

    def cell_of(d: int) -> tuple[Callable[[Tensor], Tensor], Cell]:
        wb, rb = _biases(b, d, 3 * hidden, w)
        f, g = about.activations[d]
        r_zr, r_n = r[d, : 2 * hidden].T, r[d, 2 * hidden :].T

        def cell(row_BG: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (old,) = state
            gates = f(about.cut(row_BG[:, : 2 * hidden] + old @ r_zr + rb[: 2 * hidden]))
            z, reset = gates[:, :hidden], gates[:, hidden:]
            if linear_before_reset:
                inner = reset * (old @ r_n + rb[2 * hidden :])
            else:
                inner = (reset * old) @ r_n + rb[2 * hidden :]
            new = g(about.cut(row_BG[:, 2 * hidden :] + inner))
            return ((1 - z) * new + z * old,)

        return lambda xs: xs @ w[d].T + wb, cell

    return _run(about, x, hidden, lengths, [h], cell_of)


# ---- LSTM ----
def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None,
    c: Tensor | None = None, p: Tensor | None = None, *,
    hidden_size: int | None = None, direction: str = "forward", activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    clip: float | None = None, layout: int = 0, input_forget: int = 0, output_sequence: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns H = o * h(C) for every step, and the last H and C; the order of gates is i, o, f, c."""
    about = layout_of(
        "LSTM", ["Sigmoid", "Tanh", "Tanh"], direction, activations, activation_alpha, activation_beta, clip, layout
    )
    hidden = _hidden("LSTM", r, hidden_size)

    def cell_of(d: int) -> tuple[Callable[[Tensor], Tensor], Cell]:
        wb, rb = _biases(b, d, 4 * hidden, w)
        f, g, last = about.activations[d]
        peep = None if p is None else p[d].split(hidden)  # in the order i, o, f

        def cell(row_BG: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            old_h, old_c = state
            into_i, into_o, into_f, into_c = (row_BG + old_h @ r[d].T).split(hidden, 1)
            if peep is not None:
                into_i, into_f = into_i + peep[0] * old_c, into_f + peep[2] * old_c
            i = f(about.cut(into_i))
            forget = 1 - i if input_forget else f(about.cut(into_f))
            new_c = forget * old_c + i * g(about.cut(into_c))
            into_o = into_o if peep is None else into_o + peep[1] * new_c
            return f(about.cut(into_o)) * last(new_c), new_c

        return lambda xs: xs @ w[d].T + wb + rb, cell

    return _run(about, x, hidden, lengths, [h, c], cell_of)


OPERATORS = [
    row("RNN", 1, rnn, "3 3 3 2 1 3"), row("GRU", 1, gru, "3 3 3 2 1 3"), row("LSTM", 1, lstm, "3 3 3 2 1 3 3 2"),
]  # fmt: skip
