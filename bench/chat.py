"""The speed of `picograd chat` beside others that run the same file: tokens a second, read and written.

    python -m bench.chat                             SmolLM2-135M of four bits: all that is installed, three times each
    python -m bench.chat --variants picograd,llama_cpp --rounds 1

    CMAKE_ARGS=-DGGML_NATIVE=ON pip install torch tinygrad==0.13.0 --no-binary llama-cpp-python llama-cpp-python
                                                     each is optional; what is missing is left out, in one line
    apt-get install clang                           for tinygrad's CPU device

In:    the GGUF file that `picograd chat` fetches
Out:   for each variant the median tokens a second of a prompt that is read, and of an answer that is written greedily, and
       the peak of resident memory; with which token its answer leaves that of the first variant; --json keeps each round

Every variant is a fresh process; they run in turns. A round reads the prompt and writes the answer twice: the first time
compiles and is not counted. picograd and llama.cpp compute with weights of four bits, PyTorch with float32 (its network is
in bench/peers/torch_chat.py), tinygrad as its own `tinygrad.llm` does, with float16. llama.cpp is compiled for the
machine's own instructions. The cores must be quiet: threads of OpenMP that wait for each other fall to a tenth of
their speed beside other work, ours do not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.driver import ROOT, environment, without_paths
from bench.machine import describe_commit, describe_machine, describe_versions
from picograd.config import cache_folder
from picograd_formats.gguf_file import read_gguf
from picograd_programs.chat.answer import Plans, Reader
from picograd_programs.chat.run import opened
from picograd_programs.data.text import load_text
from picograd_programs.data.weights import SMOLLM2

NAME = "smollm2"
CONTEXT = 512
Answers = Callable[[list[int], int], Iterator[int]]  # yields the likeliest tokens after a prompt, which it reads anew


# ---- variants ----
def picograd_answers() -> Answers:
    """Returns what `picograd chat` runs."""
    model, *_ = opened(NAME, CONTEXT)
    reader = Reader(Plans(model, CONTEXT))

    def answers(prompt: list[int], num: int) -> Iterator[int]:
        reader.tokens, tokens = [], prompt
        for _ in range(num):
            token = int(reader.read(tokens).argmax())
            yield token
            tokens = [token]

    return answers


def llama_cpp_answers() -> Answers:
    """Returns llama.cpp with as many threads as it is given."""
    cpp: Any = importlib.import_module("llama_cpp")
    threads = int(os.environ["OMP_NUM_THREADS"])
    settings = {"n_ctx": CONTEXT, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
    llama = cpp.Llama(str(gguf_path()), **settings)

    def answers(prompt: list[int], num: int) -> Iterator[int]:
        llama.reset()
        tokens = prompt
        for _ in range(num):
            llama.eval(tokens)
            tokens = [llama.sample(top_k=1, temp=0.0, repeat_penalty=1.0)]
            yield tokens[0]

    return answers


def torch_answers() -> Answers:
    """Returns the same network in PyTorch, eager."""
    peer: Any = importlib.import_module("bench.peers.torch_chat")
    answers: Answers = peer.answers_of(read_gguf(gguf_path()), CONTEXT, int(os.environ["OMP_NUM_THREADS"]))
    return answers


def tinygrad_answers() -> Answers:
    """Returns tinygrad's own network of GGUF files."""
    model, _ = importlib.import_module("tinygrad.llm.model").Transformer.from_gguf(gguf_path(), CONTEXT)

    def answers(prompt: list[int], num: int) -> Iterator[int]:
        model._cached_tokens = []  # else what it has read of the same prompt is not read again
        for _, token in zip(range(num), model.generate(list(prompt))):
            yield token

    return answers


VARIANTS: dict[str, Callable[[], Answers]] = {
    "picograd": picograd_answers, "llama_cpp": llama_cpp_answers, "torch": torch_answers, "tinygrad": tinygrad_answers,
}  # fmt: skip


def gguf_path() -> Path:
    """Returns the file with the weights, which `picograd chat` has fetched."""
    cache = cache_folder()
    if cache is None:
        raise RuntimeError("PICOGRAD_CACHE is off, and the others read the file from the cache")
    return cache / "data" / NAME / SMOLLM2.name


# ---- the work of a process ----
def work(variant: str, prompt: list[int], num: int) -> None:
    """Prints the seconds of a prompt and of an answer, and the answer, as a JSON line."""
    answers = VARIANTS[variant]()
    for _ in range(2):  # the first compiles
        began, places, answer = time.perf_counter(), list[float](), list[int]()
        for token in answers([*prompt], num + 1):
            places.append(time.perf_counter() - began)
            answer.append(token)
    print(json.dumps({"read": places[0], "written": places[-1] - places[0], "answer": answer}), flush=True)


# ---- processes in turns ----
def measured(variant: str, prompt: list[int], num: int, threads: int) -> dict[str, Any] | None:
    """Runs a variant in a fresh process; returns its rates, answer and peak of memory, None where it does not run."""
    words = [sys.executable, "-W", "ignore", "-m", "bench.chat", "--work", variant, "--written", str(num)]
    words += ["--prompt", ",".join(map(str, prompt))]
    with tempfile.TemporaryFile("w+") as errors:
        variables = {**environment(threads), "DEV": "CPU"}
        process = subprocess.Popen(words, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        lines = [line for line in process.stdout.read().splitlines() if line.startswith(b'{"read"')]
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["it gave no reason"])[-1]
    if process.returncode or not lines:
        print(f"{variant} is left out: {without_paths(last)[:160]}", file=sys.stderr, flush=True)
        return None
    found = json.loads(lines[0])
    rates = {"read": len(prompt) / found["read"], "written": num / found["written"]}
    return {**rates, "answer": found["answer"], "peak_nbytes": usage.ru_maxrss << 10}


def row(variant: str, rounds: list[dict[str, Any]], first: list[int]) -> str:
    """Returns the medians of a variant's rounds as a row of a table."""
    read, written = (median(each[name] for each in rounds) for name in ("read", "written"))
    memory = max(each["peak_nbytes"] for each in rounds) / 2**20
    answer = rounds[0]["answer"]
    same = next((place for place, pair in enumerate(zip(answer, first)) if pair[0] != pair[1]), len(answer))
    return f"| {variant} | {read:.0f} | {written:.1f} | {memory:.0f} MiB | {same} of {len(first)} |"


def compare(arguments: argparse.Namespace) -> None:
    """Runs the variants in turns and prints a table."""
    _, tokenizer, *_ = opened(NAME, CONTEXT)
    prompt = tokenizer.encode(load_text("shakespeare")[: 8 * arguments.read])[: arguments.read]
    found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in arguments.variants.split(",")}
    for _ in range(arguments.rounds):
        for variant, rounds in [*found.items()]:
            got = measured(variant, prompt, arguments.written, arguments.threads)
            if got is None:
                del found[variant]
                continue
            rounds.append(got)
            print(row(variant, [got], got["answer"]), file=sys.stderr, flush=True)
    first = next(iter(found.values()))[0]["answer"]
    what = f"{len(prompt)} and {arguments.written} tokens"
    print(f"| {what} | read a second | written a second | peak memory | same answer |")
    print("|---|---:|---:|---:|---:|")
    print("\n".join(row(variant, rounds, first) for variant, rounds in found.items()))
    if arguments.json is not None:
        head = {**describe_commit(), "machine": describe_machine(), "versions": describe_versions()}
        arguments.json.write_text(json.dumps({**head, "rounds": found}, indent=1) + "\n")


def main() -> None:
    """Reads the command line; does the work of one variant, or compares all."""
    parser = argparse.ArgumentParser(prog="python -m bench.chat", description="Compares the speed of a chat with others.")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma list; the others are compared with the first")
    parser.add_argument("--read", type=int, default=256, help="number of tokens of the prompt")
    parser.add_argument("--written", type=int, default=64, help="number of tokens of the answer")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, in turns")
    parser.add_argument("--threads", type=int, default=2, help="threads of every variant")
    parser.add_argument("--json", type=Path, help="file that receives every round")
    parser.add_argument("--work", choices=VARIANTS, help="run this variant, in this process")
    parser.add_argument("--prompt", default="", help="the prompt as token numbers, for --work")
    arguments = parser.parse_args()
    if arguments.work is None:
        compare(arguments)
    else:
        work(arguments.work, [int(number) for number in arguments.prompt.split(",")], arguments.written)


if __name__ == "__main__":
    main()
