"""Folders of Whisper in transformers' format.

Files: config.json, model.safetensors or its parts, tokenizer.json, and optionally generation_config.json. As for decoders,
every entry of config.json is read, must have one value, or is known to have no effect.

Source: Hugging Face, transformers, the network Whisper (tiny to large v3, turbo, distil-whisper).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from picograd.errors import DataError
from picograd.record import Record
from picograd_programs.chat.rules import Barred
from picograd_programs.data.published import map_published
from picograd_programs.data.tokenizer_json import Pipeline, load_tokenizer
from picograd_programs.data.vocabulary import check_rows, json_in
from picograd_programs.models.bart_folder import OF_TRAINING, SIZES, names_of_layers, sizes_of
from picograd_programs.models.entries import FIXED, NEEDED, Entries
from picograd_programs.models.seq2seq import Seq2SeqConfig
from picograd_programs.models.seq2seq_folder import in_their_names, seq2seq_tensors
from picograd_programs.models.whisper import Whisper
from picograd_programs.models.whisper_times import Times

WHISPER = "whisper"  # model_type of its folders
BEGIN, NO_TIMES, FIRST_TASK = "<|startoftranscript|>", "<|notimestamps|>", "<|translate|>"
BEFORE = "<|startofprev|>"  # precedes the text before a window
TASKS = ("transcribe", "translate")
BEGIN_MAX = 50  # steps of the latest time of the first word
MULTILINGUAL_MIN = 51_865  # size of a multilingual vocabulary
ENTRIES: dict[str, Any] = SIZES | {
    "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448, "eos_token_id": NEEDED,
    "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip
NO_MATTER: dict[str, Any] = OF_TRAINING | {  # entries of trainings, or of other tasks
    "is_encoder_decoder": True, "scale_embedding": False, "tie_word_embeddings": True, "use_weighted_layer_sum": Any,
    "classifier_proj_size": Any, "apply_spec_augment": Any, "mask_time_prob": Any, "mask_time_length": Any,
    "mask_time_min_masks": Any, "mask_feature_prob": Any, "mask_feature_length": Any, "mask_feature_min_masks": Any,
    "median_filter_width": Any, "forced_decoder_ids": Any,
}  # fmt: skip
AROUND_LAYERS = {
    "encoder.conv1": "enc.conv1", "encoder.conv2": "enc.conv2", "encoder.embed_positions": "enc.position_embd",
    "encoder.layer_norm": "enc.output_norm", "decoder.embed_tokens": "token_embd",
    "decoder.embed_positions": "dec.position_embd", "decoder.layer_norm": "dec.output_norm",
}  # fmt: skip


class Speech(Record, eq=False):
    """A network loaded from a folder.

    network:    network with its weights
    tokenizer:  tokenizer of the folder
    end:        token that ends a text
    barred:     tokens that are never written, such as signs of music
    languages:  names of languages -> their tokens; {}: only English
    times:      timestamps of its texts; None: its vocabulary has none
    """

    network: Whisper
    tokenizer: Pipeline
    end: int
    barred: Barred
    languages: Mapping[str, int]
    times: Times | None

    def start(self, language: str, task: str) -> tuple[int, ...]:
        """Returns the start tokens of a text.

        Args:
          language:  a key of `languages`, if there are any
          task:      one of TASKS
        """
        control = self.tokenizer.control
        asked = (self.languages[language], control[f"<|{task}|>"]) if self.languages else ()
        return control[BEGIN], *asked, *([control[NO_TIMES]] if self.times is None else [])


def read_whisper(folder: Path) -> Speech:
    """Loads the network of a folder.

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged or missing, or describes another network.
    """
    content = json_in(folder / "config.json", "transcribe")
    _, _, positions, _ = read_whisper_config(content, 1)  # config errors come before missing files
    tokenizer, known, has_times = read_words(folder, content["vocab_size"], positions)
    config, bands, positions, end = read_whisper_config(content, known)
    path = folder / "generation_config.json"
    generation = json_in(path, "transcribe") if path.is_file() else {}
    is_multilingual = generation.get("is_multilingual", content["vocab_size"] >= MULTILINGUAL_MIN)
    spoken = range(tokenizer.control[BEGIN] + 1, tokenizer.control[FIRST_TASK])
    languages = {tokenizer.tokens[number].strip("<|>"): number for number in spoken} if is_multilingual else {}
    always, at_first = (
        numbers_in(key, generation.get(key, content.get(key)), config.vocabulary)
        for key in ("suppress_tokens", "begin_suppress_tokens")
    )
    latest = generation.get("max_initial_timestamp_index", BEGIN_MAX)
    if latest is not None and (type(latest) is not int or latest < 0):
        raise DataError(f"max_initial_timestamp_index is {str(latest)[:40]}; a number of steps of time is needed.")
    times = Times(tokenizer.control[NO_TIMES] + 1, end, latest) if has_times else None
    names = AROUND_LAYERS | names_of_layers(config)
    try:
        network = Whisper(config, bands, positions, seq2seq_tensors(map_published(folder), names, False))
    except DataError as error:
        raise DataError(in_their_names(error.fact, names), error.hint) from None
    return Speech(network, tokenizer, end, Barred(always, at_first), languages, times)


def read_words(folder: Path, rows: int, positions: int) -> tuple[Pipeline, int, bool]:
    """Returns the tokenizer, the number of tokens, and whether they include timestamps, which early files do not name.

    Args:
      rows:       rows of the token table
      positions:  number of time steps

    Raises:
      DataError: the tokenizer is another network's.
    """
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    if missing := [name for name in (BEGIN, NO_TIMES, *(f"<|{task}|>" for task in TASKS)) if name not in tokenizer.control]:
        raise DataError(f"tokenizer.json has no token {missing[0]}, which begins texts of Whisper.")
    known, past = len(tokenizer.tokens), tokenizer.control[NO_TIMES] + positions + 2
    if rows < known or rows < past:
        tokenizer.fit(rows, 0)
        return tokenizer, known, rows >= past
    check_rows("of config.json", (rows, 0), max(known, past))
    return tokenizer, max(known, past), True


def read_whisper_config(content: Mapping[str, Any], tokens: int) -> tuple[Seq2SeqConfig, int, int, int]:
    """Returns the configuration in a config.json, the numbers of mel bands and positions, and the end token.

    Raises:
      DataError: it describes another network, lacks an entry, or has an unknown one.
    """
    if content.get("model_type") != WHISPER:
        raise DataError(f"config.json says model_type is {str(content.get('model_type'))[:40]!r}; {WHISPER} is run.")
    said = Entries(content, "config.json", ENTRIES, {})
    rows, bands, positions, longest = (
        said.size(key) for key in ("vocab_size", "num_mel_bins", "max_source_positions", "max_target_positions")
    )
    sizes, end = sizes_of(said), said.get("eos_token_id")
    if type(end) is not int or not 0 <= end < rows:
        raise said.wrong("eos_token_id", end, f"a number of the {rows} tokens is needed")
    said.get("suppress_tokens"), said.get("begin_suppress_tokens")  # read by `read_whisper`
    said.check_empty(FIXED | NO_MATTER)
    config = Seq2SeqConfig(
        min(rows, tokens), longest, **sizes, positions=longest, eps=1e-5, has_biases=True, scale=None
    )  # fmt: skip
    return config, bands, positions, end


def numbers_in(key: str, value: Any, tokens: int) -> tuple[int, ...]:
    """Returns the tokens of a list, without numbers outside the vocabulary.

    Raises:
      DataError: it is not a list of integers.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise DataError(f"{key} is {str(value)[:40]}; a list of numbers of tokens is needed.")
    return tuple(number for number in value if 0 <= number < tokens)
