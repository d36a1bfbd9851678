"""A sentence encoder in a GGUF file: BERT, nomic-bert, or a decoder. Weights are unpacked during multiplication.

A decoder's vector is the output at a text's last token, unless the file says otherwise. BERT's GGUF files mark pieces that
start words; BERT's list of pieces marks the others.

Source: ggml, llama.cpp, the architectures of these names in its converter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd_formats.gguf_file import GGUF, PackedTensor, read_gguf
from picograd_programs.chat.turns import manner_of
from picograd_programs.data.bpe import SPACE, Tokenizer
from picograd_programs.data.tokenizer_gguf import tokenizer_of
from picograd_programs.data.tokenizer_json import Pipeline, of_vocabulary
from picograd_programs.models.architectures import PACKED, Positions, rotation_of
from picograd_programs.models.decoder import Decoder, rows_of
from picograd_programs.models.decoder_gguf import IN_GGUF, config_of, tensors_in
from picograd_programs.models.embedder import LONGEST, POOLS, Embedder, Manner, layer_of
from picograd_programs.models.encoder import Encoder, EncoderConfig
from picograd_programs.models.entries import NEEDED, Entries

ENTRIES: dict[str, Any] = {
    "context_length": NEEDED, "embedding_length": NEEDED, "block_count": NEEDED, "feed_forward_length": NEEDED,
    "attention.head_count": NEEDED, "attention.layer_norm_epsilon": NEEDED, "pooling_type": 0,
}  # fmt: skip
ARCHITECTURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # entries of the metadata, and fields of EncoderConfig
    "bert": (ENTRIES, {}),
    "nomic-bert": (
        ENTRIES | {"rope.freq_base": NEEDED}, {"is_gated": True, "has_biases": False, "activation": "silu"},
    ),
}  # fmt: skip
FIXED: dict[str, Any] = {"attention.causal": False, "vocab_size": Any, "attention.head_count_kv": Any}
POOLING = {1: "mean", 2: "cls", 3: "lasttoken"}


def read_embedder_file(path: Path, pooling: str = "") -> Embedder:
    """Loads the sentence encoder of a file.

    Args:
      pooling:  a key of POOLS, for files without pooling or instead of the file's

    Raises:
      FileError: the file cannot be read.
      DataError: the file is damaged, or has another network.
    """
    file = read_gguf(path)
    name = str(file.metadata.get("general.architecture"))
    try:
        config, said = (None, file.metadata.get(f"{name}.pooling_type")) if name in IN_GGUF else encoder_config_of(file)
        pool = pooling or (POOLING.get(said) if isinstance(said, int) else None)
        if pool is None:
            raise DataError("does not say how vectors are pooled.", f"--pooling says it: {', '.join(POOLS)}.")
        manner = Manner((pool,), (layer_of("Normalize", Path()),), LONGEST)
        if config is None:
            return Embedder(Decoder(config_of(file, LONGEST), tensors_in(file)), words_of_file(file.metadata), manner)
        return Embedder(Encoder(config, encoder_tensors_in(file)), pieces_of_file(file.metadata), manner)
    except DataError as error:
        raise DataError(f"{path}: {error.fact}", error.hint) from None


def encoder_config_of(file: GGUF) -> tuple[EncoderConfig, Any]:
    """Returns the configuration of a file, and the number of its pooling.

    Raises:
      DataError: the file describes another network, lacks an entry, or has an unknown one.
    """
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join([*ARCHITECTURES, *IN_GGUF])
        raise DataError(f"the file is of the architecture {str(name)[:40]!r}; {known} make vectors.")
    entries, settings = ARCHITECTURES[name]
    own = {key.removeprefix(f"{name}."): value for key, value in file.metadata.items() if key.startswith(f"{name}.")}
    said = Entries(own, "the file", entries, {})
    positions, width, layers, hidden, heads = (
        said.whole(key)
        for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count")
    )
    if width % heads:
        raise said.wrong("attention.head_count", heads, f"it must divide the width of {width}")
    table, types, tokens = (
        file.tensors.get("token_embd.weight"), file.tensors.get("token_types.weight"),
        file.metadata.get("tokenizer.ggml.tokens"),
    )  # fmt: skip
    base, rotation = said.number("rope.freq_base"), None
    if base is not None:
        all_say = Positions(base, None, width // heads, positions, positions, positions)
        rotation = rotation_of(None, "rope", all_say, "the file")
    config = EncoderConfig(
        vocabulary=len(tokens) if isinstance(tokens, list) else 0 if table is None else table.shape[0],
        positions=positions, layers=layers, width=width, hidden=hidden, heads=heads,
        types=types.shape[0] if types is not None and len(types.shape) == 2 else 0,
        eps=said.number("attention.layer_norm_epsilon"), rotation=rotation, **settings,
    )  # fmt: skip
    pooling = said.get("pooling_type")
    said.check_empty(FIXED)
    return config, pooling


def words_of_file(metadata: Mapping[str, Any]) -> Tokenizer:
    """Returns the tokenizer of a decoder, with the file's tokens before and after each text.

    Raises:
      DataError: the tokenizer is of another kind, or damaged.
    """
    tokenizer = tokenizer_of(metadata)
    manner, has_end = manner_of(metadata, tokenizer), metadata.get("tokenizer.ggml.add_eos_token", False)
    tokenizer.start, tokenizer.end = manner.start, [*manner.ends] if has_end else []
    return tokenizer


def pieces_of_file(metadata: Mapping[str, Any]) -> Pipeline:
    """Returns BERT's tokenizer with a file's pieces, which converts texts to lower case.

    Raises:
      DataError: the file has another tokenizer.
    """
    model, tokens = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    if model != "bert" or not isinstance(tokens, list):
        raise DataError(f"the file has a tokenizer of kind {str(model)[:40]!r}; bert (WordPiece) is run.")
    return of_vocabulary([
        token[1:] if token.startswith(SPACE) else token if token[:1] == "[" and token[-1:] == "]" else f"##{token}"
        for token in tokens
    ])  # fmt: skip


def encoder_tensors_in(file: GGUF) -> dict[str, PackedTensor]:
    """Returns tensors by Encoder's names, with queries, keys and values split.

    Raises:
      DataError: the rows of a tensor are not three matrices.
    """
    found: dict[str, PackedTensor] = {}
    for name, tensor in file.tensors.items():
        if ".attn_qkv." not in name:
            found[name] = tensor
            continue
        if not tensor.shape or tensor.shape[0] % len(PACKED):
            raise DataError(f"has a tensor {name[:60]} of {tensor.shape}, whose rows are not of three matrices.")
        each = tensor.shape[0] // len(PACKED)
        for place, part in enumerate(PACKED):
            found[name.replace("attn_qkv", part)] = rows_of(tensor, place * each, (place + 1) * each)
    return found
