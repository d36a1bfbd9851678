"""Every row of the table on x[:n]: what it gives for as many rows, or the reason why a number is needed."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import IndexingError, ShapeError
from tests.operations.table import Array, Operation, Sample, all_operations, arrays_of, with_arrays
from tests.operations.test_operations import converted, host, tensors_of

# reason: rows, as patterns of "name" or "name-variant"
REFUSED = {
    "the shape of the result depends on values": """
        Tensor.masked_select Tensor.repeat_interleave-tensor Tensor.unique Tensor.unique-dim
        Tensor.unique_consecutive Tensor.unique_consecutive-dim
    """,
    "the number of results, or their shape, is no sum or multiple of the length": """
        Tensor.split Tensor.split_with_sizes Tensor.chunk Tensor.tensor_split Tensor.vsplit Tensor.unbind Tensor.unfold
        Tensor.diagonal_scatter linalg.diagonal* Tensor.trace Tensor.combinations
        nn.functional.pdist
    """,
    "the call gives a number for the length, which is right for one of its values alone": """
        Tensor.reshape Tensor.view Tensor.unflatten Tensor.expand Tensor.broadcast_to Tensor.view_as Tensor.reshape_as
        Tensor.expand_as Tensor.slice_scatter nn.functional.affine_grid Tensor.addbmm
        linalg.tensorinv linalg.tensorsolve
    """,
    "a function of the host, whose matrices and transforms have sides of known lengths": """
        Tensor.cholesky* Tensor.det Tensor.inverse Tensor.logdet Tensor.matrix_exp Tensor.matrix_power Tensor.pinverse
        Tensor.qr Tensor.slogdet Tensor.svd Tensor.lu* lu_unpack Tensor.triangular_solve* fft.*fftn
        linalg.cholesky* linalg.det* linalg.eig*
        linalg.householder_product linalg.inv* linalg.lstsq linalg.lu* linalg.matrix_power linalg.matrix_rank
        linalg.pinv* linalg.qr* linalg.slogdet linalg.solve* linalg.svd*
    """,
    "half the length, or its logarithm, is needed": """
        Tensor.median Tensor.nanmedian Tensor.quantile* Tensor.nanquantile Tensor.searchsorted
        Tensor.searchsorted-right Tensor.searchsorted-int32 Tensor.nonzero_static fft.*fftshift
    """,
    "the length may be one, and two points are needed": """
        gradient
    """,
    "elements are counted on the host": """
        Tensor.numel result_type
    """,
}
ROWS = all_operations()


def reason(row: Operation) -> str | None:
    """Returns why a row is refused, or None."""
    found = (why for why, names in REFUSED.items() if any(fnmatchcase(str(row), name) for name in names.split()))
    return next(found, None)


def run(row: Operation, call: Sample, first: Array, length: Any, together: bool) -> Any:
    """Calls a row with the array `first` as x[:length]; `together`: all others of as many rows, too."""
    cut = []

    def tensor(array: Array) -> Tensor:
        values = converted(array, "float32")
        if array is not first and not (together and array.ndim and len(array) == len(first)):
            return Tensor(values)
        cut.append(array)
        return Tensor(np.concatenate([values, values[:2]])).realize()[:length]

    args, kwargs = (with_arrays(part, tensor) for part in (call.args, call.kwargs))
    return row.ours()(*args, **kwargs)


@pytest.mark.variants
@pytest.mark.req("G4")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_works_on_symbolic_lengths_or_is_refused_for_a_reason(row: Operation, rng: np.random.Generator) -> None:
    """The first operand is x[:n], and so is every other of as many rows; else the first alone."""
    call = row.samples(rng)[0]
    first = next((array for array in arrays_of([call.args, call.kwargs]) if array.ndim and len(array) > 1), None)
    if first is None:
        assert reason(row) is None
        return
    n = pg.Variable("n", 1, len(first) + 2).bind(len(first))
    refused = []
    for together in (True, False):
        try:
            found = run(row, call, first, n, together)
        except (ShapeError, IndexingError) as error:
            refused.append(error)
            continue
        assert reason(row) is None, "it works"
        expected = tensors_of(run(row, call, first, len(first), together))
        for mine, reference in zip(tensors_of(found), expected, strict=True):
            np.testing.assert_allclose(host(mine), host(reference), rtol=row.rtol, atol=row.atol)
        return
    assert reason(row) is not None, refused[0].fact
    for error in refused:
        assert error.line is not None and os.path.dirname(error.line.file) == os.path.dirname(__file__)
        assert "<" not in error.fact and ("n=" in error.fact or " = " in error.fact), error.fact


def test_no_reason_is_given_for_rows_that_are_not_there() -> None:
    patterns = {name for names in REFUSED.values() for name in names.split()}
    assert not [name for name in patterns if not any(fnmatchcase(str(row), name) for row in ROWS)]
