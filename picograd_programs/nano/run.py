"""`picograd train nano` and `picograd sample nano`: the stages of a chat model, one after the other.

Source: Karpathy 2025, nanochat: one dial, and the order of stages.
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
FILES = (*(stage.stage for stage in STAGES), VOCABULARY, "*.bin", "result.json")  # what a run has in its folder
CONTEXT_MIN = 64  # tokens, so that a question and its answer have room


@dataclass(frozen=True)
class SampleNanoSettings(SampleSettings):
    """Settings of `picograd sample nano`."""

    prompt: str = "What is 3 + 4?"  # question
    length: int = 64  # most tokens of an answer
    temperature: float = 0.0


class NanoProgram(Program):
    """Makes a chat model from nothing."""

    name, takes, samples = "nano", NanoSettings, SampleNanoSettings
    about = "Makes a small chat model from nothing: vocabulary, text, conversations, sums by reinforcement."

    @classmethod
    def run(cls, settings: NanoSettings) -> int:
        """Trains stage after stage; one that a run before this one has ended is passed over with --resume.

        Returns:   0, or 130 when Ctrl-C stopped a stage

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: there is no text, it is too short, or the checkpoints are those of another run.
        """
        if settings.context < CONTEXT_MIN:
            raise ArgumentError(f"--context: got {settings.context}, conversations need {CONTEXT_MIN} tokens or more.")
        with only_writer(settings.out):
            return cls.make_stages(settings)

    @classmethod
    def make_stages(cls, settings: NanoSettings) -> int:
        """As `run`, while no other training writes to the folder."""
        earlier = Checkpoints(settings.out, others=FILES)
        if settings.resume:
            earlier.bring_back()
        else:
            prepared = prepare(settings)  # first: what is wrong with the text is said before anything is moved
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
        """Returns answers to a question, each read and written beside a cache.

        Raises:
          ArgumentError: a setting is out of its range, or the question is longer than the network reads.
          DataError: no stage is there that has learned to answer.
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
        for number in range(settings.num):  # one after the other: they are read into one cache
            answer = Reader(plans).answer(question, turns.ends, settings.length, choice, settings.seed + number)
            texts.append(tokenizer.decode(answer))
        return "\n".join(texts)


def chat_model(folder: Path) -> tuple[Nano, Tokenizer]:
    """Returns the network of the last stage that is there, and its vocabulary.

    Raises:
      DataError: the run has not come to conversations.
    """
    Checkpoints(folder).bring_back()
    for stage in (Sums, Talk):
        if Checkpoints(folder / stage.stage).paths():
            return trained(stage, folder / stage.stage)[0], load_tokenizer(folder / VOCABULARY)
    fact = f"{folder}: has no network that answers: no stage of `picograd train nano`, no config.json of a published one."
    raise DataError(fact, hint="picograd train nano")
