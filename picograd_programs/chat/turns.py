"""Turns of a dialogue as tokens, in the form that a model was trained with.

A GGUF file has the form as a template, a program in Jinja. It is not run: the marks in it tell which of a few known forms
it is. What a person writes is encoded as plain text, so that no message can forge the mark of another turn.

Source: OpenAI, "Chat Markup Language"; Meta, "Llama 3 model card and prompt formats".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from picograd.errors import DataError
from picograd.record import Record
from picograd_programs.data.bpe import Tokenizer


class Form(Record):
    """The form of a turn: `before`, role, `between`, text, `after`. Marks in it are control tokens.

    name:      of the form
    mark:      what it is known by in a template
    """

    name: str
    mark: str
    before: str
    between: str
    after: str


FORMS = (
    Form("ChatML", "<|im_start|>", "<|im_start|>", "\n", "<|im_end|>\n"),
    Form("Llama 3", "<|start_header_id|>", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
)


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
        forms = [form for form in FORMS if form.mark in text]
        if not forms:
            found = "a template of another form" if text else "no template of turns"
            known = ", ".join(form.name for form in FORMS)
            raise DataError(f"the file has {found}; {known} are known.", "take a model that was trained for dialogues.")
        self.form = form = forms[0]
        marks = re.findall(r"<\|\w+\|>", form.before + form.between + form.after)
        if missing := [mark for mark in marks if mark not in tokenizer.control]:
            raise DataError(f"the file's template has the mark {missing[0]}, its vocabulary does not.")
        self.marks = re.compile(f"({'|'.join(map(re.escape, marks))})")
        end = metadata.get("tokenizer.ggml.eos_token_id")
        self.ends = {tokenizer.control[marks[-1]], *([end] if isinstance(end, int) else [])}
        first = metadata.get("tokenizer.ggml.bos_token_id")
        self.start = [first] if metadata.get("tokenizer.ggml.add_bos_token") and isinstance(first, int) else []
        said = re.search(rf"{re.escape(form.before)}system(?:\n|\\n)([^'\"{{}}<]*){re.escape(marks[-1])}", text)
        self.system = said.group(1) if said else ""  # that the template says by itself

    def turn(self, role: str, text: str) -> list[int]:
        """Returns the tokens of a whole turn."""
        form = self.form
        return [*self._encoded(form.before, role + form.between, text), *self._encoded(form.after, "", "")]

    def question(self, text: str) -> list[int]:
        """Returns the tokens of a person's turn and of the beginning of the answer."""
        return [*self.turn("user", text), *self._encoded(self.form.before, "assistant" + self.form.between, "")]

    def beginning(self, system: str) -> list[int]:
        """Returns the tokens before the first turn: with what the model is told about its part."""
        return [*self.start, *(self.turn("system", system) if system else [])]

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
