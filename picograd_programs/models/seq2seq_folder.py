"""Folders of sequence-to-sequence networks in transformers' format.

Files: config.json, model.safetensors or its parts, tokenizer.json or a SentencePiece model, and optionally
generation_config.json.

As for decoders, every entry of config.json is read, must have one value, or is known to have no effect; otherwise the
folder is refused before a weight is read.

Source: Hugging Face, transformers, the networks of t5_folder.py and bart_folder.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from picograd.errors import DataError
from picograd.record import Record
from picograd_formats.gguf_file import PackedTensor
from picograd_programs.chat.rules import Barred, EndsWith, Least, Rule
from picograd_programs.chat.search import search_of
from picograd_programs.chat.turns import Manner
from picograd_programs.data.published import AROUND, map_published
from picograd_programs.data.tokenizer_json import Pipeline
from picograd_programs.data.vocabulary import json_in
from picograd_programs.models.bart_folder import KINDS as KINDS_OF_BART
from picograd_programs.models.bart_folder import made_of_bart, names_of_bart, read_bart_config
from picograd_programs.models.decoder_folder import KINDS, drawing_of, packed
from picograd_programs.models.folder_forms import Arrays
from picograd_programs.models.seq2seq import Seq2Seq, Seq2SeqConfig
from picograd_programs.models.seq2seq_words import words_in
from picograd_programs.models.t5_folder import names_of_t5, read_t5_config

OURS = re.compile(r"[\w.]+(?=\.(?:weight|bias)\b)")
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # of the token table
UNUSED = re.compile(r".+EncDecAttention\.relative_attention_bias\.weight|(en|de)coder\.embed_positions\.weights?")
AROUND_TEXTS = ("decoder_start_token_id", "forced_bos_token_id", "eos_token_id")  # generation_config.json overrides them
LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z]\w+$|__[a-z]{2,3}__$")  # deu_Latn, de_DE, __de__
TABLE, OUTPUT = "shared.weight", ("lm_head.weight", "proj_out.weight")
LOGIT_BIASES = "final_logits_bias"  # zeros in all files of BART


class Form(Record, eq=False):
    """The published form of the networks of a model_type.

    read:   (config.json, size of the vocabulary, largest number of tokens of a text) -> configuration, start tokens and end
    tokens of an answer
    names:  configuration -> a dict from names of tensors in the folder to ours, without `.weight` and `.bias`
    made:   configuration -> tensors that are not in the file, by their names here
    is_multilingual:  an answer starts with the token of its language
    """

    read: Callable[[Mapping[str, Any], int, int], tuple[Seq2SeqConfig, tuple[int, ...], list[int]]]
    names: Callable[[Seq2SeqConfig], dict[str, str]]
    made: Callable[[Seq2SeqConfig], Mapping[str, Any]] = lambda config: {}
    is_multilingual: bool = False


T5 = Form(read_t5_config, names_of_t5)
FORMS: dict[str, Form] = {"t5": T5, "mt5": T5} | {
    name: Form(read_bart_config, names_of_bart, partial(made_of_bart, kind), kind.is_multilingual)
    for name, kind in KINDS_OF_BART.items()
}


class Lengths(Record):
    """Lengths of answers in tokens, including start and end tokens.

    least:   smallest number of tokens
    most:    largest number of tokens; None: unspecified
    end:     last token of an answer of the largest length; None: any
    barred:  tokens that are never written
    """

    least: int = 0
    most: int | None = None
    end: int | None = None
    barred: tuple[int, ...] = ()

    def rules(self, most: int, ends: frozenset[int]) -> list[Rule]:
        """Returns the rules of an answer with at most this many tokens and these end tokens."""
        return [
            *([Least(self.least, ends)] if self.least else []),
            *([Barred(self.barred)] if self.barred else []),
            *([] if self.end is None else [EndsWith(most, self.end)]),
        ]


class PublishedSeq2Seq(Record, eq=False):
    """A network loaded from a folder.

    network:    network with its weights
    tokenizer:  tokenizer of the folder
    manner:     start and end tokens of an answer, and settings of the draws
    lengths:    lengths of an answer
    languages:  names of languages -> their tokens; {} for a single language
    """

    network: Seq2Seq
    tokenizer: Pipeline
    manner: Manner
    lengths: Lengths
    languages: Mapping[str, int] = {}


def is_seq2seq(folder: Path) -> bool:
    """True for a folder of such a network."""
    path = folder / "config.json"
    name = json_in(path).get("model_type") if path.is_file() else None
    return isinstance(name, str) and name in FORMS


def read_seq2seq(folder: Path, context: int) -> PublishedSeq2Seq:
    """Loads the network of a folder.

    Args:
      context:  largest number of tokens that are read, or written

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged or missing, or describes another network.
    """
    content = json_in(folder / "config.json")
    name = content.get("model_type")
    form = FORMS.get(name) if isinstance(name, str) else None
    if form is None:
        raise DataError(f"config.json says model_type is {str(name)[:40]!r}; {', '.join(FORMS)} are run.")
    path = folder / "generation_config.json"
    generation = json_in(path) if path.is_file() else content  # older files have the entries there
    content |= {key: generation[key] for key in AROUND_TEXTS if generation.get(key) is not None}
    form.read(content, 1, 1)  # config errors come before missing files
    tokenizer = words_in(folder, content["model_type"])
    config, start, ends = form.read(content, len(tokenizer.tokens), context)
    tokenizer.fit(content["vocab_size"], config.width)
    repetition = drawing_of({"do_sample": True, "repetition_penalty": generation.get("repetition_penalty")})["repetition"]
    drawing = drawing_of(generation) or {"temperature": 0.0, "repetition": repetition}
    lengths = lengths_of(generation, config.vocabulary)
    names = form.names(config)
    try:
        given = seq2seq_tensors(map_published(folder), names, config.own_output)
        table = given.get("token_embd.weight")
        fits = table is not None and table.shape[1:] == (config.width,)  # its error comes before memory is allocated
        made = {own: packed(array) for own, array in form.made(config).items()} if fits else {}
        network = Seq2Seq(config, given | made)
    except DataError as error:
        raise DataError(in_their_names(error.fact, names), error.hint) from None
    last = frozenset(end for end in ends if end < config.vocabulary)
    manner = Manner("", {}, start, last, drawing, search_of(generation))
    marks = tokenizer.control if form.is_multilingual else {}
    languages = {name: number for name, number in marks.items() if LANGUAGE.match(name)}
    return PublishedSeq2Seq(network, tokenizer, manner, lengths, languages)


def lengths_of(said: Mapping[str, Any], tokens: int) -> Lengths:
    """Returns the lengths in a generation_config.json; lengths of new tokens do not include the first one.

    Args:
      tokens:  size of the vocabulary; token numbers outside it are ignored

    Raises:
      DataError: a number is out of its range.

    >>> lengths_of({"min_length": 56, "max_new_tokens": 141, "forced_eos_token_id": 2}, 50265)
    Lengths(least=56, most=142, end=2, barred=())
    """
    numbers = {key: said.get(key) for key in ("min_length", "max_length", "min_new_tokens", "max_new_tokens")}
    end, words = (said.get(key) for key in ("forced_eos_token_id", "bad_words_ids"))
    of_one = words is None or isinstance(words, list) and all(isinstance(each, list) and len(each) == 1 for each in words)
    barred = [number for each in words for number in each] if words and of_one else []
    for key, value, past in [*((key, value, 2**31) for key, value in numbers.items()), ("forced_eos_token_id", end, tokens),
                             *(("bad_words_ids", number, 2**31) for number in barred)]:  # fmt: skip
        if value is not None and (type(value) is not int or not 0 <= value < past):
            raise DataError(f"generation_config.json says {key} is {str(value)[:40]}; that is out of its range.")
    if not of_one:
        raise DataError(f"generation_config.json says bad_words_ids is {str(words)[:40]}; words of a token each are known.")
    least, most, new_least, new_most = numbers.values()
    most = most if new_most is None else new_most + 1
    return Lengths(max(least or 0, (new_least or -1) + 1), most, end, tuple(each for each in barred if each < tokens))


def seq2seq_tensors(arrays: Arrays, names: Mapping[str, str], own_output: bool) -> dict[str, PackedTensor]:
    """Returns tensors by Seq2Seq's names, without copies of the token table.

    Args:
      names:       theirs -> ours, without `.weight` and `.bias`
      own_output:  logits have their own matrix

    Raises:
      DataError: a tensor has no name here, or is not of floats.
    """
    tensors, theirs = dict[str, PackedTensor](), {AROUND.sub("", name): array for name, array in arrays.items()}
    for name, array in theirs.items():
        own, _, part = name.rpartition(".")
        if own not in names and name in COPIES:
            if TABLE in theirs or f"{names['shared']}.weight" in tensors:
                continue
            own = "shared"  # the file has only this copy
        if own not in names and UNUSED.fullmatch(name) or name in OUTPUT and not own_output:
            continue
        if name == LOGIT_BIASES and not isinstance(array, PackedTensor):
            tensors |= {"logits.bias": packed(np.asarray(array).reshape(-1))} if np.asarray(array).any() else {}
            continue
        dtype = array.packing.name if isinstance(array, PackedTensor) else array.dtype.name
        if own not in names or part not in ("weight", "bias") or dtype not in KINDS:
            raise DataError(f"has a tensor {name[:70]!r} of {array.shape}, {dtype}, which this network does not have.")
        tensors[f"{names[own]}.{part}"] = packed(array)
    return tensors


def in_their_names(fact: str, names: Mapping[str, str]) -> str:
    """Returns an error message with the folder's names of tensors; `names` as in `seq2seq_tensors`."""
    theirs = {ours: name for name, ours in names.items()}
    return OURS.sub(lambda found: theirs.get(found[0], found[0]), fact)
