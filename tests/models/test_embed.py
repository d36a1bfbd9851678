"""MiniLM's published weights against published figures, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs import cli
from picograd_programs.models import embed
from picograd_programs.models.embed import minilm
from picograd_programs.models.embedder import Embedder, Manner
from tests.helpers import in_full


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    try:
        return minilm()
    except DataError as error:
        pytest.skip(f"the weights of MiniLM are not here: {error.fact.splitlines()[-1]}")


@pytest.mark.req("D6")
@in_full
def test_published_weights_give_published_angles(embedder: Embedder) -> None:
    texts = ["A man is eating food.", "A man is eating a piece of bread.", "The stock market fell.", "word " * 400]
    vectors = embedder.embed(texts)
    # all-MiniLM-L6-v2's model card has this pair among its examples, 0.7553 by the equations above.
    assert vectors[0] @ vectors[1] == pytest.approx(0.7553, abs=1e-3)
    assert vectors[0] @ vectors[2] < 0.2
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(vectors, alone, rtol=1e-3, atol=1e-5)  # whatever it is read together with


class Fake:
    manner = Manner(("mean",))

    def embed(self, texts: list[str], prompt: str | None) -> np.ndarray:
        return np.array([[1.0, 0.0] if "a" in text else [0.6, 0.8] for text in texts], np.float32)


def test_the_command_prints_the_most_alike_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embed, "minilm", Fake)
    (tmp_path / "lines").write_text("a b\n\nc\n")
    assert cli.main(["embed", "a", "--file", str(tmp_path / "lines")]) == 0
    assert capsys.readouterr().out.splitlines() == [" 1.000  a  |  a b", " 0.600  a  |  c", " 0.600  a b  |  c"]
    assert cli.main(["embed", "c", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [0.6, 0.8]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "embed: got 0 sentences; it compares two or more."),
        (["a"], "embed: got 1 sentences"),
        (["--file", "/nowhere"], "--file: /nowhere: cannot be read"),
        (["--file", "BYTES"], "is not UTF-8: byte 1."),
    ],
)
def test_what_cannot_be_compared_is_said(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bytes").write_bytes(b"a\xff")
    assert cli.main(["embed", *(str(tmp_path / "bytes") if word == "BYTES" else word for word in words)]) == 1
    assert said in capsys.readouterr().err
