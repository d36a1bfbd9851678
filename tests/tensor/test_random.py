"""Random tensors: reproducible, independent draws, and of the right distribution."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd import ArgumentError, Generator, Tensor, dtypes
from picograd.engine.realize import to_host
from picograd.tensor import generator as generators
from picograd.tensor.random import normal_op
from tests.threads import in_threads


@pytest.mark.req("C1")
def test_a_seed_decides_all_draws(device):
    pg.manual_seed(7)
    first = [Tensor.rand(4).tolist(), Tensor.randn(4).tolist(), Tensor.randint(0, 9, (4,)).tolist()]
    pg.manual_seed(7)
    assert first == [Tensor.rand(4).tolist(), Tensor.randn(4).tolist(), Tensor.randint(0, 9, (4,)).tolist()]
    assert Tensor.rand(4).tolist() != Tensor.rand(4).tolist()


@pytest.mark.req("C1")
def test_a_draw_keeps_its_value_however_often_it_is_read(device):
    x = Tensor.rand(4)
    y = x + 0
    assert y.tolist() == x.tolist() == x.tolist()


@pytest.mark.req("C1")
def test_generators_are_independent(device):
    a, b = Generator(1), Generator(1)
    before = Tensor.rand(3, generator=a).tolist()
    Tensor.rand(5)
    assert Tensor.rand(3, generator=b).tolist() == before
    assert Generator(2).initial_seed() == 2
    assert Generator().initial_seed != Generator().initial_seed


@pytest.mark.req("C1")
def test_bits_depend_on_the_element_not_on_the_shape(device):
    flat = Tensor.rand(12, generator=Generator(3))
    assert Tensor.rand(3, 4, generator=Generator(3)).flatten().tolist() == flat.tolist()


def threefry(counter: int, key: int) -> int:
    """Threefry-2x32, 20 rounds, in Python integers (Salmon et al. 2011, Random123's threefry.h)."""
    mask = 2**32 - 1
    keys = [key >> 32, key & mask]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    a, b = ((counter >> 32) + keys[0]) & mask, ((counter & mask) + keys[1]) & mask
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            a = (a + b) & mask
            b = (b << rotation | b >> (32 - rotation)) & mask
            b ^= a
        a = (a + keys[(group + 1) % 3]) & mask
        b = (b + keys[(group + 2) % 3] + group + 1) & mask
    return a << 32 | b


@pytest.mark.req("C1")
def test_bits_are_threefry_of_draw_and_element(device):
    assert threefry(0, 0) == 0x6B20015999BA4EFE  # Random123's known answer
    generator = Generator(42)
    for draw in range(3):
        fractions = Tensor.rand(4, generator=generator).numpy()
        key = threefry(draw, 42)
        assert (fractions * 2**24).astype(int).tolist() == [threefry(i, key) >> 40 for i in range(4)]


@pytest.mark.req("C1")
def test_uniforms(device):
    x = Tensor.rand(10000).numpy()
    assert x.min() >= 0.0 and x.max() < 1.0
    assert abs(x.mean() - 0.5) < 5 * math.sqrt(1 / 12 / 10000)  # five standard deviations
    assert abs(x.var() - 1 / 12) < 0.005
    assert Tensor.rand(100, dtype=dtypes.float64).dtype is dtypes.float64
    for dtype in (dtypes.float16, dtypes.bfloat16):
        assert Tensor.rand(5000, dtype=dtype).float().max().item() < 1.0


@pytest.mark.req("C1")
def test_normals(device):
    x = Tensor.randn(20000).numpy()
    assert abs(x.mean()) < 5 / math.sqrt(20000)
    assert abs(x.std() - 1) < 5 / math.sqrt(2 * 20000)
    assert abs((np.abs(x) > 1.959964).mean() - 0.05) < 0.01
    assert np.isfinite(x).all()


@pytest.mark.req("C1")
@pytest.mark.parametrize(("dtype", "ulp"), [(dtypes.float32, 2.0**-23), (dtypes.float64, 2.0**-52)], ids=str)
def test_normals_are_box_and_mullers(device, dtype, ulp, rng):
    """From all bits, the first and the last among them: sqrt(-2 ln u) cos(2 pi v), to 4 ulp of the radius."""
    ends = np.array([0, 1, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1], np.uint64)
    edges = (ends[:, None] << np.uint64(32) | ends).reshape(-1)
    bits = np.concatenate([edges, rng.integers(0, 2**64, 20000, np.uint64)])
    u = ((bits >> np.uint64(32)).astype(dtype.numpy) + dtype.numpy.type(1)).astype(np.float64) * 2.0**-32
    radius, turns = np.sqrt(-2 * np.log(u)), (bits & np.uint64(2**32 - 1)).astype(np.float64) * 2.0**-32
    found = Tensor.from_op(normal_op(Tensor(bits).op, dtype)).numpy().astype(np.float64)
    assert np.all(np.abs(found - radius * np.cos(2 * np.pi * turns)) <= 4 * ulp * radius + 2e-9 * radius)  # 2 pi 2^-32
    assert np.abs(found).max() == pytest.approx(math.sqrt(64 * math.log(2)))


@pytest.mark.req("C1")
def test_normals_have_their_distribution(device):
    """Kolmogorov and Smirnov's distance, and four moments, of 200,000: within what one seed in a thousand exceeds."""
    x, n = np.sort(Tensor.randn(200_000, generator=Generator(5)).numpy().astype(np.float64)), 200_000
    below = 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    distance = max((below - np.arange(n) / n).max(), (np.arange(1, n + 1) / n - below).max())
    assert distance * math.sqrt(n) < 1.95
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - moment) < 3.3 * math.sqrt(variance / n)
    assert abs((np.abs(x) > 3).sum() - n * 0.0026998) < 3.3 * math.sqrt(n * 0.0027)


@pytest.mark.req("C1")
def test_integers(device):
    x = Tensor.randint(-2, 3, (5000,)).numpy()
    assert x.dtype == np.int64
    assert sorted(set(x.tolist())) == [-2, -1, 0, 1, 2]
    assert np.bincount(x + 2).min() > 850  # 1000 expected, deviation 28
    assert Tensor.randint(10, size=(2, 2)).shape == (2, 2)
    wide = Tensor.randint(0, 2**40, (100,)).numpy()
    assert wide.min() >= 0 and wide.max() < 2**40 and wide.max() > 2**36


@pytest.mark.req("C1")
def test_permutations(device):
    order = Tensor.randperm(50).tolist()
    assert sorted(order) == list(range(50))
    assert order != list(range(50))


@pytest.mark.req("C1")
def test_bernoulli(device):
    chances = Tensor([0.0, 1.0, 0.3]).expand(4000, 3).contiguous()
    drawn = chances.bernoulli().numpy()
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert drawn[:, 0].sum() == 0 and drawn[:, 1].sum() == 4000
    assert abs(drawn[:, 2].mean() - 0.3) < 0.04
    assert abs(Tensor.zeros(4000).bernoulli(0.5).mean().item() - 0.5) < 0.04


@pytest.mark.req("C1")
def test_multinomial(device):
    weights = Tensor([0.0, 1.0, 3.0])
    drawn = weights.multinomial(4000, replacement=True).numpy()
    counts = np.bincount(drawn, minlength=3)
    assert counts[0] == 0
    assert abs(counts[2] / 4000 - 0.75) < 0.04
    for row in Tensor([[1.0, 2.0, 3.0, 0.0]]).expand(20, 4).multinomial(3).tolist():
        assert sorted(row) == [0, 1, 2]
    assert weights.multinomial(1).shape == (1,)
    first = [weights.multinomial(2)[0].item() for _ in range(50)]
    assert first.count(2) > first.count(1)


@pytest.mark.req("C1")
def test_in_place_and_like(device):
    x = Tensor.zeros(1000)
    x.uniform_(-2.0, 2.0)
    assert -2.0 <= x.min().item() < -1.5 and 1.5 < x.max().item() <= 2.0
    x.normal_(3.0, 0.1)
    assert abs(x.mean().item() - 3.0) < 0.02
    assert Tensor.rand_like(x).shape == Tensor.randn_like(x).shape == (1000,)


@pytest.mark.req("G10")
@pytest.mark.parametrize("captured", [1, 2, 5])
def test_draws_between_captured_draws_never_repeat_one(captured, device):
    generator, other = Generator(3), Generator(3)
    drawn = pg.jit(lambda: Tensor.rand(4, generator=generator))
    found = []
    for _ in range(4):
        found += [Tensor.rand(4, generator=generator).tolist(), *[drawn().tolist() for _ in range(captured)]]
    assert found == [Tensor.rand(4, generator=other).tolist() for _ in found]


@pytest.mark.req("G10")
@pytest.mark.parametrize("used_before", [False, True])
def test_a_seed_set_inside_a_captured_function_stays_inside_until_it_runs(device, used_before):
    generator = Generator(3)
    if used_before:
        Tensor.rand(2, generator=generator)

    def seeded() -> Tensor:
        generator.manual_seed(5)
        return Tensor.rand(2, generator=generator)

    captured = pg.jit(seeded)
    for _ in range(4):
        assert captured().tolist() == Tensor.rand(2, generator=Generator(5)).tolist()
        expected = Generator(5)
        Tensor.rand(2, generator=expected)
        assert Tensor.rand(2, generator=generator).tolist() == Tensor.rand(2, generator=expected).tolist()


def test_a_saved_state_goes_on_where_it_was_taken(tmp_path: Path) -> None:
    generator = Generator(3)
    Tensor.rand(2, generator=generator)
    pg.save({"draws": generator.get_state(), "all": pg.get_rng_state()}, tmp_path / "state")
    first, other = Tensor.rand(3, generator=generator).tolist(), pg.rand(3).tolist()
    saved = pg.load(tmp_path / "state")
    assert Tensor.rand(3, generator=Generator(9).set_state(saved["draws"])).tolist() == first
    pg.set_rng_state(saved["all"])
    assert pg.rand(3).tolist() == other


def test_a_state_counts_what_a_jitted_function_drew() -> None:
    generator = Generator(3)
    draw = pg.jit(lambda: Tensor.rand(2, generator=generator))
    values = [draw().tolist() for _ in range(4)]
    assert generator.get_state() == (3, 4)
    assert draw().tolist() not in values
    generator.set_state((3, 2))
    assert [draw().tolist() for _ in range(2)] == values[2:]


def test_keys_that_are_worked_out_together_are_those_of_their_draws() -> None:
    generator, others = Generator(42), [Generator(42).set_state((42, draw)) for draw in range(0, 200, 7)]
    found = [Tensor.rand(2, generator=generator).tolist() for _ in range(200)]
    assert found[::7] == [Tensor.rand(2, generator=other).tolist() for other in others]
    generator.set_state((42, 130))
    assert Tensor.rand(2, generator=generator).tolist() == found[130]
    generator.manual_seed(7)
    assert Tensor.rand(2, generator=generator.set_state((7, 130))).tolist() not in found


def test_a_number_of_draws_has_no_end() -> None:
    generator = Generator(3).set_state((2**64 - 1, 2**64 - 66))
    found = [Tensor.rand(1, generator=generator).item() for _ in range(70)]
    assert generator.get_state() == (2**64 - 1, 4)
    assert found[-4:] == [Tensor.rand(1, generator=generator.set_state((2**64 - 1, i))).item() for i in range(4)]


def test_a_draw_brings_its_key_to_the_device_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[object] = []
    from_host = generators.from_host
    monkeypatch.setattr(generators, "from_host", lambda array, *of: brought.append(array) or from_host(array, *of))
    generator = Generator(3)
    Tensor.rand(2, generator=generator)
    brought.clear()
    for _ in range(5):
        Tensor.rand(2, generator=generator)
    assert len(brought) == 5
    draw = pg.jit(lambda: Tensor.rand(2, generator=generator))
    values = [draw().tolist() for _ in range(3)]
    brought.clear()
    values += [draw().tolist() for _ in range(3)]
    assert not brought and generator.get_state() == (3, 12)
    assert values == [Tensor.rand(2, generator=generator.set_state((3, draw))).tolist() for draw in range(6, 12)]


def test_a_state_is_two_numbers() -> None:
    with pytest.raises(ArgumentError, match=r"set_state: a state is what get_state returned, two numbers, got \(1,\)"):
        Generator(1).set_state((1,))


def test_a_copy_of_a_generator_goes_on_from_where_it_stands() -> None:
    generator = pg.Generator(3)
    pg.rand(4, generator=generator)
    twins = [copy.copy(generator), copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    drawn = pg.rand(4, generator=generator).tolist()
    for twin in twins:
        assert twin.initial_seed() == 3 and twin.get_state() == (3, 1)
        assert pg.rand(4, generator=twin).tolist() == drawn


def test_threads_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often they meet, and while one of them reads the state as memory."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")

    def drawn(generator: Generator, reader: int | None) -> list[int]:
        keys = []

        def draw(number: int) -> None:
            for _ in range(30):
                keys.append(generator.next_key("CPU"))
                if number == reader:
                    assert generator.state("CPU").count.op.shape == ()

        in_threads(draw, 6)
        return [int(to_host(key)) for key in keys]

    for turn in range(60):
        generator = Generator(5)
        keys = drawn(generator, reader=None if turn % 2 else 0)
        assert len({*keys}) == len(keys) == 180 and generator.get_state("CPU") == (5, 180)


def test_seeding_asks_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked worker of a loader seeds its generator, which may stand on a device that a child cannot use."""
    drawn = pg.jit(lambda: Tensor.rand(3))
    for _ in range(4):
        drawn(), Tensor.rand(3)

    def refused(*args: object) -> None:
        raise pg.DeviceError("a forked process cannot use the device.")

    with monkeypatch.context() as forked:
        forked.setattr(generators, "from_host", refused)
        pg.manual_seed(7)
    first = [drawn().tolist(), Tensor.rand(3).tolist()]
    pg.manual_seed(7)
    assert [Tensor.rand(3).tolist(), drawn().tolist()] == first


def test_normal_numbers_of_a_size_may_be_a_leaf() -> None:
    weight = pg.normal(0.0, 0.01, size=(3, 2), requires_grad=True)
    (weight * 2).sum().backward()
    assert weight.is_leaf and weight.grad is not None and weight.grad.tolist() == [[2.0, 2.0]] * 3
    with pytest.raises(pg.ArgumentError, match="a result of tensors is not a leaf"):
        pg.normal(pg.zeros(2), 1.0, requires_grad=True)
