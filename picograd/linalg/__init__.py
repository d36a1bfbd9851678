"""Linear algebra, with the names, arguments and defaults of torch.linalg.

In:    stacks of matrices (..., m, n), of float32 or float64
Out:   tensors, or named tuples of them
Next:  picograd/linalg/solving.py

Here are names, arguments and results as torch.linalg has them. The Ops they are made of, which methods of Tensor share,
stand in picograd/tensor/products/.

What needs a factorization is computed by LAPACK on the host, within the plan (ir/host.py). What only values decide, such
as a singular matrix, raises LinAlgError on the line that asked, when the value is computed.
"""

from picograd.errors import LinAlgError as LinAlgError
from picograd.linalg.factors import (
    cholesky,
    cholesky_ex,
    householder_product,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    qr,
)
from picograd.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from picograd.linalg.products import (
    cross,
    det,
    diagonal,
    matmul,
    matrix_exp,
    matrix_power,
    multi_dot,
    slogdet,
    vander,
    vecdot,
)
from picograd.linalg.solving import (
    inv,
    inv_ex,
    lstsq,
    pinv,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from picograd.linalg.spectra import (
    eig,
    eigh,
    eigvals,
    eigvalsh,
    svd,
    svdvals,
)

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul",
    "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip
