"""A user's kernel compared with its meaning in NumPy, and its gradient with slopes of that meaning.

In:    a Kernel and its arguments
Out:   `Report`: the comparisons, true if nothing deviates

The kernel runs on the simulator, or on its arguments' GPU. The meaning is computed in float64. On the simulator threads and
blocks run in three orders, in which a kernel without races gives the same bits, and memory begins as NaN, so that elements
that no thread writes are found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from picograd.autograd import grad
from picograd.dtype import DType
from picograd.errors import ShapeError, UnsupportedOp
from picograd.record import Record
from picograd.tensor.tensor import Tensor
from picograd_lab.kernels.prepared import Array, Prepared
from picograd_lab.kernels.signature import Signature
from picograd_lab.verify.bounds import of_given

SIMULATOR, ORDERS = "CUDASIM", ("forward", "backward", "shuffled")
STEP, DIRECTIONS, SLOPE_TOLERANCE = 1e-4, 3, 2e-3  # of slopes: along random directions, in parts of what is summed up


class Kernel(Protocol):
    """A Kernel, as far as comparisons need it."""

    name: str
    signature: Signature
    meaning: Callable[..., Any] | None
    gradient: Callable[..., Any] | None

    def __call__(self, *args: Any) -> Any:
        """Returns the results."""
        ...

    def prepare(self, *args: Any) -> Prepared:
        """Returns one launch."""
        ...

    def argument(self, number: int) -> str:
        """Returns the name of an argument."""
        ...


class Line(Record):
    """One comparison.

    what:  a result, the gradient of an argument, or the order of threads
    said:  the finding
    """

    what: str
    said: str
    is_right: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.said}"


class Report(Record):
    """The findings of `Kernel.check`: true if nothing deviates; it prints a line per comparison."""

    name: str
    device: str
    lines: tuple[Line, ...]

    def __bool__(self) -> bool:
        return all(line.is_right for line in self.lines)

    def __str__(self) -> str:
        said = "agrees with its meaning" if self else "deviates from its meaning"
        return "\n".join([f"{self.name} on {self.device} {said}", *(f"  {line}" for line in self.lines)])

    __repr__ = __str__


def check(kernel: Kernel, args: tuple[Any, ...]) -> Report:
    """Compares a kernel with its meaning, and its gradient with slopes of the meaning.

    Raises:
      UnsupportedOp: the kernel has no meaning.
      ShapeError: the meaning has other shapes than the output says.
      DeviceError: the simulator finds a race, an access outside memory or a divergent barrier.
    """
    if kernel.meaning is None:
        raise UnsupportedOp(f"{kernel.name}: has no meaning to compare it with.", "give pg.kernel(..., meaning=...).")
    placed = tuple([_placed(arg) for arg in args])
    prepared = kernel.prepare(*placed)
    wide = [_wide(arg) for arg in placed]
    found = _results(prepared)
    meant = _meant(kernel, wide)
    shapes, expected = [value.shape for value in meant], [result.shape for result in found]
    if shapes != expected:
        given, wanted = ", ".join(map(str, shapes)), ", ".join(map(str, expected))
        raise ShapeError(f"{kernel.name}: its meaning gives shapes {given}, its output says {wanted}.")
    lines = [
        _compared(one.name, result, value, dtype)
        for one, result, value, dtype in zip(kernel.signature.results, found, meant, prepared.given.results)
    ]
    if prepared.name == SIMULATOR:
        lines += _in_other_orders(kernel, prepared, found)
    if kernel.gradient is not None and all(line.is_right for line in lines):
        lines += _gradients(kernel, placed, wide)
    return Report(kernel.name, prepared.name, tuple(lines))


def _placed(arg: Any) -> Any:
    """Returns an argument on a device that runs CUDA C: its GPU, else the simulator."""
    return arg.detach().to(SIMULATOR) if isinstance(arg, Tensor) and str(arg.device) != "CUDA" else arg


def _wide(arg: Any) -> Any:
    """Returns an argument for the meaning, floats in float64."""
    if not isinstance(arg, Tensor):
        return arg
    array = arg.numpy()
    return array.astype(np.float64) if arg.dtype.is_float else array


def _meant(kernel: Kernel, args: Sequence[Any]) -> list[Array]:
    """Returns the results by the meaning, which may work in the memory of what it is given."""
    assert kernel.meaning is not None
    own = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    return [np.asarray(value) for value in _listed(kernel.meaning(*own))]


def _listed(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _results(prepared: Prepared, order: str = "forward") -> list[Array]:
    prepared.forget()
    prepared.run(order=order)
    return prepared.results()


def _compared(name: str, found: Array, meant: Array, dtype: DType) -> Line:
    """Returns the comparison of a result with its meaning."""
    if found.size == 0:
        return Line(name, "nothing to compare", True)
    plain = found.astype(np.float64) if dtype.is_float else found
    missing = np.frombuffer(np.ascontiguousarray(found).tobytes(), np.uint8).reshape(found.size, -1).min(1) == 0xFF
    far = ~(plain == meant) & ~(np.isnan(plain) & np.isnan(meant)) if dtype.is_float else plain != meant
    error, limit = np.zeros(found.shape), 1.0
    if dtype.is_float:
        limit = float(of_given(meant, dtype).flat[0])
        with np.errstate(invalid="ignore"):
            error = np.where(far, np.abs(plain - meant), 0.0)
        far &= ~(error <= limit)
    if not far.any():
        within = f"{float(error.max(initial=0.0)) / limit:.0%} of the tolerance" if dtype.is_float else "to the bit"
        return Line(name, f"right, {within}", True)
    place = np.unravel_index(int(np.argmax(far)), found.shape)
    where = f"{name}[{', '.join(str(int(i)) for i in place)}]"
    if missing[int(np.argmax(far))]:
        count = int((far.reshape(-1) & missing).sum())
        return Line(name, f"no thread writes {count} of {found.size} elements, first {where}", False)
    fault = f"{int(far.sum())} of {found.size} elements deviate, first {where}: {found[place]}, not {meant[place]:.7g}"
    return Line(name, fault, False)


def _in_other_orders(kernel: Kernel, prepared: Prepared, found: Sequence[Array]) -> list[Line]:
    """Returns a line for a kernel whose bits depend on the order of threads."""
    for order in ORDERS[1:]:
        again = _results(prepared, order)
        for one, before, after in zip(kernel.signature.results, found, again):
            if before.tobytes() != after.tobytes():
                said = f"{one.name} has other bits when threads run {order}: a race, or a sum by atomics"
                return [Line("order of threads", said, False)]
    return [Line("order of threads", "the same bits forward, backward and shuffled", True)]


# ---- gradients ----
def _gradients(kernel: Kernel, args: tuple[Any, ...], wide: Sequence[Any]) -> list[Line]:
    """Returns a line for each argument with a gradient, compared with slopes of the meaning."""
    inputs = [i for i, arg in enumerate(args) if isinstance(arg, Tensor) and arg.dtype.is_float]
    rng = np.random.default_rng(0)
    leaves = list(args)
    for i in inputs:
        leaves[i] = args[i].detach().requires_grad_()
    results = [result for result in _listed(kernel(*leaves)) if result.requires_grad]
    numbers = [n for n, result in enumerate(_listed(kernel(*leaves))) if result.requires_grad]
    weights = [rng.standard_normal(result.shape) for result in results]
    device = str(args[inputs[0]].device) if inputs else SIMULATOR
    given = [Tensor(weight, dtype=result.dtype, device=device) for weight, result in zip(weights, results)]
    found = grad(results, [leaves[i] for i in inputs], given, allow_unused=True)
    lines = []
    for i, gradient in zip(inputs, found):
        if gradient is None:
            lines.append(Line(f"gradient of {kernel.argument(i)}", "none is given", True))
            continue
        array = gradient.numpy().astype(np.float64)
        lines.append(_along_directions(kernel, wide, i, array, list(zip(numbers, weights)), rng))
    return lines


def _along_directions(
    kernel: Kernel, wide: Sequence[Any], i: int, gradient: Array, weights: Sequence[tuple[int, Array]],
    rng: np.random.Generator,
) -> Line:  # fmt: skip
    """Returns the comparison of one gradient with slopes along random directions."""
    what, worst = f"gradient of {kernel.argument(i)}", 0.0

    def total(moved: Array) -> float:
        values = _meant(kernel, [*wide[:i], moved, *wide[i + 1 :]])
        return sum(float((values[number] * weight).sum()) for number, weight in weights)

    for _ in range(DIRECTIONS):
        direction = rng.standard_normal(gradient.shape)
        slope = (total(wide[i] + STEP * direction) - total(wide[i] - STEP * direction)) / (2 * STEP)
        parts = gradient * direction
        limit = SLOPE_TOLERANCE * max(float(np.abs(parts).sum()), abs(slope), 1e-30)
        error = abs(float(parts.sum()) - slope)
        worst = max(worst, error / limit)
        if not error <= limit:
            said = f"along a random direction the slope is {slope:.6g}, the gradient says {float(parts.sum()):.6g}"
            return Line(what, said, False)
    return Line(what, f"right, {worst:.0%} of the tolerance", True)
