"""Kernels of which kernels written by hand may compute the product, the attention or its gradients: on Hopper.

kernels/cuda/hopper_product.h, hopper_attention.h and hopper_attention_grad.h are these kernels.

In:    Kernel, Target
Out:   `ByHand`, candidates; `merged`: their Source, with what else was generated
Called by: engine/choose.py, engine/compiler.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from picograd.codegen.gpu.warpgroup_tiles import clocks_of, clocks_to_add, is_worth_it, parts_of, tiles_of, why_not
from picograd.codegen.plain_attention import AttentionSplit, split_attention, tiles_of_gradients
from picograd.codegen.plain_attention import tiles_of as tiles_of_heads
from picograd.codegen.unfuse import Split, unfuse, unfuse_in_parts
from picograd.device import Target
from picograd.ir.heads_opts import PlainAttention, WrittenAttention, WrittenGradients
from picograd.ir.opts import ByHand, Written
from picograd.ir.stages import Kernel, NestKind, Source
from picograd.look import show
from picograd.record import replace
from picograd.render import hopper_attention, hopper_product

MOST_TIMED = 6  # candidates of a kernel


def written_candidates(kernel: Kernel, target: Target) -> Sequence[ByHand]:
    """Returns the ways to compute a kernel by warpgroups, what is thought to be fastest first; often none.

    The parts of K that several blocks share are added up in order, so the same kernel has the same bits in every run.
    """
    if not target.has_warpgroups or target.plain_sums:
        return []
    if kernel.phases[0][0].kind is NestKind.ATTENTION:
        return _of_attention(kernel, target)
    found = []
    for split, clocks in _splits(kernel, target):
        product = split.product
        found += [(clocks + clocks_of(product, tile), Written(product, tile)) for tile in tiles_of(product, target)]
    return [choice for _, choice in sorted(found, key=lambda each: each[0])][:MOST_TIMED]


def _of_attention(kernel: Kernel, target: Target) -> Sequence[ByHand]:
    """Returns the ways to compute a kernel's attention by warpgroups, or its gradients."""
    split = split_attention(kernel, target)
    if isinstance(split, str):
        show("plan", lambda: f"{kernel.name}: not by warpgroups: {split}.")
        return []
    plain = split.plain
    if isinstance(plain, PlainAttention):
        return [WrittenAttention(plain, tile) for tile in tiles_of_heads(plain.shape, target)]
    by_keys, by_queries = (tiles_of_gradients(plain.shape, each, target) for each in (True, False))
    others = [(by_keys[0], each) for each in by_queries] + [(each, by_queries[0]) for each in by_keys[1:]]
    return [WrittenGradients(plain, *tiles) for tiles in others]


def _splits(kernel: Kernel, target: Target) -> Iterator[tuple[Split, float]]:
    """Gives the splits whose product can be computed, each with the clocks that adding up its parts takes."""
    splits = unfuse(kernel)
    if isinstance(splits, str):
        return
    reasons = [why_not(split.product, split.kernel.params) for split in splits]
    split = next((split for split, reason in zip(splits, reasons) if reason is None), None)
    if split is None:
        show("plan", lambda: f"{kernel.name}: not by warpgroups: {reasons[0]}.")
        return
    if not is_worth_it(split.product):
        return
    yield split, 0.0
    for parts in parts_of(split.product, target)[1:]:
        found = unfuse_in_parts(kernel, parts)
        if found is not None and why_not(found.product, found.kernel.params) is None:
            yield found, clocks_to_add(found.product, target)


def written_split(kernel: Kernel, choice: ByHand, target: Target) -> Split | AttentionSplit:
    """Returns the split of a kernel that a choice is about."""
    if not isinstance(choice, Written):
        split = split_attention(kernel, target)
        assert not isinstance(split, str), f"{kernel.name} has no split, but a kernel was chosen for it"
        return split
    splits = unfuse(kernel)
    assert not isinstance(splits, str), f"{kernel.name} has no split, but a kernel was chosen for it"
    in_parts = unfuse_in_parts(kernel, choice.product.batch) if choice.product.batch > 1 else None
    return next(split for split in (*splits, in_parts) if split is not None and split.product == choice.product)


def merged(kernel: Kernel, split: Split | AttentionSplit, choice: ByHand, generated: Source | None) -> Source:
    """Returns a kernel's source: the functions written by hand behind those that were generated for the rest."""
    params = split.kernel.params if generated is None else generated.params
    if isinstance(choice, Written):
        header = hopper_product.HEADER
        text, *own = hopper_product.function_of(choice, params, f"{kernel.name}_product")
    else:
        header = hopper_attention.header_of(choice)
        text, *own = hopper_attention.functions_of(choice, params, f"{kernel.name}_heads")
    if generated is None:
        return Source(kernel.name, "cuda", f"{header}\n{text}", params, (), tuple(own))
    assert len(generated.launches) == len(split.kernel.phases) - 1, "each phase that stores elements is one launch"
    launches = (*generated.launches[: split.place], *own, *generated.launches[split.place :])
    return replace(generated, text=f"{generated.text}\n{header}\n{text}", launches=launches)
