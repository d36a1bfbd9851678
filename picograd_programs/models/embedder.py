"""`picograd embed`: embeddings of texts by published sentence encoders; the angle between two measures similarity.

    prompt + text -> tokens -> the network's output at each position -> one vector: pooling -> layers -> length 1

A folder of sentence-transformers describes these steps: modules.json names the parts, each with its configuration. The
network is an encoder, or a decoder with the output of its last token.

Source: Reimers, Gurevych 2019, arXiv:1908.10084 (pooling); Muennighoff 2022, arXiv:2202.08904 (weighted by position);
       sentence-transformers, the files that `SentenceTransformer.save` writes.

Letters: B texts, T positions, C features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd.errors import ArgumentError, DataError, FileError
from picograd.nn import functional as F
from picograd.record import Record
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.bpe import Tokenizer
from picograd_programs.data.published import map_published
from picograd_programs.data.vocabulary import json_in
from picograd_programs.models.architectures import ARCHITECTURES
from picograd_programs.models.decoder import Decoder, Weights
from picograd_programs.models.decoder_folder import packed, read_folder
from picograd_programs.models.encoder import Encoder
from picograd_programs.models.encoder_folder import ENCODERS, read_encoder
from picograd_programs.models.entries import NEEDED, Entries

LONGEST = 8192  # largest number of tokens of a text, even if a file allows more
TOGETHER = 32  # texts per batch
Pool = Callable[[Tensor, Tensor, Tensor], Tensor]
POOLS: dict[str, Pool] = {  # hidden (B, T, C), mask of text (B, T, 1), position (T, 1) -> (B, C)
    "cls": lambda hidden, is_text, place: hidden[:, 0],
    "max": lambda hidden, is_text, place: hidden.where(is_text, -np.inf).max(1).values,
    "mean": lambda hidden, is_text, place: (hidden * is_text).sum(1) / is_text.float().sum(1),
    "mean_sqrt_len": lambda hidden, is_text, place: (hidden * is_text).sum(1) / is_text.float().sum(1).sqrt(),
    "weightedmean": lambda hidden, is_text, place: (hidden * is_text * place).sum(1) / (is_text * place).sum(1),
    "lasttoken": lambda hidden, is_text, place: (hidden * (place == is_text.int().sum(1, keepdim=True))).sum(1),
}
OF_TOKENS = {f"pooling_mode_{name}_tokens": name for name in POOLS if name not in ("cls", "lasttoken")}
MODES = {"pooling_mode_cls_token": "cls", **OF_TOKENS, "pooling_mode_lasttoken": "lasttoken"}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Tanh": Tensor.tanh, "Identity": lambda x: x, "ReLU": F.relu, "GELU": F.gelu, "SiLU": F.silu, "Sigmoid": Tensor.sigmoid,
}  # fmt: skip


class Manner(Record, eq=False):
    """The steps from the output of a network to a vector, and the prefixes of texts.

    pools:    keys of POOLS, whose vectors are concatenated
    layers:   layers after pooling
    longest:  largest number of tokens of a text; the rest is dropped
    lowers:   texts are converted to lower case
    prompts:  prefixes of texts, by name
    default:  prefix if none is named
    """

    pools: tuple[str, ...]
    layers: tuple[Callable[[Tensor], Tensor], ...] = ()
    longest: int = LONGEST
    lowers: bool = False
    prompts: Mapping[str, str] = {}
    default: str = ""


class Embedder:
    """A network that computes vectors of texts.

    Args:
      network:    an Encoder, or a Decoder
      tokenizer:  its tokenizer
      manner:     steps from its output to vectors
    """

    def __init__(self, network: Encoder | Decoder, tokenizer: Tokenizer, manner: Manner):
        self.network, self.tokenizer, self.manner = network, tokenizer, manner
        self.longest = min(manner.longest, longest_of(network))
        self.vectors_of = jit(self._vectors)

    def _vectors(self, tokens_BT: Tensor, is_text_BT: Tensor) -> Tensor:
        """Returns vectors (B, C) of tokens (B, T), with a mask that is False for padding (B, T)."""
        hidden_BTC = self.network.hidden(tokens_BT, is_text_BT)
        place_T1 = Tensor(np.arange(1, tokens_BT.shape[1] + 1, dtype=np.int32)[:, None])
        parts = [POOLS[name](hidden_BTC, is_text_BT.unsqueeze(2), place_T1) for name in self.manner.pools]
        vectors_BC = Tensor.cat(parts, 1)
        for layer in self.manner.layers:
            vectors_BC = layer(vectors_BC)
        return vectors_BC

    def numbers(self, text: str, cuts: bool = True) -> list[int]:
        """Returns the tokens of a text; one that is too long loses its last words, but not the end token.

        Args:
          cuts:  False: keeps the whole text
        """
        tokenizer = self.tokenizer
        start, end = tokenizer.start, tokenizer.end
        inner = tokenizer.encode(text.lower() if self.manner.lowers else text)
        most = max(0, self.longest - len(start) - len(end)) if cuts else len(inner)
        numbers = [*start, *inner[:most], *end]
        if not numbers:
            raise ArgumentError(f"embed: the text {text[:40]!r} has no tokens.")
        return numbers

    def embed(self, texts: Sequence[str], prompt: str | None = None) -> NDArray[np.float32]:
        """Returns the vectors of texts, (B, C) float32.

        Texts of similar length are read together, padded to a power of two, so that few plans serve all.

        Args:
          prompt:  prefix of each text; None: the files' prefix

        Raises:
          ArgumentError: a text has no tokens.
        """
        before = self.manner.default if prompt is None else prompt
        return self.embed_tokens([self.numbers(before + text) for text in texts])

    def embed_tokens(self, numbers: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Returns the vectors of texts, (B, C) float32, given as tokens with start and end tokens."""
        order = sorted(range(len(numbers)), key=lambda row: len(numbers[row]))
        vectors: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(numbers)
        for start in range(0, len(order), TOGETHER):
            rows = order[start : start + TOGETHER]
            length = min(1 << (len(numbers[rows[-1]]) - 1).bit_length(), self.longest)
            height = 1 << (len(rows) - 1).bit_length()
            tokens_BT, is_text_BT = np.zeros((height, length), np.int32), np.zeros((height, length), np.bool_)
            is_text_BT[:, 0] = True  # a padding row has one position, so that its mean is finite
            for place, row in enumerate(rows):
                tokens_BT[place, : len(numbers[row])] = numbers[row]
                is_text_BT[place, : len(numbers[row])] = True
            with no_grad():
                found = self.vectors_of(Tensor(tokens_BT), Tensor(is_text_BT)).numpy()
            for place, row in enumerate(rows):
                vectors[row] = found[place]
        return np.stack(vectors)


def longest_of(network: Encoder | Decoder) -> int:
    """Returns the largest number of tokens that a network reads."""
    return network.config.longest if isinstance(network, Encoder) else network.config.context


# ---- folders ----
def read_embedder(folder: Path, pooling: str = "") -> Embedder:
    """Loads the sentence encoder of a folder.

    Args:
      pooling:  a key of POOLS, for folders without pooling or instead of modules.json's

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged, describes something unsupported, or the pooling is unknown.
    """
    try:
        return embedder_in(folder, pooling)
    except FileError:
        raise
    except DataError as error:
        raise DataError(error.fact if str(folder) in error.fact else f"{folder}: {error.fact}", error.hint) from None


def embedder_in(folder: Path, pooling: str) -> Embedder:
    """As `read_embedder`; error messages need not name the folder."""
    steps = [("Transformer", folder)] if pooling else steps_of(folder)
    kinds = [kind for kind, _ in steps]
    if kinds[:2] != ["Transformer", "Pooling"][: len(kinds)]:
        raise DataError(f"modules.json has {', '.join(kinds)}; a Transformer and a Pooling come first.")
    inner = steps[0][1]
    said = optional(inner / "sentence_bert_config.json", {"max_seq_length": None, "do_lower_case": False}, {
        "model_args": {}, "tokenizer_args": {}, "config_args": {}, "transformer_task": "feature-extraction",
        "modality_config": Any, "module_output_name": Any,
    })  # fmt: skip
    prompts, default = prompts_of(folder)
    pools = (pooling,) if pooling else pools_of(steps[1][1])
    layers = tuple(layer_of(kind, path) for kind, path in steps[2:])
    longest = said.whole("max_seq_length")
    if longest is None and (path := inner / "tokenizer_config.json").is_file():
        limit = json_in(path, "embed").get("model_max_length")
        longest = limit if type(limit) is int and limit > 0 else None
    longest = min(longest or LONGEST, LONGEST)
    manner = Manner(pools, layers, longest, said.flag("do_lower_case"), prompts, default)
    said.check_empty({})
    name = json_in(inner / "config.json", "embed").get("model_type")
    if isinstance(name, str) and name in ARCHITECTURES:
        found = read_folder(inner, longest, writes=False)
        return Embedder(found.network, found.tokenizer, manner)
    if not isinstance(name, str) or name not in ENCODERS:
        known = ", ".join([*ENCODERS, *ARCHITECTURES])
        raise DataError(f"config.json says model_type is {str(name)[:40]!r}; {known} are run.")
    return Embedder(*read_encoder(inner), manner)


def optional(path: Path, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> Entries:
    """Returns the entries of a file, after a check of its fixed ones; those of an empty dict if it is missing."""
    content = json_in(path, "embed") if path.is_file() else {}
    said = Entries({key: value for key, value in content.items() if key not in fixed}, path.name, defaults, {})
    others = Entries({key: value for key, value in content.items() if key in fixed}, path.name, {}, {})
    others.check_empty(fixed)
    return said


def steps_of(folder: Path) -> list[tuple[str, Path]]:
    """Returns the parts of modules.json, each with its kind and folder.

    Raises:
      DataError: the file is missing or damaged.
    """
    path = folder / "modules.json"
    if not path.is_file():
        raise DataError("has no modules.json, which says how vectors are made.", f"--pooling says it: {', '.join(POOLS)}.")
    modules = json_in(path, "embed", list)
    steps = [
        (str(each.get("type")).rpartition(".")[2], folder / part)
        for each in modules
        if isinstance(each, dict) and isinstance(part := each.get("path"), str) and Path(part).name == part
    ]
    if len(steps) < len(modules) or not steps:
        raise DataError("modules.json is not a list of parts, each with a type and a path in the folder.")
    return steps


def pools_of(folder: Path) -> tuple[str, ...]:
    """Returns the kinds of pooling of a folder.

    Raises:
      DataError: there is none, or one is unsupported.
    """
    defaults = {**dict.fromkeys(MODES, False), "word_embedding_dimension": None, "embedding_dimension": None,
                "pooling_mode": None, "include_prompt": True}  # fmt: skip
    said = Entries(json_in(folder / "config.json", "embed"), f"{folder.name}/config.json", defaults, {})
    said.whole("word_embedding_dimension"), said.whole("embedding_dimension")
    named, found = said.get("pooling_mode"), {name for key, name in MODES.items() if said.flag(key)}
    found |= {named} if isinstance(named, str) else set(named or ())
    if not said.flag("include_prompt"):
        raise said.wrong("include_prompt", False, "that prompts are left out of the mean is not done")
    said.check_empty({})
    if not found or not found <= POOLS.keys():
        raise DataError(f"{said.where} says pooling is {sorted(map(str, found))}; {', '.join(POOLS)} are known.")
    return tuple(name for name in POOLS if name in found)


def layer_of(kind: str, folder: Path) -> Callable[[Tensor], Tensor]:
    """Returns a layer after pooling.

    Raises:
      DataError: its kind is unknown.
    """
    if kind == "Normalize":
        return lambda x: F.normalize(x, dim=1)
    if kind != "Dense":
        raise DataError(f"modules.json has a {kind[:40]}; Transformer, Pooling, Dense, Normalize are known.")
    defaults = {"in_features": NEEDED, "out_features": NEEDED, "bias": True, "activation_function": NEEDED}
    said = Entries(json_in(folder / "config.json", "embed"), f"{folder.name}/config.json", defaults, {})
    columns, rows, has_bias = said.whole("in_features"), said.whole("out_features"), said.flag("bias")
    shown = str(said.get("activation_function")).rpartition(".")[2]
    if shown not in ACTIVATIONS:
        raise said.wrong("activation_function", shown, f"{', '.join(ACTIVATIONS)} are known")
    said.check_empty({})
    weights = Weights({name: packed(array) for name, array in map_published(folder).items()})
    linear = weights.linear("linear", rows, columns, has_bias)
    weights.check_empty()
    return lambda x: ACTIVATIONS[shown](linear(x))


def prompts_of(folder: Path) -> tuple[dict[str, str], str]:
    """Returns the prefixes of texts, by name, and the default one.

    Raises:
      DataError: they are damaged.
    """
    path = folder / "config_sentence_transformers.json"
    content = json_in(path, "embed") if path.is_file() else {}
    prompts, name = content.get("prompts") or {}, content.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise DataError(f"{path.name} has prompts that are not a dict of texts.")
    if name is not None and (not isinstance(name, str) or name not in prompts):
        raise DataError(f"{path.name} says default_prompt_name is {str(name)[:40]}, which is not one of its prompts.")
    return prompts, prompts[name] if name is not None else ""
