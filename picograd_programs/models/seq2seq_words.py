"""Tokenizers of sequence-to-sequence networks whose folders have a SentencePiece model and no tokenizer.json.

Source: Hugging Face, transformers, the tokenizers of T5, MT5, Pegasus, Marian, M2M100 and MBart: the numbers of
tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from picograd.errors import DataError
from picograd_programs.data.sentencepiece import Pieces, content_of, read_pieces
from picograd_programs.data.tokenizer_json import Pipeline, load_tokenizer
from picograd_programs.data.vocabulary import Json, json_in, numbers_in

END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"
EXTRA = 100  # gaps of T5, from the highest number down
OFFSET = 103  # Pegasus' tokens before its file's pieces, except for the first two
OFFSET_NAMED = (PADDING, END, "<mask_1>", "<mask_2>")
ADDED_MAX = 10_000  # tokens; larger numbers mean damage
LANGUAGES_BEHIND = 25  # of the first mBART


def number_in(said: Json, key: str, default: int) -> int:
    """Returns the number of tokens that tokenizer_config.json adds to the pieces.

    Raises:
      DataError: the entry is not an integer from 0 to ADDED_MAX.
    """
    value = said.get(key, default)
    if type(value) is not int or not 0 <= value <= ADDED_MAX:
        raise DataError(
            f"tokenizer_config.json says {key} is {str(value)[:40]}; a number from 0 to {ADDED_MAX:,} is needed."
        )
    return value


def of_t5(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the contents of a tokenizer.json of T5: pieces in order, then names of gaps."""
    numbers = {piece: number for number, (piece, _, _) in enumerate(found.pieces)}
    extra = number_in(said, "extra_ids", EXTRA)
    gaps = {f"<extra_id_{place}>": len(numbers) + extra - 1 - place for place in range(extra)}
    return content_of(found, numbers | gaps, UNKNOWN, [], [END], [*gaps])


def of_pegasus(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the contents of a tokenizer.json of Pegasus: pieces after its training's tokens."""
    offset = number_in(said, "offset", OFFSET)
    named = {name: number for number, name in enumerate(OFFSET_NAMED)}
    named |= {f"<unk_{number}>": number for number in range(len(named), offset + 2)}
    pieces = {piece: number + offset for number, (piece, _, _) in enumerate(found.pieces) if number > 1}
    return content_of(found, named | pieces, found.pieces[found.unknown][0], [], [END], [*named])


def of_marian(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the contents of a tokenizer.json of Marian, whose vocab.json covers both languages."""
    path = folder / "vocab.json"
    return content_of(found, numbers_in(json_in(path), path), UNKNOWN, [], [END], [PADDING])


def of_m2m(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the contents of a tokenizer.json of M2M-100: vocab.json, then names of languages."""
    path = folder / "vocab.json"
    numbers = numbers_in(json_in(path), path)
    start = f"__{said.get('src_lang') or 'en'}__"
    named = languages_in(folder, start, len(numbers))
    return content_of(found, numbers | named, UNKNOWN, [start], [END], [*named, PADDING, "<s>"])


def of_mbart(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the contents of a tokenizer.json of mBART: pieces after four tokens, then names of languages, a mask.

    The language of a text precedes it, or follows it in the network for 25 languages.
    """
    named = {name: number for number, name in enumerate(("<s>", PADDING, END, UNKNOWN))}
    pieces = {piece: place + 1 for place, (piece, _, _) in enumerate(found.pieces) if place > 2}
    first, spoken = len(found.pieces) + 1, said.get("src_lang") or "en_XX"
    languages = languages_in(folder, spoken, first)
    numbers = named | pieces | languages | {"<mask>": first + len(languages)}
    start, end = ([spoken], [END]) if len(languages) > LANGUAGES_BEHIND else ([], [END, spoken])
    return content_of(found, numbers, UNKNOWN, start, end, [*named, *languages, "<mask>"])


def languages_in(folder: Path, spoken: str, first: int) -> dict[str, int]:
    """Returns the languages of a folder, numbered from `first` on.

    Raises:
      DataError: the default language is not among them.
    """
    marks = json_in(folder / "special_tokens_map.json").get("additional_special_tokens") or []
    names = [str(mark["content"] if isinstance(mark, dict) else mark) for mark in marks]
    if spoken not in names:
        raise DataError(f"special_tokens_map.json has no language {spoken[:20]}, the default language of texts.")
    return {name: first + place for place, name in enumerate(names)}


# model_type -> SentencePiece file, and the maker of a tokenizer.json's contents from it
FILES: dict[str, tuple[str, Callable[[Path, Pieces, Json], Json]]] = {
    "t5": ("spiece.model", of_t5), "mt5": ("spiece.model", of_t5), "pegasus": ("spiece.model", of_pegasus),
    "marian": ("source.spm", of_marian), "m2m_100": ("sentencepiece.bpe.model", of_m2m),
    "mbart": ("sentencepiece.bpe.model", of_mbart),
}  # fmt: skip


def words_in(folder: Path, name: str) -> Pipeline:
    """Returns the tokenizer of a folder.

    Args:
      name:  model_type

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged, or all are missing.
    """
    whole = folder / "tokenizer.json"
    if whole.is_file() or name not in FILES or not (path := folder / FILES[name][0]).is_file():
        return load_tokenizer(whole)
    settings = folder / "tokenizer_config.json"
    try:
        said = json_in(settings) if settings.is_file() else {}
        return Pipeline(FILES[name][1](folder, read_pieces(path), said))
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: does not fit the files beside it: {type(error).__name__}: {error}.") from None
