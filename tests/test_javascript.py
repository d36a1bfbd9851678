"""Functions of tensors as JavaScript, run by Node beside picograd; and the page that invents names in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, UnsupportedOp
from picograd_lab.javascript import ARRAYS, javascript
from tools import names_page

NODE, CHROMIUM = shutil.which("node"), shutil.which("chromium")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not on PATH")
Function = Callable[..., Tensor | list[Tensor]]


def node(text: str) -> str:
    """Runs JavaScript; returns what it prints."""
    assert NODE is not None
    done = subprocess.run([NODE, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def array_text(array: Any) -> str:
    """Returns a typed array as JavaScript."""
    (dtype,) = (each for each in ARRAYS if each.numpy == array.dtype)
    return f"new {ARRAYS[dtype]}({json.dumps(array.reshape(-1).tolist())})"


def results(function: Function, calls: list[list[Any]]) -> list[list[list[float]]]:
    """Returns the outputs of a function, as JavaScript made for the first call gives them, for each call."""
    inputs = {f"x{n}": Tensor(array).realize() for n, array in enumerate(calls[0])}
    made = function(*inputs.values())
    script = javascript(made if isinstance(made, list) else [made], inputs)
    text = f"{script.text}const run = model([{', '.join(map(array_text, script.weights))}]);\n"
    for call in calls:
        given = ", ".join(map(array_text, call))
        text += f"console.log(JSON.stringify(run({given}).map(each => Array.from(each, Number))));\n"
    return [json.loads(line) for line in node(text).splitlines()]


CASES: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "elementwise": (lambda x, y: (x.exp() * y - x.tanh()).maximum(y.sin()), [(4, 5), (4, 5)]),
    "a softmax": (lambda x: x.softmax(1), [(3, 9)]),
    "several results": (lambda x: [x.sum(0), x.mean(1), (x > 0).all(1), x.argmax(1)], [(6, 4)]),
    "a product with an epilogue": (lambda x, y: (x @ y + 1).relu(), [(33, 20), (20, 17)]),
    "movement": (lambda x, y: pg.cat([x.T, y], 1)[::2].flip(0), [(5, 6), (6, 4)]),
    "a layer norm": (lambda x: pg.nn.functional.layer_norm(x, (8,)), [(7, 8)]),
    "a convolution": (lambda x, w: pg.nn.functional.conv2d(x, w, padding=1), [(2, 3, 7, 8), (4, 3, 3, 3)]),
    "an attention": (lambda x: pg.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True), [(2, 6, 5)]),
    "a gradient": (lambda x, y: pg.grad(((x.detach().requires_grad_() @ y) ** 2).sum(), [y])[0], [(4, 3), (3, 2)]),
}


@needs_node
@pytest.mark.parametrize("case", CASES)
def test_javascript_computes_the_same_at_each_call(case: str) -> None:
    function, shapes = CASES[case]
    rng = np.random.default_rng(0)
    calls = [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(2)]
    if case == "a gradient":
        original, function = function, lambda x, y: original(x, y.requires_grad_())
    for found, arrays in zip(results(function, calls), calls):
        made = function(*map(Tensor, arrays))
        for one, tensor in zip(found, made if isinstance(made, list) else [made]):
            expected = tensor.detach().numpy().reshape(-1).astype(np.float64)
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


@needs_node
def test_an_index_outside_is_an_error_of_the_page() -> None:
    table, index = Tensor(np.eye(3, dtype=np.float32)).realize(), Tensor(np.zeros(2, np.int32)).realize()
    script = javascript([table[index]], {"index": index})
    text = f"{script.text}const run = model([{array_text(script.weights[0])}]);\n"
    text += "try { run(Int32Array.of(1, 7)); } catch (error) { console.log(error.name, error.message); }"
    assert node(text).strip() == "RangeError index 7 is outside"


def test_what_has_no_row_says_so() -> None:
    x = Tensor(np.zeros((3, 4), np.float32)).realize()
    with pytest.raises(UnsupportedOp, match="javascript: cannot write BITCAST"):
        javascript([x.sort(1)[0]], {"x": x})
    with pytest.raises(UnsupportedOp, match="a loop over kernels cannot be written"):
        javascript([pg.scan(lambda total, row: ((total @ total).tanh(), row), pg.zeros(4, 4), x)[0]], {"x": x})
    with pytest.raises(UnsupportedOp, match="JavaScript has no array of float16"):
        javascript([x.half() @ x.T.half()], {"x": x})
    with pytest.raises(ArgumentError, match="javascript: no output reads the input 'y'"):
        javascript([x + 1], {"x": x, "y": Tensor([1.0]).realize()})


# ---- the page ----
def trained() -> pg.nn.Sequential:
    """Returns the network of the page."""
    model = names_page.network()
    names_page.put_weights(model, names_page.PAGE.read_text())
    return model


def test_the_page_is_what_picograd_writes_today() -> None:
    page = names_page.page_of(trained())
    assert page == names_page.PAGE.read_text(), "python -m tools.names_page writes it anew"
    assert not re.search(r"https?://|src=|import ", page), "nothing is fetched"


@needs_node
def test_the_page_computes_what_picograd_computes() -> None:
    scripts = re.findall(r"<script>(.*?)</script>", names_page.PAGE.read_text(), re.DOTALL)
    text = scripts[0] + "console.log(JSON.stringify(Array.from(next('emm', 0.5)))); let n = 0;\n"
    text += "console.log(invent(0.5, () => (n = (n * 137 + 71) % 1009) / 1009));"
    probabilities, name = node(text).splitlines()
    tokens = [0] * 5 + [names_page.CHARACTERS.index(letter) for letter in "emm"]
    with pg.no_grad():
        expected = (trained()(Tensor([tokens])) / 0.5).softmax(-1)[0].numpy()
    np.testing.assert_allclose(json.loads(probabilities), expected, rtol=1e-4, atol=1e-7)
    assert re.fullmatch("[a-z]{2,20}", name)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on PATH")
def test_a_browser_shows_ten_names_and_the_next_letters(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    shown = subprocess.run(
        [*command, names_page.PAGE.as_uri()], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert len(re.findall(r"<li>[a-z]*</li>", shown)) == 10
    assert len(re.findall(r'<div title="[\d.]+ %">', shown)) == len(names_page.CHARACTERS)
