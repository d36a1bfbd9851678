"""GGUF files of encoders of sentences against the published network's equations; names are the gguf package's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_formats.gguf_file import GGUF
from picograd_programs import cli
from picograd_programs.data.bpe import LETTER_OF
from picograd_programs.models.encoder_gguf import encoder_config_of, read_embedder_file
from tests.models.published import config_of, logits_of, random_weights
from tests.models.published_encoders import TURNING, turning_hidden, turning_weights
from tests.models.test_decoder_gguf import metadata_of, tensors_of
from tests.models.test_encoder_folder import PIECES, TEXTS, Said, Weights, drawn, hidden_of, pooled, said_of

gguf = pytest.importorskip("gguf", reason="the gguf package, which writes files and knows the names, is not installed")


def write_file(path: Path, arch: str, said: Said, weights: Weights, **change: Any) -> None:
    """Writes a file as llama.cpp's converter does; `change` are entries of the metadata, None leaves one out."""
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(number, 3)
    metadata: dict[str, Any] = {
        "context_length": said.get("max_position_embeddings", said.get("n_positions")), "embedding_length": 32,
        "block_count": 3, "feed_forward_length": 48, "attention.head_count": 4, "pooling_type": 1,
        "attention.layer_norm_epsilon": said.get("layer_norm_eps", said.get("layer_norm_epsilon")),
        "attention.causal": False,
    } | ({"rope.freq_base": 1000.0} if arch == "nomic-bert" else {})  # fmt: skip
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (metadata | change).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        if value is not None:
            add[type(value)](f"{arch}.{key}", value)
    writer.add_string("tokenizer.ggml.model", "bert")
    writer.add_array("tokenizer.ggml.tokens", [
        piece if piece[0] == "[" else piece[2:] if piece.startswith("##") else f"\u2581{piece}" for piece in PIECES
    ])  # fmt: skip
    for name, value in weights.items():
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), value.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.req("D6")
@pytest.mark.parametrize("arch", ["bert", "nomic-bert"])
def test_a_file_has_the_vectors_of_the_published_network(arch: str, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    said = said_of("BERT") if arch == "bert" else TURNING["nomic"] | {"vocab_size": len(PIECES)}
    weights = drawn(said) if arch == "bert" else turning_weights(said)
    write_file(path, arch, said, weights)
    for pooling in ("mean", "cls"):
        embedder = read_embedder_file(path, "" if pooling == "mean" else pooling)
        numbers = [embedder.numbers(text) for text in TEXTS]
        equations = hidden_of if arch == "bert" else turning_hidden
        expected = [pooled(equations(said, weights, row).double(), pooling).numpy() for row in numbers]
        expected = [vector / np.linalg.norm(vector) for vector in expected]
        np.testing.assert_allclose(embedder.embed(TEXTS), np.stack(expected), rtol=1e-4, atol=1e-5)
    assert embedder.numbers("ABC a") == [2, 4, 31, 32, 4, 3], "pieces are those of vocab.txt, in lower case"


def test_the_command_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, said = tmp_path / "a.gguf", said_of("BERT")
    write_file(path, "bert", said, drawn(said))
    assert cli.main(["embed", "abc", "a bij", "--model", str(path)]) == 0
    assert "abc  |  a bij" in capsys.readouterr().out
    write_file(path, "bert", said, drawn(said), pooling_type=0)
    assert cli.main(["embed", "abc", "a bij", "--model", str(path)]) == 1
    assert "does not say how vectors are pooled" in capsys.readouterr().err
    assert cli.main(["embed", "abc", "a bij", "--model", str(path), "--pooling", "max"]) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_count": None}, "the file has no block_count"),
        ({"attention.head_count": 5}, "the file says attention.head_count is 5; it must divide the width of 32"),
        ({"attention.causal": True}, "the file says attention.causal is True; only False is supported"),
        ({"expert_count": 8}, "the file says expert_count is 8, which is not supported"),
        ({"feed_forward_length": 47}, "blk.0.ffn_up.weight of (47, 32), it has one of (48, 32)"),
    ],
)
def test_what_is_not_done_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path, said = tmp_path / "a.gguf", said_of("BERT")
    write_file(path, "bert", said, drawn(said), **change)
    with pytest.raises(DataError) as caught:
        read_embedder_file(path)
    assert words in caught.value.fact and str(path) in caught.value.fact


def test_another_network_is_named() -> None:
    with pytest.raises(DataError, match="of the architecture 'mamba'; bert, nomic-bert, llama, .* make vectors"):
        encoder_config_of(GGUF({"general.architecture": "mamba"}, {}))


@pytest.mark.req("D6")
def test_a_decoder_makes_vectors_of_its_last_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said, path = config_of("Qwen 3"), tmp_path / "a.gguf"
    weights = random_weights(said)
    write_decoder(path, said, weights, pooling_type=3)
    embedder = read_embedder_file(path)
    texts = ["over 12", "a", "it is a longer text", ""]
    assert embedder.numbers("a") == [97, 258] and embedder.numbers("") == [258], "the file wants an end"
    vectors, table = embedder.embed(texts), weights["model.embed_tokens.weight"].double().numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    for text, vector in zip(texts, vectors):
        logits = logits_of(said, weights, np.array(embedder.numbers(text)))[-1]  # the table is the output layer, too
        hidden = np.linalg.lstsq(table, logits, rcond=None)[0]
        np.testing.assert_allclose(vector, hidden / np.linalg.norm(hidden), rtol=1e-3, atol=1e-4)
    assert cli.main(["embed", "abc", "a bij", "--model", str(path)]) == 0
    assert "abc  |  a bij" in capsys.readouterr().out
    write_decoder(path, said, weights, add_end=False)
    assert cli.main(["embed", "abc", "a bij", "--model", str(path)]) == 1
    assert "does not say how vectors are pooled" in capsys.readouterr().err
    assert read_embedder_file(path, "mean").numbers("a") == [97]


def write_decoder(path: Path, said: Said, weights: Weights, add_end: bool = True, **change: int) -> None:
    """Writes a file of a decoder, with a tokenizer of bytes."""
    writer = gguf.GGUFWriter(path, "qwen3")
    metadata = metadata_of("qwen3", said) | {f"qwen3.{key}": value for key, value in change.items()}
    for key, value in metadata.items():
        if key != "general.architecture":
            add = {int: writer.add_uint32, float: writer.add_float32}
            add[type(value)](key, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*LETTER_OF, "er", "<|im_start|>", "<|endoftext|>"])
    writer.add_token_types([1] * 257 + [3, 3])
    writer.add_token_merges(["e r"])
    writer.add_eos_token_id(258)
    writer.add_add_eos_token(add_end)
    for name, array in tensors_of("qwen3", said, weights).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
