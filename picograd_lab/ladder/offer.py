"""Rungs as candidates of the compiler: `offer_rung("conv", "shared tile")`.

In:    the names of a ladder and of a rung, and lengths that are not axes
Out:   the `Offering` of a kernel whose text gets the lengths of the arguments

A rung is a user's kernel for each set of lengths, perhaps with several launches; it implements the ladder's problem as
picograd computes it (picograd_lab/kernels/offer.py).
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.ir.host import MAP_TYPE
from picograd.ir.op import Op
from picograd.ir.opts import ROW_NBYTES
from picograd.ir.stages import TileMap
from picograd.record import replace
from picograd.tensor.tensor import Tensor
from picograd_lab.kernels.kernel import kernel
from picograd_lab.kernels.offer import Offering
from picograd_lab.kernels.signature import signature_of
from picograd_lab.ladder.gpu import Ladder, Rung, why_no_problem, why_not

OF_CLUSTERS = "KERNEL_OF_CLUSTERS("  # the first words of a kernel with clusters (devices/cuda/hopper.h)


def offer_rung(name: str, rung: str, **lengths: int) -> Offering:
    """Offers a rung of a ladder for all kernels that compute the ladder's problem, for all lengths that it accepts.

    Args:
      name:     the ladder's name
      rung:     the rung's name, such as "shared tile"
      lengths:  values for lengths that are not axes, such as STRIDE of a convolution; other lengths are used by `count()`.
      By default the ladder's values

    Returns:   the offer, which `withdraw()` or the end of a `with` block ends

    Raises:
      ArgumentError: the ladder or rung is unknown, or its problem is more than one kernel.
    """
    try:
        ladder: Ladder = import_module(f"picograd_lab.ladder.{name}").LADDER
    except (ImportError, AttributeError):
        raise ArgumentError(f"offer_rung: there is no ladder {name!r} on a GPU.") from None
    rungs = {each.name: each for each in ladder.rungs}
    if rung not in rungs:
        raise ArgumentError(f"offer_rung: {name} has no rung {rung!r}; it has {', '.join(rungs)}.")
    if not ladder.axes:
        raise ArgumentError(f"offer_rung: {ladder.does} is several kernels of the compiler, not one.")
    known = {**ladder.lengths, **lengths}
    if known.keys() != ladder.lengths.keys():
        raise ArgumentError(f"offer_rung: lengths of {name} are {', '.join(ladder.lengths)}, got {', '.join(lengths)}.")
    if reason := why_no_problem(ladder, known):
        raise ArgumentError(f"offer_rung: {reason}.")
    chosen = rungs[rung]

    def implements(*tensors: Tensor) -> tuple[Tensor, ...]:
        found = _lengths(ladder, known, tensors)
        if isinstance(found, str):
            raise ArgumentError(found)
        return tuple(result for result in ladder.tensors(found, *tensors) if isinstance(result, Tensor))

    def call(target: Target, *tensors: Tensor) -> Op | str:
        found = _lengths(ladder, known, tensors)
        return found if isinstance(found, str) else _call(ladder, chosen, found, target, tensors)

    examples = tuple(Tensor(array) for array in ladder.given(chosen, known))
    return Offering(f"{name}, {rung}", call, implements, examples)


def _lengths(ladder: Ladder, known: dict[str, int], tensors: tuple[Tensor, ...]) -> dict[str, int] | str:
    """Returns the lengths of a problem with these arguments, in the ladder's order; or why they do not fit."""
    found: dict[str, Any] = {}
    for tensor, axes in zip(tensors, ladder.axes):
        for name, length in zip(axes.split(), tensor.shape):
            if found.setdefault(name, length) != length:
                return f"{name} is {found[name]} and {length}"
    return {name: found.get(name, value) for name, value in known.items()}


def _call(ladder: Ladder, rung: Rung, lengths: dict[str, int], target: Target, tensors: tuple[Tensor, ...]) -> Op | str:
    """Returns the KERNEL of a rung for some lengths; or why it is not a candidate."""
    reason = why_not(ladder, rung, lengths, target)
    if reason:
        return reason
    text, launches = ladder.text_for(rung, lengths, rung.dtype.name), rung.launches(lengths)
    if OF_CLUSTERS in text:
        return f"blocks of {rung.name} come in clusters, those of an offered kernel do not"
    (first, *others), memory = ladder.results(lengths), rung.scratch(lengths)
    results = [(first, rung.dtype), *((shape, dtypes.float32) for shape in others)]  # 16 bits, and log-sum-exp
    parameters = signature_of(text, launches[0].symbol).parameters
    names = [one.name for one in parameters if one.type != MAP_TYPE]
    options: list[dict[str, Any]] = [
        {"entry": one.symbol, "grid": one.grid, "block": one.block, "shared_bytes": one.shared_nbytes} for one in launches
    ]
    maps = [_of_result(each, rung.dtype) if each.param == len(tensors) else each for each in launches[0].tile_maps]
    made = kernel(
        text, lambda *_: tuple(results), name=launches[0].symbol, **options[0], then=options[1:],
        scratch={name: ((numel,), dtype) for name, (dtype, numel) in zip(names[len(names) - len(memory) :], memory)},
        tile_maps={
            one.name: partial(_map_of, names[each.param], each)
            for one, each in zip([one for one in parameters if one.type == MAP_TYPE], maps)
        },
    )  # fmt: skip
    return made.call(tensors)[0]


def _of_result(tile_map: TileMap, dtype: DType) -> TileMap:
    """Returns the tensor map of a rung's result, whose box is 128 bytes wide, for elements of another dtype."""
    return replace(tile_map, box=(*tile_map.box[:-1], ROW_NBYTES // dtype.itemsize))


def _map_of(name: str, tile_map: TileMap, *args: Tensor) -> tuple[Any, ...]:
    return name, tile_map.box, tile_map.shape
