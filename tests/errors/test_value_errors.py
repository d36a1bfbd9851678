"""Errors that only values decide: the full text, on every way a plan is run, and what is left afterwards."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, dtypes, nn, optim
from picograd.errors import PicogradError, VerifyError
from picograd.look import watch
from picograd.nn import functional

HERE = os.path.basename(__file__)


def line_with(text: str) -> str:
    """Returns how errors name the first line of this file that contains `text`."""
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    number = next(i for i, line in enumerate(lines, 1) if text in line and "line_with" not in line)
    return f"  at {HERE}:{number}    {lines[number - 1].strip()}"


def table() -> Tensor:
    return Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))


CASES = [
    (
        lambda: table()[Tensor([0, 3])],
        "index: 3 is out of range for axis 0 of length 3 in shape (3, 4).",
        "indices are -3 to 2.",
    ),
    (
        lambda: table()[Tensor([0, -4])],
        "index: -4 is out of range for axis 0 of length 3 in shape (3, 4).",
        "indices are -3 to 2.",
    ),
    (
        lambda: table()[Tensor([0, 1]), Tensor([2, 4])],
        "index: 4 is out of range for axis 1 of length 4 in shape (3, 4).",
        "indices are -4 to 3.",
    ),
    (
        lambda: table().gather(1, Tensor([[0], [1], [-1]])),
        "gather: -1 is out of range for axis 1 of length 4 in shape (3, 4).",
        "indices are 0 to 3; negative ones do not count from the end in gather.",
    ),
    (
        lambda: table().index_select(1, Tensor([0, 4])),
        "index_select: 4 is out of range for axis 1 of length 4 in shape (3, 4).",
        "indices are 0 to 3; negative ones do not count from the end in index_select.",
    ),
    (
        lambda: table().take_along_dim(Tensor([[5], [0], [0]]), 1),
        "take_along_dim: 5 is out of range for axis 1 of length 4 in shape (3, 4).",
        "indices are -4 to 3.",
    ),
    (
        lambda: functional.embedding(Tensor([[0, -1]], pg.int32), table()),
        "embedding: -1 is out of range for axis 0 of length 3 in shape (3, 4).",
        "indices are 0 to 2; negative ones do not count from the end in embedding.",
    ),
    (
        lambda: functional.cross_entropy(table(), Tensor([0, 4, -100])),
        "cross_entropy: target 4 is not one of the 4 classes.",
        "classes are 0 to 3; rows of class -100 (ignore_index) are left out.",
    ),
    (
        lambda: functional.cross_entropy(table(), Tensor([0, -1, 0]), weight=Tensor.ones(4), ignore_index=None),
        "cross_entropy: target -1 is not one of the 4 classes.",
        "classes are 0 to 3.",
    ),
    (
        lambda: functional.nll_loss(table(), Tensor([7, 0, 0], pg.uint8)),
        "nll_loss: target 7 is not one of the 4 classes.",
        "classes are 0 to 3; rows of class -100 (ignore_index) are left out.",
    ),
    (
        lambda: functional.max_unpool2d(Tensor.ones(1, 1, 2, 2), Tensor([[[[0, 16], [3, 5]]]]), 2),
        "max_unpool2d: index 16 is outside of an image of (4, 4).",
        "indices come from max pooling with return_indices=True; output_size is the shape before it.",
    ),
    (
        lambda: functional.max_unpool1d(Tensor.ones(1, 1, 2), Tensor([[[0, -1]]]), 2),
        "max_unpool1d: index -1 is outside of an image of (4,).",
        "indices come from max pooling with return_indices=True; output_size is the shape before it.",
    ),
    *(
        (
            lambda offsets=offsets: functional.embedding_bag(Tensor([0, 1, 2]), table(), Tensor(offsets)),
            "embedding_bag: offsets must begin with 0, never fall, and not exceed the 3 elements of input.",
            "each says where its bag begins.",
        )
        for offsets in ([1, 2], [0, 2, 1], [0, 4])
    ),
    (
        lambda: functional.ctc_loss(Tensor.zeros(4, 1, 3), Tensor([[2, 1]]), [5], [2]),
        "ctc_loss: input_lengths has an element 5.",
        "each must be from 0 to 4.",
    ),
    (
        lambda: functional.ctc_loss(Tensor.zeros(4, 1, 3), Tensor([[2, 1]]), [4], [3]),
        "ctc_loss: target_lengths has an element 3.",
        "each must be from 0 to 2.",
    ),
]
COMPILED = pytest.mark.variants(every=5)


@pytest.mark.req("B6")
@pytest.mark.parametrize(("function", "fact", "hint"), CASES, ids=[case[1][:40] for case in CASES])
@pytest.mark.parametrize("place", ["NUMPY", *(pytest.param(place, marks=COMPILED) for place in ("CPU", "CUDASIM"))])
def test_the_text_names_value_length_and_line(function, fact, hint, place, monkeypatch):
    monkeypatch.setenv("PICOGRAD_DEVICE", place)
    result = function()  # nothing is computed yet
    with pytest.raises(IndexError) as caught:
        (result * 2).tolist()
    assert isinstance(caught.value, pg.IndexingError)
    lines = str(caught.value).split("\n")
    assert [lines[0], *lines[2:]] == [fact, f"  hint: {hint}"]
    _, start = inspect.getsourcelines(function)
    number = int(lines[1].removeprefix(f"  at {HERE}:").split(" ")[0])
    assert number in (start, start + 1)


@pytest.mark.req("B6")
def test_an_index_that_fits_is_as_before(device):
    x = table()
    assert x[Tensor([2, -3])].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    assert functional.cross_entropy(x, Tensor([-100, -100, 3])).item() == pytest.approx(0.44019, abs=1e-5)


@pytest.mark.req("B6")
def test_after_an_error_tensors_are_usable(device):
    x, index = table(), Tensor([0, 3])
    picked = x[index]
    for _ in range(2):
        with pytest.raises(IndexError):
            picked.numpy()
    assert x.sum().item() == 66 and index.tolist() == [0, 3] and x[Tensor([1])].tolist() == [[4, 5, 6, 7]]


@pytest.mark.req("B6")
def test_the_wrong_write_is_undone_and_others_are_not(device):
    x, y = table(), Tensor([1.0])
    x += 1
    y += 1
    x[Tensor([5])] = 0.0
    with pytest.raises(IndexError, match="index: 5 is out of range for axis 0 of length 3"):
        x.numpy()
    assert x.sum().item() == 78 and y.item() == 2


@pytest.mark.req("B6")
@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, 0.1, momentum=0.9), lambda p: optim.AdamW(p, 0.1)])
def test_a_step_with_a_wrong_index_does_not_happen(make, device):
    embedding = nn.Embedding(5, 3)
    optimizer = make([embedding.weight])

    def step(rows: list[int]) -> list[list[float]]:
        optimizer.zero_grad()
        loss = embedding(Tensor(rows)).square().sum()
        loss.backward()
        optimizer.step()
        return embedding.weight.detach().tolist()

    first = step([0, 1])
    state = [t.tolist() for own in optimizer.state.values() for t in own.values()]
    with pytest.raises(IndexError, match="embedding: 5 is out of range") as caught:
        step([0, 5])
    assert str(caught.value).split("\n")[1] == line_with("loss = embedding(Tensor(rows))")
    assert embedding.weight.detach().tolist() == first
    assert [t.tolist() for own in optimizer.state.values() for t in own.values()] == state
    assert step([0, 4]) != first


@pytest.mark.req("B6")
def test_a_result_kept_from_a_failed_step_does_not_fail_the_next(device):
    embedding = nn.Embedding(5, 3)
    optimizer = optim.SGD([embedding.weight], 0.1)
    kept = embedding(Tensor([9])).sum()
    kept.backward()
    with pytest.raises(IndexError):
        optimizer.step()
    optimizer.zero_grad()
    embedding(Tensor([1])).sum().backward()
    optimizer.step()
    with pytest.raises(IndexError, match="embedding: 9"):
        kept.item()


@pytest.mark.req("B6")
def test_gradients_check_too(device):
    """Where only the gradient is computed, its scatter meets the index."""
    weight = Tensor(np.zeros((3, 2), np.float32), requires_grad=True)
    functional.embedding(Tensor([1, 3]), weight).sum().backward()
    with pytest.raises(IndexError, match="embedding: 3 is out of range for axis 0 of length 3") as caught:
        weight.grad.numpy()
    assert str(caught.value).split("\n")[1] == line_with("functional.embedding(Tensor([1, 3]), weight)")
    weight.grad = None  # or the steps of all optimizers fail until this frame, which the error holds, is collected


@pytest.mark.req("B6")
@pytest.mark.req("B9")
def test_replays_of_jit_name_the_line_and_leave_state_alone(device):
    weight = Tensor(np.ones((3, 2), np.float32))

    @pg.jit
    def count(index: Tensor) -> Tensor:
        rows = weight[index]  # the line errors name
        weight.assign(weight + rows.sum())
        return rows

    for _ in range(3):
        count(Tensor([0, 1]))
    before = weight.tolist()
    for _ in range(2):
        with pytest.raises(IndexError, match="index: 4 is out of range") as caught:
            count(Tensor([0, 4]))
        assert str(caught.value).split("\n")[1] == line_with("the line errors name")
        assert weight.tolist() == before
    assert count(Tensor([2, -1])).shape == (2, 2)


@pytest.mark.req("B6")
def test_cached_plans_name_the_line_of_the_graph_that_runs(device):
    """The plan of one line serves the other; each error names its own."""
    x = table()
    first = x[Tensor([0, 1])]  # the first line
    assert first.shape == first.realize().shape
    second = x[Tensor([0, 7])]  # the second line
    with watch() as counts, pytest.raises(IndexError) as caught:
        second.realize()
    assert counts.scheduled == counts.lowered == 0
    assert str(caught.value).split("\n")[1] == line_with("# the second line")


@pytest.mark.req("B6")
def test_binaries_from_disk_name_the_line(tmp_path):
    script = (
        "import picograd as pg, numpy as np\n"
        "from picograd.look import watch\n"
        "x = pg.Tensor(np.ones((3, 4), np.float32))\n"
        "{blank}y = x[pg.Tensor([1, 8])]\n"
        "with watch() as counts:\n"
        "    try:\n"
        "        y.numpy()\n"
        "    except IndexError as error:\n"
        "        print(counts.lowered, str(error).splitlines()[1])\n"
    )
    shown = []
    for blank in ("", "\n\n"):
        path = tmp_path / "user.py"
        path.write_text(script.format(blank=blank))
        environment = {**os.environ, "PICOGRAD_CACHE": str(tmp_path / "cache"), "PICOGRAD_DEVICE": "CPU"}
        done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=True)
        shown.append(done.stdout.strip())
    source = "    y = x[pg.Tensor([1, 8])]"
    assert shown == [f"1   at user.py:4{source}", f"0   at user.py:6{source}"]


@pytest.mark.req("B6")
def test_several_errors_are_one(device):
    """Whatever is wrong in one plan, the first kernel's report is raised; the next is raised when the first is gone."""
    x, y = table(), Tensor(np.ones(2, np.float32))
    a, b = x[Tensor([3])].sum(), y[Tensor([2])].exp().sum()
    with pytest.raises(IndexError, match="index: [23] is out of range"):
        pg.realize([a, b])
    with pytest.raises(IndexError, match="index: 2 is out of range for axis 0 of length 2"):
        b.item()


@pytest.mark.req("B6")
def test_padding_is_not_checked(device):
    """What lies outside a shifted index is never computed, so its values are no error."""
    x, index = Tensor(np.arange(8, dtype=np.float32)), Tensor([6, 7])
    assert (x[index + 0].pad((1, 1))).tolist() == [0, 6, 7, 0]


@pytest.mark.req("B6")
def test_long_vectors_report_the_lane_that_is_wrong(device):
    x, index = Tensor(np.arange(1000, dtype=np.float32)), np.arange(1000)
    for place in (0, 3, 517, 999):
        wrong = index.copy()
        wrong[place] = 1000 + place
        with pytest.raises(IndexError, match=f"index: {1000 + place} is out of range"):
            x[Tensor(wrong)].numpy()
    np.testing.assert_array_equal(x[Tensor(index)].numpy(), np.arange(1000))


@pytest.mark.req("B6")
def test_an_axis_of_symbolic_length_is_checked_by_its_value(device):
    x, n = Tensor(np.arange(20, dtype=np.float32).reshape(10, 2)), pg.Variable("n", 1, 10)
    assert x[: n.bind(4)][Tensor([3, -4])].tolist() == [[6, 7], [0, 1]]
    with pytest.raises(IndexError, match=r"index: 4 is out of range for axis 0 of length n in shape \(n, 2\)\."):
        x[: n.bind(4)][Tensor([3, 4])].numpy()
    assert x[: n.bind(5)][Tensor([3, 4])].tolist() == [[6, 7], [8, 9]]
    with pytest.raises(IndexError, match="index: -6 is out of range"):
        x[: n.bind(5)][Tensor([0, -6])].numpy()


@pytest.mark.parametrize(
    "compute",
    [
        lambda: pg.ones(5, 3)[Tensor([9])],
        lambda: pg.ones(5).gather(0, Tensor([9])),
        lambda: Tensor([1.0, 2.0, 3.0]).expand(5, 3)[Tensor([9])],
        lambda: pg.nn.functional.cross_entropy(pg.zeros(2, 3), Tensor([0, 9])),
    ],
    ids=["index", "gather", "broadcast", "cross_entropy"],
)
def test_an_index_counts_even_where_every_one_gives_the_same(compute, device):
    with pytest.raises(pg.IndexingError, match="9 is"):
        compute().numpy()


def test_an_axis_without_elements_has_no_index(device):
    with pytest.raises(pg.IndexingError, match="index: of any value is out of range for axis 0 of length 0"):
        pg.zeros(0, 3)[Tensor([0])]
    with pytest.raises(pg.IndexingError, match="not one of the 0 classes"):
        pg.nn.functional.cross_entropy(pg.zeros(2, 0), Tensor([0, 1]))
    assert pg.zeros(0, 3)[Tensor([], dtypes.int64)].shape == (0, 3)


def test_a_device_of_no_such_name_is_refused_where_it_is_named(device):
    made = (lambda: pg.zeros(2, device="abacus"), lambda: pg.ones(2).to("abacus"), lambda: Tensor([1], device="abacus"))
    for make in made:
        with pytest.raises(pg.DeviceError, match="ABACUS: this is not a device; the devices are CPU, C, NULL, CUDA, "):
            make()


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickled", "copied"])
@pytest.mark.parametrize(
    "error", [pg.DeviceError("X: is not here.", "use CPU", usable=("CPU",)), VerifyError("after pass p, %1 breaks a rule.")]
)
def test_an_error_reads_the_same_in_another_process(error: PicogradError, again) -> None:
    other = again(error)
    assert type(other) is type(error) and str(other) == str(error) and vars(other) == vars(error)


def test_an_error_of_a_value_reads_the_same_in_another_process(device) -> None:
    for fails in (lambda: pg.ones(3)[Tensor([7])].tolist(), lambda: pg.linalg.cholesky(-pg.eye(2)).tolist()):
        with pytest.raises(PicogradError) as caught:
            fails()
        other = pickle.loads(pickle.dumps(caught.value))
        assert type(other) is type(caught.value) and str(other) == str(caught.value)
        assert (other.line, other.hint) == (caught.value.line, caught.value.hint)
