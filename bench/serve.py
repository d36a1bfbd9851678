"""The speed of `picograd serve` for several clients at once, beside llama-cpp-python's server on the same file.

    python -m bench.serve                                SmolLM2-135M of four bits; 1, 2, 4 and 8 clients
    python -m bench.serve --variants picograd --clients 1,4

    pip install 'llama-cpp-python[server]'               optional; what is missing is left out, in one line

In:    the GGUF file that `picograd chat` fetches
Out:   for each number of clients: tokens a second of all of them together, and for a second of the server's processor time;
       the median and the longest time to a client's first token

Each client asks one question after the other, with streams; all begin with other words, so that no question is known. The
first questions compile and are not counted. Times of a processor mean something beside other work, those of a clock do not.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from bench.chat import NAME, gguf_path
from bench.driver import ROOT, environment
from picograd_programs.chat.run import opened
from picograd_programs.data.text import load_text

CONTEXT, TOGETHER = 512, 8
START_SECONDS = 120  # that a server may take until it answers
COMMANDS = {
    "picograd": "-m picograd serve --port {port} --context {context} --together {together}",
    "llama_cpp": "-m llama_cpp.server --port {port} --n_ctx {context} --n_threads {threads} --model {path}",
}


class Server:
    """A server in a process of its own, for a `with`."""

    def __init__(self, variant: str, threads: int):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = COMMANDS[variant].format(
            port=self.port, context=CONTEXT, together=TOGETHER, threads=threads, path=gguf_path()
        )
        self.process = subprocess.Popen(
            [sys.executable, *words.split()], cwd=ROOT, env=environment(threads), stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Server:
        end = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            with socket.socket() as found:
                if not found.connect_ex(("127.0.0.1", self.port)):
                    return self
            time.sleep(0.2)
        raise RuntimeError("the server does not begin")

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait()

    def processor_seconds(self) -> float:
        """Returns the processor time of all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, prompt: str, num: int) -> tuple[float, int]:
        """Returns the seconds to the first token of an answer, and how many tokens it has."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"model": NAME, "prompt": prompt, "max_tokens": num, "temperature": 0.0, "stream": True}
        body |= {"stream_options": {"include_usage": True}}
        began, first, tokens = time.perf_counter(), 0.0, 0
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            event: dict[str, Any] = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            first = first or (time.perf_counter() - began if event.get("choices") else 0.0)
            tokens = event["usage"]["completion_tokens"] if event.get("usage") else tokens
        connection.close()
        return first, tokens


def measured(server: Server, clients: int, prompts: list[str], num: int) -> dict[str, float]:
    """Asks all questions, `clients` at once; returns rates and times."""
    before, began = server.processor_seconds(), time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda prompt: server.ask(prompt, num), prompts))
    seconds, processor = time.perf_counter() - began, server.processor_seconds() - before
    tokens, firsts = sum(each[1] for each in answers), [each[0] for each in answers]
    return {
        "rate": tokens / seconds, "processor_rate": tokens / processor, "first": median(firsts), "longest": max(firsts),
    }  # fmt: skip


def compare(arguments: argparse.Namespace) -> None:
    """Runs the servers one after the other and prints a table."""
    _, tokenizer, *_ = opened(NAME, CONTEXT)
    text, counts = load_text("shakespeare"), [int(each) for each in arguments.clients.split(",")]
    rounds = arguments.questions * max(counts)
    starts = iter(range(0, len(text), len(text) // (rounds * (len(counts) + 1))))

    def prompts(num: int) -> list[str]:
        pieces = (text[start : start + 8 * arguments.read] for start in (next(starts) for _ in range(num)))
        return [tokenizer.decode(tokenizer.encode(piece)[: arguments.read]) for piece in pieces]

    asked: dict[int, list[str]] = {clients: prompts(arguments.questions * clients) for clients in counts}
    print("| | clients | tokens a second | for a second of the processor | first token, median | longest |")
    print("|---|---:|---:|---:|---:|---:|")
    for variant in arguments.variants.split(","):
        if variant == "llama_cpp" and importlib.util.find_spec("llama_cpp") is None:
            print("llama_cpp is left out: llama-cpp-python is not installed", file=sys.stderr)
            continue
        with Server(variant, arguments.threads) as server:
            for _ in range(2):  # each length of a piece is compiled at its first uses
                for length in (4, 20, arguments.read):
                    server.ask(tokenizer.decode(tokenizer.encode(text[: 8 * length])[:length]), 2)
            for clients in counts:
                measured(server, clients, prompts(clients), arguments.written)
                found: dict[str, Any] = measured(server, clients, asked[clients], arguments.written)
                print(
                    f"| {variant} | {clients} | {found['rate']:.0f} | {found['processor_rate']:.0f} |"
                    f" {found['first']:.2f} s | {found['longest']:.2f} s |",
                    flush=True,
                )


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser("python -m bench.serve", description="Measures a server with several clients.")
    parser.add_argument("--variants", default=",".join(COMMANDS), help="comma list of servers")
    parser.add_argument("--clients", default="1,2,4,8", help="comma list of numbers of simultaneous clients")
    parser.add_argument("--questions", type=int, default=3, help="questions of each client")
    parser.add_argument("--read", type=int, default=50, help="number of tokens of a question")
    parser.add_argument("--written", type=int, default=48, help="number of tokens of an answer")
    parser.add_argument("--threads", type=int, default=2, help="threads of every server")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
