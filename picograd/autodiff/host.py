"""Gradients of the functions of ir/host.py, built of matrix products and of the same functions.

In:    the incoming gradient `grad` and the CUSTOM `out`
Out:   the gradient of one operand

Capital letters are matrices, G is the gradient of the result. Sources: Giles 2008, "Collected matrix derivative results for
forward and reverse mode algorithmic differentiation" (inverse, solve, determinant, eigenvalues, singular values); Murray
2016, arXiv:1602.07527 (Cholesky); Golub, Pereyra 1973, SIAM J. Numer. Anal. 10(2), eq. 4.12 (pseudoinverse); Roberts,
Roberts 2020, arXiv:2009.10071 (QR); Mathias 1996, SIAM J. Matrix Anal. 17(3), theorem 2.1 (exponential).
"""

from __future__ import annotations

from picograd.autodiff.modes import SourceRule
from picograd.errors import GradientError
from picograd.ir.build import (
    along_columns,
    along_rows,
    either,
    equal,
    everywhere,
    factors_of,
    less,
    pad,
    positions,
    product,
    reshape,
    rows_columns,
    shrink_axis,
    swap_last,
    total,
    triangle,
    unary,
    where,
    with_diagonal,
    zeros_like,
)
from picograd.ir.host import Options, host_call
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import line_of


def call(name: str, *src: Op, options: Options = (), like: Op | None = None) -> Op:
    """Returns a function of the host, which fails with the words of `like`, a call that would have failed as well."""
    return host_call(name, src[0].dtype, src, options, None if like is None else like.arg.site)


# ---- systems ----
def inv_grad(grad: Op, out: Op) -> Op:
    """-X.T G X.T, with X the inverse."""
    transposed = swap_last(out)
    return -product(transposed, grad, transposed)


def solve_right(grad: Op, out: Op) -> Op:
    """A.T \\ G."""
    return call("solve", swap_last(out.src[0]), grad, like=out)


def solve_matrix(grad: Op, out: Op) -> Op:
    """-(A.T \\ G) X.T."""
    return -product(solve_right(grad, out), swap_last(out))


def triangular_right(grad: Op, out: Op) -> Op:
    """A.T \\ G, where A.T is the other triangle."""
    upper, unit = out.arg.options
    return call("solve_triangular", swap_last(out.src[0]), grad, options=(not upper, unit))


def triangular_matrix(grad: Op, out: Op) -> Op:
    """The triangle of -(A.T \\ G) X.T."""
    upper, unit = out.arg.options
    return triangle(-product(triangular_right(grad, out), swap_last(out)), not upper, 0.0 if unit else 1.0)


def pinv_grad(grad: Op, out: Op) -> Op:
    """-P.T G P.T + (I - A P) G.T P P.T + P.T P G.T (I - P A), with P the pseudoinverse."""
    a, transposed, back = out.src[0], swap_last(out), swap_last(grad)
    through = product(back, out, transposed)  # (m, n)
    left = through - product(a, out, through)
    under = product(transposed, out, back)
    right = under - product(under, out, a)
    return left + right - product(transposed, grad, transposed)


# ---- determinants ----
def det_grad(grad: Op, out: Op) -> Op:
    """G times the cofactors."""
    a = out.src[0]
    return everywhere(grad, a) * call("cofactor", a, like=out)


def cofactor_grad(grad: Op, out: Op) -> Op:
    """<G, X.T> C - C G.T X.T, with C the cofactors and X the inverse: a second derivative of a singular matrix has none."""
    transposed = swap_last(call("inv", out.src[0], like=out))
    return everywhere(total(grad * transposed), out) * out - product(out, swap_last(grad), transposed)


def slogdet_grad(grad: Op, out: Op) -> Op:
    """X.T times the gradient of the logarithm; the sign has none."""
    a = out.src[0]
    return everywhere(reshape(shrink_axis(grad, -1, 1, 2), a.shape[:-2]), a) * swap_last(call("inv", a, like=out))


# ---- triangular factors ----
def cholesky_grad(grad: Op, out: Op) -> Op:
    """The symmetric part of L.T \\ (lower triangle of L.T G, its diagonal halved) / L."""
    transposed = swap_last(out)
    inner = triangle(product(transposed, grad), True, 0.5)
    left = call("solve_triangular", transposed, inner, options=(True, False))
    whole = call("solve_triangular", transposed, swap_last(left), options=(True, False))
    return (whole + swap_last(whole)) * 0.5


def lu_grad(grad: Op, out: Op) -> Op:
    """L.T \\ (strictly lower L.T G + upper G U.T) / U.T, with G split like L and U."""
    upper, lower = triangle(out, False), with_diagonal(triangle(out, True, 0.0), filled(1, out.dtype, out.shape[:-1]))
    below = triangle(product(swap_last(lower), triangle(grad, True, 0.0)), True, 0.0)
    inner = below + triangle(product(triangle(grad, False), swap_last(upper)), False)
    left = call("solve_triangular", swap_last(lower), inner, options=(True, True))
    return swap_last(call("solve_triangular", upper, swap_last(left), options=(True, False)))


def qr_grad(grad: Op, out: Op) -> Op:
    """(G_Q + Q (M + M.T, its diagonal once)) / R.T with M the upper triangle of G_R R.T - Q.T G_Q; m >= n."""
    m, n = rows_columns(out.src[0])
    batch = out.src[0].shape[:-2]

    def split(x: Op) -> tuple[Op, Op]:
        q, r = shrink_axis(x, -1, 0, m * n), shrink_axis(x, -1, m * n, m * n + n * n)
        return reshape(q, (*batch, m, n)), reshape(r, (*batch, n, n))

    (q, r), (grad_q, grad_r) = split(out), split(grad)
    upper = triangle(product(grad_r, swap_last(r)) - product(swap_last(q), grad_q), False)
    whole = grad_q + product(q, upper + swap_last(triangle(upper, False, 0.0)))
    return swap_last(call("solve_triangular", r, swap_last(whole), options=(True, False)))


# ---- eigenvalues and singular values ----
def _skew(x: Op) -> Op:
    return x - swap_last(x)


def _differences(values: Op, x: Op) -> Op:
    """Returns 1 / (values[j] - values[i]) at [i, j], and 0 on the diagonal."""
    difference = along_rows(values, x) - along_columns(values, x)
    one = x.filled(1)
    return with_diagonal(one / with_diagonal(difference, filled(1, x.dtype, x.shape[:-1])), zeros_like(values))


def _eigen(x: Op) -> tuple[Op, Op]:
    """Returns the eigenvalues (..., n) and the eigenvectors (..., n, n) of a result (..., n + 1, n), or their gradients."""
    n = rows_columns(x)[1]
    return reshape(shrink_axis(x, -2, 0, 1), (*x.shape[:-2], n)), shrink_axis(x, -2, 1, n + 1)


def eigh_grad(grad: Op, out: Op) -> Op:
    """V (diagonal G_w + skew(V.T G_V) / 2 (w_j - w_i)) V.T: symmetric, as the matrix must be."""
    (w, v), (grad_w, grad_v) = _eigen(out), _eigen(grad)
    inner = with_diagonal(_skew(product(swap_last(v), grad_v)) * _differences(w, v) * 0.5, grad_w)
    return product(v, inner, swap_last(v))


def eig_grad(grad: Op, out: Op) -> Op:
    """V^-T (diagonal G_w + (V.T G_V - V.T V diagonal(V.T G_V)) / (w_j - w_i)) V.T, with eigenvectors of length 1.

    Source: Boeddeker et al. 2017, "On the computation of complex-valued gradients", arXiv:1701.00392, eq. 4.77.
    """
    (w, v), (grad_w, grad_v) = _eigen(out), _eigen(grad)
    transposed = swap_last(v)
    parts = Op(OpCode.REDUCE, v.dtype, (v * grad_v,), (OpCode.ADD, (len(v.shape) - 2,)))  # of G_V along each eigenvector
    inner = (product(transposed, grad_v) - product(transposed, v) * along_rows(parts, v)) * _differences(w, v)
    return call("solve", transposed, product(with_diagonal(inner, grad_w), transposed), like=out)


def eigvalsh_grad(grad: Op, out: Op) -> Op:
    """V G V.T, with the eigenvectors V."""
    _, v = _eigen(call("eigh", out.src[0], like=out))
    return product(v * along_rows(grad, v), swap_last(v))


def svd_grad(grad: Op, out: Op) -> Op:
    """U ((skew(U.T G_U) S + S skew(V.T G_V)) / E + diagonal G_S) V.T, E = S_j^2 - S_i^2, with the parts outside U and V."""
    m, n = rows_columns(out.src[0])
    (u, s, vh), (grad_u, grad_s, grad_vh) = factors_of(out, m, n), factors_of(grad, m, n)
    transposed, v, grad_v = swap_last(u), swap_last(vh), swap_last(grad_vh)
    inner_u, inner_v = product(transposed, grad_u), product(vh, grad_v)
    weights = _differences(s * s, inner_u)
    inner = _skew(inner_u) * weights * along_rows(s, inner_u) + along_columns(s, inner_v) * (_skew(inner_v) * weights)
    result = product(u, with_diagonal(inner, grad_s), vh)
    if m > n:  # G_U has a part outside the columns of U
        rest = grad_u - product(u, inner_u)
        result = result + product(rest / along_rows(s, rest), vh)
    if n > m:
        rest = swap_last(grad_v - product(v, inner_v))
        result = result + product(u, rest / along_columns(s, rest))
    return result


def svdvals_grad(grad: Op, out: Op) -> Op:
    """U G V.T, with the singular vectors."""
    m, n = rows_columns(out.src[0])
    u, _, vh = factors_of(call("svd", out.src[0], like=out), m, n)
    return product(u * along_rows(grad, u), vh)


# ---- functions of a matrix ----
def matrix_exp_grad(grad: Op, out: Op) -> Op:
    """The upper right block of exp [[A.T, G], [0, A.T]]."""
    transposed = swap_last(out.src[0])
    n, _ = rows_columns(transposed)
    batch = ((0, 0),) * (len(grad.shape) - 2)

    def placed(x: Op, row: int, column: int) -> Op:
        return pad(x, (*batch, (row, n - row), (column, n - column)))

    block = placed(transposed, 0, 0) + placed(transposed, n, n) + placed(grad, 0, n)
    return shrink_axis(shrink_axis(call("matrix_exp", block), -2, 0, n), -1, n, 2 * n)


# ---- transforms: the transpose of one is the other ----
def fft_grad(grad: Op, out: Op) -> Op:
    """The transform in the other direction."""
    sign, *axes = out.arg.options
    return call("fft", grad, options=(-sign, *axes))


def _ends(x: Op, length: int, axis: int) -> Op:
    """Returns where the frequency of half a spectrum (..., k, .., 2) is its own opposite."""
    frequency = positions(x.shape, len(x.shape) - 1 + axis)
    first = equal(frequency, 0)
    if length % 2:
        return first
    return either(first, equal(frequency, length // 2))


def rfft_grad(grad: Op, out: Op) -> Op:
    """irfft of half the gradient, but for the frequencies that are their own opposite."""
    options = out.arg.options
    return call("irfft", where(_ends(grad, *options), grad, grad * 0.5), options=options)


def irfft_grad(grad: Op, out: Op) -> Op:
    """Twice the rfft, but for the frequencies that are their own opposite."""
    options = out.arg.options
    spectrum = call("rfft", grad, options=options)
    return where(_ends(spectrum, *options), spectrum, spectrum * 2)


# ---- incomplete gamma functions ----
def gammainc_grad(grad: Op, out: Op) -> Op:
    """G x^(a - 1) e^-x / gamma(a) by x; log_gamma, the third operand, is that of a + 1."""
    a, x, log_gamma = out.src
    positive = where(less(0.0, x), x, 1.0)
    slope = unary(OpCode.EXP, unary(OpCode.LOG, positive) * (a - 1.0) - positive - log_gamma) * a
    return grad * where(equal(positive, x), slope, 0.0)


def gammaincc_grad(grad: Op, out: Op) -> Op:
    """The opposite: both parts add up to 1."""
    return -gammainc_grad(grad, out)


def order_grad(grad: Op, out: Op) -> Op:
    """Refused, as in PyTorch: the derivative by the order is not an elementary function."""
    raise GradientError(f"backward: {out.arg.name} has no gradient by its order.", ".detach() the order.", line_of(out))


GRADIENTS: dict[str, tuple[SourceRule | None, ...]] = {
    "inv": (inv_grad,),
    "solve": (solve_matrix, solve_right),
    "solve_triangular": (triangular_matrix, triangular_right),
    "pinv": (pinv_grad, None, None),
    "det": (det_grad,),
    "cofactor": (cofactor_grad,),
    "slogdet": (slogdet_grad,),
    "cholesky": (cholesky_grad,),
    "lu": (lu_grad,),
    "qr": (qr_grad,),
    "eigh": (eigh_grad,),
    "eig": (eig_grad,),
    "eigvalsh": (eigvalsh_grad,),
    "svd": (svd_grad,),
    "svdvals": (svdvals_grad,),
    "matrix_exp": (matrix_exp_grad,),
    "fft": (fft_grad,),
    "rfft": (rfft_grad,),
    "irfft": (irfft_grad,),
    "gammainc": (order_grad, gammainc_grad, None),
    "gammaincc": (order_grad, gammaincc_grad, None),
}


def has_gradients(call: Op) -> bool:
    """True for a CUSTOM whose function has a gradient by each operand, or none by it for sure."""
    return order_grad not in GRADIENTS.get(getattr(call.arg, "name", ""), (order_grad,))


def _source(number: int, grad: Op, out: Op) -> Op | None:
    """Returns the gradient of one operand of a CUSTOM.

    Raises:
      GradientError: its function has none.
    """
    name = getattr(out.arg, "name", type(out.arg).__name__)
    if name not in GRADIENTS:
        raise GradientError(f"backward: {name} has no gradient.", ".detach() its operand.", line_of(out))
    rule = GRADIENTS[name][number]
    return None if rule is None else rule(grad, out)


def custom_first(grad: Op, out: Op) -> Op | None:
    """The gradient of the first operand."""
    return _source(0, grad, out)


def custom_second(grad: Op, out: Op) -> Op | None:
    """The gradient of the second operand."""
    return _source(1, grad, out)
