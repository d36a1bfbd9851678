"""Second stage of nano: the language model learns to answer, from conversations with a loss on the answers only.

Marks that no text can contain surround each turn. The loss covers the answer's tokens and its end mark: the model shall not
predict the user's questions.

Source: Ouyang et al. 2022, arXiv:2203.02155, section 3.1; Karpathy 2025, nanochat, `chat_sft`.

Letters: R rows, T positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from picograd.tensor.tensor import Tensor
from picograd_programs.nano.base import Base
from picograd_programs.nano.lessons import Lessons
from picograd_programs.nano.network import Nano, mean_loss
from picograd_programs.nano.stage import Answers, NanoSettings, Rows, Stage, right, rows_of

ROW_TOKENS = 64  # tokens of a training conversation
ANSWER_TOKENS = 16  # tokens of an answer in an evaluation
ASKED = 64  # questions of each kind in an evaluation
MEASURED = ("spelling", "letters", "sums")  # kinds with a unique answer


class Talk(Stage):
    """Learns to answer."""

    stage, item, before = "talk", "conversations", Base
    about = "Learns to answer."

    def __init__(self, settings: NanoSettings):
        super().__init__(settings)
        self.lessons = Lessons(self.text, settings.depth)
        self.length = min(ROW_TOKENS, settings.context)
        self.steps = settings.chat_steps or self.text_steps
        self.asked = {kind: self.lessons.held_out(kind, ASKED) for kind in MEASURED}

    def batch(self, number: int) -> Rows:
        """Returns conversations of all kinds."""
        lessons = self.lessons.several(self.rows, np.random.default_rng((self.settings.seed, number)))
        answers = [[*self.tokenizer.encode(lesson.answer), self.end] for lesson in lessons]
        return rows_of(self.prompts(lessons), answers, self.length)

    def loss(self, model: Nano, *batch: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the mean cross-entropy of the answers' tokens, in nats."""
        return mean_loss(model, *batch)

    def evaluate(self, model: Nano) -> Mapping[str, float]:
        """Returns the shares of held-out questions that are answered correctly, by the likeliest tokens."""
        answers = Answers(model, self.length, self.end, temperature=0.0)
        return {
            f"{kind} right": float(right(self, answers.to(self.prompts(lessons), ANSWER_TOKENS), lessons).mean())
            for kind, lessons in self.asked.items()
        }

    def preview(self, model: Nano, step: int) -> str:
        """Returns a held-out question of each kind with the likeliest answer."""
        return self.answered(model, [lessons[0] for lessons in self.asked.values()], ANSWER_TOKENS)

    def report(self, model: Nano) -> str:
        """Returns the evaluation as a line."""
        shares = (f"{name} {share:.1%}" for name, share in self.evaluate(model).items())
        return f"held-out questions: {', '.join(shares)}"
