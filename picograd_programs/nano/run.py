"""`picograd train nano` and `picograd sample nano`: the stages of a chat model in sequence.

Source: Karpathy 2025, nanochat: the depth as the only size, and the order of stages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from picograd.errors import ArgumentError, DataError
from picograd_programs.chat.answer import Choice, Plans, Reader
from picograd_programs.chat.turns import Turns
from picograd_programs.data.bpe import Tokenizer
from picograd_programs.data.tokenizer_json import load_tokenizer
from picograd_programs.nano.base import Base, prepare
from picograd_programs.nano.network import Nano
from picograd_programs.nano.stage import MANNER, VOCABULARY, NanoSettings, Stage
from picograd_programs.nano.sums import Sums
from picograd_programs.nano.talk import Talk
from picograd_programs.train.callbacks import Checkpoints, only_writer
from picograd_programs.train.program import Program, SampleSettings, check_settings, train, trained

STAGES: tuple[type[Stage], ...] = (Base, Talk, Sums)
FILES = (*(stage.stage for stage in STAGES), VOCABULARY, "*.bin", "result.json")  # files of a run's folder
CONTEXT_MIN = 64  # tokens, with room for a question and its answer


@dataclass(frozen=True)
class SampleNanoSettings(SampleSettings):
    """Settings of `picograd sample nano`."""

    prompt: str = "What is 3 + 4?"  # the question
    length: int = 64  # largest number of tokens of an answer
    temperature: float = 0.0


class NanoProgram(Program):
    """Trains a chat model from scratch."""

    name, takes, samples = "nano", NanoSettings, SampleNanoSettings
    about = "Trains a small chat model from nothing: vocabulary, text, conversations, sums by reinforcement."

    @classmethod
    def run(cls, settings: NanoSettings) -> int:
        """Trains stage after stage; with --resume, stages that an earlier run has finished are skipped.

        Returns:   0, or 130 if Ctrl-C stopped a stage

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the text is missing or too short, or the checkpoints are of another run.
        """
        if settings.context < CONTEXT_MIN:
            raise ArgumentError(f"--context: got {settings.context}, conversations need {CONTEXT_MIN} tokens or more.")
        with only_writer(settings.out):
            return cls.make_stages(settings)

    @classmethod
    def make_stages(cls, settings: NanoSettings) -> int:
        """As `run`, with a lock on the folder."""
        earlier = Checkpoints(settings.out, others=FILES)
        if settings.resume:
            earlier.bring_back()
        else:
            prepared = prepare(settings)  # first, so that errors of the text come before files are moved
            earlier.set_aside()
            prepared.write(settings.out)
        begun = {stage: bool(Checkpoints(settings.out / stage.stage).paths()) for stage in STAGES}
        for stage in STAGES:
            goes_on = settings.resume and (stage is Base or begun[stage])
            status = train(stage(settings), replace(settings, resume=goes_on))
            if status:
                return status
        return 0

    @classmethod
    def sample(cls, settings: Any) -> str:
        """Returns answers to a question.

        Raises:
          ArgumentError: a setting is out of its range, or the question is longer than the network reads.
          DataError: no stage has learned to answer yet.
        """
        check_settings(settings)
        model, tokenizer = chat_model(settings.checkpoint)
        turns, length = Turns(MANNER, tokenizer), model.config.context
        question = turns.question(settings.prompt)
        if len(question) >= length:
            raise ArgumentError(f"--prompt: the question has {len(question):,} tokens; with an answer {length:,} fit.")
        choice = Choice(settings.temperature, top_p=1.0, repetition=1.0)
        plans = Plans(model, length)
        texts = []
        for number in range(settings.num):  # in sequence, as they share a cache
            answer = Reader(plans).answer(question, turns.ends, settings.length, choice, settings.seed + number)
            texts.append(tokenizer.decode(answer))
        return "\n".join(texts)


def chat_model(folder: Path) -> tuple[Nano, Tokenizer]:
    """Returns the network of the last finished stage, and its vocabulary.

    Raises:
      DataError: the run has not reached the conversations.
    """
    Checkpoints(folder).bring_back()
    for stage in (Sums, Talk):
        if Checkpoints(folder / stage.stage).paths():
            return trained(stage, folder / stage.stage)[0], load_tokenizer(folder / VOCABULARY)
    fact = f"{folder}: has no network that answers: no stage of `picograd train nano`, no config.json of a published one."
    raise DataError(fact, hint="picograd train nano")
