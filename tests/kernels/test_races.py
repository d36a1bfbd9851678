"""Races in memory of the device: the simulator names both threads and lines, and raises no alarm where there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

import picograd as pg
from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd_lab.kernels.kernel import Kernel
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler
HEAD = """__global__ void each(float *out, unsigned *count, const float *x, const int *which) {
  __shared__ bool is_last;
  int i = threadIdx.x, b = blockIdx.x, at = b * 32 + i, next = b * 32 + (i + 1) % 32;
  switch (*which) {
"""
SYNC = "__syncthreads();"
# of the third block: memory begins as -1
READ_BY_LAST = (
    f"{SYNC} if (i == 0) is_last = atomicAdd(count, 1u) == 1; {SYNC} if (is_last) out[at] += out[(at + 32) % 96];"
)
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
    "parts of an element": ("((char *)out)[at] = i;", ""),
    "vectors": ("((float4 *)out)[i % 2] = make_float4(i, i, i, i);", r"thread 2, .*writes out\[0\], which thread 0 wrote"),
}
# The same of other memory: that of Global<T>, of narrow elements, and parts of elements.
HEAD_OF_PARTS = """__global__ void parts(Global<float> out, int *words, int8_t *bytes, half *halves, bool *flags,
                      const float *x, const int *which) {
  extern __shared__ float room[];
  __shared__ int tile[32];
  int i = threadIdx.x, b = blockIdx.x, at = b * 32 + i, next = b * 32 + (i + 1) % 32;
  switch (*which) {
"""
CASES_OF_PARTS = {
    "blocks write an element": ("out[i] = at;", r"block 1, thread 0, .*writes out\[0\], which thread 0 of block 0 wrote"),
    "blocks write the same bits": ("out[i] = 1;", ""),
    "each its own": ("out[at] = x[at];", ""),
    "a neighbour reads": ("out[at] = at; out[at] = out[next];", r"thread 1, .*writes out\[1\], which thread 0 read"),
    "barriers": (f"out[at] = at; {SYNC} float y = out[next]; {SYNC} out[at] = y;", ""),
    "atomics": ("atomic_add(out, i, 1.0f);", ""),
    "an atomic that is read": ("atomic_add(out, 0, 1.0f); if (b == 2) out[4] = out[0];", "reads .* of block 1 changed by"),
    "vectors": ("store_lanes(out, i % 2 * 4, load_lanes<4>(out, 4 * i % 96));", r"writes out\[0\], which thread 0"),
    "bytes of a word": ("((char *)words)[at] = i;", ""),
    "one byte": ("((char *)words)[i / 2] = i;", r"thread 1, .*writes words\[0\], which thread 0 wrote"),
    "halves of a word": ("((half *)words)[at] = __float2half(x[at]);", ""),
    "a word and a byte of it": (
        "if (b == 0) words[i] = 5; else if (b == 1) ((char *)words)[4 * i + 2] = 7;",
        r"block 1, thread 0, .*writes words\[0\], which thread 0 of block 0 wrote",
    ),
    "a byte and its word": (
        "if (b == 0) ((char *)words)[4 * i + 2] = 7; else if (b == 1) words[i] = 5;",
        r"block 1, thread 0, .*writes words\[0\], which thread 0 of block 0 wrote",
    ),
    "a word of others' bytes": (
        "((char *)words)[at] = i; out[at] = words[at / 4];",
        r"thread 1, .*writes words\[0\], which thread 0 read",
    ),
    "a word of others' bytes behind a barrier": (f"((char *)words)[at] = i; {SYNC} out[at] = words[at / 4];", ""),
    "an int8": ("bytes[i / 2] = i;", r"thread 1, .*writes bytes\[0\], which thread 0 wrote"),
    "int8s side by side": ("bytes[at] = i;", ""),
    "a half": ("halves[i] = __float2half(b);", r"block 1, thread 0, .*writes halves\[0\], which thread 0 of block 0 wrote"),
    "halves side by side": ("halves[at] = __float2half(b);", ""),
    "a bool": ("flags[i] = b > 0;", r"block 1, thread 0, .*writes flags\[0\], which thread 0 of block 0 wrote"),
    "a bool that all set": ("flags[i] = true;", ""),
    "halves of shared floats": (
        f"((half *)room)[i] = __float2half(i); {SYNC} out[at] = __half2float(((half *)room)[i ^ 1]);",
        "",
    ),
    "no barrier before halves of shared floats": (
        f"half *own = (half *)room; own[i] = half(); {SYNC} own[i] = __float2half(i); out[at] = __half2float(own[i ^ 1]);",
        r"thread 1, .*writes room\[0\], which thread 0",
    ),
    "bytes of a shared word": (f"((char *)tile)[i] = i; {SYNC} out[at] = tile[i / 4];", ""),
}
SAYS = {"each": CASES, "parts": CASES_OF_PARTS}


def kernel_of(head: str, cases: dict[str, tuple[str, str]], results: Sequence[tuple[tuple[int, ...], DType]]) -> Kernel:
    """Returns a kernel with a case, in a line of its own, for the number that `which` has."""
    bodies = [f"    case {number}: {{ {body} }} break;\n" for number, (body, _) in enumerate(cases.values())]
    return pg.kernel(
        head + "".join(bodies) + "  }\n}\n", output=lambda x, which: tuple(results), grid=3, block=32, shared_bytes=128
    )


KERNELS = {
    "each": kernel_of(HEAD, CASES, [((96,), pg.float32), ((1,), pg.uint32)]),
    "parts": kernel_of(
        HEAD_OF_PARTS, CASES_OF_PARTS, [((96,), dtype) for dtype in (pg.float32, pg.int32, pg.int8, pg.float16, pg.bool)]
    ),
}


@pytest.mark.parametrize(("kernel", "name"), [(kernel, name) for kernel, cases in SAYS.items() for name in cases])
def test_a_race_is_named(kernel: str, name: str) -> None:
    number, says = list(SAYS[kernel]).index(name), SAYS[kernel][name][1]
    prepared = KERNELS[kernel].prepare(*(one.to("CUDASIM") for one in (pg.ones(96), pg.tensor(number, dtype=pg.int32))))
    line = (HEAD if kernel == "each" else HEAD_OF_PARTS).count("\n") + 1 + number
    for order in ("forward", "backward", "shuffled"):
        prepared.forget()
        if not says:
            prepared.run(order=order)
            continue
        with pytest.raises(DeviceError) as error:
            prepared.run(order=order)
        said, shown, *_ = str(error.value).splitlines()
        assert re.search(rf"{kernel}.cu line {line}: race: ", said), said
        assert f"at line {line}" in said or "room" in said, said  # of shared memory nobody keeps lines
        assert re.search(says, said) or order != "forward", said
        assert shown.strip().startswith(f"{line} | ")


def test_a_shared_word_of_which_a_part_is_written_is_not_there() -> None:
    text = """__global__ void half_of_it(float *out) {
  __shared__ int tile[32];
  ((short *)tile)[2 * threadIdx.x] = 1;
  out[threadIdx.x] = tile[threadIdx.x];
}"""
    fault = r"line 4: reads tile\[0\], which this block has not written"
    with pg.device("CUDASIM"), pytest.raises(DeviceError, match=fault):
        pg.kernel(text, output=lambda: ((32,), pg.float32), grid=1, block=32)().numpy()
