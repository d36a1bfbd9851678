"""Linear and bilinear maps, and embeddings: rows of a table by index, and their sums.

Letters: V rows, D features, B bags.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, gather, permute, reshape, scatter
from picograd.ir.checks import Site, checked
from picograd.ir.op import Dim, Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.tensor.build import broadcast_shapes, broadcast_to, promoted, whole
from picograd.tensor.formulas import formula, of_tensors
from picograd.tensor.indexing import along_axis
from picograd.tensor.modes import lowered_to, no_grad, precision_mode, uses_tf32
from picograd.tensor.products import matmul_op
from picograd.tensor.tensor import Tensor

__all__ = ["bilinear", "embedding", "embedding_bag", "linear", "one_hot"]


# ---- maps ----
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """Returns input @ weight.T + bias.

    Args:
      input:   (..., K)
      weight:  (N, K), or (K,) if there is no bias
      bias:    (N,) or None

    Returns:   (..., N), or (...)

    Raises:
      ShapeError: the last axes of input and weight differ.
      DTypeError: the dtype is bool.

    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]]), Tensor([0.5]))
    Tensor([[11.5]])
    """
    x, w, precision, tf32 = input.read(), weight.read(), precision_mode.get(), uses_tf32(dtypes.float32)
    if bias is None:
        return Tensor.from_op(linear_op(x, w, precision, tf32), input.other_device("linear", weight))
    op = linear_with_bias_op(x, w, bias.read(), precision, tf32)
    return Tensor.from_op(op, input.other_device("linear", weight, bias))


def _hint(shape: Sequence[Dim], weight: Sequence[Dim]) -> str:
    """Returns a hint for inputs that do not match the weight: images that need to be flattened."""
    for axis in range(1, len(shape) - 1):
        if len(weight) == 2 and numel(shape[axis:]) == weight[1]:
            return f"input.flatten({axis}) fits; in a Sequential, nn.Flatten()."
    return "weight is (out_features, in_features)."


@formula
def linear_op(x: Op, weight: Op, precision: DType | None, tf32: bool) -> Op:
    """Returns x @ weight.T, computed in the given precision; `tf32` allows TF32 for float32."""
    if len(weight.shape) == 1:
        product = _product(x, reshape(weight, (1, *weight.shape)), precision, tf32)
        return reshape(product, product.shape[:-1])
    return _product(x, weight, precision, tf32)


@formula
def linear_with_bias_op(x: Op, weight: Op, bias: Op, precision: DType | None, tf32: bool) -> Op:
    """Returns x @ weight.T + bias; with a precision, a wider bias does not widen the result."""
    product = _product(x, weight, precision, tf32)
    wide = product.dtype if precision is not None else promoted(product, bias)
    shape = broadcast_shapes("linear", product.shape, bias.shape)
    return broadcast_to(cast(product, wide), shape) + broadcast_to(cast(bias, wide), shape)


def _product(x: Op, weight: Op, precision: DType | None, tf32: bool) -> Op:
    if len(weight.shape) != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ShapeError(
            f"linear: input {x.shape} does not fit weight {weight.shape}: the last axes must be equal.",
            hint=_hint(x.shape, weight.shape),
        )
    dtype = lowered_to(precision, promoted(x, weight))
    if dtype.kind == "b":
        raise DTypeError("linear: bools have no matrix product.", hint="cast them: x.int()")
    return matmul_op(cast(x, dtype), permute(cast(weight, dtype), (1, 0)), "linear", tf32 and dtype is dtypes.float32)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns input1 @ weight[n] @ input2 + bias[n] for each n.

    Args:
      input1:  (..., K1)
      input2:  (..., K2)
      weight:  (N, K1, K2)
      bias:    (N,) or None

    Returns:   (..., N)

    Raises:
      ShapeError: the shapes of inputs and weight do not match.

    >>> bilinear(Tensor([[1.0, 2.0]]), Tensor([[3.0]]), Tensor([[[1.0], [1.0]]]))
    Tensor([[9.]])
    """
    fits = weight.ndim == 3 and (input1.shape[-1:], input2.shape[-1:]) == (weight.shape[1:2], weight.shape[2:])
    if not fits or input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"bilinear: inputs {input1.shape} and {input2.shape} do not fit weight {weight.shape}, which is (N, K1, K2)."
        )
    rows, columns, out = weight.shape[1], weight.shape[2], weight.shape[0]
    first = input1.reshape(-1, rows) @ weight.permute(1, 0, 2).reshape(rows, out * columns)  # (B, N K2)
    product = (first.reshape(-1, out, columns) * input2.reshape(-1, 1, columns)).sum(-1, dtype=first.dtype)
    result = product.reshape(*input1.shape[:-1], out)
    return result if bias is None else result + bias


# ---- embeddings ----
def embedding(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Returns the rows of `weight` (V, D) with the indices in `input`: (*input.shape, D).

    Args:
      input:               integers of any shape
      weight:              (V, D)
      padding_idx:         a row without gradient; negative: from the end
      max_norm:            rows that are read are scaled to at most this norm, in place
      norm_type:           order of that norm
      scale_grad_by_freq:  divide the gradient of a row by how often it is read
      sparse:              has no effect: gradients are dense

    Raises:
      DTypeError: input is not an integer tensor.
      ShapeError: weight does not have two axes.
      ArgumentError: padding_idx is not a row.
      IndexingError: when the result is computed: an index is outside [0, V).

    >>> embedding(Tensor([1, 0]), Tensor([[0.0, 1.0], [2.0, 3.0]]))
    Tensor([[2., 3.],
            [0., 1.]])
    """
    if not input.dtype.is_int:
        raise DTypeError(
            f"embedding: the indices must be integers, got {input.dtype} of shape {input.shape}.", hint="input.long()"
        )
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight must be (V, D), got {weight.shape}.")
    padding = None if padding_idx is None else padding_row("embedding", padding_idx, weight.shape[0])
    if max_norm is not None:
        _renormalize(input, weight, max_norm, norm_type)
    op = weight.read()
    taken = Tensor.from_op(
        gather(op, along_axis("embedding", input.read(), op.shape, 0), 0), weight.other_device("embedding", input)
    )
    if scale_grad_by_freq:
        part = taken / _counts(input, weight.shape[0])[input].unsqueeze(-1).to(taken.dtype)
        taken = part + (taken - part).detach()
    return taken if padding is None else Tensor.choose((input == padding).unsqueeze(-1), taken.detach(), taken)


def embedding_bag(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Returns the "sum", "mean" or "max" of the rows of `weight` (V, D) in each bag: (B, D); 0 for an empty bag.

    Args:
      input:                (B, L) indices, one bag per row; or (N,), all bags in one axis
      weight:               (V, D)
      offsets:              (B,) start of each bag in an input of one axis
      max_norm, norm_type, scale_grad_by_freq, sparse: those of embedding
      mode:                 "sum", "mean" or "max"
      per_sample_weights:   a factor per index, of the shape of input, for "sum"
      include_last_offset:  the last of offsets is the end of the last bag
      padding_idx:          indices that are skipped

    Raises:
      DTypeError:    input is not an integer tensor.
      ShapeError:    the shape of weight, offsets or per_sample_weights does not match.
      ArgumentError: an unknown mode, or per_sample_weights for a mode other than "sum".
      IndexingError: when the result is computed: offsets do not begin with 0, decrease, or exceed N.

    >>> embedding_bag(Tensor([0, 1, 1]), Tensor([[1.0], [3.0]]), Tensor([0, 2]))
    Tensor([[2.],
            [3.]])
    """
    _check_bags(input, offsets, per_sample_weights, mode)
    padding = None if padding_idx is None else padding_row("embedding_bag", padding_idx, weight.shape[0])
    rows = embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq)
    return _reduced_bags(rows, input, offsets, per_sample_weights, mode, include_last_offset, padding)


@of_tensors
def _reduced_bags(
    rows: Tensor,
    input: Tensor,  # noqa: A002
    offsets: Tensor | None,
    per_sample_weights: Tensor | None,
    mode: str,
    include_last_offset: bool,
    padding: int | None,
) -> Tensor:
    """Returns the reduced rows of each bag."""
    dtype = rows.dtype
    rows = rows.to(dtype.compute_dtype)  # rounded once, at the end
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counted = Tensor.ones_like(input, dtype=dtypes.bool_) if padding is None else input != padding
    if offsets is None:
        return _of_rows(rows, counted, mode).to(dtype)
    bags = offsets.shape[0] - include_last_offset
    return _one_after_the_other(rows, counted, offsets, bags, mode).to(dtype)


def _check_bags(input: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None, mode: str) -> None:  # noqa: A002
    """Raises an error unless the mode exists and bags and factors have the right shapes."""
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f'embedding_bag: mode must be "sum", "mean" or "max", got {mode!r}.')
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ArgumentError(
            f'embedding_bag: per_sample_weights must have the shape of input {input.shape}, for mode "sum".'
        )
    if (input.ndim, offsets is None) not in ((2, True), (1, False)):
        raise ShapeError(f"embedding_bag: input must be (B, L), or (N,) with offsets, got {input.shape}.")


def _rising(offsets: Tensor, count: int) -> Tensor:
    """Returns the offsets; computing them raises an error unless they begin with 0 and do not decrease."""
    first = Tensor.arange(offsets.shape[0], device=offsets.device) == 0
    before = Tensor.choose(first, 0, offsets.roll(1))
    is_wrong = (offsets < before) | (offsets > count) | (first & (offsets != 0))
    fact = f"embedding_bag: offsets must begin with 0, never fall, and not exceed the {count} elements of input."
    site = Site(fact, "each says where its bag begins.")
    return offsets + Tensor.from_op(checked(is_wrong.long().read(), 1, site), offsets.cell.device)


def _one_after_the_other(rows_ND: Tensor, counted_N: Tensor, offsets: Tensor, bags: int, mode: str) -> Tensor:
    """Reduces counted rows to `bags` rows; bag b begins at offsets[b]."""
    rows = Tensor.choose(counted_N.unsqueeze(-1), rows_ND, -float("inf") if mode == "max" else 0.0)
    base, ones = filled(0, dtypes.int64, (rows.shape[0] + 1,)), filled(1, dtypes.int64, (bags,))
    begins = cast(_rising(offsets, rows.shape[0])[:bags].read(), dtypes.int64)
    starts = Tensor.from_op(scatter(base, begins, ones, OpCode.ADD, 0, 0), offsets.cell.device)
    places = (starts[:-1].cumsum(0) - 1).read()  # index of each element's bag
    none = filled(-float("inf") if mode == "max" else 0.0, rows.dtype, (bags, rows.shape[1]))
    total = scatter(none, places, rows.read(), OpCode.MAX if mode == "max" else OpCode.ADD, 0, 0)
    result = Tensor.from_op(total, rows.cell.device)
    if mode == "sum":
        return result
    numbers = scatter(filled(0, dtypes.int64, (bags,)), places, cast(counted_N.read(), dtypes.int64), OpCode.ADD, 0, 0)
    counts = Tensor.from_op(numbers, rows.cell.device).unsqueeze(-1)
    return result.masked_fill(counts == 0, 0.0) if mode == "max" else result / counts.clamp(min=1).to(result.dtype)


def _of_rows(rows_BLD: Tensor, counted_BL: Tensor, mode: str) -> Tensor:
    """Reduces the counted rows of each bag."""
    counted = counted_BL.unsqueeze(-1)
    if mode == "max":
        none = ~counted_BL.any(1, keepdim=True)
        held = rows_BLD.masked_fill(~counted, -float("inf")).amax(1)
        return held.masked_fill(none, 0.0)
    total = Tensor.choose(counted, rows_BLD, 0.0).sum(1)
    if mode == "sum":
        return total
    return total / counted_BL.sum(1, keepdim=True).clamp(min=1).to(total.dtype)


def padding_row(function: str, padding_idx: int, count: int) -> int:
    """Returns padding_idx counted from the front; raises ArgumentError if it is not a row."""
    if not -count <= whole(function, "padding_idx", padding_idx) < count:
        raise ArgumentError(f"{function}: padding_idx {padding_idx} is not one of {count} rows.")
    return padding_idx % count


def _counts(input: Tensor, count: int) -> Tensor:  # noqa: A002
    """Returns how often each of `count` rows is read, (V,) int64."""
    places = cast(input.flatten().read(), dtypes.int64)
    ones = filled(1, dtypes.int64, places.shape)
    return Tensor.from_op(scatter(filled(0, dtypes.int64, (count,)), places, ones, OpCode.ADD, 0, 0), input.cell.device)


@no_grad()
def _renormalize(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:  # noqa: A002
    """Scales the rows that are read to at most max_norm, in place."""
    values = weight.detach()
    lengths = values.norm(norm_type, 1, keepdim=True)
    is_long = (_counts(input, weight.shape[0]).unsqueeze(1) > 0) & (lengths > max_norm)
    values.copy_(Tensor.choose(is_long, values * (max_norm / (lengths + 1e-7)), values))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Returns int64 rows (*tensor.shape, num_classes): 1 at the class, else 0.

    Args:
      tensor:       integers of any shape, 0 .. num_classes - 1
      num_classes:  -1: the largest class plus 1, which is computed now

    Raises:
      IndexingError: when the result is computed: a class is outside [0, num_classes).

    >>> one_hot(Tensor([1, 0]), num_classes=3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    return tensor.one_hot(num_classes)
