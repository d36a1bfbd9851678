"""What of PyTorch's picograd does not have, and what to write instead: the hints of AttributeErrors.

In:    a name of torch.NAME, or of torch.cuda.NAME
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


ONE_STREAM = "kernels follow each other, and copies run beside them by themselves; pg.cuda.Event measures."
A_PLAN_IS_A_GRAPH = "pg.jit: a step is one CUDA graph, inputs and outputs included."
MEMORY = "pg.cuda.memory_allocated, memory_reserved and mem_get_info."

INSTEAD_OF_CUDA = {
    **dict.fromkeys(("Stream", "ExternalStream", "StreamContext", "stream", "set_stream"), ONE_STREAM),
    **dict.fromkeys(("current_stream", "default_stream"), ONE_STREAM),
    **dict.fromkeys(("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables"), A_PLAN_IS_A_GRAPH),
    **dict.fromkeys(("memory_stats", "memory_summary", "memory_snapshot", "list_gpu_processes"), MEMORY),
    **dict.fromkeys(("get_rng_state", "get_rng_state_all"), "pg.get_rng_state: one generator draws for every device."),
    **dict.fromkeys(("set_rng_state", "set_rng_state_all"), "pg.set_rng_state: one generator draws for every device."),
    "amp": "pg.autocast and pg.GradScaler.",
    "device": 'with pg.device("cuda"): each process has one GPU.',
    "OutOfMemoryError": "pg.OutOfMemoryError.",
}


def missing(name: str, module: str = "picograd") -> AttributeError:
    """Returns the error for a name that picograd, or picograd.cuda, does not have."""
    instead = INSTEAD if module == "picograd" else INSTEAD_OF_CUDA
    hint = f"\n  hint: {instead[name]}" if name in instead else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{'.' if hint else ''}{hint}", name=name)
