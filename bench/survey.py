"""The whole public surface on a CPU beside PyTorch: which operations are far slower?

    python -m bench.survey --json survey.jsonl           all of it: an hour and a half on one core
    python -m bench.survey --only max_pool,cumsum        rows that have one of these words
    python -m bench.survey --part 0/2                    every second row

In:    the rows of bench/survey_rows.py, and the table of operations (tests/operations): its calls, and these made large
Out:   a line for each row whose ratio is above `--above`, worst first; all figures as JSON lines on request

Both libraries run in this process, one thread each, in turns; a figure is the least of several turns.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tyro

from bench.survey_rows import ROWS

LARGE = 1 << 21  # elements of the largest operand
TURN_S, TURNS = 0.01, 5
LONG_S = 0.3  # a call that takes longer is timed in two turns
DTYPES = {"f": ("float64", "float16", "bfloat16"), "i": ("int8", "int64"), "u": ("uint8",), "b": ("bool",)}

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """One call of both libraries.

    functions:  of picograd and of PyTorch, of the tensors made of `arrays`
    dtype:      of the arrays of float64
    is_pull:    the gradients of these are computed, too
    """

    name: str
    functions: tuple[Function, Function]
    arrays: tuple[Array, ...]
    dtype: str = "float32"
    is_pull: bool = False


@dataclass
class Times:
    """Seconds: the first jitted call; a warm jitted and a warm eager one; PyTorch's."""

    name: str
    cold_s: float = 0.0
    jit_s: float = 0.0
    eager_s: float = 0.0
    torch_s: float = 0.0
    problem: str = ""

    @property
    def ratio(self) -> float:
        return (self.jit_s or self.eager_s) / self.torch_s if self.torch_s else 0.0


@dataclass(frozen=True)
class Arguments:
    """Measures public operations beside PyTorch."""

    # Comma list; rows with one of these words are measured; all if empty.
    only: str = ""
    # Every n-th row, from row i on, written i/n.
    part: str = "0/1"
    # Smallest ratio of picograd's time to PyTorch's that is printed.
    above: float = 2.0
    # File that receives a line for each row.
    json: Path | None = None


# ---- calls of the table of operations ----
def table_calls(is_wanted: Callable[[str], bool]) -> Iterator[Call]:
    """Yields each row's calls on large operands, the first one on its own as well: forward, backward, other dtypes."""
    from tests.operations.table import all_operations, arrays_of

    for row in filter(lambda row: is_wanted(str(row)), all_operations()):
        for count, sample in enumerate(row.samples(np.random.default_rng(0))):
            arrays = tuple(arrays_of((sample.args, sample.kwargs)))
            if not any(array.size > 1 for array in arrays):
                continue
            functions = _of_tensors(row.ours(), sample), _of_tensors(row.theirs(), sample)
            small = Call(f"{row}#{count}", functions, arrays)
            large = replace(small, name=f"{small.name} large", arrays=enlarged(arrays))
            yield from _orders(large, row.orders)
            if count == 0:
                yield from _orders(small, row.orders)
                dtypes = (dtype for letter in row.dtypes for dtype in DTYPES[letter])
                yield from (replace(large, name=f"{large.name} {dtype}", dtype=dtype) for dtype in dtypes)


def _of_tensors(function: Function, sample: Any) -> Function:
    """Returns a function of the tensors in the arguments of a sample."""
    from tests.operations.table import with_arrays

    def called(*tensors: Any) -> Any:
        rest = iter(tensors)
        args, kwargs = (with_arrays(part, lambda _: next(rest)) for part in (sample.args, sample.kwargs))
        return function(*args, **kwargs)

    return called


def _orders(call: Call, orders: int) -> Iterator[Call]:
    yield call
    if orders:
        yield replace(call, name=f"{call.name} grad", is_pull=True)


def enlarged(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Returns operands repeated along axes longer than one, all by one factor, until the largest has LARGE elements."""
    axes = max(array.ndim for array in arrays)
    factor = int((LARGE / max(array.size for array in arrays)) ** (1 / max(axes, 1)))
    return tuple(np.tile(array, [max(factor, 1) if n > 1 else 1 for n in array.shape]) for array in arrays)


# ---- declared calls ----
def declared_calls(is_wanted: Callable[[str], bool]) -> Iterator[Call]:
    """Yields the rows of bench/survey_rows.py."""
    for line in filter(is_wanted, ROWS.strip().splitlines()):
        if not line.startswith("#"):
            yield from declared(line)


def declared(line: str) -> Iterator[Call]:
    """Yields the calls of one row."""
    import torch

    import picograd as pg

    text, _, given = (part.strip() for part in line.partition(";"))
    expression, rng = text.removeprefix("d "), np.random.default_rng(0)
    operands = dict(_operand(part, rng) for part in given.split(","))
    functions = tuple(_compiled(expression, tuple(operands), library) for library in (pg, torch))
    call = Call(f"{expression} ; {given}", (functions[0], functions[1]), tuple(operands.values()))
    yield from _orders(call, int(text.startswith("d ")))


def _compiled(expression: str, names: tuple[str, ...], library: ModuleType) -> Function:
    is_torch = library.__name__ == "torch"
    scope = {"L": library, "F": library.nn.functional, "P": library.view_as_real if is_torch else lambda x: x}
    scope["C"] = library.view_as_complex if is_torch else lambda x: x
    compiled: Function = eval(f"lambda {', '.join(names)}: {expression}", scope)
    return compiled


def _operand(text: str, rng: np.random.Generator) -> tuple[str, Array]:
    name, _, spec = text.strip().partition("=")
    kind, _, dims = spec.rpartition(":")
    shape = tuple(map(int, dims.split("x")))
    if kind == "int8":
        return name, rng.integers(-99, 99, shape, np.int8)
    if kind.startswith("int"):
        return name, rng.integers(0, int(kind[3:]), shape)
    if kind == "bool":
        return name, rng.random(shape) < 0.5
    if kind in ("unit", "sorted"):
        drawn = 0.01 + 0.98 * rng.random(shape)
        return name, np.sort(drawn, -1) if kind == "sorted" else drawn
    x = rng.standard_normal(shape)
    if kind == "spd":
        return name, x @ x.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1])
    return name, x.astype(kind) if kind else x


# ---- both libraries on one call ----
def torch_step(call: Call) -> Function:
    """Returns a function that computes a call in PyTorch."""
    import torch

    operands = _tensors_of(call, torch)
    if not call.is_pull:
        return lambda: call.functions[1](*operands)
    primals = [x.requires_grad_() for x, array in zip(operands, call.arrays) if array.dtype == np.float64]

    def results() -> list[Any]:
        return [out for out in _flat(call.functions[1](*operands), torch.Tensor) if out.requires_grad]

    cotangents = [torch.randn_like(out) for out in results()]
    return lambda: torch.autograd.grad(results(), primals, cotangents, allow_unused=True)


def picograd_steps(call: Call) -> tuple[Function, Function]:
    """Returns a function that computes a call and waits for it, without jit and with."""
    import picograd as pg

    operands, step = _tensors_of(call, pg), call.functions[0]
    if call.is_pull:
        places = [i for i, array in enumerate(call.arrays) if array.dtype == np.float64]
        count = len(operands)

        def results(given: Sequence[Any], primals: Sequence[Any]) -> list[Any]:
            inside = dict(enumerate(given)) | dict(zip(places, primals))
            found = _flat(call.functions[0](*inside.values()), pg.Tensor)
            return [out for out in found if pg.is_floating_point(out)]

        def step(*given: Any) -> Any:
            primals = [given[i] for i in places]
            return pg.vjp(lambda *inner: results(given[:count], inner), *primals)[1](list(given[count:]))

        outputs = results(operands, [operands[i] for i in places])
        operands += [pg.randn(*out.shape).cast(out.dtype).realize() for out in outputs]
    jitted = pg.jit(step)
    return tuple(lambda each=each: pg.realize(_flat(each(*operands), pg.Tensor)) for each in (step, jitted))  # type: ignore


def _tensors_of(call: Call, library: Any) -> list[Any]:
    given = []
    for array in call.arrays:
        is_wide = call.dtype == "bfloat16" and array.dtype == np.float64
        tensor = library.tensor(_converted(array, call.dtype))
        given.append(tensor.bfloat16() if is_wide else tensor)
    return given


def _converted(array: Array, dtype: str) -> Array:
    if array.dtype != np.float64:
        return array
    if dtype == "bool":
        return np.asarray(array > 0)
    return (np.abs(array) if dtype == "uint8" else array).astype("float32" if dtype == "bfloat16" else dtype)


def _flat(result: Any, kind: type) -> list[Any]:
    """Returns the tensors in a result."""
    if isinstance(result, kind):
        return [result]
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _flat(part, kind)]


# ---- times ----
def measure(call: Call) -> Times:
    """Returns the times of both libraries in turns; what one of them cannot compute is a problem in words."""
    found = Times(call.name)
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        steps: dict[str, Function] = {}
        try:
            steps["torch_s"] = torch_step(call)
            steps["torch_s"]()
            steps["eager_s"], jitted = picograd_steps(call)
            for _ in range(3):
                steps["eager_s"]()
        except Exception as problem:  # the sizes are drawn for all rows alike: some fit no call
            found.problem = f"{type(problem).__name__}: {problem}".splitlines()[0]
            return found
        try:
            start = time.perf_counter()
            jitted()
            found.cold_s = time.perf_counter() - start
            jitted(), jitted()
            steps["jit_s"] = jitted
        except Exception as problem:  # some ask for values, which jit has not
            found.problem = f"{type(problem).__name__}: {problem}".splitlines()[0]
        for field, seconds in _in_turns(steps).items():
            setattr(found, field, seconds)
    return found


def _in_turns(steps: dict[str, Function]) -> dict[str, float]:
    best = dict.fromkeys(steps, float("inf"))
    for turn in range(TURNS):
        for field, step in steps.items():
            if turn >= 2 and best[field] > LONG_S:
                continue
            begin = time.perf_counter()
            while (start := time.perf_counter()) - begin < TURN_S:
                step()
                best[field] = min(best[field], time.perf_counter() - start)
    return best


def main(arguments: Arguments) -> None:
    """Measures the rows and prints those that take longest beside PyTorch."""
    os.environ["PICOGRAD_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    words = [word for word in arguments.only.split(",") if word]
    part, parts = map(int, arguments.part.split("/"))

    def is_wanted(text: str) -> bool:
        return not words or any(word in text for word in words)

    found: list[Times] = []
    for number, call in enumerate(chain(declared_calls(is_wanted), table_calls(is_wanted))):
        if number % parts == part:
            found.append(measure(call))
            if arguments.json is not None:
                with arguments.json.open("a") as lines:
                    lines.write(json.dumps(asdict(found[-1])) + "\n")
    for row in sorted(found, key=lambda row: row.ratio, reverse=True):
        if row.ratio > arguments.above:
            times = (1e3 * s for s in (row.jit_s, row.eager_s, row.torch_s))
            print("{:8.1f}  jit {:9.3f}  eager {:9.3f}  torch {:9.3f} ms".format(row.ratio, *times), row.name, sep="  ")


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.survey"))
