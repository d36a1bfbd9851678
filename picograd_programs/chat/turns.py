"""Turns of a dialogue as tokens, in the format of a model's training.

    messages -> the template's text -> tokens

A model's files contain the format as a template in Jinja. A user's words are encoded as plain text, so that no message can
forge the mark of another turn: marks in it are broken up before the template is rendered, and restored in plain text. An
answer of the network keeps its tokens, so that the cache stays valid.

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

# Unicode's noncharacters, which templates leave unchanged.
BREAK, ANSWER = "\ufdd0", "\ufdd1"  # splits a mark in a message; stands for an answer with known tokens


class Manner(Record):
    """The template and the marks of a model, from its files.

    template:  in Jinja; "": the model has no dialogues
    names:     of the first and the last token of a text, bos_token and eos_token, for the template
    start:     start tokens of a dialogue, if the template does not write them
    ends:      tokens that end a text
    drawing:   settings of the draws, by `Choice`'s names; missing ones have the defaults
    search:    settings of a search instead of draws
    """

    template: str
    names: Mapping[str, str]
    start: tuple[int, ...]
    ends: frozenset[int]
    drawing: Mapping[str, float] = {}
    search: Search = Search()


def manner_of(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> Manner:
    """Returns the manner in the metadata of a GGUF file; token numbers outside the vocabulary are ignored."""

    def number(name: str) -> list[int]:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return [value] if isinstance(value, int) and 0 <= value < len(tokenizer.tokens) else []

    is_llama_3 = metadata.get("tokenizer.ggml.pre") == "llama-bpe"  # files may omit a turn's end, as llama.cpp does
    begins = metadata.get("tokenizer.ggml.add_bos_token", is_llama_3)
    template = metadata.get("tokenizer.chat_template")
    names = {f"{name}_token": tokenizer.tokens[n] for name in ("bos", "eos") for n in number(name)}
    start = tuple(number("bos")) if begins else ()
    return Manner(template if isinstance(template, str) else "", names, start, frozenset(number("eos")))


class Turns:
    """Encodes the turns of a dialogue.

    ends:  tokens that end an answer

    Raises:
      DataError: the model has no dialogues, or its template uses an unsupported part of Jinja.
    """

    def __init__(self, manner: Manner, tokenizer: Tokenizer):
        self.manner, self.tokenizer = manner, tokenizer
        hint = "--raw continues the prompt as it is."
        if not manner.template:
            raise DataError("the model has no template of turns.", hint)
        try:
            self.template = Template(manner.template)
            if ANSWER not in self._rendered(["user"], [ANSWER]):
                raise DataError("the model's template of turns leaves out the user's text.")
            self.ends = {*manner.ends, *self._mark_of_end()}
        except (ArgumentError, DataError) as error:
            raise DataError(error.fact, hint) from None

    def dialogue(self, messages: Sequence[tuple[str, str | Sequence[int]]]) -> list[int]:
        """Returns the tokens of a dialogue up to the next answer.

        Args:
          messages:  role of each turn, with its text, or the tokens of a written answer; the last is the user's

        Raises:
          ArgumentError: the template rejects these roles, or their order.
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
        return self._encoded(whole, [])  # the template changes answers

    def question(self, text: str) -> list[int]:
        """Returns the tokens of a dialogue that starts with a user's question, up to the answer."""
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
        """Returns the control token that the template writes after an answer, if it is one."""
        try:
            text = self._rendered(["user", "assistant"], ["?", ANSWER], asks=False)
        except ArgumentError:
            return []
        behind = text.rpartition(ANSWER)[2].lstrip()
        found = self.tokenizer.marks.match(behind)
        return [self.tokenizer.control[found[0]]] if found and ANSWER in text else []
