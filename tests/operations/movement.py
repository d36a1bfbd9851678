"""Movement, pieces and joining: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import einops
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.operations.table import Array, Operation, Rng, Sample, floats, sample

Samples = Callable[[Rng], list[Sample]]
Args = tuple[Any, ...]


def on(shape: tuple[int, ...], *calls: Args | dict[str, Any]) -> Samples:
    """Returns calls on a tensor of one shape, each with the arguments, or the keywords, of one of `calls`."""

    def samples(rng: Rng) -> list[Sample]:
        x = rng.uniform(-2.0, 2.0, shape)
        return [sample(x, **call) if isinstance(call, dict) else sample(x, *call) for call in calls]

    return samples


def several(*parts: Samples) -> Samples:
    """Returns the calls of all parts."""
    return lambda rng: [call for part in parts for call in part(rng)]


def lists(*shapes: tuple[tuple[int, ...], ...], spread: bool = False, **kwargs: Any) -> Samples:
    """Returns calls with lists of tensors, of the shapes in each of `shapes`; spread: with the tensors themselves."""

    def samples(rng: Rng) -> list[Sample]:
        found = [[rng.uniform(-2.0, 2.0, shape) for shape in group] for group in shapes]
        return [sample(*tensors, **kwargs) if spread else sample(tensors, **kwargs) for tensors in found]

    return samples


def drawn(args: Callable[[Array], st.SearchStrategy[Args]], least: int = 0) -> st.SearchStrategy[Sample]:
    """Returns calls on arrays of up to 4 axes of up to 5, with arguments drawn for each."""
    shapes = hnp.array_shapes(min_dims=least, max_dims=4, min_side=0, max_side=5)
    arrays = shapes.flatmap(lambda shape: floats(shape, (-2.0, 2.0)))
    return arrays.flatmap(lambda x: args(x).map(lambda rest: Sample((x, *rest))))


def axes(x: Array) -> st.SearchStrategy[int]:
    """Returns any axis, counted from either end."""
    return st.integers(-x.ndim, x.ndim - 1)


def view(name: str, *calls: Args | dict[str, Any], shape: tuple[int, ...] = (4, 3, 5), **kwargs: Any) -> Operation:
    """A row of a function that only moves elements: it takes every dtype."""
    return Operation(f"Tensor.{name}", several(on(shape, *calls), kwargs.pop("more", on(()))), dtypes="fiub", **kwargs)


def function(name: str, samples: Samples, **kwargs: Any) -> Operation:
    """A row of a function of several tensors."""
    return Operation(f"Tensor.{name}", samples, torch=kwargs.pop("torch", name), dtypes="fiub", **kwargs)


def permutations(x: Array) -> st.SearchStrategy[Args]:
    return st.permutations(range(x.ndim)).map(tuple)


def pairs_of_axes(x: Array) -> st.SearchStrategy[Args]:
    return st.tuples(axes(x), axes(x))


def diagonals(x: Array) -> st.SearchStrategy[Args]:
    two = st.permutations(range(x.ndim)).map(lambda order: tuple(order[:2]))
    return st.tuples(st.integers(-6, 6), two).map(lambda drawn: (drawn[0], *drawn[1]))


def windows(x: Array) -> st.SearchStrategy[Args]:
    return axes(x).flatmap(lambda axis: st.tuples(st.just(axis), st.integers(0, x.shape[axis]), st.integers(1, 7)))


def pieces(x: Array) -> st.SearchStrategy[Args]:
    return axes(x).flatmap(
        lambda axis: st.integers(0, x.shape[axis]).flatmap(
            lambda start: st.tuples(st.just(axis), st.just(start), st.integers(0, x.shape[axis] - start))
        )
    )


def bits(x: Any, dtype: str) -> Any:
    """View of the bits as another dtype, by name: of either library."""
    return x.view(getattr(__import__(type(x).__module__.split(".")[0]), dtype))


VIEWS = [
    view("reshape", (12, 5), (-1,), (2, -1, 3), ((60,),), more=several(on((), (1,)), on((0, 3), (3, 0)))),
    view("view", (4, 3, 5, 1), (12, 5), (4, -1), more=on((0, 3), (3, 0))),
    view("flatten", (), (1,), (0, 1), (-2,), more=several(on((), ()), on((2, 0, 3), (1,)))),
    view("ravel", (), more=several(on((), ()), on((2, 0), ()))),
    view("unflatten", (0, (2, -1)), (-1, (5, 1))),
    view("squeeze", (), (0,), (1,), ((0, 2),), ((1,),), shape=(1, 3, 1), more=on((), ())),
    view("unsqueeze", (0,), (-1,), (2,), more=on((), (0,))),
    view("permute", (2, 0, 1), ((1, -1, 0),), more=on((), ((),)), drawn=drawn(permutations, 1)),
    view("transpose", (0, 1), (-1, 0), (1, 1), more=on((2, 0), (0, 1)), drawn=drawn(pairs_of_axes, 1)),
    view("swapaxes", (0, 1), (-1, 0)),
    view("swapdims", (0, 1), (-1, 0)),
    view("t", (), shape=(3, 4), more=several(on((3,), ()), on((), ()))),
    view("adjoint", (), more=on((2, 0), ())),
    view("movedim", (0, 2), ((0, 1), (1, 2)), ((2, 0), (0, 1)), (-1, 0)),
    view("moveaxis", (0, 2), ((0, -1), (1, 0))),
    view("expand", (4, 3, 5), (2, -1, 3, -1), shape=(4, 3, 1), more=several(on((), (2, 3)), on((1, 0), (3, 0)))),
    view("broadcast_to", ((2, 3, 4),), ((3, 4),), shape=(3, 1), more=on((), ((2,),))),
    view("narrow", (0, 1, 2), (1, 0, 0), (-1, -2, 2), drawn=drawn(pieces, 1)),
    view("narrow_copy", (0, 1, 2), (-1, 3, 2)),
    view("select", (0, 1), (1, -1), (-1, 4)),
    view("split", (2,), (3, 2), ([1, 3],), ([2, 0, 3], -1), more=on((0, 3), (2,), (2, 1))),
    view("split_with_sizes", ([1, 3],), ([2, 0, 3], -1)),
    view("chunk", (2,), (3, 1), (4, 2), (9, 2), more=on((0, 3), (3,))),
    view("tensor_split", (3,), (2, 2), ((1, 3),), ([0, 2, 9], 2), ((-1,), 1), more=on((0,), (2,))),
    view("hsplit", (3,), ((1, 2),), more=on((4,), (2,))),
    view("vsplit", (2,), ((1, 3),)),
    view("dsplit", (5,), ((1, 2),)),
    view("unbind", (), (1,), (-1,), more=on((0, 2), ())),
    view("unfold", (0, 2, 1), (1, 3, 1), (2, 2, 3), (-1, 5, 1), (0, 1, 3), (2, 3, 2), (2, 4, 2),
         more=several(on((), (0, 1, 1)), on((2, 13), (1, 6, 4), (1, 9, 4), (-1, 7, 5))),
         drawn=drawn(windows, 1)),  # fmt: skip
    view("diagonal", (), (1,), (-2, 1, 2), (0, 2, 0), (9,), (-9,), more=on((2, 0), ()), drawn=drawn(diagonals, 2)),
    view("diag", (), (1,), (-2,), shape=(4, 3), more=several(on((3,), (), (1,), (-2,)), on((0,), ()))),
    view("diagflat", (), (1,), (-1,), shape=(2, 3), more=several(on((), ()), on((0,), ()))),
    view("diag_embed", (), (1,), (-2,), (0, 0, 2), (1, -1, 0), (0, -2, -1), shape=(2, 3), more=on((0,), ())),
]


def with_piece(shape: tuple[int, ...], *calls: tuple[tuple[int, ...], Args]) -> Samples:
    """Returns calls with a tensor of `shape` and one of the shape that begins each of `calls`."""
    return lambda rng: [sample(rng.uniform(-2, 2, shape), rng.uniform(-2, 2, piece), *rest) for piece, rest in calls]


BACK = [
    function("select_scatter", with_piece((4, 3), ((3,), (0, 1)), ((4,), (1, -1)))),
    function(
        "slice_scatter",
        with_piece((4, 3), ((2, 3), (0, 1, 3)), ((4, 2), (1, 0, None, 2)), ((4, 3), ()), ((0, 3), (0, 2, 1))),
    ),
    function("diagonal_scatter", with_piece((4, 3), ((3,), ()), ((2,), (1,)), ((2,), (1, 0, 1)))),
]

ORDER = [
    view("flip", (0,), (0, 2), ((-1, 1),), more=on((2, 0), (0,)), drawn=drawn(lambda x: axes(x).map(lambda a: (a,)), 1)),
    view("fliplr", ()),
    view("flipud", (), more=on((3,), ())),
    view("rot90", (), (2, (0, 2)), (-1, (2, 1)), (4, (0, 1)), (3, (1, 0))),
    view("roll", (1,), (2, 0), (-1, 1), ((1, 2), (0, -1)), (7, 2), more=several(on((0,), (1,)), on((), (1,)))),
    view("repeat", (2, 1, 3), (1, 2, 1, 1), ((2, 0, 1),), shape=(2, 3, 2), more=on((), (3,))),
    view("tile", (2,), (2, 1, 3), (2, 1, 1, 2), ((0, 2),), shape=(2, 3, 2), more=on((), (3,), ((),))),
    view("repeat_interleave", (2,), (3, 0), (2, -1), (0, 1), shape=(4, 3), more=on((), (2,))),
    view("pad", ((1, 2),), ((0, 1, 2, 0),), ((-1, 1, 0, -2),), ((1, 1), "constant", 1.0), torch="nn.functional.pad"),
]

JOINED = [
    function("cat", lists(((2, 3), (4, 3), (1, 3)), ((0, 2), (3, 2)), ((0,), (2, 3)), ((3,),))),
    function("cat", lists(((2, 3), (2, 1)), dim=1), variant="dim"),
    function("cat", lists(tuple((n % 3, 2) for n in range(40))), variant="many"),
    function("concat", lists(((2, 3), (4, 3)))),
    function("concatenate", lists(((2, 3), (4, 3)))),
    function("stack", lists(((2, 3), (2, 3)), ((), ()), ((0, 2), (0, 2)))),
    function("stack", lists(((2, 3), (2, 3)), dim=-1), variant="dim"),
    function("hstack", lists(((2, 3), (2, 1)), ((3,), (2,)), ((), (2,)))),
    function("vstack", lists(((2, 3), (1, 3)), ((3,), (3,)), ((), (1,)))),
    function("row_stack", lists(((2, 3), (1, 3)), ((3,), (3,)))),
    function("dstack", lists(((2, 3), (2, 3)), ((3,), (3,)), ((2, 1, 3), (2, 1, 1)))),
    function("column_stack", lists(((2, 3), (2,)), ((3,), (3,)), ((), ()))),
    function("atleast_1d", lists(((2, 3),), ((),), spread=True)),
    function("atleast_2d", lists(((2, 3), (3,)), ((), (2,)), spread=True)),
    function("atleast_3d", lists(((2, 3), (3,), (), (1, 2, 3, 4)), spread=True)),
    function("broadcast_tensors", lists(((4, 1), (3,)), ((), (2, 0)), spread=True)),
    function("meshgrid", lists(((4,), (3,), (2,)), ((3,), ()), ((0,), (2,)), spread=True, indexing="ij")),
    function("meshgrid", lists(((4,), (3,), (2,)), ((3,),), spread=True, indexing="xy"), variant="xy"),
    function("block_diag", lists(((2, 3), (1, 2)), ((3,), (), (0, 2)), spread=True)),
    function("cartesian_prod", lists(((2,), (3,), (2,)), ((3,),), spread=True)),
    view("combinations", (), (3,), (2, True), (0,), (1,), shape=(4,), more=on((2,), (3,)), torch="combinations"),
]


def whole_dtypes(rng: Rng) -> list[Sample]:
    x = rng.integers(0, 1 << 62, (3, 4))
    return [sample(x, dtype) for dtype in ("int64", "int32", "int16", "uint8", "float64", "float32")]


def narrow_dtypes(rng: Rng) -> list[Sample]:
    x = rng.integers(0, 256, (3, 8)).astype(np.uint8)
    return [sample(x, dtype) for dtype in ("uint8", "int16", "int32", "int64", "float16")]


BITS = [
    Operation("Tensor.view", whole_dtypes, call=bits, torch=bits, orders=0, variant="dtype"),
    Operation("Tensor.view", narrow_dtypes, call=bits, torch=bits, orders=0, variant="wider dtype"),
]
MATRICES = [
    Operation(f"Tensor.{name}", on((3, 4), ()), call=lambda x, name=name: getattr(x, name), dtypes="fiub",
              torch=lambda x, name=name: getattr(x, name))
    for name in ("T", "mT", "H", "mH")
]  # fmt: skip

def pattern_of_einops(name: str) -> Any:
    """Returns einops' function of a tensor of PyTorch."""
    return lambda x, *args, **lengths: getattr(einops, name)(x, *args, **lengths)


REARRANGED = (
    ("a b c -> c a b",), ("a b c -> (a b) c",), ("a ... -> ... a",), ("... c -> c (...)",), ("a b c -> a 1 (c b)",),
    ("... -> (...)",), ("a b c -> a b () c",),
)  # fmt: skip
REDUCED = (
    ("a b c -> c a", "sum"), ("a ... -> a", "max"), ("... c -> c", "mean"), ("a b c ->", "min"), ("a b c -> b", "prod"),
)  # fmt: skip
PATTERNS = [
    view("rearrange", *REARRANGED, {"pattern": "(p q) b c -> p b (q c)", "p": 2},
         torch=pattern_of_einops("rearrange"), more=on((), {"pattern": "-> 1"})),
    view("rearrange", {"pattern": "a b c -> a (c n) m b", "n": 2, "m": 3}, torch=pattern_of_einops("repeat"),
         more=on((), {"pattern": "-> n", "n": 2}), variant="repeat"),
    Operation(
        "Tensor.reduce", on((4, 3, 5), *REDUCED, {"pattern": "(p q) b c -> p c", "reduction": "mean", "q": 2}),
        torch=pattern_of_einops("reduce"),
    ),
]  # fmt: skip
OPERATIONS = [*PATTERNS, *VIEWS, *BACK, *ORDER, *JOINED, *BITS, *MATRICES]
