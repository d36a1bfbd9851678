"""The calls of one row of the table, made in both libraries."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import picograd as pg
from picograd.errors import PicogradError
from tools.opinfo.compare import compare, tolerance
from tools.opinfo.convert import Converter, copied, doubled, function_of, rebound, rounded, variants
from tools.opinfo.found import Differs, Missing, Row, Skipped, Values
from tools.opinfo.reasons import reason_for, reason_to_accept

LIMIT_S = 60


def attempt(row: Row, how: str, text: Callable[[], str], call: Callable[[], None]) -> None:
    """Makes a call in both libraries and counts what became of it."""
    try:
        with time_limit():
            call()
        row.add("right")
    except Skipped as error:
        row.add("skipped", str(error))
    except Missing as error:
        row.add("missing", str(error))
    except AttributeError as error:
        if isinstance(error.obj, pg.Tensor):
            row.add("missing", f"Tensor.{error.name}")
        else:
            row.add("wrong", f"{how}: {error}   {text()}")
    except PicogradError as error:
        row.add("refused", f"{how}: {type(error).__name__}: {error.fact[:200]}   {text()}")
    except Differs as error:
        row.add("wrong", f"{how}: {error}   {text()}")
    except Exception as error:
        row.add("wrong", f"{how}: {type(error).__name__}: {str(error)[:200]}   {text()}")


@contextmanager
def time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def shown(sample: Any) -> str:
    """Returns the arguments of a call, tensors by dtype and shape."""

    def short(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(short, value))}]"
        return repr(value)

    parts = [short(value) for value in (sample.input, *sample.args)]
    return ", ".join([*parts, *(f"{name}={short(value)}" for name, value in sample.kwargs.items())])[:300]


def run_sample(op: Any, sample: Any, how: str, known: Callable[..., Any], find: Callable[[], Any], bounds: Any) -> None:
    """Compares the result of one call; that of an in-place one is also what the first argument has become."""
    mine, args, kwargs = Converter(op.name)((sample.input, sample.args, sample.kwargs))
    function = find()
    prepared = op.gradcheck_wrapper if op.name.startswith("linalg.") else lambda f, *args, **kwargs: f(*args, **kwargs)
    if how == "inplace" and sample.broadcasts_input:
        raise Skipped("in place with a result of another shape")

    def reference(wide: bool) -> Any:
        first, others, named = (doubled if wide else copied)((sample.input, sample.args, sample.kwargs))
        result = prepared(known, first, *others, **named)
        return [result, first] if how == "inplace" else result

    try:
        expected = reference(wide=False)
    except Exception as error:
        raise Skipped(f"PyTorch raises {type(error).__name__}") from None
    result = prepared(function, mine, *args, **kwargs)
    result = [result, mine] if how == "inplace" else result
    process = sample.output_process_fn_grad if reason_for(op.name, "signs") else lambda x: x
    if reason_for(op.name, "ties") and sample.input.dtype not in (torch.float32, torch.float64):
        process = functools.partial(_without_places, op.name)
    is_random = drawn(op, sample)
    try:
        compare(process(result), process(expected), *bounds, is_random)
    except Values:
        try:
            exact = rounded(process(reference(wide=True)), process(expected))
        except Exception:
            exact = process(expected)
        compare(process(result), exact, *bounds)


def _without_places(name: str, result: Any) -> Any:
    return result.shape if name == "argsort" else result[0] if isinstance(result, (list, tuple)) else result


def drawn(op: Any, sample: Any) -> bool:
    """True where results are drawn."""
    return reason_for(op.name, "random") is not None or bool(sample.kwargs.get("dropout_p"))


def run_gradient(op: Any, sample: Any, bounds: Any) -> None:
    """Compares the gradients of one call, by the arguments that require one, for a cotangent drawn from a fixed seed."""
    arguments = (sample.input, sample.args, sample.kwargs)
    convert = Converter(op.name)
    args = convert(arguments)
    wanted = [leaf for leaf, _, _ in convert.made.values() if leaf.requires_grad]
    mine = [leaf for _, leaf, _ in convert.made.values() if leaf.requires_grad]
    function = function_of(op)
    known = _gradients(op, sample, op.op, arguments, wanted, torch.autograd.grad, torch.tensor)
    if known is None:
        raise Skipped("PyTorch's result has no gradient")
    found = _gradients(op, sample, function, args, mine, pg.grad, pg.Tensor) or [None] * len(mine)
    for grad, reference, leaf, own in zip(found, known, wanted, mine):  # no gradient is one of zeros
        expected = torch.zeros_like(leaf) if reference is None else reference
        compare(own * 0 if grad is None else grad, expected, *bounds, drawn(op, sample))


def _gradients(op: Any, sample: Any, function: Any, arguments: Any, leaves: list[Any], grad: Any, tensor: Any) -> Any:
    """Returns the gradients of sum(result * cotangent) over all results that have one; None: none has.

    `gradcheck_wrapper` makes an argument symmetric, or triangular, where a function reads but half of it.
    """
    prepared = op.gradcheck_wrapper if tensor is torch.tensor else rebound(op.gradcheck_wrapper)
    result = prepared(function, arguments[0], *arguments[1], **arguments[2])
    total = weighted_sum(sample.output_process_fn_grad(result), tensor)
    return None if total is None else grad(total, leaves, allow_unused=True)


def weighted_sum(result: Any, tensor: Any) -> Any:
    """Returns the sum of all results that have a gradient, times numbers drawn from a fixed seed; None: none has.

    `tensor`: makes a tensor of an array, in the library whose results they are.
    """
    total = None
    for number, part in enumerate(parts_of(result)):
        if getattr(part, "requires_grad", False):
            if isinstance(part, torch.Tensor) and part.dtype.is_complex:
                raise Skipped("complex numbers")
            weights = np.random.default_rng(number).standard_normal(tuple(part.shape))
            term = (part * tensor(weights).to(part.dtype)).sum()
            total = term if total is None else total + term
    return total


def parts_of(value: Any) -> Iterator[Any]:
    """Yields what stands in lists and tuples, however deep."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from parts_of(part)
    else:
        yield value


def run_error(op: Any, wrong: Any) -> None:
    """Makes a call that raises in PyTorch, and reads what it returns."""
    sample = wrong.sample_input
    args = Converter(op.name)((sample.input, sample.args, sample.kwargs))
    if "out" in sample.kwargs:
        raise Skipped("out=")
    function = function_of(op)
    run_wrong(op.name, lambda: function(args[0], *args[1], **args[2]), wrong)


def run_wrong(name: str, call: Callable[[], Any], wrong: Any) -> None:
    """Makes a call that raises in PyTorch: it must raise here, an error of picograd or of the same class."""
    try:
        for part in parts_of(call()):
            if isinstance(part, pg.Tensor):
                part.numpy()
    except (PicogradError, wrong.error_type):
        return
    if reason := reason_to_accept(name, wrong.error_regex):
        raise Skipped(reason)
    raise Differs(f"accepted; PyTorch: {wrong.error_type.__name__} {wrong.error_regex[:120]!r}")


# ---- all calls of an operator ----
def check(op: Any, kind: str, dtype: str, limit: int | None) -> Row | None:
    """Makes the calls of one operator; None: PyTorch's table has none of this kind."""
    name = op.name + (f"/{op.variant_test_name}" if op.variant_test_name else "")
    row = Row(name, kind, dtype)
    if reason := reason_for(op.name, "left out"):
        row.verdict, row.examples = "not applicable", [reason]
        return row
    torch.manual_seed(0)
    if kind == "errors":
        for wrong in () if op.error_inputs_func is None else op.error_inputs("cpu"):
            attempt(row, "error", functools.partial(shown, wrong.sample_input), functools.partial(run_error, op, wrong))
        return row.close() if row.counts else None
    if kind == "gradients" and (reason := reason_for(name, "no gradient")):
        row.verdict, row.examples = "not applicable", [reason]
        return row
    theirs_dtype = getattr(torch, dtype)
    if theirs_dtype not in op.supported_dtypes("cpu") or kind == "gradients" and not op.supports_autograd:
        return None
    bounds = tolerance(op, theirs_dtype, kind)
    for number, sample in enumerate(op.sample_inputs("cpu", theirs_dtype, requires_grad=kind == "gradients")):
        if limit is not None and number >= limit:
            break
        text = functools.partial(shown, sample)
        if kind == "gradients":
            attempt(row, "gradient", text, functools.partial(run_gradient, op, sample, bounds))
            continue
        for how, known, find in variants(op):
            attempt(row, how, text, functools.partial(run_sample, op, sample, how, known, find, bounds))
    return row.close() if row.counts else None
