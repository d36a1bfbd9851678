"""Private names of PyTorch's that libraries import: each does what PyTorch's does.

In:    modules of picograd
Out:   a table: module of torch -> its names
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Union

import picograd
from picograd.tensor.tensor import Tensor

__all__ = ["names"]

# The functions of torch.functional: torch has them, too.
FUNCTIONAL = """
    atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum
    meshgrid norm split tensordot unique unique_consecutive unravel_index
"""


T = TypeVar("T")
several: Any = tuple  # subscripted with a computed number of types


def _common_types() -> dict[str, Any]:
    """Returns the annotations of torch.nn.common_types."""
    found: dict[str, Any] = {}
    kinds: Any = ("scalar_or_tuple", T), ("size", int), ("ratio", float)
    for name, kind in kinds:
        found[f"_{name}_any_t"] = Union[kind, several[kind, ...]]  # noqa: UP007
        found |= {f"_{name}_{axes}_t": Union[kind, several[(kind,) * axes]] for axes in range(1, 7)}  # noqa: UP007
    found["_size_any_opt_t"] = Union[int, None, several[int | None, ...]]  # noqa: UP007
    found |= {f"_size_{axes}_opt_t": Union[int, None, several[(int | None,) * axes]] for axes in (2, 3)}  # noqa: UP007
    found["_tensor_list_t"] = Union[Tensor, several[Tensor, ...]]  # noqa: UP007
    found["_maybe_indices_t"] = Union[Tensor, several[Tensor, Tensor]]  # noqa: UP007
    return found


def flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the elements of all tensors as one vector: torch._utils._flatten_dense_tensors.

    >>> flatten_dense_tensors([Tensor([[1.0, 2.0]]), Tensor(3.0)])
    Tensor([1., 2., 3.])
    """
    return Tensor.cat([tensor.flatten() for tensor in tensors])


def unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Returns the parts of a vector in the shapes of the tensors: torch._utils._unflatten_dense_tensors.

    >>> unflatten_dense_tensors(Tensor([1.0, 2.0, 3.0]), [Tensor([[0.0, 0.0]]), Tensor(0.0)])
    (Tensor([[1., 2.]]), Tensor(3.))
    """
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.reshape(tensor.shape) for part, tensor in zip(parts, tensors))


def names(unchanged: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Returns the names of each module; `unchanged` is a decorator without effect."""
    return {
        "torch.functional": {name: getattr(picograd, name) for name in FUNCTIONAL.split() if hasattr(picograd, name)},
        "torch._utils": {
            "_flatten_dense_tensors": flatten_dense_tensors,
            "_unflatten_dense_tensors": unflatten_dense_tensors,
        },
        "torch.utils.data._utils": {},
        "torch.utils.data._utils.collate": {
            "default_collate": picograd.utils.data.default_collate,
            "np_str_obj_array_pattern": re.compile("[SaUO]"),
        },
        "torch.nn.common_types": _common_types(),
        "torch.serialization": {
            "load": picograd.load,
            "save": picograd.save,
            "add_safe_globals": unchanged,
            "DEFAULT_PROTOCOL": pickle.DEFAULT_PROTOCOL,
            "MAP_LOCATION": Any,
        },
    }
