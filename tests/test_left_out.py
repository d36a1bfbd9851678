"""Libraries that name what picograd leaves out are imported; the names refuse when they are used."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError
from picograd_torch import foreach, library, pytree
from tests.helpers import same_value

ROOT = Path(__file__).resolve().parents[1]
NAMED = """
from typing import Final, Optional
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import Optimizer, required
from torch.optim.adamw import AdamW
from torch.utils._pytree import tree_map
from torch.utils.hooks import RemovableHandle
import torch._dynamo

BYTES = {torch.float32: 4, torch.complex64: 8, torch.float8_e4m3fnuz: 1}

def annotated(x: Optional[torch.dtype], y: torch.dtype | None, graph: torch.cuda.CUDAGraph | None,
              z: torch.FloatTensor | None, op=dist.ReduceOp.SUM) -> None | torch.LongTensor: ...

@torch.jit.script
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@torch.jit.ignore(drop=True)
def ignored(x): return x

@torch.compiler.disable(recursive=False)
def not_compiled(x):
    return x + 1

class Net(torch.nn.Module):
    size: torch.jit.Final[int] = 1

class Lion(Optimizer): ...

x = torch.ones(2)
assert doubled(x).tolist() == [2, 2] and not_compiled(ignored(x)).tolist() == [2, 2]
assert not (torch.jit.is_scripting() or torch.jit.is_tracing())
assert not (torch.compiler.is_compiling() or torch._dynamo.is_compiling())
assert not (isinstance(x, DTensor) or dist.is_available() or torch.xpu.is_available())
assert isinstance(x.dtype, torch.dtype) and x.dtype != torch.complex64 and issubclass(AdamW, Optimizer)
assert torch.version.cuda is None and torch.__version__ == torch.version.__version__ >= "2."
assert tree_map(lambda t: t + 1, [x])[0].tolist() == [2, 2]
assert torch._foreach_add([x], 2.0)[0].tolist() == [3, 3]
assert not hasattr(torch.nn.functional, "grouped_mm")
assert not isinstance(x.shape[0], (torch.SymInt, torch.SymFloat)) and required is not None
torch._assert(x.sum() == 2, "the sum")
assert torch.full_like(x, 3.0, layout=torch.strided).tolist() == [3, 3]
try:
    torch.zeros(2, layout=torch.sparse_coo)
except TypeError as error:
    print(str(error).splitlines()[-1])
torch._C._log_api_usage_once("a library")
torch.serialization.add_safe_globals([set])
assert torch.hub.get_dir().endswith("hub") and torch._C._get_tracing_state() in (None, False)
for call in (lambda: dist.all_reduce(x), lambda: DTensor(x), lambda: torch.jit.ScriptModule(),
             lambda: torch.cuda.CUDAGraph(), lambda: torch.sparse.mm(x, x), lambda: torch.sparse_coo_tensor(x, x)):
    try:
        call()
    except AttributeError as error:
        print(str(error).splitlines()[-1])
"""


def test_names_that_are_left_out_can_be_named_and_refuse_calls(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(NAMED)
    command = [sys.executable, "-W", "error", "-m", "picograd_torch", str(program)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not made.returncode, made.stderr
    hints = made.stdout.splitlines()
    assert len(hints) == 7 and all(line.startswith("  hint: ") for line in hints)


INTERNAL = """
import torch
import torch.nn as nn
from torch._C import Value
from torch._C._functorch import get_unwrapped
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributions.transforms import _InverseTransform, _clipped_sigmoid
from torch.distributions.utils import _standard_normal, _sum_rightmost
from torch.functional import einsum
from torch.futures import Future
from torch.nn.common_types import _size_2_t, _ratio_3_t, _size_any_t
from torch.serialization import DEFAULT_PROTOCOL, MAP_LOCATION
from torch.utils._pytree import PyTree, _namedtuple_flatten, _namedtuple_unflatten
from torch.utils.data._utils.collate import default_collate, np_str_obj_array_pattern
from torch.utils.data.dataloader import _collate_fn_t

@torch.fx.wrap
def strides(kernel: _size_2_t, ratio: _ratio_3_t) -> PyTree: ...

parts = [torch.ones(2, 3), torch.zeros(1), torch.arange(4.0)]
flat = _flatten_dense_tensors(parts)
back = _unflatten_dense_tensors(flat, parts)
assert flat.shape == (11,) and all(torch.equal(a, b) for a, b in zip(parts, back))
assert _sum_rightmost(torch.ones(2, 3, 4), 2).tolist() == [12.0, 12.0] and _sum_rightmost(flat, 0) is flat
assert _standard_normal((2, 3), torch.float64, "cpu").dtype is torch.float64
assert isinstance(torch.distributions.ExpTransform().inv, _InverseTransform)
assert 0.0 < _clipped_sigmoid(torch.tensor(-200.0)).item() and _clipped_sigmoid(torch.tensor(200.0)).item() < 1.0
assert torch.functional.einsum("i,i", torch.ones(3), torch.ones(3)).item() == 3.0 and not torch._C._is_tracing()
assert default_collate([torch.ones(2), torch.zeros(2)]).shape == (2, 2) and np_str_obj_array_pattern.search("<U3")
print("done")
"""


def test_private_names_that_libraries_import_do_what_they_do_in_pytorch(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERNAL)
    command = [sys.executable, "-W", "error", "-m", "picograd_torch", str(program)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert made.stdout == "done\n", made.stderr


def test_a_dtype_is_of_the_type_of_dtypes() -> None:
    assert isinstance(pg.float32, pg.dtype) and isinstance(Tensor([1]).dtype, pg.dtype)
    assert not isinstance("float32", pg.dtype)
    assert (pg.dtype | None) == (None | pg.dtype) and isinstance(pg.int8, pg.dtype | None)
    assert (pg.FloatTensor | None) == (None | pg.FloatTensor) == (Tensor | None)


Point = namedtuple("Point", "x y")
TREES: list[Any] = [
    1, [1, (2, 3)], {"b": 1, "a": [2, {}]}, OrderedDict(z=(1,), a=2), Point(1, [2]), [None, ()], deque([1, [2]], 3),
    defaultdict(list, b=1, a=[2]),
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_trees_are_taken_apart_and_put_together(tree: Any) -> None:
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == _pytree.tree_flatten(tree)[0] and spec.num_leaves == len(leaves)
    assert pytree.tree_unflatten(leaves, spec) == tree and type(pytree.tree_unflatten(leaves, spec)) is type(tree)
    assert pytree.tree_map(lambda leaf: (leaf, 0), tree) == _pytree.tree_map(lambda leaf: (leaf, 0), tree)


PAIRS: list[tuple[Any, Any]] = [
    ({"a": 1, "b": [2]}, {"b": [20], "a": 10}), ([1, (2,)], [[10, 30], (20,)]), ({"a": 1, "b": 2}, OrderedDict(b=20, a=10)),
    (defaultdict(int, a=1, b=2), {"b": 20, "a": 10}), (1, [10]), (Point(1, 2), Point(10, [20])),
]  # fmt: skip


@pytest.mark.parametrize("tree, other", PAIRS, ids=str)
def test_leaves_of_several_trees_are_of_one_place(tree: Any, other: Any) -> None:
    assert pytree.tree_map(lambda *both: both, tree, other) == _pytree.tree_map(lambda *both: both, tree, other)


@pytest.mark.parametrize(
    "tree, other, fact",
    [
        ([1, 2], (10, 20), "the first tree has a list where another has tuple"),
        ([1, (2,)], [10, 20], "the first tree has a tuple where another has int"),
        ([1, 2], [10], "the first tree has 2 parts where another has 1"),
        (Point(1, 2), namedtuple("Other", "a b")(1, 2), "a node of <class '.*Point'> where another has <class '.*Other'>"),
        ({"a": 1}, {"b": 1}, r"the first tree has a dict of keys \['a'\] where another has \['b'\]"),
    ],
    ids=str,
)
def test_trees_of_other_forms_are_refused(tree: Any, other: Any, fact: str) -> None:
    with pytest.raises(ArgumentError, match=fact):
        pytree.tree_map(lambda *both: both, tree, other)
    with pytest.raises(ValueError):  # noqa: PT011
        _pytree.tree_map(lambda *both: both, tree, other)


def test_dicts_of_other_types_are_joined_as_they_are_registered() -> None:
    class Sorted(dict[str, Any]):
        """A dict whose order does not count."""

    for trees in (pytree, _pytree):
        trees.register_pytree_node(
            Sorted, lambda node: ([node[key] for key in sorted(node)], sorted(node)),
            lambda children, keys: Sorted(zip(keys, children)),
        )  # fmt: skip
        made = trees.tree_map(lambda *both: both, Sorted(b=2, a=1), Sorted(a=10, b=20))
        assert made == {"a": (1, 10), "b": (2, 20)} and type(made) is Sorted
        with pytest.raises(ValueError):  # noqa: PT011
            trees.tree_map(lambda *both: both, Sorted(a=1), Sorted(b=1))


def test_trees_of_other_types() -> None:
    assert pytree.tree_leaves([pg.zeros(2, 3).shape]) == [2, 3]
    assert pytree.tree_map_only(lambda leaf: leaf == 1, lambda n: -n, [1, (2,)]) == [-1, (2,)]
    pytree.register_pytree_node(range, lambda node: ([*node], None), lambda children, _: [*children])
    assert pytree.tree_map_only(int, lambda n: -n, [range(3), "a"]) == [[0, -1, -2], "a"]
    assert pytree.tree_leaves([1, [2]], is_leaf=lambda node: node == [2]) == [1, [2]]
    assert pytree.tree_any(lambda n: n == 2, (1, [2])) and not pytree.tree_any(lambda n: n == 3, (1, [2]))
    with pytest.raises(ArgumentError, match="tree_unflatten: a tree of 1 leaves was given 2"):
        pytree.tree_unflatten([1, 2], pytree.tree_flatten(1)[1])


OPERANDS: dict[str, list[Any]] = {
    "add": [2.0], "sub": [2.0], "mul": [2.0], "div": [2.0], "pow": [2.0], "maximum": [0.5], "minimum": [0.5],
    "clamp_max": [0.5], "clamp_min": [0.5], "lerp": [[2.0, 1.0], 0.3], "addcmul": [[1.0, 2.0], [3.0, 4.0], -0.5],
    "addcdiv": [[1.0, 2.0], [3.0, 4.0], 0.5],
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in foreach.NAMES if name not in ("_foreach_copy_", "_foreach_zero_")])
def test_each_of_several_tensors_goes_through_an_operation(name: str) -> None:
    arrays = [np.array([0.3, 0.9], np.float32), np.array([[0.7]], np.float32)]
    results = []
    for lib, function in ((pg, foreach.NAMES[name]), (torch, getattr(torch, name))):
        given = [lib.tensor(array) for array in arrays]
        operands = OPERANDS.get(name.removeprefix("_foreach_").rstrip("_"), [])
        as_tensors = [[lib.full_like(t, n) for t, n in zip(given, op)] if isinstance(op, list) else op for op in operands]
        made = function(given, *as_tensors)
        results.append([*given, *(made or ())])
    same_value(*results)


def test_several_tensors_are_copied_and_zeroed() -> None:
    a, b = pg.ones(2), pg.ones(3)
    foreach.foreach_copy_([a, b], [pg.tensor([1.0, 2.0]), pg.zeros(3)])
    assert a.tolist() == [1, 2] and b.tolist() == [0, 0, 0]
    assert foreach.foreach_zero_([a])[0] is a and a.tolist() == [0, 0]
    with pytest.raises(pg.GradientError, match="zero_: a leaf"):
        foreach.foreach_zero_([pg.ones(2, requires_grad=True)])


def test_factors_of_several_tensors_may_be_one_tensor_and_bounds_of_integers_floats() -> None:
    for lib, names in ((pg, foreach.NAMES), (torch, vars(torch))):
        given = [lib.ones(2), lib.ones(2)]
        made = names["_foreach_addcmul"](given, given, given, lib.tensor([2.0, 3.0]))
        assert [each.tolist() for each in made] == [[3, 3], [4, 4]]
        assert names["_foreach_clamp_max"]([lib.tensor([3])], 1.5)[0].tolist() == [1.5]


def test_an_operator_of_ones_own_has_the_gradient_that_is_registered() -> None:
    @library.custom_op("mine::clipped", mutates_args=())
    def clipped(x: Tensor, bound: float = 1.0) -> Tensor:
        return x.clamp(-bound, bound)

    x = Tensor([2.0, 0.5], requires_grad=True)
    library.ops.mine.clipped(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 1]
    library.register_autograd("mine::clipped", lambda ctx, grad: (grad * 3, None))
    clipped.register_fake(lambda x, bound=1.0: x)
    x.grad = None
    clipped(x, bound=1.0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 3]
    with pytest.raises(ArgumentError, match="there is no operator 'mine::other'; operators: .*mine::clipped"):
        library.register_autograd("mine::other", lambda ctx, grad: grad)
    with pytest.raises(AttributeError, match=r"'picograd\.ops' has no attribute 'aten'"):
        library.ops.aten.add(x, x)
    with pytest.raises(ArgumentError, match="the name of an operator is namespace::name, got 'clipped'"):
        library.custom_op("clipped", lambda x: x)


def test_an_operator_has_a_function_for_each_kind_of_device() -> None:
    @library.custom_op("mine::tripled", mutates_args=(), device_types="cuda")
    def tripled(x: Tensor, times: int = 3) -> Tensor:
        return x * 0

    with pytest.raises(ArgumentError, match="the operator has functions for cuda, and none for tensors on cpu"):
        tripled(pg.ones(1))
    tripled.register_kernel("cpu")(lambda x, times=3: x * times)
    assert tripled(pg.ones(1), times=4).tolist() == [4]
    tripled.register_autograd(lambda ctx, grad: (grad * 5, None))
    x = pg.ones(1, requires_grad=True)
    tripled(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5]


def test_tensors_are_grouped_by_device_and_dtype() -> None:
    given = [[pg.ones(1), pg.ones(2, dtype=pg.float64), pg.zeros(3)], [pg.tensor(1), None, pg.tensor(3)]]
    found = foreach.group_by_kind(given, with_indices=True)
    lists, places = found[given[0][0].device, pg.float32]
    assert places == [0, 2] and lists[0][1] is given[0][2] and lists[1][0] is given[1][0]
    assert found[given[0][0].device, pg.float64] == ([[given[0][1]], [None]], [1])
