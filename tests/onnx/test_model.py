"""Models that were read behave as modules: called, differentiated, trained, captured, saved."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest

import picograd as pg
import picograd.onnx
from picograd import Tensor
from picograd_onnx import run, values
from picograd_onnx.operators.movement import number_range
from tests.onnx.build import NET, data

pytestmark = pytest.mark.req("C10")


@pytest.fixture
def net() -> pg.onnx.Model:
    return picograd.onnx.load(data(NET))


X = np.array([[1.0, 2.0], [-3.0, 0.5]], np.float32)
W1 = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
Y = np.maximum(X @ W1 + np.array([0.5, 0.25, -1], np.float32), 0) @ np.array([[1], [2], [3]], np.float32)


def test_importing_picograd_does_not_import_onnx() -> None:
    code = "import sys, picograd; assert 'onnx' not in sys.modules; picograd.onnx.load; assert 'onnx' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_model_is_called_in_order_or_by_name(net) -> None:
    np.testing.assert_allclose(net(Tensor(X)).detach().numpy(), Y)
    np.testing.assert_allclose(net(x=X).detach().numpy(), Y)
    assert [(entry.name, entry.shape) for entry in (*net.inputs, *net.outputs)] == [("x", ("N", 2)), ("y", ("N", 1))]
    assert repr(net) == "Model(x -> y)"


def test_it_is_loaded_by_path_too(tmp_path) -> None:
    (tmp_path / "net.onnx").write_bytes(data(NET))
    np.testing.assert_allclose(picograd.onnx.load(tmp_path / "net.onnx")(X).detach().numpy(), Y)


def test_float_initializers_are_parameters_with_gradients(net) -> None:
    assert [name for name, _ in net.named_parameters()] == ["w1", "b1", "w2"]
    net(Tensor(X)).sum().backward()
    hidden = X @ W1 + np.array([0.5, 0.25, -1], np.float32)
    np.testing.assert_allclose(dict(net.named_parameters())["w2"].grad.numpy()[:, 0], np.maximum(hidden, 0).sum(0))
    slope = (hidden > 0) * np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(dict(net.named_parameters())["w1"].grad.numpy(), X.T @ slope)


def test_a_model_is_trained_and_its_state_restored(net) -> None:
    optimizer, before = pg.optim.SGD(net.parameters(), lr=0.01), {k: v.numpy() for k, v in net.state_dict().items()}

    @pg.jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - 1.0).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(Tensor(X)).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    net.load_state_dict({name: Tensor(value) for name, value in before.items()})
    np.testing.assert_allclose(net(X).detach().numpy(), Y)


def test_shapes_that_are_computed_are_numbers_under_jit() -> None:
    text = """
    flat (float[N, C, 4] x) => (float[N, K] y) <int64[1] last = {-1}, int64 zero = {0}, int64[1] axes = {0}>
    { shape = Shape(x)  n = Gather(shape, zero)  n1 = Unsqueeze(n, axes)
      target = Concat <axis = 0> (n1, last)  y = Reshape(x, target) }
    """
    model = picograd.onnx.load(data(text))
    captured = pg.jit(lambda x: model(x))
    for length in (2, 3, 2):
        assert captured(Tensor.ones(length, 3, 4)).shape == (length, 12)


def test_positions_that_depend_on_a_shape_are_the_same_tensor_in_each_trace() -> None:
    text = """
    rows (float[N, 3] x) => (float[N, 3] y) <int64 zero = {0}, int64 one = {1}, float[9, 3] table = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26}>
    { shape = Shape(x)  n = Gather(shape, zero)  places = Range(zero, n, one)  rows = Gather(table, places)
      y = Add(x, rows) }
    """
    model = picograd.onnx.load(data(text))
    captured = pg.jit(lambda x: model(x))
    for length in (4, 4, 4, 2):
        expected = 1 + np.arange(27, dtype=np.float32).reshape(9, 3)[:length]
        np.testing.assert_array_equal(captured(Tensor.ones(length, 3)).detach().numpy(), expected)


def test_a_branch_that_values_decide_runs_eagerly_and_is_refused_under_jit() -> None:
    text = """
    either (bool c, float[2] x) => (float[2] y)
    { y = If (c) <then_branch = yes () => (float[2] t) { t = Add(x, x) },
                  else_branch = no () => (float[2] e) { e = Neg(x) }> }
    """
    model = picograd.onnx.load(data(text))
    x = Tensor([1.0, 2.0])
    assert model(Tensor(True), x).tolist() == [2.0, 4.0] and model(Tensor(False), x).tolist() == [-1.0, -2.0]
    with pytest.raises(pg.JitError, match=r"onnx: node 0 \(If\): jit: numpy\(\) asks for a value"):
        pg.jit(lambda c, x: model(c, x))(Tensor(True), x)


SCAN = """
sums (float[2] start, float[T, 2] xs) => (float[2] last, float[T, 2] all)
{ last, all = Scan <num_scan_inputs = 1, body = step (float[2] a, float[2] b) => (float[2] c, float[2] d)
    { c = Add(a, b)  d = Mul(c, b) }> (start, xs) }
"""


def test_a_scan_is_one_loop_and_has_gradients() -> None:
    model = picograd.onnx.load(data(SCAN))
    xs = Tensor(np.arange(6, dtype=np.float32).reshape(3, 2), requires_grad=True)
    last, rows = model(Tensor([1.0, 1.0]), xs)
    assert last.tolist() == [7.0, 10.0]
    np.testing.assert_array_equal(rows.detach().numpy(), [[0, 2], [6, 15], [28, 50]])
    last.sum().backward()
    assert xs.grad.tolist() == [[1.0, 1.0]] * 3
    few, many = (pg.count_ops(model(Tensor([1.0, 1.0]), Tensor.ones(n, 2))[0]) for n in (3, 300))
    assert few == many


def test_statistics_and_scales_are_no_parameters() -> None:
    text = """
    norm (float[N, 2, 4] x) => (float[N, 2, 8] y) <float[2] scale = {1, 2}, float[2] bias = {0, 1}, float[2] mean = {0, 0},
      float[2] var = {1, 1}, float[3] scales = {1, 1, 2}>
    { n = BatchNormalization(x, scale, bias, mean, var)  y = Resize(n, , scales) }
    """
    model = picograd.onnx.load(data(text))
    assert [name for name, _ in model.named_parameters()] == ["scale", "bias"]
    assert [name for name, _ in model.named_buffers()] == ["mean", "var"]
    assert model(Tensor.ones(1, 2, 4)).shape == (1, 2, 8)


def test_functions_of_the_model_stand_for_their_bodies() -> None:
    text = """
    uses (float[2] x) => (float[2] y) { y = local.scaled <by = 3.0> (x) }
    <domain: "local", opset_import: ["": 21]>
    scaled <by> (a) => (b) { k = Constant <value_float: float = @by> ()  b = Mul(a, k) }
    """
    model = picograd.onnx.load(data(text, '<ir_version: 10, opset_import: ["": 21, "local": 1]>'))
    assert model(Tensor([1.0, 2.0])).tolist() == [3.0, 6.0]


def test_bodies_made_for_the_shapes_of_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAX_BODIES", 2)
    text = "normed (float[N, 4] x, float[4] k) => (float[N, 4] y) { y = RMSNormalization(x, k) }"
    model = picograd.onnx.load(data(text, '<ir_version: 10, opset_import: ["": 23]>'))
    for length in (1, 2, 3, 1, 4):
        np.testing.assert_allclose(model(Tensor.full((length, 4), 3.0), Tensor.ones(4)).numpy(), 1.0, rtol=1e-5)
        assert len(model._run._bodies) <= 2


def test_an_initializer_that_is_an_input_too_is_a_default() -> None:
    text = "sum (float[2] x, float[2] k) => (float[2] y) <float[2] k = {1, 2}> { y = Add(x, k) }"
    model = picograd.onnx.load(data(text))
    assert model(Tensor([1.0, 1.0])).tolist() == [2.0, 3.0]
    assert model(Tensor([1.0, 1.0]), k=Tensor([5.0, 5.0])).tolist() == [6.0, 6.0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda net: net(), pg.ArgumentError, "onnx: the inputs x are missing."),
        (lambda net: net(X, X), pg.ArgumentError, "onnx: the model takes 1 inputs (x), got 2."),
        (lambda net: net(z=X), pg.ArgumentError, "onnx: 'z' is not an input; the model takes x."),
        (lambda net: net(X, x=X), pg.ArgumentError, "onnx: 'x' is given twice; the model takes x."),
        (lambda net: net(X[0]), pg.ShapeError, "onnx: input 'x' must have the shape (N, 2), N = 2, got (2,)."),
        (lambda net: net(X[:, :1]), pg.ShapeError, "onnx: input 'x' must have the shape (N, 2), N = 2, got (2, 1)."),
        (lambda net: net(X.astype(int)), pg.DTypeError, "onnx: input 'x' must be float, got int64."),
    ],
)
def test_inputs_that_do_not_fit_are_refused(net, call, error, text) -> None:
    if text is None:
        assert call(net).shape == (1, 1)
        return
    with pytest.raises(error) as found:
        call(net)
    assert str(found.value).split("\n  at ")[0] == text


def test_an_error_inside_says_which_node_it_was() -> None:
    model = picograd.onnx.load(data("add (float[N] a, float[M] b) => (float[K] c) { c = Add(a, b) }"))
    with pytest.raises(pg.ShapeError) as found:
        model(Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0]))
    assert str(found.value).startswith("onnx: node 0 (Add): add: ")
    mixed = picograd.onnx.load(data("add (float[N] a, b) => (c) { c = Add(a, b) }"))
    with pytest.raises(pg.DTypeError) as found:
        mixed(Tensor([1.0]), Tensor([1]))
    fact = str(found.value).split("\n")[0]
    assert fact == "onnx: node 0 (Add): Add: inputs A (float) and B (int64) must have one element type."


def test_cpu_and_evaluator_agree(monkeypatch) -> None:
    results = []
    for device in ("CPU", "NUMPY"):
        monkeypatch.setenv("PICOGRAD_DEVICE", device)
        results.append(picograd.onnx.load(data(NET))(Tensor(X)).detach().numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "error", "text"),
    [
        ('t = Constant <value_strings = ["I"]> () '
         'y = StringNormalizer <case_change_action = "LOWER", locale = "tr_TR"> (t)',
         pg.UnsupportedOp, "StringNormalizer: upper and lower case of locale 'tr_TR' are not supported."),
        ("i = Unsqueeze(x, z)  y = ConvTranspose <kernel_shape = [3]> (i, i)",
         pg.ShapeError, "ConvTranspose: kernel_shape [3] is not that of the weights, (1, 2, 2)."),
    ],
)  # fmt: skip
def test_what_an_attribute_says_is_done_or_refused(nodes: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as found:
        graph = f"said (float[2, 2] x) => (y) <int64[1] z = {{0}}> {{ {nodes} }}"
        picograd.onnx.load(data(graph))(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert text in str(found.value)


def test_a_range_of_16_bit_floats_is_computed_in_float32() -> None:
    numbers = (np.array(n, np.float16) for n in (0, 3, 1))
    with pytest.raises(pg.UnsupportedOp, match=r"Range: stash_type 11 of float16 is not supported; 1, float32, is\."):
        number_range(*numbers, stash_type=11)


def test_pooling_gives_the_gradient_to_the_first_of_equal_elements() -> None:
    text = "pool (float[1, 1, 4] x) => (a, b) { a = MaxPool <kernel_shape = [2]> (x)  b = GlobalMaxPool(x) }"
    x = Tensor([[[2.0, 2.0, 1.0, 1.0]]], requires_grad=True)
    windows, whole = picograd.onnx.load(data(text))(x)
    (windows.sum() + whole.sum()).backward()
    assert x.grad.tolist() == [[[2.0, 1.0, 1.0, 0.0]]]


def test_tensors_of_known_arrays_are_few_in_bytes(monkeypatch) -> None:
    monkeypatch.setattr(values, "MAX_FIXED_NBYTES", 4000)
    kept = [values.fixed(np.full(500, number, np.float32)) for number in range(5)]
    assert values.fixed(np.full(500, 4, np.float32)) is kept[4]
    assert values.fixed(np.full(500, 0, np.float32)) is not kept[0]
    assert sum(tensor.nbytes for tensor in values._FIXED.values()) <= 4000


def test_models_are_copied_and_pickled(net) -> None:
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(copied(Tensor(X)).detach().numpy(), net(Tensor(X)).detach().numpy())
        with pg.no_grad():
            for parameter in copied.parameters():
                parameter.zero_()
        assert not copied(Tensor(X)).any().item() and net(Tensor(X)).any().item()


def test_lengths_that_an_exporter_does_not_know_may_be_any() -> None:
    """Paddle's writes -1, and "?" for each of several."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [-1, "?", "?", "N", "N"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = picograd.onnx.load(onnx.helper.make_model(graph).SerializeToString())
    assert model(Tensor.ones(2, 3, 4, 5, 5)).shape == (2, 3, 4, 5, 5)
    with pytest.raises(pg.ShapeError, match=r"must have the shape \(\?, \?, \?, N, N\), N = 5, got \(2, 3, 4, 5, 6\)"):
        model(Tensor.ones(2, 3, 4, 5, 6))
