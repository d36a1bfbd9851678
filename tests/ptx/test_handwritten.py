"""Instructions that no kernel of picograd has so far, or has only in one form, in small kernels of PTX."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.background import working
from tests.ptx.copies import When
from tests.ptx.device import module_of
from tests.ptx.launch import Buffers, Pointer, launch
from tests.ptx.module import PtxError

Array = np.ndarray
HEAD = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 given, .param .u64 out)
{
  .reg .pred %p<8>;
  .reg .b32 %r<40>;
  .reg .b64 %d<16>;
  .shared .align 16 .b8 tile[512];
  .shared .align 8 .b8 barrier[8];
  ld.param.u64 %d0, [given];
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d0, %d0;
  cvta.to.global.u64 %d1, %d1;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, tile;
  mov.u32 %r2, barrier;
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d3, %d0, %d2;
  add.s64 %d4, %d1, %d2;
  shl.b32 %r3, %r0, 4;
  add.s32 %r4, %r1, %r3;
  setp.eq.u32 %p1, %r0, 0;
"""


def outcome(body: str, given: Array, threads: int = 32, count: int = 32, when: When = When.LATE) -> Array:
    """Returns the words that a kernel of one block writes: thread i has its own at %d4, and one of `given` at %d3."""
    room = np.zeros(2 * 4096, np.uint8)
    start = -room.ctypes.data % 256
    source, out = room[start : start + given.nbytes], room[start + 2048 : start + 2048 + 4 * count]
    source[:] = given.view(np.uint8).reshape(-1)
    pointers = [Pointer(name, part.ctypes.data, part.nbytes) for name, part in (("given", source), ("out", out))]
    module = module_of(f"{HEAD}{body}\n  ret;\n}}\n")
    buffers = Buffers(pointers, module)
    with working(when):
        launch(
            module, "kernel", 1, threads, 0, buffers, [buffers.address_of(one).to_bytes(8, "little") for one in pointers]
        )
    return out.view(np.uint32).copy()


WORDS = np.arange(1, 33, dtype=np.uint32) * 0x10001


def matrix_of(words: Array) -> Array:
    return words.view(np.uint16).reshape(8, 8)


def test_a_matrix_is_turned_in_registers() -> None:
    found = outcome(
        "ld.global.u32 %r5, [%d3]; movmatrix.sync.aligned.m8n8.trans.b16 %r6, %r5; st.global.u32 [%d4], %r6;", WORDS
    )
    np.testing.assert_array_equal(matrix_of(found), matrix_of(WORDS).T)


@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_is_stored_and_loaded(turned: bool) -> None:
    trans = ".trans" if turned else ""
    body = f"""ld.global.u32 %r5, [%d3];
  stmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 [%r4], {{%r5}};
  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r6}}, [%r4];
  st.global.u32 [%d4], %r6;"""
    expected = matrix_of(WORDS).T if turned else matrix_of(WORDS)
    np.testing.assert_array_equal(matrix_of(outcome(body, WORDS)), expected)


def test_a_row_of_a_matrix_begins_at_a_multiple_of_16() -> None:
    with pytest.raises(PtxError, match="no multiple of 16"):
        outcome("add.s32 %r4, %r4, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%r4];", WORDS)


def test_a_warp_that_is_not_whole_has_no_product() -> None:
    body = "@!%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%r4];"
    with pytest.raises(PtxError, match="nobody can go on"):
        outcome(body, WORDS)


def test_wait_all_needs_no_group() -> None:
    body = """cp.async.ca.shared.global [%r4], [%d3], 4;
  cp.async.wait_all;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%d4], %r5;"""
    np.testing.assert_array_equal(outcome(body, WORDS), WORDS)
    with pytest.raises(PtxError, match="which nobody wrote"):
        outcome(body.replace("cp.async.wait_all;", ""), WORDS)


def test_one_of_those_in_a_mask_is_elected() -> None:
    body = """setp.lt.u32 %p2, %r0, 12;
  @!%p2 bra DONE;
  elect.sync %r5|%p3, 0xfff;
  selp.u32 %r6, 100, 0, %p3;
  add.u32 %r6, %r6, %r5;
  st.global.u32 [%d4], %r6;
DONE:"""
    found = outcome(body, WORDS)
    assert found[:12].tolist() == [11] * 11 + [111] and not found[12:].any()


# ---- mbarriers ----
ARRIVES = """@%p1 mbarrier.init.shared::cta.b64 [%r2], 32;
  bar.sync 0;
  mbarrier.arrive.shared::cta.b64 %d5, [%r2];
WAIT:
  mbarrier.test_wait.shared::cta.b64 %p2, [%r2], %d5;
  @!%p2 bra WAIT;
  st.global.u32 [%d4], %r0;"""


def test_a_phase_is_waited_for_by_its_state() -> None:
    np.testing.assert_array_equal(outcome(ARRIVES, WORDS), np.arange(32))
    with pytest.raises(PtxError, match="nobody can go on"):
        outcome(ARRIVES.replace(", 32;", ", 33;", 1), WORDS)


def test_bytes_are_announced_and_counted_by_hand() -> None:
    body = """@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
  bar.sync 0;
  @%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 64;
  @%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];
  @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 64;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  st.global.u32 [%d4], %r0;"""
    np.testing.assert_array_equal(outcome(body, WORDS), np.arange(32))
    with pytest.raises(PtxError, match="nobody can go on"):
        outcome(body.replace("b64 [%r2], 64;", "b64 [%r2], 48;", 1), WORDS)


def test_an_mbarrier_that_is_none_any_more() -> None:
    body = "@%p1 mbarrier.init.shared::cta.b64 [%r2], 1; @%p1 mbarrier.inval.shared::cta.b64 [%r2];"
    outcome(body, WORDS)
    with pytest.raises(PtxError, match="is no mbarrier"):
        outcome(f"{body} @%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];", WORDS)


def test_registers_of_a_warpgroup_are_counted_in_eights() -> None:
    outcome("setmaxnreg.dec.sync.aligned.u32 40;", WORDS)
    with pytest.raises(PtxError, match="24 to 256 registers"):
        outcome("setmaxnreg.dec.sync.aligned.u32 36;", WORDS)
