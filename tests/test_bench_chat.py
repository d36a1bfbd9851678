"""The benchmark of a chat: PyTorch's network of it answers as picograd does, and a row says where answers part."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from bench import chat
from picograd_formats.gguf_file import read_gguf
from tests.chat.small_model import write_model


def test_pytorch_and_picograd_give_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = pytest.importorskip("bench.peers.torch_chat")
    path = write_model(tmp_path / "small.gguf")
    monkeypatch.setattr(chat, "NAME", str(path))
    monkeypatch.setattr(chat, "CONTEXT", 96)
    ours, theirs = chat.picograd_answers(), peer.answers_of(read_gguf(path), 96, 1)
    prompts = [[*range(40, 120)], [*range(200, 240)]]  # one longer than a piece; the second is read anew
    answers = [[*islice(ours(prompt, 9), 9)] for prompt in prompts]
    assert answers == [[*islice(theirs(prompt, 9), 9)] for prompt in prompts] and answers[0] != answers[1]


def test_a_row_has_medians_and_the_token_at_which_answers_part() -> None:
    shared = {"answer": [1, 2, 3], "peak_nbytes": 2**20}
    rounds = [{"read": rate, "written": rate / 10, **shared} for rate in (10.0, 30.0, 99.0)]
    assert chat.row("a", rounds, [1, 2, 4]) == "| a | 30 | 3.0 | 1 MiB | 2 of 3 |"
    assert chat.row("a", rounds, [1, 2, 3]).endswith("| 3 of 3 |")
