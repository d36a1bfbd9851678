"""A cache folder of its own, no PICOGRAD_DATA, and a web server on this machine, for each test of the loaders."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no folder of the user's."""
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PICOGRAD_DATA", raising=False)
    return tmp_path / "cache"


class Server:
    """A web server on 127.0.0.1.

    bodies:     what each path answers
    promised:   a length that the header says instead of the true one: the connection then breaks off early
    at_once:    bytes after which every connection breaks off
    ranges:     it sends the rest of a body where that is asked for
    requests:   paths asked for so far
    starts:     where the bytes asked for began
    """

    def __init__(self) -> None:
        self.at_once: int | None = None
        self.ranges = False
        self.starts: list[int] = []
        self.bodies: dict[str, bytes] = {}
        self.promised: dict[str, int] = {}
        self.requests: list[str] = []
        self.address = ""

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            state.requests.append(name)
            if name not in state.bodies:
                self.send_error(404)
                return
            body = state.bodies[name]
            start = int(self.headers.get("Range", "bytes=0-")[6:-1])
            state.starts.append(start)
            if state.ranges and start >= len(body) > 0:
                self.send_error(416)
                return
            if state.ranges and start:
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                body = body[start:]
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(state.promised.get(name, len(body))))
            self.end_headers()
            self.wfile.write(body[: state.at_once])

        def log_message(self, *details: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        state.address = f"http://127.0.0.1:{web.server_address[1]}"
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        web.shutdown()
        thread.join()
