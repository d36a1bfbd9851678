"""Kernels of which kernels written by hand may compute the product, the attention or its gradients: on Hopper.

devices/cuda/hopper_product.h, hopper_attention.h and hopper_attention_grad.h are these kernels.

In:    Kernel, Target
Out:   `ByHand`, candidates; `merged`: their Source, with what else was generated
Called by: engine/choose.py, engine/compiler.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.gpu.warpgroup_tiles import clocks_of, clocks_to_add, in_parts, is_worth_it, tiles_of, why_not
from picograd.codegen.plain_attention import AttentionSplit, split_attention, tiles_of_gradients
from picograd.codegen.plain_attention import tiles_of as tiles_of_heads
from picograd.codegen.unfuse import Split, unfuse, unfuse_in_parts
from picograd.device import Target
from picograd.devices.cuda.render_hopper import functions_of, header_of
from picograd.ir.heads_opts import PlainAttention, WrittenAttention, WrittenGradients
from picograd.ir.opts import ByHand, PlainProduct, Written
from picograd.ir.stages import Kernel, NestKind, Source
from picograd.look import show
from picograd.record import replace

MOST_TIMED = 6  # candidates of a kernel


def written_candidates(kernel: Kernel, target: Target) -> Sequence[ByHand]:
    """Returns the ways to compute a kernel by warpgroups, what is thought to be fastest first; often none.

    The parts of K that several blocks share are added up in order, so the same kernel has the same bits in every run.
    """
    if not target.has_warpgroups or target.plain_sums:
        return []
    if kernel.phases[0][0].kind is NestKind.ATTENTION:
        return _of_attention(kernel, target)
    product = _whole(kernel)
    if product is None:
        return []
    found = [
        (clocks_of(each, tile) + clocks_to_add(each, target), each.parts, tile)
        for each in in_parts(product, target) for tile in tiles_of(each, target)
    ]  # fmt: skip
    products = {1: product}
    for parts in {parts for _, parts, _ in sorted(found, key=lambda each: each[0])[:MOST_TIMED]} - {1}:
        split = unfuse_in_parts(kernel, parts)
        if split is not None and why_not(split.product, split.kernel.params) is None:
            products[parts] = split.product
    possible = [(clocks, Written(products[parts], tile)) for clocks, parts, tile in found if parts in products]
    return [choice for _, choice in sorted(possible, key=lambda each: each[0])][:MOST_TIMED]


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


def _whole(kernel: Kernel) -> PlainProduct | None:
    """Returns the product of a kernel with all of its K, if it can be computed by warpgroups and is large enough."""
    splits = unfuse(kernel)
    if isinstance(splits, str):
        return None
    reasons = [why_not(split.product, split.kernel.params) for split in splits]
    product = next((split.product for split, reason in zip(splits, reasons) if reason is None), None)
    if product is None:
        show("plan", lambda: f"{kernel.name}: not by warpgroups: {reasons[0]}.")
    return product if product is not None and is_worth_it(product) else None


def written_split(kernel: Kernel, choice: ByHand, target: Target) -> Split | AttentionSplit:
    """Returns the split of a kernel that a choice is about."""
    if not isinstance(choice, Written):
        split = split_attention(kernel, target)
        assert not isinstance(split, str), f"{kernel.name} has no split, but a kernel was chosen for it"
        return split
    splits = unfuse(kernel)
    assert not isinstance(splits, str), f"{kernel.name} has no split, but a kernel was chosen for it"
    of_parts = unfuse_in_parts(kernel, choice.product.parts) if choice.product.parts > 1 else None
    return next(split for split in (*splits, of_parts) if split is not None and split.product == choice.product)


def merged(kernel: Kernel, split: Split | AttentionSplit, choice: ByHand, generated: Source | None) -> Source:
    """Returns a kernel's source: the functions written by hand behind those that were generated for the rest."""
    params = split.kernel.params if generated is None else generated.params
    header, symbol = header_of(choice), f"{kernel.name}_{'product' if isinstance(choice, Written) else 'heads'}"
    text, *own = functions_of(choice, params, symbol)
    if generated is None:
        return Source(kernel.name, "cuda", f"{header}\n{text}", params, (), tuple(own))
    assert len(generated.launches) == len(split.kernel.phases) - 1, "each phase that stores elements is one launch"
    launches = (*generated.launches[: split.place], *own, *generated.launches[split.place :])
    return replace(generated, text=f"{generated.text}\n{header}\n{text}", launches=launches)
