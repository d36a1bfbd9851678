"""What of PyTorch's picograd does not have, and what to write instead: the hints of AttributeErrors.

In:    a name of torch.NAME
Out:   `missing`: the error
"""

from __future__ import annotations

COMPLEX = "complex numbers are left out; pg.fft has pairs of real and imaginary parts."
NOT_HERE = "it is no part of picograd."
ONE_LAYOUT = "tensors have one layout, row by row; leave the argument out."

INSTEAD = {
    **dict.fromkeys(("complex", "complex64", "complex128", "polar", "view_as_complex", "view_as_real", "is_conj"), COMPLEX),
    "backends": "pg.set_float32_matmul_precision says whether products may take TF32; there is nothing else to set.",
    **dict.fromkeys(("distributed", "distributions", "multiprocessing", "profiler", "sparse"), NOT_HERE),
    **dict.fromkeys(("channels_last", "contiguous_format", "preserve_format", "strided"), ONE_LAYOUT),
    "amp": "pg.autocast and pg.GradScaler.",
    "compile": "pg.jit, around the whole training step.",
    "set_default_dtype": "dtype=... of a function or a layer; the default is float32.",
    "set_default_tensor_type": "dtype=... of a function or a layer; the default is float32.",
    "set_num_threads": "PICOGRAD_THREADS says how many threads the CPU has.",
    "set_printoptions": "tensors print as arrays do: numpy.set_printoptions.",
    "use_deterministic_algorithms": "every run gives the same bits; there is nothing to set.",
}


def missing(name: str) -> AttributeError:
    """Returns the error for a name that picograd does not have."""
    hint = f"\n  hint: {INSTEAD[name]}" if name in INSTEAD else ""
    return AttributeError(f"module 'picograd' has no attribute {name!r}{'.' if hint else ''}{hint}", name=name)
