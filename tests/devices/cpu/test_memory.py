"""Blocks lie on huge pages: those of a slab share them, larger ones have as many as fit."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest

from picograd.devices.cpu import memory
from picograd.devices.cpu.memory import HUGE_NBYTES, SLAB_BLOCK_NBYTES_MAX, SLAB_NBYTES, MemoryPool, size_class

pytestmark = pytest.mark.req("G8")
SMAPS = Path("/proc/self/smaps")


def on_huge_pages(address: int, nbytes: int) -> int:
    """Returns for how many of these bytes the system has been asked for huge pages (proc(5): VmFlags hg)."""
    found, start, end = 0, 0, 0
    for line in SMAPS.read_text().splitlines():
        if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            start, end = (int(word, 16) for word in head.groups())
        elif line.startswith("VmFlags:") and " hg" in line:
            found += max(0, min(end, address + nbytes) - max(start, address))
    return found


has_huge_pages = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists() or not SMAPS.exists(),
    reason="this system has no transparent huge pages, or does not say where",
)


@has_huge_pages
@pytest.mark.parametrize("nbytes", [100, 1 << 20, 3 << 19, HUGE_NBYTES])
def test_a_block_of_a_slab_lies_on_huge_pages(nbytes: int) -> None:
    pool = MemoryPool()  # its mappings go with it
    block = pool.allocate(nbytes)
    assert on_huge_pages(block.address, nbytes) == nbytes


@has_huge_pages
@pytest.mark.parametrize("nbytes", [HUGE_NBYTES + 1, 3 << 20, 16 << 20, 5 * HUGE_NBYTES - 1])
def test_a_large_block_has_as_many_as_fit(nbytes: int) -> None:
    pool = MemoryPool()  # its mappings go with it
    block = pool.allocate(nbytes)
    assert block.address % HUGE_NBYTES == 0
    assert on_huge_pages(block.address, nbytes) == min(nbytes, size_class(nbytes) // HUGE_NBYTES * HUGE_NBYTES)


def test_slabs_are_cut_without_gaps() -> None:
    pool = MemoryPool()
    blocks = [pool.allocate(SLAB_BLOCK_NBYTES_MAX) for _ in range(SLAB_NBYTES // SLAB_BLOCK_NBYTES_MAX)]
    first = blocks[0].address
    assert [block.address - first for block in blocks] == [i * SLAB_BLOCK_NBYTES_MAX for i in range(len(blocks))]


def test_memory_in_cycles_of_references_is_found_before_there_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = MemoryPool()
    cycle: list[object] = [pool.allocate(SLAB_BLOCK_NBYTES_MAX * 2)]
    cycle.append(cycle)
    del cycle
    held = pool.in_use
    real, failed = memory._anonymous, []

    def full(length: int) -> tuple[mmap.mmap, int]:
        if not failed:
            failed.append(length)
            raise OSError("full")
        return real(length)

    monkeypatch.setattr(memory, "_anonymous", full)
    kept = pool.allocate(SLAB_BLOCK_NBYTES_MAX * 4)
    assert failed and held == SLAB_BLOCK_NBYTES_MAX * 2
    assert pool.in_use == SLAB_BLOCK_NBYTES_MAX * 4 and kept.address
