"""`picograd serve`: a language model behind the addresses that clients of OpenAI's interface ask.

    GET  /v1/models             its name
    POST /v1/chat/completions   an answer to a dialogue, whole or as events while it is written

Several clients may ask at once: requests wait in line, and each is answered whole, first come, first served. A dialogue
that goes on is not read again: its part in common with the one before stays in the cache. Only this machine is listened to,
unless another address is given; then a token is needed.

Source: OpenAI, API reference, "Chat completions"; WHATWG, HTML, "Server-sent events".
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from picograd.errors import ArgumentError, DataError, PicogradError
from picograd_programs.chat.answer import Choice
from picograd_programs.chat.run import ANSWER_MIN, Chat, Dialogue, too_long
from picograd_programs.train.program import check_settings

LOOPBACK = ("127.0.0.1", "localhost")
BODY_NBYTES_MAX = 4 * 2**20
WAIT_SECONDS = 10  # for a client that sends nothing
STOPS_MAX = 4
NOT_DONE = (
    "tools", "functions", "logprobs", "logit_bias", "response_format", "frequency_penalty", "presence_penalty",
)  # fmt: skip
ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True)
class Serve:
    """Answers clients of OpenAI's interface with a language model, one request after the other; Ctrl-C ends it."""

    model: str = "smollm2"  # as in picograd chat
    context: int = 2048  # most tokens of a dialogue, answers included
    host: str = "127.0.0.1"  # address to listen at; beyond this machine, requests need a token
    port: int = 8000  # 0 takes a free one
    token: str = ""  # that requests must have; without one, a new one is printed where it is needed


# ---- requests ----
@dataclass(frozen=True)
class Request:
    """The wish of a client.

    messages:  (role, text) of each turn
    choice:    how tokens are drawn
    num:       most tokens of the answer
    seed:      of draws
    streams:   the answer is sent while it is written
    stops:     texts before which the answer ends
    """

    messages: list[tuple[str, str]]
    choice: Choice
    num: int
    seed: int
    streams: bool
    stops: tuple[str, ...] = ()


def request_of(body: Any) -> Request:
    """Returns the request in a body of JSON.

    Raises:
      ArgumentError: an entry is missing, of another type or out of its range, or asks for something that is not done.
    """
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        raise ArgumentError("messages must be a list of turns, at least one.")
    for name in NOT_DONE:
        if body.get(name):
            raise ArgumentError(f"{name} is not supported.")
    if body.get("n", 1) not in (1, None):
        raise ArgumentError("n must be 1.")
    messages = [turn_of(message) for message in body["messages"]]
    if messages[-1][0] != "user":
        raise ArgumentError("the last of messages must be of role user.")

    def entry(name: str, default: Any) -> Any:
        value = body.get(name)
        value = default if value is None else value
        kinds = (int, float) if isinstance(default, float) else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ArgumentError(f"{name} must be a number, got {str(value)[:40]}.")
        return type(default)(value)

    plain = Choice()
    choice = Choice(**{field.name: entry(field.name, getattr(plain, field.name)) for field in fields(plain)})
    num, seed = entry("max_completion_tokens", entry("max_tokens", 512)), entry("seed", 0)
    check_settings(Chat(**asdict(choice), max_tokens=num, seed=seed))
    if choice.repetition == 0 or choice.top_p == 0:
        raise ArgumentError("repetition and top_p must be above 0.")
    stop = body.get("stop")
    stops = [] if stop is None else stop if isinstance(stop, list) else [stop]
    if len(stops) > STOPS_MAX or not all(isinstance(each, str) and each for each in stops):
        raise ArgumentError(f"stop must be a text or up to {STOPS_MAX} of them, none empty, got {str(stop)[:40]!r}.")
    return Request(messages, choice, num, seed, body.get("stream") is True, tuple(stops))


def turn_of(message: Any) -> tuple[str, str]:
    """Returns role and text of a turn; a text may be in parts.

    Raises:
      ArgumentError: it has none, or a role that is not known.
    """
    role, content = (message.get(name) for name in ("role", "content")) if isinstance(message, dict) else (None, None)
    if role not in ROLES:
        raise ArgumentError(f"a message's role must be one of {', '.join(ROLES)}, got {str(role)[:40]}.")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ArgumentError("a message's content must be text.")
    return "system" if role == "developer" else role, "".join(map(str, texts))


# ---- answers ----
def until(pieces: Iterator[str], stops: Sequence[str]) -> Iterator[str]:
    """Yields a text up to the first of some texts in it; what may become one waits for the next piece.

    >>> list(until(iter(["one", " t", "wo ", "three"]), ["two", "three"]))
    ['one', ' ']
    """
    kept = ""
    for piece in pieces:
        kept += piece
        if found := [(place + len(stop), place) for stop in stops if (place := kept.find(stop)) >= 0]:
            yield from filter(None, [kept[: min(found)[1]]])
            return
        waiting = max((num for stop in stops for num in range(len(stop)) if kept.endswith(stop[:num])), default=0)
        sure = len(kept) - waiting
        yield from filter(None, [kept[:sure]])
        kept = kept[sure:]
    yield from filter(None, [kept])


class Line:
    """A lock that is had in the order in which it was asked for.

    >>> with Line():
    ...     pass
    """

    def __init__(self) -> None:
        self.condition, self.come, self.gone = threading.Condition(), 0, 0

    def __enter__(self) -> None:
        with self.condition:
            number, self.come = self.come, self.come + 1
            self.condition.wait_for(lambda: self.gone == number)

    def __exit__(self, *error: object) -> None:
        with self.condition:
            self.gone += 1
            self.condition.notify_all()


class Answerer:
    """Answers requests with one model, and keeps what it has read.

    line:     has to be entered around an answer
    is_open:  False: no answer goes on beyond its next token

    Raises:
      DataError: as Dialogue.
    """

    def __init__(self, settings: Serve):
        self.dialogue = Dialogue(Chat(model=settings.model, context=settings.context))
        self.name, self.line, self.is_open = settings.model, Line(), True

    def answer(self, request: Request) -> Iterator[str]:
        """Yields pieces of the answer; the facts about it are there afterwards.

        Raises:
          ArgumentError: the dialogue does not fit into the context.
          DataError: the model's numbers are not finite.
        """
        dialogue, reader = self.dialogue, self.dialogue.reader
        assert dialogue.turns is not None, "a Dialogue that is not raw has turns"
        tokens = dialogue.turns.dialogue(request.messages)
        if reader.length < len(tokens) + ANSWER_MIN:
            raise ArgumentError(too_long(len(tokens), 0, reader.length, dialogue.longest))
        stream, self.num_read, self.num_written = dialogue.tokenizer.stream(), len(tokens), 0
        self.has_ended = False

        def pieces() -> Iterator[str]:
            for token in reader.answer(reader.keep(tokens), dialogue.ends, request.num, request.choice, request.seed):
                self.num_written += 1
                yield stream.text(token)
                if not self.is_open:
                    return
            yield stream.rest()
            self.has_ended = True

        yield from until(pieces(), request.stops)

    def close(self) -> None:
        """Ends answers after their next token, and waits for those in line."""
        self.is_open = False
        with self.line:
            pass

    def reason(self) -> str:
        """Returns why the latest answer ended: itself or before one of the texts, or since it had all its tokens."""
        was_cut = self.has_ended and self.dialogue.reader.tokens[-1] not in self.dialogue.ends
        return "length" if was_cut else "stop"

    def usage(self) -> dict[str, int]:
        """Returns how many tokens the latest request took."""
        read, written = self.num_read, self.num_written
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


# ---- the interface ----
class Handler(BaseHTTPRequestHandler):
    """One connection; a subclass has the answerer and the token."""

    answerer: Answerer
    token = ""
    timeout = WAIT_SECONDS
    server_version = "picograd"

    def do_GET(self) -> None:
        """The models there are."""
        if self._is_allowed("/v1/models"):
            entry = {"id": self.answerer.name, "object": "model", "created": 0, "owned_by": "picograd"}
            self._send(HTTPStatus.OK, {"object": "list", "data": [entry]})

    def do_POST(self) -> None:
        """An answer to a dialogue."""
        if not self._is_allowed("/v1/chat/completions"):
            return
        try:
            request = request_of(self._body())
            with self.answerer.line:
                self._answer(request)
        except (ArgumentError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, error.fact if isinstance(error, PicogradError) else f"no JSON: {error}")
        except DataError as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, error.fact)

    def _answer(self, request: Request) -> None:
        """Sends an answer.

        Raises:
          PicogradError: as Answerer.answer, before anything is sent.
        """
        pieces = self.answerer.answer(request)
        first = next(pieces, "")  # raises before anything is sent
        facts = {"id": f"chatcmpl-{secrets.token_hex(8)}", "created": int(time.time()), "model": self.answerer.name}
        if request.streams:
            self._stream(facts, first, pieces)
            return
        message = {"role": "assistant", "content": first + "".join(pieces)}
        choice = {"index": 0, "message": message, "finish_reason": self.answerer.reason(), "logprobs": None}
        body = {**facts, "object": "chat.completion", "choices": [choice], "usage": self.answerer.usage()}
        self._send(HTTPStatus.OK, body)

    def _stream(self, facts: dict[str, Any], first: str, pieces: Iterator[str]) -> None:
        """Sends an answer as events."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()

        def event(delta: dict[str, str], reason: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            chunk = {**facts, "object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

        event({"role": "assistant", "content": first})
        for piece in pieces:
            event({"content": piece})
        event({}, self.answerer.reason())
        self.wfile.write(b"data: [DONE]\n\n")

    def _body(self) -> Any:
        """Returns the JSON of a request.

        Raises:
          ArgumentError: it is too long, or is not said to be JSON, as what a page in a browser sends without asking.
        """
        if self.headers.get_content_type() != "application/json":
            raise ArgumentError("Content-Type must be application/json.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_NBYTES_MAX:
            raise ArgumentError(f"Content-Length must be a number up to {BODY_NBYTES_MAX:,}.")
        return json.loads(self.rfile.read(int(length)))

    def _is_allowed(self, path: str) -> bool:
        """Returns whether a request is of this address and has the token; refuses it otherwise."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.token and not hmac.compare_digest(given.encode(), self.token.encode()):
            self._refuse(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong: Authorization: Bearer TOKEN")
        elif self.path.partition("?")[0] != path:
            self._refuse(HTTPStatus.NOT_FOUND, "there are GET /v1/models and POST /v1/chat/completions.")
        else:
            return True
        return False

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})

    def _send(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        """Prints a line for each request."""
        print(f"{self.address_string()} {format % values}", file=sys.stderr, flush=True)


class Server(ThreadingHTTPServer):
    """Answers at one address until it is stopped, each client in a thread; one that goes away ends its answer.

    Raises:
      DataError: the address cannot be listened at.
    """

    def __init__(self, settings: Serve, answerer: Answerer):
        handler = type("Handler", (Handler,), {"answerer": answerer, "token": settings.token})
        try:
            super().__init__((settings.host, settings.port), handler)
        except (OSError, OverflowError) as error:
            fact = f"serve: {settings.host}:{settings.port}: {str(error).rstrip('.')}."
            raise DataError(fact, "--port names another, 0 takes a free one.") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Lets a broken connection be; other errors are shown as they are."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def serve(settings: Serve) -> int:
    """Answers requests until Ctrl-C; returns 0.

    Raises:
      DataError: the weights cannot be had, or the address cannot be listened at.
    """
    check_settings(Chat(context=settings.context))
    if settings.host not in LOOPBACK and not settings.token:
        settings = replace(settings, token=secrets.token_urlsafe(24))
    answerer = Answerer(settings)
    with Server(settings, answerer) as server:
        print(answerer.dialogue.describe(), file=sys.stderr)
        print(f"listening at http://{settings.host}:{server.server_port}/v1", file=sys.stderr)
        if settings.token:
            print(f"token: {settings.token}", file=sys.stderr, flush=True)
        try:
            server.serve_forever()
        finally:
            answerer.close()
    return 0
