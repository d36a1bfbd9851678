"""The meaning of Ops on whole arrays, of their graphs, and of Kernels, in NumPy.

The file is in this order: movement, reductions and indexing; products, convolutions and attention; graphs, run Op by Op;
Kernels, whose nests have graphs over PARAMs as outputs. Sums and products of floats are accumulated in float64 and rounded
once: the reference for every blocked, pairwise or split summation of a device. Integers are multiplied and added in the
dtype of the result, where they wrap: exact modulo 2**bits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.errors import ShapeError, UnsupportedOp, VerifyError
from picograd.evaluator.elementwise import ELEMENTWISE_RULES, Array, check, double, rounded
from picograd.evaluator.host import HOST_FUNCTIONS, Failed
from picograd.ir.checks import Unsolvable
from picograd.ir.host import GivenKernel
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import line_of, out_of_memory
from picograd.ir.shape import AttentionArg, check_array
from picograd.ir.stages import Kernel, Param
from picograd.ir.symbolic import dim_value

Variables = Mapping[str, int]
Rule = Callable[[Op, Sequence[Array], Variables], Any]


def shape_value(shape: Sequence[Dim], variables: Variables) -> tuple[int, ...]:
    """Returns a shape with the values of its symbolic dimensions."""
    return tuple(dim_value(dim, variables) for dim in shape)


# ---- movement ----
def _reshape(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return args[0].reshape(shape_value(op.shape, variables))


def _permute(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return args[0].transpose(op.arg)


def _expand(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return np.broadcast_to(args[0], shape_value(op.shape, variables))


def _pad(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return np.pad(args[0], [shape_value(pair, variables) for pair in op.arg]) if op.arg else args[0]


def _shrink(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return args[0][tuple(slice(*shape_value(pair, variables)) for pair in op.arg)]


def _flip(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return np.flip(args[0], op.arg)


# ---- along axes ----
UFUNCS: dict[OpCode, np.ufunc] = {
    OpCode.ADD: np.add,
    OpCode.MUL: np.multiply,
    OpCode.MAX: np.maximum,
    OpCode.MIN: np.minimum,
}
BOOL_UFUNCS: dict[OpCode, np.ufunc] = {
    OpCode.ADD: np.logical_or,
    OpCode.MUL: np.logical_and,
    OpCode.MAX: np.logical_or,
    OpCode.MIN: np.logical_and,
}


def _accumulated(op: Op, array: Array) -> tuple[Array, np.ufunc, np.dtype[Any]]:
    """Returns the operand, the ufunc of the combining opcode, and the dtype of the accumulation."""
    code = op.arg[0]
    if op.dtype.kind == "b":
        return array, BOOL_UFUNCS[code], np.dtype(np.bool_)
    if op.dtype.is_float:
        return double(array, op.src[0].dtype), UFUNCS[code], np.dtype(np.float64)
    return array, UFUNCS[code], op.dtype.numpy


def identity_of(code: OpCode, op: Op) -> Any:
    """Returns the value of REDUCE(code) over no elements."""
    if code in (OpCode.ADD, OpCode.MUL):
        return code is OpCode.MUL
    return op.dtype.min if code is OpCode.MAX else op.dtype.max


def _reduce(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    array, ufunc, dtype = _accumulated(op, args[0])
    code, axes = op.arg
    return ufunc.reduce(array.astype(dtype), axis=axes, initial=dtype.type(identity_of(code, op)))


def _scan(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    array, ufunc, dtype = _accumulated(op, args[0])
    return ufunc.accumulate(array.astype(dtype), axis=op.arg[1])


def _sort(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    """Stable argsort; NaN is the largest value. A rank outside is clamped."""
    axis, descending, *count = op.arg
    array = double(args[0], op.src[0].dtype)
    if descending:
        order = array.shape[axis] - 1 - np.flip(np.argsort(np.flip(array, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(array, axis=axis, kind="stable")
    if len(args) > 1:
        return np.take_along_axis(order, np.clip(args[1], 0, order.shape[axis] - 1), axis)
    return order.take(range(*count), axis) if count else order


def _iota(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return np.arange(dim_value(op.arg, variables))


# ---- indexing ----
def _within(index: Array, length: int) -> tuple[Array, Array]:
    """Returns the index as int64, with 0 for positions outside an axis, and a mask of those inside."""
    inside = (index >= 0) & (index < length)
    return np.where(inside, index, 0).astype(np.int64), inside


def _split(x: Array, index: Array, axis: int, batch: int) -> tuple[tuple[int, int, int, int], Array]:
    """Returns (batch, left, axis, right) element counts of x, and the index as (batch, J)."""
    groups = (x.shape[:batch], x.shape[batch:axis], x.shape[axis : axis + 1], x.shape[axis + 1 :])
    counts = tuple(math.prod(group) for group in groups)
    num_indices = math.prod(index.shape[batch:])
    return (counts[0], counts[1], counts[2], counts[3]), index.reshape(counts[0], num_indices)


def _gather(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    """Returns the slices with the given indices; an index outside the axis gives zeros."""
    x, (axis, batch) = args[0], op.arg
    shape = shape_value(op.shape, variables)
    if not x.shape[axis]:
        return np.zeros(shape, x.dtype)
    index, inside = _within(args[1], x.shape[axis])
    counts, flat = _split(x, index, axis, batch)
    rows, left = np.arange(counts[0])[:, None, None], np.arange(counts[1])[None, :, None]
    taken = x.reshape(counts)[rows, left, flat[:, None, :]]  # (batch, left, J, right)
    return np.where(inside.reshape(flat.shape)[:, None, :, None], taken, np.zeros((), x.dtype)).reshape(shape)


def _scatter(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    """Stores or combines the updates in the order of the index, so the last of equal indices is kept.

    Updates with an index outside the axis are left out.
    """
    base, (code, axis, batch) = args[0], op.arg
    index, inside = _within(args[1], base.shape[axis])
    counts, flat = _split(base, index, axis, batch)
    result = double(base, op.dtype).reshape(counts).copy()
    updates = double(args[2], op.dtype).reshape(counts[0], counts[1], flat.shape[1], counts[3])
    kept, left = inside.reshape(flat.shape), np.arange(counts[1])[None, :]
    ufunc = None if code is None else (BOOL_UFUNCS if op.dtype.kind == "b" else UFUNCS)[code]
    for j in range(flat.shape[1]):
        rows = kept[:, j].nonzero()[0]
        at = (rows[:, None], left, flat[rows, j, None])
        result[at] = updates[rows, :, j] if ufunc is None else ufunc(result[at], updates[rows, :, j])
    return result.reshape(base.shape)


def _update(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    result = args[0].copy()
    result[tuple(slice(*shape_value(pair, variables)) for pair in op.arg)] = args[1]
    return result


ARRAY_RULES: dict[OpCode, Rule] = {
    OpCode.RESHAPE: _reshape,
    OpCode.PERMUTE: _permute,
    OpCode.EXPAND: _expand,
    OpCode.PAD: _pad,
    OpCode.SHRINK: _shrink,
    OpCode.FLIP: _flip,
    OpCode.REDUCE: _reduce,
    OpCode.SCAN: _scan,
    OpCode.SORT: _sort,
    OpCode.IOTA: _iota,
    OpCode.GATHER: _gather,
    OpCode.SCATTER: _scatter,
    OpCode.UPDATE: _update,
}


# ---- products ----
def _computing(op: Op, args: Sequence[Array]) -> list[Array]:
    """Returns the operands in the dtype of the contraction."""
    dtype = np.dtype(np.float64) if op.dtype.is_float else op.dtype.numpy
    return [a.astype(dtype) for a in args]


def _matmul(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    lhs, rhs = _computing(op, args)
    return np.matmul(lhs, rhs)


# ---- convolution ----
def _dilated(x: Array, steps: Sequence[int]) -> Array:
    """Returns x (B, C, *spatial) with steps - 1 zeros between neighbours along each spatial axis."""
    spatial = tuple(max(0, (length - 1) * step + 1) for length, step in zip(x.shape[2:], steps))
    result = np.zeros(x.shape[:2] + spatial, x.dtype)
    result[(slice(None), slice(None), *(slice(None, None, step) for step in steps))] = x
    return result


def _padded(x: Array, padding: Sequence[tuple[int, int]]) -> Array:
    """Returns x with zeros around each spatial axis; negative padding crops."""
    lengths = x.shape[2:]
    zeros = [(max(0, before), max(0, after)) for before, after in padding]
    crop = tuple(slice(max(0, -before), length + min(0, after)) for (before, after), length in zip(padding, lengths))
    return np.pad(x[(slice(None), slice(None), *crop)], [(0, 0), (0, 0), *zeros])


def _conv(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    """out[b, o, p] = sum over c, t of x[b, c, p * stride + t * dilation] * w[o, c, t], by groups of channels."""
    x, w = _computing(op, args)
    arg, num_spatial = op.arg, x.ndim - 2
    shape = shape_value(op.shape, variables)
    x = _padded(_dilated(x, arg.input_dilation), arg.padding)
    x = x.reshape(x.shape[0], arg.groups, x.shape[1] // arg.groups, *x.shape[2:])
    w = w.reshape(arg.groups, w.shape[0] // arg.groups, *w.shape[1:])
    result = np.zeros((shape[0], arg.groups, w.shape[1], *shape[2:]), x.dtype)
    for tap in np.ndindex(*w.shape[3:]):
        start = [tap[i] * arg.dilation[i] for i in range(num_spatial)]
        span = [(shape[2 + i] - 1) * arg.stride[i] + 1 for i in range(num_spatial)]
        window = tuple(slice(start[i], start[i] + span[i], arg.stride[i]) for i in range(num_spatial))
        taken = x[(slice(None), slice(None), slice(None), *window)]  # (B, groups, C, *spatial)
        columns = taken.reshape(*taken.shape[:3], math.prod(shape[2:]))
        result += np.matmul(w[(..., *tap)], columns).reshape(result.shape)
    return result.reshape(shape)


# ---- attention ----
def visible(num_queries: int, num_keys: int, causal: bool, window: int) -> Array:
    """Returns (T, S) bool: whether a query sees a key.

    Query t is at position t + S - T. Causal: it sees no later key. window: it sees the last `window` keys up to its own; 0:
    all of them.
    """
    position = np.arange(num_queries)[:, None] + num_keys - num_queries
    key = np.arange(num_keys)[None, :]
    seen = np.ones((num_queries, num_keys), np.bool_)
    if causal:
        seen &= key <= position
    if window:
        seen &= key > position - window
    return seen


def _of_all_heads(args: Sequence[Array]) -> list[Array]:
    """Returns the operands of an attention, with k and v repeated for the heads that share them."""
    q, k, v, *rows = (a.astype(np.float64) for a in args[:6])
    heads = q.shape[1] // k.shape[1]
    return [q, np.repeat(k, heads, axis=1), np.repeat(v, heads, axis=1), *rows]


def _scores(q: Array, k: Array, arg: AttentionArg) -> tuple[Array, Array]:
    """Returns the capped scores (B, H, T, S), and whether they are visible (T, S)."""
    scores = np.matmul(q, k.swapaxes(-1, -2)) * arg.scale
    if arg.soft_cap:
        scores = arg.soft_cap * np.tanh(scores / arg.soft_cap)
    return scores, visible(q.shape[2], k.shape[2], arg.causal, arg.window)


def _dropped(weights: Array, op: Op, args: Sequence[Array]) -> Array:
    """Returns weights (B, H, T, S), or their gradients, after dropout: head n uses the bits of threefry((n T + t) S + s,
    seed), whose upper 24 are a fraction."""
    if not op.arg.dropout:
        return weights
    seeds, numbers = (a[..., None, None] for a in args[-2:])
    T, S = weights.shape[2:]
    counters = (numbers * (T * S) + np.arange(T * S).reshape(T, S)).astype(np.uint64)
    bits = ELEMENTWISE_RULES[OpCode.THREEFRY](op, np.broadcast_arrays(counters, seeds))
    fractions = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return np.where(np.float32(op.arg.dropout) <= fractions, weights / (1.0 - op.arg.dropout), 0.0)


def _attention(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Any, Any]:
    """softmax(mask(cap(scale * q k))) v, and the logarithm of its denominator; 0 and -inf for a query that sees no key.

    A bool mask is True for visible keys; a float mask is added to the scores.
    """
    q, k, v = _of_all_heads(args[:3])
    scores, seen = _scores(q, k, op.arg)
    for mask in () if op.arg.dropout else args[3:]:
        seen, scores = (seen & mask, scores) if mask.dtype == np.bool_ else (seen, scores + mask.astype(np.float64))
    scores = np.where(seen, scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(peak), 0.0, peak))
    total = weights.sum(axis=-1, keepdims=True)
    out = np.matmul(_dropped(weights, op, args), v) / np.where(total == 0, 1.0, total)
    return out, (peak + np.log(total))[..., 0]


def _attention_grad(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Any, ...]:
    """The gradients of q, k and v by the formulas of ir/attention.py; k and v sum over the heads that share them."""
    q, k, v, grad, logsumexp, delta = _of_all_heads(args)
    scores, seen = _scores(q, k, op.arg)
    weights = np.exp(np.where(seen, scores - logsumexp[..., None], -np.inf))
    slopes = weights * (_dropped(np.matmul(grad, v.swapaxes(-1, -2)), op, args) - delta[..., None])
    if op.arg.soft_cap:
        slopes *= 1 - (scores / op.arg.soft_cap) ** 2
    slopes *= op.arg.scale
    of_heads = np.matmul(slopes.swapaxes(-1, -2), q), np.matmul(_dropped(weights, op, args).swapaxes(-1, -2), grad)
    B, G, *_ = args[1].shape
    split = (x.reshape(B, G, q.shape[1] // G, *x.shape[2:]) for x in of_heads)  # (B, G, R, S, D or E)
    return np.matmul(slopes, k), *(x.sum(axis=2) for x in split)


CONTRACTION_RULES: dict[OpCode, Rule] = {
    OpCode.MATMUL: _matmul,
    OpCode.CONV: _conv,
    OpCode.ATTENTION: _attention,
    OpCode.ATTENTION_GRAD: _attention_grad,
}


# ---- graphs ----
Value = Array | tuple[Array, ...]


def evaluate(
    outputs: Sequence[Op], values: Mapping[Op, Array], variables: Mapping[str, int] | None = None, are_own: bool = True
) -> list[Array]:
    """Returns the value of each output; the results share no memory with `values`.

    Args:
      outputs:    Ops of a tensor graph
      values:     arrays for BUFFER, PARAM and any other Op whose value is known; graphs below these are not computed
      variables:  values of VARIABLEs by name; a BIND in the graph has the value of its own
      are_own:    False: results may be views, also of `values`

    Returns:   arrays with op.dtype.numpy and op.shape

    Raises:
      Refused: a CHECK fails, or a matrix has no result.
      UnsupportedOp: an Op that needs several processes, or a CUSTOM without a NumPy function.

    Cost:      memory of values that are still needed: a result is freed after its last use.

    >>> from picograd import dtype as dtypes
    >>> x = Op(OpCode.IOTA, dtypes.float32, (), 3)
    >>> evaluate([x + x], {})
    [array([0., 2., 4.], dtype=float32)]
    """
    with np.errstate(all="ignore"):
        order = toposort(outputs, stop=values)
        known = dict(variables or {})
        known.update(_bound(order))
        results = _run(order, list(outputs), values, known)
    try:
        return _own(results, values) if are_own else results
    except MemoryError:
        raise out_of_memory("NUMPY", max(array.nbytes for array in results)) from None


def _bound(order: Sequence[Op]) -> dict[str, int]:
    """Returns the values that BINDs give to variables, among these Ops or in their shapes."""
    found: dict[str, int] = {}
    dims = [dim for op in order for dim in op.shape if isinstance(dim, Op)]
    for op in toposort([*order, *dims]):
        if op.code is OpCode.BIND:
            found[op.src[0].arg[0]] = int(op.src[1].arg)
    return found


def _run(order: Sequence[Op], outputs: list[Op], values: Mapping[Op, Array], variables: Variables) -> list[Array]:
    """Runs Ops in order; each value is freed after its last reader."""
    uses: dict[Op, int] = {}
    for op in order:
        if op not in values:
            for s in op.src:
                uses[s] = uses.get(s, 0) + 1
    for op in outputs:
        uses[op] = uses.get(op, 0) + 1
    live: dict[Op, Value] = {}
    for op in order:
        if op in values:
            live[op] = _given(op, values[op], variables)
            continue
        try:
            live[op] = apply(op, [live[s] for s in op.src], variables)
        except (MemoryError, ValueError) as error:
            raise _too_large(op, error, variables) from None
        for s in op.src:
            uses[s] -= 1
            if not uses[s]:
                del live[s]
    return [_first(live[op]) for op in outputs]


def _too_large(op: Op, error: Exception, variables: Variables) -> Exception:
    """Returns the error for a result that is too large for memory, has too many axes, or a size that overflows."""
    shape = shape_value(op.shape, variables)
    check_array("NUMPY", shape, op.dtype.itemsize)
    nbytes = math.prod(shape) * op.dtype.itemsize
    return out_of_memory("NUMPY", nbytes) if isinstance(error, MemoryError) or nbytes > sys.maxsize else error


def _first(value: Value) -> Array:
    return value[0] if isinstance(value, tuple) else value


def _given(op: Op, array: Array, variables: Variables) -> Array:
    shape = shape_value(op.shape, variables)
    array = np.asarray(array)
    if array.dtype != op.dtype.numpy or array.size != math.prod(shape):
        raise ShapeError(f"evaluate: {op} was given a {array.dtype} array of shape {array.shape}.")
    return array.reshape(shape)


def _own(results: list[Array], values: Mapping[Op, Array]) -> list[Array]:
    """Returns C-contiguous arrays that alias neither each other nor `values`."""
    taken = {id(array) for array in values.values()}
    owned: list[Array] = []
    for array in results:
        if id(array) in taken or array.base is not None or not array.flags.c_contiguous:
            array = np.array(array, order="C")
        taken.add(id(array))
        owned.append(array)
    return owned


def apply(op: Op, args: Sequence[Value], variables: Variables) -> Value:
    """Returns the value of an Op from those of its sources."""
    if op.code is OpCode.OUTPUT:
        producer = args[0]
        assert isinstance(producer, tuple), f"OUTPUT of {op.src[0]}, which has one result"
        return rounded(producer[op.arg], op.dtype)
    arrays = [_first(a) for a in args]
    if op.code is OpCode.CHECK:
        return check(op, arrays, shape_value(op.arg[1:], variables)[0])
    elementwise = ELEMENTWISE_RULES.get(op.code)
    if elementwise is not None:
        return rounded(elementwise(op, arrays), op.dtype)
    rule = RULES.get(op.code)
    if rule is None:
        fact = f"evaluate: {op.code.name} has no meaning in a tensor graph of one process."
        raise UnsupportedOp(fact, line=line_of(op))
    result = rule(op, arrays, variables)
    return tuple(np.asarray(r) for r in result) if isinstance(result, tuple) else rounded(result, op.dtype)


# ---- sources and identities ----
def _missing(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    raise VerifyError(f"evaluate: {op} has no value.")


def _const(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return np.array(op.arg, np.float64 if op.dtype.is_float else op.dtype.numpy)


def _variable(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return np.array(shape_value((op,), variables)[0])


def _bind(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return args[1]


def _identity(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return args[0]


# ---- bodies ----
def _run_body(body: Op, args: Sequence[Array], variables: Variables) -> list[Array]:
    order = toposort(body.src)
    values = {op: args[op.arg[0]] for op in order if op.code is OpCode.PARAM}
    return _run(order, list(body.src), values, variables)


def _call(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Array, ...]:
    return tuple(_run_body(op.arg, args, variables))


def _loop(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Array, ...]:
    """Runs the body for step i on (carry, row i of each stacked input); it returns the new carry, then output rows."""
    body, num_carry, num_steps = op.arg
    carry, stacked = list(args[:num_carry]), args[num_carry:]
    steps = shape_value((num_steps,), variables)[0]
    rows: list[list[Array]] = [[] for _ in body.src[num_carry:]]
    for i in range(steps):
        results = _run_body(body, [*carry, *(np.asarray(s[i]) for s in stacked)], variables)
        carry = results[:num_carry]
        for collected, row in zip(rows, results[num_carry:]):
            collected.append(row)
    shapes = [(steps, *shape_value(out.shape, variables)) for out in body.src[num_carry:]]
    made = [np.stack(r) if r else np.zeros(s, o.dtype.numpy) for r, s, o in zip(rows, shapes, body.src[num_carry:])]
    return (*carry, *made)


def _custom(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    """Calls a function of the host."""
    if 0 in shape_value(op.shape, variables):
        return np.zeros(shape_value(op.shape, variables), op.dtype.numpy)
    try:
        return HOST_FUNCTIONS[op.arg.name](*args, *op.arg.options)
    except Failed as failed:
        assert op.arg.site is not None, f"{op.arg.name} cannot fail"
        raise Unsolvable(op.arg.site, failed.number, 0, line_of(op), op) from None


def _kernel(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Array, ...]:
    """Computes the NumPy function of a user's kernel."""
    given: GivenKernel = op.arg[0]
    if given.meaning is None:
        fact = f"kernel {given.name}: it has no meaning in NumPy, and its source cannot run here."
        raise UnsupportedOp(fact, "give pg.kernel(..., meaning=...).", line_of(op))
    found = given.meaning(args)
    results = found if isinstance(found, tuple) else (found,)
    shapes = [np.shape(result) for result in results]
    expected = [shape_value(shape, variables) for shape in op.arg[1][: given.num_results]]
    if shapes != expected:
        wanted = ", ".join(map(str, expected))
        fact = f"kernel {given.name}: its meaning gives shapes {', '.join(map(str, shapes))}, its output says {wanted}."
        raise ShapeError(fact, line=line_of(op))
    return tuple([rounded(np.asarray(result), dtype) for result, dtype in zip(results, given.dtypes)])


RULES: dict[OpCode, Rule] = {
    OpCode.BUFFER: _missing,
    OpCode.PARAM: _missing,
    OpCode.CONST: _const,
    OpCode.VARIABLE: _variable,
    OpCode.BIND: _bind,
    OpCode.LEAF: _identity,
    OpCode.DETACH: _identity,
    OpCode.CONTIGUOUS: _identity,
    OpCode.COPY: _identity,
    OpCode.CALL: _call,
    OpCode.LOOP: _loop,
    OpCode.CUSTOM: _custom,
    OpCode.KERNEL: _kernel,
    **ARRAY_RULES,
    **CONTRACTION_RULES,
}


# ---- kernels ----
def prepare(params: Sequence[Param], arrays: Sequence[Array | None], variables: Mapping[str, int]) -> list[Array]:
    """Returns each slot's memory as a flat view; missing scratch slots get new memory.

    Raises:
      VerifyError: an array has another dtype, too few elements, or is not contiguous.
    """
    memories: list[Array] = []
    for slot, param in enumerate(params):
        given = arrays[slot] if slot < len(arrays) else None
        numel = dim_value(param.numel, variables)
        if given is None and param.role in ("scratch", "report"):
            given = unspecified(numel, param.dtype.numpy)
        if given is None or given.dtype != param.dtype.numpy or given.size < numel or not given.flags.c_contiguous:
            found = "nothing" if given is None else f"{given.dtype} {given.shape}"
            raise VerifyError(f"slot {slot} needs a contiguous {param.dtype} array of {numel} elements, got {found}.")
        memories.append(given.reshape(-1))
    return memories


def unspecified(numel: int, dtype: np.dtype[np.generic]) -> Array:
    """Returns memory filled with NaN or a large number, which shows if it is read before it is written."""
    memory = np.empty(numel, dtype)
    memory.view(np.uint8)[...] = 1 if dtype == np.bool_ else 0x7F
    if np.dtype(dtype).kind in "fV":
        memory[...] = np.nan
    return memory


def evaluate_kernel(kernel: Kernel, arrays: Sequence[Array | None], variables: Mapping[str, int] | None = None) -> None:
    """Runs a kernel: within a phase, all reads come before all writes.

    Args:
      arrays:     by slot, in the params' dtypes and with at least their elements; None for scratch allocates it
      variables:  values of the kernel's symbolic integers by name
    """
    known = dict(variables or {})
    memories = prepare(kernel.params, arrays, known)
    for phase in kernel.phases:
        outputs = [output for nest in phase for output in nest.outputs]
        values: dict[Op, Array] = {}
        for op in toposort([value for _, value in outputs]):
            if op.code is OpCode.PARAM:
                shape = shape_value(op.shape, known)
                check_array("NUMPY", shape, op.dtype.itemsize)
                values[op] = memories[op.arg[0]][: math.prod(shape)].reshape(shape)
        results = evaluate([value for _, value in outputs], values, known, are_own=len(outputs) > 1)
        for (slot, _), result in zip(outputs, results):
            if kernel.params[slot].role == "in":
                raise VerifyError(f"kernel {kernel.name} writes slot {slot}, which is an input.")
            memories[slot][: result.size] = result.reshape(-1)
