"""Little data in the place of the published sets, so that `picograd train` needs no network and little time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from picograd_programs.data.mnist import Mnist
from picograd_programs.data.names import load_names
from picograd_programs.data.tables import Table
from picograd_programs.data.text import load_text
from picograd_programs.models import bigram, diffusion, digits, names, regression, sentiment, vae

TEXT = "the quick brown fox jumps over the lazy dog.\n" * 30
NAMES = [first + "nn" + last for first in "abcdefghij" for last in ("a", "ie", "y", "o")]


def put_in_place(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Puts little data in the place of the published sets; returns a file of text, written to the folder."""
    rng = np.random.default_rng(0)
    patterns, labels = rng.integers(0, 2, (10, 28, 28)) * 200, rng.integers(0, 10, 120).astype(np.uint8)
    images = (patterns[labels] + rng.integers(0, 56, (120, 28, 28))).astype(np.uint8)
    pictures = Mnist(images[:80], labels[:80], images[80:], labels[80:])
    for module in (digits, vae, diffusion):
        monkeypatch.setattr(module, "load_images", lambda name: pictures)
    for module in (names, bigram):
        monkeypatch.setattr(module, "load_names", lambda: NAMES)
    x = rng.normal(size=(60, 3))
    monkeypatch.setattr(regression, "load_diabetes", lambda: Table(x, x @ [1.0, 2.0, 3.0] + 5.0))
    monkeypatch.setattr(regression, "load_cells", lambda: Table(x, (x[:, 0] > 0).astype(np.float64)))
    words = [("a good film", 2.0), ("good fun", 1.0), ("a bad film", -2.0), ("bad and dull", -1.0)] * 15
    monkeypatch.setattr(sentiment, "load_reviews", lambda: words)
    text = folder / "text"
    text.write_text(TEXT)
    return text


def words_in_place(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The same, with a part of the names and of the text that come with the package, which take more steps to learn."""
    text = put_in_place(monkeypatch, folder)
    for module in (names, bigram):
        monkeypatch.setattr(module, "load_names", lambda: load_names()[::20])
    text.write_text(load_text("shakespeare")[:20_000])
    return text
