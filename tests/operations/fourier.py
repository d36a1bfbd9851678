"""Fourier transforms: the rows of the table. PyTorch's complex tensors are pairs on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.operations.table import Operation, Rng, Sample

NORMS = (None, "ortho", "forward", "backward")


def theirs(name: str, takes_pairs: bool, gives_pairs: bool) -> Callable[..., Any]:
    """Returns a function of torch.fft on pairs."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        result = getattr(torch.fft, name)(
            torch.view_as_complex(x.clone(memory_format=torch.contiguous_format)) if takes_pairs else x, *args, **kwargs
        )
        return torch.view_as_real(result.resolve_conj().contiguous()) if gives_pairs else result

    return call


def row(name: str, takes_pairs: bool, gives_pairs: bool) -> Operation:
    """A row of a transform."""
    several, two = name.endswith("n"), name.endswith("2")
    pair = (2,) if takes_pairs else ()

    def samples(rng: Rng) -> list[Sample]:
        found = [Sample((rng.standard_normal((3, 4, 5, *pair)),), {"norm": norm}) for norm in NORMS]
        x = rng.standard_normal((2, 3, 6, *pair))
        if several or two:
            found += [
                Sample((x,), {"s": (4, 5), "dim": (0, 2)}),
                Sample((x,), {"s": (2, 7), "dim": (1, -1), "norm": "ortho"}),
            ]
            found += [Sample((x,), {"s": (3, 4)}), Sample((x,), {"dim": (-1, 0)})]
        else:
            found += [Sample((x,), {"n": n, "dim": dim, "norm": "ortho"}) for n, dim in ((7, 1), (4, -1), (1, 0), (8, 2))]
        return found

    return Operation(f"fft.{name}", samples, theirs(name, takes_pairs, gives_pairs), dtypes="", rtol=1e-4, atol=1e-5)


OPERATIONS = [
    *(row(f"{inverse}fft{axes}", True, True) for inverse in ("", "i") for axes in ("", "2", "n")),
    *(
        row(f"{name}{axes}", name in ("irfft", "hfft"), name in ("rfft", "ihfft"))
        for name in ("rfft", "irfft", "hfft", "ihfft")
        for axes in ("", "2", "n")
    ),
    *(
        Operation(
            f"fft.{name}",
            lambda rng: [Sample((rng.standard_normal((4, 5)), *dims)) for dims in ((), (1,), ((0, 1),))],
            dtypes="fi",
        )
        for name in ("fftshift", "ifftshift")
    ),
    *(
        Operation(
            f"fft.{name}", lambda rng: [Sample((n, *d)) for n in (1, 4, 5) for d in ((), (0.25,))], orders=0, dtypes=""
        )
        for name in ("fftfreq", "rfftfreq")
    ),
]
