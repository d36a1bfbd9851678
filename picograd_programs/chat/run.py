"""`picograd chat`: a dialogue with a language model on this machine, in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from picograd import nn
from picograd.errors import ArgumentError, DataError, FileError
from picograd.ir.origin import format_nbytes
from picograd.record import replace as replace_in
from picograd_programs.chat.answer import PIECE, Choice, Plans, Reader, check_choice
from picograd_programs.chat.search import BEAMS_MAX, PENALTY_MAX, Search, rules_of
from picograd_programs.chat.turns import Manner, Turns, manner_of
from picograd_programs.chat.writer import Way, Writer, tokens_of
from picograd_programs.data.bpe import Stream, Tokenizer
from picograd_programs.data.tokenizer_gguf import tokenizer_of
from picograd_programs.data.vocabulary import json_in
from picograd_programs.data.weights import load_weights
from picograd_programs.models.decoder import Decoder
from picograd_programs.models.decoder_folder import read_folder
from picograd_programs.models.decoder_gguf import config_of, tensors_in
from picograd_programs.models.encoder_folder import ENCODERS
from picograd_programs.models.packed import PackedMatrix
from picograd_programs.models.seq2seq_folder import PublishedSeq2Seq, is_seq2seq, read_seq2seq
from picograd_programs.models.seq2seq_gguf import is_seq2seq_file, read_seq2seq_file
from picograd_programs.models.whisper_folder import WHISPER
from picograd_programs.nano.network import Nano
from picograd_programs.nano.run import chat_model
from picograd_programs.nano.stage import MANNER
from picograd_programs.train.program import check_settings, option_name

ANSWER = 512  # default largest number of tokens of an answer
ANSWER_MIN = 16  # least room for an answer, in tokens
CONTEXT_MAX = 2**24  # tokens; longer texts exceed any machine's memory
UNSAID = Manner("", {}, (), frozenset())  # of a model without such files
# The form of matrices: as in the files, as GGUF's blocks with eight or four bits a number, or as floats.
Pack = Literal["file", "q8_0", "q4_1", "q4_0", "f16", "f32"]


@dataclass(frozen=True)
class Drawing:
    """Settings for drawing a token. None: the model's setting, or else Choice's."""

    temperature: float | None = None  # below 1 prefers likely tokens; 0 takes the likeliest; default: the model's, or 0.2
    top_k: int | None = None  # draw only from this many of the likeliest tokens; 0: all; default: the model's, or 0
    top_p: float | None = None  # draw only from the likeliest tokens of this total probability; default: the model's, 0.9
    # divisor of the logits of all tokens of the text, factor of negative ones; 1: no effect; default: the model's, or 1.1
    repetition: float | None = None


def choice_of(drawing: Drawing, manner: Manner) -> Choice:
    """Returns the settings of the draws: the given ones, else those of the model's files, else the defaults.

    Raises:
      ArgumentError: a setting is out of its range.
    """
    wanted = {field.name: getattr(drawing, field.name) for field in fields(Drawing)}
    choice = Choice(**{**manner.drawing, **{key: value for key, value in wanted.items() if value is not None}})
    check_choice(choice)
    return choice


def search_for(settings: Chat, manner: Manner) -> Search:
    """Returns the settings of the search: the given ones, else those of the model's files if they ask for no draws.

    Raises:
      ArgumentError: a setting is out of its range.
    """
    wanted = {"beams": settings.beams, "length_penalty": settings.length_penalty, "no_repeat": settings.no_repeat}
    draws = (manner.drawing.get("temperature", 0.0) if settings.temperature is None else settings.temperature) > 0
    before = replace_in(manner.search, beams=1) if draws else manner.search
    search = replace_in(before, **{key: value for key, value in wanted.items() if value is not None})
    of_draws = [option_name(name) for name in ("temperature", "top_k", "top_p") if getattr(settings, name)]
    if (settings.beams or 1) > 1 and of_draws:
        fact = f"--beams searches for the likeliest text; {of_draws[0]} is for random draws."
        raise ArgumentError(fact, f"leave out {of_draws[0]}, or --beams.")
    if search.no_repeat < 0:
        raise ArgumentError(f"--no-repeat: got {search.no_repeat}, it must be at least 0.")
    if not 1 <= search.beams <= BEAMS_MAX:
        raise ArgumentError(f"--beams: got {search.beams}, it must be from 1 to {BEAMS_MAX}.")
    if not abs(search.length_penalty) <= PENALTY_MAX:
        fact = f"--length-penalty: got {search.length_penalty}, it must be from -{PENALTY_MAX} to {PENALTY_MAX}."
        raise ArgumentError(fact)
    if settings.length_penalty is not None and search.beams == 1 and manner is not UNSAID:
        raise ArgumentError("--length-penalty is for a search; tokens are drawn here.", "--beams 4 searches.")
    return search


@dataclass(frozen=True)
class Chat(Drawing):
    """Talks with a language model. Ctrl-C ends an answer; an empty line or Ctrl-D ends the dialogue."""

    # smollm2 (93 MB, for dialogues) or gemma3 (239 MB, continues a text: --raw; under Google's terms), which are fetched
    # the first time; or a GGUF file; or the folder of a model as it is published, with config.json, model.safetensors and
    # tokenizer.json; or the folder of `picograd train nano`. Folders of T5, BART, NLLB answer each text by itself
    model: str = "smollm2"
    prompt: str = ""  # answer only this
    source: str = ""  # language of the prompt, by NLLB's or mBART's name: eng_Latn, en_XX; default: the tokenizer's
    target: str = ""  # language of the answer, by the same names: deu_Latn, de_DE; default: the model's
    raw: bool = False  # continue the prompt as plain text, without turns
    system: str = ""  # instructions to the model; default: those of its file
    max_tokens: int | None = None  # largest number of tokens of an answer; default: the model's, or 512
    # number of beams of a search for the likeliest answer, instead of draws; 1: no search; default: the model's, or 1
    beams: int | None = None
    length_penalty: float | None = None  # of this search: positive numbers prefer long answers; default: the model's, or 1
    no_repeat: int | None = None  # allow each group of this many tokens once a text; 0: no limit; or the model's, 0
    context: int = 2048  # largest number of tokens of the dialogue, including answers
    pack: Pack = "file"  # form of matrices in memory: as in the files, in eight or four bits a number, or as floats
    seed: int = 0  # seed of the draws


class Dialogue:
    """A model, its vocabulary, and the dialogue so far.

    Args:
      texts:   number of texts without a search; a search needs as many as beams
      pieces:  as in Plans

    Raises:
      DataError: the weights are not available, or are of another kind of model.
    """

    def __init__(self, settings: Chat, texts: int = 1, pieces: Sequence[int] = (PIECE,)):
        self.settings = settings
        if settings.source or settings.target:
            raise ArgumentError("--source and --target are for networks that translate, such as NLLB: say it in the text.")
        self.model, self.tokenizer, manner, self.longest = opened(settings.model, settings.context, settings.pack)
        self.choice, self.search = choice_of(settings, manner), search_for(settings, manner)
        self.start, self.ends = [*(manner.start or self.tokenizer.start)], {*manner.ends}
        self.turns: Turns | None = None
        if not settings.raw:
            self.turns = Turns(manner, self.tokenizer)
            self.ends = self.turns.ends
        self.said: list[tuple[str, str | list[int]]] = [("system", settings.system)] if settings.system else []
        texts = self.search.beams if self.search.beams > 1 else texts
        self.reader = Reader(Plans(self.model, min(settings.context, self.longest), texts, pieces))

    def describe(self) -> str:
        """Returns a line about the model."""
        return described(self.settings.model, self.model, self.reader.length, self.choice, self.search)

    def question(self, text: str) -> list[int]:
        """Returns the tokens of the dialogue and a new text, up to the answer."""
        if self.turns is None:
            return [*(self.reader.tokens or self.start), *self.tokenizer.encode(text)]
        return self.turns.dialogue([*self.said, ("user", text)])

    def answer(self, text: str) -> None:
        """Prints the answer to a text while it is written.

        Raises:
          ArgumentError: the text does not fit into the context.
        """
        reader, settings, stream = self.reader, self.settings, self.tokenizer.stream()
        before, question = len(reader.tokens), self.question(text)
        if reader.length < len(question) + ANSWER_MIN:
            raise ArgumentError(too_long(len(question) - before, before, reader.length, self.longest))
        how = self.choice, settings.seed, rules_of(self.search), self.search
        tokens = reader.answer(reader.keep(question), self.ends, settings.max_tokens or ANSWER, *how)
        written = print_text(stream, tokens)
        self.said += [("user", text), ("assistant", written)]
        print(f"[read {reader.read_speed}; wrote {reader.write_speed}]", file=sys.stderr, flush=True)


class TextToText:
    """A sequence-to-sequence network and its vocabulary, in a folder or a file; it answers each text separately.

    Raises:
      DataError: the network is of another kind, or damaged.
    """

    def __init__(self, settings: Chat):
        self.settings = settings
        if settings.pack != "file":
            raise ArgumentError("--pack is for models that hold dialogues; weights of this one stay as they are.")
        if settings.system:
            raise ArgumentError("--system is for models that hold dialogues; this one reads each text by itself.")
        try:
            path = Path(settings.model)
            found = (read_seq2seq if path.is_dir() else read_seq2seq_file)(path, settings.context)
        except FileError:
            raise
        except DataError as error:
            fact = error.fact if settings.model in error.fact else f"{settings.model}: {error.fact}"
            raise DataError(fact, error.hint) from None
        self.tokenizer, self.manner, self.lengths = found.tokenizer, in_languages(settings, found), found.lengths
        self.choice, self.search = choice_of(settings, found.manner), search_for(settings, found.manner)
        self.writer = Writer(found.network, found.network.config.context, num=self.search.beams)
        self.ends = {*self.manner.ends}

    def describe(self) -> str:
        """Returns a line about the model."""
        return described(self.settings.model, self.writer.network, self.writer.longest, self.choice, self.search)

    def way(self, num: int | None, choice: Choice, seed: int, draws: bool = False) -> Way:
        """Returns the settings of an answer.

        Args:
          num:    largest number of tokens; None: the files' setting
          draws:  draw tokens even if there is a search
        """
        start = len(self.manner.start)
        most = ANSWER + start if self.lengths.most is None else self.lengths.most
        num = max(1, most - start) if num is None else num
        rules = [*rules_of(self.search), *self.lengths.rules(start + num, self.manner.ends)]
        search = replace_in(self.search, beams=1) if draws else self.search
        return Way(num, choice, rules, search, counted=start - 1, seed=seed)

    def question(self, text: str, has_marks: bool = False) -> list[int]:
        """Returns the tokens of a text; `has_marks` as of `tokens_of`."""
        return tokens_of(self.tokenizer, text, has_marks)

    def answer(self, text: str) -> None:
        """Prints the answer to a text while it is written.

        Raises:
          ArgumentError: the text has too many tokens.
        """
        writer, settings, stream = self.writer, self.settings, self.tokenizer.stream()
        length = writer.read(self.question(text, settings.raw))
        way = self.way(settings.max_tokens, self.choice, settings.seed)
        print_text(stream, writer.write(length, self.manner, way))
        print(f"[read {writer.read_speed}; wrote {writer.write_speed}]", file=sys.stderr, flush=True)


def reads_and_writes(model: str) -> bool:
    """True for the folder or file of a network with encoder and decoder."""
    return is_seq2seq(Path(model)) or is_seq2seq_file(Path(model))


def in_languages(settings: Chat, found: PublishedSeq2Seq) -> Manner:
    """Returns the start and end tokens of an answer in the requested language; sets the tokenizer's language of texts.

    Raises:
      ArgumentError: the network does not know a language, or one that it needs is missing.
    """
    manner, languages = found.manner, found.languages
    for option, name in (("source", settings.source), ("target", settings.target)):
        if name and name not in languages:
            known = ", ".join([*languages][:8]) + ", ..." if languages else "none by name"
            raise ArgumentError(f"--{option} {name[:20]}: the network knows {known}")
    if languages and not settings.target and not {*manner.start} & {*languages.values()}:
        raise ArgumentError(f"--target must name the language of the answer, such as {[*languages][-1]}.")
    if settings.source:
        own, words, spoken = languages[settings.source], found.tokenizer, {*languages.values()}
        words.start, words.end = ([own if each in spoken else each for each in part] for part in (words.start, words.end))
    start = (manner.start[0], languages[settings.target]) if settings.target else manner.start
    return replace_in(manner, start=start)


def print_text(stream: Stream, tokens: Iterable[int]) -> list[int]:
    """Prints the text of tokens as they arrive, until they end or the user interrupts; returns the printed ones."""
    written: list[int] = []
    with suppress(KeyboardInterrupt):
        for token in tokens:
            written.append(token)
            print(stream.text(token), end="", flush=True)
    print(stream.rest(), flush=True)
    return written


def described(name: str, model: nn.Module, length: int, choice: Choice, search: Search) -> str:
    """Returns a line about a model.

    Args:
      length:  largest number of tokens of a text
    """
    numbers, nbytes = extent_of(model)
    drawn = ", ".join(f"{key} {value:g}" for key, value in asdict(choice).items())
    if search.beams > 1:
        drawn = f"{search.beams} beams, length penalty {search.length_penalty:g}, repetition {choice.repetition:g}"
    return f"{name}: {numbers:,} weights in {format_nbytes(nbytes)}, up to {length:,} tokens; {drawn}"


def extent_of(model: nn.Module) -> tuple[int, int]:
    """Returns the number of elements of a network's matrices, and their bytes."""
    matrices = [part for part in model.modules() if isinstance(part, PackedMatrix)]
    plain = [] if matrices else [*model.parameters()]
    numbers = sum(matrix.shape[0] * matrix.shape[1] for matrix in matrices) + sum(part.numel() for part in plain)
    return numbers, sum(each.nbytes() for each in matrices) + sum(each.nbytes for each in plain)


def opened(name: str, context: int, pack: Pack = "file") -> tuple[Decoder | Nano, Tokenizer, Manner, int]:
    """Returns a network, its vocabulary, its files' settings for dialogues, and the longest text that it reads.

    Args:
      name:     name of published weights, a GGUF file, a folder of transformers, or a folder of `picograd train nano`
      context:  largest number of tokens that are read

    Raises:
      ArgumentError: weights of `picograd train nano`, which are float32, shall be packed.
      DataError: the weights are not available, or are of another kind of network.
    """
    packing = "" if pack == "file" else pack.upper()
    folder = Path(name).parent if name.endswith((".safetensors", ".bin", ".json")) else Path(name)
    if folder.is_dir() and not (folder / "config.json").is_file():
        if packing:
            raise ArgumentError(f"--pack {pack} is for published weights; those of picograd train nano stay as they are.")
        model, tokenizer = chat_model(folder)
        return model, tokenizer, MANNER, model.config.context
    try:
        if is_seq2seq(folder) or is_seq2seq_file(folder):
            fact = "has an encoder and a decoder: it holds no dialogues, and continues no text."
            raise DataError(fact, "picograd chat answers with it.")
        if folder.is_dir():
            check_kind(folder)
            found = read_folder(folder, context, packing=packing)
            return found.network, found.tokenizer, found.manner, found.longest
        file = load_weights(name)
        longest, network = config_of(file).context, Decoder(config_of(file, context), tensors_in(file), packing)
        tokenizer = tokenizer_of(file.metadata)
        return network, tokenizer, manner_of(file.metadata, tokenizer), longest
    except FileError:
        raise
    except DataError as error:
        raise DataError(error.fact if str(folder) in error.fact else f"{name}: {error.fact}", error.hint) from None


def check_kind(folder: Path) -> None:
    """Checks that the network in a folder does not belong to another command.

    Raises:
      DataError: it belongs to another command.
    """
    name = json_in(folder / "config.json").get("model_type")
    kind = name if isinstance(name, str) else ""
    if kind in ENCODERS or kind == WHISPER:
        does, command = ("hears speech", "transcribe") if kind == WHISPER else ("computes vectors of texts", "embed")
        raise DataError(f"config.json says model_type is {kind!r}, which {does}.", f"picograd {command} runs it.")


def too_long(num: int, before: int, length: int, longest: int) -> str:
    """Returns the error message for a text that does not fit.

    Args:
      num:      number of tokens of the text
      before:   number of tokens of the dialogue so far
      length:   number of tokens that fit
      longest:  number of tokens that the model can read
    """
    needed = num + before + ANSWER_MIN
    fact = f"the text has {num:,} tokens, {before:,} were said before, and an answer needs some; {length:,} fit."
    if needed <= longest:
        return f"{fact} Begin with --context {needed}, or a shorter text."
    return f"{fact} This model reads {longest:,} at most: shorten the text, or begin a new dialogue."


def check_options(settings: Chat) -> None:
    """Checks options before the model is loaded.

    Raises:
      ArgumentError: a number is out of its range.
    """
    check_settings(replace(settings, top_k=None, beams=None, length_penalty=None, no_repeat=None))
    if settings.raw and settings.system:
        raise ArgumentError("--system is the first turn of a dialogue; with --raw there are no turns.")
    choice_of(settings, UNSAID)
    search_for(settings, UNSAID)
    if settings.context > CONTEXT_MAX:
        raise ArgumentError(f"--context: got {settings.context:,}, it must be at most {CONTEXT_MAX:,}.")


def chat(settings: Chat) -> int:
    """Answers one prompt, or runs a dialogue until an empty line or the end of the input; returns 0.

    Raises:
      PicogradError: the weights are not available, or the prompt does not fit.
    """
    check_options(settings)
    dialogue = TextToText(settings) if reads_and_writes(settings.model) else Dialogue(settings)
    if settings.prompt:
        dialogue.answer(settings.prompt)
        return 0
    print(dialogue.describe(), file=sys.stderr)
    with suppress(ImportError):
        import readline  # noqa: F401  # lines that can be edited
    with suppress(EOFError):
        while text := input("> ").strip():
            try:
                dialogue.answer(text)
            except ArgumentError as error:
                print(error.fact, file=sys.stderr)
    return 0
