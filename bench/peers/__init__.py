"""One file per framework, each a `bench.runner.Peer`; no file imports a framework until it is asked for.

In:    the name of a variant, e.g. "jax_scan"
Out:   the module that runs it
"""

from __future__ import annotations

import importlib
import importlib.util

from bench.runner import STACKED_VARIANTS, Peer
from bench.singles import Generation, Overhead
from bench.workloads import LAYOUTS, Forward, Workload

# variant            (framework to import, module of this folder)
VARIANTS: dict[str, tuple[str, str]] = {
    "picograd": ("picograd", "picograd_"),
    "picograd_eager": ("picograd", "picograd_"),
    "picograd_loop": ("picograd", "picograd_"),
    "torch": ("torch", "torch_"),
    "torch_compile": ("torch", "torch_"),
    "jax": ("jax", "jax_"),
    "jax_scan": ("jax", "jax_"),
    "tinygrad": ("tinygrad", "tinygrad_"),
    "picograd_layers": ("picograd", "picograd_"),
    "jax_layers": ("jax", "jax_"),
    "picograd_cuda": ("picograd", "picograd_cuda"),
    "torch_cuda": ("torch", "torch_cuda"),
    "numpy": ("numpy", "numpy_"),
    "lists": ("builtins", "lists_"),
}
# Networks whose layers are one loop: for the time to compile deep ones.
LAYERED_VARIANTS = ("picograd_layers", "jax_layers")
# A perceptron in everything there is, from Python's lists to a GPU.
HEADLINE_VARIANTS = ("picograd_cuda", "torch_cuda", "numpy", "lists")

# What would take minutes, with what was measured (two cores, 2026-11-21): (workload or group, variant) -> why.
LEFT_OUT: dict[tuple[str, str], str] = {
    ("lstm", "tinygrad"): "unrolled, its first step takes 66 s",
    ("nanogpt_384", "tinygrad"): "no first step in 90 s",
    ("headline_2003001", "lists"): "15 s a step, of which eleven are needed",
    ("headline_9997156", "lists"): "75 s a step",
    ("generation", "tinygrad"): "its first prefill takes 72 s of processor time",
    **{(f"matmul_2048_{layout}", "tinygrad"): "up to 10.8 s a product" for layout in LAYOUTS},
}


def has(workload: Workload, variant: str) -> bool:
    """False where a variant has nothing of its own to show: a loop over steps for a workload of single calls, say."""
    if variant in LAYERED_VARIANTS:
        return workload.group == "depth"
    if variant in HEADLINE_VARIANTS:
        return workload.group == "headline"
    if workload.group == "depth":
        return variant not in (*STACKED_VARIANTS, "picograd_eager")
    if isinstance(workload, Forward):
        return variant not in STACKED_VARIANTS
    if isinstance(workload, Overhead):
        return variant != "torch_compile"
    if isinstance(workload, Generation) and workload.op == "decode":
        return variant not in ("torch_compile", "picograd_loop")
    if isinstance(workload, Generation):
        return variant not in STACKED_VARIANTS
    return True


def why_left_out(workload: Workload, variant: str) -> str:
    """Returns why a variant is not measured on a workload; empty when it is."""
    why = LEFT_OUT.get((workload.name, variant)) or LEFT_OUT.get((workload.group, variant))
    return f"left out: {why}" if why else ""


def is_installed(variant: str) -> bool:
    """True when the variant's framework can be found; it may still fail to start."""
    return importlib.util.find_spec(VARIANTS[variant][0]) is not None


def load(variant: str) -> Peer:
    """Imports the framework of a variant."""
    module: Peer = importlib.import_module(f"bench.peers.{VARIANTS[variant][1]}")
    return module
