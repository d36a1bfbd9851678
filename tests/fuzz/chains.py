"""Random chains of movement and indexing as Python text, which both libraries run as it is written.

In:    a seed
Out:   `Chain`: lines that make each value of the last ones, and the shapes of its leaves at several sizes

A line names lengths by `x.shape[i]`, so that one chain is run at several sizes. It is kept where PyTorch takes it. Leaves
are distinct eighths; behind a line that rounds nothing is ordered, and ties that are broken in no agreed way are left out.

    CPU, NUMPY, CUDASIM, ...   values and gradients on a device
    sizes                      five sizes one after the other, whose plans become symbolic
    jit                        the same by one jitted function
    variable                   the same with a leaf that is cut to a `pg.Variable`

    python -m tests.fuzz.chains 0 1000 [CPU NUMPY jit sizes ...]        prints what fails, made small
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import picograd as pg
from tests.fuzz.operations import default_device
from tests.fuzz.seeds import run_seeds

Rng = np.random.Generator
Array = np.ndarray[Any, Any]
LENGTHS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33, 64, 100)
DTYPES = ("float32",) * 6 + ("float64", "float16", "bfloat16", "int32", "int64", "bool")
TOLERANCES = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 2e-4}
LINES_MAX = 12
ELEMENTS_MAX = 5000
LARGEST = 500.0
WAYS = ("CPU", "NUMPY", "jit", "sizes", "variable")


class Differs(AssertionError):
    """PyTorch and picograd differ."""


@dataclass(frozen=True)
class Chain:
    """Lines `v1 = ...`, each of earlier values; v0 and the other first ones are leaves.

    dtype:   of the leaves
    shapes:  of the leaves
    lines:   the right sides, in order
    axis:    of the first leaf, which has other lengths in the way "sizes"
    """

    seed: int
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    lines: tuple[str, ...]
    axis: int = 0

    def __str__(self) -> str:
        lines = "".join(f"\n        {line!r}," for line in self.lines)
        return f"Chain({self.seed}, {self.dtype!r}, {self.shapes}, ({lines}\n    ), {self.axis})"

    def names(self) -> list[str]:
        return [f"v{i}" for i in range(len(self.shapes) + len(self.lines))]


# ---- lines ----
def index_text(rng: Rng, shape: str, length: str) -> str:
    """Text of an index of some shape into an axis of some length."""
    a, b = int(rng.integers(1, 9)), int(rng.integers(0, 5))
    return f"((P({shape}) * {a} + {b}) % {length})"


def mask_text(rng: Rng, shape: str) -> str:
    return f"(P({shape}) * {int(rng.integers(1, 8))} % {int(rng.integers(2, 6))} < 2)"


def movement(rng: Rng, x: str, t: Any) -> list[str]:
    n, d = t.ndim, int(rng.integers(max(t.ndim, 1)))
    a, b, k = (int(rng.integers(0, 4)) for _ in range(3))
    found = [f"{x}.unsqueeze({int(rng.integers(n + 1))})", f"{x}.reshape(-1)", f"{x}.ravel().flip(0)"]
    if not n:
        return found
    e, size = int(rng.integers(n)), f"{x}.shape[{d}]"
    order = [int(i) for i in rng.permutation(n)]
    axes = sorted({d, e})
    lead = "..., " if d == n - 1 else ":, " * d
    tail = "" if d == n - 1 else ""
    found += [
        f"{x}.permute({order})",
        f"{x}.transpose({d}, {e})",
        f"{x}.movedim({d}, {e})",
        f"{x}.flip({axes})",
        f"{x}.roll({int(rng.integers(-5, 6))}, {d})",
        f"{x}.roll(({a}, {-b}), ({d}, {e}))",
        f"{x}[{lead}{a}:{size} - {b}{tail}]",
        f"{x}[{lead}{a}::{k + 1}]",
        f"{x}[{lead}:{size} - {b}:{k + 1}]",
        f"{x}[{lead}{a % max(t.shape[d], 1)}]",
        f"{x}.narrow({d}, {a}, {size} - {a})",
        f"{x}.unsqueeze({d}).expand({', '.join(['-1'] * d + [str(a + 1)] + ['-1'] * (n - d))})",
        f"{x}.repeat({', '.join(str(int(rng.integers(1, 3))) for _ in range(n))})",
        *([f"{x}.squeeze({d})"] if d else []),
        f"{x}.repeat(2, {', '.join(str(int(rng.integers(1, 3))) for _ in range(n))})",
        f"{x}.repeat_interleave({a + 1}, {d})",
        f"{x}.tile(({a + 1}, 1))",
        f"{x}.unfold({d}, {a + 1}, {k + 1})",
        f"{x}.reshape({size}, -1)" if d == 0 else f"{x}.reshape(-1, {size})",
        f"{x}.unflatten({d}, (-1, {a + 1}))",
        f"{x}.unflatten({d}, ({a + 1}, -1))",
        f"{x}.diff(dim={d})",
        f"F.pad({x}, ({a - 1}, {b - 1}))",
        f"F.pad({x}, ({', '.join(str(int(rng.integers(-1, 3))) for _ in range(2 * min(n, 2)))}))",
        f"L.cat([{x}[{lead}{a}:], {x}[{lead}:{a}]], {d})",
        f"L.stack([{x}, {x}.flip({d})], {e})",
        f"L.cat([{x}, {x}.roll(1, {e})], {d})",
        f"L.cat({x}.chunk({a + 1}, {d})[::-1], {d})",
        f"{x}.split({a + 1}, {d})[-1]",
        f"{x}.tensor_split({a + 1}, {d})[0]",
        f"{x}.unbind({d})[{-1 if a else 0}]",
    ]
    if n > 1:
        at, e = int(rng.integers(n - 1)), (d + 1) % n
        found += [
            f"{x}.flatten({at}, {at + 1})",
            f"{x}.diagonal({a - b}, {d}, {e})",
            f"{x}.rot90({a}, ({d}, {e}))",
            f"{x}.tril({a - b})",
            f"{x}.triu({a - b})",
            f"L.diag_embed({x}, {a - b})",
            f"{x}.reshape({x}.shape[-1], -1)",
        ]
    if 2 <= n <= 4:
        for mode in ("reflect", "replicate", "circular"):
            pads = ", ".join(str(int(rng.integers(0, 4))) for _ in range(2 * max(1, n - 2)))
            found.append(f'F.pad({x}, ({pads}), mode="{mode}")')
    if n == 4:
        found += [
            f"F.pixel_shuffle({x}, 2)",
            f"F.pixel_unshuffle({x}, 2)",
            f"F.channel_shuffle({x}, 2)",
            f"F.unfold({x}, ({a + 1}, {b + 1}), padding={k % 2}, stride={1 + k // 2})",
        ]
    return found


def indexing(rng: Rng, x: str, t: Any) -> list[str]:
    n, d = t.ndim, int(rng.integers(max(t.ndim, 1)))
    a, b, k = (int(rng.integers(0, 4)) for _ in range(3))
    if not n:
        return [f"{x}[None]", f"{x}[...]"]
    e, size = int(rng.integers(n)), f"{x}.shape[{d}]"
    shape, lead = f"*{x}.shape", ":, " * d
    index, other, small = (
        index_text(rng, str(a + 1), size),
        index_text(rng, str(a + 1), f"{x}.shape[{e}]"),
        index_text(rng, f"2, {b + 1}", size),
    )
    mask, fill = mask_text(rng, shape), ("True" if t.dtype is torch.bool else str(a - 1))
    rest = ", ".join([f"{x}.shape[{i}]" if i != d else str(a + 1) for i in range(n)])
    found = [
        f"{x}.index_select({d}, {index})",
        f"{x}[{lead}{index}]",
        f"{x}[{lead}{small}]",
        f"{x}.gather({d}, {index_text(rng, rest, size)})",
        f"{x}.take({index_text(rng, f'{a + 1}, 3', f'{x}.numel()')})",
        f"{x}.masked_fill({mask}, {fill})",
        f"L.where({mask}, {x}, {x}.flip({e}))",
        f"L.where({mask}, {x}, 0)" if t.dtype is not torch.bool else f"{x} & {mask}",
        f"{x}.index_fill({d}, {index}, {fill})",
        f"{x}.take_along_dim({index_text(rng, rest, size)}, {d})",
        f"L.zeros_like({x}).scatter({d}, {x}.shape[{d}] - 1 - P({shape}).argsort({d}), {x})",
        f"{x}[{lead}{index}, None]",
        f"{x}.select_scatter({x}.select({d}, -1), {d}, 0)",
        f"{x}.slice_scatter({x}[{lead}:{size} - {a}], {d}, {a}, {size})",
        f"{x}.index_copy({d}, P({size}), {x}.flip({d}))",
        f"{x}[{lead}P({size}) % 3 < 2]",
    ]
    if n > 1 and d != e:
        places = [":"] * n
        places[d], places[e] = index, other
        found += [f"{x}[{', '.join(places)}]", f"{x}.diagonal_scatter({x}.diagonal(0, {d}, {e}) * 1, 0, {d}, {e})"]
    if t.dtype is not torch.bool:
        reduce = ("sum", "prod", "amax", "amin", "mean")[int(rng.integers(5))]
        with_self = b % 2 == 0 or reduce in (
            "amax",
            "amin",
        )  # PyTorch's gradient of these shares with a self that is left out
        found += [
            f"L.zeros_like({x}).scatter_add({d}, {index_text(rng, shape, size)}, {x})",
            f"{x}.index_add({d}, {index_text(rng, size, size)}, {x})",
            f'{x}.scatter_reduce({d}, {index_text(rng, shape, size)}, {x}.flip({e}), "{reduce}", include_self={with_self})',
            f"L.zeros({a + 2}, {b + 2}, dtype={x}.dtype)"
            f".index_put((P(9) % {a + 2}, P(9) * 3 % {b + 2}), {x}.reshape(-1)[:9], accumulate=True)",
            f"{x}.index_put(({index_text(rng, '5', f'{x}.shape[0]')},), {x}[0], accumulate=True)",
        ]
    return found


def along(rng: Rng, x: str, t: Any) -> list[str]:
    """Returns lines that add, count or order exact values."""
    n, d = t.ndim, int(rng.integers(max(t.ndim, 1)))
    a, b = (int(rng.integers(0, 4)) for _ in range(2))
    if not n:
        return [f"{x} + {x}"]
    if t.dtype is torch.bool:
        return [f"{x}.any({d})", f"{x}.all({d}, keepdim=True)", f"~{x}", f"{x}.sum({d})", f"{x}.cumsum({d})"]
    e = int(rng.integers(n))
    found = [
        f"{x}.cumsum({d})",
        f"{x}.flip({d}).cumsum({d}).flip({d})",
        f"{x}.sum({d})",
        f"{x}.sum(({d},), keepdim=True) + {x}",
        f"{x} + {x}.flip({e})",
        f"{x} * {x}.roll(1, {d}) % 7",
        f"{x} - {x}.amax({d}, keepdim=True)",
        f"{x}.amin({d})",
        f"{x} * (P({x}.shape[-1]) % 3 - 1)",
        f"{x}.sort({d}, stable=True).values",
        f"{x}.sort({d}, stable=True, descending=True).values",
        f"{x}.gather({d}, {x}.argsort({d}, stable=True))",
        f"{x}.cummax({d}).values",
        f"{x}.cummin({d}).values",
        f"{x}.clamp(-3, 4)",
        f"L.maximum({x}, {x}.flip({d}))",
        f"-{x}",
        f"({x} > 1)",
        f"{x}.abs()",
    ]
    line = t.detach().to(torch.float64).movedim(d, -1)
    if line.numel() and all(len(row.unique()) == len(row) for row in line.reshape(-1, line.shape[-1])):  # no ties
        found += [
            f"{x}.topk(min({a + 1}, {x}.shape[{d}]), {d}).values",
            f"{x}.max({d}).values",
            f"{x}.median({d}).values",
            f"{x}.kthvalue(1, {d}).values",
            f"{x}.gather({d}, {x}.topk(1, {d}).indices)",
        ] * 2
    if t.dtype.is_floating_point:
        found += [
            f"F.max_pool1d({x}, {a + 1}, {b + 1})",
            f"F.max_pool2d({x}, ({a + 1}, 2), {b + 1}, padding={min(b % 2, (a + 1) // 2)})",
        ]
        if n == 4:
            found += [
                f'F.interpolate({x}, scale_factor={a + 1}, mode="nearest")',
                f"F.fold({x}.flatten(0, 2)[None, :4], (3, 4), (2, 2))",
            ]
    return found


def rounding(rng: Rng, x: str, t: Any) -> list[str]:
    n, d = t.ndim, int(rng.integers(max(t.ndim, 1)))
    a, b = (int(rng.integers(0, 4)) for _ in range(2))
    if not n or not t.dtype.is_floating_point:
        return []
    size, outside = f"({a + 3}, {b + 2})", ("zeros", "border", "reflection")[b % 3]
    found = [f"{x}.mean({d})", f"{x}.softmax({d})", f"{x}.tanh()", f"({x} * 0.3).cumprod({d})"]
    if n > 1:
        found.append(f"{x} @ {x}.transpose(-1, -2)")
    if t.dtype.itemsize > 2:  # PyTorch's gradients of narrow floats have few digits here
        found += [f"F.layer_norm({x}, {x}.shape[-1:])", f"{x}.logcumsumexp({d})"]
    if n == 3:
        found += [
            f"F.conv1d({x}, W(3, {x}.shape[1], {a + 1}, like={x}), padding={b % 2}, stride={1 + b // 2})",
            f"F.avg_pool1d({x}, {a + 1}, {b + 1})",
            f'F.interpolate({x}, size={a + 4}, mode="linear")',
            f"F.conv_transpose1d({x}, W({x}.shape[1], 2, {a + 1}, like={x}), stride={b % 2 + 1})",
        ]
    if n == 4:
        found += [
            f"F.conv2d({x}, W(2, {x}.shape[1], {a % 3 + 1}, {b % 3 + 1}, like={x}), padding={a % 2}, stride={1 + b % 2})",
            f'F.interpolate({x}, size={size}, mode="bilinear")',
            f'F.interpolate({x}, size={size}, mode="bicubic")',
            f'F.interpolate({x}, size={size}, mode="area")',
            f"F.adaptive_avg_pool2d({x}, {size})",
            f"F.avg_pool2d({x}, 2, {a + 1})",
            f'F.grid_sample({x}, W({x}.shape[0], 3, {a + 2}, 2, like={x}), "bilinear", "{outside}", False)',
            f'F.interpolate({x}, scale_factor=1.5, mode="nearest")',
        ] * 2
    return found


FAMILIES: tuple[Callable[[Rng, str, Any], list[str]], ...] = (movement, indexing, along, rounding)


# ---- both libraries ----
def names_of(library: Any) -> dict[str, Any]:
    """Returns the names that lines may use: L and F; P, places 0, 1, ... in a shape; W, weights in a shape."""
    make = pg.Tensor if library is pg else torch.tensor

    def places(*shape: Any) -> Any:
        return library.arange(math.prod(shape)).reshape(shape)

    def weights(*shape: Any, like: Any) -> Any:
        count = math.prod(map(int, shape))
        return make((np.arange(count) * 37 % 23 / 11.3 - 1).reshape(tuple(map(int, shape)))).to(like.dtype)

    return {"L": library, "F": library.nn.functional, "P": places, "W": weights}


def run(chain: Chain, leaves: list[Any], library: Any) -> list[Any]:
    names = names_of(library)
    values = list(leaves)
    for line in chain.lines:
        values.append(eval(line, names, dict(zip(chain.names(), values))))  # noqa: S307
    return values


def leaf_arrays(chain: Chain, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    rng = np.random.default_rng(chain.seed)
    made = []
    for shape in shapes:
        count = math.prod(shape)
        if chain.dtype == "bool":
            made.append(rng.random(shape) < 0.5)
        else:
            numbers = (rng.permutation(count) - count // 2).reshape(shape)
            made.append(numbers / 8 if "float" in chain.dtype else numbers)
    return made


def tensors(chain: Chain, arrays: list[Array], library: Any) -> list[Any]:
    make = pg.Tensor if library is pg else torch.tensor
    leaves = [
        make(array).to(getattr(library, chain.dtype if chain.dtype != "bool" else ("bool_" if library is pg else "bool")))
        for array in arrays
    ]
    return [leaf.detach().requires_grad_() for leaf in leaves] if "float" in chain.dtype else leaves


def host(tensor: Any) -> Array:
    double = tensor.detach().to(pg.float64 if isinstance(tensor, pg.Tensor) else torch.float64)
    return np.asarray(double.numpy())


def loss_of(value: Any, library: Any) -> Any:
    """A number whose gradient tells places apart where values do; it names no length."""
    wide = value.to(library.float64)
    return (wide * (wide + 3.0)).sum()


def outcome(chain: Chain, arrays: list[Array], library: Any, jit: bool = False) -> tuple[list[Array], list[Array]]:
    """The values of the last lines, and the gradients of the leaves by the last."""
    leaves = tensors(chain, arrays, library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = run(chain, leaves, library)
    seen = [host(value) for value in values[len(leaves) :][-2:]]
    if not values[-1].requires_grad:
        return seen, []
    grad = pg.grad if library is pg else torch.autograd.grad
    found = grad(loss_of(values[-1], library), leaves, allow_unused=True)
    return seen, [np.zeros(array.shape) if one is None else host(one) for one, array in zip(found, arrays)]


def jitted(chain: Chain, sizes: list[list[Array]]) -> list[tuple[list[Array], list[Array]]] | None:
    """The same by one jitted function, called with each size, each twice; None: values decide something."""

    @pg.jit
    def step(*leaves: Any) -> Any:
        if "float" in chain.dtype:
            leaves = tuple([leaf.detach().requires_grad_() for leaf in leaves])
        values = run(chain, list(leaves), pg)
        last = values[-1]
        if not last.requires_grad:
            return values[len(leaves) :][-2:], []
        return values[len(leaves) :][-2:], pg.grad(loss_of(last, pg), list(leaves), allow_unused=True)

    found = []
    try:
        for arrays in sizes:
            for _ in range(2):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    seen, grads = step(*[leaf.detach() for leaf in tensors(chain, arrays, pg)])
            zeros = [np.zeros(array.shape) for array in arrays]
            found.append(([host(value) for value in seen], [z if g is None else host(g) for g, z in zip(grads, zeros)]))
    except pg.JitError:
        return None
    return found


def with_variable(chain: Chain, sizes: Mapping[int, tuple[list[Array], Any]]) -> dict[int, tuple[list[Array], list[Array]]]:
    """The same with axis 0 of the first leaf cut to a symbolic integer; without the sizes where a number is needed."""
    found = {}
    for more, (arrays, _) in sizes.items():
        first, *rest = arrays
        length = first.shape[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            long, *others = tensors(chain, [np.concatenate([first, first[:1]]), *rest], pg)
            try:
                cut = long.detach()[: pg.Variable("n", 0, 200).bind(length)]
                cut = cut.requires_grad_() if "float" in chain.dtype else cut
                values = run(chain, [cut, *others], pg)
                seen = [host(value) for value in values[1 + len(rest) :][-2:]]
                if not values[-1].requires_grad:
                    found[more] = seen, []
                    continue
                grads = pg.grad(loss_of(values[-1], pg), [cut, *others], allow_unused=True)
                found[more] = seen, [np.zeros(a.shape) if g is None else host(g) for g, a in zip(grads, arrays)]
            except (pg.ShapeError, pg.IndexingError, TypeError) as error:
                if "n=" not in str(error) and " = " not in str(error) and "symbolic" not in str(error):
                    raise
    return found


def shapes_at(chain: Chain, more: int) -> tuple[tuple[int, ...], ...]:
    first, *rest = chain.shapes
    return (tuple([n + more if i == chain.axis else n for i, n in enumerate(first)]), *rest)


# ---- making one ----
def chain_of(seed: int) -> Chain:
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(DTYPES))
    count = int(rng.integers(1, 6))
    lengths = [0 if rng.random() < 0.03 else int(rng.choice(LENGTHS)) for _ in range(count)]
    while math.prod(lengths) > ELEMENTS_MAX // 2:
        lengths[int(np.argmax(lengths))] //= 2
    chain = Chain(seed, dtype, (tuple(lengths),), (), int(rng.integers(count)))
    values = tensors(chain, leaf_arrays(chain, chain.shapes), torch)
    has_rounded = False
    wanted = int(rng.integers(1, LINES_MAX + 1))
    for _ in range(6 * wanted):
        if len(chain.lines) == wanted:
            break
        at = len(values) - 1 if rng.random() < 0.9 else int(rng.integers(len(values)))
        kind = int(rng.choice(4, p=(0.4, 0.33, 0.17, 0.1)))
        if has_rounded and kind == 2:
            continue
        lines = FAMILIES[kind](rng, f"v{at}", values[at])
        if not lines:
            continue
        line = lines[int(rng.integers(len(lines)))]
        made = taken(replace(chain, lines=(*chain.lines, line)), values)
        if made is not None:
            chain = replace(chain, lines=(*chain.lines, line))
            values.append(made)
            has_rounded = has_rounded or kind == 3 or dtype in ("float16", "bfloat16")
    return chain


def taken(chain: Chain, values: list[Any]) -> Any:
    """The value of the last line in PyTorch; None where it refuses, or the value is large, or no number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = eval(chain.lines[-1], names_of(torch), dict(zip(chain.names(), values)))  # noqa: S307
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError):
        return None
    if not isinstance(made, torch.Tensor) or made.numel() > ELEMENTS_MAX or made.ndim > 6:
        return None
    whole = made.detach().to(torch.float64)
    return made if not whole.numel() or bool((whole.abs() < LARGEST).all()) else None


# ---- comparing ----
def compare(
    said: str, dtype: str, found: tuple[list[Array], list[Array]], expected: tuple[list[Array], list[Array]]
) -> None:
    tolerance = TOLERANCES.get(dtype, 1e-9)
    for what, mine, theirs in zip(("value", "gradient"), found, expected):
        for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if a.shape != b.shape:
                raise Differs(f"{said}: {what} {number} has shape {a.shape}, not {b.shape}")
            bound = tolerance * (1.0 + float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
            wrong = ~((np.abs(a - b) <= bound) | (np.isnan(a) & np.isnan(b)) | (a == b))
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                raise Differs(f"{said}: {what} {number}: {a[at]} at {at}, not {b[at]}; {wrong.sum()} of {wrong.size}")


SIZES = (0, 1, 3, 2, 5)


def sizes_of(chain: Chain) -> dict[int, tuple[list[Array], tuple[list[Array], list[Array]]]]:
    """The leaves of each size that PyTorch takes, and what it gives."""
    found = {}
    for more in SIZES:
        arrays = leaf_arrays(chain, shapes_at(chain, more))
        try:
            expected = outcome(chain, arrays, torch)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            continue
        if all(np.isfinite(array).all() for part in expected for array in part):
            found[more] = arrays, expected
    return found


def check(chain: Chain, way: str) -> None:
    """Holds a chain on a device, at several sizes, or under jit against PyTorch.

    Raises:
      Differs: they are not the same.
    """
    known = sizes_of(chain)
    if 0 not in known:
        return
    with np.errstate(all="ignore"):
        if way == "jit":
            found = jitted(chain, [arrays for arrays, _ in known.values()])
            for (more, (_, expected)), mine in zip(known.items(), found or []):
                compare(f"jit, size {more}", chain.dtype, mine, expected)
        elif way == "variable":
            if chain.shapes[0][0] and chain.axis == 0:
                for more, mine in with_variable(chain, known).items():
                    compare(f"variable, size {more}", chain.dtype, mine, known[more][1])
        elif way == "sizes":
            for more, (arrays, expected) in known.items():
                compare(f"size {more}", chain.dtype, outcome(chain, arrays, pg), expected)
        else:
            with default_device(way):
                arrays, expected = known[0]
                compare(way, chain.dtype, outcome(chain, arrays, pg), expected)


# ---- failures ----
def smallest(chain: Chain, fails: Callable[[Chain], bool]) -> Chain:
    """Returns a chain that fails, too, without the lines that it does not need."""
    shrunk = True
    while shrunk:
        shrunk = False
        for at in reversed(range(len(chain.lines))):
            smaller = without(chain, at)
            if smaller is not None and fails(smaller):
                chain, shrunk = smaller, True
                break
    return chain


def without(chain: Chain, at: int) -> Chain | None:
    """Returns a chain without a line: what read its value reads the value before it."""
    if len(chain.lines) < 2:
        return None
    first = len(chain.shapes)
    lines = []
    for i, line in enumerate(chain.lines):
        if i == at:
            continue
        for number in range(first + at, first + i):
            line = re.sub(rf"\bv{number}\b", f"v{number - 1}", line)
        lines.append(line)
    return replace(chain, lines=tuple(lines))


def failure(chain: Chain, way: str) -> str | None:
    """Returns the text of a chain that fails, made small; None: it does not."""
    kind: type[Exception] | None = None
    try:
        check(chain, way)
        return None
    except Exception as error:
        kind = type(error)

    def fails(smaller: Chain) -> bool:
        try:
            check(smaller, way)
        except Exception as error:
            return isinstance(error, kind)
        return False

    small = smallest(chain, fails)
    try:
        check(small, way)
        said = "fails only at times"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return f"{said}\n    check({small}, {way!r})"


def check_seed(seed: int, way: str) -> None:
    said = failure(chain_of(seed), way)
    if said is not None:
        raise Differs(said)


if __name__ == "__main__":
    warnings.simplefilter("ignore", pg.PlanningWarning)
    run_seeds(check_seed, *WAYS)
