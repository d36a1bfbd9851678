"""One step of a recurrent layer as a module: RNNCell, LSTMCell, GRUCell.

In:    a vector and a state
Out:   the new state
Next:  picograd/nn/layers/recurrent_steps.py

Letters: N batch, I features of the input, H features of the state.
"""

from __future__ import annotations

from typing import Any

import picograd.nn.functional as functional
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.nn.layers.recurrent_steps import STEPS, Recurrent, State, gru_step, lstm_step
from picograd.tensor.tensor import Tensor

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


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

    def forward(self, input: Tensor, hx: Any = None) -> Any:  # noqa: A002
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
