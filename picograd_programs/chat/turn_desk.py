"""Answers to several clients one after the other: for networks with an encoder, which hold one text in memory, and for
searches, which need all texts of a network.

A client that leaves ends its answer at the next token; a search finishes first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np

from picograd.record import replace
from picograd_programs.chat.desk import Begun, Question, Questions
from picograd_programs.chat.run import Dialogue, TextToText
from picograd_programs.chat.search import rules_of

UNTOLD = np.zeros(0)  # unused logits
Answering = Generator[int, None, str]  # tokens, then the reason of the end: "stop" or "length"


class TurnDesk(Questions[Begun]):
    """Answers questions one at a time.

    Args:
      answer:  starts the answer to a question
      most:    as in Questions
    """

    def __init__(self, answer: Callable[[Question], Answering], most: int):
        super().__init__(1, most)
        self.answer = answer

    def step(self) -> None:
        """Answers the first question of the queue."""
        with self.changed:
            self._leave()
            if not self.line:
                return
            self.answers.append(answer := Begun(self.line.popleft()))
        reason: str | Exception
        try:
            reason = self._answer(answer.question)
        except Exception as error:  # raised again in the client's thread
            reason = error
        self._finish(answer, reason)

    def _answer(self, question: Question) -> str:
        """Writes an answer, and returns the reason of its end."""
        tokens = self.answer(question)
        while question.is_wanted and self.is_open:
            try:
                with self.machine:
                    token = next(tokens)
            except StopIteration as end:
                return end.value
            if not question.take(token, UNTOLD):
                break
        return "stop"


def by_writer(texts: TextToText, question: Question) -> Answering:
    """Yields the tokens of an answer by a network with an encoder."""
    writer, num, choice = texts.writer, 0, question.choice
    length = writer.read(question.tokens)
    way = texts.way(question.num, choice, question.seed, draws=choice.temperature > 0)
    for token in writer.write(length, texts.manner, replace(way, rules=[*way.rules, *question.rules])):
        num += 1
        yield token
    return "stop" if writer.num_drawn > num else "length"


def by_search(dialogue: Dialogue, question: Question) -> Answering:
    """Yields the tokens of a decoder's answer, by a search; or by draws, if a temperature asks for them."""
    reader, num, choice = dialogue.reader, 0, question.choice
    search = replace(dialogue.search, beams=1) if choice.temperature > 0 else dialogue.search
    left = reader.keep(question.tokens, reader.plans.whole(min(reader.same(question.tokens), reader.whole)))
    how = choice, question.seed, [*rules_of(search), *question.rules], search
    for token in reader.answer(left, question.ends, question.num, *how):
        num += 1
        yield token
    return "length" if num == min(question.num, reader.length - len(question.tokens)) else "stop"
