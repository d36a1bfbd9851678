"""Views, and the operations that join pieces, against PyTorch."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from tests.helpers import same_as_torch, same_value

VIEWS = {
    "reshape": lambda t: t.reshape(6, 4),
    "reshape with -1": lambda t: t.reshape(2, -1, 2),
    "reshape to one": lambda t: t.reshape(-1),
    "flatten": lambda t: t.flatten(),
    "flatten some": lambda t: t.flatten(1),
    "unflatten": lambda t: t.unflatten(2, (2, -1)),
    "unsqueeze": lambda t: t.unsqueeze(0).unsqueeze(-1),
    "squeeze": lambda t: t.unsqueeze(1).squeeze(1),
    "permute": lambda t: t.permute(2, 0, 1),
    "permute negative": lambda t: t.permute(-1, 0, 1),
    "transpose": lambda t: t.transpose(0, -1),
    "mT": lambda t: t.mT,
    "movedim": lambda t: t.movedim(0, 2),
    "expand": lambda t: t.unsqueeze(1).expand(2, 5, 3, 4),
    "expand with -1": lambda t: t.unsqueeze(0).expand(5, -1, -1, -1),
    "narrow": lambda t: t.narrow(1, 1, 2),
    "chain": lambda t: t.permute(1, 2, 0).reshape(4, 6).T.unsqueeze(0).flip(0, 1),
}


@pytest.mark.req("C2")
@pytest.mark.parametrize("name", VIEWS)
def test_views(name, device, rng):
    same_as_torch(VIEWS[name], rng.standard_normal((2, 3, 4)).astype(np.float32))


@pytest.mark.req("G4")
@pytest.mark.parametrize("name", [name for name in VIEWS if name != "chain"])
def test_views_share_storage(name, device):
    x = Tensor.arange(24).reshape(2, 3, 4)
    assert VIEWS[name](x).cell is x.cell


def test_squeeze_takes_only_axes_of_length_one(device):
    x = Tensor.zeros(1, 2, 1, 3)
    assert x.squeeze().shape == (2, 3)
    assert x.squeeze(0).shape == (2, 1, 3)
    assert x.squeeze(1).shape == (1, 2, 1, 3)
    assert x.squeeze((0, 2)).shape == (2, 3)


def test_scalars_flatten_and_transpose(device):
    assert Tensor(1.0).flatten().shape == (1,)
    assert Tensor(1.0).T.shape == ()
    assert Tensor(1.0).unsqueeze(0).shape == (1,)


@pytest.mark.req("C2")
def test_flip_roll_and_repeat(device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    same_as_torch(lambda t: t.flip(0), x)
    same_as_torch(lambda t: t.flip((0, 1)), x)
    same_as_torch(lambda t: t.roll(1), x)
    same_as_torch(lambda t: t.roll((1, -2), (0, 1)), x)
    same_as_torch(lambda t: t.repeat(2, 3), x)
    same_as_torch(lambda t: t.repeat(2, 1, 3), x)
    same_as_torch(lambda t: t.repeat_interleave(2, 1), x)
    same_as_torch(lambda t: t.repeat_interleave(3), x)


def test_flip_is_a_copy_as_in_pytorch(device):
    x = Tensor([1, 2])
    x.flip(0).zero_()
    assert x.tolist() == [1, 2]


@pytest.mark.req("C2")
@pytest.mark.parametrize("margins", [(1, 2), (1, 0, 0, 2), (-1, 1), (0, -1, -1, 2)])
@pytest.mark.parametrize("value", [0.0, 3.5])
def test_pad(margins, value, device, rng):
    same_as_torch(
        lambda t: t.pad(margins, value=value),
        rng.standard_normal((3, 4)).astype(np.float32),
        reference=lambda t: torch.nn.functional.pad(t, margins, value=value),
    )


@pytest.mark.req("C2")
def test_cat_and_stack(device, rng):
    a, b, c = (rng.standard_normal((2, n)).astype(np.float32) for n in (1, 3, 3))
    same_as_torch(lambda *t: Tensor.cat(t, 1), a, b, c, reference=lambda *t: torch.cat(t, 1))
    same_as_torch(lambda *t: Tensor.cat(t, -2), b, c, reference=lambda *t: torch.cat(t, -2))
    same_as_torch(lambda *t: Tensor.stack(t, 1), b, c, reference=lambda *t: torch.stack(t, 1))
    same_as_torch(lambda *t: Tensor.stack(t, -1), b, c, reference=lambda *t: torch.stack(t, -1))


def test_cat_of_an_empty_piece_and_of_mixed_dtypes(device):
    assert Tensor.cat([Tensor.zeros(0, 2), Tensor.ones(1, 2)]).tolist() == [[1.0, 1.0]]
    same_value(
        Tensor.cat([Tensor([1, 2]), Tensor([0.5])]), torch.cat([torch.tensor([1, 2]), torch.tensor([0.5])])
    )


@pytest.mark.req("C2")
def test_split_and_chunk(device, rng):
    x = rng.standard_normal((5, 3)).astype(np.float32)
    same_as_torch(lambda t: t.split(2), x)
    same_as_torch(lambda t: t.split([1, 4]), x)
    same_as_torch(lambda t: t.split(1, dim=1), x)
    same_as_torch(lambda t: t.chunk(3), x)
    same_as_torch(lambda t: t.chunk(7), x)
    same_as_torch(lambda t: t.unbind(1), x)


def test_split_gives_views(device):
    x = Tensor.zeros(4)
    first, _ = x.split(2)
    first += 1
    assert x.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_view_is_reshape_or_the_bits_of_another_dtype(device):
    from picograd import dtypes

    x = Tensor([[1.0, 2.0]])
    assert x.view(2, 1).cell is x.cell and x.view_as(Tensor.zeros(2)).shape == (2,)
    same_value(x.view(dtypes.int32), torch.tensor([[1.0, 2.0]]).view(torch.int32))


@pytest.mark.req("C2")
def test_axes_have_numpys_name_too(device):
    x, y = Tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]])
    for ours, theirs in ((pg, torch), (Tensor, torch)):
        for name in ("cat", "concat", "concatenate", "stack"):
            same_value(getattr(ours, name)([x, x], axis=1), getattr(theirs, name)([y, y], dim=1))
    for name, args in (("split", (1,)), ("chunk", (2,)), ("unbind", ())):
        for mine, other in zip(getattr(x, name)(*args, axis=1), getattr(y, name)(*args, dim=1), strict=True):
            same_value(mine, other)
    assert x.unsqueeze(axis=1).shape == (2, 1, 2) and x[:1].squeeze(axis=0).shape == (2,)
    with pytest.raises(pg.ArgumentError) as caught:
        x.unsqueeze()
    assert caught.value.fact == "unsqueeze: an axis must be an int, got None."


def test_choices_that_are_too_many_are_refused_at_once() -> None:
    with pytest.raises(pg.OutOfMemoryError, match=r"combinations: cannot allocate 3637\.9 TiB"):
        pg.combinations(pg.arange(100_000), 3)
    assert pg.combinations(pg.arange(400), 2).shape == (79_800, 2)  # more than are written at once
    assert pg.combinations(pg.arange(400), 2)[-1].tolist() == [398, 399]
    for r, again in ((0, False), (2, True), (7, False)):
        expected = torch.combinations(torch.arange(3), r, again)
        same_value(pg.combinations(pg.arange(3), r, again), expected)


def views_of(x, rng: random.Random):
    """Views of views of x, in either library, by the same draws."""
    for _ in range(rng.randrange(5)):
        axis = rng.randrange(max(1, len(x.shape)))
        kind = rng.choice(["permute", "narrow", "each second", "unsqueeze", "select", "reshape", "flatten"])
        if kind == "permute":
            x = x.permute(rng.sample(range(len(x.shape)), len(x.shape)))
        elif kind == "narrow" and x.shape:
            start = rng.randrange(x.shape[axis])
            x = x.narrow(axis, start, rng.randint(1, x.shape[axis] - start))
        elif kind == "each second" and x.shape:
            x = x[(*[slice(None)] * axis, slice(None, None, 2))]
        elif kind == "select" and x.shape:
            x = x.select(axis, 0)
        elif kind == "unsqueeze":
            x = x.unsqueeze(axis)
        elif kind == "reshape":
            left, lengths = math.prod(x.shape), []
            for _ in range(3):
                lengths.append(rng.choice([n for n in range(1, left + 1) if left % n == 0]))
                left //= lengths[-1]
            x = x.reshape(*rng.sample([*lengths, left], 4))
        elif kind == "flatten":
            x = x.flatten(axis)
    return x


@pytest.mark.req("C2")
@pytest.mark.parametrize("seed", range(8))
def test_a_reshape_is_a_copy_where_strides_make_one(seed: int) -> None:
    """A write reaches the tensor through each view, and stays where PyTorch's reshape has copied."""
    rng = random.Random(seed)
    for number in range(40):
        shape = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 4))]
        found = []
        for library in (torch, pg):
            x = library.arange(math.prod(shape)).float().reshape(*shape)
            view = views_of(x, random.Random(1000 * seed + number))
            view.add_(100)
            found.append((x.tolist(), view.tolist()))
        assert found[0] == found[1], (shape, number)


COPIES = [
    lambda x: x.T.reshape(-1),
    lambda x: x.T.flatten(),
    lambda x: x.T.ravel(),
    lambda x: x[:, :2].reshape(-1),
    lambda x: x[::2].reshape(8),
    lambda x: x[:1].expand(3, 4).reshape(-1),
    lambda x: x.reshape(3, 2, 2).permute(0, 2, 1).reshape(3, 4),
    lambda x: x.repeat_interleave(1, 0),
]


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_stays_as_it_is(copy) -> None:
    x = pg.arange(12).reshape(3, 4)
    y = copy(x)
    expected = y.tolist()
    x += 100
    assert y.tolist() == expected
    y += 1000
    assert x.tolist() == (pg.arange(12).reshape(3, 4) + 100).tolist()


def test_a_view_shows_a_transpose() -> None:
    """PyTorch's view is an error there."""
    x = pg.arange(6).reshape(2, 3)
    x.T.view(6)[1] = 7
    x.T.view_as(x)[0, 0] = 9
    assert x.tolist() == [[9, 1, 2], [7, 4, 5]]


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 2, 2)])
@pytest.mark.parametrize("number", [lambda x: x[1], lambda x: x[1:2].reshape(())])
def test_a_number_that_is_repeated_has_views_of_other_shapes(number, shape: tuple[int, ...]) -> None:
    for dims in [(2, 2), (4, 1), (-1,), (1, 4)]:
        x, other = pg.arange(3), torch.arange(3)
        view, theirs = number(x).expand(shape).reshape(dims), number(other).expand(shape).reshape(dims)
        x[1], other[1] = 9, 9
        assert view.tolist() == theirs.tolist()
