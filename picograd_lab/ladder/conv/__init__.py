"""The ladder of a convolution on a GPU: from one output per thread to Winograd's products and matrix instructions.

In:    lengths N, C, H, W of x, F filters of R x R, STRIDE; x is padded with R / 2 zeros on each side
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.stages import Launch
from picograd.nn.functional import conv2d
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung, ceil_div
from picograd_lab.ladder.rules import Launches, per, roundings, tiles, together, whole
from picograd_lab.ladder.runnable import Array


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns x (N, C, H, W) and w (F, C, R, R)."""
    n, c, h, w, f, r = (lengths[name] for name in "NCHWFR")
    return rng.uniform(-1, 1, (n, c, h, w)), rng.uniform(-1, 1, (f, c, r, r))


def convolution(lengths: Lengths, x: Array, w: Array) -> tuple[Array, ...]:
    """Returns y (N, F, OH, OW): y[n, f, i, j] = sum of x[n, c, i STRIDE + r - R/2, j STRIDE + s - R/2] w[f, c, r, s]."""
    r, stride = lengths["R"], lengths["STRIDE"]
    windows = np.lib.stride_tricks.sliding_window_view(padded(x, r // 2), (r, r), (2, 3))[:, :, ::stride, ::stride]
    return (np.einsum("nchwrs,fcrs->nfhw", windows, w, optimize=True),)


def padded(x: Array, pad: int, end: int = 0) -> Array:
    """Pads images with zeros around them, and with further ones at the end."""
    return np.pad(x, ((0, 0), (0, 0), (pad, pad + end), (pad, pad + end)))


def bound(lengths: Lengths, roundoff: float, x: Array, w: Array) -> tuple[Array, ...]:
    """Returns g(C R R) of the convolution of |x| and |w|: a term is in at most C R R roundings."""
    (magnitude,) = convolution(lengths, np.abs(x), np.abs(w))
    return (roundings(lengths["C"] * lengths["R"] ** 2, roundoff) * magnitude,)


def own(lengths: Lengths, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Returns the convolution."""
    return (conv2d(x, w, stride=lengths["STRIDE"], padding=lengths["R"] // 2),)


# ---- Winograd's F(2 x 2, 3 x 3): y = A.T ((G w G.T) * (B.T x B)) A of a tile of 4 x 4 ----
# Source: Lavin and Gray 2016, "Fast algorithms for convolutional neural networks", arXiv:1509.09308, section 4.1.
A_T = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
B_T = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
WINOGRAD_ROUNDINGS = 16  # 3 + 3 for the transform of w, 1 + 1 for x, 3 + 3 for y, 2 for a product


def winograd(lengths: Lengths, x: Array, w: Array, a_t: Array = A_T, b_t: Array = B_T, g: Array = G) -> Array:
    """Returns the convolution by Winograd's algorithm, tile by tile."""
    height, width = lengths["H"], lengths["W"]
    patches = np.lib.stride_tricks.sliding_window_view(padded(x, 1, 1), (4, 4), (2, 3))[:, :, ::2, ::2]
    products = np.einsum("fcij,nchwij->nfhwij", g @ w @ g.T, b_t @ patches @ b_t.T, optimize=True)
    of_tiles: Array = (a_t @ products @ a_t.T).swapaxes(3, 4)  # (N, F, tiles, 2, tiles, 2)
    n, f, high, _, wide, _ = of_tiles.shape
    return of_tiles.reshape(n, f, 2 * high, 2 * wide)[:, :, :height, :width]


def winograd_bound(lengths: Lengths, roundoff: float, x: Array, w: Array) -> tuple[Array, ...]:
    """Returns g(C + 16) |A.T| ((|G| |w| |G.T|) * (|B.T| |x| |B|)) |A|; sums cancel, so it is larger than a sum's bound.

    Elements of a tile enter outputs that do not depend on them, and cancel except for their roundings.
    """
    magnitude = winograd(lengths, np.abs(x), np.abs(w), np.abs(A_T), np.abs(B_T), np.abs(G))
    return (roundings(lengths["C"] + WINOGRAD_ROUNDINGS, roundoff) * magnitude,)


# ---- launches ----
def with_outputs(lengths: Lengths) -> dict[str, int]:
    """Adds the lengths of y: its height and width, its pixels, its tiles of 2 x 2."""
    high, wide = ((lengths[name] + lengths["R"] // 2 * 2 - lengths["R"]) // lengths["STRIDE"] + 1 for name in "HW")
    pixels, of_two = lengths["N"] * high * wide, lengths["N"] * ceil_div(high, 2) * ceil_div(wide, 2)
    return {**lengths, "OH": high, "OW": wide, "PIXELS": pixels, "TILES": of_two}


def of_outputs(launches: Launches) -> Launches:
    """Returns launches that also get the lengths of y."""

    def of_lengths(lengths: Lengths) -> tuple[Launch, ...]:
        return launches(with_outputs(lengths))

    return of_lengths


def patches_stored(lengths: Lengths) -> tuple[tuple[DType, int], ...]:
    """Returns scratch memory for a column of C R R elements for each pixel of y."""
    return ((dtypes.float32, lengths["C"] * lengths["R"] ** 2 * with_outputs(lengths)["PIXELS"]),)


def filters_stored(lengths: Lengths) -> tuple[tuple[DType, int], ...]:
    """Returns scratch memory for the transformed filters, 4 x 4 each."""
    return ((dtypes.float32, lengths["F"] * lengths["C"] * 16),)


def of_three(lengths: Lengths) -> str:
    """Returns "" for filters of F(2 x 2, 3 x 3)."""
    return "" if lengths["R"] == 3 and lengths["STRIDE"] == 1 else "R must be 3 and STRIDE 1"


def results(lengths: Lengths) -> tuple[tuple[int, ...], ...]:
    """Returns the shape of y."""
    outputs = with_outputs(lengths)
    return (tuple(outputs[name] for name in ("N", "F", "OH", "OW")),)


def flops(lengths: Lengths) -> int:
    """Returns the operations of the definition; Winograd has fewer."""
    return 2 * lengths["F"] * lengths["C"] * lengths["R"] ** 2 * with_outputs(lengths)["PIXELS"]


PRODUCT = (("F", 64), ("PIXELS", 64))  # a block's tile of w @ patches
LADDER = Ladder(
    folder=Path(__file__).parent,
    does="y = convolution of x (N, C, H, W) with F filters of R x R, padded with R / 2",
    lengths={"N": 2, "C": 32, "H": 16, "W": 16, "F": 64, "R": 3, "STRIDE": 1},
    inputs=operands,
    meaning=convolution,
    bound=bound,
    flops=flops,
    tensors=own,
    axes=("N C H W", "F C R R"),
    results=results,
    rungs=(
        Rung("01_direct.cu", of_outputs(per("direct", "N F OH OW", 256, 256))),
        Rung("02_shared_tile.cu", of_outputs(tiles("shared_tile", 256, ("N", 1), ("F", 8), ("OH", 16), ("OW", 16)))),
        Rung(
            "03_im2col.cu",
            of_outputs(together(per("patches_of", "C R R PIXELS", 256, 256), tiles("product", 256, *PRODUCT))),
            scratch=patches_stored,
        ),
        Rung("04_implicit_product.cu", of_outputs(tiles("implicit_product", 256, *PRODUCT))),
        Rung(
            "05_winograd.cu",
            of_outputs(together(per("filters", "F C", 256, 256), tiles("winograd", 256, ("F", 32), ("TILES", 32)))),
            of_three,
            scratch=filters_stored,
            bound=winograd_bound,
        ),
        Rung(
            "06_mma.cu",
            of_outputs(tiles("mma", 128, *PRODUCT)),
            whole("C", 8),
            dtypes.float16,
            2.0**-22,  # sums may be truncated
            80,
        ),
    ),
)
