"""Images of ever other sizes: plans for many heights and widths, with PyTorch's values and gradients.

A height that a stride halves, or that windows cut short, is no polynomial of the image's. An Op that needs two lengths
equal says what it is (`engine/lengths.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import nn
from picograd.engine import realize
from picograd.engine.lengths import Lengths, Root, solve
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, dim_value, floordiv, mul, subtract
from picograd.look import watch
from tests.helpers import forgotten

Shape = tuple[int, ...]
Net = Callable[[Any, Any, dict[str, Any]], Any]  # functional, images, weights
SIZES = ((64, 96), (71, 90), (97, 66), (80, 75), (93, 93), (66, 101), (88, 64), (73, 79), (102, 85), (95, 70))
PLANS_MAX = 8  # for these ten: two of sizes alone, then those for many, of even and odd lengths where they differ
WEIGHTS = {"a": (4, 3, 3, 3), "b": (6, 4, 3, 3), "c": (4, 6, 1, 1), "d": (6, 1, 3, 3)}
LINES = ((4, 3, 5), (4, 4, 3))


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(realize, "PLANS_MIN", 0)
    forgotten()


def strided(F: Any, x: Any, w: dict[str, Any]) -> Any:
    """A residual block at half of the size, with the mean of each channel."""
    first = F.relu(F.conv2d(x, w["a"], stride=2, padding=1))
    second = F.conv2d(first, w["b"], stride=2, padding=1)
    return (F.conv2d(second, w["c"]) + F.conv2d(first, w["c"].transpose(0, 1)[:4, :4], stride=2)).mean((2, 3))


def pooled(F: Any, x: Any, w: dict[str, Any]) -> Any:
    y = F.max_pool2d(F.relu(F.conv2d(x, w["a"], padding=1)), 2)
    return F.adaptive_avg_pool2d(F.avg_pool2d(F.conv2d(y, w["b"]), 3, stride=2, padding=1), (2, 3))


def enlarged(F: Any, x: Any, w: dict[str, Any]) -> Any:
    """Features of two sizes that are added up, and read position by position."""
    large = F.relu(F.conv2d(x, w["a"], stride=2, padding=1))
    small = F.conv2d(F.conv2d(large, w["b"], stride=2, padding=1), w["c"])
    both = large + F.interpolate(small, size=large.shape[-2:], mode="nearest")
    return both.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 2).amax(1)


def bilinear(F: Any, x: Any, w: dict[str, Any]) -> Any:
    small = F.conv2d(x, w["a"], stride=2, padding=1)
    return F.interpolate(small, size=x.shape[-2:], mode="bilinear", align_corners=False)


def averaged(F: Any, x: Any, w: dict[str, Any]) -> Any:
    small = F.conv2d(x, w["a"], stride=2, padding=1)
    rows = F.adaptive_avg_pool2d(F.interpolate(small, size=x.shape[-2:], mode="area"), (None, 3))
    return F.adaptive_max_pool2d(rows * w["c"].sum(), (4, None))


def smoothed(F: Any, x: Any, w: dict[str, Any]) -> Any:
    y = F.interpolate(F.conv2d(x, w["a"], padding=1), size=(24, 40), mode="bilinear", antialias=True)
    return F.interpolate(y, size=x.shape[-2:], mode="bicubic", antialias=True, align_corners=True)


def transposed(F: Any, x: Any, w: dict[str, Any]) -> Any:
    small = F.conv2d(x, w["a"], stride=2, padding=1)
    large = F.conv_transpose2d(small, w["a"], stride=2, padding=1)
    return F.pad(large, (1, 1, 1, 1), mode="reflect")


def grouped(F: Any, x: Any, w: dict[str, Any]) -> Any:
    y = F.conv2d(F.conv2d(x, w["a"], padding=1), w["b"], padding=1)
    return F.hardswish(F.conv2d(y, w["d"], padding=2, dilation=2, groups=6))


def maxima(F: Any, x: Any, w: dict[str, Any]) -> Any:
    y = F.conv2d(x, w["a"], padding=1)
    return F.adaptive_max_pool2d(F.max_pool2d(y, 3, stride=2, padding=1), 4)


RESIZED: tuple[Net, ...] = (enlarged, bilinear, averaged, smoothed)
NETS: dict[str, Net] = {f.__name__: f for f in (strided, pooled, *RESIZED, transposed, grouped, maxima)}


def with_gradients(module: Any, net: Net, image: Any, weights: dict[str, Any]) -> list[Any]:
    x = image.requires_grad_()
    out = net(module.nn.functional, x, weights)
    (out * out).sum().backward()
    return [out.detach(), *[t.grad for t in (x, *weights.values()) if t.grad is not None]]


def close(ours: Any, theirs: Any) -> bool:
    a, b = ours.numpy(), theirs.numpy()
    return bool(a.shape == b.shape and np.abs(a - b).max() <= 2e-5 * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("name", NETS)
def test_sizes_share_plans_with_pytorchs_values_and_gradients(name: str) -> None:
    random = np.random.default_rng(0)
    arrays = {key: random.standard_normal(shape).astype("f") * 0.3 for key, shape in WEIGHTS.items()}
    plans = 0
    for height, width in SIZES:
        image = random.standard_normal((1, 3, height, width)).astype("f")
        ours = {key: pg.tensor(a).requires_grad_() for key, a in arrays.items()}
        theirs = {key: torch.tensor(a, requires_grad=True) for key, a in arrays.items()}
        x = pg.tensor(image).realize()
        with watch() as counts:
            found = with_gradients(pg, NETS[name], x, ours)
            pg.realize(found)
        plans += counts.scheduled
        expected = with_gradients(torch, NETS[name], torch.tensor(image), theirs)
        assert len(found) == len(expected) >= 3
        assert all(map(close, found, expected)), (height, width)
    assert plans <= PLANS_MAX


EIGHTS = ((20, 19), (19, 18), (16, 8), (15, 20), (11, 18), (8, 10), (9, 13), (15, 11), (14, 16), (9, 17), (11, 8), (19, 11))


def deep(F: Any, x: Any, w: dict[str, Any]) -> Any:
    """Five strides one after the other: the last features are small, and alike by chance."""
    for _ in range(5):
        x = F.hardswish(F.conv2d(x, w["e"], stride=2, padding=1))
    return F.conv2d(x, w["f"]).mean((2, 3))


def test_sizes_that_are_multiples_of_eight_have_few_plans() -> None:
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal((3, 3, n, n)).astype("f") * 0.3 for name, n in (("e", 3), ("f", 1))}
    plans = []
    for height, width in EIGHTS:
        image = random.standard_normal((1, 3, 8 * height, 8 * width)).astype("f")
        with watch() as counts:
            found = deep(nn.functional, pg.tensor(image), {name: pg.tensor(a) for name, a in arrays.items()}).realize()
        plans.append(counts.scheduled)
        expected = deep(torch.nn.functional, torch.tensor(image), {name: torch.tensor(a) for name, a in arrays.items()})
        assert close(found, expected), (height, width)
    assert plans == [1, 1, 1] + [0] * (len(EIGHTS) - 3)


def test_a_line_with_a_stride_has_one_plan_for_many_lengths() -> None:
    random = np.random.default_rng(0)
    first, second = (random.standard_normal(shape).astype("f") for shape in LINES)
    plans = []
    for length in (100, 131, 160, 201, 255, 182, 77):
        line = random.standard_normal((2, 3, length)).astype("f")
        found = []
        for module in (pg, torch):
            tensors = [module.tensor(a).requires_grad_() for a in (line, first, second)]
            with watch() as counts:
                y = module.nn.functional.gelu(module.nn.functional.conv1d(tensors[0], tensors[1], stride=2, padding=2))
                module.nn.functional.conv1d(y, tensors[2], stride=3).pow(2).sum().backward()
                found.append([t.grad.detach().clone() for t in tensors])
                if module is pg:
                    pg.realize(found[0])
                    plans.append(counts.scheduled)
        assert all(map(close, *found)), length
    assert sum(plans[4:]) == 0


def test_networks_of_other_channels_do_not_share_a_form() -> None:
    """Two layers of other widths are no lengths that change: their kernels are made for numbers."""
    random = np.random.default_rng(0)
    plans = 0
    for round_ in range(5):
        for channels in (3, 5):
            size = random.integers(64, 128, 2)
            x, w = (random.standard_normal(s).astype("f") for s in ((1, channels, *size), (4, channels, 3, 3)))
            images = pg.tensor(x).realize(), pg.tensor(w).realize()
            with watch() as counts:
                found = nn.functional.conv2d(*images).realize()
            plans += counts.scheduled if round_ > 2 else 0
            assert close(found, torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w)))
    assert plans == 0


SMALL = {  # what an image is too small for, behind others that are not
    "pooling": lambda F, x: F.lp_pool2d(x.abs(), 3.0, 3, stride=2),
    "mirrored": lambda F, x: F.pad(x, (3, 3, 2, 2), mode="reflect"),
    "cut off": lambda F, x: F.pad(x, (-2, -3, 0, 0), mode="replicate"),
}


@pytest.mark.parametrize("name", SMALL)
def test_an_image_that_is_too_small_is_refused_after_many_that_were_not(name: str) -> None:
    for size in ((9, 9), (8, 7), (6, 8), (7, 6)):
        image = np.random.default_rng(0).standard_normal((1, 2, *size)).astype("f")
        found, expected = (SMALL[name](m.nn.functional, m.tensor(image)) for m in (pg, torch))
        assert close(found, expected)
    small = np.zeros((1, 2, 2, 2), "f")
    for module, error in ((pg, pg.ShapeError), (torch, RuntimeError)):
        with pytest.raises(error):
            SMALL[name](module.nn.functional, module.tensor(small))


@pytest.mark.parametrize("sizes", [(2,), (7, 5, 6, 2, 4, 3)])
def test_an_axis_whose_length_stays_is_copied_whatever_the_factor(sizes: Shape) -> None:
    for size in sizes:
        line = np.random.default_rng(0).standard_normal((1, 2, size)).astype("f")
        kinds = (nn.functional, pg), (torch.nn.functional, torch)
        assert close(*[F.interpolate(m.tensor(line), scale_factor=1.3, mode="linear") for F, m in kinds])


def test_windows_that_are_put_back_share_plans() -> None:
    plans = []
    for height, width in ((17, 20), (24, 31), (29, 18), (22, 27), (31, 25), (26, 19)):
        image = np.random.default_rng(0).standard_normal((1, 2, height, width)).astype("f")
        results = []
        for module in (pg, torch):
            F = module.nn.functional
            with watch() as counts:
                columns = F.unfold(module.tensor(image), 3, padding=1)
                results.append(F.fold(columns, (height, width), 3, padding=1) * 1.0)
                if module is pg:
                    results[0].realize()
                    plans.append(counts.scheduled)
        assert close(*results)
    assert sum(plans[3:]) == 0


def test_a_pooled_image_of_symbolic_lengths_with_margins_that_cut_off() -> None:
    """A branch that no length takes divides by nothing."""
    n, m = pg.Variable("n", 4, 30), pg.Variable("m", 4, 30)
    image = np.random.default_rng(0).standard_normal((1, 2, 30, 30)).astype("f")
    cut = pg.tensor(image)[:, :, : n.bind(20), : m.bind(17)], torch.tensor(image[:, :, :20, :17])
    F = nn.functional, torch.nn.functional
    assert close(*[f.max_pool2d(f.pad(x, (2, 0, 2, -1)), 2, (3, 2), (1, 0)) for f, x in zip(F, cut)])


# ---- what an Op says of lengths ----
def learned(*samples: Shape) -> tuple[Lengths, dict[int, Op]]:
    """Returns what is known after some graphs, and its symbolic integers."""
    lengths = Lengths(len(samples[0]))
    found = [lengths.sizes(sample, "n") for sample in samples][-1]
    assert found is not None and lengths.solution is not None
    shown = {int(str(dim.arg[0])[1:]): dim for dim in found.dims if isinstance(dim, Op) and not dim.src}
    return lengths, shown


def test_a_quotient_is_what_an_op_needs_it_to_be() -> None:
    lengths, symbols = learned((9, 5), (20, 10), (33, 17))
    small, large = (symbols[i] for i in range(2))
    lengths.refuse([(small, floordiv(add(large, 1), 2))])
    found = lengths.sizes((41, 21), "n")
    assert found is not None and found.values == {"n1": 41}
    another = lengths.sizes((41, 22), "n")  # a sample by which the two are apart
    assert another is not None and another.values == {"n0": 22, "n1": 41}


def test_a_product_is_divided_by_what_is_beside_the_unknown_length() -> None:
    lengths, symbols = learned((50, 7, 8), (61, 19, 20), (80, 4, 4))
    by_value = {op.arg[0]: op for op in symbols.values()}
    assert lengths.solution is not None
    places = {root.place: by_value[f"n{i}"] for i, root in lengths.solution.roots.items()}
    lengths.refuse([(mul(mul(places[2], places[0]), 3), mul(mul(floordiv(add(places[1], 1), 2), places[0]), 6))])
    assert lengths.solution is not None
    assert len(lengths.solution.roots) == 2


def test_a_relation_that_other_graphs_contradict_is_none() -> None:
    """An Op that has its operands exchanged needs a length to be 12, which was 15 before."""
    lengths, symbols = learned((9, 12), (15, 12), (12, 12))
    (n,) = symbols.values()
    lengths.refuse([(n, 12)])
    assert lengths.solution is None and lengths.sizes((12, 12), "n") is None


def test_two_lengths_with_the_product_of_two_quotients_are_these() -> None:
    lengths, symbols = learned((9, 14, 3, 7), (20, 9, 6, 4), (33, 17, 11, 8))
    height, width, rows, columns = (next(s for s in symbols.values() if lengths.kept[(33, 17, 11, 8)].values[s.arg[0]] == n)
                                    for n in (33, 17, 11, 8))  # fmt: skip
    lengths.refuse([(mul(rows, columns), mul(floordiv(height, 3), floordiv(width, 2)))])
    found = lengths.sizes((41, 30, 13, 15), "n")
    assert found is not None
    assert len(found.values) == 3
    lengths.refuse([(mul(found.dims[2], found.dims[3]), mul(floordiv(found.dims[0], 3), floordiv(found.dims[1], 2)))])
    found = lengths.sizes((41, 30, 13, 15), "n")
    assert found is not None
    assert sorted(found.values.values()) == [30, 41]


def test_a_guess_that_an_op_contradicts_is_given_up() -> None:
    """Halves and quarters of 20, 19 and 16 elements, rounded up, are 2 n and n."""
    lengths, _ = learned((20, 10, 5), (19, 10, 5), (16, 8, 4))
    for of in (2, 2, 4):  # the guess is given up, then the half is known, then the quarter
        assert (found := lengths.sizes((16, 8, 4), "n")) is not None
        whole, half, quarter = found.dims
        lengths.refuse([(half if of == 2 else quarter, floordiv(add(whole, of - 1), of))])
    found = lengths.sizes((9, 5, 3), "n")
    assert found is not None and [*found.values.values()] == [9]


def test_small_numbers_are_no_formulas_by_chance() -> None:
    """(5, 5, 2) is 3 n - 10 of (5, 5, 4), as every pair of two numbers is something of another."""
    samples = [(5, 5), (5, 5), (4, 2)]
    solution = solve(samples, 2)
    assert solution is not None and len(solution.roots) == 2


@pytest.mark.parametrize(("most", "plans"), [(1 << 40, 0), (1 << 20, 1)], ids=["wide", "close"])
def test_images_of_large_values_have_closer_bounds(most: int, plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan for 64 to 4095 pixels, or one for 64 to 127; nothing is planned twice for it."""
    monkeypatch.setattr(realize, "WIDE_NBYTES", most)
    rng, found = np.random.default_rng(0), []
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    for size in ((64, 96), (71, 90), (97, 66), (80, 75), (130, 75)):
        x = rng.standard_normal((2, 3, *size)).astype(np.float32)
        with watch() as counts:
            y = pg.nn.functional.conv2d(pg.Tensor(x), pg.Tensor(w), stride=2).relu().numpy()
        np.testing.assert_allclose(y, torch.conv2d(torch.tensor(x), torch.tensor(w), stride=2).relu(), rtol=1e-4, atol=1e-5)
        found.append(counts.scheduled)
    assert found[2:] == [1, 0, plans]


def test_images_have_the_bounds_of_the_largest_multiple() -> None:
    samples = [(17, 136), (9, 72), (20, 160)]
    for has_windows, bounds in ((False, ((16, 31),)), (True, ((8, 511),))):
        lengths = Lengths(2, has_windows=has_windows)
        found = [lengths.sizes(sample, "n") for sample in samples][-1]
        assert found is not None and found.key[1] == bounds  # type: ignore[index]


def test_lengths_that_are_even_in_all_graphs_are_shown_as_twice_another() -> None:
    lengths, symbols = learned((8,), (14,), (20,))
    (n,) = symbols.values()
    lengths.refuse([(n, mul(floordiv(n, 2), 2))])
    assert lengths.solution is not None and lengths.solution.roots == {0: Root(0, 2)}
    assert lengths.sizes((16,), "n") is not None and len(lengths.samples) == 3
    found = lengths.sizes((15,), "n")  # not even that, it turns out
    assert found is not None and lengths.solution.roots == {0: Root(0)}


def test_a_length_is_a_multiple_of_no_more_than_an_op_needs() -> None:
    """Sizes 64, 96 and 128 of a U-Net of three levels: multiples of 32 so far, and of 8 for its joins."""
    lengths = Lengths(1, has_windows=True)
    for height in (64, 96, 128):
        sizes = lengths.sizes((height,), "length")
    assert sizes is not None
    (height,) = sizes.dims
    lengths.refuse(((floordiv(height, 4), mul(floordiv(height, 8), 2)),))
    assert lengths.solution is not None and lengths.solution.roots == {0: Root(0, 8)}
    assert all(lengths.sizes((height,), "length") is not None for height in (80, 72, 160)) and len(lengths.samples) == 3


def test_a_length_that_no_op_tells_of_is_refused_after_some_graphs() -> None:
    lengths = Lengths(1)
    for n in range(5, 40, 3):
        found: Any = lengths.sizes((n,), "n")
        if found is not None:
            lengths.refuse()
    assert lengths.is_refused


def test_equal_quotients_are_the_same_op() -> None:
    n = Op(OpCode.VARIABLE, pg.int64, (), ("n", 1, 1000))
    halves = floordiv(add(floordiv(add(n, 1), 2), 1), 2)
    pairs = [
        (halves, floordiv(add(n, 3), 4)),
        (add(floordiv(subtract(n, 1), 2), 1), floordiv(add(n, 1), 2)),
        (add(floordiv(add(n, 9), 4), 1), add(floordiv(add(n, 1), 4), 3)),
    ]
    for a, b in pairs:
        assert a is b
    assert [dim_value(halves, {"n": i}) for i in range(1, 50)] == [((i + 1) // 2 + 1) // 2 for i in range(1, 50)]


def test_bounds_leave_out_no_length_that_a_remainder_allows() -> None:
    """The rest of a length that is cut in fours, 2 or 3, neither grows nor falls with the length."""
    lengths, symbols = learned((22, 2), (35, 3), (43, 3))
    rest, whole = (symbols[i] for i in range(2))
    lengths.refuse([(rest, subtract(whole, mul(floordiv(whole, 4), 4)))])
    for n in (34, 62, 38, 63, 47):
        found = lengths.sizes((n, n % 4), "n")
        assert found is not None and found.values == {"n1": n}
        (symbol,) = [op for op in found.dims if isinstance(op, Op) and op.code is OpCode.VARIABLE]
        assert symbol.arg[1] <= n <= symbol.arg[2]
