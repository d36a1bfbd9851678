"""One step of a recurrent layer, as a formula and as a module: RNNCell, LSTMCell, GRUCell.

In:    a vector and a state
Out:   the new state; `Recurrent`, the base of cells and layers
Next:  picograd/nn/init.py

Letters: N batch, I features of the input, H features of the state, G gates (1, 4 or 3 in a step).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.build import need_float
from picograd.tensor.tensor import Tensor

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]

State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM; each (N, H)


# ---- one step: (N, G H) of the input, the state, (N, G H) of the state -> the new state ----
def tanh_step(x: Tensor, state: State, h: Tensor) -> State:
    """Returns (tanh(x + h),): Elman 1990, "Finding structure in time"."""
    return ((x + h).tanh().to(state[0].dtype),)  # both are of 16 bits in an autocast block


def relu_step(x: Tensor, state: State, h: Tensor) -> State:
    """Returns (relu(x + h),)."""
    return ((x + h).relu().to(state[0].dtype),)


def lstm_step(x: Tensor, state: State, h: Tensor) -> State:
    """Returns (o tanh(c'), c') with c' = f c + i g: Hochreiter, Schmidhuber 1997, with Gers's forget gate."""
    i, f, g, o = (x + h).chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(x: Tensor, state: State, h: Tensor) -> State:
    """Returns ((1 - z) n + z h,) with n = tanh(x_n + r h_n): Cho et al. 2014, arXiv:1406.1078, in PyTorch's form."""
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), h.chunk(3, -1)
    z, n = (x_z + h_z).sigmoid(), (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
    return (n + z * (state[0] - n),)


STEPS: dict[str, Callable[[Tensor, State, Tensor], State]] = {"tanh": tanh_step, "relu": relu_step}


class Recurrent(Module):
    """Base of layers and cells: weights (G H, I) and (G H, H) with their biases.

    gates:      G
    states:     tensors of a state
    folds_bias: the bias of the state can be added to the input's, before the loop
    proj_size:  features of what an LSTM hands on, 0 for H
    """

    gates = 1
    states = 1
    folds_bias = True
    proj_size = 0

    def __init__(self, input_size: int, hidden_size: int, bias: bool):
        name = type(self).__name__
        for label, value in (("input_size", input_size), ("hidden_size", hidden_size)):
            if value < 1:
                raise ArgumentError(f"{name}: {label} must be at least 1, got {value}.")
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        """Returns the new state from the gates' parts of input and state, each (N, G H)."""
        raise NotImplementedError

    def _make_weights(self, suffix: str, features: int, device: str | None, dtype: DType | None) -> None:
        """Draws the weights of one direction of one layer evenly from +-1 / sqrt(H)."""
        rows, bound = self.gates * self.hidden_size, 1.0 / math.sqrt(self.hidden_size)
        handed_on = self.proj_size or self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, features), "weight_hh": (rows, handed_on)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes |= {"weight_hr": (self.proj_size, self.hidden_size)}
        for label, shape in shapes.items():
            weight = new_parameter(shape, device, dtype)
            setattr(self, label + suffix, init.uniform_(weight, -bound, bound))

    def _weights(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        labels = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_ih, w_hh, b_ih, b_hh = (getattr(self, label + suffix, None) for label in labels)
        return w_ih, w_hh, b_ih, b_hh  # type: ignore[return-value]

    def _check_input(self, x: Tensor, ranks: tuple[int, ...], shapes: str) -> None:
        need_float(type(self).__name__, x.op, "input")
        if x.ndim not in ranks or x.shape[-1] != self.input_size:
            raise ShapeError(f"{type(self).__name__}: input must be {shapes} with I = {self.input_size}, got {x.shape}.")

    def _state_shapes(self, *axes: int) -> list[tuple[int, ...]]:
        """Returns the shape of each tensor of a state, with these axes before the features."""
        return [(*axes, self.proj_size or self.hidden_size), *[(*axes, self.hidden_size)] * (self.states - 1)]

    def _start(self, hx: Any, shapes: list[tuple[int, ...]], x: Tensor) -> State:
        """Returns the state to start from: zeros, or the user's after a look at its shapes."""
        if hx is None:
            return tuple(Tensor.zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes)
        given = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        if [tensor.shape for tensor in given] != shapes:
            wanted = f"{shapes[0]}" if self.states == 1 else f"({', '.join(map(str, shapes))})"
            raise ShapeError(f"{type(self).__name__}: the state must be {wanted}, got {[t.shape for t in given]}.")
        return given

    def _given(self, state: State) -> Any:
        return state[0] if self.states == 1 else state


# ---- one step of one layer ----
class RNNCellBase(Recurrent):
    """One step of one layer: what RNNCell, LSTMCell and GRUCell share: `input_size`, `hidden_size` and `bias`.

    >>> isinstance(nn.GRUCell(3, 4), RNNCellBase)
    True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(input_size, hidden_size, bias)
        self._make_weights("", input_size, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Returns the new state, for input (N, I) or (I,) and a state hx (N, H) or (H,)."""
        self._check_input(input, (1, 2), "(N, I), or (I,)")
        state = self._start(hx, self._state_shapes(*input.shape[:-1]), input)
        w_ih, w_hh, b_ih, b_hh = self._weights("")
        gates = functional.linear(input, w_ih, b_ih)
        return self._given(self._step(gates, state, functional.linear(state[0], w_hh, b_hh)))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of RNN: h' = tanh(W_ih x + b_ih + W_hh h + b_hh).

    Args:
      input_size:    I
      hidden_size:   H
      bias:          has b_ih and b_hh
      nonlinearity:  "tanh" or "relu"

    Raises:
      ArgumentError: a number below 1, another nonlinearity.

    >>> RNNCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if nonlinearity not in STEPS:
            raise ArgumentError(f'RNNCell: nonlinearity must be "tanh" or "relu", got {nonlinearity!r}.')
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        return STEPS[self.nonlinearity](x, state, h)


class LSTMCell(RNNCellBase):
    """One step of LSTM, from (h, c) to (h', c'). `input_size`, `hidden_size` and `bias` are those of RNNCell.

    >>> h, c = LSTMCell(3, 4)(Tensor.ones(2, 3))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4
    states = 2

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        return lstm_step(x, state, h)


class GRUCell(RNNCellBase):
    """One step of GRU, from h to h'. `input_size`, `hidden_size` and `bias` are those of RNNCell.

    >>> GRUCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    gates = 3

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        return gru_step(x, state, h)
