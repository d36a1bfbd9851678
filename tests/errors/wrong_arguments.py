"""Calls of every public function that are right but for one argument: what test_wrong_arguments.py makes of them.

A call that is right comes from the table of operations; of what has no row there, from `CALLS`, or from annotations.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.public import plain
from tests.operations.table import Sample, all_operations, sample, with_arrays
from tools.api import INTERNAL, public_values

MODULES = (
    "", "nn.functional", "nn.init", "linalg", "fft", "special", "signal.windows", "nn", "optim",
    "optim.lr_scheduler", "nn.utils",
    "nn.utils.parametrizations", "nn.utils.parametrize", "nn.utils.rnn", "optim.swa_utils", "autograd",
    "autograd.functional", "utils.checkpoint", "utils.data", "amp", "distributions", "nn.utils.prune", "random",
)  # fmt: skip


class Call(NamedTuple):
    """A function as users name it, with what makes arguments that are right."""

    name: str
    function: Callable[..., Any]
    make: Callable[[], Sample]

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Returns new ones, arrays as tensors, float64 as float32."""
        made = self.make()
        args: list[Any] = with_arrays(list(made.args), tensor)
        kwargs: dict[str, Any] = with_arrays(dict(made.kwargs), tensor)
        return args, kwargs


# Each makes a new one for every call: what is stored in place is not there the next time.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "1.5": lambda: 1.5,
    "NaN": lambda: float("nan"),
    "str": lambda: "x",
    "object": object,
    "list": lambda: [1, 2],
    "list of objects": lambda: [object()],
    "zero": lambda: 0,
    "negative": lambda: -9,
    "infinity": lambda: float("inf"),
    "True": lambda: True,
    "int of NumPy": lambda: np.int64(1),
    "Tensor of no axes": lambda: Tensor(1.0),
    "empty Tensor": lambda: Tensor.zeros(2, 0, 3),
    "bool Tensor": lambda: Tensor([True, False]),
    "int Tensor": lambda: Tensor([1, 2, 3, 4, 5, 6, 7]),
    "Tensor of five axes": lambda: Tensor(np.ones((1, 2, 1, 3, 2), np.float32)),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields what users call, by name after `pg.`; what has several names under the first."""
    seen: set[int] = set()
    for module in MODULES:
        page = importlib.import_module(f"picograd.{module}" if module else "picograd")
        for name, value in public_values(page):
            is_error = isinstance(value, type) and issubclass(value, BaseException)
            if not is_error and id(plain(value)) not in seen:
                seen.add(id(plain(value)))
                yield f"{module}.{name}".lstrip("."), value  # type: ignore[misc]
    for name in dir(Tensor):
        value = getattr(Tensor, name)
        is_method = not name.startswith("_") and name not in INTERNAL and callable(value)
        if is_method and id(plain(value)) not in seen:
            seen.add(id(plain(value)))
            yield f"Tensor.{name}", value


def rows() -> dict[Any, Sample]:
    """Returns the first call of each function that the table has, of what is not empty."""
    found: dict[Any, Sample] = {}
    for row in all_operations():
        if row.call is None:
            samples = row.samples(np.random.default_rng(0))
            found.setdefault(plain(row.ours()), samples[0])
    return found


# ---- calls of what has no row ----
def parameter() -> Tensor:
    return Tensor([1.0, 2.0], requires_grad=True)


BY_ANNOTATION: dict[str, Callable[[], Any]] = {
    "str": lambda: "weight",
    "Module": lambda: nn.Linear(2, 2),
    "Number": lambda: 0.5,
    "Distribution": lambda: pg.distributions.Normal(0.0, 1.0),
    "type[Distribution]": lambda: pg.distributions.Normal,
    "Transform | Sequence[Transform]": lambda: pg.distributions.ExpTransform(),
    "Transform": lambda: pg.distributions.ExpTransform(),
    "Sequence[Transform]": lambda: [pg.distributions.ExpTransform()],
    "type[BasePruningMethod]": lambda: nn.utils.prune.Identity,
    "Iterable[tuple[Module, str]]": lambda: [(nn.Linear(2, 2), "weight")],
    "int": lambda: 2,
    "float": lambda: 0.5,
    "Each": lambda: 2,
    "Bins": lambda: 2,
    "bool": lambda: True,
    "Tensor": lambda: np.ones((2, 3)),
    "TensorCore": lambda: np.ones((2, 3)),
    "Operand": lambda: np.ones((2, 3)),
    "Iterable[Any]": lambda: [parameter()],
    "Optimizer": lambda: optim.SGD([parameter()], lr=0.1),
    "Sequence[int]": lambda: (2, 3),
    "int | Sequence[int]": lambda: 2,
    "Callable[..., Any]": lambda: lambda *args: args[0].sum(),
}


def loss(x: Tensor) -> Tensor:
    return (x * x).sum()


def of_loss(x: Tensor) -> Sample:
    return sample(loss(x), [x])


def parametrized() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))


def sequences() -> list[Tensor]:
    return [Tensor([1.0, 2.0]), Tensor([3.0])]


def schedule(*args: Any, **kwargs: Any) -> Callable[[], Sample]:
    """Returns what makes the call of a schedule."""
    return lambda: sample(optim.SGD([parameter()], lr=0.1), *args, **kwargs)


def sequence() -> Sample:
    optimizer = optim.SGD([parameter()], lr=0.1)
    parts = [optim.lr_scheduler.StepLR(optimizer, 2), optim.lr_scheduler.StepLR(optimizer, 3)]
    return sample(optimizer, parts, [4])


VECTOR, SQUARE, ROWS = np.array([1.0, 2.0]), np.array([[2.0, 1.0], [1.0, 3.0]]), np.ones((2, 3))
INTS, INDEX, MASK = np.array([[1, 2, 3], [4, 5, 6]]), np.array([0, 1]), np.ones((2, 3), bool)
POINTS = np.ones((1, 2, 4, 4))
CALLS: dict[str, Callable[[], Sample]] = {
    "accumulate": lambda: sample(lambda x: (x * parameter()[0]).sum(), ROWS),
    "addmv_": lambda: sample(VECTOR, SQUARE, VECTOR),
    "as_tensor": lambda: sample([1.0, 2.0]),
    "bucketize": lambda: sample(ROWS, VECTOR),
    "randint": lambda: sample(9, (2, 3)),
    "randint_like": lambda: sample(ROWS, 9),
    "asarray": lambda: sample([1.0, 2.0]),
    "tensor": lambda: sample([1.0, 2.0]),
    "scalar_tensor": lambda: sample(2.0),
    "can_cast": lambda: sample(pg.int32, pg.float32),
    "promote_types": lambda: sample(pg.int32, pg.float32),
    "set_float32_matmul_precision": lambda: sample("highest"),
    "set_default_device": lambda: sample(None),  # of PICOGRAD_DEVICE, as before: no other test is to find another
    "finfo": lambda: sample(pg.float32),
    "iinfo": lambda: sample(pg.int32),
    "checkpoint": lambda: sample(loss, ROWS),
    "outline": lambda: sample(loss),
    "cholesky_inverse": lambda: sample(SQUARE),
    "cholesky_solve": lambda: sample(ROWS, SQUARE),
    "clamp_": lambda: sample(ROWS, 0.0, 1.0),
    "explain": lambda: sample(ROWS),
    "fill_": lambda: sample(ROWS, 1.0),
    "from_dlpack": lambda: sample(ROWS),
    "functional_call": lambda: sample(nn.Linear(3, 2), {}, (ROWS,)),
    "grad": lambda: sample(loss),
    "gradcheck": lambda: sample(loss, (Tensor([0.3], dtype=pg.float64, requires_grad=True),)),
    "gradgradcheck": lambda: sample(loss, (Tensor([0.3], dtype=pg.float64, requires_grad=True),)),
    "hvp": lambda: sample(loss, VECTOR, VECTOR),
    "vhp": lambda: sample(loss, VECTOR, VECTOR),
    "jvp": lambda: sample(loss, (VECTOR,), (VECTOR,)),
    "vjp": lambda: sample(loss, VECTOR),
    "linearize": lambda: sample(loss, VECTOR),
    "index_put_": lambda: sample(ROWS, (INDEX,), np.array(1.0)),
    "is_tensor": lambda: sample(ROWS),
    "realize": lambda: sample([ROWS]),
    "batch_norm": lambda: sample(ROWS, None, None, None, None, True, 0.1, 1e-5),
    "cond": lambda: sample(True, lambda *_: 1, lambda *_: 2),
    "while_loop": lambda: sample(lambda n, *_: n < 3, lambda n, *_: n + 1, [0]),
    "as_strided": lambda: sample(ROWS, (2, 2), (1, 1)),
    "embedding": lambda: sample(ROWS, np.array([0, 1])),
    "set_default_dtype": lambda: sample(pg.float32),
    "nn.functional.multi_head_attention_forward": lambda: sample(
        ROWS, ROWS, ROWS, 3, 1, np.ones((9, 3)), None, None, None, False, 0.0, np.ones((3, 3)), None
    ),
    "nn.utils.parametrizations.orthogonal": lambda: sample(nn.Linear(2, 2)),
    "Tensor.apply_": lambda: sample(Tensor(ROWS), float),
    "Tensor.prelu": lambda: sample(ROWS, np.array([0.5])),
    "amp.is_autocast_available": lambda: sample("cpu"),
    "distributions.Bernoulli": lambda: sample(0.5),
    "distributions.Geometric": lambda: sample(0.5),
    "distributions.Binomial": lambda: sample(2, 0.5),
    "distributions.NegativeBinomial": lambda: sample(2, 0.5),
    "distributions.Categorical": lambda: sample(ROWS),
    "distributions.OneHotCategorical": lambda: sample(ROWS),
    "distributions.OneHotCategoricalStraightThrough": lambda: sample(ROWS),
    "distributions.Multinomial": lambda: sample(2, ROWS),
    "distributions.ContinuousBernoulli": lambda: sample(0.5),
    "distributions.LowRankMultivariateNormal": lambda: sample(VECTOR, SQUARE, VECTOR),
    "distributions.Wishart": lambda: sample(5.0, SQUARE),
    "distributions.MultivariateNormal": lambda: sample(VECTOR, SQUARE),
    "distributions.MixtureSameFamily": lambda: sample(
        pg.distributions.Categorical(pg.ones(3)), pg.distributions.Normal(pg.zeros(3), 1.0)
    ),
    "distributions.RelaxedBernoulli": lambda: sample(0.5, 0.5),
    "distributions.RelaxedOneHotCategorical": lambda: sample(0.5, ROWS),
    "distributions.Independent": lambda: sample(pg.distributions.Normal(Tensor(VECTOR), 1.0), 1),
    "nn.utils.prune.remove": lambda: sample(nn.utils.prune.identity(nn.Linear(2, 2), "weight"), "weight"),
    "nn.utils.prune.custom_from_mask": lambda: sample(nn.Linear(2, 2), "weight", np.ones((2, 2))),
    "nn.utils.prune.ln_structured": lambda: sample(nn.Linear(2, 2), "weight", 1, 2, 0),
    "nn.utils.prune.LnStructured": lambda: sample(1, 2),
    "nn.utils.prune.random_structured": lambda: sample(nn.Linear(2, 2), "weight", 1, 0),
    "scan": lambda: sample(lambda carry, x: (carry + x, carry), np.array(0.0), VECTOR),
    "multinomial": lambda: sample(VECTOR, 1),
    "Variable": lambda: sample("n", 1, 4),
    "device": lambda: sample("cpu"),
    "nn.functional.batch_norm": lambda: sample(ROWS, np.zeros(3), np.ones(3)),
    "nn.functional.ctc_loss": lambda: sample(np.zeros((4, 2, 3)), np.ones((2, 2), np.int64), (4, 4), (2, 2)),
    "nn.functional.fractional_max_pool2d": lambda: sample(POINTS, 2, 2),
    "nn.functional.fractional_max_pool3d": lambda: sample(POINTS[..., None].repeat(4, -1), 2, 2),
    "nn.functional.dropout2d": lambda: sample(POINTS),
    "nn.functional.dropout3d": lambda: sample(POINTS[None]),
    "nn.functional.instance_norm": lambda: sample(POINTS),
    "nn.functional.one_hot": lambda: sample(INDEX),
    "nn.init.calculate_gain": lambda: sample("relu"),
    "nn.init.dirac_": lambda: sample(np.ones((2, 2, 3))),
    "nn.AdaptiveLogSoftmaxWithLoss": lambda: sample(8, 5, [2, 3]),
    "nn.FractionalMaxPool2d": lambda: sample(2, 2),
    "nn.FractionalMaxPool3d": lambda: sample(2, 2),
    "nn.MLP": lambda: sample(2, [3, 1]),
    "nn.TransformerDecoder": lambda: sample(nn.TransformerDecoderLayer(4, 2), 2),
    "nn.TransformerEncoder": lambda: sample(nn.TransformerEncoderLayer(4, 2), 2),
    "nn.Parameter": lambda: sample(ROWS),
    "optim.Muon": lambda: sample([Tensor(SQUARE).requires_grad_()]),
    "optim.Optimizer": lambda: sample([parameter()], {"lr": 0.1}),
    "optim.lr_scheduler.CyclicLR": schedule(0.1, 0.2),
    "optim.lr_scheduler.OneCycleLR": schedule(0.1, 4),
    "optim.lr_scheduler.LambdaLR": schedule(lambda step: 0.5),
    "optim.lr_scheduler.MultiplicativeLR": schedule(lambda step: 0.5),
    "optim.lr_scheduler.MultiStepLR": schedule([1, 2]),
    "optim.lr_scheduler.SequentialLR": lambda: sequence(),
    "optim.lr_scheduler.ChainedScheduler": lambda: sample([optim.lr_scheduler.StepLR(optim.SGD([parameter()]), 2)]),
    "fft.pairs": lambda: sample(VECTOR),
    "Tensor.addbmm_": lambda: sample(SQUARE, SQUARE[None], SQUARE[None]),
    "Tensor.addmm_": lambda: sample(SQUARE, SQUARE, SQUARE),
    "Tensor.addr_": lambda: sample(SQUARE, VECTOR, VECTOR),
    "Tensor.baddbmm_": lambda: sample(SQUARE[None], SQUARE[None], SQUARE[None]),
    "Tensor.assign": lambda: sample(ROWS, ROWS),
    "Tensor.backward": lambda: sample(loss(parameter())),
    "Tensor.bitcast": lambda: sample(ROWS, pg.int32),
    "Tensor.cast": lambda: sample(ROWS, pg.int32),
    "Tensor.choose": lambda: sample(MASK, 1.0, ROWS),
    "Tensor.cumprod_": lambda: sample(ROWS, 1),
    "Tensor.cumsum_": lambda: sample(ROWS, 1),
    "Tensor.fill_diagonal_": lambda: sample(SQUARE, 1.0),
    "Tensor.index_add_": lambda: sample(ROWS, 0, INDEX, ROWS),
    "Tensor.index_copy_": lambda: sample(ROWS, 0, INDEX, ROWS),
    "Tensor.index_fill_": lambda: sample(ROWS, 0, INDEX, 1.0),
    "Tensor.index_reduce_": lambda: sample(ROWS, 0, INDEX, ROWS, "prod"),
    "Tensor.masked_fill_": lambda: sample(ROWS, MASK, 1.0),
    "Tensor.masked_scatter_": lambda: sample(ROWS, MASK, ROWS),
    "Tensor.put_": lambda: sample(ROWS, INDEX, VECTOR),
    "Tensor.renorm_": lambda: sample(ROWS, 2.0, 0, 1.0),
    "Tensor.register_hook": lambda: sample(parameter(), loss),
    "Tensor.register_post_accumulate_grad_hook": lambda: sample(parameter(), loss),
    "Tensor.scatter_": lambda: sample(VECTOR, 0, INDEX, VECTOR),
    "Tensor.scatter_add_": lambda: sample(VECTOR, 0, INDEX, VECTOR),
    "Tensor.scatter_reduce_": lambda: sample(VECTOR, 0, INDEX, VECTOR, "sum"),
    "Tensor.swapaxes_": lambda: sample(ROWS, 0, 1),
    "Tensor.swapdims_": lambda: sample(ROWS, 0, 1),
    "Tensor.transpose_": lambda: sample(ROWS, 0, 1),
    "Tensor.to_device": lambda: sample(ROWS, "NUMPY"),
    "Tensor.where": lambda: sample(ROWS, MASK, ROWS),
}
CALLS |= {
    "nn.utils.clip_grad_norm_": lambda: sample([parameter()], 1.0),
    "nn.utils.clip_grad_value_": lambda: sample([parameter()], 1.0),
    "nn.utils.clip_grads_with_norm_": lambda: sample([parameter()], 1.0, np.array(1.0)),
    "nn.utils.fuse_conv_bn_eval": lambda: sample(nn.Conv2d(1, 1, 1).eval(), nn.BatchNorm2d(1).eval()),
    "nn.utils.fuse_conv_bn_weights": lambda: sample(SQUARE, None, VECTOR, VECTOR, 0.0, None, None),
    "nn.utils.fuse_linear_bn_eval": lambda: sample(nn.Linear(1, 1).eval(), nn.BatchNorm1d(1).eval()),
    "nn.utils.fuse_linear_bn_weights": lambda: sample(SQUARE, None, VECTOR, VECTOR, 0.0, None, None),
    "nn.utils.get_total_norm": lambda: sample([parameter()]),
    "nn.utils.parameters_to_vector": lambda: sample([parameter()]),
    "nn.utils.remove_spectral_norm": lambda: sample(nn.utils.spectral_norm(nn.Linear(2, 2))),
    "nn.utils.remove_weight_norm": lambda: sample(nn.utils.weight_norm(nn.Linear(2, 2))),
    "nn.utils.skip_init": lambda: sample(nn.Linear, 2, 3),
    "nn.utils.vector_to_parameters": lambda: sample(VECTOR, [parameter()]),
    "nn.utils.parametrize.is_parametrized": lambda: sample(nn.Linear(2, 2), "weight"),
    "nn.utils.parametrize.register_parametrization": lambda: sample(nn.Linear(2, 2), "weight", nn.Tanh()),
    "nn.utils.parametrize.remove_parametrizations": lambda: sample(parametrized(), "weight"),
    "nn.utils.parametrize.ParametrizationList": lambda: sample([nn.Tanh()], ROWS),
    "nn.utils.rnn.PackedSequence": lambda: sample(VECTOR, np.array([1, 1])),
    "nn.utils.rnn.pack_padded_sequence": lambda: sample(ROWS, [2, 1, 1]),
    "nn.utils.rnn.pack_sequence": lambda: sample(sequences()),
    "nn.utils.rnn.pad_packed_sequence": lambda: sample(nn.utils.rnn.pack_sequence(sequences())),
    "nn.utils.rnn.pad_sequence": lambda: sample(sequences()),
    "nn.utils.rnn.unpack_sequence": lambda: sample(nn.utils.rnn.pack_sequence(sequences())),
    "nn.utils.rnn.unpad_sequence": lambda: sample(SQUARE, [2, 1]),
    "optim.swa_utils.AveragedModel": lambda: sample(nn.Linear(2, 2)),
    "optim.swa_utils.SWALR": schedule(0.5),
    "optim.swa_utils.update_bn": lambda: sample([Tensor([[1.0], [3.0]])], nn.BatchNorm1d(1)),
    "autograd.backward": lambda: sample([loss(parameter())]),
    "autograd.grad": lambda: of_loss(parameter()),
    "autograd.functional.hessian": lambda: sample(loss, VECTOR),
    "autograd.functional.hvp": lambda: sample(loss, VECTOR, VECTOR),
    "autograd.functional.vhp": lambda: sample(loss, VECTOR, VECTOR),
    "autograd.functional.jacobian": lambda: sample(loss, VECTOR),
    "verify": lambda: sample(loss, VECTOR),
    "autograd.functional.jvp": lambda: sample(loss, VECTOR, VECTOR),
    "autograd.functional.vjp": lambda: sample(loss, VECTOR),
    "utils.checkpoint.checkpoint": lambda: sample(loss, VECTOR),
    "utils.checkpoint.checkpoint_sequential": lambda: sample(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), 2, SQUARE),
    "utils.checkpoint.set_device_states": lambda: sample([], []),
    "utils.data.BatchSampler": lambda: sample([1, 2], 2, False),
    "utils.data.DataLoader": lambda: sample([1, 2]),
    "utils.data.RandomSampler": lambda: sample([1, 2]),
    "utils.data.SequentialSampler": lambda: sample([1, 2]),
    "utils.data.StackDataset": lambda: sample([1, 2]),
    "utils.data.SubsetRandomSampler": lambda: sample([1, 2]),
    "utils.data.Subset": lambda: sample([1, 2], [0]),
    "utils.data.TensorDataset": lambda: sample(VECTOR),
    "utils.data.WeightedRandomSampler": lambda: sample([0.5, 0.5], 2),
    "utils.data.ChainDataset": lambda: sample([]),
    "utils.data.ConcatDataset": lambda: sample([[1], [2]]),
    "utils.data.default_collate": lambda: sample([1, 2]),
    "utils.data.default_convert": lambda: sample([1, 2]),
    "utils.data.random_split": lambda: sample([1, 2, 3], [1, 2]),
}
for name in ("weight_norm", "spectral_norm"):
    CALLS[f"nn.utils.{name}"] = CALLS[f"nn.utils.parametrizations.{name}"] = lambda: sample(nn.Linear(2, 2))
for name in ("eig", "eigvals", "eigh", "eigvalsh", "lu", "lu_factor", "lu_factor_ex", "qr", "svd"):
    CALLS[f"linalg.{name}"] = lambda: sample(SQUARE)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"):
    CALLS[name] = CALLS[f"Tensor.{name}_"] = lambda: sample(INTS, INTS)
CALLS["Tensor.bitwise_not_"] = lambda: sample(INTS)
CALLS["Tensor.float_power_"] = lambda: sample(Tensor(ROWS), 2.0)  # of float64
CALLS["Tensor.item"] = lambda: sample(np.array(1.0))
CALLS["Tensor.unsqueeze_"] = lambda: sample(ROWS, 0)
CALLS["Tensor.retain_grad"] = lambda: sample(loss(parameter()))
CALLS["kernel"] = lambda: sample("__global__ void half(float *out) { out[0] = 0.5f; }", lambda: ((1,), pg.float32), grid=1)
for name in ("gcd_", "lcm_"):
    CALLS[name] = lambda: sample(INTS, INTS)


for name in ("max_pool2d", "max_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d"):
    CALLS[f"nn.functional.{name}_with_indices"] = lambda n=int(name[-2]): sample(np.ones((1,) + (4,) * n), 2)


# Names without a call, and why.
WITHOUT_CALL = {
    "memory_format": "names orders of memory; nobody makes one",
    "Tensor": "takes whatever NumPy takes; tests/tensor/test_creation.py",
    "from_numpy": "takes an array; tests/tensor/test_interop.py",
    "autograd.set_detect_anomaly": "turns a mode of the process on; tests/tensor/test_anomaly.py",
    "load": "reads a file; tests/nn/test_state.py",
    "save": "writes a file; tests/nn/test_state.py",
    "optim.lr_scheduler.LRScheduler": "a base",
    "autograd.Function": "a base",
    "utils.data.Dataset": "a base",
    "utils.data.IterableDataset": "a base",
    "utils.data.Sampler": "a base",
    "Tensor.cuda": "needs a GPU",
}


def from_annotations(function: Callable[..., Any]) -> Sample:
    """Returns a call with what must be given, by the annotations."""
    given = []
    for name, p in inspect.signature(function).parameters.items():
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            annotation = "Tensor" if name == "self" else str(p.annotation)
            given.append(BY_ANNOTATION[annotation]())
    return Sample(tuple(given))


def calls() -> Iterator[Call]:
    """Yields a right call of every public function for which there is one."""
    table = rows()
    # By function: one with a second name may be met under either.
    written = {id(plain(attrgetter(name)(pg))): make for name, make in CALLS.items()}
    for name, function in public_functions():
        if name in WITHOUT_CALL:
            continue
        if id(plain(function)) in written:
            yield Call(name, function, written[id(plain(function))])
        elif plain(function) in table:
            yield Call(name, function, partial(table.get, plain(function)))
        else:
            yield Call(name, function, partial(from_annotations, function))


# ---- one argument replaced ----
def places(call: Call) -> list[int | str]:
    """Returns where an argument can be replaced: a position, or the name of one that is not given or given by name."""
    parameters = list(inspect.signature(call.function).parameters.values())
    count = len(call.make().args)
    taken: list[int | str] = list(range(count))
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken = taken[call.name.startswith("Tensor.") :]  # a method without its tensor is no method
    return taken + [name for name in named if name not in positional[:count]]


def replaced(call: Call, place: int | str, value: Any) -> Callable[[], Any]:
    """Returns the call with another argument in one place, on new tensors."""
    args, kwargs = call.arguments()
    if isinstance(place, int):
        args[place] = value
    else:
        kwargs[place] = value
    return lambda: call.function(*args, **kwargs)


def tensor(array: np.ndarray[Any, Any]) -> Tensor:
    return Tensor(array.astype(np.float32) if array.dtype == np.float64 else array)
