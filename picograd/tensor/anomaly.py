"""Finds the operation that made the first NaN, and names the user's line.

In:    Ops whose values have been computed
Out:   `look_at`, which raises an error if one of them has a NaN; `detect_anomaly`, `set_detect_anomaly`

While the check is on, each computed value is copied to the host. If one has a NaN, the evaluator computes its graph again,
Op by Op, and the NaN is followed from operand to operand, up to an Op whose operands have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from picograd.autodiff.gradient import written_out
from picograd.autodiff.modes import describe
from picograd.engine.realize import to_host
from picograd.errors import AnomalyError, Line
from picograd.evaluator.graph import evaluate
from picograd.interrupts import whole_context
from picograd.ir.bodies import at_once, formula_results
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, SOURCES, OpCode
from picograd.ir.origin import lines_of

Values = Mapping[Op, np.ndarray[Any, Any]]
HINTS = {
    "NaN": "keep divisors and the operands of logarithms and roots away from 0: x.clamp(min=1e-6).",
    "infinity": "numbers exceed their dtype: use a smaller learning rate, or clip gradients.",
}


class Anomaly:
    """Settings of the search for NaN in this process.

    is_on:              whether computed values are checked
    is_infinity_found:  whether infinity counts like NaN
    """

    is_on = False
    is_infinity_found = False


class set_detect_anomaly:  # noqa: N801  # by PyTorch's name
    """Switches the search for NaN on or off at once; as a `with` block until its end.

    Args:
      mode:       True: all computed values are checked, forward and backward
      check_nan:  False: they are not checked for NaN
      check_inf:  infinity is an error, too

    >>> with set_detect_anomaly(True):
    ...     is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True, *, check_inf: bool = False):
        self._before = Anomaly.is_on, Anomaly.is_infinity_found, at_once.get()
        is_on = bool(mode and (check_nan or check_inf))
        self._set(is_on, check_inf, is_on)

    def _set(self, is_on: bool, is_infinity_found: bool, is_at_once: bool) -> None:
        Anomaly.is_on, Anomaly.is_infinity_found = is_on, is_infinity_found
        at_once.set(is_at_once)  # each Op then knows its line, and jitted functions run without jit

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._set(*self._before)


@whole_context
def detect_anomaly(check_nan: bool = True, *, check_inf: bool = False) -> Iterator[None]:
    """Returns a context in which a NaN is an error that names the operation that made it, with the user's line.

    A value is checked when it is computed, and backward() computes gradients at once. A NaN that no computed value depends
    on, such as one that `where` does not choose, is not found. Jitted functions run without jit.

    Args:
      check_nan:  False: nothing is checked, unless check_inf
      check_inf:  True: infinity is an error, too, as in a loss that diverges. A mask of -inf is accepted as long as values
                  computed from it are finite

    Cost:      every value is copied to the host; if a NaN is found, NumPy computes the graph once more.

    >>> x = Tensor([-1.0, 4.0], requires_grad=True)
    >>> with detect_anomaly():
    ...     try:
    ...         x.sqrt().sum().backward()
    ...     except autograd.AnomalyError as error:
    ...         print(error.fact)
    detect_anomaly: this line has the first NaN: SQRT gives 1 of 2 elements, from operands of -1 to 4.
    """
    with set_detect_anomaly(True, check_nan, check_inf=check_inf):
        yield


def is_anomaly_enabled() -> bool:
    """Returns True while values are checked for NaN.

    >>> is_anomaly_enabled()
    False
    """
    return Anomaly.is_on


# ---- looking ----
def look_at(ops: Iterable[Op], kind: str) -> None:
    """Checks computed values for NaN.

    Args:
      kind:  "result" or "gradient", for the error

    Raises:
      AnomalyError: an operation made a NaN, or a gradient has a NaN that was in the data.
    """
    for op in ops:
        if op.dtype.is_float and _is_wrong(_value_of(op)):
            raise_for(op, kind)


def _value_of(op: Op) -> np.ndarray[Any, Any]:
    """Returns the value of a computed Op; a graph of constants alone is not stored."""
    memory = op if op.code is OpCode.BUFFER else op.realized
    if memory is not None:
        return to_host(memory)
    (root,) = written_out([op])
    return _all_values(root)[root]


def _is_wrong(array: np.ndarray[Any, Any]) -> bool:
    return bool(_wrong(array).any())


def _wrong(array: np.ndarray[Any, Any]) -> Any:
    """Returns the elements of an array that are NaN, or infinite if infinity counts."""
    return (array != array) | (np.isinf(array) if Anomaly.is_infinity_found else False)


def raise_for(op: Op, kind: str) -> None:
    """Raises the error for a value with a NaN, unless the NaN of a result was in the data.

    Raises:
      AnomalyError: as it says.
    """
    root = _graph(op)
    values = _all_values(root)
    way = [root]  # from the value to the Op that made the NaN
    while (source := next((s for s in _sources(way[-1]) if s in values and _is_wrong(values[s])), None)) is not None:
        way.append(source)
    made = way[-1]
    line = next((lines_of(each)[0] for each in reversed(way) if lines_of(each)), None)
    if made.code not in SOURCES and _formula(made) is None:
        raise _error(made, values, kind, line)
    if kind == "gradient":
        fact = f"detect_anomaly: data of shape {tuple(made.shape)} have a NaN, and a gradient is computed from them."
        if made.code is OpCode.CONST:
            fact = "detect_anomaly: a gradient is the constant NaN, computed from numbers alone."
        raise AnomalyError(fact, line=line)


def _sources(op: Op) -> tuple[Op, ...]:
    """Returns the operands of an Op; for one result of several the operands of all."""
    return op.src[0].src if op.code is OpCode.OUTPUT else op.src


def _formula(op: Op) -> Op | None:
    """Returns the formula whose result an Op is, or None."""
    made_by = op.src[0] if op.code is OpCode.OUTPUT else op
    return made_by if made_by.code is OpCode.FORMULA else None


def _graph(op: Op) -> Op:
    """Returns the graph of a value, even of a formula's computed result."""
    (root,) = written_out([op])
    formula = _formula(root)
    if formula is None:
        return root
    results = formula_results(formula.arg, formula.src, formula.lines)
    (root,) = written_out([results[root.arg if root.code is OpCode.OUTPUT else 0]])
    return root


def _all_values(root: Op) -> Values:
    """Returns the values of an Op and of all Ops below it, computed by NumPy."""
    order = toposort([root])
    known = {op: to_host(op) for op in order if op.code is OpCode.BUFFER}
    known |= {op: to_host(op.realized) for op in order if op.realized and _formula(op) is not None}  # data
    order = toposort([root], stop=known)
    wanted = [op for op in order if op.dtype.is_float and (op.code not in SEVERAL_RESULTS or op in known)]
    return dict(zip(wanted, evaluate(wanted, known)))


def _error(made: Op, values: Values, kind: str, line: Line | None) -> AnomalyError:
    count = int(_wrong(values[made]).sum())
    number = "NaN" if (values[made] != values[made]).any() else "infinity"
    operands = [f"{values[s].min():.4g} to {values[s].max():.4g}" for s in _sources(made) if s in values and values[s].size]
    where = "the gradient of this line" if kind == "gradient" else "this line"
    name = describe(made.src[0] if made.code is OpCode.OUTPUT else made)
    fact = f"detect_anomaly: {where} has the first {number}: {name} gives {count} of {made.numel} elements"
    fact += f", from operands of {' and '.join(operands)}." if operands else "."
    return AnomalyError(fact, hint=HINTS[number], line=line)
