"""Turns of a dialogue as tokens, in the form that a model was trained with.

    messages -> the template's text -> tokens

A model's files have the form as a template in Jinja. A person's words are encoded as plain text, so that no message can
forge the mark of another turn: marks in it are broken before the template is rendered, and whole again where none is looked
for. An answer that a network has written keeps its tokens, so that its cache goes on being right.

Source: Hugging Face, transformers, `apply_chat_template` (variables of a template).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from picograd.errors import ArgumentError, DataError
from picograd.record import Record
from picograd_programs.chat.jinja import Template
from picograd_programs.chat.search import Search
from picograd_programs.data.bpe import Tokenizer

# Characters that Unicode keeps out of texts; a template does nothing with them.
BREAK, ANSWER = "\ufdd0", "\ufdd1"  # breaks a mark in a message; is an answer whose tokens are known


class Manner(Record):
    """The template and the marks of a model, by its files.

    template:  in Jinja; "": it knows no dialogues
    names:     of the first and the last token of a text, bos_token and eos_token, for the template
    start:     tokens that a dialogue begins with if its template does not say it
    ends:      tokens that end a text
    drawing:   settings of the draw of tokens, by the names of `Choice`; those that are not there: as without files
    search:    settings of a search in place of draws
    """

    template: str
    names: Mapping[str, str]
    start: tuple[int, ...]
    ends: frozenset[int]
    drawing: Mapping[str, float] = {}
    search: Search = Search()


def manner_of(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> Manner:
    """Returns the manner that the metadata of a GGUF file describe; numbers beyond the vocabulary do not count."""

    def number(name: str) -> list[int]:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return [value] if isinstance(value, int) and 0 <= value < len(tokenizer.tokens) else []

    is_llama_3 = metadata.get("tokenizer.ggml.pre") == "llama-bpe"  # whose files need not say it, as llama.cpp knows it
    begins = metadata.get("tokenizer.ggml.add_bos_token", is_llama_3)
    template = metadata.get("tokenizer.chat_template")
    names = {f"{name}_token": tokenizer.tokens[n] for name in ("bos", "eos") for n in number(name)}
    start = tuple(number("bos")) if begins else ()
    return Manner(template if isinstance(template, str) else "", names, start, frozenset(number("eos")))


class Turns:
    """Encodes the turns of a dialogue.

    ends:  tokens that end an answer

    Raises:
      DataError: the model knows no dialogues, or its template has a part of Jinja that is not known here.
    """

    def __init__(self, manner: Manner, tokenizer: Tokenizer):
        self.manner, self.tokenizer = manner, tokenizer
        hint = "--raw continues the prompt as it is."
        if not manner.template:
            raise DataError("the model has no template of turns.", hint)
        try:
            self.template = Template(manner.template)
            if ANSWER not in self._rendered(["user"], [ANSWER]):
                raise DataError("the model has a template of turns that leaves out what a person says.")
            self.ends = {*manner.ends, *self._mark_of_end()}
        except (ArgumentError, DataError) as error:
            raise DataError(error.fact, hint) from None

    def dialogue(self, messages: Sequence[tuple[str, str | Sequence[int]]]) -> list[int]:
        """Returns the tokens of a dialogue up to the answer.

        Args:
          messages:  role of each turn, and its text, or the tokens of an answer that was written; the last is a person's

        Raises:
          ArgumentError: the template refuses these roles, or their order.
        """
        texts = [text if isinstance(text, str) else self.tokenizer.decode(text) for _, text in messages]
        answers = [text for _, text in messages if not isinstance(text, str)]
        broken = [self._broken(text) for text in texts]
        kept = [part if isinstance(text, str) else ANSWER for part, (_, text) in zip(broken, messages)]
        roles = [role for role, _ in messages]
        whole = self._rendered(roles, broken)
        written = iter(part for part, (_, text) in zip(broken, messages) if not isinstance(text, str))
        if answers and re.sub(ANSWER, lambda _: next(written), found := self._rendered(roles, kept)) == whole:
            return self._encoded(found, answers)
        return self._encoded(whole, [])  # the template does something with answers

    def question(self, text: str) -> list[int]:
        """Returns the tokens of a dialogue that begins with a person's question, up to the answer."""
        return self.dialogue([("user", text)])

    def _broken(self, text: str) -> str:
        text = text.replace(BREAK, "").replace(ANSWER, "")
        return self.tokenizer.marks.sub(lambda found: found[0][:1] + BREAK + found[0][1:], text)

    def _rendered(self, roles: Sequence[str], texts: Sequence[str], asks: bool = True) -> str:
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts)]
        try:
            return self.template.render(messages=messages, add_generation_prompt=asks, **self.manner.names)
        except DataError as error:
            raise ArgumentError(error.fact) from None

    def _encoded(self, text: str, answers: Sequence[Sequence[int]]) -> list[int]:
        numbers: list[int] = []
        for place, part in enumerate(text.split(ANSWER)):
            numbers += [*(answers[place - 1] if place else ()), *self.tokenizer.encode_marked(part, BREAK)]
        start = [*self.manner.start]
        return numbers if numbers[: len(start)] == start else start + numbers

    def _mark_of_end(self) -> list[int]:
        """Returns the control token that the template writes behind an answer, if it is one."""
        try:
            text = self._rendered(["user", "assistant"], ["?", ANSWER], asks=False)
        except ArgumentError:
            return []
        behind = text.rpartition(ANSWER)[2].lstrip()
        found = self.tokenizer.marks.match(behind)
        return [self.tokenizer.control[found[0]]] if found and ANSWER in text else []
