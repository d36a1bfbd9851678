"""`picograd serve`: OpenAI's client gets answers whole and in pieces; wrong requests are refused and say why."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from picograd_programs import cli
from picograd_programs.chat import serve
from picograd_programs.chat.serve import Answerer, Serve, Server
from tests.chat.small_model import write_model


@pytest.fixture(scope="module")
def answerer(tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    return Answerer(Serve(model=str(write_model(tmp_path_factory.mktemp("serve") / "small.gguf")), context=256))


@pytest.fixture
def server(answerer: Answerer, request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(Serve(port=0, token=getattr(request, "param", "")), answerer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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


def test_a_seed_decides_the_answer_and_a_dialogue_is_read_on(server: Server, answerer: Answerer) -> None:
    def answer(turns: list[Any], seed: int = 0) -> tuple[str, int]:
        status, body = asked(server, {"messages": turns, "temperature": 1.0, "max_tokens": 12, "seed": seed})
        assert status == 200
        return body["choices"][0]["message"]["content"], answerer.dialogue.reader.read_speed.tokens

    answerer.dialogue.reader.tokens = []
    first, num_read = answer(TURNS, 1)
    again, num_read_again = answer(TURNS, 1)
    assert first == again != answer(TURNS, 2)[0]
    assert num_read > num_read_again == 1, "what was read is kept"
    later = [*TURNS, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": [{"type": "text", "text": "?"}]}]
    fresh = Answerer(Serve(model=answerer.name, context=256))
    kept, fresh.dialogue.reader.tokens = answer(later, 3)[0], []
    request = serve.request_of({"messages": later, "temperature": 1.0, "max_tokens": 12, "seed": 3})
    assert kept == "".join(fresh.answer(request)), "and changes nothing"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 10**5, "no JSON"),
        ([], "messages must be a list of turns"),
        ({"messages": []}, "messages must be a list of turns"),
        ({"messages": [{"role": "robot", "content": ""}]}, "one of system, developer, user, assistant, got robot"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content must be text"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "the last of messages must be of role user"),
        ({"messages": TURNS, "temperature": "hot"}, "temperature must be a number, got hot"),
        ({"messages": TURNS, "max_tokens": 0}, "--max-tokens: got 0, it must be at least 1"),
        ({"messages": TURNS, "top_p": 0}, "top_p must be above 0"),
        ({"messages": TURNS, "stop": ["x"]}, "stop is not supported"),
        ({"messages": TURNS, "frequency_penalty": 0.5}, "frequency_penalty is not supported"),
        ({"messages": TURNS, "n": 2}, "n must be 1"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, "This model reads 256 at most"),
    ],
)
def test_a_wrong_request_is_refused_and_says_why(body: Any, words: str, server: Server) -> None:
    status, answer = asked(server, body)
    assert status == 400 and words in answer["error"]["message"]


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
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)
    assert cli.main(["serve", "--host", "0.0.0.0", "--port", "0"]) == 0
    assert len(capsys.readouterr().err.partition("token: ")[2].strip()) == 32
    assert cli.main(["serve", "--port", "0"]) == 0
    assert "token:" not in capsys.readouterr().err


def test_a_port_in_use(answerer: Answerer, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(serve, "Answerer", lambda settings: answerer)
    assert cli.main(["serve", "--port", str(server.server_port)]) == 1
    assert "Address already in use" in (err := capsys.readouterr().err) and "--port names another" in err
