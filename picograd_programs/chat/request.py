"""Requests of OpenAI's interface: each of their entries is followed, or refused by name.

Source: OpenAI, API reference, "Create chat completion", "Create completion"; "Advanced usage" (penalties).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from picograd.errors import ArgumentError
from picograd_programs.chat.answer import Choice, check_choice
from picograd_programs.chat.rules import Added, Counted, Rule
from picograd_programs.chat.run import Chat
from picograd_programs.train.program import check_settings

STOPS_MAX = 4
ANSWERS_MAX, LIKELIEST_MAX = 16, 20  # per request: answers, likeliest tokens per position
PLAIN_NUM, CHAT_NUM = 16, 512  # default largest number of tokens of an answer; the first is OpenAI's
SEEDS = 2**64  # a negative seed counts from the end
PENALTY_MAX, BIAS_MAX = 2.0, 100.0
TOKEN = re.compile("[0-9]{1,9}")
ROLES = ("system", "developer", "user", "assistant")
OF_BOTH = frozenset({
    "model", "max_tokens", "n", "best_of", "seed", "stop", "stream", "stream_options", "logprobs", "frequency_penalty",
    "presence_penalty", "logit_bias", *(each.name for each in fields(Choice)),
})  # fmt: skip
OF_PLAIN, OF_CHAT = OF_BOTH | {"prompt"}, OF_BOTH | {"messages", "max_completion_tokens", "top_logprobs"}
OF_VECTORS = frozenset({"model", "input", "encoding_format", "dimensions"})
# Entries of OpenAI's without effect on an answer
HARMLESS = frozenset({
    "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "parallel_tool_calls", "prediction",
})  # fmt: skip
# Unsupported entries of OpenAI's, with the value that asks for nothing; null and empty values are also accepted
NOT_DONE: Mapping[str, Any] = {
    "tools": [], "tool_choice": "none", "functions": [], "function_call": "none", "response_format": {"type": "text"},
    "modalities": ["text"], "audio": {}, "web_search_options": {}, "reasoning_effort": "none", "verbosity": "medium",
    "echo": False, "suffix": "",
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A client's request.

    given:       (role, text) of each turn; or the text to continue
    choice:      settings of the draws
    num:         largest number of tokens of the answer
    seed:        seed of the draws
    streams:     the answer is sent in pieces as it is written
    wants_usage: its last event reports the number of tokens
    stops:       texts that end the answer before them
    num_answers: number of answers to the same question, each drawn with its own seed
    best_of:     number of written answers; those with the best mean log-probability per token are sent
    likeliest:   number of likeliest tokens whose probabilities are sent with each token; None: no probabilities
    penalties:   decrease of a token's logit for each occurrence in the answer, and for any occurrence
    bias:        number of a token -> summand of its logit
    """

    given: list[tuple[str, str]] | str
    choice: Choice
    num: int
    seed: int
    streams: bool
    wants_usage: bool = False
    stops: tuple[str, ...] = ()
    num_answers: int = 1
    likeliest: int | None = None
    best_of: int = 1
    penalties: tuple[float, float] = (0.0, 0.0)
    bias: Mapping[int, float] = field(default_factory=dict)

    def rules(self, start: int) -> list[Rule]:
        """Returns the request's rules for an answer, after `start` tokens of the text."""
        counted = [Counted(*self.penalties, start)] if any(self.penalties) else []
        return [*counted, *([Added(tuple(self.bias), tuple(self.bias.values()))] if self.bias else [])]


def request_of(body: Any, is_plain: bool = False, plain: Choice = Choice()) -> Request:  # noqa: B008  # is immutable
    """Parses the request in a JSON body.

    Args:
      is_plain:  it has a text to continue, otherwise a dialogue
      plain:     default settings of the draws

    Raises:
      ArgumentError: an entry is missing, of another type, out of its range, or asks for something unsupported.
    """
    if not isinstance(body, dict):
        raise ArgumentError("the body must be an object.")
    check_names(body, OF_PLAIN if is_plain else OF_CHAT)
    given = prompt_of(body.get("prompt")) if is_plain else turns_of(body.get("messages"))

    def entry(name: str, default: Any) -> Any:
        value = body.get(name)
        return number_of(name, default if value is None else value, type(default))

    choice = Choice(**{each.name: entry(each.name, getattr(plain, each.name)) for each in fields(plain)})
    limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    num = entry(limit, PLAIN_NUM if is_plain else CHAT_NUM)
    check_choice(choice, str)
    check_settings(Chat(max_tokens=num), lambda name: limit)
    num_answers = entry("n", 1)
    if not 1 <= num_answers <= ANSWERS_MAX:
        raise ArgumentError(f"n must be from 1 to {ANSWERS_MAX}, got {num_answers}.")
    streams, wants_usage = stream_of(body)
    best_of, most = entry("best_of", num_answers), ANSWERS_MAX if is_plain and not streams else num_answers
    if not num_answers <= best_of <= most:
        raise ArgumentError(f"best_of must be from n, {num_answers}, to {most} here, got {best_of}.")
    penalties = entry("frequency_penalty", 0.0), entry("presence_penalty", 0.0)
    if not all(abs(penalty) <= PENALTY_MAX for penalty in penalties):
        raise ArgumentError(f"frequency_penalty and presence_penalty must be from -{PENALTY_MAX:g} to {PENALTY_MAX:g}.")
    return Request(
        given, choice, num, entry("seed", 0) % SEEDS, streams, wants_usage, stops_of(body.get("stop")), num_answers,
        likeliest_of(body, is_plain), best_of, penalties, bias_of(body.get("logit_bias")),
    )  # fmt: skip


def check_names(body: Mapping[str, Any], read: Collection[str]) -> None:
    """Checks that each entry is known, as others would be ignored silently.

    Raises:
      ArgumentError: an entry is unknown; or the name of the model is not a string.
    """
    if not isinstance(body.get("model", ""), str | None):
        raise ArgumentError(f"model must be a text, got {str(body['model'])[:40]}.")
    for name, value in body.items():
        if name in read or name in HARMLESS or value is None:
            continue
        if name not in NOT_DONE:
            near = get_close_matches(name, read, 1)
            raise ArgumentError(f"{name[:40]} is not an entry of this request{f'; {near[0]} is' if near else ''}.")
        if value and value != NOT_DONE[name]:
            raise ArgumentError(f"{name} is not supported.")


def number_of(name: str, value: Any, kind: type) -> Any:
    """Returns a number of a kind, float or int.

    Raises:
      ArgumentError: the value is not of this kind.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        raise ArgumentError(f"{name} must be {'a number' if kind is float else 'a whole number'}, got {str(value)[:40]}.")
    try:
        return kind(value)
    except OverflowError:
        raise ArgumentError(f"{name}: got {str(value)[:40]}..., it is out of range.") from None


def stops_of(given: Any) -> tuple[str, ...]:
    """Returns the texts that end an answer.

    Raises:
      ArgumentError: the value is neither a text nor a list of some.
    """
    stops = [] if given is None else given if isinstance(given, list) else [given]
    if len(stops) > STOPS_MAX or not all(isinstance(each, str) and each for each in stops):
        raise ArgumentError(f"stop must be a text or up to {STOPS_MAX} of them, none empty, got {str(given)[:40]!r}.")
    return tuple(stops)


def stream_of(body: Mapping[str, Any]) -> tuple[bool, bool]:
    """Returns whether the answer is sent in pieces, and whether its last event reports the number of tokens.

    Raises:
      ArgumentError: an entry about it is of another type, or there are options without a stream.
    """
    streams, options = body.get("stream") or False, body.get("stream_options")
    if not isinstance(streams, bool):
        raise ArgumentError(f"stream must be true or false, got {str(streams)[:40]}.")
    if options is not None and not (streams and isinstance(options, dict)):
        raise ArgumentError("stream_options must be an object, and stream true.")
    wants_usage = (options or {}).get("include_usage") or False
    if not isinstance(wants_usage, bool):
        raise ArgumentError(f"stream_options.include_usage must be true or false, got {str(wants_usage)[:40]}.")
    return streams, wants_usage


def bias_of(given: Any) -> dict[int, float]:
    """Returns the summands of logits, by their tokens' numbers.

    Raises:
      ArgumentError: the value is of another type, or out of its range.
    """
    found = {}
    for token, value in (given.items() if isinstance(given, dict) else () if given is None else [(given, given)]):
        if not (TOKEN.fullmatch(str(token)) and type(value) in (int, float)):
            raise ArgumentError(f"logit_bias must map token numbers to numbers, got {str(given)[:40]}.")
        if not abs(value) <= BIAS_MAX:
            raise ArgumentError(f"logit_bias: token {token} has {value}, it must be from -{BIAS_MAX:g} to {BIAS_MAX:g}.")
        found[int(token)] = float(value)
    return found


def likeliest_of(body: Any, is_plain: bool) -> int | None:
    """Returns how many likeliest tokens to send with each token; None: no probabilities.

    Raises:
      ArgumentError: the value is of another type, or too large.
    """
    wanted, num = body.get("logprobs"), body.get("logprobs" if is_plain else "top_logprobs")
    if not is_plain and (not isinstance(wanted, bool | None) or num is not None and wanted is not True):
        raise ArgumentError("logprobs must be true or false, and true if top_logprobs is given.")
    if num is None or num is False:
        return 0 if wanted is True else None
    if type(num) is not int or not 0 <= num <= LIKELIEST_MAX:
        name = "logprobs" if is_plain else "top_logprobs"
        raise ArgumentError(f"{name} must be a whole number up to {LIKELIEST_MAX}, got {str(num)[:40]}.")
    return num


def prompt_of(prompt: Any) -> str:
    """Returns the text to continue; it may be in a list.

    Raises:
      ArgumentError: the value is not a text, or there are several.
    """
    text = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    if not isinstance(text, str) or not text:
        raise ArgumentError(f"prompt must be a text, not empty, or a list of one, got {str(prompt)[:40]!r}.")
    return text


def turns_of(messages: Any) -> list[tuple[str, str]]:
    """Returns role and text of each turn of a dialogue.

    Raises:
      ArgumentError: there are no turns, or the last is not the user's; or as `turn_of`.
    """
    if not isinstance(messages, list) or not messages:
        raise ArgumentError("messages must be a list of turns, at least one.")
    turns = [turn_of(message) for message in messages]
    if turns[-1][0] != "user":
        raise ArgumentError("the last of messages must be of role user.")
    return turns


def turn_of(message: Any) -> tuple[str, str]:
    """Returns role and text of a turn; the text may be in parts.

    Raises:
      ArgumentError: the text is missing, or the role is unknown.
    """
    role, content = (message.get(name) for name in ("role", "content")) if isinstance(message, dict) else (None, None)
    if role not in ROLES:
        raise ArgumentError(f"a message's role must be one of {', '.join(ROLES)}, got {str(role)[:40]}.")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ArgumentError("a message's content must be text.")
    return "system" if role == "developer" else role, "".join(map(str, texts))


