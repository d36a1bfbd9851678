"""Several answers at once by one network: questions wait for one of its texts, and are read in pieces.

Each step reads a piece of the first unread question, then appends one token to every answer in progress, all in one plan.
An answer has the same bits whatever runs beside it or ran before: a row of a plan depends only on its own text, and of an
earlier text only whole pieces are kept, which a new reading would reproduce.

Source: Yu et al. 2022, "Orca: A distributed serving system for Transformer-based generative models", section 3.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from picograd.errors import ArgumentError, PicogradError
from picograd.tensor.modes import no_grad
from picograd_programs.chat.answer import Choice, Plans, Reader, chosen
from picograd_programs.chat.rules import Logits, Rule


class Line:
    """A lock that is granted in the order of requests.

    >>> with Line():
    ...     pass
    """

    def __init__(self) -> None:
        self.condition, self.places = threading.Condition(), deque[object]()  # the first has the lock

    def __enter__(self) -> None:
        place = object()
        with self.condition:
            self.places.append(place)
            try:
                self.condition.wait_for(lambda: self.places[0] is place)
            except BaseException:  # interrupted; those after it must not wait for it
                self.places.remove(place)
                self.condition.notify_all()
                raise

    def __exit__(self, *error: object) -> None:
        with self.condition:
            self.places.popleft()
            self.condition.notify_all()


class NotTaken(PicogradError):
    """A refused question: many wait already, or the desk is closed."""


@dataclass(eq=False)
class Question:
    """A text to be continued, and the receiver of the following tokens.

    tokens:     tokens of the text
    ends:       tokens that end the answer and are not part of it
    num:        largest number of tokens of the answer; it also ends at the text's largest length
    choice:     settings of the draws
    seed:       seed of the draws
    take:       receives each token with the logits it was drawn from; returns False to stop
    end:        receives "stop", "length", or the error that ended the answer; the last call
    rules:      rules for the text, question and answer
    is_wanted:  False: the answer ends at the next check
    """

    tokens: Sequence[int]
    ends: frozenset[int]
    num: int
    choice: Choice
    seed: int
    take: Callable[[int, Logits], bool]
    end: Callable[[str | Exception], None]
    rules: Sequence[Rule] = ()
    is_wanted: bool = True


T = TypeVar("T", bound="Begun")


@dataclass(eq=False)
class Begun:
    """A question whose answer is in progress."""

    question: Question


@dataclass(eq=False)
class Answer(Begun):
    """A question with its own text of the network.

    left:    unread tokens of the question
    logits:  logits of the next token, once all are read
    num:     number of drawn tokens
    """

    reader: Reader
    left: list[int]
    rng: np.random.Generator
    logits: Logits | None = None
    num: int = 0


class Questions(Generic[T]):
    """A queue of questions, first come, first served, which `work` answers in one thread.

    machine:  lock held while the network computes
    answers:  answers in progress, in the order of their start

    Args:
      num:   largest number of simultaneous answers
      most:  largest number of waiting questions; others are refused
    """

    def __init__(self, num: int, most: int):
        self.num, self.most, self.is_open = num, most, True
        self.machine, self.changed = Line(), threading.Condition()
        self.line: deque[Question] = deque()
        self.answers: list[T] = []

    def ask(self, questions: Sequence[Question]) -> None:
        """Adds questions to the queue.

        Raises:
          ArgumentError: there are more than the queue can ever hold.
          NotTaken: too many would wait, or the desk is closed.
        """
        if len(questions) > self.num + self.most:
            raise ArgumentError(
                f"n: {len(questions)} answers; this server writes {self.num} at once and queues {self.most}."
            )
        with self.changed:
            if not self.is_open:
                raise NotTaken("this server is stopping and takes no new questions.")
            self._leave()
            if len(self.line) + len(questions) + len(self.answers) - self.num > self.most:
                raise NotTaken(
                    f"{len(self.answers)} answers are being written and {len(self.line)} wait; this server lets"
                    f" {self.most} wait. Ask again later."
                )
            self.line.extend(questions)
            self.changed.notify_all()

    def _leave(self) -> None:
        """Ends queued questions whose client has left."""
        for question in [each for each in self.line if not each.is_wanted]:
            self.line.remove(question)
            question.end("stop")

    def work(self) -> None:
        """Answers questions until the desk is closed or a step fails; then ends all that are left."""
        reason: str | Exception = "stop"
        try:
            while self._is_asked():
                self.step()
        except Exception as error:
            reason = error
            raise
        finally:
            self.close()  # no one shall wait for an answer from now on
            for answer in [*self.answers]:
                self._finish(answer, reason)
            for question in self.line:
                question.end(reason)
            self.line.clear()

    def _is_asked(self) -> bool:
        """Waits for a question; returns False if the desk is closed."""
        with self.changed:
            self.changed.wait_for(lambda: self.line or self.answers or not self.is_open)
            return self.is_open

    def close(self) -> None:
        """Ends all answers after their current tokens."""
        with self.changed:
            self.is_open = False
            self.changed.notify_all()

    def step(self) -> None:
        """Continues the answers in progress, and starts others."""
        raise NotImplementedError

    def _finish(self, answer: T, reason: str | Exception) -> None:
        self.answers.remove(answer)
        answer.question.end(reason)


class Desk(Questions[Answer]):
    """Answers as many questions at once as the plans of a network have texts.

    Args:
      plans:  the network's plans
      most:   as in Questions
    """

    def __init__(self, plans: Plans, most: int):
        super().__init__(plans.num, most)
        self.plans = plans
        self.free = [Reader(plans, text) for text in range(plans.num)]  # the longest idle first

    def step(self) -> None:
        """Assigns free texts to queued questions, reads a piece of one question, and a token of each answer."""
        for answer in [*self.answers]:
            if not answer.question.is_wanted:
                self._finish(answer, "stop")
        self._begin()
        if unread := [answer for answer in self.answers if answer.logits is None]:
            self._each(unread[:1], partial(self._read, unread[0]))
        drawn: list[tuple[Answer, int]] = []
        for answer in [answer for answer in self.answers if answer.logits is not None]:
            self._each([answer], partial(self._draw, answer, drawn))
        if drawn:
            self._each([answer for answer, _ in drawn], lambda: self._write(drawn))

    def _begin(self) -> None:
        with self.changed:
            self._leave()
            while self.line and self.free:
                question = self.line.popleft()
                kept = [self.plans.whole(min(reader.same(question.tokens), reader.whole)) for reader in self.free]
                reader = self.free.pop(kept.index(max(kept)))
                left = reader.keep(question.tokens, max(kept))
                rng = np.random.default_rng((question.seed, len(question.tokens)))
                self.answers.append(Answer(question, reader, left, rng))

    def _each(self, answers: Sequence[Answer], function: Callable[[], object]) -> None:
        """Runs a part of a step for some answers; an error ends only these, and their texts are forgotten."""
        try:
            function()
        except Exception as error:  # raised again in the client's thread
            for answer in answers:
                answer.reader.keep([])
                self._finish(answer, error)

    def _read(self, answer: Answer) -> None:
        with self.machine:
            logits, answer.left = answer.reader.read_some(answer.left)
            if not answer.left:
                answer.logits = logits.numpy()

    def _draw(self, answer: Answer, drawn: list[tuple[Answer, int]]) -> None:
        """Draws a token of an answer and delivers it; adds it to the batch if the answer continues."""
        question, reader = answer.question, answer.reader
        assert answer.logits is not None, "the question is read"
        ruled_V = answer.logits.copy()
        for rule in question.rules:
            rule(ruled_V, reader.tokens)
        token = chosen(ruled_V, reader.tokens, question.choice, answer.rng)
        if token in question.ends:
            self._finish(answer, "stop")
            return
        answer.num += 1
        if not question.take(token, answer.logits):
            self._finish(answer, "stop")
        elif answer.num == question.num or reader.left() == 1:
            self._finish(answer, "length")
        else:
            drawn.append((answer, token))

    def _write(self, drawn: Sequence[tuple[Answer, int]]) -> None:
        readers = [answer.reader for answer, _ in drawn]
        tokens = [token for _, token in drawn]
        with self.machine, no_grad():
            logits = self.plans.next_tokens(
                [reader.text for reader in readers], tokens, [len(reader.tokens) for reader in readers]
            ).numpy()
        for (answer, token), of_row in zip(drawn, logits):
            answer.reader.tokens.append(token)
            answer.logits = of_row

    def _finish(self, answer: Answer, reason: str | Exception) -> None:
        self.free.append(answer.reader)
        super()._finish(answer, reason)
