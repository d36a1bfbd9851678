"""Recurrent layers: steps as formulas; the cells RNNCell, LSTMCell, GRUCell; and RNN, LSTM, GRU over sequences.

The products of all inputs with weight_ih are one product before the loop; the loop is one `scan`.

Letters: T steps, N batch, I features of the input, H features of the state, G gates (1, 4 or 3 in a step), D directions,
L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import picograd.nn.functional as functional
from picograd.control.flow import scan
from picograd.dtype import DType, float32
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import cast, shrink_axis, unary
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import OpCode
from picograd.nn.functions.linear import linear_op, linear_with_bias_op
from picograd.nn.module import Module
from picograd.nn.parameter import draw_evenly, new_parameter
from picograd.nn.utils.rnn import PackedSequence, is_inside, packed_like
from picograd.tensor.arguments import at_least
from picograd.tensor.build import computed_in, need_float, promoted, static
from picograd.tensor.formulas import formula
from picograd.tensor.modes import precision_mode, uses_tf32
from picograd.tensor.pointwise import relu, sigmoid
from picograd.tensor.random import probability
from picograd.tensor.tensor import Tensor

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]


State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM; each (N, H)


# ---- one step: (N, G H) of the input, (N, G H) of the state, the state -> the new state ----
def tanh_step(x: Op, h: Op, before: Op) -> tuple[Op, ...]:
    """Returns (tanh(x + h),): Elman 1990, "Finding structure in time"."""
    return (cast(unary(OpCode.TANH, _both(OpCode.ADD, x, h)), before.dtype),)  # gates have 16 bits under autocast


def relu_step(x: Op, h: Op, before: Op) -> tuple[Op, ...]:
    """Returns (relu(x + h),)."""
    return (cast(relu(_both(OpCode.ADD, x, h)), before.dtype),)


def lstm_step(x: Op, h: Op, _before: Op, c: Op) -> tuple[Op, ...]:
    """Returns (o tanh(c'), c') with c' = f c + i g: Hochreiter, Schmidhuber 1997, with Gers's forget gate."""
    i, f, g, o = _gates(_both(OpCode.ADD, x, h), 4)
    kept, new = _both(OpCode.MUL, _sigmoid(f), c), _both(OpCode.MUL, _sigmoid(i), unary(OpCode.TANH, g))
    c = _both(OpCode.ADD, kept, new)
    return _both(OpCode.MUL, _sigmoid(o), unary(OpCode.TANH, c)), c


def gru_step(x: Op, h: Op, before: Op) -> tuple[Op, ...]:
    """Returns ((1 - z) n + z h,) with n = tanh(x_n + r h_n): Cho et al. 2014, arXiv:1406.1078, in PyTorch's form."""
    (x_r, x_z, x_n), (h_r, h_z, h_n) = _gates(x, 3), _gates(h, 3)
    r, z = _sigmoid(_both(OpCode.ADD, x_r, h_r)), _sigmoid(_both(OpCode.ADD, x_z, h_z))
    n = unary(OpCode.TANH, _both(OpCode.ADD, x_n, _both(OpCode.MUL, r, h_n)))
    return (_both(OpCode.ADD, n, _both(OpCode.MUL, z, _both(OpCode.SUB, before, n))),)


NONLINEARITIES = ("tanh", "relu")
STEPS: dict[str, Callable[..., tuple[Op, ...]]] = {
    "tanh": tanh_step, "relu": relu_step, "lstm": lstm_step, "gru": gru_step,
}  # fmt: skip


def _both(code: OpCode, a: Op, b: Op) -> Op:
    """Applies an operation to two operands of one shape, in their common dtype."""
    dtype = promoted(a, b)
    return Op(code, dtype, (cast(a, dtype), cast(b, dtype)))


def _sigmoid(x: Op) -> Op:
    return computed_in(x.dtype.compute_dtype, sigmoid, (x,))


def _gates(op: Op, count: int) -> list[Op]:
    axis, length = len(op.shape) - 1, static(op.shape[-1]) // count
    return [shrink_axis(op, axis, i * length, (i + 1) * length) for i in range(count)]


@formula
def cell_step(*ops: Op, cell: str, step: str, has_bias: bool, precision: DType | None, tf32: bool) -> tuple[Op, ...]:
    """Returns the state after one step of a cell; a form of operands is checked once.

    Args:
      ops:         input (N, I) or (I,), the state, W_ih, W_hh; b_ih, b_hh with `has_bias`
      cell:        class name of the cell
      step:        a name in STEPS
      precision, tf32: as for linear_op
    """
    x, *state = ops[: -4 if has_bias else -2]
    w_ih, w_hh = ops[len(state) + 1 : len(state) + 3]
    check_input(cell, x, (1, 2), "(N, I), or (I,)", w_ih.shape[1])
    check_state(cell, [op.shape for op in state], [(*x.shape[:-1], w_hh.shape[1])] * (2 if step == "lstm" else 1))
    if has_bias:
        b_ih, b_hh = ops[-2:]
        gates = [linear_with_bias_op(*of, precision, tf32) for of in ((x, w_ih, b_ih), (state[0], w_hh, b_hh))]
    else:
        gates = [linear_op(*of, precision, tf32) for of in ((x, w_ih), (state[0], w_hh))]
    return STEPS[step](*gates, *state)


def check_input(layer: str, x: Op, ranks: tuple[int, ...], shapes: str, features: Dim) -> None:
    """Raises an error unless an input is a float of one of these ranks with this many features."""
    need_float(layer, x, "input")
    if len(x.shape) not in ranks or x.shape[-1] != features:
        raise ShapeError(f"{layer}: input must be {shapes} with I = {features}, got {x.shape}.")


def check_state(layer: str, given: Sequence[Shape], shapes: Sequence[Shape]) -> None:
    """Raises an error unless the tensors of a state have these shapes."""
    if [*given] != [*shapes]:
        wanted = f"{shapes[0]}" if len(shapes) == 1 else f"({', '.join(map(str, shapes))})"
        raise ShapeError(f"{layer}: the state must be {wanted}, got {[*given]}.")


class Recurrent(Module):
    """Base of layers and cells: weights (G H, I) and (G H, H), and their biases.

    gates:      number of gates, G
    states:     number of tensors of a state
    folds_bias: the state's bias may be added to the input's before the loop
    proj_size:  features of the projected state of an LSTM, 0 without a projection
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

    def _kind(self) -> str:
        """Returns the name of the layer's step in STEPS."""
        raise ArgumentError(f"{type(self).__name__} is a base class; use RNN, LSTM, GRU or one of their cells.")

    def _step(self, x: Tensor, state: State, h: Tensor) -> State:
        """Returns the new state from the gate inputs of x and of the state, each (N, G H)."""
        device = x.other_device(type(self).__name__, h, *state)
        made = STEPS[self._kind()](x.read(), h.read(), *[tensor.read() for tensor in state])
        return tuple([Tensor.from_op(op, device) for op in made])

    def _make_weights(self, suffix: str, features: int, device: str | None, dtype: DType | None) -> None:
        """Makes the weights of one direction of a layer."""
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
        """Draws all weights and biases uniformly from +-1 / sqrt(H)."""
        draw_evenly(self.hidden_size, *self.parameters())

    def _weights(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        labels = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_ih, w_hh, b_ih, b_hh = (getattr(self, label + suffix, None) for label in labels)
        return w_ih, w_hh, b_ih, b_hh  # type: ignore[return-value]

    def _state_shapes(self, *axes: int) -> list[tuple[int, ...]]:
        """Returns the shape of each tensor of a state; `axes` come before the features."""
        return [(*axes, self.proj_size or self.hidden_size), *[(*axes, self.hidden_size)] * (self.states - 1)]

    def _start(self, hx: Any, shapes: list[tuple[int, ...]], x: Tensor) -> State:
        """Returns the initial state: zeros, or the user's, whose shapes are checked."""
        if hx is None:
            return tuple(Tensor.zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes)
        given = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        check_state(type(self).__name__, [tensor.shape for tensor in given], shapes)
        return given

    def _given(self, state: State) -> Any:
        return state[0] if self.states == 1 else state


# ---- one step of one layer ----
class RNNCellBase(Recurrent):
    """Base of RNNCell, LSTMCell and GRUCell, which do one step; arguments are `input_size`, `hidden_size` and `bias`.

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
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            self.register_parameter(name, None)
        self._make_weights("", input_size, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Returns the new state, for input (N, I) or (I,) and a state hx (N, H) or (H,)."""
        if hx is None:
            hx = self._start(None, self._state_shapes(*input.shape[:-1]), input)
        state = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        w_ih, w_hh, b_ih, b_hh = self._weights("")
        tensors = (*state, w_ih, w_hh) if b_ih is None or b_hh is None else (*state, w_ih, w_hh, b_ih, b_hh)
        name = type(self).__name__
        made = cell_step(
            input.read(), *[tensor.read() for tensor in tensors],
            cell=name, step=self._kind(), has_bias=b_ih is not None,
            precision=precision_mode.get(), tf32=uses_tf32(float32),
        )  # fmt: skip
        device = input.other_device(name, *tensors)
        last = made[-1]  # NOTE: computing a long graph with only one of the states would lose the others
        return self._given(tuple([Tensor.from_op(op, device, settles=op is last) for op in made]))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of RNN: h' = tanh(W_ih x + b_ih + W_hh h + b_hh).

    Args:
      input_size:    I
      hidden_size:   H
      bias:          add b_ih and b_hh
      nonlinearity:  "tanh" or "relu"

    Raises:
      ArgumentError: a size below 1, or an unknown nonlinearity.

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
        if nonlinearity not in NONLINEARITIES:
            raise ArgumentError(f'RNNCell: nonlinearity must be "tanh" or "relu", got {nonlinearity!r}.')
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype)

    def _kind(self) -> str:
        return self.nonlinearity


class LSTMCell(RNNCellBase):
    """One step of LSTM, from (h, c) to (h', c'); `input_size`, `hidden_size` and `bias` as in RNNCell.

    >>> h, c = LSTMCell(3, 4)(Tensor.ones(2, 3))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4
    states = 2

    def _kind(self) -> str:
        return "lstm"


class GRUCell(RNNCellBase):
    """One step of GRU, from h to h'; `input_size`, `hidden_size` and `bias` as in RNNCell.

    >>> GRUCell(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    gates = 3

    def _kind(self) -> str:
        return "gru"


# ---- whole sequences ----
class RNNBase(Recurrent):
    """Base of RNN, LSTM and GRU: layers over whole sequences; features of two directions are concatenated.

    Arguments are input_size, hidden_size, num_layers, bias, batch_first, dropout and bidirectional, see RNN, and
    proj_size, see LSTM.

    Raises:
      ArgumentError: a size below 1, a dropout that is not a probability, or a proj_size out of range.

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
        """Returns the states after all steps, (T, N, D H), and the last state.

        input (T, N, I), (N, T, I) if batch_first, (T, I), or packed by nn.utils.rnn, as then is the result;
        hx, the initial state, (L D, N, H), or (L D, H)
        """
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        shapes = "(T, I), or (N, T, I)" if self.batch_first else "(T, I), or (T, N, I)"
        check_input(type(self).__name__, input.op, (2, 3), shapes, self.input_size)
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
        """Runs over padded sequences; the state of a sequence stays unchanged after its end."""
        x_TNI = packed.padded
        check_input(type(self).__name__, x_TNI.op, (3,), "packed (T, I)", self.input_size)
        places, batch = self.num_layers * (1 + self.bidirectional), x_TNI.shape[1]
        start = self._start(hx, self._state_shapes(places, batch), x_TNI)
        y_TNH, last = self._run(x_TNI, start, is_inside(x_TNI, packed.lengths))
        return packed_like(y_TNH, packed), self._given(last)

    def _run(self, x_TNI: Tensor, start: State, alive_TN1: Tensor | None = None) -> tuple[Tensor, State]:
        """Runs all layers; returns the states after all steps, (T, N, D H), and the last ones, (L D, N, H) each."""
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
        """Runs one direction of a layer; returns the states after all steps, (T, N, H), and the last one."""
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
        """Does nothing: weights need not be contiguous.

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
      num_layers:     L; each layer reads the states of the previous one
      nonlinearity:   "tanh" or "relu"
      bias:           add b_ih and b_hh
      batch_first:    sequences are (N, T, I) instead of (T, N, I); states stay (L D, N, H)
      dropout:        probability, in training, on the input of each layer except the first
      bidirectional:  add a second set of weights that runs backwards; D = 2

    Raises:
      ArgumentError: a size below 1, a dropout that is not a probability, or an unknown nonlinearity.

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
        if nonlinearity not in NONLINEARITIES:
            raise ArgumentError(f'RNN: nonlinearity must be "tanh" or "relu", got {nonlinearity!r}.')
        self.nonlinearity = nonlinearity
        shape = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(*shape, device=device, dtype=dtype)

    def _kind(self) -> str:
        return self.nonlinearity


class LSTM(RNNBase):
    """c' = f c + i g, h' = o tanh(c') along a sequence, the gates i, f, g, o from W_ih x + b_ih + W_hh h + b_hh.

    The state is (h, c). Arguments as in RNN: input_size, hidden_size, num_layers, bias, batch_first, dropout,
    bidirectional; and proj_size P: h' is projected by W_hr to P features (Sak et al. 2014, arXiv:1402.1128).

    Raises:
      ArgumentError: a size below 1, a dropout that is not a probability, or a proj_size not below hidden_size.

    >>> output, (h, c) = LSTM(3, 4, num_layers=2)(Tensor.ones(5, 2, 3))
    >>> output.shape, h.shape, c.shape
    ((5, 2, 4), (2, 2, 4), (2, 2, 4))
    """

    gates = 4
    states = 2

    def _kind(self) -> str:
        return "lstm"


class GRU(RNNBase):
    """h' = (1 - z) n + z h along a sequence, n = tanh(W_in x + b_in + r (W_hn h + b_hn)), r and z gates.

    Arguments as in RNN: input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional; proj_size is
    accepted by LSTM only.

    Raises:
      ArgumentError: a size below 1, a dropout that is not a probability, or a proj_size.

    >>> output, last = GRU(3, 4, bidirectional=True)(Tensor.ones(5, 2, 3))
    >>> output.shape, last.shape
    ((5, 2, 8), (2, 2, 4))
    """

    gates = 3
    folds_bias = False  # r multiplies b_hn

    def _kind(self) -> str:
        return "gru"
