"""Figures of picograd_lab/plots.py, read back as XML."""

from __future__ import annotations

import xml.etree.ElementTree as tree

import pytest

from picograd.errors import MissingFileError
from picograd_lab.plots import HEIGHT, WIDTH, Axis, Plot, grid

SVG = "{http://www.w3.org/2000/svg}"


def test_a_curve_goes_through_its_points_in_order_and_inside_the_frame() -> None:
    figure = tree.fromstring(Plot("a < b", x="step", y="loss").line([0, 1, 2, 3], [8, 4, 2, 1], "one").text())
    [curve] = [e for e in figure.iter(f"{SVG}polyline") if e.get("class") == "curve"]
    places = [tuple(map(float, pair.split(","))) for pair in curve.attrib["points"].split()]
    assert len(places) == 4 and places == sorted(places, key=lambda place: (place[0], -place[1]))
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)
    assert {"a < b", "step", "loss", "one"} <= {element.text for element in figure.iter(f"{SVG}text")}


def test_equal_factors_are_equally_far_on_a_logarithmic_axis() -> None:
    axis = Axis(1, 10000, True, 0, 400)
    assert [round(axis.at(v)) for v in (1, 10, 100, 10000)] == [0, 100, 200, 400]
    assert axis.ticks() == [1, 10, 100, 1000, 10000]


@pytest.mark.parametrize("low,high", [(0, 1), (-3, 7), (1e-6, 2e-6), (0, 123456), (-0.5, -0.1)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = Axis(low, high, False, 0, 100).ticks()
    assert 3 <= len(ticks) <= 8 and all(low - 1e-12 <= t <= high + 1e-12 for t in ticks)
    assert all(len(f"{t:.6e}".split("e")[0].rstrip("0").replace(".", "").replace("-", "")) <= 3 for t in ticks)


def test_bars_of_two_sets_are_as_high_as_their_values_and_do_not_overlap() -> None:
    figure = tree.fromstring(Plot("bars").bars(["a", "b"], [1, 2], "x").bars(["a", "b"], [4, 3], "y").text())
    bars = [e for e in figure.iter(f"{SVG}rect") if e.get("rx") is None and e.get("x")]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert [round(h / heights[0], 1) for h in heights] == [1, 2, 4, 3]
    edges = sorted((float(bar.attrib["x"]), float(bar.attrib["x"]) + float(bar.attrib["width"])) for bar in bars)
    assert all(right <= left for (_, right), (left, _) in zip(edges, edges[1:]))


def test_a_grid_is_darker_for_a_greater_number() -> None:
    figure = tree.fromstring(grid("heat", [[0, 1], [2, 4]], across=["a", "b"], down=["c", "d"]))
    fills = [e.attrib["fill"] for e in figure.iter(f"{SVG}rect") if e.get("stroke")]
    reds = [int(fill[4:].split(",")[0]) for fill in fills]
    assert reds == [255, 191, 128, 0]


def test_a_grid_with_negative_numbers_is_white_at_zero() -> None:
    figure = tree.fromstring(grid("heat", [[-2, -1, 0, 4]]))
    fills = [e.attrib["fill"] for e in figure.iter(f"{SVG}rect") if e.get("stroke")]
    assert fills == ["rgb(234,174,128)", "rgb(244,215,191)", "rgb(255,255,255)", "rgb(0,114,178)"]


def test_small_cells_have_no_lines() -> None:
    assert grid("picture", [[0, 1]], cell=10).count("stroke=") == 0 < grid("table", [[0, 1]], cell=20).count("stroke=")


def test_wrong_data_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 and 2"):
        Plot("a").line([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="has no data"):
        Plot("a").text()
    with pytest.raises(ValueError, match="logarithmic axis needs positive values, got 0"):
        Plot("a", log="y").line([1, 2], [0, 1]).text()
    with pytest.raises(MissingFileError, match=r"Plot.save: .*\n.*\n  hint: os.makedirs\('no_such_folder'\)"):
        Plot("a").line([1, 2], [1, 2]).save("no_such_folder/a.svg")


@pytest.mark.parametrize("value", [0, 5, -2])
@pytest.mark.parametrize("log", ["", "xy"])
def test_a_single_point_is_drawn(value: float, log: str) -> None:
    if not log or value > 0:
        assert "nan" not in Plot("a", log=log).points([value], [value]).text()
