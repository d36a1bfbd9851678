"""One file per framework, each a `bench.runner.Peer`; no file imports a framework until it is asked for.

In:    the name of a variant, e.g. "jax_scan"
Out:   the module that runs it
Called by: bench/worker.py, bench/first_step.py
"""

from __future__ import annotations

import importlib
import importlib.util

from bench.runner import Peer

# variant            (framework to import, module of this folder)
VARIANTS: dict[str, tuple[str, str]] = {
    "picograd": ("picograd", "picograd_"),
    "picograd_eager": ("picograd", "picograd_"),
    "torch": ("torch", "torch_"),
    "torch_compile": ("torch", "torch_"),
    "jax": ("jax", "jax_"),
    "jax_scan": ("jax", "jax_"),
    "tinygrad": ("tinygrad", "tinygrad_"),
}


def is_installed(variant: str) -> bool:
    """True when the variant's framework can be found; it may still fail to start."""
    return importlib.util.find_spec(VARIANTS[variant][0]) is not None


def load(variant: str) -> Peer:
    """Imports the framework of a variant."""
    module: Peer = importlib.import_module(f"bench.peers.{VARIANTS[variant][1]}")
    return module
