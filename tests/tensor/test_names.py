"""No name of PyTorch is missing silently: each function, method and special function is here, or a reason why not is.

`python -m tests.tensor.test_names` prints what is missing and stands under no reason but "not yet".
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.nn import functional as F
from tests.helpers import same_value

# reason: names and patterns
NEVER = {
    "complex numbers": """
        adjoint complex conj_physical_ imag istft polar stft view_as_* cdouble cfloat chalf H mH
    """,
    "sparse tensors": """
        *sparse* *coalesce* *crow_indices* *ccol_indices* *col_indices* *row_indices* indices indices_copy values
        values_copy smm spmm sspaddmm hspmm saddmm dsmm hsmm dense_dim to_dense
    """,
    "quantized tensors": """
        *quantize* quantized_* q_* qscheme int_repr fbgemm_* choose_qparams_* fused_moving_avg_obs_fake_quant
        fake_quant* *grouped_mm scaled_mm
    """,
    "nested tensors and names of axes": """
        is_nested to_padded_tensor name
    """,
    "strides and storage, which a lazy tensor does not have": """
        *_copy as_strided* *strided storage storage_type typed_storage untyped_storage const_data_ptr set_ is_set_to
        *share* resize* dim_order layout from_file frombuffer empty_permuted record_stream new slice_inverse
    """,
    "other machines and other back ends of PyTorch": """
        cudnn_* *mkldnn* miopen_* *vulkan* *xla* *xpu* is_ipu ipu *mtia is_mps is_maia is_meta is_distributed
        get_device_module hash_tensor thread_safe_generator compiled_with_* to_mkldnn
    """,
    "TorchScript, tracing and what PyTorch keeps for itself": """
        parse_* import_ir* unify_type_list merge_type_* fork wait sym_* classproperty compile cond while_loop
        typename get_file_path prepare_multi* profiler_* init_num_threads as_subclass module_load reinforce
        *has_torch_function* handle_torch_function boolean_dispatch assert_int_or_pair Optional is_inference map_
        map2_ apply_ output_nr volatile grad_dtype is_storage
    """,
    "global state, which picograd does not have": """
        set_* get_* is_anomaly_* is_autocast_* autocast_* clear_autocast_cache *deterministic* is_warn_*
        is_inference_mode_enabled
    """,
    "forms behind the public ones, and old ones": """
        native_* unsafe_* batch_norm_* *_with_indices norm_except_dim embedding_renorm_ convolution conv_tbc
        nonzero_static frobenius_norm nuclear_norm matrix_rank range geqrf
        ormqr orgqr lobpcg svd_lowrank pca_lowrank sum_to_size constant_pad_nd affine_grid_generator
        grid_sampler* symeig eig gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
        multi_head_attention_forward index
    """,
    "gone from PyTorch, where they raise an error": """
        lstsq solve
    """,
}
# Of torch.*, where torch.nn.functional has them too: picograd.nn.functional is their one place.
OF_FUNCTIONAL = """
    adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear
    binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss dropout
    embedding embedding_bag feature_alpha_dropout group_norm hinge_embedding_loss
    instance_norm kl_div layer_norm margin_ranking_loss max_pool1d max_pool2d max_pool3d pairwise_distance pdist
    pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rms_norm rrelu selu threshold
    triplet_margin_loss
"""
NOT_YET = {
    "torch": """
        alpha_dropout_ dropout_ feature_alpha_dropout_ feature_dropout_ rrelu_
    """,
    "Tensor": "",
    "functional": "",
    "special": "",
    "signal.windows": "",
}
SURFACES: dict[str, tuple[Any, Any]] = {
    "torch": (torch, pg),
    "Tensor": (torch.Tensor, Tensor),
    "functional": (torch.nn.functional, F),
    "special": (torch.special, pg.special),
    "signal.windows": (torch.signal.windows, pg.signal.windows),
}


def names_of(surface: Any) -> list[str]:
    """Returns the public functions, or the public methods and properties."""
    public = [name for name in dir(surface) if not name.startswith("_")]
    if isinstance(surface, type):
        return public
    return [name for name in public if callable(found := getattr(surface, name)) and not isinstance(found, type)]


def missing(kind: str) -> list[str]:
    """Returns PyTorch's names that are not here, but those that never will be."""
    theirs, ours = SURFACES[kind]
    never = [pattern for patterns in NEVER.values() for pattern in patterns.split()]
    kept = set(NOT_YET[kind].split()) | ({*OF_FUNCTIONAL.split()} if kind == "torch" else set())
    absent = [name for name in names_of(theirs) if not hasattr(ours, name)]
    return [name for name in absent if name in kept or not any(fnmatchcase(name, pattern) for pattern in never)]


@pytest.mark.req("C3")
@pytest.mark.parametrize("kind", SURFACES)
def test_no_name_of_pytorch_is_missing_without_a_reason(kind: str) -> None:
    known = set(NOT_YET[kind].split()) | ({*OF_FUNCTIONAL.split()} if kind == "torch" else set())
    assert not set(missing(kind)) - known


@pytest.mark.parametrize("kind", SURFACES)
def test_no_name_that_is_here_stands_among_the_missing(kind: str) -> None:
    assert not [name for name in NOT_YET[kind].split() if hasattr(SURFACES[kind][1], name)]
    assert not [name for name in OF_FUNCTIONAL.split() if not hasattr(F, name)]


@pytest.mark.req("C3")
def test_a_method_that_pytorch_has_as_a_function_is_one_here_too() -> None:
    methods = [name for name in names_of(torch) if hasattr(Tensor, name)]
    assert len(methods) > 300
    assert [name for name in methods if not hasattr(pg, name)] == ["is_inference"]  # which is never True


# ---- a number may come first ----
NUMBER_FIRST: dict[str, tuple[Any, ...]] = {
    "add": (2.5, [1, 2]),
    "sub": (2, [1.5, 4.0]),
    "mul": (True, [3, 4]),
    "div": (1, [2, 4]),
    "floor_divide": (-7, [2, 3]),
    "subtract": (300, [1, 2]),
    "multiply": (2.5, [1.0, 2.0]),
    "divide": (2.0, [4, 8]),
    "true_divide": (7, [2.0, 3.0]),
    "pow": (2.5, [1.0, 2.0]),
    "remainder": (7, [2, 4]),
    "float_power": (2, [1, 3]),
    "xlogy": (2.0, [0.5, 1.0]),
    "bitwise_and": (6, [3, 5]),
    "bitwise_or": (6, [3, 5]),
    "bitwise_xor": (6, [3, 5]),
    "bitwise_left_shift": (3, [1, 2]),
    "bitwise_right_shift": (-9, [1, 2]),
}


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", NUMBER_FIRST)
def test_a_number_may_come_first(name: str, device: str) -> None:
    number, values = NUMBER_FIRST[name]
    ours, theirs = getattr(pg, name), getattr(torch, name)
    same_value(ours(number, Tensor(values)), theirs(number, torch.tensor(values)))
    same_value(ours(Tensor(values), Tensor(values)), theirs(torch.tensor(values), torch.tensor(values)))
    with pytest.raises(pg.DTypeError, match="one operand must be a tensor"):
        ours(number, number)


@pytest.mark.req("C3")
def test_the_number_that_comes_first_takes_the_dtype_and_the_options_of_a_number() -> None:
    half = np.array([1.5, 2.5], np.float16)
    same_value(pg.mul(input=2, other=Tensor(half)), torch.mul(input=2, other=torch.tensor(half)))
    same_value(pg.mul(2.3, Tensor(half)), torch.mul(2.3, torch.tensor(half)))
    same_value(pg.mul(2.3, Tensor(half)[0]), torch.mul(2.3, torch.tensor(half)[0]))
    same_value(pg.add(300, Tensor([1], dtype=pg.uint8)), torch.add(300, torch.tensor([1], dtype=torch.uint8)))
    same_value(pg.add(2, Tensor([1.0, 2.0]), alpha=3), torch.add(2, torch.tensor([1.0, 2.0]), alpha=3))
    same_value(pg.div(7, Tensor([2, -2]), rounding_mode="trunc"), torch.tensor([3, -3]))
    x = Tensor([1.0, 2.0], requires_grad=True)
    pg.sub(3.0, x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [-1.0, -1.0]


@pytest.mark.req("C3")
def test_where_takes_numbers_and_the_condition_alone() -> None:
    c = [[True, False], [False, True]]
    for x, y in ((1, 2), (1.5, 2), (Tensor([3, 4]), 0.5), (1, Tensor([3.0, 4.0]))):
        theirs = [torch.tensor(v.numpy()) if isinstance(v, Tensor) else v for v in (x, y)]
        same_value(pg.where(Tensor(c), x, y), torch.where(torch.tensor(c), *theirs))
    same_value(pg.where(Tensor(c)), torch.where(torch.tensor(c)))
    with pytest.raises(pg.ArgumentError) as caught:
        pg.where(Tensor(c), 1)
    assert caught.value.fact == "where: give both input and other, or neither."


# ---- dtypes ----
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.req("C9")
@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_is_pytorchs(a: str, b: str) -> None:
    mine, theirs = (pg.dtypes.dtype_named(a), pg.dtypes.dtype_named(b)), (getattr(torch, a), getattr(torch, b))
    assert str(torch.promote_types(*theirs)) == f"torch.{pg.promote_types(*mine)}"
    assert torch.can_cast(*theirs) == pg.can_cast(*mine)
    for shapes in (((2,), ()), ((), (2,)), ((), ())):
        ours = [Tensor.ones(shape, dtype=dtype) for shape, dtype in zip(shapes, mine)]
        reference = [torch.ones(shape, dtype=dtype) for shape, dtype in zip(shapes, theirs)]
        assert str(torch.result_type(*reference)) == f"torch.{pg.result_type(*ours)}"
    for number in (True, 2, 2.5):
        assert str(torch.result_type(torch.ones(2, dtype=theirs[0]), number)) == f"torch.{pg.result_type(ours[0], number)}"


@pytest.mark.req("C9")
def test_limits_are_pytorchs() -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        mine, theirs = pg.finfo(pg.dtypes.dtype_named(name)), torch.finfo(getattr(torch, name))
        for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "dtype"):
            assert getattr(mine, field) == getattr(theirs, field)
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        mine, theirs = pg.iinfo(pg.dtypes.dtype_named(name)), torch.iinfo(getattr(torch, name))
        assert (mine.bits, mine.max, mine.min, mine.dtype) == (theirs.bits, theirs.max, theirs.min, theirs.dtype)
    with pytest.raises(pg.DTypeError) as caught:
        pg.finfo(pg.int32)
    assert caught.value.fact == "finfo: needs a float dtype, got int32."


if __name__ == "__main__":
    for kind in SURFACES:
        print(f"{kind}:", *missing(kind))
