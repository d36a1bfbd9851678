"""Recurrent layers: one step as a formula and as a module, RNNCell, LSTMCell, GRUCell; RNN, LSTM, GRU over sequences.

The products of all inputs with weight_ih come before the loop, as one product; the loop is one `scan`.

Letters: T steps, N batch, I features of the input, H features of the state, G gates (1, 4 or 3 in a step), D directions,
L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import picograd.nn.functional as functional
from picograd.control.flow import scan
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.module import Module
from picograd.nn.parameter import draw_evenly, new_parameter
from picograd.nn.utils.rnn import PackedSequence, is_inside, packed_like
from picograd.tensor.arguments import at_least
from picograd.tensor.build import need_float
from picograd.tensor.random import probability
from picograd.tensor.tensor import Tensor

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]


# ---- one step ----
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
    proj_size:  features of the state that an LSTM passes on, 0 for H
    """

    gates = 1
    states = 1
    folds_bias = True
    proj_size = 0

    def __init__(self, input_size: int, hidden_size: int, bias: bool):
        name = type(self).__name__
        for label, value in (("input_size", input_size), ("hidden_size", hidden_size)):
            at_least(name, label, value, 1)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        """Returns the new state from the gates' parts of input and state, each (N, G H)."""
        raise NotImplementedError

    def _make_weights(self, suffix: str, features: int, device: str | None, dtype: DType | None) -> None:
        """Makes the weights of one direction of one layer."""
        rows = self.gates * self.hidden_size
        handed_on = self.proj_size or self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, features), "weight_hh": (rows, handed_on)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes |= {"weight_hr": (self.proj_size, self.hidden_size)}
        for label, shape in shapes.items():
            setattr(self, label + suffix, new_parameter(shape, device, dtype))

    def reset_parameters(self) -> None:
        """Draws all weights and biases evenly from +-1 / sqrt(H), in the constructor and whenever it is called."""
        draw_evenly(self.hidden_size, *self.parameters())

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
    """Base of RNNCell, LSTMCell and GRUCell, one step of one layer: `input_size`, `hidden_size` and `bias`.

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
        self.reset_parameters()

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


# ---- whole sequences ----
class RNNBase(Recurrent):
    """Base of RNN, LSTM and GRU: layers over whole sequences; features of two directions are concatenated.

    Their arguments are input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, see RNN, and
    proj_size, see LSTM.

    Raises:
      ArgumentError: a number below 1, a dropout that is no probability, or a proj_size that does not fit.

    >>> isinstance(nn.LSTM(3, 4), RNNBase)
    True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(input_size, hidden_size, bias)
        if not 0 <= proj_size < hidden_size:
            raise ArgumentError(f"{type(self).__name__}: proj_size {proj_size} must be below hidden_size {hidden_size}.")
        if proj_size and self.states == 1:
            raise ArgumentError(f"{type(self).__name__}: proj_size is for LSTM alone, got {proj_size}.")
        self.proj_size = proj_size
        at_least(type(self).__name__, "num_layers", num_layers, 1)
        probability(type(self).__name__, "dropout", dropout)
        self.num_layers, self.batch_first = num_layers, batch_first
        self.dropout, self.bidirectional = dropout, bidirectional
        directions = ("", "_reverse") if bidirectional else ("",)
        for layer in range(num_layers):
            for direction in directions:
                features = input_size if layer == 0 else len(directions) * (proj_size or hidden_size)
                self._make_weights(f"_l{layer}{direction}", features, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        """Returns the states after every step, (T, N, D H), and the last one.

        input (T, N, I), (N, T, I) if batch_first, (T, I), or packed by nn.utils.rnn: then the result is, too;
        hx, the state to start from, (L D, N, H), or (L D, H)
        """
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        self._check_input(input, (2, 3), "(T, I), or (N, T, I)" if self.batch_first else "(T, I), or (T, N, I)")
        is_batch = input.ndim == 3
        x_TNI = input.unsqueeze(1) if not is_batch else (input.transpose(0, 1) if self.batch_first else input)
        places = self.num_layers * (1 + self.bidirectional)
        batch = (x_TNI.shape[1],) if is_batch else ()
        start = self._start(hx, self._state_shapes(places, *batch), input)
        if not is_batch:
            start = tuple(tensor.unsqueeze(1) for tensor in start)
        y_TNH, last = self._run(x_TNI, start)
        if not is_batch:
            y_TNH, last = y_TNH.squeeze(1), tuple(tensor.squeeze(1) for tensor in last)
        elif self.batch_first:
            y_TNH = y_TNH.transpose(0, 1)
        return y_TNH, self._given(last)

    def _run_packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """Runs over padded sequences, whose states stay as they are where a sequence has no step."""
        x_TNI = packed.padded
        self._check_input(x_TNI, (3,), "packed (T, I)")
        places, batch = self.num_layers * (1 + self.bidirectional), x_TNI.shape[1]
        start = self._start(hx, self._state_shapes(places, batch), x_TNI)
        y_TNH, last = self._run(x_TNI, start, is_inside(x_TNI, packed.lengths))
        return packed_like(y_TNH, packed), self._given(last)

    def _run(self, x_TNI: Tensor, start: State, alive_TN1: Tensor | None = None) -> tuple[Tensor, State]:
        """Runs layer after layer; returns the states after every step, (T, N, D H), and the last, (L D, N, H) each."""
        directions = ("", "_reverse") if self.bidirectional else ("",)
        ends: list[State] = []
        for layer in range(self.num_layers):
            if layer:
                x_TNI = functional.dropout(x_TNI, self.dropout, self.training)
            found = []
            for direction in directions:
                state = tuple(tensor[len(ends)] for tensor in start)
                y_TNH, end = self._direction(x_TNI, state, alive_TN1, f"_l{layer}{direction}", bool(direction))
                found.append(y_TNH)
                ends.append(end)
            x_TNI = found[0] if len(found) == 1 else Tensor.cat(found, -1)
        return x_TNI, tuple(Tensor.stack([end[i] for end in ends]) for i in range(self.states))

    def _direction(
        self, x_TNI: Tensor, state: State, alive_TN1: Tensor | None, suffix: str, reverse: bool
    ) -> tuple[Tensor, State]:
        """Runs one direction of one layer; returns the states after every step, (T, N, H), and the last."""
        w_ih, w_hh, b_ih, b_hh = self._weights(suffix)
        w_hr = getattr(self, "weight_hr" + suffix, None)
        if b_ih is not None and b_hh is not None and self.folds_bias:
            b_ih, b_hh = b_ih + b_hh, None

        def step(state: State, given: Any) -> tuple[State, Tensor]:
            gates_NG, alive_N1 = given if alive_TN1 is not None else (given, None)
            after = self._step(gates_NG, state, functional.linear(state[0], w_hh, b_hh))
            if w_hr is not None:
                after = (functional.linear(after[0], w_hr), *after[1:])
            if alive_N1 is not None:
                after = tuple(new.where(alive_N1, old) for new, old in zip(after, state))
            return after, after[0]

        gates_TNG = functional.linear(x_TNI, w_ih, b_ih)
        given = gates_TNG if alive_TN1 is None else (gates_TNG, alive_TN1)
        end, y_TNH = scan(step, state, given, reverse=reverse)
        return y_TNH, end

    def flatten_parameters(self) -> None:
        """Does nothing: weights need not be contiguous here.

        >>> nn.LSTM(3, 4).flatten_parameters()
        """

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction.

        >>> [len(weights) for weights in nn.GRU(3, 4, num_layers=2).all_weights]
        [4, 4]
        """
        suffixes = [f"_l{i}{way}" for i in range(self.num_layers) for way in ("", "_reverse")[: 1 + self.bidirectional]]
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return [[getattr(self, kind + suffix) for kind in kinds if hasattr(self, kind + suffix)] for suffix in suffixes]

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        plain: dict[str, Any] = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        plain["bidirectional"] = False
        changed = {name: getattr(self, name) for name, value in plain.items() if getattr(self, name) != value}
        return ", ".join([shown, *(f"{name}={value}" for name, value in changed.items())])


# ---- RNN, LSTM, GRU ----
class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh) along a sequence.

    Args:
      input_size:     I
      hidden_size:    H
      num_layers:     L; each reads the states of the one before
      nonlinearity:   "tanh" or "relu"
      bias:           has b_ih and b_hh
      batch_first:    sequences are (N, T, I) instead of (T, N, I); states stay (L D, N, H)
      dropout:        probability, in training, on the input of each layer but the first
      bidirectional:  a second set of weights runs from the end; D = 2

    Raises:
      ArgumentError: a number below 1, a dropout that is no probability, another nonlinearity.

    >>> output, last = RNN(3, 4)(Tensor.ones(5, 2, 3))
    >>> output.shape, last.shape
    ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if nonlinearity not in STEPS:
            raise ArgumentError(f'RNN: nonlinearity must be "tanh" or "relu", got {nonlinearity!r}.')
        self.nonlinearity = nonlinearity
        shape = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(*shape, device=device, dtype=dtype)

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        return STEPS[self.nonlinearity](x, state, h)


class LSTM(RNNBase):
    """c' = f c + i g, h' = o tanh(c') along a sequence, the gates i, f, g, o from W_ih x + b_ih + W_hh h + b_hh.

    The state is (h, c). Arguments are those of RNN: input_size, hidden_size, num_layers, bias, batch_first, dropout,
    bidirectional; and proj_size P: h' is multiplied by W_hr, P features (Sak et al. 2014, arXiv:1402.1128).

    Raises:
      ArgumentError: a number below 1, a dropout that is no probability, or a proj_size not below hidden_size.

    >>> output, (h, c) = LSTM(3, 4, num_layers=2)(Tensor.ones(5, 2, 3))
    >>> output.shape, h.shape, c.shape
    ((5, 2, 4), (2, 2, 4), (2, 2, 4))
    """

    gates = 4
    states = 2

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        return lstm_step(x, state, h)


class GRU(RNNBase):
    """h' = (1 - z) n + z h along a sequence, n = tanh(W_in x + b_in + r (W_hn h + b_hn)), r and z gates.

    Arguments are those of RNN: input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional; proj_size
    is for LSTM alone.

    Raises:
      ArgumentError: a number below 1, a dropout that is no probability, or a proj_size.

    >>> output, last = GRU(3, 4, bidirectional=True)(Tensor.ones(5, 2, 3))
    >>> output.shape, last.shape
    ((5, 2, 8), (2, 2, 4))
    """

    gates = 3
    folds_bias = False  # r multiplies b_hn

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        return gru_step(x, state, h)
