"""Every public function that takes or makes tensors has a row in the table of operations, or a reason here why not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import reduce
from types import ModuleType
from typing import Any

import pytest

import picograd as pg
from picograd import Tensor
from picograd.public import plain
from tests.operations.table import all_operations
from tools.api import INTERNAL

MODULES = ("", "nn.functional", "special", "signal.windows", "linalg", "fft")
# reason: names, as users write them after `pg.`; a method stands for the function of the same name, too
WITHOUT = {
    "random numbers, which are not PyTorch's: means, bounds and seeds in tests/tensor/test_random.py, test_draws.py": """
        bernoulli binomial multinomial normal poisson rand randint randn randperm rand_like randint_like randn_like
        Tensor.bernoulli Tensor.multinomial Tensor.rand Tensor.randint
        Tensor.randn Tensor.randperm Tensor.rand_like Tensor.randint_like
        Tensor.randn_like Tensor.bernoulli_ Tensor.cauchy_ Tensor.exponential_ Tensor.geometric_ Tensor.log_normal_
        Tensor.normal_ Tensor.random_ Tensor.uniform_
    """,
    "random numbers: which are kept, and by which factor, in tests/nn/test_norm_layers.py and test_functional.py": """
        nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout1d nn.functional.dropout2d
        nn.functional.dropout3d nn.functional.feature_alpha_dropout nn.functional.gumbel_softmax
        dropout alpha_dropout feature_dropout rrelu
    """,
    "values that nobody set": """
        empty empty_like Tensor.empty Tensor.empty_like Tensor.new_empty
    """,
    "functions of functions: tests/transforms, tests/control": """
        accumulate checkpoint compile cond profile verify while_loop
        functional_call gradcheck gradgradcheck hessian hvp jacfwd jit jvp linearize outline scan
        value_and_grad vhp draw explain count_ops
    """,
    "modes, settings, memory, files: tests/tensor/test_autograd.py, test_memory.py, tests/nn/test_state.py": """
        enable_grad inference_mode no_grad set_grad_enabled is_grad_enabled is_autocast_enabled initial_seed manual_seed
        get_rng_state set_rng_state get_float32_matmul_precision set_float32_matmul_precision
        seed get_default_dtype set_default_dtype get_num_threads set_num_threads set_printoptions
        use_deterministic_algorithms are_deterministic_algorithms_enabled
        finfo iinfo max_memory_allocated memory_allocated reset_peak_memory_stats load save
        realize get_default_device set_default_device
    """,
    "devices, hosts and other libraries: tests/tensor/test_interop.py, test_dlpack.py": """
        Tensor.cpu Tensor.cuda Tensor.device Tensor.is_cpu Tensor.is_cuda Tensor.item Tensor.numpy Tensor.realize
        Tensor.to_device Tensor.tolist from_dlpack Tensor.from_dlpack to_dlpack Tensor.data_ptr Tensor.is_contiguous
        Tensor.is_pinned Tensor.pin_memory Tensor.storage_offset Tensor.stride Tensor.type
    """,
    "what a tensor is, and how gradients are collected: tests/tensor/test_autograd.py": """
        Tensor.backward Tensor.is_leaf Tensor.register_hook
        Tensor.register_post_accumulate_grad_hook Tensor.requires_grad Tensor.requires_grad_ Tensor.retain_grad
        Tensor.dtype Tensor.grad_fn Tensor.itemsize Tensor.nbytes Tensor.ndim Tensor.retains_grad Tensor.shape
    """,
    "makes a function of a user's source: tests/kernels": "kernel",
    "stores a value, whatever function it comes from: tests/tensor/test_inplace*.py, test_cell.py": """
        Tensor.assign Tensor.copy_ Tensor.fill_ Tensor.zero_
    """,
    "not PyTorch's: tests/tensor/test_elementwise.py, tests/ir, tests/fft": """
        Tensor.bitcast Tensor.cast Tensor.choose fft.pairs
    """,
    "old constructors by dtype: tests/tensor/test_creation.py": """
        BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor
    """,
    "strides and sizes, of storage: tests/tensor/test_resized.py": """
        as_strided resize_as_ Tensor.as_strided Tensor.resize_as_ Tensor.resize_ Tensor.sum_to_size Tensor.apply_
        Tensor.is_inference Tensor.to_dense Tensor.is_meta Tensor.is_mkldnn Tensor.is_quantized Tensor.is_sparse
        Tensor.is_mps Tensor.is_nested Tensor.is_xpu
    """,
    "in another order, or under an old name: tests/nn/test_ordered.py, test_multihead.py": """
        batch_norm embedding nn.functional.max_pool1d_with_indices nn.functional.max_pool2d_with_indices
        nn.functional.max_pool3d_with_indices nn.functional.adaptive_max_pool1d_with_indices
        nn.functional.adaptive_max_pool2d_with_indices nn.functional.adaptive_max_pool3d_with_indices
        nn.functional.multi_head_attention_forward
    """,
    "PyTorch's tensors are on the host: tests/test_cuda.py": """
        Tensor.get_device
    """,
    "slots that the families of operations share": """
        Tensor.cell Tensor.op Tensor.steps
    """,
}


def found(name: str) -> Any:
    """Returns what a dotted name stands for; of a method and of a published function the one that does the work."""
    return plain(reduce(getattr, name.split("."), pg))


def public_names() -> Iterator[str]:
    """Yields the public functions, methods and properties that may take or make tensors, as after `pg.`."""
    for path in MODULES:
        module: ModuleType = reduce(getattr, path.split("."), pg) if path else pg
        for name in getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]:
            value = getattr(module, name)
            is_ours = getattr(value, "__module__", "").startswith("picograd") or isinstance(value, type(pg.cat))
            if callable(value) and not inspect.isclass(value) and is_ours:
                yield f"{path}.{name}".lstrip(".")
    yield from (f"Tensor.{name}" for name in dir(Tensor) if not name.startswith("_") and name not in INTERNAL)


def has_row(name: str, rows: set[str], held: set[int]) -> bool:
    """True where the table calls this name, or the same function under another one."""
    return name in rows or f"Tensor.{name}" in rows or name.removeprefix("Tensor.") in rows or id(found(name)) in held


def without_rows() -> list[str]:
    """Returns the public names the table does not call, but for forms in place of what it calls."""
    rows = {name for row in all_operations() for name in (row.name, *row.also)}
    free = {name.removeprefix("Tensor.") for name in rows}  # a row of a method is about the function of its name, too
    held = {id(found(name)) for name in rows | {name for name in free if hasattr(pg, name)}}
    absent = [name for name in public_names() if not has_row(name, rows, held)]
    return [name for name in absent if not (is_in_place(name) and has_row(name[:-1], rows, held))]


def is_in_place(name: str) -> bool:
    """True for exp_ beside exp: test_in_place.py."""
    return name.endswith("_") and any(hasattr(place, name.split(".")[-1][:-1]) for place in (Tensor, pg.nn.functional))


REASONS = {name: reason for reason, names in WITHOUT.items() for name in names.split()}


@pytest.mark.req("C3")
def test_every_public_function_has_a_row_or_a_reason() -> None:
    assert not [name for name in without_rows() if name not in REASONS and f"Tensor.{name}" not in REASONS]


def test_no_reason_is_given_for_what_has_a_row_or_is_not_there() -> None:
    assert not set(REASONS) - set(without_rows())


def test_the_table_calls_names_that_are_public() -> None:
    known = set(public_names())
    special = {"func.grad_and_value", "Tensor.__getitem__", "Tensor.__setitem__"}
    called = {name for row in all_operations() for name in (row.name, *row.also)} - special
    assert not [name for name in called if name not in known]
