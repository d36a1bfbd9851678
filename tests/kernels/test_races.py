"""Races in memory of the device: the simulator names both threads and lines, and raises no alarm where there is none."""

from __future__ import annotations

import re

import pytest

import picograd as pg
from picograd.errors import DeviceError
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler
HEAD = """__global__ void each(float *out, unsigned *count, const float *x, const int *which) {
  __shared__ bool is_last;
  int i = threadIdx.x, b = blockIdx.x, at = b * 32 + i, next = b * 32 + (i + 1) % 32;
  switch (*which) {
"""
SYNC = "__syncthreads();"
# of the third block: memory begins as -1
READ_BY_LAST = f"{SYNC} if (i == 0) is_last = atomicAdd(count, 1u) == 1; {SYNC} if (is_last) out[at] += out[i];"
# Statements of a thread of three blocks of 32, and what is said of them; "" where there is no race.
CASES = {
    "blocks write an element": ("out[i] = at;", r"block 1, thread 0, .*writes out\[0\], which thread 0 of block 0 wrote"),
    "blocks write the same bits": ("out[i] = 1;", ""),
    "threads write an element": ("out[i / 2] = i;", r"block 0, thread 1, .*writes out\[0\], which thread 0 wrote .*since"),
    "each its own": ("out[at] = at;", ""),
    "a neighbour reads": ("out[at] = at; out[at] = out[next];", r"thread 1, .*writes out\[1\], which thread 0 read"),
    "barriers": (f"out[at] = at; {SYNC} float y = out[next]; {SYNC} out[at] = y;", ""),
    "barriers of a warp": ("out[at] = at; __syncwarp(); float y = out[next]; __syncwarp(); out[at] = y;", ""),
    "a block reads another's": (
        "if (b == 0) out[i] = at; else out[at] = out[i];",
        r"block 1, thread 0, .*reads out\[0\], which thread 0 of block 0 wrote",
    ),
    "a block writes what others read": (
        "if (b == 2) out[i] = 0; else if (out[i] == 5) out[at] = 0;",
        r"block 2, .*writes out\[0\], which thread 0 of block 1 read",
    ),
    "a block writes what it and another read": (
        f"if (out[0] == 5) out[4] = 0; {SYNC} if (b == 1) out[0] = 0;",
        "block 1, .*which other threads of block 0 read",
    ),
    "atomics": ("atomicAdd(out + i, 1.0f);", ""),
    "an atomic that is read": (
        "atomicAdd(out, 1.0f); if (b == 2) out[4] = out[0];",
        "reads .* other threads of block 1 changed by an atomic",
    ),
    "an addition without an atomic": ("out[0] += 1;", r"thread 1, .*reads out\[0\], which thread 0 wrote"),
    "the last block reads": (f"out[at] = at; __threadfence(); {READ_BY_LAST}", ""),
    "no fence before the last block reads": (
        f"out[at] = at; {READ_BY_LAST}",
        r"block 2, thread 0, .*reads out\[0\], which thread 0 of block 0 wrote",
    ),
    "parts of an element": ("((char *)out)[at] = 1;", ""),
    "vectors": ("((float4 *)out)[i % 2] = make_float4(i, i, i, i);", r"thread 2, .*writes out\[0\], which thread 0 wrote"),
}
BODIES = [f"    case {number}: {{ {body} }} break;\n" for number, (body, _) in enumerate(CASES.values())]
TEXT = HEAD + "".join(BODIES) + "  }\n}\n"
each = pg.kernel(TEXT, output=lambda x, which: (x, ((1,), pg.uint32)), grid=3, block=32)


@pytest.mark.parametrize("name", CASES)
def test_a_race_is_named(name: str) -> None:
    number, says = list(CASES).index(name), CASES[name][1]
    with pg.device("CUDASIM"):
        x, which = pg.ones(96), pg.tensor(number, dtype=pg.int32)
        if not says:
            each(x, which)[0].numpy()
            return
        with pytest.raises(DeviceError) as error:
            each(x, which)[0].numpy()
    line = HEAD.count("\n") + 1 + number
    said, shown, *_ = str(error.value).splitlines()
    assert re.search(rf"each.cu line {line}: race: ", said) and f"at line {line}" in said and re.search(says, said), said
    assert shown.strip().startswith(f"{line} | ")
