"""Functions that a plan calls on the host, and kernels that a user has written.

No kernel is generated for linear algebra, Fourier transforms and iterations of no fixed length. A function of the host has
one result. Where mathematics has several (the factors of a matrix) they are in it one after the other, and slices of it,
which cost nothing, are the factors. The functions' values are in evaluator/host.py, their gradients in autodiff/host.py;
ir/checks.py has the errors of those that may fail.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from picograd.device import Target
from picograd.dtype import DType
from picograd.errors import ShapeError
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Kernel, TileMap
from picograd.record import Record

Options = tuple[int | bool, ...]


class HostCall(Record):
    """A call of a function of the host.

    name:     of the function, a key of HOST_SHAPES
    options:  its arguments except operands
    site:     what its error says where the values have no result (a Site, or in a plan the number of the call among the
              CHECKs); None: it always has one
    """

    name: str
    options: Options = ()
    site: Any = None


def host_call(name: str, dtype: DType, src: tuple[Op, ...], options: Options = (), site: Any = None) -> Op:
    """Returns the value of a function of the host.

    Raises:
      ShapeError: the operands do not fit the function.
    """
    return Op(OpCode.CUSTOM, dtype, src, HostCall(name, options, site))


def lengths(m: int, n: int) -> tuple[int, int, int]:
    """Returns the elements of the three factors (m, k), (k,), (k, n) of a matrix, with k = min(m, n)."""
    k = min(m, n)
    return m * k, k, k * n


# ---- kernels of a user's own ----
INCLUDES_GIVEN = '#include "given.h"'  # a line of their sources
GIVEN_TEXT = "picograd_text"  # the name of a source in a library made of it, for messages


class Meaning(Record):
    """The NumPy function of a KERNEL, and the arguments that it is called with.

    function:  of arrays and of anything else
    places:    for each argument the number of the operand whose array or number it is; None: it is the next of `others`
    others:    arguments that are not operands
    """

    function: Callable[..., Any]
    places: tuple[int | None, ...]
    others: tuple[Any, ...]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Returns the function's value for the arrays of all operands; one without axes is a number."""
        others = iter(self.others)
        numbers = [array if np.ndim(array) else np.asarray(array)[()] for array in arrays]
        return self.function(*[next(others) if place is None else numbers[place] for place in self.places])


MAP_TYPE = "TILE_MAP"  # of a parameter that is a map of tiles (devices/cuda/hopper.h)


class GivenLaunch(Record):
    """A function in CUDA C, or in C, that a user has given, and its launch.

    entry:    an expression that names the function: "saxpy", "product<16>"
    bounds:   of its launch, as the source has them: "256, 2"; "" where it has none
    names, types:     of its parameters
    given:    by parameter the number of its operand, -1 - i for result i, or of MAP_TYPE the number of its map
    axes:     blocks along y and z, then threads of a block along x, y and z
    shared_nbytes:    of dynamic shared memory
    tile_maps:        of an operand or a result each, by the same numbers
    """

    entry: str
    bounds: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    given: tuple[int, ...]
    axes: tuple[int, int, int, int, int]
    shared_nbytes: int = 0
    tile_maps: tuple[TileMap, ...] = ()


class GivenKernel(Record):
    """A user's source and the launches of its functions, one after the other.

    The argument of a KERNEL is (GivenKernel, shape of each result, blocks of each launch along x); lengths may be symbolic.

    name:     in messages, profiles and schedules
    language: "cuda" or "c"; a function in C is called once, and a GPU's simulator runs it as one thread
    text:     its source, whole; lines are counted from those that `#line` names
    launches: in their order
    dtypes:   of the results, then of memory between launches, which is a result that is not asked for
    num_results:  how many of them are results
    meaning:  what it should compute; None: unknown
    """

    name: str
    language: str
    text: str
    launches: tuple[GivenLaunch, ...]
    dtypes: tuple[DType, ...]
    num_results: int
    meaning: Meaning | None

    @property
    def results(self) -> tuple[DType, ...]:
        """The dtypes of the results."""
        return self.dtypes[: self.num_results]


class Offer(Protocol):
    """A kernel written by hand that is offered for the kernels of an operation (engine/choose.py).

    name:  in choices and messages
    """

    name: str

    def accepts(self, kernel: Kernel, target: Target) -> Mapping[Op, Op] | str:
        """Returns values of a kernel, each with the OUTPUT that computes it; or why it computes none.

        The OUTPUTs are of one KERNEL, whose operands are values of the kernel, too.
        """
        ...

    def wins(self, call: Op) -> bool:
        """True if counts have shown that it beats the generated kernel, for the KERNEL's shapes and nothing around it."""
        ...


class Offers:
    """The offers there are now, by name.

    key:  of all of them, a part of the keys of plans in this process; () where there are none. A user's
          functions decide what an offer accepts, and have no text: plans made with offers are not kept on disk, their
          kernels are
    """

    def __init__(self) -> None:
        self.by_name: Mapping[str, Offer] = {}
        self.key: tuple[int, ...] = ()
        self._numbers: dict[Offer, int] = {}
        self._next = itertools.count(1)

    def change(self, name: str, offer: Offer | None) -> None:
        """Puts an offer in the place of the one of this name, or takes that out."""
        others = {known: other for known, other in self.by_name.items() if known != name}
        self.by_name = others if offer is None else {**others, name: offer}
        self._numbers = {each: self._numbers.get(each) or next(self._next) for each in self.by_name.values()}
        self.key = tuple(self._numbers.values())


offers = Offers()


def name_of(op: Op) -> str:
    """Returns the name of the function or kernel that a CUSTOM or KERNEL calls."""
    called: HostCall | GivenKernel = op.arg[0] if op.code is OpCode.KERNEL else op.arg
    return called.name


def without_comments(text: str) -> str:
    """Returns a text in which comments are spaces; its lines stay where they are."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL)


def lines_of_files(text: str, file: str) -> dict[tuple[str, int], str]:
    """Returns the lines of a text by file and number, as `#line` directives count them.

    >>> lines_of_files('a\\n#line 7 "other.cu"\\nc', "one.cu")
    {('one.cu', 1): 'a', ('other.cu', 7): 'c'}
    """
    found: dict[tuple[str, int], str] = {}
    number = 1
    for line in text.splitlines():
        if directive := re.match(r'#line (\d+) "(.*)"', line):
            number, file = int(directive[1]), directive[2]
        else:
            found[file, number] = line
            number += 1
    return found


# ---- shapes ----
def _matrix(shape: Shape) -> tuple[Shape, int, int]:
    """Returns the batch axes of a stack of matrices, and their rows and columns."""
    if len(shape) < 2:
        raise ShapeError(f"a matrix needs two axes, got shape {shape}.")
    m, n = shape[-2:]
    if not isinstance(m, int) or not isinstance(n, int):
        raise ShapeError(f"a symbolic length is used where a number is needed: a matrix of shape {shape}.")
    return shape[:-2], m, n


def _same(src: tuple[Op, ...], options: Options) -> Shape:
    return src[0].shape


def _square(src: tuple[Op, ...], options: Options) -> Shape:
    _, m, n = _matrix(src[0].shape)
    if m != n:
        raise ShapeError(f"a matrix must be square, got shape {src[0].shape}.")
    return src[0].shape


def _system(src: tuple[Op, ...], options: Options) -> Shape:
    """(..., n, n), (..., n, k) -> (..., n, k)."""
    matrix, right = _square(src, options), src[1].shape
    if right[:-1] != matrix[:-1]:
        raise ShapeError(f"a right side {right} does not fit a matrix {matrix}.")
    return right


def _of_axes(rule: Callable[[int, int], Shape]) -> Callable[[tuple[Op, ...], Options], Shape]:
    """Returns the rule for a result whose axes after those of the batch depend on rows and columns."""

    def shape(src: tuple[Op, ...], options: Options) -> Shape:
        batch, m, n = _matrix(src[0].shape)
        return (*batch, *rule(m, n))

    return shape


def _rfft(src: tuple[Op, ...], options: Options) -> Shape:
    """(..., n, ..) -> (..., n // 2 + 1, .., 2), with n and its axis options."""
    length, axis = options
    shape = src[0].shape
    return (*shape[:axis], length // 2 + 1, *shape[len(shape) + axis + 1 :], 2)


def _irfft(src: tuple[Op, ...], options: Options) -> Shape:
    """(..., n // 2 + 1, .., 2) -> (..., n, ..), with n and its axis options."""
    length, axis = options
    shape = src[0].shape[:-1]
    return (*shape[:axis], length, *shape[len(shape) + axis + 1 :])


OF_NUMBERS = (  # functions of numbers that no fixed graph computes
    "gcd", "gammainc", "gammaincc", "poisson", "binomial",
    "chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he",
    "laguerre_l", "legendre_p", "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0",
    "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
)  # fmt: skip
HOST_SHAPES: dict[str, Callable[[tuple[Op, ...], Options], Shape]] = {
    # name                 operands                      options            result
    "inv": _square,  #             (..., n, n)                   ()                 the inverse
    "solve": _system,  #           (..., n, n) (..., n, k)       ()                 x with a x = b
    "solve_triangular": _system,  # the same                     (upper, unit)      x with a x = b
    "cholesky": _square,  #        (..., n, n)                   ()                 lower triangular L with L L.T = a
    "cholesky_order": _of_axes(lambda m, n: ()),  # the same     ()                 first minor not positive, or 0; int64
    "det": _of_axes(lambda m, n: ()),  # (..., n, n)             ()                 the determinant
    "cofactor": _square,  #        (..., n, n)                   ()                 det(a) inv(a).T, singular a too
    "slogdet": _of_axes(lambda m, n: (2,)),  # (..., n, n)       ()                 sign and log |determinant|
    "lu_pivots": _of_axes(lambda m, n: (min(m, n),)),  # (..., m, n)  ()            rows exchanged for LU, from 1, int64
    "rows_of_pivots": lambda src, options: (*src[0].shape[:-1], options[0]),  # (..., k)  (m,)  exchanges as an order
    "lu": _square,  #              (..., n, n)                   ()                 L below the diagonal, U; no rows move
    "qr": _of_axes(lambda m, n: (sum(lengths(m, n)) - min(m, n),)),  # m >= n  ()   q (m, n), then r (n, n)
    "complement": _of_axes(lambda m, n: (m, m - n)),  # (..., m, n), orthonormal () columns that complete a basis
    "eigh": _of_axes(lambda m, n: (n + 1, n)),  # (..., n, n), its lower half () a row of eigenvalues, eigenvectors
    "eigvalsh": _of_axes(lambda m, n: (n,)),  # the same         ()                 eigenvalues, rising
    "eig": _of_axes(lambda m, n: (n + 1, n)),  # (..., n, n)     ()                 the same for any matrix of real ones
    "svd": _of_axes(lambda m, n: (sum(lengths(m, n)),)),  # (..., m, n)  ()         u (m, k), s (k,), vh (k, n)
    "svdvals": _of_axes(lambda m, n: (min(m, n),)),  # (..., m, n)  ()              singular values, falling
    "pinv": _of_axes(lambda m, n: (n, m)),  # (..., m, n), (...) and (...) bounds ()  the pseudoinverse
    "matrix_exp": _square,  #      (..., n, n)                   ()                 the sum of a^i / i!
    "fft": _same,  #               (..., n, .., 2)               (sign, *axes)      sum of x e^(sign 2 pi i j k / n)
    "rfft": _rfft,  #              (..., n, ..)                  (n, axis)          the half of fft that says all
    "irfft": _irfft,  #            (..., n // 2 + 1, .., 2)      (n, axis)          the real signal of half a spectrum
    **dict.fromkeys(OF_NUMBERS, _same),  # arrays of one shape, float64; gcd: integers  ()  a number of each element's
}
