"""Turns of a dialogue as tokens, in the form that a model was trained with.

A GGUF file has the form as a template, a program in Jinja. It is not run: the marks in it tell which of a few known forms
it is. What a person writes is encoded as plain text, so that no message can forge the mark of another turn.

Source: OpenAI, "Chat Markup Language"; Meta, "Llama 3 model card and prompt formats".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from picograd.errors import DataError
from picograd.record import Record
from picograd_programs.data.bpe import Tokenizer


class Form(Record):
    """The form of a turn: `before`, role, `between`, text, `after`. Marks in it are control tokens.

    name:        of the form
    before:      begins with the mark that it is known by in a template
    answerer:    role of the model
    has_system:  what the model is told is a turn of its own; else it begins the first question
    """

    name: str
    before: str
    between: str
    after: str
    answerer: str = "assistant"
    has_system: bool = True


FORMS = (
    Form("ChatML", "<|im_start|>", "\n", "<|im_end|>\n"),
    Form("Llama 3", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
    Form("Gemma", "<start_of_turn>", "\n", "<end_of_turn>\n", "model", has_system=False),
)


def start_and_ends(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> tuple[list[int], set[int]]:
    """Returns the tokens that a text begins with, and those that end it."""

    def number(name: str) -> list[int]:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return [value] if isinstance(value, int) and 0 <= value < len(tokenizer.tokens) else []

    is_llama_3 = metadata.get("tokenizer.ggml.pre") == "llama-bpe"  # whose files need not say it, as llama.cpp knows it
    begins = metadata.get("tokenizer.ggml.add_bos_token", is_llama_3)
    return number("bos") if begins else [], set(number("eos"))


class Turns:
    """Encodes the turns of a dialogue.

    Args:
      metadata:   of a GGUF file
      tokenizer:  of the same

    Raises:
      DataError: the file has no template of a known form, or its vocabulary lacks a mark.
    """

    def __init__(self, metadata: Mapping[str, Any], tokenizer: Tokenizer):
        template, self.tokenizer = metadata.get("tokenizer.chat_template"), tokenizer
        text = template if isinstance(template, str) else ""
        forms = [form for form in FORMS if form.before in text]
        if not forms:
            found = "a template of another form" if text else "no template of turns"
            known = ", ".join(form.name for form in FORMS)
            raise DataError(f"the file has {found}; {known} are known.", "--raw continues the prompt as it is.")
        self.form = form = forms[0]
        marks = re.findall(r"<\|?\w+\|?>", form.before + form.between + form.after)
        if missing := [mark for mark in marks if mark not in tokenizer.control]:
            raise DataError(f"the file's template has the mark {missing[0]}, its vocabulary does not.")
        self.marks = re.compile(f"({'|'.join(map(re.escape, marks))})")
        self.start, ends = start_and_ends(metadata, tokenizer)
        self.ends = {tokenizer.control[marks[-1]], *ends}
        said = re.search(rf"{re.escape(form.before)}system(?:\n|\\n)([^'\"{{}}<]*){re.escape(marks[-1])}", text)
        self.system = said.group(1) if said else ""  # that the template says by itself

    def turn(self, role: str, text: str) -> list[int]:
        """Returns the tokens of a whole turn."""
        form = self.form
        return [*self._encoded(form.before, role + form.between, text), *self._encoded(form.after, "", "")]

    def question(self, text: str) -> list[int]:
        """Returns the tokens of a person's turn and of the beginning of the answer."""
        answer = self.form.answerer + self.form.between
        return [*self.turn("user", text), *self._encoded(self.form.before, answer, "")]

    def dialogue(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Returns the tokens of a dialogue up to the answer.

        Args:
          messages:  role and text of each turn, the last of a person; where the first is not of role "system", the model
                     is told about its part what its file says
        """
        told = [("system", self.system)] if self.system and messages[0][0] != "system" else []
        numbers, before, last = [*self.start], "", messages[-1][1]
        for role, text in [*told, *messages[:-1]]:
            if role == "system" and not self.form.has_system:
                before = f"{text}\n\n"
                continue
            numbers += self.turn(self.form.answerer if role == "assistant" else role, before + text)
            before = ""
        return numbers + self.question(before + last)

    def closing(self, last: int) -> list[int]:
        """Returns the tokens between an answer, whose last token it is given, and the next turn; one cut short is ended."""
        after = self._encoded(self.form.after, "", "")
        return after[1:] if last in self.ends else after

    def _encoded(self, before: str, between: str, text: str) -> list[int]:
        """Returns tokens of `before` and `between`, whose marks are control tokens, and of a text, whose marks are not.

        Words are cut as if the text after the last mark were one: a newline and those that follow are one token.
        """
        *marked, last = self.marks.split(before + between)
        numbers: list[int] = []
        for part in marked:
            numbers += [self.tokenizer.control[part]] if part in self.tokenizer.control else self.tokenizer.encode(part)
        return numbers + self.tokenizer.encode(last + text)
