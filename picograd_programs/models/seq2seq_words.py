"""Tokenizers of sequence-to-sequence networks whose folders have a model of SentencePiece and no tokenizer.json.

Source: Hugging Face, transformers, the tokenizers of T5, MT5, Pegasus, Marian and M2M100: which numbers tokens have.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from picograd.errors import DataError
from picograd_programs.data.sentencepiece import Pieces, content_of, read_pieces
from picograd_programs.data.tokenizer_json import Pipeline, load_tokenizer
from picograd_programs.data.vocabulary import Json, json_in, numbers_in

END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"
EXTRA = 100  # gaps of T5, the first with the highest number
OFFSET = 103  # tokens of Pegasus before the pieces of its file, but for the first two of these
OFFSET_NAMED = (PADDING, END, "<mask_1>", "<mask_2>")
SPOKEN = "en"  # of texts of M2M-100, where nothing says it


def of_t5(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the content of a tokenizer.json of T5: pieces by their places, then names of gaps."""
    numbers = {piece: number for number, (piece, _, _) in enumerate(found.pieces)}
    extra = said.get("extra_ids", EXTRA)
    gaps = {f"<extra_id_{place}>": len(numbers) + extra - 1 - place for place in range(extra)}
    return content_of(found, numbers | gaps, UNKNOWN, [], [END], [*gaps])


def of_pegasus(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the content of a tokenizer.json of Pegasus: pieces behind tokens of its training."""
    offset = said.get("offset", OFFSET)
    named = {name: number for number, name in enumerate(OFFSET_NAMED)}
    named |= {f"<unk_{number}>": number for number in range(len(named), offset + 2)}
    pieces = {piece: number + offset for number, (piece, _, _) in enumerate(found.pieces) if number > 1}
    return content_of(found, named | pieces, found.pieces[found.unknown][0], [], [END], [*named])


def of_marian(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the content of a tokenizer.json of Marian, whose vocab.json has both languages."""
    path = folder / "vocab.json"
    return content_of(found, numbers_in(json_in(path), path), UNKNOWN, [], [END], [PADDING])


def of_m2m(folder: Path, found: Pieces, said: Json) -> Json:
    """Returns the content of a tokenizer.json of M2M-100: vocab.json, then names of languages."""
    paths = folder / "vocab.json", folder / "special_tokens_map.json"
    numbers = numbers_in(json_in(paths[0]), paths[0])
    marks = json_in(paths[1]).get("additional_special_tokens") or []
    names = [str(mark["content"] if isinstance(mark, dict) else mark) for mark in marks]
    named = {name: len(numbers) + place for place, name in enumerate(names)}
    start = f"__{said.get('src_lang') or SPOKEN}__"
    if start not in named:
        raise DataError(f"special_tokens_map.json has no language {start[:20]}, in which texts are by default.")
    return content_of(found, numbers | named, UNKNOWN, [start], [END], [*named, PADDING, "<s>"])


# model_type -> the file of SentencePiece, and what makes the content of a tokenizer.json of it
FILES: dict[str, tuple[str, Callable[[Path, Pieces, Json], Json]]] = {
    "t5": ("spiece.model", of_t5), "mt5": ("spiece.model", of_t5), "pegasus": ("spiece.model", of_pegasus),
    "marian": ("source.spm", of_marian), "m2m_100": ("sentencepiece.bpe.model", of_m2m),
}  # fmt: skip


def words_in(folder: Path, name: str) -> Pipeline:
    """Returns the tokenizer of a folder.

    Args:
      name:  model_type

    Raises:
      FileError: a file cannot be read.
      DataError: one is damaged, or none is there.
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
