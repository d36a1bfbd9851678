"""Answers of a sequence-to-sequence network to several clients, one after the other: it has one memory of a text.

A client that leaves ends its answer with the next token; a search is finished first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from picograd_programs.chat.desk import Begun, Question, Questions
from picograd_programs.chat.run import TextToText

UNTOLD = np.zeros(0)  # logits, which nobody asks for


class WriterDesk(Questions[Begun]):
    """Answers questions one at a time.

    Args:
      texts:  the network and how it writes
      most:   as of Questions
    """

    def __init__(self, texts: TextToText, most: int):
        super().__init__(1, most)
        self.texts = texts

    def step(self) -> None:
        """Answers the first question in line."""
        with self.changed:
            self._leave()
            if not self.line:
                return
            self.answers.append(answer := Begun(self.line.popleft()))
        reason: str | Exception
        try:
            reason = self._answer(answer.question)
        except Exception as error:  # the client's thread raises it
            reason = error
        self._finish(answer, reason)

    def _answer(self, question: Question) -> str:
        """Writes an answer, and returns why it ended."""
        writer, num = self.texts.writer, 0
        tokens = self._tokens(question)
        while question.is_wanted and self.is_open:
            with self.machine:
                token = next(tokens, None)
            if token is None:
                return "stop" if writer.num_drawn > num else "length"
            num += 1
            if not question.take(token, UNTOLD):
                break
        return "stop"

    def _tokens(self, question: Question) -> Iterator[int]:
        texts = self.texts
        length = texts.writer.read(question.tokens)
        choice = question.choice
        way = texts.way(question.num, choice, question.seed, draws=choice.temperature > 0)
        yield from texts.writer.write(length, texts.manner, way)
