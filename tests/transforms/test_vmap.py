"""vmap as users meet it: against a loop over the examples, and against torch.func.vmap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.control.structure import take
from picograd.ir.op import toposort
from tests.helpers import mostly_evaluated


def stacked(function: Callable[..., Tensor], count: int, *args: Tensor) -> np.ndarray[Any, Any]:
    """Calls a function for each row of its arguments."""
    return np.stack([function(*(arg[i] for arg in args)).numpy() for i in range(count)])


def numbers(rng: np.random.Generator, *shape: int) -> Tensor:
    return Tensor(rng.standard_normal(shape))


def stored(x: Tensor) -> Tensor:
    made = Tensor(np.zeros((3, 4)))
    made[[2, 0]] = x[:2] * 2
    made[1, 1:3] += x[2, :2]
    return made


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda x: (x * 2 + 1).tanh().relu() / (x.exp() + 1),
    "softmax": lambda x: x.softmax(-1),
    "movement": lambda x: x.T.reshape(-1)[1:5].flip([0]).unsqueeze(0).expand(3, 4),
    "matmul": lambda x: x @ x.T @ Tensor(np.ones((3, 2))),
    "vector products": lambda x: Tensor(np.ones((5, 3))) @ x[:, 0],
    "sort": lambda x: x.sort(-1)[0] + x.argsort(0),
    "cumsum": lambda x: x.cumsum(0) + x.cumprod(1),
    "reductions": lambda x: x.std(0) + x.max() + x.argmax(1).sum() + x.prod(0),
    "gather": lambda x: x.gather(1, Tensor([[0, 1], [3, 2], [1, 1]])) + x[[0, 2, 1], 1:3],
    "stores": lambda x: stored(x),
    "where": lambda x: pg.where(x > 0, x, -x).sum(),
    "dtypes": lambda x: (x * 10).long() % 3,
    "constants": lambda x: Tensor([1.0, 2.0]),
    "nothing": lambda x: x,
    "layers": lambda x: nn.functional.layer_norm(x, (4,)) + nn.functional.gelu(x),
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "linear algebra": lambda x: pg.linalg.solve(x @ x.T + Tensor(np.eye(3)), x) + pg.linalg.det(x[:, :3]),
    "outlined": lambda x: pg.outline(lambda y: (y * y).sin())(x) + pg.checkpoint(lambda y: y.exp() * y, x),
    "scan": lambda x: pg.scan(lambda carry, row: (carry * 0.5 + row, carry.sin()), x[0] * 0, x)[1],
    "scan reversed": lambda x: pg.scan(lambda c, row: (c * 0.5 + row.sum(), None), x[0, 0], x, reverse=True)[0],
}


@pytest.mark.req("A9")
@mostly_evaluated(every=3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_all_examples_is_that_of_each(name: str, device: str, rng: np.random.Generator) -> None:
    x, function = numbers(rng, 5, 3, 4), FUNCTIONS[name]
    np.testing.assert_allclose(pg.vmap(function)(x).numpy(), stacked(function, 5, x), rtol=1e-12, atol=1e-12)


@pytest.mark.req("A9")
@mostly_evaluated(every=5)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("dtypes", "constants")])
def test_gradients_of_a_sum_over_examples(name: str, device: str, rng: np.random.Generator) -> None:
    x, function = numbers(rng, 4, 3, 4), FUNCTIONS[name]

    def loss(row: Tensor) -> Tensor:
        return (function(row) * 0.7).sin().sum()

    whole = pg.grad(lambda x: pg.vmap(loss)(x).sum())(x).numpy()
    per_example = pg.vmap(pg.grad(loss))(x).numpy()
    np.testing.assert_allclose(whole, stacked(pg.grad(loss), 4, x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(per_example, whole, rtol=1e-10, atol=1e-12)


@pytest.mark.req("A9")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_many_ops_for_2_examples_as_for_200(name: str) -> None:
    counts = [len(toposort([pg.vmap(FUNCTIONS[name])(Tensor(np.zeros((n, 3, 4)))).op])) for n in (2, 200)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("chunk_size", [None, 1])
def test_out_dims_of_one_result_may_be_a_tuple_of_one(chunk_size: int | None) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    mine = pg.vmap(lambda a: a * 2, out_dims=(1,), chunk_size=chunk_size)(Tensor(x))
    assert mine.tolist() == torch.func.vmap(lambda a: a * 2, out_dims=(1,))(torch.tensor(x)).tolist()
    with pytest.raises(pg.ArgumentError, match="out_dims gives .0, 1. for result, which is one Tensor"):
        pg.vmap(lambda a: a * 2, out_dims=(0, 1), chunk_size=chunk_size)(Tensor(x))


@pytest.mark.parametrize("in_dims", [0, 1, -1, (0, None), (None, 2), (1, -1)])
@pytest.mark.parametrize("out_dims", [0, 1, -1, -2])
def test_axes_in_and_out_are_pytorchs(in_dims: Any, out_dims: int, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((3, 3, 3)), rng.standard_normal((3, 3, 3))
    shared = in_dims if isinstance(in_dims, tuple) else (in_dims, in_dims)
    shapes = [(3, 3) if dim is not None else (3, 3, 3) for dim in shared]
    assert shapes
    mine = pg.vmap(lambda a, b: a.sum(0) * b, in_dims, out_dims)(Tensor(x), Tensor(y)).numpy()
    theirs = torch.func.vmap(lambda a, b: a.sum(0) * b, in_dims, out_dims)(torch.tensor(x), torch.tensor(y)).numpy()
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_examples_within_examples(rng: np.random.Generator) -> None:
    x, y = numbers(rng, 4, 3), numbers(rng, 5, 3)
    pairs = pg.vmap(pg.vmap(lambda a, b: (a * b).sum(), (None, 0)), (0, None))(x, y)
    np.testing.assert_allclose(pairs.numpy(), x.numpy() @ y.numpy().T, rtol=1e-12)
    columns = pg.vmap(pg.vmap(lambda a: a * a))(x)
    np.testing.assert_allclose(columns.numpy(), x.numpy() ** 2, rtol=1e-12)


@dataclass
class Batch:
    x: Tensor
    y: dict[str, Tensor]


def test_arguments_and_results_may_be_containers(rng: np.random.Generator) -> None:
    x, y, w = numbers(rng, 4, 3), numbers(rng, 2, 4), numbers(rng, 3)

    def function(batch: Batch, parts: list[Any]) -> dict[str, Any]:
        return {"sum": batch.x + batch.y["a"].sum(), "more": (parts[0] * batch.x, parts[0])}

    in_dims = (Batch(0, {"a": 1}), [None])  # type: ignore[arg-type,dict-item]
    found = pg.vmap(function, in_dims, {"sum": 1, "more": (0, None)})(Batch(x, {"a": y}), [w])
    np.testing.assert_allclose(found["sum"].numpy(), (x.numpy() + y.numpy().sum(0)[:, None]).T, rtol=1e-12)
    np.testing.assert_allclose(found["more"][0].numpy(), w.numpy() * x.numpy(), rtol=1e-12)
    assert found["more"][1].shape == (3,)


def test_chunks_give_the_same(rng: np.random.Generator) -> None:
    x = numbers(rng, 3, 7)
    whole = pg.vmap(lambda a: (a.softmax(0), a.sum()), in_dims=1, out_dims=(1, 0))(x)
    parts = pg.vmap(lambda a: (a.softmax(0), a.sum()), in_dims=1, out_dims=(1, 0), chunk_size=3)(x)
    for a, b in zip(whole, parts):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_keyword_arguments_are_the_same_for_all() -> None:
    found = pg.vmap(lambda x, scale: x * scale)(Tensor([1.0, 2.0]), scale=Tensor([1.0, 10.0]))
    assert found.tolist() == [[1.0, 10.0], [2.0, 20.0]]


def test_no_examples_at_all() -> None:
    assert pg.vmap(lambda x: x.sum(0) @ Tensor(np.ones((3, 2))))(Tensor(np.zeros((0, 2, 3)))).shape == (0, 2)


def test_a_symbolic_number_of_examples(rng: np.random.Generator) -> None:
    x = Tensor(rng.standard_normal((6, 3, 4))).realize()
    n = pg.Variable("n", 1, 6)
    for name in ("elementwise", "matmul", "gather", "scan", "reductions"):
        for count in (2, 5):
            found = pg.vmap(FUNCTIONS[name])(x[: n.bind(count)])
            np.testing.assert_allclose(found.numpy(), stacked(FUNCTIONS[name], count, x), rtol=1e-10, atol=1e-10)


# ---- jit ----
@pytest.mark.parametrize("name", FUNCTIONS)
def test_under_jit_and_around_it(name: str, rng: np.random.Generator) -> None:
    x, function = numbers(rng, 5, 3, 4), FUNCTIONS[name]
    expected = pg.vmap(function)(x).numpy()
    inside = pg.jit(lambda x: pg.vmap(function)(x))
    for _ in range(3):
        np.testing.assert_allclose(inside(x).numpy(), expected, rtol=1e-12, atol=1e-12)


# ---- random numbers ----
def test_random_numbers_are_the_same_or_different_as_said() -> None:
    x = Tensor(np.zeros((4, 8)))
    same = pg.vmap(lambda row: row + Tensor.rand(8), randomness="same")(x).numpy()
    assert (same == same[0]).all()
    different = pg.vmap(lambda row: row + Tensor.rand(8), randomness="different")(x).numpy()
    assert len(np.unique(different)) == 32
    assert different.min() >= 0 and different.max() < 1
    again = pg.vmap(lambda row: row + Tensor.rand(8), randomness="different")(x).numpy()
    assert not (again == different).any()


def test_different_random_numbers_within_a_scan_and_an_outlined_part() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = pg.scan(lambda carry, _: (carry, Tensor.rand(3)), x, length=4)[1]
        return rows, pg.outline(lambda y: y + Tensor.rand(3))(x)

    for randomness, number in (("different", 5 * 15), ("same", 15)):
        found = pg.vmap(function, randomness=randomness)(Tensor(np.zeros(5)))
        assert len(np.unique(np.concatenate([part.numpy().ravel() for part in found]))) == number


def test_random_numbers_under_jit() -> None:
    @pg.jit
    def function(x: Tensor) -> Tensor:
        return pg.vmap(lambda row: row + Tensor.rand(4), randomness="different")(x)

    seen = [function(Tensor.zeros(3)).numpy() for _ in range(4)]
    assert len(np.unique(np.concatenate(seen))) == 48
    pg.manual_seed(0)
    np.testing.assert_array_equal(function(Tensor.zeros(3)).numpy(), seen[0])


def test_random_numbers_drawn_outside_are_no_draw() -> None:
    noise = Tensor.rand(3)
    found = pg.vmap(lambda x: x + noise)(Tensor(np.zeros((2, 1), np.float32)))
    assert (found.numpy() == noise.numpy()).all()
    different = pg.vmap(lambda x: x + noise, randomness="different")(Tensor(np.zeros((2, 1), np.float32)))
    assert (different.numpy() == noise.numpy()).all()


def test_the_generator_goes_on_after_a_draw() -> None:
    pg.manual_seed(3)
    first = pg.vmap(lambda x: x + Tensor.rand(2), randomness="same")(Tensor.zeros(2, 2))[0].numpy()
    second = Tensor.rand(2).numpy()
    pg.manual_seed(3)
    np.testing.assert_array_equal(first, Tensor.rand(2).numpy())
    np.testing.assert_array_equal(second, Tensor.rand(2).numpy())


# ---- writes in place ----
def test_writes_to_arguments_and_to_what_is_made_inside(rng: np.random.Generator) -> None:
    x = numbers(rng, 4, 3)
    before = x.numpy()

    def function(row: Tensor) -> Tensor:
        total = Tensor(np.zeros(2))
        total[1] = row.sum()
        row += 1
        row[0] = 7.0
        return total

    found = pg.vmap(function)(x)
    np.testing.assert_allclose(found.numpy()[:, 1], before.sum(1), rtol=1e-12)
    expected = before + 1
    expected[:, 0] = 7.0
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12)


def test_writes_that_are_the_same_for_all_are_seen_outside() -> None:
    count = Tensor(0)

    def function(row: Tensor) -> Tensor:
        count.add_(1)
        return row * count

    assert pg.vmap(function)(Tensor([1, 2])).tolist() == [1, 2]
    assert count.item() == 1


# ---- networks ----
@pytest.mark.req("A9")
def test_gradients_of_each_example_of_a_batch(rng: np.random.Generator) -> None:
    net, x = nn.MLP(9, [4, 2]), Tensor(rng.standard_normal((6, 9)).astype(np.float32))
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss(params: dict[str, Tensor], row: Tensor) -> Tensor:
        return (pg.functional_call(net, params, (row[None],)) ** 2).sum()

    each = pg.vmap(pg.grad(loss), (None, 0))(params, x)
    for i in range(6):
        alone = pg.grad(loss)(params, x[i])
        for name, grad in alone.items():
            np.testing.assert_allclose(each[name].numpy()[i], grad.numpy(), rtol=1e-4, atol=1e-5)
    assert all(tensor.shape == (6, *params[name].shape) for name, tensor in each.items())


@pytest.mark.req("A9")
def test_an_ensemble_of_networks(rng: np.random.Generator) -> None:
    models = [nn.MLP(3, [4, 2]) for _ in range(5)]
    params, buffers = pg.func.stack_module_state(models)
    x = Tensor(rng.standard_normal((7, 3)).astype(np.float32))
    found = pg.vmap(lambda p, b, x: pg.functional_call(models[0], (p, b), (x,)), (0, 0, None))(params, buffers, x)
    for mine, model in zip(found, models):
        np.testing.assert_allclose(mine.detach().numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    found.sum().backward()
    assert all(p.grad.shape == p.shape for p in params.values())


def test_dropout_in_train_mode_needs_to_be_told(rng: np.random.Generator) -> None:
    layer, x = nn.Dropout(0.5), Tensor.ones(50, 8)
    different = pg.vmap(layer, randomness="different")(x).numpy()
    same = pg.vmap(layer, randomness="same")(x).numpy()
    assert (same == same[0]).all() and not (different == different[0]).all()
    with pytest.raises(pg.ArgumentError, match="draws random numbers"):
        pg.vmap(layer)(x)


def test_the_result_keeps_the_form_that_was_returned() -> None:
    found = pg.vmap(lambda x: [x, {"a": (x,)}])(Tensor([1.0]))
    assert take(found, "r").form == (list, (0, "*"), (1, (dict, ("a", (tuple, (0, "*"))))))
