"""Third stage of nano: learns sums by reinforcement. Right answers become likelier, wrong ones less likely.

The current network answers each question several times. An answer's reward is 1 if it is right, else 0; its advantage is
its reward minus the mean of the question's rewards, so that a question's answers compete and no second network has to
estimate the expected reward:

    loss = -sum(advantage * log(probability of the answer's tokens)) / tokens

This is GRPO without its reference model, without its ratio of new and old probabilities (a batch is used once, so it is 1),
and without the division by the rewards' deviation, which would favour questions with nearly all answers right or wrong.

Source: Shao et al. 2024, arXiv:2402.03300, section 4.1 (groups); Liu et al. 2025, arXiv:2503.20783, section 3.1 (no
       division); Karpathy 2025, nanochat, `chat_rl`.

Letters: R rows, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from picograd.nn import functional as F
from picograd.tensor.generator import manual_seed
from picograd.tensor.tensor import Tensor
from picograd_programs.nano.lessons import Lessons
from picograd_programs.nano.network import Nano
from picograd_programs.nano.stage import NOT_COUNTED, Answers, NanoSettings, Stage, right, rows_of
from picograd_programs.nano.talk import Talk
from picograd_programs.train.trainer import seed_from

QUESTIONS, TRIES = 16, 16  # per step, and answers per question
SAMPLE = 3  # kind of draws; 1 and 2 are those of steps and epochs
PREVIEWED = 4  # sums per evaluation
DRAWN = 512  # draws of an evaluation, whose duplicates are dropped


class Tried(NamedTuple):
    """Tried answers with their rewards.

    tokens:      (R, T)  int32
    targets:     (R, T)  int32, the answers' tokens; -1 elsewhere
    advantages:  (R,)    float32
    rewards:     (R,)    float32
    """

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]
    advantages: NDArray[np.float32]
    rewards: NDArray[np.float32]


class Sums(Stage):
    """Learns sums by reinforcement."""

    stage, item, before, rate = "sums", "answers", Talk, 0.05
    about = "Learns sums."

    def __init__(self, settings: NanoSettings):
        super().__init__(settings)
        self.lessons, self.steps = Lessons(self.text, settings.depth), settings.sums_steps
        longest = self.lessons.terms - 1
        self.answer_tokens = len(str(2 * longest)) + 1
        self.length = len(self.turns.question(f"What is {longest} + {longest}?")) + self.answer_tokens
        self.answers = Answers(self.model, self.length, self.end, temperature=1.0)
        rng = np.random.default_rng(settings.seed)
        self.asked = {
            "held-out": [*dict.fromkeys(self.lessons.held_out("sums", DRAWN))],
            "other": [*dict.fromkeys(self.lessons.drawn("sums", rng) for _ in range(DRAWN))],
        }
        self.begun = self.evaluate(self.model)

    def batch(self, number: int) -> Tried:
        """Returns answers of the network before step `number`, with their rewards."""
        rng = np.random.default_rng((self.settings.seed, number))
        asked = [self.lessons.drawn("sums", rng) for _ in range(QUESTIONS)]
        lessons = [lesson for lesson in asked for _ in range(TRIES)]
        questions = self.prompts(lessons)
        manual_seed(seed_from(self.settings.seed, number, SAMPLE))
        answers = self.answers.to(questions, self.answer_tokens)
        rewards = right(self, answers, lessons)
        groups = rewards.reshape(QUESTIONS, TRIES)
        return Tried(*rows_of(questions, answers, self.length), (groups - groups.mean(1, keepdims=True)).flatten(), rewards)

    def loss(  # type: ignore[override]
        self, model: Nano, tokens_RT: Tensor, targets_RT: Tensor, advantages_R: Tensor, rewards_R: Tensor
    ) -> Mapping[str, Tensor]:
        """Returns the loss, and the mean reward."""
        return {"loss": policy_loss(model(tokens_RT), targets_RT, advantages_R), "reward": rewards_R.mean()}

    def evaluate(self, model: Nano) -> Mapping[str, float]:
        """Returns the shares of held-out and of other sums that are answered correctly, by the likeliest tokens."""
        answers = Answers(model, self.length, self.end, temperature=0.0)
        return {
            f"{name} sums right": float(right(self, answers.to(self.prompts(asked), self.answer_tokens), asked).mean())
            for name, asked in self.asked.items()
        }

    def preview(self, model: Nano, step: int) -> str:
        """Returns a few held-out sums with the likeliest answers."""
        return self.answered(model, self.asked["held-out"][:PREVIEWED], self.answer_tokens)

    def report(self, model: Nano) -> str:
        """Returns the evaluation as a line, with the values before this stage."""
        ended = self.evaluate(model)
        rows = ((name, len(asked), f"{name} sums right") for name, asked in self.asked.items())
        return "; ".join(f"{name} sums: {ended[of]:.1%} of {n} right, {self.begun[of]:.1%} before" for name, n, of in rows)


def policy_loss(logits_RTV: Tensor, targets_RT: Tensor, advantages_R: Tensor) -> Tensor:
    """Returns -sum(advantage log p(target)) / number of targets, over targets other than -1.

    >>> policy_loss(Tensor.zeros(2, 2, 4), Tensor([[-1, 3], [0, 1]]), Tensor([0.5, 1.0])).exp().round(3)
    Tensor(3.175)
    """
    losses_RT = F.cross_entropy(logits_RTV.flatten(0, 1), targets_RT.flatten(), ignore_index=NOT_COUNTED, reduction="none")
    weighed_RT = losses_RT.reshape(*targets_RT.shape) * advantages_R.unsqueeze(1)
    return weighed_RT.sum() / (targets_RT != NOT_COUNTED).sum()
