"""The machine: who runs, who waits, what memory is checked for; each test is a kernel written by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ptx import table
from tests.ptx.inline import inline
from tests.ptx.launch import Buffers, Pointer, launch
from tests.ptx.module import PtxError
from tests.ptx.parse import parse

Array = np.ndarray[Any, Any]
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
REGISTERS = """.reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<8>; .reg .f32 %f<8>;
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0;
ld.param.u64 %rd0, [out]; cvta.to.global.u64 %rd1, %rd0; mad.wide.u32 %rd2, %r3, 4, %rd1;
"""  # r0: thread, r3: of the grid; rd2: where its own word of the output lies


def run(body: str, threads: int = 64, grid: int = 1, numel: int = 0, before: str = "", dynamic_nbytes: int = 0) -> Array:
    """Returns the words that a kernel leaves in its output, a word a thread or `numel`."""
    text = f"{HEAD}{before}\n.visible .entry k(.param .u64 out)\n{{\n{REGISTERS}{body}\nret;\n}}\n"
    module = inline(parse(text))
    out = np.zeros(numel or threads * grid, np.uint32)
    pointer = Pointer("out", out.ctypes.data, out.nbytes)
    buffers = Buffers([pointer], module)
    launch(module, "k", grid, threads, dynamic_nbytes, buffers, [buffers.address_of(pointer).to_bytes(8, "little")])
    return out


def test_threads_that_went_apart_meet_again() -> None:
    found = run(
        """setp.lt.u32 %p0, %r0, 20; mov.u32 %r5, 0; @%p0 bra LOW;
        add.u32 %r5, %r5, 100; bra JOIN;
        LOW: add.u32 %r5, %r5, %r0;
        JOIN: activemask.b32 %r6; popc.b32 %r7, %r6; mad.lo.u32 %r5, %r7, 1000, %r5; st.global.u32 [%rd2], %r5;""",
        threads=32,
    )
    assert found.tolist() == [32000 + i if i < 20 else 32100 for i in range(32)]


def test_loops_of_different_lengths() -> None:
    found = run(
        """mov.u32 %r5, 0; mov.u32 %r6, 0;
        LOOP: setp.ge.u32 %p0, %r6, %r3; @%p0 bra DONE;
        add.u32 %r5, %r5, %r6; add.u32 %r6, %r6, 1; bra LOOP;
        DONE: st.global.u32 [%rd2], %r5;""",
        threads=40, grid=3,
    )  # fmt: skip
    assert found.tolist() == [i * (i - 1) // 2 for i in range(120)]


def test_an_index_chooses_a_label() -> None:
    found = run(
        """and.b32 %r5, %r0, 1; mov.u32 %r6, 7;
        ts: .branchtargets A, B;
        brx.idx %r5, ts;
        A: mov.u32 %r6, 1; bra END;
        B: mov.u32 %r6, 2;
        END: st.global.u32 [%rd2], %r6;"""
    )
    assert found.tolist() == [1, 2] * 32


def test_a_call_of_a_function() -> None:
    before = """.func (.param .b32 result) twice(.param .b32 x)
    {
    .reg .b32 %r<3>; .reg .pred %p<2>;
    ld.param.b32 %r1, [x]; setp.lt.s32 %p1, %r1, 10; @%p1 bra SMALL;
    st.param.b32 [result+0], %r1; ret;
    SMALL: add.s32 %r2, %r1, %r1; st.param.b32 [result+0], %r2; ret;
    }"""
    call = "{{ .param .b32 p; st.param.b32 [p+0], {0}; .param .b32 q; call.uni (q), twice, (p); ld.param.b32 {0}, [q+0]; }}"
    found = run(f"mov.u32 %r5, %r0; {call.format('%r5')} {call.format('%r5')} st.global.u32 [%rd2], %r5;", before=before)
    assert found.tolist() == [4 * i if i < 5 else 2 * i if i < 10 else i for i in range(64)]


# ---- what threads do together ----
REVERSE = ".shared .align 4 .b8 tile[256]; mov.u32 %r5, tile; mad.lo.u32 %r6, %r0, 4, %r5; sub.u32 %r7, 63, %r0; "
REVERSE += (
    "mad.lo.u32 %r8, %r7, 4, %r5; st.shared.u32 [%r6], %r3; {barrier} ld.shared.u32 %r9, [%r8]; st.global.u32 [%rd2], %r9;"
)


def test_a_barrier_waits_for_the_block() -> None:
    found = run(REVERSE.format(barrier="bar.sync 0;"), grid=3)
    assert found.reshape(3, 64).tolist() == np.arange(192).reshape(3, 64)[:, ::-1].tolist()


def test_a_barrier_that_some_never_reach_is_reported() -> None:
    with pytest.raises(
        PtxError, match=r"nobody can go on\. 32 of 64 threads are done; 32 threads, such as thread 0 of block 0"
    ):
        run("setp.ge.u32 %p0, %r0, 32; @%p0 ret; bar.sync 0;")


def test_a_barrier_inside_a_warp_that_went_apart_is_reported() -> None:
    body = "setp.lt.u32 %p0, %r0, 5; @%p0 bra A; bar.sync 0; bra END; A: bar.sync 0; END: "
    with pytest.raises(PtxError, match="waits at another barrier instruction than others of its warp"):
        run(body)


def test_a_part_of_the_block_has_a_barrier_of_its_own() -> None:
    found = run("setp.lt.u32 %p0, %r0, 32; @%p0 bar.sync 1, 32; bar.sync 0; st.global.u32 [%rd2], 1;")
    assert found.tolist() == [1] * 64


def test_a_read_of_what_nobody_wrote_is_reported() -> None:
    body = ".shared .align 4 .b8 tile[256]; ld.shared.u32 %r9, [tile+8];"
    with pytest.raises(PtxError, match=r"thread 0 of block 0 reads 4 bytes at 8 of shared memory, which nobody wrote"):
        run(body)


def test_shuffles() -> None:
    line = "shfl.sync.{mode}.b32 %r5|%p1, %r0, {by}, {clamp}, -1; selp.u32 %r6, 1000, 0, %p1; add.u32 %r5, %r5, %r6; "
    line += "st.global.u32 [%rd2], %r5;"
    lanes = range(32)
    found = {mode: run(line.format(mode=mode, by=by, clamp=clamp), threads=32).tolist() for mode, by, clamp in
             [("bfly", 5, 31), ("up", 3, 0), ("down", 3, 31), ("idx", 2, 0x181F)]}  # fmt: skip
    assert found["bfly"] == [(i ^ 5) + 1000 for i in lanes]
    assert found["up"] == [i - 3 + 1000 if i >= 3 else i for i in lanes]
    assert found["down"] == [i + 3 + 1000 if i < 29 else i for i in lanes]
    assert found["idx"] == [i // 8 * 8 + 2 + 1000 for i in lanes]


def test_who_comes_early_to_a_shuffle_waits_for_the_others() -> None:
    """The way of some lies behind that of the others, which reach the shuffle first."""
    found = run(
        """mov.u32 %r5, %r0; setp.lt.u32 %p0, %r0, 7; @%p0 bra FAR;
        BACK: shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1; st.global.u32 [%rd2], %r6; ret;
        FAR: add.u32 %r5, %r5, 100; bra BACK;""",
        threads=32,
    )
    assert found.tolist() == [(i ^ 1) + (100 if (i ^ 1) < 7 else 0) for i in range(32)]


def test_a_shuffle_without_a_member_is_a_deadlock() -> None:
    with pytest.raises(PtxError, match="nobody can go on"):
        run("setp.eq.u32 %p0, %r0, 3; @%p0 ret; shfl.sync.bfly.b32 %r6, %r0, 1, 31, -1;", threads=32)


def test_votes_matches_and_reductions() -> None:
    found = run(
        """setp.gt.u32 %p0, %r0, 28; vote.sync.ballot.b32 %r5, %p0, -1; vote.sync.any.pred %p1, %p0, -1;
        vote.sync.all.pred %p2, %p0, -1; selp.u32 %r6, 1, 0, %p1; selp.u32 %r7, 2, 0, %p2;
        redux.sync.add.s32 %r8, %r0, -1; redux.sync.max.u32 %r9, %r0, -1; and.b32 %r10, %r0, 1;
        match.any.sync.b32 %r11, %r10, -1; .reg .pred q; elect.sync %r12|q, -1;
        add.u32 %r6, %r6, %r7; st.global.u32 [%rd1], %r5; st.global.u32 [%rd1+4], %r6; st.global.u32 [%rd1+8], %r8;
        st.global.u32 [%rd1+12], %r9; st.global.u32 [%rd1+16], %r11; @q st.global.u32 [%rd1+20], %r0;""",
        threads=32, numel=6,
    )  # fmt: skip
    # All threads store the mask of those that are even or odd as they are; one of the warp is elected, whichever.
    assert found[:4].tolist() == [0xE0000000, 1, 496, 31] and found[4] in (0x55555555, 0xAAAAAAAA) and found[5] < 32


# ---- memory ----
def test_an_access_outside_is_reported_with_instruction_and_thread() -> None:
    with pytest.raises(PtxError, match=r"k, line \d+: st.global.u32 \[%rd2\+4\], 1;: thread 63 of block 0 accesses out"):
        run("st.global.u32 [%rd2+4], 1;")
    with pytest.raises(
        PtxError, match=r"thread 0 of block 0 accesses 8 bytes of global memory at \S+, which is no multiple of 8"
    ):
        run("add.s64 %rd3, %rd1, 4; st.global.v2.u32 [%rd3], {%r0, %r0};")
    with pytest.raises(PtxError, match=r"accesses shared memory at 1280, outside of it"):
        run(".shared .align 4 .b8 tile[256]; st.shared.u32 [tile+256], 1;")
    with pytest.raises(PtxError, match=r"accesses global memory at 0, outside of it"):
        run("mov.u64 %rd3, 0; ld.global.u32 %r5, [%rd3];")


def test_generic_addresses_are_of_any_space() -> None:
    found = run(
        """.shared .align 8 .b8 tile[256]; .local .align 8 .b8 own[8];
        mov.u64 %rd3, tile; cvta.shared.u64 %rd4, %rd3; mad.wide.u32 %rd5, %r0, 4, %rd4; mov.u64 %rd6, own;
        cvta.local.u64 %rd7, %rd6; setp.lt.u32 %p0, %r0, 10; selp.b64 %rd8, %rd5, %rd7, %p0; st.u32 [%rd8], %r0;
        ld.u32 %r5, [%rd8]; st.u32 [%rd2], %r5; cvta.to.shared.u64 %rd9, %rd4; sub.s64 %rd9, %rd9, %rd3;"""
    )
    assert found.tolist() == list(range(64))


def test_memory_that_a_launch_asks_for() -> None:
    before = ".extern .shared .align 16 .b8 dynamic[];"
    body = "mov.u32 %r5, dynamic; st.shared.u32 [%r5+124], %r0; ld.shared.u32 %r6, [%r5+124]; st.global.u32 [%rd2], %r6;"
    assert run(body, before=before, dynamic_nbytes=128).tolist() == [63] * 64
    with pytest.raises(PtxError, match="outside of it"):
        run(body, before=before, dynamic_nbytes=124)


def test_constants_that_a_module_holds() -> None:
    before = ".global .align 4 .b8 bytes[8] = {1, 2, 3, 4, 255};\n.const .align 4 .f32 one = 0f3F800000;"
    body = """ld.global.u32 %r5, [bytes]; ld.global.u32 %r6, [bytes+4]; ld.const.f32 %f0, [one];
        st.global.u32 [%rd1], %r5; st.global.u32 [%rd1+4], %r6; st.global.f32 [%rd1+8], %f0;"""
    found = run(body, before=before, numel=3)
    assert found.tolist() == [0x04030201, 255, 0x3F800000]


def test_atomics_on_one_place_follow_each_other() -> None:
    found = run(
        """atom.global.add.u32 %r5, [%rd1], 2; red.global.max.u32 [%rd1+4], %r0; atom.global.inc.u32 %r6, [%rd1+8], 9;
        setp.eq.u32 %p0, %r5, 0; @%p0 atom.global.exch.b32 %r7, [%rd1+12], 5;
        atom.global.cas.b32 %r8, [%rd1+16], 0, %r3; mov.f32 %f0, 0f3F800000; red.global.add.f32 [%rd1+20], %f0;""",
        grid=2, numel=6,
    )  # fmt: skip
    assert found[:4].tolist() == [256, 63, 128 % 10, 5] and found[5:].view(np.float32) == 128
    assert found[4] == 127  # the last lane comes first


def test_atomics_in_shared_memory_are_of_a_block() -> None:
    found = run(
        """.shared .align 4 .b8 count[4]; setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [count], 0; bar.sync 0;
        atom.shared.add.u32 %r5, [count], 1; bar.sync 0; ld.shared.u32 %r6, [count]; st.global.u32 [%rd2], %r6;""",
        grid=3,
    )
    assert found.tolist() == [64] * 192


def test_a_scope_of_inline_assembly_has_its_own_names() -> None:
    body = """mov.u32 %r5, 3; { .reg .pred p; .reg .b32 %r5x; setp.eq.u32 p, %r0, 1; selp.u32 %r5, 9, 3, p; @p bra OUT;
    OUT: mov.u32 %r5x, 4; } { .reg .pred p; setp.ne.u32 p, %r0, 1; OUT: @p mov.u32 %r5, 8; } st.global.u32 [%rd2], %r5;"""
    assert run(body, threads=2).tolist() == [8, 9]


def test_an_opcode_has_one_row() -> None:
    rows = Path(table.__file__).read_text()
    names = re.search(r"TABLE: [^=]* = \{(.*?)\}", rows, re.DOTALL)
    assert names is not None
    tables = [getattr(table, name) for name in re.findall(r"\*\*(\w+)", names[1])]
    assert len(tables) >= 10 and sum(map(len, tables)) == len(table.TABLE)


def test_text_that_is_no_ptx_is_reported_with_its_line() -> None:
    with pytest.raises(PtxError, match="line 1: 'hello' stands where '.version' is needed"):
        parse("hello")
    with pytest.raises(PtxError, match=r"line 5: '%q' is not declared"):
        parse(f"{HEAD}.entry k()\n{{ mov.u32 %q, 1; }}")
    with pytest.raises(PtxError, match=r"line 4: '\?' begins no word of PTX"):
        parse(f"{HEAD}?")
