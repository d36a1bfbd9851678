"""Writes docs/course/names.html: a small trained network that invents names in the browser, without a server.

    python -m tools.names_page            the kernels as picograd writes them now, the weights that the page has
    python -m tools.names_page --train    new weights

The page has no other file: the weights are in it, of 16 bits each, and the forward pass is JavaScript that picograd wrote
of its own kernels (picograd_lab/javascript.py).
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import picograd as pg
from picograd import Tensor, nn
from picograd_lab.javascript import Script, javascript
from picograd_programs.data.names import CHARACTERS, load_names, windows
from tools.pages import ROOT

PAGE = ROOT / "docs" / "course" / "names.html"
BLOCK, FEATURES, HIDDEN = 8, 12, 128
STEPS, BATCH = 6000, 256


def network() -> nn.Sequential:
    """Returns a network of Bengio and others (2003): from BLOCK characters the scores of the next."""
    num = len(CHARACTERS)
    layers = (
        nn.Embedding(num, FEATURES),
        nn.Flatten(),
        nn.Linear(BLOCK * FEATURES, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, num),
    )
    return nn.Sequential(*layers)


def train_once(model: nn.Sequential) -> float:
    """Trains a network on all names, rounds its weights to bfloat16, and returns the loss of the last steps."""
    contexts, targets = map(Tensor, windows(load_names(), BLOCK))
    rng = np.random.default_rng(0)
    optimizer = pg.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = pg.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    @pg.jit
    def step(some: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(contexts[some]), targets[some])
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for _ in range(STEPS):
        losses.append(step(Tensor(rng.integers(0, len(targets), BATCH).astype(np.int32))).item())
        scheduler.step()
    with pg.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return float(np.mean(losses[-500:]))


def script_of(model: nn.Sequential) -> Script:
    """Returns the forward pass: from BLOCK characters and a temperature the probability of each character to come next."""
    pg.realize([*model.parameters()])  # what has a value is a weight; else the page would compute it
    tokens = Tensor(np.zeros((1, BLOCK), np.int32))
    temperature = Tensor(np.ones(1, np.float32))
    with pg.no_grad():
        probabilities = (model(tokens.realize()) / temperature.realize()).softmax(-1)
        return javascript([probabilities], {"tokens": tokens, "temperature": temperature})


# ---- weights in the page ----
def packed(weights: NDArray[np.float32]) -> str:
    """Returns numbers that bfloat16 has exactly: the upper halves of their bits, in base64."""
    halves = (np.ascontiguousarray(weights).view(np.uint32) >> 16).astype("<u2")
    return base64.b64encode(halves.tobytes()).decode()


def unpacked(text: str) -> NDArray[np.float32]:
    """Returns the numbers again.

    >>> unpacked(packed(np.array([1.5, -2.0], np.float32))).tolist()
    [1.5, -2.0]
    """
    halves = np.frombuffer(base64.b64decode(text), "<u2")
    return (halves.astype(np.uint32) << 16).view(np.float32)


def put_weights(model: nn.Sequential, page: str) -> None:
    """Gives a network the weights of a page."""
    found = re.search(r"const packed = (\{.*?\});", page, re.DOTALL)
    assert found is not None, "the page has no weights"
    state = {name: unpacked(text) for name, text in json.loads(found[1]).items()}
    with pg.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(Tensor(state[name].reshape(parameter.shape)))


# ---- the page ----
def page_of(model: nn.Sequential) -> str:
    """Returns the HTML of a page."""
    script = script_of(model)
    state = {name: parameter.detach().numpy().reshape(-1) for name, parameter in model.named_parameters()}
    order = [next(name for name, value in state.items() if _is_same(value, weight)) for weight in script.weights]
    weights = json.dumps({name: packed(value) for name, value in state.items()}, indent=1)
    filled = {
        "PACKED": weights, "ORDER": json.dumps(order), "MODEL": script.text, "CHARACTERS": CHARACTERS, "BLOCK": str(BLOCK),
        "NUM": f"{sum(value.size for value in state.values()):,}", "LENGTH": str(script.text.count("\n")),
    }  # fmt: skip
    return re.sub(r"@([A-Z]+)@", lambda match: filled[match[1]], HTML)


def _is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and bool((one == other).all())


HTML = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A network that invents names</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
  #names { columns: 8rem; padding: 0; list-style: none; font-size: 1.2rem; }
  #bars { display: flex; align-items: flex-end; height: 9rem; gap: 2px; margin: 1rem 0; }
  #bars div { flex: 1; text-align: center; font-size: .75rem; }
  #bars span { display: block; background: #0072b2; }
  input, button { font: inherit; }
</style>
<h1>A network that invents names</h1>
<p>This network has @NUM@ weights and was trained with picograd on 32,033 names. It reads the last @BLOCK@ letters and gives
each letter a probability to come next. What runs here are @LENGTH@ lines of JavaScript that picograd wrote: its own loops,
rendered for one more machine. Nothing is fetched.</p>
<p><label>Temperature <input id="temperature" type="range" min="0.3" max="1.7" step="0.1" value="0.8"></label>
<output id="shown"></output> <button id="more">Ten more</button></p>
<ul id="names"></ul>
<p><label>Your own beginning: <input id="text" value="emm" maxlength="20" autocomplete="off"></label>
What comes next? (&#8901; is the end.)</p>
<div id="bars"></div>
<script>
const characters = "@CHARACTERS@", block = @BLOCK@;
// Each weight is the upper half of the bits of a float32.
const packed = @PACKED@;

@MODEL@
function unpack(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const bits = Uint32Array.from(new Uint16Array(bytes.buffer), half => half << 16);
  return new Float32Array(bits.buffer);
}
const run = model(@ORDER@.map(name => unpack(packed[name])));

// The probability of each character to come after a text.
function next(text, temperature) {
  const padded = (".".repeat(block) + text).slice(-block);
  const tokens = Int32Array.from(padded, c => characters.indexOf(c));
  return run(tokens, Float32Array.of(temperature))[0];
}
function invent(temperature, random) {
  let name = "";
  while (name.length < 20) {
    const probabilities = next(name, temperature);
    let left = random(), chosen = 0;
    while (chosen < characters.length - 1 && (left -= probabilities[chosen]) > 0) chosen++;
    if (chosen == 0) break;
    name += characters[chosen];
  }
  return name;
}
</script>
<script>
const at = id => document.getElementById(id);
function showNames() {
  at("shown").textContent = at("temperature").value;
  at("names").replaceChildren(...Array.from({length: 10}, () => {
    const item = document.createElement("li");
    item.textContent = invent(Number(at("temperature").value), Math.random);
    return item;
  }));
}
function showBars() {
  const text = at("text").value.toLowerCase().replace(/[^a-z]/g, "");
  const probabilities = next(text, 1), most = Math.max(...probabilities);
  at("bars").replaceChildren(...Array.from(probabilities, (probability, i) => {
    const bar = document.createElement("div"), column = document.createElement("span");
    column.style.height = `${7 * probability / most}rem`;
    bar.title = `${(100 * probability).toFixed(1)} %`;
    bar.append(column, i == 0 ? "\\u22c5" : characters[i]);
    return bar;
  }));
}
at("more").onclick = at("temperature").oninput = showNames;
at("text").oninput = showBars;
showNames();
showBars();
</script>
</html>
"""


def main(train: bool = False) -> None:
    """Writes the page of the course that invents names.

    Args:
      train: trains the network again, instead of keeping the weights of the page
    """
    pg.manual_seed(0)
    model = network()
    if train:
        print(f"loss {train_once(model):.3f}")
    else:
        put_weights(model, PAGE.read_text())
    PAGE.write_text(page_of(model))
    print(f"{PAGE.relative_to(ROOT)}: {PAGE.stat().st_size:,} bytes")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.names_page")
