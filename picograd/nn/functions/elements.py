"""What activations share: a formula of each element, its dtype and, on request, its place.

In:    a tensor and a formula on Ops
Out:   a tensor
Next:  picograd/nn/functions/rectifiers.py
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.errors import DTypeError
from picograd.ir.op import Op
from picograd.tensor.build import computed_in, to_float
from picograd.tensor.inplace import stored
from picograd.tensor.tensor import Tensor


def of_each(
    function: str,
    input: Tensor,  # noqa: A002
    formula: Callable[[Op], Op],
    inplace: bool = False,
    kinds: str = "f",
) -> Tensor:
    """Returns `formula` of each element, computed in float32 where the elements have 16 bits.

    kinds: letters of the dtypes it takes: "f", "fiu", ...; "F": integers become floats

    Raises:
      DTypeError: the dtype is of another kind.
    """
    if kinds != "F" and input.dtype.kind not in kinds:
        needed = "a float" if kinds == "f" else "numbers"
        raise DTypeError(f"{function}: needs {needed}, got {input.dtype} of shape {input.shape}.", hint="x.float()")
    op = to_float(input.read()) if kinds == "F" else input.read()
    tensor = Tensor.from_op(computed_in(op.dtype.compute_dtype, formula, (op,)), input.cell.device)
    return stored(function, input, tensor) if inplace else tensor
