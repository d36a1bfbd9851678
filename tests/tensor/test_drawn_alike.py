"""Every device draws the same bits, in and outside of jit, on any number of threads, from any place of memory on."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Generator
from tests.drawn import DRAWS, FILLS, OWN, check_draw
from tests.on_devices import device_params

KEPT: dict[str, list[float]] = {
    "uniform_": [-2.135648727416992, -1.2182291746139526],
    "normal_": [3.041126012802124, 3.1034555435180664],
    "exponential_": [0.4669581651687622, 1.2215896844863892],
    "geometric_": [4.0, 9.0],
    "log_normal_": [2.715953826904297, 7.836113452911377],
    "cauchy_": [-1.0065500736236572, 0.45728981494903564],
    "bernoulli_": [1.0, 0.0],
    "trunc_normal_": [-0.5926979184150696, 0.28310421109199524],
    "multinomial": [699, 180],
    "multinomial without replacement": [69, 898],
}


@pytest.mark.variants
@pytest.mark.req("C1")
@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_has_the_same_bits_as_the_evaluators(name: str, device: str) -> None:
    check_draw(name, device)


@pytest.mark.variants(every=23)
@pytest.mark.req("C1")
@pytest.mark.parametrize("on", device_params("C", "CUDASIM", "OPENCL", "CUDA", "PTX"))
@pytest.mark.parametrize("name", OWN)
def test_what_is_drawn_has_the_same_bits_on_every_device(name: str, on: str) -> None:
    check_draw(name, on)


@pytest.mark.variants(every=3)
@pytest.mark.req("C1")
@pytest.mark.parametrize("name", FILLS)
def test_jit_draws_what_is_drawn_without(name: str, device: str) -> None:
    inside, outside = Generator(3), Generator(3)
    draw = pg.jit(lambda x: FILLS[name](x, inside))
    for _ in range(3):
        expected = FILLS[name](pg.zeros(1003), outside).numpy()
        assert draw(pg.zeros(1003).contiguous()).numpy().tobytes() == expected.tobytes()


@pytest.mark.req("C1")
@pytest.mark.parametrize("name", [name for name in FILLS if name.endswith("_")])
def test_a_part_of_a_tensor_is_filled_as_one_of_its_own(name: str, device: str) -> None:
    """One that begins at an odd place, and columns of a matrix: what an element gets is decided by its number."""
    alone = FILLS[name](pg.zeros(51 * 7), Generator(3)).numpy()
    row, matrix = pg.zeros(51 * 7 + 4), pg.zeros(51, 13)
    FILLS[name](row[3:-1], Generator(3))
    FILLS[name](matrix[:, 5:12], Generator(3))
    np.testing.assert_array_equal(row.numpy(), np.concatenate([[0] * 3, alone, [0]]))
    np.testing.assert_array_equal(matrix[:, 5:12].numpy(), alone.reshape(51, 7))
    assert not matrix[:, :5].any() and not matrix[:, 12:].any()


@pytest.mark.req("C1")
def test_a_seed_keeps_its_numbers(device: str) -> None:
    """What a seed gives today it gives tomorrow, on any machine."""
    found = {name: FILLS[name](pg.zeros(1000), Generator(1)).flatten()[-2:].tolist() for name in KEPT}
    assert found == KEPT
