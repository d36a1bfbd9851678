"""GGUF files of T5 against the equations of the published network; names of tensors are the gguf package's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_formats.gguf_file import GGUF
from picograd_programs import cli
from picograd_programs.chat.answer import Choice
from picograd_programs.chat.writer import Way, Writer, tokens_of
from picograd_programs.models.seq2seq_folder import read_seq2seq
from picograd_programs.models.seq2seq_gguf import is_seq2seq_file, read_seq2seq_file, seq2seq_config_of, words_of
from tests.models.test_seq2seq import CONFIGS, PIECES, Said, drawn, logits_of, write_folder

gguf = pytest.importorskip("gguf", reason="the gguf package, which writes files and knows the names, is not installed")


def write_file(path: Path, said: Said, **change: Any) -> dict[str, Any]:
    """Writes a file as llama.cpp's converter does, and returns the weights; `change` are entries, None leaves one out."""
    num, weights = len(PIECES), drawn(said)
    for name in ("shared.weight", "lm_head.weight"):
        if name in weights:
            weights[name] = weights[name][:num]
    names = gguf.get_tensor_name_map(next(n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == "t5"), 3)
    metadata: dict[str, Any] = {
        "context_length": 512, "embedding_length": said["d_model"], "feed_forward_length": said["d_ff"],
        "block_count": said["num_layers"], "decoder_block_count": said.get("num_decoder_layers"),
        "attention.head_count": said["num_heads"], "attention.key_length": said["d_kv"],
        "attention.value_length": said["d_kv"], "attention.layer_norm_epsilon": said["layer_norm_epsilon"],
        "attention.relative_buckets_count": said["relative_attention_num_buckets"],
        "attention.layer_norm_rms_epsilon": said["layer_norm_epsilon"], "decoder_start_token_id": 0,
    } | change  # fmt: skip
    writer = gguf.GGUFWriter(path, "t5")
    for key, value in metadata.items():
        if value is not None:
            {int: writer.add_uint32, float: writer.add_float32}[type(value)](f"t5.{key}", value)
    writer.add_tokenizer_model("t5")
    writer.add_token_list(PIECES)
    writer.add_token_scores([-float(n % 7) for n in range(num)])
    writer.add_token_types([3, 3, 2, *[1] * (num - 4), 4])
    writer.add_add_space_prefix(True)
    writer.add_remove_extra_whitespaces(True)
    writer.add_unk_token_id(2)
    writer.add_eos_token_id(1)
    for name, value in weights.items():
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), value.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@pytest.mark.req("D9")
@pytest.mark.parametrize("name", ["T5", "flan-T5"])
def test_a_file_has_the_logits_and_the_tokens_of_the_published_folder(name: str, tmp_path: Path) -> None:
    said, path = CONFIGS[name], tmp_path / "a.gguf"
    weights = write_file(path, said)
    assert is_seq2seq_file(path)
    found, rng = read_seq2seq_file(path, 64), np.random.default_rng(0)
    text, written = rng.integers(3, 30, 40).tolist(), [0, *rng.integers(3, 30, 19).tolist()]
    writer = Writer(found.network, 64)
    assert writer.read(text) == 40
    expected = logits_of(said, weights, text, written).numpy()
    logits = [writer.logits(token, place, 40) for place, token in enumerate(written)]
    np.testing.assert_allclose(np.stack(logits), expected, rtol=1e-3, atol=1e-4)
    write_folder(tmp_path / "folder", said, drawn(said))
    folder = read_seq2seq(tmp_path / "folder", 64)
    for sentence in ("translate: the letter.", "the  er", " a </s> b <extra_id_0>", ""):
        for has_marks in (False, True):
            tokens = tokens_of(folder.tokenizer, sentence, has_marks)
            if not has_marks or "<" not in sentence:  # the folder's gaps take no spaces
                assert tokens_of(found.tokenizer, sentence, has_marks) == tokens
    assert tokens_of(found.tokenizer, "a<extra_id_0>", True)[-2:] == [len(PIECES) - 1, 1]
    way = Way(12, Choice(temperature=0.0, repetition=1.0))
    answers = [[*each.write(each.read(text), source.manner, way)]
               for source, each in ((found, writer), (folder, Writer(folder.network, 64)))]  # fmt: skip
    assert answers[0] == answers[1]


def test_the_command_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.gguf"
    write_file(path, CONFIGS["T5"])
    words = ["chat", "--model", str(path), "--context", "64", "--prompt", "the letter", "--max-tokens", "5"]
    assert cli.main(words) == 0 and "read 9 tokens" in capsys.readouterr().err
    assert cli.main([*words, "--beams", "2"]) == 0
    assert cli.main(["perplexity", "--text", __file__, "--model", str(path)]) == 1
    assert "hint: picograd chat answers with it" in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:3000])
    assert cli.main(words) == 1 and str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attention.head_count": None}, "the file has no attention.head_count"),
        ({"attention.relative_buckets_count": 6}, "attention.relative_buckets_count is 6; a multiple of 4 is needed"),
        ({"attention.value_length": 8}, "attention.value_length is 8; only 16 is supported"),
        ({"decoder_start_token_id": 99}, "decoder_start_token_id is 99; a number of the 35 tokens is needed"),
        ({"expert_count": 8}, "the file says expert_count is 8, which is not supported"),
        ({"feed_forward_length": 47}, "enc.blk.0.ffn_up.weight of (47, 32), it has one of (48, 32)"),
    ],
)
def test_what_is_not_done_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    write_file(tmp_path / "a.gguf", CONFIGS["T5"], **change)
    with pytest.raises(DataError) as caught:
        read_seq2seq_file(tmp_path / "a.gguf", 64)
    assert words in caught.value.fact


def test_another_vocabulary_is_named() -> None:
    with pytest.raises(DataError, match="the file has no embedding_length"):
        seq2seq_config_of(GGUF({"t5.context_length": 512}, {}), 9, 9)
    words = {"model": "t5", "tokens": ["<pad>", "</s>", "<unk>", "a"], "scores": np.zeros(4), "token_type": np.ones(4, int)}
    for change, fact in [
        ({"model": "llama"}, "a tokenizer of kind 'llama'; t5, with scores and kinds, is read"),
        ({"scores": np.zeros(3)}, "a tokenizer of kind 't5'; t5, with scores"), ({"eos_token_id": 9}, "of kind 't5'"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens is abc; a list is needed"),
        ({"precompiled_charsmap": np.ones(9, np.uint8)}, "a precompiled_charsmap of 9 bytes, which is damaged"),
    ]:
        with pytest.raises(DataError) as caught:
            words_of({f"tokenizer.ggml.{key}": value for key, value in (words | change).items()})
        assert fact in caught.value.fact
