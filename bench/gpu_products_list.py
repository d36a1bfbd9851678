"""The products that bench.gpu_products times.

In:    nothing
Out:   `Problem`; `problems`
"""

from __future__ import annotations

from dataclasses import dataclass

WIDE = ("tf32", "float32")
TOKENS, WIDTHS = 8192, ((768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50304))  # GPT-2: K, N


@dataclass(frozen=True)
class Problem:
    """A product of m x k and k x n, of which a T says that columns lie side by side; timed, or only looked at.

    dtype:  by its name; tf32: float32 that may be rounded
    """

    name: str
    m: int
    n: int
    k: int
    majors: str = "NT"
    dtype: str = "bfloat16"
    is_timed: bool = True
    bias: bool = False

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def stored(self) -> str:
        """Returns the name of the dtype in memory."""
        return "float32" if self.dtype == "tf32" else self.dtype

    @property
    def nbytes(self) -> int:
        itemsize = 4 if self.stored == "float32" else 2
        return itemsize * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def far(self) -> float:
        """Returns how far a result may be from the expected one, |a - b| / |b|."""
        return {"tf32": 2e-3, "float32": 1e-5}.get(self.dtype, 1e-2)


def problems(simulates: bool, only: str) -> list[Problem]:
    """Returns what is computed, the most telling first."""
    if simulates:
        found = [Problem("check TN", 136, 200, 160, "TN", is_timed=False, bias=True), Problem("square 144", 144, 144, 144),
                 Problem("in parts", 72, 80, 1024, "TN")]  # fmt: skip
        for dtype in WIDE:
            found += [Problem(f"{dtype} square 144", 144, 144, 144, "NN", dtype),
                      Problem(f"{dtype} in parts", 72, 80, 1600, "TN", dtype)]  # fmt: skip
        return [each for each in found if each.name.startswith(tuple(only.split(",")))]
    found = []
    for i, majors in enumerate(("NT", "NN", "TN", "TT")):
        dtype = ("bfloat16", "float16")[i % 2]
        found.append(Problem(f"check {majors} 1", 328, 712, 456, majors, dtype, False, bias=i % 2 == 0))
        found.append(Problem(f"check {majors} 2", 1000, 520, 1096, majors, "bfloat16", False))
        found.append(Problem(f"check {majors} 3", 3000, 2504, 200, majors, "float16", False))
    found += [Problem("square 4096 NT", 4096, 4096, 4096), Problem("square 8192 NT", 8192, 8192, 8192)]
    for k, n in WIDTHS:
        found.append(Problem(f"forward {k} {n}", TOKENS, n, k, "NT"))
        found.append(Problem(f"dX {k} {n}", TOKENS, k, n, "NN"))
        found.append(Problem(f"dW {k} {n}", n, k, TOKENS, "TN"))
    found += [Problem(f"square {size} {majors}", size, size, size, majors)
              for size, majors in ((2048, "NT"), (1024, "NT"), (4096, "NN"), (4096, "TN"), (512, "NT"))]  # fmt: skip
    squares = ("square 2048 NT", "square 1024 NT", "square 512 NT", "square 4096 NN", "square 4096 TN")
    for kind in ("square 4096 NT", "GPT", *squares):
        for dtype in WIDE:
            found += small_gpt(dtype) if kind == "GPT" else [square(kind, dtype)]
    return [each for each in found if each.name.startswith(tuple(only.split(",")))]


def square(name: str, dtype: str) -> Problem:
    """Returns a square product by its name."""
    extent = int(name.split()[1])
    return Problem(f"{dtype} {name}", extent, extent, extent, name.split()[2], dtype)


def small_gpt(dtype: str) -> list[Problem]:
    """Returns the products of a layer of GPT, 384 wide, batch 64 of 256 tokens: forward, and both gradients."""
    found = []
    for k, n in ((384, 1536), (384, 384), (1536, 384), (384, 1152)):
        found += [Problem(f"{dtype} forward {k} {n}", 16384, n, k, "NT", dtype),
                  Problem(f"{dtype} dX {k} {n}", 16384, k, n, "NN", dtype),
                  Problem(f"{dtype} dW {k} {n}", n, k, 16384, "TN", dtype)]  # fmt: skip
    return found
