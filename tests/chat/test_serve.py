"""`picograd serve`: OpenAI's client gets answers whole and in pieces; wrong requests are refused and say why."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch

from picograd.errors import ArgumentError, DataError, OutOfMemoryError
from picograd_programs import cli
from picograd_programs.chat import serve
from picograd_programs.chat.answer import Plans, Reader
from picograd_programs.chat.desk import Line, NotTaken
from picograd_programs.chat.run import Chat, Dialogue, TextToText
from picograd_programs.chat.serve import Answerer, Serve, Server
from picograd_programs.models.embedder import read_embedder
from tests.chat.small_model import write_model
from tests.models.test_encoder_folder import drawn as drawn_weights
from tests.models.test_encoder_folder import said_of, write
from tests.models.test_seq2seq import BART, bart_weights
from tests.models.test_seq2seq import write_folder as write_seq2seq


@pytest.fixture(scope="module")
def answerer(tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    return Answerer(Serve(model=str(write_model(tmp_path_factory.mktemp("serve") / "small.gguf")), context=256))


@contextmanager
def serving(answerer: Answerer, token: str = "") -> Iterator[Server]:
    """Serves in a thread, until the context is left."""
    with Server(Serve(port=0, token=token), answerer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(answerer: Answerer, request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(answerer, getattr(request, "param", "")) as server:
        yield server


def asked(server: Server, body: Any, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request("POST", path, data, all_headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


TURNS = [{"role": "user", "content": "Hello"}]
GREEDY = {"temperature": 0, "max_tokens": 12}


def test_openais_client_gets_answers_whole_and_in_pieces(server: Server, answerer: Answerer) -> None:
    openai = pytest.importorskip("openai", reason="the openai package, a client, is not installed")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0) as client:
        (model,) = client.models.list().data
        whole = client.chat.completions.create(model=model.id, messages=TURNS, **GREEDY)
        pieces = list(client.chat.completions.create(model=model.id, messages=TURNS, stream=True, **GREEDY))
        assert model.id == answerer.name
        assert whole.choices[0].message.content == "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert whole.choices[0].finish_reason == pieces[-1].choices[0].finish_reason in ("stop", "length")
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        assert len(pieces) > 3 and {piece.object for piece in pieces} == {"chat.completion.chunk"}
        with pytest.raises(openai.BadRequestError, match="temperature: got -1.0"):
            client.chat.completions.create(model=model.id, messages=TURNS, temperature=-1)


def test_openais_client_ends_answers_before_texts_and_asks_from_several_threads(server: Server) -> None:
    openai = pytest.importorskip("openai", reason="the openai package, a client, is not installed")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0) as client:
        make = client.chat.completions.create
        whole = make(model="", messages=TURNS, **GREEDY).choices[0].message.content
        cut = make(model="", messages=TURNS, stop=[whole[3:5]], **GREEDY).choices[0]
        assert cut.message.content == whole[: whole.index(whole[3:5])] and cut.finish_reason == "stop"

        def drawn(seed: int) -> str:
            answer = make(model="", messages=TURNS, seed=seed, max_tokens=8, temperature=1)
            return str(answer.choices[0].message.content)

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(drawn, range(4)))
        assert found == [drawn(seed) for seed in range(4)]


# ---- texts that end an answer ----
@pytest.mark.parametrize("num", [1, 2, 3, 20])
@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        ((), "one two, one three"), (("two",), "one "), (("three", ", o"), "one two"), (("zero",), "one two, one three"),
        (("e three!",), "one two, one three"), (("one three",), "one two, "), (("one",), ""), (("two, one", "wo"), "one t"),
    ],
)  # fmt: skip
def test_a_text_ends_before_the_first_that_is_complete_in_whatever_pieces_it_comes(
    num: int, stops: tuple[str, ...], expected: str
) -> None:
    text = "one two, one three"
    pieces = [text[at : at + num] for at in range(0, len(text), num)]
    found = serve.UpTo(stops)
    parts = [found.add(piece) for piece in pieces]
    assert "".join(parts) + found.add("", is_last=True) == expected
    assert found.is_over == (expected != text)


def test_an_answer_ends_before_a_text_whole_and_in_pieces(server: Server, answerer: Answerer) -> None:
    body = {"messages": TURNS, **GREEDY}
    whole = asked(server, body)[1]["choices"][0]
    assert whole["finish_reason"] == "length"
    text = whole["message"]["content"]
    mark = text[4:6]
    for stop in (mark, [mark, "never"]):
        _, answer = asked(server, {**body, "stop": stop})
        assert answer["choices"][0]["message"]["content"] == text[: text.index(mark)]
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] < 12, "no token after it was computed"
    events = streamed(server, {**body, "stop": mark})
    assert "".join(event["delta"].get("content", "") for event in events) == text[: text.index(mark)]
    assert events[-1]["finish_reason"] == "stop"
    assert asked(server, {**body, "stop": "never"})[1]["choices"][0] == whole, "and the next answer is as before"


def chunks(server: Server, body: dict[str, Any], path: str) -> list[Any]:
    """Returns the events of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    lines = [line[6:] for line in connection.getresponse().read().decode().splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def streamed(server: Server, body: dict[str, Any], path: str = "/v1/chat/completions") -> list[Any]:
    """Returns the choices of the events of an answer."""
    return [chunk["choices"][0] for chunk in chunks(server, body, path)]


# ---- several clients ----
def test_answers_to_several_clients_are_those_to_one_after_the_other(server: Server) -> None:
    bodies = [{"messages": TURNS, "temperature": 1.0, "max_tokens": 8, "seed": seed} for seed in range(5)]

    def answer(body: dict[str, Any]) -> str:
        text: str = asked(server, body)[1]["choices"][0]["message"]["content"]
        return text

    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(answer, bodies))
    assert found == [answer(body) for body in bodies] and len({*found}) > 1


def test_who_comes_first_is_answered_first_and_other_questions_do_not_wait(
    answerer: Answerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256, together=1, waiting=4))
    order, threads, begin = [], [], ours.desk._begin
    monkeypatch.setattr(ours.desk, "_begin", lambda: begin() or order.extend(a.question.seed for a in ours.desk.answers))
    with serving(ours) as server:
        with ours.desk.machine:
            for number in range(5):  # one whose question cannot be read yet, and four that wait
                body = {"messages": TURNS, **GREEDY, "max_tokens": 1, "seed": number}
                threads.append(threading.Thread(target=asked, args=(server, body)))
                threads[-1].start()
                while len(ours.desk.line) + len(ours.desk.answers) < number + 1:
                    time.sleep(0.001)
            while not ours.desk.answers:
                time.sleep(0.001)
            status, answer = asked(server, {"messages": TURNS, **GREEDY})
            assert status == 503, "one more is refused"
            assert answer["error"]["message"].startswith("1 answers are being written and 4 wait; this server lets 4 wait.")
            assert got(server, "/v1/models")[0] == 200
        for each in threads:
            each.join()
        assert list(dict.fromkeys(order)) == [0, 1, 2, 3, 4]
        assert asked(server, {"messages": TURNS, **GREEDY})[0] == 200, "and later it is answered"
    ours.close()


def test_answers_of_one_request_never_wait_beyond_what_may(answerer: Answerer) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256, together=2, waiting=1))
    with ours.desk.machine:  # nothing is read meanwhile
        first = serve.request_of({"messages": TURNS, **GREEDY, "n": 2})
        more = serve.request_of({"messages": TURNS, **GREEDY, "n": 3})
        with ours.answers(first, ours.tokens_of(first)) as answers:
            with pytest.raises(NotTaken, match="this server lets 1 wait"), ours.answers(more, ours.tokens_of(more)):
                pass
            assert len(ours.desk.line) + len(ours.desk.answers) == 2
    [[*each.pieces()] for each in answers]
    with ours.answers(more, ours.tokens_of(more)) as answers:
        assert len({"".join(each.pieces()) for each in answers}) == 1, "three fit where nobody else is"
    never = serve.request_of({"messages": TURNS, **GREEDY, "n": 4})
    words = "n: 4 answers; this server writes 2 at once and queues 1"
    with pytest.raises(ArgumentError, match=words), ours.answers(never, ours.tokens_of(never)):
        pass
    ours.close()


@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_closes_its_connection_ends_its_answer_and_leaves_the_line(answerer: Answerer, n: int) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256, together=1, waiting=2))
    with serving(ours) as server:
        written, draw = [], ours.desk._draw
        ours.desk._draw = lambda answer, drawn: (time.sleep(0.02), written.append(1), draw(answer, drawn))  # type: ignore[method-assign]
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        body = {"messages": TURNS, "max_tokens": 200, "temperature": 2.0, "n": n}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        while len(written) < 3:
            time.sleep(0.001)
        connection.close()
        while ours.desk.answers or any(each.is_wanted for each in ours.desk.line):
            time.sleep(0.001)
        assert len(written) < 100, "it is not written to its end"
        assert asked(server, {"messages": TURNS, **GREEDY, "n": 3})[0] == 200, "and its places are free"
    ours.close()


def test_a_client_that_leaves_while_it_waits_gives_its_place_to_another(answerer: Answerer) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256, together=1, waiting=1))
    with serving(ours) as server:
        body, threads = {"messages": TURNS, **GREEDY}, []
        with ours.desk.machine, ThreadPoolExecutor(2) as pool:
            threads.append(pool.submit(asked, server, body))
            while not ours.desk.answers:
                time.sleep(0.001)
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            while not ours.desk.line:
                time.sleep(0.001)
            assert asked(server, body)[0] == 503
            connection.close()
            while any(each.is_wanted for each in ours.desk.line):
                time.sleep(0.001)
            threads.append(pool.submit(asked, server, body))
            while not any(each.is_wanted for each in ours.desk.line):
                time.sleep(0.001)
            ours.desk.machine.__exit__()  # as the with does; another has it at once
            assert [each.result()[0] for each in threads] == [200, 200]
            ours.desk.machine.__enter__()
    ours.close()


def test_a_lock_goes_on_where_one_that_waits_for_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    line, had = Line(), []

    def take(name: str) -> None:
        with line:
            had.append(name)

    with line:
        behind = threading.Thread(target=take, args=("behind",))
        with monkeypatch.context() as patch:
            patch.setattr(line.condition, "wait_for", lambda condition: [][0])
            with pytest.raises(IndexError):
                take("interrupted")
        behind.start()
    behind.join(60)
    take("last")
    assert had == ["behind", "last"]


def test_a_text_is_the_same_alone_and_among_others_whatever_came_before(answerer: Answerer) -> None:
    rng = np.random.default_rng(0)
    words = ["".join(chr(97 + n) for n in rng.integers(0, 26, length)) for length in (3, 150, 70, 1, 40, 128, 64, 9)]
    bodies = [
        {"prompt": word, "temperature": temperature, "max_tokens": num, "seed": seed, "top_p": 0.99, "logprobs": 2}
        for seed, (word, temperature, num) in enumerate(zip(words, [0.0, 1.0] * 4, [30, 5, 17, 60, 2, 25, 11, 40]))
    ]

    def choice(server: Server, body: dict[str, Any]) -> Any:
        status, answer = asked(server, body, "/v1/completions")
        assert status == 200
        return answer["choices"][0]

    def answers(together: int, at_once: int, order: list[int]) -> dict[int, Any]:
        ours = Answerer(Serve(model=answerer.name, context=256, together=together))
        with serving(ours) as server, ThreadPoolExecutor(at_once) as pool:
            found = dict(zip(order, pool.map(lambda number: choice(server, bodies[number]), order)))
        ours.close()
        return found

    alone = {number: answers(1, 1, [number])[number] for number in range(len(bodies))}
    assert len({each["text"] for each in alone.values()}) == len(bodies)
    for together, at_once in [(1, 8), (3, 8), (4, 8), (8, 8), (8, 3)]:
        order = rng.permutation(len(bodies)).tolist()
        # Probabilities have their bits too: JSON writes floats so that they are read again as they were.
        assert answers(together, at_once, [*order, *order]) == alone


def test_several_answers_share_a_plan(answerer: Answerer) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256, together=4))
    plans, calls = ours.desk.plans, []
    one, plans.next_tokens = plans.next_tokens, lambda texts, *rest: calls.append(len(texts)) or one(texts, *rest)  # type: ignore[method-assign]
    request = serve.request_of({"messages": TURNS, **GREEDY, "n": 4})
    with ours.answers(request, ours.tokens_of(request)) as answers:
        texts = ["".join(each.pieces()) for each in answers]
    ours.close()
    assert len({*texts}) == 1 and max(calls) == 4
    assert sum(calls) == 4 * 11 and len(calls) < 4 * 11 / 2, "the last token of each is not read"


def test_an_answer_in_progress_ends_with_the_server(answerer: Answerer) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256))
    with serving(ours) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        body = json.dumps({"messages": TURNS, "stream": True, "max_tokens": 150})
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.readline()
        server.shutdown()
        ours.close()
        assert answer.read().decode().rstrip().endswith("[DONE]")
        assert not ours.thread.is_alive() and not ours.desk.answers and len(ours.desk.free) == 4


def test_a_server_that_is_stopped_refuses_questions(answerer: Answerer) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256))
    request = serve.request_of({"messages": TURNS, **GREEDY})
    with ours.answers(request, ours.tokens_of(request)) as (answer,):
        assert [*answer.pieces()]
    ours.close()
    with pytest.raises(NotTaken, match="is stopping"), ours.answers(request, ours.tokens_of(request)):
        pass


def test_an_error_in_a_step_of_the_desk_ends_every_answer(answerer: Answerer, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256, together=1))
    request = serve.request_of({"messages": TURNS, **GREEDY, "n": 3})
    monkeypatch.setattr(ours.desk, "_begin", lambda: [][0])
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with ours.answers(request, ours.tokens_of(request)) as answers:
        for each in answers:
            with pytest.raises(IndexError):
                [*each.pieces()]
    ours.thread.join()
    with pytest.raises(NotTaken), ours.answers(request, ours.tokens_of(request)):
        pass


def test_an_error_before_the_first_token_is_the_answer(
    server: Server, answerer: Answerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: Any) -> Any:
        raise OutOfMemoryError("no memory for a piece.")

    monkeypatch.setattr(answerer.desk.plans, "next_piece", failing)
    for streams in (False, True):
        status, answer = asked(server, {"messages": TURNS, **GREEDY, "stream": streams})
        assert (status, answer["error"]["message"]) == (500, "no memory for a piece.")


@pytest.mark.parametrize("n", [1, 2])
def test_an_error_in_the_middle_of_a_stream_is_its_last_event(
    server: Server, answerer: Answerer, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    calls, next_tokens = [], answerer.desk.plans.next_tokens

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 8:
            raise DataError("the model's numbers are not finite.")
        return next_tokens(*args)

    monkeypatch.setattr(answerer.desk.plans, "next_tokens", failing)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    body = json.dumps({"messages": TURNS, "stream": True, **GREEDY, "n": n})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with connection.getresponse() as answer:
        lines = [line for line in answer.read().decode().split("\n") if line]
    connection.close()
    assert all(line.startswith("data: ") for line in lines) and len(lines) > 1
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["message"] == "the model's numbers are not finite."
    assert asked(server, {"messages": TURNS, **GREEDY})[0] == 200


def test_a_seed_decides_the_answer_and_whole_pieces_are_read_once(
    server: Server, answerer: Answerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces, read = [], answerer.desk.plans.next_piece
    monkeypatch.setattr(
        answerer.desk.plans, "next_piece", lambda text, tokens, start: pieces.append(start) or read(text, tokens, start)
    )

    def answer(text: str, seed: int = 0) -> tuple[str, list[int]]:
        pieces.clear()
        wanted = {"prompt": text, "temperature": 1.0, "max_tokens": 12, "seed": seed}
        status, body = asked(server, wanted, "/v1/completions")
        assert status == 200
        return body["choices"][0]["text"], [*pieces]

    text = "".join(map(chr, np.random.default_rng(0).integers(97, 123, 200)))
    first, again, other = answer(text[:150], 1), answer(text[:150], 1), answer(text[:150], 2)
    assert first[0] == again[0] != other[0]
    assert first[1] == [0, 64, 128] and again[1] == [128]
    assert answer(text)[1] == [128, 192] and answer(text[:100])[1] == [64], "the text with most in common"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 10**5, "no JSON"),
        ([], "the body must be an object"),
        ({"messages": []}, "messages must be a list of turns"),
        ({"messages": [{"role": "robot", "content": ""}]}, "one of system, developer, user, assistant, got robot"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content must be text"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "the last of messages must be of role user"),
        ({"messages": TURNS, "temperature": "hot"}, "temperature must be a number, got hot"),
        ({"messages": TURNS, "max_tokens": 0}, "max_tokens: got 0, it must be at least 1"),
        ({"messages": TURNS, "max_completion_tokens": -1}, "max_completion_tokens: got -1, it must be at least 1"),
        ({"messages": TURNS, "seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"messages": TURNS, "stream_options": {"include_usage": True}}, "an object, and stream true"),
        ({"messages": TURNS, "top_p": 0}, "top_p: got 0, it must be above 0."),
        ({"messages": TURNS, "stop": ["x", ""]}, "stop must be a text or up to 4 of them, none empty, got \"['x', '']\""),
        ({"messages": TURNS, "stop": [*"abcde"]}, "stop must be a text or up to 4 of them"),
        ({"messages": TURNS, "stop": 3}, "stop must be a text or up to 4 of them"),
        ({"messages": TURNS, "tools": [{}]}, "tools is not supported"),
        ({"messages": TURNS, "tool_choice": "auto"}, "tool_choice is not supported"),
        ({"messages": TURNS, "frequency_penalty": 2.5}, "frequency_penalty and presence_penalty must be from -2 to 2"),
        ({"messages": TURNS, "presence_penalty": "x"}, "presence_penalty must be a number, got x"),
        ({"messages": TURNS, "top_p": 1.5}, "top_p: got 1.5, it must be at most 1."),
        ({"messages": TURNS, "top_p": -0.5}, "top_p: got -0.5, it must be a finite number, 0 or more."),
        ({"messages": TURNS, "top_k": -1}, "top_k: got -1, it must be at least 0"),
        ({"messages": TURNS, "temperature": 10**400}, "temperature: got 1000000000"),
        ({"messages": TURNS, "temperature": 1e39}, "temperature: got 1e+39, it must be at most"),
        ({"messages": TURNS, "max_tokens": 2**31}, "max_tokens: got 2,147,483,648, it must be at most 2,147,483,647"),
        ({"messages": TURNS, "temprature": 1}, "temprature is not an entry of this request; temperature is."),
        ({"messages": TURNS, "prompt": "x"}, "prompt is not an entry of this request"),
        ({"messages": TURNS, "logit_bias": [3]}, "logit_bias must map token numbers to numbers, got [3]"),
        ({"messages": TURNS, "logit_bias": {"-1": 3}}, "logit_bias must map token numbers"),
        ({"messages": TURNS, "logit_bias": {"3": 101}}, "token 3 has 101, it must be from -100 to 100"),
        ({"messages": TURNS, "logit_bias": {"999999": 1}}, "logit_bias: token 999999 is not one of the "),
        ({"messages": TURNS, "n": 0}, "n must be from 1 to 16, got 0"),
        ({"messages": TURNS, "stream": "yes"}, "stream must be true or false, got yes"),
        ({"messages": TURNS, "response_format": {"type": "json_object"}}, "response_format is not supported"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "no JSON: Exceeds the limit"), (b'{"a": ' * 9999, "no JSON: maximum recursion"),
        ({"messages": TURNS, "best_of": 2}, "best_of must be from n, 1, to 1 here, got 2"),
        ({"messages": TURNS, "top_logprobs": 3}, "logprobs must be true or false, and true if top_logprobs is given"),
        ({"messages": TURNS, "logprobs": 3}, "logprobs must be true or false"),
        ({"messages": TURNS, "logprobs": 1}, "logprobs must be true or false"),
        ({"messages": TURNS, "model": 5}, "model must be a text, got 5"),
        ({"messages": TURNS, "stream": True, "stream_options": {"include_usage": "no"}}, "include_usage must be true or"),
        ({"messages": TURNS, "logit_bias": {"\u0661": 1}}, "logit_bias must map token numbers"),
        (b" " * (5 * 2**20), "Content-Length must be a number up to 4,194,304"),
        ({"messages": TURNS, "logprobs": True, "top_logprobs": 21}, "top_logprobs must be a whole number up to 20, got 21"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, "context has room for 256. Send a shorter text."),
    ],
)
def test_a_wrong_request_is_refused_and_says_why(body: Any, words: str, server: Server) -> None:
    status, answer = asked(server, body)
    message = answer["error"]["message"]
    assert status == 400 and words in message and "--" not in message, "no option of the command line is named"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "prompt must be a text, not empty, or a list of one, got 'None'"),
        ({"prompt": ""}, "prompt must be a text"),
        ({"prompt": ["one", "two"]}, "prompt must be a text"),
        ({"prompt": [1, 2]}, "prompt must be a text"),
        ({"prompt": "x" * 300}, "prompt: 3"),
        ({"prompt": "x", "echo": True}, "echo is not supported"),
        ({"prompt": "x", "logprobs": True}, "logprobs must be a whole number up to 20, got True"),
        ({"prompt": "x", "best_of": 17}, "best_of must be from n, 1, to 16 here, got 17"),
        ({"prompt": "x", "n": 3, "best_of": 2}, "best_of must be from n, 3, to 16 here, got 2"),
        ({"prompt": "x", "best_of": 2, "stream": True}, "best_of must be from n, 1, to 1 here, got 2"),
        ({"prompt": "x", "temperature": -1}, "temperature: got -1.0"),
    ],
)
def test_a_wrong_request_to_continue_a_text_is_refused_and_says_why(body: Any, words: str, server: Server) -> None:
    status, answer = asked(server, body, "/v1/completions")
    message = answer["error"]["message"]
    assert status == 400 and words in message and "--" not in message


# ---- the other addresses ----
def test_a_text_is_continued_as_it_is_whole_and_in_pieces(server: Server, answerer: Answerer) -> None:
    body = {"model": answerer.name, "prompt": "Once upon", **GREEDY}
    status, whole = asked(server, body, "/v1/completions")
    (choice,) = whole["choices"]
    assert status == 200 and whole["object"] == "text_completion" and whole["id"].startswith("cmpl-")
    assert set(choice) == {"text", "index", "logprobs", "finish_reason"}
    dialogue = answerer.dialogue
    read = [*dialogue.start, *dialogue.tokenizer.encode("Once upon")]
    assert whole["usage"]["prompt_tokens"] == len(read), "no turn was written around it"
    reader, settings = Reader(Plans(dialogue.model, 256)), serve.request_of(body, is_plain=True)
    written = [*reader.answer(read, dialogue.ends, settings.num, settings.choice, settings.seed)]
    stream = dialogue.tokenizer.stream()
    assert choice["text"] == "".join(map(stream.text, written)) + stream.rest()
    events = streamed(server, body, "/v1/completions")
    assert "".join(event["text"] for event in events) == choice["text"]
    assert [event["finish_reason"] for event in events] == [None] * (len(events) - 1) + [choice["finish_reason"]]
    assert asked(server, {**body, "prompt": ["Once upon"]}, "/v1/completions")[1]["choices"] == [choice]


def test_the_last_event_has_the_usage_where_it_is_asked_for(server: Server) -> None:
    for path, body in (("/v1/chat/completions", {"messages": TURNS}), ("/v1/completions", {"prompt": "Hello"})):
        usage = asked(server, {**body, **GREEDY}, path)[1]["usage"]
        *others, last = chunks(server, {**body, **GREEDY, "stream_options": {"include_usage": True}}, path)
        assert last["choices"] == [] and last["usage"] == usage
        assert {str(chunk["usage"]) for chunk in others} == {"None"} and all(chunk["choices"] for chunk in others)
        assert not any("usage" in chunk for chunk in chunks(server, {**body, **GREEDY}, path))


@pytest.mark.parametrize("is_plain", [False, True])
def test_probabilities_are_those_of_the_model_before_anything_is_preferred(
    is_plain: bool, server: Server, answerer: Answerer
) -> None:
    path = "/v1/completions" if is_plain else "/v1/chat/completions"
    body = {**({"prompt": "Once"} if is_plain else {"messages": TURNS}), "max_tokens": 6, "temperature": 0.7, "seed": 3}
    wants = {"logprobs": 3} if is_plain else {"logprobs": True, "top_logprobs": 3}
    (choice,) = asked(server, {**body, **wants}, path)[1]["choices"]
    dialogue, found = answerer.dialogue, choice["logprobs"]
    assert dialogue.turns is not None
    plain = [*dialogue.start, *dialogue.tokenizer.encode("Once")]
    read = plain if is_plain else dialogue.turns.dialogue([("user", "Hello")])
    reader = Reader(Plans(dialogue.model, 256))
    request = serve.request_of(body, is_plain, dialogue.choice)
    expected, written = [], [*reader.answer(read, dialogue.ends, 6, request.choice, 3)]
    for num in range(len(written)):
        logits = torch.from_numpy(Reader(Plans(dialogue.model, 256)).read([*read, *written[:num]])).double()
        best = torch.log_softmax(logits, 0).sort(descending=True, stable=True)
        expected.append((torch.log_softmax(logits, 0)[written[num]], best.values[:3], best.indices[:3]))
    own = found["token_logprobs"] if is_plain else [each["logprob"] for each in found["content"]]
    np.testing.assert_allclose(own, [value for value, *_ in expected], atol=1e-3)
    likeliest = found["top_logprobs"] if is_plain else [each["top_logprobs"] for each in found["content"]]
    for each, (_, values, numbers) in zip(likeliest, expected):
        assert len(each) == 3
        if not is_plain:
            np.testing.assert_allclose([one["logprob"] for one in each], values, atol=1e-3)
            assert [bytes(one["bytes"]) for one in each] == [dialogue.tokenizer.bytes_of(int(n)) for n in numbers]
    events = streamed(server, {**body, **wants}, path)
    parts = [event["logprobs"] for event in events]
    if is_plain:
        assert choice["text"].startswith("".join(found["tokens"])) and found["text_offset"][0] == 0
        again = [value for part in parts for value in part["token_logprobs"]]
    else:
        again = [each["logprob"] for part in parts for each in part["content"]]
    np.testing.assert_allclose(again, own, atol=1e-3)
    assert asked(server, body, path)[1]["choices"][0]["logprobs"] is None


def test_penalties_count_in_the_answer_alone_and_numbers_are_added_to_logits(server: Server, answerer: Answerer) -> None:
    dialogue = answerer.dialogue
    body = {"prompt": "Hello Hello", "temperature": 0, "repetition": 1, "max_tokens": 9}
    wanted = {"frequency_penalty": 2.0, "presence_penalty": -0.5, "logit_bias": {"107": 3.0, "64": -100}}
    reader = Reader(Plans(dialogue.model, 256))
    logits, found = reader.read([*dialogue.start, *dialogue.tokenizer.encode("Hello Hello")]), list[int]()
    for _ in range(9):
        scores = logits.astype(np.float64)
        for token in {*found}:
            scores[token] -= 2.0 * found.count(token) - 0.5
        scores[107] += 3.0
        scores[64] -= 100
        found.append(int(scores.argmax()))
        logits = reader.read([found[-1]])
    texts = [asked(server, body | each, "/v1/completions")[1]["choices"][0]["text"] for each in (wanted, {})]
    assert 1 < found.count(107) < 9 and texts[0] == dialogue.tokenizer.decode(found) != texts[1]


def test_entries_that_change_nothing_are_taken(server: Server) -> None:
    harmless = {"user": "me", "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "store": False}
    assert asked(server, {"messages": TURNS, **GREEDY, **harmless})[0] == 200


def test_an_answer_that_is_cut_has_no_probabilities_behind_its_end(server: Server) -> None:
    body = {"messages": TURNS, **GREEDY, "logprobs": True}
    whole = asked(server, body)[1]["choices"][0]
    cut = asked(server, {**body, "stop": whole["message"]["content"][3:5]})[1]["choices"][0]
    num = len(cut["logprobs"]["content"])
    tokens = [[each["token"] for each in choice["logprobs"]["content"]] for choice in (cut, whole)]
    assert 0 < num < len(tokens[1]) and tokens[0] == tokens[1][:num]


def test_several_answers_to_one_request_have_seeds_of_their_own(server: Server) -> None:
    body = {"messages": TURNS, "temperature": 1.0, "max_tokens": 8, "seed": 5}
    alone = [asked(server, {**body, "seed": 5 + number})[1] for number in range(3)]
    together = asked(server, {**body, "n": 3})[1]
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    texts = [each["choices"][0]["message"]["content"] for each in alone]
    assert [choice["message"]["content"] for choice in together["choices"]] == texts and len({*texts}) == 3
    usage, each = together["usage"], [one["usage"] for one in alone]
    assert usage["completion_tokens"] == sum(one["completion_tokens"] for one in each)
    assert usage["prompt_tokens"] == each[0]["prompt_tokens"]
    written = ["", "", ""]
    for event in streamed(server, {**body, "n": 3}):
        written[event["index"]] += event["delta"].get("content", "")
    assert written == texts


def test_a_client_that_goes_away_ends_its_answer_and_others_are_answered(server: Server) -> None:
    before = asked(server, {"messages": TURNS, **GREEDY})[1]["choices"]
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    body = json.dumps({"messages": TURNS, "stream": True, "max_tokens": 200, "temperature": 1.0, "n": 16})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with connection.getresponse() as answer:
        answer.readline()
    connection.close()
    assert asked(server, {"messages": TURNS, **GREEDY})[1]["choices"] == before


def test_the_best_of_several_answers_are_sent(server: Server) -> None:
    body = {"prompt": "Once", "max_tokens": 6, "temperature": 1.5, "logprobs": 0, "seed": 3}
    written = asked(server, {**body, "n": 5}, "/v1/completions")[1]["choices"]
    means = {each["text"]: np.mean(each["logprobs"]["token_logprobs"]) for each in written}
    status, best = asked(server, {**body, "n": 2, "best_of": 5}, "/v1/completions")
    assert status == 200 and [each["index"] for each in best["choices"]] == [0, 1]
    assert [each["text"] for each in best["choices"]] == sorted(means, key=lambda text: -means[text])[:2]
    assert best["usage"]["completion_tokens"] > 6 * 2, "those that are not sent count, too"


# ---- networks with an encoder ----
@pytest.mark.parametrize("beams", [1, 3])
def test_a_network_with_an_encoder_answers_each_text(beams: int, tmp_path: Path) -> None:
    write_seq2seq(tmp_path, BART, bart_weights(BART))
    chat = TextToText(Chat(model=str(tmp_path), context=64, beams=beams))
    text = [*chat.writer.write(chat.writer.read(chat.question("ab c")), chat.manner, chat.way(9, chat.choice, 0))]
    ours = Answerer(Serve(model=str(tmp_path), context=64, beams=beams))
    with serving(ours) as server:
        turns, short = [{"role": "user", "content": "ab c"}], {"max_tokens": 9}
        status, whole = asked(server, {"messages": turns, **short})
        expected = chat.tokenizer.decode(text)
        assert status == 200 and whole["choices"][0]["message"]["content"] == expected
        assert whole["usage"]["completion_tokens"] == len(text)
        (plain,) = asked(server, {"prompt": "ab c", **short}, "/v1/completions")[1]["choices"]
        assert plain["text"] == expected
        events = streamed(server, {"messages": turns, **short})
        assert "".join(each["delta"].get("content", "") for each in events) == expected
        drawn = asked(server, {"messages": turns, "temperature": 3.0, "n": 3, **short})[1]["choices"]
        assert len({each["message"]["content"] for each in drawn}) > 1, "a temperature takes the place of the search"
        for body, words in (
            ({"messages": [{"role": "system", "content": "a"}, *turns]}, "this model reads each text by itself"),
            ({"messages": turns, "logprobs": True}, "logprobs and best_of are not supported by this server"),
            ({"messages": [{"role": "user", "content": "ab " * 99}]}, "1 to 50 are read. Send a shorter text"),
        ):
            status, wrong = asked(server, body)
            assert status == 400 and words in wrong["error"]["message"]
        with ThreadPoolExecutor(4) as pool:
            answers = [*pool.map(lambda _: asked(server, {"messages": turns, **short}), range(4))]
        assert [answer["choices"] for _, answer in answers] == [whole["choices"]] * 4
    ours.close()
    with pytest.raises(NotTaken, match="is stopping"):
        ours.desk.ask([])


def test_a_decoder_searches_for_answers_one_after_the_other_and_draws_where_a_temperature_says_so(
    answerer: Answerer,
) -> None:
    chat = Dialogue(Chat(model=answerer.name, context=256, beams=3, repetition=1.0))
    question, choice = chat.question("Hello"), replace(chat.choice, temperature=0.0)
    how = choice, 0, [], chat.search
    text = [*chat.reader.answer(chat.reader.keep(question), chat.ends, 12, *how)]
    ours = Answerer(Serve(model=answerer.name, context=256, beams=3))
    with serving(ours) as server:
        body = {"messages": TURNS, "max_tokens": 12, "repetition": 1}
        with ThreadPoolExecutor(3) as pool:
            answers = [*pool.map(lambda _: asked(server, body), range(3))]
        expected = chat.tokenizer.decode(text)
        for status, answer in answers:
            (one,) = answer["choices"]
            assert status == 200 and one["message"]["content"] == expected
            assert one["finish_reason"] == ("length" if len(text) == 12 else "stop")
        assert "".join(each["delta"].get("content", "") for each in streamed(server, body)) == expected
        drawn = {"messages": TURNS, "max_tokens": 12, "temperature": 2.0, "seed": 3}
        assert asked(server, drawn)[1]["choices"][0]["message"] != asked(server, body)[1]["choices"][0]["message"]
        status, wrong = asked(server, body | {"logprobs": True})
        assert status == 400 and "this server, as it searches" in wrong["error"]["message"]
    ours.close()


@pytest.mark.parametrize("words", [["--temperature", "0.5"], ["--top-p", "0.5"], ["--top-k", "4"]])
def test_a_search_is_not_mixed_with_draws(words: list[str], capsys: Any) -> None:
    assert cli.main(["chat", "--beams", "2", *words]) == 1
    assert f"likeliest text; {words[0]} is for random draws" in capsys.readouterr().err


def test_groups_of_tokens_come_once_where_the_server_says_so(answerer: Answerer) -> None:
    ours = Answerer(Serve(model=answerer.name, context=256, no_repeat=1))
    with serving(ours) as server:
        body = {"messages": TURNS, **GREEDY, "repetition": 1, "logprobs": True}
        told = asked(server, body)[1]["choices"][0]["logprobs"]["content"]
        tokens = [tuple(each["bytes"]) for each in told]
        assert len({*tokens}) == len(tokens) == 12
    ours.close()


def test_a_context_beyond_all_machines_is_refused(answerer: Answerer, capsys: Any) -> None:
    assert cli.main(["serve", "--model", answerer.name, "--context", str(2**30)]) == 1
    assert "--context: got 1,073,741,824, it must be at most 16,777,216" in capsys.readouterr().err


# ---- vectors of texts ----
def test_embeddings_come_from_the_encoder_that_is_named(answerer: Answerer, tmp_path: Path) -> None:
    said = said_of("BERT")
    write(tmp_path, said, drawn_weights(said), ["mean"])
    ours = Answerer(Serve(model=answerer.name, context=256, embed=str(tmp_path)))
    expected = read_embedder(tmp_path).embed(["abc", "is"])
    with serving(ours) as server:
        path = "/v1/embeddings"
        status, answer = asked(server, {"input": ["abc", "is"], "model": "any"}, path)
        assert status == 200 and answer["usage"] == {"prompt_tokens": 8, "total_tokens": 8}
        np.testing.assert_allclose([each["embedding"] for each in answer["data"]], expected, rtol=1e-6)
        (one,) = asked(server, {"input": "abc", "encoding_format": "base64"}, path)[1]["data"]
        np.testing.assert_allclose(np.frombuffer(base64.b64decode(one["embedding"]), "<f4"), expected[0], rtol=1e-6)
        tokens = ours.embedder.numbers("abc") if ours.embedder else []
        for given in (tokens, [tokens]):
            assert asked(server, {"input": given}, path)[1]["data"][0]["embedding"] == answer["data"][0]["embedding"]
        longest = ours.embedder.longest if ours.embedder else 0
        for body, words in (
            ({}, "input must be a text, tokens, or a list of 1 to 2,048"),
            ({"input": []}, "input must be a text"),
            ({"input": [[]]}, "tokens, which are whole numbers below"),
            ({"input": [-1]}, "tokens, which are whole"),
            ({"input": "a", "encoding_format": "hex"}, "encoding_format must be float or base64"),
            ({"input": "a", "dimensions": 5}, "dimensions must be 32"),
            ({"input": ["a", "a b " * 300]}, f"reads {longest:,}. Send shorter texts"),
            ({"input": [[5] * (longest + 1)]}, f"input: a text has {longest + 1:,} tokens"),
            ([], "the body must be an object"),
        ):
            status, wrong = asked(server, body, path)
            assert status == 400 and words in wrong["error"]["message"]
        assert [each["id"] for each in got(server, "/v1/models")[1]["data"]] == ours.names
        openai = pytest.importorskip("openai", reason="the openai package, a client, is not installed")
        with openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0) as client:
            data = client.embeddings.create(model=ours.names[1], input=["abc", "is"]).data
            np.testing.assert_allclose([each.embedding for each in data], expected, rtol=1e-6)
            choices = client.chat.completions.create(
                model="", messages=TURNS, n=2, logprobs=True, top_logprobs=2, **GREEDY
            ).choices
            assert len(choices) == 2 and len(choices[1].logprobs.content[0].top_logprobs) == 2


def got(server: Server, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_a_model_is_asked_for_by_its_name(server: Server, answerer: Answerer) -> None:
    (entry,) = got(server, "/v1/models")[1]["data"]
    for name in (answerer.name, quote(answerer.name, safe="")):
        assert got(server, f"/v1/models/{name}") == (200, entry)
    status, answer = got(server, "/v1/models/gpt-4")
    assert status == 404 and answer["error"]["code"] == "model_not_found" and answerer.name in answer["error"]["message"]


def test_embeddings_are_refused_in_a_sentence(server: Server) -> None:
    status, answer = asked(server, {"model": "any", "input": "Hello", "encoding_format": "base64"}, "/v1/embeddings")
    assert status == 400 and set(answer["error"]) == {"message", "type", "param", "code"}
    assert "has no embeddings" in answer["error"]["message"]


def test_a_long_text_to_end_before_is_compared_with_what_is_written_alone(server: Server) -> None:
    class Counted(str):
        lengths: list[int] = []

        def __getitem__(self, part: Any) -> str:
            Counted.lengths.append(part.stop)
            return str(self)[part]

    text = serve.UpTo([Counted("ab" * 10**6)])
    assert [text.add(piece) for piece in ("xa", "b", "abx")] == ["x", "", "ababx"] and max(Counted.lengths) <= 5
    assert asked(server, {"messages": TURNS, "response_format": {"type": "text"}, **GREEDY})[0] == 200


def test_seeds_may_be_negative(server: Server) -> None:
    def drawn(seed: int) -> str:
        body = {"messages": TURNS, "temperature": 1.0, "max_tokens": 12, "seed": seed}
        text: str = asked(server, body)[1]["choices"][0]["message"]["content"]
        return text

    assert drawn(-5) == drawn(-5) != drawn(-6)


def test_openais_client_asks_every_address(server: Server, answerer: Answerer) -> None:
    openai = pytest.importorskip("openai", reason="the openai package, a client, is not installed")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0) as client:
        name = answerer.name
        assert client.models.retrieve(name).id == name
        whole = client.completions.create(model=name, prompt="Once upon", **GREEDY)
        pieces = list(
            client.completions.create(
                model=name, prompt="Once upon", stream=True, stream_options={"include_usage": True}, **GREEDY
            )
        )
        assert pieces.pop().usage == whole.usage
        assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
        with pytest.raises(openai.BadRequestError, match="has no embeddings"):
            client.embeddings.create(model=name, input="Hello")
        with pytest.raises(openai.NotFoundError, match="this model is unknown"):
            client.models.retrieve("gpt-4")


def test_other_addresses_and_pages_of_a_browser_are_refused(server: Server) -> None:
    assert asked(server, {"messages": TURNS}, "/v1/files")[0] == 404
    status, answer = asked(server, {"messages": TURNS}, Content_Type="text/plain")
    assert status == 400 and "Content-Type must be application/json" in answer["error"]["message"]
    status, answer = asked(server, b"", Content_Length=str(2**40))
    assert status == 400 and "Content-Length" in answer["error"]["message"]


@pytest.mark.parametrize("server", ["secret"], indirect=True)
def test_a_token_is_asked_for(server: Server) -> None:
    body = {"messages": TURNS, **GREEDY}
    assert asked(server, body)[0] == asked(server, body, Authorization="Bearer wrong")[0] == 401
    assert asked(server, body, Authorization="Bearer secret")[0] == 200


def test_a_client_that_goes_away_ends_its_answer_alone(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    body = json.dumps({"messages": TURNS, "stream": True, "max_tokens": 200})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.read(10) == b'data: {"id'
    answer.close()
    connection.close()
    assert asked(server, {"messages": TURNS, **GREEDY})[0] == 200


def test_another_address_needs_a_token(answerer: Answerer, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(serve, "Answerer", lambda settings: answerer)
    monkeypatch.setattr(answerer, "close", lambda: None)  # others ask it afterwards
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)
    assert cli.main(["serve", "--host", "0.0.0.0", "--port", "0"]) == 0
    assert len(capsys.readouterr().err.partition("token: ")[2].strip()) == 32
    assert cli.main(["serve", "--port", "0"]) == 0
    assert "token:" not in capsys.readouterr().err


def test_a_port_in_use(answerer: Answerer, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(serve, "Answerer", lambda settings: answerer)
    assert cli.main(["serve", "--port", str(server.server_port)]) == 1
    assert "Address already in use" in (err := capsys.readouterr().err) and "--port names another" in err


@pytest.mark.parametrize(("wrong", "got"), [(["--together", "9"], "9 and 32"), (["--waiting", "-1"], "4 and -1")])
def test_answers_at_once_and_waiting_ones_have_bounds(wrong: list[str], got: str, capsys: Any) -> None:
    assert cli.main(["serve", *wrong]) == 1
    assert f"--together must be from 1 to 8, and --waiting at least 0; got {got}." in capsys.readouterr().err
