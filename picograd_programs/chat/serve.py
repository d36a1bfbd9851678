"""`picograd serve`: a language model for clients of OpenAI's interface.

    GET  /v1/models             the model's name; also /v1/models/NAME
    POST /v1/chat/completions   an answer to a dialogue, whole or as events while it is written
    POST /v1/completions        the same for a plain text that is continued
    POST /v1/embeddings         embedding vectors of texts, by the encoder of --embed

Several clients may ask at once, and several answers are written together (desk.py); further requests are queued, and
refused beyond a limit. A text with the same beginning as an earlier one is read only from its first different piece on. The
server listens only on this machine, unless another address is given; requests then need a token.

Source: OpenAI, API reference, "Chat completions", "Completions", "Models"; WHATWG, HTML, "Server-sent events".
"""

from __future__ import annotations

import base64
import hmac
import itertools
import json
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import unquote

import numpy as np

from picograd.errors import ArgumentError, DataError, PicogradError
from picograd.record import Record
from picograd_programs.chat.answer import PIECES
from picograd_programs.chat.desk import Desk, NotTaken, Question
from picograd_programs.chat.request import OF_VECTORS, SEEDS, Request, check_names, request_of
from picograd_programs.chat.rules import Logits
from picograd_programs.chat.run import ANSWER_MIN, Chat, Dialogue, Pack, TextToText, check_options, reads_and_writes
from picograd_programs.chat.search import rules_of
from picograd_programs.chat.turn_desk import TurnDesk, by_search, by_writer
from picograd_programs.data.bpe import Stream
from picograd_programs.models.embed import embedder_of
from picograd_programs.models.embedder import Embedder
from picograd_programs.models.packed import ROWS_MAX

LOOPBACK = ("127.0.0.1", "localhost")
BODY_NBYTES_MAX = 4 * 2**20
DISCARDED_MAX = 1000  # parts of a body above the limit
WAIT_SECONDS = 10  # for a silent client
LOOK_SECONDS = 0.5  # between checks that a client is still connected, while no token arrives
INPUTS_MAX = 2048  # texts of a request for embeddings
CHAT, PLAIN, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SHARED = ("model", "context", "pack", "source", "target", "beams", "length_penalty", "no_repeat")  # as in picograd chat


@dataclass(frozen=True)
class Serve:
    """Serves a language model to clients of OpenAI's interface; Ctrl-C ends it."""

    model: str = "smollm2"  # as in picograd chat
    context: int = 2048  # largest number of tokens of a dialogue, including answers
    pack: Pack = "file"  # as in picograd chat
    host: str = "127.0.0.1"  # listening address; beyond this machine, requests need a token
    port: int = 8000  # 0 chooses a free port
    token: str = ""  # token that requests need; by default a new one is printed if needed
    together: int = 4  # number of simultaneous answers, up to 8; each has memory for a dialogue
    waiting: int = 32  # number of waiting answers, above which requests are refused
    embed: str = ""  # encoder for /v1/embeddings: minilm, or a folder, as in picograd embed
    source: str = ""  # as in picograd chat
    target: str = ""  # as in picograd chat
    # as in picograd chat; answers with a search are written one after the other
    beams: int | None = None
    length_penalty: float | None = None
    no_repeat: int | None = None


# ---- answers ----
class UpTo:
    """A text up to the first of some stop texts; the possible beginning of one waits for the next piece.

    is_over:  a stop text has occurred

    >>> text = UpTo(["two", "three"])
    >>> [text.add(piece) for piece in ("one", " t", "wo ", "three")], text.is_over
    (['one', ' ', '', ''], True)
    """

    def __init__(self, stops: Sequence[str]):
        self.stops, self.kept, self.is_over = stops, "", False

    def add(self, piece: str, is_last: bool = False) -> str:
        """Appends a piece, and returns the part of the text that is now certain."""
        if self.is_over:
            return ""
        text = self.kept + piece
        if found := [(place + len(stop), place) for stop in self.stops if (place := text.find(stop)) >= 0]:
            self.is_over = True
            return text[: min(found)[1]]
        begun = ((stop, num) for stop in self.stops for num in range(min(len(stop), len(text) + 1)))
        waiting = max((num for stop, num in begun if text.endswith(stop[:num])), default=0)
        sure = len(text) if is_last else len(text) - waiting
        self.kept = text[sure:]
        return text[:sure]


class Told(Record):
    """A token of an answer, with the model's log-probabilities before any settings are applied.

    number:     number of the token
    first:      position in the answer where its text starts
    text:       text that it adds to the answer
    logprob:    its log-probability
    likeliest:  the likeliest tokens and their log-probabilities
    """

    number: int
    first: int
    text: str
    logprob: float
    likeliest: tuple[tuple[int, float], ...]


def logprobs_of(logits_V: Logits) -> Logits:
    """Returns the log-probabilities, float64."""
    wide = logits_V.astype(np.float64)
    wide -= wide.max()
    return wide - np.log(np.exp(wide).sum())


class Written:
    """An answer in progress, as its waiting client sees it.

    told:    its tokens, if their probabilities are requested
    num:     number of its tokens
    reason:  why it ended: "stop" (an end token or a stop text), or "length" (the largest number of tokens)
    logprob: sum of its tokens' log-probabilities, if `sums`

    Args:
      likeliest:  as in Request
    """

    def __init__(self, stream: Stream, stops: Sequence[str], likeliest: int | None, sums: bool = False):
        self.stream, self.text, self.likeliest, self.sums, self.logprob = stream, UpTo(stops), likeliest, sums, 0.0
        self.told: list[Told] = []
        self.num, self.num_letters, self.reason = 0, 0, ""
        self.come: SimpleQueue[str | Exception | None] = SimpleQueue()  # pieces of the text; None ends it

    def take(self, token: int, logits_V: Logits) -> bool:
        """Receives a token from the desk; returns False if the text ends before it."""
        self.num += 1
        text = self.stream.text(token)
        if self.sums:
            self.logprob += float(logprobs_of(logits_V)[token])
        if self.likeliest is not None:
            self.told.append(told(token, self.num_letters, text, logits_V, self.likeliest))
        self.num_letters += len(text)
        self.come.put(self.text.add(text))
        return not self.text.is_over

    def end(self, reason: str | Exception) -> None:
        """Receives the desk's reason for the end of the answer."""
        if isinstance(reason, Exception):
            self.come.put(reason)
            return
        self.come.put(self.text.add(self.stream.rest(), is_last=True))
        self.reason = "stop" if self.text.is_over else reason
        self.come.put(None)

    def pieces(self, is_awaited: Callable[[], bool] = lambda: True) -> Iterator[str]:
        """Yields nonempty pieces of the text as they arrive.

        Args:
          is_awaited:  called before each piece, and regularly while none arrives; False: the client has left

        Raises:
          DataError: the model's numbers are not finite.
          ConnectionError: the client has left.
        """
        while True:
            if not is_awaited():
                raise ConnectionAbortedError("the client has closed its connection.")
            try:
                piece = self.come.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            if piece is None:
                return
            if isinstance(piece, Exception):
                raise piece
            if piece:
                yield piece


class Answerer:
    """Answers requests with one model.

    desk:      writes the answers, in a thread that starts with the first one
    plain:     default settings of the draws
    embedder:  computes embeddings of texts, or None

    Raises:
      DataError: as in Dialogue.
    """

    def __init__(self, settings: Serve):
        wanted = chat_of(settings)
        self.dialogue: Dialogue | TextToText
        self.desk: Desk | TurnDesk
        if reads_and_writes(settings.model):
            self.dialogue = text_to_text = TextToText(wanted)
            self.desk = TurnDesk(partial(by_writer, text_to_text), settings.waiting)
        else:
            self.dialogue = dialogue = Dialogue(wanted, settings.together, PIECES)
            searches = dialogue.search.beams > 1
            self.desk = (
                TurnDesk(partial(by_search, dialogue), settings.waiting) if searches
                else Desk(dialogue.reader.plans, settings.waiting)
            )  # fmt: skip
        self.name, self.plain = settings.model, self.dialogue.choice
        if self.dialogue.search.beams > 1:
            self.plain = replace(self.plain, temperature=0.0)  # a search, unless a request sets a temperature
        self.thread = threading.Thread(target=self.desk.work, daemon=True)
        self.embedder = embedder_of(settings.embed) if settings.embed else None
        self.names = [settings.model, *([settings.embed] if settings.embed else [])]

    def tokens_of(self, request: Request) -> list[int]:
        """Returns the tokens to continue.

        Raises:
          ArgumentError: the dialogue or text does not fit into the context; or the model does not support an entry of the
          request.
        """
        dialogue, known = self.dialogue, len(self.dialogue.tokenizer.tokens)
        if beyond := [token for token in request.bias if token >= known]:
            raise ArgumentError(f"logit_bias: token {beyond[0]} is not one of the {known:,} tokens of this model.")
        is_told = request.likeliest is not None or request.best_of > request.num_answers
        if is_told and isinstance(self.desk, TurnDesk):
            raise ArgumentError("logprobs and best_of are not supported by this server, as it searches or has an encoder.")
        if isinstance(dialogue, TextToText):
            return text_of(request, dialogue)
        assert dialogue.turns is not None, "a Dialogue that is not raw has turns"
        is_plain = isinstance(request.given, str)
        if isinstance(request.given, str):
            tokens = [*dialogue.start, *dialogue.tokenizer.encode(request.given)]
        else:
            tokens = dialogue.turns.dialogue(request.given)
        if dialogue.reader.length < len(tokens) + ANSWER_MIN:
            raise ArgumentError(
                f"{'prompt' if is_plain else 'messages'}: {len(tokens):,} tokens, and an answer needs {ANSWER_MIN}; "
                f"this server's context has room for {dialogue.reader.length:,}. Send a shorter text."
            )
        return tokens

    @contextmanager
    def answers(self, request: Request, tokens: Sequence[int]) -> Iterator[list[Written]]:
        """Starts the answers to a request, each with its own seed; their length is limited by the context.

        Raises:
          NotTaken: as Desk.ask.
        """
        dialogue, questions, found, sums = self.dialogue, [], [], request.best_of > request.num_answers
        start = len(dialogue.manner.start) if isinstance(dialogue, TextToText) else len(tokens)
        rules = request.rules(start) + (rules_of(dialogue.search) if isinstance(self.desk, Desk) else [])
        for number in range(request.best_of):
            found.append(written := Written(dialogue.tokenizer.stream(), request.stops, request.likeliest, sums))
            seed = (request.seed + number) % SEEDS
            questions.append(Question(
                tokens, frozenset(dialogue.ends), request.num, request.choice, seed, written.take, written.end, rules
            ))  # fmt: skip
        self.desk.ask(questions)
        with self.desk.changed:
            if self.thread.ident is None:
                self.thread.start()
        try:
            yield found
        finally:
            for question in questions:
                question.is_wanted = False

    def probabilities(self, request: Request, told: Sequence[Told], first: int, past: int) -> dict[str, Any] | None:
        """Returns the probabilities of tokens whose text starts in a part of an answer, in the request's format."""
        if request.likeliest is None:
            return None
        tokenizer = self.dialogue.tokenizer
        found = [each for each in told if first <= each.first < past]

        def entry(number: int, logprob: float) -> dict[str, Any]:
            data = tokenizer.bytes_of(number)
            try:
                text = data.decode()
            except UnicodeDecodeError:  # part of a character
                text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
            return {"token": text, "logprob": logprob, "bytes": [*data]}

        if isinstance(request.given, str):
            return {
                "tokens": [each.text for each in found], "token_logprobs": [each.logprob for each in found],
                "text_offset": [each.first for each in found],
                "top_logprobs": [
                    {entry(number, 0.0)["token"]: logprob for number, logprob in each.likeliest} for each in found
                ],
            }  # fmt: skip
        return {"refusal": None, "content": [
            entry(each.number, each.logprob) | {"top_logprobs": [entry(*one) for one in each.likeliest]} for each in found
        ]}  # fmt: skip

    def close(self) -> None:
        """Ends the answers in progress after their next token, and the queued ones."""
        self.desk.close()
        if self.thread.ident is not None:
            self.thread.join()


def text_of(request: Request, dialogue: TextToText) -> list[int]:
    """Returns the tokens of a text that is answered separately.

    Raises:
      ArgumentError: there are several turns, or the text is too long.
    """
    if not isinstance(request.given, str) and len(request.given) > 1:
        raise ArgumentError("messages must be one turn: this model reads each text by itself.")
    text = request.given if isinstance(request.given, str) else request.given[0][1]
    tokens, longest = dialogue.question(text), dialogue.writer.longest
    if not 1 <= len(tokens) <= longest:
        raise ArgumentError(f"the text has {len(tokens):,} tokens; 1 to {longest:,} are read. Send a shorter text.")
    return tokens


def told(number: int, first: int, text: str, logits_V: Logits, likeliest: int) -> Told:
    """Returns a token with its log-probability and those of the likeliest tokens."""
    found = logprobs_of(logits_V)
    best = np.argsort(-found, kind="stable")[:likeliest]
    return Told(number, first, text, float(found[number]), tuple((int(each), float(found[each])) for each in best))


def usage_of(num_read: int, answers: Sequence[Written]) -> dict[str, int]:
    """Returns the numbers of tokens of a request."""
    written = sum(each.num for each in answers)
    return {"prompt_tokens": num_read, "completion_tokens": written, "total_tokens": num_read + written}


# ---- vectors of texts ----
def vectors_of(body: Any, embedder: Embedder, name: str) -> dict[str, Any]:
    """Returns the response to a request for embeddings.

    Raises:
      ArgumentError: an entry is missing, or of another type, or a text has no tokens.
    """
    if not isinstance(body, dict):
        raise ArgumentError("the body must be an object.")
    check_names(body, OF_VECTORS)
    given, form = body.get("input"), body.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise ArgumentError(f"encoding_format must be float or base64, got {str(form)[:40]}.")
    is_one = isinstance(given, str) or isinstance(given, list) and bool(given) and type(given[0]) is int
    inputs = [given] if is_one else given
    if not isinstance(inputs, list) or not 0 < len(inputs) <= INPUTS_MAX:
        raise ArgumentError(f"input must be a text, tokens, or a list of 1 to {INPUTS_MAX:,} of them.")
    numbers = [tokens_of(each, embedder) for each in inputs]
    if (most := max(map(len, numbers))) > embedder.longest:
        fact = f"input: a text has {most:,} tokens; {name} reads {embedder.longest:,}. Send shorter texts."
        raise ArgumentError(fact)
    vectors = embedder.embed_tokens(numbers).astype("<f4")
    if body.get("dimensions") not in (None, vectors.shape[1]):
        raise ArgumentError(f"dimensions must be {vectors.shape[1]}, as many as {name} has.")
    entries = [
        {"object": "embedding", "index": place,
         "embedding": vector.tolist() if form == "float" else base64.b64encode(vector.tobytes()).decode()}
        for place, vector in enumerate(vectors)
    ]  # fmt: skip
    num = sum(map(len, numbers))
    return {"object": "list", "data": entries, "model": name, "usage": {"prompt_tokens": num, "total_tokens": num}}


def tokens_of(given: Any, embedder: Embedder) -> list[int]:
    """Returns the tokens of a text, or the given tokens.

    Raises:
      ArgumentError: the value is neither.
    """
    if isinstance(given, str):
        return embedder.numbers(embedder.manner.default + given, cuts=False)
    num = len(embedder.tokenizer.tokens)
    if isinstance(given, list) and given and all(type(each) is int and 0 <= each < num for each in given):
        return given
    raise ArgumentError(f"input must be texts, or tokens, which are whole numbers below {num:,}; got {str(given)[:40]!r}.")


# ---- the interface ----
def error_of(message: str, code: str | None = None) -> dict[str, Any]:
    """Returns the body of an error response."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


class Handler(BaseHTTPRequestHandler):
    """One connection; a subclass has the answerer and the token."""

    answerer: Answerer
    token = ""
    timeout = WAIT_SECONDS
    server_version = "picograd"

    def do_GET(self) -> None:
        """Sends the list of models, or the named one."""
        names, path = self.answerer.names, self._path()
        entries = {name: {"id": name, "object": "model", "created": 0, "owned_by": "picograd"} for name in names}
        one = path.removeprefix("/v1/models/")
        if not self._is_allowed("/v1/models", f"/v1/models/{one}"):
            return
        if path == "/v1/models":
            self._send(HTTPStatus.OK, {"object": "list", "data": [*entries.values()]})
        elif one in entries:
            self._send(HTTPStatus.OK, entries[one])
        else:
            fact = f"this model is unknown; this server has {' and '.join(names)}."
            self._refuse(HTTPStatus.NOT_FOUND, fact, "model_not_found")

    def do_POST(self) -> None:
        """Sends an answer to a dialogue, or the continuation of a text."""
        if not self._is_allowed(CHAT, PLAIN, EMBEDDINGS):
            return
        try:
            body, path = self._body(), self._path()
            if path == EMBEDDINGS:
                self._embed(body)
                return
            self._answer(request_of(body, path == PLAIN, self.answerer.plain))
        except ArgumentError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, error.fact)
        except NotTaken as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, error.fact)
        except PicogradError as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, error.fact)

    def _answer(self, request: Request) -> None:
        """Sends an answer.

        Raises:
          PicogradError: as in Answerer's methods and Written.pieces, before the response starts.
          ConnectionError: the client has left.
        """
        tokens, is_plain = self.answerer.tokens_of(request), isinstance(request.given, str)
        with self.answerer.answers(request, tokens) as answers:
            pieces = answers[0].pieces(self._is_there)
            first = next(pieces, "")  # raises before the response starts
            facts = {
                "id": f"{'cmpl' if is_plain else 'chatcmpl'}-{secrets.token_hex(8)}",
                "object": "text_completion" if is_plain else "chat.completion",
                "created": int(time.time()),
                "model": self.answerer.name,
            }
            all_pieces = [itertools.chain([first], pieces), *(each.pieces(self._is_there) for each in answers[1:])]
            if request.streams:
                self._stream(request, facts, len(tokens), answers, all_pieces)
                return
            choices, pairs = [], [*zip(answers, map("".join, all_pieces))]
            pairs.sort(key=lambda pair: -pair[0].logprob / max(1, pair[0].num))  # all 0 if none is to be chosen
            for index, (answer, text) in enumerate(pairs[: request.num_answers]):
                said = {"text": text} if is_plain else {"message": {"role": "assistant", "content": text}}
                found = self.answerer.probabilities(request, answer.told, 0, len(text))
                choices.append({"index": index, **said, "finish_reason": answer.reason, "logprobs": found})
            self._send(HTTPStatus.OK, {**facts, "choices": choices, "usage": usage_of(len(tokens), answers)})

    def _stream(
        self, request: Request, facts: dict[str, Any], num_read: int, answers: Sequence[Written],
        all_pieces: Sequence[Iterator[str]],
    ) -> None:  # fmt: skip
        """Sends answers as events, one after the other; an error in one of them is the last event."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        is_plain = isinstance(request.given, str)
        if not is_plain:
            facts = {**facts, "object": "chat.completion.chunk"}

        def send(choices: list[Any], usage: dict[str, int] | None = None) -> None:
            chunk = {**facts, "choices": choices} | ({"usage": usage} if request.wants_usage else {})
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

        def send_pieces(index: int, answer: Written, pieces: Iterator[str]) -> None:
            num, role = 0, {"role": "assistant"}
            for piece in itertools.chain(pieces, [None]):
                text = piece or ""
                said = {"text": text} if is_plain else {"delta": role | ({} if piece is None else {"content": text})}
                reason = answer.reason if piece is None else None
                found = self.answerer.probabilities(request, answer.told, num, num + len(text))
                send([{"index": index, **said, "finish_reason": reason} | ({} if found is None else {"logprobs": found})])
                num, role = num + len(text), {}

        try:
            for index, (answer, pieces) in enumerate(zip(answers, all_pieces)):
                send_pieces(index, answer, pieces)
        except PicogradError as error:
            self.wfile.write(f"data: {json.dumps(error_of(error.fact))}\n\n".encode())
            return
        if request.wants_usage:
            send([], usage_of(num_read, answers))
        self.wfile.write(b"data: [DONE]\n\n")

    def _is_there(self) -> bool:
        """Returns whether the client keeps its connection open; one that has closed its side counts as gone."""
        ready, _, _ = select.select([self.connection], [], [], 0)
        return not ready or bool(self.connection.recv(1, socket.MSG_PEEK))

    def _embed(self, body: Any) -> None:
        """Sends the embeddings of texts.

        Raises:
          PicogradError: as in `vectors_of`; or the server has no encoder.
        """
        answerer = self.answerer
        if answerer.embedder is None:
            raise ArgumentError(f"{answerer.name} writes text and has no embeddings; this server has no encoder.")
        with answerer.desk.machine:
            found = vectors_of(body, answerer.embedder, answerer.names[1])
        self._send(HTTPStatus.OK, found)

    def _body(self) -> Any:
        """Returns the JSON of a request.

        Raises:
          ArgumentError: the body is too long, not JSON, or not labelled so, as requests from a web page without CORS.
        """
        if self.headers.get_content_type() != "application/json":
            raise ArgumentError("Content-Type must be application/json.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_NBYTES_MAX:
            self._discard()  # a client that still sends would not read the response
            raise ArgumentError(f"Content-Length must be a number up to {BODY_NBYTES_MAX:,}.")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:  # numbers of too many digits raise ValueError
            raise ArgumentError(f"no JSON: {error}.") from None

    def _discard(self) -> None:
        """Reads and discards a client's data, up to a limit, or until it pauses."""
        self.connection.settimeout(LOOK_SECONDS)
        with suppress(OSError):
            for _ in range(DISCARDED_MAX):
                if not self.connection.recv(BODY_NBYTES_MAX):
                    break

    def _path(self) -> str:
        """Returns the request's path, without the query."""
        return unquote(self.path.partition("?")[0])

    def _is_allowed(self, *paths: str) -> bool:
        """Returns whether a request has one of these paths and the token; otherwise refuses it."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.token and not hmac.compare_digest(given.encode(), self.token.encode()):
            self._refuse(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong: Authorization: Bearer TOKEN")
        elif self._path() not in paths:
            fact = f"the paths are GET /v1/models, POST {CHAT}, POST {PLAIN} and POST {EMBEDDINGS}."
            self._refuse(HTTPStatus.NOT_FOUND, fact)
        else:
            return True
        return False

    def _refuse(self, status: HTTPStatus, message: str, code: str | None = None) -> None:
        self._send(status, error_of(message, code))

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
    """Listens at one address until it is stopped, with a thread for each client; a broken stream ends its answer.

    Raises:
      DataError: the address is not available.
    """

    def __init__(self, settings: Serve, answerer: Answerer):
        handler = type("Handler", (Handler,), {"answerer": answerer, "token": settings.token})
        try:
            super().__init__((settings.host, settings.port), handler)
        except (OSError, OverflowError) as error:
            fact = f"serve: {settings.host}:{settings.port}: {str(error).rstrip('.')}."
            raise DataError(fact, "--port names another, 0 takes a free one.") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores broken connections; other errors are printed as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def chat_of(settings: Serve) -> Chat:
    """Returns the settings that `picograd chat` has, too."""
    return Chat(**{name: getattr(settings, name) for name in SHARED})


def serve(settings: Serve) -> int:
    """Serves requests until Ctrl-C; returns 0.

    Raises:
      DataError: the weights or the address are not available.
    """
    check_options(chat_of(settings))
    if not 1 <= settings.together <= ROWS_MAX or settings.waiting < 0:
        raise ArgumentError(
            f"--together must be from 1 to {ROWS_MAX}, and --waiting at least 0; got {settings.together} and"
            f" {settings.waiting}."
        )
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
