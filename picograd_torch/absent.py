"""PyTorch's names that picograd lacks, each with a replacement for the hint of its AttributeError.

picograd/errors.py loads this table at the first missing name (`missing`).
"""

from __future__ import annotations


def each(names: str, sentence: str) -> dict[str, str]:
    """Returns a table in which several names share a sentence."""
    return dict.fromkeys(names.split(), sentence)


COMPLEX = "complex numbers are left out; pg.fft has pairs of real and imaginary parts as a last axis of two."
SPARSE = "sparse tensors are left out; a dense tensor and a mask, index_add or embedding_bag compute the same."
QUANTIZED = "quantized tensors are left out; int8 tensors with a scale multiply as x.float() * scale, in one kernel."
NESTED = "nested tensors are left out; nn.utils.rnn.pad_sequence and a mask hold sequences of different lengths."
ONE_PROCESS = "a training runs in one process on one device; pg.accumulate sums gradients over parts of a batch."
NOT_COMPILED = "pg.jit, around the whole training step, takes the place of TorchScript and of export."
ONE_LAYOUT = "tensors have one layout, row-major; leave the argument out."
NO_STORAGE = "a lazy tensor has no storage until it is computed; x.numpy() copies it, x.data_ptr() is its address."
OTHER_MACHINES = "pg.device names the devices of picograd; python -m picograd doctor says which work here."
LIBRARY_OF_PYTORCH = "it belongs to PyTorch's own implementation; no program of picograd needs it."
OLD = "the name is deprecated in PyTorch, too."
SAVED = "pg.save(model.state_dict(), path) and model.load_state_dict(pg.load(path))."
THREADS = "the CPU device has one pool of threads; pg.set_num_threads says how many."
PROFILER = "pg.profile times kernels by line and by module and writes a trace; pg.cuda.kernel_times measures a GPU's."
ONE_STREAM = "kernels run in order, and copies at the same time by themselves; pg.cuda.Event measures."
A_PLAN_IS_A_GRAPH = "pg.jit: a step is one CUDA graph, inputs and outputs included."
MEMORY = "pg.cuda.memory_allocated, memory_reserved and mem_get_info."
ONE_GPU = "each process has one GPU, number 0; CUDA_VISIBLE_DEVICES chooses it."
ONE_GENERATOR = "one generator draws for every device"
IMPORTED = "PyTorch's file imports it: from typing, or pg.Tensor, pg.nn.Module, pg.optim.lr_scheduler.LRScheduler."
EACH_MODULE = "for module in model.modules(): module.register_forward_hook(hook), or the hook of that kind."
SENSORS = "nvidia-smi shows it."

INSTEAD: dict[str, dict[str, str]] = {
    "picograd": {
        **each("complex complex64 complex128 cfloat cdouble chalf", COMPLEX),
        **each("polar imag view_as_complex view_as_real stft istft", COMPLEX),
        **each("sparse sparse_coo sparse_csr sparse_coo_tensor sparse_csr_tensor", SPARSE),
        **each("quint8 qint8 qint32 quantization ao quantize_per_tensor fake_quantize_per_tensor_affine", QUANTIZED),
        **each("distributed multiprocessing futures Future", ONE_PROCESS),
        **each("compiler export package _dynamo fx", NOT_COMPILED),
        **each("strided layout", ONE_LAYOUT),
        **each("storage Storage FloatStorage UntypedStorage TypedStorage is_storage empty_strided", NO_STORAGE),
        **each("mps xpu cpu mtia", OTHER_MACHINES),
        **each("is_anomaly_enabled set_anomaly_enabled is_anomaly_check_nan_enabled",
               "pg.autograd.is_anomaly_enabled and pg.autograd.set_detect_anomaly."),
        "is_inference_mode_enabled": "pg.is_grad_enabled(): inference_mode is no_grad here.",
        **each("overrides library types return_types _C", LIBRARY_OF_PYTORCH),
        **each("SymBool SymFloat SymInt", "lengths are ints; under pg.jit some may be symbolic, of no public class."),
        **each("geqrf orgqr ormqr", "pg.linalg.qr, or pg.linalg.householder_product."),
        **each("svd_lowrank pca_lowrank", "pg.linalg.svd(x, full_matrices=False), and the first of its columns."),
        **each("float8_e4m3fnuz float8_e5m2fnuz", "pg.float8_e4m3fn and pg.float8_e5m2."),
        "hub": SAVED,
        "lobpcg": "pg.linalg.eigh, and the first or last of its columns.",
        "masked": "pg.where, masked_fill, or a sum of x * mask.",
        "nested": NESTED,
        "profiler": PROFILER,
        "range": "pg.arange(start, end + step, step): " + OLD,
        "set_default_tensor_type": "pg.set_default_dtype and pg.set_default_device.",
        "set_deterministic_debug_mode": "every run gives the same bits; there is nothing to set.",
        "set_num_interop_threads": THREADS,
        "testing": "numpy.testing.assert_allclose(x.numpy(), y.numpy()), or pg.allclose.",
        "set_flush_denormal": "denormals are computed as such on the CPU; there is nothing to set.",
        **each("set_warn_always is_warn_always_enabled", "warnings.simplefilter, of Python."),
        "typename": "type(x).__name__, and x.dtype.",
        "version": "pg.__version__.",
    },
    "picograd.Tensor": {
        **each("eig imag stft istft", COMPLEX),
        **each("coalesce indices values is_coalesced sparse_mask smm to_sparse to_sparse_csr to_sparse_csc", SPARSE),
        **each("int_repr dequantize q_scale q_zero_point", QUANTIZED),
        **each("storage storage_type typed_storage untyped_storage set_ is_set_to", NO_STORAGE),
        **each("layout to_mkldnn", "tensors have one layout, row-major."),
        **each("is_shared share_memory_", "a DataLoader's workers hand over tensors themselves; x.numpy() goes elsewhere."),
        **each("as_subclass __torch_function__", "a function that takes tensors; methods of a class of your own call it."),
        **each("map_ map2_", "x.copy_(f(x, y)) with a function of tensors."),
        "name": "axes have numbers alone; a comment at the end of the line names them, as (B, T, C).",
        "names": "axes have numbers alone; a comment at the end of the line names them, as (B, T, C).",
        "new": "x.new_empty(2, 3), x.new_tensor(data) or x.new_zeros(2, 3): " + OLD,
        "record_stream": ONE_STREAM,
        "volatile": "with pg.no_grad(): " + OLD,
        "_base": "a view shares its cell with what it shows: x.cell is y.cell.",
        "_version": "graphs that were built before a write keep the old value, so nothing is counted.",
    },
    "picograd.nn": {
        **each("DataParallel parallel SyncBatchNorm", ONE_PROCESS),
        **each("qat intrinsic quantized quantizable", QUANTIZED),
        **each("UninitializedParameter UninitializedBuffer", "nn.LazyLinear and the other lazy layers."),
        "CrossMapLRN2d": "nn.LocalResponseNorm: " + OLD,
        "LinearCrossEntropyLoss": "nn.functional.linear_cross_entropy(x, weight, target), in the forward of a module.",
        "NLLLoss2d": "nn.NLLLoss: " + OLD,
    },
    "picograd.nn.Module": {
        "compile": "pg.compile(model), or pg.jit around the whole training step: forward, backward() and optimizer.step().",
        "register_backward_hook": "register_full_backward_hook: the name is deprecated in PyTorch, too.",
        "share_memory": ONE_PROCESS,
        **each("_flat_weights_names _flat_weights _all_weights",
               "module.named_parameters(): weight_ih_l0, weight_hh_l0, bias_ih_l0 and so on."),
    },
    "picograd.nn.modules": {
        **each("register_module_forward_hook register_module_forward_pre_hook register_module_full_backward_hook",
               EACH_MODULE),
        **each("register_module_full_backward_pre_hook register_module_backward_hook", EACH_MODULE),
    },
    "picograd.nn.attention": {
        **each("flex_attention bias", "nn.functional.scaled_dot_product_attention with attn_mask or is_causal."),
        "varlen": "nn.functional.scaled_dot_product_attention of a padded batch, with attn_mask.",
    },
    "picograd.nn.functional": {
        **each("grouped_mm scaled_grouped_mm", "a loop of products, or pg.einsum over a padded batch."),
        "scaled_mm": "(a.float() @ b.float()) * scale, which is one kernel.",
        **each("fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices",
               "the function without _with_indices, with return_indices=True."),
    },
    "picograd.nn.utils": {
        "convert_conv2d_weight_memory_format": ONE_LAYOUT,
        "convert_conv3d_weight_memory_format": ONE_LAYOUT,
        "stateless": "pg.func.functional_call.",
    },
    "picograd.nn.utils.parametrizations": each("Module Tensor", IMPORTED),
    "picograd.optim.swa_utils": each("Any LRScheduler Module Tensor annotations", IMPORTED),
    "picograd.optim": {"SparseAdam": "optim.Adam: gradients are dense."},
    "picograd.utils": {
        **each("_pytree", "pg.jit and pg.vmap take lists, tuples, dicts and dataclasses of tensors as they are."),
        "benchmark": "time.perf_counter around x.realize(); on a GPU pg.cuda.Event.",
        "bottleneck": PROFILER,
        "collect_env": "python -m picograd doctor.",
        "cpp_extension": "docs/accelerator.md adds a device from one Python file.",
        "deterministic": "pg.use_deterministic_algorithms; every run gives the same bits in any case.",
        "flop_counter": "model.summary(shape) counts operations by layer.",
        "hooks": "register_forward_hook, register_full_backward_hook and x.register_hook return handles.",
        "mobile_optimizer": NOT_COMPILED,
        "model_zoo": SAVED,
        "rename_privateuse1_backend": "docs/accelerator.md adds a device from one Python file.",
    },
    "picograd.utils.data": {
        "DistributedSampler": ONE_PROCESS,
        **each("dataloader dataset sampler", "picograd.utils.data has the classes themselves."),
        "datapipes": "utils.data.IterableDataset.",
    },
    "picograd.utils.checkpoint": {
        "CheckpointPolicy": "pg.checkpoint keeps nothing of its function; keep values by computing them outside it.",
        "set_checkpoint_early_stop": "a checkpoint computes again only what the gradients read; there is nothing to set.",
    },
    "picograd.linalg": {
        **each("ldl_factor ldl_factor_ex", "pg.linalg.cholesky, or pg.linalg.lu_factor."),
        "ldl_solve": "pg.cholesky_solve, or pg.linalg.lu_solve.",
    },
    "picograd.distributions": {
        "ExponentialFamily": "distributions.Distribution: each has its own formulas of entropy and divergences.",
    },
    "picograd.autograd": {
        "variable": "pg.Tensor: " + OLD,
        "graph": "x.register_hook; a graph keeps only what its gradients read, and is never used up.",
        "forward_ad": "pg.jvp(function, inputs, tangents), or pg.func.linearize.",
        "profiler": PROFILER,
    },
    "picograd.func": {
        "debug_unwrap": "a function under vmap sees plain tensors of one example.",
        "functionalize": "pg.jit: graphs have no writes in place.",
    },
    "picograd.jit": {
        **each("script trace freeze ScriptModule ignore export unused script_method optimize_for_inference", NOT_COMPILED),
        **each("is_scripting is_tracing annotate", NOT_COMPILED),
        **each("save load", SAVED),
        **each("fork wait", "kernels of one plan use all threads by themselves."),
    },
    "picograd_torch.accelerator": {
        **each("set_stream current_stream", ONE_STREAM),
        **each("Graph graphs", A_PLAN_IS_A_GRAPH),
        **each("memory memory_stats get_memory_info max_memory_reserved", MEMORY),
        **each("reset_accumulated_memory_stats empty_host_cache", MEMORY),
        "device_index": 'with pg.device("cuda"): each process has one GPU.',
        "current_device_idx": "pg.accelerator.current_device_index: " + OLD,
        "set_device_idx": "pg.accelerator.set_device_index: " + OLD,
    },
    "picograd.cuda": {
        **each("Stream ExternalStream StreamContext stream set_stream current_stream default_stream", ONE_STREAM),
        **each("CUDAGraph graph graph_pool_handle make_graphed_callables", A_PLAN_IS_A_GRAPH),
        **each("memory_stats memory_summary memory_snapshot list_gpu_processes", MEMORY),
        **each("seed initial_seed", f"pg.seed and pg.initial_seed: {ONE_GENERATOR}."),
        **each("get_rng_state get_rng_state_all", f"pg.get_rng_state: {ONE_GENERATOR}."),
        **each("set_rng_state set_rng_state_all", f"pg.set_rng_state: {ONE_GENERATOR}."),
        **each("ipc_collect comm can_device_access_peer", ONE_GPU),
        **each("utilization temperature power_draw clock_rate memory_usage", SENSORS),
        **each("Any Callable", IMPORTED),
        "current_blas_handle": "docs/devices.md says how cuBLASLt is used; nothing is called by hand.",
        "device": 'with pg.device("cuda"): each process has one GPU.',
        "device_of": 'with pg.device("cuda"): each process has one GPU.',
        **each("init is_initialized", "a device starts when something is computed on it for the first time."),
        "max_memory_reserved": MEMORY,
        "get_arch_list": "pg.cuda.get_device_capability: kernels are compiled for the GPU that is there.",
        "nvtx": "pg.cuda.kernel_times, or Nsight Systems, which shows kernels by the names in PICOGRAD_SHOW=source.",
        "reset_max_memory_allocated": "pg.cuda.reset_peak_memory_stats.",
        "set_per_process_memory_fraction": "memory is taken as it is needed; pg.cuda.empty_cache gives back what is free.",
    },
}  # fmt: skip


INSTEAD_OF_ARGUMENT = {
    "pin_memory": "leave it out; copies to a GPU go by way of pinned memory by themselves.",
    "layout": ONE_LAYOUT,
    "memory_format": ONE_LAYOUT,
    "names": "leave it out; axes have numbers alone.",
    "ddof": "x.std() divides by N - 1, as PyTorch's, x.std(correction=0) by N; np.std(x.numpy()) is NumPy's.",
}
