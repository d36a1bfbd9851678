"""One framework in a process of its own, answering requests: none disturbs another, and a crash is only its own.

In:    a variant's name; one JSON request a line on standard input
Out:   one JSON answer a line on the standard output it was given; whatever the framework prints goes to standard error
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from typing import Any

from bench.peers import load
from bench.runner import Peer, Runner, make_runner
from bench.workloads import WORKLOADS

Answer = dict[str, Any]

# A step that takes longer than this is not repeated to warm up before a sample.
LONG_STEP_S = 0.1


class Session:
    """The requests, one method each; at most one workload is held at a time.

    make       {workload}         -> {values}: ten losses, or the result at the sampled places
    calibrate  {min_s}            -> {count, step_s}: how many steps take at least min_s; the last trial
    sample     {count}            -> {step_s}: seconds per step, one sample
    drop       {}                 -> {}
    """

    def __init__(self, peer: Peer, variant: str) -> None:
        self.peer, self.variant = peer, variant
        self.runner: Runner | None = None
        self.step_s = 0.0

    def make(self, workload: str) -> Answer:
        self.runner = make_runner(self.peer, WORKLOADS[workload], self.variant)
        return {"values": self.runner.values()}

    def calibrate(self, min_s: float) -> Answer:
        assert self.runner is not None
        granularity = count = self.runner.granularity
        seconds = self._time(count)
        while seconds < min_s:
            grown = count * min(10.0, 1.2 * min_s / max(seconds, 1e-9))
            count = granularity * math.ceil(grown / granularity)
            seconds = self._time(count)
        self.step_s = seconds / count
        return {"count": count, "step_s": self.step_s}

    def sample(self, count: int) -> Answer:
        assert self.runner is not None
        self.runner.refresh()
        if self.step_s * self.runner.granularity < LONG_STEP_S:
            self.runner.step(self.runner.granularity)
        return {"step_s": self._time(count) / count}

    def drop(self) -> Answer:
        self.runner = None
        gc.collect()
        return {}

    def _time(self, count: int) -> float:
        assert self.runner is not None
        start = time.perf_counter()
        self.runner.step(count)
        return time.perf_counter() - start


def one_line(error: BaseException) -> str:
    """The error's type and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:200]


def main() -> None:
    """Starts the framework, says its version, then answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(answer: Answer) -> None:
        print(json.dumps(answer), file=answers)

    variant = sys.argv[1]
    try:
        peer = load(variant)
        session = Session(peer, variant)
        say({"version": peer.version()})
    except Exception as error:
        say({"error": one_line(error)})
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say(getattr(session, request.pop("do"))(**request))
        except Exception as error:
            session.drop()
            say({"error": one_line(error)})


if __name__ == "__main__":
    main()
