"""Small files that ask for much: what folding them would take is known before it is done, and bounded."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

import picograd as pg
import picograd.onnx
from picograd_onnx.operators import control
from picograd_onnx.plan import Planner
from picograd_onnx.read import array_of
from picograd_onnx.values import FOLDED_WORK_MAX, WORK_MAX, is_little
from tests.onnx.build import data, model
from tests.onnx.test_fit import fact_of, one
from tests.onnx.test_hostile import with_functions

pytestmark = pytest.mark.req("C10")
MB = 1 << 20


@pytest.fixture(autouse=True)
def _on_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")


def peak_of(function: Callable[[], object]) -> int:
    """Returns the bytes that Python and NumPy hold at most while a function runs."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- strings ----
def doubled(times: int) -> bytes:
    """Returns a model that joins a string with itself, again and again."""
    nodes = " ".join(f"s{n + 1} = StringConcat(s{n}, s{n})" for n in range(times))
    return data(f'net () => (s{times}) {{ s0 = Constant <value_strings = ["abcdefgh"]> () {nodes} }}')


def test_strings_that_double_are_bounded() -> None:
    assert pg.onnx.load(doubled(10))().tolist() == ["abcdefgh" * 1024]
    facts: list[str] = []
    assert peak_of(lambda: facts.append(fact_of(doubled(33)))) < 64 * MB
    limit = "8388608 elements on the host; at most 4194304 are computed there."
    assert facts == [f"onnx: node 20 (StringConcat): StringConcat: {limit}"]


def test_strings_of_an_initializer_take_their_own_lengths() -> None:
    held = TensorProto(data_type=TensorProto.STRING, dims=[401], string_data=[b"x" * 400_000, *[b"y"] * 400])
    assert peak_of(lambda: array_of(held, "here")) < 4 * MB
    assert array_of(held, "here")[[1, 400]].tolist() == ["y", "y"]


def test_expressions_and_grams_end() -> None:
    texts = np.array(["a" * 40 + "!", "aaa"], object)
    found = pg.onnx.load(one("RegexFullMatch", [texts], pattern="(a+)+$"))()
    assert found.tolist() == [False, True]
    about = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "ngram_counts": [0, 1], "pool_int64s": [2, 1, 3]}
    row = np.array([1, 2, 3], np.int64)
    skipped = one("TfIdfVectorizer", [row], max_skip_count=1 << 60, ngram_indexes=[0, 1], **about)
    assert pg.onnx.load(skipped)().tolist() == [1.0, 1.0]
    far = one("TfIdfVectorizer", [row], max_skip_count=0, ngram_indexes=[0, 1 << 40], **about)
    assert fact_of(far).startswith("onnx: node 0 (TfIdfVectorizer): TfIdfVectorizer: 1 x 1099511627777 elements")


# ---- sizes ----
@pytest.mark.parametrize(
    "build",
    [
        lambda: one("Resize", [np.ones((1, 1, 2), np.float32), None, np.array([1, 1, 1e9], np.float32)]),
        lambda: one("MelWeightMatrix", [np.int64(8), np.int64(1 << 40), np.int64(8000), np.float32(0), np.float32(4000)]),
        lambda: one("Pad", [np.ones(2, np.float32), np.array([1 << 40, 0])], mode="edge"),
        lambda: one("RoiAlign", [np.ones((1, 1, 2, 2), np.float32), np.ones((1, 4), np.float32), np.array([0])],
                    output_height=1 << 40),
        lambda: one("LRN", [np.ones((1, 3, 2), np.float32)], size=1 << 40),
    ],
)  # fmt: skip
def test_sizes_are_known_before_there_are_arrays(build: Callable[[], bytes]) -> None:
    found: list[str] = []

    def run() -> None:
        try:
            found.append(str(pg.onnx.load(build())().shape))
        except pg.DataError as error:
            found.append(error.fact)

    assert peak_of(run) < 8 * MB
    assert "elements on the host; at most 4194304 are computed there." in found[0] or found == ["(1, 3, 2)"]


def test_a_wide_window_over_channels_sums_those_there_are() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    found = pg.onnx.load(one("LRN", [x], size=101, alpha=101.0, beta=1.0, bias=0.0))()
    np.testing.assert_allclose(found.detach().numpy(), x / (x**2).sum(1, keepdims=True), rtol=1e-6)


def test_work_counts_what_lies_between() -> None:
    x = pg.Tensor.ones(1000, 1000)
    assert is_little([x + 1, None, [x]]) and not is_little([pg.Tensor.ones(1).expand(4000, 4000).sum()])
    assert not is_little([(x @ x @ x).sum()]) and WORK_MAX < 1 << 24
    long = np.empty(2, object)
    long[:] = ["x" * (9 * MB)] * 2
    assert not is_little([long]) and is_little([long[:1]])


def test_sequences_have_as_many_pieces_as_can_be_made() -> None:
    text = """net () => (y) <int32[1] one = {1}, int64[1] shape = {1099511627776}, int64 k = {2}>
    { e = Expand(one, shape)  s = SplitToSequence(e, k)  y = SequenceLength(s) }"""
    expected = "1099511627776 elements by 2 must be 1 to 65536 pieces."
    assert fact_of(data(text)) == f"onnx: node 1 (SplitToSequence): SplitToSequence: {expected}"


# ---- loops ----
LOOP = """
net ({inputs}) => (y) <int64 zero = {{0}}, int64 one = {{1}}, int64 most = {{{most}}}, bool yes = {{1}}>
{{ y = Loop ({trips}, yes, zero) <body = step (int64 i, bool going, int64 at) => (bool on, int64 next)
    {{ next = Add(at, one)  on = {condition} }}> }}
"""


@pytest.mark.parametrize("trips", ["", "most"])
def test_loops_without_an_end_are_refused(trips: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def loop(condition: str) -> bytes:
        return data(LOOP.format(inputs="", most=1 << 62, trips=trips, condition=condition))

    asked = f"of {1 << 62} trips" if trips else "without a trip count"
    end = "up to 10000 trips are run."
    fact = f"onnx: node 0 (Loop): Loop: {asked}, its condition still holds after"
    assert fact_of(loop("Identity(going)")) == f"{fact} 1; {end}"
    assert fact_of(loop("Identity(yes)")) == f"{fact} 1; {end}"
    monkeypatch.setattr(control, "TRIPS_MAX", 50)
    assert fact_of(loop("Less(zero, next)")) == f"{fact} 50; up to 50 trips are run."
    assert pg.onnx.load(loop("Less(next, zero)"))().item() == 1


# ---- data in files of their own ----
def external(folder: Path, ranges: list[tuple[int, int]], names: int = 1) -> Path:
    """Returns the path of a model whose tensors are (start, end) in a file of 1 MB."""
    (folder / "w.bin").write_bytes(bytes(MB))
    texts = ", ".join(f"float[1] w{n} = {{0}}" for n in range(len(ranges)))
    adds = " ".join(f"y{n} = Add(x, w{n})" for n in range(len(ranges)))
    found = model(f"net (float[N] x) => (y0) <{texts}> {{ {adds} }}")
    for tensor, (start, end) in zip(found.graph.initializer, ranges):
        tensor.ClearField("float_data")
        tensor.dims[:] = [(end - start) // 4]
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "w.bin", "offset": str(start), "length": str(end - start)}.items():
            tensor.external_data.add(key=key, value=value)
    (folder / "net.onnx").write_bytes(found.SerializeToString())
    return folder / "net.onnx"


def test_external_data_take_no_more_than_their_file(tmp_path: Path) -> None:
    same = external(tmp_path, [(0, MB)] * 30)
    assert peak_of(lambda: pg.onnx.load(same)) < 4 * MB
    held = [*pg.onnx.load(same).named_parameters()]
    assert len({id(tensor) for _, tensor in held}) == 1
    overlapping = external(tmp_path, [(0, MB), (4, MB)])
    with pytest.raises(pg.DataError, match='initializer "w1" overlap in w.bin: the file is shorter than they are'):
        pg.onnx.load(overlapping)
    assert len(pg.onnx.load(external(tmp_path, [(0, MB // 2), (MB // 2, MB)])).state_dict()) == 2


def test_external_data_of_a_file_with_hard_links_are_refused(tmp_path: Path) -> None:
    path = external(tmp_path, [(0, MB)])
    os.link(tmp_path / "w.bin", tmp_path / "other.bin")
    with pytest.raises(pg.DataError, match="w.bin, which has several hard links") as found:
        pg.onnx.load(path)
    assert found.value.hint == "replace the file by a copy."


def test_packed_and_other_element_types_are_read_from_files(tmp_path: Path) -> None:
    for array in (np.arange(8, dtype=np.int16), np.array([True, False]), np.arange(4, dtype=np.float16)):
        (tmp_path / "v.bin").write_bytes(array.tobytes())
        found = model("net () => (y) <int64[1] w = {0}> { y = Identity(w) }")
        tensor = found.graph.initializer[0]
        tensor.CopyFrom(numpy_helper.from_array(array, "w"))
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="v.bin")
        (tmp_path / "net.onnx").write_bytes(found.SerializeToString())
        assert pg.onnx.load(tmp_path / "net.onnx")().tolist() == array.tolist()


def test_calls_of_a_function_share_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []
    plan = Planner._step
    monkeypatch.setattr(Planner, "_step", lambda self, *args: (planned.append(args[-1]), plan(self, *args))[1])
    bodies = [f"{{ c = local.f{n + 1}(a)  b = local.f{n + 1}(c) }}" for n in range(10)]
    net = pg.onnx.load(with_functions(*bodies, "{ b = Neg(a) }"))
    assert len(planned) == 22 and net(pg.Tensor([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_an_error_in_a_function_names_all_calls_on_the_way() -> None:
    net = pg.onnx.load(with_functions("{ c = Neg(a)  b = local.f1(c) }", "{ b = Softmax <axis = 5> (a) }"))
    with pytest.raises(pg.IndexingError) as found:
        net(pg.Tensor([1.0, 2.0]))
    road = "node 0 (f0), function local.f0, node 1 (f1), function local.f1, node 0 (Softmax)"
    assert found.value.fact == f"onnx: {road}: Softmax: axis must be from -1 to 0, got 5."


@pytest.mark.parametrize("node", ["s{n} = Neg(e{n})", "s{n} = ReduceSum <keepdims = 0> (e{n})"])
def test_folding_ends_where_many_steps_ask_for_much(node: str) -> None:
    nodes = " ".join(f"e{n} = Expand(one, shape)  {node.format(n=n)}" for n in range(40))
    outputs = ", ".join(f"s{n}" for n in range(40))
    text = f"net () => ({outputs}) <int32[1] one = {{1}}, int64[2] shape = {{1000, 1000}}> {{ {nodes} }}"
    made = pg.onnx.load(data(text))
    folded = [name for name in made._graph.constants if name.startswith("s")]
    held = sum(value.nbytes for value in made._graph.constants.values())
    assert 1 < len(folded) < 20 and held < FOLDED_WORK_MAX + (32 << 20)
    assert abs(made()[39].numpy()).sum() == 1_000_000
