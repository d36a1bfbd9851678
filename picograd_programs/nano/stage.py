"""A stage of nano: the settings of the whole run, turns as tokens, and shared parts of the stages.

A stage is a separate training (picograd_programs/train) in its own folder, initialized with the weights of the stage
before. Turns are ChatML's, so that `picograd chat` reads them like those of published models.

Letters: R rows, T positions, C width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from picograd.tensor.generator import manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.chat.turns import Manner, Turns
from picograd_programs.data.fetch import sha256_of
from picograd_programs.data.text import load_text
from picograd_programs.data.tokenizer_json import load_tokenizer
from picograd_programs.models.gpt import drawn_from
from picograd_programs.nano.lessons import Lesson
from picograd_programs.nano.network import Nano, dialled, optimizers_of
from picograd_programs.train.program import NoOption, Program, Settings, trained

END, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKS = (END, TURN_START, TURN_END)
TEMPLATE = (
    f"{{% for turn in messages %}}{{{{ '{TURN_START}' + turn.role + '\n' + turn.content + '{TURN_END}\n' }}}}{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{{{{ '{TURN_START}assistant\n' }}}}{{% endif %}}"
)
MANNER = Manner(TEMPLATE, {}, (), frozenset())
ROWS_A_DEPTH = 32
TOKENS_A_WEIGHT = 20  # Hoffmann et al. 2022, arXiv:2203.15556, table 3; nanochat, `base_train`
VOCABULARY = "tokenizer.json"  # file of the run's folder
NOT_COUNTED = -1  # an ignored target


@dataclass(frozen=True)
class NanoSettings(Settings):
    """Settings of `picograd train nano`; size, data and rates follow from the depth."""

    depth: int = 1  # number of blocks, and of heads of 64 features
    text: str = "shakespeare"  # first training text: "shakespeare", "python" (source of the standard library), or a file
    vocabulary: int = 1024  # number of tokens, learned from the text
    context: int = 128  # tokens in the model's context
    batch: int = 0  # windows or conversations per step; 0: 32 times the depth
    steps: int = 0  # for the text; 0: 20 tokens per weight
    chat_steps: int = 0  # for conversations; 0: as many as for the text
    sums_steps: int = 150  # for sums, by reinforcement learning
    lr: float = 1.0  # factor of all learning rates
    warmup: NoOption[int] = 0
    weight_decay: NoOption[float] = 0.0
    eval_every: int = 100
    save_every: int = 100
    out: Path = Path("runs/nano")


class Stage(Program):
    """A training that starts from another's weights: the base class of nano's stages.

    stage:   its name, also of its folder
    before:  the stage whose weights it starts from, or None
    rate:    factor of the learning rates
    """

    name, takes = "nano", NanoSettings
    stage: ClassVar[str]
    before: ClassVar[type[Stage] | None] = None
    length: int  # largest number of tokens of a conversation
    rate: ClassVar[float] = 1.0
    same = (*Program.same, "stage", "depth", "text", "text_digest", "vocabulary", "context")

    model: Nano

    def __init__(self, settings: NanoSettings):
        self.tokenizer = load_tokenizer(settings.out / VOCABULARY)
        self.turns = Turns(MANNER, self.tokenizer)
        self.end: int = self.tokenizer.control[TURN_END]
        self.text = load_text(settings.text)
        digest = sha256_of(self.text.encode())
        super().__init__(settings, stage=self.stage, tokens=len(self.tokenizer.tokens), text_digest=digest)
        manual_seed(settings.seed)
        self.model = self.build(self.facts)
        if self.before is not None:
            self.model = trained(self.before, settings.out / self.before.stage)[0]
        self.optimizer = optimizers_of(self.model, settings.lr * self.rate)
        self.rows = settings.batch or ROWS_A_DEPTH * settings.depth
        weights = sum(parameter.numel() for parameter in self.model.parameters())
        self.text_steps = settings.steps or max(1, TOKENS_A_WEIGHT * weights // (self.rows * settings.context))

    @property
    def title(self) -> str:
        """As in Program."""
        return f"{self.name} {self.stage}"

    @property
    def folder(self) -> Path:
        """As in Program: a subfolder of the run's."""
        return Path(self.settings.out) / self.stage

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> Nano:
        """Returns the network."""
        return Nano(dialled(facts["depth"], facts["tokens"], facts["context"]))

    def schedule(self, step: int) -> float:
        """Returns the factor of the learning rate: 1, and linearly down to 0 over the last two fifths.

        Source: nanochat, `base_train`, which has no warm-up and such an end.
        """
        return min(1.0, (self.steps - step) / (0.4 * self.steps))

    def prompts(self, lessons: Sequence[Lesson]) -> list[list[int]]:
        """Returns the tokens up to each answer."""
        return [self.turns.question(lesson.question) for lesson in lessons]

    def answered(self, model: Nano, lessons: Sequence[Lesson], num: int) -> str:
        """Returns questions with the likeliest answers of up to `num` tokens, one per line."""
        answers = Answers(model, self.length, self.end, temperature=0.0).to(self.prompts(lessons), num)
        said = (self.tokenizer.decode([token for token in answer if token != self.end]) for answer in answers)
        return "\n".join(f"{lesson.question} {text.strip()}" for lesson, text in zip(lessons, said))


# ---- conversations as tokens ----
class Rows(NamedTuple):
    """Padded conversations.

    tokens:   (R, T)  int32
    targets:  (R, T)  int32, the token after each; -1 for ignored ones
    """

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]


def rows_of(questions: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], length: int) -> Rows:
    """Returns questions and answers as rows of T tokens, with the answers as targets; longer ones are truncated.

    >>> rows_of([[7, 8]], [[1, 2]], 4)
    Rows(tokens=array([[7, 8, 1, 2]], dtype=int32), targets=array([[-1,  1,  2, -1]], dtype=int32))
    """
    tokens = np.zeros((len(questions), length + 1), np.int32)
    targets = np.full((len(questions), length), NOT_COUNTED, np.int32)
    for row, (question, answer) in enumerate(zip(questions, answers)):
        whole = [*question, *answer][: length + 1]
        tokens[row, : len(whole)] = whole
        targets[row, len(question) - 1 : len(whole) - 1] = whole[len(question) :]
    return Rows(tokens[:, :length], targets)


class Answers:
    """Draws answers to many short questions at once, token by token.

    There is no cache: rows are short, and of different lengths. Causal attention hides the padding after each row.

    Args:
      model:   model that answers; its weights may change between two calls
      length:  largest number of tokens of a question and its answer
      end:     token that ends an answer
    """

    def __init__(self, model: Nano, length: int, end: int, temperature: float):
        self.length, self.end = length, end

        @jit
        def next_of(tokens_RT: Tensor, last_R: Tensor) -> Tensor:
            hidden_RC = model.hidden(tokens_RT)[Tensor.arange(tokens_RT.shape[0]), last_R]
            return drawn_from(model.logits(hidden_RC), temperature)

        self.next_of = next_of

    def to(self, questions: Sequence[Sequence[int]], num: int) -> list[list[int]]:
        """Returns the tokens of answers, up to `num` of them, including the end token if there is one.

        Args:
          questions:  tokens of each question
        """
        texts = [[*question][: self.length - 1] for question in questions]
        answers, open_rows = [list[int]() for _ in texts], set(range(len(texts)))
        for _ in range(num):
            tokens = np.zeros((len(texts), self.length), np.int32)
            for row, text in enumerate(texts):
                tokens[row, : len(text)] = text
            with no_grad():
                drawn = self.next_of(Tensor(tokens), Tensor([len(text) - 1 for text in texts])).tolist()
            for row in [*open_rows]:
                answers[row].append(drawn[row])
                texts[row].append(drawn[row])
                if drawn[row] == self.end or len(texts[row]) == self.length:
                    open_rows.remove(row)
            if not open_rows:
                break
        return answers


def right(stage: Stage, answers: Sequence[Sequence[int]], lessons: Sequence[Lesson]) -> NDArray[np.float32]:
    """Returns 1 for each complete answer that equals the lesson's, 0 for others, (R,)."""
    said = [stage.tokenizer.decode(answer) if stage.end in answer else None for answer in answers]
    return np.array([text == lesson.answer for text, lesson in zip(said, lessons)], np.float32)
